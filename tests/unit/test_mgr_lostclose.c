/* What was closed behind and is lost (manager/lostclose.c): which files are marked, which are not, and when a mark goes. */
#include "mgr_lost.h"

/* ---------------------------------------------------------------- marks */

static void test_what_was_closed_is_lost_with_its_mount(void **state)
{
    (void)state;
    write_behind(&a);
    closed(&a);
    assert_false(is_lost());
    a_is_gone();
    assert_true(is_lost());
    restart();
    hello(&b, false, NULL, 0, NULL, 0);
    seconds(65);
    assert_true(is_lost());
    open_(&b, false, false); /* a look */
    release(&b);
    assert_true(is_lost());
    open_(&b, true, false);
    assert_true(is_lost());
    commit(&b, (struct put){.size = 5000, .closes = true});
    assert_true(is_lost()); /* since the restart nobody knows how long it was */
    cut(&b, 0);
    assert_false(is_lost());
    release_writer(&b);
}

static void test_what_was_only_open_is_not_lost(void **state)
{
    (void)state;
    write_behind(&a);
    commit(&a, (struct put){.size = 100});
    a_is_gone();
    assert_false(is_lost());
}

/* The lease goes with the reader, which may be a `tail -f`. */
static void test_what_is_published_beside_a_reader_is_not_lost(void **state)
{
    (void)state;
    open_(&a, false, false);
    write_behind(&a);
    closed(&a);
    commit(&a, (struct put){.size = 5000, .based_on = version(), .lease_time = a.lease_time, .closes = true, .upto = closes});
    release_writer(&a);
    a_is_gone();
    assert_false(is_lost());
}

/* The commit of the close before, which comes later than what is said of the next one. */
static void test_a_commit_covers_no_close_that_came_after_it(void **state)
{
    uint64_t first;

    (void)state;
    write_behind(&a);
    closed(&a);
    first = closes;
    closed(&a);
    commit(&a, (struct put){.size = 2000, .based_on = version(), .lease_time = a.lease_time, .closes = true, .upto = first});
    a_is_gone();
    assert_true(is_lost());
}

/* … and what is said of a close after its commit, as after a restart of the manager, is no news. */
static void test_a_close_is_told_after_its_commit(void **state)
{
    (void)state;
    write_behind(&a);
    commit(&a, (struct put){.size = 5000, .based_on = version(), .lease_time = a.lease_time, .closes = true, .upto = closes + 1});
    closed(&a);
    a_is_gone();
    assert_false(is_lost());
}

static void test_the_answer_is_lost_and_not_the_file(void **state)
{
    struct put how = {.size = 5000, .based_on = version(), .lease_time = a.lease_time, .closes = true, .seq = ++slots};

    (void)state;
    write_behind(&a);
    closed(&a);
    how.upto = closes;
    commit(&a, how);
    a_is_gone();
    assert_false(is_lost());
    a_is_back();
    commit(&a, how); /* as it was sent */
    release(&a);
    assert_false(is_lost());
}

static void test_an_orderly_end_without_it(void **state)
{
    Fp__Bye m = FP__BYE__INIT;

    (void)state;
    write_behind(&a);
    closed(&a);
    m.n_write_ino = 1;
    m.write_ino = &ino;
    (void)fix_call(&f, a.conn, FP__MSG_TYPE__MSG_BYE, &m, NULL);
    a.conn = NULL;
    assert_true(is_lost());
}

/* All is published; a program has the file open still. */
static void test_an_orderly_end_leaves_no_doubt(void **state)
{
    Fp__Bye m = FP__BYE__INIT;

    (void)state;
    write_behind(&a);
    commit(&a, (struct put){.size = 100});
    m.n_write_ino = 1;
    m.write_ino = &ino;
    (void)fix_call(&f, a.conn, FP__MSG_TYPE__MSG_BYE, &m, NULL);
    a.conn = NULL;
    assert_false(is_lost());
    assert_int_not_equal(level(), FP__LEVEL__LEVEL_POOL);
}

