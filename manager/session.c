/* Sessions: one per mount, longer-lived than its connection and than the manager process.
 *
 *   connected --connection lost--> lost --session_timeout--> expired --orphan_grace--> dead
 *        ^------------------ hello with its number ------------------'
 *
 * lost: holds its open files. expired: open files are forgotten, but its number and its answers are kept, so
 * it may still come back. dead: rows deleted; its chunks that no file knows are collected by the next
 * inventory.
 *
 * What a session holds open is in memory only. A client that comes back tells it in Hello; for settle_ms
 * after that, and after a restart of the manager until every session has come back or died, the picture may
 * be incomplete (requests without an answer are still to be sent again), and nothing without a name is
 * removed (orphan.c).
 *
 * Answers: one row per (session, slot), in the transaction of the change; see replay.c. Failures are not
 * kept: a request that changed nothing may be executed again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/bug.h"
#include "fp/err.h"
#include "fp/grown.h"
#include "fp/log.h"
#include "manager/core_int.h"
#include "manager/foreign.h"
#include "manager/version.h"
#include "manager/sets.h"

#define UNKNOWN_SETTLE_MS 30000u /* for a client that comes back and does not tell what it holds */

struct mgr_session *mgr_session_find(struct mgr_core *c, uint64_t id)
{
    size_t lo = 0, hi = c->session_count;

