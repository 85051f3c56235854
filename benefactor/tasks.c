/*
 * Tasks of the manager: taken once, done by workers (targets.c), their results kept until the manager has them (drain.h).
 *
 * Loop's thread. The manager's rows are the truth: a benefactor that starts anew knows nothing and is told again; one that gets a task twice has it once; a
 * result is told until it was answered, over any number of connections. So nothing here is on a disk.
 *
 * A task of the same id and a greater gen is a new attempt at the same thing: the old one is dropped, and what a worker still says of it goes nowhere. A target
 * that takes no data is no result: its tasks wait, and the keep-alive says why (targets.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benefactor/drain_impl.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"
#include "fp/units.h"

#define RESULTS_BYTES (1u << 20) /* of one message, and what its last result takes more */

/* ---------------------------------------------------------------- the table */

static struct dtask **find(struct bnf_drain *d, uint64_t id)
{
    struct dtask **at = &d->tasks;

    while (*at && ((*at)->id != id || (*at)->dropped))
        at = &(*at)->next;
    return at;
}

static void free_result(struct dtask *t)
{
    for (size_t i = 0; i < t->nnames; i++)
        free(t->names[i]);
    free(t->names);
    free(t->why);
    free(t->sums);
    free(t->entries);
    free(t->entry_list);
    free(t->seen.path.data);
    free(t->seen.uuid.data);
    free(t->missing_list);
    for (size_t i = 0; i < t->nchunks; i++)
        fp__chunk__free_unpacked(t->chunks[i], NULL);
    free(t->chunks);
    for (size_t i = 0; i < t->nlist; i++)
        fp__list_entry__free_unpacked(t->list[i], NULL);
    free(t->list);
    t->names = NULL;
    t->nnames = 0;
}

void dtask_forget(struct dtask *t)
{
    struct bnf_drain *d = t->target->drain;
    struct dtask **at = &d->tasks;

    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    if (d->tasks_tail == &t->next)
        d->tasks_tail = at;
    d->ntasks--;
    if (t->m)
        fp__task__free_unpacked(t->m, NULL);
    free(t->segments);
    dstage_free(t);
    free_result(t);
    free(t);
}

static void no_more_given(struct dtask *t)
{
    if (t->state != DTASK_GIVEN)
        return;
    t->target->given--;
    if (t->target->worker)
        for (uint32_t i = 0; i < t->nsegments; i++)
            dworker_segment_unuse(t->target->worker, t->segments[i]);
    free(t->segments);
    t->segments = NULL;
    t->nsegments = 0;
}

void dtask_wait(struct dtask *t)
{
    no_more_given(t);
    t->state = DTASK_WAITS;
    t->bytes = 0;
    for (; t->nlist; t->nlist--) /* it will be listed again */
        fp__list_entry__free_unpacked(t->list[t->nlist - 1], NULL);
}

/* The file as the result says it: path and target are the task's. */
static void fill_seen(struct dtask *t)
{
    if (!t->has_seen || !t->m || !t->m->dest)
        return;
    t->seen.target = t->m->dest->target;
    t->seen.path.data = malloc(t->m->dest->path.len + 1);
    if (t->seen.path.data && t->m->dest->path.len) { /* the target itself has no path */
        memcpy(t->seen.path.data, t->m->dest->path.data, t->m->dest->path.len);
        t->seen.path.len = t->m->dest->path.len;
    }
}

void dtask_finish(struct dtask *t, int status, const char *why)
{
    struct bnf_drain *d = t->target->drain;

    no_more_given(t);
    if (t->dropped) {
        dtask_forget(t);
        return;
    }
    t->status = status;
    t->why = why && *why ? strdup(why) : NULL;
    t->state = DTASK_DONE;
    fill_seen(t);
    fp__task__free_unpacked(t->m, NULL);
    t->m = NULL;
    if (status && status != -ECANCELED)
        FP_LOG_EVERY(1000, FP_LOG_WARN, "target %s: %s", t->target->root, why && *why ? why : fp_strerror(status));
    d->config.results(d->config.arg);
}

/* ---------------------------------------------------------------- taking them */

static void drop(struct dtask *t)
{
    struct fp_dw_head h = { .type = FP_DW_CANCEL, .id = t->id, .gen = t->gen, .len_bytes = sizeof(h) };

    if (t->state == DTASK_STAGES) {
        dstage_drop(t);
        return;
    }
    if (t->state != DTASK_GIVEN) {
        dtask_forget(t);
        return;
    }
    t->dropped = true; /* its segments stay in use until the worker says that it is done with them */
    if (t->target->worker)
        (void)dworker_send(t->target->worker, &h, sizeof(h), -1);
}

