/*
 * Connections without a network (wire.h). Called by the harnesses and the program under test, on their only thread.
 *
 * Not the real fp_rpc over a pipe: what comes in over bytes is fuzz_frame's matter, and a poll per message would take most of the time.
 */
#include "tests/fuzz/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fp/err.h"

#define IDS_MAX    256u
#define TIMERS_MAX 8u

struct wire_conn {
    bool used, up, closing, full; /* full: on_writable is due */
    unsigned refs;
    int err, paused;
    const struct fp_rpc_handler *h;
    void *arg, *data;
    uint64_t last_id;
    bool open[IDS_MAX]; /* requests of the peer without an answer */
    unsigned nopen;
    struct {
        uint16_t type;
        fp_rpc_reply_cb cb;
        void *arg;
    } call[WIRE_CALLS_MAX];
    unsigned ncalls;
    struct {
        void (*done)(void *arg);
        void *arg;
    } sent[IDS_MAX];
    unsigned nsent;
};

void (*wire_on_reply)(struct wire_conn *c, const struct fp_rpc_reply *r);

static struct wire_conn conns[WIRE_CONNS_MAX];
static const struct fp_rpc_handler *listens;
static void *listens_arg;
static struct wire_conn *connecting;
static struct {
    uv_timer_t *timer;
    uv_timer_cb cb;
    bool repeats;
} timers[TIMERS_MAX];
static uint64_t now_ms;

#define CONN(c) ((struct wire_conn *)(void *)(c))
#define RPC(c)  ((struct fp_rpc_conn *)(void *)(c))

void wire_reset(void)
{
    FUZZ_CHECK(wire_left() == 0); /* and conn_new() clears the rest */
    memset(timers, 0, sizeof timers);
    listens = NULL;
    connecting = NULL;
    now_ms = 1000000;
}

static struct wire_conn *conn_new(const struct fp_rpc_handler *h, void *arg)
{
    for (size_t i = 0; i < WIRE_CONNS_MAX; i++)
        if (!conns[i].used) {
            memset(&conns[i], 0, offsetof(struct wire_conn, sent));
            conns[i].used = true;
            conns[i].refs = 1;
            conns[i].h = h;
            conns[i].arg = arg;
            conns[i].nsent = 0;
            return &conns[i];
        }
    return NULL;
}

static void conn_put(struct wire_conn *c)
{
    FUZZ_CHECK(c->used && c->refs > 0);
    if (--c->refs == 0)
        c->used = false;
}

struct wire_conn *wire_accept(void)
{
    struct wire_conn *c = listens ? conn_new(listens, listens_arg) : NULL;

    if (c)
        wire_up(c);
    return c;
}

struct wire_conn *wire_connecting(void)
{
    return connecting;
}

void wire_up(struct wire_conn *c)
{
    if (c == connecting)
        connecting = NULL;
    if (c->closing)
        return;
    c->up = true;
    if (c->h->on_up)
        c->h->on_up(RPC(c), c->arg);
}

bool wire_is_up(const struct wire_conn *c)
{
    return c && c->used && c->up && !c->closing;
}

void wire_request(struct wire_conn *c, uint16_t type, bool oneway, const uint8_t *msg, size_t len, const uint8_t *payload, size_t payload_len, bool cut)
{
    struct fp_rpc_in in = {.type = type, .flags = oneway ? FP_FRAME_ONEWAY : 0, .msg_len_bytes = len};
    uint8_t *exact;
    void *to = NULL, *own = NULL;

    if (!wire_is_up(c) || c->paused > 0 || c->last_id + 1 >= IDS_MAX)
        return;
    in.id = ++c->last_id;
    exact = malloc(len ? len : 1);
    if (len > 0)
        memcpy(exact, msg, len);
    in.msg = exact;
    if (payload_len > 0) {
        in.payload_len_bytes = payload_len;
        to = c->h->on_payload ? c->h->on_payload(RPC(c), &in, c->arg) : NULL;
        if (!to)
            FUZZ_CHECK(posix_memalign(&own, 4096, payload_len) == 0);
        in.payload = to ? to : own;
        memcpy(in.payload, payload, payload_len);
    }
    if (cut && payload_len > 0) {
        if (to)
            c->h->on_payload_lost(RPC(c), to, c->arg);
        free(own);
        wire_close(c, FP_EPEER_GONE);
    } else {
        c->open[in.id] = !oneway;
        c->nopen += !oneway;
        c->h->on_request(RPC(c), &in, c->arg);
    }
    free(exact);
}

