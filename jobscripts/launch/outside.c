/*
 * Both sides of it (see outside.h): fp-job wait, the helper, which a site's prolog starts by the SPANK plugin, and fp-job node, which calls it. One thread each.
 *
 * A socket in the job's directory, which is the user's alone, and whose other end is asked for its user all the same. What goes over it: the standard
 * files, a line of how much follows, then directory and environment; signals, a byte each, in one direction, and the exit code in the other. When one side is
 * killed, the other sees the end of the connection, and ends the agent. Output comes through a pipe of the task's: slurmstepd waits for all who have its own,
 * and an agent that hangs would keep the node. Moving the agent into another cpuset by root was rejected: with cgroup v2 it would
 * be no process of the job any more, and whatever ends the job would not find it.
 */
#include "jobscripts/launch/outside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"
#include "fp/procs.h"
#include "fp/wholefile.h"
#include "jobscripts/cores/coremap.h"
#include "jobscripts/cores/cpus.h"
#include "jobscripts/job.h"
#include "jobscripts/jobdir.h"

#define SOCKET    "outside"
#define RECORD    "outside.pid"
#define CALL_MS   600000u /* from the prolog to the start of the store */
#define HAND_MS   10000u
#define LAST_MS   20000u  /* for the agent, after its caller is gone */
#define ALL_BYTES (8u << 20)
#define FILES     3

extern char **environ;

static int address(struct sockaddr_un *a, const char *dir)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    return (size_t)snprintf(a->sun_path, sizeof a->sun_path, "%s/%s", dir, SOCKET) < sizeof a->sun_path ? 0 : -ENAMETOOLONG;
}

/* All of it, within the time. Negative: not. */
static int hear(int fd, char *out, size_t n, uint64_t limit_ms)
{
    uint64_t until = fp_now_ms() + limit_ms;

    for (size_t have = 0; have < n;) {
        uint64_t now = fp_now_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t got;

        if (now >= until)
            return -ETIMEDOUT;
        if (poll(&p, 1, (int)(until - now)) <= 0)
            continue;
        got = read(fd, out + have, n - have);
        if (got == 0 || (got < 0 && errno != EINTR))
            return got ? -errno : -EPIPE;
        have += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* ---------------------------------------------------------------- fp-job node calls */

bool job_outside_waits(const char *job)
{
    char dir[PATH_MAX], path[PATH_MAX];

    job_dir_path(dir, job);
    return !getenv(JOB_OUTSIDE_CPUS) && job_dir_is_ours(dir) && job_dir_file(path, dir, SOCKET) == 0 && access(path, F_OK) == 0;
}

/* Directory, then NAME=VALUE, with a NUL behind each. */
static char *what_we_have(size_t *n)
{
    char cwd[PATH_MAX], cpus[JOB_CPULIST_BYTES], *text = NULL;
    FILE *f;

    if (!getcwd(cwd, sizeof cwd))
        strcpy(cwd, "/");
    if (job_cpus_here(cpus, sizeof cpus) || !(f = open_memstream(&text, n)))
        return NULL;
    fwrite(cwd, 1, strlen(cwd) + 1, f);
    fprintf(f, JOB_OUTSIDE_CPUS "=%s", cpus);
    fputc('\0', f);
    for (char **e = environ; *e; e++)
        fwrite(*e, 1, strlen(*e) + 1, f);
    if (fclose(f) == 0 && *n <= ALL_BYTES)
        return text;
    free(text);
    return NULL;
}

/* The first byte of the line has the files with it. */
static int hand_over(int fd, int output, const char *text, size_t n)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FILES * sizeof(int))];
    } control = {0};
    const int files[FILES] = {STDIN_FILENO, output, output};
    char line[16];
    struct iovec v = {.iov_base = line, .iov_len = sizeof line};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    snprintf(line, sizeof line, "%15zu", n);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof files);
    memcpy(CMSG_DATA(c), files, sizeof files);
    if (sendmsg(fd, &m, MSG_NOSIGNAL) != (ssize_t)sizeof line)
        return errno ? -errno : -EPIPE;
    return fp_write_all(fd, text, n);
}

static volatile sig_atomic_t called = -1;

