/* Who starts a store waits for its guard (jobscripts/launch/guard.c) no longer than that can need. What the guard does is the test's, and so is the clock. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "jobscripts/launch/guard.h"
#include "jobscripts/launch/launcher.h"

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_job_launch_and_stay(const struct job_launch *l, const struct job_stay *stay, struct job_record *out);

static time_t now_s, step_s; /* for each look */
static enum { STOPS, SAYS, FAILS } guard;

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    if (id != CLOCK_MONOTONIC)
        return __real_clock_gettime(id, ts);
    *ts = (struct timespec){.tv_sec = 1000 + now_s};
    now_s += step_s;
    return 0;
}

/* In the guard. */
int __wrap_job_launch_and_stay(const struct job_launch *l, const struct job_stay *stay, struct job_record *out)
{
    (void)l;
    if (guard == FAILS)
        return -ECHILD;
    if (guard == STOPS)
        raise(SIGSTOP);
    memset(out, 0, sizeof *out);
    strcpy(out->root, "n1:1234");
    return stay->begun(out, stay->arg);
}

static int launched(struct job_record *r)
{
    static const struct job_launcher kept = {.kept = true};
    struct job_alloc alloc = {.launcher = &kept};
    struct job_launch l = {.alloc = &alloc, .stays = true, .starting = -1, .dir = "/nowhere", .ready_ms = 60000};
    int rc;

    alarm(60);
    rc = job_guard_launch(&l, r);
    alarm(0);
    return rc;
}

static void test_a_guard_that_is_stopped_is_not_waited_for(void **state)
{
    struct job_record r;

    (void)state;
    guard = STOPS;
    step_s = 20;
    now_s = 0;
    assert_int_equal(launched(&r), -ETIMEDOUT);
    assert_in_range(now_s, 180, 400);
    while (waitpid(-1, NULL, 0) > 0) /* it is gone */
        ;
    assert_int_equal(errno, ECHILD);
}

static void test_what_a_guard_says_is_heard(void **state)
{
    struct job_record r;

    (void)state;
    step_s = 0;
    guard = SAYS;
    assert_int_equal(launched(&r), 0);
    assert_string_equal(r.root, "n1:1234");
    guard = FAILS;
    assert_int_equal(launched(&r), -ECHILD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_guard_that_is_stopped_is_not_waited_for),
        cmocka_unit_test(test_what_a_guard_says_is_heard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
