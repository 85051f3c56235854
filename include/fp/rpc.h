/* Requests and replies between the programs: framed, multiplexed, authenticated connections on a libuv loop.
 *
 * Threads: a struct fp_rpc and everything that hangs on it belongs to the thread of its loop; nothing here
 * may be called from another (post to the loop instead). Nothing blocks, but fp_rpc_listen with a host name
 * (start-up).
 *
 * Either end of a connection may ask and answer. Every connection is TLS 1.3 with the store's key; a data
 * connection may go on in plain bytes after both ends have proved the key (`plain`). No callback is ever
 * called from inside the function that got it: always later, from the loop.
 *
 * Sending is corked: frames queued during one turn of the loop leave together at its end, in as few system
 * calls and TLS records as possible. fp_rpc_flush() sends at once.
 *
 * Dead peers: each end sends a ping when it has sent nothing for `ping_idle_ms`, and closes the connection
 * when it has heard nothing for `dead_ms`. A program must not keep its loop busy for longer.
 *
 * Back-pressure: a connection stops reading while (a) the program paused it, (b) its own unsent bytes exceed
 * `send_queue_max_bytes`, or (c) `requests_max` of the peer's requests are unanswered. New requests of ours
 * are refused with -ENOBUFS in state (b); replies are always accepted.
 *
 * Errors beside errno: FP_EAUTH (other end has another key), FP_EUUID (it belongs to another store),
 * FP_EPROTO_VERSION, FP_EBADFRAME (bytes that are no frame), FP_EPEER_GONE (closed by the other end),
 * FP_EDEADLINE (no answer in time). */
#ifndef FP_RPC_H
#define FP_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <uv.h>
#include <protobuf-c/protobuf-c.h>

#include "fp/frame.h"
#include "fp/key.h"

struct fp_rpc;          /* one per loop: key, limits, timers */
struct fp_rpc_listener; /* a listening socket */
struct fp_rpc_conn;     /* a connection, of either end; reference-counted */

#define FP_RPC_IOV_MAX 16u /* parts of one payload */

/* Zero in a number means the default named here. */
struct fp_rpc_opts {
    const struct fp_key *key;  /* borrowed until fp_rpc_close is through */
    const uint8_t *store_uuid; /* 16 bytes, copied; NULL: not known, any store that has the key will do */
    bool plain; /* data-encryption=off: connections that both ends want so go on in plain bytes */
    uint32_t handshake_timeout_ms; /* 800: from accept to an authenticated connection */
    uint32_t ping_idle_ms;         /* 2000 */
    uint32_t dead_ms;              /* 5000 */
    uint32_t preauth_max;          /* 64: accepted connections that have not proved the key */
    uint32_t conns_max;            /* 16384: connections of a listener */
    uint32_t requests_max;         /* 16384: unanswered requests of one peer */
    size_t send_queue_max_bytes;   /* 64 MiB, per connection */
};

/* A frame that came in. msg is valid until the callback returns. payload: see the callback. */
struct fp_rpc_in {
    uint16_t type;
    uint16_t flags; /* FP_FRAME_* */
    int32_t status; /* replies: of the header */
    uint64_t id;    /* requests: to be given to fp_rpc_reply */
    const uint8_t *msg;
    size_t msg_len_bytes;
    void *payload; /* NULL if there is none */
    size_t payload_len_bytes;
};

/* What a program wants to hear of a connection. Any may be NULL (on_request NULL: requests are answered with
 * FP_EBADMSG_TYPE). arg is what was given to fp_rpc_listen or fp_rpc_connect; see also fp_rpc_conn_set_data.
 */
struct fp_rpc_handler {
    /* Both ends have proved the key and agreed on the version: the connection may be used. */
    void (*on_up)(struct fp_rpc_conn *conn, void *arg);

    /* A request, or a one-way frame (in->flags & FP_FRAME_ONEWAY: no reply). The payload is the handler's
     * from here on: memory of on_payload, or else of fp_rpc_payload_free(), which the handler must call some
     * time, from any thread. */
    void (*on_request)(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg);

    /* A request with a payload begins: where shall it go? Returns a buffer of at least in->payload_len_bytes
     * (in->payload is NULL still), or NULL for memory aligned to 4096 bytes of our own. The message is there
     * and verified. */
    void *(*on_payload)(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg);

