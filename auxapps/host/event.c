/*
 * The event threads of an aux-app. One for sealed files, complete sets, messages of other nodes, stored chunks, idle time and FUSE calls that are over; another
 * for FUSE calls that an application waits for, which must not queue up behind a file that takes long. One event at a time on each, in the order in which
 * fp-mount sent them.
 *
 * Made only for an aux-app that has such callbacks. A queue is filled by the main thread, which never waits: what does not fit is refused with
 * -EBUSY, and fp-mount, which gives each event a number, holds back before that. A message for several aux-apps is copied for each, and answered when
 * the last one is through.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "auxapps/host/host.h"
#include "fp/clock.h"

#define QUIET_NS 100000000ull

/* -------------------------------------------------------------- answers */

struct aux_done *aux_done_new(uint64_t id, uint32_t refs)
{
    struct aux_done *d = id != 0 ? malloc(sizeof(*d)) : NULL;

    if (d) {
        atomic_init(&d->refs, refs);
        d->id = id;
        atomic_init(&d->status, 0);
        atomic_init(&d->app, FP_AUXW_NO_APP);
    }
    return d;
}

void aux_done_put(struct aux_host *h, struct aux_done *d, uint32_t app, int status)
{
    int32_t none = 0;

    if (!d)
        return;
    if (status < 0 && atomic_compare_exchange_strong(&d->status, &none, status))
        atomic_store(&d->app, app);
    if (atomic_fetch_sub(&d->refs, 1) != 1)
        return;
    aux_link_done(h, d->id, atomic_load(&d->app), atomic_load(&d->status), 0);
    free(d);
}

/* -------------------------------------------------------------- one event */

/* Strings of a message have no NUL: a copy that has, in `buf`. */
static const char *text(char **buf, const uint8_t **at, uint32_t len)
{
    char *s = *buf;

    memcpy(s, *at, len);
    s[len] = '\0';
    *buf += len + 1;
    *at += len;
    return s;
}

static int run_io(struct aux_app *a, struct aux_event *e, struct aux_call *c)
{
    const struct fp_auxw_event *m = (const struct fp_auxw_event *)(const void *)e->msg;
    bool far = m->data_bytes > FP_AUXW_INLINE_BYTES;
    uint64_t inside = far ? 0 : m->data_bytes, all = sizeof(*m) + (uint64_t)m->name_bytes + m->new_name_bytes + inside;
    const struct fp_aux_io_op *op = m->io.op < FP_AUX_OP_COUNT ? &a->plugin->app.io[m->io.op] : NULL;
    struct fp_aux_io io = m->io;
    const uint8_t *at = e->msg + sizeof(*m);

    if (all > e->len_bytes || !op || !op->fn)
        return -EINVAL;
    if (far && (m->data_region > a->h->region_bytes || m->data_bytes > a->h->region_bytes - m->data_region))
        return -EINVAL;
    char *buf = malloc((size_t)m->name_bytes + m->new_name_bytes + 2), *s = buf;

    if (!buf)
        return -ENOMEM;
    io.size_bytes = sizeof(io);
    io.name = text(&s, &at, m->name_bytes);
    io.new_name = text(&s, &at, m->new_name_bytes);
    if (m->name_bytes == 0)
        io.name = NULL;
    if (m->new_name_bytes == 0)
        io.new_name = NULL;
    io.data = m->data_bytes == 0 ? NULL : far ? a->h->region_ro + m->data_region : at;
    aux_call_begin(c, a, atomic_load(m->wait ? &a->ask_ms : &a->deadline_ms), !m->wait);
    c->cancelled = &e->cancelled;
    int rc = op->fn(a->state, (struct fp_aux_call *)c, &io);

    aux_call_end(c);
    free(buf);
    return rc;
}

static int run_file(struct aux_app *a, struct aux_event *e, struct aux_call *c)
{
    const struct fp_auxw_file *m = (const struct fp_auxw_file *)(const void *)e->msg;
    struct fp_aux_file f = m->file;

    if (sizeof(*m) + (uint64_t)m->path_bytes > e->len_bytes)
        return -EINVAL;
    f.size_bytes = sizeof(f);
    f.path = (const char *)(e->msg + sizeof(*m));
    e->msg[sizeof(*m) + m->path_bytes] = 0;
    aux_call_begin(c, a, atomic_load(&a->deadline_ms), true);
    c->cancelled = &e->cancelled;
    c->file_serial = f.file_serial;
    int rc = a->plugin->app.file_sealed(a->state, (struct fp_aux_call *)c, &f);

    aux_call_end(c);
    return rc;
}

