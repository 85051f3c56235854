/*
 * What comes in over a connection: frame headers, messages and payloads, in pieces of any size (common/rpc_in.c, frame.c).
 *
 * A real connection of a real fp_rpc over a transport that gives the bytes of the input instead of a socket's. The input says which end
 * it is, in which state, which requests of ours are under way, and then which frames come: whole ones with a right sum, ones with a wrong
 * field, and mere bytes. Payloads go to buffers of exactly their size, so that AddressSanitizer sees one byte too much. At the end every call
 * has been answered exactly once, and every payload was given to somebody exactly once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/rpc_int.h"
#include "fp/err.h"
#include "tests/fuzz/fuzz.h"

#define STREAM_MAX (256u << 10)
#define CALLS      4

struct wire {
    struct fp_transport base;
    struct fuzz_in *in; /* how long the pieces are */
    uint8_t *bytes;
    size_t len, at;
    unsigned waits;
    bool over;
};

static struct {
    uv_loop_t loop;
    struct fp_rpc *rpc;
    struct fp_key *key;
    unsigned calls_open, payloads_open, closed, requests;
    uint8_t how;
    uint8_t *rx[CALLS];
} x;

/* -------------------------------------------------------------- the transport */

static ssize_t wire_readv(struct fp_transport *t, const struct iovec *iov, int n)
{
    struct wire *w = (struct wire *)t;
    size_t max = 1 + fuzz_u8(w->in) * (size_t)17, got = 0;

    if (x.how & 8 || fuzz_left(w->in) == 0) /* and not byte by byte when nothing more is said */
        max = STREAM_MAX;
    if (w->at == w->len)
        return w->over ? 0 : -EAGAIN;
    if (max % 5 == 0 && w->waits++ < 64)
        return -EAGAIN;
    for (int i = 0; i < n && got < max && w->at < w->len; i++) {
        size_t k = iov[i].iov_len;

        k = k < max - got ? k : max - got;
        k = k < w->len - w->at ? k : w->len - w->at;
        if (k > 0)
            memcpy(iov[i].iov_base, w->bytes + w->at, k);
        w->at += k;
        got += k;
    }
    return (ssize_t)got;
}

static ssize_t wire_writev(struct fp_transport *t, const struct iovec *iov, int n)
{
    size_t sum = 0;

    (void)t;
    for (int i = 0; i < n; i++)
        sum += iov[i].iov_len;
    return (ssize_t)sum;
}

static int wire_none(struct fp_transport *t)
{
    (void)t;
    return 0;
}

static bool wire_wants_write(const struct fp_transport *t)
{
    (void)t;
    return false;
}

static const char *wire_why(const struct fp_transport *t)
{
    (void)t;
    return "";
}

static void wire_free(struct fp_transport *t)
{
    free(t);
}

static const struct fp_transport_ops wire_ops = {"fuzz", wire_none, wire_readv, wire_writev, wire_none, wire_wants_write, wire_why, wire_free};

/* -------------------------------------------------------------- the program above */

static void on_request(struct fp_rpc_conn *c, const struct fp_rpc_in *in, void *arg)
{
    volatile uint8_t sink = 0;

    (void)arg;
    x.requests++;
    if (in->msg_len_bytes > 0) /* both ends: each byte in between would take most of the time */
        sink = (uint8_t)(sink ^ in->msg[0] ^ in->msg[in->msg_len_bytes - 1]);
    if (in->payload) {
        sink = (uint8_t)(sink ^ ((uint8_t *)in->payload)[in->payload_len_bytes - 1]);
        if (in->type % 2 == 1)
            x.payloads_open--;
        fp_rpc_payload_free(in->payload);
    }
    if (in->type == 7)
        fp_rpc_conn_close(c, FP_EAUTH);
    else if (in->type == 9)
        fp_rpc_conn_finish(c);
    else if (!(in->flags & FP_FRAME_ONEWAY))
        fp_rpc_reply_msg(c, in, in->type % 3 ? 0 : -EIO, NULL);
}

/* Odd types have a place of their own for payloads. */
static void *on_payload(struct fp_rpc_conn *c, const struct fp_rpc_in *in, void *arg)
{
    (void)c, (void)arg;
    if (in->type % 2 == 0)
        return NULL;
    x.payloads_open++;
    return malloc(in->payload_len_bytes);
}

static void on_payload_lost(struct fp_rpc_conn *c, void *buf, void *arg)
{
    (void)c, (void)arg;
    x.payloads_open--;
    free(buf);
}

static void on_closed(struct fp_rpc_conn *c, int err, const char *why, void *arg)
{
    (void)c, (void)err, (void)arg;
    FUZZ_CHECK(why);
    x.closed++;
}

static const struct fp_rpc_handler handler = {
    .on_request = on_request, .on_payload = on_payload, .on_payload_lost = on_payload_lost, .on_closed = on_closed};

static void on_reply(void *arg, int status, const struct fp_rpc_in *in)
{
    size_t i = (size_t)arg;

    FUZZ_CHECK(i < CALLS && x.calls_open & 1u << i);
    x.calls_open &= ~(1u << i);
    FUZZ_CHECK(status <= 0);
    if (in && in->payload && in->payload != x.rx[i])
        fp_rpc_payload_free(in->payload);
    free(x.rx[i]);
    x.rx[i] = NULL;
}

