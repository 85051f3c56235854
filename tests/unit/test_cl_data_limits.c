/*
 * The data path at its limits: windows of very many pieces, a pool with many more readers than it has room for, a benefactor that hangs
 * while its link is opened, the last chunk number, and what must not run on the core loop.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>
#include <fcntl.h>

#define MIB (1u << 20)

static struct fx_mount mnt;
static struct world_bnf *b1;
static struct cl_handle h;
static uint8_t *want, *buf;
static uint64_t ino, size;

static void begin(bool local, uint32_t window, uint64_t size_max, uint64_t io_timeout_ms)
{
    memset(&world_faults, 0, sizeof world_faults);
    world_core_start();
    b1 = world_bnf_add(1, local, 600 * MIB);
    fx_start(&mnt, 7, io_timeout_ms);
    ino = world_file_new(window, 1);
    fx_open(&mnt, &h, ino);
    want = calloc(size_max, 1);
    buf = calloc(size_max, 1);
    size = 0;
}

static void end(void)
{
    fx_end(&mnt, &h);
    free(want);
    free(buf);
}

static void put(uint64_t off, size_t len)
{
    fx_fill(want + off, len, (uint32_t)off * 7 + 1);
    assert_int_equal(fx_write(&mnt, &h, want + off, len, off), len);
    size = off + len > size ? off + len : size;
}

/* -------------------------------------------------------------- pieces */

static void test_limits_window_of_too_many_pieces_is_told_and_harms_no_other(void **state)
{
    uint64_t chunks;

    (void)state;
    begin(true, 65536, 10 * 65536, 5000);
    world_faults.mgr_window_max = 100;
    put(65536, 300);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    chunks = world_chunk_count();
    put(0, 1000);
    put(3 * 65536, 1000);
    for (uint32_t i = 0; i < 200; i++) /* into the second window */
        assert_int_equal(fx_write(&mnt, &h, "x", 1, 65536 + 1000 + 3 * i), 1);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -EFBIG);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0); /* told once */
    fx_check_file_quiet(&h);
    assert_int_equal(world_view(ino, buf, 10 * 65536), size);
    for (uint32_t i = 0; i < 200; i++) /* those of the first commits may be there, in order */
        if (buf[65536 + 1000 + 3 * i] == 'x')
            want[65536 + 1000 + 3 * i] = 'x';
    assert_memory_equal(buf, want, size);
    assert_in_range(world_chunk_count(), chunks + 2, chunks + 6); /* nothing is left of what was refused */
    assert_true(mnt.m.data->lost_bytes > 0);
    end();
}

/* -------------------------------------------------------------- commits */

/* One window that the manager can't take costs that window, of which the writer is told, and no other. */
static void test_limits_commit_refused_for_a_window_harms_no_other(void **state)
{
    (void)state;
    begin(true, 65536, 10 * 65536, 5000);
    put(0, 10 * 65536);
    world_faults.mgr_refuse_win = 4 + 1;
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -EIO);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    world_faults.mgr_refuse_win = 0;
    assert_int_equal(world_view(ino, buf, 10 * 65536), size);
    memset(want + 4 * 65536, 0, 65536);
    assert_memory_equal(buf, want, size);
    put(4 * 65536, 65536);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    end();
}

/* What was referred to has become bad since the pages were given back: EIO, once, and the rest is good. */
static void test_limits_commit_that_names_bad_chunks_is_an_error(void **state)
{
    (void)state;
    begin(true, 65536, 10 * 65536, 5000);
    put(0, 10 * 65536);
    world_faults.mgr_bad_win = 7 + 1;
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -EIO);
    assert_int_equal(mnt.m.data->lost_bytes, 65536);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    assert_int_equal(world_view(ino, buf, 10 * 65536), size);
    assert_memory_equal(buf, want, size);
    end();
}

static void *back_soon(void *arg)
{
    usleep(700000);
    world_faults.mgr_away = false;
    return arg;
}

