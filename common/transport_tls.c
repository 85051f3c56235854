/* TLS 1.3 over a non-blocking socket, with buffers of our own between OpenSSL and the socket.
 *
 * Used by rpc on the thread of its loop. OpenSSL sees a BIO that takes from rx and puts into tx; system calls
 * then move up to 128 KiB at once instead of one record (or, reading, its 5-byte header). Because OpenSSL
 * reads record by record (read_ahead is off), what stands in rx behind the last record is exactly what the
 * peer sent after it: the hand-over to plain loses no byte.
 *
 * Before the key is proved a connection has 4 KiB per direction, and the SSL object is made only when the
 * first bytes look like a TLS handshake: strangers cost next to nothing and are told apart in the log ("GET
 * /" is not a wrong key). After that the PSK is wiped from the session object (it is not needed any more: no
 * resumption).
 *
 * OpenSSL reports a refused PSK as an alert only; the mapping is in client_failure(). */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <openssl/err.h>

#include "fp/err.h"
#include "fp/frame.h"
#include "tls_ctx.h"
#include "transport_int.h"

#define PREAUTH_BUF_BYTES 4096u
#define PREAUTH_MAX_BYTES 8192u /* read in all before the handshake is through */
#define RX_BUF_BYTES      (128u << 10)
#define TX_BUF_BYTES      (256u << 10)
#define RECORD_BYTES      (16u << 10)
#define RECORD_ROOM_BYTES (RECORD_BYTES + 512) /* with headers, tag and a key update */
#define KEY_UPDATE_BYTES  (64ull << 30)        /* AES-GCM: RFC 8446 5.5 allows 2^24.5 records */
#define TLS_HANDSHAKE     0x16
#define TLS_ALERT         0x15
#define HELLO_MAX_BYTES   2048u

struct tls {
    struct fp_transport base;
    struct fp_tls_ctx *ctx;
    SSL *ssl; /* made when the first bytes have been looked at */
    struct fp_tls_peer peer;
    int fd;
    bool server;
    bool up;
    bool eof;
    bool drained; /* the socket had no more at the last recv: not again in this turn */
    bool blocked; /* the socket takes no more */
    int io_err;
    size_t preauth_bytes;
    uint64_t written_bytes; /* since the last key update */
    struct fp_bytebuf rx;
    struct fp_bytebuf tx;
    char why[160];
};

/* -------------------------------------------------------------- the BIO */

/* Takes more from the socket when rx is empty. 0; -EAGAIN; or eof/io_err set and -EIO. */
static int rx_fill(struct tls *t)
{
    if (t->eof || t->io_err)
        return -EIO;
    if (t->drained)
        return -EAGAIN;
    ssize_t n = fp_bytebuf_recv(&t->rx, t->fd, &t->drained);
    if (n == -EAGAIN)
        t->drained = true;
    else if (n < 0)
        t->io_err = (int)n;
    else if (n == 0)
        t->eof = true;
    else if (!t->up)
        t->preauth_bytes += (size_t)n;
    return n > 0 ? 0 : n == -EAGAIN ? -EAGAIN : -EIO;
}

static int bio_read_ex(BIO *bio, char *to, size_t len, size_t *got)
{
    struct tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    *got = 0;
    if (t->rx.len == 0) {
        int rc = rx_fill(t);
        if (rc == -EAGAIN)
            BIO_set_retry_read(bio);
        if (rc < 0)
            return 0;
    }
    *got = fp_bytebuf_take(&t->rx, to, len);
    return 1;
}

static int bio_write_ex(BIO *bio, const char *from, size_t len, size_t *put)
{
    struct tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    *put = 0;
    if (fp_bytebuf_room(&t->tx, len) < len) {
        BIO_set_retry_write(bio);
        return 0;
    }
    memcpy(t->tx.data + t->tx.off + t->tx.len, from, len);
    t->tx.len += len;
    *put = len;
    return 1;
}

static long bio_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
    (void)bio;
    (void)num;
    (void)ptr;
    return cmd == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method;
static pthread_once_t bio_once = PTHREAD_ONCE_INIT;

static void bio_method_free(void)
{
    BIO_meth_free(bio_method);
}

static void bio_method_init(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "fpstore");
    if (!bio_method)
        return;
    BIO_meth_set_read_ex(bio_method, bio_read_ex);
    BIO_meth_set_write_ex(bio_method, bio_write_ex);
    BIO_meth_set_ctrl(bio_method, bio_ctrl);
    atexit(bio_method_free);
}

