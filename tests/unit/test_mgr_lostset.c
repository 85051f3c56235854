/* Checkpoint sets of which something that was closed behind is lost: torn, whoever says that they are complete (manager/settorn.c, settold.c). And those of which a writer is gone, in a
 * group that fails (manager/lostclose.c). */
#include "fp/ctlwire.h"
#include "mgr_lost.h"

static void test_a_lost_file_tears_its_set(void **state)
{
    (void)state;
    make_member();
    write_behind(&a);
    open_(&a, false, false);
    closed(&a);
    release_writer(&a); /* a reader is beside: nobody waits */
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
    a_is_gone();
    seconds(40);
    assert_true(is_lost());
    assert_int_equal(set_state(), MGR_SET_TORN);
    assert_int_equal(say_of_set(FP__SET_SAY__SET_SAY_COMMIT, true), 0); /* who says so knows */
    seconds(40);
    assert_false(is_lost());
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
}

static void write_anew(void)
{
    open_(&b, true, false);
    commit(&b, (struct put){.size = 5000, .closes = true});
    release_writer(&b);
}

/* close(2) has told it that all is well. */
static void test_who_writes_a_marker_does_not_know_what_was_lost(void **state)
{
    (void)state;
    make_member();
    lose();
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_TORN);
    fix_mk(&f, fix_lookup(&f, ROOT, "chk_0001"), "COMPLETE", REG);
    seconds(40);
    assert_true(is_lost());
    assert_int_equal(set_state(), MGR_SET_TORN);
    assert_int_equal(say_of_set(FP__SET_SAY__SET_SAY_COMMIT, false), -EUCLEAN);
    seconds(40);
    assert_true(is_lost());
    assert_int_equal(set_state(), MGR_SET_TORN);
    write_anew();
    seconds(40);
    assert_false(is_lost());
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
}

static int say_by_attribute(uint64_t of)
{
    return fix_set_xattr(&f, of, "user.fp.checkpoint", "complete", 0);
}

static int64_t attributes(void)
{
    return fix_sql(&f, "SELECT count(*) FROM xattr");
}

/* A script that says so by the attribute would go on as if it had a checkpoint. */
static void test_who_sets_the_attribute_is_told_of_what_was_lost(void **state)
{
    uint64_t dir;

    (void)state;
    make_member();
    dir = fix_lookup(&f, ROOT, "chk_0001");
    lose();
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_TORN);
    assert_int_equal(say_by_attribute(dir), -EUCLEAN);
    assert_int_equal(say_by_attribute(ino), -EUCLEAN);
    assert_int_equal(say_by_attribute(fix_mk(&f, dir, "rank_1", REG)), -EUCLEAN);
    assert_int_equal(attributes(), 0);
    assert_int_equal(fix_sql(&f, "SELECT told FROM ckpt_set"), 0);
    open_(&b, true, false);
    assert_int_equal(say_by_attribute(dir), 0); /* it is being written again */
    assert_int_equal(attributes(), 1);
    commit(&b, (struct put){.size = 5000, .closes = true});
    release_writer(&b);
    seconds(5);
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
}

/* While one lost file is written again, another one is not. */
static void test_the_attribute_is_refused_while_another_file_is_written(void **state)
{
    uint64_t dir, first;

    (void)state;
    make_member();
    first = ino;
    dir = fix_lookup(&f, ROOT, "chk_0001");
    ino = fix_mk(&f, dir, "rank_1", REG);
    write_behind(&a);
    closed(&a);
    ino = first;
    lose();
    seconds(40);
    open_(&b, true, false);
    assert_int_equal(say_by_attribute(dir), -EUCLEAN);
    write_anew();
    assert_int_equal(say_by_attribute(dir), -EUCLEAN);
    ino = fix_lookup(&f, dir, "rank_1");
    write_anew();
    assert_int_equal(say_by_attribute(dir), 0);
}

