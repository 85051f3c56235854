/* Processes and mounts of a store: start, watch, stop.
 *
 * A daemon is started in a session of its own, so that the Ctrl-C of a shell does not reach it, with its output appended to a
 * log and one pipe, whose number it gets as --ready-fd. A line on the pipe means ready; end of file without one means that it
 * has ended, and its log says why. There is no polling and no sleeping for "long enough" on the way up.
 *
 * On the way down we are usually not the parent, so a process is watched by its pid and start time. Zombies count as gone: in
 * a container there may be nobody to reap them. A mount is looked at in mountinfo, and no call is made into one that may
 * hang, be it because its fp-mount does or because the manager is gone. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "client/store/store.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/mountprobe.h"
#include "fp/procs.h"

#define READY_FD   3
#define PAUSE_NS   10000000L
#define PROBE_MS   1000 /* for a mount that may wait for its manager */
#define HURRY_MS   4000u /* after its second SIGTERM, a mount needs 3 s at most */
#define KILLED_MS  5000u /* after SIGKILL: a process in the kernel may take a while */

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
    interrupted = sig;
}

static void handle_signals(void (*handler)(int))
{
    struct sigaction sa = {.sa_handler = handler};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

void store_catch_signals(void)
{
    handle_signals(on_signal);
}

/* Held back over fork: a SIGTERM that met our handler in the child would be lost, and the program never end. */
static void block_signals(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(how, &set, NULL);
}

bool store_interrupted(void)
{
    return interrupted != 0;
}

const char *store_role_program(enum store_role role)
{
    static const char *const names[] = {"fp-manager", "fp-benefactor", "fp-mount"};
    return names[role];
}

const char *store_proc_name(const struct store_proc *p, char buf[32])
{
    if (p->role == STORE_MANAGER)
        snprintf(buf, 32, "%s", store_role_program(p->role));
    else
        snprintf(buf, 32, "%s %u", store_role_program(p->role), p->index);
    return buf;
}

bool store_proc_alive(const struct store_state *s, const struct store_proc *p)
{
    (void)s;
    return p->pid > 1 && fp_proc_ticks(p->pid) == p->start_ticks && p->start_ticks != 0;
}

static bool any_ending(const struct store_state *s)
{
    for (unsigned i = 0; i < s->count; i++)
        if (store_proc_alive(s, &s->procs[i]) && fp_proc_ending(s->procs[i].pid))
            return true;
    return false;
}

void store_wait_ending(const struct store_state *s)
{
    static const struct timespec pause = {0, PAUSE_NS};
    uint64_t until = fp_now_ms() + KILLED_MS;
    while (any_ending(s) && fp_now_ms() < until)
        nanosleep(&pause, NULL);
}

/* ---------------------------------------------------------------- starting */

/* PROGRAM in the directory of our own binary. */
static int beside_us(const char *program, char path[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (n <= 0)
        return -errno;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) + strlen(program) + 2 > PATH_MAX)
        return -ENAMETOOLONG;
    strcpy(slash + 1, program);
    return access(path, X_OK) < 0 ? -errno : 0;
}

/* In the child: never returns. log_fd and ready_fd are above READY_FD. */
static void child(const char *path, char **argv, int log_fd, int ready_fd)
{
    int null = open("/dev/null", O_RDONLY);
    setsid();
    signal(SIGPIPE, SIG_DFL);
    handle_signals(SIG_DFL);
    block_signals(SIG_UNBLOCK);
    if (dup2(null, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0 || dup2(ready_fd, READY_FD) < 0 ||
        close_range(READY_FD + 1, ~0u, 0) < 0)
        _exit(126);
    execv(path, argv);
    fprintf(stderr, "fp-store: ERROR: cannot run %s: %s\n", path, strerror(errno));
    _exit(127);
}

/* Descriptors that a child may move to its places without treading on each other. */
static int above(int fd)
{
    int up = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, READY_FD + 1);
    if (fd >= 0)
        close(fd);
    return up;
}

