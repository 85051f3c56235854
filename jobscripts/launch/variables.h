/* Variables of the environment that #FP lines speak of. */
#ifndef JOB_VARIABLES_H
#define JOB_VARIABLES_H

#include <stdint.h>

/* NAME=VALUE of those that are set and stand in #FP lines of a script, and of TMPDIR, which is a default, and the run of a job that was queued again; each once. Out of memory aborts. */
void job_variables_of(const char *script, char ***list, uint32_t *n);

#endif
