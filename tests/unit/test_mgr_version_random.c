/* Versions against a plain model: a file is what its cells say, and what comes back when its writer dies is the copy that the model made when the epoch began. With a level that is never
 * reached, what was there before all that was published since is kept, too, and comes back when it is asked for. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "life.pb-c.h"
#include "mgr_fixture.h"

#define CHUNK (64u << 10)
#define WINS  6u
#define GRAIN 4096u /* a cell is so many bytes */
#define CELLS (WINS * CHUNK / GRAIN)
#define FILES 2
#define OPS   10000

struct cell {
    uint64_t chunk; /* 0: hole */
    uint32_t off;   /* cell of the chunk */
};
struct data {
    uint64_t size;
    struct cell cell[CELLS];
};
struct model {
    uint64_t ino;
    struct data is, good, waited;
    bool open, epoch, kept; /* kept: good is there */
    bool waits;             /* waited is there */
};

static struct fix f;
static struct model file[FILES];
static bool declared;
static struct mgr_conn *ctl;
static bool taken_back; /* the group that is under way will fail */

static void new_file(struct model *m, const char *name)
{
    memset(m, 0, sizeof *m);
    m->ino = fix_mk(&f, MGR_ROOT_INO, name, S_IFREG | 0644);
    assert_int_equal(fix_set_xattr(&f, m->ino, "user.fp.chunk_size", "64KiB", 0), 0);
}

static bool is_empty(const struct data *d)
{
    for (size_t i = 0; i < CELLS; i++)
        if (d->cell[i].chunk)
            return false;
    return d->size == 0;
}

/* Before it is changed. */
static void changes(struct model *m)
{
    if (!m->open || m->epoch)
        return;
    m->epoch = true;
    m->kept = !is_empty(&m->is);
    m->good = m->is;
}

/* It has ended well. */
static void ends(struct model *m)
{
    if (declared && m->epoch && m->kept && !m->waits) {
        m->waits = true;
        m->waited = m->good;
    }
    m->epoch = m->kept = false;
}

static bool fails(void)
{
    taken_back = random() % 24 == 0;
    f.doom = taken_back ? -ENOSPC : 0;
    return taken_back;
}

/* All is as before, but which of its epochs had nothing to keep is forgotten. */
static void undo(const struct model before[FILES])
{
    memcpy(file, before, sizeof file);
    for (size_t i = 0; i < FILES; i++)
        file[i].epoch &= file[i].kept;
}

static void op_commit(struct model *m)
{
    enum { N = 4 };
    Fp__Commit c = FP__COMMIT__INIT;
    Fp__Chunk ch = FP__CHUNK__INIT, *chs = &ch;
    Fp__Slice s[N], *ss[N];
    uint32_t n = 1 + (uint32_t)random() % N;

    changes(m);
    ch.id = f.session << 32 | ++f.next_chunk;
    ch.len = CHUNK;
    ch.stored_bytes = 4096 + CHUNK;
    ch.bnf = f.bnf;
    for (uint32_t i = 0; i < n; i++) {
        bool whole = random() % 3 == 0;
        uint32_t off = whole ? 0 : (uint32_t)random() % (CHUNK / GRAIN), len = whole ? CHUNK / GRAIN : 1 + (uint32_t)random() % (CHUNK / GRAIN - off);
        uint32_t at = (uint32_t)random() % (CHUNK / GRAIN - len + 1);

        fp__slice__init(&s[i]);
        s[i].win = i && random() & 1 ? (s[i - 1].win + 1) % WINS : (uint64_t)random() % WINS;
        s[i].off = off * GRAIN;
        s[i].len = len * GRAIN;
        s[i].chunk = random() % 8 ? ch.id : 0;
        s[i].chunk_off = s[i].chunk ? at * GRAIN : 0;
        ss[i] = &s[i];
        for (uint32_t k = 0; k < len; k++)
            m->is.cell[s[i].win * (CHUNK / GRAIN) + off + k] = s[i].chunk ? (struct cell){ch.id, at + k} : (struct cell){0};
        if (m->is.size < s[i].win * CHUNK + s[i].off + s[i].len)
            m->is.size = s[i].win * CHUNK + s[i].off + s[i].len;
    }
    c.slot = 1;
    c.slot_seq = ++f.seq;
    c.ino = m->ino;
    c.n_chunks = 1;
    c.chunks = &chs;
    c.n_slices = n;
    c.slices = ss;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_COMMIT, &c, &fp__commit_reply__descriptor));
}

