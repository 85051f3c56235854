/*
 * Envelopes of coded chunks: what is encoded comes back, the layout of fp/auxwire.h holds at fixed places, and nothing else is taken for one,
 * whatever the bytes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#include "fp/envelope.h"
#include "fp/record.h"
#include "tests/unit/cl_rand.h"

static struct fp_envelope sample(uint32_t nstages)
{
    static const char *const names[8] = {"compress", "encrypt", "rot13", "a", "x-y_0", "abcdefghijklmnopqrstuvw", "b", "c"};
    struct fp_envelope e = {.data_bytes = 1 << 20, .data_sum = 0x1122334455667788ull, .nstages = nstages};
    uint32_t len = e.data_bytes;

    for (uint32_t i = 0; i < nstages; i++) {
        memcpy(e.stage[i].name, names[i], strlen(names[i]));
        e.stage[i].in_bytes = len;
        len = i % 2 ? len + 28 : len / 2;
        e.stage[i].out_bytes = len;
    }
    e.coded_bytes = len;
    return e;
}

static uint32_t whole(const struct fp_envelope *e)
{
    return FP_ENVELOPE_BYTES(e->nstages) + e->coded_bytes;
}

static void test_envelope_comes_back(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= FP_AUXW_STAGES_MAX; n++) {
        struct fp_envelope e = sample(n), back;

        e.keyed = n % 2;
        uint8_t buf[FP_ENVELOPE_MAX_BYTES];

        assert_int_equal(fp_envelope_check(&e), 0);
        fp_envelope_encode(&e, buf);
        assert_int_equal(fp_envelope_decode(buf, sizeof(buf), whole(&e), &back), 0);
        assert_memory_equal(&e, &back, sizeof(e));
        assert_int_equal(fp_envelope_decode(buf, FP_ENVELOPE_BYTES(n), whole(&e), &back), 0);
        assert_int_equal(fp_envelope_decode(buf, sizeof(buf), whole(&e) - 1, &back), -EILSEQ);
        assert_int_equal(fp_envelope_decode(buf, sizeof(buf), whole(&e) + 1, &back), -EILSEQ);
    }
}

static void test_envelope_layout_is_fixed(void **state)
{
    struct fp_envelope e = sample(1);
    uint8_t buf[FP_ENVELOPE_MAX_BYTES], zero_sum[64];
    uint64_t sum;

    (void)state;
    fp_envelope_encode(&e, buf);
    assert_memory_equal(buf, "FPE1\x01\x00\x01\x00", 8);
    assert_memory_equal(buf + 8, "\x00\x00\x10\x00\x00\x00\x08\x00", 8);
    assert_memory_equal(buf + 16, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
    assert_memory_equal(buf + 32, "compress\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
    assert_memory_equal(buf + 56, "\x00\x00\x10\x00\x00\x00\x08\x00", 8);
    memcpy(zero_sum, buf, 64);
    memset(zero_sum + 24, 0, 8);
    sum = XXH3_64bits(zero_sum, 64);
    for (int i = 0; i < 8; i++)
        assert_int_equal(buf[24 + i], (uint8_t)(sum >> 8 * i));
}

static void test_envelope_any_flipped_bit_is_seen(void **state)
{
    struct fp_envelope e = sample(3), back;
    uint8_t buf[FP_ENVELOPE_MAX_BYTES];

    (void)state;
    fp_envelope_encode(&e, buf);
    for (unsigned bit = 0; bit < 8 * FP_ENVELOPE_BYTES(3); bit++) {
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(fp_envelope_decode(buf, sizeof(buf), whole(&e), &back), bit < 32 ? -ENODATA : -EILSEQ);
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(fp_envelope_decode(buf, sizeof(buf), whole(&e), &back), 0);
}

static void test_envelope_cut_short_is_refused(void **state)
{
    struct fp_envelope e = sample(2), back;
    uint8_t buf[FP_ENVELOPE_MAX_BYTES];

    (void)state;
    fp_envelope_encode(&e, buf);
    for (uint32_t have = 0; have < FP_ENVELOPE_BYTES(2); have++) {
        uint8_t *exact = malloc(have ? have : 1); /* so that a sanitizer sees a byte too far */

        memcpy(exact, buf, have);
        assert_int_equal(fp_envelope_decode(exact, have, whole(&e), &back), have < 4 ? -ENODATA : -EILSEQ);
        assert_int_equal(fp_envelope_decode(exact, have, have, &back), have < 4 ? -ENODATA : -EILSEQ);
        free(exact);
    }
}

