/*
 * SHA-1 of sixteen pieces at once (see sha1x16.h). Called by lanes.c on dedup's workers; pure.
 *
 * FIPS 180-4, by plain arithmetic: a vector has the same word of sixteen messages, so that it takes 0.13 ms per MiB where the SHA instructions, of which
 * processors begin one in three or four clocks, take 0.32. Rotations, and functions of three words, are one instruction each in AVX-512. Vectors of 256 bits,
 * eight messages, were rejected: they wait for each other (0.16 ms); with AVX2 a rotation is three instructions and nothing is won.
 */
#include "sha1x16.h"

#include "sha1x2.h"

#if defined(__x86_64__)
#include <immintrin.h>

bool sha1x16_is_there(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}

#define WIDE __attribute__((target("avx512f,avx512bw")))

/* What vpternlogd is told: the result for each three bits. */
#define CHOOSE   0xca
#define PARITY   0x96
#define MAJORITY 0xe8

#define WORD(t) w[(t) % 16]
#define NEXT(t)                                                                                                                            \
    _mm512_rol_epi32(_mm512_xor_si512(WORD(t), _mm512_ternarylogic_epi32(WORD((t) + 2), WORD((t) + 8), WORD((t) + 13), PARITY)), 1)

/* Round t. What depends on the round before is added last; the compiler must not sort that anew: each round would be half as long again. */
#define ROUND(a, b, c, d, e, f, t)                                                                                                         \
    do {                                                                                                                               \
        if ((t) >= 16)                                                                                                             \
            WORD(t) = NEXT(t);                                                                                                 \
        e = _mm512_add_epi32(e, _mm512_add_epi32(WORD(t), k));                                                                     \
        e = _mm512_add_epi32(e, _mm512_ternarylogic_epi32(b, c, d, f));                                                            \
        __asm__("" : "+v"(e));                                                                                                     \
        e = _mm512_add_epi32(e, _mm512_rol_epi32(a, 5));                                                                           \
        b = _mm512_rol_epi32(b, 30);                                                                                               \
    } while (0)

#define FIVE(f, t)                                                                                                                         \
    ROUND(a, b, c, d, e, f, (t)); ROUND(e, a, b, c, d, f, (t) + 1); ROUND(d, e, a, b, c, f, (t) + 2);                                  \
    ROUND(c, d, e, a, b, f, (t) + 3); ROUND(b, c, d, e, a, f, (t) + 4)
#define TWENTY(f, t, constant)                                                                                                             \
    do {                                                                                                                               \
        const __m512i k = _mm512_set1_epi32((int)(constant));                                                                      \
        FIVE(f, (t)); FIVE(f, (t) + 5); FIVE(f, (t) + 10); FIVE(f, (t) + 15);                                                      \
    } while (0)

/* A block of each message: w[i] gets word i of all, in the byte order of numbers. Rows to columns: by words, by pairs of words, by quarters, by halves. */
WIDE static inline __attribute__((always_inline)) void load_words(const uint8_t *const p[SHA1X16_LANES], size_t off, __m512i w[16])
{
    const __m512i swap = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
    __m512i s[16];

    for (int i = 0; i < 16; i++)
        w[i] = _mm512_shuffle_epi8(_mm512_loadu_si512(p[i] + off), swap);
    for (int i = 0; i < 16; i += 2) {
        s[i] = _mm512_unpacklo_epi32(w[i], w[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi32(w[i], w[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        w[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
        w[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
        w[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
        w[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        s[i] = _mm512_shuffle_i32x4(w[i], w[i + 4], 0x88);
        s[i + 4] = _mm512_shuffle_i32x4(w[i], w[i + 4], 0xdd);
        s[i + 8] = _mm512_shuffle_i32x4(w[i + 8], w[i + 12], 0x88);
        s[i + 12] = _mm512_shuffle_i32x4(w[i + 8], w[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        w[i] = _mm512_shuffle_i32x4(s[i], s[i + 8], 0x88);
        w[i + 4] = _mm512_shuffle_i32x4(s[i + 4], s[i + 12], 0x88);
        w[i + 8] = _mm512_shuffle_i32x4(s[i], s[i + 8], 0xdd);
        w[i + 12] = _mm512_shuffle_i32x4(s[i + 4], s[i + 12], 0xdd);
    }
}

WIDE void sha1x16(uint32_t h[5][SHA1X16_LANES], const uint8_t *const data[SHA1X16_LANES], size_t blocks)
{
    __m512i a = _mm512_loadu_si512(h[0]), b = _mm512_loadu_si512(h[1]), c = _mm512_loadu_si512(h[2]), d = _mm512_loadu_si512(h[3]);
    __m512i e = _mm512_loadu_si512(h[4]), w[16];

    for (size_t off = 0; off < blocks * SHA1_BLOCK_BYTES; off += SHA1_BLOCK_BYTES) {
        __m512i a0 = a, b0 = b, c0 = c, d0 = d, e0 = e;

        load_words(data, off, w);
        TWENTY(CHOOSE, 0, 0x5a827999);
        TWENTY(PARITY, 20, 0x6ed9eba1);
        TWENTY(MAJORITY, 40, 0x8f1bbcdc);
        TWENTY(PARITY, 60, 0xca62c1d6);
        a = _mm512_add_epi32(a, a0);
        b = _mm512_add_epi32(b, b0);
        c = _mm512_add_epi32(c, c0);
        d = _mm512_add_epi32(d, d0);
        e = _mm512_add_epi32(e, e0);
    }
    _mm512_storeu_si512(h[0], a);
    _mm512_storeu_si512(h[1], b);
    _mm512_storeu_si512(h[2], c);
    _mm512_storeu_si512(h[3], d);
    _mm512_storeu_si512(h[4], e);
}
#else
bool sha1x16_is_there(void)
{
    return false;
}

void sha1x16(uint32_t h[5][SHA1X16_LANES], const uint8_t *const data[SHA1X16_LANES], size_t blocks)
{
    (void)h, (void)data, (void)blocks;
}
#endif
