/*
 * Operations that aux-apps are told of: the same as all others, with a look before and a word after.
 *
 * When the mount starts it is known which calls somebody wants (cl_aux_events_wanted): only their entries in the table of operations are replaced by the functions
 * here, so a call that nobody asked for costs nothing, and a mount without aux-apps one branch with each reply (cl_replying in ops.h). What is
 * to be told afterwards is kept under the request until the reply goes out, on whatever thread that is: an operation need not know of it. The
 * event is queued before the reply, so that it comes before those of what the application does next.
 *
 * create is watched whenever aux-apps take chunks: it is the only time that the name of a new file is known here.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/aux/aux.h"
#include "client/aux/events.h"
#include "client/aux/files.h"
#include "client/ops/ops.h"
#include "client/receive.h"
#include "fp/clock.h"

#define BUCKETS 256u

struct seen {
    struct seen *next;
    fuse_req_t req;
    struct cl_mount *m;
    bool tell;
    struct fp_aux_io io; /* its pointers point behind this struct */
    char text[];
};

static struct {
    pthread_mutex_t lock;
    struct seen *bucket[BUCKETS];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool cl_ops_watched;

static struct seen **bucket_of(fuse_req_t req)
{
    return &table.bucket[((uintptr_t)req >> 6) % BUCKETS];
}

/* -------------------------------------------------------------- before */

static void put_text(char **at, const char **text)
{
    size_t len;
    if (!*text)
        return;
    len = strlen(*text) + 1;
    memcpy(*at, *text, len);
    *text = *at;
    *at += len;
}

/* Keeps a copy of io until the reply. */
static bool remember(fuse_req_t req, const struct fp_aux_io *io, bool tell, bool with_data)
{
    size_t data = with_data ? io->len_bytes : 0;
    size_t text = (io->name ? strlen(io->name) + 1 : 0) + (io->new_name ? strlen(io->new_name) + 1 : 0);
    struct seen *s = malloc(sizeof *s + data + text);
    char *at;
    if (!s)
        return false;
    *s = (struct seen){.req = req, .m = cl_mount_of(req), .tell = tell, .io = *io};
    at = s->text + data;
    put_text(&at, &s->io.name);
    put_text(&at, &s->io.new_name);
    s->io.data = NULL;
    if (data) {
        memcpy(s->text, io->data, data);
        s->io.data = (const uint8_t *)s->text;
    }
    pthread_mutex_lock(&table.lock);
    s->next = *bucket_of(req);
    *bucket_of(req) = s;
    pthread_mutex_unlock(&table.lock);
    return true;
}

/* Nobody can take it back: what it gives back would be lost. */
static bool is_release(uint32_t op)
{
    return op == FP_AUX_OP_RELEASE || op == FP_AUX_OP_RELEASEDIR;
}

/* A program that closes does not try again. */
static bool is_end(uint32_t op)
{
    return op == FP_AUX_OP_FLUSH || is_release(op);
}

/* False: an aux-app refuses the call, and it has been answered. */
static bool admit(fuse_req_t req, struct fp_aux_io *io)
{
    struct cl_aux *a = cl_mount_of(req)->aux;
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    unsigned wants = cl_aux_events_wanted(a, (enum fp_aux_op)io->op);
    bool named = io->op == FP_AUX_OP_CREATE && io->name, tell;
    int rc = 0;
    if (!wants && !named)
        return true;
    io->size_bytes = sizeof *io;
    io->ino &= ~CL_STAND_IN;
    io->parent &= ~CL_STAND_IN;
    io->uid = ctx->uid;
    io->gid = ctx->gid;
    io->pid = (uint32_t)ctx->pid;
    io->time_ns = fp_wall_ns();
    if (wants & AUX_WANTS_BEFORE)
        rc = cl_aux_events_before(a, io, is_end(io->op) ? NULL : cl_req_interrupted, req);
    if (rc < 0 && !is_release(io->op)) {
        cl_reply_err(req, -rc);
        return false;
    }
    tell = (wants & AUX_WANTS_AFTER) && cl_aux_events_reserve(a);
    if (tell || named) {
        bool with_data = io->data && tell && ((wants & AUX_WANTS_DATA) || io->op != FP_AUX_OP_WRITE);
        if (!remember(req, io, tell, with_data) && tell)
            cl_aux_events_unreserve(a);
    }
    return true;
}

/* -------------------------------------------------------------- after */

static struct seen *take(fuse_req_t req)
{
    struct seen **p, *s;
    pthread_mutex_lock(&table.lock);
    for (p = bucket_of(req); *p && (*p)->req != req; p = &(*p)->next)
        ;
    s = *p;
    if (s)
        *p = s->next;
    pthread_mutex_unlock(&table.lock);
    return s;
}

static bool counts_bytes(uint32_t op)
{
    return op == FP_AUX_OP_READ || op == FP_AUX_OP_WRITE || op == FP_AUX_OP_COPY_FILE_RANGE;
}

void cl_op_replying(fuse_req_t req, int64_t result, uint64_t ino)
{
    struct seen *s = take(req);
    if (!s)
        return;
    if (s->io.op == FP_AUX_OP_CREATE && result == 0 && s->io.name)
        cl_aux_files_named(s->m->aux, ino, s->io.parent, s->io.name);
    s->io.result = result < 0 ? (int32_t)result : 0;
    if (result > 0 && counts_bytes(s->io.op) && (uint64_t)result < s->io.len_bytes)
        s->io.len_bytes = (uint64_t)result;
    if (s->io.ino == 0)
        s->io.ino = ino;
    if (s->tell)
        cl_aux_events_after(s->m->aux, &s->io);
    free(s);
}

/* -------------------------------------------------------------- the operations */

#define WATCHED(op_name, ...)                                                                                \
    struct fp_aux_io io = {.op = op_name, __VA_ARGS__};                                                      \
    if (!admit(req, &io))                                                                                    \
    return

static void w_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    WATCHED(FP_AUX_OP_LOOKUP, .parent = parent, .name = name);
    cl_op_lookup(req, parent, name);
}

