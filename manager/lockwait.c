/* Locks of files: who waits for a range, and whose turn is next.
 *
 * Fairness: a request that waits, waits behind those before it that want the same bytes, too, so that a writer is not passed by
 * readers for ever. But what its process holds may be what the others wait for, in ways that nobody here knows of (a barrier of
 * MPI, a lock of another kind). So that costs it MGR_LOCK_FAIR_MS at most, and nothing if it holds something of this file; and
 * requests that do not wait are not held up by those that do, as POSIX says.
 *
 * Deadlock: the graph has an edge from an owner that waits to each that holds what it waits for. It is looked at when a
 * request begins to wait, and when one who waits elsewhere (another thread of it) gets something. Waiting behind others that
 * wait is no edge, since it ends by itself. Owners are the kernel's: processes, and for F_OFD_* open files, which FUSE does not
 * tell from each other; a cycle of those ends with EDEADLK, too, where Linux would let them wait. flock has no detection, as on
 * Linux.
 *
 * Each group of requests is committed or undone (mgr_locks_commit): until then a wait that has ended is kept, to be put back.
 *
 * Called by lockmsg.c, on the core's thread. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "fp/grown.h"
#include "manager/locks_int.h"

struct span { /* both ends are in it; none: start > end */
    uint64_t start, end;
};
#define NOWHERE    ((struct span){UINT64_MAX, 0})
#define EVERYWHERE ((struct span){0, UINT64_MAX})

static struct span span_of(const struct mgr_lock *l)
{
    return (struct span){l->start, l->end};
}

/* ---------------------------------------------------------------- those that wait */

static struct mgr_lockbucket *owner_bucket(struct mgr_locks *t, const struct mgr_lock *l)
{
    return &t->by_owner[mgr_lock_mix(l->owner, l->session) % MGR_LOCK_BUCKETS];
}

static struct mgr_lockbucket *ticket_bucket(struct mgr_locks *t, uint64_t session, uint64_t ticket)
{
    return &t->by_ticket[mgr_lock_mix(ticket, session) % MGR_LOCK_BUCKETS];
}

static void hash_in(struct mgr_locks *t, struct mgr_lockwait *w)
{
    LIST_INSERT_HEAD(owner_bucket(t, &w->l), w, by_owner);
    LIST_INSERT_HEAD(ticket_bucket(t, w->l.session, w->ticket), w, by_ticket);
    t->nwaits++;
}

static int wait_new(struct mgr_locks *t, struct mgr_lockfile *f, const struct mgr_lock *l, uint64_t ticket, uint64_t now_ms,
                    uint64_t until_ms)
{
    struct mgr_lockwait *w;

    if (f->nwaits >= t->inode_max || mgr_map_get(&t->of_session, l->session) >= t->session_max)
        return -ENOLCK;
    w = calloc(1, sizeof *w);
    if (!w || mgr_map_reserve(&t->of_session)) {
        free(w);
        return -ENOMEM;
    }
    mgr_map_add(&t->of_session, l->session);
    w->file = f;
    f->nwaits++;
    w->l = *l;
    w->ticket = ticket;
    w->since_ms = now_ms;
    w->until_ms = until_ms;
    w->seq = ++t->seq;
    TAILQ_INSERT_TAIL(&f->waits, w, in_file);
    TAILQ_INSERT_TAIL(&t->all, w, in_all);
    hash_in(t, w);
    return MGR_LOCK_QUEUED;
}

/* Out of all lists. It goes on counting for its session and its file. */
static void unlist(struct mgr_locks *t, struct mgr_lockwait *w)
{
    TAILQ_REMOVE(&w->file->waits, w, in_file);
    TAILQ_REMOVE(&t->all, w, in_all);
    LIST_REMOVE(w, by_owner);
    LIST_REMOVE(w, by_ticket);
    t->nwaits--;
}

static void wait_free(struct mgr_locks *t, struct mgr_lockwait *w)
{
    struct mgr_lockfile *f = w->file;

    mgr_map_sub(&t->of_session, w->l.session);
    free(w);
    f->nwaits--;
    mgr_lockfile_put(t, f);
}

static void end_wait(struct mgr_locks *t, struct mgr_lockwait *w, int status)
{
    unlist(t, w);
    w->status = status;
    TAILQ_INSERT_TAIL(&t->ended, w, in_all);
}

