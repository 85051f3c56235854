/*
 * Locks of files, as the contract has them: two programs that were both told that they have it never have it at the same time, but for those whose mount has died, was
 * told to end, or may have lost its session; a restart of the manager takes none, only the power of its node those that nothing has synced since.
 *
 * A program has a lock from when it was told to when it begins to give it back, or to take a lesser one. So what is found here is wrong in any order of events.
 */
#include "tests/sim/locks.h"

#include <stdlib.h>
#include <string.h>

struct holder {
    struct holder *next;
    const struct sim_proc *mount;
    unsigned start;
    uint64_t ino, owner;
    enum lock_kind kind;
    uint8_t mode[LOCK_UNITS];
    uint64_t since_ns[LOCK_UNITS];
    uint64_t gave_ns[LOCK_UNITS]; /* the last that it had alone, and began to give back */
};

static struct holder *holders;
static uint64_t durable_ns;
static unsigned losses;

static bool lives(const struct holder *h)
{
    return h->mount->up && !h->mount->told_end && h->start == h->mount->starts;
}

static bool is(const struct holder *h, const struct lock_want *w)
{
    return h->mount == w->mount && h->start == w->mount->starts && h->ino == w->ino && h->kind == w->kind && h->owner == w->owner;
}

static struct holder *holder_of(const struct lock_want *w)
{
    struct holder *h = holders;

    while (h && !is(h, w))
        h = h->next;
    if (!h) {
        h = calloc(1, sizeof *h);
        *h = (struct holder){.next = holders, .mount = w->mount, .start = w->mount->starts, .ino = w->ino, .owner = w->owner, .kind = w->kind};
        holders = h;
    }
    return h;
}

static void lower(struct holder *h, unsigned unit, enum lock_mode mode)
{
    if (h->mode[unit] <= mode)
        return;
    if (h->mode[unit] == LOCK_ALONE)
        h->gave_ns[unit] = sim.now_ns;
    h->mode[unit] = (uint8_t)mode;
}

/* flock(2) gives back what it had of the other type before it asks. */
void lock_begins(struct lock_want *w)
{
    struct holder *h = holder_of(w);

    w->losses = losses;
    for (unsigned u = w->first; u <= w->last; u++)
        lower(h, u, w->kind == LOCK_FLOCKED && h->mode[u] != w->mode ? LOCK_FREE : w->mode);
}

static bool conflicts(const struct holder *h, const struct lock_want *w, unsigned u)
{
    return h->mode[u] && (h->mode[u] == LOCK_ALONE || w->mode == LOCK_ALONE);
}

static bool has(const struct holder *h, const struct lock_want *w)
{
    if (h->ino != w->ino || h->kind != w->kind || is(h, w) || !lives(h))
        return false;
    for (unsigned u = w->first; u <= w->last; u++)
        if (conflicts(h, w, u))
            return true;
    return false;
}

uint64_t lock_granted(const struct lock_want *w)
{
    struct holder *mine = holder_of(w);
    uint64_t gave_ns = 0;

    if (w->losses != losses)
        return 0; /* it may have been lost before this one was told that it has it */
    for (const struct holder *h = holders; h; h = h->next) {
        if (h->ino != w->ino || h->kind != w->kind || h == mine)
            continue;
        if (w->mode != LOCK_FREE && w->mount->up && !w->mount->told_end && has(h, w))
            sim_fail("inode %llu: %s gets a lock of %u to %u (%s) for %llu, which %llu of %s has", (unsigned long long)w->ino, w->mount->name, w->first, w->last,
                     w->mode == LOCK_ALONE ? "alone" : "shared", (unsigned long long)w->owner, (unsigned long long)h->owner, h->mount->name);
        for (unsigned u = w->first; u <= w->last; u++)
            gave_ns = h->gave_ns[u] > gave_ns ? h->gave_ns[u] : gave_ns;
    }
    for (unsigned u = w->first; u <= w->last; u++) {
        mine->mode[u] = (uint8_t)w->mode;
        mine->since_ns[u] = sim.now_ns;
    }
    return gave_ns;
}

/* ------------------------------------------------------------------ circles */

/* Does a wait for what b has? */
static bool waits_for(const struct lock_want *a, const struct lock_want *b)
{
    for (const struct holder *h = holders; h; h = h->next)
        if (h->kind == LOCK_FCNTL && h->mount == b->mount && h->owner == b->owner && has(h, a))
            return true;
    return false;
}

bool lock_in_circle(const struct lock_want *w, const struct lock_want *waiting, unsigned n)
{
    bool seen[64] = {false}, more = true;

    for (unsigned i = 0; i < n; i++)
        seen[i] = waits_for(w, &waiting[i]);
    while (more) {
        more = false;
        for (unsigned i = 0; i < n; i++)
            for (unsigned k = 0; k < n; k++)
                if (seen[i] && !seen[k] && waits_for(&waiting[i], &waiting[k]))
                    more = seen[k] = true;
    }
    for (unsigned i = 0; i < n; i++)
        if (seen[i] && waits_for(&waiting[i], w))
            return true;
    return false;
}

void lock_circle(const struct lock_want *w, const struct lock_want *waiting, unsigned n)
{
    for (unsigned i = 0; i < sim.nprocs; i++)
        if (sim.procs[i].starts != 1 || !sim.procs[i].up)
            return; /* the manager may not have heard that who waited or had it is gone */
    for (unsigned i = 0; i < n; i++)
        if (waits_for(&waiting[i], w))
            return;
    sim_fail("inode %llu: %s is told of a circle of waits, and nobody waits for it", (unsigned long long)w->ino, w->mount->name);
}

/* ------------------------------------------------------------------ ends */

void lock_closed(const struct sim_proc *m, uint64_t ino, uint64_t process, uint64_t handle)
{
    for (struct holder *h = holders; h; h = h->next)
        if (h->mount == m && h->ino == ino && h->owner == (h->kind == LOCK_FCNTL ? process : handle))
            for (unsigned u = 0; u < LOCK_UNITS; u++)
                lower(h, u, LOCK_FREE);
}

void locks_mount_lost(const struct sim_proc *m)
{
    losses++;
    for (struct holder *h = holders; h; h = h->next)
        if (h->mount == m)
            memset(h->mode, LOCK_FREE, sizeof h->mode);
}

void locks_power_lost(void)
{
    losses++;
    for (struct holder *h = holders; h; h = h->next)
        for (unsigned u = 0; u < LOCK_UNITS; u++)
            if (h->since_ns[u] >= durable_ns)
                h->mode[u] = LOCK_FREE;
}

void locks_durable(uint64_t from_ns)
{
    durable_ns = from_ns > durable_ns ? from_ns : durable_ns;
}
