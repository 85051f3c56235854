/* Patterns of policies: which files they make a set, and which sets a policy with one concerns. */
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

#include "mgr_one_world.h"

#define QUIET_MS 2500u

static uint64_t dir(uint64_t parent, const char *name)
{
    return fix_mk(&w.f, parent, name, S_IFDIR | 0755);
}

static uint64_t file(uint64_t parent, const char *name)
{
    uint64_t ino = fix_mk(&w.f, parent, name, S_IFREG | 0644);

    assert_true(ino > 0);
    assert_true(fix_write(&w.f, ino, 0, 1000) > 0);
    return ino;
}

/* -1: it is of no set. */
static int64_t step_of(uint64_t ino)
{
    return fix_sql(&w.f, "SELECT ifnull((SELECT s.step FROM inode i JOIN ckpt_set s ON s.id=i.ckpt WHERE i.ino=%llu),-1)", (unsigned long long)ino);
}

static int64_t set_of(uint64_t ino)
{
    return fix_sql(&w.f, "SELECT ckpt FROM inode WHERE ino=%llu", (unsigned long long)ino);
}

static void is_top(uint64_t ino, uint64_t top)
{
    assert_int_equal(fix_sql(&w.f, "SELECT s.top FROM inode i JOIN ckpt_set s ON s.id=i.ckpt WHERE i.ino=%llu", (unsigned long long)ino), top);
}

static void test_names_that_say_nothing_by_themselves(void **state)
{
    uint64_t out = dir(MGR_ROOT_INO, "out"), d = dir(out, "00100"), e = dir(out, "00200"), sub = dir(d, "sub"), before, a, s1, s2;

    (void)state;
    before = file(d, "before");
    assert_int_equal(step_of(file(d, "a0.h5")), -1);
    w_policy(&w, "to=/pfs pattern=out/{step}/*.h5,state_{step}_*");
    assert_int_equal(step_of(before), -1); /* it is for what is made from now on */
    a = file(d, "a.h5");
    assert_int_equal(step_of(a), 100);
    is_top(a, d);
    assert_int_equal(step_of(before), 100); /* the directory is the set */
    assert_int_equal(set_of(file(sub, "deep.txt")), set_of(a));
    assert_int_equal(step_of(file(e, "plot.txt")), -1);
    assert_int_equal(step_of(file(out, "100.h5")), -1);
    s1 = file(MGR_ROOT_INO, "state_7_a");
    s2 = file(MGR_ROOT_INO, "state_7_b");
    assert_int_equal(step_of(s1), 7);
    is_top(s1, 0);
    assert_int_equal(set_of(s1), set_of(s2));
    assert_int_equal(step_of(file(e, "state_9_a")), 9); /* without a slash: anywhere */
    assert_int_equal(set_of(file(MGR_ROOT_INO, "state_8_a")) == set_of(s1), 0);
    w_tick(&w, QUIET_MS);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM ckpt_set WHERE state=2 AND how=1"), 4);
    w_run(&w);
    assert_non_null(w_find(&w, "out/00100/before"));
    assert_non_null(w_find(&w, "state_7_b"));
    assert_null(w_find(&w, "out/00200/plot.txt"));
}

static void test_a_pattern_goes_before_words(void **state)
{
    uint64_t d = dir(dir(MGR_ROOT_INO, "epoch=3"), "checkpoint-500"), a, b;

    (void)state;
    assert_int_equal(step_of(file(dir(dir(MGR_ROOT_INO, "epoch=2"), "checkpoint-400"), "a.pt")), 2);
    w_policy(&w, "to=/pfs pattern=epoch=*/checkpoint-{step}/*.pt");
    a = file(d, "a.pt");
    b = file(d, "config.json");
    assert_int_equal(step_of(a), 500);
    is_top(a, d);
    assert_int_equal(set_of(b), set_of(a)); /* all in it, whatever the directory above says */
    assert_int_equal(step_of(file(dir(MGR_ROOT_INO, "chk_7"), "rank_0")), 7); /* names go on for everything else */
}

static void test_only_sets_that_match_are_drained(void **state)
{
    uint64_t d, ino[2];

    (void)state;
    w_policy(&w, "to=/pfs every=2 pattern=run/chk_{step}/*");
    d = dir(MGR_ROOT_INO, "run");
    for (unsigned i = 1; i <= 4; i++) {
        char name[32];

        snprintf(name, sizeof name, "chk_%u", i);
        ino[0] = file(dir(d, name), "rank_0");
        ino[1] = file(dir(MGR_ROOT_INO, name), "rank_0");
        w_tick(&w, QUIET_MS);
    }
    w_run(&w);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM ckpt_set WHERE state=2"), 8);
    assert_int_equal(fix_sql(&w.f, "SELECT seen*10+taken FROM policy"), 42);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_job"), 2);
    w_equal(&w, "run/chk_4/rank_0", ino[0]);
    assert_null(w_find(&w, "chk_4/rank_0"));
    assert_null(w_find(&w, "run/chk_3/rank_0"));
    assert_int_equal(step_of(ino[1]), 4);
}

