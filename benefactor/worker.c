/*
 * One fp-drain: its process, its socket, descriptors of segments that it has (drain_impl.h).
 *
 * Loop's thread. Messages that the socket does not take wait here; they are bounded by the tasks that a worker is given at a time. A segment is told with the first task
 * that needs it, and taken back with the last: a worker that hangs keeps no more space of unlinked segments than its tasks need.
 *
 * One that is given up is not waited for: it goes to a list, where it is asked now and then whether it has ended. A process that hangs in a file system (state D) has been
 * killed and ends when that answers; it has its own descriptors, and can write to nothing but the temporary files that it has open.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "benefactor/drain_impl.h"
#include "fp/clock.h"
#include "fp/fault.h"
#include "fp/log.h"
#include "fp/memfd.h"
#include "fp/record.h"

#define BATCH 32

/* ---------------------------------------------------------------- sending */

static void on_poll(uv_poll_t *poll, int status, int events);

static void watch(struct dworker *w)
{
    uv_poll_start(&w->poll, UV_READABLE | (w->out ? UV_WRITABLE : 0), on_poll);
}

/* 0: gone; -EAGAIN. Another error shows as the end of the socket. */
static int send_one(struct dworker *w, const struct dout *o)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = { (void *)(uintptr_t)o->bytes, o->len_bytes };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (o->fd >= 0) {
        memset(&control, 0, sizeof(control));
        m.msg_control = &control;
        m.msg_controllen = sizeof(control);
        control.h = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.h), &o->fd, sizeof(int));
    }
    while (sendmsg(fp_child_socket(w->child), &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EINTR)
            continue;
        return errno == EAGAIN || errno == ENOBUFS ? -EAGAIN : 0;
    }
    return 0;
}

static void out_free(struct dout *o)
{
    if (o->fd >= 0)
        close(o->fd);
    free(o);
}

static void flush(struct dworker *w)
{
    while (w->out && send_one(w, w->out) == 0) {
        struct dout *o = w->out;

        w->out = o->next;
        if (!w->out)
            w->out_tail = &w->out;
        out_free(o);
    }
    watch(w);
}

int dworker_send(struct dworker *w, const void *msg, size_t len_bytes, int fd)
{
    struct dout *o = malloc(sizeof(*o) + len_bytes);

    if (!o) {
        if (fd >= 0)
            close(fd);
        return -ENOMEM;
    }
    *o = (struct dout){ .fd = fd, .len_bytes = (uint32_t)len_bytes };
    memcpy(o->bytes, msg, len_bytes);
    *w->out_tail = o;
    w->out_tail = &o->next;
    flush(w);
    return 0;
}

/* ---------------------------------------------------------------- segments */

static uint32_t seg_at(const struct dworker *w, uint64_t segment)
{
    uint32_t i = 0;

    while (i < w->nsegs && w->segs[i].id != segment)
        i++;
    return i;
}

int dworker_segment_use(struct dworker *w, uint64_t segment, struct bnf_file *f)
{
    struct fp_dw_seg m = { .h = { .type = FP_DW_SEG_ADD, .len_bytes = sizeof(m) }, .segment = segment, .salt = f->salt };
    uint32_t i = seg_at(w, segment);
    int fd, rc;

    if (i < w->nsegs) {
        w->segs[i].users++;
        return 0;
    }
    if (i == w->segs_cap) {
        struct dsegment *more = realloc(w->segs, (i + 64) * sizeof(*more));

        if (!more)
            return -ENOMEM;
        w->segs = more;
        w->segs_cap = i + 64;
    }
    fd = bnf_file_reopen(f);
    if (fd < 0)
        fd = dup(f->fd);
    if (fd < 0)
        return -errno;
    rc = dworker_send(w, &m, sizeof(m), fd);
    if (rc == 0)
        w->segs[w->nsegs++] = (struct dsegment){ .id = segment, .users = 1 };
    return rc;
}

bool dworker_segment_is_used(const struct dworker *w, uint64_t segment)
{
    return seg_at(w, segment) < w->nsegs;
}

void dworker_segment_unuse(struct dworker *w, uint64_t segment)
{
    struct fp_dw_seg m = { .h = { .type = FP_DW_SEG_DROP, .len_bytes = sizeof(m) }, .segment = segment };
    uint32_t i = seg_at(w, segment);

    if (i == w->nsegs || --w->segs[i].users)
        return;
    w->segs[i] = w->segs[--w->nsegs];
    (void)dworker_send(w, &m, sizeof(m), -1);
}

