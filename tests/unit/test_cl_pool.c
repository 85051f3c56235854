/*
 * The chunk pool: all pages or none, waits that end at their deadline, reclaim before pressure, and no page in two hands.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/data/pool.h"
#include "fp/clock.h"
#include "tests/unit/cl_rand.h"

#define PAGES 64u

static struct cl_pool *pool;
static atomic_uint reclaims, pressures;
static uint8_t *cached[PAGES]; /* what reclaim gives back */
static size_t ncached;

static size_t reclaim(void *arg, size_t want)
{
    size_t n = want < ncached ? want : ncached;

    assert_ptr_equal(arg, &pool);
    atomic_fetch_add(&reclaims, 1);
    if (n > 0) {
        ncached -= n;
        cl_pool_put(pool, cached + ncached, n);
    }
    return n;
}

static _Thread_local atomic_bool *in_queue; /* of this thread: pressure is called by who waits */

static void pressure(void *arg)
{
    (void)arg;
    if (in_queue)
        atomic_store(in_queue, true);
    atomic_fetch_add(&pressures, 1);
}

static int setup(void **state)
{
    (void)state;
    reclaims = pressures = 0;
    ncached = 0;
    return cl_pool_new(PAGES * CL_PAGE_BYTES, reclaim, pressure, &pool, &pool);
}

static int teardown(void **state)
{
    (void)state;
    cl_pool_free(pool);
    return 0;
}

static void test_pool_gives_all_or_none(void **state)
{
    uint8_t *a[PAGES], *more[PAGES];

    (void)state;
    assert_int_equal(cl_pool_pages(pool), PAGES);
    assert_int_equal(cl_pool_get(pool, a, 60, fp_now_ms()), 0);
    assert_int_equal(cl_pool_free_pages(pool), 4);
    assert_int_equal(cl_pool_try_get(pool, more, 5, 0), -EAGAIN);
    assert_int_equal(cl_pool_try_get(pool, more, 2, 3), -EAGAIN);
    assert_int_equal(cl_pool_free_pages(pool), 4);
    assert_int_equal(cl_pool_try_get(pool, more, 2, 2), 0);
    assert_int_equal(cl_pool_get(pool, more + 2, 3, fp_now_ms() + 20), -ETIMEDOUT);
    assert_int_equal(cl_pool_free_pages(pool), 2);
    cl_pool_put(pool, more, 2);
    cl_pool_put(pool, a, 60);
    assert_int_equal(cl_pool_free_pages(pool), PAGES);
}

static void test_pool_skips_null_pages(void **state)
{
    uint8_t *a[3], *holes[5] = {0};

    (void)state;
    assert_int_equal(cl_pool_get(pool, a, 3, 0), 0);
    holes[1] = a[0];
    holes[3] = a[1];
    holes[4] = a[2];
    cl_pool_put(pool, holes, 5);
    assert_int_equal(cl_pool_free_pages(pool), PAGES);
}

static void test_pool_wait_ends_at_its_deadline(void **state)
{
    uint8_t *a[PAGES], *more[1];
    uint64_t t0 = fp_now_ms();

    (void)state;
    assert_int_equal(cl_pool_get(pool, a, PAGES, t0), 0);
    assert_int_equal(cl_pool_get(pool, more, 1, t0 + 1000), -ETIMEDOUT);
    assert_in_range(fp_now_ms() - t0, 1000, 10000);
    assert_true(reclaims >= 2 && pressures >= 2); /* asked again while waiting */
    cl_pool_put(pool, a, PAGES);
}

static void test_pool_takes_back_cached_pages_before_pressure(void **state)
{
    uint8_t *a[PAGES], *more[10];

    (void)state;
    assert_int_equal(cl_pool_get(pool, a, PAGES, fp_now_ms()), 0);
    memcpy(cached, a, 10 * sizeof a[0]);
    ncached = 10;
    assert_int_equal(cl_pool_get(pool, more, 10, fp_now_ms() + 1000), 0);
    assert_int_equal(reclaims, 1);
    assert_int_equal(pressures, 0);
    cl_pool_put(pool, a + 10, PAGES - 10);
    cl_pool_put(pool, more, 10);
}

static void *put_later(void *arg)
{
    struct timespec ts = {.tv_nsec = 50000000};

    nanosleep(&ts, NULL);
    cl_pool_put(pool, arg, PAGES);
    return NULL;
}

