/*
 * LIST: a page of a directory of the target, or what a path is that is no directory. The first page of a directory says before its names what it is itself.
 *
 * On a reader's thread. Names come in ascending order of their bytes, and a page begins after the last name of the one before: so pages fit together whatever others do to the
 * directory meanwhile, over any number of workers, and nothing is kept here from one to the next. Each page reads the whole directory and keeps the least names
 * (a heap of at most a page). Rejected: positions of readdir. They are good as long as the directory is open, which it is not.
 *
 * Nothing is followed: of a symbolic link its text is told. What we have in the root for ourselves is left out.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/err.h"
#include "fp/fault.h"

#define PAGE_BYTES (160u << 10) /* of entries: a message takes them */
#define LINK_MAX_BYTES 4096u
#define XATTRS_BYTES (48u << 10) /* of one entry */
#define NAMES_BYTES (64u << 10)  /* the kernel lists no more */

struct page {
    struct dr_thread *th;
    char *name[FP_DW_LIST_MAX]; /* a heap: the greatest first */
    uint32_t n, max;
    bool more;
    const char *after;
    uint32_t after_bytes;
    bool root;
    uint8_t *bytes; /* entries, as they are sent */
    size_t len;
};

static int compare(const char *a, const char *b)
{
    return strcmp(a, b); /* by bytes: strcmp takes them as unsigned */
}

static int compare_sort(const void *a, const void *b)
{
    return compare(*(char *const *)a, *(char *const *)b);
}

static void sift_down(struct page *p)
{
    for (uint32_t at = 0, big; (big = 2 * at + 1) < p->n; at = big) {
        char *swap;

        if (big + 1 < p->n && compare(p->name[big + 1], p->name[big]) > 0)
            big++;
        if (compare(p->name[at], p->name[big]) >= 0)
            return;
        swap = p->name[at];
        p->name[at] = p->name[big];
        p->name[big] = swap;
    }
}

static void sift_up(struct page *p)
{
    for (uint32_t at = p->n - 1, up; at > 0; at = up) {
        char *swap = p->name[at];

        up = (at - 1) / 2;
        if (compare(p->name[up], swap) >= 0)
            return;
        p->name[at] = p->name[up];
        p->name[up] = swap;
    }
}

/* Among the least ones of those after `after`. */
static int take(struct page *p, const char *name)
{
    char *copy;

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    if (p->root && (strcmp(name, FP_DW_TEMP_DIR) == 0 || strcmp(name, FP_DW_MARKER) == 0))
        return 0;
    if (p->after_bytes && strncmp(name, p->after, p->after_bytes) <= 0 &&
        !(strncmp(name, p->after, p->after_bytes) == 0 && name[p->after_bytes]))
        return 0;
    if (p->n == p->max) {
        p->more = true;
        if (compare(name, p->name[0]) >= 0)
            return 0;
    }
    copy = strdup(name);
    if (!copy)
        return -ENOMEM;
    if (p->n == p->max) {
        free(p->name[0]);
        p->name[0] = copy;
        sift_down(p);
    } else {
        p->name[p->n++] = copy;
        sift_up(p);
    }
    return 0;
}

static int read_names(struct page *p, DIR *dir)
{
    for (;;) {
        const struct dirent *e;
        int rc;

        if (p->th->task->cancelled)
            return -ECANCELED;
        dr_enter(p->th);
        rc = FP_FAULT_POINT("drain.readdir");
        errno = 0;
        e = rc ? NULL : readdir(dir);
        rc = rc || e ? rc : -errno;
        dr_leave(p->th, 0);
        if (!e)
            return rc;
        rc = take(p, e->d_name);
        if (rc)
            return rc;
    }
}

/* ---------------------------------------------------------------- entries */

