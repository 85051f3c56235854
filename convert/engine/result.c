/*
 * How a result gets its name (result.h). Called by run.c and the command join. Blocks for the disk.
 *
 * The attribute is set before the name is: a store that sees the name knows at once that it is a result, and of no dump's checkpoint set. Rejected: O_TMPFILE and linkat, which not all file systems have, and
 * which HDF5's own open can't use.
 *
 * Two dumps whose results have one name may be converted at the same time, each by who has seen that the name is free. So a result of which it is said what it is made of takes a free name without replacing anything, and
 * replaces what is of the same source alone. The lock for that is a file of its own. Rejected: one on the result, which would hold up who reads it by HDF5, and be held up by him.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <xxhash.h>

#include "convert/engine/result.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/rmtree.h"

#define LOCK    CV_TEMPORARY "lock" /* in each directory; of no set, and swept away with other temporary files if it is left */

static void directory_of(const char *path, char dir[PATH_MAX])
{
    char copy[PATH_MAX];

    snprintf(copy, sizeof copy, "%s", path);
    snprintf(dir, PATH_MAX, "%s", dirname(copy));
}

void cv_result_directory(const struct cv_result *r, char dir[PATH_MAX])
{
    directory_of(r->path, dir);
}

void cv_result_letters(const char *base, char out[CV_LETTERS + 1])
{
    const char *dot = strrchr(base, '.');
    uint64_t h = XXH64(base, dot ? (size_t)(dot - base) : strlen(base), 0);

    for (unsigned i = 0; i < CV_LETTERS; i++, h /= 26)
        out[i] = (char)('a' + h % 26);
    out[CV_LETTERS] = '\0';
}

int cv_result_begin(struct cv_result *r, const char *path, struct cv_fail *why)
{
    unsigned char random[CV_LETTERS];
    char dir[PATH_MAX], letters[CV_LETTERS + 1] = "", its[CV_LETTERS + 1];
    const char *slash = strrchr(path, '/');
    struct stat st;

    if (strlen(path) >= sizeof r->path)
        return cv_fail(why, -ENAMETOOLONG, NULL, NULL, CV_NO_OFFSET, "the name of the result is too long");
    strcpy(r->path, path);
    directory_of(path, dir);
    errno = 0;
    if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return cv_fail(why, -ENOENT, dir, NULL, CV_NO_OFFSET, "the directory of the result can't be used: %s", errno ? fp_strerror(-errno) : "it is none");
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return cv_fail(why, -EIO, NULL, NULL, CV_NO_OFFSET, "no random numbers for a temporary name");
    cv_result_letters(slash ? slash + 1 : path, its);
    for (unsigned i = 0; i < CV_LETTERS; i++)
        letters[i] = (char)('a' + random[i] % 26);
    if (snprintf(r->temporary, sizeof r->temporary, "%s/%s%s%s", dir, CV_TEMPORARY, its, letters) >= (int)sizeof r->temporary)
        return cv_fail(why, -ENAMETOOLONG, path, NULL, CV_NO_OFFSET, "no room for a temporary name beside it");
    return 0;
}

static int taken(const char *path, struct cv_fail *why)
{
    return cv_fail(why, -EEXIST, path, NULL, CV_NO_OFFSET, "it is there already: remove it, or say --replace");
}

int cv_result_free(const char *path, struct cv_fail *why)
{
    struct stat st;

    return lstat(path, &st) == 0 ? taken(path, why) : 0;
}

static int no_file(int rc, const char *path, struct cv_fail *why)
{
    return cv_fail(why, rc, path, NULL, CV_NO_OFFSET, "it is no file, or a directory with other things in it, which are not removed: remove it, or give another name");
}

int cv_result_can_replace(const char *path, bool directory, struct cv_fail *why)
{
    struct stat st;

    if (lstat(path, &st) < 0 || S_ISREG(st.st_mode) || (directory && S_ISDIR(st.st_mode)))
        return 0;
    return no_file(-ENOTEMPTY, path, why);
}

int cv_result_spares(const char *path, const char *read, struct cv_fail *why)
{
    struct stat out, in;

    if (!read || stat(path, &out) < 0 || stat(read, &in) < 0 || in.st_dev != out.st_dev || in.st_ino != out.st_ino)
        return 0;
    return cv_fail(why, -EEXIST, path, NULL, CV_NO_OFFSET, "it is what is to be read: give the result another name");
}

static int sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;

    if (fd < 0)
        return -errno;
    if (fsync(fd) < 0)
        rc = -errno;
    close(fd);
    return rc;
}

/* A directory of raw files that an earlier conversion has made, as its attribute says: one with other things in it is nobody's to remove. */
static bool is_ours(const char *path)
{
    char value[NAME_MAX + 1];

    return getxattr(path, CV_CONVERTED, value, sizeof value) > 0;
}

