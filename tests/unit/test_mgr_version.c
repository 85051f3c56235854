/* Versions of files: what comes back when a writer dies, and what does not. */
#include "fp/err.h"
#include "fp/log.h"
#include "mgr_rewrites.h"

/* A file of five windows, the last of them not full, closed well. */
static int setup(void **state)
{
    (void)state;
    open_file();
    for (uint64_t w = 0; w < 4; w++)
        assert_true(fix_write(&f, file, w * CHUNK, CHUNK));
    assert_true(fix_write(&f, file, 4 * CHUNK, 1000));
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM version"), 0); /* a new file: there is nothing to keep */
    release(f.conn, file, false);
    return 0;
}

static void test_rewriting_in_place_comes_back(void **state)
{
    struct map was = map_of(file);
    uint64_t mtime = (uint64_t)fix_attr(&f, file).mtime_ns, data_version = fix_attr(&f, file).data_version;

    (void)state;
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 1 * CHUNK, CHUNK));     /* a window as a whole */
    assert_true(fix_write(&f, file, 2 * CHUNK + 100, 200)); /* a piece of one */
    assert_true(fix_write(&f, file, 4 * CHUNK + 500, 5000)); /* beyond the end */
    assert_true(fix_write(&f, file, 9 * CHUNK, 5000));
    fix_check(&f);
    assert_int_equal(versions(), 1);
    assert_int_equal(fix_attr(&f, file).blocks, (4 * CHUNK + 5500 + 5000 + 511) / 512);
    dies(f.conn);
    new_mount();
    assert_map(file, &was);
    assert_int_equal(fix_attr(&f, file).mtime_ns, mtime);
    assert_true(fix_attr(&f, file).data_version > data_version + 4);
    fix_check(&f);
    open_by(f.conn, file); /* what was given up goes with the next good version */
    assert_true(fix_write(&f, file, 0, 100));
    release(f.conn, file, false);
    assert_int_equal(versions(), 0);
    fix_tick(&f, 1000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode"), 2);
}

static void test_a_cut_to_nothing_comes_back(void **state)
{
    struct map was = map_of(file);

    (void)state;
    open_by(f.conn, file);
    assert_int_equal(fix_truncate(&f, file, 0), 0);
    assert_int_equal(fix_attr(&f, file).blocks, 0);
    assert_true(fix_write(&f, file, 0, CHUNK));
    assert_true(fix_write(&f, file, 7 * CHUNK, CHUNK));
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM version_win"), 0);
    dies(f.conn);
    new_mount();
    assert_map(file, &was);
}

static void test_cuts_and_holes_come_back(void **state)
{
    struct map was = map_of(file);

    (void)state;
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 1 * CHUNK + 1000, 1000));
    assert_int_equal(fix_truncate(&f, file, 2 * CHUNK + 5), 0);
    assert_int_equal(fix_truncate(&f, file, 6 * CHUNK), 0);
    assert_true(fix_write(&f, file, 3 * CHUNK, CHUNK));
    assert_int_equal(fix_punch(&f, file, 10, 3 * CHUNK), 0);
    fix_check(&f);
    assert_int_equal(fix_truncate(&f, file, 0), 0);
    assert_true(fix_write(&f, file, 0, 77));
    dies(f.conn);
    new_mount();
    assert_map(file, &was);
}

/* All ends that are good: closing, and syncing by the only writer. */
static void test_a_good_end_is_the_new_version(void **state)
{
    struct map is;

    (void)state;
    open_by(f.conn, file);
    assert_int_equal(fix_truncate(&f, file, 0), 0);
    assert_true(fix_write(&f, file, 0, CHUNK));
    assert_int_equal(versions(), 1);
    sync_by(f.conn, file);
    assert_int_equal(versions(), 0);
    is = map_of(file);
    assert_true(fix_write(&f, file, 100, 100));
    dies(f.conn);
    new_mount();
    assert_map(file, &is); /* as it was synced */
    open_by(f.conn, file);
    assert_int_equal(fix_truncate(&f, file, 0), 0);
    assert_true(fix_write(&f, file, 0, 5));
    release(f.conn, file, false);
    is = map_of(file);
    dies(f.conn);
    new_mount();
    assert_map(file, &is);
}

