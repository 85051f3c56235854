/* Calls that wait for their replies: found by id, ended by deadline.
 *
 * Called by rpc_out.c (a call begins), rpc_in.c (its reply is there), rpc.c (the clock) and rpc_conn.c (the
 * connection broke), on the loop's thread.
 *
 * Ids count up per connection, so id modulo the table's size is a perfect spread and chains stay short.
 * Deadlines hang in a wheel of 512 slots of 32 ms: starting and ending a call is constant work, and 32 ms is
 * fine enough for time-outs of seconds. Later deadlines than one turn of the wheel (16 s) are met again at
 * each turn. A heap would be exact and cost log n for calls which nearly never expire.
 *
 * Invariant: a call is completed exactly once, and when it is, nothing refers to its buffers any more:
 * neither the send queue nor the frame that is just coming in. */
#include <errno.h>
#include <stdlib.h>

#include "fp/clock.h"
#include "fp/err.h"
#include "rpc_int.h"

#define CALLS_MIN 64u

static struct call **bucket(struct fp_rpc_conn *c, uint64_t id)
{
    return &c->calls[id & (c->calls_cap - 1)];
}

static int calls_grow(struct fp_rpc_conn *c)
{
    size_t old_cap = c->calls_cap;
    struct call **old = c->calls;
    size_t cap = old_cap ? old_cap * 2 : CALLS_MIN;
    struct call **table = calloc(cap, sizeof(struct call *));
    if (!table)
        return -ENOMEM;
    c->calls = table;
    c->calls_cap = cap;
    for (size_t i = 0; i < old_cap; i++) {
        for (struct call *call = old[i], *next; call; call = next) {
            next = call->hash_next;
            struct call **b = bucket(c, call->id);
            call->hash_next = *b;
            *b = call;
        }
    }
    free(old);
    return 0;
}

struct call *fp_call_find(struct fp_rpc_conn *c, uint64_t id)
{
    if (c->calls_n == 0)
        return NULL;
    struct call *call = *bucket(c, id);
    while (call && call->id != id)
        call = call->hash_next;
    return call;
}

struct call *fp_call_new(struct fp_rpc_conn *c, const struct fp_rpc_req *req)
{
    if (c->calls_n >= c->calls_cap && calls_grow(c) < 0)
        return NULL;
    struct call *call = malloc(sizeof *call);
    if (!call)
        return NULL;
    *call = (struct call){
        .conn = c,
        .id = ++c->next_id,
        .deadline_ms = fp_now_ms() + req->timeout_ms,
        .type = req->type,
        .rx = req->rx,
        .rx_cap_bytes = req->rx_cap_bytes,
        .cb = req->cb,
        .arg = req->arg,
    };
    struct call **b = bucket(c, call->id);
    call->hash_next = *b;
    *b = call;
    c->calls_n++;
    c->rpc->calls_n++;
    fp_rpc_fast(c->rpc);
    call->list = &c->rpc->wheel[call->deadline_ms / TICK_MS % WHEEL_SLOTS];
    TAILQ_INSERT_TAIL(call->list, call, deadline_link);
    return call;
}

static void call_unlink(struct call *call)
{
    struct fp_rpc_conn *c = call->conn;
    struct call **at = bucket(c, call->id);
    while (*at != call)
        at = &(*at)->hash_next;
    *at = call->hash_next;
    c->calls_n--;
    c->rpc->calls_n--;
    TAILQ_REMOVE(call->list, call, deadline_link);
}

void fp_call_complete(struct call *call, int status, const struct fp_rpc_in *in)
{
    struct fp_rpc_conn *c = call->conn;
    call_unlink(call);
    fp_in_forget_call(c, call);
    if (call->out) {
        struct out *o = call->out;
        o->call = NULL;
        if (o->sent_bytes > 0)
            fp_conn_fail(c, status < 0 ? status : -EPROTO, "a call ended while its request was being sent");
        fp_out_drop(c, o);
    }
    if (call->cb)
        call->cb(call->arg, status, in);
    else if (in && !call->rx)
        fp_rpc_payload_free(in->payload);
    free(call);
}

void fp_calls_fail(struct fp_rpc_conn *c, int err)
{
    for (size_t i = 0; i < c->calls_cap; i++) {
        while (c->calls[i])
            fp_call_complete(c->calls[i], err, NULL);
    }
    free(c->calls);
    c->calls = NULL;
    c->calls_cap = 0;
}

static void expire(struct call *call, int status)
{
    struct fp_rpc *rpc = call->conn->rpc;
    TAILQ_REMOVE(call->list, call, deadline_link);
    call->list = &rpc->expired;
    call->status = status;
    TAILQ_INSERT_TAIL(call->list, call, deadline_link);
}

void fp_calls_run_expired(struct fp_rpc *rpc)
{
    struct call *call;
    while ((call = TAILQ_FIRST(&rpc->expired)) != NULL)
        fp_call_complete(call, call->status, NULL);
}

void fp_calls_tick(struct fp_rpc *rpc, uint64_t now_ms)
{
    uint64_t slot = rpc->wheel_at_ms / TICK_MS;
    uint64_t last = now_ms / TICK_MS;
    if (last - slot > WHEEL_SLOTS)
        slot = last - WHEEL_SLOTS;
    for (; slot < last; slot++) {
        struct call *next;
        for (struct call *call = TAILQ_FIRST(&rpc->wheel[slot % WHEEL_SLOTS]); call; call = next) {
            next = TAILQ_NEXT(call, deadline_link);
            if (call->deadline_ms <= now_ms)
                expire(call, FP_EDEADLINE);
        }
    }
    rpc->wheel_at_ms = last * TICK_MS;
    fp_calls_run_expired(rpc);
}

int fp_rpc_cancel(struct fp_rpc_conn *c, uint64_t id)
{
    struct call *call = fp_call_find(c, id);
    if (!call)
        return -ENOENT;
    if (call->list != &c->rpc->expired)
        expire(call, FP_ECANCELLED);
    fp_rpc_kick(c->rpc);
    return 0;
}
