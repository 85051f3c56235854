/* Holds of chunks: when they count, when they end, and what they keep. */
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
#include "mgr_one.h"

#define ROOT MGR_ROOT_INO
#define LEN  5000u

static uint64_t ino;

static int setup(void **state)
{
    (void)state;
    fix_open(&f, fix_path(), false);
    ino = fix_mk(&f, ROOT, "a", S_IFREG | 0644);
    return 0;
}

/* A new manager on the same database; the session is back unless it stays away. */
static void restart(bool stay_away)
{
    struct fix old = f;
    bool is_new = true;

    fix_close(&f);
    fix_open(&f, fix_path(), true);
    f.seq = old.seq;
    f.next_chunk = old.next_chunk;
    f.bnf_conn = fix_conn(&f);
    f.bnf = fix_hello_bnf(&f, f.bnf_conn, 7, 1u << 30);
    fix_inventory(&f, 0);
    f.conn = fix_conn(&f);
    f.session = fix_hello_client(&f, f.conn, stay_away ? 0 : old.session, &is_new);
    assert_true(stay_away || !is_new);
}

/* How many of the chunks are held afterwards, as the answer says; slot 0: without replay. */
static size_t hold_as(struct mgr_conn *conn, uint64_t seq, const uint64_t *ids, size_t n, bool release)
{
    Fp__Hold m = FP__HOLD__INIT;
    Fp__HoldReply *r;
    size_t held;

    m.slot = seq ? 2 : 0;
    m.slot_seq = seq;
    m.ids = (uint64_t *)ids;
    m.n_ids = n;
    m.release = release;
    r = fix_call(&f, conn, FP__MSG_TYPE__MSG_HOLD, &m, &fp__hold_reply__descriptor);
    held = r ? r->n_ids : SIZE_MAX;
    for (size_t i = 0; r && i < held; i++)
        assert_true(r->ids[i] != 0);
    fix_free(r);
    return held;
}

static size_t hold(uint64_t id)
{
    return hold_as(f.conn, 0, &id, 1, false);
}

static size_t release(uint64_t id)
{
    return hold_as(f.conn, 0, &id, 1, true);
}

static int64_t refs(void)
{
    return fix_sql(&f, "SELECT ifnull(max(refs),0) FROM chunk");
}

static uint64_t bad[8]; /* of the last commit */
static size_t nbad;

/* Names older chunks in a commit, one in each window from win on. */
static int name_these(uint64_t of, uint64_t win, const uint64_t *chunk, size_t n, bool anyway)
{
    Fp__Commit m = FP__COMMIT__INIT;
    Fp__Slice s[8], *ss[8];
    Fp__CommitReply *r;

    for (size_t i = 0; i < n; i++) {
        fp__slice__init(ss[i] = &s[i]);
        s[i].win = win + i;
        s[i].len = LEN;
        s[i].chunk = chunk[i];
    }
    m.ino = of;
    m.slices = ss;
    m.n_slices = n;
    m.anyway = anyway;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_COMMIT, &m, &fp__commit_reply__descriptor);
    nbad = r ? r->n_bad_chunks : 0;
    for (size_t i = 0; i < nbad; i++)
        bad[i] = r->bad_chunks[i];
    fix_free(r);
    return f.status;
}

static int name_again(uint64_t of, uint64_t win, uint64_t chunk)
{
    return name_these(of, win, &chunk, 1, false);
}

static size_t slices_of(uint64_t chunk)
{
    return (size_t)fix_sql(&f, "SELECT count(*) FROM slice WHERE chunk=%llu", (unsigned long long)chunk);
}

static void damage(uint64_t chunk)
{
    Fp__BadChunk m = FP__BAD_CHUNK__INIT;

    m.chunk = chunk;
    m.bnf = f.bnf;
    m.ino = ino;
    fix_notice(&f, f.conn, FP__MSG_TYPE__MSG_BADCHUNK, &m);
}

static void bnf_back(void)
{
    f.bnf_conn = fix_conn(&f);
    assert_int_equal(fix_hello_bnf(&f, f.bnf_conn, 7, 1u << 30), f.bnf);
}

