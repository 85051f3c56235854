/* Draining by itself: what policies choose becomes one job, once, whenever the manager dies. */
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

#include "fp/err.h"
#include "mgr_drain_world.h"

#define MIB      (1u << 20)
#define QUIET_MS 2500u

static struct world w;

/* As a mount's aux-app gives it, in a slot. */
static uint64_t policy_of_mount(const char *text)
{
    Fp__Policy m = FP__POLICY__INIT;
    Fp__PolicyReply *r;
    uint64_t id;

    m.slot = 1;
    m.slot_seq = ++w.f.seq;
    m.text = (char *)(uintptr_t)text;
    r = fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_POLICY, &m, &fp__policy_reply__descriptor);
    assert_non_null(r);
    assert_string_equal(r->why, "");
    id = r->id;
    fix_free(r);
    return id;
}

static void set_policy(const char *text)
{
    w_policy(&w, text);
}

static void wait_ms(uint64_t ms)
{
    w_tick(&w, ms);
}

static uint64_t file(uint64_t parent, const char *name, uint32_t len)
{
    uint64_t ino = fix_mk(&w.f, parent, name, S_IFREG | 0644);

    assert_true(ino > 0);
    if (len)
        assert_true(fix_write(&w.f, ino, 0, len) > 0);
    return ino;
}

/* A set of two files in a directory, which time completes. */
static void set(unsigned step, uint64_t ino[2])
{
    char name[32];
    uint64_t d;

    snprintf(name, sizeof name, "chk_%u", step);
    d = fix_mk(&w.f, MGR_ROOT_INO, name, S_IFDIR | 0755);
    ino[0] = file(d, "rank_0", 1000);
    ino[1] = file(d, "rank_1", 2000);
    wait_ms(QUIET_MS);
}

static int64_t jobs(const char *where)
{
    return fix_sql(&w.f, "SELECT count(*) FROM drain_job WHERE %s", where);
}

static void test_each_second_set_is_drained_once(void **state)
{
    uint64_t ino[2];

    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs every=2");
    set(1, ino);
    assert_int_equal(jobs("1"), 0);
    set(2, ino);
    assert_int_equal(jobs("kind=1 AND policy=1 AND ckpt=2 AND gen=1"), 1);
    w_run(&w);
    w_equal(&w, "chk_2/rank_0", ino[0]);
    w_equal(&w, "chk_2/rank_1", ino[1]);
    assert_null(w_find(&w, "chk_1/rank_0"));
    set(3, ino);
    set(4, ino);
    w_run(&w);
    wait_ms(10000);
    w_run(&w);
    assert_int_equal(jobs("state=4"), 2);
    assert_int_equal(jobs("1"), 2);
    assert_int_equal(w.written, 4);
    assert_int_equal(fix_sql(&w.f, "SELECT seen*10+taken FROM policy"), 42);
    w_close(&w);
}

static void test_what_promises_too_much_is_refused(void **state)
{
    static const char *const texts[] = {"to=/pfs layout=log keep=1", "never frees space", "to=/pfs layout=log level=drained", "never reached", "to=/pfs pattern=a", "{step}"};
    char why[FP_DRAIN_WHY_MAX];

    (void)state;
    w_open(&w, ":memory:", 1);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i += 2) {
        w_policy_change(&w, texts[i], 0, why);
        assert_non_null(strstr(why, texts[i + 1]));
    }
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM policy"), 0);
    w_close(&w);
}

static void test_mounts_that_say_the_same_make_one_policy(void **state)
{
    Fp__Policy m = FP__POLICY__INIT;

    (void)state;
    w_open(&w, ":memory:", 1);
    for (unsigned i = 0; i < 10000; i++)
        assert_int_equal(policy_of_mount(i % 2 ? "to=/pfs every=4" : "every=4  to=\"/pfs/\""), 1);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM policy"), 1);
    set_policy("to=/pfs every=3");
    assert_int_equal(policy_of_mount("to=/other"), 3);
    assert_int_equal(policy_of_mount("to=/pfs every=8"), 4); /* the next job: what the one before wanted is over, what was set by hand is not */
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM policy"), 3);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM policy WHERE text LIKE '%%every=4%%'"), 0);
    set_policy("to=/pfs every=8"); /* now it was set by hand, too */
    assert_int_equal(policy_of_mount("to=/pfs every=9"), 5);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM policy"), 4);
    m.slot = 1;
    m.slot_seq = ++w.f.seq;
    m.remove = 5;
    assert_null(fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_POLICY, &m, &fp__policy_reply__descriptor));
    assert_int_equal(w.f.status, -EPERM);
    w_close(&w);
}

