/* A server and a client on one loop, for the tests of the wire layer (see wire_help.h). */
#include "wire_help.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
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

static void s_on_up(struct fp_rpc_conn *conn, void *arg)
{
    struct wire *w = arg;
    w->s_up++;
    w->sconn = conn;
}

static void s_on_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    struct wire *w = arg;
    (void)conn;
    (void)why;
    w->s_closed++;
    w->s_err = err;
    w->sconn = NULL;
}

static void s_on_request(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg)
{
    struct wire *w = arg;
    w->requests++;
    if (w->echo_paused) {
        w->echo_paused = false;
        fp_rpc_conn_pause(conn);
    }
    if (in->type == T_LATE)
        w->late_id = in->id;
    if (in->flags & FP_FRAME_ONEWAY || in->type == T_SILENT || in->type == T_LATE) {
        fp_rpc_payload_free(in->payload);
        return;
    }
    Fp__ReadLinkReply *m = fp__read_link_reply__unpack(NULL, in->msg_len_bytes, in->msg);
    assert_non_null(m);
    struct iovec iov = {in->payload, in->payload_len_bytes};
    struct fp_rpc_reply r = {
        .id = in->id,
        .type = in->type,
        .status = in->type == T_FAIL ? -ENOSPC : 0,
        .msg = &m->base,
        .payload = &iov,
        .payload_iovcnt = in->payload ? 1 : 0,
        .done = in->payload ? fp_rpc_payload_free : NULL,
        .arg = in->payload,
    };
    fp_rpc_reply(conn, &r);
    fp__read_link_reply__free_unpacked(m, NULL);
}

static void c_on_up(struct fp_rpc_conn *conn, void *arg)
{
    struct wire *w = arg;
    (void)conn;
    w->c_up++;
}

static void c_on_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    struct wire *w = arg;
    (void)conn;
    w->c_closed++;
    w->c_err = err;
    snprintf(w->c_why, sizeof w->c_why, "%s", why);
    w->cconn = NULL;
}

void wire_init(struct wire *w, const struct fp_rpc_opts *server, const struct fp_rpc_opts *client)
{
    struct fp_rpc_opts so = server ? *server : (struct fp_rpc_opts){0};
    struct fp_rpc_opts co = client ? *client : (struct fp_rpc_opts){0};
    memset(w, 0, sizeof *w);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    assert_int_equal(fp_key_generate(&w->key), 0);
    if (!so.key)
        so.key = w->key;
    if (!co.key)
        co.key = w->key;
    w->sh = (struct fp_rpc_handler){.on_up = s_on_up, .on_request = s_on_request, .on_closed = s_on_closed};
    w->ch = (struct fp_rpc_handler){.on_up = c_on_up, .on_closed = c_on_closed};
    assert_int_equal(fp_rpc_new(&w->loop, &so, &w->srv), 0);
    assert_int_equal(fp_rpc_new(&w->loop, &co, &w->cli), 0);
    assert_int_equal(fp_rpc_listen(w->srv, "127.0.0.1:0", &w->sh, w, &w->listener), 0);
    snprintf(w->addr, sizeof w->addr, "%s", fp_rpc_listener_addr(w->listener));
}

static void timer_noop(uv_timer_t *t)
{
    (void)t;
}

/* One turn of the loop that waits for at most 10 ms. */
static void turn(struct wire *w, uv_timer_t *t)
{
    uv_timer_start(t, timer_noop, 10, 0);
    uv_run(&w->loop, UV_RUN_ONCE);
}

static void timer_closed(uv_handle_t *t)
{
    t->data = NULL;
}

static void timer_fini(struct wire *w, uv_timer_t *t)
{
    t->data = t;
    uv_close((uv_handle_t *)t, timer_closed);
    while (t->data)
        uv_run(&w->loop, UV_RUN_NOWAIT);
}

