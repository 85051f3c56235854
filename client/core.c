/*
 * The core loop: one thread, one libuv loop, for the manager link, the connections to remote benefactors, and
 * timers.
 *
 * Started by main() before the data path and the mount, stopped after them. Other threads hand work over by
 * cl_core_post and cl_mgr_call: a list under a mutex, and one uv_async per batch (libuv merges wake-ups;
 * frames of one turn of the loop leave in one system call, see rpc.h). FUSE threads do not wait for metadata:
 * the callback on this loop replies to the kernel. One waiting thread per request was tried on paper and
 * rejected: 64 ranks that stat would need 64 threads, each with a buffer of max_write.
 *
 * Nothing on this loop may block or take long: a second of silence and the manager takes the session for
 * dead.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/core_int.h"
#include "client/data.h"
#include "client/inode.h"
#include "client/locks.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"

#define TICK_MS        100u
#define TICKS_PER_STAT 10u
#define SAY_BYE_S      2

struct post {
    struct cl_item item;
    void (*fn)(void *arg);
    void *arg;
};

const struct fp_keyedsum *cl_core_keyedsum(const struct cl_mount *m)
{
    return &m->core->keyedsum;
}

struct fp_rpc *cl_core_rpc(struct cl_mount *m)
{
    return m->core->rpc;
}

bool cl_core_connected(struct cl_mount *m)
{
    return atomic_load(&m->core->up);
}

uint32_t cl_core_session(struct cl_mount *m)
{
    return atomic_load_explicit(&m->core->session_shown, memory_order_acquire);
}

uint32_t cl_core_alone(struct cl_mount *m)
{
    return atomic_load_explicit(&m->core->alone, memory_order_relaxed);
}

/* -------------------------------------------------------------- posting */

void cl_core_post_item(struct cl_core *c, struct cl_item *item)
{
    item->next = NULL;
    pthread_mutex_lock(&c->inbox_lock);
    bool was_empty = !c->inbox_head;
    if (c->inbox_tail)
        c->inbox_tail->next = item;
    else
        c->inbox_head = item;
    c->inbox_tail = item;
    pthread_mutex_unlock(&c->inbox_lock);
    uint64_t one = 1;
    if (was_empty && write(c->wake_fd, &one, sizeof one) != sizeof one)
        FP_ERROR("core loop: cannot be woken: %s",
                 strerror(errno)); /* a full counter cannot be: it is read before the list */
}

bool cl_core_inbox_empty(struct cl_core *c)
{
    pthread_mutex_lock(&c->inbox_lock);
    bool empty = !c->inbox_head;
    pthread_mutex_unlock(&c->inbox_lock);
    return empty;
}

static void run_post(void *arg)
{
    struct post *p = arg;
    p->fn(p->arg);
    free(p);
}

void cl_core_post(struct cl_mount *m, void (*fn)(void *arg), void *arg)
{
    struct post *p = malloc(sizeof *p);
    if (!p) {
        /* Callers cannot go on without it, and there is no one to tell. */
        FP_ERROR("out of memory: cannot hand work to the core loop");
        abort();
    }
    *p = (struct post){.item = {.fn = run_post, .arg = p}, .fn = fn, .arg = arg};
    cl_core_post_item(m->core, &p->item);
}

static void on_wake(uv_poll_t *poll, int status, int events)
{
    struct cl_core *c = poll->data;
    uint64_t count;
    (void)status;
    (void)events;
    if (read(c->wake_fd, &count, sizeof count) != sizeof count)
        return;
    pthread_mutex_lock(&c->inbox_lock);
    struct cl_item *item = c->inbox_head;
    c->inbox_head = c->inbox_tail = NULL;
    pthread_mutex_unlock(&c->inbox_lock);
    while (item) {
        struct cl_item *next = item->next;
        item->fn(item->arg); /* may free it */
        item = next;
    }
    cl_requests_pump(c);
}

