/*
 * What is lost with the end of a mount counts once, whatever state it was in: not stored, being stored, stored and not published, told to a manager that does not
 * answer, given back by a store that failed. One line says it, and it is the last error of the log.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>
#include <stdio.h>

#include "fp/log.h"

#define WINDOW     (64u << 10)
#define WINS       6u
#define TIMEOUT_MS 1500u
#define CLOSING    "that no close or fsync had confirmed are lost"

static struct fx_mount mnt;
static uint8_t bytes[WINS * WINDOW], got[WINS * WINDOW];
static struct world_bnf *bnf;
static FILE *captured;

static int setup(void **state)
{
    (void)state;
    memset(&world_faults, 0, sizeof world_faults);
    world_core_start();
    bnf = world_bnf_add(1, true, 400u << 20);
    fx_start(&mnt, 7, TIMEOUT_MS);
    fx_fill(bytes, sizeof bytes, 5);
    captured = tmpfile();
    assert_non_null(captured);
    fp_log_also(fileno(captured));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fp_log_also(-1);
    fclose(captured);
    world_close_conns();
    cl_itable_free(&mnt.m);
    cl_data_free(&mnt.m);
    world_core_stop();
    world_bnf_fini();
    world_mgr_reset();
    return 0;
}

static uint64_t written(struct cl_handle *h, size_t len)
{
    uint64_t ino = world_file_new(WINDOW, 1);

    fx_open(&mnt, h, ino);
    assert_int_equal(fx_write(&mnt, h, bytes, len, 0), len);
    return ino;
}

/* Lines of this kind; *last: the last of them. */
static unsigned lines(const char *with, char *last, size_t room)
{
    char line[1024];
    unsigned n = 0;

    rewind(captured);
    while (fgets(line, sizeof line, captured))
        if (strstr(line, with)) {
            snprintf(last, room, "%s", line);
            n++;
        }
    return n;
}

/* As finish() of main.c has it. */
static void end(bool sync)
{
    cl_data_end_by(&mnt.m, fp_now_ms() + TIMEOUT_MS);
    if (sync)
        (void)cl_data_sync_at_end(&mnt.m, fp_now_ms() + TIMEOUT_MS);
    cl_data_late_stop(&mnt.m);
    (void)cl_data_give_up(&mnt.m);
    cl_data_stop(&mnt.m);
}

static void lost_is(uint64_t len, unsigned files)
{
    char last[1024], says[128], size[FP_UNITS_BUF];

    assert_int_equal(mnt.m.data->end_bytes, len);
    assert_int_equal(mnt.m.data->lost_bytes, len);
    assert_true(cl_data_has_lost(&mnt.m));
    assert_true(cl_data_give_up(&mnt.m)); /* who else asks: and it is not said again */
    assert_int_equal(lines(CLOSING, last, sizeof last), 1);
    snprintf(says, sizeof says, "%s of %u file%s %s", fp_format_size(size, len), files, files == 1 ? "" : "s", CLOSING);
    assert_non_null(strstr(last, says));
    assert_true(lines("ERROR", last, sizeof last) > 0);
    assert_non_null(strstr(last, says));
}

static void test_lost_before_it_was_stored(void **state)
{
    struct cl_handle h;

    (void)state;
    (void)written(&h, 1000); /* its window stays open */
    end(false);
    lost_is(1000, 1);
}

static void test_lost_with_a_manager_that_does_not_answer(void **state)
{
    struct cl_handle h;

    (void)state;
    (void)written(&h, sizeof bytes);
    world_faults.mgr_lost_before = 100000;
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -ETIMEDOUT);
    end(true);
    lost_is(sizeof bytes, 1);
}

