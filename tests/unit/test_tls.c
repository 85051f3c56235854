/* Who may talk to us: the key, the store, strangers, and the hand-over to plain bytes
 * (include/fp/transport.h, rpc.h). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "fp.pb-c.h"
#include "fp/addr.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/transport.h"
#include "wire_help.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SECOND_MS 2000
#else
#define SECOND_MS 1000
#endif

static const uint8_t uuid_a[16] = {1, 2, 3};
static const uint8_t uuid_b[16] = {9, 8, 7};

static struct wire w;

static int fini(void **state)
{
    (void)state;
    wire_fini(&w);
    return 0;
}

/* -------------------------------------------------------------- key and store */

static void test_tls_wrong_key_is_told_at_both_ends(void **state)
{
    struct fp_key *other;
    (void)state;
    assert_int_equal(fp_key_generate(&other), 0);
    struct fp_rpc_opts opts = {.key = other};
    wire_init(&w, NULL, &opts);
    wire_log_begin();
    wire_connect(&w, NULL);
    wire_run_ms(&w, 20);
    assert_int_equal(wire_log_end("refused connection from 127.0.0.1:"), 1);
    assert_int_equal(w.c_up, 0);
    assert_int_equal(w.c_err, FP_EAUTH);
    assert_non_null(strstr(w.c_why, "wrong key"));
    assert_int_equal(w.s_up, 0);
    wire_fini(&w);
    fp_key_free(other);
}

static void check_uuid(const uint8_t *server, const uint8_t *client, bool fresh, int want)
{
    struct fp_rpc_opts so = {.store_uuid = server}, co = {.store_uuid = client};
    struct fp_rpc_connect_opts ask = {.fresh_uuid = fresh};
    wire_init(&w, &so, &co);
    wire_log_begin();
    wire_connect(&w, &ask);
    wire_run_ms(&w, 20);
    unsigned lines = wire_log_end("belongs to another store");
    assert_int_equal(lines, want ? 1 : 0);
    assert_int_equal(w.c_up, want == 0);
    assert_int_equal(w.c_err, want);
    wire_fini(&w);
}

static void test_tls_other_store_with_the_same_key(void **state)
{
    (void)state;
    check_uuid(uuid_a, uuid_b, false, FP_EUUID);
    check_uuid(uuid_a, uuid_b, true, 0);
    check_uuid(uuid_a, uuid_a, false, 0);
    check_uuid(uuid_a, NULL, false, 0);
    check_uuid(NULL, uuid_b, false, 0);
}

/* -------------------------------------------------------------- strangers */

static unsigned refused_within(const void *bytes, size_t len, const char *line)
{
    wire_log_begin();
    int fd = wire_stranger(&w);
    if (len > 0)
        assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), len);
    unsigned ms = wire_until_eof(&w, fd, 2000);
    close(fd);
    wire_run_ms(&w, 20);
    assert_int_equal(wire_log_end(line), 1);
    assert_int_equal(w.s_up + w.s_closed, 0);
    return ms;
}

static void test_tls_garbage_is_refused_at_once(void **state)
{
    uint8_t random[64] = {0x16, 3, 1, 0, 59, 1, 0, 0, 55, 3, 3, 0xaa, 0x55};
    uint8_t frame[FP_FRAME_HEADER_BYTES];
    struct fp_frame hello = {.type = 1};
    (void)state;
    wire_init(&w, NULL, NULL);
    assert_in_range(refused_within("GET / HTTP/1.1\r\n\r\n", 18, "it begins with 47 45 54 20"), 0,
                    SECOND_MS / 2);
    assert_in_range(refused_within("x", 1, "it begins with 78"), 0, SECOND_MS / 2);
    assert_in_range(refused_within(random, sizeof random, "TLS without the store key"), 0, SECOND_MS / 2);
    fp_frame_encode(&hello, NULL, frame);
    assert_in_range(refused_within(frame, sizeof frame, "frame of protocol version 1 without TLS"), 0,
                    SECOND_MS / 2);
    frame[4] = 0;
    assert_in_range(refused_within(frame, sizeof frame, "frame of protocol version 0 without TLS"), 0,
                    SECOND_MS / 2);
}

