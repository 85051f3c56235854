/* Work that stands still: who waits for it is told so in time, and of what is only slow never. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fp/stall.h"

#define LIMIT_MS 300000u

static void test_what_stands_still_is_over_after_the_limit(void **state)
{
    struct fp_stall s = {0};
    uint64_t now = 1000;

    (void)state;
    for (; now < 1000 + LIMIT_MS; now += 500)
        assert_false(fp_stall_over(&s, now, 7, true, LIMIT_MS));
    assert_true(fp_stall_over(&s, now, 7, true, LIMIT_MS));
    assert_false(fp_stall_over(&s, now, 7, true, 0)); /* nobody has set one */
}

static void test_progress_counts_anew(void **state)
{
    struct fp_stall s = {0};
    uint64_t now = 1000;

    (void)state;
    for (uint64_t done = 0; done < 100; done++, now += LIMIT_MS - 1)
        assert_false(fp_stall_over(&s, now, done, true, LIMIT_MS));
    assert_false(fp_stall_over(&s, now, 99, true, LIMIT_MS));
    assert_true(fp_stall_over(&s, now + 1, 99, true, LIMIT_MS));
}

static void test_what_is_slow_is_not_dead(void **state)
{
    struct fp_stall s = {0};

    (void)state;
    for (uint64_t now = 1000; now < 1000 + 20 * LIMIT_MS; now += 10000)
        assert_false(fp_stall_over(&s, now, 7, false, LIMIT_MS));
}

/* Tried again every few seconds, it looks well until it is known that it is not. */
static void test_attempts_that_fail_are_no_progress(void **state)
{
    struct fp_stall s = {0};
    unsigned tries = 0;
    bool over = false;

    (void)state;
    assert_false(fp_stall_over(&s, 1000, 7, false, LIMIT_MS));
    for (uint64_t now = 1000; !over; now += 10000) {
        assert_false(fp_stall_over(&s, now, tries % 2 ? 3 : 7, false, LIMIT_MS)); /* what was done is taken back */
        assert_false(fp_stall_over(&s, now + 1, 3, true, LIMIT_MS));
        over = fp_stall_over(&s, now + 8001, 3, true, LIMIT_MS);
        assert_true(++tries < 50);
    }
    assert_int_equal(tries, 38); /* 8 s each */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_stands_still_is_over_after_the_limit),
        cmocka_unit_test(test_progress_counts_anew),
        cmocka_unit_test(test_what_is_slow_is_not_dead),
        cmocka_unit_test(test_attempts_that_fail_are_no_progress),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
