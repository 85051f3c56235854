/*
 * System calls of applications, as the kernel makes FUSE requests of them: look-ups of each part of a path (names are kept for no time), the lock of a directory for
 * what changes it, the lock of an inode for what changes its size, one request for each call. Nothing is cached.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <linux/falloc.h>
#include <linux/fs.h>

#include "tests/sim/fuse.h"
#include "tests/sim/model.h"

#define ROOT     1u
#define LOCKS    4096u
#define DIR_ROOM 8192u

/* Readers and writer of an inode of a mount, as i_rwsem. */
struct ilock {
    struct sim_proc *mount;
    unsigned start;
    uint64_t ino, size; /* the greatest that this node has seen */
    int readers;
    bool writer;
};

static struct ilock locks[LOCKS];
static unsigned nlocks;

static struct ilock *lock_of(struct sim_proc *m, uint64_t ino)
{
    for (unsigned i = 0; i < nlocks; i++)
        if (locks[i].mount == m && locks[i].start == m->starts && locks[i].ino == ino)
            return &locks[i];
    if (nlocks == LOCKS)
        sim_fail("more inodes than the simulator has locks for");
    locks[nlocks] = (struct ilock){.mount = m, .start = m->starts, .ino = ino};
    return &locks[nlocks++];
}

static struct ilock *lock_inode(struct sim_proc *m, uint64_t ino, bool exclusive)
{
    struct ilock *l = lock_of(m, ino);

    while (l->writer || (exclusive && l->readers))
        sim_block(l, SIM_NEVER);
    if (exclusive)
        l->writer = true;
    else
        l->readers++;
    return l;
}

static void unlock_inode(struct ilock *l)
{
    if (l->writer)
        l->writer = false;
    else
        l->readers--;
    sim_wake_all(l);
}

/* ------------------------------------------------------------------ paths */

static int lookup(struct sim_proc *m, uint64_t dir, const char *name, struct fuse_req *r)
{
    memset(r, 0, sizeof *r);
    r->op = SIM_LOOKUP;
    r->ino = dir;
    snprintf(r->name, sizeof r->name, "%s", name);
    return -sim_fuse_call(m, r);
}

static void forget(struct sim_proc *m, uint64_t ino)
{
    struct fuse_req r = {.op = SIM_FORGET, .ino = ino};

    if (ino != ROOT && sim_chance(SIM_RNG_SCHED, 500000))
        sim_fuse_send(m, &r);
}

/* The directory of a path, and its last name. */
static int walk(struct sim_proc *m, const char *path, uint64_t *dir, char name[64])
{
    const char *at = path, *end;

    *dir = ROOT;
    while ((end = strchr(at, '/')) != NULL) {
        struct fuse_req r;
        char part[64];
        int rc;

        snprintf(part, sizeof part, "%.*s", (int)(end - at), at);
        rc = lookup(m, *dir, part, &r);
        if (rc)
            return rc;
        *dir = r.entry.ino;
        at = end + 1;
    }
    snprintf(name, 64, "%s", at);
    return 0;
}

/* What the kernel does with ESTALE. */
#define TWICE(call)                                                                                          \
    ({                                                                                                       \
        int twice_rc = call;                                                                                 \
        twice_rc == -ESTALE ? call : twice_rc;                                                               \
    })

static int try_stat(struct sim_proc *m, const char *path, struct stat *st)
{
    struct fuse_req r;
    uint64_t dir;
    char name[64];
    int rc = walk(m, path, &dir, name);

    if (rc == 0)
        rc = lookup(m, dir, name, &r);
    if (rc)
        return rc;
    if (st)
        *st = r.attr;
    return 0;
}

int vfs_stat(struct sim_proc *m, const char *path, struct stat *st)
{
    return TWICE(try_stat(m, path, st));
}

/* ------------------------------------------------------------------ names */

static int change(struct sim_proc *m, const char *path, enum sim_op op, mode_t mode, const char *target, uint64_t *ino)
{
    struct fuse_req r = {.op = op, .mode = mode, .data = target}, found;
    bool makes = op == SIM_MKDIR || op == SIM_SYMLINK;
    struct ilock *l;
    uint64_t dir;
    int rc = walk(m, path, &dir, r.name);

    if (rc)
        return rc;
    l = lock_inode(m, dir, true);
    rc = lookup(m, dir, r.name, &found);
    if (makes && rc == 0)
        rc = -EEXIST;
    else if (makes && rc == -ENOENT)
        rc = 0;
    if (rc == 0) {
        r.ino = dir;
        rc = -sim_fuse_call(m, &r);
    }
    unlock_inode(l);
    if (rc == 0 && ino)
        *ino = r.entry.ino;
    return rc;
}