    while (lo < hi) { /* by id, ascending: numbers only grow */
        size_t mid = (lo + hi) / 2;

        if (c->sessions[mid]->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->session_count && c->sessions[lo]->id == id && !c->sessions[lo]->ended ? c->sessions[lo] : NULL;
}

static void set_settled(struct mgr_core *c, struct mgr_session *s, uint64_t ms)
{
    c->unsettled += (ms != 0) - (s->settled_ms != 0);
    c->unheard += (ms != 0 && !s->known) - (s->settled_ms != 0 && !s->known);
    c->behind_away -= mgr_lease_is_away(s);
    s->settled_ms = ms;
    s->known |= ms == 0;
    c->behind_away += mgr_lease_is_away(s);
}

/* Opens for writing ask whether there is one: it is counted. */
static void set_expired(struct mgr_core *c, struct mgr_session *s, bool expired)
{
    c->behind_expired += (expired && s->behind) - (s->expired && s->behind);
    s->expired = expired;
}

/* A session in memory. Strings are copied. */
static struct mgr_session *session_new(struct mgr_core *c, uint64_t id, const char *node,
                                       const char *mountpoint, const char *software)
{
    struct mgr_session *s = calloc(1, sizeof *s), **list = fp_grown(c->sessions, c->session_count, &c->session_cap, sizeof *list);

    if (list)
        c->sessions = list;
    if (!s || !list) {
        free(s);
        return NULL;
    }
    c->stirred = true;
    s->id = id;
    s->node = strdup(node);
    s->mountpoint = strdup(mountpoint);
    s->software = strdup(software);
    s->seen_ms = c->now.ms;
    c->sessions[c->session_count++] = s;
    if (!s->node || !s->mountpoint || !s->software) {
        mgr_session_free(c, s);
        return NULL;
    }
    return s;
}

/* All that are in a map of the session, of a map of all. */
static void drop_map(struct mgr_map *of_all, struct mgr_map *its)
{
    size_t pos = 0;
    uint64_t ino;
    uint32_t val;

    while (mgr_map_next(its, &pos, &ino, &val))
        while (val--)
            mgr_map_sub(of_all, ino);
    mgr_map_fini(its);
}

static void drop_holds(struct mgr_core *c, struct mgr_session *s)
{
    if (s->writes.used)
        mgr_sets_look_at_all(c);
    drop_map(&c->holders, &s->opens);
    drop_map(&c->writers, &s->writes);
    mgr_map_fini(&s->wrote);
    mgr_leases_drop(c, s);
    c->sweep_at_ms = 0;
}

void mgr_session_free(struct mgr_core *c, struct mgr_session *s)
{
    size_t i = 0;

    c->stirred = true;
    while (i < c->session_count && c->sessions[i] != s)
        i++;
    if (i < c->session_count) {
        memmove(&c->sessions[i], &c->sessions[i + 1], (c->session_count - i - 1) * sizeof c->sessions[0]);
        c->session_count--;
    }
    (void)mgr_sets_died(c, s);
    set_settled(c, s, 0);
    set_expired(c, s, false);
    drop_holds(c, s);
    if (s->conn)
        s->conn->sess = NULL;
    if (s->stats)
        fp__client_stats__free_unpacked(s->stats, NULL);
    free(s->node);
    free(s->mountpoint);
    free(s->software);
    free(s);
}

int mgr_session_load(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_SESSION_LIST;
    int rc;

    for (rc = mgr_db_one(&c->db, SESSION_LIST); rc > 0; rc = mgr_db_step(&c->db, st)) {
        struct mgr_session *s = session_new(c, (uint64_t)mgr_col(&c->db, st, 0), mgr_col_text(&c->db, st, 1),
                                            mgr_col_text(&c->db, st, 2), mgr_col_text(&c->db, st, 4));

        if (!s) {
            mgr_db_reset(&c->db, st);
            return -ENOMEM;
        }
        s->place = (struct mgr_place){.machine = (uint64_t)mgr_col(&c->db, st, 6),
                                      .boot = (uint64_t)mgr_col(&c->db, st, 7),
                                      .mount_ns = (uint64_t)mgr_col(&c->db, st, 8)};
        s->pid = (uint32_t)mgr_col(&c->db, st, 3);
        s->started_ns = mgr_col(&c->db, st, 5);
        set_settled(c, s, UINT64_MAX);
        s->may_cache = true; /* we do not know */
    }
    c->loaded_ms = c->session_count ? c->now.ms : 0;
    for (size_t i = 0; i < c->session_count && !rc; i++)
        rc = mgr_leases_session_load(c, c->sessions[i]);
    return rc;
}

/* ---------------------------------------------------------------- who is alone */

/* While there is one session only, nobody else can change a name. The client then lets the kernel cache names for
 * a moment (path look-ups are most of all requests), and once it has asked for inode numbers (MSG_INODES) it may
 * answer its programs before we hear of it (c->early_session).
 *
 * Before a second session does anything (HelloReply.wait, MSG_READY), the first has answered MSG_ALONE, and what
 * its kernel caches has expired. One that has lost its connection gets no answers that its kernel could cache;
 * but what it has told its programs is still to come. It is waited for until it is back, expired, or known to be
 * dead: somebody else has got its mountpoint. Sessions that are only expired count as others: they may come back. */
static bool is_alone(const struct mgr_core *c)
{
    return c->session_count == 1 && !mgr_foreign_any(c);
}

static int early_set(struct mgr_core *c, uint64_t session)
{
    if (c->early_session == session)
        return 0;
    c->early_session = session;
    c->stirred = true;
    return mgr_db_exec(&c->db, META_PUT, DBT("early_session"), DBI(session));
}

int mgr_early_load(struct mgr_core *c)
{
    int rc = mgr_db_one(&c->db, META_GET, DBT("early_session"));

    c->early_session = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_META_GET, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_META_GET);
    return rc < 0 ? rc : 0;
}

static bool may_hold_up(const struct mgr_core *c, const struct mgr_session *s)
{
    if (s->expired)
        return false;
    if (c->early_session == s->id)
        return true;
    if (s->may_cache)
        return s->conn || c->now.ms - s->seen_ms < MGR_CACHE_MS;
    return s->acked_ms && c->now.ms - s->acked_ms < MGR_CACHE_MS;
}

/* Whom a session has to wait for; NULL: nobody. */
static const struct mgr_session *held_up_by(const struct mgr_core *c, const struct mgr_session *me)
{
    for (size_t i = 0; i < c->session_count; i++)
        if (c->sessions[i] != me && may_hold_up(c, c->sessions[i]))
            return c->sessions[i];
    return NULL;
}

/* A job makes names and changes none: whose kernel has no name any more sees them at once. Times of a directory it may have for half a second. */
bool mgr_names_held(const struct mgr_core *c)
{
    for (size_t i = 0; i < c->session_count; i++) {
        const struct mgr_session *s = c->sessions[i];

        if (may_hold_up(c, s) && (s->may_cache || c->early_session == s->id || !s->forgot))
            return true;
    }
    return false;
}

/* A mountpoint has one fp-mount, so who gets it shows that the one before is dead: in the same mount namespace of the
 * same boot, or when the machine was booted since. Names of nodes and paths alone prove nothing: containers share them. */
static bool takes_place(const struct mgr_session *s, const struct mgr_session *newcomer)
{
    const struct mgr_place *was = &s->place, *is = &newcomer->place;

    if (strcmp(s->node, newcomer->node) != 0 || strcmp(s->mountpoint, newcomer->mountpoint) != 0 || !was->boot || !is->boot)
        return false;
    if (was->boot == is->boot)
        return was->mount_ns && was->mount_ns == is->mount_ns;
    return was->machine && was->machine == is->machine;
}

/* It writes nothing any more, and has not closed it: sets of it are torn. Of which these are one may have said nothing. */
static int drop_writes(struct mgr_core *c, struct mgr_session *s)
{
    int rc = s->writes.used || s->settled_ms == UINT64_MAX ? mgr_sets_died(c, s) : 0;

    if (rc)
        return rc;
    if (s->writes.used)
        mgr_sets_look_at_all(c);
    drop_map(&c->writers, &s->writes);
    return 0;
}

/* What it was writing has come to an end with it: the versions before are there when the newcomer looks. */
static int bury_writes(struct mgr_core *c, struct mgr_session *s)
{
    int rc = mgr_epoch_died(c, s);

    rc = rc ? rc : mgr_lost_doubt(c, s);
    rc = rc ? rc : mgr_lost_closes(c, s, true);
    rc = rc ? rc : drop_writes(c, s);
    return rc ? rc : mgr_versions_sweep(c);
}

static int bury(struct mgr_core *c, const struct mgr_session *newcomer)
{
    int rc = 0;

    for (size_t i = 0; i < c->session_count && !rc; i++) {
        struct mgr_session *s = c->sessions[i];
        bool unknown = s->settled_ms == UINT64_MAX;

        if (s == newcomer || s->conn || (!s->writes.used && s->id != c->early_session && !unknown && !c->versions->shadows.used && !mgr_leases_any_closed(s)) || !takes_place(s, newcomer))
            continue;
        rc = s->id == c->early_session ? early_set(c, 0) : 0;
        rc = rc ? rc : mgr_epoch_gone(c, s);
        rc = rc || (!s->writes.used && !unknown && !mgr_leases_any_closed(s)) ? rc : bury_writes(c, s);
        if (!rc && unknown)
            set_settled(c, s, 0);
    }
    return rc;
}

static void tell_alone(struct mgr_core *c, struct mgr_session *s)
{
    bool alone = is_alone(c), owes = s->may_cache || c->early_session == s->id;
    Fp__Alone *m;

    if (s->asked || (alone ? s->may_cache : !owes) || FP_BUG("mgr-forgets-to-recall-alone"))
        return;
    m = MGR_NEW(c, Fp__Alone, fp__alone__init);
    if (!m) { /* not heard is worse than not connected */
        mgr_conn_close(c, s->conn);
        return;
    }
    m->alone = s->asked_alone = alone;
    s->asked = true;
    s->may_cache |= alone;
    mgr_out(c, MGR_OUT_CALL, s->conn, FP__MSG_TYPE__MSG_ALONE, &m->base);
}

static void tell_ready(struct mgr_core *c, struct mgr_session *s)
{
    Fp__Empty *m;

    if (!s->waits || held_up_by(c, s))
        return;
    m = MGR_NEW(c, Fp__Empty, fp__empty__init);
    if (!m)
        return; /* at the next tick */
    s->waits = false;
    mgr_out(c, MGR_OUT_SEND, s->conn, FP__MSG_TYPE__MSG_READY, &m->base);
}

void mgr_session_pump(struct mgr_core *c)
{
    bool stirred = c->stirred;

    c->stirred = false;
    for (size_t i = 0; i < c->session_count && stirred; i++) {
        struct mgr_session *s = c->sessions[i];

        if (!s->conn || s->conn->closing)
            continue;
        tell_alone(c, s);
        tell_ready(c, s);
    }
}

void mgr_session_answered(struct mgr_core *c, struct mgr_session *s, int status, bool forgot)
{
    s->asked = false;
    c->stirred = true;
    if (status || s->asked_alone)
        return; /* if it was not heard: the next pump asks again */
    s->may_cache = false;
    s->acked_ms = c->now.ms;
    s->forgot = forgot;
    mgr_foreign_may_name(c);
    if (c->early_session == s->id)
        early_set(c, 0);
}

/* The last numbers of a full store are given out one by one, by mgr_inode_new, so that no file is made whose
 * ENOSPC comes later. */
MGR_HANDLER(inodes)
{
    enum { MOST = 65536 };
    const Fp__Inodes *m = msg;
    Fp__InodesReply *r = MGR_NEW(c, Fp__InodesReply, fp__inodes_reply__init);
    const struct mgr_session *s = rq->sess;
    uint32_t count = m->count < MOST ? m->count : MOST;
    int rc = 0;

    if (!r)
        return mgr_doom(c, -ENOMEM);
    rq->reply = &r->base;
    if (m->count == 0)
        return c->early_session == s->id ? early_set(c, 0) : 0;
    if (!is_alone(c) || !s->may_cache || s->waits ||
        c->n.inodes + 4 * (uint64_t)count > c->o.inodes_max)
        return 0;
    rq->durable = c->early_session != s->id; /* after a power failure, too, somebody may have to wait for this one */
    rc = early_set(c, s->id);
    r->first = c->n.next_ino;
    r->count = count;
    c->n.next_ino += count;
    c->n.dirty = true;
    return rc;
}

/* ---------------------------------------------------------------- open references */

static int remember(struct mgr_core *c, uint64_t session, uint64_t ino, bool write)
{
    struct mgr_undo *list = fp_grown(c->undo, c->undo_count, &c->undo_cap, sizeof *list);

    if (!list)
        return -ENOMEM;
    c->undo = list;
    c->undo[c->undo_count++] = (struct mgr_undo){.session = session, .ino = ino, .write = write};
    return 0;
}

static int add_hold(struct mgr_core *c, struct mgr_session *s, uint64_t ino)
{
    if (mgr_map_reserve(&s->opens) || mgr_map_reserve(&c->holders))
        return -ENOMEM;
    mgr_map_add(&s->opens, ino);
    mgr_map_add(&c->holders, ino);
    return 0;
}

static int add_write(struct mgr_core *c, struct mgr_session *s, uint64_t ino)
{
    if (mgr_map_reserve(&s->writes) || mgr_map_reserve(&c->writers))
        return -ENOMEM;
    mgr_map_add(&s->writes, ino);
    mgr_map_add(&c->writers, ino);
    return 0;
}

int mgr_session_wrote(struct mgr_core *c, struct mgr_session *s, uint64_t ino)
{
    if (mgr_map_get(&s->wrote, ino) || !mgr_map_get(&s->writes, ino))
        return 0;
    if (mgr_map_reserve(&s->wrote))
        return mgr_doom(c, -ENOMEM);
    mgr_map_add(&s->wrote, ino);
    return 0;
}

void mgr_session_closed(struct mgr_session *s, uint64_t ino)
{
    if (mgr_map_get(&s->wrote, ino))
        mgr_map_sub(&s->wrote, ino);
}

/* Never more of them than references, whatever a client says. */
static void sub_write(struct mgr_core *c, struct mgr_session *s, uint64_t ino, bool write)
{
    uint32_t n = mgr_map_get(&s->writes, ino);

    if (n == 0 || (!write && n <= mgr_map_get(&s->opens, ino)))
        return;
    mgr_map_sub(&s->writes, ino);
    if (n == 1)
        mgr_session_closed(s, ino);
    if (!mgr_map_sub(&c->writers, ino))
        mgr_sets_closed(c, ino);
}

int mgr_session_overtake(struct mgr_core *c, struct mgr_session *s, uint64_t ino)
{
    int rc = mgr_overtake(c, s->id, ino);

    while (!rc && mgr_map_get(&s->writes, ino))
        sub_write(c, s, ino, true);
    return rc;
}

int mgr_hold(struct mgr_core *c, struct mgr_session *s, uint64_t ino, bool write)
{
    if (!s)
        return -EPERM;
    if (remember(c, s->id, ino, write) || add_hold(c, s, ino) || (write && add_write(c, s, ino)))
        return mgr_doom(c, -ENOMEM);
    return 0;
}

void mgr_unhold(struct mgr_core *c, struct mgr_session *s, uint64_t ino, bool write)
{
    uint32_t left;

    if (!s || !mgr_map_get(&s->opens, ino))
        return;
    left = mgr_map_sub(&s->opens, ino);
    if (write)
        (void)mgr_epoch_closing(c, s, ino); /* if it fails, so does the group */
    sub_write(c, s, ino, write);
    if (!left)
        mgr_lease_released(c, s, ino);
    if (write)
        (void)mgr_epoch_closed(c, ino);
    if (!mgr_map_sub(&c->holders, ino))
        (void)mgr_orphan_released(c, ino); /* if the group fails, the sweeps find the epoch and the orphan */
}

/* What this group has ended goes now, or is as if its connection had been lost. */
static void settle_ended(struct mgr_core *c, bool committed)
{
    for (size_t i = c->sessions_ended ? c->session_count : 0; i-- > 0;) {
        struct mgr_session *s = c->sessions[i];

        if (s->ended && committed)
            mgr_session_free(c, s);
        else
            s->ended = false;
    }
    c->sessions_ended = false;
}

void mgr_session_undo(struct mgr_core *c)
{
    settle_ended(c, false);
    while (c->undo_count) {
        const struct mgr_undo *u = &c->undo[--c->undo_count];
        struct mgr_session *s = mgr_session_find(c, u->session);

        if (s && mgr_map_get(&s->opens, u->ino)) {
            uint32_t left = mgr_map_sub(&s->opens, u->ino);

            sub_write(c, s, u->ino, u->write);
            if (!left)
                mgr_lease_released(c, s, u->ino);
            mgr_map_sub(&c->holders, u->ino);
        }
    }
    for (size_t i = c->session_count; i-- > 0;)
        if (c->sessions[i]->fresh)
            mgr_session_free(c, c->sessions[i]);
}

void mgr_session_done(struct mgr_core *c)
{
    c->undo_count = 0;
    settle_ended(c, true);
    for (size_t i = c->session_count; i-- > 0 && c->sessions[i]->fresh;)
        c->sessions[i]->fresh = false;
}

/* ---------------------------------------------------------------- hello and bye */

static struct mgr_session *create(struct mgr_core *c, const Fp__Hello *h)
{
    struct mgr_session *s;

