/* Does a batch script name a directory as text, where a variable would say where it is? Pure but for memory. */
#ifndef JOB_NAMING_H
#define JOB_NAMING_H

#include <stdbool.h>

#include "jobscripts/script/findings.h"

/*
 * The first place at which the script names dir, or what is below it, outside of comments and #FP lines. Where it stands as what is taken if FP_MOUNT is not set
 * (${FP_MOUNT:-/AggregateSSDstore}) it is none. dir: job_path_plain; one with variables is found as it is written there. False: nowhere. Out of memory aborts:
 * called at the start of a command alone.
 */
bool job_naming_find(const char *text, const char *dir, struct job_place *at);

/* Of each byte, whether a shell sees it: a line that begins with # and is none of a here-document, nor in quotes, it passes over. The caller's. */
bool *job_naming_text(const char *text);

/*
 * The first place at which the shell of the script puts in $FP_MOUNT in a command of fp-job run, which sets it, and too late. False: there is none, or the script sets it
 * itself. Allocates as job_naming_find.
 */
bool job_naming_early(const char *text, struct job_place *at);
#define JOB_NAMING_EARLY "the shell puts in $FP_MOUNT before fp-job run has set it: write -- sh -c '... \"$FP_MOUNT\" ...', in single quotes, or use fp-job start"

/* The same as job_naming_find of one word of a command, which a shell may have read already. */
bool job_naming_word(const char *word, const char *dir);

#endif
