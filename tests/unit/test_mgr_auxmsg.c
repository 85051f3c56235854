/* What the manager passes on between mounts, whom it reaches, and what it takes from them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fp/auxwire.h"
#include "mgr_one.h"

#define N 4

static struct mgr_conn *conn[N], *ctl;
static uint64_t session[N]; /* of nodes a, b, b, c */

static uint64_t hello(struct mgr_conn *of, Fp__Role role, const char *node)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__HelloReply *r;
    uint64_t id;

    h.protocol = 1;
    h.role = role;
    h.node = (char *)node;
    r = fix_call(&f, of, FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor);
    assert_non_null(r);
    id = r->session;
    fix_free(r);
    return id;
}

static int setup(void **state)
{
    static const char *const nodes[N] = {"a", "b", "b", "c"};

    (void)state;
    fix_open(&f, ":memory:", true);
    for (size_t i = 0; i < N; i++) {
        conn[i] = fix_conn(&f);
        session[i] = hello(conn[i], FP__ROLE__ROLE_CLIENT, nodes[i]);
    }
    ctl = fix_conn(&f);
    hello(ctl, FP__ROLE__ROLE_CONTROL, "a");
    f.conn = conn[0];
    return 0;
}

/* How many mounts it was passed on to. */
static int64_t send_data(size_t from, const char *node, uint64_t mount, const void *data, size_t len)
{
    Fp__AuxMsg m = FP__AUX_MSG__INIT;
    Fp__AuxMsgReply *r;
    int64_t n;

    m.app = "peer";
    m.node = (char *)node;
    m.mount = mount;
    m.data = (ProtobufCBinaryData){len, (uint8_t *)data};
    r = fix_call(&f, conn[from], FP__MSG_TYPE__MSG_AUX_MSG, &m, &fp__aux_msg_reply__descriptor);
    n = r ? (int64_t)r->mounts : f.status;
    fix_free(r);
    return n;
}

static int64_t send_to(size_t from, const char *node, uint64_t mount)
{
    return send_data(from, node, mount, "hello", 5);
}

/* Which of the mounts got a frame of this type, as bits. */
static unsigned got(uint16_t type)
{
    unsigned bits = 0;

    for (size_t i = 0; i < N; i++)
        bits |= (unsigned)(fix_out_find(&f, conn[i], type) != NULL) << i;
    return bits;
}

static void test_messages_reach_those_they_are_for(void **state)
{
    const uint16_t type = FP__MSG_TYPE__MSG_AUX_MSG;

    (void)state;
    assert_int_equal(send_to(0, "", 0), 3);
    assert_int_equal(got(type), 0xe);
    assert_int_equal(send_to(0, "b", 0), 2);
    assert_int_equal(got(type), 0x6);
    assert_int_equal(send_to(1, "b", 0), 1); /* not to itself */
    assert_int_equal(got(type), 0x4);
    assert_int_equal(send_to(0, "b", session[3]), 1); /* the number is what counts */
    assert_int_equal(got(type), 0x8);
    assert_int_equal(send_to(0, "", session[0]), 1);
    assert_int_equal(got(type), 0x1);
    assert_int_equal(send_to(0, "nobody", 0), 0);
    assert_int_equal(send_to(0, "", 99999), 0);
    assert_int_equal(got(type), 0);
}

static void test_message_says_who_sent_it(void **state)
{
    const struct fix_out *o;
    Fp__AuxMsg *m;

    (void)state;
    assert_int_equal(send_to(1, "a", 0), 1);
    o = fix_out_find(&f, conn[0], FP__MSG_TYPE__MSG_AUX_MSG);
    assert_int_equal(o->kind, MGR_OUT_POST);
    m = fp__aux_msg__unpack(NULL, o->len, o->bytes);
    assert_string_equal(m->app, "peer");
    assert_string_equal(m->node, "b");
    assert_int_equal(m->mount, session[1]);
    assert_int_equal(m->data.len, 5);
    assert_memory_equal(m->data.data, "hello", 5);
    fix_free(m);
}

static void test_those_who_are_away_get_nothing(void **state)
{
    (void)state;
    fix_lost(&f, conn[1]);
    conn[1] = fix_conn(&f);
    assert_int_equal(send_to(0, "", 0), 2);
    assert_int_equal(got(FP__MSG_TYPE__MSG_AUX_MSG), 0xc);
    fix_tick(&f, 3000); /* that one never says hello */
    assert_int_equal(send_to(0, "", session[1]), 0);
}

