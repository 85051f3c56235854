/*
 * Tiles out of blocks (gather.h). Called by run.c for each tile, in order.
 *
 * A block's part of a tile is read in pieces as large as the scratch buffer allows: the stretch from its first to its last byte where little of that is not wanted (ghost cells at the ends of rows), row
 * by row where much is not. What lies in the block as it is to lie in the tile is read into the tile directly. Byte order is turned once for the whole tile, at the end; the fill value is
 * put in turned the other way before.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "convert/engine/gather.h"
#include "convert/engine/numbers.h"

#define COVER_BYTES 65536u /* so much is read at once, however little of it is wanted */

struct cv_gather {
    struct cv_source *source;
    const struct cv_dataset *d;
    uint8_t *scratch;
    size_t scratch_bytes;
    unsigned by;         /* dimension in which blocks differ most: they are sorted by their start in it */
    uint64_t longest;    /* of a block in it */
    uint32_t *sorted;    /* numbers of blocks */
    uint32_t *hits;      /* of one tile */
    size_t nsorted;
    uint8_t *seen;       /* of a tile with blocks that overlap: which elements are there */
    size_t seen_bytes;
};

/* ---------------------------------------------------------------- which blocks */

struct order {
    const struct cv_block *blocks;
    unsigned by;
};

static int by_start(const void *pa, const void *pb, void *arg)
{
    const struct order *o = arg;
    uint32_t ia = *(const uint32_t *)pa, ib = *(const uint32_t *)pb;
    uint64_t a = o->blocks[ia].start[o->by], b = o->blocks[ib].start[o->by];

    return a != b ? (a > b) - (a < b) : (ia > ib) - (ia < ib);
}

static int by_number(const void *pa, const void *pb)
{
    uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

    return (a > b) - (a < b);
}

/* The dimension with the most different starts, by how often a block's start is not that of the one before. */
static unsigned most_different(const struct cv_gather *g)
{
    uint64_t best = 0;
    unsigned by = 0;

    for (unsigned i = 0; i < g->d->rank; i++) {
        struct order o = {g->d->blocks, i};
        uint64_t n = 0;

        qsort_r(g->sorted, g->nsorted, sizeof *g->sorted, by_start, &o);
        for (size_t k = 1; k < g->nsorted; k++)
            n += g->d->blocks[g->sorted[k]].start[i] != g->d->blocks[g->sorted[k - 1]].start[i];
        if (n > best) {
            best = n;
            by = i;
        }
    }
    return by;
}

struct cv_gather *cv_gather_new(struct cv_source *s, const struct cv_dataset *d, const bool *wanted, uint8_t *scratch, size_t scratch_bytes)
{
    struct cv_gather *g = calloc(1, sizeof *g);
    struct order o = {d->blocks, 0};

    if (!g)
        return NULL;
    *g = (struct cv_gather){.source = s, .d = d, .scratch = scratch, .scratch_bytes = scratch_bytes};
    g->sorted = calloc(d->nblocks + 1, sizeof *g->sorted);
    g->hits = calloc(d->nblocks + 1, sizeof *g->hits);
    if (!g->sorted || !g->hits) {
        cv_gather_free(g);
        return NULL;
    }
    for (size_t i = 0; i < d->nblocks; i++)
        if (!wanted || wanted[i])
            g->sorted[g->nsorted++] = (uint32_t)i;
    o.by = g->by = most_different(g);
    if (d->rank)
        qsort_r(g->sorted, g->nsorted, sizeof *g->sorted, by_start, &o);
    for (size_t i = 0; d->rank && i < g->nsorted; i++) {
        const struct cv_block *b = &d->blocks[g->sorted[i]];
        uint64_t len = b->count[g->by] ? cv_block_end(b, g->by) - b->start[g->by] : 0;

        g->longest = len > g->longest ? len : g->longest;
    }
    return g;
}

void cv_gather_free(struct cv_gather *g)
{
    if (!g)
        return;
    free(g->sorted);
    free(g->hits);
    free(g->seen);
    free(g);
}

