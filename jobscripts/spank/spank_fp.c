/*
 * spank_fp.so: options of sbatch that give a job its store, for sites that install it (see spank_fp.h, fp-job(1)).
 *
 * Where what is done, and as whom:
 *   sbatch (allocator)      the user   options; fp-job check, and a job that it refuses is not submitted
 *   salloc, srun            the user   the same options are refused: without a batch script nobody ends the store
 *   slurmstepd, batch step  the user   task_init becomes `fp-job run -- SCRIPT`, so that the script finds the store mounted, and the job's exit code and
 *                                      output, drain and staging are those of fp-job run
 *   slurmstepd, other steps the user   task_init keeps the task off the service cores, after Slurm's own binding, and enters where the store is in a user namespace
 *
 *   prolog of each node     root       with --core-spec, if the controller says that the job has it (record.c): fp-job wait, as the user, outside of the job's
 *                                      cpuset, where a step of the job can't be
 *   slurmstepd, each step   root       what prologs have started has no more memory than the job (init_post_opt)
 *   epilog of each node     root       of every job: fp-job clean, as the user, if there is something of a store; then what its prolog has started is killed
 *
 * Services are started by fp-job run in a step of the job, not as children of slurmstepd: there the job's limits, accounting and end hold for them, and
 * scancel finds them. Prologs can't start them: they are told neither the script nor the job's other nodes, and the job's control groups are not there yet. With
 * --core-spec services are outside of the job, and their task of that step, which is all that Slurm sees, stands for them (outside.h); what ends them is hold.h.
 *
 * What root does has a limit in time, what is the user's is done by a process of the user with an environment of ours, and Slurm is told that all is well whatever
 * came of it: a prolog or epilog that fails takes the node away from everybody. Without what the prolog starts, services are in the job's cpuset.
 */
#pragma GCC visibility push(default)
#include <errno.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "jobscripts/spank/hold.h"
#include "fp/namespace.h"
#include "jobscripts/dirname.h"
#include "jobscripts/launch/inherited.h"
#include "jobscripts/spank/spank_fp.h"

SPANK_PLUGIN(fpstore, 1)

#define CONFINE_MS 5000u
#define LOOK_MS    5000u
#define WAIT_MS    5000u
#define CLEAN_MS   40000u
#define END_MS     5000u
#define AGAIN_MS   15000u
#define WORDS_OF_RUN 7 /* before the script's own, and NULL */

static struct spank_fp fp;

static int take_option(int which, const char *value, int remote);

static struct spank_option options[FP_OPTIONS] = {
    {(char *)"fp", NULL, (char *)"give the job the store that its #FP lines declare: fp-jobscript(7)", 0, FP_TAKE, take_option},
    {(char *)"fp-store", (char *)"words", (char *)"as #FP store, e.g. size=32GiB", 1, FP_STORE, take_option},
    {(char *)"fp-cores", (char *)"X", (char *)"as #FP cores: service cores of each node", 1, FP_CORES, take_option},
    {(char *)"fp-auxapps", (char *)"list", (char *)"as lines of #FP auxapp, with commas between", 1, FP_AUXAPPS, take_option},
    {(char *)"fp-stage-in", (char *)"paths", (char *)"as #FP stage-in", 1, FP_STAGE_IN, take_option},
    {(char *)"fp-stage-out", (char *)"paths", (char *)"as #FP stage-out", 1, FP_STAGE_OUT, take_option},
};

static int take_option(int which, const char *value, int remote)
{
    (void)remote;
    if (value && strchr(value, '\n')) {
        slurm_error("fpstore: --%s: this is more than one line", options[which].name);
        return -1;
    }
    free(fp.value[which]);
    fp.value[which] = strdup(value ? value : "");
    return fp.value[which] ? 0 : -1;
}

/* ---------------------------------------------------------------- start */

/* fp-job=PATH of plugstack.conf; else the bin folder beside the one that we are in. */
static void find_fp_job(int ac, char **av)
{
    static const char *const tails[] = {"/../../bin/fp-job", "/../bin/fp-job", NULL};
    char own[PATH_MAX];
    Dl_info self;

    for (int i = 0; i < ac; i++)
        if (strncmp(av[i], "fp-job=", 7) == 0) {
            snprintf(fp.fp_job, sizeof fp.fp_job, "%s", av[i] + 7);
            return;
        }
    if (!dladdr((void *)options, &self) || !realpath(self.dli_fname, own))
        return;
    *strrchr(own, '/') = '\0';
    for (int i = 0; tails[i]; i++) {
        snprintf(fp.fp_job, sizeof fp.fp_job, "%.4000s%s", own, tails[i]);
        if (access(fp.fp_job, X_OK) == 0)
            return;
    }
}

