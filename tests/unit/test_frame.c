/* Frame headers and addresses: what goes in comes out, and nothing that is damaged does (include/fp/frame.h,
 * addr.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fp/addr.h"
#include "fp/err.h"
#include "fp/frame.h"

static const struct fp_frame sample = {
    .type = 0x1234,
    .flags = FP_FRAME_REPLY,
    .status = -28,
    .id = 0x1122334455667788,
    .msg_len_bytes = 5,
    .payload_len_bytes = 0x01020304 >> 1,
};

static void test_frame_has_the_documented_layout(void **state)
{
    static const uint8_t want[32] = {'F',  'P',  'F',  '1',  1,    0,    0x34, 0x12, 1,    0,    0,
                                     0,    0xe4, 0xff, 0xff, 0xff, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
                                     0x22, 0x11, 5,    0,    0,    0,    0x82, 0x01, 0x81, 0x00};
    uint8_t h[FP_FRAME_HEADER_BYTES];
    (void)state;
    fp_frame_encode(&sample, "hello", h);
    assert_memory_equal(h, want, sizeof want);
    assert_int_equal(fp_frame_version(h), 1);
}

static void test_frame_comes_back_as_it_was(void **state)
{
    uint8_t h[FP_FRAME_HEADER_BYTES];
    struct fp_frame f;
    (void)state;
    fp_frame_encode(&sample, "hello", h);
    assert_int_equal(fp_frame_decode(h, &f), 0);
    assert_int_equal(f.type, sample.type);
    assert_int_equal(f.flags, sample.flags);
    assert_int_equal(f.status, sample.status);
    assert_true(f.id == sample.id);
    assert_int_equal(f.msg_len_bytes, sample.msg_len_bytes);
    assert_int_equal(f.payload_len_bytes, sample.payload_len_bytes);
    assert_int_equal(fp_frame_verify(h, "hello", 5), 0);
}

static void test_frame_sum_is_the_same_for_short_and_long_messages(void **state)
{
    static uint8_t msg[1000];
    uint8_t h[FP_FRAME_HEADER_BYTES];
    (void)state;
    for (uint32_t len = 0; len <= sizeof msg; len += 25) {
        struct fp_frame f = {.type = 1, .id = len, .msg_len_bytes = len};
        memset(msg, (int)len, sizeof msg);
        fp_frame_encode(&f, msg, h);
        assert_int_equal(fp_frame_verify(h, msg, len), 0);
        if (len > 0) {
            msg[len / 2] ^= 1;
            assert_int_equal(fp_frame_verify(h, msg, len), -EILSEQ);
        }
    }
}

static void test_frame_every_flipped_bit_is_noticed(void **state)
{
    uint8_t h[FP_FRAME_HEADER_BYTES];
    struct fp_frame f;
    (void)state;
    for (unsigned bit = 0; bit < 8 * FP_FRAME_HEADER_BYTES; bit++) {
        fp_frame_encode(&sample, "hello", h);
        h[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int rc = fp_frame_decode(h, &f);
        assert_true(rc < 0 || f.msg_len_bytes != 5 || fp_frame_verify(h, "hello", 5) == -EILSEQ);
    }
}

static void check_decode(size_t offset, uint8_t value, int want)
{
    uint8_t h[FP_FRAME_HEADER_BYTES];
    struct fp_frame f;
    fp_frame_encode(&sample, "hello", h);
    h[offset] = value;
    assert_int_equal(fp_frame_decode(h, &f), want);
}

static void test_frame_errors_are_told_apart(void **state)
{
    (void)state;
    check_decode(0, 'G', -EBADMSG);
    check_decode(4, 2, FP_EPROTO_VERSION);
    check_decode(27, 1, -EMSGSIZE);  /* message of 16 MiB */
    check_decode(31, 2, -EMSGSIZE);  /* payload of 32 MiB */
    check_decode(8, 3, -EPROTO);     /* a one-way reply */
    check_decode(9, 1, -EPROTO);     /* unknown flag */
    check_decode(10, 1, -EPROTO);    /* reserved */
    check_decode(15, 0x7f, -EPROTO); /* positive status */
    check_decode(8, 0, -EPROTO);     /* a request with a status */
}

static void test_frame_limits_are_inclusive(void **state)
{
    static uint8_t msg[FP_FRAME_MSG_MAX_BYTES];
    uint8_t h[FP_FRAME_HEADER_BYTES];
    struct fp_frame f = {.msg_len_bytes = FP_FRAME_MSG_MAX_BYTES,
                         .payload_len_bytes = FP_FRAME_PAYLOAD_MAX_BYTES};
    (void)state;
    fp_frame_encode(&f, msg, h);
    assert_int_equal(fp_frame_decode(h, &f), 0);
    assert_int_equal(fp_frame_verify(h, msg, sizeof msg), 0);
    h[24]++;
    assert_int_equal(fp_frame_decode(h, &f), -EMSGSIZE);
}

static void check_addr(const char *text, const char *want)
{
    char host[FP_ADDR_HOST];
    char buf[FP_ADDR_BUF];
    union fp_sockaddr sa;
    uint16_t port;
    assert_int_equal(fp_addr_split(text, host, &port), 0);
    assert_int_equal(fp_addr_numeric(host, port, &sa), 0);
    assert_string_equal(fp_addr_format(&sa.sa, buf), want);
    assert_int_equal(fp_addr_port(&sa), port);
}

static void test_addr_forms(void **state)
{
    char host[FP_ADDR_HOST];
    union fp_sockaddr sa;
    uint16_t port;
    (void)state;
    check_addr("10.1.2.3:4567", "10.1.2.3:4567");
    check_addr(":80", "0.0.0.0:80");
    check_addr("[::1]:0", "[::1]:0");
    check_addr("[::ffff:10.0.0.1]:9", "10.0.0.1:9");
    assert_int_equal(fp_addr_split("node17.cluster:7", host, &port), 0);
    assert_string_equal(host, "node17.cluster");
    assert_int_equal(fp_addr_numeric(host, port, &sa), -ENOENT);
    static const char *const bad[] = {"",        "host",   "host:",   "host:x", "host:65536",
                                      "host:-1", "::1:80", "[::1]80", "[]80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(fp_addr_split(bad[i], host, &port), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_has_the_documented_layout),
        cmocka_unit_test(test_frame_comes_back_as_it_was),
        cmocka_unit_test(test_frame_sum_is_the_same_for_short_and_long_messages),
        cmocka_unit_test(test_frame_every_flipped_bit_is_noticed),
        cmocka_unit_test(test_frame_errors_are_told_apart),
        cmocka_unit_test(test_frame_limits_are_inclusive),
        cmocka_unit_test(test_addr_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
