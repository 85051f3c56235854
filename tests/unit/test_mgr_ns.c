/* The manager's namespace: what each operation does and refuses, as on ext4. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "mgr_one.h"

#define ROOT MGR_ROOT_INO
#define REG  (S_IFREG | 0644)
#define DIR  (S_IFDIR | 0755)

static void test_mknod_makes_all_types(void **state)
{
    static const uint32_t types[] = {S_IFREG, S_IFDIR, S_IFLNK, S_IFCHR, S_IFBLK, S_IFIFO, S_IFSOCK};
    char name[8] = "a";

    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++, name[0]++) {
        uint64_t ino = fix_mk(&f, ROOT, name, types[i] | 0640);

        assert_true(ino);
        assert_int_equal(fix_attr(&f, ino).mode, types[i] | 0640);
        assert_int_equal(fix_attr(&f, ino).nlink, types[i] == S_IFDIR ? 2 : 1);
        assert_int_equal(fix_lookup(&f, ROOT, name), ino);
    }
    assert_int_equal(fix_attr(&f, ROOT).nlink, 3);
}

static void test_mknod_refuses(void **state)
{
    char name[257];
    uint64_t file;

    (void)state;
    memset(name, 'x', 256);
    name[256] = 0;
    assert_false(fix_mk(&f, ROOT, name, REG));
    assert_int_equal(f.status, -ENAMETOOLONG);
    name[255] = 0;
    file = fix_mk(&f, ROOT, name, REG);
    assert_true(file);
    assert_false(fix_mk(&f, ROOT, name, REG));
    assert_int_equal(f.status, -EEXIST);
    assert_false(fix_mk(&f, file, "a", REG));
    assert_int_equal(f.status, -ENOTDIR);
    assert_false(fix_mk(&f, 999, "a", REG));
    assert_int_equal(f.status, -ENOENT);
    assert_false(fix_mk(&f, ROOT, "a/b", REG));
    assert_int_equal(f.status, -EINVAL);
    assert_false(fix_mk(&f, ROOT, "..", REG));
    assert_int_equal(f.status, -EINVAL);
    assert_false(fix_mk(&f, ROOT, "odd", 0170000 | 0644));
    assert_int_equal(f.status, -EINVAL);
}

static void test_setgid_directory_hands_down_its_group(void **state)
{
    Fp__SetAttr m = FP__SET_ATTR__INIT;
    uint64_t d = fix_mk(&f, ROOT, "d", DIR), sub, file;

    (void)state;
    m.ino = d;
    m.valid = FP__SET_ATTR_VALID__SET_MODE | FP__SET_ATTR_VALID__SET_GID;
    m.mode = 02775;
    m.gid = 42;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_SETATTR, &m, &fp__attr_reply__descriptor));
    sub = fix_mk(&f, d, "sub", DIR);
    file = fix_mk(&f, d, "file", REG);
    assert_int_equal(fix_attr(&f, sub).gid, 42);
    assert_int_equal(fix_attr(&f, sub).mode, S_IFDIR | 02755);
    assert_int_equal(fix_attr(&f, file).gid, 42);
    assert_int_equal(fix_attr(&f, file).mode, REG);
}

static void test_unlink_and_rmdir_refuse(void **state)
{
    uint64_t d = fix_mk(&f, ROOT, "d", DIR);

    (void)state;
    fix_mk(&f, d, "file", REG);
    assert_int_equal(fix_unlink(&f, ROOT, "d", false), -EISDIR);
    assert_int_equal(fix_unlink(&f, ROOT, "d", true), -ENOTEMPTY);
    assert_int_equal(fix_unlink(&f, d, "file", true), -ENOTDIR);
    assert_int_equal(fix_unlink(&f, d, "none", false), -ENOENT);
    assert_int_equal(fix_unlink(&f, d, "file", false), 0);
    assert_int_equal(fix_unlink(&f, ROOT, "d", true), 0);
    assert_int_equal(fix_attr(&f, ROOT).nlink, 2);
    assert_int_equal(fix_attr(&f, d).ino, 0);
}

static void test_times_of_parent_and_inode_follow(void **state)
{
    uint64_t d = fix_mk(&f, ROOT, "d", DIR), file;
    Fp__Attr before = fix_attr(&f, d), after;

    (void)state;
    file = fix_mk(&f, d, "file", REG);
    after = fix_attr(&f, d);
    assert_true(after.mtime_ns > before.mtime_ns && after.ctime_ns == after.mtime_ns);
    before = fix_attr(&f, file);
    assert_int_equal(fix_rename(&f, d, "file", ROOT, "file2", 0), 0);
    after = fix_attr(&f, file);
    assert_true(after.ctime_ns > before.ctime_ns && after.mtime_ns == before.mtime_ns);
    assert_int_equal(fix_truncate(&f, file, 100), 0);
    assert_true(fix_attr(&f, file).mtime_ns > after.mtime_ns);
    assert_true(fix_attr(&f, file).btime_ns == before.btime_ns);
}

static void link_to(uint64_t ino, uint64_t parent, const char *name)
{
    Fp__Link m = FP__LINK__INIT;

    m.slot = 1;
    m.slot_seq = ++f.seq;
    m.ino = ino;
    m.parent = parent;
    m.name = fix_bin(name);
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_LINK, &m, &fp__attr_reply__descriptor));
}

static void test_link_counts_and_refuses(void **state)
{
    uint64_t a = fix_mk(&f, ROOT, "a", REG), d = fix_mk(&f, ROOT, "d", DIR);

    (void)state;
    link_to(a, d, "b");
    assert_int_equal(f.status, 0);
    assert_int_equal(fix_attr(&f, a).nlink, 2);
    link_to(a, d, "b");
    assert_int_equal(f.status, -EEXIST);
    link_to(d, ROOT, "d2");
    assert_int_equal(f.status, -EPERM);
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    assert_int_equal(fix_lookup(&f, d, "b"), a);
    assert_int_equal(fix_unlink(&f, d, "b", false), 0);
    assert_int_equal(fix_attr(&f, a).ino, 0);
}

static void test_rename_replaces_and_counts(void **state)
{
    uint64_t d1 = fix_mk(&f, ROOT, "d1", DIR), d2 = fix_mk(&f, ROOT, "d2", DIR);
    uint64_t a = fix_mk(&f, d1, "a", REG), b = fix_mk(&f, d2, "b", REG), s = fix_mk(&f, d1, "s", DIR);

    (void)state;
    assert_int_equal(fix_rename(&f, d1, "a", d2, "b", 0), 0);
    assert_int_equal(fix_lookup(&f, d2, "b"), a);
    assert_int_equal(fix_attr(&f, b).ino, 0);
    assert_int_equal(fix_rename(&f, d1, "s", d2, "s", 0), 0);
    assert_int_equal(fix_attr(&f, d1).nlink, 2);
    assert_int_equal(fix_attr(&f, d2).nlink, 3);
    fix_mk(&f, d1, "empty", DIR);
    assert_int_equal(fix_rename(&f, d2, "s", d1, "empty", 0), 0);
    assert_int_equal(fix_lookup(&f, d1, "empty"), s);
    assert_int_equal(fix_attr(&f, d1).nlink, 3);
    assert_int_equal(fix_attr(&f, d2).nlink, 2);
}

static void test_rename_refuses(void **state)
{
    uint64_t d = fix_mk(&f, ROOT, "d", DIR), sub = fix_mk(&f, d, "sub", DIR),
             deep = fix_mk(&f, sub, "deep", DIR);

    (void)state;
    fix_mk(&f, ROOT, "file", REG);
    assert_int_equal(fix_rename(&f, ROOT, "d", deep, "x", 0), -EINVAL);
    assert_int_equal(fix_rename(&f, ROOT, "d", d, "x", 0), -EINVAL);
    assert_int_equal(fix_rename(&f, sub, "deep", ROOT, "d", 0), -ENOTEMPTY);
    assert_int_equal(fix_rename(&f, ROOT, "file", ROOT, "d", 0), -EISDIR);
    assert_int_equal(fix_rename(&f, ROOT, "d", ROOT, "file", 0), -ENOTDIR);
    assert_int_equal(fix_rename(&f, ROOT, "none", ROOT, "x", 0), -ENOENT);
    assert_int_equal(fix_rename(&f, ROOT, "file", ROOT, "d", 1), -EEXIST);
    assert_int_equal(fix_rename(&f, ROOT, "file", ROOT, "x", 2), -ENOENT);
    assert_int_equal(fix_rename(&f, ROOT, "d", d, "sub", 2), -EINVAL);
    assert_int_equal(fix_rename(&f, ROOT, "d", ROOT, "file", 3), -EINVAL);
    assert_int_equal(fix_rename(&f, ROOT, "d", ROOT, "file", 8), -EINVAL);
}

static void test_rename_of_two_names_of_one_file_does_nothing(void **state)
{
    uint64_t a = fix_mk(&f, ROOT, "a", REG);

    (void)state;
    link_to(a, ROOT, "b");
    assert_int_equal(fix_rename(&f, ROOT, "a", ROOT, "b", 0), 0);
    assert_int_equal(fix_lookup(&f, ROOT, "a"), a);
    assert_int_equal(fix_lookup(&f, ROOT, "b"), a);
    assert_int_equal(fix_attr(&f, a).nlink, 2);
}

/* fix_rename and fix_unlink of a client that says what its kernel has found. */
static int rename_found(uint64_t p1, const char *n1, uint64_t found, uint64_t p2, const char *n2, uint64_t new_found)
{
    Fp__Rename m = FP__RENAME__INIT;

    m.slot = 1;
    m.slot_seq = ++f.seq;
    m.parent = p1;
    m.name = fix_bin(n1);
    m.new_parent = p2;
    m.new_name = fix_bin(n2);
    m.found = found;
    m.new_found = new_found;
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_RENAME, &m, NULL);
    return f.status;
}

