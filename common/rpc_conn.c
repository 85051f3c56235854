/* A connection from its first packet to its last callback.
 *
 * Called by rpc_listen.c and programs (fp_rpc_connect, _close, _pause, …), by libuv (poll, name look-up) and
 * by rpc.c (clock, the deferred end), on the loop's thread.
 *
 * Handshake first: nothing of the peer but TLS is looked at before both ends have proved the key. Then each
 * end sends one SETUP frame, inside TLS, which settles the protocol version and whether the connection goes
 * on in plain bytes. The client says what it wants and then keeps silent until the answer is there; the
 * server answers and, if plain was agreed, switches when its last TLS record has left. So each end knows the
 * exact byte where TLS ends in either direction.
 *
 * Closing is in two steps: fp_conn_fail() only marks (it may be called in any depth of a callback);
 * fp_conn_finalize(), from the loop, completes calls, gives buffers back and calls on_closed. Memory goes
 * with the last reference. */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"
#include "rpc_int.h"

#define CONNECT_TIMEOUT_MS 3000u
#define DRAIN_MS           1000u
#define SILENT_GRACE_MS    100u   /* a silent stranger may keep a wanted place for so long */
#define USER_TIMEOUT_MS    30000u /* see set_sockopts */

static void poll_cb(uv_poll_t *h, int status, int events);
static int connect_next(struct fp_rpc_conn *c);

/* -------------------------------------------------------------- memory */

int fp_conn_new(struct fp_rpc *rpc, const struct fp_rpc_handler *h, void *arg, struct fp_rpc_conn **out)
{
    struct fp_rpc_conn *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    c->rpc = rpc;
    c->h = h;
    c->arg = arg;
    c->refs = 1;
    c->fd = -1;
    c->opened_ms = fp_now_ms();
    TAILQ_INIT(&c->outq);
    TAILQ_INSERT_TAIL(&rpc->all, c, all_link);
    rpc->refs++;
    fp_rpc_fast(rpc);
    *out = c;
    return 0;
}

struct fp_rpc_conn *fp_rpc_conn_get(struct fp_rpc_conn *c)
{
    c->refs++;
    return c;
}

void fp_rpc_conn_put(struct fp_rpc_conn *c)
{
    if (c && --c->refs == 0)
        free(c);
}

static void poll_closed(uv_handle_t *h)
{
    struct fp_rpc_conn *c = h->data;
    fp_rpc_put(c->rpc);
    fp_rpc_conn_put(c);
}

/* The poll handle goes at once (a new one may follow for the next address), the connection lives on. */
static void socket_close(struct fp_rpc_conn *c)
{
    if (c->poll_open)
        uv_close((uv_handle_t *)&c->poll, poll_closed);
    c->poll_open = false;
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

/* -------------------------------------------------------------- closing */

void fp_conn_fail(struct fp_rpc_conn *c, int err, const char *fmt, ...)
{
    if (c->state >= CONN_CLOSING)
        return;
    if (c->state == CONN_DRAIN)
        err = 0; /* its end was asked for; how it came about does not matter */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->why, sizeof c->why, fmt, ap);
    va_end(ap);
    c->err = err;
    c->state = CONN_CLOSING;
    TAILQ_INSERT_TAIL(&c->rpc->closing, c, closing_link);
    fp_rpc_kick(c->rpc);
}

static void leave_lists(struct fp_rpc_conn *c)
{
    struct fp_rpc *rpc = c->rpc;
    TAILQ_REMOVE(&rpc->closing, c, closing_link);
    TAILQ_REMOVE(&rpc->all, c, all_link);
    if (c->dirty)
        TAILQ_REMOVE(&rpc->dirty, c, dirty_link);
    if (c->again)
        TAILQ_REMOVE(&rpc->again, c, again_link);
    c->dirty = c->again = false;
    if (c->server) {
        rpc->conns_n--;
        if (!c->was_up)
            rpc->preauth_n--;
    }
}

