/* Stores of this user that lie on this node and no job uses: persistent=NAME, and what on-failure=keep has left (named.h). Blocks on the disk. */
#ifndef JOB_KEPT_H
#define JOB_KEPT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jobscripts/agent/named.h"
#include "jobscripts/agent/tree.h"

#define JOB_KEPT_TOLD 240u /* bytes of what a node tells */
#define JOB_KEPT_MAX 64u /* of one directory: what comes after is not told */

struct job_kept {
    char name[JOB_NAME_BYTES]; /* what persistent= calls it */
    uint64_t bytes;            /* on the disk, of what was looked at */
    int64_t when_s;            /* since 1970: when a job has last begun with it */
    uint32_t nodes;            /* that it lies on; 0: nothing is in it yet, or it can't be read */
    char first[256];           /* the one that must be the first of a job */
};

/* Of those below ssd, by name; what a job has now is not among them, nor what is called `but` (NULL: all). How many; out: JOB_KEPT_MAX. */
size_t job_kept_look(const char *ssd, const char *but, struct job_kept *out);

/* "3.1MB, 2d old". */
#define JOB_KEPT_TEXT 80u
char *job_kept_text(const struct job_kept *k, char out[JOB_KEPT_TEXT]);

/* As an agent tells them: NAME:BYTES:WHEN, with commas between; what does not fit is left out. */
void job_kept_write(const struct job_kept *list, size_t n, char *out, size_t size);
/* What a node that is ready tells: that, and for people a line about the node, each may be "". Where the line begins in it; "": there is none. */
void job_kept_with_hint(char *out, size_t size, const char *kept, const char *hint);
const char *job_kept_hint(const char *text);
/* Of what all nodes have told so with their states, a line each in the log: space that the user may have forgotten, or data that he may look for. ssd: as it is written. */
void job_kept_tell(const struct job_states *s, const char *ssd);

#endif
