/*
 * Attributes, passed on to the directory below; and those of the root that rule this program, which nothing below has:
 *
 *     user.slowfs.fail    what fails, and how: "write=EIO,fsync=ENOSPC", "all=ESTALE"; removed or empty: nothing (fail.c)
 *     user.slowfs.count   what was done so far: "write_bytes=… writes=… read_bytes=… reads=… fsyncs=…"
 *
 * A control file was rejected: it would stand in listings of the directory. Threads of the FUSE loop.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/slowfs/slowfs.h"

#define RULE  "user.slowfs."
#define FAIL  RULE "fail"
#define COUNT RULE "count"

static void reply_attr(fuse_req_t req, const struct slow_node *n)
{
    struct stat st;

    if (fstatat(n->fd, "", &st, AT_EMPTY_PATH) < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_attr(req, &st, 0);
}

static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct slow_fs *fs = slow_of(req);
    int rc = ino == FUSE_ROOT_ID ? 0 : slow_fails(fs, SLOW_GETATTR); /* the kernel asks before it sets an attribute: this one rules us */

    (void)fi;
    if (rc)
        fuse_reply_err(req, rc);
    else
        reply_attr(req, slow_node(fs, ino));
}

static int set_size(const struct slow_node *n, off_t size, const struct fuse_file_info *fi)
{
    char path[SLOW_PATH_BUF];

    return (fi ? ftruncate((int)fi->fh, size) : truncate(slow_path(n, path), size)) < 0 ? errno : 0;
}

static struct timespec time_to_set(int to_set, int now, int given, struct timespec t)
{
    if (to_set & now)
        return (struct timespec){.tv_nsec = UTIME_NOW};
    return to_set & given ? t : (struct timespec){.tv_nsec = UTIME_OMIT};
}

static int set_times(const struct slow_node *n, const struct stat *st, int to_set)
{
    const struct timespec t[2] = {
        time_to_set(to_set, FUSE_SET_ATTR_ATIME_NOW, FUSE_SET_ATTR_ATIME, st->st_atim),
        time_to_set(to_set, FUSE_SET_ATTR_MTIME_NOW, FUSE_SET_ATTR_MTIME, st->st_mtim),
    };

    return utimensat(n->fd, "", t, AT_EMPTY_PATH) < 0 ? errno : 0;
}

static int set_attr(const struct slow_node *n, const struct stat *st, int to_set, const struct fuse_file_info *fi)
{
    const int times = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW;
    uid_t uid = to_set & FUSE_SET_ATTR_UID ? st->st_uid : (uid_t)-1;
    gid_t gid = to_set & FUSE_SET_ATTR_GID ? st->st_gid : (gid_t)-1;
    char path[SLOW_PATH_BUF];
    int rc = 0;

    if ((to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) && fchownat(n->fd, "", uid, gid, AT_EMPTY_PATH) < 0)
        rc = errno;
    if (rc == 0 && (to_set & FUSE_SET_ATTR_MODE) && chmod(slow_path(n, path), st->st_mode) < 0)
        rc = errno;
    if (rc == 0 && (to_set & FUSE_SET_ATTR_SIZE))
        rc = set_size(n, st->st_size, fi);
    if (rc == 0 && (to_set & times))
        rc = set_times(n, st, to_set);
    return rc;
}

static void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi)
{
    struct slow_fs *fs = slow_of(req);
    struct slow_node *n = slow_node(fs, ino);
    int rc = slow_fails(fs, SLOW_SETATTR);

    if (rc == 0)
        rc = set_attr(n, st, to_set, fi);
    if (rc)
        fuse_reply_err(req, rc);
    else
        reply_attr(req, n);
}

static void do_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct slow_fs *fs = slow_of(req);
    struct statvfs st;
    int rc = slow_fails(fs, SLOW_STATFS);

    if (rc == 0 && fstatvfs(slow_node(fs, ino)->fd, &st) < 0)
        rc = errno;
    if (rc)
        fuse_reply_err(req, rc);
    else
        fuse_reply_statfs(req, &st);
}

