/* Requests and replies over real sockets on the loopback (include/fp/rpc.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp.pb-c.h"
#include "fp/addr.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "wire_help.h"

#define MIB (1u << 20)

static struct wire w;

static int up(void **state)
{
    (void)state;
    wire_init(&w, NULL, NULL);
    wire_connect(&w, NULL);
    assert_int_equal(w.c_up, 1);
    return 0;
}

static int down(void **state)
{
    (void)state;
    wire_fini(&w);
    return 0;
}

static uint8_t *pattern(size_t len, unsigned seed)
{
    uint8_t *p = malloc(len);
    assert_non_null(p);
    for (size_t i = 0; i < len; i++)
        p[i] = (uint8_t)(i * 7 + (i >> 9) + seed);
    return p;
}

/* -------------------------------------------------------------- calls */

static void test_rpc_call_gets_its_reply(void **state)
{
    struct wire_got got = {0};
    (void)state;
    assert_int_equal(wire_call(&w, T_ECHO, "hello", 1000, &got), 0);
    assert_int_equal(got.n, 0); /* never from inside the call */
    wire_until(&w, &got.n, 1, 1000);
    assert_int_equal(got.status, 0);
    assert_string_equal(got.msg, "hello");
}

static void test_rpc_failed_reply_has_status_and_no_message(void **state)
{
    struct wire_got got = {0};
    (void)state;
    assert_int_equal(wire_call(&w, T_FAIL, "hello", 1000, &got), 0);
    wire_until(&w, &got.n, 1, 1000);
    assert_int_equal(got.status, -ENOSPC);
    assert_string_equal(got.msg, "");
}

static void test_rpc_ten_thousand_calls_in_flight(void **state)
{
    struct wire_got got = {0};
    (void)state;
    for (unsigned i = 0; i < 10000; i++)
        assert_int_equal(wire_call(&w, T_ECHO, "x", 10000, &got), 0);
    assert_int_equal(fp_rpc_conn_calls(w.cconn), 10000);
    wire_until(&w, &got.n, 10000, 10000);
    assert_int_equal(w.requests, 10000);
    assert_int_equal(fp_rpc_conn_calls(w.cconn), 0);
    assert_int_equal(fp_rpc_conn_queued_bytes(w.cconn), 0);
}

static void test_rpc_message_longer_than_the_buffer(void **state)
{
    struct wire_got got = {0};
    char *text = malloc(3 * MIB);
    (void)state;
    memset(text, 'a', 3 * MIB - 1);
    text[3 * MIB - 1] = 0;
    assert_int_equal(wire_call(&w, T_ECHO, text, 5000, &got), 0);
    wire_until(&w, &got.n, 1, 5000);
    assert_int_equal(got.status, 0);
    free(text);
}

static void test_rpc_message_over_the_limit_is_refused(void **state)
{
    struct wire_got got = {0};
    char *text = calloc(1, 5 * MIB);
    (void)state;
    memset(text, 'a', 5 * MIB - 1);
    assert_int_equal(wire_call(&w, T_ECHO, text, 5000, &got), -EMSGSIZE);
    free(text);
    assert_int_equal(wire_call(&w, T_ECHO, "still up", 1000, &got), 0);
    wire_until(&w, &got.n, 1, 1000);
}

static void test_rpc_deadline_ends_a_call_and_a_late_reply_is_dropped(void **state)
{
    struct wire_got late = {0}, next = {0};
    (void)state;
    assert_int_equal(wire_call(&w, T_LATE, "", 100, &late), 0);
    uint64_t start = fp_now_ms();
    wire_until(&w, &late.n, 1, 2000);
    assert_int_equal(late.status, FP_EDEADLINE);
    assert_in_range(fp_now_ms() - start, 95, 500);
    struct fp_rpc_reply r = {.id = w.late_id, .type = T_LATE};
    assert_int_equal(fp_rpc_reply(w.sconn, &r), 0);
    assert_int_equal(wire_call(&w, T_ECHO, "next", 1000, &next), 0);
    wire_until(&w, &next.n, 1, 1000);
    assert_string_equal(next.msg, "next");
    assert_int_equal(late.n, 1);
}

