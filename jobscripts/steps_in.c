/*
 * What is done with the store of a job before the application begins (see start.h): the directory of the target, the policy of draining, staging in. Afterwards: steps.c.
 *
 * By fpctl, whose lines and progress the user sees in the job's output. Nothing waits without a limit: neither for a file system that hangs, nor for staging in (timeout= of the line). What fails ends
 * the start, for the application would begin without its input.
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
#include "jobscripts/fpctl_call.h"
#include "jobscripts/found.h"
#include "jobscripts/launch/shared.h"
#include "jobscripts/start.h"
#include "jobscripts/steps_int.h"
#include "jobscripts/steptime.h"

/* A target that is not there yet, in a directory that is: made here, since the parallel file system is the same on all nodes. */
static int make_it(const void *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : -errno;
}

int job_steps_make_target(const char *text, uint64_t limit_ms)
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
    rc = job_steps_make_target(to->text + to->value, ANSWER_MS);
    if (rc || r->alloc.nnodes == 1)
        return rc;
    rc = job_expand(dir, to->text + to->value);
    rc = rc ? rc : job_shared_mark(dir, r->alloc.job, path);
    if (rc)
        FP_ERROR("#FP auxapp %s: nothing can be written to %s: %s", drain->text, dir, fp_strerror(rc));
    return rc;
}

static int set_policy(const struct job_run_of *r, struct job_call *c)
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
    job_call_begin(c, r, (const char *const[]){"drain", "set", text, NULL});
    rc = job_call_run(c, POLICY_MS);
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
int job_steps_expand(const char *directive, const char *text, char path[PATH_MAX])
{
    int rc = job_expand(path, text);

    if (rc)
        FP_ERROR("#FP %s %s: %s%s", directive, text, rc == -ENOENT ? path : fp_strerror(rc), rc == -ENOENT ? " is not set" : "");
    return rc ? -EINVAL : 0;
}

/* Where in the store it comes to, with directories that are made; "": its top. 0, or negative and logged. */
static int inner_of(const struct job_run_of *r, const struct job_stage *s, char inner[PATH_MAX])
{
    const char *why;
    int rc;

    inner[0] = '\0';
    if (!s->to)
        return 0;
    rc = job_steps_expand("stage-in to", s->to, inner);
    why = rc ? NULL : job_path_inner_why(inner); /* what a variable stands for was not known to fp-job check */
    if (why) {
        FP_ERROR("#FP stage-in: to=%s is %s: %s", s->to, inner, why);
        rc = -EINVAL;
    }
    if (rc == 0 && fp_limited(make_dirs, &(struct inner_dirs){r, inner}, ANSWER_MS) == -ETIMEDOUT) {
        FP_ERROR("#FP stage-in: the store, on %s, has not answered for %u s", r->record.mount, ANSWER_MS / 1000);
        rc = -ETIMEDOUT;
    }
    return rc;
}

/* Exit code of fpctl for the first that did not get there. */
static int stage_in_paths(const struct job_run_of *r, const struct job_stage *s, const char *pattern, const struct job_found *g, struct job_call *c)
{
    uint64_t until = fp_now_ms() + s->timeout_ms;
    char dir[PATH_MAX + 16], inner[PATH_MAX], to[PATH_MAX + 8];
    int rc = inner_of(r, s, inner);

    strcpy(dir, "--target=");
    job_path_of_pattern(pattern, dir + strlen(dir));
    snprintf(to, sizeof to, "--to=%s%s", inner[0] == '/' ? "" : "/", inner); /* with --manager, paths begin in the store */
    for (size_t i = 0; rc == 0 && i < g->n;) {
        uint64_t now = fp_now_ms(), ms = until > now + STEP_LEAST ? until - now : STEP_LEAST;

        job_call_begin(c, r, (const char *const[]){"stage-in", NULL});
        i += job_call_add_some(c, g->paths + i, g->n - i, 0);
        job_call_add(c, to);
        job_call_add(c, dir);
        job_call_add_timeout(c, ms);
        rc = job_call_run(c, ms + POLICY_MS);
    }
    return rc;
}

static int stage_in_one(const struct job_run_of *r, const struct job_stage *s, const char *pattern, struct job_call *c)
{
    char path[PATH_MAX], text[FP_UNITS_BUF];
    struct job_found g = {0};
    int rc = job_steps_expand("stage-in", pattern, path);

    if (rc)
        return rc;
    rc = path[0] == '/' ? job_found_add(&g, path, 0, ANSWER_MS) : -EINVAL;
    if (rc == -ENOENT && s->optional)
        return 0;
    if (rc) {
        job_found_fini(&g);
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
    static struct job_call c = {.over = job_interrupted};
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
