/*
 * Mounts of other nodes: leases without extents, chunks written and read over the network.
 *
 * Runs on the loop's thread over fp/rpc.h. The payload of a WRITE is received into a record buffer right
 * behind the 4 KiB of its header, so that it goes to the device as it came. When buffers are short all
 * connections stop being read until some are free; a payload that has begun to arrive gets its buffer in any
 * case.
 *
 * A client sends a WRITE again when the reply was lost: a chunk that is here already is a success.
 */
#include "benefactor/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fp.pb-c.h"
#include "fp/err.h"
#include "fp/log.h"

struct bnf_remote {
    struct fp_rpc_listener *listener;
    struct bnf_service *service; /* NULL until _serve */
    struct bnf_drain *drain;     /* or NULL */
    uint32_t (*bnf_id)(void *arg);
    void *arg;
    struct link *links;
    bool pressed;
};

struct link {
    struct link *next, **at;
    struct fp_rpc_conn *conn;
    uint64_t owner; /* 0 before hello */
    void *record;   /* buffer that a payload is being received into, or NULL */
    uint32_t record_len_bytes;
};

/* A request whose answer comes later. */
struct call {
    struct bnf_remote *remote;
    struct fp_rpc_conn *conn; /* referenced */
    uint64_t id, owner;
    uint16_t type;
    void *read_handle;
};

static struct call *call_new(struct bnf_remote *r, struct fp_rpc_conn *conn, const struct fp_rpc_in *in,
                             uint64_t owner)
{
    struct call *c = malloc(sizeof(*c));

    if (c)
        *c = (struct call){
            .remote = r, .conn = fp_rpc_conn_get(conn), .id = in->id, .owner = owner, .type = in->type};
    return c;
}

static void call_free(struct call *c)
{
    fp_rpc_conn_put(c->conn);
    free(c);
}

static int call_reply(struct call *c, int status, const ProtobufCMessage *msg)
{
    struct fp_rpc_reply reply = {.id = c->id, .type = c->type, .status = status, .msg = msg};

    return fp_rpc_reply(c->conn, &reply);
}

static void on_call_done(void *arg, int status)
{
    call_reply(arg, status, NULL);
    call_free(arg);
}

/* ---------------------------------------------------------------- requests */

static int hello(struct bnf_remote *r, struct fp_rpc_conn *conn, struct link *link,
                 const struct fp_rpc_in *in)
{
    Fp__BnfHelloReply reply = FP__BNF_HELLO_REPLY__INIT;
    Fp__BnfHello *m = fp__bnf_hello__unpack(NULL, in->msg_len_bytes, in->msg);
    bool same;

    if (!m)
        return -EBADMSG;
    same =
        m->store_uuid.len == 0 ||
        (m->store_uuid.len == 16 && memcmp(m->store_uuid.data, bnf_service_store_uuid(r->service), 16) == 0);
    fp__bnf_hello__free_unpacked(m, NULL);
    if (!same)
        return FP_EUUID;
    if (!link->owner)
        link->owner = bnf_service_owner_new(r->service);
    reply.bnf_uuid.data = (uint8_t *)bnf_service_uuid(r->service);
    reply.bnf_uuid.len = 16;
    reply.bnf_id = r->bnf_id(r->arg);
    reply.incarnation = bnf_service_incarnation(r->service);
    reply.unsynced_life = bnf_service_unsynced_life(r->service);
    fp_rpc_reply_msg(conn, in, 0, &reply.base);
    return 0;
}

static void on_leased(void *arg, int status, uint64_t lease)
{
    struct call *c = arg;
    struct bnf_service *v = c->remote->service;
    Fp__LeaseReply reply = FP__LEASE_REPLY__INIT;
    struct bnf_extent x;

    if (status == 0 && !bnf_store_lease_extent(bnf_service_store(v), lease, &x))
        status = FP_ELEASE;
    if (status == 0) {
        reply.lease = lease;
        reply.bytes = x.len_bytes;
    }
    if (call_reply(c, status, &reply.base) && status == 0)
        bnf_service_lease_return(v, c->owner, lease, UINT64_MAX);
    call_free(c);
}

