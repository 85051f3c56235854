/* Bytes that come in: to frames, to whom they are for.
 *
 * Called by rpc_conn.c when poll says readable, and by rpc.c for bytes that are buffered already, on the
 * loop's thread.
 *
 * Small frames are parsed where they lie in the buffer of the connection. A message too long for it is
 * received into memory of its own, a payload straight into its destination: the receive buffer of the call,
 * the buffer on_payload named, or aligned memory of ours; the next frame is received behind it in the same
 * system call.
 *
 * Every callback may close or pause the connection, so the state is looked at again after each. Nothing is
 * allocated before the header's lengths have been checked, and before SETUP is through nothing but SETUP (48
 * bytes) is accepted and not a byte more is read: what follows may have to be read as plain. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fp/clock.h"
#include "fp/err.h"
#include "rpc_int.h"

#define PAYLOAD_ALIGN_BYTES 4096u

void fp_rpc_payload_free(void *payload)
{
    free(payload);
}

/* The destination goes back to whom it belongs; `lost` when it was not filled. */
static void dest_release(struct fp_rpc_conn *c)
{
    struct in_state *in = &c->in;
    uint8_t *dest = in->dest;
    enum dest_owner owner = in->owner;
    in->dest = NULL;
    in->owner = DEST_NONE;
    in->call = NULL;
    if (owner == DEST_OURS)
        fp_rpc_payload_free(dest);
    else if (owner == DEST_HANDLER && c->h->on_payload_lost)
        c->h->on_payload_lost(c, dest, c->arg);
}

void fp_in_reset(struct fp_rpc_conn *c)
{
    dest_release(c);
    free(c->in.hold);
    free(c->in.buf);
    c->in = (struct in_state){0};
}

void fp_in_forget_call(struct fp_rpc_conn *c, struct call *call)
{
    if (c->in.call == call)
        dest_release(c); /* the rest of it is dropped as it comes */
}

static int in_grow(struct in_state *in, size_t cap_bytes)
{
    uint8_t *buf = malloc(cap_bytes);
    if (!buf)
        return -ENOMEM;
    if (in->len > 0)
        memcpy(buf, in->buf + in->off, in->len);
    free(in->buf);
    in->buf = buf;
    in->cap_bytes = cap_bytes;
    in->off = 0;
    return 0;
}

static size_t in_take(struct in_state *in, uint8_t *to, size_t max)
{
    size_t n = in->len < max ? in->len : max;
    if (n > 0 && to)
        memcpy(to, in->buf + in->off, n);
    in->off += n;
    in->len -= n;
    return n;
}

/* -------------------------------------------------------------- whole frames */

static void deliver_reply(struct fp_rpc_conn *c, struct fp_rpc_in *in)
{
    struct call *call = fp_call_find(c, in->id);
    if (!call) {
        if (c->in.owner != DEST_NONE)
            dest_release(c);
        return; /* its caller has gone: deadline, cancelled */
    }
    if (call->type != in->type) {
        fp_conn_fail(c, FP_EBADFRAME, "reply of type %u to a request of type %u", in->type, call->type);
        return;
    }
    int status = in->status;
    if (status == 0 && c->in.too_big)
        status = -EMSGSIZE;
    c->in.owner = DEST_NONE; /* the callee has the payload now */
    c->in.dest = NULL;
    c->in.call = NULL;
    fp_call_complete(call, status, in);
}

static void deliver_request(struct fp_rpc_conn *c, struct fp_rpc_in *in)
{
    bool oneway = in->flags & FP_FRAME_ONEWAY;
    if (in->type >= TYPE_WIRE && oneway) { /* a ping, or news of a later version */
        dest_release(c);
        return;
    }
    if (!oneway)
        c->unanswered++;
    if (in->type >= TYPE_WIRE || !c->h->on_request) {
        dest_release(c);
        if (!oneway)
            fp_rpc_reply_msg(c, in, FP_EBADMSG_TYPE, NULL);
        return;
    }
    c->in.owner = DEST_NONE;
    c->in.dest = NULL;
    c->h->on_request(c, in, c->arg);
}