static int open_log(const struct store_options *o, struct store_proc *p)
{
    char path[PATH_MAX];
    store_log_path(o, p, path);
    int fd = above(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (fd < 0) {
        int rc = -errno;
        FP_ERROR("cannot write the log %s: %s", path, fp_strerror(rc));
        return rc;
    }
    p->log_from = lseek(fd, 0, SEEK_END);
    return fd;
}

/* For execv: what p->args holds, which stays its owner. */
static void child_args(const struct store_proc *p, char *argv[STORE_ARGS_MAX + 3])
{
    static char ready[] = "--ready-fd=3";
    size_t n = 0;
    argv[n++] = (char *)store_role_program(p->role);
    for (size_t i = 0; i < json_array_size(p->args) && i < STORE_ARGS_MAX; i++)
        argv[n++] = (char *)json_string_value(json_array_get(p->args, i));
    argv[n++] = ready;
    argv[n] = NULL;
}

int store_proc_start(const struct store_options *o, struct store_proc *p, char *const argv[])
{
    json_decref(p->args);
    p->args = json_array();
    for (int i = 0; argv[i]; i++) {
        if (json_array_append_new(p->args, json_string(argv[i])) < 0) {
            FP_ERROR("%s cannot be given as an argument of %s: it is not UTF-8", argv[i], store_role_program(p->role));
            return -EILSEQ;
        }
    }
    return store_proc_start_again(o, p);
}

int store_proc_start_again(const struct store_options *o, struct store_proc *p)
{
    char path[PATH_MAX];
    char *args[STORE_ARGS_MAX + 3];
    int pipe_fds[2];
    const char *program = store_role_program(p->role);
    int rc = beside_us(program, path);
    if (rc < 0) {
        FP_ERROR("%s is not there: it belongs beside fp-store (%s)", path, fp_strerror(rc));
        return rc;
    }
    child_args(p, args);
    int log_fd = open_log(o, p);
    if (log_fd < 0)
        return log_fd;
    if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
        rc = -errno;
        close(log_fd);
        return rc;
    }
    pipe_fds[1] = above(pipe_fds[1]);
    block_signals(SIG_BLOCK);
    p->pid = fork();
    if (p->pid == 0)
        child(path, args, log_fd, pipe_fds[1]);
    block_signals(SIG_UNBLOCK);
    rc = p->pid < 0 ? -errno : 0;
    close(log_fd);
    close(pipe_fds[1]);
    p->ready_fd = pipe_fds[0];
    if (rc < 0)
        FP_ERROR("cannot start %s: %s", program, fp_strerror(rc));
    else
        p->start_ticks = fp_proc_ticks(p->pid);
    return rc;
}

static int died(const struct store_options *o, struct store_proc *p)
{
    char cause[1024], name[32], log[PATH_MAX];
    int status = 0;
    waitpid(p->pid, &status, 0);
    store_log_cause(o, p, cause, sizeof cause);
    store_log_path(o, p, log);
    store_proc_name(p, name);
    if (cause[0])
        FP_ERROR("%s did not start: %s", name, cause);
    else if (WIFSIGNALED(status))
        FP_ERROR("%s did not start: killed by signal %d", name, WTERMSIG(status));
    else
        FP_ERROR("%s did not start: exit code %d, and nothing in its log %s", name, WEXITSTATUS(status), log);
    return -ECHILD;
}

int store_proc_wait_ready(const struct store_options *o, struct store_proc *p, uint64_t until_ms, char *line, size_t room)
{
    char name[32];
    size_t n = 0;
    int rc = -ETIMEDOUT;
    for (uint64_t now; rc == -ETIMEDOUT && (now = fp_now_ms()) < until_ms;) {
        struct pollfd pfd = {p->ready_fd, POLLIN, 0};
        if (interrupted) {
            FP_ERROR("interrupted: stopping what was started");
            rc = -EINTR;
        } else if (poll(&pfd, 1, (int)(until_ms - now)) > 0) {
            ssize_t got = read(p->ready_fd, line + n, room - 1 - n);
            n += got > 0 ? (size_t)got : 0;
            line[n] = '\0';
            if (memchr(line, '\n', n) || n == room - 1)
                rc = 0;
            else if (got <= 0)
                rc = died(o, p);
        }
    }
    if (rc == 0)
        line[strcspn(line, "\n")] = '\0';
    else if (rc == -ETIMEDOUT)
        FP_ERROR("%s is not ready after 10 s and says nothing: see %s/log", store_proc_name(p, name), o->dir);
    close(p->ready_fd);
    p->ready_fd = -1;
    return rc;
}

