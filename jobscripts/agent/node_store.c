/*
 * What an agent starts, with which arguments, and what is left of it (see node.h).
 *
 * The node's part of the store lies in a directory of its own below ssd=, named after the job, so that jobs of one node do not meet and all of it can be
 * removed at the end without a look at what else is there.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fp/addr.h"
#include "fp/auxapp.h"
#include "fp/command.h"
#include "fp/err.h"
#include "fp/log.h"
#include "fp/procs.h"
#include "jobscripts/cores/cpus.h"
#include "jobscripts/enter.h"
#include "jobscripts/launch/inherited.h"
#include "jobscripts/dirname.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/agent/left.h"
#include "jobscripts/agent/named.h"
#include "jobscripts/agent/node.h"
#include "jobscripts/launch/outside.h"
#include "jobscripts/launch/shared.h"

#define SIZE_LEAST FP_MIB(64)
#define UNMARK_MS  2000u

static void must_fit(struct node *n, enum node_role role, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* One more argument of a service. Out of memory aborts: at the start alone. */
static void must_fit(struct node *n, enum node_role role, const char *fmt, ...)
{
    char **a = n->args[role];
    size_t i = 0;
    va_list ap;

    while (a[i])
        i++;
    va_start(ap, fmt);
    if (i + 1 >= JOB_SERVICE_ARGS || vasprintf(&a[i], fmt, ap) < 0)
        abort();
    va_end(ap);
}

/* ---------------------------------------------------------------- before anything runs */

/* 1: there are none, and none are declared. */
static int choose(struct node *n, hwloc_topology_t t, char text[JOB_COREMAP_WHY_BYTES])
{
    const char *job_cpus = getenv(JOB_OUTSIDE_CPUS), *left_out = getenv(JOB_OUTSIDE_CORES);
    struct job_near near;
    int rc = job_cpus ? job_coremap_outside(t, &n->declared.cores, job_cpus, left_out ? (uint32_t)strtoul(left_out, NULL, 10) : 0, &n->map, text) : -ENOENT;

    if (rc != -ENOENT)
        return rc;
    if (n->declared.cores.kind == JOB_CORES_NONE)
        return 1;
    rc = n->plan.guarded ? 0 : job_topology_keep_own(t); /* other launchers than srun bind us as they like */
    if (rc) {
        snprintf(text, JOB_COREMAP_WHY_BYTES, "which of this node's CPUs are the job's is not known: %s", fp_strerror(rc));
        return rc;
    }
    job_near_find(t, n->data, &near);
    return job_coremap_choose(t, &n->declared.cores, &near, &n->map, text);
}

/* What stays beside this agent, and was there before it knew the cores. Which of them there are: node.h. */
static void confine_others(const struct node *n)
{
    (void)job_cpus_confine(getppid(), n->map.service); /* node_watch.c */
    if (n->time_pid > 0)
        (void)job_cpus_confine(n->time_pid, n->map.service);
    if (n->front_pid > 0)
        (void)job_cpus_confine(n->front_pid, n->map.service);
    node_spawn_confine(n);
}

static int choose_cores(struct node *n, char *why, size_t size)
{
    char text[JOB_COREMAP_WHY_BYTES], path[PATH_MAX];
    hwloc_topology_t t;
    int rc;

    if (n->declared.cores.kind == JOB_CORES_NONE && !getenv(JOB_OUTSIDE_CPUS))
        return 0;
    t = job_topology_here();
    if (!t) {
        snprintf(why, size, "the cores of this node can't be looked at");
        return -EIO;
    }
    rc = choose(n, t, text);
    if (rc < 0)
        snprintf(why, size, "%s", text);
    else if (rc == 0 && ((rc = job_dir_file(path, n->dir, JOB_CORES_FILE)) || (rc = job_coremap_write(t, &n->map, path))))
        snprintf(why, size, "%s: %s", path, fp_strerror(rc));
    hwloc_topology_destroy(t);
    if (rc)
        return rc > 0 ? 0 : rc;
    rc = job_cpus_confine(0, n->map.service);
    confine_others(n);
    if (rc)
        snprintf(why, size, "services can't be kept to CPUs %s: %s", n->map.service, fp_strerror(rc));
    return rc;
}

