/* Logs of drained files, and files made of them: what was written comes out, and of a log that is damaged, cut, or says one byte twice, nothing does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fp/dlog.h"
#include "fp/err.h"

#define LOG  0x1122334455667788ull
#define SIZE 300007u /* of the file */

static char dir[64], log_dir[128], file[128], temp[128];
static uint8_t want[SIZE];

struct rec {
    uint32_t stream, n;
    struct fp_dlog_extent e[4];
};

/* Two streams; bytes from 200000 to 250000 are a hole. The first stream has small pieces that lie apart. */
static const struct rec usual[] = {
    { 0, 1, { { 0, 0, 65536 } } },
    { 1, 2, { { 65536, 0, 1 }, { 70000, 0, 100000 } } },
    { 0, 3, { { 65537, 0, 4463 }, { 170000, 0, 30000 }, { 250000, 0, 7 } } },
    { 1, 1, { { 250007, 0, SIZE - 250007 } } },
};
#define NUSUAL (sizeof usual / sizeof usual[0])

static void put_file(const char *name, const void *data, size_t len, int flags)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", log_dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | flags, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    close(fd);
}

static void put_index(const struct fp_dlog_index *x)
{
    uint8_t *bytes;
    size_t len;
    assert_int_equal(fp_dlog_index_encode(x, &bytes, &len), 0);
    put_file(FP_DLOG_INDEX, bytes, len, O_TRUNC);
    free(bytes);
}

static void write_log(const struct rec *recs, size_t n)
{
    static uint8_t buf[FP_DLOG_ALIGN + 2 * SIZE];
    struct fp_dlog_place place[8];
    char names[2][FP_DLOG_NAME_BUF] = { "stream-a", "stream-b" };
    uint64_t end[2] = { 0, 0 };
    struct fp_dlog_index x = { .log = LOG, .size = SIZE, .nstreams = 2, .nrecords = (uint32_t)n, .stream = names, .record = place };

    assert_int_equal(mkdir(log_dir, 0700), 0);
    for (size_t i = 0; i < n; i++) {
        struct rec r = recs[i];
        uint32_t header = fp_dlog_header_bytes(r.n), at = header;
        memset(buf, 0, sizeof buf);
        for (uint32_t k = 0; k < r.n; k++) {
            memcpy(buf + at, want + r.e[k].off, r.e[k].len);
            r.e[k].sum = fp_dlog_sum(buf + at, r.e[k].len);
            at += r.e[k].len;
        }
        place[i] = (struct fp_dlog_place){ .stream = r.stream, .header_bytes = header, .at = end[r.stream], .data_bytes = at - header };
        place[i].sum = fp_dlog_record_encode(buf, LOG, r.e, r.n);
        x.data_bytes += place[i].data_bytes;
        put_file(names[r.stream], buf, fp_dlog_pages(at), O_APPEND);
        end[r.stream] += fp_dlog_pages(at);
    }
    put_index(&x);
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test_dlog_XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(log_dir, sizeof log_dir, "%s/data.fplog", dir);
    snprintf(file, sizeof file, "%s/data", dir);
    snprintf(temp, sizeof temp, "%s/.data.fpmerge", dir);
    for (size_t i = 0; i < SIZE; i++)
        want[i] = i >= 200000 && i < 250000 ? 0 : (uint8_t)(i * 2654435761u >> 13 | 1);
    return 0;
}

static int teardown(void **state)
{
    char cmd[128];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static int merge(struct fp_dlog_merge *m)
{
    m->log = log_dir;
    m->to = file;
    m->threads = m->threads ? m->threads : 3;
    return fp_dlog_merge(m);
}

static void assert_is_whole(void)
{
    static uint8_t got[SIZE + 1];
    int fd = open(file, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, got, sizeof got), SIZE);
    assert_memory_equal(got, want, SIZE);
    close(fd);
    assert_int_equal(access(temp, F_OK), -1);
}

/* Nothing is made, and nothing is left. */
static void assert_fails(int rc, const char *why)
{
    struct fp_dlog_merge m = { 0 };
    assert_int_equal(merge(&m), rc);
    if (!strstr(m.why, why))
        fail_msg("'%s' is not in '%s'", why, m.why);
    assert_int_equal(access(file, F_OK), -1);
    assert_int_equal(access(temp, F_OK), -1);
}

