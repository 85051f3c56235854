/*
 * Store threads (see jobs.h). Plain pthreads and not libuv's pool, which is shared and unpinned.
 *
 * Two queues, urgent first: a reader waits for its chunk, a sealed window waits only for the pool. Threads are woken one per job. One
 * more thread runs the tick: its work (ageing windows, giving leases back) must go on while all store threads are busy with a slow disk.
 */
#include "client/data/jobs.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fp/log.h"

struct queue {
    struct cl_job *head, **tail;
};

struct cl_jobs {
    pthread_mutex_t lock;
    pthread_cond_t work, tick_cond;
    struct queue urgent, normal;   /* lock */
    bool stop;                     /* lock */
    uint32_t tick_ms;
    void (*tick)(void *arg);
    void *arg;
    unsigned started;
    bool tick_started;
    pthread_t tick_thread;
    cpu_set_t cpus;
    bool pinned;
    pthread_t thread[];
};

static struct cl_job *pop(struct queue *q)
{
    struct cl_job *j = q->head;

    if (j) {
        q->head = j->next;
        if (!q->head)
            q->tail = &q->head;
    }
    return j;
}

static void pin(struct cl_jobs *s)
{
    int rc = s->pinned ? pthread_setaffinity_np(pthread_self(), sizeof(s->cpus), &s->cpus) : 0;

    if (rc != 0)
        FP_LOG_EVERY(60000, FP_LOG_WARN, "store threads can't be pinned to --cores: %s", strerror(rc));
}

static void *store_thread(void *arg)
{
    struct cl_jobs *s = arg;

    pin(s);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct cl_job *j = pop(&s->urgent);

        if (!j)
            j = pop(&s->normal);
        if (!j) {
            if (s->stop)
                break;
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        j->run(j);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void *tick_thread(void *arg)
{
    struct cl_jobs *s = arg;

    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        ts.tv_nsec += (long)(s->tick_ms % 1000) * 1000000;
        ts.tv_sec += s->tick_ms / 1000 + ts.tv_nsec / 1000000000;
        ts.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&s->tick_cond, &s->lock, &ts);
        if (s->stop)
            break;
        pthread_mutex_unlock(&s->lock);
        s->tick(s->arg);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void init_sync(struct cl_jobs *s)
{
    pthread_condattr_t a;

    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&s->tick_cond, &a);
    pthread_condattr_destroy(&a);
    s->urgent.tail = &s->urgent.head;
    s->normal.tail = &s->normal.head;
}

int cl_jobs_new(unsigned threads, const cpu_set_t *cpus, uint32_t tick_ms, void (*tick)(void *arg), void *arg, struct cl_jobs **out)
{
    struct cl_jobs *s = calloc(1, sizeof(*s) + threads * sizeof(s->thread[0]));
    int rc = 0;

    if (!s)
        return -ENOMEM;
    init_sync(s);
    s->tick_ms = tick_ms;
    s->tick = tick;
    s->arg = arg;
    if (cpus) {
        s->cpus = *cpus;
        s->pinned = true;
    }
    for (; s->started < threads; s->started++) {
        rc = -pthread_create(&s->thread[s->started], NULL, store_thread, s);
        if (rc < 0)
            goto out;
    }
    rc = -pthread_create(&s->tick_thread, NULL, tick_thread, s);
    if (rc < 0)
        goto out;
    s->tick_started = true;
    *out = s;
    return 0;
out:
    cl_jobs_free(s);
    return rc;
}

void cl_jobs_free(struct cl_jobs *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    pthread_cond_broadcast(&s->tick_cond);
    pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < s->started; i++)
        pthread_join(s->thread[i], NULL);
    if (s->tick_started)
        pthread_join(s->tick_thread, NULL);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->tick_cond);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void cl_jobs_post(struct cl_jobs *s, struct cl_job *job, bool urgent)
{
    struct queue *q = urgent ? &s->urgent : &s->normal;

    job->next = NULL;
    pthread_mutex_lock(&s->lock);
    *q->tail = job;
    q->tail = &job->next;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}
