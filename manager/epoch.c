/* Epochs: the time in which a file is rewritten. One begins with the first change by those who have the file open for writing. It ends
 *
 *     well    when the last of them has closed it, or each has synced what it wrote: what was there before goes (version.c)
 *     badly   when one of them is dead, or was cut off until its session expired, and the others have closed: what was there before comes back (return.c)
 *
 * What one of several writers has synced is not taken back by itself: then the file stays as it is, torn, and its guard stays too. A file that was
 * empty when its epoch began has nothing to come back, and costs nothing but its entry here: that is the checkpoint under a new name.
 * One that is synced all the time, as databases do, gets no guard for a while: each of its writes would cost twice.
 *
 * Who writes is known from MSG_OPEN and MSG_RELEASE, in memory only, as are epochs without a guard. A manager that was started anew has the guards, and who made the first
 * change; it ends an epoch when all sessions are back or gone. One without a guard that goes on meanwhile gets one: that costs rows, and no data.
 *
 * A session whose file was given back may come back itself, with data of before: a row of overtaken has it refused (commit.c), until it opens the file anew.
 *
 * Called by the core's thread, in a group. */
#include <errno.h>
#include <stdlib.h>

#include "fp/bug.h"
#include "fp/log.h"
#include "manager/version.h"

#define SYNCS_MAX   8u     /* epochs that syncs end, within … */
#define SYNCS_MS    10000u
#define PASS_MS     60000u /* … after which there is no guard for so long */
#define SWEEP_FILES 4096u  /* looked at in one group */

static uint32_t writers(const struct mgr_core *c, uint64_t ino)
{
    return mgr_map_get(&c->writers, ino);
}

static uint32_t own(const struct mgr_session *s, uint64_t ino)
{
    return mgr_map_get(&s->writes, ino);
}

/* ---------------------------------------------------------------- who has synced */

static size_t find_synced(const struct mgr_vfile *v, uint64_t session)
{
    size_t i = 0;

    while (i < v->nsynced && v->synced[i] != session)
        i++;
    return i;
}

static void not_synced(struct mgr_vfile *v, uint64_t session)
{
    size_t i = find_synced(v, session);

    if (i < v->nsynced)
        v->synced[i] = v->synced[--v->nsynced];
}

static int add_synced(struct mgr_core *c, struct mgr_vfile *v, uint64_t session)
{
    if (find_synced(v, session) < v->nsynced)
        return 0;
    if (v->nsynced == v->synced_cap) {
        size_t cap = v->synced_cap ? v->synced_cap * 2 : 4;
        uint64_t *p = realloc(v->synced, cap * sizeof *p);

        if (!p)
            return mgr_doom(c, -ENOMEM);
        v->synced = p;
        v->synced_cap = cap;
    }
    v->synced[v->nsynced++] = session;
    return 0;
}

/* Has each session that has it open for writing? */
static bool all_synced(const struct mgr_core *c, const struct mgr_vfile *v, const struct mgr_session *s)
{
    if (own(s, v->ino) == writers(c, v->ino))
        return true;
    for (size_t i = 0; i < c->session_count; i++)
        if (own(c->sessions[i], v->ino) && find_synced(v, c->sessions[i]->id) == v->nsynced)
            return false;
    return true;
}

/* ---------------------------------------------------------------- begin */

static bool wanted(const struct mgr_core *c, const struct mgr_inode *in, bool cut)
{
    return c->o.versions && in->nlink && (cut || !(in->flags & MGR_STRICT));
}

static void begin(struct mgr_core *c, struct mgr_vfile *v, const struct mgr_inode *in)
{
    v->open = true;
    v->died = v->old = false;
    v->nsynced = 0;
    v->passed = (in->size == 0 && !in->mapped) || c->now.ms < v->pass_until_ms;
}

/* Several write: none of them alone. */
static int another(struct mgr_core *c, struct mgr_vfile *v, const struct mgr_session *s)
{
    if (!v->guard.writer || (s && v->guard.writer == s->id))
        return 0;
    v->guard.writer = 0;
    return mgr_version_save(c, v, &v->guard);
}

int mgr_epoch_changed(struct mgr_core *c, const struct mgr_session *s, struct mgr_inode *in, bool cut, struct mgr_vfile **out)
{
    struct mgr_vfile *v = mgr_vfile_find(c, in->ino);
    int rc;

    *out = NULL;
    if (!v && (!wanted(c, in, cut) || !writers(c, in->ino)))
        return 0;
    v = v ? v : mgr_vfile_get(c, in->ino);
    if (!v)
        return -ENOMEM;
    if (!v->open && writers(c, in->ino))
        begin(c, v, in);
    if (s)
        not_synced(v, s->id);
    if (v->guard.shadow) {
        *out = v;
        return another(c, v, s);
    }
    if (!v->open || v->passed || !wanted(c, in, cut))
        return 0;
    rc = mgr_version_make(c, v, in, s ? s->id : 0);
    *out = rc ? NULL : v;
    return rc;
}

/* ---------------------------------------------------------------- ends */

