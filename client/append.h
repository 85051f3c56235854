/*
 * O_APPEND of several mounts: whole writes one after the other, none lost.
 *
 * Whoever appends has the file's right to append (MSG_LOCK, kind append), which one mount has at a time and keeps until another one wants it.
 * So a mount that appends alone asks once. Nothing of this with --locks local, nor through the page cache (--direct-io off).
 */
#ifndef CL_APPEND_H
#define CL_APPEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cl_handle;
struct cl_inode;
struct cl_mount;

/* write(2) of a handle with O_APPEND: bytes, or negative errno: -EINTR when interrupted(arg). A FUSE thread. */
ssize_t cl_append_write(struct cl_mount *m, struct cl_handle *h, const char *buf, size_t len, bool kill_suidgid,
                        bool (*interrupted)(void *arg), void *arg);
/* The right to append for something else that moves the end: waits for it as a write does, at most --io-timeout. 0, and then cl_append_end; or -EINTR, -EIO, -ENOMEM.
 * Not with --locks local. A FUSE thread. */
int cl_append_begin(struct cl_mount *m, struct cl_inode *inode, bool (*interrupted)(void *arg), void *arg);
void cl_append_end(struct cl_mount *m, struct cl_inode *inode);
/* Another mount wants to append. Core loop. */
void cl_append_recalled(struct cl_mount *m, uint64_t ino);
/* inode->lock held: this mount has the right to append, as far as it knows; and the version of the file that this goes with. */
bool cl_append_has_right(const struct cl_inode *inode);
uint64_t cl_append_base(const struct cl_inode *inode);
/* The manager has given it to others without our word (cl_locks_lost). What was appended and not published is published only if the file has not changed. Core loop. */
void cl_append_lost(struct cl_mount *m, uint64_t ino);
/* A handle has ended, and what was written with it is published. Any thread; does not wait. */
void cl_append_closed(struct cl_mount *m, struct cl_inode *inode);
/* The inode leaves the table. */
void cl_append_free(struct cl_inode *inode);

#endif
