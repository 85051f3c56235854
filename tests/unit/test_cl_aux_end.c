/*
 * The mount's side of aux-apps against a host that does not end when it is killed, as one that waits in the kernel (aux_fixture.h): what kill and
 * waitpid say of it is replaced by the linker.
 */
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/unit/aux_fixture.h"

/* -------------------------------------------------------------- processes that do not end */

static atomic_uint immortals; /* so many of the next that are killed */
static pid_t immortal[8];
static atomic_uint nimmortal;

int __real_kill(pid_t pid, int sig);
int __wrap_kill(pid_t pid, int sig);
pid_t __real_waitpid(pid_t pid, int *status, int flags);
pid_t __wrap_waitpid(pid_t pid, int *status, int flags);

int __wrap_kill(pid_t pid, int sig)
{
    if (sig != SIGKILL || pid < 0 || atomic_load(&immortals) == 0)
        return __real_kill(pid, sig);
    atomic_fetch_sub(&immortals, 1);
    immortal[atomic_load(&nimmortal)] = pid;
    atomic_fetch_add(&nimmortal, 1);
    return 0;
}

pid_t __wrap_waitpid(pid_t pid, int *status, int flags)
{
    for (unsigned i = 0; i < atomic_load(&nimmortal); i++)
        if (immortal[i] == pid)
            return 0;
    return __real_waitpid(pid, status, flags);
}

/* Now they end after all. Who waits for them finds out. */
static void end_immortals(void)
{
    for (unsigned i = 0; i < atomic_load(&nimmortal); i++)
        assert_int_equal(__real_kill(immortal[i], SIGKILL), 0);
    atomic_store(&nimmortal, 0);
}

/* -------------------------------------------------------------- tests */

/* Killed, and there all the same. Its region is nobody's then, whatever it writes there. */
static void test_a_host_that_does_not_end_is_left_behind(void **state)
{
    (void)state;
    uint64_t from_ms;

    assert_int_equal(begin("fake x=code haunt=15 failures=100"), 0);
    atomic_store(&immortals, 2);
    run_jobs(assert_coded);
    assert_int_equal(atomic_load(&immortals), 0);
    assert_int_equal(mount_.aux->norphans, 2);
    run_jobs(assert_coded);
    atomic_store(&immortals, 1);
    from_ms = fp_now_ms();
    cl_aux_stop(&mount_);
    assert_true(fp_now_ms() - from_ms < 10000);
    cl_aux_free(&mount_);
    cl_pool_free(pool);
    atomic_store(&immortals, 0);
    end_immortals();
}

static uint64_t refused_starts(void)
{
    pthread_mutex_lock(&mount_.aux->lock);
    uint64_t n = mount_.aux->unknown_deaths;
    pthread_mutex_unlock(&mount_.aux->lock);
    return n;
}

static void test_hosts_left_behind_are_bounded(void **state)
{
    (void)state;
    struct job j;

    assert_int_equal(begin("fake x=code haunt=1 failures=100"), 0);
    atomic_store(&immortals, AUX_ORPHANS_MAX);
    submit(&j, 1, CHUNK);
    for (uint64_t until_ms = fp_now_ms() + 60000; refused_starts() < 2; usleep(10000))
        assert_true(fp_now_ms() < until_ms);
    assert_int_equal(atomic_load(&nimmortal), AUX_ORPHANS_MAX);
    assert_int_equal(mount_.aux->norphans, AUX_ORPHANS_MAX); /* and no more are started: that is what failed */
    end_immortals();
    wait_done(&j); /* as it came, or by the next host: it has killed enough of them */
    assert_int_equal(mount_.aux->norphans, 0);
    fini(&j);
    end();
}

static void test_plugins_cannot_look_into_the_mount(void **state)
{
    (void)state;
    assert_int_equal(prctl(PR_SET_DUMPABLE, 1), 0);
    assert_int_equal(begin("fake"), 0);
    assert_int_equal(prctl(PR_GET_DUMPABLE), 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_host_that_does_not_end_is_left_behind),
        cmocka_unit_test(test_hosts_left_behind_are_bounded),
        cmocka_unit_test(test_plugins_cannot_look_into_the_mount),
    };

    if (getenv("AUX_FAKE_HOST"))
        return host_main();
    setenv("AUX_FAKE_HOST", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
