/*
 * The mounted store, as the coordinator sees it (store.h). Called by watch.c.
 *
 * All of it is POSIX and extended attributes on the mount: nothing that a user could not do, and no key. Which set a file is of, and whether that is complete, the mount asks the manager
 * (user.fp.set). Locks by flock hold between all mounts of a store, and those of a mount that died are free when its session has timed out.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "convert/engine/result.h"
#include "convert/filelist.h"
#include "convert/watch/names.h"
#include "convert/watch/store.h"

#define SET      "user.fp.set"
#define ABOVE    3    /* directories above a file of which one may be the set */
#define STALE_S  120  /* a temporary file that nobody has locked or written for so long is nobody's */

bool cw_err_passes(int err)
{
    static const int passing[] = {ENOSPC, EDQUOT, EIO, ENOMEM, EAGAIN, EBUSY, ENOTCONN, ETIMEDOUT, EINTR, ESTALE, ENFILE, EMFILE, ECONNRESET, EHOSTDOWN, ENXIO, ENODEV};

    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (err == passing[i])
            return true;
    return false;
}

bool cw_store_path(const struct cw_store *s, const char *path, char out[PATH_MAX])
{
    cw_breath_take(s->breath);
    return snprintf(out, PATH_MAX, "%s/%s", s->mount, path) < PATH_MAX;
}

bool cw_store_is_there(const struct cw_store *s)
{
    char value[64];

    return getxattr(s->mount, "user.fp.manager", value, sizeof value) > 0;
}

static int state_of(const char *word, size_t len)
{
    static const struct { const char *word; enum cw_set_state state; } words[] = {
        {"open", CW_SET_OPEN}, {"complete", CW_SET_COMPLETE}, {"torn", CW_SET_TORN}, {"forgotten", CW_SET_FORGOTTEN}};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == len && strncmp(words[i].word, word, len) == 0)
            return words[i].state;
    return CW_SET_NONE;
}

int cw_store_set(const struct cw_store *s, const char *path, char *key, size_t size)
{
    char name[PATH_MAX], value[256];
    size_t word;
    ssize_t n;

    key[0] = '\0';
    if (!cw_store_path(s, path, name))
        return -ENAMETOOLONG;
    n = getxattr(name, SET, value, sizeof value - 1);
    if (n < 0)
        return errno == ENODATA ? CW_SET_NONE : -errno;
    value[n] = '\0';
    word = strcspn(value, " ");
    snprintf(key, size, "%s", value + word + (value[word] ? 1 : 0));
    return state_of(value, word);
}

int cw_store_set_dir(const struct cw_store *s, const char *path, const char *key, char *dir, size_t size)
{
    char at[PATH_MAX], its[128];

    snprintf(at, sizeof at, "%s", path);
    dir[0] = '\0';
    if (key[0] == '/') /* a file that is of no set */
        return 0;
    for (int i = 0; i < ABOVE && strchr(at, '/'); i++) {
        int state;

        *strrchr(at, '/') = '\0';
        state = cw_store_set(s, at, its, sizeof its);
        if (state < 0 && cw_err_passes(-state)) {
            dir[0] = '\0';
            return state;
        }
        if (state > 0 && strcmp(its, key) == 0)
            snprintf(dir, size, "%s", at);
    }
    return 0;
}

int cw_store_get(const struct cw_store *s, const char *path, const char *attr, char *value, size_t size)
{
    char name[PATH_MAX];
    ssize_t n;

    value[0] = '\0';
    if (!cw_store_path(s, path, name))
        return -ENAMETOOLONG;
    n = getxattr(name, attr, value, size - 1);
    if (n < 0)
        return errno == ENODATA ? 0 : -errno;
    value[n] = '\0';
    return 0;
}

int cw_store_put(const struct cw_store *s, const char *path, const char *attr, const char *value)
{
    char name[PATH_MAX];

    if (!cw_store_path(s, path, name))
        return -ENAMETOOLONG;
    return setxattr(name, attr, value, strlen(value), 0) < 0 ? -errno : 0;
}

void cw_store_take_off(const struct cw_store *s, const char *path, const char *attr)
{
    char name[PATH_MAX];

    if (cw_store_path(s, path, name))
        (void)removexattr(name, attr);
}

void cw_store_owner(const struct cw_store *s, const char *path, int64_t mtime_ns, char *node, size_t size)
{
    char *time;

    cw_store_get(s, path, CW_NODE, node, size);
    time = strrchr(node, ' ');
    if (!time || strtoll(time + 1, NULL, 10) != mtime_ns)
        time = node; /* of what was there before */
    *time = '\0';
}

/* The first one to name itself is it, whoever does so at the same time: what the attribute is made for. What was said of an earlier file of that name is replaced. */
void cw_store_own(const struct cw_store *s, const char *path, int64_t mtime_ns, const char *me, char *node, size_t size)
{
    char name[PATH_MAX], value[CW_NODE_MAX + 32];
    int n = snprintf(value, sizeof value, "%s %" PRId64, me, mtime_ns);

    snprintf(node, size, "%s", me);
    if (!cw_store_path(s, path, name) || setxattr(name, CW_NODE, value, (size_t)n, XATTR_CREATE) == 0 || errno != EEXIST)
        return;
    cw_store_owner(s, path, mtime_ns, node, size);
    if (node[0])
        return;
    snprintf(node, size, "%s", me);
    (void)setxattr(name, CW_NODE, value, (size_t)n, 0);
}

