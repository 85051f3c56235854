/*
 * Temporary files of sources (spool.h). Called by npz.c; blocks for the disk.
 *
 * O_TMPFILE makes a file that never had a name. Not every file system knows it (FUSE, NFS): there the file has a name for a moment, of letters alone, so that a watch for dumps takes it for none, and
 * only a kill in this moment leaves an empty file behind. Rejected: mkstemp, whose names may have digits, in which the store looks for time steps.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "convert/source/spool.h"

#define LETTERS 12u
#define TRIES   16u

static int open_named(const char *dir)
{
    char path[PATH_MAX];
    unsigned char random[LETTERS];

    for (unsigned i = 0; i < TRIES; i++) {
        int n, fd;

        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
            return -EAGAIN;
        n = snprintf(path, sizeof path, "%s/.fp-convert-", dir);
        if (n < 0 || (size_t)n + LETTERS >= sizeof path)
            return -ENAMETOOLONG;
        for (unsigned k = 0; k < LETTERS; k++)
            path[(size_t)n + k] = (char)('a' + random[k] % 26);
        path[(size_t)n + LETTERS] = '\0';
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST && errno != EINTR)
            return -errno;
        if (fd >= 0) {
            unlink(path);
            return fd;
        }
    }
    return -EEXIST;
}

int cv_spool_open(const char *dir, struct cv_fail *why)
{
    int fd;

    if (!dir)
        return cv_fail(why, -EINVAL, NULL, NULL, CV_NO_OFFSET, "compressed members need a directory for temporary files, and none is set");
    fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        fd = open_named(dir);
    if (fd < 0)
        return cv_fail(why, fd, dir, NULL, CV_NO_OFFSET, "a temporary file for compressed members cannot be made here: %s", strerror(-fd));
    return fd;
}

int cv_spool_write(int fd, const char *dir, uint64_t off, const void *buf, size_t len, struct cv_fail *why)
{
    for (const char *at = buf; len;) {
        ssize_t n = pwrite(fd, at, len, (off_t)off);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int rc = n < 0 ? -errno : -ENOSPC;

            return cv_fail(why, rc, dir, NULL, CV_NO_OFFSET, "a temporary file for compressed members cannot be written here, after %llu bytes: %s", (unsigned long long)off, strerror(-rc));
        }
        at += n;
        off += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

int cv_spool_read(int fd, const char *dir, uint64_t off, void *buf, size_t len, struct cv_fail *why)
{
    for (char *at = buf; len;) {
        ssize_t n = pread(fd, at, len, (off_t)off);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int rc = n < 0 ? -errno : -ENODATA;

            return cv_fail(why, rc, dir, NULL, CV_NO_OFFSET, "a temporary file for compressed members cannot be read here: %s", strerror(-rc));
        }
        at += n;
        off += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}
