/* Checkpoint sets: what belongs to them, and when they are complete. */
#include "mgr_sets.h"

static void test_a_set_is_complete_some_time_after_its_last_writer(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), a = fix_creat(&f, f.conn, dir, "rank_0"), b;

    (void)state;
    fix_write(&f, a, 0, 1000);
    b = fix_creat(&f, other, dir, "rank_1");
    is("/chk_0007", 7, OPEN, 2, 1000);
    fix_release(&f, f.conn, a);
    wait_ms(3 * QUIET_MS);
    is("/chk_0007", 7, OPEN, 2, 1000); /* the other mount has rank_1 open */
    fix_release(&f, other, b);
    wait_ms(QUIET_MS / 2);
    is("/chk_0007", 7, OPEN, 2, 1000);
    wait_ms(QUIET_MS);
    is("/chk_0007", 7, COMPLETE, 2, 1000);
    assert_int_equal(fix_sql(&f, "SELECT seq FROM ckpt_series"), 1);
}

static void test_reading_is_no_writing(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), a = file(dir, "rank_0", 1000);

    (void)state;
    open_by(other, a, false);
    wait_ms(QUIET_MS + 1000);
    is("/chk_0007", 7, COMPLETE, 1, 1000);
    open_by(other, a, true);
    is("/chk_0007", 7, OPEN, 1, 1000);
}

static void test_what_changes_in_a_complete_set_opens_it_again(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), a = file(dir, "rank_0", 1000), gen;

    (void)state;
    for (int what = 0; what < 5; what++) {
        wait_ms(QUIET_MS + 1000);
        if (what == 4) { /* one file less: it is being removed */
            wait_ms(2 * LATE_MS);
            assert_int_equal(state_of(7), OPEN);
            fix_set_xattr(&f, dir, "user.fp.checkpoint", "complete", 0);
            fix_tick(&f, 300);
        }
        assert_int_equal(state_of(7), COMPLETE);
        gen = (uint64_t)fix_sql(&f, "SELECT gen FROM ckpt_set");
        if (what == 0)
            file(dir, "rank_1", 10);
        else if (what == 1)
            fix_write(&f, a, 2000, 500);
        else if (what == 2)
            fix_truncate(&f, a, 100);
        else if (what == 3)
            fix_unlink(&f, dir, "rank_1", false);
        else
            fix_rename(&f, dir, "rank_0", MGR_ROOT_INO, "elsewhere", 0);
        assert_int_equal(fix_sql(&f, "SELECT state FROM ckpt_set"), MGR_SET_OPEN);
        assert_int_equal(fix_sql(&f, "SELECT gen FROM ckpt_set"), gen + 1);
    }
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM ckpt_set"), 0); /* it has no file any more */
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM ckpt_series"), 0);
}

static void test_files_and_bytes_are_those_of_the_table(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), sub = make_dir(dir, "level_0"), a = file(dir, "rank_0", 1000);

    (void)state;
    file(sub, "fab_1", 300);
    fix_write(&f, a, 5000, 100);
    is("/chk_0007", 7, OPEN, 2, 5400);
    fix_truncate(&f, a, 10);
    is("/chk_0007", 7, OPEN, 2, 310);
    file(MGR_ROOT_INO, "outside", 50);
    is("/chk_0007", 7, OPEN, 2, 310);
    fix_rename(&f, MGR_ROOT_INO, "outside", dir, "inside", 0);
    is("/chk_0007", 7, OPEN, 3, 360);
    fix_rename(&f, dir, "inside", dir, "rank_0", 0); /* over a member */
    is("/chk_0007", 7, OPEN, 2, 350);
    wait_ms(QUIET_MS + 1000);
    is("/chk_0007", 7, COMPLETE, 2, 350);
    assert_int_equal(fix_sql(&f, "SELECT count(*)*10000+sum(size) FROM inode WHERE ckpt<>0"), 20350);
}

