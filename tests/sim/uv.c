/*
 * libuv, as much of it as the programs use, over simulated descriptors and time. The order within a turn of the loop is libuv's: timers, idle, prepare, poll, check,
 * closing. What is known of a handle lies in a struct of its own, behind the handle's reserved words.
 *
 * The loop of fp-mount polls uv_backend_fd by itself: that is a counter here, which is set whenever a turn of the loop would find something.
 */
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "tests/sim/sim.h"

struct handle {
    struct handle *next;
    uv_handle_t *uv;
    struct loop *loop;
    bool active, closing, unref;
    uv_close_cb close_cb;
    /* timers */
    uint64_t due_ms, repeat_ms, order;
    uv_timer_cb timer_cb;
    /* polls */
    struct sim_sock *sock;
    int fd, events;
    uv_poll_cb poll_cb;
    /* others */
    uv_idle_cb idle_cb;
    uv_prepare_cb prepare_cb;
    uv_check_cb check_cb;
    uv_async_cb async_cb;
    uv_signal_cb signal_cb;
    int signum;
    bool pending;
};

struct loop {
    uv_loop_t *uv;
    struct sim_proc *proc;
    struct handle *handles; /* in order of making */
    struct sim_sock *wake;  /* for async handles and the backend's descriptor */
    struct loop *next;
    uint64_t now_ms, order;
    bool stop;
    int fd;
};

static struct loop *loops;

static struct handle *of(const void *uv)
{
    return ((const uv_handle_t *)uv)->u.reserved[0];
}

static struct loop *loop_of(const uv_loop_t *uv)
{
    return uv->internal_fields;
}

static uint64_t clock_ms(void)
{
    return sim_clock(sim_self, false) / SIM_MS;
}

static void init(uv_loop_t *loop, void *uv, uv_handle_type type)
{
    struct handle *h = calloc(1, sizeof *h), **last = &loop_of(loop)->handles;
    uv_handle_t *base = uv;

    base->loop = loop;
    base->type = type;
    base->u.reserved[0] = h;
    h->uv = base;
    h->loop = loop_of(loop);
    while (*last)
        last = &(*last)->next;
    *last = h;
}

/* ------------------------------------------------------------------ loops */

int uv_loop_init(uv_loop_t *uv)
{
    struct loop *l = calloc(1, sizeof *l);

    memset(uv, 0, sizeof *uv);
    uv->internal_fields = l;
    l->uv = uv;
    l->proc = sim_self->proc;
    l->wake = sim_eventlike_new();
    l->fd = -1;
    l->now_ms = clock_ms();
    l->next = loops;
    loops = l;
    return 0;
}

int uv_loop_close(uv_loop_t *uv)
{
    struct loop *l = loop_of(uv), **p = &loops;

    if (l->handles)
        return UV_EBUSY;
    while (*p != l)
        p = &(*p)->next;
    *p = l->next;
    return 0;
}

void uv_stop(uv_loop_t *uv)
{
    loop_of(uv)->stop = true;
}

uint64_t uv_now(const uv_loop_t *uv)
{
    return loop_of(uv)->now_ms;
}

void uv_update_time(uv_loop_t *uv)
{
    loop_of(uv)->now_ms = clock_ms();
}

static bool alive(const struct loop *l)
{
    for (const struct handle *h = l->handles; h; h = h->next)
        if (h->closing || (h->active && !h->unref))
            return true;
    return false;
}

int uv_loop_alive(const uv_loop_t *uv)
{
    return alive(loop_of(uv));
}

static const struct handle *first_timer(const struct loop *l)
{
    const struct handle *best = NULL;

    for (const struct handle *h = l->handles; h; h = h->next)
        if (h->uv->type == UV_TIMER && h->active && (!best || h->due_ms < best->due_ms || (h->due_ms == best->due_ms && h->order < best->order)))
            best = h;
    return best;
}

int uv_backend_timeout(const uv_loop_t *uv)
{
    const struct loop *l = loop_of(uv);
    const struct handle *t = first_timer(l);

    if (l->stop || !alive(l))
        return 0;
    for (const struct handle *h = l->handles; h; h = h->next)
        if (h->closing || (h->active && h->uv->type == UV_IDLE) || h->pending)
            return 0;
    if (!t)
        return -1;
    return t->due_ms <= l->now_ms ? 0 : (int)(t->due_ms - l->now_ms);
}

static bool wanted(const struct handle *h, int *events)
{
    *events = 0;
    if (h->uv->type != UV_POLL || !h->active)
        return false;
    if ((h->events & UV_READABLE) && sim_sock_readable(h->sock))
        *events |= UV_READABLE;
    if ((h->events & UV_WRITABLE) && sim_sock_writable(h->sock))
        *events |= UV_WRITABLE;
    return *events != 0;
}

static bool anything(const struct loop *l)
{
    int events;

    for (const struct handle *h = l->handles; h; h = h->next)
        if (h->pending || wanted(h, &events))
            return true;
    return false;
}

