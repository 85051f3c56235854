/* Holds: chunks that a session may still refer to, though no slice does any more (MSG_HOLD, and MSG_NOTES and
 * MSG_NOTE_FIND that ask for it). A de-duplicating mount compares with stored chunks; between the comparison
 * and its COMMIT nobody must delete them.
 *
 * A hold is a row (session, chunk), once per pair, and one of the chunk's references. So a held chunk is an
 * ordinary chunk to everything else: deletion needs no second look, and a commit that refers to it can't be
 * too late. Rejected: holds in memory, told again by hello as open files are: chunks would have to be kept for
 * all sessions until each has come back after a restart.
 *
 * What is damaged, or on a benefactor that is away (bnf.c), is not held anew, and not said to be held: the mount still has the bytes, and
 * stores them. A hold that there is already stays: others may refer to the chunk by it, and it may come back.
 *
 * Holds end by release, BYE, or the death of the session. What is left of a session that is gone is dropped
 * HOLDS_STEP at a time (mgr_holds_sweep), so that others are not kept waiting; which sessions those are is
 * seen from the table itself, so a restart needs no memory of it.
 *
 * A held chunk that no file refers to takes space that nobody can delete. A mount that is about to refuse a write has all other
 * sessions asked for theirs (recall): each is told by a one-way MSG_HOLD, releases what no unpublished data of it refers to, and
 * says that that was all, or is waited for in vain for RECALL_MS. MSG_STATFS says whether anybody is waited for. Nothing is
 * taken from a session that does not answer: what it refers to is the only copy of data that programs were told is written.
 *
 * Called by the core's thread, in a group. */
#include <errno.h>

#include "manager/core_int.h"

#define HOLD_IDS_MAX 4096u /* of one message */
#define HOLDS_STEP   512u
#define HOLDERS_MS   1000u
#define HOLDERS_MAX  64u
#define RECALL_MS    2000u
#define RECALL_PAUSE 500u /* a session that has answered is not asked again sooner */

int mgr_chunk_hold(struct mgr_core *c, uint64_t session, uint64_t chunk)
{
    int rc = mgr_db_exec(&c->db, HOLD_PUT, DBI(session), DBI(chunk));

    if (rc)
        return rc;
    if (sqlite3_changes(c->db.sq))
        return mgr_chunk_ref(c, chunk, 1);
    rc = mgr_db_one(&c->db, HOLD_HAS, DBI(session), DBI(chunk));
    mgr_db_reset(&c->db, MGR_ST_HOLD_HAS);
    return rc < 0 ? rc : rc ? 0 : -ENOENT;
}

static int release(struct mgr_core *c, uint64_t session, uint64_t chunk)
{
    int rc = mgr_db_exec(&c->db, HOLD_DELETE, DBI(session), DBI(chunk));

    return rc || !sqlite3_changes(c->db.sq) ? rc : mgr_chunk_unref(c, chunk);
}

/* ---------------------------------------------------------------- recall */

static bool may_answer(const struct mgr_core *c, const struct mgr_session *s)
{
    return s->conn && !s->conn->closing && c->now.ms < s->recall_until_ms;
}

bool mgr_holds_recalling(const struct mgr_core *c)
{
    for (size_t i = 0; i < c->session_count; i++)
        if (may_answer(c, c->sessions[i]))
            return true;
    return false;
}

static int has_holds(struct mgr_core *c, uint64_t session)
{
    int rc = mgr_db_one(&c->db, HOLD_OF, DBI(session), DBI(1));

    if (rc > 0)
        mgr_db_reset(&c->db, MGR_ST_HOLD_OF);
    return rc;
}

static int recall_from(struct mgr_core *c, struct mgr_session *s, const Fp__Hold *ask)
{
    int rc;

    if (!s->conn || s->conn->closing || may_answer(c, s) || c->now.ms < s->recalled_ms + RECALL_PAUSE)
        return 0;
    rc = has_holds(c, s->id);
    if (rc <= 0)
        return rc;
    if (mgr_post(c, s->conn, FP__MSG_TYPE__MSG_HOLD, &ask->base) == 0)
        s->recall_until_ms = c->now.ms + RECALL_MS;
    return 0;
}

static int recall_from_others(struct mgr_core *c, const struct mgr_session *me)
{
    Fp__Hold *ask = MGR_NEW(c, Fp__Hold, fp__hold__init);
    int rc = ask ? 0 : mgr_doom(c, -ENOMEM);

    if (ask)
        ask->recall = true;
    for (size_t i = 0; i < c->session_count && !rc; i++)
        rc = c->sessions[i] == me ? 0 : recall_from(c, c->sessions[i], ask);
    return rc;
}