static int ends_well(struct mgr_core *c, struct mgr_vfile *v)
{
    int rc;

    v->open = false;
    rc = mgr_version_drop(c, v, &v->remains);
    return rc ? rc : mgr_version_drop(c, v, &v->guard);
}

static int ends_badly(struct mgr_core *c, struct mgr_vfile *v)
{
    v->open = false;
    if (!v->guard.shadow)
        return 0;
    if (v->guard.state == MGR_GUARD)
        return mgr_return_begin(c, v);
    v->guard.state = MGR_TORN;
    FP_WARN("inode %llu: one of those who rewrote it is dead, and another one had synced its part: it stays as it is, and what it was before is kept",
            (unsigned long long)v->ino);
    return mgr_version_save(c, v, &v->guard);
}

/* Nobody has it open for writing. */
static int look(struct mgr_core *c, struct mgr_vfile *v)
{
    int rc = 0;

    if (v->open)
        rc = v->died ? ends_badly(c, v) : ends_well(c, v);
    if (!rc)
        mgr_vfile_done(c, v);
    return rc;
}

int mgr_epoch_closed(struct mgr_core *c, uint64_t ino)
{
    struct mgr_vfile *v = mgr_vfile_find(c, ino);

    return v && v->open && !mgr_unsettled(c) && !writers(c, ino) ? look(c, v) : 0;
}

int mgr_epoch_synced(struct mgr_core *c, const struct mgr_session *s, uint64_t ino)
{
    struct mgr_vfile *v = mgr_vfile_find(c, ino);
    int rc;

    if (!v || !v->open || c->now.ms < v->pass_until_ms)
        return 0;
    rc = add_synced(c, v, s->id);
    if (rc)
        return rc;
    if (v->died || mgr_unsettled(c) || !all_synced(c, v, s)) {
        if (!v->guard.shadow || v->guard.state != MGR_GUARD)
            return 0;
        v->guard.state = MGR_SYNCED;
        return mgr_version_save(c, v, &v->guard);
    }
    if (c->now.ms - v->syncs_ms > SYNCS_MS)
        v->syncs = 0;
    v->syncs_ms = v->syncs ? v->syncs_ms : c->now.ms;
    v->syncs += v->guard.shadow != 0;
    if (v->syncs > SYNCS_MAX)
        v->pass_until_ms = c->now.ms + PASS_MS;
    return ends_well(c, v); /* the entry stays while it is open: it counts */
}

static int died_of(struct mgr_core *c, struct mgr_vfile *v, const struct mgr_session *s)
{
    int rc;

    if (!v->open || !v->guard.shadow)
        return 0;
    v->died = true;
    if (!v->guard.torn_session)
        v->guard.torn_session = c->n.next_session - 1;
    c->versions->look = true;
    rc = mgr_overtake(c, s->id, v->ino);
    return rc ? rc : mgr_version_save(c, v, &v->guard);
}

/* What it had open under a manager before this one is not known, if it has not come back: whatever it may have written. */
static int died_unknown(struct mgr_core *c, const struct mgr_session *s)
{
    struct mgr_versions *t = c->versions;
    int rc = 0;

    for (size_t i = 0; i < t->buckets && t->count && !rc; i++)
        for (struct mgr_vfile *v = t->bucket[i]; v && !rc; v = v->next)
            if (v->old && (!v->guard.writer || v->guard.writer == s->id))
                rc = died_of(c, v, s);
    return rc;
}

int mgr_epoch_left(struct mgr_core *c, const struct mgr_session *s, uint64_t ino)
{
    struct mgr_vfile *v = mgr_vfile_find(c, ino);

    return v ? died_of(c, v, s) : 0;
}

int mgr_epoch_died(struct mgr_core *c, const struct mgr_session *s)
{
    size_t pos = 0;
    uint64_t ino;
    uint32_t val;
    int rc = 0;

    if (s->settled_ms == UINT64_MAX)
        return died_unknown(c, s);
    while (!rc && c->versions->count && mgr_map_next(&s->writes, &pos, &ino, &val))
        rc = mgr_epoch_left(c, s, ino);
    return rc;
}

/* ---------------------------------------------------------------- now and then */

static int sweep_bucket(struct mgr_core *c, struct mgr_vfile *v, size_t *seen)
{
    int rc = 0;

    for (struct mgr_vfile *next; v && !rc; v = next, ++*seen) {
        next = v->next;
        if (v->guard.state == MGR_RETURNING)
            rc = mgr_return_step(c, v);
        else if (!mgr_unsettled(c) && !writers(c, v->ino))
            rc = look(c, v);
    }
    return rc;
}

int mgr_versions_sweep(struct mgr_core *c)
{
    struct mgr_versions *t = c->versions;
    bool all = t->look || t->returning;
    size_t seen = 0;
    int rc = 0;

    t->look = false;
    for (size_t i = 0; i < t->buckets && t->count && !rc && (all || seen < SWEEP_FILES); i++)
        rc = sweep_bucket(c, t->bucket[t->next++ & (t->buckets - 1)], &seen);
    if (t->returning)
        c->busy = true;
    return rc;
}