/* The first in the order that begins at `from` or behind it. */
static size_t lower_bound(const struct cv_gather *g, uint64_t from)
{
    size_t low = 0, high = g->nsorted;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (g->d->blocks[g->sorted[mid]].start[g->by] < from)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Blocks that meet the tile, in the order of their numbers. */
static size_t find_hits(struct cv_gather *g, const struct cv_box *tile)
{
    uint64_t lo = tile->lo[g->by], end = lo + tile->count[g->by];
    size_t n = 0, at = 0;
    struct cv_box part;

    if (g->d->rank)
        at = lower_bound(g, lo >= g->longest ? lo - g->longest + 1 : 0);
    for (; at < g->nsorted && (g->d->rank == 0 || g->d->blocks[g->sorted[at]].start[g->by] < end); at++)
        if (cv_box_of_block(&g->d->blocks[g->sorted[at]], tile, g->d->rank, &part))
            g->hits[n++] = g->sorted[at];
    qsort(g->hits, n, sizeof *g->hits, by_number);
    return n;
}

/* ---------------------------------------------------------------- one block's part of a tile */

struct part {
    const struct cv_block *block;
    struct cv_box box;                    /* of the block's elements */
    uint64_t stored_step[CV_RANK_MAX];    /* distances in the block as it is stored, bytes */
    uint64_t tile_step[CV_RANK_MAX];      /* between its elements in the tile */
    uint8_t *to;                          /* its first element in the tile */
    uint64_t first_bytes;                 /* offset in the input of its first element */
};

static void describe(const struct cv_gather *g, const struct cv_block *b, const struct cv_box *tile, uint8_t *out, struct part *p)
{
    uint64_t stored[CV_RANK_MAX], step[CV_RANK_MAX];
    unsigned rank = g->d->rank;
    size_t size = g->d->type.size_bytes;

    p->block = b;
    for (unsigned i = 0; i < rank; i++)
        stored[i] = cv_block_stored(b, i);
    cv_box_steps(stored, rank, size, p->stored_step);
    cv_box_steps(tile->count, rank, size, step);
    p->to = out;
    p->first_bytes = b->offset_bytes;
    for (unsigned i = 0; i < rank; i++) {
        p->to += (b->start[i] + p->box.lo[i] * b->stride[i] - tile->lo[i]) * step[i];
        p->tile_step[i] = step[i] * b->stride[i];
        p->first_bytes += (b->ghost_lo[i] + p->box.lo[i]) * p->stored_step[i];
    }
}

/* From the first to the last byte of count[] elements that lie at these distances. */
static uint64_t stretch(const uint64_t *count, const uint64_t *step, unsigned rank, size_t size)
{
    uint64_t n = size;

    for (unsigned i = 0; i < rank; i++)
        n += (count[i] - 1) * step[i];
    return n;
}

static int check_nan(const struct cv_gather *g, const struct part *p, const uint8_t *data, const uint64_t *step, const uint64_t *count, unsigned rank, uint64_t off, struct cv_fail *why)
{
    uint64_t at;

    if (g->d->nan == CV_NAN_KEEP || !cv_numbers_nan(data, step, count, rank, g->d->type, &at))
        return 0;
    return cv_fail(why, -EDOM, g->source->inputs[p->block->input].path, g->d->name, off == CV_NO_OFFSET ? off : off + at,
                   "not a number (NaN), which `nan: refuse` of the schema does not let pass");
}

/* Are these elements without holes, and do they lie in the tile as in the block? */
static bool lie_alike(const uint64_t *from, const uint64_t *to, const uint64_t *count, unsigned rank, size_t size)
{
    uint64_t row = size;

    for (unsigned i = rank; i-- > 0;) {
        if (count[i] > 1 && (from[i] != row || to[i] != row))
            return false;
        row *= count[i];
    }
    return true;
}

/* Dimensions from `level` on, at one place of those before it: read at once, and put where they belong. */
static int read_stretch(struct cv_gather *g, const struct part *p, unsigned level, const uint64_t *count, uint64_t off, uint8_t *to, struct cv_fail *why)
{
    const uint64_t *from_step = p->stored_step + level, *to_step = p->tile_step + level;
    unsigned rank = g->d->rank - level;
    size_t size = g->d->type.size_bytes;
    uint64_t len = stretch(count, from_step, rank, size);
    bool direct = lie_alike(from_step, to_step, count, rank, size);
    uint8_t *buf = direct ? to : g->scratch;
    int rc = g->source->ops->read_bytes(g->source, p->block->input, off, buf, len, why);

    if (rc && why && !why->dataset[0])
        strncpy(why->dataset, g->d->name, sizeof why->dataset - 1);
    rc = rc ? rc : check_nan(g, p, buf, from_step, count, rank, off, why);
    if (rc == 0 && !direct)
        cv_box_copy(buf, from_step, to, to_step, count, rank, size);
    return rc;
}

/* How many of the leading dimensions are gone through one by one, and how many elements of the next at once (*run). */
static unsigned choose_level(const struct cv_gather *g, const struct part *p, uint64_t *run)
{
    size_t size = g->d->type.size_bytes;
    unsigned rank = g->d->rank;

    for (unsigned level = 0; level < rank; level++) {
        uint64_t wanted = size, one, len = stretch(p->box.count + level, p->stored_step + level, rank - level, size);

        for (unsigned i = level; i < rank; i++)
            wanted *= p->box.count[i];
        if (len > 2 * wanted && len > COVER_BYTES)
            continue; /* too much of it is not wanted */
        *run = p->box.count[level];
        if (len <= g->scratch_bytes || lie_alike(p->stored_step + level, p->tile_step + level, p->box.count + level, rank - level, size))
            return level;
        one = stretch(p->box.count + level + 1, p->stored_step + level + 1, rank - level - 1, size);
        if (one > g->scratch_bytes)
            continue;
        *run = 1 + (g->scratch_bytes - one) / p->stored_step[level];
        *run = *run < p->box.count[level] ? *run : p->box.count[level];
        return level;
    }
    *run = 1;
    return rank;
}

/* Calls for each place of the dimensions before `level`, and there for each `run` elements of dimension `level`. */
static int read_part(struct cv_gather *g, const struct part *p, struct cv_fail *why)
{
    uint64_t at[CV_RANK_MAX] = {0}, count[CV_RANK_MAX], run, off = p->first_bytes;
    unsigned level = choose_level(g, p, &run), i;
    uint8_t *to = p->to;
    int rc;

    for (;;) {
        for (uint64_t k = 0; k < (level < g->d->rank ? p->box.count[level] : 1); k += run) {
            uint64_t shift = level < g->d->rank ? k * p->stored_step[level] : 0, shift_to = level < g->d->rank ? k * p->tile_step[level] : 0;

            memcpy(count, p->box.count, sizeof count);
            if (level < g->d->rank)
                count[level] = p->box.count[level] - k < run ? p->box.count[level] - k : run;
            rc = read_stretch(g, p, level, count + level, off + shift, to + shift_to, why);
            if (rc)
                return rc;
        }
        for (i = level; i-- > 0;) {
            off += p->stored_step[i];
            to += p->tile_step[i];
            if (++at[i] < p->box.count[i])
                break;
            off -= p->box.count[i] * p->stored_step[i];
            to -= p->box.count[i] * p->tile_step[i];
            at[i] = 0;
        }
        if (i == (unsigned)-1)
            return 0;
    }
}

/* The same of a format that gives boxes: as many rows of the outermost dimension at once as fit, of one that fits. */
static int read_boxes(struct cv_gather *g, const struct part *p, struct cv_fail *why)
{
    unsigned rank = g->d->rank, level = 0, i;
    size_t size = g->d->type.size_bytes;
    uint64_t row = size, run = 1;
    struct cv_box b = p->box;

    for (i = 0; i < rank; i++)
        row *= b.count[i];
    while (level < rank && row > g->scratch_bytes) { /* of dimension `level`, so many at once */
        row /= p->box.count[level];
        run = row <= g->scratch_bytes ? g->scratch_bytes / row : 1;
        b.count[level] = run < p->box.count[level] ? run : p->box.count[level];
        level++;
    }
    for (;;) {
        uint64_t step[CV_RANK_MAX];
        uint8_t *to = p->to;
        int rc = g->source->ops->read_box(g->source, g->d, p->block, b.lo, b.count, g->scratch, why);

        cv_box_steps(b.count, rank, size, step);
        rc = rc ? rc : check_nan(g, p, g->scratch, step, b.count, rank, CV_NO_OFFSET, why);
        if (rc)
            return rc;
        for (i = 0; i < rank; i++)
            to += (b.lo[i] - p->box.lo[i]) * p->tile_step[i];
        cv_box_copy(g->scratch, step, to, p->tile_step, b.count, rank, size);
        for (i = level; i-- > 0;) {
            uint64_t end = p->box.lo[i] + p->box.count[i], most = i + 1 == level ? (run < p->box.count[i] ? run : p->box.count[i]) : 1;

            b.lo[i] += b.count[i];
            if (b.lo[i] < end) {
                b.count[i] = end - b.lo[i] < most ? end - b.lo[i] : most;
                break;
            }
            b.lo[i] = p->box.lo[i];
            b.count[i] = most;
        }
        if (i == (unsigned)-1)
            return 0;
    }
}

/* ---------------------------------------------------------------- the tile */

/* Elements that blocks have, of a tile in which some may overlap. */
static int count_seen(struct cv_gather *g, const struct cv_box *tile, size_t nhits, uint64_t *elements)
{
    uint64_t n = cv_box_elements(tile, g->d->rank), step[CV_RANK_MAX], to_step[CV_RANK_MAX], zero[CV_RANK_MAX] = {0};
    static const uint8_t one = 1;
    struct cv_box part;

    if (n > g->seen_bytes) {
        free(g->seen);
        g->seen = malloc(n);
        g->seen_bytes = g->seen ? n : 0;
        if (!g->seen)
            return -ENOMEM;
    }
    memset(g->seen, 0, n);
    cv_box_steps(tile->count, g->d->rank, 1, step);
    for (size_t h = 0; h < nhits; h++) {
        const struct cv_block *b = &g->d->blocks[g->hits[h]];
        uint8_t *to = g->seen;

        if (!cv_box_of_block(b, tile, g->d->rank, &part))
            continue;
        for (unsigned i = 0; i < g->d->rank; i++) {
            to += (b->start[i] + part.lo[i] * b->stride[i] - tile->lo[i]) * step[i];
            to_step[i] = step[i] * b->stride[i];
        }
        cv_box_copy(&one, zero, to, to_step, part.count, g->d->rank, 1);
    }
    *elements = 0;
    for (uint64_t i = 0; i < n; i++)
        *elements += g->seen[i];
    return 0;
}

int cv_gather_tile(struct cv_gather *g, const struct cv_box *tile, uint8_t *out, uint64_t *elements, struct cv_fail *why)
{
    uint64_t total = cv_box_elements(tile, g->d->rank);
    size_t nhits = find_hits(g, tile);
    struct part p;
    int rc = 0;

    *elements = 0;
    for (size_t h = 0; h < nhits; h++)
        if (cv_box_of_block(&g->d->blocks[g->hits[h]], tile, g->d->rank, &p.box))
            *elements += cv_box_elements(&p.box, g->d->rank);
    if (g->d->overlap == CV_OVERLAP_LAST && nhits > 1)
        rc = count_seen(g, tile, nhits, elements);
    if (rc)
        return cv_fail(why, rc, NULL, g->d->name, CV_NO_OFFSET, "out of memory");
    if (*elements < total)
        cv_numbers_fill(out, total, g->d);
    for (size_t h = 0; h < nhits && rc == 0; h++) {
        const struct cv_block *b = &g->d->blocks[g->hits[h]];

        if (!cv_box_of_block(b, tile, g->d->rank, &p.box))
            continue;
        describe(g, b, tile, out, &p);
        rc = g->source->ops->read_bytes ? read_part(g, &p, why) : read_boxes(g, &p, why);
    }
    if (rc == 0)
        cv_numbers_turn(out, total, g->d->type);
    return rc;
}
