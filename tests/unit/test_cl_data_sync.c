/*
 * Whose data an fsync makes durable: all that is committed of the file, whoever stored it. Two mounts of the model's store; a mount
 * that was killed and came back is one more. What the mount itself wrote needs nothing that others' data needs: no request more.
 * And who hears of a sync that failed: everybody who had something to lose by it, once.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>
#include <fcntl.h>

#define MIB (1u << 20)

static struct fx_mount a, b;
static struct world_bnf *near, *far; /* of the nodes of both mounts; of another */
static struct cl_handle ha, hb;
static uint8_t data[MIB];
static uint64_t ino;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
static atomic_int failing_syncs; /* of the mounts: so many from here on */

/* As the kernel does it: an error is told once, and the next one finds clean pages. */
int __wrap_fdatasync(int fd)
{
    if (failing_syncs > 0) {
        failing_syncs--;
        errno = EIO;
        return -1;
    }
    return __real_fdatasync(fd);
}

static void begin(void)
{
    failing_syncs = 0;
    memset(&world_faults, 0, sizeof world_faults);
    world_core_start();
    near = world_bnf_add(1, true, 100 * MIB);
    far = world_bnf_add(2, false, 100 * MIB);
    near->life = far->life = near->table_life = far->table_life = 11;
    fx_start(&a, 7, 4000);
    fx_start(&b, 8, 4000);
    ino = world_file_new(MIB, 1);
    fx_open(&a, &ha, ino);
    fx_open(&b, &hb, ino);
    fx_fill(data, sizeof data, 5);
}

static void end(void)
{
    fx_close(&a, &ha);
    fx_close(&b, &hb);
    fx_stop(&a);
    fx_over(&b);
}

/* Window win is written and closed; on the benefactor far if `to_far`. */
static void put(struct fx_mount *x, struct cl_handle *h, uint64_t win, bool to_far)
{
    near->store_err = to_far ? -EIO : 0;
    fx_table(x); /* what failed before is not avoided any more */
    assert_int_equal(fx_write(x, h, data, 1000, win * MIB), 1000);
    assert_int_equal(cl_data_flush(&x->m, h->inode), 0);
    near->store_err = 0;
}

static int sync_a(void)
{
    return cl_data_fsync(&a.m, ha.inode);
}

static bool is_synced(const struct world_bnf *x)
{
    return x->acked == x->synced;
}

static void test_sync_covers_what_another_mount_closed(void **state)
{
    (void)state;
    begin();
    put(&b, &hb, 1, false);
    put(&b, &hb, 2, true);
    assert_int_equal(fx_write(&a, &ha, data, 1000, 0), 1000);
    assert_false(is_synced(near) || is_synced(far));
    assert_int_equal(sync_a(), 0);
    assert_true(is_synced(near) && is_synced(far));
    end();
}

static void manager_back(void *arg)
{
    cl_data_manager_back(arg);
}

static void check_window_1(const uint8_t *want)
{
    static uint8_t got[1000];
    struct cl_handle h;

    fx_open(&a, &h, ino);
    assert_int_equal(fx_read(&a, &h, got, sizeof got, MIB), sizeof got);
    assert_memory_equal(got, want, sizeof got);
    fx_close(&a, &h);
}

/* The node of the manager has lost its power: a version that was seen comes a second time, with other data. */
static void test_sync_manager_that_lost_its_last_commits_is_believed(void **state)
{
    (void)state;
    begin();
    put(&b, &hb, 1, false);
    check_window_1(data);
    world_mgr_go_back(ino, 0);
    world_on_core(manager_back, &a.m);
    world_on_core(manager_back, &b.m);
    assert_int_equal(fx_write(&b, &hb, data + 1, 1000, MIB), 1000);
    assert_int_equal(cl_data_flush(&b.m, hb.inode), 0);
    check_window_1(data + 1);
    end();
}