static int lease(struct bnf_remote *r, struct fp_rpc_conn *conn, const struct link *link,
                 const struct fp_rpc_in *in)
{
    Fp__Lease *m = fp__lease__unpack(NULL, in->msg_len_bytes, in->msg);
    struct call *c = m ? call_new(r, conn, in, link->owner) : NULL;
    int rc = m ? -ENOMEM : -EBADMSG;

    if (c)
        rc = bnf_service_lease(r->service, link->owner, false, m->want_bytes, m->min_bytes, on_leased, c);
    if (c && rc)
        call_free(c);
    if (m)
        fp__lease__free_unpacked(m, NULL);
    return rc;
}

static int lease_return(struct bnf_remote *r, struct fp_rpc_conn *conn, const struct link *link,
                        const struct fp_rpc_in *in)
{
    Fp__LeaseReturn *m = fp__lease_return__unpack(NULL, in->msg_len_bytes, in->msg);
    int rc;

    if (!m)
        return -EBADMSG;
    rc = bnf_service_lease_return(r->service, link->owner, m->lease, m->bytes);
    fp__lease_return__free_unpacked(m, NULL);
    if (rc == 0)
        fp_rpc_reply_msg(conn, in, 0, NULL);
    return rc;
}

/* record: the payload with room for its header; goes back to the pool in any case. */
static int write_chunk(struct bnf_remote *r, struct fp_rpc_conn *conn, const struct link *link,
                       const struct fp_rpc_in *in, void *record)
{
    Fp__ChunkWrite *m = fp__chunk_write__unpack(NULL, in->msg_len_bytes, in->msg);
    uint32_t len = (uint32_t)in->payload_len_bytes;
    struct call *c = NULL;
    int rc = 0;

    if (!m || m->len != len || !len)
        rc = -EBADMSG;
    else if (!(c = call_new(r, conn, in, link->owner)))
        rc = -ENOMEM;
    if (rc)
        bnf_service_buffer_put(r->service, record, len);
    else
        rc = bnf_service_write(r->service, link->owner, m->lease, m->chunk, len, m->block_sums,
                               (uint32_t)m->n_block_sums, record, on_call_done, c);
    if (rc && c)
        call_free(c);
    if (m)
        fp__chunk_write__free_unpacked(m, NULL);
    if (rc == -EEXIST) {
        fp_rpc_reply_msg(conn, in, 0, NULL);
        rc = 0;
    }
    return rc;
}

static void on_reply_sent(void *arg)
{
    struct call *c = arg;

    bnf_service_read_end(c->remote->service, c->read_handle);
    call_free(c);
}

static void on_read(void *arg, int status, const struct bnf_read *d)
{
    struct call *c = arg;
    Fp__ChunkReadReply msg = FP__CHUNK_READ_REPLY__INIT;
    struct iovec iov;
    struct fp_rpc_reply reply = {.id = c->id, .type = c->type, .done = on_reply_sent, .arg = c};

    if (status) {
        call_reply(c, status, NULL);
        call_free(c);
        return;
    }
    c->read_handle = d->handle;
    msg.off = d->off_bytes;
    msg.len = d->len_bytes;
    msg.chunk_len = d->chunk_len_bytes;
    msg.block_sums = (uint64_t *)d->block_sums;
    msg.n_block_sums = d->nblocks;
    iov = (struct iovec){.iov_base = (void *)d->data, .iov_len = d->len_bytes};
    reply.msg = &msg.base;
    reply.payload = &iov;
    reply.payload_iovcnt = 1;
    fp_rpc_reply(c->conn, &reply);
}

static int read_chunk(struct bnf_remote *r, struct fp_rpc_conn *conn, const struct link *link,
                      const struct fp_rpc_in *in)
{
    Fp__ChunkRead *m = fp__chunk_read__unpack(NULL, in->msg_len_bytes, in->msg);
    struct call *c = m ? call_new(r, conn, in, link->owner) : NULL;
    int rc = m ? -ENOMEM : -EBADMSG;

    if (c)
        rc = bnf_service_read(r->service, m->chunk, m->off, m->len, on_read, c);
    if (c && rc)
        call_free(c);
    if (m)
        fp__chunk_read__free_unpacked(m, NULL);
    return rc;
}

/* ---------------------------------------------------------------- chunks of targets */

static void on_payload_sent(void *arg)
{
    struct call *c = arg;

    bnf_drain_fetch_end(c->read_handle);
    call_free(c);
}

