/* Evicting in the manager: what is drained gives its space back, is read from the target, comes back, and goes again; and whatever happens to the file, its
 * copy or a benefactor in between, nothing is named that is not there. */
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

#include "manager/ext.h"
#include "mgr_evict_world.h"
#include "fp/err.h"

/* ---------------------------------------------------------------- decisions */

static void test_which_chunks_may_go(void **state)
{
    struct mgr_evict_fact f = {.refs = 1, .bnf = 2, .len = 100, .slice_len = 100, .off = 7};

    (void)state;
    assert_int_equal(mgr_evict_chunk(&f), MGR_EVICT_OK);
    f.refs = 2;
    assert_int_equal(mgr_evict_chunk(&f), MGR_EVICT_SHARED);
    f.refs = 1;
    f.data = 300;
    assert_int_equal(mgr_evict_chunk(&f), MGR_EVICT_CODED);
    f.data = 0;
    f.slice_len = 99;
    assert_int_equal(mgr_evict_chunk(&f), MGR_EVICT_PART);
    f.slice_len = 100;
    f.chunk_off = 1;
    assert_int_equal(mgr_evict_chunk(&f), MGR_EVICT_PART);
    f.bnf = 0;
    assert_int_equal(mgr_evict_chunk(&f), MGR_EVICT_GONE);
}

static void test_which_files_may_go(void **state)
{
    struct mgr_evict_file f = {.level = FP__LEVEL__LEVEL_DRAINED, .keep = 2};
    bool wait;

    (void)state;
    assert_null(mgr_evict_file(&f, &wait));
    f.opens = 1;
    assert_non_null(mgr_evict_file(&f, &wait));
    assert_true(wait);
    f.opens = 0;
    f.unsettled = true;
    assert_non_null(mgr_evict_file(&f, &wait));
    assert_true(wait);
    f.unsettled = false;
    f.set_state = FP__CKPT_STATE__CKPT_OPEN;
    assert_non_null(mgr_evict_file(&f, &wait));
    assert_false(wait);
    f.set_state = FP__CKPT_STATE__CKPT_COMPLETE;
    f.newer = 1;
    assert_non_null(mgr_evict_file(&f, &wait));
    f.newer = 2;
    assert_null(mgr_evict_file(&f, &wait));
    f.set_state = FP__CKPT_STATE__CKPT_TORN;
    f.newer = 0;
    assert_null(mgr_evict_file(&f, &wait));
    f.level = FP__LEVEL__LEVEL_NONE;
    assert_non_null(mgr_evict_file(&f, &wait));
}

/* ---------------------------------------------------------------- there and back */

static void test_what_is_drained_goes_and_comes_back(void **state)
{
    Fp__SliceMapReply *r;
    uint64_t ino, stored;

    (void)state;
    e_open_world(&ino);
    stored = (uint64_t)e_sql("SELECT stored FROM benefactor WHERE id=%u", w.bnf[0].id);
    assert_true(stored > 2 * MIB);
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 3);
    assert_int_equal(e_sql("SELECT stored FROM benefactor WHERE id=%u", w.bnf[0].id), 0);
    assert_int_equal(e_sql("SELECT garbage_bytes FROM benefactor WHERE id=%u", w.bnf[0].id), stored);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_DRAINED);
    r = e_map_of(ino);
    assert_int_equal(r->n_slices, 3);
    assert_int_equal(r->n_ext_files, 1);
    assert_string_equal(r->ext_files[0]->root, "/pfs");
    assert_int_equal(r->ext_files[0]->path.len, 1);
    assert_memory_equal(r->ext_files[0]->path.data, "a", 1);
    assert_int_equal(r->ext_files[0]->size_bytes, 2 * MIB + 1000);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(r->slices[i]->bnf, 0);
        assert_int_equal(r->slices[i]->ext, 1);
        assert_int_equal(r->slices[i]->ext_off, i * MIB);
        assert_int_equal(r->slices[i]->chunk_sum, r->slices[i]->chunk * UINT64_C(0x9E3779B97F4A7C15));
    }
    fix_free(r);
    e_deleted();
    /* the second benefactor fetches one */
    assert_true(e_staged(1, e_chunk_of(ino, 1)));
    assert_true(e_staged(1, e_chunk_of(ino, 1))); /* told again */
    assert_false(e_staged(0, e_chunk_of(ino, 1))); /* and another one has, too */
    assert_int_equal(e_sql("SELECT count(*) FROM garbage WHERE bnf=%u", w.bnf[0].id), 1);
    assert_int_equal(e_external(ino), 2);
    r = e_map_of(ino);
    assert_int_equal(r->slices[1]->bnf, w.bnf[1].id);
    assert_int_equal(r->slices[1]->ext, 0);
    fix_free(r);
    assert_int_equal(e_sql("SELECT stored FROM benefactor WHERE id=%u", w.bnf[1].id), 8192);
    /* what has come back goes again, without a copy */
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 3);
    assert_int_equal(w.renamed, 1);
    w_close(&w);
}

