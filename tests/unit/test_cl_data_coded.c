/*
 * What the data path does with what aux-apps leave, one behaviour in each test: what is stored and what is not, who is told of errors, how often a chunk is
 * decoded. At random it is in test_cl_data_aux.c.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>
#include <stdio.h>

#include "client/data/datasum.h"
#include "client/data/peek.h"
#include "tests/unit/cl_fake_aux.h"

#define MIB (1u << 20)

static struct fx_mount mnt, other;
static uint8_t bytes[20 * MIB], got[20 * MIB];

static int setup(void **state)
{
    (void)state;
    fake_aux_start(rnd_seed());
    world_core_start();
    world_bnf_add(1, true, 400u << 20);
    fx_start(&mnt, 7, 20000);
    return 0;
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

static void noise(uint8_t *p, size_t len, uint64_t stream)
{
    struct rnd r;

    rnd_init(&r, rnd_seed(), stream);
    for (size_t i = 0; i < len; i++)
        p[i] = (uint8_t)rnd_next(&r);
}

static void write_all(struct fx_mount *x, struct cl_handle *h, const uint8_t *p, size_t len, uint64_t off)
{
    assert_int_equal(fx_write(x, h, p, len, off), len);
}

static void read_is(struct fx_mount *x, struct cl_handle *h, const uint8_t *p, size_t len, uint64_t off)
{
    for (size_t at = 0; at < len; at += MIB) {
        size_t n = len - at < MIB ? len - at : MIB;

        assert_int_equal(fx_read(x, h, got, n, off + at), n);
        assert_memory_equal(got, p + at, n);
    }
}

static void view_is(uint64_t ino, const uint8_t *p, size_t len)
{
    assert_int_equal(world_view(ino, got, sizeof got), len);
    assert_memory_equal(got, p, len);
}

/* A store thread tells it after the flush may be over. */
static void wait_known(void)
{
    while (fake_aux.told < fake_aux.jobs - fake_aux.nothing)
        usleep(1000);
}

/* A file of these bytes, closed, and known to the aux-apps. */
static uint64_t file_of(const uint8_t *p, size_t len, uint32_t window)
{
    uint64_t ino = world_file_new(window, 1);
    struct cl_handle h;

    fx_open(&mnt, &h, ino);
    write_all(&mnt, &h, p, len, 0);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    fx_check_file_quiet(&h);
    fx_close(&mnt, &h);
    wait_known();
    return ino;
}

static void find_all(void)
{
    fake_aux.pieces = fake_aux.always = true;
    fake_aux.piece_min = 4096;
}

/* Until nothing of the file is on its way to the store. */
static void wait_landed(struct cl_handle *h)
{
    pthread_mutex_lock(&h->inode->lock);
    while (h->inode->file->fl_head)
        (void)cl_file_wait(h->inode->file, fp_now_ms() + 1000);
    pthread_mutex_unlock(&h->inode->lock);
}

/* -------------------------------------------------------------- what is stored */

static void test_zeros_are_holes_and_store_nothing(void **state)
{
    struct cl_handle h;
    uint64_t ino, off;

    (void)state;
    find_all();
    fake_aux.piece_min = 1;
    memset(bytes, 0, 3 * MIB + 5);
    ino = file_of(bytes, 3 * MIB + 5, MIB);
    assert_int_equal(world_chunk_count(), 0);
    assert_int_equal(world_bnf(1)->stores, 0);
    assert_int_equal(world_slice_count(ino), 0);
    view_is(ino, bytes, 3 * MIB + 5);
    fx_open(&mnt, &h, ino);
    read_is(&mnt, &h, bytes, 3 * MIB + 5, 0);
    assert_int_equal(cl_data_lseek(&mnt.m, &h, 0, SEEK_DATA, &off), -ENXIO);
    fx_close(&mnt, &h);
}

