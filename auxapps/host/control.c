/*
 * The control thread: loads and starts aux-apps, changes their options, gives them cores and takes cores back, stops them.
 *
 * Here, and not in the main thread, because all of it may take long: a plugin's start may read a file or ask the manager. One thing at a time, so that start,
 * stop and configure of an aux-app never meet. While an aux-app is configured, nothing else of it runs: its stage, its events and its decoding are held,
 * each after the call it is in.
 *
 * Dynamic provisioning: every 50 ms, what waits for each aux-app that may have more cores than it has, and how busy the service cores are, goes into
 * aux_cores_decide. The status page says what was done and why.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "auxapps/host/host.h"
#include "fp/clock.h"
#include "fp/units.h"

#define START_MS 30000u
#define END_MS 2000u
#define BUSY_PERMILLE 700u             /* a core with less to do has room */

struct change { struct change *next; uint64_t id; uint32_t app, bytes; char text[]; };

struct aux_control {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    struct change *head, **tail;
    /* of the control thread */
    struct aux_demand demand[FP_AUXW_APPS_MAX];
    uint64_t app_busy_ns[FP_AUXW_APPS_MAX], core_busy_ns[AUX_CORES_MAX], ticked_ns;
};

/* -------------------------------------------------------------- aux-apps */

struct aux_app *aux_app_new(struct aux_host *h, uint32_t index, const char *declaration, uint32_t declaration_bytes)
{
    struct aux_app *a = calloc(1, sizeof(*a));
    pthread_rwlockattr_t attr;

    if (!a)
        return NULL;
    a->declaration = strndup(declaration, declaration_bytes);
    if (!a->declaration) {
        free(a);
        return NULL;
    }
    a->h = h;
    a->index = index;
    a->host.handle.services = &aux_services;
    a->host.app = a;
    a->stats = &h->status->stats[index];
    /* Numbers of tickets are not used again by the next host: fp-mount may bring one of this host's to it. */
    atomic_init(&a->next_ticket, ((uint64_t)getpid() << 40) | ((fp_now_ns() >> 20 & 0xffff) << 24) | 1);
    /* Who configures it must get in between decoders that come all the time. */
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&a->in_lock, &attr);
    pthread_rwlockattr_destroy(&attr);
    return a;
}

static int start(struct aux_app *a, char why[AUX_WHY_BYTES])
{
    char said[AUX_WHY_BYTES] = "";
    struct aux_call c;
    int rc = 0;

    if (a->plugin->app.start) {
        aux_call_begin(&c, a, START_MS, false);
        c.said = said;
        rc = a->plugin->app.start(&a->host, &a->state);
        aux_call_end(&c);
    }
    if (rc < 0)
        snprintf(why, AUX_WHY_BYTES, "aux-app %s does not start: %.600s", a->plugin->app.name, said[0] ? said : strerror(-rc));
    a->started = rc >= 0;
    return rc < 0 ? rc : 0;
}

int aux_app_load(struct aux_host *h, struct aux_app *a, const char *word, const char *declaration, char why[AUX_WHY_BYTES])
{
    struct aux_plugin *p;
    int rc = aux_loader_load(h, a->index, word, &p, why);

    if (rc < 0)
        return rc;
    rc = aux_options_parse(p, declaration, &a->words, &a->options, why);
    for (uint32_t i = 0; rc == 0 && i < FP_AUXW_APPS_MAX; i++) {
        if (h->app[i] && h->app[i] != a && h->app[i]->plugin && strcmp(h->app[i]->plugin->app.name, p->app.name) == 0) {
            snprintf(why, AUX_WHY_BYTES, "aux-app %s is declared twice", p->app.name);
            rc = -EEXIST;
        }
    }
    if (rc == 0 && p->app.write) {
        a->table = aux_figure2_table();
        rc = a->table ? 0 : -ENOMEM;
    }
    if (rc < 0) {
        aux_plugin_free(p);
        return rc;
    }
    a->plugin = p;
    a->required = a->required || a->words.required || (p->app.flags & FP_AUX_REQUIRED);
    atomic_store(&a->deadline_ms, a->words.deadline_ms);
    atomic_store(&a->ask_ms, a->words.ask_ms);
    atomic_store(&a->idle_ms, a->words.idle_ms);
    atomic_store(&a->verify, a->words.verify);
    aux_stage_init(a);
    aux_events_init(a);
    return start(a, why);
}

