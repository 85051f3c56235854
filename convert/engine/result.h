/* The file that a conversion makes: temporary until it is whole. */
#ifndef CV_RESULT_H
#define CV_RESULT_H

#include <stdbool.h>

#include "convert/fail.h"

#define CV_TEMPORARY ".fp-convert-" /* and letters: no digits, of which a store might read a time step */
#define CV_CONVERTED "user.fp.converted"
#define CV_OF        "user.fp.convert_of"
#define CV_NAME      "user.fp.convert_name" /* of a temporary file: which name it is to get, so that who may write that one knows what is left of others */

struct cv_result {
    char path[PATH_MAX], temporary[PATH_MAX];
    int lock_fd; /* holds a lock on the temporary file, so that nobody takes it for left over; 0: none */
};

/* A temporary name beside path. -ENAMETOOLONG, -ENOENT: its directory is not there. Nothing is made. */
int cv_result_begin(struct cv_result *r, const char *path, struct cv_fail *why);
/* Where it is made. */
void cv_result_directory(const struct cv_result *r, char dir[PATH_MAX]);
/* -EEXIST if the name is taken: said before the work, not behind it. */
int cv_result_free(const char *path, struct cv_fail *why);
/* -EEXIST if the result's name is that of a file that it is made of, by whatever name (NULL: none). */
int cv_result_spares(const char *path, const char *read, struct cv_fail *why);
/* The temporary file is there: it is locked, and its attribute CV_NAME is set, where the file system has attributes. */
void cv_result_made(struct cv_result *r);
/* What this node has of the temporary file is on the disk: each rank calls it for what it wrote, for no other's call can do that. */
int cv_result_sync(const struct cv_result *r, struct cv_fail *why);
/* Synced, its attributes set (converted, of NULL: none; a file system without attributes is fine), named, the directory synced. replace false: -EEXIST if the name is taken, and it stays temporary. */
int cv_result_name(const struct cv_result *r, const char *converted, const char *of, bool replace, struct cv_fail *why);
/* Whatever is under the temporary name is removed: a file, or a directory with all in it. */
void cv_result_remove(const struct cv_result *r);
/* The lock goes. */
void cv_result_fini(struct cv_result *r);

#endif
