/*
 * What the kernel is told without having asked: to forget attributes, pages and names. See notify.c.
 */
#ifndef CL_NOTIFY_H
#define CL_NOTIFY_H

#include <stdint.h>

struct fuse_session;

/* The kernel has introduced itself, and may be told things from here on; the session is borrowed until stop. First FUSE thread, in FUSE_INIT. */
void cl_notify_start(struct fuse_session *se);
/* Nobody uses the session from here on: waits for those that do. Before it is unmounted and destroyed; also when there was no start. Main thread. */
void cl_notify_stop(void);

/*
 * Attributes of an inode, and its pages from off_bytes on, len_bytes of them (0: all); off_bytes < 0: attributes alone, which never blocks. With pages it waits
 * for programs that are reading or writing these through a mapping. Any thread, without locks that a FUSE thread may want. 0 or negative errno; -ENOTCONN
 * before start and after stop.
 */
int cl_notify_inode(uint64_t ino, int64_t off_bytes, int64_t len_bytes);
/* All names: also those of answers that are still on their way. Any thread, does not block. 0 or negative errno: -ENOSYS before Linux 6.16. */
int cl_notify_names(void);

#endif