static void test_pool_waiter_is_woken(void **state)
{
    uint8_t *a[PAGES], *more[PAGES];
    pthread_t t;
    uint64_t t0 = fp_now_ms();

    (void)state;
    assert_int_equal(cl_pool_get(pool, a, PAGES, t0), 0);
    pthread_create(&t, NULL, put_later, a);
    assert_int_equal(cl_pool_get(pool, more, PAGES, t0 + 20000), 0);
    assert_true(fp_now_ms() - t0 < 10000);
    pthread_join(t, NULL);
    cl_pool_put(pool, more, PAGES);
}

/* One that waits for n pages on a thread of its own. */
struct wanted {
    pthread_t thread;
    size_t n;
    uint64_t deadline_ms;
    uint8_t *pages[PAGES];
    _Atomic int rc; /* 1: it waits */
    atomic_bool in_queue;
};

static void *want(void *arg)
{
    struct wanted *w = arg;

    in_queue = &w->in_queue;
    atomic_store(&w->rc, cl_pool_get(pool, w->pages, w->n, w->deadline_ms));
    return NULL;
}

static void wait_for(struct wanted *w, size_t n, uint64_t ms)
{
    uint64_t until = fp_now_ms() + 20000;

    w->n = n;
    w->deadline_ms = fp_now_ms() + ms;
    atomic_store(&w->rc, 1);
    atomic_store(&w->in_queue, false);
    assert_int_equal(pthread_create(&w->thread, NULL, want, w), 0);
    while (!atomic_load(&w->in_queue)) {
        assert_true(fp_now_ms() < until);
        sched_yield();
    }
}

static void got(struct wanted *w)
{
    pthread_join(w->thread, NULL);
    assert_int_equal(atomic_load(&w->rc), 0);
    cl_pool_put(pool, w->pages, w->n);
}

static void test_pool_large_request_is_not_passed_by_small_ones(void **state)
{
    uint8_t *a[PAGES], *one[1];
    static struct wanted large;

    (void)state;
    assert_int_equal(cl_pool_get(pool, a, PAGES, fp_now_ms()), 0);
    wait_for(&large, 17, 60000);
    for (size_t i = 0; i < 16; i++) {
        cl_pool_put(pool, a + i, 1);
        assert_int_equal(cl_pool_get(pool, one, 1, fp_now_ms()), -ETIMEDOUT); /* there is one, but not for who has just come */
        assert_int_equal(cl_pool_try_get(pool, one, 1, 0), -EAGAIN);
    }
    assert_int_equal(atomic_load(&large.rc), 1);
    cl_pool_put(pool, a + 16, 2);
    pthread_join(large.thread, NULL);
    assert_int_equal(atomic_load(&large.rc), 0);
    assert_int_equal(cl_pool_get(pool, one, 1, fp_now_ms()), 0); /* the 18th */
    assert_int_equal(cl_pool_free_pages(pool), 0);
    cl_pool_put(pool, large.pages, 17);
    cl_pool_put(pool, one, 1);
    cl_pool_put(pool, a + 18, PAGES - 18);
}

static void test_pool_serves_in_the_order_of_coming(void **state)
{
    static struct wanted w[4];
    static const size_t n[4] = {20, 1, 30, 2};
    uint8_t *a[PAGES];
    size_t at = 0;

    (void)state;
    assert_int_equal(cl_pool_get(pool, a, PAGES, fp_now_ms()), 0);
    for (int i = 0; i < 4; i++)
        wait_for(&w[i], n[i], 60000);
    for (int i = 0; i < 4; i++) {
        for (size_t k = 0; k < n[i]; k++) {
            for (int later = i; later < 4; later++)
                assert_int_equal(atomic_load(&w[later].rc), 1);
            cl_pool_put(pool, a + at++, 1);
        }
        pthread_join(w[i].thread, NULL);
        assert_int_equal(atomic_load(&w[i].rc), 0);
    }
    assert_int_equal(cl_pool_free_pages(pool), 0);
    for (int i = 0; i < 4; i++)
        cl_pool_put(pool, w[i].pages, n[i]);
    cl_pool_put(pool, a + at, PAGES - at);
}

static void test_pool_who_gives_up_lets_the_next_one_in(void **state)
{
    static struct wanted large, small;
    uint8_t *a[PAGES];

    (void)state;
    assert_int_equal(cl_pool_get(pool, a, PAGES, fp_now_ms()), 0);
    wait_for(&large, 30, 300);
    wait_for(&small, 3, 60000);
    cl_pool_put(pool, a, 5);
    pthread_join(large.thread, NULL);
    assert_int_equal(atomic_load(&large.rc), -ETIMEDOUT);
    got(&small);
    cl_pool_put(pool, a + 5, PAGES - 5);
}

