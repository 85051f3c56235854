/* MSG_LOCK and its row in the database: what outlasts a restart, a lost connection, a session, and a transaction that failed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/err.h"
#include "manager/locks.h"
#include "mgr_one.h"

static uint64_t ino, tickets, other_session;
static struct mgr_conn *other; /* another mount */

static int setup(void **state)
{
    bool is_new;

    (void)state;
    fix_open(&f, fix_path(), false);
    ino = fix_mk(&f, MGR_ROOT_INO, "a", S_IFREG | 0644);
    other = fix_conn(&f);
    other_session = fix_hello_client(&f, other, 0, &is_new);
    return 0;
}

static Fp__Lock whole(Fp__LockOp op, uint64_t owner)
{
    Fp__Lock m = FP__LOCK__INIT;

    m.ino = ino;
    m.op = op;
    m.owner = owner;
    m.exclusive = true;
    m.end = MGR_LOCK_EOF;
    m.pid = 77;
    m.ticket = ++tickets;
    return m;
}

static Fp__LockReply *send_(struct mgr_conn *conn, Fp__Lock *m)
{
    return fix_call(&f, conn, FP__MSG_TYPE__MSG_LOCK, m, &fp__lock_reply__descriptor);
}

/* 0: it is held; 1: queued; or -errno. */
static int lock(struct mgr_conn *conn, uint64_t owner, bool wait)
{
    Fp__Lock m = whole(FP__LOCK_OP__LOCK_SET, owner);
    Fp__LockReply *r;
    int rc;

    m.wait = wait;
    r = send_(conn, &m);
    rc = f.status ? f.status : r->queued;
    if (r && !r->queued)
        assert_int_equal(r->attr->ino, ino);
    fix_free(r);
    return rc;
}

static int unlock(struct mgr_conn *conn, uint64_t owner)
{
    Fp__Lock m = whole(FP__LOCK_OP__LOCK_UNSET, owner);

    fix_free(send_(conn, &m));
    return f.status;
}

/* Status of the MSG_LOCK_GRANT that the last call sent to conn; 1: none was. */
static int granted(struct mgr_conn *conn, uint64_t *version)
{
    const struct fix_out *o = fix_out_find(&f, conn, FP__MSG_TYPE__MSG_LOCK_GRANT);
    Fp__LockGrant *g = o ? fp__lock_grant__unpack(NULL, o->len, o->bytes) : NULL;
    int rc = g ? g->status : 1;

    if (version && g && g->attr)
        *version = g->attr->data_version;
    if (g)
        fp__lock_grant__free_unpacked(g, NULL);
    return rc;
}

/* A hello of the session on a new connection; how many of the locks it names are lost. */
static int hello(struct mgr_conn *conn, uint64_t session, const uint64_t *owners, size_t n)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__LockId id[4], *ids[4];
    Fp__HelloReply *r;
    int lost;

    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.node = (char *)"n";
    h.mountpoint = (char *)"/m";
    h.session = session;
    h.open_known = true;
    for (size_t i = 0; i < n; i++) {
        fp__lock_id__init(ids[i] = &id[i]);
        id[i].ino = ino;
        id[i].owner = owners[i];
    }
    h.locks = ids;
    h.n_locks = n;
    r = fix_call(&f, conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor);
    assert_non_null(r);
    lost = (int)r->n_lost_locks;
    for (size_t i = 0; i < r->n_lost_locks; i++)
        assert_int_equal(r->lost_locks[i]->ino, ino);
    fix_free(r);
    return lost;
}

static void restart(void)
{
    struct fix old = f;

    fix_close(&f);
    fix_open(&f, fix_path(), true);
    f.seq = old.seq;
    f.session = old.session;
    f.conn = fix_conn(&f);
    other = fix_conn(&f);
}

static void test_lockmsg_grant_comes_with_what_the_file_is_now(void **state)
{
    uint64_t before = fix_attr(&f, ino).data_version, version = 0;

    (void)state;
    assert_int_equal(lock(f.conn, 5, false), 0);
    assert_int_equal(lock(other, 5, false), -EAGAIN);
    assert_int_equal(lock(other, 5, true), 1);
    assert_int_not_equal(fix_write(&f, ino, 0, 100), 0);
    assert_int_equal(unlock(f.conn, 5), 0);
    assert_int_equal(granted(other, &version), 0);
    assert_true(version > before);
    assert_int_equal(fix_sql(&f, "SELECT session FROM lock"), other_session);
}

