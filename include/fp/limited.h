/* Calls into file systems that may hang: a parallel one whose server is away, a FUSE mount whose program is stopped. */
#ifndef FP_LIMITED_H
#define FP_LIMITED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * What work(arg) returns (0 or negative errno), called in a process of its own: of what it does, only what other processes see remains. -ETIMEDOUT: it has not
 * returned within limit_ms, and is killed; -EIO: it crashed; or negative errno: no process can be made. Forks: from a program that has one thread.
 */
int fp_limited(int (*work)(const void *arg), const void *arg, uint64_t limit_ms);

/* Waits for a child that ends, or was killed, within some seconds: true and its status. One that the kernel holds in a call (state D) does not end by SIGKILL
 * either: false, and it is left to itself; it is init's when we end. */
bool fp_reap(pid_t pid, int *status);

#endif
