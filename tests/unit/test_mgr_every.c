/* every=auto: the least k with which the target keeps up, by what was measured; and what it does to sets as they come. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "mgr_drain_world.h"

#define MB   UINT64_C(1000000)
#define GB   (1000 * MB)
#define S_NS INT64_C(1000000000)

static struct world w;

static struct mgr_load load_of(unsigned sets, uint64_t bytes, unsigned gap_s)
{
    struct mgr_load l = {0};

    for (unsigned i = 0; i < sets; i++)
        mgr_load_add(&l, bytes, S_NS + (int64_t)i * gap_s * S_NS);
    return l;
}

/* A set of so many bytes each so many seconds, a target of that speed: up to now k, from now on k. */
static void test_k_by_situation(void **state)
{
    static const struct {
        unsigned sets, gap_s;
        uint64_t bytes, rate;
        bool filling;
        uint32_t now, k;
    } t[] = {
        {0, 60, 10 * GB, 0, false, 0, 1},         /* nothing is known: the first is drained, and measures the target */
        {1, 60, 10 * GB, 90 * MB, false, 0, 1},   /* one set says nothing of how often they come */
        {5, 60, 10 * GB, 0, false, 0, 1},
        {5, 60, 10 * GB, 0, false, 3, 3},         /* a manager that was started anew does not know the target's speed: as before */
        {5, 60, 10 * GB, 1000 * MB, false, 0, 1},
        {5, 60, 10 * GB, 90 * MB, false, 1, 3},   /* 1.85 of what the target takes, with a tenth to spare: 2.04 */
        {5, 60, 10 * GB, 90 * MB, false, 3, 3},
        {5, 60, 10 * GB, 100 * MB, false, 1, 2},
        {5, 60, 10 * GB, 100 * MB, false, 3, 3},  /* it falls only when three tenths would be to spare */
        {5, 60, 10 * GB, 140 * MB, false, 3, 2},
        {5, 60, 10 * GB, 90 * MB, false, 9, 3},
        {5, 600, 10 * GB, 90 * MB, false, 3, 1},
        {5, 60, 10 * GB, 1 * MB, false, 1, 184},
        {5, 60, 1000 * GB, 1 * MB, false, 1, 1000},
        {5, 0, 10 * GB, 90 * MB, false, 1, 1000}, /* all at once */
        {5, 60, 0, 90 * MB, false, 4, 4},         /* empty sets */
        {5, 60, 10 * GB, 90 * MB, true, 3, 1},    /* only what is drained can give way */
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct mgr_load l = load_of(t[i].sets, t[i].bytes, t[i].gap_s);
        uint32_t k = mgr_every_of(t[i].now, &l, t[i].rate, t[i].filling);

        if (k != t[i].k)
            fail_msg("situation %zu: %u instead of %u", i, k, t[i].k);
        if (k > 1 && l.ms && mgr_every_of(k, &l, t[i].rate, false) != k)
            fail_msg("situation %zu: it does not stay", i);
    }
}

static double rate_of(const struct mgr_load *l)
{
    return (double)l->bytes * 1000 / (double)l->ms;
}

static void test_a_pause_of_the_job_is_no_slower_pace(void **state)
{
    struct mgr_load l = load_of(6, 600 * MB, 60);
    int64_t now = S_NS + 5 * 60 * S_NS;

    (void)state;
    assert_in_range((uint64_t)rate_of(&l), 9900000, 10100000);
    mgr_load_add(&l, 600 * MB, now += 36000 * S_NS); /* the next day */
    assert_in_range((uint64_t)rate_of(&l), 9900000, 10100000);
    mgr_load_add(&l, 600 * MB, now += 60 * S_NS);
    assert_in_range((uint64_t)rate_of(&l), 9900000, 10100000);
    mgr_load_add(&l, 600 * MB, now += 6000 * S_NS); /* but twice is its pace */
    mgr_load_add(&l, 600 * MB, now += 6000 * S_NS);
    assert_in_range((uint64_t)rate_of(&l), 99000, 101000);
    mgr_load_add(&l, 600 * MB, now -= 90000 * S_NS); /* a clock that is set back */
    assert_in_range((uint64_t)rate_of(&l), 99000, 101000);
}

static void test_two_series_are_one_load(void **state)
{
    struct mgr_load l = {0};

    (void)state;
    for (int64_t i = 1; i < 20; i++) {
        mgr_load_add(&l, 500 * MB, i * 60 * S_NS);
        mgr_load_add(&l, 100 * MB, i * 60 * S_NS + S_NS);
    }
    assert_in_range((uint64_t)rate_of(&l), 8000000, 12500000);
}

static void test_the_targets_speed_is_of_when_there_was_something_to_drain(void **state)
{
    struct mgr_target t = {0};

    (void)state;
    assert_int_equal(mgr_taken_rate(&t), 0);
    mgr_taken_add(&t, 100, 50 * MB);
    assert_int_equal(mgr_taken_rate(&t), 0); /* too short to say */
    for (unsigned i = 0; i < 1000; i++)
        mgr_taken_add(&t, 400, i % 8 ? 0 : 320 * MB); /* parts end all at once */
    assert_in_range(mgr_taken_rate(&t), 95 * MB, 105 * MB);
    for (unsigned i = 0; i < 300; i++)
        mgr_taken_add(&t, 400, 4 * MB);
    assert_in_range(mgr_taken_rate(&t), 10 * MB, 40 * MB);
}