/* Over data that was there before, a hole hides it at once, and unpublished. */
static void test_zeros_over_data_are_read_before_they_are_published(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    find_all();
    noise(bytes, MIB, 1);
    ino = file_of(bytes, MIB, MIB);
    fx_open(&mnt, &h, ino);
    memset(bytes, 0, MIB);
    write_all(&mnt, &h, bytes, MIB, 0);
    wait_landed(&h);
    read_is(&mnt, &h, bytes, MIB, 0);
    assert_int_equal(world_chunk_count(), 1); /* the old one still */
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    assert_int_equal(world_chunk_count(), 0);
    read_is(&mnt, &h, bytes, MIB, 0);
    fx_close(&mnt, &h);
}

static void test_duplicates_are_references_and_store_nothing(void **state)
{
    uint64_t a, b, stored;

    (void)state;
    find_all();
    noise(bytes, 4 * MIB, 1);
    a = file_of(bytes, 4 * MIB, MIB);
    stored = world_stored_bytes();
    assert_int_equal(stored, 4 * (MIB + 4096));
    b = file_of(bytes, 4 * MIB, MIB);
    assert_int_equal(world_stored_bytes(), stored);
    assert_int_equal(world_chunk_count(), 4);
    view_is(b, bytes, 4 * MIB);
    world_unlink(a);
    view_is(b, bytes, 4 * MIB);
    world_unlink(b);
    assert_int_equal(world_chunk_count(), 0);
}

static void test_only_what_is_new_is_stored(void **state)
{
    uint64_t before, ino;

    (void)state;
    find_all();
    noise(bytes, MIB, 1);
    (void)file_of(bytes, MIB, MIB);
    before = world_stored_bytes();
    noise(bytes + 300000, 5000, 2); /* in the middle, at no boundary of anything */
    fake_aux.new_every = 0;
    ino = file_of(bytes, MIB, MIB);
    assert_in_range(world_stored_bytes() - before, 4096 + 5000, 4096 + 5000 + 3 * 4096);
    view_is(ino, bytes, MIB);
}

/* The same data twice in one window. */
/* What is referred to is asked about before the pages go; not vouched for, it is stored, with all that is done to new data. */
static void test_what_is_not_vouched_for_is_stored_anew(void **state)
{
    (void)state;
    for (int distrust = 0; distrust < 2; distrust++) {
        uint64_t before, ino;

        find_all();
        fake_aux.new_every = 0;
        noise(bytes, MIB, 7 + (uint64_t)distrust);
        (void)file_of(bytes, MIB, MIB);
        before = world_stored_bytes();
        fake_aux.doubts = true;
        fake_aux.distrust = distrust;
        ino = file_of(bytes, MIB, MIB);
        assert_int_equal(fake_aux.again, distrust);
        assert_in_range(world_stored_bytes() - before, distrust ? MIB : 0, distrust ? MIB + 3 * 4096 : 3 * 4096);
        view_is(ino, bytes, MIB);
        fake_aux.doubts = fake_aux.distrust = false;
    }
}

static void test_what_is_equal_within_a_window_is_stored_once(void **state)
{
    uint64_t ino;

    (void)state;
    find_all();
    noise(bytes, MIB / 2, 1);
    memcpy(bytes + MIB / 2, bytes, MIB / 2);
    ino = file_of(bytes, MIB, MIB);
    assert_in_range(world_stored_bytes(), MIB / 2 + 4096, MIB / 2 + 3 * 4096);
    assert_true(fake_aux.same_pieces > 0);
    view_is(ino, bytes, MIB);
}

/* Every other 4 KiB is known: 256 slices would be in order. */
static void test_slices_of_a_window_are_bounded(void **state)
{
    uint64_t ino, jobs;

    (void)state;
    noise(bytes, 2 * MIB, 1);
    find_all();
    (void)file_of(bytes, 2 * MIB, MIB);
    for (uint32_t at = 4096; at < 2 * MIB; at += 8192)
        noise(bytes + at, 4096, 100 + at);
    fake_aux.new_every = 4096;
    jobs = fake_aux.jobs;
    ino = file_of(bytes, 2 * MIB, MIB);
    assert_true(fake_aux.stored_pieces > 200);
    assert_int_equal(fake_aux.jobs, jobs + 2);
    assert_in_range(world_slice_count(ino), 2, 128);
    view_is(ino, bytes, 2 * MIB);
}

