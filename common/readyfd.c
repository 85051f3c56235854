/* The ready line: how a parent learns that we serve, and where.
 *
 * Called by main() once listening (fp-mount: once mounted). A test or fp-store starts us with port 0 and
 * --ready-fd N, N the write end of a pipe, and reads one line; end of file without a line means that we
 * failed to start. That is race-free, which waiting for a port or a pid file to appear is not. */
#include "fp/readyfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

int fp_ready_check(int fd)
{
    if (fd < 0)
        return 0;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return -EBADF;
    return fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
}

int fp_ready_write(int fd, const char *text)
{
    int rc = 0;
    if (fd < 0)
        return 0;
    /* One writev: shorter than PIPE_BUF, so the reader sees the line whole. */
    struct iovec iov[2] = {{(void *)(size_t)text, strlen(text)}, {(void *)(size_t) "\n", 1}};
    ssize_t n;
    do
        n = writev(fd, iov, 2);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        rc = -errno;
    else if ((size_t)n != strlen(text) + 1)
        rc = -EIO;
    if (fd > STDERR_FILENO)
        close(fd);
    return rc;
}