/* It was no set before, and nothing is left of what was said. */
static void test_the_attribute_of_what_is_no_set_yet_is_refused(void **state)
{
    uint64_t dir;

    (void)state;
    dir = fix_mk(&f, ROOT, "anything", S_IFDIR | 0755);
    ino = fix_mk(&f, dir, "data", REG);
    lose();
    assert_int_equal(say_by_attribute(dir), -EUCLEAN);
    assert_int_equal(attributes(), 0);
    seconds(80);
    assert_int_equal(set_state(), MGR_SET_TORN);
    write_anew();
    assert_int_equal(say_by_attribute(dir), 0);
    seconds(5);
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
}

/* What is refused has mended nothing: a file beside it, whose writer died, is half still. */
static void test_what_is_refused_of_no_set_yet_leaves_other_marks(void **state)
{
    uint64_t dir, half, lost;

    (void)state;
    dir = fix_mk(&f, ROOT, "anything", S_IFDIR | 0755);
    half = ino = fix_mk(&f, dir, "half", REG);
    open_(&a, true, false);
    commit(&a, (struct put){.size = 100});
    lost = ino = fix_mk(&f, dir, "data", REG);
    lose();
    assert_int_equal(say_by_attribute(dir), -EUCLEAN);
    assert_int_equal(say_of("/anything", FP__SET_SAY__SET_SAY_COMMIT, false), -EUCLEAN);
    ino = lost;
    write_anew();
    seconds(80);
    assert_int_equal(set_state(), MGR_SET_TORN);
    ino = half;
    write_anew();
    assert_int_equal(say_by_attribute(dir), 0);
    seconds(5);
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
}

/* In place, from its middle on: the writer's mark goes, that of the loss stays, and who knows better says so. */
static void test_a_set_of_a_file_that_is_written_in_part_is_complete_by_force_alone(void **state)
{
    (void)state;
    make_member();
    lose();
    open_(&b, true, false);
    commit(&b, (struct put){.off = 100, .size = 5000, .closes = true});
    release_writer(&b);
    seconds(40);
    assert_true(is_lost());
    assert_int_equal(set_state(), MGR_SET_TORN);
    assert_int_equal(say_of_set(FP__SET_SAY__SET_SAY_COMMIT, false), -EUCLEAN);
    assert_int_equal(say_of_set(FP__SET_SAY__SET_SAY_COMMIT, true), 0);
    seconds(40);
    assert_false(is_lost());
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
}

/* It is waited for, as for every file that is being written. */
static void test_a_commit_while_what_was_lost_is_written_again_is_no_mistake(void **state)
{
    (void)state;
    make_member();
    lose();
    seconds(40);
    open_(&b, true, false);
    assert_int_equal(say_of_set(FP__SET_SAY__SET_SAY_COMMIT, false), 0);
    assert_int_equal(set_state(), MGR_SET_OPEN);
    commit(&b, (struct put){.size = 5000, .closes = true});
    release_writer(&b);
    seconds(5);
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
}

/* What was lost of it before it had the name of a checkpoint. */
static void test_a_directory_that_becomes_a_set_is_torn_by_what_was_lost_in_it(void **state)
{
    (void)state;
    ino = fix_mk(&f, fix_mk(&f, ROOT, "staging", S_IFDIR | 0755), "data", REG);
    lose();
    assert_true(is_lost());
    assert_int_equal(fix_rename(&f, ROOT, "staging", ROOT, "chk_0001", 0), 0);
    assert_int_not_equal(fix_sql(&f, "SELECT ckpt FROM inode WHERE ino=%llu", (unsigned long long)ino), 0);
    seconds(80);
    assert_int_equal(set_state(), MGR_SET_TORN);
    write_anew();
    seconds(80);
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
}

/* The same where it is not sure. */
static void test_a_set_of_a_file_in_doubt_is_torn_whatever_is_said(void **state)
{
    (void)state;
    make_member();
    write_behind(&a);
    a_is_gone();
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_TORN);
    assert_int_equal(say_of_set(FP__SET_SAY__SET_SAY_COMMIT, false), -EUCLEAN);
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_TORN);
    assert_int_equal(say_of_set(FP__SET_SAY__SET_SAY_COMMIT, true), 0);
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
}

