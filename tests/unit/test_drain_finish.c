/* fp-drain: temporary files, names, attributes, verifying, the marker, and that nothing leads out of the target. */
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
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp/err.h"
#include "fp/fault.h"
#include "tests/unit/drain_world.h"

#define TMP "a5a5a5a5-7-1"
#define TMP_PATH FP_DW_TEMP_DIR "/" TMP
#define SIZE 1000u

static struct dw d;
static struct fp_dw_slice chunk;

static int setup(void **state)
{
    (void)state;
    dw_setup(&d);
    chunk = dw_chunk(&d, 1, SIZE, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return dw_teardown(&d);
}

/* The temporary file with its data; its inode. */
static uint64_t written(const char *path)
{
    return dw_written(&d, path, TMP, SIZE, &chunk);
}

static void count_temps(unsigned n)
{
    struct fp_dw_file m = { 0 };
    unsigned have = 0;

    assert_int_equal(dw_file(&d, FP_DW_SWEEP, &m, "", "a5a5a5a5-"), 0);
    for (const char *p = d.names; (p = strchr(p, '\n')); p++)
        have++;
    assert_int_equal(have, n);
}

/* -------------------------------------------------------------- the name */

static void test_a_file_gets_its_name_and_attributes(void **state)
{
    uint64_t ino = written("run/chk_0007/rank_12.dat");
    struct stat st;

    (void)state;
    assert_false(dw_exists(&d, "run/chk_0007/rank_12.dat"));
    assert_int_equal(dw_finish(&d, "run/chk_0007/rank_12.dat", TMP, ino, SIZE), 0);
    assert_int_equal(dw_compare(&d, "run/chk_0007/rank_12.dat", SIZE, 0, &chunk, 1), 0);
    assert_int_equal(stat(dw_path(&d, "run/chk_0007/rank_12.dat"), &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0640);
    assert_int_equal(st.st_mtim.tv_sec, 1234567890);
    assert_int_equal(st.st_mtim.tv_nsec, 987654321);
    assert_int_equal(st.st_ino, ino);
    assert_int_equal(d.done.tino, ino);
    assert_int_equal(d.done.size, SIZE);
    assert_true(d.done.mtime_ns == 1234567890987654321);
    assert_string_equal(d.why, "");
    assert_false(dw_exists(&d, TMP_PATH));
    assert_int_equal(stat(dw_path(&d, FP_DW_TEMP_DIR), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
}

static void test_extended_attributes_and_the_mark(void **state)
{
    uint64_t ino = written("file");
    struct fp_dw_file m = { .h = { .type = FP_DW_FINISH, .id = 77 }, .tino = ino, .size = SIZE, .uid = geteuid(), .gid = getegid(), .mode = 0600,
                            .flags = FP_DW_OVERWRITE, .path_bytes = 4, .tmp_bytes = sizeof(TMP) - 1, .mark_bytes = 8, .nxattrs = 1 };
    uint32_t len[2] = { 10, 5 };
    char rest[256], value[64];
    int n = snprintf(rest, sizeof(rest), "file" TMP "store:7:");

    (void)state;
    memcpy(rest + n, len, sizeof(len));
    memcpy(rest + n + 8, "user.rocksvalue", 15);
    rest[n - 1] = '1';
    dw_send(&d, &m, sizeof(m), rest, (size_t)n + 8 + 15, -1);
    dw_wait(&d);
    assert_int_equal(d.done.status, 0);
    n = (int)getxattr(dw_path(&d, "file"), "user.rocks", value, sizeof(value));
    if (n < 0 && errno == ENOTSUP)
        skip();
    assert_int_equal(n, 5);
    assert_memory_equal(value, "value", 5);
    assert_int_equal(getxattr(dw_path(&d, "file"), FP_DW_MARK_XATTR, value, sizeof(value)), 8);
    assert_memory_equal(value, "store:71", 8);
}

/* Any of its answers may be lost, and it is told again. */
static void test_each_step_may_be_told_twice(void **state)
{
    uint64_t ino;

    (void)state;
    assert_int_equal(dw_prepare(&d, "f", TMP, SIZE), 0);
    ino = d.done.tino;
    assert_int_equal(dw_prepare(&d, "f", TMP, SIZE), 0);
    assert_int_equal(d.done.tino, ino);
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, &chunk, 1), 0);
    assert_int_equal(dw_prepare(&d, "f", TMP, SIZE), 0); /* nothing of what was written goes */
    assert_int_equal(d.done.tino, ino);
    assert_int_equal(dw_compare(&d, TMP_PATH, SIZE, 0, &chunk, 1), 0);
    assert_int_equal(dw_finish(&d, "f", TMP, ino, SIZE), 0);
    assert_int_equal(dw_finish(&d, "f", TMP, ino, SIZE), 0);
    assert_int_equal(d.done.tino, ino);
    assert_int_equal(dw_compare(&d, "f", SIZE, 0, &chunk, 1), 0);
    /* somebody else's file has the name now: it was not done */
    assert_int_equal(rename(dw_path(&d, "f"), dw_path(&d, "g")), 0);
    dw_make(&d, "f", "foreign");
    assert_int_equal(dw_finish(&d, "f", TMP, ino, SIZE), -ENOENT);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
    /* a late write finds nothing to write to */
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, &chunk, 1), -ENOENT);
}

