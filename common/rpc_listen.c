/* Listening sockets: who may come in, and how many at a time.
 *
 * Called by programs (fp_rpc_listen), by libuv (a connection is there) and by rpc.c (room again), on the
 * loop's thread.
 *
 * Strangers must not be able to use us up: at most preauth_max connections may be on their way through the
 * handshake, each with a few KiB and a deadline. When all places are taken, further ones wait in the kernel's
 * backlog, and those that have been silent for 100 ms lose their place (rpc_conn.c), so that a flood of
 * silent connections delays an honest one by a tenth of a second only. */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "rpc_int.h"

#define ACCEPTS_PER_TURN 32
#define BACKLOG          1024

static void accept_cb(uv_poll_t *h, int status, int events);

static bool has_room(const struct fp_rpc *rpc)
{
    return rpc->preauth_n < rpc->o.preauth_max && !rpc->ending;
}

void fp_listen_resume(struct fp_rpc *rpc)
{
    struct fp_rpc_listener *l;
    if (!has_room(rpc))
        return;
    LIST_FOREACH(l, &rpc->listeners, link)
    {
        if (!l->accepting && uv_poll_start(&l->poll, UV_READABLE, accept_cb) == 0)
            l->accepting = true;
    }
}

static void stop_accepting(struct fp_rpc_listener *l)
{
    uv_poll_stop(&l->poll);
    l->accepting = false;
    fp_rpc_fast(l->rpc);
}

static void take(struct fp_rpc_listener *l, int fd, const struct sockaddr *from)
{
    struct fp_rpc *rpc = l->rpc;
    struct fp_rpc_conn *c;
    char peer[FP_ADDR_BUF];
    fp_addr_format(from, peer);
    if (rpc->conns_n >= rpc->o.conns_max) {
        fp_rpc_refused(rpc, peer, "too many connections");
        close(fd);
        return;
    }
    if (fp_conn_new(rpc, l->h, l->arg, &c) < 0) {
        fp_rpc_refused(rpc, peer, "out of memory");
        close(fd);
        return;
    }
    c->server = true;
    memcpy(c->peer, peer, sizeof c->peer);
    rpc->conns_n++;
    rpc->preauth_n++;
    int rc = fp_conn_start(c, fd);
    if (rc < 0)
        fp_conn_fail(c, rc, "%s", fp_strerror(rc));
}

static void accept_cb(uv_poll_t *h, int status, int events)
{
    struct fp_rpc_listener *l = h->data;
    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        union fp_sockaddr from;
        socklen_t len = sizeof from;
        if (!has_room(l->rpc)) {
            stop_accepting(l);
            return;
        }
        int fd = accept4(l->fd, &from.sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take(l, fd, &from.sa);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            FP_LOG_EVERY(5000, FP_LOG_ERROR, "cannot accept connections: %s: raise the limit of open files",
                         strerror(errno));
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

/* -------------------------------------------------------------- begin and end */

/* Blocks for the look-up of a name: start-up only. */
static int resolve(const char *host, uint16_t port, union fp_sockaddr *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct addrinfo *list;
    if (fp_addr_numeric(host, port, out) == 0)
        return 0;
    if (getaddrinfo(host, NULL, &hints, &list) != 0)
        return FP_ENOHOST;
    memset(out, 0, sizeof *out);
    if (list->ai_addrlen <= sizeof *out)
        memcpy(out, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    fp_addr_set_port(out, port);
    return 0;
}

static int listen_on(const union fp_sockaddr *addr)
{
    int one = 1;
    int fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    /* A restarted daemon may take its port while old connections are in TIME_WAIT; two daemons still cannot
     * share it. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (addr->sa.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&addr->v6.sin6_addr))
        (void)fp_addr_both(fd); /* all addresses are wanted; one that can't do both has those of IPv6 */
    if (bind(fd, &addr->sa, fp_addr_len(addr)) < 0 || listen(fd, BACKLOG) < 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

int fp_rpc_listen(struct fp_rpc *rpc, const char *text, const struct fp_rpc_handler *h, void *arg,
                  struct fp_rpc_listener **out)
{
    char host[FP_ADDR_HOST];
    union fp_sockaddr addr;
    uint16_t port;
    socklen_t len = sizeof addr;
    int rc = fp_addr_split(text, host, &port);
    if (rc == 0)
        rc = resolve(host, port, &addr);
    if (rc < 0)
        return rc;
    struct fp_rpc_listener *l = calloc(1, sizeof *l);
    if (!l)
        return -ENOMEM;
    l->fd = listen_on(&addr);
    if (l->fd < 0)
        rc = l->fd;
    else
        rc = uv_poll_init(rpc->loop, &l->poll, l->fd);
    if (rc < 0) {
        if (l->fd >= 0)
            close(l->fd);
        free(l);
        return rc;
    }
    getsockname(l->fd, &addr.sa, &len);
    fp_addr_format(&addr.sa, l->addr);
    l->port = fp_addr_port(&addr);
    l->poll.data = l;
    l->rpc = rpc;
    l->h = h;
    l->arg = arg;
    rpc->refs++;
    LIST_INSERT_HEAD(&rpc->listeners, l, link);
    fp_listen_resume(rpc);
    *out = l;
    return 0;
}

static void listener_closed(uv_handle_t *h)
{
    struct fp_rpc_listener *l = h->data;
    fp_rpc_put(l->rpc);
    free(l);
}

void fp_rpc_listener_close(struct fp_rpc_listener *l)
{
    LIST_REMOVE(l, link);
    uv_close((uv_handle_t *)&l->poll, listener_closed);
    close(l->fd);
    l->fd = -1;
}

const char *fp_rpc_listener_addr(const struct fp_rpc_listener *l)
{
    return l->addr;
}

uint16_t fp_rpc_listener_port(const struct fp_rpc_listener *l)
{
    return l->port;
}