static void deliver(struct fp_rpc_conn *c, const uint8_t *msg, void *payload)
{
    const struct fp_frame *f = &c->in.f;
    struct fp_rpc_in in = {
        .type = f->type,
        .flags = f->flags,
        .status = f->status,
        .id = f->id,
        .msg = msg,
        .msg_len_bytes = f->msg_len_bytes,
        .payload = payload,
        .payload_len_bytes = payload ? f->payload_len_bytes : 0,
    };
    if (c->state == CONN_SETUP)
        fp_conn_setup_in(c, f, msg);
    else if (!fp_conn_live(c))
        dest_release(c); /* draining: nobody listens any more */
    else if (f->flags & FP_FRAME_REPLY)
        deliver_reply(c, &in);
    else
        deliver_request(c, &in);
}

/* -------------------------------------------------------------- payloads */

static void choose_for_reply(struct fp_rpc_conn *c)
{
    struct in_state *in = &c->in;
    struct call *call = fp_call_find(c, in->f.id);
    in->too_big = false;
    if (!call)
        return;
    in->call = call;
    if (call->rx) {
        in->too_big = in->f.payload_len_bytes > call->rx_cap_bytes;
        in->dest = in->too_big ? NULL : call->rx;
        in->owner = in->too_big ? DEST_NONE : DEST_CALL;
    } else {
        in->dest = aligned_alloc(PAYLOAD_ALIGN_BYTES, (in->f.payload_len_bytes + PAYLOAD_ALIGN_BYTES - 1) &
                                                          ~(size_t)(PAYLOAD_ALIGN_BYTES - 1));
        in->owner = in->dest ? DEST_OURS : DEST_NONE;
        in->too_big = !in->dest;
    }
}

/* 0, or -ENOMEM: the request has been answered and its payload will be dropped. */
static void choose_for_request(struct fp_rpc_conn *c, const uint8_t *msg)
{
    struct in_state *in = &c->in;
    struct fp_rpc_in head = {
        .type = in->f.type,
        .flags = in->f.flags,
        .id = in->f.id,
        .msg = msg,
        .msg_len_bytes = in->f.msg_len_bytes,
        .payload_len_bytes = in->f.payload_len_bytes,
    };
    if (c->h->on_payload)
        in->dest = c->h->on_payload(c, &head, c->arg);
    in->owner = in->dest ? DEST_HANDLER : DEST_OURS;
    if (!in->dest)
        in->dest = aligned_alloc(PAYLOAD_ALIGN_BYTES, (in->f.payload_len_bytes + PAYLOAD_ALIGN_BYTES - 1) &
                                                          ~(size_t)(PAYLOAD_ALIGN_BYTES - 1));
    if (!in->dest)
        in->owner = DEST_NONE;
}

/* The message is there, a payload follows: where to? */
static int payload_begin(struct fp_rpc_conn *c, const uint8_t *header)
{
    struct in_state *in = &c->in;
    const uint8_t *msg = header + FP_FRAME_HEADER_BYTES;
    in->dest = NULL;
    in->dest_got = 0;
    in->owner = DEST_NONE;
    in->call = NULL;
    if (header != in->hold) { /* the buffer is going to be used again */
        size_t n = FP_FRAME_HEADER_BYTES + in->f.msg_len_bytes;
        in->hold = malloc(n);
        if (!in->hold)
            return -ENOMEM;
        memcpy(in->hold, header, n);
        msg = in->hold + FP_FRAME_HEADER_BYTES;
    }
    in->stage = IN_PAYLOAD;
    if (in->f.flags & FP_FRAME_REPLY)
        choose_for_reply(c);
    else if (fp_conn_live(c))
        choose_for_request(c, msg);
    return 0;
}

