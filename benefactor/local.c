/*
 * Mounts of the same node: leases with descriptors, records they wrote themselves, places to read from.
 *
 * Runs on the loop's thread over fp/fdlink.h; the answers that need the disk (a lease) come later, so each
 * such request keeps a reference to its peer. Everything a peer leased ends with its connection. Chunk data
 * never comes here: the mount reads and writes segments through the descriptors. Each descriptor is opened for
 * its mount: were it ours, an fdatasync of one mount would take the kernel's word of lost data away from all.
 *
 * A reply carries at most 8 descriptors. LOCATE of chunks in more segments than that is answered for the
 * first of the ids only; the caller sees that the list is short and asks again for the rest.
 */
#include "benefactor/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp.pb-c.h"
#include "fp/err.h"
#include "fp/fdlink.h"
#include "fp/log.h"

#define LOCATE_MAX 1024u

struct bnf_local {
    struct fp_fdlink_server *server;
    struct bnf_service *service;
    uint32_t (*bnf_id)(void *arg);
    void *arg;
    void (*closed)(void *arg);
    void *closed_arg;
};

struct peer {
    uint64_t owner;
    uint64_t session;
};

/* ---------------------------------------------------------------- hello */

static int hello(struct bnf_local *l, struct fp_fdlink_peer *p, const struct fp_fdlink_in *in)
{
    Fp__BnfHelloReply reply = FP__BNF_HELLO_REPLY__INIT;
    Fp__BnfHello *m = fp__bnf_hello__unpack(NULL, in->msg_len_bytes, in->msg);
    struct peer *peer;
    int rc = -EBADMSG, limiter = bnf_service_limiter(l->service);

    if (!m)
        return rc;
    peer = fp_fdlink_peer_data(p);
    if (m->store_uuid.len &&
        (m->store_uuid.len != 16 || memcmp(m->store_uuid.data, bnf_service_store_uuid(l->service), 16))) {
        rc = FP_EUUID;
    } else if (limiter >= 0 && !m->keeps_limit) {
        rc = -EOPNOTSUPP; /* it would be faster than the device: let it come over TCP */
    } else if (!peer && !(peer = calloc(1, sizeof(*peer)))) {
        rc = -ENOMEM;
    } else {
        if (!peer->owner)
            peer->owner = bnf_service_owner_new(l->service);
        peer->session = m->session;
        fp_fdlink_peer_set_data(p, peer);
        rc = 0;
    }
    fp__bnf_hello__free_unpacked(m, NULL);
    if (rc)
        return rc;
    reply.bnf_uuid.data = (uint8_t *)bnf_service_uuid(l->service);
    reply.bnf_uuid.len = 16;
    reply.bnf_id = l->bnf_id(l->arg);
    reply.incarnation = bnf_service_incarnation(l->service);
    reply.unsynced_life = bnf_service_unsynced_life(l->service);
    reply.limited = limiter >= 0;
    fp_fdlink_reply(p, in, 0, &reply.base, reply.limited ? &limiter : NULL, reply.limited);
    return 0;
}

/* ---------------------------------------------------------------- leases */

struct lease_call {
    struct bnf_service *service;
    struct fp_fdlink_peer *peer; /* referenced */
    uint64_t id, owner;
};

static void on_leased(void *arg, int status, uint64_t lease)
{
    struct lease_call *c = arg;
    Fp__LeaseReply reply = FP__LEASE_REPLY__INIT;
    Fp__Extent extent = FP__EXTENT__INIT, *extents = &extent;
    struct bnf_extent x;
    struct bnf_file *f = NULL;
    int rc, fd = -1, own = -1;

    if (status == 0 && !bnf_store_lease_extent(bnf_service_store(c->service), lease, &x))
        status = FP_ELEASE;
    if (status == 0) {
        f = bnf_service_file(c->service, x.slot);
        reply.lease = lease;
        reply.bytes = x.len_bytes;
        reply.extents = &extents;
        reply.n_extents = 1;
        extent.segment = x.segment;
        extent.off = x.off_bytes;
        extent.len = x.len_bytes;
        extent.salt = x.salt;
        extent.o_direct = f->o_direct;
    }
    if (f)
        fd = own = bnf_file_reopen(f);
    if (f && own < 0)
        fd = f->fd;
    rc = fp_fdlink_reply_to(c->peer, c->id, FP__MSG_TYPE__MSG_LEASE, status, f ? &reply.base : NULL,
                            f ? &fd : NULL, f ? 1 : 0);
    if (own >= 0)
        close(own);
    if (rc && status == 0)
        bnf_service_lease_return(c->service, c->owner, lease, UINT64_MAX);
    fp_fdlink_peer_put(c->peer);
    free(c);
}

