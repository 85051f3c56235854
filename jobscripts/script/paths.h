/* Paths of #FP lines. What is wrong with one, as far as its text says it: NULL, or a constant line that says what to write. Pure. */
#ifndef JOB_PATHS_H
#define JOB_PATHS_H

#include <limits.h>

/* Each $ begins $NAME or ${NAME}. */
const char *job_path_variables_why(const char *text);
/* Of ssd=: from / on, or from a variable on. */
const char *job_path_place_why(const char *text);
/* Of mount=, and what is copied to or from: without . and .., too. */
const char *job_path_whole_why(const char *text);
/* Of mount=: as job_path_whole_why, and no directory that the system or the user's programs could not do without meanwhile. */
const char *job_path_mount_why(const char *text);
/* In the store, relative to the mount. */
const char *job_path_inner_why(const char *text);

/* The directory that has all of what a pattern names: up to the last slash before the first sign of a pattern. */
void job_path_of_pattern(const char *pattern, char out[PATH_MAX]);

#endif