int cw_store_stat(const struct cw_store *s, const char *path, int64_t *mtime_ns, uint64_t *size_bytes)
{
    char name[PATH_MAX];
    struct stat st;

    if (!cw_store_path(s, path, name))
        return -ENAMETOOLONG;
    if (stat(name, &st) < 0)
        return -errno;
    *mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    *size_bytes = (uint64_t)st.st_size;
    return S_ISREG(st.st_mode) ? 0 : -EISDIR;
}

/* Signs of patterns in the path of the mount mean themselves. */
static bool escaped(const char *path, char *out, size_t size)
{
    size_t n = 0;

    for (; *path && n + 2 < size; path++) {
        if (strchr("*?[\\", *path))
            out[n++] = '\\';
        out[n++] = *path;
    }
    out[n] = '\0';
    return !*path;
}

/* The pattern of those in `near` alone: its first names are those of that directory, which it is known to match. False: too long, or it names none there. */
static bool narrow(const char *near, const char *pattern, char *out, size_t size)
{
    const char *rest = pattern;
    size_t n;

    for (const char *at = near; at && rest; at = strchr(at, '/'), at = at ? at + 1 : NULL) {
        rest = strchr(rest, '/');
        rest = rest ? rest + 1 : NULL;
    }
    if (!rest || !escaped(near, out, size))
        return false;
    n = strlen(out);
    return snprintf(out + n, size - n, "/%s", rest) < (int)(size - n);
}

/* ---------------------------------------------------------------- a scan */

static struct cw_breath *scanning;
static bool untold; /* something in the scan that runs could not be told: glob gives its calls no argument of ours, and says of a failing one only that there is nothing */

static void *scan_open(const char *path)
{
    DIR *d;

    cw_breath_take(scanning);
    d = opendir(path);
    untold |= !d && cw_err_passes(errno);
    return d;
}

static struct dirent *scan_read(void *dir)
{
    struct dirent *e;

    errno = 0;
    e = readdir(dir);
    untold |= !e && cw_err_passes(errno);
    return e;
}

static void scan_close(void *dir)
{
    closedir(dir);
}

static int scan_stat(const char *restrict path, struct stat *restrict st)
{
    int rc;

    cw_breath_take(scanning);
    rc = stat(path, st);
    untold |= rc < 0 && cw_err_passes(errno);
    return rc;
}

static int scan_lstat(const char *restrict path, struct stat *restrict st)
{
    int rc;

    cw_breath_take(scanning);
    rc = lstat(path, st);
    untold |= rc < 0 && cw_err_passes(errno);
    return rc;
}

static int expand(const char *pattern, glob_t *g)
{
    int rc;

    *g = (glob_t){.gl_opendir = scan_open, .gl_readdir = scan_read, .gl_closedir = scan_close, .gl_stat = scan_stat, .gl_lstat = scan_lstat};
    rc = glob(pattern, GLOB_ALTDIRFUNC, NULL, g);
    return rc == 0 || rc == GLOB_NOMATCH ? 0 : rc == GLOB_NOSPACE ? -ENOMEM : -EIO;
}

int cw_store_scan(const struct cw_store *s, const char *pattern, const char *near, int (*each)(void *arg, const char *path, int64_t mtime_ns), void *arg)
{
    char mount[2 * PATH_MAX], narrowed[3 * PATH_MAX], name[5 * PATH_MAX];
    size_t skip = strlen(s->mount) + 1;
    glob_t g;
    int rc;

    if (near && !narrow(near, pattern, narrowed, sizeof narrowed))
        return 0;
    if (!escaped(s->mount, mount, sizeof mount) || snprintf(name, sizeof name, "%s/%s", mount, near ? narrowed : pattern) >= (int)sizeof name)
        return -ENAMETOOLONG;
    untold = false;
    scanning = s->breath;
    rc = expand(name, &g);
    for (size_t i = 0; i < g.gl_pathc && rc == 0; i++) {
        const char *path = g.gl_pathv[i] + skip;
        int64_t mtime;
        uint64_t size;
        int known = strlen(g.gl_pathv[i]) > skip ? cw_store_stat(s, path, &mtime, &size) : -EISDIR;

        untold |= cw_err_passes(-known);
        rc = known == 0 ? each(arg, path, mtime) : 0;
    }
    globfree(&g);
    return rc == 0 && untold ? -EAGAIN : rc;
}

/* ---------------------------------------------------------------- locks and what is left */

int cw_store_lock(const struct cw_store *s, const char *path)
{
    char name[PATH_MAX];
    int fd, err;

    if (!cw_store_path(s, path, name))
        return -ENAMETOOLONG;
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    err = errno;
    close(fd);
    return -err;
}

