/*
 * Names and directories, passed on to the directory below. They take no time: what is emulated is the device's work on data.
 *
 * Threads of the FUSE loop. Whoever makes something owns it, though this program made it: as root it is given away, else there is
 * nobody else. Permissions are checked by the kernel (default_permissions) before anything comes here.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/slowfs/slowfs.h"

static void reply_entry(fuse_req_t req, struct slow_node *parent, const char *name)
{
    struct fuse_entry_param e;
    int rc = slow_find(slow_of(req), parent, name, &e);

    if (rc == 0)
        fuse_reply_entry(req, &e);
    else
        fuse_reply_err(req, rc);
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct slow_fs *fs = slow_of(req);
    int rc = slow_fails(fs, SLOW_LOOKUP);

    if (rc)
        fuse_reply_err(req, rc);
    else
        reply_entry(req, slow_node(fs, parent), name);
}

static void do_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
    slow_forget(slow_of(req), ino, lookups);
    fuse_reply_none(req);
}

static void do_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    for (size_t i = 0; i < count; i++)
        slow_forget(slow_of(req), forgets[i].ino, forgets[i].nlookup);
    fuse_reply_none(req);
}

static void do_readlink(fuse_req_t req, fuse_ino_t ino)
{
    char target[PATH_MAX + 1];
    ssize_t n = readlinkat(slow_node(slow_of(req), ino)->fd, "", target, sizeof(target) - 1);

    if (n < 0) {
        fuse_reply_err(req, errno);
        return;
    }
    target[n] = '\0';
    fuse_reply_readlink(req, target);
}

/* ---------------------------------------------------------------- making */

/* The name belongs to who asked for it; its group to the directory, if that says so. */
static int give(fuse_req_t req, const struct slow_node *parent, const char *name)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct stat st;
    gid_t gid = ctx->gid;

    if (geteuid() != 0)
        return 0;
    if (fstatat(parent->fd, "", &st, AT_EMPTY_PATH) == 0 && (st.st_mode & S_ISGID))
        gid = (gid_t)-1;
    return fchownat(parent->fd, name, ctx->uid, gid, AT_SYMLINK_NOFOLLOW) < 0 ? errno : 0;
}

static void made(fuse_req_t req, struct slow_node *parent, const char *name, int rc)
{
    if (rc == 0)
        rc = give(req, parent, name);
    if (rc)
        fuse_reply_err(req, rc);
    else
        reply_entry(req, parent, name);
}

static void do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    struct slow_fs *fs = slow_of(req);
    struct slow_node *p = slow_node(fs, parent);
    int rc = slow_fails(fs, SLOW_CREATE);

    if (rc == 0 && mknodat(p->fd, name, mode, rdev) < 0)
        rc = errno;
    made(req, p, name, rc);
}

static void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct slow_fs *fs = slow_of(req);
    struct slow_node *p = slow_node(fs, parent);
    int rc = slow_fails(fs, SLOW_MKDIR);

    if (rc == 0 && mkdirat(p->fd, name, mode) < 0)
        rc = errno;
    made(req, p, name, rc);
}

static void do_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    struct slow_fs *fs = slow_of(req);
    struct slow_node *p = slow_node(fs, parent);
    int rc = slow_fails(fs, SLOW_CREATE);

    if (rc == 0 && symlinkat(target, p->fd, name) < 0)
        rc = errno;
    made(req, p, name, rc);
}

static void do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    struct slow_fs *fs = slow_of(req);
    struct slow_node *n = slow_node(fs, ino), *p = slow_node(fs, parent);
    struct fuse_entry_param e;
    char path[SLOW_PATH_BUF];
    int rc = slow_fails(fs, SLOW_CREATE);

    if (rc == 0 && linkat(AT_FDCWD, slow_path(n, path), p->fd, name, AT_SYMLINK_FOLLOW) < 0)
        rc = errno;
    if (rc == 0)
        rc = slow_found(fs, n, &e);
    if (rc == 0)
        fuse_reply_entry(req, &e);
    else
        fuse_reply_err(req, rc);
}

static void do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
    struct slow_fs *fs = slow_of(req);
    struct slow_node *p = slow_node(fs, parent);
    struct fuse_entry_param e;
    int rc = slow_fails(fs, SLOW_CREATE), fd = -1;

    if (rc == 0 && (fd = openat(p->fd, name, (fi->flags & ~O_DIRECT) | O_CREAT | O_NOFOLLOW | O_CLOEXEC, mode)) < 0)
        rc = errno;
    if (rc == 0)
        rc = give(req, p, name);
    if (rc == 0)
        rc = slow_find(fs, p, name, &e);
    fi->fh = (uint64_t)fd;
    if (rc == 0 && fuse_reply_create(req, &e, fi) == 0)
        return;
    if (fd >= 0)
        close(fd);
    if (rc == 0)
        slow_forget(fs, e.ino, 1); /* the program was killed meanwhile */
    else
        fuse_reply_err(req, rc);
}

