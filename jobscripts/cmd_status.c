/*
 * fp-job status [JOB]: how the nodes of a job are, and of one that has no store now, why.
 *
 * What is needed to ask its agents lies where the store was started, which is the job's first node mostly. So from any other machine the same command is run there
 * (--here), by srun, which lets in the job's owner alone; it prints the answer, and its exit code says which one it is. Before that Slurm is asked for the job:
 * of one that waits or is over, all is said then.
 */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/command.h"
#include "fp/err.h"
#include "fp/log.h"
#include "job.pb-c.h"
#include "jobscripts/job.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/launch/launch.h"
#include "jobscripts/launch/queue.h"

#define THERE_MS 10000u
#define TEXT_MAX (1u << 20)
#define NAMES_BYTES 2000u

/* Exit codes, which fp-job(1) has. */
enum { READY = 0, DEGRADED = 1, CALL = 2, WAITING = 3, NONE = 4, ENDED = 5, UNKNOWN = 6 };

static const char *const words[] = {"ready", "degraded", "", "waiting", "none", "ended", "unknown"};

/* ---------------------------------------------------------------- a job without a store */

/* slurm: the state of the job; NULL: it was not asked. Returns the code. */
static int say(const struct job_options *o, int code, const char *job, const char *slurm, const char *text)
{
    json_t *j;

    if (!o->json) {
        printf("job %s: %s\n", job, text);
        return code;
    }
    j = json_pack("{s:s, s:s, s:s, s:s*}", "job", job, "state", words[code], "text", text, "slurm", slurm);
    if (j && json_dumpf(j, stdout, JSON_INDENT(1)) == 0)
        putchar('\n');
    json_decref(j);
    return code;
}

static int say_queued(const struct job_options *o, const struct job_queued *q)
{
    char text[400];

    if (q->phase == JOB_OVER) {
        snprintf(text, sizeof text, "it does not run any more: %s", q->state);
        return say(o, ENDED, q->name, q->state, text);
    }
    snprintf(text, sizeof text, "it does not run yet: %s%s%s%s%s%s", q->state, q->reason[0] ? " (" : "", q->reason, q->reason[0] ? ")" : "",
             q->begin[0] ? ", expected to begin at " : "", q->begin);
    return say(o, WAITING, q->name, q->state, text);
}

