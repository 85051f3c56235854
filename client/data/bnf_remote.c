/*
 * Calls to benefactors over TCP (see bnf.h). Everything here but the posting runs on the core loop.
 *
 * One connection per benefactor, opened at the first call and again after it broke. Calls that come while it is being opened wait in a list; if
 * opening fails they all fail at once, and the caller goes elsewhere. The hello is the first request; others are queued behind it
 * on our side, so that a refusal (another store, an old session) is told to each of them.
 */
#include "client/data/bnf.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "client/data/internal.h"
#include "life.pb-c.h"

#define CONNECT_MS 3000u

static const ProtobufCMessageDescriptor *reply_type(uint32_t type)
{
    switch (type) {
    case FP__MSG_TYPE__MSG_LEASE: return &fp__lease_reply__descriptor;
    case FP__MSG_TYPE__MSG_FETCH: return &fp__fetch_reply__descriptor;
    case FP__MSG_TYPE__MSG_READ: return &fp__chunk_read_reply__descriptor;
    case FP__MSG_TYPE__MSG_LOCATE: return &fp__locate_reply__descriptor;
    case FP__MSG_TYPE__MSG_BNF_HELLO: return &fp__bnf_hello_reply__descriptor;
    case FP__MSG_TYPE__MSG_BNF_SYNC: return &fp__bnf_sync_reply__descriptor;
    default: return &fp__empty__descriptor;
    }
}

static void finish(struct cl_rcall *c, int status, const ProtobufCMessage *reply)
{
    free(c->gathered);
    c->gathered = NULL;
    c->done(c, status, reply);
}

static void on_reply(void *arg, int status, const struct fp_rpc_in *in)
{
    struct cl_rcall *c = arg;
    ProtobufCMessage *m = NULL;

    if (status == 0) {
        m = protobuf_c_message_unpack(reply_type(c->type), NULL, in->msg_len_bytes, in->msg);
        if (!m)
            status = FP_EBADFRAME;
        c->rx_len_bytes = in->payload_len_bytes;
        c->generation = c->bnf->remote_generation;
        if (m && c->type == FP__MSG_TYPE__MSG_BNF_SYNC) /* before the caller looks at what is lost */
            (void)cl_bnf_life(c->bnf, ((const Fp__BnfSyncReply *)m)->unsynced_life);
        if (in->payload && in->payload != c->rx)
            fp_rpc_payload_free(in->payload);
    }
    finish(c, status, m);
    if (m)
        protobuf_c_message_free_unpacked(m, NULL);
}

/* A frame takes FP_RPC_IOV_MAX parts; a large chunk with more pages than that is copied together. */
static int gather(struct cl_rcall *c)
{
    size_t len = 0;
    uint8_t *p;

    for (int i = 0; i < c->niov; i++)
        len += c->payload[i].iov_len;
    p = c->gathered = malloc(len);
    if (!p)
        return -ENOMEM;
    c->gathered_iov = (struct iovec){ p, len };
    for (int i = 0; i < c->niov; i++) {
        memcpy(p, c->payload[i].iov_base, c->payload[i].iov_len);
        p += c->payload[i].iov_len;
    }
    c->payload = &c->gathered_iov;
    c->niov = 1;
    return 0;
}

static void send_call(struct cl_rcall *c)
{
    int rc = c->niov > (int)FP_RPC_IOV_MAX ? gather(c) : 0;
    struct fp_rpc_req req = {
        .type = (uint16_t)c->type, .msg = c->msg, .payload = c->payload, .payload_iovcnt = c->niov,
        .rx = c->rx, .rx_cap_bytes = c->rx_cap_bytes, .timeout_ms = c->timeout_ms, .cb = on_reply, .arg = c,
    };

    if (rc == 0)
        rc = fp_rpc_call(c->bnf->conn, &req, NULL);
    if (rc < 0)
        finish(c, rc, NULL);
}

static struct cl_rcall *take_waiting(struct cl_bnf *b)
{
    struct cl_rcall *c = b->waiting;

    b->waiting = NULL;
    b->waiting_tail = &b->waiting;
    return c;
}

static void on_hello(void *arg, int status, const struct fp_rpc_in *in)
{
    struct cl_bnf *b = arg;
    Fp__BnfHelloReply *reply = status == 0 ? fp__bnf_hello_reply__unpack(NULL, in->msg_len_bytes, in->msg) : NULL;
    struct cl_rcall *c, *next;

    if (status == 0 && !reply)
        status = FP_EBADFRAME;
    if (status < 0) {
        if (b->conn)
            fp_rpc_conn_close(b->conn, status); /* fails those waiting */
        return;
    }
    cl_bnf_life(b, reply->unsynced_life);
    fp__bnf_hello_reply__free_unpacked(reply, NULL);
    b->conn_hello_done = true;
    for (c = take_waiting(b); c; c = next) {
        next = c->next;
        send_call(c);
    }
}

