/*
 * Hyper-rectangles (box.h). Called by everything in the engine, for each tile and each block that meets it. Pure.
 *
 * Strides are exact everywhere: a block of every second row and one of the rows between meet nowhere, though the rectangles around them are the same. Rejected: to unroll strided blocks into
 * blocks of one row each, which are too many.
 */
#include <string.h>

#include "convert/engine/box.h"

uint64_t cv_box_elements(const struct cv_box *b, unsigned rank)
{
    uint64_t n = 1;

    for (unsigned i = 0; i < rank; i++)
        n *= b->count[i];
    return n;
}

uint64_t cv_block_end(const struct cv_block *b, unsigned i)
{
    return b->start[i] + (b->count[i] - 1) * b->stride[i] + 1;
}

bool cv_box_of_block(const struct cv_block *b, const struct cv_box *tile, unsigned rank, struct cv_box *out)
{
    for (unsigned i = 0; i < rank; i++) {
        uint64_t from = tile->lo[i], to = tile->lo[i] + tile->count[i], first, end;

        if (!b->count[i] || !tile->count[i] || b->start[i] >= to || cv_block_end(b, i) <= from)
            return false;
        first = from > b->start[i] ? (from - b->start[i] + b->stride[i] - 1) / b->stride[i] : 0;
        end = (to - b->start[i] + b->stride[i] - 1) / b->stride[i];
        end = end < b->count[i] ? end : b->count[i];
        if (first >= end)
            return false; /* the tile lies between two of its rows */
        out->lo[i] = first;
        out->count[i] = end - first;
    }
    return true;
}

/* x with a * x = gcd modulo b; *gcd of both. */
static int64_t inverse(int64_t a, int64_t b, int64_t *gcd)
{
    int64_t x = 1, y = 0, t;

    while (b) {
        int64_t q = a / b;

        t = a - q * b;
        a = b;
        b = t;
        t = x - q * y;
        x = y;
        y = t;
    }
    *gcd = a;
    return x;
}

/* Do a + i * s and b + j * t have a number in common in [from, to)? Both begin at or before from. */
static bool progressions_meet(uint64_t a, uint64_t s, uint64_t b, uint64_t t, uint64_t from, uint64_t to)
{
    int64_t gcd, inv = inverse((int64_t)s, (int64_t)t, &gcd), diff = (int64_t)(b - a);
    __int128 i, at, step = (__int128)s / gcd * (__int128)t;

    if (diff % gcd)
        return false;
    i = (__int128)(diff / gcd) * inv % ((int64_t)t / gcd);
    at = (__int128)a + i * (__int128)s; /* of both; each `step` further one more */
    at += ((__int128)from - at) / step * step;
    while (at < (__int128)from)
        at += step;
    while (at - step >= (__int128)from)
        at -= step;
    return at < (__int128)to;
}

bool cv_blocks_meet(const struct cv_block *a, const struct cv_block *b, unsigned rank)
{
    for (unsigned i = 0; i < rank; i++) {
        uint64_t from, to;

        if (!a->count[i] || !b->count[i])
            return false;
        from = a->start[i] > b->start[i] ? a->start[i] : b->start[i];
        to = cv_block_end(a, i) < cv_block_end(b, i) ? cv_block_end(a, i) : cv_block_end(b, i);
        if (from >= to)
            return false;
        if ((a->stride[i] > 1 || b->stride[i] > 1) && !progressions_meet(a->start[i], a->stride[i], b->start[i], b->stride[i], from, to))
            return false;
    }
    return true;
}

void cv_box_steps(const uint64_t *dims, unsigned rank, size_t size_bytes, uint64_t *step)
{
    uint64_t at = size_bytes;

    for (unsigned i = rank; i-- > 0;) {
        step[i] = at;
        at *= dims[i];
    }
}

static void copy_row(const uint8_t *from, uint64_t from_step, uint8_t *to, uint64_t to_step, uint64_t n, size_t size)
{
    if (from_step == size && to_step == size) {
        memcpy(to, from, n * size);
        return;
    }
    for (uint64_t k = 0; k < n; k++)
        memcpy(to + k * to_step, from + k * from_step, size);
}

void cv_box_copy(const uint8_t *from, const uint64_t *from_step, uint8_t *to, const uint64_t *to_step, const uint64_t *count, unsigned rank, size_t size_bytes)
{
    uint64_t at[CV_RANK_MAX] = {0};
    size_t row = size_bytes;
    unsigned i;

    /* The innermost dimensions that lie alike and without holes on both sides are one. */
    while (rank > 1 && from_step[rank - 1] == row && to_step[rank - 1] == row && from_step[rank - 2] == row * count[rank - 1] && to_step[rank - 2] == row * count[rank - 1]) {
        row *= count[rank - 1];
        rank--;
    }
    if (rank == 0) {
        memcpy(to, from, row);
        return;
    }
    for (;;) {
        copy_row(from, from_step[rank - 1], to, to_step[rank - 1], count[rank - 1], row);
        for (i = rank - 1; i-- > 0;) {
            from += from_step[i];
            to += to_step[i];
            if (++at[i] < count[i])
                break;
            from -= count[i] * from_step[i];
            to -= count[i] * to_step[i];
            at[i] = 0;
        }
        if (i == (unsigned)-1)
            return;
    }
}