static void test_what_may_not_go_stays(void **state)
{
    uint64_t ino, other;

    (void)state;
    e_open_world(&ino);
    other = e_file_of(MGR_ROOT_INO, "b");
    assert_int_equal(e_evict("b", "not in a target"), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(e_external(other), 0);
    /* a window is shared, one is cut */
    assert_int_equal(fix_clone(&w.f, ino, other, 0, MIB), 0);
    assert_int_equal(e_evict("a", "1 MiB of it stays here, in chunks that other files or versions share (1)"), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 2);
    assert_int_equal(e_external(other), 0);
    assert_int_equal(e_sql("SELECT bytes_done FROM drain_job WHERE kind=7 AND state=4"), MIB + 1000); /* what has gone */
    assert_int_equal(e_sql("SELECT bytes-bytes_done FROM drain_job WHERE kind=7 AND state=4"), MIB);
    /* open */
    e_drain("b");
    assert_int_equal(mgr_hold(w.f.core, mgr_session_find(w.f.core, w.f.session), other, false), 0);
    assert_int_equal(e_evict("b", "open"), FP__DRAIN_STATE__DRAIN_FAILED);
    mgr_unhold(w.f.core, mgr_session_find(w.f.core, w.f.session), other, false);
    assert_int_equal(e_evict("b", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(other), 3); /* the one that they share, too: the other file may go as well */
    w_close(&w);
}

static void test_a_file_of_which_nothing_goes_is_not_evicted(void **state)
{
    uint64_t ino, other;

    (void)state;
    e_open_world(&ino);
    other = fix_mk(&w.f, MGR_ROOT_INO, "b", S_IFREG | 0644);
    assert_int_equal(fix_clone(&w.f, ino, other, 0, 3 * MIB), 0);
    assert_int_equal(e_evict("a", "2 MiB of it stays here, in chunks that other files or versions share (3)"), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(e_sql("SELECT bytes_done+files_done FROM drain_job WHERE kind=7"), 0);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_DRAINED);
    w_close(&w);
}

static void test_the_newest_complete_sets_stay(void **state)
{
    uint64_t run, ino[3];

    (void)state;
    w_open(&w, ":memory:", 2);
    run = fix_mk(&w.f, MGR_ROOT_INO, "run", S_IFDIR | 0755);
    for (unsigned i = 0; i < 3; i++) {
        char name[32];

        snprintf(name, sizeof name, "chk_%u", i + 1);
        ino[i] = e_file_of(fix_mk(&w.f, run, name, S_IFDIR | 0755), "rank_0");
        w_tick(&w, 5000);
    }
    assert_int_equal(e_sql("SELECT count(*) FROM ckpt_set WHERE state=2"), 3);
    e_drain("run");
    assert_int_equal(e_evict("run", "run/chk_2/rank_0, and 1 more: it is one of the newest complete sets"), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino[0]), 3);
    assert_int_equal(e_external(ino[1]), 0);
    assert_int_equal(e_external(ino[2]), 0);
    assert_int_equal(e_sql("SELECT files=3 AND files_done=1 FROM drain_job WHERE kind=7"), 1);
    assert_int_equal(e_evict("run/chk_2", "run/chk_2/rank_0: it is one of the newest complete sets"), FP__DRAIN_STATE__DRAIN_FAILED); /* nothing has gone */
    assert_int_equal(e_evict("run", "and 1 more"), FP__DRAIN_STATE__DRAIN_DONE); /* what went before counts */
    w_close(&w);
}

/* Of these steps, complete in this order, and drained. */
static void sets_of(const unsigned *step, unsigned n, uint64_t *ino)
{
    uint64_t run;

    w_open(&w, ":memory:", 2);
    run = fix_mk(&w.f, MGR_ROOT_INO, "run", S_IFDIR | 0755);
    for (unsigned i = 0; i < n; i++) {
        char name[32];

        snprintf(name, sizeof name, "chk_%u", step[i]);
        ino[i] = e_file_of(fix_mk(&w.f, run, name, S_IFDIR | 0755), "rank_0");
        w_tick(&w, 5000);
    }
    assert_int_equal(e_sql("SELECT count(*) FROM ckpt_set WHERE state=2"), n);
    e_drain("run");
}

static void test_a_policy_says_how_many_sets_stay(void **state)
{
    static const unsigned steps[] = {1, 2, 3, 4, 5};
    uint64_t ino[5];

    (void)state;
    sets_of(steps, 5, ino);
    w_policy(&w, "to=/pfs keep=4");
    w_policy(&w, "to=/pfs keep=1 every=none results=none.h5");
    assert_int_equal(e_evict("run", "newest complete sets"), FP__DRAIN_STATE__DRAIN_DONE);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(e_external(ino[i]), i == 0 ? 3 : 0);
    w_policy_change(&w, NULL, 1, NULL);
    assert_int_equal(e_evict("run", "newest complete sets"), FP__DRAIN_STATE__DRAIN_DONE);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(e_external(ino[i]), i < 4 ? 3 : 0);
    w_close(&w);
}

/* A job was killed while it wrote the last one: the two whole ones before it stay. */
static void test_half_of_a_set_keeps_none_of_its_place(void **state)
{
    static const unsigned steps[] = {1, 2, 3, 4};
    uint64_t ino[4];

    (void)state;
    sets_of(steps, 4, ino);
    e_sql("UPDATE ckpt_set SET files_before=2 WHERE step=4");
    assert_int_equal(e_evict("run", "newest complete sets"), FP__DRAIN_STATE__DRAIN_DONE);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(e_external(ino[i]), i == 0 ? 3 : 0);
    w_close(&w);
}

static void test_a_run_that_goes_back_keeps_what_it_wrote_last(void **state)
{
    static const unsigned steps[] = {10, 20, 30, 40, 11, 12};
    static const bool stays[] = {false, false, true, true, true, true};
    uint64_t ino[6];

    (void)state;
    sets_of(steps, 6, ino);
    assert_int_equal(e_evict("run", "newest complete sets"), FP__DRAIN_STATE__DRAIN_DONE);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(e_external(ino[i]), stays[i] ? 0 : 3);
    w_close(&w);
}

/* ---------------------------------------------------------------- the copy is another */

static void test_a_copy_that_is_gone_keeps_the_file_here(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    w_find(&w, "a")->used = false;
    assert_int_equal(e_evict("a", "drain it again"), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_NONE);
    e_drain("a");
    w_find(&w, "a")->ino++;
    assert_int_equal(e_evict("a", "drain it again"), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(e_external(ino), 0);
    e_drain("a");
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 3);
    w_close(&w);
}

static void test_what_is_lost_here_is_fetched_again(void **state)
{
    uint64_t ino, c0, c1;
    Fp__InventoryReply inv = FP__INVENTORY_REPLY__INIT;

    (void)state;
    e_open_evicted(&ino);
    c0 = e_chunk_of(ino, 0);
    c1 = e_chunk_of(ino, 1);
    assert_true(e_staged(1, c0) && e_staged(1, c1));
    e_bad(c0, w.bnf[1].id, "checksum");
    assert_int_equal(e_external(ino), 2);
    assert_int_equal(e_sql("SELECT count(*) FROM garbage"), 0); /* nobody has looked at the target lately: what is here stays until another copy is */
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk WHERE missing=%d", MGR_BAD_LOOK), 1); /* which somebody does now */
    /* it comes back without the other one */
    w_bnf_dies(&w, 1);
    w_bnf_comes(&w, 1);
    inv.eof = true;
    fix_answer(&w.f, w.bnf[1].conn, FP__MSG_TYPE__MSG_INVENTORY, 0, &inv);
    assert_int_equal(e_external(ino), 3);
    assert_int_equal(e_sql("SELECT chunks FROM benefactor WHERE id=%u", w.bnf[1].id), 0);
    w_run(&w);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    w_close(&w);
}

/* It has fetched one, and died before it could tell. */
static void test_a_fetch_that_nobody_was_told_of_is_found(void **state)
{
    Fp__InventoryReply inv = FP__INVENTORY_REPLY__INIT;
    uint64_t ino, c0;

    (void)state;
    e_open_evicted(&ino);
    c0 = e_chunk_of(ino, 0);
    w_bnf_dies(&w, 1);
    w_bnf_comes(&w, 1);
    inv.eof = true;
    inv.n_ids = 1;
    inv.ids = &c0;
    fix_answer(&w.f, w.bnf[1].conn, FP__MSG_TYPE__MSG_INVENTORY, 0, &inv);
    assert_int_equal(e_sql("SELECT count(*) FROM garbage"), 0);
    assert_int_equal(e_external(ino), 2);
    assert_true(e_staged(1, c0)); /* told late */
    assert_int_equal(e_external(ino), 2);
    /* another has it, too: one of them is enough */
    w_bnf_dies(&w, 0);
    w_bnf_comes(&w, 0);
    fix_answer(&w.f, w.bnf[0].conn, FP__MSG_TYPE__MSG_INVENTORY, 0, &inv);
    assert_int_equal(e_sql("SELECT count(*) FROM garbage WHERE bnf=%u AND chunk=%llu", w.bnf[0].id, (unsigned long long)c0), 1);
    /* told while that is being deleted: which one goes is not known */
    assert_false(e_staged(0, c0));
    assert_false(e_staged(1, 0x7777)); /* no chunk of ours */
    w_close(&w);
}

/* It was asked to sync all that it has. */
static void sync_round(unsigned bnf)
{
    Fp__BnfSyncReply r = FP__BNF_SYNC_REPLY__INIT;

    for (unsigned i = 0; i < 20 && !fix_out_find(&w.f, w.bnf[bnf].conn, FP__MSG_TYPE__MSG_BNF_SYNC_ALL); i++)
        fix_tick(&w.f, 500);
    fix_answer(&w.f, w.bnf[bnf].conn, FP__MSG_TYPE__MSG_BNF_SYNC_ALL, 0, &r);
}

/* ---------------------------------------------------------------- the file changes */

static void test_what_is_written_over_goes_and_takes_its_rows_along(void **state)
{
    uint64_t ino, job;

    (void)state;
    e_open_evicted(&ino);
    assert_true(fix_write(&w.f, ino, 0, MIB) > 0);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_NONE);
    assert_int_equal(e_external(ino), 2);
    assert_int_equal(e_sql("SELECT count(*) FROM ext"), 2);
    assert_int_equal(fix_truncate(&w.f, ino, MIB + 10), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM ext"), 1);
    /* to copy it takes the place of the only copy of its second window: that is brought back before */
    job = w_start(&w, "a", false, NULL);
    e_come_to(FP__TASK_KIND__TASK_FETCH);
    assert_int_equal(w.renamed, 1);
    assert_int_equal(e_late->n_slices, 1);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_file WHERE state BETWEEN 2 AND 5 AND job IN (SELECT id FROM drain_job WHERE kind=2)"), 0);
    e_go_on();
    assert_int_equal(e_run_job(job, NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(w.renamed, 2);
    assert_int_equal(fix_unlink(&w.f, MGR_ROOT_INO, "a", false), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM ext"), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM tfile"), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM drained"), 0);
    w_close(&w);
}

/* A clone of evicted data needs the target's file, too: nothing is renamed over that. */
static void test_a_copy_that_another_file_needs_is_not_replaced(void **state)
{
    uint64_t ino, other;

    (void)state;
    e_open_evicted(&ino);
    other = fix_mk(&w.f, MGR_ROOT_INO, "b", S_IFREG | 0644);
    assert_int_equal(fix_clone(&w.f, ino, other, 0, 3 * MIB), 0);
    assert_int_equal(e_external(other), 3);
    for (unsigned i = 0; i < 3; i++)
        assert_true(fix_write(&w.f, ino, i * (uint64_t)MIB, i == 2 ? 1000 : MIB) > 0);
    assert_int_equal(e_external(ino), 0);
    assert_true(w_start(&w, "a", false, NULL) > 0);
    w_run(&w);
    assert_int_equal(w.renamed, 1);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job WHERE state=5 AND why LIKE '%%another file%%'"), 1);
    for (unsigned i = 0; i < 3; i++)
        assert_true(e_staged(1, e_chunk_of(other, i)));
    /* they are here, in the memory of a node: not as safe as they were */
    assert_true(w_start(&w, "a", false, NULL) > 0);
    w_run(&w);
    assert_int_equal(w.renamed, 1);
    sync_round(1);
    e_drain("a");
    assert_int_equal(w.renamed, 2);
    /* what was there is not there any more: they stay here */
    e_bad(e_chunk_of(other, 0), w.bnf[1].id, "checksum");
    assert_int_equal(e_external(other), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 1);
    w_close(&w);
}

/* Of an evicted file: 20000 windows more, that were evicted, too. */
static void make_large(uint64_t ino)
{
    e_sql("CREATE TEMP TABLE more AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<20000) SELECT i FROM n");
    e_sql("INSERT INTO chunk SELECT c.id+1000+m.i,c.len,c.stored,c.sum,1,0,0,0,0 FROM more m, (SELECT * FROM chunk ORDER BY id DESC LIMIT 1) c");
    e_sql("INSERT INTO slice(ino,win,off,len,chunk,chunk_off) SELECT %llu,2+i,0,1000,(SELECT max(chunk) FROM slice)+1000+i,0 FROM more", (unsigned long long)ino);
    e_sql("INSERT INTO ext(chunk,tfile,off) SELECT chunk,(SELECT tfile FROM ext LIMIT 1),win FROM slice WHERE win>2");
    e_sql("UPDATE tfile SET refs=refs+20000");
    e_sql("UPDATE inode SET size=size+20000*1048576,mapped=mapped+20000000 WHERE ino=%llu", (unsigned long long)ino);
    e_sql("DROP TABLE more");
    e_sql("UPDATE counters SET chunks=chunks+20000, slices=slices+20000");
    w.f.core->n.chunks += 20000;
    w.f.core->n.slices += 20000;
}

/* What the file was waits for what it is to be drained, to where it is itself, and nowhere else: it goes, or both would wait for ever. */
static void test_a_version_that_is_in_the_target_gives_way_to_the_next(void **state)
{
    Fp__Open m = FP__OPEN__INIT;
    Fp__Release r = FP__RELEASE__INIT;
    uint64_t ino;

    (void)state;
    for (int here = 0; here < 3; here++) { /* or it was fetched, and is not synced here; or it is so large that it does not go in one group */
        fix_versions = true;
        e_open_world(&ino);
        w_policy(&w, "to=/pfs every=none results=a keep=1 level=drained");
        assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
        e_deleted();
        for (unsigned i = 0; i < 3 && here == 1; i++)
            assert_true(e_staged(1, e_chunk_of(ino, i)));
        if (here == 2)
            make_large(ino);
        m.ino = ino;
        m.write = true;
        fix_free(fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
        assert_int_equal(fix_truncate(&w.f, ino, 0), 0);
        assert_true(fix_write(&w.f, ino, 0, 1000) > 0);
        r.n_write_ino = 1;
        r.write_ino = &ino;
        fix_notice(&w.f, w.f.conn, FP__MSG_TYPE__MSG_RELEASE, &r);
        assert_int_equal(e_sql("SELECT count(*) FROM version WHERE state=2"), 1);
        w_tick(&w, 3000);
        w_run(&w);
        assert_int_equal(e_sql("SELECT count(*) FROM version"), 0);
        assert_int_equal(e_sql("SELECT count(*) FROM drain_job WHERE state=5"), 0);
        assert_int_equal(w.renamed, 2);
        assert_true(e_level(ino) >= FP__LEVEL__LEVEL_DRAINED);
        fix_versions = false;
        w_close(&w);
    }
}

/* A file cloned together from very many evicted ones with long names: its map comes in pieces that are messages. */
static void test_a_map_of_many_files_of_a_target_comes_in_pieces(void **state)
{
    enum { WINDOWS = 700 };
    uint64_t ino, at = 0;
    unsigned asked = 0;

    (void)state;
    e_open_world(&ino);
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    ino = fix_mk(&w.f, MGR_ROOT_INO, "many", S_IFREG | 0644);
    for (uint64_t i = 0; i < WINDOWS; i++)
        assert_true(fix_write(&w.f, ino, i * MIB, 5000) > 0);
    e_sql("INSERT INTO tfile(id,target,path,dev,tino,size,mtime,refs,gone) SELECT 10000+chunk,1,zeroblob(4000),1,chunk,5000,1,1,0 FROM slice WHERE ino=%llu",
          (unsigned long long)ino);
    e_sql("INSERT INTO ext(chunk,tfile,off) SELECT chunk,10000+chunk,0 FROM slice WHERE ino=%llu", (unsigned long long)ino);
    e_sql("UPDATE chunk SET bnf=0,stored=0 WHERE id IN (SELECT chunk FROM slice WHERE ino=%llu)", (unsigned long long)ino);
    e_sql("UPDATE benefactor SET chunks=(SELECT count(*) FROM chunk WHERE bnf=benefactor.id),stored=(SELECT ifnull(sum(stored),0) FROM chunk WHERE bnf=benefactor.id)");
    assert_int_equal(e_external(ino), WINDOWS);
    for (; at < WINDOWS; asked++) {
        Fp__SliceMap m = FP__SLICE_MAP__INIT;
        Fp__SliceMapReply *r;

        m.ino = ino;
        m.win_from = at;
        m.win_count = WINDOWS - at;
        r = fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_SLICEMAP, &m, &fp__slice_map_reply__descriptor);
        assert_non_null(r);
        assert_true(fp__slice_map_reply__get_packed_size(r) < 2 * MIB);
        assert_int_equal(r->win_end - at, r->n_slices);
        assert_true(r->n_slices > 0);
        for (size_t i = 0; i < r->n_slices; i++) {
            assert_int_equal(r->slices[i]->win, at + i);
            assert_in_range(r->slices[i]->ext, 1, r->n_ext_files);
            assert_int_equal(r->ext_files[r->slices[i]->ext - 1]->path.len, 4000);
        }
        at = r->win_end;
        fix_free(r);
    }
    assert_int_equal(at, WINDOWS);
    assert_true(asked > 1);
    w_close(&w);
}

/* ---------------------------------------------------------------- staging in */

static void test_what_was_evicted_is_staged_in(void **state)
{
    uint64_t ino, other;

    (void)state;
    e_open_evicted(&ino);
    assert_int_equal(e_stage_in("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(w.fetched, 3);
    assert_int_equal(e_stage_in("a", NULL), FP__DRAIN_STATE__DRAIN_DONE); /* nothing to do */
    assert_int_equal(w.fetched, 3);
    /* a file with chunks in two files of the target, one of them cut in two */
    other = e_file_of(MGR_ROOT_INO, "b");
    e_drain("b");
    assert_int_equal(e_evict("b", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    e_deleted();
    assert_int_equal(fix_clone(&w.f, ino, other, 0, MIB), 0);
    assert_true(fix_write(&w.f, other, MIB + 1000, 1000) > 0);
    assert_int_equal(e_external(other), 4);
    assert_int_equal(e_stage_in("b", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(other), 0);
    assert_int_equal(e_external(ino), 2); /* the first chunk is theirs together */
    e_drain("b");
    w_close(&w);
}

/* Its benefactor has it still, and is to delete it: what it fetches is not taken before that. */
static void test_what_is_still_to_be_deleted_is_not_asked_for_all_the_time(void **state)
{
    uint64_t ino, job;

    (void)state;
    w_open(&w, ":memory:", 1);
    ino = e_file_of(MGR_ROOT_INO, "a");
    e_drain("a");
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    job = e_stage_begin("a", FP__STAGE_OP__STAGE_OP_IN);
    for (int i = 0; i < 60; i++) { /* half a minute */
        w_answer(&w, 0, 0);
        while (w.bnf[0].n)
            w_work(&w, 0, 0);
        w_tick(&w, 500);
    }
    assert_true(w.fetched >= 3 * 5 && w.fetched <= 3 * 13);
    assert_int_equal(e_external(ino), 3);
    e_deleted();
    assert_int_equal(e_run_job(job, NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 0);
    w_close(&w);
}

static void test_staging_in_what_is_gone_fails(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_evicted(&ino);
    w_find(&w, "a")->ino++;
    assert_int_equal(e_stage_in("a", "another file"), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(e_external(ino), 3);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_NONE);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 3); /* known to be lost before anybody reads it */
    w_close(&w);
}

/* ---------------------------------------------------------------- beside drains */

/* Else the part that is told afterwards would be written without it, over the only copy. It is brought back, and the file copied from the beginning. */
static void test_a_chunk_that_is_lost_here_ends_an_attempt_to_drain_its_file(void **state)
{
    uint64_t ino, job;

    (void)state;
    e_open_evicted(&ino);
    assert_true(e_staged(1, e_chunk_of(ino, 0)) && e_staged(1, e_chunk_of(ino, 1)) && e_staged(1, e_chunk_of(ino, 2)));
    assert_true(fix_write(&w.f, ino, 2 * MIB, 1000) > 0); /* another version */
    job = w_start(&w, "a", false, NULL);
    e_come_to(FP__TASK_KIND__TASK_WRITE);
    fp__task__free_unpacked(e_late, NULL);
    e_bad(e_chunk_of(ino, 0), w.bnf[1].id, "checksum");
    assert_int_equal(e_external(ino), 1);
    e_come_to(FP__TASK_KIND__TASK_FETCH);
    assert_int_equal(w.renamed, 1);
    e_go_on();
    assert_int_equal(e_run_job(job, NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(w.renamed, 2);
    w_close(&w);
}

/* What has the name in the target was not the only copy when the attempt began, and is when it would take its place. */
static void test_what_becomes_the_only_copy_meanwhile_is_not_replaced(void **state)
{
    uint64_t ino, other, job;

    (void)state;
    for (int verify = 0; verify < 2; verify++) {
        e_open_world(&ino);
        assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
        e_deleted();
        for (unsigned i = 0; i < 3; i++)
            assert_true(e_staged(1, e_chunk_of(ino, i)));
        e_synced();
        assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "a", MGR_ROOT_INO, "old", 0), 0);
        other = e_file_of(MGR_ROOT_INO, "a");
        job = w_start(&w, "a", verify, NULL);
        e_come_to(verify ? FP__TASK_KIND__TASK_VERIFY : FP__TASK_KIND__TASK_WRITE);
        e_bad(e_chunk_of(ino, 1), w.bnf[1].id, "checksum");
        assert_int_equal(e_external(ino), 1);
        e_go_on();
        assert_int_equal(e_run_job(job, "another file"), FP__DRAIN_STATE__DRAIN_FAILED);
        assert_int_equal(w.renamed, 1);
        assert_int_equal(e_external(ino), 1);
        assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
        assert_int_equal(e_sql("SELECT count(*) FROM tfile WHERE gone<>0"), 0);
        assert_int_equal(e_level(other), FP__LEVEL__LEVEL_NONE);
        /* here again, and safe */
        assert_int_equal(e_stage_in("old", NULL), FP__DRAIN_STATE__DRAIN_DONE);
        e_synced();
        e_drain("a");
        assert_int_equal(w.renamed, 2);
        w_close(&w);
    }
}

/* Somebody may still rename another file to the name of the copy. */
static void test_nothing_is_evicted_while_a_rename_may_come_late(void **state)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    uint64_t ino, job;

    (void)state;
    e_open_world(&ino);
    assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "a", MGR_ROOT_INO, "old", 0), 0);
    e_file_of(MGR_ROOT_INO, "a");
    m.id = w_start(&w, "a", false, NULL);
    e_come_to(FP__TASK_KIND__TASK_FINISH);
    m.op = FP__DRAIN_OP__DRAIN_OP_CANCEL;
    fix_free(fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_DRAIN, &m, &fp__ctl_drain_reply__descriptor));
    job = e_evict_begin("old");
    for (int i = 0; i < 20; i++) /* who is to remove the temporary file is slow */
        for (unsigned b = 0; b < 2; b++) {
            w_answer(&w, b, 0);
            for (size_t k = w.bnf[b].n; k-- > 0;)
                if (w.bnf[b].task[k]->kind != FP__TASK_KIND__TASK_CLEAN)
                    w_work(&w, b, k);
            w_tick(&w, 100);
            assert_int_equal(e_external(ino), 0);
        }
    assert_int_equal(e_run_job(job, NULL), FP__DRAIN_STATE__DRAIN_DONE); /* it is removed now */
    assert_int_equal(e_external(ino), 3);
    fp__task__free_unpacked(e_late, NULL);
    w_close(&w);
}

/* ---------------------------------------------------------------- in the middle */

static void test_a_restart_looks_again_and_goes_on(void **state)
{
    uint64_t ino, job;

    (void)state;
    w_open(&w, fix_path(), 2);
    ino = e_file_of(MGR_ROOT_INO, "a");
    e_drain("a");
    job = e_evict_begin("a");
    for (int i = 0; i < 20 && e_sql("SELECT count(*) FROM drain_file WHERE state=2 AND tfile>0 AND job=%llu", (unsigned long long)job) == 0; i++)
        w_tick(&w, 500);
    w_restart(&w);
    w_find(&w, "a")->size = 5;
    w_run(&w);
    assert_int_equal(e_sql("SELECT state FROM drain_job WHERE id=%llu", (unsigned long long)job), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(e_external(ino), 0);
    e_drain("a");
    job = e_evict_begin("a");
    w_restart(&w);
    w_run(&w);
    assert_int_equal(e_sql("SELECT state FROM drain_job WHERE id=%llu", (unsigned long long)job), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 3);
    w_restart(&w);
    fix_free(e_map_of(ino));
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_chunks_may_go),
        cmocka_unit_test(test_which_files_may_go),
        cmocka_unit_test(test_what_is_drained_goes_and_comes_back),
        cmocka_unit_test(test_what_may_not_go_stays),
        cmocka_unit_test(test_a_file_of_which_nothing_goes_is_not_evicted),
        cmocka_unit_test(test_the_newest_complete_sets_stay),
        cmocka_unit_test(test_a_policy_says_how_many_sets_stay),
        cmocka_unit_test(test_half_of_a_set_keeps_none_of_its_place),
        cmocka_unit_test(test_a_run_that_goes_back_keeps_what_it_wrote_last),
        cmocka_unit_test(test_a_copy_that_is_gone_keeps_the_file_here),
        cmocka_unit_test(test_what_is_lost_here_is_fetched_again),
        cmocka_unit_test(test_a_fetch_that_nobody_was_told_of_is_found),
        cmocka_unit_test(test_what_is_written_over_goes_and_takes_its_rows_along),
        cmocka_unit_test(test_a_copy_that_another_file_needs_is_not_replaced),
        cmocka_unit_test(test_a_version_that_is_in_the_target_gives_way_to_the_next),
        cmocka_unit_test(test_a_map_of_many_files_of_a_target_comes_in_pieces),
        cmocka_unit_test(test_what_was_evicted_is_staged_in),
        cmocka_unit_test(test_what_is_still_to_be_deleted_is_not_asked_for_all_the_time),
        cmocka_unit_test(test_staging_in_what_is_gone_fails),
        cmocka_unit_test(test_a_chunk_that_is_lost_here_ends_an_attempt_to_drain_its_file),
        cmocka_unit_test(test_what_becomes_the_only_copy_meanwhile_is_not_replaced),
        cmocka_unit_test(test_nothing_is_evicted_while_a_rename_may_come_late),
        cmocka_unit_test(test_a_restart_looks_again_and_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
