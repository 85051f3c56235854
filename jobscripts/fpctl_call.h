/* One call of fpctl for a job's store. Out of memory ends fp-job. */
#ifndef JOB_FPCTL_CALL_H
#define JOB_FPCTL_CALL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jobscripts/start.h"

#define JOB_CALL_PATHS_MAX 256u /* that one call of fpctl takes */
#define JOB_CALL_WORDS_MAX (JOB_CALL_PATHS_MAX + 32u)

struct job_call {
    char *words[JOB_CALL_WORDS_MAX + 1];
    size_t n;
    bool (*over)(void); /* it is killed then; NULL: never before its time */
    char program[PATH_MAX], manager[300], key[PATH_MAX + 16], timeout[40], stall[40];
};

/* fpctl and these words (ended by NULL), of the store of r. */
void job_call_begin(struct job_call *c, const struct job_run_of *r, const char *const *words);
/* One more; copied. */
void job_call_add(struct job_call *c, const char *text);
/* As many of the paths as one call takes, each from its byte `skip` on. How many. */
size_t job_call_add_some(struct job_call *c, char *const *paths, size_t n, size_t skip);
void job_call_add_stall(struct job_call *c, uint64_t ms);
void job_call_add_timeout(struct job_call *c, uint64_t ms);
/* Exit code of fpctl, or negative (fp_command_shown_until). Frees its words. */
int job_call_run(struct job_call *c, uint64_t limit_ms);
/* Frees its words, where it is not run. */
void job_call_forget(struct job_call *c);

#endif