static void test_a_foreign_file_under_the_temporary_name(void **state)
{
    (void)state;
    assert_int_equal(dw_prepare(&d, "f", "a5a5a5a5-1-1", 1), 0);
    dw_make(&d, TMP_PATH, "of another size");
    assert_int_equal(dw_prepare(&d, "f", TMP, SIZE), -EEXIST);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
    assert_int_equal(unlink(dw_path(&d, TMP_PATH)), 0);
    assert_int_equal(link(dw_path(&d, FP_DW_TEMP_DIR "/a5a5a5a5-1-1"), dw_path(&d, TMP_PATH)), 0);
    assert_int_equal(dw_prepare(&d, "f", TMP, 1), -EEXIST);
    assert_int_equal(unlink(dw_path(&d, TMP_PATH)), 0);
    assert_int_equal(symlink("../f", dw_path(&d, TMP_PATH)), 0);
    assert_int_equal(dw_prepare(&d, "f", TMP, SIZE), -EEXIST);
    assert_false(dw_exists(&d, "f"));
}

static void test_a_file_of_another_size_gets_no_name(void **state)
{
    uint64_t ino = written("f");

    (void)state;
    assert_int_equal(truncate(dw_path(&d, TMP_PATH), SIZE - 1), 0);
    assert_int_equal(dw_finish(&d, "f", TMP, ino, SIZE), -ENOENT);
    assert_false(dw_exists(&d, "f"));
}

static void test_replacing_only_if_it_may(void **state)
{
    struct fp_dw_file m = { .size = SIZE, .uid = geteuid(), .gid = getegid(), .mode = 0600 };
    uint64_t ino = written("f");

    (void)state;
    dw_make(&d, "f", "foreign");
    m.tino = ino;
    assert_int_equal(dw_file(&d, FP_DW_FINISH, &m, "f", TMP), -EEXIST);
    assert_true(dw_exists(&d, TMP_PATH));
    assert_int_equal(dw_compare(&d, "f", 7, 0, NULL, 0), 1); /* still foreign */
    assert_int_equal(dw_finish(&d, "f", TMP, ino, SIZE), 0);
    assert_int_equal(dw_compare(&d, "f", SIZE, 0, &chunk, 1), 0);
}

static void test_an_empty_file(void **state)
{
    uint64_t ino;

    (void)state;
    assert_int_equal(dw_prepare(&d, "empty", TMP, 0), 0);
    ino = d.done.tino;
    assert_int_equal(dw_finish(&d, "empty", TMP, ino, 0), 0);
    assert_int_equal(dw_compare(&d, "empty", 0, 0, NULL, 0), 0);
}

static void test_a_rename_that_fails_leaves_the_temporary_file(void **state)
{
    uint64_t ino = written("dir/f");

    (void)state;
    fp_fault_set("drain.rename=EDQUOT:count=1");
    assert_int_equal(dw_finish(&d, "dir/f", TMP, ino, SIZE), -EDQUOT);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
    assert_false(dw_exists(&d, "dir/f"));
    /* the directory could not be synced: not told as done, though the name is there */
    fp_fault_set("drain.fsync=EIO:after=1:count=1");
    assert_int_equal(dw_finish(&d, "dir/f", TMP, ino, SIZE), -EIO);
    assert_int_equal(fp_fault_fired("drain.fsync"), 1);
    fp_fault_set(NULL);
    assert_int_equal(dw_finish(&d, "dir/f", TMP, ino, SIZE), 0);
    assert_int_equal(dw_compare(&d, "dir/f", SIZE, 0, &chunk, 1), 0);
}

