/* Draining: can a directory be a target at all? Who tries one that was not used before, and what is said of one that nobody can use.
 *
 * Only the benefactors know: the manager and fpctl need not have the target mounted. One after the other tries, those first of which nothing bad is known; each
 * says what it has found. What it calls refused (no directory, the kernel's own, a store) does not become well by waiting. If all say so, a command that
 * asks before it makes a job is told at once (DRAIN_OP_TRY), and one that waits for a job is told that it is stuck. The job itself stays: it goes on when
 * somebody has mended the directory.
 *
 * A directory that was only tried keeps its row, which does no harm: it is not tried again, shown, or in the way of another target until somebody uses it.
 *
 * Rejected: to look at the directory where fpctl runs. A login node need not have it, or may have something else there, and a file system that hangs would hang fpctl.
 *
 * Core's thread. */
#include "manager/drain.h"

#include <stdio.h>
#include <string.h>

#define TRIED_MS 10000u

bool mgr_target_used(const struct mgr_core *c, const struct mgr_target *t)
{
    const struct mgr_drain *d = c->drain;

    if (t->made)
        return true;
    for (size_t i = 0; i < d->njobs; i++)
        if (d->jobs[i].target == t->id)
            return true;
    for (size_t i = 0; i < d->npolicies; i++)
        if (strcmp(d->policies[i].p.to, t->root) == 0)
            return true;
    return false;
}

bool mgr_target_parse(const char *root, struct fp_drain_policy *p, char why[FP_DRAIN_WHY_MAX])
{
    char text[FP_DRAIN_TEXT_MAX];

    if (strchr(root, '"')) {
        snprintf(why, FP_DRAIN_WHY_MAX, "the path of a target has no double quote in it: give that directory, or a link to it, another name");
        return false;
    }
    if ((size_t)snprintf(text, sizeof text, "to=\"%s\"", root) >= sizeof text) {
        snprintf(why, FP_DRAIN_WHY_MAX, "the path of a target is no longer than %u bytes", FP_DRAIN_PATH_MAX - 1);
        return false;
    }
    return fp_drain_parse(text, p, why) == 0;
}

/* Is somebody to write there? */
static bool is_written(const struct mgr_core *c, const struct mgr_target *t)
{
    const struct mgr_drain *d = c->drain;

    for (size_t i = 0; i < d->njobs; i++)
        if (d->jobs[i].target == t->id && d->jobs[i].kind != FP__JOB_KIND__JOB_FOREIGN)
            return true;
    for (size_t i = 0; i < d->npolicies; i++)
        if (strcmp(d->policies[i].p.to, t->root) == 0)
            return true;
    return c->now.ms < t->tried_ms;
}

bool mgr_target_unknown(const struct mgr_core *c, const struct mgr_target *t)
{
    return t->unmarked ? is_written(c, t) : !t->made && mgr_target_wanted(c, t);
}

bool mgr_target_takes(struct mgr_core *c, const struct mgr_target *t, const struct mgr_dfile *f)
{
    const struct mgr_djob *j = mgr_djob_find(c, f->job);

    return t->made && (!t->unmarked || (j && (j->kind == FP__JOB_KIND__JOB_FOREIGN || j->kind == FP__JOB_KIND__JOB_STAGE_IN)));
}

bool mgr_target_wanted(const struct mgr_core *c, const struct mgr_target *t)
{
    return mgr_target_used(c, t) || c->now.ms < t->tried_ms;
}

void mgr_target_try(struct mgr_core *c, struct mgr_target *t)
{
    if (c->now.ms >= t->tried_ms) { /* what was said before may be otherwise now */
        t->prober = t->left = 0;
        t->probe_ms = 0;
        for (size_t i = 0; i < c->bnf_count; i++)
            t->left += mgr_task_reaches(c, c->bnfs[i]);
    }
    t->tried_ms = c->now.ms + TRIED_MS;
    mgr_tasks_look(c);
}

bool mgr_target_refused(struct mgr_core *c, uint32_t target, char line[MGR_WAITS_MAX])
{
    bool any = false;

    for (size_t i = 0; i < c->bnf_count; i++) {
        const struct mgr_bnf *b = c->bnfs[i];
        const struct mgr_target_seen *seen = mgr_task_reaches(c, b) ? mgr_task_seen(c, b, target) : NULL;

        if (!mgr_task_reaches(c, b))
            continue;
        if (!seen || seen->code != FP__TARGET_CODE__TARGET_REFUSED)
            return false;
        if (!any)
            snprintf(line, MGR_WAITS_MAX, "%s (on node %s)", seen->why, b->node);
        any = true;
    }
    return any;
}

static void ask(struct mgr_core *c, uint32_t target, uint64_t within_ms)
{
    struct mgr_target *t = mgr_target_find(c, target);

    if (!t || (t->asked_ms && c->now.ms - t->asked_ms < within_ms))
        return;
    for (size_t i = 0; i < c->bnf_count; i++) {
        const struct mgr_target_seen *seen = mgr_task_reaches(c, c->bnfs[i]) ? mgr_task_seen(c, c->bnfs[i], target) : NULL;

        if (!seen || seen->code <= FP__TARGET_CODE__TARGET_OK)
            continue;
        t->asked_ms = c->now.ms;
        c->drain->pace = true;
        c->drain->pace_ms = 0;
    }
}

void mgr_djob_asked(struct mgr_core *c, const struct mgr_djob *j, uint64_t within_ms)
{
    ask(c, j->target, within_ms);
    for (size_t i = 0; i < c->drain->nfiles; i++)
        if (c->drain->files[i].job == j->id && c->drain->files[i].target != j->target)
            ask(c, c->drain->files[i].target, within_ms);
}

/* The next one after who has tried it last, of those that can, or of all that are there. 0: none. */
static uint32_t next_of(struct mgr_core *c, const struct mgr_target *t, bool can)
{
    uint32_t next = 0, first = 0;

    for (size_t i = 0; i < c->bnf_count; i++) {
        const struct mgr_bnf *b = c->bnfs[i];

        if (!(can ? mgr_task_can(c, b, t->id) : mgr_task_reaches(c, b)))
            continue;
        if (!first || b->id < first)
            first = b->id;
        if (b->id > t->prober && (!next || b->id < next))
            next = b->id;
    }
    return next ? next : first;
}

bool mgr_target_tries(struct mgr_core *c, const struct mgr_target *t, const struct mgr_bnf *b)
{
    uint32_t who = t->prober ? next_of(c, t, true) : b->id;

    return (who ? who : next_of(c, t, false)) == b->id;
}
