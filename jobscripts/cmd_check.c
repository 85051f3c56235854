/*
 * fp-job check SCRIPT: all that can be known before the job is queued.
 *
 * What nodes the job will get is Slurm's to say: of the partition that the script names the smallest node counts, since the job may get it. A machine
 * without Slurm, or whose controller does not answer, still checks the words: the limit is a second.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/beside.h"
#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/check.h"
#include "jobscripts/command.h"
#include "jobscripts/job.h"
#include "jobscripts/sbatch.h"

#define SINFO_MS 3000u

/* The least of a column of numbers, which may have a + behind ("64+"); 0: there is none. */
static uint32_t least(const char *text)
{
    uint32_t min = 0;

    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        unsigned long n = strtoul(text, NULL, 10);

        if (n > 0 && n <= UINT32_MAX && (!min || n < min))
            min = (uint32_t)n;
    }
    return min;
}

static uint32_t slurm_cores(const struct job_sbatch *sb)
{
    char out[65536];
    char *const of_partition[] = {"sinfo", "-h", "-N", "-o", "%c", "-p", (char *)(uintptr_t)sb->partition, NULL};
    char *const of_all[] = {"sinfo", "-h", "-N", "-o", "%c", NULL};

    return job_command(sb->partition[0] ? of_partition : of_all, SINFO_MS, out, sizeof out) == 0 ? least(out) : 0;
}

static void look_at_site(const struct job_options *o, const struct job_sbatch *sb, struct job_site *site)
{
    site->nodes = o->nodes ? (uint32_t)o->nodes : sb->nodes;
    site->cores = o->node_cores ? (uint32_t)o->node_cores : slurm_cores(sb);
    if (!site->cores) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);

        site->cores = n > 0 ? (uint32_t)n : 0;
        site->cores_are_here = true;
    }
}

int job_cmd_check(const struct job_options *o)
{
    struct job_script script;
    struct job_declared d;
    struct job_findings f;
    struct job_sbatch sb;
    struct job_site site = {0};
    char dir[PATH_MAX];
    int rc;

    job_findings_init(&f);
    rc = job_script_read(o->script, &script, &sb, &f);
    if (rc) {
        FP_ERROR("%s: %s", o->script, rc == -EINVAL ? "it is no text" : fp_strerror(rc));
        return rc;
    }
    look_at_site(o, &sb, &site);
    site.plugin_dir = o->auxapp_dir ? o->auxapp_dir : fp_beside_plugins(dir, sizeof dir);
    job_declared_make(&script, &d, &f);
    job_check(&d, &site, &f);
    job_findings_print(&f, o->script);
    rc = f.errors ? -EINVAL : 0;
    job_declared_fini(&d);
    job_findings_fini(&f);
    return rc;
}
