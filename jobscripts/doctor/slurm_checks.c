/*
 * What of Slurm's configuration matters to jobs with a store: a row for each parameter (see doctor.h). Pure; called by cmd_doctor.c.
 *
 * Parameters have the names that slurm.conf(5) gives them, since that is where they are changed. Releases print the same keys but not the same set of
 * them: one that is missing is taken for one that is not set.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "jobscripts/doctor/doctor.h"

#define VALUE_BYTES  512u
#define VERSION_LEAST 2011u /* srun --overlap */
#define KILL_WAIT_LEAST_S 20 /* node_signal.c waits for Slurm for 8 s, and programs that hang are given some, too */

const char *doctor_conf(const struct doctor_slurm *s, const char *key, char *out, size_t size)
{
    size_t n = strlen(key);

    out[0] = '\0';
    for (const char *l = s->config; l && *l; l += strcspn(l, "\n"), l += *l == '\n') {
        const char *v = l + n;

        if (strncasecmp(l, key, n) != 0)
            continue;
        v += strspn(v, " \t");
        if (*v != '=')
            continue;
        v += 1 + strspn(v + 1, " \t");
        if (strncmp(v, "(null", 5) != 0)
            snprintf(out, size, "%.*s", (int)strcspn(v, "\r\n"), v);
        break;
    }
    return out;
}

bool doctor_listed(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; *p; p += strcspn(p, ", "), p += strspn(p, ", "))
        if (strncasecmp(p, word, n) == 0 && (!p[n] || strchr(", =", p[n])))
            return true;
    return false;
}

/* ---------------------------------------------------------------- rows */

/* "22.05.8" is 2205. 0: it is no version. */
static unsigned version_of(const char *text)
{
    unsigned major, minor;

    return sscanf(text, "%2u.%2u", &major, &minor) == 2 ? major * 100 + minor : 0;
}

static void judge_slurm(const struct doctor_slurm *s, struct doctor_answer *a)
{
    char v[VALUE_BYTES];

    if (s->rc == -ENOENT) {
        doctor_found(a, "scontrol is not in PATH");
        doctor_warn(a, "if this is a site with Slurm: its commands into PATH (package slurm-client), on login nodes and compute nodes; else jobs give --hosts, or PBS does");
        return;
    }
    if (s->rc) {
        doctor_found(a, s->rc == -ETIMEDOUT ? "its controller does not answer within some seconds" : "scontrol show config fails: the controller is down, or slurm.conf is not that of the site");
        doctor_wrong(a, "see scontrol ping; SLURM_CONF, or /etc/slurm/slurm.conf, of this machine must name the controller");
        return;
    }
    doctor_conf(s, "SLURM_VERSION", v, sizeof v);
    doctor_found(a, "%s", *v ? v : "it does not say its version");
    if (version_of(v) < VERSION_LEAST)
        doctor_wrong(a, "Slurm 20.11 or later: the services of a job run beside its steps by srun --overlap");
}

static void judge_select(const struct doctor_slurm *s, struct doctor_answer *a)
{
    char v[VALUE_BYTES], p[VALUE_BYTES];

    doctor_conf(s, "SelectType", v, sizeof v);
    doctor_conf(s, "SelectTypeParameters", p, sizeof p);
    doctor_found(a, "%s%s%s", *v ? v : "not set", *p ? ", " : "", p);
    if (strncasecmp(v, "select/cons_", 12) == 0 && (doctor_listed(p, "CR_CPU") || doctor_listed(p, "CR_CPU_Memory")))
        doctor_warn(a, "slurm.conf: SelectTypeParameters=CR_Core or CR_Core_Memory: with CR_CPU two jobs may share one core by its hardware threads, a service core too");
}

