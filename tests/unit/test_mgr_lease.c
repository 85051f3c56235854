/* Leases of files (manager/lease.c): who gets one, how it is recalled, and what sessions, connections and restarts do to it. */
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

#define ROOT MGR_ROOT_INO
#define REG  (S_IFREG | 0644)

static uint64_t renames;

/* 1: with the lease, 0: without; or why not. */
static int open_as(const struct peer *p, bool write, bool behind)
{
    Fp__Open m = FP__OPEN__INIT;
    Fp__AttrReply *r;
    int rc;

    m.ino = ino;
    m.write = write;
    m.behind = behind;
    r = fix_call(&f, p->conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor);
    rc = r ? r->behind : f.status;
    fix_free(r);
    return rc;
}

/* Both mean: ask again. */
static int refused(int status)
{
    return status == FP_EPUBLISHING ? FP_ERECALL : status;
}

static int open_(const struct peer *p, bool behind)
{
    return refused(open_as(p, behind, behind));
}

static int set(const struct peer *p, uint64_t seq, uint32_t valid, uint32_t mode)
{
    Fp__SetAttr m = FP__SET_ATTR__INIT;

    m.slot = 2;
    m.slot_seq = seq;
    m.ino = ino;
    m.valid = valid;
    m.mode = mode;
    m.mtime_ns = 1000;
    fix_free(fix_call(&f, p->conn, FP__MSG_TYPE__MSG_SETATTR, &m, &fp__attr_reply__descriptor));
    return refused(f.status);
}

static int cut(const struct peer *p, uint64_t seq)
{
    return set(p, seq, FP__SET_ATTR_VALID__SET_SIZE, 0);
}

/* Over ENDED_MS, and no keep-alive is missed. */
static void a_while(void)
{
    fix_tick(&f, 1500);
}

static void test_lease_for_who_is_the_only_one(void **state)
{
    (void)state;
    assert_int_equal(open_(&a, true), 1);
    assert_int_equal(open_(&a, false), 1); /* it has it already */
    release(&a);
    assert_int_equal(open_(&a, true), 1);
    release(&a);
    release(&a);
    assert_int_equal(open_(&a, false), 0); /* ended with the last release, and is not wanted now */
    release(&a);
    assert_int_equal(open_(&b, false), 0);
    assert_int_equal(told(&a), -1);
    assert_int_equal(open_(&a, true), 0); /* b has it open */
    release(&b);
    assert_int_equal(open_(&a, true), 1);
}

static void test_new_file_has_the_lease(void **state)
{
    Fp__MkNod m = FP__MK_NOD__INIT;
    Fp__AttrReply *r;

    (void)state;
    m.slot = 3;
    m.slot_seq = 1;
    m.parent = ROOT;
    m.name = fix_bin("new");
    m.mode = REG;
    m.open = m.behind = true;
    for (int i = 0; i < 2; i++) {
        r = fix_call(&f, a.conn, FP__MSG_TYPE__MSG_MKNOD, &m, &fp__attr_reply__descriptor);
        assert_non_null(r);
        assert_int_equal(r->behind, i == 0); /* the answer that is sent again gives none: it could have been recalled since */
        ino = r->attr->ino;
        fix_free(r);
    }
    /* without O_EXCL, the other one opens what is there */
    r = fix_call(&f, b.conn, FP__MSG_TYPE__MSG_MKNOD, &m, &fp__attr_reply__descriptor);
    assert_null(r);
    assert_int_equal(f.status, FP_ERECALL);
    assert_true(told(&a) > 0);
}

static void test_open_elsewhere_recalls(void **state)
{
    int64_t serial;

    (void)state;
    assert_int_equal(open_(&a, true), 1);
    assert_int_equal(open_(&b, false), FP_ERECALL);
    serial = told(&a);
    assert_true(serial > 0);
    assert_int_equal(open_(&b, false), FP_ERECALL);
    assert_int_equal(told(&a), -1); /* once */
    assert_int_equal(open_(&a, true), 0);
    release(&a);
    done(&a, serial + 1); /* of another recall */
    assert_int_equal(open_(&b, false), FP_ERECALL);
    done(&b, serial); /* of who has not got it */
    assert_int_equal(open_(&b, false), FP_ERECALL);
    done(&a, serial);
    assert_int_equal(told(&b), 0);
    assert_int_equal(open_(&a, true), 0); /* b comes first */
    assert_int_equal(open_(&b, false), 0);
    release(&b);
    a_while();
    assert_int_equal(open_(&a, true), 1);
    done(&a, serial); /* the answer to an old recall ends no new lease */
    assert_int_equal(open_(&b, false), FP_ERECALL);
}

