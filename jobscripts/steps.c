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
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include "fp/beside.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/limited.h"
#include "fp/log.h"
#include "fp/stall.h"
#include "fp/units.h"
#include "fp/command.h"
#include "jobscripts/script/drainwords.h"
#include "jobscripts/script/paths.h"
#include "jobscripts/enter.h"
#include "jobscripts/found.h"
#include "jobscripts/launch/shared.h"
#include "jobscripts/start.h"
#include "jobscripts/steptime.h"

#define PATHS_MAX   256u /* that one call of fpctl takes */
#define WORDS_MAX   (PATHS_MAX + 32u)
#define POLICY_MS   60000u
#define RELEASE_MS  5000u
#define STOP_MS     60000u
#define TIMED_OUT   3 /* exit codes of fpctl */
#define STALLED     6
#define TIMEOUT_LEAST 100u /* that fpctl takes */
#define STALL_LATER 10u /* what was seen to stand still is waited for again a part of --stall */
#define STEP_LEAST  2000u
#define ANSWER_MS   30000u /* of a file system, for one directory */
#define SETTLE_MS   65000u /* a little more than fp-manager --ckpt-late is by default */
#define SETS_BYTES  (4u << 20)
#define GIVEN_UP    "nothing moves any more, for the reason above, and it is waited for no longer (--stall of fp-job)"

struct call {
    char *words[WORDS_MAX + 1];
    size_t n;
    bool (*over)(void); /* it is killed then; NULL: never before its time */
    char program[PATH_MAX], manager[300], key[PATH_MAX + 16], timeout[40], stall[40];
};

static void add(struct call *c, const char *text)
{
    if (c->n == WORDS_MAX || !(c->words[c->n] = strdup(text)))
        abort();
    c->n++;
}

static void begin(struct call *c, const struct job_run_of *r, const char *const *words)
{
    static const char *const tails[] = {"fpctl", NULL};

    c->n = 0;
    fp_beside(c->program, sizeof c->program, tails);
    add(c, c->program);
    for (; *words; words++)
        add(c, *words);
    snprintf(c->manager, sizeof c->manager, "--manager=%s", r->record.manager);
    snprintf(c->key, sizeof c->key, "--key=%s/key", r->dir);
    add(c, "--config=");
    add(c, c->manager);
    add(c, c->key);
}

static void forget(struct call *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->words[i]);
    c->n = 0;
}

/* As many of the paths as one call takes, each from its byte `skip` on. How many. */
static size_t add_some(struct call *c, char *const *paths, size_t n, size_t skip)
{
    size_t some = n < PATHS_MAX ? n : PATHS_MAX;

    for (size_t i = 0; i < some; i++)
        add(c, paths[i] + skip);
    return some;
}

/* Exit code of fpctl, or negative. */
static int run(struct call *c, uint64_t limit_ms)
{
    int rc;

    c->words[c->n] = NULL;
    rc = fp_command_shown_until(c->words, limit_ms, c->over);
    forget(c);
    return rc;
}

static void add_stall(struct call *c, uint64_t ms)
{
    snprintf(c->stall, sizeof c->stall, "--stall=%llums", (unsigned long long)ms);
    add(c, c->stall);
}

static void add_timeout(struct call *c, uint64_t ms)
{
    snprintf(c->timeout, sizeof c->timeout, "--timeout=%llums", (unsigned long long)(ms > TIMEOUT_LEAST ? ms : TIMEOUT_LEAST));
    add(c, c->timeout);
}

bool job_steps_needed(const struct job_declared *d)
{
    return job_declared_drain(d) || d->nout;
}

/* ---------------------------------------------------------------- before */

/* A target that is not there yet, in a directory that is: made here, since the parallel file system is the same on all nodes. */
static int make_it(const void *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : -errno;
}

static int make_target(const char *text, uint64_t limit_ms)
{
    char path[PATH_MAX];
    int rc = job_expand(path, text);

    rc = rc ? rc : fp_limited(make_it, path, limit_ms);
    if (rc == -ETIMEDOUT)
        FP_ERROR("the directory %s can't be made: its file system has not answered for %llu s", path, (unsigned long long)(limit_ms / 1000));
    else if (rc)
        FP_ERROR("the directory %s can't be made: %s", rc == -ENOENT ? text : path, fp_strerror(rc));
    return rc;
}

