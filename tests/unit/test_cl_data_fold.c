/*
 * Reservations of what is written, and folding, over the models of cl_world.h: a store in which small changes come to no end, and a window that is changed while
 * it is folded.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>

#include "client/data/fold.h"
#include "client/data/space.h"

#define WIN (1u << 20)

static struct fx_mount mnt, other;
static struct world_bnf *bnf;
static struct cl_handle h, h2;
static uint8_t *want, *buf;
static uint64_t ino, size;

static void begin(uint64_t capacity, uint64_t size_max)
{
    memset(&world_faults, 0, sizeof world_faults);
    world_core_start();
    bnf = world_bnf_add(1, true, capacity);
    fx_start(&mnt, 7, 5000);
    mnt.m.opt.fold = true;
    ino = world_file_new(WIN, 1);
    fx_open(&mnt, &h, ino);
    want = calloc(size_max, 1);
    buf = calloc(size_max, 1);
    size = size_max;
}

static void end(void)
{
    fx_end(&mnt, &h);
    free(want);
    free(buf);
    world_before_fold = NULL;
}

static ssize_t put(uint64_t off, size_t len, uint32_t key)
{
    ssize_t n;

    fx_fill(buf, len, key);
    n = fx_write(&mnt, &h, buf, len, off);
    if (n > 0)
        memcpy(want + off, buf, (size_t)n);
    return n;
}

static void check_bytes(void)
{
    uint64_t n = world_view(ino, buf, size);

    assert_memory_equal(buf, want, n);
    memset(buf, 0, size);
    for (uint64_t off = 0; off < n; off += WIN)
        assert_true(fx_read(&mnt, &h, buf + off, n - off < WIN ? n - off : WIN, off) > 0);
    assert_memory_equal(buf, want, n);
}

static void wait_folds(uint64_t more_than)
{
    uint64_t lost, until_ms = fp_now_ms() + 30000;

    while (world_folds(&lost) <= more_than) {
        (void)cl_fold_now(mnt.m.data, 100);
        assert_true(fp_now_ms() < until_ms);
    }
    while (cl_fold_now(mnt.m.data, 1000)) /* and the others */
        ;
}

/* Sixty windows with 16 KiB at the end of each are 1.2 MiB, and not sixty. */
static void test_fold_reserves_what_is_written(void **state)
{
    (void)state;
    begin(6 * WIN, 60 * WIN);
    for (uint32_t i = 0; i < 60; i++)
        assert_int_equal(put((uint64_t)(i + 1) * WIN - 16384, 16384, i), 16384);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    check_bytes();
    assert_true(world_stored_bytes() <= 60 * (16384 + 4096 + 4096));
    end();
}

/* Buffers that grow in a store that is nearly full: to its last block, and what was accepted is there. */
static void test_fold_reservations_grow_and_enospc_is_told_to_write(void **state)
{
    uint64_t done = 0;
    ssize_t n = 0;

    (void)state;
    begin(4 * WIN, 16 * WIN);
    for (uint32_t i = 0; i < 16 * 128 && n >= 0; i++) { /* sixteen windows at a time */
        n = put((uint64_t)(i % 16) * WIN + i / 16 * 8192, 8192, i);
        done += n > 0 ? (uint64_t)n : 0;
    }
    assert_int_equal(n, -ENOSPC);
    assert_true(done > 3 * WIN);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    check_bytes();
    end();
}

/* 8 of 24 MiB, changed again and again in small pieces; each round is published. */
static void test_fold_small_changes_come_to_no_end(void **state)
{
    uint64_t rnd = 5, lost;

    (void)state;
    begin(24 * WIN, 8 * WIN);
    world_faults.mgr_folds = true;
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(put((uint64_t)i * WIN, WIN, i), WIN);
    for (uint32_t round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < 40; i++) {
            rnd = rnd * 6364136223846793005u + 1442695040888963407u;
            assert_int_equal(put((rnd >> 33) % (8 * WIN / 4096 - 4) * 4096, 16384, round * 100 + i), 16384);
        }
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    }
    assert_true(world_folds(&lost) > 0);
    check_bytes();
    end();
}

static void patch_windows(void)
{
    for (uint32_t w = 0; w < 4; w++)
        assert_int_equal(put((uint64_t)w * WIN, WIN, w), WIN);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    for (uint32_t i = 0; i < 4 * 8; i++) {
        assert_int_equal(put((uint64_t)i * (WIN / 8), WIN / 16, 77 + i), WIN / 16);
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    }
}

static uint64_t full_ms(void)
{
    uint64_t begun_ms = fp_now_ms();

    assert_int_equal(put(5 * WIN, WIN, 3), -ENOSPC);
    return fp_now_ms() - begun_ms;
}