static void test_half_a_set_waits_for_what_is_late(void **state)
{
    uint64_t one = make_dir(MGR_ROOT_INO, "chk_1"), two = make_dir(MGR_ROOT_INO, "chk_2"), three;

    (void)state;
    file(one, "a", 1);
    file(one, "b", 1);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(1), COMPLETE);
    file(two, "a", 1);
    wait_ms(LATE_MS / 2);
    assert_int_equal(state_of(2), OPEN);
    wait_ms(LATE_MS / 2 + 1000);
    assert_int_equal(state_of(2), COMPLETE);
    file(two, "b", 1);
    wait_ms(QUIET_MS + 1000);
    three = make_dir(MGR_ROOT_INO, "chk_3");
    file(three, "a", 1);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(3), OPEN);
    file(make_dir(MGR_ROOT_INO, "chk_4"), "a", 1); /* the next one has begun: nothing comes any more */
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(3), COMPLETE);
}

static void test_a_temporary_name_is_none_of_a_complete_set(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007");

    (void)state;
    file(dir, "rank_0.tmp", 1000);
    wait_ms(2 * LATE_MS);
    is("/chk_0007", 7, OPEN, 1, 1000);
    fix_rename(&f, dir, "rank_0.tmp", dir, "rank_0", 0);
    wait_ms(QUIET_MS + 1000);
    is("/chk_0007", 7, COMPLETE, 1, 1000);
}

/* As Open MPI has them, beside a file that ranks of several nodes write, and in a directory of a set. */
static void test_locks_are_of_no_set(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007");

    (void)state;
    file(MGR_ROOT_INO, "out_0010.h5-3221-77.lock", 1);
    file(MGR_ROOT_INO, "out_0010.h5.locktest.3", 0);
    file(MGR_ROOT_INO, "chk_0010.h5-3221-77.lock", 1);
    file(MGR_ROOT_INO, "chk_0010.h5", 1000);
    file(dir, "rank_0", 10);
    file(dir, "rank_0.lock", 1);
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "chk_0010.h5-3221-77.lock", false), 0);
    assert_int_equal(fix_unlink(&f, dir, "rank_0.lock", false), 0);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM ckpt_set"), 2);
    assert_int_equal(fix_sql(&f, "SELECT state FROM ckpt_set WHERE step=7"), COMPLETE);
    assert_int_equal(fix_sql(&f, "SELECT state FROM ckpt_set WHERE step=10"), COMPLETE);
}

static void test_a_directory_loses_its_temporary_name(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007.tmp");

    (void)state;
    file(dir, "rank_0", 1000);
    wait_ms(2 * LATE_MS);
    is("/chk_0007.tmp", 7, OPEN, 1, 1000);
    fix_rename(&f, MGR_ROOT_INO, "chk_0007.tmp", MGR_ROOT_INO, "chk_0007", 0);
    wait_ms(QUIET_MS + 1000);
    is("/chk_0007", 7, COMPLETE, 1, 1000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM ckpt_set"), 1);
}

static void test_a_directory_becomes_a_set_by_its_new_name(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "saving"), sub = make_dir(dir, "shards");

    (void)state;
    file(dir, "model", 1000);
    file(sub, "optimizer", 10);
    assert_int_equal(how_many("", 0), 0);
    fix_rename(&f, MGR_ROOT_INO, "saving", MGR_ROOT_INO, "checkpoint-500", 0);
    is("/checkpoint-500", 500, OPEN, 2, 1010);
    wait_ms(QUIET_MS + 1000);
    is("/checkpoint-500", 500, COMPLETE, 2, 1010);
    fix_rename(&f, MGR_ROOT_INO, "checkpoint-500", MGR_ROOT_INO, "checkpoint-600", 0);
    wait_ms(QUIET_MS + 1000);
    is("/checkpoint-600", 600, COMPLETE, 2, 1010);
    fix_rename(&f, MGR_ROOT_INO, "checkpoint-600", MGR_ROOT_INO, "keep", 0);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(how_many("", 0), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode WHERE ckpt<>0"), 0);
}

static void test_files_side_by_side(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "run");

    (void)state;
    file(dir, "flash_hdf5_chk_0007", 100);
    file(dir, "flash_hdf5_plt_cnt_0007", 10);
    file(dir, "restart.5000.0", 1);
    file(dir, "restart.5000.1", 1);
    file(dir, "log", 5);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(how_many("", 0), 3);
    assert_int_equal(how_many("run", 0), 3);
    assert_int_equal(state_of(5000), COMPLETE);
    Fp__CtlSetsReply *r = list("run", 0);
    for (size_t i = 0; i < r->n_sets; i++) {
        const char *want = r->sets[i]->step == 5000 ? "/run/restart.5000" : r->sets[i]->bytes == 100 ? "/run/flash_hdf5_chk_0007" : "/run/flash_hdf5_plt_cnt_0007";

        assert_int_equal(r->sets[i]->path.len, strlen(want));
        assert_memory_equal(r->sets[i]->path.data, want, strlen(want));
    }
    fix_free(r);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode WHERE ckpt=0 AND mode>32768"), 1); /* log */
}

