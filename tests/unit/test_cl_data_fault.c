/*
 * The data path of fp-mount when something fails: full and failing benefactors, broken links, a manager that does not answer, a
 * forgotten session, chunks that another mount has replaced, damaged data. What was accepted is there after a flush that
 * returned 0; a loss is told; and every account is at zero in the end.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "client/aux/aux.h"

#define MIB (1u << 20)
#define SIZE_BYTES (8u * MIB)

static struct fx_mount mnt, other;
static struct world_bnf *b1, *b2;
static struct cl_handle h;
static uint8_t *want, *buf;
static uint64_t ino, size;
static struct rnd r;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
static atomic_int syncs_started, syncs_done, sync_delay_us;

int __wrap_fdatasync(int fd)
{
    int rc;

    atomic_fetch_add(&syncs_started, 1);
    if (sync_delay_us)
        usleep((useconds_t)sync_delay_us);
    rc = __real_fdatasync(fd);
    atomic_fetch_add(&syncs_done, 1);
    return rc;
}

static void begin(bool local, uint64_t capacity, uint32_t window, uint64_t io_timeout_ms)
{
    rnd_init(&r, rnd_seed(), 50);
    memset(&world_faults, 0, sizeof world_faults);
    sync_delay_us = 0;
    world_core_start();
    b1 = world_bnf_add(1, local, capacity);
    b2 = NULL;
    fx_start(&mnt, 7, io_timeout_ms);
    ino = world_file_new(window, 1);
    fx_open(&mnt, &h, ino);
    want = calloc(SIZE_BYTES, 1);
    buf = calloc(SIZE_BYTES, 1);
    size = 0;
}

static void second_bnf(bool local, uint64_t capacity)
{
    b2 = world_bnf_add(2, local, capacity);
    fx_table(&mnt);
}

static void end(void)
{
    fx_end(&mnt, &h);
    free(want);
    free(buf);
}

static ssize_t put(uint64_t off, size_t len)
{
    ssize_t n;

    fx_fill(buf, len, rnd_below(&r, 251));
    n = fx_write(&mnt, &h, buf, len, off);
    if (n > 0) {
        memcpy(want + off, buf, (size_t)n);
        if (off + (uint64_t)n > size)
            size = off + (uint64_t)n;
    }
    return n;
}

static void put_all(uint64_t off, size_t len)
{
    assert_int_equal(put(off, len), len);
}

static void check_read(struct fx_mount *x, struct cl_handle *hd)
{
    for (uint64_t off = 0; off < size;) {
        size_t n = size - off < MIB ? (size_t)(size - off) : MIB;

        assert_int_equal(fx_read(x, hd, buf, n, off), n);
        assert_memory_equal(buf, want + off, n);
        off += n;
    }
}

static void check_view(void)
{
    assert_int_equal(world_view(ino, buf, SIZE_BYTES), size);
    assert_memory_equal(buf, want, size);
}

static void random_writes(unsigned n, uint32_t len_max)
{
    for (unsigned i = 0; i < n; i++) {
        uint32_t len = 1 + rnd_below(&r, len_max);

        put_all(rnd_below(&r, SIZE_BYTES - len), len);
    }
}

/* -------------------------------------------------------------- space */

/* A write that finds no space has the other files of the mount published; not one by an aux-app, which they may be waiting for. */
static void no_space_publishes_others(bool own)
{
    struct cl_handle second;
    uint64_t dirty, uncommitted;

    begin(true, 4 * MIB, 256u << 10, 4000);
    fx_open(&mnt, &second, world_file_new(256u << 10, 1));
    assert_int_equal(fx_write(&mnt, &second, want, 1000, 0), 1000);
    h.inode->aux_serial = own ? CL_AUX_SERIAL_OWN : 0;
    while (put(size, 100000) > 0)
        ;
    cl_data_at_risk(second.inode, &dirty, &uncommitted);
    assert_int_equal(dirty + uncommitted > 0, own);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cl_data_flush(&mnt.m, i ? h.inode : second.inode), 0);
        fx_check_file_quiet(i ? &h : &second);
    }
    fx_close(&mnt, &second);
    end();
}

