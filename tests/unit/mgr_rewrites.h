/*
 * One file and who rewrites it, for tests of its versions (test_mgr_version.c, test_mgr_version_ends.c). For programs of one file: what they share is here as it
 * would be in them.
 */
#ifndef TESTS_MGR_REWRITES_H
#define TESTS_MGR_REWRITES_H

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

#include "life.pb-c.h"
#include "manager/version.h"
#include "mgr_fixture.h"

#define CHUNK (64u << 10)

static struct fix f;
static uint64_t file;

static inline void open_by(struct mgr_conn *conn, uint64_t ino)
{
    Fp__Open m = FP__OPEN__INIT;

    m.ino = ino;
    m.write = true;
    fix_free(fix_call(&f, conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
}

/* Something that is not published. */
static inline void wrote_by(struct mgr_conn *conn, uint64_t ino)
{
    Fp__Release m = FP__RELEASE__INIT;

    m.n_wrote_ino = 1;
    m.wrote_ino = &ino;
    fix_notice(&f, conn, FP__MSG_TYPE__MSG_RELEASE, &m);
}

/* torn: its program was killed. */
static inline void release(struct mgr_conn *conn, uint64_t ino, bool torn)
{
    Fp__Release m = FP__RELEASE__INIT;

    m.n_write_ino = 1;
    m.write_ino = &ino;
    m.n_torn_ino = torn;
    m.torn_ino = &ino;
    fix_notice(&f, conn, FP__MSG_TYPE__MSG_RELEASE, &m);
}

static inline void sync_by(struct mgr_conn *conn, uint64_t ino)
{
    Fp__Sync m = FP__SYNC__INIT;

    m.ino = ino;
    fix_free(fix_call(&f, conn, FP__MSG_TYPE__MSG_SYNC, &m, &fp__sync_reply__descriptor));
    assert_int_equal(f.status, 0);
}

/* Its mount is not heard of any more: the session expires, and is dead later. */
static inline void dies(struct mgr_conn *conn)
{
    fix_lost(&f, conn);
    fix_tick(&f, 61000);
}

static inline void new_mount(void)
{
    f.conn = fix_conn(&f);
    f.session = fix_hello_client(&f, f.conn, 0, NULL);
    f.seq = 0;
    fix_keepalive(&f);
}

/* An empty file with windows of CHUNK, which f.conn has open for writing. */
static inline void open_file(void)
{
    fix_versions = true;
    fix_open(&f, ":memory:", false);
    file = fix_mk(&f, MGR_ROOT_INO, "a", S_IFREG | 0644);
    assert_int_equal(fix_set_xattr(&f, file, "user.fp.chunk_size", "64KiB", 0), 0);
    open_by(f.conn, file);
}

static inline int teardown(void **state)
{
    (void)state;
    fix_check(&f);
    fix_close(&f);
    return 0;
}

#endif
