/*
 * Requests to the manager: packed by whoever asks, sent, sent again, timed out and answered on the core loop.
 *
 * A request is packed in the caller's thread without slot and slot_seq, which are known only when it is sent.
 * They go before the packed bytes as two fields of their own: protobuf allows fields in any order and parsers
 * merge them. What fp_rpc_call gets is an empty message whose "unknown fields" are slot, slot_seq and the
 * body; so nothing is unpacked or copied again.
 *
 * Requests of operations are sent by the FUSE thread itself when the core thread sleeps (send_directly): one
 * switch of threads less in each round trip. All others go through the inbox, because their callers may hold
 * locks that callbacks take.
 *
 * What becomes of a request whose answer does not come:
 *   connection breaks       sent again after the next hello, same slot and number (slots.c)
 *   its time is over        -ETIMEDOUT; if it was sent it may still be executed, which nobody waits for;
 *                           a lasting one is kept with its slot, so that what is sent again is the same request;
 *                           one that was sent and whose answer must be taken is not given up, its caller
 *                           does not wait for it; one of which it must be known whether it was executed is a
 *                           lasting one if it was sent
 *   application interrupted -EINTR within a second, likewise
 *   refused (FP_ERECALL)    another mount has to publish the file first: asked again at each tick, and when the manager says
 *                           that it has; FP_ERECALL when that mount has not gone forward (FP_EPUBLISHING) for --io-timeout, or
 *                           the time that its session takes to end, if that is longer: who is dead is not to be an error
 *   session forgotten       with a slot and sent before: -EIO, since nobody knows whether it was executed;
 *                           else sent
 *   cl_mgr_say              sent again after the next hello, unless the manager has it (cl_is_kept)
 * In each case the callback comes exactly once. A request given up while it is under way stays in
 * the list, detached, until its answer comes or the connection breaks, because its slot must not be used for
 * another meanwhile. When such a late answer tells that an inode was opened, it is released.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/core_int.h"
#include "client/inode.h"
#include "client/names.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/grown.h"
#include "fp/log.h"
#include "life.pb-c.h"

#define REQUESTS_MAX     100000u
#define INTERRUPT_MS     300u /* an answer that comes within this time is worth waiting for */
#define RELEASE_DELAY_MS 5u

static struct cl_request *request_of(struct cl_call *call)
{
    return (struct cl_request *)call;
}

/* -------------------------------------------------------------- types */

static const ProtobufCMessageDescriptor *reply_type(uint32_t type)
{
    switch (type) {
    case FP__MSG_TYPE__MSG_LOOKUP:
    case FP__MSG_TYPE__MSG_GETATTR:
    case FP__MSG_TYPE__MSG_SETATTR:
    case FP__MSG_TYPE__MSG_MKNOD:
    case FP__MSG_TYPE__MSG_LINK:
    case FP__MSG_TYPE__MSG_OPEN:
        return &fp__attr_reply__descriptor;
    case FP__MSG_TYPE__MSG_UNLINK:
        return &fp__unlink_reply__descriptor;
    case FP__MSG_TYPE__MSG_READLINK:
        return &fp__read_link_reply__descriptor;
    case FP__MSG_TYPE__MSG_READDIR:
        return &fp__read_dir_reply__descriptor;
    case FP__MSG_TYPE__MSG_GETXATTR:
    case FP__MSG_TYPE__MSG_LISTXATTR:
        return &fp__xattr_reply__descriptor;
    case FP__MSG_TYPE__MSG_STATFS:
        return &fp__stat_fs_reply__descriptor;
    case FP__MSG_TYPE__MSG_LOCK:
        return &fp__lock_reply__descriptor;
    case FP__MSG_TYPE__MSG_INODES:
        return &fp__inodes_reply__descriptor;
    case FP__MSG_TYPE__MSG_SLICEMAP:
        return &fp__slice_map_reply__descriptor;
    case FP__MSG_TYPE__MSG_COMMIT:
    case FP__MSG_TYPE__MSG_PUNCH:
    case FP__MSG_TYPE__MSG_CLONE:
        return &fp__commit_reply__descriptor;
    case FP__MSG_TYPE__MSG_SEEK:
        return &fp__seek_reply__descriptor;
    case FP__MSG_TYPE__MSG_SYNC:
        return &fp__sync_reply__descriptor;
    case FP__MSG_TYPE__MSG_HOLD:
        return &fp__hold_reply__descriptor;
    case FP__MSG_TYPE__MSG_NOTES:
    case FP__MSG_TYPE__MSG_NOTE_FIND:
        return &fp__notes_reply__descriptor;
    case FP__MSG_TYPE__MSG_TABLE:
        return &fp__table_reply__descriptor;
    case FP__MSG_TYPE__MSG_AUX_MSG:
        return &fp__aux_msg_reply__descriptor;
    case FP__MSG_TYPE__MSG_LEVEL:
        return &fp__level_reply__descriptor;
    case FP__MSG_TYPE__MSG_CTL_LAYOUT:
        return &fp__ctl_layout_reply__descriptor;
    default:
        return &fp__empty__descriptor;
    }
}

