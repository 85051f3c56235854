/*
 * What is done with the store of a job before and after the application (see start.h): policies of draining, staging in and out, the end.
 *
 * By fpctl, whose lines and progress the user sees in the job's output as he would if he had called it. At the end each step has the time that the job has
 * left: what is not done by then is said, and benefactors that had begun leave whole files or none.
 * Of signals, only a second ^C ends that (job_given_up): Slurm sends SIGTERM when the job's time is over, and that is when data has to be brought out.
 */
#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fp/beside.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/limited.h"
#include "fp/log.h"
#include "fp/stall.h"
#include "fp/units.h"
#include "fp/command.h"
#include "fp/ctlwire.h"
#include "jobscripts/script/drainwords.h"
#include "jobscripts/script/paths.h"
#include "jobscripts/enter.h"
#include "jobscripts/fpctl_call.h"
#include "jobscripts/found.h"
#include "jobscripts/launch/shared.h"
#include "jobscripts/start.h"
#include "jobscripts/steps_int.h"
#include "jobscripts/steptime.h"

#define RELEASE_MS  5000u
#define STOP_MS     60000u
#define STALLED     6
#define STALL_LATER 10u /* what was seen to stand still is waited for again a part of --stall */
#define SETTLE_MS   65000u /* a little more than fp-manager --ckpt-late is by default */
#define REPORTS_MS  3000u /* in which each mount that is connected has told the manager how it is, with room */
#define ASKED_TIMES 5       /* in a row without an answer: a manager that is started again has one */
#define ANSWER_BYTES ((size_t)1 << 30) /* of fpctl: some hundred bytes for each file of a checkpoint, two thousand for each node */
#define GIVEN_UP    "nothing moves any more, for the reason above, and it is waited for no longer (--stall of fp-job)"

bool job_steps_needed(const struct job_declared *d)
{
    return job_declared_drain(d) || d->nout || job_declared_auxapp(d, "convert");
}

/* ---------------------------------------------------------------- after */

/* The time for bringing data out: it ends at until_ms, or with the job. */
struct after {
    struct job_call call;
    uint64_t until_ms;
    uint64_t over_ms; /* then the step that has begun last is killed */
    bool stood; /* something of it has stood still for --stall */
    bool away;  /* the mount is, and was waited for */
};

/* How long the next step may stand still. Another target may be well; but if it is the same one, all steps together are not to wait for it much longer. */
static uint64_t stall_ms(const struct job_run_of *r, const struct after *a)
{
    return a->stood ? r->stall_ms / STALL_LATER : r->stall_ms;
}

/* Until the step that has begun last is killed: at least for fpctl to say what is not done. */
static uint64_t rest_ms(const struct after *a)
{
    uint64_t now = fp_now_ms();

    return a->over_ms > now ? a->over_ms - now : 1;
}

/* fpctl, which is waited for while something moves, and for ms at most. Its exit code, or negative. */
static int run_moving(const struct job_run_of *r, struct after *a, uint64_t ms)
{
    int rc;

    job_call_add_timeout(&a->call, ms);
    job_call_add_stall(&a->call, stall_ms(r, a));
    rc = job_call_run(&a->call, rest_ms(a));
    a->stood |= rc == STALLED;
    return rc;
}

/* What there is for a step (steptime.h). *why: what will have ended it. */
static uint64_t step_ms(const struct job_run_of *r, struct after *a, const char **why)
{
    struct job_steptime t;
    uint64_t left, now;

    (void)job_alloc_left_ms(&r->alloc, &left); /* not known: until_ms counts */
    now = fp_now_ms();
    t = job_steptime(left, a->until_ms > now ? a->until_ms - now : 0);
    *why = t.by_job ? "the job's time is over" : "the time for it is over (--timeout of fp-job)";
    a->over_ms = now + t.work_ms + t.slack_ms;
    return t.work_ms;
}

static uint64_t answer_ms(const struct job_run_of *r, struct after *a)
{
    const char *why;
    uint64_t ms = step_ms(r, a, &why);

    return ms < ANSWER_MS ? ms : ANSWER_MS;
}

