/* Jobs of files that have their copy in a target: evicting (evict.c), and staging in what was evicted. They are kept, cut up, shown and ended like jobs that drain (drain_job.c); what is
 * theirs is how a file is taken up and what is done with it.
 *
 *     evict     wait -> prepare (TASK_STAT: is the copy what it was?) -> steps, each in a group -> done
 *     stage in  wait -> prepare (TASK_FETCH, some chunks of one file of a target at a time) -> done when none of it is external
 *
 * Each file is fetched by one benefactor, many files by many. A file that was cloned in parts may have its chunks in several files of targets: after each task
 * the next one is looked for.
 *
 * A restart of the manager in between begins again with the look; what has gone has gone. Called by the core's thread, in a group. */
#include "manager/ext.h"
#include "manager/foreign.h"
#include "manager/version.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fp/err.h"

#define COPIES_MAX   4u /* that are looked for, of a file with copies in many targets */
#define FETCH_CHUNKS 4096u
#define FETCH_BYTES  (256u << 20) /* of one task, about */

#define PAUSE_MS      100u /* before the same chunk is fetched again, then twice as long */
#define PAUSES_MAX    6u

#define BLOCKED_MS 10000u /* for which it is not looked again what a benefactor that is away has of what a file would replace */

#define LEFTS_MAX 4u /* reasons for which files stay that are told */
#define WAIT_NS (5 * INT64_C(1000000000)) /* for programs that have just closed it */

/* It will not go on: it has failed, or (error 0) it stays. */
static int refuse(struct mgr_core *c, struct mgr_dfile *f, const struct mgr_inode *in, int error, const char *why)
{
    struct mgr_dfile *at = mgr_dfile_add(c, f);
    int rc = at ? mgr_drain_set_size(c, at, in->size) : -ENOMEM;

    rc = rc ? rc : error ? mgr_drain_fail(c, at, error, why) : mgr_drain_stays(c, at, why);
    return rc ? rc : 1;
}

static int take_up(struct mgr_core *c, struct mgr_dfile *f, const struct mgr_inode *in)
{
    struct mgr_dfile *at;
    int rc = mgr_drain_is_worked_on(c, f);

    if (rc)
        return rc < 0 ? rc : 0;
    f->version = in->data_version;
    rc = mgr_drain_take(c, f, &at);
    if (rc || !at)
        return rc;
    rc = mgr_stage_window(c, f) == MGR_TASK_STAT ? mgr_needs(c, f->target) : 0; /* not before somebody is at it: else it is given up again */
    at->looked_ms = at->gone_bytes = at->stay_bytes = at->at_ms = 0;
    at->pauses = 0;
    memset(at->stays, 0, sizeof at->stays);
    rc = rc ? rc : mgr_drain_set_size(c, at, in->size);
    return rc ? rc : mgr_drain_prepare(c, at);
}

/* ---------------------------------------------------------------- staging in */

/* f->tfile and f->target: of the next chunk that is external; 0: none is. *chunk: that one. */
static int find_next(struct mgr_core *c, struct mgr_dfile *f, uint64_t *chunk)
{
    const enum mgr_stmt st = MGR_ST_STAGE_NEXT;
    Fp__ExtFile *x;
    bool gone;
    int rc = mgr_db_one(&c->db, STAGE_NEXT, DBI(f->ino), DBI(0), DBI(1));

    f->tfile = rc > 0 ? (uint64_t)mgr_col(&c->db, st, 1) : 0;
    *chunk = rc > 0 ? (uint64_t)mgr_col(&c->db, st, 3) : 0;
    mgr_db_reset(&c->db, st);
    if (rc <= 0)
        return rc;
    rc = mgr_tfile_get(c, f->tfile, &x, &gone);
    if (!rc)
        f->target = x->target;
    return rc;
}

static int is_here(struct mgr_core *c, struct mgr_dfile *f)
{
    int rc = mgr_drain_done(c, f);

    mgr_dfile_remove(c, f);
    return rc;
}