static void test_two_policies_each_have_a_job(void **state)
{
    uint64_t ino[2];

    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs every=1");
    set_policy("to=/pfs every=2 verify=on");
    set(1, ino);
    assert_int_equal(jobs("policy=1 AND verify=0"), 1);
    set(2, ino);
    assert_int_equal(jobs("policy=1"), 2);
    assert_int_equal(jobs("policy=2 AND verify=1"), 1);
    w_run(&w);
    assert_int_equal(jobs("state=4"), 3);
    w_close(&w);
}

static void test_late_files_are_added_and_the_rest_is_not_copied_again(void **state)
{
    uint64_t ino[2], late, d;

    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs every=2");
    set(1, ino);
    set(2, ino);
    w_run(&w);
    assert_int_equal(w.written, 2);
    d = fix_lookup(&w.f, MGR_ROOT_INO, "chk_2");
    late = file(d, "rank_2", 500);
    assert_int_equal(jobs("1"), 1);
    wait_ms(QUIET_MS);
    assert_int_equal(fix_sql(&w.f, "SELECT seq*10+gen FROM ckpt_set WHERE step=2"), 22);
    assert_int_equal(jobs("ckpt=2 AND gen=2"), 1);
    w_run(&w);
    assert_int_equal(w.written, 3);
    w_equal(&w, "chk_2/rank_2", late);
    assert_int_equal(jobs("state=4"), 2);
    assert_int_equal(fix_sql(&w.f, "SELECT seen*10+taken FROM policy"), 21);
    set(3, ino); /* the count goes on as if it had not been */
    assert_int_equal(jobs("1"), 2);
    set(4, ino);
    assert_int_equal(jobs("1"), 3);
    w_run(&w);
    w_close(&w);
}

static void test_a_job_under_way_gives_way_to_the_one_of_the_set_with_late_files(void **state)
{
    uint64_t ino[2], late;

    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs");
    set(1, ino);
    late = file(fix_lookup(&w.f, MGR_ROOT_INO, "chk_1"), "rank_2", 500);
    assert_int_equal(jobs("state=2"), 1); /* it goes on */
    wait_ms(QUIET_MS);
    assert_int_equal(jobs("state=6 AND gen=1 AND why LIKE '%opened again%'"), 1);
    assert_int_equal(jobs("state=2 AND gen=2"), 1);
    w_run(&w);
    w_equal(&w, "chk_1/rank_0", ino[0]);
    w_equal(&w, "chk_1/rank_2", late);
    assert_int_equal(w.renamed, 3);
    assert_int_equal(w_temps(&w), 0);
    w_close(&w);
}

/* Two names in turn, written anew each time: each time is a checkpoint. */
static void test_a_set_written_anew_is_the_next_checkpoint(void **state)
{
    uint64_t a[2], b[2];

    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs every=4");
    set(1, a);
    set(2, b);
    assert_true(fix_write(&w.f, a[0], 0, 1000) > 0);
    assert_int_equal(fix_sql(&w.f, "SELECT seq FROM ckpt_set WHERE step=1"), 0);
    wait_ms(QUIET_MS);
    assert_int_equal(fix_sql(&w.f, "SELECT seq FROM ckpt_set WHERE step=1"), 3);
    assert_int_equal(jobs("1"), 0);
    assert_int_equal(fix_truncate(&w.f, b[1], 0), 0);
    assert_true(fix_write(&w.f, b[1], 0, 3000) > 0);
    wait_ms(QUIET_MS);
    assert_int_equal(jobs("ckpt=2 AND state=2"), 1);
    assert_true(fix_write(&w.f, b[0], 0, 1000) > 0); /* and once more, before it was drained */
    assert_int_equal(jobs("ckpt=2 AND state=6 AND why LIKE '%written anew%'"), 1);
    wait_ms(QUIET_MS);
    w_run(&w);
    assert_int_equal(jobs("1"), 1);
    assert_null(w_find(&w, "chk_2/rank_0"));
    w_close(&w);
}

