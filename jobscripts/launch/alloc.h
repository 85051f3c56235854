/* The allocation that we are in: its nodes, whoever has given them, and how processes are started there. */
#ifndef JOB_ALLOC_H
#define JOB_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "jobscripts/job.h"

struct job_launcher;

struct job_alloc {
    char job[65];
    char **nodes;    /* in the order in which ranks are counted: the first one is where the batch script runs, mostly */
    uint32_t nnodes;
    char here[256];  /* this machine's name or address, as the nodes know it; one of IPv6 in brackets */
    bool first;      /* this machine is the first node */
    bool in_slurm;   /* a job of Slurm, which is asked for its script and its time */
    const struct job_launcher *launcher;
    uint32_t fanout; /* agents below one */
};

/*
 * By --hosts, else Slurm's variables, else $PBS_NODEFILE. 0, or negative and logged: there is no allocation; its nodes can't be told; nothing starts processes
 * there. Blocks for some seconds when Slurm's controller does not answer.
 */
int job_alloc_look(const struct job_options *o, struct job_alloc *out);
/* Of a job that was started before, for stop and status: its number alone. */
int job_alloc_job(char out[65]);
/* Is what has this number a job of the same batch system as ours, and another one? As in variables of a job that has submitted ours. */
bool job_alloc_is_other(const char *job);
void job_alloc_fini(struct job_alloc *a);

/*
 * Milliseconds to the job's end; UINT64_MAX: it has none that we could ask for. 0, or negative: it is not known now, and *out is what it was when it was known last, less what has gone by since; UINT64_MAX:
 * never. Of one job in a process. Main thread.
 */
int job_alloc_left_ms(const struct job_alloc *a, uint64_t *out);

#endif
