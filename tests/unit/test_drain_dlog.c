/* fp-drain: a file as a log. What it leaves is merged and compared; what was half written, or twice, or is missing, is told from what is there. */
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

#include <dirent.h>
#include <sys/xattr.h>

#include <cmocka.h>

#include "fp/dlog.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "tests/unit/drain_world.h"

#define TMP "a5a5a5a5-7-1"
#define SIZE (5 * DW_WINDOW + 77u)

static struct dw d;
static struct fp_dw_slice all[5];

static int setup(void **state)
{
    (void)state;
    dw_setup(&d);
    d.write_flags = FP_DW_DLOG;
    struct fp_dw_slice a = dw_chunk(&d, 11, 200000, 0), b = dw_chunk(&d, 12, 70001, 0);
    all[0] = dw_piece(a, 3, 1001, 0);
    all[1] = dw_piece(b, 65535, 4000, 1001);
    all[2] = dw_piece(a, 131071, 5, 60000);
    all[3] = dw_piece(a, 100000, DW_WINDOW, 2 * DW_WINDOW);
    all[4] = dw_piece(b, 0, 70, 5 * DW_WINDOW + 7);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dw_teardown(&d);
    d.write_flags = 0;
    return 0;
}

#define BYTES (1001u + 4000u + 5u + DW_WINDOW + 70u)

static struct fp_dw_file file(uint64_t tino, uint64_t bytes)
{
    return (struct fp_dw_file){ .tino = tino, .size = SIZE, .dlog_bytes = bytes, .uid = geteuid(), .gid = getegid(), .mode = 0640,
                                .flags = FP_DW_OVERWRITE | FP_DW_DLOG, .atime_ns = 1000000000123456789, .mtime_ns = 1234567890987654321 };
}

static int prepare(uint64_t *tino)
{
    struct fp_dw_file m = file(0, 0);
    int rc = dw_file(&d, FP_DW_PREPARE, &m, "run/f.fplog", TMP);
    *tino = d.done.tino;
    return rc;
}

static int finish(uint64_t tino, uint64_t bytes)
{
    struct fp_dw_file m = file(tino, bytes);
    return dw_file(&d, FP_DW_FINISH, &m, "run/f.fplog", TMP);
}

static int merge(void)
{
    char log[512], to[512];
    struct fp_dlog_merge m = { .log = log, .to = to, .replace = true, .verify = true, .threads = 2 };
    snprintf(log, sizeof log, "%s", dw_path(&d, "run/f.fplog"));
    snprintf(to, sizeof to, "%s", dw_path(&d, "run/f"));
    return fp_dlog_merge(&m);
}

static void assert_merges(void)
{
    assert_int_equal(merge(), 0);
    assert_int_equal(dw_compare(&d, "run/f", SIZE, 0, all, 5), 0);
}

/* The name of a stream that is not `but`. */
static void stream(const char *dir, const char *but, char out[64])
{
    DIR *at = opendir(dw_path(&d, dir));
    assert_non_null(at);
    out[0] = '\0';
    for (struct dirent *e; (e = readdir(at));)
        if (strncmp(e->d_name, "stream-", 7) == 0 && (!but || strcmp(e->d_name, but) != 0))
            snprintf(out, 64, "%.63s", e->d_name);
    closedir(at);
}

static void test_what_was_written_in_parts_is_one_log(void **state)
{
    uint64_t ino;
    struct stat st;
    (void)state;
    assert_int_equal(prepare(&ino), 0);
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all + 3, 1), 0); /* not in their order */
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 3), 0);
    assert_int_equal(d.done.bytes, 1001 + 4000 + 5);
    assert_true(d.sums[0] == dw_sum_of(all, 3, SIZE, 0)); /* as of a file that is none */
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all + 4, 1), 0);
    assert_false(dw_exists(&d, "run/f.fplog"));
    assert_int_equal(finish(ino, BYTES), 0);
    assert_false(dw_exists(&d, FP_DW_TEMP_DIR "/" TMP));
    assert_merges();
    assert_int_equal(stat(dw_path(&d, "run/f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(st.st_mtim.tv_nsec, 987654321);
    assert_int_equal(finish(ino, BYTES), 0); /* the answer was lost: it was done */
}

static void test_all_in_one_part(void **state)
{
    uint64_t ino;
    (void)state;
    assert_int_equal(prepare(&ino), 0);
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 5), 0);
    assert_int_equal(finish(ino, BYTES), 0);
    assert_merges();
}

