/* Service cores (auxapps/host/cores.c): which cores there are, who gets which, and when an aux-app gets one more or one less. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "auxapps/host/cores.h"

static void test_lists_of_cores(void **state)
{
    struct aux_cores *c;
    char why[96], list[64];
    cpu_set_t set;
    int cpu = 0;

    (void)state;
    assert_int_equal(aux_cores_new("1-", &c, why), -EINVAL);
    assert_int_equal(aux_cores_new("a", &c, why), -EINVAL);
    assert_int_equal(aux_cores_new("3-1", &c, why), -EINVAL);
    assert_int_equal(aux_cores_new("0;1", &c, why), -EINVAL);
    assert_int_equal(aux_cores_new("", &c, why), 0);
    assert_int_equal(aux_cores_count(c), 0);
    assert_true(aux_cores_width(c) >= 1);
    assert_string_equal(why, "");
    aux_cores_free(c);
    sched_getaffinity(0, sizeof(set), &set);
    while (!CPU_ISSET(cpu, &set))
        cpu++;
    snprintf(list, sizeof(list), "%d,%d,60000", cpu, cpu);
    assert_int_equal(aux_cores_new(list, &c, why), 0);
    assert_int_equal(aux_cores_count(c), 1);
    assert_int_equal(aux_cores_cpu(c, 0), cpu);
    assert_non_null(strstr(why, "not all of the service cores"));
    uint32_t mine[1] = {5}, load[1] = {9};

    assert_int_equal(aux_cores_choose(c, mine, load), cpu);
    aux_cores_free(c);
}

/* Ticks with so many chunks waiting, until the answer is not 0; how long that took, or -1 after 10 s. */
static int ticks(struct aux_demand *d, uint64_t *now, uint32_t queue, uint32_t busy, bool spare, int *move, char *why)
{
    for (int ms = 0; ms <= 10000; ms += (int)AUX_TICK_MS) {
        *now += AUX_TICK_MS;
        *move = aux_cores_decide(d, *now, queue, 8, busy, spare, why);
        if (*move != 0) {
            d->active = (uint32_t)((int)d->active + *move);
            return ms;
        }
    }
    return -1;
}

static void test_cores_come_while_chunks_wait(void **state)
{
    struct aux_demand d = {.min = 1, .max = 3, .active = 1};
    uint64_t now = 1000;
    char why[96];
    int move;

    (void)state;
    assert_int_equal(ticks(&d, &now, 3, 1000, true, &move, why), -1);      /* a few always wait */
    assert_true(ticks(&d, &now, 6, 1000, true, &move, why) <= 100);
    assert_int_equal(move, 1);
    assert_non_null(strstr(why, "2 cores, was 1: 6 chunks waited"));
    assert_int_equal(ticks(&d, &now, 6, 2000, false, &move, why), -1);     /* all are busy */
    assert_true(ticks(&d, &now, 6, 2000, true, &move, why) <= 100);
    assert_int_equal(d.active, 3);
    assert_int_equal(ticks(&d, &now, 8, 3000, true, &move, why), -1);      /* that is the most */
}

static void test_cores_go_when_fewer_would_do(void **state)
{
    struct aux_demand d = {.min = 1, .max = 3, .active = 3};
    uint64_t now = 1000;
    char why[96];
    int move, ms;

    (void)state;
    assert_int_equal(ticks(&d, &now, 0, 2500, true, &move, why), -1);      /* nothing waits, for it is just fast enough */
    ms = ticks(&d, &now, 0, 100, true, &move, why);
    assert_int_equal(move, -1);
    assert_in_range(ms, AUX_CALM_MS - AUX_TICK_MS, AUX_CALM_MS + AUX_TICK_MS);
    assert_non_null(strstr(why, "2 cores, was 3: nothing waited for"));
    for (int i = 0; i < 10; i++) {         /* a burst each second keeps it */
        for (int t = 0; t < 20; t++)
            assert_int_equal(aux_cores_decide(&d, now += AUX_TICK_MS, t == 0, 8, 0, true, why), 0);
    }
    assert_true(ticks(&d, &now, 0, 0, true, &move, why) > 0);
    assert_non_null(strstr(why, "1 core, was 2"));
    assert_int_equal(ticks(&d, &now, 0, 0, true, &move, why), -1);
}

static void test_new_limits_are_kept_at_once(void **state)
{
    struct aux_demand d = {.min = 2, .max = 3, .active = 1};
    uint64_t now = 1000;
    char why[96];
    int move;

    (void)state;
    assert_int_equal(ticks(&d, &now, 0, 0, false, &move, why), 0);
    assert_int_equal(move, 1);
    d = (struct aux_demand){.min = 1, .max = 1, .active = 3};
    assert_int_equal(ticks(&d, &now, 8, 3000, true, &move, why), 0);
    assert_int_equal(move, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_of_cores),
        cmocka_unit_test(test_cores_come_while_chunks_wait),
        cmocka_unit_test(test_cores_go_when_fewer_would_do),
        cmocka_unit_test(test_new_limits_are_kept_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
