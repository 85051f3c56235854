/*
 * What was written and given up is not read back as what was there before: EIO, until a close or an fsync has told. Lists of such ranges against an array of
 * bytes, then files.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "client/append.h"
#include "client/data/gone.h"

#define WINDOW     (64u << 10)
#define WINS       4u
#define LOST       (WINDOW - 1)
#define TIMEOUT_MS 1000u
#define SPACE      2000u

static struct fx_mount mnt;
static uint8_t before[WINS * WINDOW], after[WINS * WINDOW], got[(WINS + 1) * WINDOW];
static struct world_bnf *bnf;

static int setup(void **state)
{
    (void)state;
    memset(&world_faults, 0, sizeof world_faults);
    world_core_start();
    bnf = world_bnf_add(1, true, 400u << 20);
    fx_start(&mnt, 7, TIMEOUT_MS);
    fx_fill(before, sizeof before, 5);
    fx_fill(after, sizeof after, 99);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cl_data_stop(&mnt.m);
    world_close_conns();
    cl_itable_free(&mnt.m);
    cl_data_free(&mnt.m);
    world_core_stop();
    world_bnf_fini();
    world_mgr_reset();
    return 0;
}

/* ------------------------------------------------------------------ lists */

static void check(const struct cl_gone *g, const uint8_t *in, bool exact)
{
    uint64_t end = 0;

    assert_true(g->n <= CL_GONE_MAX);
    for (uint32_t i = 0; i < g->n; i++) {
        assert_true(g->range[i].off < g->range[i].end);
        assert_true(i == 0 || g->range[i - 1].end < g->range[i].off);
    }
    for (uint64_t at = 0; at < SPACE; at++) {
        bool has = cl_gone_any(g, at, at + 1);

        assert_true(has || !in[at]);
        assert_true(!exact || has == in[at]);
        end = in[at] ? at + 1 : end;
    }
    assert_int_equal(cl_gone_end(g), end);
}

/* More than fit is too much, never too little; the end is right always. */
static void test_gone_lists_have_all_that_was_added(void **state)
{
    struct rnd r;

    (void)state;
    rnd_init(&r, rnd_seed(), 3);
    for (unsigned turn = 0; turn < 300; turn++) {
        struct cl_gone g = {0};
        uint8_t in[SPACE] = {0};
        unsigned n = (unsigned)rnd_below(&r, 2 * CL_GONE_MAX);

        for (unsigned i = 0; i < n; i++) {
            uint64_t off = rnd_below(&r, SPACE - 1), end = off + rnd_below(&r, SPACE - off < 200 ? SPACE - off : 200);

            cl_gone_add(&g, off, end);
            memset(in + off, 1, end - off);
            check(&g, in, i < CL_GONE_MAX);
        }
        if (n <= CL_GONE_MAX) {
            uint64_t size = rnd_below(&r, SPACE);

            cl_gone_cut(&g, size);
            memset(in + size, 0, SPACE - size);
            check(&g, in, true);
        }
    }
}

/* ------------------------------------------------------------------ files */

/* A file with two published windows. */
static uint64_t published(struct cl_handle *h)
{
    uint64_t ino = world_file_new(WINDOW, 1);

    fx_open(&mnt, h, ino);
    assert_int_equal(fx_write(&mnt, h, before, 2 * WINDOW, 0), 2 * WINDOW);
    assert_int_equal(cl_data_flush(&mnt.m, h->inode), 0);
    return ino;
}

static uint64_t size_of(struct cl_handle *h)
{
    struct stat st = {0};

    pthread_mutex_lock(&h->inode->lock);
    st.st_size = (off_t)h->inode->attr.size_bytes;
    cl_data_overlay(h->inode, &st);
    assert_int_equal(st.st_size, cl_data_size_bytes(h->inode));
    pthread_mutex_unlock(&h->inode->lock);
    return (uint64_t)st.st_size;
}

static void wait_lost(uint64_t bytes)
{
    while (atomic_load(&mnt.m.data->lost_bytes) < bytes) /* alarm() ends it */
        usleep(1000);
}

/* Over the second window, and two behind it, which no benefactor takes; a byte less than is stored at once, so that no write hears of it. */
static void lose(struct cl_handle *h)
{
    bnf->store_err = -EIO;
    for (unsigned i = 1; i < 4; i++)
        assert_int_equal(fx_write(&mnt, h, after, LOST, i * WINDOW), LOST);
    assert_true(cl_publish_for_others(mnt.m.data, h->inode, CL_BY_PROGRESS) < 0);
    wait_lost(3 * LOST);
    bnf->store_err = 0;
}

static void as_before(struct cl_handle *h)
{
    assert_int_equal(size_of(h), 2 * WINDOW);
    assert_int_equal(fx_read(&mnt, h, got, sizeof got, 0), 2 * WINDOW);
    assert_memory_equal(got, before, 2 * WINDOW);
    assert_int_equal(fx_read(&mnt, h, got, 100, 3 * WINDOW), 0);
}

static void test_gone_is_eio_until_it_is_told(void **state)
{
    struct cl_handle h;

    (void)state;
    (void)published(&h);
    lose(&h);
    for (unsigned i = 0; i < 2; i++) { /* to read is not to be told */
        assert_int_equal(fx_read(&mnt, &h, got, 100, WINDOW), -EIO);
        assert_int_equal(fx_read(&mnt, &h, got, 100, 3 * WINDOW), -EIO);
        assert_int_equal(fx_read(&mnt, &h, got, 10, 3 * WINDOW + LOST - 10), -EIO);
        assert_int_equal(fx_read(&mnt, &h, got, 10, 3 * WINDOW + LOST), 0);
    }
    assert_int_equal(size_of(&h), 3 * WINDOW + LOST);
    memset(got, 0, sizeof got);
    assert_int_equal(fx_read(&mnt, &h, got, sizeof got, 0), WINDOW); /* the rest of the file is what it was */
    assert_memory_equal(got, before, WINDOW);
    assert_true(cl_data_flush(&mnt.m, h.inode) < 0);
    as_before(&h);
    assert_int_equal(fx_write(&mnt, &h, after, WINDOW, WINDOW), WINDOW); /* and it can be written again */
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    assert_int_equal(fx_read(&mnt, &h, got, WINDOW, WINDOW), WINDOW);
    assert_memory_equal(got, after, WINDOW);
    fx_check_file_quiet(&h);
    fx_close(&mnt, &h);
}