static int take(struct bnf_drain *d, Fp__Task *m, bool *taken)
{
    struct dtask *t = *find(d, m->id);
    int rc = 0;

    if (t && t->gen >= m->gen) {
        if (t->gen == m->gen && t->state == DTASK_DONE)
            d->config.results(d->config.arg); /* the manager has not heard it, or has forgotten that it did */
        return 0;
    }
    if (t)
        drop(t);
    if (m->id >= READ_ID || !m->dest || !m->kind)
        return -EINVAL;
    if (d->ntasks >= TASKS_MAX)
        return -EBUSY;
    t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->target = dtarget_get(d, m->dest, &rc);
    if (!t->target) {
        free(t);
        return rc;
    }
    dtarget_asked(t->target);
    t->id = m->id;
    t->gen = m->gen;
    t->m = m;
    fp__ext_file__init(&t->seen);
    *d->tasks_tail = t;
    d->tasks_tail = &t->next;
    d->ntasks++;
    *taken = true;
    return 0;
}

static void on_timer(uv_timer_t *timer);

void dtasks_tick(struct bnf_drain *d)
{
    if (d->ticking || d->stopping)
        return;
    d->ticking = true;
    uv_timer_start(&d->timer, on_timer, TICK_MS, TICK_MS);
}

int bnf_drain_tasks(struct bnf_drain *d, Fp__Tasks *m)
{
    int rc = 0;

    if (d->stopping)
        return FP_ESTOPPING;
    for (size_t i = 0; i < m->n_cancel; i++) {
        struct dtask *t = *find(d, m->cancel[i]);

        if (t)
            drop(t);
    }
    for (size_t i = 0; i < m->n_tasks;) {
        bool taken = false;
        int one = take(d, m->tasks[i], &taken);

        if (one && !rc)
            rc = one;
        if (taken)
            memmove(m->tasks + i, m->tasks + i + 1, (--m->n_tasks - i) * sizeof(*m->tasks));
        else
            i++;
    }
    for (struct dtarget *t = d->targets; t; t = t->next)
        dtarget_pump(t);
    dtasks_tick(d);
    return rc;
}

/* ---------------------------------------------------------------- results */

static void list_entries(struct dtask *t)
{
    if (!t->nnames || t->entries)
        return;
    t->entries = calloc(t->nnames, sizeof(*t->entries));
    t->entry_list = calloc(t->nnames, sizeof(struct Fp__ListEntry *));
    if (!t->entries || !t->entry_list)
        return;
    for (size_t i = 0; i < t->nnames; i++) {
        fp__list_entry__init(&t->entries[i]);
        t->entries[i].path.data = (uint8_t *)t->names[i];
        t->entries[i].path.len = strlen(t->names[i]);
        t->entry_list[i] = &t->entries[i];
    }
}

static void fill(struct dtask *t)
{
    Fp__TaskResult *r = &t->out;

    fp__task_result__init(r);
    r->id = t->id;
    r->gen = t->gen;
    r->status = t->status;
    r->why = t->why ? t->why : r->why;
    r->seen = t->has_seen ? &t->seen : NULL;
    r->bytes = t->bytes;
    r->sums = t->sums;
    r->n_sums = t->nsums;
    r->missing = t->missing_list ? t->missing_list : &t->missing;
    r->n_missing = t->missing_list ? t->nmissing : t->missing ? 1 : 0;
    r->tainted = t->tainted;
    r->stalled = t->stalled;
    r->code = t->stalled ? t->target->code : FP__TARGET_CODE__TARGET_UNKNOWN;
    list_entries(t);
    r->list = t->nlist ? t->list : t->entry_list;
    r->n_list = t->nlist ? t->nlist : t->entry_list ? t->nnames : 0;
    r->chunks = t->chunks;
    r->n_chunks = t->nchunks;
    r->eof = !t->more;
    r->replaced = t->replaced;
}

static size_t xattrs_of(const Fp__ListEntry *e)
{
    size_t bytes = 0;

    for (size_t i = 0; i < e->n_xattrs; i++)
        bytes += 16 + e->xattrs[i]->name.len + e->xattrs[i]->value.len;
    return bytes;
}

