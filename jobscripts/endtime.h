/* The end of a job's time in Slurm, of which a part is kept (reserve=): who of the application is told of it, and when. One thread; blocks for some seconds when Slurm does not answer. */
#ifndef JOB_ENDTIME_H
#define JOB_ENDTIME_H

#include <stdbool.h>
#include <stdint.h>

#include "jobscripts/launch/slurm.h"

struct job_endtime {
    const char *job, *step;  /* step: of the agents, which is not told */
    char callers[JOB_SLURM_STEP_MAX]; /* the step that fp-job itself was called in: who brings the data out is not told either; "": none */
    bool in_slurm;
    uint64_t want_ms;        /* reserve= */
    /* The application's processes that are no steps: those that are an srun, or those that are not. */
    void (*signal)(int sig, bool sruns, void *arg);
    void *arg;
    uint64_t reserve_ms;     /* what is kept; 0: not known yet */
    uint64_t end_ms, tell_ms, kill_ms, look_ms; /* what comes when; UINT64_MAX: never */
};

/* Sets the times: nothing is to be done yet. The caller has set the rest. */
void job_endtime_init(struct job_endtime *t);

/* Asks for the job's time, from now on in time again. */
void job_endtime_look(struct job_endtime *t, uint64_t now_ms);

/* What is due. */
void job_endtime_tick(struct job_endtime *t, uint64_t now_ms);

/* When something is due next; UINT64_MAX: never. */
uint64_t job_endtime_next(const struct job_endtime *t);

#endif