static void test_a_part_that_is_written_twice_counts_once(void **state)
{
    uint64_t ino;
    (void)state;
    assert_int_equal(prepare(&ino), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 5), 0);
        memset(d.worker->stream, 0, sizeof d.worker->stream); /* as a worker that was started anew */
    }
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 5), 0);
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 5), 0);
    assert_int_equal(finish(ino, BYTES), 0);
    assert_merges();
}

/* A worker is killed while it writes: header there, data not; or half of a header. The next one writes it again. */
static void test_what_was_half_written_is_passed_over(void **state)
{
    char first[64], path[512];
    uint64_t ino;
    uint8_t b = 0x5a;
    (void)state;
    for (int how = 0; how < 3; how++) {
        assert_int_equal(prepare(&ino), 0);
        assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 5), 0);
        stream(FP_DW_TEMP_DIR "/" TMP, NULL, first);
        memset(d.worker->stream, 0, sizeof d.worker->stream);
        assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 5), 0);
        snprintf(path, sizeof path, FP_DW_TEMP_DIR "/" TMP "/%s", first);
        int fd = open(dw_path(&d, path), O_RDWR);
        assert_true(fd >= 0);
        if (how == 0) /* within the data of its first record */
            assert_int_equal(pwrite(fd, &b, 1, 4096 + 500), 1);
        else if (how == 1)
            assert_int_equal(ftruncate(fd, 4096 + 100), 0);
        else
            assert_int_equal(pwrite(fd, &b, 1, 70), 1);
        close(fd);
        assert_int_equal(finish(ino, BYTES), 0);
        assert_merges();
    }
}

/* Room of records that were never written: as much of it as a few that failed leave, and more than is read at once. */
static void test_gaps_in_a_stream_are_passed_over(void **state)
{
    char name[64], path[512];
    uint64_t ino;
    (void)state;
    assert_int_equal(prepare(&ino), 0);
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 3), 0);
    d.worker->stream[0].end += 3 * (1u << 20) + 5 * 4096;
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all + 3, 1), 0);
    d.worker->stream[0].end += 4096;
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all + 4, 1), 0);
    stream(FP_DW_TEMP_DIR "/" TMP, NULL, name);
    snprintf(path, sizeof path, FP_DW_TEMP_DIR "/" TMP "/%s", name);
    assert_int_equal(truncate(dw_path(&d, path), (off_t)d.worker->stream[0].end + (2 << 20) + 100), 0); /* and one at its end */
    assert_int_equal(finish(ino, BYTES), 0);
    assert_merges();
}

static void make_log(uint64_t *ino)
{
    assert_int_equal(prepare(ino), 0);
    assert_int_equal(dw_write(&d, TMP, *ino, SIZE, 0, all, 5), 0);
}

static bool is_clean(void)
{
    return !dw_exists(&d, FP_DW_TEMP_DIR "/" TMP) && !dw_exists(&d, FP_DW_TEMP_DIR "/" TMP "-old") && !dw_exists(&d, FP_DW_TEMP_DIR "/" TMP "-to");
}

static int clean(void)
{
    return dw_file(&d, FP_DW_CLEAN, &(struct fp_dw_file){ 0 }, "", TMP);
}

