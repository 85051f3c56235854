/* Directories that can be no target: who tries them, who is told, and what becomes of a job that has one. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "fp/targetid.h"
#include "mgr_drain_world.h"

static struct world w;
static Fp__TargetState state_of[W_BNFS];
static size_t marked; /* bytes of the identity that whoever was told last is to mark it with */

static Fp__DrainTried try_it(const char *root, char why[300])
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply *r;
    Fp__DrainTried tried;

    m.op = FP__DRAIN_OP__DRAIN_OP_TRY;
    m.dest = (char *)(uintptr_t)root;
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor);
    assert_non_null(r);
    tried = r->tried;
    snprintf(why, 300, "%s", r->n_why ? r->why[0] : "");
    assert_int_equal(r->n_why != 0, tried == FP__DRAIN_TRIED__DRAIN_TRIED_REFUSED);
    assert_int_equal(r->n_ids + r->n_jobs, 0);
    fix_free(r);
    return tried;
}

/* Which benefactor has been told to try it, its task taken away; -1: none. */
static int told(void)
{
    int who = -1;

    marked = 0;

    for (size_t i = 0; i < w.nbnf; i++) {
        if (w.bnf[i].asked)
            w_answer(&w, i, 0);
        for (size_t k = w.bnf[i].n; k-- > 0;) {
            if (w.bnf[i].task[k]->kind != FP__TASK_KIND__TASK_PROBE)
                continue;
            assert_int_equal(who, -1); /* one at a time */
            who = (int)i;
            marked = w.bnf[i].task[k]->mark.len;
            fix_free(w.bnf[i].task[k]);
            w.bnf[i].task[k] = w.bnf[i].task[--w.bnf[i].n];
        }
    }
    return who;
}

static int told_soon(void)
{
    int who = told();

    for (int i = 0; i < 100 && who < 0; i++) {
        w_tick(&w, 100);
        who = told();
    }
    return who;
}

/* It says so, now and with each keep-alive. */
static void says_of(int who, Fp__TargetCode code, const char *why, Fp__ExtFile *seen)
{
    Fp__TaskResult r = FP__TASK_RESULT__INIT;
    Fp__TargetState *s = &state_of[who];

    assert_in_range(who, 0, W_BNFS - 1);
    fp__target_state__init(s);
    s->target = 1;
    s->code = code;
    s->why = (char *)(uintptr_t)why;
    w.bnf[who].says = s;
    r.id = mgr_task_id(0, 1, false);
    r.seen = seen;
    if (code != FP__TARGET_CODE__TARGET_OK) {
        r.status = code == FP__TARGET_CODE__TARGET_REFUSED ? -ENOTDIR : -ENOENT;
        r.why = s->why;
        r.code = code;
        r.stalled = true;
    }
    assert_int_equal(w_tell(&w, (size_t)who, &r), 0);
}

static void says(int who, Fp__TargetCode code, const char *why)
{
    says_of(who, code, why, NULL);
}

/* No marker can be made, and this is what it is. */
static void says_unmarked(int who)
{
    Fp__ExtFile seen = FP__EXT_FILE__INIT;

    seen.uuid.data = (uint8_t *)(uintptr_t) FP_TARGET_UNMARKED "12345678";
    seen.uuid.len = FP_TARGETID_BYTES;
    says_of(who, FP__TARGET_CODE__TARGET_OK, "", &seen);
}

static void says_no(int who)
{
    says(who, FP__TARGET_CODE__TARGET_REFUSED, "/pfs is no directory");
}

static size_t targets_shown(void)
{
    Fp__CtlDrainReply *r = w_show(&w, 0);
    size_t n = r->n_targets;

    fix_free(r);
    return n;
}

static void test_what_all_refuse_is_refused(void **state)
{
    char why[300];
    int first, second;

    (void)state;
    w_open(&w, ":memory:", 2);
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_SOON);
    first = told();
    says_no(first);
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_SOON); /* the other one may have it */
    second = told();
    assert_int_equal(first + second, 1);
    says_no(second);
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_REFUSED);
    assert_non_null(strstr(why, "/pfs is no directory (on node n"));
    /* nothing is left of it but a row: not tried any more, not shown, not in the way of others */
    assert_int_equal(targets_shown(), 0);
    w_tick(&w, 60000);
    assert_int_equal(told(), -1);
    assert_int_equal(try_it("/pfs/below", why), FP__DRAIN_TRIED__DRAIN_TRIED_SOON);
    w_close(&w);
}

static void test_who_asks_again_wants_to_know_anew(void **state)
{
    char why[300];

    (void)state;
    w_open(&w, ":memory:", 1);
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_SOON);
    says_no(told());
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_REFUSED);
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_SOON);
    says(told(), FP__TARGET_CODE__TARGET_OK, "");
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_WELL);
    assert_int_equal(targets_shown(), 1);
    w_close(&w);
}

static void test_what_one_has_is_not_refused(void **state)
{
    char why[300];

    (void)state;
    w_open(&w, ":memory:", 3);
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_SOON);
    says_no(told());
    says_no(told());
    says(told(), FP__TARGET_CODE__TARGET_OK, "");
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_WELL);
    w_close(&w);
}

