/*
 * getattr and statx: the manager's attributes, overlaid with what this node has written and not yet
 * published.
 *
 * statx is asked by kernels since 6.6 when a program wants the time of birth, which struct stat has no field
 * for.
 */
#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "client/early.h"
#include "client/names.h"
#include "client/ops/ops.h"

static bool getattr_known(fuse_req_t req, fuse_ino_t ino)
{
    struct cl_mount *m = cl_mount_of(req);
    struct stat st;
    Fp__Attr a;
    if (!cl_early_begin(m))
        return false;
    bool known = cl_names_attr(ino, &a);
    if (known) {
        cl_attr_stat(m, &a, &st);
        cl_reply_attr(req, &st, cl_attr_timeout(m, &st, a.strict));
    }
    cl_early_end(m);
    return known;
}

static void done_getattr(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    if (status == 0 && ((const Fp__AttrReply *)reply)->attr)
        cl_names_learn(op->attr.stamp, ((const Fp__AttrReply *)reply)->attr);
    cl_op_done_attr(op, status, reply);
}

void cl_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    Fp__InodeReq msg = FP__INODE_REQ__INIT;
    struct stat st;
    (void)fi;
    if (cl_is_stand_in(req, ino) || getattr_known(req, ino))
        return;
    if (cl_dircache_get(ino, &st)) {
        cl_reply_attr(req, &st, cl_attr_timeout(cl_mount_of(req), &st, false));
        return;
    }
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    op->attr.stamp = cl_names_stamp(ino);
    op->node = msg.ino = ino;
    cl_op_call(op, FP__MSG_TYPE__MSG_GETATTR, &msg.base, done_getattr);
}

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18) /* before, libfuse has no statx: there is no time of birth */

static struct statx_timestamp statx_time(struct timespec t)
{
    return (struct statx_timestamp){.tv_sec = t.tv_sec, .tv_nsec = (uint32_t)t.tv_nsec};
}

static void statx_from_stat(const struct stat *st, int64_t btime_ns, struct statx *sx)
{
    memset(sx, 0, sizeof *sx);
    sx->stx_mask = STATX_BASIC_STATS | STATX_BTIME;
    sx->stx_blksize = (uint32_t)st->st_blksize;
    sx->stx_nlink = (uint32_t)st->st_nlink;
    sx->stx_uid = st->st_uid;
    sx->stx_gid = st->st_gid;
    sx->stx_mode = (uint16_t)st->st_mode;
    sx->stx_ino = st->st_ino;
    sx->stx_size = (uint64_t)st->st_size;
    sx->stx_blocks = (uint64_t)st->st_blocks;
    sx->stx_rdev_major = major(st->st_rdev);
    sx->stx_rdev_minor = minor(st->st_rdev);
    sx->stx_atime = statx_time(st->st_atim);
    sx->stx_mtime = statx_time(st->st_mtim);
    sx->stx_ctime = statx_time(st->st_ctim);
    sx->stx_btime.tv_sec = btime_ns / 1000000000;
    sx->stx_btime.tv_nsec = (uint32_t)(btime_ns % 1000000000);
}

static void done_statx(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    const Fp__Attr *a = status == 0 ? ((const Fp__AttrReply *)reply)->attr : NULL;
    struct stat st;
    struct statx sx;
    if (!a) {
        cl_op_reply_err(op, status < 0 ? status : -EPROTO);
        return;
    }
    cl_attr_stat(op->m, a, &st);
    statx_from_stat(&st, a->btime_ns, &sx);
    cl_reply_statx(op->req, 0, &sx, cl_attr_timeout(op->m, &st, a->strict));
    cl_op_free(op);
}

void cl_op_statx(fuse_req_t req, fuse_ino_t ino, int flags, int mask, struct fuse_file_info *fi)
{
    Fp__InodeReq msg = FP__INODE_REQ__INIT;
    struct cl_op *op = cl_is_stand_in(req, ino) ? NULL : cl_op_new(req);
    (void)flags;
    (void)mask;
    (void)fi;
    if (!op)
        return;
    op->node = msg.ino = ino;
    cl_op_call(op, FP__MSG_TYPE__MSG_GETATTR, &msg.base, done_statx);
}

#endif