/* What fpctl prints with --json; NULL: it does not say. */
static json_t *ask(const struct job_run_of *r, struct after *a, const char *const *words)
{
    uint64_t rest = rest_ms(a);
    struct job_call *c = &a->call;
    char *text;
    json_t *all;
    int rc;

    job_call_begin(c, r, words);
    c->words[c->n] = NULL;
    rc = fp_command_long(c->words, rest < POLICY_MS ? rest : POLICY_MS, ANSWER_BYTES, &text);
    job_call_forget(c);
    all = rc == 0 ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return all;
}

static uint64_t number(const json_t *of, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(of, name));
}

/* Files that were closed, and perhaps not published yet (fp-mount --close behind), and the path of one of them. More locks than are told may be in front of all of these: then there may be one. Negative: it is not
 * known. */
static int closed_behind(const struct job_run_of *r, struct after *a, char path[PATH_MAX])
{
    json_t *all = ask(r, a, (const char *const[]){"locks", "--json", NULL}), *one;
    const char *of;
    int n = all ? 0 : -EIO;
    size_t i;

    json_array_foreach(json_object_get(all, "locks"), i, one)
        if (json_is_true(json_object_get(one, "behind"))) {
            of = json_string_value(json_object_get(one, "path"));
            snprintf(path, PATH_MAX, "%s", of ? of : "");
            n++;
        }
    if (n == 0 && json_is_true(json_object_get(all, "more")))
        n = snprintf(path, PATH_MAX, "one of those with more locks than can be told") > 0;
    json_decref(all);
    return n;
}

/* A mount that is cut off, or of which the manager has no report, may have anything. */
static bool has_reported(const json_t *mount)
{
    const char *close = json_string_value(json_object_get(mount, "close"));

    return json_is_true(json_object_get(mount, "connected")) && close && close[0];
}

/* What mounts have to store and to publish, by steps: bytes that are only in memory have two before them. Not known of one: as if it were all. */
static uint64_t left_to_store(const struct job_run_of *r, struct after *a)
{
    json_t *all = ask(r, a, (const char *const[]){"status", "--json", NULL}), *one;
    uint64_t n = all ? 0 : UINT64_MAX;
    size_t i;

    json_array_foreach(json_object_get(all, "mounts"), i, one)
        n = has_reported(one) && n != UINT64_MAX ? n + 2 * number(one, "dirty_bytes") + number(one, "uncommitted_bytes") : UINT64_MAX;
    json_decref(all);
    return n;
}

/* Nothing was left for so long that all mounts have said it since: a file that is not let go is one that some program has still open. */
static bool is_all_stored(uint64_t left, uint64_t *since_ms)
{
    uint64_t now = fp_now_ms();

    *since_ms = left ? 0 : *since_ms ? *since_ms : now;
    return *since_ms && now - *since_ms >= REPORTS_MS;
}

/* The application has ended, and what mounts have of it in memory alone nobody brings out: what is drained is what was published. */
static int wait_for_closed(const struct job_run_of *r, struct after *a)
{
    static const struct timespec pause = {0, 200000000};
    uint64_t until, left, stored_ms = 0;
    char path[PATH_MAX] = "";
    struct fp_stall stall = {0};
    const char *why;
    int n, failed = 0;

    until = step_ms(r, a, &why) + fp_now_ms();
    while ((n = closed_behind(r, a, path)) != 0 && fp_now_ms() < until && !job_given_up()) {
        if (n < 0 && ++failed == ASKED_TIMES)
            break;
        failed = n < 0 ? failed : 0;
        left = n < 0 ? UINT64_MAX : left_to_store(r, a);
        if (is_all_stored(left, &stored_ms))
            return 0;
        if (fp_stall_over(&stall, fp_now_ms(), UINT64_MAX - left, true, stall_ms(r, a))) {
            a->stood = true;
            why = "it is waited for no longer (--stall of fp-job)";
            break;
        }
        nanosleep(&pause, NULL);
    }
    if (n < 0)
        FP_ERROR("whether all that was closed is stored is not known: the store does not say");
    else if (n)
        FP_ERROR("%d file%s, such as %s, %s closed and not stored yet, and %s", n, n == 1 ? "" : "s", path, n == 1 ? "is" : "are", job_given_up() ? "fp-job was interrupted" : why);
    return n ? -EIO : 0;
}