/* Messages that begin with slot and slot_seq. */
static bool has_slot(const ProtobufCMessage *msg)
{
    const ProtobufCMessageDescriptor *d = msg->descriptor;
    return d->n_fields >= 2 && d->fields[0].id == 1 && strcmp(d->fields[0].name, "slot") == 0;
}

static bool opens_inode(uint32_t type, const ProtobufCMessage *msg)
{
    if (type == FP__MSG_TYPE__MSG_OPEN)
        return true;
    return type == FP__MSG_TYPE__MSG_MKNOD && ((const Fp__MkNod *)msg)->open;
}

/* -------------------------------------------------------------- the message as it is sent */

struct raw_msg {
    Fp__Empty empty;
    ProtobufCMessageUnknownField fields[3];
    uint8_t varint[2][10];
};

static size_t varint_encode(uint64_t v, uint8_t *out)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        out[n++] = (uint8_t)(v | 0x80);
    out[n++] = (uint8_t)v;
    return n;
}

static void add_number(struct raw_msg *r, uint32_t tag, uint64_t v)
{
    size_t i = r->empty.base.n_unknown_fields++;
    r->fields[i] = (ProtobufCMessageUnknownField){
        .tag = tag, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .data = r->varint[i]};
    r->fields[i].len = varint_encode(v, r->varint[i]);
}

/* The body is one field more: its first tag, and all that follows. */
static void add_body(struct raw_msg *r, const uint8_t *packed, size_t len_bytes)
{
    uint64_t tag = 0;
    size_t n = 0;
    if (len_bytes == 0)
        return;
    do {
        tag |= (uint64_t)(packed[n] & 0x7f) << (7 * n);
    } while (packed[n++] & 0x80);
    r->fields[r->empty.base.n_unknown_fields++] = (ProtobufCMessageUnknownField){
        .tag = (uint32_t)(tag >> 3),
        .wire_type = (ProtobufCWireType)(tag & 7),
        .len = len_bytes - n,
        .data = (uint8_t *)packed + n,
    };
}

static void raw_init(struct raw_msg *r, const struct cl_request *q)
{
    fp__empty__init(&r->empty);
    r->empty.base.unknown_fields = r->fields;
    if (q->call.slot != 0) {
        add_number(r, 1, q->call.slot);
        add_number(r, 2, q->call.slot_seq);
    }
    add_body(r, q->packed, q->len_bytes);
}

/* -------------------------------------------------------------- answers */

/* n >= 1. Those for writing fill the list of numbers from behind. */
static void send_releases(struct cl_core *c, const struct cl_released *list, size_t n)
{
    Fp__Release r = FP__RELEASE__INIT;
    uint64_t *numbers = malloc(2 * n * sizeof *numbers);
    if (c->link == CL_LINK_UP && !numbers) { /* not heard is worse than not connected: the next hello tells it */
        fp_rpc_conn_close(c->conn, -ENOMEM);
    } else if (c->link == CL_LINK_UP) {
        r.ino = numbers;
        for (size_t i = 0; i < n; i++)
            if (!list[i].wrote)
                numbers[list[i].write ? n - ++r.n_write_ino : r.n_ino++] = list[i].ino;
        r.write_ino = numbers + n - r.n_write_ino;
        r.torn_ino = numbers + n;
        for (size_t i = 0; i < n; i++)
            if (list[i].torn)
                r.torn_ino[r.n_torn_ino++] = list[i].ino;
        r.wrote_ino = r.torn_ino + r.n_torn_ino;
        for (size_t i = 0; i < n; i++)
            if (list[i].wrote)
                r.wrote_ino[r.n_wrote_ino++] = list[i].ino;
        if (r.n_torn_ino)
            cl_torn_release(c, &r);
        else
            (void)fp_rpc_send(c->conn, FP__MSG_TYPE__MSG_RELEASE, &r.base);
    }
    free(numbers);
}

