/*
 * Decoding: chunk_in of all stages of a coded chunk, the last one first.
 *
 * A reader of the application waits, so these jobs have threads of their own, spread over the service cores, and do not stand in line with chunks on their way
 * out. One thread does all stages of a chunk; the two buffers are used by turns. A chunk may have been coded by an aux-app that this mount has not declared:
 * that is loaded by its name, with the options' fallbacks, and keeps its place behind the declared ones.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auxapps/host/host.h"
#include "fp/clock.h"

#define MISSING_MAX 8u
#define MISSING_AGAIN_NS 5000000000ull

struct task { struct task *next; _Atomic bool cancelled; struct fp_auxw_chunk_in m; };

struct aux_decode {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct task *head, **tail, *running[AUX_DECODERS_MAX];
    bool stop;
    uint32_t n;
    struct aux_decoder { pthread_t thread; struct aux_host *h; uint32_t index; } thread[AUX_DECODERS_MAX];
    pthread_mutex_t load_lock;     /* held over loading and start */
    struct { char name[32]; uint64_t until_ns; int status; } missing[MISSING_MAX];
    uint32_t next_missing;
};

/* -------------------------------------------------------------- whose it is */

static struct aux_app *loaded(struct aux_host *h, const char *name)
{
    uint32_t n = atomic_load(&h->nall);

    for (uint32_t i = 0; i < n; i++) {
        if (h->app[i] && h->app[i]->plugin && h->app[i]->started && strcmp(h->app[i]->plugin->app.name, name) == 0)
            return h->app[i];
    }
    return NULL;
}

/* Load it for decoding alone. With load_lock. */
static int load(struct aux_host *h, const char *name, struct aux_app **out)
{
    char why[AUX_WHY_BYTES];
    uint32_t index = atomic_load(&h->nall);

    if (index >= FP_AUXW_APPS_MAX) {
        aux_log(h, FP_AUXW_NO_APP, FP_AUX_ERROR, "aux-app '%s' is needed to read a chunk: there are %u others loaded already", name,
            FP_AUXW_APPS_MAX);
        return -ENOSPC;
    }
    struct aux_app *a = aux_app_new(h, index, name, (uint32_t)strlen(name));

    if (!a)
        return -ENOMEM;
    snprintf(h->status->undeclared[index], sizeof(h->status->undeclared[index]), "%.*s", (int)sizeof(h->status->undeclared[index]) - 1, name);
    int rc = aux_app_load(h, a, name, name, why);

    if (rc < 0) {
        aux_log(h, FP_AUXW_NO_APP, FP_AUX_ERROR, "aux-app '%s' is needed to read what it has coded: %s%s", name, why,
            rc == -ENOENT ? "" : "; or declare it, with the options it needs");
        free(a->declaration);
        free(a);
        return rc == -ENOENT ? -ENOPKG : rc == -ENOMEM ? rc : -ELIBACC;
    }
    h->app[index] = a;
    atomic_store(&h->nall, index + 1);
    aux_log(h, FP_AUXW_NO_APP, FP_AUX_INFO, "aux-app '%s' is loaded to read what it has coded", name);
    *out = a;
    return 0;
}

static int find(struct aux_host *h, const char *name, struct aux_app **out)
{
    struct aux_decode *d = h->decode;
    int rc = 0;

    *out = loaded(h, name);
    if (*out)
        return 0;
    pthread_mutex_lock(&d->load_lock);
    *out = loaded(h, name);
    for (uint32_t i = 0; !*out && i < MISSING_MAX; i++) {
        if (strcmp(d->missing[i].name, name) == 0 && fp_now_ns() < d->missing[i].until_ns)
            rc = d->missing[i].status;
    }
    if (!*out && rc == 0) {
        rc = load(h, name, out);
        if (rc < 0) {
            __typeof__(d->missing[0]) *m = &d->missing[d->next_missing++ % MISSING_MAX];

            snprintf(m->name, sizeof(m->name), "%s", name);
            m->until_ns = fp_now_ns() + MISSING_AGAIN_NS;
            m->status = rc;
        }
    }
    pthread_mutex_unlock(&d->load_lock);
    return rc;
}

/* -------------------------------------------------------------- one chunk */