static void change(const char *name, off_t at, uint8_t xor)
{
    char path[256];
    uint8_t b;
    snprintf(path, sizeof path, "%s/%s", log_dir, name);
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &b, 1, at), 1);
    b ^= xor;
    assert_int_equal(pwrite(fd, &b, 1, at), 1);
    close(fd);
}

static void cut(const char *name, off_t by)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", log_dir, name);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - by), 0);
}

/* ---------------------------------------------------------------- what is whole */

static void test_a_log_becomes_the_file(void **state)
{
    struct fp_dlog_merge m = { .verify = true };
    struct stat st;
    (void)state;
    write_log(usual, NUSUAL);
    assert_int_equal(merge(&m), 0);
    assert_is_whole();
    assert_int_equal(m.size, SIZE);
    assert_int_equal(m.written, SIZE - 50000);
    assert_int_equal(m.verified, SIZE - 50000);
    assert_int_equal(stat(log_dir, &st), 0); /* the log stays */
}

static void test_attributes_are_those_of_the_index(void **state)
{
    struct fp_dlog_merge m = { 0 };
    struct timespec times[2] = { { 1000, 5 }, { 2000, 7 } };
    struct stat st;
    char path[256], value[8];
    (void)state;
    write_log(usual, NUSUAL);
    snprintf(path, sizeof path, "%s/%s", log_dir, FP_DLOG_INDEX);
    int xattr = setxattr(path, "user.step", "7", 1, 0);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(merge(&m), 0);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(st.st_mtim.tv_sec, 2000);
    assert_int_equal(st.st_mtim.tv_nsec, 7);
    if (xattr == 0)
        assert_int_equal(getxattr(file, "user.step", value, sizeof value), 1);
}

static void test_a_file_that_is_there_is_replaced_only_when_told(void **state)
{
    struct fp_dlog_merge m = { 0 }, again = { .replace = true };
    (void)state;
    write_log(usual, NUSUAL);
    int fd = open(file, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "mine", 4), 4);
    close(fd);
    assert_int_equal(merge(&m), -EEXIST);
    assert_int_equal(access(temp, F_OK), -1);
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_size, 4);
    assert_int_equal(merge(&again), 0);
    assert_is_whole();
}

static void put_theirs(const char *path, const char *name, const char *mark)
{
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_int_equal(write(fd, "theirs", 6), 6);
    if (mark)
        assert_int_equal(fsetxattr(fd, name, mark, strlen(mark), 0), 0);
    close(fd);
}

/* In the directory of the file or above; whoever the store is. A mark says something as long as its entry is there. */
static void test_what_a_store_needs_is_replaced_only_when_told(void **state)
{
    static const struct {
        const char *entry, *name, *mark;
        int rc;
    } of[] = {
        {"01020304-needs-5", "user.fp.needed", "01020304-needs-5", -EPERM},
        {"01020304-needs-6", "user.fp.needed", "01020304-needs-5", 0},
        {"01020304-needs-5", NULL, NULL, 0},
        {"01020304-needs-5-all", NULL, NULL, -EPERM},
        {"01020304-needs-5-all", "user.fp.drain", "01020304:7:1", -EPERM},
        {"01020304-needs-5-all", "user.fp.drain", "05060708:7:1", 0},
    };
    char temps[128], below[128], entry[256], kept[128], deep[128];
    struct stat st;
    (void)state;
    snprintf(temps, sizeof temps, "%s/.fp-drain", dir);
    snprintf(below, sizeof below, "%s/below", dir);
    snprintf(deep, sizeof deep, "%s/below/data", dir);
    snprintf(kept, sizeof kept, "%s/.data.fpkept", dir);
    write_log(usual, NUSUAL);
    assert_int_equal(mkdir(temps, 0700), 0);
    assert_int_equal(mkdir(below, 0700), 0);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int left = 0; left < 2; left++) { /* left: a merge has died between the two names, and the mark came in that moment */
            struct fp_dlog_merge m = { .replace = true }, d = { .log = log_dir, .to = deep, .replace = true, .threads = 2 }, told = { .replace_needed = true };
            snprintf(entry, sizeof entry, "%s/%s", temps, of[i].entry);
            put_theirs(entry, NULL, NULL);
            put_theirs(left ? kept : file, of[i].name, of[i].mark);
            assert_int_equal(stat(left ? kept : file, &st), 0);
            put_theirs(deep, of[i].name, of[i].mark);
            if (left)
                put_theirs(file, NULL, NULL);
            bool all = left && of[i].rc == 0 && strstr(of[i].entry, "-all"); /* what has no mark of who has drained it may be one, too */
            assert_int_equal(merge(&m), all ? -EPERM : of[i].rc);
            assert_int_equal(fp_dlog_merge(&d), of[i].rc);
            if (of[i].rc) {
                struct stat is;
                assert_non_null(strstr(m.why, "--overwrite"));
                assert_int_equal(stat(file, &is), 0);
                assert_int_equal(is.st_ino, st.st_ino); /* it has its name, again */
                told.replace = true;
                assert_int_equal(merge(&told), 0);
            }
            if (!all)
                assert_is_whole();
            assert_int_equal(access(kept, F_OK), -1);
            assert_int_equal(unlink(entry), 0);
        }
}

