/* When draining holds back for mounts: tables of what they do and what follows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "benefactor/pace.h"

#define MIB  ((uint64_t)1 << 20)
#define SIZE (1000 * MIB)

/* Each 100 ms this many bytes, n times; whether it held at the last. */
static bool go_on(struct bnf_pace *p, uint64_t *now, uint64_t *total, uint64_t bytes, unsigned n, uint64_t free)
{
    bool holds = false;

    while (n-- > 0) {
        *now += 100;
        *total += bytes;
        holds = bnf_pace_holds(p, *now, *total, free, SIZE);
    }
    return holds;
}

static void test_idle_mounts_hold_nothing(void **state)
{
    struct bnf_pace p = {0};
    uint64_t now = 5000, total = 77 * MIB; /* of before it began to look */

    (void)state;
    assert_false(go_on(&p, &now, &total, 0, 20, SIZE));
    assert_false(go_on(&p, &now, &total, MIB / 2, 50, SIZE)); /* 5 MiB/s: 2.5 in half a second */
}

static void test_a_burst_holds_until_a_second_after_it(void **state)
{
    struct bnf_pace p = {0};
    uint64_t now = 5000, total = 0;

    (void)state;
    assert_false(go_on(&p, &now, &total, 0, 3, SIZE));
    assert_true(go_on(&p, &now, &total, 5 * MIB, 1, SIZE)); /* the first that is seen */
    assert_true(go_on(&p, &now, &total, 0, 9, SIZE));
    assert_true(go_on(&p, &now, &total, 0, 4, SIZE)); /* the half second has it that long */
    assert_false(go_on(&p, &now, &total, 0, 1, SIZE));
    assert_true(go_on(&p, &now, &total, 2 * MIB, 100, SIZE));
    assert_false(go_on(&p, &now, &total, 0, 16, SIZE));
}

static void test_long_pauses_between_looks(void **state)
{
    struct bnf_pace p = {0};

    (void)state;
    assert_false(bnf_pace_holds(&p, 1000, 0, SIZE, SIZE));
    assert_false(bnf_pace_holds(&p, 60000, 500 * MIB, SIZE, SIZE)); /* somewhen in a minute */
    assert_true(bnf_pace_holds(&p, 60100, 505 * MIB, SIZE, SIZE));
}

static void test_a_store_that_fills_is_emptied_all_the_same(void **state)
{
    struct bnf_pace p = {0};
    uint64_t now = 5000, total = 0;

    (void)state;
    assert_true(go_on(&p, &now, &total, 5 * MIB, 5, SIZE / 4));
    assert_false(go_on(&p, &now, &total, 5 * MIB, 5, SIZE / 4 - 1));
    assert_true(go_on(&p, &now, &total, 5 * MIB, 1, SIZE / 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_mounts_hold_nothing),
        cmocka_unit_test(test_a_burst_holds_until_a_second_after_it),
        cmocka_unit_test(test_long_pauses_between_looks),
        cmocka_unit_test(test_a_store_that_fills_is_emptied_all_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
