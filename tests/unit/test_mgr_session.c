/* Sessions: replay, what is held open, expiry, and what a restarted manager knows. */
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
#define REG  (S_IFREG | 0644)


static int setup(void **state)
{
    (void)state;
    fix_open(&f, fix_path(), false);
    return 0;
}

/* A new manager on the same database; nobody is connected. */
static void restart(void)
{
    struct fix old = f;

    fix_close(&f);
    fix_open(&f, fix_path(), true);
    f.session = old.session;
    f.seq = old.seq;
    f.next_chunk = old.next_chunk;
    f.bnf = old.bnf;
}

static uint64_t create(uint64_t seq, const char *name, bool tmpfile)
{
    Fp__MkNod m = FP__MK_NOD__INIT;
    Fp__AttrReply *r;
    uint64_t ino;

    m.slot = 3;
    m.slot_seq = seq;
    m.parent = ROOT;
    m.name = fix_bin(name);
    m.mode = REG;
    m.excl = m.open = true;
    m.tmpfile = tmpfile;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_MKNOD, &m, &fp__attr_reply__descriptor);
    ino = r ? r->attr->ino : 0;
    fix_free(r);
    return ino;
}

/* Comes back with its number and a list of what it holds. */
static void come_back_early(const uint64_t *open_ino, size_t n, bool expect_new, bool early)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__HelloReply *r;

    f.conn = fix_conn(&f);
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.session = f.session;
    h.open_known = true;
    h.open_ino = (uint64_t *)open_ino;
    h.n_open_ino = n;
    h.early = early;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor);
    assert_non_null(r);
    assert_true(r->session_is_new == expect_new);
    assert_true((r->session != f.session) == expect_new);
    f.session = r->session;
    fix_free(r);
}

static void come_back(const uint64_t *open_ino, size_t n, bool expect_new)
{
    come_back_early(open_ino, n, expect_new, false);
}

static void release(uint64_t ino)
{
    Fp__Release m = FP__RELEASE__INIT;

    m.n_ino = 1;
    m.ino = &ino;
    fix_notice(&f, f.conn, FP__MSG_TYPE__MSG_RELEASE, &m);
}

static bool was_closed(const struct mgr_conn *conn)
{
    for (size_t i = 0; i < f.out_count; i++)
        if (f.outs[i].kind == MGR_OUT_CLOSE && f.outs[i].conn == conn)
            return true;
    return false;
}

static void test_request_sent_twice_is_executed_once(void **state)
{
    uint64_t a = create(5, "a", false);

    (void)state;
    assert_true(a);
    assert_int_equal(create(5, "a", false), a);
    assert_int_equal(f.status, 0);
    assert_false(create(6, "a", false));
    assert_int_equal(f.status, -EEXIST);
    assert_false(create(4, "b", false));
    assert_int_equal(f.status, -EINVAL);
}

static void test_answers_survive_a_restart(void **state)
{
    uint64_t a = create(5, "a", false);

    (void)state;
    restart();
    come_back(NULL, 0, false);
    assert_int_equal(create(5, "a", false), a);
    assert_int_equal(mgr_map_get(&f.core->holders, a), 1);
}

static void test_session_numbers_are_never_used_twice(void **state)
{
    uint64_t first = f.session, second;

    (void)state;
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_BYE, NULL, NULL);
    assert_int_equal(f.status, 0);
    restart();
    f.conn = fix_conn(&f);
    second = fix_hello_client(&f, f.conn, 0, NULL);
    assert_true(second > first);
}

static void test_hello_refuses_strangers(void **state)
{
    Fp__Hello h = FP__HELLO__INIT;
    struct mgr_conn *conn = fix_conn(&f);
    uint8_t uuid[16] = {9};

    (void)state;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.protocol = 2;
    fix_call(&f, conn, FP__MSG_TYPE__MSG_HELLO, &h, NULL);
    assert_int_equal(f.status, FP_EPROTO_VERSION);
    h.protocol = 1;
    h.store_uuid.data = uuid;
    h.store_uuid.len = 16;
    fix_call(&f, conn, FP__MSG_TYPE__MSG_HELLO, &h, NULL);
    assert_int_equal(f.status, FP_EUUID);
    fix_call(&f, conn, FP__MSG_TYPE__MSG_STATFS, NULL, NULL);
    assert_int_equal(f.status, -EPERM);
    fix_call(&f, conn, 9999, NULL, NULL);
    assert_int_equal(f.status, FP_EBADMSG_TYPE);
    fix_tick(&f, 4000);
    assert_true(was_closed(conn));
}