/* What was closed of some files is lost: nothing that is brought out of them is what the application was told is there. In a store that outlives its jobs an earlier
 * one may have lost them. */
static int look_for_lost(const struct job_run_of *r, struct after *a)
{
    const char *why;
    uint64_t ms = step_ms(r, a, &why); /* that this step has */
    json_t *all = !ms ? NULL : ask(r, a, (const char *const[]){"status", "--json", NULL}), *lost = json_object_get(all, "lost");
    size_t n = (size_t)json_integer_value(json_object_get(all, "lost_files"));
    const char *one = n ? json_string_value(json_array_get(lost, 0)) : NULL;

    if (!all)
        FP_ERROR("whether something that was closed is lost is not known: the store does not say");
    if (n)
        FP_LOG_AT(r->declared.store.persistent ? FP_LOG_WARN : FP_LOG_ERROR,
                  "%zu%s file%s, such as %s, %s not what was closed: it was lost before it was stored (close=behind); what is brought out of %s isn't, either", n, n >= FP_LOST_COUNTED_MAX ? " or more" : "", n == 1 ? "" : "s",
                  one ? one : "?", n == 1 ? "is" : "are", n == 1 ? "it" : "them");
    json_decref(all);
    return !all || (n && !r->declared.store.persistent) ? -EIO : 0;
}

/* The newest sets of each series, these together and the newest first. */
struct sets {
    json_t *all;
    const char *open; /* one that is; NULL: none */
    bool complete;    /* one is */
};

static const char *word(const json_t *of, const char *name)
{
    const char *text = json_string_value(json_object_get(of, name));

    return text ? text : "";
}

/* 0, or negative: it is not known. */
static int look_at_sets(const struct job_run_of *r, struct after *a, struct sets *s)
{
    json_t *one;
    size_t i;

    json_decref(s->all);
    *s = (struct sets){.all = ask(r, a, (const char *const[]){"checkpoints", "--json", NULL})};
    json_array_foreach(json_object_get(s->all, "checkpoints"), i, one)
    {
        if (!s->open && strcmp(word(one, "state"), "open") == 0)
            s->open = word(one, "path");
        s->complete |= strcmp(word(one, "state"), "complete") == 0;
    }
    return s->all ? 0 : -EIO;
}

/* The newest of a series of which an older one is drained at the end. */
static void say_passed_over(const struct sets *s)
{
    const char *series = "";
    json_t *one;
    size_t i;

    json_array_foreach(json_object_get(s->all, "checkpoints"), i, one)
    {
        bool torn = strcmp(word(one, "state"), "torn") == 0, newest = strcmp(series, word(one, "series")) != 0;

        series = word(one, "series");
        if (newest && (torn || number(one, "files_before")))
            FP_WARN("the newest checkpoint, %s, %s: the one before it is drained, if there is one", word(one, "path"), torn ? "is torn" : "has fewer files than those before it and seems to be half of one");
    }
}

/* Until none is open, for SETTLE_MS at most. */
static void wait_for_sets(const struct job_run_of *r, struct after *a)
{
    static const struct timespec pause = {0, 200000000};
    const char *why;
    uint64_t left = step_ms(r, a, &why), until = fp_now_ms() + (left < SETTLE_MS ? left : SETTLE_MS);
    struct sets s = {0};

    while (look_at_sets(r, a, &s) == 0 && s.open && fp_now_ms() < until && !job_given_up())
        nanosleep(&pause, NULL);
    json_decref(s.all);
}

/* The application has closed its files, but a set is complete only some time after that (fp-manager --ckpt-quiet). *last: there is a complete one of some series,
 * and those alone are drained. 0, or negative: then one that is still open is not. */
