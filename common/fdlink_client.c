/* The mount's end of the local link: calls from any thread over one connection.
 *
 * Called by the store threads of fp-mount; blocks until the reply is there or the deadline passes.
 *
 * There is no thread of its own that receives. Of the threads that wait, one is the reader: it takes packets
 * from the socket, hands each to the thread that waits for it, and when its own has come, makes another
 * waiter the reader. So a lone caller sends and receives in its own thread, without any switch, and many
 * callers have their requests in flight together.
 *
 * lock guards the list of waiters, reader and next_id. It is not held across send, poll or receive. rx
 * belongs to the reader. The descriptor stays open until fp_fdlink_close: shutdown(2) is what wakes the
 * reader up. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "fdlink_int.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"

#define SNDBUF_BYTES (1 << 20)

struct waiter {
    TAILQ_ENTRY(waiter) link;
    uint64_t id;
    uint64_t deadline_ms;
    uint16_t type;
    bool done;
    bool waiting; /* in wait_on: may be made the reader */
    int status;
    struct fp_fdlink_reply_buf *r;
    pthread_cond_t wake; /* done, made reader, or link down */
};

struct fp_fdlink {
    int fd;
    atomic_bool down;
    atomic_int down_err;
    pthread_mutex_t lock;
    TAILQ_HEAD(, waiter) waiters;           /* lock */
    bool reading;                           /* lock: some thread is the reader */
    uint64_t next_id;                       /* lock */
    uint8_t rx[FP_FDLINK_PACKET_MAX_BYTES]; /* reader */
};

/* -------------------------------------------------------------- begin and end */

static int connect_to(const char *path, uint32_t timeout_ms, int *out)
{
    struct sockaddr_un addr;
    const char *name;
    int dirfd;
    int sndbuf = SNDBUF_BYTES;
    struct timeval tv = {timeout_ms / 1000, (suseconds_t)(timeout_ms % 1000) * 1000};
    int rc = fdlink_path(path, &dirfd, &name);
    if (rc < 0)
        return rc;
    fdlink_addr(dirfd, name, &addr);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        rc = -errno;
        goto out;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
    /* A full backlog makes connect wait as long as a send may. */
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
    if (connect(fd, (const struct sockaddr *)&addr, sizeof addr) < 0) {
        rc = errno == EAGAIN || errno == EINTR ? -ETIMEDOUT : -errno;
        close(fd);
        goto out;
    }
    *out = fd;
out:
    close(dirfd);
    return rc;
}

int fp_fdlink_open(const char *path, uint32_t timeout_ms, struct fp_fdlink **out)
{
    pid_t pid;
    uid_t uid;
    struct fp_fdlink *l = calloc(1, sizeof *l);
    if (!l)
        return -ENOMEM;
    int rc = connect_to(path, timeout_ms, &l->fd);
    if (rc < 0)
        goto out_free;
    rc = fdlink_check_peer(l->fd, &pid, &uid);
    if (rc < 0) {
        FP_WARN("refused %s: its process %d belongs to user %u", path, (int)pid, (unsigned)uid);
        close(l->fd);
        goto out_free;
    }
    pthread_mutex_init(&l->lock, NULL);
    TAILQ_INIT(&l->waiters);
    *out = l;
    return 0;
out_free:
    free(l);
    return rc;
}

static void go_down(struct fp_fdlink *l, int err)
{
    struct waiter *w;
    int none = 0;
    pthread_mutex_lock(&l->lock);
    atomic_compare_exchange_strong(&l->down_err, &none, err);
    atomic_store(&l->down, true);
    shutdown(l->fd, SHUT_RDWR);
    TAILQ_FOREACH(w, &l->waiters, link)
    {
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&l->lock);
}

void fp_fdlink_shutdown(struct fp_fdlink *l)
{
    go_down(l, -ENOTCONN);
}

