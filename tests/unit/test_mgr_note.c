/* Notes of chunks and their keys, with holds, against a model: which chunks exist, who holds them, and what is noted
 * about them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "fp/auxapp.h"
#include "mgr_one.h"

#define CHUNK  (64u << 10)
#define FILES  3u
#define WINS   8u
#define CHUNKS 4000u /* of the random test; counters of the session's chunk ids are below */
#define KEYS   40u   /* different ones, so that many chunks share each */
#define NKEYS  5u    /* of a chunk */

static uint64_t ino[FILES], map[FILES][WINS]; /* whole windows: chunk, 0: hole */
static struct mgr_conn *conn[2];              /* two sessions */
static bool held[2][CHUNKS];

static int setup(void **state)
{
    (void)state;
    fix_open(&f, ":memory:", false);
    memset(map, 0, sizeof map);
    memset(held, 0, sizeof held);
    for (uint32_t i = 0; i < FILES; i++) {
        char name[2] = {(char)('a' + i), 0};

        ino[i] = fix_mk(&f, MGR_ROOT_INO, name, S_IFREG | 0644);
        fix_set_xattr(&f, ino[i], "user.fp.chunk_size", "64KiB", 0);
    }
    conn[0] = f.conn;
    conn[1] = fix_conn(&f);
    fix_hello_client(&f, conn[1], 0, NULL);
    return 0;
}

/* ---------------------------------------------------------------- what a chunk's number says about its note */

static bool noted(uint64_t id)
{
    return id % 4 != 0;
}

static uint64_t key_of(uint64_t id, size_t i)
{
    return ((id * 7 + i * i * 13) % KEYS) * UINT64_C(0x9E3779B97F4A7C15); /* as large as they come */
}

static bool has_key(uint64_t id, uint64_t key)
{
    for (size_t i = 0; noted(id) && i < NKEYS; i++)
        if (key_of(id, i) == key)
            return true;
    return false;
}

static size_t note_of(uint64_t id, uint8_t *buf)
{
    size_t len = id % 5 == 0 ? 0 : id % 500;

    for (size_t i = 0; i < len; i++)
        buf[i] = (uint8_t)(id * 31 + i);
    return len;
}

static void check_note(const Fp__ChunkNote *n)
{
    uint8_t want[500];

    assert_true(noted(n->chunk));
    assert_int_equal(n->note.len, note_of(n->chunk, want));
    if (n->note.len)
        assert_memory_equal(n->note.data, want, n->note.len);
    assert_int_equal(n->data_len, CHUNK);
    assert_int_equal(n->len, n->chunk % 3 ? CHUNK : 1234);
    assert_int_equal(n->coded_len, n->chunk % 3 ? 0 : CHUNK);
    assert_int_equal(n->sum, n->chunk * 7);
    assert_int_equal(n->bnf, f.bnf);
}

/* ---------------------------------------------------------------- requests */

struct new_chunk {
    Fp__Chunk m;
    uint8_t note[500];
    uint64_t keys[NKEYS];
};

static void new_chunk(struct new_chunk *k)
{
    fp__chunk__init(&k->m);
    k->m.id = f.session << 32 | ++f.next_chunk;
    k->m.len = k->m.id % 3 ? CHUNK : 1234;
    k->m.data_len = k->m.id % 3 ? 0 : CHUNK;
    k->m.stored_bytes = 8192;
    k->m.bnf = f.bnf;
    k->m.sum = k->m.id * 7;
    if (!noted(k->m.id))
        return;
    k->m.note.data = k->note;
    k->m.note.len = note_of(k->m.id, k->note);
    for (size_t i = 0; i < NKEYS; i++)
        k->keys[i] = key_of(k->m.id, i);
    k->m.note_keys = k->keys;
    k->m.n_note_keys = NKEYS;
}

