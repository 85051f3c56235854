/* What is done before and after the application: what the two files share. */
#ifndef JOB_STEPS_INT_H
#define JOB_STEPS_INT_H

#include "jobscripts/fpctl_call.h"

#define POLICY_MS   60000u
#define TIMED_OUT   3 /* exit codes of fpctl */
#define STEP_LEAST  2000u
#define ANSWER_MS   30000u /* of a file system, for one directory */

/* The directory of a target, with variables: made, if the one above it is there. 0, or negative and logged. Within limit_ms. */
int job_steps_make_target(const char *text, uint64_t limit_ms);
/* A path of the script with its variables. 0, or negative and logged. */
int job_steps_expand(const char *directive, const char *text, char path[PATH_MAX]);

#endif
