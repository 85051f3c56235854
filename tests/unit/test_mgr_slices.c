/* The slice map against a model: for each byte of a file, which byte of which chunk it is. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "fp/auxwire.h"
#include "mgr_one.h"

#define CHUNK (64u << 10)
#define WINS  6u
#define GRAIN 1024u /* the model has one cell per so many bytes */
#define CELLS (WINS * CHUNK / GRAIN)

struct cell {
    uint64_t chunk; /* 0: hole */
    uint32_t off;   /* cell of the chunk */
};
struct model {
    uint64_t ino, size;
    struct cell cell[CELLS];
};

static struct model file[2];

static void new_file(struct model *m, const char *name)
{
    memset(m, 0, sizeof *m);
    m->ino = fix_mk(&f, MGR_ROOT_INO, name, S_IFREG | 0644);
    assert_int_equal(fix_set_xattr(&f, m->ino, "user.fp.chunk_size", "64KiB", 0), 0);
}

static int setup(void **state)
{
    (void)state;
    fix_open(&f, ":memory:", false);
    new_file(&file[0], "a");
    new_file(&file[1], "b");
    return 0;
}

static Fp__SliceMapReply *get_map(uint64_t ino, uint64_t from, uint64_t count)
{
    Fp__SliceMap m = FP__SLICE_MAP__INIT;

    m.ino = ino;
    m.win_from = from;
    m.win_count = count;
    return fix_call(&f, f.conn, FP__MSG_TYPE__MSG_SLICEMAP, &m, &fp__slice_map_reply__descriptor);
}

static void compare(const struct model *m)
{
    static struct cell got[CELLS];
    Fp__SliceMapReply *r = get_map(m->ino, 0, WINS + 1);
    uint64_t last = 0, mapped = 0;

    assert_non_null(r);
    memset(got, 0, sizeof got);
    assert_int_equal(r->size_bytes, m->size);
    for (size_t i = 0; i < r->n_slices; i++) {
        const Fp__Slice *s = r->slices[i];
        uint64_t pos = s->win * CHUNK + s->off;

        assert_true(pos >= last && s->len > 0 && s->off + s->len <= CHUNK);
        assert_true(s->chunk_off + s->len <= (s->data_len ? s->data_len : s->chunk_len));
        assert_true(!s->data_len == !(s->chunk % 3));
        assert_int_equal(s->bnf, f.bnf);
        last = pos + s->len;
        mapped += s->len;
        for (uint32_t k = 0; k < s->len / GRAIN; k++)
            got[pos / GRAIN + k] = (struct cell){s->chunk, s->chunk_off / GRAIN + k};
    }
    for (size_t i = 0; i < CELLS; i++)
        assert_true(got[i].chunk == m->cell[i].chunk && (!got[i].chunk || got[i].off == m->cell[i].off));
    assert_int_equal(fix_attr(&f, m->ino).blocks, mapped / 512);
    fix_free(r);
}

static Fp__CtlLayoutReply *get_layout(uint64_t ino)
{
    Fp__CtlLayout m = FP__CTL_LAYOUT__INIT;

    m.ino = ino;
    return fix_call(&f, f.conn, FP__MSG_TYPE__MSG_CTL_LAYOUT, &m, &fp__ctl_layout_reply__descriptor);
}

static size_t count(const Fp__SliceMapReply *r, uint64_t chunk)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n_slices; i++)
        n += r->slices[i]->chunk == chunk;
    return n;
}

static uint64_t stored_of(const Fp__Slice *s)
{
    return 4096 + (s->chunk_len + 4095) / 4096 * 4096;
}