/* A receiver that goes in the same group is not written to; a group that fails passes on nothing. */
static void test_message_goes_with_its_group(void **state)
{
    Fp__AuxMsg m = FP__AUX_MSG__INIT;
    struct mgr_reply reply;
    struct mgr_out o;
    uint8_t buf[64];
    void *user = conn[3]->user;
    bool durable;
    size_t len, n = 0;

    (void)state;
    m.app = "peer";
    len = fp__aux_msg__pack(&m, buf);
    mgr_core_begin(f.core, f.now);
    mgr_core_request(f.core, conn[0], FP__MSG_TYPE__MSG_AUX_MSG, buf, len, &reply);
    assert_int_equal(reply.status, 0);
    mgr_core_conn_lost(f.core, conn[3]);
    conn[3] = NULL;
    free(user);
    assert_int_equal(mgr_core_end(f.core, &durable), 0);
    while (mgr_core_out_next(f.core, &o))
        n += o.type == FP__MSG_TYPE__MSG_AUX_MSG;
    assert_int_equal(n, 2);
    mgr_core_reset(f.core);

    mgr_core_begin(f.core, f.now);
    mgr_core_request(f.core, conn[0], FP__MSG_TYPE__MSG_AUX_MSG, buf, len, &reply);
    mgr_doom(f.core, -EIO);
    assert_int_equal(mgr_core_end(f.core, &durable), -EIO);
    while (mgr_core_out_next(f.core, &o))
        assert_true(o.type != FP__MSG_TYPE__MSG_AUX_MSG);
    mgr_core_reset(f.core);
    assert_int_equal(send_to(0, "", 0), 2);
}

static void test_what_is_too_long_is_refused(void **state)
{
    static uint8_t big[FP_AUX_MESSAGE_MAX_BYTES + 1];
    char node[257];

    (void)state;
    memset(node, 'n', 256);
    node[256] = 0;
    assert_int_equal(send_data(0, "", 0, big, FP_AUX_MESSAGE_MAX_BYTES + 1), -EINVAL);
    assert_int_equal(send_data(0, node, 0, big, 1), -EINVAL);
    assert_int_equal(send_data(0, "", 0, big, FP_AUX_MESSAGE_MAX_BYTES), 3);
}

static int64_t set(struct mgr_conn *of, const char *app, const char *node, const char *name)
{
    Fp__AuxSet m = FP__AUX_SET__INIT;
    Fp__AuxMsgReply *r;
    int64_t n;

    m.app = (char *)app;
    m.node = (char *)node;
    m.name = (char *)name;
    m.value = "2";
    r = fix_call(&f, of, FP__MSG_TYPE__MSG_AUX_SET, &m, &fp__aux_msg_reply__descriptor);
    n = r ? (int64_t)r->mounts : f.status;
    fix_free(r);
    return n;
}

static void test_options_are_set_by_control_only(void **state)
{
    const struct fix_out *o;
    Fp__AuxSet *m;

    (void)state;
    assert_int_equal(set(ctl, "dedup", "", "cores"), 4);
    assert_int_equal(got(FP__MSG_TYPE__MSG_AUX_SET), 0xf);
    assert_int_equal(set(ctl, "dedup", "b", "cores"), 2);
    assert_int_equal(got(FP__MSG_TYPE__MSG_AUX_SET), 0x6);
    o = fix_out_find(&f, conn[1], FP__MSG_TYPE__MSG_AUX_SET);
    m = fp__aux_set__unpack(NULL, o->len, o->bytes);
    assert_string_equal(m->app, "dedup");
    assert_string_equal(m->name, "cores");
    assert_string_equal(m->value, "2");
    fix_free(m);
    assert_int_equal(set(ctl, "De", "", "cores"), -EINVAL);
    assert_int_equal(set(ctl, "dedup", "", ""), -EINVAL);
    assert_int_equal(set(conn[0], "dedup", "", "cores"), -EPERM);
}

/* ---------------------------------------------------------------- what mounts report */

struct report {
    Fp__ClientStats m;
    Fp__AuxAppStats app[17], *apps[17];
    Fp__AuxThread thread[65], *threads[65];
    char text[200 << 10];
};

static struct report *report_new(size_t n_apps)
{
    struct report *r = calloc(1, sizeof *r);

    fp__client_stats__init(&r->m);
    r->m.auxapps = r->apps;
    r->m.n_auxapps = n_apps;
    for (size_t i = 0; i < 65; i++) {
        fp__aux_thread__init(&r->thread[i]);
        r->threads[i] = &r->thread[i];
    }
    for (size_t i = 0; i < 17; i++) {
        fp__aux_app_stats__init(&r->app[i]);
        r->apps[i] = &r->app[i];
        r->app[i].name = "dedup";
        r->app[i].threads = r->threads;
        r->app[i].n_threads = 64;
    }
    return r;
}

static size_t apps_known(void)
{
    const Fp__ClientStats *s = mgr_session_find(f.core, session[0])->stats;

    return s ? s->n_auxapps : 0;
}