/* A job that submits others has the options in its environment, and they are not the others'. */
static void forget_inherited(void)
{
    static const char *const prefixes[] = {"_SLURM_SPANK_OPTION_fpstore_", "SLURM_SPANK__SLURM_SPANK_OPTION_fpstore_", "SPANK__SLURM_SPANK_OPTION_fpstore_"};
    char name[200];

    for (size_t p = 0; p < sizeof prefixes / sizeof prefixes[0]; p++)
        for (int i = 0; i < FP_OPTIONS; i++) {
            snprintf(name, sizeof name, "%s%s", prefixes[p], options[i].name);
            for (char *c = name; *c; c++)
                *c = *c == '-' ? '_' : *c;
            unsetenv(name);
        }
}

static void forget(void)
{
    static struct job_inherited of_store;

    forget_inherited();
    if (!getenv("FP_JOB")) /* else they are those of a store: what a user has set himself stays */
        return;
    job_inherited_find(&of_store);
    job_inherited_forget(&of_store);
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    spank_context_t where = spank_context();

    find_fp_job(ac, av);
    if (where == S_CTX_ALLOCATOR)
        forget();
    if (where == S_CTX_ALLOCATOR || where == S_CTX_LOCAL || where == S_CTX_REMOTE)
        for (int i = 0; i < FP_OPTIONS; i++)
            if (spank_option_register(sp, &options[i]) != ESPANK_SUCCESS)
                return -1;
    return 0;
}

/* ---------------------------------------------------------------- at submit */

/* Whatever plugstack.conf says of us, optional or required, a job that is not what its user has written is not submitted. */
static _Noreturn void refuse(void)
{
    exit(1);
}

/* Of each step, as root, before its tasks are there: processes outside of the job have no more memory than the job. Prologs are not told how much that is, and
 * a step may have lost the job's options with its environment. */
static void limit_memory(spank_t sp)
{
    uint64_t mib = 0;
    uint32_t job;

    if (spank_get_item(sp, S_JOB_ID, &job) == ESPANK_SUCCESS && spank_get_item(sp, S_JOB_ALLOC_MEM, &mib) == ESPANK_SUCCESS)
        spank_hold_limit(job, mib << 20);
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
    spank_context_t where = spank_context();
    bool core_spec;

    (void)ac;
    (void)av;
    if (where == S_CTX_REMOTE)
        limit_memory(sp);
    if (!spank_fp_given(&fp) || (where != S_CTX_ALLOCATOR && where != S_CTX_LOCAL))
        return 0;
    if (where == S_CTX_LOCAL && getenv("SLURM_JOB_ID"))
        return 0; /* a step of a job that has them */
    if (!spank_fp_check(&fp, &core_spec))
        refuse();
    if (strcmp(program_invocation_short_name, "sbatch") != 0) {
        slurm_error("fpstore: --fp is for batch jobs, of sbatch; in a shell of salloc: eval \"$(fp-job start SCRIPT)\", and fp-job stop at its end");
        refuse();
    }
    if (core_spec && spank_job_control_setenv(sp, SPANK_CORE_SPEC, "1", 1) != ESPANK_SUCCESS)
        slurm_error("fpstore: Slurm does not pass on --core-spec to prologs: services will run on cores of the job");
    return 0;
}

/* ---------------------------------------------------------------- in the job, as the user */

/* Becomes fp-job run, which runs the script. Returns if that can't be. */
static void become_run(spank_t sp)
{
    char **argv = NULL, **script, **env, *directives = spank_fp_directives(&fp), *text = NULL;
    int n = 0, count = 0;

    if (!directives || spank_get_item(sp, S_JOB_ARGV, &count, &script) != ESPANK_SUCCESS || spank_get_item(sp, S_JOB_ENV, &env) != ESPANK_SUCCESS || count < 1 ||
        !(argv = calloc((size_t)count + WORDS_OF_RUN, sizeof *argv)) || asprintf(&text, "--directives=%s", directives) < 0) {
        fprintf(stderr, "fpstore: Slurm does not tell what the script is\n");
        return;
    }
    argv[n++] = fp.fp_job;
    argv[n++] = (char *)"run";
    argv[n++] = (char *)"--plugin";
    argv[n++] = text;
    argv[n++] = script[0];
    argv[n++] = (char *)"--";
    for (int i = 0; i < count; i++)
        argv[n++] = script[i];
    execve(fp.fp_job, argv, env);
    fprintf(stderr, "fpstore: %s: %s: is fpstore installed on this node?\n", fp.fp_job, strerror(errno));
}

static bool find_dir(char dir[PATH_MAX], uid_t uid, uint32_t job)
{
    char number[16];
    struct stat st;

    snprintf(number, sizeof number, "%u", job);
    job_dirname_find(dir, uid, number);
    return lstat(dir, &st) == 0 && job_dirname_is_ours(&st, uid);
}

