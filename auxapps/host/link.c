/*
 * The socket of jobs: the main thread reads it, all threads write to it.
 *
 * The main thread turns messages into jobs and events and waits for nothing but the socket, so that a stage that stands still keeps nobody from being
 * cancelled, and the beat in the status page tells a host that works from one that does not. Messages are read several at a time (recvmmsg): under
 * load one system call brings what has come during the last chunk.
 *
 * Answers are sent by the thread that has them. A message is one send, so they need no lock.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "auxapps/host/host.h"
#include "fp/clock.h"
#include "fp/log.h"

#define BATCH 16u
#define BEAT_MS 100u
#define LOG_LINES 20u                  /* of an aux-app, in ... */
#define LOG_WINDOW_MS 10000u

/* -------------------------------------------------------------- sending */

int aux_link_send(struct aux_host *h, struct iovec *iov, int n)
{
    struct fp_auxw_head *head = iov[0].iov_base;
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    size_t len = 0;

    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    if (len > FP_AUXW_MESSAGE_MAX_BYTES)
        return -E2BIG;
    head->len_bytes = (uint32_t)len;
    for (;;) {
        if (sendmsg(h->fd_jobs, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            return -errno;
        struct pollfd p = {.fd = h->fd_jobs, .events = POLLOUT};

        poll(&p, 1, 20);
    }
}

void aux_link_done(struct aux_host *h, uint64_t id, uint32_t app, int status, uint32_t where)
{
    struct fp_auxw_done m = {.h = {.type = FP_AUXW_DONE, .id = id}, .status = status, .where = where, .app = app};
    struct iovec iov = {&m, sizeof(m)};

    if (id != 0)
        aux_link_send(h, &iov, 1);
}

void aux_link_refused(struct aux_host *h, uint64_t id, uint32_t app, int status, const char *why)
{
    struct fp_auxw_done m = {.h = {.type = FP_AUXW_DONE, .id = id}, .status = status, .app = app};
    struct iovec iov[2] = {{&m, sizeof(m)}, {(void *)(uintptr_t)why, strlen(why)}};

    if (id != 0)
        aux_link_send(h, iov, 2);
}

/* May another line of this aux-app go out? *dropped: how many did not, in the time before. */
static bool may_log(struct aux_app *a, uint32_t *dropped)
{
    uint64_t now = fp_now_ms(), from;

    *dropped = 0;
    if (!a)
        return true;
    from = atomic_load(&a->loglimit.from_ms);
    if (now - from >= LOG_WINDOW_MS && atomic_compare_exchange_strong(&a->loglimit.from_ms, &from, now)) {
        atomic_store(&a->loglimit.lines, 0);
        *dropped = atomic_exchange(&a->loglimit.dropped, 0);
    }
    if (atomic_fetch_add(&a->loglimit.lines, 1) < LOG_LINES)
        return true;
    atomic_fetch_add(&a->loglimit.dropped, 1);
    return false;
}

void aux_log_text(struct aux_host *h, uint32_t app, int level, const char *text)
{
    struct fp_auxw_log m = {.h = {.type = FP_AUXW_LOG}, .app = app, .level = (uint32_t)level};
    char more[64] = "";
    uint32_t dropped;

    if (!may_log(app < FP_AUXW_APPS_MAX ? h->app[app] : NULL, &dropped))
        return;
    if (dropped > 0)
        snprintf(more, sizeof(more), " (%u lines before this one left out)", dropped);
    struct iovec iov[3] = {{&m, sizeof(m)}, {(void *)(uintptr_t)text, strnlen(text, 2000)}, {more, strlen(more)}};

    aux_link_send(h, iov, 3);
}

void aux_log(struct aux_host *h, uint32_t app, int level, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    aux_log_text(h, app, level, text);
}

/* -------------------------------------------------------------- messages */

static int on_config(struct aux_host *h, const struct fp_auxw_config *m)
{
    uint32_t len = m->h.len_bytes - (uint32_t)sizeof(*m);

    if (m->index >= FP_AUXW_APPS_MAX || h->control || h->app[m->index])
        return -EPROTO;
    h->app[m->index] = aux_app_new(h, m->index, (const char *)(m + 1), len);
    if (!h->app[m->index])
        return -ENOMEM;
    h->app[m->index]->required = m->required & FP_AUXW_CONFIG_REQUIRED;
    h->app[m->index]->bypassed = m->required & FP_AUXW_CONFIG_BYPASSED;
    if (m->index >= h->napps)
        h->napps = m->index + 1;
    return 0;
}

/* Not for children that a plugin makes: they would write where the next host writes, and keep the memory. */
static int map_one(uint64_t bytes, int prot, int fd, void **out)
{
    void *p = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED || madvise(p, bytes, MADV_DONTFORK) < 0)
        return -errno;
    *out = p;
    return 0;
}

static int map(struct aux_host *h, const struct fp_auxw_start *m)
{
    void *pool = NULL, *region = NULL, *region_ro = NULL;
    int rc = map_one(m->pool_bytes, PROT_READ, FP_AUXW_FD_POOL, &pool);

    rc = rc ? rc : map_one(m->region_bytes, PROT_READ | PROT_WRITE, FP_AUXW_FD_REGION, &region);
    rc = rc ? rc : map_one(m->region_bytes, PROT_READ, FP_AUXW_FD_REGION, &region_ro);
    if (rc)
        return rc;
    h->pool = pool;
    h->pool_bytes = m->pool_bytes;
    h->region = region;
    h->region_ro = region_ro;
    h->region_bytes = m->region_bytes;
    h->memory_bytes = m->memory_bytes;
    return 0;
}

static int on_start(struct aux_host *h, const struct fp_auxw_start *m)
{
    int rc = h->control ? -EPROTO : map(h, m);
    char cores[sizeof(m->cores) + 1], why[96];

    if (rc < 0)
        return rc;
    snprintf(cores, sizeof(cores), "%.*s", (int)sizeof(m->cores), m->cores);
    snprintf(h->plugin_dir, sizeof(h->plugin_dir), "%.*s", (int)sizeof(m->plugin_dir) - 1, m->plugin_dir);
    snprintf(h->node, sizeof(h->node), "%.*s", (int)sizeof(m->node) - 1, m->node);
    snprintf(h->mountpoint, sizeof(h->mountpoint), "%.*s", (int)sizeof(m->mountpoint) - 1, m->mountpoint);
    snprintf(h->cores_text, sizeof(h->cores_text), "%s", cores);
    atomic_store(&h->nall, h->napps);
    /* Before any other thread is made: they inherit where they may run, those of plugins too. */
    rc = aux_cores_new(cores, &h->cores, why);
    if (rc < 0)
        return rc;
    if (why[0])
        aux_log(h, FP_AUXW_NO_APP, FP_AUX_WARN, "%s", why);
    aux_self->cpu = aux_cores_pin(h->cores, -1);
    if (aux_self->slot)
        atomic_store(&aux_self->slot->core, aux_self->cpu);
    rc = aux_loader_new(h);
    if (rc == 0)
        rc = aux_control_new(h);
    aux_guard_drop();
    aux_thread_short();    /* not before: the thread just made, and all that it makes, would be so too */
    return rc;
}

static void on_chunk_out(struct aux_host *h, const struct fp_auxw_chunk_out *m)
{
    int status = -EAGAIN;
    struct aux_job *j = atomic_load(&h->ready) ? aux_job_new(h, m, &status) : NULL;

    if (j)
        aux_stage_submit(h, j);
    else
        aux_job_refuse(h, m->h.id, status);
}

static struct aux_app *declared(struct aux_host *h, uint32_t app)
{
    return atomic_load(&h->ready) && app < h->napps && h->app[app] && h->app[app]->plugin ? h->app[app] : NULL;
}

static void to_app(struct aux_host *h, const struct fp_auxw_head *m, uint32_t app)
{
    struct aux_app *a = declared(h, app);

    if (a)
        aux_event_submit(a, m, aux_done_new(m->id, 1));
    else
        aux_link_done(h, m->id, FP_AUXW_NO_APP, -ENOTSUP, 0);
}

static void on_cancel(struct aux_host *h, uint64_t id)
{
    aux_jobs_cancel(h, id, false);
    aux_decode_cancel(h, id, false);
    aux_event_cancel(h, id, false);
}

/* Least length of a message of this type; 0: fp-mount sends none. */
static size_t least(uint32_t type)
{
    switch (type) {
    case FP_AUXW_CONFIG: return sizeof(struct fp_auxw_config);
    case FP_AUXW_START: return sizeof(struct fp_auxw_start);
    case FP_AUXW_CHUNK_OUT: return sizeof(struct fp_auxw_chunk_out);
    case FP_AUXW_CHUNK_IN: return sizeof(struct fp_auxw_chunk_in);
    case FP_AUXW_STORED: return sizeof(struct fp_auxw_stored);
    case FP_AUXW_EVENT: return sizeof(struct fp_auxw_event);
    case FP_AUXW_FILE: return sizeof(struct fp_auxw_file);
    case FP_AUXW_SET: return sizeof(struct fp_auxw_set);
    case FP_AUXW_MESSAGE: return sizeof(struct fp_auxw_message);
    case FP_AUXW_CHANGE: return sizeof(struct fp_auxw_change);
    case FP_AUXW_CANCEL: return sizeof(struct fp_auxw_done);
    case FP_AUXW_STOP: return sizeof(struct fp_auxw_head);
    default: return 0;
    }
}

/* 1: the end. Negative: fp-mount and this host do not understand each other. */
static int on_message(struct aux_host *h, const void *buf, size_t n)
{
    const struct fp_auxw_head *m = buf;

    if (n < sizeof(*m) || m->len_bytes != n || least(m->type) == 0 || n < least(m->type))
        return -EPROTO;
    if (m->type != FP_AUXW_STORED && m->type != FP_AUXW_CANCEL && m->type != FP_AUXW_CHANGE)
        atomic_store_explicit(&h->last_come_ns, fp_now_ns(), memory_order_relaxed);
    switch (m->type) {
    case FP_AUXW_CONFIG: return on_config(h, buf);
    case FP_AUXW_START: return on_start(h, buf);
    case FP_AUXW_CHUNK_OUT: on_chunk_out(h, buf); return 0;
    case FP_AUXW_CHUNK_IN:
        if (atomic_load(&h->ready))
            aux_decode_submit(h, buf);
        else
            aux_link_done(h, m->id, FP_AUXW_NO_APP, -EAGAIN, 0);
        return 0;
    case FP_AUXW_STORED: to_app(h, m, ((const struct fp_auxw_stored *)buf)->app); return 0;
    case FP_AUXW_EVENT: to_app(h, m, ((const struct fp_auxw_event *)buf)->app); return 0;
    case FP_AUXW_MESSAGE: to_app(h, m, ((const struct fp_auxw_message *)buf)->app); return 0;
    case FP_AUXW_FILE:
        aux_event_broadcast(h, m, atomic_load(&h->ready) ? FP_AUXW_HAS_FILE : 0);
        return 0;
    case FP_AUXW_SET:
        aux_event_broadcast(h, m, atomic_load(&h->ready) ? FP_AUXW_HAS_SET : 0);
        return 0;
    case FP_AUXW_CHANGE:
        if (declared(h, ((const struct fp_auxw_change *)buf)->app))
            aux_control_change(h, buf);
        else
            aux_link_done(h, m->id, FP_AUXW_NO_APP, -ENOENT, 0);
        return 0;
    case FP_AUXW_CANCEL: on_cancel(h, m->id); return 0;
    default: return 1;
    }
}

/* -------------------------------------------------------------- the loop */

int aux_link_run(struct aux_host *h)
{
    uint8_t *buf = aligned_alloc(64, (size_t)BATCH * FP_AUXW_MESSAGE_MAX_BYTES);
    struct timeval beat = {.tv_usec = BEAT_MS * 1000};
    struct mmsghdr v[BATCH];
    struct iovec iov[BATCH];
    int rc = 0;

    if (!buf)
        return -ENOMEM;
    memset(v, 0, sizeof(v));
    for (uint32_t i = 0; i < BATCH; i++) {
        iov[i] = (struct iovec){buf + (size_t)i * FP_AUXW_MESSAGE_MAX_BYTES, FP_AUXW_MESSAGE_MAX_BYTES};
        v[i].msg_hdr.msg_iov = &iov[i];
        v[i].msg_hdr.msg_iovlen = 1;
    }
    setsockopt(h->fd_jobs, SOL_SOCKET, SO_RCVTIMEO, &beat, sizeof(beat));
    while (rc == 0 && !atomic_load(&h->stopping)) {
        int n = recvmmsg(h->fd_jobs, v, BATCH, MSG_WAITFORONE, NULL);

        atomic_fetch_add_explicit(&h->status->beat, 1, memory_order_relaxed);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n < 0)
            rc = errno == ECONNRESET ? 1 : -errno; /* fp-mount died with something unread: its end all the same */
        for (int i = 0; i < n && rc == 0; i++)
            rc = v[i].msg_len == 0 ? 1 : on_message(h, iov[i].iov_base, v[i].msg_len);
    }
    free(buf);
    return rc > 0 ? 0 : rc;
}