static int run_set(struct aux_app *a, struct aux_event *e, struct aux_call *c)
{
    const struct fp_auxw_set *m = (const struct fp_auxw_set *)(const void *)e->msg;
    const char *at = (const char *)(e->msg + sizeof(*m)), *end = (const char *)(e->msg + e->len_bytes);
    struct fp_aux_set set = {.size_bytes = sizeof(set), .nfiles = m->nfiles, .step = m->step, .name = at};
    const char **path = m->nfiles < FP_AUXW_MESSAGE_MAX_BYTES ? calloc(m->nfiles + 1, sizeof(*path)) : NULL;

    if (!path)
        return -ENOMEM;
    for (uint32_t i = 0; i < m->nfiles && at < end; i++) {
        at += strnlen(at, (size_t)(end - at)) + 1;
        path[i] = at < end ? at : "";
    }
    set.paths = path;
    aux_call_begin(c, a, atomic_load(&a->deadline_ms), true);
    c->cancelled = &e->cancelled;
    int rc = a->plugin->app.set_complete(a->state, (struct fp_aux_call *)c, &set);

    aux_call_end(c);
    free(path);
    return rc;
}

static int run_message(struct aux_app *a, struct aux_event *e, struct aux_call *c)
{
    const struct fp_auxw_message *m = (const struct fp_auxw_message *)(const void *)e->msg;
    char node[256];

    if (sizeof(*m) + (uint64_t)m->node_bytes + m->data_bytes > e->len_bytes || m->node_bytes >= sizeof(node))
        return -EINVAL;
    memcpy(node, e->msg + sizeof(*m), m->node_bytes);
    node[m->node_bytes] = '\0';
    struct fp_aux_message msg = {.size_bytes = sizeof(msg), .len_bytes = m->data_bytes, .node = node, .mount = m->mount,
                     .data = e->msg + sizeof(*m) + m->node_bytes};

    aux_call_begin(c, a, atomic_load(&a->deadline_ms), true);
    c->cancelled = &e->cancelled;
    int rc = a->plugin->app.message(a->state, (struct fp_aux_call *)c, &msg);

    aux_call_end(c);
    return rc;
}

static int run_stored(struct aux_app *a, struct aux_event *e, struct aux_call *c)
{
    const struct fp_auxw_stored *m = (const struct fp_auxw_stored *)(const void *)e->msg;
    struct fp_aux_place place = {.chunk = m->chunk, .off = m->off, .len_bytes = m->len_bytes};

    aux_call_begin(c, a, atomic_load(&a->deadline_ms), true);
    if (a->table)
        aux_figure2_stored(a, m->ticket, place);
    if (a->plugin->app.chunk_stored)
        a->plugin->app.chunk_stored(a->state, m->ticket, place);
    aux_call_end(c);
    return 0;
}

static void run(struct aux_app *a, struct aux_event *e)
{
    const struct fp_auxw_head *m = (const struct fp_auxw_head *)(const void *)e->msg;
    struct aux_call c;
    int rc;

    switch (atomic_load(&e->cancelled) ? FP_AUXW_NONE : m->type) {
    case FP_AUXW_EVENT: rc = run_io(a, e, &c); break;
    case FP_AUXW_FILE: rc = run_file(a, e, &c); break;
    case FP_AUXW_SET: rc = run_set(a, e, &c); break;
    case FP_AUXW_MESSAGE: rc = run_message(a, e, &c); break;
    case FP_AUXW_STORED: rc = run_stored(a, e, &c); break;
    default: rc = -ECANCELED; break;
    }
    atomic_fetch_add(&a->stats->events, 1);
    bool refused = m->type == FP_AUXW_EVENT && ((const struct fp_auxw_event *)(const void *)e->msg)->wait;

    if (rc < 0 && rc != -ECANCELED && !refused) {
        atomic_fetch_add(&a->stats->errors, 1);
        aux_log(a->h, a->index, FP_AUX_WARN, "its callback failed: %s", strerror(-rc));
    }
    aux_done_put(a->h, e->done, a->index, rc);
    free(e);
}

/* -------------------------------------------------------------- the thread */

