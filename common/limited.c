/*
 * Calls with a limit (see fp/limited.h). Called by fp-job for directories of jobs, and for looking at mounts (mountprobe.c).
 *
 * A call into a file system can't be given up, so a child process makes it. A thread was rejected: it could not be got rid of. A child in state D can't either, but
 * nobody waits for it.
 */
#include "fp/limited.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fp/clock.h"

#define GONE_MS 2000u

bool fp_reap(pid_t pid, int *status)
{
    static const struct timespec pause = {0, 1000000};
    pid_t got;

    for (uint64_t until = fp_now_ms() + GONE_MS; (got = waitpid(pid, status, WNOHANG)) == 0 || (got < 0 && errno == EINTR); nanosleep(&pause, NULL))
        if (fp_now_ms() >= until)
            return false;
    return got == pid;
}

int fp_limited(int (*work)(const void *arg), const void *arg, uint64_t limit_ms)
{
    uint64_t until = fp_now_ms() + limit_ms;
    int fds[2], status = 0, rc = -ETIMEDOUT;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid = fork();
    if (pid == 0)
        _exit(-work(arg) & 0xff);
    close(fds[1]);
    if (pid < 0) {
        rc = -errno;
        close(fds[0]);
        return rc;
    }
    for (uint64_t now; (now = fp_now_ms()) < until;) { /* its end closes the pipe */
        struct pollfd p = {.fd = fds[0], .events = POLLIN};

        if (poll(&p, 1, (int)(until - now)) > 0) {
            rc = 0;
            break;
        }
    }
    close(fds[0]);
    if (rc)
        (void)kill(pid, SIGKILL);
    if (!fp_reap(pid, &status) || rc)
        return -ETIMEDOUT;
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}