static void test_fault_no_space_publishes_other_files(void **state)
{
    (void)state;
    no_space_publishes_others(false);
}

static void test_fault_no_space_for_an_aux_app_publishes_nothing(void **state)
{
    (void)state;
    no_space_publishes_others(true);
}

static void fill_until_full(bool local)
{
    uint64_t t0;
    ssize_t n;
    int rounds = 0;

    begin(local, 4 * MIB, 256u << 10, 4000);
    while ((n = put(size, 100000)) > 0)
        assert_true(size < 5 * MIB);
    assert_int_equal(n, -ENOSPC);
    assert_true(size > 3 * MIB + MIB / 2); /* little is lost to records that did not fit */
    t0 = fp_now_ms();
    assert_int_equal(put(size, 100000), -ENOSPC);
    assert_true(fp_now_ms() - t0 < 2000);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0); /* what was accepted has its place */
    fx_check_file_quiet(&h);
    check_view();
    check_read(&mnt, &h);
    assert_int_equal(fx_truncate(&mnt, &h, 0), 0);
    memset(want, 0, size);
    size = 0;
    while ((n = put(0, 1000)) == -ENOSPC && rounds++ < 50)
        usleep(50000);
    assert_int_equal(n, 1000); /* freed space can be used */
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    check_view();
    end();
}

static void test_fault_full_store_is_told_by_write_not_by_close(void **state)
{
    (void)state;
    fill_until_full(true);
    fill_until_full(false);
}

static void test_fault_the_last_of_a_full_store_can_be_used(void **state)
{
    (void)state;
    begin(true, MIB, MIB, 3000); /* a whole window does not fit */
    put_all(0, 50000);
    put_all(4 * MIB, 50000);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    check_view();
    end();
}

static void test_fault_refused_leases_go_to_the_next_benefactor(void **state)
{
    (void)state;
    begin(true, 100 * MIB, MIB, 5000);
    second_bnf(false, 100 * MIB);
    b1->lease_err = -ENOSPC;
    random_writes(20, 300000);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    check_view();
    assert_int_equal(world_bnf_used(b1), 0);
    end();
}

static void test_fault_benefactor_away_for_a_moment_is_not_enospc(void **state)
{
    (void)state;
    for (int local = 0; local < 2; local++) {
        begin(local, 100 * MIB, MIB, 1500);
        b1->down = true;
        assert_int_equal(put(0, 1000), FP_ENOBENEFACTOR); /* after the timeout, and not "full" */
        b1->down = false;
        put_all(0, 1000);
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
        check_view();
        end();
    }
}

/* -------------------------------------------------------------- storing */

static void test_fault_failing_store_goes_elsewhere(void **state)
{
    (void)state;
    for (int local = 0; local < 2; local++) {
        begin(local, 100 * MIB, MIB, 8000);
        second_bnf(!local, 100 * MIB);
        b1->store_err = b2->store_err = -EIO;
        random_writes(8, 300000);
        (local ? b2 : b1)->store_err = 0;
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
        check_view();
        check_read(&mnt, &h);
        assert_true((local ? b1 : b2)->stores > 0);
        (local ? b1 : b2)->store_err = 0;
        end();
    }
}

static void test_fault_store_that_never_works_is_told_once(void **state)
{
    (void)state;
    begin(true, 100 * MIB, MIB, 1500);
    put_all(0, 1000);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    b1->store_err = -EIO;
    fx_fill(buf, 100, 3);
    assert_int_equal(fx_write(&mnt, &h, buf, 100, 500), 100);
    assert_true(cl_data_flush(&mnt.m, h.inode) < 0);
    for (int i = 0; i < 100 && (cl_data_flush(&mnt.m, h.inode), mnt.m.data->dirty_bytes) > 0; i++)
        usleep(50000);
    b1->store_err = 0;
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0); /* told once */
    fx_check_file_quiet(&h);
    check_view(); /* the last good version */
    usleep(600000);
    put_all(200, 5000);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    check_view();
    check_read(&mnt, &h);
    end();
}