static void pass_on(int sig)
{
    char byte = (char)sig;
    int was = errno;

    if (called >= 0 && send((int)called, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        byte = 0; /* it is gone, which is seen by who waits */
    errno = was;
}

/* What it says there, we say here. False: it says no more. */
static bool copy_output(int from)
{
    char text[4096];
    ssize_t n = read(from, text, sizeof text);

    return n < 0 ? errno == EINTR || errno == EAGAIN : n > 0 && write(STDERR_FILENO, text, (size_t)n) >= 0;
}

/* Its exit code; the time that it takes is the job's. */
static int wait_for_it(int fd, int output)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction sa = {.sa_handler = pass_on};
    unsigned char code;
    ssize_t got;

    called = fd;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &sa, NULL);
    for (bool says = true;;) {
        struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = says ? output : -1, .events = POLLIN}};

        if (poll(p, 2, -1) < 0)
            continue;
        if (p[1].revents)
            says = copy_output(output);
        else if (p[0].revents)
            break;
    }
    got = read(fd, &code, 1);
    called = -1;
    if (got == 1)
        return code;
    FP_ERROR("the agent of this node, outside of the job's CPUs, has been killed");
    return -ECHILD;
}

int job_outside_run(const char *job)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), output[2] = {-1, -1}, rc;
    struct sockaddr_un a;
    char dir[PATH_MAX], *text;
    size_t n = 0;

    job_dir_path(dir, job);
    text = what_we_have(&n);
    rc = fd < 0 || pipe2(output, O_CLOEXEC) < 0 ? -errno : text ? address(&a, dir) : -ENOMEM;
    if (rc == 0 && connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        rc = -errno;
    rc = rc ? rc : hand_over(fd, output[1], text, n);
    free(text);
    close(output[1]);
    if (rc)
        FP_ERROR("%s/%s: what the prolog has started for cores outside of the job does not answer: %s", dir, SOCKET, fp_strerror(rc));
    else
        rc = wait_for_it(fd, output[0]);
    close(output[0]);
    close(fd);
    return rc;
}

/* ---------------------------------------------------------------- fp-job wait, the helper */

static int take_files(int fd, char line[16], int files[FILES])
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FILES * sizeof(int))];
    } control = {0};
    struct iovec v = {.iov_base = line, .iov_len = 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct cmsghdr *c;

    if (poll(&p, 1, HAND_MS) <= 0 || recvmsg(fd, &m, MSG_CMSG_CLOEXEC) != 1)
        return -EPIPE;
    c = CMSG_FIRSTHDR(&m);
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(FILES * sizeof(int)))
        return -EBADMSG;
    memcpy(files, CMSG_DATA(c), FILES * sizeof(int));
    return hear(fd, line + 1, 15, HAND_MS);
}

static bool is_ours(int fd)
{
    struct ucred who;
    socklen_t n = sizeof who;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid();
}

static _Noreturn void become(char *text, size_t n, const int files[FILES])
{
    const char *cores = getenv(JOB_OUTSIDE_CORES);
    char self[PATH_MAX], left_out[64], *argv[] = {(char *)"fp-job", (char *)"node", NULL}, *name = text + strlen(text) + 1;
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);

    (void)signal(SIGPIPE, SIG_IGN); /* who reads what we say may be killed, and we have an end to make */
    snprintf(left_out, sizeof left_out, JOB_OUTSIDE_CORES "=%.15s", cores ? cores : "");
    clearenv();
    for (; name < text + n; name += strlen(name) + 1)
        putenv(name);
    putenv(left_out); /* not the caller's */
    for (int i = 0; i < FILES; i++)
        (void)dup2(files[i], i);
    if (k <= 0 || (chdir(text) < 0 && chdir("/") < 0))
        _exit(1);
    self[k] = '\0';
    execv(self, argv);
    _exit(127);
}

/* Who has called gives the words; negative: there is nobody who could. */
static pid_t start_agent(int fd)
{
    char line[16], *text;
    int files[FILES];
    size_t n;
    pid_t pid;
    int rc = is_ours(fd) ? take_files(fd, line, files) : -EPERM;

    if (rc)
        return rc;
    n = strtoul(line, NULL, 10);
    text = n > 1 && n <= ALL_BYTES ? calloc(1, n + 1) : NULL;
    rc = text ? hear(fd, text, n, HAND_MS) : -EBADMSG;
    pid = rc ? rc : fork();
    if (pid == 0)
        become(text, n, files);
    for (int i = 0; i < FILES; i++)
        close(files[i]);
    free(text);
    return pid;
}

