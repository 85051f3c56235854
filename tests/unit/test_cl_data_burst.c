/*
 * Which writes are a burst, during which nothing is stored (client/data/jobs.h), and who waits for what is stored, so that it begins at once.
 */
#include "tests/unit/cl_fixture.h"

#include <sys/stat.h>

#include "client/data/internal.h"

#define WINDOW (64u << 10)
#define LEN    (3u * WINDOW)

void __wrap_cl_jobs_burst(struct cl_jobs *jobs, bool fits);
void __real_cl_jobs_burst(struct cl_jobs *jobs, bool fits);
void __wrap_cl_jobs_post_later(struct cl_jobs *jobs, struct cl_job *job);
void __real_cl_jobs_post_later(struct cl_jobs *jobs, struct cl_job *job);
void __wrap_cl_jobs_hurry(struct cl_jobs *jobs);
void __real_cl_jobs_hurry(struct cl_jobs *jobs);

bool __wrap_cl_core_connected(struct cl_mount *m);

static struct fx_mount mnt;
static uint8_t bytes[LEN];
static atomic_uint bursts, too_large, hurries, for_later;

bool __wrap_cl_core_connected(struct cl_mount *m)
{
    (void)m;
    return true;
}

void __wrap_cl_jobs_burst(struct cl_jobs *jobs, bool fits)
{
    atomic_fetch_add(&bursts, 1);
    atomic_fetch_add(&too_large, !fits);
    __real_cl_jobs_burst(jobs, fits);
}

void __wrap_cl_jobs_post_later(struct cl_jobs *jobs, struct cl_job *job)
{
    atomic_fetch_add(&for_later, 1);
    __real_cl_jobs_post_later(jobs, job);
}

void __wrap_cl_jobs_hurry(struct cl_jobs *jobs)
{
    atomic_fetch_add(&hurries, 1);
    __real_cl_jobs_hurry(jobs);
}

/* The benefactor is another node's, and can be had to answer late: until then nothing is stored. */
static int setup(void **state)
{
    (void)state;
    fx_begin(&mnt, false, 5000);
    mnt.m.opt.close_mode = CL_CLOSE_BEHIND;
    fx_fill(bytes, sizeof bytes, 5);
    bursts = too_large = hurries = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fx_over(&mnt);
    return 0;
}

static void open_new(struct cl_handle *h)
{
    fx_open(&mnt, h, world_file_new(WINDOW, 1));
    assert_int_equal(fx_write(&mnt, h, bytes, 1, 0), 1);
    assert_int_equal(cl_data_flush(&mnt.m, h->inode), 0); /* space is leased */
    bursts = hurries = for_later = 0;
}

static void test_burst_is_of_large_writes_that_no_close_waits_for(void **state)
{
    struct cl_handle h;

    (void)state;
    open_new(&h);
    assert_int_equal(fx_write(&mnt, &h, bytes, WINDOW - 1, 0), WINDOW - 1);
    assert_int_equal(bursts, 0);
    mnt.m.opt.close_mode = CL_CLOSE_PUBLISH;
    assert_int_equal(fx_write(&mnt, &h, bytes, LEN, 0), LEN);
    assert_int_equal(bursts, 0);
    mnt.m.opt.close_mode = CL_CLOSE_BEHIND;
    mnt.m.opt.ncores = 1; /* stored by other cores */
    assert_int_equal(fx_write(&mnt, &h, bytes, LEN, 0), LEN);
    assert_int_equal(bursts, 0);
    mnt.m.opt.ncores = 0;
    assert_int_equal(fx_write(&mnt, &h, bytes, LEN, 0), LEN);
    assert_int_equal(bursts, 1);
    assert_int_equal(too_large, 0);
    assert_true(for_later >= LEN / WINDOW); /* what is full */
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    fx_close(&mnt, &h);
}

static void test_burst_fits_half_of_the_pool(void **state)
{
    atomic_ullong *dirty = &mnt.m.data->dirty_bytes;
    uint64_t others = cl_pool_pages(mnt.m.data->pool) / 2 * CL_PAGE_BYTES - LEN;
    struct cl_handle h;

    (void)state;
    open_new(&h);
    atomic_fetch_add(dirty, others); /* of other files */
    assert_int_equal(fx_write(&mnt, &h, bytes, LEN, 0), LEN);
    assert_int_equal(bursts, 1);
    assert_int_equal(too_large, 0);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    atomic_fetch_add(dirty, 1);
    assert_int_equal(fx_write(&mnt, &h, bytes, LEN, 0), LEN);
    assert_int_equal(bursts, 2);
    assert_int_equal(too_large, 1);
    atomic_fetch_sub(dirty, others + 1);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    fx_close(&mnt, &h);
}

static void *answers_when_somebody_waits(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20000 && hurries == 0; i++)
        usleep(1000);
    world_bnf(1)->hold_answers = false;
    return NULL;
}

static void test_burst_is_over_for_fsync(void **state)
{
    struct cl_handle h;
    pthread_t t;

    (void)state;
    open_new(&h);
    world_bnf(1)->hold_answers = true;
    assert_int_equal(fx_write(&mnt, &h, bytes, LEN, 0), LEN);
    assert_int_equal(hurries, 0);
    pthread_create(&t, NULL, answers_when_somebody_waits, NULL);
    assert_int_equal(cl_data_fsync(&mnt.m, h.inode), 0);
    pthread_join(t, NULL);
    assert_true(hurries > 0);
    fx_close(&mnt, &h);
}

static void test_burst_is_over_for_other_mounts(void **state)
{
    struct cl_handle h;
    Fp__Attr a;
    int rc = -1;

    (void)state;
    open_new(&h);
    world_attr(h.inode->ino, &a);
    cl_data_lease(h.inode, true, a.data_version);
    assert_int_equal(fx_write(&mnt, &h, bytes, LEN, 0), LEN);
    cl_data_recalled(&mnt.m, h.inode->ino, 1);
    assert_int_equal(hurries, 0); /* nothing of it was closed */
    cl_data_lease(h.inode, true, a.data_version);
    world_bnf(1)->hold_answers = true;
    assert_int_equal(fx_write(&mnt, &h, bytes, LEN, 0), LEN);
    assert_true(cl_data_close_behind(&mnt.m, &h, &rc));
    assert_int_equal(hurries, 0);
    cl_data_recalled(&mnt.m, h.inode->ino, 2);
    assert_int_equal(hurries, 1);
    world_bnf(1)->hold_answers = false;
    for (int i = 0; i < 20000 && world_recalled != 2; i++)
        usleep(1000);
    assert_int_equal(world_recalled, 2);
    fx_close(&mnt, &h);
}

static void test_burst_is_over_when_the_pool_is_empty(void **state)
{
    (void)state;
    cl_age_pressure(mnt.m.data);
    assert_int_equal(hurries, 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_burst_is_of_large_writes_that_no_close_waits_for),
        T(test_burst_fits_half_of_the_pool),
        T(test_burst_is_over_for_fsync),
        T(test_burst_is_over_for_other_mounts),
        T(test_burst_is_over_when_the_pool_is_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
