/*
 * What the last handles of files leave unpublished, when the manager does not take it at once: it does not answer, a benefactor is away, or something is wrong
 * with one window. All handles wait side by side; what can be told to it is, and only what can't be is lost, and told as such.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>
#include <stdio.h>

#define MIB        (1u << 20)
#define WINDOW     (64u << 10)
#define TIMEOUT_MS 1500u
#define MANY       400u
#define WINS       6u
#define BAD_WIN    4u /* counted from 1 */

static struct fx_mount mnt;
static uint8_t bytes[WINS * WINDOW], got[WINS * WINDOW];
static atomic_uint ended;
static struct cl_handle many[MANY];
static uint64_t inos[MANY];

static int setup(void **state)
{
    (void)state;
    fx_begin(&mnt, true, TIMEOUT_MS);
    ended = 0;
    fx_fill(bytes, sizeof bytes, 5);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fx_over(&mnt);
    return 0;
}

static void on_end(struct cl_mount *m, struct cl_handle *h)
{
    fx_closed(m, h);
    atomic_fetch_add(&ended, 1);
}

/* Written, and nobody has called close for it. */
static uint64_t written(struct cl_handle *h, size_t len)
{
    uint64_t ino = world_file_new(WINDOW, 1);

    fx_open(&mnt, h, ino);
    assert_int_equal(fx_write(&mnt, h, bytes, len, 0), len);
    return ino;
}

static void release(struct cl_handle *h)
{
    cl_data_release(&mnt.m, h, on_end);
}

static void wait_ended(unsigned n, uint64_t ms)
{
    uint64_t until_ms = fp_now_ms() + ms;

    while (ended < n && fp_now_ms() < until_ms)
        usleep(1000);
    assert_int_equal(ended, n);
}

static void view_is(uint64_t ino, size_t len)
{
    assert_int_equal(world_view(ino, got, sizeof got), len);
    assert_memory_equal(got, bytes, len);
}

static void release_many(void)
{
    for (unsigned i = 0; i < MANY; i++)
        inos[i] = written(&many[i], 1000);
    for (unsigned i = 0; i < MANY; i++)
        release(&many[i]);
}

/* Their deadlines do not add up, and nobody who releases waits. */
static void test_last_many_beside_a_benefactor_that_is_away(void **state)
{
    uint64_t from_ms;

    (void)state;
    world_faults.mgr_away = true;
    release_many();
    from_ms = fp_now_ms();
    usleep(TIMEOUT_MS / 3 * 1000);
    assert_int_equal(ended, 0); /* else nothing is shown */
    wait_ended(MANY, 10 * TIMEOUT_MS);
    assert_true(fp_now_ms() - from_ms < 10 * TIMEOUT_MS);
    assert_true(world_faults.mgr_away_asked >= MANY); /* each had its chance */
    for (unsigned i = 0; i < MANY; i++)
        view_is(inos[i], 1000);
}

/* It comes back: then they are told as they are, not as the best that can be had. */
static void test_last_many_beside_a_benefactor_that_comes_back(void **state)
{
    (void)state;
    world_faults.mgr_away = true;
    release_many();
    usleep(TIMEOUT_MS / 3 * 1000);
    assert_int_equal(ended, 0);
    world_faults.mgr_away = false;
    wait_ended(MANY, 20000);
    for (unsigned i = 0; i < MANY; i++)
        view_is(inos[i], 1000);
    assert_false(cl_data_has_lost(&mnt.m));
}

/* … nor while the manager stands still: all are told when it is back, and what was released meanwhile too. */
static void test_last_many_without_a_manager(void **state)
{
    (void)state;
    world_faults.mgr_lost_before = 100000;
    release_many();
    usleep(2 * TIMEOUT_MS * 1000);
    assert_int_equal(ended, 0);
    world_faults.mgr_lost_before = 0;
    for (int i = 0; i < 5; i++) {
        world_mgr_back();
        usleep(20000);
    }
    wait_ended(MANY, 20000);
    for (unsigned i = 0; i < MANY; i++)
        view_is(inos[i], 1000);
    assert_false(cl_data_has_lost(&mnt.m));
}

/* One that can't go on does not hold up those behind it. */
static void test_last_ones_that_can_go_on_do(void **state)
{
    struct cl_handle stuck, good;
    uint64_t ino;

    (void)state;
    world_faults.mgr_hangs = 1;
    (void)written(&stuck, 1000);
    release(&stuck);
    while (world_faults.mgr_hangs)
        usleep(1000);
    ino = written(&good, 1000);
    release(&good);
    wait_ended(1, TIMEOUT_MS);
    view_is(ino, 1000);
    world_mgr_back();
    wait_ended(2, 20000);
}

/* The commit of a close is under way: what was written after it is not lost with the last handle. */
static void test_last_after_a_commit_without_an_answer(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    for (int executed = 0; executed < 2; executed++) {
        ended = 0;
        ino = written(&h, 2 * WINDOW);
        *(executed ? &world_faults.mgr_lost_after : &world_faults.mgr_lost_before) = 1;
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), -ETIMEDOUT);
        assert_int_equal(fx_write(&mnt, &h, bytes + 2 * WINDOW, 1000, 2 * WINDOW), 1000);
        release(&h);
        usleep(2 * TIMEOUT_MS * 1000);
        assert_int_equal(ended, 0);
        assert_int_equal(mnt.m.data->uncommitted_bytes, 2 * WINDOW + 1000); /* still at risk */
        world_mgr_back();
        wait_ended(1, 20000);
        view_is(ino, 2 * WINDOW + 1000);
        assert_int_equal(mnt.m.data->lost_bytes, 0);
    }
}

