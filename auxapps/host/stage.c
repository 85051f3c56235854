/*
 * Stages: one per aux-app that takes chunks on their way out, each with a bounded queue and threads of its own.
 *
 * A chunk goes from stage to stage in the order of declaration. After its own stage, a worker gives the chunk to the next one's queue and wakes a worker there:
 * two service cores then work as a pipeline (Figure 11 of the paper). But a wake-up costs more than many a stage: 5 us, 50 on a virtual machine whose
 * core sleeps. So the worker goes on with the chunk itself if the next stage's only worker is on the same core, where handing over could win nothing, or if a
 * call there takes less than a wake-up (`cost_ns`). It needs the right to run in that stage (`running`) as if it were one of its workers: one
 * call at a time stays one call at a time. A stage whose calls wait for services (`blocked_ns`) is left to its own thread, so that its
 * waiting costs the stages before it nothing.
 *
 * A stage that has said it has nothing to do (fp_aux_skip) is passed over, chunk by chunk, as fp-mount says, which counts them. Those that all stages say so of do not come
 * here at all.
 *
 * The queue of the first stage is filled by the main thread, which never waits: fp-mount bounds what is on its way. The others are bounded by `queue`; a
 * worker that finds the next one full waits, which in the end fp-mount and the application feel. That is counted as the full stage's doing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "auxapps/host/host.h"
#include "fp/clock.h"
#include "fp/zeros.h"

#define CHEAP_NS 40000u

static void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

void aux_stage_init(struct aux_app *a)
{
    struct aux_stage *s = &a->stage;

    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->space);
    cond_init(&s->quiet);
    s->tail = &s->head;
    s->limit = a->words.queue;
    atomic_store(&s->cpu, -1);
    for (uint32_t i = 0; i < AUX_WORKERS_MAX; i++) {
        cond_init(&s->worker[i].wake);
        s->worker[i].app = a;
        s->worker[i].index = i;
        s->worker[i].cpu = -1;
    }
}

bool aux_may_skip(const struct aux_app *a)
{
    return !aux_app_required(a) && !a->plugin->app.chunk_in && !(a->plugin->app.flags & FP_AUX_CODES);
}

bool aux_stage_is(const struct aux_app *a)
{
    return a && a->plugin && !a->bypassed && (a->plugin->app.chunk_out || a->plugin->app.write);
}

static bool has_zeros(struct aux_job *j)
{
    bool found = false;

    if (j->zeros == AUX_ZEROS_UNKNOWN) {
        for (uint32_t i = 0; i < j->npage_parts && !found; i++)
            found = fp_zeros_any_block(j->page_part[i].data, j->page_part[i].len_bytes);
        j->zeros = found ? AUX_ZEROS : AUX_NO_ZEROS;
    }
    return j->zeros == AUX_ZEROS;
}

/* As it has asked for itself. Never one that changes the data or must see it, whoever says so. */
static bool is_passed_over(const struct aux_app *a, struct aux_job *j)
{
    if (!(j->skip & 1u << a->index) || !aux_may_skip(a))
        return false;
    return !(atomic_load_explicit(&a->skip_but_zeros, memory_order_relaxed) && has_zeros(j));
}

/* Once for each chunk: a stage prepares the data for the one that follows, so who follows must not change meanwhile. */
static void settle_skip(struct aux_host *h, struct aux_job *j)
{
    for (uint32_t i = 0; i < h->napps; i++) {
        if (aux_stage_is(h->app[i]) && !is_passed_over(h->app[i], j))
            j->skip &= ~(1u << i);
    }
}

struct aux_app *aux_next_out(struct aux_host *h, uint32_t index, struct aux_job *j)
{
    for (; index < h->napps; index++) {
        if (aux_stage_is(h->app[index]) && !(j->skip & 1u << index))
            return h->app[index];
    }
    return NULL;
}

/* -------------------------------------------------------------- queue; all with the lock */

static bool may_run(const struct aux_stage *s)
{
    return s->head && !s->paused && s->running < s->running_max;
}

