/*
 * fp-job start, stop, run and confine: the store of the job that we are in.
 *
 * start prints what the shell of the batch script is to do, for eval: variables that keep tasks off the service cores on each node, whoever starts them. srun
 * runs a task prolog (cmd_prolog.c), which confines the task by the mask of its node (node_store.c); everything else inherits the mask of the shell. Programs that look for
 * cores by themselves, as mpirun does to bind ranks to them, read a description of the node in which the service cores are not: hwloc, which all of them use,
 * has a variable for that. Open MPI's own list of CPUs was rejected, since it can't be had together with words for mapping (-npernode, --map-by).
 *
 * Where mpirun's daemons are started by ssh, which takes no variables along, they are started through cmd_daemon.c, which does both.
 *
 * A job that says required=off runs without a store if there can be none: start then sets FP_NO_STORE to the job's number,
 * by which stop knows that there is nothing to end; another job that this one submits has the variable, too, and a number of its own.
 *
 * run does the same for one command. Masks that srun is given on its command line count within that.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "fp/beside.h"
#include "fp/clock.h"
#include "fp/command.h"
#include "fp/err.h"
#include "fp/jobsignals.h"
#include "fp/log.h"
#include "jobscripts/app.h"
#include "jobscripts/cores/coremap.h"
#include "jobscripts/cores/cpus.h"
#include "jobscripts/enter.h"
#include "jobscripts/launch/inherited.h"
#include "jobscripts/launch/guard.h"
#include "jobscripts/launch/launcher.h"
#include "jobscripts/launch/srunwords.h"
#include "jobscripts/start.h"

struct variable {
    const char *name;
    char value[PATH_MAX + 4096];
};

#define NVARIABLES 10u

/* What mpirun would start: as the user has set it, or it does by itself. */
static const char *own_agent(const char *variable, const char *usual)
{
    const char *own = job_inherited_agent(variable);

    return own ? own : usual;
}

static bool has_blank(const char *path)
{
    return !*path || path[strcspn(path, " \t")];
}

/* mpirun's daemons: they come to other nodes by ssh and know nothing of this, or have to enter. */
static bool through_us(const struct job_run_of *r)
{
    return r->record.inside || (r->record.application[0] && !r->alloc.launcher->kept);
}

/* What tasks need to know; "" where it is left as it is. */
static unsigned variables(const struct job_run_of *r, struct variable v[NVARIABLES])
{
    static const char *const tails[] = {"fp-task-prolog", NULL};
    const char *prolog = getenv("SLURM_TASK_PROLOG");
    char self[PATH_MAX], me[PATH_MAX], enter[PATH_MAX];
    ssize_t k = readlink("/proc/self/exe", me, sizeof me - 1);
    unsigned n = 0;

    me[k > 0 ? k : 0] = '\0';
#define VAR(name_, ...)                                                    \
    do {                                                                   \
        v[n].name = name_;                                                 \
        snprintf(v[n].value, sizeof v[n].value, __VA_ARGS__);              \
        n++;                                                               \
    } while (0)
    (void)job_enter_program(enter, sizeof enter); /* a node without it has not become ready */
    VAR("FP_MOUNT", "%s", r->record.mount);
    VAR("FP_JOB", "%s", r->record.job);
    if (r->record.inside)
        VAR("FP_ENTER", "%s", enter);
    if (through_us(r) && has_blank(me)) {
        FP_WARN("%s has a blank in its path, which mpirun does not take: on other nodes its ranks do not see the store, or are not kept off the service cores", me);
    } else if (through_us(r)) {
        VAR("OMPI_MCA_orte_launch_agent", "%s daemon %s -- %s", me, r->record.job, own_agent("OMPI_MCA_orte_launch_agent", "orted"));
        VAR("PRTE_MCA_prte_launch_agent", "%s daemon %s -- %s", me, r->record.job, own_agent("PRTE_MCA_prte_launch_agent", "prted"));
    }
    if (!r->record.application[0])
        return n;
    if (fp_beside(self, sizeof self, tails)) {
        if (prolog)
            VAR("FP_TASK_PROLOG", "%s", prolog);
        VAR("SLURM_TASK_PROLOG", "%s", self);
    } else {
        FP_WARN("%s is missing: of what srun starts nothing is kept off the service cores", self);
    }
    VAR("HWLOC_XMLFILE", "%s/" JOB_CORES_FILE, r->dir);
    VAR("HWLOC_THISSYSTEM", "1");
    if (!getenv(JOB_BINDING_VARIABLE))
        VAR(JOB_BINDING_VARIABLE, JOB_BINDING_OURS);
#undef VAR
    return n;
}

/* The batch script's shell is on the first node; that of salloc may be on another machine. */
static bool is_there(const struct job_run_of *r)
{
    return r->record.application[0] && r->alloc.first;
}