static void test_tls_silence_is_refused_within_a_second(void **state)
{
    (void)state;
    wire_init(&w, NULL, NULL);
    assert_in_range(refused_within(NULL, 0, "silent for 800 ms"), 500, SECOND_MS);
    assert_in_range(refused_within("\x16\x03\x01\x00\xc8\x01", 6, "did not prove the key"), 500, SECOND_MS);
}

static void test_tls_silent_crowd_does_not_keep_others_out(void **state)
{
    enum { CROWD = 40 };
    struct fp_rpc_opts few = {.preauth_max = 8};
    int fds[CROWD];
    (void)state;
    wire_init(&w, &few, NULL);
    for (int i = 0; i < CROWD; i++)
        fds[i] = wire_stranger(&w);
    wire_log_begin();
    uint64_t start = fp_now_ms();
    wire_connect(&w, NULL);
    assert_int_equal(w.c_up, 1);
    assert_in_range(fp_now_ms() - start, 0, 1500);
    assert_true(wire_log_end("silent, and others are waiting") > 0);
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
}

static void test_tls_refusals_are_rate_limited_in_the_log(void **state)
{
    (void)state;
    wire_init(&w, NULL, NULL);
    uint64_t begun = fp_now_ms();
    wire_log_begin();
    for (int i = 0; i < 100; i++) {
        int fd = wire_stranger(&w);
        assert_int_equal(send(fd, "hello?", 6, MSG_NOSIGNAL), 6);
        wire_until_eof(&w, fd, 1000);
        close(fd);
    }
    unsigned lines = wire_log_end("refused connection from");
    assert_in_range(lines, 20, 20 * ((fp_now_ms() - begun) / 1000 + 2)); /* 20 a second */
}

/* -------------------------------------------------------------- servers that are none of ours */

struct fake {
    pthread_t thread;
    int fd;
    const char *says; /* NULL: TLS with a certificate */
    bool may_finish;
};

/* A TLS server with a key pair and a certificate of its own making, but without the store's key. */
static SSL_CTX *cert_ctx(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_sign(cert, key, EVP_sha256());
    SSL_CTX_use_certificate(ctx, cert);
    SSL_CTX_use_PrivateKey(ctx, key);
    X509_free(cert);
    EVP_PKEY_free(key);
    return ctx;
}

static void *fake_thread(void *arg)
{
    struct fake *f = arg;
    int fd = accept(f->fd, NULL, NULL);
    if (f->says) {
        char buf[2048];
        (void)!read(fd, buf, sizeof buf);
        (void)!write(fd, f->says, strlen(f->says));
    } else {
        SSL_CTX *ctx = cert_ctx();
        SSL *ssl = SSL_new(ctx);
        SSL_set_fd(ssl, fd);
        f->may_finish = SSL_accept(ssl) == 1;
        SSL_free(ssl);
        SSL_CTX_free(ctx);
    }
    close(fd);
    return NULL;
}

static int connect_to_fake(const char *says)
{
    union fp_sockaddr sa;
    socklen_t len = sizeof sa;
    struct fake f = {.fd = socket(AF_INET, SOCK_STREAM, 0), .says = says};
    fp_addr_numeric("127.0.0.1", 0, &sa);
    assert_int_equal(bind(f.fd, &sa.sa, fp_addr_len(&sa)), 0);
    assert_int_equal(listen(f.fd, 1), 0);
    getsockname(f.fd, &sa.sa, &len);
    wire_init(&w, NULL, NULL);
    fp_addr_format(&sa.sa, w.addr);
    assert_int_equal(pthread_create(&f.thread, NULL, fake_thread, &f), 0);
    wire_connect(&w, NULL);
    assert_int_equal(w.c_up, 0);
    int err = w.c_err;
    pthread_join(f.thread, NULL);
    assert_false(f.may_finish);
    close(f.fd);
    wire_fini(&w);
    return err;
}

static void test_tls_server_must_prove_the_key_too(void **state)
{
    (void)state;
    assert_int_equal(connect_to_fake(NULL), FP_EAUTH);
}

static void test_tls_server_that_speaks_something_else(void **state)
{
    (void)state;
    assert_int_equal(connect_to_fake("SSH-2.0-OpenSSH_9.2\r\n"), -EPROTO);
    assert_int_equal(connect_to_fake(""), FP_EPEER_GONE);
}

