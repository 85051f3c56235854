/*
 * fp-job status [JOB]: how the nodes of a job are.
 *
 * What is needed to ask lies on the node where the store was started, so from any other one the same command is run there, by srun, which lets in the job's
 * owner alone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "job.pb-c.h"
#include "fp/command.h"
#include "jobscripts/job.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/launch/launch.h"

#define THERE_MS 20000u
#define TEXT_MAX (1u << 20)

/* What is the same of nodes in a row is said once. names: NULL if they are not known */
static void print_run(char *const *names, const struct job_run *r, const char *word)
{
    for (uint32_t i = r->first; i < r->first + r->count; i++)
        if (names)
            printf("%s%s", i > r->first ? "," : "", names[i]);
        else
            printf("%snode %u", i > r->first ? "," : "", i);
    printf(": %s%s%s\n", word, r->text[0] ? ": " : "", r->text);
}

static void print(const char *dir, const struct job_record *r, struct job_states *s)
{
    static const char *const words[] = {"no word from its agent", "starting", "ready", "failed", "ended", "starting", "starting", "starting"};
    char **names = job_hosts_load(dir, r->nodes);
    struct job_run run = {0};
    uint32_t at = 0;

    printf("job %s: %u of %u nodes ready, mounted on %s, manager %s\n", r->job, s->of[FP__JOB_NODE_STATE__JOB_NODE_READY], s->n, r->mount, r->manager);
    if (r->application[0])
        printf("CPUs of the application on the first node: %s\n", r->application);
    while (job_states_next(s, &at, true, &run))
        if (run.state != FP__JOB_NODE_STATE__JOB_NODE_READY)
            print_run(names, &run, words[run.state]);
    for (run.first = 0; run.first < s->n; run.first += run.count + 1) {
        for (run.count = 0; run.first + run.count < s->n && s->nodes[run.first + run.count].state == FP__JOB_NODE_STATE__JOB_NODE_NONE;)
            run.count++;
        run.text = "";
        if (run.count)
            print_run(names, &run, words[0]);
    }
    job_hosts_free(names, r->nodes);
}

/*
 * Its number, which that of a task of an array (12_3) is not, and its first node, of what squeue says, a line for each job. -ENOENT: there is none; -EINVAL: the tasks
 * of an array are meant, and which of them is not said.
 */
static int find_job(const char *text, const char *asked, char job[65], char first[300])
{
    char other[65], node[300];
    unsigned n = 0;

    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        if (sscanf(text, "%64s %299s", other, node) != 2)
            continue;
        if (n++ == 0 || strcmp(other, asked) == 0) {
            memcpy(job, other, sizeof other);
            memcpy(first, node, sizeof node);
        }
    }
    return n == 0 ? -ENOENT : n > 1 && strcmp(job, asked) != 0 ? -EINVAL : 0;
}

static int there(const char *asked)
{
    char job[65] = "", id[80], self[PATH_MAX], first[300] = "", *text = malloc(TEXT_MAX);
    char *const list[] = {(char *)"squeue", (char *)"-h", (char *)"-r", (char *)"-t", (char *)"RUNNING,COMPLETING", (char *)"-o", (char *)"%A %B", (char *)"-j", (char *)(uintptr_t)asked, NULL};
    char *const argv[] = {(char *)"srun", id, (char *)"--overlap", (char *)"--quiet", (char *)"-N1", (char *)"-n1", (char *)"--mem=0", (char *)"-w", first, self,
                          (char *)"status", (char *)"--here", job, NULL};
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);
    int rc = text && k > 0 ? fp_command(list, THERE_MS, text, TEXT_MAX) : -ENOMEM;

    rc = rc ? rc : find_job(text, asked, job, first);
    if (rc == -EINVAL)
        FP_ERROR("%s is an array: of which of its tasks? fp-job status %s_1", asked, asked);
    else if (rc)
        FP_ERROR("job %s does not run, or Slurm does not answer; one that Slurm does not know is asked for on the machine where it was started", asked);
    if (rc) {
        free(text);
        return rc < 0 ? rc : -ENOENT;
    }
    self[k] = '\0';
    snprintf(id, sizeof id, "--jobid=%s", job);
    rc = fp_command(argv, THERE_MS, text, TEXT_MAX);
    fputs(text, stdout);
    if (rc)
        FP_ERROR("job %s has no store, or its first node does not answer", asked);
    free(text);
    return rc > 0 ? -EIO : rc;
}

int job_cmd_status(const struct job_options *o)
{
    char own[65];
    const char *job = o->script ? o->script : job_alloc_job(own) == 0 ? own : NULL;
    struct job_record r;
    struct job_states s;
    char dir[PATH_MAX];
    int rc;

    if (!job || !*job || strlen(job) > 64) {
        FP_ERROR("of which job? fp-job status JOB");
        return -EINVAL;
    }
    job_dir_path(dir, job);
    rc = job_record_load(dir, &r);
    if ((rc == -ENOENT || rc == -EPERM) && !o->here) /* whatever others have put there, the store may be on another node */
        return there(job);
    if (rc) {
        FP_ERROR("job %s has no store that was started on this node", job);
        return rc;
    }
    rc = job_launch_ask(dir, &r, &s);
    if (rc)
        return rc;
    print(dir, &r, &s);
    rc = s.of[FP__JOB_NODE_STATE__JOB_NODE_READY] == s.n ? 0 : -EIO;
    job_states_fini(&s);
    return rc;
}
