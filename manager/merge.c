/* Logs of a target become files in it (fpctl merge): jobs of kind JOB_MERGE.
 *
 * A row is a log. The benefactors do all of it (drain/merge.c); what they have said is kept here:
 *
 *     wait -> prepare (the lead has looked at the index and all records, and made the temporary file) -> parts -> finish (attributes, rename) -> done
 *
 * A part is some records, as the index has them. It is given to whoever has least to do, as parts of files that are staged in are (foreign_part.c): so a slow
 * benefactor delays nobody, and one that dies loses its parts to others. With --verify the records are counted twice: from the number of records on they are
 * read back, and none of that is given out before all are written. The attempt is over when the log is another one (-ESTALE) or the temporary file is gone.
 *
 * What is renamed over is treated as for files that are drained: not while it is the only copy of something that was evicted; and what was drained there is so no more.
 * The file is no copy of anything in the store, whatever it was drained from: that may have changed since.
 *
 * Rejected: a job of fpctl's own, through mounts (it would end with the command); a level for the merged file (nothing says what version the log is of). */
#include <errno.h>
#include <string.h>

#include "fp/dlog.h"
#include "fp/drainopt.h"
#include "fp/err.h"
#include "manager/ext.h"
#include "manager/foreign.h"

#define TRIES_MAX 10u
#define refuse(c, r, ...) mgr_drain_refuse(c, &(r)->why, &(r)->n_why, __VA_ARGS__)

static uint64_t records_of(const struct mgr_dfile *f)
{
    return f->dev;
}

/* With those to be read back. */
static uint64_t all_of(const struct mgr_dfile *f)
{
    return records_of(f) * (f->verify ? 2 : 1);
}

/* Bytes of records: not known of each, so the same for all. Together they are the file's. */
static uint64_t up_to(const struct mgr_dfile *f, uint64_t record)
{
    uint64_t all = all_of(f);

    return f->size / all * record + f->size % all * record / all;
}

/* ---------------------------------------------------------------- what fpctl asks */

struct start {
    ProtobufCBinaryData log[MGR_DRAIN_PATHS_MAX], to[MGR_DRAIN_PATHS_MAX];
    uint32_t target;
    size_t n;                      /* of one target */
};

static int name_of(struct mgr_core *c, Fp__CtlStageReply *r, ProtobufCBinaryData log, ProtobufCBinaryData *to)
{
    size_t cut = sizeof FP_DLOG_SUFFIX - 1;

    *to = (ProtobufCBinaryData){log.len - cut, log.data};
    if (log.len <= cut || memcmp(log.data + log.len - cut, FP_DLOG_SUFFIX, cut) != 0 || log.data[log.len - cut - 1] == '/')
        return refuse(c, r, "%.*s: does not end in " FP_DLOG_SUFFIX ": say with --to what file to make of it", (int)log.len, (char *)log.data);
    return 0;
}

static int path_of(struct mgr_core *c, Fp__CtlStageReply *r, ProtobufCBinaryData in, struct start *s, ProtobufCBinaryData *out)
{
    const struct mgr_target *t;
    int rc = mgr_stage_path(c, r, in, out);

    if (rc || !out->data)
        return rc;
    t = mgr_target_of(c, out);
    r->elsewhere |= !t;
    if (!t)
        return refuse(c, r, "%.*s is in no target of this store", (int)in.len, (char *)in.data);
    if (s->target && s->target != t->id)
        return refuse(c, r, "%.*s: in another target than what is before it", (int)in.len, (char *)in.data);
    s->target = t->id;
    return 0;
}

/* In no target, or in another one than those before it: whoever asks does so for it alone. */
static bool is_of_others(struct mgr_core *c, const struct start *s, ProtobufCBinaryData in)
{
    Fp__CtlStageReply unused = FP__CTL_STAGE_REPLY__INIT;
    ProtobufCBinaryData path = {0};
    const struct mgr_target *t;

    if (mgr_stage_path(c, &unused, in, &path) || !path.data)
        return false; /* path_of says what is wrong with it */
    t = mgr_target_of(c, &path);
    return !t || t->id != s->target;
}

