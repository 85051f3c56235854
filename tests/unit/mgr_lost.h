/*
 * What was closed behind and is lost, for tests of it (test_mgr_lostclose.c, test_mgr_lostset.c): two mounts and one file. For programs of one file: what they share is here as it would
 * be in them.
 */
#ifndef TESTS_MGR_LOST_H
#define TESTS_MGR_LOST_H

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
#include "life.pb-c.h"
#include "manager/sets.h"
#include "mgr_peers.h"

#define ROOT MGR_ROOT_INO
#define REG  (S_IFREG | 0644)

static uint64_t slots, closes;

/* ---------------------------------------------------------------- what mounts do */

static inline void open_(const struct peer *p, bool write, bool behind)
{
    Fp__Open m = FP__OPEN__INIT;

    m.ino = ino;
    m.write = write;
    m.behind = behind;
    fix_free(fix_call(&f, p->conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    assert_int_equal(f.status, 0);
}

static inline void write_behind(const struct peer *p)
{
    open_(p, true, true);
}

static inline void release_writer(const struct peer *p)
{
    Fp__Release m = FP__RELEASE__INIT;

    m.n_write_ino = 1;
    m.write_ino = &ino;
    fix_notice(&f, p->conn, FP__MSG_TYPE__MSG_RELEASE, &m);
}

static inline void closed_of(const struct peer *p, uint64_t size, bool lost)
{
    Fp__Closed m = FP__CLOSED__INIT;

    m.ino = ino;
    m.size_bytes = size;
    m.mtime_ns = size ? 1000 : 0;
    m.number = size ? ++closes : 0;
    m.lost = lost;
    fix_notice(&f, p->conn, FP__MSG_TYPE__MSG_CLOSED, &m);
}

static inline void closed(const struct peer *p)
{
    closed_of(p, 5000, false);
}

static inline void says_lost(const struct peer *p)
{
    closed_of(p, 0, true);
}

struct put {
    uint64_t off, size, based_on, lease_time, upto, seq;
    bool closes;
};

/* [off, size) of the file is written, with zeros. */
static inline void commit(const struct peer *p, struct put how)
{
    Fp__Commit m = FP__COMMIT__INIT;
    Fp__Slice s = FP__SLICE__INIT, *slices = &s;

    s.off = (uint32_t)how.off;
    s.len = (uint32_t)(how.size - how.off);
    m.slices = &slices;
    m.n_slices = s.len > 0;

    m.slot = 2;
    m.slot_seq = how.seq ? how.seq : ++slots;
    m.ino = ino;
    m.size_bytes = how.size;
    m.mtime_ns = 1000;
    m.based_on = how.based_on;
    m.lease_time = how.lease_time;
    m.closes = how.closes;
    m.closed_upto = how.upto;
    fix_free(fix_call(&f, p->conn, FP__MSG_TYPE__MSG_COMMIT, &m, &fp__commit_reply__descriptor));
    assert_int_equal(f.status, 0);
}

static inline void cut(const struct peer *p, uint64_t size)
{
    Fp__SetAttr m = FP__SET_ATTR__INIT;

    m.slot = 2;
    m.slot_seq = ++slots;
    m.ino = ino;
    m.valid = FP__SET_ATTR_VALID__SET_SIZE;
    m.size_bytes = size;
    fix_free(fix_call(&f, p->conn, FP__MSG_TYPE__MSG_SETATTR, &m, &fp__attr_reply__descriptor));
    assert_int_equal(f.status, 0);
}

static inline uint64_t version(void)
{
    return (uint64_t)fix_sql(&f, "SELECT data_version FROM inode WHERE ino=%llu", (unsigned long long)ino);
}

static inline void seconds(int n)
{
    for (int s = 0; s < n; s++) {
        if (a.conn)
            (void)fix_call(&f, a.conn, FP__MSG_TYPE__MSG_STATFS, NULL, NULL);
        (void)fix_call(&f, b.conn, FP__MSG_TYPE__MSG_STATFS, NULL, NULL);
        if (f.conn) /* none after a restart */
            (void)fix_call(&f, f.conn, FP__MSG_TYPE__MSG_STATFS, NULL, NULL);
        fix_tick(&f, 1000);
    }
}

static inline void a_is_gone(void)
{
    fix_lost(&f, a.conn);
    a.conn = NULL;
    seconds(65);
}

/* a has closed the file behind, and is gone before that was published. */
static inline void lose(void)
{
    write_behind(&a);
    closed(&a);
    a_is_gone();
}

static inline void a_is_back(void)
{
    hello_writes = true;
    hello(&a, true, &ino, 1, &ino, 1);
    hello_writes = false;
}

/* ---------------------------------------------------------------- what is said of it */

static inline Fp__Level level(void)
{
    Fp__LevelAsk m = FP__LEVEL_ASK__INIT;
    Fp__LevelReply *r;
    Fp__Level l;

    m.ino = ino;
    r = fix_call(&f, b.conn, FP__MSG_TYPE__MSG_LEVEL, &m, &fp__level_reply__descriptor);
    assert_non_null(r);
    l = r->level;
    if (l == FP__LEVEL__LEVEL_NONE)
        assert_non_null(strstr(r->why, "write it again"));
    fix_free(r);
    return l;
}

/* As fpctl status shows it, and the level says the same. */
static inline bool is_lost(void)
{
    Fp__CtlStatusReply *r = fix_call(&f, b.conn, FP__MSG_TYPE__MSG_CTL_STATUS, NULL, &fp__ctl_status_reply__descriptor);
    bool is;

    assert_non_null(r);
    is = r->n_lost == 1;
    assert_true(r->n_lost <= 1 && r->lost_files == r->n_lost);
    assert_true(!is || (r->lost[0].len >= 2 && r->lost[0].data[0] == '/'));
    fix_free(r);
    assert_true(is == (level() == FP__LEVEL__LEVEL_NONE));
    return is;
}

static inline int64_t set_state(void)
{
    return fix_sql(&f, "SELECT state FROM ckpt_set");
}

static inline int say_of(const char *path, Fp__SetSay what, bool force)
{
    Fp__CtlSetSay m = FP__CTL_SET_SAY__INIT;

    m.path = fix_bin(path);
    m.what = what;
    m.force = force;
    fix_free(fix_call(&f, fix_ctl(&f), FP__MSG_TYPE__MSG_CTL_SET_SAY, &m, &fp__ckpt_set__descriptor));
    return f.status;
}

static inline int say_of_set(Fp__SetSay what, bool force)
{
    return say_of("/chk_0001", what, force);
}

/* ino is a file of a checkpoint set from here on. */
static inline void make_member(void)
{
    ino = fix_mk(&f, fix_mk(&f, ROOT, "chk_0001", S_IFDIR | 0755), "rank_0", REG);
    assert_int_not_equal(fix_sql(&f, "SELECT ckpt FROM inode WHERE ino=%llu", (unsigned long long)ino), 0);
}

#endif
