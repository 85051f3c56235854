/*
 * Calls of the target that all kinds of tasks need: its root, paths below it, directories that are made, what an error means.
 *
 * On the threads, between dr_enter and dr_leave: each of these calls may hang.
 *
 * Nothing leads out of the target. Every path is opened by openat2 below the root's descriptor with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS: names of files are
 * those of the store's users, and somebody else may put symlinks into the target. Kernels without openat2 (before 5.6) go component by component.
 *
 * The root is opened anew for each task. Held open, it would keep a target busy that is to be unmounted, and would go on writing into the directory
 * below a mount that went away; what is written must be on the target or nowhere, which the marker shows (marker.c).
 *
 * What is told as drained must be there after a loss of power: a directory made here counts only when its own entry is synced. Which ones are known to be is
 * remembered by inode, so that a thousand files in one directory sync it once.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/targetid.h"

/* ---------------------------------------------------------------- errors */

int dr_fail(struct dr_thread *th, enum fp_dw_scope scope, int status, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(th->r.why, sizeof(th->r.why), fmt, ap);
    va_end(ap);
    th->r.scope = scope;
    return status;
}

/* Those of a path or a file; all others are of the target as a whole. */
static bool is_of_file(int status)
{
    switch (status) {
    case -EACCES:
    case -EPERM:
    case -ENAMETOOLONG:
    case -EILSEQ:
    case -ELOOP:
    case -ENOTDIR:
    case -EISDIR:
    case -EXDEV:
    case -EFBIG:
    case -EINVAL:
    case -EEXIST:
    case -ENOENT:
    case -ENOTEMPTY:
    case -ETXTBSY:
    case -EMLINK:
    case -ECANCELED:
        return true;
    default:
        return false;
    }
}

int dr_failed_call(struct dr_thread *th, int status, const char *what, const char *path)
{
    enum fp_dw_scope scope = is_of_file(status) ? FP_DW_SCOPE_FILE : FP_DW_SCOPE_TARGET;

    if (status == -ELOOP)
        return dr_fail(th, scope, status, "symlink in its path: %s", path);
    return dr_fail(th, scope, status, "%s %s: %s", what, path, fp_strerror(status));
}