void fp_conn_finalize(struct fp_rpc_conn *c)
{
    struct fp_rpc *rpc = c->rpc;
    c->state = CONN_CLOSED;
    leave_lists(c);
    if (c->tr)
        c->tr->ops->free(c->tr);
    c->tr = NULL;
    socket_close(c);
    fp_in_reset(c);
    fp_calls_fail(c, c->err ? c->err : FP_ECANCELLED);
    while (!TAILQ_EMPTY(&c->outq))
        fp_out_drop(c, TAILQ_FIRST(&c->outq));
    if (c->server && !c->was_up) {
        if (!rpc->ending)
            fp_rpc_refused(rpc, c->peer, c->why);
    } else if (c->h->on_closed) {
        c->h->on_closed(c, c->err, c->why, c->arg);
    }
    fp_rpc_conn_put(c);
    fp_rpc_put(rpc);
}

void fp_rpc_conn_close(struct fp_rpc_conn *c, int err)
{
    if (c->state == CONN_RESOLVE)
        uv_cancel((uv_req_t *)&c->lookup);
    fp_conn_fail(c, err, "%s", err ? fp_strerror(err) : "closed by this program");
}

void fp_rpc_conn_finish(struct fp_rpc_conn *c)
{
    if (c->state != CONN_UP) {
        fp_rpc_conn_close(c, 0);
        return;
    }
    c->state = CONN_DRAIN;
    c->paused = 0;
    c->deadline_ms = fp_now_ms() + DRAIN_MS;
    fp_rpc_fast(c->rpc);
    if (!c->dirty) {
        c->dirty = true;
        TAILQ_INSERT_TAIL(&c->rpc->dirty, c, dirty_link);
    }
    fp_rpc_kick(c->rpc);
    fp_conn_watch(c);
}

/* -------------------------------------------------------------- what poll watches */

bool fp_conn_live(const struct fp_rpc_conn *c)
{
    return c->state == CONN_UP;
}

bool fp_conn_may_read(const struct fp_rpc_conn *c)
{
    if (c->state != CONN_UP)
        return true;
    return c->paused == 0 && c->queued_bytes < c->rpc->o.send_queue_max_bytes &&
           c->unanswered < c->rpc->o.requests_max;
}

static int wanted_events(const struct fp_rpc_conn *c)
{
    if (c->state == CONN_CONNECT)
        return UV_WRITABLE;
    if (c->state < CONN_HANDSHAKE || c->state >= CONN_CLOSING)
        return 0;
    int events = c->tr->ops->wants_write(c->tr) ? UV_WRITABLE : 0;
    if (c->state != CONN_SWITCH && fp_conn_may_read(c))
        events |= UV_READABLE;
    return events;
}

void fp_conn_watch(struct fp_rpc_conn *c)
{
    int events = wanted_events(c);
    if (!c->poll_open || events == c->events)
        return;
    bool reads_again = (events & UV_READABLE) && !(c->events & UV_READABLE);
    c->events = events;
    if (reads_again && c->state == CONN_UP) {
        c->last_rx_ms = fp_now_ms(); /* what was not read cannot be held against the peer */
        fp_conn_again(c);            /* bytes may be buffered of which poll knows nothing */
    }
    int rc = events ? uv_poll_start(&c->poll, events, poll_cb) : uv_poll_stop(&c->poll);
    if (rc < 0)
        fp_conn_fail(c, rc, "cannot watch the socket: %s", fp_strerror(rc));
}

void fp_conn_again(struct fp_rpc_conn *c)
{
    if (c->again || c->state >= CONN_CLOSING)
        return;
    c->again = true;
    TAILQ_INSERT_TAIL(&c->rpc->again, c, again_link);
    fp_rpc_kick(c->rpc);
}

void fp_rpc_conn_pause(struct fp_rpc_conn *c)
{
    if (c->paused++ == 0)
        fp_conn_watch(c);
}

void fp_rpc_conn_resume(struct fp_rpc_conn *c)
{
    if (c->paused > 0 && --c->paused == 0)
        fp_conn_watch(c);
}

/* -------------------------------------------------------------- handshake and set-up */

static void go_up(struct fp_rpc_conn *c)
{
    c->state = CONN_UP;
    c->was_up = true;
    c->deadline_ms = 0;
    c->last_rx_ms = c->last_tx_ms = fp_now_ms();
    if (c->server)
        c->rpc->preauth_n--;
    fp_conn_again(c);
    if (c->h->on_up)
        c->h->on_up(c, c->arg);
    fp_conn_watch(c);
}

void fp_conn_switch(struct fp_rpc_conn *c)
{
    int rc = fp_transport_tls_to_plain(c->tr, &c->tr);
    if (rc < 0) {
        fp_conn_fail(c, rc, "cannot go on without encryption: %s", fp_strerror(rc));
        return;
    }
    c->plain = true;
    go_up(c);
}

