/*
 * What Slurm says of the job we are in (see slurm.h). Called by fp-job start, run, stop and status.
 *
 * By its commands and variables, for the reason that request.c gives. Each has a limit.
 */
#include "jobscripts/launch/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "fp/command.h"
#include "fp/procs.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/launch/plan.h"
#include "jobscripts/script/script.h"

#define ASK_MS   5000u
#define STEPS_BYTES (1u << 20) /* Slurm has 40,000 steps in a job, if nobody has set more */
#define CALLERS_MAX 64u /* above us, up to the shell of the batch script */
#define SCRIPT_MS 30000u /* without it the job ends: a controller that is slow is waited for */
#define CLEAN_MS 40000u /* a little more than job_left_clean needs */

static int take_names(char *text, struct job_alloc *s)
{
    char *save = NULL;

    for (char *w = strtok_r(text, "\n", &save); w && s->nnodes < JOB_NODES_MAX; w = strtok_r(NULL, "\n", &save)) {
        char **more = reallocarray(s->nodes, s->nnodes + 1, sizeof *more);

        if (!more)
            return -ENOMEM;
        s->nodes = more;
        s->nodes[s->nnodes] = strdup(w);
        if (!s->nodes[s->nnodes])
            return -ENOMEM;
        s->nnodes++;
    }
    return s->nnodes ? 0 : -ENOENT;
}

static int ask_for_nodes(const char *list, struct job_alloc *s)
{
    char *const argv[] = {(char *)"scontrol", (char *)"show", (char *)"hostnames", (char *)(uintptr_t)list, NULL};
    size_t size = (size_t)JOB_NODES_MAX * (JOB_NODE_NAME_MAX + 1) / 8;
    char *out = malloc(size);
    int rc = out ? fp_command(argv, ASK_MS, out, size) : -ENOMEM;

    rc = rc > 0 ? -EIO : rc;
    rc = rc ? rc : take_names(out, s);
    free(out);
    if (rc)
        FP_ERROR("scontrol show hostnames %s: %s", list, fp_strerror(rc));
    return rc;
}

int job_slurm_look(struct job_alloc *out)
{
    const char *here = getenv("SLURMD_NODENAME"), *list = getenv("SLURM_JOB_NODELIST");
    int rc = job_alloc_job(out->job);

    if (rc || !list) {
        FP_ERROR("this is no job of Slurm: SLURM_JOB_ID and SLURM_JOB_NODELIST are not set");
        return -ENOENT;
    }
    if (here)
        snprintf(out->here, sizeof out->here, "%s", here);
    else
        (void)gethostname(out->here, sizeof out->here - 1);
    rc = job_hostlist(list, &out->nodes, &out->nnodes);
    if (rc == -EINVAL) /* some other way of writing it */
        rc = ask_for_nodes(list, out);
    else if (rc)
        FP_ERROR("%.200s (SLURM_JOB_NODELIST): %s", list, rc == -E2BIG ? "these are more nodes than fp-job can have" : fp_strerror(rc));
    out->first = rc == 0 && strcmp(out->here, out->nodes[0]) == 0;
    return rc;
}

uint64_t job_slurm_time(const char *text)
{
    uint64_t part[4] = {0}, days = 0;
    unsigned n = 0;
    const char *dash = strchr(text, '-');

    if (dash) {
        char *end;

        if (*text < '0' || *text > '9')
            return UINT64_MAX;
        days = strtoull(text, &end, 10);
        if (end != dash || days > 100000)
            return UINT64_MAX;
        text = dash + 1;
    }
    for (; n < 3; n++) {
        char *end;

        if (*text < '0' || *text > '9')
            return UINT64_MAX;
        part[n] = strtoull(text, &end, 10);
        if (part[n] > 100000000)
            return UINT64_MAX;
        text = end;
        if (*text != ':')
            break;
        text++;
    }
    if (n == 3 || (*text && *text != '\n') || (n == 0 && !dash))
        return UINT64_MAX;
    if (n < 2 && !dash) /* minutes and seconds */
        return (part[0] * 60 + part[1]) * 1000;
    return (days * 86400 + part[0] * 3600 + part[1] * 60 + part[2]) * 1000;
}

/* Only where the numbers are the same: variables of an array may have come along from a job that has submitted ours. */
void job_slurm_name(const char *job, char out[JOB_SLURM_NAME_MAX])
{
    const char *array = getenv("SLURM_ARRAY_JOB_ID"), *task = getenv("SLURM_ARRAY_TASK_ID");

    if (array && task && strcmp(array, job) == 0)
        snprintf(out, JOB_SLURM_NAME_MAX, "%s_%s", job, task);
    else
        snprintf(out, JOB_SLURM_NAME_MAX, "%s", job);
}

