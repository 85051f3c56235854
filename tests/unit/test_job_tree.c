/* The tree of a job's agents: who is above whom, and what is known of each node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "job.pb-c.h"
#include "jobscripts/agent/tree.h"

enum { NONE, STARTING, READY, FAILED, ENDED };

static void test_everybody_has_a_way_to_the_root_and_few_below(void **state)
{
    static uint32_t below[10000];

    (void)state;
    memset(below, 0, sizeof below);
    for (uint32_t rank = 1; rank < 10000; rank++) {
        uint32_t parent = job_tree_parent(rank, JOB_FANOUT);

        assert_true(parent < rank);
        below[parent]++;
        assert_true(job_tree_depth(rank, JOB_FANOUT) <= 3);
    }
    for (uint32_t rank = 0; rank < 10000; rank++)
        assert_true(below[rank] <= JOB_FANOUT);
}

static void test_climbing_ends_at_the_root(void **state)
{
    (void)state;
    assert_int_equal(job_tree_climb(job_tree_parent(9999, 4), 4), job_tree_parent(job_tree_parent(9999, 4), 4));
    assert_int_equal(job_tree_climb(1, 4), 0);
    assert_int_equal(job_tree_climb(0, 4), 0);
    assert_int_equal(job_tree_depth(0, 4), 0);
    assert_int_equal(job_tree_depth(1, 1), 1);
    assert_int_equal(job_tree_depth(7, 1), 7);
}

static void is_run(struct job_states *s, uint32_t *at, bool all, uint32_t first, uint32_t count, int what, const char *text)
{
    struct job_run r;

    assert_true(job_states_next(s, at, all, &r));
    assert_int_equal(r.first, first);
    assert_int_equal(r.count, count);
    assert_int_equal(r.state, what);
    assert_string_equal(r.text, text);
}

static void is_end(struct job_states *s, uint32_t *at, bool all)
{
    struct job_run r;

    assert_false(job_states_next(s, at, all, &r));
    *at = 0;
}

static void test_what_is_the_same_of_many_is_said_once(void **state)
{
    struct job_states s;
    uint32_t at = 0;

    (void)state;
    assert_int_equal(job_states_init(&s, 10000), 0);
    is_end(&s, &at, false);
    is_end(&s, &at, true);
    assert_true(job_states_set(&s, 0, 10000, READY, "0-6"));
    assert_true(job_states_set(&s, 500, 1, FAILED, "no space"));
    is_run(&s, &at, false, 0, 500, READY, "0-6");
    is_run(&s, &at, false, 500, 1, FAILED, "no space");
    is_run(&s, &at, false, 501, 9499, READY, "0-6");
    is_end(&s, &at, false);
    is_end(&s, &at, false); /* all of it was told */
    is_run(&s, &at, true, 0, 500, READY, "0-6");
    assert_int_equal(s.of[READY], 9999);
    assert_int_equal(s.of[FAILED], 1);
    assert_int_equal(s.of[NONE], 0);
    job_states_fini(&s);
}

/* Wherever they stand; what was told before, or is not to be, is left out. */
static void test_what_is_the_same_of_nodes_apart_is_said_once(void **state)
{
    const struct job_node *of;
    bool told[6] = {false};
    struct job_states s;
    uint32_t ranks[6];

    (void)state;
    assert_int_equal(job_states_init(&s, 6), 0);
    assert_true(job_states_set(&s, 0, 1, READY, ""));
    assert_true(job_states_set(&s, 1, 1, FAILED, "no space"));
    assert_true(job_states_set(&s, 2, 1, FAILED, "no memory"));
    assert_true(job_states_set(&s, 4, 1, FAILED, "no space"));
    assert_true(job_states_set(&s, 5, 1, ENDED, "no space"));
    told[0] = true;
    assert_int_equal(job_states_alike(&s, told, ranks, &of), 2);
    assert_true(ranks[0] == 1 && ranks[1] == 4 && of->state == FAILED);
    assert_string_equal(of->text, "no space");
    assert_int_equal(job_states_alike(&s, told, ranks, &of), 1);
    assert_true(ranks[0] == 2 && of->state == FAILED);
    assert_int_equal(job_states_alike(&s, told, ranks, &of), 1);
    assert_true(ranks[0] == 3 && of->state == NONE && !of->text);
    assert_int_equal(job_states_alike(&s, told, ranks, &of), 1);
    assert_true(ranks[0] == 5 && of->state == ENDED);
    assert_int_equal(job_states_alike(&s, told, ranks, &of), 0);
    job_states_fini(&s);
}

static void test_what_is_known_already_is_no_news(void **state)
{
    struct job_states s;
    uint32_t at = 0;

    (void)state;
    assert_int_equal(job_states_init(&s, 4), 0);
    assert_true(job_states_set(&s, 1, 2, READY, NULL));
    is_run(&s, &at, false, 1, 2, READY, "");
    assert_false(job_states_set(&s, 1, 2, READY, ""));
    at = 0;
    is_end(&s, &at, false);
    assert_true(job_states_set(&s, 0, 4, READY, ""));
    is_run(&s, &at, false, 0, 1, READY, "");
    is_run(&s, &at, false, 3, 1, READY, "");
    job_states_fini(&s);
}

