/*
 * fp-job check [SCRIPT]: all that can be known before the job is queued.
 *
 * What nodes the job will get is Slurm's to say: of the partition that the script names the smallest node counts, since the job may get it. A machine
 * without Slurm, or whose controller does not answer, still checks the words.
 */
#include <errno.h>
#include <string.h>

#include "jobscripts/script/check.h"
#include "jobscripts/script/checkcode.h"
#include "jobscripts/job.h"
#include "jobscripts/script/request.h"

int job_cmd_check(const struct job_options *o)
{
    struct job_request r;
    struct job_site site;
    int rc = job_request_read(o, &r);

    if (rc)
        return rc;
    site = (struct job_site){.plugin_dir = r.plugin_dir, .nodes = r.nodes, .cores = r.least_cores, .cpus = r.least_cpus, .most_cpus = r.most_cpus, .sbatch = &r.sbatch, .cores_are_here = r.nodes_are_here, .words = o->words};
    if (o->sbatch) {
        site.core_spec = r.sbatch.core_spec; /* else services are a step of the job, and don't get them */
        site.unseen = o->script && strcmp(o->script, "/dev/null") == 0;
    }
    job_check(&r.declared, &site, &r.findings);
    job_findings_print(&r.findings, r.name);
    rc = r.findings.errors ? -EINVAL : site.core_spec ? JOB_CHECK_CORE_SPEC : 0;
    job_request_fini(&r);
    return rc;
}
