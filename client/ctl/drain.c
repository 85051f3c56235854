/* fpctl drain: copies of files in a target, and what is on its way there.
 *
 * The manager keeps jobs and does them without us: `drain PATH` asks it to begin, and has its answer at once. With --wait it is asked again and again until the job
 * has ended; a manager that is started anew in between is found again (link.c), and with --timeout one is waited for that is away at the beginning. The exit code tells what is late from what has failed, for scripts. Progress goes to
 * stderr, where it is a terminal, so that stdout is the result. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/cmd.h"
#include "fp/clock.h"
#include "fp/drainopt.h"
#include "fp/err.h"
#include "fp/stall.h"
#include "fp/table.h"
#include "life.pb-c.h"

#define ASK_MS   300u
#define AGAIN_MS 1000u /* after the manager could not be asked */
#define TRY_MS       3000u /* for which benefactors may look at a directory */
#define TRY_PAUSE_MS 200u
#define REPLACED_BUF 64u

enum { LATE = 3, FAILED = 4, GONE = 5, STALLED = 6 };

static const char *const states[] = {"none", "waiting", "running", "finishing", "done", "failed", "cancelled"};

static const char *state_word(int s)
{
    return s >= 0 && s < (int)(sizeof states / sizeof *states) ? states[s] : "unknown";
}

static int ask(struct ctl_link *l, const Fp__CtlDrain *q, Fp__CtlDrainReply **out)
{
    ProtobufCMessage *reply = NULL;
    int rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_DRAIN, &q->base, &fp__ctl_drain_reply__descriptor, &reply);

    *out = (Fp__CtlDrainReply *)reply;
    return rc;
}

/* Lines that say why not. */
static int refused(const Fp__CtlDrainReply *r)
{
    for (size_t i = 0; i < r->n_why; i++)
        FP_ERROR("%s", r->why[i]);
    return r->n_why ? -EINVAL : 0;
}

/* ---------------------------------------------------------------- one job */

static const char *kind_word(const Fp__DrainJob *j)
{
    switch (j->kind) {
    case FP__JOB_KIND__JOB_SET:
        return "set";
    case FP__JOB_KIND__JOB_EVICT:
        return "evict";
    case FP__JOB_KIND__JOB_STAGE_IN:
    case FP__JOB_KIND__JOB_FOREIGN:
        return "stage-in";
    case FP__JOB_KIND__JOB_MERGE:
        return "merge";
    default:
        return "files";
    }
}

static json_t *json_job(const Fp__DrainJob *j)
{
    return json_pack("{s:I, s:s, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:b}", "job", (json_int_t)j->id, "kind", kind_word(j), "path", ctl_json_bytes(j->what.data, j->what.len), "to", j->to,
                     "state", state_word(j->state), "files", (json_int_t)j->files, "files_done", (json_int_t)j->files_done, "files_failed", (json_int_t)j->files_failed,
                     "bytes", (json_int_t)j->bytes, "bytes_done", (json_int_t)j->bytes_done, "rate", (json_int_t)j->rate, "files_replaced", (json_int_t)j->replaced, "why", j->why,
                     "again_s", (json_int_t)j->again_s, "stalled", (int)j->stalled);
}

static const char *where_word(const Fp__DrainJob *j)
{
    switch (j->kind) {
    case FP__JOB_KIND__JOB_EVICT:
        return "evicted";
    case FP__JOB_KIND__JOB_STAGE_IN:
        return "staged in";
    case FP__JOB_KIND__JOB_FOREIGN:
        return "staged in from ";
    case FP__JOB_KIND__JOB_MERGE:
        return "merged in ";
    default:
        return "to ";
    }
}

/* Of files that were not this store's. "": there were none. */
static const char *replaced_text(const Fp__DrainJob *j, char buf[REPLACED_BUF])
{
    snprintf(buf, REPLACED_BUF, "%llu file%s of another store %s replaced", (unsigned long long)j->replaced, j->replaced == 1 ? "" : "s", j->replaced == 1 ? "was" : "were");
    return j->replaced ? buf : "";
}

