/* A file that is renamed over another one before it is whole: what the name was comes back when its writer dies, and goes when it is closed well. */
#include "mgr_rewrites.h"

static uint64_t fresh; /* b, made, and open for writing; file, a, was closed well */
static struct map was;

static int setup(void **state)
{
    (void)state;
    open_file();
    for (uint64_t w = 0; w < 3; w++)
        assert_true(fix_write(&f, file, w * CHUNK, CHUNK - 7));
    release(f.conn, file, false);
    was = map_of(file);
    fresh = fix_mk(&f, MGR_ROOT_INO, "b", S_IFREG | 0600);
    open_by(f.conn, fresh);
    return 0;
}

static void rename_over(void)
{
    assert_int_equal(fix_rename(&f, MGR_ROOT_INO, "b", MGR_ROOT_INO, "a", 0), 0);
    assert_int_equal(fix_lookup(&f, MGR_ROOT_INO, "a"), fresh);
    fix_check(&f);
}

static int inodes(void)
{
    return (int)fix_sql(&f, "SELECT count(*) FROM inode");
}

static void test_what_was_never_published_gives_way(void **state)
{
    (void)state;
    rename_over(); /* all of it is in the mount */
    assert_int_equal(versions(), 1);
    assert_int_equal(fix_attr(&f, fresh).size_bytes, 0);
    dies(f.conn);
    new_mount();
    assert_int_equal(fix_lookup(&f, MGR_ROOT_INO, "a"), fresh);
    assert_map(fresh, &was);
    assert_int_equal(fix_attr(&f, fresh).mode & 07777, 0600);
}

/* It says what it has open, and for some time what had no answer: nothing of that is in doubt that this manager has seen. */
static void test_a_mount_that_comes_back_beside_it_changes_nothing(void **state)
{
    Fp__Hello h = FP__HELLO__INIT;
    struct mgr_conn *other = fix_conn(&f);

    (void)state;
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.node = "n2";
    h.mountpoint = "/mnt";
    h.session = fix_hello_client(&f, other, 0, NULL);
    h.open_known = true;
    fix_lost(&f, other);
    fix_free(fix_call(&f, fix_conn(&f), FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
    assert_int_equal(f.status, 0);
    assert_true(mgr_unsettled(f.core));
    rename_over();
    assert_int_equal(versions(), 1);
    dies(f.conn);
    new_mount();
    assert_map(fresh, &was);
}

/* To who drains or evicts it, it is gone. */
static void test_a_version_is_no_file(void **state)
{
    struct mgr_inode in;

    (void)state;
    assert_int_equal(mgr_inode_get_live(f.core, file, &in), 0);
    rename_over();
    assert_int_equal(mgr_inode_get(f.core, file, &in), 0);
    assert_int_equal(mgr_inode_get_live(f.core, file, &in), -ENOENT);
    assert_int_equal(mgr_inode_get_live(f.core, fresh, &in), 0);
}

static void test_a_part_gives_way(void **state)
{
    (void)state;
    assert_true(fix_write(&f, fresh, 5 * CHUNK, CHUNK));
    rename_over();
    assert_true(fix_write(&f, fresh, 0, CHUNK));
    assert_int_equal(fix_truncate(&f, fresh, 100), 0);
    assert_int_equal(versions(), 1);
    dies(f.conn);
    new_mount();
    assert_map(fresh, &was);
    open_by(f.conn, fresh); /* and what was given up goes with the next good version */
    assert_true(fix_write(&f, fresh, 0, 100));
    release(f.conn, fresh, false);
    fix_tick(&f, 1000);
    assert_int_equal(versions(), 0);
    assert_int_equal(inodes(), 2);
}

static void test_a_good_end_takes_the_old_one_away(void **state)
{
    struct map is;

    (void)state;
    for (int how = 0; how < 3; how++) {
        assert_true(fix_write(&f, fresh, 0, CHUNK));
        rename_over();
        assert_int_equal(versions(), 1);
        assert_true(fix_write(&f, fresh, CHUNK, CHUNK));
        is = map_of(fresh);
        if (how == 0)
            release(f.conn, fresh, false);
        else if (how == 1)
            closed_by(f.conn, fresh);
        else
            sync_by(f.conn, fresh);
        assert_int_equal(versions(), 0);
        assert_int_equal(inodes(), 2);
        dies(f.conn);
        new_mount();
        assert_map(fresh, &is);
        teardown(NULL);
        setup(NULL);
    }
}

/* What is whole replaces the other at once, as ever. */
static void test_what_is_whole_replaces(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        assert_true(fix_write(&f, fresh, 0, CHUNK));
        if (how == 0)
            release(f.conn, fresh, false);
        else if (how == 1)
            closed_by(f.conn, fresh); /* its release is still to come */
        else
            sync_by(f.conn, fresh);
        rename_over();
        assert_int_equal(versions(), 0);
        assert_int_equal(inodes(), 2);
        teardown(NULL);
        setup(NULL);
    }
}

/* Somebody reads it, under no name: it stays what it is. */
static void test_a_file_that_is_open_is_no_version(void **state)
{
    Fp__Open m = FP__OPEN__INIT;

    (void)state;
    m.ino = file;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    rename_over();
    assert_int_equal(versions(), 0);
    assert_map(file, &was);
}

/* Nor one that has another name. */
static void test_a_file_with_two_names_is_no_version(void **state)
{
    Fp__Link m = FP__LINK__INIT;

    (void)state;
    m.slot = 5;
    m.slot_seq = 1;
    m.ino = file;
    m.parent = MGR_ROOT_INO;
    m.name = fix_bin("c");
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_LINK, &m, &fp__attr_reply__descriptor));
    assert_int_equal(f.status, 0);
    rename_over();
    assert_int_equal(versions(), 0);
    assert_map(file, &was);
}