    if (c->n.next_session > MGR_SESSION_MAX)
        return NULL;
    s = session_new(c, c->n.next_session, h->node, h->mountpoint, h->software);
    if (!s)
        return NULL;
    c->n.next_session++;
    c->n.dirty = true;
    c->new_number = true; /* never a second time: chunk ids are made of it */
    s->fresh = s->known = true;
    s->pid = h->pid;
    s->started_ns = c->now.ns;
    if (h->place)
        s->place = (struct mgr_place){h->place->machine, h->place->boot, h->place->mount_ns};
    mgr_db_exec(&c->db, SESSION_PUT, DBI(s->id), DBT(s->node), DBT(s->mountpoint), DBI(s->pid), DBT(s->software),
                DBI(s->started_ns), DBI(s->place.machine), DBI(s->place.boot), DBI(s->place.mount_ns));
    mgr_leases_session_new(c, s, h->behind); /* a failure dooms the group */
    return s;
}

/* What the client says it holds replaces what we thought. */
static int take_opens(struct mgr_core *c, struct mgr_session *s, const Fp__Hello *h, Fp__HelloReply *r)
{
    struct mgr_inode in;
    int rc;

    drop_holds(c, s);
    r->gone_ino = mgr_arena_alloc(&c->arena, (h->n_open_ino + 1) * sizeof *r->gone_ino);
    if (!r->gone_ino)
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < h->n_open_ino; i++) {
        rc = h->open_ino[i] ? mgr_inode_get(c, h->open_ino[i], &in) : -ENOENT;
        rc = rc ? rc : mgr_inode_usable(c, &in);
        if (rc == -ENOENT) {
            r->gone_ino[r->n_gone_ino++] = h->open_ino[i];
            continue;
        }
        if (rc)
            return rc;
        if (add_hold(c, s, h->open_ino[i]))
            return mgr_doom(c, -ENOMEM);
    }
    for (size_t i = 0; i < h->n_open_write_ino; i++) {
        uint64_t ino = h->open_write_ino[i];

        rc = mgr_is_overtaken(c, s, ino);
        if (rc == FP_EOVERTAKEN) /* it can't change that any more */
            continue;
        if (rc)
            return rc;
        if (mgr_map_get(&s->writes, ino) >= mgr_map_get(&s->opens, ino))
            continue;
        rc = mgr_inode_get(c, ino, &in);
        if (add_write(c, s, ino) || mgr_session_wrote(c, s, ino)) /* or may have */
            return mgr_doom(c, -ENOMEM);
        rc = rc ? rc : mgr_sets_opened(c, &in);
        if (rc && rc != -ENOENT)
            return rc;
        if (!rc && in.flags & MGR_LOST_CLOSE)
            mgr_lost_reopened(c, ino);
    }
    return 0;
}

