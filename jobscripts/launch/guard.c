/*
 * The guard of a job's store (see guard.h): of fp-job run, and of start where no batch system ends what is left of a job. Called by both, and by the shell that
 * start prints words for.
 *
 * A process of its own, which starts the agents, stays connected to the root, and watches whose store it is: fp-job run, or the shell of the batch script. If
 * that is gone, whatever has killed it, the guard ends the store; if the guard is gone, the root does. fp-job start must return, so it can't be that process
 * itself; and a thread of fp-job run would end with it.
 */
#include "jobscripts/launch/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/err.h"
#include "fp/jobsignals.h"
#include "fp/limited.h"
#include "fp/log.h"
#include "fp/procs.h"
#include "fp/wholefile.h"
#include "jobscripts/launch/launcher.h"
#include "jobscripts/start.h"

#define OWNER      "owner"
#define LAUNCHER   "launcher"
#define OTHERS_MAX 1024
#define LOOK_MS    200
#define MORE_MS    120000u /* than ready=: what it does before, and for ending what was not ready */

struct guard {
    const struct job_launch *l;
    int report;
    pid_t owner; /* 0: none, the store stays until it is ended */
    uint64_t ticks;
    pid_t next;  /* when the caller has returned */
};

static void watch(struct guard *g, pid_t pid)
{
    g->owner = pid;
    g->ticks = pid > 1 ? fp_proc_ticks(pid) : 0;
    if (!g->ticks)
        g->owner = 0;
}

static int note_process(const char *dir, const char *name, pid_t pid)
{
    uint64_t ticks = pid > 1 ? fp_proc_ticks(pid) : 0;
    char text[64];

    if (!ticks)
        return -ESRCH;
    snprintf(text, sizeof text, "%ld %llu\n", (long)pid, (unsigned long long)ticks);
    return job_dir_write(dir, name, text, 0600);
}

static bool noted_process(const char *dir, const char *name, pid_t *pid, uint64_t *ticks)
{
    int fd = job_dir_read(dir, name);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    unsigned long long since;
    long number;
    bool is;

    if (!f) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    is = fscanf(f, "%ld %llu", &number, &since) == 2 && number > 1;
    fclose(f);
    if (is) {
        *pid = (pid_t)number;
        *ticks = since;
    }
    return is;
}

int job_guard_owner(const char *dir, pid_t pid)
{
    return note_process(dir, OWNER, pid);
}

bool job_guard_owner_of(const char *dir, pid_t *pid, uint64_t *ticks)
{
    return noted_process(dir, OWNER, pid, ticks);
}

int job_guard_launcher(const char *dir, pid_t pid)
{
    return note_process(dir, LAUNCHER, pid);
}

bool job_guard_launcher_of(const char *dir, pid_t *pid, uint64_t *ticks)
{
    return noted_process(dir, LAUNCHER, pid, ticks);
}

static bool over(void *arg)
{
    struct guard *g = arg;

    if (g->report < 0 && !g->l->stays)
        (void)job_guard_owner_of(g->l->dir, &g->owner, &g->ticks); /* the shell says who it is when it does what fp-job start has printed */
    return job_interrupted() || (g->owner && fp_proc_ticks(g->owner) != g->ticks);
}

/* From now on nobody reads what we print, and who waits for the end of our output would wait for ever. */
static void leave_terminal(const struct guard *g)
{
    char path[PATH_MAX];
    int fd = job_dir_file(path, g->l->dir, "agents.log") == 0 ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;

    if (fd < 0)
        fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)dup2(fd, STDERR_FILENO);
    close(fd);
    (void)!chdir("/");
}

static int begun(const struct job_record *r, void *arg)
{
    struct guard *g = arg;
    int rc;

    if (job_interrupted()) /* as if it had been when the last node was not ready yet */
        return -EINTR;
    if (!g->l->stays)
        watch(g, g->next);
    if (g->l->alloc->launcher->kept) /* a batch system may send them to all processes of a job, and it is the owner who knows what they mean */
        fp_job_signals_ignore(true);
    leave_terminal(g);
    rc = fp_write_all(g->report, r, sizeof *r);
    close(g->report);
    g->report = -1;
    return rc;
}

/* What the shell had open when it called us, as for flock, which would be held as long as we stay. All that is ours closes on exec. */
static void close_others(void)
{
    for (int fd = 3; fd < OTHERS_MAX; fd++) {
        int flags = fcntl(fd, F_GETFD);

        if (flags >= 0 && !(flags & FD_CLOEXEC))
            close(fd);
    }
}

static _Noreturn void be_guard(struct guard *g, pid_t caller)
{
    struct job_stay stay = {.begun = begun, .over = over, .arg = g};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), rc;
    struct job_record r;

    (void)prctl(PR_SET_NAME, "fp-job-guard");
    signal(SIGPIPE, SIG_IGN);
    fp_job_signals_ignore(false);
    close(g->l->starting);
    close_others();
    (void)setsid();
    (void)dup2(null, STDIN_FILENO);
    (void)dup2(null, STDOUT_FILENO);
    close(null);
    watch(g, caller);
    if (g->l->stays)
        (void)job_guard_owner(g->l->dir, caller);
    rc = job_launch_and_stay(g->l, &stay, &r);
    if (g->report < 0 && over(g))
        (void)job_dir_remove(g->l->dir); /* nobody else comes to do it */
    _exit(rc ? 1 : 0);
}

/* What the guard says when all are ready; a signal to us meanwhile is one to it. -ETIMEDOUT: nothing in all the time that it can need, as one that is stopped. */
static int hear(int fd, pid_t guard, uint64_t limit_ms, struct job_record *out)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t until = fp_now_ms() + limit_ms;
    size_t n = 0;
    bool told = false;

    while (n < sizeof *out) {
        bool some = poll(&p, 1, LOOK_MS) > 0;
        ssize_t k = some ? read(fd, (char *)out + n, sizeof *out - n) : 0;

        if (!some && fp_now_ms() >= until)
            return -ETIMEDOUT;
        if (some && k == 0)
            return -ECHILD;
        if (k < 0 && errno != EINTR)
            return -errno;
        n += k > 0 ? (size_t)k : 0;
        if (n < sizeof *out && job_interrupted() && !told) /* else it is up, and the caller ends it as one that nobody has used */
            told = kill(guard, SIGTERM) == 0;
    }
    return 0;
}

int job_guard_launch(const struct job_launch *l, struct job_record *out)
{
    struct guard g = {.l = l, .next = getsid(0)};
    pid_t self = getpid(), pid;
    int fds[2], rc, status = 0;

    if (g.next == self) /* of a session of our own: it ends with us, and was made for that hardly */
        g.next = 0;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    g.report = fds[1];
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        close(fds[0]);
        be_guard(&g, self);
    }
    rc = pid < 0 ? -errno : 0;
    close(fds[1]);
    rc = rc ? rc : hear(fds[0], pid, l->ready_ms + MORE_MS, out);
    close(fds[0]);
    if (rc == -ETIMEDOUT) {
        FP_ERROR("what starts the agents (process %d) has said nothing for %llu s: is it stopped? It is killed, and those that had begun end by themselves", (int)pid,
                 (unsigned long long)(l->ready_ms + MORE_MS) / 1000);
        (void)kill(pid, SIGKILL);
        (void)fp_reap(pid, &status);
    } else if (rc && pid > 0) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (WIFSIGNALED(status))
            FP_ERROR("what starts the agents was ended by signal %d: those that had begun end by themselves", WTERMSIG(status));
    }
    return rc;
}
