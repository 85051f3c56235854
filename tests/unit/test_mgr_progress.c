/* How far draining is, as the manager tells it: of a set and of a job, while a job is at work on it and not longer. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "mgr_drain_world.h"

#define KIB      1024u
#define RANKS    3u
#define QUIET_MS 2500u

static struct world w;

/* A complete set of files of 100 KiB each. */
static void set(uint64_t parent, unsigned step)
{
    char name[32];
    uint64_t dir, ino;

    snprintf(name, sizeof name, "chk_%u", step);
    dir = fix_mk(&w.f, parent, name, S_IFDIR | 0755);
    for (unsigned i = 0; i < RANKS; i++) {
        snprintf(name, sizeof name, "rank_%u", i);
        ino = fix_mk(&w.f, dir, name, S_IFREG | 0644);
        assert_true(fix_write(&w.f, ino, 0, 100 * KIB) > 0);
    }
    w_tick(&w, QUIET_MS);
}

/* What is told of the set of this step; fields that are pointers are not valid afterwards. */
static Fp__CkptSet shown(unsigned step, char to[64], char why[300])
{
    Fp__CtlSets m = FP__CTL_SETS__INIT;
    Fp__CtlSetsReply *r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_SETS, &m, &fp__ctl_sets_reply__descriptor);
    Fp__CkptSet s = FP__CKPT_SET__INIT;

    assert_non_null(r);
    for (size_t i = 0; i < r->n_sets; i++) {
        if (r->sets[i]->step != step)
            continue;
        s = *r->sets[i];
        snprintf(to, 64, "%s", s.to);
        snprintf(why, 300, "%s", s.drain_why);
    }
    assert_int_equal(s.step, step);
    fix_free(r);
    return s;
}

/* Every task, each shown in between; how often the set of this step was seen half done. */
static unsigned run_and_look(unsigned step, uint64_t job)
{
    unsigned half = 0;
    uint64_t before = 0;
    char to[64], why[300];

    for (int idle = 0; idle < 60;) {
        Fp__CkptSet s = shown(step, to, why);
        bool any = false;

        assert_true(s.drain_job == job || s.drain_job == 0);
        if (s.drain_job) {
            assert_string_equal(to, "/pfs");
            assert_true(s.drain_bytes_done <= s.drain_bytes);
            assert_int_equal(s.drain_bytes, RANKS * 100 * KIB);
            assert_true(s.drain_bytes_done >= before); /* nothing fails here */
            before = s.drain_bytes_done;
            half += before > 0 && before < s.drain_bytes;
        }
        for (size_t i = 0; i < w.nbnf && !any; i++) {
            any |= w.bnf[i].asked || w.bnf[i].n;
            if (w.bnf[i].asked)
                w_answer(&w, i, 0);
            else if (w.bnf[i].n)
                w_work(&w, i, 0);
        }
        idle = any ? 0 : idle + 1;
        if (!any)
            w_tick(&w, 500);
    }
    return half;
}

static void ended(unsigned step)
{
    char to[64], why[300];
    Fp__CkptSet s = shown(step, to, why);

    assert_int_equal(s.drain_job, 0);
    assert_int_equal(s.drain_bytes, 0);
    assert_string_equal(to, "");
    assert_int_equal(s.drained_files, RANKS);
    assert_int_equal(s.level, FP__LEVEL__LEVEL_DRAINED);
}

static void test_a_set_that_a_policy_drains(void **state)
{
    char to[64], why[300];

    (void)state;
    w_open(&w, ":memory:", 1);
    set(MGR_ROOT_INO, 1);
    assert_int_equal(shown(1, to, why).drain_job, 0);
    w_policy(&w, "to=/pfs");
    set(MGR_ROOT_INO, 2);
    assert_true(run_and_look(2, 1) > 0);
    ended(2);
    assert_int_equal(shown(1, to, why).drain_job, 0);
    w_close(&w);
}

static void test_a_set_whose_directory_was_given(void **state)
{
    uint64_t job;

    (void)state;
    w_open(&w, ":memory:", 1);
    set(MGR_ROOT_INO, 1);
    set(MGR_ROOT_INO, 2);
    job = w_start(&w, "chk_1", false, NULL);
    assert_true(run_and_look(1, job) > 0);
    ended(1);
    w_close(&w);
}