static void print_job(const Fp__DrainJob *j)
{
    char done[FP_UNITS_BUF], all[FP_UNITS_BUF], replaced[REPLACED_BUF], again[CTL_AGAIN_BUF];

    printf("job %llu: %s: %llu of %llu files, %s of %s %s%s%s%s%s%s%s", (unsigned long long)j->id, state_word(j->state), (unsigned long long)j->files_done,
            (unsigned long long)j->files, fp_format_size(done, j->bytes_done), fp_format_size(all, j->bytes), where_word(j), j->to, j->replaced ? "; " : "",
            replaced_text(j, replaced), *j->why ? ": " : "", j->why, ctl_again_text(again, j->again_s));
}

/* The line of a terminal, while it goes on. */
static void print_progress(const Fp__DrainJob *j)
{
    char text[CTL_PROGRESS_BUF], again[CTL_AGAIN_BUF];

    ctl_progress_line("job %llu: %s  %llu of %llu files %s%s%s%s%s", (unsigned long long)j->id, ctl_progress_text(text, j->bytes_done, j->bytes, j->rate),
                      (unsigned long long)j->files_done, (unsigned long long)j->files, where_word(j), j->to, *j->why ? ": " : "", j->why, ctl_again_text(again, j->again_s));
}

static int verdict(int state)
{
    switch (state) {
    case FP__DRAIN_STATE__DRAIN_DONE:
        return 0;
    case FP__DRAIN_STATE__DRAIN_FAILED:
        return FAILED;
    case FP__DRAIN_STATE__DRAIN_CANCELLED:
        return GONE;
    default:
        return -1; /* not ended */
    }
}

static int tell(const struct ctl_options *o, const Fp__DrainJob *j)
{
    if (o->json)
        return ctl_json_print(json_job(j));
    print_job(j);
    putchar('\n');
    return ctl_flush();
}

/* ---------------------------------------------------------------- waiting for it */

struct wait {
    const struct ctl_options *o;
    struct ctl_link *link;
    bool tty;
    char why[512]; /* that was said last */
    struct fp_stall stall; /* of the job that is waited for */
};

/* 0 and *out; or the manager could not be asked, which may be otherwise in a moment. */
static int look(const struct wait *w, uint64_t job, Fp__CtlDrainReply **out)
{
    Fp__CtlDrain q = FP__CTL_DRAIN__INIT;

    q.op = FP__DRAIN_OP__DRAIN_OP_SHOW;
    q.id = job;
    return ask(w->link, &q, out);
}

/* Why it does not go on, once; a terminal has it in its line. */
static void say_why(struct wait *w, const Fp__DrainJob *j)
{
    char again[CTL_AGAIN_BUF];

    if (w->tty || !j->why[0] || strcmp(w->why, j->why) == 0)
        return;
    snprintf(w->why, sizeof w->why, "%s", j->why);
    fprintf(stderr, "job %llu: %s%s: %s%s\n", (unsigned long long)j->id, where_word(j), j->to, j->why, ctl_again_text(again, j->again_s));
}

/* Of a job that has not ended: the exit code with which it is waited for no longer; negative: it is. */
static int given_up(struct wait *w, const Fp__DrainJob *j, uint64_t until)
{
    uint64_t now = fp_now_ms();

    if (j->stuck)
        return FAILED;
    if (fp_stall_over(&w->stall, now, j->files + j->files_done + j->files_failed + j->bytes_done, j->stalled, w->o->stall_ms))
        return STALLED;
    return now >= until ? LATE : -1;
}