static void test_what_a_mount_says_is_lost(void **state)
{
    (void)state;
    write_behind(&a);
    closed(&a);
    says_lost(&a);
    assert_true(is_lost());
    commit(&a, (struct put){.size = 6000, .based_on = version(), .lease_time = a.lease_time}); /* another program of it goes on */
    assert_true(is_lost());
    cut(&a, 0); /* it is written anew */
    assert_false(is_lost());
}

/* It says so once. */
static void test_what_a_mount_says_is_lost_outlives_a_group_that_fails(void **state)
{
    Fp__Closed m = FP__CLOSED__INIT;

    (void)state;
    write_behind(&a);
    closed(&a);
    m.ino = ino;
    m.lost = true;
    fix_notice_failing(&f, a.conn, FP__MSG_TYPE__MSG_CLOSED, &m);
    seconds(1);
    assert_true(is_lost());
    closed_of(&a, 0, false); /* it was another close, and all is well again */
    seconds(1);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode WHERE flags&512<>0"), 1); /* what is lost is lost */
    cut(&a, 0);
    seconds(1);
    assert_false(is_lost());
}

/* … and once more to the next manager, if it was not answered. */
static void test_what_a_mount_says_is_lost_is_answered_when_it_is_stored(void **state)
{
    Fp__Closed m = FP__CLOSED__INIT;

    (void)state;
    write_behind(&a);
    closed(&a);
    m.ino = ino;
    m.lost = true;
    f.doom = -ENOSPC;
    fix_free(fix_call(&f, a.conn, FP__MSG_TYPE__MSG_CLOSED, &m, NULL));
    assert_int_equal(f.status, -ENOSPC);
    restart();
    hello(&b, false, NULL, 0, NULL, 0);
    hello(&a, true, NULL, 0, NULL, 0);
    fix_free(fix_call(&f, a.conn, FP__MSG_TYPE__MSG_CLOSED, &m, NULL));
    assert_true(f.status == 0 && f.durable);
    assert_true(is_lost());
    fix_free(fix_call(&f, a.conn, FP__MSG_TYPE__MSG_CLOSED, &m, NULL)); /* the answer did not come */
    assert_int_equal(f.status, 0);
    assert_true(is_lost());
}

static void write_again(uint64_t off, uint64_t size)
{
    open_(&b, true, false);
    commit(&b, (struct put){.off = off, .size = size, .closes = true});
    release_writer(&b);
}

/* What was lost is not there again because something else is written. */
static void test_only_all_of_it_takes_the_mark_away(void **state)
{
    (void)state;
    write_behind(&a);
    commit(&a, (struct put){.size = 3000});
    closed(&a);
    a_is_gone();
    write_again(3000, 3002); /* a log goes on */
    assert_true(is_lost());
    write_again(0, 1000);
    write_again(1000, 3002); /* by another one */
    assert_true(is_lost());
    write_again(0, 3001);
    assert_true(is_lost());
    write_again(0, 3002);
    assert_true(is_lost()); /* it was longer for who closed it */
    write_again(0, 4999);
    assert_true(is_lost());
    write_again(0, 5000);
    assert_false(is_lost());
}

/* Nothing of it had been stored, so that any first byte would be all of it. */
static void test_a_first_byte_is_not_all_of_it(void **state)
{
    (void)state;
    lose();
    write_again(0, 1);
    assert_true(is_lost());
    write_again(1, 5000); /* a log goes on */
    assert_true(is_lost());
    write_again(0, 5000);
    assert_false(is_lost());
}

