/* Looking whether a file in a target is what was drained to it, when somebody could not read it, or did not find it.
 *
 * Nobody's word is taken for it: a mount may have a bad cable, and a node of a network file system may have an old entry of a directory. So a benefactor looks
 * (TASK_STAT), and when it does not find the file as it was, another one does, if there is one that has the target. If both say so the file is gone, with all that is
 * only there. It is back when a look finds it: somebody tries to read it, or has fetched something of it. If it seems to be what it was, but was said to
 * have other bytes, a benefactor fetches that chunk and compares it: if it finds the same, the file is no copy any more until it is drained anew.
 *
 *     told to look --as it was--> well [--bytes were said to be others--> told to fetch --others--> bad]
 *          |
 *          +--not--> told to look again (another benefactor) --not--> gone
 *
 * In memory: what is forgotten by a restart is found again by who reads. A look that a target does not answer is given to another benefactor after a while, and is
 * given up in the end. Rejected: to ask the mount's benefactor in MSG_FETCH's stead (it tells mounts, which tell us, and they are whom we ask about).
 *
 * Called by the core's thread, in a group; the tasks after it. */
#include "manager/ext.h"

#include <errno.h>
#include <string.h>

#include "fp/err.h"
#include "fp/log.h"
#include "manager/level.h"

#define ANSWER_MS 20000u  /* then another one is asked, too */
#define GIVEN_UP_MS 600000u
#define OF_TARGET 64u /* of mgr_drain.looks, that readers' reports take: one that hangs leaves room for others */

static void look_all(struct mgr_core *c)
{
    for (size_t i = 0; i < c->drain->nof; i++)
        c->drain->of[i].look = true;
}

static struct mgr_look *find(struct mgr_core *c, uint64_t tfile)
{
    for (size_t i = 0; i < c->drain->nlooks; i++)
        if (c->drain->looks[i].tfile == tfile)
            return &c->drain->looks[i];
    return NULL;
}

static void end(struct mgr_core *c, struct mgr_look *l)
{
    *l = c->drain->looks[--c->drain->nlooks];
}

bool mgr_look_has_room(const struct mgr_core *c, uint32_t target, size_t max)
{
    size_t n = 0;

    for (size_t i = 0; i < c->drain->nlooks; i++)
        n += c->drain->looks[i].target == target;
    return n < max;
}

/* The next step of it: a task with another number, so that late answers to the one before say nothing. */
static int ask(struct mgr_core *c, struct mgr_look *l)
{
    l->by = 0;
    look_all(c);
    return mgr_drain_gen(c, &l->gen);
}

/* Could another one look than this? */
static bool is_another(struct mgr_core *c, uint32_t target, uint32_t than)
{
    for (size_t i = 0; i < c->bnf_count; i++)
        if (c->bnfs[i]->id != than && mgr_task_can(c, c->bnfs[i], target))
            return true;
    return false;
}

/* As long as there are fewer than max of its target. */
static int look_at(struct mgr_core *c, uint64_t tfile, uint64_t chunk, size_t max)
{
    struct mgr_drain *d = c->drain;
    struct mgr_look *l = find(c, tfile);
    Fp__ExtFile *x;
    bool gone;
    int rc;

    if (l) {
        l->chunk = l->chunk ? l->chunk : chunk;
        return 1;
    }
    if (d->nlooks == sizeof d->looks / sizeof d->looks[0])
        return 0;
    rc = mgr_tfile_get(c, tfile, &x, &gone);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    if (!mgr_look_has_room(c, x->target, max))
        return 0;
    l = &d->looks[d->nlooks++];
    *l = (struct mgr_look){.tfile = tfile, .chunk = chunk, .target = x->target, .until_ms = c->now.ms + GIVEN_UP_MS};
    rc = ask(c, l);
    return rc ? rc : 1;
}

int mgr_look(struct mgr_core *c, uint64_t tfile, uint64_t chunk)
{
    return look_at(c, tfile, chunk, OF_TARGET);
}

