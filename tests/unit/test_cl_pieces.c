/*
 * Pieces of windows: what a host may not say, joining, making fewer, and crossing with the ranges of a buffer: each against the bytes it stands for.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/data/packed.h"
#include "client/data/pieces.h"
#include "client/data/wbuf.h"
#include "tests/unit/cl_rand.h"

#define LEN 100000u

#define P(k, o, n, a, c) {.kind = (k), .off = (o), .len_bytes = (n), .at = (a), .chunk = (c)}

enum { N = FP_AUXW_PIECE_NEW, Z = FP_AUXW_PIECE_ZERO, S = FP_AUXW_PIECE_SAME, T = FP_AUXW_PIECE_STORED };

static uint8_t store[8][LEN]; /* "stored chunks" 1..7 */

/* Random pieces of d[0..len), which they make; fresh gets the new data. */
static uint32_t random_pieces(struct rnd *r, uint8_t *d, uint32_t len, struct fp_auxw_piece *p, uint32_t most, uint8_t *fresh, uint32_t *nfresh)
{
    uint32_t at = 0, n = 0;

    *nfresh = 0;
    while (at < len) {
        uint32_t k = 1 + rnd_below(r, len / most * 2), kind = rnd_below(r, 4);

        if (k > len - at || n == most - 1)
            k = len - at;
        if (kind == S && *nfresh < k)
            kind = N;
        p[n] = (struct fp_auxw_piece){.kind = kind, .off = at, .len_bytes = k};
        if (kind == N) {
            for (uint32_t i = 0; i < k; i++)
                d[at + i] = (uint8_t)(1 + rnd_below(r, 255));
            memcpy(fresh + *nfresh, d + at, k);
            p[n].at = *nfresh;
            *nfresh += k;
        } else if (kind == Z) {
            memset(d + at, 0, k);
        } else if (kind == S) {
            p[n].at = rnd_below(r, *nfresh - k + 1);
            memcpy(d + at, fresh + p[n].at, k);
        } else {
            p[n].chunk = 1 + rnd_below(r, 7);
            p[n].at = rnd_below(r, LEN - k + 1);
            memcpy(d + at, store[p[n].chunk] + p[n].at, k);
        }
        at += k;
        n++;
    }
    return n;
}

/* The bytes that pieces stand for. */
static void make_up(const struct fp_auxw_piece *p, uint32_t n, const uint8_t *fresh, uint8_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *from = p[i].kind == T ? store[p[i].chunk] : fresh;

        if (p[i].kind == Z)
            memset(out + p[i].off, 0, p[i].len_bytes);
        else
            memcpy(out + p[i].off, from + p[i].at, p[i].len_bytes);
    }
}

static int setup(void **state)
{
    struct rnd r;

    (void)state;
    rnd_init(&r, rnd_seed(), 1);
    for (uint32_t c = 1; c < 8; c++)
        for (uint32_t i = 0; i < LEN; i++)
            store[c][i] = (uint8_t)rnd_below(&r, 256);
    return 0;
}

static void test_pieces_that_do_not_fit_are_refused(void **state)
{
    struct fp_auxw_piece good[4] = {P(N, 0, 100, 0, 0), P(Z, 100, 50, 0, 0), P(S, 150, 60, 40, 0), P(N, 210, 90, 100, 0)}, p[4];

    (void)state;
    assert_int_equal(cl_pieces_check(good, 4, 300, 190), 0);
    assert_int_equal(cl_pieces_check(good, 4, 301, 190), -EPROTO);
    assert_int_equal(cl_pieces_check(good, 4, 299, 190), -EPROTO);
    assert_int_equal(cl_pieces_check(good, 4, 300, 191), -EPROTO);
    assert_int_equal(cl_pieces_check(good, 3, 300, 190), -EPROTO);
#define BAD(change)                                                                                          \
    do {                                                                                                     \
        memcpy(p, good, sizeof(p));                                                                          \
        change;                                                                                              \
        assert_int_equal(cl_pieces_check(p, 4, 300, 190), -EPROTO);                                          \
    } while (0)
    BAD(p[1].off = 101);
    BAD(p[1].len_bytes = 0);
    BAD(p[1].kind = 4);
    BAD(p[1].kind = T); /* of chunk 0 */
    BAD(p[2].at = 131);
    BAD(p[2].at = UINT32_MAX);
    BAD(p[3].at = 99);
    BAD(p[3].len_bytes = UINT32_MAX);
    assert_int_equal(cl_pieces_check(good, FP_AUXW_PIECES_MAX + 1, 300, 190), -EPROTO);
}

static void test_pieces_that_go_on_are_joined(void **state)
{
    struct fp_auxw_piece p[] = {P(N, 0, 10, 0, 0),  P(N, 10, 10, 10, 0), P(Z, 20, 5, 0, 0),  P(Z, 25, 5, 7, 0),  P(T, 30, 5, 100, 3), P(T, 35, 5, 105, 3),
                                P(T, 40, 5, 110, 4), P(T, 45, 5, 116, 4), P(S, 50, 5, 0, 0), P(S, 55, 5, 5, 0), P(N, 60, 5, 20, 0)};

    (void)state;
    assert_int_equal(cl_pieces_merge(p, 11), 7);
    assert_int_equal(p[0].len_bytes, 20);
    assert_int_equal(p[1].len_bytes, 10);
    assert_int_equal(p[2].len_bytes, 10);
    assert_int_equal(p[2].chunk, 3);
    assert_int_equal(p[3].len_bytes, 5);
    assert_int_equal(p[4].at, 116);
    assert_int_equal(p[5].len_bytes, 10);
    assert_int_equal(p[6].kind, N);
}

