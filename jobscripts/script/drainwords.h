/* The words of #FP auxapp drain as a policy (fp/drainopt.h): fp-job check reads the text that fp-job start gives to fpctl drain set. */
#ifndef JOB_DRAINWORDS_H
#define JOB_DRAINWORDS_H

#include <limits.h>

#include "fp/drainopt.h"
#include "jobscripts/script/script.h"

/*
 * Makes it, each word by itself through expand: job_expand, or job_drain_stand_in. 0; -ENAMETOOLONG; -EINVAL: a value has a double quote in it; others of
 * expand, whose output is in out then.
 */
int job_drain_words(const struct job_line *l, int (*expand)(char out[PATH_MAX], const char *word), char out[FP_DRAIN_TEXT_MAX]);

/* Where variables have no value yet: something that may stand there is put in their place, in words that are paths or patterns. */
int job_drain_stand_in(char out[PATH_MAX], const char *word);

#endif