static int look_up(struct mgr_core *c, const Fp__CtlStage *m, Fp__CtlStageReply *r, struct start *s)
{
    int rc = 0;

    for (size_t i = 0; i < m->n_paths && !rc && !r->n_why && !(i && is_of_others(c, s, m->paths[i])); i++) {
        rc = path_of(c, r, m->paths[i], s, &s->log[i]);
        if (rc || r->n_why)
            break;
        s->n++;
        rc = m->dest.len ? path_of(c, r, m->dest, s, &s->to[i]) : name_of(c, r, s->log[i], &s->to[i]);
    }
    return rc;
}

static bool is_same(struct mgr_core *c, int col, ProtobufCBinaryData b)
{
    size_t len;
    const void *p = mgr_col_blob(&c->db, MGR_ST_MERGE_FIRST, col, &len);

    return len == b.len && (!len || memcmp(p, b.data, len) == 0);
}

/* The active job that has begun with the same; 0: none. */
static int same_job(struct mgr_core *c, const Fp__CtlStage *m, const struct start *s, uint64_t *id)
{
    const enum mgr_stmt st = MGR_ST_MERGE_FIRST;
    int rc = 0;

    *id = 0;
    for (size_t i = 0; i < c->drain->njobs && !*id && rc >= 0; i++) {
        const struct mgr_djob *j = &c->drain->jobs[i];
        size_t k = 0, same = 0;

        if (!mgr_djob_merges(j) || j->target != s->target || j->gen != s->n || j->verify != m->verify || j->overwrite != m->force)
            continue;
        for (rc = mgr_db_one(&c->db, MERGE_FIRST, DBI(j->first), DBI(s->n)); rc > 0; rc = mgr_db_step(&c->db, st), k++)
            same += is_same(c, 0, s->log[k]) && is_same(c, 2, s->to[k]) && (mgr_col(&c->db, st, 1) != 0) == m->overwrite;
        *id = same == s->n ? j->id : 0;
    }
    return rc < 0 ? rc : 0;
}

static int row_new(struct mgr_core *c, struct mgr_djob *j, const Fp__CtlStage *m, const struct start *s, size_t i)
{
    int rc = mgr_db_exec(&c->db, MERGE_NEW, DBI(j->id), DBB(s->log[i].data, s->log[i].len), DBI(m->overwrite), DBB(s->to[i].data, s->to[i].len));
    uint64_t id = (uint64_t)sqlite3_last_insert_rowid(c->db.sq);

    if (!rc && id > MGR_TASK_FILE_MAX)
        rc = mgr_doom(c, -EOVERFLOW);
    j->first = j->files ? j->first : id;
    j->files++;
    return rc;
}

int mgr_merge_start(struct mgr_core *c, const Fp__CtlStage *m, Fp__CtlStageReply *r)
{
    struct mgr_djob j = {.kind = FP__JOB_KIND__JOB_MERGE, .state = FP__DRAIN_STATE__DRAIN_RUNS, .verify = m->verify, .overwrite = m->force};
    struct start *s = mgr_arena_zalloc(&c->arena, sizeof *s);
    struct mgr_djob *at;
    int rc;

    if (!s)
        return mgr_doom(c, -ENOMEM);
    if (!m->n_paths || m->n_paths > MGR_DRAIN_PATHS_MAX || (m->dest.len && m->n_paths > 1))
        return refuse(c, r, "give from 1 to %u logs, or one and the file that it becomes", MGR_DRAIN_PATHS_MAX);
    rc = look_up(c, m, r, s);
    r->taken = (uint32_t)s->n;
    rc = rc || r->n_why ? rc : same_job(c, m, s, &r->job);
    if (rc || r->n_why || r->job)
        return rc;
    j.target = s->target;
    j.gen = s->n;
    j.dest = strdup("");
    j.why = strdup("");
    rc = mgr_djob_new(c, &j);
    r->job = j.id;
    at = rc ? NULL : mgr_djob_find(c, j.id);
    for (size_t i = 0; i < s->n && !rc; i++)
        rc = row_new(c, at, m, s, i);
    c->drain->dirty = true;
    return rc ? rc : mgr_djob_put(c, at);
}

