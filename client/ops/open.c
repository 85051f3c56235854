/*
 * open, create, tmpfile, release.
 *
 * The manager is told of every open file description (MSG_OPEN, or MSG_MKNOD with open), so that an unlinked
 * file lives until the last close anywhere; release goes back in batches (mgr_call.c).
 *
 * The kernel tells of a last close when close(2) has returned, and forgets to if the mount is gone by then (fuse_abort_conn ends what waits to be sent). The manager would take
 * the file for one that was left open. So at the end of a mount, if the file system is gone from the kernel, what was closed and not released is released as if it had been. Of a close
 * this mount has heard by a flush, for which the kernel waits. A file system that is gone is not enough: after an abort, programs close what they have open without us. Nor is
 * a close, which may be one of several descriptors. If it is not gone (an abort, SIGTERM with files open), what is left may be open, and stays so for the manager.
 *
 * O_TRUNC: the kernel sends a setattr after the open (FUSE_CAP_ATOMIC_O_TRUNC is not wanted), so open itself
 * never changes data.
 *
 * create races with other mounts: between the kernel's lookup, which found nothing, and our message, another
 * node may have made the file. Ranks that all open the same new file do this all the time. Without O_EXCL the
 * manager then opens the existing file. The kernel has not checked its permissions; where the owner's bits do
 * not already allow what is asked, or O_TRUNC is set, we answer ESTALE, which makes the kernel walk the path
 * again, find the file, and open it the usual way. No program ever sees it.
 *
 * open races with them, too: what the kernel's lookup found may have been replaced by a rename, removed, or
 * lost with the power of the manager's node. The name may be there all the same, as another file: ESTALE, once,
 * so that the kernel looks again; ENOENT is the lookup's to say, or ours if it happens twice.
 *
 * What the lookup found may also have had another size: an open that had to wait for another mount to publish the file (manager/lease.c) is told ESTALE, too, so that
 * the kernel has the size of now before the first copy_file_range or sendfile, which go no further than the size that it knows.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "client/append.h"
#include "client/aux/aux.h"
#include "client/early.h"
#include "client/ending.h"
#include "client/locks.h"
#include "client/names.h"
#include "client/notify.h"
#include "client/ops/ops.h"
#include "client/superblock.h"
#include "client/walk.h"
#include "fp/clock.h"

static struct cl_handle *handle_new(struct cl_inode *inode, int flags, bool writes, int32_t tid)
{
    struct cl_handle *h = calloc(1, sizeof *h);
    if (h && writes && tid > 0) {
        h->user = tid;
        cl_ending_seen(tid);
    }
    if (h) {
        h->inode = inode;
        h->flags = flags;
        h->writes = writes;
    }
    return h;
}

/* Give the manager's hold and our reference back. The hold of a new file comes with the manager's answer. */
static void let_go(struct cl_mount *m, struct cl_inode *inode, bool writes, bool torn)
{
    if (cl_early_wait(inode) == 0)
        cl_mgr_release(m, inode, writes, torn);
    cl_inode_put(m, inode);
}

static void fill_fi(struct cl_mount *m, struct fuse_file_info *fi, struct cl_handle *h)
{
    fi->fh = (uintptr_t)h;
    fi->direct_io = m->opt.direct_io || h->strict;
    fi->parallel_direct_writes = m->opt.direct_io && !h->strict; /* strict: pieces of two long writes of this node are not mixed */
    fi->keep_cache = 0;
    h->quiet = (fi->flags & O_ACCMODE) == O_RDONLY; /* closing it publishes nothing */
    fi->noflush = h->quiet && !m->locks; /* … but gives locks back */
}

/* The existing file that a create found: may this caller open it without the kernel having looked? */
static bool owner_may_open(const struct cl_op *op, const Fp__Attr *a)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(op->req);
    int acc = op->open.fi.flags & O_ACCMODE;
    uint32_t need = (acc != O_WRONLY ? S_IRUSR : 0) | (acc != O_RDONLY ? S_IWUSR : 0);
    if (op->open.fi.flags & O_TRUNC)
        return false;
    return ctx->uid == 0 || (ctx->uid == a->uid && (a->mode & need) == need);
}

/* It is released: what was written with it is published by now, if it was the last. */
static void handle_end(struct cl_mount *m, struct cl_handle *h)
{
    struct cl_inode *inode = h->inode;
    cl_open_remove(m, &h->open);
    cl_locks_release(m, h);
    cl_append_closed(m, inode);
    if (m->aux)
        cl_aux_file_closed(m, h);
    let_go(m, inode, h->writes, h->writes && (h->torn || h->close_told));
    free(h);
}

