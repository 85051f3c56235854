/*
 * What IOR 4 writes, byte for byte (--iorData): files of one are verified by the other. Made from where the transfer begins, as in IOR: with
 * timestamp a task's transfers are all alike, with offset and incompressible but for a word in 4 KiB. A piece of another transfer of the
 * same task is not seen, so this is not what fpior writes by itself. Sizes that are no multiples of 8 are none in IOR; they end here as its code
 * would end them.
 */
#include <stdlib.h>
#include <string.h>

#include "fpior.h"

#define PER_PAGE 512
#define SPREAD 0x9e37fffffffc0001ull

static uint64_t of_task(int task)
{
    return (uint64_t)task << 32;
}

/* C's rand_r, twice: hi, lo. */
static uint64_t constant(const struct pattern *t, int task)
{
    unsigned seed = t->signature + (unsigned)task;
    uint64_t hi = (uint64_t)rand_r(&seed) << 32;

    return hi | (uint64_t)rand_r(&seed);
}

void pattern_fill_ior(const struct pattern *t, int task, uint64_t off, void *buf, uint64_t len)
{
    uint8_t *p = buf;
    unsigned seed = t->signature + (unsigned)task + (unsigned)off;
    uint64_t chain = t->packet == PACKET_RANDOM ? (uint64_t)rand_r(&seed) : 0, same = constant(t, task), v;

    for (uint64_t i = 0; i < len / 8; i++) {
        chain = chain * SPREAD >> 3;
        if (t->packet == PACKET_RANDOM)
            v = chain;
        else if (i % PER_PAGE == 0 && t->packet != PACKET_TIMESTAMP)
            v = (uint32_t)off * (uint32_t)(i / PER_PAGE + 1) | of_task(task);
        else if (t->packet == PACKET_INCOMPRESSIBLE)
            v = same;
        else
            v = of_task(task) | ((uint64_t)(int64_t)(int32_t)t->signature + i);
        memcpy(p + 8 * i, &v, 8);
    }
    for (uint64_t i = len / 8 * 8; i < len; i++)
        p[i] = (uint8_t)i;
}

bool pattern_learn_ior(struct pattern *t, const void *buf, uint64_t len)
{
    uint64_t v;

    if (len < 16)
        return false;
    memcpy(&v, (const uint8_t *)buf + 8, 8);
    t->signature = (uint32_t)v - 1;
    return true;
}