/* One word of the shell that reads it; 0 or -ENAMETOOLONG */
static int print_quoted(const char *text)
{
    char word[PATH_MAX + 8192];
    int rc = fp_shell_word(text, word, sizeof word);

    if (rc == 0)
        fputs(word, stdout);
    return rc;
}

/* What the shell does first: keeps itself off the service cores, and says who it is: its end is the store's where no batch system sees to that, and its commands are told before the end of the job. */
static void print_commands(const struct job_run_of *r, const char *self)
{
    if (is_there(r)) {
        (void)print_quoted(self);
        printf(" confine --pid=$$ --cpus=%s\n", r->record.application);
    }
    if (r->given) /* the fp-job run around the script sees to both */
        return;
    if (!r->alloc.launcher->kept || (r->alloc.first && r->declared.store.reserve_ms && job_steps_needed(&r->declared))) { /* node_time.c tells its commands */
        (void)print_quoted(self);
        puts(" owner --pid=$$");
    }
}

/* The store could not be started: may the application run without? */
static bool goes_on_without(const struct job_run_of *r, int rc)
{
    if (!r->declared.nhandles || r->declared.store.required || rc == -EEXIST || job_interrupted())
        return false;
    FP_WARN("the job goes on without a store (required=off of #FP store): FP_MOUNT is not set");
    if (r->naming[0])
        FP_WARN("%s names %s, which is not the store now", r->naming, r->declared.store.mount);
    return true;
}

/* What the shell has of another store: of the job that has submitted this one, or of a start before. */
static void print_forgotten(const struct job_inherited *i)
{
    for (unsigned k = 0; k < i->n; k++) {
        printf(i->of[k].value[0] ? "export %s=" : "unset %s", i->of[k].name);
        if (i->of[k].value[0])
            (void)print_quoted(i->of[k].value);
        putchar('\n');
    }
}

/* Of a job whose end somebody should tell the application (agent/node_time.c). */
static bool tells_nobody(const struct job_run_of *r)
{
    return r->alloc.in_slurm && !r->given && r->alloc.launcher && !r->alloc.launcher->kept && r->declared.store.reserve_ms && job_steps_needed(&r->declared);
}

int job_cmd_start(const struct job_options *o)
{
    static struct variable v[NVARIABLES];
    static struct job_inherited before;
    static struct job_run_of r;
    char self[PATH_MAX];
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);
    int rc;

    if (isatty(STDOUT_FILENO))
        FP_WARN("what fp-job start prints is for the shell: eval \"$(fp-job start || echo false)\" || exit 1");
    fp_job_signals_ignore(false);
    job_catch_signals();
    job_inherited_find(&before);
    job_inherited_forget(&before);
    rc = k > 0 ? job_start(o, false, &r) : -EIO;
    if (rc && goes_on_without(&r, rc)) {
        print_forgotten(&before);
        printf("export FP_NO_STORE=");
        (void)print_quoted(r.alloc.job);
        putchar('\n');
        return 0;
    }
    if (rc) {
        puts("false"); /* of eval "$(fp-job start || echo false)" || exit 1 */
        return rc;
    }
    self[k] = '\0';
    print_forgotten(&before);
    if (tells_nobody(&r))
        FP_WARN("agents that %s has started do not look at the job's time: nobody tells the application to end before it is over (reserve= of #FP store), and what is not drained or staged out by then is lost. "
                "fp-job run does, and so does start without --launcher and --hosts; or let Slurm tell it: #SBATCH --signal=TERM@SECONDS", r.alloc.launcher->name);
    if (r.record.inside)
        FP_WARN("fusermount3 can't be used on all nodes, and commands see the store if they are started with fp-enter: srun $FP_ENTER ./app; mpirun ./app and fp-job run -- srun ./app do so by themselves");
    else
        puts("export FP_ENTER=''"); /* scripts have it in their commands, and set -u */
    for (unsigned i = 0, n = variables(&r, v); i < n; i++) {
        printf("export %s=", v[i].name);
        (void)print_quoted(v[i].value);
        putchar('\n');
    }
    print_commands(&r, self);
    job_run_fini(&r);
    return 0;
}

/* This job was started without a store (goes_on_without). */
static bool has_no_store(void)
{
    const char *without = getenv("FP_NO_STORE");
    char job[65];

    return without && (job_alloc_job(job) || strcmp(job, without) == 0);
}

/* From here on the agent of this node tells nobody any more to end; what it has told, nobody has seen. */
static void begin_end(const struct job_run_of *r)
{
    int told = job_dir_read(r->dir, JOB_DIR_TOLD);

    (void)job_dir_write(r->dir, JOB_DIR_ENDING, "", 0600);
    if (told < 0)
        return;
    close(told);
    FP_WARN("the job's time was nearly over: the application was told to end, so that the rest is there for what is still to be drained or staged out (reserve= of #FP store)");
}

static int end_it(struct job_run_of *r, const struct job_options *o, int code)
{
    r->stall_ms = o->stall_ms;
    return job_end(r, code, o->timeout_ms);
}