/* -------------------------------------------------------------- unpublished */

static void test_references_are_read_before_they_are_published(void **state)
{
    struct cl_handle h;
    uint64_t ino = world_file_new(MIB, 1);

    (void)state;
    find_all();
    noise(bytes, 2 * MIB, 1);
    (void)file_of(bytes, 2 * MIB, MIB);
    fx_open(&mnt, &h, ino);
    write_all(&mnt, &h, bytes, 2 * MIB, 0);
    wait_landed(&h);
    assert_true(h.inode->file->nstored > 0);
    read_is(&mnt, &h, bytes, 2 * MIB, 0);
    bytes[5] ^= 1; /* and those under newer bytes are not needed */
    write_all(&mnt, &h, bytes, MIB, 0);
    read_is(&mnt, &h, bytes, 2 * MIB, 0);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    view_is(ino, bytes, 2 * MIB);
    fx_close(&mnt, &h);
}

static void test_truncate_while_aux_apps_work_cuts_what_they_leave(void **state)
{
    struct cl_handle h;
    uint64_t ino = world_file_new(MIB, 1);

    (void)state;
    find_all();
    fake_aux.codes = true;
    fake_aux.delay_us = 30000;
    noise(bytes, 2 * MIB, 1);
    memset(bytes + 200000, 0, 300000);
    fx_open(&mnt, &h, ino);
    write_all(&mnt, &h, bytes, 2 * MIB, 0);
    assert_int_equal(fx_truncate(&mnt, &h, 400001), 0);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    view_is(ino, bytes, 400001);
    read_is(&mnt, &h, bytes, 400001, 0);
    fx_check_file_quiet(&h);
    fx_close(&mnt, &h);
}

static void test_unlinked_file_gives_up_what_is_held(void **state)
{
    struct cl_handle h;
    uint64_t ino = world_file_new(MIB, 1);

    (void)state;
    find_all();
    noise(bytes, MIB, 1);
    (void)file_of(bytes, MIB, MIB);
    fx_open(&mnt, &h, ino);
    write_all(&mnt, &h, bytes, MIB, 0);
    wait_landed(&h);
    assert_int_equal(fake_aux.pins, 1);
    world_unlink(ino);
    h.inode->attr.nlink = 0;
    fx_close(&mnt, &h);
    assert_int_equal(fake_aux.pins, 0);
}

/* -------------------------------------------------------------- what aux-apps are told */

static void test_jobs_say_where_their_data_is(void **state)
{
    struct cl_handle h;

    (void)state;
    noise(bytes, MIB, 1);
    fx_open(&mnt, &h, world_file_new(MIB, 1));
    h.inode->aux_serial = 77;
    write_all(&mnt, &h, bytes, MIB, 3 * MIB);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    assert_int_equal(fake_aux.last_serial, 77);
    assert_int_equal(fake_aux.last_off, 3 * MIB);
    assert_true(fake_aux.last_whole);
    write_all(&mnt, &h, bytes, 100000, 4 * MIB + 131072); /* one range, from a block on */
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    assert_int_equal(fake_aux.last_off, 4 * MIB + 131072);
    assert_true(fake_aux.last_whole);
    write_all(&mnt, &h, bytes, 100000, 5 * MIB + 5); /* the five bytes before are filled in */
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    assert_int_equal(fake_aux.last_off, 5 * MIB);
    assert_false(fake_aux.last_whole);
    write_all(&mnt, &h, bytes, 1000, 6 * MIB);
    write_all(&mnt, &h, bytes, 1000, 6 * MIB + 500000);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    assert_int_equal(fake_aux.last_off, 6 * MIB);
    assert_false(fake_aux.last_whole);
    fx_close(&mnt, &h);
}