int vfs_unlink(struct sim_proc *m, const char *path)
{
    return TWICE(change(m, path, SIM_UNLINK, 0, NULL, NULL));
}

int vfs_mkdir(struct sim_proc *m, const char *path)
{
    return TWICE(change(m, path, SIM_MKDIR, 0755, NULL, NULL));
}

int vfs_rmdir(struct sim_proc *m, const char *path)
{
    return TWICE(change(m, path, SIM_RMDIR, 0, NULL, NULL));
}

int vfs_symlink(struct sim_proc *m, const char *target, const char *path, uint64_t *ino)
{
    return TWICE(change(m, path, SIM_SYMLINK, 0, target, ino));
}

static int try_readlink(struct sim_proc *m, const char *path, char *buf, size_t size, uint64_t *ino)
{
    struct stat st;
    int rc = vfs_stat(m, path, &st);
    struct fuse_req r = {.op = SIM_READLINK, .into = buf, .size = size};

    if (rc)
        return rc;
    *ino = r.ino = st.st_ino;
    rc = -sim_fuse_call(m, &r);
    return rc ? rc : (int)r.count;
}

int vfs_readlink(struct sim_proc *m, const char *path, char *buf, size_t size, uint64_t *ino)
{
    return TWICE(try_readlink(m, path, buf, size, ino));
}

int vfs_statfs(struct sim_proc *m, struct statvfs *fs)
{
    struct fuse_req r = {.op = SIM_STATFS, .ino = ROOT};
    int rc = -sim_fuse_call(m, &r);

    *fs = r.fs;
    return rc;
}

static int try_rename(struct sim_proc *m, const char *from, const char *to, unsigned flags)
{
    struct fuse_req r = {.op = SIM_RENAME, .flags = flags}, found, found2;
    bool same = false;
    struct ilock *a, *b = NULL;
    uint64_t dir, dir2;
    int rc = walk(m, from, &dir, r.name);

    if (rc == 0)
        rc = walk(m, to, &dir2, r.name2);
    if (rc)
        return rc;
    a = lock_inode(m, dir < dir2 ? dir : dir2, true);
    if (dir != dir2)
        b = lock_inode(m, dir < dir2 ? dir2 : dir, true);
    rc = lookup(m, dir, r.name, &found);
    if (rc == 0) {
        rc = lookup(m, dir2, r.name2, &found2);
        same = rc == 0 && found.entry.ino == found2.entry.ino; /* nothing to do */
        rc = rc == 0 && (flags & RENAME_NOREPLACE) ? -EEXIST : rc == -ENOENT && !(flags & RENAME_EXCHANGE) ? 0 : rc;
    }
    if (rc == 0 && !same) {
        r.ino = dir;
        r.ino2 = dir2;
        rc = -sim_fuse_call(m, &r);
    }
    if (b)
        unlock_inode(b);
    unlock_inode(a);
    return rc;
}

int vfs_rename(struct sim_proc *m, const char *from, const char *to, unsigned flags)
{
    return TWICE(try_rename(m, from, to, flags));
}

static int try_link(struct sim_proc *m, const char *from, const char *to)
{
    struct fuse_req r = {.op = SIM_LINK}, found;
    struct ilock *l;
    char name[64];
    uint64_t dir, ino = 0;
    int rc = walk(m, from, &dir, name);

    if (rc == 0 && (rc = lookup(m, dir, name, &found)) == 0)
        ino = found.entry.ino;
    if (rc == 0)
        rc = walk(m, to, &dir, r.name);
    if (rc)
        return rc;
    l = lock_inode(m, dir, true);
    rc = lookup(m, dir, r.name, &found);
    rc = rc == 0 ? -EEXIST : rc == -ENOENT ? 0 : rc;
    if (rc == 0) {
        r.ino = ino;
        r.ino2 = dir;
        rc = -sim_fuse_call(m, &r);
    }
    unlock_inode(l);
    return rc;
}