/* Which files a set has decides, not when they were made: the next job has other words, and writes the old names. */
static void test_a_set_from_before_the_policy_matches_when_it_is_written_anew(void **state)
{
    uint64_t d = dir(MGR_ROOT_INO, "chk_1"), e = dir(MGR_ROOT_INO, "chk_2"), a = file(d, "rank_0.h5"), b = file(e, "rank_0.txt"), s[2];

    (void)state;
    s[0] = file(MGR_ROOT_INO, "restart.5.a");
    s[1] = file(MGR_ROOT_INO, "restart.5.b");
    w_tick(&w, QUIET_MS);
    w_policy(&w, "to=/pfs pattern=chk_{step}/*.h5,restart.{step}.b");
    w_tick(&w, QUIET_MS);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_job"), 0);
    assert_true(fix_write(&w.f, a, 0, 1000) > 0);
    assert_true(fix_write(&w.f, b, 0, 1000) > 0);
    assert_true(fix_write(&w.f, s[0], 0, 1000) > 0);
    w_tick(&w, QUIET_MS);
    w_run(&w);
    w_equal(&w, "chk_1/rank_0.h5", a);
    w_equal(&w, "restart.5.b", s[1]);
    assert_null(w_find(&w, "chk_2/rank_0.txt"));
    assert_int_equal(fix_sql(&w.f, "SELECT seen FROM policy"), 2);
}

static void test_temporary_names_become_sets_when_they_are_renamed(void **state)
{
    uint64_t out = dir(MGR_ROOT_INO, "out"), d = dir(out, "00100.tmp"), a, b;

    (void)state;
    w_policy(&w, "to=/pfs pattern=out/{step}/*,/state_{step}.dat");
    a = file(d, "a");
    b = file(MGR_ROOT_INO, "state_7.dat.tmp");
    assert_int_equal(step_of(a), -1);
    assert_int_equal(step_of(b), -1);
    assert_int_equal(fix_rename(&w.f, out, "00100.tmp", out, "00100", 0), 0);
    assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "state_7.dat.tmp", MGR_ROOT_INO, "state_7.dat", 0), 0);
    assert_int_equal(step_of(a), 100);
    is_top(a, d);
    assert_int_equal(set_of(file(d, "b")), set_of(a));
    assert_int_equal(step_of(b), 7);
    assert_int_equal(step_of(file(out, "state_8.dat")), -1); /* with a slash before it: in the root */
    assert_int_equal(fix_rename(&w.f, out, "00100", out, "00300", 0), 0);
    assert_int_equal(step_of(a), 300);
    /* the paths of directories are not those of before */
    assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "out", MGR_ROOT_INO, "in", 0), 0);
    assert_int_equal(step_of(file(dir(out, "00400"), "x")), -1);
    assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "in", MGR_ROOT_INO, "out", 0), 0);
    assert_int_equal(step_of(file(dir(out, "00500"), "x")), 500);
}

static void test_a_directory_of_very_many_files_is_looked_at(void **state)
{
    uint64_t d = dir(MGR_ROOT_INO, "chk_1");
    char name[32];

    (void)state;
    w_policy(&w, "to=/pfs pattern=chk_{step}/last");
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "a%u", i);
        fix_mk(&w.f, d, name, S_IFREG | 0644);
    }
    w_tick(&w, QUIET_MS);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_job"), 0);
    fix_mk(&w.f, d, "last", S_IFREG | 0644);
    w_tick(&w, 60000 + QUIET_MS);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_job"), 1);
}

static void test_patterns_outlast_a_restart_and_end_with_their_policy(void **state)
{
    uint64_t out, a;

    (void)state;
    w_close(&w);
    w_open(&w, fix_path(), 1);
    w_policy(&w, "to=/pfs pattern=out/{step}/*");
    out = dir(MGR_ROOT_INO, "out");
    file(dir(out, "1"), "a");
    w_restart(&w);
    a = file(dir(out, "2"), "a");
    assert_int_equal(step_of(a), 2);
    w_tick(&w, QUIET_MS);
    w_restart(&w);
    w_run(&w);
    assert_non_null(w_find(&w, "out/1/a"));
    w_equal(&w, "out/2/a", a);
    w_policy_change(&w, NULL, 1, NULL);
    assert_int_equal(step_of(file(dir(out, "3"), "a")), -1);
    assert_int_equal(step_of(a), 2); /* what is a set stays one */
}

static void test_there_are_not_too_many(void **state)
{
    char text[1000] = "to=/pfs pattern=a{step}", why[FP_DRAIN_WHY_MAX];

    (void)state;
    for (unsigned i = 1; i < MGR_PATTERNS_MAX; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), ",b%c%c{step}", 'a' + i / 26, 'a' + i % 26);
    w_policy(&w, text);
    w_policy(&w, "to=/pfs");
    w_policy_change(&w, "to=/pfs pattern=c{step}", 0, why);
    assert_non_null(strstr(why, "more than 64"));
    assert_int_equal(step_of(file(MGR_ROOT_INO, "bcl9")), 9);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_names_that_say_nothing_by_themselves),
        T(test_a_pattern_goes_before_words),
        T(test_only_sets_that_match_are_drained),
        T(test_a_set_from_before_the_policy_matches_when_it_is_written_anew),
        T(test_temporary_names_become_sets_when_they_are_renamed),
        T(test_a_directory_of_very_many_files_is_looked_at),
        T(test_patterns_outlast_a_restart_and_end_with_their_policy),
        T(test_there_are_not_too_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
