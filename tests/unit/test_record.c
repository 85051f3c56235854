/*
 * Record and segment headers: what is encoded comes back, what is damaged does not, and the byte layout of
 * fp/record.h holds at fixed places (another version of the program must find the fields there).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fp/checksum.h"
#include "fp/record.h"

static struct fp_record_header sample(uint32_t len_bytes)
{
    struct fp_record_header h = {0};
    uint8_t *data = malloc(len_bytes);

    assert_non_null(data);
    for (uint32_t i = 0; i < len_bytes; i++)
        data[i] = (uint8_t)(i * 131 + (i >> 9));
    h.chunk = 0x0000000700000009ull;
    h.segment = 42;
    h.offset = 12288;
    h.salt = 0xfeedfacecafebeefull;
    h.len_bytes = len_bytes;
    h.stored_len_bytes = len_bytes;
    fp_record_header_sum(&h, data);
    free(data);
    return h;
}

static void test_record_size_counts_header_and_padding(void **state)
{
    (void)state;
    assert_int_equal(fp_record_size_bytes(1), 8192);
    assert_int_equal(fp_record_size_bytes(4096), 8192);
    assert_int_equal(fp_record_size_bytes(4097), 12288);
    assert_int_equal(fp_record_size_bytes(1 << 20), (1 << 20) + 4096);
    assert_int_equal(fp_record_size_bytes(FP_STORED_MAX_BYTES), FP_STORED_MAX_BYTES + 4096);
}

static void test_record_header_comes_back(void **state)
{
    static const uint32_t lens[] = {1, 4095, 65536, 65537, 1 << 20, 16 << 20, FP_STORED_MAX_BYTES};

    (void)state;
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        struct fp_record_header h = sample(lens[i]), back = {0};
        uint8_t buf[FP_RECORD_HEADER_BYTES];

        for (int k = 0; k < 32; k++)
            h.fingerprint[k] = (uint8_t)k;
        fp_record_header_encode(&h, buf);
        assert_int_equal(fp_record_header_decode(buf, &back), 0);
        assert_memory_equal(&h, &back, sizeof(h));
        assert_true(fp_record_header_is_at(&back, 42, h.salt, 12288));
        assert_false(fp_record_header_is_at(&back, 43, h.salt, 12288));
        assert_false(fp_record_header_is_at(&back, 42, h.salt + 1, 12288));
        assert_false(fp_record_header_is_at(&back, 42, h.salt, 16384));
    }
}

static void test_record_layout_is_fixed(void **state)
{
    struct fp_record_header h = sample(65537);
    uint8_t buf[FP_RECORD_HEADER_BYTES];

    (void)state;
    fp_record_header_encode(&h, buf);
    assert_memory_equal(buf, "FPR1\x01\x00\x00\x00", 8);
    assert_memory_equal(buf + 8, "\x09\x00\x00\x00\x07\x00\x00\x00", 8);
    assert_memory_equal(buf + 16, "\x2a\x00\x00\x00\x00\x00\x00\x00", 8);
    assert_memory_equal(buf + 24, "\x00\x30\x00\x00\x00\x00\x00\x00", 8);
    assert_memory_equal(buf + 32, "\x01\x00\x01\x00\x01\x00\x01\x00", 8);
    assert_memory_equal(buf + 40, "\x02\x00\x00\x00\x00\x00\x00\x00", 8);
    assert_memory_equal(buf + 88, "\xef\xbe\xfe\xca\xce\xfa\xed\xfe", 8);
}

static void test_record_any_flipped_bit_is_seen(void **state)
{
    struct fp_record_header h = sample(200000), back;
    uint8_t buf[FP_RECORD_HEADER_BYTES];

    (void)state;
    fp_record_header_encode(&h, buf);
    for (unsigned bit = 0; bit < 8 * FP_RECORD_HEADER_BYTES; bit++) {
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(fp_record_header_decode(buf, &back), bit < 32 ? -ENODATA : -EILSEQ);
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(fp_record_header_decode(buf, &back), 0);
}

static void test_record_lengths_out_of_bounds_are_refused(void **state)
{
    struct fp_record_header good = sample(100000), h, back;
    uint8_t buf[FP_RECORD_HEADER_BYTES];

    (void)state;
    h = good, h.len_bytes = h.stored_len_bytes = 0, h.blocks = 0;
    fp_record_header_encode(&h, buf);
    assert_int_equal(fp_record_header_decode(buf, &back), -EILSEQ);
    h = good, h.len_bytes = h.stored_len_bytes = FP_STORED_MAX_BYTES + 1;
    fp_record_header_encode(&h, buf);
    assert_int_equal(fp_record_header_decode(buf, &back), -EILSEQ);
    h = good, h.stored_len_bytes--;
    fp_record_header_encode(&h, buf);
    assert_int_equal(fp_record_header_decode(buf, &back), -EILSEQ);
    h = good, h.blocks++;
    fp_record_header_encode(&h, buf);
    assert_int_equal(fp_record_header_decode(buf, &back), -EILSEQ);
    h = good, h.offset += 512;
    fp_record_header_encode(&h, buf);
    assert_int_equal(fp_record_header_decode(buf, &back), -EILSEQ);
}

static void test_record_zeros_are_no_record(void **state)
{
    uint8_t buf[FP_RECORD_HEADER_BYTES] = {0};
    struct fp_record_header h;
    struct fp_segment_header s;

    (void)state;
    assert_int_equal(fp_record_header_decode(buf, &h), -ENODATA);
    assert_int_equal(fp_segment_header_decode(buf, &s), -ENODATA);
}

static void test_segment_header_comes_back(void **state)
{
    struct fp_segment_header h = {.id = 7, .salt = 9, .limit_bytes = 1 << 30}, back = {0};
    uint8_t buf[FP_SEGMENT_HEADER_BYTES];

    (void)state;
    memset(h.store_uuid, 0xa5, 16);
    memset(h.bnf_uuid, 0x5a, 16);
    fp_segment_header_encode(&h, buf);
    assert_memory_equal(buf, "FPS1\x01\x00\x00\x00", 8);
    assert_int_equal(fp_segment_header_decode(buf, &back), 0);
    assert_memory_equal(&h, &back, sizeof(h));
    buf[1000] ^= 1;
    assert_int_equal(fp_segment_header_decode(buf, &back), -EILSEQ);
}

static void test_record_sum_depends_on_every_block(void **state)
{
    uint8_t *data = calloc(1, 300000);
    struct fp_record_header a = {.len_bytes = 300000}, b = {.len_bytes = 300000};

    (void)state;
    assert_non_null(data);
    fp_record_header_sum(&a, data);
    assert_int_equal(a.blocks, 5);
    data[299999] = 1;
    fp_record_header_sum(&b, data);
    assert_int_equal(a.block_sums[3], b.block_sums[3]);
    assert_true(a.block_sums[4] != b.block_sums[4]);
    assert_true(a.sum != b.sum);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record_size_counts_header_and_padding),
        cmocka_unit_test(test_record_header_comes_back),
        cmocka_unit_test(test_record_layout_is_fixed),
        cmocka_unit_test(test_record_any_flipped_bit_is_seen),
        cmocka_unit_test(test_record_lengths_out_of_bounds_are_refused),
        cmocka_unit_test(test_record_zeros_are_no_record),
        cmocka_unit_test(test_segment_header_comes_back),
        cmocka_unit_test(test_record_sum_depends_on_every_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
