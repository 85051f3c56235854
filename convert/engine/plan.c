/*
 * Shapes of chunks and tiles (plan.h). Called by run.c once for each dataset. Pure.
 *
 * A chunk that is a piece of one block is read with one call and written with one; chunks that cross blocks cost a read for each row of each. So blocks that are all of one shape give the chunks
 * theirs, cut along the slowest dimensions until they are small enough, and grown again along them where they would be tiny.
 */
#include <string.h>
#include <xxhash.h>

#include "convert/engine/plan.h"

static uint64_t bytes_of(const struct cv_dataset *d, const uint64_t *shape)
{
    uint64_t n = d->type.size_bytes;

    for (unsigned i = 0; i < d->rank; i++)
        if (__builtin_mul_overflow(n, shape[i], &n))
            return UINT64_MAX;
    return n;
}

/* Are all blocks pieces of a grid of the first one's shape? */
static bool is_regular(const struct cv_dataset *d, const uint64_t *shape)
{
    for (size_t k = 0; k < d->nblocks; k++)
        for (unsigned i = 0; i < d->rank; i++) {
            const struct cv_block *b = &d->blocks[k];

            if (b->stride[i] != 1 || b->start[i] % shape[i] || (b->count[i] != shape[i] && b->start[i] + b->count[i] != d->dims[i].size) || b->count[i] > shape[i])
                return false;
        }
    return d->nblocks > 0;
}

/* Halves, or the next smaller part of which it is a multiple, so that chunks do not cross blocks. */
static uint64_t smaller(uint64_t n)
{
    for (uint64_t part = 2; part <= 16; part++)
        if (n % part == 0)
            return n / part;
    return (n + 1) / 2;
}

static void shrink(const struct cv_dataset *d, uint64_t *shape, uint64_t limit_bytes)
{
    for (unsigned i = 0; i < d->rank && bytes_of(d, shape) > limit_bytes;) {
        if (shape[i] > 1)
            shape[i] = smaller(shape[i]);
        else
            i++;
    }
}

/* Twice as long in this dimension, as often as it takes. */
static void lengthen(const struct cv_dataset *d, unsigned i, uint64_t *shape, uint64_t least, uint64_t limit_bytes)
{
    while (shape[i] < d->dims[i].size && bytes_of(d, shape) < least) {
        uint64_t before = shape[i];

        shape[i] = 2 * before < d->dims[i].size ? 2 * before : d->dims[i].size;
        if (bytes_of(d, shape) > limit_bytes) {
            shape[i] = before;
            return;
        }
    }
}

/* Tiny chunks cost more than they hold: whole multiples, along the slowest dimensions last; along steps only where one step would be a few bytes. */
static void grow(const struct cv_dataset *d, uint64_t *shape, uint64_t limit_bytes)
{
    uint64_t least = CV_CHUNK_MIN_BYTES < limit_bytes ? CV_CHUNK_MIN_BYTES : limit_bytes, few = least < CV_STEP_MIN_BYTES ? least : CV_STEP_MIN_BYTES;

    for (unsigned i = d->rank; i-- > 0;)
        lengthen(d, i, shape, d->dims[i].steps ? few : least, limit_bytes);
}

void cv_plan_chunk(const struct cv_dataset *d, const uint64_t *wanted, uint64_t limit_bytes, uint64_t chunk[CV_RANK_MAX])
{
    bool regular, user = wanted && wanted[0];

    for (unsigned i = 0; i < CV_RANK_MAX; i++)
        chunk[i] = 0;
    for (unsigned i = 0; i < d->rank; i++)
        if (d->dims[i].size == 0)
            return;
    for (unsigned i = 0; i < d->rank; i++) {
        chunk[i] = d->nblocks ? d->blocks[0].count[i] : d->dims[i].size;
        chunk[i] = chunk[i] ? chunk[i] : 1;
    }
    regular = d->rank && is_regular(d, chunk);
    for (unsigned i = 0; i < d->rank; i++) {
        uint64_t n = user ? (wanted[i] ? wanted[i] : 1) : regular ? chunk[i] : d->dims[i].size;

        n = n < d->dims[i].size ? n : d->dims[i].size;
        chunk[i] = d->dims[i].steps && !user ? 1 : n;
    }
    shrink(d, chunk, limit_bytes < CV_CHUNK_MAX_BYTES || user ? limit_bytes : CV_CHUNK_MAX_BYTES);
    if (!user)
        grow(d, chunk, limit_bytes);
}

