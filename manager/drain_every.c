/* Draining: every=auto, which sets of a series are drained when nobody has said how many.
 *
 * Each k-th is, k the least with which the target keeps up: the bytes of complete sets per second, by what the target takes per second while there is something to drain.
 * Both are measured where they are true for this purpose: how often sets come by when they became complete, all series of the policy together; what the target
 * takes by parts that were written while something waited to be written, so that holding back for programs, limits, and other jobs are in it. k grows as soon as the
 * target does not keep up, with a tenth to spare, and falls when three tenths would be to spare, so that it does not change with each set.
 *
 * Since all this is a forecast, there is a bound that is none: while two sets of a series wait for the target no third one of it is chosen. And when less of the store is
 * free than low= says, each set is: only what is drained can give way, and programs that write wait for it (evict_press.c).
 *
 * What is known of how often sets come is in the policy's row, written with the count; the target's rate is of this manager's life, and without it k stays. The
 * numbers of chosen sets have rows (drain_taken): the next one is k sets after the last, also when k has changed or sets were removed meanwhile.
 *
 * Rejected: to drain whenever the target is idle (the sets in the target would lie at random distances, and a restart has to go back by that); the rate that
 * benefactors measure (of moments in which they write: a benefactor that holds back half of the time looks as fast as one that does not).
 *
 * Core's thread, in a group; what is pure says so by taking no core. */
#include "manager/drain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fp/units.h"
#include "manager/sets_int.h"

#define EVERY_MAX  1000u
#define WEIGHT     1024u  /* of one set in what is known of those before */
#define PAUSE      8u     /* a gap of so many usual ones is a pause of the job, */
#define PAUSE_AGE  8u     /* … unless there was one like it so few sets ago: sets of several series come together */
#define RATE_MS    60000u /* busy time over which the target's rate is measured: half of it when it is over */
#define RATE_LEAST 500u   /* less says nothing */
#define STEP_MS    1000u  /* between two looks at the most; more: there was nothing to do */
#define REST_MS    400u   /* for which it counts then */
#define WAIT_MAX   2u     /* sets of a series that wait for the target */
#define TAKEN_KEPT 64u    /* of a series: numbers further back are forgotten */

/* ---------------------------------------------------------------- how often sets come */

static uint64_t decayed(uint64_t v)
{
    return v - v / 4;
}

void mgr_load_add(struct mgr_load *l, uint64_t bytes, int64_t now_ns)
{
    int64_t gap_ns = l->last_ns ? now_ns - l->last_ns : -1;
    uint64_t gap_ms = gap_ns > 0 ? (uint64_t)gap_ns / 1000000 : 0;
    bool is_long = l->weight && gap_ms > PAUSE * (l->ms * WEIGHT / l->weight) + 1000;

    l->last_ns = now_ns;
    if (l->pause_age && ++l->pause_age > PAUSE_AGE)
        l->pause_age = 0;
    if (gap_ns < 0)
        return; /* the first one, or a clock that was set back */
    if (is_long && !(l->pause_age && gap_ms <= 2 * l->pause_ms)) {
        l->pause_ms = gap_ms;
        l->pause_age = 1;
        return;
    }
    if (is_long)
        l->ms = l->bytes = l->weight = 0;
    l->ms = decayed(l->ms) + gap_ms;
    l->bytes = decayed(l->bytes) + bytes;
    l->weight = decayed(l->weight) + WEIGHT;
}

static uint64_t ceil_of(double x)
{
    uint64_t n = x >= EVERY_MAX ? EVERY_MAX : (uint64_t)x;

    n += n < EVERY_MAX && (double)n < x;
    return n ? n : 1;
}

uint32_t mgr_every_of(uint32_t now, const struct mgr_load *l, uint64_t rate, bool filling)
{
    double need;

    if (filling || !now)
        now = 1;
    if (filling || !rate || !l->weight || !l->bytes)
        return now;
    if (!l->ms)
        return EVERY_MAX;
    need = (double)l->bytes * 1000 / (double)l->ms / (double)rate;
    if (now < ceil_of(need * 1.1))
        return (uint32_t)ceil_of(need * 1.1);
    return now > ceil_of(need * 1.3) ? (uint32_t)ceil_of(need * 1.3) : now;
}

/* ---------------------------------------------------------------- what the target takes */

void mgr_taken_add(struct mgr_target *t, uint64_t ms, uint64_t bytes)
{
    t->busy_ms += ms;
    t->busy_bytes += bytes;
    if (t->busy_ms > RATE_MS) {
        t->busy_ms /= 2;
        t->busy_bytes /= 2;
    }
}

uint64_t mgr_taken_rate(const struct mgr_target *t)
{
    return t->busy_ms < RATE_LEAST ? 0 : (uint64_t)((double)t->busy_bytes * 1000 / (double)t->busy_ms);
}

static bool has_work(const struct mgr_core *c, uint32_t target)
{
    const struct mgr_drain *d = c->drain;

    for (size_t i = 0; i < d->nfiles; i++)
        if (d->files[i].target == target && !mgr_djob_stages(mgr_djob_find((struct mgr_core *)(uintptr_t)c, d->files[i].job)))
            return true;
    return false;
}

