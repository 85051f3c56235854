/* Where the command stands among the words of a call of srun. */
#ifndef JOB_SRUNWORDS_H
#define JOB_SRUNWORDS_H

#include <stddef.h>

#define JOB_SRUN_WHY_BYTES 200u

/* help: what srun --help prints. *at: the index of the command in argv, whose first word is srun. -EINVAL and why: it can't be told for certain. */
int job_srun_words(const char *help, char *const argv[], size_t *at, char why[JOB_SRUN_WHY_BYTES]);

/* The words with `wrapper` before the command, in memory to be freed; NULL and logged: it can't be told where that is, or srun does not answer. */
char **job_srun_wrap(char *const argv[], char *wrapper);

#endif