static void forward(const struct peer *p, int64_t serial)
{
    Fp__Recall m = FP__RECALL__INIT;

    m.ino = ino;
    m.serial = (uint64_t)serial;
    fix_notice(&f, p->conn, FP__MSG_TYPE__MSG_RECALL, &m);
}

/* Who waits counts from when the holder has last said that it goes forward, or was lost: it is told then. */
static void test_who_waits_is_told_that_it_goes_forward(void **state)
{
    int64_t serial;

    (void)state;
    assert_int_equal(open_(&a, true), 1);
    assert_int_equal(open_as(&b, false, false), FP_ERECALL);
    serial = told(&a);
    forward(&a, serial + 1);
    forward(&b, serial);
    assert_int_equal(open_as(&b, false, false), FP_ERECALL);
    forward(&a, serial);
    assert_int_equal(open_as(&b, false, false), FP_EPUBLISHING);
    fix_tick(&f, 4000);
    assert_int_equal(open_as(&b, false, false), FP_ERECALL);
    forward(&a, serial);
    assert_int_equal(open_as(&b, false, false), FP_EPUBLISHING);
    fix_tick(&f, 4000);
    fix_lost(&f, a.conn);
    assert_int_equal(open_as(&b, false, false), FP_EPUBLISHING);
    fix_tick(&f, 4000);
    assert_int_equal(open_as(&b, false, false), FP_ERECALL);
}

static void test_cutting_elsewhere_recalls(void **state)
{
    int64_t serial;

    (void)state;
    assert_int_equal(open_(&a, true), 1);
    assert_int_equal(cut(&a, 1), 0);
    assert_int_equal(cut(&b, 1), FP_ERECALL);
    serial = told(&a);
    assert_true(serial > 0);
    done(&a, serial);
    assert_int_equal(cut(&b, 1), 0); /* a failure is not kept for the slot */
}

/* What was closed before brings a time, and clears set-id bits. */
static void test_times_and_bits_set_elsewhere_recall(void **state)
{
    uint64_t seq = 0;

    (void)state;
    assert_int_equal(open_(&a, true), 1);
    assert_int_equal(set(&a, 1, FP__SET_ATTR_VALID__SET_MTIME, 0), 0);
    assert_int_equal(set(&b, ++seq, FP__SET_ATTR_VALID__SET_MODE, 0600), 0);
    assert_int_equal(set(&b, ++seq, FP__SET_ATTR_VALID__SET_ATIME | FP__SET_ATTR_VALID__SET_UID, 0), 0);
    assert_int_equal(told(&a), -1);
    assert_int_equal(set(&b, ++seq, FP__SET_ATTR_VALID__SET_MTIME, 0), FP_ERECALL);
    assert_true(told(&a) > 0);
    assert_int_equal(set(&b, ++seq, FP__SET_ATTR_VALID__SET_MTIME_NOW, 0), FP_ERECALL);
    assert_int_equal(set(&b, ++seq, FP__SET_ATTR_VALID__SET_MODE, 04700), FP_ERECALL);
    assert_int_equal(set(&b, ++seq, FP__SET_ATTR_VALID__SET_MODE, 02700), FP_ERECALL);
    release(&a);
    assert_int_equal(set(&b, ++seq, FP__SET_ATTR_VALID__SET_MTIME, 0), 0);
    assert_int_equal(set(&b, ++seq, FP__SET_ATTR_VALID__SET_MODE, 04700), 0);
}

static int set_xattr(const struct peer *p, uint64_t seq, const char *name)
{
    Fp__SetXattr m = FP__SET_XATTR__INIT;

    m.slot = 2;
    m.slot_seq = seq;
    m.ino = ino;
    m.name = m.value = fix_bin(name);
    fix_free(fix_call(&f, p->conn, FP__MSG_TYPE__MSG_SETXATTR, &m, NULL));
    return refused(f.status);
}