/* ---------------------------------------------------------------- what was found */

static int gone(struct mgr_core *c, struct mgr_look *l)
{
    uint64_t tfile = l->tfile, bad = c->bad_chunks;
    bool was;
    Fp__ExtFile *x;
    int rc = mgr_tfile_get(c, tfile, &x, &was);

    end(c, l);
    c->drain->surveys.due = true;
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    rc = mgr_tfile_gone(c, tfile);
    if (!rc && c->bad_chunks > bad)
        FP_ERROR("%s/%.*s is not what was drained to it any more: what was evicted in favour of it can't be read: see fpctl status", x->root, (int)x->path.len,
                 (const char *)x->path.data);
    else if (!rc && !was)
        FP_LOG_EVERY(10000, FP_LOG_WARN, "%s/%.*s is not what was drained to it any more: what is here of it has to be drained again", x->root, (int)x->path.len, (const char *)x->path.data);
    return rc;
}

/* There is no place to ask another one: it is found out by the next survey, or by who reads. */
static int denied_unasked(struct mgr_core *c, uint64_t tfile, uint32_t by)
{
    Fp__ExtFile *x;
    bool was;
    int rc = mgr_tfile_get(c, tfile, &x, &was);

    if (rc)
        return rc == -ENOENT ? 0 : rc;
    c->drain->surveys.due = true;
    return is_another(c, x->target, by) ? 0 : mgr_tfile_gone(c, tfile);
}

int mgr_look_denied(struct mgr_core *c, uint64_t tfile, uint32_t by)
{
    int rc = look_at(c, tfile, 0, sizeof c->drain->looks / sizeof c->drain->looks[0]);
    struct mgr_look *l = find(c, tfile);

    if (rc < 0)
        return rc;
    if (!l)
        return denied_unasked(c, tfile, by);
    l->said = l->said ? l->said : by;
    return is_another(c, l->target, by) ? 0 : gone(c, l);
}

static int looked(struct mgr_core *c, struct mgr_look *l, const Fp__TaskResult *r)
{
    const struct mgr_dfile f = {.tfile = l->tfile};
    int rc = r->status ? 0 : mgr_drained_is_seen(c, &f, r->seen);

    if (rc < 0)
        return rc;
    if (rc) {
        rc = mgr_tfile_back(c, l->tfile);
        if (!l->chunk)
            mgr_survey_found(c, l->tfile);
        if (!rc && l->marked)
            rc = mgr_rescue_found(c, l->tfile);
        l->fetch = true;
        if (!rc && l->chunk)
            return ask(c, l);
        end(c, l);
        return rc;
    }
    if (l->said || !is_another(c, l->target, l->by))
        return gone(c, l);
    l->said = l->by;
    return ask(c, l);
}

/* What came here by it was told before, as of any fetch. */
static int fetched(struct mgr_core *c, struct mgr_look *l, const Fp__TaskResult *r)
{
    uint64_t chunk = l->chunk, tfile = l->tfile;
    struct mgr_chunk ch;
    int rc;

    end(c, l);
    if (r->status != FP_ECHECKSUM)
        return 0;
    rc = mgr_chunk_get(c, chunk, &ch);
    if (rc || ch.bnf)
        return rc == -ENOENT ? 0 : rc;
    FP_ERROR("chunk %llx: the file in the target that it was evicted to has other bytes than were drained: see fpctl status", (unsigned long long)chunk);
    rc = mgr_db_exec(&c->db, TFILE_BAD, DBI(tfile));
    mgr_level_drained(c);
    rc = rc ? rc : mgr_rescue(c, &ch, MGR_BAD_READ, "the file in the target has other bytes than were drained");
    return rc < 0 ? rc : 0;
}

