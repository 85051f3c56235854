/*
 * Admission of readers: how many pool pages all reads under way may hold at a time. First come, first served.
 */
#ifndef CL_DATA_ADMIT_H
#define CL_DATA_ADMIT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct cl_admit_waiter;

struct cl_admit {
    pthread_mutex_t lock;
    size_t cap, used;                      /* lock */
    struct cl_admit_waiter *head, **tail;  /* lock: oldest first */
};

void cl_admit_init(struct cl_admit *a, size_t pages);
void cl_admit_fini(struct cl_admit *a);
/* Wait until n pages (at most all) are granted; -ETIMEDOUT at deadline_ms. Who holds some must not ask for more: give them back first. */
int cl_admit_get(struct cl_admit *a, size_t n, uint64_t deadline_ms);
void cl_admit_put(struct cl_admit *a, size_t n);

#endif
