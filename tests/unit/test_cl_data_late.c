/*
 * Data that takes longer to pass the aux-apps than --io-timeout: close and fsync wait as long as something goes forward, fail in bounded time when nothing
 * does, and what is stored after that is published.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>
#include <stdio.h>

#include "tests/unit/cl_fake_aux.h"

#define MIB        (1u << 20)
#define CHUNKS     20u
#define TIMEOUT_MS 600u
#define EACH_US    60000 /* all of them: twice the time-out */

static struct fx_mount mnt;
static uint8_t bytes[CHUNKS * MIB], got[CHUNKS * MIB];
static atomic_uint ended;

static int start(uint64_t io_timeout_ms)
{
    fake_aux_start(rnd_seed());
    world_core_start();
    world_bnf_add(1, true, 400u << 20);
    fx_start(&mnt, 7, io_timeout_ms);
    ended = 0;
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return start(TIMEOUT_MS);
}

/* --io-timeout is far away. */
static int setup_patient(void **state)
{
    (void)state;
    return start(20000);
}

static int teardown(void **state)
{
    (void)state;
    fx_stop(&mnt);
    fake_aux_stop();
    world_core_stop();
    world_bnf_fini();
    world_mgr_reset();
    return 0;
}

static uint64_t begin_file(struct cl_handle *h, size_t len)
{
    uint64_t ino = world_file_new(MIB, 1);

    fx_fill(bytes, len, 3);
    fx_open(&mnt, h, ino);
    assert_int_equal(fx_write(&mnt, h, bytes, len, 0), len);
    return ino;
}

static void view_is(uint64_t ino, size_t len)
{
    assert_int_equal(world_view(ino, got, sizeof got), len);
    assert_memory_equal(got, bytes, len);
}

static void on_end(struct cl_mount *m, struct cl_handle *h)
{
    assert_ptr_equal(m, &mnt.m);
    fx_closed(m, h);
    atomic_fetch_add(&ended, 1);
}

static void wait_ended(unsigned n)
{
    uint64_t until_ms = fp_now_ms() + 20000;

    while (ended < n && fp_now_ms() < until_ms)
        usleep(1000);
    assert_int_equal(ended, n);
}

/* It has its time, too. */
static const char *last_error(void)
{
    static Fp__ClientStats st;

    fp__client_stats__init(&st);
    cl_data_stats(&mnt.m, &st);
    if (st.last_error[0])
        assert_in_range(fp_wall_ns() - st.last_error_ns, 0, 60 * INT64_C(1000000000));
    else
        assert_int_equal(st.last_error_ns, 0);
    return st.last_error;
}

static void test_late_slow_aux_apps_are_waited_for(void **state)
{
    struct cl_handle h;
    uint64_t ino, from_ms;

    (void)state;
    fake_aux.each_us = EACH_US;
    for (int durable = 0; durable < 2; durable++) {
        ino = begin_file(&h, sizeof bytes);
        from_ms = fp_now_ms();
        assert_int_equal((durable ? cl_data_fsync : cl_data_flush)(&mnt.m, h.inode), 0);
        assert_true(fp_now_ms() - from_ms > TIMEOUT_MS); /* else nothing is shown */
        view_is(ino, sizeof bytes);
        cl_data_release(&mnt.m, &h, on_end);
        assert_int_equal(ended, durable + 1); /* at once */
    }
    assert_false(cl_data_has_lost(&mnt.m));
    assert_string_equal(last_error(), "");
}

/* A file of which nothing is stored for longer than that: what was written before it, to another one, goes forward. */
static void test_late_others_in_front_count_as_progress(void **state)
{
    struct cl_handle h[2];
    uint64_t ino;

    (void)state;
    fake_aux.each_us = EACH_US;
    (void)begin_file(&h[0], sizeof bytes);
    ino = begin_file(&h[1], MIB);
    assert_int_equal(cl_data_flush(&mnt.m, h[1].inode), 0);
    view_is(ino, MIB);
    assert_int_equal(cl_data_flush(&mnt.m, h[0].inode), 0);
    for (int i = 0; i < 2; i++)
        fx_close(&mnt, &h[i]);
}

