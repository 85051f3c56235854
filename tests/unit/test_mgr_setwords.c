/* What policies say of when a set is complete: quiet=, late=, complete=told, marker=; and what seems to be half of one when time has completed it. */
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

#define OPEN     FP__CKPT_STATE__CKPT_OPEN
#define COMPLETE FP__CKPT_STATE__CKPT_COMPLETE

static uint64_t dir(const char *name)
{
    return fix_mk(&w.f, MGR_ROOT_INO, name, S_IFDIR | 0755);
}

static uint64_t file(uint64_t parent, const char *name)
{
    uint64_t ino = fix_mk(&w.f, parent, name, S_IFREG | 0644);

    assert_true(ino > 0);
    return ino;
}

static int64_t state_of(unsigned step)
{
    return fix_sql(&w.f, "SELECT state FROM ckpt_set WHERE step=%u", step);
}

static void open_and_close(uint64_t ino)
{
    Fp__Open m = FP__OPEN__INIT;
    Fp__Release r = FP__RELEASE__INIT;

    m.ino = ino;
    m.write = true;
    fix_free(fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    assert_int_equal(w.f.status, 0);
    r.n_ino = r.n_write_ino = 1;
    r.ino = r.write_ino = &ino;
    fix_notice(&w.f, w.f.conn, FP__MSG_TYPE__MSG_RELEASE, &r);
    w_tick(&w, 500);
}

static void test_the_longest_quiet_of_those_that_speak_of_a_set(void **state)
{
    (void)state;
    w_policy(&w, "to=/pfs quiet=5s pattern=chk_{step}/*");
    w_policy(&w, "to=/pfs quiet=1s");
    w_policy(&w, "to=/pfs every=7"); /* says nothing of it */
    w_tick(&w, 1000);
    file(dir("chk_1"), "rank_0");
    file(dir("step_2"), "rank_0");
    w_tick(&w, 1500);
    assert_int_equal(state_of(2), COMPLETE); /* sooner than the manager's 2 s, since a policy says so */
    assert_int_equal(state_of(1), OPEN);
    w_tick(&w, 3000);
    assert_int_equal(state_of(1), OPEN);
    w_tick(&w, 1000);
    assert_int_equal(state_of(1), COMPLETE);
}

static void test_what_comes_in_the_pause_begins_it_anew(void **state)
{
    uint64_t d = dir("chk_1");

    (void)state;
    w_policy(&w, "to=/pfs quiet=5s");
    for (unsigned i = 0; i < 3; i++) {
        char name[16];

        snprintf(name, sizeof name, "rank_%u", i);
        file(d, name);
        w_tick(&w, 4500);
        assert_int_equal(state_of(1), OPEN);
    }
    w_policy_change(&w, NULL, 1, NULL); /* at once as the manager was started */
    w_tick(&w, 500);
    assert_int_equal(state_of(1), COMPLETE);
}

static void test_late(void **state)
{
    uint64_t d = dir("chk_1");

    (void)state;
    w_policy(&w, "to=/pfs late=10s");
    file(d, "rank_0");
    file(d, "rank_1");
    w_tick(&w, 2500);
    assert_int_equal(state_of(1), COMPLETE);
    file(dir("chk_2"), "rank_0");
    w_tick(&w, 9000);
    assert_int_equal(state_of(2), OPEN);
    w_tick(&w, 1500);
    assert_int_equal(state_of(2), COMPLETE);
}

/* Of the set of this step, which becomes complete by time. */
static int64_t before_of(unsigned step, unsigned files)
{
    char name[32];
    uint64_t d;

    snprintf(name, sizeof name, "chk_%u", step);
    d = dir(name);
    for (unsigned i = 0; i < files; i++) {
        snprintf(name, sizeof name, "rank_%u", i);
        file(d, name);
    }
    w_tick(&w, 6000);
    assert_int_equal(state_of(step), COMPLETE);
    return fix_sql(&w.f, "SELECT files_before FROM ckpt_set WHERE step=%u", step);
}

static void test_half_of_one_is_known_by_those_before(void **state)
{
    Fp__CtlSets m = FP__CTL_SETS__INIT;
    Fp__CtlSetsReply *r;

    (void)state;
    w_policy(&w, "to=/pfs late=3s every=none results=none.h5");
    assert_int_equal(before_of(1, 4), 0);
    assert_int_equal(before_of(2, 2), 0); /* one before it says nothing */
    assert_int_equal(before_of(3, 4), 0);
    assert_int_equal(before_of(4, 3), 0); /* those before it differ */
    assert_int_equal(before_of(5, 4), 0);
    assert_int_equal(before_of(6, 4), 0);
    assert_int_equal(before_of(7, 3), 4);
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_SETS, &m, &fp__ctl_sets_reply__descriptor);
    assert_int_equal(r->sets[0]->step, 7);
    assert_int_equal(r->sets[0]->files_before, 4);
    assert_non_null(strstr(r->sets[0]->why, "those before have 4 files"));
    assert_int_equal(r->sets[1]->files_before, 0);
    fix_free(r);
    assert_int_equal(before_of(8, 2), 4); /* killed again */
    assert_int_equal(before_of(9, 2), 0); /* so many it writes now */
    assert_int_equal(before_of(10, 2), 0);
    assert_int_equal(before_of(11, 1), 2);
    fix_set_xattr(&w.f, fix_lookup(&w.f, MGR_ROOT_INO, "chk_11"), "user.fp.checkpoint", "complete", 0); /* who says so knows */
    w_tick(&w, 1000);
    assert_int_equal(state_of(11), COMPLETE);
    assert_int_equal(fix_sql(&w.f, "SELECT files_before FROM ckpt_set WHERE step=11"), 0);
}

