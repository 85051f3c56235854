/* The core: dispatch of frames, groups of requests as transactions, replies.
 *
 * A group is one transaction (see core.h). It begins when the shell has something, takes all that has
 * arrived, and is committed; replies leave afterwards. Requests check before they write, so one that fails
 * leaves nothing behind; when the database fails, everything of the group is taken back and answered with
 * that failure, and the state in memory is read again (mgr_reload). Frames that are not replies are made only
 * after the COMMIT, from what is committed ("pump").
 *
 * Called by the shell's one thread. The table below is the list of everything the manager understands. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "life.pb-c.h"
#include "fp/bug.h"
#include "fp/err.h"
#include "fp/grown.h"
#include "fp/log.h"
#include "fp/record.h"
#include "manager/core_int.h"
#include "manager/ext.h"
#include "manager/drain.h"
#include "manager/level.h"
#include "manager/locks.h"
#include "manager/sets.h"
#include "manager/version.h"

/* What messages with replay protection begin with. */
struct slotted {
    ProtobufCMessage base;
    uint32_t slot;
    uint64_t slot_seq;
};
#define CHECK_SLOTTED(T)                                                                                     \
    _Static_assert(offsetof(T, slot) == offsetof(struct slotted, slot) &&                                    \
                       offsetof(T, slot_seq) == offsetof(struct slotted, slot_seq),                          \
                   "slot and slot_seq must be the first fields")
CHECK_SLOTTED(Fp__SetAttr);
CHECK_SLOTTED(Fp__MkNod);
CHECK_SLOTTED(Fp__Unlink);
CHECK_SLOTTED(Fp__Rename);
CHECK_SLOTTED(Fp__Link);
CHECK_SLOTTED(Fp__SetXattr);
CHECK_SLOTTED(Fp__RemoveXattr);
CHECK_SLOTTED(Fp__Commit);
CHECK_SLOTTED(Fp__Punch);
CHECK_SLOTTED(Fp__Clone);
CHECK_SLOTTED(Fp__Hold);
CHECK_SLOTTED(Fp__Notes);
CHECK_SLOTTED(Fp__NoteFind);
CHECK_SLOTTED(Fp__Table);
CHECK_SLOTTED(Fp__Policy);

enum { ANY = 1, CLIENT = 2, BNF = 4, CTL = 8, REPLAY = 16, ONEWAY = 32 };

struct handler {
    int (*fn)(struct mgr_core *c, struct mgr_req *rq, const void *msg);
    const ProtobufCMessageDescriptor *in;
    const ProtobufCMessageDescriptor *out; /* to read a kept answer; NULL: empty */
    unsigned flags;
};