static int settle_sets(const struct job_run_of *r, struct after *a, bool *last)
{
    static const struct timespec pause = {0, 200000000};
    const char *why;
    uint64_t left = step_ms(r, a, &why), until = fp_now_ms() + (left < SETTLE_MS ? left : SETTLE_MS);
    struct sets s = {0};
    int rc = 0;

    if (left >= SETTLE_MS)
        why = "it has been waited for for a minute";
    while (look_at_sets(r, a, &s) == 0 && s.open && fp_now_ms() < until && !job_given_up())
        nanosleep(&pause, NULL);
    *last = s.complete;
    if (s.complete)
        say_passed_over(&s);
    if (s.complete && s.open) {
        FP_ERROR("the checkpoint %s is not drained: it has not become complete, and %s; fpctl checkpoint commit, called when it is written, makes it so at once", s.open,
                 job_given_up() ? "fp-job was interrupted" : why);
        rc = -EIO;
    }
    json_decref(s.all);
    return rc;
}

/* A path in which nothing is a sign of a pattern. out has room for twice its length. */
static void escape(char *out, const char *path)
{
    for (; *path; path++) {
        if (strchr("*?[\\", *path))
            *out++ = '\\';
        *out++ = *path;
    }
    *out = '\0';
}

/* An end of fpctl drain that was not good, said. */
static int not_drained(const char *what, int rc, const char *why)
{
    if (rc == TIMED_OUT)
        FP_ERROR("not all %sis drained, and %s", what, why);
    else if (rc == STALLED)
        FP_ERROR("not all %sis drained: " GIVEN_UP, what);
    else if (rc && job_given_up())
        FP_ERROR("not all %sis drained: interrupted", what);
    else if (rc)
        FP_ERROR("not all %sis drained: fpctl drain has ended with %d", what, rc);
    return rc ? -EIO : 0;
}

/* As the policy has it there: what is in the target as a log would be copied once more as files. */
static void add_layout(struct job_call *c, uint32_t layout)
{
    if (layout == FP_DRAIN_LOG)
        job_call_add(c, "--layout=log");
}

/* Everything, or the newest complete set of each series. */
static int drain_now(const struct job_run_of *r, bool last, uint32_t layout, struct after *a)
{
    struct job_call *c = &a->call;
    char text[FP_UNITS_BUF];
    const char *why;
    uint64_t ms;

    job_call_begin(c, r, (const char *const[]){"drain", last ? "--last" : "--all", "--wait", NULL});
    ms = step_ms(r, a, &why);
    add_layout(c, layout);
    if (last)
        job_call_add(c, "/");
    FP_INFO("draining what is not drained yet, for %s at most", fp_format_duration(text, ms));
    return not_drained("", run_moving(r, a, ms), why);
}

/* Files of the store that a pattern of results= names: those that the policy would drain when they have been quiet for some time. */
static int find_results(const struct job_run_of *r, const char *pattern, size_t len, struct after *a, struct job_found *g)
{
    char path[3 * PATH_MAX];
    int rc;

    escape(path, r->record.mount);
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%.*s", (int)len, pattern);
    rc = job_found_in_store(g, r->record.mount, path, GLOB_MARK | GLOB_PERIOD, answer_ms(r, a), &a->away);
    if (rc && rc != -ENOENT)
        FP_ERROR("what is of the name %.*s (results= of #FP auxapp drain) can't be seen in the store, on %s: %s", (int)len, pattern, r->record.mount, fp_strerror(rc));
    return rc == -ENOENT ? 0 : rc;
}

static int drain_results(const struct job_run_of *r, const struct fp_drain_policy *p, struct after *a)
{
    size_t skip = strlen(r->record.mount), len, n = 0;
    const char *list = p->results, *item, *why = "";
    struct job_found g = {0};
    int rc = 0;

    while (fp_drain_next(&list, &item, &len))
        rc = find_results(r, item, len, a, &g) ? -EIO : rc;
    for (size_t i = 0; i < g.n;) {
        struct job_call *c = &a->call;
        uint64_t ms = step_ms(r, a, &why);

        job_call_begin(c, r, (const char *const[]){"drain", "--wait", NULL});
        add_layout(c, p->layout);
        for (n = 0; i < g.n && n < JOB_CALL_PATHS_MAX; i++)
            if (g.paths[i][strlen(g.paths[i]) - 1] != '/') { /* a pattern means files */
                job_call_add(c, g.paths[i] + skip);
                n++;
            }
        if (n)
            rc = not_drained("of what results= names ", run_moving(r, a, ms), why) ? -EIO : rc;
        job_call_forget(c);
    }
    job_found_fini(&g);
    return rc;
}

