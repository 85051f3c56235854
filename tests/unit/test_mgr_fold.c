/* Folding windows: what the manager tells of them, and the commit of a fold, which holds only if the window is as it was. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "manager/drain.h"
#include "mgr_one.h"

#define MIB (1u << 20)
#define KIB 1024u

static bool asks = true;
static uint64_t ino;

static int setup(void **state)
{
    (void)state;
    fix_open(&f, ":memory:", false);
    ino = fix_mk(&f, MGR_ROOT_INO, "a", S_IFREG | 0644);
    return 0;
}

/* As fix_write, of any slices of a new chunk, or none. NULL: f.status says why. */
static Fp__CommitReply *commit(Fp__Slice *s, size_t n, uint32_t len, uint64_t fold_sum)
{
    Fp__Commit m = FP__COMMIT__INIT;
    Fp__Chunk ch = FP__CHUNK__INIT, *chs = &ch;
    Fp__Slice *ss[MGR_FOLD_SLICES];

    ch.id = f.session << 32 | ++f.next_chunk;
    ch.len = len;
    ch.stored_bytes = 4096 + (len + 4095) / 4096 * 4096;
    ch.sum = ch.id;
    ch.bnf = f.bnf;
    for (size_t i = 0; i < n; i++) {
        ss[i] = &s[i];
        s[i].chunk = ch.id;
    }
    m.slot = 1;
    m.slot_seq = ++f.seq;
    m.ino = ino;
    m.n_chunks = 1;
    m.n_slices = n;
    m.chunks = &chs;
    m.slices = ss;
    m.fold = fold_sum != 0;
    m.fold_map_sum = fold_sum;
    m.tell_folds = asks;
    return fix_call(&f, f.conn, FP__MSG_TYPE__MSG_COMMIT, &m, &fp__commit_reply__descriptor);
}

static Fp__Slice slice(uint64_t win, uint32_t off, uint32_t len, uint32_t chunk_off)
{
    Fp__Slice s = FP__SLICE__INIT;

    s.win = win;
    s.off = off;
    s.len = len;
    s.chunk_off = chunk_off;
    return s;
}

/* One slice of one chunk; what the manager says of its window (win 0: nothing). */
static Fp__Fold put(uint64_t win, uint32_t off, uint32_t len)
{
    Fp__Slice s = slice(win, off, len, 0);
    Fp__CommitReply *r = commit(&s, 1, len, 0);
    Fp__Fold h = FP__FOLD__INIT;

    assert_non_null(r);
    assert_true(r->n_folds <= 1);
    if (r->n_folds)
        h = *r->folds[0];
    fix_free(r);
    return h;
}

static Fp__SliceMapReply *look(uint64_t of, uint64_t win)
{
    Fp__SliceMap m = FP__SLICE_MAP__INIT;

    m.ino = of;
    m.win_from = win;
    m.win_count = 1;
    m.fold = true;
    return fix_call(&f, f.conn, FP__MSG_TYPE__MSG_SLICEMAP, &m, &fp__slice_map_reply__descriptor);
}

/* A window of 1 MiB of which every second 64 KiB were written anew, each as a chunk. */
static Fp__Fold patched(void)
{
    Fp__Fold h = put(1, 0, MIB);

    assert_int_equal(h.slices, 0);
    for (uint32_t off = 0; off < MIB; off += 128 * KIB)
        h = put(1, off, 64 * KIB);
    return h;
}

static void test_fold_is_told_of_when_chunks_take_more_than_they_need(void **state)
{
    Fp__Fold h;

    (void)state;
    assert_int_equal(put(0, 0, MIB).slices, 0);
    assert_int_equal(put(2, 0, 16 * KIB).slices, 0); /* alone in its window */
    h = put(0, 64 * KIB, 32 * KIB);
    assert_int_equal(h.slices, 0); /* not for so little */
    assert_true(fix_truncate(&f, ino, 0) == 0);
    h = patched();
    assert_int_equal(h.win, 1);
    assert_int_equal(h.slices, 16);
    assert_int_equal(h.ranges, 1);
    assert_int_equal(h.new_bytes, MIB + 4096);
    assert_int_equal(h.gain_bytes, MIB + 4096 + 8 * (64 * KIB + 4096) - (MIB + 4096));
}

