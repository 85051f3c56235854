/* How the rewriting of a file ends, when that is not by the release of its last writer: by a close that the mount tells before it, by a program that was killed, by an error, by the
 * end of the mount of such a program. */
#include "fp/err.h"
#include "mgr_rewrites.h"

static struct mgr_conn *other;
static uint64_t was, other_session;

static void bye(struct mgr_conn *conn)
{
    Fp__Bye m = FP__BYE__INIT;

    (void)fix_call(&f, conn, FP__MSG_TYPE__MSG_BYE, &m, NULL);
    assert_int_equal(f.status, 0);
}

/* Sums of which chunks a file consists: it differs for files that differ. */
static uint64_t map_sum(uint64_t ino)
{
    return (uint64_t)fix_sql(&f, "SELECT ifnull(sum((win*1000003+off+7)*(chunk%%1000000007)+len),0) FROM slice WHERE ino=%llu", (unsigned long long)ino) + fix_attr(&f, ino).size_bytes * 31;
}

static int state_is(void)
{
    return fix_sql(&f, "SELECT count(*) FROM version") ? (int)fix_sql(&f, "SELECT state FROM version") : 0;
}

/* A file of four windows, which one mount has open for writing, and has rewritten half of; another one has it open. */
static int setup(void **state)
{
    (void)state;
    open_file();
    for (uint64_t w = 0; w < 4; w++)
        assert_true(fix_write(&f, file, w * CHUNK, CHUNK));
    release(f.conn, file, false);
    other = fix_conn(&f);
    other_session = fix_hello_client(&f, other, 0, NULL);
    assert_true(other_session > 0);
    was = map_sum(file);
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    assert_true(fix_write(&f, file, CHUNK, CHUNK / 2));
    assert_int_equal(state_is(), MGR_GUARD);
    return 0;
}

/* It was answered, so it is there: also if the mount is killed before it gives back what it had open. */
static void test_what_was_closed_stays_when_its_mount_dies(void **state)
{
    uint64_t is = map_sum(file);

    (void)state;
    closed_by(f.conn, file);
    assert_int_equal(state_is(), 0);
    dies(f.conn);
    new_mount();
    assert_int_equal(map_sum(file), is);
}

/* After that it is being rewritten again, from what was closed. */
static void test_what_comes_after_a_close_is_a_new_epoch(void **state)
{
    uint64_t is = map_sum(file);

    (void)state;
    closed_by(f.conn, file);
    assert_true(fix_write(&f, file, 2 * CHUNK, CHUNK));
    assert_int_equal(state_is(), MGR_GUARD);
    dies(f.conn);
    new_mount();
    assert_int_equal(map_sum(file), is);
}

/* One of two mounts has closed, and was told that it is there: the other one dies, and the file stays, torn. */
static void test_one_of_two_mounts_closes_and_the_other_dies(void **state)
{
    uint64_t is = map_sum(file);

    (void)state;
    open_by(other, file);
    wrote_by(other, file);
    closed_by(f.conn, file);
    assert_int_equal(state_is(), MGR_SYNCED);
    release(f.conn, file, false);
    dies(other);
    new_mount();
    assert_int_equal(state_is(), MGR_TORN);
    assert_int_equal(map_sum(file), is);
}

/* … the other one closes, too, by its release: that is the new version. */
static void test_both_mounts_close(void **state)
{
    (void)state;
    open_by(other, file);
    wrote_by(other, file);
    closed_by(f.conn, file);
    assert_int_equal(state_is(), MGR_SYNCED);
    release(other, file, false);
    assert_int_equal(state_is(), MGR_SYNCED);
    release(f.conn, file, false);
    assert_int_equal(state_is(), 0);
}

/* A release without a close before it counts, too; not that of a mount that wrote nothing. */
static void test_the_release_of_one_that_has_written_keeps_what_it_wrote(void **state)
{
    (void)state;
    open_by(other, file);
    release(other, file, false);
    assert_int_equal(state_is(), MGR_GUARD);
    open_by(other, file);
    wrote_by(other, file);
    release(f.conn, file, false);
    assert_int_equal(state_is(), MGR_SYNCED);
}

