/* What is lost or wrong, found by readers (MSG_BADCHUNK) or by an inventory that lacks a chunk. It goes with the
 * chunk, or when a later inventory has the chunk again.
 *
 * bad_chunk is the truth: one row per chunk, whether a file names it or only a hold keeps it, and without a
 * bound, because nobody may refer to such a chunk anew (hold.c, note.c, commit.c). damage is what fpctl status
 * shows: one row per place in a file, MGR_DAMAGE_MAX of them. Rejected: a flag in the row of chunk, which all
 * chunks of a store that is well would pay for; rows of damage alone, which a chunk without a file has not.
 *
 * Called by the core's thread, in a group. */
#include <errno.h>

#include "fp/log.h"
#include "manager/ext.h"
#include "manager/level.h"

#define PLACES_MAX 16

static int count(struct mgr_core *c, enum mgr_stmt st, int rc, uint64_t *n)
{
    if (rc > 0) {
        *n = (uint64_t)mgr_col(&c->db, st, 0);
        mgr_db_reset(&c->db, st);
    }
    return rc < 0 ? rc : 0;
}

int mgr_damage_load(struct mgr_core *c)
{
    int rc = count(c, MGR_ST_DAMAGE_COUNT, mgr_db_one(&c->db, DAMAGE_COUNT), &c->damages);

    return rc ? rc : count(c, MGR_ST_BAD_COUNT, mgr_db_one(&c->db, BAD_COUNT), &c->bad_chunks);
}

static void less(struct mgr_core *c, uint64_t *counter)
{
    uint64_t n = (uint64_t)sqlite3_changes(c->db.sq);

    *counter -= n < *counter ? n : *counter;
}

static int drop_places(struct mgr_core *c, uint64_t chunk)
{
    int rc = mgr_db_exec(&c->db, DAMAGE_DROP, DBI(chunk));

    if (!rc)
        less(c, &c->damages);
    return rc;
}

static int put_places(struct mgr_core *c, uint64_t chunk, uint32_t bnf, enum mgr_bad bad, const char *reason)
{
    const enum mgr_stmt st = MGR_ST_SLICE_OF_CHUNK;
    struct {
        uint64_t ino, off;
        uint32_t len;
    } at[PLACES_MAX];
    struct mgr_inode in;
    size_t n = 0;
    int rc;

    for (rc = mgr_db_one(&c->db, SLICE_OF_CHUNK, DBI(chunk)); rc > 0 && n < PLACES_MAX; n++) {
        at[n].ino = (uint64_t)mgr_col(&c->db, st, 0);
        at[n].off = (uint64_t)mgr_col(&c->db, st, 1); /* window, until we know its size */
        at[n].len = (uint32_t)mgr_col(&c->db, st, 3);
        rc = mgr_inode_get(c, at[n].ino, &in);
        if (!rc)
            at[n].off = at[n].off * in.chunk_size + (uint64_t)mgr_col(&c->db, st, 2);
        rc = mgr_db_step(&c->db, st);
    }
    mgr_db_reset(&c->db, st);
    rc = rc < 0 ? rc : 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = mgr_db_exec(&c->db, DAMAGE_PUT, DBI(chunk), DBI(at[i].ino), DBI(at[i].off), DBI(at[i].len),
                         DBI(bnf), DBI(bad), DBT(reason), DBI(c->now.ns));
    c->damages += n;
    return rc;
}

int mgr_damage_chunk(struct mgr_core *c, uint64_t chunk, uint32_t bnf, enum mgr_bad bad, const char *reason)
{
    int known = mgr_damage_has(c, chunk, NULL);
    int rc = known < 0 ? known : mgr_db_exec(&c->db, BAD_PUT, DBI(chunk), DBI(bad == MGR_BAD_WRONG ? MGR_BAD_LOOK : bad), DBI(bad == MGR_BAD_READ || bad == MGR_BAD_WRONG ? bnf : 0));

    if (rc)
        return rc;
    c->bad_chunks += !known;
    mgr_level_chunks(c);
    mgr_doubt(c);
    rc = known ? drop_places(c, chunk) : 0; /* they may be others by now */
    return rc || c->damages >= MGR_DAMAGE_MAX ? rc : put_places(c, chunk, bnf, bad, reason);
}

static int no_more(struct mgr_core *c, uint64_t chunk, int rc)
{
    if (rc || !sqlite3_changes(c->db.sq))
        return rc;
    less(c, &c->bad_chunks);
    mgr_level_chunks(c);
    return drop_places(c, chunk);
}

int mgr_damage_drop(struct mgr_core *c, uint64_t chunk)
{
    return c->bad_chunks ? no_more(c, chunk, mgr_db_exec(&c->db, BAD_DROP, DBI(chunk))) : 0;
}

int mgr_damage_found(struct mgr_core *c, uint64_t chunk)
{
    return c->bad_chunks ? no_more(c, chunk, mgr_db_exec(&c->db, BAD_FOUND, DBI(chunk))) : 0;
}

int mgr_damage_has(struct mgr_core *c, uint64_t chunk, enum mgr_bad *bad)
{
    int rc = c->bad_chunks ? mgr_db_one(&c->db, BAD_HAS, DBI(chunk)) : 0;

    if (rc > 0 && bad)
        *bad = (enum mgr_bad)mgr_col(&c->db, MGR_ST_BAD_HAS, 0);
    if (rc > 0)
        mgr_db_reset(&c->db, MGR_ST_BAD_HAS);
    return rc;
}

int mgr_damage_wrong(struct mgr_core *c, uint64_t chunk, uint32_t *bnf)
{
    int rc = c->bad_chunks ? mgr_db_one(&c->db, BAD_HAS, DBI(chunk)) : 0;

    *bnf = rc > 0 ? (uint32_t)mgr_col(&c->db, MGR_ST_BAD_HAS, 1) : 0;
    if (rc > 0)
        mgr_db_reset(&c->db, MGR_ST_BAD_HAS);
    return rc < 0 ? rc : 0;
}

MGR_HANDLER(badchunk)
{
    const Fp__BadChunk *m = msg;
    uint64_t before = c->bad_chunks;
    struct mgr_chunk ch;
    int rc = mgr_chunk_get(c, m->chunk, &ch);

    (void)rq;
    if (rc)
        return rc == -ENOENT ? 0 : rc; /* overwritten or deleted since */
    rc = mgr_ext_has(c, ch.id);
    if (rc) /* who has read by an old map reads again */
        return rc < 0 ? rc : m->bnf == ch.bnf ? mgr_ext_bad(c, &ch, m) : 0;
    if (!ch.bnf)
        return 0; /* it stands for a lost one, and more was known of that */
    rc = mgr_rescue(c, &ch, MGR_BAD_READ, m->reason);
    if (rc > 0)
        FP_LOG_EVERY(1000, FP_LOG_WARN, "chunk %llx of inode %llu on benefactor %u is damaged (%.200s): it is read from a target", (unsigned long long)m->chunk,
                     (unsigned long long)m->ino, ch.bnf, m->reason);
    else if (!rc && c->bad_chunks > before && before < MGR_DAMAGE_MAX)
        FP_ERROR("chunk %llx of inode %llu on benefactor %u is damaged (%.200s): see fpctl status",
                 (unsigned long long)m->chunk, (unsigned long long)m->ino, ch.bnf, m->reason);
    return rc < 0 ? rc : 0;
}
