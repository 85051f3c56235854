/* A file that was drained to several targets: the best of its copies is its level, and what becomes of one of them says nothing of the others. */
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

#include "manager/level.h"
#include "mgr_evict_world.h"

static void drain(const char *path, const char *to, bool verify)
{
    w.to = to;
    assert_int_equal(e_run_job(w_start(&w, path, verify, NULL), NULL), FP__DRAIN_STATE__DRAIN_DONE);
    w.to = NULL;
}

/* The state in which it ended; what was told to be deleted is deleted: before, nothing of it is taken back. */
static Fp__DrainState evict(const char *path)
{
    Fp__DrainState s = e_evict(path, NULL);

    e_deleted();
    return s;
}

static int64_t external(const char *root)
{
    return e_sql("SELECT count(*) FROM chunk c JOIN ext e ON e.chunk=c.id JOIN tfile t ON t.id=e.tfile JOIN target g ON g.id=t.target WHERE c.bnf=0 AND g.root='%s'", root);
}

static void lose(const char *name, bool other)
{
    struct w_file *f;

    w.other = other;
    f = w_find(&w, name);
    w.other = false;
    assert_non_null(f);
    f->used = false;
}

static void check(void)
{
    assert_int_equal(e_sql("SELECT count(*) FROM tfile t WHERE refs != (SELECT count(*) FROM drained d WHERE d.tfile=t.id)+(SELECT count(*) FROM ext e WHERE e.tfile=t.id)"), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM drained d JOIN tfile t ON t.id=d.tfile WHERE d.target<>t.target"), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_part"), 0);
    w_close(&w);
}

static void test_the_best_copy_counts(void **state)
{
    uint64_t a, b;

    (void)state;
    w_open(&w, ":memory:", 1);
    a = e_file_of(MGR_ROOT_INO, "a");
    b = e_file_of(MGR_ROOT_INO, "b");
    drain("a", "/pfs", true);
    drain("a", "/other", false);
    assert_int_equal(e_level(a), FP__LEVEL__LEVEL_VERIFIED);
    drain("b", "/pfs", false);
    assert_int_equal(e_level(b), FP__LEVEL__LEVEL_DRAINED);
    drain("b", "/other", true);
    assert_int_equal(e_level(b), FP__LEVEL__LEVEL_VERIFIED);
    assert_int_equal(e_sql("SELECT count(*) FROM drained"), 4);
    check();
}

/* Of a set: each file's best, wherever that is. */
static void test_a_set_whose_files_are_in_different_targets(void **state)
{
    Fp__LevelAsk m = FP__LEVEL_ASK__INIT;
    Fp__LevelReply *r;
    uint64_t d;

    (void)state;
    w_open(&w, ":memory:", 1);
    d = fix_mk(&w.f, MGR_ROOT_INO, "chk_1", S_IFDIR | 0755);
    e_file_of(d, "rank_0");
    e_file_of(d, "rank_1");
    w_tick(&w, 2500);
    m.ino = d;
    drain("chk_1/rank_0", "/pfs", true);
    drain("chk_1", "/other", false);
    r = fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_LEVEL, &m, &fp__level_reply__descriptor);
    assert_int_equal(r->level, FP__LEVEL__LEVEL_DRAINED);
    fix_free(r);
    drain("chk_1/rank_1", "/other", true);
    r = fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_LEVEL, &m, &fp__level_reply__descriptor);
    assert_int_equal(r->level, FP__LEVEL__LEVEL_VERIFIED);
    fix_free(r);
    check();
}