uint64_t wire_last_id(const struct wire_conn *c)
{
    return c ? c->last_id : 0;
}

uint16_t wire_asked(const struct wire_conn *c)
{
    return wire_is_up(c) && c->ncalls > 0 ? c->call[0].type : 0;
}

static void call_over(struct wire_conn *c, int status, const struct fp_rpc_in *in)
{
    fp_rpc_reply_cb cb = c->call[0].cb;
    void *arg = c->call[0].arg;

    memmove(c->call, c->call + 1, --c->ncalls * sizeof c->call[0]);
    cb(arg, status, in);
}

void wire_answer(struct wire_conn *c, int status, const uint8_t *msg, size_t len)
{
    struct fp_rpc_in in = {.type = c->call[0].type, .flags = FP_FRAME_REPLY, .status = status, .msg_len_bytes = status ? 0 : len};
    uint8_t *exact = malloc(len ? len : 1);

    if (len > 0)
        memcpy(exact, msg, len);
    in.msg = exact;
    call_over(c, status, &in);
    free(exact);
}

void wire_close(struct wire_conn *c, int err)
{
    if (!c || !c->used || c->closing)
        return;
    c->closing = true;
    c->err = err;
}

static void sent(struct wire_conn *c)
{
    unsigned n = c->nsent;

    c->nsent = 0;
    for (unsigned i = 0; i < n; i++)
        c->sent[i].done(c->sent[i].arg);
}

void wire_turn(void)
{
    for (size_t i = 0; i < WIRE_CONNS_MAX; i++) {
        struct wire_conn *c = &conns[i];

        if (!c->used)
            continue;
        c->refs++;
        sent(c);
        if (c->full && c->ncalls < WIRE_CALLS_MAX / 2 && wire_is_up(c)) {
            c->full = false;
            c->h->on_writable(RPC(c), c->arg);
        }
        if (c->closing && c->h) {
            const struct fp_rpc_handler *h = c->h;

            while (c->ncalls > 0)
                call_over(c, c->err ? c->err : FP_ECANCELLED, NULL);
            sent(c);
            c->up = false;
            c->h = NULL;
            if (c == connecting)
                connecting = NULL;
            h->on_closed(RPC(c), c->err, "", c->arg);
            conn_put(c);
        }
        conn_put(c);
    }
}

unsigned wire_unanswered(void)
{
    unsigned n = 0;

    for (size_t i = 0; i < WIRE_CONNS_MAX; i++)
        n += wire_is_up(&conns[i]) ? conns[i].nopen : 0;
    return n;
}

unsigned wire_left(void)
{
    unsigned n = 0;

    for (size_t i = 0; i < WIRE_CONNS_MAX; i++)
        n += conns[i].used;
    return n;
}

/* -------------------------------------------------------------- what the program calls: fp/rpc.h */

int __wrap_fp_rpc_listen(struct fp_rpc *rpc, const char *addr, const struct fp_rpc_handler *h, void *arg, struct fp_rpc_listener **out);
int __wrap_fp_rpc_connect(struct fp_rpc *rpc, const char *addr, const struct fp_rpc_connect_opts *o, const struct fp_rpc_handler *h, void *arg,
                          struct fp_rpc_conn **out);
int __wrap_fp_rpc_call(struct fp_rpc_conn *conn, const struct fp_rpc_req *req, uint64_t *id);
int __wrap_fp_rpc_send(struct fp_rpc_conn *conn, uint16_t type, const ProtobufCMessage *msg);
int __wrap_fp_rpc_reply(struct fp_rpc_conn *conn, const struct fp_rpc_reply *reply);
int __wrap_fp_rpc_reply_msg(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, int32_t status, const ProtobufCMessage *msg);
struct fp_rpc_conn *__wrap_fp_rpc_conn_get(struct fp_rpc_conn *conn);
void __wrap_fp_rpc_conn_put(struct fp_rpc_conn *conn);
void __wrap_fp_rpc_conn_set_data(struct fp_rpc_conn *conn, void *data);
void *__wrap_fp_rpc_conn_data(const struct fp_rpc_conn *conn);
void __wrap_fp_rpc_conn_pause(struct fp_rpc_conn *conn);
void __wrap_fp_rpc_conn_resume(struct fp_rpc_conn *conn);
void __wrap_fp_rpc_conn_close(struct fp_rpc_conn *conn, int err);
void __wrap_fp_rpc_conn_finish(struct fp_rpc_conn *conn);
const char *__wrap_fp_rpc_conn_peer(const struct fp_rpc_conn *conn);
const char *__wrap_fp_rpc_conn_local(const struct fp_rpc_conn *conn);
void __wrap_fp_rpc_listener_close(struct fp_rpc_listener *l);
uint16_t __wrap_fp_rpc_listener_port(const struct fp_rpc_listener *l);
void __wrap_fp_rpc_flush(struct fp_rpc *rpc);
void __wrap_fp_rpc_set_uuid(struct fp_rpc *rpc, const uint8_t uuid[16]);