/* What the store drains by itself. */
struct chosen {
    bool stands;   /* no job goes on */
    uint64_t done; /* files and bytes of all of them */
    char why[512]; /* of one that does not */
};

/* How many jobs of draining are not over. Negative: it is not known. */
static int under_way(const struct job_run_of *r, struct after *a, struct chosen *of)
{
    json_t *all = ask(r, a, (const char *const[]){"drain", "show", "--json", NULL}), *one, *n = json_object_get(all, "under_way");
    int rc = json_is_integer(n) ? (int)json_integer_value(n) : -EIO;
    size_t i;

    *of = (struct chosen){.stands = true};
    json_array_foreach(json_object_get(all, "jobs"), i, one)
    {
        const char *state = json_string_value(json_object_get(one, "state")), *kind = json_string_value(json_object_get(one, "kind"));
        const char *why = json_string_value(json_object_get(one, "why")), *to = json_string_value(json_object_get(one, "to"));
        bool goes_on;

        if (!state || !kind || strcmp(kind, "evict") == 0 || strcmp(kind, "stage-in") == 0)
            continue;
        goes_on = strcmp(state, "waiting") == 0 || strcmp(state, "running") == 0 || strcmp(state, "finishing") == 0;
        of->done += number(one, "files_done") + number(one, "bytes_done");
        of->stands &= !goes_on || json_is_true(json_object_get(one, "stalled"));
        if (goes_on && to && why && *why)
            snprintf(of->why, sizeof of->why, "to %s: %s", to, why);
    }
    json_decref(all);
    return rc;
}

/* Sets that the policy has chosen and that could not be drained when they were: what was in the way may be gone. */
static int drain_failed(const struct job_run_of *r, struct after *a)
{
    struct job_call *c = &a->call;
    const char *why;
    uint64_t ms = step_ms(r, a, &why);

    job_call_begin(c, r, (const char *const[]){"drain", "--failed", "--wait", NULL});
    return not_drained("that every= has chosen ", run_moving(r, a, ms), why);
}

/* Sets that the policy has chosen, and a slow target has not taken yet. */
static int wait_for_chosen(const struct job_run_of *r, struct after *a)
{
    static const struct timespec pause = {0, 200000000};
    const char *why;
    uint64_t ms = step_ms(r, a, &why), until = fp_now_ms() + ms;
    struct fp_stall stall = {0};
    struct chosen of;
    int n;

    while ((n = under_way(r, a, &of)) > 0 && fp_now_ms() < until && !job_given_up()) {
        if (fp_stall_over(&stall, fp_now_ms(), of.done, of.stands, stall_ms(r, a))) {
            FP_ERROR("%s", of.why);
            why = GIVEN_UP;
            break;
        }
        nanosleep(&pause, NULL);
    }
    if (n < 0)
        FP_ERROR("whether all that every= has chosen is drained is not known: the store does not say");
    else if (n)
        FP_ERROR("not all that every= has chosen is drained, and %s", job_given_up() ? "fp-job was interrupted" : why);
    return n ? -EIO : drain_failed(r, a);
}

/* The files of one set, in calls of as many as one takes. */
static int drain_files(const struct job_run_of *r, const json_t *files, uint32_t layout, struct after *a)
{
    struct job_call *c = &a->call;
    size_t n = json_array_size(files), i = 0;
    const char *why;
    int rc = 0;

    while (i < n) {
        uint64_t ms = step_ms(r, a, &why);

        job_call_begin(c, r, (const char *const[]){"drain", "--wait", NULL});
        add_layout(c, layout);
        for (size_t k = 0; i < n && k < JOB_CALL_PATHS_MAX; i++, k++)
            job_call_add(c, word(json_array_get(files, i), "path"));
        rc = not_drained("", run_moving(r, a, ms), why) ? -EIO : rc;
    }
    return rc;
}

