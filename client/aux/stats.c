/*
 * What aux-apps have done since the mount began: the counters of hosts that ended, plus those of the one that runs.
 *
 * cl_aux_stats runs on the core loop once a second; cl_aux_stats_fold on the link thread when a host has ended. The status page is plugins' to
 * write, so texts in it are cut to their field and made printable, and counters are taken as they are.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/aux/holds.h"
#include "client/aux/internal.h"

#define NAME_BYTES 24u

/* Memory that a report points to, until the next one. */
struct aux_report {
    Fp__AuxAppStats stats[FP_AUXW_APPS_MAX], *stat_list[FP_AUXW_APPS_MAX];
    Fp__AuxThread threads[FP_AUXW_APPS_MAX][FP_AUXW_THREADS_MAX], *thread_list[FP_AUXW_APPS_MAX][FP_AUXW_THREADS_MAX];
    Fp__AuxCounter counters[FP_AUXW_APPS_MAX][FP_AUXW_COUNTERS_MAX], *counter_list[FP_AUXW_APPS_MAX][FP_AUXW_COUNTERS_MAX];
    struct aux_totals totals[FP_AUXW_APPS_MAX];
    char name[FP_AUXW_APPS_MAX][256], version[FP_AUXW_APPS_MAX][NAME_BYTES], why[FP_AUXW_APPS_MAX][200], change[FP_AUXW_APPS_MAX][sizeof(((struct aux_app *)0)->change)];
};

int cl_aux_stats_new(struct cl_aux *a)
{
    a->report = calloc(1, sizeof(*a->report));
    return a->report ? 0 : -ENOMEM;
}

void cl_aux_stats_free(struct cl_aux *a)
{
    free(a->report);
    a->report = NULL;
}

/* Text of another's memory: cut, printable. */
static void copy_text(char *out, size_t size, const char *in, size_t in_size)
{
    size_t n = 0;

    for (; n < size - 1 && n < in_size && in[n]; n++)
        out[n] = isprint((unsigned char)in[n]) ? in[n] : '?';
    out[n] = '\0';
}

static struct aux_counter *counter_of(struct aux_totals *t, const char *name)
{
    for (uint32_t i = 0; i < t->ncounters; i++)
        if (strcmp(t->counter[i].name, name) == 0)
            return &t->counter[i];
    if (t->ncounters == FP_AUXW_COUNTERS_MAX)
        return NULL;
    strcpy(t->counter[t->ncounters].name, name);
    return &t->counter[t->ncounters++];
}

/* t += what this host has counted. */
static void add_stats(struct aux_totals *t, const struct fp_auxw_stats *s)
{
    t->chunks += atomic_load(&s->chunks);
    t->bytes_in += atomic_load(&s->bytes_in);
    t->bytes_out += atomic_load(&s->bytes_out);
    t->chunks_in += atomic_load(&s->chunks_in);
    t->events += atomic_load(&s->events);
    t->waits += atomic_load(&s->waits);
    t->wait_ns += atomic_load(&s->wait_ns);
    t->busy_ns += atomic_load(&s->busy_ns);
    t->errors += atomic_load(&s->errors);
    for (uint32_t i = 0; i < FP_AUXW_COUNTERS_MAX; i++) {
        struct aux_counter *c;
        char name[NAME_BYTES];

        copy_text(name, sizeof(name), s->counter[i].name, sizeof(s->counter[i].name));
        c = name[0] ? counter_of(t, name) : NULL;
        if (!c)
            continue;
        c->is_gauge = atomic_load(&s->counter[i].is_gauge) != 0;
        /* What a plugin counts may be anything: a sum that is too large is a wrong one, as it is in the host. */
        c->value = (int64_t)((c->is_gauge ? 0 : (uint64_t)c->value) + (uint64_t)atomic_load(&s->counter[i].value));
    }
}

void cl_aux_stats_fold(struct cl_aux *a, const struct fp_auxw_status *s)
{
    for (uint32_t i = 0; i < a->napps; i++)
        add_stats(&a->app[i].totals, &s->stats[i]);
}

/* -------------------------------------------------------------- report */

static const char *state_of(const struct cl_aux *a, const struct aux_app *p)
{
    if (p->failed)
        return "failed";
    if (p->bypassed)
        return "bypassed";
    return a->state == AUX_UP && !cl_aux_chain_changes(a) ? "running" : "starting";
}

