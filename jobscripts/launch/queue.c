/*
 * Any job of a site, as Slurm knows it (see queue.h). Called by fp-job status; one thread.
 *
 * squeue is asked, and told to name those that have ended too, which the controller forgets after some minutes (MinJobAge); then sacct, where a site has accounting.
 * squeue says that there is no such job by the same exit code as that nobody answers, so its words are read.
 */
#include "jobscripts/launch/queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/command.h"
#include "fp/err.h"
#include "jobscripts/launch/hosts.h"

#define ASK_MS     5000u
#define TEXT_BYTES (4u << 20) /* tasks of an array that is large */
#define FIELDS     9

static enum job_phase phase_of(const char *state)
{
    static const char *const waits[] = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT", NULL};
    static const char *const runs[] = {"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", NULL};

    for (const char *const *s = waits; *s; s++)
        if (strcmp(*s, state) == 0)
            return JOB_WAITS;
    for (const char *const *s = runs; *s; s++)
        if (strcmp(*s, state) == 0)
            return JOB_RUNS;
    return JOB_OVER;
}

static void put(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}

/* Also if it can't be told. */
static bool is_among(const char *name, const char *list)
{
    char **nodes;
    uint32_t n;
    bool is = false;

    if (job_hostlist(list, &nodes, &n))
        return true;
    for (uint32_t i = 0; i < n && !is; i++)
        is = job_hosts_same(nodes[i], name);
    job_hosts_free(nodes, n);
    return is;
}

/* A line of what squeue prints in FORMAT; false: it is none, as of its warnings. */
#define FORMAT "%i|%A|%U|%u|%T|%B|%S|%N|%r"
static bool read_line(char *line, struct job_queued *q)
{
    char *field[FIELDS];

    for (int i = 0; i < FIELDS; i++)
        if (!(field[i] = strsep(&line, i < FIELDS - 1 ? "|" : "")))
            return false;
    memset(q, 0, sizeof *q);
    put(q->name, sizeof q->name, field[0]);
    put(q->job, sizeof q->job, field[1]);
    q->uid = (uid_t)strtoul(field[2], NULL, 10);
    put(q->user, sizeof q->user, field[3]);
    put(q->state, sizeof q->state, field[4]);
    q->phase = phase_of(q->state);
    if (q->phase == JOB_RUNS)
        put(q->first, sizeof q->first, field[5]);
    if (q->phase == JOB_WAITS && strcmp(field[6], "N/A") != 0)
        put(q->begin, sizeof q->begin, field[6]);
    if (q->phase == JOB_WAITS)
        put(q->reason, sizeof q->reason, field[8]);
    q->outside = q->phase == JOB_RUNS && !is_among(q->first, field[7]);
    return true;
}

/* Is it the one that is asked for, of several? Its number is also that of its array, which tasks that wait have as theirs. */
static bool is_it(const struct job_queued *q, const char *asked)
{
    return strcmp(q->name, asked) == 0 || (strcmp(q->job, asked) == 0 && q->phase == JOB_RUNS);
}

int job_queue_choose(char *text, const char *asked, struct job_queued *out, char why[JOB_QUEUE_WHY_BYTES])
{
    char running[160] = "";
    struct job_queued q;
    bool found = false;
    unsigned n = 0;

    for (char *line; (line = strsep(&text, "\n"));) {
        if (!read_line(line, &q))
            continue;
        if (n++ == 0 || (!found && is_it(&q, asked)))
            *out = q;
        found = found || is_it(&q, asked);
        if (q.phase == JOB_RUNS && strlen(running) + strlen(q.name) + 8 < sizeof running)
            snprintf(running + strlen(running), sizeof running - strlen(running), "%s%s", running[0] ? ", " : "", q.name);
    }
    if (n == 0)
        snprintf(why, JOB_QUEUE_WHY_BYTES, "Slurm does not know it, or not any more");
    else if (n > 1 && !found)
        snprintf(why, JOB_QUEUE_WHY_BYTES, "it is an array: of which of its tasks? fp-job status %s_1%s%s", asked, running[0] ? "; these run: " : "; none of them runs", running);
    return n == 0 ? -ENOENT : n > 1 && !found ? -EINVAL : 0;
}

/* Of a job that the controller has forgotten. Where there is no accounting, sacct fails. */
static int ask_accounting(const char *asked, struct job_queued *out)
{
    char *const argv[] = {(char *)"sacct", (char *)"-n", (char *)"-X", (char *)"-P", (char *)"-o", (char *)"JobID,User,State", (char *)"-j", (char *)(uintptr_t)asked, NULL};
    char text[4096], *rest = text, *name, *user, *state;

    if (fp_command(argv, ASK_MS, text, sizeof text))
        return -ENOENT;
    name = strsep(&rest, "|");
    user = rest ? strsep(&rest, "|") : NULL;
    state = rest ? strsep(&rest, "\n") : NULL;
    if (!state || strcmp(name, asked) != 0 || phase_of(state) != JOB_OVER)
        return -ENOENT;
    memset(out, 0, sizeof *out);
    put(out->name, sizeof out->name, name);
    put(out->job, sizeof out->job, name);
    put(out->user, sizeof out->user, user);
    put(out->state, sizeof out->state, state);
    out->phase = JOB_OVER;
    return 0;
}

static int ask_controller(const char *asked, char *text, size_t size, char why[JOB_QUEUE_WHY_BYTES])
{
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)"exec squeue \"$@\" 2>&1", (char *)"squeue", (char *)"-h", (char *)"-r", (char *)"-t", (char *)"all",
                          (char *)"-o", (char *)FORMAT, (char *)"-j", (char *)(uintptr_t)asked, NULL};
    int rc = fp_command(argv, ASK_MS, text, size);

    if (rc == 127) {
        snprintf(why, JOB_QUEUE_WHY_BYTES, "there is no Slurm here that could be asked (squeue)");
        return -ENOSYS;
    }
    if (rc > 0 && strstr(text, "nvalid job id"))
        text[rc = 0] = '\0';
    if (rc)
        snprintf(why, JOB_QUEUE_WHY_BYTES, "Slurm does not answer: %.*s", 300, rc > 0 && text[0] ? text : rc > 0 ? "squeue failed" : fp_strerror(rc));
    why[strcspn(why, "\n")] = '\0';
    return rc > 0 ? -EIO : rc;
}

int job_queue_find(const char *asked, struct job_queued *out, char why[JOB_QUEUE_WHY_BYTES])
{
    char *text = malloc(TEXT_BYTES);
    int rc = text ? 0 : -ENOMEM;

    why[0] = '\0';
    if (!text)
        snprintf(why, JOB_QUEUE_WHY_BYTES, "%s", fp_strerror(rc));
    rc = rc ? rc : ask_controller(asked, text, TEXT_BYTES, why);
    rc = rc ? rc : job_queue_choose(text, asked, out, why);
    free(text);
    return rc == -ENOENT && ask_accounting(asked, out) == 0 ? 0 : rc;
}
