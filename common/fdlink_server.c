/* The benefactor's end of the local link: listens, receives requests, answers with descriptors.
 *
 * Called by fp-benefactor and libuv, on the thread of the loop; never blocks.
 *
 * Requests are small and answers too, so packets are sent at once; only when the client does not read for a
 * while are answers kept (with duplicates of their descriptors), up to 256: then the client is dropped,
 * because a client that reads so little is dead or broken. A client with 1024 unanswered requests is not read
 * from until some are answered.
 *
 * A socket file left by a crash is recognised by nobody listening on it, and replaced. At the end the file is
 * removed only if it still is ours: a successor may have been faster. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fdlink_int.h"
#include "fp/err.h"
#include "fp/log.h"

#define PEERS_MAX        256u
#define QUEUE_MAX        256u
#define UNANSWERED_MAX   1024u
#define PACKETS_PER_TURN 64
#define BACKLOG          128
#define SNDBUF_BYTES     (1 << 20)

struct kept {
    STAILQ_ENTRY(kept) link;
    struct fdlink_fds fds; /* duplicates */
    size_t len_bytes;
    uint8_t *packet;
};

struct fp_fdlink_peer {
    TAILQ_ENTRY(fp_fdlink_peer) link;
    struct fp_fdlink_server *server;
    unsigned refs;
    int fd; /* -1: closed */
    int err;
    int events;
    uv_poll_t poll;
    pid_t pid;
    void *data;
    unsigned unanswered;
    unsigned kept_n;
    STAILQ_HEAD(, kept) kept;
};

struct fp_fdlink_server {
    uv_loop_t *loop;
    uv_poll_t poll;
    int fd, dirfd;
    char *name; /* of the socket, in dirfd */
    dev_t dev;
    ino_t ino;
    const struct fp_fdlink_handler *h;
    void *arg;
    TAILQ_HEAD(, fp_fdlink_peer) peers;
    unsigned peers_n;
    unsigned refs; /* itself, open handles */
    void (*closed)(void *arg);
    void *closed_arg;
    uint8_t rx[FP_FDLINK_PACKET_MAX_BYTES];
};

static void peer_poll_cb(uv_poll_t *h, int status, int events);

/* -------------------------------------------------------------- memory */

static void server_put(struct fp_fdlink_server *s)
{
    if (--s->refs > 0)
        return;
    void (*closed)(void *arg) = s->closed;
    void *arg = s->closed_arg;
    free(s->name);
    free(s);
    if (closed)
        closed(arg);
}

struct fp_fdlink_peer *fp_fdlink_peer_get(struct fp_fdlink_peer *p)
{
    p->refs++;
    return p;
}

void fp_fdlink_peer_put(struct fp_fdlink_peer *p)
{
    if (p && --p->refs == 0)
        free(p);
}

static void kept_free(struct kept *k)
{
    fdlink_fds_close(&k->fds);
    free(k->packet);
    free(k);
}

static void peer_closed(uv_handle_t *h)
{
    struct fp_fdlink_peer *p = h->data;
    struct fp_fdlink_server *s = p->server;
    if (s->h->on_closed)
        s->h->on_closed(p, p->err, s->arg);
    fp_fdlink_peer_put(p);
    server_put(s);
}

void fp_fdlink_peer_close(struct fp_fdlink_peer *p, int err)
{
    if (p->fd < 0)
        return;
    uv_close((uv_handle_t *)&p->poll, peer_closed);
    close(p->fd);
    p->fd = -1;
    p->err = err;
    while (!STAILQ_EMPTY(&p->kept)) {
        struct kept *k = STAILQ_FIRST(&p->kept);
        STAILQ_REMOVE_HEAD(&p->kept, link);
        kept_free(k);
    }
    TAILQ_REMOVE(&p->server->peers, p, link);
    p->server->peers_n--;
}

