/*
 * FINISH: a temporary file gets its attributes and its name. STAT: what is under a name.
 *
 * On a thread. Order: size looked at, owner, mode, extended attributes, times, fsync, rename, fsync of the directory. So what is ever seen under the name is
 * whole, with its attributes, also after a loss of power; and an answer means that it is there for good.
 *
 * What the target does not do is no reason to keep a checkpoint from it: an owner that may not be given (root squash), attributes it has no room for. Those are
 * noted in the answer. A directory has its name already: its attributes alone are set. A FINISH whose answer was lost is asked again: the temporary file is gone and the name has its inode, so it was done.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/bug.h"
#include "fp/fault.h"

#define SIZE_TRIES    3
#define SIZE_PAUSE_US 1000000 /* attributes of NFS may be cached as long */
#define ANY_SIZE UINT64_MAX
#define RENAME_NOREPLACE_FLAG 1u
#define RENAME_EXCHANGE_FLAG  2u

struct finish {
    struct dr_thread *th;
    const char *path, *tmp;
    uint32_t path_bytes, tmp_bytes, flags, uid, gid;
    uint64_t own;
    int root, temps;
    char tmp_name[FP_DW_TMP_MAX + 1];
};

static void note(struct dr_thread *th, const char *what, int err)
{
    size_t at = strlen(th->r.why);

    snprintf(th->r.why + at, sizeof(th->r.why) - at, "%s%s: %s", at ? "; " : "", what, strerror(err));
}

/* -------------------------------------------------------------- attributes */

static int check_size(struct dr_thread *th, int fd, uint64_t want)
{
    struct stat st;

    for (int i = 0;; i++) {
        int rc;

        dr_enter(th);
        rc = fstat(fd, &st) ? -errno : 0;
        dr_leave(th, 0);
        if (rc)
            return dr_failed_call(th, rc, "look at", "the temporary file");
        if ((uint64_t)st.st_size == want || FP_BUG("drain-renames-before-size"))
            return 0;
        if (i == SIZE_TRIES)
            return dr_fail(th, FP_DW_SCOPE_FILE, -ENOENT, "its temporary file has %llu bytes and not %llu: somebody else has changed it",
                           (unsigned long long)st.st_size, (unsigned long long)want);
        usleep(SIZE_PAUSE_US);
    }
}

/* Those that users gave, then the mark. */
static void set_xattrs(struct dr_thread *th, int fd, const struct fp_dw_file *m)
{
    const uint8_t *p = (const uint8_t *)(m + 1) + m->path_bytes + m->tmp_bytes;
    const uint8_t *mark = p;
    char name[256];
    int err = 0;

    p += m->mark_bytes;
    for (uint32_t i = 0; i < m->nxattrs; i++) {
        uint32_t len[2];

        memcpy(len, p, sizeof(len));
        p += sizeof(len);
        memcpy(name, p, len[0]);
        name[len[0]] = '\0';
        if (fsetxattr(fd, name, p + len[0], len[1], 0) && !err)
            err = errno;
        p += (size_t)len[0] + len[1];
    }
    if (err)
        note(th, "extended attributes", err);
    if (m->mark_bytes)
        (void)fsetxattr(fd, FP_DW_MARK_XATTR, mark, m->mark_bytes, 0); /* for people and for finding it again: not needed */
}

static struct timespec timespec_of(int64_t ns)
{
    struct timespec t = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

    if (t.tv_nsec < 0) {
        t.tv_sec--;
        t.tv_nsec += 1000000000;
    }
    return t;
}

static void set_attributes(struct dr_thread *th, int fd, const struct fp_dw_file *m)
{
    struct timespec times[2] = { timespec_of(m->atime_ns), timespec_of(m->mtime_ns) };
    unsigned mode = m->mode & 07777;

    dr_enter(th);
    set_xattrs(th, fd, m); /* before its mode and owner, which may keep us from it */
    if (fchown(fd, m->uid, m->gid)) {
        note(th, "owner", errno);
        mode &= 01777; /* set-uid of another owner would be another thing */
    }
    if (fchmod(fd, mode))
        note(th, "mode", errno);
    if (futimens(fd, times))
        note(th, "times", errno);
    dr_leave(th, 0);
}

/* -------------------------------------------------------------- the name */

static int rename_to(struct finish *f, int dir, const char *name)
{
    struct dr_thread *th = f->th;
    struct stat st;
    int rc;

    dr_enter(th);
    rc = FP_FAULT_POINT("drain.rename");
    if (rc)
        ; /* of a test */
    else if (f->flags & FP_DW_OVERWRITE)
        rc = renameat(f->temps, f->tmp_name, dir, name) ? -errno : 0;
    else
        rc = (int)syscall(SYS_renameat2, f->temps, f->tmp_name, dir, name, RENAME_NOREPLACE_FLAG) ? -errno : 0;
    if ((rc == -EINVAL || rc == -ENOSYS) && !(f->flags & FP_DW_OVERWRITE)) { /* the file system does not know the flag */
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            rc = -EEXIST;
        else
            rc = renameat(f->temps, f->tmp_name, dir, name) ? -errno : 0;
    }
    dr_leave(th, 0);
    return rc;
}

