/* The file that a conversion makes: temporary until it is whole. */
#ifndef CV_RESULT_H
#define CV_RESULT_H

#include <stdbool.h>

#include "convert/fail.h"

#define CV_TEMPORARY ".fp-convert-" /* and letters: no digits, of which a store might read a time step. First those of the name that it is to get, then others */
#define CV_LETTERS   8u
#define CV_CONVERTED "user.fp.converted"
#define CV_OF        "user.fp.convert_of"    /* "STAMP SOURCE": what a result was made of; what is in the stamp, and a source, who asked for it says (watch/results.h). No blank is in the stamp */
#define CV_OF_MAX    (PATH_MAX + 256)        /* bytes of its value, and a NUL */

struct cv_result {
    char path[PATH_MAX], temporary[PATH_MAX];
    int lock_fd; /* holds a lock on the temporary file, so that nobody takes it for left over; 0: none */
};

/*
 * What the temporary names of a result of this name begin with behind CV_TEMPORARY, whatever its ending: the XDMF file beside it has the same. So what is left of one can be told from what others are
 * just making, at whatever moment it was killed.
 */
void cv_result_letters(const char *base, char out[CV_LETTERS + 1]);
/* A temporary name beside path. -ENAMETOOLONG, -ENOENT: its directory is not there. Nothing is made. */
int cv_result_begin(struct cv_result *r, const char *path, struct cv_fail *why);
/* Where it is made. */
void cv_result_directory(const struct cv_result *r, char dir[PATH_MAX]);
/* -EEXIST if the name is taken: said before the work, not behind it. */
int cv_result_free(const char *path, struct cv_fail *why);
/* -ENOTEMPTY if something is there that replace does not mean: a device, a link, a directory in the place of a file (directory: the result is one). Said before the work. */
int cv_result_can_replace(const char *path, bool directory, struct cv_fail *why);
/* -EEXIST if the result's name is that of a file that it is made of, by whatever name (NULL: none). */
int cv_result_spares(const char *path, const char *read, struct cv_fail *why);
/* The temporary file is there: it is locked. */
void cv_result_made(struct cv_result *r);
/* The source in a value of CV_OF; NULL: there is none. */
const char *cv_of_source(const char *of);
/* Is what is there of the same source as this value of CV_OF? 0; -EEXIST: of another one, or of none; -ENOENT: nothing is there; another errno: it can't be told. why: NULL, nobody asks. */
int cv_result_is_of(const char *path, const char *of, struct cv_fail *why);
/* Between a look at what has a name (cv_result_is_of) and a change of it nobody else changes it who has asked for this, on any mount: a lock on a file in its directory, which goes with it. A descriptor; wait false: -EWOULDBLOCK if somebody has it. */
int cv_result_lock(const char *path, bool wait);
void cv_result_unlock(const char *path, int fd);
/* What this node has of the temporary file is on the disk: each rank calls it for what it wrote, for no other's call can do that. */
int cv_result_sync(const struct cv_result *r, struct cv_fail *why);
/* Synced, its attributes set (converted, of NULL: none; a file system without attributes is fine), named, the directory synced. replace false: -EEXIST if the name is taken, and it stays temporary; with of it also does if it is taken by what is of another source. */
int cv_result_name(const struct cv_result *r, const char *converted, const char *of, bool replace, struct cv_fail *why);
/* Whatever is under the temporary name is removed: a file, or a directory with all in it. */
void cv_result_remove(const struct cv_result *r);
/* The lock goes. */
void cv_result_fini(struct cv_result *r);

#endif
