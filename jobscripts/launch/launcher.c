/*
 * Ways to start agents on nodes (see launcher.h). Called by fp-job start and run, and by agents that start others.
 *
 * srun: a step of the job, kept and ended by Slurm, with the standard input for all.
 * mpirun: the same by Open MPI, through whatever it starts its own daemons with (ssh, or PBS by tm), and with variables (plan_env.c). Its daemons kill by
 *   process group when any of them is lost, so agents leave the group (fp-job node --front), and the tree alone decides when they end.
 *   Names of nodes must be such, or addresses of IPv4: Open MPI 4 refuses those of IPv6 when it is on its way already, and leaves files.
 * ssh: for the root alone, which starts those below it, and so on: nobody starts more than JOB_FANOUT, whatever the number of nodes.
 *
 * A common way by ssh for all batch systems was rejected: many sites do not let users in by ssh, and processes that came so are in no control group of the job.
 */
#include "jobscripts/launch/launcher.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/command.h"
#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/launch/address.h"
#include "jobscripts/launch/plan.h"

#define VERSION_MS 10000u

static void add(struct job_words *w, const char *word)
{
    if (w->n + 1 < JOB_LAUNCHER_WORDS)
        w->argv[w->n++] = word;
    w->argv[w->n] = NULL;
}

static int add_made(struct job_words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int add_made(struct job_words *w, const char *fmt, ...)
{
    size_t room = sizeof w->text - w->used;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(w->text + w->used, room, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= room)
        return -ENAMETOOLONG;
    add(w, w->text + w->used);
    w->used += (size_t)n + 1;
    return 0;
}

static void add_all(struct job_words *w, const char *const *words)
{
    for (; *words; words++)
        add(w, *words);
}

/* ---------------------------------------------------------------- srun */

int job_launcher_srun(const struct job_alloc *a, struct job_words *w)
{
    static const char *const words[] = {"--ntasks-per-node=1", "--cpu-bind=none", "--mem=0", "--mpi=none", "--kill-on-bad-exit=0", "--no-kill", "--wait=0",
                                        "--quiet", "--job-name=fpstore", NULL};
    int rc;

    memset(w, 0, sizeof *w);
    add(w, "srun");
    add(w, "--overlap");
    rc = add_made(w, "--nodes=%u", a->nnodes);
    rc = rc ? rc : add_made(w, "--ntasks=%u", a->nnodes);
    add_all(w, words);
    return rc;
}

static int by_srun(const struct job_alloc *a, const char *dir, const char *self, struct job_words *w)
{
    int rc = job_launcher_srun(a, w);

    (void)dir;
    add(w, "--immediate"); /* refused.c */
    add(w, "--input=all");
    add(w, "--unbuffered");
    add(w, self);
    add(w, "node");
    return rc;
}

/* ---------------------------------------------------------------- ssh */

int job_launcher_ssh(const char *host, uint32_t rank, const char *self, struct job_words *w)
{
    static const char *const words[] = {"ssh", "-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ClearAllForwardings=yes",
                                        "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3", NULL}; /* of a node without power it would hear for ever nothing, also when the job is over */
    char quoted[PATH_MAX], bare[JOB_ADDRESS_BYTES];
    int rc;

    memset(w, 0, sizeof *w);
    if (fp_shell_word(self, quoted, sizeof quoted))
        return -ENAMETOOLONG;
    add_all(w, words);
    rc = add_made(w, "%s", job_address_bare(host, bare));
    return rc ? rc : add_made(w, "%s node --rank=%u", quoted, rank);
}

static int by_ssh(const struct job_alloc *a, const char *dir, const char *self, struct job_words *w)
{
    (void)dir;
    if (!a->first)
        return job_launcher_ssh(a->nodes[0], 0, self, w);
    add(w, self);
    add(w, "node");
    add(w, "--rank=0");
    return 0;
}

/* ---------------------------------------------------------------- mpirun */

static int by_mpirun(const struct job_alloc *a, const char *dir, const char *self, struct job_words *w)
{
    static const char *const words[] = {"--map-by", "ppr:1:node", "--bind-to", "none", NULL};
    char *const version[] = {(char *)"mpirun", (char *)"--version", NULL};
    char out[256], hosts[PATH_MAX], name[32];
    int rc = fp_command(version, VERSION_MS, out, sizeof out);

    if (rc || !strstr(out, "Open MPI")) {
        FP_ERROR("--launcher=mpirun is that of Open MPI, and here mpirun is %s: take --launcher=ssh", rc == -ENOENT ? "not installed" : "another one");
        return -ENOTSUP;
    }
    rc = job_dir_file(hosts, dir, JOB_DIR_NODES);
    (void)setenv("OMPI_MCA_orte_tmpdir_base", dir, 1); /* what it leaves when it is killed goes with the job's directory */
    (void)setenv("PRTE_MCA_prte_tmpdir_base", dir, 1);
    add(w, "mpirun");
    add(w, "--hostfile");
    rc = rc ? rc : add_made(w, "%s", hosts);
    add(w, "-np");
    rc = rc ? rc : add_made(w, "%u", a->nnodes);
    add_all(w, words);
    for (unsigned i = 0; rc == 0 && i < JOB_PLAN_PIECES; i++) {
        job_plan_variable(i, name);
        if (!getenv(name))
            break;
        add(w, "-x");
        rc = add_made(w, "%s", name);
    }
    add(w, self);
    add(w, "node");
    add(w, "--front");
    if (rc)
        FP_ERROR("%s: %s", dir, fp_strerror(rc));
    return rc;
}

/* ---------------------------------------------------------------- which */

static const struct job_launcher launchers[] = {
    {.name = "srun", .kept = true, .named = true, .launch = by_srun},
    {.name = "ssh", .tree = true, .launch = by_ssh},
    {.name = "mpirun", .variables = true, .launch = by_mpirun},
};

const struct job_launcher *job_launcher_named(const char *name)
{
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
        if (strcmp(launchers[i].name, name) == 0)
            return &launchers[i];
    return NULL;
}

/* Among the directories of PATH, as execvp would find it. */
static bool installed(const char *program)
{
    const char *path = getenv("PATH");
    char file[PATH_MAX];

    for (size_t n; path && *path; path += n + (path[n] == ':')) {
        n = strcspn(path, ":");
        if (snprintf(file, sizeof file, "%.*s/%s", (int)n, path, program) < PATH_MAX && access(file, X_OK) == 0)
            return true;
    }
    return false;
}

static const char *first_six(const struct job_alloc *a)
{
    for (uint32_t i = 0; i < a->nnodes; i++)
        if (job_address_is_six(a->nodes[i]))
            return a->nodes[i];
    return NULL;
}

int job_launcher_choose(const struct job_options *o, struct job_alloc *a)
{
    static const char *const names[] = {NULL, "srun", "ssh", "mpirun"}; /* launchers of main.c, without auto */

    if (o->launcher > 0)
        a->launcher = job_launcher_named(names[o->launcher]);
    else if (a->in_slurm && !o->hosts)
        a->launcher = job_launcher_named("srun");
    else if (installed("ssh") || (a->first && a->nnodes == 1))
        a->launcher = job_launcher_named("ssh");
    else if (installed("mpirun"))
        a->launcher = job_launcher_named("mpirun");
    if (!a->launcher) {
        FP_ERROR("nothing is installed that starts processes on other nodes: neither ssh nor mpirun");
        return -ENOENT;
    }
    if (a->launcher->variables && a->in_slurm) { /* its daemons would be a step of srun, that others then wait for */
        FP_ERROR("--launcher=mpirun is not for jobs of Slurm, where mpirun calls srun: leave it out, or take ssh");
        return -EINVAL;
    }
    if (a->launcher->variables && first_six(a)) {
        FP_ERROR("mpirun takes no addresses of IPv6 for nodes, as %s is: name them, or take --launcher=ssh", first_six(a));
        return -EINVAL;
    }
    if (a->launcher->kept && (o->hosts || !a->in_slurm)) {
        FP_ERROR("--launcher=srun starts processes on the nodes of a job of Slurm%s", o->hosts ? ", all of them: it goes without --hosts" : ", and this is none");
        return -EINVAL;
    }
    return 0;
}
