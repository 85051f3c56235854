/*
 * Threads for what is left to do for locks: see lockwork.h.
 *
 * One thread runs what waits for nothing: steps of publishing, each of which looks what has come of the one before and asks for its next turn. So
 * any number of files is published side by side, and one whose benefactor is away holds up no other. What may stand still for as long as
 * programs or benefactors do (dropping pages that somebody is reading) has threads of its own, made as they are needed.
 *
 * One thread for both was rejected, though it was so at first: a lock that was granted waited behind the pages and the publishing of files that have
 * nothing to do with it. A thread for each file that is published was rejected, too: where a benefactor is away there is no bound to how many.
 *
 * Called by locks.c, append.c and ops/lock.c on any thread.
 */
#include "client/lockwork.h"

#include <pthread.h>
#include <stdlib.h>

#include "fp/clock.h"

struct list {
    struct cl_work *head, **tail;
};

struct cl_lockwork {
    pthread_mutex_t lock; /* a leaf: protects all of this */
    pthread_cond_t step_cond, block_cond;
    struct list steps, blocking; /* in the order of coming */
    bool ended;
    unsigned threads, idle; /* of those that may block */
    pthread_t stepper, thread[CL_LOCKWORK_THREADS];
};

static void append(struct list *l, struct cl_work *w)
{
    w->next = NULL;
    *l->tail = w;
    l->tail = &w->next;
}

/* lock held: takes the first that is due out. NULL: none, and *at_ms says when one will be (0: never). */
static struct cl_work *due(struct cl_lockwork *q, uint64_t *at_ms)
{
    uint64_t now_ms = fp_now_ms();
    struct cl_work *w;

    *at_ms = 0;
    for (struct cl_work **p = &q->steps.head; (w = *p); p = &w->next) {
        if (w->at_ms <= now_ms || q->ended) {
            *p = w->next;
            if (q->steps.tail == &w->next)
                q->steps.tail = p;
            return w;
        }
        *at_ms = *at_ms && *at_ms < w->at_ms ? *at_ms : w->at_ms;
    }
    return NULL;
}

static void *step_main(void *arg)
{
    struct cl_lockwork *q = arg;
    struct cl_work *w;
    uint64_t at_ms;

    pthread_setname_np(pthread_self(), "locks");
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!(w = due(q, &at_ms)) && !q->ended) {
            struct timespec ts = {.tv_sec = (time_t)(at_ms / 1000), .tv_nsec = (long)(at_ms % 1000) * 1000000};

            if (at_ms)
                pthread_cond_timedwait(&q->step_cond, &q->lock, &ts);
            else
                pthread_cond_wait(&q->step_cond, &q->lock);
        }
        if (!w)
            break;
        pthread_mutex_unlock(&q->lock);
        w->fn(w);
        pthread_mutex_lock(&q->lock);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static void *block_main(void *arg)
{
    struct cl_lockwork *q = arg;
    struct cl_work *w;

    pthread_setname_np(pthread_self(), "lock-pages");
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!(w = q->blocking.head) && !q->ended) {
            q->idle++;
            pthread_cond_wait(&q->block_cond, &q->lock);
            q->idle--;
        }
        if (!w)
            break;
        q->blocking.head = w->next;
        if (!w->next)
            q->blocking.tail = &q->blocking.head;
        pthread_mutex_unlock(&q->lock);
        w->fn(w);
        pthread_mutex_lock(&q->lock);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

bool cl_lockwork_at(struct cl_lockwork *q, uint64_t at_ms, struct cl_work *w, void (*fn)(struct cl_work *w))
{
    bool taken;

    pthread_mutex_lock(&q->lock);
    taken = !q->ended;
    if (taken) {
        w->at_ms = at_ms;
        w->fn = fn;
        append(&q->steps, w);
        pthread_cond_signal(&q->step_cond);
    }
    pthread_mutex_unlock(&q->lock);
    return taken;
}

/* lock held: one more thread, if all of them are busy. If it can't be had, those there are do it in turn. */
static void grow(struct cl_lockwork *q)
{
    unsigned waiting = 0;

    for (const struct cl_work *w = q->blocking.head; w && waiting <= q->idle; w = w->next)
        waiting++;
    if (waiting > q->idle && q->threads < CL_LOCKWORK_THREADS)
        q->threads += pthread_create(&q->thread[q->threads], NULL, block_main, q) == 0;
}

bool cl_lockwork_blocking(struct cl_lockwork *q, struct cl_work *w, void (*fn)(struct cl_work *w))
{
    bool taken;

    pthread_mutex_lock(&q->lock);
    taken = !q->ended;
    if (taken) {
        w->fn = fn;
        append(&q->blocking, w);
        grow(q);
        pthread_cond_signal(&q->block_cond);
    }
    pthread_mutex_unlock(&q->lock);
    return taken;
}

struct cl_lockwork *cl_lockwork_new(void)
{
    struct cl_lockwork *q = calloc(1, sizeof *q);
    pthread_condattr_t a;

    if (!q)
        return NULL;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&q->step_cond, &a);
    pthread_cond_init(&q->block_cond, &a);
    pthread_condattr_destroy(&a);
    q->steps.tail = &q->steps.head;
    q->blocking.tail = &q->blocking.head;
    if (pthread_create(&q->stepper, NULL, step_main, q)) {
        cl_lockwork_free(q);
        return NULL;
    }
    if (pthread_create(&q->thread[0], NULL, block_main, q)) { /* the first at once: so there is always one */
        cl_lockwork_stop(q);
        cl_lockwork_free(q);
        return NULL;
    }
    q->threads = 1;
    return q;
}

void cl_lockwork_stop(struct cl_lockwork *q)
{
    unsigned n;

    pthread_mutex_lock(&q->lock);
    q->ended = true;
    n = q->threads; /* no more from here on */
    pthread_cond_signal(&q->step_cond);
    pthread_cond_broadcast(&q->block_cond);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->stepper, NULL);
    for (unsigned i = 0; i < n; i++)
        pthread_join(q->thread[i], NULL);
}

void cl_lockwork_free(struct cl_lockwork *q)
{
    if (!q)
        return;
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->step_cond);
    pthread_cond_destroy(&q->block_cond);
    free(q);
}
