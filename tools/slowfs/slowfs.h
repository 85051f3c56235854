/* fp-slowfs: a directory seen through a device of known speed, that fails when it is told to.
 *
 *     main.c       options, the mount
 *     node.c       what the kernel knows: one O_PATH descriptor for each inode
 *     pass_name.c  names and directories
 *     pass_attr.c  attributes, and the attributes of the root that rule it
 *     pass_io.c    data: the only operations that take time
 *     fail.c       operations that fail */
#ifndef SLOWFS_H
#define SLOWFS_H

#define FUSE_USE_VERSION 317
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fp/limiter.h"

/* Operations that can be told to fail. */
#define SLOW_OPS(X)                                                                                          \
    X(OPEN, open) X(CREATE, create) X(READ, read) X(WRITE, write) X(FSYNC, fsync) X(RENAME, rename)           \
    X(SETATTR, setattr) X(GETATTR, getattr) X(LOOKUP, lookup) X(MKDIR, mkdir) X(UNLINK, unlink) X(STATFS, statfs)

enum slow_op {
#define X(id, name) SLOW_##id,
    SLOW_OPS(X)
#undef X
    SLOW_OP_COUNT
};

struct slow_node {
    struct slow_node *next; /* of its bucket */
    dev_t dev;
    ino_t ino;
    uint64_t lookups; /* of the kernel; slow_fs.lock */
    int fd;           /* O_PATH */
};

#define SLOW_BUCKETS 4096u

struct slow_fs {
    struct slow_node root;
    struct fp_limiter *device;
    atomic_ulong fsyncs;
    atomic_int fails[SLOW_OP_COUNT]; /* errno; 0: works */
    pthread_mutex_t lock;
    struct slow_node *buckets[SLOW_BUCKETS]; /* lock */
    int ready_fd;
    const char *mountpoint;
};

/* --- node.c */

struct slow_fs *slow_of(fuse_req_t req);
struct slow_node *slow_node(struct slow_fs *fs, fuse_ino_t ino);
/* "/proc/self/fd/N": for calls that take no descriptor of O_PATH. */
#define SLOW_PATH_BUF 40
const char *slow_path(const struct slow_node *n, char buf[SLOW_PATH_BUF]);
/* One look-up more of the name in parent. 0 or an errno. */
int slow_find(struct slow_fs *fs, const struct slow_node *parent, const char *name, struct fuse_entry_param *e);
/* One look-up more of a node that is known. 0 or an errno. */
int slow_found(struct slow_fs *fs, struct slow_node *n, struct fuse_entry_param *e);
void slow_forget(struct slow_fs *fs, fuse_ino_t ino, uint64_t lookups);
void slow_nodes_free(struct slow_fs *fs);

/* --- fail.c */

/* "write=EIO,fsync=ENOSPC", "all=ESTALE", or "": nothing fails any more. 0 or an errno; then nothing has changed. */
int slow_fail_set(struct slow_fs *fs, const char *text);
/* In the same words. */
size_t slow_fail_text(struct slow_fs *fs, char *buf, size_t size);
/* 0, or the error that the operation has been told to give. */
static inline int slow_fails(struct slow_fs *fs, enum slow_op op)
{
    return atomic_load_explicit(&fs->fails[op], memory_order_relaxed);
}

/* --- pass_*.c */

void slow_name_ops(struct fuse_lowlevel_ops *ops);
void slow_attr_ops(struct fuse_lowlevel_ops *ops);
void slow_io_ops(struct fuse_lowlevel_ops *ops);

#endif
