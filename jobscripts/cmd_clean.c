/*
 * fp-job clean [JOB]: removes what jobs of this user that were killed have left on this node; or all that one job has here, whether it is alive or not.
 *
 * The agent of the user's next job does the first, too: this is for who needs the space, or the mountpoint, before. The second is for what comes after a job,
 * such as a site's epilog, when nothing of it may stay, and for fp-job stop on nodes whose agents are gone.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/job.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/left.h"
#include "jobscripts/outside.h"

static int clean_job(const char *job)
{
    char dir[PATH_MAX];
    int rc;

    if (!*job || strlen(job) > 64 || strspn(job, JOB_DIR_CHARS) != strlen(job)) {
        FP_ERROR("'%s' is no number of a job", job);
        return -EINVAL;
    }
    job_dir_path(dir, job);
    if (access(dir, F_OK) < 0)
        return 0;
    rc = job_dir_make(dir); /* is it ours? */
    if (rc)
        FP_ERROR("%s: %s", dir, rc == -EPERM ? "it belongs to somebody else" : fp_strerror(rc));
    else {
        job_outside_end(dir);
        job_left_clean(dir);
    }
    return rc;
}

int job_cmd_clean(const struct job_options *o)
{
    if (o->script)
        return clean_job(o->script);
    if (!job_left_sweep(getenv("TMPDIR")))
        FP_INFO("nothing is left here by jobs that were killed");
    return 0;
}