/* A truncate by name, by somebody who does not write, is whole by itself. */
static void test_changes_without_a_writer_keep_nothing(void **state)
{
    (void)state;
    assert_int_equal(fix_truncate(&f, file, CHUNK), 0);
    assert_int_equal(versions(), 0);
    dies(f.conn);
    new_mount();
    assert_int_equal(fix_attr(&f, file).size_bytes, CHUNK);
}

static void test_one_of_two_writers_dies(void **state)
{
    struct map was = map_of(file);
    struct mgr_conn *other = fix_conn(&f);

    (void)state;
    assert_true(fix_hello_client(&f, other, 0, NULL) > 0);
    open_by(f.conn, file);
    open_by(other, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    dies(other);
    new_mount(); /* the first expired, too, as it was not heard; what it has open is gone */
    assert_map(file, &was);
}

/* What one of several has synced is not taken back: the file is torn, and stays so. */
static void test_what_one_of_two_has_synced_stays(void **state)
{
    struct map is;
    struct mgr_conn *other = fix_conn(&f);

    (void)state;
    assert_true(fix_hello_client(&f, other, 0, NULL) > 0);
    open_by(f.conn, file);
    open_by(other, file);
    wrote_by(other, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    sync_by(f.conn, file);
    assert_int_equal(fix_sql(&f, "SELECT state FROM version"), MGR_SYNCED);
    is = map_of(file);
    dies(other);
    new_mount();
    assert_map(file, &is);
    assert_int_equal(fix_sql(&f, "SELECT state FROM version"), MGR_TORN);
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, 10));
    release(f.conn, file, false);
    assert_int_equal(versions(), 0);
}

/* Each has synced after its last change: then it ends, not sooner. */
static void test_the_last_sync_ends_it(void **state)
{
    struct mgr_conn *other = fix_conn(&f);

    (void)state;
    assert_true(fix_hello_client(&f, other, 0, NULL) > 0);
    open_by(f.conn, file);
    open_by(other, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    sync_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, 10));
    sync_by(other, file);
    assert_int_equal(versions(), 1);
    sync_by(f.conn, file);
    assert_int_equal(versions(), 0);
}

static void test_who_was_overtaken_changes_nothing(void **state)
{
    struct map was = map_of(file);
    uint64_t session = f.session;

    (void)state;
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    dies(f.conn);
    f.conn = fix_conn(&f);
    assert_int_equal(fix_hello_client(&f, f.conn, session, NULL), session);
    fix_keepalive(&f);
    assert_map(file, &was);
    assert_false(fix_write(&f, file, 0, CHUNK));
    assert_int_equal(f.status, FP_EOVERTAKEN);
    assert_int_equal(fix_truncate(&f, file, 0), FP_EOVERTAKEN);
    assert_int_equal(fix_punch(&f, file, 0, 10), FP_EOVERTAKEN);
    assert_map(file, &was);
    fix_check(&f);
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM overtaken"), 0);
}

/* One program's unpublished data is in the mount as long as its descriptor: another one's open does not let it through. */
static void test_who_was_overtaken_has_to_close(void **state)
{
    Fp__Hello h = FP__HELLO__INIT;

    (void)state;
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.session = f.session;
    h.node = "n1";
    h.mountpoint = "/mnt";
    h.open_known = true;
    h.n_open_ino = h.n_open_write_ino = 1;
    h.open_ino = h.open_write_ino = &file;
    dies(f.conn);
    f.conn = fix_conn(&f);
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
    fix_keepalive(&f);
    open_by(f.conn, file);
    assert_false(fix_write(&f, file, 0, CHUNK));
    assert_int_equal(f.status, FP_EOVERTAKEN);
    release(f.conn, file, false);
    assert_false(fix_write(&f, file, 0, CHUNK));
    release(f.conn, file, false);
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
}

