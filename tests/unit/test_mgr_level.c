/* Levels of durability: rounds of syncs, and what files and sets are shown to be. */
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
#include "manager/level.h"
#include "mgr_one.h"

#define NONE     FP__LEVEL__LEVEL_NONE
#define POOL     FP__LEVEL__LEVEL_POOL
#define LOCAL    FP__LEVEL__LEVEL_LOCAL
#define DRAINED  FP__LEVEL__LEVEL_DRAINED
#define VERIFIED FP__LEVEL__LEVEL_VERIFIED
#define SYNC_ALL FP__MSG_TYPE__MSG_BNF_SYNC_ALL
#define QUIET_MS 3000u

static uint64_t life;
static const char *backend;
static char why[400];

/* What the benefactor says of itself each second. */
static void heard(void)
{
    Fp__BnfInfo i = fix_bnf_info();

    i.unsynced_life = life;
    i.backend = (char *)(uintptr_t)backend;
    fix_heard(&f, i);
}

static int setup(void **state)
{
    (void)state;
    life = 11;
    backend = "dir";
    fix_open(&f, ":memory:", false);
    heard();
    return 0;
}

/* The level, with what is said of it in why; started: MSG_BNF_SYNC_ALL was sent. */
static Fp__LevelReply ask(uint64_t ino, Fp__Level wait, bool *started)
{
    Fp__LevelAsk m = FP__LEVEL_ASK__INIT;
    Fp__LevelReply *r, copy;

    m.ino = ino;
    m.wait = wait;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_LEVEL, &m, &fp__level_reply__descriptor);
    assert_non_null(r);
    if (started)
        *started = fix_out_find(&f, f.bnf_conn, SYNC_ALL) != NULL;
    snprintf(why, sizeof why, "%s", r->why);
    copy = *r;
    fix_free(r);
    return copy;
}

static Fp__Level level(uint64_t ino)
{
    bool started;
    Fp__Level l = ask(ino, NONE, &started).level;

    assert_false(started); /* looking costs nobody anything */
    assert_int_equal(f.durable, l > POOL);
    return l;
}

static void answer(int status)
{
    Fp__BnfSyncReply r = FP__BNF_SYNC_REPLY__INIT;

    r.unsynced_life = life;
    fix_answer(&f, f.bnf_conn, SYNC_ALL, status, status ? NULL : &r);
}

/* A round from its beginning to its end. */
static void sync_now(uint64_t ino)
{
    bool started;

    ask(ino, LOCAL, &started);
    assert_true(started);
    answer(0);
}

static uint64_t file(const char *name, uint32_t len)
{
    uint64_t ino = fix_mk(&f, MGR_ROOT_INO, name, S_IFREG | 0644);

    if (len)
        assert_int_not_equal(fix_write(&f, ino, 0, len), 0);
    return ino;
}

static void wait_ms(uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += 500) {
        heard();
        fix_tick(&f, 500);
    }
}

static void test_what_was_committed_before_a_round_is_local_after_it(void **state)
{
    uint64_t a = file("a", 1000), b;
    bool started;

    (void)state;
    assert_int_equal(level(a), POOL);
    assert_non_null(strstr(why, "benefactor 1 of node n1 has not synced it yet"));
    assert_int_equal(ask(a, LOCAL, &started).level, POOL);
    assert_true(started);
    b = file("b", 1000); /* after the question */
    assert_int_equal(level(a), POOL);
    answer(0);
    assert_int_equal(level(a), LOCAL);
    assert_int_equal(level(b), POOL);
    assert_string_equal(why, "benefactor 1 of node n1 has not synced it yet");
    sync_now(b);
    assert_int_equal(level(b), LOCAL);
    assert_int_equal(ask(b, LOCAL, &started).level, LOCAL);
    assert_false(started);
    assert_false(ask(b, LOCAL, &started).syncing);
}

