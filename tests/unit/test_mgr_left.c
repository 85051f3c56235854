/* What of draining is left when a job asks at its end: how much goes on, and what failed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "fp/err.h"
#include "mgr_drain_world.h"

#define QUIET_MS 2500u

static struct world w;

static uint64_t file(uint64_t parent, const char *name, uint32_t len)
{
    uint64_t ino = fix_mk(&w.f, parent, name, S_IFREG | 0644);

    assert_true(ino > 0 && fix_write(&w.f, ino, 0, len) > 0);
    return ino;
}

static int64_t jobs(const char *where)
{
    return fix_sql(&w.f, "SELECT count(*) FROM drain_job WHERE %s", where);
}

/* Of two files in a directory, which time completes. */
static void make_set(unsigned step, uint64_t ino[2])
{
    char name[32];
    uint64_t d;

    snprintf(name, sizeof name, "chk_%u", step);
    d = fix_mk(&w.f, MGR_ROOT_INO, name, S_IFDIR | 0755);
    ino[0] = file(d, "rank_0", 1000);
    ino[1] = file(d, "rank_1", 2000);
    w_tick(&w, QUIET_MS);
}

static size_t begin_failed(void)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    ProtobufCBinaryData p = fix_bin("");
    Fp__CtlDrainReply *r;
    size_t n;

    m.op = FP__DRAIN_OP__DRAIN_OP_START;
    m.paths = &p;
    m.n_paths = 1;
    m.failed = true;
    m.dest = "";
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor);
    assert_non_null(r);
    assert_int_equal(r->n_why, 0);
    n = r->n_ids;
    fix_free(r);
    return n;
}

/* As their policy says, however many jobs there were since; not those that are there by now, or written anew. */
static void test_what_could_not_be_drained_begins_anew(void **state)
{
    uint64_t ino[3][2], other;

    (void)state;
    w_open(&w, ":memory:", 1);
    w_policy(&w, "to=/pfs layout=file verify=yes");
    assert_int_equal(begin_failed(), 0);
    w.refuse = -EACCES;
    for (unsigned i = 0; i < 3; i++) {
        char name[32];

        snprintf(name, sizeof name, "chk_%u/rank_1", i + 1);
        w.refuse_path = name;
        make_set(i + 1, ino[i]);
        w_run(&w);
    }
    w.refuse = 0;
    assert_int_equal(jobs("state=5 AND policy=1"), 3);
    assert_true(fix_write(&w.f, ino[1][0], 0, 1000) > 0); /* another checkpoint now, with a job of its own */
    w_tick(&w, QUIET_MS);
    w_run(&w);
    other = file(MGR_ROOT_INO, "other", 10);
    for (unsigned i = 0; i < MGR_JOBS_KEPT; i++) {
        assert_true(w_start(&w, "other", false, NULL) > 0);
        w_run(&w);
    }
    assert_int_equal(begin_failed(), 2);
    assert_int_equal(begin_failed(), 0);
    w_run(&w);
    w_equal(&w, "other", other);
    w_equal(&w, "chk_1/rank_1", ino[0][1]);
    w_equal(&w, "chk_3/rank_1", ino[2][1]);
    assert_int_equal(begin_failed(), 0);
    assert_int_equal(jobs("state=4 AND policy=1 AND verify=1"), 2); /* the one of the other has no row any more */
    w_close(&w);
}

/* Who asks whether all is over sees the newest ones, and is told of all. */
static void test_jobs_under_way_are_counted_also_where_they_are_not_listed(void **state)
{
    Fp__CtlDrainReply *r;
    char name[32];

    (void)state;
    w_open(&w, ":memory:", 1);
    for (unsigned i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "f%u", i);
        file(MGR_ROOT_INO, name, 10);
        assert_true(w_start(&w, name, false, NULL) > 0);
    }
    r = w_show(&w, 0);
    assert_int_equal(r->under_way, 100);
    assert_true(r->n_jobs < 100 && r->jobs[r->n_jobs - 1]->id == 1);
    assert_true(r->jobs[0]->id > r->jobs[1]->id);
    fix_free(r);
    w_run(&w);
    r = w_show(&w, 0);
    assert_int_equal(r->under_way, 0);
    fix_free(r);
    w_close(&w);
}

static void cancel(uint64_t job)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;

    m.op = FP__DRAIN_OP__DRAIN_OP_CANCEL;
    m.id = job;
    fix_free(fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor));
}

/* Who waits for them asks for one after the other, the last when the first has long been over. */
static void test_the_newest_sets_of_more_series_than_one_page(void **state)
{
    enum { SERIES = 1030 };
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    ProtobufCBinaryData p = fix_bin("");
    Fp__CtlDrainReply *r, *one;
    char name[32];

    (void)state;
    w_open(&w, ":memory:", 1);
    for (unsigned i = 0; i < SERIES; i++) {
        snprintf(name, sizeof name, "run_of_%c%c%c", 'a' + i / 676, 'a' + i / 26 % 26, 'a' + i % 26);
        assert_true(fix_mk(&w.f, fix_mk(&w.f, MGR_ROOT_INO, name, S_IFDIR | 0755), "restart.1", S_IFREG | 0644) > 0);
    }
    w_tick(&w, QUIET_MS);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM ckpt_set WHERE state=2"), SERIES);
    m.op = FP__DRAIN_OP__DRAIN_OP_START;
    m.paths = &p;
    m.n_paths = 1;
    m.last = true;
    m.dest = "/pfs";
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor);
    assert_non_null(r);
    assert_int_equal(r->n_ids, SERIES);
    for (size_t i = 0; i < r->n_ids; i++)
        cancel(r->ids[i]);
    w_tick(&w, 1000);
    for (size_t i = 0; i < r->n_ids; i++) {
        one = w_show(&w, r->ids[i]);
        assert_int_equal(one->n_jobs, 1);
        fix_free(one);
    }
    fix_free(r);
    w_close(&w);
}

int main(void)
{
#define T(name) cmocka_unit_test(name)
    const struct CMUnitTest tests[] = {
        T(test_what_could_not_be_drained_begins_anew),
        T(test_the_newest_sets_of_more_series_than_one_page),
        T(test_jobs_under_way_are_counted_also_where_they_are_not_listed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