/* Nothing of it is external: is all of it here? */
static int end(struct mgr_core *c, struct mgr_dfile *f)
{
    const char *why;
    int rc = mgr_rescue_file(c, f->ino, &why);

    if (rc < 0 || why)
        return rc < 0 ? rc : mgr_drain_fail(c, f, -EIO, why);
    if (rc || mgr_ext_any(c, f->ino)) /* it is large, or some of it was lost meanwhile */
        return mgr_drain_again(c, f);
    return is_here(c, f);
}

static int begin_in(struct mgr_core *c, struct mgr_dfile *f, const struct mgr_inode *in)
{
    struct mgr_dfile *at;
    const char *why;
    int rc = mgr_rescue_file(c, f->ino, &why);

    if (rc == MGR_RESCUE_LOOKS)
        return 0;
    if (rc == MGR_RESCUE_MORE) {
        c->drain->dirty = c->busy = true; /* the rest of it in the next group */
        return 1;
    }
    rc = rc ? rc : find_next(c, f, &f->stuck);
    if (rc || f->tfile)
        return rc ? rc : take_up(c, f, in);
    if (why)
        return refuse(c, f, in, -EIO, why);
    at = mgr_dfile_add(c, f);
    rc = at ? mgr_drain_set_size(c, at, in->size) : -ENOMEM;
    rc = rc ? rc : is_here(c, at);
    return rc ? rc : 1;
}

uint64_t mgr_stage_window(struct mgr_core *c, const struct mgr_dfile *f)
{
    const struct mgr_djob *j = mgr_djob_find(c, f->job);

    return j && j->kind == FP__JOB_KIND__JOB_STAGE_IN ? MGR_TASK_FETCH : MGR_TASK_STAT;
}

int mgr_stage_fill(struct mgr_core *c, const struct mgr_dfile *f, Fp__Task *k)
{
    const enum mgr_stmt st = MGR_ST_STAGE_NEXT;
    uint64_t bytes = 0;
    bool gone, any = false;
    int rc = mgr_tfile_get(c, f->tfile, &k->dest, &gone);

    k->slices = rc ? NULL : mgr_arena_alloc(&c->arena, FETCH_CHUNKS * sizeof *k->slices);
    if (!k->slices)
        return -EIO;
    for (rc = mgr_db_one(&c->db, STAGE_NEXT, DBI(f->ino), DBI(0), DBI(FETCH_CHUNKS)); rc > 0 && bytes < FETCH_BYTES; rc = mgr_db_step(&c->db, st)) {
        Fp__Slice *s;

        if ((uint64_t)mgr_col(&c->db, st, 1) != f->tfile)
            continue;
        any = true;
        s = MGR_NEW(c, Fp__Slice, fp__slice__init);
        if (!s)
            break;
        s->win = (uint64_t)mgr_col(&c->db, st, 0);
        s->ext_off = (uint64_t)mgr_col(&c->db, st, 2);
        s->chunk = (uint64_t)mgr_col(&c->db, st, 3);
        s->chunk_len = s->len = (uint32_t)mgr_col(&c->db, st, 4);
        s->chunk_sum = (uint64_t)mgr_col(&c->db, st, 5);
        if (k->n_slices && k->slices[k->n_slices - 1]->chunk == s->chunk)
            continue; /* cut in two */
        bytes += s->chunk_len;
        k->slices[k->n_slices++] = s;
    }
    mgr_db_reset(&c->db, st);
    return k->n_slices ? 0 : rc < 0 || any ? -EIO : -ENOENT;
}

/* It was fetched, and there is more. What was not taken is being deleted where it was before (ext.c): until that is confirmed asking again gives nothing. */
static int next_task(struct mgr_core *c, struct mgr_dfile *f, uint64_t chunk)
{
    bool again = chunk == f->stuck;
    int rc = mgr_drain_gen(c, &f->gen);

    f->at_ms = again ? c->now.ms + (PAUSE_MS << f->pauses) : 0;
    f->pauses = !again ? 0 : f->pauses < PAUSES_MAX ? f->pauses + 1 : PAUSES_MAX;
    f->stuck = chunk;
    mgr_tasker(c, f->lead)->look = true;
    return rc ? rc : mgr_dfile_put(c, f, 0, NULL);
}

