/* Drained copies: which files of targets have the present data of a file of the store.
 *
 * There is a row of `drained` for each target to which it was drained: what becomes of one copy says nothing of the others, and the best is the file's level. A row says it
 * for one data_version; a change of the data makes it say nothing any more, without anybody having to look at it. The
 * row goes when the inode goes, is drained again, or is changed. What others do in the target it does not know: who is to believe it looks there (MGR_TASK_STAT). Its sums are what the windows must have when they are read from the target
 * instead of from a benefactor.
 *
 * Called by the core's thread, in a group. */
#include "manager/ext.h"
#include "manager/foreign.h"
#include "manager/level.h"
#include "manager/version.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "fp/dlog.h"

#define SUMS_MAX (UINT64_C(1) << 22) /* windows of which sums are kept: 32 MiB of them; a larger file is never read from the target instead */
#define PAGE     256u

Fp__Level mgr_drained_level(struct mgr_core *c, const struct mgr_inode *in)
{
    const enum mgr_stmt st = MGR_ST_DRAINED_BEST;
    Fp__Level level = FP__LEVEL__LEVEL_NONE;

    if (!(in->flags & MGR_DRAINS))
        return level;
    if (mgr_db_one(&c->db, DRAINED_BEST, DBI(in->ino), DBI(in->data_version)) > 0 && mgr_col(&c->db, st, 0) >= 0)
        level = mgr_col(&c->db, st, 0) ? FP__LEVEL__LEVEL_VERIFIED : FP__LEVEL__LEVEL_DRAINED;
    mgr_db_reset(&c->db, st);
    return level;
}

Fp__Level mgr_drained_level_at(struct mgr_core *c, const struct mgr_inode *in, uint32_t target)
{
    const enum mgr_stmt st = MGR_ST_DRAINED_AT;
    Fp__Level level = FP__LEVEL__LEVEL_NONE;

    if (mgr_db_one(&c->db, DRAINED_AT, DBI(in->ino), DBI(target), DBI(in->data_version)) > 0)
        level = mgr_col(&c->db, st, 0) ? FP__LEVEL__LEVEL_VERIFIED : FP__LEVEL__LEVEL_DRAINED;
    mgr_db_reset(&c->db, st);
    return level;
}

/* Of several copies: one of a target of a policy, that is well, that was compared. */
static unsigned rank(struct mgr_core *c, uint32_t target, bool verified)
{
    return (mgr_target_has_policy(c, target) ? 4u : 0) + (mgr_drain_is_well(c, target) ? 2u : 0) + verified;
}

