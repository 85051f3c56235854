/*
 * Which nodes there are, and how to get to them (see alloc.h). Called by fp-job start, run, stop and status.
 *
 * A batch system is asked by its variables; which one it is matters to nothing else, but for what only Slurm is asked: the text of the script, and the time
 * that the job has left. Without any, the job gets a name of its own, that the shell keeps in FP_JOB.
 */
#include "jobscripts/launch/alloc.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/launch/address.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/launch/launcher.h"
#include "jobscripts/launch/plan.h"
#include "jobscripts/launch/slurm.h"

/* Of what may stand in the name of a directory, the rest replaced: PBS has 12[3].server. */
static void set_job(char out[65], const char *text)
{
    size_t n = 0;

    for (; text[n] && n < 64; n++)
        out[n] = text[n] == '[' || text[n] == ']' || text[n] == '/' ? '_' : text[n];
    out[n] = '\0';
}

int job_alloc_job(char out[65])
{
    static const char *const names[] = {"SLURM_JOB_ID", "PBS_JOBID", "FP_JOB", NULL};

    out[0] = '\0';
    for (const char *const *name = names; *name && !out[0]; name++)
        if (getenv(*name))
            set_job(out, getenv(*name));
    return out[0] ? 0 : -ENOENT;
}

/* Numbers of Slurm are digits alone, those of PBS have the server behind them; a job without any begins with a host. */
bool job_alloc_is_other(const char *job)
{
    size_t digits = strspn(job, "0123456789");
    const char *value = getenv(job[digits] ? "PBS_JOBID" : "SLURM_JOB_ID");
    char ours[65];

    if (!value || !*value || !digits || (job[digits] && !strchr("._", job[digits])))
        return false;
    set_job(ours, value);
    return strcmp(ours, job) != 0;
}

/* Not FP_JOB: that is another store of the same shell. */
static void name_job(char out[65])
{
    const char *pbs = getenv("PBS_JOBID");
    char host[31] = "", text[96];

    if (getenv("SLURM_JOB_ID") || (pbs && *pbs)) {
        (void)job_alloc_job(out);
        return;
    }
    (void)gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = '\0';
    snprintf(text, sizeof text, "%s-%lld-%ld", job_plan_is_node(host) ? host : "host", (long long)time(NULL), (long)getpid());
    set_job(out, text);
}

static int find_here(struct job_alloc *a)
{
    int64_t self = job_hosts_self(a->nodes, a->nnodes);
    int rc;

    a->first = self == 0;
    rc = job_address_towards(a->nodes[0], a->here, sizeof a->here);
    if (rc == -EADDRNOTAVAIL)
        FP_ERROR("node %s has addresses of one link alone (fe80::), which other nodes can't use", a->nodes[0]);
    else if (rc)
        FP_ERROR("the way to node %s is not known (%s): is its name right?", a->nodes[0], fp_strerror(rc));
    return rc;
}

static int take_given(const struct job_options *o, struct job_alloc *a)
{
    int rc = job_hosts_copy(o->host_names, o->nhosts, &a->nodes);

    a->nnodes = rc ? 0 : o->nhosts;
    name_job(a->job);
    return rc ? rc : find_here(a);
}

static int look_at_pbs(const char *path, struct job_alloc *a)
{
    char file[PATH_MAX + 2], why[JOB_HOSTS_WHY_BYTES];
    int rc;

    snprintf(file, sizeof file, "@%s", path);
    rc = job_hosts_read(file, &a->nodes, &a->nnodes, why);
    if (rc)
        FP_ERROR("PBS_NODEFILE: %s", why);
    name_job(a->job);
    return rc ? rc : find_here(a);
}

static int look(const struct job_options *o, struct job_alloc *a)
{
    const char *pbs = getenv("PBS_NODEFILE");

    a->in_slurm = getenv("SLURM_JOB_ID") && getenv("SLURM_JOB_NODELIST");
    if (o->hosts)
        return take_given(o, a);
    if (a->in_slurm)
        return job_slurm_look(a);
    if (pbs && *pbs)
        return look_at_pbs(pbs, a);
    FP_ERROR("this is no job of Slurm (SLURM_JOB_ID) or PBS (PBS_NODEFILE): fp-job start and run belong into a batch script, or are told the nodes: --hosts=a,b,c or --hosts=@FILE");
    return -ENOENT;
}

int job_alloc_look(const struct job_options *o, struct job_alloc *out)
{
    int rc;

    memset(out, 0, sizeof *out);
    out->fanout = (uint32_t)o->fanout;
    rc = look(o, out);
    return rc ? rc : job_launcher_choose(o, out);
}

void job_alloc_fini(struct job_alloc *a)
{
    job_hosts_free(a->nodes, a->nnodes);
    memset(a, 0, sizeof *a);
}

int job_alloc_left_ms(const struct job_alloc *a, uint64_t *out)
{
    static uint64_t end_ms = UINT64_MAX; /* as it was known last */
    uint64_t now;
    int rc;

    *out = UINT64_MAX;
    if (!a->in_slurm)
        return 0;
    rc = job_slurm_left_ms(a->job, out);
    now = fp_now_ms();
    if (rc == 0)
        end_ms = *out == UINT64_MAX ? UINT64_MAX : now + *out;
    else if (end_ms != UINT64_MAX)
        *out = end_ms > now ? end_ms - now : 0;
    return rc;
}