/* The answer of such a commit is an error: it is told again by the last handle, which nobody else will. */
static uint64_t answered_late(struct cl_handle *h)
{
    uint64_t ino = written(h, sizeof bytes);

    world_faults.mgr_lost_before = 1;
    assert_int_equal(cl_data_flush(&mnt.m, h->inode), -ETIMEDOUT);
    release(h);
    usleep(100000);
    assert_int_equal(ended, 0);
    return ino;
}

static void test_last_answered_late_that_a_benefactor_is_away(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    ino = answered_late(&h);
    world_faults.mgr_away = true;
    world_mgr_back();
    usleep(TIMEOUT_MS / 3 * 1000);
    assert_int_equal(ended, 0);
    world_faults.mgr_away = false;
    wait_ended(1, 20000);
    view_is(ino, sizeof bytes);
    assert_false(cl_data_has_lost(&mnt.m));
}

/* Of six windows one is wrong: the others are stored. */
static void one_is_lost(uint64_t ino)
{
    static const uint8_t zeros[WINDOW];

    wait_ended(1, 20000);
    assert_int_equal(world_view(ino, got, sizeof got), sizeof bytes);
    for (unsigned i = 0; i < WINS; i++)
        assert_memory_equal(got + i * WINDOW, i + 1 == BAD_WIN ? zeros : bytes + i * WINDOW, WINDOW);
    assert_true(cl_data_has_lost(&mnt.m)); /* and told */
    assert_true(mnt.m.data->errors > 0);
}

static void test_last_answered_late_that_a_window_is_refused(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    ino = answered_late(&h);
    world_faults.mgr_refuse_win = BAD_WIN;
    world_mgr_back();
    one_is_lost(ino);
}

/* … and that it has too many pieces: one more than there may be. */
static void test_last_answered_late_that_a_window_has_too_many_pieces(void **state)
{
    struct cl_handle h, other;
    uint64_t ino;

    (void)state;
    ino = world_file_new(WINDOW, 1);
    fx_open(&mnt, &h, ino);
    for (unsigned i = 0; i < WINS; i++)
        assert_int_equal(fx_write(&mnt, &h, bytes + i * WINDOW, i + 1 == BAD_WIN ? 100 : WINDOW, i * WINDOW), i + 1 == BAD_WIN ? 100 : WINDOW);
    for (unsigned i = 1; i < 4; i++) /* of this one four, with holes between them */
        assert_int_equal(fx_write(&mnt, &h, bytes, 100, (BAD_WIN - 1) * WINDOW + i * 10000), 100);
    world_faults.mgr_lost_before = 1;
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -ETIMEDOUT);
    release(&h);
    world_faults.mgr_window_max = 2;
    world_mgr_back();
    one_is_lost(ino);
    world_faults.mgr_window_max = 0;
    fx_open(&mnt, &other, ino); /* who writes it anew has nothing to do with it */
    assert_int_equal(fx_write(&mnt, &other, bytes, 100, 0), 100);
    assert_int_equal(cl_data_flush(&mnt.m, other.inode), 0);
    fx_close(&mnt, &other);
}

/* Each that is opened again makes the ones before it no longer the last. */
static void test_last_of_a_file_that_is_opened_and_closed_again_and_again(void **state)
{
    struct cl_handle h[20];
    uint64_t ino;

    (void)state;
    world_faults.mgr_away = true;
    ino = written(&h[0], WINDOW);
    release(&h[0]);
    for (unsigned i = 1; i < 20; i++) {
        fx_open(&mnt, &h[i], ino);
        assert_int_equal(fx_write(&mnt, &h[i], bytes + WINDOW, 1000 * i, WINDOW), 1000 * i);
        release(&h[i]);
        usleep(20000);
        if (i == 15)
            world_faults.mgr_away = false;
    }
    wait_ended(20, 20000);
    view_is(ino, WINDOW + 19000);
    assert_false(cl_data_has_lost(&mnt.m));
}

/* Once the mount ends, its sync of everything tells all of them, within its time. */
static void test_last_many_at_the_end_of_the_mount(void **state)
{
    uint64_t from_ms;

    (void)state;
    world_faults.mgr_away = true;
    for (unsigned i = 0; i < MANY; i++)
        inos[i] = written(&many[i], 1000);
    from_ms = fp_now_ms();
    cl_data_end_by(&mnt.m, from_ms + TIMEOUT_MS);
    for (unsigned i = 0; i < MANY; i++)
        release(&many[i]);
    assert_int_equal(cl_data_sync_all(&mnt.m, false, from_ms + TIMEOUT_MS), 0);
    assert_true(fp_now_ms() - from_ms < 10 * TIMEOUT_MS);
    for (unsigned i = 0; i < MANY; i++)
        view_is(inos[i], 1000);
    wait_ended(MANY, 5000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_last_many_beside_a_benefactor_that_is_away),
        TEST(test_last_many_beside_a_benefactor_that_comes_back),
        TEST(test_last_many_without_a_manager),
        TEST(test_last_ones_that_can_go_on_do),
        TEST(test_last_after_a_commit_without_an_answer),
        TEST(test_last_answered_late_that_a_benefactor_is_away),
        TEST(test_last_answered_late_that_a_window_is_refused),
        TEST(test_last_answered_late_that_a_window_has_too_many_pieces),
        TEST(test_last_of_a_file_that_is_opened_and_closed_again_and_again),
        TEST(test_last_many_at_the_end_of_the_mount),
    };

    alarm(200); /* who waits without limit */
    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
