/* Locks as a state machine (manager/locks.h): what each of its rules is for. Against a model: test_mgr_locks_random.c. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "manager/locks_int.h"

static struct mgr_locks *t;
static uint64_t now = 1000, tickets;

static int setup(void **state)
{
    (void)state;
    t = mgr_locks_new();
    return t ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    mgr_locks_free(t);
    return 0;
}

static struct mgr_lock range(uint64_t session, uint64_t owner, uint64_t start, uint64_t end, bool exclusive)
{
    return (struct mgr_lock){
        .session = session, .owner = owner, .start = start, .end = end, .exclusive = exclusive, .pid = (uint32_t)owner};
}

static struct mgr_lock whole(uint64_t session, uint64_t owner, bool exclusive)
{
    return range(session, owner, 0, MGR_LOCK_EOF, exclusive);
}

static void flush_changes(void)
{
    struct mgr_lock_change ch;

    while (mgr_locks_change_next(t, &ch))
        ;
}

static int lock(uint64_t ino, struct mgr_lock l, bool wait)
{
    int rc = mgr_locks_set(t, ino, &l, ++tickets, wait, now);

    flush_changes();
    return rc;
}

static int unlock(uint64_t ino, struct mgr_lock l)
{
    int rc = mgr_locks_unset(t, ino, &l, now);

    flush_changes();
    return rc;
}

static int flock_(uint64_t session, uint64_t owner, bool exclusive, bool wait)
{
    struct mgr_lock l = whole(session, owner, exclusive);

    l.kind = MGR_LOCK_FLOCK;
    return lock(7, l, wait);
}

/* The next wait that has ended; -1: none. Its status is in *status. */
static int64_t ended(int *status)
{
    struct mgr_lock_done d;

    mgr_locks_commit(t);
    if (!mgr_locks_done_next(t, &d))
        return -1;
    *status = d.status;
    return (int64_t)d.ticket;
}

static void assert_granted(uint64_t ticket)
{
    int status = 1;

    assert_int_equal(ended(&status), ticket);
    assert_int_equal(status, 0);
}

static void assert_nobody(void)
{
    int status;

    assert_int_equal(ended(&status), -1);
}

/* ---------------------------------------------------------------- rules */

static void test_locks_exclude_and_share(void **state)
{
    (void)state;
    assert_int_equal(lock(1, range(1, 1, 0, 9, false), false), 0);
    assert_int_equal(lock(1, range(2, 1, 5, 20, false), false), 0);
    assert_int_equal(lock(1, range(2, 2, 9, 9, true), false), -EAGAIN);
    assert_int_equal(lock(1, range(2, 2, 21, MGR_LOCK_EOF, true), false), 0);
    assert_int_equal(lock(1, range(1, 1, 0, 4, true), false), 0); /* its own is no obstacle */
    assert_int_equal(lock(1, range(1, 1, 5, 9, true), false), -EAGAIN);
    assert_int_equal(lock(2, range(2, 2, 0, 100, true), false), 0); /* another file */
    assert_int_equal(mgr_locks_held(t), 5);
}

static void test_locks_tell_who_holds_it(void **state)
{
    struct mgr_lock ask = range(1, 1, 0, 100, true), h;

    (void)state;
    lock(1, range(2, 5, 40, 49, true), false);
    lock(1, range(2, 6, 10, 19, false), false);
    assert_true(mgr_locks_test(t, 1, &ask, &h));
    assert_true(h.start == 10 && h.end == 19 && !h.exclusive && h.pid == 6);
    ask.exclusive = false;
    assert_true(mgr_locks_test(t, 1, &ask, &h));
    assert_true(h.start == 40 && h.exclusive && h.pid == 5);
    ask = range(2, 5, 40, 60, true);
    assert_false(mgr_locks_test(t, 1, &ask, &h));
}

