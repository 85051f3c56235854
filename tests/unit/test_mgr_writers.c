/* Who has files open for writing (c->writers): what completeness of checkpoint sets and the end of versions hang on. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "mgr_one.h"


static int setup(void **state)
{
    (void)state;
    fix_open(&f, fix_path(), false);
    return 0;
}

/* Open, as a create of a program is. */
static uint64_t create(const char *name)
{
    Fp__MkNod m = FP__MK_NOD__INIT;
    Fp__AttrReply *r;
    uint64_t ino;

    m.slot = 1;
    m.slot_seq = ++f.seq;
    m.parent = MGR_ROOT_INO;
    m.name = fix_bin(name);
    m.mode = S_IFREG | 0644;
    m.excl = m.open = true;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_MKNOD, &m, &fp__attr_reply__descriptor);
    assert_non_null(r);
    ino = r->attr->ino;
    fix_free(r);
    return ino;
}

static void release(uint64_t ino, bool write)
{
    Fp__Release m = FP__RELEASE__INIT;

    m.n_write_ino = write;
    m.write_ino = &ino;
    m.n_ino = !write;
    m.ino = &ino;
    fix_notice(&f, f.conn, FP__MSG_TYPE__MSG_RELEASE, &m);
}

static uint32_t writers(uint64_t ino)
{
    return mgr_map_get(&f.core->writers, ino);
}

static void open_file(uint64_t ino, bool write)
{
    Fp__Open m = FP__OPEN__INIT;

    m.ino = ino;
    m.write = write;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    assert_int_equal(f.status, 0);
}

static void test_opens_for_writing_are_counted(void **state)
{
    uint64_t a = create("a");

    (void)state;
    assert_int_equal(writers(a), 1); /* whatever it was opened for */
    open_file(a, false);
    assert_int_equal(writers(a), 1);
    open_file(a, true);
    assert_int_equal(writers(a), 2);
    release(a, false);
    assert_int_equal(writers(a), 2);
    release(a, true);
    release(a, true);
    assert_int_equal(writers(a), 0);
    assert_int_equal(mgr_map_get(&f.core->holders, a), 0);
}

/* A client can't make it say that a file is being written that nobody has open. */
static void test_never_more_writers_than_opens(void **state)
{
    uint64_t a = create("a");

    (void)state;
    release(a, false);
    assert_int_equal(writers(a), 0);
    release(a, true);
    assert_int_equal(writers(a), 0);
    open_file(a, false);
    release(a, true);
    assert_int_equal(writers(a), 0);
    assert_int_equal(mgr_map_get(&f.core->holders, a), 0);
}

static void test_hello_tells_who_writes(void **state)
{
    uint64_t a = create("a"), b = create("b"), session = f.session, open_ino[3] = {a, a, b}, write_ino[3] = {a, b, b};
    Fp__Hello h = FP__HELLO__INIT;

    (void)state;
    fix_close(&f);
    fix_open(&f, fix_path(), true);
    assert_int_equal(writers(a), 0);
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.session = session;
    h.open_known = true;
    h.open_ino = open_ino;
    h.n_open_ino = 3;
    h.open_write_ino = write_ino;
    h.n_open_write_ino = 3;
    f.conn = fix_conn(&f);
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
    assert_int_equal(f.status, 0);
    assert_int_equal(writers(a), 1);
    assert_int_equal(writers(b), 1); /* it is open once */
    assert_int_equal(mgr_map_get(&f.core->holders, a), 2);
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_BYE, NULL, NULL);
    assert_int_equal(writers(a), 0);
    assert_int_equal(writers(b), 0);
}

static void test_an_open_for_writing_in_a_group_that_fails_does_not_count(void **state)
{
    uint64_t a = create("a");
    Fp__Open m = FP__OPEN__INIT;

    (void)state;
    m.ino = a;
    m.write = true;
    f.doom = -ENOSPC;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    assert_int_equal(f.status, -ENOSPC);
    assert_int_equal(writers(a), 1);
    assert_int_equal(mgr_map_get(&f.core->holders, a), 1);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_opens_for_writing_are_counted),
        T(test_never_more_writers_than_opens),
        T(test_hello_tells_who_writes),
        T(test_an_open_for_writing_in_a_group_that_fails_does_not_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
