/*
 * Writing small files whole (see fp/wholefile.h): records of stores and jobs, keys, scripts. Called by fp-store and fp-job.
 *
 * What decides whether data is removed, or what a store is started with after a reboot, is written durably: a rename that reaches the disk before what was
 * written leaves an empty file in the place of a good one. Where nothing outlives the machine's processes it is not, as it costs a turn of the disk.
 */
#include "fp/wholefile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int fp_write_all(int fd, const void *data, size_t n)
{
    const char *at = data;

    while (n) {
        ssize_t k = write(fd, at, n);

        if (k < 0 && errno != EINTR)
            return -errno;
        at += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
    return 0;
}

static int write_temp(const char *temp, const char *text, mode_t mode, bool durable)
{
    int rc, fd;

    (void)unlink(temp);
    fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return -errno;
    rc = fp_write_all(fd, text, strlen(text));
    if (rc == 0 && durable && fsync(fd) < 0)
        rc = -errno;
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    return rc;
}

/* The new name itself. Some network file systems know no such thing of a directory, and need none. */
static int sync_directory_of(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int rc = 0, fd;

    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fsync(fd) < 0 && errno != EINVAL)
        rc = -errno;
    close(fd);
    return rc;
}

int fp_write_whole(const char *path, const char *text, mode_t mode, bool durable)
{
    char temp[PATH_MAX];
    int rc;

    if (snprintf(temp, sizeof temp, "%s.new", path) >= PATH_MAX)
        return -ENAMETOOLONG;
    rc = write_temp(temp, text, mode, durable);
    if (rc == 0 && rename(temp, path) < 0)
        rc = -errno;
    if (rc) {
        (void)unlink(temp);
        return rc;
    }
    return durable ? sync_directory_of(path) : 0;
}
