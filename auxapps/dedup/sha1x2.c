/*
 * SHA-1 of two pieces at once (see sha1x2.h). Called by pieces.c on dedup's workers; pure.
 *
 * FIPS 180-4, by the SHA instructions of x86: sha1rnds4 does four rounds, sha1nexte, sha1msg1 and sha1msg2 make what it needs. Each group of four waits for
 * the one before; that is why two messages go side by side. More than two do not fit into the sixteen registers that these instructions can name.
 */
#include "sha1x2.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

bool sha1x2_is_there(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
}

#define SHA __attribute__((target("sha,sse4.1")))

struct lane {
    __m128i abcd, before;          /* before: abcd, four rounds ago */
    __m128i w[4];
};

SHA static inline __attribute__((always_inline)) void lane_load(struct lane *l, const uint8_t *p)
{
    const __m128i swap = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);

    for (int i = 0; i < 4; i++)
        l->w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)), swap);
}

/* Group g of four rounds, and the words of the group four later. A macro: sha1rnds4 wants its kind as a constant. */
#define GROUP(l, g)                                                                                                                        \
    do {                                                                                                                               \
        __m128i e_ = (g) == 0 ? _mm_add_epi32((l).before, (l).w[0]) : _mm_sha1nexte_epu32((l).before, (l).w[(g) % 4]);             \
        (l).before = (l).abcd;                                                                                                     \
        (l).abcd = _mm_sha1rnds4_epu32((l).abcd, e_, (g) / 5);                                                                     \
        if ((g) < 16)                                                                                                              \
            (l).w[(g) % 4] = _mm_sha1msg2_epu32(_mm_xor_si128(_mm_sha1msg1_epu32((l).w[(g) % 4], (l).w[((g) + 1) % 4]),        \
                                      (l).w[((g) + 2) % 4]), (l).w[((g) + 3) % 4]);                    \
    } while (0)

#define FIVE(X, g) X(g) X((g) + 1) X((g) + 2) X((g) + 3) X((g) + 4)
#define TWENTY(X) FIVE(X, 0) FIVE(X, 5) FIVE(X, 10) FIVE(X, 15)

SHA static inline __m128i load_abcd(const uint32_t h[5])
{
    return _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)h), 0x1b);
}

SHA static inline void store_state(uint32_t h[5], __m128i abcd, __m128i e)
{
    _mm_storeu_si128((__m128i *)(void *)h, _mm_shuffle_epi32(abcd, 0x1b));
    h[4] = (uint32_t)_mm_extract_epi32(e, 3);
}

SHA void sha1x2_two(uint32_t ha[5], const uint8_t *a, uint32_t hb[5], const uint8_t *b, size_t blocks)
{
    struct lane x = { .abcd = load_abcd(ha), .before = _mm_set_epi32((int)ha[4], 0, 0, 0) };
    struct lane y = { .abcd = load_abcd(hb), .before = _mm_set_epi32((int)hb[4], 0, 0, 0) };

    for (; blocks > 0; blocks--, a += SHA1_BLOCK_BYTES, b += SHA1_BLOCK_BYTES) {
        __m128i xa = x.abcd, xe = x.before, ya = y.abcd, ye = y.before;

        lane_load(&x, a);
        lane_load(&y, b);
#define BOTH(g) GROUP(x, g); GROUP(y, g);
        TWENTY(BOTH)
#undef BOTH
        x.before = _mm_sha1nexte_epu32(x.before, xe);
        y.before = _mm_sha1nexte_epu32(y.before, ye);
        x.abcd = _mm_add_epi32(x.abcd, xa);
        y.abcd = _mm_add_epi32(y.abcd, ya);
    }
    store_state(ha, x.abcd, x.before);
    store_state(hb, y.abcd, y.before);
}

SHA void sha1x2_one(uint32_t h[5], const uint8_t *p, size_t blocks)
{
    struct lane x = { .abcd = load_abcd(h), .before = _mm_set_epi32((int)h[4], 0, 0, 0) };

    for (; blocks > 0; blocks--, p += SHA1_BLOCK_BYTES) {
        __m128i xa = x.abcd, xe = x.before;

        lane_load(&x, p);
#define ONE(g) GROUP(x, g);
        TWENTY(ONE)
#undef ONE
        x.before = _mm_sha1nexte_epu32(x.before, xe);
        x.abcd = _mm_add_epi32(x.abcd, xa);
    }
    store_state(h, x.abcd, x.before);
}
#else
bool sha1x2_is_there(void)
{
    return false;
}

void sha1x2_two(uint32_t ha[5], const uint8_t *a, uint32_t hb[5], const uint8_t *b, size_t blocks)
{
    (void)ha, (void)a, (void)hb, (void)b, (void)blocks;
}

void sha1x2_one(uint32_t h[5], const uint8_t *p, size_t blocks)
{
    (void)h, (void)p, (void)blocks;
}
#endif

void sha1x2_init(uint32_t h[5])
{
    static const uint32_t first[5] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };

    memcpy(h, first, sizeof(first));
}

size_t sha1x2_pad(uint8_t buf[2 * SHA1_BLOCK_BYTES], uint64_t len_bytes)
{
    size_t used = len_bytes % SHA1_BLOCK_BYTES, blocks = used < 56 ? 1 : 2;

    memset(buf + used, 0, 2 * SHA1_BLOCK_BYTES - used);
    buf[used] = 0x80;
    for (unsigned i = 0; i < 8; i++)
        buf[blocks * SHA1_BLOCK_BYTES - 1 - i] = (uint8_t)(len_bytes * 8 >> 8 * i);
    return blocks;
}

void sha1x2_end(const uint32_t h[5], uint8_t out[20])
{
    for (unsigned i = 0; i < 20; i++)
        out[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}
