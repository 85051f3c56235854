/* Merging logs in the manager: what is shared out, in which order, what is left of an attempt that is over, and what comes late. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "mgr_evict_world.h"
#include "fp/err.h"

#define RECORDS 40u
#define BYTES   (RECORDS * 8u * MIB + 5)
#define SUM     0xfedcba9876543210u

static struct {
    uint64_t tmp;                  /* inode of the temporary file that counts */
    unsigned written[RECORDS], compared[RECORDS];
    unsigned by[W_BNFS], prepared, finished;
    int fail;                      /* the next part, or PREPARE or FINISH if `whole`, fails with it */
    bool whole;
} t;

static uint64_t start(const char *log, const char *to, bool verify, bool force, char why[300], bool *elsewhere)
{
    Fp__CtlStage m = FP__CTL_STAGE__INIT;
    Fp__CtlStageReply *r;
    uint64_t job;

    m.op = FP__STAGE_OP__STAGE_OP_MERGE;
    m.verify = verify;
    m.overwrite = force;
    if (to)
        m.dest = fix_bin(to);
    r = e_stage_ask(&m, log);
    job = r->job;
    if (why)
        snprintf(why, 300, "%s", r->n_why ? r->why[0] : "");
    if (elsewhere)
        *elsewhere = r->elsewhere;
    fix_free(r);
    return job;
}

/* A store with a target, and nothing in it. */
static void open_world(const char *path, size_t nbnf)
{
    memset(&t, 0, sizeof t);
    w_open(&w, path, nbnf);
    e_file_of(MGR_ROOT_INO, "a");
    w_start(&w, "a", false, NULL);
    w_run(&w);
    t.tmp = 1000;
}

static void write_or_compare(size_t i, const Fp__Task *k)
{
    assert_true(k->count > 0 && k->first + k->count <= RECORDS);
    assert_true(k->log_sum == SUM && k->tmp_ino == t.tmp);
    for (uint64_t n = k->first; n < k->first + k->count; n++) {
        if (k->step == FP__MERGE_STEP__MERGE_WRITE)
            t.written[n]++;
        else
            t.compared[n]++;
    }
    for (unsigned n = 0; n < RECORDS && k->step == FP__MERGE_STEP__MERGE_COMPARE; n++)
        assert_true(t.written[n] > 0); /* all, before any is read back */
    t.by[i]++;
}

static void do_merge(size_t i, const Fp__Task *k, Fp__TaskResult *r)
{
    bool whole = k->step == FP__MERGE_STEP__MERGE_PREPARE || k->step == FP__MERGE_STEP__MERGE_FINISH;

    fp__task_result__init(r);
    r->id = k->id;
    r->gen = k->gen;
    assert_true(k->log.len == 7 && memcmp(k->log.data, "f.fplog", 7) == 0);
    assert_true(k->dest->path.len == 1 && k->dest->path.data[0] == 'f');
    if (t.fail && whole == t.whole) {
        r->status = t.fail;
        r->why = strdup("as told");
        t.fail = 0;
        return;
    }
    if (!whole) {
        write_or_compare(i, k);
        return;
    }
    r->seen = malloc(sizeof *r->seen);
    fp__ext_file__init(r->seen);
    r->seen->target = 1;
    if (k->step == FP__MERGE_STEP__MERGE_FINISH) {
        assert_true(k->tmp_ino == t.tmp && k->log_sum == SUM);
        t.finished++;
    } else {
        assert_int_equal(k->log_sum, 0);
        memset(t.written, 0, sizeof t.written);
        t.prepared++;
        r->n_sums = 3;
        r->sums = malloc(3 * sizeof *r->sums);
        r->sums[0] = SUM;
        r->sums[1] = RECORDS;
        r->sums[2] = BYTES;
        t.tmp++;
    }
    r->seen->ino = t.tmp;
}

static bool is_part(const Fp__Task *k)
{
    return k->kind == FP__TASK_KIND__TASK_MERGE && (k->step == FP__MERGE_STEP__MERGE_WRITE || k->step == FP__MERGE_STEP__MERGE_COMPARE);
}

