/*
 * In place of a control group (see hold.h): a process of root's above those that a prolog has started for a user. One thread, from its fork to its end.
 *
 * Whatever forks away from its parent among them becomes its child (PR_SET_CHILD_SUBREAPER), and no process of the user can end it, stop it or get out from below
 * it. So all of them are found by going down from it; a list by user and session was rejected, since a process may take a session of its own, and another job of
 * the user may be on the node.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "jobscripts/spank/hold.h"

#define ROUND_NS 10000000

struct process {
    pid_t pid, parent;
    bool below;
};

/* What /proc says of it. False: it is not there any more. */
static bool look(const char *pid, pid_t *parent, unsigned long long *ticks)
{
    char path[64], text[1024], *end, state;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    end = strrchr(text, ')'); /* of its name, which may have anything in it */
    return end && sscanf(end + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state, parent, ticks) == 3 && state != 'Z';
}

unsigned long long spank_process_ticks(pid_t pid)
{
    unsigned long long ticks;
    char text[24];
    pid_t parent;

    snprintf(text, sizeof text, "%d", (int)pid);
    return look(text, &parent, &ticks) ? ticks : 0;
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct process *)a)->pid, y = ((const struct process *)b)->pid;

    return (x > y) - (x < y);
}

/* In the order of their numbers. */
static size_t list_all(struct process **out)
{
    DIR *d = opendir("/proc");
    size_t n = 0, room = 0;

    *out = NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        unsigned long long ticks;
        pid_t parent;

        if (e->d_name[0] < '1' || e->d_name[0] > '9' || !look(e->d_name, &parent, &ticks))
            continue;
        if (n == room) {
            struct process *more = realloc(*out, (room = room ? room * 2 : 256) * sizeof *more);

            if (!more)
                break;
            *out = more;
        }
        (*out)[n++] = (struct process){.pid = (pid_t)atoi(e->d_name), .parent = parent};
    }
    if (d)
        closedir(d);
    if (n)
        qsort(*out, n, sizeof **out, by_pid);
    return n;
}

static bool is_below(const struct process *list, size_t n, pid_t parent)
{
    const struct process key = {.pid = parent}, *p;

    if (parent == getpid())
        return true;
    p = bsearch(&key, list, n, sizeof key, by_pid);
    return p && p->below;
}

/* One round; what they have made meanwhile is of the next. */
static void kill_below(void)
{
    struct process *list;
    size_t n = list_all(&list);

    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < n; i++)
            if (!list[i].below && is_below(list, n, list[i].parent)) {
                list[i].below = more = true;
                (void)kill(list[i].pid, SIGKILL);
            }
    }
    free(list);
}

/* Until nobody is left below. The first child is told of; after SIGTERM all of them are killed. */
static void reap(pid_t first, int answer)
{
    static const struct timespec round = {0, ROUND_NS};
    bool ending = false;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    for (;;) {
        int status, sig;
        pid_t pid;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            unsigned char code = WIFEXITED(status) ? (unsigned char)WEXITSTATUS(status) : 1;

            if (pid == first && send(answer, &code, 1, MSG_NOSIGNAL) <= 0)
                ending = true; /* who has started us is gone without a note */
        }
        if (pid < 0 && errno == ECHILD)
            return;
        sig = ending ? sigtimedwait(&set, NULL, &round) : sigwaitinfo(&set, NULL);
        ending = ending || sig == SIGTERM;
        if (ending)
            kill_below();
    }
}

/* Kernels before 5.9 have no call for it. Again until none is left: what is closed may be what the list is read by. */
void spank_close_from(int first)
{
    bool more = syscall(SYS_close_range, (unsigned)first, ~0u, 0u) < 0;

    while (more) {
        DIR *d = opendir("/proc/self/fd");

        more = false;
        for (struct dirent *e; d && (e = readdir(d));) {
            int fd = atoi(e->d_name);

            if (e->d_name[0] != '.' && fd >= first && fd != dirfd(d))
                more = close(fd) == 0 || more;
        }
        if (d)
            closedir(d);
    }
}

static _Noreturn void be_reaper(void (*child)(void *), void *arg, int go)
{
    sigset_t all, none;
    char byte;
    pid_t pid;

    sigfillset(&all);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    (void)prctl(PR_SET_NAME, "fp-job-reaper");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || read(go, &byte, 1) != 1)
        _exit(1);
    pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &none, NULL);
        child(arg);
        _exit(1);
    }
    if (dup2(go, 0) == 0) /* nothing else of slurmd's is kept open */
        spank_close_from(1);
    if (pid > 0 && chdir("/") == 0)
        reap(pid, 0);
    _exit(0);
}

pid_t spank_reaper_start(void (*child)(void *), void *arg, int *go)
{
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid = fork();
    if (pid == 0) {
        close(pair[0]);
        be_reaper(child, arg, pair[1]);
    }
    if (pid < 0) {
        pid = -errno;
        close(pair[0]);
        pair[0] = -1;
    }
    close(pair[1]);
    *go = pair[0];
    return pid;
}

void spank_reaper_end(pid_t reaper)
{
    (void)kill(reaper, SIGTERM);
}
