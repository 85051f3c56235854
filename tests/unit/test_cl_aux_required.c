/*
 * What must not be left out (client/aux/required.c), against a host that does leave it out (aux_fixture.h): whatever the host says and whoever changes the chain, a
 * job comes back with the required stage or with an error, and it does come back.
 */
#include "tests/unit/aux_fixture.h"
#include "fp/fault.h"

/* The host that runs when it is taken in again has a chain without it, and goes on for a while. */
/* The host may have answered already. */
static void assert_starting_or_done(const char *done)
{
    const Fp__AuxAppStats *s = stats_of_app();
    assert_int_equal(strcmp(s->state, "starting") != 0, strcmp(s->change, done) == 0);
}

static void test_no_chunk_meets_the_chain_before_the_change(void **state)
{
    (void)state;
    assert_int_equal(begin_with("fake x=code required", "other"), 0);
    for (int i = 0; i < 5; i++) {
        set("bypass", "on"); /* the user may take back what the user has said */
        for (int k = 0; k < 500 && strcmp(stats_of_app()->change, "bypass=on: done") != 0; k++)
            usleep(10000);
        run_jobs(assert_as_it_came);
        set("bypass", "off");
        assert_starting_or_done("bypass=off: done");
        run_jobs(assert_coded);
        assert_string_equal(stats_of_app()->state, "running");
        assert_string_equal(stats_of_app()->change, "bypass=off: done");
    }
    end();
}

static void assert_coded_or_eio(const struct job *j)
{
    if (j->job.status == 0)
        assert_coded(j);
    else
        assert_eio(j);
}

/* It says itself that it is required: nobody has to declare it so, and nobody can take it out. */
static void test_what_is_required_of_itself_is_never_bypassed(void **state)
{
    (void)state;
    assert_int_equal(begin_with("fake x=code-selfish crash=50", "other"), 0);
    set("bypass", "on");
    assert_non_null(strstr(stats_of_app()->change, "bypass=on: refused"));
    set("bypass", "maybe");
    assert_non_null(strstr(stats_of_app()->change, "bypass=maybe: refused"));
    assert_string_equal(stats_of_app()->state, "running");
    run_jobs(assert_coded);
    for (int i = 0; i < 20 && strcmp(stats_of_app()->state, "failed") != 0; i++)
        run_jobs(assert_coded_or_eio);
    assert_string_equal(stats_of_app()->state, "failed");
    run_jobs(assert_eio);
    set("bypass", "off");
    run_jobs(assert_coded);
    end();
}

static void test_too_many_deaths_of_nobody_store_nothing_plain(void **state)
{
    (void)state;
    assert_int_equal(begin_with("fake x=code-selfish killed=1", "other"), 0);
    run_jobs(assert_eio);
    end();
}

/* Whatever the host says: what lacks the stage is not stored. */
static void test_answers_that_lack_a_required_stage_are_not_used(void **state)
{
    static const char *const wrong[] = {"fake x=skip-required", "fake x=selfish", "fake x=code-selfish-skip"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(begin_with(wrong[i], "other"), 0);
        run_jobs(assert_eio);
        assert_string_equal(stats_of_app()->state, "failed");
        end();
    }
}

/* A chunk that a result refers to is gone, and when the manager has said so, the aux-app that is required has failed. */
static void test_a_job_whose_aux_app_has_failed_meanwhile_is_done(void **state)
{
    struct job j, killer;

    (void)state;
    atomic_store(&manager_has_it, false);
    atomic_store(&manager_waits, true);
    assert_int_equal(begin("fake x=refer-required crash=2 failures=1"), 0);
    submit(&j, 1, CHUNK);
    while (atomic_load(&manager_asked) == 0)
        usleep(1000);
    submit(&killer, 2, CHUNK);
    wait_done(&killer);
    assert_eio(&killer);
    fini(&killer);
    atomic_store(&manager_waits, false);
    wait_done(&j);
    assert_eio(&j);
    fini(&j);
    end();
}

static void *let_the_manager_answer(void *arg)
{
    usleep(1000000); /* the link thread has ended */
    atomic_store(&manager_waits, false);
    return arg;
}

static void test_a_job_is_done_when_the_mount_ends_meanwhile(void **state)
{
    pthread_t t;
    struct job j;

    (void)state;
    atomic_store(&manager_has_it, false);
    atomic_store(&manager_waits, true);
    assert_int_equal(begin("fake x=refer-required"), 0);
    submit(&j, 1, CHUNK);
    while (atomic_load(&manager_asked) == 0)
        usleep(1000);
    pthread_create(&t, NULL, let_the_manager_answer, NULL);
    cl_aux_stop(&mount_);
    pthread_join(t, NULL);
    wait_done(&j);
    assert_true(j.job.status < 0);
    fini(&j);
    cl_aux_free(&mount_);
    cl_pool_free(pool);
}