uint32_t aux_app_has(const struct aux_app *a)
{
    const struct fp_aux_app *p = &a->plugin->app;

    if (a->bypassed)
        return p->chunk_in ? FP_AUXW_HAS_IN : 0;
    return (p->chunk_out || p->write ? FP_AUXW_HAS_OUT : 0) | (p->chunk_in ? FP_AUXW_HAS_IN : 0) | (p->file_sealed ? FP_AUXW_HAS_FILE : 0) |
           (p->set_complete ? FP_AUXW_HAS_SET : 0) | (p->chunk_stored || p->write ? FP_AUXW_HAS_STORED : 0) |
           (p->flags & FP_AUX_HIDES ? FP_AUXW_HAS_HIDES : 0);
}

uint32_t aux_app_required(const struct aux_app *a)
{
    uint32_t flags = a->plugin->app.flags;

    if (!(flags & FP_AUX_REQUIRED))
        return a->required ? FP_AUXW_REQUIRED : 0;
    return FP_AUXW_REQUIRED | FP_AUXW_REQUIRED_SELF | (flags & FP_AUX_CODES ? FP_AUXW_REQUIRED_CODES : 0);
}

/* -------------------------------------------------------------- cores */

/* How many workers there are on each service core: of `a`, and of all. */
static void loads(struct aux_host *h, const struct aux_app *a, uint32_t *mine, uint32_t *load)
{
    uint32_t cores = aux_cores_count(h->cores);

    memset(mine, 0, AUX_CORES_MAX * sizeof(*mine));
    memset(load, 0, AUX_CORES_MAX * sizeof(*load));
    for (uint32_t i = 0; i < h->napps; i++) {
        struct aux_app *b = h->app[i];

        for (uint32_t w = 0; aux_stage_is(b) && w < b->stage.active; w++) {
            for (uint32_t k = 0; k < cores; k++) {
                if (b->stage.worker[w].cpu != aux_cores_cpu(h->cores, k))
                    continue;
                load[k]++;
                mine[k] += b == a;
            }
        }
    }
}

/* `active` workers from now on; a new one gets the core with the least on it. */
static int set_active(struct aux_host *h, struct aux_app *a, uint32_t active)
{
    uint32_t mine[AUX_CORES_MAX], load[AUX_CORES_MAX];

    for (uint32_t w = a->stage.active; w < active; w++) {
        loads(h, a, mine, load);
        int cpu = aux_cores_choose(h->cores, mine, load);

        if (!a->stage.worker[w].started || a->stage.worker[w].cpu != cpu) {
            a->stage.worker[w].cpu = cpu;
            if (w == 0)
                a->events.cpu = cpu;
        }
        int rc = aux_stage_set_active(a, w + 1);

        if (rc < 0)
            return rc;
    }
    return active < a->stage.active ? aux_stage_set_active(a, active) : 0;
}

/* What the declaration asks for, as far as it makes sense. */
static void set_demand(struct aux_host *h, struct aux_app *a)
{
    struct aux_demand *d = &h->control->demand[a->index];
    uint32_t most = aux_cores_width(h->cores) < AUX_WORKERS_MAX ? aux_cores_width(h->cores) : AUX_WORKERS_MAX;

    if (!(a->plugin->app.flags & FP_AUX_PARALLEL) && a->words.cores_max > 1) {
        aux_log(h, a->index, FP_AUX_WARN, "takes one chunk at a time: more than one core does not help it");
        most = 1;
    } else if (a->words.cores_min > most) {
        aux_log(h, a->index, FP_AUX_WARN, "cores=%u: there %s %u", a->words.cores_min, most == 1 ? "is" : "are", most);
    }
    d->min = a->words.cores_min < most ? a->words.cores_min : most;
    d->max = a->words.cores_max < most ? a->words.cores_max : most;
    d->full_ticks = 0;
    d->calm_since_ms = 0;
}

static void moved(struct aux_host *h, struct aux_app *a, const char *why)
{
    snprintf(a->stats->why, sizeof(a->stats->why), "%s", why);
    aux_log(h, a->index, FP_AUX_INFO, "%s", why);
}

/* How long threads on this core have been in callbacks, in all. */
static uint64_t core_busy(const struct fp_auxw_status *st, int cpu, uint64_t now)
{
    uint64_t ns = 0;

    for (uint32_t i = 0; i < FP_AUXW_THREADS_MAX; i++) {
        const struct fp_auxw_thread *t = &st->thread[i];

        if (atomic_load(&t->tid) == 0 || atomic_load(&t->core) != cpu)
            continue;
        ns += atomic_load(&t->busy_ns);
        uint64_t since = atomic_load(&t->since_ns);

        if (atomic_load(&t->in_call) && now > since)
            ns += now - since;
    }
    return ns;
}