/* A directory whose own entry could not be synced is made durable by the next one that uses it. */
static void test_directories_are_synced_before_they_count(void **state)
{
    (void)state;
    fp_fault_set("drain.fsync=EIO:count=1");
    assert_int_equal(dw_prepare(&d, "new/f", TMP, SIZE), -EIO);
    assert_true(dw_exists(&d, "new"));
    fp_fault_set("drain.fsync=delay:ms=1");
    assert_int_equal(dw_prepare(&d, "new/f", TMP, SIZE), 0);
    assert_int_equal(fp_fault_fired("drain.fsync"), 1); /* the root, for "new" */
    assert_int_equal(dw_prepare(&d, "new/f", TMP, SIZE), 0);
    assert_int_equal(fp_fault_fired("drain.fsync"), 1); /* known now */
}

/* -------------------------------------------------------------- nothing leads out */

static void test_symlinks_in_the_path(void **state)
{
    char outside[512];
    uint64_t ino;

    (void)state;
    snprintf(outside, sizeof(outside), "%s/outside", d.segments.path);
    assert_int_equal(mkdir(outside, 0755), 0);
    assert_int_equal(symlink(outside, dw_path(&d, "link")), 0);
    assert_int_equal(dw_prepare(&d, "link/f", TMP, SIZE), -ELOOP);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
    assert_non_null(strstr(d.why, "symlink in its path"));
    /* made when everything else was done: then too */
    ino = written("late/f");
    assert_int_equal(rmdir(dw_path(&d, "late")), 0);
    assert_int_equal(symlink(outside, dw_path(&d, "late")), 0);
    assert_int_equal(dw_finish(&d, "late/f", TMP, ino, SIZE), -ELOOP);
    snprintf(outside, sizeof(outside), "%s/outside/f", d.segments.path);
    assert_int_equal(access(outside, F_OK), -1);
    /* the file itself is a symlink: it is replaced, not followed */
    assert_int_equal(symlink(outside, dw_path(&d, "s")), 0);
    assert_int_equal(dw_finish(&d, "s", TMP, ino, SIZE), 0);
    assert_int_equal(access(outside, F_OK), -1);
    assert_int_equal(dw_compare(&d, "s", SIZE, 0, &chunk, 1), 0);
}

static void test_a_file_or_directory_in_the_way(void **state)
{
    (void)state;
    dw_make(&d, "file", "x");
    assert_int_equal(dw_prepare(&d, "file/f", TMP, SIZE), -ELOOP);
    assert_int_equal(mkdir(dw_path(&d, "dir"), 0755), 0);
    assert_int_equal(dw_prepare(&d, "dir", TMP, SIZE), -EISDIR);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
}

/* -------------------------------------------------------------- directories, links */

static void test_a_directory_gets_its_attributes_at_the_end(void **state)
{
    struct fp_dw_file m = { .mode = S_IFDIR | 0750, .uid = geteuid(), .gid = getegid(), .mtime_ns = 1234567890987654321 };
    struct stat st;

    (void)state;
    assert_int_equal(dw_file(&d, FP_DW_PREPARE, &m, "a/b", TMP), 0);
    assert_true(d.done.tino != 0);
    m.tino = d.done.tino;
    assert_int_equal(dw_file(&d, FP_DW_PREPARE, &m, "a/b", TMP), 0);
    assert_int_equal(d.done.tino, m.tino);
    assert_int_equal(dw_finish(&d, "a/b/f", TMP, written("a/b/f"), SIZE), 0);
    assert_int_equal(dw_file(&d, FP_DW_FINISH, &m, "a/b", TMP), 0);
    assert_int_equal(dw_file(&d, FP_DW_FINISH, &m, "a/b", TMP), 0);
    assert_int_equal(stat(dw_path(&d, "a/b"), &st), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0750);
    assert_true(st.st_mtim.tv_sec == 1234567890 && st.st_mtim.tv_nsec == 987654321);
    m.tino++;
    assert_int_equal(dw_file(&d, FP_DW_FINISH, &m, "a/b", TMP), -ENOENT);
    dw_make(&d, "file", "of somebody else");
    assert_int_equal(dw_file(&d, FP_DW_PREPARE, &m, "file", TMP), -ENOTDIR);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
    assert_int_equal(symlink("a", dw_path(&d, "s")), 0);
    assert_int_equal(dw_file(&d, FP_DW_PREPARE, &m, "s", TMP), -ENOTDIR);
}