/* The peer's SETUP (frame.h bounds it, rpc_in.c has made sure that it is no longer than ours). */
void fp_conn_setup_in(struct fp_rpc_conn *c, const struct fp_frame *f, const uint8_t *msg)
{
    bool reply = f->flags & FP_FRAME_REPLY;
    bool plain = f->msg_len_bytes >= 1 && (msg[0] & SETUP_PLAIN);
    if (reply == c->server) {
        fp_conn_fail(c, FP_EBADFRAME, "set-up from the wrong end");
        return;
    }
    if (f->status < 0) {
        fp_conn_fail(c, f->status, "refused by the other end: %s", fp_strerror(f->status));
        return;
    }
    if (!c->server) {
        if (!plain)
            go_up(c);
        else if (c->plain_wanted)
            fp_conn_switch(c);
        else
            fp_conn_fail(c, FP_EBADFRAME, "plain bytes that nobody asked for");
        return;
    }
    uint8_t answer[SETUP_MSG_BYTES] = {0};
    plain = plain && c->rpc->o.plain;
    answer[0] = plain ? SETUP_PLAIN : 0;
    if (fp_out_wire(c, TYPE_SETUP, FP_FRAME_REPLY, 0, 0, answer, sizeof answer) < 0) {
        fp_conn_fail(c, -ENOMEM, "out of memory");
    } else if (plain) {
        c->state = CONN_SWITCH;
        fp_conn_send(c);
    } else {
        go_up(c);
    }
}

static void handshake_step(struct fp_rpc_conn *c)
{
    int rc = c->tr->ops->handshake(c->tr);
    if (rc == -EAGAIN) {
        fp_conn_watch(c);
        return;
    }
    if (rc < 0) {
        const char *why = c->tr->ops->why(c->tr);
        fp_conn_fail(c, rc, "%s", *why ? why : fp_strerror(rc));
        return;
    }
    c->in.buf = malloc(RX_SMALL_BYTES);
    c->in.cap_bytes = c->in.buf ? RX_SMALL_BYTES : 0;
    c->state = CONN_SETUP;
    uint8_t ask[SETUP_MSG_BYTES] = {c->plain_wanted ? SETUP_PLAIN : 0};
    if (!c->in.buf || (!c->server && fp_out_wire(c, TYPE_SETUP, 0, 0, 0, ask, sizeof ask) < 0)) {
        fp_conn_fail(c, -ENOMEM, "out of memory");
        return;
    }
    fp_conn_send(c);
    fp_conn_read(c);
}

/* -------------------------------------------------------------- sockets */

/* Dead peers are found by pings. The kernel's own means are for the time when we do not read (paused):
 * keepalive probes, and TCP_USER_TIMEOUT, which must be long because it also counts the time a living peer is
 * paused. */
static void set_sockopts(int fd)
{
    int one = 1, idle_s = 5, interval_s = 2, probes = 3;
    unsigned user_timeout_ms = USER_TIMEOUT_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof user_timeout_ms);
}

static int poll_open(struct fp_rpc_conn *c, int fd)
{
    c->fd = fd;
    c->events = 0;
    int rc = uv_poll_init(c->rpc->loop, &c->poll, fd);
    if (rc < 0)
        return rc;
    c->poll.data = c;
    c->poll_open = true;
    c->refs++;
    c->rpc->refs++;
    return 0;
}

/* The socket is connected: prove the key. */
static int handshake_begin(struct fp_rpc_conn *c)
{
    union fp_sockaddr local;
    socklen_t len = sizeof local;
    if (getsockname(c->fd, &local.sa, &len) == 0)
        fp_addr_format(&local.sa, c->local);
    set_sockopts(c->fd);
    enum fp_tls_role role = c->server ? FP_TLS_SERVER : c->any_uuid ? FP_TLS_CLIENT_ANY : FP_TLS_CLIENT;
    int rc = fp_transport_tls_new(c->rpc->tls, c->fd, role, &c->tr);
    if (rc < 0)
        return rc;
    c->state = CONN_HANDSHAKE;
    if (!c->server)
        handshake_step(c);
    fp_conn_watch(c);
    return 0;
}

