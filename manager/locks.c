/* Locks of files: who holds which range (locks.h says what this is all about; lockwait.c, who waits for one).
 *
 *   file --> per kind: ranges held (an array, no order)
 *        `-> requests that wait, oldest first (all kinds)
 *
 * Ranges of one owner are disjoint; neighbours of the same type are one. So POSIX's splitting and joining is a walk over the
 * array. Looked at and left out: a tree of intervals. An array of 10,000 ranges is walked in microseconds, and no parallel
 * program has more on one file.
 *
 * Every change of a range is written down, for the database: locks are rows there, and a manager that is started again has them
 * without asking anybody. That the mounts tell it again instead was rejected: nobody could get a lock until each mount that it had before
 * has come back, or has been away for the session's time-out.
 *
 * Called by lockmsg.c, on the core's thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fp/bug.h"
#include "manager/locks_int.h"

/* ---------------------------------------------------------------- files */

struct mgr_lockfile *mgr_lockfile_find(const struct mgr_locks *t, uint64_t ino)
{
    struct mgr_lockfile *f = t->buckets ? t->bucket[mgr_lock_mix(ino, 0) & (t->buckets - 1)] : NULL;

    while (f && f->ino != ino)
        f = f->next;
    return f;
}

static int grow(struct mgr_locks *t)
{
    size_t n = t->buckets ? t->buckets * 2 : 64;
    struct mgr_lockfile **b = calloc(n, sizeof *b), *f, *next;

    if (!b)
        return -ENOMEM;
    for (size_t i = 0; i < t->buckets; i++)
        for (f = t->bucket[i]; f; f = next) {
            struct mgr_lockfile **to = &b[mgr_lock_mix(f->ino, 0) & (n - 1)];

            next = f->next;
            f->next = *to;
            *to = f;
        }
    free(t->bucket);
    t->bucket = b;
    t->buckets = n;
    return 0;
}

struct mgr_lockfile *mgr_lockfile_get(struct mgr_locks *t, uint64_t ino)
{
    struct mgr_lockfile *f = mgr_lockfile_find(t, ino), **to;

    if (f || (t->files >= t->buckets && grow(t)))
        return f;
    f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->ino = ino;
    TAILQ_INIT(&f->waits);
    to = &t->bucket[mgr_lock_mix(ino, 0) & (t->buckets - 1)];
    f->next = *to;
    *to = f;
    t->files++;
    return f;
}

void mgr_lockfile_put(struct mgr_locks *t, struct mgr_lockfile *f)
{
    struct mgr_lockfile **p = &t->bucket[mgr_lock_mix(f->ino, 0) & (t->buckets - 1)];

    if (f->nwaits)
        return;
    for (int k = 0; k < MGR_LOCK_KINDS; k++)
        if (f->held[k].n)
            return;
    while (*p != f)
        p = &(*p)->next;
    *p = f->next;
    t->files--;
    for (int k = 0; k < MGR_LOCK_KINDS; k++)
        free(f->held[k].at);
    free(f);
}

/* ---------------------------------------------------------------- ranges */

/* One range with l, if they are of one owner and type. */
static bool joins(const struct mgr_lock *h, const struct mgr_lock *l)
{
    return h->exclusive == l->exclusive && (mgr_lock_overlap(h, l) || h->end + 1 == l->start || l->end + 1 == h->start);
}

int mgr_locks_reserve(struct mgr_locks *t, size_t more)
{
    size_t cap = t->changes_cap ? t->changes_cap : 64;
    struct mgr_lock_change *p;

    while (cap < t->nchanges + more)
        cap *= 2;
    if (cap == t->changes_cap)
        return 0;
    p = realloc(t->changes, cap * sizeof *p);
    if (!p)
        return -ENOMEM;
    t->changes = p;
    t->changes_cap = cap;
    return 0;
}

static int reserve_held(struct mgr_lockfile *f, int kind, uint32_t more)
{
    uint32_t cap = f->held[kind].cap ? f->held[kind].cap : 4;
    struct mgr_lock *p;

    while (cap < f->held[kind].n + more)
        cap *= 2;
    if (cap == f->held[kind].cap)
        return 0;
    p = realloc(f->held[kind].at, cap * sizeof *p);
    if (!p)
        return -ENOMEM;
    f->held[kind].at = p;
    f->held[kind].cap = cap;
    return 0;
}