/* A close of the mount whose program was killed says nothing of what that one has left. */
static void test_a_program_is_killed_and_another_of_its_mount_closes(void **state)
{
    (void)state;
    open_by(f.conn, file);
    open_by(other, file);
    release(f.conn, file, true);
    assert_int_equal(state_is(), MGR_HURT);
    release(f.conn, file, false);
    assert_int_equal(state_is(), MGR_HURT);
    release(other, file, false);
    assert_int_equal(state_is(), MGR_KILLED);
    dies(f.conn);
    new_mount();
    assert_int_equal(map_sum(file), was);
}

/* It has it open, as tools do that read it, and has written nothing: the new version does not wait for it. */
static void test_one_that_has_not_written_dies(void **state)
{
    uint64_t is = map_sum(file);

    (void)state;
    open_by(other, file);
    closed_by(f.conn, file);
    assert_int_equal(state_is(), 0);
    release(f.conn, file, false);
    dies(other);
    new_mount();
    assert_int_equal(map_sum(file), is);
}

/* … and begins to write only now, and dies: the file is what was closed before. */
static void test_one_that_writes_after_a_close_and_dies(void **state)
{
    uint64_t is = map_sum(file);
    struct mgr_conn *first = f.conn;

    (void)state;
    open_by(other, file);
    closed_by(f.conn, file);
    f.conn = other;
    f.session = other_session;
    f.seq = 0;
    wrote_by(other, file);
    assert_true(fix_write(&f, file, CHUNK, CHUNK));
    assert_int_equal(state_is(), MGR_GUARD);
    assert_true(map_sum(file) != is);
    release(first, file, false);
    dies(other);
    new_mount();
    assert_int_equal(map_sum(file), is);
}

/* … likewise, when it had written before, and had closed that. */
static void test_one_that_has_written_and_closed_dies(void **state)
{
    uint64_t is = map_sum(file);

    (void)state;
    open_by(other, file);
    open_by(other, file);
    wrote_by(other, file);
    closed_by(other, file);
    closed_by(f.conn, file);
    assert_int_equal(state_is(), 0);
    dies(other);
    new_mount();
    assert_int_equal(map_sum(file), is);
}

/* … and it dies itself, before its release: that is no bad end. */
static void test_one_that_has_closed_dies_and_the_other_goes_on(void **state)
{
    uint64_t is = map_sum(file);

    (void)state;
    open_by(other, file);
    closed_by(f.conn, file);
    fix_lost(&f, f.conn);
    f.conn = other;
    for (int i = 0; i < 70; i++) {
        (void)fix_attr(&f, file);
        fix_tick(&f, 1000);
    }
    assert_int_equal(state_is(), 0);
    release(other, file, false);
    assert_int_equal(state_is(), 0);
    assert_int_equal(map_sum(file), is);
}

