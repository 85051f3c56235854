/* Draining: how fast. What benefactors are told of each target (MSG_PACE), and preferences that a user gives them at run time (MSG_CTL_BNF_SET).
 *
 * A benefactor holds back by itself while mounts are at work on it (benefactor/pace.c), which is quicker than anything said from here. Said from here is what no
 * benefactor can know: the limits of the policies, where several share a node or a job's limit, and that the store is filling: then draining goes first.
 * That somebody waits for a target that takes nothing is said with it. It is said when it changes, anew with each hello, and with the first task of a target; a limit stays when the manager is away.
 *
 * Preferences (paper, section IV.B: benefactors announce them, and they may change) last until the benefactor ends: it is asked for what it offers with each
 * keep-alive, so nothing of it is kept here. They are checked here too, since whoever asks has his answer at once, before the benefactors have.
 *
 * Core's thread; the pump after the COMMIT. */
#include "manager/drain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/err.h"
#include "fp/log.h"
#include "fp/opt.h"
#include "fp/units.h"

#define PASS_MS    1000u
#define RATE_LEAST 100000u /* bytes/s: a part of a limit that is divided among very many; less would look like a target that hangs */

/* ---------------------------------------------------------------- what is to be said of a target */

struct limits {
    uint64_t node, job; /* bytes/s; 0: none */
    uint32_t low;       /* per cent */
};

static void least(uint64_t *to, uint64_t rate)
{
    if (rate && (!*to || rate < *to))
        *to = rate;
}

/* Of all policies with that target; without one, as a policy without a word would. */
static struct limits limits_of(const struct mgr_core *c, const struct mgr_target *t)
{
    struct limits l = {0};

    for (size_t i = 0; i < c->drain->npolicies; i++) {
        const struct fp_drain_policy *p = &c->drain->policies[i].p;

        if (strcmp(p->to, t->root) != 0)
            continue;
        least(&l.node, p->max);
        least(&l.job, p->max_job);
        l.low = p->layout == FP_DRAIN_FILE && p->low > l.low ? p->low : l.low; /* a log makes no room, however soon it is there */
    }
    return l;
}

static bool is_at(const struct mgr_tasker *t, uint32_t target)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->open[i].target == target)
            return true;
    return false;
}

/* Benefactors that are at work on the target, of one node or (NULL) of all. */
static uint64_t workers(struct mgr_core *c, uint32_t target, const char *node)
{
    uint64_t n = 0;

    for (size_t i = 0; i < c->drain->nof; i++) {
        const struct mgr_bnf *b = c->drain->of[i].count ? mgr_bnf_find(c, i + 1) : NULL;

        n += b && is_at(&c->drain->of[i], target) && (!node || strcmp(b->node, node) == 0);
    }
    return n ? n : 1;
}

static uint64_t share(uint64_t rate, uint64_t n)
{
    rate /= n;
    return rate < RATE_LEAST ? RATE_LEAST : rate;
}

uint64_t mgr_pace_rate(uint64_t node_max, uint64_t on_node, uint64_t job_max, uint64_t in_job)
{
    uint64_t rate = 0;

    if (node_max)
        least(&rate, share(node_max, on_node));
    if (job_max)
        least(&rate, share(job_max, in_job));
    return rate;
}

/* As benefactors say it: what mounts have reserved is not free. */
bool mgr_pace_is_filling(const struct mgr_core *c, uint32_t low)
{
    uint64_t total = 0, left = 0;

    for (size_t i = 0; i < c->bnf_count; i++) {
        total += c->bnfs[i]->conn ? c->bnfs[i]->capacity : 0;
        left += c->bnfs[i]->conn ? c->bnfs[i]->free : 0;
    }
    return total && left < total / 100 * low;
}

/* ---------------------------------------------------------------- saying it */

static struct mgr_paced *paced_of(struct mgr_tasker *t, uint32_t target)
{
    struct mgr_paced *p;

    for (size_t i = 0; i < t->npaced; i++)
        if (t->paced[i].target == target)
            return &t->paced[i];
    p = realloc(t->paced, (t->npaced + 1) * sizeof *p);
    if (!p)
        return NULL;
    t->paced = p;
    p += t->npaced++;
    *p = (struct mgr_paced){.target = target, .mode = FP__PACE_MODE__PACE_RUN};
    return p;
}

static void say(struct mgr_core *c, const struct mgr_bnf *b, const struct mgr_paced *p)
{
    Fp__Pace *m = MGR_NEW(c, Fp__Pace, fp__pace__init);
    Fp__TargetPace *at = MGR_NEW(c, Fp__TargetPace, fp__target_pace__init);

    if (!m || !at || !(m->targets = mgr_arena_alloc(&c->arena, sizeof *m->targets)))
        return;
    at->target = p->target;
    at->mode = (Fp__PaceMode)p->mode;
    at->rate = p->rate;
    at->look = p->look;
    m->targets[m->n_targets++] = at;
    mgr_out(c, MGR_OUT_SEND, b->conn, FP__MSG_TYPE__MSG_PACE, &m->base);
}

static void pace_one(struct mgr_core *c, const struct mgr_bnf *b, struct mgr_tasker *t, const struct mgr_target *target)
{
    struct limits l = limits_of(c, target);
    uint32_t mode = l.low && mgr_pace_is_filling(c, l.low) ? FP__PACE_MODE__PACE_HURRY : FP__PACE_MODE__PACE_RUN;
    uint64_t rate = mgr_pace_rate(l.node, l.node ? workers(c, target->id, b->node) : 1, l.job, l.job ? workers(c, target->id, NULL) : 1);
    struct mgr_paced *p = is_at(t, target->id) ? paced_of(t, target->id) : NULL;

    if (!p || (p->mode == mode && p->rate == rate && p->look == target->asked_ms))
        return;
    p->mode = mode;
    p->rate = rate;
    p->look = target->asked_ms;
    say(c, b, p);
}

