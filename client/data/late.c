/*
 * Handles that were released while something of their file was still to be published: they stay, and count, until it is. Who opens the file again meanwhile
 * finds it as it was left. So nothing that was accepted is dropped for having taken long.
 *
 * One thread, "late", goes through the list when one comes, when the commits that it has sent are answered, and every TICK_MS; it never waits for one of them
 * (release.c). To wait in the release itself was rejected: it takes a FUSE thread for as long as aux-apps stand still or a benefactor is away, and store
 * threads, on which handles end too, are what is waited for.
 *
 * At the end of the mount cl_data_sync_at_end publishes what is left, with one deadline for all. Handles of which nothing is left end then as any (aux-apps hear of
 * the file); what stays in the list was left open.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/data/internal.h"

#define TICK_MS   50u
#define WANTED_MS 1u  /* while another mount waits for a file of this one, and something goes forward */

struct list {
    struct cl_handle *head, **tail;
};

struct cl_late {
    pthread_mutex_t lock;          /* a leaf */
    pthread_cond_t cond;           /* look, stop */
    struct list list;              /* lock */
    bool started, stop;            /* lock */
    bool look;                     /* lock: not only at the next tick */
    uint32_t wanted_ms;            /* lock: the last such wait … */
    uint64_t moved_ms;             /* lock: … and what had gone forward by then */
    pthread_t thread;
};

static void empty(struct list *l)
{
    l->head = NULL;
    l->tail = &l->head;
}

static void append(struct list *l, struct cl_handle *h)
{
    h->late_next = NULL;
    *l->tail = h;
    l->tail = &h->late_next;
}

/* What is in src goes behind what is in dst. */
static void join(struct list *dst, struct list *src)
{
    if (!src->head)
        return;
    *dst->tail = src->head;
    dst->tail = src->tail;
    empty(src);
}

/* All of them, once; those that did not come to their turn are the first of the next time. */
static void go_through(struct cl_mount *m, struct list *l)
{
    struct cl_handle *h = l->head, *next;
    struct list rest;

    empty(l);
    empty(&rest);
    for (; h; h = next) {
        next = h->late_next;
        switch (cl_release_step(m->data, h, atomic_load(&m->data->late_commits) < CL_COMMITS_MAX)) {
        case CL_RELEASE_DONE:
            h->late_end(m, h);
            break;
        case CL_RELEASE_WAITS:
            append(&rest, h);
            break;
        case CL_RELEASE_TURN:
            append(l, h);
            break;
        }
    }
    join(l, &rest);
}

uint32_t cl_late_next_ms(uint32_t last_ms, bool moved)
{
    if (moved || last_ms == 0)
        return WANTED_MS;
    return last_ms < TICK_MS / 2 ? 2 * last_ms : TICK_MS;
}

/* lock held: until the next look at what others wait for. All files are looked at: not each millisecond while nothing can be done. */
static uint32_t wanted_ms(struct cl_late *l, uint64_t moved_ms)
{
    l->wanted_ms = cl_late_next_ms(l->wanted_ms, moved_ms != l->moved_ms);
    l->moved_ms = moved_ms;
    return l->wanted_ms;
}

/* lock held. */
static void wait_a_tick(struct cl_mount *m, struct cl_late *l)
{
    struct cl_data *d = m->data;
    uint64_t at_ms = fp_now_ms() + (cl_behind_wanted(d) ? wanted_ms(l, atomic_load(&d->moved_ms)) : TICK_MS);
    struct timespec ts = { .tv_sec = (time_t)(at_ms / 1000), .tv_nsec = (long)(at_ms % 1000) * 1000000 };

    if (l->list.head || cl_behind_any(d))
        pthread_cond_timedwait(&l->cond, &l->lock, &ts);
    else
        pthread_cond_wait(&l->cond, &l->lock);
}

/* lock held; not over the steps: those that come meanwhile go behind. */
static void turn(struct cl_mount *m, struct cl_late *l)
{
    struct list all;

    l->look = false;
    empty(&all);
    join(&all, &l->list);
    pthread_mutex_unlock(&l->lock);
    cl_behind_steps(m->data);
    go_through(m, &all);
    pthread_mutex_lock(&l->lock);
    join(&all, &l->list);
    join(&l->list, &all);
}

static void *late_thread(void *arg)
{
    struct cl_mount *m = arg;
    struct cl_late *l = m->data->late;

    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (!l->look)
            wait_a_tick(m, l);
        turn(m, l);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

int cl_late_new(struct cl_data *d)
{
    struct cl_late *l = calloc(1, sizeof(*l));
    pthread_condattr_t a;

    if (!l)
        return -ENOMEM;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&l->cond, &a);
    pthread_condattr_destroy(&a);
    empty(&l->list);
    d->late = l;
    return 0;
}

int cl_late_start(struct cl_mount *m)
{
    struct cl_late *l = m->data->late;
    int rc = -pthread_create(&l->thread, NULL, late_thread, m);

    l->started = rc == 0;
    if (l->started)
        pthread_setname_np(l->thread, "late");
    return rc;
}

void cl_late_add(struct cl_mount *m, struct cl_handle *h, void (*end)(struct cl_mount *m, struct cl_handle *h))
{
    struct cl_late *l = m->data->late;

    h->late_end = end;
    pthread_mutex_lock(&l->lock);
    append(&l->list, h);
    l->look = true;
    pthread_cond_signal(&l->cond);
    pthread_mutex_unlock(&l->lock);
}

void cl_late_look(struct cl_data *d)
{
    struct cl_late *l = d->late;

    pthread_mutex_lock(&l->lock);
    l->look = true;
    pthread_cond_signal(&l->cond);
    pthread_mutex_unlock(&l->lock);
}

void cl_late_answered(struct cl_data *d)
{
    if (atomic_fetch_sub(&d->late_commits, 1) == 1)
        cl_late_look(d); /* the last of them tells, or the next tick */
}

/* The thread has ended; all is published that could be. */
static void end_what_can(struct cl_mount *m, struct cl_late *l)
{
    struct list all;

    pthread_mutex_lock(&l->lock);
    empty(&all);
    join(&all, &l->list);
    pthread_mutex_unlock(&l->lock);
    go_through(m, &all);
    pthread_mutex_lock(&l->lock);
    join(&l->list, &all);
    pthread_mutex_unlock(&l->lock);
}

void cl_data_late_stop(struct cl_mount *m)
{
    struct cl_late *l = m->data->late;
    bool started;

    pthread_mutex_lock(&l->lock);
    l->stop = true;
    started = l->started;
    l->started = false;
    pthread_cond_signal(&l->cond);
    pthread_mutex_unlock(&l->lock);
    if (started) {
        pthread_join(l->thread, NULL);
        end_what_can(m, l);
    }
    cl_behind_stop(m->data);
}

void cl_late_free(struct cl_data *d)
{
    struct cl_late *l = d->late;

    if (!l)
        return;
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->cond);
    free(l);
    d->late = NULL;
}