void fp_fdlink_close(struct fp_fdlink *l)
{
    if (!l)
        return;
    close(l->fd);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

bool fp_fdlink_is_up(const struct fp_fdlink *l)
{
    return !atomic_load(&l->down);
}

/* -------------------------------------------------------------- receiving */

/* The packet in rx goes to whoever waits for it; lock held. */
static void hand_over(struct fp_fdlink *l, const struct fp_frame *f, struct fdlink_fds *fds)
{
    struct waiter *w;
    TAILQ_FOREACH(w, &l->waiters, link)
    {
        if (w->id == f->id && !w->done)
            break;
    }
    if (!w || w->type != f->type) {
        fdlink_fds_close(fds); /* its caller has given up */
        return;
    }
    w->done = true;
    w->status = f->status;
    struct fp_fdlink_reply_buf *r = w->r;
    if (r && f->msg_len_bytes > r->buf_cap_bytes)
        w->status = -EMSGSIZE;
    if (!r || w->status == -EMSGSIZE) {
        fdlink_fds_close(fds);
    } else {
        if (f->msg_len_bytes > 0)
            memcpy(r->buf, l->rx + FP_FRAME_HEADER_BYTES, f->msg_len_bytes);
        r->in = (struct fp_fdlink_in){f->type, f->flags, f->status, f->id, r->buf, f->msg_len_bytes};
        memcpy(r->fds, fds->fd, fds->n * sizeof(int));
        r->nfds = fds->n;
    }
    pthread_cond_signal(&w->wake);
}

/* Waits for the socket until the deadline: 0, FP_EDEADLINE. */
static int wait_for(struct fp_fdlink *l, short events, uint64_t deadline_ms)
{
    for (;;) {
        uint64_t now_ms = fp_now_ms();
        struct pollfd pfd = {l->fd, events, 0};
        if (now_ms >= deadline_ms)
            return FP_EDEADLINE;
        int n = poll(&pfd, 1, (int)(deadline_ms - now_ms));
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

/* As the reader: one packet. 0, FP_EDEADLINE, or the link is broken. */
static int read_one(struct fp_fdlink *l, uint64_t deadline_ms)
{
    struct fdlink_fds fds;
    struct fp_frame f;
    int rc = wait_for(l, POLLIN, deadline_ms);
    if (rc < 0)
        return rc;
    ssize_t n = fdlink_recv(l->fd, l->rx, sizeof l->rx, &fds);
    if (n == -EAGAIN)
        return 0;
    if (n <= 0)
        return n == -EMSGSIZE ? FP_EBADFRAME : FP_EPEER_GONE;
    rc = fdlink_parse(l->rx, (size_t)n, &f);
    if (rc < 0 || !(f.flags & FP_FRAME_REPLY)) {
        fdlink_fds_close(&fds);
        return rc < 0 ? rc : FP_EBADFRAME;
    }
    pthread_mutex_lock(&l->lock);
    hand_over(l, &f, &fds);
    pthread_mutex_unlock(&l->lock);
    return 0;
}

static void wait_on(struct fp_fdlink *l, struct waiter *w)
{
    struct timespec ts = {(time_t)(w->deadline_ms / 1000), (long)(w->deadline_ms % 1000) * 1000000};
    w->waiting = true;
    pthread_cond_timedwait(&w->wake, &l->lock, &ts);
    w->waiting = false;
}

/* Waits for the reply to w, as the reader or as one who is told. lock held on entry and exit. */
static int wait_reply(struct fp_fdlink *l, struct waiter *w)
{
    int rc = 0;
    while (!w->done && rc == 0) {
        if (atomic_load(&l->down)) {
            rc = atomic_load(&l->down_err);
        } else if (fp_now_ms() >= w->deadline_ms) {
            rc = FP_EDEADLINE;
        } else if (l->reading) {
            wait_on(l, w);
        } else {
            l->reading = true;
            pthread_mutex_unlock(&l->lock);
            rc = read_one(l, w->deadline_ms);
            if (rc < 0 && rc != FP_EDEADLINE) {
                go_down(l, rc);
                rc = atomic_load(&l->down_err); /* of whoever was first */
            }
            pthread_mutex_lock(&l->lock);
            l->reading = false;
        }
    }
    return w->done ? w->status : rc;
}

/* -------------------------------------------------------------- calling */

static int send_request(struct fp_fdlink *l, const uint8_t *packet, size_t len_bytes, uint64_t deadline_ms)
{
    for (;;) {
        struct iovec iov = {(void *)packet, len_bytes};
        struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
        if (sendmsg(l->fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return 0;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return errno == EPIPE || errno == ECONNRESET ? FP_EPEER_GONE : -errno;
        int rc = wait_for(l, POLLOUT, deadline_ms);
        if (rc < 0)
            return rc;
    }
}

static void waiter_init(struct waiter *w, uint16_t type, uint32_t timeout_ms, struct fp_fdlink_reply_buf *r)
{
    pthread_condattr_t attr;
    *w = (struct waiter){.type = type, .deadline_ms = fp_now_ms() + timeout_ms, .r = r};
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
}

/* Somebody must read for those who still wait; who has not come to waiting yet looks for himself. lock held.
 */
static void wake_next_reader(struct fp_fdlink *l)
{
    struct waiter *w;
    TAILQ_FOREACH(w, &l->waiters, link)
    {
        if (w->waiting && !w->done) {
            pthread_cond_signal(&w->wake);
            return;
        }
    }
}

int fp_fdlink_call(struct fp_fdlink *l, uint16_t type, const ProtobufCMessage *msg, uint32_t timeout_ms,
                   struct fp_fdlink_reply_buf *r)
{
    struct waiter w;
    uint8_t *packet = NULL;
    size_t len;
    if (r)
        r->nfds = 0;
    if (timeout_ms == 0)
        return -EINVAL;
    if (atomic_load(&l->down))
        return -ENOTCONN;
    waiter_init(&w, type, timeout_ms, r);
    pthread_mutex_lock(&l->lock);
    w.id = ++l->next_id;
    TAILQ_INSERT_TAIL(&l->waiters, &w, link);
    pthread_mutex_unlock(&l->lock);

    struct fp_frame f = {.type = type, .id = w.id};
    int rc = fdlink_pack(&f, msg, &packet, &len);
    if (rc == 0)
        rc = send_request(l, packet, len, w.deadline_ms);
    free(packet);
    if (rc == FP_EPEER_GONE)
        go_down(l, rc);

    pthread_mutex_lock(&l->lock);
    if (rc == 0)
        rc = wait_reply(l, &w);
    TAILQ_REMOVE(&l->waiters, &w, link);
    if (!l->reading)
        wake_next_reader(l);
    pthread_mutex_unlock(&l->lock);
    pthread_cond_destroy(&w.wake);
    return rc;
}
