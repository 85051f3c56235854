/*
 * Nodes whose agents are gone (see lost.h). Called by the end of a job's store (start.c).
 *
 * An agent that is killed alone is cleaned up after by the process above it; this is for those where both were, as by a kernel without memory, or by who killed
 * all of the user's processes. A node that is down is among them, and no step can be had there: nothing is left on it that would be in anybody's way before it
 * comes back, and the next job's agent clears it then.
 */
#include "jobscripts/launch/lost.h"

#include <stdlib.h>
#include <string.h>

#include "fp/log.h"
#include "job.pb-c.h"
#include "jobscripts/launch/launch.h"
#include "jobscripts/launch/slurm.h"

#define ONE_BY_ONE 4u /* else it takes too long */
#define SHOWN_MAX  8u
#define LIST_BYTES 100000u /* Linux takes 128 KiB for a word of a command */

static void add(struct job_lost *l, const char *name)
{
    size_t n = strlen(name);

    if (l->room - l->len < n + 2) {
        size_t room = 2 * l->room + n + 256;
        char *more = realloc(l->names, room);

        if (!more)
            return; /* said by nobody, and cleared by the next job */
        l->names = more;
        l->room = room;
    }
    if (l->len)
        l->names[l->len++] = ',';
    memcpy(l->names + l->len, name, n + 1);
    l->len += n;
    l->n++;
}

void job_lost_find(const struct job_run_of *r, struct job_lost *out)
{
    struct job_states s;

    memset(out, 0, sizeof *out);
    if (job_launch_ask(r->dir, &r->record, &s)) {
        job_lost_all(r, out);
        return;
    }
    for (uint32_t i = 0; i < s.n && i < r->alloc.nnodes; i++)
        if (s.nodes[i].state == FP__JOB_NODE_STATE__JOB_NODE_FAILED)
            add(out, r->alloc.nodes[i]);
    job_states_fini(&s);
}

void job_lost_all(const struct job_run_of *r, struct job_lost *out)
{
    free(out->names);
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < r->alloc.nnodes; i++)
        add(out, r->alloc.nodes[i]);
}

/* One that is down keeps a step of several from beginning. */
static void one_by_one(const char *job, char *names)
{
    char *save = NULL;
    unsigned n = 0, told = 0;

    for (char *name = strtok_r(names, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        bool tried = n++ < ONE_BY_ONE;

        if (tried && job_slurm_clean(job, name, 1) == 0)
            continue;
        if (told++ < SHOWN_MAX)
            FP_WARN("%s %s: what the store had there is removed by your next job on it, or by fp-job clean there", name, tried ? "is down, or does not answer" : "was not reached, as others are down");
    }
    if (told > SHOWN_MAX)
        FP_WARN("and so it is on %u other nodes", told - SHOWN_MAX);
}

/* By steps of as many as the command line of srun takes. */
static void clean_all(const char *job, char *names)
{
    while (*names) {
        char *end = names + strcspn(names, ",");
        uint32_t n = 1;

        for (; *end && (size_t)(end - names) < LIST_BYTES; n++)
            end += 1 + strcspn(end + 1, ",");
        char *next = end + (*end == ',');

        *end = '\0';
        if (job_slurm_clean(job, names, n))
            one_by_one(job, names);
        names = next;
    }
}

void job_lost_clean(const struct job_run_of *r, struct job_lost *l)
{
    if (l->n && !r->alloc.in_slurm) {
        FP_WARN("what the store had on %.1000s is removed by your next job there, or by fp-job clean there", l->names);
    } else if (l->n) {
        job_launch_environment();
        clean_all(r->alloc.job, l->names);
    }
    free(l->names);
    memset(l, 0, sizeof *l);
}