static void test_lost_session_holds_its_files_until_it_expires(void **state)
{
    uint64_t a = create(1, "a", false);

    (void)state;
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    fix_lost(&f, f.conn);
    fix_tick(&f, 50000);
    f.conn = fix_conn(&f);
    fix_hello_client(&f, f.conn, 0, NULL);
    assert_int_equal(fix_attr(&f, a).ino, a);
    for (int i = 0; i < 12; i++) { /* the second client keeps talking */
        fix_tick(&f, 1000);
        fix_lookup(&f, ROOT, "x");
    }
    assert_int_equal(fix_attr(&f, a).ino, 0);
}

static void test_expired_session_may_come_back_and_dead_one_not(void **state)
{
    (void)state;
    fix_lost(&f, f.conn);
    fix_tick(&f, 70000);
    come_back(NULL, 0, false);
    fix_lost(&f, f.conn);
    fix_tick(&f, 130000);
    come_back(NULL, 0, true);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM session"), 1);
}

static void test_silent_session_is_closed(void **state)
{
    struct mgr_conn *conn = f.conn;

    (void)state;
    fix_tick(&f, 61000);
    assert_true(was_closed(conn));
    fix_call(&f, conn, FP__MSG_TYPE__MSG_STATFS, NULL, NULL);
    assert_int_equal(f.status, FP_ESESSION);
}

static void test_open_unlinked_file_survives_a_restart(void **state)
{
    uint64_t a = create(1, "a", false);

    (void)state;
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM orphan"), 1);
    restart();
    fix_tick(&f, 5000);
    come_back(&a, 1, false);
    fix_tick(&f, 5000);
    assert_int_equal(fix_attr(&f, a).ino, a);
    release(a);
    assert_int_equal(fix_attr(&f, a).ino, 0);
}

static void test_restart_takes_no_open_file_before_its_session_has_told(void **state)
{
    uint64_t a = create(1, "a", false);
    struct mgr_conn *other;

    (void)state;
    restart();
    other = f.conn = fix_conn(&f);
    fix_hello_client(&f, other, 0, NULL);
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0); /* by someone else, before the holder is back */
    fix_tick(&f, 3000);
    assert_int_equal(fix_attr(&f, a).ino, a);
    come_back(&a, 1, false);
    fix_tick(&f, 3000);
    assert_int_equal(fix_attr(&f, a).ino, a);
    release(a);
    assert_int_equal(fix_attr(&f, a).ino, 0);
}

static void test_lost_release_is_made_good_by_hello(void **state)
{
    uint64_t a = create(1, "a", false);

    (void)state;
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    fix_lost(&f, f.conn); /* and with it the release */
    come_back(NULL, 0, false);
    fix_tick(&f, 4000);
    assert_int_equal(fix_attr(&f, a).ino, 0);
}

/* A full disk, say: the mount is not told, and will not say it again. */
static void test_release_in_a_group_that_fails_counts(void **state)
{
    uint64_t a = create(1, "a", false), b = create(2, "b", false), both[2] = {a, b};
    Fp__Release m = FP__RELEASE__INIT;

    (void)state;
    assert_int_equal(fix_unlink(&f, ROOT, "a", false), 0);
    assert_int_equal(fix_unlink(&f, ROOT, "b", false), 0);
    m.n_ino = 2;
    m.ino = both;
    fix_notice_failing(&f, f.conn, FP__MSG_TYPE__MSG_RELEASE, &m);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM orphan"), 2);
    fix_tick(&f, 2000);
    assert_int_equal(fix_attr(&f, a).ino, 0);
    assert_int_equal(fix_attr(&f, b).ino, 0);
}