static void recall_answered(struct mgr_core *c, struct mgr_session *s)
{
    s->recall_until_ms = 0;
    s->recalled_ms = c->now.ms;
}

/* ---------------------------------------------------------------- the message */

/* Adds it to the answer, if it may be referred to. */
static int hold_one(struct mgr_core *c, const struct mgr_req *rq, uint64_t chunk, Fp__HoldReply *r)
{
    Fp__ChunkNote *n;
    struct mgr_chunk ch;
    int rc = mgr_chunk_get(c, chunk, &ch);

    if (rc == -ENOENT) {
        r->gone[r->n_gone++] = chunk;
        return 0;
    }
    rc = rc ? rc : mgr_chunk_vouched(c, &ch);
    if (rc <= 0)
        return rc;
    rc = mgr_chunk_hold(c, rq->sess->id, chunk);
    if (rc)
        return rc;
    if (!(n = MGR_NEW(c, Fp__ChunkNote, fp__chunk_note__init)))
        return mgr_doom(c, -ENOMEM);
    n->chunk = chunk;
    n->len = ch.len;
    n->coded_len = ch.data;
    n->data_len = mgr_chunk_data(&ch);
    n->sum = ch.sum;
    n->bnf = ch.bnf;
    r->ids[r->n_ids++] = chunk;
    r->chunks[r->n_chunks++] = n;
    return 0;
}

MGR_HANDLER(hold_chunks)
{
    const Fp__Hold *m = msg;
    Fp__HoldReply *r = MGR_NEW(c, Fp__HoldReply, fp__hold_reply__init);
    int rc = 0;

    if (m->n_ids > HOLD_IDS_MAX)
        return -E2BIG;
    if (!r || !(r->ids = mgr_arena_alloc(&c->arena, (m->n_ids + 1) * sizeof *r->ids)) ||
        !(r->chunks = mgr_arena_alloc(&c->arena, (m->n_ids + 1) * sizeof *r->chunks)) ||
        !(r->gone = mgr_arena_alloc(&c->arena, (m->n_ids + 1) * sizeof *r->gone)))
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < m->n_ids && !rc; i++) {
        rc = m->release ? release(c, rq->sess->id, m->ids[i]) : hold_one(c, rq, m->ids[i], r);
        rc = rc == -ENOENT ? 0 : rc;
    }
    if (m->recall && m->release)
        recall_answered(c, rq->sess);
    else if (m->recall && !rc)
        rc = recall_from_others(c, rq->sess);
    rq->reply = &r->base;
    return rc;
}

/* ---------------------------------------------------------------- how many hold something */

/* One look-up for each, so not for each answer; nor for more than make a difference. An error of the database shows elsewhere. */
uint64_t mgr_holders(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_HOLD_NEXT;
    uint64_t session = 0, n = 0;

    if (c->hold_sessions && c->now.ms < c->hold_sessions_ms + HOLDERS_MS)
        return c->hold_sessions;
    while (n < HOLDERS_MAX && mgr_db_one(&c->db, HOLD_NEXT, DBI(session)) > 0) {
        session = (uint64_t)mgr_col(&c->db, st, 0);
        mgr_db_reset(&c->db, st);
        n++;
    }
    c->hold_sessions = n ? n : 1;
    c->hold_sessions_ms = c->now.ms;
    return c->hold_sessions;
}

/* ---------------------------------------------------------------- sessions that are gone */

static int drop_some(struct mgr_core *c, uint64_t session)
{
    const enum mgr_stmt st = MGR_ST_HOLD_OF;
    uint64_t list[HOLDS_STEP];
    size_t n = 0;
    int rc;

    for (rc = mgr_db_one(&c->db, HOLD_OF, DBI(session), DBI(HOLDS_STEP)); rc > 0; rc = mgr_db_step(&c->db, st))
        list[n++] = (uint64_t)mgr_col(&c->db, st, 0);
    for (size_t i = 0; i < n && !rc; i++)
        rc = release(c, session, list[i]);
    c->busy = true; /* go on in the next group */
    return rc;
}

int mgr_holds_sweep(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_HOLD_NEXT;
    uint64_t session = 0;
    int rc;

    if (!c->holds_dead)
        return 0;
    while ((rc = mgr_db_one(&c->db, HOLD_NEXT, DBI(session))) > 0) {
        session = (uint64_t)mgr_col(&c->db, st, 0);
        mgr_db_reset(&c->db, st);
        if (!mgr_session_find(c, session))
            return drop_some(c, session);
    }
    c->holds_dead = rc < 0;
    return rc;
}
