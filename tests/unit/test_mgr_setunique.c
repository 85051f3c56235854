/* How much of the store a checkpoint set takes alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "life.pb-c.h"
#include "manager/sets.h"
#include "mgr_one.h"

#define WIN (1u << 20)

static uint64_t file(const char *dir, const char *name, uint32_t len)
{
    uint64_t d = fix_lookup(&f, MGR_ROOT_INO, dir), ino;

    d = d ? d : fix_mk(&f, MGR_ROOT_INO, dir, S_IFDIR | 0755);
    ino = fix_mk(&f, d, name, S_IFREG | 0644);
    if (len)
        assert_true(fix_write(&f, ino, 0, len) > 0);
    return ino;
}

static void wait_ms(uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += 500) {
        fix_keepalive(&f);
        fix_tick(&f, 500);
    }
}

/* -1: not known. */
static int64_t unique_now(uint64_t step)
{
    Fp__CtlSets m = FP__CTL_SETS__INIT;
    Fp__CtlSetsReply *r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_CTL_SETS, &m, &fp__ctl_sets_reply__descriptor);
    int64_t found = -2;

    assert_non_null(r);
    for (size_t i = 0; i < r->n_sets; i++)
        if (r->sets[i]->step == step)
            found = r->sets[i]->unique_known ? (int64_t)r->sets[i]->unique_bytes : -1;
    fix_free(r);
    return found;
}

/* What others do to it is seen some time later. */
static int64_t unique_of(uint64_t step)
{
    unique_now(step);
    wait_ms(12000);
    unique_now(step);
    wait_ms(1000);
    return unique_now(step);
}

static void test_what_nobody_shares_is_all_of_it(void **state)
{
    (void)state;
    file("chk_1", "a", 3000);
    file("chk_1", "b", 5000);
    file("chk_1", "empty", 0);
    file("chk_2", "a", 7000);
    assert_int_equal(unique_now(1), -1); /* open */
    wait_ms(3000);
    assert_int_equal(unique_now(1), 8000); /* at once: it is small */
    assert_int_equal(unique_now(2), 7000);
}

static void test_what_another_set_or_file_shares_is_nobodys(void **state)
{
    uint64_t a = file("chk_1", "a", 3000), b;

    (void)state;
    file("chk_1", "b", 500);
    b = file("chk_2", "a", 0);
    file("chk_2", "b", 0);
    wait_ms(3000);
    assert_int_equal(unique_now(1), 3500);
    assert_int_equal(fix_clone(&f, a, b, 0, 3000), 0);
    assert_int_equal(unique_now(1), 3500); /* as it was, until it is counted anew */
    wait_ms(3000);
    assert_int_equal(unique_of(1), 500);
    assert_int_equal(unique_of(2), 0);
    assert_int_equal(fix_unlink(&f, fix_lookup(&f, MGR_ROOT_INO, "chk_2"), "a", false), 0);
    assert_int_equal(unique_of(1), 3500);
    assert_int_equal(fix_clone(&f, a, file("plain", "x", 0), 0, 3000), 0);
    assert_int_equal(unique_of(1), 500);
}

/* Shared within the set, and chunks in pieces: once, whole. */
static void test_what_is_shared_within_the_set_counts_once(void **state)
{
    uint64_t a = file("chk_1", "a", 9000), b = file("chk_1", "b", 0), c = file("chk_1", "c", 0);

    (void)state;
    assert_int_equal(fix_clone(&f, a, b, 0, 9000), 0);
    assert_int_equal(fix_clone(&f, a, c, 0, 9000), 0);
    assert_true(fix_write(&f, b, 3000, 100) > 0); /* the chunk has four references now */
    wait_ms(3000);
    assert_int_equal(fix_sql(&f, "SELECT max(refs) FROM chunk"), 4);
    assert_int_equal(unique_of(1), 9100);
}

static void test_a_set_of_the_same_number_is_another(void **state)
{
    uint64_t d;

    (void)state;
    file("chk_1", "a", 1000);
    wait_ms(3000);
    assert_int_equal(unique_now(1), 1000);
    d = fix_lookup(&f, MGR_ROOT_INO, "chk_1");
    assert_int_equal(fix_unlink(&f, d, "a", false), 0);
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "chk_1", true), 0);
    wait_ms(3000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM ckpt_set"), 0);
    file("chk_2", "a", 2000);
    wait_ms(3000);
    assert_int_equal(fix_sql(&f, "SELECT id*10+gen FROM ckpt_set"), 11);
    assert_int_equal(unique_now(2), 2000);
}

/* More than one request, or one group, looks at. */
static void test_large_sets_are_counted_in_pieces(void **state)
{
    uint64_t a = file("chk_1", "a", 0), sum = 0;

    (void)state;
    for (uint32_t i = 0; i < 20000; i++) {
        assert_true(fix_write(&f, a, (uint64_t)i * WIN, 10 + i % 7) > 0);
        sum += 10 + i % 7;
    }
    wait_ms(3000);
    assert_int_equal(unique_now(1), -1);
    wait_ms(5000);
    assert_int_equal(unique_now(1), sum);
    assert_true(fix_write(&f, a, 0, 100) > 0); /* open again */
    assert_int_equal(unique_now(1), -1);
}

/* More references than are looked through. */
static void test_what_very_many_share_is_taken_for_shared(void **state)
{
    uint64_t a = file("chk_1", "a", 1000);
    char name[32];

    (void)state;
    file("chk_1", "own", 10);
    for (unsigned i = 0; i < 63; i++) {
        snprintf(name, sizeof name, "b%u", i);
        assert_int_equal(fix_clone(&f, a, file("chk_1", name, 0), 0, 1000), 0);
    }
    wait_ms(3000);
    assert_int_equal(unique_of(1), 1010);
    assert_int_equal(fix_clone(&f, a, file("chk_1", "one_more", 0), 0, 1000), 0);
    wait_ms(3000);
    assert_int_equal(unique_of(1), 10);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup_plain, teardown)
    const struct CMUnitTest tests[] = {
        T(test_what_nobody_shares_is_all_of_it),
        T(test_what_another_set_or_file_shares_is_nobodys),
        T(test_what_is_shared_within_the_set_counts_once),
        T(test_a_set_of_the_same_number_is_another),
        T(test_large_sets_are_counted_in_pieces),
        T(test_what_very_many_share_is_taken_for_shared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