static bool has_leases(void)
{
    bool has;

    pthread_mutex_lock(&bnf->lock);
    has = bnf->leases != NULL;
    pthread_mutex_unlock(&bnf->lock);
    return has;
}

static void let_leases_go(void)
{
    uint64_t until_ms = fp_now_ms() + 10000;

    while (has_leases()) {
        cl_space_tick(mnt.m.data, fp_now_ms() + 3000, true); /* they have not been in use for so long */
        usleep(20000);
        assert_true(fp_now_ms() < until_ms);
    }
}

/* Other mounts have taken what a fold would need: it is hoped for for a while, and not by each write again. */
static void test_fold_without_space_is_enospc_in_time(void **state)
{
    uint64_t begun_ms;

    (void)state;
    begin(400 * WIN, 8 * WIN);
    world_faults.mgr_folds = true;
    patch_windows();
    assert_true(cl_fold_spare_bytes(mnt.m.data) > 0);
    let_leases_go();
    bnf->lease_err = -ENOSPC;
    begun_ms = fp_now_ms();
    assert_in_range(full_ms(), 500, 12000);
    while (fp_now_ms() < begun_ms + 12000)
        (void)full_ms();
    assert_in_range(full_ms(), 0, 2500);
    assert_int_equal(cl_fold_spare_bytes(mnt.m.data), 0);
    bnf->lease_err = 0;
    assert_int_equal(put(5 * WIN, WIN, 3), WIN);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    check_bytes();
    end();
}

/* What it needs is kept for it while it waits for its next try: a write that took it would leave the store full for good. */
static void test_fold_that_had_no_space_has_it_next_time(void **state)
{
    (void)state;
    begin(400 * WIN, 8 * WIN);
    world_faults.mgr_folds = true;
    patch_windows();
    let_leases_go();
    bnf->lease_err = -ENOSPC;
    (void)cl_fold_now(mnt.m.data, 500); /* all have tried, and wait */
    pthread_mutex_lock(&bnf->lock);
    bnf->capacity = bnf->used + WIN + WIN / 4;
    pthread_mutex_unlock(&bnf->lock);
    bnf->lease_err = 0;
    for (uint32_t i = 5; i < 7; i++)
        assert_int_equal(put(i * WIN, WIN, i), WIN);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    check_bytes();
    end();
}

static void test_fold_makes_one_chunk_of_a_window(void **state)
{
    uint64_t lost, folds;

    (void)state;
    begin(400 * WIN, 4 * WIN);
    world_faults.mgr_folds = true;
    patch_windows();
    wait_folds(0);
    assert_int_equal(world_chunk_count(), 4);
    assert_int_equal(world_slice_count(ino), 4);
    folds = world_folds(&lost);
    assert_true(folds >= 4 && lost == 0);
    assert_int_equal(mnt.m.data->errors, 0);
    check_bytes();
    end();
}

static bool raced;

/* Another mount writes to the window that is being folded. */
static void write_on_other(void)
{
    if (raced)
        return;
    raced = true;
    for (uint32_t w = 0; w < 4; w++) {
        memset(want + (uint64_t)w * WIN + 5000, 'o', 100);
        assert_int_equal(fx_write(&other, &h2, want + (uint64_t)w * WIN + 5000, 100, (uint64_t)w * WIN + 5000), 100);
    }
    assert_int_equal(cl_data_flush(&other.m, h2.inode), 0);
}

static void test_fold_that_another_mount_was_faster_than(void **state)
{
    uint64_t lost, chunks;

    (void)state;
    begin(400 * WIN, 4 * WIN);
    fx_start(&other, 8, 5000);
    other.m.opt.fold = true;
    fx_open(&other, &h2, ino);
    world_faults.mgr_folds = true;
    raced = false;
    world_before_fold = write_on_other;
    patch_windows();
    wait_folds(0);
    (void)world_folds(&lost);
    assert_true(raced && lost > 0);
    chunks = world_chunk_count();
    assert_true(chunks >= 4);
    fx_close(&other, &h2);
    fx_stop(&other);
    fx_close(&mnt, &h); /* looked up anew, as by an open */
    fx_open(&mnt, &h, ino);
    check_bytes();
    assert_int_equal(mnt.m.data->errors, 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fold_reserves_what_is_written),
        cmocka_unit_test(test_fold_reservations_grow_and_enospc_is_told_to_write),
        cmocka_unit_test(test_fold_small_changes_come_to_no_end),
        cmocka_unit_test(test_fold_without_space_is_enospc_in_time),
        cmocka_unit_test(test_fold_that_had_no_space_has_it_next_time),
        cmocka_unit_test(test_fold_makes_one_chunk_of_a_window),
        cmocka_unit_test(test_fold_that_another_mount_was_faster_than),
    };

    alarm(200);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
