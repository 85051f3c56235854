/*
 * What an agent asks the plugins of the aux-apps (see node.h): on which nodes each runs, and whether it changes data.
 *
 * Begun before anything else, in a process each, and heard while the loop goes on: a plugin on a file system that is slow, or thousands of nodes read from, takes
 * long to load, and an agent that waited for it in a callback was taken for dead. Once the loop runs it has threads, which is no time to fork and load somebody's code.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/err.h"
#include "jobscripts/agent/node.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/script/drainwords.h"
#include "jobscripts/script/auxcheck.h"

#define PLUGIN_MS 30000u

/* drain is no plugin: fp-job start makes a policy of it. */
static bool is_plugin(const struct job_auxapp *a)
{
    return strcmp(a->name, "drain") != 0;
}

static int expand(const struct job_auxapp *a, char text[JOB_AUXAPP_BYTES], char *why, size_t size)
{
    int rc = job_words(a->line, 1, job_expand, text, JOB_AUXAPP_BYTES);

    if (rc)
        snprintf(why, size, "aux-app %.200s: %.200s%s", a->name, rc == -ENOENT ? text : rc == -EINVAL ? "a variable in it has a double quote" : fp_strerror(rc), rc == -ENOENT ? " is not set on this node" : "");
    return rc;
}

/* What it has answered suits this job. */
static int suits(const struct node *n, const struct job_auxapp *a, const struct job_auxanswer *one, char *why, size_t size)
{
    const char *partial = job_aux_partial_why(one, n->plan.nnodes);

    if (!partial)
        return 0;
    snprintf(why, size, "%.100s is to run on %u of %u nodes, but %s", a->name, one->nodes, n->plan.nnodes, partial);
    return -EINVAL;
}

int node_ask_begin(struct node *n, char *why, size_t size)
{
    char line[JOB_AUX_WHY_BYTES];
    int rc = 0;

    n->asks = calloc(n->declared.nauxapps + 1, sizeof *n->asks);
    if (!n->asks)
        abort(); /* at the start alone */
    for (size_t i = 0; rc == 0 && i < n->declared.nauxapps; i++) {
        if (!is_plugin(&n->declared.auxapps[i]))
            continue;
        rc = expand(&n->declared.auxapps[i], n->asks[i].text, why, size);
        if (rc)
            break;
        rc = job_auxask_begin(n->asks[i].text, n->plan.auxapp_dir, PLUGIN_MS, &n->asks[i].ask, line);
        n->asks[i].open = rc == 0;
        if (rc)
            snprintf(why, size, "%.500s", line);
    }
    return rc;
}

int node_ask_hear(struct node *n, char *why, size_t size)
{
    char line[JOB_AUX_WHY_BYTES];
    int rc;

    for (size_t i = 0; i < n->declared.nauxapps; i++) {
        struct node_ask *a = &n->asks[i];

        if (!a->open)
            continue;
        if (!job_auxask_hear(&a->ask, 0, &rc, &a->answer, line))
            return -EAGAIN;
        a->open = false;
        if (rc)
            snprintf(why, size, "%.500s", line);
        rc = rc ? rc : suits(n, &n->declared.auxapps[i], &a->answer, why, size);
        if (rc)
            return rc;
    }
    return 0;
}

const struct node_ask *node_ask_of(const struct node *n, size_t auxapp)
{
    return is_plugin(&n->declared.auxapps[auxapp]) ? &n->asks[auxapp] : NULL;
}