/* All see what was written, and what was there before is offered. */
static void test_a_killed_program_leaves_the_file_torn(void **state)
{
    uint64_t is = map_sum(file);
    Fp__CtlVersions m = FP__CTL_VERSIONS__INIT;
    Fp__Hello h = FP__HELLO__INIT;
    struct mgr_conn *ctl = fix_conn(&f);

    (void)state;
    release(f.conn, file, true);
    assert_int_equal(state_is(), MGR_KILLED);
    fix_tick(&f, 30000);
    assert_int_equal(map_sum(file), is);
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CONTROL;
    fix_free(fix_call(&f, ctl, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
    m.path = fix_bin("a");
    m.newest = true;
    fix_free(fix_call(&f, ctl, FP__MSG_TYPE__MSG_CTL_VERSIONS, &m, &fp__ctl_versions_reply__descriptor));
    assert_int_equal(f.status, 0);
    assert_int_equal(map_sum(file), was);
}

static void test_what_was_before_comes_back_when_the_mount_ends(void **state)
{
    (void)state;
    release(f.conn, file, true);
    bye(other);
    assert_int_equal(state_is(), MGR_KILLED);
    bye(f.conn);
    new_mount();
    assert_int_equal(map_sum(file), was);
    assert_int_equal(state_is(), MGR_REMAINS);
}

static void test_the_same_when_the_mount_dies(void **state)
{
    (void)state;
    release(f.conn, file, true);
    dies(f.conn);
    new_mount();
    assert_int_equal(map_sum(file), was);
}

/* The other one has nothing to do with it, but it still writes: it is put back when that has ended, too. */
static void test_a_program_is_killed_and_another_one_writes(void **state)
{
    (void)state;
    open_by(other, file);
    release(f.conn, file, true);
    assert_int_equal(state_is(), MGR_HURT);
    closed_by(other, file);
    assert_int_equal(state_is(), MGR_HURT);
    release(other, file, false);
    assert_int_equal(state_is(), MGR_KILLED);
    bye(f.conn);
    f.conn = other;
    assert_int_equal(map_sum(file), was);
}

/* What was synced is not taken back by itself. */
static void test_a_program_is_killed_and_another_one_syncs(void **state)
{
    uint64_t is = map_sum(file);

    (void)state;
    open_by(other, file);
    release(f.conn, file, true);
    sync_by(other, file);
    assert_int_equal(state_is(), MGR_SYNCED);
    release(other, file, false);
    assert_int_equal(state_is(), MGR_TORN);
    bye(f.conn);
    f.conn = other;
    assert_int_equal(map_sum(file), is);
}

/* A program that is started anew mends the file, in place or from the beginning: then it is good. */
static void test_who_writes_a_torn_file_and_closes_it_has_mended_it(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        if (cut) {
            open_by(f.conn, file);
            assert_true(fix_write(&f, file, 0, CHUNK));
        }
        release(f.conn, file, true);
        assert_int_equal(state_is(), MGR_KILLED);
        open_by(f.conn, file);
        assert_int_equal(state_is(), MGR_KILLED);
        if (cut)
            assert_int_equal(fix_truncate(&f, file, 0), 0);
        assert_true(fix_write(&f, file, 0, CHUNK));
        assert_int_equal(state_is(), MGR_GUARD);
        release(f.conn, file, false);
        assert_int_equal(state_is(), 0);
    }
}

/* … and if it dies, too, the file is what it was before both. */
static void test_two_programs_are_killed_one_after_the_other(void **state)
{
    (void)state;
    release(f.conn, file, true);
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 3 * CHUNK, CHUNK));
    dies(f.conn);
    new_mount();
    assert_int_equal(map_sum(file), was);
}

/* Ranks of a job that was killed may be slow to die. Who begins anew with nothing does not lose what it writes by them. */
static void test_a_cut_to_nothing_has_nothing_of_the_dead(void **state)
{
    uint64_t is;

    (void)state;
    open_by(other, file);
    open_by(other, file);
    release(other, file, true);
    assert_int_equal(state_is(), MGR_HURT);
    assert_int_equal(fix_truncate(&f, file, 0), 0);
    assert_int_equal(state_is(), MGR_GUARD);
    assert_true(fix_write(&f, file, 0, CHUNK));
    is = map_sum(file);
    release(f.conn, file, false);
    release(other, file, false);
    assert_int_equal(state_is(), 0);
    bye(other);
    assert_int_equal(map_sum(file), is);
}

/* Programs of many nodes append to a log, which none of them rewrites: the death of one takes nothing back. What is written behind the end otherwise is a part of a rewriting. */
static void test_what_is_only_appended_stays(void **state)
{
    uint64_t log[2], is;

    (void)state;
    for (int behind = 0; behind < 2; behind++) {
        fix_appended = false;
        log[behind] = fix_mk(&f, MGR_ROOT_INO, behind ? "y" : "x", S_IFREG | 0644);
        open_by(f.conn, log[behind]);
        assert_true(fix_write(&f, log[behind], 0, 1000));
        release(f.conn, log[behind], false);
        is = map_sum(log[behind]);
        fix_appended = !behind;
        open_by(f.conn, log[behind]);
        assert_true(fix_write(&f, log[behind], 1000, 500));
        is = behind ? is : map_sum(log[behind]);
        dies(f.conn);
        new_mount();
        assert_int_equal(map_sum(log[behind]), is);
    }
    fix_appended = false;
}

