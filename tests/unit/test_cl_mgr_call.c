/*
 * What becomes of requests to the manager whose answers take longer than --manager-timeout (client/mgr_call.c): no loop, no socket; the connection and the
 * clock are this program's.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/core_int.h"
#include "fp/clock.h"
#include "fp/err.h"

#define SENT_MAX 8u

static struct cl_mount mount_;
static struct cl_core core;
static struct fp_rpc_req sent[SENT_MAX]; /* over this connection */
static unsigned nsent, ncalled;
static int last_status;
static bool had_reply;

void __wrap_cl_core_post_item(struct cl_core *c, struct cl_item *item);
int __wrap_fp_rpc_call(struct fp_rpc_conn *conn, const struct fp_rpc_req *req, uint64_t *id);

void __wrap_cl_core_post_item(struct cl_core *c, struct cl_item *item)
{
    (void)c;
    item->fn(item->arg);
}

int __wrap_fp_rpc_call(struct fp_rpc_conn *conn, const struct fp_rpc_req *req, uint64_t *id)
{
    (void)conn;
    (void)id;
    assert_true(nsent < SENT_MAX);
    sent[nsent++] = *req;
    return 0;
}

static unsigned nreleased;

int __wrap_fp_rpc_send(struct fp_rpc_conn *conn, uint16_t type, const ProtobufCMessage *msg);
int __wrap_fp_rpc_send(struct fp_rpc_conn *conn, uint16_t type, const ProtobufCMessage *msg)
{
    (void)conn;
    assert_int_equal(type, FP__MSG_TYPE__MSG_RELEASE); /* of one that did not end well this is not enough */
    const Fp__Release *r = (const Fp__Release *)msg;
    nreleased += (unsigned)(r->n_ino + r->n_write_ino);
    assert_true(r->n_ino == 2 && r->ino[0] == 40 && r->ino[1] == 42);
    assert_true(r->n_write_ino == 1 && r->write_ino[0] == 41);
    return 0;
}

static void connection_up(bool new_session)
{
    nsent = 0;
    core.link = CL_LINK_UP;
    cl_requests_up(&core, 4, new_session);
}

static void connection_down(void)
{
    core.link = CL_LINK_DOWN;
    cl_requests_down(&core);
}

static int setup(void **state)
{
    (void)state;
    memset(&mount_, 0, sizeof mount_);
    memset(&core, 0, sizeof core);
    cl_calls_init(&core.calls);
    core.m = &mount_;
    mount_.core = &core;
    mount_.opt.manager_timeout_ms = 60000;
    strcpy(mount_.opt.manager_text, "here");
    nsent = ncalled = 0;
    had_reply = false;
    connection_up(true);
    return 0;
}

static void on_answer(void *arg, int status, const ProtobufCMessage *reply)
{
    (void)arg;
    ncalled++;
    last_status = status;
    had_reply = reply != NULL;
}

static void hold(bool answered)
{
    Fp__Hold msg = FP__HOLD__INIT;
    uint64_t id = 5;

    msg.ids = &id;
    msg.n_ids = 1;
    (answered ? cl_mgr_call_answered : cl_mgr_call)(&mount_, FP__MSG_TYPE__MSG_HOLD, &msg.base, on_answer, NULL);
    cl_requests_tick(&core, fp_now_ms());
}

/* Of which it must be known whether it was executed, and that is not to be begun late. */
static void change(void)
{
    Fp__SetAttr msg = FP__SET_ATTR__INIT;

    msg.ino = 5;
    msg.valid = FP__SET_ATTR_VALID__SET_SIZE;
    cl_mgr_call_known(&mount_, FP__MSG_TYPE__MSG_SETATTR, &msg.base, on_answer, NULL);
    cl_requests_tick(&core, fp_now_ms());
}

static void time_is_over(void)
{
    cl_requests_tick(&core, fp_now_ms() + 61000);
}

/* An empty message of any type. */
static void manager_answers(unsigned i)
{
    struct fp_rpc_in in = {0};

    assert_true(i < nsent);
    sent[i].cb(sent[i].arg, 0, &in);
}

/* What is closed while the hello is on its way, which says that it is open, is told once the hello was taken. */
static void test_a_release_during_the_hello_is_told_after_it(void **state)
{
    (void)state;
    nreleased = 0;
    pthread_mutex_init(&core.release_lock, NULL);
    core.link = CL_LINK_HELLO;
    core.releases = malloc(3 * sizeof *core.releases);
    for (core.nreleases = 0; core.nreleases < 3; core.nreleases++)
        core.releases[core.nreleases] = (struct cl_released){.ino = 40 + core.nreleases, .write = core.nreleases == 1};
    core.releases_cap = 3;
    core.release_armed = true;
    cl_requests_release_now(&core);
    assert_int_equal(nreleased, 0);
    assert_false(core.release_armed); /* the next one arms the timer again */
    core.link = CL_LINK_UP;
    cl_requests_release_now(&core);
    assert_int_equal(nreleased, 3);
    cl_requests_release_now(&core);
    assert_int_equal(nreleased, 3);
    pthread_mutex_destroy(&core.release_lock);
}

