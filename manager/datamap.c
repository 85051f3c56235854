/* Reading the map: MSG_SLICEMAP, MSG_SEEK, and where the chunks of others lie for MSG_SYNC. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/err.h"
#include "manager/core_int.h"
#include "manager/ext.h"
#include "manager/version.h"

#define SLICES_SOFT_MAX 4096u  /* the answer ends at the next window after so many */
#define SYNC_ROWS_MAX   65536u /* slices that one MSG_SYNC looks at */
#define SYNC_CHUNKS_MAX 8192u  /* chunks that it looks up; beyond either, all benefactors are named */

Fp__Slice *mgr_slice_row(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_SLICE_MAP;
    const struct mgr_db *db = &c->db;
    Fp__Slice *s = MGR_NEW(c, Fp__Slice, fp__slice__init);

    if (!s)
        return NULL;
    s->win = (uint64_t)mgr_col(db, st, 0);
    s->off = (uint32_t)mgr_col(db, st, 1);
    s->len = (uint32_t)mgr_col(db, st, 2);
    s->chunk = (uint64_t)mgr_col(db, st, 3);
    s->chunk_off = (uint32_t)mgr_col(db, st, 4);
    s->chunk_len = (uint32_t)mgr_col(db, st, 5);
    s->chunk_sum = (uint64_t)mgr_col(db, st, 6);
    s->bnf = (uint32_t)mgr_col(db, st, 7);
    s->data_len = (uint32_t)mgr_col(db, st, 8);
    return s;
}

/* Appends to r->slices, which grows by doubling inside the arena. */
static int append(struct mgr_core *c, Fp__SliceMapReply *r, size_t *cap, Fp__Slice *s)
{
    Fp__Slice **list = s ? mgr_arena_grow(&c->arena, r->slices, r->n_slices, cap, sizeof(*list)) : NULL;

    if (!list)
        return mgr_doom(c, -ENOMEM);
    r->slices = list;
    r->slices[r->n_slices++] = s;
    return 0;
}

MGR_HANDLER(slicemap)
{
    const enum mgr_stmt st = MGR_ST_SLICE_MAP;
    const Fp__SliceMap *m = msg;
    Fp__SliceMapReply *r = MGR_NEW(c, Fp__SliceMapReply, fp__slice_map_reply__init);
    uint64_t end = m->win_count > INT64_MAX || m->win_from > (uint64_t)INT64_MAX - m->win_count
                       ? INT64_MAX
                       : m->win_from + m->win_count;
    struct mgr_inode in;
    size_t cap = 0, first = 0;
    int rc = mgr_inode_get(c, m->ino, &in);

    if (!rc && (!mgr_is(&in, S_IFREG) || (m->fold && m->win_count != 1)))
        rc = -EINVAL;
    if (!rc && mgr_is_returning(c, m->ino))
        rc = FP_EPUBLISHING;
    if (rc)
        return rc;
    if (!r)
        return mgr_doom(c, -ENOMEM);
    r->data_version = in.data_version;
    r->size_bytes = in.size;
    r->win_end = end;
    r->same = m->known_version && m->known_version == in.data_version;
    rq->reply = &r->base;
    if (m->whole)
        mgr_grace_read(c, m->ino);
    if (m->win_from >= end || r->same)
        return 0;
    for (rc = mgr_db_one(&c->db, SLICE_MAP, DBI(m->ino), DBI(m->win_from), DBI(end)); rc > 0;
         rc = mgr_db_step(&c->db, st)) {
        uint64_t win = (uint64_t)mgr_col(&c->db, st, 0);
        bool next = r->n_slices && win != r->slices[r->n_slices - 1]->win;

        first = next ? r->n_slices : first;
        if (r->n_slices >= MGR_WINDOW_MAX || (next && !m->whole && r->n_slices >= SLICES_SOFT_MAX)) {
            r->n_slices = first; /* up to this window */
            r->win_end = win;
            rc = first ? 0 : -EFBIG;
            break;
        }
        rc = append(c, r, &cap, mgr_slice_row(c));
        if (rc)
            break;
    }
    mgr_db_reset(&c->db, st);
    rc = rc || m->fold ? rc : mgr_rescue_map(c, &in, m->win_from, r);
    rc = rc ? rc : mgr_ext_tell(c, r);
    return rc || !m->fold ? rc : mgr_fold_map(c, m->ino, m->win_from, r);
}

/* The first byte from off on that is mapped (or is not, for a hole); size when there is none. */
static int seek(struct mgr_core *c, const struct mgr_inode *in, uint64_t off, bool hole, uint64_t *out)
{
    const enum mgr_stmt st = MGR_ST_SLICE_FROM;
    uint64_t pos = off;
    int rc = mgr_db_one(&c->db, SLICE_FROM, DBI(in->ino), DBI(off / in->chunk_size), DBI(0), DBI(INT64_MAX),
                        DBI(-1));

    *out = in->size;
    for (; rc > 0; rc = mgr_db_step(&c->db, st)) {
        uint64_t from = (uint64_t)mgr_col(&c->db, st, 0) * in->chunk_size + (uint64_t)mgr_col(&c->db, st, 1);
        uint64_t to = from + (uint64_t)mgr_col(&c->db, st, 2);

        if (to <= pos)
            continue;
        if (!hole) {
            *out = from > pos ? from : pos;
            break;
        }
        if (from > pos)
            break;
        pos = to;
    }
    mgr_db_reset(&c->db, st);
    if (hole)
        *out = pos;
    if (*out > in->size)
        *out = in->size;
    return rc < 0 ? rc : 0;
}