int job_cmd_stop(const struct job_options *o)
{
    static struct job_run_of r;
    int rc;

    if (has_no_store())
        return (int)o->exit_code;
    fp_job_signals_ignore(false);
    rc = job_find(&r);
    job_catch_signals(); /* a TERM at the job's end does not keep us from ending it, nor does one ^C */
    if (rc == 0 && r.given) {
        FP_INFO("the store that sbatch was told of (--fp) ends with the batch script, and what is declared is brought out then");
        return (int)o->exit_code;
    }
    if (rc == 0)
        begin_end(&r);
    if (rc == 0)
        rc = end_it(&r, o, (int)o->exit_code);
    job_run_fini(&r);
    return rc;
}

/* ---------------------------------------------------------------- run */

static _Noreturn void execute(char *const argv[])
{
    job_app_signals_reset();
    execvp(argv[0], argv);
    FP_ERROR("%s: %s", argv[0], fp_strerror(-errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static _Noreturn void become(const struct job_run_of *r, char *const argv[])
{
    static struct variable v[NVARIABLES];

    for (unsigned i = 0, n = variables(r, v); i < n; i++)
        setenv(v[i].name, v[i].value, 1);
    if (!r->alloc.launcher->kept)
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* killed, we leave nothing running: no batch system would see to it */
    if (is_there(r) && job_cpus_confine(0, r->record.application))
        FP_WARN("the application could not be kept to CPUs %s", r->record.application);
    if (job_enter(r->dir))
        _exit(1);
    execute(argv);
}

/* What is run where the store is in a user namespace: tasks of srun are started by Slurm, and have to enter on their node. NULL: it can't be told how. *made is to be freed. */
static char *const *entering(const struct job_run_of *r, char *const argv[], char *program, size_t size, bool plugin, char ***made)
{
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];

    if (!r->record.inside || strncmp(name, "mpi", 3) == 0)
        return argv;
    (void)job_enter_program(program, size);
    if (strcmp(name, "srun") == 0)
        return *made = job_srun_wrap(argv, program);
    if (!plugin) /* which enters with all tasks */
        FP_INFO("fusermount3 can't be used on all nodes: of what %s starts with srun those commands see the store that are started with fp-enter (srun $FP_ENTER ./app)", argv[0]);
    return argv;
}

/* While the application runs we wait beside the services, if those have cores of their own. When it has ended, its cores are there for what brings data out. */
static int wait_for(const struct job_run_of *r, pid_t pid, const char *program)
{
    char others[JOB_CPULIST_BYTES];
    bool leave = is_there(r) && job_cpus_others(r->record.application, others, sizeof others) == 0 && job_cpus_confine_all(getpid(), others) == 0;
    int code = job_app_wait(r, pid, program);

    if (leave)
        (void)job_cpus_confine_all(getpid(), r->record.application);
    return code;
}

int job_cmd_run(const struct job_options *o)
{
    static struct job_inherited before;
    static struct job_run_of r;
    static char program[PATH_MAX];
    char *const *argv, **made = NULL;
    pid_t pid;
    int rc;

    if (!o->argv || !o->argv[0]) {
        FP_ERROR("it does not say what to run: fp-job run -- srun ./app");
        return -EINVAL;
    }
    job_app_signals_begin();
    job_catch_signals();
    job_inherited_find(&before);
    job_inherited_forget(&before);
    rc = job_start(o, true, &r);
    if (rc && goes_on_without(&r, rc))
        execute(o->argv);
    if (rc)
        return rc;
    if (!r.given)
        job_app_signals();
    rc = job_begin_application(&r);
    if (rc)
        return rc;
    if (r.given)
        become(&r, o->argv);
    argv = entering(&r, o->argv, program, sizeof program, o->plugin, &made);
    pid = argv ? job_app_fork() : -1;
    if (pid == 0)
        become(&r, argv);
    free(made);
    if (pid < 0) {
        job_abandon(&r);
        return -ECHILD;
    }
    rc = wait_for(&r, pid, o->argv[0]);
    rc = end_it(&r, o, rc);
    job_run_fini(&r);
    return rc;
}

/* ---------------------------------------------------------------- confine */

int job_cmd_confine(const struct job_options *o)
{
    int rc = o->cpus ? job_cpus_confine((pid_t)o->pid, o->cpus) : -EINVAL;

    if (rc)
        FP_ERROR("process %lld can't be kept to CPUs %s: %s", (long long)o->pid, o->cpus ? o->cpus : "", fp_strerror(rc));
    return rc;
}

/* ---------------------------------------------------------------- owner */

int job_cmd_owner(const struct job_options *o)
{
    char job[65], dir[PATH_MAX];
    int rc = job_alloc_job(job);

    job_dir_path(dir, job);
    rc = rc ? rc : job_guard_owner(dir, (pid_t)o->pid);
    if (rc)
        FP_ERROR("job %s: %s", job, fp_strerror(rc));
    return rc;
}
