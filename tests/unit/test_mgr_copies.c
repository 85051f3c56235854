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
#include "mgr_drain_world.h"

#define MIB (1u << 20)

static struct world w;

static int64_t sql(const char *text)
{
    return fix_sql(&w.f, text);
}

static uint64_t file_of(uint64_t parent, const char *name)
{
    uint64_t ino = fix_mk(&w.f, parent, name, S_IFREG | 0644);

    for (unsigned i = 0; i < 3; i++)
        assert_true(fix_write(&w.f, ino, (uint64_t)i * MIB, i == 2 ? 1000 : MIB) > 0);
    return ino;
}

static Fp__Level level(uint64_t ino)
{
    struct mgr_inode in;

    assert_int_equal(mgr_inode_get(w.f.core, ino, &in), 0);
    return mgr_drained_level(w.f.core, &in);
}

static int64_t state_of(uint64_t job)
{
    char text[100];

    snprintf(text, sizeof text, "SELECT state FROM drain_job WHERE id=%llu", (unsigned long long)job);
    return sql(text);
}

static void drain(const char *path, const char *to, bool verify)
{
    uint64_t job;

    w.to = to;
    job = w_start(&w, path, verify, NULL);
    w_run(&w);
    w.to = NULL;
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
}

/* The benefactors confirm what they were told to delete: before, nothing of it is taken back. */
static void deleted(void)
{
    Fp__ChunkList l = FP__CHUNK_LIST__INIT;
    uint64_t ids[64];

    l.ids = ids;
    for (size_t i = 0; i < w.nbnf; i++) {
        for (l.n_ids = 0; l.n_ids < 64; l.n_ids++) {
            char text[120];
            int64_t id;

            snprintf(text, sizeof text, "SELECT chunk FROM garbage WHERE bnf=%u ORDER BY chunk LIMIT 1 OFFSET %zu", w.bnf[i].id, l.n_ids);
            id = sql(text);
            if (id < 0)
                break;
            ids[l.n_ids] = (uint64_t)id;
        }
        fix_answer(&w.f, w.bnf[i].conn, FP__MSG_TYPE__MSG_DELETE, 0, &l);
    }
    assert_int_equal(sql("SELECT count(*) FROM garbage"), 0);
}

/* The state in which it ended. */
static int64_t evict(const char *path)
{
    Fp__CtlStage m = FP__CTL_STAGE__INIT;
    Fp__CtlStageReply *r;
    ProtobufCBinaryData p = fix_bin(path);
    uint64_t job;

    m.op = FP__STAGE_OP__STAGE_OP_EVICT;
    m.n_paths = 1;
    m.paths = &p;
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_STAGE, &m, &fp__ctl_stage_reply__descriptor);
    assert_non_null(r);
    job = r->job;
    fix_free(r);
    w_run(&w);
    if (sql("SELECT count(*) FROM garbage"))
        deleted();
    return state_of(job);
}

static int64_t external(const char *root)
{
    char text[300];

    snprintf(text, sizeof text, "SELECT count(*) FROM chunk c JOIN ext e ON e.chunk=c.id JOIN tfile t ON t.id=e.tfile JOIN target g ON g.id=t.target WHERE c.bnf=0 AND g.root='%s'", root);
    return sql(text);
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
    assert_int_equal(sql("SELECT count(*) FROM tfile t WHERE refs != (SELECT count(*) FROM drained d WHERE d.tfile=t.id)+(SELECT count(*) FROM ext e WHERE e.tfile=t.id)"), 0);
    assert_int_equal(sql("SELECT count(*) FROM drained d JOIN tfile t ON t.id=d.tfile WHERE d.target<>t.target"), 0);
    assert_int_equal(sql("SELECT count(*) FROM drain_part"), 0);
    w_close(&w);
}