/* Again and again, before anything is closed: each time it is what the name was that comes back. */
static void test_one_over_the_other(void **state)
{
    uint64_t third;

    (void)state;
    rename_over();
    third = fix_mk(&f, MGR_ROOT_INO, "b", S_IFREG | 0600);
    open_by(f.conn, third);
    assert_true(fix_write(&f, third, 0, CHUNK));
    assert_int_equal(fix_rename(&f, MGR_ROOT_INO, "b", MGR_ROOT_INO, "a", 0), 0);
    fix_check(&f);
    dies(f.conn);
    new_mount();
    assert_int_equal(fix_lookup(&f, MGR_ROOT_INO, "a"), third);
    assert_map(third, &was);
    fix_check(&f);
    assert_int_equal(inodes(), 3); /* and what was given up */
}

/* What was synced before, and written on, goes back to that, as without the rename: it is newer than what the name was. */
static void test_what_was_synced_is_not_taken_back(void **state)
{
    struct map is;

    (void)state;
    assert_true(fix_write(&f, fresh, 0, CHUNK));
    sync_by(f.conn, fresh);
    is = map_of(fresh);
    assert_true(fix_write(&f, fresh, 100, 100));
    rename_over();
    assert_int_equal(versions(), 1);
    dies(f.conn);
    new_mount();
    assert_map(fresh, &is);
}

/* Nor when who had synced it has written again, and another mount has never: what fsync has answered is not taken back for what the name was. */
static void test_what_one_of_two_has_synced_once_is_not_taken_back(void **state)
{
    struct mgr_conn *other = fix_conn(&f);
    struct map is;

    (void)state;
    assert_true(fix_hello_client(&f, other, 0, NULL) > 0);
    open_by(other, fresh);
    wrote_by(other, fresh);
    assert_true(fix_write(&f, fresh, 0, CHUNK));
    sync_by(f.conn, fresh);
    assert_true(fix_write(&f, fresh, CHUNK, CHUNK));
    is = map_of(fresh);
    rename_over();
    dies(other);
    dies(f.conn);
    new_mount();
    fix_tick(&f, 5000);
    assert_int_equal(fix_lookup(&f, MGR_ROOT_INO, "a"), fresh);
    assert_map(fresh, &is);
}

/* Nor of a file that is synced all the time, which has no guards for a while, when that while is over. */
static void test_what_was_synced_all_the_time_is_not_taken_back(void **state)
{
    struct map is;

    (void)state;
    for (uint64_t i = 0; i < 20; i++) {
        assert_true(fix_write(&f, fresh, i * CHUNK, CHUNK));
        sync_by(f.conn, fresh);
    }
    is = map_of(fresh);
    for (unsigned i = 0; i < 61; i++) {
        assert_int_equal(fix_attr(&f, fresh).size_bytes, 20 * CHUNK); /* the mount is there */
        fix_tick(&f, 1000);
    }
    rename_over();
    dies(f.conn);
    new_mount();
    fix_tick(&f, 5000);
    assert_int_equal(fix_lookup(&f, MGR_ROOT_INO, "a"), fresh);
    assert_map(fresh, &is);
}

static void test_its_removal_takes_both(void **state)
{
    (void)state;
    rename_over();
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "a", false), 0);
    release(f.conn, fresh, false);
    fix_tick(&f, 1000);
    assert_int_equal(versions(), 0);
    assert_int_equal(inodes(), 1);
}

static void test_restart(void **state)
{
    (void)state;
    fix_close(&f);
    fix_open(&f, fix_path(), false);
    file = fix_mk(&f, MGR_ROOT_INO, "a", S_IFREG | 0644);
    assert_true(fix_write(&f, file, 0, CHUNK));
    release(f.conn, file, false);
    was = map_of(file);
    fresh = fix_mk(&f, MGR_ROOT_INO, "b", S_IFREG | 0600);
    open_by(f.conn, fresh);
    assert_true(fix_write(&f, fresh, CHUNK, CHUNK));
    rename_over();
    fix_close(&f);
    fix_open(&f, fix_path(), true);
    f.conn = fix_conn(&f);
    fix_tick(&f, 61000);
    fix_hello_client(&f, f.conn, 0, NULL);
    assert_map(fresh, &was);
    fix_check(&f);
    fix_close_and_remove(&f);
    assert_int_equal(setup(NULL), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_what_was_never_published_gives_way),
        T(test_a_mount_that_comes_back_beside_it_changes_nothing),
        T(test_a_version_is_no_file),
        T(test_a_part_gives_way),
        T(test_a_good_end_takes_the_old_one_away),
        T(test_what_is_whole_replaces),
        T(test_a_file_that_is_open_is_no_version),
        T(test_a_file_with_two_names_is_no_version),
        T(test_one_over_the_other),
        T(test_what_was_synced_is_not_taken_back),
        T(test_what_one_of_two_has_synced_once_is_not_taken_back),
        T(test_what_was_synced_all_the_time_is_not_taken_back),
        T(test_its_removal_takes_both),
        T(test_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