/* What is sent can be packed. */
static void pack(const ProtobufCMessage *msg)
{
    size_t n = msg ? protobuf_c_message_get_packed_size(msg) : 0;
    uint8_t *out = malloc(n + 1);

    if (msg)
        FUZZ_CHECK(protobuf_c_message_pack(msg, out) == n);
    free(out);
}

int __wrap_fp_rpc_listen(struct fp_rpc *rpc, const char *addr, const struct fp_rpc_handler *h, void *arg, struct fp_rpc_listener **out)
{
    (void)rpc, (void)addr;
    listens = h;
    listens_arg = arg;
    *out = (struct fp_rpc_listener *)(void *)&listens;
    return 0;
}

int __wrap_fp_rpc_connect(struct fp_rpc *rpc, const char *addr, const struct fp_rpc_connect_opts *o, const struct fp_rpc_handler *h, void *arg,
                          struct fp_rpc_conn **out)
{
    struct wire_conn *c = conn_new(h, arg);

    (void)rpc, (void)addr, (void)o;
    if (!c)
        return -ENOMEM;
    connecting = c;
    *out = RPC(c);
    return 0;
}

int __wrap_fp_rpc_call(struct fp_rpc_conn *conn, const struct fp_rpc_req *req, uint64_t *id)
{
    struct wire_conn *c = CONN(conn);

    FUZZ_CHECK(c->used && req->timeout_ms > 0);
    if (!wire_is_up(c))
        return -ENOTCONN;
    if (c->ncalls == WIRE_CALLS_MAX) {
        c->full = true;
        return -ENOBUFS;
    }
    pack(req->msg);
    c->call[c->ncalls].type = req->type;
    c->call[c->ncalls].cb = req->cb;
    c->call[c->ncalls++].arg = req->arg;
    if (id)
        *id = c->ncalls;
    return 0;
}

int __wrap_fp_rpc_send(struct fp_rpc_conn *conn, uint16_t type, const ProtobufCMessage *msg)
{
    (void)type;
    FUZZ_CHECK(CONN(conn)->used);
    pack(msg);
    return wire_is_up(CONN(conn)) ? 0 : -ENOTCONN;
}

int __wrap_fp_rpc_reply(struct fp_rpc_conn *conn, const struct fp_rpc_reply *r)
{
    struct wire_conn *c = CONN(conn);
    bool up = wire_is_up(c);

    FUZZ_CHECK(c->used && r->status <= 0 && r->id < IDS_MAX);
    FUZZ_CHECK(c->open[r->id]);
    c->open[r->id] = false;
    c->nopen--;
    if (up) {
        pack(r->status == 0 ? r->msg : NULL);
        if (wire_on_reply)
            wire_on_reply(c, r);
    }
    if (r->done && up) {
        FUZZ_CHECK(c->nsent < IDS_MAX);
        c->sent[c->nsent].done = r->done;
        c->sent[c->nsent++].arg = r->arg;
    } else if (r->done) {
        r->done(r->arg);
    }
    return up ? 0 : -ENOTCONN;
}

int __wrap_fp_rpc_reply_msg(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, int32_t status, const ProtobufCMessage *msg)
{
    struct fp_rpc_reply r = {.id = in->id, .type = in->type, .status = status, .msg = msg};

    return __wrap_fp_rpc_reply(conn, &r);
}

struct fp_rpc_conn *__wrap_fp_rpc_conn_get(struct fp_rpc_conn *conn)
{
    FUZZ_CHECK(CONN(conn)->used);
    CONN(conn)->refs++;
    return conn;
}

void __wrap_fp_rpc_conn_put(struct fp_rpc_conn *conn)
{
    conn_put(CONN(conn));
}