static void test_locks_grant_in_order_of_asking(void **state)
{
    (void)state;
    assert_int_equal(lock(1, whole(1, 1, true), true), 0);
    for (uint64_t i = 2; i < 6; i++)
        assert_int_equal(lock(1, whole(i, i, true), true), MGR_LOCK_QUEUED);
    assert_int_equal(mgr_locks_waiting(t), 4);
    uint64_t first = tickets - 3;
    for (uint64_t i = 1; i < 5; i++) {
        unlock(1, whole(i, i, false));
        assert_granted(first + i - 1);
        assert_nobody();
    }
}

static void test_locks_readers_do_not_pass_a_writer(void **state)
{
    (void)state;
    assert_int_equal(lock(1, whole(1, 1, false), true), 0);
    assert_int_equal(lock(1, whole(2, 2, true), true), MGR_LOCK_QUEUED);
    uint64_t writer = tickets;
    assert_int_equal(lock(1, whole(3, 3, false), true), MGR_LOCK_QUEUED);
    assert_int_equal(lock(1, whole(4, 4, false), false), 0); /* one that does not wait: what POSIX says */
    unlock(1, whole(4, 4, false));
    assert_nobody();
    unlock(1, whole(1, 1, false));
    assert_granted(writer);
    assert_nobody();
    unlock(1, whole(2, 2, false));
    assert_granted(writer + 1);
}

static void test_locks_waiting_behind_a_waiter_has_an_end(void **state)
{
    (void)state;
    lock(1, whole(1, 1, false), true);
    lock(1, whole(2, 2, true), true);
    assert_int_equal(lock(1, whole(3, 3, false), true), MGR_LOCK_QUEUED);
    uint64_t reader = tickets;
    now += MGR_LOCK_FAIR_MS - 1;
    mgr_locks_tick(t, now);
    assert_nobody();
    now += 1;
    mgr_locks_tick(t, now);
    assert_granted(reader); /* what it holds may be what the first reader waits for */
    assert_nobody();
}

static void test_locks_an_upgrade_does_not_wait_behind_who_waits_for_it(void **state)
{
    (void)state;
    assert_int_equal(lock(1, whole(1, 1, false), true), 0);
    assert_int_equal(lock(1, whole(2, 2, true), true), MGR_LOCK_QUEUED);
    assert_int_equal(lock(1, whole(1, 1, true), true), 0);
}

static void test_locks_cycle_of_two(void **state)
{
    (void)state;
    lock(1, whole(1, 1, true), true);
    lock(2, whole(2, 2, true), true);
    assert_int_equal(lock(2, whole(1, 1, true), true), MGR_LOCK_QUEUED);
    uint64_t first = tickets;
    assert_int_equal(lock(1, whole(2, 2, true), false), -EAGAIN); /* who does not wait is in no cycle */
    assert_int_equal(lock(1, whole(2, 2, true), true), -EDEADLK);
    assert_nobody();
    unlock(2, whole(2, 2, true));
    assert_granted(first);
}

static void test_locks_cycle_of_three_over_sessions(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(lock(1, range(i + 1, 9, i, i, true), true), 0);
    assert_int_equal(lock(1, range(1, 9, 1, 1, true), true), MGR_LOCK_QUEUED);
    assert_int_equal(lock(1, range(2, 9, 2, 2, false), true), MGR_LOCK_QUEUED);
    assert_int_equal(lock(1, range(3, 9, 0, 0, true), true), -EDEADLK);
    assert_int_equal(lock(1, range(4, 9, 0, 0, true), true), MGR_LOCK_QUEUED); /* who holds nothing closes no cycle */
}

static void test_locks_both_upgrade(void **state)
{
    (void)state;
    lock(1, whole(1, 1, false), true);
    lock(1, whole(2, 2, false), true);
    assert_int_equal(lock(1, whole(1, 1, true), true), MGR_LOCK_QUEUED);
    assert_int_equal(lock(1, whole(2, 2, true), true), -EDEADLK);
}