/* All of the payload is there. */
static void payload_end(struct fp_rpc_conn *c)
{
    struct in_state *in = &c->in;
    uint8_t *hold = in->hold;
    in->hold = NULL;
    in->stage = IN_FRAME;
    if (!in->dest && !(in->f.flags & (FP_FRAME_REPLY | FP_FRAME_ONEWAY)) && fp_conn_live(c)) {
        struct fp_rpc_in head = {.type = in->f.type, .id = in->f.id};
        c->unanswered++;
        fp_rpc_reply_msg(c, &head, -ENOMEM, NULL);
    } else if (in->dest || (in->f.flags & FP_FRAME_REPLY)) {
        deliver(c, hold + FP_FRAME_HEADER_BYTES, in->dest);
    }
    free(hold);
}

/* -------------------------------------------------------------- parsing */

static void bad_frame(struct fp_rpc_conn *c, int rc, const uint8_t *header)
{
    if (rc == FP_EPROTO_VERSION) {
        unsigned version = fp_frame_version(header);
        if (c->server && c->state == CONN_SETUP)
            fp_out_wire(c, TYPE_SETUP, FP_FRAME_REPLY, FP_EPROTO_VERSION, 0, NULL, 0);
        fp_conn_send(c);
        fp_conn_fail(c, rc, "it speaks protocol version %u, this program version %u", version,
                     FP_FRAME_VERSION);
        return;
    }
    fp_conn_fail(c, FP_EBADFRAME, "%s",
                 rc == -EBADMSG    ? "bytes that are no frame"
                 : rc == -EMSGSIZE ? "frame longer than allowed"
                 : rc == -EILSEQ   ? "frame with a wrong checksum"
                                   : "frame with contradictory header");
}

/* Header and message stand at p. */
static void frame_whole(struct fp_rpc_conn *c, const uint8_t *p)
{
    struct in_state *in = &c->in;
    int rc = fp_frame_verify(p, p + FP_FRAME_HEADER_BYTES, in->f.msg_len_bytes);
    if (rc < 0) {
        bad_frame(c, rc, p);
        return;
    }
    if (in->f.payload_len_bytes > 0) {
        if (payload_begin(c, p) < 0)
            fp_conn_fail(c, -ENOMEM, "out of memory");
        return;
    }
    in->too_big = false;
    uint8_t *hold = p == in->hold ? in->hold : NULL;
    if (hold)
        in->hold = NULL;
    in->stage = IN_FRAME;
    deliver(c, p + FP_FRAME_HEADER_BYTES, NULL);
    free(hold);
}

/* True: a step was made. False: more bytes are needed (or the connection failed). */
static bool parse_frame(struct fp_rpc_conn *c)
{
    struct in_state *in = &c->in;
    const uint8_t *p = in->buf + in->off;
    if (in->len < FP_FRAME_HEADER_BYTES)
        return false;
    int rc = fp_frame_decode(p, &in->f);
    bool early = c->state == CONN_SETUP;
    if (rc == 0 && early &&
        (in->f.type != TYPE_SETUP || in->f.msg_len_bytes > SETUP_MSG_BYTES || in->f.payload_len_bytes))
        rc = -EPROTO;
    if (rc < 0) {
        bad_frame(c, rc, p);
        return false;
    }
    size_t whole = FP_FRAME_HEADER_BYTES + in->f.msg_len_bytes;
    if (whole <= in->len) {
        in->off += whole;
        in->len -= whole;
        frame_whole(c, p);
        return true;
    }
    if (whole <= in->cap_bytes)
        return false;
    in->hold = malloc(whole);
    if (!in->hold) {
        fp_conn_fail(c, -ENOMEM, "out of memory");
        return false;
    }
    in->hold_got = in_take(in, in->hold, in->len);
    in->stage = IN_HOLD;
    return true;
}

