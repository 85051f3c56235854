/* Chunks of which the bytes are in a target.
 *
 * A row of ext says that the bytes of a chunk are, all together, at an offset of a file in a target (tfile), as that file was when its copy was made or
 * looked at. Without a benefactor such a chunk is external: maps say where it is (mgr_ext_tell), a mount has a benefactor fetch it, and that one tells us
 * (mgr_ext_staged). Then the row stays: so the chunk may go again without a copy, and what is lost or damaged on that benefactor is not lost.
 *
 * What is read from a target is compared with chunk.sum, so a row that is wrong makes a read fail, and never wrong. The tfile of a row is kept as long as the
 * row is (tfile.refs). Before anything is renamed over a tfile, no chunk may be only there (drain_job.c asks mgr_ext_only_at).
 *
 * What a benefactor lost, or could not read, is left where it is, and is external from then on. It is deleted when another copy has been fetched and synced to the
 * table, not before: nobody has looked at the target lately. If it turns up again it is taken again (mgr_ext_found); not what was read wrong, for which somebody is told to
 * look at the target (rescue.c).
 *
 * A fetched copy may be told of while the one before is being deleted there: which of the two that deletion takes is not known here, so the chunk stays external,
 * and an inventory finds what is left. Rejected: rows for what is being fetched, a transaction for each, to know what an inventory tells. */
#include "manager/ext.h"

#include <errno.h>
#include <string.h>

#include "fp/bug.h"
#include "fp/err.h"
#include "fp/record.h"
#include "manager/level.h"
#include "manager/rescue.h"
#include "manager/rounds.h"

#define FILES_SEARCHED 32u
#define FILES_BYTES    (1u << 20) /* of files in one map, about: it ends with the window before */
#define FILES_BYTES_MAX (3u << 20) /* of one window: more is no message */

int mgr_ext_load(struct mgr_core *c)
{
    int rc = mgr_db_one(&c->db, EXT_SOME);

    c->exts = rc > 0;
    mgr_db_reset(&c->db, MGR_ST_EXT_SOME);
    return rc < 0 ? rc : 0;
}

/* ---------------------------------------------------------------- files of targets */

int mgr_tfile_get(struct mgr_core *c, uint64_t id, Fp__ExtFile **out, bool *gone)
{
    const enum mgr_stmt st = MGR_ST_TFILE_FILE;
    Fp__ExtFile *x = MGR_NEW(c, Fp__ExtFile, fp__ext_file__init);
    const struct mgr_target *t;
    const void *p;
    int rc;

    if (!x)
        return mgr_doom(c, -ENOMEM);
    rc = mgr_db_one(&c->db, TFILE_FILE, DBI(id));
    if (rc <= 0)
        return rc ? rc : -ENOENT;
    x->target = (uint32_t)mgr_col(&c->db, st, 0);
    p = mgr_col_blob(&c->db, st, 1, &x->path.len);
    x->path.data = mgr_arena_copy(&c->arena, x->path.len ? p : "", x->path.len ? x->path.len : 1);
    x->dev = (uint64_t)mgr_col(&c->db, st, 2);
    x->ino = (uint64_t)mgr_col(&c->db, st, 3);
    x->size_bytes = (uint64_t)mgr_col(&c->db, st, 4);
    x->mtime_ns = mgr_col(&c->db, st, 5);
    *gone = mgr_col(&c->db, st, 6) != 0;
    mgr_db_reset(&c->db, st);
    t = mgr_target_find(c, x->target);
    if (!t)
        return -ENOENT;
    x->root = mgr_arena_text(&c->arena, t->root);
    x->uuid.data = mgr_arena_copy(&c->arena, t->uuid, sizeof t->uuid);
    x->uuid.len = sizeof t->uuid;
    *out = x;
    return x->path.data && x->root && x->uuid.data ? 0 : mgr_doom(c, -ENOMEM);
}

static int tfile_unref(struct mgr_core *c, uint64_t tfile)
{
    int rc = mgr_db_exec(&c->db, TFILE_REF, DBI(tfile), DBI(-1));

    return rc ? rc : mgr_db_exec(&c->db, TFILE_UNUSED, DBI(tfile));
}

