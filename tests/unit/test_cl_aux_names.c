/*
 * Names of the versions of a file: which numbers they differ in, so that a step is told from a rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/aux/earlier.h"

static bool same(const char *x, const char *y, struct aux_digits *d)
{
    return cl_aux_same_but_for_digits(x, strlen(x), y, strlen(y), d);
}

static void test_names_differ_in_numbers_alone(void **state)
{
    struct aux_digits d;

    (void)state;
    assert_true(same("ckpt_0007", "ckpt_0006", &d));
    assert_true(same("ckpt_9.h5", "ckpt_10.h5", &d));
    assert_true(same("ckpt_8.h5.tmp", "ckpt_7.h5", &d));
    assert_true(same("state", "state.tmp", &d));
    assert_int_equal(d.differ, 0);
    assert_false(same("ckpt_7", "ckpt_", &d));
    assert_false(same("ckpt_7", "kcpt_7", &d));
    assert_false(same("ckpt_7.h5", "ckpt_7.nc", &d));
    assert_false(same("a1b", "a1", &d));
}

static void test_the_number_that_differs_is_told(void **state)
{
    struct aux_digits d;

    (void)state;
    assert_true(same("n3-step0010.rank4", "n3-step9.rank4", &d));
    assert_int_equal(d.differ, 1);
    assert_int_equal(d.group, 1);
    assert_false(d.later);
    assert_true(same("step9.rank4", "step9.rank11", &d));
    assert_int_equal(d.differ, 1);
    assert_int_equal(d.group, 1);
    assert_true(d.later);
    assert_true(same("step9.rank4", "step8.rank5", &d));
    assert_int_equal(d.differ, 2);
    assert_true(same("step09.rank4", "step9.rank4", &d));
    assert_int_equal(d.differ, 0);
    assert_true(same("99999999999999999999999999999998", "99999999999999999999999999999999", &d));
    assert_true(d.later);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_differ_in_numbers_alone),
        cmocka_unit_test(test_the_number_that_differs_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