static void on_fetched(void *arg, int status, const struct bnf_fetched *f)
{
    struct call *c = arg;
    Fp__FetchReply msg = FP__FETCH_REPLY__INIT;
    struct iovec iov;
    struct fp_rpc_reply reply = {.id = c->id, .type = c->type, .msg = &msg.base};

    if (status) {
        call_reply(c, status, NULL);
        call_free(c);
        return;
    }
    msg.stored = f->stored;
    msg.block_sums = (uint64_t *)f->block_sums;
    msg.n_block_sums = f->nblocks;
    if (!f->data) {
        fp_rpc_reply(c->conn, &reply);
        call_free(c);
        return;
    }
    c->read_handle = f->handle;
    iov = (struct iovec){.iov_base = (void *)f->data, .iov_len = f->len_bytes};
    reply.payload = &iov;
    reply.payload_iovcnt = 1;
    reply.done = on_payload_sent;
    reply.arg = c;
    fp_rpc_reply(c->conn, &reply);
}

static int fetch_chunk(struct bnf_remote *r, struct fp_rpc_conn *conn, const struct link *link, const struct fp_rpc_in *in)
{
    Fp__Fetch *m = r->drain ? fp__fetch__unpack(NULL, in->msg_len_bytes, in->msg) : NULL;
    struct call *c = m ? call_new(r, conn, in, link->owner) : NULL;
    int rc = !r->drain ? FP_EBADMSG_TYPE : m ? -ENOMEM : -EBADMSG;

    if (c)
        rc = bnf_drain_fetch(r->drain, m, on_fetched, c);
    if (c && rc)
        call_free(c);
    if (m)
        fp__fetch__free_unpacked(m, NULL);
    return rc;
}

/* ---------------------------------------------------------------- syncing */

static void on_synced(void *arg, int status)
{
    struct call *c = arg;
    Fp__BnfSyncReply reply = FP__BNF_SYNC_REPLY__INIT;

    reply.unsynced_life = bnf_service_unsynced_life(c->remote->service);
    call_reply(c, status == -EIO ? 0 : status, &reply.base); /* -EIO is what the other life says */
    call_free(c);
}

static int sync_all(struct bnf_remote *r, struct fp_rpc_conn *conn, const struct link *link,
                    const struct fp_rpc_in *in)
{
    struct call *c = call_new(r, conn, in, link->owner);
    int rc = c ? bnf_service_sync(r->service, on_synced, c) : -ENOMEM;

    if (c && rc)
        call_free(c);
    return rc;
}

/* ---------------------------------------------------------------- the server */

static int dispatch(struct bnf_remote *r, struct fp_rpc_conn *conn, struct link *link,
                    const struct fp_rpc_in *in)
{
    if (!r->service)
        return -ECONNREFUSED; /* as if it did not listen yet, which is what it is to a mount: that tries again, and its programs see EIO at most */
    if (in->type == FP__MSG_TYPE__MSG_BNF_HELLO)
        return hello(r, conn, link, in);
    if (!link->owner)
        return -EPROTO;
    switch (in->type) {
    case FP__MSG_TYPE__MSG_LEASE:
        return lease(r, conn, link, in);
    case FP__MSG_TYPE__MSG_LEASE_RETURN:
        return lease_return(r, conn, link, in);
    case FP__MSG_TYPE__MSG_READ:
        return read_chunk(r, conn, link, in);
    case FP__MSG_TYPE__MSG_BNF_SYNC:
        return sync_all(r, conn, link, in);
    case FP__MSG_TYPE__MSG_FETCH:
        return fetch_chunk(r, conn, link, in);
    case FP__MSG_TYPE__MSG_WRITE: /* without a payload, or no memory for it */
        return in->payload_len_bytes ? -ENOMEM : -EBADMSG;
    default:
        return FP_EBADMSG_TYPE;
    }
}

static void *on_payload(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg)
{
    struct bnf_remote *r = arg;
    struct link *link = fp_rpc_conn_data(conn);

    if (!r->service || !link || !link->owner || in->type != FP__MSG_TYPE__MSG_WRITE ||
        in->payload_len_bytes == 0 || in->payload_len_bytes > FP_STORED_MAX_BYTES)
        return NULL; /* rpc's own memory: the request is going to be refused */
    link->record_len_bytes = (uint32_t)in->payload_len_bytes;
    link->record = bnf_service_buffer(r->service, (uint32_t)in->payload_len_bytes, true);
    return link->record ? (uint8_t *)link->record + FP_RECORD_HEADER_BYTES : NULL;
}