/* Programs take it lightly if one of these fails: copying tools go on without. So it is told by them, and by the close all the same. */
static void test_gone_is_told_by_close_whatever_failed_before(void **state)
{
    struct cl_handle h;
    uint64_t off;

    (void)state;
    (void)published(&h);
    lose(&h);
    assert_true(cl_data_lseek(&mnt.m, &h, 0, SEEK_HOLE, &off) < 0);
    assert_true(cl_data_fallocate(&mnt.m, &h, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 100) < 0);
    assert_true(cl_data_copy_range(&mnt.m, &h, 0, &h, 5 * WINDOW, 100) < 0);
    assert_true(cl_data_close(&mnt.m, &h) < 0);
    assert_true(cl_data_fsync(&mnt.m, h.inode) < 0);
    as_before(&h);
    fx_check_file_quiet(&h);
    fx_close(&mnt, &h);
}

static void test_gone_is_what_the_manager_refuses(void **state)
{
    struct cl_handle h;

    (void)state;
    (void)published(&h);
    world_faults.mgr_refuse_win = 3;
    assert_int_equal(fx_write(&mnt, &h, after, WINDOW, 2 * WINDOW), WINDOW);
    assert_true(cl_data_close(&mnt.m, &h) < 0); /* told, and there for fsync, too */
    assert_int_equal(fx_read(&mnt, &h, got, 100, 2 * WINDOW), -EIO);
    world_faults.mgr_refuse_win = 0;
    assert_true(cl_data_fsync(&mnt.m, h.inode) < 0);
    as_before(&h);
    fx_check_file_quiet(&h);
    fx_close(&mnt, &h);
}

static void test_gone_is_cut_with_the_file(void **state)
{
    struct cl_handle h;

    (void)state;
    (void)published(&h);
    lose(&h);
    assert_int_equal(fx_truncate(&mnt, &h, WINDOW), 0);
    assert_int_equal(size_of(&h), WINDOW);
    assert_int_equal(fx_read(&mnt, &h, got, sizeof got, 0), WINDOW);
    assert_memory_equal(got, before, WINDOW);
    assert_true(cl_data_flush(&mnt.m, h.inode) < 0);
    fx_check_file_quiet(&h);
    fx_close(&mnt, &h);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void lose_the_right_to_append(struct cl_handle *h)
{
    pthread_mutex_lock(&h->inode->lock);
    cl_data_append_lost(h->inode, cl_append_base(h->inode));
    assert_true(cl_data_append_is_lost(h->inode));
    pthread_mutex_unlock(&h->inode->lock);
}

/* What was appended by a mount that had no right to any more: never over what others have written there. */
static void appended(bool overtaken)
{
    struct fx_mount other;
    struct cl_handle h, theirs;
    uint64_t ino = published(&h), end = 2 * WINDOW;

    world_faults.mgr_lease_time = 5;
    fx_start(&other, 8, TIMEOUT_MS);
    fx_open(&other, &theirs, ino);
    assert_int_equal(fx_write(&mnt, &h, after, 300, end), 300);
    lose_the_right_to_append(&h);
    assert_int_equal(fx_write(&mnt, &h, after + 300, 300, end + 300), 300);
    if (overtaken) {
        assert_int_equal(fx_write(&other, &theirs, before, 400, end), 400);
        assert_int_equal(cl_data_flush(&other.m, theirs.inode), 0);
        assert_int_equal(cl_data_flush(&mnt.m, h.inode), FP_EOVERTAKEN);
    }
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    assert_false(cl_data_append_is_lost(h.inode));
    assert_int_equal(world_view(ino, got, sizeof got), end + (overtaken ? 400 : 600));
    assert_memory_equal(got + end, overtaken ? before : after, overtaken ? 400 : 600);
    assert_int_equal(fx_write(&other, &theirs, before, 10, 0), 10); /* what is written from now on is any node's again */
    assert_int_equal(cl_data_flush(&other.m, theirs.inode), 0);
    assert_int_equal(fx_write(&mnt, &h, after, 10, 10), 10);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    assert_int_equal(fx_read(&mnt, &h, got, 20, 0), 20);
    assert_true(memcmp(got, before, 10) == 0 && memcmp(got + 10, after, 10) == 0);
    fx_close(&other, &theirs);
    fx_stop(&other);
    fx_check_file_quiet(&h);
    fx_close(&mnt, &h);
}

static void test_gone_is_what_was_appended_where_others_have_since(void **state)
{
    (void)state;
    appended(true);
}

static void test_gone_is_nothing_of_what_was_appended_where_nobody_has(void **state)
{
    (void)state;
    appended(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gone_lists_have_all_that_was_added),
        TEST(test_gone_is_eio_until_it_is_told),
        TEST(test_gone_is_told_by_close_whatever_failed_before),
        TEST(test_gone_is_what_the_manager_refuses),
        TEST(test_gone_is_cut_with_the_file),
        TEST(test_gone_is_what_was_appended_where_others_have_since),
        TEST(test_gone_is_nothing_of_what_was_appended_where_nobody_has),
    };

    alarm(60); /* who waits without limit */
    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
