/* Drained copies: which file of a target has the present data of a file of the store.
 *
 * A row of `drained` says it for one data_version; a change of the data makes it say nothing any more, without anybody having to look at it. The
 * row goes when the inode goes, is drained again, or is changed. What others do in the target it does not know: who is to believe it looks there (MGR_TASK_STAT). Its sums are what the windows must have when they are read from the target
 * instead of from a benefactor.
 *
 * Called by the core's thread, in a group. */
#include "manager/drain.h"

#include <errno.h>
#include <string.h>

#define SUMS_MAX (UINT64_C(1) << 22) /* windows of which sums are kept: 32 MiB of them; a larger file is never read from the target instead */
#define PAGE     256u

Fp__Level mgr_drained_level(struct mgr_core *c, const struct mgr_inode *in)
{
    const enum mgr_stmt st = MGR_ST_DRAINED_GET;
    Fp__Level level = FP__LEVEL__LEVEL_NONE;

    if (!(in->flags & MGR_DRAINS))
        return level;
    if (mgr_db_one(&c->db, DRAINED_GET, DBI(in->ino)) > 0 && (uint64_t)mgr_col(&c->db, st, 1) == in->data_version)
        level = mgr_col(&c->db, st, 2) ? FP__LEVEL__LEVEL_VERIFIED : FP__LEVEL__LEVEL_DRAINED;
    mgr_db_reset(&c->db, st);
    return level;
}

int mgr_drained_path(struct mgr_core *c, const struct mgr_dfile *f, ProtobufCBinaryData *path)
{
    const struct mgr_djob *j = mgr_djob_find(c, f->job);
    size_t n = j ? strlen(j->dest) : 0;
    uint8_t *whole;
    int rc = mgr_dfile_path(c, f->id, path);

    if (rc || !n)
        return rc;
    whole = mgr_arena_alloc(&c->arena, n + 1 + path->len);
    if (!whole)
        return mgr_doom(c, -ENOMEM);
    memcpy(whole, j->dest, n);
    whole[n] = '/';
    memcpy(whole + n + 1, path->data, path->len);
    *path = (ProtobufCBinaryData){n + 1 + path->len, whole};
    return 0;
}

int mgr_drained_is_at(struct mgr_core *c, struct mgr_dfile *f)
{
    const enum mgr_stmt st = MGR_ST_DRAINED_AT;
    ProtobufCBinaryData path;
    const void *is;
    size_t len;
    int rc = mgr_drained_path(c, f, &path);

    rc = rc ? rc : mgr_db_one(&c->db, DRAINED_AT, DBI(f->ino));
    if (rc <= 0)
        return rc;
    is = mgr_col_blob(&c->db, st, 1, &len);
    if ((uint32_t)mgr_col(&c->db, st, 0) == f->target && len == path.len && memcmp(is, path.data, len) == 0)
        f->tfile = (uint64_t)mgr_col(&c->db, st, 2);
    mgr_db_reset(&c->db, st);
    return 0;
}

int mgr_drained_is_seen(struct mgr_core *c, const struct mgr_dfile *f, const Fp__ExtFile *seen)
{
    const enum mgr_stmt st = MGR_ST_TFILE_GET;
    int rc = mgr_db_one(&c->db, TFILE_GET, DBI(f->tfile));

    if (rc <= 0)
        return rc;
    rc = seen && (uint64_t)mgr_col(&c->db, st, 0) == seen->ino && (uint64_t)mgr_col(&c->db, st, 1) == seen->size_bytes && mgr_col(&c->db, st, 2) == seen->mtime_ns;
    mgr_db_reset(&c->db, st);
    return rc;
}

/* ---------------------------------------------------------------- a new one */

