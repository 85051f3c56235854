/* What it would be to fold a window: to store anew, as one chunk, what slices name of the chunks that only this window keeps. A mount does it, since the
 * manager has no data; here is what it is told, and what its commit is checked with.
 *
 *     map    |aaa|bb|aaaaa|cc|ddd|        a, b, d: named by this window alone; c: by another file, too
 *     folded |nnnnnnnnnnnn|cc|nnn|        a, b and d go, and with them the bytes of them that no slice names
 *
 * What others share, or a session holds, is left as it is: a copy of it would free nothing. What versions of the file itself share (version.c) is no such thing: they go, mostly before
 * the mount comes to fold it, and nobody would tell the mount of the window then. So are coded chunks (they may be encrypted, and the mount need not have the
 * aux-app), and lost ones.
 *
 * A mount that folds hears of a window with the answer to its commit (mgr_fold_hints), and asks for its map (MSG_SLICEMAP with `fold`). The map's sum covers each slice, where it
 * lies, and whether the chunk is shared. Chunk numbers are never given twice and chunks never change, so a window that has the same sum when the new chunk is committed has the
 * same bytes: whatever else happened (a write or a truncate by anybody, another fold, a clone), it has another one, and the fold is lost, which costs nobody anything.
 * The data_version of the file was rejected for it: other windows may be written all the time.
 *
 * Looking at a window takes time in proportion to its slices; one commit looks at so many (HINT_ROWS_MAX), of other windows each time.
 *
 * Called by the core's thread, in a group. */
#include <errno.h>
#include <stdlib.h>

#include "fp/checksum.h"
#include "fp/record.h"
#include "manager/version.h"

#define HINT_ROWS_MAX 4096u
#define SUM_ROWS      (FP_BLOCK_SIZE_BYTES / sizeof(struct place))

/* What the sum is of. */
struct place {
    uint64_t win, chunk; /* as large as divides a block of fp_sum_blocks */
    uint32_t off, len, chunk_off, folds;
};

struct mgr_fold_row {
    struct place at;
    uint32_t stored, refs, data; /* of the chunk; data 0: it can't be folded */
};

_Static_assert(SUM_ROWS * sizeof(struct place) == FP_BLOCK_SIZE_BYTES, "a block is of whole places");

static int by_chunk(const void *a, const void *b)
{
    const struct mgr_fold_row *x = *(struct mgr_fold_row *const *)a, *y = *(struct mgr_fold_row *const *)b;

    return x->at.chunk < y->at.chunk ? -1 : x->at.chunk > y->at.chunk;
}