static void test_late_aux_apps_that_stand_still_fail_close_in_time_and_lose_nothing(void **state)
{
    struct cl_handle h[3];
    uint64_t ino[3], from_ms;

    (void)state;
    fake_aux.hold = true;
    for (int i = 0; i < 3; i++)
        ino[i] = begin_file(&h[i], 3 * MIB);
    for (int i = 0; i < 3; i++) {
        from_ms = fp_now_ms();
        assert_int_equal(i == 1 ? cl_data_fsync(&mnt.m, h[i].inode) : cl_data_flush(&mnt.m, h[i].inode), -EIO);
        assert_in_range(fp_now_ms() - from_ms, TIMEOUT_MS, TIMEOUT_MS + 5000);
        assert_non_null(strstr(last_error(), "not stored in time"));
        from_ms = fp_now_ms();
        cl_data_release(&mnt.m, &h[i], on_end); /* no FUSE thread waits */
        assert_true(fp_now_ms() - from_ms < TIMEOUT_MS);
    }
    usleep(TIMEOUT_MS * 1000);
    assert_int_equal(ended, 0);
    fake_aux.hold = false;
    wait_ended(3);
    for (int i = 0; i < 3; i++)
        view_is(ino[i], 3 * MIB);
    assert_false(cl_data_has_lost(&mnt.m));
}

/* Opened again meanwhile: the last close is another one. */
static void test_late_close_of_a_file_that_was_opened_again(void **state)
{
    struct cl_handle h, again;
    uint64_t ino;

    (void)state;
    fake_aux.hold = true;
    ino = begin_file(&h, 2 * MIB);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -EIO);
    cl_data_release(&mnt.m, &h, on_end);
    fx_open(&mnt, &again, ino);
    wait_ended(1);
    assert_int_equal(fx_read(&mnt, &again, got, MIB, MIB), MIB);
    assert_memory_equal(got, bytes + MIB, MIB);
    fake_aux.hold = false;
    assert_int_equal(cl_data_fsync(&mnt.m, again.inode), 0);
    view_is(ino, 2 * MIB);
    fx_close(&mnt, &again);
}

/* They refuse it in the end: that is told, as at any other time. */
static void test_late_data_that_is_refused_is_told(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    fake_aux.hold = true;
    ino = begin_file(&h, 2 * MIB);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -EIO);
    cl_data_release(&mnt.m, &h, on_end);
    fake_aux.status = -EDQUOT;
    fake_aux.hold = false;
    wait_ended(1);
    assert_true(cl_data_has_lost(&mnt.m));
    assert_non_null(strstr(last_error(), "could not be stored"));
    assert_int_equal(world_view(ino, got, sizeof got), 0);
}

#define RANKS 8

static pthread_barrier_t at_once;

static void *release_thread(void *h)
{
    pthread_barrier_wait(&at_once);
    cl_data_release(&mnt.m, h, on_end);
    return NULL;
}

/* The ranks of a node end: one of their handles is the last, and waits for what is on its way. */
static void test_late_handles_that_are_released_at_the_same_time(void **state)
{
    struct cl_handle h[RANKS];
    pthread_t t[RANKS];
    uint64_t ino;

    (void)state;
    pthread_barrier_init(&at_once, NULL, RANKS + 1);
    for (unsigned turn = 0; turn < 20; turn++) {
        struct cl_inode *inode;

        fake_aux.hold = true;
        ended = 0;
        ino = begin_file(&h[0], MIB);
        inode = h[0].inode;
        for (int i = 1; i < RANKS; i++)
            fx_open(&mnt, &h[i], ino);
        pthread_mutex_lock(&inode->lock); /* all come to the same place */
        for (int i = 0; i < RANKS; i++)
            assert_int_equal(pthread_create(&t[i], NULL, release_thread, &h[i]), 0);
        pthread_barrier_wait(&at_once);
        usleep(5000);
        pthread_mutex_unlock(&inode->lock);
        for (int i = 0; i < RANKS; i++)
            pthread_join(t[i], NULL); /* nobody waits */
        assert_int_equal(ended, RANKS - 1);
        fake_aux.hold = false;
        wait_ended(RANKS);
        view_is(ino, MIB);
    }
    pthread_barrier_destroy(&at_once);
    assert_false(cl_data_has_lost(&mnt.m));
}

