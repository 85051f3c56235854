/* Inside of the rpc module: rpc.c, rpc_conn.c, rpc_in.c, rpc_out.c, rpc_call.c, rpc_listen.c. Nobody else
 * includes this.
 *
 * Thread of the loop. How a connection goes: RESOLVE -> CONNECT (clients) or accept -> HANDSHAKE -> SETUP [->
 * SWITCH] -> UP
 * [-> DRAIN] -> CLOSING -> CLOSED. CLOSING means: somebody asked for it, nothing is read or sent any more,
 * and rpc.c will do the rest (fp_conn_finalize) from the loop, where callbacks are allowed.
 *
 * Everything that must not happen inside a caller's stack goes through lists of struct fp_rpc, which the
 * idle, check and prepare handles work off: closing, dirty (frames to send), again (bytes to parse that poll
 * does not know of), expired calls. */
#ifndef FP_COMMON_RPC_INT_H
#define FP_COMMON_RPC_INT_H

#include <sys/queue.h>

#include "fp/addr.h"
#include "fp/rpc.h"
#include "fp/transport.h"

#define TYPE_WIRE       0xFF00u /* and above: of this layer */
#define TYPE_SETUP      0xFF00u /* first frame of each end; message: u32 flags, u32 zero */
#define TYPE_PING       0xFF01u /* one-way, empty */

#define SETUP_MSG_BYTES 8u
#define SETUP_PLAIN     1u

#define CONN_ADDRS      8u /* of a host name, tried one after the other */

#define WHEEL_SLOTS     512u
#define TICK_MS         32u
#define TICK_SLOW_MS    250u
#define LATE_MS         1000u /* a tick later than this: the loop was busy, what peers sent waits in the sockets */
#define RX_SMALL_BYTES  512u
#define RX_BYTES        (64u << 10)
#define TURN_BYTES      (4u << 20) /* read or sent per connection in one turn of the loop */

enum conn_state {
    CONN_RESOLVE,
    CONN_CONNECT,
    CONN_HANDSHAKE,
    CONN_SETUP,
    CONN_SWITCH, /* to plain, as soon as the last TLS record is out */
    CONN_UP,
    CONN_DRAIN,
    CONN_CLOSING,
    CONN_CLOSED,
};

/* A request of ours that waits for its reply. In the hash of its connection and in one list of deadlines. */
TAILQ_HEAD(call_list, call);
struct call {
    struct call *hash_next;
    TAILQ_ENTRY(call) deadline_link;
    struct call_list *list; /* a slot of the wheel, or rpc->expired */
    struct fp_rpc_conn *conn;
    struct out *out; /* its frame while that is queued */
    uint64_t id;
    uint64_t deadline_ms;
    int status; /* of a call in rpc->expired */
    uint16_t type;
    void *rx;
    size_t rx_cap_bytes;
    fp_rpc_reply_cb cb;
    void *arg;
};

/* A frame to be sent: head (header and message) in this block, payload elsewhere. */
TAILQ_HEAD(out_list, out);
struct out {
    TAILQ_ENTRY(out) link;
    struct call *call; /* requests */
    void (*done)(void *arg);
    void *arg;
    size_t len_bytes;  /* all in all */
    size_t sent_bytes; /* taken by the transport */
    size_t head_bytes;
    int iovcnt;
    struct iovec iov[]; /* the payload's; the head stands behind it */
};

enum in_stage {
    IN_FRAME,   /* header and message, in the buffer */
    IN_HOLD,    /* a message too long for the buffer goes to hold */
    IN_PAYLOAD, /* message in hold, payload goes to dest */
};

enum dest_owner { DEST_NONE, DEST_OURS, DEST_HANDLER, DEST_CALL };

/* The frame that is coming in. */
struct in_state {
    uint8_t *buf; /* [off, off + len) is not parsed yet */
    size_t cap_bytes, off, len;
    enum in_stage stage;
    struct fp_frame f;
    uint8_t *hold; /* header and message of a frame that is not whole yet */
    size_t hold_got;
    uint8_t *dest; /* NULL: the payload is dropped */
    size_t dest_got;
    enum dest_owner owner;
    struct call *call; /* whose reply it is */
    bool too_big;      /* for the buffer of the call */
};