static int link_to(const char *path, const char *to)
{
    struct fp_dw_file m = { .h = { .type = FP_DW_PREPARE, .id = ++d.next_id, .gen = d.gen }, .mode = S_IFLNK | 0777, .uid = geteuid(), .gid = getegid(),
                            .path_bytes = (uint32_t)strlen(path), .tmp_bytes = sizeof(TMP) - 1, .mark_bytes = (uint32_t)strlen(to) };
    char rest[8192];
    int n = snprintf(rest, sizeof(rest), "%s" TMP "%s", path, to);

    dw_send(&d, &m, sizeof(m), rest, (size_t)n, -1);
    dw_wait(&d);
    return d.done.status;
}

static void test_a_symbolic_link_gets_its_name(void **state)
{
    struct fp_dw_file m = { .mode = S_IFLNK | 0777, .uid = geteuid(), .gid = getegid(), .flags = FP_DW_OVERWRITE, .mtime_ns = 1234567890987654321 };
    char to[4096] = "";
    struct stat st;

    (void)state;
    assert_int_equal(link_to("dir/l", "../not/there"), 0);
    m.tino = d.done.tino;
    assert_int_equal(link_to("dir/l", "../not/there"), 0); /* its answer was lost */
    assert_int_equal(d.done.tino, m.tino);
    assert_int_equal(link_to("dir/l", "elsewhere"), -EEXIST);
    dw_make(&d, "dir/l", "is replaced");
    assert_int_equal(dw_file(&d, FP_DW_FINISH, &m, "dir/l", TMP), 0);
    assert_int_equal(dw_file(&d, FP_DW_FINISH, &m, "dir/l", TMP), 0);
    assert_int_equal(d.done.tino, m.tino);
    assert_int_equal(readlink(dw_path(&d, "dir/l"), to, sizeof(to)), 12);
    assert_string_equal(to, "../not/there");
    assert_int_equal(lstat(dw_path(&d, "dir/l"), &st), 0);
    assert_int_equal(st.st_mtim.tv_sec, 1234567890);
    count_temps(0);
    memset(to, 'x', sizeof(to) - 1);
    to[sizeof(to) - 1] = '\0';
    assert_int_equal(link_to("long", to), 0);
}

/* -------------------------------------------------------------- verifying */

static void test_verify_reads_what_is_there(void **state)
{
    uint64_t sums[3] = { 0 }, ino, size = 2 * DW_WINDOW + 10;
    struct fp_dw_slice s[2];
    int fd;

    (void)state;
    s[0] = dw_chunk(&d, 5, DW_WINDOW, 0);
    s[1] = dw_chunk(&d, 6, 10, 2 * DW_WINDOW);
    assert_int_equal(dw_prepare(&d, "v", TMP, size), 0);
    ino = d.done.tino;
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, s, 2), 0);
    for (uint64_t w = 0; w < 3; w++)
        sums[w] = dw_sum_of(s, 2, size, w); /* the hole too */
    assert_int_equal(dw_verify(&d, NULL, TMP, ino, size, 0, sums, 3), 0);
    assert_int_equal(d.done.bytes, size);
    assert_int_equal(dw_finish(&d, "v", TMP, ino, size), 0);
    assert_int_equal(dw_verify(&d, "v", NULL, ino, size, 0, sums, 3), 0);
    assert_int_equal(dw_verify(&d, "v", NULL, ino, size, 1, sums + 1, 2), 0);
    assert_int_equal(dw_verify(&d, "v", NULL, ino + 1, size, 0, sums, 3), -ENOENT);
    fd = open(dw_path(&d, "v"), O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, DW_WINDOW + 7), 1);
    close(fd);
    assert_int_equal(dw_verify(&d, "v", NULL, ino, size, 0, sums, 3), FP_ECHECKSUM);
    assert_non_null(strstr(d.why, "65536"));
    sums[1] = 0; /* not looked at */
    assert_int_equal(dw_verify(&d, "v", NULL, ino, size, 0, sums, 3), 0);
    assert_int_equal(truncate(dw_path(&d, "v"), (off_t)size - 1), 0);
    assert_int_equal(dw_verify(&d, "v", NULL, ino, size, 0, sums, 3), -ENOENT);
}