static void w_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_GETATTR, .ino = ino);
    cl_op_getattr(req, ino, fi);
}

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
static void w_statx(fuse_req_t req, fuse_ino_t ino, int flags, int mask, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_GETATTR, .ino = ino);
    cl_op_statx(req, ino, flags, mask, fi);
}
#endif

static void w_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                      struct fuse_file_info *fi)
{
    bool size = to_set & FUSE_SET_ATTR_SIZE;
    WATCHED(size ? FP_AUX_OP_TRUNCATE : FP_AUX_OP_SETATTR, .ino = ino, .flags = (uint32_t)to_set,
            .mode = to_set & FUSE_SET_ATTR_MODE ? attr->st_mode : 0,
            .off = size ? (uint64_t)attr->st_size : 0);
    cl_op_setattr(req, ino, attr, to_set, fi);
}

static void w_readlink(fuse_req_t req, fuse_ino_t ino)
{
    WATCHED(FP_AUX_OP_READLINK, .ino = ino);
    cl_op_readlink(req, ino);
}

static void w_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    WATCHED(FP_AUX_OP_MKNOD, .parent = parent, .name = name, .mode = mode);
    cl_op_mknod(req, parent, name, mode, rdev);
}

static void w_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    WATCHED(FP_AUX_OP_MKDIR, .parent = parent, .name = name, .mode = mode);
    cl_op_mkdir(req, parent, name, mode);
}

static void w_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    WATCHED(FP_AUX_OP_SYMLINK, .parent = parent, .name = name, .new_name = target);
    cl_op_symlink(req, target, parent, name);
}

static void w_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    WATCHED(FP_AUX_OP_UNLINK, .parent = parent, .name = name);
    cl_op_unlink(req, parent, name);
}

static void w_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    WATCHED(FP_AUX_OP_RMDIR, .parent = parent, .name = name);
    cl_op_rmdir(req, parent, name);
}

static void w_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                     const char *new_name, unsigned flags)
{
    WATCHED(FP_AUX_OP_RENAME, .parent = parent, .name = name, .new_parent = new_parent, .new_name = new_name,
            .flags = flags);
    cl_op_rename(req, parent, name, new_parent, new_name, flags);
}