static void test_rpc_cancel_completes_once(void **state)
{
    struct wire_got got = {0};
    struct fp_rpc_req req = {.type = T_SILENT, .timeout_ms = 5000, .cb = wire_reply_cb, .arg = &got};
    uint64_t id;
    (void)state;
    assert_int_equal(fp_rpc_call(w.cconn, &req, &id), 0);
    assert_int_equal(fp_rpc_cancel(w.cconn, id), 0);
    assert_int_equal(got.n, 0);
    wire_until(&w, &got.n, 1, 1000);
    assert_int_equal(got.status, FP_ECANCELLED);
    assert_int_equal(fp_rpc_cancel(w.cconn, id), -ENOENT);
    wire_run_ms(&w, 50);
    assert_int_equal(got.n, 1);
}

static void test_rpc_call_without_a_deadline_is_refused(void **state)
{
    struct wire_got got = {0};
    (void)state;
    assert_int_equal(wire_call(&w, T_ECHO, "", 0, &got), -EINVAL);
}

static void test_rpc_oneway_arrives(void **state)
{
    (void)state;
    assert_int_equal(fp_rpc_send(w.cconn, T_ONEWAY, NULL), 0);
    wire_until(&w, &w.requests, 1, 1000);
}

static void c_on_request(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg)
{
    (void)arg;
    fp_rpc_reply_msg(conn, in, -EROFS, NULL);
}

static void test_rpc_server_may_ask_too(void **state)
{
    struct wire_got got = {0}, unknown = {0};
    struct fp_rpc_req req = {.type = 7, .timeout_ms = 1000, .cb = wire_reply_cb, .arg = &unknown};
    (void)state;
    assert_int_equal(fp_rpc_call(w.sconn, &req, NULL), 0);
    wire_until(&w, &unknown.n, 1, 1000);
    assert_int_equal(unknown.status, FP_EBADMSG_TYPE); /* no on_request there */
    w.ch.on_request = c_on_request;
    req.arg = &got;
    assert_int_equal(fp_rpc_call(w.sconn, &req, NULL), 0);
    wire_until(&w, &got.n, 1, 1000);
    assert_int_equal(got.status, -EROFS);
}

/* -------------------------------------------------------------- payloads */

/* A call whose payload comes back. */
static struct fp_rpc_req echo_of(const struct iovec *iov, int iovcnt, uint32_t timeout_ms, fp_rpc_reply_cb cb,
                                 struct wire_got *got)
{
    return (struct fp_rpc_req){.type = T_ECHO,
                               .payload = iov,
                               .payload_iovcnt = iovcnt,
                               .timeout_ms = timeout_ms,
                               .cb = cb,
                               .arg = got};
}

static void check_payload(size_t len, void *rx, size_t rx_cap, int want)
{
    struct wire_got got = {0};
    uint8_t *data = pattern(len, (unsigned)len);
    struct iovec iov[2] = {{data, len / 3}, {data + len / 3, len - len / 3}};
    struct fp_rpc_req req = echo_of(iov, 2, 5000, wire_reply_cb, &got);
    req.rx = rx;
    req.rx_cap_bytes = rx_cap;
    assert_int_equal(fp_rpc_call(w.cconn, &req, NULL), 0);
    wire_until(&w, &got.n, 1, 5000);
    assert_int_equal(got.status, want);
    if (want == 0) {
        assert_int_equal(got.payload_len, len);
        assert_memory_equal(got.payload, data, len);
    }
    if (rx && want == 0)
        assert_ptr_equal(got.payload, rx);
    if (!rx) {
        assert_int_equal((uintptr_t)got.payload % 4096, 0);
        fp_rpc_payload_free(got.payload);
    }
    free(data);
}

static void check_payloads(void)
{
    static const size_t sizes[] = {3, 4096, 65535, 65536, 65537, 200001, MIB, 17 * MIB};
    void *rx = malloc(17 * MIB);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_payload(sizes[i], NULL, 0, 0);
        check_payload(sizes[i], rx, 17 * MIB, 0);
    }
    check_payload(MIB, rx, MIB - 1, -EMSGSIZE);
    check_payload(MIB, rx, MIB, 0); /* and the connection goes on */
    free(rx);
}