/* Two benefactors have written it: each compares what it wrote, by the sums that its writing told, and none the other's. */
static void test_verify_of_windows_that_several_have_written(void **state)
{
    struct fp_dw_range others[2][3] = { { { 1000, 60000 }, { DW_WINDOW, 7 } }, { { 0, 1000 }, { 61000, 4536 }, { DW_WINDOW + 100, 200 } } };
    struct fp_dw_slice a = dw_chunk(&d, 5, DW_WINDOW, 0), b = dw_chunk(&d, 6, DW_WINDOW, 0), mine[2][3];
    uint64_t sums[2][2], ino, size = 2 * DW_WINDOW - 1000;
    int fd;

    (void)state;
    mine[0][0] = dw_piece(a, 3, 1000, 0);
    mine[0][1] = dw_piece(a, 2000, 4536, 61000);
    mine[0][2] = dw_piece(a, 9, 200, DW_WINDOW + 100);
    mine[1][0] = dw_piece(b, 5000, 60000, 1000);
    mine[1][1] = dw_piece(b, 1, 7, DW_WINDOW);
    assert_int_equal(dw_prepare(&d, "v", TMP, size), 0);
    ino = d.done.tino;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dw_write(&d, TMP, ino, size, 0, mine[i], 3u - (unsigned)i), 0);
        assert_int_equal(d.done.nsums, 2);
        memcpy(sums[i], d.sums, sizeof(sums[i]));
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(dw_verify_own(&d, TMP, ino, size, sums[i], 2, others[i], 2u + (unsigned)i), 0);
    assert_int_equal(dw_verify_own(&d, TMP, ino, size, sums[0], 2, others[0], 1), FP_ECHECKSUM);
    fd = open(dw_path(&d, TMP_PATH), O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 5000), 1); /* of the second */
    assert_int_equal(dw_verify_own(&d, TMP, ino, size, sums[0], 2, others[0], 2), 0);
    assert_int_equal(dw_verify_own(&d, TMP, ino, size, sums[1], 2, others[1], 3), FP_ECHECKSUM);
    assert_int_equal(dw_write(&d, TMP, ino, size, 0, mine[1], 2), 0);
    assert_int_equal(pwrite(fd, "x", 1, DW_WINDOW + 50), 1); /* of nobody: both see it */
    close(fd);
    for (int i = 0; i < 2; i++)
        assert_int_equal(dw_verify_own(&d, TMP, ino, size, sums[i], 2, others[i], 2u + (unsigned)i), FP_ECHECKSUM);
}

static void test_stat_says_what_is_there(void **state)
{
    struct fp_dw_file m = { 0 };
    uint64_t ino = written("f");

    (void)state;
    assert_int_equal(dw_file(&d, FP_DW_STAT, &m, "f", ""), -ENOENT);
    assert_int_equal(dw_finish(&d, "f", TMP, ino, SIZE), 0);
    assert_int_equal(dw_file(&d, FP_DW_STAT, &m, "f", ""), 0);
    assert_int_equal(d.done.tino, ino);
    assert_int_equal(d.done.size, SIZE);
    assert_true(d.done.mtime_ns == 1234567890987654321);
    assert_int_equal(symlink("f", dw_path(&d, "l")), 0);
    assert_int_not_equal(dw_file(&d, FP_DW_STAT, &m, "l", ""), 0);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
}

/* -------------------------------------------------------------- what was left */

static void test_sweep_and_clean(void **state)
{
    struct fp_dw_file m = { 0 };

    (void)state;
    count_temps(0);
    assert_int_equal(dw_prepare(&d, "f", TMP, SIZE), 0);
    assert_int_equal(dw_prepare(&d, "f", "a5a5a5a5-8-1", SIZE), 0);
    assert_int_equal(dw_prepare(&d, "f", "b6b6b6b6-8-1", SIZE), 0); /* another store's */
    count_temps(2);
    assert_non_null(strstr(d.names, TMP "\n"));
    assert_int_equal(dw_file(&d, FP_DW_CLEAN, &m, "", TMP), 0);
    assert_int_equal(dw_file(&d, FP_DW_CLEAN, &m, "", TMP), 0);
    count_temps(1);
    assert_null(strstr(d.names, TMP "\n"));
    assert_true(dw_exists(&d, FP_DW_TEMP_DIR "/b6b6b6b6-8-1"));
}

