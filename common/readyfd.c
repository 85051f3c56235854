/* The ready line: how a parent learns that we serve, and where; and how systemd does.
 *
 * Called by main() once listening (fp-mount: once mounted). A test or fp-store starts us with port 0 and
 * --ready-fd N, N the write end of a pipe, and reads one line; end of file without a line means that we
 * failed to start. That is race-free, which waiting for a port or a pid file to appear is not.
 * Of a unit with Type=notify, systemd names a socket in the environment instead, and wants one datagram: less than
 * what libsystemd would bring with it. Whether it comes is no concern of ours, systemd has its own limit. */
#include "fp/readyfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
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

/* A name that begins with @ is an abstract one. */
static void tell_systemd(void)
{
    static const char ready[] = "READY=1";
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = name ? strlen(name) : 0;

    if (len < 2 || len >= sizeof to.sun_path || (name[0] != '/' && name[0] != '@'))
        return;
    memcpy(to.sun_path, name, len);
    if (name[0] == '@')
        to.sun_path[0] = '\0';
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return;
    (void)sendto(s, ready, sizeof ready - 1, MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    close(s);
}

int fp_ready_write(int fd, const char *text)
{
    int rc = 0;
    tell_systemd();
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
