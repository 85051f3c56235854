/* Runs a program with a limit (see fp/command.h): what Slurm and MPI are asked, fpctl. One thread; SIGCHLD is left as it is. */
#include "fp/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/limited.h"

/* Between fork and exec: only what may be called there. out, err: where they go; err < 0: nowhere. Returns if that failed. */
static void become(char *const argv[], int out, int err, pid_t parent)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0 || setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) /* a process group: what it starts ends with it */
        return;
    if (getppid() != parent)
        _exit(1);
    if (dup2(null, STDIN_FILENO) < 0 || (err < 0 && dup2(null, STDERR_FILENO) < 0) || dup2(out, STDOUT_FILENO) < 0)
        return;
    (void)execvp(argv[0], argv);
}

/* By fork: posix_spawn can't say PR_SET_PDEATHSIG, and what waits patiently for a store must not outlive who has asked for it. */
static int start(char *const argv[], int out, int err, pid_t *pid)
{
    pid_t parent = getpid();
    int fds[2], failed = 0;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    *pid = fork();
    if (*pid == 0) {
        become(argv, out, err, parent);
        failed = errno;
        (void)!write(fds[1], &failed, sizeof failed);
        _exit(127);
    }
    failed = *pid < 0 ? errno : 0;
    close(fds[1]);
    while (*pid > 0 && read(fds[0], &failed, sizeof failed) < 0 && errno == EINTR) /* to its end, when it is the program */
        ;
    close(fds[0]);
    if (*pid > 0 && failed)
        while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
            ;
    return -failed;
}

/* To the end of it, or of the time. */
static int hear(int fd, uint64_t until, char *out, size_t size)
{
    char drop[4096];
    size_t n = 0;

    for (;;) {
        uint64_t now = fp_now_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t got;

        out[n] = '\0';
        if (now >= until)
            return -ETIMEDOUT;
        if (poll(&p, 1, (int)(until - now)) <= 0)
            continue;
        got = n + 1 < size ? read(fd, out + n, size - 1 - n) : read(fd, drop, sizeof drop);
        if (got < 0 && errno != EINTR)
            return -errno;
        if (got == 0)
            return 0;
        if (got > 0 && n + 1 < size)
            n += (size_t)got;
    }
}

/* Its end, of which *late says that it came by us, and why: until was over, or over() said so. False: there is none, or the kernel holds it (limited.c). */
static bool reap(pid_t pid, uint64_t until, bool (*over)(void), int *status, int *late)
{
    static const struct timespec pause = {0, 10000000};
    pid_t got;

    while ((got = waitpid(pid, status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        *late = over && over() ? -EINTR : fp_now_ms() >= until ? -ETIMEDOUT : 0;
        if (*late) {
            kill(-pid, SIGKILL);
            return fp_reap(pid, status);
        }
        nanosleep(&pause, NULL);
    }
    return got == pid;
}

static int result(pid_t pid, uint64_t until, bool (*over)(void))
{
    int status = 0, late = 0;

    if (!reap(pid, until, over, &status, &late) && !late)
        return -ECHILD;
    if (late)
        return late;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

int fp_command(char *const argv[], uint64_t limit_ms, char *out, size_t size)
{
    uint64_t until = fp_now_ms() + limit_ms;
    int fds[2], rc, end;
    pid_t pid = -1;

    out[0] = '\0';
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    rc = start(argv, fds[1], -1, &pid);
    close(fds[1]);
    if (rc == 0) {
        rc = hear(fds[0], until, out, size);
        end = result(pid, rc ? 0 : until, NULL); /* it may have closed its output and go on */
        rc = rc ? rc : end;
    }
    close(fds[0]);
    return rc;
}

int fp_command_shown(char *const argv[], uint64_t limit_ms)
{
    return fp_command_shown_until(argv, limit_ms, NULL);
}

int fp_command_shown_until(char *const argv[], uint64_t limit_ms, bool (*over)(void))
{
    uint64_t until = fp_now_ms() + limit_ms;
    pid_t pid = -1;
    int rc = start(argv, STDERR_FILENO, STDERR_FILENO, &pid);

    return rc ? rc : result(pid, until, over);
}

int fp_shell_word(const char *text, char *out, size_t size)
{
    size_t n = 0;

    if (size < 3)
        return -ENAMETOOLONG;
    out[n++] = '\'';
    for (; *text && n + 6 <= size; text++)
        if (*text == '\'') {
            memcpy(out + n, "'\\''", 4);
            n += 4;
        } else
            out[n++] = *text;
    if (*text || n + 2 > size)
        return -ENAMETOOLONG;
    out[n++] = '\'';
    out[n] = '\0';
    return 0;
}