/* The totals of a layout, from the maps of both files. Returns the file's share of what is stored. */
static uint64_t compare_layout(const struct model *m, const struct model *other)
{
    Fp__SliceMapReply *mine = get_map(m->ino, 0, WINS + 1), *theirs = get_map(other->ino, 0, WINS + 1);
    Fp__CtlLayoutReply *r = get_layout(m->ino);
    uint64_t chunks = 0, stored = 0, shared = 0, cost = 0, bytes = 0;

    for (size_t i = 0; i < mine->n_slices; i++) {
        const Fp__Slice *s = mine->slices[i];
        size_t n = count(mine, s->chunk), more = count(theirs, s->chunk);
        bool first = true;

        bytes += s->len;
        for (size_t k = 0; k < i; k++)
            first &= mine->slices[k]->chunk != s->chunk;
        if (!first)
            continue;
        chunks++;
        stored += stored_of(s);
        shared += more > 0;
        cost += stored_of(s) * n / (n + more);
    }
    assert_int_equal(r->slice_count, mine->n_slices);
    assert_int_equal(r->chunk_count, chunks);
    assert_int_equal(r->stored_bytes, stored);
    assert_int_equal(r->shared_chunks, shared);
    assert_int_equal(r->saved_bytes, bytes > cost ? bytes - cost : 0);
    assert_false(r->partial);
    for (size_t i = 0; i < r->n_slices; i++)
        assert_int_equal(r->slices[i]->data_len, mine->slices[i]->data_len);
    fix_free(r);
    fix_free(mine);
    fix_free(theirs);
    return cost;
}

/* Both files together cost what is stored, but for what is rounded down. */
static void compare_layouts(void)
{
    uint64_t sum = compare_layout(&file[0], &file[1]) + compare_layout(&file[1], &file[0]);
    int64_t stored = fix_sql(&f, "SELECT stored FROM benefactor"), chunks = fix_sql(&f, "SELECT count(*) FROM chunk");

    assert_true((int64_t)sum <= stored && (int64_t)sum + chunks >= stored);
}

/* Those whose number is no multiple of 3 are coded: what is stored is less, or as much more as it may be. */
static void new_chunk(Fp__Chunk *ch)
{
    fp__chunk__init(ch);
    ch->id = f.session << 32 | ++f.next_chunk;
    ch->len = CHUNK;
    if (ch->id % 3) {
        ch->data_len = CHUNK;
        ch->len = random() & 1 ? 1 + (uint32_t)random() % CHUNK : CHUNK + 4096 + FP_ENVELOPE_MAX_BYTES;
    }
    ch->stored_bytes = 4096 + (ch->len + 4095) / 4096 * 4096;
    ch->bnf = f.bnf;
}

/* One commit of several slices of one or two new chunks, and now and then of an older chunk, or a hole. */
static void op_commit(struct model *m)
{
    enum { N = 4 };
    Fp__Commit c = FP__COMMIT__INIT;
    Fp__Chunk ch[2], *chs[2];
    Fp__Slice s[N], *ss[N];
    uint32_t n = 1 + (uint32_t)random() % N;
    uint64_t known = m->cell[(size_t)random() % CELLS].chunk;

    for (size_t i = 0; i < 2; i++) {
        new_chunk(&ch[i]);
        chs[i] = &ch[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t off = (uint32_t)random() % (CHUNK / GRAIN),
                 len = 1 + (uint32_t)random() % (CHUNK / GRAIN - off);
        uint32_t at = (uint32_t)random() % (CHUNK / GRAIN - len + 1);
        uint64_t pos;

        fp__slice__init(&s[i]);
        s[i].win = (uint64_t)random() % WINS;
        s[i].off = off * GRAIN;
        if (i && random() & 1 && s[i - 1].off + s[i - 1].len < CHUNK) { /* goes on where the one before ends */
            s[i].win = s[i - 1].win;
            s[i].off = s[i - 1].off + s[i - 1].len;
            len = 1 + (uint32_t)random() % ((CHUNK - s[i].off) / GRAIN);
            at = (uint32_t)random() % (CHUNK / GRAIN - len + 1);
        }
        s[i].len = len * GRAIN;
        s[i].chunk = random() % 5 == 0              ? 0
                     : known && random() % 4 == 0 ? known
                                                  : ch[random() % 2].id;
        s[i].chunk_off = at * GRAIN;
        ss[i] = &s[i];
        pos = s[i].win * CHUNK + s[i].off;
        for (uint32_t k = 0; k < len; k++)
            m->cell[pos / GRAIN + k] = s[i].chunk ? (struct cell){s[i].chunk, at + k} : (struct cell){0, 0};
        if (pos + s[i].len > m->size)
            m->size = pos + s[i].len;
    }
    c.slot = 1;
    c.slot_seq = ++f.seq;
    c.ino = m->ino;
    c.chunks = chs;
    c.n_chunks = 2;
    c.slices = ss;
    c.n_slices = n;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_COMMIT, &c, &fp__commit_reply__descriptor));
    assert_int_equal(f.status, 0);
}