/* What is not there may be mounted in a while: a job waits for that. */
static void test_what_is_not_mounted_is_not_refused(void **state)
{
    char why[300];

    (void)state;
    w_open(&w, ":memory:", 2);
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_SOON);
    says_no(told());
    says(told(), FP__TARGET_CODE__TARGET_UNREACHABLE, "/pfs: No such file or directory");
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_UNKNOWN);
    w_close(&w);
}

/* One without a marker is only read: nobody tries it until somebody wants to write there, and then it may get its marker. */
static void test_what_takes_no_marker_is_tried_again_when_somebody_writes(void **state)
{
    Fp__CtlDrainReply *r;
    char why[300];
    uint64_t ino, job;
    int who;

    (void)state;
    w_open(&w, ":memory:", 1);
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_SOON);
    who = told();
    assert_int_equal(marked, 0);
    says_unmarked(who);
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_UNKNOWN);
    assert_int_equal(targets_shown(), 1);
    w_tick(&w, 60000);
    assert_int_equal(told(), -1);
    ino = fix_mk(&w.f, MGR_ROOT_INO, "a", S_IFREG | 0644);
    assert_true(fix_write(&w.f, ino, 0, 1000) > 0);
    job = w_start(&w, "a", false, NULL);
    who = told_soon();
    assert_int_equal(marked, FP_TARGETID_BYTES);
    says_unmarked(who);
    r = w_show(&w, job);
    assert_non_null(strstr(r->jobs[0]->why, "nothing can be written to the target"));
    fix_free(r);
    assert_int_equal(w.bnf[0].n, 0); /* nothing of the file was told */
    assert_int_equal(told(), -1);
    who = told_soon();
    assert_int_equal(marked, FP_TARGETID_BYTES);
    says(who, FP__TARGET_CODE__TARGET_OK, "");
    w.marker = true;
    w_run(&w);
    r = w_show(&w, job);
    assert_int_equal(r->jobs[0]->state, FP__DRAIN_STATE__DRAIN_DONE);
    fix_free(r);
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_WELL);
    w_close(&w);
}

static void test_a_path_that_no_policy_can_name_is_refused_for_that(void **state)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply *r;

    (void)state;
    w_open(&w, ":memory:", 1);
    m.op = FP__DRAIN_OP__DRAIN_OP_TRY;
    m.dest = (char *)(uintptr_t)"/p\"fs";
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor);
    assert_non_null(r);
    assert_int_equal(r->n_why, 1);
    assert_non_null(strstr(r->why[0], "double quote"));
    fix_free(r);
    w_close(&w);
}

static void test_nobody_is_there_to_try(void **state)
{
    char why[300];

    (void)state;
    w_open(&w, ":memory:", 1);
    w_bnf_dies(&w, 0);
    assert_int_equal(try_it("/pfs", why), FP__DRAIN_TRIED__DRAIN_TRIED_UNKNOWN);
    w_close(&w);
}

static void is_stuck(uint64_t job, bool want)
{
    Fp__CtlDrainReply *r = w_show(&w, job);

    assert_int_equal(r->jobs[0]->stuck, want);
    assert_int_equal(r->jobs[0]->state, FP__DRAIN_STATE__DRAIN_RUNS);
    if (want)
        assert_non_null(strstr(r->jobs[0]->why, "/pfs is no directory"));
    fix_free(r);
}

/* Whoever waits is told; the job goes on when the directory is mended, and who has it then is found, in turn. */
static void test_a_job_is_stuck_as_long_as_all_refuse(void **state)
{
    Fp__CtlDrainReply *r;
    uint64_t ino, job;
    unsigned seen = 0;

    (void)state;
    w_open(&w, ":memory:", 2);
    ino = fix_mk(&w.f, MGR_ROOT_INO, "a", S_IFREG | 0644);
    assert_true(fix_write(&w.f, ino, 0, 1000) > 0);
    w_tick(&w, 3000);
    job = w_start(&w, "a", false, NULL);
    is_stuck(job, false);
    says_no(told());
    is_stuck(job, false);
    says_no(told());
    is_stuck(job, false); /* it is too young */
    w_tick(&w, 5000);
    is_stuck(job, true);
    for (unsigned i = 0; i < 60 && seen != 3; i++) {
        int who = told();

        w_tick(&w, 500);
        if (who < 0)
            continue;
        seen |= 1u << who;
        says_no(who);
    }
    assert_int_equal(seen, 3); /* both are asked again */
    w.bnf[0].says = w.bnf[1].says = NULL;
    w_run(&w);
    w_tick(&w, 10000);
    w_run(&w);
    r = w_show(&w, job);
    assert_int_equal(r->jobs[0]->state, FP__DRAIN_STATE__DRAIN_DONE);
    assert_false(r->jobs[0]->stuck);
    fix_free(r);
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_all_refuse_is_refused),
        cmocka_unit_test(test_who_asks_again_wants_to_know_anew),
        cmocka_unit_test(test_what_one_has_is_not_refused),
        cmocka_unit_test(test_what_is_not_mounted_is_not_refused),
        cmocka_unit_test(test_what_takes_no_marker_is_tried_again_when_somebody_writes),
        cmocka_unit_test(test_a_path_that_no_policy_can_name_is_refused_for_that),
        cmocka_unit_test(test_nobody_is_there_to_try),
        cmocka_unit_test(test_a_job_is_stuck_as_long_as_all_refuse),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
