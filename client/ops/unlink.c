/*
 * unlink, rmdir and rename. Open files that lose their last name live on: the manager counts who holds them
 * (MSG_OPEN).
 */
#include <stdio.h>
#include <sys/stat.h>

#include "client/early.h"
#include "client/names.h"
#include "client/ops/ops.h"
#include "client/walk.h"
#include "fp/clock.h"

/* ESTALE: it is not what the kernel has found, which is to look again. */
static void done_names(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    if (status != -ESTALE) {
        cl_op_done_status(op, status, reply);
        return;
    }
    cl_reply_err(op->req, ESTALE);
    cl_op_free(op);
}

/* The data path drops what is unpublished of a file that has lost its last name, when it is closed. */
static void done_unlink(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    const Fp__UnlinkReply *r = (const Fp__UnlinkReply *)reply;
    if (status == 0) {
        cl_names_forget(r->ino);
        cl_dircache_drop(r->ino);
        cl_dircache_put(op->m, r->parent);
    } else {
        cl_dircache_drop(op->dir.ino);
    }
    if (status == 0)
        cl_inode_set_nlink(op->m, r->ino, r->nlink);
    if (status == 0 && r->nlink == 0)
        cl_data_unlinked(op->m, r->ino);
    done_names(op, status, reply);
}

/* What the kernel has found under a name that is to lose it, where the manager must know. With success the kernel takes a directory that it has found for removed,
 * for ever, though another mount may have moved it and it is another one that was removed; and by owners of what it has found it has allowed the change. */
static uint64_t found(fuse_req_t req, fuse_ino_t parent, const char *name, bool source)
{
    bool dir;
    uint64_t ino = cl_walk_found(cl_tid(req), parent, name, &dir);
    return (dir && !source) || fuse_req_ctx(req)->uid != 0 ? ino : 0;
}

static void late_unlink(struct cl_op *op, int status, const ProtobufCMessage *reply)
{
    (void)reply;
    cl_op_reply_err(op, status);
}

/* Answers the program before the manager has heard of it (early.h). False: it cannot be done, and nothing has been. */
static bool unlink_early(struct cl_op *op, const Fp__Unlink *msg, const char *name)
{
    struct cl_mount *m = op->m;
    Fp__Unlink early = *msg;
    if (!cl_early_begin(m)) {
        cl_early_want(m, msg->parent);
        return false;
    }
    bool known = cl_names_remove(msg->parent, name, fp_wall_ns(), &early.ino, &early.time_ns);
    if (known) {
        cl_inode_set_nlink(m, early.ino, 0);
        cl_data_unlinked(m, early.ino);
        cl_dircache_drop(msg->parent);
        cl_hide_attr(msg->parent);
        bool told = cl_early_unlink(m, &early, late_unlink, op);
        cl_names_queued(msg->parent);
        if (told)
            cl_op_reply_err(op, 0);
    }
    cl_early_end(m);
    return known;
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
    msg.found = found(req, parent, name, false);
    cl_walk_forget(cl_tid(req));
    if (dir || !unlink_early(op, &msg, name))
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

/* With --close behind, what was closed of this name is published before the name changes (data/behind.c). Asked of the manager as the rename is: behind all that was
 * sent before. A name that is not there is what the rename says, too; any other failure ends it, since the data may be there. */
static int publish_named(struct cl_mount *m, fuse_ino_t parent, const char *name)
{
    Fp__Lookup msg = FP__LOOKUP__INIT;
    ProtobufCMessage *reply = NULL;
    msg.parent = parent;
    msg.name = cl_bytes(name);
    int rc = cl_mgr_call_sync(m, FP__MSG_TYPE__MSG_LOOKUP, &msg.base, &reply);
    const Fp__Attr *a = rc == 0 ? ((const Fp__AttrReply *)reply)->attr : NULL;
    rc = rc == -ENOENT ? 0 : rc;
    if (a && S_ISDIR(a->mode))
        rc = cl_data_publish_all_closed(m); /* whatever lies in it gets a new name with it */
    else if (a)
        rc = cl_data_publish_closed(m, a->ino);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

void cl_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                  const char *new_name, unsigned flags)
{
    Fp__Rename msg = FP__RENAME__INIT;
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    int rc = 0;
    if (!cl_name_ok(req, name) || !cl_name_ok(req, new_name))
        return;
    if (cl_data_any_behind(cl_mount_of(req))) {
        rc = publish_named(cl_mount_of(req), parent, name);
        if (rc == 0 && flags & RENAME_EXCHANGE)
            rc = publish_named(cl_mount_of(req), new_parent, new_name);
    }
    if (rc < 0) {
        cl_reply_status(req, cl_open_status(rc));
        return;
    }
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    op->touched = CL_TOUCHES_ALL; /* a directory that is moved changes too */
    msg.parent = parent;
    msg.name = cl_bytes(name);
    msg.new_parent = new_parent;
    msg.new_name = cl_bytes(new_name);
    msg.flags = flags;
    msg.found = found(req, parent, name, true);
    msg.new_found = flags & RENAME_EXCHANGE ? 0 : found(req, new_parent, new_name, false);
    cl_walk_forget(cl_tid(req));
    msg.uid = ctx->uid; /* of the whiteout, if one is asked for */
    msg.gid = ctx->gid;
    cl_op_call(op, FP__MSG_TYPE__MSG_RENAME, &msg.base, done_names);
}