static void op_truncate(struct model *m)
{
    uint64_t cells = (uint64_t)random() % CELLS;

    assert_int_equal(fix_truncate(&f, m->ino, cells * GRAIN), 0);
    for (uint64_t i = cells; i < CELLS; i++)
        m->cell[i] = (struct cell){0, 0};
    m->size = cells * GRAIN;
}

static void op_punch(struct model *m)
{
    Fp__Punch p = FP__PUNCH__INIT;
    uint64_t from = (uint64_t)random() % CELLS, n = (uint64_t)random() % (CELLS - from);

    p.slot = 1;
    p.slot_seq = ++f.seq;
    p.ino = m->ino;
    p.off = from * GRAIN;
    p.len = n * GRAIN;
    p.size_bytes = random() % 4 ? 0 : (from + n) * GRAIN;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_PUNCH, &p, &fp__commit_reply__descriptor));
    assert_int_equal(f.status, 0);
    for (uint64_t i = from; i < from + n; i++)
        m->cell[i] = (struct cell){0, 0};
    if (p.size_bytes > m->size)
        m->size = p.size_bytes;
}

static void op_clone(struct model *src, struct model *dst)
{
    static struct cell copy[CELLS];
    Fp__Clone k = FP__CLONE__INIT;
    uint64_t from = (uint64_t)random() % CELLS, to = (uint64_t)random() % CELLS;
    uint64_t n = (uint64_t)random() % (CELLS - (from > to ? from : to)), got;
    Fp__CommitReply *r;

    k.slot = 1;
    k.slot_seq = ++f.seq;
    k.src_ino = src->ino;
    k.src_off = from * GRAIN;
    k.dst_ino = dst->ino;
    k.dst_off = to * GRAIN;
    k.len = n * GRAIN;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_CLONE, &k, &fp__commit_reply__descriptor);
    got = from * GRAIN >= src->size ? 0 : (src->size - from * GRAIN) / GRAIN;
    got = got < n ? got : n;
    assert_true(!r || (r->copied_bytes == got * GRAIN && r->copied_nothing == (got == 0)));
    fix_free(r);
    if (src == dst && from < to + got && to < from + got) {
        assert_int_equal(f.status, -EINVAL);
        return;
    }
    assert_int_equal(f.status, 0);
    memcpy(copy, src->cell + from, got * sizeof copy[0]);
    memcpy(dst->cell + to, copy, got * sizeof copy[0]);
    if (got && (to + got) * GRAIN > dst->size)
        dst->size = (to + got) * GRAIN;
}

static void op_seek(const struct model *m)
{
    Fp__Seek k = FP__SEEK__INIT;
    Fp__SeekReply *r;
    uint64_t at = (uint64_t)random() % CELLS, i = at;

    k.ino = m->ino;
    k.off = at * GRAIN;
    k.hole = random() & 1;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_SEEK, &k, &fp__seek_reply__descriptor);
    while (i * GRAIN < m->size && !m->cell[i].chunk == !k.hole)
        i++;
    if (k.off >= m->size || (!k.hole && i * GRAIN >= m->size)) {
        assert_int_equal(f.status, -ENXIO);
    } else {
        assert_int_equal(f.status, 0);
        assert_int_equal(r->off, i * GRAIN);
    }
    fix_free(r);
}

