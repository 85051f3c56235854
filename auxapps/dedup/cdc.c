/*
 * Content-defined chunking (see cdc.h). Called by the aux-app dedup on its workers, and by the benchmark `cdc`.
 *
 * A place is judged in two steps. The first looks at the 8 bytes before it: v, a sum of four pairs of bytes, each times an odd number, modulo 2^16, must be
 * less than first_end, which one place in 1024 to 4096 is. The second takes the gear hash of the 32 bytes before it, the sum of gear(b[31 - j]) << j, of
 * whose high bits the masks take the rest; they depend on all of the bytes.
 *
 * The first step is where the time goes, so it is one that SIMD does well: no step waits for the place before, a multiplication takes two bytes at once, and
 * 32 places go into one vector. Gear alone for all places, by doubling (a sum over 32 is two sums over 16), was five times slower with AVX-512 and took
 * as long as SHA-1. Going on from the smallest piece only saves a quarter, and ties each piece to the one before.
 *
 * The masks are nearer to each other than FastCDC's. A chunk's end cuts a piece, and so does its beginning; where data have moved, both are elsewhere than before,
 * and cuts that depend much on the one before (few strict places, then many loose ones) take three or four pieces to be the same again. On process images
 * that had moved, that cost a tenth of all duplicates.
 *
 * Maps of bits instead of lists of places: data with short periods can have a place at each byte.
 */
#include "cdc.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#endif

#define GEAR_A 0x9e3779b1u
#define GEAR_B 0x85ebca6bu

/* Of the first step. BASE: so that a byte repeated for long never makes a place: v is 435 and more then. */
#define FIRST_0 0x9e35u
#define FIRST_1 0x6b2du
#define FIRST_2 0xc8a7u
#define FIRST_3 0x35e9u
#define FIRST_BASE 0x0ec1u
#define FIRST_BITS_MAX 12u

/* The processor by itself fetches ahead to the end of a page only, and data that comes from an application is in no cache. */
#define AHEAD_BYTES 4096u

typedef void scan_fn(const struct cdc *c, uint64_t *strict, uint64_t *loose, const uint8_t *data, uint32_t words);

static uint32_t gear(uint8_t b)
{
    uint32_t x = (b + 1u) * GEAR_A;

    x ^= x >> 15;
    return x * GEAR_B;
}

static uint32_t high_bits(unsigned n)
{
    return n == 0 ? 0 : ~0u << (32 - n);
}

void cdc_init(struct cdc *c, uint32_t avg_bytes)
{
    unsigned bits = 12, first;

    while (bits < 20 && 1u << (bits + 1) <= avg_bytes)
        bits++;
    c->normal_bytes = 1u << bits;
    c->min_bytes = bits > 14 ? c->normal_bytes / 4 : CDC_MIN_BYTES;
    c->max_bytes = c->normal_bytes * 4;
    first = bits - 2 < FIRST_BITS_MAX ? bits - 2 : FIRST_BITS_MAX;
    c->first_end = 1u << (16 - first);
    c->strict_mask = high_bits(bits - 1 - first);
    c->loose_mask = high_bits(bits - 2 - first);
}

/* -------------------------------------------------------------- one place, one word */

static uint32_t table[256];

static uint32_t hash_at(const uint8_t *end)
{
    uint32_t h = 0;

    for (unsigned j = CDC_WINDOW_BYTES; j > 0; j--)
        h = (h << 1) + table[end[-(int)j]];
    return h;
}

typedef uint16_t __attribute__((aligned(1), may_alias)) pair;

static inline __attribute__((always_inline)) uint16_t first_of(const uint8_t *end)
{
    const pair *p = (const pair *)(const void *)(end - 8);

    return (uint16_t)(FIRST_BASE + FIRST_3 * p[0] + FIRST_2 * p[1] + FIRST_1 * p[2] + FIRST_0 * p[3]);
}

static inline void judge(const struct cdc *c, uint64_t *strict, uint64_t *loose, unsigned bit, uint32_t h)
{
    *strict |= (uint64_t)((h & c->strict_mask) == 0) << bit;
    *loose |= (uint64_t)((h & c->loose_mask) == 0) << bit;
}

/* Of the 64 places from p on, `first` are past the first step. Many: data with a short period; then from place to place. */
static __attribute__((noinline)) void judge_word(const struct cdc *c, uint64_t *strict, uint64_t *loose, const uint8_t *p, uint64_t first)
{
    uint32_t h;

    if (__builtin_popcountll(first) <= 4) {
        for (; first != 0; first &= first - 1) {
            unsigned bit = (unsigned)__builtin_ctzll(first);

            judge(c, strict, loose, bit, hash_at(p + bit));
        }
        return;
    }
    h = hash_at(p);
    for (unsigned bit = 0; bit < 64; bit++) {
        if (first >> bit & 1)
            judge(c, strict, loose, bit, h);
        h = (h << 1) + table[p[bit]];
    }
}