/* ---------------------------------------------------------------- removing, renaming */

static void do_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct slow_fs *fs = slow_of(req);
    int rc = slow_fails(fs, SLOW_UNLINK);

    if (rc == 0 && unlinkat(slow_node(fs, parent)->fd, name, 0) < 0)
        rc = errno;
    fuse_reply_err(req, rc);
}

static void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct slow_fs *fs = slow_of(req);
    int rc = slow_fails(fs, SLOW_UNLINK);

    if (rc == 0 && unlinkat(slow_node(fs, parent)->fd, name, AT_REMOVEDIR) < 0)
        rc = errno;
    fuse_reply_err(req, rc);
}

static void do_rename(fuse_req_t req, fuse_ino_t from, const char *name, fuse_ino_t to, const char *new_name, unsigned flags)
{
    struct slow_fs *fs = slow_of(req);
    int rc = slow_fails(fs, SLOW_RENAME);

    if (rc == 0 && renameat2(slow_node(fs, from)->fd, name, slow_node(fs, to)->fd, new_name, flags) < 0)
        rc = errno;
    fuse_reply_err(req, rc);
}

/* ---------------------------------------------------------------- directories */

struct listing {
    DIR *d;
    struct dirent *held; /* read, and did not fit the last answer */
    off_t at;
};

static void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct slow_fs *fs = slow_of(req);
    struct listing *l = calloc(1, sizeof(*l));
    int rc = slow_fails(fs, SLOW_OPEN), fd = -1;

    if (!l)
        rc = ENOMEM;
    if (rc == 0 && (fd = openat(slow_node(fs, ino)->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        rc = errno;
    if (rc == 0 && !(l->d = fdopendir(fd)))
        rc = errno;
    fi->fh = (uintptr_t)l;
    if (rc == 0 && fuse_reply_open(req, fi) == 0)
        return;
    if (rc)
        fuse_reply_err(req, rc);
    if (l && l->d)
        closedir(l->d);
    else if (fd >= 0)
        close(fd);
    free(l);
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    struct listing *l = (struct listing *)(uintptr_t)fi->fh;
    char *buf = malloc(size);
    size_t used = 0, n;

    (void)ino;
    if (!buf) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    if (off != l->at) {
        seekdir(l->d, off);
        l->held = NULL;
        l->at = off;
    }
    for (;;) {
        errno = 0;
        if (!l->held && !(l->held = readdir(l->d)))
            break;
        struct stat st = {.st_ino = l->held->d_ino, .st_mode = (mode_t)DTTOIF(l->held->d_type)};
        off_t next = telldir(l->d);
        n = fuse_add_direntry(req, buf + used, size - used, l->held->d_name, &st, next);
        if (n > size - used)
            break;
        used += n;
        l->held = NULL;
        l->at = next;
    }
    if (errno && used == 0 && !l->held)
        fuse_reply_err(req, errno);
    else
        fuse_reply_buf(req, buf, used);
    free(buf);
}

static void do_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct listing *l = (struct listing *)(uintptr_t)fi->fh;

    (void)ino;
    closedir(l->d);
    free(l);
    fuse_reply_err(req, 0);
}

static void do_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    struct slow_fs *fs = slow_of(req);
    int rc = slow_fails(fs, SLOW_FSYNC), fd = dirfd(((struct listing *)(uintptr_t)fi->fh)->d);

    (void)ino;
    if (rc == 0 && (datasync ? fdatasync(fd) : fsync(fd)) < 0)
        rc = errno;
    fuse_reply_err(req, rc);
}

void slow_name_ops(struct fuse_lowlevel_ops *ops)
{
    ops->lookup = do_lookup;
    ops->forget = do_forget;
    ops->forget_multi = do_forget_multi;
    ops->readlink = do_readlink;
    ops->mknod = do_mknod;
    ops->mkdir = do_mkdir;
    ops->symlink = do_symlink;
    ops->link = do_link;
    ops->create = do_create;
    ops->unlink = do_unlink;
    ops->rmdir = do_rmdir;
    ops->rename = do_rename;
    ops->opendir = do_opendir;
    ops->readdir = do_readdir;
    ops->releasedir = do_releasedir;
    ops->fsyncdir = do_fsyncdir;
}