static void say_stands(const struct wait *w, const Fp__DrainJob *j, int code)
{
    unsigned long long id = j->id;
    char text[FP_UNITS_BUF];

    if (j->stuck)
        FP_ERROR("job %llu goes on when that directory is mended: fpctl drain cancel %llu ends it", id, id);
    else if (code == STALLED)
        FP_ERROR("job %llu %s%s has stood still for %s (--stall): %s", id, where_word(j), j->to, fp_format_duration(text, w->o->stall_ms), j->why);
}

static int wait_for(struct wait *w, uint64_t job, uint64_t until)
{
    uint64_t pause_ms = 0;

    w->stall = (struct fp_stall){0};
    for (;;) {
        Fp__CtlDrainReply *r = NULL;
        int rc = look(w, job, &r), code = -1;

        if (rc == 0 && r->n_jobs != 1) {
            FP_ERROR("job %llu is not known any more", (unsigned long long)job);
            code = GONE;
        } else if (rc == 0) {
            code = verdict(r->jobs[0]->state);
            if (w->tty && code < 0)
                print_progress(r->jobs[0]);
            if (code < 0 && (!pause_ms || pause_ms == ASK_MS))
                say_why(w, r->jobs[0]);
            if (code < 0)
                code = given_up(w, r->jobs[0], until);
            if (code >= 0 && w->tty)
                ctl_progress_end();
            if (code >= 0)
                rc = tell(w->o, r->jobs[0]);
            if (code >= 0)
                say_stands(w, r->jobs[0], code);
        } else if (fp_now_ms() >= until) {
            code = LATE; /* it may be done: nobody could say so */
        }
        if (r)
            fp__ctl_drain_reply__free_unpacked(r, NULL);
        if (code >= 0)
            return rc < 0 && code != LATE ? rc : code;
        if (rc < 0)
            ctl_pause(w->o, AGAIN_MS);
        else
            ctl_pause_longer(w->o, &pause_ms, ASK_MS);
    }
}

/* ---------------------------------------------------------------- drain PATH... */

static int say_what(const struct ctl_options *o)
{
    if (o->all + o->last + o->failed > 1)
        FP_ERROR("--all, --last and --failed: one of them");
    else if (!o->npaths && !o->all && !o->last && !o->failed)
        FP_ERROR("fpctl drain: give PATH, --all, --last or --failed");
    else
        return 0;
    return -EINVAL;
}

/* Until those who would have to use it have looked: soon, if they are there and it does not hang. Else it is found out by the job. */
int ctl_target_try(const struct ctl_options *o, struct ctl_link *l, const char *root)
{
    uint64_t until = fp_now_ms() + TRY_MS, pause_ms = 0;
    Fp__CtlDrain q = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply *r = NULL;
    int tried, rc;

    q.op = FP__DRAIN_OP__DRAIN_OP_TRY;
    q.dest = (char *)(uintptr_t)root;
    while (*root) {
        rc = ask(l, &q, &r);
        if (rc == -EOPNOTSUPP)
            return 0;
        if (rc < 0)
            return ctl_link_failed(l, rc, o->cmd->words);
        tried = (int)r->tried;
        rc = refused(r);
        fp__ctl_drain_reply__free_unpacked(r, NULL);
        r = NULL;
        if (rc < 0 || tried != FP__DRAIN_TRIED__DRAIN_TRIED_SOON || fp_now_ms() >= until)
            return rc < 0 ? rc : 0;
        ctl_pause_longer(o, &pause_ms, TRY_PAUSE_MS);
    }
    return 0;
}

/* The benefactors' working directory is another. */
char *ctl_dest(const struct ctl_options *o, char buf[PATH_MAX])
{
    if (!o->to)
        return strcpy(buf, "");
    if (*o->to == '/')
        return (char *)(uintptr_t)o->to;
    if (realpath(o->to, buf))
        return buf;
    FP_ERROR("--to %s: %s", o->to, fp_strerror(-errno));
    return NULL;
}