static void op_truncate(struct model *m)
{
    uint64_t cells = random() % 3 ? (uint64_t)random() % (CELLS + 1) : 0;

    if (cells * GRAIN != m->is.size)
        changes(m);
    for (size_t i = cells; i < CELLS; i++)
        m->is.cell[i] = (struct cell){0};
    m->is.size = cells * GRAIN;
    (void)fix_truncate(&f, m->ino, cells * GRAIN);
}

static void op_punch(struct model *m)
{
    uint64_t from = (uint64_t)random() % CELLS, to = from + (uint64_t)random() % (CELLS - from + 1);

    changes(m);
    for (uint64_t i = from; i < to; i++)
        m->is.cell[i] = (struct cell){0};
    (void)fix_punch(&f, m->ino, from * GRAIN, (to - from) * GRAIN);
}

static void op_clone(struct model *to, struct model *from)
{
    Fp__Clone c = FP__CLONE__INIT;
    uint64_t src = (uint64_t)random() % CELLS, len = 1 + (uint64_t)random() % (CELLS - src), dst = (uint64_t)random() % (CELLS - len + 1);

    if (from == to)
        return;
    if ((src + len) * GRAIN > from->is.size)
        len = src * GRAIN < from->is.size ? from->is.size / GRAIN - src : 0;
    if (len)
        changes(to);
    memcpy(&to->is.cell[dst], &from->is.cell[src], len * sizeof(struct cell));
    if (len && (dst + len) * GRAIN > to->is.size)
        to->is.size = (dst + len) * GRAIN;
    c.slot = 1;
    c.slot_seq = ++f.seq;
    c.src_ino = from->ino;
    c.dst_ino = to->ino;
    c.src_off = src * GRAIN;
    c.dst_off = dst * GRAIN;
    c.len = len * GRAIN;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_CLONE, &c, &fp__commit_reply__descriptor));
}

static void op_open(struct model *m)
{
    Fp__Open o = FP__OPEN__INIT;
    Fp__Release r = FP__RELEASE__INIT;

    o.ino = m->ino;
    o.write = true;
    r.n_write_ino = 1;
    r.write_ino = &m->ino;
    if (!m->open) {
        fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_OPEN, &o, &fp__attr_reply__descriptor));
        assert_int_equal(f.status, 0);
    } else {
        fix_notice(&f, f.conn, FP__MSG_TYPE__MSG_RELEASE, &r);
    }
    m->open = !m->open;
    ends(m);
}

/* fpctl versions, or restore. */
static Fp__CtlVersionsReply *ask(const char *name, uint64_t n)
{
    Fp__CtlVersions q = FP__CTL_VERSIONS__INIT;
    Fp__CtlVersionsReply *r;

    q.path = fix_bin(name);
    q.restore = n;
    r = fix_call(&f, ctl, FP__MSG_TYPE__MSG_CTL_VERSIONS, &q, &fp__ctl_versions_reply__descriptor);
    assert_int_equal(f.status, 0);
    return r;
}

static void op_restore(struct model *m)
{
    Fp__CtlVersionsReply *r = ask(m == file ? "a" : "b", 0);
    uint64_t n = 0;

    for (size_t i = 0; i < r->n_versions; i++)
        if (r->versions[i]->state == FP__VERSION_STATE__VERSION_WAITS)
            n = r->versions[i]->n;
    fix_free(r);
    assert_int_equal(n != 0, m->waits);
    if (!n || m->open)
        return;
    fix_free(ask(m == file ? "a" : "b", n));
    m->is = m->waited;
    m->waits = false;
}

/* a over b, both whole. */
static void op_rename(void)
{
    struct model was = file[1];

    if (file[0].open || was.open)
        return;
    assert_int_equal(fix_rename(&f, MGR_ROOT_INO, "a", MGR_ROOT_INO, "b", 0), 0);
    file[1] = file[0];
    if (declared && (was.waits || was.is.size)) {
        file[1].waits = true;
        file[1].waited = was.waits ? was.waited : was.is;
    }
    new_file(&file[0], "a");
}

