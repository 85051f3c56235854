/* What the manager does for strict files: the flag, maps by version, commits that append. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "mgr_one.h"

#define ROOT  MGR_ROOT_INO
#define REG   (S_IFREG | 0644)
#define DIR   (S_IFDIR | 0755)
#define CHUNK (64u << 10)
#define WINS  6u

static uint64_t file;

static int setup(void **state)
{
    (void)state;
    fix_open(&f, ":memory:", false);
    file = fix_mk(&f, ROOT, "a", REG);
    assert_int_equal(fix_set_xattr(&f, file, "user.fp.chunk_size", "64KiB", 0), 0);
    return 0;
}

static int open_file(uint64_t ino)
{
    Fp__Open m = FP__OPEN__INIT;

    m.ino = ino;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    return f.status;
}

static void test_strict_is_inherited_and_stays_while_the_file_is_open(void **state)
{
    Fp__RemoveXattr rm = FP__REMOVE_XATTR__INIT;
    Fp__Release rel = FP__RELEASE__INIT;
    uint64_t d = fix_mk(&f, ROOT, "d", DIR), sub, in, other = fix_mk(&f, ROOT, "other", REG), version;

    (void)state;
    assert_int_equal(fix_get_xattr(&f, d, "user.fp.strict", "0"), 0);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.strict", "2", 0), -EINVAL);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.strict", "-1", 0), -EINVAL);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.strict", "on", 0), -EINVAL);
    assert_int_equal(fix_set_xattr(&f, d, "user.fp.strict", "1", 0), 0);
    sub = fix_mk(&f, d, "sub", DIR);
    in = fix_mk(&f, sub, "file", REG);
    assert_true(fix_attr(&f, sub).strict && fix_attr(&f, in).strict && !fix_attr(&f, other).strict);
    assert_int_equal(fix_get_xattr(&f, in, "user.fp.strict", "1"), 0);

    assert_true(fix_write(&f, other, 0, 1000));
    assert_int_equal(open_file(other), 0);
    assert_int_equal(fix_set_xattr(&f, other, "user.fp.strict", "1", 0), -EBUSY);
    rel.ino = &other;
    rel.n_ino = 1;
    fix_notice(&f, f.conn, FP__MSG_TYPE__MSG_RELEASE, &rel);
    version = fix_attr(&f, other).data_version;
    assert_int_equal(fix_set_xattr(&f, other, "user.fp.strict", "1", 0), 0); /* it has data, which is no matter here */
    assert_true(fix_attr(&f, other).strict && fix_attr(&f, other).data_version > version);
    rm.ino = other;
    rm.name = fix_bin("user.fp.strict");
    rm.slot = 1;
    rm.slot_seq = ++f.seq;
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_REMOVEXATTR, &rm, NULL);
    assert_int_equal(f.status, 0);
    assert_false(fix_attr(&f, other).strict);
    assert_int_equal(fix_rename(&f, sub, "file", ROOT, "file", 0), 0);
    assert_true(fix_attr(&f, in).strict);
}

static Fp__SliceMapReply *get_strict(uint64_t ino, uint64_t count, uint64_t known)
{
    Fp__SliceMap m = FP__SLICE_MAP__INIT;

    m.ino = ino;
    m.win_count = count;
    m.known_version = known;
    m.whole = true;
    return fix_call(&f, f.conn, FP__MSG_TYPE__MSG_SLICEMAP, &m, &fp__slice_map_reply__descriptor);
}

static void test_map_at_a_version_that_is_known_has_no_slices(void **state)
{
    Fp__SliceMapReply *r;
    uint64_t version;

    (void)state;
    assert_true(fix_write(&f, file, 100, 100));
    version = fix_attr(&f, file).data_version;
    r = get_strict(file, 1, version);
    assert_true(r->same && r->n_slices == 0 && r->data_version == version && r->size_bytes == 200 && r->win_end == 1);
    fix_free(r);
    r = get_strict(file, 1, 0);
    assert_true(!r->same && r->n_slices == 1);
    fix_free(r);
    assert_true(fix_write(&f, file, 500, 100));
    r = get_strict(file, 1, version);
    assert_true(!r->same && r->n_slices == 2 && r->data_version == version + 1 && r->size_bytes == 600);
    fix_free(r);
}

/* In one answer, up to what an answer can hold; then it ends with a window. */
static void test_map_that_is_asked_for_as_a_whole(void **state)
{
    Fp__SliceMapReply *r;

    (void)state;
    fix_fill_map(&f, "a", 8, 10000);
    r = get_strict(file, 6, 0);
    assert_true(r->n_slices == 60000 && r->win_end == 6);
    fix_free(r);
    r = get_strict(file, 100, 0);
    assert_true(r->n_slices == 60000 && r->win_end == 6);
    fix_free(r);
}

/* len bytes as chunks of one window each, and the last in two slices. */
static int append(uint64_t ino, uint64_t first, uint32_t len, Fp__CommitReply **r)
{
    Fp__Commit c = FP__COMMIT__INIT;
    Fp__Chunk ch[4], *chs[4];
    Fp__Slice s[4], *ss[4];

    c.ino = ino;
    c.append = true;
    c.slices = ss;
    c.chunks = chs;
    c.size_bytes = len;
    for (uint32_t at = 0; at < len; at += CHUNK, c.n_slices++, c.n_chunks++) {
        size_t i = c.n_slices;

        fp__chunk__init(chs[i] = &ch[i]);
        fp__slice__init(ss[i] = &s[i]);
        ch[i].id = s[i].chunk = first + i;
        ch[i].len = s[i].len = len - at < CHUNK ? len - at : CHUNK;
        ch[i].stored_bytes = 4096 + CHUNK;
        ch[i].bnf = f.bnf;
        s[i].win = at / CHUNK;
    }
    *r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_COMMIT, &c, &fp__commit_reply__descriptor);
    return f.status;
}

