/* UUIDs: random, canonical text, strict reading. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "fp/uuid.h"

static void test_generated_uuids_are_version_4_and_differ(void **state)
{
    struct fp_uuid a, b;
    (void)state;
    fp_uuid_generate(&a);
    fp_uuid_generate(&b);
    assert_int_equal(a.b[6] >> 4, 4);
    assert_int_equal(a.b[8] >> 6, 2);
    assert_false(fp_uuid_equal(&a, &b));
    assert_false(fp_uuid_is_nil(&a));
}

static void test_text_reads_back_in_any_case(void **state)
{
    struct fp_uuid u, v;
    char buf[FP_UUID_BUF];
    (void)state;
    assert_int_equal(fp_uuid_parse("01234567-89AB-cdef-FEDC-ba9876543210", &u), 0);
    assert_string_equal(fp_uuid_format(buf, &u), "01234567-89ab-cdef-fedc-ba9876543210");
    assert_int_equal(u.b[0], 0x01);
    assert_int_equal(u.b[15], 0x10);
    for (int i = 0; i < 100; i++) {
        fp_uuid_generate(&u);
        assert_int_equal(fp_uuid_parse(fp_uuid_format(buf, &u), &v), 0);
        assert_true(fp_uuid_equal(&u, &v));
    }
}

static void test_anything_else_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "0123456789abcdeffedcba9876543210",
                                      "01234567-89ab-cdef-fedc-ba987654321",
                                      "01234567-89ab-cdef-fedc-ba98765432100",
                                      "01234567-89ab-cdef-fedc-ba987654321g",
                                      "0123456-789ab-cdef-fedc-ba9876543210",
                                      "{1234567-89ab-cdef-fedc-ba987654321}",
                                      "01234567-89ab-cdef-fedc-ba98765432 0",
                                      "------------------------------------"};
    struct fp_uuid u, before;
    (void)state;
    memset(&u, 0x5a, sizeof u);
    before = u;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(fp_uuid_parse(bad[i], &u), -EINVAL);
    assert_true(fp_uuid_equal(&u, &before));
}

static void test_nil_is_all_zero(void **state)
{
    struct fp_uuid u;
    (void)state;
    assert_int_equal(fp_uuid_parse("00000000-0000-0000-0000-000000000000", &u), 0);
    assert_true(fp_uuid_is_nil(&u));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generated_uuids_are_version_4_and_differ),
        cmocka_unit_test(test_text_reads_back_in_any_case),
        cmocka_unit_test(test_anything_else_is_refused),
        cmocka_unit_test(test_nil_is_all_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