/* … and has not been asked for it either: it was written after that. */
static void test_lost_behind_a_commit_without_an_answer(void **state)
{
    struct cl_handle h, other;

    (void)state;
    (void)written(&h, 2 * WINDOW);
    world_faults.mgr_lost_before = 100000;
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -ETIMEDOUT);
    assert_int_equal(fx_write(&mnt, &h, bytes, 1000, 2 * WINDOW), 1000);
    (void)written(&other, WINDOW);
    end(true);
    lost_is(3 * WINDOW + 1000, 2);
}

/* The store gives the buffers back while the mount ends: they are in no account any more when the line is said. */
static void test_lost_by_a_store_that_fails(void **state)
{
    struct cl_handle a, b;

    (void)state;
    (void)written(&a, WINDOW - 1); /* not full: it is stored by the end's sync of everything */
    (void)written(&b, 1000);
    bnf->store_err = -EIO;
    end(true);
    lost_is(WINDOW + 999, 2);
}

static void test_lost_in_each_way_at_once(void **state)
{
    struct cl_handle a, b, c;

    (void)state;
    (void)written(&a, 3 * WINDOW);
    world_faults.mgr_lost_before = 100000;
    assert_int_equal(cl_data_flush(&mnt.m, a.inode), -ETIMEDOUT);
    (void)written(&b, 1000);
    (void)written(&c, WINDOW - 1);
    bnf->store_err = -EIO;
    assert_int_equal(fx_write(&mnt, &a, bytes, 7, 3 * WINDOW), 7);
    end(true);
    lost_is(4 * WINDOW + 1006, 3);
}

static void test_lost_by_a_manager_that_refuses(void **state)
{
    struct cl_handle h;

    (void)state;
    world_faults.mgr_refuse_win = 2;
    (void)written(&h, sizeof bytes);
    end(true);
    lost_is(WINDOW, 1);
}

/* In too many pieces: refused in the end, still there to be told of, and counted when it was. */
static void test_lost_in_too_many_pieces(void **state)
{
    struct cl_handle h;

    (void)state;
    (void)written(&h, 100);
    for (unsigned i = 1; i < 4; i++)
        assert_int_equal(fx_write(&mnt, &h, bytes, 100, i * 10000), 100);
    world_faults.mgr_window_max = 2;
    end(true);
    lost_is(400, 1);
}

/* What was told while it ran is no part of the closing line. */
static void test_lost_before_the_end_is_not_told_as_lost_with_it(void **state)
{
    struct cl_handle h;
    char last[1024];

    (void)state;
    (void)written(&h, WINDOW - 1);
    bnf->store_err = -EIO;
    assert_true(cl_data_flush(&mnt.m, h.inode) < 0);
    while (mnt.m.data->lost_bytes == 0) /* the store has not given it up yet: alarm() ends it */
        usleep(1000);
    end(true);
    assert_false(cl_data_give_up(&mnt.m));
    assert_true(cl_data_has_lost(&mnt.m));
    assert_int_equal(mnt.m.data->lost_bytes, WINDOW - 1);
    assert_int_equal(lines(CLOSING, last, sizeof last), 0);
}

/* It is written out twice: when the signal comes, and when the loop has ended. What the first could not do for ever is nothing that is left. */
static void test_lost_at_the_first_try_is_not_told_again_by_the_second(void **state)
{
    struct cl_handle h;

    (void)state;
    world_faults.mgr_bad_win = 1;
    (void)written(&h, WINDOW);
    cl_data_end_by(&mnt.m, fp_now_ms() + TIMEOUT_MS);
    assert_int_equal(cl_data_sync_at_end(&mnt.m, fp_now_ms() + TIMEOUT_MS), -EIO);
    assert_int_equal(cl_data_sync_all(&mnt.m, false, fp_now_ms() + TIMEOUT_MS), -EIO); /* an fsync would say so */
    assert_int_equal(cl_data_sync_at_end(&mnt.m, fp_now_ms() + TIMEOUT_MS), 0);
    end(false);
    assert_true(cl_data_has_lost(&mnt.m));
}

