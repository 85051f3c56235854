/* Checkpoint sets: somebody says that one is complete: by the attribute, a marker, fpctl. */
#include "mgr_sets.h"

static void test_told_by_an_attribute(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), a = fix_creat(&f, f.conn, dir, "rank_0");

    (void)state;
    fix_set_xattr(&f, dir, "user.fp.checkpoint", "complete", 0);
    fix_tick(&f, 300);
    assert_int_equal(state_of(7), OPEN); /* somebody is still writing */
    fix_release(&f, f.conn, a);
    fix_tick(&f, 300);
    assert_int_equal(state_of(7), COMPLETE); /* and then at once */
    file(dir, "rank_1", 1);
    fix_tick(&f, 300);
    assert_int_equal(state_of(7), OPEN);
}

static void test_told_by_a_marker(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), m;

    (void)state;
    file(dir, "rank_0", 10);
    m = fix_creat(&f, f.conn, dir, "_SUCCESS");
    fix_tick(&f, 300);
    assert_int_equal(state_of(7), OPEN);
    fix_release(&f, f.conn, m);
    fix_tick(&f, 300);
    assert_int_equal(state_of(7), COMPLETE);
    dir = make_dir(MGR_ROOT_INO, "chk_0008");
    file(dir, "rank_0", 10);
    file(dir, "x.tmp", 0);
    fix_rename(&f, dir, "x.tmp", dir, "COMPLETE", 0);
    fix_tick(&f, 300);
    assert_int_equal(state_of(8), COMPLETE);
}

static void test_what_is_told_to_be_a_set_becomes_one(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "state"), sub = make_dir(dir, "more"), a;

    (void)state;
    file(dir, "a", 10);
    file(sub, "b", 5);
    fix_set_xattr(&f, dir, "user.fp.checkpoint", "complete", 0);
    fix_tick(&f, 300);
    is("/state", 0, COMPLETE, 2, 15);
    file(sub, "c", 5); /* belongs to it too */
    is("/state", 0, OPEN, 3, 20);
    a = file(MGR_ROOT_INO, "result.17", 3);
    fix_set_xattr(&f, a, "user.fp.checkpoint", "complete", 0);
    fix_tick(&f, 300);
    assert_int_equal(state_of(17), COMPLETE);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode WHERE ckpt<>0"), 4);
}

static void test_fpctl_says_and_forgets(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007");

    (void)state;
    file(dir, "rank_0", 10);
    file(MGR_ROOT_INO, "ckpt.8", 10); /* of a series behind it */
    assert_int_equal(say("chk_0007", FP__SET_SAY__SET_SAY_COMMIT), OPEN);
    assert_string_equal(said_series, "/chk_#/");
    assert_int_equal(say("ckpt.8", FP__SET_SAY__SET_SAY_FORGET), FP__CKPT_STATE__CKPT_FORGOTTEN);
    assert_string_equal(said_series, "/ckpt.#");
    fix_tick(&f, 300);
    assert_int_equal(say("chk_0007", FP__SET_SAY__SET_SAY_NOTHING), COMPLETE);
    assert_int_equal(say("chk_0007/rank_0", FP__SET_SAY__SET_SAY_NOTHING), COMPLETE);
    assert_int_equal(say("chk_0007", FP__SET_SAY__SET_SAY_FORGET), FP__CKPT_STATE__CKPT_FORGOTTEN);
    assert_int_equal(how_many("", 0), 0);
    file(dir, "rank_1", 10); /* nor does it come back */
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(how_many("", 0), 0);
    assert_int_equal(fix_set_xattr(&f, dir, "user.fp.checkpoint", "complete", 0), -ENODATA); /* nor is it one by being said to be */
    assert_int_equal(say("chk_0007", FP__SET_SAY__SET_SAY_COMMIT), FP__CKPT_STATE__CKPT_FORGOTTEN);
    assert_int_equal(say("nothing", FP__SET_SAY__SET_SAY_NOTHING), FP__CKPT_STATE__CKPT_NONE);
    assert_int_equal(f.status, -ENOENT);
}

static void test_a_directory_in_a_set_is_that_set(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), sub = make_dir(dir, "rank_0");

    (void)state;
    file(sub, "data", 10);
    assert_int_equal(say("chk_0007/rank_0", FP__SET_SAY__SET_SAY_COMMIT), OPEN);
    fix_tick(&f, 300);
    assert_int_equal(say("chk_0007/rank_0", FP__SET_SAY__SET_SAY_NOTHING), COMPLETE);
    assert_int_equal(say("chk_0007/rank_0", FP__SET_SAY__SET_SAY_FORGET), FP__CKPT_STATE__CKPT_NONE);
    assert_int_equal(f.status, -ENODATA);
    is("/chk_0007", 7, COMPLETE, 1, 10);
}

/* What is written there later has not been said to be complete. */
static void test_a_commit_of_nothing_says_so(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "results"), sub = make_dir(dir, "sub");

    (void)state;
    say("results", FP__SET_SAY__SET_SAY_COMMIT);
    assert_int_equal(f.status, -ENXIO);
    assert_int_equal(fix_set_xattr(&f, dir, "user.fp.checkpoint", "complete", 0), -ENODATA);
    assert_int_equal(fix_get_xattr(&f, dir, "user.fp.checkpoint", NULL), -ENODATA);
    assert_int_equal(fix_set_xattr(&f, MGR_ROOT_INO, "user.fp.checkpoint", "complete", 0), -ENODATA);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM ckpt_set"), 0);
    file(sub, "a", 10);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(how_many("", 0), 0);
    assert_int_equal(say("results", FP__SET_SAY__SET_SAY_COMMIT), OPEN);
    assert_int_equal(f.status, 0);
    fix_tick(&f, 300);
    assert_int_equal(say("results", FP__SET_SAY__SET_SAY_NOTHING), COMPLETE);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(told_by_an_attribute),
        T(told_by_a_marker),
        T(what_is_told_to_be_a_set_becomes_one),
        T(fpctl_says_and_forgets),
        T(a_directory_in_a_set_is_that_set),
        T(a_commit_of_nothing_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