static void test_hold_counts_once_and_only_what_exists(void **state)
{
    uint64_t a = fix_write(&f, ino, 0, LEN), ids[3] = {a + 77, a, a};

    (void)state;
    assert_int_equal(hold_as(f.conn, 0, ids, 3, false), 2);
    assert_int_equal(refs(), 2);
    assert_int_equal(hold(a), 1);
    assert_int_equal(hold(0), 0);
    assert_int_equal(hold(UINT64_MAX), 0);
    assert_int_equal(refs(), 2);
    assert_int_equal(release(a), 0);
    assert_int_equal(release(a), 0);
    assert_int_equal(refs(), 1);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 0);
}

static void test_held_chunk_outlives_its_file_until_released(void **state)
{
    uint64_t a = fix_write(&f, ino, 0, LEN), b = fix_mk(&f, ROOT, "b", S_IFREG | 0644);

    (void)state;
    assert_int_equal(hold(a), 1);
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    assert_int_equal(refs(), 1);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM slice"), 0);
    assert_int_equal(name_again(b, 3, a), 0);
    assert_int_equal(refs(), 2);
    assert_int_equal(release(a), 0);
    assert_int_equal(refs(), 1);
    assert_int_equal(fix_truncate(&f, b, 0), 0);
    assert_int_equal(fix_sql(&f, "SELECT chunk FROM garbage"), (int64_t)a);
    assert_int_equal(hold(a), 0); /* too late */
    assert_int_equal(name_again(b, 3, a), 0);
    assert_true(nbad == 1 && bad[0] == a && slices_of(a) == 0);
}

static void test_two_sessions_hold_the_same_chunk(void **state)
{
    struct mgr_conn *second = fix_conn(&f);
    uint64_t a = fix_write(&f, ino, 0, LEN);

    (void)state;
    fix_hello_client(&f, second, 0, NULL);
    assert_int_equal(hold(a), 1);
    assert_int_equal(hold_as(second, 0, &a, 1, false), 1);
    assert_int_equal(refs(), 3);
    assert_int_equal(fix_truncate(&f, ino, 0), 0);
    assert_int_equal(hold_as(second, 0, &a, 1, true), 0);
    assert_int_equal(refs(), 1);
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_BYE, NULL, NULL);
    fix_tick(&f, 500);
    assert_int_equal(fix_sql(&f, "SELECT chunk FROM garbage"), (int64_t)a);
    fix_lost(&f, second);
}

static void test_hold_sent_again_is_answered_as_before(void **state)
{
    uint64_t a = fix_write(&f, ino, 0, LEN);

    (void)state;
    assert_int_equal(hold_as(f.conn, 5, &a, 1, false), 1);
    restart(false);
    assert_int_equal(hold_as(f.conn, 5, &a, 1, false), 1);
    assert_int_equal(refs(), 2);
    assert_int_equal(hold_as(f.conn, 6, &a, 1, true), 0);
    assert_int_equal(hold_as(f.conn, 6, &a, 1, true), 0);
    assert_int_equal(refs(), 1);
}

static void test_too_many_in_one_message(void **state)
{
    uint64_t ids[4097] = {0};

    (void)state;
    assert_int_equal(hold_as(f.conn, 0, ids, 4097, false), SIZE_MAX);
    assert_int_equal(f.status, -E2BIG);
    assert_int_equal(hold_as(f.conn, 0, ids, 4096, false), 0);
}

static void test_holds_survive_a_lost_connection_and_a_restart(void **state)
{
    uint64_t a = fix_write(&f, ino, 0, LEN);

    (void)state;
    assert_int_equal(hold(a), 1);
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    fix_lost(&f, f.conn);
    fix_tick(&f, 70000); /* its open files are forgotten; it may still come back */
    assert_int_equal(refs(), 1);
    restart(false);
    fix_tick(&f, 3000);
    fix_keepalive(&f);
    assert_int_equal(refs(), 1);
    assert_int_equal(hold(a), 1);
    assert_int_equal(refs(), 1);
}

static void test_holds_of_a_dead_session_are_dropped(void **state)
{
    uint64_t a = fix_write(&f, ino, 0, LEN);

    (void)state;
    assert_int_equal(hold(a), 1);
    assert_int_equal(fix_truncate(&f, ino, 0), 0);
    restart(true);
    for (int i = 0; i < 130; i++) { /* the new session keeps talking */
        fix_tick(&f, 1000);
        fix_lookup(&f, ROOT, "x");
    }
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM hold"), 0);
    assert_int_equal(fix_sql(&f, "SELECT chunk FROM garbage"), (int64_t)a);
}

