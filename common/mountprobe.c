/* Looking at a mount that may hang (mountprobe.h).
 *
 * Called by fp-mount and fp-store before they use a mountpoint. A mount of fpstore whose manager is away answers only after
 * a minute, and a call into it cannot be given up; so a child process makes it, and is killed when it takes too long (the
 * kernel lets go of a FUSE request whose caller is killed). statfs(2) and not stat(2): of a mount that died a moment ago
 * the kernel may still know the attributes. A thread instead of the child was rejected: it could not be got rid of. */
#include "fp/mountprobe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

int fp_mount_probe(const char *path, int limit_ms)
{
    struct statfs st;
    int fds[2], err = ETIMEDOUT;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        int e = statfs(path, &st) == 0 ? 0 : errno;
        _exit(write(fds[1], &e, sizeof e) == sizeof e ? 0 : 1);
    }
    close(fds[1]);
    struct pollfd p = {.fd = fds[0], .events = POLLIN};
    if (pid > 0 && poll(&p, 1, limit_ms) == 1 && read(fds[0], &err, sizeof err) != sizeof err)
        err = EIO;
    close(fds[0]);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return -err;
}
