/*
 * Variables that come from another store (see inherited.h). Called by fp-job start and run before they set theirs, by all that looks at this machine's cores, and by
 * the SPANK plugin in sbatch and salloc. One thread.
 *
 * A job that is submitted within another one has all of its variables. Those that name the store are wrong there, and HWLOC_XMLFILE is that of other cores, or
 * of no file. fp-job start can't keep them from being taken along; --export, which could, is the user's.
 */
#include "jobscripts/launch/inherited.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OURS "fp-job daemon " /* cmd_run.c */

static void add(struct job_inherited *i, const char *name, const char *value)
{
    i->of[i->n].name = name;
    snprintf(i->of[i->n].value, sizeof i->of[i->n].value, "%s", value ? value : "");
    i->n++;
}

static bool is_our_prolog(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;

    return slash && strcmp(slash, "/fp-task-prolog") == 0;
}

/* A file that the user or the site has given has another name. */
static bool has_our_cores(void)
{
    static const char start[] = "/tmp/fpstore-", end[] = "/" JOB_CORES_FILE;
    const char *file = getenv("HWLOC_XMLFILE");
    size_t len = file ? strlen(file) : 0;

    return len >= sizeof start + sizeof end && strncmp(file, start, sizeof start - 1) == 0 && strcmp(file + len - (sizeof end - 1), end) == 0;
}

static bool is_our_binding(void)
{
    const char *value = getenv(JOB_BINDING_VARIABLE);

    return value && strcmp(value, JOB_BINDING_OURS) == 0;
}

const char *job_inherited_agent(const char *variable)
{
    const char *value = getenv(variable), *ours = value ? strstr(value, OURS) : NULL, *behind = ours ? strstr(ours, " -- ") : NULL;

    if (behind)
        value = behind + 4;
    return value && *value && !(behind && (strcmp(value, "orted") == 0 || strcmp(value, "prted") == 0)) ? value : NULL;
}

void job_inherited_find(struct job_inherited *out)
{
    static const char *const plain[] = {"FP_MOUNT", "FP_JOB", "FP_ENTER", "FP_NO_STORE", NULL}, *const agents[] = {"OMPI_MCA_orte_launch_agent", "PRTE_MCA_prte_launch_agent", NULL};
    const char *before = getenv("FP_TASK_PROLOG");

    out->n = 0;
    for (const char *const *name = plain; *name; name++)
        if (getenv(*name))
            add(out, *name, NULL);
    if (is_our_prolog(getenv("SLURM_TASK_PROLOG")))
        add(out, "SLURM_TASK_PROLOG", is_our_prolog(before) ? NULL : before);
    if (before)
        add(out, "FP_TASK_PROLOG", NULL);
    for (const char *const *name = agents; *name; name++)
        if (getenv(*name) && strstr(getenv(*name), OURS))
            add(out, *name, job_inherited_agent(*name));
    if (has_our_cores()) {
        add(out, "HWLOC_XMLFILE", NULL);
        add(out, "HWLOC_THISSYSTEM", NULL);
        if (is_our_binding())
            add(out, JOB_BINDING_VARIABLE, NULL);
    }
}

void job_inherited_forget(const struct job_inherited *i)
{
    for (unsigned k = 0; k < i->n; k++)
        if (i->of[k].value[0])
            (void)setenv(i->of[k].name, i->of[k].value, 1);
        else
            (void)unsetenv(i->of[k].name);
}

void job_inherited_forget_cores(void)
{
    if (!has_our_cores())
        return;
    (void)unsetenv("HWLOC_XMLFILE");
    (void)unsetenv("HWLOC_THISSYSTEM");
    if (is_our_binding())
        (void)unsetenv(JOB_BINDING_VARIABLE);
}