/* Who writes it anew does not come to an end either, and it is what it was before: an old version, of which something was lost. */
static void test_a_version_that_comes_back_has_its_mark(void **state)
{
    (void)state;
    make_member();
    open_(&a, true, false);
    commit(&a, (struct put){.size = 3000, .closes = true});
    release_writer(&a);
    seconds(5);
    write_behind(&a);
    closed(&a);
    a_is_gone();
    assert_true(is_lost());
    open_(&b, true, false);
    cut(&b, 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode WHERE flags&512<>0 AND nlink>0"), 0);
    commit(&b, (struct put){.size = 1000});
    fix_lost(&f, b.conn);
    b.session = 0;
    hello(&b, false, NULL, 0, NULL, 0);
    seconds(65);
    assert_int_equal(fix_sql(&f, "SELECT size FROM inode WHERE ino=%llu", (unsigned long long)ino), 3000);
    assert_true(is_lost());
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_TORN);
    open_(&b, true, false);
    cut(&b, 0);
    commit(&b, (struct put){.size = 1000, .closes = true});
    release_writer(&b);
    seconds(80);
    assert_false(is_lost());
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
}

/* In place, and shorter than it was. */
static void test_it_is_written_again_and_cut(void **state)
{
    (void)state;
    write_behind(&a);
    commit(&a, (struct put){.size = 3000});
    closed(&a);
    a_is_gone();
    open_(&b, true, false);
    commit(&b, (struct put){.size = 1000});
    commit(&b, (struct put){.off = 1000, .size = 2000});
    assert_true(is_lost());
    cut(&b, 2001);
    assert_true(is_lost());
    cut(&b, 2000);
    assert_true(is_lost()); /* what lay behind that was lost, too */
    commit(&b, (struct put){.off = 2000, .size = 5000});
    assert_false(is_lost());
}

/* A mount that dies with the file open may have closed it in its last milliseconds: it is not called safe. */
static void test_what_is_torn_is_not_safe(void **state)
{
    (void)state;
    write_behind(&a);
    commit(&a, (struct put){.size = 100});
    a_is_gone();
    assert_false(is_lost());
    assert_int_equal(level(), FP__LEVEL__LEVEL_POOL);
    write_again(0, 100);
    assert_int_not_equal(level(), FP__LEVEL__LEVEL_POOL);
}