/* Every byte of its chunks is in use. */
static void test_fold_is_told_of_when_a_window_is_of_very_many_slices(void **state)
{
    static Fp__Slice s[MGR_FOLD_SLICES / 2];
    Fp__CommitReply *r = NULL;

    (void)state;
    for (uint32_t odd = 0; odd < 2; odd++) {
        for (uint32_t i = 0; i < MGR_FOLD_SLICES / 2; i++)
            s[i] = slice(0, (2 * i + odd) * 1000, 1000, i * 1000);
        fix_free(r);
        r = commit(s, MGR_FOLD_SLICES / 2, MGR_FOLD_SLICES / 2 * 1000, 0);
        assert_non_null(r);
        assert_int_equal(r->n_folds, odd);
    }
    assert_int_equal(r->folds[0]->slices, MGR_FOLD_SLICES);
    assert_int_equal(r->folds[0]->ranges, 1);
    assert_true(r->folds[0]->gain_bytes <= 8192);
    fix_free(r);
}

/* What the file was names them, too, until it is closed: that is no reason to leave the window as it is, of which nobody would be told then. */
static void test_what_a_version_keeps_is_folded(void **state)
{
    Fp__Open o = FP__OPEN__INIT;
    Fp__Release rel = FP__RELEASE__INIT;
    Fp__Slice s = slice(1, 0, MIB, 0);
    Fp__SliceMapReply *map;
    Fp__CommitReply *r;
    Fp__Fold h;

    (void)state;
    teardown(NULL);
    fix_versions = true;
    setup(NULL);
    assert_int_equal(put(1, 0, MIB).slices, 0);
    o.ino = ino;
    o.write = true;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_OPEN, &o, &fp__attr_reply__descriptor));
    for (uint32_t off = 0; off < MIB; off += 128 * KIB)
        h = put(1, off, 64 * KIB);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM version"), 1);
    assert_int_equal(h.slices, 16);
    assert_int_equal(h.gain_bytes, MIB + 4096 + 8 * (64 * KIB + 4096) - (MIB + 4096));
    map = look(ino, 1);
    rel.n_write_ino = 1;
    rel.write_ino = &ino;
    fix_notice(&f, f.conn, FP__MSG_TYPE__MSG_RELEASE, &rel);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM version"), 0);
    r = commit(&s, 1, MIB, map->fold->map_sum); /* the window is what it was: that the version has gone makes no other of it */
    assert_non_null(r);
    assert_false(r->fold_lost);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM chunk"), 1);
    fix_free(r);
    fix_free(map);
    fix_versions = false;
}

static void test_fold_replaces_what_it_was_made_of(void **state)
{
    Fp__Fold h = patched();
    Fp__SliceMapReply *map = look(ino, 1);
    Fp__Attr before = fix_attr(&f, ino), after;
    Fp__Slice s = slice(1, 0, MIB, 0);
    Fp__CommitReply *r;

    (void)state;
    assert_int_equal(map->fold->gain_bytes, h.gain_bytes);
    for (size_t i = 0; i < map->n_slices; i++)
        assert_true(map->slices[i]->folds);
    r = commit(&s, 1, MIB, map->fold->map_sum);
    assert_non_null(r);
    assert_false(r->fold_lost);
    assert_int_equal(r->version_before + 1, r->attr->data_version);
    after = fix_attr(&f, ino);
    assert_true(after.size_bytes == before.size_bytes && after.mtime_ns == before.mtime_ns && after.ctime_ns == before.ctime_ns && after.blocks == before.blocks);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM slice"), 1);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM chunk"), 1);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 9);
    fix_free(r);
    fix_free(map);
}

