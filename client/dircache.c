/*
 * Attributes of directories that were changed a moment ago: see dircache.h.
 *
 * put, drop and clear are called by the callbacks of operations on the core loop, get by FUSE threads. A
 * small direct-mapped table under one mutex: entries live for milliseconds, so a collision only costs the
 * message that it would have saved.
 */
#include "client/dircache.h"

#include <pthread.h>
#include <string.h>

#include "client/inode.h"
#include "fp/clock.h"

#define ENTRY_BITS 6u
#define ENTRIES    (1u << ENTRY_BITS)

struct entry {
    uint64_t ino; /* 0: empty */
    uint64_t put_ns;
    struct stat st;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry entries[ENTRIES]; /* lock */

static struct entry *slot_of(uint64_t ino)
{
    return &entries[cl_ino_slot(ino, ENTRY_BITS)];
}

void cl_dircache_put(struct cl_mount *m, const Fp__Attr *a)
{
    struct stat st;
    if (!a)
        return;
    cl_attr_stat(m, a, &st);
    pthread_mutex_lock(&lock);
    *slot_of(a->ino) = (struct entry){.ino = a->ino, .put_ns = fp_now_ns(), .st = st};
    pthread_mutex_unlock(&lock);
}

void cl_dircache_drop(uint64_t ino)
{
    struct entry *e = slot_of(ino);
    pthread_mutex_lock(&lock);
    if (e->ino == ino)
        e->ino = 0;
    pthread_mutex_unlock(&lock);
}

void cl_dircache_clear(void)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < ENTRIES; i++)
        entries[i].ino = 0;
    pthread_mutex_unlock(&lock);
}

bool cl_dircache_get(uint64_t ino, struct stat *st)
{
    struct entry *e = slot_of(ino);
    pthread_mutex_lock(&lock);
    bool hit = e->ino == ino && fp_now_ns() - e->put_ns < CL_DIRCACHE_MS * 1000000u;
    if (hit)
        *st = e->st;
    pthread_mutex_unlock(&lock);
    return hit;
}
