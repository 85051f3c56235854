/*
 * fp-job doctor: is this site fit for jobs with a store? (doctor/doctor.h)
 *
 * Slurm's configuration is asked for once, wherever we are. Nodes are looked at in an allocation, all at a time, by the same command under srun, since only
 * a job of the user sees what his jobs will see: its limits, its cores, its /dev. Without an allocation, and with --here, this machine is.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "fp/command.h"
#include "jobscripts/doctor/doctor.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/job.h"
#include "jobscripts/launch/launcher.h"
#include "jobscripts/launch/slurm.h"

#define NODES_MS      90000u
#define NODE_S        60u          /* an end of those that hang, before srun is given up */
#define NODE_BYTES    (16u << 10)  /* of what one says */

static int64_t clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static const char *own_name(char out[DOCTOR_NAME_BYTES])
{
    const char *name = getenv("SLURMD_NODENAME");

    out[0] = '\0';
    if (name)
        snprintf(out, DOCTOR_NAME_BYTES, "%s", name);
    else
        (void)gethostname(out, DOCTOR_NAME_BYTES - 1);
    return out;
}

/* ---------------------------------------------------------------- Slurm, and this machine */

static void look_at_slurm(struct doctor_report *r)
{
    struct doctor_slurm s;

    doctor_slurm_look(&s);
    for (const struct doctor_slurm_check *c = doctor_slurm_checks; c->name && (c == doctor_slurm_checks || s.rc == 0); c++) {
        struct doctor_answer a = {.status = DOCTOR_OK};

        c->judge(&s, &a);
        doctor_report_add(r, c->name, &a, NULL);
    }
    free((void *)(uintptr_t)s.config);
    free((void *)(uintptr_t)s.plugstack);
}

/* r: NULL: it is said to who asks, by standard output. */
static void look_here(const struct job_options *o, struct doctor_report *r)
{
    const struct doctor_node_wants w = {.ssd = o->ssd, .first = o->peer ? o->peer : ""};
    char name[DOCTOR_NAME_BYTES];
    struct doctor_node n;
    int64_t now = clock_ms();
    unsigned said = 0;

    own_name(name);
    doctor_node_look(&w, &n);
    for (const struct doctor_node_check *c = doctor_node_checks; c->name; c++) {
        struct doctor_answer a = {.status = DOCTOR_OK};

        c->judge(&n, &a);
        if (r)
            doctor_report_add(r, c->name, &a, name);
        else
            doctor_say(name, c->name, &a);
        said++;
    }
    if (!r)
        doctor_say_end(name, n.version, now, said);
}

/* ---------------------------------------------------------------- the nodes of the job */

struct asked {
    const struct job_alloc *slurm;
    char ***sorted;      /* job_hosts_sort */
    int64_t from, until; /* our clock, before and after */
    struct answers {
        unsigned lines;
        bool all;        /* that it had to say has come */
    } *of;               /* each node */
};

static struct answers *answers_of(const struct asked *q, const char *node)
{
    int64_t i = job_hosts_find(q->slurm->nodes, q->sorted, q->slurm->nnodes, node);

    return i < 0 ? NULL : &q->of[i];
}

static void judge_peer(struct doctor_report *r, const struct asked *q, const struct doctor_said *said)
{
    struct doctor_node n = {.asked_version = FP_VERSION, .clock_known = true};

    snprintf(n.version, sizeof n.version, "%s", said->version);
    if (said->clock_ms < q->from)
        n.clock_off_ms = said->clock_ms - q->from;
    else if (said->clock_ms > q->until)
        n.clock_off_ms = said->clock_ms - q->until;
    for (const struct doctor_node_check *c = doctor_peer_checks; c->name; c++) {
        struct doctor_answer a = {.status = DOCTOR_OK};

        c->judge(&n, &a);
        doctor_report_add(r, c->name, &a, said->node);
    }
}

