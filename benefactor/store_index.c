/*
 * Open-addressing hash of 32-byte entries (store_index.h).
 *
 * A benefactor of 4 TiB with 1 MiB chunks has four million of them, so the index is flat memory without
 * pointers: one cache line holds two entries, and growing is one pass. Removal moves the following entries of
 * the run back instead of leaving tombstones, so a store that writes and deletes for months stays as fast as
 * a fresh one. Chunk ids are session << 32 | counter, far from random: they are mixed before use.
 *
 * A separate-chaining table was rejected for its 16 bytes of pointers per chunk, a sorted array for its O(n)
 * deletes.
 */
#include "benefactor/store_index.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define FIRST_SLOTS 1024u

static size_t home_of(const struct bnf_index *ix, uint64_t chunk)
{
    chunk ^= chunk >> 32;
    chunk *= 0x9e3779b97f4a7c15ull;
    chunk ^= chunk >> 29;
    return (size_t)chunk & ix->mask;
}

int bnf_index_init(struct bnf_index *ix)
{
    ix->slots = calloc(FIRST_SLOTS, sizeof(*ix->slots));
    ix->mask = FIRST_SLOTS - 1;
    ix->count = 0;
    return ix->slots ? 0 : -ENOMEM;
}

void bnf_index_fini(struct bnf_index *ix)
{
    free(ix->slots);
    ix->slots = NULL;
}

struct bnf_entry *bnf_index_get(const struct bnf_index *ix, uint64_t chunk)
{
    for (size_t i = home_of(ix, chunk); ix->slots[i].pages; i = (i + 1) & ix->mask)
        if (ix->slots[i].chunk == chunk)
            return &ix->slots[i];
    return NULL;
}

static void insert(struct bnf_index *ix, const struct bnf_entry *e)
{
    size_t i = home_of(ix, e->chunk);

    while (ix->slots[i].pages)
        i = (i + 1) & ix->mask;
    ix->slots[i] = *e;
}

static int grow(struct bnf_index *ix)
{
    struct bnf_index bigger = {.mask = 2 * ix->mask + 1, .count = ix->count};

    bigger.slots = calloc(bigger.mask + 1, sizeof(*bigger.slots));
    if (!bigger.slots)
        return -ENOMEM;
    for (size_t i = 0; i <= ix->mask; i++)
        if (ix->slots[i].pages)
            insert(&bigger, &ix->slots[i]);
    free(ix->slots);
    *ix = bigger;
    return 0;
}

int bnf_index_reserve(struct bnf_index *ix, size_t n)
{
    while ((ix->count + n) * 5 > (ix->mask + 1) * 4) {
        int rc = grow(ix);

        if (rc)
            return rc;
    }
    return 0;
}

int bnf_index_put(struct bnf_index *ix, const struct bnf_entry *e)
{
    int rc = bnf_index_reserve(ix, 1);

    assert(e->pages != 0 && !bnf_index_get(ix, e->chunk));
    if (rc)
        return rc;
    insert(ix, e);
    ix->count++;
    return 0;
}

void bnf_index_remove(struct bnf_index *ix, struct bnf_entry *e)
{
    size_t hole = (size_t)(e - ix->slots), i = hole;

    assert(hole <= ix->mask && e->pages);
    for (;;) {
        size_t home;

        i = (i + 1) & ix->mask;
        if (!ix->slots[i].pages)
            break;
        home = home_of(ix, ix->slots[i].chunk);
        /* May move into the hole if its home is not between the hole and its place. */
        if (((i - home) & ix->mask) >= ((i - hole) & ix->mask)) {
            ix->slots[hole] = ix->slots[i];
            hole = i;
        }
    }
    ix->slots[hole].pages = 0;
    ix->count--;
}