static void test_fault_sync_of_everything_leaves_the_error_to_its_file(void **state)
{
    (void)state;
    begin(true, 100 * MIB, MIB, 1000);
    b1->store_err = -EIO;
    fx_fill(buf, 100, 3);
    assert_int_equal(fx_write(&mnt, &h, buf, 100, 0), 100);
    for (int i = 0; i < 100 && mnt.m.data->dirty_bytes > 0; i++)
        (void)cl_data_sync_all(&mnt.m, false, fp_now_ms() + 3000);
    assert_true(cl_data_sync_all(&mnt.m, false, fp_now_ms() + 3000) < 0);
    assert_true(cl_data_sync_all(&mnt.m, true, fp_now_ms() + 3000) < 0);
    b1->store_err = 0;
    assert_true(cl_data_fsync(&mnt.m, h.inode) < 0);
    assert_int_equal(cl_data_fsync(&mnt.m, h.inode), 0);
    end();
}

static void break_rounds(bool local, bool executes)
{
    begin(local, 200 * MIB, 256u << 10, 20000);
    b1->break_executes = executes;
    world_faults.bnf_delay_us = 200;
    for (int round = 0; round < 12; round++) {
        b1->break_after = 1 + (int)rnd_below(&r, 12);
        random_writes(8, 200000);
        if (round % 3 == 0)
            world_bnf_break(b1);
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
        fx_check_file_quiet(&h);
        check_view();
        if (round % 4 == 0)
            check_read(&mnt, &h);
    }
    b1->break_after = 0;
    check_read(&mnt, &h);
    end();
}

static void test_fault_broken_local_link_costs_nothing(void **state)
{
    (void)state;
    break_rounds(true, false);
    break_rounds(true, true);
}

static void test_fault_broken_connection_costs_nothing(void **state)
{
    (void)state;
    break_rounds(false, false);
    break_rounds(false, true);
}

static void test_fault_old_segment_numbers_of_a_new_benefactor_are_new_segments(void **state)
{
    (void)state;
    begin(true, 100 * MIB, 256u << 10, 8000);
    for (int round = 0; round < 3; round++) {
        put_all(0, 600000);
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
        check_view();
        check_read(&mnt, &h);
        assert_int_equal(fx_truncate(&mnt, &h, 0), 0); /* nothing is lost with the benefactor */
        memset(want, 0, size);
        size = 0;
        world_bnf_restart_empty(b1);
    }
    end();
}

/* -------------------------------------------------------------- manager */

static void test_fault_lost_commit_is_told_and_sent_again(void **state)
{
    (void)state;
    begin(true, 100 * MIB, 256u << 10, 500);
    for (int round = 0; round < 10; round++) {
        random_writes(6, 200000);
        if (round & 1)
            world_faults.mgr_lost_before = 1;
        else
            world_faults.mgr_lost_after = 1;
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), -ETIMEDOUT);
        assert_true(mnt.m.data->uncommitted_bytes > 0);
        check_read(&mnt, &h); /* still right on this node */
        random_writes(2, 1000);
        if (round < 4)
            assert_int_equal(fp_err_to_errno(cl_data_flush(&mnt.m, h.inode)), EIO); /* still not there */
        world_mgr_back();
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
        fx_check_file_quiet(&h);
        check_view();
        check_read(&mnt, &h);
    }
    end();
}

/* The answer is lost, another mount overwrites all of it, and its chunks are deleted: sending the same again must change nothing. */
static void test_fault_commit_that_was_executed_is_not_named_anew(void **state)
{
    struct cl_handle h2;

    (void)state;
    begin(true, 100 * MIB, 256u << 10, 3000);
    fx_start(&other, 9, 3000);
    put_all(0, 3 * MIB);
    world_faults.mgr_lost_after = 1;
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -ETIMEDOUT);
    fx_open(&other, &h2, ino);
    fx_fill(want, 3 * MIB, 77);
    assert_int_equal(fx_write(&other, &h2, want, 3 * MIB, 0), 3 * MIB);
    assert_int_equal(cl_data_flush(&other.m, h2.inode), 0);
    world_mgr_back();
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    check_view();
    fx_close(&mnt, &h);
    fx_open(&mnt, &h, ino);
    check_read(&mnt, &h);
    fx_close(&other, &h2);
    fx_stop(&other);
    end();
}