static void test_replayed_tmpfile_is_still_there(void **state)
{
    uint64_t a = create(7, "", true);

    (void)state;
    fix_lost(&f, f.conn); /* the answer is lost: the client does not know of it */
    come_back(NULL, 0, false);
    assert_int_equal(create(7, "", true), a);
    fix_tick(&f, 5000);
    assert_int_equal(fix_attr(&f, a).ino, a);
}

static void test_new_connection_takes_the_session_over(void **state)
{
    struct mgr_conn *old = f.conn;

    (void)state;
    come_back(NULL, 0, false);
    assert_true(was_closed(old));
    fix_call(&f, old, FP__MSG_TYPE__MSG_STATFS, NULL, NULL);
    assert_int_equal(f.status, FP_ESESSION);
    fix_lost(&f, old);
    assert_ptr_equal(mgr_session_find(f.core, f.session)->conn, f.conn);
}

static int told_alone(const struct mgr_conn *conn)
{
    const struct fix_out *o = fix_out_find(&f, conn, FP__MSG_TYPE__MSG_ALONE);
    Fp__Alone *m = o ? fp__alone__unpack(NULL, o->len, o->bytes) : NULL;
    int alone = m ? m->alone : -1;

    fix_free(m);
    return alone;
}

static Fp__HelloReply *second_hello(struct mgr_conn *conn)
{
    Fp__Hello h = FP__HELLO__INIT;

    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    return fix_call(&f, conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor);
}

static bool forgets;
/* conn answers MSG_ALONE. */
static void answer_alone(struct mgr_conn *conn, int status)
{
    Fp__Alone m = FP__ALONE__INIT;

    m.forgot = forgets;
    fix_answer(&f, conn, FP__MSG_TYPE__MSG_ALONE, status, &m);
}

static bool told_ready(const struct mgr_conn *conn)
{
    return fix_out_find(&f, conn, FP__MSG_TYPE__MSG_READY) != NULL;
}

/* Hello of a new mount: does it have to wait? */
static bool second_waits(struct mgr_conn *conn)
{
    Fp__HelloReply *r = second_hello(conn);
    bool waits = r->wait;

    assert_false(r->alone);
    assert_true(!waits == (r->wait_for[0] == '\0'));
    fix_free(r);
    return waits;
}

/* How many inode numbers conn gets. */
static uint32_t numbers(struct mgr_conn *conn, uint32_t count, uint64_t *first)
{
    Fp__Inodes m = FP__INODES__INIT;
    Fp__InodesReply *r;
    uint32_t got;

    m.count = count;
    r = fix_call(&f, conn, FP__MSG_TYPE__MSG_INODES, &m, &fp__inodes_reply__descriptor);
    assert_non_null(r);
    got = r->count;
    if (first)
        *first = r->first;
    fix_free(r);
    return got;
}

static void test_second_session_waits_until_the_first_has_ended_being_alone(void **state)
{
    struct mgr_conn *conn = fix_conn(&f);

    (void)state;
    assert_true(mgr_session_find(f.core, f.session)->may_cache);
    assert_true(second_waits(conn));
    assert_int_equal(told_alone(f.conn), 0);
    assert_int_equal(told_alone(conn), -1);
    for (int i = 0; i < 30; i++) { /* however long that takes */
        fix_tick(&f, 1000);
        mgr_session_find(f.core, f.session)->seen_ms = f.now.ms;
        assert_false(told_ready(conn));
        assert_int_equal(told_alone(f.conn), -1); /* asked once */
    }
    answer_alone(f.conn, 0);
    assert_false(told_ready(conn)); /* what it has lent to its kernel expires first */
    f.now.ms += 400;
    fix_tick(&f, 500);
    assert_false(told_ready(conn)); /* 900 ms: twice what the kernel is told, but it may have been told late */
    fix_tick(&f, 500);
    assert_true(told_ready(conn));
    assert_false(second_waits(fix_conn(&f)));
}

