/*
 * Chunks that aux-apps have nothing to do with (client/aux/skip.c), with the host of aux_fixture.h: which are passed over, for how long, what ends it, and that it is nothing to those
 * that must see all data.
 */
#include "tests/unit/aux_fixture.h"

#define MIB (1ull << 20)

static enum cl_aux_over over(uint64_t off)
{
    return cl_aux_passes_over(&mount_, off, CHUNK, false);
}

static void run_one(struct cl_aux_job *out)
{
    struct job j;

    submit(&j, 1, CHUNK);
    wait_done(&j);
    assert_as_it_came(&j);
    *out = j.job;
    fini(&j);
}

/* What the host says may come after the answer to the chunk. */
static void rest_is_known(void)
{
    uint64_t until_ms = fp_now_ms() + 30000;

    while (!cl_aux_may_pass_over(&mount_) && fp_now_ms() < until_ms)
        usleep(1000);
    assert_true(cl_aux_may_pass_over(&mount_));
}

static void say_rest(uint32_t app, uint64_t mib)
{
    struct fp_auxw_skip s = {.app = app, .bytes = mib * MIB};

    cl_aux_skip_said(mount_.aux, &s);
}

static void test_chunks_are_passed_over_for_as_long_as_was_said(void **state)
{
    struct cl_aux_job j;

    (void)state;
    assert_int_equal(begin("fake rest=8"), 0);
    assert_false(cl_aux_may_pass_over(&mount_));
    assert_int_equal(over(0), CL_AUX_COMES);
    run_one(&j);
    rest_is_known();
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(over(i * MIB), CL_AUX_OVER);
    assert_int_equal(over(8 * MIB), CL_AUX_COMES);
    assert_false(cl_aux_may_pass_over(&mount_));
    assert_int_equal(stats_of_app()->chunks, 1);
    assert_int_equal(stats_of_app()->passed_chunks, 8);
    assert_int_equal(stats_of_app()->passed_bytes, 8 * MIB);
    run_one(&j); /* it says so again */
    rest_is_known();
    assert_int_equal(over(0), CL_AUX_OVER);
    end();
}

static void test_only_the_places_that_were_said(void **state)
{
    struct fp_auxw_skip s = {.bytes = UINT64_MAX, .step_bytes = 4 * MIB, .of = 8, .come = 1};

    (void)state;
    assert_int_equal(begin("fake"), 0);
    cl_aux_skip_said(mount_.aux, &s);
    for (uint64_t i = 0; i < 64; i++)
        assert_int_equal(over(i * MIB), i % 32 < 4 ? CL_AUX_COMES : CL_AUX_OVER);
    s.flags = FP_AUX_SKIP_BUT_ZEROS;
    cl_aux_skip_said(mount_.aux, &s);
    assert_int_equal(over(5 * MIB), CL_AUX_OVER_BUT_ZEROS);
    assert_int_equal(stats_of_app()->passed_chunks, 56); /* not yet */
    assert_int_equal(cl_aux_passes_over(&mount_, 5 * MIB, CHUNK, true), CL_AUX_OVER);
    assert_int_equal(stats_of_app()->passed_chunks, 57);
    s.step_bytes = 0; /* makes no sense: the last word stays */
    cl_aux_skip_said(mount_.aux, &s);
    assert_int_equal(cl_aux_passes_over(&mount_, 5 * MIB, CHUNK, true), CL_AUX_OVER);
    s = (struct fp_auxw_skip){.app = 7, .bytes = 1};
    cl_aux_skip_said(mount_.aux, &s);
    end();
}

/* What another stage wants goes to the host, and there past the one that does not. */
static void test_one_stage_of_two_is_passed_over_in_the_host(void **state)
{
    struct cl_aux_job j;

    (void)state;
    assert_int_equal(begin_with("fake", "other"), 0);
    say_rest(0, 2);
    assert_int_equal(over(0), CL_AUX_COMES);
    run_one(&j);
    run_one(&j);
    assert_int_equal(stats_of_app()->chunks, 0);
    assert_int_equal(stats_of_app()->passed_chunks, 2);
    run_one(&j);
    assert_int_equal(stats_of_app()->chunks, 1);
    say_rest(0, 2);
    say_rest(1, 1);
    assert_int_equal(over(0), CL_AUX_OVER);
    assert_int_equal(over(0), CL_AUX_COMES); /* the other is back */
    end();
}