/* Both have been made room for. */
static void put(struct mgr_locks *t, struct mgr_lockfile *f, const struct mgr_lock *l)
{
    f->held[l->kind].at[f->held[l->kind].n++] = *l;
    mgr_map_add(&t->of_session, l->session);
    t->held++;
    t->changes[t->nchanges++] = (struct mgr_lock_change){.add = true, .ino = f->ino, .l = *l};
}

void mgr_locks_take(struct mgr_locks *t, struct mgr_lockfile *f, int kind, uint32_t i)
{
    struct mgr_lock *h = &f->held[kind].at[i];

    t->changes[t->nchanges++] = (struct mgr_lock_change){.ino = f->ino, .l = *h};
    mgr_map_sub(&t->of_session, h->session);
    t->held--;
    *h = f->held[kind].at[--f->held[kind].n];
}

/* How many ranges there would be more, and how many rows would change; a range that is there already: -1 and 0. */
static int32_t count_parts(const struct mgr_lockfile *f, const struct mgr_lock *l, bool unset, uint32_t *changes)
{
    int32_t more = unset ? 0 : 1;

    *changes = unset ? 0 : 1;
    for (uint32_t i = 0; i < f->held[l->kind].n; i++) {
        const struct mgr_lock *h = &f->held[l->kind].at[i];
        bool join = !unset && joins(h, l);
        int32_t parts = (h->start < l->start) + (h->end > l->end);

        if (!mgr_lock_same_owner(h, l) || !(join || mgr_lock_overlap(h, l)))
            continue;
        if (join && h->start <= l->start && h->end >= l->end) {
            *changes = 0;
            return -1;
        }
        more += join ? -1 : parts - 1;
        *changes += join ? 1 : 1 + (uint32_t)parts;
    }
    return more;
}

int mgr_locks_set_range(struct mgr_locks *t, struct mgr_lockfile *f, const struct mgr_lock *l, bool unset)
{
    struct mgr_lock n = *l, part[2];
    uint32_t changes, nparts = 0;
    int32_t more = count_parts(f, l, unset, &changes);

    if (changes == 0)
        return 0;
    if (more > 0 && (f->held[l->kind].n + (uint32_t)more > t->inode_max ||
                     mgr_map_get(&t->of_session, l->session) + (uint32_t)more > t->session_max))
        return -ENOLCK;
    if (reserve_held(f, l->kind, 3) || mgr_locks_reserve(t, changes) || mgr_map_reserve(&t->of_session))
        return -ENOMEM;
    n.kept = false;
    n.closing_until_ms = 0;
    for (uint32_t i = 0; i < f->held[l->kind].n;) {
        const struct mgr_lock h = f->held[l->kind].at[i];
        bool join = !unset && joins(&h, l);

        if (!mgr_lock_same_owner(&h, l) || !(join || mgr_lock_overlap(&h, l))) {
            i++;
            continue;
        }
        if (join) {
            n.start = h.start < n.start ? h.start : n.start;
            n.end = h.end > n.end ? h.end : n.end;
        } else {
            if (h.start < l->start)
                part[nparts] = h, part[nparts].end = l->start - 1;
            nparts += h.start < l->start;
            if (h.end > l->end)
                part[nparts] = h, part[nparts].start = l->end + 1;
            nparts += h.end > l->end;
        }
        mgr_locks_take(t, f, l->kind, i);
    }
    for (uint32_t i = 0; i < nparts; i++)
        put(t, f, &part[i]);
    if (!unset)
        put(t, f, &n);
    return 0;
}

const struct mgr_lock *mgr_locks_holder(const struct mgr_lockfile *f, const struct mgr_lock *l)
{
    for (uint32_t i = 0; i < f->held[l->kind].n; i++)
        if (mgr_lock_conflict(&f->held[l->kind].at[i], l) && !(FP_BUG("mgr-grants-a-lock-twice") && l->start % 64 == 0))
            return &f->held[l->kind].at[i];
    return NULL;
}