static ProtobufCMessage *unpack(const struct cl_request *q, const struct fp_rpc_in *in)
{
    return protobuf_c_message_unpack(reply_type(q->type), NULL, in->msg_len_bytes, in->msg);
}

/* Of the directory that it has changed, if the answer has them. */
static const Fp__Attr *dir_after(const struct cl_request *q, const ProtobufCMessage *reply)
{
    if (!reply)
        return NULL;
    if (q->type == FP__MSG_TYPE__MSG_MKNOD)
        return ((const Fp__AttrReply *)reply)->parent;
    return q->type == FP__MSG_TYPE__MSG_UNLINK ? ((const Fp__UnlinkReply *)reply)->parent : NULL;
}

static void answer(struct cl_request *q, int status, const struct fp_rpc_in *in)
{
    ProtobufCMessage *reply = NULL;
    if (status == 0) {
        reply = unpack(q, in);
        if (!reply)
            status = -EPROTO;
    }
    cl_names_answered(&q->mark, true, dir_after(q, reply));
    q->cb(q->arg, status, reply);
    if (reply && !q->keeps_reply)
        protobuf_c_message_free_unpacked(reply, NULL);
}

/* Nobody waits any more. */
static void late_answer(struct cl_request *q, int status, const struct fp_rpc_in *in)
{
    if (status != 0 || !q->opens)
        return;
    Fp__AttrReply *reply = (Fp__AttrReply *)unpack(q, in);
    if (reply && reply->attr)
        send_releases(q->m->core, &(struct cl_released){.ino = reply->attr->ino, .write = q->opens_write}, 1);
    if (reply)
        fp__attr_reply__free_unpacked(reply, NULL);
}

static void give_up(struct cl_request *q, int status)
{
    cl_names_answered(&q->mark, false, NULL);
    q->cb(q->arg, status, NULL);
}

/* q is in no list. Not at once once more: who can't take it now may take it later, or is another one after the next hello. */
static void not_sent(struct cl_core *c, struct cl_request *q, int status)
{
    if (q->said && !c->stopping) {
        q->item.next = c->untaken;
        c->untaken = &q->item;
        return;
    }
    give_up(q, status);
    free(q);
}

static void on_reply(void *arg, int status, const struct fp_rpc_in *in)
{
    struct cl_request *q = arg;
    struct cl_core *c = q->m->core;
    /* No answer: the connection is closing, and on_closed will sort out what was under way. */
    if (!in && status != -EMSGSIZE && status != FP_EDEADLINE && status != -EPROTO)
        return;
    if (in)
        fp_rpc_payload_free(in->payload);
    bool detached = q->call.detached;
    if ((status == FP_ERECALL || status == FP_EPUBLISHING) && !detached && !q->call.early && !q->told_late) {
        q->wait_ms = status == FP_EPUBLISHING || !q->refused ? fp_now_ms() : q->wait_ms;
        q->born_ms = fp_now_ms(); /* the manager answers */
        q->refused = true;
        cl_calls_refuse(&c->calls, &q->call);
        return;
    }
    cl_calls_done(&c->calls, &q->call);
    c->was_refused = q->refused;
    if (q->said && !cl_is_kept(status)) {
        not_sent(c, q, status);
    } else {
        if (detached)
            late_answer(q, status, in);
        else if (in)
            answer(q, status, in);
        else
            give_up(q, status);
        free(q);
    }
    if (c->calls.waiting.head || c->calls.early.head)
        cl_requests_pump(c);
}

/* -------------------------------------------------------------- sending */