static bool waits(struct mgr_locks *t, const struct mgr_lock *l)
{
    struct mgr_lockwait *w;

    LIST_FOREACH(w, owner_bucket(t, l), by_owner)
        if (mgr_lock_same_owner(&w->l, l) && w->l.kind == l->kind)
            return true;
    return false;
}

/* Does who asks for l wait for itself, by way of others? */
static bool deadlock(struct mgr_locks *t, const struct mgr_lockfile *f, const struct mgr_lock *l)
{
    const struct mgr_lock *ask = l;
    struct mgr_lockwait *stack = NULL, *w;

    if (l->kind != MGR_LOCK_RECORD || t->nwaits == 0)
        return false;
    for (t->mark++;; ask = &stack->l, f = stack->file, stack = stack->stack) {
        for (uint32_t i = 0; i < f->held[MGR_LOCK_RECORD].n; i++) {
            const struct mgr_lock *h = &f->held[MGR_LOCK_RECORD].at[i];

            if (!mgr_lock_conflict(h, ask))
                continue;
            if (ask != l && mgr_lock_same_owner(h, l))
                return true;
            LIST_FOREACH(w, owner_bucket(t, h), by_owner) {
                if (w->mark == t->mark || !mgr_lock_same_owner(&w->l, h) || w->l.kind != MGR_LOCK_RECORD)
                    continue;
                w->mark = t->mark;
                w->stack = stack;
                stack = w;
            }
        }
        if (!stack)
            return false;
    }
}

/* Others that wait for the same bytes, and came before seq. */
static bool others_first(const struct mgr_lockfile *f, const struct mgr_lock *l, uint64_t seq)
{
    const struct mgr_lockwait *w;

    TAILQ_FOREACH(w, &f->waits, in_file) {
        if (w->seq >= seq)
            break;
        if (w->l.kind == l->kind && mgr_lock_conflict(&w->l, l))
            return true;
    }
    return false;
}

/* Is its turn now? */
static bool may_have(struct mgr_locks *t, struct mgr_lockwait *w, uint64_t now_ms)
{
    t->looks++;
    w->behind = false;
    if (mgr_locks_holder(w->file, &w->l))
        return false;
    w->behind = now_ms - w->since_ms < MGR_LOCK_FAIR_MS && !mgr_locks_held_by(w->file, &w->l) &&
                others_first(w->file, &w->l, w->seq);
    return !w->behind;
}

static void recall(struct mgr_locks *t, const struct mgr_lockfile *f, uint64_t session)
{
    struct mgr_lock_recall *p = t->recalls;

    if (t->nrecalls && p[t->nrecalls - 1].ino == f->ino && p[t->nrecalls - 1].session == session)
        return;
    p = fp_grown(p, t->nrecalls, &t->recalls_cap, sizeof *p);
    if (!p)
        return; /* asked for again with the next that waits */
    t->recalls = p;
    p[t->nrecalls++] = (struct mgr_lock_recall){.ino = f->ino, .session = session};
}

static void recall_holders(struct mgr_locks *t, const struct mgr_lockfile *f, const struct mgr_lock *l)
{
    for (uint32_t i = 0; l->kind == MGR_LOCK_APPEND && i < f->held[l->kind].n; i++)
        if (mgr_lock_conflict(&f->held[l->kind].at[i], l))
            recall(t, f, f->held[l->kind].at[i].session);
}

/* Makes of s what is in both, and between them. */
static void widen(struct span *s, const struct mgr_lock *l)
{
    s->start = l->start < s->start ? l->start : s->start;
    s->end = l->end > s->end ? l->end : s->end;
}

static bool touches(const struct span *s, const struct mgr_lock *l)
{
    return l->start <= s->end && s->start <= l->end;
}

/* Bytes of this kind have become free, or somebody has waited for long: who is next, of those that want any of them. An owner that gets less than it had lets
 * others in that came before it, so it is looked at until nothing changes; what one of those that wait gets, or gives up, counts from then on, too. An owner
 * that waits for more than one thing is not held up by others any more when it has one (may_have), and what it waits for may be anywhere.
 * check: somebody who waits elsewhere got something. */
