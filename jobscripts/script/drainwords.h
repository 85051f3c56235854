/* The words of #FP auxapp drain as a policy (fp/drainopt.h): fp-job check reads the text that fp-job start gives to fpctl drain set. */
#ifndef JOB_DRAINWORDS_H
#define JOB_DRAINWORDS_H

#include <limits.h>

#include "fp/drainopt.h"
#include "jobscripts/script/script.h"

/*
 * The words from the one on as a text, each by itself through expand (job_expand, job_drain_stand_in) and in quotes if it has blanks then. 0; -ENAMETOOLONG; -EINVAL:
 * a value has a double quote in it; -ENOENT of expand: the variable in out is not set.
 */
int job_words(const struct job_line *l, size_t from, int (*expand)(char out[PATH_MAX], const char *word), char *out, size_t size);
/* The text of the policy. */
int job_drain_words(const struct job_line *l, int (*expand)(char out[PATH_MAX], const char *word), char out[FP_DRAIN_TEXT_MAX]);

/* Where variables have no value yet: something that may stand there is put in their place, in words that are paths or patterns. */
int job_drain_stand_in(char out[PATH_MAX], const char *word);

#endif
