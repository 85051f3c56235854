/*
 * PREPARE, SWEEP, CLEAN, PROBE: temporary files and whether the target can be written to.
 *
 * On a thread. All temporary files are in ROOT/.fp-drain, mode 0700, so that none is ever seen under the name of a checkpoint, and what a crash has left is
 * found in one place. It must be on one file system with where the file goes to, since that is done by rename: looked at here, before gigabytes are written.
 *
 * A name is used for one attempt only (it has the attempt's number in it), so a file that has it already was made by the same PREPARE, whose answer was lost: it is
 * taken as it is, with what may be in it. Unless it can't be ours: then the manager takes another number.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/targetid.h"

#define NAMES_BYTES (64u << 10)
#define PROBE_BYTES 4096u
#define TREE_DEPTH  16

/* -------------------------------------------------------------- PREPARE */

/* The directory is made if it is not there. */
static int check_where_it_goes(struct dr_thread *th, const struct fp_dw_file *m, int root, int temps, dev_t dev)
{
    const char *path = (const char *)(m + 1);
    struct stat st;
    char *name = NULL;
    int dir, rc = dr_parent(th, root, path, m->path_bytes, m->uid, m->gid, &dir, &name);

    if (rc)
        return dr_failed_call(th, rc, "the directory of", "it");
    dr_enter(th);
    rc = fstat(dir, &st) ? -errno : 0;
    if (rc == 0 && st.st_dev != dev)
        rc = -EXDEV;
    if (rc == 0 && !(m->flags & FP_DW_DLOG) && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        rc = -EISDIR;
    dr_leave(th, 0);
    if (rc)
        rc = dr_failed_call(th, rc, "its directory in", th->w->root);
    else if (m->flags & FP_DW_DLOG) /* said before it is written */
        rc = dr_dlog_may_replace(th, dir, name);
    else if (!(m->flags & FP_DW_FORCE))
        rc = dr_may_replace(th, temps, dir, name, m->own, false);
    rc = rc > 0 ? 0 : rc;
    dr_enter(th);
    close(dir);
    dr_leave(th, 0);
    free(name);
    return rc;
}

static int make_tmp(struct dr_thread *th, const struct fp_dw_file *m, int temps, const struct stat *dir)
{
    const char *tmp = (const char *)(m + 1) + m->path_bytes;
    struct stat st;
    int fd, rc = dr_open(th, temps, tmp, m->tmp_bytes, O_RDWR | O_CREAT | O_EXCL, 0600, &fd);

    if (rc == -EEXIST)
        rc = dr_open(th, temps, tmp, m->tmp_bytes, O_RDWR, 0, &fd);
    if (rc == -ELOOP || rc == -EISDIR)
        rc = -EEXIST;
    if (rc)
        return dr_failed_call(th, rc, "make", "the temporary file");
    dr_enter(th);
    rc = fstat(fd, &st) ? -errno : 0;
    if (rc == 0 && (!S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_uid != dir->st_uid || (st.st_size && (uint64_t)st.st_size != m->size)))
        rc = -EEXIST;
    if (rc == 0 && ftruncate(fd, (off_t)m->size))
        rc = -errno;
    close(fd);
    dr_leave(th, 0);
    if (rc == 0)
        dr_seen(&th->r, &st);
    return rc ? dr_failed_call(th, rc, "make", "the temporary file") : 0;
}

/* The directory of a log. Told again, it is the same one, with what is in it. */
static int make_log(struct dr_thread *th, const struct fp_dw_file *m, int temps, const struct stat *dir)
{
    char tmp[FP_DW_TMP_MAX + 1];
    struct stat st;
    int rc;

    snprintf(tmp, sizeof(tmp), "%.*s", (int)m->tmp_bytes, (const char *)(m + 1) + m->path_bytes);
    dr_enter(th);
    rc = FP_FAULT_POINT("drain.pwrite");
    rc = rc ? rc : mkdirat(temps, tmp, 0700) && errno != EEXIST ? -errno : 0;
    if (rc == 0)
        rc = fstatat(temps, tmp, &st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
    if (rc == 0 && (!S_ISDIR(st.st_mode) || st.st_uid != dir->st_uid))
        rc = -EEXIST;
    dr_leave(th, 0);
    if (rc)
        return dr_failed_call(th, rc, "make", "the temporary directory");
    dr_seen(&th->r, &st);
    return 0;
}

/* A symbolic link. Told again, it is the same one. */
static int make_link(struct dr_thread *th, const struct fp_dw_file *m, int temps)
{
    const char *text = (const char *)(m + 1) + m->path_bytes;
    char tmp[FP_DW_TMP_MAX + 1], to[FP_DW_LINK_MAX + 1], is[FP_DW_LINK_MAX + 1];
    struct stat st;
    ssize_t n;
    int rc;

    snprintf(tmp, sizeof(tmp), "%.*s", (int)m->tmp_bytes, text);
    snprintf(to, sizeof(to), "%.*s", (int)m->mark_bytes, text + m->tmp_bytes);
    dr_enter(th);
    rc = FP_FAULT_POINT("drain.pwrite");
    rc = rc ? rc : symlinkat(to, temps, tmp) ? -errno : 0;
    if (rc == -EEXIST) {
        n = readlinkat(temps, tmp, is, sizeof(is));
        rc = n == (ssize_t)strlen(to) && memcmp(is, to, (size_t)n) == 0 ? 0 : -EEXIST;
    }
    if (rc == 0)
        rc = fstatat(temps, tmp, &st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
    dr_leave(th, 0);
    if (rc)
        return dr_failed_call(th, rc, "make", "the temporary link");
    dr_seen(&th->r, &st);
    return 0;
}

/* The directory, under its name. One that is there stays, as do those above it. */
static int make_dir(struct dr_thread *th, const struct fp_dw_file *m, int root)
{
    struct stat st;
    char *name = NULL;
    int dir, rc = dr_parent(th, root, (const char *)(m + 1), m->path_bytes, m->uid, m->gid, &dir, &name);

    if (rc)
        return dr_failed_call(th, rc, "the directory of", "it");
    dr_enter(th);
    rc = mkdirat(dir, name, 0700 | (m->mode & 0777)) ? -errno : 0;
    if (rc == 0 || rc == -EEXIST)
        rc = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) ? -errno : S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    dr_leave(th, 0);
    rc = rc ? rc : dr_fsync(th, dir);
    close(dir);
    free(name);
    if (rc == -ENOTDIR)
        return dr_fail(th, FP_DW_SCOPE_FILE, rc, "it is there already, and no directory");
    if (rc)
        return dr_failed_call(th, rc, "make", "the directory");
    dr_seen(&th->r, &st);
    return 0;
}

int dr_prepare(struct dr_thread *th)
{
    return dr_prepare_file(th, (const struct fp_dw_file *)th->task->msg);
}

int dr_prepare_file(struct dr_thread *th, const struct fp_dw_file *m)
{
    struct stat st;
    int root, temps, rc = dr_root(th, false, &root);

    if (rc)
        return rc;
    if (S_ISDIR(m->mode)) {
        rc = make_dir(th, m, root);
        close(root);
        return rc;
    }
    rc = dr_temps(th, root, true, &temps);
    if (rc == 0) {
        dr_enter(th);
        rc = fstat(temps, &st) ? dr_failed_call(th, -errno, "look at", FP_DW_TEMP_DIR) : 0;
        dr_leave(th, 0);
        if (rc == 0)
            rc = check_where_it_goes(th, m, root, temps, st.st_dev);
        if (rc == 0)
            rc = S_ISLNK(m->mode) ? make_link(th, m, temps) : m->flags & FP_DW_DLOG ? make_log(th, m, temps, &st) : make_tmp(th, m, temps, &st);
        close(temps);
    }
    close(root);
    return rc;
}

/* -------------------------------------------------------------- SWEEP, CLEAN */

struct names {
    struct dr_thread *th;
    size_t len;
    char text[NAMES_BYTES];
};

static void send_names(struct names *n)
{
    if (n->len)
        dr_send_names(n->th->w, (const struct fp_dw_head *)n->th->task->msg, n->text, n->len);
    n->len = 0;
}

static int list(struct names *n, DIR *dir, const char *prefix, size_t prefix_len)
{
    for (;;) {
        const struct dirent *e;
        size_t len;

        errno = 0;
        dr_enter(n->th);
        e = readdir(dir);
        dr_leave(n->th, 0);
        if (!e)
            return errno ? -errno : 0;
        len = strlen(e->d_name) + 1;
        if (strncmp(e->d_name, prefix, prefix_len) || len > FP_DW_TMP_MAX)
            continue;
        if (n->len + len > sizeof(n->text))
            send_names(n);
        memcpy(n->text + n->len, e->d_name, len);
        n->len += len;
    }
}

int dr_sweep(struct dr_thread *th)
{
    const struct fp_dw_file *m = (const struct fp_dw_file *)th->task->msg;
    struct names *n = calloc(1, sizeof(*n));
    int root, temps, rc = n ? dr_root(th, false, &root) : dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEM, "out of memory on this node");
    DIR *dir;

    if (rc) {
        free(n);
        return rc;
    }
    n->th = th;
    rc = dr_temps(th, root, false, &temps);
    if (rc == 0) {
        dir = fdopendir(temps);
        if (!dir)
            close(temps);
        rc = dir ? list(n, dir, (const char *)(m + 1), m->tmp_bytes) : -errno;
        if (rc)
            rc = dr_failed_call(th, rc, "read", FP_DW_TEMP_DIR);
        if (dir)
            closedir(dir);
    }
    send_names(n);
    free(n);
    close(root);
    return rc == -ENOENT ? 0 : rc; /* nothing was ever written here */
}

/* A log, or whatever somebody has put into one that was replaced. */
static int remove_tree(struct dr_thread *th, int at, const char *name, int depth)
{
    int fd, rc = 0;
    DIR *dir;

    dr_enter(th);
    fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    dir = fd < 0 ? NULL : fdopendir(fd);
    rc = dir ? 0 : -errno;
    dr_leave(th, 0);
    if (!dir && fd >= 0)
        close(fd);
    for (struct dirent *e; dir && rc == 0 && (errno = 0, e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        dr_enter(th);
        rc = unlinkat(dirfd(dir), e->d_name, 0) && errno != ENOENT ? -errno : 0;
        dr_leave(th, 0);
        if ((rc == -EISDIR || rc == -EPERM) && depth)
            rc = remove_tree(th, dirfd(dir), e->d_name, depth - 1);
    }
    if (dir)
        closedir(dir);
    dr_enter(th);
    if (rc == 0)
        rc = unlinkat(at, name, AT_REMOVEDIR) && errno != ENOENT ? -errno : 0;
    dr_leave(th, 0);
    return rc == -ENOENT ? 0 : rc;
}

int dr_remove(struct dr_thread *th, int temps, const char *tmp, uint32_t tmp_bytes)
{
    char name[FP_DW_TMP_MAX + 8]; /* also of what dlogindex.c puts aside */
    int rc;

    memcpy(name, tmp, tmp_bytes);
    name[tmp_bytes] = '\0';
    dr_enter(th);
    rc = unlinkat(temps, name, 0) && errno != ENOENT ? -errno : 0;
    dr_leave(th, 0);
    return rc == -EISDIR || rc == -EPERM ? remove_tree(th, temps, name, TREE_DEPTH) : rc;
}

int dr_clean(struct dr_thread *th)
{
    const struct fp_dw_file *m = (const struct fp_dw_file *)th->task->msg;
    int root, temps, rc = dr_root(th, false, &root);

    if (rc)
        return rc;
    rc = dr_temps(th, root, false, &temps);
    if (rc == 0) {
        rc = dr_need_no_more(th, temps, (const char *)(m + 1), m->tmp_bytes);
        rc = rc ? rc : dr_remove(th, temps, (const char *)(m + 1), m->tmp_bytes);
        rc = rc ? dr_failed_call(th, rc, "remove", "a temporary file") : dr_dlog_put_back(th, root, temps, (const char *)(m + 1), m->tmp_bytes);
        dr_drop_aside(th, temps, (const char *)(m + 1), m->tmp_bytes);
        close(temps);
    }
    close(root);
    return rc == -ENOENT ? 0 : rc;
}

/* -------------------------------------------------------------- PROBE */

static int probe_write(struct dr_thread *th, int temps, const char *tmp, uint32_t tmp_bytes)
{
    static const uint8_t block[PROBE_BYTES] = { 'f', 'p' };
    ssize_t n;
    int fd, rc, rm;

    rc = dr_remove(th, temps, tmp, tmp_bytes);
    if (rc == 0)
        rc = dr_open(th, temps, tmp, tmp_bytes, O_WRONLY | O_CREAT | O_EXCL, 0600, &fd);
    if (rc)
        return rc;
    dr_enter(th);
    rc = FP_FAULT_POINT("drain.pwrite");
    n = rc == 0 ? pwrite(fd, block, sizeof(block), 0) : 0;
    if (rc == 0 && n != sizeof(block))
        rc = n < 0 ? -errno : -ENOSPC;
    dr_leave(th, 0);
    if (rc == 0)
        rc = dr_fsync(th, fd);
    dr_enter(th);
    close(fd);
    dr_leave(th, 0);
    rm = dr_remove(th, temps, tmp, tmp_bytes);
    return rc ? rc : rm;
}

static bool takes_no_marker(int rc)
{
    return rc == -EROFS || rc == -EACCES || rc == -EPERM;
}

/* It can be read all the same. */
static int without_marker(struct dr_thread *th)
{
    th->r.why[0] = '\0';
    th->r.scope = FP_DW_SCOPE_FILE;
    return 0;
}

/* Was it ever known by a marker? */
static int probe_first(struct dr_thread *th, int *root)
{
    int rc = dr_root(th, true, root), no;

    if (!takes_no_marker(rc))
        return rc;
    *root = -1;
    no = dr_root_unmarked(th, th->r.unmarked);
    return no == -EEXIST ? rc : no ? no : without_marker(th);
}

/* Known without a marker: can it have one by now? mark: what that is to say. */
static int probe_again(struct dr_thread *th, const uint8_t *mark, int *root)
{
    int rc = dr_root(th, false, root);

    if (rc)
        return rc;
    rc = mark ? dr_marker(th, *root, mark, true) : -EROFS;
    if (rc == 0)
        return 0;
    close(*root);
    *root = -1;
    if (!takes_no_marker(rc))
        return rc;
    memcpy(th->r.unmarked, th->w->target, sizeof(th->r.unmarked));
    return without_marker(th);
}

int dr_probe(struct dr_thread *th)
{
    const struct fp_dw_file *m = (const struct fp_dw_file *)th->task->msg;
    bool make = m->flags & FP_DW_MAKE_MARKER;
    const char *mark = (const char *)(m + 1) + m->tmp_bytes;
    int root, temps, rc;

    if (fp_target_is_unmarked(th->w->target))
        rc = probe_again(th, make && m->mark_bytes == FP_TARGETID_BYTES ? (const uint8_t *)mark : NULL, &root);
    else
        rc = make ? probe_first(th, &root) : dr_root(th, false, &root);
    if (rc || root < 0)
        return rc;
    rc = dr_temps(th, root, true, &temps);
    if (rc == 0) {
        rc = probe_write(th, temps, (const char *)(m + 1), m->tmp_bytes);
        if (rc)
            rc = dr_fail(th, FP_DW_SCOPE_TARGET, rc, "%s can't be written to: %s", th->w->root, fp_strerror(rc));
        close(temps);
    }
    close(root);
    return rc;
}