/* Whole windows [0, n) of a list of places; chunks is a list of new ones. */
static int commit(uint64_t of, const uint64_t *wins, const uint64_t *chunk, size_t n, Fp__Chunk **fresh, size_t n_fresh)
{
    enum { MAX = 64 };
    Fp__Commit m = FP__COMMIT__INIT;
    Fp__Slice s[MAX], *ss[MAX];

    assert_true(n <= MAX);
    for (size_t i = 0; i < n; i++) {
        ss[i] = &s[i];
        fp__slice__init(&s[i]);
        s[i].win = wins[i];
        s[i].len = CHUNK;
        s[i].chunk = chunk[i];
    }
    m.slot = 1;
    m.slot_seq = ++f.seq;
    m.ino = of;
    m.slices = ss;
    m.n_slices = n;
    m.chunks = fresh;
    m.n_chunks = n_fresh;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_COMMIT, &m, &fp__commit_reply__descriptor));
    return f.status;
}

static Fp__NotesReply *get_notes(struct mgr_conn *of, uint64_t file, uint64_t from, bool hold, uint64_t seq)
{
    Fp__Notes m = FP__NOTES__INIT;

    m.slot = seq ? 3 : 0;
    m.slot_seq = seq;
    m.ino = file;
    m.win_from = from;
    m.hold = hold;
    return fix_call(&f, of, FP__MSG_TYPE__MSG_NOTES, &m, &fp__notes_reply__descriptor);
}

static Fp__NotesReply *find_notes(struct mgr_conn *of, const uint64_t *keys, size_t n, bool hold, uint64_t seq)
{
    Fp__NoteFind m = FP__NOTE_FIND__INIT;

    m.slot = seq ? 3 : 0;
    m.slot_seq = seq;
    m.keys = (uint64_t *)keys;
    m.n_keys = n;
    m.hold = hold;
    return fix_call(&f, of, FP__MSG_TYPE__MSG_NOTE_FIND, &m, &fp__notes_reply__descriptor);
}

static size_t hold_one(size_t who, uint64_t id, bool release)
{
    Fp__Hold m = FP__HOLD__INIT;
    Fp__HoldReply *r;
    size_t n;

    m.n_ids = 1;
    m.ids = &id;
    m.release = release;
    r = fix_call(&f, conn[who], FP__MSG_TYPE__MSG_HOLD, &m, &fp__hold_reply__descriptor);
    n = r->n_ids;
    fix_free(r);
    return n;
}

/* ---------------------------------------------------------------- the model */

static uint64_t id_of(uint64_t counter)
{
    return f.session << 32 | counter;
}

static bool mapped(uint64_t id)
{
    for (size_t i = 0; i < FILES; i++)
        for (size_t w = 0; w < WINS; w++)
            if (map[i][w] == id)
                return true;
    return false;
}

static bool exists(uint64_t counter)
{
    return counter && (held[0][counter] || held[1][counter] || mapped(id_of(counter)));
}

static uint64_t any_chunk(void)
{
    uint64_t n = f.next_chunk;

    return n ? 1 + (uint64_t)random() % n : 0;
}

static void op_commit(void)
{
    static struct new_chunk k[3];
    Fp__Chunk *fresh[3];
    uint64_t wins[6], chunk[6];
    size_t file = (size_t)random() % FILES, n = 1 + (size_t)random() % 6;
    bool there[6];

    for (size_t i = 0; i < 3; i++) {
        new_chunk(&k[i]);
        fresh[i] = &k[i].m;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t older = any_chunk();

        wins[i] = (uint64_t)random() % WINS;
        chunk[i] = random() % 8 == 0 ? 0 : random() % 3 == 0 ? id_of(older) : k[random() % 3].m.id;
        there[i] = chunk[i] != id_of(older) || older > f.next_chunk - 3 || older == 0 || exists(older);
    }
    assert_int_equal(commit(ino[file], wins, chunk, n, fresh, 3), 0);
    for (size_t i = 0; i < n; i++)
        map[file][wins[i]] = there[i] ? chunk[i] : 0; /* else a lost chunk stands there, that the model does not know */
}

