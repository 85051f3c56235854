/* The store of a job from start to end (see start.h). Called by the commands start, stop and run; one thread. */
#include "jobscripts/start.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "fp/beside.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/jobsignals.h"
#include "fp/log.h"
#include "fp/procs.h"
#include "jobscripts/script/check.h"
#include "jobscripts/script/naming.h"
#include "jobscripts/script/sources.h"
#include "jobscripts/enter.h"
#include "jobscripts/launch/guard.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/launch/launch.h"
#include "jobscripts/agent/left.h"
#include "jobscripts/launch/lost.h"
#include "jobscripts/launch/shared.h"
#include "jobscripts/agent/named.h"
#include "jobscripts/launch/slurm.h"

#define INTERRUPTED "interrupted before the application has begun: ending the store"
#define LOOK_MS   500u
#define LOOKS 4 /* for steps that run */
#define ORPHAN_MS 60000u /* agents without anybody end after half of that (node.h) */

#define GIVES_UP    2 /* SIGINTs */

static volatile sig_atomic_t caught, typed;
static volatile pid_t told_too;

static void on_signal(int sig)
{
    caught = sig;
    if (sig == SIGINT && typed < GIVES_UP)
        typed++;
    if (told_too > 0)
        kill(told_too, sig);
}

void job_catch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal}, was;

    typed = 0;
    for (int sig = 1; sig < NSIG; sig++)
        if (fp_job_signal_asks_end(sig) && sigaction(sig, NULL, &was) == 0 && was.sa_handler != SIG_IGN) /* nohup */
            sigaction(sig, &sa, NULL);
}

bool job_interrupted(void)
{
    return caught != 0;
}

bool job_given_up(void)
{
    return typed >= GIVES_UP;
}

void job_signals_to(pid_t child)
{
    told_too = child;
}

static int read_script(const struct job_options *o, const struct job_run_of *r, char **text)
{
    int rc;

    if (!o->script && !r->alloc.in_slurm) {
        FP_ERROR("which script has the #FP lines? fp-job start SCRIPT, fp-job run SCRIPT -- COMMAND (only Slurm can be asked for it)");
        return -EINVAL;
    }
    if (!o->script)
        return job_slurm_script(r->alloc.job, text);
    rc = job_script_text(o->script, text);
    if (rc == 0)
        job_script_add(text, o->directives);
    else
        FP_ERROR("%s: %s", o->script, rc == -EINVAL ? "it is no text" : fp_strerror(rc));
    return rc;
}

static void declare(struct job_run_of *r, const char *text)
{
    struct job_script script;

    job_findings_init(&r->findings);
    job_script_parse(text, &script, &r->findings);
    job_declared_make(&script, &r->declared, &r->findings);
}

static int check(struct job_run_of *r, const char *name)
{
    struct job_site site = {.plugin_dir = r->auxapp_dir, .nodes = r->alloc.nnodes};
    char where[PATH_MAX + 32];

    job_check(&r->declared, &site, &r->findings);
    for (size_t i = 0; i < r->findings.n; i++) {
        const struct job_finding *f = &r->findings.list[i];

        job_place_write(f->at, name, where, sizeof where);
        if (f->severity == JOB_ERROR)
            FP_ERROR("%s: %s", where, f->text);
    }
    return r->findings.errors ? -EINVAL : 0;
}

/* As it is on this node; as it is written where a variable of it has no value here. */
static void wanted_mount(const struct job_run_of *r, char out[PATH_MAX])
{
    if (job_expand(out, r->declared.store.mount))
        snprintf(out, PATH_MAX, "%s", r->declared.store.mount);
    job_path_plain(out);
}

