/* Files that a pattern names, looked for within a limit: a file system that hangs holds nobody. */
#ifndef JOB_FOUND_H
#define JOB_FOUND_H

#include <stddef.h>
#include <stdint.h>

struct job_found { /* {0} at first */
    char **paths;
    size_t n;
};

/* Adds those that the pattern names, as glob(3) has it with these flags. 0; -ENOENT: none; -ETIMEDOUT: its file system has not answered within limit_ms; or another negative errno. */
int job_found_add(struct job_found *f, const char *pattern, int flags, uint64_t limit_ms);
void job_found_fini(struct job_found *f);

#endif
