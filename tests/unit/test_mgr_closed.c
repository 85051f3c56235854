/* What others are told of the size and time of a file that its holder has closed and not published (MSG_CLOSED, manager/lease.c). */
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
#include "mgr_peers.h"

#define ROOT   MGR_ROOT_INO
#define REG    (S_IFREG | 0644)
#define FAR_NS (INT64_C(1) << 62) /* a time that the clock does not come to */

static uint64_t slots, closes;

static void opens(const struct peer *p, int status)
{
    Fp__Open m = FP__OPEN__INIT;

    m.ino = ino;
    m.write = m.behind = p == &a;
    fix_free(fix_call(&f, p->conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    assert_int_equal(f.status, status);
}

static void set(uint32_t valid)
{
    Fp__SetAttr m = FP__SET_ATTR__INIT;

    m.slot = 2;
    m.slot_seq = ++slots;
    m.ino = ino;
    m.valid = valid;
    m.mtime_ns = 1000;
    fix_free(fix_call(&f, a.conn, FP__MSG_TYPE__MSG_SETATTR, &m, &fp__attr_reply__descriptor));
    assert_int_equal(f.status, 0);
}

static void commit(uint64_t size)
{
    Fp__Commit m = FP__COMMIT__INIT;

    m.slot = 2;
    m.slot_seq = ++slots;
    m.ino = ino;
    m.size_bytes = size;
    fix_free(fix_call(&f, a.conn, FP__MSG_TYPE__MSG_COMMIT, &m, &fp__commit_reply__descriptor));
    assert_int_equal(f.status, 0);
}

/* Its session is silent for too long. */
static void expire(void)
{
    for (int s = 0; s < 65; s++) {
        (void)fix_call(&f, b.conn, FP__MSG_TYPE__MSG_STATFS, NULL, NULL);
        fix_tick(&f, 1000);
    }
}

static void closed(const struct peer *p, uint64_t size, int64_t mtime_ns)
{
    Fp__Closed m = FP__CLOSED__INIT;

    m.ino = ino;
    m.size_bytes = size;
    m.mtime_ns = mtime_ns;
    m.number = ++closes;
    fix_notice(&f, p->conn, FP__MSG_TYPE__MSG_CLOSED, &m);
}

static void check_told(const Fp__Attr *attr, uint64_t size, int64_t mtime_ns)
{
    assert_int_equal(attr->size_bytes, size);
    if (mtime_ns)
        assert_int_equal(attr->mtime_ns, mtime_ns);
    else
        assert_true(attr->mtime_ns < FAR_NS);
    assert_true(attr->ctime_ns >= attr->mtime_ns || !mtime_ns);
}

/* By each call that tells attributes. mtime_ns 0: not one of those that were told. */
static void sees(const struct peer *p, uint64_t size, int64_t mtime_ns)
{
    Fp__InodeReq get = FP__INODE_REQ__INIT;
    Fp__Lookup look = FP__LOOKUP__INIT;
    Fp__ReadDir list = FP__READ_DIR__INIT;
    Fp__ReadDirReply *all;
    Fp__AttrReply *r;

    get.ino = ino;
    r = fix_call(&f, p->conn, FP__MSG_TYPE__MSG_GETATTR, &get, &fp__attr_reply__descriptor);
    check_told(r->attr, size, mtime_ns);
    fix_free(r);
    look.parent = ROOT;
    look.name = fix_bin("f");
    r = fix_call(&f, p->conn, FP__MSG_TYPE__MSG_LOOKUP, &look, &fp__attr_reply__descriptor);
    check_told(r->attr, size, mtime_ns);
    fix_free(r);
    list.ino = ROOT;
    list.plus = true;
    all = fix_call(&f, p->conn, FP__MSG_TYPE__MSG_READDIR, &list, &fp__read_dir_reply__descriptor);
    for (size_t i = 0; i < all->n_entries; i++)
        if (all->entries[i]->ino == ino)
            check_told(all->entries[i]->attr, size, mtime_ns);
    fix_free(all);
    if (a.conn)
        assert_int_equal(told(&a), -1); /* nothing is recalled for that */
}

/* Others see the size and the time of what its holder has closed, until that is published, or will never be. */
static void test_what_was_closed_is_told_to_who_asks(void **state)
{
    (void)state;
    closed(&a, 5000, FAR_NS); /* it has no lease */
    sees(&b, 0, 0);
    opens(&a, 0);
    sees(&b, 0, 0);
    closed(&b, 5000, FAR_NS);
    sees(&b, 0, 0);
    closed(&a, 5000, FAR_NS);
    sees(&b, 5000, FAR_NS);
    sees(&a, 0, 0); /* it knows that better */
    commit(3000);
    sees(&b, 5000, FAR_NS);
    closed(&a, 6000, FAR_NS + 1);
    sees(&b, 6000, FAR_NS + 1);
    set(FP__SET_ATTR_VALID__SET_MTIME); /* what is told is older */
    sees(&b, 6000, 1000);
    set(FP__SET_ATTR_VALID__SET_SIZE);
    sees(&b, 0, 0);
    closed(&a, 7000, FAR_NS + 2);
    sees(&b, 7000, FAR_NS + 2);
    closed(&a, 0, 0); /* it could not be published */
    sees(&b, 0, 0);
    closed(&a, UINT64_MAX, 0);
    sees(&b, 0, 0);
    closed(&a, 8000, FAR_NS + 3);
    fix_lost(&f, a.conn);
    a.conn = NULL;
    sees(&b, 8000, FAR_NS + 3); /* it may be back */
    expire();
    sees(&b, 0, 0);
    hello(&a, true, &ino, 1, &ino, 1);
    sees(&b, 0, 0);
}

/* A new lease begins with nothing; and who has the file open has looked itself. */
static void test_what_was_closed_ends_with_the_lease(void **state)
{
    (void)state;
    opens(&a, 0);
    closed(&a, 5000, FAR_NS);
    opens(&b, FP_ERECALL);
    done(&a, told(&a));
    sees(&b, 0, 0);
    release(&a);
    fix_tick(&f, 1500); /* others come first */
    opens(&a, 0);
    sees(&b, 0, 0);
    closed(&a, 5000, FAR_NS);
    restart();
    hello(&b, false, NULL, 0, NULL, 0);
    hello(&a, true, &ino, 1, &ino, 1);
    sees(&b, 0, 0);
    closed(&a, 5000, FAR_NS); /* … and is told again */
    sees(&b, 5000, FAR_NS);
}

/* As MSG_CTL_LOCKS says it, of the lease; -1: nobody has one. */
static int is_behind(void)
{
    Fp__CtlLocks m = FP__CTL_LOCKS__INIT;
    Fp__CtlLocksReply *r = fix_call(&f, b.conn, FP__MSG_TYPE__MSG_CTL_LOCKS, &m, &fp__ctl_locks_reply__descriptor);
    int is = -1;

    assert_non_null(r);
    for (size_t i = 0; i < r->n_locks; i++)
        if (r->locks[i]->kind == FP__CTL_LOCK_KIND__CTL_LOCK_LEASE && r->locks[i]->ino == ino)
            is = r->locks[i]->behind;
    fix_free(r);
    return is;
}

/* Whatever becomes of times and sizes: the release comes when all is published. */
static void test_what_was_closed_is_behind_until_it_is_released(void **state)
{
    (void)state;
    assert_int_equal(is_behind(), -1);
    opens(&a, 0);
    assert_int_equal(is_behind(), 0);
    closed(&b, 5000, FAR_NS); /* it has no lease */
    assert_int_equal(is_behind(), 0);
    closed(&a, 0, 1000);
    assert_int_equal(is_behind(), 1);
    set(FP__SET_ATTR_VALID__SET_MTIME);
    commit(3000); /* the first of several, perhaps */
    assert_int_equal(is_behind(), 1);
    closed(&a, 0, 0); /* nothing is left, and some program has it open */
    assert_int_equal(is_behind(), 0);
    closed(&a, 0, 1000);
    release(&a);
    assert_int_equal(is_behind(), -1);
    opens(&a, 0);
    assert_int_equal(is_behind(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_was_closed_is_told_to_who_asks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_was_closed_ends_with_the_lease, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_was_closed_is_behind_until_it_is_released, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
