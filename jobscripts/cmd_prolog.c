/*
 * fp-task-prolog, a link to fp-job: what srun runs before each task of a job with service cores (SLURM_TASK_PROLOG).
 *
 * Becomes the job's own prolog of this node (node_store.c), which keeps the task off the service cores, while there is one; else that of the user. The variable
 * stays in the shell of the batch script when the store has ended, and a program that is not there any more would fail each srun that comes then.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/job.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/launch/alloc.h"

int job_cmd_prolog(void)
{
    const char *job = getenv("FP_JOB"), *own = getenv("FP_TASK_PROLOG");
    char dir[PATH_MAX], path[PATH_MAX];

    if (!job || !*job || job_alloc_is_other(job)) /* srun --export=NONE; a job that was submitted by the one that has the store */
        job = getenv("SLURM_JOB_ID");
    if (job) {
        job_dir_path(dir, job);
        if (job_dir_is_ours(dir) && job_dir_file(path, dir, JOB_TASK_PROLOG) == 0 && access(path, R_OK) == 0)
            execl("/bin/sh", "sh", path, (char *)NULL);
    }
    if (!own || !*own)
        return 0;
    execl(own, own, (char *)NULL);
    FP_ERROR("%s (SLURM_TASK_PROLOG): %s", own, fp_strerror(-errno));
    return -EIO;
}