static void test_refused_data_is_an_error_of_the_file(void **state)
{
    struct cl_handle h;
    uint64_t ino = world_file_new(MIB, 1);

    (void)state;
    noise(bytes, MIB, 1);
    fx_open(&mnt, &h, ino);
    fake_aux.status = -EDOM;
    write_all(&mnt, &h, bytes, MIB, 0);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -EDOM);
    fake_aux.status = 0;
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    assert_int_equal(world_chunk_count(), 0);
    write_all(&mnt, &h, bytes, MIB, 0);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    view_is(ino, bytes, MIB);
    fx_close(&mnt, &h);
}

/* -------------------------------------------------------------- what is not so */

static void lie_is_found(uint32_t kind, bool found)
{
    uint32_t lied = fake_aux.lied, jobs = fake_aux.jobs;

    fake_aux.lie_kind = kind;
    fake_aux.lie = 2;
    view_is(file_of(bytes, 2 * MIB, MIB), bytes, 2 * MIB);
    assert_int_equal(fake_aux.lied - lied, found ? 2 : 0);
    assert_int_equal(fake_aux.jobs - jobs, found ? 4 : 2);
}

/* An aux-app with a bug would make zeros of data: what it says is compared with the pages, the window goes to the aux-apps once more, and all is right. */
static void test_what_aux_apps_say_of_zeros_and_repetitions_is_not_believed(void **state)
{
    (void)state;
    noise(bytes, 2 * MIB, 1);
    lie_is_found(FP_AUXW_PIECE_ZERO, true);
    bytes[MIB - 1] = 1;
    memset(bytes + MIB / 2, 0, MIB / 2 - 1); /* one byte alone */
    lie_is_found(FP_AUXW_PIECE_ZERO, true);
    for (int i = 0; i < 2; i++)
        memcpy(bytes + i * MIB + MIB / 2, bytes + i * MIB, MIB / 2);
    lie_is_found(FP_AUXW_PIECE_SAME, false);
    bytes[MIB - 1] ^= 4;
    bytes[2 * MIB - MIB / 4] ^= 4;
    lie_is_found(FP_AUXW_PIECE_SAME, true);
    fake_aux.codes = fake_aux.mask_only = true; /* what a later aux-app has coded is not kept either */
    lie_is_found(FP_AUXW_PIECE_SAME, true);
}

/* A foreign plugin's word of what is stored is compared with what is stored. */
static void test_doubted_pieces_are_read_back_and_compared(void **state)
{
    struct cl_handle h;
    uint32_t lied, jobs;

    (void)state;
    for (int coded = 0; coded < 2; coded++) {
        fake_aux.codes = fake_aux.mask_only = coded;
        noise(bytes, MIB, 1);
        fx_open(&mnt, &h, file_of(bytes, MIB, MIB));
        read_is(&mnt, &h, bytes, 1, 0);
        fake_aux.lie_ref = cl_file_win(h.inode->file, 0, false)->slices[0].chunk;
        fx_close(&mnt, &h);
        fake_aux.codes = fake_aux.mask_only = false;
        fake_aux.lie_chunk = fake_aux.lie_ref.id;
        fake_aux.lie_kind = FP_AUXW_PIECE_STORED;
        lied = fake_aux.lied;
        jobs = fake_aux.jobs;
        fake_aux.lie = 1;
        view_is(file_of(bytes, MIB, MIB), bytes, MIB); /* it is so */
        assert_true(fake_aux.lied == lied && fake_aux.jobs == jobs + 1);
        bytes[MIB - 7] ^= 1;
        fake_aux.lie = 1;
        view_is(file_of(bytes, MIB, MIB), bytes, MIB);
        assert_true(fake_aux.lied == lied + 1 && fake_aux.jobs == jobs + 3);
        bytes[MIB - 7] ^= 1;
        fake_aux.lie_ref.len_bytes = 0; /* can't be read: nobody lies, and it is not believed */
        fake_aux.lie = 1;
        view_is(file_of(bytes, MIB, MIB), bytes, MIB);
        assert_true(fake_aux.lied == lied + 1 && fake_aux.jobs == jobs + 5);
    }
}