void wire_until(struct wire *w, const unsigned *flag, unsigned n, unsigned timeout_ms)
{
    uint64_t end = fp_now_ms() + timeout_ms;
    uv_timer_t t;
    uv_timer_init(&w->loop, &t);
    while (*flag < n && fp_now_ms() < end)
        turn(w, &t);
    timer_fini(w, &t);
    if (*flag < n)
        fail_msg("%u of %u after %u ms", *flag, n, timeout_ms);
}

void wire_run_ms(struct wire *w, unsigned ms)
{
    uint64_t end = fp_now_ms() + ms;
    uv_timer_t t;
    uv_timer_init(&w->loop, &t);
    while (fp_now_ms() < end)
        turn(w, &t);
    timer_fini(w, &t);
}

void wire_connect(struct wire *w, const struct fp_rpc_connect_opts *opts)
{
    unsigned up = w->c_up, closed = w->c_closed, s_up = w->s_up;
    uint64_t end = fp_now_ms() + 10000;
    assert_int_equal(fp_rpc_connect(w->cli, w->addr, opts, &w->ch, w, &w->cconn), 0);
    while (fp_now_ms() < end && w->c_closed == closed && !(w->c_up > up && w->s_up > s_up))
        wire_run_ms(w, 1);
    assert_true(w->c_up > up || w->c_closed > closed);
}

static void rpc_closed(void *arg)
{
    (*(unsigned *)arg)++;
}

void wire_fini(struct wire *w)
{
    fp_rpc_close(w->cli, rpc_closed, &w->rpcs_closed);
    fp_rpc_close(w->srv, rpc_closed, &w->rpcs_closed);
    wire_until(w, &w->rpcs_closed, 2, 5000);
    while (uv_run(&w->loop, UV_RUN_NOWAIT)) {
    }
    assert_int_equal(uv_loop_close(&w->loop), 0);
    fp_key_free(w->key);
}

void wire_reply_cb(void *arg, int status, const struct fp_rpc_in *in)
{
    struct wire_got *got = arg;
    got->n++;
    got->status = status;
    got->payload = NULL;
    got->payload_len = 0;
    if (!in)
        return;
    got->payload = in->payload;
    got->payload_len = in->payload_len_bytes;
    Fp__ReadLinkReply *m = fp__read_link_reply__unpack(NULL, in->msg_len_bytes, in->msg);
    assert_non_null(m);
    size_t len = m->target.len < sizeof got->msg - 1 ? m->target.len : sizeof got->msg - 1;
    if (len > 0)
        memcpy(got->msg, m->target.data, len);
    got->msg[len] = 0;
    fp__read_link_reply__free_unpacked(m, NULL);
}

int wire_call(struct wire *w, uint16_t type, const char *text, uint32_t timeout_ms, struct wire_got *got)
{
    Fp__ReadLinkReply m = FP__READ_LINK_REPLY__INIT;
    m.target.data = (uint8_t *)text;
    m.target.len = strlen(text);
    struct fp_rpc_req req = {
        .type = type, .msg = &m.base, .timeout_ms = timeout_ms, .cb = wire_reply_cb, .arg = got};
    return fp_rpc_call(w->cconn, &req, NULL);
}

int wire_stranger(struct wire *w)
{
    union fp_sockaddr addr;
    assert_int_equal(fp_addr_numeric("127.0.0.1", fp_rpc_listener_port(w->listener), &addr), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, &addr.sa, fp_addr_len(&addr)), 0);
    return fd;
}

unsigned wire_until_eof(struct wire *w, int fd, unsigned limit_ms)
{
    uint64_t start = fp_now_ms();
    char buf[4096];
    for (;;) {
        ssize_t n = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return (unsigned)(fp_now_ms() - start);
        if (fp_now_ms() - start > limit_ms)
            fail_msg("still open after %u ms", limit_ms);
        wire_run_ms(w, 5);
    }
}

/* -------------------------------------------------------------- relay */

struct wire_relay {
    pthread_t thread;
    int listen_fd;
    uint16_t to_port;
    atomic_bool cut, stop, seen;
    atomic_ulong close_after; /* 0: never */
    const char *needle;
};