static void op_truncate(void)
{
    size_t file = (size_t)random() % FILES, wins = (size_t)random() % WINS;

    assert_int_equal(fix_truncate(&f, ino[file], (uint64_t)wins * CHUNK), 0);
    for (size_t w = wins; w < WINS; w++)
        map[file][w] = 0;
}

static void op_hold(void)
{
    size_t who = random() & 1;
    uint64_t counter = any_chunk();
    bool there = exists(counter), release = random() % 3 == 0;

    assert_int_equal(hold_one(who, id_of(counter), release), !release && there);
    if (counter)
        held[who][counter] = release ? false : there;
}

static void op_notes(void)
{
    size_t who = random() & 1, file = (size_t)random() % FILES, n = 0;
    uint64_t from = (uint64_t)random() % WINS, seen[WINS];
    bool hold = random() & 1;
    Fp__NotesReply *r = get_notes(conn[who], ino[file], from, hold, 0);

    assert_non_null(r);
    assert_true(r->eof);
    for (size_t w = from; w < WINS; w++) {
        uint64_t id = map[file][w];
        bool twice = false;

        for (size_t i = 0; i < n; i++)
            twice |= seen[i] == id;
        if (!id || !noted(id) || twice)
            continue;
        assert_true(n < r->n_notes);
        assert_int_equal(r->notes[n]->chunk, id);
        check_note(r->notes[n]);
        seen[n++] = id;
        held[who][(uint32_t)id] |= hold;
    }
    assert_int_equal(r->n_notes, n);
    fix_free(r);
}

static void op_find(void)
{
    size_t who = random() & 1, n = 0;
    uint64_t key = key_of(any_chunk(), 0);
    bool hold = random() & 1;
    Fp__NotesReply *r = find_notes(conn[who], &key, 1, hold, 0);

    assert_non_null(r);
    for (uint64_t i = f.next_chunk; i > 0; i--) { /* the newest ones */
        if (!has_key(id_of(i), key) || !exists(i))
            continue;
        if (n == 8) {
            assert_false(r->eof);
            break;
        }
        assert_true(n < r->n_notes);
        assert_int_equal(r->notes[n]->chunk, id_of(i));
        check_note(r->notes[n++]);
    }
    assert_int_equal(r->n_notes, n);
    for (size_t i = 0; i < n && hold; i++)
        held[who][(uint32_t)r->notes[i]->chunk] = true;
    fix_free(r);
}

static void op_bye(void)
{
    fix_call(&f, conn[1], FP__MSG_TYPE__MSG_BYE, NULL, NULL);
    fix_lost(&f, conn[1]);
    memset(held[1], 0, sizeof held[1]);
    fix_tick(&f, 500);
    fix_keepalive(&f);
    conn[1] = fix_conn(&f);
    fix_hello_client(&f, conn[1], 0, NULL);
}

static void compare(void)
{
    int64_t chunks = 0, notes = 0, keys = 0, holds = 0;

    for (uint64_t i = 1; i <= f.next_chunk; i++) {
        uint64_t id = id_of(i);

        holds += held[0][i] + held[1][i];
        if (!exists(i))
            continue;
        chunks++;
        notes += noted(id);
        for (size_t k = 0; noted(id) && k < NKEYS; k++) {
            bool twice = false;

            for (size_t l = 0; l < k; l++)
                twice |= key_of(id, l) == key_of(id, k);
            keys += !twice;
        }
    }
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM chunk WHERE bnf>0"), chunks);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM note"), notes);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM note_key"), keys);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM hold"), holds);
    fix_check(&f);
}

static void test_random_changes_match_the_model(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 3; seed++) {
        srandom(seed);
        for (int i = 0; i < 800; i++) {
            switch (random() % 10) {
            case 0:
            case 1:
            case 2:
                op_commit();
                break;
            case 3:
                if (random() % 3 == 0)
                    op_truncate();
                break;
            case 4:
            case 5:
                op_hold();
                break;
            case 6:
            case 7:
                op_notes();
                break;
            case 8:
                op_find();
                break;
            default:
                if (random() % 10 == 0)
                    op_bye();
                break;
            }
            if (i % 20 == 0)
                compare();
        }
    }
    assert_true(f.next_chunk < CHUNKS);
    for (size_t i = 0; i < FILES; i++)
        assert_int_equal(fix_truncate(&f, ino[i], 0), 0);
    fix_call(&f, conn[1], FP__MSG_TYPE__MSG_BYE, NULL, NULL);
    fix_call(&f, conn[0], FP__MSG_TYPE__MSG_BYE, NULL, NULL);
    fix_tick(&f, 3000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM chunk"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM note"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM note_key"), 0);
}

