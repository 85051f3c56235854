/*
 * A small pool of plain threads for pwritev, pread, fallocate and fdatasync.
 *
 * Used by service.c only. libuv's own pool is not used: it is shared with name look-ups of the process, has
 * four threads by default and serves them in one queue. Finished tasks go back through one list and one
 * uv_async per burst. How many tasks can be queued is bounded by those who submit: each holds a buffer of a
 * bounded pool, or is one of a few operations.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "benefactor/disk.h"

struct bnf_disk {
    uv_async_t async;
    size_t pending; /* loop's thread */
    unsigned nthreads;
    struct worker *workers;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t wake;
    struct bnf_task *head, **tail;
    struct bnf_task *done_head, **done_tail;
    bool stop;
};

struct worker {
    struct bnf_disk *disk;
    pthread_t thread;
    bool busy;      /* disk->lock, both */
    unsigned looks; /* that have found it at the task that it runs */
};

static void *disk_thread(void *arg)
{
    struct worker *w = arg;
    struct bnf_disk *d = w->disk;

    pthread_mutex_lock(&d->lock);
    for (;;) {
        struct bnf_task *t = d->head;
        bool first;

        if (d->stop)
            break;
        if (!t) {
            pthread_cond_wait(&d->wake, &d->lock);
            continue;
        }
        d->head = t->next;
        if (!d->head)
            d->tail = &d->head;
        w->busy = true;
        w->looks = 0;
        pthread_mutex_unlock(&d->lock);
        t->run(t);
        pthread_mutex_lock(&d->lock);
        w->busy = false;
        first = d->done_head == NULL;
        t->next = NULL;
        *d->done_tail = t;
        d->done_tail = &t->next;
        if (first)
            uv_async_send(&d->async);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void on_async(uv_async_t *async)
{
    struct bnf_disk *d = async->data;
    struct bnf_task *t;

    pthread_mutex_lock(&d->lock);
    t = d->done_head;
    d->done_head = NULL;
    d->done_tail = &d->done_head;
    pthread_mutex_unlock(&d->lock);
    while (t) {
        struct bnf_task *next = t->next;

        d->pending--;
        t->done(t);
        t = next;
    }
}

int bnf_disk_new(uv_loop_t *loop, unsigned threads, struct bnf_disk **out)
{
    struct bnf_disk *d = calloc(1, sizeof(*d));
    int rc;

    if (!d)
        return -ENOMEM;
    d->workers = calloc(threads, sizeof(*d->workers));
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->wake, NULL);
    d->tail = &d->head;
    d->done_tail = &d->done_head;
    rc = d->workers ? uv_async_init(loop, &d->async, on_async) : -ENOMEM;
    if (rc) {
        free(d->workers);
        free(d);
        return rc;
    }
    d->async.data = d;
    while (d->nthreads < threads && rc == 0) {
        struct worker *w = &d->workers[d->nthreads];

        w->disk = d;
        rc = -pthread_create(&w->thread, NULL, disk_thread, w);
        d->nthreads += rc == 0;
    }
    if (rc) {
        bnf_disk_free(d);
        return rc;
    }
    *out = d;
    return 0;
}

void bnf_disk_submit(struct bnf_disk *d, struct bnf_task *task)
{
    d->pending++;
    task->next = NULL;
    pthread_mutex_lock(&d->lock);
    *d->tail = task;
    d->tail = &task->next;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
}

unsigned bnf_disk_look(struct bnf_disk *d)
{
    unsigned most = 0;

    pthread_mutex_lock(&d->lock);
    for (unsigned i = 0; i < d->nthreads; i++) {
        struct worker *w = &d->workers[i];

        if (w->busy && ++w->looks > most)
            most = w->looks;
    }
    pthread_mutex_unlock(&d->lock);
    return most;
}

size_t bnf_disk_pending(const struct bnf_disk *d)
{
    return d->pending;
}

static void on_closed(uv_handle_t *handle)
{
    struct bnf_disk *d = handle->data;

    pthread_cond_destroy(&d->wake);
    pthread_mutex_destroy(&d->lock);
    free(d->workers);
    free(d);
}

void bnf_disk_free(struct bnf_disk *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_broadcast(&d->wake);
    pthread_mutex_unlock(&d->lock);
    while (d->nthreads > 0)
        pthread_join(d->workers[--d->nthreads].thread, NULL);
    uv_close((uv_handle_t *)&d->async, on_closed);
}