void dr_seen(struct dr_result *r, const struct stat *st)
{
    r->dev = st->st_dev;
    r->tino = st->st_ino;
    r->size = (uint64_t)st->st_size;
    r->mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

int dr_fsync(struct dr_thread *th, int fd)
{
    int rc;

    dr_enter(th);
    rc = FP_FAULT_POINT("drain.fsync");
    if (rc == 0)
        do
            rc = fsync(fd) ? -errno : 0;
        while (rc == -EINTR);
    dr_leave(th, 0);
    return rc;
}

static int write_parts(struct dr_thread *th, int fd, const struct iovec *parts, unsigned n, uint64_t off)
{
    struct iovec left[DR_PARTS_MAX], *at = left, *end = left + n;

    memcpy(left, parts, n * sizeof(*parts));
    while (at < end) {
        ssize_t got;
        int rc;

        dr_enter(th);
        rc = FP_FAULT_POINT("drain.pwrite");
        got = rc ? 0 : pwritev(fd, at, (int)(end - at), (off_t)off);
        dr_leave(th, got > 0 ? (uint64_t)got : 0);
        if (rc)
            return rc;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        for (off += (uint64_t)got; at < end && (size_t)got >= at->iov_len; at++)
            got -= (ssize_t)at->iov_len;
        if (at < end)
            *at = (struct iovec){ (uint8_t *)at->iov_base + got, at->iov_len - (size_t)got };
    }
    return 0;
}

int dr_write_all(struct dr_thread *th, int fd, int *direct_fd, const struct iovec *parts, unsigned n, uint64_t off)
{
    int rc = write_parts(th, *direct_fd >= 0 ? *direct_fd : fd, parts, n, off);
    size_t len = 0;

    if (rc == -EINVAL && *direct_fd >= 0) { /* the file system wants something else of O_DIRECT */
        close(*direct_fd);
        *direct_fd = -1;
        rc = write_parts(th, fd, parts, n, off);
    }
    if (rc || *direct_fd >= 0)
        return rc;
    for (unsigned i = 0; i < n; i++)
        len += parts[i].iov_len;
    dr_enter(th);
    (void)sync_file_range(fd, (off_t)off, (off_t)len, SYNC_FILE_RANGE_WRITE);
    dr_leave(th, 0);
    return 0;
}

int dr_read_all(struct dr_thread *th, int fd, void *buf, uint64_t len, uint64_t off)
{
    int rc = 0;

    for (uint64_t done = 0; rc == 0 && done < len;) {
        ssize_t n;

        dr_enter(th);
        rc = FP_FAULT_POINT("drain.target_pread");
        n = rc ? 0 : pread(fd, (uint8_t *)buf + done, len - done, (off_t)(off + done));
        if (rc == 0 && n <= 0 && !(n < 0 && errno == EINTR))
            rc = n < 0 ? -errno : -ENODATA;
        dr_leave(th, 0);
        done += n > 0 ? (uint64_t)n : 0;
    }
    return rc;
}

/* ---------------------------------------------------------------- paths */

/* Component by component, where openat2 is not known. */
static int open_by_steps(int dir, char *path, int flags, unsigned mode)
{
    int at = dir, fd = -EINVAL;

    for (char *name = path, *end; name; name = end) {
        end = strchr(name, '/');
        if (end)
            *end++ = '\0';
        fd = openat(at, name, end ? O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC : flags | O_NOFOLLOW, mode);
        if (fd < 0)
            fd = end && errno == ENOTDIR ? -ELOOP : -errno; /* a symlink, or a file */
        if (at != dir)
            close(at);
        if (fd < 0)
            return fd;
        at = fd;
    }
    return fd;
}

static int open_beneath(int dir, char *path, int flags, unsigned mode)
{
    struct open_how how = { .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
                            .mode = flags & O_CREAT ? mode : 0,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
    int fd = -EAGAIN;

    for (int i = 0; fd == -EAGAIN && i < 100; i++) { /* somebody renames above it */
        fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
        if (fd < 0)
            fd = errno == EINTR ? -EAGAIN : -errno;
    }
    return fd == -ENOSYS ? open_by_steps(dir, path, flags | O_CLOEXEC, mode) : fd;
}

int dr_open(struct dr_thread *th, int root, const char *path, uint32_t path_bytes, int flags, unsigned mode, int *fd)
{
    char *text = strndup(path, path_bytes);
    int rc;

    if (!text)
        return dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEM, "out of memory on this node");
    dr_enter(th);
    rc = FP_FAULT_POINT("drain.open");
    if (rc == 0)
        rc = open_beneath(root, text, flags, mode);
    dr_leave(th, 0);
    free(text);
    if (rc >= 0)
        *fd = rc;
    return rc < 0 ? rc : 0;
}

/* ---------------------------------------------------------------- directories */

static size_t known_slot(const struct stat *st)
{
    return (st->st_ino * 0x9e3779b97f4a7c15ull ^ st->st_dev) >> 7 & (DR_KNOWN_DIRS - 1);
}

static bool is_known(struct dr_worker *w, const struct stat *st)
{
    size_t i = known_slot(st);
    bool known;

    pthread_mutex_lock(&w->lock);
    known = w->known[i].dev == st->st_dev && w->known[i].ino == st->st_ino;
    pthread_mutex_unlock(&w->lock);
    return known;
}

static void know(struct dr_worker *w, const struct stat *st)
{
    size_t i = known_slot(st);

    pthread_mutex_lock(&w->lock);
    w->known[i].dev = st->st_dev;
    w->known[i].ino = st->st_ino;
    pthread_mutex_unlock(&w->lock);
}

/* One level down: *fd becomes `name` in it. */
static int step(struct dr_thread *th, int *fd, char *name, uint32_t uid, uint32_t gid)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
    struct stat st;
    bool made = false;
    int next, rc;

    dr_enter(th);
    next = open_beneath(*fd, name, flags, 0);
    if (next == -ENOENT) {
        made = mkdirat(*fd, name, 0755) == 0;
        next = made || errno == EEXIST ? open_beneath(*fd, name, flags, 0) : -errno;
    }
    rc = next < 0 ? next : fstat(next, &st) ? -errno : 0;
    if (rc == 0 && made && fchown(next, uid, gid) && errno != EPERM)
        rc = -errno;
    dr_leave(th, 0);
    if (rc == 0 && (made || !is_known(th->w, &st))) { /* made: what is known of this number was another directory, which is gone */
        rc = dr_fsync(th, *fd);
        if (rc == 0)
            know(th->w, &st);
    }
    if (next >= 0) {
        close(*fd);
        *fd = next;
    }
    return rc == -ENOTDIR ? -ELOOP : rc; /* a symlink, or a file that has the name */
}

