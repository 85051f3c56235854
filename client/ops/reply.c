/*
 * What all operations share: waiting for the manager, and replies to the kernel.
 *
 * cl_op_new and cl_op_call run on FUSE threads, callbacks and replies on the core loop. This is where our
 * error codes turn into what applications see (fp_err_to_errno) and where the sign flips, because FUSE wants
 * it.
 *
 * Interrupts are polled, by the core loop, for requests that have waited for a while (core.h), instead of
 * registered with fuse_req_interrupt_func: that costs each request nothing, and no handler can run for a
 * request that is gone.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/names.h"
#include "client/notify.h"
#include "client/ops/ops.h"
#include "client/walk.h"

void cl_reply_status(fuse_req_t req, int status)
{
    cl_reply_err(req, fp_err_to_errno(status));
}

uint32_t cl_tid(fuse_req_t req)
{
    return (uint32_t)fuse_req_ctx(req)->pid;
}

/* By a program of this mount. */
static bool is_open(struct cl_mount *m, uint64_t ino)
{
    struct cl_inode *inode = cl_inode_get(m, ino);
    if (!inode)
        return false;
    pthread_mutex_lock(&inode->lock);
    bool open = inode->handles > 0;
    pthread_mutex_unlock(&inode->lock);
    cl_inode_put(m, inode);
    return open;
}

/* fstat and its like come without the handle: that the manager does not know what is open here says the same as with one. */
void cl_reply_node_status(fuse_req_t req, uint64_t ino, int status)
{
    if (status == -ENOENT && ino && cl_walk_came_to(cl_tid(req), ino))
        cl_reply_err(req, ESTALE);
    else if (status == -ENOENT && ino && is_open(cl_mount_of(req), ino))
        cl_reply_status(req, cl_open_status(status));
    else
        cl_reply_status(req, status);
}

bool cl_is_stand_in(fuse_req_t req, fuse_ino_t ino)
{
    if (!(ino & CL_STAND_IN))
        return false;
    cl_walk_forget(cl_tid(req));
    cl_reply_err(req, ESTALE);
    return true;
}

struct cl_op *cl_op_new(fuse_req_t req)
{
    struct cl_op *op = calloc(1, sizeof *op);
    if (!op) {
        cl_reply_status(req, -ENOMEM);
        return NULL;
    }
    op->req = req;
    op->m = cl_mount_of(req);
    return op;
}

void cl_op_free(struct cl_op *op)
{
    free(op);
}

bool cl_req_interrupted(void *req)
{
    return fuse_req_interrupted(req);
}

bool cl_op_interrupted(void *op)
{
    return cl_req_interrupted(((struct cl_op *)op)->req);
}

void cl_op_call(struct cl_op *op, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb)
{
    cl_mgr_call_intr(op->m, type, msg, cl_op_interrupted, cb, op);
}

/* Before the answer: programs of this node must not see what was. */
static void touched(const struct cl_op *op)
{
    if (op->touched == CL_TOUCHES_ALL)
        cl_dircache_clear();
    else if (op->touched)
        cl_dircache_drop(op->touched);
}

void cl_op_reply_err(struct cl_op *op, int status)
{
    touched(op);
    cl_reply_node_status(op->req, op->node, status);
    cl_op_free(op);
}

void cl_op_done_status(void *arg, int status, const ProtobufCMessage *reply)
{
    (void)reply;
    cl_op_reply_err(arg, status);
}

double cl_attr_timeout(struct cl_mount *m, const struct stat *st, bool strict)
{
    if (!S_ISDIR(st->st_mode) && (strict || m->opt.strict))
        return 0; /* the size is another one as soon as any node has written */
    if (!S_ISDIR(st->st_mode) || !cl_core_alone(m))
        return CL_ATTR_TIMEOUT_S;
    int64_t ctime_ns = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
    return cl_names_show(st->st_ino, ctime_ns) ? CL_ALONE_TIMEOUT_S : 0;
}

/* Attributes alone (offset < 0): the kernel takes no lock that who waits for us may hold, and what it has asked for before
 * is not kept either. */
void cl_hide_attr(uint64_t dir)
{
    if (cl_names_hide(dir))
        (void)cl_notify_inode(dir, -1, 0);
}

void cl_entry_fill(struct cl_mount *m, const Fp__Attr *a, struct fuse_entry_param *e)
{
    memset(e, 0, sizeof *e);
    cl_attr_stat(m, a, &e->attr);
    e->ino = a->ino;
    e->generation = a->generation;
    e->entry_timeout = cl_core_alone(m) ? CL_ALONE_TIMEOUT_S : 0;
    e->attr_timeout = cl_attr_timeout(m, &e->attr, a->strict);
}

void cl_op_done_entry(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    const Fp__Attr *a = status == 0 ? ((const Fp__AttrReply *)reply)->attr : NULL;
    struct fuse_entry_param e;
    if (!a) {
        cl_op_reply_err(op, status < 0 ? status : -EPROTO);
        return;
    }
    touched(op);
    cl_dircache_put(op->m, ((const Fp__AttrReply *)reply)->parent);
    cl_entry_fill(op->m, a, &e);
    if (op->stand_in && e.entry_timeout == 0) {
        e.ino |= CL_STAND_IN;
        e.attr_timeout = 0;
    }
    cl_reply_entry(op->req, &e);
    cl_op_free(op);
}

void cl_op_done_attr(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    const Fp__Attr *a = status == 0 ? ((const Fp__AttrReply *)reply)->attr : NULL;
    struct stat st;
    if (!a) {
        cl_op_reply_err(op, status < 0 ? status : -EPROTO);
        return;
    }
    touched(op);
    cl_attr_stat(op->m, a, &st);
    cl_reply_attr(op->req, &st, cl_attr_timeout(op->m, &st, a->strict));
    cl_op_free(op);
}

bool cl_name_ok(fuse_req_t req, const char *name)
{
    if (strlen(name) <= CL_NAME_MAX_BYTES)
        return true;
    cl_reply_status(req, -ENAMETOOLONG);
    return false;
}

ProtobufCBinaryData cl_bytes(const char *text)
{
    return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)text};
}