void mgr_every_tick(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;
    uint64_t ms = c->now.ms - d->every_ms;

    d->every_ms = c->now.ms;
    ms = ms < STEP_MS ? ms : REST_MS; /* after a rest nobody knows when the work has begun */
    for (size_t i = 0; i < d->ntargets; i++) {
        struct mgr_target *t = &d->targets[i];

        /* one that takes nothing at all is not slow: what waits for it is bounded otherwise */
        if (t->new_bytes || (has_work(c, t->id) && mgr_drain_is_well(c, t->id)))
            mgr_taken_add(t, ms, t->new_bytes);
        t->new_bytes = 0;
    }
}

/* ---------------------------------------------------------------- choosing */

static uint64_t rate_of(struct mgr_core *c, const struct mgr_dpolicy *p)
{
    for (size_t i = 0; i < c->drain->ntargets; i++)
        if (strcmp(c->drain->targets[i].root, p->p.to) == 0)
            return mgr_taken_rate(&c->drain->targets[i]);
    return 0;
}

/* Sets that it has chosen and that are not drained yet; series: of that one; 0: of all. */
static uint32_t waiting(struct mgr_core *c, const struct mgr_dpolicy *p, uint64_t series)
{
    uint32_t n = 0;

    for (size_t i = 0; i < c->drain->njobs; i++) {
        const struct mgr_djob *j = &c->drain->jobs[i];
        struct mgr_set s;

        if (j->kind == FP__JOB_KIND__JOB_SET && j->policy == p->id)
            n += !series || (!mgr_set_get(c, j->ckpt, &s) && s.series == series);
    }
    return n;
}

static int last_taken(struct mgr_core *c, const struct mgr_dpolicy *p, const struct mgr_set *s, uint64_t *seq)
{
    int rc = mgr_db_one(&c->db, TAKEN_LAST, DBI(s->series), DBI(p->id), DBI(s->seq));

    *seq = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_TAKEN_LAST, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_TAKEN_LAST);
    return rc < 0 ? rc : 0;
}

/* It was complete before, with this number. */
static int was_taken(struct mgr_core *c, const struct mgr_dpolicy *p, const struct mgr_set *s, bool *yes)
{
    int rc = mgr_db_one(&c->db, TAKEN_IS, DBI(s->series), DBI(p->id), DBI(s->seq));

    *yes = rc > 0;
    mgr_db_reset(&c->db, MGR_ST_TAKEN_IS);
    return rc < 0 ? rc : 0;
}

int mgr_every_chooses(struct mgr_core *c, struct mgr_dpolicy *p, const struct mgr_set *s, bool again, bool *yes)
{
    uint64_t last;
    int rc;

    if (again)
        return was_taken(c, p, s, yes);
    mgr_load_add(&p->load, s->bytes, s->complete_ns);
    p->filling = p->p.layout == FP_DRAIN_FILE && mgr_pace_is_filling(c, p->p.low); /* a log makes no room */
    p->every = mgr_every_of(p->every, &p->load, rate_of(c, p), p->filling);
    rc = last_taken(c, p, s, &last);
    *yes = !rc && (!last || s->seq - last >= p->every) && (p->filling || waiting(c, p, s->series) < WAIT_MAX);
    if (rc || !*yes)
        return rc;
    rc = mgr_db_exec(&c->db, TAKEN_PUT, DBI(s->series), DBI(p->id), DBI(s->seq));
    return rc ? rc : mgr_db_exec(&c->db, TAKEN_PRUNE, DBI(s->series), DBI(p->id), DBI(s->seq > TAKEN_KEPT ? s->seq - TAKEN_KEPT : 0));
}

const char *mgr_every_text(struct mgr_core *c, const struct mgr_dpolicy *p, char line[MGR_EVERY_TEXT])
{
    const struct mgr_load *l = &p->load;
    uint64_t rate = rate_of(c, p), mean_ms = l->weight ? l->ms * WEIGHT / l->weight : 0;
    char size[FP_UNITS_BUF], time[FP_UNITS_BUF], speed[FP_UNITS_BUF];
    uint32_t n = waiting(c, p, 0);
    int at = snprintf(line, MGR_EVERY_TEXT, "every=auto: %u (", p->every ? p->every : 1);

    if (p->filling)
        at += snprintf(line + at, MGR_EVERY_TEXT - (size_t)at, "less than %u%% of the store is free; ", p->p.low);
    if (l->weight)
        at += snprintf(line + at, MGR_EVERY_TEXT - (size_t)at, "a set each %s of %s, ", fp_format_duration(time, mean_ms), fp_format_size(size, l->bytes * WEIGHT / l->weight));
    else
        at += snprintf(line + at, MGR_EVERY_TEXT - (size_t)at, "how often sets come is not known yet, ");
    if (rate)
        at += snprintf(line + at, MGR_EVERY_TEXT - (size_t)at, "the target takes %s", fp_format_rate(speed, rate));
    else
        at += snprintf(line + at, MGR_EVERY_TEXT - (size_t)at, "the target's speed is not known yet");
    if (n)
        at += snprintf(line + at, MGR_EVERY_TEXT - (size_t)at, "; %u set%s for it", n, n > 1 ? "s wait" : " waits");
    snprintf(line + at, MGR_EVERY_TEXT - (size_t)at, ")");
    return line;
}
