/* Staging in what others have put into a target, in the manager: numbers of chunks, attempts, and what comes late. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "manager/foreign.h"
#include "mgr_evict_world.h"
#include "fp/err.h"
#include "fp/fault.h"

#define SIZE (40u * MIB + 5)

static uint64_t begin(void)
{
    Fp__CtlStage m = FP__CTL_STAGE__INIT;
    ProtobufCBinaryData p = fix_bin("/pfs/f");
    Fp__CtlStageReply *r;
    uint64_t job;

    m.op = FP__STAGE_OP__STAGE_OP_IN;
    m.foreign = true;
    m.n_paths = 1;
    m.paths = &p;
    m.root = (char *)(uintptr_t) "/pfs";
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_STAGE, &m, &fp__ctl_stage_reply__descriptor);
    assert_non_null(r);
    assert_int_equal(r->n_why, 0);
    job = r->job;
    fix_free(r);
    return job;
}

static Fp__Task *take(size_t i, size_t k)
{
    Fp__Task *t = w.bnf[i].task[k];

    w.bnf[i].task[k] = w.bnf[i].task[--w.bnf[i].n];
    return t;
}

static void listed(size_t i, size_t k, uint64_t size)
{
    Fp__Task *t = take(i, k);
    Fp__TaskResult r = FP__TASK_RESULT__INIT;
    Fp__ListEntry e = FP__LIST_ENTRY__INIT, *ee = &e;
    Fp__Attr a = FP__ATTR__INIT;

    a.mode = S_IFREG | 0640;
    a.uid = 7;
    a.ino = 4711;
    a.size_bytes = size;
    a.mtime_ns = 12345;
    e.attr = &a;
    r.id = t->id;
    r.gen = t->gen;
    r.list = &ee;
    r.n_list = 1;
    r.eof = true;
    assert_int_equal(w_tell(&w, i, &r), 0);
    fix_free(t);
}

/* Every window but the first is there: that is nothing but zeros. status: it has failed. */
static void staged(size_t i, const Fp__Task *t, int status)
{
    Fp__TaskResult r = FP__TASK_RESULT__INIT;
    Fp__Chunk c[64], *cc[64];

    assert_int_equal(t->kind, FP__TASK_KIND__TASK_STAGE);
    assert_true(t->n_slices > 0 && t->n_slices <= 64);
    r.id = t->id;
    r.gen = t->gen;
    r.status = status;
    r.chunks = cc;
    for (size_t k = 0; k < t->n_slices && !status; k++) {
        if (t->slices[k]->win == 0)
            continue;
        fp__chunk__init(&c[r.n_chunks]);
        c[r.n_chunks].id = t->slices[k]->chunk;
        c[r.n_chunks].len = t->slices[k]->len;
        c[r.n_chunks].stored_bytes = t->slices[k]->len + 4096;
        c[r.n_chunks].sum = 99;
        c[r.n_chunks].bnf = w.bnf[i].id;
        cc[r.n_chunks] = &c[r.n_chunks];
        r.n_chunks++;
    }
    assert_int_equal(w_tell(&w, i, &r), 0);
}

/* Until parts are under way, or nothing is left to do; keep: parts stay where they are. */
static void run(bool keep)
{
    for (int idle = 0; idle < 12;) {
        bool any = false;

        for (size_t i = 0; i < w.nbnf; i++) {
            if (w.bnf[i].asked) {
                w_answer(&w, i, 0);
                any = true;
            }
            for (size_t k = w.bnf[i].n; k-- > 0;) {
                if (w.bnf[i].task[k]->kind == FP__TASK_KIND__TASK_LIST) {
                    listed(i, k, SIZE);
                } else if (w.bnf[i].task[k]->kind == FP__TASK_KIND__TASK_STAGE) {
                    Fp__Task *t = keep ? NULL : take(i, k);

                    if (!t)
                        continue;
                    staged(i, t, 0);
                    fix_free(t);
                } else {
                    w_work(&w, i, k);
                }
                any = true;
            }
        }
        idle = any ? 0 : idle + 1;
        if (!any)
            w_tick(&w, 500);
        if (idle == 2) /* the mount has heard that it is alone no more, if it was asked */
            fix_answer(&w.f, w.f.conn, FP__MSG_TYPE__MSG_ALONE, 0, NULL);
    }
}

static size_t parts(size_t i)
{
    size_t n = 0;

    for (size_t k = 0; k < w.bnf[i].n; k++)
        n += w.bnf[i].task[k]->kind == FP__TASK_KIND__TASK_STAGE;
    return n;
}

static int64_t named(void)
{
    return e_sql("SELECT count(*) FROM dirent WHERE name=x'66'");
}

