/* Commit.closes: the manager hears that all programs of a mount have closed a file, also when nothing is left to be committed. */
#include "tests/unit/cl_fixture.h"

#include "client/data/internal.h"

#define WINDOW (64u << 10)
#define LEN    (3u * WINDOW + 1000)

bool __wrap_cl_core_connected(struct cl_mount *m);
void __wrap_cl_mgr_wrote(struct cl_mount *m, uint64_t ino);

static struct fx_mount mnt;
static uint8_t bytes[LEN];

bool __wrap_cl_core_connected(struct cl_mount *m)
{
    (void)m;
    return true;
}

void __wrap_cl_mgr_wrote(struct cl_mount *m, uint64_t ino)
{
    (void)m;
    (void)ino;
}

static int setup(void **state)
{
    (void)state;
    fx_begin(&mnt, true, 1500);
    mnt.m.opt.close_mode = CL_CLOSE_BEHIND;
    fx_fill(bytes, sizeof bytes, 5);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fx_over(&mnt);
    return 0;
}

/* Published already, and not by that close: the manager has to hear of it, or it would take the file back when the mount dies. */
static void test_end_is_said_of_what_is_published_already(void **state)
{
    struct cl_publishing p = {.closed_only = true};
    struct cl_handle h;
    int rc;

    (void)state;
    fx_open_as(&mnt, &h, world_file_new(WINDOW, 1), true);
    cl_data_lease(h.inode, true, 1);
    cl_data_changed(&mnt.m, &h);
    assert_int_equal(fx_write(&mnt, &h, bytes, LEN, 0), LEN);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    assert_int_equal(world_faults.mgr_ends, 0);
    cl_data_closes(&h);
    assert_false(cl_data_close_behind(&mnt.m, &h, &rc)); /* it is for the other close to say */
    assert_int_equal(cl_data_close(&mnt.m, &h), 0);
    assert_int_equal(world_faults.mgr_ends, 1);
    cl_data_changed(&mnt.m, &h);
    assert_int_equal(fx_write(&mnt, &h, bytes, LEN, 0), LEN);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    cl_data_closes(&h); /* while that was on its way: who publishes what is behind says it */
    while ((rc = cl_data_publish_step(&mnt.m, h.inode, &p)) == 1)
        usleep(1000);
    assert_int_equal(rc, 0);
    assert_int_equal(world_faults.mgr_ends, 2);
    assert_true(cl_data_close_behind(&mnt.m, &h, &rc)); /* which it has heard */
    assert_int_equal(rc, 0);
    assert_int_equal(world_faults.mgr_ends, 2);
    fx_close(&mnt, &h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_end_is_said_of_what_is_published_already, setup, teardown),
    };

    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
