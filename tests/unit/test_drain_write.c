/* fp-drain: parts of a file into its temporary file: pieces of chunks, holes, sums, what is missing or damaged, errors of the target. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp/err.h"
#include "fp/fault.h"
#include "tests/unit/drain_world.h"

#define TMP "a5a5a5a5-7-1"
#define TMP_PATH FP_DW_TEMP_DIR "/" TMP

static struct dw d;

static int setup(void **state)
{
    (void)state;
    return dw_setup(&d);
}

static int teardown(void **state)
{
    (void)state;
    return dw_teardown(&d);
}

static uint64_t prepared(uint64_t size)
{
    assert_int_equal(dw_prepare(&d, "run/file", TMP, size), 0);
    assert_true(d.done.tino != 0);
    return d.done.tino;
}

/* -------------------------------------------------------------- bytes */

static void test_whole_chunks_are_written_and_summed(void **state)
{
    struct fp_dw_slice s[3];
    uint64_t size = 2 * DW_WINDOW + 1234, ino;

    (void)state;
    s[0] = dw_chunk(&d, 1, DW_WINDOW, 0);
    s[1] = dw_chunk(&d, 2, DW_WINDOW, DW_WINDOW);
    s[2] = dw_chunk(&d, 3, 1234, 2 * DW_WINDOW);
    ino = prepared(size);
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, s, 3), 0);
    assert_int_equal(d.done.nsums, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(d.sums[i] == s[i].sum); /* one chunk is the whole window */
    assert_int_equal(d.done.bytes, size);
    assert_int_equal(dw_compare(&d, TMP_PATH, size, 0, s, 3), 0);
    assert_false(dw_exists(&d, "run/file"));
}

/* Odd offsets and lengths, a chunk used twice, pieces that touch and that do not, windows without any. */
static void test_pieces_and_holes(void **state)
{
    struct fp_dw_slice a = dw_chunk(&d, 11, 200000, 0), b = dw_chunk(&d, 12, 70001, 0), s[6];
    uint64_t size = 6 * DW_WINDOW + 77, ino = prepared(size);

    (void)state;
    s[0] = dw_piece(a, 3, 1001, 0);
    s[1] = dw_piece(b, 65535, 4000, 1001);
    s[2] = dw_piece(a, 131071, 5, 60000);
    s[3] = dw_piece(a, 100000, DW_WINDOW, 2 * DW_WINDOW);
    s[4] = dw_piece(b, 0, 70, 3 * DW_WINDOW + DW_WINDOW - 70);
    s[5] = dw_piece(a, 199999, 1, 6 * DW_WINDOW + 76);
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, s, 6), 0);
    assert_int_equal(dw_compare(&d, TMP_PATH, size, 0, s, 6), 0);
    assert_int_equal(d.done.nsums, 4); /* of the windows that have some: 0, 2, 3, 6 */
    assert_true(d.sums[0] == dw_sum_of(s, 6, size, 0));
    assert_true(d.sums[1] == dw_sum_of(s, 6, size, 2));
    assert_true(d.sums[2] == dw_sum_of(s, 6, size, 3));
    assert_true(d.sums[3] == dw_sum_of(s, 6, size, 6));
    assert_int_equal(d.done.bytes, 1001 + 4000 + 5 + DW_WINDOW + 70 + 1);
}

/* The padding of a record is no data: here it is not zeros, and the next piece lies behind it. */
static void test_padding_of_a_record_gets_nowhere(void **state)
{
    struct fp_dw_slice a = dw_chunk(&d, 21, 5000, 0), b = dw_chunk(&d, 22, 300, 0), s[2];
    uint64_t size = DW_WINDOW, ino = prepared(size);
    uint8_t *page = aligned_alloc(4096, 4096);
    struct iovec iov = { page, 4096 };

    (void)state;
    assert_int_equal(bnf_file_read(d.seg, page, 4096, (uint64_t)a.page * 4096 + 8192), 0);
    memset(page + 5000 - 4096, 0xee, 4096 - (5000 - 4096));
    assert_int_equal(bnf_file_write(d.seg, &iov, 1, (uint64_t)a.page * 4096 + 8192), 0);
    free(page);
    s[0] = a;
    s[1] = dw_piece(b, 0, 300, 6000);
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, s, 2), 0);
    assert_int_equal(dw_compare(&d, TMP_PATH, size, 0, s, 2), 0);
    assert_true(d.sums[0] == dw_sum_of(s, 2, size, 0));
}

