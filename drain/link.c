/*
 * The socket to the benefactor: the main thread reads it, all threads answer on it.
 *
 * The main thread makes tasks of messages and calls nothing that could hang, so that the end of the socket ends the program whatever its threads are stuck in.
 * An answer is one send by the thread that has it, so answers need no lock; it waits while the benefactor does not read.
 *
 * A message that is longer than a packet may be (windows of very many pieces) is put together here before it is looked at: one task, one answer.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/memfd.h"

/* ---------------------------------------------------------------- answers */

/* ThreadSanitizer knows nothing of a socket that was there before the program. What a thread has done before it answers is over when another one begins
 * what the benefactor tells after that answer: memory for READ is used again so. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define BEFORE_SENDING(w)  __tsan_release(&(w)->socket)
#define AFTER_RECEIVING(w) __tsan_acquire(&(w)->socket)
#else
#define BEFORE_SENDING(w)
#define AFTER_RECEIVING(w)
#endif

static void send_message(struct dr_worker *w, struct iovec *iov, int n)
{
    struct fp_dw_head *h = iov[0].iov_base;
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)n };
    size_t len = 0;

    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    h->len_bytes = (uint32_t)len;
    BEFORE_SENDING(w);
    while (sendmsg(w->socket, &msg, MSG_NOSIGNAL) < 0) {
        struct pollfd p = { .fd = w->socket, .events = POLLOUT };

        if (errno == EAGAIN || errno == ENOBUFS)
            (void)poll(&p, 1, 20);
        else if (errno != EINTR)
            return; /* the end: link_run sees it too */
    }
}

void dr_answer(struct dr_thread *th)
{
    const struct fp_dw_head *task = (const struct fp_dw_head *)th->task->msg;
    const struct dr_result *r = &th->r;
    struct fp_dw_done m = {
        .h = { .type = FP_DW_DONE, .id = task->id, .gen = task->gen, .sending = task->sending },
        .kind = task->type,
        .status = r->status,
        .scope = r->scope,
        .why_bytes = (uint32_t)strlen(r->why),
        .nsums = r->nsums,
        .chunk = r->chunk,
        .bytes = r->bytes,
        .dev = r->dev,
        .tino = r->tino,
        .size = r->size,
        .mtime_ns = r->mtime_ns,
        .note = r->note,
    };

    memcpy(m.unmarked, r->unmarked, sizeof(m.unmarked));
    struct iovec iov[3] = { { &m, sizeof(m) }, { (void *)(uintptr_t)r->why, m.why_bytes }, { r->sums, r->nsums * sizeof(*r->sums) } };

    send_message(th->w, iov, 3);
}

static void send_more(struct dr_worker *w, const struct fp_dw_head *task, enum fp_dw_type type, const void *bytes, size_t len_bytes)
{
    struct fp_dw_head h = { .type = type, .id = task->id, .gen = task->gen, .sending = task->sending };
    struct iovec iov[2] = { { &h, sizeof(h) }, { (void *)(uintptr_t)bytes, len_bytes } };

    send_message(w, iov, 2);
}

void dr_send_names(struct dr_worker *w, const struct fp_dw_head *task, const char *names, size_t len_bytes)
{
    send_more(w, task, FP_DW_NAMES, names, len_bytes);
}

void dr_send_entries(struct dr_worker *w, const struct fp_dw_head *task, const uint8_t *entries, size_t len_bytes)
{
    send_more(w, task, FP_DW_ENTRIES, entries, len_bytes);
}

/* ---------------------------------------------------------------- messages */

static int on_config(struct dr_worker *w, const struct fp_dw_config *m, int fd)
{
    const char *text = (const char *)(m + 1);
    char plugin_dir[FP_DW_PLUGIN_DIR_MAX];

    if (w->root || (fd >= 0 && fp_limiter_map(fd, &w->limiter)))
        return -EPROTO;
    snprintf(plugin_dir, sizeof(plugin_dir), "%.*s", (int)m->plugin_dir_bytes, text + m->root_bytes);
    w->root = strndup(text, m->root_bytes);
    w->coder = dr_coder_new(plugin_dir, text + m->root_bytes + m->plugin_dir_bytes, m->ndeclared);
    if (!w->root || !w->coder)
        return -ENOMEM;
    memcpy(w->store, m->store, 16);
    memcpy(w->target, m->target, 16);
    return dr_start(w, m->threads);
}

static int on_seg_add(struct dr_worker *w, const struct fp_dw_seg *m, int fd)
{
    struct dr_seg *s;

    if (fd < 0)
        return -EPROTO;
    s = dr_seg_new(m->segment, m->salt, fd);
    if (!s)
        return -ENOMEM;
    dr_seg_add(w, s);
    return 0;
}

/* Before any thread can look: the first READ comes after it. */
static int on_memory(struct dr_worker *w, int fd)
{
    struct stat st;
    void *at;

    if (fd < 0 || w->memory || !w->root || fp_memfd_fixed(fd) || fstat(fd, &st) || st.st_size <= 0)
        return -EPROTO;
    at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return -ENOMEM;
    w->memory = at;
    w->memory_bytes = (size_t)st.st_size;
    return 0;
}

static void on_pace(struct dr_worker *w, const struct fp_dw_pace *m)
{
    pthread_mutex_lock(&w->lock);
    w->pace = (enum fp_dw_pace_mode)m->mode;
    if (w->rate != m->rate)
        w->next_ns = 0;
    w->rate = m->rate;
    pthread_cond_broadcast(&w->pace_changed);
    pthread_mutex_unlock(&w->lock);
}

