/* Random numbers of the client's tests: one seed per run, printed, and taken from FP_SEED to replay a run. */
#ifndef TESTS_CL_RAND_H
#define TESTS_CL_RAND_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct rnd {
    uint64_t s;
};

/* xorshift64*: enough for tests, and the same on every machine. */
static inline uint64_t rnd_next(struct rnd *r)
{
    r->s ^= r->s >> 12;
    r->s ^= r->s << 25;
    r->s ^= r->s >> 27;
    return r->s * 0x2545f4914f6cdd1dull;
}

/* 0 <= result < n */
static inline uint32_t rnd_below(struct rnd *r, uint64_t n)
{
    return (uint32_t)((rnd_next(r) >> 11) % n);
}

static inline void rnd_init(struct rnd *r, uint64_t seed, uint64_t stream)
{
    r->s = (seed + 1) * 0x9e3779b97f4a7c15ull ^ (stream + 1) * 0xff51afd7ed558ccdull;
    if (!r->s)
        r->s = 1;
    for (int i = 0; i < 8; i++)
        (void)rnd_next(r);
}

static inline uint64_t rnd_seed(void)
{
    static uint64_t seed;
    static int known;

    if (!known) {
        const char *text = getenv("FP_SEED");

        seed = text ? strtoull(text, NULL, 0) : ((uint64_t)time(NULL) * 1000003u ^ (uint64_t)getpid()) & 0xffffffff;
        known = 1;
        fprintf(stderr, "seed: FP_SEED=%llu\n", (unsigned long long)seed);
    }
    return seed;
}

#endif
