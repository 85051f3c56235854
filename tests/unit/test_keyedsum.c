/* Sums under the store's key: as the layout says, different for each key and each message, and told from those of another key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "fp/keyedsum.h"

static void hmac(const void *key, int key_len, const void *msg, size_t len, uint8_t out[32])
{
    assert_non_null(HMAC(EVP_sha256(), key, key_len, msg, len, out, NULL));
}

static void test_layout_is_that_of_auxwire(void **state)
{
    uint8_t secret[32], number[32], digest[32];
    struct fp_keyedsum k;
    struct fp_key *key;
    uint64_t sum, again;

    (void)state;
    assert_int_equal(fp_key_generate(&key), 0);
    assert_int_equal(fp_keyedsum_init(&k, key), 0);
    hmac(fp_key_bytes(key), 32, "fpstore sums of hidden data", 27, secret);
    hmac(secret, 32, "number", 6, number);
    hmac(secret, 32, "what", 4, digest);
    assert_int_equal(fp_keyedsum(&k, "what", 4, &sum), 0);
    for (int i = 0; i < 6; i++)
        assert_int_equal((uint8_t)(sum >> 8 * i), digest[i]);
    assert_int_equal(sum >> 48, number[0] | number[1] << 8);
    assert_int_equal(fp_keyedsum(&k, "what", 4, &again), 0);
    assert_true(sum == again && fp_keyedsum_is_ours(&k, sum) && !fp_keyedsum_is_ours(&k, sum ^ UINT64_C(1) << 63));
    assert_int_equal(fp_keyedsum(&k, "What", 4, &again), 0);
    assert_true(sum != again);
    fp_key_free(key);
}

static void test_another_key_makes_other_sums(void **state)
{
    uint64_t sum[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fp_keyedsum k;
        struct fp_key *key;

        assert_int_equal(fp_key_generate(&key), 0);
        assert_int_equal(fp_keyedsum_init(&k, key), 0);
        assert_memory_not_equal(k.secret, fp_key_bytes(key), 32);
        assert_int_equal(fp_keyedsum(&k, "what", 4, &sum[i]), 0);
        fp_key_free(key);
    }
    assert_true((sum[0] & 0xffffffffffff) != (sum[1] & 0xffffffffffff));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_is_that_of_auxwire),
        cmocka_unit_test(test_another_key_makes_other_sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