/* -------------------------------------------------------------- failures */

/* A second attempt on another benefactor does not ask the aux-apps again. */
static void test_a_store_that_fails_is_repeated_with_the_same_result(void **state)
{
    uint64_t ino;

    (void)state;
    world_bnf_add(2, false, 400u << 20);
    fx_table(&mnt);
    find_all();
    fake_aux.codes = true;
    noise(bytes, MIB, 1);
    memset(bytes + 1000, 0, 500000);
    world_bnf(1)->store_err = -EIO;
    ino = file_of(bytes, MIB, MIB);
    world_bnf(1)->store_err = 0;
    assert_int_equal(fake_aux.jobs, 1);
    assert_true(world_bnf(1)->stores > 0);
    view_is(ino, bytes, MIB);
}

/* -------------------------------------------------------------- coded chunks */

static void test_coded_chunk_longer_than_the_largest_chunk(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    fake_aux.codes = fake_aux.mask_only = true;
    noise(bytes, 16 * MIB, 1);
    ino = file_of(bytes, 16 * MIB, 16 * MIB);
    assert_int_equal(fake_aux.coded, 1);
    assert_int_equal(world_stored_bytes(), 16 * MIB + 2 * 4096);
    view_is(ino, bytes, 16 * MIB);
    fx_open(&mnt, &h, ino);
    read_is(&mnt, &h, bytes + 16 * MIB - 5, 5, 16 * MIB - 5);
    read_is(&mnt, &h, bytes, 16 * MIB, 0);
    assert_int_equal(fake_aux.decoded, 1);
    fx_close(&mnt, &h);
}

/* Over the network, too. */
static void test_coded_chunk_of_another_node(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    world_bnf_add(2, false, 400u << 20);
    fx_table(&mnt);
    fake_aux.codes = fake_aux.mask_only = true;
    world_bnf(1)->lease_err = -ENOSPC;
    noise(bytes, 16 * MIB, 1);
    ino = file_of(bytes, 16 * MIB, 16 * MIB);
    world_bnf(1)->lease_err = 0;
    assert_true(world_bnf(2)->stores > 0);
    fx_open(&mnt, &h, ino);
    read_is(&mnt, &h, bytes, 16 * MIB, 0);
    fx_close(&mnt, &h);
}

static void *reader(void *arg)
{
    static _Thread_local uint8_t buf[4096];
    struct cl_handle *h = arg;
    static atomic_uint turn;
    uint64_t off = atomic_fetch_add(&turn, 1) * 65536 % MIB;

    WORLD_CHECK(fx_read(&mnt, h, buf, sizeof buf, off) == (ssize_t)sizeof buf);
    WORLD_CHECK(memcmp(buf, bytes + off, sizeof buf) == 0);
    return NULL;
}

static void test_readers_of_one_chunk_decode_it_once(void **state)
{
    pthread_t t[8];
    struct cl_handle h;

    (void)state;
    fake_aux.codes = fake_aux.always = true;
    fx_fill(bytes, MIB, 3);
    fx_open(&mnt, &h, file_of(bytes, MIB, MIB));
    fake_aux.delay_us = 50000;
    for (int i = 0; i < 8; i++)
        pthread_create(&t[i], NULL, reader, &h);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(fake_aux.decoded, 1);
    fx_close(&mnt, &h);
}

static void test_reading_ahead_decodes_each_chunk_once(void **state)
{
    struct cl_handle h;

    (void)state;
    fake_aux.codes = fake_aux.always = true;
    for (uint32_t i = 0; i < 20; i++)
        fx_fill(bytes + i * MIB, MIB, i * 7);
    fx_open(&mnt, &h, file_of(bytes, 20 * MIB, MIB));
    mnt.m.opt.read_ahead_bytes = 4 * MIB;
    for (uint32_t at = 0; at < 20 * MIB; at += 131072) {
        assert_int_equal(fx_read(&mnt, &h, got, 131072, at), 131072);
        assert_memory_equal(got, bytes + at, 131072);
    }
    assert_int_equal(fake_aux.decoded, 20);
    fx_close(&mnt, &h);
}

