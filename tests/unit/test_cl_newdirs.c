/* What fp-mount knows of directories without asking: names that are not there, attributes of a moment ago
 * (client/newdirs.h, client/dircache.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/dircache.h"
#include "client/inode.h"
#include "client/newdirs.h"

void cl_attr_stat(struct cl_mount *m, const Fp__Attr *a, struct stat *st)
{
    (void)m;
    memset(st, 0, sizeof *st);
    st->st_ino = a->ino;
    st->st_mode = a->mode;
}

static int clear(void **state)
{
    (void)state;
    cl_newdirs_clear();
    cl_dircache_clear();
    return 0;
}

static void test_newdirs_other_directories_are_not_known(void **state)
{
    (void)state;
    assert_false(cl_newdirs_absent(20, "a"));
    cl_newdirs_name(20, "a"); /* nothing to remember it in */
    cl_newdirs_made(21);
    assert_false(cl_newdirs_absent(20, "a"));
}

static void test_newdirs_new_one_is_empty_but_for_our_names(void **state)
{
    (void)state;
    cl_newdirs_made(20);
    assert_true(cl_newdirs_absent(20, "a"));
    cl_newdirs_name(20, "a");
    assert_false(cl_newdirs_absent(20, "a"));
    assert_true(cl_newdirs_absent(20, "b"));
}

static void test_newdirs_many_names_stay_known(void **state)
{
    char name[32];
    (void)state;
    cl_newdirs_made(20);
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "f%d", i);
        assert_true(cl_newdirs_absent(20, name));
        cl_newdirs_name(20, name);
    }
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "f%d", i);
        assert_false(cl_newdirs_absent(20, name));
    }
    assert_true(cl_newdirs_absent(20, "g"));
}

static void test_newdirs_too_large_ones_are_forgotten(void **state)
{
    char name[32];
    (void)state;
    cl_newdirs_made(20);
    for (int i = 0; i < 400000; i++) {
        snprintf(name, sizeof name, "f%d", i);
        cl_newdirs_name(20, name);
        assert_false(cl_newdirs_absent(20, name));
    }
    assert_false(cl_newdirs_absent(20, "g"));
}

static void test_newdirs_colliding_directory_takes_the_place(void **state)
{
    uint64_t known = 0;
    (void)state;
    for (uint64_t ino = 100; ino < 1100; ino++)
        cl_newdirs_made(ino);
    for (uint64_t ino = 100; ino < 1100; ino++)
        known += cl_newdirs_absent(ino, "a");
    assert_in_range(known, 1, 64);
    assert_true(cl_newdirs_absent(1099, "a"));
}

static void test_newdirs_clear_forgets_all(void **state)
{
    (void)state;
    cl_newdirs_made(20);
    cl_newdirs_clear();
    assert_false(cl_newdirs_absent(20, "a"));
}

static Fp__Attr attr(uint64_t ino, uint32_t mode)
{
    Fp__Attr a = FP__ATTR__INIT;
    a.ino = ino;
    a.mode = mode;
    return a;
}

static void test_dircache_answers_for_a_moment(void **state)
{
    Fp__Attr a = attr(20, 0755);
    struct stat st;
    (void)state;
    for (int attempt = 0; attempt < 50; attempt++) { /* the machine may pause longer than that */
        cl_dircache_put(NULL, &a);
        if (cl_dircache_get(20, &st))
            break;
    }
    assert_int_equal(st.st_mode, 0755);
    usleep((CL_DIRCACHE_MS + 1) * 1000);
    assert_false(cl_dircache_get(20, &st));
}

static void test_dircache_drops_what_changes(void **state)
{
    Fp__Attr a = attr(20, 0755);
    struct stat st;
    (void)state;
    cl_dircache_put(NULL, NULL);
    cl_dircache_put(NULL, &a);
    cl_dircache_drop(20);
    assert_false(cl_dircache_get(20, &st));
    cl_dircache_put(NULL, &a);
    cl_dircache_clear();
    assert_false(cl_dircache_get(20, &st));
    assert_false(cl_dircache_get(0, &st));
}

#define T(name) cmocka_unit_test_setup_teardown(name, clear, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_newdirs_other_directories_are_not_known),
        T(test_newdirs_new_one_is_empty_but_for_our_names),
        T(test_newdirs_many_names_stay_known),
        T(test_newdirs_too_large_ones_are_forgotten),
        T(test_newdirs_colliding_directory_takes_the_place),
        T(test_newdirs_clear_forgets_all),
        T(test_dircache_answers_for_a_moment),
        T(test_dircache_drops_what_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