int mgr_drained_copy(struct mgr_core *c, const struct mgr_inode *in, uint64_t keep, uint64_t avoid, uint64_t *tfile)
{
    const enum mgr_stmt st = MGR_ST_DRAINED_COPIES;
    unsigned best = 0;
    int rc;

    *tfile = 0;
    for (rc = mgr_db_one(&c->db, DRAINED_COPIES, DBI(in->ino), DBI(in->data_version)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        uint64_t id = (uint64_t)mgr_col(&c->db, st, 0);
        unsigned r = id == keep ? UINT_MAX : id == avoid ? 1 : 2 + rank(c, (uint32_t)mgr_col(&c->db, st, 1), mgr_col(&c->db, st, 2) != 0);

        if (r > best) {
            best = r;
            *tfile = id;
        }
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

int mgr_drained_sums(struct mgr_core *c, uint64_t ino, uint64_t tfile, const uint8_t **sums, size_t *bytes)
{
    const void *p;
    int rc = mgr_db_one(&c->db, DRAINED_SUMS, DBI(ino), DBI(tfile));

    *bytes = 0;
    p = rc > 0 ? mgr_col_blob(&c->db, MGR_ST_DRAINED_SUMS, 0, bytes) : "";
    *sums = mgr_arena_copy(&c->arena, *bytes ? p : "", *bytes ? *bytes : 1);
    mgr_db_reset(&c->db, MGR_ST_DRAINED_SUMS);
    return rc < 0 ? rc : *sums ? 0 : mgr_doom(c, -ENOMEM);
}

bool mgr_drained_is_log(struct mgr_core *c, const struct mgr_dfile *f)
{
    const struct mgr_djob *j = mgr_djob_find(c, f->job);

    return j && j->layout == FP_DRAIN_LOG && f->kind == MGR_K_FILE;
}

int mgr_drained_log_name(struct mgr_core *c, const struct mgr_dfile *f, const char **why)
{
    ProtobufCBinaryData path = {0, NULL};
    const uint8_t *slash;
    char line[120];
    size_t len;
    int rc = mgr_drained_is_log(c, f) ? mgr_drained_path(c, f, &path) : 0;

    *why = NULL;
    slash = path.len ? memrchr(path.data, '/', path.len) : NULL;
    len = slash ? path.len - (size_t)(slash + 1 - path.data) : path.len;
    if (rc || len <= MGR_NAME_MAX)
        return rc;
    snprintf(line, sizeof line, "its name is too long for a log: %zu bytes with " FP_DLOG_SUFFIX " behind it, and %u is the most", len, (unsigned)MGR_NAME_MAX);
    *why = mgr_arena_text(&c->arena, line);
    return *why ? 0 : mgr_doom(c, -ENOMEM);
}

uint64_t mgr_drained_log_bytes(struct mgr_core *c, const struct mgr_dfile *f)
{
    uint64_t bytes = 0;

    if (mgr_db_one(&c->db, DPART_DONE, DBI(f->id)) > 0)
        bytes = (uint64_t)mgr_col(&c->db, MGR_ST_DPART_DONE, 0);
    mgr_db_reset(&c->db, MGR_ST_DPART_DONE);
    return bytes;
}

int mgr_drained_path(struct mgr_core *c, const struct mgr_dfile *f, ProtobufCBinaryData *path)
{
    const struct mgr_djob *j = mgr_djob_find(c, f->job);
    const char *suffix = mgr_drained_is_log(c, f) ? FP_DLOG_SUFFIX : "";
    size_t n = j ? strlen(j->dest) : 0, at = 0;
    uint8_t *whole;
    Fp__ExtFile *x;
    bool gone;
    int rc;

    if (mgr_djob_merges(j))
        return mgr_dfile_after(c, f, path);
    if (f->tfile && mgr_djob_stages(j)) { /* wherever that was drained to */
        rc = mgr_tfile_get(c, f->tfile, &x, &gone);
        if (!rc)
            *path = x->path;
        return rc;
    }
    rc = mgr_dfile_path(c, f->id, path);
    if (rc || (!n && !*suffix))
        return rc;
    whole = mgr_arena_alloc(&c->arena, n + 1 + path->len + strlen(suffix));
    if (!whole)
        return mgr_doom(c, -ENOMEM);
    if (n) {
        memcpy(whole, j->dest, n);
        whole[n] = '/';
        at = n + 1;
    }
    memcpy(whole + at, path->data, path->len);
    at += path->len;
    memcpy(whole + at, suffix, strlen(suffix));
    *path = (ProtobufCBinaryData){at + strlen(suffix), whole};
    return 0;
}

int mgr_drained_is_at(struct mgr_core *c, struct mgr_dfile *f)
{
    const enum mgr_stmt st = MGR_ST_DRAINED_AT;
    ProtobufCBinaryData path;
    const void *is;
    size_t len;
    int rc = mgr_drained_path(c, f, &path);

    rc = rc ? rc : mgr_db_one(&c->db, DRAINED_AT, DBI(f->ino), DBI(f->target), DBI(f->version));
    if (rc <= 0)
        return rc;
    is = mgr_col_blob(&c->db, st, 1, &len);
    if ((!f->verify || mgr_col(&c->db, st, 0)) && len == path.len && memcmp(is, path.data, len) == 0)
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

/* What the parts have told of windows. */
struct sums {
    uint8_t *of; /* 8 bytes a window; a window that several parts have has no sum of all of it: all bits, and 0 in the end */
    uint64_t windows;
    bool all; /* each part has told those of all that it has */
};

static void add(struct sums *s, uint64_t first, const uint8_t *p, size_t len)
{
    static const uint8_t none[8] = {0}, unknown[8] = {255, 255, 255, 255, 255, 255, 255, 255};

    for (uint64_t w = first; len >= 8; w++, p += 8, len -= 8) {
        if (memcmp(p, none, 8) == 0)
            continue;
        s->all &= memcmp(p, unknown, 8) != 0;
        if (w < s->windows)
            memcpy(s->of + w * 8, memcmp(s->of + w * 8, none, 8) == 0 ? p : unknown, 8);
    }
}

static void finish(struct sums *s)
{
    static const uint8_t unknown[8] = {255, 255, 255, 255, 255, 255, 255, 255};

    for (uint64_t w = 0; w < s->windows; w++)
        if (memcmp(s->of + w * 8, unknown, 8) == 0)
            memset(s->of + w * 8, 0, 8);
}

static int collect(struct mgr_core *c, const struct mgr_dfile *f, struct sums *s)
{
    const enum mgr_stmt st = MGR_ST_DPART_SUMS;
    uint64_t first = 0, bnf = 0;
    uint32_t n;
    int rc;

    s->all = true;
    do {
        n = 0;
        for (rc = mgr_db_one(&c->db, DPART_SUMS, DBI(f->id), DBI(first), DBI(bnf), DBI(PAGE)); rc > 0; rc = mgr_db_step(&c->db, st), n++) {
            size_t len;
            const uint8_t *p = mgr_col_blob(&c->db, st, 2, &len);

            first = (uint64_t)mgr_col(&c->db, st, 0);
            bnf = (uint64_t)mgr_col(&c->db, st, 1);
            add(s, first, p, len);
        }
    } while (n == PAGE && rc >= 0);
    finish(s);
    return rc < 0 ? rc : 0;
}

static int tfile_new(struct mgr_core *c, const struct mgr_dfile *f, const struct mgr_inode *in, const Fp__ExtFile *seen, int64_t *id)
{
    ProtobufCBinaryData path;
    int rc = mgr_drained_path(c, f, &path);

    rc = rc ? rc : mgr_db_exec(&c->db, TFILE_NEW, DBI(f->target), DBB(path.data, path.len), DBI(seen->dev), DBI(seen->ino), DBI(seen->size_bytes),
                               DBI(seen->mtime_ns));
    *id = sqlite3_last_insert_rowid(c->db.sq);
    return rc ? rc : mgr_ext_replaced(c, f->target, path, (uint64_t)*id, in);
}

int mgr_drained_put(struct mgr_core *c, struct mgr_dfile *f, const struct mgr_inode *in, const Fp__ExtFile *seen)
{
    struct sums s = {.windows = (f->size + in->chunk_size - 1) / in->chunk_size};
    int64_t tfile = 0;
    int rc = mgr_drained_drop_at(c, f->ino, f->target);

    c->drain->rescue_sums.of = NULL; /* its number may be that of the one before */
    if (s.windows > SUMS_MAX)
        s.windows = 0;
    s.of = mgr_arena_zalloc(&c->arena, s.windows * 8 + 1);
    if (!s.of)
        return mgr_doom(c, -ENOMEM);
    rc = rc ? rc : collect(c, f, &s);
    rc = rc ? rc : tfile_new(c, f, in, seen, &tfile);
    if (!rc)
        mgr_survey_found(c, (uint64_t)tfile);
    mgr_level_drained(c);
    mgr_waits_drained(c, f->ino);
    return rc ? rc : mgr_db_exec(&c->db, DRAINED_PUT, DBI(f->ino), DBI(f->target), DBI(tfile), DBI(f->version), DBI(f->verify && s.all), DBI(c->now.ns),
                                  DBB(s.of, s.windows * 8));
}

/* Rows of it in these targets. */
static int drop(struct mgr_core *c, uint64_t ino, uint32_t first, uint32_t last)
{
    int rc;

    while ((rc = mgr_db_one(&c->db, DRAINED_ROW, DBI(ino), DBI(first), DBI(last))) > 0) {
        int64_t tfile = mgr_col(&c->db, MGR_ST_DRAINED_ROW, 0), target = mgr_col(&c->db, MGR_ST_DRAINED_ROW, 1);

        mgr_db_reset(&c->db, MGR_ST_DRAINED_ROW);
        mgr_level_drained(c);
        rc = mgr_db_exec(&c->db, DRAINED_DELETE, DBI(ino), DBI(target));
        rc = rc ? rc : mgr_db_exec(&c->db, TFILE_REF, DBI(tfile), DBI(-1));
        rc = rc ? rc : mgr_db_exec(&c->db, TFILE_UNUSED, DBI(tfile));
        if (rc)
            return rc;
    }
    return rc;
}

int mgr_drained_drop_at(struct mgr_core *c, uint64_t ino, uint32_t target)
{
    return drop(c, ino, target, target);
}

int mgr_drained_drop(struct mgr_core *c, uint64_t ino)
{
    return drop(c, ino, 0, UINT32_MAX);
}

int mgr_drained_folded(struct mgr_core *c, const struct mgr_inode *in, uint64_t before)
{
    mgr_level_drained(c);
    return mgr_db_exec(&c->db, DRAINED_FOLDED, DBI(in->ino), DBI(before), DBI(in->data_version));
}