static void test_fault_lost_truncate_leaves_a_true_map(void **state)
{
    ssize_t n;

    (void)state;
    begin(true, 100 * MIB, 256u << 10, 3000);
    put_all(0, 4 * MIB); /* without a hole, which would look like what was cut */
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    check_read(&mnt, &h); /* the map is known */
    world_faults.mgr_lost_after = 1;
    assert_int_equal(fx_truncate(&mnt, &h, size / 2), -ETIMEDOUT);
    memset(want + size / 2, 0, size - size / 2);
    size /= 2;
    n = fx_read(&mnt, &h, buf, 100000, size + 1000); /* executed though: nothing old comes back */
    assert_true(n >= 0);
    assert_memory_equal(buf, want + size + 1000, n);
    check_read(&mnt, &h);
    world_mgr_back();
    check_read(&mnt, &h);
    assert_int_equal(fx_truncate(&mnt, &h, size), 0);
    check_read(&mnt, &h);
    check_view();
    end();
}

static void core_new_session(void *arg)
{
    atomic_fetch_add(&mnt.w.session, 1);
    cl_data_session_new(arg);
}

static void forget_sessions(bool local)
{
    int told = 0;

    begin(local, 200 * MIB, 64u << 10, 5000);
    world_faults.bnf_delay_us = 2000;
    for (int round = 0; round < 20; round++) {
        unsigned wait_us = rnd_below(&r, 20000);
        int rc;

        random_writes(6, 200000);
        if (round & 1)
            (void)cl_data_flush(&mnt.m, h.inode);
        usleep(wait_us);
        world_on_core(core_new_session, &mnt.m);
        rc = cl_data_flush(&mnt.m, h.inode);
        fx_check_file_quiet(&h);
        told += rc < 0;
        if (rc < 0) { /* lost, and told: go on with what is published */
            size = world_view(ino, want, SIZE_BYTES);
            memset(want + size, 0, SIZE_BYTES - size);
        }
        check_view();
        check_read(&mnt, &h);
    }
    fprintf(stderr, "losses told: %d\n", told);
    end();
}

static void test_fault_forgotten_session_is_never_a_silent_loss(void **state)
{
    (void)state;
    forget_sessions(true);
    forget_sessions(false);
}

/* The commit that finds out is one whose result nobody looks at: that of a write which publishes early. */
static void test_fault_loss_found_by_an_early_commit_is_told_by_the_next_close(void **state)
{
    (void)state;
    begin(true, 200 * MIB, 64u << 10, 5000);
    put_all(0, 65536);
    for (int i = 0; i < 1000 && mnt.m.data->uncommitted_bytes == 0; i++)
        usleep(5000);
    atomic_fetch_add(&mnt.w.session, 1); /* the news come later */
    (void)cl_publish_stored(mnt.m.data, h.inode, false, fp_now_ms() + 1000);
    world_on_core(core_new_session, &mnt.m);
    assert_true(cl_data_flush(&mnt.m, h.inode) < 0);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    size = 0;
    check_view();
    end();
}

/* -------------------------------------------------------------- reading */

