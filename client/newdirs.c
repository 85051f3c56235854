/*
 * Names that are certainly not there: see newdirs.h.
 *
 * cl_newdirs_name and _absent are called by FUSE threads, _made and _clear on the core loop. One mutex; a set
 * is a table of 64-bit hashes (XXH3) with open addressing. Two names with one hash only make "absent" into
 * "not known".
 *
 * A Bloom filter would be smaller, but has to be sized for a directory's last name when its first is put in.
 */
#include "client/newdirs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define DIRS       64u
#define FIRST_CAP  64u
#define HASHES_MAX (1u << 19) /* of all sets together: 4 MiB */

struct newdir {
    uint64_t ino; /* 0: unused */
    uint32_t count, cap;
    uint64_t *hashes; /* 0: unused place */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct newdir dirs[DIRS]; /* lock */
static uint32_t total_cap;       /* lock */

static struct newdir *place_of(uint64_t ino)
{
    return &dirs[(ino * 0x9e3779b97f4a7c15u) >> 58];
}

static uint64_t hash_of(const char *name)
{
    uint64_t h = XXH3_64bits(name, strlen(name));
    return h ? h : 1;
}

static void forget(struct newdir *d)
{
    free(d->hashes);
    total_cap -= d->cap;
    *d = (struct newdir){0};
}

/* Where h is, or the unused place where it would go. */
static uint64_t *find(uint64_t *hashes, uint32_t cap, uint64_t h)
{
    uint32_t i = (uint32_t)h & (cap - 1);
    while (hashes[i] != 0 && hashes[i] != h)
        i = (i + 1) & (cap - 1);
    return &hashes[i];
}

static bool grow(struct newdir *d)
{
    uint32_t cap = d->cap ? d->cap * 2 : FIRST_CAP;
    if (total_cap - d->cap + cap > HASHES_MAX)
        return false;
    uint64_t *bigger = calloc(cap, sizeof *bigger);
    if (!bigger)
        return false;
    for (uint32_t i = 0; i < d->cap; i++) {
        if (d->hashes[i] != 0)
            *find(bigger, cap, d->hashes[i]) = d->hashes[i];
    }
    free(d->hashes);
    total_cap += cap - d->cap;
    d->hashes = bigger;
    d->cap = cap;
    return true;
}

void cl_newdirs_made(uint64_t dir)
{
    struct newdir *d = place_of(dir);
    pthread_mutex_lock(&lock);
    forget(d); /* the one that was here before */
    d->ino = dir;
    pthread_mutex_unlock(&lock);
}

void cl_newdirs_name(uint64_t dir, const char *name)
{
    struct newdir *d = place_of(dir);
    pthread_mutex_lock(&lock);
    if (d->ino == dir) {
        if (d->count * 2 >= d->cap && !grow(d)) {
            forget(d);
        } else {
            uint64_t h = hash_of(name), *at = find(d->hashes, d->cap, h);
            d->count += *at == 0;
            *at = h;
        }
    }
    pthread_mutex_unlock(&lock);
}

bool cl_newdirs_absent(uint64_t dir, const char *name)
{
    struct newdir *d = place_of(dir);
    pthread_mutex_lock(&lock);
    bool absent = d->ino == dir && (d->cap == 0 || *find(d->hashes, d->cap, hash_of(name)) == 0);
    pthread_mutex_unlock(&lock);
    return absent;
}

void cl_newdirs_clear(void)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < DIRS; i++)
        forget(&dirs[i]);
    pthread_mutex_unlock(&lock);
}
