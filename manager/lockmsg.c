/* Locks on the wire and in the database (MSG_LOCK, MSG_LOCK_GRANT, MSG_LOCK_RECALL). What may be had, and when, locks.h decides.
 *
 *   MSG_LOCK --> locks --> rows changed, in this transaction
 *                     `--> after the COMMIT: ends of waits, recalls
 *
 * A request changes the same once or twice, so it needs no slot: who has no answer asks again. What it was told that it holds, a
 * mount says in its hello; all else of its session goes then, so nothing stays that nobody knows of. Its waits end with its
 * connection, since nobody could be told; it asks again.
 *
 * A grant says what the file is now (attributes, data version), so that what the holder before has published is seen without asking.
 *
 * Called by the core's thread, in a group (pump: after it). */
#include <errno.h>
#include <string.h>

#include "fp/bug.h"
#include "fp/err.h"
#include "fp/log.h"
#include "manager/core_int.h"
#include "manager/locks.h"

/* ---------------------------------------------------------------- rows */

/* What the last call changed, into the transaction. */
static int store_changes(struct mgr_core *c)
{
    struct mgr_lock_change ch;
    int rc = 0;

    while (mgr_locks_change_next(c->locks, &ch)) {
        const struct mgr_lock *l = &ch.l;

        if (!rc && ch.add)
            rc = mgr_db_exec(&c->db, LOCK_PUT, DBI(ch.ino), DBI(l->kind), DBI(l->session), DBI(l->owner), DBI(l->start),
                             DBI(l->end), DBI(l->exclusive), DBI(l->pid));
        else if (!rc)
            rc = mgr_db_exec(&c->db, LOCK_DELETE, DBI(ch.ino), DBI(l->kind), DBI(l->session), DBI(l->owner),
                             DBI(l->start));
    }
    return rc;
}

int mgr_locks_read(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_LOCK_LIST;
    int rc;

    mgr_locks_clear(c->locks);
    for (rc = mgr_db_one(&c->db, LOCK_LIST); rc > 0; rc = mgr_db_step(&c->db, st)) {
        struct mgr_lock l = {.kind = (uint8_t)mgr_col(&c->db, st, 1),
                             .session = (uint64_t)mgr_col(&c->db, st, 2),
                             .owner = (uint64_t)mgr_col(&c->db, st, 3),
                             .start = (uint64_t)mgr_col(&c->db, st, 4),
                             .end = (uint64_t)mgr_col(&c->db, st, 5),
                             .exclusive = mgr_col(&c->db, st, 6) != 0,
                             .pid = (uint32_t)mgr_col(&c->db, st, 7)};

        if (FP_BUG("mgr-drops-a-lock-at-its-start") && l.start % 2 == 0)
            continue;
        if (mgr_locks_load(c->locks, (uint64_t)mgr_col(&c->db, st, 0), &l)) {
            mgr_db_reset(&c->db, st);
            return -ENOMEM;
        }
    }
    return rc;
}

/* ---------------------------------------------------------------- sessions */

void mgr_locks_conn_lost(struct mgr_core *c, uint64_t session)
{
    mgr_locks_lost(c->locks, session, c->now.ms);
    store_changes(c);
}

int mgr_locks_session_end(struct mgr_core *c, uint64_t session)
{
    int rc = mgr_locks_end(c->locks, session, c->now.ms);
    int end = store_changes(c);

    return rc ? mgr_doom(c, rc) : end;
}

int mgr_locks_hello(struct mgr_core *c, uint64_t session, const Fp__Hello *h, Fp__HelloReply *r)
{
    size_t n = h->n_locks;
    struct mgr_lock_id *ids = mgr_arena_alloc(&c->arena, (n + 1) * sizeof *ids);
    bool *missing = mgr_arena_alloc(&c->arena, n + 1);
    int rc, end;

    r->lost_locks = mgr_arena_alloc(&c->arena, (n + 1) * sizeof(Fp__LockId *));
    if (!ids || !missing || !r->lost_locks)
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < n; i++) {
        const Fp__LockId *id = h->locks[i];

        if ((unsigned)id->kind >= MGR_LOCK_KINDS)
            return -EINVAL;
        ids[i] = (struct mgr_lock_id){.ino = id->ino, .session = session, .owner = id->owner, .kind = (uint8_t)id->kind};
    }
    rc = mgr_locks_keep(c->locks, session, ids, n, missing, c->now.ms);
    end = store_changes(c);
    for (size_t i = 0; i < n; i++)
        if (missing[i])
            r->lost_locks[r->n_lost_locks++] = h->locks[i]; /* of the request: it lasts as long as the group */
    return rc ? mgr_doom(c, rc) : end;
}

void mgr_locks_due(struct mgr_core *c)
{
    mgr_locks_tick(c->locks, c->now.ms);
    store_changes(c);
}

/* ---------------------------------------------------------------- the message */

static int attr_of(struct mgr_core *c, uint64_t ino, Fp__Attr **out)
{
    struct mgr_inode in;
    int rc = mgr_inode_get(c, ino, &in);

    rc = rc ? rc : mgr_inode_usable(c, &in);
    if (rc)
        return rc;
    *out = mgr_attr(c, &in);
    return *out ? 0 : mgr_doom(c, -ENOMEM);
}