static uint64_t deleting(void)
{
    Fp__StatFsReply *r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_STATFS, NULL, &fp__stat_fs_reply__descriptor);
    uint64_t n = r->deleting_bytes;

    fix_free(r);
    return n;
}

/* 2000 holds: no group has to drop them all, and a restart in the middle loses none. */
static void test_many_holds_are_dropped_step_by_step(void **state)
{
    enum { N = 2000 };
    struct mgr_conn *second = fix_conn(&f);
    uint64_t *ids = calloc(N, sizeof *ids);
    int64_t left;

    (void)state;
    fix_hello_client(&f, second, 0, NULL);
    for (uint64_t i = 0; i < N; i++)
        ids[i] = fix_write(&f, ino, i * 8, 8);
    assert_int_equal(hold_as(second, 0, ids, N, false), N);
    free(ids);
    assert_int_equal(fix_truncate(&f, ino, 0), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), 0);
    fix_tick(&f, 1);
    assert_int_equal(deleting(), 0);
    fix_call(&f, second, FP__MSG_TYPE__MSG_BYE, NULL, NULL);
    assert_true(deleting() > 0); /* a writer of a full store waits for them */
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM hold"), N);
    fix_tick(&f, 1); /* one group */
    left = fix_sql(&f, "SELECT count(*) FROM hold");
    assert_true(left < N && left >= N / 2);
    assert_true(mgr_core_busy(f.core));
    fix_check(&f);
    restart(false);
    fix_tick(&f, 5000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM hold"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage"), N);
    assert_false(f.core->holds_dead);
}

/* -------------------------------------------------------------- recall */

static bool recalling(void)
{
    Fp__StatFsReply *r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_STATFS, NULL, &fp__stat_fs_reply__descriptor);
    bool is = r->recalling;

    fix_free(r);
    return is;
}

/* true: `conn` is asked for its holds. */
static bool recall(const struct mgr_conn *conn)
{
    Fp__Hold m = FP__HOLD__INIT;
    Fp__HoldReply *r;
    const struct fix_out *o;
    Fp__Hold *asked;
    bool is;

    m.recall = true;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_HOLD, &m, &fp__hold_reply__descriptor);
    assert_non_null(r);
    fix_free(r);
    o = fix_out_find(&f, conn, FP__MSG_TYPE__MSG_HOLD);
    if (!o)
        return false;
    asked = fp__hold__unpack(NULL, o->len, o->bytes);
    is = asked->recall && !asked->release && asked->n_ids == 0;
    fp__hold__free_unpacked(asked, NULL);
    return is;
}

static void answer_recall(struct mgr_conn *conn)
{
    Fp__Hold m = FP__HOLD__INIT;

    m.recall = m.release = true;
    fix_free(fix_call(&f, conn, FP__MSG_TYPE__MSG_HOLD, &m, &fp__hold_reply__descriptor));
    assert_int_equal(f.status, 0);
}

static void test_recall_asks_those_who_hold_something(void **state)
{
    struct mgr_conn *holder = fix_conn(&f), *other = fix_conn(&f);
    uint64_t a = fix_write(&f, ino, 0, LEN);

    (void)state;
    fix_hello_client(&f, holder, 0, NULL);
    fix_hello_client(&f, other, 0, NULL);
    fix_tick(&f, 5000);
    fix_keepalive(&f);
    assert_false(recall(holder)); /* nobody holds anything */
    assert_false(recalling());
    assert_int_equal(hold_as(holder, 0, &a, 1, false), 1);
    assert_int_equal(hold(a), 1);
    assert_int_equal(fix_truncate(&f, ino, 0), 0);
    assert_true(recall(holder));
    assert_null(fix_out_find(&f, other, FP__MSG_TYPE__MSG_HOLD));
    assert_null(fix_out_find(&f, f.conn, FP__MSG_TYPE__MSG_HOLD)); /* who asks knows */
    assert_true(recalling());
    assert_false(recall(holder)); /* has been asked */
    assert_int_equal(release(a), 0);
    assert_int_equal(hold_as(holder, 0, &a, 1, true), 0);
    assert_true(recalling());
    answer_recall(holder);
    assert_false(recalling());
    assert_int_equal(fix_sql(&f, "SELECT chunk FROM garbage"), (int64_t)a);
}

