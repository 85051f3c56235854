/*
 * Strict files (client/data/strict.c, snapshot.c): two mounts over the models of manager and benefactors. What has returned on one is seen by the other, whole,
 * and nothing else is; what fails leaves nothing behind.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define WINDOW     (64u << 10)
#define TIMEOUT_MS 1500u
#define RECORD     (5u * WINDOW + 1234u) /* over seven windows, from OFF on */
#define OFF        60000u

static struct fx_mount mnt[2];
static struct cl_handle h[2];
static uint64_t ino;
static uint8_t bytes[RECORD], got[2 * RECORD];

static int setup(void **state)
{
    (void)state;
    memset(&world_faults, 0, sizeof world_faults);
    world_faults.mgr_strict = true;
    world_core_start();
    world_bnf_add(1, true, 400u << 20);
    fx_start(&mnt[0], 7, TIMEOUT_MS);
    fx_start(&mnt[1], 8, TIMEOUT_MS);
    ino = world_file_new(WINDOW, 1);
    for (int i = 0; i < 2; i++)
        fx_open(&mnt[i], &h[i], ino);
    return 0;
}

/* What has failed has gone. */
static void settle(int i)
{
    struct cl_data *d = mnt[i].m.data;
    bool quiet = false;

    for (int n = 0; n < 3000 && !quiet; n++) {
        pthread_mutex_lock(&d->strict_lock);
        quiet = !d->strict_left;
        pthread_mutex_unlock(&d->strict_lock);
        quiet = quiet && atomic_load(&d->dirty_bytes) == 0 && atomic_load(&d->uncommitted_bytes) == 0;
        usleep(quiet ? 0 : 10000);
    }
    assert_true(quiet);
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        settle(i);
        fx_check_file_quiet(&h[i]);
        assert_int_equal(h[i].inode->file ? h[i].inode->file->strict_late : 0, 0);
        fx_close(&mnt[i], &h[i]);
        fx_stop(&mnt[i]);
    }
    world_core_stop();
    world_bnf_fini();
    world_mgr_reset();
    return 0;
}

static ssize_t put(int i, uint8_t value, size_t len, uint64_t off)
{
    memset(bytes, value, len);
    return fx_write(&mnt[i], &h[i], bytes, len, off);
}

static ssize_t get(int i, size_t len, uint64_t off)
{
    return fx_read(&mnt[i], &h[i], got, len, off);
}

static void is_all(uint8_t value, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (got[i] != value)
            fail_msg("byte %zu is %u, not %u", i, got[i], value);
}

/* Seen by the other mount without a flush, and in one commit. */
static void test_strict_write_is_seen_when_it_returns(void **state)
{
    (void)state;
    for (unsigned r = 0; r < 20; r++) {
        unsigned before = world_faults.mgr_commits;

        assert_int_equal(put(r % 2, (uint8_t)(r + 1), RECORD, OFF), RECORD);
        assert_int_equal(world_faults.mgr_commits, before + 1);
        assert_int_equal(get((r + 1) % 2, sizeof got, OFF), RECORD);
        is_all((uint8_t)(r + 1), RECORD);
        assert_int_equal(get(r % 2, 100, OFF + RECORD - 50), 50);
        is_all((uint8_t)(r + 1), 50);
    }
}

/* What is known and still so is not told again. */
static void test_strict_read_of_what_has_not_changed_is_told_no_slices(void **state)
{
    unsigned told;

    (void)state;
    assert_int_equal(put(0, 1, RECORD, 0), RECORD);
    assert_int_equal(get(1, RECORD, 0), RECORD);
    told = world_faults.mgr_slices_told;
    for (int i = 0; i < 5; i++)
        assert_int_equal(get(1, RECORD - 10, 5), RECORD - 10);
    assert_int_equal(world_faults.mgr_slices_told, told);
    assert_int_equal(put(0, 2, 10, 5), 10);
    assert_int_equal(get(1, 10, 5), 10);
    is_all(2, 10);
    assert_true(world_faults.mgr_slices_told > told);
}

struct side {
    int mount;
    bool writes;
    uint8_t base;
    atomic_bool *stop;
    atomic_uint n;
};

static void *run_side(void *arg)
{
    struct side *s = arg;
    uint8_t *buf = malloc(RECORD);

    for (; !atomic_load(s->stop); s->n++) {
        if (s->writes) {
            memset(buf, s->base + (s->n % 50), RECORD);
            WORLD_CHECK(fx_write(&mnt[s->mount], &h[s->mount], buf, RECORD, OFF) == RECORD);
            world_sleep_up_to(60000); /* a read has to come to an end within one version */
            continue;
        }
        WORLD_CHECK(fx_read(&mnt[s->mount], &h[s->mount], buf, RECORD, OFF) == RECORD);
        WORLD_CHECK(memcmp(buf, buf + 1, RECORD - 1) == 0);
    }
    free(buf);
    return NULL;
}

