/* How a batch script calls fp-job. */
#ifndef JOB_CALLS_H
#define JOB_CALLS_H

#include "jobscripts/script/script.h"

/* Warns of calls that do not do what they look like: none at all, start whose words no shell reads, start without stop, run below srun. text: the whole script; s: its
 * directives. Nothing is said of a text that has #FP lines alone, nor of one of --fp, which needs no calls. Pure. */
void job_calls_check(const char *text, const struct job_script *s, struct job_findings *f);

#endif