static void test_recall_waits_a_bounded_time(void **state)
{
    struct mgr_conn *holder = fix_conn(&f);
    uint64_t a = fix_write(&f, ino, 0, LEN);

    (void)state;
    fix_hello_client(&f, holder, 0, NULL);
    assert_int_equal(hold_as(holder, 0, &a, 1, false), 1);
    fix_tick(&f, 5000);
    assert_true(recall(holder));
    fix_tick(&f, 1000);
    assert_true(recalling());
    fix_tick(&f, 1001);
    assert_false(recalling());
    assert_true(recall(holder)); /* again */
    answer_recall(holder);       /* it needs what it has */
    assert_false(recall(holder));
    assert_false(recalling());
    fix_tick(&f, 500);
    assert_true(recall(holder));
    fix_lost(&f, holder);
    assert_false(recalling());
    assert_int_equal(refs(), 2);
}

/* ---------------------------------------------------------------- what may not be referred to */

static uint64_t doubt(void)
{
    const struct fix_out *o = fix_out_find(&f, f.conn, FP__MSG_TYPE__MSG_BNF_TABLE);
    Fp__BnfTable *t = o ? fp__bnf_table__unpack(NULL, o->len, o->bytes) : NULL;
    uint64_t n = t ? t->doubt : 0;

    fp__bnf_table__free_unpacked(t, NULL);
    return n;
}

/* Mounts are told at once, so that they ask again what they hold. */
static void test_doubt_is_told_when_something_may_have_become_bad(void **state)
{
    uint64_t a = fix_write(&f, ino, 0, LEN), before, now;

    (void)state;
    fix_lost(&f, f.bnf_conn);
    assert_true((before = doubt()) != 0);
    bnf_back();
    now = doubt();
    assert_true(now != 0 && now != before);
    fix_inventory(&f, 0);
    before = now;
    damage(a);
    now = doubt();
    assert_true(now != 0 && now != before);
}

static void test_chunk_of_a_benefactor_that_is_away_is_not_held_anew(void **state)
{
    uint64_t a = fix_write(&f, ino, 0, LEN);

    (void)state;
    assert_int_equal(hold(a), 1);
    fix_lost(&f, f.bnf_conn);
    assert_int_equal(hold(a), 0);
    assert_int_equal(refs(), 2); /* it may come back */
    bnf_back();
    assert_int_equal(hold(a), 0); /* with what it has not synced, or without */
    fix_inventory(&f, 0);
    assert_int_equal(hold(a), 1);
    fix_tick(&f, 60000); /* silent */
    assert_int_equal(hold(a), 0);
}

static void test_damaged_chunk_is_not_held_anew(void **state)
{
    uint64_t a = fix_write(&f, ino, 0, LEN);

    (void)state;
    assert_int_equal(hold(a), 1);
    damage(a);
    assert_int_equal(hold(a), 0);
    assert_int_equal(refs(), 2);
    fix_lost(&f, f.bnf_conn);
    bnf_back();
    fix_inventory(&f, a);
    assert_int_equal(hold(a), 0);
}

/* Held, and no file has it any more. */
static uint64_t only_held(uint64_t win)
{
    uint64_t a = fix_write(&f, ino, win << 20, LEN);

    assert_int_equal(hold(a), 1);
    assert_int_not_equal(fix_write(&f, ino, win << 20, LEN), 0);
    assert_int_equal(slices_of(a), 0);
    return a;
}

/* Neither by a hold nor by a commit. */
static void check_bad(uint64_t of, uint64_t win, uint64_t chunk)
{
    assert_int_equal(hold(chunk), 0);
    assert_int_equal(name_again(of, win, chunk), 0);
    assert_true(nbad == 1 && bad[0] == chunk);
}