#define H(type, name, in_, out_, flags_)                                                                     \
    [FP__MSG_TYPE__MSG_##type] = {mgr_##name, &fp__##in_##__descriptor, out_, flags_}
#define OUT(name) &fp__##name##__descriptor
static const struct handler handlers[] = {
    H(HELLO, hello, hello, NULL, ANY),
    H(BYE, bye, bye, NULL, CLIENT | BNF | CTL),
    H(LOOKUP, lookup, lookup, NULL, CLIENT | CTL),
    H(GETATTR, getattr, inode_req, NULL, CLIENT | CTL),
    H(SETATTR, setattr, set_attr, OUT(attr_reply), CLIENT | REPLAY),
    H(MKNOD, mknod, mk_nod, OUT(attr_reply), CLIENT | REPLAY),
    H(UNLINK, unlink, unlink, OUT(unlink_reply), CLIENT | REPLAY),
    H(RENAME, rename, rename, NULL, CLIENT | REPLAY),
    H(LINK, link, link, OUT(attr_reply), CLIENT | REPLAY),
    H(READLINK, readlink, inode_req, NULL, CLIENT | CTL),
    H(READDIR, readdir, read_dir, NULL, CLIENT | CTL),
    H(OPEN, open, open, NULL, CLIENT),
    H(RELEASE, release, release, NULL, CLIENT | ONEWAY),
    H(SETXATTR, setxattr, set_xattr, NULL, CLIENT | REPLAY),
    H(GETXATTR, getxattr, get_xattr, NULL, CLIENT | CTL),
    H(LISTXATTR, listxattr, inode_req, NULL, CLIENT | CTL),
    H(REMOVEXATTR, removexattr, remove_xattr, NULL, CLIENT | REPLAY),
    H(STATFS, statfs, stat_fs, NULL, CLIENT | CTL),
    H(INODES, inodes, inodes, NULL, CLIENT),
    H(LOCK, lock, lock, NULL, CLIENT),
    H(RECALL, recall, recall, NULL, CLIENT | ONEWAY),
    H(CLOSED, closed, closed, NULL, CLIENT | ONEWAY),
    H(SLICEMAP, slicemap, slice_map, NULL, CLIENT | CTL),
    H(COMMIT, commit, commit, OUT(commit_reply), CLIENT | REPLAY),
    H(PUNCH, punch, punch, OUT(commit_reply), CLIENT | REPLAY),
    H(SEEK, seek, seek, NULL, CLIENT | CTL),
    H(CLONE, clone, clone, OUT(commit_reply), CLIENT | REPLAY),
    H(BADCHUNK, badchunk, bad_chunk, NULL, CLIENT | BNF | ONEWAY),
    H(SYNC, sync, sync, NULL, CLIENT | BNF | CTL),
    H(HOLD, hold_chunks, hold, OUT(hold_reply), CLIENT | REPLAY),
    H(NOTES, notes, notes, OUT(notes_reply), CLIENT | REPLAY),
    H(NOTE_FIND, note_find, note_find, OUT(notes_reply), CLIENT | REPLAY),
    H(TABLE, aux_table, table, OUT(table_reply), CLIENT | REPLAY),
    H(AUX_MSG, aux_msg, aux_msg, NULL, CLIENT),
    H(AUX_SET, aux_set, aux_set, NULL, CTL),
    H(CLIENT_STATS, client_stats, client_stats, NULL, CLIENT | ONEWAY),
    H(KEEPALIVE, keepalive, keep_alive, NULL, BNF | ONEWAY),
    H(CTL_STATUS, ctl_status, empty, NULL, CLIENT | BNF | CTL),
    H(CTL_LAYOUT, ctl_layout, ctl_layout, NULL, CLIENT | CTL),
    H(CTL_STOP, ctl_stop, empty, NULL, CTL),
    H(TASK_DONE, task_done, task_done, NULL, BNF),
    H(CTL_DRAIN, ctl_drain, ctl_drain, NULL, CTL),
    H(CTL_STAGE, ctl_stage, ctl_stage, NULL, CTL),
    H(LEVEL, level, level_ask, NULL, CLIENT | CTL),
    H(POLICY, policy, policy, OUT(policy_reply), CLIENT | CTL | REPLAY),
    H(CTL_SETS, ctl_sets, ctl_sets, NULL, CLIENT | CTL),
    H(CTL_SET_SAY, ctl_set_say, ctl_set_say, NULL, CTL),
    H(CTL_VERSIONS, ctl_versions, ctl_versions, NULL, CTL),
    H(CTL_BNF_SET, ctl_bnf_set, ctl_bnf_set, NULL, CTL),
    H(CTL_LOCKS, ctl_locks, ctl_locks, NULL, CLIENT | CTL),
    H(CTL_CONVERSIONS, ctl_conversions, ctl_conversions, NULL, CTL),
    H(CTL_RELEASE, ctl_release, empty, NULL, CTL),
};

static const struct handler *handler_of(uint16_t type)
{
    return type < sizeof handlers / sizeof handlers[0] && handlers[type].fn ? &handlers[type] : NULL;
}

/* ---------------------------------------------------------------- connections and hello */

struct mgr_conn *mgr_core_conn_new(struct mgr_core *c, void *user)
{
    struct mgr_conn *conn = calloc(1, sizeof *conn);

    if (!conn)
        return NULL;
    conn->user = user;
    conn->born_ms = c->now.ms;
    conn->next = c->conns;
    if (c->conns)
        c->conns->prev = conn;
    c->conns = conn;
    return conn;
}

void mgr_core_conn_lost(struct mgr_core *c, struct mgr_conn *conn)
{
    if (conn->sess)
        mgr_session_lost(c, conn->sess);
    if (conn->bnf)
        mgr_bnf_lost(c, conn->bnf);
    mgr_posts_forget(c, conn);
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        c->conns = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    free(conn);
}

static int hello_check(const struct mgr_core *c, const struct mgr_conn *conn, const Fp__Hello *h)
{
    if (h->protocol != 1)
        return FP_EPROTO_VERSION;
    if (h->store_uuid.len && (h->store_uuid.len != 16 || memcmp(h->store_uuid.data, c->uuid, 16) != 0))
        return FP_EUUID;
    if (h->role != FP__ROLE__ROLE_CLIENT && h->role != FP__ROLE__ROLE_BENEFACTOR &&
        h->role != FP__ROLE__ROLE_CONTROL)
        return -EINVAL;
    if (conn->role != FP__ROLE__ROLE_UNSET)
        return -EALREADY;
    return c->stop_ms && h->role != FP__ROLE__ROLE_CONTROL ? FP_ESTOPPING : 0;
}

MGR_HANDLER(hello)
{
    const Fp__Hello *h = msg;
    Fp__HelloReply *r = MGR_NEW(c, Fp__HelloReply, fp__hello_reply__init);
    int rc = hello_check(c, rq->conn, h);

    rq->close = true;
    if (rc)
        return rc;
    if (!r)
        return mgr_doom(c, -ENOMEM);
    r->store_uuid.data = c->uuid;
    r->store_uuid.len = 16;
    r->session_timeout_ms = (uint32_t)c->o.session_timeout_ms;
    r->slots = MGR_SLOTS_MAX;
    r->root_ino = MGR_ROOT_INO;
    r->chunk_size_bytes = c->chunk_size;
    r->stripe = c->stripe;
    if (h->role == FP__ROLE__ROLE_CLIENT)
        rc = mgr_session_hello(c, rq, h, r);
    else if (h->role == FP__ROLE__ROLE_BENEFACTOR)
        rc = mgr_bnf_hello(c, rq, h, r);
    if (rc)
        return rc;
    rq->conn->role = h->role;
    rq->close = false;
    rq->reply = &r->base;
    return 0;
}

/* ---------------------------------------------------------------- requests */

static unsigned role_flag(const struct mgr_conn *conn)
{
    switch (conn->role) {
    case FP__ROLE__ROLE_CLIENT:
        return CLIENT;
    case FP__ROLE__ROLE_BENEFACTOR:
        return BNF;
    case FP__ROLE__ROLE_CONTROL:
        return CTL;
    default:
        return 0;
    }
}

static int allowed(const struct mgr_conn *conn, const struct handler *h)
{
    if (!h)
        return FP_EBADMSG_TYPE;
    if (!(h->flags & (ANY | role_flag(conn))))
        return -EPERM;
    if (conn->role == FP__ROLE__ROLE_CLIENT && !conn->sess)
        return FP_ESESSION; /* taken over by another connection, or expired */
    return 0;
}

static int hold_again(struct mgr_core *c, struct mgr_session *s, uint64_t ino)
{
    struct mgr_inode in;
    int rc = mgr_hold(c, s, ino, true);

    rc = rc ? rc : mgr_inode_get(c, ino, &in);
    return rc == -ENOENT ? 0 : rc ? rc : mgr_sets_opened(c, &in);
}

/* What it had changed of a file that was put back since, because its session was given up: that all went well would not be true any more. */
static int still_holds(struct mgr_core *c, const struct mgr_req *rq, const struct handler *h, const void *msg)
{
    const Fp__SetAttr *sa = msg;

    if (h->fn == mgr_commit)
        return mgr_is_overtaken(c, rq->sess, ((const Fp__Commit *)msg)->ino);
    if (h->fn == mgr_punch)
        return mgr_is_overtaken(c, rq->sess, ((const Fp__Punch *)msg)->ino);
    return h->fn == mgr_setattr && sa->valid & FP__SET_ATTR_VALID__SET_SIZE ? mgr_is_overtaken(c, rq->sess, sa->ino) : 0;
}

/* An answer that is kept, read back. An open MkNod holds its inode again: after a hello the session holds
 * only what it told, and of this one it had no answer. */
static int replay(struct mgr_core *c, struct mgr_req *rq, const struct handler *h, const void *msg,
                  ProtobufCBinaryData body)
{
    const Fp__MkNod *mk = msg;
    ProtobufCMessage *out = NULL;
    int rc = still_holds(c, rq, h, msg);

    if (rc)
        return rc;
    if (h->out) {
        out = protobuf_c_message_unpack(h->out, &c->arena.pb, body.len, body.data);
        if (!out)
            return -EIO;
    }
    rq->reply = out;
    rq->durable = h->fn == mgr_commit && ((const Fp__Commit *)msg)->durable;
    if (h->fn == mgr_mknod && (mk->open || mk->tmpfile) && ((Fp__AttrReply *)out)->attr) {
        ((Fp__AttrReply *)out)->behind = false; /* the lease ended with the connection, since the client could not name it */
        return hold_again(c, rq->sess, ((Fp__AttrReply *)out)->attr->ino);
    }
    if (h->fn == mgr_notes || h->fn == mgr_note_find)
        return mgr_notes_replay(c, (Fp__NotesReply *)out);
    return 0;
}

static int run(struct mgr_core *c, struct mgr_req *rq, const struct handler *h, uint16_t type,
               const void *msg)
{
    const struct slotted *s = msg;
    ProtobufCBinaryData body = {0, NULL};
    int rc;

    if (!(h->flags & REPLAY) || !s->slot || !rq->sess || FP_BUG("mgr-executes-twice")) /* fpctl has no slots */
        return h->fn(c, rq, msg);
    rc = mgr_replay_get(c, rq->sess, s->slot, s->slot_seq, type, &body);
    if (rc > 0)
        return replay(c, rq, h, msg, body);
    rc = rc ? rc : h->fn(c, rq, msg);
    if (rc || rq->forget)
        return rc;
    return mgr_replay_put(c, rq->sess, s->slot, s->slot_seq, type, rq->kept ? rq->kept : rq->reply);
}

static int dispatch(struct mgr_core *c, struct mgr_req *rq, uint16_t type, const uint8_t *msg, size_t len)
{
    const struct handler *h = handler_of(type);
    int rc = allowed(rq->conn, h);
    ProtobufCMessage *m;

    assert(c->in_group);
    if (rc)
        return rc;
    rq->sess = rq->conn->sess;
    if (rq->sess)
        rq->sess->seen_ms = c->now.ms;
    m = protobuf_c_message_unpack(h->in, &c->arena.pb, len, msg);
    if (!m)
        return -EBADMSG;
    rc = run(c, rq, h, type, m);
    return c->db.err ? c->db.err : rc;
}

void mgr_core_request(struct mgr_core *c, struct mgr_conn *conn, uint16_t type, const uint8_t *msg,
                      size_t len, struct mgr_reply *reply)
{
    struct mgr_req rq = {.conn = conn};

    reply->status = dispatch(c, &rq, type, msg, len);
    reply->msg = reply->status ? NULL : rq.reply;
    reply->close = reply->status && rq.close;
    reply->durable = !reply->status && rq.durable;
    c->durable |= reply->durable;
}

void mgr_core_notice(struct mgr_core *c, struct mgr_conn *conn, uint16_t type, const uint8_t *msg, size_t len)
{
    struct mgr_req rq = {.conn = conn};
    int rc = dispatch(c, &rq, type, msg, len);

    if (rc && rc != c->db.err && rc != FP_ESESSION)
        FP_LOG_EVERY(1000, FP_LOG_WARN, "one-way message %u: %s", type, fp_strerror(rc));
}

void mgr_core_answer(struct mgr_core *c, struct mgr_conn *conn, uint16_t type, int status, const uint8_t *msg,
                     size_t len)
{
    struct mgr_bnf *b = conn->bnf;
    const ProtobufCMessageDescriptor *d = type == FP__MSG_TYPE__MSG_DELETE         ? OUT(chunk_list)
                                          : type == FP__MSG_TYPE__MSG_INVENTORY    ? OUT(inventory_reply)
                                          : type == FP__MSG_TYPE__MSG_BNF_SYNC_ALL ? OUT(bnf_sync_reply)
                                          : type == FP__MSG_TYPE__MSG_BNF_SET      ? OUT(bnf_set_reply)
                                                                                   : NULL;
    ProtobufCMessage *m = NULL;

    if (conn->sess && type == FP__MSG_TYPE__MSG_ALONE) {
        const Fp__Alone *a = status ? NULL : (const Fp__Alone *)protobuf_c_message_unpack(OUT(alone), &c->arena.pb, len, msg);

        mgr_session_answered(c, conn->sess, status, a && a->forgot);
    }
    if (b && type == FP__MSG_TYPE__MSG_TASKS)
        mgr_tasks_taken(c, b, status);
    if (!b || !d)
        return;
    if (!status) {
        m = protobuf_c_message_unpack(d, &c->arena.pb, len, msg);
        status = m ? 0 : -EBADMSG;
    }
    if (type == FP__MSG_TYPE__MSG_BNF_SET) {
        mgr_bnf_was_set(b, status, (const Fp__BnfSetReply *)m);
        return;
    }
    if (status)
        FP_LOG_EVERY(10000, FP_LOG_WARN, "benefactor %u: %s: %s: tried again", b->id,
                     type == FP__MSG_TYPE__MSG_DELETE ? "delete" : type == FP__MSG_TYPE__MSG_INVENTORY ? "inventory" : "sync", fp_strerror(status));
    if (type == FP__MSG_TYPE__MSG_DELETE)
        mgr_bnf_deleted(c, b, status, (const Fp__ChunkList *)m);
    else if (type == FP__MSG_TYPE__MSG_BNF_SYNC_ALL)
        mgr_round_answered(c, b, status, m ? ((const Fp__BnfSyncReply *)m)->unsynced_life : 0);
    else
        mgr_inventory_page(c, b, status, (const Fp__InventoryReply *)m);
}

/* ---------------------------------------------------------------- groups */

int mgr_doom(struct mgr_core *c, int err)
{
    if (!c->db.err)
        c->db.err = err;
    return err;
}

void mgr_core_begin(struct mgr_core *c, struct mgr_now now)
{
    assert(!c->in_group);
    c->in_group = true;
    c->now = now;
    c->durable = false;
    c->busy = false;
    if (c->reload && mgr_reload(c))
        return; /* db.err is set: every request of this group fails with it */
    mgr_db_begin(&c->db);
    (void)mgr_lost_again(c); /* before anybody is heard who may bring it; a failure dooms the group */
}

/* Who has been heard in this group already is not made to have been heard in the future. */
static void forgive(uint64_t *seen_ms, uint64_t gap_ms, uint64_t now_ms)
{
    *seen_ms = *seen_ms + gap_ms < now_ms ? *seen_ms + gap_ms : now_ms;
}

void mgr_core_tick(struct mgr_core *c)
{
    uint64_t gap = c->tick_ms ? c->now.ms - c->tick_ms : 0;

    c->tick_ms = c->now.ms;
    if (gap > 1000) { /* we were away (stopped, slow disk): nobody could be heard meanwhile */
        for (size_t i = 0; i < c->session_count; i++)
            forgive(&c->sessions[i]->seen_ms, gap, c->now.ms);
        for (size_t i = 0; i < c->bnf_count; i++)
            forgive(&c->bnfs[i]->seen_ms, gap, c->now.ms);
        for (struct mgr_conn *conn = c->conns; conn; conn = conn->next)
            forgive(&conn->born_ms, gap, c->now.ms);
    }
    for (struct mgr_conn *conn = c->conns; conn; conn = conn->next)
        if (conn->role == FP__ROLE__ROLE_UNSET && c->now.ms - conn->born_ms > MGR_HELLO_MS)
            mgr_conn_close(c, conn);
    (void)mgr_lost_tick(c); /* likewise; before sets are looked at */
    mgr_session_tick(c);
    mgr_bnf_tick(c);
    mgr_holds_sweep(c);
    mgr_locks_due(c);
    mgr_leases_tick(c);
    if (c->now.ms >= c->sweep_at_ms || c->versions->look || c->versions->returning)
        mgr_versions_sweep(c);
    mgr_auto_tick(c);
    mgr_drain_tick(c);
    mgr_sets_tick(c);
    if (c->now.ms >= c->sweep_at_ms) {
        c->sweep_at_ms = c->now.ms + 500;
        mgr_orphan_sweep(c);
    }
}

int mgr_counters_store(struct mgr_core *c)
{
    const struct mgr_counters *n = &c->n;
    int rc = 0;

    if (n->dirty)
        rc = mgr_db_exec(&c->db, COUNTERS_PUT, DBI(n->next_ino), DBI(n->next_cookie), DBI(n->next_session),
                         DBI(n->next_bnf), DBI(n->inodes), DBI(n->chunks), DBI(n->slices));
    c->n.dirty = false;
    return rc;
}

int mgr_ids(struct mgr_core *c, enum mgr_stmt st, int rc, uint64_t **out, size_t *count)
{
    size_t cap = 0;

    *out = NULL;
    *count = 0;
    for (; rc > 0; rc = mgr_db_step(&c->db, st)) {
        uint64_t *list = mgr_arena_grow(&c->arena, *out, *count, &cap, sizeof *list);

        if (!list) {
            mgr_db_reset(&c->db, st);
            return mgr_doom(c, -ENOMEM);
        }
        *out = list;
        list[(*count)++] = (uint64_t)mgr_col(&c->db, st, 0);
    }
    return rc;
}

void mgr_out(struct mgr_core *c, enum mgr_out_kind kind, struct mgr_conn *conn, uint16_t type,
             const ProtobufCMessage *msg)
{
    struct mgr_out *list = fp_grown(c->outs, c->out_count, &c->out_cap, sizeof *list);

    if (!list) {
        FP_LOG_EVERY(1000, FP_LOG_ERROR, "out of memory: a message is lost");
        return;
    }
    c->outs = list;
    /* Were a chunk deleted before the transaction that dropped it is durable, a crash of the machine would
     * bring back a map that names it. */
    c->outs[c->out_count++] = (struct mgr_out){.kind = kind,
                                               .user = conn->user,
                                               .type = type,
                                               .durable = type == FP__MSG_TYPE__MSG_DELETE,
                                               .msg = msg};
}

static void pump_closing(struct mgr_core *c)
{
    for (struct mgr_conn *conn = c->conns; conn && c->closing; conn = conn->next) {
        if (!conn->closing || conn->close_sent)
            continue;
        conn->close_sent = true;
        mgr_out(c, MGR_OUT_CLOSE, conn, 0, NULL);
    }
    c->closing = false;
}

int mgr_core_end(struct mgr_core *c, bool *durable)
{
    int err;

    assert(c->in_group);
    if (!c->db.err)
        mgr_drain_step(c);
    if (!c->db.err)
        mgr_levels_step(c);
    if (!c->db.err)
        mgr_uniques_step(c);
    if (!c->db.err) {
        mgr_bnf_store(c);
        mgr_counters_store(c);
    }
    err = mgr_db_commit(&c->db);
    c->in_group = false;
    mgr_returns_say(c, !err);
    mgr_lost_done(c, !err);
    mgr_leases_group_over(c, !err);
    if (!err && c->new_number)
        mgr_db_sync(&c->db); /* a failure is in the log, and durable requests fail */
    c->new_number = false;
    *durable = c->durable && !err;
    mgr_posts_pump(c, !err);
    if (err) {
        mgr_session_undo(c);
        mgr_locks_undo(c->locks);
        c->reload = true;
        c->busy = false; /* what was begun comes to nothing until the disk takes it again: not before the next tick */
        pump_closing(c);
        return err;
    }
    mgr_session_done(c);
    mgr_session_pump(c);
    mgr_locks_pump(c);
    mgr_leases_pump(c);
    mgr_stop_pump(c);
    mgr_bnf_pump(c);
    mgr_task_pump(c);
    mgr_pace_pump(c);
    pump_closing(c);
    c->db.err = 0; /* a pump that could not read tries again */
    return 0;
}

bool mgr_core_out_next(struct mgr_core *c, struct mgr_out *out)
{
    if (c->out_pos == c->out_count)
        return false;
    *out = c->outs[c->out_pos++];
    return true;
}

void mgr_core_reset(struct mgr_core *c)
{
    c->out_pos = c->out_count = 0;
    if (c->drain)
        c->drain->rescue_sums.of = NULL; /* it was in that memory */
    mgr_arena_reset(&c->arena);
}

bool mgr_core_busy(const struct mgr_core *c)
{
    return c->busy;
}

struct mgr_db *mgr_core_db(struct mgr_core *c)
{
    return &c->db;
}

const uint8_t *mgr_core_uuid(const struct mgr_core *c)
{
    return c->uuid;
}

void mgr_core_set_addr(struct mgr_core *c, const char *addr)
{
    strncpy(c->addr, addr, sizeof c->addr - 1);
}