/* For nodes on which it can't be there (node_mount.c): what the script, or the command of fp-job run, writes there would be in another place. */
static void find_naming(struct job_run_of *r, const struct job_options *o, const char *text)
{
    char wanted[PATH_MAX], written[PATH_MAX];
    struct job_place at;

    if (!o->plugin && o->argv && !getenv("FP_MOUNT") && job_naming_early(text, &at))
        FP_WARN("line %u, column %u of the script: " JOB_NAMING_EARLY, at.line, at.column);
    wanted_mount(r, wanted);
    snprintf(written, sizeof written, "%s", r->declared.store.mount);
    job_path_plain(written);
    if (job_naming_find(text, wanted, &at) || job_naming_find(text, written, &at))
        snprintf(r->naming, sizeof r->naming, "line %u, column %u of the script", at.line, at.column);
    for (size_t i = 0; o->argv && o->argv[i] && !r->naming[0]; i++)
        if (job_naming_word(o->argv[i], wanted))
            snprintf(r->naming, sizeof r->naming, "word %zu of the command behind --", i + 1);
}

/* Two that start a store in one directory would remove it from each other. The lock ends with the process that has it. */
static bool begin_alone(struct job_run_of *r)
{
    char path[PATH_MAX];

    if (job_dir_file(path, r->dir, JOB_DIR_START))
        return false;
    r->start_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return r->start_fd >= 0 && flock(r->start_fd, LOCK_EX | LOCK_NB) == 0;
}

static bool owner_is_gone(const char *dir)
{
    uint64_t ticks;
    pid_t pid;

    return job_guard_owner_of(dir, &pid, &ticks) && fp_proc_ticks(pid) != ticks;
}

/* A store that ends by itself, since the fp-job run that it belonged to was killed: until its agents, and who looked after them, have removed it. */
static void wait_for_end(const char *dir)
{
    static const struct timespec pause = {0, 200000000};
    struct job_record old;

    if (job_record_load(dir, &old) || !owner_is_gone(dir))
        return;
    FP_INFO("the fp-job run of the job's last store was killed: waiting for the end of that store");
    for (uint64_t until = fp_now_ms() + ORPHAN_MS; !job_interrupted() && fp_now_ms() < until; nanosleep(&pause, NULL)) {
        if (fp_proc_ticks(old.launcher) == old.launcher_ticks)
            continue;
        (void)job_left_sweep(NULL);
        if (job_record_load(dir, &old))
            return;
    }
}

/* Agents of a fp-job start that was killed end by themselves, and would take the directory away from under the next ones. */
static void wait_for_start(const char *dir)
{
    uint64_t ticks, until = fp_now_ms() + ORPHAN_MS;
    struct job_record old;
    pid_t pid;

    if (job_record_load(dir, &old) == 0 || job_dir_is_locked(dir, JOB_DIR_START) || !job_guard_launcher_of(dir, &pid, &ticks) || !fp_proc_runs(pid, ticks))
        return;
    FP_INFO("the last start of this job's store was killed: waiting for the end of what it had begun");
    while (!job_interrupted() && fp_now_ms() < until && !fp_proc_wait_gone(pid, ticks, LOOK_MS))
        ;
}

/* The store is up by an option of sbatch, and will be as long as the script. */
static bool is_given(const char *dir)
{
    int fd = job_dir_read(dir, JOB_DIR_GIVEN);
    struct job_record there;

    if (fd >= 0)
        close(fd);
    return fd >= 0 && job_record_load(dir, &there) == 0 && !owner_is_gone(dir);
}

/* Before there is a record, by which others find the store. */
static int note_given(const struct job_run_of *r, bool given)
{
    char path[PATH_MAX];
    int rc = job_dir_file(path, r->dir, JOB_DIR_GIVEN);

    if (rc)
        return rc;
    if (given)
        return job_dir_write(r->dir, JOB_DIR_GIVEN, "", 0600);
    return unlink(path) == 0 || errno == ENOENT ? 0 : -errno;
}

static int take_dir(struct job_run_of *r)
{
    int rc = job_dir_begin(r->dir, r->alloc.job);
    if (rc) {
        FP_ERROR("%s: %s", r->dir, fp_strerror(rc));
        return rc;
    }
    if (!begin_alone(r)) {
        FP_ERROR("another fp-job is just starting the store of job %s", r->alloc.job);
        return -EEXIST;
    }
    return 0;
}

static bool may_keep(const struct job_run_of *r)
{
    return r->declared.store.on_failure == JOB_FAILURE_KEEP && !r->declared.store.persistent;
}

