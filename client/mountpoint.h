/*
 * The directory that the store is mounted on: what may be wrong with it, and taking a mount away.
 *
 * Main thread, before anything else runs or (open, close) around mounting; cl_mountpoint_unmount: any thread.
 */
#ifndef CL_MOUNTPOINT_H
#define CL_MOUNTPOINT_H

#include <stdbool.h>

#include "client/options.h"

/*
 * Can we mount there? A mount that a crashed fp-mount left stays until cl_mountpoint_open. 0, or a negative errno after one line in
 * the log that says what to do. Blocks for 3 s at most. On success opt->mountpoint is the real path
 * (malloced, kept).
 */
int cl_mountpoint_check(struct cl_options *opt);

/*
 * Right before mounting: takes away what a crashed fp-mount left, and lets us write to a directory of our own without any rights, which *below is then (else -1)
 * for cl_mountpoint_close, called right after mounting, whether that was possible or not. Returns and blocks as cl_mountpoint_check.
 */
int cl_mountpoint_open(const struct cl_options *opt, int *below);
void cl_mountpoint_close(int below);

/* Unmount; lazy: also while files are open. 0, -EBUSY, -EINVAL (nothing is mounted there), or another errno.
 * Waits for fusermount3 when not root. */
int cl_mountpoint_unmount(const char *path, bool lazy);

#endif