static void drop_handle(void *arg)
{
    struct cl_handle *h = arg;
    cl_data_release(h->m, h, handle_end);
}

/* A handle that nobody has got. On a store thread: publishing what others wrote, should this be the last handle, waits for the manager. */
static void drop_later(struct cl_mount *m, struct cl_handle *h)
{
    h->m = m;
    (void)cl_data_run(m, drop_handle, h); /* no memory: the file stays open until unmount */
}

static void reply_open(struct cl_op *op, const Fp__Attr *a)
{
    struct fuse_entry_param e;
    int rc;
    if (!op->open.with_entry) {
        rc = cl_reply_open(op->req, &op->open.fi);
    } else {
        cl_entry_fill(op->m, a, &e);
        rc = cl_reply_create(op->req, &e, &op->open.fi);
    }
    if (rc == -ENOENT) {
        /* The caller was killed meanwhile: no release will come. */
        drop_later(op->m, cl_handle_of(&op->open.fi));
    }
}

/* What the open is back for may itself take long: it is the time of its coming that counts. */
static bool may_walk_again(const struct cl_op *op)
{
    return cl_walk_again(cl_tid(op->req), op->open.came_ms, (uint32_t)fp_now_ms());
}

static int opened(struct cl_op *op, const Fp__AttrReply *reply)
{
    const Fp__Attr *a = reply->attr;
    if (!a)
        return -EPROTO;
    cl_dircache_put(op->m, reply->parent);
    struct cl_inode *inode = cl_inode_intern(op->m, a);
    if (!inode)
        return -ENOMEM;
    bool writes = op->open.with_entry || (op->open.fi.flags & O_ACCMODE) != O_RDONLY; /* as the manager counts: a create always */
    cl_inode_hold(op->m, inode, writes);
    cl_data_lease(inode, reply->behind, a->data_version);
    if (cl_mgr_was_refused(op->m)) { /* the kernel may have looked before the other mount published */
        (void)cl_notify_inode(inode->ino, -1, 0);
        if (fuse_req_ctx(op->req)->pid && may_walk_again(op)) {
            let_go(op->m, inode, writes, false);
            return -ESTALE;
        }
    }
    if (op->open.with_entry && !reply->created && !owner_may_open(op, a)) {
        let_go(op->m, inode, writes, false);
        return -ESTALE;
    }
    struct cl_handle *h = handle_new(inode, op->open.fi.flags, writes, (int32_t)fuse_req_ctx(op->req)->pid);
    if (h)
        h->fresh = op->open.with_entry && reply->created;
    int rc = h ? cl_data_open(op->m, h, a) : -ENOMEM;
    if (rc < 0) {
        free(h);
        let_go(op->m, inode, writes, false);
        return rc;
    }
    cl_open_add(op->m, &h->open);
    if (op->m->aux)
        cl_aux_file_opened(op->m, h);
    fill_fi(op->m, &op->open.fi, h);
    cl_walk_forget(cl_tid(op->req)); /* what is asked of it from here on comes through the descriptor, and the kernel does not look again */
    cl_walk_ends(cl_tid(op->req));
    reply_open(op, a);
    return 0;
}

static bool wants_lease(const struct cl_mount *m, int flags)
{
    return m->opt.close_mode == CL_CLOSE_BEHIND && (flags & O_ACCMODE) != O_RDONLY;
}

static void done_open(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    status = status == 0 ? opened(op, (const Fp__AttrReply *)reply) : status;
    if (status == 0) {
        cl_op_free(op);
        return;
    }
    if (!op->open.with_entry && (status == -ESTALE || (status == -ENOENT && may_walk_again(op)))) {
        cl_reply_err(op->req, ESTALE);
        cl_op_free(op);
        return;
    }
    /* See the top of the file: a name that came between lookup and create. */
    if (op->open.with_entry && (status == -EEXIST || status == -ESTALE) && !(op->open.fi.flags & O_EXCL)) {
        cl_reply_err(op->req, ESTALE);
        cl_op_free(op);
        return;
    }
    cl_op_reply_err(op, status);
}

void cl_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    Fp__Open msg = FP__OPEN__INIT;
    struct cl_op *op = cl_is_stand_in(req, ino) ? NULL : cl_op_new(req);
    if (!op)
        return;
    op->open.fi = *fi;
    op->open.came_ms = (uint32_t)fp_now_ms();
    msg.ino = ino;
    msg.behind = wants_lease(op->m, fi->flags);
    msg.write = (fi->flags & O_ACCMODE) != O_RDONLY;
    msg.based_on = msg.write ? cl_data_behind_base(op->m, ino) : 0;
    cl_op_call(op, FP__MSG_TYPE__MSG_OPEN, &msg.base, done_open);
}

