/*
 * Store threads: the threads that compute checksums and do disk I/O for fp-mount, pinned to the service cores (--cores).
 * Jobs are small structs embedded in what they work on; the queues are bounded by the pool, which everything queued holds pages of.
 */
#ifndef CL_DATA_JOBS_H
#define CL_DATA_JOBS_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

struct cl_jobs;
struct cl_job {
    struct cl_job *next;
    void (*run)(struct cl_job *job);   /* on a store thread; may block on disk and network, bounded */
};

/* cpus: where the threads run (NULL: anywhere; copied). tick runs on one thread every tick_ms. */
int cl_jobs_new(unsigned threads, const cpu_set_t *cpus, uint32_t tick_ms, void (*tick)(void *arg), void *arg, struct cl_jobs **out);
/* Runs what is queued, then joins. */
void cl_jobs_free(struct cl_jobs *jobs);

/* Any thread; never blocks. urgent: reads that someone waits for, before writes. */
void cl_jobs_post(struct cl_jobs *jobs, struct cl_job *job, bool urgent);
/* The same, after all others, and not while somebody writes: that is held until the burst of writes is over. */
void cl_jobs_post_later(struct cl_jobs *jobs, struct cl_job *job);

/* Somebody writes into the pool, and nobody waits for what is posted for later. fits: there is room for more of it. */
void cl_jobs_burst(struct cl_jobs *jobs, bool fits);
/* Somebody waits for what is posted for later: nothing is held until the next burst, nor in some bursts from there on. */
void cl_jobs_hurry(struct cl_jobs *jobs);

#endif