static int remove_found(uint64_t parent, const char *name, bool dir, uint64_t found)
{
    Fp__Unlink m = FP__UNLINK__INIT;

    m.slot = 1;
    m.slot_seq = ++f.seq;
    m.parent = parent;
    m.name = fix_bin(name);
    m.dir = dir;
    m.found = found;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_UNLINK, &m, &fp__unlink_reply__descriptor));
    return f.status;
}

static void test_directory_that_the_kernel_has_found_is_not_taken_for_the_one_removed(void **state)
{
    uint64_t moved = fix_mk(&f, ROOT, "moved", DIR), x = fix_mk(&f, ROOT, "x", DIR), file = fix_mk(&f, ROOT, "file", REG), gone;

    (void)state;
    fix_mk(&f, ROOT, "s", DIR);
    gone = fix_mk(&f, ROOT, "gone", DIR);
    assert_int_equal(fix_unlink(&f, ROOT, "gone", true), 0);
    assert_int_equal(remove_found(ROOT, "x", true, moved), -ESTALE);
    assert_int_equal(rename_found(ROOT, "s", 0, ROOT, "x", moved), -ESTALE);
    assert_int_equal(rename_found(ROOT, "s", 0, ROOT, "none", moved), -ESTALE);
    assert_int_equal(fix_lookup(&f, ROOT, "x"), x);
    assert_int_equal(rename_found(ROOT, "s", 0, ROOT, "x", gone), 0); /* it is gone indeed */
    assert_int_equal(remove_found(ROOT, "x", true, file), 0);        /* nothing is kept of a file */
    assert_int_equal(remove_found(ROOT, "moved", true, moved), 0);
}

