/*
 * Recovery on real files: whatever a crash or a bad disk leaves, every whole record is found, nothing else
 * is, and the space of everything else is given back.
 */
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

#include "benefactor/recover.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/log.h"
#include "fp/record.h"
#include "tests/unit/bnf_util.h"

#define MIB   ((uint64_t)1 << 20)
#define LIMIT (64 * MIB)

struct fixture {
    struct bnf_scratch t;
    struct bnf_backend *b;
    struct bnf_store *s;
    struct bnf_recover_result res;
    struct bnf_file *files[256];
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));

    bnf_scratch_init(&x->t);
    assert_int_equal(bnf_backend_dir_new(x->t.dir_fd, &x->b), 0);
    *state = x;
    return 0;
}

static void forget(struct fixture *x)
{
    for (int i = 0; i < 256; i++) {
        bnf_file_put(x->files[i]);
        x->files[i] = NULL;
    }
    bnf_store_free(x->s);
    x->s = NULL;
}

static int teardown(void **state)
{
    struct fixture *x = *state;

    forget(x);
    bnf_backend_free(x->b);
    bnf_scratch_fini(&x->t);
    free(x);
    return 0;
}

static void on_found(void *arg, uint32_t slot, struct bnf_file *f)
{
    struct fixture *x = arg;

    assert_true(slot < 256);
    x->files[slot] = f;
}

static void recover(struct fixture *x)
{
    struct bnf_store_config config = {.capacity_bytes = 4096 * MIB, .segment_bytes = LIMIT};
    struct bnf_recover_config c = {.backend = x->b,
                                   .dir_fd = x->t.dir_fd,
                                   .store_uuid = x->t.store_uuid,
                                   .bnf_uuid = x->t.bnf_uuid,
                                   .threads = 3,
                                   .found = on_found,
                                   .arg = x};

    forget(x);
    assert_int_equal(bnf_store_new(&config, &x->s), 0);
    assert_int_equal(bnf_recover(&c, x->s, &x->res), 0);
    bnf_store_check(x->s);
}

static bool has_whole(struct fixture *x, uint64_t chunk, uint32_t len)
{
    struct bnf_place at;
    uint32_t stored;
    uint64_t sum;
    uint8_t *want, *got;
    bool same;

    if (bnf_store_find(x->s, chunk, &at))
        return false;
    want = bnf_make_record(chunk, at.segment, at.salt, at.off_bytes, len, &stored, &sum);
    got = aligned_alloc(4096, stored);
    same = stored == at.stored_bytes && sum == at.sum && len == at.len_bytes &&
           bnf_file_read(x->files[at.slot], got, stored, at.off_bytes) == 0 && memcmp(got, want, stored) == 0;
    free(want);
    free(got);
    return same;
}

static void flip(struct fixture *x, uint64_t segment, uint64_t off)
{
    char name[64];
    uint8_t byte;
    int fd;

    snprintf(name, sizeof(name), "seg-%016llx", (unsigned long long)segment);
    fd = openat(x->t.dir_fd, name, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)off), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)off), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static void test_recover_finds_all_records_of_many_segments(void **state)
{
    struct fixture *x = *state;
    uint64_t chunk = 1;

    for (uint64_t seg = 1; seg <= 7; seg++) {
        struct bnf_file *f = bnf_new_segment(&x->t, x->b, seg, LIMIT);
        uint64_t off = 4096;

        for (int i = 0; i < 20; i++, chunk++)
            off = bnf_put_record(f, chunk, off, (uint32_t)(1 + chunk * 7919 % (300 << 10)));
        bnf_file_put(f);
    }
    recover(x);
    assert_int_equal(x->res.segments, 7);
    assert_int_equal(x->res.records, 140);
    assert_int_equal(x->res.torn, 0);
    for (uint64_t c = 1; c < chunk; c++)
        assert_true(has_whole(x, c, (uint32_t)(1 + c * 7919 % (300 << 10))));
}

static void test_recover_empty_directory(void **state)
{
    struct fixture *x = *state;

    recover(x);
    assert_int_equal(x->res.segments, 0);
    assert_int_equal(bnf_store_start(x->s), 0);
}

static void test_recover_skips_holes_of_deleted_records(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT);
    uint64_t off = 4096, ends[10];

    for (uint64_t i = 0; i < 10; i++)
        ends[i] = off = bnf_put_record(f, i + 1, off, 1 << 20);
    assert_int_equal(bnf_backend_punch(x->b, f, 4096, ends[2] - 4096), 0);
    assert_int_equal(bnf_backend_punch(x->b, f, ends[4], ends[5] - ends[4]), 0);
    recover(x);
    assert_int_equal(x->res.records, 6);
    assert_int_equal(x->res.torn, 0);
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(has_whole(x, i + 1, 1 << 20), !(i < 3 || i == 5));
    bnf_file_put(f);
}