/* What its caller is told; when it is gone, the agent ends. */
static void pass_signals(int fd, pid_t pid, uint64_t *until_ms)
{
    char sig;
    ssize_t got = recv(fd, &sig, 1, MSG_DONTWAIT);

    if (got == 1 && (sig == SIGTERM || sig == SIGINT || sig == SIGHUP))
        (void)kill(pid, sig);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        (void)kill(pid, SIGINT);
        *until_ms = fp_now_ms() + LAST_MS;
    }
}

static void serve(int fd, pid_t pid)
{
    int gone = (int)syscall(SYS_pidfd_open, pid, 0u), status = 0;
    uint64_t until_ms = UINT64_MAX;
    unsigned char code;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        struct pollfd p[2] = {{.fd = gone, .events = POLLIN}, {.fd = until_ms == UINT64_MAX ? fd : -1, .events = POLLIN}};

        (void)poll(p, 2, gone < 0 || until_ms != UINT64_MAX ? 100 : -1);
        if (p[1].revents)
            pass_signals(fd, pid, &until_ms);
        if (fp_now_ms() >= until_ms)
            (void)kill(pid, SIGKILL);
    }
    code = WIFEXITED(status) ? (unsigned char)WEXITSTATUS(status) : 1;
    (void)fp_write_all(fd, &code, 1);
}

static void wait_for_caller(int listener, const char *dir)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    char path[PATH_MAX];
    int fd = -1;
    pid_t pid;

    if (poll(&p, 1, CALL_MS) > 0)
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    close(listener);
    if (job_dir_file(path, dir, SOCKET) == 0)
        (void)unlink(path);
    if (fd < 0)
        return;
    pid = start_agent(fd);
    if (pid > 0)
        serve(fd, pid);
}

static int listen_in(const char *dir)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un a;

    if (fd < 0 || address(&a, dir))
        return -1;
    (void)unlink(a.sun_path);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 1) == 0)
        return fd;
    close(fd);
    return -1;
}

/* For job_outside_end, which comes when we do nothing any more. */
static void note(const char *dir)
{
    char text[64];

    snprintf(text, sizeof text, "%d %llu\n", (int)getpid(), (unsigned long long)fp_proc_ticks(getpid()));
    (void)job_dir_write(dir, RECORD, text, 0600);
}

int job_cmd_wait(const struct job_options *o)
{
    char dir[PATH_MAX];
    int null, fd, rc;
    pid_t pid;

    if (!o->script || !*o->script || strlen(o->script) > 64 || strspn(o->script, JOB_DIR_CHARS) != strlen(o->script))
        return -EINVAL;
    (void)signal(SIGPIPE, SIG_IGN); /* who has called may be gone */
    rc = job_dir_begin(dir, o->script); /* until we end: what is left then is removed by the user's next job, if not by the epilog */
    if (rc) {
        FP_ERROR("%s: %s", dir, fp_strerror(rc));
        return rc;
    }
    fd = listen_in(dir);
    pid = fd < 0 ? -1 : fork();
    if (pid < 0) {
        FP_ERROR("%s: %s", dir, fp_strerror(-errno));
        return -EIO;
    }
    if (pid)
        return 0;
    setsid();
    note(dir);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < FILES; i++)
        (void)dup2(null, i);
    wait_for_caller(fd, dir);
    return 0;
}

void job_outside_end(const char *dir)
{
    char path[PATH_MAX];
    unsigned long long ticks = 0;
    int pid = 0, n = 0;
    FILE *f = job_dir_file(path, dir, RECORD) == 0 ? fopen(path, "re") : NULL;

    if (f) {
        n = fscanf(f, "%d %llu", &pid, &ticks);
        fclose(f);
    }
    if (n == 2 && pid > 1 && ticks && fp_proc_ticks(pid) == ticks)
        (void)kill(pid, SIGKILL);
}