static void run_idle(struct aux_app *a)
{
    struct aux_call c;

    aux_call_begin(&c, a, atomic_load(&a->deadline_ms), true);
    int rc = a->plugin->app.idle(a->state, (struct fp_aux_call *)&c);

    aux_call_end(&c);
    if (rc < 0 && rc != -ECANCELED)
        aux_log(a->h, a->index, FP_AUX_WARN, "its idle callback failed: %s", strerror(-rc));
}

static bool stage_busy(struct aux_app *a)
{
    pthread_mutex_lock(&a->stage.lock);
    bool busy = a->stage.queued > 0 || a->stage.running > 0;

    pthread_mutex_unlock(&a->stage.lock);
    return busy;
}

/* When to call idle next, given when it was called last (0: not since something came). Nothing to do before *until_ns. */
static bool idle_due(struct aux_app *a, uint64_t *last_ns, uint64_t *until_ns)
{
    uint64_t now = fp_now_ns(), come = atomic_load(&a->h->last_come_ns);

    if (come >= *last_ns)
        *last_ns = 0;
    *until_ns = *last_ns ? *last_ns + atomic_load(&a->idle_ms) * 1000000ull : come + QUIET_NS;
    if (now < *until_ns)
        return false;
    *until_ns = now + QUIET_NS;
    return true;
}

/* The next event, or NULL: it is time for idle, or the end. With the lock. */
static struct aux_event *next_event(struct aux_events *q, uint64_t *last_idle_ns)
{
    struct aux_app *a = q->app;
    bool idle = a->plugin->app.idle && q == &a->events;

    while (!q->stop && (!q->head || q->paused)) {
        struct timespec ts;
        uint64_t until;

        if (!idle || q->paused) {
            pthread_cond_wait(&q->wake, &q->lock);
            continue;
        }
        if (idle_due(a, last_idle_ns, &until))
            return NULL;
        ts.tv_sec = (time_t)(until / 1000000000u);
        ts.tv_nsec = (long)(until % 1000000000u);
        pthread_cond_timedwait(&q->wake, &q->lock, &ts);
    }
    if (q->stop)
        return NULL;
    struct aux_event *e = q->head;

    q->head = e->next;
    if (!q->head)
        q->tail = &q->head;
    q->queued--;
    return e;
}

static void *events_thread(void *arg)
{
    struct aux_events *q = arg;
    struct aux_app *a = q->app;
    struct aux_thread self;
    uint64_t last_idle_ns = 0;

    pthread_setname_np(pthread_self(), "aux-events");
    aux_guard_drop();
    aux_thread_short();    /* an application may wait for it */
    aux_thread_begin(&self, a->h, a->index, q->cpu);
    pthread_mutex_lock(&q->lock);
    while (!q->stop) {
        struct aux_event *e = next_event(q, &last_idle_ns);

        if (q->stop && !e)
            break;
        q->busy = true;
        q->running = e;
        pthread_mutex_unlock(&q->lock);
        if (e) {
            run(a, e);
        } else {
            if (!stage_busy(a))
                run_idle(a);
            last_idle_ns = fp_now_ns();
        }
        pthread_mutex_lock(&q->lock);
        q->running = NULL;
        q->busy = false;
        if (q->paused)
            pthread_cond_broadcast(&q->quiet);
    }
    pthread_mutex_unlock(&q->lock);
    aux_thread_end(&self);
    return NULL;
}

/* Has it a FUSE call that is waited for, or one that is not? */
static bool has_io(const struct aux_app *a, bool waited)
{
    const struct fp_aux_app *p = &a->plugin->app;

    for (int i = 0; i < FP_AUX_OP_COUNT; i++) {
        if (p->io[i].fn && ((p->io[i].flags & FP_AUX_WAIT) != 0) == waited)
            return true;
    }
    return false;
}

static bool has_events(const struct aux_app *a)
{
    const struct fp_aux_app *p = &a->plugin->app;

    return has_io(a, false) || p->write || p->chunk_stored || p->file_sealed || p->set_complete || p->idle || p->message;
}

static void queue_init(struct aux_events *q, struct aux_app *a)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&q->wake, &attr);
    pthread_cond_init(&q->quiet, &attr);
    pthread_condattr_destroy(&attr);
    q->tail = &q->head;
    q->app = a;
    q->cpu = -1;
}

void aux_events_init(struct aux_app *a)
{
    queue_init(&a->events, a);
    queue_init(&a->asks, a);
}