static uint32_t permille(uint64_t now_ns, uint64_t *last_ns, uint64_t elapsed_ns)
{
    uint64_t d = now_ns > *last_ns ? now_ns - *last_ns : 0;

    *last_ns = now_ns;
    return elapsed_ns == 0 ? 0 : (uint32_t)(d * 1000 / elapsed_ns);
}

static void tick(struct aux_host *h)
{
    struct aux_control *k = h->control;
    uint32_t mine[AUX_CORES_MAX], load[AUX_CORES_MAX], busy[AUX_CORES_MAX];
    uint32_t cores = aux_cores_count(h->cores);
    uint64_t now = fp_now_ns(), elapsed = now - k->ticked_ns;

    k->ticked_ns = now;
    for (uint32_t i = 0; i < cores; i++)
        busy[i] = permille(core_busy(h->status, aux_cores_cpu(h->cores, i), now), &k->core_busy_ns[i], elapsed);
    for (uint32_t i = 0; i < h->napps; i++) {
        struct aux_app *a = h->app[i];
        struct aux_demand *d = &k->demand[i];
        bool spare = cores == 0;
        char why[96];

        if (!aux_stage_is(a) || (d->min == d->max && a->stage.active == d->min))
            continue;
        loads(h, a, mine, load);
        for (uint32_t c = 0; c < cores; c++)
            spare = spare || (mine[c] == 0 && busy[c] < BUSY_PERMILLE);
        d->active = a->stage.active;
        int move = aux_cores_decide(d, now / 1000000u, atomic_load(&a->stats->queue), a->stage.limit,
                        permille(atomic_load(&a->stats->busy_ns), &k->app_busy_ns[i], elapsed), spare, why);

        if (move != 0 && set_active(h, a, (uint32_t)((int)d->active + move)) == 0)
            moved(h, a, why);
    }
}

/* -------------------------------------------------------------- changes while running */

static void hold(struct aux_app *a, bool on)
{
    if (aux_stage_is(a))
        aux_stage_pause(a, on);
    aux_events_pause(a, on);
    aux_decode_pause(a, on);
}

static int change_option(struct aux_app *a, const char *name, const char *value, char why[AUX_WHY_BYTES])
{
    char said[AUX_WHY_BYTES] = "", *old = NULL;
    struct aux_call c;

    hold(a, true);
    int rc = aux_option_set(a->options, name, value, &old, why);

    if (rc == 0 && a->plugin->app.configure && !atomic_load(&a->h->stopping)) {
        aux_call_begin(&c, a, atomic_load(&a->deadline_ms), false);
        c.said = said;
        rc = a->plugin->app.configure(a->state, name);
        aux_call_end(&c);
        if (rc < 0) {
            snprintf(why, AUX_WHY_BYTES, "%s: %s=%s is refused by it: %.500s", a->plugin->app.name, name, value, said[0] ? said : strerror(-rc));
            aux_option_restore(a->options, name, old);
            old = NULL;
        }
    }
    free(old);
    hold(a, false);
    return rc < 0 ? rc : 0;
}

static int change_word(struct aux_host *h, struct aux_app *a, const char *name, const char *value, char why[AUX_WHY_BYTES])
{
    struct aux_demand *d = &h->control->demand[a->index];
    int rc = aux_words_set(&a->words, a->plugin->app.name, name, value, why);

    if (rc < 0)
        return rc;
    atomic_store(&a->deadline_ms, a->words.deadline_ms);
    atomic_store(&a->ask_ms, a->words.ask_ms);
    atomic_store(&a->idle_ms, a->words.idle_ms);
    atomic_store(&a->verify, a->words.verify);
    if (!aux_stage_is(a))
        return 0;
    pthread_mutex_lock(&a->stage.lock);
    a->stage.limit = a->words.queue;
    pthread_cond_broadcast(&a->stage.space);
    pthread_mutex_unlock(&a->stage.lock);
    if (strcmp(name, "cores") != 0)
        return 0;
    set_demand(h, a);
    uint32_t was = a->stage.active, now = was < d->min ? d->min : was > d->max ? d->max : was;

    rc = set_active(h, a, now);
    if (rc == 0) {
        char line[96];

        snprintf(line, sizeof(line), "%u %s, was %u: set by hand (cores=%.16s)", now, now == 1 ? "core" : "cores", was, value);
        moved(h, a, line);
    }
    return rc;
}

