/*
 * Extended attributes: user., trusted. and security. are stored by the manager; some of user.fp. are computed
 * here (xattr_virtual.h). POSIX ACLs are not kept: system. answers EOPNOTSUPP, so that cp and tar do without.
 * Who may read or write which prefix has been decided by the kernel.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/aux/aux.h"
#include "client/ops/ops.h"
#include "client/xattr_virtual.h"
#include "fp/clock.h"
#include "life.pb-c.h"

#define XATTR_NAME_MAX_BYTES 255u
#define BUSY_MS      1000u
#define PAUSE_MAX_MS 32u

/* 0, or why there is no attribute of this name. */
/* The kernel asks before it cuts or writes, and goes on whatever it is told: the ESTALE is for what it asks next. */
#define ASKED_BY_KERNEL "security.capability"

static int check_name(const char *name)
{
    if (strlen(name) > XATTR_NAME_MAX_BYTES)
        return -ERANGE;
    if (strncmp(name, "user.", 5) != 0 && strncmp(name, "trusted.", 8) != 0 &&
        strncmp(name, "security.", 9) != 0)
        return -EOPNOTSUPP;
    return 0;
}

static void reply_value(fuse_req_t req, const void *value, size_t len, size_t size)
{
    if (size == 0)
        cl_reply_xattr(req, len);
    else if (len > size)
        cl_reply_status(req, -ERANGE);
    else
        cl_reply_buf(req, value, len);
}

static void done_value(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    if (status < 0) {
        cl_op_reply_err(op, status);
        return;
    }
    const ProtobufCBinaryData *v = &((const Fp__XattrReply *)reply)->value;
    reply_value(op->req, v->data, v->len, op->xattr.size);
    cl_op_free(op);
}

static void done_level(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    if (status < 0) {
        cl_op_reply_err(op, status);
        return;
    }
    const char *text = cl_xattr_level((uint32_t)((const Fp__LevelReply *)reply)->level);
    reply_value(op->req, text, strlen(text), op->xattr.size);
    cl_op_free(op);
}

static void done_set(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    const Fp__LevelReply *r = (const Fp__LevelReply *)reply;
    char text[CL_XATTR_VALUE_MAX];
    ssize_t len = status < 0 ? status : cl_xattr_set((uint32_t)r->state, r->set, text);
    if (len < 0) {
        cl_op_reply_err(op, (int)len);
        return;
    }
    reply_value(op->req, text, (size_t)len, op->xattr.size);
    cl_op_free(op);
}

/* An operation that asks for a value of at most size bytes; NULL: answered already. */
static struct cl_op *op_new_asking(fuse_req_t req, size_t size)
{
    struct cl_op *op = cl_op_new(req);
    if (op)
        op->xattr.size = size;
    return op;
}

static void get_level(fuse_req_t req, fuse_ino_t ino, size_t size, bool only_set)
{
    Fp__LevelAsk msg = FP__LEVEL_ASK__INIT;
    struct cl_op *op = op_new_asking(req, size);
    if (!op)
        return;
    op->node = msg.ino = ino;
    msg.only_set = only_set;
    cl_op_call(op, FP__MSG_TYPE__MSG_LEVEL, &msg.base, only_set ? done_set : done_level);
}

void cl_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    Fp__GetXattr msg = FP__GET_XATTR__INIT;
    int rc = check_name(name);
    if (cl_is_stand_in(req, ino))
        return;
    if (cl_xattr_is_level(name) || cl_xattr_is_set(name)) {
        get_level(req, ino, size, cl_xattr_is_set(name));
        return;
    }
    if (rc == 0 && cl_xattr_is_virtual(name)) {
        char value[CL_XATTR_VALUE_MAX];
        ssize_t len = cl_xattr_virtual_get(cl_mount_of(req), ino, name, value);
        if (len >= 0) {
            reply_value(req, value, (size_t)len, size);
            return;
        }
        rc = (int)len;
    }
    if (rc < 0) {
        cl_reply_node_status(req, ino, rc);
        return;
    }
    struct cl_op *op = op_new_asking(req, size);
    if (!op)
        return;
    msg.ino = ino;
    op->node = strcmp(name, ASKED_BY_KERNEL) == 0 ? 0 : ino;
    msg.name = cl_bytes(name);
    cl_op_call(op, FP__MSG_TYPE__MSG_GETXATTR, &msg.base, done_value);
}