/* Slurm runs it as the user before each task, whose process is its parent: so each node's tasks get what that node has left for them. */
static int write_prolog(struct node *n)
{
    char text[2 * PATH_MAX + JOB_CPULIST_BYTES], self[PATH_MAX], quoted[PATH_MAX];
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);

    self[k > 0 ? k : 0] = '\0';
    if (k <= 0 || fp_shell_word(self, quoted, sizeof quoted))
        return k <= 0 ? -errno : -ENAMETOOLONG;
    if (n->map.service_cores)
        snprintf(text, sizeof text, "#!/bin/sh\n%s confine --pid=$PPID --cpus=%s\n[ -z \"$FP_TASK_PROLOG\" ] || exec \"$FP_TASK_PROLOG\"\n", quoted, n->map.application);
    else
        snprintf(text, sizeof text, "#!/bin/sh\n[ -z \"$FP_TASK_PROLOG\" ] || exec \"$FP_TASK_PROLOG\"\n");
    return job_dir_write(n->dir, JOB_TASK_PROLOG, text, 0700);
}

/* For cmd_daemon.c: what this node has left for the application. */
static int write_application(struct node *n)
{
    return n->map.service_cores ? job_dir_write(n->dir, JOB_APPLICATION, n->map.application, 0600) : 0;
}

int node_store_ssd(const struct node *n, char out[PATH_MAX])
{
    bool fallback = !n->declared.store_line && !getenv("TMPDIR");

    return job_expand(out, fallback ? "/tmp" : n->declared.store.ssd);
}

static pid_t pid_of(const struct node *n, enum node_role role)
{
    return n->service[role].running ? n->service[role].process.pid : 0;
}

void node_store_note(const struct node *n)
{
    const pid_t pids[JOB_NOTE_PIDS] = {getppid(), getpid(), pid_of(n, NODE_MOUNT), pid_of(n, NODE_BENEFACTOR), pid_of(n, NODE_MANAGER)};
    struct job_note note = {.made_mount = n->made_mount};
    int rc;

    if (!n->kept)
        snprintf(note.data, sizeof note.data, "%s", n->data);
    if (n->service[NODE_MOUNT].starts || n->made_mount)
        snprintf(note.mount, sizeof note.mount, "%s", n->mount[0] ? n->mount : n->wanted);
    if (n->made_link)
        snprintf(note.link, sizeof note.link, "%s", n->wanted);
    for (size_t i = 0; i < JOB_NOTE_PIDS; i++) {
        note.process[i].pid = pids[i];
        note.process[i].ticks = pids[i] ? fp_proc_ticks(pids[i]) : 0;
    }
    rc = job_left_note(n->dir, &note);
    if (rc)
        FP_WARN("%s: %s: if this process is killed, what it has started is not removed", n->dir, fp_strerror(rc));
}

static int take_named(struct node *n, const char *ssd, char *why, size_t size)
{
    char path[PATH_MAX], name[JOB_NAME_BYTES];
    int rc;

    job_named_name(&n->declared.store, n->plan.job, name);
    rc = job_named_path(path, ssd, name);
    rc = rc ? rc : job_named_take(path, name, &n->plan, &n->kept, &n->size_bytes, why, size);
    if (rc)
        return rc;
    n->named = true;
    snprintf(n->data, sizeof n->data, "%s", path);
    node_store_note(n);
    return 0;
}

int node_store_keep(struct node *n)
{
    int rc = job_named_keep(n->data, &n->plan, n->size_bytes);

    if (rc)
        return rc;
    n->kept = n->noted = true;
    node_store_note(n);
    return 0;
}

void node_store_discard(struct node *n)
{
    int rc;

    n->kept = false;
    node_store_note(n);
    rc = job_named_discard(n->data);
    if (rc)
        FP_WARN("%s: %s: if the agent is killed now, it stays", n->data, fp_strerror(rc));
}

