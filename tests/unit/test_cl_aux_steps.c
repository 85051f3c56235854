/*
 * The earlier version of a file among those of its directory: the step before of the same rank, not what another rank has just written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/aux/steps.h"

static int differ(const char *x, const char *y)
{
	uint32_t group;
	bool less;

	return cl_aux_steps_differ(x, y, &group, &less);
}

static void test_steps_names_that_belong_together(void **state)
{
	uint32_t group = 9;
	bool less = false;

	(void)state;
	assert_int_equal(differ("chk_0007", "chk_0006"), 1);
	assert_int_equal(differ("chk_9", "chk_10"), 1);
	assert_int_equal(differ("chk_0007", "chk_0007.tmp"), 0);
	assert_int_equal(differ("a7b8", "a6b9"), 2);
	assert_int_equal(differ("chk_7", "chk_x"), -1);
	assert_int_equal(differ("chk_7", "chk_"), -1);
	assert_int_equal(differ("chk_7.h5", "chk_6.h4.bak"), -1);
	assert_int_equal(differ("a", "b"), -1);
	assert_int_equal(differ("0007", "7"), 0);
	assert_int_equal(cl_aux_steps_differ("s5.r3", "s4.r3", &group, &less), 1);
	assert_int_equal(group, 0);
	assert_true(less);
	assert_int_equal(cl_aux_steps_differ("s5.r3", "s5.r12", &group, &less), 1);
	assert_int_equal(group, 1);
	assert_false(less);
}

static void test_steps_the_step_before_of_the_same_rank_comes_first(void **state)
{
	struct aux_steps s = {0};
	uint64_t ino[AUX_STEPS_MAX];
	char name[64];

	(void)state;
	/* steps 1 to 4 of ranks 0 to 7 are there, and of step 5 what other ranks have closed a moment ago; inode = step * 100 + rank */
	for (uint64_t step = 1; step <= 5; step++) {
		for (uint64_t rank = 0; rank < 8; rank++) {
			if (step == 5 && rank == 3)
				continue;
			snprintf(name, sizeof name, "ckpt_%llu_rank%03llu.dmtcp", (unsigned long long)step, (unsigned long long)rank);
			cl_aux_steps_add(&s, "ckpt_5_rank003.dmtcp.tmp", name, step * 100 + rank, (int64_t)(step * 1000 + rank), false);
		}
	}
	assert_true(cl_aux_steps_order(&s, ino) >= 2);
	assert_int_equal(ino[0], 403);
	assert_int_equal(ino[1], 502); /* better than nothing */
}

static void test_steps_the_nearest_smaller_one_in_any_order(void **state)
{
	static const char *const names[] = {"c-8", "c-2", "c-9", "c-11", "c-10", "c-1", "other"};
	uint64_t ino[AUX_STEPS_MAX];

	(void)state;
	for (unsigned from = 0; from < 7; from++) {
		struct aux_steps s = {0};

		for (unsigned i = 0; i < 7; i++)
			cl_aux_steps_add(&s, "c-10", names[(from + i) % 7], (from + i) % 7 + 1, 5, false);
		assert_true(cl_aux_steps_order(&s, ino) >= 1);
		assert_int_equal(ino[0], 3);
		assert_string_equal(cl_aux_steps_before(&s)->name, "c-9");
	}
}

static void test_steps_without_a_smaller_one_the_newest(void **state)
{
	struct aux_steps s = {0};
	uint64_t ino[AUX_STEPS_MAX];

	(void)state;
	cl_aux_steps_add(&s, "c-0", "c-1", 1, 10, false);
	cl_aux_steps_add(&s, "c-0", "c-2", 2, 20, false);
	cl_aux_steps_add(&s, "c-0", "d-3", 3, 30, false);
	assert_int_equal(cl_aux_steps_order(&s, ino), 1);
	assert_int_equal(ino[0], 2);
	cl_aux_steps_add(&s, "c-0", "d-3", 3, 30, true); /* matches the pattern */
	assert_int_equal(cl_aux_steps_order(&s, ino), 1);
	assert_int_equal(ino[0], 3);
}

static void test_steps_nothing(void **state)
{
	struct aux_steps s = {0};
	uint64_t ino[AUX_STEPS_MAX];

	(void)state;
	assert_int_equal(cl_aux_steps_order(&s, ino), 0);
	assert_null(cl_aux_steps_before(&s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steps_names_that_belong_together),
		cmocka_unit_test(test_steps_the_step_before_of_the_same_rank_comes_first),
		cmocka_unit_test(test_steps_the_nearest_smaller_one_in_any_order),
		cmocka_unit_test(test_steps_without_a_smaller_one_the_newest),
		cmocka_unit_test(test_steps_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