static void test_recover_gives_back_rests_of_leases(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT);

    assert_int_equal(bnf_backend_alloc(x->b, f, 4096, 32 * MIB), 0);
    bnf_put_record(f, 1, 4096 + 5 * MIB, 1 << 20);
    assert_true(bnf_file_space(f) > 32 * MIB);
    recover(x);
    assert_int_equal(x->res.records, 1);
    assert_true(has_whole(x, 1, 1 << 20));
    assert_in_range(bnf_file_space(f), MIB, MIB + 65536);
    bnf_file_put(f);
}

static void test_recover_resyncs_after_a_torn_header(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT);
    uint64_t off = 4096, ends[6];

    for (uint64_t i = 0; i < 6; i++)
        ends[i] = off = bnf_put_record(f, i + 1, off, (3 << 20) + 5);
    flip(x, 1, ends[1] + 200);
    flip(x, 1, ends[4]);
    recover(x);
    assert_int_equal(x->res.records, 4);
    assert_int_equal(x->res.torn, 2);
    for (uint64_t i = 0; i < 6; i++)
        assert_int_equal(has_whole(x, i + 1, (3 << 20) + 5), i != 2 && i != 5);
    recover(x); /* what was torn has become a hole */
    assert_int_equal(x->res.records, 4);
    assert_int_equal(x->res.torn, 0);
    bnf_file_put(f);
}

static void test_recover_torn_data_is_left_to_the_sums(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT);

    bnf_put_record(f, 1, 4096, 1 << 20);
    flip(x, 1, 4096 + 4096 + 70000);
    recover(x);
    assert_int_equal(x->res.records, 1);
    assert_false(has_whole(x, 1, 1 << 20));
    bnf_file_put(f);
}

static void test_recover_ignores_records_inside_user_data(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT);
    uint32_t stored;
    uint64_t sum;
    uint8_t *rec = bnf_make_record(99, 1, f->salt, 4096, 1 << 20, &stored, &sum);
    struct iovec iov = {.iov_base = rec, .iov_len = stored};
    uint64_t off = bnf_put_record(f, 1, 4096, 1 << 20);

    assert_int_equal(bnf_file_write(f, &iov, 1, off), 0); /* a valid header of another place */
    bnf_put_record(f, 2, off + stored, 1 << 20);
    recover(x);
    assert_int_equal(x->res.records, 2);
    assert_int_equal(x->res.torn, 1);
    assert_true(has_whole(x, 1, 1 << 20));
    assert_true(has_whole(x, 2, 1 << 20));
    free(rec);
    bnf_file_put(f);
}

static void test_recover_segment_cut_off_keeps_what_is_whole(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT);
    uint64_t off = 4096;

    for (uint64_t i = 0; i < 4; i++)
        off = bnf_put_record(f, i + 1, off, 1 << 20);
    assert_int_equal(ftruncate(f->fd, (off_t)(off - 300000)), 0);
    recover(x);
    assert_int_equal(x->res.records, 3);
    assert_int_equal(ftruncate(f->fd, 4096 + 100), 0);
    recover(x);
    assert_int_equal(x->res.records, 0);
    bnf_file_put(f);
}

static void test_recover_damaged_segment_header_is_set_aside(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 5, LIMIT), *g = bnf_new_segment(&x->t, x->b, 6, LIMIT);
    struct bnf_op *op;

    bnf_put_record(f, 1, 4096, 1 << 20);
    bnf_put_record(g, 2, 4096, 1 << 20);
    flip(x, 6, 60);
    fp_log_set_level((enum fp_log_level) - 1);
    recover(x);
    fp_log_set_level(FP_LOG_INFO);
    assert_int_equal(x->res.set_aside, 1);
    assert_int_equal(x->res.records, 1);
    assert_int_equal(faccessat(x->t.dir_fd, "seg-0000000000000006", F_OK, 0), 0);
    assert_int_equal(bnf_store_start(x->s), 0);
    op = bnf_store_pop_op(x->s);
    assert_int_equal(op->segment, 7);
    free(op);
    bnf_file_put(f);
    bnf_file_put(g);
}