static int lease(struct bnf_local *l, struct fp_fdlink_peer *p, const struct peer *peer,
                 const struct fp_fdlink_in *in)
{
    Fp__Lease *m = fp__lease__unpack(NULL, in->msg_len_bytes, in->msg);
    struct lease_call *c = m ? malloc(sizeof(*c)) : NULL;
    int rc = m ? -ENOMEM : -EBADMSG;

    if (c) {
        *c = (struct lease_call){
            .service = l->service, .peer = fp_fdlink_peer_get(p), .id = in->id, .owner = peer->owner};
        rc = bnf_service_lease(l->service, peer->owner, true, m->want_bytes, m->min_bytes, on_leased, c);
        if (rc) {
            fp_fdlink_peer_put(c->peer);
            free(c);
        }
    }
    if (m)
        fp__lease__free_unpacked(m, NULL);
    return rc;
}

static int lease_return(struct bnf_local *l, struct fp_fdlink_peer *p, const struct peer *peer,
                        const struct fp_fdlink_in *in)
{
    Fp__LeaseReturn *m = fp__lease_return__unpack(NULL, in->msg_len_bytes, in->msg);
    int rc;

    if (!m)
        return -EBADMSG;
    rc = bnf_service_lease_return(l->service, peer->owner, m->lease, m->bytes);
    fp__lease_return__free_unpacked(m, NULL);
    if (rc == 0)
        fp_fdlink_reply(p, in, 0, NULL, NULL, 0);
    return rc;
}

static int stored(struct bnf_local *l, struct fp_fdlink_peer *p, const struct peer *peer,
                  const struct fp_fdlink_in *in)
{
    Fp__Stored *m = fp__stored__unpack(NULL, in->msg_len_bytes, in->msg);
    struct bnf_stored *r = m ? malloc((m->n_records + 1) * sizeof(*r)) : NULL;
    int rc = m ? -ENOMEM : -EBADMSG;

    if (r) {
        for (size_t i = 0; i < m->n_records; i++)
            r[i] = (struct bnf_stored){.chunk = m->records[i]->chunk,
                                       .segment = m->records[i]->segment,
                                       .off_bytes = m->records[i]->off,
                                       .stored_bytes = m->records[i]->stored_bytes,
                                       .len_bytes = m->records[i]->len,
                                       .sum = m->records[i]->sum};
        rc = bnf_service_stored(l->service, peer->owner, m->lease, r, m->n_records);
        if (rc == -EINVAL)
            FP_LOG_EVERY(1000, FP_LOG_WARN,
                         "a mount (pid %d) reported a record outside of its lease: refused",
                         (int)fp_fdlink_peer_pid(p));
    }
    free(r);
    if (m)
        fp__stored__free_unpacked(m, NULL);
    if (rc == 0)
        fp_fdlink_reply(p, in, 0, NULL, NULL, 0);
    return rc;
}

/* ---------------------------------------------------------------- locate */

struct locate {
    Fp__LocateReply reply;
    Fp__Record records[LOCATE_MAX], *pointers[LOCATE_MAX];
    uint64_t salts[FP_FDLINK_FDS_MAX];
    protobuf_c_boolean o_direct[FP_FDLINK_FDS_MAX];
    uint32_t slots[FP_FDLINK_FDS_MAX];
    int fds[FP_FDLINK_FDS_MAX], own[FP_FDLINK_FDS_MAX]; /* own: to be closed, or negative */
    size_t nsegments;
};

/* False: no room for one more segment. */
static bool locate_segment(struct locate *a, const struct bnf_service *v, const struct bnf_place *at)
{
    struct bnf_file *f = bnf_service_file(v, at->slot);

    for (size_t i = 0; i < a->nsegments; i++)
        if (a->slots[i] == at->slot)
            return true;
    if (a->nsegments == FP_FDLINK_FDS_MAX)
        return false;
    a->slots[a->nsegments] = at->slot;
    a->salts[a->nsegments] = at->salt;
    a->o_direct[a->nsegments] = f->o_direct;
    a->own[a->nsegments] = bnf_file_reopen(f);
    a->fds[a->nsegments] = a->own[a->nsegments] >= 0 ? a->own[a->nsegments] : f->fd;
    a->nsegments++;
    return true;
}

static void locate_fill(struct locate *a, struct bnf_service *v, const Fp__ChunkList *m)
{
    for (size_t i = 0; i < m->n_ids && i < LOCATE_MAX; i++) {
        Fp__Record *r = &a->records[i];
        struct bnf_place at;

        fp__record__init(r);
        r->chunk = m->ids[i];
        if (bnf_store_find(bnf_service_store(v), m->ids[i], &at) == 0) {
            if (!locate_segment(a, v, &at))
                return;
            r->segment = at.segment;
            r->off = at.off_bytes;
            r->stored_bytes = at.stored_bytes;
            r->len = at.len_bytes;
            r->sum = at.sum;
        }
        a->pointers[a->reply.n_records++] = r;
    }
}