static void op_sync(struct model *m)
{
    Fp__Sync s = FP__SYNC__INIT;

    f.now.ms += 5000; /* so seldom that it is guarded all the same */
    s.ino = m->ino;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_SYNC, &s, &fp__sync_reply__descriptor));
    if (m->open)
        ends(m);
}

static void op_die(void)
{
    fix_lost(&f, f.conn);
    fix_tick(&f, 61000);
    for (size_t i = 0; i < FILES; i++) {
        if (file[i].epoch && file[i].kept)
            file[i].is = file[i].good;
        file[i].open = file[i].epoch = file[i].kept = false;
    }
    f.conn = fix_conn(&f);
    f.session = fix_hello_client(&f, f.conn, 0, NULL);
    f.seq = 0;
    fix_keepalive(&f);
}

static void compare(const struct model *m)
{
    static struct cell got[CELLS];
    Fp__SliceMap q = FP__SLICE_MAP__INIT;
    Fp__SliceMapReply *r;

    q.ino = m->ino;
    q.win_count = WINS + 1;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_SLICEMAP, &q, &fp__slice_map_reply__descriptor);
    assert_non_null(r);
    memset(got, 0, sizeof got);
    assert_int_equal(r->size_bytes, m->is.size);
    for (size_t i = 0; i < r->n_slices; i++)
        for (uint32_t k = 0; k < r->slices[i]->len / GRAIN; k++)
            got[r->slices[i]->win * (CHUNK / GRAIN) + r->slices[i]->off / GRAIN + k] =
                (struct cell){r->slices[i]->chunk, r->slices[i]->chunk_off / GRAIN + k};
    for (size_t i = 0; i < CELLS; i++)
        assert_true(got[i].chunk == m->is.cell[i].chunk && (!got[i].chunk || got[i].off == m->is.cell[i].off));
    fix_free(r);
}

static void op(void)
{
    struct model *m = &file[random() % FILES], before[FILES];

    memcpy(before, file, sizeof file);
    switch (random() % 16) {
    case 0:
    case 1:
        op_open(m);
        return;
    case 2:
        op_sync(m);
        return;
    case 3:
        if (random() % 4 == 0)
            op_die();
        return;
    case 4:
        if (random() % 4 == 0)
            op_restore(m);
        else if (random() % 4 == 0)
            op_rename();
        return;
    default:
        break;
    }
    fails();
    switch (random() % 8) {
    case 0:
        op_truncate(m);
        break;
    case 1:
        op_punch(m);
        break;
    case 2:
        op_clone(m, &file[random() % FILES]);
        break;
    default:
        op_commit(m);
        break;
    }
    f.doom = 0;
    assert_int_equal(f.status, taken_back && f.status ? -ENOSPC : 0);
    if (taken_back && f.status)
        undo(before);
}

static void test_random(void **state)
{
    unsigned seed = 1;
    Fp__Policy p = FP__POLICY__INIT;

    declared = *state != NULL;
    srandom(seed);
    fix_versions = true;
    fix_open(&f, ":memory:", false);
    ctl = fix_ctl(&f);
    p.text = (char *)"to=/t results=* every=none level=drained";
    if (declared)
        fix_free(fix_call(&f, ctl, FP__MSG_TYPE__MSG_POLICY, &p, &fp__policy_reply__descriptor));
    new_file(&file[0], "a");
    new_file(&file[1], "b");
    for (int i = 0; i < OPS; i++) {
        op();
        for (size_t k = 0; k < FILES; k++)
            compare(&file[k]);
        if (i % 8 == 0)
            fix_check(&f);
    }
    op_die();
    for (size_t k = 0; k < FILES; k++)
        compare(&file[k]);
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "a", false), 0);
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "b", false), 0);
    fix_tick(&f, 5000);
    fix_check(&f);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode"), 1);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM chunk"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM version_win"), 0);
    fix_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        {"test_random_with_a_level_that_is_not_reached", test_random, NULL, NULL, "declared"},
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