static void test_files_side_by_side_without_a_directory(void **state)
{
    uint64_t ino[3], d;

    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs");
    d = fix_mk(&w.f, MGR_ROOT_INO, "run", S_IFDIR | 0755);
    file(d, "input", 100);
    ino[0] = file(d, "restart.5000.0", 1000);
    ino[1] = file(d, "restart.5000.1", 0);
    ino[2] = file(d, "restart.5000.2", 70);
    wait_ms(QUIET_MS);
    assert_int_equal(jobs("state=2"), 1);
    w_run(&w);
    assert_int_equal(jobs("state=4 AND files=3 AND files_done=3 AND bytes=1070"), 1);
    w_equal(&w, "run/restart.5000.0", ino[0]);
    w_equal(&w, "run/restart.5000.1", ino[1]);
    w_equal(&w, "run/restart.5000.2", ino[2]);
    assert_null(w_find(&w, "run/input"));
    Fp__CtlDrainReply *r = w_show(&w, 1);
    assert_int_equal(r->jobs[0]->kind, FP__JOB_KIND__JOB_SET);
    assert_int_equal(r->jobs[0]->what.len, strlen("run/restart.5000"));
    assert_memory_equal(r->jobs[0]->what.data, "run/restart.5000", r->jobs[0]->what.len);
    fix_free(r);
    w_close(&w);
}

/* Many files that lie side by side: more than one group lists. */
static void test_more_files_than_one_group_lists(void **state)
{
    char name[40];

    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs");
    for (unsigned i = 0; i < 2100; i++) {
        snprintf(name, sizeof name, "dump_7.%u", i);
        file(MGR_ROOT_INO, name, 0);
    }
    wait_ms(QUIET_MS + 2000);
    assert_int_equal(jobs("state=2 AND files=2100"), 1);
    assert_int_equal(fix_sql(&w.f, "SELECT count(DISTINCT ino) FROM drain_file WHERE ino>0"), 2100);
    w_close(&w);
}

static void test_a_set_that_is_deleted_ends_its_job(void **state)
{
    uint64_t ino[2], d;

    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs");
    set(1, ino);
    d = fix_lookup(&w.f, MGR_ROOT_INO, "chk_1");
    assert_int_equal(fix_unlink(&w.f, d, "rank_0", false), 0);
    assert_int_equal(jobs("state=6 AND why LIKE '%written anew%'"), 1);
    assert_int_equal(fix_unlink(&w.f, d, "rank_1", false), 0);
    w_run(&w);
    wait_ms(QUIET_MS);
    assert_int_equal(jobs("1"), 1);
    assert_int_equal(w_temps(&w), 0);
    w_close(&w);
}

