/*
 * fp-enter, a link to fp-job: becomes a command that sees the store of the job, on nodes where its user may not mount for all processes to see (see enter.h).
 *
 * The agent of the node keeps a user and a mount namespace, and fp-mount mounts in it; whoever wants to see the store goes there before it becomes the application.
 * On other nodes, and inside already, there is nothing to do: so it may stand before any command of the job.
 */
#include "jobscripts/enter.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/beside.h"
#include "fp/err.h"
#include "fp/log.h"
#include "fp/namespace.h"
#include "jobscripts/launch/alloc.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/start.h"

int job_enter(const char *dir)
{
    char path[PATH_MAX], cwd[PATH_MAX];
    int rc = job_dir_file(path, dir, JOB_DIR_INSIDE);

    if (rc == 0 && !fp_namespace_exists(path))
        return 0;
    rc = rc ? rc : fp_namespace_enter(path);
    if (rc)
        FP_ERROR("where the store is mounted can't be entered: %s", rc == -ESRCH  ? "its agent on this node is gone"
                                                                   : rc == -EPERM ? "this process is in a user namespace of its own: start it outside, fp-enter first"
                                                                   : rc == -ENOENT && !getcwd(cwd, sizeof cwd) ? "the working directory was removed, or can't be reached from there: start it in another one"
                                                                                  : fp_strerror(rc));
    return rc;
}

/* It is in a process group of its own, so that a ^C comes to it once: from us. */
static pid_t fork_told(void)
{
    sigset_t all, before;
    pid_t pid;

    fflush(NULL);
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    pid = fork(); /* we may have threads, and go on outside */
    if (pid == 0)
        (void)setpgid(0, 0);
    job_signals_to(pid > 0 ? pid : 0);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}

int job_inside(const char *dir, int (*do_it)(void *arg), void *arg)
{
    char path[PATH_MAX];
    int status;
    pid_t pid;

    if (job_dir_file(path, dir, JOB_DIR_INSIDE) || !fp_namespace_exists(path))
        return do_it(arg);
    pid = fork_told();
    if (pid == 0)
        _exit(job_enter(dir) || do_it(arg) ? 1 : 0);
    while (pid > 0 && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    job_signals_to(0);
    if (pid < 0) {
        FP_ERROR("no process can be made: %s", fp_strerror(-errno));
        return -EAGAIN;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

bool job_enters(const char *command)
{
    const char *slash = strrchr(command, '/'), *name = slash ? slash + 1 : command;

    return strcmp(name, "srun") == 0 || strncmp(name, "mpi", 3) == 0;
}

bool job_enter_program(char *out, size_t size)
{
    static const char *const tails[] = {"fp-enter", NULL};

    return fp_beside(out, size, tails);
}

int job_cmd_enter(char *const argv[])
{
    char job[65], dir[PATH_MAX];

    if (!argv[1] || strcmp(argv[1], "--help") == 0) {
        fprintf(argv[1] ? stdout : stderr, "Usage: fp-enter COMMAND [ARGUMENT]...\nRuns a command where it sees the store of the job: see fp-job(1).\n");
        return argv[1] ? 0 : 2;
    }
    if (job_alloc_job(job)) {
        FP_ERROR("of which job? SLURM_JOB_ID, PBS_JOBID and FP_JOB are not set");
        return 1;
    }
    job_dir_path(dir, job);
    if (!job_dir_is_ours(dir)) {
        FP_ERROR("job %s has no store on this node, or it has ended: %s is not run", job, argv[1]);
        return 1;
    }
    if (job_enter(dir))
        return 1;
    execvp(argv[1], argv + 1);
    FP_ERROR("%s: %s", argv[1], fp_strerror(-errno));
    return errno == ENOENT ? 127 : 126;
}
