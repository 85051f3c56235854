/*
 * The queue of tasks, the threads that take them, and the pace (no call of the target here).
 *
 * The main thread (link.c) puts tasks in; threads of the target take them out: first what is urgent, then metadata (FINISH of a file must not wait for 64 MiB of
 * others), then data. A thread does one task at a time and answers it once, whatever came of it.
 *
 * Readers are threads of their own, for READ, LIST and STAT: programs wait for what was evicted, or for their input, while draining is held back for these very programs.
 *
 * The pace is asked before each run of at most a few MiB: `hold` stops data, not metadata; a rate is one clock for all threads, that never lies behind
 * by more than 100 ms, so a pause earns no burst. Both waits end at once when the pace changes, the task is cancelled or the worker ends.
 *
 * Rejected: a pool that grows with the tasks. What hangs in a parallel file system stays; a bounded number of threads bounds that too.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "drain/drain.h"
#include "fp/clock.h"
#include "fp/targetid.h"

#define NO_BURST_NS 100000000ull
#define STACK_BYTES (1u << 20)

/* ---------------------------------------------------------------- the queue */

static bool is_bulk(const struct fp_dw_merge *m)
{
    return m->step == FP_DW_MERGE_WRITE || m->step == FP_DW_MERGE_COMPARE;
}

static struct dr_task **queue_of(struct dr_worker *w, const struct dr_task *t)
{
    uint32_t type = ((const struct fp_dw_head *)t->msg)->type;

    if (type == FP_DW_READ || type == FP_DW_LIST || type == FP_DW_STAT)
        return &w->reads;
    if (t->urgent)
        return &w->urgent;
    if (type == FP_DW_MERGE)
        return is_bulk((const struct fp_dw_merge *)t->msg) ? &w->bulk : &w->normal;
    return type == FP_DW_WRITE || type == FP_DW_VERIFY ? &w->bulk : &w->normal;
}

void dr_take(struct dr_worker *w, struct dr_task *t)
{
    struct dr_task **at;

    pthread_mutex_lock(&w->lock);
    for (at = queue_of(w, t); *at; at = &(*at)->next)
        ;
    *at = t;
    t->next = NULL;
    pthread_cond_signal(queue_of(w, t) == &w->reads ? &w->read_work : &w->work);
    pthread_mutex_unlock(&w->lock);
}

static struct dr_task *pop(struct dr_worker *w, bool reads)
{
    struct dr_task **queues[] = { &w->reads, &w->urgent, &w->normal, &w->bulk };

    for (int i = reads ? 0 : 1; i < (reads ? 1 : 4); i++) {
        struct dr_task *t = *queues[i];

        if (t) {
            *queues[i] = t->next;
            return t;
        }
    }
    return NULL;
}

static bool is_it(const struct dr_task *t, uint64_t id, uint64_t gen)
{
    const struct fp_dw_head *h = (const struct fp_dw_head *)t->msg;

    return h->id == id && h->gen == gen;
}

/* One that waits is answered by the thread that takes it out: in its turn, which comes soon, since nothing else is done for it. */
void dr_cancel(struct dr_worker *w, uint64_t id, uint64_t gen)
{
    struct dr_task *queues[4];

    pthread_mutex_lock(&w->lock);
    queues[0] = w->urgent;
    queues[1] = w->normal;
    queues[2] = w->bulk;
    queues[3] = w->reads;
    for (int i = 0; i < 4; i++)
        for (struct dr_task *t = queues[i]; t; t = t->next)
            if (is_it(t, id, gen))
                t->cancelled = true;
    for (unsigned i = 0; i < FP_DW_OPS_MAX; i++)
        if (w->thread[i].task && is_it(w->thread[i].task, id, gen))
            w->thread[i].task->cancelled = true;
    pthread_cond_broadcast(&w->pace_changed);
    pthread_mutex_unlock(&w->lock);
}

/* ---------------------------------------------------------------- threads */

void dr_enter(struct dr_thread *th)
{
    atomic_store(&th->op->since_ns, fp_now_ns());
    atomic_store(&th->op->in_target, 1);
}

void dr_leave(struct dr_thread *th, uint64_t bytes)
{
    atomic_store(&th->op->in_target, 0);
    if (bytes)
        atomic_fetch_add(&th->op->bytes, bytes);
}