static void open_it(uint64_t ino)
{
    Fp__Open m = FP__OPEN__INIT;

    m.ino = ino;
    m.write = true;
    fix_free(fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    assert_int_equal(w.f.status, 0);
}

static void close_it(uint64_t ino)
{
    Fp__Release m = FP__RELEASE__INIT;

    m.n_ino = m.n_write_ino = 1;
    m.ino = m.write_ino = &ino;
    fix_notice(&w.f, w.f.conn, FP__MSG_TYPE__MSG_RELEASE, &m);
}

static void test_results_are_drained_when_they_are_closed(void **state)
{
    uint64_t out, a, b, tmp;

    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs every=none results=out/*.h5,summary.txt");
    out = fix_mk(&w.f, MGR_ROOT_INO, "out", S_IFDIR | 0755);
    a = file(out, "a.h5", 1000);
    open_it(a);
    b = file(MGR_ROOT_INO, "summary.txt", 0); /* an empty one, too */
    file(out, "a.txt", 10);
    file(fix_mk(&w.f, out, "deeper", S_IFDIR | 0755), "c.h5", 10);
    tmp = file(out, "b.h5.tmp", 10);
    wait_ms(QUIET_MS + 2500);
    w_run(&w);
    w_equal(&w, "summary.txt", b);
    assert_int_equal(w.renamed, 1); /* a is open, b has not its name, the others are not meant */
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_due"), 1);
    close_it(a);
    wait_ms(1000);
    assert_int_equal(fix_rename(&w.f, out, "b.h5.tmp", out, "b.h5", 0), 0);
    wait_ms(QUIET_MS);
    w_run(&w);
    w_equal(&w, "out/a.h5", a);
    w_equal(&w, "out/b.h5", tmp);
    assert_int_equal(w.renamed, 3);
    assert_true(fix_write(&w.f, a, 0, 500) > 0); /* and anew, when it has changed */
    wait_ms(QUIET_MS);
    w_run(&w);
    w_equal(&w, "out/a.h5", a);
    assert_int_equal(w.renamed, 4);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_due"), 0);
    assert_int_equal(jobs("kind=2 AND policy=1 AND state=4"), jobs("1"));
    w_close(&w);
}

static void test_all_is_every_file_and_no_set_besides(void **state)
{
    uint64_t ino[2], f;

    (void)state;
    w_open(&w, ":memory:", 1);
    file(MGR_ROOT_INO, "before", 10);
    set_policy("to=/pfs all=yes");
    f = file(MGR_ROOT_INO, "x", 10);
    set(1, ino);
    wait_ms(QUIET_MS);
    w_run(&w);
    w_equal(&w, "x", f);
    w_equal(&w, "chk_1/rank_0", ino[0]);
    w_equal(&w, "chk_1/rank_1", ino[1]);
    assert_int_equal(w.renamed, 3);
    assert_int_equal(jobs("kind=1"), 0);
    w_close(&w);
}

/* The row that says that a file is to be looked at is of the transaction that changed it. */
static void test_no_result_is_forgotten_by_a_manager_that_dies(void **state)
{
    char name[32];
    uint64_t ino[12];

    (void)state;
    w_open(&w, fix_path(), 1);
    set_policy("to=/pfs every=none results=r*");
    for (unsigned i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "r%u", i);
        ino[i] = file(MGR_ROOT_INO, name, 100 + i);
        wait_ms(i * 300);
        w_restart(&w);
    }
    wait_ms(3 * QUIET_MS);
    w_run(&w);
    for (unsigned i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "r%u", i);
        w_equal(&w, name, ino[i]);
    }
    assert_int_equal(w.renamed, 12);
    assert_int_equal(w.written, 12);
    w_close(&w);
}

/* Rows of a policy that is gone go with it; and without one nothing is written. */
static void test_who_wants_no_single_files_pays_nothing(void **state)
{
    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs every=4");
    file(MGR_ROOT_INO, "a", 10);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_due"), 0);
    set_policy("to=/pfs all=yes");
    file(MGR_ROOT_INO, "b", 10);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_due"), 1);
    w_policy_change(&w, NULL, 2, NULL);
    wait_ms(QUIET_MS);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_due"), 0);
    assert_int_equal(jobs("1"), 0);
    w_close(&w);
}

static Fp__CtlDrainReply *last(const char *path, const char *to)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    ProtobufCBinaryData p = fix_bin(path);
    Fp__CtlDrainReply *r;

    m.op = FP__DRAIN_OP__DRAIN_OP_START;
    m.paths = &p;
    m.n_paths = 1;
    m.last = true;
    m.dest = (char *)(uintptr_t)to;
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor);
    assert_non_null(r);
    return r;
}