static int locate(struct bnf_local *l, struct fp_fdlink_peer *p, const struct fp_fdlink_in *in)
{
    Fp__ChunkList *m = fp__chunk_list__unpack(NULL, in->msg_len_bytes, in->msg);
    struct locate *a = m ? malloc(sizeof(*a)) : NULL;
    int rc = m ? -ENOMEM : -EBADMSG;

    if (a) {
        fp__locate_reply__init(&a->reply);
        a->nsegments = 0;
        locate_fill(a, l->service, m);
        a->reply.records = a->pointers;
        a->reply.salts = a->salts;
        a->reply.o_direct = a->o_direct;
        a->reply.n_salts = a->reply.n_o_direct = a->nsegments;
        fp_fdlink_reply(p, in, 0, &a->reply.base, a->fds, a->nsegments);
        for (size_t i = 0; i < a->nsegments; i++)
            if (a->own[i] >= 0)
                close(a->own[i]);
        rc = 0;
    }
    free(a);
    if (m)
        fp__chunk_list__free_unpacked(m, NULL);
    return rc;
}

/* ---------------------------------------------------------------- sync */

struct sync_call {
    struct bnf_service *service;
    struct fp_fdlink_peer *peer; /* referenced */
    uint64_t id;
};

static void on_synced(void *arg, int status)
{
    struct sync_call *c = arg;
    Fp__BnfSyncReply reply = FP__BNF_SYNC_REPLY__INIT;

    reply.unsynced_life = bnf_service_unsynced_life(c->service);
    if (status == -EIO) /* that is what the other life says */
        status = 0;
    fp_fdlink_reply_to(c->peer, c->id, FP__MSG_TYPE__MSG_BNF_SYNC, status, &reply.base, NULL, 0);
    fp_fdlink_peer_put(c->peer);
    free(c);
}

static int sync_all(struct bnf_local *l, struct fp_fdlink_peer *p, const struct fp_fdlink_in *in)
{
    Fp__BnfSync *m = fp__bnf_sync__unpack(NULL, in->msg_len_bytes, in->msg);
    struct sync_call *c = m ? malloc(sizeof(*c)) : NULL;
    int rc = m ? -ENOMEM : -EBADMSG;

    if (c) {
        *c = (struct sync_call){.service = l->service, .peer = fp_fdlink_peer_get(p), .id = in->id};
        rc = bnf_service_sync_failed(l->service, m->failed, m->n_failed, on_synced, c);
    }
    if (c && rc) {
        fp_fdlink_peer_put(c->peer);
        free(c);
    }
    if (m)
        fp__bnf_sync__free_unpacked(m, NULL);
    return rc;
}

/* ---------------------------------------------------------------- the server */

static int dispatch(struct bnf_local *l, struct fp_fdlink_peer *p, const struct fp_fdlink_in *in)
{
    const struct peer *peer = fp_fdlink_peer_data(p);

    if (in->type == FP__MSG_TYPE__MSG_BNF_HELLO)
        return hello(l, p, in);
    if (!peer)
        return -EPROTO;
    switch (in->type) {
    case FP__MSG_TYPE__MSG_LEASE:
        return lease(l, p, peer, in);
    case FP__MSG_TYPE__MSG_LEASE_RETURN:
        return lease_return(l, p, peer, in);
    case FP__MSG_TYPE__MSG_STORED:
        return stored(l, p, peer, in);
    case FP__MSG_TYPE__MSG_LOCATE:
        return locate(l, p, in);
    case FP__MSG_TYPE__MSG_BNF_SYNC:
        return sync_all(l, p, in);
    default:
        return FP_EBADMSG_TYPE;
    }
}

static void on_request(struct fp_fdlink_peer *p, const struct fp_fdlink_in *in, void *arg)
{
    int rc = in->flags & FP_FRAME_ONEWAY ? 0 : dispatch(arg, p, in); /* everything here has an answer: what wants none is not done */

    if (rc)
        fp_fdlink_reply(p, in, rc, NULL, NULL, 0);
}

static void on_closed(struct fp_fdlink_peer *p, int err, void *arg)
{
    struct bnf_local *l = arg;
    struct peer *peer = fp_fdlink_peer_data(p);

    (void)err;
    fp_fdlink_peer_set_data(p, NULL);
    if (peer)
        bnf_service_owner_gone(l->service, peer->owner);
    free(peer);
}

static const struct fp_fdlink_handler handler = {.on_request = on_request, .on_closed = on_closed};

int bnf_local_new(uv_loop_t *loop, const char *path, struct bnf_service *v, uint32_t (*bnf_id)(void *arg),
                  void *arg, struct bnf_local **out)
{
    struct bnf_local *l = calloc(1, sizeof(*l));
    int rc;

    if (!l)
        return -ENOMEM;
    l->service = v;
    l->bnf_id = bnf_id;
    l->arg = arg;
    rc = fp_fdlink_listen(loop, path, &handler, l, &l->server);
    if (rc) {
        free(l);
        return rc;
    }
    *out = l;
    return 0;
}

static void on_server_closed(void *arg)
{
    struct bnf_local *l = arg;
    void (*closed)(void *) = l->closed;
    void *closed_arg = l->closed_arg;

    free(l);
    if (closed)
        closed(closed_arg);
}

void bnf_local_free(struct bnf_local *l, void (*closed)(void *arg), void *arg)
{
    l->closed = closed;
    l->closed_arg = arg;
    fp_fdlink_server_close(l->server, on_server_closed, l);
}