/* Random maps against a model, whole and in parts: each part in a message of its own, in any order, one of them twice. */
static void test_random_maps(void **state)
{
    struct fp_dw_slice chunk[8], s[64], part[64];
    unsigned seed = 12345;

    (void)state;
    for (uint32_t i = 0; i < 8; i++)
        chunk[i] = dw_chunk(&d, 100 + i, 1 + (uint32_t)rand_r(&seed) % (3 * DW_WINDOW), 0);
    for (int round = 0; round < 40; round++) {
        uint64_t size = 1 + (uint64_t)rand_r(&seed) % (9 * DW_WINDOW), at = 0, ino;
        uint32_t n = 0, split = 1 + (uint32_t)rand_r(&seed) % 9;
        char tmp[64];

        while (n < 64) {
            struct fp_dw_slice c = chunk[rand_r(&seed) % 8];
            uint64_t gap = rand_r(&seed) % 3 ? 0 : (uint64_t)rand_r(&seed) % DW_WINDOW, left;
            uint32_t off = (uint32_t)rand_r(&seed) % c.chunk_len, len = 1 + (uint32_t)rand_r(&seed) % (c.chunk_len - off);

            at += gap;
            if (at >= size)
                break;
            left = DW_WINDOW - at % DW_WINDOW;
            left = left < size - at ? left : size - at;
            len = len < left ? len : (uint32_t)left;
            s[n++] = dw_piece(c, off, len, (uint32_t)at);
            at += len;
        }
        snprintf(tmp, sizeof(tmp), "a5a5a5a5-%d-1", 100 + round);
        assert_int_equal(dw_prepare(&d, "file", tmp, size), 0);
        ino = d.done.tino;
        for (uint64_t w = 0; w * DW_WINDOW < size; w += split) {
            uint64_t first = (size - 1) / DW_WINDOW / split * split - w;
            uint32_t m = 0;

            for (uint32_t i = 0; i < n; i++)
                if (s[i].at / DW_WINDOW >= first && s[i].at / DW_WINDOW < first + split) {
                    part[m] = s[i];
                    part[m++].at -= (uint32_t)(first * DW_WINDOW);
                }
            for (int twice = 0; m && twice < (w == 0 ? 2 : 1); twice++)
                assert_int_equal(dw_write(&d, tmp, ino, size, first, part, m), 0);
        }
        snprintf(tmp, sizeof(tmp), FP_DW_TEMP_DIR "/a5a5a5a5-%d-1", 100 + round);
        assert_int_equal(dw_compare(&d, tmp, size, 0, s, n), 0);
    }
}

/* More than one run of the buffer: 20 MiB in one task. */
static void test_a_large_part(void **state)
{
    static struct fp_dw_slice s[320];
    uint64_t size = 320ull * DW_WINDOW, ino = prepared(size);

    (void)state;
    for (uint32_t i = 0; i < 320; i++)
        s[i] = dw_chunk(&d, 1000 + i, DW_WINDOW, i * DW_WINDOW);
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, s, 320), 0);
    assert_int_equal(d.done.nsums, 320);
    assert_int_equal(dw_compare(&d, TMP_PATH, size, 0, s, 320), 0);
    assert_int_equal(atomic_load(&d.status.written_bytes), size);
}

/* A window of as many pieces as there can be: a message of many packets is one task, with one sum for it. */
static void test_a_window_of_very_many_pieces(void **state)
{
    static struct fp_dw_slice s[DW_WINDOW / 2];
    static struct fp_dw_range other[DW_WINDOW / 2];
    struct fp_dw_slice a = dw_chunk(&d, 61, DW_WINDOW, 0);
    uint64_t ino = prepared(DW_WINDOW), sum;

    (void)state;
    for (uint32_t i = 0; i < DW_WINDOW / 2; i++) {
        s[i] = dw_piece(a, DW_WINDOW - 1 - i, 1, 2 * i);
        other[i] = (struct fp_dw_range){ 2 * i + 1, 1 };
    }
    assert_true(sizeof(s) > 5ul * FP_DW_MESSAGE_MAX_BYTES && sizeof(other) > FP_DW_MESSAGE_MAX_BYTES);
    assert_int_equal(dw_write(&d, TMP, ino, DW_WINDOW, 0, s, DW_WINDOW / 2), 0);
    assert_int_equal(d.done.nsums, 1);
    sum = d.sums[0];
    assert_true(sum == dw_sum_of(s, DW_WINDOW / 2, DW_WINDOW, 0));
    assert_int_equal(dw_compare(&d, TMP_PATH, DW_WINDOW, 0, s, DW_WINDOW / 2), 0);
    for (uint32_t i = 0; i < DW_WINDOW / 2; i++)
        s[i].at++;
    assert_int_equal(dw_write(&d, TMP, ino, DW_WINDOW, 0, s, DW_WINDOW / 2), 0);
    assert_int_equal(dw_verify_own(&d, TMP, ino, DW_WINDOW, &sum, 1, other, DW_WINDOW / 2), 0);
    assert_int_equal(dw_verify_own(&d, TMP, ino, DW_WINDOW, &sum, 1, other, DW_WINDOW / 2 - 1), FP_ECHECKSUM);
}

/* -------------------------------------------------------------- what is not there */