int dr_memory(uint8_t **p, size_t *have, size_t bytes)
{
    void *at;

    bytes = (bytes + 4095) / 4096 * 4096;
    if (*have >= bytes)
        return 0;
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return -ENOMEM;
    if (*p)
        munmap(*p, *have);
    *p = at;
    *have = bytes;
    return 0;
}

static void memory_free(uint8_t **p, size_t *have)
{
    if (*p)
        munmap(*p, *have);
    *p = NULL;
    *have = 0;
}

/* Would it change the target? */
static bool writes(const struct fp_dw_head *h)
{
    switch (h->type) {
    case FP_DW_READ:
    case FP_DW_LIST:
    case FP_DW_VERIFY:
    case FP_DW_PROBE: /* knows it by itself */
        return false;
    case FP_DW_STAT:
        return ((const struct fp_dw_file *)(const void *)h)->mark_bytes > 0;
    default:
        return true;
    }
}

static int do_task(struct dr_thread *th)
{
    if (th->task->cancelled)
        return dr_fail(th, FP_DW_SCOPE_FILE, -ECANCELED, "cancelled");
    if (fp_target_is_unmarked(th->w->target) && writes((const struct fp_dw_head *)th->task->msg))
        return dr_fail(th, FP_DW_SCOPE_TARGET, -EROFS, "%s is a target without %s: it is only read", th->w->root, FP_DW_MARKER);
    switch (((const struct fp_dw_head *)th->task->msg)->type) {
    case FP_DW_PREPARE:
        return dr_prepare(th);
    case FP_DW_WRITE:
        return dr_write(th);
    case FP_DW_FINISH:
        return dr_finish(th);
    case FP_DW_VERIFY:
        return dr_verify(th);
    case FP_DW_STAT:
        return dr_stat(th);
    case FP_DW_SWEEP:
        return dr_sweep(th);
    case FP_DW_CLEAN:
        return dr_clean(th);
    case FP_DW_PROBE:
        return dr_probe(th);
    case FP_DW_READ:
        return dr_read(th);
    case FP_DW_LIST:
        return dr_list(th);
    case FP_DW_MERGE:
        return dr_merge(th);
    default:
        return dr_fail(th, FP_DW_SCOPE_FILE, -EOPNOTSUPP, "unknown task");
    }
}

static void run_task(struct dr_thread *th)
{
    const struct fp_dw_head *h = (const struct fp_dw_head *)th->task->msg;
    uint64_t *sums = th->r.sums;

    memset(&th->r, 0, sizeof(th->r));
    th->r.sums = sums;
    th->header_segment = th->plain_chunk = 0;
    atomic_store(&th->op->id, h->id);
    atomic_store(&th->op->gen, h->gen);
    atomic_store(&th->op->bytes, 0);
    atomic_store(&th->op->in_target, 0);
    atomic_store(&th->op->kind, h->type);
    th->r.status = do_task(th);
    if (th->r.status)
        th->r.nsums = 0;
    atomic_store(&th->op->kind, 0);
    dr_answer(th);
}

/* With the lock. True: it was given up for a moment, look again. */
static bool idle(struct dr_thread *th)
{
    memory_free(&th->run, &th->run_bytes);
    memory_free(&th->bounce, &th->bounce_bytes);
    memory_free(&th->stored, &th->stored_bytes);
    memory_free(&th->plain, &th->plain_bytes);
    memory_free(&th->head, &th->head_bytes);
    if (th->file < 0)
        return false;
    pthread_mutex_unlock(&th->w->lock); /* closing is a call of the target */
    dr_read_close(th);
    pthread_mutex_lock(&th->w->lock);
    return true;
}