static void test_random_changes_match_the_model(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 4; seed++) {
        srandom(seed);
        for (int i = 0; i < 600; i++) {
            struct model *m = &file[random() & 1];

            switch (random() % 8) {
            case 0:
            case 1:
            case 2:
                op_commit(m);
                break;
            case 3:
                if (random() % 4 == 0)
                    op_truncate(m);
                break;
            case 4:
                op_punch(m);
                break;
            case 5:
                op_clone(m, &file[random() & 1]);
                break;
            default:
                op_seek(m);
                break;
            }
            compare(m);
            if (i % 50 == 0) {
                fix_check(&f);
                compare_layouts();
            }
        }
    }
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "a", false), 0);
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "b", false), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM chunk"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM slice"), 0);
}

static int commit_coded(uint64_t ino, uint64_t chunk, uint32_t chunk_len, uint32_t data_len, uint32_t len,
                        uint32_t at)
{
    Fp__Commit c = FP__COMMIT__INIT;
    Fp__Chunk ch = FP__CHUNK__INIT, *chs = &ch;
    Fp__Slice s = FP__SLICE__INIT, *ss = &s;

    ch.id = chunk;
    ch.len = chunk_len;
    ch.data_len = data_len;
    ch.stored_bytes = 4096 + (chunk_len + 4095) / 4096 * 4096;
    ch.bnf = f.bnf;
    s.len = len;
    s.chunk = chunk;
    s.chunk_off = at;
    c.ino = ino;
    c.chunks = &chs;
    c.n_chunks = 1;
    c.slices = &ss;
    c.n_slices = 1;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_COMMIT, &c, &fp__commit_reply__descriptor));
    return f.status;
}

static void test_slices_of_coded_chunks_count_in_bytes_of_data(void **state)
{
    const uint32_t most = CHUNK + FP_AUX_EXPAND_MAX_BYTES + FP_ENVELOPE_MAX_BYTES;
    uint64_t id = f.session << 32 | 1000, ino = file[0].ino;
    Fp__SliceMapReply *r;

    (void)state;
    assert_int_equal(commit_coded(ino, id, 500, 8192, 8192, 1), -EINVAL);
    assert_int_equal(commit_coded(ino, id, 500, 0, 501, 0), -EINVAL);
    assert_int_equal(commit_coded(ino, id, 500, CHUNK + 1, 8192, 0), -EINVAL);
    assert_int_equal(commit_coded(ino, id, most + 1, CHUNK, CHUNK, 0), -EINVAL);
    assert_int_equal(commit_coded(ino, id, most, 0, CHUNK, 0), -EINVAL);
    assert_int_equal(commit_coded(ino, id, 0, CHUNK, CHUNK, 0), -EINVAL);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM chunk"), 0);
    assert_int_equal(commit_coded(ino, id, 500, 8192, 4096, 4096), 0);
    assert_int_equal(commit_coded(ino, id, 500, 8192, 4096, 4096), 0); /* known */
    assert_int_equal(commit_coded(ino, id, 500, 8191, 4096, 4095), -EINVAL);
    assert_int_equal(commit_coded(ino, id + 1, most, CHUNK, CHUNK, 0), 0);
    r = get_map(ino, 0, 1);
    assert_int_equal(r->n_slices, 1);
    assert_int_equal(r->slices[0]->chunk_len, most);
    assert_int_equal(r->slices[0]->data_len, CHUNK);
    fix_free(r);
    assert_int_equal(fix_attr(&f, ino).blocks, CHUNK / 512); /* what is mapped, not what is stored */
}