/* -------------------------------------------------------------- the bytes */

static void put(struct wire *w, const void *p, size_t n)
{
    if (n > STREAM_MAX - w->len)
        n = STREAM_MAX - w->len;
    if (n > 0)
        memcpy(w->bytes + w->len, p, n);
    w->len += n;
}

static void put_frame(struct wire *w, struct fuzz_in *in)
{
    static const uint16_t types[] = {1, 2, 3, 7, 8, 9, TYPE_SETUP, TYPE_PING, 0xffff, 4};
    static const uint32_t lens[] = {0, 1, 2, 8, 100, 600, 5000, 70000, 20, 0};
    static uint8_t msg[70000], body[70000];
    uint8_t header[FP_FRAME_HEADER_BYTES], what = fuzz_u8(in), harm = fuzz_u8(in);
    struct fp_frame f = {.type = types[what % 10], .id = 1 + what / 10 % (CALLS + 2)};

    f.flags = (what & 3) == 1 ? FP_FRAME_REPLY : (what & 3) == 2 ? FP_FRAME_ONEWAY : 0;
    if (f.flags == FP_FRAME_REPLY && fuzz_u8(in) > 200)
        f.status = -(int32_t)fuzz_u8(in);
    f.msg_len_bytes = lens[fuzz_below(in, 10)];
    f.payload_len_bytes = what & 128 ? lens[fuzz_below(in, 10)] : 0;
    if (f.msg_len_bytes > 5000 && harm % 4) /* sums of these take long */
        f.msg_len_bytes = 700;
    fuzz_bytes(in, msg, f.msg_len_bytes < 16 ? f.msg_len_bytes : 16);
    fp_frame_encode(&f, msg, header);
    if (harm >= 200)
        header[fuzz_u8(in) % sizeof header] ^= (uint8_t)(1u << harm % 8);
    put(w, header, sizeof header);
    put(w, msg, f.msg_len_bytes);
    put(w, body, harm > 190 && harm < 200 ? f.payload_len_bytes / 2 : f.payload_len_bytes);
}

static void make_stream(struct wire *w, struct fuzz_in *in)
{
    uint8_t raw[64];

    for (int i = 0; i < 24 && fuzz_left(in) > 0; i++) {
        uint8_t c = fuzz_u8(in);

        if (c < 230)
            put_frame(w, in);
        else
            put(w, raw, fuzz_bytes(in, raw, c % 64));
    }
}

/* -------------------------------------------------------------- one input */

static void start_calls(struct fp_rpc_conn *c, struct fuzz_in *in)
{
    for (size_t i = 0; i < CALLS; i++) {
        struct fp_rpc_req q = {.type = (uint16_t)(1 + i), .timeout_ms = 60000, .cb = on_reply, .arg = (void *)i};
        uint8_t h = fuzz_u8(in);

        if (h & 1) {
            q.rx_cap_bytes = (h & 6) == 6 ? 70000 : (h & 6) == 4 ? 5000 : 100;
            q.rx = x.rx[i] = malloc(q.rx_cap_bytes);
        }
        x.calls_open |= 1u << i;
        FUZZ_CHECK(fp_rpc_call(c, &q, NULL) == 0);
    }
}

static void init(void)
{
    struct fp_rpc_opts o = {.plain = false};

    if (x.rpc)
        return;
    FUZZ_CHECK(fp_key_generate(&x.key) == 0);
    uv_loop_init(&x.loop);
    o.key = x.key;
    FUZZ_CHECK(fp_rpc_new(&x.loop, &o, &x.rpc) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};
    struct wire *w = calloc(1, sizeof *w);
    static uint8_t bytes[STREAM_MAX];
    struct fp_rpc_conn *c;

    init();
    x.how = fuzz_u8(&in);
    x.closed = 0;
    *w = (struct wire){.base.ops = &wire_ops, .in = &in, .bytes = bytes, .over = x.how & 2};
    FUZZ_CHECK(fp_conn_new(x.rpc, &handler, NULL, &c) == 0);
    fp_rpc_conn_get(c);
    c->tr = &w->base;
    c->server = x.how & 1;
    x.rpc->conns_n += c->server;
    c->state = CONN_UP;
    c->was_up = true;
    c->in.buf = malloc(RX_SMALL_BYTES);
    c->in.cap_bytes = RX_SMALL_BYTES;
    if (!(x.how & 4)) {
        start_calls(c, &in);
    } else { /* before SETUP */
        c->state = CONN_SETUP;
        c->was_up = false;
        x.rpc->preauth_n += c->server;
    }
    make_stream(w, &in);
    for (int i = 0; i < 200 && c->state < CONN_CLOSING && w->at < w->len; i++)
        fp_conn_read(c);
    if (c->state < CONN_CLOSING)
        fp_conn_read(c);
    fp_rpc_conn_close(c, 0);
    while (c->state != CONN_CLOSED)
        uv_run(&x.loop, UV_RUN_NOWAIT);
    FUZZ_CHECK(x.calls_open == 0 && x.payloads_open == 0 && x.closed <= 1);
    FUZZ_CHECK(x.rpc->conns_n == 0 && x.rpc->preauth_n == 0);
    fp_rpc_conn_put(c);
    return 0;
}