/* As when a link is cut: each try takes as long as a connection that nobody answers, and the one within which the time for it ends is the last one. */
static void test_limits_read_ends_with_the_try_that_was_under_way(void **state)
{
    uint64_t from_ms;

    (void)state;
    begin(false, 65536, 10 * 65536, 60000);
    put(0, 65536);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    b1->down = true;
    b1->refuse_ms = 3500;
    world_bnf_break(b1);
    b1->connects = 0;
    from_ms = fp_now_ms();
    assert_true(fx_read(&mnt, &h, buf, 1000, 0) < 0);
    assert_true(fp_now_ms() - from_ms >= 6000);
    assert_int_equal(b1->connects, 2); /* after the first the manager is asked where else it is; after the second, too: nowhere */
    b1->down = false;
    assert_int_equal(fx_read(&mnt, &h, buf, 1000, 0), 1000);
    assert_memory_equal(buf, want, 1000);
    end();
}

/* A benefactor that is only starting again is waited for; one that is not, until the deadline, and then it is told. */
static void test_limits_commit_waits_for_what_is_away(void **state)
{
    uint64_t from_ms;
    pthread_t t;

    (void)state;
    begin(true, 65536, 10 * 65536, 2000);
    put(0, 3 * 65536);
    world_faults.mgr_away = true;
    assert_int_equal(pthread_create(&t, NULL, back_soon, NULL), 0);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    pthread_join(t, NULL);
    assert_true(world_faults.mgr_away_asked > 1);
    assert_int_equal(mnt.m.data->lost_bytes, 0);

    put(3 * 65536, 65536);
    world_faults.mgr_away = true;
    world_faults.mgr_bad_win = 3 + 1;
    from_ms = fp_now_ms();
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -EIO);
    assert_in_range(fp_now_ms() - from_ms, 1900, 6000);
    world_faults.mgr_away = false;
    world_faults.mgr_bad_win = 0;
    assert_int_equal(world_view(ino, buf, 10 * 65536), size);
    assert_memory_equal(buf, want, size); /* it is there when the benefactor is */
    end();
}

/* -------------------------------------------------------------- links */

static unsigned leases(struct world_bnf *b)
{
    unsigned n = 0;

    pthread_mutex_lock(&b->lock);
    for (struct world_lease *l = b->leases; l; l = l->next)
        n++;
    pthread_mutex_unlock(&b->lock);
    return n;
}

/* … that the mount knows of and can use. */
static unsigned known_leases(void)
{
    unsigned n = 0;

    cl_space_tick(mnt.m.data, fp_now_ms(), false);
    pthread_mutex_lock(&mnt.m.data->space_lock);
    for (struct cl_lease *l = cl_bnf_find(mnt.m.data, 1)->leases; l; l = l->next)
        n++;
    pthread_mutex_unlock(&mnt.m.data->space_lock);
    return n;
}

static int ask_over_tcp(void)
{
    Fp__BnfSync e = FP__BNF_SYNC__INIT;
    struct cl_rcall c = {
        .bnf = cl_bnf_find(mnt.m.data, 1), .type = FP__MSG_TYPE__MSG_BNF_SYNC, .msg = &e.base, .timeout_ms = 1000};

    return cl_bnf_remote_call_sync(&c, NULL);
}

static void *answer_later(void *arg)
{
    usleep(6500000); /* a lease is waited for 5 s; the next one is asked for then */
    b1->hold_answers = false;
    return arg;
}

/* Nothing is leased any more. The answer to a request that was made ahead may yet come. */
static void wait_given_back(void)
{
    uint64_t until_ms = fp_now_ms() + 5000;

    do {
        cl_space_tick(mnt.m.data, fp_now_ms(), true);
        usleep(10000);
    } while (world_bnf_used(b1) != world_stored_bytes() && fp_now_ms() < until_ms);
    assert_int_equal(world_bnf_used(b1), world_stored_bytes());
}

static void test_limits_lease_that_comes_too_late_is_given_back(void **state)
{
    pthread_t t;

    (void)state;
    begin(false, 65536, MIB, 20000);
    put(0, 1000);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    wait_given_back();
    b1->hold_answers = true;
    pthread_create(&t, NULL, answer_later, NULL);
    put(65536, 1000);
    pthread_join(t, NULL);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    wait_given_back();
    end();
}