static void test_an_answer_that_must_be_taken_is(void **state)
{
    (void)state;
    hold(true);
    assert_int_equal(nsent, 1);
    time_is_over();
    assert_int_equal(ncalled, 0);
    manager_answers(0);
    assert_int_equal(ncalled, 1);
    assert_true(last_status == 0 && had_reply);
    assert_int_equal(core.calls.count, 0);
}

static void test_it_is_sent_again_over_the_next_connection(void **state)
{
    (void)state;
    hold(true);
    time_is_over();
    connection_down();
    time_is_over();
    assert_int_equal(ncalled, 0);
    connection_up(false);
    assert_int_equal(nsent, 1);
    manager_answers(0);
    assert_true(ncalled == 1 && had_reply);
}

static void test_a_forgotten_session_ends_it(void **state)
{
    (void)state;
    hold(true);
    connection_down();
    time_is_over();
    connection_up(true);
    assert_int_equal(nsent, 0);
    assert_int_equal(ncalled, 1);
    assert_int_equal(last_status, FP_ESESSION);
}

/* So a manager that is away for hours does not make them pile up. */
static void test_what_was_never_sent_is_given_up(void **state)
{
    (void)state;
    connection_down();
    hold(true);
    time_is_over();
    assert_int_equal(ncalled, 1);
    assert_int_equal(last_status, -ETIMEDOUT);
    assert_int_equal(core.calls.count, 0);
    connection_up(false);
    assert_int_equal(nsent, 0);
}

static void test_any_other_is_given_up(void **state)
{
    (void)state;
    hold(false);
    time_is_over();
    assert_int_equal(ncalled, 1);
    assert_int_equal(last_status, -ETIMEDOUT);
    manager_answers(0);
    assert_int_equal(ncalled, 1);
    assert_int_equal(core.calls.count, 0);
}

static void test_a_change_that_was_sent_is_told_late_and_then_answered(void **state)
{
    (void)state;
    change();
    time_is_over();
    assert_int_equal(ncalled, 1);
    assert_int_equal(last_status, FP_EDEADLINE);
    connection_down();
    time_is_over();
    connection_up(false);
    assert_int_equal(nsent, 1);
    manager_answers(0);
    assert_int_equal(ncalled, 2);
    assert_true(last_status == 0 && had_reply);
    assert_int_equal(core.calls.count, 0);
}

/* Another node may write the file by the time that the manager hears of it. */
static void test_a_change_that_was_never_sent_is_not_sent_late(void **state)
{
    (void)state;
    connection_down();
    change();
    time_is_over();
    assert_int_equal(ncalled, 1);
    assert_int_equal(last_status, -ETIMEDOUT);
    assert_int_equal(core.calls.count, 0);
    connection_up(false);
    assert_int_equal(nsent, 0);
}

static void test_a_change_that_is_refused_late_is_not_asked_again(void **state)
{
    struct fp_rpc_in in = {0};

    (void)state;
    change();
    time_is_over();
    assert_true(nsent == 1 && ncalled == 1);
    sent[0].cb(sent[0].arg, FP_ERECALL, &in);
    assert_int_equal(ncalled, 2);
    assert_int_equal(last_status, FP_ERECALL);
    time_is_over();
    assert_true(nsent == 1 && ncalled == 2);
    assert_int_equal(core.calls.count, 0);
}

static void lost(uint64_t ino)
{
    Fp__Closed c = FP__CLOSED__INIT;

    c.ino = ino;
    c.lost = true;
    cl_mgr_say(&mount_, FP__MSG_TYPE__MSG_CLOSED, &c.base);
}

static void manager_refuses(unsigned i, int status)
{
    struct fp_rpc_in in = {0};

    assert_true(i < nsent);
    sent[i].cb(sent[i].arg, status, &in);
}

/* Nor to who comes next. */
static void says_nothing_more(void)
{
    assert_int_equal(core.calls.count, 0);
    connection_down();
    connection_up(false);
    assert_int_equal(nsent, 0);
}

/* The manager is killed before it has heard of it, or has stored it. */
static void test_what_is_said_is_said_to_the_next_manager(void **state)
{
    (void)state;
    lost(5);
    assert_int_equal(nsent, 1); /* at once */
    connection_down();
    time_is_over();
    connection_up(false);
    assert_int_equal(nsent, 1);
    time_is_over();
    connection_down();
    connection_up(true); /* which knows nothing of the session, too */
    assert_int_equal(nsent, 1);
    manager_answers(0);
    says_nothing_more();
}

static void test_what_is_said_to_nobody_is_said_to_who_comes(void **state)
{
    (void)state;
    connection_down();
    lost(5);
    lost(6);
    time_is_over();
    connection_up(false);
    assert_int_equal(nsent, 2);
    manager_answers(0);
    manager_answers(1);
    assert_int_equal(core.calls.count, 0);
}