static void test_what_the_kernel_has_allowed_is_what_is_changed(void **state)
{
    uint64_t t = fix_mk(&f, ROOT, "t", DIR | S_ISVTX), a = fix_mk(&f, t, "a", REG), b = fix_mk(&f, t, "b", REG), d = fix_mk(&f, ROOT, "d", DIR);

    (void)state;
    assert_int_equal(remove_found(t, "a", false, b), -ESTALE);
    assert_int_equal(rename_found(t, "a", b, t, "c", 0), -ESTALE);
    assert_int_equal(rename_found(t, "a", a, t, "b", a), -ESTALE);
    assert_int_equal(rename_found(t, "a", a, t, "b", b), 0);
    assert_int_equal(remove_found(t, "b", false, a), 0);
    fix_mk(&f, ROOT, "e", DIR);
    assert_int_equal(rename_found(ROOT, "e", t, d, "e", 0), -ESTALE); /* write permission of the directory that is moved */
    assert_int_equal(rename_found(ROOT, "e", t, ROOT, "f", 0), 0);    /* not needed in one directory */
}

static void test_rename_exchange_and_whiteout(void **state)
{
    uint64_t d = fix_mk(&f, ROOT, "d", DIR), a = fix_mk(&f, ROOT, "a", REG), s = fix_mk(&f, d, "s", DIR), w;

    (void)state;
    assert_int_equal(fix_rename(&f, ROOT, "a", d, "s", 2), 0);
    assert_int_equal(fix_lookup(&f, ROOT, "a"), s);
    assert_int_equal(fix_lookup(&f, d, "s"), a);
    assert_int_equal(fix_attr(&f, d).nlink, 2);
    assert_int_equal(fix_attr(&f, ROOT).nlink, 4);
    assert_int_equal(fix_rename(&f, d, "s", ROOT, "moved", 4), 0);
    w = fix_lookup(&f, d, "s");
    assert_int_equal(fix_attr(&f, w).mode, S_IFCHR);
    assert_int_equal(fix_attr(&f, w).rdev, 0);
    assert_int_equal(fix_lookup(&f, ROOT, "moved"), a);
}