/* The manager has answered before the program was: too much was under way. */
static void late_create(struct cl_op *op, int status, const ProtobufCMessage *reply)
{
    struct cl_handle *h = cl_handle_of(&op->open.fi);
    if (status == 0 && ((const Fp__AttrReply *)reply)->attr) {
        reply_open(op, ((const Fp__AttrReply *)reply)->attr);
        cl_op_free(op);
        return;
    }
    drop_later(op->m, h);
    cl_op_reply_err(op, status < 0 ? status : -EPROTO);
}

/* A handle of a file that the manager has not heard of. NULL: it cannot be made here. */
static struct cl_handle *make_known(struct cl_op *op, Fp__MkNod *msg, const char *name, Fp__Attr *a)
{
    struct cl_name_new n = {.mode = msg->mode, .uid = msg->uid, .gid = msg->gid, .now_ns = fp_wall_ns()};
    struct cl_inode *inode;
    struct cl_handle *h = NULL;
    if (!cl_names_can_create(msg->parent, name) || (n.ino = cl_early_ino(op->m)) == 0 ||
        !cl_names_create(msg->parent, name, &n, a, &msg->time_ns))
        return NULL;
    inode = cl_inode_intern(op->m, a);
    h = inode ? handle_new(inode, op->open.fi.flags, true, (int32_t)fuse_req_ctx(op->req)->pid) : NULL;
    if (h)
        h->fresh = true;
    if (h && cl_data_open(op->m, h, a) == 0)
        return h;
    if (inode)
        cl_inode_put(op->m, inode);
    free(h);
    cl_names_forget(msg->parent);
    return NULL;
}

/* Answers the program before the manager has heard of it (early.h). False: it cannot be done, and nothing has been. */
static bool create_early(struct cl_op *op, Fp__MkNod *msg, const char *name)
{
    struct cl_mount *m = op->m;
    Fp__MkNod early = *msg;
    Fp__Attr a;
    if (!cl_early_begin(m)) {
        cl_early_want(m, msg->parent);
        return false;
    }
    struct cl_handle *h = make_known(op, &early, name, &a);
    if (h) {
        early.ino = a.ino;
        early.excl = true;
        cl_open_add(m, &h->open);
        if (m->aux)
            cl_aux_file_opened(m, h);
        fill_fi(m, &op->open.fi, h);
        op->open.fi.noflush = h->quiet = false; /* close waits for the manager's answer */
        op->touched = 0;
        cl_dircache_drop(msg->parent);
        cl_hide_attr(msg->parent);
        bool told = cl_early_create(m, h->inode, &early, late_create, op);
        cl_names_queued(msg->parent);
        if (told) {
            reply_open(op, &a);
            cl_op_free(op);
        }
    }
    cl_early_end(m);
    return h != NULL;
}

static void create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                   const struct fuse_file_info *fi)
{
    Fp__MkNod msg = FP__MK_NOD__INIT;
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    op->open.fi = *fi;
    op->open.came_ms = (uint32_t)fp_now_ms();
    op->open.with_entry = true;
    op->touched = name ? parent : 0;
    cl_walk_forget(cl_tid(req));
    msg.parent = parent;
    msg.mode = S_IFREG | (mode & 07777 & ~ctx->umask);
    msg.uid = ctx->uid;
    msg.gid = ctx->gid;
    msg.open = true;
    msg.behind = wants_lease(op->m, fi->flags);
    msg.tmpfile = !name;
    msg.excl = !name || (fi->flags & O_EXCL);
    if (name)
        msg.name = cl_bytes(name);
    if (!name || !create_early(op, &msg, name))
        cl_op_call(op, FP__MSG_TYPE__MSG_MKNOD, &msg.base, done_open);
}

void cl_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
    if (cl_name_ok(req, name))
        create(req, parent, name, mode, fi);
}

void cl_op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
    create(req, parent, NULL, mode, fi);
}

void cl_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct cl_mount *m = cl_mount_of(req);
    struct cl_handle *h = cl_handle_of(fi);
    (void)ino;
    atomic_store(&h->open.closed, false);
    cl_data_release(m, h, handle_end);
    cl_reply_err(req, 0);
}

void cl_op_release_left(struct cl_mount *m, uint32_t wait_ms)
{
    struct cl_open **left;
    ssize_t n = cl_open_left(m, &left);
    if (n > 0 && cl_superblock_gone(wait_ms)) {
        for (ssize_t i = 0; i < n; i++)
            cl_data_release(m, (struct cl_handle *)left[i], handle_end);
    }
    free(left);
}