static void test_who_has_forgotten_names_holds_up_those_of_no_job(void **state)
{
    struct mgr_conn *conn = fix_conn(&f);

    (void)state;
    assert_true(mgr_names_held(f.core));
    assert_true(second_waits(conn));
    forgets = true;
    answer_alone(f.conn, 0);
    forgets = false;
    assert_false(mgr_names_held(f.core));
    assert_false(told_ready(conn)); /* its kernel may have attributes of directories for a while */
    fix_tick(&f, 1000);
    assert_true(told_ready(conn));
    fix_call(&f, conn, FP__MSG_TYPE__MSG_BYE, NULL, NULL); /* alone again: it is to forget again */
    answer_alone(f.conn, 0);
    fix_free(second_hello(fix_conn(&f)));
    answer_alone(f.conn, 0);
    assert_true(mgr_names_held(f.core));
    fix_tick(&f, 1000);
    assert_false(mgr_names_held(f.core));
}

static void test_question_that_was_not_answered_is_asked_again(void **state)
{
    struct mgr_conn *conn = fix_conn(&f);

    (void)state;
    assert_true(second_waits(conn));
    answer_alone(f.conn, FP_EDEADLINE);
    assert_int_equal(told_alone(f.conn), 0);
    assert_true(mgr_session_find(f.core, f.session)->may_cache);
}

static void test_last_session_is_told_that_it_is_alone(void **state)
{
    struct mgr_conn *conn = fix_conn(&f);

    (void)state;
    fix_free(second_hello(conn));
    answer_alone(f.conn, 0);
    fix_call(&f, conn, FP__MSG_TYPE__MSG_BYE, NULL, NULL);
    assert_int_equal(told_alone(f.conn), 1);
    answer_alone(f.conn, 0);
    assert_true(mgr_session_find(f.core, f.session)->may_cache); /* that was no end of it */
    assert_int_equal(told_alone(f.conn), -1);
}

static void test_session_that_waits_is_let_in_when_the_other_ends(void **state)
{
    struct mgr_conn *conn = fix_conn(&f);

    (void)state;
    assert_int_equal(numbers(f.conn, 100, NULL), 100);
    assert_true(second_waits(conn));
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_BYE, NULL, NULL);
    assert_true(told_ready(conn));
    assert_int_equal(told_alone(conn), 1);
}

static void test_restart_does_not_forget_who_may_cache(void **state)
{
    (void)state;
    restart();
    assert_true(second_waits(fix_conn(&f))); /* before the first one is back */
}

static void test_lost_session_caches_nothing_for_long(void **state)
{
    (void)state;
    fix_lost(&f, f.conn);
    fix_tick(&f, 2000);
    f.conn = fix_conn(&f);
    assert_false(second_waits(f.conn)); /* it may come back */
    f.session = f.conn->sess->id;
}

static void test_numbers_are_for_who_is_alone(void **state)
{
    struct mgr_conn *conn = fix_conn(&f);
    uint64_t first, second;

    (void)state;
    assert_int_equal(numbers(f.conn, 100, &first), 100);
    assert_int_equal(numbers(f.conn, 100, &second), 100);
    assert_true(first >= 16 && second >= first + 100);
    assert_true(fix_mk(&f, 1, "a", S_IFREG | 0644) >= second + 100);
    assert_int_equal(f.core->early_session, f.session);
    assert_int_equal(numbers(f.conn, 0, NULL), 0); /* back */
    assert_int_equal(f.core->early_session, 0);
    fix_free(second_hello(conn));
    assert_int_equal(numbers(f.conn, 100, NULL), 0);
    assert_int_equal(numbers(conn, 100, NULL), 0);
}

static void test_session_with_numbers_is_waited_for_when_its_connection_is_lost(void **state)
{
    struct mgr_conn *conn = fix_conn(&f);

    (void)state;
    assert_int_equal(numbers(f.conn, 100, NULL), 100);
    fix_lost(&f, f.conn);
    fix_tick(&f, 1000);
    assert_true(second_waits(conn));
    fix_tick(&f, 1000);
    assert_false(told_ready(conn));
    come_back_early(NULL, 0, false, true); /* it has yet to tell what it has done */
    assert_int_equal(told_alone(f.conn), 0);
    fix_tick(&f, 1000);
    mgr_session_find(f.core, f.session)->seen_ms = f.now.ms;
    assert_false(told_ready(conn));
    answer_alone(f.conn, 0);
    fix_tick(&f, 1200);
    assert_true(told_ready(conn));
}