static void change(struct aux_host *h, struct change *c)
{
    struct aux_app *a = h->app[c->app];
    char why[AUX_WHY_BYTES] = "";
    char *value = strchr(c->text, '=');
    int rc = -EINVAL;

    if (value) {
        *value++ = '\0';
        rc = aux_option_is(a->options, c->text) ? -ENOENT : change_word(h, a, c->text, value, why);
        if (rc == -ENOENT)
            rc = change_option(a, c->text, value, why);
        if (rc == 0 && strcmp(c->text, "cores") != 0)
            aux_log(h, a->index, FP_AUX_INFO, "%s=%s, set by hand", c->text, value);
    }
    if (rc < 0 && !why[0])
        snprintf(why, sizeof(why), "%s", value ? strerror(-rc) : "give NAME=VALUE");
    if (rc < 0) {
        aux_log(h, a->index, FP_AUX_WARN, "%s", why);
        aux_link_refused(h, c->id, c->app, rc, why);
    } else {
        aux_link_done(h, c->id, c->app, rc, 0);
    }
}

void aux_control_change(struct aux_host *h, const struct fp_auxw_change *m)
{
    struct aux_control *k = h->control;
    uint32_t n = m->h.len_bytes - (uint32_t)sizeof(*m);
    struct change *c = malloc(sizeof(*c) + n + 1);

    if (!c) {
        aux_link_done(h, m->h.id, m->app, -ENOMEM, 0);
        return;
    }
    *c = (struct change){.id = m->h.id, .app = m->app, .bytes = n};
    memcpy(c->text, m + 1, n);
    c->text[m->text_bytes < n ? m->text_bytes : n] = '\0';
    pthread_mutex_lock(&k->lock);
    *k->tail = c;
    k->tail = &c->next;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
}

/* -------------------------------------------------------------- start and end */

static void failed(struct aux_host *h, uint32_t app, const char *why)
{
    struct fp_auxw_failed m = {.h = {.type = FP_AUXW_FAILED}, .app = app};
    struct iovec iov[2] = {{&m, sizeof(m)}, {(void *)(uintptr_t)why, strlen(why)}};

    aux_link_send(h, iov, 2);
    atomic_store(&h->stopping, true);
    shutdown(h->fd_jobs, SHUT_RD);
}

/* Aux-apps that say how much they take (an option `memory`) would be ended for it. */
static void check_memory(struct aux_host *h)
{
    char a[FP_UNITS_BUF], b[FP_UNITS_BUF];
    uint64_t sum = 0;

    for (uint32_t i = 0; i < h->napps; i++)
        if (h->app[i] && h->app[i]->plugin && !h->app[i]->bypassed)
            sum += (uint64_t)aux_option_number(h->app[i]->options, "memory");
    if (h->memory_bytes > 0 && sum >= h->memory_bytes)
        aux_log(h, FP_AUXW_NO_APP, FP_AUX_WARN, "aux-apps may take %s of memory (memory=), and are ended when they have %s: declare less, or give --aux-memory more",
            fp_format_size(a, sum), fp_format_size(b, h->memory_bytes));
}

static void say_ready(struct aux_host *h)
{
    struct fp_auxw_ready *m = calloc(1, sizeof(*m));

    if (!m)
        return;
    m->h.type = FP_AUXW_READY;
    m->abi = FP_AUX_ABI;
    m->napps = h->napps;
    for (uint32_t i = 0; i < h->napps; i++) {
        struct fp_auxw_app_info *info = &m->app[i];
        const struct aux_app *a = h->app[i];

        if (!a || !a->plugin)
            continue;
        snprintf(info->name, sizeof(info->name), "%s", a->plugin->app.name);
        snprintf(info->version, sizeof(info->version), "%s", a->plugin->app.version);
        snprintf(info->path, sizeof(info->path), "%s", a->plugin->path);
        info->has = aux_app_has(a);
        info->deadline_ms = a->words.deadline_ms;
        info->required = aux_app_required(a);
        info->failures_max = a->words.failures_max;
        for (int op = 0; op < FP_AUX_OP_COUNT; op++)
            info->io_flags[op] = !a->bypassed && a->plugin->app.io[op].fn ? (uint8_t)(0x80 | a->plugin->app.io[op].flags) : 0;
    }
    struct iovec iov = {m, sizeof(*m)};

    check_memory(h);
    atomic_store(&h->ready, true);
    aux_link_send(h, &iov, 1);
    free(m);
}