/* What has the name gives way, unless another store needs it. */
static int take_name(struct finish *f, int dir, const char *name)
{
    struct dr_thread *th = f->th;
    int is = dr_may_replace(th, f->temps, dir, name, f->own, f->flags & FP_DW_FORCE), rc;

    if (is < 0)
        return is;
    if (is)
        is = dr_keep_aside(th, f->temps, f->tmp_name, dir, name) == 0;
    rc = rename_to(f, dir, name);
    if (rc)
        return rc == -ENOENT ? dr_fail(th, FP_DW_SCOPE_FILE, rc, "its temporary file is gone") : dr_failed_call(th, rc, "rename to", name);
    return is ? dr_settle(th, f->temps, f->tmp_name, dir, name) : 0;
}

/* fd: of the temporary file; -1: of a symbolic link there is none, and its directory's fsync is all. */
static int give_name(struct finish *f, int fd)
{
    struct dr_thread *th = f->th;
    char *name = NULL;
    struct stat st;
    int dir, rc = fd < 0 ? 0 : dr_fsync(th, fd);

    if (rc)
        return dr_failed_call(th, rc, "fsync", "the temporary file");
    rc = dr_parent(th, f->root, f->path, f->path_bytes, f->uid, f->gid, &dir, &name);
    if (rc)
        return dr_failed_call(th, rc, "the directory of", "it");
    rc = take_name(f, dir, name);
    if (rc) {
        close(dir);
        free(name);
        return rc;
    }
    rc = dr_fsync(th, dir);
    dr_enter(th);
    if (rc == 0)
        rc = (fd < 0 ? fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) : fstat(fd, &st)) ? -errno : 0;
    close(dir);
    dr_leave(th, 0);
    if (rc == 0)
        dr_seen(&th->r, &st);
    else
        rc = dr_failed_call(th, rc, "look at", name);
    free(name);
    return rc;
}

/* The temporary file is not there: was it renamed, and only the answer lost? */
static int was_done(struct finish *f, uint64_t tino, uint64_t size, bool link)
{
    struct dr_thread *th = f->th;
    char *name = NULL;
    struct stat st;
    int dir, rc = dr_parent(th, f->root, f->path, f->path_bytes, f->uid, f->gid, &dir, &name);

    if (rc)
        return dr_failed_call(th, rc, "the directory of", "it");
    dr_enter(th);
    rc = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
    dr_leave(th, 0);
    if (rc == 0 && (link ? !S_ISLNK(st.st_mode) : !S_ISREG(st.st_mode) || (size != ANY_SIZE && (uint64_t)st.st_size != size)))
        rc = -ENOENT;
    if (rc == 0 && st.st_ino != tino)
        rc = -ENOENT;
    if (rc == 0)
        rc = dr_fsync(th, dir);
    if (rc == -ENOENT)
        rc = dr_fail(th, FP_DW_SCOPE_FILE, rc, "its temporary file is gone");
    else if (rc)
        rc = dr_failed_call(th, rc, "look at", "it");
    else
        rc = dr_settle(th, f->temps, f->tmp_name, dir, name); /* what had the name may not have been looked at */
    close(dir);
    free(name);
    if (rc == 0)
        dr_seen(&th->r, &st);
    return rc;
}

static int open_finish(struct finish *f, struct dr_thread *th)
{
    int rc = dr_root(th, false, &f->root);

    f->th = th;
    f->temps = -1;
    if (rc)
        return rc;
    memcpy(f->tmp_name, f->tmp, f->tmp_bytes);
    rc = dr_temps(th, f->root, true, &f->temps);
    if (rc)
        close(f->root);
    return rc;
}

static void close_finish(struct finish *f, int fd)
{
    dr_enter(f->th);
    if (fd >= 0)
        close(fd);
    close(f->temps);
    close(f->root);
    dr_leave(f->th, 0);
}

