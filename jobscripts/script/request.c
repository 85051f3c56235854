/*
 * Reads the script and asks Slurm for the nodes of its partitions (see request.h).
 *
 * sinfo and not libslurm: its library has another ABI with each release, and one program is to run on every site. It is given three seconds: without a controller
 * it would try for minutes.
 */
#include "jobscripts/script/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/beside.h"
#include "fp/err.h"
#include "fp/log.h"
#include "fp/command.h"
#include "jobscripts/launch/slurm.h"

#define SINFO_MS    3000u
#define SINFO_BYTES (4u << 20) /* 10,000 nodes with names of 60 bytes, and room */

static void add_type(struct job_request *r, const struct job_nodetype *one)
{
    for (size_t i = 0; i < r->ntypes; i++) {
        struct job_nodetype *t = &r->types[i];

        if (t->sockets == one->sockets && t->cores == one->cores && t->threads == one->threads) {
            t->nodes++;
            return;
        }
    }
    if (r->ntypes == JOB_NODETYPES_MAX)
        r->more_types++;
    else
        r->types[r->ntypes++] = *one;
}

void job_request_types(const char *text, struct job_request *r)
{
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        struct job_nodetype one = {.nodes = 1};
        uint32_t cores, cpus;

        if (sscanf(text, "%63[^|\n]|%u|%u|%u", one.first, &one.sockets, &one.cores, &one.threads) != 4 || !one.sockets || !one.cores || !one.threads)
            continue;
        if (one.sockets > 512 || one.cores > 65536 || one.threads > 64)
            continue;
        add_type(r, &one);
        cores = one.sockets * one.cores;
        cpus = cores * one.threads;
        r->least_cores = !r->least_cores || cores < r->least_cores ? cores : r->least_cores;
        r->most_cpus = cpus > r->most_cpus ? cpus : r->most_cpus;
        r->least_cpus = !r->least_cpus || cpus < r->least_cpus ? cpus : r->least_cpus;
    }
}

static void ask_slurm(struct job_request *r)
{
    char *const of_partition[] = {"sinfo", "-h", "-N", "-o", "%N|%X|%Y|%Z", "-p", r->sbatch.partition, NULL};
    char *const of_all[] = {"sinfo", "-h", "-N", "-o", "%N|%X|%Y|%Z", NULL};
    char *out = malloc(SINFO_BYTES);

    if (out && fp_command(r->sbatch.partition[0] ? of_partition : of_all, SINFO_MS, out, SINFO_BYTES) == 0)
        job_request_types(out, r);
    free(out);
}

static void look_at_nodes(const struct job_options *o, struct job_request *r)
{
    r->nodes = o->nhosts ? o->nhosts : o->nodes ? (uint32_t)o->nodes : r->sbatch.nodes;
    if (o->node_cores) {
        r->least_cores = r->least_cpus = r->most_cpus = (uint32_t)o->node_cores; /* with one hardware thread each, as explain shows them */
        r->types[r->ntypes++] = (struct job_nodetype){.sockets = 1, .cores = r->least_cores, .threads = 1, .nodes = r->nodes};
        return;
    }
    if (o->words)
        return;
    ask_slurm(r);
    if (!r->least_cores) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);

        r->least_cores = r->least_cpus = r->most_cpus = n > 0 ? (uint32_t)n : 0;
        r->nodes_are_here = true;
    }
}

/* Nobody names it: the job has one. */
static int read_own(const struct job_options *o, struct job_script *script, struct job_request *out)
{
    const char *job = getenv("SLURM_JOB_ID");
    char *text;
    int rc = job ? job_slurm_script(job, &text) : -ENOENT;

    if (rc)
        return rc;
    snprintf(out->name, sizeof out->name, "script of job %s", job);
    memset(script, 0, sizeof *script);
    job_script_make(text, o->directives, script, &out->sbatch, &out->findings);
    return 0;
}

static int read_named(const struct job_options *o, struct job_script *script, struct job_request *out)
{
    int rc = job_script_read(o->script, o->directives, script, &out->sbatch, &out->findings);

    snprintf(out->name, sizeof out->name, "%s", o->script);
    if (rc)
        FP_ERROR("%s: %s", o->script, rc == -EINVAL ? "it is no text" : fp_strerror(rc));
    return rc;
}

int job_request_read(const struct job_options *o, struct job_request *out)
{
    struct job_script script;
    int rc;

    memset(out, 0, sizeof *out);
    job_findings_init(&out->findings);
    rc = o->script ? read_named(o, &script, out) : read_own(o, &script, out);
    if (rc)
        return rc;
    if (o->sbatch)
        job_sbatch_call(o->sbatch, &out->sbatch);
    if (o->auxapp_dir)
        snprintf(out->plugin_dir, sizeof out->plugin_dir, "%s", o->auxapp_dir);
    else
        fp_beside_plugins(out->plugin_dir, sizeof out->plugin_dir);
    look_at_nodes(o, out);
    job_declared_make(&script, &out->declared, &out->findings);
    return 0;
}

void job_request_fini(struct job_request *r)
{
    job_declared_fini(&r->declared);
    job_findings_fini(&r->findings);
}
