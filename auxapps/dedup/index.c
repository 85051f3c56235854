/*
 * Digest -> stored piece (see index.h). Called by dedup's workers.
 *
 * Entries lie one behind the other as they came, 36 bytes each for SHA-1; the table is of their numbers, 4 bytes, with linear probing: a digest is its own
 * hash. So a piece costs 42 to 47 bytes; entries in the table itself, half of it empty and twice as large while it grows, cost up to 290.
 * A table in shared memory or in the manager for each look-up was rejected: at 50,000 pieces a second a message each costs more than the digests.
 *
 * Short keys instead of digests would halve it, but then only a comparison of bytes could prove a duplicate, i.e. a read of what is stored.
 */
#include "index.h"

#include <stdlib.h>
#include <string.h>

#define CAP_MIN   256u
#define SLOTS_MIN 512u
#define PLACE     sizeof(struct fp_aux_place)
#define DOUBTFUL  0x80000000u /* in a place's length, which is that of a piece */

static bool take(struct index *x, size_t bytes)
{
    size_t used = atomic_fetch_add(&x->budget->used_bytes, bytes);

    if (used + bytes <= x->budget->max_bytes)
        return true;
    atomic_fetch_sub(&x->budget->used_bytes, bytes);
    return false;
}

static void give(struct index *x, size_t bytes)
{
    atomic_fetch_sub(&x->budget->used_bytes, bytes);
}

void index_init(struct index *x, enum digest_kind kind, struct budget *budget)
{
    *x = (struct index){ .budget = budget, .digest_bytes = digest_bytes(kind) };
}

static size_t stride(const struct index *x)
{
    return PLACE + x->digest_bytes;
}

static uint8_t *entry_at(const struct index *x, uint32_t i)
{
    return x->entry + i * stride(x);
}

/* The slot of the digest, or the free one where it belongs. */
static uint32_t *probe(const struct index *x, const uint8_t *digest)
{
    uint64_t h;
    size_t i;

    memcpy(&h, digest, sizeof(h));
    for (i = (size_t)h & (x->nslots - 1); x->slot[i] != 0; i = (i + 1) & (x->nslots - 1))
        if (memcmp(entry_at(x, x->slot[i] - 1) + PLACE, digest, x->digest_bytes) == 0)
            break;
    return &x->slot[i];
}

/* Room for one more entry, by as much as the budget allows. */
static bool grow_entries(struct index *x)
{
    size_t by = x->cap < 2 * CAP_MIN ? CAP_MIN : x->cap / 2;
    uint8_t *more;

    for (; !take(x, by * stride(x)); by /= 8)
        if (by < CAP_MIN)
            return false;
    more = realloc(x->entry, (x->cap + by) * stride(x));
    if (!more) {
        give(x, by * stride(x));
        return false;
    }
    x->entry = more;
    x->cap += by;
    return true;
}

static bool grow_slots(struct index *x)
{
    size_t n = x->nslots ? x->nslots * 2 : SLOTS_MIN, before = x->nslots;
    uint32_t *slots;

    if (!take(x, n * sizeof(*slots)))
        return false;
    slots = calloc(n, sizeof(*slots));
    if (!slots) {
        give(x, n * sizeof(*slots));
        return false;
    }
    free(x->slot);
    x->slot = slots;
    x->nslots = n;
    for (uint32_t i = 0; i < x->used; i++)
        *probe(x, entry_at(x, i) + PLACE) = i + 1;
    give(x, before * sizeof(*slots));
    return true;
}

bool index_add(struct index *x, const uint8_t *digest, struct fp_aux_place place, bool doubtful)
{
    struct fp_aux_place there;
    uint32_t *slot;

    place.len_bytes |= doubtful ? DOUBTFUL : 0;
    if ((x->used == x->cap && !grow_entries(x)) || (x->used >= x->nslots / 4 * 3 && !grow_slots(x)))
        return false;
    slot = probe(x, digest);
    if (*slot != 0) {
        memcpy(&there, entry_at(x, *slot - 1), PLACE);
        if (!doubtful && there.len_bytes & DOUBTFUL)
            memcpy(entry_at(x, *slot - 1), &place, PLACE);
        return true;
    }
    memcpy(entry_at(x, x->used), &place, PLACE);
    memcpy(entry_at(x, x->used) + PLACE, digest, x->digest_bytes);
    *slot = ++x->used;
    return true;
}

void index_trim(struct index *x)
{
    uint8_t *less = x->used && x->used < x->cap ? realloc(x->entry, x->used * stride(x)) : NULL;

    if (!less)
        return;
    give(x, (x->cap - x->used) * stride(x));
    x->entry = less;
    x->cap = x->used;
}

bool index_find(const struct index *x, const uint8_t *digest, uint32_t piece_bytes, struct fp_aux_place *out, bool *doubtful)
{
    uint32_t found = x->nslots ? *probe(x, digest) : 0;

    if (found == 0)
        return false;
    memcpy(out, entry_at(x, found - 1), PLACE);
    *doubtful = out->len_bytes & DOUBTFUL;
    out->len_bytes &= ~DOUBTFUL;
    return out->len_bytes == piece_bytes;
}

size_t index_bytes(const struct index *x)
{
    return x->cap * stride(x) + x->nslots * sizeof(*x->slot);
}

void index_clear(struct index *x)
{
    if (x->budget)
        give(x, index_bytes(x));
    free(x->entry);
    free(x->slot);
    *x = (struct index){ .budget = x->budget, .digest_bytes = x->digest_bytes };
}