int job_steps_target(const struct job_run_of *r, char path[PATH_MAX])
{
    const struct job_auxapp *drain = job_declared_drain(&r->declared);
    const struct job_word *to = drain ? job_line_word(drain->line, "to") : NULL;
    char dir[PATH_MAX];
    int rc;

    path[0] = '\0';
    if (!to)
        return 0;
    rc = make_target(to->text + to->value, ANSWER_MS);
    if (rc || r->alloc.nnodes == 1)
        return rc;
    rc = job_expand(dir, to->text + to->value);
    rc = rc ? rc : job_shared_mark(dir, r->alloc.job, path);
    if (rc)
        FP_ERROR("#FP auxapp %s: nothing can be written to %s: %s", drain->text, dir, fp_strerror(rc));
    return rc;
}

static int set_policy(const struct job_run_of *r, struct call *c)
{
    const struct job_auxapp *drain = job_declared_drain(&r->declared);
    char text[FP_DRAIN_TEXT_MAX];
    int rc;

    if (!drain)
        return 0;
    rc = job_drain_words(drain->line, job_expand, text);
    if (rc) {
        FP_ERROR("#FP auxapp %s: %s%s", drain->text, rc == -ENOENT ? text : rc == -EINVAL ? "a variable in it has a double quote" : fp_strerror(rc), rc == -ENOENT ? " is not set" : "");
        return rc;
    }
    begin(c, r, (const char *const[]){"drain", "set", text, NULL});
    rc = run(c, POLICY_MS);
    if (rc && !job_interrupted())
        FP_ERROR("#FP auxapp %s: the store did not take it", drain->text);
    return rc ? -EIO : 0;
}

struct inner_dirs {
    const struct job_run_of *r;
    const char *inner;
};

/* The directories of a path in the store, made where it is mounted. What can't be made, fpctl says. */
static int make_dirs(const void *arg)
{
    const struct inner_dirs *d = arg;
    const struct job_run_of *r = d->r;
    const char *inner = d->inner;
    char path[2 * PATH_MAX];
    size_t n = (size_t)snprintf(path, sizeof path, "%s/%s", r->record.mount, inner);

    for (size_t i = strlen(r->record.mount) + 1; i <= n && n < sizeof path; i++)
        if (path[i] == '/' || i == n) {
            char was = path[i];

            path[i] = '\0';
            (void)mkdir(path, 0777);
            path[i] = was;
        }
    return 0;
}

/* A path of the script with its variables. 0, or negative and logged. */
static int expand(const char *directive, const char *text, char path[PATH_MAX])
{
    int rc = job_expand(path, text);

    if (rc)
        FP_ERROR("#FP %s %s: %s%s", directive, text, rc == -ENOENT ? path : fp_strerror(rc), rc == -ENOENT ? " is not set" : "");
    return rc ? -EINVAL : 0;
}

/* Exit code of fpctl for the first that did not get there. */
static int stage_in_paths(const struct job_run_of *r, const struct job_stage *s, const char *pattern, const struct job_found *g, struct call *c)
{
    uint64_t until = fp_now_ms() + s->timeout_ms;
    char dir[PATH_MAX + 16], to[PATH_MAX + 8];
    int rc = 0;

    strcpy(dir, "--target=");
    job_path_of_pattern(pattern, dir + strlen(dir));
    snprintf(to, sizeof to, "--to=%s%s", s->to && s->to[0] == '/' ? "" : "/", s->to ? s->to : ""); /* with --manager, paths begin in the store */
    if (s->to && fp_limited(make_dirs, &(struct inner_dirs){r, s->to}, ANSWER_MS) == -ETIMEDOUT) {
        FP_ERROR("#FP stage-in: the store, on %s, has not answered for %u s", r->record.mount, ANSWER_MS / 1000);
        return -ETIMEDOUT;
    }
    for (size_t i = 0; rc == 0 && i < g->n;) {
        uint64_t now = fp_now_ms(), ms = until > now + STEP_LEAST ? until - now : STEP_LEAST;

        begin(c, r, (const char *const[]){"stage-in", NULL});
        i += add_some(c, g->paths + i, g->n - i, 0);
        add(c, to);
        add(c, dir);
        add_timeout(c, ms);
        rc = run(c, ms + POLICY_MS);
    }
    return rc;
}

static int stage_in_one(const struct job_run_of *r, const struct job_stage *s, const char *pattern, struct call *c)
{
    char path[PATH_MAX], text[FP_UNITS_BUF];
    struct job_found g = {0};
    int rc = expand("stage-in", pattern, path);

    if (rc)
        return rc;
    rc = path[0] == '/' ? job_found_add(&g, path, 0, ANSWER_MS) : -EINVAL;
    if (rc == -ENOENT && s->optional)
        return 0;
    if (rc) {
        FP_ERROR("#FP stage-in %s: %s", pattern, rc == -ENOENT ? "there is nothing of that name" : rc == -EINVAL ? "it does not begin with /" : rc == -ETIMEDOUT ? "its file system does not answer" : fp_strerror(rc));
        return rc;
    }
    rc = stage_in_paths(r, s, path, &g, c);
    job_found_fini(&g);
    if (rc == TIMED_OUT)
        FP_ERROR("#FP stage-in %s: not all of it is in the store after %s (timeout=)", pattern, fp_format_duration(text, s->timeout_ms));
    else if (rc)
        FP_ERROR("#FP stage-in %s: not all of it is in the store", pattern);
    return rc ? -EIO : 0;
}