/* ---------------------------------------------------------------- a log goes on */

/* Is what has the name the only copy of something? As mgr_stage_blocks. */
static int blocks(struct mgr_core *c, struct mgr_dfile *f)
{
    ProtobufCBinaryData path;
    int rc = mgr_dfile_after(c, f, &path);

    rc = rc ? rc : mgr_drain_only_at(c, f, path, 0);
    if (rc <= 0 || rc == MGR_ONLY_AWAY)
        return rc < 0 ? rc : rc ? MGR_BLOCKS_WAIT : 0;
    rc = mgr_drain_fail(c, f, -EBUSY, "what it would take the place of is the only synced copy of data of a file that was evicted: fpctl stage-in that before, and wait for its level to be local");
    return rc ? rc : 1;
}

int mgr_merge_begin(struct mgr_core *c, struct mgr_dfile *f)
{
    struct mgr_dfile *at;
    int rc = mgr_drain_is_free(c, f);

    if (rc <= 0)
        return rc;
    rc = mgr_drain_take(c, f, &at);
    if (rc || !at)
        return rc;
    rc = blocks(c, at);
    if (rc == MGR_BLOCKS_WAIT)
        mgr_dfile_remove(c, at);
    if (rc)
        return rc == MGR_BLOCKS_WAIT ? 0 : rc;
    at->version = 0;
    return mgr_drain_prepare(c, at);
}

static int finish(struct mgr_core *c, struct mgr_dfile *f)
{
    int rc = blocks(c, f);

    if (rc)
        return rc < 0 ? rc : 0; /* it may have to wait: each step asks again */
    f->state = MGR_D_FINISH;
    mgr_tasker(c, f->lead)->look = true;
    return mgr_dfile_put(c, f, 0, NULL);
}

int mgr_merge_step(struct mgr_core *c, struct mgr_dfile *f, struct mgr_part_load *l, uint32_t *made)
{
    uint64_t n = records_of(f), all = all_of(f), count = n ? MGR_SHARE_BYTES / (f->size / n + 1) : 1, next;
    int rc = mgr_part_next(c, f, &next);

    count = count < 1 ? 1 : count > MGR_SHARE_WINDOWS ? MGR_SHARE_WINDOWS : count;
    while (!rc && next < all && *made < MGR_PARTS_STEP) {
        uint64_t left = (next < n ? n : all) - next, some = left < count ? left : count, bytes = up_to(f, next + some) - up_to(f, next);
        bool full;
        uint32_t bnf = 0;

        rc = next == n ? mgr_parts_done(c, f) : 1; /* all are written before one is read back */
        if (rc > 0)
            bnf = mgr_part_choose(c, f, l, bytes, &full);
        if (rc < 0 || !bnf)
            return rc < 0 ? rc : 0;
        rc = mgr_part_put(c, f, next, some, bnf, bytes, l);
        next += some;
        ++*made;
    }
    if (rc || next < all)
        return rc;
    rc = mgr_parts_done(c, f);
    return rc > 0 ? finish(c, f) : rc;
}

/* ---------------------------------------------------------------- tasks */

