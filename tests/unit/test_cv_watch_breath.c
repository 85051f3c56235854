/* A coordinator that looks at many files leaves the mount alone again and again, but not when something waits for it. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "convert/watch/breath.h"

int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

static uint64_t clock_ms, paused_ms;
static bool said; /* there is something on standard input */
static struct cw_breath b;

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    (void)id;
    *t = (struct timespec){.tv_sec = (time_t)(clock_ms / 1000), .tv_nsec = (long)(clock_ms % 1000) * 1000000};
    return 0;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    assert_true(n == 1 && fds->fd == 0 && fds->events == POLLIN);
    if (said)
        return 1;
    clock_ms += (uint64_t)timeout_ms;
    paused_ms += (uint64_t)timeout_ms;
    return 0;
}

static int setup(void **state)
{
    (void)state;
    clock_ms = 1000000;
    paused_ms = 0;
    said = false;
    cw_breath_begin(&b, false);
    return 0;
}

/* 1000 calls of a millisecond. */
static void ask(void)
{
    for (int i = 0; i < 1000; i++) {
        cw_breath_take(&b);
        clock_ms++;
    }
}

static void test_most_of_the_time_of_a_long_look_is_pauses(void **state)
{
    uint64_t before = cw_breath_ms(&b);
    (void)state;

    ask();
    assert_true(paused_ms >= 8 * 1000 && paused_ms <= 10 * 1000);
    assert_int_equal(cw_breath_ms(&b) - before, 1000); /* what it rests for afterwards is what it has asked, not what it has paused */
}

static void test_a_short_look_has_no_pause(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CW_BUSY_MS; i++) {
        cw_breath_take(&b);
        clock_ms++;
    }
    assert_int_equal(paused_ms, 0);
}

static void test_a_very_long_look_ends(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        ask();
    assert_true(paused_ms >= CW_PAUSES_MS && paused_ms < CW_PAUSES_MS + CW_PAUSE_MS);
}

static void test_there_are_no_pauses_while_something_waits(void **state)
{
    (void)state;
    cw_breath_begin(&b, true);
    ask();
    assert_int_equal(paused_ms, 0);
    cw_breath_begin(&b, false);
    said = true;
    ask();
    assert_int_equal(paused_ms, 0);
    assert_true(b.hurry);
    cw_breath_take(NULL);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(test_##name, setup)
    const struct CMUnitTest tests[] = {
        T(most_of_the_time_of_a_long_look_is_pauses),
        T(a_short_look_has_no_pause),
        T(a_very_long_look_ends),
        T(there_are_no_pauses_while_something_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
