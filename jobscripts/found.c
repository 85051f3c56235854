/*
 * What a pattern names (see found.h). Called by steps.c, for the store and for directories of input.
 *
 * glob(3) is called in a process of its own (fp_limited), which writes what it has found into memory that both have. To look whether the file system answers and to call
 * it here then was rejected: it may stop answering in between. For the same reason that process looks itself whether the store is mounted.
 */
#include "jobscripts/found.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/err.h"
#include "fp/limited.h"
#include "fp/log.h"
#include "fp/wholefile.h"
#include "jobscripts/start.h"

#define PARTLY (-EUCLEAN) /* of look: what it has found is not all */
#define LEAST_MS 1000u /* for a process that looks and answers */

struct search {
    const char *mountpoint; /* of the store that it is in; NULL: of none */
    const char *path;       /* a pattern, or with exact the name itself */
    bool exact;
    int flags, fd;
};

static int glob_error(int rc)
{
    return rc == 0 ? 0 : rc == GLOB_NOMATCH ? -ENOENT : rc == GLOB_NOSPACE ? -ENOMEM : -EIO;
}

/* What a call into a mount returns that has ended, before it or meanwhile. */
static bool is_dead(int error)
{
    return error == ENOTCONN || error == ECONNABORTED;
}

/* A directory that can't be read may have what is looked for. */
static int unreadable(const char *path, int error)
{
    if (error != ENOENT && !is_dead(error))
        FP_ERROR("%s: %s", path, fp_strerror(-error));
    return error != ENOENT;
}

/* ---------------------------------------------------------------- glob(3), whose own functions take what fails for the end of a directory, or for not there */

static char listed[PATH_MAX]; /* one after the other; of the process that looks */
static bool unseen;           /* there may be more than it has found */

/* A mount that has ended is looked at as a whole; what else can't be listed may have had more. */
static int cannot_list(const char *path, int error)
{
    if (!is_dead(error))
        unseen |= unreadable(path, error);
    return is_dead(error);
}

/* What may not be entered is not there for who asks: on file systems that many share there is always somebody's such directory beside. */
static void cannot_look(const char *path, int error)
{
    if (error != ENOTDIR && error != ENAMETOOLONG && error != EACCES)
        unseen |= unreadable(path, error);
}

static void *open_list(const char *path)
{
    snprintf(listed, sizeof listed, "%s", path);
    return opendir(path);
}

static struct dirent *next_of_list(void *dir)
{
    struct dirent *e;

    errno = 0;
    e = readdir(dir);
    if (!e && errno)
        unseen |= unreadable(listed, errno);
    return e;
}

static void close_list(void *dir)
{
    (void)closedir(dir);
}

static int is_it_there(const char *restrict path, struct stat *restrict st)
{
    int rc = lstat(path, st), error = errno;

    if (rc < 0)
        cannot_look(path, error);
    errno = error;
    return rc;
}

/* Paths, each with its NUL. */
static int look(const struct search *s)
{
    glob_t g = {.gl_opendir = open_list, .gl_readdir = next_of_list, .gl_closedir = close_list, .gl_lstat = is_it_there, .gl_stat = stat};
    int rc = glob_error(glob(s->path, s->flags | GLOB_ALTDIRFUNC, cannot_list, &g));

    for (size_t i = 0; rc == 0 && i < g.gl_pathc; i++)
        rc = fp_write_all(s->fd, g.gl_pathv[i], strlen(g.gl_pathv[i]) + 1);
    return unseen && (rc == 0 || rc == -ENOENT) ? PARTLY : rc;
}

static int look_exactly(const struct search *s)
{
    struct stat st;

    if (lstat(s->path, &st) == 0)
        return 0;
    return errno == ENOTDIR ? -ENOENT : -errno;
}

static int is_mounted(int dir)
{
    struct statfs fs;

    if (fstatfs(dir, &fs) < 0)
        return is_dead(errno) ? -ENOTCONN : -errno;
    return fs.f_type == FUSE_SUPER_MAGIC ? 0 : -ENOTCONN;
}

