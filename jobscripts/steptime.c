/*
 * What a step may have (see steptime.h). Called by steps.c.
 *
 * Of the job's time some is kept for ending everything; with less time than that both get their share of what there is: what goes beyond the job's end is killed by the
 * batch system, and says nothing. A step has two seconds in any case, so that what is done already is seen to be so: a job that is told to end at its limit has those
 * until Slurm kills it (KillWait).
 */
#include "jobscripts/steptime.h"

#define STOP_NEEDS 15000u /* of the job's time, for ending everything */
#define STEP_LEAST 2000u
#define SLACK_MS   60000u

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

struct job_steptime job_steptime(uint64_t job_ms, uint64_t ours_ms)
{
    uint64_t needs = least(STOP_NEEDS, job_ms / 2), may = job_ms - needs;
    struct job_steptime t = {.by_job = may < ours_ms};

    t.work_ms = most(least(may, ours_ms), STEP_LEAST);
    t.slack_ms = most(job_ms > t.work_ms + needs / 2 ? least(SLACK_MS, job_ms - t.work_ms - needs / 2) : 0, STEP_LEAST);
    return t;
}
