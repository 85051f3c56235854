/*
 * What the kernel was told of names, by the thread that asked: see walk.h.
 *
 * Called by FUSE threads and by callbacks on the core loop, for each look-up while there are other mounts. A table of sets, in which who has not
 * asked for the longest time makes room; it needs no end of a thread to be known. Names are kept as their hash: two names of one directory with
 * the same 64 bits count as one, which costs what a thread that is not known costs.
 *
 * Rejected: a number in each look-up that the manager checks with the change. It would be right without any table here, but FUSE has no place for it.
 */
#include "client/walk.h"

#include <pthread.h>
#include <string.h>

#include "client/inode.h"

#define SET_BITS 8u
#define WAYS     8u
#define AGAIN_MS 100000u /* within which the kernel is back, though its look-up may have waited for the manager: later it is another open of that thread */

struct name {
    uint64_t parent, hash, ino; /* ino 0: none of this name */
    bool dir;
};

struct walker {
    uint32_t tid; /* 0: free */
    uint64_t used;
    bool again;       /* an open of it was told to look again … */
    uint32_t told_ms; /* … then */
    struct name last[2]; /* the newer one first; parent 0: none */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct walker sets[1u << SET_BITS][WAYS]; /* lock */
static uint64_t clock_; /* lock: counts uses */

static uint64_t hash_of(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001b3u;
    return h;
}

/* lock held. Its place, or where it may have one: then tid is another's or 0. */
static struct walker *place_of(uint32_t tid)
{
    struct walker *set = sets[cl_ino_slot(tid, SET_BITS)], *oldest = set;
    for (unsigned i = 0; i < WAYS; i++) {
        if (set[i].tid == tid)
            return &set[i];
        if (set[i].used < oldest->used)
            oldest = &set[i];
    }
    return oldest;
}

/* lock held. */
static struct walker *own(uint32_t tid)
{
    struct walker *w = place_of(tid);
    if (w->tid != tid)
        *w = (struct walker){.tid = tid};
    w->used = ++clock_;
    return w;
}

/* lock held: it has found nothing. */
static void forget_names(struct walker *w)
{
    if (w->again)
        memset(w->last, 0, sizeof w->last);
    else
        memset(w, 0, sizeof *w);
}

static bool same_name(const struct name *n, uint64_t parent, uint64_t hash)
{
    return n->parent == parent && n->hash == hash;
}

bool cl_walk_told(uint32_t tid, uint64_t parent, const char *name, uint64_t ino, bool dir)
{
    struct name now = {.parent = parent, .hash = hash_of(name), .ino = ino, .dir = dir};
    if (tid == 0)
        return false;
    pthread_mutex_lock(&lock);
    struct walker *w = own(tid);
    if (!same_name(&w->last[0], now.parent, now.hash)) /* else the kernel asks again about what it had known otherwise */
        w->last[1] = w->last[0];
    w->last[0] = now;
    bool again = ino != 0 && w->last[1].ino == ino && w->last[1].parent != 0;
    pthread_mutex_unlock(&lock);
    return again;
}

uint64_t cl_walk_found(uint32_t tid, uint64_t parent, const char *name, bool *dir)
{
    uint64_t hash = hash_of(name), ino = 0;
    *dir = false;
    if (tid == 0)
        return 0;
    pthread_mutex_lock(&lock);
    const struct walker *w = place_of(tid);
    for (unsigned i = 0; w->tid == tid && i < 2; i++) {
        if (same_name(&w->last[i], parent, hash)) {
            ino = w->last[i].ino;
            *dir = w->last[i].dir;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return ino;
}

bool cl_walk_came_to(uint32_t tid, uint64_t ino)
{
    bool did = false;
    if (tid == 0)
        return false;
    pthread_mutex_lock(&lock);
    struct walker *w = place_of(tid);
    if (w->tid == tid && (w->last[0].ino == ino || w->last[1].ino == ino)) {
        did = true;
        forget_names(w);
    }
    pthread_mutex_unlock(&lock);
    return did;
}

void cl_walk_forget(uint32_t tid)
{
    if (tid == 0)
        return;
    pthread_mutex_lock(&lock);
    struct walker *w = place_of(tid);
    if (w->tid == tid)
        forget_names(w);
    pthread_mutex_unlock(&lock);
}

bool cl_walk_again(uint32_t tid, uint32_t came_ms, uint32_t now_ms)
{
    if (tid == 0)
        return true;
    pthread_mutex_lock(&lock);
    struct walker *w = own(tid);
    bool first = !w->again || came_ms - w->told_ms > AGAIN_MS;
    w->again = first;
    w->told_ms = now_ms;
    pthread_mutex_unlock(&lock);
    return first;
}

void cl_walk_ends(uint32_t tid)
{
    if (tid == 0)
        return;
    pthread_mutex_lock(&lock);
    struct walker *w = place_of(tid);
    if (w->tid == tid)
        w->again = false;
    pthread_mutex_unlock(&lock);
}