int vfs_link(struct sim_proc *m, const char *from, const char *to)
{
    return TWICE(try_link(m, from, to));
}

static int open_dir(struct sim_proc *m, const char *path, struct fuse_req *r)
{
    struct stat st = {.st_ino = ROOT};
    int rc = path[0] ? vfs_stat(m, path, &st) : 0;

    if (rc)
        return rc;
    memset(r, 0, sizeof *r);
    r->op = SIM_OPENDIR;
    r->ino = st.st_ino;
    return -sim_fuse_call(m, r);
}

static void close_dir(struct sim_proc *m, struct fuse_req *r)
{
    r->op = SIM_RELEASEDIR;
    sim_fuse_send(m, r);
}

int vfs_fsyncdir(struct sim_proc *m, const char *path)
{
    struct fuse_req r;
    int rc = open_dir(m, path, &r);

    if (!path[0])
        model_asked(0); /* of the root: of all files of this mount */

    if (rc)
        return rc;
    r.op = SIM_FSYNCDIR;
    rc = -sim_fuse_call(m, &r);
    close_dir(m, &r);
    return rc;
}

int vfs_readdir(struct sim_proc *m, const char *path, char *buf, size_t size)
{
    static _Thread_local char page[DIR_ROOM];
    struct fuse_req r;
    int rc = open_dir(m, path, &r), n = 0;
    size_t used = 0;

    if (rc)
        return rc;
    while (rc == 0) {
        size_t at = 0;

        r.op = SIM_READDIR;
        r.into = page;
        r.size = 256; /* so that a directory takes several */
        rc = -sim_fuse_call(m, &r);
        if (rc || r.count == 0)
            break;
        while (at < (size_t)r.count) {
            const char *name = page + at + sizeof r.off;

            memcpy(&r.off, page + at, sizeof r.off);
            at += sizeof r.off + strlen(name) + 1;
            if (used + strlen(name) + 1 > size)
                sim_fail("a directory of more names than there can be: %d", n);
            memcpy(buf + used, name, strlen(name) + 1);
            used += strlen(name) + 1;
            n++;
        }
    }
    close_dir(m, &r);
    return rc ? rc : n;
}

/* ------------------------------------------------------------------ files */

static struct sim_open *file_new(struct sim_proc *m, const struct fuse_req *r, uint64_t ino, int flags)
{
    static uint64_t ids;
    struct sim_open *f = calloc(1, sizeof *f);

    *f = (struct sim_open){.id = ++ids, .mount = m, .start = m->starts, .ino = ino, .flags = flags, .fi = r->fi};
    f->fi.flags = flags & ~(O_CREAT | O_EXCL | O_TRUNC);
    return f;
}

static int create(struct sim_proc *m, uint64_t dir, struct fuse_req *r, int flags)
{
    r->op = SIM_CREATE;
    r->ino = dir;
    r->mode = S_IFREG | 0644;
    r->fi = (struct fuse_file_info){.flags = flags & ~O_TRUNC};
    return -sim_fuse_call(m, r);
}

static int try_open(struct sim_proc *m, const char *path, int flags, struct sim_open **out)
{
    struct fuse_req r;
    struct ilock *l;
    char name[64];
    uint64_t dir, ino;
    int rc = walk(m, path, &dir, name);

    if (rc)
        return rc;
    l = flags & O_CREAT ? lock_inode(m, dir, true) : NULL;
    rc = lookup(m, dir, name, &r);
    bool made = rc == -ENOENT && (flags & O_CREAT);

    if (made)
        rc = create(m, dir, &r, flags);
    else if (rc == 0 && (flags & O_CREAT) && (flags & O_EXCL))
        rc = -EEXIST;
    ino = r.entry.ino;
    if (l)
        unlock_inode(l);
    if (rc == 0 && !made) {
        r.op = SIM_OPEN;
        r.ino = ino;
        r.fi = (struct fuse_file_info){.flags = flags & ~(O_CREAT | O_EXCL | O_TRUNC)};
        rc = -sim_fuse_call(m, &r);
    }
    if (rc)
        return rc;
    *out = file_new(m, &r, ino, flags);
    lock_of(m, ino)->size = made ? 0 : (uint64_t)r.attr.st_size;
    if (!made && (flags & O_TRUNC)) {
        rc = vfs_ftruncate(*out, 0);
        if (rc) {
            vfs_close(*out);
            *out = NULL;
        }
    }
    forget(m, ino);
    return rc;
}