static int commit_one(uint64_t ino, uint64_t chunk, uint32_t chunk_len, uint32_t off, uint32_t len,
                      uint32_t at)
{
    Fp__Commit c = FP__COMMIT__INIT;
    Fp__Chunk ch = FP__CHUNK__INIT, *chs = &ch;
    Fp__Slice s = FP__SLICE__INIT, *ss = &s;

    ch.id = chunk;
    ch.len = chunk_len;
    ch.stored_bytes = 8192;
    ch.bnf = f.bnf;
    s.off = off;
    s.len = len;
    s.chunk = chunk;
    s.chunk_off = at;
    c.ino = ino;
    c.chunks = &chs;
    c.n_chunks = 1;
    c.slices = &ss;
    c.n_slices = 1;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_COMMIT, &c, &fp__commit_reply__descriptor));
    return f.status;
}

static void test_commit_refuses_what_does_not_fit(void **state)
{
    uint64_t id = f.session << 32 | 1000, ino = file[0].ino;

    (void)state;
    assert_int_equal(commit_one(ino, id, 100, CHUNK - 50, 100, 0), -EINVAL);
    assert_int_equal(commit_one(ino, id, 100, 0, 100, 1), -EINVAL);
    assert_int_equal(commit_one(ino, id, 100, 0, 0, 0), -EINVAL);
    assert_int_equal(commit_one(ino, id, CHUNK + 1, 0, 100, 0), -EINVAL);
    assert_int_equal(commit_one(ino, UINT64_C(77) << 32 | 1, 100, 0, 100, 0), -EINVAL);
    assert_int_equal(commit_one(MGR_ROOT_INO, id, 100, 0, 100, 0), -EINVAL);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM chunk"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 0);
    assert_int_equal(commit_one(ino, id, 100, 0, 100, 0), 0);
    assert_int_equal(commit_one(ino, id, 100, 200, 100, 0), 0); /* the same chunk once more: known */
    assert_int_equal(fix_sql(&f, "SELECT refs FROM chunk"), 2);
    assert_int_equal(commit_one(ino, id, 101, 200, 100, 0), -EINVAL);
}

static void test_commit_to_a_vanished_file_makes_garbage(void **state)
{
    uint64_t id = f.session << 32 | 5;

    (void)state;
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "a", false), 0);
    assert_int_equal(commit_one(file[0].ino, id, 100, 0, 100, 0), -ENOENT);
    assert_int_equal(commit_one(file[0].ino, id, 100, 0, 100, 0), -ENOENT);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 1);
    assert_int_equal(commit_one(file[1].ino, id, 100, 0, 100, 0), -EIO); /* it is being deleted */
}

static void test_overwritten_chunk_becomes_garbage(void **state)
{
    uint64_t a, b;

    (void)state;
    a = fix_write(&f, file[0].ino, 0, 5000);
    b = fix_write(&f, file[0].ino, 0, 4000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM slice"), 2);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 0);
    assert_true(a && b && fix_write(&f, file[0].ino, 3000, 3000));
    assert_int_equal(fix_sql(&f, "SELECT chunk FROM garbage"), (int64_t)a);
    assert_int_equal(fix_attr(&f, file[0].ino).size_bytes, 6000);
}

static void test_hole_in_a_commit_cuts_and_extends(void **state)
{
    Fp__Commit c = FP__COMMIT__INIT;
    Fp__Slice s[2] = {FP__SLICE__INIT, FP__SLICE__INIT}, *ss[2] = {&s[0], &s[1]};
    uint64_t ino = file[0].ino;

    (void)state;
    assert_int_not_equal(fix_write(&f, ino, 0, CHUNK), 0);
    s[0].len = CHUNK;
    s[1].win = 2;
    s[1].off = 4096;
    s[1].len = 4096;
    c.ino = ino;
    c.slices = ss;
    c.n_slices = 2;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_COMMIT, &c, &fp__commit_reply__descriptor));
    assert_int_equal(f.status, 0);
    assert_int_equal(fix_attr(&f, ino).size_bytes, 2 * CHUNK + 8192);
    assert_int_equal(fix_attr(&f, ino).blocks, 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM slice"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 1);
    s[1].off = CHUNK - 1;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_COMMIT, &c, &fp__commit_reply__descriptor));
    assert_int_equal(f.status, -EINVAL);
}