/* Two writers and a reader on each mount, while chunks are deleted under them as soon as they are overwritten. */
static void test_strict_reads_never_mix_writes(void **state)
{
    atomic_bool stop = false;
    struct side s[6];
    pthread_t t[6];

    (void)state;
    world_faults.mgr_delay_us = 200;
    world_faults.bnf_delay_us = 100;
    assert_int_equal(put(0, 1, RECORD, OFF), RECORD);
    for (int i = 0; i < 6; i++) {
        s[i] = (struct side){ .mount = i % 2, .writes = i < 4, .base = (uint8_t)(1 + 60 * i), .stop = &stop };
        assert_int_equal(pthread_create(&t[i], NULL, run_side, &s[i]), 0);
    }
    for (uint64_t until_ms = fp_now_ms() + 20000; fp_now_ms() < until_ms && (s[0].n < 60 || s[1].n < 60 || s[4].n < 60 || s[5].n < 60);)
        usleep(10000);
    atomic_store(&stop, true);
    for (int i = 0; i < 6; i++)
        pthread_join(t[i], NULL);
    assert_true(s[0].n > 10 && s[1].n > 10 && s[4].n > 10 && s[5].n > 10);
}

static void test_strict_appends_go_to_the_end_that_the_manager_knows(void **state)
{
    (void)state;
    assert_int_equal(put(0, 1, 50000, 0), 50000);
    memset(bytes, 2, RECORD);
    assert_int_equal(cl_data_append(&mnt[1].m, &h[1], (char *)bytes, RECORD, false), RECORD); /* it has not looked at the size */
    memset(bytes, 3, 10);
    assert_int_equal(cl_data_append(&mnt[0].m, &h[0], (char *)bytes, 10, false), 10);
    assert_int_equal(get(1, sizeof got, 0), 50000 + RECORD + 10);
    is_all(1, 50000);
    memmove(got, got + 50000, RECORD + 10);
    is_all(2, RECORD);
    memmove(got, got + RECORD, 10);
    is_all(3, 10);
}

static void test_strict_write_that_can_not_be_stored_leaves_nothing(void **state)
{
    uint64_t chunks;

    (void)state;
    assert_int_equal(put(0, 1, RECORD, OFF), RECORD);
    chunks = world_chunk_count();
    world_bnf(1)->store_err = -EIO;
    assert_int_equal(fp_err_to_errno((int)put(0, 2, RECORD, OFF)), EIO); /* of the device, or that nobody is left to take it */
    world_bnf(1)->store_err = 0;
    assert_int_equal(cl_data_flush(&mnt[0].m, h[0].inode), 0); /* it was told */
    assert_false(cl_data_has_lost(&mnt[0].m)); /* nor is the mount's end a bad one */
    assert_int_equal(get(1, RECORD, OFF), RECORD);
    is_all(1, RECORD);
    settle(0);
    assert_int_equal(world_chunk_count(), chunks);
    for (int tries = 0; tries < 100 && put(0, 3, RECORD, OFF) != RECORD; tries++) /* the benefactor is avoided for a while */
        usleep(50000);
    assert_int_equal(get(1, RECORD, OFF), RECORD);
    is_all(3, RECORD);
}

/* The manager refuses one window: then all of it. What was stored is deleted. */
static void test_strict_write_of_too_many_pieces_is_refused_as_a_whole(void **state)
{
    uint64_t chunks;

    (void)state;
    assert_int_equal(put(0, 1, RECORD, OFF), RECORD);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(put(0, 2, 10, 3 * WINDOW + 100 * i), 10);
    chunks = world_chunk_count();
    world_faults.mgr_window_max = 4;
    assert_int_equal(put(0, 3, RECORD, OFF), -EFBIG);
    world_faults.mgr_window_max = 0;
    assert_int_equal(get(1, WINDOW, OFF), WINDOW);
    is_all(1, WINDOW);
    settle(0);
    assert_int_equal(world_chunk_count(), chunks);
}