static void test_fault_replaced_chunk_makes_the_map_be_fetched_again(void **state)
{
    struct cl_handle h2;

    (void)state;
    for (int local = 0; local < 2; local++) {
        begin(local, 200 * MIB, MIB, 5000);
        put_all(0, SIZE_BYTES);
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
        fx_start(&other, 9, 5000);
        other.m.opt.read_ahead_bytes = 0;
        for (int round = 0; round < 6; round++) {
            fx_open(&other, &h2, ino);
            cl_rcache_reclaim(other.m.data->rcache, SIZE_MAX);
            for (uint64_t off = 0; off < size; off += MIB) { /* map, and one block of each chunk */
                assert_int_equal(fx_read(&other, &h2, buf, 4096, off + 70000), 4096);
                assert_memory_equal(buf, want + off + 70000, 4096);
            }
            put_all(0, SIZE_BYTES); /* every chunk of before is deleted */
            assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
            for (int i = 0; i < 20; i++) {
                uint64_t off = rnd_below(&r, SIZE_BYTES / 65536) * 65536ull;

                if (off % MIB == 65536)
                    continue; /* cached: may be the old data until the next open */
                assert_int_equal(fx_read(&other, &h2, buf, 65536, off), 65536);
                assert_memory_equal(buf, want + off, 65536);
            }
            fx_close(&other, &h2);
            fx_open(&other, &h2, ino);
            check_read(&other, &h2);
            fx_close(&other, &h2);
        }
        assert_int_equal(world_bad_chunks(), 0);
        fx_stop(&other);
        end();
    }
}

static void test_fault_flipped_bit_is_eio_for_its_block_only(void **state)
{
    uint32_t bnf, at;

    (void)state;
    for (int local = 0; local < 2; local++) {
        uint64_t chunk, bad = 2 * MIB + 5 * 65536 + 777;

        begin(local, 200 * MIB, MIB, 5000);
        mnt.m.opt.read_ahead_bytes = 0;
        put_all(0, 4 * MIB);
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
        chunk = world_chunk_at(ino, bad, &bnf, &at);
        assert_true(world_bnf_flip(world_bnf(bnf), chunk, at));
        for (uint64_t off = 0; off < size; off += 65536) {
            ssize_t n = fx_read(&mnt, &h, buf, 65536, off);

            if (bad / 65536 == off / 65536) {
                assert_int_equal(fp_err_to_errno((int)n), EIO);
                continue;
            }
            assert_int_equal(n, 65536);
            assert_memory_equal(buf, want + off, 65536);
        }
        bad = bad / MIB * MIB; /* all of its window at once: more pages than a second try may hold beside the first */
        assert_int_equal(fp_err_to_errno((int)fx_read(&mnt, &h, buf, size - bad < MIB ? size - bad : MIB, bad)), EIO);
        assert_true(world_bad_chunks() > 0);
        assert_true(world_bnf_flip(world_bnf(bnf), chunk, at));
        check_read(&mnt, &h); /* whole again: nothing bad was kept */
        end();
    }
}

static void test_fault_read_waits_for_a_benefactor_that_restarts(void **state)
{
    (void)state;
    begin(false, 100 * MIB, MIB, 8000);
    put_all(0, MIB);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    b1->down = true;
    world_bnf_break(b1);
    uint64_t t0 = fp_now_ms();

    assert_true(fx_read(&mnt, &h, buf, 1000, 0) < 0); /* and not for ever */
    assert_in_range(fp_now_ms() - t0, 3000, 10000);
    assert_int_equal(world_bad_chunks(), 0); /* away is not damaged */
    b1->down = false;
    check_read(&mnt, &h);
    end();
}

static void test_fault_hundreds_of_chunks_in_one_page_can_be_read(void **state)
{
    (void)state;
    begin(true, 100 * MIB, 64u << 10, 5000);
    for (uint32_t i = 0; i < 300; i++) { /* a log: short lines, each published */
        put_all(size, 20);
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    }
    check_read(&mnt, &h);
    end();
}

/* -------------------------------------------------------------- durability, end of files */

static void *fsync_it(void *arg)
{
    *(int *)arg = cl_data_fsync(&mnt.m, h.inode);
    return NULL;
}

static void test_fault_fsync_waits_for_the_fsync_of_another_thread(void **state)
{
    int rc1 = 1, rc2 = 1;
    pthread_t t;

    (void)state;
    begin(true, 100 * MIB, MIB, 20000);
    put_all(0, 1000);
    assert_int_equal(cl_data_fsync(&mnt.m, h.inode), 0);
    put_all(0, 1000);
    sync_delay_us = 500000;
    syncs_started = syncs_done = 0;
    pthread_create(&t, NULL, fsync_it, &rc1);
    while (syncs_started == 0)
        usleep(1000);
    fsync_it(&rc2); /* its data is what the other is syncing */
    assert_int_equal(syncs_done, syncs_started);
    pthread_join(t, NULL);
    assert_int_equal(rc1, 0);
    assert_int_equal(rc2, 0);
    end();
}