/* *jobs: to be freed; how many of them (with --failed, it may be none), or a failure. */
static int start(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l, uint64_t **jobs)
{
    static char inner[CTL_PATHS_MAX][PATH_MAX];
    ProtobufCBinaryData paths[CTL_PATHS_MAX];
    Fp__CtlDrain q = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply *r = NULL;
    char dest[PATH_MAX];
    size_t n = o->all || o->failed ? 0 : o->npaths;
    int rc = say_what(o);

    *jobs = NULL;
    paths[0] = (ProtobufCBinaryData){0, NULL}; /* the root */
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = ctl_find_inner(o, store, i, inner[i]);
        paths[i] = (ProtobufCBinaryData){strlen(inner[i]), (uint8_t *)inner[i]};
    }
    if (rc < 0)
        return rc;
    q.op = FP__DRAIN_OP__DRAIN_OP_START;
    q.n_paths = n ? n : 1;
    q.all = o->all;
    q.last = o->last;
    q.failed = o->failed;
    q.paths = paths;
    q.urgent = o->now;
    q.verify = o->verify;
    q.overwrite = o->overwrite;
    q.again = o->again;
    q.layout = (uint32_t)o->layout;
    q.dest = ctl_dest(o, dest);
    rc = q.dest ? ctl_target_try(o, l, q.dest) : -EINVAL;
    if (rc < 0)
        return rc;
    rc = ask(l, &q, &r);
    if (rc < 0)
        return ctl_link_failed(l, rc, "drain");
    rc = refused(r);
    if (rc == 0 && r->n_ids < 1 && !o->failed)
        rc = FP_EBADFRAME;
    if (rc == 0 && r->n_ids)
        rc = (*jobs = calloc(r->n_ids, sizeof **jobs)) ? (int)r->n_ids : -ENOMEM;
    if (rc > 0)
        memcpy(*jobs, r->ids, r->n_ids * sizeof **jobs);
    fp__ctl_drain_reply__free_unpacked(r, NULL);
    return rc;
}

/* One that has failed says more than one that is late. */
static int worse(int a, int b)
{
    static const int order[] = {0, LATE, GONE, STALLED, FAILED};
    int i = 0, k = 0;

    while (order[i] != a)
        i++;
    while (order[k] != b)
        k++;
    return order[i > k ? i : k];
}

int ctl_jobs_wait(const struct ctl_options *o, struct ctl_link *l, const uint64_t *jobs, int n)
{
    static struct wait w;
    uint64_t until = o->until_ms ? o->until_ms : UINT64_MAX;
    int code = 0;

    w = (struct wait){.o = o, .link = l, .tty = isatty(2) && !o->json};
    ctl_patient(until, LATE); /* the job goes on without the manager, and without us */
    for (int i = 0; i < n; i++) {
        int rc = wait_for(&w, jobs[i], until);

        if (rc < 0)
            return rc;
        code = worse(code, rc);
    }
    return code;
}

int ctl_job_wait(const struct ctl_options *o, struct ctl_link *l, uint64_t job)
{
    return ctl_jobs_wait(o, l, &job, 1);
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    uint64_t *jobs;
    int n = start(o, store, l, &jobs), rc = 0;

    if (n < 0)
        return n;
    if (o->wait)
        rc = ctl_jobs_wait(o, l, jobs, n);
    for (int i = 0; i < n && !o->wait && rc == 0; i++) {
        if (o->json)
            rc = ctl_json_print(json_pack("{s:I}", "job", (json_int_t)jobs[i]));
        else
            printf("job %llu\n", (unsigned long long)jobs[i]);
    }
    free(jobs);
    return o->wait || o->json ? rc : ctl_flush();
}