static int set(struct mgr_core *c, const Fp__Lock *m, const struct mgr_lock *l, Fp__LockReply *r)
{
    int rc = attr_of(c, m->ino, &r->attr), end;

    if (rc)
        return rc;
    rc = mgr_locks_set(c->locks, m->ino, l, m->ticket, m->wait, c->now.ms);
    end = store_changes(c);
    if (rc < 0 || end)
        return end ? end : rc;
    r->queued = rc == MGR_LOCK_QUEUED;
    if (r->queued)
        r->attr = NULL;
    return 0;
}

static int unset(struct mgr_core *c, const Fp__Lock *m, const struct mgr_lock *l, Fp__LockReply *r)
{
    int rc = mgr_locks_unset(c->locks, m->ino, l, c->now.ms);
    int end = store_changes(c);

    r->held = mgr_locks_owns(c->locks, m->ino, l);
    return end ? end : rc;
}

/* A process's number means something to others of the same boot only. */
static void get(struct mgr_core *c, const struct mgr_session *me, const Fp__Lock *m, const struct mgr_lock *l,
                Fp__LockReply *r)
{
    const struct mgr_session *s;
    struct mgr_lock h;

    r->held = mgr_locks_test(c->locks, m->ino, l, &h);
    if (!r->held)
        return;
    s = mgr_session_find(c, h.session);
    r->exclusive = h.exclusive;
    r->start = h.start;
    r->end = h.end;
    if (s && (s == me || (s->place.boot && s->place.boot == me->place.boot)))
        r->pid = h.pid;
    if (s)
        r->node = mgr_arena_copy(&c->arena, s->node, strlen(s->node) + 1);
    if (!r->node)
        r->node = (char *)"";
}

bool mgr_others_append(const struct mgr_core *c, const struct mgr_session *me, uint64_t ino)
{
    const struct mgr_lock all = {.session = me->id, .end = MGR_LOCK_EOF, .kind = MGR_LOCK_APPEND, .exclusive = true};
    struct mgr_lock other;

    return mgr_locks_test(c->locks, ino, &all, &other);
}

static void closing(struct mgr_core *c, const Fp__Lock *m, const struct mgr_lock *l)
{
    struct mgr_lock_id id = {.ino = m->ino, .session = l->session, .owner = l->owner, .kind = l->kind};

    mgr_locks_closing(c->locks, &id, c->now.ms);
}

MGR_HANDLER(lock)
{
    const Fp__Lock *m = msg;
    Fp__LockReply *r = MGR_NEW(c, Fp__LockReply, fp__lock_reply__init);
    const struct mgr_lock l = {.session = rq->sess->id,
                               .since_ms = c->now.ms,
                               .owner = m->owner,
                               .start = m->start,
                               .end = m->end,
                               .pid = m->pid,
                               .kind = (uint8_t)m->kind,
                               .exclusive = m->exclusive};

    if (!r)
        return mgr_doom(c, -ENOMEM);
    rq->reply = &r->base;
    if ((unsigned)m->kind >= MGR_LOCK_KINDS || m->start > m->end || m->end > MGR_LOCK_EOF)
        return -EINVAL;
    switch (m->op) {
    case FP__LOCK_OP__LOCK_SET:
        return m->ticket ? set(c, m, &l, r) : -EINVAL;
    case FP__LOCK_OP__LOCK_UNSET:
        return unset(c, m, &l, r);
    case FP__LOCK_OP__LOCK_GET:
        get(c, rq->sess, m, &l, r);
        return 0;
    case FP__LOCK_OP__LOCK_CANCEL:
        r->held = mgr_locks_cancel(c->locks, l.session, m->ticket, c->now.ms);
        return store_changes(c);
    case FP__LOCK_OP__LOCK_CLOSING:
        closing(c, m, &l);
        return 0;
    default:
        return -EINVAL;
    }
}

/* ---------------------------------------------------------------- after the COMMIT */

static struct mgr_conn *conn_of(struct mgr_core *c, uint64_t session)
{
    const struct mgr_session *s = mgr_session_find(c, session);

    return s && s->conn && !s->conn->closing ? s->conn : NULL;
}

/* One that can't be told loses its connection: it asks again, and gives back what it does not know of. */
static void tell_done(struct mgr_core *c, const struct mgr_lock_done *d)
{
    struct mgr_conn *conn = conn_of(c, d->session);
    Fp__LockGrant *g;

    if (!conn)
        return;
    g = MGR_NEW(c, Fp__LockGrant, fp__lock_grant__init);
    if (!g || (d->status == 0 && attr_of(c, d->ino, &g->attr) == -ENOMEM)) {
        mgr_conn_close(c, conn);
        return;
    }
    g->ticket = d->ticket;
    g->status = d->status ? d->status : g->attr ? 0 : -EIO;
    mgr_out(c, MGR_OUT_SEND, conn, FP__MSG_TYPE__MSG_LOCK_GRANT, &g->base);
}

void mgr_locks_pump(struct mgr_core *c)
{
    struct mgr_lock_recall rec;
    struct mgr_lock_done d;

    mgr_locks_commit(c->locks);
    while (mgr_locks_done_next(c->locks, &d))
        tell_done(c, &d);
    while (mgr_locks_recall_next(c->locks, &rec)) {
        struct mgr_conn *conn = conn_of(c, rec.session);
        Fp__InodeReq *m = conn ? MGR_NEW(c, Fp__InodeReq, fp__inode_req__init) : NULL;

        if (conn && !m)
            mgr_conn_close(c, conn); /* at its hello it is told again */
        if (!m)
            continue;
        m->ino = rec.ino;
        mgr_out(c, MGR_OUT_SEND, conn, FP__MSG_TYPE__MSG_LOCK_RECALL, &m->base);
    }
}