static void hear_all(struct doctor_report *r, struct asked *q, const char *text)
{
    struct doctor_said said;

    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        struct answers *of = doctor_hear(text, &said) ? answers_of(q, said.node) : NULL;

        if (!of)
            continue;
        if (said.check) {
            doctor_report_add(r, said.check, &said.answer, said.node);
            of->lines++;
        } else {
            judge_peer(r, q, &said);
            of->all = of->lines == said.lines;
        }
    }
}

static void tell_missing(struct doctor_report *r, const struct asked *q, int rc)
{
    for (uint32_t i = 0; i < q->slurm->nnodes; i++) {
        struct doctor_answer a = {.status = DOCTOR_OK};

        if (q->of[i].all)
            continue;
        if (q->of[i].lines)
            doctor_found(&a, "%u answers have come, and not all that it had", q->of[i].lines);
        else
            doctor_found(&a, rc == -ETIMEDOUT ? "no answer within %u s" : "fp-job doctor did not run there", NODES_MS / 1000);
        doctor_wrong(&a, "install fpstore where all nodes have it under the same path, as here; then try on that node: fp-job doctor --here");
        doctor_report_add(r, "node", &a, q->slurm->nodes[i]);
    }
}

static int ask_nodes(const struct job_options *o, const struct job_alloc *s, char *out, size_t size)
{
    static char self[PATH_MAX], ssd[PATH_MAX + 16], peer[300];
    static struct job_words srun;
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);

    if (k <= 0)
        return -errno;
    self[k] = '\0';
    (void)job_launcher_srun(s, &srun); /* without --unbuffered: what nodes say must come in whole lines */
    snprintf(ssd, sizeof ssd, "--ssd=%s", o->ssd);
    snprintf(peer, sizeof peer, "--peer=%s", s->nodes[0]);
    for (const char *const *w = (const char *const[]){self, "doctor", "--here", "--lines", ssd, peer, NULL}; *w; w++)
        srun.argv[srun.n++] = *w;
    srun.argv[srun.n] = NULL;
    return fp_command((char *const *)(uintptr_t)srun.argv, NODES_MS, out, size);
}

static int look_at_nodes(const struct job_options *o, struct doctor_report *r)
{
    struct job_alloc s = {0};
    struct asked q = {.slurm = &s};
    size_t size;
    char *text;
    int rc = job_slurm_look(&s);

    if (rc)
        return rc;
    size = (size_t)s.nnodes * NODE_BYTES;
    text = calloc(1, size);
    q.of = calloc(s.nnodes, sizeof *q.of);
    q.sorted = job_hosts_sort(s.nodes, s.nnodes);
    if (!text || !q.of || !q.sorted)
        abort();
    q.from = clock_ms();
    rc = ask_nodes(o, &s, text, size);
    q.until = clock_ms();
    hear_all(r, &q, text);
    tell_missing(r, &q, rc);
    free(q.sorted);
    free(q.of);
    free(text);
    job_alloc_fini(&s);
    return 0;
}

/* ---------------------------------------------------------------- the command */

int job_cmd_doctor(const struct job_options *o)
{
    struct doctor_report r = {0};
    int rc = 0;

    if (o->lines) {
        alarm(NODE_S);
        look_here(o, NULL);
        return 0;
    }
    look_at_slurm(&r);
    if (o->here || !getenv("SLURM_JOB_ID"))
        look_here(o, &r);
    else
        rc = look_at_nodes(o, &r);
    doctor_report_sort(&r);
    if (o->json)
        doctor_report_json(&r);
    else
        doctor_report_print(&r);
    if (!o->json && !o->here && !getenv("SLURM_JOB_ID"))
        puts("This machine alone was looked at. For nodes: salloc -N 4 --exclusive fp-job doctor, or fp-job doctor in a batch script.");
    rc = rc ? rc : r.wrong ? -EINVAL : 0;
    doctor_report_fini(&r);
    return rc;
}