/* -------------------------------------------------------------- peers with the key that misbehave */

/* A client made of the transport alone, which may send what it likes. */
struct evil {
    int fd;
    struct fp_tls_ctx *ctx;
    struct fp_transport *t;
};

static void evil_open(struct evil *e)
{
    int rc = -EAGAIN;
    e->fd = wire_stranger(&w);
    fcntl(e->fd, F_SETFL, O_NONBLOCK);
    assert_int_equal(fp_tls_ctx_new(w.key, NULL, &e->ctx), 0);
    assert_int_equal(fp_transport_tls_new(e->ctx, e->fd, FP_TLS_CLIENT, &e->t), 0);
    for (int i = 0; i < 200 && rc == -EAGAIN; i++) {
        rc = e->t->ops->handshake(e->t);
        wire_run_ms(&w, 2);
    }
    assert_int_equal(rc, 0);
}

static void evil_send(struct evil *e, const void *bytes, size_t len)
{
    struct iovec iov = {(void *)bytes, len};
    assert_int_equal(e->t->ops->writev(e->t, &iov, 1), len);
    assert_int_equal(e->t->ops->flush(e->t), 0);
}

/* What comes back, until there is len of it or the end: bytes. */
static size_t evil_recv(struct evil *e, void *to, size_t len)
{
    size_t got = 0;
    for (int i = 0; i < 200 && got < len; i++) {
        struct iovec iov = {(char *)to + got, len - got};
        ssize_t n = e->t->ops->readv(e->t, &iov, 1);
        if (n == 0 || (n < 0 && n != -EAGAIN))
            break;
        got += n > 0 ? (size_t)n : 0;
        wire_run_ms(&w, 2);
    }
    return got;
}

static void evil_close(struct evil *e)
{
    e->t->ops->free(e->t);
    fp_tls_ctx_free(e->ctx);
    close(e->fd);
}

static void evil_setup(struct evil *e)
{
    static const uint8_t flags[8];
    uint8_t buf[FP_FRAME_HEADER_BYTES + 8];
    struct fp_frame f = {.type = 0xFF00, .msg_len_bytes = 8};
    fp_frame_encode(&f, flags, buf);
    memcpy(buf + FP_FRAME_HEADER_BYTES, flags, 8);
    evil_send(e, buf, sizeof buf);
    assert_int_equal(evil_recv(e, buf, sizeof buf), sizeof buf);
    assert_int_equal(fp_frame_decode(buf, &f), 0);
    assert_int_equal(f.type, 0xFF00);
    assert_int_equal(f.status, 0);
}

static void test_tls_other_protocol_version_is_told_at_both_ends(void **state)
{
    uint8_t h[FP_FRAME_HEADER_BYTES];
    struct fp_frame f = {.type = 0xFF00};
    struct evil e;
    (void)state;
    wire_init(&w, NULL, NULL);
    wire_log_begin();
    evil_open(&e);
    fp_frame_encode(&f, NULL, h);
    h[4] = 7;
    evil_send(&e, h, sizeof h);
    assert_int_equal(evil_recv(&e, h, sizeof h), sizeof h);
    assert_int_equal(wire_log_end("it speaks protocol version 7, this program version 1"), 1);
    assert_int_equal(fp_frame_decode(h, &f), 0);
    assert_int_equal(f.status, FP_EPROTO_VERSION);
    assert_int_equal(evil_recv(&e, h, 1), 0);
    evil_close(&e);
}

static void check_bad_frame(size_t offset, uint8_t value, const char *msg, int want)
{
    uint8_t buf[FP_FRAME_HEADER_BYTES + 4];
    struct fp_frame f = {.type = T_ECHO, .id = 1, .msg_len_bytes = 4};
    struct evil e;
    unsigned closed = w.s_closed;
    evil_open(&e);
    evil_setup(&e);
    fp_frame_encode(&f, msg, buf);
    memcpy(buf + FP_FRAME_HEADER_BYTES, msg, 4);
    buf[offset] = value;
    evil_send(&e, buf, sizeof buf);
    wire_until(&w, &w.s_closed, closed + 1, 1000);
    assert_int_equal(w.s_err, want);
    assert_int_equal(w.requests, 0);
    evil_close(&e);
}