MGR_HANDLER(seek)
{
    const Fp__Seek *m = msg;
    Fp__SeekReply *r = MGR_NEW(c, Fp__SeekReply, fp__seek_reply__init);
    struct mgr_inode in;
    int rc = mgr_inode_get(c, m->ino, &in);

    if (!r)
        return mgr_doom(c, -ENOMEM);
    if (!rc && !mgr_is(&in, S_IFREG))
        rc = -EINVAL;
    if (!rc && m->off >= in.size)
        rc = -ENXIO;
    rc = rc ? rc : seek(c, &in, m->off, m->hole, &r->off);
    if (!rc && !m->hole && r->off >= in.size)
        rc = -ENXIO;
    rq->reply = &r->base;
    return rc;
}

/* ---------------------------------------------------------------- whose data an fsync still has to sync */

struct others {
    bool *seen; /* by number of the benefactor */
    size_t count;
    uint64_t last; /* chunk */
    uint32_t rows, chunks;
};

/* One slice. 0: go on; 1: enough is known; or a failure. */
static int look_at(struct mgr_core *c, const struct mgr_req *rq, struct others *o, uint64_t chunk)
{
    struct mgr_chunk ch;
    int rc;

    if (++o->rows > SYNC_ROWS_MAX)
        return 1;
    if (chunk >> 32 == rq->sess->id || chunk == o->last)
        return 0;
    if (++o->chunks > SYNC_CHUNKS_MAX)
        return 1;
    o->last = chunk;
    rc = mgr_chunk_get(c, chunk, &ch);
    if (rc || !ch.bnf || ch.bnf > c->bnf_count)
        return rc == -ENOENT ? 0 : rc;
    o->count += !o->seen[ch.bnf];
    o->seen[ch.bnf] = true;
    return o->count == c->bnf_count;
}

static int find_others(struct mgr_core *c, const struct mgr_req *rq, uint64_t ino, struct others *o)
{
    const enum mgr_stmt st = MGR_ST_SLICE_FROM;
    int rc = mgr_db_one(&c->db, SLICE_FROM, DBI(ino), DBI(0), DBI(0), DBI(INT64_MAX), DBI(-1)), found = 0;

    for (; rc > 0; rc = mgr_db_step(&c->db, st)) {
        found = look_at(c, rq, o, (uint64_t)mgr_col(&c->db, st, 3));
        if (found)
            break;
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : found < 0 ? found : 0;
}

static int name_others(struct mgr_core *c, const struct mgr_req *rq, uint64_t ino, Fp__SyncReply *r)
{
    struct others o = {.seen = mgr_arena_alloc(&c->arena, c->bnf_count + 1)};
    int rc;

    r->bnfs = mgr_arena_alloc(&c->arena, (c->bnf_count + 1) * sizeof *r->bnfs);
    if (!o.seen || !r->bnfs)
        return mgr_doom(c, -ENOMEM);
    memset(o.seen, 0, c->bnf_count + 1);
    rc = find_others(c, rq, ino, &o);
    r->all = o.rows > SYNC_ROWS_MAX || o.chunks > SYNC_CHUNKS_MAX;
    for (uint32_t id = 1; id <= c->bnf_count && !r->all; id++)
        if (o.seen[id])
            r->bnfs[r->n_bnfs++] = id;
    return rc;
}

/* A client has synced what it stored itself, and knows up to which version what others stored is synced: often
 * up to this one, since nobody else has been there. Then nothing is looked at. A file that is gone has nothing
 * to sync. */
MGR_HANDLER(sync)
{
    const Fp__Sync *m = msg;
    Fp__SyncReply *r = MGR_NEW(c, Fp__SyncReply, fp__sync_reply__init);
    struct mgr_inode in;
    int rc = 0;

    if (!r)
        return mgr_doom(c, -ENOMEM);
    if (m->ino && rq->sess) {
        rc = mgr_inode_get(c, m->ino, &in);
        if (!rc && mgr_is(&in, S_IFREG)) {
            r->data_version = in.data_version;
            rc = mgr_is_overtaken(c, rq->sess, m->ino); /* it was put back: what is to be synced is not there */
            rc = rc ? rc : mgr_epoch_synced(c, rq->sess, m->ino);
            if (!rc && in.data_version != m->known_version)
                rc = name_others(c, rq, m->ino, r);
        }
    }
    rq->reply = &r->base;
    rq->durable = true;
    return rc == -ENOENT ? 0 : rc;
}