static void test_the_last_set_of_each_series(void **state)
{
    uint64_t ino[2], d, other;
    Fp__CtlDrainReply *r;

    (void)state;
    w_open(&w, ":memory:", 1);
    r = last("", "/pfs");
    assert_true(r->n_ids == 0 && r->n_why == 1 && strstr(r->why[0], "no complete"));
    fix_free(r);
    set(1, ino);
    set(2, ino);
    d = fix_mk(&w.f, MGR_ROOT_INO, "sub", S_IFDIR | 0755);
    other = file(d, "restart.7", 70);
    wait_ms(QUIET_MS);
    open_it(file(fix_mk(&w.f, MGR_ROOT_INO, "chk_3", S_IFDIR | 0755), "rank_0", 10)); /* not complete */
    r = last("sub", "/pfs");
    assert_int_equal(r->n_ids, 1);
    fix_free(r);
    r = last("", "/pfs");
    assert_int_equal(r->n_ids, 2);
    assert_true(r->ids[0] == 1 || r->ids[1] == 1); /* that is going on */
    fix_free(r);
    w_run(&w);
    w_equal(&w, "sub/restart.7", other);
    w_equal(&w, "chk_2/rank_1", ino[1]);
    assert_int_equal(w.renamed, 3);
    assert_int_equal(jobs("state=4 AND kind=1"), 2);
    w_close(&w);
}

/* Whichever target a policy has, once each. */
static void test_without_a_target_it_is_those_of_all_policies(void **state)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply *r;
    ProtobufCBinaryData root = fix_bin("");
    uint64_t ino[2];

    (void)state;
    w_open(&w, ":memory:", 1);
    w.other_jobs = true;
    set(1, ino);
    wait_ms(QUIET_MS);
    set_policy("to=/pfs every=none results=y");
    set_policy("to=/other every=none results=y verify=on");
    set_policy("to=/pfs every=none results=x");
    r = last("", "");
    assert_int_equal(r->n_ids, 2);
    assert_int_equal(jobs("kind=1 AND verify=0 AND target=1") + jobs("kind=1 AND verify=1 AND target=2"), 2);
    fix_free(r);
    m.op = FP__DRAIN_OP__DRAIN_OP_START;
    m.n_paths = 1;
    m.paths = &root;
    m.all = true;
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor);
    assert_int_equal(r->n_ids, 2);
    assert_true(r->ids[0] != r->ids[1]);
    fix_free(r);
    w_run(&w);
    assert_int_equal(jobs("state=4"), 4);
    w_equal(&w, "chk_1/rank_1", ino[1]);
    w.other = true;
    w_equal(&w, "chk_1/rank_1", ino[1]);
    w_close(&w);
}

static void test_limits_are_shared_by_who_is_at_work(void **state)
{
    (void)state;
    assert_int_equal(mgr_pace_rate(0, 1, 0, 1), 0);
    assert_int_equal(mgr_pace_rate(8000000, 1, 0, 1), 8000000);
    assert_int_equal(mgr_pace_rate(8000000, 2, 0, 1), 4000000);
    assert_int_equal(mgr_pace_rate(8000000, 2, 9000000, 3), 3000000);
    assert_int_equal(mgr_pace_rate(0, 1, 9000000, 3), 3000000);
    assert_int_equal(mgr_pace_rate(0, 1, 200000, 64), 100000); /* never so slow that it looks like a target that hangs */
}

static void test_benefactors_are_told_the_limits_of_policies(void **state)
{
    uint64_t ino;

    (void)state;
    w_open(&w, ":memory:", 2);
    set_policy("to=/pfs every=none results=x max=8MB/s max-job=6MB/s");
    ino = fix_mk(&w.f, MGR_ROOT_INO, "n1", S_IFREG | 0644);
    for (unsigned i = 0; i < 8; i++) {
        w.f.bnf = w.bnf[i % 2].id;
        assert_true(fix_write(&w.f, ino, (uint64_t)i * MIB, MIB) > 0);
    }
    w_start(&w, "n1", false, NULL);
    w_tick(&w, 2000);
    assert_int_equal(w.bnf[0].pace.rate, 6000000); /* the lead alone is at work */
    for (unsigned i = 0; i < 6 && !(w.bnf[0].n && w.bnf[1].n); i++) {
        w_answer(&w, 0, 0);
        w_answer(&w, 1, 0);
        if (w.bnf[0].n && !w.bnf[1].n)
            w_work(&w, 0, 0);
    }
    w_tick(&w, 2000);
    assert_int_equal(w.bnf[0].pace.rate, 3000000);
    assert_int_equal(w.bnf[1].pace.rate, 3000000);
    assert_int_equal(w.bnf[0].pace.mode, FP__PACE_MODE__PACE_RUN);
    w_bnf_dies(&w, 1);
    w_tick(&w, 1000);
    memset(&w.bnf[1].pace, 0, sizeof w.bnf[1].pace);
    w_bnf_comes(&w, 1);
    w_tick(&w, 2000);
    assert_int_equal(w.bnf[1].pace.rate, 3000000); /* told anew */
    w_run(&w);
    w_equal(&w, "n1", ino);
    w_close(&w);
}