static int send_one(struct cl_core *c, struct cl_request *q)
{
    struct raw_msg raw;
    raw_init(&raw, q);
    struct fp_rpc_req req = {.type = (uint16_t)q->type,
                             .msg = &raw.empty.base,
                             .timeout_ms = CL_RPC_TIMEOUT_MS,
                             .cb = on_reply,
                             .arg = q};
    return fp_rpc_call(c->conn, &req, NULL);
}

void cl_requests_pump(struct cl_core *c)
{
    struct cl_call *call;
    while (c->link == CL_LINK_UP && !c->queue_full && (call = cl_calls_next(&c->calls))) {
        struct cl_request *q = request_of(call);
        int rc = send_one(c, q);
        if (rc == 0)
            continue;
        if (rc == -ENOBUFS || rc == -ENOTCONN) {
            cl_calls_unsend(&c->calls, call);
            c->queue_full = true; /* until on_writable, or the next hello */
            return;
        }
        cl_calls_done(&c->calls, call);
        not_sent(c, q, rc);
    }
}

/* Send from this thread, if the core thread sleeps and nothing waits that came before: saves waking it to
 * send, and it wakes up for the answer only. False: to be posted. */
static bool send_directly(struct cl_core *c, struct cl_request *q)
{
    struct cl_call *call;
    bool sent = false;
    if (pthread_mutex_trylock(&c->loop_lock) != 0)
        return false;
    const struct cl_calls *calls = &c->calls;
    if (c->link == CL_LINK_UP && !c->queue_full && !c->stopping && calls->count < REQUESTS_MAX &&
        !calls->resend.head && !calls->early.head && !calls->plain.head && !calls->waiting.head &&
        cl_core_inbox_empty(c)) {
        sent = true;
        cl_calls_add(&c->calls, &q->call);
        call = cl_calls_next(&c->calls);
        if (call && send_one(c, q) < 0)
            cl_calls_unsend(&c->calls, call); /* the next turn of the loop sees to it */
        fp_rpc_flush(c->rpc);
    }
    pthread_mutex_unlock(&c->loop_lock);
    return sent;
}

static void submit(void *arg)
{
    struct cl_request *q = arg;
    struct cl_core *c = q->m->core;
    if (c->stopping || c->calls.count >= REQUESTS_MAX) {
        not_sent(c, q, c->stopping ? FP_ESTOPPING : -ENOBUFS);
        return;
    }
    cl_calls_add(&c->calls, &q->call);
    /* cl_requests_pump follows when the whole batch has been taken in: core.c. */
}

static struct cl_request *request_new(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb,
                                      void *arg)
{
    size_t len = protobuf_c_message_get_packed_size(msg);
    struct cl_request *q = malloc(sizeof *q + len);
    if (!q) {
        FP_ERROR("out of memory: cannot send a request to the manager");
        abort();
    }
    *q = (struct cl_request){
        .call = {.slotted = has_slot(msg)},
        .item = {.fn = submit, .arg = q},
        .m = m,
        .born_ms = fp_now_ms(),
        .type = type,
        .opens = opens_inode(type, msg),
        .opens_write = type == FP__MSG_TYPE__MSG_MKNOD || (type == FP__MSG_TYPE__MSG_OPEN && ((const Fp__Open *)msg)->write),
        .cb = cb,
        .arg = arg,
        .len_bytes = len,
    };
    cl_names_sent(type, msg, &q->mark);
    protobuf_c_message_pack(msg, q->packed);
    return q;
}

void cl_mgr_call(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    cl_core_post_item(m->core, &request_new(m, type, msg, cb, arg)->item);
}

void cl_mgr_call_lasting(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    struct cl_request *q = request_new(m, type, msg, cb, arg);
    q->lasting = true;
    cl_core_post_item(m->core, &q->item);
}

void cl_mgr_call_known(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    struct cl_request *q = request_new(m, type, msg, cb, arg);
    q->lasting = q->answered = true;
    cl_core_post_item(m->core, &q->item);
}

void cl_mgr_call_answered(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    struct cl_request *q = request_new(m, type, msg, cb, arg);
    q->answered = true;
    cl_core_post_item(m->core, &q->item);
}

void cl_mgr_call_answered_soon(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    struct cl_request *q = request_new(m, type, msg, cb, arg);
    q->answered = true;
    if (!send_directly(m->core, q))
        cl_core_post_item(m->core, &q->item);
}