/* ---------------------------------------------------------------- bounds, replay, damage */

/* A chunk with a note of len bytes at a window of the first file. */
static uint64_t write_noted(uint64_t win, size_t len, uint64_t key)
{
    static uint8_t note[FP_AUX_NOTE_MAX_BYTES + 1];
    Fp__Chunk k = FP__CHUNK__INIT, *fresh = &k;

    k.id = f.session << 32 | ++f.next_chunk;
    k.len = CHUNK;
    k.stored_bytes = 8192;
    k.bnf = f.bnf;
    k.note.data = note;
    k.note.len = len;
    k.note_keys = &key;
    k.n_note_keys = 1;
    return commit(ino[0], &win, &k.id, 1, &fresh, 1) ? 0 : k.id;
}

static void test_notes_that_are_too_long_are_refused(void **state)
{
    uint64_t keys[FP_AUX_NOTE_KEYS_MAX + 1] = {0}, win = 0;
    Fp__Chunk k = FP__CHUNK__INIT, *fresh = &k;

    (void)state;
    assert_int_equal(write_noted(0, FP_AUX_NOTE_MAX_BYTES + 1, 1), 0);
    assert_int_equal(f.status, -EINVAL);
    assert_int_not_equal(write_noted(0, FP_AUX_NOTE_MAX_BYTES, 1), 0);
    k.id = f.session << 32 | ++f.next_chunk;
    k.len = CHUNK;
    k.bnf = f.bnf;
    for (size_t i = 0; i < FP_AUX_NOTE_KEYS_MAX; i++)
        keys[i] = i / 2; /* each twice */
    k.note_keys = keys;
    k.n_note_keys = FP_AUX_NOTE_KEYS_MAX + 1;
    assert_int_equal(commit(ino[0], &win, &k.id, 1, &fresh, 1), -EINVAL);
    k.n_note_keys = FP_AUX_NOTE_KEYS_MAX;
    assert_int_equal(commit(ino[0], &win, &k.id, 1, &fresh, 1), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM note_key"), FP_AUX_NOTE_KEYS_MAX / 2);
    assert_int_equal(find_notes(f.conn, keys, FP_AUX_NOTE_KEYS_MAX + 1, false, 0), NULL);
    assert_int_equal(f.status, -E2BIG);
    assert_int_equal(fix_truncate(&f, ino[0], 0), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM note_key"), 0);
}

/* n chunks with long notes side by side in one window. */
static void fill_window(uint64_t win, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t pos = win * CHUNK + i * 64, id = fix_write(&f, ino[0], pos, 64);

        assert_int_not_equal(id, 0);
    }
    fix_sql(&f, "INSERT OR IGNORE INTO note SELECT id,zeroblob(60000),x'' FROM chunk");
    fix_sql(&f, "UPDATE chunk SET noted=1");
}

/* 200 notes of 60000 bytes, five in a window: no answer is longer than a frame or ends within a window, and together
 * they are all of them, each once. */
static void test_answers_about_a_long_file_are_bounded(void **state)
{
    enum { WINDOWS = 40, EACH = 5 };
    uint64_t from = 0, seen = 0, parts = 0;
    bool eof = false;

    (void)state;
    for (uint64_t w = 0; w < WINDOWS; w++)
        fill_window(w, EACH);
    while (!eof) {
        Fp__NotesReply *r = get_notes(f.conn, ino[0], from, false, 0);

        assert_true(fp__notes_reply__get_packed_size(r) <= 4u << 20);
        for (size_t i = 0; i < r->n_notes; i++)
            assert_int_equal(r->notes[i]->chunk, id_of(1 + seen + i));
        seen += r->n_notes;
        parts++;
        eof = r->eof;
        assert_int_equal(r->win_end * EACH, seen);
        from = r->win_end;
        fix_free(r);
    }
    assert_int_equal(seen, WINDOWS * EACH);
    assert_int_equal(parts, 4); /* 69 fit, 65 are whole windows */
}

static void test_window_that_is_too_much_alone_is_cut_short(void **state)
{
    Fp__NotesReply *r;

    (void)state;
    fill_window(0, 100);
    fill_window(1, 1);
    r = get_notes(f.conn, ino[0], 0, true, 0);
    assert_int_equal(r->n_notes, 69);
    assert_true(r->win_end == 1 && !r->eof);
    fix_free(r);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM hold"), 69);
    r = get_notes(f.conn, ino[0], 1, false, 0);
    assert_true(r->n_notes == 1 && r->eof);
    fix_free(r);
}

/* Very many slices: an answer looks at so many, and goes on at a window. */
static void test_answers_about_many_slices_are_bounded(void **state)
{
    uint64_t id = write_noted(0, 10, 7), from = 0, seen = 0, parts = 0;
    bool eof = false;

    (void)state;
    fix_sql(&f, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<40000) INSERT INTO slice "
                "SELECT ino,1+i/1000,i%%1000*8,8,chunk,0 FROM slice,n");
    fix_sql(&f, "UPDATE chunk SET refs=(SELECT count(*) FROM slice)");
    fix_sql(&f, "UPDATE counters SET slices=(SELECT count(*) FROM slice)");
    fix_sql(&f, "UPDATE inode SET mapped=(SELECT sum(len) FROM slice) WHERE ino=(SELECT ino FROM slice)");
    assert_int_equal(mgr_reload(f.core), 0);
    while (!eof) {
        Fp__NotesReply *r = get_notes(f.conn, ino[0], from, false, 0);

        assert_true(r->n_notes == 1 && r->notes[0]->chunk == id);
        seen += r->n_notes;
        parts++;
        eof = r->eof;
        assert_true(r->win_end > from);
        from = r->win_end;
        fix_free(r);
    }
    assert_int_equal(parts, 3);
    assert_int_equal(from, 42);
}