/* Written through a mapping, and not sealed yet when the last handle goes. */
static void test_late_data_that_is_sealed_by_the_last_close(void **state)
{
    struct cl_handle h;
    uint64_t ino, from_ms = fp_now_ms();

    (void)state;
    fake_aux.hold = true;
    ino = begin_file(&h, MIB / 2);
    cl_data_release(&mnt.m, &h, on_end);
    assert_true(fp_now_ms() - from_ms < TIMEOUT_MS); /* no FUSE thread waits */
    usleep(2 * TIMEOUT_MS * 1000);
    assert_int_equal(ended, 0);
    fake_aux.hold = false;
    wait_ended(1);
    view_is(ino, MIB / 2);
    assert_false(cl_data_has_lost(&mnt.m));
}

struct waiter {
    struct cl_handle h;
    int (*fn)(struct cl_mount *m, struct cl_inode *inode); /* NULL: the handle is released */
    int rc;
};

static void *waiter_thread(void *arg)
{
    struct waiter *w = arg;

    if (w->fn)
        w->rc = w->fn(&mnt.m, w->h.inode);
    else
        cl_data_release(&mnt.m, &w->h, on_end);
    return NULL;
}

/* The end of the mount is told while w waits: then it is let go soon. */
static void ends_with_the_mount(struct waiter *w)
{
    uint64_t from_ms;
    pthread_t t;

    assert_int_equal(pthread_create(&t, NULL, waiter_thread, w), 0);
    usleep(300000);
    from_ms = fp_now_ms();
    cl_data_end_by(&mnt.m, from_ms + 100);
    pthread_join(t, NULL);
    assert_true(fp_now_ms() - from_ms < 10000);
    cl_data_end_by(&mnt.m, 0);
}

static void test_late_the_end_of_the_mount_is_seen_by_who_waits(void **state)
{
    struct waiter w = {.fn = cl_data_flush};
    uint64_t ino;

    (void)state;
    fake_aux.hold = true;
    ino = begin_file(&w.h, MIB / 2);
    ends_with_the_mount(&w);
    assert_int_equal(w.rc, -EIO);
    assert_int_equal(fx_write(&mnt, &w.h, bytes + MIB / 2, MIB / 4, MIB / 2), MIB / 4);
    fake_aux.hold = false;
    assert_int_equal(cl_data_flush(&mnt.m, w.h.inode), 0);
    fake_aux.hold = true;
    assert_int_equal(fx_write(&mnt, &w.h, bytes + MIB / 2, MIB / 2, MIB / 2), MIB / 2);
    w.fn = NULL;
    ends_with_the_mount(&w);
    assert_int_equal(ended, 0);
    fake_aux.hold = false;
    wait_ended(1);
    assert_int_equal(world_view(ino, got, sizeof got), MIB);
    assert_memory_equal(got, bytes, MIB);
}

/* … also by who waits for a benefactor that is away; what refers to it is told all the same. */
static void test_late_the_end_of_the_mount_does_not_wait_for_a_benefactor(void **state)
{
    struct waiter w = {.fn = cl_data_flush};
    uint64_t ino;

    (void)state;
    world_faults.mgr_away = true;
    ino = begin_file(&w.h, MIB);
    ends_with_the_mount(&w);
    assert_true(world_faults.mgr_away_asked > 0);
    assert_int_equal(w.rc, 0);
    world_faults.mgr_away = false;
    view_is(ino, MIB);
    fx_close(&mnt, &w.h);
}