static void test_the_best_copy_counts(void **state)
{
    uint64_t a, b;

    (void)state;
    w_open(&w, ":memory:", 1);
    a = file_of(MGR_ROOT_INO, "a");
    b = file_of(MGR_ROOT_INO, "b");
    drain("a", "/pfs", true);
    drain("a", "/other", false);
    assert_int_equal(level(a), FP__LEVEL__LEVEL_VERIFIED);
    drain("b", "/pfs", false);
    assert_int_equal(level(b), FP__LEVEL__LEVEL_DRAINED);
    drain("b", "/other", true);
    assert_int_equal(level(b), FP__LEVEL__LEVEL_VERIFIED);
    assert_int_equal(sql("SELECT count(*) FROM drained"), 4);
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
    file_of(d, "rank_0");
    file_of(d, "rank_1");
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
    a = file_of(MGR_ROOT_INO, "a");
    drain("a", "/pfs", false);
    drain("a", "/other", false);
    written = w.written;
    drain("a", "/pfs", false); /* it is still there */
    drain("a", "/other", false);
    assert_int_equal(w.written, written);
    drain("a", "/other", true); /* not compared there yet */
    assert_true(w.written > written);
    assert_int_equal(level(a), FP__LEVEL__LEVEL_VERIFIED);
    assert_true(fix_write(&w.f, a, 0, 10) > 0);
    assert_int_equal(level(a), FP__LEVEL__LEVEL_NONE);
    drain("a", "/pfs", false); /* the other one is of the data before */
    assert_int_equal(level(a), FP__LEVEL__LEVEL_DRAINED);
    assert_int_equal(fix_unlink(&w.f, MGR_ROOT_INO, "a", false), 0);
    w_tick(&w, 1000);
    assert_int_equal(sql("SELECT count(*) FROM drained"), 0);
    assert_int_equal(sql("SELECT count(*) FROM tfile"), 0);
    check();
}

static void test_a_copy_that_is_gone_takes_only_its_own_level(void **state)
{
    uint64_t a;

    (void)state;
    w_open(&w, ":memory:", 1);
    a = file_of(MGR_ROOT_INO, "a");
    drain("a", "/pfs", true);
    drain("a", "/other", false);
    lose("a", false);
    drain("a", "/pfs", false); /* it is seen to be gone, and made again */
    assert_int_equal(level(a), FP__LEVEL__LEVEL_DRAINED);
    assert_int_equal(sql("SELECT count(*) FROM drained"), 2);
    w_equal(&w, "a", a);
    check();
}

static void test_what_is_evicted_is_so_in_favour_of_a_copy_that_is_there(void **state)
{
    uint64_t a;

    (void)state;
    w_open(&w, ":memory:", 1);
    a = file_of(MGR_ROOT_INO, "a");
    drain("a", "/other", false);
    drain("a", "/pfs", true);
    lose("a", false);
    assert_int_equal(evict("a"), FP__DRAIN_STATE__DRAIN_DONE); /* the compared one is looked for first */
    assert_int_equal(external("/other"), 3);
    assert_int_equal(external("/pfs"), 0);
    assert_int_equal(level(a), FP__LEVEL__LEVEL_DRAINED);
    check();
}