static void test_answer_that_holds_is_the_same_when_asked_again(void **state)
{
    uint64_t key = 7, a = write_noted(0, 300, key), b = write_noted(1, 400, key), win = 0, none = 0;
    Fp__NotesReply *r;

    (void)state;
    fix_free(get_notes(f.conn, ino[0], 0, true, 5));
    assert_int_equal(commit(ino[0], &win, &none, 1, NULL, 0), 0); /* a has left the file */
    r = get_notes(f.conn, ino[0], 0, true, 5);
    assert_int_equal(r->n_notes, 2);
    assert_int_equal(r->notes[0]->chunk, a);
    assert_int_equal(r->notes[0]->note.len, 300);
    assert_int_equal(r->notes[1]->chunk, b);
    assert_int_equal(r->notes[1]->data_len, CHUNK);
    assert_true(r->eof);
    fix_free(r);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM hold"), 2);
    assert_true(fix_sql(&f, "SELECT max(length(body)) FROM reply WHERE slot=3") < 100);
    r = find_notes(f.conn, &key, 1, true, 6);
    assert_int_equal(r->n_notes, 2);
    fix_free(r);
    r = find_notes(f.conn, &key, 1, true, 6);
    assert_int_equal(r->n_notes, 2);
    assert_int_equal(r->notes[0]->chunk, b);
    assert_int_equal(r->notes[0]->note.len, 400);
    fix_free(r);
    fix_free(find_notes(f.conn, &key, 1, false, 7)); /* nothing is kept of it */
    assert_int_equal(fix_sql(&f, "SELECT seq FROM reply WHERE slot=3"), 6);
}

