/* A thread that does one blocking thing when asked, so that the loop need not wait for the disk: sync of the
 * WAL, checkpoint of the database.
 *
 * Tickets: mgr_worker_ask gives the number of the next run that begins after the call; when done(arg, ticket,
 * err) is called, on the loop, all runs up to that number are through. Calls that come while a run is under
 * way share the next one. */
#ifndef MGR_WORKER_H
#define MGR_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <pthread.h>
#include <uv.h>

struct mgr_worker {
    int (*run)(void *arg);                             /* on the thread */
    void (*done)(void *arg, uint64_t ticket, int err); /* on the loop */
    void *arg;
    pthread_t thread;
    uv_async_t async;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t wake;
    uint64_t asked, finished;
    int err; /* of the run `finished` */
    bool stop;
    uint64_t reported; /* loop only */
};

/* All threads' signals are blocked in it. -EAGAIN, -ENOMEM. */
int mgr_worker_start(struct mgr_worker *w, uv_loop_t *loop, int (*run)(void *),
                     void (*done)(void *, uint64_t, int), void *arg);
uint64_t mgr_worker_ask(struct mgr_worker *w);
/* Waits for the run under way, joins, closes the handle (the loop must run once more). done is not called any
 * more. */
void mgr_worker_stop(struct mgr_worker *w);

#endif