static void test_rpc_payloads_go_both_ways_encrypted(void **state)
{
    (void)state;
    assert_false(fp_rpc_conn_is_plain(w.cconn));
    check_payloads();
}

static void test_rpc_payloads_go_both_ways_plain(void **state)
{
    struct fp_rpc_opts plain = {.plain = true};
    struct fp_rpc_connect_opts ask = {.plain = true};
    (void)state;
    wire_init(&w, &plain, &plain);
    wire_connect(&w, &ask);
    assert_true(fp_rpc_conn_is_plain(w.cconn));
    check_payloads();
    wire_fini(&w);
}

static void test_rpc_payload_over_the_limit_is_refused(void **state)
{
    struct wire_got got = {0};
    struct iovec iov[2] = {{NULL, 17 * MIB}, {NULL, 1}};
    struct fp_rpc_req req = echo_of(iov, 2, 1, wire_reply_cb, &got);
    (void)state;
    assert_int_equal(fp_rpc_call(w.cconn, &req, NULL), -EMSGSIZE);
    req.payload_iovcnt = FP_RPC_IOV_MAX + 1;
    assert_int_equal(fp_rpc_call(w.cconn, &req, NULL), -EINVAL);
}

static unsigned lost;
static uint8_t *payload_buf;

static void *on_payload(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg)
{
    (void)conn;
    (void)arg;
    assert_int_equal(in->type, T_ECHO);
    return payload_buf;
}

static void on_payload_lost(struct fp_rpc_conn *conn, void *buf, void *arg)
{
    (void)conn;
    (void)arg;
    assert_ptr_equal(buf, payload_buf);
    lost++;
}

static void test_rpc_close_in_the_middle_of_a_payload(void **state)
{
    struct wire_got got = {0};
    struct iovec iov = {pattern(16 * MIB, 1), 16 * MIB};
    struct fp_rpc_req req = echo_of(&iov, 1, 5000, wire_reply_cb, &got);
    (void)state;
    wire_init(&w, NULL, NULL);
    struct wire_relay *relay = wire_relay_new(&w, NULL);
    w.sh.on_payload = on_payload;
    w.sh.on_payload_lost = on_payload_lost;
    payload_buf = malloc(16 * MIB);
    lost = 0;
    wire_connect(&w, NULL);
    assert_int_equal(w.c_up, 1);
    wire_relay_close_after(relay, 2 * MIB);
    assert_int_equal(fp_rpc_call(w.cconn, &req, NULL), 0);
    wire_until(&w, &got.n, 1, 5000);
    assert_true(got.status == FP_EPEER_GONE || got.status == -ECONNRESET);
    wire_until(&w, &w.s_closed, 1, 1000);
    assert_int_equal(lost, 1);
    assert_int_equal(w.requests, 0);
    assert_int_equal(w.c_closed, 1);
    wire_relay_free(relay);
    wire_fini(&w);
    free(payload_buf);
    free(iov.iov_base);
}

static void test_rpc_deadline_in_the_middle_of_sending_closes(void **state)
{
    struct wire_got got = {0};
    struct iovec iov = {pattern(16 * MIB, 1), 16 * MIB};
    struct fp_rpc_req req = echo_of(&iov, 1, 200, wire_reply_cb, &got);
    (void)state;
    wire_run_ms(&w, 20);
    fp_rpc_conn_pause(w.sconn);
    assert_int_equal(fp_rpc_call(w.cconn, &req, NULL), 0);
    wire_until(&w, &got.n, 1, 2000);
    assert_int_equal(got.status, FP_EDEADLINE);
    memset(iov.iov_base, 0xff, 16 * MIB);
    free(iov.iov_base); /* ours again: nothing may send from it */
    wire_until(&w, &w.c_closed, 1, 1000);
    assert_int_equal(w.c_err, FP_EDEADLINE);
}

/* -------------------------------------------------------------- back-pressure */