/* One job of two sets and another file: each has its own numbers. */
static void test_sets_below_a_directory_that_was_given(void **state)
{
    uint64_t run, ino, job;
    char to[64], why[300];

    (void)state;
    w_open(&w, ":memory:", 2);
    run = fix_mk(&w.f, MGR_ROOT_INO, "run", S_IFDIR | 0755);
    set(run, 1);
    set(run, 2);
    ino = fix_mk(&w.f, run, "log", S_IFREG | 0644);
    assert_true(fix_write(&w.f, ino, 0, 999 * KIB) > 0);
    set(MGR_ROOT_INO, 3);
    job = w_start(&w, "run", false, NULL);
    assert_int_equal(shown(3, to, why).drain_job, 0);
    while (!fix_sql(&w.f, "SELECT count(*) FROM drain_file WHERE kind=0"))
        w_tick(&w, 500); /* until the directories are read */
    w_tick(&w, 2000);
    assert_true(run_and_look(2, job) > 0);
    ended(1);
    ended(2);
    w_close(&w);
}

/* More paths than are compared one by one: a directory above one set, and a file of another, come last. */
static void test_a_job_of_many_paths(void **state)
{
    enum { OTHERS = 30 };
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply *r;
    ProtobufCBinaryData paths[OTHERS + 2];
    char names[OTHERS + 2][32], to[64], why[300];
    uint64_t run, job;

    (void)state;
    w_open(&w, ":memory:", 1);
    run = fix_mk(&w.f, MGR_ROOT_INO, "run", S_IFDIR | 0755);
    set(run, 1);
    set(MGR_ROOT_INO, 2);
    set(MGR_ROOT_INO, 3);
    for (unsigned i = 0; i < OTHERS; i++) {
        snprintf(names[i], sizeof names[i], "other-%c%c", 'a' + (int)i / 26, 'a' + (int)i % 26);
        assert_true(fix_write(&w.f, fix_mk(&w.f, MGR_ROOT_INO, names[i], S_IFREG | 0644), 0, KIB) > 0);
    }
    strcpy(names[OTHERS], "run");
    strcpy(names[OTHERS + 1], "chk_2/rank_1");
    for (unsigned i = 0; i < OTHERS + 2; i++)
        paths[i] = (ProtobufCBinaryData){strlen(names[i]), (uint8_t *)names[i]};
    m.op = FP__DRAIN_OP__DRAIN_OP_START;
    m.dest = (char *)"/pfs";
    m.paths = paths;
    m.n_paths = OTHERS + 2;
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor);
    assert_non_null(r);
    assert_int_equal(r->n_ids, 1);
    job = r->ids[0];
    fix_free(r);
    assert_int_equal(shown(1, to, why).drain_job, job);
    assert_string_equal(to, "/pfs");
    assert_int_equal(shown(2, to, why).drain_job, job);
    assert_int_equal(shown(2, to, why).drain_bytes, 100 * KIB); /* one of its three files */
    assert_int_equal(shown(3, to, why).drain_job, 0);
    w_run(&w);
    ended(1);
    assert_int_equal(shown(2, to, why).drain_job, 0);
    w_close(&w);
}

static void test_who_is_waited_for_is_said(void **state)
{
    char to[64], why[300];

    (void)state;
    w_open(&w, ":memory:", 1);
    set(MGR_ROOT_INO, 1);
    w_start(&w, "chk_1", false, NULL);
    while (!w.bnf[0].n) {
        if (w.bnf[0].asked)
            w_answer(&w, 0, 0);
        w_tick(&w, 500);
        for (size_t k = 0; k < w.bnf[0].n; k++)
            if (w.bnf[0].task[k]->kind == FP__TASK_KIND__TASK_PROBE)
                w_work(&w, 0, k);
    }
    w_bnf_dies(&w, 0);
    assert_int_not_equal(shown(1, to, why).drain_job, 0);
    assert_non_null(strstr(why, "which is away"));
    w_bnf_comes(&w, 0);
    w_run(&w);
    ended(1);
    w_close(&w);
}

