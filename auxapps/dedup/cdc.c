/*
 * Content-defined chunking (see cdc.h). Called by the aux-app dedup on its workers, and by the benchmark `cdc`.
 *
 * The hash of 32 bytes b[0] .. b[31] is the sum of gear(b[31 - j]) << j modulo 2^32, which is what h = (h << 1) + gear(b) leaves after 32 steps. Its
 * high bits depend on all of them, so the masks take high bits.
 *
 * All places are judged, not only those after the smallest piece: that is what lets SIMD do it. A sum over 32 bytes is a sum of
 * two sums over 16, one of them shifted, and so on down: five steps give the hashes of 8 or 16 places at once, whereas
 * going byte by byte waits for the place before. gear() is arithmetic instead of a table, since looking up 16 entries at once is as slow as one by one.
 * The scalar path has the table and goes through four stretches side by side, so that four chains of additions overlap.
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

typedef void scan_fn(const struct cdc *c, uint64_t *strict, uint64_t *loose, const uint8_t *data, uint32_t words);

static uint32_t gear(uint8_t b)
{
	uint32_t x = (b + 1u) * GEAR_A;

	x ^= x >> 15;
	return x * GEAR_B;
}

void cdc_init(struct cdc *c, uint32_t avg_bytes)
{
	unsigned bits = 12;

	while (bits < 20 && 1u << (bits + 1) <= avg_bytes)
		bits++;
	c->normal_bytes = 1u << bits;
	c->min_bytes = bits > 14 ? c->normal_bytes / 4 : CDC_MIN_BYTES;
	c->max_bytes = c->normal_bytes * 4;
	c->strict_mask = ~0u << (32 - (bits + 1));
	c->loose_mask = ~0u << (32 - (bits - 2));
}

/* -------------------------------------------------------------- one by one */

static uint32_t table[256];

static uint32_t hash_at(const uint8_t *end)
{
	uint32_t h = 0;

	for (unsigned j = CDC_WINDOW_BYTES; j > 0; j--)
		h = (h << 1) + gear(end[-(int)j]);
	return h;
}

/* One place of stretch k: bit `bit` of its words. The strict places are among the loose ones, and those are rare. */
#define STEP(k)                                                                                                                            \
	do {                                                                                                                               \
		h[k] = (h[k] << 1) + table[p[k][bit]];                                                                                     \
		if (__builtin_expect(h[k] < loose_end, 0)) {                                                                               \
			l[k] |= 1ull << bit;                                                                                               \
			s[k] |= (uint64_t)(h[k] < strict_end) << bit;                                                                      \
		}                                                                                                                          \
	} while (0)

/* words of four stretches side by side; data[-32 ..] can be read. Place i is judged by the 32 bytes before it, so the chain runs one byte behind. */
static void scan_scalar(const struct cdc *c, uint64_t *strict, uint64_t *loose, const uint8_t *data, uint32_t words)
{
	const uint32_t loose_end = -c->loose_mask, strict_end = -c->strict_mask; /* masks of high bits: below it none of them is set */
	uint32_t quarter = (words + 3) / 4;
	const uint8_t *p[4];
	uint32_t h[4], at[4];

	for (unsigned k = 0; k < 4; k++) {
		at[k] = k * quarter < words ? k * quarter : words;
		p[k] = data + (size_t)at[k] * 64 - 1;
		h[k] = hash_at(p[k]);
	}
	for (uint32_t w = 0; w < quarter; w++) {
		uint64_t s[4] = { 0 }, l[4] = { 0 };
		unsigned n = 4;

		while (n > 0 && at[n - 1] + w >= words)
			n--; /* the last stretches are shorter: what is past the end is judged but not kept */
		if (n == 4) {
			for (unsigned bit = 0; bit < 64; bit++) {
				STEP(0);
				STEP(1);
				STEP(2);
				STEP(3);
			}
		} else {
			for (unsigned k = 0; k < n; k++)
				for (unsigned bit = 0; bit < 64; bit++)
					STEP(k);
		}
		for (unsigned k = 0; k < n; k++) {
			strict[at[k] + w] = s[k];
			loose[at[k] + w] = l[k];
			p[k] += 64;
		}
	}
}