bool cv_plan_is_cut(const struct cv_dataset *d, const uint64_t *wanted, const uint64_t chunk[CV_RANK_MAX])
{
    for (unsigned i = 0; i < d->rank && chunk[0]; i++)
        if (chunk[i] < wanted[i] && chunk[i] < d->dims[i].size)
            return true;
    return false;
}

void cv_plan_slab(const struct cv_dataset *d, uint64_t limit_bytes, uint64_t tile[CV_RANK_MAX])
{
    uint64_t rest = d->type.size_bytes;
    unsigned i = d->rank;

    for (unsigned k = 0; k < CV_RANK_MAX; k++)
        tile[k] = 1;
    for (; i-- > 0;) {
        uint64_t most = limit_bytes / rest, size = d->dims[i].size;

        tile[i] = size < most ? size : most;
        tile[i] = tile[i] ? tile[i] : 1;
        if (tile[i] < size)
            return;
        rest *= size ? size : 1;
    }
}

void cv_plan_blocks(const struct cv_dataset *d, uint64_t limit_bytes, uint64_t tile[CV_RANK_MAX])
{
    cv_plan_chunk(d, NULL, limit_bytes, tile);
    if (d->rank == 0 || !tile[0]) {
        cv_plan_slab(d, limit_bytes, tile);
        return;
    }
    for (unsigned i = d->rank; i-- > 0;) {
        uint64_t bytes = bytes_of(d, tile), size = d->dims[i].size, times = bytes ? limit_bytes / bytes : 1, all = (size - 1) / tile[i] + 1;

        times = times ? times : 1;
        tile[i] = times < all ? times * tile[i] : size;
        if (times < all)
            return;
    }
}

/* ---------------------------------------------------------------- comparing */

/* With its length, so that two texts are not taken for two others. NULL: another one than "". */
static uint64_t add_bytes(uint64_t sum, const void *data, size_t len)
{
    const uint64_t n = data ? len : UINT64_MAX;

    sum = XXH64(&n, sizeof n, sum);
    return data ? XXH64(data, len, sum) : sum;
}

static uint64_t add_text(uint64_t sum, const char *text)
{
    return add_bytes(sum, text, text ? strlen(text) : 0);
}

static uint64_t add_attrs(uint64_t sum, const struct cv_attrs *all)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct cv_attr *a = &all->items[i];

        sum = add_text(sum, a->name);
        sum = add_text(sum, a->kind == CV_ATTR_TEXT ? a->text : NULL);
        sum = add_bytes(sum, a->kind == CV_ATTR_INTS ? a->ints : NULL, a->count * sizeof *a->ints);
        sum = add_bytes(sum, a->kind == CV_ATTR_FLOATS ? a->floats : NULL, a->count * sizeof *a->floats);
    }
    return sum;
}

static uint64_t add_dataset(uint64_t sum, const struct cv_dataset *d, const uint64_t *chunk)
{
    const uint64_t words[] = {d->type.kind, d->type.size_bytes, d->rank, d->gaps, d->has_fill, d->fill_is_whole, (uint64_t)d->fill_whole};

    sum = add_text(sum, d->name);
    sum = add_bytes(sum, words, sizeof words);
    sum = add_bytes(sum, &d->fill, sizeof d->fill);
    sum = add_bytes(sum, chunk, CV_RANK_MAX * sizeof *chunk);
    for (unsigned i = 0; i < d->rank; i++) {
        const uint64_t dim[] = {d->dims[i].size, d->dims[i].steps};

        sum = add_text(sum, d->dims[i].name);
        sum = add_bytes(sum, dim, sizeof dim);
    }
    return add_attrs(sum, &d->attrs);
}

uint64_t cv_plan_sum(const struct cv_model *m, const uint64_t (*chunk)[CV_RANK_MAX])
{
    uint64_t sum = add_attrs(m->ndatasets, &m->attrs);

    for (size_t k = 0; k < m->ndatasets; k++)
        sum = add_dataset(sum, &m->datasets[k], chunk[k]);
    return sum;
}