static void test_session_that_comes_back_with_nothing_to_tell_is_not_waited_for(void **state)
{
    struct mgr_conn *conn = fix_conn(&f);

    (void)state;
    assert_int_equal(numbers(f.conn, 100, NULL), 100);
    fix_lost(&f, f.conn);
    assert_true(second_waits(conn));
    come_back(NULL, 0, false);
    fix_tick(&f, 1200);
    assert_true(told_ready(conn));
}

static void test_session_with_numbers_is_waited_for_until_it_expires(void **state)
{
    struct mgr_conn *conn = fix_conn(&f);
    Fp__ClientStats alive = FP__CLIENT_STATS__INIT;

    (void)state;
    assert_int_equal(numbers(f.conn, 100, NULL), 100);
    restart(); /* is remembered */
    assert_int_equal(f.core->early_session, f.session);
    conn = fix_conn(&f);
    assert_true(second_waits(conn));
    for (int i = 0; i < 200 && f.core->early_session; i++) {
        fix_notice(&f, conn, FP__MSG_TYPE__MSG_CLIENT_STATS, &alive);
        fix_tick(&f, 900);
        assert_true(told_ready(conn) == !f.core->early_session);
    }
    assert_int_equal(f.core->early_session, 0);
    assert_true(mgr_session_find(f.core, f.session)->expired);
    f.conn = conn;
    f.session = conn->sess->id;
}

/* Hello of a mount at the mountpoint that all mounts of this file have. */
static void hello_from(struct mgr_conn *conn, const char *node, uint64_t machine, uint64_t boot, uint64_t mount_ns)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__Place place = FP__PLACE__INIT;

    place.machine = machine;
    place.boot = boot;
    place.mount_ns = mount_ns;
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    h.node = (char *)node;
    h.mountpoint = "/mnt";
    h.place = machine || boot || mount_ns ? &place : NULL;
    fix_free(fix_call(&f, conn, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor));
}

/* A mount that may have told its programs of something is lost, and the next one comes: does that wait? */
static bool next_one_waits(const char *node, uint64_t machine, uint64_t boot, uint64_t mount_ns, bool restarted)
{
    struct mgr_conn *next;
    bool waits;

    assert_int_equal(numbers(f.conn, 100, NULL), 100);
    if (restarted)
        restart();
    else
        fix_lost(&f, f.conn);
    next = fix_conn(&f);
    fix_tick(&f, 1200);
    hello_from(next, node, machine, boot, mount_ns);
    waits = next->sess->waits;
    assert_true(waits == (f.core->early_session != 0));
    fix_lost(&f, next);
    fix_tick(&f, 200000); /* all sessions are gone */
    f.conn = fix_conn(&f);
    hello_from(f.conn, "n1", 0x8000000000000001, 2, 3); /* who is lost next time */
    f.session = f.conn->sess->id;
    return waits;
}

static void test_dead_session_is_not_waited_for_by_who_has_its_mountpoint(void **state)
{
    const uint64_t m = 0x8000000000000001;

    (void)state;
    assert_true(next_one_waits("n1", m, 2, 3, false)); /* nothing is known of the first */
    for (int restarted = 0; restarted < 2; restarted++) {
        assert_false(next_one_waits("n1", m, 2, 3, restarted));
        assert_false(next_one_waits("n1", m, 9, 9, restarted)); /* the machine was booted */
        assert_true(next_one_waits("n1", m, 2, 4, restarted));  /* a container of its own: both paths may be in use */
        assert_true(next_one_waits("n2", m, 2, 3, restarted));
        assert_true(next_one_waits("n1", 7, 9, 3, restarted)); /* another machine by the same name */
        assert_true(next_one_waits("n1", 0, 9, 3, restarted)); /* that may be another one */
        assert_true(next_one_waits("n1", m, 2, 0, restarted));
        assert_true(next_one_waits("n1", 0, 0, 0, restarted));
    }
}