static void test_fault_fsync_tells_what_a_rebooted_node_had_not_synced(void **state)
{
    (void)state;
    for (int local = 0; local < 2; local++) {
        begin(local, 100 * MIB, MIB, 8000);
        b1->life = 11;
        put_all(0, 1000);
        assert_int_equal(cl_data_fsync(&mnt.m, h.inode), 0);
        world_bnf_break(b1); /* a process that was killed and is back: nothing is lost */
        put_all(0, 1000);
        assert_int_equal(cl_data_fsync(&mnt.m, h.inode), 0);
        put_all(1000, 2000);
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0); /* acknowledged, published, not synced */
        world_bnf_break(b1);
        b1->life = 12;
        put_all(5000, 100); /* comes by the new link */
        assert_int_equal(cl_data_fsync(&mnt.m, h.inode), -EIO);
        put_all(0, 3000); /* told once; what is written now is as good as ever */
        assert_int_equal(cl_data_fsync(&mnt.m, h.inode), 0);
        end();
    }
}

static void test_fault_fsync_of_a_file_that_was_closed_and_forgotten_syncs(void **state)
{
    (void)state;
    begin(true, 100 * MIB, MIB, 8000);
    put_all(0, 1000);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    cl_data_forget(&mnt.m, h.inode); /* as when many other files were closed after it */
    syncs_done = 0;
    assert_int_equal(cl_data_fsync(&mnt.m, h.inode), 0);
    assert_true(syncs_done > 0);
    check_view();
    check_read(&mnt, &h);
    end();
}

static void test_fault_unlinked_file_leaves_nothing(void **state)
{
    (void)state;
    begin(true, 100 * MIB, 64u << 10, 5000);
    for (int round = 0; round < 5; round++) {
        uint64_t ino2 = world_file_new(64u << 10, 1);
        struct cl_handle h2;

        fx_open(&mnt, &h2, ino2);
        fx_fill(buf, 500000, 1);
        assert_int_equal(fx_write(&mnt, &h2, buf, 500000, 100), 500000);
        world_unlink(ino2);
        pthread_mutex_lock(&h2.inode->lock);
        h2.inode->attr.nlink = 0;
        pthread_mutex_unlock(&h2.inode->lock);
        if (round & 1)
            (void)cl_data_flush(&mnt.m, h2.inode);
        fx_close(&mnt, &h2);
        fx_check_quiet(&mnt);
    }
    end();
}

static void *sync_all(void *arg)
{
    for (int i = 0; i < 200; i++)
        (void)cl_data_sync_all(&mnt.m, false, fp_now_ms() + 5000);
    return arg;
}

static void test_fault_unlinked_file_may_be_released_while_all_is_synced(void **state)
{
    pthread_t t;

    (void)state;
    begin(true, 100 * MIB, 64u << 10, 5000);
    world_faults.mgr_delay_us = 1000;
    pthread_create(&t, NULL, sync_all, NULL);
    for (int round = 0; round < 40; round++) {
        uint64_t ino2 = world_file_new(64u << 10, 1);
        struct cl_handle h2;

        fx_open(&mnt, &h2, ino2);
        assert_int_equal(fx_write(&mnt, &h2, buf, 70000, 100), 70000);
        usleep(rnd_below(&r, 3000));
        pthread_mutex_lock(&h2.inode->lock);
        h2.inode->attr.nlink = 0;
        pthread_mutex_unlock(&h2.inode->lock);
        fx_close(&mnt, &h2);
    }
    pthread_join(t, NULL);
    fx_check_quiet(&mnt);
    end();
}