static void drop_cb(void *arg, int status, const struct fp_rpc_in *in)
{
    struct wire_got *got = arg;
    got->n++;
    got->status = status;
    if (in)
        fp_rpc_payload_free(in->payload);
}

static unsigned writable;

static void on_writable(struct fp_rpc_conn *conn, void *arg)
{
    (void)conn;
    (void)arg;
    writable++;
}

static void test_rpc_slow_reader_stops_the_writer(void **state)
{
    struct fp_rpc_opts small = {.send_queue_max_bytes = 4 * MIB};
    struct wire_got got = {0};
    struct iovec iov = {pattern(MIB, 2), MIB};
    struct fp_rpc_req req = echo_of(&iov, 1, 20000, drop_cb, &got);
    unsigned n = 0;
    int rc = 0;
    (void)state;
    wire_init(&w, NULL, &small);
    w.ch.on_writable = on_writable;
    writable = 0;
    wire_connect(&w, NULL);
    fp_rpc_conn_pause(w.sconn);
    fp_rpc_conn_pause(w.sconn);
    fp_rpc_conn_resume(w.sconn); /* they nest */
    while (n < 100 && (rc = fp_rpc_call(w.cconn, &req, NULL)) == 0) {
        n++;
        wire_run_ms(&w, 2);
    }
    assert_int_equal(rc, -ENOBUFS);
    assert_in_range(n, 4, 60); /* the queue and what the kernel keeps */
    wire_run_ms(&w, 50);
    assert_int_equal(w.requests, 0);
    fp_rpc_conn_resume(w.sconn);
    wire_until(&w, &writable, 1, 5000);
    wire_until(&w, &got.n, n, 10000);
    assert_int_equal(w.requests, n);
    wire_fini(&w);
    free(iov.iov_base);
}

static void test_rpc_unanswered_requests_are_bounded(void **state)
{
    struct fp_rpc_opts few = {.requests_max = 16};
    struct wire_got got = {0};
    struct fp_rpc_req req = {.type = T_SILENT, .timeout_ms = 300, .cb = drop_cb, .arg = &got};
    (void)state;
    wire_init(&w, &few, NULL);
    wire_connect(&w, NULL);
    for (int i = 0; i < 100; i++)
        assert_int_equal(fp_rpc_call(w.cconn, &req, NULL), 0);
    wire_until(&w, &got.n, 100, 2000);
    assert_int_equal(w.requests, 16);
    wire_fini(&w);
}

/* -------------------------------------------------------------- ends */

static void test_rpc_close_completes_every_call_once(void **state)
{
    struct wire_got got = {0};
    (void)state;
    for (int i = 0; i < 50; i++)
        assert_int_equal(wire_call(&w, T_SILENT, "", 5000, &got), 0);
    wire_until(&w, &w.requests, 50, 1000);
    fp_rpc_conn_close(w.sconn, 0);
    wire_until(&w, &got.n, 50, 1000);
    assert_int_equal(got.status, FP_EPEER_GONE);
    wire_until(&w, &w.c_closed, 1, 1000);
    wire_run_ms(&w, 50);
    assert_int_equal(got.n, 50);
    assert_int_equal(w.c_err, FP_EPEER_GONE);
    assert_int_equal(w.s_err, 0);
    assert_int_equal(w.s_closed, 1);
}

static void test_rpc_calls_of_a_closed_connection_fail(void **state)
{
    struct wire_got got = {0}, after = {0};
    (void)state;
    struct fp_rpc_conn *conn = fp_rpc_conn_get(w.cconn);
    assert_int_equal(wire_call(&w, T_SILENT, "", 5000, &got), 0);
    fp_rpc_conn_close(conn, 0);
    assert_int_equal(wire_call(&w, T_ECHO, "", 5000, &after), -ENOTCONN);
    wire_until(&w, &w.c_closed, 1, 1000);
    assert_int_equal(got.n, 1);
    assert_int_equal(got.status, FP_ECANCELLED);
    w.cconn = conn;
    assert_int_equal(wire_call(&w, T_ECHO, "", 5000, &after), -ENOTCONN);
    assert_int_equal(fp_rpc_send(conn, T_ONEWAY, NULL), -ENOTCONN);
    fp_rpc_conn_pause(conn);
    fp_rpc_conn_resume(conn);
    fp_rpc_conn_close(conn, 0);
    fp_rpc_conn_finish(conn);
    assert_int_equal(after.n, 0);
    fp_rpc_conn_put(conn);
}