/* Its node was cut off or booted anew, so that the manager hears of its end after the new mount has come. */
static void test_dead_session_whose_connection_ends_late_is_not_waited_for(void **state)
{
    struct mgr_conn *old = f.conn;

    (void)state;
    f.conn->sess->place = (struct mgr_place){1, 2, 3};
    assert_int_equal(numbers(f.conn, 100, NULL), 100);
    f.conn = fix_conn(&f);
    hello_from(f.conn, "n1", 1, 2, 3);
    fix_tick(&f, 1000);
    assert_true(f.conn->sess->waits);
    fix_lost(&f, old);
    fix_tick(&f, 1200);
    assert_int_equal(f.core->early_session, 0);
    fix_tick(&f, 100);
    assert_false(f.conn->sess->waits);
    f.session = f.conn->sess->id;
}

static void test_who_has_numbers_is_known_after_a_power_failure(void **state)
{
    Fp__Inodes m = FP__INODES__INIT;

    (void)state;
    m.count = 10;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_INODES, &m, &fp__inodes_reply__descriptor));
    assert_true(f.durable); /* answered when it is synced */
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_INODES, &m, &fp__inodes_reply__descriptor));
    assert_false(f.durable); /* nothing new */
    m.count = 0;
    fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_INODES, &m, &fp__inodes_reply__descriptor));
    assert_int_equal(f.core->early_session, 0);
    fix_lost(&f, f.conn); /* its connection, before it knew that it had given them back */
    come_back_early(NULL, 0, false, true);
    assert_true(f.durable);
    assert_int_equal(f.core->early_session, f.session);
}

static void test_file_with_a_number_of_the_client(void **state)
{
    Fp__MkNod m = FP__MK_NOD__INIT;
    Fp__Unlink u = FP__UNLINK__INIT;
    Fp__AttrReply *r;
    uint64_t first;

    (void)state;
    assert_int_equal(numbers(f.conn, 4, &first), 4);
    m.parent = u.parent = 1;
    m.name = u.name = fix_bin("a");
    m.mode = S_IFREG | 0600;
    m.open = m.excl = true;
    m.ino = first + 2;
    m.time_ns = u.time_ns = 123456789;
    r = fix_call(&f, f.conn, FP__MSG_TYPE__MSG_MKNOD, &m, &fp__attr_reply__descriptor);
    assert_true(r->created && r->attr->ino == first + 2);
    assert_true(r->attr->mtime_ns == 123456789 && r->attr->btime_ns == 123456789 && r->attr->ctime_ns == 123456789);
    assert_true(r->parent->mtime_ns == 123456789);
    fix_free(r);
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_MKNOD, &m, NULL);
    assert_int_equal(f.status, -EEXIST);
    m.name = fix_bin("b"); /* a number is used once */
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_MKNOD, &m, NULL);
    assert_int_equal(f.status, -EINVAL);
    m.ino = first + 1000; /* was never given out */
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_MKNOD, &m, NULL);
    assert_int_equal(f.status, -EINVAL);
    u.ino = first + 1; /* the name is of another file now */
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_UNLINK, &u, NULL);
    assert_int_equal(f.status, -ENOENT);
    u.ino = first + 2;
    u.time_ns = 123456999;
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_UNLINK, &u, NULL);
    assert_int_equal(f.status, 0);
    assert_int_equal(fix_attr(&f, 1).mtime_ns, 123456999);
}

/* BYE is not executed: the client may hold on to its session, and its answers are kept. */
static void test_end_of_a_session_that_is_taken_back(void **state)
{
    struct mgr_conn *old = f.conn;
    uint64_t a = create(5, "a", false);

    (void)state;
    f.doom = -EIO;
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_BYE, NULL, NULL);
    assert_int_equal(f.status, -EIO);
    assert_non_null(mgr_session_find(f.core, f.session));
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM session"), 1);
    fix_lost(&f, old);
    come_back(&a, 1, false);
    assert_int_equal(create(5, "a", false), a);
    fix_call(&f, f.conn, FP__MSG_TYPE__MSG_BYE, NULL, NULL);
    assert_int_equal(f.status, 0);
    assert_null(mgr_session_find(f.core, f.session));
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM session"), 0);
}