/* Sums right, content wrong: the case of a program that wrote nonsense. */
static void test_envelope_out_of_bounds_is_refused(void **state)
{
    struct fp_envelope good = sample(2), e, back;
    uint8_t buf[FP_ENVELOPE_MAX_BYTES];

    (void)state;
#define REFUSED()                                                                                            \
    do {                                                                                                     \
        assert_int_equal(fp_envelope_check(&e), -EILSEQ);                                                    \
        fp_envelope_encode(&e, buf);                                                                         \
        assert_int_equal(fp_envelope_decode(buf, sizeof(buf), whole(&e), &back), -EILSEQ);                   \
    } while (0)
    e = good, e.data_bytes = e.stage[0].in_bytes = 0;
    REFUSED();
    e = good, e.data_bytes = e.stage[0].in_bytes = FP_CHUNK_MAX_BYTES + 1;
    REFUSED();
    e = good, e.data_bytes++;
    REFUSED();
    e = good, e.stage[1].in_bytes++;
    REFUSED();
    e = good, e.coded_bytes++;
    REFUSED();
    e = good, e.stage[1].out_bytes = e.coded_bytes = 0;
    REFUSED();
    e = good, e.stage[1].out_bytes = e.coded_bytes = FP_STORED_MAX_BYTES;
    REFUSED();
    e = good, e.stage[0].name[0] = '/';
    REFUSED();
    e = good, e.stage[0].name[0] = 0;
    REFUSED();
    e = good, e.stage[0].name[3] = '.';
    REFUSED();
    e = good, e.stage[0].name[20] = 'x';
    REFUSED();
    e = good, memset(e.stage[0].name, 'a', sizeof(e.stage[0].name));
    REFUSED();
    e = good, e.nstages = 0;
    assert_int_equal(fp_envelope_check(&e), -EILSEQ);
    e = good, e.nstages = FP_AUXW_STAGES_MAX + 1;
    assert_int_equal(fp_envelope_check(&e), -EILSEQ);
}

static void test_envelope_random_bytes_are_none(void **state)
{
    struct fp_envelope good = sample(4), e;
    struct rnd r;
    uint8_t buf[FP_ENVELOPE_MAX_BYTES];

    (void)state;
    rnd_init(&r, rnd_seed(), 0);
    for (int round = 0; round < 200000; round++) {
        uint32_t have = rnd_below(&r, sizeof(buf) + 1);

        fp_envelope_encode(&good, buf);
        for (unsigned k = 1 + rnd_below(&r, 8); k > 0; k--)
            buf[4 + rnd_below(&r, FP_ENVELOPE_BYTES(4) - 4)] ^= (uint8_t)(1 + rnd_below(&r, 255));
        if (fp_envelope_decode(buf, have, whole(&good), &e) == 0) /* the changes undid each other */
            assert_memory_equal(&e, &good, sizeof(e));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_envelope_comes_back),
        cmocka_unit_test(test_envelope_layout_is_fixed),
        cmocka_unit_test(test_envelope_any_flipped_bit_is_seen),
        cmocka_unit_test(test_envelope_cut_short_is_refused),
        cmocka_unit_test(test_envelope_out_of_bounds_is_refused),
        cmocka_unit_test(test_envelope_random_bytes_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