/* The manager's disk was full in that moment: nobody is to read what is to be put back. */
static void test_what_could_not_be_put_back_yet_is_not_opened(void **state)
{
    struct map was = map_of(file);
    struct mgr_conn *other;
    Fp__Hello h = FP__HELLO__INIT;
    Fp__Open m = FP__OPEN__INIT;

    (void)state;
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    fix_lost(&f, f.conn);
    f.doom = -ENOSPC;
    fix_tick_failing(&f, 61000);
    other = fix_conn(&f);
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.node = "n2";
    h.mountpoint = "/mnt";
    fix_free(fix_call(&f, other, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
    m.ino = file;
    assert_null(fix_call(&f, other, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    assert_int_equal(f.status, FP_EPUBLISHING);
    fix_tick(&f, 1000);
    fix_free(fix_call(&f, other, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    assert_int_equal(f.status, 0);
    f.conn = other;
    assert_map(file, &was);
}

static void test_unlink_takes_the_versions_along(void **state)
{
    (void)state;
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "a", false), 0);
    assert_int_equal(versions(), 0);
    assert_true(fix_write(&f, file, 0, CHUNK));
    assert_int_equal(versions(), 0);
    release(f.conn, file, false);
    fix_tick(&f, 1000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode"), 1);
}

/* A database: after so many syncs it is not guarded for a while. */
static void test_what_is_synced_all_the_time_is_not_guarded(void **state)
{
    int guards = 0;

    (void)state;
    open_by(f.conn, file);
    for (int i = 0; i < 30; i++) {
        assert_true(fix_write(&f, file, 0, 10));
        guards += versions();
        sync_by(f.conn, file);
        assert_int_equal(versions(), 0);
    }
    assert_int_equal(guards, 9);
    release(f.conn, file, false);
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, 10));
    assert_int_equal(versions(), 1);
}

/* Strict files: each write is whole by itself, but not that they are emptied. */
static void test_strict_files(void **state)
{
    struct map was;

    (void)state;
    assert_int_equal(fix_set_xattr(&f, file, "user.fp.strict", "1", 0), 0);
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, 10));
    assert_int_equal(versions(), 0);
    was = map_of(file);
    assert_int_equal(fix_truncate(&f, file, 0), 0);
    assert_true(fix_write(&f, file, 0, 10));
    dies(f.conn);
    new_mount();
    assert_map(file, &was);
}

#define MANY 1000u

/* More windows than one group takes: in between it is neither, and nobody sees it. */
static void test_a_large_return_takes_several_groups(void **state)
{
    Fp__SliceMap m = FP__SLICE_MAP__INIT;
    struct mgr_conn *other;
    uint64_t big;
    int busy = 0;

    (void)state;
    fix_close(&f);
    fix_open(&f, fix_path(), false);
    big = fix_mk(&f, MGR_ROOT_INO, "big", S_IFREG | 0644);
    fix_fill_map(&f, "big", 4 * MANY, 1);
    fix_sql(&f, "UPDATE inode SET size=mapped*1048576 WHERE mode&32768");
    open_by(f.conn, big);
    assert_int_equal(fix_truncate(&f, big, 0), 0);
    assert_true(fix_write(&f, big, 0, CHUNK));
    fix_check(&f);
    fix_lost(&f, f.conn);
    f.now.ms += 60900;
    fix_tick(&f, 500);
    other = f.conn = fix_conn(&f);
    fix_hello_client(&f, other, 0, NULL);
    for (; fix_sql(&f, "SELECT count(*) FROM version WHERE state=5"); busy++) {
        m.ino = big;
        m.win_count = 1;
        assert_null(fix_call(&f, other, FP__MSG_TYPE__MSG_SLICEMAP, &m, &fp__slice_map_reply__descriptor));
        assert_int_equal(f.status, FP_EPUBLISHING);
        open_by(other, big);
        assert_int_equal(f.status, FP_EPUBLISHING);
        fix_check(&f);
        if (busy == 1) { /* started anew in the middle */
            fix_close(&f);
            fix_open(&f, fix_path(), true);
            other = f.conn = fix_conn(&f);
            fix_hello_client(&f, other, 0, NULL);
        } else {
            fix_tick(&f, 500);
        }
        assert_true(busy < 100);
    }
    assert_true(busy > 1);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM slice s JOIN dirent d ON d.ino=s.ino"), 4 * MANY);
    assert_int_equal(fix_attr(&f, big).size_bytes, 4 * MANY * (UINT64_C(1) << 20));
    fix_check(&f);
    fix_close_and_remove(&f);
    assert_int_equal(setup(NULL), 0);
}

static unsigned said(FILE *log, const char *what)
{
    char line[1024];
    unsigned n = 0;

    rewind(log);
    while (fgets(line, sizeof line, log))
        n += strstr(line, what) != NULL;
    return n;
}

/* A group that fails has put nothing back, and is tried again. */
static void test_a_return_is_said_when_it_is_committed_and_once(void **state)
{
    static const char back[] = "who rewrote it did not come to an end: it is again what it was before"; /* tests/sim/sim_store.c has it, too */
    FILE *log = tmpfile();
    struct map was = map_of(file);

    (void)state;
    assert_non_null(log);
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 1 * CHUNK, CHUNK));
    fp_log_also(fileno(log));
    fp_log_set_level(FP_LOG_WARN);
    fix_lost(&f, f.conn);
    fix_tick(&f, 59000);
    for (unsigned i = 0; i < 6; i++) {
        f.doom = -ENOSPC;
        fix_tick_failing(&f, 500);
    }
    assert_int_equal(said(log, back), 0);
    fix_tick(&f, 61000);
    fp_log_set_level(FP_LOG_ERROR);
    fp_log_also(-1);
    assert_int_equal(said(log, back), 1);
    fclose(log);
    new_mount();
    assert_map(file, &was);
}