static void one(size_t i, size_t k)
{
    Fp__Task *x = w.bnf[i].task[k];
    Fp__TaskResult r;

    if (x->kind != FP__TASK_KIND__TASK_MERGE) {
        w_work(&w, i, k);
        return;
    }
    w.bnf[i].task[k] = w.bnf[i].task[--w.bnf[i].n];
    do_merge(i, x, &r);
    assert_int_equal(w_tell(&w, i, &r), 0);
    if (r.status)
        free(r.why);
    w_result_fini(&r);
    fix_free(x);
}

/* parts: only until so many have been done, from now; else all. */
static void run(unsigned parts)
{
    for (int idle = 0; idle < 40 && parts;) {
        bool any = false;

        for (size_t i = 0; i < w.nbnf; i++) {
            if (w.bnf[i].asked)
                w_answer(&w, i, 0);
            for (; w.bnf[i].n && parts; any = true) {
                parts -= is_part(w.bnf[i].task[0]) && parts != UINT32_MAX;
                one(i, 0);
            }
        }
        idle = any ? 0 : idle + 1;
        if (!any)
            w_tick(&w, 500);
    }
}

static void is_done(uint64_t job, bool verify)
{
    Fp__CtlDrainReply *r = w_show(&w, job);

    assert_int_equal(r->n_jobs, 1);
    assert_int_equal(r->jobs[0]->state, FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(r->jobs[0]->kind, FP__JOB_KIND__JOB_MERGE);
    assert_int_equal(r->jobs[0]->bytes, BYTES);
    assert_int_equal(r->jobs[0]->bytes_done, BYTES);
    fix_free(r);
    for (unsigned n = 0; n < RECORDS; n++)
        assert_true(t.written[n] > 0 && (t.compared[n] > 0) == verify);
    assert_int_equal(t.finished, 1);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_part"), 0);
}

static void test_records_are_shared_out(void **state)
{
    uint64_t job;

    (void)state;
    open_world(":memory:", 3);
    job = start("/pfs/f.fplog", NULL, false, false, NULL, NULL);
    assert_int_equal(start("//pfs/f.fplog/", NULL, false, false, NULL, NULL), job); /* asked twice */
    run(UINT32_MAX);
    is_done(job, false);
    assert_int_equal(t.prepared, 1);
    for (unsigned n = 0; n < RECORDS; n++)
        assert_int_equal(t.written[n], 1);
    for (size_t i = 0; i < 3; i++)
        assert_true(t.by[i] > 0);
    w_close(&w);
}

static void test_all_is_written_before_it_is_compared(void **state)
{
    uint64_t job;

    (void)state;
    open_world(":memory:", 2);
    job = start("/pfs/f.fplog", "/pfs/f", true, true, NULL, NULL);
    run(UINT32_MAX);
    is_done(job, true);
    w_close(&w);
}

static void test_one_that_is_away_loses_its_parts_to_others(void **state)
{
    uint64_t job;
    unsigned before;

    (void)state;
    open_world(":memory:", 2);
    job = start("/pfs/f.fplog", NULL, true, false, NULL, NULL);
    run(5);
    w_bnf_dies(&w, 1);
    before = t.by[1];
    run(UINT32_MAX);
    is_done(job, true);
    assert_int_equal(t.by[1], before);
    assert_int_equal(t.prepared, 1);
    w_close(&w);
}

/* Its lead, too, in each state. */
static void test_the_lead_dies(void **state)
{
    (void)state;
    for (unsigned parts = 1; parts < 4 * RECORDS; parts += RECORDS) {
        uint64_t job, lead;

        open_world(":memory:", 2);
        job = start("/pfs/f.fplog", NULL, true, false, NULL, NULL);
        run(parts);
        lead = (uint64_t)e_sql("SELECT lead FROM drain_file WHERE job=%llu", (unsigned long long)job);
        w_bnf_dies(&w, w.bnf[0].id == lead ? 0 : 1);
        run(UINT32_MAX);
        is_done(job, true);
        w_close(&w);
    }
}

static void test_a_restart_of_the_manager_goes_on(void **state)
{
    uint64_t job;

    (void)state;
    open_world(fix_path(), 2);
    job = start("/pfs/f.fplog", NULL, true, false, NULL, NULL);
    for (unsigned parts = 0; parts < 3; parts++) {
        run(7);
        w_restart(&w);
    }
    run(UINT32_MAX);
    is_done(job, true);
    assert_int_equal(t.prepared, 1);
    w_close(&w);
}

static void test_another_log_ends_the_attempt(void **state)
{
    static const int fails[] = {-ESTALE, -ENOENT};
    uint64_t job;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        open_world(":memory:", 2);
        job = start("/pfs/f.fplog", NULL, false, false, NULL, NULL);
        run(i < 2 ? 5 : 1);
        t.fail = fails[i % 2];
        t.whole = i >= 2; /* FINISH */
        run(UINT32_MAX);
        is_done(job, false);
        assert_int_equal(t.prepared, 2);
        assert_int_equal(w.cleaned, 1); /* its temporary file went */
        w_close(&w);
    }
}