/* ---------------------------------------------------------------- memory for READ */

#define SLOT_BYTES ((uint64_t)FP_RECORD_HEADER_BYTES + FP_STORED_MAX_BYTES + FP_RECORD_ALIGN_BYTES)
#define REST_BYTES (2u << 20) /* more than that in a slot is given back at once */

uint64_t dmemory_slot_off(int slot)
{
    return (uint64_t)slot * SLOT_BYTES;
}

int dworker_memory(struct dworker *w)
{
    struct fp_dw_head h = { .type = FP_DW_MEMORY, .len_bytes = sizeof(h) };
    struct dmemory *m;
    void *base;
    int fd;

    if (w->memory)
        return 0;
    fd = fp_memfd_new("fp-drain-read", SLOTS_MAX * SLOT_BYTES);
    m = fd < 0 ? NULL : calloc(1, sizeof(*m));
    base = m ? mmap(NULL, SLOTS_MAX * SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (base != MAP_FAILED && dworker_send(w, &h, sizeof(h), dup(fd)) == 0) {
        *m = (struct dmemory){ .refs = 1, .fd = fd, .base = base };
        w->memory = m;
        return 0;
    }
    if (base != MAP_FAILED)
        munmap(base, SLOTS_MAX * SLOT_BYTES);
    free(m);
    if (fd >= 0)
        close(fd);
    return -ENOMEM;
}

int dmemory_slot_get(struct dmemory *m)
{
    for (int i = 0; i < (int)SLOTS_MAX; i++)
        if (!m->used[i]) {
            m->used[i] = true;
            m->refs++;
            return i;
        }
    return -EAGAIN;
}

void dmemory_slot_put(struct dmemory *m, int slot, uint32_t used_bytes)
{
    m->used[slot] = false;
    if (used_bytes > REST_BYTES)
        (void)fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)dmemory_slot_off(slot), SLOT_BYTES);
    dmemory_put(m);
}

void dmemory_rest(struct dmemory *m)
{
    if (m->refs == 1)
        (void)fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SLOTS_MAX * SLOT_BYTES);
}

void dmemory_put(struct dmemory *m)
{
    if (!m || --m->refs)
        return;
    munmap(m->base, SLOTS_MAX * SLOT_BYTES);
    close(m->fd);
    free(m);
}

/* ---------------------------------------------------------------- receiving */

static void on_log(const struct dworker *w, const struct fp_dw_log *m, size_t len)
{
    if (len > sizeof(*m) && m->level <= FP_LOG_DEBUG)
        FP_LOG_AT((enum fp_log_level)m->level, "fp-drain %s: %.*s", w->target->root, (int)(len - sizeof(*m)), (const char *)(m + 1));
}

/* It is of our build and believed in what it says; but a length that is wrong must not lead anywhere. */
static bool on_message(struct dworker *w, const uint8_t *buf, size_t len)
{
    const struct fp_dw_head *h = (const struct fp_dw_head *)(const void *)buf;
    const struct fp_dw_done *m = (const struct fp_dw_done *)(const void *)buf;
    char why[256];

    if (len < sizeof(*h) || h->len_bytes != len)
        return false;
    switch (h->type) {
    case FP_DW_DONE:
        if (len < sizeof(*m) || m->why_bytes >= sizeof(why) || m->nsums > FP_DW_WINDOWS_MAX || len != sizeof(*m) + m->why_bytes + 8ull * m->nsums)
            return false;
        memcpy(why, m + 1, m->why_bytes);
        why[m->why_bytes] = '\0';
        dtarget_answer(w->target, m, why, buf + sizeof(*m) + m->why_bytes);
        return true;
    case FP_DW_NAMES:
        if (len == sizeof(*h) || buf[len - 1] != '\0')
            return false;
        dtarget_names(w->target, h, (const char *)buf + sizeof(*h), len - sizeof(*h));
        return true;
    case FP_DW_ENTRIES:
        return dtarget_entries(w->target, h, buf + sizeof(*h), len - sizeof(*h)) == 0;
    case FP_DW_LOG:
        on_log(w, (const struct fp_dw_log *)(const void *)buf, len);
        return true;
    default:
        return false;
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    static _Alignas(16) uint8_t buf[FP_DW_MESSAGE_MAX_BYTES];
    struct dworker *w = poll->data;

    if (status == 0 && (events & UV_WRITABLE))
        flush(w);
    for (int i = 0; i < BATCH && w->target; i++) {
        ssize_t n = recv(fp_child_socket(w->child), buf, sizeof(buf), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR) && status == 0)
            return;
        if (n <= 0) {
            dtarget_worker_gone(w->target);
        } else if (!on_message(w, buf, (size_t)n)) {
            FP_ERROR("fp-drain of %s says what is not understood: it is started anew", w->target->root);
            dtarget_worker_gone(w->target);
        }
    }
}