static int before(void *arg)
{
    const struct job_run_of *r = arg;
    static struct call c = {.over = job_interrupted};
    int rc = set_policy(r, &c);

    for (size_t i = 0; rc == 0 && i < r->declared.nin; i++)
        for (size_t k = 0; rc == 0 && k < r->declared.in[i].paths.count; k++)
            rc = stage_in_one(r, &r->declared.in[i], r->declared.in[i].paths.items[k], &c);
    return rc;
}

int job_steps_before(const struct job_run_of *r)
{
    return job_inside(r->dir, before, (void *)(uintptr_t)r);
}

/* ---------------------------------------------------------------- after */

/* The time for bringing data out: it ends at until_ms, or with the job. */
struct after {
    struct call call;
    uint64_t until_ms;
    uint64_t over_ms; /* then the step that has begun last is killed */
    bool stood; /* something of it has stood still for --stall */
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

    add_timeout(&a->call, ms);
    add_stall(&a->call, stall_ms(r, a));
    rc = run(&a->call, rest_ms(a));
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
    struct call *c = &a->call;
    char *text = malloc(SETS_BYTES);
    json_t *all;
    int rc;

    if (!text)
        return NULL;
    begin(c, r, words);
    c->words[c->n] = NULL;
    rc = fp_command(c->words, rest < POLICY_MS ? rest : POLICY_MS, text, SETS_BYTES);
    forget(c);
    all = rc == 0 ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return all;
}

static uint64_t number(const json_t *of, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(of, name));
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
static void add_layout(struct call *c, uint32_t layout)
{
    if (layout == FP_DRAIN_LOG)
        add(c, "--layout=log");
}

/* Everything, or the newest complete set of each series. */
static int drain_now(const struct job_run_of *r, bool last, uint32_t layout, struct after *a)
{
    struct call *c = &a->call;
    char text[FP_UNITS_BUF];
    const char *why;
    uint64_t ms;

    begin(c, r, (const char *const[]){"drain", last ? "--last" : "--all", "--wait", NULL});
    ms = step_ms(r, a, &why);
    add_layout(c, layout);
    if (last)
        add(c, "/");
    FP_INFO("draining what is not drained yet, for %s at most", fp_format_duration(text, ms));
    return not_drained("", run_moving(r, a, ms), why);
}

static int look_at_mount(const void *path)
{
    struct statfs fs;

    return statfs(path, &fs) < 0 ? -errno : fs.f_type == FUSE_SUPER_MAGIC ? 0 : -ENOTCONN;
}

/* The store is mounted here, and the mount is not dead. */
static int is_seen(const struct job_run_of *r, uint64_t limit_ms)
{
    return fp_limited(look_at_mount, r->record.mount, limit_ms);
}

/* Adds those that a pattern of a path means. -ENOENT: there are none, and it is the store that says so, before and afterwards. */
static int find_names(const struct job_run_of *r, const char *path, int flags, uint64_t limit_ms, struct job_found *g)
{
    int rc = is_seen(r, limit_ms), after;

    rc = rc ? rc : job_found_add(g, path, flags, limit_ms);
    after = rc == 0 || rc == -ENOENT ? is_seen(r, limit_ms) : 0;
    return after ? after : rc;
}