/* A manager that is started anew has the guard, and waits for the sessions of before: who has it open says so, who does not come back is dead. */
static void test_restart(void **state)
{
    struct map was;
    uint64_t session;

    (void)state;
    for (int back = 0; back < 2; back++) {
        fix_close(&f);
        fix_open(&f, fix_path(), false);
        file = fix_mk(&f, MGR_ROOT_INO, "a", S_IFREG | 0644);
        open_by(f.conn, file);
        assert_true(fix_write(&f, file, 0, CHUNK));
        release(f.conn, file, false);
        was = map_of(file);
        session = f.session;
        open_by(f.conn, file);
        assert_true(fix_write(&f, file, 0, 100));
        fix_close(&f);
        fix_open(&f, fix_path(), true);
        f.conn = fix_conn(&f);
        if (back) {
            Fp__Hello h = FP__HELLO__INIT;

            h.protocol = 1;
            h.role = FP__ROLE__ROLE_CLIENT;
            h.session = session;
            h.open_known = true; /* it has closed it meanwhile */
            fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
            assert_int_equal(versions(), 1);
            fix_tick(&f, 5000);
            assert_int_equal(versions(), 0);
            assert_string_not_equal(map_of(file).text, was.text);
        } else {
            fix_tick(&f, 61000);
            fix_hello_client(&f, f.conn, 0, NULL);
            assert_map(file, &was);
        }
        fix_check(&f);
        fix_close_and_remove(&f);
        assert_int_equal(setup(NULL), 0);
    }
}