/* A target that can't exchange names: the log that is replaced is aside for a moment. Whoever comes next, of this attempt or of none, finds it. */
static void test_what_is_replaced_in_two_renames(void **state)
{
    uint64_t ino;
    (void)state;
    make_log(&ino);
    assert_int_equal(finish(ino, BYTES), 0);
    make_log(&ino);
    assert_int_equal(fp_fault_set("drain.rename=EINVAL:count=1"), 0);
    assert_int_equal(finish(ino, BYTES), 0);
    assert_true(is_clean());
    assert_merges();
    make_log(&ino);
    assert_int_equal(fp_fault_set("drain.rename=EINVAL:count=1,drain.rename_again=EIO:count=1"), 0);
    assert_int_equal(finish(ino, BYTES), -EIO);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
    assert_false(dw_exists(&d, "run/f.fplog"));
    assert_true(dw_exists(&d, FP_DW_TEMP_DIR "/" TMP "-old/" FP_DLOG_INDEX));
    assert_int_equal(finish(ino, BYTES), 0); /* it goes on */
    assert_true(is_clean());
    assert_merges();
}

static void test_an_attempt_that_ends_between_two_renames_is_taken_back(void **state)
{
    uint64_t ino, other;
    struct stat st;
    (void)state;
    make_log(&ino);
    assert_int_equal(finish(ino, BYTES), 0);
    make_log(&other);
    assert_int_equal(fp_fault_set("drain.rename=EINVAL:count=1,drain.rename_again=EIO:count=1"), 0);
    assert_int_equal(finish(other, BYTES), -EIO);
    assert_false(dw_exists(&d, "run/f.fplog"));
    assert_int_equal(clean(), 0);
    assert_true(is_clean());
    assert_int_equal(stat(dw_path(&d, "run/f.fplog"), &st), 0);
    assert_int_equal(st.st_ino, ino); /* the one from before */
    assert_merges();
    make_log(&other); /* and if there is a newer one by then, that stays */
    assert_int_equal(fp_fault_set("drain.rename=EINVAL:count=1,drain.rename_again=EIO:count=1"), 0);
    assert_int_equal(finish(other, BYTES), -EIO);
    assert_int_equal(mkdir(dw_path(&d, "run/f.fplog"), 0755), 0);
    dw_make(&d, "run/f.fplog/" FP_DLOG_INDEX, "newer");
    assert_int_equal(clean(), 0);
    assert_true(is_clean());
    assert_int_equal(stat(dw_path(&d, "run/f.fplog/" FP_DLOG_INDEX), &st), 0);
    assert_int_equal(st.st_size, 5);
}

static void test_what_is_missing_gets_no_name(void **state)
{
    uint64_t ino;
    (void)state;
    assert_int_equal(prepare(&ino), 0);
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 3), 0);
    assert_int_equal(finish(ino, BYTES), -ENOENT);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
    assert_non_null(strstr(d.why, "have 5006 bytes and not"));
    assert_false(dw_exists(&d, "run/f.fplog"));
}

static void test_a_log_takes_the_place_of_a_log_and_of_nothing_else(void **state)
{
    uint64_t ino;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(prepare(&ino), 0);
        assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 5), 0);
        assert_int_equal(finish(ino, BYTES), 0);
        assert_false(dw_exists(&d, FP_DW_TEMP_DIR "/" TMP)); /* what was there went */
        assert_merges();
    }
    assert_int_equal(prepare(&ino), 0);
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 5), 0);
    dw_make(&d, "run/f.fplog/notes", "mine");
    assert_int_equal(finish(ino, BYTES), -EISDIR);
    assert_true(dw_exists(&d, "run/f.fplog/notes"));
    assert_int_equal(dw_file(&d, FP_DW_CLEAN, &(struct fp_dw_file){ 0 }, "", TMP), 0);
    assert_false(dw_exists(&d, FP_DW_TEMP_DIR "/" TMP)); /* with what is in it */
    assert_int_equal(prepare(&ino), -EISDIR);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
}