/* Jobs that wait, and the last aux-app is taken out. */
static void test_bypassing_the_last_one_leaves_no_job_behind(void **state)
{
    (void)state;
    assert_int_equal(begin("fake x=code hang=1 deadline=60s"), 0);
    for (uint32_t i = 0; i < NJOBS; i++)
        submit(&jobs[i], (uint8_t)(i * 31), CHUNK);
    set("bypass", "on");
    for (uint32_t i = 0; i < NJOBS; i++) {
        wait_done(&jobs[i]);
        assert_as_it_came(&jobs[i]);
        fini(&jobs[i]);
    }
    end();
}

/* More changes than the socket takes at once. */
static void test_a_new_host_hears_of_all_changes(void **state)
{
    const char *gate = getenv("AUX_FAKE_HOST");
    char name[24], value[140];
    int fd, small = 1, tries = 0;
    pid_t old;

    (void)state;
    memset(value, 'v', sizeof value);
    value[sizeof value - 1] = '\0';
    assert_int_equal(begin("fake x=code-gate-slow"), 0);
    old = mount_.aux->host->pid;
    for (int i = 0; i < 16; i++) {
        snprintf(name, sizeof name, "option%d", i);
        set(name, value);
    }
    while (stats_of_app()->events < 16 && tries++ < 500)
        usleep(10000);
    fd = open(gate, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    kill_host();
    for (bool set_it = false; !set_it; usleep(1000)) {
        pthread_mutex_lock(&mount_.aux->lock);
        if (mount_.aux->host && mount_.aux->host->pid != old) {
            assert_int_equal(mount_.aux->state, AUX_STARTING);
            set_it = setsockopt(mount_.aux->host->jobs_fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0;
        }
        pthread_mutex_unlock(&mount_.aux->lock);
    }
    assert_int_equal(unlink(gate), 0);
    for (tries = 0; stats_of_app()->events < 48 && tries < 1000; tries++)
        usleep(10000);
    assert_in_range(stats_of_app()->events, 48, 64); /* 16 of them counted by the first host, 16 or 32 by the second: what was not answered is sent again, too */
    end();
}

#ifdef FP_FAULT
static void test_want_of_memory_is_not_the_hosts_fault(void **state)
{
    struct job j;

    (void)state;
    assert_int_equal(begin("fake x=code failures=1"), 0);
    assert_int_equal(fp_fault_set("cl.aux_answer=ENOMEM:count=1"), 0);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    assert_as_it_came(&j);
    fini(&j);
    run_jobs(assert_coded);
    assert_int_equal(stats_of_app()->failures, 0);
    end();
    assert_int_equal(begin("fake x=code-required failures=1"), 0);
    assert_int_equal(fp_fault_set("cl.aux_answer=ENOMEM:count=1"), 0);
    submit(&j, 1, CHUNK);
    wait_done(&j);
    assert_int_equal(j.job.status, -ENOMEM);
    fini(&j);
    run_jobs(assert_coded);
    assert_int_equal(stats_of_app()->failures, 0);
    end();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_chunk_meets_the_chain_before_the_change),
        cmocka_unit_test(test_what_is_required_of_itself_is_never_bypassed),
        cmocka_unit_test(test_too_many_deaths_of_nobody_store_nothing_plain),
        cmocka_unit_test(test_answers_that_lack_a_required_stage_are_not_used),
        cmocka_unit_test(test_a_job_whose_aux_app_has_failed_meanwhile_is_done),
        cmocka_unit_test(test_a_job_is_done_when_the_mount_ends_meanwhile),
        cmocka_unit_test(test_bypassing_the_last_one_leaves_no_job_behind),
        cmocka_unit_test(test_a_new_host_hears_of_all_changes),
#ifdef FP_FAULT
        cmocka_unit_test(test_want_of_memory_is_not_the_hosts_fault),
#endif
    };

    char gate[64];

    if (getenv("AUX_FAKE_HOST"))
        return host_main();
    snprintf(gate, sizeof gate, "/tmp/fp-test-gate-%d", (int)getpid());
    setenv("AUX_FAKE_HOST", gate, 1);
    setenv("FP_KEY", "/a/secret", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