const struct mgr_lock *mgr_locks_held_by(const struct mgr_lockfile *f, const struct mgr_lock *l)
{
    for (uint32_t i = 0; i < f->held[l->kind].n; i++)
        if (mgr_lock_same_owner(&f->held[l->kind].at[i], l))
            return &f->held[l->kind].at[i];
    return NULL;
}

bool mgr_locks_owns(const struct mgr_locks *t, uint64_t ino, const struct mgr_lock *l)
{
    const struct mgr_lockfile *f = mgr_lockfile_find(t, ino);

    return f && mgr_locks_held_by(f, l);
}

bool mgr_locks_test(const struct mgr_locks *t, uint64_t ino, const struct mgr_lock *l, struct mgr_lock *out)
{
    const struct mgr_lockfile *f = mgr_lockfile_find(t, ino);
    bool found = false;

    for (uint32_t i = 0; f && i < f->held[l->kind].n; i++) {
        const struct mgr_lock *h = &f->held[l->kind].at[i];

        if (mgr_lock_conflict(h, l) && (!found || h->start < out->start)) {
            *out = *h;
            found = true;
        }
    }
    return found;
}

void mgr_locks_closing(struct mgr_locks *t, const struct mgr_lock_id *id, uint64_t now_ms)
{
    struct mgr_lockfile *f = mgr_lockfile_find(t, id->ino);

    for (uint32_t i = 0; f && i < f->held[id->kind].n; i++) {
        struct mgr_lock *h = &f->held[id->kind].at[i];

        if (h->session == id->session && h->owner == id->owner)
            h->closing_until_ms = now_ms + MGR_LOCK_CLOSING_MS;
    }
}

static bool each_of(const struct mgr_lockfile *f, bool (*fn)(void *arg, uint64_t ino, const struct mgr_lock *l, bool waits), void *arg)
{
    const struct mgr_lockwait *w;
    bool on = true;

    for (int k = 0; k < MGR_LOCK_KINDS; k++)
        for (uint32_t i = 0; on && i < f->held[k].n; i++)
            on = fn(arg, f->ino, &f->held[k].at[i], false);
    TAILQ_FOREACH(w, &f->waits, in_file)
        on = on && fn(arg, f->ino, &w->l, true);
    return on;
}

void mgr_locks_each(const struct mgr_locks *t, uint64_t ino, bool (*fn)(void *arg, uint64_t ino, const struct mgr_lock *l, bool waits), void *arg)
{
    const struct mgr_lockfile *f = ino ? mgr_lockfile_find(t, ino) : NULL;

    if (f)
        (void)each_of(f, fn, arg);
    for (size_t i = 0; !ino && i < t->buckets; i++)
        for (f = t->bucket[i]; f; f = f->next)
            if (!each_of(f, fn, arg))
                return;
}

void mgr_locks_clear(struct mgr_locks *t)
{
    struct mgr_lockfile *f, *next;

    for (size_t i = 0; i < t->buckets; i++)
        for (f = t->bucket[i]; f; f = next) {
            next = f->next;
            for (int k = 0; k < MGR_LOCK_KINDS; k++)
                while (f->held[k].n) {
                    mgr_map_sub(&t->of_session, f->held[k].at[--f->held[k].n].session);
                    t->held--;
                }
            mgr_lockfile_put(t, f);
        }
    t->nchanges = t->change_pos = 0;
}

int mgr_locks_load(struct mgr_locks *t, uint64_t ino, const struct mgr_lock *l)
{
    struct mgr_lockfile *f = mgr_lockfile_get(t, ino);

    if (!f || reserve_held(f, l->kind, 1) || mgr_locks_reserve(t, 1) || mgr_map_reserve(&t->of_session))
        return -ENOMEM;
    put(t, f, l);
    t->nchanges = t->change_pos = 0; /* it is known */
    return 0;
}

bool mgr_locks_change_next(struct mgr_locks *t, struct mgr_lock_change *out)
{
    if (t->change_pos == t->nchanges) {
        t->change_pos = t->nchanges = 0;
        return false;
    }
    *out = t->changes[t->change_pos++];
    return true;
}