/* No store evicts anything for a log. */
static void test_a_log_of_another_store_is_replaced(void **state)
{
    uint64_t ino;
    (void)state;
    assert_int_equal(prepare(&ino), 0);
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 5), 0);
    assert_int_equal(finish(ino, BYTES), 0);
    if (setxattr(dw_path(&d, "run/f.fplog/" FP_DLOG_INDEX), FP_DW_MARK_XATTR, "01020304:5:6", 12, 0))
        skip();
    assert_int_equal(prepare(&ino), 0);
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 5), 0);
    assert_int_equal(finish(ino, BYTES), 0);
    assert_true(getxattr(dw_path(&d, "run/f.fplog/" FP_DLOG_INDEX), FP_DW_MARK_XATTR, NULL, 0) != 12);
    assert_merges();
}

static void test_another_directory_is_not_written_to(void **state)
{
    uint64_t ino;
    (void)state;
    assert_int_equal(prepare(&ino), 0);
    assert_int_equal(dw_write(&d, TMP, ino + 1, SIZE, 0, all, 5), -ENOENT);
    assert_int_equal(dw_write(&d, "a5a5a5a5-7-2", ino, SIZE, 0, all, 5), -ENOENT);
}

static void test_errors_of_the_target_are_the_targets(void **state)
{
    static const char *const faults[] = { "drain.pwrite=ENOSPC:count=1", "drain.fsync=EIO:count=1" };
    uint64_t ino;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(prepare(&ino), 0);
        assert_int_equal(fp_fault_set(faults[i]), 0);
        assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 5), i ? -EIO : -ENOSPC);
        assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
        fp_fault_set(NULL);
        assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, all, 5), 0); /* goes on in the same stream */
        assert_int_equal(finish(ino, BYTES), 0);
        assert_merges();
    }
}

/* ---------------------------------------------------------------- steps of a merge */

static int attempt; /* which has a temporary file of its own */

static int step(enum fp_dw_merge_step what, uint64_t tino, uint64_t sum, uint32_t count)
{
    static const char path[] = "run/f", log[] = "run/f.fplog";
    char text[64], tmp[] = "a5a5a5a5-9-1";
    struct fp_dw_merge m = { .h = { .type = FP_DW_MERGE, .id = ++d.next_id, .gen = d.gen }, .tino = tino, .sum = sum, .count = count, .step = what,
                             .path_bytes = sizeof path - 1, .tmp_bytes = sizeof tmp - 1, .log_bytes = sizeof log - 1 };

    tmp[sizeof tmp - 2] = (char)('0' + attempt);
    snprintf(text, sizeof text, "%s%s%s", path, tmp, log);
    dw_send(&d, &m, sizeof m, text, strlen(text), -1);
    dw_wait(&d);
    assert_int_equal(d.done.h.id, d.next_id);
    return d.done.status;
}

static void finish_log(struct fp_dw_slice *s, uint32_t n, uint64_t bytes)
{
    uint64_t ino;

    assert_int_equal(prepare(&ino), 0);
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, s, n), 0);
    assert_int_equal(finish(ino, bytes), 0);
}

struct merging { uint64_t tino, sum; uint32_t records; };

static struct merging merge_up_to_its_end(void)
{
    struct merging m;

    attempt++;
    assert_int_equal(step(FP_DW_MERGE_PREPARE, 0, 0, 0), 0);
    m = (struct merging){ d.done.tino, d.sums[0], (uint32_t)d.sums[1] };
    assert_int_equal(step(FP_DW_MERGE_WRITE, m.tino, m.sum, m.records), 0);
    assert_false(dw_exists(&d, "run/f"));
    return m;
}