/* About what it takes in a message. */
static size_t weight_of(const struct dtask *t)
{
    size_t bytes = 64 + t->nchunks * 48 + t->nmissing * 10 + t->nsums * 8 + (t->why ? strlen(t->why) : 0);

    for (size_t i = 0; i < t->nlist; i++)
        bytes += 128 + t->list[i]->path.len + t->list[i]->link.len + xattrs_of(t->list[i]);
    for (size_t i = 0; i < t->nnames; i++)
        bytes += 8 + strlen(t->names[i]);
    return bytes;
}

size_t bnf_drain_results(struct bnf_drain *d, Fp__TaskResult **out, size_t max)
{
    size_t n = 0, bytes = 0;

    for (struct dtask *t = d->tasks; t && n < max && bytes < RESULTS_BYTES; t = t->next) {
        if (t->state != DTASK_DONE || t->telling)
            continue;
        bytes += weight_of(t);
        t->telling = true;
        fill(t);
        out[n++] = &t->out;
    }
    return n;
}

void bnf_drain_told(struct bnf_drain *d, bool taken)
{
    struct dtask *next;

    dstaged_told(d, taken);
    for (struct dtask *t = d->tasks; t; t = next) {
        next = t->next;
        if (!t->telling)
            continue;
        t->telling = false;
        if (taken)
            dtask_forget(t);
    }
}

/* ---------------------------------------------------------------- preferences */

void bnf_drain_pace(struct bnf_drain *d, const Fp__Pace *m)
{
    for (size_t i = 0; i < m->n_targets; i++) {
        const Fp__TargetPace *p = m->targets[i];

        for (struct dtarget *t = d->targets; t; t = t->next) {
            if (t->id != p->target)
                continue;
            t->mode = p->mode;
            t->rate = p->rate;
            if (p->look != t->look)
                dtarget_look(t);
            t->look = p->look;
            dtarget_pace(t);
        }
    }
}

static int on_or_off(const char *value, bool *out)
{
    if (strcmp(value, "on") && strcmp(value, "off"))
        return -EINVAL;
    *out = strcmp(value, "on") == 0;
    return 0;
}

int bnf_drain_set(struct bnf_drain *d, const char *name, const char *value, const char **why)
{
    uint64_t n;
    int rc = 0;

    *why = "";
    if (strcmp(name, "drain") == 0) {
        rc = on_or_off(value, &d->config.on);
        *why = rc ? "drain is on or off" : "";
    } else if (strcmp(name, "hold") == 0) {
        rc = on_or_off(value, &d->hold);
        *why = rc ? "hold is on or off" : "";
    } else if (strcmp(name, "max") == 0) {
        rc = fp_parse_rate(value, &n, NULL);
        *why = rc ? "max is a rate, such as 200MB/s, or 0" : "";
        if (rc == 0)
            d->config.max_rate = n;
    } else if (strcmp(name, "threads") == 0) {
        n = strtoul(value, NULL, 10);
        rc = n >= 1 && n <= FP_DW_THREADS_MAX && strlen(value) == 1 ? 0 : -EINVAL;
        *why = rc ? "threads is a number from 1 to 8" : "";
        if (rc == 0)
            d->config.threads = (uint32_t)n; /* of workers that start from now on */
    } else {
        rc = -EINVAL;
        *why = "preferences are drain, max, threads and hold";
    }
    for (struct dtarget *t = d->targets; rc == 0 && t; t = t->next) {
        dtarget_pace(t);
        dtarget_pump(t);
    }
    if (rc == 0)
        d->config.changed(d->config.arg);
    return rc ? -EINVAL : 0;
}

/* Bytes of parts that are not done. */
static uint64_t queued_bytes(const struct bnf_drain *d, const struct dtarget *target)
{
    uint64_t bytes = 0;

    for (const struct dtask *t = d->tasks; t; t = t->next)
        if (t->target == target && t->m && t->m->kind == FP__TASK_KIND__TASK_WRITE)
            for (size_t i = 0; i < t->m->n_slices; i++)
                bytes += t->m->slices[i]->len;
    return bytes;
}

static uint32_t left_behind(const struct bnf_drain *d, uint32_t target)
{
    uint64_t now = fp_now_ms();
    uint32_t n = 0;

    for (const struct dworker *w = d->ending; w; w = w->next)
        n += w->target_id == target && now > w->ending_ms + 2000;
    return n;
}