/* The newest complete set of each series that a policy's pattern names, or that conversions have made: --last would have the dumps that these were made of, too. */
static int drain_matching(const struct job_run_of *r, uint32_t layout, struct after *a)
{
    json_t *all = ask(r, a, (const char *const[]){"checkpoints", "--json", NULL}), *one, *with;
    char series[PATH_MAX] = "", path[PATH_MAX];
    int rc = all ? 0 : -EIO;
    size_t i, k;

    if (!all)
        FP_ERROR("which results are to be drained is not known: the store does not say");
    json_array_foreach(json_object_get(all, "checkpoints"), i, one)
    {
        bool meant = strcmp(word(one, "how"), "pattern") == 0 || strcmp(word(one, "how"), "converted") == 0;
        json_t *its;

        if (!meant || strcmp(word(one, "state"), "complete") != 0 || strcmp(series, word(one, "series")) == 0)
            continue;
        snprintf(series, sizeof series, "%s", word(one, "series"));
        snprintf(path, sizeof path, "%s", word(one, "path"));
        *(strrchr(path, '/') ? strrchr(path, '/') : path) = '\0';
        with = ask(r, a, (const char *const[]){"checkpoints", "--json", "--files", path[0] ? path : "/", NULL});
        json_array_foreach(json_object_get(with, "checkpoints"), k, its)
            if (number(its, "step") == number(one, "step") && strcmp(word(its, "series"), series) == 0)
                rc = drain_files(r, json_object_get(its, "files_of_it"), layout, a) ? -EIO : rc;
        rc = with ? rc : -EIO;
        if (!with)
            FP_ERROR("%s is not drained: the store does not say which files it has", word(one, "path"));
        json_decref(with);
    }
    json_decref(all);
    return rc;
}

/* Everything; of a job that wants some of its checkpoints drained, these and the newest ones, if what it wrote are any, and the results that it names. */
static int drain_rest(const struct job_run_of *r, struct after *a)
{
    const struct job_auxapp *drain = job_declared_drain(&r->declared);
    char text[FP_DRAIN_TEXT_MAX], why[FP_DRAIN_WHY_MAX];
    static struct fp_drain_policy p;
    bool last = false, some, results_only;
    int rc = 0;

    if (!drain)
        return 0;
    if (job_drain_words(drain->line, job_expand, text) || fp_drain_parse(text, &p, why))
        return drain_now(r, false, FP_DRAIN_FILE, a); /* it was good at the start: a variable has gone since */
    results_only = p.pattern[0] && job_declared_auxapp(&r->declared, "convert");
    some = (p.every != 1 && !p.all) || results_only;
    if (some && p.every != FP_DRAIN_EVERY_NONE)
        rc = settle_sets(r, a, &last);
    if (results_only)
        rc = drain_matching(r, p.layout, a) ? -EIO : rc;
    else if (!some || last || p.every != FP_DRAIN_EVERY_NONE)
        rc = drain_now(r, last, p.layout, a) ? -EIO : rc;
    if (some)
        rc = drain_results(r, &p, a) ? -EIO : rc;
    if (some)
        rc = wait_for_chosen(r, a) ? -EIO : rc;
    return rc;
}

/* The directory of the store in which all dumps of the pattern are: those of others in the same store are not waited for. */
static void conversions_below(const struct job_run_of *r, char path[PATH_MAX])
{
    const struct job_auxapp *convert = job_declared_auxapp(&r->declared, "convert");
    const struct job_word *w = job_line_word(convert->line, "pattern");
    const char *pattern = w ? w->text + w->value : "";
    size_t n = strcspn(pattern, "*?[$");

    while (n && pattern[n - 1] != '/')
        n--;
    snprintf(path, PATH_MAX, "/%.*s", n ? (int)n - 1 : 0, pattern);
}

