/*
 * Files that were closed and have left the inode table while what they had stored, or told the manager, was not synced. If that is lost later, their next
 * fsync must say so: by then the table knows nothing of them. Called with or without an inode's lock, by any thread; the lock here is a leaf.
 *
 * What is noted of a file goes when everything of this mount was synced, which every fsync does, or when the file is known again. Keeping the inodes
 * themselves was rejected: they are ten times as large, and a mount may close a million files before it syncs one. Beyond ENTRIES_MAX, files that are not known
 * count as not synced.
 */
#include <stdlib.h>

#include "client/data/internal.h"

#define BUCKETS 1024u
#define ENTRIES_MAX 65536u

struct entry {
    struct entry *next;
    uint64_t ino, serial;
    struct cl_left left;
};

struct cl_forgotten {
    pthread_mutex_t lock;
    struct entry *bucket[BUCKETS];
    uint64_t n, serial;
    struct entry rest;             /* those beyond ENTRIES_MAX: serial and change of the last, losses_seen of the first; serial 0: none */
};

struct cl_forgotten *cl_forgotten_new(void)
{
    struct cl_forgotten *t = calloc(1, sizeof(*t));

    if (t)
        pthread_mutex_init(&t->lock, NULL);
    return t;
}

void cl_forgotten_free(struct cl_forgotten *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (struct entry *e = t->bucket[i], *next; e; e = next) {
            next = e->next;
            free(e);
        }
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static struct entry **find(struct cl_forgotten *t, uint64_t ino)
{
    struct entry **p = &t->bucket[ino % BUCKETS];

    while (*p && (*p)->ino != ino)
        p = &(*p)->next;
    return p;
}

/* What holds for one of several: the worst of all. */
static void join(struct cl_left *all, const struct cl_left *one)
{
    if (!all->unsynced)
        all->losses_seen = one->losses_seen;
    all->unsynced |= one->unsynced;
    all->forgotten_by_manager |= one->forgotten_by_manager;
    if (one->last_change > all->last_change)
        all->last_change = one->last_change;
}

void cl_forgotten_add(struct cl_forgotten *t, uint64_t ino, const struct cl_left *left)
{
    struct entry **p, *e;

    pthread_mutex_lock(&t->lock);
    p = find(t, ino);
    e = *p || t->n >= ENTRIES_MAX ? *p : calloc(1, sizeof(*e));
    if (!e) {
        if (t->rest.serial == 0)
            t->rest.left = (struct cl_left){ 0 };
        join(&t->rest.left, left);
        t->rest.serial = ++t->serial;
    } else {
        t->n += !*p;
        *p = e;
        e->ino = ino;
        e->left = *left;
        e->serial = ++t->serial;
    }
    pthread_mutex_unlock(&t->lock);
}

bool cl_forgotten_has(struct cl_forgotten *t, uint64_t ino)
{
    bool has;

    pthread_mutex_lock(&t->lock);
    has = *find(t, ino) || t->rest.serial > 0;
    pthread_mutex_unlock(&t->lock);
    return has;
}

bool cl_forgotten_take(struct cl_forgotten *t, uint64_t ino, struct cl_left *left)
{
    struct entry **p, *e;
    bool has;

    pthread_mutex_lock(&t->lock);
    p = find(t, ino);
    e = *p;
    has = e || t->rest.serial > 0;
    *left = e ? e->left : has ? t->rest.left : (struct cl_left){ 0 };
    if (e) {
        *p = e->next;
        free(e);
        t->n--;
    }
    pthread_mutex_unlock(&t->lock);
    return has;
}

uint64_t cl_forgotten_serial(struct cl_forgotten *t)
{
    uint64_t serial;

    pthread_mutex_lock(&t->lock);
    serial = t->serial;
    pthread_mutex_unlock(&t->lock);
    return serial;
}

/* What was stored is on the devices; true: and there is nothing else to tell. */
static bool is_over(struct entry *e, uint64_t serial, uint64_t losses, uint64_t changes_synced)
{
    if (e->serial <= serial && e->left.losses_seen == losses) /* else closed since, or lost and not told */
        e->left.unsynced = false;
    return !e->left.unsynced && !e->left.forgotten_by_manager && e->left.last_change <= changes_synced;
}

void cl_forgotten_synced(struct cl_forgotten *t, uint64_t serial, uint64_t losses, uint64_t changes_synced)
{
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < BUCKETS && t->n > 0; i++)
        for (struct entry **p = &t->bucket[i]; *p;) {
            struct entry *e = *p;

            if (!is_over(e, serial, losses, changes_synced)) {
                p = &e->next;
                continue;
            }
            *p = e->next;
            free(e);
            t->n--;
        }
    if (is_over(&t->rest, serial, losses, changes_synced))
        t->rest.serial = 0;
    pthread_mutex_unlock(&t->lock);
}

void cl_forgotten_by_manager(struct cl_forgotten *t, uint64_t changes_synced)
{
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < BUCKETS && t->n > 0; i++)
        for (struct entry *e = t->bucket[i]; e; e = e->next)
            e->left.forgotten_by_manager |= e->left.last_change > changes_synced;
    if (t->rest.serial > 0)
        t->rest.left.forgotten_by_manager |= t->rest.left.last_change > changes_synced;
    pthread_mutex_unlock(&t->lock);
}

static bool has_lost(const struct entry *e, uint64_t losses)
{
    return e->left.forgotten_by_manager || (e->left.unsynced && e->left.losses_seen != losses);
}

bool cl_forgotten_lost(struct cl_forgotten *t, uint64_t losses)
{
    bool lost;

    pthread_mutex_lock(&t->lock);
    lost = t->rest.serial > 0 && has_lost(&t->rest, losses);
    for (uint32_t i = 0; i < BUCKETS && !lost; i++)
        for (struct entry *e = t->bucket[i]; e && !lost; e = e->next)
            lost = has_lost(e, losses);
    pthread_mutex_unlock(&t->lock);
    return lost;
}
