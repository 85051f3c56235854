/*
 * Programs run with a limit from inside of Slurm's (see spank_fp.h). One thread calls; signals and other children of the process are left alone.
 *
 * Not jobscripts/command.c, which is for programs of ours: what is loaded into slurmd's processes must not bring libraries with it. A child that does not
 * die of SIGKILL, since the kernel waits for something in its name, is left behind: who waits for it would take part in its misery.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "jobscripts/spank/spank_fp.h"

#define AFTER_KILL_MS 1000u

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* True: it has ended. */
static bool ended_by(pid_t pid, uint64_t until_ms, int *status)
{
    static const struct timespec pause = {0, 5000000};

    for (;;) {
        pid_t got = waitpid(pid, status, WNOHANG);

        if (got == pid || (got < 0 && errno != EINTR))
            return true;
        if (now_ms() >= until_ms)
            return false;
        nanosleep(&pause, NULL);
    }
}

static int wait_for(pid_t pid, uint64_t limit_ms)
{
    int status = 0;

    if (!ended_by(pid, now_ms() + limit_ms, &status)) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
        (void)ended_by(pid, now_ms() + AFTER_KILL_MS, &status);
        return -ETIMEDOUT;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

static void reset_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < NSIG; sig++)
        (void)signal(sig, SIG_DFL);
}

/* input: it has ours; else /dev/null. */
static _Noreturn void become(char *const argv[], char *const envp[], bool input)
{
    int null = input ? -1 : open("/dev/null", O_RDWR | O_CLOEXEC);

    setpgid(0, 0);
    reset_signals();
    if (null >= 0)
        (void)dup2(null, STDIN_FILENO);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    execve(argv[0], argv, envp);
    _exit(127);
}

int spank_fp_run(char *const argv[], char *const envp[], bool input, uint64_t limit_ms)
{
    pid_t pid = fork();

    if (pid < 0)
        return -errno;
    if (pid == 0)
        become(argv, envp, input);
    return wait_for(pid, limit_ms);
}