/* -------------------------------------------------------------- 8 and 16 places at once */

#ifdef HAVE_X86
/* Those of the 64 places from p on, given as bits, that are strict, too. */
static uint64_t strict_of(const struct cdc *c, const uint8_t *p, uint64_t loose)
{
	uint64_t strict = 0;

	for (; loose != 0; loose &= loose - 1) {
		unsigned bit = (unsigned)__builtin_ctzll(loose);

		strict |= (uint64_t)((hash_at(p + bit) & c->strict_mask) == 0) << bit;
	}
	return strict;
}

/* Lanes of x moved up by n, filled from the top of the vector before. */
#define UP8_1(x, b) _mm256_alignr_epi8((x), _mm256_permute2x128_si256((b), (x), 0x21), 12)
#define UP8_2(x, b) _mm256_alignr_epi8((x), _mm256_permute2x128_si256((b), (x), 0x21), 8)
#define UP8_4(x, b) _mm256_permute2x128_si256((b), (x), 0x21)

__attribute__((target("avx2"))) static inline __m256i gear8(const uint8_t *p)
{
	__m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));

	x = _mm256_mullo_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(1)), _mm256_set1_epi32((int)GEAR_A));
	x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 15));
	return _mm256_mullo_epi32(x, _mm256_set1_epi32((int)GEAR_B));
}

struct chain8 { __m256i g, h2, h4, h8, h8b, h16, h16b; }; /* of the vector before; h8b, h16b: one and two before */

/* Hashes of the 32 bytes that end with each of p[0..7]. */
__attribute__((target("avx2"))) static inline __m256i hash8(struct chain8 *s, const uint8_t *p)
{
	__m256i g = gear8(p), h2, h4, h8, h16, h32;

	h2 = _mm256_add_epi32(g, _mm256_slli_epi32(UP8_1(g, s->g), 1));
	h4 = _mm256_add_epi32(h2, _mm256_slli_epi32(UP8_2(h2, s->h2), 2));
	h8 = _mm256_add_epi32(h4, _mm256_slli_epi32(UP8_4(h4, s->h4), 4));
	h16 = _mm256_add_epi32(h8, _mm256_slli_epi32(s->h8, 8));
	h32 = _mm256_add_epi32(h16, _mm256_slli_epi32(s->h16b, 16));
	s->g = g;
	s->h2 = h2;
	s->h4 = h4;
	s->h8 = h8;
	s->h16b = s->h16;
	s->h16 = h16;
	return h32;
}

__attribute__((target("avx2"))) static void scan_avx2(const struct cdc *c, uint64_t *strict, uint64_t *loose, const uint8_t *data,
						      uint32_t words)
{
	const __m256i lm = _mm256_set1_epi32((int)c->loose_mask), zero = _mm256_setzero_si256();
	struct chain8 s = { zero, zero, zero, zero, zero, zero, zero };
	const uint8_t *p = data - 1;

	for (int back = 32; back > 0; back -= 8)
		(void)hash8(&s, p - back);
	for (uint32_t w = 0; w < words; w++, p += 64) {
		__m256i hit[8], any = zero;
		uint64_t lb = 0;

		for (unsigned k = 0; k < 8; k++) {
			hit[k] = _mm256_cmpeq_epi32(_mm256_and_si256(hash8(&s, p + 8 * k), lm), zero);
			any = _mm256_or_si256(any, hit[k]);
		}
		if (__builtin_expect(!_mm256_testz_si256(any, any), 0))
			for (unsigned k = 0; k < 8; k++)
				lb |= (uint64_t)(uint8_t)_mm256_movemask_ps(_mm256_castsi256_ps(hit[k])) << 8 * k;
		loose[w] = lb;
		strict[w] = lb ? strict_of(c, p + 1, lb) : 0;
	}
}