static void test_what_comes_late_counts_for_nothing(void **state)
{
    Fp__TaskResult r;
    Fp__Task *old = NULL;
    uint64_t job;

    (void)state;
    open_world(":memory:", 2);
    job = start("/pfs/f.fplog", NULL, false, false, NULL, NULL);
    run(3);
    for (int n = 0; n < 20 && !old; n++) {
        w_tick(&w, 500);
        for (size_t i = 0; i < 2 && !old; i++) {
            if (w.bnf[i].asked)
                w_answer(&w, i, 0);
            if (w.bnf[i].n && is_part(w.bnf[i].task[0])) {
                old = w.bnf[i].task[0];
                w.bnf[i].task[0] = w.bnf[i].task[--w.bnf[i].n];
            }
        }
    }
    assert_non_null(old);
    t.fail = -ESTALE;
    run(3);
    fp__task_result__init(&r);
    r.id = old->id;
    r.gen = old->gen;
    assert_int_equal(w_tell(&w, 0, &r), 0);
    assert_int_equal(w_tell(&w, 1, &r), 0);
    fix_free(old);
    run(UINT32_MAX);
    is_done(job, false); /* each record was written in the attempt that was finished */
    w_close(&w);
}

static void test_what_fails_says_why(void **state)
{
    static const int fails[] = {FP_ECORRUPT, FP_ECHECKSUM, -EEXIST, -ENOENT};
    uint64_t job;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        Fp__CtlDrainReply *r;

        open_world(":memory:", 1);
        job = start("/pfs/f.fplog", NULL, false, false, NULL, NULL);
        t.fail = fails[i];
        t.whole = i >= 2; /* PREPARE */
        run(UINT32_MAX);
        r = w_show(&w, job);
        assert_int_equal(r->jobs[0]->state, FP__DRAIN_STATE__DRAIN_FAILED);
        assert_int_equal(r->jobs[0]->error, fails[i]);
        assert_non_null(strstr(r->jobs[0]->why, "as told"));
        fix_free(r);
        assert_int_equal(t.finished, 0);
        w_close(&w);
    }
}

static void test_mistakes(void **state)
{
    char why[300];
    bool elsewhere;

    (void)state;
    open_world(":memory:", 1);
    assert_int_equal(start("/other/f.fplog", NULL, false, false, why, &elsewhere), 0);
    assert_true(elsewhere);
    assert_int_equal(start("/pfs/f.fplog", "/other/f", false, false, why, &elsewhere), 0);
    assert_true(elsewhere);
    assert_int_equal(start("/pfs/f", NULL, false, false, why, &elsewhere), 0);
    assert_false(elsewhere);
    assert_non_null(strstr(why, "--to"));
    assert_int_equal(start("/pfs/d/.fplog", NULL, false, false, why, &elsewhere), 0);
    assert_int_equal(start("/pfs/../f.fplog", NULL, false, false, why, &elsewhere), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job WHERE kind=%u", FP__JOB_KIND__JOB_MERGE), 0);
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_are_shared_out),
        cmocka_unit_test(test_all_is_written_before_it_is_compared),
        cmocka_unit_test(test_one_that_is_away_loses_its_parts_to_others),
        cmocka_unit_test(test_the_lead_dies),
        cmocka_unit_test(test_a_restart_of_the_manager_goes_on),
        cmocka_unit_test(test_another_log_ends_the_attempt),
        cmocka_unit_test(test_what_comes_late_counts_for_nothing),
        cmocka_unit_test(test_what_fails_says_why),
        cmocka_unit_test(test_mistakes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
