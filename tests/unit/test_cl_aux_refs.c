/*
 * What aux-apps refer to, on its way to the store: held and vouched for by the manager before it is handed over, or stored anew (aux_fixture.h).
 */
#include "tests/unit/aux_fixture.h"

static void test_references_are_held_before_they_are_handed_over(void **state)
{
    (void)state;
    struct cl_aux_pins *pins;
    struct job j;

    assert_int_equal(begin("fake x=refer"), 0);
    atomic_store(&manager_has_it, true);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    assert_int_equal(j.job.npieces, 2);
    assert_int_equal(j.job.new_bytes, 65536);
    assert_non_null(j.job.pins);
    assert_int_equal(atomic_load(&manager_asked), 1);
    pins = j.job.pins;
    j.job.pins = NULL;
    fini(&j);
    assert_false(cl_aux_release_holds(&mount_)); /* pinned */
    cl_aux_pins_put(&mount_, pins);
    assert_true(cl_aux_release_holds(&mount_));
    assert_int_equal(atomic_load(&manager_released), 1);
    end();
}

/* One job, as of a file that was opened after whatever was let go; its status. */
static int refer_once(uint64_t serial)
{
    struct job j;
    int rc;

    memset(&j, 0, sizeof j);
    submit_of(&j, 1, CHUNK, serial);
    wait_done(&j);
    rc = j.job.status;
    if (rc == 0 && j.job.npieces == 0)
        rc = j.job.nstages;
    else if (rc == 0)
        rc = 100;
    fini(&j);
    return rc;
}

/* The manager answers that it is damaged, or away: nobody's fault. What is required is done all the same. */
static void test_what_is_not_vouched_for_is_not_referred_to(void **state)
{
    static const char *const how[] = {"fake x=refer", "fake x=refer-code-required"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(begin(how[i]), 0);
        atomic_store(&manager_has_it, false);
        atomic_store(&manager_knows_it, true);
        run_jobs(i ? assert_coded : assert_as_it_came);
        assert_int_equal(stats_of_app()->failures, 0);
        assert_string_equal(stats_of_app()->state, "running");
        end();
    }
    atomic_store(&manager_knows_it, false);
}

/* A chunk that was never there: it is asked for, and whoever names such fails, and is left out. */
static void test_references_to_what_is_gone_are_a_failure(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=refer"), 0);
    atomic_store(&manager_has_it, false);
    for (uint64_t i = 0; i < CL_AUX_FAILURES; i++)
        assert_int_equal(refer_once(1), 0);
    assert_int_equal(refer_once(1), 0);
    assert_int_equal(stats_of_app()->failures, CL_AUX_FAILURES);
    assert_string_equal(stats_of_app()->state, "bypassed");
    assert_non_null(strstr(stats_of_app()->why, "stored chunk"));
    end();
}

/* Unless it was us who let it go. */
static void test_references_to_what_was_let_go_are_no_failure(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=refer"), 0);
    atomic_store(&manager_has_it, true);
    assert_int_equal(refer_once(0), 100);
    assert_true(cl_aux_release_holds(&mount_));
    atomic_store(&manager_has_it, false);
    for (uint64_t i = 0; i <= CL_AUX_FAILURES; i++)
        assert_int_equal(refer_once(0), 0);
    assert_int_equal(stats_of_app()->failures, 0);
    end();
}

static void test_references_beyond_the_end_of_a_chunk_are_a_failure(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=refer"), 0);
    atomic_store(&manager_has_it, true);
    atomic_store(&manager_data_len, 4096 + CHUNK - 65536);
    assert_int_equal(refer_once(0), 100);
    assert_true(cl_aux_release_holds(&mount_));
    atomic_store(&manager_data_len, 4096 + CHUNK - 65536 - 1);
    for (uint64_t i = 0; i < CL_AUX_FAILURES; i++)
        assert_int_equal(refer_once(0), 0);
    assert_string_equal(stats_of_app()->state, "bypassed");
    end();
    atomic_store(&manager_data_len, CHUNK);
}

/* A host that goes on referring is one that makes no sense. */
static void test_a_host_that_refers_all_the_same_is_ended(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=refer-stubborn"), 0);
    atomic_store(&manager_has_it, false);
    run_jobs(assert_as_it_came);
    assert_true(stats_of_app()->failures > 0);
    end();
}

/* Once more, without references: what is required is done to the data, and there is no error. */
static void test_a_silent_manager_costs_the_duplicate(void **state)
{
    uint64_t from_ms = fp_now_ms();

    (void)state;
    assert_int_equal(begin("fake x=refer-code-required"), 0);
    atomic_store(&manager_silent, true);
    assert_int_equal(refer_once(1), 1);
    assert_true(fp_now_ms() - from_ms < 8000);
    assert_int_equal(stats_of_app()->failures, 0);
    atomic_store(&manager_silent, false);
    end();
}

static void test_doubt_makes_us_ask_again(void **state)
{
    struct cl_aux_pins *pins;
    struct job j;

    (void)state;
    assert_int_equal(begin("fake x=refer"), 0);
    atomic_store(&manager_has_it, true);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    pins = j.job.pins;
    j.job.pins = NULL;
    fini(&j);
    assert_true(cl_aux_pins_good(&mount_, pins));
    assert_int_equal(atomic_load(&manager_asked), 1);
    assert_int_equal(refer_once(0), 100);
    assert_int_equal(atomic_load(&manager_asked), 1); /* it is held */

    atomic_store(&mount_.doubt, 7);
    assert_false(cl_aux_pins_good(&mount_, pins));
    assert_true(cl_aux_pins_check(&mount_, &pins));
    assert_true(cl_aux_pins_good(&mount_, pins));
    assert_int_equal(atomic_load(&manager_asked), 2);
    assert_int_equal(refer_once(0), 100);
    assert_int_equal(atomic_load(&manager_asked), 2);

    atomic_store(&mount_.doubt, 8);
    atomic_store(&manager_has_it, false);
    atomic_store(&manager_knows_it, true);
    assert_false(cl_aux_pins_check(&mount_, &pins));
    assert_int_equal(refer_once(0), 0);
    atomic_store(&manager_knows_it, false);
    cl_aux_pins_put(&mount_, pins);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references_are_held_before_they_are_handed_over),
        cmocka_unit_test(test_what_is_not_vouched_for_is_not_referred_to),
        cmocka_unit_test(test_references_to_what_is_gone_are_a_failure),
        cmocka_unit_test(test_references_to_what_was_let_go_are_no_failure),
        cmocka_unit_test(test_references_beyond_the_end_of_a_chunk_are_a_failure),
        cmocka_unit_test(test_a_host_that_refers_all_the_same_is_ended),
        cmocka_unit_test(test_a_silent_manager_costs_the_duplicate),
        cmocka_unit_test(test_doubt_makes_us_ask_again),
    };

    if (getenv("AUX_FAKE_HOST"))
        return host_main();
    setenv("AUX_FAKE_HOST", "1", 1);
    setenv("FP_KEY", "/a/secret", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
