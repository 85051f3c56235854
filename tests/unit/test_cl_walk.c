/* What the kernel was told of names, by thread (client/walk.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "client/walk.h"

static uint64_t found(uint32_t tid, uint64_t parent, const char *name)
{
    bool dir;
    return cl_walk_found(tid, parent, name, &dir);
}

static void test_walk_the_last_two_names_are_known(void **state)
{
    bool dir;

    (void)state;
    assert_false(cl_walk_told(1, 10, "t", 20, true));
    assert_false(cl_walk_told(1, 20, "x", 30, false));
    assert_false(cl_walk_told(1, 20, "y", 0, false));
    assert_int_equal(found(1, 20, "x"), 30);
    assert_int_equal(found(1, 20, "y"), 0);
    assert_int_equal(found(1, 10, "t"), 0);
    assert_int_equal(found(1, 21, "x"), 0);
    assert_int_equal(found(2, 20, "x"), 0);
    assert_false(cl_walk_told(1, 20, "y", 40, true)); /* what it had known otherwise is asked again */
    assert_int_equal(cl_walk_found(1, 20, "y", &dir), 40);
    assert_true(dir);
    assert_int_equal(cl_walk_found(1, 20, "x", &dir), 30);
    assert_false(dir);
    cl_walk_forget(1);
    assert_int_equal(found(1, 20, "x"), 0);
}

static void test_walk_two_names_of_one_inode_are_noticed(void **state)
{
    (void)state;
    assert_false(cl_walk_told(1, 20, "x", 30, false));
    assert_true(cl_walk_told(1, 21, "x", 30, false));
    assert_true(cl_walk_told(1, 21, "x", 30, false)); /* asked again, as it had been another one */
    cl_walk_forget(1);                                /* told to look again */
    assert_false(cl_walk_told(1, 21, "x", 30, false));
    assert_false(cl_walk_told(2, 20, "x", 30, false)); /* another thread */
    cl_walk_forget(1);
    assert_false(cl_walk_told(1, 20, "a", 0, false));
    assert_false(cl_walk_told(1, 20, "b", 0, false)); /* none of both */
}

static void test_walk_look_again_is_said_once(void **state)
{
    (void)state;
    assert_false(cl_walk_came_to(1, 30));
    cl_walk_told(1, 20, "x", 30, false);
    cl_walk_told(1, 20, "y", 31, false);
    assert_false(cl_walk_came_to(1, 32));
    assert_true(cl_walk_came_to(1, 30)); /* the first of two */
    assert_false(cl_walk_came_to(1, 30));
    assert_false(cl_walk_came_to(1, 31));
}

static void test_walk_who_is_not_known_has_found_nothing(void **state)
{
    (void)state;
    assert_false(cl_walk_told(0, 20, "x", 30, false));
    assert_false(cl_walk_told(0, 21, "x", 30, false));
    assert_int_equal(found(0, 20, "x"), 0);
    assert_false(cl_walk_came_to(0, 30));
    cl_walk_forget(0);
    assert_int_equal(found(0, 0, ""), 0);
}

/* As many threads as a node may have between a look-up and its call; of more, those that asked last. */
static void test_walk_many_threads(void **state)
{
    unsigned known = 0;

    (void)state;
    for (uint32_t tid = 1; tid <= 512; tid++)
        cl_walk_told(1000 + tid, 20, "x", tid, false);
    for (uint32_t tid = 1; tid <= 512; tid++)
        known += found(1000 + tid, 20, "x") == tid;
    assert_int_equal(known, 512);
    for (uint32_t tid = 1; tid <= 100000; tid++)
        cl_walk_told(tid, 20, "x", tid, false);
    for (uint32_t tid = 100000 - 100; tid <= 100000; tid++)
        assert_int_equal(found(tid, 20, "x"), tid);
}

/* Once for each open, whatever the thread looks up or forgets meanwhile. */
static void test_walk_an_open_looks_again_once(void **state)
{
    (void)state;
    assert_true(cl_walk_again(70, 1000, 1000));
    assert_false(cl_walk_told(70, 10, "t", 20, false));
    assert_true(cl_walk_came_to(70, 20));
    cl_walk_forget(70);
    assert_true(cl_walk_again(71, 1000, 1000));
    assert_false(cl_walk_again(70, 60000, 60001));
    assert_true(cl_walk_again(70, 60002, 60003));
    assert_true(cl_walk_again(70, 60003 + 100001, 60003 + 100002)); /* another open of that thread */
    assert_false(cl_walk_again(70, 160006, 160007));
    assert_true(cl_walk_again(70, 160008, 160009));
    cl_walk_ends(70);
    assert_true(cl_walk_again(70, 160010, 160011));
    for (int n = 0; n < 3; n++)
        assert_true(cl_walk_again(0, 5, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walk_an_open_looks_again_once),
        cmocka_unit_test(test_walk_the_last_two_names_are_known),
        cmocka_unit_test(test_walk_two_names_of_one_inode_are_noticed),
        cmocka_unit_test(test_walk_look_again_is_said_once),
        cmocka_unit_test(test_walk_who_is_not_known_has_found_nothing),
        cmocka_unit_test(test_walk_many_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