static void peer_watch(struct fp_fdlink_peer *p)
{
    int events = (p->unanswered < UNANSWERED_MAX ? UV_READABLE : 0) | (p->kept_n > 0 ? UV_WRITABLE : 0);
    if (p->fd < 0 || events == p->events)
        return;
    p->events = events;
    int rc = events ? uv_poll_start(&p->poll, events, peer_poll_cb) : uv_poll_stop(&p->poll);
    if (rc < 0)
        fp_fdlink_peer_close(p, rc);
}

/* -------------------------------------------------------------- answering */

static int keep(struct fp_fdlink_peer *p, uint8_t *packet, size_t len_bytes, const int *fds, size_t nfds)
{
    struct kept *k = p->kept_n < QUEUE_MAX ? calloc(1, sizeof *k) : NULL;
    if (!k)
        return -ENOBUFS;
    for (; k->fds.n < nfds; k->fds.n++) {
        k->fds.fd[k->fds.n] = fcntl(fds[k->fds.n], F_DUPFD_CLOEXEC, 0);
        if (k->fds.fd[k->fds.n] < 0) {
            kept_free(k);
            return -ENOBUFS;
        }
    }
    k->packet = packet;
    k->len_bytes = len_bytes;
    STAILQ_INSERT_TAIL(&p->kept, k, link);
    p->kept_n++;
    return 0;
}

static int send_or_keep(struct fp_fdlink_peer *p, uint8_t *packet, size_t len_bytes, const int *fds,
                        size_t nfds)
{
    int rc = p->kept_n > 0 ? -EAGAIN : fdlink_send(p->fd, packet, len_bytes, fds, nfds);
    if (rc == -EAGAIN) {
        rc = keep(p, packet, len_bytes, fds, nfds);
        if (rc == 0)
            return 0;
    }
    free(packet);
    if (rc == -EPIPE || rc == -ECONNRESET) {
        fp_fdlink_peer_close(p, FP_EPEER_GONE);
        return -ENOTCONN;
    }
    if (rc < 0) {
        FP_WARN("local client %d dropped: cannot send: %s", (int)p->pid, fp_strerror(rc));
        fp_fdlink_peer_close(p, rc);
    }
    return rc;
}

int fp_fdlink_reply_to(struct fp_fdlink_peer *p, uint64_t id, uint16_t type, int32_t status,
                       const ProtobufCMessage *msg, const int *fds, size_t nfds)
{
    struct fp_frame f = {.type = type, .flags = FP_FRAME_REPLY, .status = status, .id = id};
    uint8_t *packet;
    size_t len;
    if (p->fd < 0)
        return -ENOTCONN;
    p->unanswered--;
    int too_big = nfds > FP_FDLINK_FDS_MAX ? -EMSGSIZE : 0;
    int rc = too_big ? too_big : fdlink_pack(&f, status == 0 ? msg : NULL, &packet, &len);
    if (rc < 0) {
        f.status = rc;
        status = rc;
        int rc2 = fdlink_pack(&f, NULL, &packet, &len);
        if (rc2 < 0) {
            fp_fdlink_peer_close(p, rc2);
            return rc2;
        }
    }
    int sent = send_or_keep(p, packet, len, fds, status == 0 ? nfds : 0);
    peer_watch(p);
    return sent < 0 ? sent : rc;
}

int fp_fdlink_reply(struct fp_fdlink_peer *p, const struct fp_fdlink_in *in, int32_t status,
                    const ProtobufCMessage *msg, const int *fds, size_t nfds)
{
    return fp_fdlink_reply_to(p, in->id, in->type, status, msg, fds, nfds);
}

static void send_kept(struct fp_fdlink_peer *p)
{
    while (p->kept_n > 0) {
        struct kept *k = STAILQ_FIRST(&p->kept);
        int rc = fdlink_send(p->fd, k->packet, k->len_bytes, k->fds.fd, k->fds.n);
        if (rc == -EAGAIN)
            return;
        if (rc < 0) {
            fp_fdlink_peer_close(p, rc == -EPIPE ? FP_EPEER_GONE : rc);
            return;
        }
        STAILQ_REMOVE_HEAD(&p->kept, link);
        p->kept_n--;
        kept_free(k);
    }
}

