/*
 * Two mounts and a manager, for tests of leases (test_mgr_lease.c, test_mgr_closed.c): one file, who has it open, what is recalled of whom, restarts. For programs of
 * one file: what they share is here as it would be in them.
 */
#ifndef TESTS_MGR_PEERS_H
#define TESTS_MGR_PEERS_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "mgr_one.h"

static struct peer {
    struct mgr_conn *conn;
    uint64_t session, lease_time;
} a, b; /* a asks for leases, b does not */
static uint64_t ino;
static bool hello_writes; /* what it has open it has for writing, as real mounts say it */
static Fp__Place *hello_place; /* where its process runs; NULL: it does not say */
static uint64_t hello_torn; /* what it has released that did not end well, and has no answer for; 0: nothing */

/* Says hello on a new connection, with what it has open and has leases of. */
static inline void hello(struct peer *p, bool behind, const uint64_t *open, size_t nopen, const uint64_t *leases, size_t nleases)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__HelloReply *r;

    p->conn = fix_conn(&f);
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.node = (char *)"n";
    h.mountpoint = (char *)"/m";
    h.session = p->session;
    h.behind = behind;
    h.open_known = p->session != 0;
    h.open_ino = (uint64_t *)open;
    h.n_open_ino = nopen;
    h.open_write_ino = hello_writes ? (uint64_t *)open : NULL;
    h.n_open_write_ino = hello_writes ? nopen : 0;
    h.behind_ino = (uint64_t *)leases;
    h.n_behind_ino = nleases;
    h.lease_time = p->lease_time;
    h.place = hello_place;
    h.torn_ino = &hello_torn;
    h.n_torn_ino = hello_torn != 0;
    r = fix_call(&f, p->conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor);
    assert_non_null(r);
    p->session = r->session;
    p->lease_time = r->lease_time;
    fix_free(r);
}

static inline int setup(void **state)
{
    (void)state;
    fix_open(&f, fix_path(), false);
    ino = fix_mk(&f, MGR_ROOT_INO, "f", S_IFREG | 0644);
    a = b = (struct peer){0};
    hello(&a, true, NULL, 0, NULL, 0);
    hello(&b, false, NULL, 0, NULL, 0);
    return 0;
}

static inline void release(const struct peer *p)
{
    Fp__Release m = FP__RELEASE__INIT;

    m.n_ino = 1;
    m.ino = &ino;
    fix_notice(&f, p->conn, FP__MSG_TYPE__MSG_RELEASE, &m);
}

/* Serial of the MSG_RECALL that the last call sent to p; 0: it says that one is done; -1: there is none; -2: one without a serial. */
static inline int64_t told(const struct peer *p)
{
    const struct fix_out *o = fix_out_find(&f, p->conn, FP__MSG_TYPE__MSG_RECALL);
    Fp__Recall *m = o ? fp__recall__unpack(NULL, o->len, o->bytes) : NULL;
    int64_t rc = m ? m->done ? 0 : m->serial ? (int64_t)m->serial : -2 : -1;

    if (m)
        assert_int_equal(m->ino, ino);
    if (m && m->done)
        assert_int_equal(m->serial, 0);
    fix_free(m);
    return rc;
}

static inline void done(const struct peer *p, int64_t serial)
{
    Fp__Recall m = FP__RECALL__INIT;

    m.ino = ino;
    m.done = true;
    m.serial = (uint64_t)serial;
    fix_notice(&f, p->conn, FP__MSG_TYPE__MSG_RECALL, &m);
}

static inline void restart(void)
{
    struct fix old = f;

    fix_close(&f);
    fix_open(&f, fix_path(), true);
    f.seq = old.seq;
    f.next_chunk = old.next_chunk;
    f.bnf = old.bnf;
}

#endif
