/*
 * Allocator of the region (see region.h). Called by whoever sends a call or gives a result back, with the aux lock held.
 *
 * A bit map and next fit: there are about a thousand units and some dozen buffers. A buddy allocator would waste half of each buffer, which is a
 * chunk and a little; free lists by size would not let the end of a buffer go back when the coded bytes are shorter.
 */
#include "client/aux/region.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool bit(const struct aux_region *r, uint32_t i)
{
    return r->map[i / 64] >> (i % 64) & 1;
}

static void set_bits(struct aux_region *r, uint32_t from, uint32_t n, bool on)
{
    for (uint32_t i = from; i < from + n; i++) {
        assert(bit(r, i) != on);
        r->map[i / 64] ^= (uint64_t)1 << (i % 64);
    }
    r->used = on ? r->used + n : r->used - n;
}

static uint32_t units_of(uint64_t bytes)
{
    return (uint32_t)((bytes + AUX_UNIT_BYTES - 1) / AUX_UNIT_BYTES);
}

int cl_aux_region_init(struct aux_region *r, uint64_t base, uint64_t bytes)
{
    memset(r, 0, sizeof(*r));
    r->base = base;
    r->units = (uint32_t)(bytes / AUX_UNIT_BYTES);
    r->map = calloc((r->units + 63) / 64, sizeof(*r->map));
    return r->map ? 0 : -ENOMEM;
}

void cl_aux_region_fini(struct aux_region *r)
{
    free(r->map);
    r->map = NULL;
}

/* First unit of n free ones in [from, to), or `to`. */
static uint32_t find(const struct aux_region *r, uint32_t n, uint32_t from, uint32_t to)
{
    uint32_t run = 0;

    for (uint32_t i = from; i < to; i++) {
        run = bit(r, i) ? 0 : run + 1;
        if (run == n)
            return i + 1 - n;
    }
    return to;
}

bool cl_aux_region_get(struct aux_region *r, uint64_t bytes, uint64_t *off)
{
    uint32_t n = units_of(bytes), at;

    assert(bytes > 0);
    if (n > r->units - r->used)
        return false;
    at = find(r, n, r->next, r->units);
    if (at == r->units) {
        at = find(r, n, 0, r->units);
        if (at == r->units)
            return false;
    }
    set_bits(r, at, n, true);
    r->next = at + n < r->units ? at + n : 0;
    *off = r->base + (uint64_t)at * AUX_UNIT_BYTES;
    return true;
}

void cl_aux_region_copy(const struct aux_region *r, uint8_t *to, const uint8_t *from)
{
    for (uint32_t i = 0; i < r->units; i++) {
        uint64_t off = r->base + (uint64_t)i * AUX_UNIT_BYTES;

        if (bit(r, i))
            memcpy(to + off, from + off, AUX_UNIT_BYTES);
    }
}

void cl_aux_region_put(struct aux_region *r, uint64_t off, uint64_t bytes)
{
    assert(off >= r->base && (off - r->base) % AUX_UNIT_BYTES == 0);
    set_bits(r, (uint32_t)((off - r->base) / AUX_UNIT_BYTES), units_of(bytes), false);
}