static void test_a_file_of_a_forgotten_set_is_written_again(void **state)
{
    (void)state;
    make_member();
    assert_int_equal(say_of_set(FP__SET_SAY__SET_SAY_FORGET, false), 0);
    lose();
    assert_true(is_lost());
    write_anew();
    assert_false(is_lost());
}

/* As fpctl checkpoints shows it. */
static Fp__CtlSetsReply *shown(void)
{
    Fp__CtlSets m = FP__CTL_SETS__INIT;
    Fp__CtlSetsReply *r = fix_call(&f, fix_ctl(&f), FP__MSG_TYPE__MSG_CTL_SETS, &m, &fp__ctl_sets_reply__descriptor);

    assert_non_null(r);
    assert_int_equal(r->n_sets, 1);
    return r;
}

static void is_torn_by(const char *path, uint64_t files, const char *why)
{
    Fp__CtlSetsReply *r = shown();
    const Fp__CkptSet *s = r->sets[0];

    assert_int_equal(s->state, path ? FP__CKPT_STATE__CKPT_TORN : FP__CKPT_STATE__CKPT_COMPLETE);
    assert_int_equal(s->level == FP__LEVEL__LEVEL_NONE, path != NULL);
    assert_int_equal(s->torn_files, files);
    assert_int_equal(s->torn_path.len, path ? strlen(path) : 0);
    assert_true(!path || memcmp(s->torn_path.data, path, strlen(path)) == 0);
    assert_true(!why || strstr(s->why, why));
    fix_free(r);
}

static void test_a_torn_set_names_its_file(void **state)
{
    uint64_t dir, first;

    (void)state;
    make_member();
    first = ino;
    dir = fix_lookup(&f, ROOT, "chk_0001");
    open_(&a, true, false);
    commit(&a, (struct put){.size = 100});
    ino = fix_mk(&f, dir, "rank_1", REG);
    write_behind(&a);
    closed(&a);
    fix_mk(&f, dir, "rank_2", REG);
    a_is_gone();
    seconds(40);
    is_torn_by("/chk_0001/rank_1", 2, "--force"); /* the one that a word does not mend goes first */
    write_anew();
    seconds(40);
    ino = first;
    is_torn_by("/chk_0001/rank_0", 1, "a mount or a program that was writing a file of it is gone");
    write_anew();
    seconds(40);
    is_torn_by(NULL, 0, NULL);
}

/* It is not counted to the end. */
static void test_the_files_that_tear_a_large_set_are_counted_up_to_a_bound(void **state)
{
    uint64_t dir;
    char name[32];

    (void)state;
    make_member();
    dir = fix_lookup(&f, ROOT, "chk_0001");
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "part_%d", i);
        ino = fix_mk(&f, dir, name, REG);
        open_(&a, true, false);
        commit(&a, (struct put){.size = 100});
    }
    a_is_gone();
    seconds(40);
    is_torn_by("/chk_0001/part_0", FP_TORN_COUNTED_MAX, NULL);
}

/* ---------------------------------------------------------------- a full disk: what is seen once is not seen again */

static void disk_is_full(int ticks)
{
    while (ticks-- > 0) {
        f.doom = -ENOSPC;
        fix_tick_failing(&f, 900);
    }
}

/* a had it open for writing, and its session expires while nothing can be stored. */
static void a_is_gone_unstored(void)
{
    fix_lost(&f, a.conn);
    a.conn = NULL;
    seconds(56);
    disk_is_full(8);
    seconds(40);
}

static int64_t marked(uint32_t mark)
{
    return fix_sql(&f, "SELECT count(*) FROM inode WHERE flags&%u<>0", mark);
}