const struct ctl_cmd ctl_cmd_drain = {
    .words = "drain",
    .args = "[PATH...]",
    .options = "to all last failed now verify wait stall layout overwrite again",
    .help = "Copies files, and all files below directories, to a target: a directory of another file system that the benefactors' nodes have at the same place.",
    .more = "The benefactors do it, each with what it has; it goes on when this command, the mount, the manager or a benefactor ends. A file gets its name in the target when it "
            "is whole there. What is there already with the present data is not copied again: its inode, size and time there are looked at, not its bytes, also with --verify if it was compared before; --again copies it. At the end of a job: --last --wait for the newest checkpoint of each series, --all --wait for "
            "everything; --failed --wait for what policies have chosen, once more, where a file could not be copied. Without --to it is the target of the policies, of several each. With --layout=log a file F becomes F.fplog, a stream of records for each benefactor, which fpctl merge makes F of.",
    .exits = "3 when --timeout is over: with --wait it still goes on, or no manager was there. With --wait: 4 when a file could not be copied, or with --verify not compared, or was open for writing, or the target is none any more, 5 when the job was cancelled, 6 when it has stood still for --stall: it goes on if its target takes data again.",
    .flags = CTL_WAITS | CTL_PATIENT,
    .run = run,
};

/* ---------------------------------------------------------------- stage-out PATH... */

static int run_out(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    static struct ctl_options all;

    all = *o;
    all.wait = all.verify = all.now = true;
    return run(&all, store, l);
}

const struct ctl_cmd ctl_cmd_stage_out = {
    .words = "stage-out",
    .args = "PATH...",
    .options = "to stall",
    .help = "Copies results out of the store and waits until they are there: drain --now --verify --wait.",
    .more = "Below the target files have the paths that they have in the store. What was written is read back and compared before a file gets its name. What is there already with the present data, "
            "compared, is not copied again.",
    .exits = "3 when --timeout is over and it still goes on, or no manager was there, 4 when a file could not be copied or compared, or was open for writing, 5 when the job was cancelled, 6 when it has stood still for --stall.",
    .flags = CTL_WAITS | CTL_PATIENT,
    .run = run_out,
};

/* ---------------------------------------------------------------- drain show */

static const char *const codes[] = {"unknown", "ok", "full", "over quota", "I/O errors", "stale", "read-only", "unreachable", "hangs", "refused"};

static const char *code_word(int c)
{
    return c >= 0 && c < (int)(sizeof codes / sizeof *codes) ? codes[c] : "unknown";
}

static const char *state_of(const Fp__TargetState *s)
{
    return s->slow && s->code <= FP__TARGET_CODE__TARGET_OK ? "slow" : code_word(s->code);
}

static int json_all(const Fp__CtlDrainReply *r)
{
    json_t *jobs = json_array(), *targets = json_array(), *policies = json_array();

    for (size_t i = 0; i < r->n_jobs; i++)
        json_array_append_new(jobs, json_job(r->jobs[i]));
    for (size_t i = 0; i < r->n_targets; i++) {
        const Fp__TargetInfo *t = r->targets[i];
        json_t *at = json_array();

        for (size_t k = 0; k < t->n_states; k++)
            json_array_append_new(at, json_pack("{s:s, s:s, s:I, s:I}", "state", state_of(t->states[k]), "who", t->states[k]->why, "rate",
                                                (json_int_t)t->states[k]->rate, "queued_bytes", (json_int_t)t->states[k]->queued_bytes));
        json_array_append_new(targets, json_pack("{s:s, s:I, s:o}", "target", t->root, "rate", (json_int_t)t->rate, "benefactors", at));
    }
    for (size_t i = 0; i < r->n_policies; i++) {
        const Fp__PolicyInfo *info = r->policies[i];
        json_t *p = json_pack("{s:I, s:s, s:I, s:I}", "policy", (json_int_t)info->id, "text", info->text, "sets_seen", (json_int_t)info->seen, "sets_chosen", (json_int_t)info->taken);

        if (info->chosen[0])
            json_object_set_new(p, "chosen", json_string(info->chosen));
        json_array_append_new(policies, p);
    }
    return ctl_json_print(json_pack("{s:I, s:o, s:o, s:o}", "under_way", (json_int_t)r->under_way, "jobs", jobs, "targets", targets, "policies", policies));
}