static int read_rows(struct mgr_core *c, uint64_t ino, uint64_t win, uint32_t max, struct mgr_fold *w)
{
    const enum mgr_stmt st = MGR_ST_SLICE_FOLD;
    size_t cap = 0;
    int rc;

    for (rc = mgr_db_one(&c->db, SLICE_FOLD, DBI(ino), DBI(win)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        struct mgr_fold_row *r;

        if (w->nrows == max) {
            w->more = true;
            break;
        }
        w->row = mgr_arena_grow(&c->arena, w->row, w->nrows, &cap, sizeof(*w->row));
        if (!w->row) {
            mgr_db_reset(&c->db, st);
            return mgr_doom(c, -ENOMEM);
        }
        r = &w->row[w->nrows++];
        *r = (struct mgr_fold_row){.at = {.win = win,
                                          .off = (uint32_t)mgr_col(&c->db, st, 0),
                                          .len = (uint32_t)mgr_col(&c->db, st, 1),
                                          .chunk = (uint64_t)mgr_col(&c->db, st, 2),
                                          .chunk_off = (uint32_t)mgr_col(&c->db, st, 3)},
                                   .stored = (uint32_t)mgr_col(&c->db, st, 4),
                                   .refs = (uint32_t)mgr_col(&c->db, st, 5)};
        r->data = mgr_col(&c->db, st, 7) ? (uint32_t)mgr_col(&c->db, st, 6) : 0;
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

/* Slices of what the file was that name the chunk. */
static int of_versions(struct mgr_core *c, const struct mgr_vfile *v, uint64_t chunk, uint32_t *n)
{
    int rc = v ? mgr_db_one(&c->db, SLICE_OF_VERSIONS, DBI(chunk), DBI(v->guard.shadow), DBI(v->waits.shadow), DBI(v->remains.shadow)) : 0;

    *n = rc > 0 ? (uint32_t)mgr_col(&c->db, MGR_ST_SLICE_OF_VERSIONS, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_SLICE_OF_VERSIONS);
    return rc < 0 ? rc : 0;
}

/* Which rows are of chunks that only this window names, and what those take. */
static int find_own(struct mgr_core *c, uint64_t ino, struct mgr_fold *w, uint64_t *stored)
{
    struct mgr_fold_row **p = mgr_arena_alloc(&c->arena, (w->nrows + 1) * sizeof(*p));
    const struct mgr_vfile *v = mgr_vfile_find(c, ino);
    uint32_t more;
    int rc = 0;

    if (!p)
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < w->nrows; i++)
        p[i] = &w->row[i];
    if (w->nrows)
        qsort(p, w->nrows, sizeof *p, by_chunk);
    for (size_t i = 0, end; i < w->nrows && !rc; i = end) {
        for (end = i + 1; end < w->nrows && p[end]->at.chunk == p[i]->at.chunk; end++)
            ;
        more = 0;
        if (p[i]->data && p[i]->refs > end - i)
            rc = of_versions(c, v, p[i]->at.chunk, &more);
        if (rc || !p[i]->data || p[i]->refs != end - i + more)
            continue;
        *stored += p[i]->stored;
        for (size_t k = i; k < end; k++)
            p[k]->at.folds = 1;
    }
    return rc;
}

/* Places without what else the rows have, a block at a time. */
static void sum_rows(struct mgr_fold *w)
{
    uint64_t sums[MGR_WINDOW_MAX / SUM_ROWS + 1];
    struct place block[SUM_ROWS];
    uint32_t nblocks = 0;

    for (size_t i = 0; i < w->nrows;) {
        size_t n = 0;

        while (n < SUM_ROWS && i < w->nrows)
            block[n++] = w->row[i++].at;
        fp_sum_blocks(block, n * sizeof *block, &sums[nblocks++]);
    }
    w->sum = fp_sum_chunk(sums, nblocks, w->nrows * sizeof *block);
}

int mgr_fold_look(struct mgr_core *c, uint64_t ino, uint64_t win, uint32_t max, struct mgr_fold *w)
{
    uint64_t stored = 0, data = 0;
    uint32_t end = UINT32_MAX;
    int rc;

    *w = (struct mgr_fold){.win = win};
    rc = read_rows(c, ino, win, max, w);
    rc = rc || w->more ? rc : find_own(c, ino, w, &stored);
    if (rc || w->more)
        return rc;
    for (size_t i = 0; i < w->nrows; i++) {
        const struct place *p = &w->row[i].at;

        if (!p->folds)
            continue;
        w->slices++;
        w->ranges += p->off != end;
        end = p->off + p->len;
        data += p->len;
    }
    sum_rows(w);
    /* One chunk for every so many ranges; but for that, what a record takes. */
    w->bytes = w->slices ? fp_record_size_bytes((uint32_t)data) + (w->ranges / MGR_FOLD_RANGES) * (uint64_t)FP_RECORD_HEADER_BYTES : 0;
    w->gain = stored > w->bytes ? stored - w->bytes : 0;
    return 0;
}

bool mgr_fold_pays(const struct mgr_fold *w)
{
    return (w->gain >= MGR_FOLD_GAIN_MIN && w->gain >= w->bytes / 8) || (w->slices >= MGR_FOLD_SLICES && w->slices / 2 >= w->ranges);
}

Fp__Fold *mgr_fold_tell(struct mgr_core *c, const struct mgr_fold *w)
{
    Fp__Fold *f = MGR_NEW(c, Fp__Fold, fp__fold__init);

    if (f) {
        f->win = w->win;
        f->new_bytes = w->bytes;
        f->gain_bytes = w->gain;
        f->slices = w->slices;
        f->ranges = w->ranges;
    }
    return f;
}

/* What is told of slices in order, of the same window and all of it. */
int mgr_fold_map(struct mgr_core *c, uint64_t ino, uint64_t win, Fp__SliceMapReply *r)
{
    struct mgr_fold w;
    int rc = mgr_fold_look(c, ino, win, MGR_WINDOW_MAX, &w);

    if (rc || w.more)
        return rc ? rc : -EFBIG;
    r->fold = mgr_fold_tell(c, &w);
    if (!r->fold)
        return mgr_doom(c, -ENOMEM);
    r->fold->map_sum = w.sum;
    for (size_t i = 0, k = 0; i < r->n_slices; i++) {
        while (k < w.nrows && w.row[k].at.off < r->slices[i]->off)
            k++;
        r->slices[i]->folds = k < w.nrows && w.row[k].at.off == r->slices[i]->off && w.row[k].at.folds;
    }
    return 0;
}

/* The end of the slices of one window, of which there are `bytes`. */
static size_t window_end(Fp__Slice *const *s, size_t i, size_t n, uint64_t *bytes)
{
    uint64_t win = s[i]->win;

    for (*bytes = 0; i < n && s[i]->win == win; i++)
        *bytes += s[i]->len;
    return i;
}

static int hint(struct mgr_core *c, const struct mgr_inode *in, uint64_t win, uint32_t *rows, Fp__CommitReply *r)
{
    struct mgr_fold w;
    int rc = mgr_fold_look(c, in->ino, win, *rows, &w);

    *rows -= (uint32_t)w.nrows;
    if (rc || w.more || !mgr_fold_pays(&w))
        return rc;
    r->folds[r->n_folds] = mgr_fold_tell(c, &w);
    return r->folds[r->n_folds++] ? 0 : mgr_doom(c, -ENOMEM);
}

int mgr_fold_hints(struct mgr_core *c, const struct mgr_inode *in, Fp__Slice *const *s, size_t n, Fp__CommitReply *r)
{
    uint32_t rows = HINT_ROWS_MAX;
    uint64_t *wins = mgr_arena_alloc(&c->arena, (n + 1) * sizeof *wins), bytes;
    size_t nwins = 0, first;
    int rc = 0;

    if (!wins)
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0, end; i < n; i = end) {
        end = window_end(s, i, n, &bytes);
        if (bytes < in->chunk_size && bytes < in->mapped) /* else there is nothing but this */
            wins[nwins++] = s[i]->win;
    }
    if (!nwins)
        return 0;
    r->folds = mgr_arena_alloc(&c->arena, nwins * sizeof(*r->folds));
    if (!r->folds)
        return mgr_doom(c, -ENOMEM);
    first = (size_t)(in->data_version % nwins);
    for (size_t i = 0; i < nwins && !rc && rows; i++)
        rc = hint(c, in, wins[(first + i) % nwins], &rows, r);
    return rc;
}

int mgr_fold_check(struct mgr_core *c, const Fp__Commit *m, bool *same)
{
    struct mgr_fold w;
    int rc;

    if (!m->n_slices)
        return -EINVAL;
    for (size_t i = 1; i < m->n_slices; i++)
        if (m->slices[i]->win != m->slices[0]->win)
            return -EINVAL;
    rc = mgr_fold_look(c, m->ino, m->slices[0]->win, MGR_WINDOW_MAX, &w);
    *same = !rc && !w.more && w.sum == m->fold_map_sum;
    return rc;
}