/* Was it to become this one, or the .xmf beside? */
static bool was_for(const char *name, const char *result)
{
    char letters[CV_LETTERS + 1];

    cv_result_letters(result, letters);
    return strncmp(name + strlen(CV_TEMPORARY), letters, CV_LETTERS) == 0;
}

static bool is_stale(int dir, const char *name, const char *result)
{
    int fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    /* Who writes it holds a lock on it, until it is named. */
    bool stale = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && (was_for(name, result) || (fstat(fd, &st) == 0 && st.st_mtime + STALE_S < time(NULL)));

    if (fd >= 0)
        close(fd);
    return stale;
}

bool cw_store_sweep(const struct cw_store *s, const char *path)
{
    char name[PATH_MAX];
    struct dirent *e;
    bool all = true;
    DIR *d;

    if (!cw_store_path(s, path, name) || !(d = opendir(dirname(name))))
        return false;
    while ((e = readdir(d)))
        if (strncmp(e->d_name, CV_TEMPORARY, strlen(CV_TEMPORARY)) == 0)
            all &= is_stale(dirfd(d), e->d_name, cw_name_base(path)) && unlinkat(dirfd(d), e->d_name, 0) == 0;
    closedir(d);
    return all;
}

/* Names that the parts have, sorted. NULL: out of memory. */
static char **names_of_parts(const struct cw_group *g, const char *result, size_t *n)
{
    struct cw_part *p = cw_group_parts(g, 0, n);
    char **names = p ? calloc(*n + 1, sizeof *names) : NULL, name[PATH_MAX];

    for (size_t i = 0; names && i < *n; i++)
        if (!cw_name_part(result, p[i].node, name) || !(names[i] = strdup(cw_name_base(name)))) {
            for (size_t k = 0; k < i; k++)
                free(names[k]);
            free(names);
            names = NULL;
        }
    free(p);
    if (names)
        qsort(names, *n, sizeof *names, cv_filelist_order);
    return names;
}

static bool is_part_of(const char *name, const char *base)
{
    size_t len = strlen(base), end = strlen(name), is = strlen(CW_PART_END);

    return strncmp(name, base, len) == 0 && name[len] == '.' && end >= len + is + 2 && strcmp(name + end - is, CW_PART_END) == 0;
}

/* A part says of which result it is, and of what dump: what has its name by chance, or is of another dump, is not ours. */
static bool is_ours(const struct cw_store *s, const char *path, const char *base, const char *source)
{
    char value[CV_OF_MAX];
    const char *its;

    cw_store_get(s, path, CV_CONVERTED, value, sizeof value);
    if (strcmp(value, base) != 0)
        return false;
    cw_store_get(s, path, CW_OF, value, sizeof value);
    its = cv_of_source(value);
    return its && strcmp(its, source) == 0;
}

void cw_store_sweep_parts(const struct cw_store *s, const struct cw_group *g, const char *result, const char *source, bool whole)
{
    size_t n = 0, above = (size_t)(cw_name_base(result) - result);
    char name[PATH_MAX], part[PATH_MAX], **names = whole ? calloc(1, sizeof *names) : names_of_parts(g, result, &n);
    struct dirent *e;
    DIR *d = names && cw_store_path(s, result, name) ? opendir(dirname(name)) : NULL;

    while (d && (e = readdir(d))) {
        const char *it = e->d_name;

        if (!is_part_of(it, cw_name_base(result)) || bsearch(&it, names, n, sizeof *names, cv_filelist_order))
            continue;
        if (snprintf(part, sizeof part, "%.*s%s", (int)above, result, it) < (int)sizeof part && is_ours(s, part, cw_name_base(result), source))
            (void)unlinkat(dirfd(d), it, 0);
    }
    if (d)
        closedir(d);
    for (size_t i = 0; names && i < n; i++)
        free(names[i]);
    free(names);
}

void cw_store_make_dir(const struct cw_store *s, const char *path)
{
    char name[PATH_MAX];

    if (!cw_store_path(s, path, name))
        return;
    for (char *at = name + strlen(s->mount) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        (void)mkdir(name, 0777);
    }
    (void)mkdir(name, 0777); /* what is in the way, the conversion says */
}

/* One that was written since stays: that is another dump. */
static int remove_file(const struct cw_store *s, const struct cw_file *f)
{
    char name[PATH_MAX];
    int64_t mtime;
    uint64_t size;
    int rc = cw_store_stat(s, f->path, &mtime, &size);

    if (rc)
        return rc == -ENOENT ? 0 : rc;
    if (mtime != f->mtime_ns)
        return -ESTALE;
    return cw_store_path(s, f->path, name) && unlink(name) < 0 && errno != ENOENT ? -errno : 0;
}

int cw_store_remove(const struct cw_store *s, const struct cw_group *g, const char *set_dir)
{
    char name[PATH_MAX];
    int rc = 0;

    for (size_t i = g->nfiles; i-- > 0 && rc != -ESTALE;) { /* the first one, which is locked, goes last: nobody takes what is left for a dump */
        int one = remove_file(s, &g->files[i]);

        rc = one ? one : rc;
    }
    if (rc == 0 && set_dir[0] && cw_store_path(s, set_dir, name))
        (void)rmdir(name); /* others may have put something in it */
    return rc;
}