static void test_a_file_of_holes_alone_and_an_empty_one(void **state)
{
    struct fp_dlog_index x = { .log = LOG, .size = 1u << 20 };
    struct fp_dlog_merge m = { .verify = true }, e = { .replace = true };
    struct stat st;
    (void)state;
    assert_int_equal(mkdir(log_dir, 0700), 0);
    put_index(&x);
    assert_int_equal(merge(&m), 0);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_size, 1 << 20);
    x.size = 0;
    put_index(&x);
    assert_int_equal(merge(&e), 0);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_size, 0);
}

static void test_what_a_killed_merge_left_is_taken_over(void **state)
{
    struct fp_dlog_merge m = { 0 };
    (void)state;
    write_log(usual, NUSUAL);
    int fd = open(temp, O_WRONLY | O_CREAT, 0600);
    for (int i = 0; i < 100; i++)
        assert_int_equal(pwrite(fd, "rubbish", 7, i * 5000), 7); /* also in what is a hole, and beyond the end */
    close(fd);
    assert_int_equal(merge(&m), 0);
    assert_is_whole();
}

static void test_two_at_once_do_not_write_one_file(void **state)
{
    struct fp_dlog_merge m = { 0 };
    (void)state;
    write_log(usual, NUSUAL);
    int fd = open(temp, O_RDWR | O_CREAT, 0600);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(merge(&m), -EBUSY);
    assert_int_equal(access(temp, F_OK), 0); /* it is the other one's */
    close(fd);
    assert_int_equal(merge(&m), 0);
    assert_is_whole();
}

/* ---------------------------------------------------------------- what is not */

static void test_damaged_data_is_told_and_nothing_is_made(void **state)
{
    (void)state;
    write_log(usual, NUSUAL);
    change("stream-b", FP_DLOG_ALIGN + 50000, 1);
    assert_fails(FP_ECHECKSUM, "stream-b: data at byte");
}

static void test_a_damaged_header_is_told(void **state)
{
    static const off_t at[] = { 0, 9, 17, 21, 25, 33, FP_DLOG_HEAD_BYTES + 1, FP_DLOG_HEAD_BYTES + 17, FP_DLOG_ALIGN - 1 };
    (void)state;
    write_log(usual, NUSUAL);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        change("stream-a", at[i], 0x10);
        assert_fails(FP_ECORRUPT, "stream-a: the record at byte 0 is damaged");
        change("stream-a", at[i], 0x10);
    }
}

static void test_a_stream_that_is_cut_or_gone_is_told(void **state)
{
    char path[256];
    (void)state;
    write_log(usual, NUSUAL);
    cut("stream-b", FP_DLOG_ALIGN);
    assert_fails(FP_ECORRUPT, "stream-b ends before byte");
    snprintf(path, sizeof path, "%s/stream-b", log_dir);
    assert_int_equal(unlink(path), 0);
    assert_fails(-ENOENT, "stream-b");
}

