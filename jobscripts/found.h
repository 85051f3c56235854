/* Files that a pattern names, looked for within a limit: a file system that hangs holds nobody. */
#ifndef JOB_FOUND_H
#define JOB_FOUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct job_found { /* {0} at first */
    char **paths;
    size_t n;
};

/* Adds those that the pattern names, as glob(3) has it with these flags. 0; -ENOENT: none; -ETIMEDOUT: its file system has not answered within limit_ms; -EIO: it can't be told
 * whether those that were added are all, as something can't be read, and that is logged; or another negative errno. */
int job_found_add(struct job_found *f, const char *pattern, int flags, uint64_t limit_ms);
/*
 * The same for a pattern below the mountpoint of a store. -ENOENT: there are none, and it is the store that says so. A mount that has ended is started again by its
 * node's agent: that is waited for within limit_ms, but not if *away. -ENOTCONN: it was not, and *away is set; else it is false afterwards.
 */
int job_found_in_store(struct job_found *f, const char *mountpoint, const char *pattern, int flags, uint64_t limit_ms, bool *away);
/* Of one path, without patterns: 0; -ENOENT, as above: it is not there; or another negative errno. */
int job_found_is_there(const char *mountpoint, const char *path, uint64_t limit_ms, bool *away);
void job_found_fini(struct job_found *f);

#endif