/* What the agent of this node has left for task prologs, if the node has one. Of ours alone: anybody can write to /tmp. */
static void confine(uint32_t job)
{
    char dir[PATH_MAX], program[PATH_MAX + 16];
    char *argv[] = {(char *)"/bin/sh", program, NULL}, *envp[] = {(char *)"PATH=/usr/bin:/bin", NULL};
    bool is = find_dir(dir, getuid(), job);

    snprintf(program, sizeof program, "%s/task-prolog", dir);
    if (!is || access(program, R_OK) < 0)
        return;
    if (spank_fp_run(argv, envp, false, CONFINE_MS))
        fprintf(stderr, "fpstore: this task could not be kept off the service cores\n");
}

/* fp-job's own steps: they look after a node whose namespace may be gone. */
static bool is_ours(spank_t sp)
{
    char **argv = NULL;
    const char *slash;
    int n = 0;

    if (spank_get_item(sp, S_JOB_ARGV, &n, &argv) != ESPANK_SUCCESS || n < 1)
        return false;
    slash = strrchr(argv[0], '/');
    return strcmp(slash ? slash + 1 : argv[0], "fp-job") == 0;
}

/* Where the store of this node is mounted in a user namespace, the task goes there; one that can't would write below the mount. */
static void enter(uint32_t job)
{
    char dir[PATH_MAX], path[PATH_MAX + 16];
    bool is = find_dir(dir, getuid(), job);
    int rc;

    snprintf(path, sizeof path, "%s/ns", dir);
    if (!is || !fp_namespace_exists(path))
        return;
    rc = fp_namespace_enter(path);
    if (rc == 0)
        return;
    fprintf(stderr, "fpstore: this task can't enter where the store is mounted: %s\n", rc == -ESRCH ? "its agent on this node is gone" : strerror(-rc));
    _exit(1);
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    uint32_t job = 0, step = 0;

    (void)ac;
    (void)av;
    if (!spank_fp_given(&fp) || spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS || spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
        return 0;
    if (step == SLURM_BATCH_SCRIPT) {
        become_run(sp);
        _exit(1); /* a job that has asked for a store does not run without by accident */
    }
    if (step <= SLURM_MAX_NORMAL_STEP_ID)
        confine(job);
    if (step <= SLURM_MAX_NORMAL_STEP_ID && !is_ours(sp))
        enter(job);
    return 0;
}

/* ---------------------------------------------------------------- before and after the job, as root */

/* Its number, and its user, who is not root. */
static bool which_job(spank_t sp, uint32_t *job, uid_t *uid)
{
    return spank_get_item(sp, S_JOB_ID, job) == ESPANK_SUCCESS && spank_get_item(sp, S_JOB_UID, uid) == ESPANK_SUCCESS && *uid != 0;
}

static bool has_options(spank_t sp)
{
    char *value = NULL;

    for (int i = 0; i < FP_OPTIONS; i++)
        if (spank_option_getopt(sp, &options[i], &value) == ESPANK_SUCCESS)
            return true;
    return false;
}

static void say(const char *command, uint32_t job, int rc)
{
    if (rc)
        slurm_error("fpstore: %s %s %u: %s", fp.fp_job, command, job, rc == -ETIMEDOUT ? "it took too long and was ended" : rc < 0 ? strerror(-rc) : "it failed");
}

int slurm_spank_job_prolog(spank_t sp, int ac, char **av)
{
    const char *wanted = getenv("SPANK_" SPANK_CORE_SPEC);
    char number[16], *argv[] = {fp.fp_job, (char *)"wait", number, NULL};
    uint32_t job, cores;
    uid_t uid;
    int rc;

    find_fp_job(ac, av);
    if (!wanted || !*wanted || !which_job(sp, &job, &uid) || !has_options(sp))
        return 0;
    rc = spank_fp_cores_left_out(job, uid, LOOK_MS, &cores);
    if (rc || !cores) {
        slurm_error("fpstore: job %u: %s: services run on cores of the job", job, rc ? "whether Slurm leaves cores out of it is not known, its controller does not say" : "Slurm leaves no cores out of it");
        return 0;
    }
    snprintf(number, sizeof number, "%u", job);
    say("wait", job, spank_fp_run_held(job, uid, cores, argv, WAIT_MS));
    return 0;
}

/* Has the job's store left something here? Who started it, by options or with fp-job in the script, does not matter. */
static bool has_dir(uid_t uid, uint32_t job)
{
    char dir[PATH_MAX];

    return find_dir(dir, uid, job);
}

/* As the user first, so that what can end in good order does; then whatever is still held, and what that has left. */
int slurm_spank_job_epilog(spank_t sp, int ac, char **av)
{
    char number[16], *argv[] = {fp.fp_job, (char *)"clean", number, NULL};
    uint32_t job;
    uid_t uid;

    find_fp_job(ac, av);
    if (!which_job(sp, &job, &uid))
        return 0;
    snprintf(number, sizeof number, "%u", job);
    if (has_dir(uid, job))
        say("clean", job, spank_fp_run_as(uid, argv, CLEAN_MS));
    if (spank_hold_end(job, END_MS) && has_dir(uid, job))
        say("clean", job, spank_fp_run_as(uid, argv, AGAIN_MS));
    return 0;
}
#pragma GCC visibility pop