static void test_sync_covers_what_was_written_before_a_kill_and_remount(void **state)
{
    struct fx_mount again;
    struct cl_handle h;

    (void)state;
    begin();
    put(&a, &ha, 0, false);
    fx_start(&again, 9, 4000);
    fx_open(&again, &h, ino);
    assert_int_equal(cl_data_fsync(&again.m, h.inode), 0); /* nothing known of the file here */
    assert_true(is_synced(near));
    assert_int_equal(far->syncs, 0); /* has nothing of it */
    fx_close(&again, &h);
    fx_stop(&again);
    end();
}

static void test_sync_of_a_file_of_one_mount_asks_nobody(void **state)
{
    uint64_t calls;

    (void)state;
    begin();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fx_write(&a, &ha, data, 1000, (uint64_t)i * MIB), 1000);
        calls = world_mgr_calls();
        assert_int_equal(sync_a(), 0);
        assert_int_equal(world_mgr_calls() - calls, 2); /* commit, sync */
        put(&a, &ha, 5, false); /* closed, not synced: still its own */
    }
    assert_int_equal(fx_truncate(&a, &ha, 0), 0);
    put(&a, &ha, 1, false);
    calls = world_mgr_calls();
    assert_int_equal(sync_a(), 0);
    assert_int_equal(world_mgr_calls() - calls, 1);
    assert_int_equal(near->syncs + far->syncs, 0);
    end();
}

static void test_sync_asks_once_for_what_has_not_changed(void **state)
{
    unsigned long asked;

    (void)state;
    begin();
    put(&b, &hb, 1, true);
    assert_int_equal(sync_a(), 0);
    asked = far->syncs;
    assert_int_equal(asked, 1);
    put(&a, &ha, 0, false);
    assert_int_equal(sync_a(), 0);
    assert_int_equal(far->syncs, asked);
    put(&b, &hb, 1, true); /* again there */
    put(&a, &ha, 0, false);
    assert_int_equal(sync_a(), 0);
    assert_int_equal(far->syncs, asked + 1);
    assert_true(is_synced(far));
    end();
}

static void test_sync_of_a_copy_covers_the_chunks_of_its_source(void **state)
{
    uint64_t ino2;
    struct cl_handle h2;

    (void)state;
    begin();
    put(&b, &hb, 0, true);
    ino2 = world_file_new(MIB, 1);
    fx_open(&a, &h2, ino2);
    fx_close(&a, &ha);
    fx_open(&a, &ha, ino);
    assert_int_equal(cl_data_copy_range(&a.m, &ha, 0, &h2, 0, 1000), 1000);
    assert_int_equal(cl_data_fsync(&a.m, h2.inode), 0);
    assert_true(is_synced(far));
    fx_close(&a, &h2);
    end();
}

static void test_sync_tells_that_another_mounts_data_could_not_be_synced(void **state)
{
    (void)state;
    begin();
    put(&b, &hb, 1, true);
    far->sync_err = -EIO;
    assert_int_equal(fp_err_to_errno(sync_a()), EIO);
    assert_int_equal(far->syncs, 1); /* its device says no: asking again would be answered with a lie */
    far->sync_err = 0;
    far->down = true;
    world_bnf_break(far);
    assert_true(sync_a() < 0);
    far->down = false;
    assert_int_equal(sync_a(), 0);
    assert_true(is_synced(far));
    end();
}

static void test_sync_goes_on_after_a_broken_link(void **state)
{
    (void)state;
    begin();
    put(&b, &hb, 1, true);
    put(&b, &hb, 2, false);
    assert_int_equal(sync_a(), 0);
    put(&b, &hb, 1, true);
    put(&b, &hb, 2, false);
    near->break_after = far->break_after = 1;
    assert_int_equal(sync_a(), 0);
    assert_true(is_synced(near) && is_synced(far));
    end();
}

/* The link to far breaks and cannot be had again; what it has acknowledged, it has not synced. */
static void far_goes_away(bool known)
{
    far->down = true;
    world_bnf_break(far);
    fx_table(&a); /* the loop has seen it */
    far->table_down = known;
    fx_table(&a);
    far->connects = 0;
}