static void relay_look(struct wire_relay *r, char *buf, size_t n)
{
    if (r->needle && memmem(buf, n, r->needle, strlen(r->needle)))
        atomic_store(&r->seen, true);
}

static bool relay_forward(struct wire_relay *r, int from, int to, bool to_server)
{
    static char buf[1 << 16];
    ssize_t n = recv(from, buf, sizeof buf, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return true;
    if (n <= 0)
        return false;
    relay_look(r, buf, (size_t)n);
    unsigned long left = atomic_load(&r->close_after);
    if (to_server && left > 0) {
        if ((unsigned long)n >= left)
            return false;
        atomic_store(&r->close_after, left - (unsigned long)n);
    }
    return send(to, buf, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *relay_thread(void *arg)
{
    struct wire_relay *r = arg;
    struct pollfd p[2] = {{r->listen_fd, POLLIN, 0}, {-1, POLLIN, 0}};
    int a = -1, b = -1;
    while (!atomic_load(&r->stop)) {
        if (atomic_load(&r->cut) || poll(p, 2, 10) <= 0) {
            usleep(1000);
            continue;
        }
        if (a < 0) {
            union fp_sockaddr to;
            a = accept(r->listen_fd, NULL, NULL);
            fp_addr_numeric("127.0.0.1", r->to_port, &to);
            b = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(b, &to.sa, fp_addr_len(&to)) < 0)
                break;
            p[0].fd = a;
            p[1].fd = b;
            continue;
        }
        if ((p[0].revents && !relay_forward(r, a, b, true)) ||
            (p[1].revents && !relay_forward(r, b, a, false)))
            break;
    }
    close(a);
    close(b);
    return NULL;
}

struct wire_relay *wire_relay_new(struct wire *w, const char *needle)
{
    union fp_sockaddr addr;
    socklen_t len = sizeof addr;
    struct wire_relay *r = calloc(1, sizeof *r);
    assert_non_null(r);
    fp_addr_numeric("127.0.0.1", 0, &addr);
    r->needle = needle;
    r->to_port = fp_rpc_listener_port(w->listener);
    r->listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(r->listen_fd, &addr.sa, fp_addr_len(&addr)), 0);
    assert_int_equal(listen(r->listen_fd, 5), 0);
    assert_int_equal(getsockname(r->listen_fd, &addr.sa, &len), 0);
    fp_addr_format(&addr.sa, w->addr);
    assert_int_equal(pthread_create(&r->thread, NULL, relay_thread, r), 0);
    return r;
}

void wire_relay_cut(struct wire_relay *r)
{
    atomic_store(&r->cut, true);
}

void wire_relay_close_after(struct wire_relay *r, unsigned long bytes)
{
    atomic_store(&r->close_after, bytes);
}

bool wire_relay_seen(struct wire_relay *r)
{
    return atomic_load(&r->seen);
}

void wire_relay_free(struct wire_relay *r)
{
    atomic_store(&r->stop, true);
    pthread_join(r->thread, NULL);
    close(r->listen_fd);
    free(r);
}

/* -------------------------------------------------------------- log */

static int log_fd = -1, stderr_copy = -1;

void wire_log_begin(void)
{
    char path[] = "/tmp/fp-wire-log-XXXXXX";
    log_fd = mkstemp(path);
    assert_true(log_fd >= 0);
    unlink(path);
    fflush(stderr);
    stderr_copy = dup(2);
    dup2(log_fd, 2);
}

unsigned wire_log_end(const char *needle)
{
    static char text[1 << 16];
    unsigned n = 0;
    fflush(stderr);
    dup2(stderr_copy, 2);
    close(stderr_copy);
    ssize_t len = pread(log_fd, text, sizeof text - 1, 0);
    close(log_fd);
    text[len > 0 ? len : 0] = 0;
    for (const char *p = text; (p = strstr(p, needle)) != NULL; p++)
        n++;
    if (n == 0 && len > 0)
        fprintf(stderr, "log was: %s\n", text);
    return n;
}