static int queue_start(struct aux_events *q, int cpu)
{
    q->cpu = cpu;
    int rc = -pthread_create(&q->thread, NULL, events_thread, q);

    q->started = rc == 0;
    return rc;
}

int aux_events_start(struct aux_app *a, int cpu)
{
    int rc = has_events(a) ? queue_start(&a->events, cpu) : 0;

    if (rc == 0 && has_io(a, true))
        rc = queue_start(&a->asks, cpu);
    return rc;
}

/* -------------------------------------------------------------- from outside */

static struct aux_events *queue_of(struct aux_app *a, const struct fp_auxw_head *m)
{
    return m->type == FP_AUXW_EVENT && ((const struct fp_auxw_event *)(const void *)m)->wait ? &a->asks : &a->events;
}

void aux_event_submit(struct aux_app *a, const struct fp_auxw_head *m, struct aux_done *done)
{
    struct aux_events *q = queue_of(a, m);
    struct aux_event *e = q->started ? malloc(sizeof(*e) + m->len_bytes + 1) : NULL;
    int rc = q->started ? -ENOMEM : -ENOTSUP;

    if (e) {
        e->next = NULL;
        e->done = done;
        atomic_init(&e->cancelled, false);
        e->len_bytes = m->len_bytes;
        memcpy(e->msg, m, m->len_bytes);
        e->msg[m->len_bytes] = 0;
        pthread_mutex_lock(&q->lock);
        rc = q->queued >= AUX_EVENTS_MAX ? -EBUSY : 0;
        if (rc == 0) {
            *q->tail = e;
            q->tail = &e->next;
            q->queued++;
            pthread_cond_signal(&q->wake);
        }
        pthread_mutex_unlock(&q->lock);
    }
    if (rc == 0)
        return;
    free(e);
    if (rc == -EBUSY)
        aux_log(a->h, a->index, FP_AUX_WARN, "%u events wait for it: the next ones are left out", AUX_EVENTS_MAX);
    aux_done_put(a->h, done, FP_AUXW_NO_APP, rc); /* that is not its word */
}

void aux_event_broadcast(struct aux_host *h, const struct fp_auxw_head *m, uint32_t has)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->napps; i++)
        n += h->app[i] && h->app[i]->plugin && (aux_app_has(h->app[i]) & has);
    struct aux_done *done = aux_done_new(m->id, n > 0 ? n : 1);

    for (uint32_t i = 0; i < h->napps; i++) {
        if (h->app[i] && h->app[i]->plugin && (aux_app_has(h->app[i]) & has))
            aux_event_submit(h->app[i], m, done);
    }
    if (n == 0)
        aux_done_put(h, done, FP_AUXW_NO_APP, 0);
}

static void queue_cancel(struct aux_events *q, uint64_t id, bool all)
{
    if (!q->started)
        return;
    pthread_mutex_lock(&q->lock);
    for (struct aux_event *e = q->running ? q->running : q->head; e; e = e == q->running ? q->head : e->next) {
        if (all || (e->done && e->done->id == id))
            atomic_store(&e->cancelled, true);
    }
    pthread_mutex_unlock(&q->lock);
}

void aux_event_cancel(struct aux_host *h, uint64_t id, bool all)
{
    for (uint32_t i = 0; i < h->napps; i++) {
        if (!h->app[i])
            continue;
        queue_cancel(&h->app[i]->events, id, all);
        queue_cancel(&h->app[i]->asks, id, all);
    }
}

static void queue_pause(struct aux_events *q, bool pause)
{
    if (!q->started)
        return;
    pthread_mutex_lock(&q->lock);
    q->paused = pause;
    while (pause && q->busy && !atomic_load(&q->app->h->stopping))
        pthread_cond_wait(&q->quiet, &q->lock);
    pthread_cond_signal(&q->wake);
    pthread_mutex_unlock(&q->lock);
}

/* Those that an application waits for last, and so for the shortest time. */
void aux_events_pause(struct aux_app *a, bool pause)
{
    queue_pause(&a->events, pause);
    queue_pause(&a->asks, pause);
}

static void queue_stop(struct aux_events *q)
{
    if (!q->started)
        return;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_broadcast(&q->wake);
    pthread_cond_broadcast(&q->quiet);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    q->started = false;
}

void aux_events_stop(struct aux_app *a)
{
    queue_stop(&a->events);
    queue_stop(&a->asks);
}
