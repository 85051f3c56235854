/* The plain transport and what both transports share.
 *
 * Used by rpc on the thread of its loop. A connection never starts plain: bytes go in the clear only after a
 * TLS handshake has proved the key and both ends agreed (fp_transport_tls_to_plain), so this transport has no
 * handshake of its own and is handed the bytes that the TLS side had already read from the socket.
 *
 * Sockets are used directly (recvmsg/sendmsg with vectors) under uv_poll, and not as uv_tcp streams: a
 * payload can then be received in one call straight into the caller's memory with the next header behind it,
 * and a stream can change hands between two bytes. */
#include "fp/transport.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "transport_int.h"

int fp_bytebuf_init(struct fp_bytebuf *b, size_t cap_bytes)
{
    *b = (struct fp_bytebuf){.data = malloc(cap_bytes), .cap_bytes = cap_bytes};
    return b->data ? 0 : -ENOMEM;
}

int fp_bytebuf_grow(struct fp_bytebuf *b, size_t cap_bytes)
{
    if (cap_bytes <= b->cap_bytes)
        return 0;
    uint8_t *data = malloc(cap_bytes);
    if (!data)
        return -ENOMEM;
    if (b->len > 0)
        memcpy(data, b->data + b->off, b->len);
    free(b->data);
    b->data = data;
    b->cap_bytes = cap_bytes;
    b->off = 0;
    return 0;
}

void fp_bytebuf_fini(struct fp_bytebuf *b)
{
    free(b->data);
    *b = (struct fp_bytebuf){0};
}

size_t fp_bytebuf_room(struct fp_bytebuf *b, size_t want_bytes)
{
    size_t room = b->cap_bytes - b->off - b->len;
    if (room < want_bytes && b->off > 0) {
        if (b->len > 0)
            memmove(b->data, b->data + b->off, b->len);
        b->off = 0;
        room = b->cap_bytes - b->len;
    }
    return room;
}

size_t fp_bytebuf_take(struct fp_bytebuf *b, void *to, size_t max_bytes)
{
    size_t n = b->len < max_bytes ? b->len : max_bytes;
    if (n == 0)
        return 0;
    memcpy(to, b->data + b->off, n);
    b->off += n;
    b->len -= n;
    if (b->len == 0)
        b->off = 0;
    return n;
}

ssize_t fp_bytebuf_recv(struct fp_bytebuf *b, int fd, bool *drained)
{
    size_t room = fp_bytebuf_room(b, b->cap_bytes / 2);
    if (room == 0)
        return -ENOBUFS;
    ssize_t n;
    do {
        n = recv(fd, b->data + b->off + b->len, room, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    b->len += (size_t)n;
    *drained = (size_t)n < room;
    return n;
}

int fp_bytebuf_send(struct fp_bytebuf *b, int fd)
{
    while (b->len > 0) {
        ssize_t n = send(fd, b->data + b->off, b->len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        b->off += (size_t)n;
        b->len -= (size_t)n;
    }
    b->off = 0;
    return 0;
}

/* -------------------------------------------------------------- plain */

struct plain {
    struct fp_transport base;
    int fd;
    bool drained;           /* the last read took all there was: ask poll before the next one */
    bool blocked;           /* the socket took no more */
    struct fp_bytebuf left; /* what TLS had read ahead; given out first */
};

static int plain_handshake(struct fp_transport *t)
{
    (void)t;
    return 0;
}

static size_t iov_bytes(const struct iovec *iov, int iovcnt)
{
    size_t sum = 0;
    for (int i = 0; i < iovcnt; i++)
        sum += iov[i].iov_len;
    return sum;
}

static ssize_t plain_readv(struct fp_transport *t, const struct iovec *iov, int iovcnt)
{
    struct plain *p = (struct plain *)t;
    if (p->left.len > 0) {
        size_t got = 0;
        for (int i = 0; i < iovcnt && p->left.len > 0; i++)
            got += fp_bytebuf_take(&p->left, iov[i].iov_base, iov[i].iov_len);
        if (p->left.len == 0)
            fp_bytebuf_fini(&p->left);
        return (ssize_t)got;
    }
    if (p->drained) {
        p->drained = false;
        return -EAGAIN;
    }
    struct msghdr mh = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)iovcnt};
    ssize_t n;
    do {
        n = recvmsg(p->fd, &mh, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    p->drained = n > 0 && (size_t)n < iov_bytes(iov, iovcnt);
    return n;
}

static ssize_t plain_writev(struct fp_transport *t, const struct iovec *iov, int iovcnt)
{
    struct plain *p = (struct plain *)t;
    struct msghdr mh = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)iovcnt};
    ssize_t n;
    do {
        n = sendmsg(p->fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    p->blocked = n < 0 || (size_t)n < iov_bytes(iov, iovcnt);
    if (n < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    return n;
}

static int plain_flush(struct fp_transport *t)
{
    (void)t;
    return 0;
}

static bool plain_wants_write(const struct fp_transport *t)
{
    return ((const struct plain *)t)->blocked;
}

static const char *plain_why(const struct fp_transport *t)
{
    (void)t;
    return "";
}

static void plain_free(struct fp_transport *t)
{
    fp_bytebuf_fini(&((struct plain *)t)->left);
    free(t);
}

static const struct fp_transport_ops plain_ops = {
    .name = "plain",
    .handshake = plain_handshake,
    .readv = plain_readv,
    .writev = plain_writev,
    .flush = plain_flush,
    .wants_write = plain_wants_write,
    .why = plain_why,
    .free = plain_free,
};

int fp_transport_plain_new(int fd, const void *rx, size_t rx_len_bytes, struct fp_transport **out)
{
    struct plain *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->base.ops = &plain_ops;
    p->fd = fd;
    if (rx_len_bytes > 0) {
        if (fp_bytebuf_init(&p->left, rx_len_bytes) < 0) {
            free(p);
            return -ENOMEM;
        }
        memcpy(p->left.data, rx, rx_len_bytes);
        p->left.len = rx_len_bytes;
    }
    *out = &p->base;
    return 0;
}