static bool has_file(const char *dir, const char *name)
{
    int fd = job_dir_read(dir, name);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Held, and without a record yet. */
static bool is_starting(const char *dir)
{
    return has_file(dir, JOB_DIR_START) && job_dir_is_held(dir);
}

/* ---------------------------------------------------------------- its nodes */

static json_t *run_json(char *const *names, const struct job_run *r, const char *word)
{
    json_t *list = json_array();
    char number[16];

    for (uint32_t i = r->first; i < r->first + r->count; i++) {
        snprintf(number, sizeof number, "%u", i);
        json_array_append_new(list, json_string(names ? names[i] : number));
    }
    return json_pack("{s:s, s:s, s:o}", "state", word, "text", r->text, "nodes", list);
}

/* Those of which nothing is known are among them, unlike by job_states_next. */
static bool next_run(struct job_states *s, uint32_t *at, struct job_run *run)
{
    uint32_t i = *at;

    while (i < s->n && s->nodes[i].state == FP__JOB_NODE_STATE__JOB_NODE_NONE)
        i++;
    if (i == *at)
        return job_states_next(s, at, true, run);
    *run = (struct job_run){.first = *at, .count = i - *at, .state = FP__JOB_NODE_STATE__JOB_NODE_NONE, .text = ""};
    *at = i;
    return true;
}

static const char *const of_node[] = {"no word from its agent", "starting", "ready", "failed", "ended", "starting", "starting", "starting"};

static json_t *others_json(char *const *names, struct job_states *s)
{
    json_t *list = json_array();
    struct job_run run;
    uint32_t at = 0;

    while (next_run(s, &at, &run))
        if (run.state != FP__JOB_NODE_STATE__JOB_NODE_READY)
            json_array_append_new(list, run_json(names, &run, of_node[run.state]));
    return list;
}

/* What is the same of nodes is said once. names: NULL if they are not known */
static void print_others(char *const *names, const struct job_states *s)
{
    uint32_t *ranks = calloc(s->n, sizeof *ranks), n;
    bool *told = calloc(s->n, sizeof *told);
    const struct job_node *of;
    char text[NAMES_BYTES];

    for (uint32_t i = 0; told && i < s->n; i++)
        told[i] = s->nodes[i].state == FP__JOB_NODE_STATE__JOB_NODE_READY;
    while (told && ranks && (n = job_states_alike(s, told, ranks, &of))) {
        snprintf(text, sizeof text, "node %u%s", ranks[0], n > 1 ? " and others" : "");
        printf("%s: %s%s%s\n", names ? job_hostlist_write(names, ranks, n, text, sizeof text) : text, of_node[of->state], of->text ? ": " : "", of->text ? of->text : "");
    }
    free(told);
    free(ranks);
}

static void print(const struct job_record *r, char *const *names, struct job_states *s, bool ends)
{
    printf("job %s: %u of %u nodes ready, mounted on %s, manager %s\n", r->job, s->of[FP__JOB_NODE_STATE__JOB_NODE_READY], s->n, r->mount, r->manager);
    if (ends)
        puts("fp-job stop has begun: data is brought out as declared, then the store ends");
    if (r->application[0])
        printf("CPUs of the application on the first node: %s\n", r->application);
    print_others(names, s);
}

static void print_json(const struct job_record *r, char *const *names, struct job_states *s, bool ends, int code)
{
    json_t *j = json_pack("{s:s, s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:o}", "job", r->job, "state", words[code], "text", ends ? "fp-job stop has begun" : "", "nodes", (json_int_t)s->n,
                          "ready", (json_int_t)s->of[FP__JOB_NODE_STATE__JOB_NODE_READY], "mount", r->mount, "manager", r->manager, "application", r->application, "others",
                          others_json(names, s));

    if (j && json_dumpf(j, stdout, JSON_INDENT(1)) == 0)
        putchar('\n');
    json_decref(j);
}

static int ask_agents(const struct job_options *o, const char *dir, const struct job_record *r)
{
    bool ends = has_file(dir, JOB_DIR_ENDING);
    struct job_states s;
    char **names;
    int code;

    if (job_launch_ask(dir, r, &s))
        return -EIO;
    names = job_hosts_load(dir, r->nodes);
    code = s.of[FP__JOB_NODE_STATE__JOB_NODE_READY] == s.n ? READY : DEGRADED;
    if (o->json)
        print_json(r, names, &s, ends, code);
    else
        print(r, names, &s, ends);
    job_hosts_free(names, r->nodes);
    job_states_fini(&s);
    return code;
}

/* ---------------------------------------------------------------- from elsewhere */

static int run_there(const struct job_options *o, const struct job_queued *q, char *text)
{
    char id[40], self[PATH_MAX];
    char *const argv[] = {(char *)"srun", id, (char *)"--overlap", (char *)"--quiet", (char *)"-N1", (char *)"-n1", (char *)"--mem=0", (char *)"--mpi=none", (char *)"--cpu-bind=none", (char *)"-w",
                          (char *)(uintptr_t)q->first, self, (char *)"status", (char *)"--here", (char *)(uintptr_t)q->job, o->json ? (char *)"--json" : NULL, NULL};
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);

    if (k <= 0)
        return -errno;
    self[k] = '\0';
    snprintf(id, sizeof id, "--jobid=%s", q->job);
    job_launch_environment();
    return fp_command(argv, THERE_MS, text, TEXT_MAX);
}