static void test_each_target_is_known_by_itself(void **state)
{
    uint64_t a, written;

    (void)state;
    w_open(&w, ":memory:", 1);
    a = e_file_of(MGR_ROOT_INO, "a");
    drain("a", "/pfs", false);
    drain("a", "/other", false);
    written = w.written;
    drain("a", "/pfs", false); /* it is still there */
    drain("a", "/other", false);
    assert_int_equal(w.written, written);
    drain("a", "/other", true); /* not compared there yet */
    assert_true(w.written > written);
    assert_int_equal(e_level(a), FP__LEVEL__LEVEL_VERIFIED);
    assert_true(fix_write(&w.f, a, 0, 10) > 0);
    assert_int_equal(e_level(a), FP__LEVEL__LEVEL_NONE);
    drain("a", "/pfs", false); /* the other one is of the data before */
    assert_int_equal(e_level(a), FP__LEVEL__LEVEL_DRAINED);
    assert_int_equal(fix_unlink(&w.f, MGR_ROOT_INO, "a", false), 0);
    w_tick(&w, 1000);
    assert_int_equal(e_sql("SELECT count(*) FROM drained"), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM tfile"), 0);
    check();
}

static void test_a_copy_that_is_gone_takes_only_its_own_level(void **state)
{
    uint64_t a;

    (void)state;
    w_open(&w, ":memory:", 1);
    a = e_file_of(MGR_ROOT_INO, "a");
    drain("a", "/pfs", true);
    drain("a", "/other", false);
    lose("a", false);
    drain("a", "/pfs", false); /* it is seen to be gone, and made again */
    assert_int_equal(e_level(a), FP__LEVEL__LEVEL_DRAINED);
    assert_int_equal(e_sql("SELECT count(*) FROM drained"), 2);
    w_equal(&w, "a", a);
    check();
}

static void test_what_is_evicted_is_so_in_favour_of_a_copy_that_is_there(void **state)
{
    uint64_t a;

    (void)state;
    w_open(&w, ":memory:", 1);
    a = e_file_of(MGR_ROOT_INO, "a");
    drain("a", "/other", false);
    drain("a", "/pfs", true);
    lose("a", false);
    assert_int_equal(evict("a"), FP__DRAIN_STATE__DRAIN_DONE); /* the compared one is looked for first */
    assert_int_equal(external("/other"), 3);
    assert_int_equal(external("/pfs"), 0);
    assert_int_equal(e_level(a), FP__LEVEL__LEVEL_DRAINED);
    check();
}

static void test_no_copy_that_is_there_keeps_the_file_here(void **state)
{
    uint64_t a;

    (void)state;
    w_open(&w, ":memory:", 1);
    a = e_file_of(MGR_ROOT_INO, "a");
    drain("a", "/other", false);
    drain("a", "/pfs", false);
    lose("a", false);
    lose("a", true);
    assert_int_equal(evict("a"), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk WHERE bnf=0"), 0);
    assert_int_equal(e_level(a), FP__LEVEL__LEVEL_NONE);
    check();
}

static void test_the_target_of_a_policy_is_preferred(void **state)
{
    (void)state;
    w_open(&w, ":memory:", 1);
    e_file_of(MGR_ROOT_INO, "a");
    drain("a", "/pfs", true);
    drain("a", "/other", false);
    w_policy(&w, "to=/other every=1000");
    assert_int_equal(e_sql("SELECT count(*) FROM policy"), 1);
    assert_int_equal(evict("a"), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(external("/pfs"), 0);
    assert_int_equal(external("/other"), 3);
    check();
}

/* What is there already is written anew, and read back, when that is said; also what was evicted, which is brought here before. */
static void test_what_is_there_is_copied_again_when_that_is_said(void **state)
{
    uint64_t a, renamed, verified, first;

    (void)state;
    w_open(&w, ":memory:", 2);
    a = e_file_of(MGR_ROOT_INO, "a");
    drain("a", "/pfs", true);
    renamed = w.renamed;
    verified = w.verified;
    drain("a", "/pfs", true);
    assert_int_equal(w.renamed, renamed);
    assert_int_equal(w.verified, verified);
    first = w_start(&w, "a", true, NULL);
    w.again = true;
    assert_int_not_equal(w_start(&w, "a", true, NULL), first); /* that one would not do it */
    w_run(&w);
    assert_int_equal(w.renamed, renamed + 1);
    assert_true(w.verified > verified);
    assert_int_equal(e_level(a), FP__LEVEL__LEVEL_VERIFIED);
    assert_int_equal(evict("a"), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(a), 3);
    drain("a", "/pfs", true);
    assert_int_equal(w.renamed, renamed + 2);
    assert_int_equal(e_external(a), 0);
    w_equal(&w, "a", a);
    w.again = false;
    check();
}

/* What was published of it is copied; that it is no copy of what it becomes is said, also if it is there already. */
static void test_a_file_that_is_open_for_writing_is_said_to_be(void **state)
{
    Fp__Open m = FP__OPEN__INIT;
    Fp__Release rel = FP__RELEASE__INIT;
    uint64_t a;

    (void)state;
    w_open(&w, ":memory:", 1);
    m.ino = a = e_file_of(MGR_ROOT_INO, "a");
    m.write = true;
    fix_free(fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(e_run_job(w_start(&w, "a", false, NULL), "a: copied as it was published, but it is open for writing"), FP__DRAIN_STATE__DRAIN_FAILED);
        w_equal(&w, "a", a);
        assert_int_equal(e_sql("SELECT files_done FROM drain_job ORDER BY id DESC LIMIT 1"), 1);
        assert_int_equal(w.renamed, 1);
    }
    rel.n_ino = rel.n_write_ino = 1;
    rel.ino = rel.write_ino = &a;
    fix_notice(&w.f, w.f.conn, FP__MSG_TYPE__MSG_RELEASE, &rel);
    drain("a", "/pfs", false);
    assert_int_equal(w.renamed, 1);
    check();
}

static void test_what_was_evicted_is_brought_back_to_be_drained(void **state)
{
    uint64_t a, d;

    (void)state;
    w_open(&w, ":memory:", 2);
    a = e_file_of(MGR_ROOT_INO, "a");
    drain("a", "/pfs", false);
    assert_int_equal(evict("a"), FP__DRAIN_STATE__DRAIN_DONE);
    drain("a", "/pfs", false); /* it is there */
    assert_int_equal(w.fetched, 0);
    drain("a", "/other", true);
    assert_int_equal(w.fetched, 3);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk WHERE bnf=0"), 0);
    assert_int_equal(e_level(a), FP__LEVEL__LEVEL_VERIFIED);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job WHERE kind=3"), 1);
    /* a directory, and part of a file that was written since */
    d = fix_mk(&w.f, MGR_ROOT_INO, "d", S_IFDIR | 0755);
    for (unsigned i = 0; i < 5; i++) {
        char name[8] = {'f', (char)('0' + i)};

        a = e_file_of(d, name);
    }
    drain("d", "/pfs", false);
    assert_int_equal(evict("d"), FP__DRAIN_STATE__DRAIN_DONE);
    assert_true(fix_write(&w.f, a, MIB, 1000) > 0);
    w_tick(&w, 3000);
    drain("d", "/pfs", false);
    drain("d", "/other", false);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk WHERE bnf=0"), 0);
    assert_true(e_sql("SELECT count(*) FROM drain_job WHERE kind=3") <= 3);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job WHERE kind=3 AND state<>4"), 0);
    check();
}

static void test_what_can_not_be_brought_back_fails_alone(void **state)
{
    uint64_t d;

    (void)state;
    w_open(&w, ":memory:", 1);
    d = fix_mk(&w.f, MGR_ROOT_INO, "d", S_IFDIR | 0755);
    e_file_of(d, "lost");
    e_file_of(d, "well");
    drain("d", "/pfs", false);
    assert_int_equal(evict("d"), FP__DRAIN_STATE__DRAIN_DONE);
    lose("d/lost", false);
    w.to = "/other";
    assert_int_equal(e_run_job(w_start(&w, "d", false, NULL), NULL), FP__DRAIN_STATE__DRAIN_FAILED);
    w.to = NULL;
    assert_int_equal(e_sql("SELECT count(*) FROM drain_file WHERE state=7 AND why LIKE 'it was evicted, and could not be brought back%%'"), 1);
    assert_int_equal(e_sql("SELECT files_done FROM drain_job ORDER BY kind,id DESC LIMIT 1"), 1);
    check();
}

/* Every step of it with the manager dying behind it. */
static void test_bringing_back_goes_on_after_a_restart(void **state)
{
    uint64_t a, job;

    (void)state;
    w_open(&w, fix_path(), 1);
    a = e_file_of(MGR_ROOT_INO, "a");
    drain("a", "/pfs", false);
    assert_int_equal(evict("a"), FP__DRAIN_STATE__DRAIN_DONE);
    w.to = "/other";
    job = w_start(&w, "a", false, NULL);
    w.to = NULL;
    for (unsigned i = 0; i < 6; i++) {
        w_restart(&w);
        for (unsigned k = 0; k <= i; k++) {
            w_tick(&w, 500);
            if (w.bnf[0].asked)
                w_answer(&w, 0, 0);
            if (w.bnf[0].n)
                w_work(&w, 0, 0);
        }
    }
    assert_int_equal(e_run_job(job, NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_level(a), FP__LEVEL__LEVEL_DRAINED);
    assert_int_equal(e_sql("SELECT count(*) FROM drained"), 2);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job WHERE kind=3"), 1);
    check();
}

static void test_cancelling_ends_both(void **state)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    uint64_t job;

    (void)state;
    w_open(&w, ":memory:", 1);
    e_file_of(MGR_ROOT_INO, "a");
    drain("a", "/pfs", false);
    assert_int_equal(evict("a"), FP__DRAIN_STATE__DRAIN_DONE);
    w.to = "/other";
    job = w_start(&w, "a", false, NULL);
    w.to = NULL;
    for (unsigned i = 0; i < 20 && !e_sql("SELECT count(*) FROM drain_job WHERE kind=3"); i++)
        w_tick(&w, 500);
    m.op = FP__DRAIN_OP__DRAIN_OP_CANCEL;
    m.id = job;
    fix_free(fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor));
    w_run(&w);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job WHERE state=6"), 2);
    assert_int_equal(e_sql("SELECT count(*) FROM drained"), 1);
    check();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_best_copy_counts),
        cmocka_unit_test(test_a_set_whose_files_are_in_different_targets),
        cmocka_unit_test(test_each_target_is_known_by_itself),
        cmocka_unit_test(test_a_copy_that_is_gone_takes_only_its_own_level),
        cmocka_unit_test(test_what_is_evicted_is_so_in_favour_of_a_copy_that_is_there),
        cmocka_unit_test(test_no_copy_that_is_there_keeps_the_file_here),
        cmocka_unit_test(test_the_target_of_a_policy_is_preferred),
        cmocka_unit_test(test_what_is_there_is_copied_again_when_that_is_said),
        cmocka_unit_test(test_a_file_that_is_open_for_writing_is_said_to_be),
        cmocka_unit_test(test_what_was_evicted_is_brought_back_to_be_drained),
        cmocka_unit_test(test_what_can_not_be_brought_back_fails_alone),
        cmocka_unit_test(test_bringing_back_goes_on_after_a_restart),
        cmocka_unit_test(test_cancelling_ends_both),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
