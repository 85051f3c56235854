/* #FP auxapp convert, before the job is submitted: what its plugin, which is only loaded and not started, can't tell. */
#ifndef JOB_CONVERTCHECK_H
#define JOB_CONVERTCHECK_H

#include "jobscripts/script/check.h"

/* Blocks for the schema's file system, for JOB_ANSWER_MS at most. */
void job_check_convert(const struct job_declared *d, const struct job_site *site, struct job_findings *f);

#endif