static void test_limits_leases_of_one_link_outlive_the_other(void **state)
{
    (void)state;
    begin(true, 65536, MIB, 5000);
    put(0, 1000);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    for (int i = 1; i < 5; i++) {
        assert_int_equal(ask_over_tcp(), 0);
        world_bnf_break_tcp(b1);
        while (ask_over_tcp() != 0)
            ;
        put((uint64_t)i * 65536, 1000);
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    }
    usleep(50000); /* what was being leased ahead */
    assert_true(leases(b1) > 0);
    assert_int_equal(leases(b1), known_leases()); /* none is forgotten here and kept there */
    end();
}

static void *open_it(void *arg)
{
    (void)cl_bnf_is_local(cl_bnf_find(mnt.m.data, 1));
    return arg;
}

static void test_limits_benefactor_that_hangs_does_not_hold_up_the_core_loop(void **state)
{
    pthread_t t[3];
    uint64_t t0;

    (void)state;
    begin(true, 65536, MIB, 5000);
    b1->hang_open = true;
    for (int i = 0; i < 3; i++)
        pthread_create(&t[i], NULL, open_it, NULL);
    usleep(50000);
    t0 = fp_now_ms();
    alarm(10); /* without the fix: for ever */
    fx_table(&mnt); /* as the manager sends it, on the core loop */
    alarm(0);
    assert_true(fp_now_ms() - t0 < 1000);
    b1->hang_open = false;
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    put(0, 1000);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    end();
}

/* -------------------------------------------------------------- readers */

#define READERS 64
#define READS 12
#define READ_BYTES (96ull * MIB)

static pthread_barrier_t together;
static atomic_ulong slowest_ms;