static void on_up(struct fp_rpc_conn *conn, void *arg)
{
    struct cl_bnf *b = arg;
    Fp__BnfHello h = FP__BNF_HELLO__INIT;
    struct fp_rpc_req req = { .type = FP__MSG_TYPE__MSG_BNF_HELLO, .msg = &h.base, .timeout_ms = CONNECT_MS, .cb = on_hello, .arg = b };
    int rc;

    h.store_uuid.data = b->data->m->store_uuid;
    h.store_uuid.len = 16;
    h.session = cl_core_session(b->data->m);
    h.node = (char *)(uintptr_t)b->data->m->opt.node;
    rc = fp_rpc_call(conn, &req, NULL);
    if (rc < 0)
        fp_rpc_conn_close(conn, rc);
}

static void on_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    struct cl_bnf *b = arg;
    struct cl_rcall *c, *next;

    (void)conn;
    b->conn = NULL;
    b->conn_hello_done = false;
    b->remote_generation++;
    if (!b->data->stopping)
        FP_LOG_EVERY(2000, FP_LOG_WARN, "connection to benefactor %u at %s: %s", b->id, b->addr, why ? why : fp_strerror(err));
    for (c = take_waiting(b); c; c = next) {
        next = c->next;
        finish(c, err < 0 ? err : -ENOTCONN, NULL);
    }
}

static const struct fp_rpc_handler handler = { .on_up = on_up, .on_closed = on_closed };

static int connect_now(struct cl_bnf *b)
{
    struct fp_rpc_connect_opts o = { .timeout_ms = CONNECT_MS, .plain = !b->data->m->opt.data_encryption };
    char addr[sizeof(b->addr)];

    pthread_mutex_lock(&b->lock);
    memcpy(addr, b->addr, sizeof(addr));
    pthread_mutex_unlock(&b->lock);
    return fp_rpc_connect(cl_core_rpc(b->data->m), addr, &o, &handler, b, &b->conn);
}

static void start_call(void *arg)
{
    struct cl_rcall *c = arg;
    struct cl_bnf *b = c->bnf;
    int rc;

    if (b->conn && b->conn_hello_done) {
        send_call(c);
        return;
    }
    if (!b->conn) {
        rc = connect_now(b);
        if (rc < 0) {
            b->conn = NULL;
            finish(c, rc, NULL);
            return;
        }
    }
    c->next = NULL;
    *b->waiting_tail = c;
    b->waiting_tail = &c->next;
}

void cl_bnf_remote_call(struct cl_rcall *c)
{
    cl_core_post(c->bnf->data->m, start_call, c);
}

/* -------------------------------------------------------------- waiting for the answer */

struct sync_call {
    struct cl_rcall *call;
    sem_t done;
    int status;
    ProtobufCMessage *reply;
    bool want;
};

struct sync_wrap {
    struct cl_rcall call;  /* first: done gets this */
    struct sync_call *s;
};

static void sync_done(struct cl_rcall *c, int status, const ProtobufCMessage *reply)
{
    struct sync_call *s = ((struct sync_wrap *)c)->s;

    s->status = status;
    if (status == 0 && s->want) { /* the reply is freed after this: keep a copy */
        size_t len = protobuf_c_message_get_packed_size(reply);
        uint8_t *buf = malloc(len ? len : 1);

        if (buf) {
            protobuf_c_message_pack(reply, buf);
            s->reply = protobuf_c_message_unpack(reply->descriptor, NULL, len, buf);
            free(buf);
        }
        if (!s->reply)
            s->status = -ENOMEM;
    }
    sem_post(&s->done);
}

int cl_bnf_remote_call_sync(struct cl_rcall *c, ProtobufCMessage **reply)
{
    struct sync_call s = { .want = reply != NULL };
    struct sync_wrap w = { .call = *c, .s = &s };

    sem_init(&s.done, 0, 0);
    w.call.done = sync_done;
    cl_bnf_remote_call(&w.call);
    while (sem_wait(&s.done) < 0 && errno == EINTR)
        ;
    sem_destroy(&s.done);
    c->rx_len_bytes = w.call.rx_len_bytes;
    c->generation = w.call.generation;
    if (reply)
        *reply = s.reply;
    return s.status;
}