static void test_reports_are_bounded(void **state)
{
    struct report *r = report_new(16);

    (void)state;
    fix_notice(&f, conn[0], FP__MSG_TYPE__MSG_CLIENT_STATS, &r->m);
    assert_int_equal(apps_known(), 16);
    r->m.n_auxapps = 17;
    fix_notice(&f, conn[0], FP__MSG_TYPE__MSG_CLIENT_STATS, &r->m);
    assert_int_equal(apps_known(), 16);
    r->m.n_auxapps = 1;
    r->app[0].n_threads = 65;
    fix_notice(&f, conn[0], FP__MSG_TYPE__MSG_CLIENT_STATS, &r->m);
    assert_int_equal(apps_known(), 16);
    r->app[0].n_threads = 1;
    memset(r->text, 'x', sizeof r->text - 1);
    r->m.last_error = r->text;
    fix_notice(&f, conn[0], FP__MSG_TYPE__MSG_CLIENT_STATS, &r->m);
    assert_int_equal(apps_known(), 16);
    r->text[1000] = 0;
    fix_notice(&f, conn[0], FP__MSG_TYPE__MSG_CLIENT_STATS, &r->m);
    assert_int_equal(apps_known(), 1);
    free(r);
}

/* Reports of 120 KiB from 40 mounts: the status is one message all the same, and names every mount. */
static void test_status_is_bounded(void **state)
{
    struct report *r = report_new(16);
    Fp__CtlStatusReply *st;
    size_t with = 0, without = 0;

    (void)state;
    memset(r->text, 'x', sizeof r->text - 1);
    r->text[100 << 10] = 0;
    r->app[0].why = r->text;
    for (size_t i = 0; i < 40; i++) {
        struct mgr_conn *more = fix_conn(&f);

        hello(more, FP__ROLE__ROLE_CLIENT, "z");
        fix_notice(&f, more, FP__MSG_TYPE__MSG_CLIENT_STATS, &r->m);
    }
    st = fix_call(&f, ctl, FP__MSG_TYPE__MSG_CTL_STATUS, NULL, &fp__ctl_status_reply__descriptor);
    assert_non_null(st);
    assert_true(fp__ctl_status_reply__get_packed_size(st) < 4u << 20);
    assert_int_equal(st->n_clients, N + 40);
    for (size_t i = N; i < st->n_clients; i++) {
        assert_non_null(st->clients[i]->stats);
        with += st->clients[i]->stats->n_auxapps == 16;
        without += st->clients[i]->stats->n_auxapps == 0;
    }
    assert_int_equal(with + without, 40);
    assert_true(with > 10 && without > 10);
    fix_free(st);
    free(r);
}

/* In one group: somebody asks for the status, then a mount reports anew and goes. The reply is packed after all of that. */
static void test_status_is_of_when_it_was_asked_for(void **state)
{
    struct report *r = report_new(1);
    const Fp__CtlStatusReply *st;
    const Fp__ClientStats *stats;
    struct mgr_reply status, bye;
    uint8_t *buf = malloc(1 << 20);
    bool durable;

    (void)state;
    fix_notice(&f, conn[0], FP__MSG_TYPE__MSG_CLIENT_STATS, &r->m);
    mgr_core_begin(f.core, f.now);
    mgr_core_request(f.core, ctl, FP__MSG_TYPE__MSG_CTL_STATUS, NULL, 0, &status);
    r->m.n_auxapps = 0;
    mgr_core_notice(f.core, conn[0], FP__MSG_TYPE__MSG_CLIENT_STATS, buf, fp__client_stats__pack(&r->m, buf));
    mgr_core_request(f.core, conn[0], FP__MSG_TYPE__MSG_BYE, NULL, 0, &bye);
    assert_int_equal(mgr_core_end(f.core, &durable), 0);
    assert_int_equal(status.status, 0);
    st = (const Fp__CtlStatusReply *)(const void *)status.msg;
    assert_string_equal(st->clients[0]->node, "a");
    stats = st->clients[0]->stats;
    assert_ptr_equal(stats->base.descriptor, &fp__client_stats__descriptor);
    assert_int_equal(stats->n_auxapps, 1);
    assert_int_equal(stats->auxapps[0]->n_threads, 64);
    mgr_core_reset(f.core);
    free(buf);
    free(r);
}

static void test_lost_messages_are_counted(void **state)
{
    Fp__CtlStatusReply *st;

    (void)state;
    mgr_core_dropped(f.core, conn[1]);
    mgr_core_dropped(f.core, conn[1]);
    st = fix_call(&f, ctl, FP__MSG_TYPE__MSG_CTL_STATUS, NULL, &fp__ctl_status_reply__descriptor);
    assert_int_equal(st->clients[0]->aux_dropped, 0);
    assert_int_equal(st->clients[1]->aux_dropped, 2);
    fix_free(st);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_messages_reach_those_they_are_for), T(test_message_says_who_sent_it),
        T(test_those_who_are_away_get_nothing),    T(test_message_goes_with_its_group),
        T(test_what_is_too_long_is_refused),       T(test_options_are_set_by_control_only),
        T(test_reports_are_bounded),               T(test_status_is_bounded),
        T(test_status_is_of_when_it_was_asked_for), T(test_lost_messages_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