/* Waits until something is there, or the time has come. */
static void wait_loop(struct loop *l, int timeout_ms)
{
    uint64_t until = timeout_ms < 0 ? SIM_NEVER : sim.now_ns + (uint64_t)timeout_ms * SIM_MS;

    while (!anything(l) && sim.now_ns < until) {
        struct sim_task *me = sim_self;
        bool woken;

        me->nwatch = 0;
        me->watch[me->nwatch++] = l->wake;
        for (struct handle *h = l->handles; h; h = h->next)
            if (h->uv->type == UV_POLL && h->active) {
                if (me->nwatch == SIM_WATCH_MAX)
                    sim_fail("a loop with more than %d sockets", SIM_WATCH_MAX);
                me->watch[me->nwatch++] = h->sock;
            }
        woken = sim_block(l, until);
        me->nwatch = 0;
        if (!woken)
            return;
    }
}

static void run_timers(struct loop *l)
{
    const struct handle *c;

    while ((c = first_timer(l)) && c->due_ms <= l->now_ms) {
        struct handle *h = of(c->uv);

        h->active = false;
        if (h->repeat_ms)
            uv_timer_start((uv_timer_t *)h->uv, h->timer_cb, h->repeat_ms, h->repeat_ms);
        h->timer_cb((uv_timer_t *)h->uv);
    }
}

/* Handles of a kind, those that were active when it began. A callback may stop and close any, but frees none: that is done at the end of a turn. */
static void run_kind(struct loop *l, uv_handle_type type)
{
    for (struct handle *h = l->handles; h; h = h->next) {
        if (h->uv->type != type || !h->active || h->closing)
            continue;
        if (type == UV_IDLE)
            h->idle_cb((uv_idle_t *)h->uv);
        else if (type == UV_PREPARE)
            h->prepare_cb((uv_prepare_t *)h->uv);
        else
            h->check_cb((uv_check_t *)h->uv);
    }
}

static void run_polls(struct loop *l)
{
    for (struct handle *h = l->handles; h; h = h->next) {
        int events;

        if (h->closing)
            continue;
        if (h->pending) {
            h->pending = false;
            if (h->uv->type == UV_ASYNC)
                h->async_cb((uv_async_t *)h->uv);
            else
                h->signal_cb((uv_signal_t *)h->uv, h->signum);
        } else if (wanted(h, &events)) {
            h->poll_cb((uv_poll_t *)h->uv, 0, events);
        }
    }
}

static void run_closing(struct loop *l)
{
    for (struct handle **p = &l->handles; *p;) {
        struct handle *h = *p;

        if (!h->closing) {
            p = &h->next;
            continue;
        }
        *p = h->next;
        if (h->close_cb)
            h->close_cb(h->uv); /* may free the handle, and may make others at the end of the list */
        free(h);
        p = &l->handles;
    }
}

int uv_run(uv_loop_t *uv, uv_run_mode mode)
{
    struct loop *l = loop_of(uv);
    bool goes_on = alive(l);

    while (goes_on && !l->stop) {
        int timeout;

        uv_update_time(uv);
        run_timers(l);
        run_kind(l, UV_IDLE);
        run_kind(l, UV_PREPARE);
        timeout = mode == UV_RUN_NOWAIT ? 0 : uv_backend_timeout(uv);
        if (timeout)
            wait_loop(l, timeout);
        else if (mode != UV_RUN_NOWAIT)
            sim_maybe_yield();
        uv_update_time(uv);
        sim_eventlike_set(l->wake, 0);
        run_polls(l);
        run_kind(l, UV_CHECK);
        run_closing(l);
        if (mode == UV_RUN_ONCE)
            run_timers(l);
        goes_on = alive(l);
        if (mode != UV_RUN_DEFAULT)
            break;
    }
    l->stop = false;
    return goes_on;
}

/* For poll(): what a turn of the loop would look at. */
int uv_backend_fd(const uv_loop_t *uv)
{
    struct loop *l = loop_of(uv);

    if (l->fd < 0)
        l->fd = sim_fd_new(l->wake);
    return l->fd;
}

/* True if fd is a loop's; its sockets are put into the list. */
unsigned sim_uv_watch(const struct sim_sock *s, struct sim_sock **out, unsigned max, bool *ready)
{
    unsigned n = 0;

    for (struct loop *l = loops; l; l = l->next) {
        if (l->wake != s)
            continue;
        *ready = anything(l);
        for (struct handle *h = l->handles; h; h = h->next)
            if (h->uv->type == UV_POLL && h->active && n < max)
                out[n++] = h->sock;
    }
    return n;
}

/* ------------------------------------------------------------------ handles */

void uv_close(uv_handle_t *uv, uv_close_cb cb)
{
    struct handle *h = of(uv);

    h->active = h->pending = false;
    h->closing = true;
    h->close_cb = cb;
    h->sock = NULL;
}