static void test_missing_and_damaged_chunks(void **state)
{
    struct fp_dw_slice a = dw_chunk(&d, 31, DW_WINDOW, 0), b = dw_chunk(&d, 32, DW_WINDOW, 0), c = dw_chunk(&d, 33, DW_WINDOW, 0);
    uint64_t size = DW_WINDOW, ino = prepared(size);
    uint8_t *page = aligned_alloc(4096, 4096);
    struct iovec iov = { page, 4096 };

    (void)state;
    assert_int_equal(bnf_backend_punch(d.backend, d.seg, (uint64_t)a.page * 4096, 4096 + DW_WINDOW), 0);
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, &a, 1), FP_ECHUNK_MISSING);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_CHUNK);
    assert_int_equal(d.done.chunk, 31);
    assert_int_equal(d.done.nsums, 0);

    memset(page, 0x55, 4096);
    assert_int_equal(bnf_file_write(d.seg, &iov, 1, (uint64_t)b.page * 4096 + 4096 + 8192), 0);
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, &b, 1), FP_ECHECKSUM);
    assert_int_equal(d.done.chunk, 32);
    /* the piece that is asked for is in blocks that are well */
    c.sum++;
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, &c, 1), FP_ECORRUPT);
    c.sum--;
    c.chunk = 34;
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, &c, 1), FP_ECORRUPT);
    c.chunk = 33;
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, &c, 1), 0);
    assert_int_equal(dw_compare(&d, TMP_PATH, size, 0, &c, 1), 0);
    free(page);
}

static void test_a_segment_that_was_not_told(void **state)
{
    struct fp_dw_slice a = dw_chunk(&d, 41, 100, 0);
    struct fp_dw_seg drop = { .h = { .type = FP_DW_SEG_DROP }, .segment = DW_SEGMENT };
    uint64_t ino = prepared(100);

    (void)state;
    dw_send(&d, &drop, sizeof(drop), NULL, 0, -1);
    assert_int_equal(dw_write(&d, TMP, ino, 100, 0, &a, 1), FP_ECHUNK_MISSING);
}

static void test_only_the_temporary_file_that_was_told(void **state)
{
    struct fp_dw_slice a = dw_chunk(&d, 51, 100, 0);
    uint64_t ino = prepared(100);

    (void)state;
    assert_int_equal(dw_write(&d, TMP, ino + 1, 100, 0, &a, 1), -ENOENT);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
    assert_int_equal(dw_write(&d, "a5a5a5a5-7-2", ino, 100, 0, &a, 1), -ENOENT);
    assert_false(dw_exists(&d, FP_DW_TEMP_DIR "/a5a5a5a5-7-2"));
    /* a symlink that has its name is followed nowhere */
    dw_make(&d, "elsewhere", "");
    assert_int_equal(unlink(dw_path(&d, TMP_PATH)), 0);
    assert_int_equal(symlink("../elsewhere", dw_path(&d, TMP_PATH)), 0);
    assert_int_equal(dw_write(&d, TMP, ino, 100, 0, &a, 1), -ELOOP);
    assert_int_equal(dw_compare(&d, "elsewhere", 0, 0, NULL, 0), 0);
}

/* -------------------------------------------------------------- errors of the target */

static void test_errors_of_the_target_are_its_own(void **state)
{
    struct fp_dw_slice s[2];
    uint64_t size = 2 * DW_WINDOW, ino = prepared(size);

    (void)state;
    s[0] = dw_chunk(&d, 61, DW_WINDOW, 0);
    s[1] = dw_chunk(&d, 62, DW_WINDOW, DW_WINDOW);
    fp_fault_set("drain.pwrite=ENOSPC:count=1");
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, s, 2), -ENOSPC);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
    assert_int_equal(fp_fault_fired("drain.pwrite"), 1);
    assert_int_equal(d.done.nsums, 0);
    fp_fault_set("drain.fsync=EIO:count=1");
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, s, 2), -EIO);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
    fp_fault_set("drain.root=ESTALE:count=1");
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, s, 2), -ESTALE);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
    /* of the segment: not the target's, and the chunk is named */
    fp_fault_set("drain.pread=EIO:count=1");
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, s, 2), -EIO);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_CHUNK);
    assert_int_equal(d.done.chunk, 61);
    fp_fault_set(NULL);
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, s, 2), 0);
    assert_int_equal(dw_compare(&d, TMP_PATH, size, 0, s, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_whole_chunks_are_written_and_summed),
        T(test_pieces_and_holes),
        T(test_padding_of_a_record_gets_nowhere),
        T(test_random_maps),
        T(test_a_large_part),
        T(test_a_window_of_very_many_pieces),
        T(test_missing_and_damaged_chunks),
        T(test_a_segment_that_was_not_told),
        T(test_only_the_temporary_file_that_was_told),
        T(test_errors_of_the_target_are_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
