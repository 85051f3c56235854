/* Locks of this mount's programs (client/locks.c): what is remembered as held, whatever order answers, interruptions and refusals come in. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/client.h"
#include "client/core.h"
#include "client/data.h"
#include "client/inode.h"
#include "client/locks.h"
#include "client/lockwork.h"

enum { INO = 7, OWNER = 99, CALLS_MAX = 32 };

/* What was sent, oldest first; the test is the manager, and answers by hand. */
static struct call {
    Fp__Lock msg;
    cl_mgr_cb cb;
    void *arg;
} calls[CALLS_MAX];
static unsigned ncalls;
static int sync_answer;
static struct cl_mount mnt;
static struct cl_inode inode;
static struct cl_handle handle;
static Fp__Attr attr;
static bool interrupt_now;
static unsigned ndone;
static int last_status;

void __wrap_cl_mgr_call(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
void __wrap_cl_mgr_call_answered(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
void __wrap_cl_mgr_call_answered_soon(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
int __wrap_cl_mgr_call_sync(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, ProtobufCMessage **reply);

void __wrap_cl_mgr_call(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    assert_ptr_equal(m, &mnt);
    assert_int_equal(type, FP__MSG_TYPE__MSG_LOCK);
    assert_true(ncalls < CALLS_MAX);
    calls[ncalls++] = (struct call){.msg = *(const Fp__Lock *)(const void *)msg, .cb = cb, .arg = arg};
}

void __wrap_cl_mgr_call_answered(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    __wrap_cl_mgr_call(m, type, msg, cb, arg);
}

void __wrap_cl_mgr_call_answered_soon(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg)
{
    __wrap_cl_mgr_call(m, type, msg, cb, arg);
}

int __wrap_cl_mgr_call_sync(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, ProtobufCMessage **reply)
{
    __wrap_cl_mgr_call(m, type, msg, NULL, NULL);
    assert_null(reply);
    return sync_answer;
}

static int setup(void **state)
{
    (void)state;
    memset(&mnt, 0, sizeof mnt);
    memset(&inode, 0, sizeof inode);
    memset(&handle, 0, sizeof handle);
    inode.ino = INO;
    handle.inode = &inode;
    fp__attr__init(&attr);
    ncalls = ndone = 0;
    sync_answer = 0;
    interrupt_now = false;
    if (cl_locks_new(&mnt) < 0)
        return -1;
    cl_locks_up(&mnt);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cl_lockwork_stop(mnt.lockwork);
    cl_locks_free(&mnt);
    return 0;
}

static void done(struct cl_lock_op *op, int status, const Fp__Attr *a)
{
    (void)op;
    assert_true(status < 0 || a);
    ndone++;
    last_status = status;
}

static bool interrupted(struct cl_lock_op *op)
{
    (void)op;
    return interrupt_now;
}

/* Returns the call that was made, or which will be the next. */
static unsigned ask(Fp__LockKind kind, bool exclusive, bool wait)
{
    struct cl_lock_op *op = calloc(1, sizeof *op);

    assert_non_null(op);
    op->m = &mnt;
    op->h = &handle;
    fp__lock__init(&op->msg);
    op->msg.ino = INO;
    op->msg.owner = OWNER;
    op->msg.kind = kind;
    op->msg.exclusive = exclusive;
    op->msg.wait = wait;
    op->msg.end = INT64_MAX;
    op->done = done;
    op->interrupted = interrupted;
    cl_locks_ask(op);
    return ncalls - 1;
}

static void answer(unsigned call, int status, bool queued, bool held)
{
    Fp__LockReply r = FP__LOCK_REPLY__INIT;

    assert_true(call < ncalls);
    r.queued = queued;
    r.held = held;
    r.attr = queued ? NULL : &attr;
    calls[call].cb(calls[call].arg, status, status < 0 ? NULL : &r.base);
}

static void granted(unsigned call, int status)
{
    Fp__LockGrant g = FP__LOCK_GRANT__INIT;

    g.ticket = calls[call].msg.ticket;
    g.status = status;
    g.attr = status < 0 ? NULL : &attr;
    cl_locks_granted(&mnt, &g);
}

static bool owns(Fp__LockKind kind)
{
    return cl_locks_owns(&mnt, INO, kind, OWNER);
}

#define FLOCK  FP__LOCK_KIND__LOCK_FLOCK
#define RECORD FP__LOCK_KIND__LOCK_RECORD

/* Two threads with one open file: the first is interrupted while it waits for the exclusive lock, the second has got a shared one since. */
static void test_flock_that_is_interrupted_leaves_what_another_thread_was_granted(void **state)
{
    unsigned first, second;

    (void)state;
    first = ask(FLOCK, true, true);
    answer(first, 0, true, false);
    second = ask(FLOCK, false, true);
    answer(second, 0, false, false);
    assert_true(owns(FLOCK));
    interrupt_now = true;
    cl_locks_tick(&mnt, 10000);
    assert_int_equal(calls[ncalls - 1].msg.op, FP__LOCK_OP__LOCK_CANCEL);
    answer(ncalls - 1, 0, false, false);
    assert_int_equal(ndone, 2);
    assert_int_equal(last_status, -EINTR);
    assert_true(owns(FLOCK));
    cl_locks_release(&mnt, &handle);
    assert_int_equal(calls[ncalls - 1].msg.op, FP__LOCK_OP__LOCK_UNSET);
    answer(ncalls - 1, 0, false, false);
}

/* The same where the manager ends the wait: it was for a lock whose holder was closing, and did not. */
static void test_flock_that_is_refused_late_leaves_what_another_thread_was_granted(void **state)
{
    unsigned first;

    (void)state;
    first = ask(FLOCK, true, false);
    answer(first, 0, true, false);
    answer(ask(FLOCK, false, true), 0, false, false);
    granted(first, -EAGAIN);
    assert_int_equal(last_status, -EAGAIN);
    assert_true(owns(FLOCK));
}

/* Who asks for the other type loses what it had with the request, whether it gets that or not. */
static void test_flock_of_the_other_type_takes_the_first_away(void **state)
{
    unsigned other;

    (void)state;
    answer(ask(FLOCK, false, true), 0, false, false);
    other = ask(FLOCK, true, true);
    assert_true(owns(FLOCK));
    answer(other, 0, true, false);
    assert_false(owns(FLOCK));
    granted(other, 0);
    assert_true(owns(FLOCK));
    answer(ask(FLOCK, false, false), -EAGAIN, false, false);
    assert_false(owns(FLOCK));
    answer(ask(RECORD, true, true), 0, false, false);
    answer(ask(RECORD, true, false), -EAGAIN, false, false);
    assert_true(owns(RECORD));
}

/* The manager could not write it down. Nobody else would unlock what no program has any more. */
static void test_unlock_of_a_close_that_is_refused_is_sent_again(void **state)
{
    unsigned n;

    (void)state;
    answer(ask(RECORD, true, true), 0, false, false);
    sync_answer = -ENOSPC;
    cl_locks_close(&mnt, &handle, OWNER);
    assert_false(owns(RECORD));
    for (unsigned try = 1; try < 4; try++) {
        n = ncalls;
        cl_locks_tick(&mnt, try * 10000);
        cl_locks_tick(&mnt, try * 10000 + 1);
        assert_int_equal(ncalls, n + 1);
        assert_int_equal(calls[n].msg.op, FP__LOCK_OP__LOCK_UNSET);
        assert_int_equal(calls[n].msg.kind, RECORD);
        assert_true(calls[n].msg.owner == OWNER && calls[n].msg.ino == INO && calls[n].msg.start == 0 && calls[n].msg.end == INT64_MAX);
        answer(n, try < 3 ? -ENOSPC : 0, false, false);
    }
    n = ncalls;
    cl_locks_tick(&mnt, 90000);
    assert_int_equal(ncalls, n);
}

static void test_unlock_that_is_refused_of_two_kinds(void **state)
{
    unsigned n;

    (void)state;
    answer(ask(RECORD, true, true), 0, false, false);
    answer(ask(FLOCK, true, true), 0, false, false);
    n = ncalls;
    cl_locks_release(&mnt, &handle);
    assert_int_equal(ncalls, n + 2);
    answer(n, -ENOSPC, false, false);
    answer(n + 1, -EIO, false, false);
    cl_locks_tick(&mnt, 10000);
    assert_int_equal(ncalls, n + 4);
    answer(n + 2, 0, false, false);
    answer(n + 3, 0, false, false);
    cl_locks_tick(&mnt, 20000);
    assert_int_equal(ncalls, n + 4);
}

/* A process closes one descriptor and locks by another: what it had is unlocked first, so that its new lock does not go with that. */
static void test_who_asks_again_keeps_what_it_gets(void **state)
{
    unsigned n;

    (void)state;
    for (unsigned turn = 1; turn <= 2; turn++) { /* before it is sent again, and while that is under way */
        if (turn == 1)
            answer(ask(RECORD, true, true), 0, false, false);
        sync_answer = -ENOSPC;
        cl_locks_close(&mnt, &handle, OWNER);
        n = ncalls;
        if (turn == 1)
            (void)ask(RECORD, true, true);
        cl_locks_tick(&mnt, turn * 10000);
        if (turn == 2)
            (void)ask(RECORD, true, true);
        assert_int_equal(ncalls, n + 1);
        assert_int_equal(calls[n].msg.op, FP__LOCK_OP__LOCK_UNSET);
        answer(n, 0, false, false);
        assert_int_equal(ncalls, n + 2);
        assert_int_equal(calls[n + 1].msg.op, FP__LOCK_OP__LOCK_SET);
        answer(n + 1, 0, false, false);
        assert_true(owns(RECORD));
    }
    n = ncalls;
    cl_locks_tick(&mnt, 90000);
    assert_int_equal(ncalls, n);
}

/* It goes on being owed, whatever was asked for: or others would wait for what nobody has. */
static void test_who_asks_again_and_is_refused_leaves_nothing(void **state)
{
    unsigned n;

    (void)state;
    answer(ask(RECORD, true, true), 0, false, false);
    sync_answer = -ENOSPC;
    cl_locks_close(&mnt, &handle, OWNER);
    n = ncalls;
    ndone = 0;
    (void)ask(RECORD, true, true);
    cl_locks_tick(&mnt, 10000);
    answer(n, -ENOSPC, false, false);
    assert_int_equal(ndone, 1);
    assert_int_equal(last_status, -ENOSPC);
    assert_false(owns(RECORD));
    cl_locks_tick(&mnt, 20000);
    assert_int_equal(ncalls, n + 2);
    assert_int_equal(calls[n + 1].msg.op, FP__LOCK_OP__LOCK_UNSET);
    answer(n + 1, 0, false, false);
}

/* Another thread's request, which was sent behind the unlock. */
static void test_what_was_asked_for_before_the_refusal(void **state)
{
    Fp__Lock msg = FP__LOCK__INIT;
    unsigned unlock, set;

    (void)state;
    msg.ino = INO;
    msg.owner = OWNER;
    msg.kind = RECORD;
    msg.op = FP__LOCK_OP__LOCK_UNSET;
    msg.end = INT64_MAX;
    for (int status = 0; status >= -ENOSPC; status -= ENOSPC) {
        unlock = ncalls;
        cl_locks_unlock(&mnt, &msg);
        set = ask(RECORD, true, true);
        answer(unlock, -ENOSPC, false, false);
        cl_locks_tick(&mnt, 10000 + (unsigned)-status * 1000);
        assert_int_equal(ncalls, set + 1); /* not now: its lock would go with it */
        answer(set, status, false, false);
        cl_locks_tick(&mnt, 20000 + (unsigned)-status * 1000);
        assert_int_equal(ncalls, set + (status < 0 ? 2 : 1));
        if (status == 0) {
            sync_answer = 0;
            cl_locks_close(&mnt, &handle, OWNER);
        }
    }
    answer(ncalls - 1, 0, false, false);
}

/* Of the right to append the file is the owner. Nobody else could append for as long as the manager thinks that it is here. */
static void test_right_to_append_that_could_not_be_given_back_is_again(void **state)
{
    unsigned n;

    (void)state;
    for (unsigned turn = 0; turn < 2; turn++) {
        Fp__Lock msg = FP__LOCK__INIT;

        msg.ino = INO;
        msg.kind = FP__LOCK_KIND__LOCK_APPEND;
        msg.op = FP__LOCK_OP__LOCK_UNSET;
        msg.end = INT64_MAX;
        n = ncalls;
        cl_locks_unlock(&mnt, &msg);
        answer(n, -ENOSPC, false, false);
        cl_locks_tick(&mnt, 10000 * (turn + 1));
        assert_int_equal(ncalls, n + 2);
        assert_true(calls[n + 1].msg.kind == FP__LOCK_KIND__LOCK_APPEND && calls[n + 1].msg.op == FP__LOCK_OP__LOCK_UNSET && calls[n + 1].msg.owner == 0);
        answer(n + 1, 0, false, false);
    }
    n = ncalls;
    cl_locks_tick(&mnt, 40000);
    assert_int_equal(ncalls, n);
}

/* A hello names what is held, and the rest goes. */
static void test_hello_ends_what_is_owed(void **state)
{
    Fp__LockId **ids;
    size_t nids;
    unsigned n;

    (void)state;
    answer(ask(RECORD, true, true), 0, false, false);
    sync_answer = -EIO;
    cl_locks_close(&mnt, &handle, OWNER);
    cl_locks_down(&mnt);
    assert_int_equal(cl_locks_hello(&mnt, &ids, &nids), 0);
    assert_int_equal(nids, 0);
    cl_locks_up(&mnt);
    n = ncalls;
    cl_locks_tick(&mnt, 10000);
    assert_int_equal(ncalls, n);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_flock_that_is_interrupted_leaves_what_another_thread_was_granted),
        TEST(test_flock_that_is_refused_late_leaves_what_another_thread_was_granted),
        TEST(test_flock_of_the_other_type_takes_the_first_away),
        TEST(test_unlock_of_a_close_that_is_refused_is_sent_again),
        TEST(test_unlock_that_is_refused_of_two_kinds),
        TEST(test_who_asks_again_keeps_what_it_gets),
        TEST(test_who_asks_again_and_is_refused_leaves_nothing),
        TEST(test_what_was_asked_for_before_the_refusal),
        TEST(test_right_to_append_that_could_not_be_given_back_is_again),
        TEST(test_hello_ends_what_is_owed),
    };

    alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
