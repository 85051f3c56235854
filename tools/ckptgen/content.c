/*
 * What each rank's state is at each step (see ckptgen.h). Pure: any rank can compute any other's, so everything can be verified by somebody else.
 *
 * With each step exactly new_units units change, taken in turn, so after units / new_units steps each has changed once. Neighbours in this order
 * are not neighbours in the file: what changes is spread over all of it, as it is in process images.
 */
#include <string.h>

#include "ckptgen.h"

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t r = a % b;

        a = b;
        b = r;
    }
    return a;
}

void content_init(struct content *c, const struct options *o)
{
    c->o = o;
    c->units = (o->size_bytes + o->unit_bytes - 1) / o->unit_bytes;
    c->new_units = c->units - (uint64_t)(o->ratio * (double)c->units + 0.5);
    c->stride = c->units * 5 / 8 + 1;
    while (gcd(c->stride, c->units) != 1)
        c->stride++;
}

/* The unit's place in the order in which units change. */
static uint64_t turn_of(const struct content *c, uint64_t unit)
{
    return (unsigned __int128)unit * c->stride % c->units;
}

/* The step at which this unit got what it has at `step`. */
static int changed_at(const struct content *c, uint64_t unit, int step)
{
    uint64_t turn = turn_of(c, unit);

    for (; step > 0; step--) {
        uint64_t first = (uint64_t)(step - 1) * c->new_units % c->units, from_first = (turn + c->units - first) % c->units;

        if (from_first < c->new_units)
            return step;
        if (c->new_units == 0)
            return 0;
    }
    return 0;
}

static uint64_t unit_bytes(const struct content *c, uint64_t unit)
{
    uint64_t left = c->o->size_bytes - unit * c->o->unit_bytes;

    return left < c->o->unit_bytes ? left : c->o->unit_bytes;
}

uint64_t content_new_bytes(const struct content *c, int step)
{
    uint64_t bytes = 0;

    for (uint64_t u = 0; u < c->units; u++)
        bytes += changed_at(c, u, step) == step ? unit_bytes(c, u) : 0;
    return bytes;
}

void content_fill(const struct content *c, int rank, int step, uint64_t off, void *buf, uint64_t len)
{
    uint8_t *p = buf;

    while (len > 0) {
        uint64_t unit = off / c->o->unit_bytes, in = off % c->o->unit_bytes, n = c->o->unit_bytes - in;
        uint64_t x = mix(c->o->seed ^ mix((uint64_t)rank << 32 ^ mix(unit << 16 ^ mix((uint64_t)changed_at(c, unit, step)))));

        n = n < len ? n : len;
        for (uint64_t i = 0; i < n; i += 8) {
            uint64_t v = (x + (in + i) / 8) * 0x9e3779b97f4a7c15ull;

            v = (v ^ v >> 29) * 0xbf58476d1ce4e5b9ull;
            v ^= v >> 32;
            memcpy(p + i, &v, n - i < 8 ? n - i : 8);
        }
        p += n;
        off += n;
        len -= n;
    }
}