static void wake(struct mgr_locks *t, struct mgr_lockfile *f, int kind, struct span freed, bool check, uint64_t now_ms)
{
    struct mgr_lockwait *w, *next;
    bool again = true;

    while (again) {
        again = false;
        for (w = TAILQ_FIRST(&f->waits); w; w = next) {
            next = TAILQ_NEXT(w, in_file);
            if (w->l.kind != kind || !(check || touches(&freed, &w->l)))
                continue;
            if (may_have(t, w, now_ms)) {
                w->l.since_ms = now_ms;
                int rc = mgr_locks_set_range(t, f, &w->l, false);

                end_wait(t, w, rc == -ENOMEM ? -ENOLCK : rc);
                check |= waits(t, &w->l);
                again = true;
            } else if (check && deadlock(t, f, &w->l)) {
                end_wait(t, w, -EDEADLK);
                again = true;
            } else {
                continue;
            }
            widen(&freed, &w->l);
        }
    }
    if (kind == MGR_LOCK_APPEND) /* of those who have just got it */
        TAILQ_FOREACH(w, &f->waits, in_file)
            recall_holders(t, f, &w->l);
}

/* ---------------------------------------------------------------- requests */

/* flock(2) from one type to the other: what was held goes first, as on Linux. */
static int convert(struct mgr_locks *t, struct mgr_lockfile *f, const struct mgr_lock *l)
{
    const struct mgr_lock *h = l->kind == MGR_LOCK_FLOCK ? mgr_locks_held_by(f, l) : NULL;

    return h && h->exclusive != l->exclusive ? mgr_locks_set_range(t, f, l, true) : 0;
}

/* Until when a request waits that does not want to: 0, not at all. */
static uint64_t all_closing(const struct mgr_lockfile *f, const struct mgr_lock *l, uint64_t now_ms)
{
    uint64_t until_ms = 0;

    for (uint32_t i = 0; i < f->held[l->kind].n; i++) {
        const struct mgr_lock *h = &f->held[l->kind].at[i];

        if (!mgr_lock_conflict(h, l))
            continue;
        if (h->closing_until_ms <= now_ms)
            return 0;
        until_ms = h->closing_until_ms > until_ms ? h->closing_until_ms : until_ms;
    }
    return until_ms;
}

static int ask(struct mgr_locks *t, struct mgr_lockfile *f, const struct mgr_lock *l, uint64_t ticket, bool wait, uint64_t now_ms)
{
    bool stands = mgr_locks_holder(f, l) != NULL;
    uint64_t until_ms = 0;
    int rc;

    if (!stands && (!wait || mgr_locks_held_by(f, l) || !others_first(f, l, UINT64_MAX)))
        return mgr_locks_set_range(t, f, l, false);
    if (!wait) {
        until_ms = all_closing(f, l, now_ms);
        if (!until_ms)
            return -EAGAIN;
    } else if (stands && deadlock(t, f, l)) {
        return -EDEADLK;
    }
    rc = wait_new(t, f, l, ticket, now_ms, until_ms);
    if (rc == MGR_LOCK_QUEUED) {
        TAILQ_LAST(&f->waits, mgr_lockwaits)->behind = !stands;
        recall_holders(t, f, l);
    }
    return rc;
}

static struct mgr_lockwait *find_wait(struct mgr_locks *t, uint64_t session, uint64_t ticket)
{
    struct mgr_lockwait *w;

    LIST_FOREACH(w, ticket_bucket(t, session, ticket), by_ticket)
        if (w->ticket == ticket && w->l.session == session)
            return w;
    return NULL;
}

int mgr_locks_set(struct mgr_locks *t, uint64_t ino, const struct mgr_lock *l, uint64_t ticket, bool wait,
                  uint64_t now_ms)
{
    struct mgr_lockfile *f;
    size_t before = t->nchanges;
    int rc;

    assert(l->kind < MGR_LOCK_KINDS && l->start <= l->end && l->end <= MGR_LOCK_EOF);
    if (find_wait(t, l->session, ticket))
        return MGR_LOCK_QUEUED; /* sent again */
    f = mgr_lockfile_get(t, ino);
    if (!f)
        return -ENOMEM;
    rc = convert(t, f, l);
    rc = rc ? rc : ask(t, f, l, ticket, wait, now_ms);
    if (t->nchanges != before) /* it may be less than before */
        wake(t, f, l->kind, span_of(l), !rc && waits(t, l), now_ms);
    mgr_lockfile_put(t, f);
    return rc;
}

int mgr_locks_unset(struct mgr_locks *t, uint64_t ino, const struct mgr_lock *l, uint64_t now_ms)
{
    struct mgr_lockfile *f = mgr_lockfile_find(t, ino);
    int rc = f ? mgr_locks_set_range(t, f, l, true) : 0;

    if (f && !rc)
        wake(t, f, l->kind, span_of(l), false, now_ms);
    if (f)
        mgr_lockfile_put(t, f);
    return rc;
}

