/* Arrays that get longer by one item at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "fp/grown.h"

#define ITEMS 1000u

/* Sanitizers end a program that asks for so much, unless told. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void test_items_stay_when_the_array_grows(void **state)
{
    uint64_t *list = NULL;
    size_t cap = 0;

    (void)state;
    for (size_t n = 0; n < ITEMS; n++) {
        list = fp_grown(list, n, &cap, sizeof *list);
        assert_non_null(list);
        assert_true(cap > n);
        list[n] = n * n;
    }
    for (size_t i = 0; i < ITEMS; i++)
        assert_int_equal(list[i], i * i);
    free(list);
}

static void test_it_grows_only_when_it_is_full_and_then_to_twice_of_it(void **state)
{
    size_t cap = 0, was;
    char *list = fp_grown(NULL, 0, &cap, 1);

    (void)state;
    assert_non_null(list);
    was = cap;
    assert_ptr_equal(fp_grown(list, was - 1, &cap, 1), list);
    assert_int_equal(cap, was);
    list = fp_grown(list, was, &cap, 1);
    assert_non_null(list);
    assert_int_equal(cap, 2 * was);
    free(list);
}

/* 16 items of it are more bytes than a size_t counts: their number would wrap around to 0. */
static void test_what_is_too_long_leaves_the_array_as_it_was(void **state)
{
    const size_t huge = SIZE_MAX / 16 + 1;
    uint64_t one = 7;
    size_t cap = 0;

    (void)state;
    assert_null(fp_grown(NULL, 0, &cap, huge));
    assert_int_equal(cap, 0);
    cap = 8; /* twice as many, too */
    assert_null(fp_grown(&one, 8, &cap, huge));
    assert_int_equal(cap, 8);
    assert_int_equal(one, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items_stay_when_the_array_grows),
        cmocka_unit_test(test_it_grows_only_when_it_is_full_and_then_to_twice_of_it),
        cmocka_unit_test(test_what_is_too_long_leaves_the_array_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
