/*
 * Whether blocks make up an array (cover.h). Called by run.c once for each dataset, before anything is written. Pure.
 *
 * Blocks that do not overlap make up the array if and only if they have as many elements as it has; so only overlaps are looked for. A sweep along one dimension keeps those that reach the present place, and a
 * new one is compared with those of them alone that lie in the same part of a second dimension: of 100,000 blocks of a three-dimensional grid that is some dozens. Where overlaps are allowed the count says nothing, and each tile counts for
 * itself (gather.c). Rejected: a bit for each element, which is an eighth of a gigabyte for a grid of 1024 cells a side.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/engine/box.h"
#include "convert/engine/cover.h"
#include "fp/grown.h"

#define LANES 64u
#define SEARCH_STEPS 200000u /* for the first element that is missing: after so many it is not named */

struct sweep {
    const struct cv_dataset *d;
    uint32_t *order;
    unsigned by, lane_by; /* along the one, in lanes of the other */
};

static const char *input_of(const struct cv_source *s, const struct cv_block *b)
{
    return b->input < s->ninputs ? s->inputs[b->input].path : NULL;
}

/* "[3, 0, 17]" */
static const char *place(const uint64_t *at, unsigned rank, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "[");

    for (unsigned i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%" PRIu64, i ? ", " : "", at[i]);
    if (n < size)
        snprintf(out + n, size - n, "]");
    return out;
}

static int check_bounds(const struct cv_source *s, const struct cv_dataset *d, struct cv_fail *why)
{
    char at[256];

    for (size_t k = 0; k < d->nblocks; k++) {
        const struct cv_block *b = &d->blocks[k];

        for (unsigned i = 0; i < d->rank; i++) {
            uint64_t size = d->dims[i].size;

            if (b->stride[i] == 0 || b->stride[i] > INT64_MAX || b->start[i] > size || b->count[i] > size || (b->count[i] && (b->count[i] - 1) > (size - 1) / b->stride[i]) ||
                (b->count[i] && cv_block_end(b, i) > size))
                return cv_fail(why, -EINVAL, input_of(s, b), d->name, CV_NO_OFFSET,
                               "a block at %s is not inside of the array: dimension %u has %" PRIu64 " elements, the block %" PRIu64 " from %" PRIu64 " on",
                               place(b->start, d->rank, at, sizeof at), i, size, b->count[i], b->start[i]);
        }
    }
    return 0;
}

static int by_start(const void *pa, const void *pb, void *arg)
{
    const struct sweep *w = arg;
    uint64_t a = w->d->blocks[*(const uint32_t *)pa].start[w->by], b = w->d->blocks[*(const uint32_t *)pb].start[w->by];

    return (a > b) - (a < b);
}

static uint64_t starts(struct sweep *w, size_t n)
{
    uint64_t different = 1;

    qsort_r(w->order, n, sizeof *w->order, by_start, w);
    for (size_t k = 1; k < n; k++)
        different += w->d->blocks[w->order[k]].start[w->by] != w->d->blocks[w->order[k - 1]].start[w->by];
    return different;
}

/* Along the dimension in which the fewest blocks are at one place, in lanes of the next best. */
static void choose_dimensions(struct sweep *w, size_t n)
{
    uint64_t best = 0, second = 0;
    unsigned by = 0;

    for (w->by = 0; w->by < w->d->rank; w->by++) {
        uint64_t different = starts(w, n);

        if (different > best) {
            second = best;
            w->lane_by = by;
            best = different;
            by = w->by;
        } else if (different > second) {
            second = different;
            w->lane_by = w->by;
        }
    }
    w->by = by;
    (void)starts(w, n);
}

static int overlap(const struct cv_source *s, const struct cv_dataset *d, const struct cv_block *a, const struct cv_block *b, struct cv_fail *why)
{
    char one[256], other[256];

    return cv_fail(why, -EINVAL, input_of(s, b), d->name, CV_NO_OFFSET, "its block at %s overlaps the one at %s of %s: the schema is wrong (overlap: last in it lets that pass)", place(b->start, d->rank, one, sizeof one),
                   place(a->start, d->rank, other, sizeof other), a->input == b->input ? "the same file" : input_of(s, a) ? input_of(s, a) : "another one");
}

/* Active blocks lie in lanes of a second dimension, those that reach into it: a new one is compared with those of its lanes alone. */
struct lane {
    uint32_t *blocks;
    size_t n, cap;
};

static int lane_add(struct lane *l, uint32_t block)
{
    uint32_t *blocks = fp_grown(l->blocks, l->n, &l->cap, sizeof *blocks);

    if (!blocks)
        return -ENOMEM;
    l->blocks = blocks;
    l->blocks[l->n++] = block;
    return 0;
}

/* Compares b with those that are in the lane still; those that have ended leave it. NULL: none meets it. */
static const struct cv_block *lane_look(const struct sweep *w, struct lane *l, const struct cv_block *b)
{
    const struct cv_block *met = NULL;
    size_t kept = 0;

    for (size_t a = 0; a < l->n; a++) {
        const struct cv_block *other = &w->d->blocks[l->blocks[a]];

        if (w->d->rank && cv_block_end(other, w->by) <= b->start[w->by])
            continue; /* it ends before */
        l->blocks[kept++] = l->blocks[a];
        if (!met && cv_blocks_meet(other, b, w->d->rank))
            met = other;
    }
    l->n = kept;
    return met;
}