/* It is still to be ended, and what it had is still to be counted, also if nobody hears of it. */
static void test_expired_session_whose_end_is_taken_back_ends_later(void **state)
{
    uint64_t id = f.session;

    (void)state;
    fix_lost(&f, f.conn);
    fix_tick(&f, 119500); /* 60 s until it has expired, 60 until it is dead */
    assert_non_null(mgr_session_find(f.core, id));
    f.doom = -EIO;
    fix_tick_failing(&f, 900);
    assert_non_null(mgr_session_find(f.core, id));
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM session"), 1);
    fix_tick(&f, 500);
    assert_null(mgr_session_find(f.core, id));
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM session"), 0);
    f.conn = fix_conn(&f);
    f.session = fix_hello_client(&f, f.conn, 0, NULL);
}

static void test_stop_tells_clients_first(void **state)
{
    struct mgr_conn *ctl = fix_conn(&f);
    Fp__Hello h = FP__HELLO__INIT;

    (void)state;
    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CONTROL;
    fix_call(&f, ctl, FP__MSG_TYPE__MSG_HELLO, &h, NULL);
    fix_call(&f, ctl, FP__MSG_TYPE__MSG_CTL_STOP, NULL, NULL);
    assert_int_equal(f.status, 0);
    assert_non_null(fix_out_find(&f, f.conn, FP__MSG_TYPE__MSG_STOP));
    assert_null(fix_out_find(&f, f.bnf_conn, FP__MSG_TYPE__MSG_STOP));
    fix_lost(&f, f.conn);
    assert_non_null(fix_out_find(&f, f.bnf_conn, FP__MSG_TYPE__MSG_STOP));
    assert_false(mgr_core_stopped(f.core));
    fix_lost(&f, f.bnf_conn);
    fix_tick(&f, 500);
    assert_true(mgr_core_stopped(f.core));
}

static void test_inode_numbers_of_the_last_seconds_are_not_given_out_again(void **state)
{
    uint64_t before = create(1, "a", false);

    (void)state;
    restart(); /* as after a crash of the machine: what came after `before` may be missing */
    come_back(&before, 1, false);
    assert_true(create(2, "b", false) > before + 1000000);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_request_sent_twice_is_executed_once),
        T(test_answers_survive_a_restart),
        T(test_session_numbers_are_never_used_twice),
        T(test_hello_refuses_strangers),
        T(test_lost_session_holds_its_files_until_it_expires),
        T(test_expired_session_may_come_back_and_dead_one_not),
        T(test_silent_session_is_closed),
        T(test_open_unlinked_file_survives_a_restart),
        T(test_restart_takes_no_open_file_before_its_session_has_told),
        T(test_lost_release_is_made_good_by_hello),
        T(test_release_in_a_group_that_fails_counts),
        T(test_replayed_tmpfile_is_still_there),
        T(test_new_connection_takes_the_session_over),
        T(test_second_session_waits_until_the_first_has_ended_being_alone),
        T(test_who_has_forgotten_names_holds_up_those_of_no_job),
        T(test_question_that_was_not_answered_is_asked_again),
        T(test_last_session_is_told_that_it_is_alone),
        T(test_session_that_waits_is_let_in_when_the_other_ends),
        T(test_restart_does_not_forget_who_may_cache),
        T(test_lost_session_caches_nothing_for_long),
        T(test_numbers_are_for_who_is_alone),
        T(test_session_with_numbers_is_waited_for_when_its_connection_is_lost),
        T(test_session_that_comes_back_with_nothing_to_tell_is_not_waited_for),
        T(test_session_with_numbers_is_waited_for_until_it_expires),
        T(test_dead_session_is_not_waited_for_by_who_has_its_mountpoint),
        T(test_dead_session_whose_connection_ends_late_is_not_waited_for),
        T(test_who_has_numbers_is_known_after_a_power_failure),
        T(test_file_with_a_number_of_the_client),
        T(test_end_of_a_session_that_is_taken_back),
        T(test_expired_session_whose_end_is_taken_back_ends_later),
        T(test_stop_tells_clients_first),
        T(test_inode_numbers_of_the_last_seconds_are_not_given_out_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
