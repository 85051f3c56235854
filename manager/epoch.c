/* Epochs: the time in which a file is rewritten. One begins with the first change by those who have the file open for writing. It ends
 *
 *     well    when the last of them has closed it, or each has synced what it wrote: what was there before goes (version.c)
 *     badly   when one of them that has written is dead, or was cut off until its session expired, and the others have closed: what was there before comes back (return.c)
 *     torn    when a program was killed, or told an error, and its mount lives: the file stays as its mount has published it, since live programs are to see what was written, and one that
 *             is started anew may have to mend it. What was there before is kept until somebody closes the file well, and comes back when that mount ends, or when told so
 *
 * A close counts with the commit that it makes (Commit.closes), if all programs of that mount have closed the file: a mount that is killed before it has given the file back had told its
 * program that all is there. Who has a file open for writing and has not written does no harm by dying (Release.wrote_ino).
 *
 * What one of several writers has synced or closed is not taken back by itself: then the file stays as it is, torn, and its guard stays too. Rejected: to give up the guard instead (the file
 * lacks what the dead one had written); to take back the parts of the dead one alone (what it wrote over the others' is not theirs any more). A file that was
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

#include "fp/bug.h"
#include "fp/grown.h"
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

/* Of an epoch that began under the manager before: somebody who wrote may not be back yet. One that began under this one is known; that a session which is not back has the file open, too, with
 * what nobody has heard of, is no reason to leave all files that are rewritten meanwhile without an end. */
static bool undecided(struct mgr_core *c, const struct mgr_vfile *v)
{
    const struct mgr_session *s;

    if (!v->old || !v->guard.shadow || !mgr_unsettled(c))
        return false;
    s = v->guard.writer ? mgr_session_find(c, v->guard.writer) : NULL;
    return !v->guard.writer || (s && s->settled_ms);
}

static size_t find_synced(const struct mgr_vfile *v, uint64_t session)
{
    size_t i = 0;

    while (i < v->nsynced && v->synced[i].session != session)
        i++;
    return i;
}

static void not_synced(struct mgr_vfile *v, uint64_t session)
{
    size_t i = find_synced(v, session);

    if (i < v->nsynced)
        v->synced[i] = v->synced[--v->nsynced];
}

static bool has_closed(const struct mgr_vfile *v, uint64_t session)
{
    size_t i = find_synced(v, session);

    return i < v->nsynced && v->synced[i].closed;
}

static int add_synced(struct mgr_core *c, struct mgr_vfile *v, uint64_t session, bool closed)
{
    size_t i = find_synced(v, session);
    struct mgr_ended *list;

    v->synced_once = true;
    if (i < v->nsynced) {
        v->synced[i].closed |= closed;
        return 0;
    }
    list = fp_grown(v->synced, v->nsynced, &v->synced_cap, sizeof *list);
    if (!list)
        return mgr_doom(c, -ENOMEM);
    v->synced = list;
    v->synced[v->nsynced++] = (struct mgr_ended){session, closed};
    return 0;
}

/* Has each session that has written it, and has it open? Who has not written is no half of it; what it has not published yet is not in the file. */
static bool all_synced(const struct mgr_core *c, const struct mgr_vfile *v, const struct mgr_session *s)
{
    if (own(s, v->ino) == writers(c, v->ino))
        return true;
    for (size_t i = 0; i < c->session_count; i++)
        if (own(c->sessions[i], v->ino) && mgr_map_get(&c->sessions[i]->wrote, v->ino) && find_synced(v, c->sessions[i]->id) == v->nsynced)
            return false;
    return true;
}

/* ---------------------------------------------------------------- begin */

static bool wanted(const struct mgr_core *c, const struct mgr_inode *in, bool cut)
{
    return c->o.versions && in->nlink && (cut || !(in->flags & MGR_STRICT));
}

static int begin(struct mgr_core *c, struct mgr_vfile *v, const struct mgr_inode *in)
{
    bool empty = in->size == 0 && !in->mapped;
    int rc = mgr_waits_rewritten(c, v, in);

    v->open = true;
    v->died = v->old = v->ill = false;
    v->nsynced = 0;
    v->passed = empty || c->now.ms < v->pass_until_ms;
    v->synced_once = v->passed && !empty; /* what it has was, all the time */
    return rc;
}

/* Several write: none of them alone. */
static int another(struct mgr_core *c, struct mgr_vfile *v, const struct mgr_session *s)
{
    if (!v->guard.writer || (s && v->guard.writer == s->id))
        return 0;
    v->guard.writer = 0;
    return mgr_version_save(c, v, &v->guard);
}

