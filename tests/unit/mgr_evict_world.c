/* A store with files that are drained, evicted and fetched again (mgr_evict_world.h). */
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
#include "manager/level.h"
#include "mgr_evict_world.h"
#include "fp/err.h"

struct world w;

/* Written and closed: three windows, of which the last is short. */
uint64_t e_file_of(uint64_t parent, const char *name)
{
    uint64_t ino = fix_mk(&w.f, parent, name, S_IFREG | 0644);

    assert_true(ino > 0);
    for (unsigned i = 0; i < 3; i++)
        assert_true(fix_write(&w.f, ino, (uint64_t)i * MIB, i == 2 ? 1000 : MIB) > 0);
    return ino;
}

int64_t e_external(uint64_t ino)
{
    return e_sql("SELECT count(*) FROM slice s JOIN chunk c ON c.id=s.chunk WHERE s.ino=%llu AND c.bnf=0", (unsigned long long)ino);
}

void e_drain(const char *path)
{
    uint64_t job = w_start(&w, path, false, NULL);

    w_run(&w);
    assert_int_equal(e_sql("SELECT state FROM drain_job WHERE id=%llu", (unsigned long long)job), FP__DRAIN_STATE__DRAIN_DONE);
}

Fp__CtlStageReply *e_stage_ask(Fp__CtlStage *m, const char *path)
{
    ProtobufCBinaryData p = fix_bin(path);
    Fp__CtlStageReply *r;

    m->n_paths = 1;
    m->paths = &p;
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_STAGE, m, &fp__ctl_stage_reply__descriptor);
    assert_non_null(r);
    assert_true(w.f.durable);
    m->n_paths = 0; /* they end here */
    m->paths = NULL;
    return r;
}

uint64_t e_stage_begin(const char *path, Fp__StageOp op)
{
    Fp__CtlStage m = FP__CTL_STAGE__INIT;
    Fp__CtlStageReply *r;
    uint64_t job;

    m.op = op;
    r = e_stage_ask(&m, path);
    job = r->job;
    fix_free(r);
    return job;
}

uint64_t e_evict_begin(const char *path)
{
    return e_stage_begin(path, FP__STAGE_OP__STAGE_OP_EVICT);
}

Fp__DrainState e_state_of(uint64_t job, const char *why)
{
    Fp__CtlDrainReply *r = w_show(&w, job);
    Fp__DrainState s = r->jobs[0]->state;

    if (why && !strstr(r->jobs[0]->why, why))
        fail_msg("'%s' has no '%s'", r->jobs[0]->why, why);
    fix_free(r);
    return s;
}

Fp__DrainState e_run_job(uint64_t job, const char *why)
{
    assert_true(job > 0);
    w_run(&w);
    return e_state_of(job, why);
}

/* The state that its job comes to; why: a word of the reason. */
Fp__DrainState e_evict(const char *path, const char *why)
{
    return e_run_job(e_evict_begin(path), why);
}

Fp__DrainState e_stage_in(const char *path, const char *why)
{
    return e_run_job(e_stage_begin(path, FP__STAGE_OP__STAGE_OP_IN), why);
}

Fp__SliceMapReply *e_map_of(uint64_t ino)
{
    Fp__SliceMap m = FP__SLICE_MAP__INIT;
    Fp__SliceMapReply *r;

    m.ino = ino;
    m.win_count = 100;
    r = fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_SLICEMAP, &m, &fp__slice_map_reply__descriptor);
    assert_non_null(r);
    return r;
}

/* The k-th chunk of the file is told to be on benefactor i. True: taken. */
bool e_staged(size_t i, uint64_t chunk)
{
    Fp__TaskDone m = FP__TASK_DONE__INIT;
    Fp__Staged s = FP__STAGED__INIT, *ss = &s;
    Fp__TaskAck *ack;
    bool taken;

    s.chunk = chunk;
    s.stored_bytes = 8192;
    m.n_staged = 1;
    m.staged = &ss;
    ack = fix_call(&w.f, w.bnf[i].conn, FP__MSG_TYPE__MSG_TASK_DONE, &m, &fp__task_ack__descriptor);
    assert_non_null(ack);
    taken = ack->n_dropped == 0;
    assert_true(taken || ack->dropped[0] == chunk);
    fix_free(ack);
    return taken;
}

uint64_t e_chunk_of(uint64_t ino, unsigned win)
{
    return (uint64_t)e_sql("SELECT chunk FROM slice WHERE ino=%llu AND win=%u", (unsigned long long)ino, win);
}

void e_bad(uint64_t chunk, uint32_t bnf, const char *reason)
{
    Fp__BadChunk m = FP__BAD_CHUNK__INIT;

    m.chunk = chunk;
    m.bnf = bnf;
    m.reason = (char *)(uintptr_t)reason;
    fix_notice(&w.f, w.f.conn, FP__MSG_TYPE__MSG_BADCHUNK, &m);
}

Fp__Level e_level(uint64_t ino)
{
    struct mgr_inode in;

    assert_int_equal(mgr_inode_get(w.f.core, ino, &in), 0);
    return mgr_drained_level(w.f.core, &in);
}