static void test_one_slice_covers_very_many(void **state)
{
    uint64_t ino = file[0].ino;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_not_equal(fix_write(&f, ino, i * 16, 8), 0);
    assert_int_not_equal(fix_write(&f, ino, 4, 999 * 16), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM slice"), 3);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 998);
    assert_int_equal(fix_sql(&f, "SELECT mapped FROM inode ORDER BY mapped DESC"), 4 + 999 * 16 + 4);
}

static void test_held_chunk_is_not_a_shared_one(void **state)
{
    uint64_t a = fix_write(&f, file[0].ino, 0, CHUNK);
    Fp__Hold h = FP__HOLD__INIT;
    Fp__Clone k = FP__CLONE__INIT;
    Fp__CtlLayoutReply *r;

    (void)state;
    h.ids = &a;
    h.n_ids = 1;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_HOLD, &h, &fp__hold_reply__descriptor));
    r = get_layout(file[0].ino);
    assert_true(r->shared_chunks == 0 && r->saved_bytes == 0);
    assert_int_equal(r->stored_bytes, CHUNK + 4096);
    fix_free(r);
    k.src_ino = file[0].ino;
    k.dst_ino = file[1].ino;
    k.len = CHUNK;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_CLONE, &k, &fp__commit_reply__descriptor));
    r = get_layout(file[1].ino);
    assert_int_equal(r->shared_chunks, 1);
    assert_int_equal(r->saved_bytes, CHUNK - (CHUNK + 4096) / 2);
    fix_free(r);
    r = get_layout(MGR_ROOT_INO);
    assert_true(r->shared_chunks == 0 && r->slice_count == 0);
    fix_free(r);
}

/* A file of very many slices does not keep the manager from its work. */
static void test_layout_counts_so_many_slices(void **state)
{
    Fp__CtlLayoutReply *r;

    (void)state;
    assert_int_not_equal(fix_write(&f, file[0].ino, 0, 8), 0);
    fix_sql(&f, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<131072) INSERT INTO slice "
                "SELECT ino,1+i/1000,i%%1000*8,8,chunk,0 FROM slice,n");
    fix_sql(&f, "UPDATE chunk SET refs=(SELECT count(*) FROM slice)");
    fix_sql(&f, "UPDATE counters SET slices=(SELECT count(*) FROM slice)");
    fix_sql(&f, "UPDATE inode SET mapped=(SELECT sum(len) FROM slice) WHERE ino=(SELECT ino FROM slice)");
    assert_int_equal(mgr_reload(f.core), 0);
    r = get_layout(file[0].ino);
    assert_true(r->partial);
    assert_int_equal(r->slice_count, 131072);
    assert_int_equal(r->chunk_count, 1);
    assert_int_equal(r->n_slices, 4096);
    assert_true(r->more);
    fix_free(r);
}

static void test_map_of_a_long_file_comes_in_parts(void **state)
{
    uint64_t win = 0, seen = 0;

    (void)state;
    fix_fill_map(&f, "a", 10000, 1);
    while (win < 10000) {
        Fp__SliceMapReply *r = get_map(file[0].ino, win, 20000);

        assert_true(r->n_slices > 0 && r->slices[0]->win == win);
        seen += r->n_slices;
        assert_true(r->win_end > win);
        win = r->win_end;
        fix_free(r);
    }
    assert_int_equal(seen, 10000);
    /* and goes in parts: one step at once, the rest in the groups after */
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "a", false), 0);
    assert_true(mgr_core_busy(f.core));
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM slice"), 10000 - MGR_RECLAIM_STEP);
    assert_int_equal(fix_attr(&f, file[0].ino).nlink, 0);
    fix_tick(&f, 3000);
    assert_int_equal(fix_attr(&f, file[0].ino).ino, 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 10000);
}