/* As set-id bits: what was closed before would take them away. */
static void test_capabilities_set_elsewhere_recall(void **state)
{
    (void)state;
    assert_int_equal(open_(&a, true), 1);
    assert_int_equal(set_xattr(&a, 1, "security.capability"), 0);
    assert_int_equal(set_xattr(&b, 1, "security.selinux"), 0);
    assert_int_equal(set_xattr(&b, 2, "user.x"), 0);
    assert_int_equal(told(&a), -1);
    assert_int_equal(set_xattr(&b, 3, "security.capability"), FP_ERECALL);
    assert_true(told(&a) > 0);
    release(&a);
    assert_int_equal(set_xattr(&b, 3, "security.capability"), 0);
}

static int rename_(const struct peer *p, const char *from, const char *to, uint32_t flags)
{
    Fp__Rename m = FP__RENAME__INIT;

    m.slot = 4;
    m.slot_seq = ++renames;
    m.parent = m.new_parent = ROOT;
    m.name = fix_bin(from);
    m.new_name = fix_bin(to);
    m.flags = flags;
    fix_free(fix_call(&f, p->conn, FP__MSG_TYPE__MSG_RENAME, &m, NULL));
    return f.status;
}

static int link_(const struct peer *p, const char *name)
{
    Fp__Link m = FP__LINK__INIT;

    m.slot = 4;
    m.slot_seq = ++renames;
    m.ino = ino;
    m.parent = ROOT;
    m.name = fix_bin(name);
    fix_free(fix_call(&f, p->conn, FP__MSG_TYPE__MSG_LINK, &m, &fp__attr_reply__descriptor));
    return f.status;
}

/* A name that another mount gives to the file: what was closed comes first. The holder sees to that itself. */
static void test_other_names_given_elsewhere_recall(void **state)
{
    int64_t serial;

    (void)state;
    (void)fix_mk(&f, ROOT, "other", REG);
    assert_int_equal(open_(&a, true), 1);
    assert_int_equal(rename_(&a, "f", "g", 0), 0);
    assert_int_equal(rename_(&b, "g", "h", 0), FP_ERECALL);
    serial = told(&a);
    assert_true(serial > 0);
    assert_int_equal(rename_(&b, "other", "g", 2 /* RENAME_EXCHANGE */), FP_ERECALL);
    assert_int_equal(link_(&b, "l"), FP_ERECALL);
    done(&a, serial);
    assert_int_equal(rename_(&b, "g", "h", 0), 0);
    assert_int_equal(link_(&b, "l"), 0);
    restart();
    hello(&b, false, NULL, 0, NULL, 0);
    assert_int_equal(open_(&b, false), FP_ERECALL); /* a is not back */
    assert_int_equal(rename_(&b, "h", "i", 0), 0);
}

/* Of a directory: of all that is in it, at any depth, and of nothing else. */
static void test_another_name_of_a_directory_recalls_what_is_below(void **state)
{
    uint64_t d, sub, file[3];

    (void)state;
    d = fix_mk(&f, ROOT, "d", S_IFDIR | 0755);
    sub = fix_mk(&f, d, "sub", S_IFDIR | 0755);
    file[0] = fix_mk(&f, ROOT, "beside", REG);
    file[1] = fix_mk(&f, d, "in", REG);
    file[2] = fix_mk(&f, sub, "below", REG);
    for (int i = 0; i < 3; i++) {
        ino = file[i];
        assert_int_equal(open_(&a, true), 1);
    }
    assert_int_equal(rename_(&a, "d", "e", 0), 0); /* its own it sees to itself */
    for (int i = 1; i < 3; i++) {
        assert_int_equal(refused(rename_(&b, "e", "g", 0)), FP_ERECALL);
        ino = file[i];
        release(&a);
    }
    assert_int_equal(rename_(&b, "e", "g", 0), 0);
    ino = file[0];
    assert_int_equal(open_(&b, false), FP_ERECALL); /* a has kept that one */
}

static void test_release_is_as_good_as_an_answer(void **state)
{
    (void)state;
    assert_int_equal(open_(&a, true), 1);
    assert_int_equal(open_(&b, false), FP_ERECALL);
    release(&a);
    assert_int_equal(told(&b), 0);
    assert_int_equal(open_(&b, false), 0);
}

static void test_session_that_ends_frees_its_leases(void **state)
{
    (void)state;
    assert_int_equal(open_(&a, true), 1);
    assert_int_equal(open_(&b, false), FP_ERECALL);
    fix_call(&f, a.conn, FP__MSG_TYPE__MSG_BYE, NULL, NULL);
    assert_int_equal(told(&b), 0);
    assert_int_equal(open_(&b, false), 0);
}