static void test_a_file_is_shared_out_and_named_when_it_is_whole(void **state)
{
    uint64_t job;

    (void)state;
    w_open(&w, ":memory:", 2);
    job = begin();
    assert_int_equal(begin(), job); /* asked twice */
    run(true);
    assert_true(parts(0) > 0 && parts(1) > 0);
    assert_int_equal(parts(0) + parts(1), 3);
    assert_int_equal(named(), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM inode WHERE nlink=0"), 1);
    run(false);
    assert_int_equal(named(), 1);
    assert_int_equal(e_sql("SELECT count(*) FROM inode WHERE mode=%u AND uid=7 AND nlink=1 AND size=%u AND mtime=12345", S_IFREG | 0640, SIZE), 1);
    assert_int_equal(e_sql("SELECT count(*) FROM slice"), 40); /* without the hole */
    assert_int_equal(e_sql("SELECT count(*) FROM chunk WHERE refs=1 AND id>>32>%u", MGR_SESSION_MAX), 40);
    assert_int_equal(e_sql("SELECT state FROM drain_job"), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_sql("SELECT bytes_done FROM drain_job"), SIZE);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_part"), 0);
    w_close(&w);
}

/* Benefactors act on numbers at once: a power failure of the manager's node takes none back. */
static void test_numbers_are_synced_before_anybody_is_told_of_them(void **state)
{
    unsigned long first;

    (void)state;
    w_open(&w, ":memory:", 2);
    assert_int_equal(fp_fault_set("mgr.sync=delay:ms=1"), 0);
    begin();
    first = fp_fault_fired("mgr.sync");
    assert_int_equal(first, 1); /* of attempts */
    run(true);
    assert_true(w.bnf[0].n + w.bnf[1].n > 0);
    assert_int_equal(fp_fault_fired("mgr.sync"), 2); /* of chunks; a block of them is many */
    run(false);
    assert_int_equal(fp_fault_fired("mgr.sync"), 2);
    fp_fault_set(NULL);
    w_close(&w);
}

static void test_numbers_that_are_kept_are_no_garbage_and_others_are(void **state)
{
    Fp__InventoryReply inv = FP__INVENTORY_REPLY__INIT;
    uint64_t id;

    (void)state;
    w_open(&w, ":memory:", 1);
    begin();
    run(true);
    id = w.bnf[0].task[0]->slices[0]->chunk;
    inv.eof = true;
    inv.n_ids = 1;
    inv.ids = &id;
    fix_answer(&w.f, w.bnf[0].conn, FP__MSG_TYPE__MSG_INVENTORY, 0, &inv);
    assert_int_equal(e_sql("SELECT count(*) FROM garbage"), 0);
    /* it comes anew: what it was told is given out under other numbers */
    w_bnf_dies(&w, 0);
    w_bnf_comes(&w, 0);
    run(true);
    assert_int_equal(parts(0), 3);
    for (size_t k = 0; k < w.bnf[0].n; k++)
        assert_true(w.bnf[0].task[k]->slices[0]->chunk > id + 40);
    fix_answer(&w.f, w.bnf[0].conn, FP__MSG_TYPE__MSG_INVENTORY, 0, &inv);
    assert_int_equal(e_sql("SELECT count(*) FROM garbage WHERE chunk=%llu", (unsigned long long)id), 1);
    run(false);
    assert_int_equal(named(), 1);
    w_close(&w);
}

static void test_what_comes_late_is_garbage(void **state)
{
    Fp__Task *old;

    (void)state;
    w_open(&w, ":memory:", 2);
    begin();
    run(true);
    assert_true(parts(0) > 0);
    old = take(0, 0);
    /* the file has changed: the attempt is over */
    staged(0, old, -ESTALE);
    assert_int_equal(e_sql("SELECT count(*) FROM inode WHERE nlink=0"), 0);
    staged(0, old, 0);
    assert_true(e_sql("SELECT count(*) FROM garbage") >= (int64_t)old->n_slices - 1);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk"), 0);
    fix_free(old);
    run(false);
    assert_int_equal(named(), 1);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk"), 40);
    w_close(&w);
}

static void test_one_that_is_away_loses_its_parts_to_others(void **state)
{
    (void)state;
    w_open(&w, ":memory:", 2);
    begin();
    run(true);
    assert_true(parts(1) > 0);
    w_bnf_dies(&w, 1);
    for (int i = 0; i < 30; i++)
        w_tick(&w, 500);
    run(false);
    assert_int_equal(named(), 1);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk WHERE bnf=%u", w.bnf[0].id), 40);
    w_close(&w);
}

static void test_a_name_that_somebody_makes_meanwhile_stays(void **state)
{
    uint64_t ino;

    (void)state;
    w_open(&w, ":memory:", 1);
    begin();
    run(true);
    ino = fix_mk(&w.f, MGR_ROOT_INO, "f", S_IFREG | 0600);
    assert_true(ino > 0);
    run(false);
    assert_int_equal(e_sql("SELECT ino FROM dirent WHERE name=x'66'"), ino);
    assert_int_equal(e_sql("SELECT state FROM drain_job"), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(e_sql("SELECT count(*) FROM inode WHERE nlink=0"), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk"), 0);
    w_close(&w);
}

/* A benefactor of 1 GiB that is full, with a file that is drained. */
static uint64_t begin_without_room(const char *policy)
{
    uint64_t ino, job;

    w_open(&w, ":memory:", 1);
    ino = fix_mk(&w.f, MGR_ROOT_INO, "old", S_IFREG | 0600);
    assert_true(fix_write(&w.f, ino, 0, MIB) > 0);
    if (policy)
        w_policy(&w, policy);
    w_start(&w, "old", false, NULL);
    w_run(&w);
    w.free_bytes = 70 * MIB;
    w_tick(&w, 1000);
    job = begin();
    for (int i = 0; i < 3; i++) /* it is listed, and what may go is evicted */
        run(false);
    assert_int_equal(named(), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk WHERE bnf=0"), policy != NULL);
    return job;
}

static void test_without_room_it_waits_while_something_gives_way(void **state)
{
    uint64_t job;

    (void)state;
    job = begin_without_room("to=/pfs");
    assert_int_equal(e_state_of(job, "waits for room"), FP__DRAIN_STATE__DRAIN_RUNS);
    for (int i = 0; i < 10; i++) { /* as long as that goes on */
        w.f.core->drain->moved++;
        for (int k = 0; k < 30; k++)
            w_tick(&w, 1000);
    }
    assert_int_equal(e_state_of(job, "waits for room"), FP__DRAIN_STATE__DRAIN_RUNS);
    w.free_bytes = 0;
    w_tick(&w, 1000);
    run(false);
    assert_int_equal(named(), 1);
    assert_int_equal(e_state_of(job, NULL), FP__DRAIN_STATE__DRAIN_DONE);
    w_close(&w);
}

static void test_without_room_it_fails_when_nothing_has_given_way_for_a_minute(void **state)
{
    uint64_t job;

    (void)state;
    job = begin_without_room("to=/pfs");
    for (int k = 0; k < 62; k++)
        w_tick(&w, 1000);
    assert_int_equal(e_state_of(job, "room"), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(e_sql("SELECT count(*) FROM inode WHERE nlink=0"), 0);
    w_close(&w);
}

static void test_without_room_or_policy_it_fails_at_once(void **state)
{
    (void)state;
    assert_int_equal(e_state_of(begin_without_room(NULL), "room"), FP__DRAIN_STATE__DRAIN_FAILED);
    w_close(&w);
}

/* It has said that there is room, and has none when it is to store something. */
static void test_a_benefactor_without_room_is_asked_again_later(void **state)
{
    Fp__Task *t;
    uint64_t job;

    (void)state;
    w_open(&w, ":memory:", 1);
    w_policy(&w, "to=/pfs");
    job = begin();
    run(true);
    for (int i = 0; i < 3; i++) {
        t = take(0, 0);
        staged(0, t, -ENOSPC);
        fix_free(t);
        assert_int_equal(parts(0), 2);
        w_answer(&w, 0, 0);
        assert_int_equal(parts(0), 2);
        run(true);
        assert_int_equal(parts(0), 3);
    }
    run(false);
    assert_int_equal(named(), 1);
    assert_int_equal(e_state_of(job, NULL), FP__DRAIN_STATE__DRAIN_DONE);
    w_close(&w);
}

static void test_what_does_not_lie_below_the_target_that_is_named_is_told_so(void **state)
{
    Fp__CtlStage m = FP__CTL_STAGE__INIT;
    ProtobufCBinaryData path = fix_bin("/elsewhere/f");
    Fp__CtlStageReply *r;

    (void)state;
    w_open(&w, ":memory:", 1);
    m.op = FP__STAGE_OP__STAGE_OP_IN;
    m.foreign = true;
    m.paths = &path;
    m.n_paths = 1;
    m.root = (char *)(uintptr_t) "/pfs";
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_STAGE, &m, &fp__ctl_stage_reply__descriptor);
    assert_int_equal(r->n_why, 1);
    assert_string_equal(r->why[0], "/elsewhere/f does not lie below --target /pfs: give the directory above it");
    assert_int_equal(r->job, 0);
    fix_free(r);
    m.root = (char *)(uintptr_t) "";
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_STAGE, &m, &fp__ctl_stage_reply__descriptor);
    assert_int_equal(r->n_why, 1);
    assert_non_null(strstr(r->why[0], "say with --target"));
    fix_free(r);
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_is_shared_out_and_named_when_it_is_whole),
        cmocka_unit_test(test_numbers_are_synced_before_anybody_is_told_of_them),
        cmocka_unit_test(test_numbers_that_are_kept_are_no_garbage_and_others_are),
        cmocka_unit_test(test_what_comes_late_is_garbage),
        cmocka_unit_test(test_one_that_is_away_loses_its_parts_to_others),
        cmocka_unit_test(test_a_name_that_somebody_makes_meanwhile_stays),
        cmocka_unit_test(test_without_room_it_waits_while_something_gives_way),
        cmocka_unit_test(test_without_room_it_fails_when_nothing_has_given_way_for_a_minute),
        cmocka_unit_test(test_without_room_or_policy_it_fails_at_once),
        cmocka_unit_test(test_a_benefactor_without_room_is_asked_again_later),
        cmocka_unit_test(test_what_does_not_lie_below_the_target_that_is_named_is_told_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
