/*
 * The end of the job's time for a script with fp-job start and stop (see node.h): a process of the first node's agent, where fp-job run would do it itself.
 *
 * Between start and stop nothing of ours runs but the agents, and stop comes too late if the application has had all of the job's time. So this process tells the
 * job's steps, and what the script's shell runs itself, to end when only reserve= is left (endtime.c). It is no part of the agent's loop, since Slurm's commands are
 * waited for; it lives by a pipe: the agent's word that the store is up and nobody stays to look after it, and its end.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/err.h"
#include "fp/jobsignals.h"
#include "fp/log.h"
#include "fp/procs.h"
#include "jobscripts/endtime.h"
#include "jobscripts/launch/guard.h"
#include "jobscripts/agent/node.h"
#include "jobscripts/start.h"

#define PAUSE_MS 30000u

struct keeper {
    const struct node *n;
    struct job_endtime t;
    bool told;
};

/* Its parent, and whether it is an srun or one of our own commands. */
static pid_t parent_of(const char *pid, bool *srun, bool *ours)
{
    char path[300], line[512], *name, *end;
    FILE *f;
    int parent = 0;

    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    if (fgets(line, sizeof line, f) && (name = strchr(line, '(')) && (end = strrchr(line, ')')) && sscanf(end + 1, " %*c %d", &parent) == 1) {
        *end = '\0';
        *srun = strcmp(name + 1, "srun") == 0;
        *ours = strncmp(name + 1, "fp-job", 6) == 0;
    }
    fclose(f);
    return parent;
}

/* To what the shell of the script runs; not to the shell, which comes to fp-job stop. On other machines (salloc) there is no such shell. */
static void signal_children(int sig, bool sruns, void *arg)
{
    struct keeper *k = arg;
    uint64_t ticks;
    pid_t shell;
    DIR *d;

    k->told = true;
    if (!job_guard_owner_of(k->n->dir, &shell, &ticks) || !fp_proc_runs(shell, ticks)) /* its number may be another's by now */
        return;
    d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        bool srun = false, ours = false;

        if (isdigit((unsigned char)e->d_name[0]) && parent_of(e->d_name, &srun, &ours) == shell && !ours && srun == sruns)
            (void)kill((pid_t)atoi(e->d_name), sig);
    }
    if (d)
        closedir(d);
}

/* A word of the agent, or its end (false). */
static bool hear(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char c;

    return poll(&p, 1, timeout_ms) <= 0 || read(fd, &c, 1) == 1;
}

/* fp-job stop has begun: the application has ended, and what runs now is ours. */
static bool ending(const struct node *n)
{
    int fd = job_dir_read(n->dir, JOB_DIR_ENDING);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* The step of the shell that does what fp-job start has printed, which says who it is some time after the store is up; it is not on this node where salloc has started it elsewhere, and is no step then. */
static void look_for_callers(struct keeper *k)
{
    uint64_t ticks;
    pid_t shell;

    if (job_guard_owner_of(k->n->dir, &shell, &ticks) && fp_proc_runs(shell, ticks))
        job_slurm_step_of(shell, k->t.callers);
}

static _Noreturn void keep(struct keeper *k, int fd)
{
    if (!hear(fd, -1))
        _exit(0);
    job_endtime_look(&k->t, fp_now_ms());
    for (;;) {
        uint64_t now = fp_now_ms(), next = job_endtime_next(&k->t), ms = next > now ? next - now : 0;

        if (!hear(fd, (int)(ms < PAUSE_MS ? ms : PAUSE_MS)))
            _exit(0);
        if (ending(k->n)) {
            job_endtime_init(&k->t);
            continue;
        }
        look_for_callers(k);
        job_endtime_tick(&k->t, fp_now_ms());
        if (k->told && job_dir_write(k->n->dir, JOB_DIR_TOLD, "", 0600) == 0)
            k->told = false;
    }
}

void node_time_fork(struct node *n)
{
    const char *step = getenv("SLURM_STEP_ID");
    struct keeper k = {.n = n};
    pid_t above = getpid();
    int fds[2];

    n->time_fd = -1;
    if (n->rank || n->plan.guarded || !step || !n->declared.store.reserve_ms || !job_steps_needed(&n->declared) || pipe2(fds, O_CLOEXEC) < 0)
        return;
    n->time_pid = fork();
    if (n->time_pid) {
        close(fds[0]);
        n->time_fd = fds[1];
        if (n->time_pid < 0)
            FP_WARN("no process can be made (%s): the application is not told before the end of the job's time", fp_strerror(-errno));
        return;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != above)
        _exit(0);
    (void)prctl(PR_SET_NAME, "fp-job-time");
    fp_job_signals_ignore(true);
    close(fds[1]);
    k.t = (struct job_endtime){.job = n->plan.job, .step = step, .in_slurm = true, .want_ms = n->declared.store.reserve_ms, .signal = signal_children, .arg = &k};
    job_endtime_init(&k.t);
    keep(&k, fds[0]);
}

void node_time_begin(struct node *n)
{
    if (n->time_fd >= 0)
        (void)!write(n->time_fd, "", 1);
}
