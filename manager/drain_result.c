/* Draining: what benefactors say of their tasks (MSG_TASK_DONE). What they are told is in drain_task.c.
 *
 * A result names its task by number and attempt; what it is of follows from them: the target, a temporary file that was to go, a look at a file of a
 * target, or a file of a job, and then the job's own steps go on (drain_job.c, drain_stage.c, foreign.c, merge.c). One that comes late, or of an attempt that is
 * over, does nothing, but for what it has left behind in the target, which is removed. Answered when it is committed: until then the benefactor says it
 * again.
 *
 * Core's thread, in a group. */
#include "manager/ext.h"
#include "manager/foreign.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fp/err.h"
#include "fp/log.h"
#include "fp/targetid.h"

#define SWEEP_MS 3600000u
#define RETRY_MS 5000u /* of what a whole target was asked and has not done */

static void cleaned(struct mgr_core *c, uint64_t file, uint64_t gen)
{
    struct mgr_drain *d = c->drain;

    for (size_t i = 0; i < d->nclean; i++)
        if (d->clean[i].file == file && d->clean[i].gen == gen) {
            d->clean[i] = d->clean[--d->nclean];
            break;
        }
    mgr_tasks_look(c); /* what waits for it */
}

/* Names of temporary files of our store: those of no attempt that is alive go. */
static void swept(struct mgr_core *c, struct mgr_target *t, const Fp__TaskResult *r)
{
    t->sweep_ms = c->now.ms + SWEEP_MS;
    t->swept = true;
    mgr_tasks_look(c);
    for (size_t i = 0; i < r->n_list; i++) {
        unsigned long long file, gen;
        struct mgr_dfile dead = {.target = t->id};
        char name[64];
        int end = 0;

        if (!r->list[i]->path.len || r->list[i]->path.len >= sizeof name)
            continue;
        memcpy(name, r->list[i]->path.data, r->list[i]->path.len);
        name[r->list[i]->path.len] = '\0';
        if (mgr_needs_swept(c, t, name))
            continue;
        if (sscanf(name, "%*8[0-9a-f]-%llx-%llx%n", &file, &gen, &end) != 2 || (name[end] && strcmp(name + end, "-kept") != 0 && strcmp(name + end, "-old") != 0 && strcmp(name + end, "-to") != 0))
            continue;
        dead.id = file;
        dead.gen = gen;
        if (!mgr_dfile_find(c, file) || mgr_dfile_find(c, file)->gen != gen)
            mgr_task_clean(c, &dead, true);
    }
}

/* It has made a temporary file for an attempt that was over. */
static int made_late(struct mgr_core *c, const Fp__TaskResult *r)
{
    for (size_t i = 0; i < c->drain->ntargets; i++) {
        const struct mgr_dfile dead = {.id = r->id >> 30, .gen = r->gen, .target = c->drain->targets[i].id};

        if (r->seen && r->seen->target == dead.target)
            mgr_task_clean(c, &dead, false);
    }
    return 0;
}

/* It has its marker, or none can be made. */
static int known(struct mgr_core *c, struct mgr_target *t, const Fp__TaskResult *r)
{
    bool said = r->seen && r->seen->uuid.len == sizeof t->uuid;
    uint8_t mark[16];

    mgr_tasks_look(c);
    if (said && fp_target_is_unmarked(r->seen->uuid.data)) {
        t->left -= t->left > 0;
        t->probe_ms = t->left ? 0 : c->now.ms + RETRY_MS; /* somebody may want to write there */
        return t->made ? 0 : mgr_target_made(c, t, r->seen->uuid.data);
    }
    mgr_target_mark(c, t, mark);
    return mgr_target_made(c, t, said ? r->seen->uuid.data : mark);
}