static void test_silent_holder_is_waited_for_until_its_session_has_expired(void **state)
{
    (void)state;
    assert_int_equal(open_(&a, true), 1);
    for (int s = 0; s < 50; s++) {
        assert_int_equal(open_(&b, false), FP_ERECALL);
        fix_tick(&f, 1000);
    }
    for (int s = 0; s < 20; s++) {
        (void)fix_call(&f, b.conn, FP__MSG_TYPE__MSG_STATFS, NULL, NULL);
        fix_tick(&f, 1000);
    }
    assert_int_equal(open_(&b, false), 0);
}

/* It is cut off, and others open the file when its session has expired: back again, it is told to publish. */
static void test_holder_that_was_away_for_too_long(void **state)
{
    (void)state;
    assert_int_equal(open_(&a, true), 1);
    fix_lost(&f, a.conn);
    for (int s = 0; s < 65; s++) {
        (void)fix_call(&f, b.conn, FP__MSG_TYPE__MSG_STATFS, NULL, NULL);
        fix_tick(&f, 1000);
    }
    assert_int_equal(open_(&b, false), 0);
    hello(&a, true, &ino, 1, &ino, 1);
    assert_int_equal(told(&a), -2);
    release(&b);
    fix_tick(&f, 3000); /* settled */
    assert_int_equal(open_(&a, true), 1);
}

static uint64_t version(void)
{
    Fp__InodeReq m = FP__INODE_REQ__INIT;
    Fp__AttrReply *r;
    uint64_t v;

    m.ino = ino;
    r = fix_call(&f, b.conn, FP__MSG_TYPE__MSG_GETATTR, &m, &fp__attr_reply__descriptor);
    assert_non_null(r);
    v = r->attr->data_version;
    fix_free(r);
    return v;
}

static int commit(const struct peer *p, uint64_t based_on, uint64_t lease_time)
{
    Fp__Commit m = FP__COMMIT__INIT;

    m.slot = 5;
    m.slot_seq = ++renames;
    m.ino = ino;
    m.size_bytes = 1000 + renames;
    m.based_on = based_on;
    m.lease_time = lease_time;
    fix_free(fix_call(&f, p->conn, FP__MSG_TYPE__MSG_COMMIT, &m, &fp__commit_reply__descriptor));
    return f.status;
}

static void expire(struct peer *p)
{
    fix_lost(&f, p->conn);
    for (int s = 0; s < 65; s++) {
        (void)fix_call(&f, b.conn, FP__MSG_TYPE__MSG_STATFS, NULL, NULL);
        fix_tick(&f, 1000);
    }
}

/* What it had closed is taken if nobody has opened the file for writing, or changed it, since its lease was lost; also by a manager that was started again. */
static void test_what_was_closed_under_a_lost_lease(void **state)
{
    (void)state;
    for (int writes = 0; writes < 3; writes++) {
        uint64_t was, before;

        assert_int_equal(open_(&a, true), 1);
        was = a.lease_time;
        assert_int_equal(commit(&a, version() + 5, was), 0); /* while it has the lease nobody asks */
        before = version();
        expire(&a);
        assert_int_equal(open_as(&b, writes == 1, false), 0);
        if (writes == 2)
            assert_int_equal(commit(&b, 0, 0), 0);
        release(&b);
        if (writes) {
            restart();
            hello(&b, false, NULL, 0, NULL, 0);
        }
        hello(&a, true, &ino, 1, &ino, 1);
        assert_true(a.lease_time != was);
        assert_int_equal(told(&a), -2); /* and has got none back */
        assert_int_equal(open_(&b, false), 0);
        release(&b);
        assert_int_equal(commit(&a, before, 0), writes ? FP_EOVERTAKEN : 0);
        assert_int_equal(commit(&a, before, was), FP_EOVERTAKEN); /* it was under way; of the first round it is another version now */
        assert_int_equal(commit(&a, version(), was), 0);
        release(&a);
        fix_tick(&f, 5000); /* settled */
    }
}

static void append_right(const struct peer *p, Fp__LockOp op)
{
    Fp__Lock m = FP__LOCK__INIT;

    m.ino = ino;
    m.kind = FP__LOCK_KIND__LOCK_APPEND;
    m.op = op;
    m.exclusive = true;
    m.ticket = ++renames;
    m.end = INT64_MAX;
    fix_free(fix_call(&f, p->conn, FP__MSG_TYPE__MSG_LOCK, &m, &fp__lock_reply__descriptor));
    assert_int_equal(f.status, 0);
}