static bool is_urgent(const struct fp_dw_head *h)
{
    switch (h->type) {
    case FP_DW_WRITE:
        return ((const struct fp_dw_write *)h)->flags & FP_DW_URGENT;
    case FP_DW_VERIFY:
        return ((const struct fp_dw_verify *)h)->flags & FP_DW_URGENT;
    case FP_DW_MERGE:
        return ((const struct fp_dw_merge *)h)->flags & FP_DW_URGENT;
    case FP_DW_READ:
    case FP_DW_LIST:
        return false; /* the readers' anyway */
    default:
        return ((const struct fp_dw_file *)h)->flags & FP_DW_URGENT;
    }
}

static int on_task(struct dr_worker *w, const uint8_t *msg, size_t len)
{
    struct dr_task *t;
    int rc;

    if (!w->root || (((const struct fp_dw_head *)msg)->type == FP_DW_READ && !w->memory))
        return -EPROTO;
    t = calloc(1, sizeof(*t) + len + 1);
    if (!t)
        return -ENOMEM;
    memcpy(t->msg, msg, len);
    t->msg_bytes = (uint32_t)len;
    t->urgent = is_urgent((const struct fp_dw_head *)t->msg);
    rc = dr_segs_get(w, t);
    if (rc) {
        free(t);
        return rc;
    }
    dr_take(w, t);
    return 0;
}

/* fd: what came with it, or -1; taken when it is used. */
static int on_message(struct dr_worker *w, const uint8_t *msg, size_t len, int *fd)
{
    const struct fp_dw_head *h = (const struct fp_dw_head *)msg;
    int rc = dr_check(msg, len);

    if (rc)
        return rc;
    switch (h->type) {
    case FP_DW_CONFIG:
        return on_config(w, (const struct fp_dw_config *)msg, *fd);
    case FP_DW_SEG_ADD:
        rc = on_seg_add(w, (const struct fp_dw_seg *)msg, *fd);
        *fd = -1;
        return rc;
    case FP_DW_MEMORY:
        return on_memory(w, *fd);
    case FP_DW_SEG_DROP:
        dr_seg_drop(w, ((const struct fp_dw_seg *)msg)->segment);
        return 0;
    case FP_DW_PACE:
        on_pace(w, (const struct fp_dw_pace *)msg);
        return 0;
    case FP_DW_CANCEL:
        dr_cancel(w, h->id, h->gen);
        return 0;
    default:
        return on_task(w, msg, len);
    }
}

/* Bytes of the message, 0 at the end, negative errno; one descriptor at most comes with it. */
static ssize_t receive(struct dr_worker *w, uint8_t *buf, int *fd)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = { buf, FP_DW_MESSAGE_MAX_BYTES };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
    struct cmsghdr *c;
    ssize_t n;

    *fd = -1;
    do
        n = recvmsg(w->socket, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    AFTER_RECEIVING(w);
    c = CMSG_FIRSTHDR(&msg);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(fd, CMSG_DATA(c), sizeof(int));
    return msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -EPROTO : n;
}

/* A message of several packets. */
struct whole {
    uint8_t *bytes; /* NULL: none has begun */
    size_t have, len;
};

/* *done: it is whole in p->bytes. */
static int add_packet(struct whole *p, const uint8_t *packet, size_t n, bool *done)
{
    const struct fp_dw_head *h = (const struct fp_dw_head *)packet;

    if (!p->bytes) {
        if (h->len_bytes > FP_DW_WHOLE_MAX_BYTES)
            return -EPROTO;
        *p = (struct whole){ .bytes = aligned_alloc(16, ((size_t)h->len_bytes + 15) / 16 * 16), .len = h->len_bytes };
    }
    if (!p->bytes)
        return -ENOMEM;
    if (n > p->len - p->have)
        return -EPROTO;
    memcpy(p->bytes + p->have, packet, n);
    p->have += n;
    *done = p->have == p->len;
    return 0;
}

static int on_packet(struct dr_worker *w, struct whole *p, const uint8_t *packet, size_t n, int *fd)
{
    const struct fp_dw_head *h = (const struct fp_dw_head *)packet;
    bool done = false;
    int rc;

    if (!p->bytes && (n < sizeof(*h) || h->len_bytes <= n))
        return on_message(w, packet, n, fd);
    rc = *fd >= 0 ? -EPROTO : add_packet(p, packet, n, &done);
    if (rc || !done)
        return rc;
    rc = on_message(w, p->bytes, p->len, fd);
    free(p->bytes);
    *p = (struct whole){ 0 };
    return rc;
}

int dr_link_run(struct dr_worker *w)
{
    uint8_t *buf = aligned_alloc(4096, FP_DW_MESSAGE_MAX_BYTES);
    struct whole whole = { 0 };
    int rc = buf ? 0 : -ENOMEM;

    while (rc == 0) {
        int fd;
        ssize_t n = receive(w, buf, &fd);

        if (n > 0)
            rc = on_packet(w, &whole, buf, (size_t)n, &fd);
        else
            rc = (int)n;
        if (fd >= 0)
            close(fd);
        if (n == 0)
            break;
    }
    free(whole.bytes);
    free(buf);
    return rc == -ECONNRESET || rc == -EPIPE ? 0 : rc;
}
