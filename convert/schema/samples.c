/*
 * What the bytes of a raw sample look like (samples.h). Called by guess.c. Any thread; no I/O.
 *
 * Fields of simulations are smooth: neighbours have nearly the same exponent, and exponents are those of a person's units, not of chance. Read with a wrong size or order, they are neither: exponents jump,
 * numbers are denormal or enormous. So each type is judged by how many of its elements are plausible, and by how far exponents jump from one to the next; where two are as good, the smaller one is right,
 * for each half of the greater looks like it only by accident. Integers are looked at when no float fits: small ones are denormal floats. Rejected: entropy of byte positions, which tells sizes, not types.
 */
#include <string.h>

#include "convert/schema/samples.h"

#define PLAUSIBLE_EXPONENT 80   /* 2^-80 … 2^80 */
#define JUMP_MAX           16.0 /* of one element to the next, in powers of two */
#define GOOD               0.9
#define SURE               0.99  /* exponents may jump as they like */
#define JUMP_GOOD          3.0
#define SMALL_INT          (1ll << 24)

static uint64_t element(const unsigned char *p, unsigned size, bool big)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < size; i++)
        v |= (uint64_t)p[i] << 8 * (big ? size - 1 - i : i);
    return v;
}

/* Its exponent to the base of 2; false: it is no number that one would write. Zero is INT_MIN-like: below all. */
static bool exponent_of(const unsigned char *p, unsigned size, bool big, int *out)
{
    uint64_t bits = element(p, size, big);
    unsigned field = size == 8 ? (unsigned)(bits >> 52 & 0x7ff) : (unsigned)(bits >> 23 & 0xff);
    uint64_t magnitude = size == 8 ? bits << 1 : (bits << 33);

    *out = (int)field - (size == 8 ? 1023 : 127);
    if (!magnitude) {
        *out = -PLAUSIBLE_EXPONENT;
        return true;
    }
    return *out >= -PLAUSIBLE_EXPONENT && *out <= PLAUSIBLE_EXPONENT && field != 0;
}

struct judged {
    double plausible, jump;
};

static struct judged judge_float(const unsigned char *bytes, size_t len, unsigned size, bool big)
{
    size_t n = len / size, good = 0;
    double jumps = 0;
    int before = 0;

    for (size_t i = 0; i < n; i++) {
        int e;
        bool plausible = exponent_of(bytes + i * size, size, big, &e);
        double jump = !plausible ? JUMP_MAX : i ? (double)(e > before ? e - before : before - e) : 0;

        good += plausible;
        jumps += jump > JUMP_MAX ? JUMP_MAX : jump;
        before = e;
    }
    return (struct judged){n ? (double)good / (double)n : 0, n ? jumps / (double)n : JUMP_MAX};
}

/* Share of integers that are small; with 8 bytes, also of those whose upper half is nothing but the sign. */
static double judge_int(const unsigned char *bytes, size_t len, unsigned size, bool big)
{
    size_t n = len / size, small = 0;
    long long limit = size == 2 ? 1ll << 12 : SMALL_INT;

    for (size_t i = 0; i < n; i++) {
        uint64_t v = element(bytes + i * size, size, big), sign = 1ull << (8 * size - 1);
        long long s = (long long)((v ^ sign) - sign);

        small += s > -limit && s < limit;
    }
    return n ? (double)small / (double)n : 0;
}

/* Is every other 16-bit word but the sign of its neighbour? Then they are halves of something greater. */
static bool are_halves(const unsigned char *bytes, size_t len, bool big)
{
    size_t n = len / 4, signs = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t low = element(bytes + 4 * i + (big ? 2 : 0), 2, big), high = element(bytes + 4 * i + (big ? 0 : 2), 2, big);

        signs += high == (low & 0x8000 ? 0xffff : 0);
    }
    return 2 * signs > n;
}

static bool zeros(const unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i])
            return false;
    return true;
}

struct cv_looks cv_looks_like(const unsigned char *bytes, size_t len)
{
    static const struct {
        unsigned size;
        bool big;
    } floats[] = {{4, false}, {4, true}, {8, false}, {8, true}}, ints[] = {{8, false}, {8, true}, {2, false}, {2, true}, {4, false}, {4, true}};
    struct cv_looks best = {.type = {CV_FLOAT, 8, false}, .all_zero = zeros(bytes, len)};
    double best_jump = JUMP_MAX + 1;

    if (best.all_zero || len < 8)
        return best;
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        struct judged j = judge_float(bytes, len, floats[i].size, floats[i].big);

        if ((j.plausible >= SURE || (j.plausible >= GOOD && j.jump <= JUMP_GOOD)) && j.jump + 0.5 < best_jump) {
            best = (struct cv_looks){.type = {CV_FLOAT, (uint8_t)floats[i].size, floats[i].big}, .percent = 100 * j.plausible};
            best_jump = j.jump;
        }
    }
    for (size_t i = 0; best_jump > JUMP_MAX && i < sizeof ints / sizeof *ints; i++) {
        double small = judge_int(bytes, len, ints[i].size, ints[i].big);

        if (small >= GOOD && (ints[i].size != 2 || !are_halves(bytes, len, ints[i].big)))
            return (struct cv_looks){.type = {CV_INT, (uint8_t)ints[i].size, ints[i].big}, .percent = 100 * small};
    }
    if (best_jump > JUMP_MAX)
        best = (struct cv_looks){.type = {CV_UINT, 1, false}, .percent = 0};
    return best;
}

/* ---------------------------------------------------------------- shapes */

static uint64_t power(uint64_t m, unsigned n)
{
    uint64_t v = 1;

    while (n--)
        v *= m;
    return v;
}

/* Is m ** n at least `least`? Without going beyond 64 bits. */
static bool reaches(uint64_t m, unsigned n, uint64_t least)
{
    uint64_t v = 1;

    while (n-- && v < least)
        if (__builtin_mul_overflow(v, m, &v))
            return true;
    return v >= least;
}

/* By halves: n is a file's size, below 2^63. */
static uint64_t root(uint64_t n, unsigned degree, uint64_t top)
{
    uint64_t low = 1, high = top;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (power(middle, degree) < n)
            low = middle + 1;
        else
            high = middle;
    }
    return power(low, degree) == n ? low : 0;
}

uint64_t cv_cube_root(uint64_t n)
{
    return root(n, 3, 1u << 21);
}

uint64_t cv_square_root(uint64_t n)
{
    return root(n, 2, 3037000499u);
}

void cv_even_grid(uint64_t ranks, unsigned n, uint64_t *grid)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned left = n - i;
        uint64_t best = ranks;

        /* The smallest divisor whose power is enough: what is left for the others is at most as large. */
        for (uint64_t d = 1; d <= ranks; d++)
            if (ranks % d == 0 && reaches(d, left, ranks)) {
                best = d;
                break;
            }
        grid[i] = best;
        ranks /= best;
    }
}