static int is_anothers(const struct job_queued *q)
{
    if (geteuid() == 0)
        FP_ERROR("job %s is %s's: runuser -u %s -- fp-job status %s", q->name, q->user, q->user, q->name);
    else
        FP_ERROR("job %s is %s's, who alone can ask how its store is", q->name, q->user);
    return -EPERM;
}

static int ask_there(const struct job_options *o, const char *asked, const struct job_queued *q)
{
    char *text = malloc(TEXT_MAX), why[JOB_QUEUE_WHY_BYTES];
    struct job_queued now;
    int code = text ? run_there(o, q, text) : -ENOMEM;

    if (code >= 0 && text[0]) {
        fputs(text, stdout);
    } else if (job_queue_find(asked, &now, why) == 0 && now.phase != JOB_RUNS) { /* meanwhile */
        code = say_queued(o, &now);
    } else {
        FP_ERROR("job %s runs, but its first node, %s, does not answer (srun: %s)", q->name, q->first, code > 0 ? "it failed" : fp_strerror(code));
        code = -EIO;
    }
    free(text);
    return code;
}

/* 12, 12_3, 12+1 */
static bool is_of_slurm(const char *job)
{
    return isdigit((unsigned char)job[0]) && !job[strspn(job, "0123456789_+")];
}

static int ask_slurm(const struct job_options *o, const char *asked)
{
    char why[JOB_QUEUE_WHY_BYTES];
    struct job_queued q;
    int rc = is_of_slurm(asked) ? job_queue_find(asked, &q, why) : -ENOSYS;

    if (rc == -ENOENT)
        return say(o, UNKNOWN, asked, NULL, why);
    if (rc == -ENOSYS)
        return say(o, UNKNOWN, asked, NULL, "no store of this job was started on this machine, and there is no Slurm that could be asked: ask where it was started");
    if (rc) {
        FP_ERROR("job %s: %s", asked, why);
        return rc == -EINVAL ? CALL : rc;
    }
    if (q.phase != JOB_RUNS)
        return say_queued(o, &q);
    if (q.uid != geteuid())
        return is_anothers(&q);
    if (q.outside) {
        FP_ERROR("job %s was begun by salloc on %s: ask there", q.name, q.first);
        return -EREMOTE;
    }
    return ask_there(o, asked, &q);
}

/* ---------------------------------------------------------------- the command */

static int no_record(const struct job_options *o, const char *job, const char *dir, int rc)
{
    char text[PATH_MAX + 64];

    if (is_starting(dir))
        return say(o, WAITING, job, NULL, "its store is being started");
    if (!o->here && (rc == -ENOENT || rc == -EPERM)) /* whatever others have put there, the store may be on another node */
        return ask_slurm(o, job);
    if (rc == -ENOENT)
        return say(o, NONE, job, NULL, "it runs, and has no store");
    snprintf(text, sizeof text, "%s: %s", dir, rc == -EPERM ? "it is somebody else's, or others may read it" : fp_strerror(rc));
    return say(o, DEGRADED, job, NULL, text);
}

int job_cmd_status(const struct job_options *o)
{
    char own[65], dir[PATH_MAX], why[JOB_QUEUE_WHY_BYTES];
    const char *job = o->script ? o->script : job_alloc_job(own) == 0 ? own : NULL;
    struct job_queued q;
    struct job_record r;
    int rc;

    if (!job || !*job || strlen(job) > 64 || job[strspn(job, JOB_DIR_CHARS "+")]) {
        FP_ERROR("%s%sof which job? fp-job status JOB", job ? job : "", job && *job ? " is none: " : "");
        return CALL;
    }
    job_dir_path(dir, job);
    rc = job_record_load(dir, &r);
    if (rc)
        return no_record(o, job, dir, rc);
    rc = ask_agents(o, dir, &r);
    if (rc >= 0)
        return rc;
    if (!o->here && is_of_slurm(job) && job_queue_find(job, &q, why) == 0 && q.phase != JOB_RUNS)
        return say_queued(o, &q); /* what is here was left */
    return say(o, DEGRADED, job, NULL, "its store does not answer");
}