/* Files of the store that a pattern of results= names: those that the policy would drain when they have been quiet for some time. */
static int find_results(const struct job_run_of *r, const char *pattern, size_t len, struct after *a, struct job_found *g)
{
    char path[3 * PATH_MAX];
    int rc;

    escape(path, r->record.mount);
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%.*s", (int)len, pattern);
    rc = find_names(r, path, GLOB_MARK | GLOB_PERIOD, answer_ms(r, a), g);
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
        struct call *c = &a->call;
        uint64_t ms = step_ms(r, a, &why);

        begin(c, r, (const char *const[]){"drain", "--wait", NULL});
        add_layout(c, p->layout);
        for (n = 0; i < g.n && n < PATHS_MAX; i++)
            if (g.paths[i][strlen(g.paths[i]) - 1] != '/') { /* a pattern means files */
                add(c, g.paths[i] + skip);
                n++;
            }
        if (n)
            rc = not_drained("of what results= names ", run_moving(r, a, ms), why) ? -EIO : rc;
        forget(c);
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
    struct call *c = &a->call;
    const char *why;
    uint64_t ms = step_ms(r, a, &why);

    begin(c, r, (const char *const[]){"drain", "--failed", "--wait", NULL});
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

/* Everything; of a job that wants some of its checkpoints drained, these and the newest ones, if what it wrote are any, and the results that it names. */
static int drain_rest(const struct job_run_of *r, struct after *a)
{
    const struct job_auxapp *drain = job_declared_drain(&r->declared);
    char text[FP_DRAIN_TEXT_MAX], why[FP_DRAIN_WHY_MAX];
    static struct fp_drain_policy p;
    bool last = false, some;
    int rc = 0;

    if (!drain)
        return 0;
    if (job_drain_words(drain->line, job_expand, text) || fp_drain_parse(text, &p, why))
        return drain_now(r, false, FP_DRAIN_FILE, a); /* it was good at the start: a variable has gone since */
    some = p.every != 1 && !p.all;
    if (some && p.every != FP_DRAIN_EVERY_NONE)
        rc = settle_sets(r, a, &last);
    if (!some || last || p.every != FP_DRAIN_EVERY_NONE)
        rc = drain_now(r, last, p.layout, a) ? -EIO : rc;
    if (some)
        rc = drain_results(r, &p, a) ? -EIO : rc;
    if (some)
        rc = wait_for_chosen(r, a) ? -EIO : rc;
    return rc;
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
static int add_names(const struct job_run_of *r, const char *pattern, uint64_t limit_ms, struct job_found *g)
{
    char name[PATH_MAX], path[3 * PATH_MAX];
    int rc = expand("stage-out", pattern, name);

    if (rc)
        return rc;
    escape(path, r->record.mount);
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%s", in_store(r, name));
    rc = find_names(r, path, 0, limit_ms, g);
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
    struct call *c = &a->call;
    int rc = 0;

    for (size_t i = 0; rc != TIMED_OUT && rc != STALLED && i < g->n;) {
        uint64_t ms = step_ms(r, a, why), now = fp_now_ms();
        int one;

        if (now + ms > until) {
            ms = until > now + STEP_LEAST ? until - now : STEP_LEAST;
            *why = "its time is over (timeout=)";
        }
        begin(c, r, (const char *const[]){"stage-out", NULL});
        i += add_some(c, g->paths + i, g->n - i, strlen(r->record.mount)); /* as the store calls them */
        if (to[0])
            add(c, to);
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
        int one = add_names(r, s->paths.items[i], answer_ms(r, a), &g);

        missing = one ? one : missing;
    }
    if (s->to && g.n && (rc = make_target(s->to, answer_ms(r, a))) == 0 && (rc = job_expand(name, s->to)) == 0)
        snprintf(to, sizeof to, "--to=%s", name);
    if (rc == 0 && g.n)
        rc = stage_out_paths(r, s, to, &g, a, &why);
    job_found_fini(&g);
    if (rc)
        FP_ERROR("#FP stage-out (%s): not all of it was copied%s%s", job_line_name(s->line->line, buf), rc == TIMED_OUT ? ", and " : "",
                 rc == TIMED_OUT ? why : rc == STALLED ? ": " GIVEN_UP : job_given_up() ? ": interrupted" : "");
    return rc || missing ? -EIO : 0;
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

    for (size_t i = 0; i < r->declared.nout; i++) {
        const struct job_stage *s = &r->declared.out[i];

        if ((s->when == JOB_ON_SUCCESS && e->code) || (s->when == JOB_ON_FAILURE && !e->code))
            continue;
        rc |= stage_out_one(r, s, &a);
    }
    rc |= drain_rest(r, &a);
    return rc ? -EIO : 0;
}

int job_steps_after(const struct job_run_of *r, int code, uint64_t limit_ms)
{
    struct end e = {r, code, limit_ms};

    return job_inside(r->dir, after, &e);
}

int job_steps_stop(const struct job_run_of *r)
{
    static struct call c;
    struct job_steptime t;
    uint64_t left;

    (void)job_alloc_left_ms(&r->alloc, &left);
    if (!r->declared.store.persistent && !r->kept) { /* it is removed next; what is said is that a target could not be told */
        begin(&c, r, (const char *const[]){"drain", "release", NULL});
        t = job_steptime(left, RELEASE_MS);
        add_timeout(&c, t.work_ms);
        (void)run(&c, t.work_ms + (t.slack_ms < RELEASE_MS ? t.slack_ms : RELEASE_MS));
    }
    begin(&c, r, (const char *const[]){"stop", NULL});
    t = job_steptime(left, STOP_MS);
    add_timeout(&c, t.work_ms);
    return run(&c, t.work_ms + t.slack_ms) ? -EIO : 0;
}