/* Below low= draining goes first. */
static void test_a_store_that_fills_is_drained_first(void **state)
{
    uint64_t ino;

    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs every=none results=x low=40%");
    ino = file(MGR_ROOT_INO, "a", 1000);
    w.free_bytes = 400u << 20; /* of 1 GiB */
    w_tick(&w, 500);
    w_start(&w, "a", false, NULL);
    w_tick(&w, 2000);
    assert_int_equal(w.bnf[0].pace.mode, FP__PACE_MODE__PACE_HURRY);
    w.free_bytes = 500u << 20;
    w_tick(&w, 2000);
    assert_int_equal(w.bnf[0].pace.mode, FP__PACE_MODE__PACE_RUN);
    w_run(&w);
    w_equal(&w, "a", ino);
    w_close(&w);
}

static Fp__CtlBnfSetReply *bnf_set(const char *who, const char *name, const char *value)
{
    Fp__CtlBnfSet m = FP__CTL_BNF_SET__INIT;

    m.who = (char *)(uintptr_t)who;
    m.name = (char *)(uintptr_t)name;
    m.value = (char *)(uintptr_t)value;
    return fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_BNF_SET, &m, &fp__ctl_bnf_set_reply__descriptor);
}

static void test_preferences_reach_who_is_meant(void **state)
{
    static const char *const bad[][4] = {{"all", "max", "fast", "rate"}, {"all", "threads", "9", "1 to 8"}, {"all", "drain", "maybe", "on or off"},
                                         {"all", "speed", "1", "no such preference"}, {"n7", "drain", "off", "no such benefactor"}};
    Fp__CtlBnfSetReply *r;

    (void)state;
    w_open(&w, ":memory:", 2);
    r = bnf_set("all", "max", "5MB/s");
    assert_int_equal(r->told, 2);
    fix_free(r);
    assert_int_equal(w.bnf[0].prefs_set, 1);
    assert_int_equal(w.bnf[1].prefs_set, 1);
    r = bnf_set("n2", "drain", "off");
    assert_int_equal(r->told, 1);
    fix_free(r);
    r = bnf_set("1", "hold", "on");
    assert_int_equal(r->told, 1);
    fix_free(r);
    assert_int_equal(w.bnf[0].prefs_set, 2);
    assert_int_equal(w.bnf[1].prefs_set, 2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        r = bnf_set(bad[i][0], bad[i][1], bad[i][2]);
        assert_true(r && r->told == 0 && r->n_why == 1 && strstr(r->why[0], bad[i][3]));
        fix_free(r);
    }
    w_bnf_dies(&w, 1);
    r = bnf_set("n2", "drain", "on");
    assert_true(r->n_why == 1 && strstr(r->why[0], "not connected"));
    fix_free(r);
    w_close(&w);
}

