/*
 * The process of fp-auxhost: start it with exactly the descriptors of auxwire.h (its end: end.c).
 *
 * Called on the link thread. fork and exec, not posix_spawn, which can't say PR_SET_PDEATHSIG: the host must not outlive fp-mount, whatever ends it. That
 * signal is tied to the thread that forks, and the link thread lives as long as the aux side does. Between fork and exec the child calls
 * async-signal-safe functions only, since other threads may have held any lock.
 *
 * What a plugin does not get: the memory of fp-mount, with the store's key. exec leaves it behind; that the process is not dumpable closes /proc/PID/mem and
 * ptrace to processes of the same user, and the store's key is in no core file. Nor the options of fp-mount in the environment (FP_KEY names the key's
 * file), nor any descriptor but ours. The pool is opened anew, read-only, and sealed, so that neither mprotect nor another open makes it writable.
 *
 * What it does get: all that the user of the mount may read and write, the file with the store's key too, since aux-apps open files of that user by
 * design: plugins are trusted that far, and the user is told so (docs/AUXAPPS.md). Rejected: Landlock, which can say what may be opened and not what may not, so
 * that all files beside the key would have to be named before anybody makes them; /dev/null mounted over the key in a mount namespace, since
 * a user without privileges may not make one everywhere, and who means harm has that user's other processes, start-up files and agents left; another user
 * for plugins, or a sandbox, which ends the files.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/aux/internal.h"
#include "client/data/pool.h"
#include "fp/beside.h"
#include "fp/memfd.h"

#define LOW_FD     64  /* descriptors for the child are kept above what they become */
#define FDS        8   /* 0, 1, 2 and enum fp_auxw_fd */
#define SOCKET_BUF (1 << 20)

extern char **environ;

/* -------------------------------------------------------------- where things are */

void cl_aux_find_programs(struct cl_aux *a)
{
    static const char *const hosts[] = { "fp-auxhost", "../libexec/fpstore/fp-auxhost", "../lib/fpstore/fp-auxhost", NULL };
    const struct cl_options *opt = &a->m->opt;

    if (opt->auxhost)
        snprintf(a->host_path, sizeof(a->host_path), "%s", opt->auxhost);
    else
        (void)fp_beside(a->host_path, sizeof(a->host_path), hosts);
    if (opt->auxapp_dir)
        snprintf(a->plugin_dir, sizeof(a->plugin_dir), "%s", opt->auxapp_dir);
    else
        fp_beside_plugins(a->plugin_dir, sizeof(a->plugin_dir));
}

/* -------------------------------------------------------------- before fork */

struct launch {
    int fd[FDS];                   /* what becomes 0 .. 7; -1: is left as it is */
    int report[2];                 /* errno of an exec that failed */
    char **env;
    char *argv[2];
    pid_t parent;
};

/* Options of fp-mount are no business of plugins; what they are told comes by CONFIG. */
static bool for_plugins(const char *var)
{
    static const char *const kept[] = { "FP_FAULTS=", "FP_LOG_LEVEL=", NULL };

    for (const char *const *k = kept; *k; k++)
        if (strncmp(var, *k, strlen(*k)) == 0)
            return true;
    return strncmp(var, "FP_", 3) != 0;
}

static char **clean_environment(void)
{
    size_t n = 0, kept = 0;
    char **env;

    while (environ[n])
        n++;
    env = calloc(n + 1, sizeof(*env));
    for (size_t i = 0; env && i < n; i++)
        if (for_plugins(environ[i]))
            env[kept++] = environ[i];
    return env;
}

/* fd moves out of the way of 3 .. 7. */
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

