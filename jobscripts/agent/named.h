/* The node's part of a store that outlives its jobs (#FP store persistent=NAME, and on-failure=keep until its data is out): where it lies, and which nodes it belongs to. Blocks on the disk. */
#ifndef JOB_NAMED_H
#define JOB_NAMED_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jobscripts/script/declared.h"
#include "jobscripts/launch/plan.h"

#define JOB_NAME_BYTES 64u

/* Of persistent=; with on-failure=keep that of the job, which another run of it does not have (the environment is looked at): job-77, job-77-run2. */
void job_named_name(const struct job_store *s, const char *job, char out[JOB_NAME_BYTES]);

/* Below ssd, named after the store and its owner. 0; -ENAMETOOLONG. */
int job_named_path(char out[PATH_MAX], const char *ssd, const char *name);

/*
 * Makes it, or takes what is there, for as long as this process lives. *known: a job had it before; *size_bytes is what it contributed then. Negative, and why
 * has a line: another job uses it; this job lacks a node of the store, or begins with another one.
 */
int job_named_take(const char *dir, const char *name, const struct job_plan *plan, bool *known, uint64_t *size_bytes, char *why, size_t size);

/* This job has it from now on, also after a power failure: its nodes are the store's. 0, or negative errno. */
int job_named_keep(const char *dir, const struct job_plan *plan, uint64_t size_bytes);

/* It has not any more: what is in it may be removed. 0, or negative errno. */
int job_named_discard(const char *dir);

/* Is the directory one of job_named_path? */
bool job_named_is(const char *dir);

/* Removes what a job has left that began it and was killed before anything was in it: not if another one has it by now, or has had (job_named_keep). 0, also if
 * there is none; -EBUSY: another one has it; -EEXIST: something is in it; others of looking at it. */
int job_named_remove(const char *dir);

/* Does a job have it now? */
bool job_named_in_use(const char *dir);
/* How many nodes it lies on (0: nothing is in it yet, or that can't be read), the first of them, and when a job has last begun with it, in seconds since 1970. */
void job_named_tell(const char *dir, uint32_t *nodes, char *first, size_t size, int64_t *when_s);
/* Removes it with all that is in it. 0; -ENOENT: there is none; -EBUSY: a job has it; -EPERM: it is not ours; others of the first thing that stays. */
int job_named_drop(const char *dir);

#endif
