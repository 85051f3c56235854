/* How much of a job's time a step at its end may have. No I/O, no clock. */
#ifndef JOB_STEPTIME_H
#define JOB_STEPTIME_H

#include <stdbool.h>
#include <stdint.h>

struct job_steptime {
    uint64_t work_ms;  /* for the step, which then says what is not done */
    uint64_t slack_ms; /* if it has not ended by then: so much later it is killed */
    bool by_job;       /* it is the job's time that ends it */
};

/* job_ms: what the job has left, UINT64_MAX: no limit. ours_ms: what we were given (--timeout). */
struct job_steptime job_steptime(uint64_t job_ms, uint64_t ours_ms);

#endif