static void wake_one(struct aux_stage *s)
{
    for (uint32_t i = 0; i < s->active; i++) {
        if (s->worker[i].idle) {
            s->worker[i].idle = false;
            pthread_cond_signal(&s->worker[i].wake);
            return;
        }
    }
}

static void put(struct aux_app *a, struct aux_job *j)
{
    struct aux_stage *s = &a->stage;

    j->next = NULL;
    *s->tail = j;
    s->tail = &j->next;
    s->queued++;
    atomic_store_explicit(&a->stats->queue, s->queued, memory_order_relaxed);
    if (s->queued > atomic_load_explicit(&a->stats->queue_max, memory_order_relaxed))
        atomic_store_explicit(&a->stats->queue_max, s->queued, memory_order_relaxed);
    if (may_run(s))
        wake_one(s);
}

static struct aux_job *take(struct aux_app *a)
{
    struct aux_stage *s = &a->stage;
    struct aux_job *j = s->head;

    s->head = j->next;
    if (!s->head)
        s->tail = &s->head;
    s->queued--;
    s->running++;
    atomic_store_explicit(&a->stats->queue, s->queued, memory_order_relaxed);
    if (s->waiting_for_space > 0)
        pthread_cond_signal(&s->space);
    if (s->full_since_ns && s->queued < s->limit) {
        atomic_fetch_add(&a->stats->wait_ns, fp_now_ns() - s->full_since_ns);
        s->full_since_ns = 0;
    }
    return j;
}

/* A chunk comes, and there is no room. */
static void note_full(struct aux_app *a)
{
    atomic_fetch_add(&a->stats->waits, 1);
    if (a->stage.full_since_ns == 0)
        a->stage.full_since_ns = fp_now_ns();
}

static void leave(struct aux_app *a)
{
    struct aux_stage *s = &a->stage;

    pthread_mutex_lock(&s->lock);
    s->running--;
    if (may_run(s))
        wake_one(s);
    if (s->paused && s->running == 0)
        pthread_cond_broadcast(&s->quiet);
    pthread_mutex_unlock(&s->lock);
}

/* -------------------------------------------------------------- from stage to stage */

/* Take the right to run a chunk in the stage of `a` on this thread, if that is better than waking one of its own. */
static bool enter_here(struct aux_app *a)
{
    struct aux_stage *s = &a->stage;
    int cpu = atomic_load_explicit(&s->cpu, memory_order_relaxed);
    uint64_t cost = atomic_load_explicit(&s->cost_ns, memory_order_relaxed);
    bool near = cpu >= 0 && cpu == aux_self->cpu;
    bool entered = false;

    if (atomic_load_explicit(&s->blocked_ns, memory_order_relaxed) > CHEAP_NS || (!near && (cost == 0 || cost > CHEAP_NS)))
        return false;
    pthread_mutex_lock(&s->lock);
    if (!s->head && !s->paused && s->running < s->running_max) {
        s->running++;
        entered = true;
    }
    pthread_mutex_unlock(&s->lock);
    return entered;
}

static void hand_over(struct aux_app *a, struct aux_job *j)
{
    struct aux_stage *s = &a->stage;

    pthread_mutex_lock(&s->lock);
    if (s->queued >= s->limit && !s->stop) {
        note_full(a);
        s->waiting_for_space++;
        while (s->queued >= s->limit && !s->stop)
            pthread_cond_wait(&s->space, &s->lock);
        s->waiting_for_space--;
    }
    put(a, j);
    pthread_mutex_unlock(&s->lock);
}

/* The right to run in the stage of `a` is held, and given back here. */
static void run(struct aux_app *a, struct aux_job *j)
{
    for (;;) {
        aux_chunk_out(a, j);
        leave(a);
        struct aux_app *next = j->status < 0 || j->new_bytes == 0 ? NULL : aux_next_out(a->h, a->index + 1, j);

        if (!next) {
            aux_job_finish(a->h, j);
            return;
        }
        if (!enter_here(next)) {
            hand_over(next, j);
            return;
        }
        a = next;
    }
}