/* Which benefactors an fsync by conn has to ask, as bits by number; -1: all. */
static int to_sync(struct mgr_conn *conn, uint64_t ino, uint64_t known_version)
{
    Fp__Sync m = FP__SYNC__INIT;
    Fp__SyncReply *r;
    int bits = 0;

    m.ino = ino;
    m.known_version = known_version;
    r = fix_call(&f, conn, FP__MSG_TYPE__MSG_SYNC, &m, &fp__sync_reply__descriptor);
    assert_non_null(r);
    for (size_t i = 0; i < r->n_bnfs; i++)
        bits |= 1 << r->bnfs[i];
    bits = r->all ? -1 : bits;
    fix_free(r);
    return bits;
}

static void test_sync_names_the_benefactors_of_others_chunks(void **state)
{
    struct mgr_conn *second = fix_conn(&f), *third = fix_conn(&f);
    uint32_t bnf2 = fix_hello_bnf(&f, third, 77, 1u << 30), bnf1 = f.bnf;
    uint64_t ino = file[0].ino;

    (void)state;
    fix_hello_client(&f, second, 0, NULL);
    assert_int_not_equal(fix_write(&f, ino, 0, CHUNK), 0);
    assert_int_equal(to_sync(f.conn, ino, 0), 0); /* its own */
    assert_int_equal(to_sync(second, ino, 0), 1 << bnf1);
    assert_int_equal(to_sync(second, ino, fix_attr(&f, ino).data_version), 0);
    f.bnf = bnf2;
    assert_int_not_equal(fix_write(&f, ino, CHUNK, CHUNK), 0);
    assert_int_equal(to_sync(second, ino, fix_attr(&f, ino).data_version - 1), 1 << bnf1 | 1 << bnf2);
    assert_int_not_equal(fix_write(&f, ino, 0, CHUNK), 0);
    assert_int_equal(to_sync(second, ino, 0), 1 << bnf2);
    assert_int_equal(to_sync(second, 0, 0), 0);
    assert_int_equal(to_sync(second, 987654, 0), 0); /* gone: its names are synced all the same */
    f.bnf = bnf1;
    fix_lost(&f, second);
    fix_lost(&f, third);
}

/* A manager that is busy for seconds would stop everybody. */
static void test_sync_of_a_file_with_very_many_chunks_names_all(void **state)
{
    struct mgr_conn *second = fix_conn(&f), *third = fix_conn(&f);
    uint64_t ino = file[0].ino;

    (void)state;
    fix_hello_client(&f, second, 0, NULL);
    fix_hello_bnf(&f, third, 78, 1u << 30); /* has nothing: the search can't end early */
    for (uint64_t i = 0; i < 8200; i++)
        assert_int_not_equal(fix_write(&f, ino, i * 8, 8), 0);
    assert_int_equal(to_sync(second, ino, 0), -1);
    assert_int_equal(to_sync(f.conn, ino, 0), 0);
    fix_lost(&f, second);
    fix_lost(&f, third);
}

/* One chunk, in n slices of `len` bytes at every second `len` bytes from pos on. */
static int write_comb(uint64_t ino, uint64_t pos, uint32_t len, size_t n)
{
    static Fp__Slice s[1024], *ss[1024];
    Fp__Commit m = FP__COMMIT__INIT;
    Fp__Chunk ch = FP__CHUNK__INIT, *chs = &ch;

    ch.id = f.session << 32 | ++f.next_chunk;
    ch.len = len;
    ch.stored_bytes = 8192;
    ch.sum = ch.id;
    ch.bnf = f.bnf;
    for (size_t i = 0; i < n; i++) {
        fp__slice__init(&s[i]);
        s[i].win = pos / (2 * CHUNK);
        s[i].off = (uint32_t)(pos % (2 * CHUNK) + 2 * i * len);
        s[i].len = len;
        s[i].chunk = ch.id;
        ss[i] = &s[i];
    }
    m.slot = 1;
    m.slot_seq = ++f.seq;
    m.ino = ino;
    m.n_chunks = 1;
    m.n_slices = n;
    m.chunks = &chs;
    m.slices = ss;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_COMMIT, &m, &fp__commit_reply__descriptor));
    return f.status;
}