bool bnf_drain_reads(const struct bnf_drain *d, uint64_t segment)
{
    for (const struct dtarget *t = d->targets; t; t = t->next)
        if (t->worker && dworker_segment_is_used(t->worker, segment))
            return true;
    return false;
}

void bnf_drain_info(struct bnf_drain *d, Fp__BnfInfo *i)
{
    uint64_t now = fp_now_ms();
    size_t n = 0;

    fp__bnf_prefs__init(&d->prefs);
    d->prefs.drain = d->config.on;
    d->prefs.max_rate = d->config.max_rate;
    d->prefs.threads = d->config.threads;
    d->prefs.hold = d->hold;
    for (struct dtarget *t = d->targets; t; t = t->next) {
        fp__target_state__init(&t->info);
        t->info.target = t->id;
        t->info.code = t->code;
        t->info.why = t->slow && !t->why[0] ? (char *)(uintptr_t)"a call of its file system has been under way for some seconds" : t->why;
        t->info.rate = t->measured_rate;
        t->info.queued_bytes = queued_bytes(d, t);
        t->info.done_bytes = t->done_bytes;
        t->info.left_behind = left_behind(d, t->id);
        t->info.since_ns = t->since_ns;
        t->info.slow = t->slow;
        t->info.again_ms = t->probe_ms > now ? (uint32_t)(t->probe_ms - now) : 0;
        t->info.holds = t->worker && t->sent_mode == FP_DW_HOLD;
        d->info_list[n++] = &t->info;
    }
    i->prefs = &d->prefs;
    i->targets = d->info_list;
    i->n_targets = n;
}

/* ---------------------------------------------------------------- life */

static void reap(struct bnf_drain *d)
{
    for (struct dworker **at = &d->ending, *w; (w = *at);) {
        struct dworker *next = w->next;

        if (dworker_reap(d, w))
            *at = next;
        else
            at = &w->next;
    }
}

static void look_at_mounts(struct bnf_drain *d, uint64_t now)
{
    struct bnf_status st;

    bnf_service_status(d->config.service, &st);
    d->local_hold = bnf_pace_holds(&d->pace, now, bnf_service_mount_bytes(d->config.service), st.space.free_bytes, st.space.capacity_bytes);
}

static void on_timer(uv_timer_t *timer)
{
    struct bnf_drain *d = timer->data;
    uint64_t now = fp_now_ms();
    bool busy = false;

    reap(d);
    look_at_mounts(d, now);
    busy |= dfetcher_tick(d->fetcher, now);
    for (struct dtarget *t = d->targets; t; t = t->next)
        busy |= dtarget_tick(t, now);
    if (!busy && !d->ending) {
        uv_timer_stop(&d->timer);
        d->ticking = false;
    }
}

int bnf_drain_new(const struct bnf_drain_config *c, struct bnf_drain **out)
{
    struct bnf_drain *d = calloc(1, sizeof(*d));

    if (!d)
        return -ENOMEM;
    d->config = *c;
    if (dfetcher_new(d, &d->fetcher)) {
        free(d);
        return -ENOMEM;
    }
    d->tasks_tail = &d->tasks;
    uv_timer_init(c->loop, &d->timer);
    d->timer.data = d;
    *out = d;
    return 0;
}

void bnf_drain_stop(struct bnf_drain *d)
{
    if (d->stopping)
        return;
    d->stopping = true;
    uv_timer_stop(&d->timer);
    dfetcher_stop(d->fetcher);
    for (struct dtarget *t = d->targets; t; t = t->next)
        if (t->worker) {
            dworker_end(t->worker, true);
            t->worker = NULL;
        }
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void bnf_drain_free(struct bnf_drain *d)
{
    if (!d)
        return;
    bnf_drain_stop(d);
    dfetcher_free(d->fetcher);
    free(d->staged);
    reap(d);
    for (struct dworker *w = d->ending; w; w = d->ending) { /* it hangs: it keeps nothing of ours but itself */
        d->ending = w->next;
        w->next = NULL;
        fp_child_free(w->child);
        w->child = NULL;
        if (w->closed)
            free(w);
    }
    while (d->tasks)
        dtask_forget(d->tasks);
    while (d->targets) {
        struct dtarget *t = d->targets;

        d->targets = t->next;
        dtarget_free(t);
    }
    uv_close((uv_handle_t *)&d->timer, on_timer_closed);
}