static void test_sets_below_a_directory_the_newest_of_each_series(void **state)
{
    uint64_t a = make_dir(MGR_ROOT_INO, "a"), b = make_dir(MGR_ROOT_INO, "b");
    char name[32];

    (void)state;
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "chk_%d", i);
        file(make_dir(a, name), "x", 1);
        snprintf(name, sizeof name, "restart.%d", i);
        file(b, name, 1);
    }
    assert_int_equal(how_many("", 0), 10);
    assert_int_equal(how_many("a", 0), 5);
    assert_int_equal(how_many("b", 2), 2);
    assert_int_equal(how_many("", 1), 2);
    assert_int_equal(how_many("a/chk_3", 0), 1); /* the set itself */
    assert_int_equal(how_many("nothing", 0), 999);
    Fp__CtlSets m = FP__CTL_SETS__INIT; /* page by page */
    uint64_t after = 0;
    size_t n = 0;
    for (int page = 0; page < 20; page++) {
        Fp__CtlSetsReply *r;

        m.max = 3;
        m.after = after;
        r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_CTL_SETS, &m, &fp__ctl_sets_reply__descriptor);
        n += r->n_sets;
        after = r->n_sets ? r->sets[r->n_sets - 1]->id : 0;
        bool more = r->more;
        fix_free(r);
        if (!more)
            break;
    }
    assert_int_equal(n, 10);
}

static void test_files_of_a_set_and_who_writes_them(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), a = file(dir, "rank_0", 1000), b = fix_creat(&f, other, dir, "rank_1");
    Fp__CtlSets m = FP__CTL_SETS__INIT;
    Fp__CtlSetsReply *r;

    (void)state;
    m.files_of = (uint64_t)fix_sql(&f, "SELECT id FROM ckpt_set");
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_CTL_SETS, &m, &fp__ctl_sets_reply__descriptor);
    assert_int_equal(r->n_files, 2);
    assert_int_equal(r->files[0]->ino, a);
    assert_int_equal(r->files[0]->size_bytes, 1000);
    assert_false(r->files[0]->writing);
    assert_int_equal(r->files[1]->ino, b);
    assert_true(r->files[1]->writing);
    assert_memory_equal(r->files[1]->path.data, "/chk_0007/rank_1", 16);
    fix_free(r);
}

static void test_a_set_of_which_a_writer_dies_is_torn(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), a = fix_creat(&f, other, dir, "rank_0");

    (void)state;
    file(dir, "rank_1", 10);
    fix_lost(&f, other);
    other = NULL;
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(7), OPEN); /* it may come back */
    wait_ms(65000);
    assert_int_equal(state_of(7), TORN);
    file(dir, "rank_2", 10); /* another file of it does not make it good */
    assert_int_equal(state_of(7), OPEN);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(7), TORN);
    open_by(f.conn, a, true); /* nor does a look at this one */
    assert_int_equal(state_of(7), OPEN);
    fix_release(&f, f.conn, a);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(7), TORN);
    open_by(f.conn, a, true); /* somebody writes it anew */
    assert_int_not_equal(fix_write(&f, a, 0, 20), 0);
    fix_release(&f, f.conn, a);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(7), COMPLETE);
}

/* One of two who write one file dies: what the other writes does not stand for what it had to. */
static void test_a_torn_file_is_not_mended_by_who_went_on(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), a = fix_creat(&f, other, dir, "all");

    (void)state;
    open_by(f.conn, a, true);
    fix_lost(&f, other);
    other = NULL;
    wait_ms(65000);
    assert_int_equal(state_of(7), OPEN);
    assert_int_not_equal(fix_write(&f, a, 0, 20), 0);
    fix_release(&f, f.conn, a);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(7), TORN);
    open_by(f.conn, a, true);
    assert_int_not_equal(fix_write(&f, a, 1, 20), 0);
    fix_release(&f, f.conn, a);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(7), COMPLETE);
}

