/*
 * flush (close), fsync, fsyncdir.
 *
 * close publishes: an open that comes after it, on any mount, sees the data. With --close sync it is an
 * fsync; with --close behind it waits for nothing if it can (data/behind.c). fsync of a directory makes every change durable that the manager has answered. fsync of the root
 * writes out and syncs everything of this mount as well: Linux does not pass syncfs(2) and sync(2) on to
 * FUSE file systems without a block device, so this is how a program can say it (docs/ARCHITECTURE.md, Decisions).
 */
#include <errno.h>
#include <fcntl.h>

#include "client/early.h"
#include "client/ending.h"
#include "client/locks.h"
#include "client/ops/ops.h"
#include "fp/clock.h"

/* The lease comes with the manager's answer to a create. What has nothing to publish waits for that elsewhere, if at all. */
static bool close_behind(struct cl_mount *m, struct cl_handle *h, int *rc)
{
    uint64_t dirty_bytes, uncommitted_bytes;
    if (m->opt.close_mode != CL_CLOSE_BEHIND || h->flags & (O_SYNC | O_DSYNC))
        return false;
    cl_data_at_risk(h->inode, &dirty_bytes, &uncommitted_bytes);
    if (dirty_bytes + uncommitted_bytes > 0 && cl_early_wait(h->inode) != 0)
        return false;
    return cl_data_close_behind(m, h, rc);
}

/* A descriptor for reading has nothing to publish, but for the next holder of a lock that goes with it: the program may have written through another one.
 * An error is the other one's. */
static void publish_locked(struct cl_mount *m, struct cl_handle *h, uint64_t owner)
{
    if (!cl_inode_is_gone(h->inode) && cl_locks_close_drops(m, h, owner))
        (void)cl_data_publish_written(m, h->inode);
}

/* Of several processes that share it, the one that wrote last says how it ended. */
static void look_who_closes(fuse_req_t req, struct cl_handle *h)
{
    enum cl_ending how = cl_ending_of((int32_t)fuse_req_ctx(req)->pid, atomic_load(&h->user));
    if (how == CL_ENDING_NONE)
        return;
    h->torn = how == CL_ENDING_KILLED;
    if (!h->torn)
        cl_data_closes(h);
}

void cl_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct cl_mount *m = cl_mount_of(req);
    struct cl_inode *inode = cl_handle_of(fi)->inode;
    int rc = 0, status = 0;
    (void)ino;
    if (cl_handle_of(fi)->writes && !cl_handle_of(fi)->quiet)
        look_who_closes(req, cl_handle_of(fi));
    atomic_store(&cl_handle_of(fi)->open.closed, !cl_handle_of(fi)->torn); /* before it publishes: not of what is written meanwhile */
    if (cl_handle_of(fi)->quiet)
        publish_locked(m, cl_handle_of(fi), fi->lock_owner);
    else if (cl_inode_is_gone(inode))
        rc = -EIO;
    else if (m->opt.close_mode == CL_CLOSE_SYNC)
        rc = cl_data_fsync(m, inode);
    else if (!close_behind(m, cl_handle_of(fi), &rc))
        rc = cl_data_close(m, cl_handle_of(fi));
    if (rc < 0 && cl_handle_of(fi)->writes) { /* what has failed is not closed */
        cl_handle_of(fi)->torn = true;
        atomic_store(&cl_handle_of(fi)->open.closed, false);
        cl_data_wrote(m, cl_handle_of(fi));
    }
    cl_locks_close(m, cl_handle_of(fi), fi->lock_owner);
    /* What was closed is there: the manager has to have heard of it. Of what was opened for reading only it has, when it was opened. */
    if (!cl_handle_of(fi)->quiet && (rc == 0 || cl_inode_is_gone(inode)) && cl_early_flush(inode, req, &status))
        return;
    cl_reply_status(req, status < 0 ? status : cl_open_status(rc));
}

void cl_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    struct cl_inode *inode = cl_handle_of(fi)->inode;
    int rc = cl_inode_is_gone(inode) ? -EIO : cl_data_fsync(cl_mount_of(req), inode);
    int status = cl_early_wait(inode);
    (void)ino;
    (void)datasync; /* sizes and slices are in one transaction: there is nothing to leave out */
    cl_reply_status(req, status < 0 ? status : cl_open_status(rc));
}

/* Removing a name may have failed after it was answered. */
static void done_fsyncdir(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    cl_op_done_status(op, status == 0 ? cl_early_failure(op->m) : status, reply);
}

void cl_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    struct cl_mount *m = cl_mount_of(req);
    Fp__Empty msg = FP__EMPTY__INIT;
    (void)datasync;
    (void)fi;
    if (ino == FUSE_ROOT_ID) {
        int rc = cl_data_sync_all(m, true, 0);
        if (rc < 0) {
            cl_reply_status(req, rc);
            return;
        }
    }
    struct cl_op *op = cl_op_new(req);
    if (op)
        cl_op_call(op, FP__MSG_TYPE__MSG_SYNC, &msg.base, done_fsyncdir);
}