static void test_no_copy_that_is_there_keeps_the_file_here(void **state)
{
    uint64_t a;

    (void)state;
    w_open(&w, ":memory:", 1);
    a = file_of(MGR_ROOT_INO, "a");
    drain("a", "/other", false);
    drain("a", "/pfs", false);
    lose("a", false);
    lose("a", true);
    assert_int_equal(evict("a"), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(sql("SELECT count(*) FROM chunk WHERE bnf=0"), 0);
    assert_int_equal(level(a), FP__LEVEL__LEVEL_NONE);
    check();
}

static void test_the_target_of_a_policy_is_preferred(void **state)
{
    Fp__Policy m = FP__POLICY__INIT;
    Fp__PolicyReply *r;

    (void)state;
    w_open(&w, ":memory:", 1);
    file_of(MGR_ROOT_INO, "a");
    drain("a", "/pfs", true);
    drain("a", "/other", false);
    m.text = (char *)"to=/other every=1000";
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_POLICY, &m, &fp__policy_reply__descriptor);
    assert_string_equal(r->why, "");
    fix_free(r);
    assert_int_equal(sql("SELECT count(*) FROM policy"), 1);
    assert_int_equal(evict("a"), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(external("/pfs"), 0);
    assert_int_equal(external("/other"), 3);
    check();
}

static void test_what_was_evicted_is_brought_back_to_be_drained(void **state)
{
    uint64_t a, d;

    (void)state;
    w_open(&w, ":memory:", 2);
    a = file_of(MGR_ROOT_INO, "a");
    drain("a", "/pfs", false);
    assert_int_equal(evict("a"), FP__DRAIN_STATE__DRAIN_DONE);
    drain("a", "/pfs", false); /* it is there */
    assert_int_equal(w.fetched, 0);
    drain("a", "/other", true);
    assert_int_equal(w.fetched, 3);
    assert_int_equal(sql("SELECT count(*) FROM chunk WHERE bnf=0"), 0);
    assert_int_equal(level(a), FP__LEVEL__LEVEL_VERIFIED);
    assert_int_equal(sql("SELECT count(*) FROM drain_job WHERE kind=3"), 1);
    /* a directory, and part of a file that was written since */
    d = fix_mk(&w.f, MGR_ROOT_INO, "d", S_IFDIR | 0755);
    for (unsigned i = 0; i < 5; i++) {
        char name[8] = {'f', (char)('0' + i)};

        a = file_of(d, name);
    }
    drain("d", "/pfs", false);
    assert_int_equal(evict("d"), FP__DRAIN_STATE__DRAIN_DONE);
    assert_true(fix_write(&w.f, a, MIB, 1000) > 0);
    w_tick(&w, 3000);
    drain("d", "/pfs", false);
    drain("d", "/other", false);
    assert_int_equal(sql("SELECT count(*) FROM chunk WHERE bnf=0"), 0);
    assert_true(sql("SELECT count(*) FROM drain_job WHERE kind=3") <= 3);
    assert_int_equal(sql("SELECT count(*) FROM drain_job WHERE kind=3 AND state<>4"), 0);
    check();
}

static void test_what_can_not_be_brought_back_fails_alone(void **state)
{
    uint64_t d, job;

    (void)state;
    w_open(&w, ":memory:", 1);
    d = fix_mk(&w.f, MGR_ROOT_INO, "d", S_IFDIR | 0755);
    file_of(d, "lost");
    file_of(d, "well");
    drain("d", "/pfs", false);
    assert_int_equal(evict("d"), FP__DRAIN_STATE__DRAIN_DONE);
    lose("d/lost", false);
    w.to = "/other";
    job = w_start(&w, "d", false, NULL);
    w_run(&w);
    w.to = NULL;
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(sql("SELECT count(*) FROM drain_file WHERE state=7 AND why LIKE 'it was evicted, and could not be brought back%'"), 1);
    assert_int_equal(sql("SELECT files_done FROM drain_job ORDER BY kind,id DESC LIMIT 1"), 1);
    check();
}

/* Every step of it with the manager dying behind it. */
static void test_bringing_back_goes_on_after_a_restart(void **state)
{
    char path[] = "/tmp/test_mgr_copies.XXXXXX", db[64], text[100];
    uint64_t a, job;

    (void)state;
    assert_non_null(mkdtemp(path));
    snprintf(db, sizeof db, "%s/db", path);
    w_open(&w, db, 1);
    a = file_of(MGR_ROOT_INO, "a");
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
    w_run(&w);
    assert_int_equal(state_of(job), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(level(a), FP__LEVEL__LEVEL_DRAINED);
    assert_int_equal(sql("SELECT count(*) FROM drained"), 2);
    assert_int_equal(sql("SELECT count(*) FROM drain_job WHERE kind=3"), 1);
    check();
    snprintf(text, sizeof text, "rm -r %s", path);
    assert_int_equal(system(text), 0);
}

static void test_cancelling_ends_both(void **state)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    uint64_t job;

    (void)state;
    w_open(&w, ":memory:", 1);
    file_of(MGR_ROOT_INO, "a");
    drain("a", "/pfs", false);
    assert_int_equal(evict("a"), FP__DRAIN_STATE__DRAIN_DONE);
    w.to = "/other";
    job = w_start(&w, "a", false, NULL);
    w.to = NULL;
    for (unsigned i = 0; i < 20 && !sql("SELECT count(*) FROM drain_job WHERE kind=3"); i++)
        w_tick(&w, 500);
    m.op = FP__DRAIN_OP__DRAIN_OP_CANCEL;
    m.id = job;
    fix_free(fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor));
    w_run(&w);
    assert_int_equal(sql("SELECT count(*) FROM drain_job WHERE state=6"), 2);
    assert_int_equal(sql("SELECT count(*) FROM drained"), 1);
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
        cmocka_unit_test(test_what_was_evicted_is_brought_back_to_be_drained),
        cmocka_unit_test(test_what_can_not_be_brought_back_fails_alone),
        cmocka_unit_test(test_bringing_back_goes_on_after_a_restart),
        cmocka_unit_test(test_cancelling_ends_both),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
