/*
 * The mount's side of aux-apps against a host that misbehaves (aux_fixture.h): each job is done exactly once with the right result, whatever the host does.
 */
#include "tests/unit/aux_fixture.h"

/* -------------------------------------------------------------- tests */

static void test_jobs_pass_in_any_number(void **state)
{
    (void)state;
    assert_int_equal(begin("fake"), 0);
    assert_true(cl_aux_chunks(&mount_));
    run_jobs(assert_as_it_came);
    assert_int_equal(stats_of_app()->chunks, NJOBS);
    assert_string_equal(stats_of_app()->state, "running");
    end();
}

static void test_jobs_bring_coded_data(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code"), 0) ;
    run_jobs(assert_coded);
    end();
}

static void test_jobs_survive_hosts_that_crash(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code crash=9 failures=100"), 0);
    run_jobs(assert_coded);
    assert_true(stats_of_app()->failures >= 3);
    assert_true(stats_of_app()->chunks >= NJOBS); /* over restarts */
    end();
}

static void test_jobs_survive_hosts_that_are_killed(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code killed=9"), 0);
    run_jobs(assert_coded);
    assert_int_equal(stats_of_app()->failures, 0); /* nobody's fault */
    assert_true(stats_of_app()->restarts >= 3);
    assert_string_equal(stats_of_app()->state, "running");
    end();
}

static void *keep_killing(void *arg)
{
    for (int i = 0; i < 5; i++) {
        usleep(30000);
        kill_host();
    }
    return arg;
}

static void test_service_is_back_within_a_second(void **state)
{
    (void)state;
    struct job j;
    uint64_t from_ms;

    assert_int_equal(begin("fake x=code"), 0);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    fini(&j);
    usleep(1200000); /* it has lived for a while */
    kill_host();
    from_ms = fp_now_ms();
    submit(&j, 2, CHUNK);
    wait_done(&j);
    assert_true(fp_now_ms() - from_ms < 1000);
    assert_coded(&j);
    fini(&j);
    end();
}

static void test_nonsense_is_not_believed(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code nonsense=13 failures=100"), 0);
    run_jobs(assert_coded);
    assert_true(stats_of_app()->failures >= 2);
    end();
}

static void test_too_many_failures_bypass(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code crash=1"), 0);
    run_jobs(assert_as_it_came);
    assert_string_equal(stats_of_app()->state, "bypassed");
    assert_int_equal(stats_of_app()->failures, CL_AUX_FAILURES);
    assert_non_null(strstr(stats_of_app()->why, "crashed"));
    assert_false(cl_aux_chunks(&mount_));
    end();
}

static void test_too_many_failures_of_a_required_one_are_errors(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code crash=1 required"), 0);
    run_jobs(assert_eio);
    assert_string_equal(stats_of_app()->state, "failed");
    assert_true(cl_aux_chunks(&mount_)); /* writes must not go past it */
    run_jobs(assert_eio);
    end();
}

static void test_bypass_is_taken_back_by_hand(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code crash=41"), 0);
    set("bypass", "on");
    assert_false(cl_aux_chunks(&mount_));
    run_jobs(assert_as_it_came);
    set("bypass", "off");
    for (int i = 0; i < 500 && strcmp(stats_of_app()->state, "running") != 0; i++)
        usleep(10000);
    run_jobs(assert_coded);
    end();
}

static void test_calls_beyond_their_deadline_end_the_host(void **state)
{
    (void)state;
    struct job j;

    assert_int_equal(begin("fake x=code hang=2"), 0);
    for (int i = 0; i < 3; i++) {
        uint64_t from_ms = fp_now_ms();

        submit(&j, (uint8_t)i, CHUNK);
        wait_done(&j);
        assert_coded(&j);
        fini(&j);
        assert_true(fp_now_ms() - from_ms < 3000);
    }
    assert_int_equal(stats_of_app()->failures, 2); /* the second job of each host, and the one sent again is its first */
    
    end();
}

static void test_a_host_that_leaks_is_started_again(void **state)
{
    (void)state;
    struct job j;

    assert_int_equal(begin("fake x=code leak=1"), 0);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    fini(&j);
    for (int i = 0; i < 500 && stats_of_app()->failures == 0; i++)
        usleep(10000);
    assert_true(stats_of_app()->failures >= 1); /* more, if it is caught before it has answered */
    pthread_mutex_lock(&mount_.aux->lock); /* the statistics have another text as soon as the next host runs */
    assert_non_null(strstr(mount_.aux->app[0].why, "memory"));
    pthread_mutex_unlock(&mount_.aux->lock);
    end();
}