int uv_is_active(const uv_handle_t *uv)
{
    return of(uv)->active;
}

int uv_is_closing(const uv_handle_t *uv)
{
    return of(uv)->closing;
}

void uv_ref(uv_handle_t *uv)
{
    of(uv)->unref = false;
}

void uv_unref(uv_handle_t *uv)
{
    of(uv)->unref = true;
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *t)
{
    init(loop, t, UV_TIMER);
    return 0;
}

int uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
    struct handle *h = of(t);

    if (h->closing)
        return UV_EINVAL;
    h->timer_cb = cb;
    h->due_ms = h->loop->now_ms + timeout;
    h->repeat_ms = repeat;
    h->order = ++h->loop->order;
    h->active = true;
    return 0;
}

int uv_timer_stop(uv_timer_t *t)
{
    of(t)->active = false;
    return 0;
}

uint64_t uv_timer_get_due_in(const uv_timer_t *t)
{
    const struct handle *h = of(t);

    return h->due_ms <= h->loop->now_ms ? 0 : h->due_ms - h->loop->now_ms;
}

int uv_poll_init(uv_loop_t *loop, uv_poll_t *p, int fd)
{
    init(loop, p, UV_POLL);
    of(p)->fd = fd;
    of(p)->sock = sim_sock_of(fd);
    if (!of(p)->sock)
        sim_fail("uv_poll of what is no simulated socket");
    return 0;
}

int uv_poll_start(uv_poll_t *p, int events, uv_poll_cb cb)
{
    struct handle *h = of(p);

    h->events = events;
    h->poll_cb = cb;
    h->active = events != 0;
    return 0;
}

int uv_poll_stop(uv_poll_t *p)
{
    of(p)->active = false;
    return 0;
}

int uv_idle_init(uv_loop_t *loop, uv_idle_t *i)
{
    init(loop, i, UV_IDLE);
    return 0;
}

int uv_idle_start(uv_idle_t *i, uv_idle_cb cb)
{
    of(i)->idle_cb = cb;
    of(i)->active = true;
    return 0;
}

int uv_idle_stop(uv_idle_t *i)
{
    of(i)->active = false;
    return 0;
}

int uv_prepare_init(uv_loop_t *loop, uv_prepare_t *p)
{
    init(loop, p, UV_PREPARE);
    return 0;
}

int uv_prepare_start(uv_prepare_t *p, uv_prepare_cb cb)
{
    of(p)->prepare_cb = cb;
    of(p)->active = true;
    return 0;
}

int uv_check_init(uv_loop_t *loop, uv_check_t *c)
{
    init(loop, c, UV_CHECK);
    return 0;
}

int uv_check_start(uv_check_t *c, uv_check_cb cb)
{
    of(c)->check_cb = cb;
    of(c)->active = true;
    return 0;
}

int uv_async_init(uv_loop_t *loop, uv_async_t *a, uv_async_cb cb)
{
    init(loop, a, UV_ASYNC);
    of(a)->async_cb = cb;
    of(a)->active = true;
    return 0;
}

int uv_async_send(uv_async_t *a)
{
    struct handle *h = of(a);

    if (h->closing)
        return UV_EINVAL;
    h->pending = true;
    sim_eventlike_set(h->loop->wake, 1);
    return 0;
}

int uv_signal_init(uv_loop_t *loop, uv_signal_t *s)
{
    init(loop, s, UV_SIGNAL);
    of(s)->unref = false;
    return 0;
}

int uv_signal_start(uv_signal_t *s, uv_signal_cb cb, int signum)
{
    of(s)->signal_cb = cb;
    of(s)->signum = signum;
    of(s)->active = true;
    return 0;
}

void sim_uv_signal(struct sim_proc *p, int signum)
{
    for (struct loop *l = loops; l; l = l->next)
        for (struct handle *h = l->proc == p ? l->handles : NULL; h; h = h->next)
            if (h->uv->type == UV_SIGNAL && h->active && h->signum == signum) {
                h->pending = true;
                sim_eventlike_set(l->wake, 1);
            }
}

void sim_uv_gone(const struct sim_proc *p)
{
    for (struct loop **l = &loops; *l;)
        if ((*l)->proc == p)
            *l = (*l)->next;
        else
            l = &(*l)->next;
}

/* Addresses are numbers here. */
int uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *req, uv_getaddrinfo_cb cb, const char *node, const char *service, const struct addrinfo *hints)
{
    (void)loop;
    (void)req;
    (void)cb;
    (void)node;
    (void)service;
    (void)hints;
    return UV_EAI_NONAME;
}

void uv_freeaddrinfo(struct addrinfo *ai)
{
    (void)ai;
}

int uv_cancel(uv_req_t *req)
{
    (void)req;
    return UV_EBUSY;
}

const char *uv_strerror(int err)
{
    return strerror(-err);
}