static bool parse_step(struct fp_rpc_conn *c)
{
    struct in_state *in = &c->in;
    if (in->stage == IN_FRAME)
        return parse_frame(c);
    if (in->stage == IN_HOLD) {
        size_t whole = FP_FRAME_HEADER_BYTES + in->f.msg_len_bytes;
        in->hold_got += in_take(in, in->hold + in->hold_got, whole - in->hold_got);
        if (in->hold_got < whole)
            return false;
        frame_whole(c, in->hold);
        return true;
    }
    in->dest_got +=
        in_take(in, in->dest ? in->dest + in->dest_got : NULL, in->f.payload_len_bytes - in->dest_got);
    if (in->dest_got < in->f.payload_len_bytes)
        return false;
    payload_end(c);
    return true;
}

/* -------------------------------------------------------------- reading */

/* Where the next bytes go: [0] what is awaited, [1] what may stand behind it. */
static int read_where(struct fp_rpc_conn *c, struct iovec iov[2])
{
    struct in_state *in = &c->in;
    if (in->off > 0) {
        if (in->len > 0)
            memmove(in->buf, in->buf + in->off, in->len);
        in->off = 0;
    }
    struct iovec buf = {in->buf + in->len, in->cap_bytes - in->len};
    if (c->state == CONN_SETUP) { /* exactly the frame */
        size_t whole = FP_FRAME_HEADER_BYTES;
        if (in->len >= FP_FRAME_HEADER_BYTES)
            whole += in->f.msg_len_bytes;
        iov[0] = (struct iovec){in->buf + in->len, whole - in->len};
        return 1;
    }
    if (in->stage == IN_FRAME) {
        iov[0] = buf;
        return 1;
    }
    if (in->stage == IN_HOLD) {
        iov[0] = (struct iovec){in->hold + in->hold_got,
                                FP_FRAME_HEADER_BYTES + in->f.msg_len_bytes - in->hold_got};
    } else if (in->dest) {
        iov[0] = (struct iovec){in->dest + in->dest_got, in->f.payload_len_bytes - in->dest_got};
    } else {
        size_t left = in->f.payload_len_bytes - in->dest_got;
        bool more = left > sizeof c->rpc->scratch;
        iov[0] = (struct iovec){c->rpc->scratch, more ? sizeof c->rpc->scratch : left};
        if (more)
            return 1;
    }
    iov[1] = buf;
    return 2;
}

static void read_account(struct fp_rpc_conn *c, size_t n, size_t first_bytes)
{
    struct in_state *in = &c->in;
    size_t first = n < first_bytes ? n : first_bytes;
    if (in->stage == IN_FRAME) {
        in->len += n;
        return;
    }
    if (in->stage == IN_HOLD)
        in->hold_got += first;
    else
        in->dest_got += first;
    in->len += n - first;
}

static bool readable_state(const struct fp_rpc_conn *c)
{
    return c->state == CONN_SETUP || c->state == CONN_UP || c->state == CONN_DRAIN;
}

void fp_conn_read(struct fp_rpc_conn *c)
{
    size_t turn = 0;
    while (readable_state(c) && fp_conn_may_read(c)) {
        if (parse_step(c))
            continue;
        if (!readable_state(c))
            break;
        if (turn >= TURN_BYTES) {
            fp_conn_again(c);
            break;
        }
        if (c->state != CONN_SETUP && c->in.cap_bytes < RX_BYTES && in_grow(&c->in, RX_BYTES) < 0) {
            fp_conn_fail(c, -ENOMEM, "out of memory");
            break;
        }
        struct iovec iov[2];
        int iovcnt = read_where(c, iov);
        ssize_t n = c->tr->ops->readv(c->tr, iov, iovcnt);
        if (n == -EAGAIN)
            break;
        if (n <= 0) {
            const char *why = c->tr->ops->why(c->tr);
            fp_conn_fail(c, n == 0 ? FP_EPEER_GONE : (int)n, "%s",
                         n == 0 ? "closed by the other end"
                         : *why ? why
                                : fp_strerror((int)n));
            break;
        }
        turn += (size_t)n;
        c->last_rx_ms = fp_now_ms();
        read_account(c, (size_t)n, iov[0].iov_len);
    }
    fp_conn_watch(c);
}