static void count_cb(void *arg)
{
    (*(unsigned *)arg)++;
}

/* The answer to the T_LATE that came last; *done counts when its payload is ours again. */
static struct fp_rpc_reply late_reply(const struct iovec *iov, unsigned *done)
{
    return (struct fp_rpc_reply){.id = w.late_id,
                                 .type = T_LATE,
                                 .payload = iov,
                                 .payload_iovcnt = 1,
                                 .done = count_cb,
                                 .arg = done};
}

static void test_rpc_reply_after_the_end_gives_the_payload_back(void **state)
{
    struct wire_got got = {0};
    unsigned done = 0;
    char byte = 0;
    struct iovec iov = {&byte, 1};
    (void)state;
    assert_int_equal(wire_call(&w, T_LATE, "", 5000, &got), 0);
    wire_until(&w, &w.requests, 1, 1000);
    struct fp_rpc_conn *conn = fp_rpc_conn_get(w.sconn);
    fp_rpc_conn_close(w.cconn, 0);
    wire_until(&w, &w.s_closed, 1, 1000);
    struct fp_rpc_reply r = late_reply(&iov, &done);
    assert_int_equal(fp_rpc_reply(conn, &r), -ENOTCONN);
    assert_int_equal(done, 1);
    fp_rpc_conn_put(conn);
}

static void test_rpc_finish_sends_what_is_queued(void **state)
{
    struct wire_got got = {0};
    unsigned done = 0;
    struct iovec iov = {pattern(8 * MIB, 3), 8 * MIB};
    struct fp_rpc_req req = {.type = T_LATE, .timeout_ms = 5000, .cb = wire_reply_cb, .arg = &got};
    (void)state;
    assert_int_equal(fp_rpc_call(w.cconn, &req, NULL), 0);
    wire_until(&w, &w.requests, 1, 1000);
    struct fp_rpc_reply r = late_reply(&iov, &done);
    assert_int_equal(fp_rpc_reply(w.sconn, &r), 0);
    fp_rpc_conn_finish(w.sconn);
    wire_until(&w, &got.n, 1, 2000);
    assert_int_equal(got.status, 0);
    assert_int_equal(got.payload_len, 8 * MIB);
    assert_memory_equal(got.payload, iov.iov_base, 8 * MIB);
    fp_rpc_payload_free(got.payload);
    wire_until(&w, &w.s_closed, 1, 500); /* at once, not at its deadline */
    assert_int_equal(w.s_err, 0);
    assert_int_equal(done, 1);
    free(iov.iov_base);
}

/* -------------------------------------------------------------- dead peers */

static void test_rpc_quiet_connection_is_kept_by_pings(void **state)
{
    struct fp_rpc_opts quick = {.ping_idle_ms = 300, .dead_ms = 1000};
    struct wire_got got = {0};
    (void)state;
    wire_init(&w, &quick, &quick);
    wire_connect(&w, NULL);
    wire_run_ms(&w, 2500);
    assert_int_equal(w.c_closed, 0);
    assert_int_equal(wire_call(&w, T_ECHO, "", 1000, &got), 0);
    wire_until(&w, &got.n, 1, 1000);
    wire_fini(&w);
}

