/* See worker.h. The thread holds the lock only to look at numbers; the run itself is outside of it. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "manager/worker.h"

static void *main_of(void *arg)
{
    struct mgr_worker *w = arg;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        uint64_t ticket;
        int err;

        while (!w->stop && w->asked == w->finished)
            pthread_cond_wait(&w->wake, &w->lock);
        if (w->stop)
            break;
        ticket = w->asked; /* whoever asks from now on gets the next run */
        pthread_mutex_unlock(&w->lock);
        err = w->run(w->arg);
        pthread_mutex_lock(&w->lock);
        w->finished = ticket;
        w->err = err;
        uv_async_send(&w->async);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void on_async(uv_async_t *async)
{
    struct mgr_worker *w = async->data;
    uint64_t finished;
    int err;

    pthread_mutex_lock(&w->lock);
    finished = w->finished;
    err = w->err;
    pthread_mutex_unlock(&w->lock);
    if (finished == w->reported)
        return;
    w->reported = finished;
    w->done(w->arg, finished, err);
}

int mgr_worker_start(struct mgr_worker *w, uv_loop_t *loop, int (*run)(void *),
                     void (*done)(void *, uint64_t, int), void *arg)
{
    sigset_t all, old;
    int rc;

    memset(w, 0, sizeof *w);
    w->run = run;
    w->done = done;
    w->arg = arg;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    rc = uv_async_init(loop, &w->async, on_async);
    if (rc)
        return rc;
    w->async.data = w;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&w->thread, NULL, main_of, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -rc;
}

uint64_t mgr_worker_ask(struct mgr_worker *w)
{
    uint64_t ticket;

    pthread_mutex_lock(&w->lock);
    ticket = ++w->asked;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    return ticket;
}

void mgr_worker_stop(struct mgr_worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    uv_close((uv_handle_t *)&w->async, NULL);
}