/* A reader may have had its map from before, or the mount that holds it reads it back. */
static void test_damage_of_a_chunk_that_only_a_hold_keeps(void **state)
{
    uint64_t a = only_held(0), b = fix_mk(&f, ROOT, "b", S_IFREG | 0644), before = doubt(), now;

    (void)state;
    damage(a);
    now = doubt();
    assert_true(now != 0 && now != before);
    check_bad(b, 0, a);
    restart(false);
    check_bad(b, 1, a);
    fix_lost(&f, f.bnf_conn);
    bnf_back();
    fix_inventory(&f, 0); /* it is there; that does not make it right */
    check_bad(b, 2, a);
    assert_int_equal(fix_truncate(&f, b, 0), 0);
    assert_int_equal(fix_sql(&f, "SELECT chunk FROM bad_chunk"), (int64_t)a);
    assert_int_equal(release(a), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM bad_chunk"), 0);
}

static void test_loss_of_a_chunk_that_only_a_hold_keeps(void **state)
{
    uint64_t a = only_held(0), b = fix_mk(&f, ROOT, "b", S_IFREG | 0644), before, now;

    (void)state;
    fix_lost(&f, f.bnf_conn);
    bnf_back();
    before = doubt();
    fix_inventory(&f, a);
    now = doubt();
    assert_true(now != 0 && now != before);
    check_bad(b, 0, a);
    fix_lost(&f, f.bnf_conn);
    bnf_back();
    fix_inventory(&f, a);
    check_bad(b, 1, a);
    fix_lost(&f, f.bnf_conn);
    bnf_back();
    fix_inventory(&f, 0); /* found again */
    assert_int_equal(hold(a), 1);
    assert_int_equal(name_again(b, 2, a), 0);
    assert_int_equal(nbad, 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM bad_chunk"), 0);
}

/* What is shown is bounded, what is known is not. */
static void test_damage_beyond_what_is_shown(void **state)
{
    uint64_t x = fix_write(&f, ino, 0, LEN), a = fix_write(&f, ino, 1 << 20, LEN), w = fix_write(&f, ino, 2 << 20, LEN);
    uint64_t h = only_held(3), b = fix_mk(&f, ROOT, "b", S_IFREG | 0644), before, now;

    (void)state;
    damage(x);
    fix_sql(&f, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%u) "
             "INSERT INTO damage SELECT chunk,ino,off+i,len,bnf,missing,reason,seen_ns FROM damage CROSS JOIN n",
             MGR_DAMAGE_MAX);
    restart(false);
    assert_true(f.core->damages > MGR_DAMAGE_MAX);
    before = doubt();
    damage(a);
    now = doubt();
    assert_true(now != 0 && now != before);
    damage(h);
    check_bad(b, 0, a);
    check_bad(b, 1, h);
    assert_int_equal(hold(w), 1);
    fix_lost(&f, f.bnf_conn);
    bnf_back();
    fix_inventory(&f, w);
    check_bad(b, 2, w);
    restart(false);
    check_bad(b, 3, a);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM bad_chunk"), 3); /* w is back */
    assert_int_equal(hold(w), 1);
}

/* n windows from first on read as an error to everybody, and fpctl status tells of them. */
static void check_lost(uint64_t of, uint64_t first, uint64_t n)
{
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM slice s JOIN chunk c ON c.id=s.chunk JOIN bad_chunk b ON b.chunk=c.id JOIN damage d ON "
                              "d.chunk=c.id AND d.ino=s.ino WHERE s.ino=%llu AND s.win>=%llu AND c.bnf=0 AND d.len=s.len AND d.off=s.win<<20",
             (unsigned long long)of, (unsigned long long)first), n);
}

static void test_commit_names_what_is_gone_and_its_range_is_damaged(void **state)
{
    uint64_t a = fix_write(&f, ino, 0, LEN), shorter = fix_write(&f, ino, (1u << 20), LEN - 1);
    uint64_t b = fix_mk(&f, ROOT, "b", S_IFREG | 0644), list[4] = {a, a + 77, shorter, a};

    (void)state;
    assert_int_equal(name_these(b, 0, list, 4, false), 0);
    assert_int_equal(nbad, 2);
    assert_true((bad[0] == a + 77 && bad[1] == shorter) || (bad[1] == a + 77 && bad[0] == shorter));
    assert_int_equal(slices_of(a), 3);
    assert_int_equal(slices_of(shorter), 1);
    assert_int_equal(refs(), 3);
    check_lost(b, 1, 2);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM damage"), 2);
    fix_check(&f);
    assert_true(fix_write(&f, b, (1u << 20), LEN) != 0); /* overwritten: well again */
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM damage"), 1);
    assert_int_equal(fix_truncate(&f, b, 2u << 20), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM damage"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM chunk WHERE bnf=0"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM garbage WHERE bnf=0"), 0);
}

static void saves_nothing(uint64_t of)
{
    Fp__CtlLayout m = FP__CTL_LAYOUT__INIT;
    Fp__CtlLayoutReply *r;

    m.ino = of;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_CTL_LAYOUT, &m, &fp__ctl_layout_reply__descriptor);
    assert_non_null(r);
    assert_int_equal(r->slice_count, 2);
    assert_true(r->stored_bytes == 0 && r->saved_bytes == 0 && !r->partial);
    fix_free(r);
}