/* Where somebody else has made what is to be this job's; of the job itself it is in use. errno is as it was. */
static bool take_other(struct node *n)
{
    struct stat st;
    size_t len = strlen(n->data);
    bool is = lstat(n->data, &st) == 0 && st.st_uid != geteuid() && len + strlen(JOB_DIR_OTHER) < sizeof n->data;

    if (is)
        strcpy(n->data + len, JOB_DIR_OTHER);
    is = is && mkdtemp(n->data);
    errno = EEXIST;
    if (!is)
        n->data[len] = '\0';
    return is;
}

static int make_data(struct node *n, char *why, size_t size)
{
    char dir[PATH_MAX];
    int rc = node_store_ssd(n, dir);

    if (rc == 0 && (n->declared.store.persistent || n->declared.store.on_failure == JOB_FAILURE_KEEP))
        return take_named(n, dir, why, size);

    if (rc == -ENOENT)
        snprintf(why, size, "%s is not set on this node: write ssd=DIRECTORY into #FP store", dir);
    else if (rc || snprintf(n->data, sizeof n->data, "%s/fpstore-%s", dir, n->plan.job) >= PATH_MAX)
        snprintf(why, size, "the path of ssd= is too long");
    if (rc)
        return rc;
    if (mkdir(n->data, 0700) < 0 && (errno != EEXIST || !take_other(n))) {
        rc = -errno;
        snprintf(why, size, rc == -EEXIST ? "%s is there already, and in use or not a job's: remove it" : "%s can't be made: %s", n->data, fp_strerror(rc));
        n->data[0] = '\0';
        return rc;
    }
    rc = job_dir_hold(n->data);
    if (rc)
        snprintf(why, size, "%s can't be written: %s", n->data, fp_strerror(rc));
    else
        node_store_note(n);
    return rc;
}

static int make_log_dir(struct node *n)
{
    char path[PATH_MAX];
    int rc = job_dir_file(path, n->dir, "log");

    return rc ? rc : mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}

int node_store_prepare(struct node *n, char *why, size_t size)
{
    int rc = make_data(n, why, size);

    rc = rc ? rc : choose_cores(n, why, size);
    if (rc)
        return rc;
    rc = make_log_dir(n);
    rc = rc ? rc : write_prolog(n);
    rc = rc ? rc : write_application(n);
    if (rc)
        snprintf(why, size, "%s: %s", n->dir, fp_strerror(rc));
    return rc;
}

/* ---------------------------------------------------------------- the programs */

static void common_args(struct node *n, enum node_role role)
{
    must_fit(n, role, "--config=");
    must_fit(n, role, "--key=%s/key", n->dir);
    must_fit(n, role, "--ignore-term"); /* SIGTERM is for the agent, which knows what it means */
    if (role != NODE_MANAGER) {
        must_fit(n, role, "--manager=%s", n->manager);
        must_fit(n, role, "--node=%s", n->plan.nodes[n->rank]);
        must_fit(n, role, "--start-timeout=30s");
    }
    if (role != NODE_MANAGER && n->map.service_cores)
        must_fit(n, role, "--cores=%s", n->map.service);
}

static void manager_args(struct node *n)
{
    const struct job_store *s = &n->declared.store;

    must_fit(n, NODE_MANAGER, "--dir=%s/manager", n->data);
    must_fit(n, NODE_MANAGER, "--listen=%s:0", fp_addr_any());
    if (s->chunk_size_bytes)
        must_fit(n, NODE_MANAGER, "--chunk-size=%llu", (unsigned long long)s->chunk_size_bytes);
    if (s->stripe)
        must_fit(n, NODE_MANAGER, "--stripe=%lld", (long long)s->stripe);
}