/* By both ways of asking. */
static uint32_t unused(uint64_t key)
{
    Fp__NotesReply *r = find_notes(f.conn, &key, 1, false, 0);
    uint32_t n;

    assert_int_equal(r->n_notes, 1);
    n = r->notes[0]->unused_len;
    assert_int_equal(r->free_bytes, (1u << 30) - (uint64_t)fix_sql(&f, "SELECT sum(stored) FROM chunk"));
    fix_free(r);
    return n;
}

/* Mounts that write a step together ask at the same moment: each is told its part. */
static void test_mounts_that_hold_chunks_share_what_is_free(void **state)
{
    uint64_t key = 7, all;
    Fp__NotesReply *r;

    (void)state;
    (void)write_noted(0, 10, 7);
    all = (1u << 30) - (uint64_t)fix_sql(&f, "SELECT sum(stored) FROM chunk");
    fix_free(find_notes(f.conn, &key, 1, true, 1));
    fix_free(find_notes(conn[1], &key, 1, true, 1));
    fix_tick(&f, 1001);
    r = find_notes(f.conn, &key, 1, false, 0);
    assert_int_equal(r->free_bytes, all / 2);
    fix_free(r);
}

static void test_answers_tell_what_of_a_chunk_no_file_refers_to(void **state)
{
    Fp__Open o = FP__OPEN__INIT;
    uint64_t a = write_noted(0, 10, 7), win = 3;
    Fp__NotesReply *r;

    (void)state;
    assert_int_equal(unused(7), 0);
    fix_write(&f, ino[0], 0, 4096);
    fix_write(&f, ino[0], 8192, 4096);
    fix_write(&f, ino[0], CHUNK - 100, 100);
    assert_int_equal(unused(7), 8292);
    r = get_notes(f.conn, ino[0], 0, false, 0);
    assert_true(r->n_notes == 1 && r->notes[0]->chunk == a && r->notes[0]->unused_len == 8292);
    fix_free(r);
    assert_int_equal(commit(ino[1], &win, &a, 1, NULL, 0), 0); /* whole in another file: bytes that both have count once */
    assert_int_equal(unused(7), 0);
    fix_write(&f, ino[1], 3 * CHUNK, 8192);
    assert_int_equal(unused(7), 4096);
    o.ino = ino[1]; /* unlinked, and held open: it does not count any more */
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_OPEN, &o, &fp__attr_reply__descriptor));
    assert_int_equal(f.status, 0);
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "b", false), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM orphan"), 1);
    assert_int_equal(unused(7), 8292);
    assert_int_equal(hold_one(0, a, false), 1);
    assert_int_equal(fix_truncate(&f, ino[0], 0), 0);
    assert_int_equal(unused(7), CHUNK); /* a hold is no use */
}

/* Coded ones count in bytes of data. What is in very many pieces counts as used, and no answer looks at more than so many. */
static void test_what_is_too_much_to_look_at_counts_as_used(void **state)
{
    uint64_t id = write_noted(0, 10, 7);

    (void)state;
    fix_sql(&f, "UPDATE chunk SET len=100,data=65536");
    assert_int_equal(fix_truncate(&f, ino[0], 0x4000), 0);
    assert_int_equal(unused(7), CHUNK - 0x4000);
    fix_sql(&f, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1100) INSERT INTO slice "
                              "SELECT %llu,0,i*8,4,%llu,i*8 FROM n",
             (unsigned long long)ino[1], (unsigned long long)id);
    assert_int_equal(unused(7), 0);
    fix_sql(&f, "DELETE FROM slice WHERE ino=%llu", (unsigned long long)ino[1]);
    assert_int_equal(unused(7), CHUNK - 0x4000);
    /* Next to each other they are one place, and yet many rows. */
    fix_sql(&f, "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<5000) INSERT INTO slice "
                              "SELECT %llu,0,i*4,4,%llu,i*4 FROM n",
             (unsigned long long)ino[1], (unsigned long long)id);
    assert_int_equal(unused(7), 0);
    fix_sql(&f, "DELETE FROM slice WHERE ino=%llu", (unsigned long long)ino[1]);
}