static void test_rpc_cut_network_is_noticed_at_both_ends(void **state)
{
    struct fp_rpc_opts quick = {.ping_idle_ms = 200, .dead_ms = 800};
    struct wire_got got = {0};
    (void)state;
    wire_init(&w, &quick, &quick);
    struct wire_relay *relay = wire_relay_new(&w, NULL);
    wire_connect(&w, NULL);
    wire_relay_cut(relay);
    wire_run_ms(&w, 20);
    uint64_t start = fp_now_ms();
    assert_int_equal(wire_call(&w, T_ECHO, "", 20000, &got), 0);
    wire_until(&w, &w.c_closed, 1, 3000);
    wire_until(&w, &w.s_closed, 1, 3000);
    assert_in_range(fp_now_ms() - start, 300, 2000);
    assert_int_equal(w.c_err, -ETIMEDOUT);
    assert_int_equal(w.s_err, -ETIMEDOUT);
    assert_int_equal(got.n, 1);
    assert_int_equal(got.status, -ETIMEDOUT);
    wire_relay_free(relay);
    wire_fini(&w);
}

static void test_rpc_paused_connection_is_not_taken_for_dead(void **state)
{
    struct fp_rpc_opts quick = {.ping_idle_ms = 200, .dead_ms = 800};
    struct wire_got got = {0};
    (void)state;
    wire_init(&w, &quick, &quick);
    wire_connect(&w, NULL);
    fp_rpc_conn_pause(w.sconn);
    assert_int_equal(wire_call(&w, T_ECHO, "", 10000, &got), 0);
    wire_run_ms(&w, 2000);
    assert_int_equal(w.c_closed + w.s_closed, 0);
    fp_rpc_conn_resume(w.sconn);
    wire_until(&w, &got.n, 1, 1000);
    assert_int_equal(got.status, 0);
    wire_fini(&w);
}

static void test_rpc_busy_program_does_not_take_its_peers_for_dead(void **state)
{
    struct fp_rpc_opts quick = {.ping_idle_ms = 200, .dead_ms = 800};
    struct wire_got got = {0};
    (void)state;
    wire_init(&w, &quick, &quick);
    wire_connect(&w, NULL);
    usleep(2000000);
    wire_run_ms(&w, 100);
    assert_int_equal(w.c_closed + w.s_closed, 0);
    assert_int_equal(wire_call(&w, T_ECHO, "", 1000, &got), 0);
    wire_until(&w, &got.n, 1, 1000);
    wire_fini(&w);
}

/* -------------------------------------------------------------- addresses */

static void test_rpc_connect_errors_come_by_on_closed(void **state)
{
    (void)state;
    wire_init(&w, NULL, NULL);
    char addr[64];
    snprintf(addr, sizeof addr, "%s", w.addr);
    fp_rpc_listener_close(w.listener);
    wire_run_ms(&w, 5);
    wire_connect(&w, NULL);
    assert_int_equal(w.c_up, 0);
    assert_int_equal(w.c_err, -ECONNREFUSED);
    assert_non_null(strstr(w.c_why, addr));
    snprintf(w.addr, sizeof w.addr, "no-such-host.invalid:1");
    wire_connect(&w, NULL);
    assert_int_equal(w.c_err, FP_ENOHOST);
    assert_non_null(strstr(w.c_why, "no-such-host.invalid cannot be resolved"));
    assert_int_equal(fp_rpc_connect(w.cli, "nonsense", NULL, &w.ch, &w, &w.cconn), -EINVAL);
    assert_int_equal(fp_rpc_connect(w.cli, "127.0.0.1:0", NULL, &w.ch, &w, &w.cconn), -EINVAL);
    wire_fini(&w);
}

static void test_rpc_connect_by_name(void **state)
{
    (void)state;
    wire_init(&w, NULL, NULL);
    snprintf(w.addr, sizeof w.addr, "localhost:%u", fp_rpc_listener_port(w.listener));
    wire_connect(&w, NULL);
    assert_int_equal(w.c_up, 1);
    assert_string_equal(fp_rpc_conn_peer(w.cconn), fp_rpc_listener_addr(w.listener));
    assert_string_equal(fp_rpc_conn_local(w.cconn), fp_rpc_conn_peer(w.sconn));
    wire_fini(&w);
}

