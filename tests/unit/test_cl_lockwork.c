/* Work for locks (client/lockwork.c): what may stand still holds up nothing else, and nothing is forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/lockwork.h"
#include "fp/clock.h"

#define MANY (3 * CL_LOCKWORK_THREADS)

static struct cl_lockwork *queue;
static struct cl_work work[MANY];
static atomic_uint ran, inside, most;
static atomic_bool go;

static int setup(void **state)
{
    (void)state;
    ran = inside = most = 0;
    go = false;
    memset(work, 0, sizeof work);
    queue = cl_lockwork_new();
    return queue ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    cl_lockwork_free(queue);
    return 0;
}

static void count(struct cl_work *w)
{
    (void)w;
    ran++;
}

static void stand_still(struct cl_work *w)
{
    unsigned n = ++inside;

    (void)w;
    most = n > most ? n : most;
    while (!go)
        usleep(1000);
    inside--;
    ran++;
}

static void until(atomic_uint *what, unsigned n)
{
    uint64_t until_ms = fp_now_ms() + 20000;

    while (*what != n && fp_now_ms() < until_ms)
        usleep(1000);
    assert_int_equal(*what, n);
}

static void test_what_stands_still_holds_up_no_step(void **state)
{
    static struct cl_work step;

    (void)state;
    for (unsigned i = 0; i < MANY; i++)
        assert_true(cl_lockwork_blocking(queue, &work[i], stand_still));
    until(&inside, CL_LOCKWORK_THREADS);
    assert_true(cl_lockwork_at(queue, 0, &step, count));
    until(&ran, 1);
    go = true;
    until(&ran, 1 + MANY);
    assert_int_equal(most, CL_LOCKWORK_THREADS);
    cl_lockwork_stop(queue);
}

/* All but the last thread are busy for long: what comes then is done all the same. */
static void test_what_stands_still_holds_up_no_other(void **state)
{
    static struct cl_work other[100];

    (void)state;
    for (unsigned i = 0; i + 1 < CL_LOCKWORK_THREADS; i++)
        assert_true(cl_lockwork_blocking(queue, &work[i], stand_still));
    for (unsigned i = 0; i < 100; i++) {
        assert_true(cl_lockwork_blocking(queue, &other[i], count));
        until(&ran, i + 1);
    }
    go = true;
    cl_lockwork_stop(queue);
    assert_int_equal(ran, 100 + CL_LOCKWORK_THREADS - 1);
}

static atomic_uint first, turns;

static void note_first(struct cl_work *w)
{
    unsigned none = 0;

    atomic_compare_exchange_strong(&first, &none, (unsigned)(w - work) + 1);
    ran++;
}

static void again(struct cl_work *w)
{
    if (++turns < 5 && cl_lockwork_at(queue, fp_now_ms() + 3, w, again))
        return;
    ran++;
}

static void test_steps_have_a_time_and_may_come_again(void **state)
{
    uint64_t from_ms = fp_now_ms();

    (void)state;
    first = turns = 0;
    assert_true(cl_lockwork_at(queue, from_ms + 3000, &work[0], note_first));
    assert_true(cl_lockwork_at(queue, from_ms + 50, &work[1], note_first));
    assert_true(cl_lockwork_at(queue, 0, &work[2], again));
    until(&ran, 3);
    assert_int_equal(first, 2);
    assert_int_equal(turns, 5);
    assert_true(fp_now_ms() - from_ms >= 3000);
    cl_lockwork_stop(queue);
}

static void test_the_end_runs_what_is_left(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 10; i++)
        assert_true(cl_lockwork_at(queue, fp_now_ms() + 3600000, &work[i], count));
    go = true;
    for (unsigned i = 10; i < MANY; i++)
        assert_true(cl_lockwork_blocking(queue, &work[i], stand_still));
    cl_lockwork_stop(queue);
    assert_int_equal(ran, MANY);
    assert_false(cl_lockwork_at(queue, 0, &work[0], count));
    assert_false(cl_lockwork_blocking(queue, &work[0], count));
    assert_int_equal(ran, MANY);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_what_stands_still_holds_up_no_step),
        T(test_what_stands_still_holds_up_no_other),
        T(test_steps_have_a_time_and_may_come_again),
        T(test_the_end_runs_what_is_left),
    };

    alarm(200);
    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
