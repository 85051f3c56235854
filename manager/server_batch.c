/* Group commit: everything that one turn of the loop brought is one transaction.
 *
 *   frames of this turn --> core (one transaction) --> COMMIT --> replies
 *                                                        `--> those that must be durable: sync thread -->
 * replies, and deletes of chunks that it dropped
 *
 * A group is opened by the first thing that needs it and closed before the loop would sleep, so under load it
 * grows by itself: while one COMMIT runs, the next group's requests arrive. The sync of the WAL runs on a
 * thread of its own; requests that need it share it, others do not wait for it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fp.pb-c.h"
#include "fp/bug.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/grown.h"
#include "fp/log.h"
#include "manager/server_int.h"

#define CALL_TIMEOUT_MS  10000u
#define SYNC_TIMEOUT_MS  120000u /* of all that a benefactor has written in a while */
#define CHECKPOINT_PAGES 8192u /* of 2 KiB */

#define AUX_QUEUE_MAX_BYTES (4u << 20) /* messages of aux-apps to one that does not read */

void mgr_batch_open(struct mgr_server *s)
{
    if (s->in_group)
        return;
    s->in_group = true;
    mgr_core_begin(s->core, (struct mgr_now){.ms = fp_now_ms(), .ns = fp_wall_ns()});
}

static void answer(struct fp_rpc_conn *conn, uint64_t id, uint16_t type, int status,
                   const ProtobufCMessage *msg)
{
    fp_rpc_reply(conn, &(struct fp_rpc_reply){.id = id, .type = type, .status = status, .msg = msg});
}

void mgr_batch_add(struct mgr_server *s, struct fp_rpc_conn *conn, const struct fp_rpc_in *in,
                   const struct mgr_reply *reply)
{
    struct mgr_pending *list = fp_grown(s->pending, s->pending_count, &s->pending_cap, sizeof *list);

    if (!list) { /* executed, but not answered: the client asks again after a reconnect */
        FP_ERROR("out of memory: closing the connection to %s", fp_rpc_conn_peer(conn));
        fp_rpc_conn_close(conn, -ENOMEM);
        return;
    }
    s->pending = list;
    s->pending[s->pending_count++] =
        (struct mgr_pending){.conn = fp_rpc_conn_get(conn), .id = in->id, .type = in->type, .reply = *reply};
}

/* ---------------------------------------------------------------- replies that wait for a sync */

static bool keep_durable(struct mgr_server *s, const struct mgr_pending *p, uint64_t ticket)
{
    const ProtobufCMessage *msg = p->reply.msg;
    size_t len = msg ? protobuf_c_message_get_packed_size(msg) : 0;
    struct mgr_durable *d = malloc(sizeof *d + len);

    if (!d)
        return false;
    *d = (struct mgr_durable){.conn = p->conn,
                              .id = p->id,
                              .type = p->type,
                              .ticket = ticket,
                              .desc = msg ? msg->descriptor : NULL,
                              .len = len};
    if (msg)
        protobuf_c_message_pack(msg, d->bytes);
    *s->durable_last = d;
    s->durable_last = &d->next;
    return true;
}

static void answer_durable(struct mgr_durable *d, int err)
{
    ProtobufCMessage *msg = NULL;

    if (!err && d->desc) {
        msg = protobuf_c_message_unpack(d->desc, NULL, d->len, d->bytes);
        err = msg ? 0 : -ENOMEM;
    }
    answer(d->conn, d->id, d->type, err, msg);
    if (msg)
        protobuf_c_message_free_unpacked(msg, NULL);
    fp_rpc_conn_put(d->conn);
    free(d);
}

/* ---------------------------------------------------------------- frames of the core */

struct call {
    struct mgr_peer *peer;
    uint16_t type;
};

static void on_answer(void *arg, int status, const struct fp_rpc_in *in)
{
    struct call *call = arg;
    struct mgr_server *s = call->peer->server;

    if (!s->ending && call->peer->core) {
        mgr_batch_open(s);
        mgr_core_answer(s->core, call->peer->core, call->type, status, in ? in->msg : NULL,
                        in ? in->msg_len_bytes : 0);
    }
    if (in)
        fp_rpc_payload_free(in->payload);
    free(call);
}

static void call_peer(struct mgr_peer *peer, const struct mgr_out *o)
{
    struct call *call = malloc(sizeof *call);
    struct fp_rpc_req req = {
        .type = o->type, .msg = o->msg, .timeout_ms = o->type == FP__MSG_TYPE__MSG_BNF_SYNC_ALL ? SYNC_TIMEOUT_MS : CALL_TIMEOUT_MS, .cb = on_answer, .arg = call};

    if (call) {
        *call = (struct call){.peer = peer, .type = o->type};
        if (fp_rpc_call(peer->conn, &req, NULL) == 0)
            return;
        free(call);
    }
    /* the core waits for an answer to what it asked; a lost connection is one */
    fp_rpc_conn_close(peer->conn, 0);
}

/* ---------------------------------------------------------------- frames that wait for a sync */

static bool keep_late(struct mgr_server *s, const struct mgr_out *o, uint64_t ticket)
{
    size_t len = protobuf_c_message_get_packed_size(o->msg);
    struct mgr_late *l = malloc(sizeof *l + len);

    if (!l)
        return false;
    *l = (struct mgr_late){
        .peer = o->user, .ticket = ticket, .type = o->type, .desc = o->msg->descriptor, .len = len};
    protobuf_c_message_pack(o->msg, l->bytes);
    *s->late_last = l;
    s->late_last = &l->next;
    return true;
}

