/*
 * libfuse for the real fp-mount: its operations are called by threads of its process, for requests of simulated applications of its node (vfs.c).
 *
 * A request whose mount dies ends with ENOTCONN, as the kernel has it.
 */
#include "tests/sim/fuse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 10

struct sim_fuse {
    struct sim_proc *proc;
    struct fuse_lowlevel_ops ops;
    void *userdata;
    struct fuse_req *first, **last; /* not taken yet */
    struct fuse_req *taken[512];
    unsigned ntaken;
    bool ended;
};

struct fuse_loop_config {
    int unused;
};

/* ------------------------------------------------------------------ requests */

static void finish(struct fuse_req *r, int err)
{
    struct sim_fuse *f = r->fuse;

    for (unsigned i = 0; i < f->ntaken; i++)
        if (f->taken[i] == r)
            f->taken[i] = f->taken[--f->ntaken];
    r->err = err;
    r->done = true;
    if (r->nobody_waits)
        free(r);
    else
        sim_wake_all(r);
}

static void queue(struct sim_proc *mount, struct fuse_req *r)
{
    struct sim_fuse *f = mount->fuse;

    r->fuse = f;
    r->who = (struct fuse_ctx){.pid = sim_self ? (pid_t)sim_self->id + 1 : 0, .umask = 022};
    r->next = NULL;
    *f->last = r;
    f->last = &r->next;
    sim_wake_one(f);
}

int sim_fuse_call(struct sim_proc *mount, struct fuse_req *r)
{
    return sim_fuse_call_until(mount, r, SIM_NEVER);
}

int sim_fuse_call_until(struct sim_proc *mount, struct fuse_req *r, uint64_t until_ns)
{
    if (!mount->up || !mount->ready || !mount->fuse || mount->fuse->ended)
        return ENOTCONN;
    r->done = r->nobody_waits = r->interrupted = false;
    queue(mount, r);
    while (!r->done)
        if (!sim_block(r, r->interrupted ? SIM_NEVER : until_ns))
            r->interrupted = true;
    return r->err;
}

void sim_fuse_send(struct sim_proc *mount, const struct fuse_req *r)
{
    struct fuse_req *copy;

    if (!mount->up || !mount->ready || !mount->fuse || mount->fuse->ended)
        return;
    copy = malloc(sizeof *copy);
    *copy = *r;
    copy->nobody_waits = true;
    queue(mount, copy);
}

void sim_fuse_gone(struct sim_proc *p)
{
    struct sim_fuse *f = p->fuse;

    if (!f)
        return;
    p->fuse = NULL;
    f->ended = true;
    while (f->first) {
        struct fuse_req *r = f->first;

        f->first = r->next;
        finish(r, ENOTCONN);
    }
    while (f->ntaken)
        finish(f->taken[f->ntaken - 1], ENOTCONN);
}

static void run_xattr_op(struct fuse_req *r)
{
    const struct fuse_lowlevel_ops *o = &r->fuse->ops;

    if (r->op == SIM_SETXATTR)
        o->setxattr(r, r->ino, r->name, r->data, r->size, 0);
    else if (r->op == SIM_GETXATTR)
        o->getxattr(r, r->ino, r->name, r->size);
    else if (r->op == SIM_LISTXATTR)
        o->listxattr(r, r->ino, r->size);
    else
        o->removexattr(r, r->ino, r->name);
}

static void run_range_op(struct fuse_req *r)
{
    const struct fuse_lowlevel_ops *o = &r->fuse->ops;

    if (r->op == SIM_FALLOCATE)
        o->fallocate(r, r->ino, r->how, r->off, (off_t)r->size, &r->fi);
    else if (r->op == SIM_LSEEK)
        o->lseek(r, r->ino, r->off, r->how, &r->fi);
    else
        o->copy_file_range(r, r->ino, r->off, &r->fi, r->ino2, r->off2, &r->fi2, r->size, 0);
}