void store_proc_kill(struct store_proc *p)
{
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
}

/* ---------------------------------------------------------------- stopping */

static unsigned count_alive(const struct store_state *s, enum store_role role)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->count; i++)
        n += s->procs[i].role == role && store_proc_alive(s, &s->procs[i]);
    return n;
}

static unsigned signal_role(const struct store_state *s, enum store_role role, int sig)
{
    char name[32];
    unsigned n = 0;
    for (unsigned i = 0; i < s->count; i++) {
        const struct store_proc *p = &s->procs[i];
        if (p->role != role || !store_proc_alive(s, p))
            continue;
        if (sig == SIGKILL)
            FP_WARN("%s (pid %d) does not end: killed%s", store_proc_name(p, name), (int)p->pid,
                    role == STORE_MOUNT ? "; what it held and had not written out is lost" : "");
        n += kill(p->pid, sig) == 0;
    }
    return n;
}

static unsigned wait_role(const struct store_state *s, enum store_role role, uint64_t limit_ms)
{
    static const struct timespec pause = {0, PAUSE_NS};
    uint64_t until = fp_now_ms() + limit_ms;
    unsigned left;
    while ((left = count_alive(s, role)) > 0 && fp_now_ms() < until) {
        nanosleep(&pause, NULL);
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
    }
    return left;
}

unsigned store_stop_role(const struct store_state *s, enum store_role role, uint64_t wait_ms)
{
    if (count_alive(s, role) == 0)
        return 0;
    signal_role(s, role, SIGTERM);
    if (wait_role(s, role, wait_ms) == 0)
        return 0;
    if (role == STORE_MOUNT) {
        signal_role(s, role, SIGTERM);
        if (wait_role(s, role, HURRY_MS) == 0)
            return 0;
    }
    unsigned killed = signal_role(s, role, SIGKILL);
    if (wait_role(s, role, KILLED_MS) > 0)
        FP_WARN("a %s is still there after SIGKILL: it waits in the kernel", store_role_program(role));
    return killed;
}

/* ---------------------------------------------------------------- mounts */

bool store_is_mounted(const char *mountpoint)
{
    char point[PATH_MAX], root[PATH_MAX], *line = NULL;
    bool found = false;
    size_t room = 0;
    FILE *f = fopen("/proc/self/mountinfo", "re");
    while (f && getline(&line, &room, f) > 0)
        found |= ctl_mountinfo_line(line, point, root) && strcmp(point, mountpoint) == 0;
    free(line);
    if (f)
        fclose(f);
    return found;
}

enum store_mount_kind store_mount_look(const char *mountpoint)
{
    struct stat st;
    if (store_is_mounted(mountpoint))
        return fp_mount_probe(mountpoint, PROBE_MS) == -ENOTCONN ? STORE_DEAD : STORE_OURS;
    char parent[PATH_MAX + 4];
    struct stat up;
    snprintf(parent, sizeof parent, "%s/..", mountpoint);
    if (stat(mountpoint, &st) == 0 && stat(parent, &up) == 0 && st.st_dev != up.st_dev)
        return STORE_OTHER;
    return STORE_NOT_MOUNTED;
}

void store_unmount(const char *mountpoint)
{
    if (geteuid() == 0) {
        if (umount2(mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL)
            FP_WARN("cannot unmount %s: %s", mountpoint, fp_strerror(-errno));
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        execlp("fusermount3", "fusermount3", "-uz", mountpoint, (char *)NULL);
        _exit(127);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

int store_clear_mountpoint(const char *mountpoint)
{
    switch (store_mount_look(mountpoint)) {
    case STORE_DEAD:
        FP_INFO("%s was left mounted by a crash: unmounting it", mountpoint);
        store_unmount(mountpoint);
        return 0;
    case STORE_OURS:
        FP_ERROR("another store is mounted on %s: give another --mount, or fp-store down --dir of that store", mountpoint);
        return -EBUSY;
    case STORE_OTHER:
        FP_ERROR("%s is the mountpoint of something else: give another --mount", mountpoint);
        return -EBUSY;
    default:
        return 0;
    }
}
