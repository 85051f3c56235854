/*
 * Memory for the time that a chunk is packed or decoded: aligned for O_DIRECT, and kept for the next one.
 */
#ifndef CL_DATA_SCRATCH_H
#define CL_DATA_SCRATCH_H

#include <pthread.h>
#include <stddef.h>

#define CL_SCRATCH_CLASSES 2u
#define CL_SCRATCH_KEPT_MAX 16u

struct cl_scratch {
    pthread_mutex_t lock;
    struct {
        void *kept[CL_SCRATCH_KEPT_MAX];       /* lock: that used last is the last */
        unsigned nkept, least;                 /* lock: now, and the fewest since the last tick: those nobody wanted */
    } class[CL_SCRATCH_CLASSES];
};

void cl_scratch_init(struct cl_scratch *s);
void cl_scratch_fini(struct cl_scratch *s);            /* nothing may be out */
/* At least bytes of memory, aligned to 4096. NULL: none, or more than a stored chunk. Content is undefined. Any thread. */
void *cl_scratch_get(struct cl_scratch *s, size_t bytes);
/* NULL is fine; bytes as in _get. */
void cl_scratch_put(struct cl_scratch *s, void *p, size_t bytes);
/* Twice a second: one of those that were not needed since goes back to the system. */
void cl_scratch_tick(struct cl_scratch *s);

#endif