static void test_what_is_torn_is_so_after_a_failed_group(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), b;

    (void)state;
    fix_creat(&f, other, dir, "rank_0");
    fix_lost(&f, other);
    other = NULL;
    wait_ms(65000);
    assert_int_equal(state_of(7), TORN);
    b = file(dir, "rank_1", 10);
    f.doom = -ENOSPC; /* all is loaded anew, as at a start */
    open_by_fails(b);
    f.doom = 0;
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(7), TORN);
    assert_int_equal(say("chk_0007", FP__SET_SAY__SET_SAY_COMMIT), FP__CKPT_STATE__CKPT_OPEN); /* who says so knows */
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(7), COMPLETE);
    file(dir, "rank_3", 10);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(7), COMPLETE);
}

/* A mount at a place on which another may come after it. */
static struct mgr_conn *hello_at(const char *mountpoint)
{
    struct mgr_conn *conn = fix_conn(&f);
    Fp__Hello h = FP__HELLO__INIT;
    Fp__Place p = FP__PLACE__INIT;

    p.machine = 1;
    p.boot = 2;
    p.mount_ns = 3;
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.node = h.software = (char *)"x";
    h.mountpoint = (char *)mountpoint;
    h.place = &p;
    fix_free(fix_call(&f, conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
    assert_int_equal(f.status, 0);
    return conn;
}

static void test_a_set_of_which_a_writer_is_replaced_is_torn(void **state)
{
    struct mgr_conn *killed = hello_at("/m");
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007");

    (void)state;
    fix_creat(&f, killed, dir, "rank_0");
    file(dir, "rank_1", 10);
    fix_lost(&f, killed);
    hello_at("/m");
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(7), TORN);
}

static void test_a_set_of_which_a_writer_says_bye_is_torn(void **state)
{
    struct mgr_conn *ends = hello_at("/m");
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), a = fix_creat(&f, ends, dir, "rank_0");
    Fp__Bye m = FP__BYE__INIT;

    (void)state;
    file(dir, "rank_1", 10);
    m.n_write_ino = 1;
    m.write_ino = &a;
    fix_notice(&f, ends, FP__MSG_TYPE__MSG_BYE, &m);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(7), TORN);
}

static void test_a_mount_that_was_only_away_has_torn_nothing(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), a = fix_creat(&f, other, dir, "rank_0");
    Fp__Hello h = FP__HELLO__INIT;

    (void)state;
    fix_lost(&f, other);
    other = NULL;
    wait_ms(3000);
    other = fix_conn(&f);
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.session = other_session;
    h.node = h.mountpoint = h.software = (char *)"x";
    h.open_known = true;
    h.n_open_ino = h.n_open_write_ino = 1;
    h.open_ino = h.open_write_ino = &a;
    fix_free(fix_call(&f, other, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
    assert_int_equal(f.status, 0);
    wait_ms(QUIET_MS + 3000);
    assert_int_equal(state_of(7), OPEN);
    fix_release(&f, other, a);
    wait_ms(QUIET_MS + 1000);
    assert_int_equal(state_of(7), COMPLETE);
}

static void test_a_group_that_fails_leaves_no_trace(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007");
    Fp__MkNod m = FP__MK_NOD__INIT;

    (void)state;
    file(dir, "rank_0", 10);
    m.parent = dir;
    m.name = fix_bin("rank_1");
    m.mode = S_IFREG | 0644;
    m.open = true;
    f.doom = -ENOSPC;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_MKNOD, &m, &fp__attr_reply__descriptor));
    assert_int_not_equal(f.status, 0);
    f.doom = 0;
    is("/chk_0007", 7, OPEN, 1, 10);
    wait_ms(QUIET_MS + 1000);
    is("/chk_0007", 7, COMPLETE, 1, 10);
}