static int benefactor_args(struct node *n, char *why, size_t size)
{
    const struct job_store *s = &n->declared.store;
    uint64_t bytes = s->size_bytes;
    struct statvfs v;

    if (statvfs(n->data, &v) < 0) {
        int rc = -errno;

        snprintf(why, size, "%s: %s", n->data, fp_strerror(rc));
        return rc;
    }
    uint64_t avail = (uint64_t)v.f_bavail * v.f_frsize;
    char need[FP_UNITS_BUF], is[FP_UNITS_BUF];

    if (!bytes)
        bytes = n->kept ? n->size_bytes : avail / 10 * 9;
    n->size_bytes = bytes;
    if (!n->kept && strncmp(s->backend, "dir", 3) == 0 && (bytes > avail || bytes < SIZE_LEAST)) {
        snprintf(why, size, "%s are free in %s, and %s are wanted", fp_format_size(is, avail), n->data, fp_format_size(need, bytes < SIZE_LEAST ? SIZE_LEAST : bytes));
        return -ENOSPC;
    }
    must_fit(n, NODE_BENEFACTOR, "--dir=%s/benefactor", n->data);
    must_fit(n, NODE_BENEFACTOR, "--size=%llu", (unsigned long long)bytes);
    must_fit(n, NODE_BENEFACTOR, "--listen=%s:0", fp_addr_any()); /* others are told the address by which it has come to the manager */
    must_fit(n, NODE_BENEFACTOR, "--backend=%s", s->backend);
    must_fit(n, NODE_BENEFACTOR, "--auxapp-dir=%s", n->plan.auxapp_dir);
    return 0;
}

/* What changes chunks is told to the benefactor too, which undoes it when it drains. */
static void auxapp_args(struct node *n)
{
    for (size_t i = 0; i < n->declared.nauxapps; i++) {
        const struct node_ask *a = node_ask_of(n, i);

        if (a && job_aux_runs_on(&a->answer, n->rank, n->plan.nnodes))
            must_fit(n, NODE_MOUNT, "--auxapp=%s", a->text);
        if (a && a->answer.flags & FP_AUX_CODES)
            must_fit(n, NODE_BENEFACTOR, "--auxapp=%s", a->text);
    }
}

static void mount_args(struct node *n)
{
    const struct job_line *line = n->declared.store_line;

    must_fit(n, NODE_MOUNT, "--foreground");
    must_fit(n, NODE_MOUNT, "--pool=%llu", (unsigned long long)n->declared.store.pool_bytes);
    if (line && job_line_word(line, "close")) /* else FP_CLOSE of the job's environment may say it */
        must_fit(n, NODE_MOUNT, "--close=%s", fp_close_names[n->declared.store.close]);
    must_fit(n, NODE_MOUNT, "--auxapp-dir=%s", n->plan.auxapp_dir);
    must_fit(n, NODE_MOUNT, "--allow-other=off"); /* a user's own, and root has no business in it */
    must_fit(n, NODE_MOUNT, "--mountpoint=%s", n->mount);
    if (n->is_inside)
        must_fit(n, NODE_MOUNT, "--namespace=%s/" JOB_DIR_INSIDE, n->dir);
}

int node_store_start(struct node *n, enum node_role role, char *why, size_t size)
{
    static const char *const programs[] = {"fp-manager", "fp-benefactor", "fp-mount"};
    struct job_service *s = &n->service[role];
    int rc = 0;

    s->program = programs[role];
    common_args(n, role);
    if (role == NODE_MANAGER)
        manager_args(n);
    else if (role == NODE_BENEFACTOR)
        rc = benefactor_args(n, why, size);
    else
        mount_args(n);
    if (rc)
        return rc;
    if (role == NODE_MOUNT)
        auxapp_args(n);
    snprintf(s->log, sizeof s->log, "%.3000s/log/%s.log", n->dir, s->program);
    for (size_t i = 0; i < JOB_SERVICE_ARGS; i++)
        s->argv[i] = n->args[role][i];
    rc = job_service_start(s);
    if (rc)
        snprintf(why, size, "%s can't be started: %s", s->program, fp_strerror(rc));
    else
        node_store_note(n);
    return rc;
}

/* ---------------------------------------------------------------- the end */

void node_store_clean(struct node *n)
{
    if (n->rank == 0) /* fp-job start may have been killed before it has */
        job_shared_unmark(n->plan.shared, UNMARK_MS);
    if (!n->unable[0])
        node_mount_clean(n);
    if (n->data[0] && !n->kept)
        (void)job_dir_remove(n->data);
    if (!n->unable[0])
        (void)job_dir_remove(n->dir);
    for (int role = 0; role < NODE_ROLES; role++)
        for (size_t i = 0; i < JOB_SERVICE_ARGS; i++)
            free(n->args[role][i]);
}