static void test_what_is_removed_is_not_lost(void **state)
{
    (void)state;
    lose();
    assert_int_equal(fix_unlink(&f, ROOT, "f", false), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode INDEXED BY inode_lost WHERE flags&512<>0 AND nlink>0"), 0);
}

/* Disk full at the COMMIT: the death is not seen a second time. */
static void test_a_mark_survives_a_group_that_fails(void **state)
{
    (void)state;
    write_behind(&a);
    closed(&a);
    fix_lost(&f, a.conn);
    a.conn = NULL;
    seconds(56);
    for (int k = 0; k < 8; k++) {
        bool durable;

        f.now.ms += 900;
        f.now.ns += 900000000;
        mgr_core_begin(f.core, f.now);
        mgr_core_tick(f.core);
        mgr_doom(f.core, -ENOSPC);
        assert_int_not_equal(mgr_core_end(f.core, &durable), 0);
        mgr_core_reset(f.core);
    }
    seconds(5);
    assert_true(is_lost());
}

/* ---------------------------------------------------------------- those that are back */

static void test_what_comes_after_all_is_not_lost(void **state)
{
    uint64_t was = version();

    (void)state;
    lose();
    a_is_back();
    assert_true(is_lost());
    commit(&a, (struct put){.size = 1000, .based_on = was});
    assert_true(is_lost()); /* the first of two */
    commit(&a, (struct put){.size = 5000, .based_on = version(), .closes = true, .upto = closes});
    assert_false(is_lost());
}

static void test_who_is_back_dies_between_two_commits(void **state)
{
    uint64_t was = version();

    (void)state;
    lose();
    a_is_back();
    closed(&a);
    commit(&a, (struct put){.size = 1000, .based_on = was});
    a_is_gone();
    assert_true(is_lost());
}

/* A commit that is not taken, since somebody has written the file meanwhile, brings nothing back. */
static void test_what_is_refused_stays_lost(void **state)
{
    uint64_t was = version();
    Fp__Commit m = FP__COMMIT__INIT;

    (void)state;
    lose();
    open_(&b, true, false);
    commit(&b, (struct put){.size = 10});
    commit(&b, (struct put){.off = 10, .size = 5000});
    release_writer(&b);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode WHERE flags&512<>0"), 0);
    write_behind(&b);
    closed(&b);
    says_lost(&b);
    assert_true(is_lost());
    a_is_back();
    m.slot = 2;
    m.slot_seq = ++slots;
    m.ino = ino;
    m.size_bytes = 5000;
    m.based_on = was;
    m.closes = true;
    m.closed_upto = closes;
    fix_free(fix_call(&f, a.conn, FP__MSG_TYPE__MSG_COMMIT, &m, &fp__commit_reply__descriptor));
    assert_int_equal(f.status, FP_EOVERTAKEN);
    assert_true(is_lost());
}

/* The commit is not stored: what it covers isn't, either. */
static void test_a_commit_of_a_group_that_fails_covers_nothing(void **state)
{
    Fp__Commit m = FP__COMMIT__INIT;

    (void)state;
    write_behind(&a);
    closed(&a);
    m.slot = 2;
    m.slot_seq = ++slots;
    m.ino = ino;
    m.size_bytes = 5000;
    m.closes = true;
    m.closed_upto = closes;
    f.doom = -ENOSPC;
    fix_free(fix_call(&f, a.conn, FP__MSG_TYPE__MSG_COMMIT, &m, &fp__commit_reply__descriptor));
    assert_int_not_equal(f.status, 0);
    f.doom = 0;
    a_is_gone();
    assert_true(is_lost());
}

/* A program has it open still: no commit says that all is closed. */
static void test_who_is_back_says_that_nothing_is_left(void **state)
{
    (void)state;
    lose();
    a_is_back();
    commit(&a, (struct put){.size = 5000, .based_on = version()});
    assert_true(is_lost());
    closed_of(&a, 0, false);
    assert_false(is_lost());
    says_lost(&a); /* of something that it has closed since */
    assert_true(is_lost());
}

/* Who wrote it anew once is not who does so after the next loss. */
static void test_it_is_lost_twice(void **state)
{
    (void)state;
    lose();
    open_(&b, true, false);
    commit(&b, (struct put){.size = 5000, .closes = true});
    release_writer(&b);
    assert_false(is_lost());
    hello(&a, true, NULL, 0, NULL, 0);
    seconds(45);
    write_behind(&a);
    closed(&a);
    says_lost(&a);
    assert_true(is_lost());
    commit(&a, (struct put){.size = 7000});
    assert_true(is_lost());
}

static int setup_versions(void **state)
{
    fix_versions = true;
    return setup(state);
}

static int teardown_versions(void **state)
{
    fix_versions = false;
    return teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_what_was_closed_is_lost_with_its_mount),
        T(test_what_was_only_open_is_not_lost),
        T(test_what_is_published_beside_a_reader_is_not_lost),
        T(test_a_commit_covers_no_close_that_came_after_it),
        T(test_a_close_is_told_after_its_commit),
        T(test_the_answer_is_lost_and_not_the_file),
        T(test_an_orderly_end_without_it),
        T(test_an_orderly_end_leaves_no_doubt),
        T(test_what_a_mount_says_is_lost),
        T(test_what_a_mount_says_is_lost_outlives_a_group_that_fails),
        T(test_what_a_mount_says_is_lost_is_answered_when_it_is_stored),
        T(test_only_all_of_it_takes_the_mark_away),
        T(test_a_first_byte_is_not_all_of_it),
        cmocka_unit_test_setup_teardown(test_a_version_that_comes_back_has_its_mark, setup_versions, teardown_versions),
        T(test_it_is_written_again_and_cut),
        T(test_what_is_torn_is_not_safe),
        T(test_what_is_removed_is_not_lost),
        T(test_a_mark_survives_a_group_that_fails),
        T(test_what_comes_after_all_is_not_lost),
        T(test_who_is_back_dies_between_two_commits),
        T(test_what_is_refused_stays_lost),
        T(test_a_commit_of_a_group_that_fails_covers_nothing),
        T(test_who_is_back_says_that_nothing_is_left),
        T(test_it_is_lost_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