static void test_one_round_at_a_time(void **state)
{
    uint64_t a = file("a", 1000), b;
    bool started;

    (void)state;
    ask(a, LOCAL, &started);
    assert_true(started);
    ask(a, LOCAL, &started);
    assert_false(started);
    b = file("b", 1000);
    assert_true(ask(b, LOCAL, &started).syncing);
    assert_false(started);
    answer(0);
    fix_tick(&f, 500); /* b is still wanted */
    assert_non_null(fix_out_find(&f, f.bnf_conn, SYNC_ALL));
    answer(0);
    assert_int_equal(level(b), LOCAL);
}

static void test_a_change_drops_to_pool(void **state)
{
    uint64_t a = file("a", 1000);

    (void)state;
    sync_now(a);
    assert_int_equal(level(a), LOCAL);
    fix_write(&f, a, 500, 10);
    assert_int_equal(level(a), POOL);
    sync_now(a);
    assert_int_equal(level(a), LOCAL);
    fix_truncate(&f, a, 0);
    assert_int_equal(level(a), LOCAL); /* it has no data, and the answer waits for the database to be synced */
}

static void test_who_has_it_open_for_writing_may_have_more(void **state)
{
    uint64_t a = file("a", 1000);
    Fp__Open o = FP__OPEN__INIT;
    Fp__Release r = FP__RELEASE__INIT;

    (void)state;
    sync_now(a);
    o.ino = a;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_OPEN, &o, &fp__attr_reply__descriptor));
    assert_int_equal(level(a), LOCAL);
    o.write = true;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_OPEN, &o, &fp__attr_reply__descriptor));
    assert_int_equal(level(a), POOL);
    assert_string_equal(why, "it is open for writing");
    r.n_write_ino = 1;
    r.write_ino = &a;
    fix_notice(&f, f.conn, FP__MSG_TYPE__MSG_RELEASE, &r);
    assert_int_equal(level(a), LOCAL);
}

static void test_an_idle_store_becomes_local_by_itself(void **state)
{
    uint64_t a = file("a", 1000);

    (void)state;
    for (int i = 0; i < 20; i++) { /* a program goes on writing */
        wait_ms(QUIET_MS / 2);
        assert_null(fix_out_find(&f, f.bnf_conn, SYNC_ALL));
        fix_write(&f, a, (uint64_t)i * 1000, 1000);
    }
    for (int i = 0; i < 20 && !fix_out_find(&f, f.bnf_conn, SYNC_ALL); i++)
        wait_ms(500);
    answer(0);
    assert_int_equal(level(a), LOCAL);
    wait_ms(10 * QUIET_MS); /* nothing new: no more rounds */
    assert_null(fix_out_find(&f, f.bnf_conn, SYNC_ALL));
    assert_int_equal(fix_sql(&f, "SELECT synced FROM bnf_sync"), 2);
}

static void test_another_life_leaves_in_doubt_what_was_not_synced(void **state)
{
    uint64_t a = file("a", 1000), b, c;
    bool started;

    (void)state;
    sync_now(a);
    b = file("b", 1000);
    life++;
    heard();
    assert_int_equal(level(a), LOCAL); /* on the device since before */
    assert_int_equal(level(b), POOL);
    assert_non_null(strstr(why, "lost what it had not synced"));
    assert_true(ask(b, LOCAL, &started).failed);
    assert_false(started);
    c = file("c", 1000);
    sync_now(c);
    assert_int_equal(level(c), LOCAL);
    assert_int_equal(level(b), POOL); /* a sync shows nothing of what was lost before */
    fix_write(&f, b, 0, 1000);        /* as new: but it may have been stored before */
    assert_int_equal(level(b), POOL);
    ask(b, LOCAL, &started);
    assert_int_equal(level(b), POOL);
}

static void test_an_answer_of_another_life_does_not_count(void **state)
{
    uint64_t a = file("a", 1000), b;
    bool started;

    (void)state;
    ask(a, LOCAL, &started);
    assert_true(started);
    life++;
    answer(0);
    assert_int_equal(level(a), POOL);
    assert_true(ask(a, LOCAL, NULL).failed);
    b = file("b", 1000);
    ask(b, LOCAL, &started);
    assert_true(started);
    life++; /* heard of by the keep-alive, then answered */
    heard();
    answer(0);
    assert_int_equal(level(b), POOL);
    assert_true(ask(b, LOCAL, NULL).failed);
}