static void test_a_log_that_was_replaced_is_not_finished(void **state)
{
    struct merging m;
    (void)state;
    finish_log(all, 5, BYTES);
    m = merge_up_to_its_end();
    finish_log(all + 3, 2, DW_WINDOW + 70u);
    assert_int_equal(step(FP_DW_MERGE_FINISH, m.tino, m.sum, 0), -ESTALE);
    assert_int_equal(step(FP_DW_MERGE_WRITE, m.tino, m.sum, m.records), -ENOENT); /* the stream is gone; for the manager both end the attempt */
    assert_int_equal(step(FP_DW_MERGE_COMPARE, m.tino, m.sum, m.records), -ENOENT);
    assert_false(dw_exists(&d, "run/f"));
    m = merge_up_to_its_end();
    assert_int_equal(step(FP_DW_MERGE_FINISH, m.tino, m.sum, 0), 0);
    assert_int_equal(dw_compare(&d, "run/f", SIZE, 0, all + 3, 2), 0);
}

/* The answer to FINISH was lost, so it is asked again. */
static void test_what_was_finished_is_told_so_whatever_became_of_the_log(void **state)
{
    struct merging m;
    char cmd[600];
    (void)state;
    finish_log(all, 5, BYTES);
    m = merge_up_to_its_end();
    assert_int_equal(step(FP_DW_MERGE_FINISH, m.tino, m.sum, 0), 0);
    finish_log(all + 3, 2, DW_WINDOW + 70u);
    assert_int_equal(step(FP_DW_MERGE_FINISH, m.tino, m.sum, 0), 0);
    assert_int_equal(d.done.tino, m.tino);
    assert_string_equal(d.why, "");
    snprintf(cmd, sizeof cmd, "rm -r '%s'", dw_path(&d, "run/f.fplog"));
    assert_int_equal(system(cmd), 0);
    assert_int_equal(step(FP_DW_MERGE_FINISH, m.tino, m.sum, 0), 0);
    assert_int_equal(dw_compare(&d, "run/f", SIZE, 0, all, 5), 0);
    assert_int_equal(step(FP_DW_MERGE_FINISH, m.tino + 1, m.sum, 0), -ENOENT); /* another one's */
    assert_true(strstr(d.why, "no log of a drained file") != NULL);
    snprintf(cmd, sizeof cmd, FP_DW_TEMP_DIR "/a5a5a5a5-9-%d", attempt);
    dw_make(&d, cmd, "not renamed");
    assert_int_equal(step(FP_DW_MERGE_FINISH, m.tino, m.sum, 0), -ENOENT);
}

/* Before it has the name, a log that is gone is a failure. */
static void test_a_log_that_is_gone_before_the_end_gets_no_name(void **state)
{
    struct merging m;
    char cmd[600];
    (void)state;
    finish_log(all, 5, BYTES);
    m = merge_up_to_its_end();
    snprintf(cmd, sizeof cmd, "rm -r '%s'", dw_path(&d, "run/f.fplog"));
    assert_int_equal(system(cmd), 0);
    assert_int_equal(step(FP_DW_MERGE_FINISH, m.tino, m.sum, 0), -ENOENT);
    assert_false(dw_exists(&d, "run/f"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_what_was_written_in_parts_is_one_log),
        T(test_all_in_one_part),
        T(test_a_part_that_is_written_twice_counts_once),
        T(test_what_was_half_written_is_passed_over),
        T(test_gaps_in_a_stream_are_passed_over),
        T(test_what_is_replaced_in_two_renames),
        T(test_an_attempt_that_ends_between_two_renames_is_taken_back),
        T(test_what_is_missing_gets_no_name),
        T(test_a_log_takes_the_place_of_a_log_and_of_nothing_else),
        T(test_a_log_of_another_store_is_replaced),
        T(test_another_directory_is_not_written_to),
        T(test_errors_of_the_target_are_the_targets),
        T(test_a_log_that_was_replaced_is_not_finished),
        T(test_what_was_finished_is_told_so_whatever_became_of_the_log),
        T(test_a_log_that_is_gone_before_the_end_gets_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
