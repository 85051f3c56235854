/*
 * opendir, readdir, readdirplus.
 *
 * An entry's offset is the manager's cookie of that entry plus 2: 0 is the start, 1 comes after ".", 2 after
 * "..". Cookies are stable while the directory changes, so no state is kept between calls. The manager is
 * told of open directories, as of open files, so that one that is removed meanwhile can still be looked at.
 *
 * The kernel says how many bytes it takes; we ask for as many entries as could fit, and what does not fit is
 * asked again from the last cookie. readdirplus is used by the kernel where it expects the attributes to be
 * looked at (READDIRPLUS_AUTO).
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/ops/ops.h"
#include "client/walk.h"

#define NAME_BUF        (CL_NAME_MAX_BYTES + 1)
#define ENTRY_MIN_BYTES 32u /* of the kernel's format, with a name of 8 bytes */
#define PLUS_MIN_BYTES  160u
#define ENTRIES_MAX     4096u
#define DOT_ENTRIES     2

struct filler {
    struct cl_op *op;
    char *buf;
    size_t used;
};

/* An open directory; fi->fh points to it. */
struct dir_handle {
    struct cl_open open; /* first */
    struct cl_inode *inode;
    _Atomic uint64_t end; /* entries with this cookie or more were made after reading began; 0: not known */
};

static struct dir_handle *dir_of(const struct fuse_file_info *fi)
{
    return (struct dir_handle *)(uintptr_t)fi->fh;
}

static void let_go(struct cl_mount *m, struct dir_handle *h)
{
    cl_open_remove(m, &h->open);
    cl_mgr_release(m, h->inode, false, false);
    cl_inode_put(m, h->inode);
    free(h);
}

static void done_opendir(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    const Fp__Attr *a = status == 0 ? ((const Fp__AttrReply *)reply)->attr : NULL;
    struct dir_handle *h = a ? calloc(1, sizeof *h) : NULL;
    if (!h || !(h->inode = cl_inode_intern(op->m, a))) {
        free(h);
        cl_op_reply_err(op, status < 0 ? status : a ? -ENOMEM : -EPROTO);
        return;
    }
    cl_inode_hold(op->m, h->inode, false);
    cl_open_add(op->m, &h->open);
    op->open.fi.fh = (uintptr_t)h;
    cl_walk_forget(cl_tid(op->req)); /* what comes through the descriptor has not come by a name */
    if (cl_reply_open(op->req, &op->open.fi) == -ENOENT)
        let_go(op->m, h); /* the caller was killed meanwhile: no releasedir will come */
    cl_op_free(op);
}

void cl_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    Fp__Open msg = FP__OPEN__INIT;
    struct cl_op *op = cl_is_stand_in(req, ino) ? NULL : cl_op_new(req);
    if (!op)
        return;
    op->open.fi = *fi;
    op->node = msg.ino = ino;
    cl_op_call(op, FP__MSG_TYPE__MSG_OPEN, &msg.base, done_opendir);
}

void cl_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    let_go(cl_mount_of(req), dir_of(fi));
    cl_reply_err(req, 0);
}

/* False: it does not fit any more. */
static bool add(struct filler *f, const char *name, const struct fuse_entry_param *e, off_t next)
{
    struct cl_op *op = f->op;
    size_t room = op->dir.size - f->used, need;
    if (op->dir.plus)
        need = fuse_add_direntry_plus(op->req, f->buf + f->used, room, name, e, next);
    else
        need = fuse_add_direntry(op->req, f->buf + f->used, room, name, &e->attr, next);
    if (need > room)
        return false;
    f->used += need;
    return true;
}

/* "." and "..": the kernel does not look them up, so number and type are all that is needed. */
static bool add_dot(struct filler *f, const char *name, uint64_t ino, off_t next)
{
    struct fuse_entry_param e = {.attr = {.st_ino = ino, .st_mode = S_IFDIR}};
    return f->op->dir.off >= next || add(f, name, &e, next);
}

static bool add_entry(struct filler *f, const Fp__DirEntry *d)
{
    struct fuse_entry_param e = {0};
    char name[NAME_BUF];
    if (d->name.len == 0 || d->name.len >= sizeof name)
        return true; /* not a name that this kernel could use */
    memcpy(name, d->name.data, d->name.len);
    name[d->name.len] = '\0';
    if (f->op->dir.plus && d->attr) {
        cl_entry_fill(f->op->m, d->attr, &e);
    } else {
        e.attr.st_ino = d->ino;
        e.attr.st_mode = d->mode;
    }
    return add(f, name, &e, (off_t)d->cookie + DOT_ENTRIES);
}

/* Up to the buffer's end, or to what was made after reading began: who renames each entry that it reads would
 * never come to an end otherwise. */
static void add_entries(struct filler *f, const Fp__ReadDirReply *r, uint64_t end)
{
    for (size_t i = 0; i < r->n_entries; i++) {
        if ((end != 0 && r->entries[i]->cookie >= end) || !add_entry(f, r->entries[i]))
            return;
    }
}

static void done_readdir(void *arg, int status, const ProtobufCMessage *msg)
{
    struct cl_op *op = arg;
    const Fp__ReadDirReply *r = (const Fp__ReadDirReply *)msg;
    struct filler f = {.op = op};
    if (status == 0 && !(f.buf = malloc(op->dir.size)))
        status = -ENOMEM;
    if (status < 0) {
        cl_op_reply_err(op, status);
        return;
    }
    if (op->dir.off == 0)
        op->dir.h->end = r->next_cookie;
    if (add_dot(&f, ".", op->dir.ino, 1) && add_dot(&f, "..", r->parent ? r->parent : op->dir.ino, 2))
        add_entries(&f, r, op->dir.h->end);
    cl_reply_buf(op->req, f.buf, f.used);
    free(f.buf);
    cl_op_free(op);
}

static void readdir_common(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct dir_handle *h,
                           bool plus)
{
    Fp__ReadDir msg = FP__READ_DIR__INIT;
    struct cl_op *op = cl_op_new(req);
    if (!op)
        return;
    op->dir.ino = ino;
    op->dir.h = h;
    op->dir.off = off;
    op->dir.size = size;
    op->dir.plus = plus;
    msg.ino = ino;
    msg.cookie = off > DOT_ENTRIES ? (uint64_t)off - DOT_ENTRIES : 0;
    msg.max_entries = (uint32_t)(size / (plus ? PLUS_MIN_BYTES : ENTRY_MIN_BYTES)) + 1;
    if (msg.max_entries > ENTRIES_MAX)
        msg.max_entries = ENTRIES_MAX;
    msg.plus = plus;
    cl_op_call(op, FP__MSG_TYPE__MSG_READDIR, &msg.base, done_readdir);
}

void cl_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    readdir_common(req, ino, size, off, dir_of(fi), false);
}

void cl_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    readdir_common(req, ino, size, off, dir_of(fi), true);
}