/* What was there before does not show through; a reader's report changes nothing; a later slice of the commit wins; two files have two chunks. */
static void test_range_of_a_lost_chunk_is_not_what_was_there_before(void **state)
{
    uint64_t a = fix_write(&f, ino, 0, LEN), b = fix_mk(&f, ROOT, "b", S_IFREG | 0644), c = fix_mk(&f, ROOT, "c", S_IFREG | 0644);
    uint64_t old = fix_write(&f, b, 0, LEN), gone = a + 77, lost;

    (void)state;
    assert_int_equal(name_again(b, 0, gone), 0);
    assert_true(nbad == 1 && bad[0] == gone && slices_of(old) == 0);
    check_lost(b, 0, 1);
    lost = (uint64_t)fix_sql(&f, "SELECT chunk FROM damage");
    damage(lost);
    check_lost(b, 0, 1);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM damage WHERE reason LIKE '%%gone'"), 1);
    assert_int_equal(hold(lost), 0);
    assert_int_equal(name_these(c, 0, (uint64_t[]){gone, gone}, 2, false), 0);
    check_lost(c, 0, 2);
    saves_nothing(c);
    check_lost(b, 0, 1);
    assert_int_equal(fix_unlink(&f, ROOT, "b", false), 0);
    check_lost(c, 0, 2);
    assert_int_equal(fix_unlink(&f, ROOT, "c", false), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM bad_chunk"), 0);
    fix_check(&f);
}

static void test_commit_names_what_is_damaged_and_puts_it(void **state)
{
    uint64_t a = fix_write(&f, ino, 0, LEN), c = fix_write(&f, ino, (1u << 20), LEN);
    uint64_t b = fix_mk(&f, ROOT, "b", S_IFREG | 0644), list[2] = {a, c};

    (void)state;
    damage(c);
    assert_int_equal(name_these(b, 0, list, 2, false), 0);
    assert_true(nbad == 1 && bad[0] == c);
    assert_int_equal(slices_of(c), 2);
}

static void test_commit_waits_for_a_benefactor_that_is_away(void **state)
{
    uint64_t a = fix_write(&f, ino, 0, LEN), b = fix_mk(&f, ROOT, "b", S_IFREG | 0644);

    (void)state;
    fix_lost(&f, f.bnf_conn);
    assert_int_equal(name_again(b, 0, a), FP_EAWAY);
    assert_int_equal(slices_of(a), 1);
    assert_int_equal(name_these(b, 0, &a, 1, true), 0);
    assert_true(nbad == 1 && bad[0] == a && slices_of(a) == 2);
    bnf_back();
    assert_int_equal(name_again(b, 1, a), FP_EAWAY);
    fix_inventory(&f, 0);
    assert_int_equal(name_again(b, 1, a), 0);
    assert_true(nbad == 0 && slices_of(a) == 3);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_hold_counts_once_and_only_what_exists),
        T(test_held_chunk_outlives_its_file_until_released),
        T(test_two_sessions_hold_the_same_chunk),
        T(test_hold_sent_again_is_answered_as_before),
        T(test_too_many_in_one_message),
        T(test_holds_survive_a_lost_connection_and_a_restart),
        T(test_holds_of_a_dead_session_are_dropped),
        T(test_many_holds_are_dropped_step_by_step),
        T(test_recall_asks_those_who_hold_something),
        T(test_recall_waits_a_bounded_time),
        T(test_doubt_is_told_when_something_may_have_become_bad),
        T(test_chunk_of_a_benefactor_that_is_away_is_not_held_anew),
        T(test_damaged_chunk_is_not_held_anew),
        T(test_damage_of_a_chunk_that_only_a_hold_keeps),
        T(test_loss_of_a_chunk_that_only_a_hold_keeps),
        T(test_damage_beyond_what_is_shown),
        T(test_commit_names_what_is_gone_and_its_range_is_damaged),
        T(test_range_of_a_lost_chunk_is_not_what_was_there_before),
        T(test_commit_names_what_is_damaged_and_puts_it),
        T(test_commit_waits_for_a_benefactor_that_is_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