/* ---------------------------------------------------------------- directories of raw files */

#define SHAPES_BYTES 65536u
#define FDS_MAX      16

/* Paths below a directory without their digits, which say which rank they are of: "f rank_#.raw\n", "d step_#\n". One thread. */
static struct {
    char text[SHAPES_BYTES];
    size_t n, skip;
    bool learning;
} shapes;

static size_t shape_of(const char *path, const struct stat *st, char out[PATH_MAX + 8])
{
    size_t n = (size_t)sprintf(out, "\n%c ", S_ISREG(st->st_mode) ? 'f' : S_ISDIR(st->st_mode) ? 'd' : 'x');

    for (; *path; path++)
        if (*path < '0' || *path > '9')
            out[n++] = *path;
        else if (out[n - 1] != '#')
            out[n++] = '#';
    out[n++] = '\n';
    return n;
}

static int visit(const char *path, const struct stat *st, int type, struct FTW *f)
{
    char shape[PATH_MAX + 8];
    size_t n;

    if (type == FTW_NS || strlen(path) >= PATH_MAX) /* what can't be looked at is none of ours; nftw goes deeper than any path that we make */
        return 1;
    if (f->level == 0)
        return 0;
    n = shape_of(path + shapes.skip, st, shape);
    if (memmem(shapes.text, shapes.n, shape, n))
        return shape[1] == 'x';
    if (!shapes.learning || shapes.n + n > sizeof shapes.text)
        return 1;
    memcpy(shapes.text + shapes.n, shape, n);
    shapes.n += n;
    return shape[1] == 'x';
}

/* All that is in it is as in the new one, but for the numbers of ranks: of a program that writes its output there, too, nothing is to be removed. */
static bool has_ranks_alone(const char *old, const char *new)
{
    shapes.n = 0;
    shapes.learning = true;
    shapes.skip = strlen(new);
    if (nftw(new, visit, FDS_MAX, FTW_PHYS) != 0)
        return false;
    shapes.learning = false;
    shapes.skip = strlen(old);
    return nftw(old, visit, FDS_MAX, FTW_PHYS) == 0;
}

static int exchange(const struct cv_result *r)
{
    if (renameat2(AT_FDCWD, r->temporary, AT_FDCWD, r->path, RENAME_EXCHANGE) == 0)
        return 0;
    return errno == EINVAL || errno == ENOSYS ? -EEXIST : -errno;
}