static void no_lease_is_good_any_more(void)
{
    struct cl_data *d = mnt.m.data;

    pthread_mutex_lock(&d->space_lock);
    for (struct cl_bnf *b = d->bnfs; b; b = b->next)
        for (struct cl_lease *l = b->leases; l; l = l->next)
            l->refused = true;
    pthread_mutex_unlock(&d->space_lock);
}

/* What goes to the aux-apps a second time has all the time for its benefactor, however long they took. */
static void test_late_second_time_at_the_aux_apps(void **state)
{
    struct cl_handle h[2];
    struct rnd r;
    uint64_t ino;

    (void)state;
    fake_aux.pieces = fake_aux.always = true;
    fake_aux.piece_min = 4096;
    rnd_init(&r, 5, 0);
    for (int i = 0; i < 2; i++) {
        ino = world_file_new(MIB, 1);
        fx_open(&mnt, &h[i], ino);
        if (i == 0)
            for (uint32_t at = 0; at < MIB; at++)
                bytes[at] = (uint8_t)(rnd_next(&r) >> 32);
        else
            for (uint32_t at = MIB / 2; at < MIB; at++)
                bytes[at] = (uint8_t)(rnd_next(&r) >> 32);
        if (i == 1) {
            while (fake_aux.told == 0)
                usleep(1000);
            fake_aux.each_us = 2 * TIMEOUT_MS * 1000;
            fake_aux.doubts = fake_aux.distrust = true;
        }
        assert_int_equal(fx_write(&mnt, &h[i], bytes, MIB, 0), MIB);
        if (i == 0)
            assert_int_equal(cl_data_flush(&mnt.m, h[i].inode), 0);
    }
    while (fake_aux.again == 0)
        usleep(1000);
    no_lease_is_good_any_more();
    usleep(2 * TIMEOUT_MS * 1000);
    assert_int_equal(cl_data_flush(&mnt.m, h[1].inode), 0);
    assert_int_equal(fake_aux.again, 1);
    view_is(ino, MIB);
    for (int i = 0; i < 2; i++)
        fx_close(&mnt, &h[i]);
}

/* The mount ends: who waits is let go at that time, whatever goes forward. */
static void test_late_nobody_waits_beyond_the_end_of_the_mount(void **state)
{
    struct cl_handle h;
    uint64_t from_ms;

    (void)state;
    fake_aux.each_us = EACH_US;
    (void)begin_file(&h, sizeof bytes);
    from_ms = fp_now_ms();
    cl_data_end_by(&mnt.m, fp_now_ms() + 100);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -EIO);
    assert_true(fp_now_ms() - from_ms < CHUNKS * EACH_US / 1000);
    cl_data_end_by(&mnt.m, 0);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    fx_close(&mnt, &h);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_late_slow_aux_apps_are_waited_for),
        TEST(test_late_others_in_front_count_as_progress),
        TEST(test_late_aux_apps_that_stand_still_fail_close_in_time_and_lose_nothing),
        TEST(test_late_close_of_a_file_that_was_opened_again),
        TEST(test_late_data_that_is_refused_is_told),
        TEST(test_late_handles_that_are_released_at_the_same_time),
        TEST(test_late_data_that_is_sealed_by_the_last_close),
        cmocka_unit_test_setup_teardown(test_late_the_end_of_the_mount_is_seen_by_who_waits, setup_patient, teardown),
        cmocka_unit_test_setup_teardown(test_late_the_end_of_the_mount_does_not_wait_for_a_benefactor, setup_patient, teardown),
        TEST(test_late_second_time_at_the_aux_apps),
        TEST(test_late_nobody_waits_beyond_the_end_of_the_mount),
    };

    alarm(200); /* who waits without limit */
    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