bool mgr_locks_cancel(struct mgr_locks *t, uint64_t session, uint64_t ticket, uint64_t now_ms)
{
    struct mgr_lockwait *w = find_wait(t, session, ticket);

    if (!w)
        return false;
    end_wait(t, w, -EINTR);
    wake(t, w->file, w->l.kind, span_of(&w->l), false, now_ms);
    return true;
}

/* ---------------------------------------------------------------- sessions */

void mgr_locks_lost(struct mgr_locks *t, uint64_t session, uint64_t now_ms)
{
    struct mgr_lockwait *w, *next, *gone = NULL;

    if (!mgr_map_get(&t->of_session, session))
        return;
    for (w = TAILQ_FIRST(&t->all); w; w = next) {
        next = TAILQ_NEXT(w, in_all);
        if (w->l.session != session)
            continue;
        unlist(t, w);
        w->stack = gone;
        gone = w;
    }
    for (w = gone; w; w = next) { /* those behind it */
        next = w->stack;
        wake(t, w->file, w->l.kind, span_of(&w->l), false, now_ms);
        wait_free(t, w);
    }
}

/* Takes what it holds of f and is not kept. */
static int drop_from(struct mgr_locks *t, struct mgr_lockfile *f, uint64_t session, uint64_t now_ms)
{
    for (int k = 0; k < MGR_LOCK_KINDS; k++) {
        struct span freed = NOWHERE;

        for (uint32_t i = 0; i < f->held[k].n;) {
            if (f->held[k].at[i].session != session || f->held[k].at[i].kept) {
                i++;
                continue;
            }
            if (mgr_locks_reserve(t, 1))
                return -ENOMEM;
            widen(&freed, &f->held[k].at[i]);
            mgr_locks_take(t, f, k, i);
        }
        if (freed.start <= freed.end)
            wake(t, f, k, freed, false, now_ms);
    }
    return 0;
}

static int drop_all(struct mgr_locks *t, uint64_t session, uint64_t now_ms)
{
    struct mgr_lockfile *f, *next;
    int rc = 0;

    for (size_t i = 0; i < t->buckets && !rc && mgr_map_get(&t->of_session, session); i++)
        for (f = t->bucket[i]; f && !rc; f = next) {
            next = f->next;
            rc = drop_from(t, f, session, now_ms);
            mgr_lockfile_put(t, f);
        }
    return rc;
}

int mgr_locks_end(struct mgr_locks *t, uint64_t session, uint64_t now_ms)
{
    mgr_locks_lost(t, session, now_ms);
    return drop_all(t, session, now_ms);
}

/* Marks what id names; false: there is nothing. */
static bool keep_one(struct mgr_locks *t, uint64_t session, const struct mgr_lock_id *id, bool kept)
{
    struct mgr_lockfile *f = mgr_lockfile_find(t, id->ino);
    bool any = false;

    for (uint32_t i = 0; f && i < f->held[id->kind].n; i++) {
        struct mgr_lock *h = &f->held[id->kind].at[i];

        if (h->session != session || h->owner != id->owner)
            continue;
        h->kept = kept;
        any = true;
    }
    return any;
}

int mgr_locks_keep(struct mgr_locks *t, uint64_t session, const struct mgr_lock_id *ids, size_t n, bool *missing,
                   uint64_t now_ms)
{
    int rc;

    mgr_locks_lost(t, session, now_ms);
    for (size_t i = 0; i < n; i++)
        missing[i] = !keep_one(t, session, &ids[i], true);
    rc = drop_all(t, session, now_ms);
    for (size_t i = 0; i < n; i++)
        (void)keep_one(t, session, &ids[i], false);
    for (size_t i = 0; i < n; i++) { /* the recall may have been lost with the connection */
        struct mgr_lockfile *f = ids[i].kind == MGR_LOCK_APPEND && !missing[i] ? mgr_lockfile_find(t, ids[i].ino) : NULL;
        struct mgr_lockwait *w = f ? TAILQ_FIRST(&f->waits) : NULL;

        for (; w; w = TAILQ_NEXT(w, in_file))
            if (w->l.kind == MGR_LOCK_APPEND)
                recall_holders(t, f, &w->l);
    }
    return rc;
}