/* -------------------------------------------------------------- receiving */

static void refuse(struct fp_fdlink_peer *p, int err, const char *why)
{
    FP_LOG_EVERY(1000, FP_LOG_WARN, "local client %d dropped: %s", (int)p->pid, why);
    fp_fdlink_peer_close(p, err);
}

/* True: there may be more. */
static bool receive_one(struct fp_fdlink_peer *p)
{
    struct fp_fdlink_server *s = p->server;
    struct fdlink_fds fds;
    struct fp_frame f;
    ssize_t n = fdlink_recv(p->fd, s->rx, sizeof s->rx, &fds);
    if (n == -EAGAIN)
        return false;
    if (n == 0 || n == -ECONNRESET) {
        fp_fdlink_peer_close(p, FP_EPEER_GONE);
        return false;
    }
    bool has_fds = fds.n > 0;
    fdlink_fds_close(&fds);
    int rc = n < 0 ? FP_EBADFRAME : fdlink_parse(s->rx, (size_t)n, &f);
    if (rc < 0 || has_fds || (f.flags & FP_FRAME_REPLY)) {
        refuse(p, rc < 0 ? rc : FP_EBADFRAME,
               rc == FP_EPROTO_VERSION ? "protocol version differs" : "a packet that is no request");
        return false;
    }
    struct fp_fdlink_in in = {
        .type = f.type,
        .flags = f.flags,
        .id = f.id,
        .msg = s->rx + FP_FRAME_HEADER_BYTES,
        .msg_len_bytes = f.msg_len_bytes,
    };
    if (!(f.flags & FP_FRAME_ONEWAY))
        p->unanswered++;
    s->h->on_request(p, &in, s->arg);
    return p->fd >= 0 && p->unanswered < UNANSWERED_MAX;
}

static void peer_poll_cb(uv_poll_t *h, int status, int events)
{
    struct fp_fdlink_peer *p = h->data;
    fp_fdlink_peer_get(p);
    if (status < 0)
        events = UV_READABLE;
    if (events & UV_WRITABLE)
        send_kept(p);
    if (p->fd >= 0 && (events & UV_READABLE)) {
        int n = 0;
        while (n < PACKETS_PER_TURN && receive_one(p))
            n++;
    }
    peer_watch(p);
    fp_fdlink_peer_put(p);
}

/* -------------------------------------------------------------- accepting */

static int peer_add(struct fp_fdlink_server *s, int fd, pid_t pid)
{
    struct fp_fdlink_peer *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    int rc = uv_poll_init(s->loop, &p->poll, fd);
    if (rc < 0) {
        free(p);
        return rc;
    }
    int sndbuf = SNDBUF_BYTES;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
    p->poll.data = p;
    p->server = s;
    p->refs = 1;
    p->fd = fd;
    p->pid = pid;
    STAILQ_INIT(&p->kept);
    TAILQ_INSERT_TAIL(&s->peers, p, link);
    s->peers_n++;
    s->refs++;
    peer_watch(p);
    return 0;
}

static void accept_cb(uv_poll_t *h, int status, int events)
{
    struct fp_fdlink_server *s = h->data;
    pid_t pid = 0;
    uid_t uid = 0;
    (void)status;
    (void)events;
    int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE)
            FP_LOG_EVERY(5000, FP_LOG_ERROR, "cannot accept local clients: %s: raise the limit of open files",
                         strerror(errno));
        return;
    }
    int rc = fdlink_check_peer(fd, &pid, &uid);
    if (rc < 0)
        FP_LOG_EVERY(1000, FP_LOG_WARN, "refused local client %d: it belongs to user %u", (int)pid,
                     (unsigned)uid);
    else if (s->peers_n >= PEERS_MAX)
        FP_LOG_EVERY(1000, FP_LOG_WARN, "refused local client %d: there are %u already", (int)pid, PEERS_MAX);
    else if ((rc = peer_add(s, fd, pid)) == 0)
        return;
    else
        FP_LOG_EVERY(1000, FP_LOG_ERROR, "refused local client %d: %s", (int)pid, fp_strerror(rc));
    close(fd);
}

