/* Byte transports under rpc.h: plain TCP and TLS 1.3 look alike here; RDMA can be added as a third table.
 *
 * A transport belongs to one non-blocking, connected socket and one thread (the loop's). It never waits:
 * what cannot go on returns -EAGAIN, and `wants_write` says whether the socket must be watched for
 * writability as well. Programs do not use this header; they use rpc.h.
 *
 * TLS: version 1.3 only, external PSK only (the store's 256-bit key), TLS_AES_128_GCM_SHA256 with
 * ephemeral (EC)DH, no certificates, no tickets, no early data. The identity in the ClientHello is
 * "fpstore:" + UUID of the store in 32 hex digits, or "fpstore:any" from an end that does not know it
 * yet; a server refuses other identities with a handshake_failure alert, and bad keys with illegal_parameter:
 * so a client can tell another store (FP_EUUID) from a wrong key (FP_EAUTH). */
#ifndef FP_TRANSPORT_H
#define FP_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "fp/key.h"

struct fp_transport;
struct fp_tls_ctx;

struct fp_transport_ops {
    const char *name; /* "plain", "tls" */

    /* 0: both ends have proved the key; -EAGAIN: go on when the socket is readable (or writable, see
     * wants_write); FP_EAUTH, FP_EUUID, -EPROTO (the peer does not speak TLS), -ECONNRESET, FP_EPEER_GONE. */
    int (*handshake)(struct fp_transport *t);

    /* Bytes put into iov (at least 1), 0 at end of stream, -EAGAIN when there is nothing, -errno. To be
     * called until it gives -EAGAIN: bytes may be buffered inside of which poll knows nothing. */
    ssize_t (*readv)(struct fp_transport *t, const struct iovec *iov, int iovcnt);

    /* Bytes taken from iov; they may be kept inside until the socket takes them: call flush. -EAGAIN: none
     * taken. The caller may reuse the bytes taken at once. */
    ssize_t (*writev)(struct fp_transport *t, const struct iovec *iov, int iovcnt);

    /* Sends what writev kept. 0: nothing is left; -EAGAIN: watch for writability; -errno. */
    int (*flush)(struct fp_transport *t);

    /* True if the transport cannot go on before the socket is writable. */
    bool (*wants_write)(const struct fp_transport *t);

    /* What the handshake failed of, in words for a log line; static or owned by t. "" if it did not fail. */
    const char *(*why)(const struct fp_transport *t);

    /* Does not close the socket. */
    void (*free)(struct fp_transport *t);
};

/* First member of every transport. */
struct fp_transport {
    const struct fp_transport_ops *ops;
};

/* Plain bytes on fd. `rx`/`rx_len_bytes`: bytes that another transport had read already (copied); NULL, 0
 * otherwise. */
int fp_transport_plain_new(int fd, const void *rx, size_t rx_len_bytes, struct fp_transport **out);

/* CLIENT_ANY: a client that takes any store which has the key, whatever UUID the context knows. */
enum fp_tls_role { FP_TLS_SERVER, FP_TLS_CLIENT, FP_TLS_CLIENT_ANY };

/* TLS on fd. ctx is borrowed until the transport is freed. */
int fp_transport_tls_new(struct fp_tls_ctx *ctx, int fd, enum fp_tls_role role, struct fp_transport **out);

/* Ends TLS after a clean agreement (rpc.h does it) and goes on in plain bytes on the same socket: everything
 * written before must have been flushed. Frees t and stores the plain transport, which first gives the bytes
 * behind the last TLS record. On failure t is untouched. -EBUSY: unflushed or undecrypted bytes are there. */
int fp_transport_tls_to_plain(struct fp_transport *t, struct fp_transport **out);

/* key is borrowed until _free. uuid: 16 bytes or NULL (not known). -ENOMEM; -EIO with a line in the log when
 * OpenSSL cannot do TLS 1.3. */
int fp_tls_ctx_new(const struct fp_key *key, const uint8_t *uuid, struct fp_tls_ctx **out);
void fp_tls_ctx_free(struct fp_tls_ctx *ctx);

/* From now on this is the store's UUID (a client learnt it from HelloReply). */
void fp_tls_ctx_set_uuid(struct fp_tls_ctx *ctx, const uint8_t uuid[16]);

#endif