static void never_skipped(const char *declared)
{
    assert_int_equal(begin(declared), 0);
    say_rest(0, 100);
    assert_int_equal(over(0), CL_AUX_COMES);
    submit(&jobs[0], 1, CHUNK);
    wait_done(&jobs[0]);
    assert_int_equal(jobs[0].job.status, 0);
    fini(&jobs[0]);
    assert_int_equal(stats_of_app()->chunks, 1);
    assert_int_equal(stats_of_app()->passed_chunks, 0);
    end();
}

static void test_it_is_nothing_to_those_that_must_see_or_change_the_data(void **state)
{
    (void)state;
    never_skipped("fake required");
    never_skipped("fake x=code-selfish");
    never_skipped("fake x=code-inverse");
}

static void test_a_changed_option_ends_it_until_it_is_made(void **state)
{
    (void)state;
    assert_int_equal(begin("fake"), 0);
    say_rest(0, 100);
    assert_int_equal(over(0), CL_AUX_OVER);
    set("level", "2"); /* this host never answers */
    assert_int_equal(over(0), CL_AUX_COMES);
    say_rest(0, 100);
    assert_int_equal(over(0), CL_AUX_COMES);
    end();
}

static void test_a_changed_chain_ends_it(void **state)
{
    (void)state;
    assert_int_equal(begin_with("fake", "other"), 0);
    say_rest(0, 100);
    say_rest(1, 100);
    assert_int_equal(over(0), CL_AUX_OVER);
    set("bypass", "on");
    assert_int_equal(over(0), CL_AUX_COMES);
    for (int i = 0; i < 3000 && strcmp(stats_of_app()->change, "bypass=on: done") != 0; i++)
        usleep(10000);
    assert_int_equal(over(0), CL_AUX_COMES);
    say_rest(1, 1); /* it is the only one now */
    assert_int_equal(over(0), CL_AUX_OVER);
    end();
}

static void test_the_end_of_the_host_ends_it(void **state)
{
    struct cl_aux_job j;

    (void)state;
    assert_int_equal(begin("fake"), 0);
    say_rest(0, 1000);
    assert_int_equal(over(0), CL_AUX_OVER);
    kill_host();
    for (int i = 0; i < 3000 && cl_aux_may_pass_over(&mount_); i++)
        usleep(10000);
    assert_int_equal(over(0), CL_AUX_COMES);
    run_one(&j);
    assert_int_equal(stats_of_app()->passed_chunks, 1); /* counted since the mount began */
    end();
}

/* What is sent once more must not miss a stage for what was said of the first time. */
static void test_a_chunk_that_is_sent_again_is_seen(void **state)
{
    (void)state;
    assert_int_equal(begin_with("fake", "other"), 0);
    say_rest(0, 100);
    memset(&jobs[0], 0, sizeof jobs[0]);
    jobs[0].job.no_pieces = true;
    assert_int_equal(cl_aux_skips(mount_.aux, &jobs[0].job, false), 0);
    jobs[0].job.no_pieces = false;
    assert_int_equal(cl_aux_skips(mount_.aux, &jobs[0].job, false), 1);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_are_passed_over_for_as_long_as_was_said),
        cmocka_unit_test(test_only_the_places_that_were_said),
        cmocka_unit_test(test_one_stage_of_two_is_passed_over_in_the_host),
        cmocka_unit_test(test_it_is_nothing_to_those_that_must_see_or_change_the_data),
        cmocka_unit_test(test_a_changed_option_ends_it_until_it_is_made),
        cmocka_unit_test(test_a_changed_chain_ends_it),
        cmocka_unit_test(test_the_end_of_the_host_ends_it),
        cmocka_unit_test(test_a_chunk_that_is_sent_again_is_seen),
    };

    if (getenv("AUX_FAKE_HOST"))
        return host_main();
    setenv("AUX_FAKE_HOST", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