/* Is it what the path leads to? One that is detached lives on for those who have it open. A kernel before 5.8 does not say. */
static int is_seen(int dir, const char *mountpoint)
{
    struct statx by_dir, by_path;

    if (statx(dir, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &by_dir) < 0 || statx(AT_FDCWD, mountpoint, AT_STATX_DONT_SYNC, STATX_MNT_ID, &by_path) < 0)
        return is_dead(errno) || errno == ENOENT ? -ENOTCONN : -errno;
    if (!(by_dir.stx_mask & by_path.stx_mask & STATX_MNT_ID))
        return 0;
    return by_dir.stx_mnt_id == by_path.stx_mnt_id ? 0 : -ENOTCONN;
}

/*
 * The descriptor is of one mount, whatever is mounted there later: if that lives afterwards, and the path leads to it still, it was that all the time. glob(3) takes
 * what is below a dead one for not there.
 */
static int look_in_store(const struct search *s)
{
    int dir = open(s->mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC), rc, after;

    if (dir < 0)
        return is_dead(errno) || errno == ENOENT ? -ENOTCONN : -errno;
    rc = is_mounted(dir);
    if (rc == 0) {
        rc = s->exact ? look_exactly(s) : look(s);
        after = is_mounted(dir);
        after = after ? after : is_seen(dir, s->mountpoint);
        rc = after ? after : rc;
    }
    close(dir);
    return rc;
}

static int work(const void *arg)
{
    const struct search *s = arg;

    return s->mountpoint ? look_in_store(s) : look(s);
}

static int add(struct job_found *f, const char *path)
{
    char **more = reallocarray(f->paths, f->n + 1, sizeof *more);

    if (!more)
        return -ENOMEM;
    f->paths = more;
    more[f->n] = strdup(path);
    return more[f->n] ? (f->n++, 0) : -ENOMEM;
}

static int take(struct job_found *f, int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char *all;
    int rc = 0;

    if (size <= 0)
        return size < 0 ? -errno : 0;
    all = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (all == MAP_FAILED)
        return -errno;
    for (const char *p = all; p < all + size && rc == 0; p += strlen(p) + 1)
        rc = add(f, p);
    (void)munmap(all, (size_t)size);
    return rc;
}

static int look_once(struct job_found *f, struct search s, uint64_t limit_ms)
{
    int rc;

    s.fd = memfd_create("found", MFD_CLOEXEC);
    if (s.fd < 0)
        return -errno;
    rc = fp_limited(work, &s, limit_ms);
    if (!s.exact && (rc == 0 || rc == PARTLY)) {
        int taken = take(f, s.fd);

        rc = taken ? taken : rc == PARTLY ? -EIO : 0;
    }
    close(s.fd);
    return rc;
}

int job_found_add(struct job_found *f, const char *pattern, int flags, uint64_t limit_ms)
{
    return look_once(f, (struct search){.path = pattern, .flags = flags}, limit_ms);
}

/* Until the mount is back, within the limit; once: who comes next has waited already. */
static int look_again(struct job_found *f, struct search s, uint64_t limit_ms, bool *away)
{
    static const struct timespec pause = {0, 200000000};
    uint64_t until = fp_now_ms() + limit_ms, now;
    int rc = look_once(f, s, limit_ms);

    while (rc == -ENOTCONN && !*away && !job_given_up() && (now = fp_now_ms()) < until) {
        nanosleep(&pause, NULL);
        rc = look_once(f, s, until - now > LEAST_MS ? until - now : LEAST_MS);
    }
    *away = rc == -ENOTCONN;
    return rc;
}

int job_found_in_store(struct job_found *f, const char *mountpoint, const char *pattern, int flags, uint64_t limit_ms, bool *away)
{
    return look_again(f, (struct search){.mountpoint = mountpoint, .path = pattern, .flags = flags}, limit_ms, away);
}

int job_found_is_there(const char *mountpoint, const char *path, uint64_t limit_ms, bool *away)
{
    return look_again(NULL, (struct search){.mountpoint = mountpoint, .path = path, .exact = true}, limit_ms, away);
}

void job_found_fini(struct job_found *f)
{
    while (f->n > 0)
        free(f->paths[--f->n]);
    free(f->paths);
    *f = (struct job_found){0};
}