static void test_lockmsg_who_stands_in_the_way(void **state)
{
    Fp__Lock m = whole(FP__LOCK_OP__LOCK_GET, 5);
    Fp__LockReply *r;

    (void)state;
    lock(f.conn, 5, false);
    r = send_(other, &m);
    assert_true(r->held && r->exclusive && r->start == 0 && r->end == MGR_LOCK_EOF);
    assert_int_equal(r->pid, 0); /* nothing is known of where they run */
    fix_free(r);
    r = send_(f.conn, &m);
    assert_false(r->held);
    fix_free(r);
    m.owner = 6;
    r = send_(f.conn, &m);
    assert_int_equal(r->pid, 77);
    fix_free(r);
}

static void test_lockmsg_nonsense_is_refused(void **state)
{
    Fp__Lock m = whole(FP__LOCK_OP__LOCK_SET, 5);

    (void)state;
    m.start = 9;
    m.end = 8;
    fix_free(send_(f.conn, &m));
    assert_int_equal(f.status, -EINVAL);
    m = whole(FP__LOCK_OP__LOCK_SET, 5);
    m.end = UINT64_MAX;
    fix_free(send_(f.conn, &m));
    assert_int_equal(f.status, -EINVAL);
    m = whole(FP__LOCK_OP__LOCK_SET, 5);
    m.kind = (Fp__LockKind)3;
    fix_free(send_(f.conn, &m));
    assert_int_equal(f.status, -EINVAL);
    m = whole(FP__LOCK_OP__LOCK_SET, 5);
    m.ino = ino + 1000;
    fix_free(send_(f.conn, &m));
    assert_int_equal(f.status, -ENOENT);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM lock"), 0);
}

static void test_lockmsg_kept_over_a_restart(void **state)
{
    uint64_t held[] = {5, 9};

    (void)state;
    assert_int_equal(lock(f.conn, 5, false), 0);
    assert_int_equal(lock(other, 5, true), 1);
    restart();
    assert_int_equal(hello(other, other_session, NULL, 0), 0); /* before the holder is back */
    assert_int_equal(lock(other, 5, true), 1);
    assert_int_equal(hello(f.conn, f.session, held, 2), 1); /* 9 it never had */
    assert_int_equal(granted(other, NULL), 1);
    assert_int_equal(unlock(f.conn, 5), 0);
    assert_int_equal(granted(other, NULL), 0);
}

static void test_lockmsg_what_hello_does_not_name_goes(void **state)
{
    (void)state;
    lock(f.conn, 5, false);
    assert_int_equal(lock(other, 5, true), 1);
    fix_lost(&f, f.conn);
    assert_int_equal(granted(other, NULL), 1);
    f.conn = fix_conn(&f);
    assert_int_equal(hello(f.conn, f.session, NULL, 0), 0);
    assert_int_equal(granted(other, NULL), 0);
}