static void write_beside(void) { put(1, 5000, 100); }
static void write_same(void) { put(1, 0, 64 * KIB); }
static void truncate_it(void) { fix_truncate(&f, ino, MIB + 100); }
static void punch(void) { fix_punch(&f, ino, MIB + 300 * KIB, 10); }
static void share(void)
{
    Fp__Clone m = FP__CLONE__INIT;

    m.slot = 1;
    m.slot_seq = ++f.seq;
    m.src_ino = ino;
    m.dst_ino = fix_mk(&f, MGR_ROOT_INO, "b", S_IFREG | 0644);
    m.slot_seq = ++f.seq;
    m.src_off = m.dst_off = MIB;
    m.len = MIB;
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_CLONE, &m, NULL);
}
static void fold_first(void)
{
    Fp__SliceMapReply *map = look(ino, 1);
    Fp__Slice s = slice(1, 0, MIB, 0);
    Fp__CommitReply *r = commit(&s, 1, MIB, map->fold->map_sum);

    assert_false(r->fold_lost);
    fix_free(r);
    fix_free(map);
}

/* The copies in targets have these bytes, too; those of what it was before have not. */
static void test_fold_keeps_the_level_of_the_file(void **state)
{
    unsigned long long n = ino;
    struct mgr_inode in;

    (void)state;
    (void)patched();
    fix_sql(&f, "INSERT INTO tfile(id,target,path,dev,tino,size,mtime,refs,gone) VALUES(7,1,'a',1,1,1,1,1,0),(8,2,'a',1,1,1,1,1,0)");
    fix_sql(&f, "INSERT INTO drained(ino,target,tfile,data_version,verified,at_ns,sums) SELECT ino,1,7,data_version,1,1,x'' FROM inode WHERE ino=%llu", n);
    fix_sql(&f, "INSERT INTO drained(ino,target,tfile,data_version,verified,at_ns,sums) SELECT ino,2,8,data_version-1,1,1,x'' FROM inode WHERE ino=%llu", n);
    fix_sql(&f, "UPDATE inode SET flags=flags|%llu WHERE ino=%llu", (unsigned long long)MGR_DRAINS, n);
    fold_first();
    assert_int_equal(mgr_inode_get(f.core, ino, &in), 0);
    assert_int_equal(mgr_drained_level(f.core, &in), FP__LEVEL__LEVEL_VERIFIED);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM drained d JOIN inode i ON i.ino=d.ino AND i.data_version=d.data_version"), 1);
    put(1, 0, 100);
    assert_int_equal(mgr_inode_get(f.core, ino, &in), 0);
    assert_int_equal(mgr_drained_level(f.core, &in), FP__LEVEL__LEVEL_NONE);
}

/* Whatever happened to the window: the fold is as if it had never been, and its chunk is deleted. */
static void test_fold_is_lost_when_the_window_was_changed(void **state)
{
    static void (*const change[])(void) = {write_beside, write_same, truncate_it, punch, share, fold_first};

    (void)state;
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        Fp__SliceMapReply *map;
        Fp__Slice s = slice(1, 0, MIB, 0);
        Fp__CommitReply *r;
        int64_t slices, chunks, garbage;
        Fp__Attr a;

        fix_truncate(&f, ino, 0);
        patched();
        map = look(ino, 1);
        change[i]();
        assert_int_equal(f.status, 0);
        a = fix_attr(&f, ino);
        slices = fix_sql(&f, "SELECT count(*)*1000000+sum(off+len+chunk_off) FROM slice");
        chunks = fix_sql(&f, "SELECT count(*)*1000000+sum(refs) FROM chunk");
        garbage = fix_sql(&f, "SELECT count(*) FROM garbage");
        r = commit(&s, 1, MIB, map->fold->map_sum);
        assert_non_null(r);
        assert_true(r->fold_lost);
        assert_int_equal(r->attr->data_version, a.data_version);
        assert_int_equal(r->attr->size_bytes, a.size_bytes);
        assert_int_equal(fix_sql(&f, "SELECT count(*)*1000000+sum(off+len+chunk_off) FROM slice"), slices);
        assert_int_equal(fix_sql(&f, "SELECT count(*)*1000000+sum(refs) FROM chunk"), chunks);
        assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), garbage + 1);
        fix_free(r);
        fix_free(map);
        fix_check(&f);
    }
}