static void w_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    WATCHED(FP_AUX_OP_LINK, .ino = ino, .new_parent = parent, .new_name = name);
    cl_op_link(req, ino, parent, name);
}

static void w_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_OPEN, .ino = ino, .flags = (uint32_t)fi->flags);
    cl_op_open(req, ino, fi);
}

static void w_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                     struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_CREATE, .parent = parent, .name = name, .mode = mode, .flags = (uint32_t)fi->flags);
    cl_op_create(req, parent, name, mode, fi);
}

static void w_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_CREATE, .parent = parent, .mode = mode, .flags = (uint32_t)fi->flags);
    cl_op_tmpfile(req, parent, mode, fi);
}

static void w_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_RELEASE, .ino = ino);
    cl_op_release(req, ino, fi);
}

static void w_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_READ, .ino = ino, .off = (uint64_t)off, .len_bytes = size);
    cl_op_read(req, ino, size, off, fi);
}

static void w_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    if (cl_aux_events_wanted(cl_mount_of(req)->aux, FP_AUX_OP_WRITE) & (AUX_WANTS_BEFORE | AUX_WANTS_DATA))
        cl_received_flat(buf);
    WATCHED(FP_AUX_OP_WRITE, .ino = ino, .off = (uint64_t)off, .len_bytes = size, .data = (const uint8_t *)buf);
    cl_op_write(req, ino, buf, size, off, fi);
}

static void w_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (cl_handle_of(fi)->quiet) { /* only for locks: without them the kernel would not tell */
        cl_op_flush(req, ino, fi);
        return;
    }
    WATCHED(FP_AUX_OP_FLUSH, .ino = ino);
    cl_op_flush(req, ino, fi);
}

static void w_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_FSYNC, .ino = ino, .flags = (uint32_t)datasync);
    cl_op_fsync(req, ino, datasync, fi);
}

static void w_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_FSYNCDIR, .ino = ino, .flags = (uint32_t)datasync);
    cl_op_fsyncdir(req, ino, datasync, fi);
}

static void w_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_OPENDIR, .ino = ino, .flags = (uint32_t)fi->flags);
    cl_op_opendir(req, ino, fi);
}

static void w_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_RELEASEDIR, .ino = ino);
    cl_op_releasedir(req, ino, fi);
}

static void w_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_READDIR, .ino = ino, .off = (uint64_t)off);
    cl_op_readdir(req, ino, size, off, fi);
}

static void w_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_READDIR, .ino = ino, .off = (uint64_t)off);
    cl_op_readdirplus(req, ino, size, off, fi);
}

static void w_statfs(fuse_req_t req, fuse_ino_t ino)
{
    WATCHED(FP_AUX_OP_STATFS, .ino = ino);
    cl_op_statfs(req, ino);
}

static void w_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
                       int flags)
{
    WATCHED(FP_AUX_OP_SETXATTR, .ino = ino, .name = name, .data = (const uint8_t *)value, .len_bytes = size,
            .flags = (uint32_t)flags);
    cl_op_setxattr(req, ino, name, value, size, flags);
}

static void w_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    WATCHED(FP_AUX_OP_GETXATTR, .ino = ino, .name = name);
    cl_op_getxattr(req, ino, name, size);
}

static void w_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    WATCHED(FP_AUX_OP_LISTXATTR, .ino = ino);
    cl_op_listxattr(req, ino, size);
}

static void w_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    WATCHED(FP_AUX_OP_REMOVEXATTR, .ino = ino, .name = name);
    cl_op_removexattr(req, ino, name);
}

static void w_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
                        struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_FALLOCATE, .ino = ino, .off = (uint64_t)off, .len_bytes = (uint64_t)len,
            .mode = (uint32_t)mode);
    cl_op_fallocate(req, ino, mode, off, len, fi);
}

static void w_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
    WATCHED(FP_AUX_OP_LSEEK, .ino = ino, .off = (uint64_t)off, .flags = (uint32_t)whence);
    cl_op_lseek(req, ino, off, whence, fi);
}