static void test_damaged_chunks_are_not_named(void **state)
{
    uint64_t key = 7, a = write_noted(0, 10, key), b = write_noted(1, 10, key);
    Fp__BadChunk bad = FP__BAD_CHUNK__INIT;
    Fp__NotesReply *r;

    (void)state;
    bad.chunk = a;
    bad.bnf = f.bnf;
    bad.ino = ino[0];
    fix_notice(&f, f.conn, FP__MSG_TYPE__MSG_BADCHUNK, &bad);
    r = get_notes(f.conn, ino[0], 0, true, 0);
    assert_true(r->n_notes == 1 && r->notes[0]->chunk == b);
    fix_free(r);
    r = find_notes(f.conn, &key, 1, true, 0);
    assert_true(r->n_notes == 1 && r->notes[0]->chunk == b);
    fix_free(r);
}

/* Found by its key: a hold keeps it, no file does. */
static void test_damaged_chunk_without_a_file_is_not_found(void **state)
{
    uint64_t key = 7, a = write_noted(0, 10, key), win = 0, none = 0;
    Fp__BadChunk bad = FP__BAD_CHUNK__INIT;
    Fp__NotesReply *r;

    (void)state;
    r = find_notes(f.conn, &key, 1, true, 0);
    assert_int_equal(r->n_notes, 1);
    fix_free(r);
    assert_int_equal(commit(ino[0], &win, &none, 1, NULL, 0), 0);
    bad.chunk = a;
    bad.bnf = f.bnf;
    bad.ino = ino[0];
    fix_notice(&f, f.conn, FP__MSG_TYPE__MSG_BADCHUNK, &bad);
    r = find_notes(f.conn, &key, 1, true, 0);
    assert_int_equal(r->n_notes, 0);
    fix_free(r);
}

static size_t named(uint64_t key)
{
    Fp__NotesReply *r = get_notes(f.conn, ino[0], 0, true, 0);
    size_t n = r->n_notes;

    fix_free(r);
    r = find_notes(f.conn, &key, 1, true, 0);
    assert_int_equal(r->n_notes, n);
    fix_free(r);
    return n;
}

/* Down, and back without an inventory: it may have lost what it had not synced. */
static void test_chunks_of_a_benefactor_that_is_away_are_not_named(void **state)
{
    (void)state;
    write_noted(0, 10, 7);
    write_noted(1, 10, 7);
    assert_int_equal(named(7), 2);
    fix_lost(&f, f.bnf_conn);
    assert_int_equal(named(7), 0);
    f.bnf_conn = fix_conn(&f);
    assert_int_equal(fix_hello_bnf(&f, f.bnf_conn, 7, 1u << 30), f.bnf);
    assert_int_equal(named(7), 0);
    fix_inventory(&f, f.session << 32 | f.next_chunk);
    assert_int_equal(named(7), 1);
}

static void test_notes_of_what_is_no_file(void **state)
{
    (void)state;
    assert_null(get_notes(f.conn, MGR_ROOT_INO, 0, true, 0));
    assert_int_equal(f.status, -EINVAL);
    assert_null(get_notes(f.conn, 987654, 0, true, 0));
    assert_int_equal(f.status, -ENOENT);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_random_changes_match_the_model),
        T(test_notes_that_are_too_long_are_refused),
        T(test_answers_about_a_long_file_are_bounded),
        T(test_window_that_is_too_much_alone_is_cut_short),
        T(test_answers_about_many_slices_are_bounded),
        T(test_answer_that_holds_is_the_same_when_asked_again),
        T(test_mounts_that_hold_chunks_share_what_is_free),
        T(test_answers_tell_what_of_a_chunk_no_file_refers_to),
        T(test_what_is_too_much_to_look_at_counts_as_used),
        T(test_damaged_chunks_are_not_named),
        T(test_damaged_chunk_without_a_file_is_not_found),
        T(test_chunks_of_a_benefactor_that_is_away_are_not_named),
        T(test_notes_of_what_is_no_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