static void test_readdir_positions_survive_changes(void **state)
{
    uint64_t d = fix_mk(&f, ROOT, "d", DIR), cookie = 0;
    bool seen[100] = {false}, eof = false;
    char name[16];
    int pages = 0;

    (void)state;
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "f%02d", i);
        fix_mk(&f, d, name, REG);
    }
    while (!eof) {
        Fp__ReadDir m = FP__READ_DIR__INIT;
        Fp__ReadDirReply *r;

        m.ino = d;
        m.cookie = cookie;
        m.max_entries = 10;
        m.plus = pages & 1;
        r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_READDIR, &m, &fp__read_dir_reply__descriptor);
        assert_non_null(r);
        assert_int_equal(r->parent, ROOT);
        for (size_t i = 0; i < r->n_entries; i++) {
            const Fp__DirEntry *e = r->entries[i];
            int n = (e->name.data[1] - '0') * 10 + e->name.data[2] - '0';

            if (e->name.data[0] != 'f')
                continue;
            assert_false(seen[n]);
            assert_true(!m.plus == !e->attr);
            assert_int_equal(e->mode & S_IFMT, S_IFREG);
            seen[n] = true;
            cookie = e->cookie;
        }
        eof = r->eof;
        fix_free(r);
        snprintf(name, sizeof name, "f%02d", pages * 10); /* seen already */
        if (pages < 10)
            assert_int_equal(fix_unlink(&f, d, name, false), 0);
        snprintf(name, sizeof name, "g%02d", pages++);
        if (pages < 5)
            fix_mk(&f, d, name, REG);
    }
    for (int i = 0; i < 100; i++)
        assert_true(seen[i]);
}