static void run_name_op(struct fuse_req *r)
{
    const struct fuse_lowlevel_ops *o = &r->fuse->ops;

    switch (r->op) {
    case SIM_LOOKUP:
        o->lookup(r, r->ino, r->name);
        break;
    case SIM_MKDIR:
        o->mkdir(r, r->ino, r->name, r->mode);
        break;
    case SIM_UNLINK:
        o->unlink(r, r->ino, r->name);
        break;
    case SIM_RMDIR:
        o->rmdir(r, r->ino, r->name);
        break;
    case SIM_RENAME:
        o->rename(r, r->ino, r->name, r->ino2, r->name2, r->flags);
        break;
    case SIM_LINK:
        o->link(r, r->ino, r->ino2, r->name);
        break;
    case SIM_SYMLINK:
        o->symlink(r, r->data, r->ino, r->name);
        break;
    case SIM_READLINK:
        o->readlink(r, r->ino);
        break;
    case SIM_STATFS:
        o->statfs(r, r->ino);
        break;
    default:
        o->create(r, r->ino, r->name, r->mode, &r->fi);
    }
}

static void run_request(struct fuse_req *r)
{
    const struct fuse_lowlevel_ops *o = &r->fuse->ops;

    switch (r->op) {
    case SIM_FORGET:
        o->forget(r, r->ino, 1);
        break;
    case SIM_GETATTR:
        o->getattr(r, r->ino, r->fi.fh ? &r->fi : NULL);
        break;
    case SIM_SETATTR:
        o->setattr(r, r->ino, &r->attr, r->to_set, r->fi.fh ? &r->fi : NULL);
        break;
    case SIM_OPEN:
        o->open(r, r->ino, &r->fi);
        break;
    case SIM_READ:
        o->read(r, r->ino, r->size, r->off, &r->fi);
        break;
    case SIM_WRITE:
        o->write(r, r->ino, r->data, r->size, r->off, &r->fi);
        break;
    case SIM_FLUSH:
        o->flush(r, r->ino, &r->fi);
        break;
    case SIM_RELEASE:
        o->release(r, r->ino, &r->fi);
        break;
    case SIM_FSYNC:
        o->fsync(r, r->ino, 0, &r->fi);
        break;
    case SIM_OPENDIR:
        o->opendir(r, r->ino, &r->fi);
        break;
    case SIM_READDIR:
        o->readdir(r, r->ino, r->size, r->off, &r->fi);
        break;
    case SIM_RELEASEDIR:
        o->releasedir(r, r->ino, &r->fi);
        break;
    case SIM_FSYNCDIR:
        o->fsyncdir(r, r->ino, 0, &r->fi);
        break;
    case SIM_SETLK:
        o->setlk(r, r->ino, &r->fi, &r->lock, r->sleep);
        break;
    case SIM_FLOCK:
        o->flock(r, r->ino, &r->fi, (int)r->flags);
        break;
    case SIM_SETXATTR:
    case SIM_GETXATTR:
    case SIM_LISTXATTR:
    case SIM_REMOVEXATTR:
        run_xattr_op(r);
        break;
    case SIM_FALLOCATE:
    case SIM_LSEEK:
    case SIM_COPY:
        run_range_op(r);
        break;
    default:
        run_name_op(r);
    }
}

static void *fuse_thread(void *arg)
{
    struct sim_fuse *f = arg;

    for (;;) {
        struct fuse_req *r = f->first;

        if (f->ended)
            return NULL;
        if (!r) {
            sim_block(f, SIM_NEVER);
            continue;
        }
        f->first = r->next;
        if (!f->first)
            f->last = &f->first;
        if (f->ntaken == sizeof f->taken / sizeof *f->taken)
            sim_fail("more requests of the kernel than can be");
        f->taken[f->ntaken++] = r;
        run_request(r);
    }
}

/* ------------------------------------------------------------------ libfuse: the session */

struct fuse_session *fuse_session_new_versioned(struct fuse_args *args, const struct fuse_lowlevel_ops *op, size_t op_size,
                                                struct libfuse_version *version, void *userdata)
{
    struct sim_fuse *f = calloc(1, sizeof *f);