/* -------------------------------------------------------------- handshake */

static int ssl_start(struct tls *t)
{
    pthread_once(&bio_once, bio_method_init);
    BIO *bio = bio_method ? BIO_new(bio_method) : NULL;
    t->ssl = SSL_new(t->server ? t->ctx->server : t->ctx->client);
    if (!bio || !t->ssl) {
        BIO_free(bio);
        ERR_clear_error();
        return -ENOMEM;
    }
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio);
    SSL_set_app_data(t->ssl, &t->peer);
    if (t->server)
        SSL_set_accept_state(t->ssl);
    else
        SSL_set_connect_state(t->ssl);
    return 0;
}

static int not_fpstore(struct tls *t)
{
    const uint8_t *p = t->rx.data + t->rx.off;
    struct fp_frame f;
    size_t n = t->rx.len;
    if (n >= FP_FRAME_HEADER_BYTES && fp_frame_decode(p, &f) != -EBADMSG) {
        snprintf(t->why, sizeof t->why, "frame of protocol version %u without TLS", fp_frame_version(p));
        return FP_EPROTO_VERSION;
    }
    int at = snprintf(t->why, sizeof t->why, "not an fpstore connection, it begins with");
    for (size_t i = 0; i < n && i < 8; i++)
        at += snprintf(t->why + at, sizeof t->why - (size_t)at, " %02x", p[i]);
    return -EPROTO;
}

/* Looks at the first bytes. 0: TLS, go on. Three bytes tell (type, major version); a header of 40 bytes is
 * waited for when it may be a frame in the clear, and the handshake's deadline ends the wait. */
static int sniff(struct tls *t)
{
    while (t->rx.len < 5) {
        int rc = rx_fill(t);
        if (rc == -EAGAIN && t->rx.len > 0 && t->rx.data[t->rx.off] != TLS_HANDSHAKE &&
            t->rx.data[t->rx.off] != TLS_ALERT)
            return not_fpstore(t);
        if (rc == -EAGAIN)
            return rc;
        if (rc < 0) {
            if (t->rx.len > 0)
                return not_fpstore(t);
            snprintf(t->why, sizeof t->why, "%s", t->eof ? "closed without a word" : fp_strerror(t->io_err));
            return t->eof ? FP_EPEER_GONE : t->io_err;
        }
    }
    const uint8_t *p = t->rx.data + t->rx.off;
    unsigned len = (unsigned)p[3] << 8 | p[4];
    bool type_ok = p[0] == TLS_HANDSHAKE || (!t->server && p[0] == TLS_ALERT);
    if (!type_ok || p[1] != 3 || len > HELLO_MAX_BYTES)
        return not_fpstore(t);
    return 0;
}

/* Why the server let the client down, as the client sees it: an alert, or its own refusal. */
static int client_failure(struct tls *t, int reason)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    switch (reason) {
    case SSL_AD_REASON_OFFSET + SSL_AD_ILLEGAL_PARAMETER:
    case SSL_AD_REASON_OFFSET + SSL_AD_DECRYPT_ERROR:
        snprintf(t->why, sizeof t->why, "wrong key: the other end has another store key");
        return FP_EAUTH;
    case SSL_AD_REASON_OFFSET + SSL_AD_HANDSHAKE_FAILURE:
        snprintf(t->why, sizeof t->why, "the other end belongs to another store");
        return FP_EUUID;
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
    case SSL_R_BAD_PSK_IDENTITY:
        snprintf(t->why, sizeof t->why, "the other end does not have the store key");
        return FP_EAUTH;
    default:
        snprintf(t->why, sizeof t->why, "TLS: %s", text ? text : "failed");
        return -EPROTO;
    }
}

static int server_failure(struct tls *t, int reason)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    if (t->peer.other_store) {
        snprintf(t->why, sizeof t->why, "it belongs to another store (UUID differs)");
        return FP_EUUID;
    }
    if (reason == SSL_R_BINDER_DOES_NOT_VERIFY) {
        snprintf(t->why, sizeof t->why, "wrong key: it has another store key");
        return FP_EAUTH;
    }
    snprintf(t->why, sizeof t->why, "TLS without the store key: %s", text ? text : "failed");
    return FP_EAUTH;
}