/* It can't be known whether it was executed: until it is, no other change of this mount is sent that it could undo. */
static void test_strict_write_without_an_answer(void **state)
{
    (void)state;
    assert_int_equal(put(0, 1, RECORD, OFF), RECORD);
    world_faults.mgr_lost_before = 1;
    assert_int_equal(put(0, 2, RECORD, OFF), -EIO);
    assert_int_equal(put(0, 3, 10, 0), -EIO);
    assert_int_equal(fx_truncate(&mnt[0], &h[0], 0), -EIO);
    assert_int_equal(get(1, RECORD, OFF), RECORD);
    is_all(1, RECORD);
    world_mgr_back();
    assert_int_equal(get(0, RECORD, OFF), RECORD);
    is_all(2, RECORD);
    assert_int_equal(put(0, 3, RECORD, OFF), RECORD);
    assert_int_equal(get(1, RECORD, OFF), RECORD);
    is_all(3, RECORD);
}

/* The same, and it was executed: once. */
static void test_strict_append_whose_answer_is_lost_is_made_once(void **state)
{
    (void)state;
    world_faults.mgr_lost_after = 1;
    memset(bytes, 4, 1000);
    assert_int_equal(cl_data_append(&mnt[0].m, &h[0], (char *)bytes, 1000, false), -EIO);
    world_mgr_back();
    assert_int_equal(get(1, RECORD, 0), 1000);
}

static uint64_t nrecs(uint32_t bnf)
{
    struct world_bnf *b = world_bnf(bnf);

    pthread_mutex_lock(&b->lock);
    uint64_t n = b->nrecs;
    pthread_mutex_unlock(&b->lock);
    return n;
}

/* What it refers to is on a benefactor that is away: it may come back. */
static void test_strict_write_beside_a_benefactor_that_is_away(void **state)
{
    (void)state;
    world_faults.mgr_away = true;
    assert_int_equal(put(0, 1, RECORD, OFF), FP_EAWAY);
    assert_true(world_faults.mgr_away_asked > 2);
    settle(0);
    assert_int_equal(nrecs(1), 0); /* what was stored of it is gone, though it is still away */
    world_faults.mgr_away = false;
    assert_int_equal(get(1, RECORD, 0), 0);
}

static void test_strict_fsync_syncs_what_was_written(void **state)
{
    (void)state;
    for (unsigned r = 0; r < 3; r++) {
        assert_int_equal(put(0, 1, RECORD, OFF), RECORD);
        assert_true(h[0].inode->file->unsynced);
        assert_int_equal(cl_data_fsync(&mnt[0].m, h[0].inode), 0);
        assert_false(h[0].inode->file->unsynced);
    }
    h[0].flags |= O_SYNC;
    assert_int_equal(put(0, 1, RECORD, OFF), RECORD);
    assert_false(h[0].inode->file->unsynced);
}

/* A chunk that is damaged is EIO, soon, and told to the manager: not an endless search for a better version. */
static void test_strict_read_of_a_damaged_chunk(void **state)
{
    uint32_t bnf, at;
    uint64_t chunk;

    (void)state;
    assert_int_equal(put(0, 1, RECORD, OFF), RECORD);
    chunk = world_chunk_at(ino, OFF + 10, &bnf, &at);
    assert_true(world_bnf_flip(world_bnf(bnf), chunk, at));
    assert_int_equal(get(1, 100, OFF), FP_ECHECKSUM);
    assert_int_equal(world_bad_chunks(), 1);
    assert_int_equal(get(1, 100, OFF + 2 * WINDOW), 100);
}

/* Without an answer of the benefactor the write ends in time; what is still under way then goes later. */
static void test_strict_write_to_a_benefactor_that_stands_still(void **state)
{
    struct world_bnf *b;

    (void)state;
    world_bnf(1)->down = true;
    world_bnf_break(world_bnf(1));
    b = world_bnf_add(2, false, 400u << 20);
    fx_table(&mnt[0]);
    fx_table(&mnt[1]);
    assert_int_equal(put(0, 1, 1000, 0), 1000);
    b->hold_answers = true;
    assert_true(put(0, 2, RECORD, OFF) < 0);
    b->hold_answers = false;
    settle(0);
    assert_int_equal(get(1, RECORD, 0), 1000);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_strict_write_is_seen_when_it_returns),
        T(test_strict_read_of_what_has_not_changed_is_told_no_slices),
        T(test_strict_reads_never_mix_writes),
        T(test_strict_appends_go_to_the_end_that_the_manager_knows),
        T(test_strict_write_that_can_not_be_stored_leaves_nothing),
        T(test_strict_write_of_too_many_pieces_is_refused_as_a_whole),
        T(test_strict_write_without_an_answer),
        T(test_strict_append_whose_answer_is_lost_is_made_once),
        T(test_strict_write_beside_a_benefactor_that_is_away),
        T(test_strict_fsync_syncs_what_was_written),
        T(test_strict_read_of_a_damaged_chunk),
        T(test_strict_write_to_a_benefactor_that_stands_still),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