static void test_xattr_set_get_list_remove(void **state)
{
    Fp__InodeReq q = FP__INODE_REQ__INIT;
    Fp__RemoveXattr rm = FP__REMOVE_XATTR__INIT;
    Fp__XattrReply *r;
    uint64_t a = fix_mk(&f, ROOT, "a", REG);

    (void)state;
    assert_int_equal(fix_set_xattr(&f, a, "user.x", "1", 2), -ENODATA);
    assert_int_equal(fix_set_xattr(&f, a, "user.x", "1", 1), 0);
    assert_int_equal(fix_set_xattr(&f, a, "user.x", "2", 1), -EEXIST);
    assert_int_equal(fix_set_xattr(&f, a, "user.x", "22", 2), 0);
    assert_int_equal(fix_set_xattr(&f, a, "user.y", "", 0), 0);
    assert_int_equal(fix_get_xattr(&f, a, "user.x", "22"), 0);
    assert_int_equal(fix_get_xattr(&f, a, "user.y", ""), 0);
    assert_int_equal(fix_get_xattr(&f, a, "user.z", ""), -ENODATA);
    assert_int_equal(fix_set_xattr(&f, a, "system.posix_acl_access", "x", 0), -EOPNOTSUPP);
    q.ino = a;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_LISTXATTR, &q, &fp__xattr_reply__descriptor);
    assert_int_equal(r->value.len, 14);
    assert_memory_equal(r->value.data, "user.x\0user.y", 14);
    fix_free(r);
    rm.ino = a;
    rm.name = fix_bin("user.x");
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_REMOVEXATTR, &rm, NULL);
    assert_int_equal(f.status, 0);
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_REMOVEXATTR, &rm, NULL);
    assert_int_equal(f.status, -ENODATA);
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM xattr"), 0);
}

static void test_chunk_size_is_inherited_and_fixed_with_data(void **state)
{
    uint64_t d = fix_mk(&f, ROOT, "d", DIR), sub, file;

    (void)state;
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.chunk_size", "128KiB", 0), 0);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.stripe", "4", 0), 0);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.chunk_size", "100000", 0), -EINVAL);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.chunk_size", "32KiB", 0), -EINVAL);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.chunk_size", "32MiB", 0), -EINVAL);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.chunk_size", "1M", 0), -EINVAL);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.stripe", "0", 0), -EINVAL);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.stripe", "65", 0), -EINVAL);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.nonsense", "1", 0), -EINVAL);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.checksum", "sha256:00 size=1 version=1", 0), 0); /* of the aux-app, as any other */
    sub = fix_mk(&f, d, "sub", DIR);
    file = fix_mk(&f, sub, "file", REG);
    assert_int_equal(fix_attr(&f, file).chunk_size_bytes, 128 << 10);
    assert_int_equal(fix_attr(&f, file).stripe, 4);
    assert_int_equal(fix_get_xattr(&f, file, "user.fp.chunk_size", "131072"), 0);
    assert_int_equal(fix_set_xattr(&f, file, "user.fp.chunk_size", "65536", 0), 0);
    assert_true(fix_write(&f, file, 0, 1000));
    assert_int_equal(fix_set_xattr(&f, file, "user.fp.chunk_size", "131072", 0), -EBUSY);
    assert_int_equal(fix_attr(&f, file).chunk_size_bytes, 65536);
}

static void test_chown_drops_setuid(void **state)
{
    Fp__SetAttr m = FP__SET_ATTR__INIT;
    Fp__AttrReply *r;

    (void)state;
    m.ino = fix_mk(&f, ROOT, "a", S_IFREG | 06755);
    m.valid = FP__SET_ATTR_VALID__SET_UID;
    m.uid = 5;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_SETATTR, &m, &fp__attr_reply__descriptor);
    assert_int_equal(r->attr->mode, S_IFREG | 0755);
    assert_int_equal(r->attr->uid, 5);
    fix_free(r);
}