static void test_told_is_by_no_time(void **state)
{
    uint64_t d = dir("chk_1"), marker;

    (void)state;
    w_policy(&w, "to=/pfs complete=told pattern=chk_{step}/*");
    w_policy(&w, "to=/pfs quiet=1s late=1s");
    file(d, "rank_0");
    file(dir("step_9"), "rank_0");
    w_tick(&w, 200000);
    assert_int_equal(state_of(1), OPEN);
    assert_int_equal(state_of(9), COMPLETE);
    file(dir("chk_2"), "rank_0"); /* a later one says nothing either */
    w_tick(&w, 200000);
    assert_int_equal(state_of(1), OPEN);
    marker = file(d, "DONE");
    w_tick(&w, 500);
    assert_int_equal(state_of(1), COMPLETE);
    /* written anew, in its place: the marker says so again when it is closed */
    assert_true(fix_write(&w.f, fix_lookup(&w.f, d, "rank_0"), 0, 100) > 0);
    w_tick(&w, 200000);
    assert_int_equal(state_of(1), OPEN);
    open_and_close(fix_lookup(&w.f, d, "rank_0"));
    w_tick(&w, 1000);
    assert_int_equal(state_of(1), OPEN);
    open_and_close(marker);
    w_tick(&w, 500);
    assert_int_equal(state_of(1), COMPLETE);
    assert_int_equal(state_of(2), OPEN);
}

static void test_markers(void **state)
{
    uint64_t d = dir("chk_1"), e = dir("chk_2"), s = dir("step_3");

    (void)state;
    w_policy(&w, "to=/pfs marker=ok,all.ok pattern=chk_{step}/*");
    w_policy(&w, "to=/pfs marker=fine complete=told");
    file(d, "rank_0");
    file(e, "rank_0");
    file(s, "rank_0");
    file(d, "COMPLETE"); /* those of the policies are in place of the usual ones */
    file(s, "ok");       /* it is not of the sets of that policy */
    w_tick(&w, 3000);
    assert_int_equal(state_of(1), OPEN);
    assert_int_equal(state_of(3), OPEN);
    file(d, "all.ok");
    file(e, "tmp");
    assert_int_equal(fix_rename(&w.f, e, "tmp", e, "fine", 0), 0);
    file(s, "fine");
    w_tick(&w, 500);
    assert_int_equal(state_of(1), COMPLETE);
    assert_int_equal(state_of(2), COMPLETE); /* those of both */
    assert_int_equal(state_of(3), COMPLETE);
}

static void test_words_outlast_a_restart(void **state)
{
    uint64_t d;

    (void)state;
    w_close(&w);
    w_open(&w, fix_path(), 1);
    w_policy(&w, "to=/pfs complete=told marker=ok");
    d = dir("chk_1");
    file(d, "rank_0");
    w_restart(&w);
    w_tick(&w, 100000);
    assert_int_equal(state_of(1), OPEN);
    file(d, "ok");
    w_tick(&w, 500);
    assert_int_equal(state_of(1), COMPLETE);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_the_longest_quiet_of_those_that_speak_of_a_set),
        T(test_what_comes_in_the_pause_begins_it_anew),
        T(test_late),
        T(test_half_of_one_is_known_by_those_before),
        T(test_told_is_by_no_time),
        T(test_markers),
        T(test_words_outlast_a_restart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