static int print_jobs(const Fp__CtlDrainReply *r)
{
    static const struct fp_table_col cols[] = {{"job", true}, {"path", false}, {"to", false}, {"state", false}, {"files", true}, {"size", true}, {"done", true}, {"why", false}};
    struct fp_table *t = fp_table_new(cols, sizeof cols / sizeof *cols);
    char replaced[REPLACED_BUF], again[CTL_AGAIN_BUF];

    for (size_t i = 0; i < r->n_jobs; i++) {
        const Fp__DrainJob *j = r->jobs[i];

        fp_table_cell(t, "%llu", (unsigned long long)j->id);
        fp_table_cell(t, "%.*s", (int)j->what.len, (const char *)j->what.data);
        fp_table_cell(t, "%s", *j->to ? j->to : j->kind == FP__JOB_KIND__JOB_EVICT ? "(evicted)" : "(staged in)");
        fp_table_cell_styled(t, verdict(j->state) > 0 ? FP_STYLE_BAD : FP_STYLE_NONE, "%s", state_word(j->state));
        fp_table_cell(t, "%llu", (unsigned long long)j->files);
        fp_table_cell_size(t, j->bytes);
        fp_table_cell_percent(t, j->bytes_done, j->bytes);
        fp_table_cell(t, "%s%s%s%s", replaced_text(j, replaced), j->replaced && *j->why ? "; " : "", j->why, ctl_again_text(again, j->again_s));
    }
    int rc = fp_table_print(t, stdout);
    fp_table_free(t);
    return rc;
}

static int print_targets(const Fp__CtlDrainReply *r)
{
    static const struct fp_table_col cols[] = {{"target", false}, {"state", false}, {"rate", true}, {"queued", true}, {"who", false}};
    struct fp_table *t = fp_table_new(cols, sizeof cols / sizeof *cols);
    char rate[FP_UNITS_BUF];

    for (size_t i = 0; i < r->n_targets; i++)
        for (size_t k = 0; k < r->targets[i]->n_states; k++) {
            const Fp__TargetState *s = r->targets[i]->states[k];

            fp_table_cell(t, "%s", r->targets[i]->root);
            fp_table_cell_styled(t, s->code > FP__TARGET_CODE__TARGET_OK ? FP_STYLE_BAD : FP_STYLE_NONE, "%s", state_of(s));
            fp_table_cell(t, "%s", fp_format_rate(rate, s->rate));
            fp_table_cell_size(t, s->queued_bytes);
            fp_table_cell(t, "%s", s->why);
        }
    int rc = fp_table_print(t, stdout);
    fp_table_free(t);
    return rc;
}

static int run_show(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__CtlDrain q = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply *r = NULL;
    int rc = ask(l, &q, &r);

    (void)store;
    if (rc < 0)
        return ctl_link_failed(l, rc, "drain show");
    if (o->json) {
        rc = json_all(r);
    } else {
        ctl_print_title("JOBS");
        rc = print_jobs(r);
        ctl_print_title("TARGETS");
        rc = rc < 0 ? rc : print_targets(r);
        ctl_print_title("POLICIES");
        for (size_t i = 0; i < r->n_policies; i++)
            printf("%llu  %s  (%llu of %llu sets)%s%s\n", (unsigned long long)r->policies[i]->id, r->policies[i]->text, (unsigned long long)r->policies[i]->taken,
                   (unsigned long long)r->policies[i]->seen, r->policies[i]->chosen[0] ? "  " : "", r->policies[i]->chosen);
        rc = rc < 0 ? rc : ctl_flush();
    }
    fp__ctl_drain_reply__free_unpacked(r, NULL);
    return rc;
}