/* -------------------------------------------------------------- is it the target */

static void test_nothing_is_written_without_the_marker(void **state)
{
    uint64_t ino = written("f");

    (void)state;
    /* the file system is not mounted: another directory has the name, without a marker */
    char away[512];

    snprintf(away, sizeof(away), "%s-away", d.root);
    assert_int_equal(rename(d.root, away), 0);
    assert_int_equal(mkdir(d.root, 0755), 0);
    assert_int_equal(dw_prepare(&d, "g", "a5a5a5a5-9-1", SIZE), -ENOMEDIUM);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
    assert_int_equal(dw_write(&d, TMP, ino, SIZE, 0, &chunk, 1), -ENOMEDIUM);
    assert_int_equal(dw_finish(&d, "f", TMP, ino, SIZE), -ENOMEDIUM);
    assert_int_equal(dw_probe(&d, false), -ENOMEDIUM);
    assert_int_equal(rmdir(d.root), 0); /* it is empty */
    assert_int_equal(dw_probe(&d, false), -ENOENT);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
    assert_int_equal(rename(away, d.root), 0);
    assert_int_equal(dw_probe(&d, false), 0);
    assert_int_equal(dw_finish(&d, "f", TMP, ino, SIZE), 0);
}

static void test_the_marker_has_a_line_for_each_store(void **state)
{
    char text[256] = "";
    int fd;

    (void)state;
    assert_int_equal(unlink(dw_path(&d, FP_DW_MARKER)), 0);
    dw_make(&d, FP_DW_MARKER, "11112222333344445555666677778888 11112222333344445555666677778888\na5a5a5a5a5a5a5a5"); /* cut short by a crash */
    assert_int_equal(dw_probe(&d, true), 0);
    assert_int_equal(dw_probe(&d, true), 0); /* once */
    fd = open(dw_path(&d, FP_DW_MARKER), O_RDONLY);
    assert_int_equal(read(fd, text, sizeof(text)), 66 + 17 + 66);
    close(fd);
    assert_string_equal(text + 66 + 17, "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 11111111111111111111111111111111\n");
}

static void test_another_target_under_the_same_path(void **state)
{
    (void)state;
    assert_int_equal(rename(d.root, "/var/tmp/fp-test-gone"), 0);
    assert_int_equal(mkdir(d.root, 0755), 0);
    dw_make(&d, FP_DW_MARKER, "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 22222222222222222222222222222222\n");
    assert_int_equal(dw_probe(&d, false), -ENOMEDIUM);
    assert_non_null(strstr(d.why, "another target"));
    assert_int_equal(dw_probe(&d, true), -EMEDIUMTYPE); /* nor does it become one under this path */
    assert_non_null(strstr(d.why, "by another path"));
    assert_int_equal(system("rm -rf /var/tmp/fp-test-gone"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_a_file_gets_its_name_and_attributes),
        T(test_extended_attributes_and_the_mark),
        T(test_each_step_may_be_told_twice),
        T(test_a_foreign_file_under_the_temporary_name),
        T(test_a_file_of_another_size_gets_no_name),
        T(test_replacing_only_if_it_may),
        T(test_an_empty_file),
        T(test_a_rename_that_fails_leaves_the_temporary_file),
        T(test_directories_are_synced_before_they_count),
        T(test_symlinks_in_the_path),
        T(test_a_file_or_directory_in_the_way),
        T(test_a_directory_gets_its_attributes_at_the_end),
        T(test_a_symbolic_link_gets_its_name),
        T(test_verify_reads_what_is_there),
        T(test_verify_of_windows_that_several_have_written),
        T(test_stat_says_what_is_there),
        T(test_sweep_and_clean),
        T(test_nothing_is_written_without_the_marker),
        T(test_the_marker_has_a_line_for_each_store),
        T(test_another_target_under_the_same_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
