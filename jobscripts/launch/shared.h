/*
 * Is a directory the same on all nodes of a job? What is on the SSD of a node that has not the directory that is drained to could not be brought out of the store.
 *
 * A file with a name that nobody knows before is made in it, where fp-job is called, and looked for by the agent of each node. Inodes and what else stat says were
 * rejected: disks of nodes that were installed from one image are alike in them.
 */
#ifndef JOB_SHARED_H
#define JOB_SHARED_H

#include <limits.h>
#include <stdint.h>

#define JOB_SHARED_MS 30000u

/* Makes it. path: "" where there is no room for one, which is for draining to wait for. 0; -ETIMEDOUT: the file system does not answer within 30 s; or what it says. */
int job_shared_mark(const char *dir, const char *job, char path[PATH_MAX]);
/* Removes it, if there is one and its file system answers within limit_ms. */
void job_shared_unmark(const char *path, uint64_t limit_ms);
/* Is it there? 0, or negative: not, or it has not been answered within 10 s. Forks. */
int job_shared_look(const char *path);

#endif
