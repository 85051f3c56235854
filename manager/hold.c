/* Holds: chunks that a session may still refer to, though no slice does any more (MSG_HOLD, and MSG_NOTES and
 * MSG_NOTE_FIND that ask for it). A de-duplicating mount compares with stored chunks; between the comparison
 * and its COMMIT nobody must delete them.
 *
 * A hold is a row (session, chunk), once per pair, and one of the chunk's references. So a held chunk is an
 * ordinary chunk to everything else: deletion needs no second look, and a commit that refers to it can't be
 * too late. Rejected: holds in memory, told again by hello as open files are: chunks would have to be kept for
 * all sessions until each has come back after a restart.
 *
 * Holds end by release, BYE, or the death of the session. What is left of a session that is gone is dropped
 * HOLDS_STEP at a time (mgr_holds_sweep), so that others are not kept waiting; which sessions those are is
 * seen from the table itself, so a restart needs no memory of it.
 *
 * Called by the core's thread, in a group. */
#include <errno.h>

#include "manager/core_int.h"

#define HOLD_IDS_MAX 4096u /* of one message */
#define HOLDS_STEP   512u

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

MGR_HANDLER(hold_chunks)
{
    const Fp__Hold *m = msg;
    Fp__HoldReply *r = MGR_NEW(c, Fp__HoldReply, fp__hold_reply__init);
    int rc = 0;

    if (m->n_ids > HOLD_IDS_MAX)
        return -E2BIG;
    if (!r || !(r->ids = mgr_arena_alloc(&c->arena, (m->n_ids + 1) * sizeof *r->ids)))
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < m->n_ids && !rc; i++) {
        rc = m->release ? release(c, rq->sess->id, m->ids[i]) : mgr_chunk_hold(c, rq->sess->id, m->ids[i]);
        if (!rc && !m->release)
            r->ids[r->n_ids++] = m->ids[i];
        rc = rc == -ENOENT ? 0 : rc;
    }
    rq->reply = &r->base;
    return rc;
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