/* A waits for B's range 1 with one thread; another of its threads then gets what B waits for. */
static void test_locks_cycle_that_a_grant_closes(void **state)
{
    int status = 0;

    (void)state;
    lock(1, range(2, 2, 1, 1, true), true);
    lock(1, range(3, 3, 5, 5, true), true);
    assert_int_equal(lock(1, range(1, 1, 1, 1, true), true), MGR_LOCK_QUEUED);
    assert_int_equal(lock(1, range(1, 1, 5, 5, true), true), MGR_LOCK_QUEUED);
    uint64_t a5 = tickets;
    assert_int_equal(lock(1, range(2, 2, 5, 5, true), true), MGR_LOCK_QUEUED);
    uint64_t b5 = tickets;
    unlock(1, range(3, 3, 5, 5, true));
    assert_granted(a5);
    assert_int_equal(ended(&status), b5);
    assert_int_equal(status, -EDEADLK);
}

static void test_locks_flock_converts_without_a_deadlock(void **state)
{
    (void)state;
    assert_int_equal(flock_(1, 1, false, false), 0);
    assert_int_equal(flock_(2, 2, false, false), 0);
    assert_int_equal(flock_(1, 1, true, true), MGR_LOCK_QUEUED); /* and has given the shared one up */
    uint64_t first = tickets;
    assert_int_equal(flock_(2, 2, true, true), MGR_LOCK_QUEUED);
    assert_granted(first);
    assert_int_equal(flock_(1, 1, false, false), 0);
    assert_nobody();
    assert_int_equal(lock(7, whole(3, 3, true), false), 0); /* fcntl's are others */
}

static void test_locks_of_a_file_being_closed_are_waited_for(void **state)
{
    struct mgr_lock_id id = {.ino = 7, .session = 1, .owner = 1, .kind = MGR_LOCK_FLOCK};
    struct mgr_lock l = whole(1, 1, true);
    int status;

    (void)state;
    l.kind = MGR_LOCK_FLOCK;
    flock_(1, 1, true, false);
    assert_int_equal(flock_(2, 2, true, false), -EAGAIN);
    mgr_locks_closing(t, &id, now);
    assert_int_equal(flock_(2, 2, true, false), MGR_LOCK_QUEUED);
    unlock(7, l);
    assert_granted(tickets);
    id = (struct mgr_lock_id){.ino = 7, .session = 2, .owner = 2, .kind = MGR_LOCK_FLOCK};
    mgr_locks_closing(t, &id, now);
    assert_int_equal(flock_(3, 3, true, false), MGR_LOCK_QUEUED);
    now += MGR_LOCK_CLOSING_MS - 1;
    mgr_locks_tick(t, now);
    assert_nobody();
    now += 1;
    mgr_locks_tick(t, now);
    assert_int_equal(ended(&status), tickets); /* another descriptor keeps it */
    assert_int_equal(status, -EAGAIN);
    assert_int_equal(flock_(3, 3, true, false), -EAGAIN);
}

static void test_locks_wait_is_cancelled(void **state)
{
    int status = 0;

    (void)state;
    lock(1, whole(1, 1, false), true);
    lock(1, whole(2, 2, true), true);
    uint64_t writer = tickets;
    lock(1, whole(3, 3, false), true);
    assert_false(mgr_locks_cancel(t, 3, writer, now));
    assert_true(mgr_locks_cancel(t, 2, writer, now));
    assert_int_equal(ended(&status), writer);
    assert_int_equal(status, -EINTR);
    assert_granted(writer + 1); /* nothing stands before it any more */
    assert_false(mgr_locks_cancel(t, 2, writer, now));
}

static void test_locks_the_same_request_again(void **state)
{
    struct mgr_lock l = whole(2, 2, true);

    (void)state;
    lock(1, whole(1, 1, true), true);
    assert_int_equal(lock(1, l, true), MGR_LOCK_QUEUED);
    assert_int_equal(mgr_locks_set(t, 1, &l, tickets, true, now), MGR_LOCK_QUEUED);
    assert_int_equal(mgr_locks_waiting(t), 1);
    unlock(1, whole(1, 1, true));
    assert_granted(tickets);
    assert_int_equal(mgr_locks_set(t, 1, &l, tickets, true, now), 0);
    assert_int_equal(mgr_locks_held(t), 1);
}