void mgr_pace_pump(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;

    if (!d->pace || c->now.ms < d->pace_ms)
        return;
    d->pace = false;
    d->pace_ms = c->now.ms + PASS_MS;
    for (size_t i = 0; i < d->nof; i++) {
        const struct mgr_bnf *b = mgr_bnf_find(c, i + 1);

        for (size_t k = 0; k < d->ntargets && b && d->of[i].count && mgr_task_reaches(c, b); k++)
            pace_one(c, b, &d->of[i], &d->targets[k]);
    }
}

void mgr_pace_new(struct mgr_core *c, const struct mgr_bnf *b)
{
    struct mgr_tasker *t = mgr_tasker(c, b->id);
    size_t before = t->npaced;

    for (size_t k = 0; k < c->drain->ntargets; k++)
        pace_one(c, b, t, &c->drain->targets[k]);
    if (t->npaced != before) { /* the others have less from now on */
        c->drain->pace = true;
        c->drain->pace_ms = 0;
    }
}

/* ---------------------------------------------------------------- preferences */

static bool is_on_off(const char *value)
{
    return strcmp(value, "on") == 0 || strcmp(value, "off") == 0;
}

/* NULL: it will be taken. As bnf_drain_set has it. */
static const char *check(const char *name, const char *value)
{
    uint64_t rate;
    int64_t n;

    if (strcmp(name, "drain") == 0 || strcmp(name, "hold") == 0)
        return is_on_off(value) ? NULL : "give on or off";
    if (strcmp(name, "max") == 0)
        return fp_parse_rate(value, &rate, NULL) ? "give a rate, such as 200MB/s, or 0 for no limit" : NULL;
    if (strcmp(name, "threads") == 0)
        return fp_parse_int(value, &n, NULL) || n < 1 || n > 8 || strlen(value) != 1 ? "give a number from 1 to 8" : NULL;
    return "there is no such preference: there are drain, hold, max and threads";
}

static bool is_meant(const struct mgr_bnf *b, const char *who)
{
    char number[16];

    snprintf(number, sizeof number, "%u", b->id);
    return strcmp(who, "all") == 0 || strcmp(who, number) == 0 || strcmp(who, b->node) == 0;
}

void mgr_pace_heard(struct mgr_tasker *t, const Fp__BnfPrefs *p)
{
    t->drains = p && p->drain;
    t->hold = p && p->hold;
    t->max_rate = p ? p->max_rate : 0;
    t->threads = p ? p->threads : 0;
}

Fp__BnfPrefs *mgr_task_prefs(struct mgr_core *c, const struct mgr_bnf *b)
{
    const struct mgr_tasker *t = mgr_tasker(c, b->id);
    Fp__BnfPrefs *p = t && t->threads ? MGR_NEW(c, Fp__BnfPrefs, fp__bnf_prefs__init) : NULL;

    if (!p)
        return NULL;
    p->drain = t->drains;
    p->max_rate = t->max_rate;
    p->threads = t->threads;
    p->hold = t->hold;
    return p;
}

static int refuse(struct mgr_core *c, Fp__CtlBnfSetReply *r, const char *what, const char *why)
{
    char line[400];

    snprintf(line, sizeof line, "%.100s: %s", what, why);
    r->why = mgr_arena_alloc(&c->arena, sizeof *r->why);
    if (!r->why)
        return mgr_doom(c, -ENOMEM);
    r->why[r->n_why++] = mgr_arena_text(&c->arena, line);
    return 0;
}

MGR_HANDLER(ctl_bnf_set)
{
    const Fp__CtlBnfSet *m = msg;
    Fp__CtlBnfSetReply *r = MGR_NEW(c, Fp__CtlBnfSetReply, fp__ctl_bnf_set_reply__init);
    const char *why = check(m->name, m->value);
    bool known = false;

    if (!r)
        return mgr_doom(c, -ENOMEM);
    rq->reply = &r->base;
    if (why)
        return refuse(c, r, m->name, why);
    for (size_t i = 0; i < c->bnf_count; i++) {
        const struct mgr_bnf *b = c->bnfs[i];
        Fp__BnfSet *s;

        if (!is_meant(b, m->who))
            continue;
        known = true;
        if (!b->conn || b->conn->closing)
            continue;
        s = MGR_NEW(c, Fp__BnfSet, fp__bnf_set__init);
        if (!s)
            return mgr_doom(c, -ENOMEM);
        s->name = mgr_arena_text(&c->arena, m->name);
        s->value = mgr_arena_text(&c->arena, m->value);
        if (mgr_post(c, b->conn, FP__MSG_TYPE__MSG_BNF_SET, &s->base))
            return mgr_doom(c, -ENOMEM);
        r->told++;
    }
    if (!r->told)
        return refuse(c, r, m->who, known ? "it is not connected" : "there is no such benefactor: give a node, a number as fpctl benefactors lists them, or all");
    return 0;
}

void mgr_bnf_was_set(const struct mgr_bnf *b, int status, const Fp__BnfSetReply *r)
{
    const char *why = status ? fp_strerror(status) : r && *r->why ? r->why : NULL;

    if (why)
        FP_WARN("benefactor %u: a preference was not taken: %s", b->id, why);
}
