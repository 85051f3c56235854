/*
 * FUSE operations: one file for each, or for each tight group.
 *
 * FUSE threads call cl_op_*; libfuse says what the arguments are. Metadata operations pack a request, hand it
 * to the core loop and return; the callback replies to the kernel from there. Data operations call the data
 * path and may block. After fuse_reply_* nothing of the request may be touched, and no lock is held across
 * it.
 */
#ifndef CL_OPS_H
#define CL_OPS_H

#define FUSE_USE_VERSION 317

#include <errno.h>
#include <fuse_lowlevel.h>

#include "client/client.h"
#include "client/core.h"
#include "client/data.h"
#include "client/dircache.h"
#include "client/inode.h"
#include "fp.pb-c.h"
#include "fp/err.h"

#define CL_NAME_MAX_BYTES  255u

/*
 * How long the kernel may believe names and attributes.
 *
 * While this is the only mount of the store, nobody else can change a name or a directory: CL_ALONE_TIMEOUT_S
 * for names (also for names that do not exist) and attributes of directories. A second mount waits, at its
 * start, until that has expired (MSG_ALONE). Else names not at all, so that those of other mounts are seen at
 * once, and attributes for one operation (the kernel rounds up to a clock tick), which saves the GETATTR
 * after each LOOKUP of a stat(2). Attributes of strict files for no time at all.
 */
#define CL_ALONE_TIMEOUT_S 0.5
#define CL_ATTR_TIMEOUT_S  0.001

#define CL_TOUCHES_ALL     UINT64_MAX

/*
 * A stand-in: a node id that says "there is something of this name", to a kernel that would do by itself what only the manager can decide if it were told what.
 * The attributes are right, names are changed as ever (those requests have the name, not the node id), and any request for the node itself is answered ESTALE,
 * once: the kernel walks the path again and is told the real one. A stand-in is given, while there are other mounts,
 * - to a look-up of a second name of the inode that the same thread has just found under another: rename(2) of one to the other would do nothing
 *   without asking, though the inode may have been moved from one to the other between the two look-ups;
 * - to mkdir: another mount may have moved the new directory before the kernel has made its entry, and a thread of this node may have found it there. The kernel
 *   has one entry for a directory at most, fails to move it if somebody else renames, and would make another directory.
 */
#define CL_STAND_IN        (UINT64_C(1) << 63)

struct dir_handle; /* readdir.c */

/* An operation that waits for the manager. */
struct cl_op {
    fuse_req_t req;
    struct cl_mount *m;
    uint64_t touched; /* inode whose attributes this changes, for dircache.h; CL_TOUCHES_ALL; 0: none */
    uint64_t node;    /* inode that the kernel has found by its name, and asks for by its number; 0: asks by name */
    bool stand_in;    /* the entry of the reply is one */
    union {
        struct { /* lookup */
            uint64_t parent;
            char name[CL_NAME_MAX_BYTES + 1];
        } look;
        struct {            /* mknod, mkdir, symlink */
            uint32_t alone; /* cl_core_alone when it was sent */
        } make;
        struct { /* open, create, tmpfile */
            struct fuse_file_info fi;
            bool with_entry; /* reply to create */
            uint32_t came_ms; /* when it came (fp_now_ms) */
        } open;
        struct { /* readdir */
            struct dir_handle *h;
            uint64_t ino;
            off_t off;
            size_t size;
            bool plus;
        } dir;
        struct { /* getxattr, listxattr */
            size_t size;
        } xattr;
        struct { /* setlk, flock: unlocking */
            uint64_t ino, owner;
            Fp__LockKind kind;
        } lock;
        struct { /* getattr */
            uint64_t stamp; /* names.h */
        } attr;
    };
};

/*
 * Replies go out by these, so that aux-apps that asked for it learn what the application gets (watch.c). One branch, never taken
 * on a mount without. result: negative errno, 0, or bytes read or written; ino: of the file that the reply names.
 */
extern bool cl_ops_watched;    /* constant after cl_ops_watch */
void cl_op_replying(fuse_req_t req, int64_t result, uint64_t ino);
static inline void cl_replying(fuse_req_t req, int64_t result, uint64_t ino)
{
    if (__builtin_expect(cl_ops_watched, 0))
        cl_op_replying(req, result, ino);
}
static inline int cl_reply_err(fuse_req_t req, int err)
{
    cl_replying(req, -err, 0);
    return fuse_reply_err(req, err);
}
static inline int cl_reply_entry(fuse_req_t req, const struct fuse_entry_param *e)
{
    cl_replying(req, e->ino ? 0 : -ENOENT, e->ino & ~CL_STAND_IN);
    return fuse_reply_entry(req, e);
}
static inline int cl_reply_create(fuse_req_t req, const struct fuse_entry_param *e,
                                  const struct fuse_file_info *fi)
{
    cl_replying(req, 0, e->ino);
    return fuse_reply_create(req, e, fi);
}
static inline int cl_reply_attr(fuse_req_t req, const struct stat *st, double timeout_s)
{
    cl_replying(req, 0, st->st_ino);
    return fuse_reply_attr(req, st, timeout_s);
}
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
static inline int cl_reply_statx(fuse_req_t req, int flags, struct statx *sx, double timeout_s)
{
    cl_replying(req, 0, sx->stx_ino);
    return fuse_reply_statx(req, flags, sx, timeout_s);
}
#endif
static inline int cl_reply_open(fuse_req_t req, const struct fuse_file_info *fi)
{
    cl_replying(req, 0, 0);
    return fuse_reply_open(req, fi);
}
static inline int cl_reply_write(fuse_req_t req, size_t n)
{
    cl_replying(req, (int64_t)n, 0);
    return fuse_reply_write(req, n);
}
static inline int cl_reply_buf(fuse_req_t req, const char *buf, size_t n)
{
    cl_replying(req, (int64_t)n, 0);
    return fuse_reply_buf(req, buf, n);
}
static inline int cl_reply_iov(fuse_req_t req, const struct iovec *iov, int n, size_t bytes)
{
    cl_replying(req, (int64_t)bytes, 0);
    return fuse_reply_iov(req, iov, n);
}
static inline int cl_reply_readlink(fuse_req_t req, const char *target)
{
    cl_replying(req, 0, 0);
    return fuse_reply_readlink(req, target);
}
static inline int cl_reply_statfs(fuse_req_t req, const struct statvfs *st)
{
    cl_replying(req, 0, 0);
    return fuse_reply_statfs(req, st);
}
static inline int cl_reply_xattr(fuse_req_t req, size_t n)
{
    cl_replying(req, 0, 0);
    return fuse_reply_xattr(req, n);
}
static inline int cl_reply_lseek(fuse_req_t req, off_t off)
{
    cl_replying(req, 0, 0);
    return fuse_reply_lseek(req, off);
}