void cl_mgr_call_intr(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg,
                      bool (*interrupted)(void *arg), cl_mgr_cb cb, void *arg)
{
    struct cl_request *q = request_new(m, type, msg, cb, arg);
    q->interrupted = interrupted;
    if (!send_directly(m->core, q))
        cl_core_post_item(m->core, &q->item);
}

void cl_mgr_call_early(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg,
                       bool (*interrupted)(void *arg), cl_mgr_cb cb, void *arg)
{
    struct cl_request *q = request_new(m, type, msg, cb, arg);
    q->call.early = true;
    q->interrupted = interrupted;
    cl_core_post_item(m->core, &q->item);
}

void cl_mgr_call_early_lasting(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    struct cl_request *q = request_new(m, type, msg, cb, arg);
    q->call.early = q->lasting = true;
    cl_core_post_item(m->core, &q->item);
}

/* -------------------------------------------------------------- waiting for the answer */

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    bool done;
    int status;
    ProtobufCMessage *reply;
};

/* Takes the reply over: q->keeps_reply. */
static void on_waited(void *arg, int status, const ProtobufCMessage *reply)
{
    struct waiter *w = arg;
    pthread_mutex_lock(&w->lock);
    w->status = status;
    w->reply = (ProtobufCMessage *)reply;
    w->done = true;
    pthread_cond_signal(&w->done_cond);
    pthread_mutex_unlock(&w->lock);
}

int cl_mgr_call_sync(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, ProtobufCMessage **reply)
{
    struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER, .done_cond = PTHREAD_COND_INITIALIZER};
    assert(!pthread_equal(pthread_self(), m->core->thread));
    struct cl_request *q = request_new(m, type, msg, on_waited, &w);
    q->keeps_reply = true;
    cl_core_post_item(m->core, &q->item);
    pthread_mutex_lock(&w.lock);
    while (!w.done)
        pthread_cond_wait(&w.done_cond, &w.lock);
    pthread_mutex_unlock(&w.lock);
    pthread_mutex_destroy(&w.lock);
    pthread_cond_destroy(&w.done_cond);
    if (reply)
        *reply = w.reply;
    else if (w.reply)
        protobuf_c_message_free_unpacked(w.reply, NULL);
    return w.status;
}

/* -------------------------------------------------------------- the connection comes, goes, and does not
 * come */

void cl_requests_up(struct cl_core *c, uint32_t nslots, bool new_session)
{
    struct cl_call_list lost;
    struct cl_call *call_;
    cl_calls_up(&c->calls, nslots, new_session, &lost);
    while ((call_ = cl_call_list_pop(&lost))) {
        give_up(request_of(call_), FP_ESESSION);
        free(request_of(call_));
    }
    while (c->untaken) {
        struct cl_request *q = c->untaken->arg;
        c->untaken = c->untaken->next;
        cl_calls_add(&c->calls, &q->call);
    }
    cl_requests_pump(c);
}

static void free_list(struct cl_call_list *l)
{
    struct cl_call *call;
    while ((call = cl_call_list_pop(l)))
        free(request_of(call));
}

void cl_requests_fini(struct cl_core *c)
{
    cl_torn_fini(c);
    free_list(&c->calls.resend);
    free_list(&c->calls.plain);
    while (c->untaken) {
        struct cl_request *q = c->untaken->arg;
        c->untaken = c->untaken->next;
        free(q);
    }
}

void cl_requests_down(struct cl_core *c)
{
    struct cl_call_list dropped;
    struct cl_call *call_;
    cl_calls_down(&c->calls, &dropped);
    while ((call_ = cl_call_list_pop(&dropped)))
        free(request_of(call_)); /* its caller went away before */
}

/* End the wait for q: the callback now, the memory when nothing is under way. */
static void abandon(struct cl_core *c, struct cl_request *q, int status)
{
    bool out = cl_calls_detach(&c->calls, &q->call);
    give_up(q, status);
    if (out)
        free(q);
}