/* -------------------------------------------------------------- begin and end */

/* Somebody's socket is in the way: a living one (-EADDRINUSE), something else (-EEXIST), or a stale one,
 * which is removed. */
static int remove_stale(int dirfd, const char *name, const struct sockaddr_un *addr)
{
    struct stat st;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode))
        return -EEXIST;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int rc = connect(fd, (const struct sockaddr *)addr, sizeof *addr) < 0 ? -errno : 0;
    close(fd);
    if (rc != -ECONNREFUSED)
        return -EADDRINUSE; /* also when it is of another type: not ours to remove */
    return unlinkat(dirfd, name, 0) < 0 ? -errno : 0;
}

static int bind_listen(struct fp_fdlink_server *s)
{
    struct sockaddr_un addr;
    struct stat st;
    fdlink_addr(s->dirfd, s->name, &addr);
    int rc = remove_stale(s->dirfd, s->name, &addr);
    if (rc < 0)
        return rc;
    s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0)
        return -errno;
    /* The mode of the socket before bind is the mode of the file: there is no moment at which others could
     * connect. */
    if (fchmod(s->fd, 0600) < 0 || bind(s->fd, (const struct sockaddr *)&addr, sizeof addr) < 0)
        return -errno;
    if (fstatat(s->dirfd, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        s->dev = st.st_dev;
        s->ino = st.st_ino;
    }
    return listen(s->fd, BACKLOG) < 0 ? -errno : 0;
}

static void remove_own(struct fp_fdlink_server *s)
{
    struct stat st;
    if (s->ino && fstatat(s->dirfd, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == s->dev &&
        st.st_ino == s->ino)
        unlinkat(s->dirfd, s->name, 0);
}

static void server_close_fds(struct fp_fdlink_server *s)
{
    remove_own(s);
    if (s->fd >= 0)
        close(s->fd);
    close(s->dirfd);
    s->fd = s->dirfd = -1;
}

int fp_fdlink_listen(uv_loop_t *loop, const char *path, const struct fp_fdlink_handler *h, void *arg,
                     struct fp_fdlink_server **out)
{
    const char *name;
    struct fp_fdlink_server *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *s = (struct fp_fdlink_server){.loop = loop, .fd = -1, .dirfd = -1, .h = h, .arg = arg, .refs = 2};
    TAILQ_INIT(&s->peers);
    int rc = fdlink_path(path, &s->dirfd, &name);
    if (rc < 0)
        goto out_free;
    s->name = strdup(name);
    rc = s->name ? bind_listen(s) : -ENOMEM;
    if (rc == 0)
        rc = uv_poll_init(loop, &s->poll, s->fd);
    if (rc < 0) {
        server_close_fds(s);
        goto out_free;
    }
    s->poll.data = s;
    uv_poll_start(&s->poll, UV_READABLE, accept_cb);
    *out = s;
    return 0;
out_free:
    free(s->name);
    free(s);
    return rc;
}

static void listener_closed(uv_handle_t *h)
{
    server_put(h->data);
}

void fp_fdlink_server_close(struct fp_fdlink_server *s, void (*closed)(void *arg), void *arg)
{
    struct fp_fdlink_peer *p;
    s->closed = closed;
    s->closed_arg = arg;
    uv_close((uv_handle_t *)&s->poll, listener_closed);
    server_close_fds(s);
    while ((p = TAILQ_FIRST(&s->peers)) != NULL)
        fp_fdlink_peer_close(p, 0);
    server_put(s);
}

void fp_fdlink_peer_set_data(struct fp_fdlink_peer *p, void *data)
{
    p->data = data;
}

void *fp_fdlink_peer_data(const struct fp_fdlink_peer *p)
{
    return p->data;
}

pid_t fp_fdlink_peer_pid(const struct fp_fdlink_peer *p)
{
    return p->pid;
}