    /* The connection broke before the buffer of on_payload was full: on_request will not come. */
    void (*on_payload_lost)(struct fp_rpc_conn *conn, void *buf, void *arg);

    /* The send queue, after an -ENOBUFS, has fallen below half of its limit. */
    void (*on_writable)(struct fp_rpc_conn *conn, void *arg);

    /* The last callback of a connection, exactly once, also when it never came up (err says why: FP_EAUTH,
     * -ECONNREFUSED, -ETIMEDOUT, …; 0 after fp_rpc_conn_close(conn, 0)). All outstanding calls have been
     * completed before. why: words for a log line, valid during the call. Without a reference of the
     * program's the memory goes after it. Accepted connections that never came up are not reported here: they
     * are logged, one line each. */
    void (*on_closed)(struct fp_rpc_conn *conn, int err, const char *why, void *arg);
};

/* -------------------------------------------------------------- the context */

/* -ENOMEM, -EINVAL (no key, no loop), -EIO (TLS not available; logged). */
int fp_rpc_new(uv_loop_t *loop, const struct fp_rpc_opts *opts, struct fp_rpc **out);

/* Closes all listeners and connections (outstanding calls: FP_ECANCELLED) and frees rpc; closed(arg), if
 * given, is called when the loop has let go of everything. The caller keeps running the loop until then. */
void fp_rpc_close(struct fp_rpc *rpc, void (*closed)(void *arg), void *arg);

/* The store's UUID, learnt after fp_rpc_new (copied). */
void fp_rpc_set_uuid(struct fp_rpc *rpc, const uint8_t uuid[16]);

/* Sends now what is queued on all connections, instead of at the end of this turn. */
void fp_rpc_flush(struct fp_rpc *rpc);

/* -------------------------------------------------------------- listening and connecting */

/* addr: "ADDR:PORT", "[V6]:PORT", "HOST:PORT", ":PORT" (all addresses); port 0: any free one. h is borrowed
 * until the listener's last connection is closed. -EINVAL (address), -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, …;
 * -ENOENT: no such host. */
int fp_rpc_listen(struct fp_rpc *rpc, const char *addr, const struct fp_rpc_handler *h, void *arg,
                  struct fp_rpc_listener **out);

/* Stops accepting; connections stay. The listener is freed. */
void fp_rpc_listener_close(struct fp_rpc_listener *l);

/* The bound address, with the real port, as "ADDR:PORT"; valid as long as the listener. */
const char *fp_rpc_listener_addr(const struct fp_rpc_listener *l);
uint16_t fp_rpc_listener_port(const struct fp_rpc_listener *l);

struct fp_rpc_connect_opts {
    uint32_t timeout_ms; /* 3000: name look-up, TCP and handshake together */
    bool plain; /* ask for plain bytes after the handshake; used if the context's and the server's opts.plain
                   allow it */
    bool fresh_uuid; /* do not send the UUID: take any store that has the key */
};

/* addr as in fp_rpc_listen (host names are looked up off the loop). h and its arg are borrowed until
 * on_closed. opts may be NULL. The caller gets no reference: *out is valid until on_closed returns, unless it
 * calls fp_rpc_conn_get. -EINVAL (address), -ENOMEM; every other failure comes by on_closed. No retries: the
 * program's matter. */
int fp_rpc_connect(struct fp_rpc *rpc, const char *addr, const struct fp_rpc_connect_opts *opts,
                   const struct fp_rpc_handler *h, void *arg, struct fp_rpc_conn **out);

/* -------------------------------------------------------------- asking */

/* Completion of a call, exactly once for each fp_rpc_call that returned 0. status: 0 or the status of the
 * reply, or why there is none: FP_EDEADLINE, FP_EPEER_GONE, -ECONNRESET, FP_ECANCELLED, -EMSGSIZE (payload
 * did not fit into rx), … `in` is the reply, NULL if there is none. in->payload is rx, or else memory which
 * the callee frees with fp_rpc_payload_free(). */
typedef void (*fp_rpc_reply_cb)(void *arg, int status, const struct fp_rpc_in *in);