static void tick_list(struct cl_core *c, struct cl_call_list *l, uint64_t now_ms)
{
    uint64_t timeout_ms = c->m->opt.manager_timeout_ms;
    uint32_t limit_ms = atomic_load(&c->wait_limit_ms);
    struct cl_call *next;
    if (limit_ms != 0 && limit_ms < timeout_ms && c->link != CL_LINK_UP)
        timeout_ms = limit_ms;
    for (struct cl_call *p = l->head; p; p = next) {
        struct cl_request *q = request_of(p);
        uint64_t age_ms = now_ms - q->born_ms;
        bool maybe_done = q->answered && p->sent_before;
        next = p->next;
        if (p->detached || q->told_late || age_ms < INTERRUPT_MS || (maybe_done && !q->lasting))
            continue;
        if (age_ms >= timeout_ms) {
            FP_LOG_EVERY(10000, FP_LOG_ERROR, "the manager at %s has not answered for %llu s: EIO",
                         c->m->opt.manager_text, (unsigned long long)(timeout_ms / 1000));
            if (q->lasting && (maybe_done || !q->answered)) {
                q->told_late = true;
                q->cb(q->arg, FP_EDEADLINE, NULL);
            } else {
                abandon(c, q, -ETIMEDOUT);
            }
        } else if (q->interrupted && q->interrupted(q->arg)) {
            abandon(c, q, -EINTR);
        }
    }
}

void cl_requests_again(struct cl_core *c)
{
    cl_calls_again(&c->calls);
    cl_requests_pump(c);
}

bool cl_mgr_was_refused(struct cl_mount *m)
{
    return m->core->was_refused;
}

/* The other mount has had its time. */
static void tick_refused(struct cl_core *c, uint64_t now_ms)
{
    uint64_t limit_ms = c->session_timeout_ms + CL_SESSION_MORE_MS;
    struct cl_call *next;
    if (limit_ms < c->m->opt.io_timeout_ms)
        limit_ms = c->m->opt.io_timeout_ms;
    for (struct cl_call *p = c->calls.refused.head; p; p = next) {
        struct cl_request *q = request_of(p);
        next = p->next;
        if (now_ms < q->wait_ms + limit_ms)
            continue;
        FP_LOG_EVERY(10000, FP_LOG_ERROR, "a file could not be opened, cut or given another time: %s", fp_strerror(FP_ERECALL));
        abandon(c, q, FP_ERECALL);
    }
}

void cl_requests_tick(struct cl_core *c, uint64_t now_ms)
{
    if (c->calls.count == 0)
        return;
    tick_refused(c, now_ms);
    tick_list(c, &c->calls.refused, now_ms);
    cl_calls_again(&c->calls);
    cl_requests_pump(c);
    tick_list(c, &c->calls.sent, now_ms);
    tick_list(c, &c->calls.resend, now_ms);
    tick_list(c, &c->calls.early, now_ms);
    tick_list(c, &c->calls.plain, now_ms);
    tick_list(c, &c->calls.waiting, now_ms);
}

void cl_mgr_limit_wait(struct cl_mount *m, uint32_t limit_ms)
{
    atomic_store(&m->core->wait_limit_ms, limit_ms);
}

struct fail_all {
    struct cl_core *c;
    bool lasting; /* these, else the interruptible ones */
    int err;
    sem_t done;
};

static void fail_list(const struct fail_all *f, struct cl_call_list *l)
{
    struct cl_call *next;
    for (struct cl_call *p = l->head; p; p = next) {
        struct cl_request *q = request_of(p);
        next = p->next;
        if (!p->detached && (f->lasting ? q->lasting : q->interrupted != NULL))
            abandon(f->c, q, f->err);
    }
}

static void fail_all(void *arg)
{
    struct fail_all *f = arg;
    fail_list(f, &f->c->calls.sent);
    fail_list(f, &f->c->calls.resend);
    fail_list(f, &f->c->calls.early);
    fail_list(f, &f->c->calls.plain);
    fail_list(f, &f->c->calls.waiting);
    fail_list(f, &f->c->calls.refused);
    sem_post(&f->done);
}

static void fail_and_wait(struct cl_mount *m, bool lasting, int err)
{
    struct fail_all f = {.c = m->core, .lasting = lasting, .err = err};
    sem_init(&f.done, 0, 0);
    cl_core_post(m, fail_all, &f);
    while (sem_wait(&f.done) < 0)
        ; /* EINTR */
    sem_destroy(&f.done);
}

