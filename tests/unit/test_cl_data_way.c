/*
 * A full store in which what is drained gives way: a write waits for as long as that goes forward, and is told ENOSPC when it does not any more.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB        (1u << 20)
#define WINDOW     (256u << 10)
#define TIMEOUT_MS 1500u

static struct fx_mount mnt;
static struct cl_handle h;
static struct world_bnf *bnf;
static uint8_t *buf;
static uint64_t size;

static int setup(void **state)
{
    (void)state;
    memset(&world_faults, 0, sizeof world_faults);
    world_core_start();
    bnf = world_bnf_add(1, true, 4 * MIB);
    fx_start(&mnt, 7, TIMEOUT_MS);
    fx_open(&mnt, &h, world_file_new(WINDOW, 1));
    buf = calloc(MIB, 1);
    size = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fx_end(&mnt, &h);
    free(buf);
    return 0;
}

static ssize_t put(void)
{
    ssize_t n = fx_write(&mnt, &h, buf, 100000, size);

    size += n > 0 ? (uint64_t)n : 0;
    return n;
}

/* Until the next write is told that there is no space; how long that one took. */
static uint64_t fill(void)
{
    uint64_t began_ms;
    ssize_t n;

    do {
        began_ms = fp_now_ms();
        n = put();
    } while (n > 0 && size < 20 * MIB);
    assert_int_equal(n, -ENOSPC);
    return fp_now_ms() - began_ms;
}

static void *room_later(void *arg)
{
    (void)arg;
    usleep(2 * TIMEOUT_MS * 1000);
    pthread_mutex_lock(&bnf->lock);
    bnf->capacity += 4 * MIB;
    pthread_mutex_unlock(&bnf->lock);
    return NULL;
}

static void test_way_that_goes_forward_is_waited_for(void **state)
{
    uint64_t began_ms;
    pthread_t t;

    (void)state;
    fill();
    world_faults.mgr_way = 2;
    began_ms = fp_now_ms();
    assert_int_equal(pthread_create(&t, NULL, room_later, NULL), 0);
    assert_int_equal(put(), 100000);
    assert_true(fp_now_ms() - began_ms >= 2 * TIMEOUT_MS - 100); /* longer than a call may wait for what stands still */
    pthread_join(t, NULL);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
}

static void test_way_that_stands_still_is_enospc_in_time(void **state)
{
    uint64_t took_ms;

    (void)state;
    world_faults.mgr_way = 1;
    took_ms = fill();
    assert_true(took_ms >= TIMEOUT_MS - 100);
    assert_true(took_ms < 60000); /* and not never; machines may be slow */
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
}

static void test_way_of_nothing_is_not_waited_for(void **state)
{
    uint64_t least_ms = UINT64_MAX;

    (void)state;
    for (int i = 0; i < 3; i++) {
        uint64_t took_ms = fill();

        least_ms = took_ms < least_ms ? took_ms : least_ms;
    }
    assert_true(least_ms < TIMEOUT_MS);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_way_that_goes_forward_is_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(test_way_that_stands_still_is_enospc_in_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_way_of_nothing_is_not_waited_for, setup, teardown),
    };

    return cmocka_run_group_tests_name("cl_data_way", tests, NULL, NULL);
}