static void test_who_has_ended_stays_so(void **state)
{
    struct job_states s;

    (void)state;
    assert_int_equal(job_states_init(&s, 2), 0);
    assert_true(job_states_set(&s, 0, 1, ENDED, ""));
    assert_false(job_states_set(&s, 0, 1, READY, "late"));
    assert_int_equal(s.of[ENDED], 1);
    job_states_fini(&s);
}

static void test_what_makes_no_sense_is_passed_over(void **state)
{
    struct job_states s;
    char longer[JOB_TEXT_BYTES_MAX + 100];
    struct job_run r;
    uint32_t at = 0;

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(job_states_init(&s, 3), 0);
    assert_false(job_states_set(&s, 3, 1, READY, ""));
    assert_false(job_states_set(&s, UINT32_MAX, UINT32_MAX, READY, ""));
    assert_false(job_states_set(&s, 0, 1, NONE, ""));
    assert_false(job_states_set(&s, 0, 1, (int)JOB_STATES, ""));
    assert_false(job_states_set(&s, 0, 1, -1, ""));
    assert_false(job_states_set(&s, 0, 0, READY, ""));
    assert_true(job_states_set(&s, 2, UINT32_MAX, FAILED, longer));
    assert_true(job_states_next(&s, &at, false, &r));
    assert_int_equal(strlen(r.text), JOB_TEXT_BYTES_MAX);
    assert_false(job_states_set(&s, 2, 1, FAILED, longer));
    job_states_fini(&s);
}

static void test_who_comes_again_soon_has_not_failed(void **state)
{
    struct job_states s;

    (void)state;
    assert_int_equal(job_states_init(&s, 4), 0);
    (void)job_states_set(&s, 0, 4, READY, "");
    job_states_miss(&s, 1, 100);
    job_states_miss(&s, 2, 100);
    job_states_miss(&s, 2, 101); /* a second connection of it */
    assert_int_equal(s.missed, 2);
    assert_false(job_states_give_up(&s, 100 + JOB_AGAIN_MS - 1, "gone"));
    assert_int_equal(s.of[READY], 4);
    job_states_back(&s, 1);
    job_states_back(&s, 3); /* was never missed */
    assert_false(job_states_give_up(&s, 100 + JOB_AGAIN_MS, "gone"));
    assert_true(job_states_give_up(&s, 101 + JOB_AGAIN_MS, "gone"));
    assert_int_equal(s.of[READY], 3);
    assert_int_equal(s.nodes[2].state, FAILED);
    assert_string_equal(s.nodes[2].text, "gone");
    assert_int_equal(s.missed, 0);
    assert_false(job_states_give_up(&s, 1000000, "gone"));
    assert_true(job_states_set(&s, 2, 1, READY, "")); /* it comes late, and counts again */
    assert_int_equal(s.of[READY], 4);
    job_states_fini(&s);
}

static void test_who_has_ended_is_not_missed(void **state)
{
    struct job_states s;

    (void)state;
    assert_int_equal(job_states_init(&s, 2), 0);
    (void)job_states_set(&s, 1, 1, ENDED, "");
    job_states_miss(&s, 1, 100);
    assert_int_equal(s.missed, 0);
    assert_false(job_states_give_up(&s, 1000000, "gone"));
    job_states_fini(&s);
}

/* Also when the number of milliseconds does not fit any more. */
static void test_a_miss_of_weeks_ago_is_told_from_one_of_now(void **state)
{
    uint64_t late = ((uint64_t)1 << 32) - 10;
    struct job_states s;

    (void)state;
    assert_int_equal(job_states_init(&s, 1), 0);
    (void)job_states_set(&s, 0, 1, READY, "");
    job_states_miss(&s, 0, late);
    assert_false(job_states_give_up(&s, late + JOB_AGAIN_MS - 1, "gone"));
    assert_true(job_states_give_up(&s, late + JOB_AGAIN_MS, "gone"));
    job_states_fini(&s);
}

static void test_time_in_which_we_did_not_run_counts_little(void **state)
{
    struct job_ran r = {0};
    uint64_t began, now_ms = 5000000;

    (void)state;
    began = job_ran_tick(&r, now_ms);
    assert_true(began > 0);
    for (unsigned i = 0; i < 100; i++)
        (void)job_ran_tick(&r, now_ms += 20);
    assert_int_equal(r.ms - began, 2000);
    assert_int_equal(job_ran_tick(&r, now_ms += 60000) - began, 2000 + JOB_STEP_MS); /* stopped for a minute */
    assert_true(JOB_STEP_MS < JOB_AGAIN_MS);
    assert_int_equal(job_ran_tick(&r, now_ms), r.ms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everybody_has_a_way_to_the_root_and_few_below),
        cmocka_unit_test(test_climbing_ends_at_the_root),
        cmocka_unit_test(test_what_is_the_same_of_many_is_said_once),
        cmocka_unit_test(test_what_is_the_same_of_nodes_apart_is_said_once),
        cmocka_unit_test(test_what_is_known_already_is_no_news),
        cmocka_unit_test(test_who_has_ended_stays_so),
        cmocka_unit_test(test_what_makes_no_sense_is_passed_over),
        cmocka_unit_test(test_who_comes_again_soon_has_not_failed),
        cmocka_unit_test(test_who_has_ended_is_not_missed),
        cmocka_unit_test(test_a_miss_of_weeks_ago_is_told_from_one_of_now),
        cmocka_unit_test(test_time_in_which_we_did_not_run_counts_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