static void test_commit_that_appends_goes_to_the_end(void **state)
{
    uint64_t id = f.session << 32 | 1000, ino = file, pos = 1000, at = 0;
    Fp__CommitReply *c;
    Fp__SliceMapReply *r;

    (void)state;
    assert_true(fix_write(&f, ino, 0, 1000));
    assert_int_equal(append(ino, id, 2 * CHUNK + 500, &c), 0);
    assert_int_equal(c->attr->size_bytes, 1000 + 2 * CHUNK + 500);
    fix_free(c);
    r = get_strict(ino, WINS, 0);
    assert_int_equal(r->n_slices, 1 + 2 * 2 + 1); /* both full ones lie across a bound */
    for (size_t i = 1; i < r->n_slices; i++) {
        const Fp__Slice *s = r->slices[i];

        assert_true(s->win * CHUNK + s->off == pos && s->chunk == id + at / CHUNK && s->chunk_off == at % CHUNK);
        pos += s->len;
        at += s->len;
    }
    fix_free(r);
    assert_int_equal(at, 2 * CHUNK + 500);
    assert_int_equal(fix_sql(&f, "SELECT sum(refs) FROM chunk"), 6);
    assert_int_equal(fix_truncate(&f, ino, 0), 0);
    assert_int_equal(append(ino, id + 10, 100, &c), 0);
    assert_int_equal(c->attr->size_bytes, 100);
    fix_free(c);
    assert_int_equal(fix_truncate(&f, ino, INT64_MAX - 50), 0);
    assert_int_equal(append(ino, id + 20, 100, &c), -EFBIG);
    assert_int_equal(append(MGR_ROOT_INO, id + 20, 100, &c), -EINVAL);
}

/* Is the benefactor told to delete it, by what was sent last? Then it has. */
static bool deletes(uint64_t chunk)
{
    const struct fix_out *o = fix_out_find(&f, f.bnf_conn, FP__MSG_TYPE__MSG_DELETE);
    Fp__ChunkList *l = o ? fp__chunk_list__unpack(NULL, o->len, o->bytes) : NULL;
    bool found = false;

    for (size_t i = 0; l && i < l->n_ids; i++)
        found |= l->ids[i] == chunk;
    if (l)
        fix_answer(&f, f.bnf_conn, FP__MSG_TYPE__MSG_DELETE, 0, l);
    if (l)
        fp__chunk_list__free_unpacked(l, NULL);
    return found;
}

static bool deleted_within(uint64_t chunk, unsigned ms)
{
    for (bool is = deletes(chunk);; is = deletes(chunk)) {
        if (is || ms < 500)
            return is;
        fix_keepalive(&f);
        fix_tick(&f, 500);
        ms -= 500;
    }
}

/* A read of it may be under way. What nobody reads like that goes at once, also of the same benefactor. */
static void test_what_is_read_strictly_is_deleted_a_little_later(void **state)
{
    uint64_t other = fix_mk(&f, ROOT, "other", REG), old = fix_write(&f, file, 0, 1000), of_other = fix_write(&f, other, 0, 1000);

    (void)state;
    fix_free(get_strict(file, 1, 0));
    assert_true(fix_write(&f, file, 0, 1000));
    assert_false(deletes(old));
    assert_true(fix_write(&f, other, 0, 1000));
    assert_true(deleted_within(of_other, 1500));
    assert_false(deletes(old));
    assert_true(deleted_within(old, 4000));

    old = fix_write(&f, file, 0, 1000); /* still within the time */
    assert_true(old && fix_write(&f, file, 0, 1000));
    assert_false(deleted_within(old, 1000));
    assert_true(deleted_within(old, 4000));
    assert_false(deleted_within(1, 25000)); /* not read any more for long */
    old = fix_write(&f, file, 0, 1000);
    assert_true(old && !deletes(old)); /* but the one before it */
    assert_true(fix_write(&f, file, 0, 1000));
    assert_true(deleted_within(old, 1500));
}

/* Where space is short nothing waits. */
static void test_what_is_read_strictly_goes_at_once_where_space_is_short(void **state)
{
    uint64_t old = fix_write(&f, file, 0, 1000);

    (void)state;
    fix_free(get_strict(file, 1, 0));
    mgr_bnf_find(f.core, f.bnf)->capacity = 5 * 4096;
    assert_true(old && fix_write(&f, file, 0, 1000));
    assert_true(deleted_within(old, 500));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_strict_is_inherited_and_stays_while_the_file_is_open),
        T(test_map_at_a_version_that_is_known_has_no_slices),
        T(test_map_that_is_asked_for_as_a_whole),
        T(test_commit_that_appends_goes_to_the_end),
        T(test_what_is_read_strictly_is_deleted_a_little_later),
        T(test_what_is_read_strictly_goes_at_once_where_space_is_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
