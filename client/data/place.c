/*
 * Placement of chunks (see place.h). Called by writers under the lock of the space accounts; pure, so that the choice can be tested
 * and simulated with thousands of benefactors.
 */
#include "client/data/place.h"

/* Finalizer of MurmurHash3 (public domain): mixes well enough that equal shares come out. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

static uint64_t weight(uint32_t id, uint64_t key)
{
    return mix(mix(id + 0x9e3779b97f4a7c15ull) ^ key);
}

/* Insertion sort by falling weight: n is small, and nearly always one or two candidates are looked at. */
static void sort_by_weight(const struct cl_place_bnf *b, uint32_t *order, uint32_t n, uint64_t key)
{
    for (uint32_t i = 1; i < n; i++) {
        uint32_t x = order[i], j = i;
        uint64_t w = weight(b[x].id, key);

        while (j > 0 && weight(b[order[j - 1]].id, key) < w) {
            order[j] = order[j - 1];
            j--;
        }
        order[j] = x;
    }
}

static void rotate(uint32_t *order, uint32_t n, uint32_t by)
{
    while (by-- > 0) {
        uint32_t first = order[0];

        for (uint32_t i = 1; i < n; i++)
            order[i - 1] = order[i];
        order[n - 1] = first;
    }
}

uint32_t cl_place(const struct cl_place_bnf *b, uint32_t n, uint64_t ino, uint64_t win, uint32_t stripe, uint32_t *order)
{
    uint32_t count = 0, nlocal = 0;

    for (uint32_t i = 0; i < n; i++)
        if (b[i].usable)
            order[count++] = i;
    if (stripe > 1) {
        uint32_t w = stripe < count ? stripe : count;

        sort_by_weight(b, order, count, mix(ino));
        if (w > 1)
            rotate(order, w, (uint32_t)(win % w));
        return count;
    }
    for (uint32_t i = 0; i < count; i++)
        if (b[order[i]].local) {
            uint32_t x = order[i];

            order[i] = order[nlocal];
            order[nlocal++] = x;
        }
    sort_by_weight(b, order, nlocal, mix(ino) ^ win);
    sort_by_weight(b, order + nlocal, count - nlocal, mix(ino) ^ win);
    return count;
}