/* Stored before the benefactor lost data, committed after it. */
static void test_a_session_that_is_newer_than_the_loss_is_trusted(void **state)
{
    uint64_t old = file("old", 0), a;

    (void)state;
    file("x", 10);
    life++;
    heard();
    fix_write(&f, old, 0, 1000); /* could be of before */
    assert_true(ask(old, LOCAL, NULL).failed);
    f.session = fix_hello_client(&f, f.conn = fix_conn(&f), 0, NULL);
    f.next_chunk = 0;
    f.seq = 0;
    fix_write(&f, old, 0, 1000);
    sync_now(old);
    assert_int_equal(level(old), LOCAL);
    a = file("a", 1000);
    sync_now(a);
    assert_int_equal(level(a), LOCAL);
}

static void test_memory_is_never_local(void **state)
{
    uint64_t a;
    bool started;

    (void)state;
    backend = "memory";
    heard();
    a = file("a", 1000);
    assert_true(ask(a, LOCAL, &started).failed);
    assert_false(started);
    assert_non_null(strstr(why, "keeps data in memory"));
    wait_ms(4 * QUIET_MS);
    assert_int_equal(level(a), POOL);
    assert_int_equal(fix_sql(&f, "SELECT synced FROM bnf_sync"), 1);
}

static void test_a_round_that_fails_is_tried_again(void **state)
{
    uint64_t a = file("a", 1000);
    bool started;

    (void)state;
    ask(a, LOCAL, &started);
    answer(-ETIMEDOUT);
    assert_int_equal(level(a), POOL);
    assert_false(ask(a, LOCAL, &started).failed);
    assert_false(started); /* not at once */
    wait_ms(2000);
    answer(0);
    assert_int_equal(level(a), LOCAL);
}

static void test_a_benefactor_that_is_away_has_nothing_local(void **state)
{
    uint64_t a = file("a", 1000);

    (void)state;
    sync_now(a);
    fix_lost(&f, f.bnf_conn);
    assert_int_equal(level(a), POOL);
    assert_false(ask(a, LOCAL, NULL).failed); /* it may come back */
    f.bnf_conn = fix_conn(&f);
    backend = "dir";
    assert_int_equal(fix_hello_bnf(&f, f.bnf_conn, 7, 1u << 30), 1);
    heard();
    assert_int_equal(level(a), POOL); /* what it has is not known yet */
    fix_inventory(&f, 0);
    assert_int_equal(level(a), LOCAL);
}

static void test_lost_and_damaged_data_is_none(void **state)
{
    uint64_t a = fix_mk(&f, MGR_ROOT_INO, "a", S_IFREG | 0644), chunk = fix_write(&f, a, 0, 1000);
    Fp__BadChunk m = FP__BAD_CHUNK__INIT;

    (void)state;
    sync_now(a);
    m.chunk = chunk;
    m.ino = a;
    m.bnf = 1;
    fix_notice(&f, f.conn, FP__MSG_TYPE__MSG_BADCHUNK, &m);
    assert_int_equal(level(a), NONE);
    assert_true(ask(a, LOCAL, NULL).failed);
    assert_true(ask(a, DRAINED, NULL).failed);
    fix_write(&f, a, 0, 1000);
    assert_int_equal(level(a), POOL);
    sync_now(a);
    assert_int_equal(level(a), LOCAL);
}

static void test_a_big_map_is_looked_at_in_pieces(void **state)
{
    uint64_t a;

    (void)state;
    a = file("big", 0);
    fix_fill_map(&f, "big", 20, 2000); /* in a round that is synced */
    assert_int_equal(level(a), POOL);
    assert_string_equal(why, "its map is being looked at");
    assert_true(mgr_core_busy(f.core));
    for (int i = 0; i < 40 && level(a) == POOL; i++)
        assert_string_equal(why, "its map is being looked at");
    assert_int_equal(level(a), LOCAL);
    assert_false(mgr_core_busy(f.core));
}

