/*
 * One file and who rewrites it, for tests of its versions (test_mgr_version.c, test_mgr_version_ends.c, test_mgr_version_rename.c). For programs of one file: what they share is here as it
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
#include "mgr_one.h"

#define CHUNK (64u << 10)
#define MAPS  64u

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

/* What a file consists of: a text of slices. */
struct map {
    uint64_t size;
    char text[4096];
};

static inline struct map map_of(uint64_t ino)
{
    Fp__SliceMap m = FP__SLICE_MAP__INIT;
    Fp__SliceMapReply *r;
    struct map map = {.size = fix_attr(&f, ino).size_bytes};
    size_t len = 0;

    m.ino = ino;
    m.win_count = MAPS;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_SLICEMAP, &m, &fp__slice_map_reply__descriptor);
    assert_non_null(r);
    for (size_t i = 0; i < r->n_slices; i++)
        len += (size_t)snprintf(map.text + len, sizeof map.text - len, "%llu:%u+%u=%llx:%u ", (unsigned long long)r->slices[i]->win, r->slices[i]->off,
                                r->slices[i]->len, (unsigned long long)r->slices[i]->chunk, r->slices[i]->chunk_off);
    assert_true(len < sizeof map.text);
    fix_free(r);
    return map;
}

static inline void assert_map(uint64_t ino, const struct map *want)
{
    struct map is = map_of(ino);

    assert_string_equal(is.text, want->text);
    assert_int_equal(is.size, want->size);
}

static inline int versions(void)
{
    return (int)fix_sql(&f, "SELECT count(*) FROM version");
}

/* All programs of its mount have closed it, and the mount has nothing more to say of it. */
static inline void closed_by(struct mgr_conn *conn, uint64_t ino)
{
    Fp__Commit m = FP__COMMIT__INIT;

    m.slot = 3;
    m.slot_seq = ++f.seq;
    m.ino = ino;
    m.closes = true;
    fix_free(fix_call(&f, conn, FP__MSG_TYPE__MSG_COMMIT, &m, &fp__commit_reply__descriptor));
    assert_int_equal(f.status, 0);
}

/* fpctl versions, and restore. */
static inline Fp__CtlVersionsReply *ask(const char *path, uint64_t restore, bool newest, bool force, bool torn_all)
{
    Fp__CtlVersions m = FP__CTL_VERSIONS__INIT;

    m.path = fix_bin(path);
    m.restore = restore;
    m.newest = newest;
    m.force = force;
    m.torn_all = torn_all;
    return fix_call(&f, fix_ctl(&f), FP__MSG_TYPE__MSG_CTL_VERSIONS, &m, &fp__ctl_versions_reply__descriptor);
}

/* A mount wants space. What it has to wait for. */
static inline uint64_t press(uint32_t level)
{
    Fp__StatFs m = FP__STAT_FS__INIT;
    Fp__StatFsReply *r;
    uint64_t deleting;

    m.press = level;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_STATFS, &m, &fp__stat_fs_reply__descriptor);
    assert_non_null(r);
    assert_int_equal(r->files - r->free_files, fix_sql(&f, "SELECT count(*) FROM inode WHERE NOT flags&16"));
    deleting = r->deleting_bytes;
    fix_free(r);
    fix_check(&f);
    return deleting;
}

/* Of two versions, one of them a guard, the other one goes when space is wanted; the guard does not before level 2. */
static inline void the_guard_goes_last(void)
{
    press(0);
    assert_int_equal(versions(), 2);
    assert_true(press(1) > 0);
    assert_int_equal(fix_sql(&f, "SELECT state FROM version"), MGR_GUARD);
    press(1);
    assert_int_equal(versions(), 1);
}

#endif