static int not_hurt(struct mgr_core *c, struct mgr_vfile *v)
{
    v->guard.state = MGR_GUARD;
    v->guard.cursor = 0;
    return mgr_version_save(c, v, &v->guard);
}

int mgr_epoch_afresh(struct mgr_core *c, struct mgr_vfile *v)
{
    if (!v->open || !v->guard.shadow || (!v->died && v->guard.state != MGR_HURT))
        return 0;
    v->died = false;
    v->guard.torn_session = 0;
    return v->guard.state == MGR_HURT ? not_hurt(c, v) : mgr_version_save(c, v, &v->guard);
}

int mgr_epoch_changed(struct mgr_core *c, const struct mgr_session *s, struct mgr_inode *in, bool cut, struct mgr_vfile **out)
{
    struct mgr_vfile *v = mgr_vfile_find(c, in->ino);
    int rc = 0;

    *out = NULL;
    if (!v && (!wanted(c, in, cut) || !writers(c, in->ino)))
        return 0;
    v = v ? v : mgr_vfile_get(c, in->ino);
    if (!v)
        return -ENOMEM;
    if (!v->open && writers(c, in->ino))
        rc = begin(c, v, in);
    if (s)
        not_synced(v, s->id);
    rc = s && !rc ? mgr_session_wrote(c, mgr_session_find(c, s->id), in->ino) : rc;
    if (rc)
        return rc;
    if (v->guard.shadow) {
        *out = v;
        rc = v->open && v->guard.state == MGR_KILLED ? not_hurt(c, v) : 0; /* who writes it now has seen what it is */
        return rc ? rc : another(c, v, s);
    }
    if (v->open && !v->passed && wanted(c, in, cut))
        rc = mgr_version_make(c, v, in, s ? s->id : 0);
    *out = !rc && (v->guard.shadow || v->waits.shadow) ? v : NULL;
    return rc;
}

/* Is it a new file that was never whole? What this mount has made, and is empty, counts: nothing says that it is closed until it is given back. *writer: session that has it open for writing; 0: several. */
static int never_whole(struct mgr_core *c, const struct mgr_session *s, const struct mgr_inode *in, uint64_t *writer, bool *is)
{
    const struct mgr_vfile *v = mgr_vfile_find(c, in->ino);
    bool fresh = in->size == 0 && !in->mapped && own(s, in->ino);
    uint32_t n = writers(c, in->ino);
    int rc = 0;

    *is = n && !mgr_unheard(c) && (v ? v->open && v->passed && !v->synced_once && !v->guard.shadow && c->now.ms >= v->pass_until_ms : fresh);
    *writer = 0;
    for (size_t i = 0; i < c->session_count && *is && !rc; i++) {
        uint32_t its = own(c->sessions[i], in->ino);

        *writer = its && its == n ? c->sessions[i]->id : *writer;
        rc = its && fresh ? mgr_session_wrote(c, c->sessions[i], in->ino) : 0;
    }
    return rc;
}

/* What the name was, if `old` was never whole either: that has it. */
static int before(struct mgr_core *c, struct mgr_vfile *of, struct mgr_inode *old, bool *is)
{
    *is = of->guard.kind == MGR_REPLACED && of->guard.state != MGR_RETURNING;
    return *is ? mgr_version_detach(c, of, &of->guard, old) : 0;
}

int mgr_epoch_replaces(struct mgr_core *c, const struct mgr_session *s, const struct mgr_inode *in, struct mgr_inode *old, bool *kept)
{
    struct mgr_vfile *of = mgr_vfile_find(c, old->ino), *v;
    struct mgr_inode good = *old;
    uint64_t writer;
    bool is;
    int rc;

    *kept = false;
    if (!c->o.versions || in->flags & MGR_STRICT)
        return 0;
    rc = never_whole(c, s, in, &writer, &is);
    if (!rc && is && of && of->guard.shadow)
        rc = before(c, of, &good, &is);
    else
        is = is && old->size && !mgr_map_get(&c->holders, old->ino);
    if (rc || !is)
        return rc ? rc : mgr_waits_replaced(c, in, old, kept);
    v = mgr_vfile_get(c, in->ino);
    if (!v)
        return -ENOMEM;
    if (!v->open)
        rc = begin(c, v, in);
    v->passed = false;
    *kept = good.ino == old->ino;
    rc = rc ? rc : mgr_waits_inherit(c, in, old, *kept);
    rc = rc || !*kept ? rc : mgr_versions_gone(c, old->ino);
    return rc ? rc : mgr_version_adopt(c, v, &v->guard, in, &good, writer);
}

/* ---------------------------------------------------------------- ends */