    (void)args;
    (void)version;
    memcpy(&f->ops, op, op_size < sizeof f->ops ? op_size : sizeof f->ops);
    f->userdata = userdata;
    f->proc = sim_self->proc;
    f->last = &f->first;
    return (struct fuse_session *)(void *)f;
}

int fuse_session_mount(struct fuse_session *se, const char *mountpoint)
{
    (void)se;
    (void)mountpoint;
    return 0;
}

/* Requests come here, from no device. */
int fuse_session_fd(struct fuse_session *se)
{
    (void)se;
    return -1;
}

int fuse_session_custom_io_317(struct fuse_session *se, const struct fuse_custom_io *io, size_t op_size, int fd)
{
    (void)se;
    (void)io;
    (void)op_size;
    (void)fd;
    return -ENOTSUP;
}

int fuse_session_loop_mt_312(struct fuse_session *se, struct fuse_loop_config *config)
{
    struct sim_fuse *f = (struct sim_fuse *)(void *)se;
    struct fuse_conn_info conn = {.proto_major = 7, .proto_minor = 40, .max_write = 1u << 20};

    (void)config;
    f->ops.init(f->userdata, &conn);
    f->proc->fuse = f;
    for (int i = 0; i < THREADS; i++)
        sim_task_new(f->proc, f->proc->node, "fuse", fuse_thread, f);
    while (!f->ended)
        sim_block(&f->ended, SIM_NEVER);
    while (f->ntaken)
        sim_sleep_ns(SIM_MS);
    return 0;
}

void fuse_session_exit(struct fuse_session *se)
{
    struct sim_fuse *f = (struct sim_fuse *)(void *)se;

    while (f->first) {
        struct fuse_req *r = f->first;

        f->first = r->next;
        finish(r, ENOTCONN);
    }
    f->last = &f->first;
    f->ended = true;
    sim_wake_all(f);
    sim_wake_all(&f->ended);
}

void fuse_session_unmount(struct fuse_session *se)
{
    (void)se;
}

void fuse_session_destroy(struct fuse_session *se)
{
    (void)se;
    sim_self->proc->fuse = NULL;
}

struct fuse_loop_config *fuse_loop_cfg_create(void)
{
    return calloc(1, sizeof(struct fuse_loop_config));
}

void fuse_loop_cfg_destroy(struct fuse_loop_config *config)
{
    free(config);
}

void fuse_loop_cfg_set_idle_threads(struct fuse_loop_config *config, unsigned value)
{
    (void)config;
    (void)value;
}

void fuse_loop_cfg_set_max_threads(struct fuse_loop_config *config, unsigned value)
{
    (void)config;
    (void)value;
}

void fuse_loop_cfg_set_clone_fd(struct fuse_loop_config *config, unsigned value)
{
    (void)config;
    (void)value;
}

bool fuse_set_feature_flag(struct fuse_conn_info *conn, uint64_t flag)
{
    (void)conn;
    (void)flag;
    return true;
}

void fuse_unset_feature_flag(struct fuse_conn_info *conn, uint64_t flag)
{
    (void)conn;
    (void)flag;
}

void fuse_set_log_func(fuse_log_func_t func)
{
    (void)func;
}

int fuse_opt_add_arg(struct fuse_args *args, const char *arg)
{
    (void)args;
    (void)arg;
    return 0;
}

void fuse_opt_free_args(struct fuse_args *args)
{
    (void)args;
}

/* Attributes are kept by nobody here: see vfs.c. */
int fuse_lowlevel_notify_inval_inode(struct fuse_session *se, fuse_ino_t ino, off_t off, off_t len)
{
    (void)se;
    (void)ino;
    (void)off;
    (void)len;
    return 0;
}

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
int fuse_lowlevel_notify_increment_epoch(struct fuse_session *se) /* nor are names */
{
    (void)se;
    return 0;
}
#endif

/* ------------------------------------------------------------------ libfuse: requests and answers */