/* What several benefactors have of one window has no sum: all bits are set there, and taken for 0 here. *all: there is no such window. */
static void unknown(uint8_t *sums, uint64_t windows, bool *all)
{
    static const uint8_t none[8] = {255, 255, 255, 255, 255, 255, 255, 255};

    *all = true;
    for (uint64_t w = 0; w < windows; w++) {
        if (memcmp(sums + w * 8, none, 8) != 0)
            continue;
        memset(sums + w * 8, 0, 8);
        *all = false;
    }
}

/* The sums that the parts have. */
static int collect(struct mgr_core *c, const struct mgr_dfile *f, uint8_t *sums, uint64_t windows)
{
    const enum mgr_stmt st = MGR_ST_DPART_NEXT;
    uint64_t from = 0;
    uint32_t n;
    int rc;

    do {
        uint64_t first = from;

        n = 0;
        for (rc = mgr_db_one(&c->db, DPART_NEXT, DBI(f->id), DBI(from), DBI(PAGE)); rc > 0; rc = mgr_db_step(&c->db, st)) {
            size_t len;
            const uint8_t *p = mgr_col_blob(&c->db, st, 4, &len);

            first = (uint64_t)mgr_col(&c->db, st, 0);
            for (size_t i = 0; i < len && first * 8 + i < windows * 8; i++)
                sums[first * 8 + i] |= p[i];
            n++;
        }
        if (first == from && n == PAGE) /* more benefactors than that: the rest of them in one */
            first++;
        from = first;
    } while (n == PAGE && rc >= 0);
    return rc < 0 ? rc : 0;
}

static int tfile_new(struct mgr_core *c, const struct mgr_dfile *f, const Fp__ExtFile *seen, int64_t *id)
{
    ProtobufCBinaryData path;
    int rc = mgr_drained_path(c, f, &path);

    rc = rc ? rc : mgr_db_exec(&c->db, TFILE_NEW, DBI(f->target), DBB(path.data, path.len), DBI(seen->dev), DBI(seen->ino), DBI(seen->size_bytes),
                               DBI(seen->mtime_ns), DBI(1), DBI(c->now.ns));
    *id = sqlite3_last_insert_rowid(c->db.sq);
    return rc;
}

int mgr_drained_put(struct mgr_core *c, struct mgr_dfile *f, const struct mgr_inode *in, const Fp__ExtFile *seen)
{
    uint64_t windows = (f->size + in->chunk_size - 1) / in->chunk_size;
    uint8_t *sums;
    int64_t tfile;
    bool all;
    int rc = mgr_drained_drop(c, f->ino);

    if (windows > SUMS_MAX)
        windows = 0;
    sums = mgr_arena_zalloc(&c->arena, windows * 8 + 1);
    if (!sums)
        return mgr_doom(c, -ENOMEM);
    rc = rc || !windows ? rc : collect(c, f, sums, windows);
    unknown(sums, windows, &all);
    all = all && (windows || f->size == 0); /* of more than SUMS_MAX nobody knows */
    rc = rc ? rc : tfile_new(c, f, seen, &tfile);
    return rc ? rc : mgr_db_exec(&c->db, DRAINED_PUT, DBI(f->ino), DBI(tfile), DBI(f->version), DBI(f->verify && all), DBI(c->now.ns), DBB(sums, windows * 8));
}

int mgr_drained_drop(struct mgr_core *c, uint64_t ino)
{
    int64_t tfile;
    int rc = mgr_db_one(&c->db, DRAINED_GET, DBI(ino));

    if (rc <= 0)
        return rc;
    tfile = mgr_col(&c->db, MGR_ST_DRAINED_GET, 0);
    mgr_db_reset(&c->db, MGR_ST_DRAINED_GET);
    rc = mgr_db_exec(&c->db, DRAINED_DELETE, DBI(ino));
    rc = rc ? rc : mgr_db_exec(&c->db, TFILE_REF, DBI(tfile), DBI(-1));
    return rc ? rc : mgr_db_exec(&c->db, TFILE_UNUSED, DBI(tfile));
}