/* ---------------------------------------------------------------- extended attributes */

static bool rules(const struct slow_node *n, const struct slow_fs *fs, const char *name)
{
    return n == &fs->root && strncmp(name, RULE, strlen(RULE)) == 0;
}

static ssize_t rule_text(struct slow_fs *fs, const char *name, char *buf, size_t size)
{
    struct fp_limiter_count c = fp_limiter_count(fs->device);

    if (strcmp(name, FAIL) == 0)
        return (ssize_t)slow_fail_text(fs, buf, size);
    if (strcmp(name, COUNT) == 0)
        return snprintf(buf, size, "write_bytes=%" PRIu64 " writes=%" PRIu64 " read_bytes=%" PRIu64 " reads=%" PRIu64 " fsyncs=%lu", c.write_bytes,
                        c.writes, c.read_bytes, c.reads, atomic_load(&fs->fsyncs));
    errno = ENODATA;
    return -1;
}

/* size 0: how long the value is. */
static void reply_xattr(fuse_req_t req, ssize_t n, const char *buf, size_t size)
{
    if (n < 0)
        fuse_reply_err(req, errno);
    else if (size == 0)
        fuse_reply_xattr(req, (size_t)n);
    else if ((size_t)n > size)
        fuse_reply_err(req, ERANGE);
    else
        fuse_reply_buf(req, buf, (size_t)n);
}

static void do_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    struct slow_fs *fs = slow_of(req);
    struct slow_node *n = slow_node(fs, ino);
    char path[SLOW_PATH_BUF], text[1024], *buf = size ? malloc(size) : NULL;
    ssize_t len;

    if (size && !buf) {
        fuse_reply_err(req, ENOMEM);
    } else if (rules(n, fs, name)) {
        len = rule_text(fs, name, text, sizeof(text));
        reply_xattr(req, len, text, size);
    } else {
        len = getxattr(slow_path(n, path), name, buf, size);
        reply_xattr(req, len, buf, size);
    }
    free(buf);
}

static void do_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    char path[SLOW_PATH_BUF], *buf = size ? malloc(size) : NULL;

    if (size && !buf)
        fuse_reply_err(req, ENOMEM);
    else
        reply_xattr(req, listxattr(slow_path(slow_node(slow_of(req), ino), path), buf, size), buf, size);
    free(buf);
}

static int set_rule(struct slow_fs *fs, const char *name, const char *value, size_t size)
{
    char text[1024];

    if (strcmp(name, FAIL) != 0)
        return EPERM;
    if (size >= sizeof(text))
        return ERANGE;
    memcpy(text, value, size);
    text[size] = '\0';
    return slow_fail_set(fs, text);
}

static void do_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
    struct slow_fs *fs = slow_of(req);
    struct slow_node *n = slow_node(fs, ino);
    char path[SLOW_PATH_BUF];
    int rc;

    if (rules(n, fs, name))
        rc = set_rule(fs, name, value, size);
    else if ((rc = slow_fails(fs, SLOW_SETATTR)) == 0)
        rc = setxattr(slow_path(n, path), name, value, size, flags) < 0 ? errno : 0;
    fuse_reply_err(req, rc);
}

static void do_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    struct slow_fs *fs = slow_of(req);
    struct slow_node *n = slow_node(fs, ino);
    char path[SLOW_PATH_BUF];
    int rc;

    if (rules(n, fs, name))
        rc = set_rule(fs, name, "", 0);
    else if ((rc = slow_fails(fs, SLOW_SETATTR)) == 0)
        rc = removexattr(slow_path(n, path), name) < 0 ? errno : 0;
    fuse_reply_err(req, rc);
}

void slow_attr_ops(struct fuse_lowlevel_ops *ops)
{
    ops->getattr = do_getattr;
    ops->setattr = do_setattr;
    ops->statfs = do_statfs;
    ops->getxattr = do_getxattr;
    ops->listxattr = do_listxattr;
    ops->setxattr = do_setxattr;
    ops->removexattr = do_removexattr;
}
