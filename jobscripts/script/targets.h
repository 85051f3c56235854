/* The directories of other file systems that a job's store copies to and from: one can't lie in another. */
#ifndef JOB_TARGETS_H
#define JOB_TARGETS_H

#include "jobscripts/script/check.h"

/* What the store would refuse when it is told the second one, which of stage-out is when the application has ended. Looks whether the user may write to what is staged in. */
void job_targets_check(const struct job_declared *d, const struct job_site *site, struct job_findings *f);

#endif