Fp__Task *mgr_merge_task(struct mgr_core *c, const struct mgr_dfile *f, uint64_t id, const struct mgr_merge_part *p)
{
    const struct mgr_target *t = mgr_target_find(c, f->target);
    uint64_t n = records_of(f);
    Fp__Task *k = t ? mgr_task_new(c, FP__TASK_KIND__TASK_MERGE, id, p ? p->gen : f->gen, t) : NULL;
    char name[64];

    if (!k || mgr_dfile_after(c, f, &k->dest->path) || mgr_dfile_path(c, f->id, &k->log))
        return NULL;
    mgr_task_tmp(c, f->id, f->gen, name);
    k->tmp = (ProtobufCBinaryData){strlen(name), (uint8_t *)mgr_arena_text(&c->arena, name)};
    k->overwrite = f->parent != 0;
    k->force = mgr_djob_find(c, f->job)->overwrite;
    k->urgent = f->urgent;
    k->step = p ? (p->first < n ? FP__MERGE_STEP__MERGE_WRITE : FP__MERGE_STEP__MERGE_COMPARE)
                : f->state == MGR_D_FINISH ? FP__MERGE_STEP__MERGE_FINISH : FP__MERGE_STEP__MERGE_PREPARE;
    k->tmp_ino = f->tino;
    k->log_sum = f->version;
    if (p) {
        k->first = p->first % n;
        k->count = (uint32_t)p->count;
    }
    return k;
}

/* What it has found is not what the attempt began with. */
static int again(struct mgr_core *c, struct mgr_dfile *f, int status, const char *why)
{
    if (++f->tries >= TRIES_MAX)
        return mgr_drain_fail(c, f, status, why);
    return mgr_drain_again(c, f);
}

int mgr_merge_part_result(struct mgr_core *c, const struct mgr_bnf *b, struct mgr_dfile *f, const struct mgr_merge_part *p, const Fp__TaskResult *r)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);
    int rc;

    if (r->status == FP_ECANCELLED)
        return 0; /* it is told again, if it is still to be done */
    if (r->status == -ESTALE || r->status == -ENOENT)
        return again(c, f, r->status, r->why);
    if (r->status)
        return mgr_drain_fail(c, f, r->status, r->why);
    rc = mgr_db_exec(&c->db, DPART_STATE, DBI(f->id), DBI(p->first), DBI(b->id), DBI(MGR_P_DONE));
    j->bytes_done += p->bytes;
    c->drain->dirty = true;
    return rc ? rc : mgr_djob_put(c, j);
}

static int prepared(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r)
{
    int rc;

    if (r->n_sums != 3 || !r->seen || !r->seen->ino || r->sums[1] > FP_DLOG_RECORDS_MAX || r->sums[2] > INT64_MAX)
        return mgr_drain_fail(c, f, -EPROTO, "a benefactor does not say what log it is");
    rc = mgr_drain_set_size(c, f, r->sums[2]);
    f->version = r->sums[0];
    f->dev = r->sums[1];
    f->tino = r->seen->ino;
    f->state = MGR_D_PARTS;
    f->low = 0;
    c->drain->dirty = true;
    return rc ? rc : mgr_dfile_put(c, f, 0, NULL);
}

static int finished(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r)
{
    const struct mgr_inode none = {0};
    ProtobufCBinaryData path;
    int rc = mgr_dfile_after(c, f, &path);

    rc = rc ? rc : mgr_ext_replaced(c, f->target, path, 0, &none);
    if (!rc && r->why && *r->why)
        rc = mgr_drain_remark(c, f, r->why);
    rc = rc ? rc : mgr_drain_done(c, f);
    mgr_dfile_remove(c, f);
    return rc;
}

int mgr_merge_whole_result(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r)
{
    bool begins = f->state == MGR_D_PREPARE && !f->tino;

    if (r->status == FP_ECANCELLED || (!begins && f->state != MGR_D_FINISH))
        return 0;
    if (r->status == -ESTALE || (r->status == -ENOENT && !begins))
        return again(c, f, r->status, r->why);
    if (r->status)
        return mgr_drain_fail(c, f, r->status, r->why);
    return begins ? prepared(c, f, r) : finished(c, f, r);
}