static void test_refusal_is_the_writers_error(void **state)
{
    (void)state;
    struct job j;

    assert_int_equal(begin("fake refuse=1"), 0);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    assert_int_equal(j.job.status, -EILSEQ);
    fini(&j);
    end();
    assert_int_equal(begin("fake interrupt=1"), 0); /* programs would try again for ever */
    submit(&j, 1, CHUNK);
    wait_done(&j);
    assert_int_equal(j.job.status, -EIO);
    fini(&j);
    end();
}

static void test_a_start_that_fails_says_why(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=unwilling"), -EINVAL);
    cl_pool_free(pool);
    assert_int_equal(begin("fake x=stillborn"), -EIO);
    cl_pool_free(pool);
}

static int decode_one(const char *name, uint8_t *out, size_t len)
{
    struct fp_auxw_stage stage = {.in_bytes = (uint32_t)len, .out_bytes = (uint32_t)len};
    static uint8_t coded[CHUNK];
    struct iovec from[2] = {{coded, 1000}, {coded + 1000, len - 1000}}, to[2] = {{out, 77}, {out + 77, len - 77}};

    for (uint32_t i = 0; i < len; i++)
        coded[i] = (uint8_t)(i * 13) ^ XOR;
    strcpy(stage.name, name);
    return cl_aux_decode(&mount_, &stage, 1, from, 2, to, 2, fp_now_ms() + 10000);
}

static void test_decode_by_the_declared_host(void **state)
{
    (void)state;
    static uint8_t out[CHUNK];

    assert_int_equal(begin("fake x=code failures=9"), 0);
    for (int n = 0; n < 100; n++) {
        memset(out, 0, sizeof out);
        assert_int_equal(decode_one("fake", out, sizeof out - (size_t)n), 0);
        for (uint32_t i = 0; i < sizeof out - 100; i++)
            assert_int_equal(out[i], (uint8_t)(i * 13));
    }
    assert_int_equal(decode_one("other", out, sizeof out), -EIO);
    assert_int_equal(decode_one("killer", out, sizeof out), -EIO); /* and not for ever */
    assert_int_equal(decode_one("fake", out, sizeof out), 0);
    assert_int_equal(mount_.aux->in_room.used, 0);
    end();
}

static void test_decode_survives_any_number_of_killed_hosts(void **state)
{
    (void)state;
    static uint8_t out[CHUNK];
    pthread_t killer;

    assert_int_equal(begin("fake x=code"), 0);
    assert_int_equal(pthread_create(&killer, NULL, keep_killing, NULL), 0);
    for (int n = 0; n < 300; n++) {
        memset(out, 0, sizeof out);
        assert_int_equal(decode_one("fake", out, sizeof out), 0);
        for (uint32_t i = 0; i < sizeof out; i += 511)
            assert_int_equal(out[i], (uint8_t)(i * 13));
    }
    pthread_join(killer, NULL);
    assert_true(stats_of_app()->restarts >= 1);
    end();
}

static void test_decode_where_nothing_is_declared(void **state)
{
    (void)state;
    static uint8_t out[CHUNK];

    assert_int_equal(begin(NULL), 0);
    assert_null(mount_.aux);
    mount_.data = &(struct cl_data){.pool = pool};
    assert_int_equal(decode_one("fake", out, sizeof out), 0);
    assert_int_equal(out[100], (uint8_t)1300);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_pass_in_any_number),
        cmocka_unit_test(test_jobs_bring_coded_data),
        cmocka_unit_test(test_jobs_survive_hosts_that_crash),
        cmocka_unit_test(test_jobs_survive_hosts_that_are_killed),
        cmocka_unit_test(test_service_is_back_within_a_second),
        cmocka_unit_test(test_nonsense_is_not_believed),
        cmocka_unit_test(test_too_many_failures_bypass),
        cmocka_unit_test(test_too_many_failures_of_a_required_one_are_errors),
        cmocka_unit_test(test_bypass_is_taken_back_by_hand),
        cmocka_unit_test(test_calls_beyond_their_deadline_end_the_host),
        cmocka_unit_test(test_a_host_that_leaks_is_started_again),
        cmocka_unit_test(test_refusal_is_the_writers_error),
        cmocka_unit_test(test_a_start_that_fails_says_why),
        cmocka_unit_test(test_decode_by_the_declared_host),
        cmocka_unit_test(test_decode_survives_any_number_of_killed_hosts),
        cmocka_unit_test(test_decode_where_nothing_is_declared),
    };

    if (getenv("AUX_FAKE_HOST"))
        return host_main();
    setenv("AUX_FAKE_HOST", "1", 1);
    setenv("FP_KEY", "/a/secret", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