/* One whose start was killed when all nodes were ready: its agents stay, and the application has not seen it. */
static int replace(struct job_run_of *r, const struct job_record *old)
{
    FP_WARN("the last start of this job's store was killed before its input was there: ending that store");
    if (may_keep(r))
        (void)job_launch_discard(r->dir, old);
    (void)job_launch_end(r->dir, old, false);
    (void)job_dir_remove(r->dir);
    close(r->start_fd);
    return take_dir(r);
}

static int make_dir(struct job_run_of *r)
{
    struct job_record old;
    int rc, begun;

    job_dir_path(r->dir, r->alloc.job);
    wait_for_end(r->dir);
    wait_for_start(r->dir);
    (void)job_left_sweep(NULL); /* it may be this job's own, of a run that was killed before it was queued again */
    rc = take_dir(r);
    if (rc || job_record_load(r->dir, &old))
        return rc;
    begun = job_dir_read(r->dir, JOB_DIR_BEGUN);
    if (begun < 0)
        return replace(r, &old);
    close(begun);
    FP_ERROR("the store of job %s is up already, mounted on %s: fp-job stop ends it", old.job, old.mount);
    return -EEXIST;
}

/* No application has seen it: there is nothing in it to be kept. */
static void end_unused(struct job_run_of *r)
{
    if (may_keep(r))
        (void)job_launch_discard(r->dir, &r->record);
    (void)job_launch_end(r->dir, &r->record, false);
}

static int launch(struct job_run_of *r, const struct job_options *o, const char *text, bool stays)
{
    struct job_launch l = {.alloc = &r->alloc, .stays = stays, .starting = r->start_fd, .dir = r->dir, .lines = text, .auxapp_dir = r->auxapp_dir, .ssd = r->declared.store.ssd, .naming = r->naming, .entered = o->argv && (o->plugin || job_enters(o->argv[0])), .ready_ms = r->declared.store.ready_ms};
    char shared[PATH_MAX];
    int rc;

    rc = job_hosts_write(r->dir, r->alloc.nodes, r->alloc.nnodes);
    if (rc)
        FP_ERROR("%s: %s", r->dir, fp_strerror(rc));
    rc = rc ? rc : job_sources_look(&r->declared);
    rc = rc ? rc : job_steps_target(r, shared);
    if (rc)
        return rc;
    l.shared = shared;
    rc = job_launch(&l, &r->record);
    job_shared_unmark(shared, JOB_SHARED_MS);
    if (rc)
        return rc;
    rc = note_given(r, o->plugin);
    rc = rc ? rc : job_record_save(r->dir, &r->record);
    rc = rc ? rc : job_steps_before(r);
    if (job_interrupted()) {
        FP_ERROR(INTERRUPTED);
        rc = -EINTR;
    }
    rc = rc ? rc : job_dir_write(r->dir, JOB_DIR_BEGUN, "", 0600);
    if (rc)
        end_unused(r);
    return rc;
}

/* A copy of the script is in the job's directory, for stop. */
static int start_in_dir(const struct job_options *o, bool stays, struct job_run_of *r, const char *text)
{
    int rc = make_dir(r);

    if (rc)
        return rc;
    rc = job_dir_write(r->dir, "script", text, 0600);
    if (rc)
        FP_ERROR("%s: %s", r->dir, fp_strerror(rc));
    rc = rc ? rc : check(r, o->script && !o->plugin ? o->script : "the batch script");
    rc = rc ? rc : launch(r, o, text, stays);
    if (rc)
        (void)job_dir_remove(r->dir);
    close(r->start_fd);
    return rc;
}

/* Scripts that name the directory of mount= must know when it is another one. */
static void tell(const struct job_run_of *r)
{
    const char *got = r->record.mount;
    char want[PATH_MAX], to[PATH_MAX] = "";
    bool other;

    wanted_mount(r, want);
    other = strcmp(want, got) != 0;
    if (!other)
        FP_INFO("%u node%s, mounted on %s", r->record.nodes, r->record.nodes == 1 ? "" : "s", got);
    else
        FP_INFO("%u node%s, mounted on %s, as %s can't be had on all nodes: %s ($FP_MOUNT says where%s)", r->record.nodes, r->record.nodes == 1 ? "" : "s", got, want, r->record.elsewhere,
                readlink(want, to, sizeof to - 1) > 0 && strcmp(to, got) == 0 ? "; on this one it is a link to it" : "");
}