static int seqpacket_pair(int *ours, int *theirs)
{
    int pair[2], size = SOCKET_BUF;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    for (int i = 0; i < 2; i++) {
        (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
        (void)setsockopt(pair[i], SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    }
    *ours = pair[0];
    *theirs = high(pair[1]);
    return *theirs < 0 ? *theirs : 0;
}

static int map_status(struct aux_host *h, int *fd)
{
    int rc = fp_memfd_new("fpstore-aux-status", sizeof(struct fp_auxw_status));
    void *at;

    if (rc < 0)
        return rc;
    *fd = high(rc);
    rc = *fd < 0 ? *fd : fp_memfd_seal(*fd);
    if (rc < 0)
        return rc;
    at = mmap(NULL, sizeof(struct fp_auxw_status), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    h->status = at;
    return 0;
}

static int prepare(struct cl_aux *a, struct aux_host *h, struct launch *l)
{
    char pool[64];
    int rc;

    rc = seqpacket_pair(&h->jobs_fd, &l->fd[FP_AUXW_FD_JOBS]);
    if (rc == 0)
        rc = seqpacket_pair(&h->services_fd, &l->fd[FP_AUXW_FD_SERVICES]);
    if (rc == 0)
        rc = map_status(h, &l->fd[FP_AUXW_FD_STATUS]);
    if (rc < 0)
        return rc;
    snprintf(pool, sizeof(pool), "/proc/self/fd/%d", cl_pool_fd(a->pool));
    l->fd[FP_AUXW_FD_POOL] = high(open(pool, O_RDONLY | O_CLOEXEC));
    l->fd[FP_AUXW_FD_REGION] = high(dup(a->region_fd));
    l->fd[0] = high(open("/dev/null", O_RDONLY | O_CLOEXEC));
    /* In the background nothing may keep the caller's terminal or pipe open: `fp-mount … | cat` ends with fp-mount. */
    if (!a->m->opt.foreground)
        l->fd[1] = high(open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (!a->m->opt.foreground && !a->m->opt.log_file)
        l->fd[2] = high(open("/dev/null", O_WRONLY | O_CLOEXEC));
    l->env = clean_environment();
    if (pipe2(l->report, O_CLOEXEC) < 0)
        return -errno;
    for (int i = 3; i < FDS; i++)
        if (l->fd[i] < 0)
            return l->fd[i];
    return l->env ? 0 : -ENOMEM;
}

/* -------------------------------------------------------------- after it */

static void child(const struct launch *l, const char *path)
{
    sigset_t none;
    int err, report = l->report[1];

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != l->parent)
        _exit(127);
    (void)setpgid(0, 0); /* a ^C is for fp-mount, which ends us */
    if (report < FDS)
        report = fcntl(report, F_DUPFD_CLOEXEC, LOW_FD);
    for (int i = 0; i < FDS; i++)
        if (l->fd[i] >= 0 && dup2(l->fd[i], i) < 0)
            goto failed;
    for (int sig = 1; sig < 32; sig++)
        (void)signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* All others have FD_CLOEXEC, or should: a plugin gets none that a library forgot. */
    syscall(SYS_close_range, (unsigned)FDS, (unsigned)report - 1, 0u);
    syscall(SYS_close_range, (unsigned)report + 1, ~0u, 0u);
    execve(path, l->argv, l->env);
failed:
    err = errno;
    if (write(report, &err, sizeof(err)) != sizeof(err))
        _exit(126);
    _exit(127);
}

static int launched(struct cl_aux *a, struct aux_host *h, struct launch *l)
{
    struct pollfd p = { .fd = l->report[0], .events = POLLIN };
    uint64_t until_ms = fp_now_ms() + AUX_START_MS, now_ms;
    ssize_t n = -1;
    int err = 0;

    close(l->report[1]);
    l->report[1] = -1;
    /* The program may lie on a file system that does not answer. */
    while ((now_ms = fp_now_ms()) < until_ms && poll(&p, 1, (int)(until_ms - now_ms)) < 0 && errno == EINTR)
        ;
    if (p.revents)
        n = read(l->report[0], &err, sizeof(err));
    if (n == 0)
        return 0; /* closed by exec */
    (void)cl_aux_host_end(a, h, false);
    return n == sizeof(err) ? -err : p.revents ? -EIO : -ETIMEDOUT;
}

static void launch_fini(struct launch *l)
{
    for (int i = 0; i < FDS; i++)
        if (l->fd[i] >= 0)
            close(l->fd[i]);
    for (int i = 0; i < 2; i++)
        if (l->report[i] >= 0)
            close(l->report[i]);
    free(l->env);
}

static struct aux_host *host_new(void)
{
    struct aux_host *h = calloc(1, sizeof(*h));

    if (h) {
        atomic_init(&h->refs, 1);
        h->jobs_fd = h->services_fd = h->pid_fd = -1;
        h->started_ms = fp_now_ms();
    }
    return h;
}

/* Before a process of the same user runs what others have written. It stays so: memory has what it had before. */
static void keep_to_ourselves(void)
{
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        FP_WARN("aux-apps may look into the memory of fp-mount: %s", strerror(errno));
}

/* It has loaded no plugin yet: that comes with START. Without a cpuset it runs as well, and what keeps a plugin's own threads on the cores is its good will. */
static void confine(struct cl_aux *a, struct aux_host *h)
{
    const struct cl_options *opt = &a->m->opt;
    bool was = a->confined;
    cpu_set_t mine, cores;
    char why[400];
    int rc;

    if (opt->ncores == 0)
        return;
    /* Those of --cores that this process may use: the link thread is pinned to them. */
    if (sched_getaffinity(0, sizeof(mine), &mine) < 0)
        mine = opt->cores;
    CPU_AND(&cores, &opt->cores, &mine);
    rc = cl_cpuset_enter(&a->cpuset, &cl_cpuset_kernel, h->pid, &cores, why, sizeof(why));
    pthread_mutex_lock(&a->lock);
    a->confined = rc == 0;
    pthread_mutex_unlock(&a->lock);
    if (a->cpuset_told && was == (rc == 0))
        return;
    a->cpuset_told = true;
    if (rc == 0)
        FP_INFO("fp-auxhost is in a cpuset of its own: no thread of a plugin can leave the service cores (%s)", a->cpuset.dir);
    else
        FP_INFO("fp-auxhost has no cpuset of its own: %s; its threads are pinned, but those that plugins make can leave the service cores", why);
}

int cl_aux_spawn(struct cl_aux *a, struct aux_host **out, char *why, size_t why_size)
{
    static char name[] = "fp-auxhost";
    struct launch l = { .report = { -1, -1 }, .argv = { name, NULL }, .parent = getpid() };
    struct aux_host *h;
    int rc = cl_aux_may_spawn(a, why, why_size);

    if (rc < 0)
        return rc;
    h = host_new();
    if (!h) {
        snprintf(why, why_size, "cannot start %s: out of memory", a->host_path);
        return -ENOMEM;
    }
    for (int i = 0; i < FDS; i++)
        l.fd[i] = -1;
    keep_to_ourselves();
    rc = prepare(a, h, &l);
    if (rc == 0) {
        h->pid = fork();
        if (h->pid == 0)
            child(&l, a->host_path);
        rc = h->pid < 0 ? -errno : launched(a, h, &l);
        if (rc == 0)
            h->pid_fd = (int)syscall(SYS_pidfd_open, (pid_t)h->pid, 0u);
    }
    launch_fini(&l);
    if (rc < 0) {
        snprintf(why, why_size, "cannot start %s, which runs aux-apps: %s%s", a->host_path, fp_strerror(rc),
             rc == -ENOENT ? ": install it beside fp-mount" : "");
        h->pid = 0;
        cl_aux_host_put(h);
        return rc;
    }
    confine(a, h);
    *out = h;
    return 0;
}

void cl_aux_host_put(struct aux_host *h)
{
    if (!h || atomic_fetch_sub(&h->refs, 1) != 1)
        return;
    if (h->jobs_fd >= 0)
        close(h->jobs_fd);
    if (h->services_fd >= 0)
        close(h->services_fd);
    if (h->pid_fd >= 0)
        close(h->pid_fd);
    if (h->status)
        munmap(h->status, sizeof(*h->status));
    free(h);
}