/* The lanes that a block reaches into, first to last. */
static void lanes_of(const struct sweep *w, const struct cv_block *b, size_t *first, size_t *last)
{
    uint64_t size;

    *first = *last = 0;
    if (w->d->rank < 2)
        return;
    size = (w->d->dims[w->lane_by].size + LANES - 1) / LANES;
    *first = b->start[w->lane_by] / size;
    *last = (cv_block_end(b, w->lane_by) - 1) / size;
}

static int find_overlaps(const struct cv_source *s, const struct sweep *w, struct lane *lanes, size_t n, struct cv_fail *why)
{
    int rc = 0;

    for (size_t k = 0; k < n && rc == 0; k++) {
        const struct cv_block *b = &w->d->blocks[w->order[k]], *met = NULL;
        size_t first, last;

        lanes_of(w, b, &first, &last);
        for (size_t i = first; i <= last && !met; i++)
            met = lane_look(w, &lanes[i], b);
        if (met)
            return overlap(s, w->d, met, b, why);
        for (size_t i = first; i <= last && rc == 0; i++)
            rc = lane_add(&lanes[i], w->order[k]);
    }
    return rc ? cv_fail(why, rc, NULL, w->d->name, CV_NO_OFFSET, "out of memory for %zu blocks", n) : 0;
}

/* ---------------------------------------------------------------- the first element that is missing */

struct search {
    const struct cv_dataset *d;
    uint32_t steps;
    uint64_t at[CV_RANK_MAX];
};

/* Of this box, looking at the blocks from `from` on. */
static bool find_missing(struct search *f, struct cv_box box, size_t from)
{
    unsigned rank = f->d->rank;
    struct cv_box part;

    for (; from < f->d->nblocks; from++) {
        const struct cv_block *b = &f->d->blocks[from];

        if (++f->steps > SEARCH_STEPS)
            return false;
        if (!cv_box_of_block(b, &box, rank, &part))
            continue;
        for (unsigned i = 0; i < rank; i++) { /* what of the box is before and behind the block in this dimension; between, the next dimension tells */
            uint64_t end = box.lo[i] + box.count[i], lo = b->start[i] > box.lo[i] ? b->start[i] : box.lo[i], hi = cv_block_end(b, i) < end ? cv_block_end(b, i) : end;
            struct cv_box rest = box;

            if (b->stride[i] > 1)
                return false; /* holes in it are not looked into */
            rest.count[i] = lo - box.lo[i];
            if (rest.count[i] && find_missing(f, rest, from + 1))
                return true;
            rest.lo[i] = hi;
            rest.count[i] = end - hi;
            if (rest.count[i] && find_missing(f, rest, from + 1))
                return true;
            box.lo[i] = lo;
            box.count[i] = hi - lo;
        }
        return false;
    }
    memcpy(f->at, box.lo, sizeof f->at);
    return true;
}

static int missing(const struct cv_dataset *d, uint64_t have, uint64_t total, struct cv_fail *why)
{
    struct search f = {.d = d};
    struct cv_box all = {{0}, {0}};
    char at[256] = "";
    bool found;

    for (unsigned i = 0; i < d->rank; i++)
        all.count[i] = d->dims[i].size;
    found = find_missing(&f, all, 0);
    return cv_fail(why, -EINVAL, NULL, d->name, CV_NO_OFFSET,
                   "%" PRIu64 " of its %" PRIu64 " elements are in no block%s%s: a file is missing, or the schema is wrong (gaps: fill in it lets that pass)", total - have, total,
                   found && f.steps <= SEARCH_STEPS ? ", the first at " : "", found && f.steps <= SEARCH_STEPS ? place(f.at, d->rank, at, sizeof at) : "");
}

int cv_cover_check(const struct cv_source *s, const struct cv_dataset *d, bool *whole, struct cv_fail *why)
{
    struct lane lanes[LANES] = {{0}};
    struct sweep w = {.d = d};
    uint64_t total, have = 0;
    size_t n = 0;
    int rc;

    *whole = false;
    if (!cv_dataset_elements(d, &total))
        return cv_fail(why, -EINVAL, NULL, d->name, CV_NO_OFFSET, "it is larger than 2^63 bytes");
    rc = check_bounds(s, d, why);
    if (rc)
        return rc;
    w.order = calloc(d->nblocks + 1, sizeof *w.order);
    for (size_t k = 0; w.order && k < d->nblocks; k++) {
        uint64_t elements = 1;

        for (unsigned i = 0; i < d->rank; i++)
            elements *= d->blocks[k].count[i];
        have = have + elements < have ? UINT64_MAX : have + elements;
        if (elements)
            w.order[n++] = (uint32_t)k;
    }
    if (!w.order)
        rc = cv_fail(why, -ENOMEM, NULL, d->name, CV_NO_OFFSET, "out of memory for %zu blocks", d->nblocks);
    if (rc == 0 && d->overlap == CV_OVERLAP_REFUSE) {
        choose_dimensions(&w, n);
        rc = find_overlaps(s, &w, lanes, n, why);
        *whole = have == total;
        if (rc == 0 && !*whole && d->gaps == CV_GAPS_REFUSE)
            rc = missing(d, have, total, why);
    }
    for (size_t i = 0; i < LANES; i++)
        free(lanes[i].blocks);
    free(w.order);
    return rc;
}