/* The manager is started anew in between. */
static void test_restart(void **state)
{
    (void)state;
    for (int killed = 0; killed < 2; killed++) {
        uint64_t session;

        fix_close(&f);
        fix_open(&f, fix_path(), false);
        file = fix_mk(&f, MGR_ROOT_INO, "a", S_IFREG | 0644);
        open_by(f.conn, file);
        assert_true(fix_write(&f, file, 0, CHUNK));
        release(f.conn, file, false);
        was = map_sum(file);
        open_by(f.conn, file);
        if (!killed)
            open_by(f.conn, file);
        assert_true(fix_write(&f, file, 0, CHUNK));
        release(f.conn, file, true);
        assert_int_equal(state_is(), killed ? MGR_KILLED : MGR_HURT);
        session = f.session;
        fix_close(&f);
        fix_open(&f, fix_path(), true);
        assert_int_equal(state_is(), killed ? MGR_KILLED : MGR_HURT);
        f.conn = fix_conn(&f);
        assert_int_equal(fix_hello_client(&f, f.conn, session, NULL), session);
        dies(f.conn);
        f.conn = fix_conn(&f);
        f.session = fix_hello_client(&f, f.conn, 0, NULL);
        assert_int_equal(map_sum(file), was);
        fix_close_and_remove(&f);
        fix_open(&f, ":memory:", false);
    }
}

static int change(unsigned how)
{
    return how == 0 ? (fix_write(&f, file, 0, CHUNK) ? 0 : f.status) : how == 1 ? fix_truncate(&f, file, 0) : fix_punch(&f, file, 0, 10);
}

/* Its answer was lost on the way, or came too late: when it is asked for again, it is not that all went well. */
static void test_who_was_overtaken_is_told_so_when_he_asks_again(void **state)
{
    uint64_t session = f.session;
    Fp__Sync m = FP__SYNC__INIT;

    (void)state;
    m.ino = file;
    for (unsigned how = 0; how < 3; how++) {
        open_by(f.conn, file);
        assert_int_equal(change(how), 0);
        dies(f.conn);
        f.conn = fix_conn(&f);
        assert_int_equal(fix_hello_client(&f, f.conn, session, NULL), session);
        fix_keepalive(&f);
        assert_true(map_sum(file) == was);
        f.seq--;
        assert_int_equal(change(how), FP_EOVERTAKEN);
        fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_SYNC, &m, &fp__sync_reply__descriptor));
        assert_int_equal(f.status, FP_EOVERTAKEN);
        assert_true(map_sum(file) == was);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(what_was_closed_stays_when_its_mount_dies),
        T(what_comes_after_a_close_is_a_new_epoch),
        T(one_of_two_mounts_closes_and_the_other_dies),
        T(both_mounts_close),
        T(the_release_of_one_that_has_written_keeps_what_it_wrote),
        T(a_program_is_killed_and_another_of_its_mount_closes),
        T(who_was_overtaken_is_told_so_when_he_asks_again),
        T(one_that_has_not_written_dies),
        T(one_that_writes_after_a_close_and_dies),
        T(one_that_has_written_and_closed_dies),
        T(one_that_has_closed_dies_and_the_other_goes_on),
        T(a_killed_program_leaves_the_file_torn),
        T(what_was_before_comes_back_when_the_mount_ends),
        T(the_same_when_the_mount_dies),
        T(a_program_is_killed_and_another_one_writes),
        T(a_program_is_killed_and_another_one_syncs),
        T(who_writes_a_torn_file_and_closes_it_has_mended_it),
        T(two_programs_are_killed_one_after_the_other),
        T(a_cut_to_nothing_has_nothing_of_the_dead),
        T(what_is_only_appended_stays),
        T(restart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