static int finish_link(struct finish *f, const struct fp_dw_file *m)
{
    struct timespec times[2] = { timespec_of(m->atime_ns), timespec_of(m->mtime_ns) };
    struct dr_thread *th = f->th;
    struct stat st;
    int rc;

    dr_enter(th);
    rc = fstatat(f->temps, f->tmp_name, &st, AT_SYMLINK_NOFOLLOW) ? -errno : st.st_ino != m->tino || !S_ISLNK(st.st_mode) ? -ENOENT : 0;
    if (rc == 0 && fchownat(f->temps, f->tmp_name, m->uid, m->gid, AT_SYMLINK_NOFOLLOW))
        note(th, "owner", errno);
    if (rc == 0 && utimensat(f->temps, f->tmp_name, times, AT_SYMLINK_NOFOLLOW))
        note(th, "times", errno);
    dr_leave(th, 0);
    if (rc == -ENOENT)
        return was_done(f, m->tino, 0, true);
    return rc ? dr_failed_call(th, rc, "look at", "the temporary link") : give_name(f, -1);
}

static int finish_dir(struct dr_thread *th, const struct fp_dw_file *m)
{
    struct stat st;
    int root, fd = -1, rc = dr_root(th, false, &root);

    if (rc)
        return rc;
    rc = dr_open(th, root, (const char *)(m + 1), m->path_bytes, O_RDONLY | O_DIRECTORY, 0, &fd);
    close(root);
    if (rc == 0) {
        dr_enter(th);
        rc = fstat(fd, &st) ? -errno : st.st_ino != m->tino ? -ENOENT : 0;
        dr_leave(th, 0);
    }
    if (rc == 0) {
        set_attributes(th, fd, m);
        rc = dr_fsync(th, fd);
    }
    if (fd >= 0)
        close(fd);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return dr_fail(th, FP_DW_SCOPE_FILE, -ENOENT, "the directory is gone");
    if (rc)
        return dr_failed_call(th, rc, "attributes of", "the directory");
    dr_seen(&th->r, &st);
    return 0;
}

/* replace: there is a log of that name, which goes. */
static int rename_log(struct finish *f, int dir, const char *name, bool replace)
{
    struct dr_thread *th = f->th;
    int rc;

    dr_enter(th);
    rc = FP_FAULT_POINT("drain.rename");
    if (rc == 0)
        rc = (replace ? (int)syscall(SYS_renameat2, f->temps, f->tmp_name, dir, name, RENAME_EXCHANGE_FLAG) : renameat(f->temps, f->tmp_name, dir, name)) ? -errno : 0;
    if ((rc == -EINVAL || rc == -ENOSYS) && replace) { /* the file system does not know the flag: for a moment there is none */
        rc = dr_dlog_aside(th, f->temps, dir, name);
        rc = rc ? rc : FP_FAULT_POINT("drain.rename_again");
        rc = rc ? rc : renameat(f->temps, f->tmp_name, dir, name) ? -errno : 0;
    }
    dr_leave(th, 0);
    return rc;
}

static int name_log(struct finish *f, int fd)
{
    struct dr_thread *th = f->th;
    char *name = NULL;
    struct stat st;
    int dir, is, rc = dr_parent(th, f->root, f->path, f->path_bytes, f->uid, f->gid, &dir, &name);

    if (rc)
        return dr_failed_call(th, rc, "the directory of", "it");
    is = dr_dlog_may_replace(th, dir, name);
    rc = is < 0 ? is : rename_log(f, dir, name, is > 0);
    rc = rc ? rc : dr_fsync(th, dir);
    dr_enter(th);
    rc = rc ? rc : fstat(fd, &st) ? -errno : 0;
    close(dir);
    dr_leave(th, 0);
    if (rc && is >= 0)
        rc = dr_failed_call(th, rc, "rename to", name);
    free(name);
    if (rc == 0)
        dr_seen(&th->r, &st);
    return rc;
}

static int log_was_done(struct finish *f, uint64_t tino)
{
    struct dr_thread *th = f->th;
    struct stat st;
    int fd, rc = dr_open(th, f->root, f->path, f->path_bytes, O_RDONLY | O_DIRECTORY, 0, &fd);

    if (rc == 0) {
        dr_enter(th);
        rc = fstat(fd, &st) ? -errno : st.st_ino != tino ? -ENOENT : 0;
        close(fd);
        dr_leave(th, 0);
    }
    if (rc)
        return rc == -ENOENT ? dr_fail(th, FP_DW_SCOPE_FILE, rc, "its temporary directory is gone") : dr_failed_call(th, rc, "look at", "it");
    dr_seen(&th->r, &st);
    return 0;
}