/* A client that has lost its connection has stopped lending answers to its kernel, so hello is the end of that. */
static void told_by_hello(struct mgr_core *c, struct mgr_session *s, Fp__HelloReply *r)
{
    const struct mgr_session *other = held_up_by(c, s);

    r->alone = is_alone(c);
    if (s->may_cache && !r->alone) {
        s->acked_ms = c->now.ms;
        s->forgot = false;
    }
    s->may_cache = r->alone;
    s->asked = false;
    r->wait = s->waits = other != NULL;
    if (other) {
        size_t len = strlen(other->node) + strlen(other->mountpoint) + 2;

        r->wait_for = mgr_arena_alloc(&c->arena, len);
        if (r->wait_for)
            snprintf(r->wait_for, len, "%s:%s", other->node, other->mountpoint);
        else
            r->wait_for = (char *)"another mount";
    }
}

int mgr_session_hello(struct mgr_core *c, struct mgr_req *rq, const Fp__Hello *h, Fp__HelloReply *r)
{
    struct mgr_session *s = h->session ? mgr_session_find(c, h->session) : NULL;
    bool back = s != NULL;
    int rc = 0;

    if (!s)
        s = create(c, h);
    if (!s)
        return c->n.next_session > MGR_SESSION_MAX ? -ENOSPC : mgr_doom(c, -ENOMEM);
    if (s->conn && s->conn != rq->conn) { /* the old connection is dead, we just have not heard of it */
        s->conn->sess = NULL;
        mgr_conn_close(c, s->conn);
    }
    s->conn = rq->conn;
    rq->conn->sess = s;
    c->stirred = c->table_owed = true;
    s->seen_ms = c->now.ms;
    set_expired(c, s, false);
    rc = mgr_torn_told(c, s, h->torn_ino, h->n_torn_ino);
    rq->durable |= h->n_torn_ino > 0; /* it is not said again, once this is answered */
    if (!rc && h->open_known)
        rc = take_opens(c, s, h, r);
    if (!rc && h->open_known)
        mgr_leases_hello(c, s, h);
    rc = rc ? rc : mgr_locks_hello(c, s->id, h, r);
    if (back && h->open_known)
        set_settled(c, s, c->now.ms + c->o.settle_ms);
    else if (back && s->settled_ms == UINT64_MAX)
        set_settled(c, s, c->now.ms + UNKNOWN_SETTLE_MS);
    rc = rc ? rc : bury(c, s);
    if (!rc && (h->early || c->early_session == s->id)) {
        rq->durable |= h->early && c->early_session != s->id; /* as where numbers are given */
        rc = early_set(c, h->early ? s->id : 0);
    }
    told_by_hello(c, s, r);
    r->session = s->id;
    r->session_is_new = h->session != 0 && !back;
    r->unsynced_life = c->life;
    r->lease_time = s->lease_time;
    FP_INFO("session %llu: %s:%s %s", (unsigned long long)s->id, s->node, s->mountpoint,
            back ? "is back" : "connected");
    return rc;
}