static void test_tls_bad_frames_end_the_connection(void **state)
{
    (void)state;
    wire_init(&w, NULL, NULL);
    check_bad_frame(0, 'X', "abcd", FP_EBADFRAME);                     /* magic */
    check_bad_frame(4, 9, "abcd", FP_EPROTO_VERSION);                  /* version */
    check_bad_frame(27, 0xff, "abcd", FP_EBADFRAME);                   /* message of 4 GiB */
    check_bad_frame(31, 0xff, "abcd", FP_EBADFRAME);                   /* payload of 4 GiB */
    check_bad_frame(33, 1, "abcd", FP_EBADFRAME);                      /* checksum */
    check_bad_frame(FP_FRAME_HEADER_BYTES, '?', "abcd", FP_EBADFRAME); /* message */
}

static void test_tls_frame_before_setup_is_refused(void **state)
{
    uint8_t h[FP_FRAME_HEADER_BYTES];
    struct fp_frame f = {.type = T_ECHO, .id = 1, .msg_len_bytes = 4 << 20};
    static uint8_t msg[4 << 20];
    struct evil e;
    (void)state;
    wire_init(&w, NULL, NULL);
    wire_log_begin();
    evil_open(&e);
    fp_frame_encode(&f, msg, h);
    evil_send(&e, h, sizeof h);
    assert_int_equal(evil_recv(&e, h, 1), 0);
    assert_int_equal(wire_log_end("frame with contradictory header"), 1);
    assert_int_equal(w.s_up, 0);
    evil_close(&e);
}

static void test_tls_key_alone_without_setup_is_refused_within_a_second(void **state)
{
    struct evil e;
    (void)state;
    wire_init(&w, NULL, NULL);
    wire_log_begin();
    evil_open(&e);
    assert_in_range(wire_until_eof(&w, e.fd, 2000), 500, SECOND_MS);
    assert_int_equal(wire_log_end("did not prove the key within 800 ms"), 1);
    evil_close(&e);
}

static void test_tls_truncated_frame_is_not_delivered(void **state)
{
    uint8_t h[FP_FRAME_HEADER_BYTES];
    struct fp_frame f = {.type = T_ECHO, .id = 1, .msg_len_bytes = 4};
    struct evil e;
    (void)state;
    wire_init(&w, NULL, NULL);
    evil_open(&e);
    evil_setup(&e);
    fp_frame_encode(&f, "abcd", h);
    evil_send(&e, h, sizeof h);
    evil_close(&e);
    wire_until(&w, &w.s_closed, 1, 1000);
    assert_int_equal(w.requests, 0);
}

static void test_tls_frames_nobody_waits_for_are_dropped(void **state)
{
    uint8_t h[FP_FRAME_HEADER_BYTES + 100000] = {0};
    struct fp_frame f = {.type = T_ECHO, .id = 77, .flags = FP_FRAME_REPLY, .payload_len_bytes = 100000};
    struct evil e;
    (void)state;
    wire_init(&w, NULL, NULL);
    evil_open(&e);
    evil_setup(&e);
    fp_frame_encode(&f, NULL, h);
    evil_send(&e, h, sizeof h);
    f.type = 0xFF07; /* and one-way frames of a later wire layer */
    f.flags = FP_FRAME_ONEWAY;
    fp_frame_encode(&f, NULL, h);
    evil_send(&e, h, sizeof h);
    f = (struct fp_frame){.type = T_ECHO, .id = 1};
    fp_frame_encode(&f, NULL, h);
    evil_send(&e, h, FP_FRAME_HEADER_BYTES);
    assert_int_equal(evil_recv(&e, h, FP_FRAME_HEADER_BYTES), FP_FRAME_HEADER_BYTES);
    assert_int_equal(fp_frame_decode(h, &f), 0);
    assert_int_equal(f.id, 1);
    evil_close(&e);
}

/* -------------------------------------------------------------- data-encryption=off */