/* Dumps that aux-app convert has not made a result of yet; sets that are not complete by now won't be. What is brought out afterwards has the results in it. */
static int wait_for_conversions(const struct job_run_of *r, struct after *a)
{
    struct job_call *c = &a->call;
    char text[FP_UNITS_BUF], path[PATH_MAX], dir[2 * PATH_MAX];
    const char *why;
    uint64_t ms;
    int rc;

    if (!job_declared_auxapp(&r->declared, "convert"))
        return 0;
    wait_for_sets(r, a); /* a set is converted when it is complete */
    ms = step_ms(r, a, &why) / 2; /* what is converted by then is brought out in any case */
    FP_INFO("waiting for what is converted, for %s at most", fp_format_duration(text, ms));
    conversions_below(r, path);
    snprintf(dir, sizeof dir, "%s%s", r->record.mount, path);
    if (job_found_is_there(r->record.mount, dir, answer_ms(r, a), &a->away) == -ENOENT)
        return 0; /* nothing was dumped */
    job_call_begin(c, r, (const char *const[]){"conversions", "--wait", path, NULL});
    job_call_add_timeout(c, ms);
    rc = job_call_run(c, rest_ms(a));
    if (rc == TIMED_OUT)
        FP_ERROR("not all dumps are converted, and half of what was left is over (%s)", why);
    else if (rc && job_given_up())
        FP_ERROR("not all dumps are converted: interrupted");
    else if (rc)
        FP_ERROR("not all dumps are converted: see the lines above");
    return rc ? -EIO : 0;
}

/* What of a name stands below the directory; NULL: it is not in there. */
static const char *below(const char *name, const char *dir)
{
    size_t n = strlen(dir);

    return strncmp(name, dir, n) == 0 && name[n] == '/' ? name + n + 1 : NULL;
}

/* Its path where the store is mounted, if it is called by the path that mount= says, relative, or as it is. */
static const char *in_store(const struct job_run_of *r, const char *name)
{
    char declared[PATH_MAX];
    const char *inner = below(name, r->record.mount);

    if (!inner && job_expand(declared, r->declared.store.mount) == 0) {
        job_path_plain(declared);
        inner = below(name, declared);
    }
    return inner ? inner : name;
}

/* Files of the store that a pattern names, behind those that g has, if it answers within limit_ms. 0, or negative and logged: none is an error, since somebody waits for it. */
static int add_names(const struct job_run_of *r, const char *pattern, struct after *a, struct job_found *g)
{
    uint64_t limit_ms = answer_ms(r, a);
    char name[PATH_MAX], path[3 * PATH_MAX];
    int rc = job_steps_expand("stage-out", pattern, name);

    if (rc)
        return rc;
    escape(path, r->record.mount);
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%s", in_store(r, name));
    rc = job_found_in_store(g, r->record.mount, path, 0, limit_ms, &a->away);
    if (rc == -ETIMEDOUT) {
        FP_ERROR("#FP stage-out %s: the store, on %s, has not answered for %llu s, and nobody knows what is of that name", pattern, r->record.mount, (unsigned long long)(limit_ms / 1000));
        return rc;
    }
    if (rc)
        FP_ERROR("#FP stage-out %s: %s", pattern, rc == -ENOENT ? "there is nothing of that name in the store" : fp_strerror(rc));
    return rc;
}

/* All of them are tried while there is time: what can be brought out is. Exit code of fpctl for the last that was not, with why it was late. */
static int stage_out_paths(const struct job_run_of *r, const struct job_stage *s, const char *to, const struct job_found *g, struct after *a, const char **why)
{
    uint64_t until = fp_now_ms() + s->timeout_ms;
    struct job_call *c = &a->call;
    int rc = 0;

    for (size_t i = 0; rc != TIMED_OUT && rc != STALLED && i < g->n;) {
        uint64_t ms = step_ms(r, a, why), now = fp_now_ms();
        int one;

        if (now + ms > until) {
            ms = until > now + STEP_LEAST ? until - now : STEP_LEAST;
            *why = "its time is over (timeout=)";
        }
        job_call_begin(c, r, (const char *const[]){"stage-out", NULL});
        i += job_call_add_some(c, g->paths + i, g->n - i, strlen(r->record.mount)); /* as the store calls them */
        if (to[0])
            job_call_add(c, to);
        one = run_moving(r, a, ms);
        rc = one ? one : rc;
    }
    return rc;
}