static void judge_tasks(const struct doctor_slurm *s, struct doctor_answer *a)
{
    char v[VALUE_BYTES], c[VALUE_BYTES], select[VALUE_BYTES];
    bool group, affinity;

    doctor_conf(s, "TaskPlugin", v, sizeof v);
    doctor_conf(s, "ConstrainCores", c, sizeof c);
    doctor_conf(s, "SelectType", select, sizeof select);
    group = doctor_listed(v, "task/cgroup") || doctor_listed(v, "cgroup");
    affinity = doctor_listed(v, "task/affinity") || doctor_listed(v, "affinity");
    doctor_found(a, "%s%s%s", *v ? v : "not set", group ? ", ConstrainCores=" : "", group ? (*c ? c : "no") : "");
    if (group && strcasecmp(c, "yes") == 0)
        return;
    if (group)
        doctor_warn(a, "cgroup.conf: ConstrainCores=yes: nothing holds a task to the cores of its job that changes its own mask");
    else if (affinity)
        doctor_warn(a, "slurm.conf: TaskPlugin=task/affinity,task/cgroup, and ConstrainCores=yes in cgroup.conf: nothing holds a task to the cores of its job that changes its own mask");
    else if (strcasecmp(select, "select/linear") == 0)
        doctor_warn(a, "slurm.conf: TaskPlugin=task/affinity,task/cgroup: tasks are kept off service cores by fp-job alone");
    else
        doctor_wrong(a, "slurm.conf: TaskPlugin=task/affinity,task/cgroup, and ConstrainCores=yes in cgroup.conf: jobs that share a node take the same cores for their services and tasks");
}

static void judge_processes(const struct doctor_slurm *s, struct doctor_answer *a)
{
    char v[VALUE_BYTES];

    doctor_conf(s, "ProctrackType", v, sizeof v);
    doctor_found(a, "%s", *v ? v : "not set");
    if (strcasecmp(v, "proctrack/cgroup") != 0)
        doctor_warn(a, "slurm.conf: ProctrackType=proctrack/cgroup: %s at the end of a job Slurm may miss processes that have left their step", *v ? "with this one," : "with none,");
}

static void judge_kill_wait(const struct doctor_slurm *s, struct doctor_answer *a)
{
    char v[VALUE_BYTES];

    doctor_conf(s, "KillWait", v, sizeof v);
    doctor_found(a, "%s", *v ? v : "not set");
    if (*v && atoi(v) < KILL_WAIT_LEAST_S)
        doctor_warn(a, "slurm.conf: KillWait=30: the services of a job that is cancelled unmount and remove what they have made within %d s of SIGTERM", KILL_WAIT_LEAST_S);
}

static void judge_accounting(const struct doctor_slurm *s, struct doctor_answer *a)
{
    char type[VALUE_BYTES], params[VALUE_BYTES];

    doctor_conf(s, "JobAcctGatherType", type, sizeof type);
    doctor_conf(s, "JobAcctGatherParams", params, sizeof params);
    doctor_found(a, "%s%s%s", *type ? type : "not set", *params ? ", " : "", params);
    if (doctor_listed(params, "OverMemoryKill") && !doctor_listed(params, "UsePss"))
        doctor_warn(a, "slurm.conf: JobAcctGatherParams=OverMemoryKill,UsePss, or ConstrainRAMSpace in place of it: memory that services share is counted once for each of them");
}

static void judge_mpi(const struct doctor_slurm *s, struct doctor_answer *a)
{
    char v[VALUE_BYTES];

    doctor_conf(s, "MpiDefault", v, sizeof v);
    doctor_found(a, "%s", *v ? v : "none");
    if (!*v || strcasecmp(v, "none") == 0)
        doctor_warn(a, "slurm.conf: MpiDefault=pmix, if MPI is Open MPI; else users write srun --mpi=...: without it each task believes to be the only rank, and all write the same files");
}

