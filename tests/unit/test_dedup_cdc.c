/* Content-defined chunking: all paths find the same cuts, cuts move with the content, and sizes are kept. */
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "auxapps/dedup/cdc.h"

#define DATA_BYTES (1u << 20)

static uint64_t seed;

static uint64_t next(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return seed >> 24;
}

static uint8_t *random_bytes(size_t n)
{
    uint8_t *p = malloc(n);

    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)next();
    return p;
}

static struct cdc_map map_new(uint32_t len)
{
    size_t words = (len + 63) / 64;
    struct cdc_map m = { .strict = malloc(words * 8), .loose = malloc(words * 8), .len_bytes = len };

    assert_true(m.strict && m.loose);
    memset(m.strict, 0xa5, words * 8);
    memset(m.loose, 0xa5, words * 8);
    return m;
}

static void map_free(struct cdc_map *m)
{
    free(m->strict);
    free(m->loose);
}

static bool bit(const uint64_t *map, uint32_t i)
{
    return map[i / 64] >> i % 64 & 1;
}

static void same_maps(const struct cdc_map *a, const struct cdc_map *b, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        if (bit(a->strict, i) != bit(b->strict, i) || bit(a->loose, i) != bit(b->loose, i))
            fail_msg("place %u differs", i);
}

static void test_all_paths_find_the_same_cuts_of_any_length(void **state)
{
    uint8_t *data = random_bytes(DATA_BYTES);
    struct cdc c;
    unsigned wide = 0;

    (void)state;
    cdc_init(&c, 4096); /* the smallest: most cuts */
    for (unsigned round = 0; round < 400; round++) {
        uint32_t len = round < 200 ? round + 1 : 1 + (uint32_t)next() % 5000;
        struct cdc_map ref = map_new(len);

        assert_int_equal(cdc_use(1), 1);
        cdc_scan(&c, &ref, 0, data + round * 131, len, NULL);
        for (int path = 2; path <= 3; path++) {
            struct cdc_map m = map_new(len);

            wide += cdc_use(path) != 1;
            cdc_scan(&c, &m, 0, data + round * 131, len, NULL);
            same_maps(&ref, &m, len);
            map_free(&m);
        }
        map_free(&ref);
    }
    cdc_use(0);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        assert_true(wide > 0);
#endif
    free(data);
}

/* With a period a place can come again and again: many in a word. */
static void test_all_paths_find_the_same_cuts_in_periodic_data(void **state)
{
    enum { LEN = 1000 };
    uint8_t data[LEN];
    struct cdc_map map[4];
    unsigned dense = 0;
    struct cdc c;

    (void)state;
    cdc_init(&c, 4096);
    for (unsigned path = 1; path <= 3; path++)
        map[path] = map_new(LEN);
    for (unsigned round = 0; round < 20000; round++) {
        uint32_t period = 1 + round % 16, places = 0;

        for (uint32_t i = 0; i < LEN; i++)
            data[i] = i < period ? (uint8_t)next() : data[i - period];
        for (int path = 1; path <= 3; path++) {
            cdc_use(path);
            cdc_scan(&c, &map[path], 0, data, LEN, NULL);
            same_maps(&map[1], &map[path], LEN);
        }
        for (uint32_t i = 0; i < LEN; i++)
            places += bit(map[1].loose, i);
        assert_true(period > 1 || places == 0); /* one byte over and over is no place */
        dense += places > LEN / 32;
    }
    assert_true(dense > 0); /* or this has tested nothing */
    cdc_use(0);
    for (unsigned path = 1; path <= 3; path++)
        map_free(&map[path]);
}