__attribute__((target("avx512f"))) static inline __m512i gear16(const uint8_t *p)
{
	__m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));

	x = _mm512_mullo_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(1)), _mm512_set1_epi32((int)GEAR_A));
	x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
	return _mm512_mullo_epi32(x, _mm512_set1_epi32((int)GEAR_B));
}

struct chain16 { __m512i g, h2, h4, h8, h16; };

__attribute__((target("avx512f"))) static inline __m512i hash16(struct chain16 *s, const uint8_t *p)
{
	__m512i g = gear16(p), h2, h4, h8, h16, h32;

	h2 = _mm512_add_epi32(g, _mm512_slli_epi32(_mm512_alignr_epi32(g, s->g, 15), 1));
	h4 = _mm512_add_epi32(h2, _mm512_slli_epi32(_mm512_alignr_epi32(h2, s->h2, 14), 2));
	h8 = _mm512_add_epi32(h4, _mm512_slli_epi32(_mm512_alignr_epi32(h4, s->h4, 12), 4));
	h16 = _mm512_add_epi32(h8, _mm512_slli_epi32(_mm512_alignr_epi32(h8, s->h8, 8), 8));
	h32 = _mm512_add_epi32(h16, _mm512_slli_epi32(s->h16, 16));
	*s = (struct chain16){ g, h2, h4, h8, h16 };
	return h32;
}

__attribute__((target("avx512f"))) static void scan_avx512(const struct cdc *c, uint64_t *strict, uint64_t *loose, const uint8_t *data,
							   uint32_t words)
{
	const __m512i lm = _mm512_set1_epi32((int)c->loose_mask), zero = _mm512_setzero_si512();
	struct chain16 s = { zero, zero, zero, zero, zero };
	const uint8_t *p = data - 1;

	for (int back = 32; back > 0; back -= 16)
		(void)hash16(&s, p - back);
	for (uint32_t w = 0; w < words; w++, p += 64) {
		__m512i h0 = hash16(&s, p), h1 = hash16(&s, p + 16), h2 = hash16(&s, p + 32), h3 = hash16(&s, p + 48);
		__m512i least = _mm512_min_epu32(_mm512_min_epu32(h0, h1), _mm512_min_epu32(h2, h3));
		uint64_t lb = 0;

		if (__builtin_expect(_mm512_testn_epi32_mask(least, lm) != 0, 0))
			lb = (uint64_t)_mm512_testn_epi32_mask(h0, lm) | (uint64_t)_mm512_testn_epi32_mask(h1, lm) << 16 |
			     (uint64_t)_mm512_testn_epi32_mask(h2, lm) << 32 | (uint64_t)_mm512_testn_epi32_mask(h3, lm) << 48;
		loose[w] = lb;
		strict[w] = lb ? strict_of(c, p + 1, lb) : 0;
	}
}
#endif

/* -------------------------------------------------------------- choice, edges */

static scan_fn *scan_words;

static scan_fn *pick(int *path)
{
#ifdef HAVE_X86
	if ((*path == 0 || *path == 3) && __builtin_cpu_supports("avx512f"))
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

static void judge(const struct cdc *c, struct cdc_map *m, uint32_t place, uint32_t h)
{
	m->strict[place / 64] |= (uint64_t)((h & c->strict_mask) == 0) << place % 64;
	m->loose[place / 64] |= (uint64_t)((h & c->loose_mask) == 0) << place % 64;
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
		judge(c, m, at + i, hash_at(edge + CDC_WINDOW_BYTES + i));
	if (words > 1) /* reads from 33 bytes before byte 64 on */
		scan_words(c, m->strict + at / 64 + 1, m->loose + at / 64 + 1, data + 64, words - 1);
	if (len_bytes > 64 && len_bytes % 64 != 0) {
		m->strict[at / 64 + words] = m->loose[at / 64 + words] = 0;
		for (i = words * 64; i < len_bytes; i++)
			judge(c, m, at + i, hash_at(data + i));
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