int job_begin_application(struct job_run_of *r)
{
    if (!job_interrupted())
        return 0;
    FP_ERROR(INTERRUPTED);
    job_abandon(r);
    return -EINTR;
}

void job_abandon(struct job_run_of *r)
{
    if (r->given)
        return;
    end_unused(r);
    (void)job_dir_remove(r->dir);
}

/* What is up: where, and what its script says. */
static int load(struct job_run_of *r)
{
    char path[PATH_MAX], *text = NULL;
    int rc = job_record_load(r->dir, &r->record);

    rc = rc ? rc : job_dir_file(path, r->dir, "script");
    rc = rc ? rc : job_script_text(path, &text);
    if (rc)
        FP_ERROR("job %s has no store that was started on this node (%s)", r->alloc.job, rc == -ENOENT  ? "or it has ended"
                                                                                  : rc == -EPERM ? "what is there belongs to somebody else, or others may read it"
                                                                                                 : fp_strerror(rc));
    else
        declare(r, text);
    free(text);
    return rc;
}

/* With --fp of sbatch and fp-job in the script, too: a second store is not what is meant, and an error would cost the job. */
static int take_given(struct job_run_of *r)
{
    int rc = load(r);

    r->given = true;
    if (rc == 0)
        FP_INFO("the store that sbatch was told of (--fp) is used, mounted on %s; it ends with the batch script", r->record.mount);
    return rc;
}

/* What each of several would start were stores beside and in the way of each other; and one of a heterogeneous job has the nodes of its first component alone. */
static int look_at_callers(const struct job_options *o)
{
    const char *components = getenv("SLURM_HET_SIZE");
    char step[32];
    unsigned tasks;

    job_slurm_task(step, &tasks);
    if (tasks > 1) {
        FP_ERROR("this is one of %u tasks, and each of them would start a store: call fp-job once, and let it start them: fp-job run -- srun ./app", tasks);
        return -EINVAL;
    }
    if (components && !o->hosts && strtoul(components, NULL, 10) > 1) {
        FP_ERROR("this is a heterogeneous job of %s components, whose nodes Slurm lets no step of one component reach: there would be a store on the nodes of the first one alone", components);
        return -ENOTSUP;
    }
    return 0;
}

int job_start(const struct job_options *o, bool stays, struct job_run_of *r)
{
    char *text = NULL;
    int rc;

    memset(r, 0, sizeof *r);
    rc = look_at_callers(o);
    rc = rc ? rc : job_alloc_look(o, &r->alloc);
    if (rc)
        return rc;
    if (o->auxapp_dir)
        snprintf(r->auxapp_dir, sizeof r->auxapp_dir, "%s", o->auxapp_dir);
    else
        fp_beside_plugins(r->auxapp_dir, sizeof r->auxapp_dir);
    job_dir_path(r->dir, r->alloc.job);
    if (!o->plugin && is_given(r->dir))
        return take_given(r);
    rc = read_script(o, r, &text);
    if (rc == 0) { /* first: whatever fails behind this, the lines say whether the job goes on (required=) */
        declare(r, text);
        find_naming(r, o, text);
        rc = start_in_dir(o, stays, r, text);
    }
    free(text);
    if (rc == 0)
        tell(r);
    return rc;
}

/* Ranks count the nodes that the store was started on, which --hosts may have named: not those of the job. Without them those of the job have to do. */
static void take_nodes(struct job_run_of *r)
{
    char **names = job_hosts_load(r->dir, r->record.nodes);

    if (!names)
        return;
    job_hosts_free(r->alloc.nodes, r->alloc.nnodes);
    r->alloc.nodes = names;
    r->alloc.nnodes = r->record.nodes;
}