int mgr_stage_fetched(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r)
{
    uint64_t chunk;
    int rc;

    if (f->state != MGR_D_PREPARE || r->status == FP_ECANCELLED)
        return 0;
    if (r->status == -ENOENT || r->status == -ESTALE) {
        rc = mgr_look_denied(c, f->tfile, f->lead);
        return rc ? rc : mgr_drain_fail(c, f, r->status, "its copy in the target is not there any more, or another file is");
    }
    if (r->status)
        return mgr_drain_fail(c, f, r->status, r->why);
    rc = find_next(c, f, &chunk);
    if (rc || !f->tfile)
        return rc ? rc : end(c, f);
    return next_task(c, f, chunk);
}

/* ---------------------------------------------------------------- evicting */

int mgr_stage_begin(struct mgr_core *c, struct mgr_djob *j, struct mgr_dfile *f, const struct mgr_inode *in)
{
    const char *why;
    bool wait;
    int rc;

    if (j->kind == FP__JOB_KIND__JOB_STAGE_IN)
        return begin_in(c, f, in);
    rc = mgr_evict_may(c, in, f, &why, &wait);

    if (rc)
        return rc;
    if (why && wait && (mgr_unsettled(c) || c->now.ns - j->made_ns < WAIT_NS))
        return 0;
    if (why)
        return refuse(c, f, in, 0, why);
    return take_up(c, f, in);
}

int mgr_stage_looked(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r)
{
    struct mgr_inode in;
    uint64_t other;
    int rc;

    if (r->status && r->status != -ENOENT)
        return mgr_drain_fail(c, f, r->status, r->why);
    rc = r->status ? 0 : mgr_drained_is_seen(c, f, r->seen);
    if (rc < 0)
        return rc;
    if (rc) {
        mgr_survey_found(c, f->tfile);
        f->looked_ms = c->now.ms;
        c->drain->dirty = true;
        return 0;
    }
    rc = mgr_look_denied(c, f->tfile, f->lead);
    rc = rc ? rc : mgr_inode_get_live(c, f->ino, &in);
    if (rc)
        return rc == -ENOENT ? mgr_drain_again(c, f) : rc;
    rc = mgr_drained_copy(c, &in, 0, f->tfile, &other);
    if (rc)
        return rc;
    if (other && other != f->tfile && f->tries++ < COPIES_MAX)
        return mgr_drain_again(c, f); /* in favour of that one */
    return mgr_drain_fail(c, f, -ESTALE, "its copy in the target is not there any more, or another file is: fpctl drain it again");
}

int mgr_stage_step(struct mgr_core *c, struct mgr_dfile *f)
{
    char line[MGR_EVICT_LINE];
    const char *why;
    bool done;
    int rc = mgr_evict_step(c, f, &done, &why);

    if (rc)
        return rc;
    if (why)
        return mgr_unsettled(c) ? mgr_drain_again(c, f) : mgr_drain_stays(c, f, why);
    c->drain->dirty = c->busy = true;
    if (!done) {
        mgr_tasker(c, f->lead)->look = true; /* if it is to be looked at again */
        return 0;
    }
    if (f->stay_bytes) {
        mgr_evict_dry(c, f->ino);
        mgr_evict_stays(f, line);
        if (!f->gone_bytes)
            return mgr_drain_stays(c, f, line);
        rc = mgr_drain_remark(c, f, line);
    }
    rc = rc ? rc : mgr_drain_done(c, f);
    mgr_dfile_remove(c, f);
    return rc;
}

