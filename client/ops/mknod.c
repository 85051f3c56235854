/*
 * mknod, mkdir, symlink, link, readlink: names that are made without opening anything.
 *
 * The mount asks the kernel not to apply the umask (FUSE_CAP_DONT_MASK), so that one place decides: here.
 * Group and mode in set-group-id directories are the manager's, in the same transaction that makes the entry.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/early.h"
#include "client/names.h"
#include "client/ops/ops.h"
#include "client/walk.h"

/* A new directory is empty; unless it was made before the connection broke, and somebody else was there
 * since. */
static void done_make(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    const Fp__Attr *a = status == 0 ? ((const Fp__AttrReply *)reply)->attr : NULL;
    if (a && S_ISDIR(a->mode) && op->make.alone != 0 && op->make.alone == cl_core_alone(op->m)) {
        cl_names_made(a);
        cl_early_want(op->m, a->ino);
    }
    op->stand_in = a && S_ISDIR(a->mode);
    cl_op_done_entry(op, status, reply);
}

static void make(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev,
                 const char *target)
{
    Fp__MkNod msg = FP__MK_NOD__INIT;
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    if (!cl_name_ok(req, name))
        return;
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    op->touched = parent;
    op->make.alone = cl_core_alone(op->m);
    cl_walk_forget(cl_tid(req));
    msg.parent = parent;
    msg.name = cl_bytes(name);
    msg.mode = S_ISLNK(mode) ? mode : mode & ~ctx->umask;
    msg.uid = ctx->uid;
    msg.gid = ctx->gid;
    msg.rdev = rdev;
    msg.excl = true;
    if (target)
        msg.target = cl_bytes(target);
    cl_op_call(op, FP__MSG_TYPE__MSG_MKNOD, &msg.base, done_make);
}

void cl_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    make(req, parent, name, mode, rdev, NULL);
}

void cl_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    make(req, parent, name, S_IFDIR | (mode & 07777), 0, NULL);
}

void cl_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    make(req, parent, name, S_IFLNK | 0777, 0, target);
}

void cl_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    Fp__Link msg = FP__LINK__INIT;
    if (cl_is_stand_in(req, ino) || !cl_name_ok(req, name))
        return;
    cl_walk_forget(cl_tid(req));
    int rc = cl_data_any_behind(cl_mount_of(req)) ? cl_data_publish_closed(cl_mount_of(req), ino) : 0; /* as before a rename */
    if (rc < 0) {
        cl_reply_status(req, cl_open_status(rc));
        return;
    }
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    op->touched = parent;
    msg.ino = ino;
    msg.parent = parent;
    msg.name = cl_bytes(name);
    cl_op_call(op, FP__MSG_TYPE__MSG_LINK, &msg.base, cl_op_done_entry);
}

static void done_readlink(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    char target[PATH_MAX];
    if (status == 0) {
        const ProtobufCBinaryData *t = &((const Fp__ReadLinkReply *)reply)->target;
        if (t->len < sizeof target) {
            memcpy(target, t->data, t->len);
            target[t->len] = '\0';
            cl_reply_readlink(op->req, target);
            cl_op_free(op);
            return;
        }
        status = -EPROTO;
    }
    cl_op_reply_err(op, status);
}

void cl_op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    Fp__InodeReq msg = FP__INODE_REQ__INIT;
    struct cl_op *op = cl_is_stand_in(req, ino) ? NULL : cl_op_new(req);
    if (!op)
        return;
    op->node = msg.ino = ino;
    cl_op_call(op, FP__MSG_TYPE__MSG_READLINK, &msg.base, done_readlink);
}
