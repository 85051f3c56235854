/* What is lost or wrong, as rows for fpctl status: found by readers (MSG_BADCHUNK) or by an inventory that
 * lacks a chunk. One row per place in a file. They go with the chunk, or when a later inventory has the chunk
 * again. */
#include <errno.h>

#include "fp/log.h"
#include "manager/core_int.h"

#define PLACES_MAX 16

int mgr_damage_load(struct mgr_core *c)
{
    int rc = mgr_db_one(&c->db, DAMAGE_COUNT);

    if (rc > 0) {
        c->damages = (uint64_t)mgr_col(&c->db, MGR_ST_DAMAGE_COUNT, 0);
        mgr_db_reset(&c->db, MGR_ST_DAMAGE_COUNT);
    }
    return rc < 0 ? rc : 0;
}

int mgr_damage_chunk(struct mgr_core *c, uint64_t chunk, uint32_t bnf, bool missing, const char *reason)
{
    const enum mgr_stmt st = MGR_ST_SLICE_OF_CHUNK;
    struct {
        uint64_t ino, off;
        uint32_t len;
    } at[PLACES_MAX];
    struct mgr_inode in;
    size_t n = 0;
    int rc;

    if (c->damages >= MGR_DAMAGE_MAX)
        return 0;
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
                         DBI(bnf), DBI(missing), DBT(reason), DBI(c->now.ns));
    if (n)
        mgr_doubt(c);
    c->damages += n; /* too many when rows were there already: counted again at the end of the inventory */
    return rc;
}

static void less(struct mgr_core *c)
{
    uint64_t n = (uint64_t)sqlite3_changes(c->db.sq);

    c->damages -= n < c->damages ? n : c->damages;
}

int mgr_damage_drop(struct mgr_core *c, uint64_t chunk)
{
    int rc = mgr_db_exec(&c->db, DAMAGE_DROP, DBI(chunk));

    less(c);
    return rc;
}

int mgr_damage_found(struct mgr_core *c, uint64_t chunk)
{
    int rc = mgr_db_exec(&c->db, DAMAGE_FOUND, DBI(chunk));

    less(c);
    return rc;
}

int mgr_damage_has(struct mgr_core *c, uint64_t chunk)
{
    int rc = mgr_db_one(&c->db, DAMAGE_HAS, DBI(chunk));

    mgr_db_reset(&c->db, MGR_ST_DAMAGE_HAS);
    return rc;
}

MGR_HANDLER(badchunk)
{
    const Fp__BadChunk *m = msg;
    uint64_t before = c->damages;
    struct mgr_chunk ch;
    int rc = mgr_chunk_get(c, m->chunk, &ch);

    (void)rq;
    if (rc)
        return rc == -ENOENT ? 0 : rc; /* overwritten or deleted since */
    rc = mgr_damage_chunk(c, m->chunk, ch.bnf, false, m->reason);
    rc = rc ? rc : mgr_damage_load(c);
    if (!rc && c->damages > before)
        FP_ERROR("chunk %llx of inode %llu on benefactor %u is damaged (%.200s): see fpctl status",
                 (unsigned long long)m->chunk, (unsigned long long)m->ino, ch.bnf, m->reason);
    return rc;
}
