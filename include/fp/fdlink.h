/* The local link between fp-mount and its node's fp-benefactor: a Unix SOCK_SEQPACKET socket that passes
 * descriptors.
 *
 * One packet is one frame (frame.h) without payload: header and message, at most 128 KiB together; replies
 * may carry up to 8 descriptors (SCM_RIGHTS). Chunk data never goes through it: it is written through the
 * descriptors.
 *
 * Both ends look at SO_PEERCRED: the other end must have our effective uid or be root, else it is refused
 * with one line. The socket file has mode 0600. There is no key on this link: who may open the socket could
 * read the key as well. */
#ifndef FP_FDLINK_H
#define FP_FDLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>
#include <protobuf-c/protobuf-c.h>

#include "fp/frame.h"

#define FP_FDLINK_PACKET_MAX_BYTES (128u << 10)
#define FP_FDLINK_MSG_MAX_BYTES    (FP_FDLINK_PACKET_MAX_BYTES - FP_FRAME_HEADER_BYTES)
#define FP_FDLINK_FDS_MAX          8u

/* -------------------------------------------------------------- server (the benefactor): thread of the loop,
 * never blocks */

struct fp_fdlink_server;
struct fp_fdlink_peer; /* one connected client; reference-counted */

struct fp_fdlink_in {
    uint16_t type;
    uint16_t flags;
    int32_t status;
    uint64_t id;
    const uint8_t *msg; /* valid until the callback or, in a client, until the reply buffer is reused */
    size_t msg_len_bytes;
};

struct fp_fdlink_handler {
    /* To be answered by fp_fdlink_reply, now or later (take a reference then); not if in->flags &
     * FP_FRAME_ONEWAY. */
    void (*on_request)(struct fp_fdlink_peer *peer, const struct fp_fdlink_in *in, void *arg);
    /* Exactly once per peer, the last callback; may be NULL. err: FP_EPEER_GONE for a normal end, 0 by
     * fp_fdlink_server_close. */
    void (*on_closed)(struct fp_fdlink_peer *peer, int err, void *arg);
};

/* Binds path, of any length, mode 0600, replacing a socket file that nobody listens on. h is borrowed until
 * the server is closed. -EADDRINUSE: somebody listens there; -EEXIST: path is there and is no socket;
 * -ENOENT, -EACCES, -ENAMETOOLONG (name in its directory over 90 bytes), -ENOMEM. */
int fp_fdlink_listen(uv_loop_t *loop, const char *path, const struct fp_fdlink_handler *h, void *arg,
                     struct fp_fdlink_server **out);

/* Removes the socket file, closes all peers (on_closed), frees; closed(arg), if given, when the loop has let
 * go. */
void fp_fdlink_server_close(struct fp_fdlink_server *s, void (*closed)(void *arg), void *arg);

/* Packs msg (NULL = empty) and sends it with nfds descriptors, which stay the caller's (the receiver gets
 * duplicates). status not 0: neither message nor descriptors are sent. -ENOTCONN: the peer is gone;
 * -EMSGSIZE: too long, an error reply was sent instead; -ENOBUFS: the peer does not read, it has been
 * dropped. */
int fp_fdlink_reply(struct fp_fdlink_peer *peer, const struct fp_fdlink_in *in, int32_t status,
                    const ProtobufCMessage *msg, const int *fds, size_t nfds);

/* The same when the request is not at hand any more. */
int fp_fdlink_reply_to(struct fp_fdlink_peer *peer, uint64_t id, uint16_t type, int32_t status,
                       const ProtobufCMessage *msg, const int *fds, size_t nfds);

struct fp_fdlink_peer *fp_fdlink_peer_get(struct fp_fdlink_peer *peer);
void fp_fdlink_peer_put(struct fp_fdlink_peer *peer);
void fp_fdlink_peer_set_data(struct fp_fdlink_peer *peer, void *data);
void *fp_fdlink_peer_data(const struct fp_fdlink_peer *peer);
pid_t fp_fdlink_peer_pid(const struct fp_fdlink_peer *peer);
void fp_fdlink_peer_close(struct fp_fdlink_peer *peer, int err); /* on_closed comes from the loop */

/* -------------------------------------------------------------- client (the mount): any thread, blocks */

struct fp_fdlink;

/* A reply, in memory of the caller's. fds: the caller's to close (close-on-exec is set). */
struct fp_fdlink_reply_buf {
    struct fp_fdlink_in in; /* msg points into buf */
    int fds[FP_FDLINK_FDS_MAX];
    size_t nfds;
    uint8_t *buf; /* of the caller: where the message goes */
    size_t buf_cap_bytes;
};

/* Connects: blocks for at most timeout_ms. One link is one connection (and so one session with the
 * benefactor), for any number of threads. -ENOENT, -ECONNREFUSED: no benefactor there; -EPERM: it belongs to
 * another user (logged); -ETIMEDOUT; -ENAMETOOLONG. */
int fp_fdlink_open(const char *path, uint32_t timeout_ms, struct fp_fdlink **out);

/* No thread may be in a call any more: see fp_fdlink_shutdown. */
void fp_fdlink_close(struct fp_fdlink *link);

/* Makes all calls, present and later, fail with -ENOTCONN. Any thread. */
void fp_fdlink_shutdown(struct fp_fdlink *link);

/* Sends a request and waits for its reply. Calls of several threads are in flight together; the reply of each
 * goes to its caller, in whatever order they come. Returns the status of the reply, with *r filled, or why
 * there is none (r->nfds is 0): FP_EDEADLINE (the link stays usable, a late reply is dropped and its
 * descriptors closed), FP_EPEER_GONE, -ENOTCONN, -EMSGSIZE (message over the limit, or the reply over
 * buf_cap_bytes), FP_EBADFRAME (the link is shut down). r may be NULL: only the status is wanted. timeout_ms
 * must not be 0. */
int fp_fdlink_call(struct fp_fdlink *link, uint16_t type, const ProtobufCMessage *msg, uint32_t timeout_ms,
                   struct fp_fdlink_reply_buf *r);

/* False once the link is broken; it never comes back: open another. Any thread. */
bool fp_fdlink_is_up(const struct fp_fdlink *link);

#endif
