/*
 * FETCH and STAGE: tasks of many chunks of one file of a target (drain_impl.h).
 *
 * Loop's thread. A task is its chunks, one after the other through fetch.c, a few at a time: so memory is bounded whatever a task names, and what a program waits for
 * goes first. FETCH brings evicted chunks back, whose rows the manager has: it hears of each as it comes, and of the end. STAGE makes chunks of a file of somebody
 * else, under ids that were kept for this attempt; their rows are made from its result. What is nothing but zeros is left out there: a hole.
 *
 * A target that can't be read stalls a task and does not end it. What ends it: the file is gone or another one, its bytes are others, there is no room, or a place of it
 * can't be read three times. What a STAGE that has failed had stored is deleted here: nobody has heard of it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "benefactor/drain_impl.h"
#include "fp/err.h"

#define CHUNKS_MAX   4096u
#define AT_A_TIME    SLOTS_MAX
#define TRIES_MAX    3u

enum piece_state { LEFT, ASKED, HERE, HOLE };

struct piece {
    struct dtask *task;
    enum piece_state state;
    uint32_t stored_bytes;
    uint64_t sum;
};

struct dstage {
    uint32_t n, next, asked, done;
    unsigned tries;
    int status;
    char *why;
    struct piece piece[];
};

bool dstage_is_one(const Fp__Task *m)
{
    return m->kind == FP__TASK_KIND__TASK_FETCH || m->kind == FP__TASK_KIND__TASK_STAGE;
}

void dstage_free(struct dtask *t)
{
    if (t->stage)
        free(t->stage->why);
    free(t->stage);
    t->stage = NULL;
}

/* ---------------------------------------------------------------- the end */

static void on_deleted(void *arg, int status)
{
    (void)arg, (void)status; /* one that is left is found by the manager's inventory */
}

static void delete_all(struct dtask *t)
{
    struct dstage *s = t->stage;
    uint64_t *ids = malloc((s->n + 1) * sizeof(*ids));
    size_t n = 0;

    for (uint32_t i = 0; ids && i < s->n; i++)
        if (s->piece[i].state == HERE)
            ids[n++] = t->m->slices[i]->chunk;
    if (n)
        (void)bnf_service_delete(t->target->drain->config.service, ids, n, on_deleted, NULL);
    free(ids);
}

static int tell_chunks(struct dtask *t)
{
    struct bnf_drain *d = t->target->drain;
    struct dstage *s = t->stage;

    t->chunks = calloc(s->n + 1, sizeof(*t->chunks));
    for (uint32_t i = 0; t->chunks && i < s->n; i++) {
        Fp__Chunk *c = s->piece[i].state == HERE ? malloc(sizeof(*c)) : NULL;

        if (s->piece[i].state != HERE)
            continue;
        if (!c)
            return -ENOMEM;
        fp__chunk__init(c);
        c->id = t->m->slices[i]->chunk;
        c->len = t->m->slices[i]->len;
        c->stored_bytes = s->piece[i].stored_bytes;
        c->sum = s->piece[i].sum;
        c->bnf = d->config.bnf_id(d->config.arg);
        t->chunks[t->nchunks++] = c;
    }
    return t->chunks ? 0 : -ENOMEM;
}

static void tell_missing(struct dtask *t)
{
    struct dstage *s = t->stage;

    t->missing_list = malloc((s->n + 1) * sizeof(*t->missing_list));
    for (uint32_t i = 0; t->missing_list && i < s->n; i++)
        if (s->piece[i].state != HERE)
            t->missing_list[t->nmissing++] = t->m->slices[i]->chunk;
}

static void end(struct dtask *t)
{
    struct dstage *s = t->stage;
    bool stages = t->m->kind == FP__TASK_KIND__TASK_STAGE;
    int status = t->dropped ? -ECANCELED : s->status;
    char why[256];

    if (status == 0 && stages)
        status = tell_chunks(t);
    if (status && stages)
        delete_all(t);
    else if (status)
        tell_missing(t);
    strncpy(why, s->why ? s->why : "", sizeof(why) - 1);
    why[sizeof(why) - 1] = '\0';
    dstage_free(t);
    dtask_finish(t, status, why);
}

/* ---------------------------------------------------------------- chunks */