/* ---------------------------------------------------------------- sets come */

/* A set of 1 MB becomes complete; true: it has got a job. */
static bool comes(const char *series, unsigned step)
{
    int64_t before = fix_sql(&w.f, "SELECT count(*) FROM drain_job");
    char name[32];
    uint64_t ino;

    snprintf(name, sizeof name, "%s_%u", series, step);
    ino = fix_mk(&w.f, fix_mk(&w.f, MGR_ROOT_INO, name, S_IFDIR | 0755), "rank_0", S_IFREG | 0644);
    assert_true(fix_write(&w.f, ino, 0, 1000000) > 0);
    w_tick(&w, 5000);
    return fix_sql(&w.f, "SELECT count(*) FROM drain_job") > before;
}

static void target_takes(uint64_t rate)
{
    struct mgr_target *t = mgr_target_find(w.f.core, 1);

    assert_non_null(t);
    t->busy_ms = 30000;
    t->busy_bytes = 30 * rate;
    t->new_bytes = 0;
}

static void shown(const char *part)
{
    Fp__CtlDrainReply *r = w_show(&w, 0);

    assert_int_equal(r->n_policies, 1);
    if (!strstr(r->policies[0]->chosen, part))
        fail_msg("'%s' is not in '%s'", part, r->policies[0]->chosen);
    fix_free(r);
}

static void test_each_third_when_the_target_takes_a_third(void **state)
{
    (void)state;
    w_open(&w, fix_path(), 1);
    w_policy(&w, "to=/pfs every=auto");
    shown("every=auto: 1 (how often sets come is not known yet, the target's speed is not known yet)");
    for (unsigned step = 1; step <= 10; step++) { /* the first one measures the target */
        if (step == 6)
            w_restart(&w); /* nothing is known of the target any more */
        assert_int_equal(comes("chk", step), step % 3 == 1);
        shown(step == 1 ? "every=auto: 1 (how often" : "every=auto: 3 (a set each ");
        w_run(&w); /* half a minute */
        target_takes(12500); /* of 28,000 bytes a second */
    }
    assert_int_equal(fix_sql(&w.f, "SELECT seen*100+taken FROM policy"), 1004);
    w_policy_change(&w, NULL, 1, NULL);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_taken"), 0);
    w_close(&w);
}

static void test_no_third_set_waits_for_the_target(void **state)
{
    (void)state;
    w_open(&w, ":memory:", 1);
    w_policy(&w, "to=/pfs every=auto");
    assert_true(comes("chk", 1));
    assert_true(comes("chk", 2)); /* nothing is known of the target, and it has taken nothing yet */
    assert_false(comes("chk", 3));
    assert_false(comes("chk", 4));
    assert_true(comes("plt", 1)); /* a series of its own */
    shown("3 sets wait for it");
    w_run(&w);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_job WHERE state<4"), 0);
    target_takes(100 * MB);
    assert_true(comes("chk", 5));
    w_close(&w);
}

static void test_when_space_is_short_each_set_is_drained(void **state)
{
    (void)state;
    w_open(&w, ":memory:", 1);
    w_policy(&w, "to=/pfs every=auto");
    assert_true(comes("chk", 1));
    w_run(&w);
    target_takes(20000);
    assert_false(comes("chk", 2));
    w.free_bytes = (1u << 30) / 10;
    w_tick(&w, 5000);
    assert_true(comes("chk", 3));
    assert_true(comes("chk", 4));
    assert_true(comes("chk", 5)); /* however many wait: programs wait for the target, too */
    shown("every=auto: 1 (less than 30% of the store is free; ");
    w_close(&w);
}

/* A late file of a set: of one that was chosen it is drained, of another it is not. */
static void test_what_is_added_to_a_set_goes_with_it(void **state)
{
    uint64_t dir;

    (void)state;
    w_open(&w, ":memory:", 1);
    w_policy(&w, "to=/pfs every=auto");
    assert_true(comes("chk", 1));
    w_run(&w);
    target_takes(20000);
    assert_false(comes("chk", 2));
    for (unsigned step = 1; step <= 2; step++) {
        int64_t before = fix_sql(&w.f, "SELECT count(*) FROM drain_job");
        uint64_t ino;

        dir = (uint64_t)fix_sql(&w.f, "SELECT top FROM ckpt_set WHERE step=%u", step);
        ino = fix_mk(&w.f, dir, "late", S_IFREG | 0644);
        assert_true(fix_write(&w.f, ino, 0, 1000) > 0);
        w_tick(&w, 5000);
        assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM drain_job") - before, step == 1);
        w_run(&w);
    }
    assert_int_equal(fix_sql(&w.f, "SELECT seen*100+taken FROM policy"), 201);
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_k_by_situation),
        cmocka_unit_test(test_a_pause_of_the_job_is_no_slower_pace),
        cmocka_unit_test(test_two_series_are_one_load),
        cmocka_unit_test(test_the_targets_speed_is_of_when_there_was_something_to_drain),
        cmocka_unit_test(test_each_third_when_the_target_takes_a_third),
        cmocka_unit_test(test_no_third_set_waits_for_the_target),
        cmocka_unit_test(test_when_space_is_short_each_set_is_drained),
        cmocka_unit_test(test_what_is_added_to_a_set_goes_with_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
