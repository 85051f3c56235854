/*
 * Daemon: see daemon.h. Called by main.c and, when the kernel has said FUSE_INIT, by fuse_session.c.
 *
 * The fork comes first, before locked memory, threads and sockets, none of which survive it. The child does
 * all of the work and shares stderr with the parent until it is ready, so that an error line appears where
 * the user looks. After that it must not hold the caller's pipes open: `$(mount …)` would wait for ever.
 */
#include "client/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/log.h"

static int ready_pipe = -1;
static int terminal = -1; /* what stderr was */

static _Noreturn void wait_for_child(pid_t pid, int fd)
{
    char byte;
    int status;
    ssize_t n;
    do {
        n = read(fd, &byte, 1);
    } while (n < 0 && errno == EINTR);
    if (n == 1)
        _exit(0);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status))
        _exit(WEXITSTATUS(status) ? WEXITSTATUS(status) : 1);
    FP_ERROR("ended by signal %d before the mount was usable", WTERMSIG(status));
    _exit(1);
}

int cl_daemon_fork(void)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid_t caller = getpid(), pid = fork();
    if (pid < 0)
        return -errno;
    if (pid > 0) {
        close(fds[1]);
        wait_for_child(pid, fds[0]);
    }
    close(fds[0]);
    ready_pipe = fds[1];
    /* Ctrl-C ends the parent alone. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != caller)
        _exit(1);
    setsid();
    if (chdir("/") < 0)
        return -errno;
    return 0;
}

void cl_daemon_mounting(void)
{
    prctl(PR_SET_PDEATHSIG, 0);
}

int cl_daemon_log_to(const char *log_file)
{
    int fd = open(log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (fd < 0) {
        int err = errno;
        FP_ERROR("cannot write to the log file %s: %s", log_file, strerror(err));
        return -err;
    }
    terminal = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    fp_log_also(terminal);
    dup2(fd, STDERR_FILENO);
    close(fd);
    return 0;
}

bool cl_daemon_ready(const char *log_file)
{
    if (terminal >= 0) {
        fp_log_also(-1);
        close(terminal);
        terminal = -1;
    }
    if (ready_pipe < 0)
        return true;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        if (!log_file)
            dup2(null, STDERR_FILENO);
        close(null);
    }
    char byte = 1;
    bool told = write(ready_pipe, &byte, 1) == 1;
    if (!told)
        FP_WARN("whoever started this mount is gone");
    close(ready_pipe);
    ready_pipe = -1;
    return told;
}
