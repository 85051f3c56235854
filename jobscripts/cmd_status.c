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
#include "jobscripts/launch.h"

#define THERE_MS 20000u
#define TEXT_MAX (1u << 20)

static void print(const struct job_record *r, struct job_states *s)
{
    static const char *const words[] = {"unknown", "starting", "ready", "failed", "ended", "starting", "starting", "starting"};
    struct job_run run;
    uint32_t at = 0;

    printf("job %s: %u of %u nodes ready, mounted on %s, manager %s\n", r->job, s->of[FP__JOB_NODE_STATE__JOB_NODE_READY], s->n, r->mount, r->manager);
    if (r->application[0])
        printf("CPUs of the application on the first node: %s\n", r->application);
    while (job_states_next(s, &at, true, &run)) {
        if (run.state == FP__JOB_NODE_STATE__JOB_NODE_READY)
            continue;
        for (uint32_t i = run.first; i < run.first + run.count; i++)
            printf("node %u: %s%s%s\n", i, words[run.state], run.text[0] ? ": " : "", run.text);
    }
    for (uint32_t i = 0; i < s->n; i++)
        if (s->nodes[i].state == FP__JOB_NODE_STATE__JOB_NODE_NONE)
            printf("node %u: unknown\n", i);
}

static int there(const char *job)
{
    char id[80], self[PATH_MAX], nodes[16384], first[300], *text = malloc(TEXT_MAX);
    char *const list[] = {(char *)"squeue", (char *)"-h", (char *)"-o", (char *)"%B", (char *)"-j", (char *)(uintptr_t)job, NULL};
    char *const argv[] = {(char *)"srun", id, (char *)"--overlap", (char *)"--quiet", (char *)"-N1", (char *)"-n1", (char *)"--mem=0", (char *)"-w", first, self,
                          (char *)"status", (char *)"--here", (char *)(uintptr_t)job, NULL};
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);
    int rc = text && k > 0 ? fp_command(list, THERE_MS, nodes, sizeof nodes) : -ENOMEM;

    if (rc == 0 && !nodes[strspn(nodes, " \n")])
        rc = -ENOENT;
    if (rc) {
        FP_ERROR("job %s does not run, or Slurm does not answer; one that Slurm does not know is asked for on the machine where it was started", job);
        free(text);
        return rc < 0 ? rc : -ENOENT;
    }
    self[k] = '\0';
    snprintf(id, sizeof id, "--jobid=%s", job);
    snprintf(first, sizeof first, "%.*s", (int)strcspn(nodes, "\n"), nodes);
    rc = fp_command(argv, THERE_MS, text, TEXT_MAX);
    fputs(text, stdout);
    if (rc)
        FP_ERROR("job %s has no store, or its first node does not answer", job);
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
    print(&r, &s);
    rc = s.of[FP__JOB_NODE_STATE__JOB_NODE_READY] == s.n ? 0 : -EIO;
    job_states_fini(&s);
    return rc;
}