/* A directory with files in it (raw files of ranks) can't be renamed over: both change their names at once, and what was there goes. */
static int replace_it(const struct cv_result *r)
{
    struct stat st;
    int rc;

    if (lstat(r->path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return -ENOTEMPTY; /* a device, a link: not what --replace means */
    if (rename(r->temporary, r->path) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -errno;
    if (stat(r->temporary, &st) < 0 || !S_ISDIR(st.st_mode) || !is_ours(r->path) || !has_ranks_alone(r->path, r->temporary))
        return -ENOTEMPTY;
    rc = exchange(r);
    if (rc)
        return rc;
    if (!has_ranks_alone(r->temporary, r->path)) { /* something came in the last moment */
        rc = exchange(r);
        return rc ? rc : -ENOTEMPTY;
    }
    (void)fp_remove_tree(r->temporary); /* which says itself what stays */
    return 0;
}

static int rename_it(const struct cv_result *r, bool replace)
{
    struct stat st;

    if (replace)
        return replace_it(r);
    if (renameat2(AT_FDCWD, r->temporary, AT_FDCWD, r->path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    if (lstat(r->path, &st) == 0) /* a file system that can't do both at once */
        return -EEXIST;
    return rename(r->temporary, r->path) < 0 ? -errno : 0;
}

/* ---------------------------------------------------------------- what is of the same source */

const char *cv_of_source(const char *of)
{
    const char *blank = strchr(of, ' ');

    return blank ? blank + 1 : NULL;
}

int cv_result_is_of(const char *path, const char *of, struct cv_fail *why)
{
    char its[CV_OF_MAX];
    ssize_t n = lgetxattr(path, CV_OF, its, sizeof its - 1); /* a link is none of a dump's results, wherever it leads */
    const char *source = cv_of_source(of), *other;

    if (n < 0 && errno == ENOENT)
        return -ENOENT;
    if (n < 0 && errno != ENODATA && errno != ENOTSUP && errno != EPERM && errno != ERANGE)
        return cv_fail(why, -errno, path, NULL, CV_NO_OFFSET, "it can't be told what is there: %s", fp_strerror(-errno));
    its[n > 0 ? n : 0] = '\0';
    other = cv_of_source(its);
    if (source && other && strcmp(source, other) == 0)
        return 0;
    return cv_fail(why, -EEXIST, path, NULL, CV_NO_OFFSET, "it is there already, and is %s%.300s: remove it, or give the result another name (into=DIRECTORY)", other ? "the result of " : "no result of this dump",
                   other ? other : "");
}

static bool lock_name(const char *path, char name[PATH_MAX])
{
    char dir[PATH_MAX];

    directory_of(path, dir);
    return snprintf(name, PATH_MAX, "%s/%s", dir, LOCK) < PATH_MAX;
}

/* Who has it takes the file away, so it is ours only if it still has its name. */
int cv_result_lock(const char *path, bool wait)
{
    char name[PATH_MAX];

    if (!lock_name(path, name))
        return -ENAMETOOLONG;
    for (;;) {
        int fd = open(name, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666), err;
        struct stat its, now;

        if (fd < 0)
            return -errno;
        (void)fchmod(fd, 0666); /* who is killed may leave it, and it is to be in nobody else's way; not its owner: it is so already */
        if (flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) < 0) {
            err = errno;
            close(fd);
            return -err;
        }
        if (fstat(fd, &its) == 0 && stat(name, &now) == 0 && its.st_dev == now.st_dev && its.st_ino == now.st_ino)
            return fd;
        close(fd);
    }
}

void cv_result_unlock(const char *path, int fd)
{
    char name[PATH_MAX];

    if (lock_name(path, name))
        (void)unlink(name);
    close(fd);
}

static int replace_its_own(const struct cv_result *r, const char *of, struct cv_fail *why)
{
    int rc;

    while ((rc = rename_it(r, false)) == -EEXIST) {
        int lock = cv_result_lock(r->path, true);

        if (lock < 0)
            return lock;
        rc = cv_result_is_of(r->path, of, why);
        rc = rc ? rc : replace_it(r);
        cv_result_unlock(r->path, lock);
        if (rc != -ENOENT) /* it has gone meanwhile: the name is free */
            break;
    }
    return rc;
}

/* ---------------------------------------------------------------- the name */

void cv_result_made(struct cv_result *r)
{
    r->lock_fd = open(r->temporary, O_RDONLY | O_CLOEXEC);
    if (r->lock_fd > 0)
        (void)flock(r->lock_fd, LOCK_EX | LOCK_NB); /* a library may have one already, which does as well */
}

void cv_result_fini(struct cv_result *r)
{
    if (r->lock_fd > 0)
        close(r->lock_fd);
    r->lock_fd = 0;
}

static int set_attribute(const struct cv_result *r, const char *name, const char *value, struct cv_fail *why)
{
    if (!value || setxattr(r->temporary, name, value, strlen(value), 0) == 0 || errno == ENOTSUP || errno == EPERM || errno == EINVAL)
        return 0;
    if (errno == ENOENT)
        return cv_fail(why, -EAGAIN, r->path, NULL, CV_NO_OFFSET, "somebody has removed its temporary file while it was made");
    return cv_fail(why, -errno, r->path, NULL, CV_NO_OFFSET, "its attribute %s can't be set: %s", name, fp_strerror(-errno));
}

int cv_result_sync(const struct cv_result *r, struct cv_fail *why)
{
    int rc = sync_path(r->temporary);

    return rc ? cv_fail(why, rc, r->path, NULL, CV_NO_OFFSET, "it can't be synced: %s", fp_strerror(rc)) : 0;
}

int cv_result_name(const struct cv_result *r, const char *converted, const char *of, bool replace, struct cv_fail *why)
{
    char dir[PATH_MAX];
    int rc = set_attribute(r, CV_CONVERTED, converted, why);

    rc = rc ? rc : set_attribute(r, CV_OF, of, why);
    rc = rc ? rc : cv_result_sync(r, why);
    if (rc)
        return rc;
    rc = FP_FAULT_POINT("convert-name");
    rc = rc ? rc : replace && of ? replace_its_own(r, of, why) : rename_it(r, replace);
    if (rc == -EEXIST)
        return taken(r->path, why);
    if (rc == -ENOTEMPTY || rc == -EISDIR)
        return no_file(rc, r->path, why);
    if (rc)
        return cv_fail(why, rc, r->path, NULL, CV_NO_OFFSET, "it can't get its name: %s", fp_strerror(rc));
    directory_of(r->path, dir);
    rc = sync_path(dir);
    return rc && rc != -EINVAL ? cv_fail(why, rc, dir, NULL, CV_NO_OFFSET, "the directory can't be synced: %s", fp_strerror(rc)) : 0;
}

void cv_result_remove(const struct cv_result *r)
{
    if (r->temporary[0] && unlink(r->temporary) < 0 && errno != ENOENT)
        (void)fp_remove_tree(r->temporary);
}
