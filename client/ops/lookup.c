/*
 * lookup and forget.
 *
 * A name is always asked of the manager: other mounts may have changed it a moment ago. Node ids are the
 * manager's inode numbers and nothing is kept for an inode that was merely looked up, so FORGET matters only
 * for what was open before (inode.h).
 */
#include "client/ops/ops.h"

void cl_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    Fp__Lookup msg = FP__LOOKUP__INIT;
    if (!cl_name_ok(req, name))
        return;
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    msg.parent = parent;
    msg.name = cl_bytes(name);
    cl_op_call(op, FP__MSG_TYPE__MSG_LOOKUP, &msg.base, cl_op_done_entry);
}

void cl_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    (void)nlookup;
    cl_inode_forget(cl_mount_of(req), ino);
    fuse_reply_none(req);
}

void cl_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    for (size_t i = 0; i < count; i++)
        cl_inode_forget(cl_mount_of(req), forgets[i].ino);
    fuse_reply_none(req);
}