/* The index has the attributes of the file: who merges takes them from there. */
static int finish_log(struct finish *f, const struct fp_dw_file *m)
{
    struct dr_thread *th = f->th;
    struct stat st;
    int index = -1, fd = -1, rc = dr_open(th, f->temps, f->tmp, f->tmp_bytes, O_RDONLY | O_DIRECTORY, 0, &fd);

    if (rc == 0) {
        dr_enter(th);
        rc = fstat(fd, &st) ? -errno : st.st_ino != m->tino ? -ENOENT : 0;
        dr_leave(th, 0);
    }
    if (rc == -ENOENT) {
        rc = log_was_done(f, m->tino);
    } else if (rc) {
        rc = dr_failed_call(th, rc, "open", "the temporary directory");
    } else {
        rc = dr_dlog_index(th, fd, m->size, m->dlog_bytes, &index);
        if (rc == 0) {
            set_attributes(th, index, m);
            rc = dr_fsync(th, index);
            rc = rc ? dr_failed_call(th, rc, "fsync", "the index") : dr_dlog_attributes(th, fd, m);
        }
        rc = rc ? rc : name_log(f, fd);
    }
    if (rc == 0 && dr_remove(th, f->temps, f->tmp, f->tmp_bytes) == 0) /* what had the name */
        dr_dlog_forget(th, f->temps, f->tmp, f->tmp_bytes);
    dr_enter(th);
    if (index >= 0)
        close(index);
    dr_leave(th, 0);
    close_finish(f, fd);
    return rc;
}

int dr_finish(struct dr_thread *th)
{
    return dr_finish_file(th, (const struct fp_dw_file *)th->task->msg);
}

int dr_finish_file(struct dr_thread *th, const struct fp_dw_file *m)
{
    const char *path = (const char *)(m + 1);
    struct finish f = { .path = path, .tmp = path + m->path_bytes, .path_bytes = m->path_bytes, .tmp_bytes = m->tmp_bytes, .flags = m->flags,
                        .uid = m->uid, .gid = m->gid, .own = m->own };
    struct stat st = { 0 };
    int fd = -1, rc = S_ISDIR(m->mode) ? 0 : open_finish(&f, th);

    if (rc || S_ISDIR(m->mode))
        return rc ? rc : finish_dir(th, m);
    if (S_ISLNK(m->mode)) {
        rc = finish_link(&f, m);
        close_finish(&f, -1);
        return rc;
    }
    if (m->flags & FP_DW_DLOG)
        return finish_log(&f, m);
    rc = dr_open(th, f.temps, f.tmp, f.tmp_bytes, O_RDWR, 0, &fd);
    if (rc == 0) {
        dr_enter(th);
        rc = fstat(fd, &st) ? -errno : st.st_ino != m->tino ? -ENOENT : 0;
        dr_leave(th, 0);
    }
    if (rc == -ENOENT) {
        rc = was_done(&f, m->tino, m->size, false);
    } else if (rc) {
        rc = dr_failed_call(th, rc, "open", "the temporary file");
    } else {
        rc = check_size(th, fd, m->size);
        if (rc == 0) {
            set_attributes(th, fd, m);
            rc = give_name(&f, fd);
        }
    }
    close_finish(&f, fd);
    return rc;
}

int dr_was_finished(struct dr_thread *th, const struct fp_dw_file *m)
{
    const char *path = (const char *)(m + 1);
    struct finish f = { .path = path, .tmp = path + m->path_bytes, .path_bytes = m->path_bytes, .tmp_bytes = m->tmp_bytes, .flags = m->flags,
                        .uid = geteuid(), .gid = getegid() };
    int rc = open_finish(&f, th);
    bool gone;

    if (rc)
        return rc;
    dr_enter(th);
    gone = faccessat(f.temps, f.tmp_name, F_OK, AT_SYMLINK_NOFOLLOW) && errno == ENOENT;
    dr_leave(th, 0);
    rc = gone ? was_done(&f, m->tino, ANY_SIZE, false) : dr_fail(th, FP_DW_SCOPE_FILE, -ENOENT, "its temporary file is there still");
    close_finish(&f, -1);
    return rc;
}

/* -------------------------------------------------------------- STAT */

int dr_stat(struct dr_thread *th)
{
    const struct fp_dw_file *m = (const struct fp_dw_file *)th->task->msg;
    struct stat st;
    int root, fd, rc = dr_root(th, false, &root);

    if (rc)
        return rc;
    if (m->mark_bytes)
        rc = dr_need(th, root, (const char *)(m + 1), m->path_bytes, (const char *)(m + 1) + m->path_bytes, m->mark_bytes);
    if (rc) {
        close(root);
        return rc;
    }
    rc = dr_open(th, root, (const char *)(m + 1), m->path_bytes, O_PATH, 0, &fd); /* after the mark: is it what has the name now that was marked? */
    dr_enter(th);
    if (rc == 0) {
        rc = fstat(fd, &st) ? -errno : 0;
        close(fd);
    }
    close(root);
    dr_leave(th, 0);
    if (rc == 0 && !S_ISREG(st.st_mode))
        rc = -ENOENT;
    if (rc == 0)
        dr_seen(&th->r, &st);
    return rc ? dr_failed_call(th, rc, "look at", "it") : 0;
}
