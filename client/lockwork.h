/*
 * What is left to do for locks once the core loop has heard of it: files to be published before a right is given back, and old pages of the kernel to
 * be dropped before a program is told that it has a lock.
 */
#ifndef CL_LOCKWORK_H
#define CL_LOCKWORK_H

#include <stdbool.h>
#include <stdint.h>

/* Part of what it is about, so that there is always memory for it. Zeroed by the caller; the rest is lockwork.c's. */
struct cl_work {
    struct cl_work *next;
    uint64_t at_ms;
    void (*fn)(struct cl_work *w);
};

struct cl_lockwork;

/* Starts the threads. NULL: it can't. */
struct cl_lockwork *cl_lockwork_new(void);
/* What is left runs at once, then the threads end. */
void cl_lockwork_stop(struct cl_lockwork *q);
void cl_lockwork_free(struct cl_lockwork *q);

/* Any thread. w->fn(w) runs once, later; w is fn's from then on, and may be queued again. False: all has ended, and it will not run.
 *
 * at: not before at_ms (fp_now_ms; 0: now), on one thread for all of them: it must not wait for anything.
 * blocking: as soon as a thread is free for it, of which there are CL_LOCKWORK_THREADS at most. */
#define CL_LOCKWORK_THREADS 16u
bool cl_lockwork_at(struct cl_lockwork *q, uint64_t at_ms, struct cl_work *w, void (*fn)(struct cl_work *w));
bool cl_lockwork_blocking(struct cl_lockwork *q, struct cl_work *w, void (*fn)(struct cl_work *w));

#endif
