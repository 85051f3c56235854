/*
 * State of the device from results of operations: worse wins, only a probe heals, and healing needs room.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "benefactor/health.h"

#define GIB ((uint64_t)1 << 30)

static void test_health_starts_well(void **state)
{
    struct bnf_health h;

    (void)state;
    bnf_health_init(&h);
    assert_true(bnf_health_takes_data(&h));
    assert_string_equal(h.text, "");
    assert_false(bnf_health_probe_due(&h, 1000000));
}

static void test_health_worse_state_wins(void **state)
{
    struct bnf_health h;

    (void)state;
    bnf_health_init(&h);
    assert_true(bnf_health_failed(&h, "allocate", -ENOSPC, 0));
    assert_int_equal(h.state, BNF_STATE_FULL);
    assert_true(bnf_health_failed(&h, "write", -EROFS, 0));
    assert_int_equal(h.state, BNF_STATE_READONLY);
    assert_true(bnf_health_failed(&h, "write", -EIO, 0));
    assert_int_equal(h.state, BNF_STATE_FAILING);
    assert_non_null(strstr(h.text, "write"));
    assert_false(bnf_health_failed(&h, "write", -ENOSPC, 0));
    assert_int_equal(h.state, BNF_STATE_FAILING);
    assert_false(bnf_health_takes_data(&h));
}

static void test_health_probe_heals(void **state)
{
    struct bnf_health h;

    (void)state;
    bnf_health_init(&h);
    bnf_health_failed(&h, "write", -EIO, 1000);
    assert_false(bnf_health_probe_due(&h, 1500));
    assert_true(bnf_health_probe_due(&h, 3000));
    assert_false(bnf_health_probe_due(&h, 3001));
    assert_false(bnf_health_probed(&h, -EIO, GIB, 3010));
    assert_true(bnf_health_probe_due(&h, 5010));
    assert_true(bnf_health_probed(&h, 0, GIB, 5020));
    assert_true(bnf_health_takes_data(&h));
    assert_false(bnf_health_probed(&h, 0, GIB, 5030));
}

static void test_health_full_needs_room_again(void **state)
{
    struct bnf_health h;

    (void)state;
    bnf_health_init(&h);
    bnf_health_failed(&h, "allocate", -ENOSPC, 0);
    assert_false(bnf_health_probed(&h, 0, 1000, 2000));
    assert_false(bnf_health_takes_data(&h));
    assert_true(bnf_health_probed(&h, 0, GIB, 4000));
    assert_true(bnf_health_takes_data(&h));
}

static void test_health_own_lack_of_memory_is_not_the_device(void **state)
{
    struct bnf_health h;

    (void)state;
    bnf_health_init(&h);
    assert_false(bnf_health_failed(&h, "write", -ENOMEM, 0));
    assert_true(bnf_health_takes_data(&h));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_health_starts_well),
        cmocka_unit_test(test_health_worse_state_wins),
        cmocka_unit_test(test_health_probe_heals),
        cmocka_unit_test(test_health_full_needs_room_again),
        cmocka_unit_test(test_health_own_lack_of_memory_is_not_the_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
