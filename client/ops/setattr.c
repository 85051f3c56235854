/*
 * setattr: chmod, chown, utimensat, truncate.
 *
 * A change of size goes through the data path on this thread, because buffered windows behind the new end
 * must go first. All else is one message. The kernel has checked permissions (default_permissions) and leaves
 * the set-id bits to us (HANDLE_KILLPRIV_V2): a change of owner or group clears them always, a change of size
 * when the caller lacks CAP_FSETID, which comes as FUSE_SET_ATTR_KILL_SUID. chown(-1, -1) comes with no
 * attribute at all; ext4 moves ctime then and clears the bits, so do we.
 *
 * While another mount has the right to append to the file, it knows where the end is, and appends there what comes next. So a size is set
 * in this mount's turn then (FP_EAPPENDING, client/append.h): what was appended before is published, and cut off; what comes after goes to the new end.
 *
 * A set mtime must win over that of writes which were accepted before and are published later:
 * cl_data_mtime_was_set, called before the message is queued, so that commits queued after it carry no mtime.
 */
#include <errno.h>

#include "client/append.h"
#include "client/aux/aux.h"
#include "client/ops/ops.h"

static int64_t ns_of(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void fill_times(Fp__SetAttr *msg, const struct stat *attr, int to_set)
{
    if (to_set & FUSE_SET_ATTR_ATIME_NOW)
        msg->valid |= FP__SET_ATTR_VALID__SET_ATIME_NOW;
    else if (to_set & FUSE_SET_ATTR_ATIME)
        msg->valid |= FP__SET_ATTR_VALID__SET_ATIME;
    if (to_set & FUSE_SET_ATTR_MTIME_NOW)
        msg->valid |= FP__SET_ATTR_VALID__SET_MTIME_NOW;
    else if (to_set & FUSE_SET_ATTR_MTIME)
        msg->valid |= FP__SET_ATTR_VALID__SET_MTIME;
    msg->atime_ns = ns_of(attr->st_atim);
    msg->mtime_ns = ns_of(attr->st_mtim);
}

static void fill(Fp__SetAttr *msg, uint64_t ino, const struct stat *attr, int to_set)
{
    msg->ino = ino;
    if (to_set & FUSE_SET_ATTR_MODE) {
        msg->valid |= FP__SET_ATTR_VALID__SET_MODE;
        msg->mode = attr->st_mode;
    }
    if (to_set & FUSE_SET_ATTR_UID) {
        msg->valid |= FP__SET_ATTR_VALID__SET_UID;
        msg->uid = attr->st_uid;
    }
    if (to_set & FUSE_SET_ATTR_GID) {
        msg->valid |= FP__SET_ATTR_VALID__SET_GID;
        msg->gid = attr->st_gid;
    }
    if (to_set & FUSE_SET_ATTR_SIZE) {
        msg->valid |= FP__SET_ATTR_VALID__SET_SIZE;
        msg->size_bytes = (uint64_t)attr->st_size;
    }
    fill_times(msg, attr, to_set);
    if (to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID | FUSE_SET_ATTR_KILL_SUID | FUSE_SET_ATTR_KILL_SGID))
        msg->valid |= FP__SET_ATTR_VALID__SET_KILL_SUIDGID;
    if (msg->valid == 0)
        msg->valid = FP__SET_ATTR_VALID__SET_CTIME | FP__SET_ATTR_VALID__SET_KILL_SUIDGID;
}

static int truncate_in_turn(fuse_req_t req, struct cl_inode *inode, Fp__SetAttr *msg)
{
    struct cl_mount *m = cl_mount_of(req);
    int rc;

    msg->takes_turns = m->locks != NULL;
    rc = cl_data_truncate(m, inode, msg);
    if (rc != FP_EAPPENDING)
        return rc;
    rc = cl_append_begin(m, inode, cl_req_interrupted, req);
    if (rc < 0)
        return rc;
    rc = cl_data_truncate(m, inode, msg);
    cl_append_end(m, inode);
    return rc;
}

static void truncate_now(fuse_req_t req, Fp__SetAttr *msg, bool open)
{
    struct cl_mount *m = cl_mount_of(req);
    struct cl_inode *inode;
    struct stat st;
    bool strict = false;
    int rc = cl_inode_fetch(m, msg->ino, &inode);
    if (rc < 0) {
        cl_reply_node_status(req, msg->ino, open ? cl_open_status(rc) : rc);
        return;
    }
    if (m->aux && msg->size_bytes == 0)
        cl_aux_before_truncate(m, inode);
    rc = cl_inode_is_gone(inode) ? -EIO : truncate_in_turn(req, inode, msg);
    if (rc == 0) {
        cl_inode_stat(m, inode, &st);
        strict = cl_data_is_strict(m, inode);
    }
    cl_inode_put(m, inode);
    if (rc < 0)
        cl_reply_node_status(req, msg->ino, open ? cl_open_status(rc) : rc);
    else
        cl_reply_attr(req, &st, cl_attr_timeout(m, &st, strict));
}

static void note_mtime(struct cl_mount *m, uint64_t ino)
{
    struct cl_inode *inode = cl_inode_get(m, ino);
    if (!inode)
        return;
    pthread_mutex_lock(&inode->lock);
    if (inode->file)
        cl_data_mtime_was_set(inode);
    pthread_mutex_unlock(&inode->lock);
    cl_inode_put(m, inode);
}

void cl_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
    Fp__SetAttr msg = FP__SET_ATTR__INIT;
    if (cl_is_stand_in(req, ino))
        return;
    fill(&msg, ino, attr, to_set);
    if (msg.valid & FP__SET_ATTR_VALID__SET_SIZE) {
        if (fi && cl_handle_of(fi)->writes)
            cl_data_changed(cl_mount_of(req), cl_handle_of(fi));
        truncate_now(req, &msg, fi != NULL);
        return;
    }
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    if (msg.valid & (FP__SET_ATTR_VALID__SET_MTIME | FP__SET_ATTR_VALID__SET_MTIME_NOW))
        note_mtime(op->m, ino);
    op->touched = op->node = ino;
    cl_op_call(op, FP__MSG_TYPE__MSG_SETATTR, &msg.base, cl_op_done_attr);
}
