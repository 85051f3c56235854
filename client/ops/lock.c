/*
 * getlk, setlk, flock: locks that hold on all mounts (client/locks.h has what waits and what is held).
 *
 * On FUSE threads; answers come on the core loop, or on a thread of lockwork.h when the kernel has pages to drop first.
 *
 * What was written under a lock is seen by the next holder, on whatever node: to give a lock back, or a part of it, or to take another type,
 * publishes the file first; and who gets one learns with it what the file is now, and forgets the map, pages and attributes that are older.
 * So a lock costs one round trip to the manager, and an unlock one, and a COMMIT if something was written.
 *
 * The kernel keeps no locks of its own then, and asks for every call. It says nothing to tell a lock of F_OFD_SETLK from a process's, but
 * for the owner, which is the open file's; so both are the same here, and end with the close that the kernel tells of.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "client/locks.h"
#include "client/lockwork.h"
#include "client/notify.h"
#include "client/ops/ops.h"

/* -------------------------------------------------------------- the answer */

/* Made with the request, so that an answer needs no memory. */
struct asked {
    struct cl_work work;
    struct cl_mount *m;
    fuse_req_t req;
    uint64_t ino;
};

/* This may wait for pages that programs are reading or writing through a mapping. */
static void drop_pages(struct cl_work *w)
{
    struct asked *a = (struct asked *)(void *)w; /* its first member */
    (void)cl_notify_inode(a->ino, 0, 0);
    cl_reply_status(a->req, 0);
    free(a);
}

static void done_set(struct cl_lock_op *op, int status, const Fp__Attr *attr)
{
    struct asked *a = op->arg;
    if (status == 0 && cl_data_locked(op->m, op->h->inode, attr) && cl_lockwork_blocking(a->m->lockwork, &a->work, drop_pages))
        return;
    cl_reply_status(a->req, cl_open_status(status));
    free(a);
}

static bool interrupted(struct cl_lock_op *op)
{
    return fuse_req_interrupted(((struct asked *)op->arg)->req);
}

static void done_unset(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    if (status == 0 && !((const Fp__LockReply *)reply)->held)
        cl_locks_forget(op->m, op->lock.ino, op->lock.kind, op->lock.owner);
    cl_op_reply_err(op, cl_open_status(status));
}

/* -------------------------------------------------------------- requests */

/* What is written is there before anybody else can have the lock. An error is the file's, for fsync and close; the lock goes all the same. */
static void publish(struct cl_mount *m, struct cl_handle *h)
{
    if (!cl_inode_is_gone(h->inode))
        (void)cl_data_publish_written(m, h->inode);
}

static void set(fuse_req_t req, struct cl_handle *h, const Fp__Lock *msg)
{
    struct cl_mount *m = cl_mount_of(req);
    struct cl_lock_op *op;
    struct asked *a;
    if (cl_inode_is_gone(h->inode)) {
        cl_reply_status(req, -EIO);
        return;
    }
    if (cl_locks_owns(m, msg->ino, msg->kind, msg->owner))
        publish(m, h); /* it may become a lesser one */
    op = calloc(1, sizeof *op);
    a = calloc(1, sizeof *a);
    if (!op || !a) {
        free(op);
        free(a);
        cl_reply_status(req, -ENOLCK);
        return;
    }
    *a = (struct asked){.m = m, .req = req, .ino = msg->ino};
    op->m = m;
    op->h = h;
    op->msg = *msg;
    op->done = done_set;
    op->interrupted = interrupted;
    op->arg = a;
    cl_locks_ask(op);
}

static void unset(fuse_req_t req, struct cl_handle *h, Fp__Lock *msg)
{
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    publish(op->m, h);
    op->lock.ino = msg->ino;
    op->lock.kind = msg->kind;
    op->lock.owner = msg->owner;
    msg->op = FP__LOCK_OP__LOCK_UNSET;
    cl_op_call(op, FP__MSG_TYPE__MSG_LOCK, &msg->base, done_unset);
}

static Fp__Lock range(fuse_ino_t ino, const struct fuse_file_info *fi, const struct flock *lock)
{
    Fp__Lock msg = FP__LOCK__INIT;
    msg.ino = ino;
    msg.kind = FP__LOCK_KIND__LOCK_RECORD;
    msg.owner = fi->lock_owner;
    msg.exclusive = lock->l_type == F_WRLCK;
    msg.start = (uint64_t)lock->l_start;
    msg.end = lock->l_len ? msg.start + (uint64_t)lock->l_len - 1 : INT64_MAX;
    msg.pid = (uint32_t)lock->l_pid;
    return msg;
}

void cl_op_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep)
{
    Fp__Lock msg = range(ino, fi, lock);
    msg.wait = sleep;
    if (lock->l_type == F_UNLCK)
        unset(req, cl_handle_of(fi), &msg);
    else
        set(req, cl_handle_of(fi), &msg);
}

void cl_op_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int how)
{
    Fp__Lock msg = FP__LOCK__INIT;
    msg.ino = ino;
    msg.kind = FP__LOCK_KIND__LOCK_FLOCK;
    msg.owner = fi->lock_owner;
    msg.exclusive = (how & LOCK_EX) != 0;
    msg.end = INT64_MAX;
    msg.pid = (uint32_t)fuse_req_ctx(req)->pid;
    msg.wait = !(how & LOCK_NB);
    if (how & LOCK_UN)
        unset(req, cl_handle_of(fi), &msg);
    else
        set(req, cl_handle_of(fi), &msg);
}

static void done_getlk(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    const Fp__LockReply *r = (const Fp__LockReply *)reply;
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    if (status < 0) {
        cl_op_reply_err(op, cl_open_status(status));
        return;
    }
    if (r->held) {
        lock.l_type = r->exclusive ? F_WRLCK : F_RDLCK;
        lock.l_start = (off_t)r->start;
        lock.l_len = r->end == INT64_MAX ? 0 : (off_t)(r->end - r->start + 1);
        lock.l_pid = (pid_t)r->pid;
    }
    fuse_reply_lock(op->req, &lock);
    cl_op_free(op);
}

void cl_op_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock)
{
    Fp__Lock msg = range(ino, fi, lock);
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    msg.op = FP__LOCK_OP__LOCK_GET;
    cl_op_call(op, FP__MSG_TYPE__MSG_LOCK, &msg.base, done_getlk);
}