static void add_threads(struct aux_report *r, uint32_t i, const struct fp_auxw_status *s)
{
    Fp__AuxAppStats *out = &r->stats[i];

    out->threads = r->thread_list[i];
    for (uint32_t k = 0; k < FP_AUXW_THREADS_MAX; k++) {
        Fp__AuxThread *t = &r->threads[i][out->n_threads];
        uint32_t tid = atomic_load(&s->thread[k].tid);

        if (tid == 0 || atomic_load(&s->thread[k].app) != i)
            continue;
        fp__aux_thread__init(t);
        t->tid = tid;
        t->core = atomic_load(&s->thread[k].core);
        t->busy_ns = atomic_load(&s->thread[k].busy_ns);
        out->threads[out->n_threads++] = t;
    }
}

static void add_counters(struct aux_report *r, uint32_t i)
{
    Fp__AuxAppStats *out = &r->stats[i];

    out->counters = r->counter_list[i];
    for (uint32_t k = 0; k < r->totals[i].ncounters; k++) {
        Fp__AuxCounter *c = &r->counters[i][k];

        fp__aux_counter__init(c);
        c->name = r->totals[i].counter[k].name;
        c->value = r->totals[i].counter[k].value;
        out->counters[out->n_counters++] = c;
    }
}

static void add_texts(struct cl_aux *a, struct aux_report *r, uint32_t i, const struct fp_auxw_status *s)
{
    const struct aux_app *p = &a->app[i];

    copy_text(r->name[i], sizeof(r->name[i]), cl_aux_app_name(p), sizeof(r->name[i]));
    copy_text(r->version[i], NAME_BYTES, p->info.version, NAME_BYTES);
    copy_text(r->why[i], sizeof(r->why[i]), p->why, sizeof(p->why));
    if (!p->bypassed && !p->failed && s)
        copy_text(r->why[i], sizeof(r->why[i]), s->stats[i].why, sizeof(s->stats[i].why));
    r->stats[i].name = r->name[i];
    r->stats[i].version = r->version[i];
    r->stats[i].why = r->why[i];
    copy_text(r->change[i], sizeof(r->change[i]), p->change, sizeof(p->change));
    r->stats[i].change = r->change[i];
    r->stats[i].declared = (char *)p->decl.text;
    r->stats[i].state = (char *)state_of(a, p);
}

/* lock held. */
static void add_app(struct cl_aux *a, uint32_t i)
{
    const struct fp_auxw_status *s = a->host ? a->host->status : NULL;
    struct aux_report *r = a->report;
    Fp__AuxAppStats *out = &r->stats[i];

    fp__aux_app_stats__init(out);
    r->totals[i] = a->app[i].totals;
    if (s && a->state != AUX_DOWN) {
        add_stats(&r->totals[i], &s->stats[i]);
        add_threads(r, i, s);
        out->queue = atomic_load(&s->stats[i].queue);
        out->queue_max = atomic_load(&s->stats[i].queue_max);
        out->cores = atomic_load(&s->stats[i].cores);
        out->cpuset = a->confined;
    }
    add_texts(a, r, i, s);
    add_counters(r, i);
    out->chunks = r->totals[i].chunks;
    out->bytes_in = r->totals[i].bytes_in;
    out->bytes_out = r->totals[i].bytes_out;
    out->chunks_in = r->totals[i].chunks_in;
    out->passed_chunks = a->app[i].passed_chunks;
    out->passed_bytes = a->app[i].passed_bytes;
    out->events = r->totals[i].events;
    out->busy_ns = r->totals[i].busy_ns;
    out->waits = r->totals[i].waits;
    out->wait_ns = r->totals[i].wait_ns;
    out->failures = a->app[i].failures;
    out->restarts = a->app[i].restarts;
    out->since_ms = fp_now_ms() - a->started_ms;
    r->stat_list[i] = out;
}

void cl_aux_stats(struct cl_mount *m, Fp__ClientStats *s)
{
    struct cl_aux *a = m->aux;

    if (!a)
        return;
    cl_aux_holds_tick(a, fp_now_ms());
    pthread_mutex_lock(&a->lock);
    for (uint32_t i = 0; i < a->napps; i++)
        add_app(a, i);
    pthread_mutex_unlock(&a->lock);
    s->auxapps = a->report->stat_list;
    s->n_auxapps = a->napps;
}