static void test_fault_largest_chunks_go_both_ways(void **state)
{
    const size_t len = 33u * MIB + 12345;
    uint8_t *data = malloc(len), *back = malloc(len);

    (void)state;
    for (int local = 0; local < 2; local++) {
        begin(local, 200 * MIB, 16 * MIB, 20000);
        fx_fill(data, len, 99);
        for (size_t at = 0; at < len; at += MIB)
            assert_true(fx_write(&mnt, &h, data + at, len - at < MIB ? len - at : MIB, at) > 0);
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
        for (size_t at = 0; at < len; at += MIB)
            assert_true(fx_read(&mnt, &h, back + at, len - at < MIB ? len - at : MIB, at) > 0);
        assert_memory_equal(data, back, len);
        end();
    }
    free(data);
    free(back);
}

static void test_fault_unmount_ends_with_data_that_has_no_place(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        uint64_t t0;
        bool local = how & 1;

        begin(local, 200 * MIB, MIB, 60000);
        put_all(0, 5 * MIB + 100);
        if (how & 2)
            b1->store_err = -EIO;
        else
            world_faults.mgr_lost_before = 1000000;
        put_all(6 * MIB, MIB + 100);
        usleep(100000);
        t0 = fp_now_ms();
        assert_true(cl_data_sync_all(&mnt.m, true, t0 + 500) < 0);
        cl_data_stop(&mnt.m); /* the handle is still open */
        assert_true(fp_now_ms() - t0 < 8000);
        world_close_conns();
        cl_itable_free(&mnt.m);
        cl_data_free(&mnt.m);
        world_core_stop();
        b1->store_err = 0;
        world_bnf_fini();
        world_mgr_reset();
        free(want);
        free(buf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault_full_store_is_told_by_write_not_by_close),
        cmocka_unit_test(test_fault_no_space_publishes_other_files),
        cmocka_unit_test(test_fault_no_space_for_an_aux_app_publishes_nothing),
        cmocka_unit_test(test_fault_the_last_of_a_full_store_can_be_used),
        cmocka_unit_test(test_fault_refused_leases_go_to_the_next_benefactor),
        cmocka_unit_test(test_fault_benefactor_away_for_a_moment_is_not_enospc),
        cmocka_unit_test(test_fault_failing_store_goes_elsewhere),
        cmocka_unit_test(test_fault_store_that_never_works_is_told_once),
        cmocka_unit_test(test_fault_sync_of_everything_leaves_the_error_to_its_file),
        cmocka_unit_test(test_fault_broken_local_link_costs_nothing),
        cmocka_unit_test(test_fault_broken_connection_costs_nothing),
        cmocka_unit_test(test_fault_old_segment_numbers_of_a_new_benefactor_are_new_segments),
        cmocka_unit_test(test_fault_lost_commit_is_told_and_sent_again),
        cmocka_unit_test(test_fault_commit_that_was_executed_is_not_named_anew),
        cmocka_unit_test(test_fault_lost_truncate_leaves_a_true_map),
        cmocka_unit_test(test_fault_forgotten_session_is_never_a_silent_loss),
        cmocka_unit_test(test_fault_loss_found_by_an_early_commit_is_told_by_the_next_close),
        cmocka_unit_test(test_fault_replaced_chunk_makes_the_map_be_fetched_again),
        cmocka_unit_test(test_fault_flipped_bit_is_eio_for_its_block_only),
        cmocka_unit_test(test_fault_read_waits_for_a_benefactor_that_restarts),
        cmocka_unit_test(test_fault_hundreds_of_chunks_in_one_page_can_be_read),
        cmocka_unit_test(test_fault_fsync_waits_for_the_fsync_of_another_thread),
        cmocka_unit_test(test_fault_fsync_tells_what_a_rebooted_node_had_not_synced),
        cmocka_unit_test(test_fault_fsync_of_a_file_that_was_closed_and_forgotten_syncs),
        cmocka_unit_test(test_fault_unlinked_file_leaves_nothing),
        cmocka_unit_test(test_fault_unlinked_file_may_be_released_while_all_is_synced),
        cmocka_unit_test(test_fault_largest_chunks_go_both_ways),
        cmocka_unit_test(test_fault_unmount_ends_with_data_that_has_no_place),
    };

    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