/* ---------------------------------------------------------------- life */

static void on_closed(uv_handle_t *handle)
{
    struct dworker *w = handle->data;

    w->closed = true;
    if (!w->child)
        free(w);
}

static int configure(struct dtarget *t, struct dworker *w)
{
    const struct bnf_drain_config *c = &t->drain->config;
    const char *dir = c->plugin_dir ? c->plugin_dir : "";
    size_t root = strlen(t->root), declared = 0, len, at;
    struct fp_dw_config *m;
    int rc, fd, limiter = bnf_service_limiter(c->service);

    for (size_t i = 0; i < c->nauxapps; i++)
        declared += strlen(c->auxapps[i]) + 1;
    len = sizeof(*m) + root + strlen(dir) + declared;
    m = len <= FP_DW_MESSAGE_MAX_BYTES ? calloc(1, len) : NULL;
    if (!m)
        return -ENOMEM;
    *m = (struct fp_dw_config){ .h = { .type = FP_DW_CONFIG, .len_bytes = (uint32_t)len }, .threads = c->threads, .root_bytes = (uint32_t)root,
                                .plugin_dir_bytes = (uint32_t)strlen(dir), .declared_bytes = (uint32_t)declared, .ndeclared = (uint32_t)c->nauxapps };
    memcpy((char *)(m + 1) + root, dir, strlen(dir));
    at = root + strlen(dir);
    for (size_t i = 0; i < c->nauxapps; at += strlen(c->auxapps[i++]) + 1)
        memcpy((char *)(m + 1) + at, c->auxapps[i], strlen(c->auxapps[i]));
    memcpy(m->store, bnf_service_store_uuid(t->drain->config.service), 16);
    memcpy(m->target, t->uuid, 16);
    memcpy(m + 1, t->root, root);
    fd = limiter < 0 ? -1 : dup(limiter);
    rc = fd < 0 && limiter >= 0 ? -errno : dworker_send(w, m, len, fd);
    free(m);
    return rc;
}

int dworker_start(struct dtarget *t, struct dworker **out)
{
    struct fp_child_opts o = { .path = t->drain->config.program, .name = "fp-drain", .page_bytes = sizeof(struct fp_dw_status), .nice = 10 };
    struct dworker *w = calloc(1, sizeof(*w));
    int rc = FP_FAULT_POINT("bnf.drain_start");

    if (!w)
        return -ENOMEM;
    w->out_tail = &w->out;
    w->target = t;
    w->target_id = t->id;
    if (rc == 0)
        rc = fp_child_start(&o, &w->child);
    if (rc == 0) {
        w->page = fp_child_page(w->child);
        rc = uv_poll_init(t->drain->config.loop, &w->poll, fp_child_socket(w->child));
    }
    if (rc) {
        fp_child_free(w->child);
        free(w);
        return rc;
    }
    w->poll.data = w;
    rc = configure(t, w);
    if (rc) {
        dworker_end(w, true);
        return rc;
    }
    watch(w);
    *out = w;
    return 0;
}

void dworker_end(struct dworker *w, bool kill)
{
    struct bnf_drain *d = w->target->drain;

    w->target = NULL;
    w->ending_ms = fp_now_ms();
    while (w->out) {
        struct dout *o = w->out;

        w->out = o->next;
        out_free(o);
    }
    free(w->segs);
    w->segs = NULL;
    w->nsegs = 0;
    dmemory_put(w->memory);
    w->memory = NULL;
    uv_poll_stop(&w->poll);
    uv_close((uv_handle_t *)&w->poll, on_closed);
    (void)shutdown(fp_child_socket(w->child), SHUT_RDWR); /* it ends by that, if it can */
    if (kill)
        fp_child_kill(w->child);
    w->next = d->ending;
    d->ending = w;
}

bool dworker_reap(struct bnf_drain *d, struct dworker *w)
{
    int status = 0;

    if (!fp_child_gone(w->child, &status))
        return false;
    for (struct dtarget *t = d->targets; t && status < 0; t = t->next)
        if (t->id == w->target_id)
            dtarget_not_started(t, status);
    fp_child_free(w->child);
    w->child = NULL;
    if (w->closed)
        free(w);
    return true;
}