static int64_t ns(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* False: no room for one more. */
static bool put(struct page *p, const char *name, const struct stat *st, const char *link, uint32_t link_bytes)
{
    struct fp_dw_entry e = { .tino = st->st_ino, .size = (uint64_t)st->st_size, .rdev = st->st_rdev, .atime_ns = ns(st->st_atim),
                             .mtime_ns = ns(st->st_mtim), .ctime_ns = ns(st->st_ctim), .mode = st->st_mode, .nlink = (uint32_t)st->st_nlink,
                             .uid = st->st_uid, .gid = st->st_gid, .name_bytes = (uint32_t)strlen(name), .link_bytes = link_bytes };
    size_t len = sizeof(e) + e.name_bytes + link_bytes;

    if (p->len + len > PAGE_BYTES)
        return false;
    memcpy(p->bytes + p->len, &e, sizeof(e));
    memcpy(p->bytes + p->len + sizeof(e), name, e.name_bytes);
    memcpy(p->bytes + p->len + sizeof(e) + e.name_bytes, link, link_bytes);
    p->len += len;
    return true;
}

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* One attribute of what is open there, behind what the page has. False: it can't be had, or there is no room. */
static bool put_xattr(struct page *p, const char *path, const char *name, size_t end)
{
    uint32_t len[2] = { (uint32_t)strlen(name), 0 };
    size_t at = p->len + sizeof(len) + len[0];
    ssize_t n = at < end ? getxattr(path, name, p->bytes + at, end - at) : -1;

    if (n < 0)
        return errno == ENODATA && at < end; /* removed since */
    len[1] = (uint32_t)n;
    memcpy(p->bytes + p->len, len, sizeof(len));
    memcpy(p->bytes + p->len + sizeof(len), name, len[0]);
    p->len = at + len[1];
    return true;
}

/* What users gave to what fd is, without what is ours. An O_PATH descriptor has none itself: by its name in /proc. */
static void add_xattrs(struct page *p, int fd, size_t entry)
{
    char path[40], *names = malloc(NAMES_BYTES);
    size_t begun = p->len, end = begun + XATTRS_BYTES < PAGE_BYTES ? begun + XATTRS_BYTES : PAGE_BYTES;
    struct fp_dw_entry e;
    ssize_t n;

    memcpy(&e, p->bytes + entry, sizeof(e));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    dr_enter(p->th);
    n = names ? listxattr(path, names, NAMES_BYTES) : -1;
    e.xattrs_left = n < 0 && (!names || (errno != ENOTSUP && errno != ENOSYS));
    for (ssize_t at = 0; at < n; at += (ssize_t)strlen(names + at) + 1) {
        const char *name = names + at;

        if (begins(name, "user.") && !begins(name, "user.fp."))
            e.xattrs_left += !put_xattr(p, path, name, end);
        else
            e.xattrs_left += begins(name, "system.posix_acl_") || strcmp(name, "security.capability") == 0;
    }
    dr_leave(p->th, 0);
    free(names);
    e.xattr_bytes = (uint32_t)(p->len - begun);
    memcpy(p->bytes + entry, &e, sizeof(e));
}

/* What is at `name` in dir (empty: dir itself, an O_PATH descriptor). 1: no room. */
static int add(struct page *p, int dir, const char *name)
{
    char link[LINK_MAX_BYTES];
    struct stat st;
    ssize_t n = 0;
    size_t entry;
    int rc;

    dr_enter(p->th);
    rc = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) ? -errno : 0;
    if (rc == 0 && S_ISLNK(st.st_mode) && (n = readlinkat(dir, name, link, sizeof(link))) < 0)
        rc = -errno;
    dr_leave(p->th, 0);
    if (rc)
        return rc == -ENOENT && *name ? 0 : rc; /* removed since */
    entry = p->len;
    if (!put(p, name, &st, link, (uint32_t)n))
        return 1;
    if (!*name && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
        add_xattrs(p, dir, entry);
    return 0;
}

static int add_all(struct page *p, int dir)
{
    int rc = 0;

    qsort(p->name, p->n, sizeof(p->name[0]), compare_sort);
    for (uint32_t i = 0; rc == 0 && i < p->n; i++)
        rc = p->th->task->cancelled ? -ECANCELED : add(p, dir, p->name[i]);
    p->more |= rc == 1;
    return rc == 1 ? 0 : rc;
}

static int list_dir(struct page *p, int path_fd)
{
    DIR *dir;
    int rc, fd;

    dr_enter(p->th);
    fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir = fd < 0 ? NULL : fdopendir(fd);
    rc = dir ? 0 : -errno;
    dr_leave(p->th, 0);
    if (!dir && fd >= 0)
        close(fd);
    if (rc)
        return rc;
    rc = read_names(p, dir);
    if (rc == 0)
        rc = add_all(p, fd);
    dr_enter(p->th);
    closedir(dir);
    dr_leave(p->th, 0);
    return rc;
}

/* ---------------------------------------------------------------- the task */

static int open_path(struct dr_thread *th, const struct fp_dw_list *m, int root, int *fd)
{
    if (m->path_bytes)
        return dr_open(th, root, (const char *)(m + 1), m->path_bytes, O_PATH | O_NOFOLLOW, 0, fd);
    *fd = fcntl(root, F_DUPFD_CLOEXEC, 0);
    return *fd < 0 ? -errno : 0;
}

static int list(struct page *p, const struct fp_dw_list *m)
{
    struct dr_thread *th = p->th;
    struct stat st;
    int root, fd = -1, rc = dr_root(th, false, &root);

    if (rc)
        return rc;
    rc = open_path(th, m, root, &fd);
    dr_enter(th);
    if (rc == 0)
        rc = fstat(fd, &st) ? -errno : 0;
    close(root);
    dr_leave(th, 0);
    if (rc == 0 && (!S_ISDIR(st.st_mode) || !p->after_bytes))
        rc = add(p, fd, "");
    if (rc == 0 && S_ISDIR(st.st_mode))
        rc = list_dir(p, fd);
    if (fd >= 0)
        close(fd);
    if (rc == -ECANCELED)
        return dr_fail(th, FP_DW_SCOPE_FILE, rc, "cancelled");
    if (rc == -ENOMEM)
        return dr_fail(th, FP_DW_SCOPE_TARGET, rc, "out of memory on this node");
    return rc ? dr_failed_call(th, rc, "list", m->path_bytes ? "it" : th->w->root) : 0;
}

int dr_list(struct dr_thread *th)
{
    const struct fp_dw_list *m = (const struct fp_dw_list *)th->task->msg;
    struct page *p = calloc(1, sizeof(*p));
    int rc = -ENOMEM;

    if (p)
        *p = (struct page){ .th = th, .max = m->max, .after = (const char *)(m + 1) + m->path_bytes, .after_bytes = m->after_bytes,
                            .root = m->path_bytes == 0, .bytes = malloc(PAGE_BYTES) };
    if (p && p->bytes)
        rc = list(p, m);
    else
        rc = dr_fail(th, FP_DW_SCOPE_TARGET, rc, "out of memory on this node");
    if (rc == 0 && p->len)
        dr_send_entries(th->w, &m->h, p->bytes, p->len);
    if (rc == 0)
        th->r.note = p->more;
    for (uint32_t i = 0; p && i < p->n; i++)
        free(p->name[i]);
    if (p)
        free(p->bytes);
    free(p);
    return rc;
}
