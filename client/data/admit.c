/*
 * Admission of readers (see admit.h). Called on FUSE threads before a read takes pool pages, and after its reply.
 *
 * A read holds the pages of one piece while it waits for those of the next, until its reply is sent. With more readers than the pool has room for, all could
 * hold some and wait for the rest. So each is granted beforehand, at once, what it will need at most, and all together no more than half of the pool: whatever
 * else the pool holds goes by itself, cached blocks by reclaim and written ones by being stored. In the order of coming, so that a large read is not overtaken
 * for ever by small ones. Giving pages back when there are none was rejected: readers would throw away each other's blocks and none would get done.
 */
#include "client/data/admit.h"

#include <errno.h>
#include <stdbool.h>
#include <time.h>

struct cl_admit_waiter {
    struct cl_admit_waiter *next;
    size_t n;
    bool granted;
    pthread_cond_t cond;
};

void cl_admit_init(struct cl_admit *a, size_t pages)
{
    *a = (struct cl_admit){ .cap = pages };
    a->tail = &a->head;
    pthread_mutex_init(&a->lock, NULL);
}

void cl_admit_fini(struct cl_admit *a)
{
    pthread_mutex_destroy(&a->lock);
}

/* lock held. */
static void grant(struct cl_admit *a)
{
    struct cl_admit_waiter *w;

    while ((w = a->head) != NULL && a->used + w->n <= a->cap) {
        a->head = w->next;
        if (!a->head)
            a->tail = &a->head;
        a->used += w->n;
        w->granted = true;
        pthread_cond_signal(&w->cond);
    }
}

/* lock held. */
static void leave(struct cl_admit *a, struct cl_admit_waiter *w)
{
    struct cl_admit_waiter **p = &a->head;

    while (*p != w)
        p = &(*p)->next;
    *p = w->next;
    if (!w->next)
        a->tail = p;
    grant(a); /* those behind it may fit */
}

int cl_admit_get(struct cl_admit *a, size_t n, uint64_t deadline_ms)
{
    struct timespec ts = { .tv_sec = (time_t)(deadline_ms / 1000), .tv_nsec = (long)(deadline_ms % 1000) * 1000000 };
    struct cl_admit_waiter w = { .n = n < a->cap ? n : a->cap };
    pthread_condattr_t attr;
    int rc = 0;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w.cond, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_lock(&a->lock);
    *a->tail = &w;
    a->tail = &w.next;
    grant(a);
    while (!w.granted && rc == 0)
        rc = -pthread_cond_timedwait(&w.cond, &a->lock, &ts);
    if (!w.granted)
        leave(a, &w);
    rc = w.granted ? 0 : -ETIMEDOUT;
    pthread_mutex_unlock(&a->lock);
    pthread_cond_destroy(&w.cond);
    return rc;
}

void cl_admit_put(struct cl_admit *a, size_t n)
{
    pthread_mutex_lock(&a->lock);
    a->used -= n < a->cap ? n : a->cap;
    grant(a);
    pthread_mutex_unlock(&a->lock);
}
