/* Checksums: the values are those of xxHash, stable for ever, and any flipped bit is found in its block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fp/checksum.h"
#include "fp/xxh3.h"

#define LEN (3 * FP_BLOCK_SIZE_BYTES + 17)

static unsigned char *pattern(size_t len_bytes)
{
    unsigned char *p = malloc(len_bytes + 1);
    assert_non_null(p);
    for (size_t i = 0; i < len_bytes; i++)
        p[i] = (unsigned char)(i * 131 + (i >> 8) * 7);
    return p;
}

static void test_block_sums_are_xxh3_of_each_64k(void **state)
{
    unsigned char *data = pattern(LEN);
    uint64_t sums[4];
    (void)state;
    fp_sum_blocks(data, LEN, sums);
    for (int i = 0; i < 3; i++)
        assert_true(sums[i] == XXH3_64bits(data + (size_t)i * FP_BLOCK_SIZE_BYTES, FP_BLOCK_SIZE_BYTES));
    assert_true(sums[3] == XXH3_64bits(data + 3 * (size_t)FP_BLOCK_SIZE_BYTES, 17));
    free(data);
}

static void test_chunk_sum_is_xxh3_of_little_endian_sums_seeded_by_length(void **state)
{
    static const unsigned char le[16] = {8, 7, 6, 5, 4, 3, 2, 1, 0xff, 0, 0, 0, 0, 0, 0, 0x80};
    const uint64_t sums[2] = {0x0102030405060708u, 0x80000000000000ffu};
    (void)state;
    assert_true(fp_sum_chunk(sums, 2, 70000) == XXH3_64bits_withSeed(le, sizeof le, 70000));
}

/* Lengths at which XXH3 changes its ways, and at which vectors of 64 bytes end. */
static void test_the_fast_sums_are_xxh3(void **state)
{
    static const size_t lens[] = {0, 1, 16, 17, 128, 129, 240, 241, 1023, 1024, 1025, 65535, 65536, LEN};
    unsigned char *data = pattern(LEN);
    XXH3_state_t *s = XXH3_createState();
    (void)state;
    assert_non_null(s);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        XXH128_hash_t h, want = XXH3_128bits(data + 1, lens[i]);
        assert_true(fp_xxh3_64(data + 1, lens[i]) == XXH3_64bits(data + 1, lens[i]));
        XXH3_64bits_reset(s);
        fp_xxh3_64_update(s, data + 1, lens[i] / 3);
        fp_xxh3_64_update(s, data + 1 + lens[i] / 3, lens[i] - lens[i] / 3);
        assert_true(XXH3_64bits_digest(s) == XXH3_64bits(data + 1, lens[i]));
        XXH3_128bits_reset(s);
        fp_xxh3_128_update(s, data + 1, lens[i] / 3);
        fp_xxh3_128_update(s, data + 1 + lens[i] / 3, lens[i] - lens[i] / 3);
        h = XXH3_128bits_digest(s);
        assert_true(XXH128_isEqual(h, want));
    }
    XXH3_freeState(s);
    free(data);
}

static unsigned calls; /* of the library's own */

XXH64_hash_t __wrap_XXH3_64bits_dispatch(const void *data, size_t len_bytes);

XXH64_hash_t __wrap_XXH3_64bits_dispatch(const void *data, size_t len_bytes)
{
    calls++;
    return XXH3_64bits(data, len_bytes);
}

static void test_blocks_are_summed_by_the_library(void **state)
{
    unsigned char *data = pattern(LEN);
    uint64_t sums[4];
    (void)state;
    calls = 0;
    fp_sum_blocks(data, LEN, sums);
    assert_int_equal(calls, FP_XXH3_PLAIN ? 0 : 4);
    assert_int_equal(fp_sum_verify(data, LEN, sums), -1);
    assert_int_equal(calls, FP_XXH3_PLAIN ? 0 : 8);
    free(data);
}

/* These numbers are on disks: a change of library or compiler must not change them. */
static void test_sums_never_change(void **state)
{
    unsigned char *data = pattern(LEN);
    uint64_t sums[4];
    (void)state;
    fp_sum_blocks(data, LEN, sums);
    assert_true(sums[0] == 0xc4717f32a25f9b2bu);
    assert_true(fp_sum_chunk(sums, 4, LEN) == 0x3deb95812aa4ef90u);
    free(data);
}

static void test_block_count_rounds_up(void **state)
{
    (void)state;
    assert_int_equal(fp_sum_nblocks(0), 0);
    assert_int_equal(fp_sum_nblocks(1), 1);
    assert_int_equal(fp_sum_nblocks(65536), 1);
    assert_int_equal(fp_sum_nblocks(65537), 2);
    assert_int_equal(fp_sum_nblocks(16u << 20), 256);
}

static void test_length_is_part_of_the_chunk_sum(void **state)
{
    const uint64_t sums[1] = {42};
    (void)state;
    assert_true(fp_sum_chunk(sums, 1, 100) != fp_sum_chunk(sums, 1, 101));
    assert_true(fp_sum_chunk(NULL, 0, 0) == XXH3_64bits_withSeed("", 0, 0));
}

static void test_a_flipped_bit_is_found_in_its_block(void **state)
{
    unsigned char *data = pattern(LEN);
    uint64_t sums[4];
    (void)state;
    fp_sum_blocks(data, LEN, sums);
    assert_int_equal(fp_sum_verify(data, LEN, sums), -1);
    for (size_t at = 0; at < LEN; at += 4099) {
        data[at] ^= (unsigned char)(1u << at % 8);
        assert_int_equal(fp_sum_verify(data, LEN, sums), (int64_t)(at / FP_BLOCK_SIZE_BYTES));
        data[at] ^= (unsigned char)(1u << at % 8);
    }
    data[LEN - 1] ^= 0x80;
    assert_int_equal(fp_sum_verify(data, LEN, sums), 3);
    free(data);
}

static void test_data_needs_no_alignment(void **state)
{
    unsigned char *data = pattern(LEN), *shifted = malloc(LEN + 1);
    uint64_t a[4], b[4];
    (void)state;
    assert_non_null(shifted);
    memcpy(shifted + 1, data, LEN);
    fp_sum_blocks(data, LEN, a);
    fp_sum_blocks(shifted + 1, LEN, b);
    assert_memory_equal(a, b, sizeof a);
    free(shifted);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_sums_are_xxh3_of_each_64k),
        cmocka_unit_test(test_chunk_sum_is_xxh3_of_little_endian_sums_seeded_by_length),
        cmocka_unit_test(test_the_fast_sums_are_xxh3),
        cmocka_unit_test(test_blocks_are_summed_by_the_library),
        cmocka_unit_test(test_sums_never_change),
        cmocka_unit_test(test_block_count_rounds_up),
        cmocka_unit_test(test_length_is_part_of_the_chunk_sum),
        cmocka_unit_test(test_a_flipped_bit_is_found_in_its_block),
        cmocka_unit_test(test_data_needs_no_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