int fp_conn_start(struct fp_rpc_conn *c, int fd)
{
    int rc = poll_open(c, fd);
    if (rc < 0)
        return rc;
    c->deadline_ms = fp_now_ms() + c->rpc->o.handshake_timeout_ms;
    return handshake_begin(c);
}

static void connected(struct fp_rpc_conn *c)
{
    int err = 0;
    socklen_t len = sizeof err;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
        err = errno;
    if (err == EINPROGRESS || err == EAGAIN)
        return;
    int rc = err ? -err : handshake_begin(c);
    if (rc < 0 && err && c->addrs_at < c->addrs_n)
        rc = connect_next(c);
    if (rc < 0)
        fp_conn_fail(c, rc, "cannot connect to %s: %s", c->peer, fp_strerror(rc));
}

static void poll_cb(uv_poll_t *h, int status, int events)
{
    struct fp_rpc_conn *c = h->data;
    if (status < 0) /* the socket has an error: whoever uses it next learns which */
        events = UV_READABLE | UV_WRITABLE;
    if (c->state == CONN_CONNECT) {
        connected(c);
        return;
    }
    if (c->state == CONN_HANDSHAKE) {
        c->heard = true;
        handshake_step(c);
        return;
    }
    if (events & UV_WRITABLE)
        fp_conn_send(c);
    if (events & UV_READABLE)
        fp_conn_read(c);
}

/* -------------------------------------------------------------- connecting */

static int connect_one(struct fp_rpc_conn *c, const union fp_sockaddr *addr)
{
    int fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    fp_addr_format(&addr->sa, c->peer);
    c->state = CONN_CONNECT;
    if (connect(fd, &addr->sa, fp_addr_len(addr)) < 0 && errno != EINPROGRESS) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    int rc = poll_open(c, fd);
    if (rc < 0)
        return rc;
    fp_conn_watch(c);
    return 0;
}

static void retry_cb(uv_handle_t *h)
{
    struct fp_rpc_conn *c = h->data;
    if (c->state == CONN_CONNECT) {
        int rc = connect_next(c);
        if (rc < 0)
            fp_conn_fail(c, rc, "cannot connect to %s: %s", c->peer, fp_strerror(rc));
    }
    poll_closed(h);
}

/* The next address of the name. A poll handle must be closed before it can be used for another socket. */
static int connect_next(struct fp_rpc_conn *c)
{
    int rc = -ENOENT;
    if (c->poll_open) {
        c->poll_open = false;
        uv_close((uv_handle_t *)&c->poll, retry_cb);
        close(c->fd);
        c->fd = -1;
        return 0;
    }
    while (c->addrs_at < c->addrs_n) {
        rc = connect_one(c, &c->addrs[c->addrs_at++]);
        if (rc == 0)
            return 0;
        if (c->fd >= 0)
            return rc;
    }
    return rc;
}

/* Of HOST:PORT the host; a longer one has lost its port, and is shown as it is. */
static int name_bytes(const char *peer)
{
    const char *colon = strrchr(peer, ':');
    return (int)(colon ? (size_t)(colon - peer) : strlen(peer));
}

static void lookup_cb(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
    struct fp_rpc_conn *c = req->data;
    c->addrs_n = fp_addr_order(list, c->addrs, CONN_ADDRS);
    for (unsigned i = 0; i < c->addrs_n; i++)
        fp_addr_set_port(&c->addrs[i], c->port);
    uv_freeaddrinfo(list);
    if (c->state == CONN_RESOLVE) {
        int rc = status < 0 ? FP_ENOHOST : connect_next(c);
        if (status < 0) /* the peer is HOST:PORT */
            fp_conn_fail(c, rc, "the host name %.*s cannot be resolved (%s)",
                         name_bytes(c->peer), c->peer, fp_strerror(status));
        else if (rc < 0)
            fp_conn_fail(c, rc, "cannot reach %s: %s", c->peer, fp_strerror(rc));
    }
    fp_rpc_put(c->rpc);
    fp_rpc_conn_put(c);
}

static int lookup(struct fp_rpc_conn *c, const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    c->lookup.data = c;
    int rc = uv_getaddrinfo(c->rpc->loop, &c->lookup, lookup_cb, host, NULL, &hints);
    if (rc < 0)
        return rc;
    c->refs++;
    c->rpc->refs++;
    return 0;
}

