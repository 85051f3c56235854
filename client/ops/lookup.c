/*
 * lookup and forget.
 *
 * A name is always asked of the manager: other mounts may have changed it a moment ago (if there are others:
 * ops.h). Node ids are the manager's inode numbers and nothing is kept for an inode that was merely looked
 * up, so FORGET matters only for what was open before (inode.h).
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "client/early.h"
#include "client/names.h"
#include "client/ops/ops.h"
#include "client/walk.h"

/* Number 0: there is none of this name, and the kernel may remember that. */
static const struct fuse_entry_param nothing = {.entry_timeout = CL_ALONE_TIMEOUT_S};

static void done_lookup(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    const Fp__Attr *a = status == 0 ? ((const Fp__AttrReply *)reply)->attr : NULL;
    if (status == -ENOENT)
        cl_walk_ends(cl_tid(op->req));
    if (!cl_core_alone(op->m) && (a || status == -ENOENT))
        op->stand_in = cl_walk_told(cl_tid(op->req), op->look.parent, op->look.name, a ? a->ino : 0, a && S_ISDIR(a->mode));
    if (status != -ENOENT || !cl_core_alone(op->m)) {
        cl_op_done_entry(op, status, reply);
        return;
    }
    cl_reply_entry(op->req, &nothing);
    cl_op_free(op);
}

/* Answers from what is known of the directory. */
static bool lookup_known(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct cl_mount *m = cl_mount_of(req);
    struct fuse_entry_param e;
    Fp__Attr a;
    if (!cl_early_begin(m))
        return false;
    enum cl_name_state state = cl_names_find(parent, name, &a);
    if (state == CL_NAME_FILE) {
        cl_entry_fill(m, &a, &e);
        cl_reply_entry(req, &e);
    } else if (state == CL_NAME_ABSENT) {
        cl_walk_ends(cl_tid(req));
        cl_reply_entry(req, &nothing);
    }
    cl_early_end(m);
    return state != CL_NAME_UNKNOWN;
}

void cl_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    Fp__Lookup msg = FP__LOOKUP__INIT;
    if (cl_is_stand_in(req, parent) || !cl_name_ok(req, name))
        return;
    if (lookup_known(req, parent, name))
        return;
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    op->look.parent = parent;
    memcpy(op->look.name, name, strlen(name) + 1);
    msg.parent = parent;
    msg.name = cl_bytes(name);
    cl_op_call(op, FP__MSG_TYPE__MSG_LOOKUP, &msg.base, done_lookup);
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
