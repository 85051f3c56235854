/*
 * Requests to fp-mount: several threads at once over one socket, each waiting for the answers to its own.
 *
 * Any thread: workers, event threads, threads that a plugin made. There is no thread that reads answers: whoever waits reads, one at a time, and hands
 * what is not its own to whom it belongs. That saves a wake-up in the usual case, one thread asking.
 *
 * Waits are bounded. A service that does not answer gives -EAGAIN after half of what the call has left, at most 5 s, so that the aux-app can do without
 * and is not blamed for a manager that is away. A call that is over gives -ECANCELED.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "auxapps/host/host.h"
#include "fp/clock.h"

#define WAIT_MAX_NS 5000000000ull
#define LOOK_NS 50000000ull            /* is the call over? */

struct waiter {
    struct waiter *next;
    uint64_t id;
    struct aux_answer *head, **tail;
    pthread_cond_t cond;
};

struct aux_svc {
    pthread_mutex_t lock;
    struct waiter *waiters;
    bool reading, closed;
    _Atomic uint64_t next_id;
    _Alignas(16) uint8_t buf[FP_AUXW_MESSAGE_MAX_BYTES];
};

int aux_svc_new(struct aux_host *h)
{
    struct aux_svc *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    pthread_mutex_init(&s->lock, NULL);
    atomic_store(&s->next_id, 1);
    h->svc = s;
    return 0;
}

static void deadline(struct timespec *ts, uint64_t ns)
{
    ts->tv_sec = (time_t)(ns / 1000000000u);
    ts->tv_nsec = (long)(ns % 1000000000u);
}

void aux_request_begin(struct aux_request *r, struct aux_app *a, uint32_t type)
{
    struct aux_svc *s = a->h->svc;
    struct aux_call *c = aux_self ? aux_self->call : NULL;
    uint64_t now = fp_now_ns(), wait = WAIT_MAX_NS;
    pthread_condattr_t attr;
    struct waiter *w = calloc(1, sizeof(*w));

    *r = (struct aux_request){.h = a->h, .app = a->index, .type = type, .call = c, .waiter = w};
    r->id = atomic_fetch_add(&s->next_id, 1);
    if (c && c->by_progress) {
        if (c->deadline_ns)
            c->deadline_ns = now + (c->deadline_ns - c->since_ns);
        c->since_ns = now;
        if (c->thread->slot)
            atomic_store(&c->thread->slot->since_ns, now);
    }
    if (c && c->deadline_ns) {
        uint64_t left = c->deadline_ns > now ? (c->deadline_ns - now) / 2 : 0;

        wait = left < wait ? left : wait;
    }
    r->until_ns = now + wait;
    r->file_serial = c ? c->file_serial : 0;
    if (!w)
        return;
    w->id = r->id;
    w->tail = &w->head;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->cond, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_lock(&s->lock);
    w->next = s->waiters;
    s->waiters = w;
    pthread_mutex_unlock(&s->lock);
}

/* If nobody reads, one who waits must. With the lock. */
static void pass_on(struct aux_svc *s, const struct waiter *but)
{
    if (s->reading)
        return;
    for (struct waiter *w = s->waiters; w; w = w->next) {
        if (w != but && !w->head)
            pthread_cond_signal(&w->cond);
    }
}

void aux_request_end(struct aux_request *r)
{
    struct aux_svc *s = r->h->svc;
    struct waiter *w = r->waiter;

    if (!w)
        return;
    pthread_mutex_lock(&s->lock);
    for (struct waiter **p = &s->waiters; *p; p = &(*p)->next) {
        if (*p == w) {
            *p = w->next;
            break;
        }
    }
    pass_on(s, NULL);
    pthread_mutex_unlock(&s->lock);
    while (w->head) {
        struct aux_answer *a = w->head;

        w->head = a->next;
        free(a);
    }
    pthread_cond_destroy(&w->cond);
    free(w);
}

