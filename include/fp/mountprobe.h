/* Does a mount answer? Without ever hanging on one that does not. */
#ifndef FP_MOUNTPROBE_H
#define FP_MOUNTPROBE_H

/* statfs(2) of path: 0, its negative errno (-ENOTCONN: a FUSE mount whose program is gone), or -ETIMEDOUT when there is no
 * answer within limit_ms. Forks: the child makes no other call. */
int fp_mount_probe(const char *path, int limit_ms);

#endif
