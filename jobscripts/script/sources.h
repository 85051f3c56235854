/* What #FP stage-in brings into the store: two of it can't have the same name there. */
#ifndef JOB_SOURCES_H
#define JOB_SOURCES_H

#include "jobscripts/script/check.h"

/* Of what the script says as text: what patterns and variables stand for is known at the start. */
void job_sources_check(const struct job_declared *d, struct job_findings *f);

/* At the start, of what they stand for, before anything is copied. 0; -EEXIST, and both are named in the log. What can't be looked at is passed by: copying tells of it. */
int job_sources_look(const struct job_declared *d);

#endif