/* Chunks of the file that has the name now were in the one before, too. */
static int move_rows(struct mgr_core *c, uint32_t target, ProtobufCBinaryData path, uint64_t by, const struct mgr_inode *in)
{
    const enum mgr_stmt st = MGR_ST_EXT_BEFORE;
    size_t n = 0, cap = 0;
    struct {
        uint64_t chunk, off;
    } *list = NULL;
    int rc;

    for (rc = mgr_db_one(&c->db, EXT_BEFORE, DBI(target), DBB(path.data, path.len), DBI(by), DBI(in->ino)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        list = mgr_arena_grow(&c->arena, list, n, &cap, sizeof *list);
        if (!list) {
            mgr_db_reset(&c->db, st);
            return mgr_doom(c, -ENOMEM);
        }
        list[n].chunk = (uint64_t)mgr_col(&c->db, st, 0);
        list[n++].off = (uint64_t)mgr_col(&c->db, st, 1) * in->chunk_size + (uint64_t)mgr_col(&c->db, st, 2);
    }
    mgr_db_reset(&c->db, st);
    for (size_t i = 0; i < n && rc >= 0; i++)
        rc = mgr_ext_put(c, list[i].chunk, by, list[i].off);
    return rc < 0 ? rc : 0;
}

int mgr_ext_replaced(struct mgr_core *c, uint32_t target, ProtobufCBinaryData path, uint64_t by, const struct mgr_inode *in)
{
    int rc = c->exts ? move_rows(c, target, path, by, in) : 0;

    mgr_level_drained(c);
    return rc ? rc : mgr_db_exec(&c->db, TFILE_REPLACED, DBI(target), DBB(path.data, path.len), DBI(by)); /* what was drained there is so no more, too */
}

/* ---------------------------------------------------------------- rows */

/* 1: there is one; 0; or a failure. */
static int get(struct mgr_core *c, uint64_t chunk, uint64_t *tfile, uint64_t *off)
{
    int rc = c->exts ? mgr_db_one(&c->db, EXT_GET, DBI(chunk)) : 0;

    if (rc <= 0)
        return rc;
    *tfile = (uint64_t)mgr_col(&c->db, MGR_ST_EXT_GET, 0);
    *off = (uint64_t)mgr_col(&c->db, MGR_ST_EXT_GET, 1);
    mgr_db_reset(&c->db, MGR_ST_EXT_GET);
    return 1;
}

int mgr_ext_has(struct mgr_core *c, uint64_t chunk)
{
    uint64_t tfile, off;

    return get(c, chunk, &tfile, &off);
}

int mgr_ext_where(struct mgr_core *c, uint64_t chunk, uint64_t tfile, uint64_t *off)
{
    uint64_t is;
    int rc = get(c, chunk, &is, off);

    return rc > 0 ? is == tfile : rc;
}

int mgr_ext_drop(struct mgr_core *c, uint64_t chunk)
{
    uint64_t tfile, off;
    int rc = get(c, chunk, &tfile, &off);

    if (rc <= 0)
        return rc;
    rc = mgr_db_exec(&c->db, EXT_DELETE, DBI(chunk));
    return rc ? rc : tfile_unref(c, tfile);
}

int mgr_ext_put(struct mgr_core *c, uint64_t chunk, uint64_t tfile, uint64_t off)
{
    uint64_t old, old_off;
    int rc = get(c, chunk, &old, &old_off);

    if (rc < 0 || (rc && old == tfile && old_off == off))
        return rc < 0 ? rc : 0;
    c->exts = true;
    if (rc)
        rc = tfile_unref(c, old);
    rc = rc ? rc : mgr_db_exec(&c->db, EXT_PUT, DBI(chunk), DBI(tfile), DBI(off));
    return rc ? rc : mgr_db_exec(&c->db, TFILE_REF, DBI(tfile), DBI(1));
}

int mgr_ext_revert(struct mgr_core *c, const struct mgr_chunk *ch, enum mgr_bad bad, const char *reason)
{
    uint64_t tfile, off;
    Fp__ExtFile *x;
    bool gone = true;
    int rc = get(c, ch->id, &tfile, &off);

    rc = rc > 0 ? mgr_tfile_get(c, tfile, &x, &gone) : rc < 0 ? rc : -ENOENT;
    if (rc && rc != -ENOENT)
        return rc;
    gone = gone || rc || mgr_drain_renames_over(c, x) || FP_BUG("mgr-forgets-what-a-target-has");
    if (!gone)
        return bad == MGR_BAD_READ ? mgr_rescue_in(c, ch, tfile, off, x, reason) : mgr_chunk_place(c, ch, 0, 0);
    rc = mgr_rescue(c, ch, bad, reason);
    return rc < 0 ? rc : 0;
}

/* Chunks that are nowhere else, in memory of the group. */
static int only_in(struct mgr_core *c, uint64_t tfile, uint64_t **out, size_t *count)
{
    return mgr_ids(c, MGR_ST_EXT_ONLY_IN, c->exts ? mgr_db_one(&c->db, EXT_ONLY_IN, DBI(tfile)) : 0, out, count);
}

/* Another copy has it, or it is lost. */
static int lose(struct mgr_core *c, uint64_t chunk)
{
    enum mgr_bad bad = MGR_BAD_LOOK;
    struct mgr_chunk ch;
    int rc = mgr_damage_has(c, chunk, &bad);

    if (rc < 0 || bad != MGR_BAD_LOOK)
        return rc < 0 ? rc : 0; /* it stays what it was found to be */
    rc = mgr_chunk_get(c, chunk, &ch);
    rc = rc ? rc : mgr_rescue(c, &ch, MGR_BAD_MISSING, "its copy in the target is not there any more, or another file is");
    return rc < 0 ? rc : 0;
}

int mgr_tfile_gone(struct mgr_core *c, uint64_t tfile)
{
    uint64_t *list;
    size_t n;
    int rc = mgr_db_exec(&c->db, TFILE_GONE, DBI(tfile));

    mgr_level_drained(c);
    rc = rc ? rc : only_in(c, tfile, &list, &n);
    for (size_t i = 0; !rc && i < n; i++)
        rc = lose(c, list[i]);
    return rc ? rc : mgr_rescue_over(c, tfile);
}

/* It is no loss any more that this is only there. What a benefactor has of it, and was read wrong, is to go, which takes a look that is marked (rescue.c). */
static int comes_back(struct mgr_core *c, uint64_t tfile, uint64_t chunk)
{
    uint32_t wrong;
    struct mgr_chunk ch;
    Fp__ExtFile *x;
    uint64_t off;
    bool gone;
    int rc = mgr_damage_wrong(c, chunk, &wrong);

    if (rc || !wrong)
        return rc ? rc : mgr_damage_found(c, chunk);
    rc = mgr_chunk_get(c, chunk, &ch);
    rc = rc ? rc : mgr_tfile_get(c, tfile, &x, &gone);
    if (!rc && mgr_ext_where(c, chunk, tfile, &off) > 0)
        rc = mgr_rescue_in(c, &ch, tfile, off, x, "what a benefactor has of it was read wrong");
    return rc == -ENOENT ? 0 : rc;
}

int mgr_tfile_back(struct mgr_core *c, uint64_t tfile)
{
    uint64_t *list;
    size_t n;
    int rc = mgr_db_exec(&c->db, TFILE_BACK, DBI(tfile));

    if (rc || !sqlite3_changes(c->db.sq))
        return rc;
    mgr_level_drained(c);
    rc = only_in(c, tfile, &list, &n);
    for (size_t i = 0; !rc && i < n; i++)
        rc = comes_back(c, tfile, list[i]);
    return rc;
}

static int is_any(struct mgr_core *c, enum mgr_stmt st, int rc)
{
    mgr_db_reset(&c->db, st);
    return rc;
}

int mgr_ext_only_at(struct mgr_core *c, uint32_t target, ProtobufCBinaryData path, uint64_t ino, uint32_t *away)
{
    const enum mgr_stmt st = MGR_ST_EXT_ONLY_AT;
    bool only = false;
    int rc = mgr_rescue_win_only_at(c, target, path, ino);

    *away = 0;
    if (rc)
        return rc;
    rc = c->exts ? mgr_db_one(&c->db, EXT_ONLY_AT, DBI(target), DBB(path.data, path.len), DBI(ino)) : 0;
    for (; rc > 0 && !only; rc = mgr_db_step(&c->db, st)) {
        struct mgr_bnf *b = mgr_bnf_find(c, (uint32_t)mgr_col(&c->db, st, 0));
        enum mgr_kept kept = b ? mgr_round_kept(b, mgr_col(&c->db, st, 1)) : MGR_KEPT_DOUBT;

        if (b && !mgr_bnf_vouched(b) && (kept == MGR_KEPT_SYNCED || kept == MGR_KEPT_NOT_YET)) {
            *away = b->id; /* what it has is known when it is back */
            continue;
        }
        only = kept != MGR_KEPT_SYNCED;
        if (b && only)
            mgr_round_want(c, b);
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : only ? MGR_ONLY_THERE : *away ? MGR_ONLY_AWAY : 0;
}

int mgr_ext_any(struct mgr_core *c, uint64_t ino)
{
    return c->exts ? is_any(c, MGR_ST_EXT_ONLY_OF, mgr_db_one(&c->db, EXT_ONLY_OF, DBI(ino))) : 0;
}

int mgr_ext_names(struct mgr_core *c, uint64_t ino)
{
    return c->exts ? is_any(c, MGR_ST_EXT_OF, mgr_db_one(&c->db, EXT_OF, DBI(ino))) : 0;
}

/* ---------------------------------------------------------------- maps */

struct telling {
    Fp__SliceMapReply *r;
    uint64_t *id; /* tfile of each of r->ext_files */
    size_t cap, bytes;
};

/* Which of the answer's files it is, from 1; slices of one file come together. */
static int file_of(struct mgr_core *c, struct telling *t, uint64_t tfile, uint32_t *out)
{
    Fp__SliceMapReply *r = t->r;
    bool gone;
    int rc;

    for (size_t i = r->n_ext_files; i > 0 && r->n_ext_files - i < FILES_SEARCHED; i--)
        if (t->id[i - 1] == tfile) {
            *out = (uint32_t)i;
            return 0;
        }
    if (r->n_ext_files == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 8;
        Fp__ExtFile **files = mgr_arena_alloc(&c->arena, cap * sizeof *files);
        uint64_t *id = mgr_arena_alloc(&c->arena, cap * sizeof *id);

        if (!files || !id)
            return mgr_doom(c, -ENOMEM);
        if (t->cap) {
            memcpy(files, r->ext_files, t->cap * sizeof *files);
            memcpy(id, t->id, t->cap * sizeof *id);
        }
        r->ext_files = files;
        t->id = id;
        t->cap = cap;
    }
    rc = mgr_tfile_get(c, tfile, &r->ext_files[r->n_ext_files], &gone);
    if (rc)
        return rc;
    t->bytes += 128 + r->ext_files[r->n_ext_files]->path.len + strlen(r->ext_files[r->n_ext_files]->root);
    t->id[r->n_ext_files++] = tfile;
    *out = (uint32_t)r->n_ext_files;
    return 0;
}

int mgr_ext_tell(struct mgr_core *c, Fp__SliceMapReply *r)
{
    struct telling t = {.r = r};
    size_t first = 0, files = 0; /* where this window began */
    int rc = 0;

    for (size_t i = 0; i < r->n_slices && c->exts && rc >= 0; i++) {
        Fp__Slice *s = r->slices[i];
        uint64_t tfile;

        if (i && s->win != r->slices[i - 1]->win) {
            first = i;
            files = r->n_ext_files;
        }
        rc = s->bnf ? 0 : get(c, s->chunk, &tfile, &s->ext_off);
        if (rc > 0)
            rc = file_of(c, &t, tfile, &s->ext);
        rc = rc == -ENOENT ? 0 : rc;
        if (rc >= 0 && t.bytes > FILES_BYTES && first) { /* up to this window */
            r->win_end = s->win;
            r->n_slices = first;
            r->n_ext_files = files;
        } else if (t.bytes > FILES_BYTES_MAX) {
            return -EFBIG;
        }
    }
    return rc < 0 ? rc : 0;
}

/* ---------------------------------------------------------------- fetched */

static int is_garbage(struct mgr_core *c, uint64_t chunk, const struct mgr_bnf *b)
{
    int rc = mgr_db_one(&c->db, GARBAGE_HAS, DBI(b->id), DBI(chunk));

    mgr_db_reset(&c->db, MGR_ST_GARBAGE_HAS);
    return rc;
}

/* What a file in a target has that is gone, as we know: is it back? */
static int look_again(struct mgr_core *c, uint64_t chunk)
{
    uint64_t tfile;
    int rc = mgr_db_one(&c->db, EXT_GONE, DBI(chunk));

    if (rc <= 0)
        return rc;
    tfile = (uint64_t)mgr_col(&c->db, MGR_ST_EXT_GONE, 0);
    mgr_db_reset(&c->db, MGR_ST_EXT_GONE);
    rc = mgr_look(c, tfile, 0);
    return rc < 0 ? rc : 0;
}

/* 1: it is the chunk's copy from now on; 0: it is not wanted; or a failure. */
static int take(struct mgr_core *c, struct mgr_bnf *b, const Fp__Staged *s)
{
    struct mgr_chunk ch;
    int rc = mgr_chunk_get(c, s->chunk, &ch);

    if (rc && rc != -ENOENT)
        return rc;
    if (!rc && ch.bnf == b->id)
        return 1; /* told again */
    if (is_garbage(c, s->chunk, b)) {
        if (!b->inv_wanted) {
            b->inv_wanted = true;
            b->inv_at_ms = c->now.ms + 1000;
        } else {
            b->inv_again = true;
        }
        return c->db.err ? c->db.err : 0;
    }
    if (!rc && !ch.bnf && (rc = mgr_ext_has(c, s->chunk)) != 0) {
        if (rc > 0)
            rc = mgr_chunk_place(c, &ch, b->id, s->stored_bytes);
        rc = rc ? rc : mgr_damage_drop(c, s->chunk);
        rc = rc ? rc : look_again(c, s->chunk);
        return rc ? rc : 1;
    }
    return mgr_garbage_put(c, s->chunk, b->id, s->stored_bytes);
}

int mgr_ext_found(struct mgr_core *c, struct mgr_bnf *b, const struct mgr_chunk *ch)
{
    int rc = is_garbage(c, ch->id, b);
    uint32_t wrong;

    if (rc)
        return rc < 0 ? rc : 0; /* it is being deleted */
    rc = mgr_damage_wrong(c, ch->id, &wrong);
    if (rc || (!ch->bnf && wrong == b->id))
        return rc; /* it is as wrong as it was */
    rc = ch->bnf ? 0 : mgr_ext_has(c, ch->id);
    if (rc > 0) {
        rc = mgr_chunk_found(c, ch, b, fp_record_size_bytes(ch->len));
        return rc ? rc : mgr_damage_drop(c, ch->id);
    }
    b->inv_orphans++;
    return rc ? rc : mgr_garbage_put(c, ch->id, b->id, 0);
}

int mgr_ext_staged(struct mgr_core *c, struct mgr_bnf *b, Fp__Staged *const *s, size_t n, Fp__TaskAck *ack)
{
    int rc = 0;

    if (!n)
        return 0;
    if (!(ack->dropped = mgr_arena_alloc(&c->arena, n * sizeof *ack->dropped)))
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < n && rc >= 0; i++) {
        if (s[i]->chunk > INT64_MAX)
            continue;
        rc = take(c, b, s[i]);
        if (rc == 0)
            ack->dropped[ack->n_dropped++] = s[i]->chunk;
    }
    mgr_bnf_touch(c, b);
    return rc < 0 ? rc : 0;
}

/* ---------------------------------------------------------------- not there any more */

int mgr_ext_bad(struct mgr_core *c, const struct mgr_chunk *ch, const Fp__BadChunk *m)
{
    const Fp__ExtFile *said = m->file;
    uint64_t tfile, off;
    Fp__ExtFile *x;
    bool gone;
    int rc = get(c, ch->id, &tfile, &off);

    if (rc <= 0)
        return rc;
    if (ch->bnf)
        return mgr_ext_revert(c, ch, MGR_BAD_READ, m->reason);
    rc = mgr_tfile_get(c, tfile, &x, &gone);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    if (said && (said->target != x->target || said->ino != x->ino || said->size_bytes != x->size_bytes || said->mtime_ns != x->mtime_ns))
        return 0; /* by an old map, of another file than it is in now */
    rc = mgr_look(c, tfile, m->status == FP_ECHECKSUM ? ch->id : 0);
    return rc < 0 ? rc : 0;
}