/* Load, start, give it threads. */
static int begin_app(struct aux_host *h, struct aux_app *a, char why[AUX_WHY_BYTES])
{
    char word[AUX_PATH_BYTES];
    int rc = aux_declared_word(a->declaration, word, sizeof(word));

    if (rc < 0)
        snprintf(why, AUX_WHY_BYTES, "'%.200s': say first the name of an aux-app or the path of a plugin", a->declaration);
    else
        rc = aux_app_load(h, a, word, a->declaration, why);
    if (rc < 0)
        return rc;
    snprintf(why, AUX_WHY_BYTES, "no thread could be made");
    if (aux_stage_is(a)) {
        set_demand(h, a);
        rc = set_active(h, a, h->control->demand[a->index].min);
    }
    if (rc == 0 && !a->bypassed)
        rc = aux_events_start(a, aux_cores_cpu(h->cores, 0));
    return rc;
}

static int begin(struct aux_host *h)
{
    char why[AUX_WHY_BYTES];

    for (uint32_t i = 0; i < h->napps; i++) {
        struct aux_app *a = h->app[i];
        int rc = a ? begin_app(h, a, why) : 0;

        if (rc < 0 && a->bypassed) {
            aux_log(h, i, FP_AUX_WARN, "what it has coded can't be read: %s", why);
            a->plugin = NULL;
        } else if (rc < 0) {
            failed(h, i, why);
            return rc;
        }
    }
    int rc = aux_decode_new(h);

    if (rc < 0)
        failed(h, FP_AUXW_NO_APP, strerror(-rc));
    return rc;
}

/* Cancels all, waits for the threads, stops aux-apps in reverse order. */
static void end(struct aux_host *h)
{
    aux_jobs_cancel(h, 0, true);
    aux_decode_cancel(h, 0, true);
    aux_event_cancel(h, 0, true);
    for (uint32_t i = 0; i < h->napps; i++) {
        if (aux_stage_is(h->app[i]))
            aux_stage_stop(h->app[i]);
        if (h->app[i])
            aux_events_stop(h->app[i]);
    }
    aux_decode_stop(h);
    for (uint32_t i = atomic_load(&h->nall); i > 0; i--) {
        struct aux_app *a = h->app[i - 1];
        struct aux_call c;

        if (!a || !a->started || !a->plugin->app.stop)
            continue;
        aux_call_begin(&c, a, atomic_load(&a->deadline_ms), false);
        a->plugin->app.stop(a->state);
        aux_call_end(&c);
    }
}

static void wait_tick(struct aux_control *k)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_nsec += AUX_TICK_MS * 1000000L;
    ts.tv_sec += ts.tv_nsec / 1000000000;
    ts.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&k->wake, &k->lock, &ts);
}

/* Is there an aux-app whose number of cores may change by itself? */
static bool moves(const struct aux_host *h)
{
    for (uint32_t i = 0; i < h->napps; i++) {
        if (h->control->demand[i].min != h->control->demand[i].max)
            return true;
    }
    return false;
}

static void *control_thread(void *arg)
{
    struct aux_host *h = arg;
    struct aux_control *k = h->control;
    struct aux_thread self;

    aux_thread_begin(&self, h, FP_AUXW_NO_APP, -1);
    int rc = begin(h);

    aux_guard_drop();
    if (rc == 0)
        say_ready(h);
    pthread_mutex_lock(&k->lock);
    while (!k->stop) {
        struct change *c = k->head;

        if (c) {
            k->head = c->next;
            if (!k->head)
                k->tail = &k->head;
        } else if (moves(h)) {
            wait_tick(k);
        } else {
            pthread_cond_wait(&k->wake, &k->lock);
        }
        pthread_mutex_unlock(&k->lock);
        if (c)
            change(h, c);
        else if (atomic_load(&h->ready) && moves(h))
            tick(h);
        free(c);
        pthread_mutex_lock(&k->lock);
    }
    pthread_mutex_unlock(&k->lock);
    end(h);
    aux_thread_end(&self);
    return NULL;
}

int aux_control_new(struct aux_host *h)
{
    struct aux_control *k = calloc(1, sizeof(*k));
    pthread_condattr_t attr;

    if (!k)
        return -ENOMEM;
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->wake, &attr);
    pthread_condattr_destroy(&attr);
    k->tail = &k->head;
    h->control = k;
    int rc = -pthread_create(&k->thread, NULL, control_thread, h);

    if (rc < 0) {
        h->control = NULL;
        free(k);
    }
    return rc;
}

void aux_control_stop(struct aux_host *h)
{
    struct aux_control *k = h->control;
    struct timespec ts;

    atomic_store(&h->stopping, true);
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_sec += END_MS / 1000;
    /* A plugin that does not return ends with the process. */
    pthread_timedjoin_np(k->thread, NULL, &ts);
}