static void test_sync_does_not_wait_for_a_benefactor_that_the_file_does_not_use(void **state)
{
    struct cl_handle h2;
    uint64_t ino2;

    (void)state;
    begin();
    ino2 = world_file_new(MIB, 1);
    fx_open(&a, &h2, ino2);
    put(&a, &ha, 0, true);
    far_goes_away(true);
    put(&a, &h2, 0, false);
    assert_int_equal(cl_data_fsync(&a.m, h2.inode), 0);
    assert_int_equal(far->connects, 0);
    assert_true(sync_a() < 0); /* this one does use it: the manager's word is no reason not to try */
    assert_true(far->connects > 0);
    far->down = false;
    assert_int_equal(sync_a(), 0);
    assert_true(is_synced(far));
    far->table_down = false;
    fx_table(&a);
    fx_close(&a, &h2);
    end();
}

static void *sync_a_thread(void *arg)
{
    (void)arg;
    return sync_a() < 0 ? NULL : arg;
}

static void test_sync_of_many_threads_tries_a_benefactor_that_is_away_once(void **state)
{
    pthread_t t[8];
    void *rc;

    (void)state;
    begin();
    put(&a, &ha, 0, true);
    far_goes_away(false);
    far->hold_connects = true;
    for (size_t i = 0; i < 8; i++)
        pthread_create(&t[i], NULL, sync_a_thread, state);
    while (far->connects == 0)
        usleep(1000);
    usleep(300000); /* all are waiting */
    far->hold_connects = false;
    for (size_t i = 0; i < 8; i++) {
        pthread_join(t[i], &rc);
        assert_null(rc);
    }
    assert_in_range(far->connects, 1, 3);
    far->down = false;
    assert_int_equal(sync_a(), 0);
    assert_true(is_synced(far));
    end();
}

static void test_sync_of_a_file_too_large_to_look_at_asks_all(void **state)
{
    (void)state;
    begin();
    world_faults.mgr_sync_all = 1;
    put(&b, &hb, 1, true);
    assert_int_equal(sync_a(), 0);
    assert_true(is_synced(far) && near->syncs == 1);
    put(&b, &hb, 1, true);
    near->sync_err = -EIO; /* has nothing of this file */
    assert_int_equal(sync_a(), 0);
    put(&b, &hb, 2, false);
    assert_true(sync_a() < 0);
    near->sync_err = 0;
    assert_int_equal(sync_a(), 0);
    end();
}

/* As the table, or its own hello, or both in any order, tell. */
static void reboot(struct world_bnf *x, uint64_t life, bool by_table)
{
    x->life = life;
    if (by_table)
        x->table_life = life;
    world_bnf_break(x);
    fx_table(&a);
}

static void test_sync_tells_what_a_rebooted_node_may_have_lost_of_another_mounts_data(void **state)
{
    (void)state;
    for (int by_table = 0; by_table < 2; by_table++) {
        begin();
        put(&a, &ha, 0, false);
        if (!by_table) { /* then a must have been there before */
            put(&a, &ha, 3, true);
            assert_int_equal(sync_a(), 0);
        }
        put(&b, &hb, 1, true);
        reboot(far, 12, by_table);
        assert_int_equal(sync_a(), -EIO);
        far->table_life = 12; /* late news of the same */
        fx_table(&a);
        assert_int_equal(sync_a(), 0); /* told once */
        put(&b, &hb, 1, true);
        assert_int_equal(sync_a(), 0);
        end();
    }
}

static void test_sync_of_synced_data_survives_a_reboot(void **state)
{
    (void)state;
    begin();
    put(&b, &hb, 1, true);
    assert_int_equal(sync_a(), 0);
    reboot(far, 12, true);
    put(&a, &ha, 0, false);
    assert_int_equal(sync_a(), 0);
    put(&b, &hb, 2, true); /* after the reboot, but who knows */
    assert_int_equal(sync_a(), 0); /* the last fsync here came after it */
    reboot(near, 12, true); /* nothing of others there, nothing of its own that is not synced */
    assert_int_equal(sync_a(), 0);
    end();
}