static uint64_t comb_file(const char *name)
{
    uint64_t ino = fix_mk(&f, MGR_ROOT_INO, name, S_IFREG | 0644);

    assert_int_equal(fix_set_xattr(&f, ino, "user.fp.chunk_size", "128KiB", 0), 0);
    return ino;
}

static void test_a_window_gets_no_more_pieces_than_can_be_read(void **state)
{
    uint64_t ino = comb_file("comb"), before;
    Fp__SliceMapReply *r;
    int rc = 0;

    (void)state;
    for (uint64_t at = 0; at < 2 * CHUNK && rc == 0; at += 2048)
        rc = write_comb(ino, at, 1, 1024);
    assert_int_equal(rc, -EFBIG);
    while ((rc = write_comb(ino, 2 * CHUNK - 2048 + f.next_chunk % 512 * 4, 1, 2)) == 0)
        ;
    assert_int_equal(rc, -EFBIG);
    before = (uint64_t)fix_sql(&f, "SELECT count(*) FROM slice");
    assert_in_range(before, MGR_WINDOW_MAX - 2048, MGR_WINDOW_MAX);
    assert_int_equal(write_comb(ino, 2 * CHUNK - 64, 1, 30), -EFBIG);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM slice"), before); /* refused before anything was changed */
    r = get_map(ino, 0, 1);
    assert_non_null(r);
    assert_int_equal(r->n_slices, before);
    fix_free(r);
    assert_int_equal(write_comb(ino, 2 * CHUNK, 1, 1024), 0); /* the next window */
    /* whole: it replaces what is there */
    assert_int_not_equal(fix_write(&f, ino, 0, 2 * CHUNK), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM slice WHERE win=0"), 1);
}

static void test_punch_and_clone_keep_to_the_pieces_of_a_window(void **state)
{
    uint64_t ino = comb_file("comb"), copy = comb_file("copy");
    uint32_t at = 0;
    int rc;

    (void)state;
    assert_int_not_equal(fix_write(&f, ino, 0, 2 * CHUNK), 0);
    for (; at < 31 * 2048; at += 2048) /* each tooth cuts the rest in two */
        assert_int_equal(write_comb(ino, at, 1, 1024), 0);
    assert_int_equal(fix_clone(&f, ino, copy, CHUNK, CHUNK), 0);
    assert_int_equal(fix_clone(&f, ino, copy, 0, CHUNK), -EOPNOTSUPP); /* the client copies */
    assert_in_range(fix_attr(&f, copy).data_version, 2, 3);
    while ((rc = write_comb(ino, at, 1, 200)) == 0)
        at += 400;
    assert_int_equal(rc, -EFBIG);
    for (rc = 0, at = CHUNK; at < 2 * CHUNK && rc == 0; at += 2)
        rc = fix_punch(&f, ino, at, 1);
    assert_int_equal(rc, -EFBIG);
    assert_int_equal(fix_sql(&f, "SELECT max(n) FROM (SELECT count(*) AS n FROM slice GROUP BY ino, win)"), MGR_WINDOW_MAX);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_random_changes_match_the_model),          T(test_commit_refuses_what_does_not_fit),
        T(test_commit_to_a_vanished_file_makes_garbage), T(test_overwritten_chunk_becomes_garbage),
        T(test_slices_of_coded_chunks_count_in_bytes_of_data), T(test_hole_in_a_commit_cuts_and_extends),
        T(test_held_chunk_is_not_a_shared_one),          T(test_layout_counts_so_many_slices),
        T(test_one_slice_covers_very_many),              T(test_map_of_a_long_file_comes_in_parts),
        T(test_sync_names_the_benefactors_of_others_chunks),
        T(test_sync_of_a_file_with_very_many_chunks_names_all),
        T(test_a_window_gets_no_more_pieces_than_can_be_read),
        T(test_punch_and_clone_keep_to_the_pieces_of_a_window),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