static void read_one(uint8_t *to, uint32_t len, uint64_t off, unsigned hold_us)
{
    struct iovec iov[128];
    struct cl_read_pin *pin;
    uint64_t t0 = fp_now_ms(), at = 0;
    unsigned long ms, was = slowest_ms;
    int n = 128;

    WORLD_CHECK(cl_data_read(&mnt.m, &h, len, off, iov, &n, &pin) == (ssize_t)len);
    ms = (unsigned long)(fp_now_ms() - t0);
    while (ms > was && !atomic_compare_exchange_weak(&slowest_ms, &was, ms))
        ;
    usleep(hold_us); /* the kernel takes the reply */
    for (int i = 0; i < n; i++) {
        memcpy(to + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    WORLD_CHECK(at == len && memcmp(to, want + off, len) == 0);
    cl_data_read_done(&mnt.m, pin);
}

static void *reader(void *arg)
{
    uint8_t *mine = malloc(MIB);
    unsigned n = (unsigned)(uintptr_t)arg;

    for (unsigned i = 0; i < READS; i++) {
        uint64_t off = ((uint64_t)n * 3 + i * 41) % (READ_BYTES / MIB - 1) * MIB + MIB / 2 + n;

        pthread_barrier_wait(&together); /* all at the same time: half of one chunk, half of the next */
        read_one(mine, MIB, off, n % 4 * 1000);
    }
    free(mine);
    return NULL;
}

static void read_all_at_once(bool local, uint32_t window)
{
    pthread_t t[READERS];

    begin(local, window, 100 * MIB, 20000);
    mnt.m.opt.read_ahead_bytes = 0;
    for (uint64_t off = 0; off < READ_BYTES; off += MIB)
        put(off, MIB);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    pthread_barrier_init(&together, NULL, READERS);
    slowest_ms = 0;
    for (uintptr_t i = 0; i < READERS; i++)
        pthread_create(&t[i], NULL, reader, (void *)i);
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(t[i], NULL);
    pthread_barrier_destroy(&together);
    assert_true(slowest_ms < 10000);
    assert_int_equal(mnt.m.data->readers.used, 0);
    end();
}

static void test_limits_64_readers_share_the_smallest_pool(void **state)
{
    (void)state;
    read_all_at_once(true, MIB);
    read_all_at_once(false, MIB);
    read_all_at_once(true, 16 * MIB); /* a chunk is half of the pool */
    read_all_at_once(false, 65536);   /* a read is in 17 chunks */
}

static void test_limits_readers_and_a_writer_share_the_smallest_pool(void **state)
{
    pthread_t t[READERS];

    (void)state;
    begin(true, MIB, 200 * MIB, 20000);
    for (uint64_t off = 0; off < READ_BYTES; off += MIB)
        put(off, MIB);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    pthread_barrier_init(&together, NULL, READERS);
    for (uintptr_t i = 0; i < READERS; i++)
        pthread_create(&t[i], NULL, reader, (void *)i);
    for (uint64_t off = 100 * MIB; off < 180 * MIB; off += 3 * 65536)
        put(off, 100000); /* windows that are never full: they go by pressure */
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(t[i], NULL);
    pthread_barrier_destroy(&together);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    end();
}

/* -------------------------------------------------------------- losses, numbers, threads */

static void new_session(void *arg)
{
    atomic_fetch_add(&mnt.w.session, 1); /* the manager has forgotten this mount */
    cl_data_session_new(arg);
}

static void test_limits_a_loss_is_remembered_until_the_end(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        begin(true, 65536, MIB, 300);
        put(0, 1000);
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
        assert_false(cl_data_has_lost(&mnt.m));
        if (how == 0) {
            b1->store_err = -EIO; /* given up after the deadline */
        } else if (how == 1) {
            put(65536, 65536); /* stored, since it is full */
            for (int i = 0; i < 1000 && mnt.m.data->uncommitted_bytes == 0; i++)
                usleep(1000);
            world_on_core(new_session, &mnt.m);
        } else if (how == 2) {
            world_faults.mgr_window_max = 1;
            put(10000, 500);
        }
        if (how == 3) { /* nothing was lost: somebody removed the file */
            put(0, 500);
            world_unlink(ino);
        } else {
            (void)fx_write(&mnt, &h, want, 500, 20000); /* may be what is told of the loss */
        }
        (void)cl_data_flush(&mnt.m, h.inode);
        for (int i = 0; i < 100 && mnt.m.data->dirty_bytes + mnt.m.data->uncommitted_bytes > 0; i++) {
            usleep(20000);
            (void)cl_data_flush(&mnt.m, h.inode); /* takes the error */
        }
        (void)cl_data_flush(&mnt.m, h.inode); /* of what was given up behind the last one, too */
        b1->store_err = 0;
        assert_int_equal(cl_data_sync_all(&mnt.m, true, fp_now_ms() + 3000), 0); /* nothing is left to write out … */
        assert_int_equal(cl_data_has_lost(&mnt.m), how != 3);                    /* … since it is gone */
        end();
    }
}

static void test_limits_chunk_numbers_end_and_do_not_begin_anew(void **state)
{
    uint32_t at, bnf;
    uint64_t last;

    (void)state;
    begin(true, 65536, MIB, 2000);
    mnt.m.data->chunk_counter = UINT32_MAX;
    put(0, 65536);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    last = world_chunk_at(ino, 0, &bnf, &at);
    assert_int_equal(last, 7ull << 32 | UINT32_MAX);
    assert_int_equal(fx_write(&mnt, &h, want, 65536, 65536), 65536);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -ENOSPC);
    assert_int_equal(world_chunk_count(), 1);
    assert_int_equal(world_chunk_at(ino, 0, &bnf, &at), last);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    end();
}

/* The benefactor has taken the record over, but its answer is lost: the next attempt must not use the number that is there already. */
static void test_limits_an_attempt_never_uses_the_number_of_another(void **state)
{
    uint64_t first, second;

    (void)state;
    begin(true, 65536, MIB, 5000);
    put(0, 1000);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0); /* the lease is there */
    first = mnt.m.data->chunk_counter;
    b1->break_executes = 1;
    b1->break_stored = true;
    put(65536, 1000);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    second = mnt.m.data->chunk_counter;
    assert_true(second >= first + 2); /* one attempt that was executed, one that counts */
    assert_int_equal(b1->acked, 3);
    assert_int_equal(world_view(ino, buf, MIB), size);
    assert_memory_equal(buf, want, size);
    end();
}