/* A second file of mount x with a window on near, or on far. */
static void put_second(struct fx_mount *x, struct cl_handle *h, bool to_far)
{
    fx_open(x, h, world_file_new(MIB, 1));
    put(x, h, 0, to_far);
}

static void check_good(struct fx_mount *x, struct cl_handle *h)
{
    assert_int_equal(cl_data_fsync(&x->m, h->inode), 0);
    put(x, h, 1, false);
    put(x, h, 2, true);
    assert_int_equal(cl_data_fsync(&x->m, h->inode), 0);
}

static void test_sync_that_fails_is_told_to_each_file_of_the_mount_once(void **state)
{
    struct cl_handle h2, clean;

    (void)state;
    begin();
    put_second(&a, &clean, false);
    assert_int_equal(cl_data_fsync(&a.m, clean.inode), 0);
    put(&a, &ha, 0, false);
    put_second(&a, &h2, false);
    failing_syncs = 1;
    assert_int_equal(cl_data_fsync(&a.m, h2.inode), -EIO);
    assert_int_equal(failing_syncs, 0);
    assert_int_equal(sync_a(), -EIO); /* the kernel would say that all is well */
    assert_int_equal(cl_data_fsync(&a.m, clean.inode), 0); /* had nothing to lose */
    check_good(&a, &h2);
    check_good(&a, &ha);
    assert_true(near->nsegs > 1);
    assert_int_equal(near->stale, 0); /* nobody tried to write there */
    fx_close(&a, &h2);
    fx_close(&a, &clean);
    end();
}

static void test_sync_that_fails_is_told_to_other_mounts_too(void **state)
{
    (void)state;
    for (int own_error = 0; own_error < 2; own_error++) { /* the pages were lost, or the device's cache: then only the first is told by the kernel */
        struct cl_handle h2;

        begin();
        put(&a, &ha, 0, false);
        put_second(&b, &h2, false);
        failing_syncs = 1 + own_error;
        assert_int_equal(sync_a(), -EIO);
        assert_int_equal(cl_data_fsync(&b.m, h2.inode), -EIO);
        fx_table(&a); /* late news */
        fx_table(&b);
        check_good(&b, &h2);
        check_good(&a, &ha);
        fx_close(&b, &h2);
        end();
    }
}

static void test_sync_that_fails_at_the_benefactor_is_told_to_all_mounts_once(void **state)
{
    struct cl_handle h2, h3;

    (void)state;
    begin();
    put(&a, &ha, 0, true);
    put_second(&a, &h2, true);
    put_second(&b, &h3, true);
    far->sync_lost = 1;
    assert_int_equal(sync_a(), -EIO);
    assert_int_equal(cl_data_fsync(&a.m, h2.inode), -EIO);
    assert_int_equal(cl_data_fsync(&b.m, h3.inode), -EIO);
    check_good(&a, &ha);
    check_good(&a, &h2);
    check_good(&b, &h3);
    fx_close(&a, &h2);
    fx_close(&b, &h3);
    end();
}

static void test_sync_that_fails_for_another_mounts_data_is_told_once(void **state)
{
    (void)state;
    begin();
    put(&b, &hb, 1, true);
    far->sync_lost = 1;
    assert_int_equal(sync_a(), -EIO);
    assert_int_equal(sync_a(), 0);
    assert_int_equal(cl_data_fsync(&b.m, hb.inode), -EIO);
    check_good(&b, &hb);
    end();
}