int job_slurm_left_of(const char *text, uint64_t *out)
{
    char left[32], used[32], limit[32];
    uint64_t used_ms, limit_ms;
    int n = sscanf(text, "%31s %31s %31s", left, used, limit);

    *out = UINT64_MAX;
    if (n >= 1 && strncmp(left, "UNLIMITED", 9) == 0)
        return 0;
    *out = n >= 1 ? job_slurm_time(left) : UINT64_MAX;
    if (*out != UINT64_MAX || n < 3)
        return *out == UINT64_MAX ? -ENODATA : 0;
    used_ms = job_slurm_time(used);
    limit_ms = job_slurm_time(limit);
    if (used_ms == UINT64_MAX || limit_ms == UINT64_MAX)
        return -ENODATA;
    *out = limit_ms > used_ms ? limit_ms - used_ms : 0;
    return 0;
}

int job_slurm_left_ms(const char *job, uint64_t *out)
{
    char text[128], name[JOB_SLURM_NAME_MAX];
    char *const argv[] = {(char *)"squeue", (char *)"-h", (char *)"-o", (char *)"%L %M %l", (char *)"-j", name, NULL};
    int rc;

    job_slurm_name(job, name);
    rc = fp_command(argv, ASK_MS, text, sizeof text);
    *out = UINT64_MAX;
    if (rc)
        return rc > 0 ? -EIO : rc;
    return job_slurm_left_of(text, out);
}

/* Words that a process was called with, or what it has put in their place; NUL-terminated. Returns how many bytes there are. */
static size_t read_cmdline(pid_t pid, char *out, size_t size)
{
    char name[64];
    int fd;
    ssize_t n;

    snprintf(name, sizeof name, "/proc/%d/cmdline", (int)pid);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? 0 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* What a process was called with has the file that slurmd has put the script of this job into: DIR/job00012/slurm_script. */
static bool runs_script(pid_t pid, const char *job, char path[PATH_MAX])
{
    char tail[128], all[PATH_MAX + 512];
    size_t n = read_cmdline(pid, all, sizeof all);

    snprintf(tail, sizeof tail, "/job%05lu/slurm_script", strtoul(job, NULL, 10));
    for (const char *word = all; word < all + n; word += strlen(word) + 1) {
        size_t len = strlen(word), end = strlen(tail);

        if (word[0] == '/' && len > end && len < PATH_MAX && strcmp(word + len - end, tail) == 0) {
            strcpy(path, word);
            return true;
        }
    }
    return false;
}

/* By whoever has called us, as the batch script's shell has. */
static int script_of_callers(const char *job, char **out)
{
    char path[PATH_MAX];
    pid_t pid = getppid();

    for (unsigned i = 0; i < CALLERS_MAX && pid > 1; i++, pid = fp_proc_parent(pid))
        if (runs_script(pid, job, path))
            return job_script_text(path, out);
    return -ENOENT;
}

int job_slurm_script(const char *job, char **out)
{
    char *const argv[] = {(char *)"scontrol", (char *)"write", (char *)"batch_script", (char *)(uintptr_t)job, (char *)"-", NULL};
    char *text = malloc(JOB_SCRIPT_BYTES_MAX + 1);
    int rc = text ? fp_command(argv, SCRIPT_MS, text, JOB_SCRIPT_BYTES_MAX + 1) : -ENOMEM;

    if (rc == 0 && strncmp(text, "#!", 2) == 0) {
        *out = text;
        return 0;
    }
    rc = rc ? rc : -ENODATA; /* scontrol ends with 0 if the controller has not answered in time */
    free(text);
    if (script_of_callers(job, out) == 0) {
        FP_WARN("Slurm does not give the batch script of job %s (%s): it is read on this node", job, rc > 0 ? "scontrol write batch_script failed" : fp_strerror(rc));
        return 0;
    }
    FP_ERROR("Slurm does not give the batch script of job %s (%s): name it, fp-job start SCRIPT", job, rc > 0 ? "scontrol write batch_script failed" : fp_strerror(rc));
    return rc > 0 ? -ENOENT : rc;
}

int job_slurm_clean(const char *job, const char *nodes, uint32_t count)
{
    char *list, n[32], tasks[32], self[PATH_MAX];
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);
    int rc;

    if (k <= 0)
        return -errno;
    self[k] = '\0';
    snprintf(n, sizeof n, "--nodes=%u", count);
    snprintf(tasks, sizeof tasks, "--ntasks=%u", count);
    if (asprintf(&list, "--nodelist=%s", nodes) < 0)
        return -ENOMEM;
    char *const argv[] = {(char *)"srun", (char *)"--overlap", n, tasks, (char *)"--ntasks-per-node=1", list, (char *)"--mem=0", (char *)"--mpi=none", (char *)"--cpu-bind=none",
                          (char *)"--immediate=10", (char *)"--quiet", (char *)"--job-name=fpstore", self, (char *)"clean", (char *)(uintptr_t)job, NULL};

    rc = fp_command_shown(argv, CLEAN_MS);
    free(list);
    return rc;
}

