/*
 * Placement: own node first, round robin over a stripe, equal shares, and only what must move moves when a benefactor leaves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/data/place.h"
#include "tests/unit/cl_rand.h"

#define N 12u

static struct cl_place_bnf b[N];
static uint32_t order[N];

static void fill(void)
{
    for (uint32_t i = 0; i < N; i++)
        b[i] = (struct cl_place_bnf){.id = i + 1, .usable = true};
}

static void test_place_gives_each_usable_one_once(void **state)
{
    struct rnd r;

    (void)state;
    rnd_init(&r, rnd_seed(), 4);
    for (int round = 0; round < 5000; round++) {
        uint32_t seen = 0, want = 0, n = 1 + rnd_below(&r, N), count;

        fill();
        for (uint32_t i = 0; i < n; i++) {
            b[i].usable = rnd_below(&r, 3) > 0;
            b[i].local = rnd_below(&r, 5) == 0;
            want |= (uint32_t)b[i].usable << i;
        }
        count = cl_place(b, n, rnd_next(&r), rnd_next(&r), rnd_below(&r, N + 3), order);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(order[i] < n && !(seen >> order[i] & 1));
            seen |= 1u << order[i];
        }
        assert_int_equal(seen, want);
    }
}

static void test_place_prefers_own_node(void **state)
{
    (void)state;
    fill();
    b[7].local = b[2].local = true;
    for (uint64_t win = 0; win < 200; win++) {
        assert_int_equal(cl_place(b, N, 42, win, 1, order), N);
        assert_true(order[0] == 7 || order[0] == 2);
        assert_true(order[1] == 7 || order[1] == 2);
    }
    b[7].usable = b[2].usable = false;
    assert_int_equal(cl_place(b, N, 42, 0, 0, order), N - 2);
}

static void test_place_stripes_round_robin(void **state)
{
    (void)state;
    fill();
    b[3].local = true;
    for (uint64_t ino = 2; ino < 50; ino++) {
        uint32_t first[4];

        for (uint64_t win = 0; win < 4; win++) {
            assert_int_equal(cl_place(b, N, ino, win, 4, order), N);
            first[win] = order[0];
        }
        for (uint64_t win = 0; win < 40; win++) {
            assert_int_equal(cl_place(b, N, ino, win, 4, order), N);
            assert_int_equal(order[0], first[win % 4]);
            for (uint32_t i = 1; i < 4; i++) /* a fallback is another of the stripe */
                assert_int_equal(order[i], first[(win + i) % 4]);
        }
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t j = 0; j < i; j++)
                assert_int_not_equal(first[i], first[j]);
    }
}

static void test_place_shares_are_equal(void **state)
{
    uint32_t by_win[N] = {0}, by_ino[N] = {0};
    const uint32_t runs = 60000;

    (void)state;
    fill();
    for (uint32_t i = 0; i < runs; i++) {
        (void)cl_place(b, N, 1 + i / 100, i % 100, 1, order);
        by_win[order[0]]++;
        (void)cl_place(b, N, 1 + i, 0, 4, order);
        by_ino[order[0]]++;
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_in_range(by_win[i], runs / N * 9 / 10, runs / N * 11 / 10);
        assert_in_range(by_ino[i], runs / N * 9 / 10, runs / N * 11 / 10);
    }
}

static void test_place_moves_only_what_was_on_the_lost_one(void **state)
{
    (void)state;
    fill();
    for (uint64_t ino = 2; ino < 300; ino++)
        for (uint64_t win = 0; win < 20; win++) {
            uint32_t before, second;

            b[5].usable = true;
            (void)cl_place(b, N, ino, win, 1, order);
            before = order[0];
            second = order[1];
            b[5].usable = false;
            (void)cl_place(b, N, ino, win, 1, order);
            assert_int_equal(order[0], before == 5 ? second : before);
        }
}

static void test_place_does_not_depend_on_the_tables_order(void **state)
{
    uint32_t first;

    (void)state;
    for (uint64_t win = 0; win < 100; win++) {
        fill();
        (void)cl_place(b, N, 9, win, 3, order);
        first = b[order[0]].id;
        for (uint32_t i = 0; i < N; i++)
            b[i].id = N - i;
        (void)cl_place(b, N, 9, win, 3, order);
        assert_int_equal(b[order[0]].id, first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place_gives_each_usable_one_once),
        cmocka_unit_test(test_place_prefers_own_node),
        cmocka_unit_test(test_place_stripes_round_robin),
        cmocka_unit_test(test_place_shares_are_equal),
        cmocka_unit_test(test_place_moves_only_what_was_on_the_lost_one),
        cmocka_unit_test(test_place_does_not_depend_on_the_tables_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