static void test_locks_end_of_a_session(void **state)
{
    int status = 0;

    (void)state;
    lock(1, whole(1, 1, true), true);
    lock(2, whole(1, 2, true), true);
    lock(1, whole(2, 1, true), true);
    uint64_t a = tickets;
    lock(2, whole(1, 3, true), true);
    lock(2, whole(2, 2, false), true);
    assert_int_equal(mgr_locks_end(t, 1, now), 0);
    flush_changes();
    assert_int_equal(mgr_locks_held(t), 2);
    assert_int_equal(mgr_locks_waiting(t), 0);
    int64_t one = ended(&status), two = ended(&status); /* of two files: in any order */
    assert_true(one + two == (int64_t)(2 * a + 2) && one != two && status == 0);
    assert_nobody();
}

static void test_locks_hello_keeps_what_it_says(void **state)
{
    struct mgr_lock_id ids[] = {{.ino = 1, .session = 1, .owner = 1}, {.ino = 3, .session = 1, .owner = 1}};
    bool missing[2];

    (void)state;
    lock(1, range(1, 1, 0, 0, true), true);
    lock(1, range(1, 1, 9, 9, true), true);
    lock(2, range(1, 1, 0, 0, true), true); /* granted, but the answer was lost */
    lock(2, range(2, 2, 0, 0, true), true);
    uint64_t other = tickets;
    lock(1, range(3, 3, 0, 0, true), true);
    lock(2, range(1, 5, 0, 0, true), true); /* it will ask again */
    assert_int_equal(mgr_locks_keep(t, 1, ids, 2, missing, now), 0);
    flush_changes();
    assert_false(missing[0]);
    assert_true(missing[1]);
    assert_granted(other);
    assert_nobody();
    assert_int_equal(mgr_locks_held(t), 3);
    assert_int_equal(mgr_locks_waiting(t), 1);
    assert_int_equal(mgr_locks_keep(t, 1, NULL, 0, NULL, now), 0);
    flush_changes();
    assert_granted(other + 1);
}

static void test_locks_right_to_append_is_called_back(void **state)
{
    struct mgr_lock l = whole(1, 0, true);
    struct mgr_lock_id id = {.ino = 1, .session = 1, .kind = MGR_LOCK_APPEND};
    struct mgr_lock_recall r;
    bool missing;

    (void)state;
    l.kind = MGR_LOCK_APPEND;
    assert_int_equal(lock(1, l, true), 0);
    l.session = 2;
    assert_int_equal(lock(1, l, true), MGR_LOCK_QUEUED);
    uint64_t second = tickets;
    assert_true(mgr_locks_recall_next(t, &r));
    assert_true(r.session == 1 && r.ino == 1);
    assert_false(mgr_locks_recall_next(t, &r));
    assert_int_equal(mgr_locks_keep(t, 1, &id, 1, &missing, now), 0); /* it may not have heard it */
    assert_true(mgr_locks_recall_next(t, &r));
    l.session = 3;
    assert_int_equal(lock(1, l, true), MGR_LOCK_QUEUED);
    l.session = 1;
    unlock(1, l);
    assert_granted(second);
    assert_true(mgr_locks_recall_next(t, &r)); /* and is to go on to the third */
    while (r.session == 1)
        assert_true(mgr_locks_recall_next(t, &r));
    assert_int_equal(r.session, 2);
}

/* Each look goes through what is held of the file: with all that wait, an unlock would cost their number times that of the ranges. */
static void test_locks_an_unlock_looks_only_at_who_waits_for_these_bytes(void **state)
{
    const unsigned n = 500;
    uint64_t first = tickets + 2; /* each has taken two */

    (void)state;
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(lock(1, range(1, i + 1, 10 * i, 10 * i + 9, true), false), 0);
        assert_int_equal(lock(1, range(2, i + 1, 10 * i + 5, 10 * i + 5, true), true), MGR_LOCK_QUEUED);
    }
    for (unsigned i = 0; i < n; i++) {
        uint64_t looks = t->looks;

        assert_int_equal(unlock(1, range(1, i + 1, 10 * i, 10 * i + 4, true)), 0);
        assert_int_equal(t->looks, looks);
        assert_int_equal(unlock(1, range(1, i + 1, 10 * i, 10 * i + 9, true)), 0);
        assert_in_range(t->looks - looks, 1, 2);
        assert_granted(first + 2 * i);
    }
    assert_nobody();
}