int dr_parent(struct dr_thread *th, int root, const char *path, uint32_t path_bytes, uint32_t uid, uint32_t gid, int *fd, char **name)
{
    char *text = strndup(path, path_bytes), *at = text, *end;
    int dir = fcntl(root, F_DUPFD_CLOEXEC, 0), rc = dir < 0 ? -errno : text ? 0 : -ENOMEM;

    while (rc == 0 && (end = strchr(at, '/'))) {
        *end = '\0';
        rc = step(th, &dir, at, uid, gid);
        at = end + 1;
    }
    if (rc == 0 && !(*name = strdup(at)))
        rc = -ENOMEM;
    free(text);
    if (rc == 0) {
        *fd = dir;
        return 0;
    }
    if (dir >= 0)
        close(dir);
    return rc;
}

int dr_temps(struct dr_thread *th, int root, bool make, int *fd)
{
    static const char name[] = FP_DW_TEMP_DIR;
    int rc = dr_open(th, root, name, sizeof(name) - 1, O_RDONLY | O_DIRECTORY, 0, fd);

    if (rc == -ENOENT && make) {
        dr_enter(th);
        rc = mkdirat(root, name, 0700) && errno != EEXIST ? -errno : 0;
        dr_leave(th, 0);
        if (rc == 0)
            rc = dr_open(th, root, name, sizeof(name) - 1, O_RDONLY | O_DIRECTORY, 0, fd);
    }
    if (rc == 0 || (rc == -ENOENT && !make))
        return rc;
    return dr_fail(th, FP_DW_SCOPE_TARGET, rc, "%s/%s: %s", th->w->root, name, fp_strerror(rc));
}

/* ---------------------------------------------------------------- the root */

static int root_failed(struct dr_thread *th, int rc)
{
    if (rc == -ENOTDIR)
        return dr_fail(th, FP_DW_SCOPE_TARGET, rc, "%s is no directory: drain to one", th->w->root);
    return dr_fail(th, FP_DW_SCOPE_TARGET, rc, "%s: %s", th->w->root, fp_strerror(rc));
}

static int open_root(struct dr_thread *th, int *dir, struct stat *st)
{
    int rc;

    *dir = -1;
    dr_enter(th);
    rc = FP_FAULT_POINT("drain.root");
    if (rc == 0) {
        *dir = open(th->w->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = *dir < 0 || fstat(*dir, st) ? -errno : 0;
    }
    dr_leave(th, 0);
    if (rc && *dir >= 0)
        close(*dir);
    return rc ? root_failed(th, rc) : 0;
}

int dr_root_unmarked(struct dr_thread *th, uint8_t id[16])
{
    struct stat st;
    int dir, rc = open_root(th, &dir, &st);

    if (rc)
        return rc;
    rc = dr_refuse_useless(th, dir);
    rc = rc ? rc : dr_unmarked(th, dir, id);
    close(dir);
    return rc;
}

int dr_root(struct dr_thread *th, bool make_marker, int *fd)
{
    struct dr_worker *w = th->w;
    struct stat st;
    int dir, rc = open_root(th, &dir, &st);
    bool seen;

    if (rc)
        return rc;
    pthread_mutex_lock(&w->lock);
    seen = w->root_dev == st.st_dev && w->root_ino == st.st_ino;
    pthread_mutex_unlock(&w->lock);
    if (!seen || make_marker) {
        rc = dr_refuse_useless(th, dir);
        if (rc == 0)
            rc = fp_target_is_unmarked(w->target) ? dr_unmarked_is(th, dir) : dr_marker(th, dir, w->target, make_marker);
        if (rc) {
            close(dir);
            return rc;
        }
        pthread_mutex_lock(&w->lock);
        w->root_dev = st.st_dev;
        w->root_ino = st.st_ino;
        pthread_mutex_unlock(&w->lock);
    }
    *fd = dir;
    return 0;
}
