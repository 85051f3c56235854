/*
 * What nodes a call names (see nodes_given.h). Called by main.c before any command.
 *
 * Two options that contradict each other are a mistake, whichever of them we would take: a job checked for four nodes and started on three is what check is there
 * to prevent. That start and run take --nodes as a part of the job's nodes was rejected: --hosts says which, and Slurm's srun needs no less.
 */
#include "jobscripts/nodes_given.h"

#include <errno.h>
#include <stdio.h>

static int read_hosts(struct job_options *o, char *why)
{
    char text[JOB_HOSTS_WHY_BYTES];
    int rc = job_hosts_read(o->hosts, &o->host_names, &o->nhosts, text);

    if (rc)
        snprintf(why, JOB_NODES_GIVEN_WHY_BYTES, "--hosts: %s", text);
    return rc;
}

static int say(const char *text, char *why)
{
    snprintf(why, JOB_NODES_GIVEN_WHY_BYTES, "%s", text);
    return -EINVAL;
}

int job_nodes_given(struct job_options *o, enum job_nodes_use use, char why[JOB_NODES_GIVEN_WHY_BYTES])
{
    int rc;

    if (use == JOB_NODES_KNOWN)
        return 0;
    if (use == JOB_NODES_HERE && o->nodes)
        return say("--nodes is for check and explain: doctor and clean look at the machine that they are called on, and doctor at all nodes of a job of Slurm", why);
    if (use == JOB_NODES_HERE)
        return o->hosts ? say("--hosts is for check, explain, start and run: doctor and clean look at the machine that they are called on, and doctor at all nodes of a job of Slurm", why) : 0;
    if (use == JOB_NODES_USED && o->nodes && !o->hosts)
        return say("--nodes is for check and explain: start and run take all nodes of the job, or those that --hosts names", why);
    if (!o->hosts || (use == JOB_NODES_COUNTED && o->words && o->hosts[0] == '@'))
        return 0;
    rc = read_hosts(o, why);
    if (rc == 0 && o->nodes && o->nodes != o->nhosts) {
        snprintf(why, JOB_NODES_GIVEN_WHY_BYTES, "--nodes=%lld, but --hosts names %u node%s: one of them is enough", (long long)o->nodes, o->nhosts, o->nhosts == 1 ? "" : "s");
        rc = -EINVAL;
    }
    return rc;
}