/* While the second still writes, nothing is put back; nor what it has closed, when it has. The file lacks what the dead one wrote: it is torn, and what it was is kept. */
static void test_what_the_last_of_them_has_closed_stays(void **state)
{
    struct map was = map_of(file), is;
    struct mgr_conn *other = fix_conn(&f);

    (void)state;
    assert_true(fix_hello_client(&f, other, 0, NULL) > 0);
    open_by(f.conn, file);
    open_by(other, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    is = map_of(file);
    wrote_by(other, file);
    fix_lost(&f, other);
    for (int i = 0; i < 70; i++) {
        (void)fix_attr(&f, file);
        fix_tick(&f, 1000);
    }
    assert_map(file, &is);
    assert_int_equal(fix_sql(&f, "SELECT state FROM version"), MGR_GUARD);
    release(f.conn, file, false);
    assert_map(file, &is);
    assert_int_equal(fix_sql(&f, "SELECT state FROM version"), MGR_TORN);
    fix_free(ask("/a", 0, true, false, false));
    assert_int_equal(f.status, 0);
    assert_map(file, &was);
}

/* By hand: not while it is written, but by force; and what was given up can be had back. */
static void test_restore(void **state)
{
    struct map was = map_of(file), torn;
    Fp__CtlVersionsReply *r;
    uint64_t n;

    (void)state;
    assert_null(ask("a", 0, true, false, false));
    assert_int_equal(f.status, -ENODATA);
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    assert_int_equal(fix_truncate(&f, file, CHUNK + 5), 0);
    torn = map_of(file);
    r = ask("a", 0, true, false, false);
    assert_int_equal(r->n_why, 1);
    assert_string_equal(r->why[0], "n1:/mnt");
    assert_int_equal(r->restored, 0);
    fix_free(r);
    assert_map(file, &torn);
    r = ask("a", 0, true, true, false);
    assert_int_equal(r->n_versions, 2);
    assert_int_equal(r->versions[0]->size_bytes, was.size);
    assert_int_equal(r->versions[1]->state, FP__VERSION_STATE__VERSION_TORN);
    assert_int_equal(r->versions[1]->size_bytes, torn.size);
    n = r->versions[1]->n;
    fix_free(r);
    assert_map(file, &was);
    release(f.conn, file, false);
    assert_map(file, &was);
    assert_null(ask("a", n + 1, false, false, false));
    assert_int_equal(f.status, -ENODATA);
    r = ask("a", n, false, false, false);
    assert_int_equal(r->restored, n);
    fix_free(r);
    assert_map(file, &torn);
    assert_null(ask("a", n, false, false, false)); /* who says it again, since he was not answered, does not undo it */
    assert_int_equal(f.status, -ENODATA);
    assert_map(file, &torn);
    r = ask("a", (uint64_t)fix_sql(&f, "SELECT n FROM version"), false, false, false);
    assert_int_not_equal(r->restored, n);
    fix_free(r);
    assert_map(file, &was);
}

/* By force: who writes it can change it no more, nor does his end do anything to what was put back, or to what was given up. */
static void test_restore_by_force_is_not_written_over(void **state)
{
    struct map was = map_of(file), torn, is;
    struct mgr_conn *before = f.conn;

    (void)state;
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    torn = map_of(file);
    assert_null(ask("a", 77, false, true, false));
    assert_int_equal(f.status, -ENODATA);
    assert_true(fix_write(&f, file, 10, 20)); /* there was nothing to put back, so it goes on */
    torn = map_of(file);
    fix_free(ask("a", 0, true, true, false));
    assert_map(file, &was);
    assert_false(fix_write(&f, file, 0, CHUNK));
    assert_int_equal(f.status, FP_EOVERTAKEN);
    assert_int_equal(fix_truncate(&f, file, 0), FP_EOVERTAKEN);
    assert_int_equal(fix_punch(&f, file, 0, 10), FP_EOVERTAKEN);
    open_by(f.conn, file); /* another program of that mount: what the first has not published may be under it */
    assert_false(fix_write(&f, file, 0, CHUNK));
    release(f.conn, file, false);
    assert_map(file, &was);
    assert_int_equal(versions(), 1);

    f.conn = fix_conn(&f); /* somebody else writes it and closes, while the first has it open, and then is killed */
    f.session = fix_hello_client(&f, f.conn, 0, NULL);
    f.seq = 0;
    fix_keepalive(&f);
    fix_free(ask("a", (uint64_t)fix_sql(&f, "SELECT n FROM version"), false, true, false));
    assert_map(file, &torn);
    fix_free(ask("a", (uint64_t)fix_sql(&f, "SELECT n FROM version"), false, true, false));
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, CHUNK, 30));
    is = map_of(file);
    release(before, file, true);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM version WHERE state IN (9,10)"), 0);
    release(f.conn, file, false);
    assert_int_equal(versions(), 0);
    dies(before);
    new_mount();
    assert_map(file, &is);
    fix_check(&f);
}