/* reply.c */
struct cl_op *cl_op_new(fuse_req_t req); /* NULL: out of memory, and the request has been answered */
void cl_op_free(struct cl_op *op);
/* Send; cb gets op. */
void cl_op_call(struct cl_op *op, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb);
bool cl_op_interrupted(void *op);   /* by a signal */
bool cl_req_interrupted(void *req); /* the same of a fuse_req_t */
void cl_op_reply_err(struct cl_op *op, int status); /* and frees op */
void cl_op_done_status(void *op, int status,
                       const ProtobufCMessage *reply); /* callbacks: reply with the status alone */
void cl_op_done_entry(void *op, int status, const ProtobufCMessage *reply); /* AttrReply as an entry */
void cl_op_done_attr(void *op, int status, const ProtobufCMessage *reply);  /* AttrReply as attributes */
/* Of a call on an open file: the manager keeps what is open, so one that it does not know was lost with it, or after the session had expired. */
static inline int cl_open_status(int rc)
{
    return rc == -ENOENT ? -EIO : rc;
}
void cl_reply_status(fuse_req_t req, int status);                           /* 0 or a negative code */
/* Of a call on an inode: what the kernel has found by a name a moment ago and is gone since is ESTALE, so that it looks again; of what is open here, see
 * cl_open_status. */
void cl_reply_node_status(fuse_req_t req, uint64_t ino, int status);
/* True: the request is for a stand-in, and has been answered. */
bool cl_is_stand_in(fuse_req_t req, fuse_ino_t ino);
/* The thread that asks, for walk.h. */
uint32_t cl_tid(fuse_req_t req);
/* strict: of the inode. */
double cl_attr_timeout(struct cl_mount *m, const struct stat *st, bool strict);
/* Something was changed early in this directory: the kernel forgets its attributes. Before the answer, when no program has
 * gone on yet. */
void cl_hide_attr(uint64_t dir);
void cl_entry_fill(struct cl_mount *m, const Fp__Attr *a, struct fuse_entry_param *e);
/* False: the name is too long, and the request has been answered. */
bool cl_name_ok(fuse_req_t req, const char *name);
ProtobufCBinaryData cl_bytes(const char *text);
static inline struct cl_mount *cl_mount_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}
static inline struct cl_handle *cl_handle_of(const struct fuse_file_info *fi)
{
    return (struct cl_handle *)(uintptr_t)fi->fh;
}

void cl_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void cl_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void cl_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void cl_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void cl_op_statx(fuse_req_t req, fuse_ino_t ino, int flags, int mask, struct fuse_file_info *fi);
void cl_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi);
void cl_op_readlink(fuse_req_t req, fuse_ino_t ino);
void cl_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void cl_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void cl_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void cl_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void cl_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void cl_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                  const char *new_name, unsigned flags);
void cl_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void cl_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void cl_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                  struct fuse_file_info *fi);
void cl_op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi);
void cl_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* The mount has ended: if the file system is gone from the kernel (superblock.h has wait_ms), releases what that has not. After cl_data_late_stop. Main thread. */
void cl_op_release_left(struct cl_mount *m, uint32_t wait_ms);
void cl_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void cl_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
                 struct fuse_file_info *fi);
void cl_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void cl_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void cl_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void cl_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void cl_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void cl_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void cl_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void cl_op_statfs(fuse_req_t req, fuse_ino_t ino);
void cl_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
                    int flags);
void cl_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void cl_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void cl_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);
void cl_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
                     struct fuse_file_info *fi);
void cl_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void cl_op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in, struct fuse_file_info *fi_in,
                           fuse_ino_t ino_out, off_t off_out, struct fuse_file_info *fi_out, size_t len,
                           int flags);
void cl_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
                 unsigned flags, const void *in_buf, size_t in_bufsz, size_t out_bufsz);

void cl_op_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock);
void cl_op_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep);
void cl_op_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int how);

/* All of the above, for fuse_session_new; .init is left to fuse_session.c. */
void cl_ops_fill(struct fuse_lowlevel_ops *ops);
/* Put those in the place of others that aux-apps want to be told of. After cl_aux_start, before the mount. */
void cl_ops_watch(struct cl_mount *m, struct fuse_lowlevel_ops *ops);

#endif