void __wrap_fp_rpc_conn_set_data(struct fp_rpc_conn *conn, void *data)
{
    CONN(conn)->data = data;
}

void *__wrap_fp_rpc_conn_data(const struct fp_rpc_conn *conn)
{
    return ((const struct wire_conn *)(const void *)conn)->data;
}

void __wrap_fp_rpc_conn_pause(struct fp_rpc_conn *conn)
{
    CONN(conn)->paused++;
}

void __wrap_fp_rpc_conn_resume(struct fp_rpc_conn *conn)
{
    FUZZ_CHECK(CONN(conn)->paused-- > 0);
}

void __wrap_fp_rpc_conn_close(struct fp_rpc_conn *conn, int err)
{
    FUZZ_CHECK(CONN(conn)->used);
    wire_close(CONN(conn), err);
}

void __wrap_fp_rpc_conn_finish(struct fp_rpc_conn *conn)
{
    FUZZ_CHECK(CONN(conn)->used);
    wire_close(CONN(conn), 0);
}

const char *__wrap_fp_rpc_conn_peer(const struct fp_rpc_conn *conn)
{
    (void)conn;
    return "10.0.0.1:1";
}

const char *__wrap_fp_rpc_conn_local(const struct fp_rpc_conn *conn)
{
    (void)conn;
    return "10.0.0.2:2";
}

void __wrap_fp_rpc_listener_close(struct fp_rpc_listener *l)
{
    (void)l;
    listens = NULL;
}

uint16_t __wrap_fp_rpc_listener_port(const struct fp_rpc_listener *l)
{
    (void)l;
    return 2;
}

void __wrap_fp_rpc_flush(struct fp_rpc *rpc)
{
    (void)rpc;
}

void __wrap_fp_rpc_set_uuid(struct fp_rpc *rpc, const uint8_t uuid[16])
{
    (void)rpc, (void)uuid;
}

/* -------------------------------------------------------------- timers, the clock */

int __wrap_uv_timer_init(uv_loop_t *loop, uv_timer_t *timer);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout_ms, uint64_t repeat_ms);
int __wrap_uv_timer_stop(uv_timer_t *timer);
uint64_t __wrap_uv_timer_get_due_in(const uv_timer_t *timer);
void __wrap_uv_close(uv_handle_t *handle, uv_close_cb cb);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);

int __wrap_uv_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
    timer->loop = loop;
    return 0;
}

int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout_ms, uint64_t repeat_ms)
{
    (void)timeout_ms;
    __wrap_uv_timer_stop(timer);
    for (size_t i = 0; i < TIMERS_MAX; i++)
        if (!timers[i].timer) {
            timers[i].timer = timer;
            timers[i].cb = cb;
            timers[i].repeats = repeat_ms > 0;
            return 0;
        }
    fuzz_failed(__FILE__, __LINE__, "too many timers");
}

int __wrap_uv_timer_stop(uv_timer_t *timer)
{
    for (size_t i = 0; i < TIMERS_MAX; i++)
        if (timers[i].timer == timer)
            timers[i].timer = NULL;
    return 0;
}

uint64_t __wrap_uv_timer_get_due_in(const uv_timer_t *timer)
{
    (void)timer;
    return 1000;
}

void __wrap_uv_close(uv_handle_t *handle, uv_close_cb cb)
{
    __wrap_uv_timer_stop((uv_timer_t *)(void *)handle);
    if (cb)
        cb(handle);
}

static void fire(size_t i)
{
    uv_timer_t *t = timers[i].timer;

    if (!timers[i].repeats)
        timers[i].timer = NULL;
    timers[i].cb(t);
}

bool wire_timer_fire(unsigned nth)
{
    for (size_t i = 0; i < TIMERS_MAX; i++)
        if (timers[i].timer && nth-- == 0) {
            fire(i);
            return true;
        }
    return false;
}

void wire_timer_fire_of(uv_timer_t *timer)
{
    for (size_t i = 0; i < TIMERS_MAX; i++)
        if (timers[i].timer == timer) {
            fire(i);
            return;
        }
}

void wire_pass_ms(uint64_t ms)
{
    now_ms += ms;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    (void)id;
    ts->tv_sec = (time_t)(now_ms / 1000);
    ts->tv_nsec = (long)(now_ms % 1000) * 1000000;
    return 0;
}