struct fp_rpc_conn {
    struct fp_rpc *rpc;
    TAILQ_ENTRY(fp_rpc_conn) all_link, dirty_link, again_link, closing_link;
    unsigned refs;
    enum conn_state state;
    bool server, plain_wanted, plain, dirty, again, poll_open, listed, was_up, shut, any_uuid, heard;
    bool enobufs; /* on_writable is due */
    int events;   /* what poll watches for */
    int fd;
    int err; /* why it closes */
    uv_poll_t poll;
    uv_getaddrinfo_t lookup;
    struct fp_transport *tr;
    const struct fp_rpc_handler *h;
    void *arg;
    void *data;
    uint64_t deadline_ms; /* of handshake or drain, 0 = none */
    uint64_t opened_ms, last_rx_ms, last_tx_ms;
    unsigned paused;
    unsigned unanswered; /* requests of the peer */
    struct in_state in;
    struct out_list outq;
    size_t queued_bytes;
    uint64_t next_id;
    struct call **calls; /* hash by id */
    size_t calls_cap, calls_n;
    uint16_t port; /* to connect to */
    union fp_sockaddr addrs[CONN_ADDRS];
    unsigned addrs_n, addrs_at;
    char peer[FP_ADDR_BUF];
    char local[FP_ADDR_BUF];
    char why[200];
};
TAILQ_HEAD(conn_list, fp_rpc_conn);

struct fp_rpc_listener {
    LIST_ENTRY(fp_rpc_listener) link;
    struct fp_rpc *rpc;
    uv_poll_t poll;
    int fd;
    bool accepting;
    const struct fp_rpc_handler *h;
    void *arg;
    uint16_t port;
    char addr[FP_ADDR_BUF];
};

struct fp_rpc {
    uv_loop_t *loop;
    struct fp_rpc_opts o;
    struct fp_tls_ctx *tls;
    uv_timer_t tick;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle; /* active while a list below wants another turn without waiting in poll */
    struct conn_list all, dirty, again, closing;
    LIST_HEAD(, fp_rpc_listener) listeners;
    struct call_list wheel[WHEEL_SLOTS];
    struct call_list expired;
    uint64_t wheel_at_ms; /* slots before this time have been looked at */
    uint64_t last_tick_ms, last_scan_ms;
    unsigned preauth_n;
    unsigned conns_n; /* accepted ones */
    unsigned refs;    /* itself, open handles, connections */
    bool ending;
    bool fast; /* the tick runs every TICK_MS; else slower, because nobody waits for anything */
    size_t calls_n;
    uint64_t refused_second; /* rate limit of the lines about strangers */
    unsigned refused_n;
    void (*closed)(void *arg);
    void *closed_arg;
    uint8_t scratch[RX_BYTES]; /* payloads that nobody wants */
};

/* rpc.c */
void fp_rpc_kick(struct fp_rpc *rpc); /* the lists get worked off soon, without waiting */
void fp_rpc_put(struct fp_rpc *rpc);
void fp_rpc_fast(struct fp_rpc *rpc); /* there is something with a deadline */
void fp_rpc_refused(struct fp_rpc *rpc, const char *peer, const char *why); /* a line in the log */

/* rpc_conn.c */
int fp_conn_new(struct fp_rpc *rpc, const struct fp_rpc_handler *h, void *arg, struct fp_rpc_conn **out);
int fp_conn_start(struct fp_rpc_conn *c, int fd); /* takes fd, also on failure */
void fp_conn_fail(struct fp_rpc_conn *c, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void fp_conn_finalize(struct fp_rpc_conn *c);
void fp_conn_watch(struct fp_rpc_conn *c); /* after anything that changes what poll should watch for */
void fp_conn_again(struct fp_rpc_conn *c);
void fp_conn_tick(struct fp_rpc_conn *c, uint64_t now_ms);
void fp_conn_setup_in(struct fp_rpc_conn *c, const struct fp_frame *f, const uint8_t *msg);
void fp_conn_switch(struct fp_rpc_conn *c);
bool fp_conn_may_read(const struct fp_rpc_conn *c);
bool fp_conn_live(const struct fp_rpc_conn *c); /* may exchange frames of programs */

/* rpc_listen.c */
void fp_listen_resume(struct fp_rpc *rpc); /* accept again if there is room */

/* rpc_in.c */
void fp_conn_read(struct fp_rpc_conn *c);
void fp_in_reset(struct fp_rpc_conn *c); /* drops what has come in so far */
void fp_in_forget_call(struct fp_rpc_conn *c, struct call *call);

/* rpc_out.c */
void fp_conn_send(struct fp_rpc_conn *c);
void fp_out_drop(struct fp_rpc_conn *c, struct out *o);
int fp_out_wire(struct fp_rpc_conn *c, uint16_t type, uint16_t flags, int status, uint64_t id,
                const uint8_t *msg, size_t msg_len_bytes);

/* rpc_call.c */
struct call *fp_call_find(struct fp_rpc_conn *c, uint64_t id);
struct call *fp_call_new(struct fp_rpc_conn *c, const struct fp_rpc_req *req);
void fp_call_complete(struct call *call, int status, const struct fp_rpc_in *in);
void fp_calls_fail(struct fp_rpc_conn *c, int err);
void fp_calls_tick(struct fp_rpc *rpc, uint64_t now_ms);
void fp_calls_run_expired(struct fp_rpc *rpc);

#endif