static void test_restore_of_all_that_are_torn(void **state)
{
    struct map was = map_of(file);
    struct mgr_conn *other = fix_conn(&f);
    Fp__CtlVersionsReply *r;

    (void)state;
    assert_true(fix_mk(&f, MGR_ROOT_INO, "d", S_IFDIR | 0755));
    assert_true(fix_hello_client(&f, other, 0, NULL) > 0);
    open_by(f.conn, file);
    open_by(other, file);
    wrote_by(other, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    sync_by(f.conn, file);
    dies(other);
    new_mount();
    assert_int_equal(fix_sql(&f, "SELECT state FROM version"), MGR_TORN);
    r = ask("d", 0, false, false, true);
    assert_int_equal(r->restored, 0);
    fix_free(r);
    r = ask("", 0, false, false, true);
    assert_int_equal(r->restored, 1);
    fix_free(r);
    assert_map(file, &was);
}

/* In this order, and no sooner than asked for. The one whose guard went is as it is when its writer dies. */
static void assert_given_up(const char *path, uint64_t n, uint64_t size)
{
    Fp__CtlVersionsReply *r = ask(path, 0, false, false, false);
    const Fp__VersionInfo *gone = NULL;

    assert_non_null(r);
    for (size_t i = 0; i < r->n_versions; i++)
        if (r->versions[i]->state == FP__VERSION_STATE__VERSION_GIVEN_UP)
            gone = r->versions[i];
    assert_non_null(gone);
    assert_int_equal(gone->n, n);
    assert_int_equal(gone->size_bytes, size);
    assert_non_null(strstr(gone->why, "no space"));
    fix_free(r);
}

static void test_space(void **state)
{
    uint64_t n;
    uint64_t b = fix_mk(&f, MGR_ROOT_INO, "b", S_IFREG | 0644);
    struct map was, torn;

    (void)state;
    open_by(f.conn, file);
    assert_int_equal(fix_truncate(&f, file, 0), 0);
    assert_true(fix_write(&f, file, 0, CHUNK));
    dies(f.conn);
    new_mount();
    was = map_of(file);
    assert_int_equal(fix_sql(&f, "SELECT state FROM version"), MGR_REMAINS);
    open_by(f.conn, b);
    assert_true(fix_write(&f, b, 0, CHUNK));
    release(f.conn, b, false);
    open_by(f.conn, b);
    assert_true(fix_write(&f, b, 0, CHUNK));
    the_guard_goes_last();
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM given_up"), 0);
    n = (uint64_t)fix_sql(&f, "SELECT n FROM version");
    assert_true(press(2) > 0);
    assert_int_equal(versions(), 0);
    assert_true(fix_write(&f, b, CHUNK, CHUNK)); /* makes none for the rest of the epoch */
    assert_int_equal(versions(), 0);
    torn = map_of(b);
    assert_given_up("b", n, CHUNK);
    dies(f.conn);
    new_mount();
    assert_map(b, &torn);
    assert_map(file, &was);
    assert_given_up("b", n, CHUNK); /* it is torn, and there is nothing to put back */
    assert_null(ask("b", n, false, true, false));
    assert_int_equal(f.status, -ENODATA);
    open_by(f.conn, b);
    assert_true(fix_write(&f, b, 0, CHUNK));
    assert_given_up("b", n, CHUNK);
    release(f.conn, b, false);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM given_up"), 0);
    assert_int_equal(f.core->versions->given_up, 0);
}

/* What is said of it outlasts the manager, and goes with the file. */
static void test_what_was_given_up_is_said_until_the_file_is_gone(void **state)
{
    (void)state;
    fix_close(&f);
    fix_open(&f, fix_path(), false);
    file = fix_mk(&f, MGR_ROOT_INO, "x", S_IFREG | 0644);
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, CHUNK));
    release(f.conn, file, false);
    open_by(f.conn, file);
    assert_int_equal(fix_truncate(&f, file, 0), 0);
    press(2);
    assert_int_equal(f.core->versions->given_up, 1);
    fix_close(&f);
    fix_open(&f, fix_path(), true);
    f.conn = fix_conn(&f);
    f.session = fix_hello_client(&f, f.conn, 0, NULL);
    assert_int_equal(f.core->versions->given_up, 1);
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "x", false), 0);
    fix_tick(&f, 61000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM given_up"), 0);
    assert_int_equal(f.core->versions->given_up, 0);
    fix_close_and_remove(&f);
    assert_int_equal(setup(NULL), 0);
}

