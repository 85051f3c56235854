/*
 * The directory that the store is mounted on: what may be wrong with it, and taking a mount away.
 *
 * Main thread before anything else runs, but cl_mountpoint_unmount: any thread.
 */
#ifndef CL_MOUNTPOINT_H
#define CL_MOUNTPOINT_H

#include <stdbool.h>

#include "client/options.h"

/*
 * Can we mount there? Cleans a mount that a crashed fp-mount left. 0, or a negative errno after one line in
 * the log that says what to do. Blocks for 3 s at most. On success opt->mountpoint is the real path
 * (malloced, kept).
 */
int cl_mountpoint_check(struct cl_options *opt);

/* Unmount; lazy: also while files are open. 0, -EBUSY, -EINVAL (nothing is mounted there), or another errno.
 * Waits for fusermount3 when not root. */
int cl_mountpoint_unmount(const char *path, bool lazy);

#endif
