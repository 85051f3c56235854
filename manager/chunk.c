/* The chunk table and the way out of it: a chunk that no slice names and no session holds any more becomes a row of
 * garbage, in the same transaction; bnf.c has it deleted. One of no benefactor, which stands for a chunk that is lost (commit.c) or is in a target only (ext.c),
 * just goes. */
#include <errno.h>

#include "manager/level.h"
#include "manager/ext.h"
#include "manager/sets.h"
#include "fp/bug.h"

int mgr_chunk_get(struct mgr_core *c, uint64_t id, struct mgr_chunk *ch)
{
    const struct mgr_db *db = &c->db;
    int rc = mgr_db_one(&c->db, CHUNK_GET, DBI(id));

    if (rc <= 0)
        return rc ? rc : -ENOENT;
    ch->id = id;
    ch->len = (uint32_t)mgr_col(db, MGR_ST_CHUNK_GET, 0);
    ch->stored = (uint32_t)mgr_col(db, MGR_ST_CHUNK_GET, 1);
    ch->sum = (uint64_t)mgr_col(db, MGR_ST_CHUNK_GET, 2);
    ch->refs = (uint32_t)mgr_col(db, MGR_ST_CHUNK_GET, 3);
    ch->bnf = (uint32_t)mgr_col(db, MGR_ST_CHUNK_GET, 4);
    ch->data = (uint32_t)mgr_col(db, MGR_ST_CHUNK_GET, 5);
    ch->noted = mgr_col(db, MGR_ST_CHUNK_GET, 6) != 0;
    mgr_db_reset(&c->db, MGR_ST_CHUNK_GET);
    return 0;
}

int mgr_chunk_vouched(struct mgr_core *c, const struct mgr_chunk *ch)
{
    const struct mgr_bnf *b = mgr_bnf_find(c, ch->bnf);
    int rc = mgr_damage_has(c, ch->id, NULL);

    return rc ? (rc < 0 ? rc : 0) : b && mgr_bnf_vouched(b);
}

int mgr_chunk_insert(struct mgr_core *c, const struct mgr_chunk *ch)
{
    struct mgr_bnf *b = mgr_bnf_find(c, ch->bnf);

    c->n.chunks++;
    c->n.dirty = true;
    if (b) {
        b->chunks++;
        b->stored += ch->stored;
        mgr_bnf_dirty(c, b);
        mgr_inventory_committed(b, ch->id);
    }
    return mgr_db_exec(&c->db, CHUNK_INSERT, DBI(ch->id), DBI(ch->len), DBI(ch->stored), DBI(ch->sum),
                       DBI(ch->refs), DBI(ch->bnf), DBI(ch->data), DBI(ch->noted), DBI(ch->round));
}

static int place(struct mgr_core *c, const struct mgr_chunk *ch, uint32_t bnf, struct mgr_bnf *to, uint32_t stored, int64_t round)
{
    struct mgr_bnf *from = mgr_bnf_find(c, ch->bnf);

    if (from) {
        from->chunks--;
        from->stored -= ch->stored;
        mgr_bnf_dirty(c, from);
    }
    if (to) {
        to->chunks++;
        to->stored += stored;
        mgr_bnf_dirty(c, to);
        mgr_inventory_committed(to, ch->id);
    }
    int rc = mgr_db_exec(&c->db, CHUNK_PLACE, DBI(ch->id), DBI(bnf), DBI(stored), DBI(round));

    mgr_level_chunks(c);
    mgr_chunks_shared(c);
    return rc || !ch->bnf ? rc : mgr_drain_chunk_left(c, ch->id);
}

int mgr_chunk_place(struct mgr_core *c, const struct mgr_chunk *ch, uint32_t bnf, uint32_t stored)
{
    struct mgr_bnf *to = mgr_bnf_find(c, bnf);

    return place(c, ch, bnf, to, stored, to ? mgr_round_of(c, to, ch->id, 0) : 0);
}

int mgr_chunk_found(struct mgr_core *c, const struct mgr_chunk *ch, struct mgr_bnf *b, uint32_t stored)
{
    return place(c, ch, b->id, b, stored, mgr_round_found(c, b, ch->id));
}

int mgr_chunk_ref(struct mgr_core *c, uint64_t id, int64_t add)
{
    mgr_chunks_shared(c);
    return mgr_db_exec(&c->db, CHUNK_REF, DBI(id), DBI(add));
}

int mgr_garbage_put(struct mgr_core *c, uint64_t id, uint32_t bnf, uint32_t stored)
{
    struct mgr_bnf *b = mgr_bnf_find(c, bnf);
    int rc = mgr_db_one(&c->db, GARBAGE_HAS, DBI(bnf), DBI(id));

    if (rc) {
        if (rc > 0)
            mgr_db_reset(&c->db, MGR_ST_GARBAGE_HAS);
        return rc < 0 ? rc : 0;
    }
    if (b) {
        b->garbage++;
        b->garbage_bytes += stored;
        mgr_bnf_dirty(c, b);
    }
    return mgr_db_exec(&c->db, GARBAGE_PUT, DBI(bnf), DBI(id), DBI(stored));
}

int mgr_chunk_unref(struct mgr_core *c, uint64_t id)
{
    struct mgr_chunk ch;
    struct mgr_bnf *b;
    int rc = mgr_chunk_get(c, id, &ch);

    if (rc)
        return rc == -ENOENT ? 0 : rc;
    if (FP_BUG("mgr-forgets-unref") && c->n.chunks % 8 == 0)
        return 0;
    if (ch.refs > 1 && !FP_BUG("mgr-drops-shared-chunk"))
        return mgr_chunk_ref(c, id, -1);
    c->n.chunks--;
    c->n.dirty = true;
    b = mgr_bnf_find(c, ch.bnf);
    if (b) {
        b->chunks--;
        b->stored -= ch.stored;
        mgr_bnf_dirty(c, b);
    }
    rc = mgr_db_exec(&c->db, CHUNK_DELETE, DBI(id));
    if (!rc && ch.bnf)
        rc = mgr_garbage_put(c, id, ch.bnf, ch.stored);
    rc = rc ? rc : mgr_ext_drop(c, id);
    if (!rc && ch.noted)
        rc = mgr_note_drop(c, id);
    return rc ? rc : mgr_damage_drop(c, id);
}