static void test_a_dead_writer_outlives_a_group_that_fails(void **state)
{
    (void)state;
    make_member();
    fix_mk(&f, fix_lookup(&f, ROOT, "chk_0001"), "rank_1", REG);
    open_(&a, true, false);
    commit(&a, (struct put){.size = 100});
    a_is_gone_unstored();
    assert_int_equal(set_state(), MGR_SET_TORN);
    assert_int_equal(marked(MGR_TORN_FILE), 1);
    write_anew();
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
    assert_int_equal(marked(MGR_TORN_FILE), 0); /* it was kept until it was stored, and no longer */
}

static void test_a_doubt_outlives_a_group_that_fails(void **state)
{
    (void)state;
    make_member();
    write_behind(&a);
    commit(&a, (struct put){.size = 100});
    a_is_gone_unstored();
    assert_int_equal(set_state(), MGR_SET_TORN);
    assert_int_equal(marked(MGR_UNSURE), 1);
}

/* A set may be made of it later. */
static void test_a_dead_writer_of_no_set_outlives_a_group_that_fails(void **state)
{
    (void)state;
    open_(&a, true, false);
    commit(&a, (struct put){.size = 100});
    a_is_gone_unstored();
    assert_int_equal(marked(MGR_TORN_FILE), 1);
}

static void test_a_program_that_was_killed_outlives_a_group_that_fails(void **state)
{
    Fp__Release m = FP__RELEASE__INIT;

    (void)state;
    make_member();
    open_(&a, true, false);
    commit(&a, (struct put){.size = 100});
    m.n_write_ino = m.n_torn_ino = 1;
    m.write_ino = m.torn_ino = &ino;
    fix_notice_failing(&f, a.conn, FP__MSG_TYPE__MSG_RELEASE, &m);
    disk_is_full(2);
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_TORN);
    assert_int_equal(marked(MGR_TORN_FILE), 1);
}

static void test_what_a_mount_leaves_half_outlives_a_group_that_fails(void **state)
{
    Fp__Bye m = FP__BYE__INIT;

    (void)state;
    make_member();
    open_(&a, true, false);
    commit(&a, (struct put){.size = 100});
    m.n_write_ino = 1;
    m.write_ino = &ino;
    fix_notice_failing(&f, a.conn, FP__MSG_TYPE__MSG_BYE, &m);
    a.conn = NULL;
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_TORN);
    assert_int_equal(marked(MGR_TORN_FILE), 1);
}

/* It was there before the manager was started again, and has not said what it had open. */
static void test_a_writer_that_nobody_knows_outlives_a_group_that_fails(void **state)
{
    (void)state;
    make_member();
    open_(&a, true, false);
    commit(&a, (struct put){.size = 100});
    restart();
    a.conn = NULL;
    hello(&b, false, NULL, 0, NULL, 0);
    seconds(56);
    disk_is_full(8);
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_TORN);
}

/* The same, and another mount has come to its mountpoint, so that nobody waits for it any more. */
static void test_a_writer_that_nobody_knows_is_replaced(void **state)
{
    Fp__Place place = FP__PLACE__INIT;
    uint64_t own;

    (void)state;
    make_member();
    open_(&a, true, false);
    commit(&a, (struct put){.size = 100});
    own = f.session;
    restart();
    hello(&b, false, NULL, 0, NULL, 0);
    f.conn = fix_conn(&f);
    fix_hello_client(&f, f.conn, own, NULL);
    mgr_session_find(f.core, a.session)->place = (struct mgr_place){1, 2, 3};
    place.machine = 1;
    place.boot = 2;
    place.mount_ns = 3;
    hello_place = &place;
    a = (struct peer){0};
    hello(&a, true, NULL, 0, NULL, 0);
    hello_place = NULL;
    seconds(80);
    assert_int_equal(set_state(), MGR_SET_TORN);
}

/* Who only looks is served meanwhile. */
static void test_a_mark_that_is_not_stored_keeps_nobody_from_reading(void **state)
{
    (void)state;
    make_member();
    open_(&a, true, false);
    fix_lost(&f, a.conn);
    a.conn = NULL;
    seconds(56);
    disk_is_full(8);
    assert_int_not_equal(fix_attr(&f, ino).ino, 0);
    assert_int_equal(marked(MGR_TORN_FILE), 0);
    fix_tick(&f, 500);
    assert_int_equal(marked(MGR_TORN_FILE), 1);
}

