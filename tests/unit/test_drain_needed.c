/* fp-drain: what stores need in a target is marked, and not replaced by others (drain/needed.c). */
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

#define ENTRY       "a5a5a5a5-needs-1f"
#define OTHER_ENTRY "a5a5a5a6-needs-2"

static void mark(const char *below, const char *drained, const char *needed)
{
    if (drained && setxattr(dw_path(&d, below), FP_DW_MARK_XATTR, drained, strlen(drained), 0) && errno == ENOTSUP)
        skip();
    if (needed)
        assert_int_equal(setxattr(dw_path(&d, below), FP_DW_NEED_XATTR, needed, strlen(needed), 0), 0);
}

static void entry(const char *name, bool there)
{
    char below[100];

    snprintf(below, sizeof(below), FP_DW_TEMP_DIR "/%s", name);
    if (there)
        dw_make(&d, below, "");
    else
        assert_int_equal(unlink(dw_path(&d, below)), 0);
}

/* Two stores with one target: what one has drained the other replaces, but not what it relies on. */
static void test_what_another_store_needs_is_not_replaced(void **state)
{
    static const struct {
        const char *drained, *needed, *entry;
        bool stays;
    } of[] = {
        { "a5a5a5a6:7:1", NULL, NULL, false },
        { "a5a5a5a6:7:1", OTHER_ENTRY, OTHER_ENTRY, true },
        { "a5a5a5a6:7:1", OTHER_ENTRY, "a5a5a5a6-needs-3", false }, /* it has been given up */
        { "a5a5a5a6:7:1", NULL, OTHER_ENTRY, false },               /* it needs others */
        { "a5a5a5a6:7:1", NULL, OTHER_ENTRY "-all", true },         /* it could not mark what it needs */
        { "a5a5a5a7:7:1", NULL, OTHER_ENTRY "-all", false },        /* a third one's */
        { NULL, NULL, OTHER_ENTRY "-all", true },
        { NULL, NULL, NULL, false },
        { "a5a5a5a5:9:2", NULL, OTHER_ENTRY "-all", false }, /* our own */
        { "a5a5a5a5:9:2", ENTRY, ENTRY, false },
        { "by hand", "as well", NULL, false },
        { NULL, "../a5a5a5a6-needs-2", NULL, false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
        uint64_t ino = written("it");

        dw_make(&d, "it", "what was there");
        mark("it", of[i].drained, of[i].needed);
        if (of[i].entry)
            entry(of[i].entry, true);
        assert_int_equal(dw_finish(&d, "it", TMP, ino, SIZE), of[i].stays ? -EPERM : 0);
        assert_int_equal(d.done.scope, of[i].stays ? FP_DW_SCOPE_FILE : 0);
        if (!of[i].stays) /* whose it was is said */
            assert_int_equal(d.done.note, of[i].drained && (strncmp(of[i].drained, "a5a5a5a6:", 9) == 0 || strncmp(of[i].drained, "a5a5a5a7:", 9) == 0));
        assert_int_equal(dw_compare(&d, "it", SIZE, 0, &chunk, 1) == 0, !of[i].stays);
        assert_false(dw_exists(&d, TMP_PATH "-kept"));
        if (of[i].stays) {
            assert_non_null(strstr(d.why, "another store"));
            assert_non_null(strstr(d.why, "--overwrite"));
            assert_int_equal(dw_prepare(&d, "it", "a5a5a5a5-2-1", SIZE), -EPERM); /* and nothing is written in vain */
            assert_non_null(strstr(d.why, "another store"));
            entry(of[i].entry, false);
            assert_int_equal(dw_finish(&d, "it", TMP, ino, SIZE), 0);
        } else if (of[i].entry) {
            entry(of[i].entry, false);
        }
        assert_int_equal(dw_compare(&d, "it", SIZE, 0, &chunk, 1), 0);
    }
}

static void test_what_another_store_needs_is_replaced_when_that_is_said(void **state)
{
    struct fp_dw_file m = { .size = SIZE, .uid = geteuid(), .gid = getegid(), .mode = 0640, .flags = FP_DW_OVERWRITE | FP_DW_FORCE };
    uint64_t ino = written("it");

    (void)state;
    dw_make(&d, "it", "what was there");
    mark("it", "a5a5a5a6:7:1", OTHER_ENTRY);
    entry(OTHER_ENTRY, true);
    assert_int_equal(dw_file(&d, FP_DW_PREPARE, &m, "it", "a5a5a5a5-2-1"), 0);
    m.tino = ino;
    assert_int_equal(dw_file(&d, FP_DW_FINISH, &m, "it", TMP), 0);
    assert_int_equal(dw_compare(&d, "it", SIZE, 0, &chunk, 1), 0);
}

/* Where nothing can be marked, what we have drained there before is told by its inode. */
static void test_our_own_file_without_a_mark_is_replaced(void **state)
{
    struct fp_dw_file m = { .size = SIZE, .uid = geteuid(), .gid = getegid(), .mode = 0640, .flags = FP_DW_OVERWRITE };
    struct stat st;

    (void)state;
    m.tino = written("it");
    dw_make(&d, "it", "what was there");
    entry(OTHER_ENTRY "-all", true);
    assert_int_equal(stat(dw_path(&d, "it"), &st), 0);
    m.own = st.st_ino + 1;
    assert_int_equal(dw_file(&d, FP_DW_FINISH, &m, "it", TMP), -EPERM);
    m.own = st.st_ino;
    assert_int_equal(dw_file(&d, FP_DW_FINISH, &m, "it", TMP), 0);
    assert_int_equal(dw_compare(&d, "it", SIZE, 0, &chunk, 1), 0);
}

/* The number of an inode that was ours may be another store's file by now. */
static void test_a_file_of_another_store_with_an_inode_of_ours_stays(void **state)
{
    struct fp_dw_file m = { .size = SIZE, .uid = geteuid(), .gid = getegid(), .mode = 0640, .flags = FP_DW_OVERWRITE };
    uint64_t ino = written("it");
    struct stat st;

    (void)state;
    for (int all = 0; all < 2; all++) {
        dw_make(&d, "it", "what was there");
        mark("it", "a5a5a5a6:7:1", all ? NULL : OTHER_ENTRY);
        entry(all ? OTHER_ENTRY "-all" : OTHER_ENTRY, true);
        assert_int_equal(stat(dw_path(&d, "it"), &st), 0);
        m.own = st.st_ino;
        m.tino = 0;
        assert_int_equal(dw_file(&d, FP_DW_PREPARE, &m, "it", "a5a5a5a5-2-1"), -EPERM);
        m.tino = ino;
        assert_int_equal(dw_file(&d, FP_DW_FINISH, &m, "it", TMP), -EPERM);
        assert_int_not_equal(dw_compare(&d, "it", SIZE, 0, &chunk, 1), 0);
        assert_int_equal(unlink(dw_path(&d, "it")), 0);
        entry(all ? OTHER_ENTRY "-all" : OTHER_ENTRY, false);
    }
    dw_make(&d, "it", "what was there");
    mark("it", "a5a5a5a6:7:1", NULL);
    assert_int_equal(stat(dw_path(&d, "it"), &st), 0);
    m.own = st.st_ino;
    assert_int_equal(dw_file(&d, FP_DW_FINISH, &m, "it", TMP), 0); /* nobody needs it */
    assert_int_equal(dw_compare(&d, "it", SIZE, 0, &chunk, 1), 0);
}

/* We have replaced it, and were killed before we could look whether somebody has begun to need it: it gets its name back. */
static void test_what_is_needed_a_moment_later_gets_its_name_back(void **state)
{
    struct stat st, now;
    uint64_t ino;

    (void)state;
    for (int needed = 0; needed < 2; needed++) {
        ino = written("it");
        assert_int_equal(dw_finish(&d, "it", TMP, ino, SIZE), 0);
        dw_make(&d, TMP_PATH "-kept", "what was there");
        mark(TMP_PATH "-kept", "a5a5a5a6:7:1", OTHER_ENTRY);
        assert_int_equal(stat(dw_path(&d, TMP_PATH "-kept"), &st), 0);
        if (needed)
            entry(OTHER_ENTRY, true);
        assert_int_equal(dw_finish(&d, "it", TMP, ino, SIZE), needed ? -EPERM : 0);
        assert_int_equal(d.done.note, !needed); /* the answer of the attempt that had replaced it was lost */
        assert_int_equal(stat(dw_path(&d, "it"), &now), 0);
        assert_int_equal(now.st_ino == st.st_ino, needed);
        assert_false(dw_exists(&d, TMP_PATH "-kept"));
    }
}

/* An attempt that is over is cleaned up after: never of what somebody needs. */
static void test_what_is_needed_is_not_cleaned_away(void **state)
{
    struct fp_dw_file m = { 0 };

    (void)state;
    written("it");
    dw_make(&d, TMP_PATH "-kept", "what was there");
    mark(TMP_PATH "-kept", "a5a5a5a6:7:1", OTHER_ENTRY);
    entry(OTHER_ENTRY, true);
    assert_int_equal(dw_file(&d, FP_DW_CLEAN, &m, "", TMP), 0);
    assert_true(dw_exists(&d, TMP_PATH "-kept"));
    entry(OTHER_ENTRY, false);
    assert_int_equal(dw_file(&d, FP_DW_CLEAN, &m, "", TMP), 0);
    assert_false(dw_exists(&d, TMP_PATH "-kept"));
}

static int need(const char *path, const char *name)
{
    struct fp_dw_file m = { .h = { .type = FP_DW_STAT, .id = 78 }, .path_bytes = (uint32_t)strlen(path), .mark_bytes = (uint32_t)strlen(name) };
    char rest[256];

    snprintf(rest, sizeof(rest), "%s%s", path, name);
    dw_send(&d, &m, sizeof(m), rest, strlen(rest), -1);
    dw_wait(&d);
    return d.done.status;
}

static void test_what_is_needed_is_said_before(void **state)
{
    struct fp_dw_file m = { 0 };
    char value[64] = "";
    struct stat st;

    (void)state;
    dw_make(&d, "it", "drained");
    assert_int_equal(chmod(dw_path(&d, "it"), 0600), 0);
    assert_int_equal(need("it", ENTRY), 0);
    assert_int_equal(stat(dw_path(&d, "it"), &st), 0);
    assert_int_equal(d.done.tino, st.st_ino);
    assert_true(dw_exists(&d, FP_DW_TEMP_DIR "/" ENTRY));
    if (getxattr(dw_path(&d, "it"), FP_DW_NEED_XATTR, value, sizeof(value) - 1) < 0 && errno == ENOTSUP)
        skip();
    assert_string_equal(value, ENTRY);
    assert_false(dw_exists(&d, FP_DW_TEMP_DIR "/" ENTRY "-all"));
    assert_int_equal(need("it", ENTRY), 0);
    entry(ENTRY, false); /* somebody tidies up */
    assert_int_equal(need("it", ENTRY), 0);
    assert_true(dw_exists(&d, FP_DW_TEMP_DIR "/" ENTRY));
    assert_int_equal(dw_file(&d, FP_DW_CLEAN, &m, "", ENTRY), 0);
    assert_false(dw_exists(&d, FP_DW_TEMP_DIR "/" ENTRY));
    assert_int_equal(need("other", ENTRY), -ENOENT);
}

static void test_what_can_not_be_marked_is_needed_with_all(void **state)
{
    struct fp_dw_file m = { 0 };

    (void)state;
    dw_make(&d, "it", "drained");
    fp_fault_set("drain.mark=EOPNOTSUPP");
    assert_int_equal(need("it", ENTRY), 0);
    assert_true(dw_exists(&d, FP_DW_TEMP_DIR "/" ENTRY "-all"));
    assert_int_equal(dw_file(&d, FP_DW_CLEAN, &m, "", ENTRY), 0);
    assert_false(dw_exists(&d, FP_DW_TEMP_DIR "/" ENTRY "-all"));
    assert_false(dw_exists(&d, FP_DW_TEMP_DIR "/" ENTRY));
}

static void test_what_can_not_be_said_is_not_relied_on(void **state)
{
    (void)state;
    dw_make(&d, "it", "drained");
    fp_fault_set("drain.fsync=EIO");
    assert_int_equal(need("it", ENTRY), -EIO);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
    fp_fault_set("drain.mark=EIO");
    assert_int_equal(need("it", ENTRY), -EIO);
    fp_fault_set(NULL);
    assert_int_equal(need("it", ENTRY), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_what_another_store_needs_is_not_replaced),
        T(test_what_another_store_needs_is_replaced_when_that_is_said),
        T(test_our_own_file_without_a_mark_is_replaced),
        T(test_a_file_of_another_store_with_an_inode_of_ours_stays),
        T(test_what_is_needed_a_moment_later_gets_its_name_back),
        T(test_what_is_needed_is_not_cleaned_away),
        T(test_what_is_needed_is_said_before),
        T(test_what_can_not_be_marked_is_needed_with_all),
        T(test_what_can_not_be_said_is_not_relied_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