/* -------------------------------------------------------------- all places */

/* Two words, in C that a compiler makes vectors of on any processor: even places and odd ones, since a pair is two bytes. The least of all. */
static inline __attribute__((always_inline)) uint16_t first_of_128(const uint8_t *p, uint16_t even[64], uint16_t odd[64])
{
    uint16_t least = 0xffff;

    for (unsigned i = 0; i < 64; i++) {
        even[i] = first_of(p + 2 * i);
        least = even[i] < least ? even[i] : least;
    }
    for (unsigned i = 0; i < 64; i++) {
        odd[i] = first_of(p + 2 * i + 1);
        least = odd[i] < least ? odd[i] : least;
    }
    return least;
}

static uint64_t places_of(const struct cdc *c, const uint16_t even[32], const uint16_t odd[32])
{
    uint64_t first = 0;

    for (unsigned i = 0; i < 32; i++)
        first |= (uint64_t)(even[i] < c->first_end) << 2 * i | (uint64_t)(odd[i] < c->first_end) << (2 * i + 1);
    return first;
}

static void scan_one(const struct cdc *c, uint64_t *strict, uint64_t *loose, const uint8_t *p)
{
    uint64_t first = 0;

    for (unsigned i = 0; i < 64; i++)
        first |= (uint64_t)(first_of(p + i) < c->first_end) << i;
    *strict = *loose = 0;
    if (first)
        judge_word(c, strict, loose, p, first);
}

static void scan_scalar(const struct cdc *c, uint64_t *strict, uint64_t *loose, const uint8_t *data, uint32_t words)
{
    uint16_t even[64], odd[64];
    uint32_t w = 0;

    for (; w + 2 <= words; w += 2, data += 128) {
        strict[w] = strict[w + 1] = loose[w] = loose[w + 1] = 0;
        if (__builtin_expect(first_of_128(data, even, odd) >= c->first_end, 1))
            continue;
        judge_word(c, &strict[w], &loose[w], data, places_of(c, even, odd));
        judge_word(c, &strict[w + 1], &loose[w + 1], data + 64, places_of(c, even + 32, odd + 32));
    }
    if (w < words)
        scan_one(c, &strict[w], &loose[w], data);
}

#ifdef HAVE_X86
__attribute__((target("avx2"))) static inline __m256i first16(const uint8_t *end)
{
    __m256i v = _mm256_set1_epi16((short)FIRST_BASE);

    v = _mm256_add_epi16(v, _mm256_mullo_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(end - 8)), _mm256_set1_epi16((short)FIRST_3)));
    v = _mm256_add_epi16(v, _mm256_mullo_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(end - 6)), _mm256_set1_epi16((short)FIRST_2)));
    v = _mm256_add_epi16(v, _mm256_mullo_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(end - 4)), _mm256_set1_epi16((short)FIRST_1)));
    return _mm256_add_epi16(v, _mm256_mullo_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(end - 2)), _mm256_set1_epi16((short)FIRST_0)));
}

__attribute__((target("avx2"))) static void scan_avx2(const struct cdc *c, uint64_t *strict, uint64_t *loose, const uint8_t *data,
                              uint32_t words)
{
    const __m256i last = _mm256_set1_epi16((short)(c->first_end - 1));

    for (uint32_t w = 0; w < words; w++, data += 64) {
        __m256i v[4], least;

        _mm_prefetch(data + AHEAD_BYTES, _MM_HINT_T0);
        for (unsigned k = 0; k < 4; k++)
            v[k] = first16(data + 32 * (k / 2) + k % 2);
        least = _mm256_min_epu16(_mm256_min_epu16(v[0], v[1]), _mm256_min_epu16(v[2], v[3]));
        least = _mm256_cmpeq_epi16(_mm256_min_epu16(least, last), least);
        strict[w] = loose[w] = 0;
        if (__builtin_expect(!_mm256_testz_si256(least, least), 0))
            scan_one(c, &strict[w], &loose[w], data);
    }
}

__attribute__((target("avx512bw"))) static inline __mmask32 first32(const uint8_t *end, __m512i limit)
{
    __m512i v = _mm512_set1_epi16((short)FIRST_BASE);

    v = _mm512_add_epi16(v, _mm512_mullo_epi16(_mm512_loadu_si512(end - 8), _mm512_set1_epi16((short)FIRST_3)));
    v = _mm512_add_epi16(v, _mm512_mullo_epi16(_mm512_loadu_si512(end - 6), _mm512_set1_epi16((short)FIRST_2)));
    v = _mm512_add_epi16(v, _mm512_mullo_epi16(_mm512_loadu_si512(end - 4), _mm512_set1_epi16((short)FIRST_1)));
    v = _mm512_add_epi16(v, _mm512_mullo_epi16(_mm512_loadu_si512(end - 2), _mm512_set1_epi16((short)FIRST_0)));
    return _mm512_cmplt_epu16_mask(v, limit);
}