static Fp__AttrReply *create_open(const char *name, bool excl, bool tmpfile)
{
    Fp__MkNod m = FP__MK_NOD__INIT;

    m.slot = 2;
    m.slot_seq = ++f.seq;
    m.parent = ROOT;
    m.name = fix_bin(name);
    m.mode = REG;
    m.open = true;
    m.excl = excl;
    m.tmpfile = tmpfile;
    return fix_call(&f, f.conn, FP__MSG_TYPE__MSG_MKNOD, &m, &fp__attr_reply__descriptor);
}

static void release(uint64_t ino)
{
    Fp__Release m = FP__RELEASE__INIT;

    m.n_ino = 1;
    m.ino = &ino;
    fix_notice(&f, f.conn, FP__MSG_TYPE__MSG_RELEASE, &m);
}

static void test_unlinked_file_stays_while_open(void **state)
{
    Fp__AttrReply *r = create_open("a", true, false), *again = create_open("a", false, false);
    uint64_t ino = r->attr->ino;

    (void)state;
    assert_true(r->created && !again->created && again->attr->ino == ino);
    fix_free(r);
    fix_free(again);
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    release(ino);
    assert_int_equal(fix_attr(&f, ino).nlink, 0);
    assert_true(fix_write(&f, ino, 0, 5000));
    fix_check(&f);
    release(ino);
    assert_int_equal(fix_attr(&f, ino).ino, 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 1);
}

static void test_rename_over_open_file_keeps_it(void **state)
{
    Fp__AttrReply *r = create_open("a", true, false);
    uint64_t ino = r->attr->ino, b = fix_mk(&f, ROOT, "b", REG);

    (void)state;
    fix_free(r);
    assert_int_equal(fix_rename(&f, ROOT, "b", ROOT, "a", 0), 0);
    assert_int_equal(fix_lookup(&f, ROOT, "a"), b);
    assert_int_equal(fix_attr(&f, ino).ino, ino);
    release(ino);
    assert_int_equal(fix_attr(&f, ino).ino, 0);
}

static void test_tmpfile_can_be_linked(void **state)
{
    Fp__AttrReply *r = create_open("", true, true);
    uint64_t ino = r->attr->ino;

    (void)state;
    assert_int_equal(r->attr->nlink, 0);
    fix_free(r);
    link_to(ino, ROOT, "named");
    assert_int_equal(f.status, 0);
    release(ino);
    assert_int_equal(fix_lookup(&f, ROOT, "named"), ino);
    r = create_open("", true, true);
    ino = r->attr->ino;
    fix_free(r);
    release(ino);
    assert_int_equal(fix_attr(&f, ino).ino, 0);
}

static void test_what_was_removed_and_is_open_gets_no_new_name(void **state)
{
    Fp__AttrReply *r = create_open("a", true, false), *tmp = create_open("", true, true);
    uint64_t ino = r->attr->ino, unnamed = tmp->attr->ino;

    (void)state;
    fix_free(r);
    fix_free(tmp);
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    link_to(ino, ROOT, "b");
    assert_int_equal(f.status, -ENOENT);
    assert_int_equal(fix_attr(&f, ino).nlink, 0);
    link_to(unnamed, ROOT, "b");
    assert_int_equal(f.status, 0);
    assert_int_equal(fix_unlink(&f, ROOT, "b", false), 0);
    link_to(unnamed, ROOT, "c"); /* its first name was its only chance, as on one node */
    assert_int_equal(f.status, -ENOENT);
    release(ino);
    release(unnamed);
    fix_check(&f);
    assert_int_equal(fix_attr(&f, unnamed).ino, 0);
}