/* The chunks of the only version. */
static void place(uint32_t bnf, uint32_t stored)
{
    struct mgr_chunk ch;
    int64_t id;

    for (unsigned i = 0; (id = fix_sql(&f, "SELECT DISTINCT chunk FROM slice WHERE ino=(SELECT shadow FROM version) ORDER BY chunk LIMIT 1 OFFSET %u", i)) >= 0; i++) {
        assert_int_equal(mgr_chunk_get(f.core, (uint64_t)id, &ch), 0);
        assert_int_equal(mgr_chunk_place(f.core, &ch, bnf, stored), 0);
    }
}

/* What was evicted, and is being rewritten: its version is in the target, and nothing would be free without it. It goes when it takes room. */
static void test_space_is_not_made_of_what_takes_none(void **state)
{
    uint64_t b = fix_mk(&f, MGR_ROOT_INO, "b", S_IFREG | 0644);

    (void)state;
    open_by(f.conn, b);
    assert_true(fix_write(&f, b, 0, CHUNK));
    release(f.conn, b, false);
    open_by(f.conn, file);
    assert_int_equal(fix_truncate(&f, file, 0), 0);
    place(0, 0);
    press(2);
    assert_int_equal(versions(), 1);
    open_by(f.conn, b); /* younger */
    assert_int_equal(fix_truncate(&f, b, 0), 0);
    assert_int_equal(versions(), 2);
    assert_true(press(2) > 0);
    assert_int_equal(fix_sql(&f, "SELECT ino FROM version"), file);
    assert_int_equal(versions(), 1);
    place(f.bnf, 4096);
    assert_true(press(2) > 0);
    assert_int_equal(versions(), 0);
}

/* Guards of more than is wanted at once: the older one goes. */
static void test_space_takes_the_oldest_guard(void **state)
{
    uint64_t big[2];

    (void)state;
    fix_close(&f);
    fix_open(&f, fix_path(), false);
    for (int i = 0; i < 2; i++) {
        big[i] = fix_mk(&f, MGR_ROOT_INO, i ? "y" : "x", S_IFREG | 0644);
        open_by(f.conn, big[i]);
        for (uint64_t w = 0; w < 64; w++)
            assert_true(fix_write(&f, big[i], w << 20, 1u << 20));
        release(f.conn, big[i], false);
    }
    for (int i = 0; i < 2; i++) {
        open_by(f.conn, big[i]);
        assert_int_equal(fix_truncate(&f, big[i], 0), 0);
    }
    press(2);
    assert_int_equal(fix_sql(&f, "SELECT ino FROM version"), big[1]);
    assert_int_equal(versions(), 1);
    fix_close_and_remove(&f);
    assert_int_equal(setup(NULL), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(rewriting_in_place_comes_back),
        T(a_cut_to_nothing_comes_back),
        T(cuts_and_holes_come_back),
        T(a_good_end_is_the_new_version),
        T(changes_without_a_writer_keep_nothing),
        T(one_of_two_writers_dies),
        T(what_the_last_of_them_has_closed_stays),
        T(what_one_of_two_has_synced_stays),
        T(the_last_sync_ends_it),
        T(who_was_overtaken_changes_nothing),
        T(who_was_overtaken_has_to_close),
        T(what_could_not_be_put_back_yet_is_not_opened),
        T(unlink_takes_the_versions_along),
        T(what_is_synced_all_the_time_is_not_guarded),
        T(strict_files),
        T(a_large_return_takes_several_groups),
        T(a_return_is_said_when_it_is_committed_and_once),
        T(restart),
        T(restore),
        T(restore_by_force_is_not_written_over),
        T(space),
        T(space_is_not_made_of_what_takes_none),
        T(space_takes_the_oldest_guard),
        T(what_was_given_up_is_said_until_the_file_is_gone),
        T(restore_of_all_that_are_torn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