void cl_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    Fp__InodeReq msg = FP__INODE_REQ__INIT;
    struct cl_op *op = cl_is_stand_in(req, ino) ? NULL : op_new_asking(req, size);
    if (!op)
        return;
    op->node = msg.ino = ino;
    cl_op_call(op, FP__MSG_TYPE__MSG_LISTXATTR, &msg.base, done_value);
}

/* An operation that changes the attribute; NULL: answered already, for one because nobody may change it. */
static struct cl_op *op_new_changing(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    int rc = check_name(name);
    if (cl_is_stand_in(req, ino))
        return NULL;
    if (rc == 0 && cl_xattr_is_virtual(name))
        rc = -EPERM;
    if (rc < 0) {
        cl_reply_status(req, rc);
        return NULL;
    }
    struct cl_op *op = cl_op_new(req);
    if (op)
        op->touched = op->node = ino;
    return op;
}

/*
 * user.fp.strict of a file can't be changed while somebody has it open: EBUSY. The kernel tells of the last close of a file after close(2) has returned, and
 * this or another mount tells the manager a moment later. So EBUSY is the answer when it has been for BUSY_MS; without that, a script that makes a file and
 * sets this on it fails every second time. On a FUSE thread, which waits: it is done seldom.
 */
static void call_strict(struct cl_op *op, uint32_t type, ProtobufCMessage *msg)
{
    uint64_t until_ms = fp_now_ms() + BUSY_MS;
    unsigned pause_ms = 1;
    int rc = cl_mgr_call_sync(op->m, type, msg, NULL);
    while (rc == -EBUSY && fp_now_ms() < until_ms && !cl_op_interrupted(op)) {
        usleep(pause_ms * 1000);
        pause_ms = pause_ms < PAUSE_MAX_MS ? 2 * pause_ms : PAUSE_MAX_MS;
        rc = cl_mgr_call_sync(op->m, type, msg, NULL);
    }
    cl_op_done_status(op, rc, NULL);
}

static bool is_strict(const char *name)
{
    return strcmp(name, "user.fp.strict") == 0;
}

static void done_complete(void *arg, int status, const ProtobufCMessage *reply)
{
    const struct cl_op *op = arg;
    if (status == 0)
        cl_aux_set_complete(op->m, op->touched);
    cl_op_done_status(arg, status, reply);
}

static bool says_complete(const char *name, const char *value, size_t size)
{
    return strcmp(name, CL_AUX_SET_XATTR) == 0 && size == strlen(CL_AUX_SET_COMPLETE) &&
           memcmp(value, CL_AUX_SET_COMPLETE, size) == 0;
}

void cl_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
                    int flags)
{
    Fp__SetXattr msg = FP__SET_XATTR__INIT;
    struct cl_op *op = op_new_changing(req, ino, name);
    if (!op)
        return;
    msg.ino = ino;
    msg.name = cl_bytes(name);
    msg.value = (ProtobufCBinaryData){.len = size, .data = (uint8_t *)value};
    msg.flags = (uint32_t)flags;
    if (is_strict(name))
        call_strict(op, FP__MSG_TYPE__MSG_SETXATTR, &msg.base);
    else
        cl_op_call(op, FP__MSG_TYPE__MSG_SETXATTR, &msg.base,
                   says_complete(name, value, size) ? done_complete : cl_op_done_status);
}

void cl_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    Fp__RemoveXattr msg = FP__REMOVE_XATTR__INIT;
    struct cl_op *op = op_new_changing(req, ino, name);
    if (!op)
        return;
    msg.ino = ino;
    msg.name = cl_bytes(name);
    if (is_strict(name))
        call_strict(op, FP__MSG_TYPE__MSG_REMOVEXATTR, &msg.base);
    else
        cl_op_call(op, FP__MSG_TYPE__MSG_REMOVEXATTR, &msg.base, cl_op_done_status);
}
