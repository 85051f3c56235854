/*
 * A truncate that the manager refuses, or does not answer: what this mount has written beyond the new end goes when the manager has cut the file, and not before.
 * What is written after such a call has failed stays, whatever becomes of it.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>

#define WINDOW     (64u << 10)
#define WINS       4u
#define CUT        (WINDOW + 1000) /* within the second window */
#define TIMEOUT_MS 1000u

static struct fx_mount mnt;
static struct cl_handle h;
static uint64_t ino, size;
static uint8_t want[WINS * WINDOW], got[(WINS + 1) * WINDOW];

static void put(uint64_t off, size_t len, uint32_t base)
{
    fx_fill(want + off, len, base);
    assert_int_equal(fx_write(&mnt, &h, want + off, len, off), len);
    size = off + len > size ? off + len : size;
}

/* Half of it published, half of it not, of which some is stored. */
static int setup(void **state)
{
    (void)state;
    memset(&world_faults, 0, sizeof world_faults);
    memset(want, 0, sizeof want);
    size = 0;
    world_core_start();
    (void)world_bnf_add(1, true, 400u << 20);
    fx_start(&mnt, 7, TIMEOUT_MS);
    ino = world_file_new(WINDOW, 1);
    fx_open(&mnt, &h, ino);
    put(0, 2 * WINDOW, 5);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    put(WINDOW / 2, 2 * WINDOW, 99);
    put(3 * WINDOW, 500, 7);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fx_end(&mnt, &h);
    return 0;
}

static void check_read(void)
{
    assert_int_equal(fx_read(&mnt, &h, got, sizeof got, 0), size);
    assert_memory_equal(got, want, size);
}

static void check_all(void)
{
    check_read();
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    check_read();
    assert_int_equal(world_view(ino, got, sizeof got), size);
    assert_memory_equal(got, want, size);
}

static void is_cut(uint64_t at)
{
    memset(want + at, 0, sizeof want - at);
    size = at;
}

static void test_cut_that_is_refused_leaves_what_was_written(void **state)
{
    (void)state;
    world_faults.mgr_setattr_err = FP_EAPPENDING; /* another mount appends; its caller is interrupted while it waits */
    assert_int_equal(fx_truncate(&mnt, &h, CUT), FP_EAPPENDING);
    check_read();
    world_faults.mgr_setattr_err = FP_ERECALL; /* another mount does not publish in time */
    assert_int_equal(fx_truncate(&mnt, &h, 0), FP_ERECALL);
    check_all();
    put(100, 1000, 3);
    world_faults.mgr_setattr_err = 0;
    assert_int_equal(fx_truncate(&mnt, &h, CUT), 0);
    is_cut(CUT);
    check_all();
}

/* What was written before goes, what comes after stays; executed before its answer was lost, or later. */
static void late(bool executed)
{
    *(executed ? &world_faults.mgr_lost_after : &world_faults.mgr_lost_before) = 1;
    assert_int_equal(fx_truncate(&mnt, &h, CUT), -ETIMEDOUT);
    is_cut(CUT);
    put(2 * WINDOW + 10, 700, 17);
    put(CUT + 100, 50, 23);
    world_mgr_back();
    check_all();
}

static void test_cut_that_is_answered_late_leaves_what_was_written_since(void **state)
{
    (void)state;
    late(false);
}

static void test_cut_whose_answer_was_lost_leaves_what_was_written_since(void **state)
{
    (void)state;
    late(true);
}

static void test_cut_that_is_refused_late_leaves_all(void **state)
{
    (void)state;
    world_faults.mgr_lost_before = 1;
    assert_int_equal(fx_truncate(&mnt, &h, CUT), -ETIMEDOUT);
    put(2 * WINDOW + 10, 700, 17);
    world_faults.mgr_setattr_err = FP_ERECALL;
    world_mgr_back();
    world_faults.mgr_setattr_err = 0;
    check_all();
}

/* What comes after it in the manager's order waits: it is not known where the file ends. */
static void test_cut_without_an_answer_keeps_commits_waiting(void **state)
{
    (void)state;
    world_faults.mgr_lost_before = 1;
    assert_int_equal(fx_truncate(&mnt, &h, CUT), -ETIMEDOUT);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -EIO);
    assert_int_equal(fx_truncate(&mnt, &h, CUT), -EIO);
    world_mgr_back();
    is_cut(CUT);
    check_all();
}

static void core_new_session(void *arg)
{
    atomic_fetch_add(&mnt.w.session, 1);
    cl_data_session_new(arg);
}

/* Nobody will ever say whether it was cut: what was written behind the new end does not come back in the middle of nothing, and its loss is told. */
static void test_cut_of_a_session_that_is_forgotten_is_no_silent_loss(void **state)
{
    ssize_t n;

    (void)state;
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    put(2 * WINDOW, 2 * WINDOW, 31);
    world_faults.mgr_lost_after = 1;
    assert_int_equal(fx_truncate(&mnt, &h, CUT), -ETIMEDOUT);
    world_on_core(core_new_session, &mnt.m);
    world_mgr_back();
    n = fx_read(&mnt, &h, got, 100, 2 * WINDOW);
    assert_int_equal(n, -EIO);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -EIO);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    is_cut(CUT);
    check_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cut_that_is_refused_leaves_what_was_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_that_is_answered_late_leaves_what_was_written_since, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_whose_answer_was_lost_leaves_what_was_written_since, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_that_is_refused_late_leaves_all, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_without_an_answer_keeps_commits_waiting, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_of_a_session_that_is_forgotten_is_no_silent_loss, setup, teardown),
    };

    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