static void test_fold_holds_when_another_window_was_written(void **state)
{
    Fp__SliceMapReply *map;
    Fp__Slice s = slice(1, 0, MIB, 0);
    Fp__CommitReply *r;

    (void)state;
    patched();
    map = look(ino, 1);
    put(0, 0, 5000);
    put(2, 0, 5000);
    r = commit(&s, 1, MIB, map->fold->map_sum);
    assert_false(r->fold_lost);
    fix_free(r);
    fix_free(map);
}

/* A copy of what others keep would free nothing. */
static void test_fold_leaves_what_others_share(void **state)
{
    Fp__SliceMapReply *map;
    Fp__Slice s[2];
    Fp__CommitReply *r;
    int64_t shared;

    (void)state;
    put(1, 0, MIB);
    share();
    shared = fix_sql(&f, "SELECT chunk FROM slice LIMIT 1");
    for (int i = 0; i < 4; i++)
        put(1, 64 * KIB, 64 * KIB - (uint32_t)i * 8 * KIB);
    map = look(ino, 1);
    assert_int_equal(map->n_slices, 6);
    for (size_t i = 0; i < map->n_slices; i++)
        assert_int_equal(map->slices[i]->folds, map->slices[i]->chunk != (uint64_t)shared);
    assert_int_equal(map->fold->slices, 4);
    assert_int_equal(map->fold->new_bytes, 64 * KIB + 4096);
    s[0] = slice(1, 64 * KIB, 64 * KIB, 0);
    r = commit(s, 1, 64 * KIB, map->fold->map_sum);
    assert_false(r->fold_lost);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM slice"), 4);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM chunk"), 2);
    fix_free(r);
    fix_free(map);
}

static void test_fold_that_makes_no_sense_is_refused(void **state)
{
    Fp__SliceMapReply *map;
    Fp__Slice s[2] = {slice(1, 0, 1000, 0), slice(2, 0, 1000, 0)};

    (void)state;
    patched();
    map = look(ino, 1);
    assert_null(commit(s, 2, MIB, map->fold->map_sum)); /* of two windows */
    assert_int_equal(f.status, -EINVAL);
    assert_null(commit(s, 0, MIB, map->fold->map_sum)); /* of none */
    assert_int_equal(f.status, -EINVAL);
    fix_free(map);
}

/* Looking takes time, so that it is for those who ask. */
static void test_fold_is_told_of_only_when_asked(void **state)
{
    Fp__Fold h;

    (void)state;
    put(0, 0, MIB);
    asks = false;
    h = put(0, 0, MIB - 4096);
    assert_int_equal(h.gain_bytes, 0);
    asks = true;
    h = put(0, 0, MIB - 8192);
    assert_true(h.gain_bytes > MIB);
}

/* One commit looks at so many slices, of other windows each time. */
static void test_fold_looks_at_other_windows_each_time(void **state)
{
    enum { WINS = 12 };
    bool told[WINS] = {false};
    Fp__Slice s[8];

    (void)state;
    for (uint32_t w = 0; w < WINS; w++) {
        put(w, 0, MIB);
        for (uint32_t i = 0; i < 400; i++) /* 801 slices */
            put(w, 1000 + i * 2500, 1000);
    }
    for (uint32_t round = 0; round < 40; round++) {
        Fp__CommitReply *r;

        for (uint32_t i = 0; i < 8; i++)
            s[i] = slice((round * 4 + i) % WINS, 0, 10, 0);
        r = commit(s, 8, 10, 0);
        assert_non_null(r);
        assert_true(r->n_folds <= 5);
        for (size_t i = 0; i < r->n_folds; i++)
            told[r->folds[i]->win] = true;
        fix_free(r);
    }
    for (uint32_t w = 0; w < WINS; w++)
        assert_true(told[w]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fold_is_told_of_when_chunks_take_more_than_they_need, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fold_is_told_of_when_a_window_is_of_very_many_slices, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_a_version_keeps_is_folded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fold_replaces_what_it_was_made_of, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fold_keeps_the_level_of_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fold_is_lost_when_the_window_was_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fold_holds_when_another_window_was_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fold_leaves_what_others_share, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fold_that_makes_no_sense_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fold_is_told_of_only_when_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fold_looks_at_other_windows_each_time, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