static void on_tick(uv_timer_t *timer)
{
    struct cl_core *c = timer->data;
    uint64_t now_ms = fp_now_ms();
    if (!c->started && now_ms >= c->start_deadline_ms)
        cl_core_start_result(c, -ETIMEDOUT, "%s",
                             c->start_why[0] ? c->start_why : "the manager did not answer in time");
    cl_requests_tick(c, now_ms);
    cl_locks_tick(c->m, now_ms);
    cl_early_tick(c);
    if (++c->ticks % TICKS_PER_STAT == 0 && c->link == CL_LINK_UP)
        cl_link_stats(c);
}

/* -------------------------------------------------------------- start */

void cl_core_start_result(struct cl_core *c, int err, const char *fmt, ...)
{
    pthread_mutex_lock(&c->start_lock);
    if (!c->start_done) {
        char line[sizeof c->start_why];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        memcpy(c->start_why, line, sizeof line);
        c->start_done = true;
        c->start_error = err;
        pthread_cond_signal(&c->start_cond);
    }
    pthread_mutex_unlock(&c->start_lock);
}

/* What uv_run(UV_RUN_DEFAULT) does, with the loop unlocked while there is nothing to do. */
static void *run(void *arg)
{
    struct cl_core *c = arg;
    struct pollfd p = {.fd = uv_backend_fd(&c->loop), .events = POLLIN};
    pthread_setname_np(pthread_self(), "core");
    pthread_mutex_lock(&c->loop_lock);
    cl_link_connect(c);
    while (uv_run(&c->loop, UV_RUN_NOWAIT) != 0) {
        int timeout_ms = uv_backend_timeout(&c->loop);
        if (timeout_ms == 0)
            continue;
        pthread_mutex_unlock(&c->loop_lock);
        (void)poll(&p, 1, timeout_ms);
        pthread_mutex_lock(&c->loop_lock);
    }
    pthread_mutex_unlock(&c->loop_lock);
    return NULL;
}

static int init_loop(struct cl_core *c)
{
    int rc = uv_loop_init(&c->loop);
    if (rc < 0)
        return rc;
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake_fd < 0)
        return -errno;
    rc = uv_poll_init(&c->loop, &c->wake, c->wake_fd);
    if (rc < 0)
        return rc;
    uv_poll_start(&c->wake, UV_READABLE, on_wake);
    uv_timer_init(&c->loop, &c->tick);
    uv_timer_init(&c->loop, &c->retry);
    uv_timer_init(&c->loop, &c->release);
    c->wake.data = c->tick.data = c->retry.data = c->release.data = c;
    uv_timer_start(&c->tick, on_tick, TICK_MS, TICK_MS);
    return 0;
}

static int init_rpc(struct cl_core *c)
{
    char why[FP_KEY_WHY_MAX];
    struct fp_rpc_opts opts = {0};
    int rc = fp_key_load(c->m->opt.key, &c->key, why);
    if (rc < 0) {
        FP_ERROR("%s", why);
        return rc;
    }
    rc = fp_keyedsum_init(&c->keyedsum, c->key);
    if (rc < 0) {
        FP_ERROR("cannot derive from the key what sums are made with: OpenSSL has no HMAC-SHA256");
        return rc;
    }
    opts.key = c->key;
    opts.plain = !c->m->opt.data_encryption;
    rc = fp_rpc_new(&c->loop, &opts, &c->rpc);
    if (rc < 0)
        FP_ERROR("cannot set up encrypted connections: %s", fp_strerror(rc));
    return rc;
}

static int wait_for_start(struct cl_core *c)
{
    pthread_mutex_lock(&c->start_lock);
    while (!c->start_done)
        pthread_cond_wait(&c->start_cond, &c->start_lock);
    int rc = c->start_error;
    pthread_mutex_unlock(&c->start_lock);
    if (rc < 0)
        FP_ERROR("%s", c->start_why);
    return rc;
}