static int stage_out_one(const struct job_run_of *r, const struct job_stage *s, struct after *a)
{
    char name[PATH_MAX], to[PATH_MAX + 8] = "", buf[JOB_LINE_NAME_BYTES];
    const char *why = "";
    struct job_found g = {0};
    int missing = 0, rc = 0;

    for (size_t i = 0; missing != -ETIMEDOUT && i < s->paths.count; i++) {
        int one = add_names(r, s->paths.items[i], a, &g);

        missing = one ? one : missing;
    }
    if (s->to && g.n && (rc = job_steps_make_target(s->to, answer_ms(r, a))) == 0 && (rc = job_expand(name, s->to)) == 0)
        snprintf(to, sizeof to, "--to=%s", name);
    if (rc == 0 && g.n)
        rc = stage_out_paths(r, s, to, &g, a, &why);
    job_found_fini(&g);
    if (rc)
        FP_ERROR("#FP stage-out (%s): not all of it was copied%s%s", job_line_name(s->line->line, buf), rc == TIMED_OUT ? ", and " : "",
                 rc == TIMED_OUT ? why : rc == STALLED ? ": " GIVEN_UP : job_given_up() ? ": interrupted" : "");
    return rc || missing ? -EIO : 0;
}

/* It is brought out, or stays in a store that outlives the job. Of any other store nothing is left, and that it has ended by itself is no failure of the job. */
static bool must_be_stored(const struct job_run_of *r)
{
    return job_steps_needed(&r->declared) || r->declared.store.persistent;
}

struct end {
    const struct job_run_of *r;
    int code;
    uint64_t limit_ms;
};

static int after(void *arg)
{
    const struct end *e = arg;
    const struct job_run_of *r = e->r;
    static struct after a = {.call.over = job_given_up};
    int rc = 0;

    a.until_ms = fp_now_ms() + e->limit_ms;
    if (must_be_stored(r))
        rc |= wait_for_closed(r, &a);
    rc |= wait_for_conversions(r, &a);
    for (size_t i = 0; i < r->declared.nout; i++) {
        const struct job_stage *s = &r->declared.out[i];

        if ((s->when == JOB_ON_SUCCESS && e->code) || (s->when == JOB_ON_FAILURE && !e->code))
            continue;
        rc |= stage_out_one(r, s, &a);
    }
    rc |= drain_rest(r, &a);
    if (must_be_stored(r)) /* last: a mount may have died while the rest was brought out */
        rc |= look_for_lost(r, &a);
    return rc ? -EIO : 0;
}

int job_steps_after(const struct job_run_of *r, int code, uint64_t limit_ms)
{
    struct end e = {r, code, limit_ms};

    return job_inside(r->dir, after, &e);
}

int job_steps_stop(const struct job_run_of *r)
{
    static struct job_call c;
    struct job_steptime t;
    uint64_t left;

    (void)job_alloc_left_ms(&r->alloc, &left);
    if (!r->declared.store.persistent && !r->kept) { /* it is removed next; what is said is that a target could not be told */
        job_call_begin(&c, r, (const char *const[]){"drain", "release", NULL});
        t = job_steptime(left, RELEASE_MS);
        job_call_add_timeout(&c, t.work_ms);
        (void)job_call_run(&c, t.work_ms + (t.slack_ms < RELEASE_MS ? t.slack_ms : RELEASE_MS));
    }
    job_call_begin(&c, r, (const char *const[]){"stop", NULL});
    t = job_steptime(left, STOP_MS);
    job_call_add_timeout(&c, t.work_ms);
    return job_call_run(&c, t.work_ms + t.slack_ms) ? -EIO : 0;
}
