/*
 * fp-job clean [JOB]: removes what jobs of this user that were killed have left on this node; or all that one job has here, whether it is alive or not.
 *
 * The agent of the user's next job does the first, too: this is for who needs the space, or the mountpoint, before. The second is for what comes after a job,
 * such as a site's epilog, when nothing of it may stay, and for fp-job stop on nodes whose agents are gone.
 */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/job.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/agent/left.h"
#include "jobscripts/launch/outside.h"

/* An epilog runs as root, and what is there is the user's: nothing of it is touched by root, who would follow what the user has made of it. */
static int not_of_root(const char *job)
{
    char pattern[128];
    int rc = 0;
    glob_t g;

    snprintf(pattern, sizeof pattern, "/tmp/fpstore-[0-9]*-%s", job);
    if (geteuid() != 0 || glob(pattern, 0, NULL, &g) != 0)
        return 0;
    for (size_t i = 0; i < g.gl_pathc; i++) {
        unsigned long uid = strtoul(g.gl_pathv[i] + strlen("/tmp/fpstore-"), NULL, 10);

        FP_ERROR("%s is another user's: runuser -u \"$(id -nu %lu)\" -- fp-job clean %s", g.gl_pathv[i], uid, job);
        rc = -EPERM;
    }
    globfree(&g);
    return rc;
}

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
        return not_of_root(job);
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
