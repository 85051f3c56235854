/*
 * Where each transfer goes, and what is in it. Pure: every byte follows from options, task and offset, so any rank of any run can verify it.
 *
 * The file, as IOR lays it out: segments of a block of every task, a block of transfers. With own files a task's blocks follow each other.
 * The content is made of words of 8 bytes by their place in the file, whatever the transfers are aligned to.
 */
#include <stdlib.h>
#include <string.h>

#include "fpior.h"

uint64_t pattern_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* All transfers of a file, shuffled: task i takes the i-th part of them. Every rank comes to the same order. */
static bool shuffle(struct pattern *t, uint64_t seed)
{
    uint64_t n = t->per_task * (t->own_files ? 1 : t->tasks);

    t->random = malloc(n * sizeof t->random[0]);
    if (!t->random)
        return false;
    for (uint64_t i = 0; i < n; i++)
        t->random[i] = i;
    for (uint64_t i = n; i > 1; i--) {
        uint64_t k = pattern_mix(seed ^ pattern_mix(i)) % i, swap = t->random[i - 1];

        t->random[i - 1] = t->random[k];
        t->random[k] = swap;
    }
    return true;
}

bool pattern_init(struct pattern *t, const struct params *p, int tasks)
{
    *t = (struct pattern){
        .transfer = (uint64_t)p->transfer_size, .block = (uint64_t)p->block_size, .segments = (uint64_t)p->segment_count,
        .tasks = (uint64_t)tasks, .own_files = p->file_per_proc, .signature = (uint32_t)p->signature, .ior_data = p->ior_data,
        .any_order = p->random_offset > 1, .seed = (uint64_t)p->offset_seed,
    };
    t->packet = *p->packet == 'o' || *p->packet == 'O' ? PACKET_OFFSET :
            *p->packet == 'i' || *p->packet == 'I' ? PACKET_INCOMPRESSIBLE :
            *p->packet == 'r' || *p->packet == 'R' ? PACKET_RANDOM : PACKET_TIMESTAMP;
    t->per_block = t->block / t->transfer;
    t->per_task = t->per_block * t->segments;
    return p->random_offset != 1 || shuffle(t, (uint64_t)p->offset_seed);
}

void pattern_fini(struct pattern *t)
{
    free(t->random);
}

uint64_t pattern_file_bytes(const struct pattern *t)
{
    return t->block * t->segments * (t->own_files ? 1 : t->tasks);
}

/* -z -z: the blocks of a file, drawn anew for each that a task has; its transfers in order. */
static uint64_t any_block(const struct pattern *t, int task, uint64_t n)
{
    uint64_t blocks = t->there ? t->there : t->segments * (t->own_files ? 1 : t->tasks);

    return pattern_mix(t->seed ^ pattern_mix((uint64_t)task << 40 ^ n)) % blocks * t->block;
}

uint64_t pattern_offset(const struct pattern *t, int task, uint64_t i)
{
    uint64_t segment = i / t->per_block, in_block = i % t->per_block * t->transfer;

    if (t->any_order)
        return any_block(t, task, segment) + in_block;
    if (t->random)
        return t->random[(t->own_files ? 0 : (uint64_t)task * t->per_task) + i] * t->transfer;
    return t->own_files ? i * t->transfer : (segment * t->tasks + (uint64_t)task) * t->block + in_block;
}

/* off is a multiple of 8. */
static inline uint64_t word(const struct pattern *t, enum packet packet, int task, uint64_t off)
{
    if (packet == PACKET_OFFSET)
        return off;
    if (packet == PACKET_INCOMPRESSIBLE)
        return pattern_mix(t->signature ^ pattern_mix((uint64_t)task << 48 ^ off));
    return off % 16 ? off : (uint64_t)task << 32 | t->signature;
}

/* Called with a constant, so that the compiler makes a loop for each. */
static inline __attribute__((always_inline)) void fill(const struct pattern *t, enum packet packet, int task, uint64_t off, uint8_t *p, uint64_t len)
{
    while (len > 0) {
        uint64_t in = off % 8, n = 8 - in < len ? 8 - in : len, v = word(t, packet, task, off - in);

        memcpy(p, (uint8_t *)&v + in, n);
        p += n;
        off += n;
        len -= n;
        /* Most of it: pairs of words. */
        for (; len >= 16 && off % 16 == 0; p += 16, off += 16, len -= 16) {
            uint64_t first = word(t, packet, task, off), second = word(t, packet, task, off + 8);

            memcpy(p, &first, 8);
            memcpy(p + 8, &second, 8);
        }
    }
}

void pattern_fill(const struct pattern *t, int task, uint64_t off, void *buf, uint64_t len)
{
    if (t->ior_data) {
        pattern_fill_ior(t, task, off, buf, len);
        return;
    }
    switch (t->packet) {
    case PACKET_TIMESTAMP:
        fill(t, PACKET_TIMESTAMP, task, off, buf, len);
        break;
    case PACKET_OFFSET:
        fill(t, PACKET_OFFSET, task, off, buf, len);
        break;
    case PACKET_INCOMPRESSIBLE:
    case PACKET_RANDOM:
        fill(t, PACKET_INCOMPRESSIBLE, task, off, buf, len);
        break;
    }
}

bool pattern_learn(struct pattern *t, uint64_t off, const void *buf, uint64_t len)
{
    uint64_t skip = (16 - off % 16) % 16, v;

    if (t->ior_data)
        return pattern_learn_ior(t, buf, len);
    if (skip + 8 > len)
        return false;
    memcpy(&v, (const uint8_t *)buf + skip, 8);
    t->signature = (uint32_t)v;
    return true;
}
