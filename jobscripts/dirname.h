/* Where the directory of a job is on a node. Links nothing of ours: the SPANK plugin has it, too. */
#ifndef JOB_DIRNAME_H
#define JOB_DIRNAME_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#define JOB_DIR_OTHER "+XXXXXX" /* behind its name, for mkdtemp, where somebody else has that: no number of a job has a + in it */

/* A directory of this user, and nobody else's to read. */
bool job_dirname_is_ours(const struct stat *st, uid_t uid);

/*
 * /tmp/fpstore-UID-JOB; or, where that is none of the user's, the one with JOB_DIR_OTHER behind it that is. Where there is none yet, the first: whoever makes it
 * sees that it is somebody else's.
 */
void job_dirname_find(char out[PATH_MAX], uid_t uid, const char *job);

#endif