/* Who has the right to append now knows where the end is: nothing may come there, though the file is what it was. */
static void test_what_was_appended_under_a_lost_right(void **state)
{
    uint64_t was = a.lease_time, before;

    (void)state;
    assert_int_equal(open_(&a, false), 0);
    append_right(&a, FP__LOCK_OP__LOCK_SET);
    assert_int_equal(commit(&a, version(), was), 0);
    before = version();
    expire(&a);
    assert_int_equal(open_(&b, false), 0);
    append_right(&b, FP__LOCK_OP__LOCK_SET);
    hello(&a, false, &ino, 1, NULL, 0);
    assert_true(a.lease_time != was);
    assert_int_equal(version(), before);
    assert_int_equal(commit(&a, before, 0), FP_EOVERTAKEN);
    assert_int_equal(commit(&a, before, was), FP_EOVERTAKEN); /* it was under way */
    append_right(&b, FP__LOCK_OP__LOCK_UNSET);
    assert_int_equal(commit(&a, before, was), 0);
    append_right(&a, FP__LOCK_OP__LOCK_SET);
    assert_int_equal(commit(&a, before, a.lease_time), 0); /* nobody asks while it lasts */
    assert_int_equal(commit(&a, before, 0), FP_EOVERTAKEN);
}

static void open_to_write(const struct peer *p, uint64_t based_on)
{
    Fp__Open m = FP__OPEN__INIT;

    m.ino = ino;
    m.write = m.behind = true;
    m.based_on = based_on;
    fix_free(fix_call(&f, p->conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    assert_int_equal(f.status, 0);
}

/* Two were cut off, and one is back: that it opens its own file again, of which no other can have anything, is no reason to refuse what it had closed. */
static void test_opening_ones_own_file_does_not_overtake_it(void **state)
{
    struct peer away = {0};
    uint64_t before;

    (void)state;
    hello(&away, true, NULL, 0, NULL, 0);
    assert_int_equal(open_(&a, true), 1);
    assert_int_equal(commit(&a, 0, 0), 0);
    before = version();
    fix_lost(&f, away.conn);
    expire(&a);
    hello(&a, true, &ino, 1, &ino, 1);
    open_to_write(&a, before);
    assert_int_equal(version(), before);
    assert_int_equal(commit(&a, before, 0), 0);
    open_to_write(&a, before); /* of a version that is over: another one may be based on this one */
    assert_true(version() > before + 1);
    before = version();
    open_to_write(&a, 0);
    assert_true(version() > before);
}

/* The answer to its hello may not have come: it says the same again, and is answered the same. */
static void test_lease_that_was_lost_stays_lost_until_it_has_heard_of_it(void **state)
{
    struct peer deaf = a;

    (void)state;
    assert_int_equal(open_(&a, true), 1);
    expire(&a);
    deaf = a;
    hello(&a, true, &ino, 1, &ino, 1);
    assert_int_equal(told(&a), -2);
    a = deaf;
    hello(&a, true, &ino, 1, &ino, 1);
    assert_int_equal(told(&a), -2);
    hello(&a, true, &ino, 1, &ino, 1);
    assert_int_equal(told(&a), -1);
}

static void test_holder_comes_back_and_is_recalled_anew(void **state)
{
    int64_t first, second;

    (void)state;
    assert_int_equal(open_(&a, true), 1);
    fix_lost(&f, a.conn);
    assert_int_equal(open_(&b, false), FP_ERECALL); /* nobody can be told */
    hello(&a, true, &ino, 1, &ino, 1);
    assert_int_equal(open_(&b, false), FP_ERECALL);
    first = told(&a);
    assert_true(first > 0);
    fix_lost(&f, a.conn); /* before it heard of that */
    hello(&a, true, &ino, 1, &ino, 1);
    assert_int_equal(open_(&b, false), FP_ERECALL);
    second = told(&a);
    assert_true(second > first);
    done(&a, first);
    assert_int_equal(open_(&b, false), FP_ERECALL);
    done(&a, second);
    assert_int_equal(open_(&b, false), 0);
}

static void test_what_it_does_not_say_in_its_hello_is_gone(void **state)
{
    (void)state;
    assert_int_equal(open_(&a, true), 1);
    fix_lost(&f, a.conn);
    hello(&a, true, &ino, 1, NULL, 0);
    assert_int_equal(open_(&b, false), 0);
}

static void test_restart_waits_for_those_that_may_have_leases(void **state)
{
    (void)state;
    assert_int_equal(open_(&a, true), 1);
    release(&b);
    restart();
    hello(&b, false, NULL, 0, NULL, 0);
    assert_int_equal(open_(&b, false), FP_ERECALL); /* a may have it */
    assert_int_equal(cut(&b, 1), FP_ERECALL);
    hello(&a, true, &ino, 1, &ino, 1);
    assert_int_equal(open_(&a, true), 1);
    assert_int_equal(open_(&b, false), FP_ERECALL);
    assert_true(told(&a) > 0);
    release(&a);
    release(&a);
    assert_int_equal(open_(&b, false), 0);
}

static void test_restart_waits_for_the_dead_until_they_expire(void **state)
{
    (void)state;
    assert_int_equal(open_(&a, true), 1);
    restart();
    hello(&b, false, NULL, 0, NULL, 0);
    assert_int_equal(open_(&b, false), FP_ERECALL);
    for (int s = 0; s < 65; s++) {
        (void)fix_call(&f, b.conn, FP__MSG_TYPE__MSG_STATFS, NULL, NULL);
        fix_tick(&f, 1000);
    }
    assert_int_equal(open_(&b, false), 0);
}

static void test_restart_without_leases_waits_for_nobody(void **state)
{
    (void)state;
    fix_call(&f, a.conn, FP__MSG_TYPE__MSG_BYE, NULL, NULL); /* … and a, which asks for leases, has gone */
    restart();
    hello(&b, false, NULL, 0, NULL, 0);
    assert_int_equal(open_(&b, false), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM meta WHERE key LIKE 'behind:%%'"), 0);
}

static void test_nobody_gets_one_before_all_is_known(void **state)
{
    (void)state;
    restart(); /* b, which is not back, may have the file open */
    hello(&a, true, NULL, 0, NULL, 0);
    assert_int_equal(open_(&a, true), 0);
}

/* The open is taken back, and so is what came with it. */
static void test_group_that_fails_gives_no_lease(void **state)
{
    (void)state;
    f.doom = -ENOSPC;
    assert_int_equal(open_(&a, true), -ENOSPC);
    assert_int_equal(open_(&b, false), 0);
}

static void test_many_leases(void **state)
{
    enum { N = 3000 };
    static uint64_t all[N];

    (void)state;
    for (size_t i = 0; i < N; i++) {
        char name[16];

        snprintf(name, sizeof name, "n%zu", i);
        all[i] = ino = fix_mk(&f, ROOT, name, REG);
        assert_int_equal(open_(&a, true), 1);
    }
    for (size_t i = 0; i < N; i += 7) {
        ino = all[i];
        assert_int_equal(open_(&b, false), FP_ERECALL);
        done(&a, told(&a));
        assert_int_equal(open_(&b, false), 0);
    }
    a_while();
    ino = all[1];
    assert_int_equal(open_(&b, false), FP_ERECALL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_lease_for_who_is_the_only_one),
        T(test_new_file_has_the_lease),
        T(test_open_elsewhere_recalls),
        T(test_who_waits_is_told_that_it_goes_forward),
        T(test_cutting_elsewhere_recalls),
        T(test_times_and_bits_set_elsewhere_recall),
        T(test_capabilities_set_elsewhere_recall),
        T(test_other_names_given_elsewhere_recall),
        T(test_another_name_of_a_directory_recalls_what_is_below),
        T(test_what_was_closed_under_a_lost_lease),
        T(test_what_was_appended_under_a_lost_right),
        T(test_opening_ones_own_file_does_not_overtake_it),
        T(test_lease_that_was_lost_stays_lost_until_it_has_heard_of_it),
        T(test_release_is_as_good_as_an_answer),
        T(test_session_that_ends_frees_its_leases),
        T(test_silent_holder_is_waited_for_until_its_session_has_expired),
        T(test_holder_that_was_away_for_too_long),
        T(test_holder_comes_back_and_is_recalled_anew),
        T(test_what_it_does_not_say_in_its_hello_is_gone),
        T(test_restart_waits_for_those_that_may_have_leases),
        T(test_restart_waits_for_the_dead_until_they_expire),
        T(test_restart_without_leases_waits_for_nobody),
        T(test_nobody_gets_one_before_all_is_known),
        T(test_group_that_fails_gives_no_lease),
        T(test_many_leases),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