static void test_sync_that_fails_is_told_to_files_that_were_closed_and_forgotten(void **state)
{
    struct cl_handle h2;

    (void)state;
    begin();
    put(&a, &ha, 0, false);
    put_second(&a, &h2, false);
    cl_data_forget(&a.m, ha.inode);
    failing_syncs = 1;
    assert_int_equal(cl_data_fsync(&a.m, h2.inode), -EIO);
    assert_int_equal(sync_a(), -EIO);
    check_good(&a, &ha);
    cl_data_forget(&a.m, ha.inode); /* synced: nothing is remembered */
    put(&a, &h2, 1, false);
    failing_syncs = 1;
    assert_int_equal(cl_data_fsync(&a.m, h2.inode), -EIO);
    assert_int_equal(sync_a(), 0);
    fx_close(&a, &h2);
    end();
}

static int sync_everything(void)
{
    return cl_data_sync_all(&a.m, true, fp_now_ms() + 4000);
}

static void test_sync_of_everything_tells_of_files_that_have_lost_data_once(void **state)
{
    struct cl_handle h2;

    (void)state;
    begin();
    put(&a, &ha, 0, false);
    put_second(&a, &h2, false);
    failing_syncs = 1;
    assert_int_equal(sync_everything(), -EIO);
    assert_int_equal(sync_everything(), 0);
    assert_int_equal(sync_a(), -EIO); /* its own user has to know */
    reboot(near, 12, true);
    assert_int_equal(sync_everything(), -EIO);
    assert_int_equal(cl_data_fsync(&a.m, h2.inode), -EIO);
    assert_int_equal(sync_everything(), 0);
    fx_close(&a, &h2);
    end();
}

static void test_sync_that_fails_is_told_when_the_benefactor_is_back(void **state)
{
    struct cl_handle h2;

    (void)state;
    begin();
    put(&a, &ha, 0, false);
    put_second(&b, &h2, false);
    near->down = true;
    world_bnf_break(near);
    failing_syncs = 1;
    assert_int_equal(sync_a(), -EIO);
    near->down = false;
    usleep(1100000); /* a link is not tried again at once */
    cl_segs_tick(a.m.data);
    assert_true(near->life != 11);
    assert_int_equal(cl_data_fsync(&b.m, h2.inode), -EIO);
    check_good(&b, &h2);
    fx_close(&b, &h2);
    end();
}

static void manager_lost(void *arg)
{
    cl_data_manager_lost(arg);
    cl_data_manager_back(arg);
}

static void lose_commits(void)
{
    world_on_core(manager_lost, &a.m);
}

static void test_sync_tells_what_the_manager_may_have_forgotten_once(void **state)
{
    (void)state;
    begin();
    put(&a, &ha, 0, false);
    lose_commits();
    assert_int_equal(sync_a(), -EIO);
    assert_int_equal(sync_a(), 0);
    put(&a, &ha, 1, false); /* … and after it, everything is as ever */
    assert_int_equal(sync_a(), 0);
    lose_commits();
    assert_int_equal(sync_a(), 0);
    check_good(&a, &ha);
    end();
}

static void test_sync_of_another_file_covers_what_the_manager_has_of_this_one(void **state)
{
    struct cl_handle h2;

    (void)state;
    begin();
    put(&a, &ha, 0, false);
    put_second(&a, &h2, false);
    assert_int_equal(cl_data_fsync(&a.m, h2.inode), 0);
    put(&a, &h2, 1, false);
    lose_commits();
    assert_int_equal(sync_a(), 0);
    assert_int_equal(cl_data_fsync(&a.m, h2.inode), -EIO);
    fx_close(&a, &h2);
    end();
}

static void test_sync_tells_what_the_manager_forgot_of_closed_and_forgotten_files(void **state)
{
    struct cl_handle h2;

    (void)state;
    begin();
    put(&a, &ha, 0, false);
    put_second(&a, &h2, false);
    cl_data_forget(&a.m, ha.inode);
    lose_commits();
    assert_int_equal(cl_data_fsync(&a.m, h2.inode), -EIO);
    assert_int_equal(sync_a(), -EIO);
    cl_data_forget(&a.m, ha.inode);
    lose_commits();
    assert_int_equal(sync_a(), 0);
    check_good(&a, &ha);
    put(&a, &ha, 1, false);
    cl_data_forget(&a.m, ha.inode);
    assert_int_equal(sync_everything(), 0); /* covers it, by whatever it was sent */
    lose_commits();
    assert_int_equal(sync_everything(), 0);
    assert_int_equal(sync_a(), 0);
    fx_close(&a, &h2);
    end();
}