static void test_fewer_pieces_are_the_same_bytes(void **state)
{
    static uint8_t d[LEN], fresh[LEN], got[LEN], packed[LEN];
    struct fp_auxw_piece p[FP_AUXW_PIECES_MAX];
    struct rnd r;

    (void)state;
    rnd_init(&r, rnd_seed(), 2);
    for (int round = 0; round < 3000; round++) {
        uint32_t len = 1 + rnd_below(&r, LEN), max = 1 + rnd_below(&r, 80), nfresh, n, at = 0;
        uint32_t most = 1 + rnd_below(&r, rnd_below(&r, 2) ? 20 : FP_AUXW_PIECES_MAX);

        if (most > len)
            most = len;
        n = random_pieces(&r, d, len, p, most, fresh, &nfresh);
        assert_int_equal(cl_pieces_check(p, n, len, nfresh), 0);
        n = cl_pieces_merge(p, n);
        make_up(p, n, fresh, got);
        assert_memory_equal(got, d, len);
        n = cl_pieces_limit(p, n, max, &nfresh);
        assert_true(n <= max);
        assert_int_equal(cl_pieces_check(p, n, len, nfresh), 0);
        for (uint32_t i = 0; i < n; i++)
            if (p[i].kind == N) {
                memcpy(packed + at, d + p[i].off, p[i].len_bytes);
                at += p[i].len_bytes;
            }
        make_up(p, n, packed, got);
        assert_memory_equal(got, d, len);
    }
}

static void test_the_shortest_duplicates_go_first(void **state)
{
    struct fp_auxw_piece p[] = {P(N, 0, 10, 0, 0),   P(Z, 10, 5, 0, 0),    P(N, 15, 10, 10, 0), P(T, 25, 500, 7, 2),
                                P(N, 525, 10, 20, 0), P(T, 535, 6, 90, 3), P(N, 541, 10, 30, 0)};
    uint32_t fresh = 40;

    (void)state;
    assert_int_equal(cl_pieces_limit(p, 7, 7, &fresh), 7);
    assert_int_equal(cl_pieces_limit(p, 7, 5, &fresh), 5);
    assert_int_equal(fresh, 45);
    assert_int_equal(p[0].len_bytes, 25);
    assert_int_equal(p[1].chunk, 2);
    assert_int_equal(p[3].chunk, 3);
    assert_int_equal(p[2].at, 25);
    assert_int_equal(cl_pieces_limit(p, 5, 4, &fresh), 3);
    assert_int_equal(fresh, 51);
    assert_int_equal(p[1].chunk, 2);
    assert_int_equal(cl_pieces_limit(p, 3, 1, &fresh), 1);
    assert_int_equal(fresh, 551);
}

/* Ranges, truncated at random, cut by pieces: each byte of the window is where its slice says. */
static void test_slices_are_ranges_cut_by_pieces(void **state)
{
    static uint8_t d[LEN], fresh[LEN];
    struct fp_auxw_piece p[FP_AUXW_PIECES_MAX];
    struct cl_packed k = {.pieces = p};
    struct rnd r;

    (void)state;
    rnd_init(&r, rnd_seed(), 3);
    for (int round = 0; round < 3000; round++) {
        struct cl_wbuf *b = cl_wbuf_new(NULL, 0, 1u << 20);
        uint32_t at = 0, off = rnd_below(&r, 1000), len, nfresh, covered = 0, in_ranges = 0, end = 0;
        struct cl_bits it = {.b = b};
        struct cl_bit bit;

        b->nranges = 1 + rnd_below(&r, CL_WBUF_RANGES_MAX);
        for (uint32_t i = 0; i < b->nranges; i++) {
            b->range[i] = (struct cl_range){.off = off, .len = 1 + rnd_below(&r, 2000), .chunk_off = at};
            off += b->range[i].len + 1 + rnd_below(&r, 500);
            at += b->range[i].len + (rnd_below(&r, 4) ? 0 : rnd_below(&r, 100)); /* a gap that was filled */
        }
        len = at + rnd_below(&r, 50);
        k.npieces = random_pieces(&r, d, len, p, 1 + rnd_below(&r, len < 60 ? len : 60), fresh, &nfresh);
        b->chunk.id = 99;
        b->packed = &k;
        if (rnd_below(&r, 2))
            cl_wbuf_truncate(b, rnd_below(&r, off));
        for (uint32_t i = 0; i < b->nranges; i++)
            in_ranges += b->range[i].len;
        while (cl_bits_next(&it, &bit)) {
            const uint8_t *from = bit.chunk == 99 ? fresh : bit.chunk ? store[bit.chunk] : NULL;
            uint32_t i = 0;

            assert_true(bit.len > 0 && bit.off >= end);
            while (bit.off >= b->range[i].off + b->range[i].len)
                i++;
            assert_true(bit.off >= b->range[i].off && bit.off + bit.len <= b->range[i].off + b->range[i].len);
            for (uint32_t j = 0; j < bit.len; j++)
                assert_int_equal(from ? from[bit.src_off + j] : 0, d[b->range[i].chunk_off + bit.off - b->range[i].off + j]);
            covered += bit.len;
            end = bit.off + bit.len;
        }
        assert_int_equal(covered, in_ranges);
        b->packed = NULL;
        cl_wbuf_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_that_do_not_fit_are_refused),
        cmocka_unit_test(test_pieces_that_go_on_are_joined),
        cmocka_unit_test(test_fewer_pieces_are_the_same_bytes),
        cmocka_unit_test(test_the_shortest_duplicates_go_first),
        cmocka_unit_test(test_slices_are_ranges_cut_by_pieces),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