/* Who has something of the file does not wait behind others; what it waits for is elsewhere than what it was just given. */
static void test_locks_a_grant_lets_its_owner_pass_elsewhere(void **state)
{
    uint64_t first;

    (void)state;
    assert_int_equal(lock(1, range(1, 1, 0, 9, true), false), 0);    /* what B waits for first */
    assert_int_equal(lock(1, range(1, 2, 105, 109, true), false), 0); /* keeps C, and so B behind C, waiting */
    assert_int_equal(lock(1, range(2, 3, 100, 109, true), true), MGR_LOCK_QUEUED); /* C */
    assert_int_equal(lock(1, range(3, 4, 0, 4, true), true), MGR_LOCK_QUEUED);     /* B */
    first = tickets;
    assert_int_equal(lock(1, range(3, 4, 100, 104, true), true), MGR_LOCK_QUEUED); /* B, another thread: free but for C, who came before */
    assert_nobody();
    assert_int_equal(unlock(1, range(1, 1, 0, 9, true)), 0);
    assert_granted(first);
    assert_granted(first + 1);
    assert_nobody();
}

static void test_locks_limits(void **state)
{
    enum { SESSION = 500, INODE = 700 };

    (void)state;
    mgr_locks_limit(t, SESSION, INODE);
    for (uint64_t i = 0; i < SESSION; i++)
        assert_int_equal(lock(1 + i % 2, range(1, 1, 2 * i, 2 * i, true), false), 0);
    assert_int_equal(lock(3, range(1, 1, 0, 0, true), false), -ENOLCK);
    assert_int_equal(lock(1, range(1, 2, 0, 0, true), true), -ENOLCK); /* waits count, too */
    assert_int_equal(lock(1, range(1, 1, 0, 0, true), false), 0); /* it has it */
    assert_int_equal(lock(1, range(2, 1, 1, 1, true), false), 0);
    assert_int_equal(unlock(1, range(1, 1, 0, 0, true)), 0);
    assert_int_equal(lock(3, range(1, 1, 0, 10, true), false), 0);
    assert_int_equal(unlock(3, range(1, 1, 5, 5, true)), -ENOLCK); /* two of one */
    assert_int_equal(unlock(3, range(1, 1, 0, 5, true)), 0);
    for (uint64_t i = 0; i < INODE; i++)
        assert_int_equal(lock(9, range(10 + i % 4, 1, 2 * i, 2 * i, true), false), 0);
    assert_int_equal(lock(9, range(20, 1, 1, 1, true), false), -ENOLCK);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_locks_exclude_and_share),
        T(test_locks_tell_who_holds_it),
        T(test_locks_grant_in_order_of_asking),
        T(test_locks_readers_do_not_pass_a_writer),
        T(test_locks_waiting_behind_a_waiter_has_an_end),
        T(test_locks_an_upgrade_does_not_wait_behind_who_waits_for_it),
        T(test_locks_cycle_of_two),
        T(test_locks_cycle_of_three_over_sessions),
        T(test_locks_both_upgrade),
        T(test_locks_cycle_that_a_grant_closes),
        T(test_locks_flock_converts_without_a_deadlock),
        T(test_locks_of_a_file_being_closed_are_waited_for),
        T(test_locks_wait_is_cancelled),
        T(test_locks_the_same_request_again),
        T(test_locks_end_of_a_session),
        T(test_locks_hello_keeps_what_it_says),
        T(test_locks_right_to_append_is_called_back),
        T(test_locks_an_unlock_looks_only_at_who_waits_for_these_bytes),
        T(test_locks_a_grant_lets_its_owner_pass_elsewhere),
        T(test_locks_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