static int ends_well(struct mgr_core *c, struct mgr_vfile *v)
{
    int rc;

    v->open = false;
    rc = mgr_version_drop(c, v, &v->remains);
    rc = rc || v->ill ? rc : mgr_given_up_over(c, v->ino);
    return rc ? rc : mgr_waits_begin(c, v);
}

static int ends_badly(struct mgr_core *c, struct mgr_vfile *v)
{
    v->open = false;
    if (!v->guard.shadow)
        return 0;
    if (v->guard.state == MGR_GUARD)
        return mgr_return_begin(c, v);
    v->guard.state = MGR_TORN;
    FP_WARN("inode %llu: one of those who rewrote it is dead, and another one had synced or closed its part: it stays as it is, and what it was before is kept",
            (unsigned long long)v->ino);
    return mgr_version_save(c, v, &v->guard);
}

/* Live programs are to see what was written, as on any file system; and a program that is started anew may have to see it, to mend it. */
static int ends_killed(struct mgr_core *c, struct mgr_vfile *v)
{
    ProtobufCBinaryData path = mgr_path(c, v->ino);

    v->open = false;
    v->guard.state = MGR_KILLED;
    FP_WARN("%.*s (inode %llu): a program that rewrote it was killed, or could not write all of it: what it was before is put back when the mount of that program ends, "
            "or by fpctl restore",
            (int)path.len, path.len ? (const char *)path.data : "", (unsigned long long)v->ino);
    return mgr_version_save(c, v, &v->guard);
}

/* A session that is expired may come back; a program that was killed does not. */
static bool is_gone(struct mgr_core *c, uint64_t session)
{
    const struct mgr_session *s = session ? mgr_session_find(c, session) : NULL;

    return !s || s->expired;
}

bool mgr_epoch_is_over(struct mgr_core *c, const struct mgr_vfile *v)
{
    if (writers(c, v->ino) || !v->guard.shadow)
        return false;
    return v->open ? v->died && v->guard.state == MGR_GUARD : v->guard.state == MGR_KILLED && is_gone(c, v->guard.cursor);
}

/* Nobody has it open for writing. */
static int look(struct mgr_core *c, struct mgr_vfile *v)
{
    int rc = 0;

    if (v->open)
        rc = v->died ? ends_badly(c, v) : v->guard.state == MGR_HURT ? ends_killed(c, v) : ends_well(c, v);
    if (!rc && v->guard.state == MGR_KILLED && is_gone(c, v->guard.cursor))
        rc = mgr_return_begin(c, v);
    rc = rc ? rc : mgr_waits_look(c, v);
    if (!rc)
        mgr_vfile_done(c, v);
    return rc;
}

int mgr_epoch_closed(struct mgr_core *c, uint64_t ino)
{
    struct mgr_vfile *v = mgr_vfile_find(c, ino);

    return v && v->open && !undecided(c, v) && !writers(c, ino) ? look(c, v) : 0;
}

/* What is synced does not go back by itself, so from here on it can only stay torn, if it does not end well. */
static int keep_synced(struct mgr_core *c, struct mgr_vfile *v)
{
    if (!v->guard.shadow || (v->guard.state != MGR_GUARD && v->guard.state != MGR_HURT))
        return 0;
    if (v->guard.state == MGR_HURT) {
        v->died = true;
        v->guard.torn_session = c->n.next_session - 1;
        v->guard.cursor = 0;
    }
    v->guard.state = MGR_SYNCED;
    return mgr_version_save(c, v, &v->guard);
}

/* Can it end now, while programs have it open? */
static bool may_end(struct mgr_core *c, const struct mgr_vfile *v, const struct mgr_session *s)
{
    return !v->died && v->guard.state != MGR_HURT && (!undecided(c, v) || v->guard.writer == s->id) && all_synced(c, v, s);
}

int mgr_epoch_synced(struct mgr_core *c, const struct mgr_session *s, uint64_t ino)
{
    struct mgr_vfile *v = mgr_vfile_find(c, ino);
    int rc;

    if (!v || !v->open)
        return 0;
    v->synced_once = true;
    if (c->now.ms < v->pass_until_ms)
        return 0;
    rc = add_synced(c, v, s->id, false);
    if (rc)
        return rc;
    if (!may_end(c, v, s))
        return keep_synced(c, v);
    if (c->now.ms - v->syncs_ms > SYNCS_MS)
        v->syncs = 0;
    v->syncs_ms = v->syncs ? v->syncs_ms : c->now.ms;
    v->syncs += v->guard.shadow != 0;
    if (v->syncs > SYNCS_MAX)
        v->pass_until_ms = c->now.ms + PASS_MS;
    return ends_well(c, v); /* the entry stays while it is open: it counts */
}