static void test_parts_are_scanned_like_the_whole(void **state)
{
    uint8_t *data = random_bytes(DATA_BYTES);
    struct cdc_map whole = map_new(DATA_BYTES), parts = map_new(DATA_BYTES);
    uint32_t at = 0;
    struct cdc c;

    (void)state;
    cdc_init(&c, 4096);
    cdc_scan(&c, &whole, 0, data, DATA_BYTES, NULL);
    while (at < DATA_BYTES) {
        uint32_t len = 65536u * (1 + (uint32_t)next() % 3);

        len = len < DATA_BYTES - at ? len : DATA_BYTES - at;
        cdc_scan(&c, &parts, at, data + at, len, at ? data + at - CDC_WINDOW_BYTES : NULL);
        at += len;
    }
    same_maps(&whole, &parts, DATA_BYTES);
    map_free(&whole);
    map_free(&parts);
    free(data);
}

static uint32_t cuts(const struct cdc *c, const uint8_t *data, uint32_t len, uint32_t *cut)
{
    struct cdc_map m = map_new(len);
    uint32_t n = 0;

    cdc_scan(c, &m, 0, data, len, NULL);
    for (uint32_t at = 0; at < len; at = cut[n - 1])
        cut[n++] = cdc_cut(c, &m, at, len);
    map_free(&m);
    return n;
}

static void test_pieces_keep_their_sizes(void **state)
{
    static const uint32_t sizes[] = { 4096, 32768, 65536, 100000, 1 << 20 };
    uint8_t *data = random_bytes(16 * DATA_BYTES);
    uint32_t *cut = calloc(16 * DATA_BYTES / 1024, sizeof(*cut));

    (void)state;
    for (unsigned s = 0; s < 5; s++) {
        struct cdc c;
        uint32_t n, from = 0;

        cdc_init(&c, sizes[s]);
        assert_true(c.normal_bytes <= sizes[s] && c.normal_bytes * 2 > sizes[s]);
        n = cuts(&c, data, 16 * DATA_BYTES, cut);
        for (uint32_t i = 0; i < n; from = cut[i++]) {
            assert_true(cut[i] - from <= c.max_bytes);
            assert_true(i == n - 1 || cut[i] - from >= c.min_bytes);
        }
        assert_in_range(16 * DATA_BYTES / n, c.normal_bytes / 2, c.normal_bytes * 2);
    }
    free(cut);
    free(data);
}

static void test_cuts_move_with_the_content(void **state)
{
    uint8_t *data = random_bytes(2 * DATA_BYTES), *moved = malloc(2 * DATA_BYTES);
    uint32_t a[1024], b[1024], na, nb, same = 0;
    const uint32_t shift = 12345;
    struct cdc c;

    (void)state;
    cdc_init(&c, 16384);
    memcpy(moved, data + 7, shift); /* something else in front */
    memcpy(moved + shift, data, 2 * DATA_BYTES - shift);
    na = cuts(&c, data, 2 * DATA_BYTES, a);
    nb = cuts(&c, moved, 2 * DATA_BYTES, b);
    for (uint32_t i = 0, j = 0; i < na && j < nb;) {
        if (a[i] + shift == b[j])
            same++;
        if (a[i] + shift <= b[j])
            i++;
        else
            j++;
    }
    assert_true(same >= na * 9 / 10);
    free(data);
    free(moved);
}

static void test_data_without_cuts_is_cut_at_the_largest_size(void **state)
{
    uint8_t *data = calloc(1, DATA_BYTES);
    uint32_t cut[512], n;
    struct cdc c;

    (void)state;
    cdc_init(&c, 65536);
    n = cuts(&c, data, DATA_BYTES, cut);
    assert_int_equal(n, DATA_BYTES / c.max_bytes);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_paths_find_the_same_cuts_of_any_length),
        cmocka_unit_test(test_all_paths_find_the_same_cuts_in_periodic_data),
        cmocka_unit_test(test_parts_are_scanned_like_the_whole),
        cmocka_unit_test(test_pieces_keep_their_sizes),
        cmocka_unit_test(test_cuts_move_with_the_content),
        cmocka_unit_test(test_data_without_cuts_is_cut_at_the_largest_size),
    };

    seed = 20101113;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