int job_find(struct job_run_of *r)
{
    int rc;

    memset(r, 0, sizeof *r);
    rc = job_alloc_job(r->alloc.job);
    if (rc) {
        FP_ERROR("of which job? SLURM_JOB_ID, PBS_JOBID and FP_JOB, which fp-job start prints for the shell, are not set");
        return rc;
    }
    r->alloc.in_slurm = getenv("SLURM_JOB_ID") && getenv("SLURM_JOB_NODELIST");
    if (r->alloc.in_slurm && (rc = job_slurm_look(&r->alloc)))
        return rc;
    job_dir_path(r->dir, r->alloc.job);
    r->given = is_given(r->dir);
    rc = load(r);
    if (rc == 0)
        take_nodes(r);
    return rc;
}

/* Of HOST:PORT the host, which has colons where it is an address of IPv6. */
static int first_node_bytes(const struct job_record *r)
{
    const char *colon = strrchr(r->root, ':');

    return colon ? (int)(colon - r->root) : 0;
}

/* Data that is not where it is to be is in the store alone: until now it is kept, whatever happens. */
static void decide(struct job_run_of *r, int rc)
{
    char name[JOB_NAME_BYTES];

    if (!may_keep(r)) {
        if (rc && !r->declared.store.persistent)
            FP_WARN("what was not brought out is removed with the store; with on-failure=keep of #FP store it would stay on the SSDs");
        return;
    }
    if (rc == 0) {
        (void)job_launch_discard(r->dir, &r->record);
        return;
    }
    r->kept = true;
    job_named_name(&r->declared.store, r->alloc.job, name);
    FP_WARN("the store stays on the SSDs of this job's nodes, as %s/fpstore-%u-named-%s: a job on the same nodes, %.*s as the first, finds it with #FP store ssd=%s persistent=%s; "
            "fp-job clean --named=%s --ssd=%s on each of them removes it",
            r->declared.store.ssd, (unsigned)geteuid(), name, first_node_bytes(&r->record), r->record.root, r->declared.store.ssd, name, name, r->declared.store.ssd);
}

/* What steps write when the store is gone lies in the directory below it. One that has ended may be seen for a moment. */
static void tell_who_runs(const struct job_run_of *r)
{
    static const struct timespec pause = {0, 500000000};
    char *steps = NULL, own[32];
    unsigned tasks;
    int n = 0;

    if (!r->alloc.in_slurm)
        return;
    job_slurm_task(own, &tasks);
    for (int i = 0; i < LOOKS; i++) {
        free(steps);
        n = job_slurm_steps(r->record.job, r->record.step, own, &steps);
        if (n <= 0)
            break;
        nanosleep(&pause, NULL);
    }
    if (n > 0)
        FP_WARN("%d step%s of the job still run%s (%.*s%s): what %s from now on is not in the store, which ends, but in the directory %s of the node, if that lets them", n, n == 1 ? "" : "s",
                n == 1 ? "s" : "", (int)strcspn(steps, "\n"), steps, n == 1 ? "" : " and others", n == 1 ? "it writes" : "they write", r->record.mount);
    free(steps);
}

int job_end(struct job_run_of *r, int code, uint64_t limit_ms)
{
    struct job_lost lost;
    int rc, stop;

    job_catch_signals(); /* those from now on: what the application was told is not for us */
    rc = job_steps_after(r, code, limit_ms);
    decide(r, rc);

    tell_who_runs(r);
    job_lost_find(r, &lost);
    stop = job_steps_stop(r);
    if (stop)
        FP_WARN("the store did not end by itself within its time: its agents end it");
    if (job_launch_end(r->dir, &r->record, stop == 0)) /* no matter for rc: data was brought out before */
        job_lost_all(r, &lost);
    job_lost_clean(r, &lost);
    (void)job_dir_remove(r->dir);
    return rc ? (code ? code : 1) : code;
}

void job_run_fini(struct job_run_of *r)
{
    job_declared_fini(&r->declared);
    job_findings_fini(&r->findings);
    job_alloc_fini(&r->alloc);
}