static void *thread_main(void *arg)
{
    struct dr_thread *th = arg;
    struct dr_worker *w = th->w;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        struct dr_task *t;

        if (w->stopping)
            break; /* what is left is not answered: the socket is gone */
        t = pop(w, th->reads);
        if (!t && idle(th))
            continue;
        if (!t) {
            pthread_cond_wait(th->reads ? &w->read_work : &w->work, &w->lock);
            continue;
        }
        th->task = t;
        pthread_mutex_unlock(&w->lock);
        run_task(th);
        dr_segs_put(w, t);
        pthread_mutex_lock(&w->lock);
        th->task = NULL;
        free(t);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int dr_start(struct dr_worker *w, unsigned threads)
{
    pthread_attr_t attr;
    int rc = 0;

    w->nthreads = threads;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (unsigned i = 0; rc == 0 && i < FP_DW_OPS_MAX; i++) {
        struct dr_thread *th = &w->thread[i];

        if (i >= threads && i < FP_DW_THREADS_MAX)
            continue;
        th->w = w;
        th->op = &w->status->op[i];
        th->file = -1;
        th->reads = i >= FP_DW_THREADS_MAX;
        th->r.sums = calloc(FP_DW_WINDOWS_MAX, sizeof(*th->r.sums));
        rc = th->r.sums ? -pthread_create(&th->id, &attr, thread_main, th) : -ENOMEM;
        if (rc && th->r.sums) {
            free(th->r.sums);
            th->r.sums = NULL;
        }
    }
    pthread_attr_destroy(&attr);
    return rc;
}

/* ---------------------------------------------------------------- the pace */

static void timed_wait(struct dr_worker *w, uint64_t until_ns)
{
    struct timespec ts = { .tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u) };

    (void)pthread_cond_timedwait(&w->pace_changed, &w->lock, &ts);
}

/* With the lock. True: wait until *until_ns (0: until something changes). Else the bytes are taken from the rate. */
static bool must_wait(struct dr_worker *w, uint64_t bytes, uint64_t *until_ns)
{
    uint64_t now = fp_now_ns();

    *until_ns = 0;
    if (w->pace == FP_DW_HOLD)
        return true;
    if (w->rate == 0)
        return false;
    if (w->next_ns + NO_BURST_NS < now)
        w->next_ns = now - NO_BURST_NS;
    *until_ns = w->next_ns;
    if (w->next_ns > now)
        return true;
    w->next_ns += (uint64_t)((double)bytes * 1e9 / (double)w->rate);
    return false;
}

bool dr_gate(struct dr_thread *th, uint64_t bytes)
{
    struct dr_worker *w = th->w;
    uint64_t until_ns;
    bool goes_on;

    pthread_mutex_lock(&w->lock);
    while ((goes_on = !w->stopping && !th->task->cancelled) && must_wait(w, bytes, &until_ns)) {
        if (until_ns)
            timed_wait(w, until_ns);
        else
            pthread_cond_wait(&w->pace_changed, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return goes_on;
}

/* ---------------------------------------------------------------- life */

static void init(struct dr_worker *w, int socket, struct fp_dw_status *status)
{
    pthread_condattr_t attr;

    memset(w, 0, sizeof(*w));
    w->socket = socket;
    w->status = status;
    w->pace = FP_DW_RUN;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->work, &attr);
    pthread_cond_init(&w->read_work, &attr);
    pthread_cond_init(&w->pace_changed, &attr);
    pthread_condattr_destroy(&attr);
}

static void stop(struct dr_worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_broadcast(&w->work);
    pthread_cond_broadcast(&w->read_work);
    pthread_cond_broadcast(&w->pace_changed);
    pthread_mutex_unlock(&w->lock);
}

struct dr_worker *dr_new(int socket, struct fp_dw_status *status)
{
    struct dr_worker *w = malloc(sizeof(*w));

    if (w)
        init(w, socket, status);
    return w;
}

static void drop_all(struct dr_worker *w)
{
    for (struct dr_task *t; (t = pop(w, true)) || (t = pop(w, false));) {
        dr_segs_put(w, t);
        free(t);
    }
    while (w->nsegs)
        dr_seg_drop(w, w->segs[0]->segment);
}

void dr_free(struct dr_worker *w)
{
    stop(w);
    for (unsigned i = 0; i < FP_DW_OPS_MAX; i++) {
        struct dr_thread *th = &w->thread[i];

        if (!th->r.sums)
            continue;
        pthread_join(th->id, NULL);
        dr_read_close(th);
        memory_free(&th->run, &th->run_bytes);
        memory_free(&th->bounce, &th->bounce_bytes);
        memory_free(&th->stored, &th->stored_bytes);
        memory_free(&th->plain, &th->plain_bytes);
    memory_free(&th->head, &th->head_bytes);
        free(th->r.sums);
    }
    drop_all(w);
    dr_index_put(w, w->index);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->work);
    pthread_cond_destroy(&w->read_work);
    pthread_cond_destroy(&w->pace_changed);
    if (w->memory)
        munmap(w->memory, w->memory_bytes);
    dr_coder_free(w->coder);
    free(w->segs);
    free(w->root);
    fp_limiter_unmap(w->limiter);
    free(w);
}