/* Wherever the end comes between: what is not in the file is in the line, and nothing that is. */
static void test_lost_is_what_is_not_there(void **state)
{
    struct cl_handle h[8];
    uint64_t ino[8], missing = 0;
    struct rnd r;

    (void)state;
    rnd_init(&r, rnd_seed(), 11);
    world_faults.bnf_delay_us = world_faults.mgr_delay_us = 2000;
    for (unsigned i = 0; i < 8; i++)
        ino[i] = written(&h[i], sizeof bytes);
    bnf->store_err = rnd_below(&r, 2) ? -EIO : 0;
    cl_data_end_by(&mnt.m, fp_now_ms() + rnd_below(&r, 40));
    (void)cl_data_sync_all(&mnt.m, true, fp_now_ms() + rnd_below(&r, 40));
    cl_data_late_stop(&mnt.m);
    (void)cl_data_give_up(&mnt.m);
    cl_data_stop(&mnt.m);
    for (unsigned i = 0; i < 8; i++) {
        uint64_t there = world_view(ino[i], got, sizeof got);

        missing += sizeof bytes - there;
        for (unsigned w = 0; w < there / WINDOW; w++)
            missing += memcmp(got + w * WINDOW, bytes + w * WINDOW, WINDOW) != 0 ? WINDOW : 0;
    }
    assert_int_equal(mnt.m.data->end_bytes, missing);
}

static void *flush(void *arg)
{
    struct cl_handle *h = arg;

    (void)cl_data_flush(&mnt.m, h->inode);
    return NULL;
}

/* Somebody waits for what is on its way to the store, as the end of the mount does, and then commits it. */
static void test_lost_beside_commits_that_are_sent_at_the_end(void **state)
{
    struct cl_handle h[16];
    pthread_t who[16];

    (void)state;
    for (unsigned i = 0; i < 16; i++)
        (void)written(&h[i], WINDOW - 1);
    world_faults.bnf_delay_us = world_faults.mgr_delay_us = 30000;
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(pthread_create(&who[i], NULL, flush, &h[i]), 0);
    usleep(5000);
    cl_data_late_stop(&mnt.m);
    cl_data_stop(&mnt.m);
    for (unsigned i = 0; i < 16; i++) {
        pthread_join(who[i], NULL);
        assert_int_equal(h[i].inode->file->nstored + h[i].inode->file->ninflight, 0);
    }
}

/* Nobody could have read it any more. */
static void test_lost_of_a_file_without_a_name_is_no_loss(void **state)
{
    struct cl_handle h;
    char last[1024];

    (void)state;
    (void)written(&h, 1000);
    pthread_mutex_lock(&h.inode->lock);
    h.inode->attr.nlink = 0;
    pthread_mutex_unlock(&h.inode->lock);
    end(false);
    assert_false(cl_data_has_lost(&mnt.m));
    assert_int_equal(lines(CLOSING, last, sizeof last), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_lost_before_it_was_stored),
        TEST(test_lost_with_a_manager_that_does_not_answer),
        TEST(test_lost_behind_a_commit_without_an_answer),
        TEST(test_lost_by_a_store_that_fails),
        TEST(test_lost_in_each_way_at_once),
        TEST(test_lost_by_a_manager_that_refuses),
        TEST(test_lost_of_a_file_without_a_name_is_no_loss),
        TEST(test_lost_in_too_many_pieces),
        TEST(test_lost_beside_commits_that_are_sent_at_the_end),
        TEST(test_lost_before_the_end_is_not_told_as_lost_with_it),
        TEST(test_lost_at_the_first_try_is_not_told_again_by_the_second),
        TEST(test_lost_is_what_is_not_there),
        TEST(test_lost_is_what_is_not_there),
        TEST(test_lost_is_what_is_not_there),
        TEST(test_lost_is_what_is_not_there),
        TEST(test_lost_is_what_is_not_there),
    };

    alarm(200); /* who waits without limit */
    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
