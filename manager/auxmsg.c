/* Messages between aux-apps of different mounts (MSG_AUX_MSG), changes of their options (MSG_AUX_SET, by fpctl), and what
 * mounts report of them. The manager passes on; it does not know which aux-apps a mount runs, and keeps nothing.
 *
 *   sender --request--> core: who matches? --after the COMMIT--> one-way frames to those connected now
 *
 * At most once, and in order from one sender to one receiver: a receiver that is not connected gets nothing, and
 * one that does not read is passed over when AUX_QUEUE_MAX_BYTES of the shell wait for it (server_batch.c);
 * CtlClient.aux_dropped counts those. Nothing waits in the manager but those queues. A sender whose request is
 * taken back with its group (disk failure) gets that failure. Rejected: mailboxes in the database, which would make
 * a chatty aux-app everybody's load.
 *
 * Called by the core's thread, in a group. */
#include <errno.h>
#include <string.h>

#include "fp/auxwire.h"
#include "fp/grown.h"
#include "fp/log.h"
#include "manager/core_int.h"

#define POSTS_MAX       65536u /* frames of one group */
#define NODE_MAX_BYTES  255u
#define NAME_MAX_BYTES  64u
#define VALUE_MAX_BYTES 4096u
#define STATS_MAX_BYTES (128u << 10)
#define FEATURES_MAX    64u

/* ---------------------------------------------------------------- passing on */

int mgr_post(struct mgr_core *c, struct mgr_conn *to, uint16_t type, const ProtobufCMessage *msg)
{
    struct mgr_post *list;

    if (c->post_count == POSTS_MAX)
        return -EAGAIN;
    list = fp_grown(c->posts, c->post_count, &c->post_cap, sizeof *list);
    if (!list)
        return -ENOMEM;
    c->posts = list;
    c->posts[c->post_count++] = (struct mgr_post){.conn = to, .type = type, .msg = msg};
    return 0;
}

/* To mount number `mount`, or (0) to all of a node, or ("") of all nodes; not to `me` but by number. */
static int post_to(struct mgr_core *c, struct mgr_req *rq, const char *node, uint64_t mount, uint16_t type,
                   const ProtobufCMessage *msg)
{
    Fp__AuxMsgReply *r = MGR_NEW(c, Fp__AuxMsgReply, fp__aux_msg_reply__init);
    size_t before = c->post_count;
    int rc = r ? 0 : mgr_doom(c, -ENOMEM);

    for (size_t i = 0; i < c->session_count && !rc; i++) {
        const struct mgr_session *s = c->sessions[i];

        if (!s->conn || s->conn->closing)
            continue;
        if (mount ? s->id == mount : s != rq->sess && (!node[0] || strcmp(node, s->node) == 0))
            rc = mgr_post(c, s->conn, type, msg);
    }
    if (rc) {
        c->post_count = before;
        return rc;
    }
    r->mounts = (uint32_t)(c->post_count - before);
    rq->reply = &r->base;
    return 0;
}

void mgr_posts_forget(struct mgr_core *c, const struct mgr_conn *conn)
{
    for (size_t i = 0; i < c->post_count; i++)
        if (c->posts[i].conn == conn)
            c->posts[i].conn = NULL;
}

void mgr_posts_pump(struct mgr_core *c, bool send)
{
    for (size_t i = 0; i < c->post_count && send; i++) {
        const struct mgr_post *p = &c->posts[i];

        if (p->conn && !p->conn->closing)
            mgr_out(c, p->type == FP__MSG_TYPE__MSG_BNF_SET ? MGR_OUT_CALL : MGR_OUT_POST, p->conn, p->type, p->msg);
    }
    c->post_count = 0;
}

void mgr_core_dropped(struct mgr_core *c, struct mgr_conn *conn)
{
    (void)c;
    if (!conn->sess)
        return;
    conn->sess->aux_dropped++;
    FP_LOG_EVERY(10000, FP_LOG_WARN, "session %llu: %s:%s does not read the messages of its aux-apps: %llu are lost",
                 (unsigned long long)conn->sess->id, conn->sess->node, conn->sess->mountpoint,
                 (unsigned long long)conn->sess->aux_dropped);
}

MGR_HANDLER(aux_msg)
{
    const Fp__AuxMsg *m = msg;
    Fp__AuxMsg *out = MGR_NEW(c, Fp__AuxMsg, fp__aux_msg__init);

    if (!mgr_app_name_ok(m->app) || strlen(m->node) > NODE_MAX_BYTES || m->data.len > FP_AUX_MESSAGE_MAX_BYTES)
        return -EINVAL;
    if (!out)
        return mgr_doom(c, -ENOMEM);
    out->app = m->app; /* all of it lives as long as the group */
    out->data = m->data;
    out->mount = rq->sess->id;
    out->node = mgr_arena_copy(&c->arena, rq->sess->node, strlen(rq->sess->node) + 1);
    if (!out->node)
        return mgr_doom(c, -ENOMEM);
    return post_to(c, rq, m->node, m->mount, FP__MSG_TYPE__MSG_AUX_MSG, &out->base);
}

MGR_HANDLER(aux_set)
{
    const Fp__AuxSet *m = msg;

    if (!mgr_app_name_ok(m->app) || strlen(m->node) > NODE_MAX_BYTES || !m->name[0] ||
        strlen(m->name) > NAME_MAX_BYTES || strlen(m->value) > VALUE_MAX_BYTES)
        return -EINVAL;
    return post_to(c, rq, m->node, 0, FP__MSG_TYPE__MSG_AUX_SET, &m->base);
}

/* ---------------------------------------------------------------- what mounts report */

/* Reports are kept in memory, one per session: no more than a mount can have to say. */
bool mgr_stats_fit(const Fp__ClientStats *m, size_t len)
{
    bool ok = len <= STATS_MAX_BYTES && m->n_features <= FEATURES_MAX && m->n_auxapps <= FP_AUXW_APPS_MAX;

    for (size_t i = 0; i < m->n_auxapps && ok; i++) {
        const Fp__AuxAppStats *a = m->auxapps[i];

        ok = a->n_threads <= FP_AUXW_THREADS_MAX && a->n_counters <= FP_AUXW_COUNTERS_MAX;
    }
    return ok;
}

/* The next report of this mount, or its end, may come in the same group, before the reply is packed. */
static Fp__ClientStats *stats_copy(struct mgr_core *c, const Fp__ClientStats *m, size_t len)
{
    uint8_t *buf = mgr_arena_alloc(&c->arena, len + 1);

    return buf ? fp__client_stats__unpack(&c->arena.pb, fp__client_stats__pack(m, buf), buf) : NULL;
}

Fp__ClientStats *mgr_stats_within(struct mgr_core *c, const Fp__ClientStats *m, size_t *room)
{
    Fp__ClientStats less;
    size_t len;

    if (!m)
        return NULL;
    len = fp__client_stats__get_packed_size(m);
    if (len > *room) {
        less = *m;
        less.n_auxapps = 0;
        m = &less;
        len = fp__client_stats__get_packed_size(m);
    }
    if (len > *room)
        return NULL;
    *room -= len;
    return stats_copy(c, m, len);
}