static void test_rpc_connect_to_a_deaf_server_times_out(void **state)
{
    union fp_sockaddr sa;
    socklen_t len = sizeof sa;
    struct fp_rpc_connect_opts opts = {.timeout_ms = 300};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)state;
    fp_addr_numeric("127.0.0.1", 0, &sa);
    assert_int_equal(bind(fd, &sa.sa, fp_addr_len(&sa)), 0);
    assert_int_equal(listen(fd, 1), 0);
    getsockname(fd, &sa.sa, &len);
    wire_init(&w, NULL, NULL);
    fp_addr_format(&sa.sa, w.addr);
    uint64_t start = fp_now_ms();
    wire_connect(&w, &opts);
    assert_int_equal(w.c_up, 0);
    assert_int_equal(w.c_err, -ETIMEDOUT);
    assert_in_range(fp_now_ms() - start, 250, 1000);
    wire_fini(&w);
    close(fd);
}

static void test_rpc_listen_errors(void **state)
{
    struct fp_rpc_listener *l;
    (void)state;
    assert_int_equal(fp_rpc_listen(w.srv, w.addr, &w.sh, &w, &l), -EADDRINUSE);
    assert_int_equal(fp_rpc_listen(w.srv, "192.0.2.1:0", &w.sh, &w, &l), -EADDRNOTAVAIL);
    assert_int_equal(fp_rpc_listen(w.srv, "x", &w.sh, &w, &l), -EINVAL);
    assert_int_equal(fp_rpc_listen(w.srv, "no-such-host.invalid:1", &w.sh, &w, &l), FP_ENOHOST);
}

static void test_rpc_close_while_looking_up_a_name(void **state)
{
    (void)state;
    wire_init(&w, NULL, NULL);
    assert_int_equal(fp_rpc_connect(w.cli, "no-such-host.invalid:1", NULL, &w.ch, &w, &w.cconn), 0);
    fp_rpc_conn_close(w.cconn, 0);
    wire_until(&w, &w.c_closed, 1, 5000);
    assert_int_equal(fp_rpc_connect(w.cli, "no-such-host.invalid:1", NULL, &w.ch, &w, &w.cconn), 0);
    wire_fini(&w);
    assert_int_equal(w.c_closed, 2);
}

#define T(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_rpc_call_gets_its_reply),
        T(test_rpc_failed_reply_has_status_and_no_message),
        T(test_rpc_ten_thousand_calls_in_flight),
        T(test_rpc_message_longer_than_the_buffer),
        T(test_rpc_message_over_the_limit_is_refused),
        T(test_rpc_deadline_ends_a_call_and_a_late_reply_is_dropped),
        T(test_rpc_cancel_completes_once),
        T(test_rpc_call_without_a_deadline_is_refused),
        T(test_rpc_oneway_arrives),
        T(test_rpc_server_may_ask_too),
        T(test_rpc_payloads_go_both_ways_encrypted),
        cmocka_unit_test(test_rpc_payloads_go_both_ways_plain),
        T(test_rpc_payload_over_the_limit_is_refused),
        cmocka_unit_test(test_rpc_close_in_the_middle_of_a_payload),
        T(test_rpc_deadline_in_the_middle_of_sending_closes),
        cmocka_unit_test(test_rpc_slow_reader_stops_the_writer),
        cmocka_unit_test(test_rpc_unanswered_requests_are_bounded),
        T(test_rpc_close_completes_every_call_once),
        T(test_rpc_calls_of_a_closed_connection_fail),
        T(test_rpc_reply_after_the_end_gives_the_payload_back),
        T(test_rpc_finish_sends_what_is_queued),
        cmocka_unit_test(test_rpc_quiet_connection_is_kept_by_pings),
        cmocka_unit_test(test_rpc_cut_network_is_noticed_at_both_ends),
        cmocka_unit_test(test_rpc_paused_connection_is_not_taken_for_dead),
        cmocka_unit_test(test_rpc_busy_program_does_not_take_its_peers_for_dead),
        cmocka_unit_test(test_rpc_connect_errors_come_by_on_closed),
        cmocka_unit_test(test_rpc_connect_by_name),
        cmocka_unit_test(test_rpc_connect_to_a_deaf_server_times_out),
        T(test_rpc_listen_errors),
        cmocka_unit_test(test_rpc_close_while_looking_up_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