struct fp_rpc_req {
    uint16_t type;
    const ProtobufCMessage *msg; /* packed inside fp_rpc_call; NULL = empty */
    const struct iovec
        *payload; /* at most FP_RPC_IOV_MAX; the array is copied, the bytes are borrowed until cb */
    int payload_iovcnt;
    void *rx; /* where the payload of the reply goes, borrowed until cb; NULL: allocated */
    size_t rx_cap_bytes;
    uint32_t timeout_ms; /* must not be 0: every call has a deadline (granularity 32 ms) */
    fp_rpc_reply_cb cb;
    void *arg;
};

/* Queues a request. On failure cb is not called: -ENOTCONN (not up, or closed), -ENOBUFS (queue full:
 * on_writable), -EMSGSIZE, -ENOMEM, -EINVAL. *id, if not NULL, is the request id. */
int fp_rpc_call(struct fp_rpc_conn *conn, const struct fp_rpc_req *req, uint64_t *id);

/* Completes the call with FP_ECANCELLED, soon; a reply that still comes is dropped. -ENOENT: it is complete
 * already. */
int fp_rpc_cancel(struct fp_rpc_conn *conn, uint64_t id);

/* A frame that wants no reply, without payload. Errors as fp_rpc_call. */
int fp_rpc_send(struct fp_rpc_conn *conn, uint16_t type, const ProtobufCMessage *msg);

/* -------------------------------------------------------------- answering */

struct fp_rpc_reply {
    uint64_t id; /* in->id of the request */
    uint16_t type;
    int32_t status;              /* 0 or negative; not 0: message and payload are not sent */
    const ProtobufCMessage *msg; /* packed inside; NULL = empty */
    const struct iovec *payload; /* the array is copied; the bytes are borrowed until done */
    int payload_iovcnt;
    /* The payload is not needed any more (sent, or never will be). Exactly once for each fp_rpc_reply,
     * whatever that returned; may be called before it returns. NULL: the payload must stay until on_closed.
     */
    void (*done)(void *arg);
    void *arg;
};

/* Once for each request. 0; -ENOTCONN: the connection is gone, which the program may ignore; -EMSGSIZE,
 * -ENOMEM: an error reply was sent instead. */
int fp_rpc_reply(struct fp_rpc_conn *conn, const struct fp_rpc_reply *reply);

/* The short form: a status and a message (NULL = empty). */
int fp_rpc_reply_msg(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, int32_t status,
                     const ProtobufCMessage *msg);

/* Frees a payload that rpc allocated (4096-aligned). NULL is fine. Any thread. */
void fp_rpc_payload_free(void *payload);

/* -------------------------------------------------------------- connections */

/* References keep the memory, not the connection: after on_closed all sending functions return -ENOTCONN. */
struct fp_rpc_conn *fp_rpc_conn_get(struct fp_rpc_conn *conn);
void fp_rpc_conn_put(struct fp_rpc_conn *conn);

void fp_rpc_conn_set_data(struct fp_rpc_conn *conn, void *data);
void *fp_rpc_conn_data(const struct fp_rpc_conn *conn);

/* Stop and go on reading; calls nest. A paused connection still notices when the peer dies, but later. */
void fp_rpc_conn_pause(struct fp_rpc_conn *conn);
void fp_rpc_conn_resume(struct fp_rpc_conn *conn);

/* Closes now; queued frames are lost, outstanding calls complete with err (0: FP_ECANCELLED), on_closed
 * comes, all from the loop. */
void fp_rpc_conn_close(struct fp_rpc_conn *conn, int err);

/* Closes when everything queued has been sent, after 1 s at the latest. No more calls. */
void fp_rpc_conn_finish(struct fp_rpc_conn *conn);

bool fp_rpc_conn_is_plain(const struct fp_rpc_conn *conn);       /* bytes are not encrypted */
const char *fp_rpc_conn_peer(const struct fp_rpc_conn *conn);    /* "ADDR:PORT" of the other end */
const char *fp_rpc_conn_local(const struct fp_rpc_conn *conn);   /* of our end; "" before it is connected */
size_t fp_rpc_conn_queued_bytes(const struct fp_rpc_conn *conn); /* not yet given to the socket */
size_t fp_rpc_conn_calls(const struct fp_rpc_conn *conn);        /* outstanding calls of ours */

#endif