static void test_each_damaged_byte_of_the_index_is_told(void **state)
{
    char path[256];
    struct stat st;
    (void)state;
    write_log(usual, NUSUAL);
    snprintf(path, sizeof path, "%s/%s", log_dir, FP_DLOG_INDEX);
    assert_int_equal(stat(path, &st), 0);
    for (off_t i = 0; i < st.st_size; i++) {
        change(FP_DLOG_INDEX, i, 0x40);
        assert_fails(FP_ECORRUPT, "index is damaged");
        change(FP_DLOG_INDEX, i, 0x40);
    }
    cut(FP_DLOG_INDEX, 1);
    assert_fails(FP_ECORRUPT, "index is damaged");
    cut(FP_DLOG_INDEX, st.st_size - 1);
    assert_fails(FP_ECORRUPT, "is cut");
    assert_int_equal(unlink(path), 0);
    assert_fails(-ENOENT, "has no index");
}

static void test_a_byte_in_two_records_is_told(void **state)
{
    static const struct rec twice[] = {
        { 0, 1, { { 0, 0, 65536 } } },
        { 1, 1, { { 65535, 0, 10 } } },
    };
    (void)state;
    write_log(twice, 2);
    assert_fails(FP_ECORRUPT, "byte 65535 of the file is in two records");
}

static void test_extents_in_disorder_are_no_record(void **state)
{
    static const struct fp_dlog_extent bad[][2] = {
        { { 100, 1, 10 }, { 0, 1, 10 } },
        { { 0, 1, 10 }, { 9, 1, 10 } },
        { { 0, 1, 10 }, { 10, 1, 0 } },
        { { 0, 1, 10 }, { INT64_MAX - 5, 1, 10 } },
        { { 0, 1, 10 }, { 20, 1, FP_DLOG_DATA_MAX_BYTES } },
    };
    static uint8_t buf[FP_DLOG_ALIGN];
    struct fp_dlog_extent e[200];
    uint64_t sum;
    uint32_t n;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fp_dlog_record_encode(buf, LOG, bad[i], 2);
        assert_int_equal(fp_dlog_record_decode(buf, sizeof buf, LOG, e, &n, &sum), FP_ECORRUPT);
    }
    fp_dlog_record_encode(buf, LOG, bad[0] + 1, 1);
    assert_int_equal(fp_dlog_record_decode(buf, sizeof buf, LOG, e, &n, &sum), 0);
    assert_int_equal(fp_dlog_record_decode(buf, sizeof buf, LOG + 1, e, &n, &sum), -ENODATA); /* of another log */
}

static void test_names_of_streams_stay_in_the_log(void **state)
{
    static const char *const names[] = { "../a", "a/b", ".", "..", ".hidden", "index", "" };
    struct fp_dlog_place place = { .header_bytes = FP_DLOG_ALIGN, .data_bytes = 1 };
    char name[1][FP_DLOG_NAME_BUF];
    struct fp_dlog_index x = { .log = LOG, .size = 1, .data_bytes = 1, .nstreams = 1, .nrecords = 1, .stream = name, .record = &place }, got;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint8_t *bytes;
        size_t len;
        snprintf(name[0], sizeof name[0], "%s", names[i]);
        assert_int_equal(fp_dlog_index_encode(&x, &bytes, &len), 0);
        assert_int_equal(fp_dlog_index_decode(bytes, len, &got), FP_ECORRUPT);
        free(bytes);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_a_log_becomes_the_file),
        T(test_attributes_are_those_of_the_index),
        T(test_a_file_that_is_there_is_replaced_only_when_told),
        T(test_what_a_store_needs_is_replaced_only_when_told),
        T(test_a_file_of_holes_alone_and_an_empty_one),
        T(test_what_a_killed_merge_left_is_taken_over),
        T(test_two_at_once_do_not_write_one_file),
        T(test_damaged_data_is_told_and_nothing_is_made),
        T(test_a_damaged_header_is_told),
        T(test_a_stream_that_is_cut_or_gone_is_told),
        T(test_each_damaged_byte_of_the_index_is_told),
        T(test_a_byte_in_two_records_is_told),
        T(test_extents_in_disorder_are_no_record),
        T(test_names_of_streams_stay_in_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