static void test_inode_limit_is_enospc(void **state)
{
    Fp__StatFsReply *r;
    Fp__Empty e = FP__EMPTY__INIT;

    (void)state;
    f.core->o.inodes_max = 3;
    assert_true(fix_mk(&f, ROOT, "a", REG));
    assert_true(fix_mk(&f, ROOT, "b", REG));
    assert_false(fix_mk(&f, ROOT, "c", REG));
    assert_int_equal(f.status, -ENOSPC);
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_STATFS, &e, &fp__stat_fs_reply__descriptor);
    assert_int_equal(r->files, 3);
    assert_int_equal(r->free_files, 0);
    assert_int_equal(r->total_bytes, 1 << 30);
    assert_int_equal(r->free_bytes, 1 << 30);
    fix_free(r);
}

static void test_removed_directory_takes_nothing(void **state)
{
    Fp__Open o = FP__OPEN__INIT;
    uint64_t d = fix_mk(&f, ROOT, "d", DIR);

    (void)state;
    o.ino = d;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_OPEN, &o, &fp__attr_reply__descriptor));
    assert_int_equal(fix_unlink(&f, ROOT, "d", true), 0);
    assert_int_equal(fix_attr(&f, d).nlink, 0);
    assert_false(fix_mk(&f, d, "x", REG));
    assert_int_equal(f.status, -ENOENT);
    release(d);
}

/* Random operations; the invariants are checked at the end (teardown) and on the way. */
static void test_random_operations_keep_counts_right(void **state)
{
    uint64_t dirs[4] = {ROOT};
    char a[16], b[16];

    (void)state;
    srandom(7);
    for (int i = 1; i < 4; i++) {
        snprintf(a, sizeof a, "dir%d", i);
        dirs[i] = fix_mk(&f, dirs[i - 1], a, DIR);
    }
    for (int i = 0; i < 3000; i++) {
        uint64_t p = dirs[random() % 4], q = dirs[random() % 4];

        snprintf(a, sizeof a, "n%ld", random() % 8);
        snprintf(b, sizeof b, "n%ld", random() % 8);
        switch (random() % 6) {
        case 0:
            fix_mk(&f, p, a, REG);
            break;
        case 1:
            fix_mk(&f, p, a, DIR);
            break;
        case 2:
            fix_unlink(&f, p, a, random() & 1);
            break;
        case 3:
            fix_rename(&f, p, a, q, b, (uint32_t[]){0, 0, 0, 1, 2, 4}[random() % 6]);
            break;
        case 4: {
            uint64_t ino = fix_lookup(&f, p, a);

            if (ino)
                link_to(ino, q, b);
            break;
        }
        default: {
            uint64_t ino = fix_lookup(&f, p, a);

            if (ino && S_ISREG(fix_attr(&f, ino).mode))
                fix_write(&f, ino, (uint64_t)(random() % 3) << 20, 4096);
            break;
        }
        }
        if (i % 300 == 0)
            fix_check(&f);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup_plain, teardown)
    const struct CMUnitTest tests[] = {
        T(test_mknod_makes_all_types),
        T(test_mknod_refuses),
        T(test_setgid_directory_hands_down_its_group),
        T(test_unlink_and_rmdir_refuse),
        T(test_times_of_parent_and_inode_follow),
        T(test_link_counts_and_refuses),
        T(test_rename_replaces_and_counts),
        T(test_rename_refuses),
        T(test_rename_of_two_names_of_one_file_does_nothing),
        T(test_directory_that_the_kernel_has_found_is_not_taken_for_the_one_removed),
        T(test_what_the_kernel_has_allowed_is_what_is_changed),
        T(test_rename_exchange_and_whiteout),
        T(test_readdir_positions_survive_changes),
        T(test_xattr_set_get_list_remove),
        T(test_chunk_size_is_inherited_and_fixed_with_data),
        T(test_chown_drops_setuid),
        T(test_unlinked_file_stays_while_open),
        T(test_rename_over_open_file_keeps_it),
        T(test_tmpfile_can_be_linked),
        T(test_what_was_removed_and_is_open_gets_no_new_name),
        T(test_inode_limit_is_enospc),
        T(test_removed_directory_takes_nothing),
        T(test_random_operations_keep_counts_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
