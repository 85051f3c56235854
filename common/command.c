/* Runs a program with a limit (see fp/command.h): what Slurm and MPI are asked, fpctl. One thread; SIGCHLD is left as it is. */
#include "fp/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/limited.h"

#define FIRST_BYTES 65536u

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

/* Where what a program writes goes: size bytes, or, where more may come, as many as are needed up to max. */
struct kept {
    char *text; /* NUL-terminated */
    size_t n, size, max;
    bool cut;
};

/* Room for more, if it may have any. */
static int widen(struct kept *k)
{
    size_t size = k->max - k->size > k->size ? 2 * k->size : k->max;
    char *more;

    if (k->n + 1 < k->size || k->size >= k->max)
        return 0;
    more = realloc(k->text, size);
    if (!more)
        return -ENOMEM;
    k->text = more;
    k->size = size;
    return 0;
}

/* To the end of it, or of the time. */
static int hear(int fd, uint64_t until, struct kept *k)
{
    char drop[4096];

    for (;;) {
        uint64_t now = fp_now_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t got;
        bool room;

        k->text[k->n] = '\0';
        if (now >= until)
            return -ETIMEDOUT;
        if (poll(&p, 1, (int)(until - now)) <= 0)
            continue;
        if (widen(k))
            return -ENOMEM;
        room = k->n + 1 < k->size;
        got = room ? read(fd, k->text + k->n, k->size - 1 - k->n) : read(fd, drop, sizeof drop);
        if (got < 0 && errno != EINTR)
            return -errno;
        if (got == 0)
            return 0;
        if (got > 0 && room)
            k->n += (size_t)got;
        k->cut |= got > 0 && !room;
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

static int run(char *const argv[], uint64_t limit_ms, struct kept *k)
{
    uint64_t until = fp_now_ms() + limit_ms;
    int fds[2], rc, end;
    pid_t pid = -1;

    k->text[0] = '\0';
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    rc = start(argv, fds[1], -1, &pid);
    close(fds[1]);
    if (rc == 0) {
        rc = hear(fds[0], until, k);
        end = result(pid, rc ? 0 : until, NULL); /* it may have closed its output and go on */
        rc = rc ? rc : end;
    }
    close(fds[0]);
    return rc;
}

int fp_command(char *const argv[], uint64_t limit_ms, char *out, size_t size)
{
    struct kept k = {.text = out, .size = size, .max = size};

    return run(argv, limit_ms, &k);
}

int fp_command_long(char *const argv[], uint64_t limit_ms, size_t max_bytes, char **out)
{
    size_t first = max_bytes < FIRST_BYTES ? max_bytes + 1 : FIRST_BYTES;
    struct kept k = {.text = malloc(first), .size = first, .max = max_bytes + 1};
    int rc = k.text ? run(argv, limit_ms, &k) : -ENOMEM;

    *out = k.text;
    return rc == 0 && k.cut ? -E2BIG : rc;
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