/* It comes to its end. It is not asked again and again, and whoever comes after it is told. */
static void test_what_is_said_and_not_taken_is_said_after_the_next_hello(void **state)
{
    (void)state;
    lost(5);
    lost(6);
    manager_refuses(0, FP_ESTOPPING);
    manager_answers(1);
    assert_int_equal(core.calls.count, 0);
    time_is_over();
    assert_int_equal(nsent, 2);
    connection_down();
    connection_up(false);
    assert_int_equal(nsent, 1);
    manager_refuses(0, FP_ESESSION);
    connection_down();
    connection_up(true);
    assert_int_equal(nsent, 1);
    manager_answers(0);
    says_nothing_more();
}

/* Its disk is full, and it marks the file when there is room. Until the next hello it may have been written anew, and would lose the mark to nobody. */
static void test_what_the_manager_keeps_until_its_disk_takes_it_is_not_said_again(void **state)
{
    (void)state;
    lost(5);
    manager_refuses(0, -ENOSPC);
    assert_int_equal(core.calls.count, 0);
    assert_null(core.untaken);
    connection_down();
    connection_up(false);
    assert_int_equal(nsent, 0);
}

/* With the mount it ends. */
static void test_what_is_said_and_not_heard_ends_with_the_mount(void **state)
{
    (void)state;
    lost(5);
    lost(6);
    lost(7);
    manager_refuses(1, FP_ESTOPPING);
    connection_down();
    lost(8);
    core.stopping = true;
    lost(9);
    cl_requests_fini(&core);
    assert_null(core.untaken);
}

/* Of so many files, of which the first was left half. */
static void release(uint64_t ino, size_t n)
{
    core.releases = malloc(n * sizeof *core.releases);
    core.nreleases = core.releases_cap = n;
    for (size_t i = 0; i < n; i++)
        core.releases[i] = (struct cl_released){.ino = ino + i, .write = true, .torn = i == 0};
}

/* The next hello names this one; 0: none. */
static uint64_t hello_names(void)
{
    Fp__Hello h = FP__HELLO__INIT;
    uint64_t ino;

    assert_int_equal(cl_torn_hello(&core, &h), 0);
    assert_true(h.n_torn_ino <= 1);
    ino = h.n_torn_ino ? h.torn_ino[0] : 0;
    free(h.torn_ino);
    return ino;
}

static void breaks(unsigned i)
{
    sent[i].cb(sent[i].arg, FP_EPEER_GONE, NULL);
}

static void test_what_was_left_half_is_named_until_the_manager_has_it(void **state)
{
    (void)state;
    pthread_mutex_init(&core.release_lock, NULL);
    release(40, 2);
    cl_requests_release_now(&core);
    assert_int_equal(nsent, 1);
    assert_int_equal(sent[0].type, FP__MSG_TYPE__MSG_RELEASE);
    manager_answers(0);
    assert_int_equal(hello_names(), 0);

    release(41, 1);
    cl_requests_release_now(&core);
    assert_int_equal(nsent, 2);
    breaks(1);
    connection_down();
    assert_int_equal(hello_names(), 41); /* of which nobody hears */
    assert_int_equal(hello_names(), 41);
    cl_torn_heard(&core);
    assert_int_equal(hello_names(), 0);

    connection_up(false);
    release(42, 1);
    cl_requests_release_now(&core);
    manager_refuses(0, FP_ESTOPPING);
    assert_int_equal(hello_names(), 42);
    cl_torn_heard(&core);
    release(43, 1);
    cl_requests_release_now(&core);
    manager_refuses(1, -ENOSPC); /* it has it */
    assert_int_equal(hello_names(), 0);
    pthread_mutex_destroy(&core.release_lock);
}

/* It waits for the connection, and the hello does not name it as open any more. */
static void test_what_was_left_half_and_not_released_yet_is_named(void **state)
{
    (void)state;
    release(40, 2);
    cl_torn_keep(&core, core.releases, core.nreleases);
    assert_int_equal(hello_names(), 40);
    cl_requests_fini(&core); /* the mount ends */
    assert_int_equal(hello_names(), 0);
    free(core.releases);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        T(test_a_release_during_the_hello_is_told_after_it),
        T(test_an_answer_that_must_be_taken_is),
        T(test_it_is_sent_again_over_the_next_connection),
        T(test_a_forgotten_session_ends_it),
        T(test_what_was_never_sent_is_given_up),
        T(test_any_other_is_given_up),
        T(test_a_change_that_was_sent_is_told_late_and_then_answered),
        T(test_a_change_that_was_never_sent_is_not_sent_late),
        T(test_a_change_that_is_refused_late_is_not_asked_again),
        T(test_what_is_said_is_said_to_the_next_manager),
        T(test_what_is_said_to_nobody_is_said_to_who_comes),
        T(test_what_is_said_and_not_taken_is_said_after_the_next_hello),
        T(test_what_the_manager_keeps_until_its_disk_takes_it_is_not_said_again),
        T(test_what_is_said_and_not_heard_ends_with_the_mount),
        T(test_what_was_left_half_is_named_until_the_manager_has_it),
        T(test_what_was_left_half_and_not_released_yet_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