const struct fuse_ctx *fuse_req_ctx(fuse_req_t req)
{
    return &req->who;
}

void *fuse_req_userdata(fuse_req_t req)
{
    return req->fuse->userdata;
}

int fuse_req_interrupted(fuse_req_t req)
{
    return req->interrupted;
}

int fuse_reply_err(fuse_req_t req, int err)
{
    finish(req, err);
    return 0;
}

void fuse_reply_none(fuse_req_t req)
{
    finish(req, 0);
}

int fuse_reply_entry(fuse_req_t req, const struct fuse_entry_param *e)
{
    req->entry = *e;
    req->attr = e->attr;
    finish(req, e->ino ? 0 : ENOENT);
    return 0;
}

int fuse_reply_create(fuse_req_t req, const struct fuse_entry_param *e, const struct fuse_file_info *fi)
{
    req->entry = *e;
    req->attr = e->attr;
    req->fi = *fi;
    finish(req, 0);
    return 0;
}

int fuse_reply_attr(fuse_req_t req, const struct stat *attr, double timeout)
{
    (void)timeout;
    req->attr = *attr;
    finish(req, 0);
    return 0;
}

int fuse_reply_open(fuse_req_t req, const struct fuse_file_info *fi)
{
    req->fi = *fi;
    finish(req, 0);
    return 0;
}

int fuse_reply_write(fuse_req_t req, size_t count)
{
    req->count = (ssize_t)count;
    finish(req, 0);
    return 0;
}

int fuse_reply_iov(fuse_req_t req, const struct iovec *iov, int count)
{
    size_t at = 0;

    for (int i = 0; i < count; i++) {
        if (at + iov[i].iov_len > req->size)
            sim_fail("a read of %zu bytes is answered with more", req->size);
        memcpy((uint8_t *)req->into + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    req->count = (ssize_t)at;
    finish(req, 0);
    return 0;
}

int fuse_reply_buf(fuse_req_t req, const char *buf, size_t size)
{
    struct iovec iov = {(void *)(uintptr_t)buf, size};

    return fuse_reply_iov(req, &iov, size != 0);
}

/* A directory's entry is its name and the offset behind it. */
size_t fuse_add_direntry(fuse_req_t req, char *buf, size_t size, const char *name, const struct stat *st, off_t off)
{
    size_t len = sizeof off + strlen(name) + 1;

    (void)req;
    (void)st;
    if (len <= size) {
        memcpy(buf, &off, sizeof off);
        memcpy(buf + sizeof off, name, strlen(name) + 1);
    }
    return len;
}

size_t fuse_add_direntry_plus(fuse_req_t req, char *buf, size_t size, const char *name, const struct fuse_entry_param *e, off_t off)
{
    return fuse_add_direntry(req, buf, size, name, &e->attr, off);
}

/* What the workload does not use. */
static int not_used(void)
{
    sim_fail("an answer that the simulator did not ask for");
}

int fuse_reply_readlink(fuse_req_t req, const char *link)
{
    if (strlen(link) >= req->size)
        sim_fail("a symbolic link of %zu bytes", strlen(link));
    memcpy(req->into, link, strlen(link) + 1);
    req->count = (ssize_t)strlen(link);
    finish(req, 0);
    return 0;
}

int fuse_reply_statfs(fuse_req_t req, const struct statvfs *st)
{
    req->fs = *st;
    finish(req, 0);
    return 0;
}

int fuse_reply_xattr(fuse_req_t req, size_t count)
{
    (void)req;
    (void)count;
    return not_used();
}

int fuse_reply_lock(fuse_req_t req, const struct flock *lock)
{
    (void)req;
    (void)lock;
    return not_used();
}

int fuse_reply_lseek(fuse_req_t req, off_t off)
{
    req->off = off;
    finish(req, 0);
    return 0;
}

int fuse_reply_statx(fuse_req_t req, int flags, struct statx *st, double timeout)
{
    (void)req;
    (void)flags;
    (void)st;
    (void)timeout;
    return not_used();
}
