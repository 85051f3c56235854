/*
 * Starting a program of ours with exactly two descriptors: a socket and a status page (fp/child.h).
 *
 * Called by fp-benefactor for fp-drain, on the loop's thread, and by fp-drain for a host of aux-apps. As fp-mount does for fp-auxhost (client/aux/spawn.c, which has a pool, a region and a
 * cpuset besides), but without waiting for exec: a loop must not, and the file of the program may lie on a file system that does not answer. So an exec
 * that failed says its errno in the first word of the page, which is shared already, and ends.
 *
 * fork and exec, not posix_spawn, which can't say PR_SET_PDEATHSIG: the child must not outlive its parent, whatever ends that. Between fork and exec only
 * async-signal-safe functions are called, since other threads may have held any lock.
 *
 * Rejected: a thread of the parent instead of a process. One that hangs in a parallel file system (state D) can be neither killed nor joined, and keeps
 * its process, all sockets and files of it, until that file system answers.
 */
#include "fp/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/memfd.h"

#define LOW_FD     64 /* what becomes 0 .. 7 is kept above */
#define FDS        (FP_CHILD_FD_MAX + 1)
#define SOCKET_BUF (1 << 20)
#define SAYS_ERRNO 126
#define MARK       0x464f5845u /* in the upper half of the first word: the lower half is an errno */

extern char **environ;

struct fp_child {
    pid_t pid; /* 0: it has been waited for */
    int socket, status;
    void *page;
    size_t page_bytes;
};

struct launch {
    int fd[FDS]; /* -1: stays as it is */
    char **env;
    char *argv[2];
    pid_t parent;
};

static int high(int fd)
{
    int up;

    if (fd < 0)
        return -errno;
    up = fcntl(fd, F_DUPFD_CLOEXEC, LOW_FD);
    if (up < 0)
        up = -errno;
    close(fd);
    return up;
}

static char **clean_environment(void)
{
    static const char *const kept[] = { "FP_FAULTS=", "FP_LOG_LEVEL=" };
    size_t n = 0, out = 0;
    char **env;

    while (environ[n])
        n++;
    env = calloc(n + 1, sizeof(*env));
    for (size_t i = 0; env && i < n; i++)
        if (strncmp(environ[i], "FP_", 3) || !strncmp(environ[i], kept[0], strlen(kept[0])) || !strncmp(environ[i], kept[1], strlen(kept[1])))
            env[out++] = environ[i];
    return env;
}

static int make_socket(struct fp_child *c, int *theirs)
{
    int pair[2], size = SOCKET_BUF;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    for (int i = 0; i < 2; i++) {
        (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
        (void)setsockopt(pair[i], SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    }
    c->socket = pair[0];
    *theirs = high(pair[1]);
    if (*theirs < 0)
        return *theirs;
    return fcntl(c->socket, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int make_page(struct fp_child *c, int *theirs)
{
    int rc = fp_memfd_new("fpstore-status", c->page_bytes);
    void *at;

    if (rc < 0)
        return rc;
    *theirs = high(rc);
    rc = *theirs < 0 ? *theirs : fp_memfd_seal(*theirs);
    if (rc < 0)
        return rc;
    at = mmap(NULL, c->page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *theirs, 0);
    if (at == MAP_FAILED)
        return -errno;
    c->page = at;
    return 0;
}

static _Noreturn void child(const struct fp_child *c, const struct launch *l, const struct fp_child_opts *o)
{
    sigset_t none;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != l->parent)
        _exit(SAYS_ERRNO + 1);
    (void)setpgid(0, 0); /* a ^C is for the parent, which ends us */
    for (int i = 0; i < FDS; i++)
        if (l->fd[i] >= 0 ? dup2(l->fd[i], i) < 0 : i > 2 && close(i) < 0 && errno != EBADF)
            goto failed;
    for (int sig = 1; sig < 32; sig++)
        (void)signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (o->nice)
        (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + o->nice);
    syscall(SYS_close_range, (unsigned)FDS, ~0u, 0u);
    execve(o->path, l->argv, l->env);
failed:
    atomic_store((_Atomic uint64_t *)c->page, (uint64_t)MARK << 32 | (unsigned)errno);
    _exit(SAYS_ERRNO);
}

static void launch_fini(struct launch *l)
{
    for (int i = 0; i < FDS; i++)
        if (l->fd[i] >= 0)
            close(l->fd[i]);
    free(l->env);
}

int fp_child_start(const struct fp_child_opts *o, struct fp_child **out)
{
    struct launch l = { .fd = { -1, -1, -1, -1, -1, -1, -1, -1 }, .argv = { (char *)(uintptr_t)o->name, NULL }, .parent = getpid() };
    struct fp_child *c = calloc(1, sizeof(*c));
    int rc;

    if (!c)
        return -ENOMEM;
    c->socket = -1;
    c->page_bytes = o->page_bytes < sizeof(uint64_t) ? sizeof(uint64_t) : o->page_bytes;
    l.env = clean_environment();
    rc = l.env ? make_socket(c, &l.fd[FP_CHILD_FD_SOCKET]) : -ENOMEM;
    if (rc == 0)
        rc = make_page(c, &l.fd[o->page_at ? o->page_at : FP_CHILD_FD_PAGE]);
    for (unsigned i = 0; rc == 0 && i < o->nmore; i++)
        rc = (l.fd[o->more[i].at] = high(dup(o->more[i].fd))) < 0 ? l.fd[o->more[i].at] : 0;
    if (rc == 0)
        rc = (l.fd[0] = high(open("/dev/null", O_RDONLY | O_CLOEXEC))) < 0 ? l.fd[0] : 0;
    if (rc == 0) {
        c->pid = fork();
        if (c->pid == 0)
            child(c, &l, o);
        rc = c->pid < 0 ? -errno : 0;
        c->pid = c->pid < 0 ? 0 : c->pid;
    }
    launch_fini(&l);
    if (rc)
        fp_child_free(c);
    else
        *out = c;
    return rc;
}

int fp_child_socket(const struct fp_child *c)
{
    return c->socket;
}

void *fp_child_page(const struct fp_child *c)
{
    return c->page;
}

int fp_child_pid(const struct fp_child *c)
{
    return c->pid;
}

void fp_child_kill(struct fp_child *c)
{
    if (c->pid > 0)
        (void)kill(c->pid, SIGKILL);
}

bool fp_child_gone(struct fp_child *c, int *status)
{
    uint64_t word;
    int st;

    if (c->pid > 0) {
        pid_t rc = waitpid(c->pid, &st, WNOHANG);

        if (rc == 0 || (rc < 0 && errno == EINTR))
            return false;
        if (rc < 0)
            c->status = -errno; /* somebody else has waited for it */
        else
            c->status = WIFSIGNALED(st) ? 0x100 + WTERMSIG(st) : WEXITSTATUS(st);
        word = atomic_load((_Atomic uint64_t *)c->page);
        if (c->status == SAYS_ERRNO && word >> 32 == MARK)
            c->status = -(int)(uint32_t)word;
        c->pid = 0;
    }
    if (status)
        *status = c->status;
    return true;
}

void fp_child_free(struct fp_child *c)
{
    if (!c)
        return;
    if (!fp_child_gone(c, NULL))
        fp_child_kill(c);
    if (c->socket >= 0)
        close(c->socket);
    if (c->page)
        munmap(c->page, c->page_bytes);
    free(c);
}
