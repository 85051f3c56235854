/*
 * Whether the service cores are ours alone: told once, at the start, on the main thread.
 *
 * The threads that work there are pinned (client/data/jobs.c, client/aux/link.c, auxapps/host/cores.c). Keeping all others away is up to who starts the job: a cpuset
 * of our own would have to take the cores from processes that we did not start, the ranks, by moving them into another one, and a user's job has no
 * right to that on most machines. So what is done here is to say how it is, since a service core that ranks run on is none.
 */
#include <stdio.h>
#include <string.h>

#include "client/options.h"
#include "fp/log.h"

#define ISOLATED "/sys/devices/system/cpu/isolated" /* by isolcpus= or by an isolated partition of cpusets */

static bool all_isolated(const cpu_set_t *cores)
{
    char text[4096] = "";
    cpu_set_t isolated, ours = *cores;
    FILE *f = fopen(ISOLATED, "re");
    if (!f)
        return false;
    if (!fgets(text, sizeof text, f))
        text[0] = '\0';
    fclose(f);
    text[strcspn(text, "\n")] = '\0';
    if (cl_cores_parse(text, &isolated))
        return false; /* none */
    CPU_AND(&ours, &ours, &isolated);
    return CPU_EQUAL(&ours, cores);
}

void cl_cores_tell(const struct cl_options *o)
{
    if (o->ncores == 0)
        return;
    if (all_isolated(&o->cores))
        FP_INFO("service cores %s: the kernel keeps other programs away from them", o->cores_text);
    else
        FP_INFO("service cores %s: other programs may run there, too; start the job so that it does not (docs/AUXAPPS.md, \"Service cores\")",
                o->cores_text);
}