void aux_stage_submit(struct aux_host *h, struct aux_job *j)
{
    struct aux_app *a;
    struct aux_stage *s;

    settle_skip(h, j);
    a = aux_next_out(h, 0, j);
    if (!a) {
        aux_job_finish(h, j);
        return;
    }
    s = &a->stage;
    pthread_mutex_lock(&s->lock);
    if (s->queued >= s->limit)
        note_full(a);
    put(a, j);
    pthread_mutex_unlock(&s->lock);
}

/* -------------------------------------------------------------- workers */

static void *worker(void *arg)
{
    struct aux_worker *w = arg;
    struct aux_app *a = w->app;
    struct aux_stage *s = &a->stage;
    struct aux_thread self;

    pthread_setname_np(pthread_self(), "aux-stage");
    aux_guard_drop();
    aux_thread_begin(&self, a->h, a->index, w->cpu);
    pthread_mutex_lock(&s->lock);
    while (!s->stop && w->index < s->active) {
        if (!may_run(s)) {
            w->idle = true;
            pthread_cond_wait(&w->wake, &s->lock);
            w->idle = false;
            continue;
        }
        struct aux_job *j = take(a);

        pthread_mutex_unlock(&s->lock);
        run(a, j);
        pthread_mutex_lock(&s->lock);
    }
    w->gone = true;
    pthread_mutex_unlock(&s->lock);
    aux_thread_end(&self);
    return NULL;
}

static int start_worker(struct aux_app *a, struct aux_worker *w)
{
    struct aux_stage *s = &a->stage;

    if (w->started) {
        pthread_mutex_lock(&s->lock);
        bool gone = w->gone;

        pthread_mutex_unlock(&s->lock);
        if (!gone)
            return 0;      /* it was to end and has not yet: it goes on */
        pthread_join(w->thread, NULL);
        w->started = false;
    }
    w->gone = false;
    int rc = -pthread_create(&w->thread, NULL, worker, w);

    w->started = rc == 0;
    return rc;
}

int aux_stage_set_active(struct aux_app *a, uint32_t active)
{
    struct aux_stage *s = &a->stage;
    bool parallel = a->plugin->app.flags & FP_AUX_PARALLEL;
    int rc = 0;

    pthread_mutex_lock(&s->lock);
    s->active = active;
    s->running_max = parallel ? active : 1;
    atomic_store(&s->cpu, active == 1 ? s->worker[0].cpu : -1);
    for (uint32_t i = 0; i < AUX_WORKERS_MAX; i++) {
        if (s->worker[i].started && (i >= active || s->head))
            pthread_cond_signal(&s->worker[i].wake);
    }
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < active && rc == 0; i++)
        rc = start_worker(a, &s->worker[i]);
    atomic_store(&a->stats->cores, active);
    atomic_store(&a->stats->threads, active);
    return rc;
}

void aux_stage_pause(struct aux_app *a, bool pause)
{
    struct aux_stage *s = &a->stage;

    pthread_mutex_lock(&s->lock);
    s->paused = pause;
    while (pause && s->running > 0 && !atomic_load(&a->h->stopping))
        pthread_cond_wait(&s->quiet, &s->lock);
    for (uint32_t i = 0; !pause && s->head && i < s->active; i++) {
        if (s->worker[i].started)
            pthread_cond_signal(&s->worker[i].wake);
    }
    pthread_mutex_unlock(&s->lock);
}

void aux_stage_stop(struct aux_app *a)
{
    struct aux_stage *s = &a->stage;

    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->space);
    pthread_cond_broadcast(&s->quiet);
    for (uint32_t i = 0; i < AUX_WORKERS_MAX; i++)
        pthread_cond_signal(&s->worker[i].wake);
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < AUX_WORKERS_MAX; i++) {
        if (s->worker[i].started)
            pthread_join(s->worker[i].thread, NULL);
        s->worker[i].started = false;
    }
}