static void piece_failed(struct dtask *t, struct piece *p, const struct dfetched *r)
{
    struct dstage *s = t->stage;
    uint32_t i = (uint32_t)(p - s->piece);
    bool final = r->status == -ENOENT || r->status == -ESTALE || r->status == FP_ECHECKSUM || r->status == -ENOSPC;

    p->state = LEFT;
    if (s->next > i)
        s->next = i;
    if (s->status || r->stalled || (!final && ++s->tries < TRIES_MAX))
        return;
    s->status = r->status;
    s->why = strdup(r->why ? r->why : "");
}

static void on_piece(void *arg, const struct dfetched *r)
{
    struct piece *p = arg;
    struct dtask *t = p->task;
    struct dstage *s = t->stage;
    struct dtarget *target = t->target;

    s->asked--;
    if (r->status == 0) {
        p->state = r->stored ? HERE : HOLE;
        p->stored_bytes = r->stored_bytes;
        p->sum = r->sum;
        s->done++;
        t->bytes += t->m->slices[p - s->piece]->len;
    } else {
        piece_failed(t, p, r);
    }
    if (target->drain->stopping)
        return; /* the manager tells it to the next process */
    if (s->asked == 0 && (t->dropped || s->status || s->done == s->n))
        end(t);
    dstage_pump(target);
}

static void ask_for(struct dtask *t, uint32_t i)
{
    struct dstage *s = t->stage;
    const Fp__Slice *x = t->m->slices[i];
    struct piece *p = &s->piece[i];
    bool stages = t->m->kind == FP__TASK_KIND__TASK_STAGE;
    struct dfetch_ask a = { .target = t->target, .file = t->m->dest, .chunk = x->chunk, .off = x->ext_off, .sum = stages ? 0 : x->chunk_sum,
                            .len = stages ? x->len : x->chunk_len, .cb = on_piece, .arg = p };
    int rc = dfetch(t->target->drain->fetcher, &a);

    if (rc == 0) {
        p->state = ASKED;
        s->asked++;
    } else if (rc != -EBUSY) {
        s->status = rc;
    }
}

static int check(const Fp__Task *m)
{
    bool stages = m->kind == FP__TASK_KIND__TASK_STAGE;

    if (m->n_slices == 0 || m->n_slices > CHUNKS_MAX || !dpath_is_good(&m->dest->path))
        return -EINVAL;
    for (size_t i = 0; i < m->n_slices; i++) {
        const Fp__Slice *x = m->slices[i];
        uint32_t len = stages ? x->len : x->chunk_len;

        if (len == 0 || len > FP_STORED_MAX_BYTES || x->ext_off > m->dest->size_bytes || len > m->dest->size_bytes - x->ext_off || !x->chunk ||
            (!stages && !x->chunk_sum))
            return -EINVAL;
    }
    return 0;
}

static void begin(struct dtask *t)
{
    struct dstage *s;
    int rc = check(t->m);

    s = rc ? NULL : calloc(1, sizeof(*s) + t->m->n_slices * sizeof(s->piece[0]));
    if (!s) {
        dtask_finish(t, rc ? rc : -ENOMEM, "");
        return;
    }
    s->n = (uint32_t)t->m->n_slices;
    for (uint32_t i = 0; i < s->n; i++)
        s->piece[i].task = t;
    t->stage = s;
    t->state = DTASK_STAGES;
    t->bytes = 0;
}

static void step(struct dtask *t)
{
    struct dstage *s = t->stage;

    while (!t->dropped && !s->status && s->next < s->n && s->asked < AT_A_TIME) {
        uint32_t i = s->next++;

        if (s->piece[i].state == LEFT)
            ask_for(t, i);
    }
    if (s->asked == 0 && (t->dropped || s->status || s->done == s->n))
        end(t);
}

/* In their order: a later one begins when all of those before it are under way. */
void dstage_pump(struct dtarget *t)
{
    struct bnf_drain *d = t->drain;
    struct dtask *next;
    unsigned asked = 0;

    if (d->staging || d->stopping)
        return;
    d->staging = true; /* what is asked for here may be answered here */
    for (struct dtask *x = d->tasks; x && asked < AT_A_TIME; x = next) {
        next = x->next;
        if (x->target != t || !x->m || !dstage_is_one(x->m))
            continue;
        if (x->state == DTASK_WAITS)
            begin(x);
        if (x->state != DTASK_STAGES)
            continue;
        asked += x->stage->asked;
        if (dtarget_may_read(t) && asked < AT_A_TIME)
            step(x);
    }
    d->staging = false;
    dfetch_pump(t);
}

void dstage_drop(struct dtask *t)
{
    t->dropped = true;
    if (t->stage->asked == 0)
        end(t);
}
