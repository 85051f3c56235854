/* What a step at the end of a job may have never goes beyond the job's time (jobscripts/steptime.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "jobscripts/steptime.h"

#define HOUR_MS 3600000u

static void test_a_job_without_a_limit_has_what_we_were_given(void **state)
{
    struct job_steptime t = job_steptime(UINT64_MAX, HOUR_MS);

    (void)state;
    assert_int_equal(t.work_ms, HOUR_MS);
    assert_int_equal(t.slack_ms, 60000);
    assert_false(t.by_job);
    assert_int_equal(job_steptime(UINT64_MAX, 0).work_ms, 2000); /* what is done already is seen to be so */
}

static void test_some_is_kept_for_the_end(void **state)
{
    struct job_steptime t = job_steptime(300000, HOUR_MS);

    (void)state;
    assert_int_equal(t.work_ms, 285000);
    assert_true(t.by_job);
}

static void test_nothing_goes_beyond_the_jobs_end(void **state)
{
    (void)state;
    for (uint64_t job = 12000; job < 200000; job += 37)
        for (uint64_t ours = 0; ours < 4 * HOUR_MS; ours = ours ? 3 * ours : 1) {
            struct job_steptime t = job_steptime(job, ours);
            uint64_t needs = job / 4 < 7500 ? job / 4 : 7500;

            assert_true(t.work_ms + t.slack_ms + needs <= job);
            assert_true(t.work_ms >= 2000);
        }
}

/* Slurm lets it live some seconds longer. */
static void test_a_job_whose_time_is_over_has_some_seconds(void **state)
{
    struct job_steptime t = job_steptime(0, HOUR_MS);

    (void)state;
    assert_int_equal(t.work_ms, 2000);
    assert_int_equal(t.slack_ms, 2000);
    assert_true(t.by_job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_without_a_limit_has_what_we_were_given),
        cmocka_unit_test(test_some_is_kept_for_the_end),
        cmocka_unit_test(test_nothing_goes_beyond_the_jobs_end),
        cmocka_unit_test(test_a_job_whose_time_is_over_has_some_seconds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