static bool marker_seen(bool server_plain, bool client_plain, bool ask)
{
    struct fp_rpc_opts so = {.plain = server_plain}, co = {.plain = client_plain};
    struct fp_rpc_connect_opts opts = {.plain = ask};
    struct wire_got got = {0};
    wire_init(&w, &so, &co);
    struct wire_relay *relay = wire_relay_new(&w, "MARKER-IN-THE-CLEAR");
    wire_connect(&w, &opts);
    assert_int_equal(w.c_up, 1);
    for (unsigned i = 1; i <= 20; i++) {
        assert_int_equal(wire_call(&w, T_ECHO, "MARKER-IN-THE-CLEAR", 1000, &got), 0);
        wire_until(&w, &got.n, i, 1000);
        assert_int_equal(got.status, 0);
    }
    assert_int_equal(fp_rpc_conn_is_plain(w.cconn), fp_rpc_conn_is_plain(w.sconn));
    bool seen = wire_relay_seen(relay);
    assert_int_equal(seen, fp_rpc_conn_is_plain(w.cconn));
    wire_relay_free(relay);
    wire_fini(&w);
    return seen;
}

static void test_tls_plain_only_when_both_ends_want_it(void **state)
{
    (void)state;
    assert_true(marker_seen(true, true, true));
    assert_false(marker_seen(false, true, true));
    assert_false(marker_seen(true, false, true));
    assert_false(marker_seen(true, true, false));
}

static struct wire_got greeting;

static void greet_on_up(struct fp_rpc_conn *conn, void *arg)
{
    struct fp_rpc_req req = {.type = 5, .timeout_ms = 2000, .cb = wire_reply_cb, .arg = &greeting};
    ((struct wire *)arg)->s_up++;
    for (int i = 0; i < 10; i++)
        assert_int_equal(fp_rpc_call(conn, &req, NULL), 0);
}

static void test_tls_hand_over_loses_nothing_that_is_sent_at_once(void **state)
{
    struct fp_rpc_opts plain = {.plain = true};
    struct fp_rpc_connect_opts opts = {.plain = true};
    (void)state;
    wire_init(&w, &plain, &plain);
    w.sh.on_up = greet_on_up; /* its first plain bytes are right behind the last TLS record */
    for (unsigned i = 1; i <= 30; i++) {
        memset(&greeting, 0, sizeof greeting);
        wire_connect(&w, &opts);
        wire_until(&w, &greeting.n, 10, 1000);
        assert_int_equal(greeting.status, FP_EBADMSG_TYPE);
        fp_rpc_conn_close(w.cconn, 0);
        wire_until(&w, &w.s_closed, i, 1000);
    }
}

static void test_tls_wrong_key_cannot_have_plain_either(void **state)
{
    struct fp_key *other;
    (void)state;
    assert_int_equal(fp_key_generate(&other), 0);
    struct fp_rpc_opts so = {.plain = true}, co = {.plain = true, .key = other};
    struct fp_rpc_connect_opts opts = {.plain = true};
    wire_init(&w, &so, &co);
    wire_connect(&w, &opts);
    assert_int_equal(w.c_up + w.s_up, 0);
    assert_int_equal(w.c_err, FP_EAUTH);
    wire_fini(&w);
    fp_key_free(other);
}

#define T(name) cmocka_unit_test_teardown(name, fini)

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tls_wrong_key_is_told_at_both_ends),
        cmocka_unit_test(test_tls_other_store_with_the_same_key),
        T(test_tls_garbage_is_refused_at_once),
        T(test_tls_silence_is_refused_within_a_second),
        T(test_tls_silent_crowd_does_not_keep_others_out),
        T(test_tls_refusals_are_rate_limited_in_the_log),
        cmocka_unit_test(test_tls_server_must_prove_the_key_too),
        cmocka_unit_test(test_tls_server_that_speaks_something_else),
        T(test_tls_other_protocol_version_is_told_at_both_ends),
        T(test_tls_bad_frames_end_the_connection),
        T(test_tls_frame_before_setup_is_refused),
        T(test_tls_key_alone_without_setup_is_refused_within_a_second),
        T(test_tls_truncated_frame_is_not_delivered),
        T(test_tls_frames_nobody_waits_for_are_dropped),
        cmocka_unit_test(test_tls_plain_only_when_both_ends_want_it),
        T(test_tls_hand_over_loses_nothing_that_is_sent_at_once),
        cmocka_unit_test(test_tls_wrong_key_cannot_have_plain_either),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