static void judge_launch(const struct doctor_slurm *s, struct doctor_answer *a)
{
    char v[VALUE_BYTES];

    doctor_conf(s, "LaunchParameters", v, sizeof v);
    doctor_found(a, "%s", *v ? v : "none");
    if (!doctor_listed(v, "use_interactive_step"))
        doctor_warn(a, "slurm.conf: LaunchParameters=use_interactive_step: else the shell of salloc runs on the login node, which does not mount the job's store (batch scripts are not concerned)");
}

/* Do prologs run when a job begins? By default that of a node waits for the first step there, which is that of our agents. */
static bool prologs_are_early(const char *flags)
{
    return doctor_listed(flags, "Alloc") || doctor_listed(flags, "Contain") || doctor_listed(flags, "X11");
}

static void judge_prolog(const struct doctor_slurm *s, struct doctor_answer *a)
{
    char v[VALUE_BYTES], prolog[VALUE_BYTES];

    doctor_conf(s, "PrologFlags", v, sizeof v);
    doctor_conf(s, "Prolog", prolog, sizeof prolog);
    if (!*prolog)
        doctor_conf(s, "Prolog[0]", prolog, sizeof prolog);
    doctor_found(a, "%s%s", *v ? v : "none", *prolog ? ", and there is a prolog" : "");
    if (*prolog && !prologs_are_early(v))
        doctor_warn(a, "slurm.conf: PrologFlags=Alloc, beside what is there: else nodes run their prolog when the store is started on them, and it is ready so much later");
}

static bool has_plugin(const struct doctor_slurm *s)
{
    for (const char *l = s->plugstack; l && *l; l += strcspn(l, "\n"), l += *l == '\n') {
        const char *end = l + strcspn(l, "#\n"), *at = strstr(l, "spank_fp.so");

        if (at && at < end)
            return true;
    }
    return false;
}

static void judge_plugstack(const struct doctor_slurm *s, struct doctor_answer *a)
{
    char v[VALUE_BYTES];

    doctor_conf(s, "PlugStackConfig", v, sizeof v);
    if (!s->plugstack)
        doctor_found(a, "%.180s: not there, or it can't be read here", *v ? v : "not set");
    else
        doctor_found(a, "%.180s: %s", v, has_plugin(s) ? "with spank_fp.so" : "without a plugin of fpstore, which jobs do not need");
}

static void judge_burst_buffer(const struct doctor_slurm *s, struct doctor_answer *a)
{
    char v[VALUE_BYTES];

    doctor_conf(s, "BurstBufferType", v, sizeof v);
    doctor_found(a, "%s", *v ? v : "none");
}

static void judge_core_spec(const struct doctor_slurm *s, struct doctor_answer *a)
{
    char v[VALUE_BYTES], flags[VALUE_BYTES];
    bool allowed;

    doctor_conf(s, "AllowSpecResourcesUsage", v, sizeof v);
    doctor_conf(s, "PrologFlags", flags, sizeof flags);
    allowed = strcasecmp(v, "yes") == 0;
    doctor_found(a, "%s%s", *v ? v : "no", allowed ? "" : ": --core-spec is ignored; #FP cores does not need it");
    if (allowed && has_plugin(s) && !prologs_are_early(flags))
        doctor_warn(a, "slurm.conf: PrologFlags=Alloc, beside what is there: else services of jobs with --core-spec run on cores of the job, since the prolog comes after them");
}

const struct doctor_slurm_check doctor_slurm_checks[] = {
    {"Slurm", judge_slurm},
    {"SelectType", judge_select},
    {"TaskPlugin", judge_tasks},
    {"ProctrackType", judge_processes},
    {"KillWait", judge_kill_wait},
    {"JobAcctGather", judge_accounting},
    {"MpiDefault", judge_mpi},
    {"LaunchParameters", judge_launch},
    {"PrologFlags", judge_prolog},
    {"PlugStackConfig", judge_plugstack},
    {"BurstBufferType", judge_burst_buffer},
    {"CoreSpec", judge_core_spec},
    {NULL, NULL},
};