static void w_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in, struct fuse_file_info *fi_in,
                              fuse_ino_t ino_out, off_t off_out, struct fuse_file_info *fi_out, size_t len,
                              int flags)
{
    WATCHED(FP_AUX_OP_COPY_FILE_RANGE, .ino = ino_out, .off = (uint64_t)off_out, .len_bytes = len,
            .src_ino = ino_in, .src_off = (uint64_t)off_in, .flags = (uint32_t)flags);
    cl_op_copy_file_range(req, ino_in, off_in, fi_in, ino_out, off_out, fi_out, len, flags);
}

static void w_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
                    unsigned flags, const void *in_buf, size_t in_bufsz, size_t out_bufsz)
{
    WATCHED(FP_AUX_OP_IOCTL, .ino = ino, .flags = cmd);
    cl_op_ioctl(req, ino, cmd, arg, fi, flags, in_buf, in_bufsz, out_bufsz);
}

#define WATCH(op_name, field)                                                                                \
    do {                                                                                                     \
        if (cl_aux_events_wanted(a, op_name)) {                                                              \
            ops->field = w_##field;                                                                          \
            cl_ops_watched = true;                                                                           \
        }                                                                                                    \
    } while (0)

static void watch_names(struct cl_aux *a, struct fuse_lowlevel_ops *ops)
{
    WATCH(FP_AUX_OP_LOOKUP, lookup);
    WATCH(FP_AUX_OP_READLINK, readlink);
    WATCH(FP_AUX_OP_MKNOD, mknod);
    WATCH(FP_AUX_OP_MKDIR, mkdir);
    WATCH(FP_AUX_OP_SYMLINK, symlink);
    WATCH(FP_AUX_OP_UNLINK, unlink);
    WATCH(FP_AUX_OP_RMDIR, rmdir);
    WATCH(FP_AUX_OP_RENAME, rename);
    WATCH(FP_AUX_OP_LINK, link);
    WATCH(FP_AUX_OP_OPENDIR, opendir);
    WATCH(FP_AUX_OP_READDIR, readdir);
    WATCH(FP_AUX_OP_READDIR, readdirplus);
    WATCH(FP_AUX_OP_RELEASEDIR, releasedir);
    WATCH(FP_AUX_OP_FSYNCDIR, fsyncdir);
    WATCH(FP_AUX_OP_STATFS, statfs);
}

static void watch_files(struct cl_aux *a, struct fuse_lowlevel_ops *ops)
{
    WATCH(FP_AUX_OP_GETATTR, getattr);
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
    WATCH(FP_AUX_OP_GETATTR, statx);
#endif
    WATCH(FP_AUX_OP_SETATTR, setattr);
    WATCH(FP_AUX_OP_TRUNCATE, setattr);
    WATCH(FP_AUX_OP_OPEN, open);
    WATCH(FP_AUX_OP_CREATE, tmpfile);
    WATCH(FP_AUX_OP_RELEASE, release);
    WATCH(FP_AUX_OP_READ, read);
    WATCH(FP_AUX_OP_WRITE, write);
    WATCH(FP_AUX_OP_FLUSH, flush);
    WATCH(FP_AUX_OP_FSYNC, fsync);
    WATCH(FP_AUX_OP_SETXATTR, setxattr);
    WATCH(FP_AUX_OP_GETXATTR, getxattr);
    WATCH(FP_AUX_OP_LISTXATTR, listxattr);
    WATCH(FP_AUX_OP_REMOVEXATTR, removexattr);
    WATCH(FP_AUX_OP_FALLOCATE, fallocate);
    WATCH(FP_AUX_OP_LSEEK, lseek);
    WATCH(FP_AUX_OP_COPY_FILE_RANGE, copy_file_range);
    WATCH(FP_AUX_OP_IOCTL, ioctl);
}

void cl_ops_watch(struct cl_mount *m, struct fuse_lowlevel_ops *ops)
{
    if (!m->aux)
        return;
    watch_names(m->aux, ops);
    watch_files(m->aux, ops);
    ops->create = w_create;
    cl_ops_watched = true;
}