static int of_target(struct mgr_core *c, const struct mgr_bnf *b, uint32_t id, bool sweep, const Fp__TaskResult *r)
{
    struct mgr_target *t = mgr_target_find(c, id);
    bool others;

    if (!t)
        return 0;
    if (sweep && !r->status)
        swept(c, t, r);
    else if (sweep)
        t->sweep_ms = c->now.ms + RETRY_MS;
    if (sweep || (t->made && !t->unmarked))
        return 0;
    if (r->status) {
        t->left -= t->left > 0;
        others = mgr_task_heard(c, b, id, r->code, r->why && *r->why ? r->why : fp_strerror(r->status)) && (t->left || mgr_drain_is_well(c, id));
        t->probe_ms = others ? 0 : c->now.ms + RETRY_MS;
        mgr_tasks_look(c);
        FP_LOG_EVERY(10000, FP_LOG_WARN, "target %s: %s", t->root, r->why && *r->why ? r->why : fp_strerror(r->status));
        return 0;
    }
    return known(c, t, r);
}

/* It has given way for good, whatever becomes of this attempt; the next one replaces our own. */
static int count_replaced(struct mgr_core *c, const struct mgr_dfile *f)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);

    if (!j || f->state != MGR_D_FINISH)
        return 0;
    j->replaced++;
    return mgr_djob_put(c, j);
}

static int result(struct mgr_core *c, const struct mgr_bnf *b, const Fp__TaskResult *r)
{
    uint64_t file = r->id >> 30, window = r->id >> 1 & ((UINT64_C(1) << 29) - 1);
    struct mgr_dfile *f = mgr_dfile_find(c, file);
    bool whole = window == MGR_TASK_PREPARE || window == MGR_TASK_FINISH || window == MGR_TASK_STAT || window == MGR_TASK_FETCH;
    int rc;

    if (!file)
        return of_target(c, b, (uint32_t)window, r->id & 1, r);
    if (window == MGR_TASK_CLEAN) {
        if (!r->status)
            cleaned(c, file, r->gen);
        return 0; /* else somebody is told again in a while */
    }
    if (window == MGR_TASK_LOOK)
        return mgr_look_result(c, b, file, r);
    if ((f && mgr_dfile_shared(c, f) && !whole) || r->n_chunks)
        return mgr_foreign_result(c, b, f, r);
    if (!f || f->gen != r->gen)
        return window == MGR_TASK_PREPARE && !r->status ? made_late(c, r) : 0;
    if (whole && f->lead != b->id)
        return 0; /* somebody else is at it now */
    if (r->tainted)
        return mgr_drain_again(c, f);
    rc = r->replaced && !r->status && window == MGR_TASK_FINISH ? count_replaced(c, f) : 0;
    if (rc)
        return rc;
    if (mgr_dfile_merges(c, f))
        return mgr_merge_whole_result(c, f, r);
    if (window == MGR_TASK_STAT)
        return mgr_drain_looked(c, f, r);
    if (window == MGR_TASK_FETCH)
        return mgr_stage_fetched(c, f, r);
    if (r->status)
        return mgr_drain_refused(c, f, r);
    if (window == MGR_TASK_PREPARE)
        return mgr_drain_prepared(c, f, r);
    if (window == MGR_TASK_FINISH)
        return mgr_drain_finished(c, f, r);
    return mgr_drain_part_done(c, f, b->id, window, r->id & 1, r);
}

/* Answered when it is committed: then the benefactor forgets its results. */
MGR_HANDLER(task_done)
{
    const Fp__TaskDone *m = msg;
    Fp__TaskAck *ack = MGR_NEW(c, Fp__TaskAck, fp__task_ack__init);
    struct mgr_bnf *b = rq->conn->bnf;
    struct mgr_tasker *t = b ? mgr_tasker(c, b->id) : NULL;
    int rc = 0;

    if (!t)
        return -EPERM;
    if (!ack)
        return mgr_doom(c, -ENOMEM);
    rc = mgr_ext_staged(c, b, m->staged, m->n_staged, ack); /* before the results that say that it was all */
    for (size_t i = 0; i < m->n_results && !rc; i++) {
        struct mgr_open_task *o = mgr_open_find(t, m->results[i]->id, m->results[i]->gen);

        if (m->results[i]->stalled && !m->results[i]->tainted && m->results[i]->id >> 30)
            continue; /* it is still at it */
        if (o)
            mgr_open_remove(t, o);
        rc = result(c, b, m->results[i]);
    }
    t->look = true;
    rq->reply = &ack->base;
    return rc;
}