/* ---------------------------------------------------------------- a manager that does not hear of a killed program */

static void hello_after_a_kill(void)
{
    hello_torn = ino;
    hello(&a, true, NULL, 0, NULL, 0);
    hello_torn = 0;
}

static void test_a_program_that_was_killed_is_told_by_the_hello(void **state)
{
    (void)state;
    make_member();
    open_(&a, true, false);
    commit(&a, (struct put){.size = 100});
    fix_lost(&f, a.conn);
    hello_after_a_kill();
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_TORN);
    assert_int_equal(marked(MGR_TORN_FILE), 1);
    write_anew();
    fix_lost(&f, a.conn);
    hello_after_a_kill(); /* that was heard before */
    seconds(40);
    assert_int_equal(set_state(), MGR_SET_COMPLETE);
}

static void test_a_program_that_was_killed_is_told_to_a_new_manager(void **state)
{
    (void)state;
    make_member();
    fix_mk(&f, fix_lookup(&f, ROOT, "chk_0001"), "rank_1", REG);
    open_(&a, true, false);
    commit(&a, (struct put){.size = 100});
    restart();
    hello(&b, false, NULL, 0, NULL, 0);
    hello_after_a_kill();
    assert_true(f.durable); /* it is not said again */
    seconds(80); /* the fixture's own mount does not come back */
    assert_int_equal(marked(MGR_TORN_FILE), 1);
    assert_int_equal(set_state(), MGR_SET_TORN);
}

static void test_the_release_of_a_killed_program_is_answered_when_it_is_stored(void **state)
{
    Fp__Release m = FP__RELEASE__INIT;

    (void)state;
    open_(&a, true, false);
    commit(&a, (struct put){.size = 100});
    m.n_write_ino = m.n_torn_ino = 1;
    m.write_ino = m.torn_ino = &ino;
    fix_free(fix_call(&f, a.conn, FP__MSG_TYPE__MSG_RELEASE, &m, NULL));
    assert_true(f.status == 0 && f.durable);
    assert_int_equal(marked(MGR_TORN_FILE), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_a_lost_file_tears_its_set),
        T(test_who_writes_a_marker_does_not_know_what_was_lost),
        T(test_who_sets_the_attribute_is_told_of_what_was_lost),
        T(test_the_attribute_is_refused_while_another_file_is_written),
        T(test_the_attribute_of_what_is_no_set_yet_is_refused),
        T(test_what_is_refused_of_no_set_yet_leaves_other_marks),
        T(test_a_set_of_a_file_that_is_written_in_part_is_complete_by_force_alone),
        T(test_a_commit_while_what_was_lost_is_written_again_is_no_mistake),
        T(test_a_directory_that_becomes_a_set_is_torn_by_what_was_lost_in_it),
        T(test_a_set_of_a_file_in_doubt_is_torn_whatever_is_said),
        T(test_a_file_of_a_forgotten_set_is_written_again),
        T(test_a_torn_set_names_its_file),
        T(test_the_files_that_tear_a_large_set_are_counted_up_to_a_bound),
        T(test_a_dead_writer_outlives_a_group_that_fails),
        T(test_a_doubt_outlives_a_group_that_fails),
        T(test_a_dead_writer_of_no_set_outlives_a_group_that_fails),
        T(test_a_program_that_was_killed_outlives_a_group_that_fails),
        T(test_what_a_mount_leaves_half_outlives_a_group_that_fails),
        T(test_a_writer_that_nobody_knows_outlives_a_group_that_fails),
        T(test_a_writer_that_nobody_knows_is_replaced),
        T(test_a_mark_that_is_not_stored_keeps_nobody_from_reading),
        T(test_a_program_that_was_killed_is_told_by_the_hello),
        T(test_a_program_that_was_killed_is_told_to_a_new_manager),
        T(test_the_release_of_a_killed_program_is_answered_when_it_is_stored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