int aux_request_send(struct aux_request *r, const void *body, size_t body_bytes)
{
    struct fp_auxw_svc m = {.h = {.type = r->type, .id = r->id}, .app = r->app, .file_serial = r->file_serial};
    struct iovec iov[2] = {{&m, sizeof(m)}, {(void *)(uintptr_t)body, body_bytes}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

    if (!r->waiter)
        return -ENOMEM;
    if (sizeof(m) + body_bytes > FP_AUXW_MESSAGE_MAX_BYTES)
        return -E2BIG;
    m.h.len_bytes = (uint32_t)(sizeof(m) + body_bytes);
    for (;;) {
        if (sendmsg(r->h->fd_services, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            return -ECANCELED;
        if (r->call && aux_call_over(r->call))
            return -ECANCELED;
        if (fp_now_ns() >= r->until_ns)
            return -EAGAIN;
        struct pollfd p = {.fd = r->h->fd_services, .events = POLLOUT};

        poll(&p, 1, 20);
    }
}

/* Reads one message, if there is one within LOOK_NS. Returns its length, 0: none, -1: the socket has ended. Not under the lock; one thread at a time. */
static ssize_t receive(struct aux_host *h)
{
    struct pollfd p = {.fd = h->fd_services, .events = POLLIN};
    int rc = poll(&p, 1, (int)(LOOK_NS / 1000000u));

    if (rc <= 0)
        return 0;
    ssize_t n = recv(h->fd_services, h->svc->buf, sizeof(h->svc->buf), MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    return n == 0 ? -1 : n;
}

static void deliver(struct aux_svc *s, size_t n)
{
    struct fp_auxw_svc m;

    if (n < sizeof(m))
        return;
    memcpy(&m, s->buf, sizeof(m));
    for (struct waiter *w = s->waiters; w; w = w->next) {
        if (w->id != m.h.id)
            continue;
        struct aux_answer *a = malloc(sizeof(*a) + n - sizeof(m) + 1);

        if (!a)
            return;
        a->next = NULL;
        a->status = m.status;
        a->eof = m.eof != 0;
        a->body_bytes = (uint32_t)(n - sizeof(m));
        memcpy(a->body, s->buf + sizeof(m), a->body_bytes);
        a->body[a->body_bytes] = 0;
        *w->tail = a;
        w->tail = &a->next;
        pthread_cond_signal(&w->cond);
        return;
    }
}

static int await(struct aux_request *r, struct aux_svc *s, struct waiter *w)
{
    while (!w->head) {
        uint64_t now = fp_now_ns();
        struct timespec ts;

        if (s->closed || atomic_load(&r->h->stopping) || (r->call && aux_call_over(r->call)))
            return -ECANCELED;
        if (now >= r->until_ns)
            return -EAGAIN;
        if (s->reading) {
            deadline(&ts, now + LOOK_NS);
            pthread_cond_timedwait(&w->cond, &s->lock, &ts);
            continue;
        }
        s->reading = true;
        pthread_mutex_unlock(&s->lock);
        ssize_t n = receive(r->h);

        pthread_mutex_lock(&s->lock);
        s->reading = false;
        if (n > 0)
            deliver(s, (size_t)n);
        else if (n < 0)
            s->closed = true;
    }
    return 0;
}

int aux_request_wait(struct aux_request *r, struct aux_answer **out)
{
    struct aux_svc *s = r->h->svc;
    struct waiter *w = r->waiter;
    uint64_t from = fp_now_ns();

    pthread_mutex_lock(&s->lock);
    int rc = await(r, s, w);
    struct aux_answer *a = w->head;

    if (rc == 0) {
        w->head = a->next;
        if (!w->head)
            w->tail = &w->head;
    }
    pass_on(s, w);
    pthread_mutex_unlock(&s->lock);
    if (r->call)
        r->call->blocked_ns += fp_now_ns() - from;
    if (rc < 0)
        return rc;
    if (a->status < 0) {
        rc = a->status;
        free(a);
        return rc;
    }
    *out = a;
    return 0;
}

int aux_request(struct aux_app *a, uint32_t type, const void *body, size_t body_bytes, struct aux_answer **out)
{
    struct aux_request r;

    aux_request_begin(&r, a, type);
    int rc = aux_request_send(&r, body, body_bytes);

    if (rc == 0)
        rc = aux_request_wait(&r, out);
    aux_request_end(&r);
    return rc;
}