/* The benefactors confirm what they were told to delete. */
void e_deleted(void)
{
    Fp__ChunkList l = FP__CHUNK_LIST__INIT;
    uint64_t ids[64];

    l.ids = ids;
    for (size_t i = 0; i < w.nbnf; i++) {
        for (l.n_ids = 0; l.n_ids < 64; l.n_ids++) {
            int64_t id = e_sql("SELECT chunk FROM garbage WHERE bnf=%u ORDER BY chunk LIMIT 1 OFFSET %zu", w.bnf[i].id, l.n_ids);

            if (id < 0)
                break;
            ids[l.n_ids] = (uint64_t)id;
        }
        fix_answer(&w.f, w.bnf[i].conn, FP__MSG_TYPE__MSG_DELETE, 0, &l);
    }
    assert_int_equal(e_sql("SELECT count(*) FROM garbage"), 0);
}

int64_t e_lost(enum mgr_bad how)
{
    return e_sql("SELECT count(*) FROM bad_chunk WHERE missing=%d", how);
}

Fp__Level e_level_of(uint64_t ino)
{
    uint32_t look = 1000;
    struct mgr_level l;
    struct mgr_inode in;

    assert_int_equal(mgr_inode_get(w.f.core, ino, &in), 0);
    assert_int_equal(mgr_level_file(w.f.core, &in, false, &look, &l), 0);
    return l.level;
}

/* The benefactor comes back, and has these chunks. */
void e_comes_back_with(unsigned bnf, uint64_t *ids, size_t n)
{
    Fp__InventoryReply inv = FP__INVENTORY_REPLY__INIT;

    w_bnf_comes(&w, bnf);
    inv.eof = true;
    inv.ids = ids;
    inv.n_ids = n;
    fix_answer(&w.f, w.bnf[bnf].conn, FP__MSG_TYPE__MSG_INVENTORY, 0, &inv);
}

void e_loses_all(unsigned bnf)
{
    w_bnf_dies(&w, bnf);
    e_comes_back_with(bnf, NULL, 0);
}

void e_remove_from(bool other)
{
    w.other = other;
    assert_non_null(w_find(&w, "a"));
    w_find(&w, "a")->used = false;
    w.other = false;
}

void e_drain_to(const char *to, bool verify)
{
    w.to = to;
    assert_int_equal(e_run_job(w_start(&w, "a", verify, NULL), NULL), FP__DRAIN_STATE__DRAIN_DONE);
    w.to = NULL;
}

int64_t e_external_in(const char *root)
{
    return e_sql("SELECT count(*) FROM chunk c JOIN ext e ON e.chunk=c.id JOIN tfile t ON t.id=e.tfile JOIN target g ON g.id=t.target WHERE c.bnf=0 AND g.root='%s'", root);
}

#define NOT_SYNCED "SELECT count(*) FROM chunk c LEFT JOIN bnf_sync s ON s.bnf=c.bnf WHERE c.bnf<>0 AND ifnull(c.round>=s.synced,1)"

/* All that is on benefactors is on their devices. */
void e_synced(void)
{
    Fp__BnfSyncReply r = FP__BNF_SYNC_REPLY__INIT;

    for (unsigned i = 0; i < 40 && e_sql(NOT_SYNCED); i++) {
        w_tick(&w, 500);
        for (unsigned b = 0; b < 2; b++)
            fix_answer(&w.f, w.bnf[b].conn, FP__MSG_TYPE__MSG_BNF_SYNC_ALL, 0, &r);
    }
    assert_int_equal(e_sql(NOT_SYNCED), 0);
}

Fp__Task *e_late;
struct w_bnf *e_late_of;

/* The drain of a file has come to this task of a benefactor; it is taken out, as of one that is slow. */
void e_come_to(Fp__TaskKind kind)
{
    for (int i = 0; i < 200; i++)
        for (unsigned b = 0; b < 2; b++) {
            w_answer(&w, b, 0);
            for (size_t k = 0; k < w.bnf[b].n; k++)
                if (w.bnf[b].task[k]->kind == kind) {
                    e_late = w.bnf[b].task[k];
                    e_late_of = &w.bnf[b];
                    w.bnf[b].task[k] = w.bnf[b].task[--w.bnf[b].n];
                    return;
                }
            if (w.bnf[b].n)
                w_work(&w, b, 0);
            w_tick(&w, 100);
        }
    fail();
}

/* It goes on with what was taken out. */
void e_go_on(void)
{
    e_late_of->task[e_late_of->n++] = e_late;
}

void e_check(void)
{
    assert_int_equal(e_sql("SELECT count(*) FROM tfile t WHERE refs != (SELECT count(*) FROM drained d WHERE d.tfile=t.id)+(SELECT count(*) FROM ext e WHERE e.tfile=t.id)"), 0);
    w_close(&w);
}

void e_open_world(uint64_t *ino)
{
    w_open(&w, ":memory:", 2);
    *ino = e_file_of(MGR_ROOT_INO, "a");
    e_drain("a");
}

void e_open_evicted(uint64_t *ino)
{
    e_open_world(ino);
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    e_deleted();
}