static int handshake_failure(struct tls *t)
{
    int reason = ERR_GET_REASON(ERR_peek_last_error());
    int rc;
    bool silent = reason == 0 || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    if (silent && (t->eof || t->io_err)) {
        rc = t->eof ? FP_EPEER_GONE : t->io_err;
        snprintf(t->why, sizeof t->why, "connection lost during the handshake");
    } else {
        rc = t->server ? server_failure(t, reason) : client_failure(t, reason);
    }
    ERR_clear_error();
    (void)fp_bytebuf_send(&t->tx, t->fd); /* the alert tells the other end why */
    return rc;
}

/* The handshake is through: check that the PSK did it, forget the PSK, take the large buffers. */
static int handshake_done(struct tls *t)
{
    static const unsigned char zeros[FP_KEY_BYTES];
    if (!SSL_session_reused(t->ssl)) {
        snprintf(t->why, sizeof t->why, "the other end does not have the store key");
        return FP_EAUTH;
    }
    SSL_SESSION_set1_master_key(SSL_get_session(t->ssl), zeros, sizeof zeros);
    if (fp_bytebuf_grow(&t->rx, RX_BUF_BYTES) < 0 || fp_bytebuf_grow(&t->tx, TX_BUF_BYTES) < 0) {
        snprintf(t->why, sizeof t->why, "out of memory");
        return -ENOMEM;
    }
    t->up = true;
    return 0;
}

static int tls_flush(struct fp_transport *base);

static int tls_handshake(struct fp_transport *base)
{
    struct tls *t = (struct tls *)base;
    int rc = 0;
    t->drained = false;
    /* A client speaks first: its first bytes are looked at when they have been answered. */
    if (t->server && !t->ssl && (rc = sniff(t)) < 0)
        return rc;
    if (!t->ssl && (rc = ssl_start(t)) < 0)
        return rc;
    if (!t->server && SSL_get_state(t->ssl) == TLS_ST_CW_CLNT_HELLO && t->rx.len == 0 && (rc = sniff(t)) < 0)
        return rc;
    ERR_clear_error();
    int n = SSL_do_handshake(t->ssl);
    if (n != 1) {
        int e = SSL_get_error(t->ssl, n);
        if ((e != SSL_ERROR_WANT_READ && e != SSL_ERROR_WANT_WRITE) || t->eof || t->io_err)
            return handshake_failure(t);
    }
    if (t->preauth_bytes > PREAUTH_MAX_BYTES) {
        snprintf(t->why, sizeof t->why, "too many bytes before it proved the key");
        return -EPROTO;
    }
    if (n == 1 && (rc = handshake_done(t)) < 0)
        return rc;
    rc = tls_flush(base);
    if (rc < 0 && rc != -EAGAIN)
        return rc;
    return n == 1 ? 0 : -EAGAIN;
}

/* -------------------------------------------------------------- data */

static ssize_t read_failure(struct tls *t, int e)
{
    if (e == SSL_ERROR_ZERO_RETURN || (t->eof && t->rx.len == 0))
        return 0;
    if (e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE)
        return -EAGAIN;
    if (t->io_err)
        return t->io_err;
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    snprintf(t->why, sizeof t->why, "TLS: %s", text ? text : "failed");
    ERR_clear_error();
    return FP_EBADFRAME;
}

static ssize_t tls_readv(struct fp_transport *base, const struct iovec *iov, int iovcnt)
{
    struct tls *t = (struct tls *)base;
    size_t got = 0;
    ERR_clear_error();
    for (int i = 0; i < iovcnt; i++) {
        size_t at = 0;
        while (at < iov[i].iov_len) {
            size_t n = 0;
            int ok = SSL_read_ex(t->ssl, (char *)iov[i].iov_base + at, iov[i].iov_len - at, &n);
            if (!ok) {
                ssize_t rc = got > 0 ? (ssize_t)got : read_failure(t, SSL_get_error(t->ssl, ok));
                if (rc == -EAGAIN)
                    t->drained = false; /* poll will tell */
                return rc;
            }
            at += n;
            got += n;
        }
    }
    return (ssize_t)got;
}

static int tls_flush(struct fp_transport *base)
{
    struct tls *t = (struct tls *)base;
    int rc = fp_bytebuf_send(&t->tx, t->fd);
    t->blocked = rc == -EAGAIN;
    return rc;
}

/* Room for one more record, by sending if need be. */
static int tx_make_room(struct tls *t)
{
    if (fp_bytebuf_room(&t->tx, RECORD_ROOM_BYTES) >= RECORD_ROOM_BYTES)
        return 0;
    int rc = tls_flush(&t->base);
    if (rc < 0 && rc != -EAGAIN)
        return rc;
    return fp_bytebuf_room(&t->tx, RECORD_ROOM_BYTES) >= RECORD_ROOM_BYTES ? 0 : -EAGAIN;
}