/* The manager dies at any moment: a set that is complete has its job, one that is not has none, and in the end each has one. */
static void test_one_job_whenever_the_manager_dies(void **state)
{
    (void)state;
    w_open(&w, fix_path(), 1);
    set_policy("to=/pfs");
    for (unsigned i = 0; i < 30; i++) {
        char name[32];

        snprintf(name, sizeof name, "chk_%u", i);
        file(fix_mk(&w.f, MGR_ROOT_INO, name, S_IFDIR | 0755), "rank_0", 100 + i);
        wait_ms(i * 100);
        w_restart(&w);
        assert_int_equal(jobs("1"), fix_sql(&w.f, "SELECT count(*) FROM ckpt_set WHERE state=2"));
        assert_int_equal(fix_sql(&w.f, "SELECT count(DISTINCT ckpt) FROM drain_job"), jobs("1"));
        wait_ms(2 * QUIET_MS); /* the mount has to come back, too */
        assert_int_equal(jobs("1"), i + 1);
    }
    w_run(&w);
    assert_int_equal(jobs("state=4"), 30);
    assert_int_equal(w.written, 30);
    w_close(&w);
}

/* A disk that is full when the set becomes complete: no half of it stays. */
static void test_a_group_that_fails_makes_neither(void **state)
{
    uint64_t ino[2], d;

    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs");
    set(1, ino);
    w_run(&w);
    d = fix_mk(&w.f, MGR_ROOT_INO, "chk_2", S_IFDIR | 0755);
    file(d, "rank_0", 100);
    file(d, "rank_1", 0);
    wait_ms(1500);
    w.f.doom = -ENOSPC;
    fix_tick_failing(&w.f, 600);
    assert_int_equal(jobs("1"), 1);
    assert_int_equal(fix_sql(&w.f, "SELECT seen*10+taken FROM policy"), 11);
    wait_ms(2 * QUIET_MS);
    assert_int_equal(jobs("1"), 2);
    assert_int_equal(fix_sql(&w.f, "SELECT seen*10+taken FROM policy"), 22);
    w_run(&w);
    w_close(&w);
}

static void test_rows_of_jobs_that_are_long_over_go(void **state)
{
    uint64_t ino;

    (void)state;
    w_open(&w, ":memory:", 1);
    set_policy("to=/pfs");
    ino = file(MGR_ROOT_INO, "chk_1", 10);
    for (unsigned i = 0; i < MGR_JOBS_KEPT + 20; i++) {
        wait_ms(QUIET_MS);
        w_run(&w);
        assert_true(fix_write(&w.f, ino, 0, 10) > 0);
    }
    wait_ms(QUIET_MS);
    w_run(&w);
    assert_int_equal(jobs("1"), MGR_JOBS_KEPT);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_file WHERE job NOT IN (SELECT id FROM drain_job)"), 0);
    assert_int_equal(fix_sql(&w.f, "SELECT max(id) FROM drain_job"), MGR_JOBS_KEPT + 21);
    w_close(&w);
}

int main(void)
{
#define T(name) cmocka_unit_test(name)
    const struct CMUnitTest tests[] = {
        T(test_each_second_set_is_drained_once),
        T(test_what_promises_too_much_is_refused),
        T(test_mounts_that_say_the_same_make_one_policy),
        T(test_two_policies_each_have_a_job),
        T(test_late_files_are_added_and_the_rest_is_not_copied_again),
        T(test_a_job_under_way_gives_way_to_the_one_of_the_set_with_late_files),
        T(test_a_set_written_anew_is_the_next_checkpoint),
        T(test_files_side_by_side_without_a_directory),
        T(test_more_files_than_one_group_lists),
        T(test_a_set_that_is_deleted_ends_its_job),
        T(test_results_are_drained_when_they_are_closed),
        T(test_all_is_every_file_and_no_set_besides),
        T(test_no_result_is_forgotten_by_a_manager_that_dies),
        T(test_who_wants_no_single_files_pays_nothing),
        T(test_the_last_set_of_each_series),
        T(test_without_a_target_it_is_those_of_all_policies),
        T(test_limits_are_shared_by_who_is_at_work),
        T(test_benefactors_are_told_the_limits_of_policies),
        T(test_a_store_that_fills_is_drained_first),
        T(test_preferences_reach_who_is_meant),
        T(test_one_job_whenever_the_manager_dies),
        T(test_a_group_that_fails_makes_neither),
        T(test_rows_of_jobs_that_are_long_over_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