int vfs_open(struct sim_proc *m, const char *path, int flags, struct sim_open **out)
{
    return TWICE(try_open(m, path, flags, out));
}

static int call(struct sim_open *f, struct fuse_req *r)
{
    if (f->start != f->mount->starts)
        return -ENOTCONN;
    r->ino = f->ino;
    r->fi = f->fi;
    return -sim_fuse_call(f->mount, r);
}

ssize_t vfs_pread(struct sim_open *f, void *buf, size_t len, off_t off)
{
    struct fuse_req r = {.op = SIM_READ, .into = buf, .size = len, .off = off};
    int rc = call(f, &r);

    return rc ? rc : r.count;
}

ssize_t vfs_pwrite(struct sim_open *f, const void *buf, size_t len, off_t off)
{
    struct fuse_req r = {.op = SIM_WRITE, .data = buf, .size = len, .off = off};
    struct ilock *l = lock_of(f->mount, f->ino);
    int rc;

    l = lock_inode(f->mount, f->ino, (uint64_t)off + len > l->size);
    rc = call(f, &r);
    if (rc == 0 && (uint64_t)off + len > l->size)
        l->size = (uint64_t)off + len;
    unlock_inode(l);
    return rc ? rc : r.count;
}

/* The place is the end that this node knows of, which the mount is not to believe. */
ssize_t vfs_append(struct sim_open *f, const void *buf, size_t len)
{
    struct fuse_req r = {.op = SIM_WRITE, .data = buf, .size = len};
    struct ilock *l = lock_inode(f->mount, f->ino, true);
    int rc;

    r.off = (off_t)l->size;
    rc = call(f, &r);
    if (rc == 0)
        l->size += (uint64_t)r.count;
    unlock_inode(l);
    return rc ? rc : r.count;
}

int vfs_ftruncate(struct sim_open *f, off_t size)
{
    struct fuse_req r = {.op = SIM_SETATTR, .to_set = FUSE_SET_ATTR_SIZE, .attr = {.st_size = size}};
    struct ilock *l = lock_inode(f->mount, f->ino, true);
    int rc = call(f, &r);

    if (rc == 0)
        l->size = (uint64_t)size;
    unlock_inode(l);
    return rc;
}

static void grows(struct ilock *l, uint64_t end)
{
    l->size = end > l->size ? end : l->size;
}

int vfs_fallocate(struct sim_open *f, int mode, off_t off, off_t len)
{
    struct fuse_req r = {.op = SIM_FALLOCATE, .how = mode, .off = off, .size = (size_t)len};
    struct ilock *l = lock_inode(f->mount, f->ino, true);
    int rc = call(f, &r);

    if (rc == 0 && !(mode & FALLOC_FL_KEEP_SIZE))
        grows(l, (uint64_t)(off + len));
    unlock_inode(l);
    return rc;
}

off_t vfs_lseek(struct sim_open *f, off_t off, int whence)
{
    struct fuse_req r = {.op = SIM_LSEEK, .off = off, .how = whence};
    int rc = call(f, &r);

    return rc ? rc : r.off;
}

ssize_t vfs_copy(struct sim_open *in, off_t off_in, struct sim_open *out, off_t off_out, size_t len)
{
    struct fuse_req r = {.op = SIM_COPY, .off = off_in, .ino2 = out->ino, .fi2 = out->fi, .off2 = off_out, .size = len};
    struct ilock *l = lock_inode(out->mount, out->ino, true);
    int rc = out->start == out->mount->starts ? call(in, &r) : -ENOTCONN;

    if (rc == 0)
        grows(l, (uint64_t)off_out + (uint64_t)r.count);
    unlock_inode(l);
    return rc ? rc : r.count;
}