int mgr_look_result(struct mgr_core *c, const struct mgr_bnf *b, uint64_t tfile, const Fp__TaskResult *r)
{
    struct mgr_look *l = find(c, tfile);

    if (!l || l->gen != r->gen || l->by != b->id || r->tainted || r->status == FP_ECANCELLED)
        return 0; /* it is told again in a while, if there is still something to be looked at */
    if (l->fetch)
        return fetched(c, l, r);
    if (!r->status || r->status == -ENOENT)
        return looked(c, l, r);
    if (l->marked && (r->status == -EROFS || r->status == -EACCES || r->status == -EPERM)) { /* nothing can be marked there: then it is looked at as it is */
        l->unmarked = true;
        return ask(c, l);
    }
    FP_LOG_EVERY(10000, FP_LOG_WARN, "benefactor %u can't look at a file in a target: %s", b->id, r->why && *r->why ? r->why : fp_strerror(r->status));
    mgr_survey_failed(c, l->target, r->why && *r->why ? r->why : fp_strerror(r->status));
    end(c, l);
    return 0;
}

/* ---------------------------------------------------------------- tasks */

void mgr_look_hello(struct mgr_core *c, uint32_t bnf)
{
    for (size_t i = 0; i < c->drain->nlooks; i++)
        if (c->drain->looks[i].by == bnf)
            c->drain->looks[i].by = 0;
}

/* The target has stalled where it was told to look: another one does. */
static bool left_behind(struct mgr_core *c, const struct mgr_look *l)
{
    const struct mgr_bnf *b = mgr_bnf_find(c, l->by);

    return !b || (!mgr_task_can(c, b, l->target) && is_another(c, l->target, l->by));
}

void mgr_look_tick(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;

    for (size_t i = d->nlooks; i-- > 0;)
        if (c->now.ms >= d->looks[i].until_ms)
            end(c, &d->looks[i]);
        else if (!d->looks[i].by || c->now.ms - d->looks[i].at_ms >= ANSWER_MS || left_behind(c, &d->looks[i]))
            look_all(c);
}

static Fp__Slice *slice_of(struct mgr_core *c, const struct mgr_look *l)
{
    Fp__Slice *s = MGR_NEW(c, Fp__Slice, fp__slice__init);
    struct mgr_chunk ch;

    if (!s || mgr_chunk_get(c, l->chunk, &ch) || mgr_ext_where(c, l->chunk, l->tfile, &s->ext_off) <= 0)
        return NULL;
    s->chunk = ch.id;
    s->chunk_len = s->len = ch.len;
    s->chunk_sum = ch.sum;
    return s;
}

Fp__Task *mgr_look_task(struct mgr_core *c, const struct mgr_bnf *b, struct mgr_look *l)
{
    Fp__Task *k;
    bool was;

    if (!mgr_task_can(c, b, l->target) && is_another(c, l->target, b->id))
        return NULL; /* it would wait there */
    if ((l->by && c->now.ms - l->at_ms < ANSWER_MS && !left_behind(c, l)) || (l->said == b->id && !l->fetch && is_another(c, l->target, b->id)))
        return NULL;
    k = MGR_NEW(c, Fp__Task, fp__task__init);
    if (!k || mgr_tfile_get(c, l->tfile, &k->dest, &was))
        return NULL;
    k->id = mgr_task_id(l->tfile, MGR_TASK_LOOK, l->fetch);
    k->gen = l->gen;
    k->kind = l->fetch ? FP__TASK_KIND__TASK_FETCH : FP__TASK_KIND__TASK_STAT;
    k->urgent = true;
    l->marked = !l->fetch && mgr_rescue_wants(c, l->tfile);
    if (l->marked && !l->unmarked && mgr_needs_mark(c, k, l->target))
        return NULL;
    if (l->fetch) {
        k->slices = mgr_arena_alloc(&c->arena, sizeof *k->slices);
        if (!k->slices || !(k->slices[0] = slice_of(c, l)))
            return NULL; /* it is not evicted any more */
        k->n_slices = 1;
    }
    l->by = b->id;
    l->at_ms = c->now.ms;
    return k;
}