/* The 32 bits of x at the even places of 64. */
static uint64_t spread(uint32_t x)
{
    uint64_t y = x;

    y = (y | y << 16) & 0x0000ffff0000ffffull;
    y = (y | y << 8) & 0x00ff00ff00ff00ffull;
    y = (y | y << 4) & 0x0f0f0f0f0f0f0f0full;
    y = (y | y << 2) & 0x3333333333333333ull;
    return (y | y << 1) & 0x5555555555555555ull;
}

__attribute__((target("avx512bw"))) static void scan_avx512(const struct cdc *c, uint64_t *strict, uint64_t *loose, const uint8_t *data,
                                uint32_t words)
{
    const __m512i limit = _mm512_set1_epi16((short)c->first_end);

    for (uint32_t w = 0; w < words; w++, data += 64) {
        uint32_t even = first32(data, limit), odd = first32(data + 1, limit);

        _mm_prefetch(data + AHEAD_BYTES, _MM_HINT_T0);
        strict[w] = loose[w] = 0;
        if (__builtin_expect((even | odd) != 0, 0))
            judge_word(c, &strict[w], &loose[w], data, spread(even) | spread(odd) << 1);
    }
}
#endif

/* -------------------------------------------------------------- choice, edges */

static scan_fn *scan_words;

static scan_fn *pick(int *path)
{
#ifdef HAVE_X86
    if ((*path == 0 || *path == 3) && __builtin_cpu_supports("avx512bw"))
        return *path = 3, scan_avx512;
    if ((*path == 0 || *path == 2) && __builtin_cpu_supports("avx2"))
        return *path = 2, scan_avx2;
#endif
    return *path = 1, scan_scalar;
}

int cdc_use(int path)
{
    scan_words = pick(&path);
    return path;
}

__attribute__((constructor)) static void cdc_start(void)
{
    for (unsigned b = 0; b < 256; b++)
        table[b] = gear((uint8_t)b);
    (void)cdc_use(0);
}

static void judge_place(const struct cdc *c, struct cdc_map *m, uint32_t place, const uint8_t *end)
{
    if (first_of(end) < c->first_end)
        judge(c, &m->strict[place / 64], &m->loose[place / 64], place % 64, hash_at(end));
}

void cdc_scan(const struct cdc *c, struct cdc_map *m, uint32_t at, const uint8_t *data, uint32_t len_bytes, const uint8_t *before)
{
    uint32_t first = len_bytes < 64 ? len_bytes : 64, words = len_bytes / 64, i;
    uint8_t edge[CDC_WINDOW_BYTES + 64];

    /* The first word looks back over the edge, so it is done on a copy, as is the rest behind the last whole word. */
    memset(edge, 0, sizeof(edge));
    if (before)
        memcpy(edge, before, CDC_WINDOW_BYTES);
    memcpy(edge + CDC_WINDOW_BYTES, data, first);
    m->strict[at / 64] = m->loose[at / 64] = 0;
    for (i = before ? 0 : CDC_WINDOW_BYTES; i < first; i++)
        judge_place(c, m, at + i, edge + CDC_WINDOW_BYTES + i);
    if (words > 1) /* reads from 32 bytes before byte 64 on */
        scan_words(c, m->strict + at / 64 + 1, m->loose + at / 64 + 1, data + 64, words - 1);
    if (len_bytes > 64 && len_bytes % 64 != 0) {
        m->strict[at / 64 + words] = m->loose[at / 64 + words] = 0;
        for (i = words * 64; i < len_bytes; i++)
            judge_place(c, m, at + i, data + i);
    }
}

/* The first bit set in [from, to), or to. */
static uint32_t next_bit(const uint64_t *map, uint32_t from, uint32_t to)
{
    uint64_t word;

    if (from >= to)
        return to;
    word = map[from / 64] & ~0ull << from % 64;
    for (from -= from % 64; word == 0; word = map[from / 64]) {
        from += 64;
        if (from >= to)
            return to;
    }
    from += (uint32_t)__builtin_ctzll(word);
    return from < to ? from : to;
}

uint32_t cdc_cut(const struct cdc *c, const struct cdc_map *m, uint32_t from, uint32_t to)
{
    uint32_t normal, end, cut;

    if (to - from <= c->min_bytes)
        return to;
    normal = to - from < c->normal_bytes ? to : from + c->normal_bytes;
    end = to - from < c->max_bytes ? to : from + c->max_bytes;
    cut = next_bit(m->strict, from + c->min_bytes, normal);
    return cut < normal ? cut : next_bit(m->loose, normal, end);
}