static void test_a_set_has_the_least_level_of_its_files(void **state)
{
    uint64_t top = fix_mk(&f, MGR_ROOT_INO, "chk_0007", S_IFDIR | 0755), a, b;
    bool started;

    (void)state;
    a = fix_mk(&f, top, "rank_0", S_IFREG | 0644);
    b = fix_mk(&f, top, "rank_1", S_IFREG | 0644);
    fix_write(&f, a, 0, 1000);
    assert_int_equal(level(top), POOL);
    assert_string_equal(why, "the set is not complete");
    assert_false(ask(top, LOCAL, NULL).failed);
    sync_now(a);
    fix_write(&f, b, 0, 1000);
    for (int i = 0; i < 6; i++) {
        heard();
        fix_tick(&f, 400);
        if (fix_out_find(&f, f.bnf_conn, SYNC_ALL))
            break;
    }
    assert_int_equal(fix_sql(&f, "SELECT state FROM ckpt_set"), MGR_SET_COMPLETE);
    assert_int_equal(level(top), POOL);
    assert_int_equal(level(a), LOCAL);
    ask(top, LOCAL, &started);
    answer(0);
    assert_int_equal(level(top), LOCAL);
    assert_true(ask(top, NONE, NULL).is_set);
    assert_int_equal(fix_mk(&f, top, "rank_2", S_IFREG | 0644) != 0, true);
    assert_int_equal(level(top), POOL);
}

/* The last number of a set that is gone is used again. */
static void test_a_set_has_no_level_of_one_that_had_its_number(void **state)
{
    uint64_t top = fix_mk(&f, MGR_ROOT_INO, "chk_1", S_IFDIR | 0755), a = fix_mk(&f, top, "a", S_IFREG | 0644);

    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        fix_write(&f, a, 0, 1000);
        for (int i = 0; i < 6; i++) {
            heard();
            fix_tick(&f, 400);
        }
        assert_int_equal(fix_sql(&f, "SELECT id*100+gen*10+state FROM ckpt_set"), 112);
        assert_int_equal(level(top), POOL);
        if (round)
            break;
        ask(top, LOCAL, NULL);
        answer(0);
        assert_int_equal(level(top), LOCAL);
        fix_unlink(&f, top, "a", false);
        fix_unlink(&f, MGR_ROOT_INO, "chk_1", true);
        fix_tick(&f, QUIET_MS);
        assert_int_equal(fix_sql(&f, "SELECT count(*) FROM ckpt_set"), 0);
        top = fix_mk(&f, MGR_ROOT_INO, "chk_2", S_IFDIR | 0755);
        a = fix_mk(&f, top, "a", S_IFREG | 0644);
    }
}

static void test_what_is_neither_file_nor_set_has_none(void **state)
{
    uint64_t d = fix_mk(&f, MGR_ROOT_INO, "plain", S_IFDIR | 0755);
    Fp__LevelAsk m = FP__LEVEL_ASK__INIT;

    (void)state;
    m.ino = d;
    assert_null(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_LEVEL, &m, &fp__level_reply__descriptor));
    assert_int_equal(f.status, -ENODATA);
    m.ino = 999999;
    assert_null(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_LEVEL, &m, &fp__level_reply__descriptor));
    assert_int_equal(f.status, -ENOENT);
}

static void test_drained_without_a_target_says_how_to_get_one(void **state)
{
    uint64_t a = file("a", 1000);

    (void)state;
    assert_true(ask(a, DRAINED, NULL).failed);
    assert_non_null(strstr(why, "fpctl drain set"));
}

static void mount_comes_back(uint64_t session)
{
    Fp__Hello h = FP__HELLO__INIT;

    f.conn = fix_conn(&f);
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.node = "n1";
    h.mountpoint = "/mnt";
    h.session = session;
    h.open_known = true;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
    f.session = session;
}