static void test_lockmsg_wait_ends_with_its_connection(void **state)
{
    (void)state;
    lock(f.conn, 5, false);
    lock(other, 5, true);
    fix_lost(&f, other);
    assert_int_equal(unlock(f.conn, 5), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM lock"), 0);
    other = fix_conn(&f);
    assert_int_equal(hello(other, other_session, NULL, 0), 0);
}

static void test_lockmsg_session_that_is_silent(void **state)
{
    uint64_t held = 5;

    (void)state;
    lock(f.conn, 5, false);
    fix_lost(&f, f.conn);
    assert_int_equal(lock(other, 5, true), 1);
    for (int i = 0; i < 59; i++) {
        fix_tick(&f, 1000);
        assert_int_equal(granted(other, NULL), 1);
        fix_sql(&f, "SELECT 1");
        fix_free(fix_call(&f, other, FP__MSG_TYPE__MSG_STATFS, &(Fp__Empty)FP__EMPTY__INIT, &fp__stat_fs_reply__descriptor));
    }
    fix_tick(&f, 2000);
    assert_int_equal(granted(other, NULL), 0);
    f.conn = fix_conn(&f);
    assert_int_equal(hello(f.conn, f.session, &held, 1), 1); /* it is told that it lost it */
}

static void test_lockmsg_bye(void **state)
{
    (void)state;
    lock(other, 5, false);
    assert_int_equal(lock(f.conn, 5, true), 1);
    fix_free(fix_call(&f, other, FP__MSG_TYPE__MSG_BYE, &(Fp__Empty)FP__EMPTY__INIT, NULL));
    assert_int_equal(granted(f.conn, NULL), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM lock"), 1);
    unlock(f.conn, 5);
}

static void test_lockmsg_transaction_that_failed(void **state)
{
    (void)state;
    lock(f.conn, 5, false);
    assert_int_equal(lock(other, 5, true), 1);
    f.doom = -EIO;
    assert_int_equal(unlock(f.conn, 5), -EIO);
    assert_int_equal(granted(other, NULL), 1);
    assert_int_equal(lock(other, 6, false), -EAGAIN); /* still held */
    f.doom = -EIO;
    assert_int_equal(lock(other, 7, true), -EIO); /* does not wait */
    assert_int_equal(unlock(f.conn, 5), 0);
    assert_int_equal(granted(other, NULL), 0);
    assert_int_equal(unlock(other, 5), 0);
    assert_int_equal(lock(f.conn, 5, false), 0);
    assert_int_equal(unlock(f.conn, 5), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
static Fp__CtlLocksReply *list(const char *of, uint32_t max)
{
    Fp__CtlLocks m = FP__CTL_LOCKS__INIT;

    m.path.data = (uint8_t *)of;
    m.path.len = strlen(of);
    m.max = max;
    return fix_call(&f, f.conn, FP__MSG_TYPE__MSG_CTL_LOCKS, &m, &fp__ctl_locks_reply__descriptor);
}

static void test_lockmsg_list_says_who_holds_and_who_waits(void **state)
{
    uint64_t file = ino, dir = fix_mk(&f, MGR_ROOT_INO, "d", S_IFDIR | 0755), held = 1;
    Fp__CtlLocksReply *r;

    (void)state;
    assert_int_equal(lock(f.conn, 1, false), 0);
    fix_tick(&f, 3000);
    assert_int_equal(lock(other, 2, true), 1);
    fix_tick(&f, 2000);
    r = list("", 0);
    assert_true(r && r->n_locks == 2 && !r->more);
    assert_true(r->locks[0]->path.len == 2 && memcmp(r->locks[0]->path.data, "/a", 2) == 0);
    assert_true(!r->locks[0]->waits && r->locks[0]->pid == 77 && r->locks[0]->exclusive && r->locks[0]->connected);
    assert_true(r->locks[0]->for_ms >= 5000 && r->locks[0]->for_ms < 6000 && !r->locks[0]->since_start);
    assert_true(r->locks[1]->waits && r->locks[1]->session == other_session && r->locks[1]->for_ms >= 2000 && r->locks[1]->for_ms < 3000);
    fix_free(r);
    r = list("a", 1);
    assert_true(r && r->n_locks == 1 && r->more);
    fix_free(r);
    r = list("d", 0);
    assert_true(r && r->n_locks == 0 && !r->more);
    fix_free(r);
    assert_null(list("none", 0));
    assert_int_equal(f.status, -ENOENT);
    ino = fix_mk(&f, dir, "b", S_IFREG | 0644);
    assert_int_equal(lock(other, 3, false), 0);
    r = list("d", 0);
    assert_true(r && r->n_locks == 1 && r->locks[0]->ino == ino && r->locks[0]->path.len == 4);
    fix_free(r);
    restart();
    ino = file;
    assert_int_equal(hello(f.conn, f.session, &held, 1), 0);
    r = list("", 0);
    assert_true(r && r->n_locks == 2 && r->locks[0]->since_start && r->locks[1]->since_start); /* who waits asks again */
    assert_int_equal(r->locks[0]->connected + r->locks[1]->connected, 1); /* the other is not back */
    fix_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_lockmsg_grant_comes_with_what_the_file_is_now),
        T(test_lockmsg_who_stands_in_the_way),
        T(test_lockmsg_nonsense_is_refused),
        T(test_lockmsg_kept_over_a_restart),
        T(test_lockmsg_what_hello_does_not_name_goes),
        T(test_lockmsg_wait_ends_with_its_connection),
        T(test_lockmsg_session_that_is_silent),
        T(test_lockmsg_bye),
        T(test_lockmsg_transaction_that_failed),
        T(test_lockmsg_list_says_who_holds_and_who_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