/* Others write, or one that did is dead or was killed: what this one was told to be there is not taken back with their part. Its own killed programs' part may be. */
static int keep_closed(struct mgr_core *c, struct mgr_vfile *v, const struct mgr_session *s)
{
    if (v->guard.state == MGR_HURT && v->guard.cursor == s->id)
        return 0;
    return keep_synced(c, v);
}

int mgr_epoch_closing(struct mgr_core *c, const struct mgr_session *s, uint64_t ino)
{
    struct mgr_vfile *v = mgr_vfile_find(c, ino);

    if (!v || !v->open || own(s, ino) != 1 || !mgr_map_get(&s->wrote, ino) || (!v->died && own(s, ino) == writers(c, ino)))
        return 0;
    return keep_closed(c, v, s);
}

/* Its mount may be killed before it has given back what the programs have closed: they were told that it is there. */
int mgr_epoch_published(struct mgr_core *c, struct mgr_session *s, uint64_t ino)
{
    struct mgr_vfile *v = mgr_vfile_find(c, ino);
    bool wrote;
    int rc;

    if (!v || !v->open || !s || FP_BUG("mgr-ends-an-epoch-at-its-release"))
        return 0;
    wrote = mgr_map_get(&s->wrote, ino);
    mgr_session_closed(s, ino);
    rc = add_synced(c, v, s->id, true);
    if (rc)
        return rc;
    if (may_end(c, v, s))
        return ends_well(c, v);
    return wrote ? keep_closed(c, v, s) : 0;
}

int mgr_epoch_hurt(struct mgr_core *c, const struct mgr_session *s, uint64_t ino)
{
    struct mgr_vfile *v = mgr_vfile_find(c, ino);

    if (!v || !v->open)
        return 0;
    if (!v->guard.shadow) {
        v->ill = true;
        return 0;
    }
    if (v->guard.state == MGR_SYNCED) {
        v->died = true;
        v->guard.torn_session = c->n.next_session - 1;
    } else {
        v->guard.state = MGR_HURT;
        v->guard.cursor = s->id;
    }
    return mgr_version_save(c, v, &v->guard);
}

static int died_of(struct mgr_core *c, struct mgr_vfile *v, const struct mgr_session *s)
{
    int rc;

    if (!v->open || has_closed(v, s->id) || (s->settled_ms != UINT64_MAX && !mgr_map_get(&s->wrote, v->ino)))
        return 0;
    if (!v->guard.shadow) {
        v->ill = true;
        return 0;
    }
    v->died = true;
    if (!v->guard.torn_session)
        v->guard.torn_session = c->n.next_session - 1;
    c->versions->look = true;
    rc = mgr_overtake(c, s->id, v->ino);
    return rc ? rc : mgr_version_save(c, v, &v->guard);
}

/* What it had open under a manager before this one is not known, if it has not come back: what it was the only one to write; and what several wrote, it may have, but that is no reason
 * to take back what the others have closed: that stays torn. */
static int died_unknown(struct mgr_core *c, const struct mgr_session *s)
{
    struct mgr_versions *t = c->versions;
    int rc = 0;

    for (size_t i = 0; i < t->buckets && t->count && !rc; i++)
        for (struct mgr_vfile *v = t->bucket[i]; v && !rc; v = v->next)
            if (v->old && (!v->guard.writer || v->guard.writer == s->id)) {
                rc = v->guard.writer ? 0 : keep_synced(c, v);
                rc = rc ? rc : died_of(c, v, s);
            }
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

static int gone_of(struct mgr_core *c, struct mgr_vfile *v)
{
    v->guard.cursor = 0;
    if (v->guard.state == MGR_KILLED)
        return writers(c, v->ino) ? mgr_version_save(c, v, &v->guard) : mgr_return_begin(c, v);
    v->guard.state = MGR_GUARD;
    v->died = true;
    v->guard.torn_session = c->n.next_session - 1;
    c->versions->look = true;
    return mgr_version_save(c, v, &v->guard);
}

int mgr_epoch_gone(struct mgr_core *c, const struct mgr_session *s)
{
    struct mgr_versions *t = c->versions;
    int rc = 0;

    for (size_t i = 0; i < t->buckets && t->shadows.used && !rc; i++)
        for (struct mgr_vfile *v = t->bucket[i]; v && !rc; v = v->next)
            if ((v->guard.state == MGR_KILLED || v->guard.state == MGR_HURT) && v->guard.cursor == s->id)
                rc = gone_of(c, v);
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
        else if (v->waits.state == MGR_NEXT)
            rc = mgr_waits_next(c, v);
        else if (!undecided(c, v) && !writers(c, v->ino))
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