static void call_late(struct mgr_server *s, struct mgr_late *l, int err)
{
    struct mgr_out o = {.kind = MGR_OUT_CALL, .user = l->peer, .type = l->type};
    ProtobufCMessage *msg = err ? NULL : protobuf_c_message_unpack(l->desc, NULL, l->len, l->bytes);

    if (msg) {
        o.msg = msg;
        call_peer(l->peer, &o);
        protobuf_c_message_free_unpacked(msg, NULL);
    } else if (!s->ending) {
        mgr_batch_open(s);
        mgr_core_answer(s->core, l->peer->core, l->type, err ? err : -ENOMEM, NULL, 0);
    }
    free(l);
}

static struct mgr_late *take_late(struct mgr_server *s)
{
    struct mgr_late *l = s->late_first;

    s->late_first = l->next;
    if (!s->late_first)
        s->late_last = &s->late_first;
    return l;
}

void mgr_batch_forget(struct mgr_server *s, const struct mgr_peer *peer)
{
    struct mgr_late **p = &s->late_first;

    while (*p) {
        struct mgr_late *l = *p;

        if (l->peer != peer) {
            p = &l->next;
            continue;
        }
        *p = l->next;
        free(l);
    }
    s->late_last = p;
}

void mgr_batch_synced(void *server, uint64_t ticket, int err)
{
    struct mgr_server *s = server;

    while (s->durable_first && s->durable_first->ticket <= ticket) {
        struct mgr_durable *d = s->durable_first;

        s->durable_first = d->next;
        if (!s->durable_first)
            s->durable_last = &s->durable_first;
        answer_durable(d, err);
    }
    while (s->late_first && s->late_first->ticket <= ticket)
        call_late(s, take_late(s), err);
    fp_rpc_flush(s->rpc);
}

void mgr_batch_drop(struct mgr_server *s)
{
    while (s->durable_first) {
        struct mgr_durable *d = s->durable_first;

        s->durable_first = d->next;
        fp_rpc_conn_put(d->conn);
        free(d);
    }
    while (s->late_first)
        free(take_late(s));
    free(s->pending);
}

/* ---------------------------------------------------------------- the end of a group */

static void send_post(struct mgr_server *s, struct mgr_peer *peer, const struct mgr_out *o)
{
    if (fp_rpc_conn_queued_bytes(peer->conn) > AUX_QUEUE_MAX_BYTES || fp_rpc_send(peer->conn, o->type, o->msg))
        mgr_core_dropped(s->core, peer->core);
}

static void send_outs(struct mgr_server *s)
{
    uint64_t ticket = 0;
    struct mgr_out o;

    while (mgr_core_out_next(s->core, &o)) {
        struct mgr_peer *peer = o.user;

        if (o.durable && !ticket)
            ticket = mgr_worker_ask(&s->sync);
        o.durable &= !FP_BUG("mgr-deletes-before-sync");
        if (o.durable && keep_late(s, &o, ticket))
            continue;
        if (o.durable) /* as in call_peer */
            fp_rpc_conn_close(peer->conn, 0);
        else if (o.kind == MGR_OUT_SEND)
            fp_rpc_send(peer->conn, o.type, o.msg);
        else if (o.kind == MGR_OUT_POST)
            send_post(s, peer, &o);
        else if (o.kind == MGR_OUT_CALL)
            call_peer(peer, &o);
        else
            fp_rpc_conn_close(peer->conn, 0);
    }
}

static void send_replies(struct mgr_server *s, int err, bool durable)
{
    uint64_t ticket = durable ? mgr_worker_ask(&s->sync) : 0;

    for (size_t i = 0; i < s->pending_count; i++) {
        struct mgr_pending *p = &s->pending[i];

        if (!err && p->reply.durable && keep_durable(s, p, ticket))
            continue; /* with our reference */
        answer(p->conn, p->id, p->type,
               err                ? err
               : p->reply.durable ? -ENOMEM
                                  : p->reply.status,
               err ? NULL : p->reply.msg);
        if (p->reply.close)
            fp_rpc_conn_finish(p->conn);
        fp_rpc_conn_put(p->conn);
    }
    s->pending_count = 0;
}

/* The WAL may be most of what fills the disk: give it back, so that at least deleting works. */
static void make_room(struct mgr_server *s)
{
    uint64_t now_ms = fp_now_ms();

    if (s->checkpointing || now_ms < s->make_room_ms)
        return;
    s->make_room_ms = now_ms + 1000;
    mgr_db_checkpoint(mgr_core_db(s->core), true);
}

void mgr_batch_close(struct mgr_server *s)
{
    bool durable;
    int err;

    if (!s->in_group)
        return;
    s->in_group = false;
    err = mgr_core_end(s->core, &durable);
    send_replies(s, err, durable);
    send_outs(s);
    mgr_core_reset(s->core);
    fp_rpc_flush(s->rpc);
    if (err == -ENOSPC)
        make_room(s);
    if (!s->checkpointing && mgr_core_db(s->core)->wal_pages > CHECKPOINT_PAGES) {
        s->checkpointing = true;
        mgr_worker_ask(&s->checkpoint);
    }
}