/* Of a target that takes nothing: why, when it is tried again, and no rate of before; who waits has it tried at once. */
static void test_what_stalls_is_said_and_tried_when_somebody_waits(void **state)
{
    Fp__TargetState says = FP__TARGET_STATE__INIT;
    Fp__CtlDrainReply *r;
    char to[64], why[300];
    uint64_t job, look;

    (void)state;
    w_open(&w, ":memory:", 1);
    set(MGR_ROOT_INO, 1);
    job = w_start(&w, "chk_1", false, NULL);
    while (!w.bnf[0].n || w.bnf[0].task[0]->kind != FP__TASK_KIND__TASK_PREPARE) {
        if (w.bnf[0].asked)
            w_answer(&w, 0, 0);
        else if (w.bnf[0].n)
            w_work(&w, 0, 0);
        w_tick(&w, 500);
    }
    mgr_djob_find(w.f.core, job)->rate = 12345;
    says.target = 1;
    says.why = (char *)(uintptr_t)"a call takes long";
    says.slow = true;
    w.bnf[0].says = &says;
    w_tick(&w, 500);
    assert_int_not_equal(shown(1, to, why).drain_rate, 0); /* perhaps it goes on */
    assert_string_equal(why, "the target is slow on node n1: a call takes long");
    r = w_show(&w, job);
    assert_false(r->jobs[0]->stalled);
    fix_free(r);
    says.slow = false;
    says.code = FP__TARGET_CODE__TARGET_FULL;
    says.why = (char *)(uintptr_t)"no space";
    says.again_ms = 20000;
    w_tick(&w, 500);
    assert_int_equal(w.bnf[0].pace.look, 0);
    mgr_djob_find(w.f.core, job)->rate = 12345;
    assert_int_equal(shown(1, to, why).drain_rate, 0);
    assert_string_equal(why, "the target stalls on node n1: no space");
    assert_int_equal(shown(1, to, why).drain_again_s, 20);
    r = w_show(&w, job); /* who waits asks so */
    assert_true(r->jobs[0]->stalled);
    assert_int_equal(r->jobs[0]->rate, 0);
    assert_int_equal(r->jobs[0]->again_s, 20);
    fix_free(r);
    w_tick(&w, 500);
    look = w.bnf[0].pace.look;
    assert_int_not_equal(look, 0);
    fix_free(w_show(&w, job));
    w_tick(&w, 500);
    assert_int_equal(w.bnf[0].pace.look, look); /* not all the time */
    w_tick(&w, 5000);
    assert_int_equal(w.bnf[0].pace.look, look); /* nor when nobody waits */
    assert_int_equal(w_start(&w, "chk_1", false, NULL), job);
    w_tick(&w, 500);
    assert_int_not_equal(w.bnf[0].pace.look, look);
    w.bnf[0].says = NULL;
    w_run(&w);
    ended(1);
    w_close(&w);
}

/* One second's work is the rate; where nothing goes on it falls, and a job that has ended has none. */
static void test_a_rate_is_what_was_done_of_late(void **state)
{
    struct mgr_djob *j;
    uint64_t job, rate = 0;
    Fp__CtlDrainReply *r;

    (void)state;
    w_open(&w, ":memory:", 1);
    set(MGR_ROOT_INO, 1);
    job = w_start(&w, "chk_1", false, NULL);
    w_tick(&w, 500);
    assert_non_null(j = mgr_djob_find(w.f.core, job));
    assert_int_equal(j->rate, 0);
    j->bytes_done += 5000000;
    for (int i = 0; i < 5 && !rate; i++) {
        w_tick(&w, 500);
        r = w_show(&w, job);
        rate = r->jobs[0]->rate;
        fix_free(r);
    }
    assert_in_range(rate, 2500000, 5000000);
    w_tick(&w, 30000);
    assert_non_null(j = mgr_djob_find(w.f.core, job));
    assert_true(j->rate < rate / 2);
    j->bytes_done -= 5000000;
    w_run(&w);
    r = w_show(&w, job);
    assert_int_equal(r->jobs[0]->state, FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(r->jobs[0]->rate, 0);
    fix_free(r);
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_set_that_a_policy_drains),     cmocka_unit_test(test_a_set_whose_directory_was_given),
        cmocka_unit_test(test_sets_below_a_directory_that_was_given), cmocka_unit_test(test_a_job_of_many_paths), cmocka_unit_test(test_who_is_waited_for_is_said),
        cmocka_unit_test(test_what_stalls_is_said_and_tried_when_somebody_waits),
        cmocka_unit_test(test_a_rate_is_what_was_done_of_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