static int run(struct aux_host *h, struct task *t, uint32_t *app, uint32_t *where)
{
    const struct fp_auxw_chunk_in *m = &t->m;
    uint64_t from = m->a, to = m->b;
    uint32_t len = m->coded_bytes;

    *where = 1;
    if (!aux_in_region(h, m->a, m->cap_bytes) || !aux_in_region(h, m->b, m->cap_bytes) || m->nstages < 1 || m->nstages > FP_AUXW_STAGES_MAX ||
        len > m->cap_bytes)
        return -EINVAL;
    for (uint32_t i = m->nstages; i > 0; i--) {
        const struct fp_auxw_stage *s = &m->stage[i - 1];
        char name[sizeof(s->name) + 1] = "";
        struct aux_app *a;

        memcpy(name, s->name, sizeof(s->name));
        if (s->out_bytes != len || s->in_bytes > m->cap_bytes || s->in_bytes == 0 || !aux_name_ok(name))
            return -EILSEQ;
        int rc = find(h, name, &a);

        if (rc < 0)
            return rc;
        *app = a->index;
        rc = atomic_load(&t->cancelled) ? -ECANCELED : aux_chunk_in(a, &t->cancelled, h->region_ro + from, len, h->region + to, s->in_bytes);
        if (rc < 0)
            return rc;
        atomic_fetch_add_explicit(&a->stats->chunks_in, 1, memory_order_relaxed);
        len = s->in_bytes;
        uint64_t x = from;

        from = to;
        to = x;
        *where = 3 - *where;
    }
    return 0;
}

static void *decoder(void *arg)
{
    struct aux_decoder *me = arg;
    struct aux_host *h = me->h;
    struct aux_decode *d = h->decode;
    uint32_t cores = aux_cores_count(h->cores);
    struct aux_thread self;

    aux_guard_drop();
    aux_thread_short();
    aux_thread_begin(&self, h, FP_AUXW_NO_APP, cores > 0 ? aux_cores_cpu(h->cores, me->index % cores) : -1);
    pthread_mutex_lock(&d->lock);
    for (;;) {
        struct task *t = d->head;
        uint32_t app = FP_AUXW_NO_APP, where = 0;

        if (d->stop)
            break;
        if (!t) {
            pthread_cond_wait(&d->wake, &d->lock);
            continue;
        }
        d->head = t->next;
        if (!d->head)
            d->tail = &d->head;
        d->running[me->index] = t;
        pthread_mutex_unlock(&d->lock);
        int rc = run(h, t, &app, &where);

        aux_link_done(h, t->m.h.id, app, rc, where);
        pthread_mutex_lock(&d->lock);
        d->running[me->index] = NULL;
        free(t);
    }
    pthread_mutex_unlock(&d->lock);
    aux_thread_end(&self);
    return NULL;
}

/* -------------------------------------------------------------- from outside */

int aux_decode_new(struct aux_host *h)
{
    struct aux_decode *d = calloc(1, sizeof(*d));
    uint32_t want = aux_cores_width(h->cores);
    int rc = 0;

    if (!d)
        return -ENOMEM;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->load_lock, NULL);
    pthread_cond_init(&d->wake, NULL);
    d->tail = &d->head;
    h->decode = d;
    want = want < AUX_DECODERS_MAX ? want : AUX_DECODERS_MAX;
    for (; d->n < want && rc == 0; d->n += rc == 0) {
        d->thread[d->n].h = h;
        d->thread[d->n].index = d->n;
        rc = -pthread_create(&d->thread[d->n].thread, NULL, decoder, &d->thread[d->n]);
    }
    return d->n > 0 ? 0 : rc;
}

void aux_decode_submit(struct aux_host *h, const struct fp_auxw_chunk_in *m)
{
    struct aux_decode *d = h->decode;
    struct task *t = malloc(sizeof(*t));

    if (!t) {
        aux_link_done(h, m->h.id, FP_AUXW_NO_APP, -ENOMEM, 0);
        return;
    }
    t->next = NULL;
    atomic_init(&t->cancelled, false);
    t->m = *m;
    pthread_mutex_lock(&d->lock);
    *d->tail = t;
    d->tail = &t->next;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
}

void aux_decode_cancel(struct aux_host *h, uint64_t id, bool all)
{
    struct aux_decode *d = h->decode;

    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    for (struct task *t = d->head; t; t = t->next) {
        if (all || t->m.h.id == id)
            atomic_store(&t->cancelled, true);
    }
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->running[i] && (all || d->running[i]->m.h.id == id))
            atomic_store(&d->running[i]->cancelled, true);
    }
    pthread_mutex_unlock(&d->lock);
}

void aux_decode_pause(struct aux_app *a, bool pause)
{
    if (pause)
        pthread_rwlock_wrlock(&a->in_lock);
    else
        pthread_rwlock_unlock(&a->in_lock);
}

void aux_decode_stop(struct aux_host *h)
{
    struct aux_decode *d = h->decode;

    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_broadcast(&d->wake);
    pthread_mutex_unlock(&d->lock);
    for (uint32_t i = 0; i < d->n; i++)
        pthread_join(d->thread[i].thread, NULL);
}