static void *far_reader(void *arg)
{
    static _Thread_local uint8_t buf[4096];
    static atomic_uint turn;
    uint64_t off = (uint64_t)(atomic_fetch_add(&turn, 1) % 20) * MIB;

    WORLD_CHECK(fx_read(&mnt, arg, buf, sizeof buf, off) == (ssize_t)sizeof buf);
    WORLD_CHECK(memcmp(buf, bytes + off, sizeof buf) == 0);
    return NULL;
}

static void test_memory_for_decoding_is_bounded(void **state)
{
    pthread_t t[20];
    struct cl_handle h;

    (void)state;
    fake_aux.codes = fake_aux.always = true;
    for (uint32_t i = 0; i < 20; i++)
        fx_fill(bytes + i * MIB, MIB, i * 7);
    fx_open(&mnt, &h, file_of(bytes, 20 * MIB, MIB));
    fake_aux.delay_us = 50000;
    for (int i = 0; i < 20; i++)
        pthread_create(&t[i], NULL, far_reader, &h);
    for (int i = 0; i < 20; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(fake_aux.decoded, 20);
    assert_in_range(fake_aux.decoding_max, 2, 8);
    fx_close(&mnt, &h);
}

/* The data is well: it is this mount that can't read it. */
static void test_missing_decoder_is_eio_and_no_damage(void **state)
{
    struct cl_handle h;

    (void)state;
    fake_aux.codes = fake_aux.always = true;
    fx_fill(bytes, MIB, 3);
    fx_open(&mnt, &h, file_of(bytes, MIB, MIB));
    fake_aux.decode_rc = -EIO;
    assert_int_equal(fx_read(&mnt, &h, got, 4096, 0), -EIO);
    assert_int_equal(world_bad_chunks(), 0);
    fake_aux.decode_rc = 0;
    read_is(&mnt, &h, bytes, MIB, 0);
    fx_close(&mnt, &h);
}

static void test_wrong_decoded_bytes_are_never_read(void **state)
{
    struct cl_handle h;

    (void)state;
    fake_aux.codes = fake_aux.always = true;
    fx_fill(bytes, MIB, 3);
    fx_open(&mnt, &h, file_of(bytes, MIB, MIB));
    fake_aux.decode_wrong = true;
    assert_true(fx_read(&mnt, &h, got, 4096, 0) < 0);
    assert_int_equal(world_bad_chunks(), 1);
    fake_aux.decode_wrong = false;
    read_is(&mnt, &h, bytes, MIB, 0);
    fx_close(&mnt, &h);
}

/* What stands beside hidden data must not let anyone check a guess at it; and must still find what went wrong. */
static void test_sum_of_hidden_data_tells_nothing_without_the_key(void **state)
{
    struct cl_handle h;
    uint64_t ino, plain;

    (void)state;
    fake_aux.codes = fake_aux.mask_only = true;
    noise(bytes, MIB, 1);
    plain = XXH3_64bits(bytes, MIB);
    view_is(file_of(bytes, MIB, MIB), bytes, MIB);
    assert_true(!fake_aux.envelope.keyed && fake_aux.envelope.data_sum == plain);
    fake_aux.hides = true;
    ino = file_of(bytes, MIB, MIB);
    view_is(ino, bytes, MIB);
    assert_true(fake_aux.envelope.keyed && (fake_aux.envelope.data_sum & 0xffffffffffff) != (plain & 0xffffffffffff));
    assert_int_equal(fake_aux.envelope.data_sum >> 48, world_keyedsum.number);
    fx_open(&mnt, &h, ino);
    fake_aux.decode_wrong = true;
    assert_true(fx_read(&mnt, &h, got, 4096, 0) < 0);
    fake_aux.decode_wrong = false;
    read_is(&mnt, &h, bytes, MIB, 0);
    fx_close(&mnt, &h);
}

/* The secret that the sum was made with is part of it: another one of the same number gives another sum. */
static void test_sum_of_hidden_data_is_of_the_store_s_key(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    fake_aux.codes = fake_aux.mask_only = fake_aux.hides = true;
    noise(bytes, MIB, 1);
    ino = file_of(bytes, MIB, MIB);
    fx_open(&mnt, &h, ino);
    world_keyedsum.secret[5] ^= 1;
    assert_true(fx_read(&mnt, &h, got, 4096, 0) < 0);
    world_keyedsum.number ^= 1; /* the store has got another key: not to be compared, and to be read */
    read_is(&mnt, &h, bytes, MIB, 0);
    world_keyedsum.number ^= 1;
    world_keyedsum.secret[5] ^= 1;
    fx_close(&mnt, &h);
}

static void test_flipped_bit_of_a_coded_chunk_is_seen(void **state)
{
    struct cl_handle h;
    uint32_t bnf, off;
    uint64_t ino;

    (void)state;
    fake_aux.codes = fake_aux.always = true;
    fx_fill(bytes, MIB, 3);
    ino = file_of(bytes, MIB, MIB);
    assert_true(world_bnf_flip(world_bnf(1), world_chunk_at(ino, 0, &bnf, &off), 70)); /* in the envelope */
    fx_open(&mnt, &h, ino);
    assert_true(fx_read(&mnt, &h, got, 4096, 0) < 0);
    assert_int_equal(fake_aux.decoded, 0);
    fx_close(&mnt, &h);
}

/* An aux-app that compares bytes must get them while the pool is full of windows that wait for it. */
static void test_stored_chunks_can_be_looked_at_without_the_pool(void **state)
{
    static uint8_t *pages[512];
    size_t n = cl_pool_pages(mnt.m.data->pool);
    struct cl_chunk_ref ref[2];
    struct cl_handle h;

    (void)state;
    for (int i = 0; i < 2; i++) {
        fx_fill(bytes, MIB, 3);
        fake_aux.codes = fake_aux.always = i == 1;
        fx_open(&mnt, &h, file_of(bytes, MIB, MIB));
        read_is(&mnt, &h, bytes, 1, 0);
        ref[i] = cl_file_win(h.inode->file, 0, false)->slices[0].chunk;
        assert_int_equal(ref[i].data_len_bytes != 0, i);
        fx_close(&mnt, &h);
    }
    for (int full = 0; full < 2; full++) {
        (void)cl_rcache_reclaim(mnt.m.data->rcache, SIZE_MAX);
        assert_true(n <= 512);
        for (size_t i = 0; full && i < n; i += n / 2)
            assert_int_equal(cl_pool_get(mnt.m.data->pool, pages + i, n / 2, fp_now_ms() + 1000), 0);
        for (int i = 0; i < 2; i++)
            for (uint32_t off = 0; off + 70000 < MIB; off += 60001) {
                memset(got, 0, 70000);
                assert_int_equal(cl_peek(mnt.m.data, &ref[i], off, got, 70000, fp_now_ms() + 5000), 0);
                assert_memory_equal(got, bytes + off, 70000);
            }
        assert_int_equal(cl_peek(mnt.m.data, &ref[0], MIB - 5, got, 6, fp_now_ms() + 5000), -EINVAL);
        assert_int_equal(cl_peek(mnt.m.data, &ref[1], MIB, got, 1, fp_now_ms() + 5000), -EINVAL);
        if (full)
            cl_pool_put(mnt.m.data->pool, pages, n);
    }
}

static void *slow_reader(void *arg)
{
    static uint8_t buf[4096];

    WORLD_CHECK(fx_read(&mnt, arg, buf, sizeof buf, 0) == (ssize_t)sizeof buf);
    return NULL;
}

/* The blocks are marked as being loaded, and are not there yet. */
static void test_looking_at_a_chunk_that_is_being_read(void **state)
{
    struct cl_chunk_ref ref;
    struct cl_handle h;
    pthread_t t;

    (void)state;
    fake_aux.codes = fake_aux.always = true;
    fx_fill(bytes, MIB, 3);
    fx_open(&mnt, &h, file_of(bytes, MIB, MIB));
    read_is(&mnt, &h, bytes, 1, 0);
    ref = cl_file_win(h.inode->file, 0, false)->slices[0].chunk;
    for (int i = 0; i < 20; i++) {
        unsigned before = fake_aux.decoded;
        (void)cl_rcache_reclaim(mnt.m.data->rcache, SIZE_MAX);
        fake_aux.delay_us = 20000;
        WORLD_CHECK(pthread_create(&t, NULL, slow_reader, &h) == 0);
        while (i > 0 && fake_aux.decoding == 0 && fake_aux.decoded == before)
            usleep(100);
        memset(got, 0, 70000);
        assert_int_equal(cl_peek(mnt.m.data, &ref, 5, got, 70000, fp_now_ms() + 5000), 0);
        assert_memory_equal(got, bytes + 5, 70000);
        pthread_join(t, NULL);
        fake_aux.delay_us = 0;
    }
    fx_close(&mnt, &h);
}

/* -------------------------------------------------------------- durability */

/* fsync of a file that only refers to what another mount has stored makes that durable. */
static void test_fsync_makes_what_is_referred_to_durable(void **state)
{
    struct cl_handle h;
    uint64_t a, b = world_file_new(MIB, 1);

    (void)state;
    fx_start(&other, 8, 20000);
    find_all();
    noise(bytes, MIB, 1);
    a = world_file_new(MIB, 1);
    fx_open(&other, &h, a);
    write_all(&other, &h, bytes, MIB, 0);
    assert_int_equal(cl_data_flush(&other.m, h.inode), 0);
    fx_close(&other, &h);
    wait_known();
    fx_open(&mnt, &h, b);
    assert_int_equal(cl_data_fsync(&mnt.m, h.inode), 0);
    write_all(&mnt, &h, bytes, MIB, 0);
    assert_int_equal(world_bnf(1)->syncs, 0);
    assert_int_equal(cl_data_fsync(&mnt.m, h.inode), 0);
    assert_int_equal(world_chunk_count(), 1);
    assert_true(world_bnf(1)->syncs > 0);
    fx_close(&mnt, &h);
    fx_stop(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_zeros_are_holes_and_store_nothing),
        T(test_zeros_over_data_are_read_before_they_are_published),
        T(test_duplicates_are_references_and_store_nothing),
        T(test_only_what_is_new_is_stored),
        T(test_what_is_not_vouched_for_is_stored_anew),
        T(test_what_is_equal_within_a_window_is_stored_once),
        T(test_slices_of_a_window_are_bounded),
        T(test_references_are_read_before_they_are_published),
        T(test_truncate_while_aux_apps_work_cuts_what_they_leave),
        T(test_unlinked_file_gives_up_what_is_held),
        T(test_jobs_say_where_their_data_is),
        T(test_refused_data_is_an_error_of_the_file),
        T(test_what_aux_apps_say_of_zeros_and_repetitions_is_not_believed),
        T(test_doubted_pieces_are_read_back_and_compared),
        T(test_looking_at_a_chunk_that_is_being_read),
        T(test_a_store_that_fails_is_repeated_with_the_same_result),
        T(test_coded_chunk_longer_than_the_largest_chunk),
        T(test_coded_chunk_of_another_node),
        T(test_readers_of_one_chunk_decode_it_once),
        T(test_reading_ahead_decodes_each_chunk_once),
        T(test_memory_for_decoding_is_bounded),
        T(test_missing_decoder_is_eio_and_no_damage),
        T(test_wrong_decoded_bytes_are_never_read),
        T(test_sum_of_hidden_data_tells_nothing_without_the_key),
        T(test_sum_of_hidden_data_is_of_the_store_s_key),
        T(test_flipped_bit_of_a_coded_chunk_is_seen),
        T(test_stored_chunks_can_be_looked_at_without_the_pool),
        T(test_fsync_makes_what_is_referred_to_durable),
    };

    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