int mgr_session_end(struct mgr_core *c, struct mgr_session *s)
{
    int rc = mgr_db_exec(&c->db, REPLY_DELETE, DBI(s->id));

    rc = rc ? rc : mgr_db_exec(&c->db, SESSION_DELETE, DBI(s->id));
    rc = rc ? rc : c->early_session == s->id ? early_set(c, 0) : 0;
    rc = rc ? rc : mgr_locks_session_end(c, s->id);
    rc = rc ? rc : mgr_leases_session_end(c, s);
    rc = rc ? rc : mgr_overtaken_ends(c, s->id);
    if (rc)
        return rc;
    s->ended = c->sessions_ended = true; /* until the transaction is sure, it may come back: mgr_session_done */
    c->holds_dead = true;
    mgr_inventory_want(c, 1000);
    return 0;
}

/* A mount that ends has published all that was written, but it ends before the programs that write these: what they have written is not whole. */
static int left_open(struct mgr_core *c, struct mgr_session *s, const Fp__Bye *m)
{
    int rc = 0;

    for (size_t i = 0; i < m->n_write_ino && !rc; i++)
        if (mgr_map_get(&s->writes, m->write_ino[i]))
            rc = mgr_epoch_left(c, s, m->write_ino[i]);
    rc = rc ? rc : drop_writes(c, s);
    return rc ? rc : mgr_versions_sweep(c);
}

