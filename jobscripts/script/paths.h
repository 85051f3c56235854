/* What is wrong with a path of a #FP line, as far as its text says it: NULL, or a constant line that says what to write. Pure. */
#ifndef JOB_PATHS_H
#define JOB_PATHS_H

/* Each $ begins $NAME or ${NAME}. */
const char *job_path_variables_why(const char *text);
/* Of ssd=: from / on, or from a variable on. */
const char *job_path_place_why(const char *text);
/* Of mount=, and what is copied to or from: without . and .., too. */
const char *job_path_whole_why(const char *text);
/* In the store, relative to the mount. */
const char *job_path_inner_why(const char *text);

#endif