const struct ctl_cmd ctl_cmd_drain_show = {
    .words = "drain show",
    .args = "[PATH]",
    .options = "",
    .help = "Lists jobs of draining, those that are not over before others, how the targets are on each node, and the policies.",
    .more = "With --json, under_way is how many jobs are not over yet, also of those that are not listed.",
    .run = run_show,
};

/* ---------------------------------------------------------------- drain cancel, set, remove */

static int number(const char *what, const char *text, uint64_t *out)
{
    const char *why = NULL;
    int64_t n;

    if (fp_parse_int(text, &n, &why) || n < 1) {
        FP_ERROR("%s '%s': give its number, as fpctl drain show lists it", what, text);
        return -EINVAL;
    }
    *out = (uint64_t)n;
    return 0;
}

static int run_cancel(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__CtlDrain q = FP__CTL_DRAIN__INIT;
    Fp__CtlDrainReply *r = NULL;
    int rc = number("job", o->names[0], &q.id);

    (void)store;
    if (rc < 0)
        return rc;
    q.op = FP__DRAIN_OP__DRAIN_OP_CANCEL;
    rc = ask(l, &q, &r);
    if (rc < 0)
        return ctl_link_failed(l, rc, "drain cancel");
    rc = refused(r);
    fp__ctl_drain_reply__free_unpacked(r, NULL);
    if (rc == 0 && o->json)
        return ctl_json_print(json_pack("{s:I}", "job", (json_int_t)q.id));
    return rc;
}

const struct ctl_cmd ctl_cmd_drain_cancel = {
    .words = "drain cancel",
    .args = "JOB [PATH]",
    .options = "",
    .help = "Ends a job of draining. Files that have their name in the target stay there, temporary files are removed.",
    .run = run_cancel,
};

static int policy(const struct ctl_options *o, struct ctl_link *l, Fp__Policy *q)
{
    ProtobufCMessage *reply = NULL;
    int rc = ctl_link_call(l, FP__MSG_TYPE__MSG_POLICY, &q->base, &fp__policy_reply__descriptor, &reply);

    if (rc < 0)
        return ctl_link_failed(l, rc, o->cmd->words);
    const Fp__PolicyReply *r = (const Fp__PolicyReply *)reply;
    uint64_t id = r->id;

    if (*r->why) {
        FP_ERROR("%s", r->why);
        rc = -EINVAL;
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    if (rc < 0)
        return rc;
    if (o->json)
        return ctl_json_print(json_pack("{s:I}", "policy", (json_int_t)id));
    if (!q->remove)
        printf("policy %llu\n", (unsigned long long)id);
    return ctl_flush();
}

static int run_set(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    static struct fp_drain_policy p;
    char why[FP_DRAIN_WHY_MAX];
    Fp__Policy q = FP__POLICY__INIT;
    int rc;

    (void)store;
    q.text = (char *)(uintptr_t)o->names[0];
    rc = fp_drain_parse(o->names[0], &p, why) ? 0 : ctl_target_try(o, l, p.to); /* what is wrong with its words the manager says */
    return rc < 0 ? rc : policy(o, l, &q);
}

const struct ctl_cmd ctl_cmd_drain_set = {
    .words = "drain set",
    .args = "TEXT [PATH]",
    .options = "",
    .help = "Makes a policy of draining, such as 'to=/lustre/proj/run every=4': each 4th checkpoint set that is complete from now on is drained by itself.",
    .more = "It stays until it is removed. every=none: nothing by itself. Where fpctl drain is not told a target, it takes that of the policies.",
    .run = run_set,
};

static int run_remove(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__Policy q = FP__POLICY__INIT;
    int rc = number("policy", o->names[0], &q.remove);

    (void)store;
    return rc < 0 ? rc : policy(o, l, &q);
}

const struct ctl_cmd ctl_cmd_drain_remove = {
    .words = "drain remove",
    .args = "POLICY [PATH]",
    .options = "",
    .help = "Removes a policy of draining, by its number. Jobs that have begun go on.",
    .run = run_remove,
};