int mgr_stage_left_text(struct mgr_core *c, uint64_t job, char line[MGR_LEFT_LINE])
{
    const enum mgr_stmt st = MGR_ST_EVICT_LEFTS;
    size_t n = 0;
    int rc;

    line[0] = '\0';
    for (rc = mgr_db_one(&c->db, EVICT_LEFTS, DBI(job), DBI(LEFTS_MAX)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        unsigned long long count = (unsigned long long)mgr_col(&c->db, st, 1);
        size_t len;
        const char *path = mgr_col_blob(&c->db, st, 2, &len);

        if (n < MGR_LEFT_LINE)
            n += (size_t)snprintf(line + n, MGR_LEFT_LINE - n, "%s%.*s%s", n ? "; " : "", len < 200 ? (int)len : 200, path ? path : "", count > 1 ? "" : ": ");
        if (n < MGR_LEFT_LINE && count > 1)
            n += (size_t)snprintf(line + n, MGR_LEFT_LINE - n, ", and %llu more: ", count - 1);
        if (n < MGR_LEFT_LINE)
            n += (size_t)snprintf(line + n, MGR_LEFT_LINE - n, "%s", mgr_col_text(&c->db, st, 0));
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

int mgr_drain_only_at(struct mgr_core *c, const struct mgr_dfile *f, ProtobufCBinaryData path, uint64_t ino)
{
    struct mgr_drain *d = c->drain;
    const struct mgr_bnf *b;
    uint64_t away;
    uint32_t bnf;
    int rc;

    if (c->now.ms >= d->blocked_ms) { /* what it has there may have been deleted meanwhile */
        mgr_idmap_fini(&d->blocked);
        d->blocked_ms = c->now.ms + BLOCKED_MS;
    }
    b = mgr_idmap_get(&d->blocked, f->id, &away) ? mgr_bnf_find(c, (uint32_t)away) : NULL;
    if (b && !mgr_bnf_vouched(b))
        return MGR_ONLY_AWAY;
    rc = mgr_ext_only_at(c, f->target, path, ino, &bnf);
    if (rc != MGR_ONLY_AWAY) {
        mgr_idmap_del(&d->blocked, f->id);
        return rc;
    }
    return mgr_idmap_put(&d->blocked, f->id, bnf) ? mgr_doom(c, -ENOMEM) : rc;
}

int mgr_stage_blocks(struct mgr_core *c, struct mgr_dfile *f)
{
    ProtobufCBinaryData path;
    bool gone = false;
    int rc = mgr_ext_any(c, f->ino);

    if (!rc) {
        rc = mgr_drained_path(c, f, &path);
        rc = rc ? rc : mgr_drain_only_at(c, f, path, f->ino);
        if (rc <= 0 || rc == MGR_ONLY_AWAY)
            return rc < 0 ? rc : rc ? MGR_BLOCKS_WAIT : 0;
        rc = mgr_waits_yields(c, f->ino, &gone);
        if (!rc && gone)
            rc = mgr_drain_again(c, f);
        else if (!rc && (rc = mgr_waits_going(c, f->ino)) > 0)
            return MGR_BLOCKS_WAIT;
        else if (!rc)
            rc = mgr_drain_fail(c, f, -EBUSY, "what it would take the place of in the target is the only synced copy of data of another file that was evicted: fpctl stage-in that before, and wait for its level to be local");
    } else if (rc > 0) {
        rc = mgr_drain_again(c, f); /* it is brought back before the next attempt (drain_in.c) */
    }
    return rc ? rc : 1;
}

/* ---------------------------------------------------------------- what fpctl asks */

MGR_HANDLER(ctl_stage)
{
    const Fp__CtlStage *m = msg;
    Fp__CtlStageReply *r = MGR_NEW(c, Fp__CtlStageReply, fp__ctl_stage_reply__init);
    Fp__CtlDrain q = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply a = FP__CTL_DRAIN_REPLY__INIT;
    int rc;

    if (!r)
        return mgr_doom(c, -ENOMEM);
    if (m->op == FP__STAGE_OP__STAGE_OP_MERGE) {
        rq->reply = &r->base;
        rq->durable = true;
        return mgr_merge_start(c, m, r);
    }
    if (m->op != FP__STAGE_OP__STAGE_OP_EVICT && m->op != FP__STAGE_OP__STAGE_OP_IN)
        return -EOPNOTSUPP;
    rq->reply = &r->base;
    rq->durable = true; /* it goes on without whoever asked */
    if (m->foreign)
        return m->op == FP__STAGE_OP__STAGE_OP_IN ? mgr_foreign_start(c, m, r) : -EINVAL;
    q.n_paths = m->n_paths;
    q.paths = m->paths;
    rc = mgr_djob_start(c, &q, m->op == FP__STAGE_OP__STAGE_OP_IN ? FP__JOB_KIND__JOB_STAGE_IN : FP__JOB_KIND__JOB_EVICT, &a);
    r->job = a.n_ids ? a.ids[0] : 0;
    r->n_why = a.n_why;
    r->why = a.why;
    return rc;
}
