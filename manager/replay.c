/* The answers that are kept for requests that come again: one row per (session, slot), in the transaction of the change.
 *
 * Called by core.c around the handlers of requests with a slot, on the loop's thread. Failures are not kept: a request that changed nothing may be
 * executed again. Kept in the database rather than in memory, since a manager that dies between its COMMIT and its answer must not execute twice. */
#include <errno.h>

#include "fp/log.h"
#include "manager/core_int.h"

int mgr_replay_get(struct mgr_core *c, struct mgr_session *s, uint32_t slot, uint64_t seq, uint16_t type,
                   ProtobufCBinaryData *body)
{
    const enum mgr_stmt st = MGR_ST_REPLY_GET;
    uint64_t have_seq;
    uint16_t have_type;
    const void *p;
    int rc;

    if (slot > MGR_SLOTS_MAX || seq == 0 || seq > INT64_MAX)
        return -EINVAL;
    rc = mgr_db_one(&c->db, REPLY_GET, DBI(s->id), DBI(slot));
    if (rc <= 0)
        return rc;
    have_seq = (uint64_t)mgr_col(&c->db, st, 0);
    have_type = (uint16_t)mgr_col(&c->db, st, 1);
    if (have_seq == seq && have_type == type) {
        p = mgr_col_blob(&c->db, st, 2, &body->len);
        body->data = mgr_arena_copy(&c->arena, p, body->len);
    }
    mgr_db_reset(&c->db, st);
    if (have_seq < seq)
        return 0;
    if (have_seq > seq || have_type != type) {
        FP_ERROR("session %llu uses slot %u wrongly (%llu after %llu): report this",
                 (unsigned long long)s->id, slot, (unsigned long long)seq, (unsigned long long)have_seq);
        return -EINVAL;
    }
    return body->data ? 1 : mgr_doom(c, -ENOMEM);
}

int mgr_replay_put(struct mgr_core *c, struct mgr_session *s, uint32_t slot, uint64_t seq, uint16_t type,
                   const ProtobufCMessage *reply)
{
    size_t len = reply ? protobuf_c_message_get_packed_size(reply) : 0;
    uint8_t *buf = mgr_arena_alloc(&c->arena, len + 1);

    if (!buf)
        return mgr_doom(c, -ENOMEM);
    if (reply)
        protobuf_c_message_pack(reply, buf);
    return mgr_db_exec(&c->db, REPLY_PUT, DBI(s->id), DBI(slot), DBI(seq), DBI(type), DBB(buf, len));
}