static void test_a_hard_link_is_no_further_file(void **state)
{
    uint64_t dir = make_dir(MGR_ROOT_INO, "chk_0007"), a = file(dir, "rank_0", 10);
    Fp__Link m = FP__LINK__INIT;

    (void)state;
    m.ino = a;
    m.parent = dir;
    m.name = fix_bin("same");
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_LINK, &m, &fp__attr_reply__descriptor));
    is("/chk_0007", 7, OPEN, 1, 10);
    fix_unlink(&f, dir, "rank_0", false);
    is("/chk_0007", 7, OPEN, 1, 10);
    fix_unlink(&f, dir, "same", false);
    assert_int_equal(how_many("", 0), 0);
}

/* With the database in a file, so that another manager reads it. */
static void test_a_new_manager_knows_what_was_open(void **state)
{
    uint64_t dir, a, session, seq;
    struct mgr_conn *conn;
    Fp__Hello h = FP__HELLO__INIT;

    (void)state;
    fix_open(&f, fix_path(), false);
    other = NULL;
    dir = make_dir(MGR_ROOT_INO, "chk_0007");
    a = fix_creat(&f, f.conn, dir, "rank_0.tmp");
    fix_write(&f, a, 0, 1000);
    file(dir, "rank_1", 20);
    session = f.session;
    seq = f.seq;
    fix_close(&f);
    fix_open(&f, fix_path(), true);
    f.seq = seq; /* of the same session */
    f.conn = conn = fix_conn(&f);
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.session = session;
    h.node = h.mountpoint = h.software = (char *)"x";
    h.open_known = true;
    h.n_open_ino = h.n_open_write_ino = 1;
    h.open_ino = h.open_write_ino = &a;
    fix_free(fix_call(&f, conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
    assert_int_equal(f.status, 0);
    is("/chk_0007", 7, OPEN, 2, 1020);
    wait_ms(3 * QUIET_MS);
    is("/chk_0007", 7, OPEN, 2, 1020); /* open for writing, as the mount has said */
    fix_release(&f, conn, a);
    wait_ms(3 * QUIET_MS);
    is("/chk_0007", 7, OPEN, 2, 1020); /* and of a temporary name */
    fix_rename(&f, dir, "rank_0.tmp", dir, "rank_0", 0);
    wait_ms(QUIET_MS + 1000);
    is("/chk_0007", 7, COMPLETE, 2, 1020);
    fix_close_and_remove(&f);
}

static void test_a_writer_that_never_comes_back_to_a_new_manager(void **state)
{
    uint64_t dir;

    (void)state;
    fix_open(&f, fix_path(), false);
    other = NULL;
    dir = make_dir(MGR_ROOT_INO, "chk_0007");
    fix_creat(&f, f.conn, dir, "rank_0");
    file(dir, "rank_1", 20);
    fix_close(&f);
    fix_open(&f, fix_path(), true);
    f.conn = fix_conn(&f);
    fix_hello_client(&f, f.conn, 0, NULL);
    wait_ms(3 * QUIET_MS);
    assert_int_equal(state_of(7), OPEN);
    wait_ms(65000);
    assert_int_equal(state_of(7), TORN);
    fix_close_and_remove(&f);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_set_is_complete_some_time_after_its_last_writer),
        T(reading_is_no_writing),
        T(what_changes_in_a_complete_set_opens_it_again),
        T(files_and_bytes_are_those_of_the_table),
        T(half_a_set_waits_for_what_is_late),
        T(a_temporary_name_is_none_of_a_complete_set),
        T(locks_are_of_no_set),
        T(a_directory_loses_its_temporary_name),
        T(a_directory_becomes_a_set_by_its_new_name),
        T(files_side_by_side),
        T(sets_below_a_directory_the_newest_of_each_series),
        T(files_of_a_set_and_who_writes_them),
        T(a_set_of_which_a_writer_dies_is_torn),
        T(a_torn_file_is_not_mended_by_who_went_on),
        T(what_is_torn_is_so_after_a_failed_group),
        T(a_set_of_which_a_writer_is_replaced_is_torn),
        T(a_set_of_which_a_writer_says_bye_is_torn),
        T(a_mount_that_was_only_away_has_torn_nothing),
        T(a_group_that_fails_leaves_no_trace),
        T(a_hard_link_is_no_further_file),
        cmocka_unit_test(test_a_new_manager_knows_what_was_open),
        cmocka_unit_test(test_a_writer_that_never_comes_back_to_a_new_manager),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