void mgr_locks_tick(struct mgr_locks *t, uint64_t now_ms)
{
    struct mgr_lockwait *w;
    bool again = t->nwaits > 0, look = t->look;

    t->look = false;
    for (size_t i = 0; look && i < t->buckets; i++)
        for (struct mgr_lockfile *f = t->bucket[i]; f; f = f->next)
            for (int k = 0; k < MGR_LOCK_KINDS; k++)
                wake(t, f, k, EVERYWHERE, false, now_ms);

    while (again) { /* a wake ends waits, so the walk begins anew */
        again = false;
        TAILQ_FOREACH(w, &t->all, in_all) {
            bool over = w->until_ms && w->until_ms <= now_ms;

            if (!over && !(w->behind && now_ms - w->since_ms >= MGR_LOCK_FAIR_MS))
                continue;
            if (over)
                end_wait(t, w, -EAGAIN);
            wake(t, w->file, w->l.kind, span_of(&w->l), false, now_ms);
            again = true;
            break;
        }
    }
}

/* ---------------------------------------------------------------- what there is to say */

bool mgr_locks_recall_next(struct mgr_locks *t, struct mgr_lock_recall *out)
{
    if (!t->nrecalls)
        return false;
    *out = t->recalls[--t->nrecalls];
    return true;
}

bool mgr_locks_done_next(struct mgr_locks *t, struct mgr_lock_done *out)
{
    struct mgr_lockwait *w = TAILQ_FIRST(&t->ended);

    if (!w)
        return false;
    TAILQ_REMOVE(&t->ended, w, in_all);
    *out = (struct mgr_lock_done){
        .ino = w->file->ino, .session = w->l.session, .ticket = w->ticket, .status = w->status};
    wait_free(t, w);
    return true;
}

void mgr_locks_commit(struct mgr_locks *t)
{
    t->committed_seq = t->seq;
}

/* Back to where it was in the order of age. */
static void restore(struct mgr_locks *t, struct mgr_lockwait *w)
{
    struct mgr_lockwait *p = TAILQ_LAST(&t->all, mgr_lockwaits);

    while (p && p->seq > w->seq)
        p = TAILQ_PREV(p, mgr_lockwaits, in_all);
    if (p)
        TAILQ_INSERT_AFTER(&t->all, p, w, in_all);
    else
        TAILQ_INSERT_HEAD(&t->all, w, in_all);
    p = TAILQ_LAST(&w->file->waits, mgr_lockwaits);
    while (p && p->seq > w->seq)
        p = TAILQ_PREV(p, mgr_lockwaits, in_file);
    if (p)
        TAILQ_INSERT_AFTER(&w->file->waits, p, w, in_file);
    else
        TAILQ_INSERT_HEAD(&w->file->waits, w, in_file);
    hash_in(t, w);
}

void mgr_locks_undo(struct mgr_locks *t)
{
    struct mgr_lockwait *w;

    while ((w = TAILQ_FIRST(&t->ended))) {
        TAILQ_REMOVE(&t->ended, w, in_all);
        restore(t, w);
    }
    while ((w = TAILQ_LAST(&t->all, mgr_lockwaits)) && w->seq > t->committed_seq) {
        unlist(t, w);
        wait_free(t, w);
    }
    t->nrecalls = t->nchanges = t->change_pos = 0;
    t->look = true;
}

/* ---------------------------------------------------------------- begin and end */

struct mgr_locks *mgr_locks_new(void)
{
    struct mgr_locks *t = calloc(1, sizeof *t);

    if (t) {
        mgr_locks_limit(t, MGR_LOCK_SESSION_MAX, MGR_LOCK_INODE_MAX);
        TAILQ_INIT(&t->all);
        TAILQ_INIT(&t->ended);
    }
    return t;
}

void mgr_locks_limit(struct mgr_locks *t, uint32_t session_max, uint32_t inode_max)
{
    t->session_max = session_max;
    t->inode_max = inode_max;
}

void mgr_locks_free(struct mgr_locks *t)
{
    struct mgr_lockwait *w;

    if (!t)
        return;
    while ((w = TAILQ_FIRST(&t->all))) {
        unlist(t, w);
        TAILQ_INSERT_TAIL(&t->ended, w, in_all);
    }
    while ((w = TAILQ_FIRST(&t->ended))) {
        TAILQ_REMOVE(&t->ended, w, in_all);
        wait_free(t, w);
    }
    mgr_locks_clear(t);
    mgr_map_fini(&t->of_session);
    free(t->bucket);
    free(t->changes);
    free(t->recalls);
    free(t);
}

size_t mgr_locks_held(const struct mgr_locks *t)
{
    return t->held;
}

size_t mgr_locks_waiting(const struct mgr_locks *t)
{
    return t->nwaits;
}