MGR_HANDLER(bye)
{
    const Fp__Bye *m = msg;
    int rc;

    if (!rq->sess)
        return 0;
    rc = mgr_epoch_gone(c, rq->sess);
    rc = rc ? rc : mgr_lost_closes(c, rq->sess, true);
    rc = rc ? rc : left_open(c, rq->sess, m);
    if (rc)
        return rc;
    FP_INFO("session %llu: %s:%s has gone", (unsigned long long)rq->sess->id, rq->sess->node,
            rq->sess->mountpoint);
    rq->conn->sess = NULL;
    rq->sess->conn = NULL;
    return mgr_session_end(c, rq->sess);
}

void mgr_session_lost(struct mgr_core *c, struct mgr_session *s)
{
    s->conn = NULL;
    s->asked = false;
    c->stirred = true;
    s->seen_ms = c->now.ms;
    mgr_locks_conn_lost(c, s->id);
    FP_WARN("session %llu: %s:%s lost its connection: waiting for it to come back", (unsigned long long)s->id,
            s->node, s->mountpoint);
}

static int expire(struct mgr_core *c, struct mgr_session *s)
{
    FP_WARN("session %llu: %s:%s was silent for too long: its open files are closed, and its locks are free",
            (unsigned long long)s->id, s->node, s->mountpoint);
    if (mgr_locks_session_end(c, s->id))
        return -EIO; /* the group is doomed */
    if (mgr_leases_expire(c, s) || mgr_epoch_gone(c, s) || mgr_epoch_died(c, s))
        return -EIO;
    if (mgr_lost_doubt(c, s) || mgr_lost_closes(c, s, false) || mgr_sets_died(c, s))
        return -EIO;
    drop_holds(c, s);
    set_settled(c, s, 0);
    set_expired(c, s, true);
    if (s->conn) {
        mgr_conn_close(c, s->conn);
        s->conn->sess = NULL;
        s->conn = NULL;
    }
    return c->early_session == s->id ? early_set(c, 0) : 0;
}