int fp_rpc_connect(struct fp_rpc *rpc, const char *text, const struct fp_rpc_connect_opts *opts,
                   const struct fp_rpc_handler *h, void *arg, struct fp_rpc_conn **out)
{
    static const struct fp_rpc_connect_opts defaults;
    char host[FP_ADDR_HOST];
    struct fp_rpc_conn *c;
    uint16_t port;
    int rc = fp_addr_split(text, host, &port);
    if (rc < 0 || port == 0 || rpc->ending)
        return rpc->ending ? FP_ESTOPPING : -EINVAL;
    if (!opts)
        opts = &defaults;
    rc = fp_conn_new(rpc, h, arg, &c);
    if (rc < 0)
        return rc;
    c->plain_wanted = opts->plain && rpc->o.plain;
    c->any_uuid = opts->fresh_uuid;
    c->deadline_ms = c->opened_ms + (opts->timeout_ms ? opts->timeout_ms : CONNECT_TIMEOUT_MS);
    c->port = port;
    snprintf(c->peer, sizeof c->peer, "%s", text);
    if (fp_addr_numeric(*host ? host : "127.0.0.1", port, &c->addrs[0]) == 0) {
        c->addrs_n = 1;
        rc = connect_next(c);
    } else {
        rc = lookup(c, host);
    }
    if (rc < 0)
        fp_conn_fail(c, rc, "cannot connect to %s: %s", c->peer, fp_strerror(rc));
    *out = c;
    return 0;
}

/* -------------------------------------------------------------- clock */

static void tick_deadline(struct fp_rpc_conn *c)
{
    if (c->state == CONN_DRAIN)
        fp_conn_fail(c, 0, "closed by this program");
    else if (c->server && !c->heard)
        fp_conn_fail(c, -ETIMEDOUT, "silent for %u ms", c->rpc->o.handshake_timeout_ms);
    else if (c->server)
        fp_conn_fail(c, -ETIMEDOUT, "did not prove the key within %u ms", c->rpc->o.handshake_timeout_ms);
    else
        fp_conn_fail(c, -ETIMEDOUT, "no connection to %s in time", c->peer);
}

static void tick_up(struct fp_rpc_conn *c, uint64_t now_ms)
{
    const struct fp_rpc_opts *o = &c->rpc->o;
    if (now_ms - c->last_tx_ms >= o->ping_idle_ms && TAILQ_EMPTY(&c->outq)) {
        fp_out_wire(c, TYPE_PING, FP_FRAME_ONEWAY, 0, 0, NULL, 0);
        c->last_tx_ms = now_ms;
    }
    if (!fp_conn_may_read(c))
        c->last_rx_ms = now_ms;
    else if (now_ms - c->last_rx_ms >= o->dead_ms)
        fp_conn_fail(c, -ETIMEDOUT, "nothing heard of it for %u ms", o->dead_ms);
}

void fp_conn_tick(struct fp_rpc_conn *c, uint64_t now_ms)
{
    if (c->state >= CONN_CLOSING)
        return;
    if (c->deadline_ms > 0)
        c->rpc->fast = true;
    if (c->deadline_ms > 0 && now_ms >= c->deadline_ms)
        tick_deadline(c);
    else if (c->state == CONN_UP)
        tick_up(c, now_ms);
    else if (c->server && !c->heard && c->rpc->preauth_n >= c->rpc->o.preauth_max &&
             now_ms - c->opened_ms >= SILENT_GRACE_MS)
        fp_conn_fail(c, -ETIMEDOUT, "silent, and others are waiting");
}

/* -------------------------------------------------------------- what programs ask */

void fp_rpc_conn_set_data(struct fp_rpc_conn *c, void *data)
{
    c->data = data;
}

void *fp_rpc_conn_data(const struct fp_rpc_conn *c)
{
    return c->data;
}

bool fp_rpc_conn_is_plain(const struct fp_rpc_conn *c)
{
    return c->plain;
}

const char *fp_rpc_conn_peer(const struct fp_rpc_conn *c)
{
    return c->peer;
}

const char *fp_rpc_conn_local(const struct fp_rpc_conn *c)
{
    return c->local;
}

size_t fp_rpc_conn_queued_bytes(const struct fp_rpc_conn *c)
{
    return c->queued_bytes;
}

size_t fp_rpc_conn_calls(const struct fp_rpc_conn *c)
{
    return c->calls_n;
}