static pthread_t core_thread, ran_on;
static atomic_bool ran, core_went_on;

static void slow(void *arg)
{
    ran_on = pthread_self();
    for (int i = 0; i < 2000 && !core_went_on; i++) /* as one that waits for an answer, which the core loop brings */
        usleep(1000);
    *(int *)arg = core_went_on;
    ran = true;
}

static void on_core(void *arg)
{
    core_thread = pthread_self();
    WORLD_CHECK(cl_data_run(&mnt.m, slow, arg) == 0);
    core_went_on = true;
}

static void test_limits_what_may_wait_runs_off_the_core_loop(void **state)
{
    int waited_for_core = 0;

    (void)state;
    begin(true, 65536, MIB, 2000);
    ran = core_went_on = false;
    world_on_core(on_core, &waited_for_core);
    while (!ran)
        usleep(1000);
    assert_true(waited_for_core);
    assert_false(pthread_equal(core_thread, ran_on));
    end();
}

/* -------------------------------------------------------------- a table of very many */

/* More than are looked at for a place, all of them away; and a number that no manager gives. */
static void table_of_many(void *arg)
{
    enum { MANY = 6000 };
    static Fp__BnfInfo info[MANY], *list[MANY];
    Fp__BnfTable t = FP__BNF_TABLE__INIT;

    for (uint32_t i = 0; i < MANY; i++) {
        fp__bnf_info__init(&info[i]);
        info[i].id = i + 1 < MANY ? 1000 + i : UINT32_MAX;
        info[i].node = (char *)"n9";
        info[i].state = FP__BNF_STATE__BNF_DOWN;
        list[i] = &info[i];
    }
    t.benefactors = list;
    t.n_benefactors = MANY;
    cl_data_bnf_table(arg, &t);
}

static void test_limits_the_benefactor_of_this_node_is_found_among_very_many(void **state)
{
    (void)state;
    begin(true, MIB, 4 * MIB, 3000);
    world_on_core(table_of_many, &mnt.m);
    assert_int_equal(cl_bnf_find(mnt.m.data, 1)->id, 1);
    assert_int_equal(cl_bnf_find(mnt.m.data, 6998)->id, 6998);
    assert_null(cl_bnf_find(mnt.m.data, 999));
    assert_null(cl_bnf_find(mnt.m.data, UINT32_MAX));
    put(0, 4 * MIB);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    assert_int_equal(world_view(ino, buf, 4 * MIB), size);
    assert_memory_equal(buf, want, size);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_window_of_too_many_pieces_is_told_and_harms_no_other),
        cmocka_unit_test(test_limits_commit_refused_for_a_window_harms_no_other),
        cmocka_unit_test(test_limits_commit_that_names_bad_chunks_is_an_error),
        cmocka_unit_test(test_limits_commit_waits_for_what_is_away),
        cmocka_unit_test(test_limits_read_ends_with_the_try_that_was_under_way),
        cmocka_unit_test(test_limits_lease_that_comes_too_late_is_given_back),
        cmocka_unit_test(test_limits_leases_of_one_link_outlive_the_other),
        cmocka_unit_test(test_limits_benefactor_that_hangs_does_not_hold_up_the_core_loop),
        cmocka_unit_test(test_limits_64_readers_share_the_smallest_pool),
        cmocka_unit_test(test_limits_readers_and_a_writer_share_the_smallest_pool),
        cmocka_unit_test(test_limits_a_loss_is_remembered_until_the_end),
        cmocka_unit_test(test_limits_chunk_numbers_end_and_do_not_begin_anew),
        cmocka_unit_test(test_limits_an_attempt_never_uses_the_number_of_another),
        cmocka_unit_test(test_limits_what_may_wait_runs_off_the_core_loop),
        cmocka_unit_test(test_limits_the_benefactor_of_this_node_is_found_among_very_many),
    };

    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