static void on_payload_lost(struct fp_rpc_conn *conn, void *buf, void *arg)
{
    struct bnf_remote *r = arg;
    struct link *link = fp_rpc_conn_data(conn);

    (void)buf;
    bnf_service_buffer_put(r->service, link->record, link->record_len_bytes);
    link->record = NULL;
}

static void on_request(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg)
{
    struct bnf_remote *r = arg;
    struct link *link = fp_rpc_conn_data(conn);
    void *record = link ? link->record : NULL;
    bool oneway = in->flags & FP_FRAME_ONEWAY; /* everything here has an answer: what wants none is not done */
    int rc = 0;

    if (record && in->payload == (uint8_t *)record + FP_RECORD_HEADER_BYTES) {
        link->record = NULL;
        if (oneway)
            bnf_service_buffer_put(r->service, record, (uint32_t)in->payload_len_bytes);
        else
            rc = write_chunk(r, conn, link, in, record);
    } else {
        fp_rpc_payload_free(in->payload);
        if (!oneway)
            rc = link ? dispatch(r, conn, link, in) : -ENOMEM;
    }
    if (rc)
        fp_rpc_reply_msg(conn, in, rc, NULL);
}

static void on_up(struct fp_rpc_conn *conn, void *arg)
{
    struct bnf_remote *r = arg;
    struct link *link = calloc(1, sizeof(*link));

    if (!link) {
        fp_rpc_conn_close(conn, -ENOMEM);
        return;
    }
    link->conn = conn;
    link->next = r->links;
    link->at = &r->links;
    if (r->links)
        r->links->at = &link->next;
    r->links = link;
    fp_rpc_conn_set_data(conn, link);
    if (r->pressed)
        fp_rpc_conn_pause(conn);
}

static void on_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    struct bnf_remote *r = arg;
    struct link *link = fp_rpc_conn_data(conn);

    (void)err;
    FP_DEBUG("connection of %s closed: %s", fp_rpc_conn_peer(conn), why);
    if (!link)
        return;
    fp_rpc_conn_set_data(conn, NULL);
    *link->at = link->next;
    if (link->next)
        link->next->at = link->at;
    if (link->owner)
        bnf_service_owner_gone(r->service, link->owner);
    free(link);
}

static const struct fp_rpc_handler handler = {
    .on_up = on_up,
    .on_request = on_request,
    .on_payload = on_payload,
    .on_payload_lost = on_payload_lost,
    .on_closed = on_closed,
};

int bnf_remote_new(struct fp_rpc *rpc, const char *addr, uint32_t (*bnf_id)(void *arg), void *arg,
                   struct bnf_remote **out)
{
    struct bnf_remote *r = calloc(1, sizeof(*r));
    int rc;

    if (!r)
        return -ENOMEM;
    r->bnf_id = bnf_id;
    r->arg = arg;
    rc = fp_rpc_listen(rpc, addr, &handler, r, &r->listener);
    if (rc) {
        free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void bnf_remote_serve(struct bnf_remote *r, struct bnf_service *v)
{
    r->service = v;
}

void bnf_remote_fetches(struct bnf_remote *r, struct bnf_drain *d)
{
    r->drain = d;
}

uint16_t bnf_remote_port(const struct bnf_remote *r)
{
    return fp_rpc_listener_port(r->listener);
}

void bnf_remote_press(struct bnf_remote *r, bool pressed)
{
    if (r->pressed == pressed)
        return;
    r->pressed = pressed;
    for (struct link *l = r->links; l; l = l->next) {
        if (pressed)
            fp_rpc_conn_pause(l->conn);
        else
            fp_rpc_conn_resume(l->conn);
    }
}

void bnf_remote_stop(struct bnf_remote *r)
{
    if (r->listener)
        fp_rpc_listener_close(r->listener);
    r->listener = NULL;
    for (struct link *l = r->links; l; l = l->next)
        fp_rpc_conn_finish(l->conn);
}

void bnf_remote_free(struct bnf_remote *r)
{
    free(r);
}
