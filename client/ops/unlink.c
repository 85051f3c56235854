/*
 * unlink, rmdir and rename. Open files that lose their last name live on: the manager counts who holds them
 * (MSG_OPEN).
 */
#include "client/newdirs.h"
#include "client/ops/ops.h"

/* The data path drops what is unpublished of a file that has lost its last name, when it is closed. */
static void done_unlink(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    const Fp__UnlinkReply *r = (const Fp__UnlinkReply *)reply;
    struct cl_inode *inode = status == 0 ? cl_inode_get(op->m, r->ino) : NULL;
    if (status == 0) {
        cl_dircache_drop(r->ino);
        cl_dircache_put(op->m, r->parent);
    } else {
        cl_dircache_drop(op->dir.ino);
    }
    if (inode) {
        pthread_mutex_lock(&inode->lock);
        inode->attr.nlink = r->nlink;
        pthread_mutex_unlock(&inode->lock);
        cl_inode_put(op->m, inode);
    }
    cl_op_reply_err(op, status);
}

static void remove_name(fuse_req_t req, fuse_ino_t parent, const char *name, bool dir)
{
    Fp__Unlink msg = FP__UNLINK__INIT;
    if (!cl_name_ok(req, name))
        return;
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    op->dir.ino = parent;
    msg.parent = parent;
    msg.name = cl_bytes(name);
    msg.dir = dir;
    cl_op_call(op, FP__MSG_TYPE__MSG_UNLINK, &msg.base, done_unlink);
}

void cl_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    remove_name(req, parent, name, false);
}

void cl_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    remove_name(req, parent, name, true);
}

void cl_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                  const char *new_name, unsigned flags)
{
    Fp__Rename msg = FP__RENAME__INIT;
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    if (!cl_name_ok(req, name) || !cl_name_ok(req, new_name))
        return;
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    cl_newdirs_name(new_parent, new_name);
    cl_newdirs_name(parent, name); /* with RENAME_EXCHANGE and RENAME_WHITEOUT */
    op->touched = CL_TOUCHES_ALL;  /* a directory that is moved changes too */
    msg.parent = parent;
    msg.name = cl_bytes(name);
    msg.new_parent = new_parent;
    msg.new_name = cl_bytes(new_name);
    msg.flags = flags;
    msg.uid = ctx->uid; /* of the whiteout, if one is asked for */
    msg.gid = ctx->gid;
    cl_op_call(op, FP__MSG_TYPE__MSG_RENAME, &msg.base, cl_op_done_status);
}