static void test_recover_foreign_segment_is_set_aside(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f;

    x->t.store_uuid[0] ^= 1;
    f = bnf_new_segment(&x->t, x->b, 5, LIMIT);
    x->t.store_uuid[0] ^= 1;
    fp_log_set_level((enum fp_log_level) - 1);
    recover(x);
    fp_log_set_level(FP_LOG_INFO);
    assert_int_equal(x->res.set_aside, 1);
    bnf_file_put(f);
}

static void test_recover_of_two_copies_keeps_the_newer_whole_one(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT), *g = bnf_new_segment(&x->t, x->b, 2, LIMIT);
    struct bnf_place at;
    uint64_t off = bnf_put_record(f, 1, 4096, 1 << 20);

    bnf_put_record(f, 2, off, 1 << 20);
    off = bnf_put_record(g, 2, 4096, 1 << 20);
    bnf_put_record(g, 1, off, 1 << 20);
    flip(x, 2, off + 4096 + 99); /* the newer copy of 1 is torn */
    recover(x);
    assert_int_equal(x->res.duplicates, 2);
    assert_int_equal(x->res.records, 2);
    assert_int_equal(bnf_store_find(x->s, 2, &at), 0);
    assert_int_equal(at.segment, 2);
    assert_true(has_whole(x, 2, 1 << 20));
    assert_int_equal(bnf_store_find(x->s, 1, &at), 0);
    assert_int_equal(at.segment, 1);
    assert_true(has_whole(x, 1, 1 << 20));
    assert_in_range(bnf_file_space(f) + bnf_file_space(g), 2 * MIB, 2 * MIB + 65536);
    recover(x);
    assert_int_equal(x->res.duplicates, 0);
    bnf_file_put(f);
    bnf_file_put(g);
}

/* A coded chunk of the largest chunk size may be longer than the data was. */
static void test_recover_finds_a_record_longer_than_the_largest_chunk(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT);
    uint64_t off = bnf_put_record(f, 1, 4096, 100);

    off = bnf_put_record(f, 2, off, FP_CHUNK_MAX_BYTES + 5120);
    off = bnf_put_record(f, 3, off, FP_STORED_MAX_BYTES);
    (void)bnf_put_record(f, 4, off, 100);
    recover(x);
    assert_int_equal(x->res.records, 4);
    assert_int_equal(x->res.torn, 0);
    assert_true(has_whole(x, 2, FP_CHUNK_MAX_BYTES + 5120));
    assert_true(has_whole(x, 3, FP_STORED_MAX_BYTES));
    bnf_file_put(f);
}

static void test_recover_removes_half_made_segments(void **state)
{
    struct fixture *x = *state;
    int fd = openat(x->t.dir_fd, "seg-0000000000000009.new", O_CREAT | O_WRONLY, 0600);

    assert_true(fd >= 0);
    close(fd);
    recover(x);
    assert_int_equal(x->res.segments, 0);
    assert_int_equal(faccessat(x->t.dir_fd, "seg-0000000000000009.new", F_OK, 0), -1);
}

/* kill -9 between cutting a segment to nothing and taking its name away, which CI once met. */
static void test_recover_segment_whose_removal_was_cut_short_is_gone(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 9, LIMIT);

#ifdef FP_FAULT
    assert_int_equal(fp_fault_set("bnf.cut=EIO:count=1"), 0);
    assert_int_equal(bnf_backend_unlink(x->b, f), -EIO);
#else
    assert_int_equal(bnf_backend_unlink(x->b, f), 0);
#endif
    recover(x);
    assert_int_equal(x->res.set_aside, 0);
    assert_int_equal(x->res.segments, 0);
    assert_int_equal(faccessat(x->t.dir_fd, "seg-0000000000000009.new", F_OK, 0), -1);
    assert_int_equal(bnf_backend_unlink(x->b, f), 0); /* the one who failed tries again */
    bnf_file_put(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_recover_finds_all_records_of_many_segments),
        T(test_recover_empty_directory),
        T(test_recover_skips_holes_of_deleted_records),
        T(test_recover_gives_back_rests_of_leases),
        T(test_recover_resyncs_after_a_torn_header),
        T(test_recover_torn_data_is_left_to_the_sums),
        T(test_recover_ignores_records_inside_user_data),
        T(test_recover_segment_cut_off_keeps_what_is_whole),
        T(test_recover_damaged_segment_header_is_set_aside),
        T(test_recover_foreign_segment_is_set_aside),
        T(test_recover_of_two_copies_keeps_the_newer_whole_one),
        T(test_recover_finds_a_record_longer_than_the_largest_chunk),
        T(test_recover_removes_half_made_segments),
        T(test_recover_segment_whose_removal_was_cut_short_is_gone),
    };

    fp_log_init("test", FP_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