int mgr_session_tick(struct mgr_core *c)
{
    int rc = 0;

    c->stirred = true; /* for what time alone changes */
    for (size_t i = c->session_count; i-- > 0 && !rc;) {
        struct mgr_session *s = c->sessions[i];
        uint64_t silent = c->now.ms - s->seen_ms;

        if (s->ended)
            continue;
        if (s->settled_ms && s->settled_ms <= c->now.ms) {
            set_settled(c, s, 0);
            c->sweep_at_ms = 0;
        }
        if (!s->expired && silent > c->o.session_timeout_ms)
            rc = expire(c, s);
        if (!rc && s->waits) /* the one it waits for may have lost its connection only now */
            rc = bury(c, s);
        if (!rc && s->expired && silent > c->o.session_timeout_ms + c->o.orphan_grace_ms)
            rc = mgr_session_end(c, s);
    }
    return rc;
}

/* Which files are strict would depend on who asks. Said once, when the second of two such mounts reports for the first time. */
static void warn_of_options(const struct mgr_core *c, const struct mgr_session *s)
{
    for (size_t i = 0; i < c->session_count; i++) {
        const struct mgr_session *other = c->sessions[i];

        if (other == s || !other->conn || !other->stats || !other->stats->close[0] || other->stats->strict == s->stats->strict)
            continue;
        FP_WARN("%s:%s has --strict and %s:%s has not: for files that are not strict by themselves, programs of the second do not see each write of "
                "others at once: give it to all mounts that share files, or to none",
                (s->stats->strict ? s : other)->node, (s->stats->strict ? s : other)->mountpoint, (s->stats->strict ? other : s)->node,
                (s->stats->strict ? other : s)->mountpoint);
        return;
    }
}

MGR_HANDLER(client_stats)
{
    const Fp__ClientStats *m = msg;
    size_t len = fp__client_stats__get_packed_size(m);
    uint8_t *buf = mgr_arena_alloc(&c->arena, len + 1);
    struct mgr_session *s = rq->sess;
    bool first = !s->stats;

    if (!mgr_stats_fit(m, len))
        return -EMSGSIZE;
    if (!buf)
        return 0;
    fp__client_stats__pack(m, buf);
    if (s->stats)
        fp__client_stats__free_unpacked(s->stats, NULL);
    s->stats = fp__client_stats__unpack(NULL, len, buf);
    if (first && s->stats && s->stats->close[0])
        warn_of_options(c, s);
    return 0;
}
