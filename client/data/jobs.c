/*
 * Store threads (see jobs.h). Plain pthreads and not libuv's pool, which is shared and unpinned.
 *
 * Three queues, urgent first: a reader waits for its chunk, a sealed window waits only for the pool. Threads are woken one per job. One
 * more thread runs the tick: its work (ageing windows, giving leases back) must go on while all store threads are busy with a slow disk.
 *
 * What is posted for later is held while a burst of writes lasts, since sums and device take the memory's bandwidth, and half of a core from the one who writes
 * if the other half is theirs (two threads of one core): measured, a write of 1 MiB into the pool takes 150 us without them beside it and 210 to 290 with them. A burst is over when nobody has
 * written for PAUSE_MS, after BURST_MS, when there is no more room, or when somebody waits for what is held. The last two mean that to hold was of no use: the
 * next SHY_BURSTS bursts are not held. One thread watches for the end of a burst, and each that takes a job calls the next.
 *
 * Rejected: to begin each job some milliseconds after it was posted, which only moves all of them; a lower priority, which does nothing for two threads of a core.
 */
#include "client/data/jobs.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fp/clock.h"
#include "fp/log.h"

#define PAUSE_MS   3u   /* between two writes of a program that does nothing else, with room for a busy machine */
#define BURST_MS   100u /* by which what is written reaches its device later, at most */
#define SHY_BURSTS 8u

struct queue {
    struct cl_job *head, **tail;
};

/* Of writes that follow each other. */
struct burst {
    uint64_t begun_ms, last_ms;
    bool over;                     /* until the next one nothing is held */
    unsigned shy;                  /* so many more are not held */
};

struct cl_jobs {
    pthread_mutex_t lock;
    pthread_cond_t work, tick_cond;
    struct queue urgent, normal, later; /* lock */
    struct burst burst;            /* lock */
    bool watched;                  /* lock: a thread waits for the end of the burst */
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

/* lock held: until when what is posted for later is held; 0: it is not. */
static uint64_t held_until(const struct cl_jobs *s)
{
    const struct burst *b = &s->burst;
    uint64_t until = b->last_ms + PAUSE_MS, most = b->begun_ms + BURST_MS;

    if (b->over || s->stop)
        return 0;
    if (until > most)
        until = most;
    return fp_now_ms() < until ? until : 0;
}

/* lock held, and released meanwhile. */
static void watch(struct cl_jobs *s, uint64_t until_ms)
{
    struct timespec ts = { .tv_sec = (time_t)(until_ms / 1000), .tv_nsec = (long)(until_ms % 1000) * 1000000 };

    s->watched = true;
    pthread_cond_timedwait(&s->work, &s->lock, &ts);
    s->watched = false;
}

/* lock held. NULL: none that may run now; *held_ms: there is one, held until then, or 0. */
static struct cl_job *next(struct cl_jobs *s, uint64_t *held_ms)
{
    struct cl_job *j = pop(&s->urgent);

    *held_ms = 0;
    if (!j)
        j = pop(&s->normal);
    if (!j && s->later.head) {
        *held_ms = held_until(s);
        if (*held_ms == 0)
            j = pop(&s->later);
    }
    return j;
}

static void *store_thread(void *arg)
{
    struct cl_jobs *s = arg;
    uint64_t held_ms;

    pin(s);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct cl_job *j = next(s, &held_ms);

        if (!j) {
            if (s->stop)
                break;
            if (held_ms > 0 && !s->watched)
                watch(s, held_ms);
            else
                pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        if (s->later.head && !s->watched)
            pthread_cond_signal(&s->work);
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
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&s->work, &a);
    pthread_cond_init(&s->tick_cond, &a);
    pthread_condattr_destroy(&a);
    s->urgent.tail = &s->urgent.head;
    s->normal.tail = &s->normal.head;
    s->later.tail = &s->later.head;
    s->burst.over = true;
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

static void put(struct queue *q, struct cl_job *job)
{
    job->next = NULL;
    *q->tail = job;
    q->tail = &job->next;
}

void cl_jobs_post(struct cl_jobs *s, struct cl_job *job, bool urgent)
{
    pthread_mutex_lock(&s->lock);
    put(urgent ? &s->urgent : &s->normal, job);
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

void cl_jobs_post_later(struct cl_jobs *s, struct cl_job *job)
{
    pthread_mutex_lock(&s->lock);
    put(&s->later, job);
    if (!s->watched || held_until(s) == 0)
        pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

/* lock held. */
static void burst_of_no_use(struct cl_jobs *s)
{
    s->burst.over = true;
    s->burst.shy = SHY_BURSTS;
    if (s->later.head)
        pthread_cond_signal(&s->work);
}

void cl_jobs_burst(struct cl_jobs *s, bool fits)
{
    struct burst *b = &s->burst;
    uint64_t now_ms = fp_now_ms();

    pthread_mutex_lock(&s->lock);
    if (now_ms >= b->last_ms + PAUSE_MS) {
        b->begun_ms = now_ms;
        b->over = b->shy > 0;
        b->shy -= b->shy > 0;
    }
    b->last_ms = now_ms;
    if (!fits && !b->over)
        burst_of_no_use(s);
    pthread_mutex_unlock(&s->lock);
}

void cl_jobs_hurry(struct cl_jobs *s)
{
    pthread_mutex_lock(&s->lock);
    if (held_until(s) > 0 && s->later.head)
        burst_of_no_use(s);
    pthread_mutex_unlock(&s->lock);
}