static void test_sync_tells_of_a_truncation_that_the_manager_forgot(void **state)
{
    Fp__SetAttr req = FP__SET_ATTR__INIT;

    (void)state;
    begin();
    put(&a, &ha, 0, false);
    assert_int_equal(sync_a(), 0);
    req.ino = ino;
    req.valid = FP__SET_ATTR_VALID__SET_SIZE;
    req.size_bytes = 10;
    assert_int_equal(cl_data_truncate(&a.m, ha.inode, &req), 0);
    lose_commits();
    assert_int_equal(sync_everything(), -EIO);
    assert_int_equal(sync_everything(), 0);
    assert_int_equal(sync_a(), -EIO);
    end();
}

/* A field that a manager of before does not know is not a copy of nothing: cp would make an empty file of it. */
static void test_copy_by_a_manager_that_does_not_say_how_much(void **state)
{
    uint64_t ino2;
    struct cl_handle h2;

    (void)state;
    begin();
    put(&a, &ha, 0, true);
    ino2 = world_file_new(MIB, 1);
    fx_open(&a, &h2, ino2);
    world_faults.mgr_old = true;
    assert_int_equal(cl_data_copy_range(&a.m, &ha, 0, &h2, 0, 1000), 1000);
    world_faults.mgr_old = false;
    fx_close(&a, &h2);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sync_covers_what_another_mount_closed),
        cmocka_unit_test(test_sync_manager_that_lost_its_last_commits_is_believed),
        cmocka_unit_test(test_sync_covers_what_was_written_before_a_kill_and_remount),
        cmocka_unit_test(test_sync_of_a_file_of_one_mount_asks_nobody),
        cmocka_unit_test(test_sync_asks_once_for_what_has_not_changed),
        cmocka_unit_test(test_sync_of_a_copy_covers_the_chunks_of_its_source),
        cmocka_unit_test(test_copy_by_a_manager_that_does_not_say_how_much),
        cmocka_unit_test(test_sync_tells_that_another_mounts_data_could_not_be_synced),
        cmocka_unit_test(test_sync_goes_on_after_a_broken_link),
        cmocka_unit_test(test_sync_does_not_wait_for_a_benefactor_that_the_file_does_not_use),
        cmocka_unit_test(test_sync_of_many_threads_tries_a_benefactor_that_is_away_once),
        cmocka_unit_test(test_sync_of_a_file_too_large_to_look_at_asks_all),
        cmocka_unit_test(test_sync_tells_what_a_rebooted_node_may_have_lost_of_another_mounts_data),
        cmocka_unit_test(test_sync_of_synced_data_survives_a_reboot),
        cmocka_unit_test(test_sync_that_fails_is_told_to_each_file_of_the_mount_once),
        cmocka_unit_test(test_sync_that_fails_is_told_to_other_mounts_too),
        cmocka_unit_test(test_sync_that_fails_at_the_benefactor_is_told_to_all_mounts_once),
        cmocka_unit_test(test_sync_that_fails_for_another_mounts_data_is_told_once),
        cmocka_unit_test(test_sync_that_fails_is_told_to_files_that_were_closed_and_forgotten),
        cmocka_unit_test(test_sync_of_everything_tells_of_files_that_have_lost_data_once),
        cmocka_unit_test(test_sync_that_fails_is_told_when_the_benefactor_is_back),
        cmocka_unit_test(test_sync_tells_what_the_manager_may_have_forgotten_once),
        cmocka_unit_test(test_sync_of_another_file_covers_what_the_manager_has_of_this_one),
        cmocka_unit_test(test_sync_tells_what_the_manager_forgot_of_closed_and_forgotten_files),
        cmocka_unit_test(test_sync_tells_of_a_truncation_that_the_manager_forgot),
    };

    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