int cl_core_start(struct cl_mount *m)
{
    struct cl_core *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    c->m = m;
    m->core = c;
    pthread_mutex_init(&c->loop_lock, NULL);
    pthread_mutex_init(&c->inbox_lock, NULL);
    pthread_mutex_init(&c->release_lock, NULL);
    pthread_mutex_init(&c->start_lock, NULL);
    pthread_cond_init(&c->start_cond, NULL);
    cl_calls_init(&c->calls);
    cl_early_init(c);
    c->start_deadline_ms = fp_now_ms() + m->opt.start_timeout_ms;
    /* On failure before the thread runs the process ends: nothing is taken back. */
    int rc = init_loop(c);
    if (rc < 0) {
        FP_ERROR("cannot start an event loop: %s", fp_strerror(rc));
        return rc;
    }
    rc = init_rpc(c);
    if (rc < 0)
        return rc;
    rc = -pthread_create(&c->thread, NULL, run, c);
    if (rc < 0) {
        FP_ERROR("cannot start a thread: %s", fp_strerror(rc));
        return rc;
    }
    return wait_for_start(c);
}

/* -------------------------------------------------------------- stop */

static void close_handles(void *arg)
{
    struct cl_core *c = arg;
    uv_close((uv_handle_t *)&c->wake, NULL);
    uv_close((uv_handle_t *)&c->tick, NULL);
    uv_close((uv_handle_t *)&c->retry, NULL);
    uv_close((uv_handle_t *)&c->release, NULL);
}

static void close_rpc(uv_timer_t *timer)
{
    struct cl_core *c = timer->data;
    fp_rpc_close(c->rpc, close_handles, c);
}

/* Says goodbye, and gives it 200 ms to be answered: the manager forgets us at once then, instead of after the
 * session's timeout. */
static void stop_on_loop(void *arg)
{
    struct cl_core *c = arg;
    bool up = c->link == CL_LINK_UP;
    cl_requests_release_now(c);
    c->stopping = true;
    cl_link_bye(c);
    uv_timer_start(&c->retry, close_rpc, up ? 200 : 0, 0);
}

void cl_core_bye_done(struct cl_core *c)
{
    if (c->stopping && uv_is_active((uv_handle_t *)&c->retry))
        uv_timer_start(&c->retry, close_rpc, 0, 0);
}

/* -------------------------------------------------------------- the data path comes and goes */

struct data_switch {
    struct cl_core *c;
    bool on;
    sem_t done;
};

static void switch_data(void *arg)
{
    struct data_switch *s = arg;
    s->c->data_runs = s->on;
    sem_post(&s->done);
}

static void set_data(struct cl_mount *m, bool on)
{
    struct data_switch s = {.c = m->core, .on = on};
    sem_init(&s.done, 0, 0);
    cl_core_post(m, switch_data, &s);
    while (sem_wait(&s.done) < 0)
        ; /* EINTR */
    sem_destroy(&s.done);
}

void cl_core_data_started(struct cl_mount *m)
{
    set_data(m, true);
}

void cl_core_data_stopping(struct cl_mount *m)
{
    set_data(m, false);
}

void cl_core_say_bye(struct cl_mount *m)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += SAY_BYE_S;
    cl_core_post(m, stop_on_loop, m->core);
    /* If the loop does not end, somebody's handle is left, and the session ends by itself. */
    (void)pthread_timedjoin_np(m->core->thread, NULL, &until);
}

void cl_core_stop(struct cl_mount *m)
{
    struct cl_core *c = m->core;
    cl_core_post(m, stop_on_loop, c);
    pthread_join(c->thread, NULL);
    cl_requests_fini(c);
    int rc = uv_loop_close(&c->loop);
    if (rc < 0)
        FP_DEBUG("core loop: %s", fp_strerror(rc));
    close(c->wake_fd);
    fp_key_free(c->key);
    explicit_bzero(&c->keyedsum, sizeof c->keyedsum);
    pthread_mutex_destroy(&c->loop_lock);
    pthread_mutex_destroy(&c->inbox_lock);
    pthread_mutex_destroy(&c->release_lock);
    pthread_mutex_destroy(&c->start_lock);
    pthread_cond_destroy(&c->start_cond);
    free(c->releases);
    free(c);
    m->core = NULL;
}