void cl_mgr_fail_interruptible(struct cl_mount *m, int err)
{
    fail_and_wait(m, false, err);
}

void cl_mgr_fail_lasting(struct cl_mount *m, int err)
{
    fail_and_wait(m, true, err);
}

/* -------------------------------------------------------------- one-way messages */

static void send_oneway(void *arg)
{
    struct cl_request *q = arg;
    struct cl_core *c = q->m->core;
    struct raw_msg raw;
    raw_init(&raw, q);
    if (c->link == CL_LINK_UP)
        (void)fp_rpc_send(c->conn, (uint16_t)q->type, &raw.empty.base);
    free(q);
}

void cl_mgr_send(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg)
{
    size_t len = protobuf_c_message_get_packed_size(msg);
    struct cl_request *q = malloc(sizeof *q + len);
    if (!q)
        return; /* as if there were no connection */
    *q = (struct cl_request){.item = {.fn = send_oneway, .arg = q}, .m = m, .type = type, .len_bytes = len};
    protobuf_c_message_pack(msg, q->packed);
    cl_core_post_item(m->core, &q->item);
}

static void on_said(void *arg, int status, const ProtobufCMessage *reply)
{
    (void)arg;
    (void)status;
    (void)reply;
}

/* In its place among one-way messages. */
static void say(void *arg)
{
    struct cl_core *c = ((struct cl_request *)arg)->m->core;
    submit(arg);
    cl_requests_pump(c);
}

void cl_mgr_say(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg)
{
    struct cl_request *q = request_new(m, type, msg, on_said, NULL);
    assert(!q->call.slotted);
    q->said = q->told_late = true; /* nobody waits for it: it has no time */
    q->item.fn = say;
    cl_core_post_item(m->core, &q->item);
}

/* -------------------------------------------------------------- releases */

void cl_requests_release_now(struct cl_core *c)
{
    struct cl_released *list = NULL;
    size_t n = 0;
    pthread_mutex_lock(&c->release_lock);
    if (c->link == CL_LINK_UP) { /* else they wait: the hello on its way may name them as open (link_up) */
        list = c->releases;
        n = c->nreleases;
        c->releases = NULL;
        c->nreleases = c->releases_cap = 0;
    }
    c->release_armed = false;
    pthread_mutex_unlock(&c->release_lock);
    for (size_t i = 0; i < n; i += CL_RELEASE_BATCH)
        send_releases(c, list + i, n - i < CL_RELEASE_BATCH ? n - i : CL_RELEASE_BATCH);
    free(list);
}

static void on_release_timer(uv_timer_t *timer)
{
    cl_requests_release_now(timer->data);
}

void cl_requests_release_later(void *core)
{
    struct cl_core *c = core;
    uv_timer_start(&c->release, on_release_timer, RELEASE_DELAY_MS, 0);
}

struct releasing {
    struct cl_core *c;
    struct cl_released what;
    bool arm;
};

/* With the inode table locked, so that a hello sees an inode either in its list of held ones or in this
 * batch. */
static void add_release(void *arg)
{
    struct releasing *r = arg;
    struct cl_core *c = r->c;
    struct cl_released *list;
    pthread_mutex_lock(&c->release_lock);
    list = fp_grown(c->releases, c->nreleases, &c->releases_cap, sizeof *list);
    if (list) { /* else: the next hello tells it */
        c->releases = list;
        list[c->nreleases++] = r->what;
    }
    r->arm = !c->release_armed;
    c->release_armed = true;
    pthread_mutex_unlock(&c->release_lock);
}

void cl_mgr_release(struct cl_mount *m, struct cl_inode *inode, bool write, bool torn)
{
    struct releasing r = {.c = m->core, .what = {.ino = inode->ino, .write = write, .torn = torn}};
    cl_inode_unhold(m, inode, write, add_release, &r);
    if (r.arm)
        cl_core_post(m, cl_requests_release_later, m->core);
}

void cl_mgr_wrote(struct cl_mount *m, uint64_t ino)
{
    struct releasing r = {.c = m->core, .what = {.ino = ino, .wrote = true}};
    add_release(&r);
    if (r.arm)
        cl_core_post(m, cl_requests_release_later, m->core);
}