static unsigned number_of(const char *variable)
{
    const char *text = getenv(variable);

    return text ? (unsigned)strtoul(text, NULL, 10) : 1;
}

/* Not by variables alone: those of a step are also those of what it submits. */
static void task_of(pid_t pid, char step[JOB_SLURM_STEP_MAX], unsigned *tasks)
{
    static const char *const daemons[] = {"orted", "prted", "prterun", "mpirun", "mpiexec", NULL};

    step[0] = '\0';
    *tasks = 1;
    for (unsigned i = 0; i < CALLERS_MAX && pid > 1; i++, pid = fp_proc_parent(pid)) {
        char text[256];
        const char *slash;

        (void)read_cmdline(pid, text, sizeof text);
        slash = strrchr(text, '/');
        for (const char *const *d = daemons; *d && *tasks == 1; d++)
            if (strcmp(slash ? slash + 1 : text, *d) == 0)
                *tasks = number_of("OMPI_COMM_WORLD_SIZE");
        if (sscanf(text, "slurmstepd: [%*[^].].%31[0-9]", step) == 1 && *tasks == 1)
            *tasks = number_of("SLURM_STEP_NUM_TASKS");
        if (strncmp(text, "slurmstepd: [", 13) == 0)
            return;
    }
}

void job_slurm_task(char step[JOB_SLURM_STEP_MAX], unsigned *tasks)
{
    task_of(getppid(), step, tasks);
}

void job_slurm_step_of(pid_t pid, char step[JOB_SLURM_STEP_MAX])
{
    unsigned tasks;

    task_of(pid, step, &tasks);
}

/* "77.3", or "12_3.0"; of the batch script or Slurm itself ("77.batch"), and ours, no. */
static bool is_theirs(const char *step, const char *ours, const char *callers)
{
    const char *dot = strrchr(step, '.');

    return dot && dot[1] && dot[1 + strspn(dot + 1, "0123456789")] == '\0' && strcmp(dot + 1, ours) != 0 && strcmp(dot + 1, callers) != 0;
}

int job_slurm_steps(const char *job, const char *ours, const char *callers, char **steps)
{
    char name[JOB_SLURM_NAME_MAX], *text = malloc(STEPS_BYTES + 1), *save = NULL, *end = text; /* and a newline behind the last one */
    char *const argv[] = {(char *)"squeue", (char *)"-h", (char *)"-s", (char *)"-o", (char *)"%i", (char *)"-j", name, NULL};
    int rc, n = 0;

    *steps = NULL;
    if (!text)
        return -ENOMEM;
    job_slurm_name(job, name);
    rc = fp_command(argv, ASK_MS, text, STEPS_BYTES);
    for (char *w = rc ? NULL : strtok_r(text, " \n", &save); w; w = strtok_r(NULL, " \n", &save)) {
        size_t len = strlen(w);

        if (!is_theirs(w, ours, callers))
            continue;
        memmove(end, w, len); /* what is kept is never longer than what was read */
        end += len;
        *end++ = '\n';
        n++;
    }
    if (rc || n == 0) {
        free(text);
        return rc > 0 ? -EIO : rc;
    }
    *end = '\0';
    *steps = text;
    return n;
}

void job_slurm_signal(const char *job, const char *step, const char *signal)
{
    char of[JOB_SLURM_NAME_MAX], name[160], out[64];
    char *const argv[] = {(char *)"scancel", (char *)"-s", (char *)(uintptr_t)signal, name, NULL};

    job_slurm_name(job, of);
    snprintf(name, sizeof name, "%s.%s", of, step);
    (void)fp_command(argv, ASK_MS, out, sizeof out);
}