/* A manager that is started anew, with the same database. */
static void reopen(void)
{
    uint64_t chunk = f.next_chunk, seq = f.seq, session = f.session;

    fix_close(&f);
    fix_open(&f, fix_path(), true);
    f.bnf_conn = fix_conn(&f);
    f.bnf = fix_hello_bnf(&f, f.bnf_conn, 7, 1u << 30);
    heard();
    fix_inventory(&f, 0);
    mount_comes_back(session);
    f.next_chunk = chunk;
    f.seq = seq;
    for (int i = 0; i < 8; i++) { /* until the mount counts as back */
        heard();
        fix_tick(&f, 400);
    }
}

static void test_what_is_known_outlasts_a_restart(void **state)
{
    uint64_t a, b;

    (void)state;
    fix_close(&f);
    life = 0;
    fix_open(&f, fix_path(), false);
    heard();
    a = file("a", 1000);
    sync_now(a);
    b = file("b", 1000);
    reopen();
    assert_int_equal(level(a), LOCAL);
    assert_int_equal(level(b), POOL);
    assert_false(ask(b, NONE, NULL).failed);
    ask(b, LOCAL, NULL); /* or it has begun by itself */
    answer(0);
    file("c", 10);
    reopen();
    assert_int_equal(level(b), LOCAL);
    life = 5; /* while it was away, which a new manager knows, too */
    reopen();
    assert_int_equal(level(a), LOCAL);
    assert_int_equal(level(b), LOCAL);
    assert_true(ask(fix_lookup(&f, MGR_ROOT_INO, "c"), LOCAL, NULL).failed);
    reopen();
    assert_true(ask(fix_lookup(&f, MGR_ROOT_INO, "c"), LOCAL, NULL).failed);
    assert_int_equal(level(a), LOCAL);
    fix_close_and_remove(&f);
    fix_open(&f, ":memory:", false);
}

/* The database fails in the group in which something was learnt. */
static void test_what_was_rolled_back_is_not_known(void **state)
{
    uint64_t a = file("a", 1000);
    bool started;

    (void)state;
    ask(a, LOCAL, &started);
    assert_true(started);
    f.doom = -EIO;
    {
        Fp__BnfSyncReply r = FP__BNF_SYNC_REPLY__INIT;
        size_t len = 16;
        uint8_t buf[64];

        r.unsynced_life = life;
        len = protobuf_c_message_pack(&r.base, buf);
        f.now.ms++;
        mgr_core_begin(f.core, f.now);
        mgr_core_answer(f.core, f.bnf_conn, SYNC_ALL, 0, buf, len);
        mgr_doom(f.core, -EIO);
        bool durable;
        assert_int_equal(mgr_core_end(f.core, &durable), -EIO);
        mgr_core_reset(f.core);
        f.doom = 0;
    }
    assert_int_equal(level(a), POOL);
    wait_ms(2 * QUIET_MS);
    if (!fix_out_find(&f, f.bnf_conn, SYNC_ALL))
        ask(a, LOCAL, NULL);
    answer(0);
    assert_int_equal(level(a), LOCAL);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_what_was_committed_before_a_round_is_local_after_it),
        T(test_one_round_at_a_time),
        T(test_a_change_drops_to_pool),
        T(test_who_has_it_open_for_writing_may_have_more),
        T(test_an_idle_store_becomes_local_by_itself),
        T(test_another_life_leaves_in_doubt_what_was_not_synced),
        T(test_an_answer_of_another_life_does_not_count),
        T(test_a_session_that_is_newer_than_the_loss_is_trusted),
        T(test_memory_is_never_local),
        T(test_a_round_that_fails_is_tried_again),
        T(test_a_benefactor_that_is_away_has_nothing_local),
        T(test_lost_and_damaged_data_is_none),
        T(test_a_big_map_is_looked_at_in_pieces),
        T(test_a_set_has_the_least_level_of_its_files),
        T(test_a_set_has_no_level_of_one_that_had_its_number),
        T(test_what_is_neither_file_nor_set_has_none),
        T(test_drained_without_a_target_says_how_to_get_one),
        T(test_what_is_known_outlasts_a_restart),
        T(test_what_was_rolled_back_is_not_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