/* Pages go by themselves, from no program: whoever has the file open for writing lends its handle. Truncation waits for them, as the kernel has it. */
ssize_t vfs_store(struct sim_open *f, const void *buf, size_t len, off_t off)
{
    struct fuse_req r = {.op = SIM_WRITE, .data = buf, .size = len, .off = off};
    struct ilock *l = lock_inode(f->mount, f->ino, false);
    int rc = 0;

    r.count = 0;
    if ((uint64_t)off + len <= l->size) {
        r.ino = f->ino;
        r.fi = f->fi;
        r.fi.writepage = true;
        r.fi.lock_owner = 0;
        rc = f->start == f->mount->starts ? -sim_fuse_call(f->mount, &r) : -ENOTCONN;
    }
    unlock_inode(l);
    return rc ? rc : r.count;
}

int vfs_fsetattr(struct sim_open *f, int to_set, const struct stat *st)
{
    struct fuse_req r = {.op = SIM_SETATTR, .to_set = to_set, .attr = *st};
    struct ilock *l = lock_inode(f->mount, f->ino, true);
    int rc = call(f, &r);

    unlock_inode(l);
    return rc;
}

int vfs_fsync(struct sim_open *f)
{
    struct fuse_req r = {.op = SIM_FSYNC};

    model_asked(f->ino);
    return call(f, &r);
}

static int call_locking(struct sim_open *f, struct fuse_req *r, uint64_t wait_ns)
{
    if (f->start != f->mount->starts)
        return -ENOTCONN;
    r->ino = f->ino;
    r->fi = f->fi;
    r->fi.lock_owner = r->op == SIM_SETLK ? f->process : f->id;
    return -sim_fuse_call_until(f->mount, r, wait_ns ? sim.now_ns + wait_ns : SIM_NEVER);
}

int vfs_lock(struct sim_open *f, int type, off_t off, off_t len, uint64_t wait_ns)
{
    struct fuse_req r = {.op = SIM_SETLK, .sleep = wait_ns != 0, .lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = off, .l_len = len, .l_pid = (pid_t)f->process}};

    return call_locking(f, &r, wait_ns);
}

int vfs_flock(struct sim_open *f, int type, uint64_t wait_ns)
{
    struct fuse_req r = {.op = SIM_FLOCK};

    r.flags = (unsigned)(type == F_UNLCK ? LOCK_UN : type == F_RDLCK ? LOCK_SH : LOCK_EX) | (wait_ns ? 0 : LOCK_NB);
    return call_locking(f, &r, wait_ns);
}

int vfs_fstat(struct sim_open *f, struct stat *st)
{
    struct fuse_req r = {.op = SIM_GETATTR};
    int rc = call(f, &r);

    *st = r.attr;
    return rc;
}

static struct fuse_req xattr(enum sim_op op, const char *name)
{
    struct fuse_req r = {.op = op};

    snprintf(r.name, sizeof r.name, "%s", name);
    return r;
}

int vfs_setxattr(struct sim_open *f, const char *name, const char *value, size_t len)
{
    struct fuse_req r = xattr(SIM_SETXATTR, name);

    r.data = value;
    r.size = len;
    return call(f, &r);
}

int vfs_removexattr(struct sim_open *f, const char *name)
{
    struct fuse_req r = xattr(SIM_REMOVEXATTR, name);

    return call(f, &r);
}

ssize_t vfs_getxattr(struct sim_open *f, const char *name, char *buf, size_t size)
{
    struct fuse_req r = xattr(SIM_GETXATTR, name);
    int rc;

    r.into = buf;
    r.size = size;
    rc = call(f, &r);
    return rc ? rc : r.count;
}

ssize_t vfs_listxattr(struct sim_open *f, char *buf, size_t size)
{
    struct fuse_req r = {.op = SIM_LISTXATTR, .into = buf, .size = size};
    int rc = call(f, &r);

    return rc ? rc : r.count;
}

int vfs_close(struct sim_open *f)
{
    struct fuse_req r = {.op = SIM_FLUSH};
    int rc;

    if (f->start == f->mount->starts && f->mount->up && (f->flags & O_ACCMODE) != O_RDONLY)
        model_closes(f->ino, f->mount);
    f->fi.lock_owner = f->process;
    rc = f->fi.noflush ? 0 : call(f, &r);
    f->fi.lock_owner = f->id;
    f->fi.flock_release = true;
    r.op = SIM_RELEASE;
    r.ino = f->ino;
    r.fi = f->fi;
    if (f->start == f->mount->starts)
        sim_fuse_send(f->mount, &r);
    free(f);
    return rc;
}