static void *hammer(void *arg)
{
    uint64_t me = (uint64_t)(uintptr_t)arg;
    struct rnd r;

    rnd_init(&r, rnd_seed(), 100 + me);
    for (int i = 0; i < 3000; i++) {
        uint8_t *p[PAGES / 2];
        size_t n = 1 + rnd_below(&r, PAGES / 2);
        int rc = rnd_below(&r, 4) ? cl_pool_get(pool, p, n, fp_now_ms() + 30000) : cl_pool_try_get(pool, p, n, rnd_below(&r, 20));

        if (rc == -EAGAIN)
            continue;
        if (rc != 0)
            return (void *)1;
        for (size_t k = 0; k < n; k++)
            memcpy(p[k], &me, sizeof me);
        if (rnd_below(&r, 8) == 0)
            sched_yield();
        for (size_t k = 0; k < n; k++)
            if (memcmp(p[k], &me, sizeof me) != 0)
                return (void *)2;
        cl_pool_put(pool, p, n);
    }
    return NULL;
}

static void test_pool_page_is_never_in_two_hands(void **state)
{
    pthread_t t[6];

    (void)state;
    (void)rnd_seed();
    for (uintptr_t i = 0; i < 6; i++)
        pthread_create(&t[i], NULL, hammer, (void *)(i + 1));
    for (int i = 0; i < 6; i++) {
        void *bad;

        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    assert_int_equal(cl_pool_free_pages(pool), PAGES);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* A lent page and one of the pool change places: nothing else does, and whoever maps the file finds both. */
static void test_pool_lends_pages_that_may_take_the_place_of_its_own(void **state)
{
    uint8_t *lent[8], *own[PAGES], *more[3], *exchanged;
    struct cl_pool *p;

    (void)state;
    assert_int_equal(cl_pool_new_lending((PAGES + 1) * CL_PAGE_BYTES, 10, reclaim, pressure, &pool, &p), 0);
    assert_int_equal(cl_pool_pages(p), PAGES + 1);
    assert_int_equal(lseek(cl_pool_fd(p), 0, SEEK_END), cl_pool_mapped_bytes(p));
    assert_int_equal(cl_pool_lend(p, lent, 8), 0);
    assert_int_equal(cl_pool_lend(p, more, 3), -EAGAIN);
    assert_int_equal(cl_pool_free_pages(p), PAGES + 1);
    for (unsigned i = 0; i < 8; i++) {
        assert_true((uint64_t)(cl_pool_page_number(p, lent[i]) + 1) * CL_PAGE_BYTES <= cl_pool_mapped_bytes(p));
        memset(lent[i], (int)(i + 1), CL_PAGE_BYTES);
    }
    assert_int_equal(cl_pool_get(p, own, PAGES, fp_now_ms()), 0);
    for (unsigned i = 0; i < PAGES; i++)
        memset(own[i], 0xFF, CL_PAGE_BYTES);
    exchanged = own[5];
    own[5] = lent[2];
    lent[2] = exchanged;
    cl_pool_put(p, own, PAGES);
    assert_int_equal(cl_pool_free_pages(p), PAGES + 1);
    for (unsigned i = 0; i < 8; i++)
        assert_true(lent[i][0] == (i == 2 ? 0xFF : i + 1) && lent[i][CL_PAGE_BYTES - 1] == lent[i][0]);
    cl_pool_take_back(p, lent, 8);
    assert_int_equal(cl_pool_lend(p, lent, 8), 0); /* those that others had are faulted in once more */
    assert_int_equal(cl_pool_lend(p, more, 2), 0);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(lent[i][CL_PAGE_BYTES - 1], lent[i] == exchanged ? 0xFF : lent[i][1]);
    cl_pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_pool_gives_all_or_none),
        T(test_pool_skips_null_pages),
        T(test_pool_wait_ends_at_its_deadline),
        T(test_pool_takes_back_cached_pages_before_pressure),
        T(test_pool_waiter_is_woken),
        T(test_pool_large_request_is_not_passed_by_small_ones),
        T(test_pool_serves_in_the_order_of_coming),
        T(test_pool_who_gives_up_lets_the_next_one_in),
        T(test_pool_page_is_never_in_two_hands),
        T(test_pool_lends_pages_that_may_take_the_place_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
