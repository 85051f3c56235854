/* What locks.c (who holds what) and lockwait.c (who waits for it) share. The outside has locks.h. */
#ifndef MGR_LOCKS_INT_H
#define MGR_LOCKS_INT_H

#include <sys/queue.h>

#include "manager/locks.h"
#include "manager/map.h"

#define MGR_LOCK_BUCKETS 1024u

struct mgr_lockwait {
    TAILQ_ENTRY(mgr_lockwait) in_file;
    TAILQ_ENTRY(mgr_lockwait) in_all; /* or in the list of ended ones */
    LIST_ENTRY(mgr_lockwait) by_owner, by_ticket;
    struct mgr_lockwait *stack; /* lockwait.c, deadlock(): to be looked at */
    uint64_t mark;      /* lockwait.c, deadlock(): the round it was seen in */
    struct mgr_lockfile *file;
    struct mgr_lock l;
    uint64_t seq; /* by age, over all files */
    uint64_t ticket, since_ms, until_ms; /* until: 0, for ever */
    bool behind; /* it waits for others that wait, for nobody else */
    int status;  /* once it has ended */
};
TAILQ_HEAD(mgr_lockwaits, mgr_lockwait);
LIST_HEAD(mgr_lockbucket, mgr_lockwait);

struct mgr_lockfile {
    struct mgr_lockfile *next; /* in its bucket */
    uint64_t ino;
    struct {
        struct mgr_lock *at;
        uint32_t n, cap;
    } held[MGR_LOCK_KINDS];
    struct mgr_lockwaits waits;
    uint32_t nwaits; /* with those that have ended and were not told yet */
};

struct mgr_locks {
    struct mgr_lockfile **bucket;
    size_t buckets, files; /* a power of two */
    uint32_t session_max, inode_max;
    size_t held;
    struct mgr_map of_session; /* ranges and waits */
    struct mgr_lockwaits all, ended; /* by age */
    size_t nwaits;
    struct mgr_lockbucket by_owner[MGR_LOCK_BUCKETS], by_ticket[MGR_LOCK_BUCKETS];
    uint64_t seq, committed_seq, mark;
    uint64_t looks; /* at who waits, and whether it may have it now */
    bool look; /* a group was undone: somebody's turn may have come without a word */
    struct mgr_lock_change *changes;
    size_t nchanges, changes_cap, change_pos;
    struct mgr_lock_recall *recalls;
    size_t nrecalls, recalls_cap;
};

static inline size_t mgr_lock_mix(uint64_t a, uint64_t b)
{
    return (size_t)(((a ^ (b << 32 | b >> 32)) * 0x9E3779B97F4A7C15u) >> 24);
}

static inline bool mgr_lock_same_owner(const struct mgr_lock *a, const struct mgr_lock *b)
{
    return a->owner == b->owner && a->session == b->session;
}

static inline bool mgr_lock_overlap(const struct mgr_lock *a, const struct mgr_lock *b)
{
    return a->start <= b->end && b->start <= a->end;
}

static inline bool mgr_lock_conflict(const struct mgr_lock *a, const struct mgr_lock *b)
{
    return (a->exclusive || b->exclusive) && mgr_lock_overlap(a, b) && !mgr_lock_same_owner(a, b);
}

/* NULL: nothing is known of it. */
struct mgr_lockfile *mgr_lockfile_find(const struct mgr_locks *t, uint64_t ino);
struct mgr_lockfile *mgr_lockfile_get(struct mgr_locks *t, uint64_t ino); /* NULL: out of memory */
/* Frees it if it is empty: only where no walk over files or their waits goes on. */
void mgr_lockfile_put(struct mgr_locks *t, struct mgr_lockfile *f);
/* Room for more changes. 0, -ENOMEM. */
int mgr_locks_reserve(struct mgr_locks *t, size_t more);
/* Range i goes, and the last one comes to its place; there is room for a change. */
void mgr_locks_take(struct mgr_locks *t, struct mgr_lockfile *f, int kind, uint32_t i);
/* Makes l the state of its bytes for its owner; nobody stands in the way. 0, -ENOLCK, -ENOMEM. */
int mgr_locks_set_range(struct mgr_locks *t, struct mgr_lockfile *f, const struct mgr_lock *l, bool unset);
/* One that stands in the way of l; NULL: nobody. */
const struct mgr_lock *mgr_locks_holder(const struct mgr_lockfile *f, const struct mgr_lock *l);
/* Something that the owner of l holds of f; NULL: nothing. */
const struct mgr_lock *mgr_locks_held_by(const struct mgr_lockfile *f, const struct mgr_lock *l);

#endif