static int write_record(struct tls *t, const void *from, size_t len)
{
    int rc = tx_make_room(t);
    if (rc < 0)
        return rc;
    size_t n = 0;
    if (t->written_bytes > KEY_UPDATE_BYTES && SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED))
        t->written_bytes = 0;
    if (!SSL_write_ex(t->ssl, from, len, &n) || n != len) {
        ERR_clear_error();
        return -EIO; /* there was room: OpenSSL itself failed */
    }
    t->written_bytes += len;
    return 0;
}

/* Copies from (i, at) on, over the borders of the parts, until stage is full. */
static size_t gather(const struct iovec *iov, int iovcnt, int i, size_t at, uint8_t stage[RECORD_BYTES])
{
    size_t n = 0;
    for (; i < iovcnt && n < RECORD_BYTES; i++, at = 0) {
        size_t part = iov[i].iov_len - at;
        if (part > RECORD_BYTES - n)
            part = RECORD_BYTES - n;
        if (part > 0)
            memcpy(stage + n, (const char *)iov[i].iov_base + at, part);
        n += part;
    }
    return n;
}

/* Large parts go to OpenSSL as they are, small neighbours are joined: one record instead of many. */
static ssize_t tls_writev(struct fp_transport *base, const struct iovec *iov, int iovcnt)
{
    struct tls *t = (struct tls *)base;
    uint8_t stage[RECORD_BYTES];
    size_t put = 0;
    size_t at = 0;
    ERR_clear_error();
    for (int i = 0; i < iovcnt;) {
        size_t left = iov[i].iov_len - at;
        if (left == 0) {
            i++;
            at = 0;
            continue;
        }
        const void *from = (const char *)iov[i].iov_base + at;
        size_t len = left < RECORD_BYTES ? left : RECORD_BYTES;
        if (left < RECORD_BYTES && i + 1 < iovcnt) {
            len = gather(iov, iovcnt, i, at, stage);
            from = stage;
        }
        int rc = write_record(t, from, len);
        if (rc < 0)
            return put > 0 && rc == -EAGAIN ? (ssize_t)put : rc;
        put += len;
        for (at += len; i < iovcnt && at >= iov[i].iov_len; i++)
            at -= iov[i].iov_len;
    }
    return (ssize_t)put;
}

static bool tls_wants_write(const struct fp_transport *base)
{
    return ((const struct tls *)base)->blocked;
}

static const char *tls_why(const struct fp_transport *base)
{
    return ((const struct tls *)base)->why;
}

static void tls_free(struct fp_transport *base)
{
    struct tls *t = (struct tls *)base;
    SSL_free(t->ssl); /* and its BIO */
    fp_bytebuf_fini(&t->rx);
    fp_bytebuf_fini(&t->tx);
    free(t);
}

static const struct fp_transport_ops tls_ops = {
    .name = "tls",
    .handshake = tls_handshake,
    .readv = tls_readv,
    .writev = tls_writev,
    .flush = tls_flush,
    .wants_write = tls_wants_write,
    .why = tls_why,
    .free = tls_free,
};

int fp_transport_tls_new(struct fp_tls_ctx *ctx, int fd, enum fp_tls_role role, struct fp_transport **out)
{
    struct tls *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->base.ops = &tls_ops;
    t->ctx = ctx;
    t->fd = fd;
    t->server = role == FP_TLS_SERVER;
    snprintf(t->peer.identity, sizeof t->peer.identity, "%s",
             role == FP_TLS_CLIENT_ANY ? FP_TLS_IDENTITY_ANY : ctx->identity);
    if (fp_bytebuf_init(&t->rx, PREAUTH_BUF_BYTES) < 0 || fp_bytebuf_init(&t->tx, PREAUTH_BUF_BYTES) < 0) {
        tls_free(&t->base);
        return -ENOMEM;
    }
    *out = &t->base;
    return 0;
}

int fp_transport_tls_to_plain(struct fp_transport *base, struct fp_transport **out)
{
    struct tls *t = (struct tls *)base;
    assert(base->ops == &tls_ops);
    if (t->tx.len > 0 || SSL_has_pending(t->ssl))
        return -EBUSY;
    int rc = fp_transport_plain_new(t->fd, t->rx.data + t->rx.off, t->rx.len, out);
    if (rc == 0)
        tls_free(base);
    return rc;
}
