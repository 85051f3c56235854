/*
 * Publishing by steps (client/data/step.c): many files side by side while a benefactor is away or the manager does not answer, and what is said when it
 * can't be done.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>

#include "fp/err.h"

#define WINDOW     (64u << 10)
#define TIMEOUT_MS 1500u
#define MANY       200u
#define LEN        (3u * WINDOW + 1000u)

static struct fx_mount mnt;
static uint8_t bytes[2 * LEN], got[2 * LEN];
static struct cl_handle many[MANY];
static struct cl_publishing pub[MANY];
static uint64_t inos[MANY];

static int setup(void **state)
{
    (void)state;
    memset(pub, 0, sizeof pub);
    fx_begin(&mnt, true, TIMEOUT_MS);
    mnt.m.opt.manager_timeout_ms = TIMEOUT_MS;
    fx_fill(bytes, sizeof bytes, 5);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fx_over(&mnt);
    return 0;
}

static void write_all(unsigned n, size_t len)
{
    for (unsigned i = 0; i < n; i++) {
        inos[i] = world_file_new(WINDOW, 1);
        fx_open(&mnt, &many[i], inos[i]);
        assert_int_equal(fx_write(&mnt, &many[i], bytes, len, 0), len);
    }
}

static void close_all(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        fx_close(&mnt, &many[i]);
}

/* Each in turn, until none is on its way; how many ended with rc. No step may wait. */
static unsigned step_all(unsigned n, uint64_t ms, int rc)
{
    uint64_t until_ms = fp_now_ms() + ms;
    unsigned left = n, with = 0;
    bool ended[MANY] = {false};

    while (left && fp_now_ms() < until_ms) {
        for (unsigned i = 0; i < n; i++) {
            uint64_t from_ms = fp_now_ms();
            int now = ended[i] ? 1 : cl_data_publish_step(&mnt.m, many[i].inode, &pub[i]);

            assert_true(fp_now_ms() - from_ms < TIMEOUT_MS);
            if (now == 1)
                continue;
            ended[i] = true;
            left--;
            with += now == rc;
        }
        usleep(1000);
    }
    assert_int_equal(left, 0);
    return with;
}

static void view_is(uint64_t ino, size_t len)
{
    assert_int_equal(world_view(ino, got, sizeof got), len);
    assert_memory_equal(got, bytes, len);
}

static void test_step_publishes(void **state)
{
    (void)state;
    write_all(20, LEN);
    assert_int_equal(step_all(20, 20000, 0), 20);
    for (unsigned i = 0; i < 20; i++) {
        view_is(inos[i], LEN);
        fx_check_file_quiet(&many[i]);
    }
    memset(pub, 0, sizeof pub);
    assert_int_equal(cl_data_publish_step(&mnt.m, many[0].inode, &pub[0]), 0); /* nothing to do */
    close_all(20);
}

/* What is written while it goes on is not waited for: else one that is written without end is never given back. */
static void test_step_does_not_wait_for_what_comes_later(void **state)
{
    unsigned rounds = 0;
    int rc;

    (void)state;
    write_all(1, 1000);
    world_faults.mgr_delay_us = 20000;
    do {
        rc = cl_data_publish_step(&mnt.m, many[0].inode, &pub[0]);
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(fx_write(&mnt, &many[0], bytes, WINDOW, (uint64_t)(1 + i) * WINDOW), WINDOW);
        usleep(1000);
    } while (rc == 1 && ++rounds < 5000);
    assert_int_equal(rc, 0);
    world_faults.mgr_delay_us = 0;
    close_all(1);
}

/* Deadlines do not add up. In the end each is told to the manager all the same. */
static void test_step_many_beside_a_benefactor_that_is_away(void **state)
{
    uint64_t from_ms;

    (void)state;
    world_faults.mgr_away = true;
    write_all(MANY, 1000);
    from_ms = fp_now_ms();
    assert_int_equal(step_all(MANY, 20 * TIMEOUT_MS, 0), MANY);
    assert_true(fp_now_ms() - from_ms >= TIMEOUT_MS);
    assert_true(fp_now_ms() - from_ms < 10 * TIMEOUT_MS);
    for (unsigned i = 0; i < MANY; i++)
        view_is(inos[i], 1000);
    close_all(MANY);
}

static void test_step_manager_does_not_answer(void **state)
{
    uint64_t from_ms;

    (void)state;
    world_faults.mgr_hangs = 10;
    write_all(10, 1000);
    from_ms = fp_now_ms();
    assert_int_equal(step_all(10, 20 * TIMEOUT_MS, -ETIMEDOUT), 10);
    assert_true(fp_now_ms() - from_ms < 8 * TIMEOUT_MS);
    for (int i = 0; i < 5; i++) {
        world_mgr_back();
        usleep(20000);
    }
    memset(pub, 0, sizeof pub);
    assert_int_equal(step_all(10, 20000, 0), 10);
    for (unsigned i = 0; i < 10; i++)
        view_is(inos[i], 1000);
    close_all(10);
}

/* An error is said, and stays the file's, for who writes it. */
static void test_step_tells_what_was_refused(void **state)
{
    (void)state;
    write_all(3, LEN);
    world_unlink(inos[1]);
    assert_int_equal(step_all(3, 20000, -ENOENT), 1);
    assert_int_equal(cl_data_flush(&mnt.m, many[1].inode), -ENOENT);
    view_is(inos[0], LEN);
    close_all(3);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_step_publishes),
        T(test_step_does_not_wait_for_what_comes_later),
        T(test_step_many_beside_a_benefactor_that_is_away),
        T(test_step_manager_does_not_answer),
        T(test_step_tells_what_was_refused),
    };

    alarm(200);
    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
