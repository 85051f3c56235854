/* The local link: calls from many threads, descriptors, strangers, stale sockets (include/fp/fdlink.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp.pb-c.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fdlink.h"
#include "wire_help.h"

enum { T_FD = 200, T_FDS8, T_LINK_ECHO, T_LINK_SILENT, T_LINK_LATER, T_LINK_FAIL, T_DROP, T_TOO_BIG };

/* The server runs in a thread of its own; tests are the clients. */
struct link_server {
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t stop;
    uv_timer_t later;
    struct fp_fdlink_server *s;
    char path[512];
    int listen_rc;
    atomic_int ready;
    atomic_uint requests, closed;
    struct fp_fdlink_peer *late_peer; /* an answer that comes 400 ms later */
    uint64_t late_id;
};

static struct link_server srv;
static char dir[64];

static void answer_fds(struct fp_fdlink_peer *peer, const struct fp_fdlink_in *in, size_t n)
{
    int fds[FP_FDLINK_FDS_MAX];
    for (size_t i = 0; i < n; i++) {
        char text[32];
        fds[i] = memfd_create("test", MFD_CLOEXEC);
        snprintf(text, sizeof text, "file %zu", i);
        (void)!write(fds[i], text, strlen(text));
    }
    fp_fdlink_reply(peer, in, 0, NULL, fds, n);
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

static void later_cb(uv_timer_t *t)
{
    struct link_server *s = t->data;
    int fd = memfd_create("late", MFD_CLOEXEC);
    fp_fdlink_reply_to(s->late_peer, s->late_id, T_LINK_LATER, 0, NULL, &fd, 1);
    close(fd);
    fp_fdlink_peer_put(s->late_peer);
    s->late_peer = NULL;
}

static void echo(struct fp_fdlink_peer *peer, const struct fp_fdlink_in *in)
{
    Fp__ReadLinkReply *m = fp__read_link_reply__unpack(NULL, in->msg_len_bytes, in->msg);
    fp_fdlink_reply(peer, in, 0, &m->base, NULL, 0);
    fp__read_link_reply__free_unpacked(m, NULL);
}

static void too_big(struct fp_fdlink_peer *peer, const struct fp_fdlink_in *in)
{
    static uint8_t big[FP_FDLINK_PACKET_MAX_BYTES];
    Fp__ReadLinkReply m = FP__READ_LINK_REPLY__INIT;
    m.target.data = big;
    m.target.len = sizeof big;
    fp_fdlink_reply(peer, in, 0, &m.base, NULL, 0);
}

static void on_request(struct fp_fdlink_peer *peer, const struct fp_fdlink_in *in, void *arg)
{
    struct link_server *s = arg;
    atomic_fetch_add(&s->requests, 1);
    if (in->type == T_FD || in->type == T_FDS8)
        answer_fds(peer, in, in->type == T_FD ? 1 : FP_FDLINK_FDS_MAX);
    else if (in->type == T_LINK_ECHO)
        echo(peer, in);
    else if (in->type == T_LINK_FAIL)
        fp_fdlink_reply(peer, in, -ENOSPC, NULL, NULL, 0);
    else if (in->type == T_TOO_BIG)
        too_big(peer, in);
    else if (in->type == T_DROP)
        fp_fdlink_peer_close(peer, 0);
    else if (in->type == T_LINK_LATER) {
        s->late_peer = fp_fdlink_peer_get(peer);
        s->late_id = in->id;
        uv_timer_start(&s->later, later_cb, 400, 0);
    }
}

static void on_closed(struct fp_fdlink_peer *peer, int err, void *arg)
{
    (void)peer;
    (void)err;
    atomic_fetch_add(&((struct link_server *)arg)->closed, 1);
}

static const struct fp_fdlink_handler handler = {.on_request = on_request, .on_closed = on_closed};

static void stop_cb(uv_async_t *a)
{
    struct link_server *s = a->data;
    if (s->listen_rc == 0)
        fp_fdlink_server_close(s->s, NULL, NULL);
    uv_close((uv_handle_t *)a, NULL);
    uv_close((uv_handle_t *)&s->later, NULL);
}

static void *server_thread(void *arg)
{
    struct link_server *s = arg;
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->loop);
    return NULL;
}

static void server_start(const char *path)
{
    memset(&srv, 0, sizeof srv);
    snprintf(srv.path, sizeof srv.path, "%s", path);
    uv_loop_init(&srv.loop);
    uv_async_init(&srv.loop, &srv.stop, stop_cb);
    uv_timer_init(&srv.loop, &srv.later);
    srv.stop.data = srv.later.data = &srv;
    srv.listen_rc = fp_fdlink_listen(&srv.loop, path, &handler, &srv, &srv.s);
    assert_int_equal(srv.listen_rc, 0);
    assert_int_equal(pthread_create(&srv.thread, NULL, server_thread, &srv), 0);
}

static void server_stop(void)
{
    uv_async_send(&srv.stop);
    pthread_join(srv.thread, NULL);
}

static char *path_in_dir(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/fp-fdlink-XXXXXX");
    assert_non_null(mkdtemp(dir));
    server_start(path_in_dir("link.sock"));
    return 0;
}

static int down(void **state)
{
    (void)state;
    server_stop();
    assert_int_equal(access(srv.path, F_OK), -1); /* no socket file is left */
    assert_int_equal(rmdir(dir), 0);
    return 0;
}

static unsigned open_fds(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static struct fp_fdlink *open_link(void)
{
    struct fp_fdlink *l = NULL;
    assert_int_equal(fp_fdlink_open(srv.path, 1000, &l), 0);
    assert_true(fp_fdlink_is_up(l));
    assert_int_equal(fp_fdlink_call(l, T_LINK_FAIL, NULL, 5000, NULL), -ENOSPC); /* accepted by now */
    atomic_store(&srv.requests, 0);
    return l;
}

static int echo_call(struct fp_fdlink *l, const char *text, size_t len)
{
    uint8_t *buf = malloc(FP_FDLINK_MSG_MAX_BYTES);
    struct fp_fdlink_reply_buf r = {.buf = buf, .buf_cap_bytes = FP_FDLINK_MSG_MAX_BYTES};
    Fp__ReadLinkReply m = FP__READ_LINK_REPLY__INIT;
    m.target.data = (uint8_t *)text;
    m.target.len = len;
    int rc = fp_fdlink_call(l, T_LINK_ECHO, &m.base, 5000, &r);
    if (rc == 0) {
        Fp__ReadLinkReply *got = fp__read_link_reply__unpack(NULL, r.in.msg_len_bytes, r.in.msg);
        assert_int_equal(got->target.len, len);
        assert_memory_equal(got->target.data, text, len);
        fp__read_link_reply__free_unpacked(got, NULL);
    }
    free(buf);
    return rc;
}

/* -------------------------------------------------------------- calls and descriptors */

static void test_fdlink_reply_brings_descriptors(void **state)
{
    struct fp_fdlink *l = open_link();
    unsigned before = open_fds();
    (void)state;
    struct fp_fdlink_reply_buf r = {0};
    assert_int_equal(fp_fdlink_call(l, T_FDS8, NULL, 1000, &r), 0);
    assert_int_equal(r.nfds, 8);
    for (size_t i = 0; i < r.nfds; i++) {
        char want[32], got[32] = {0};
        snprintf(want, sizeof want, "file %zu", i);
        assert_true(pread(r.fds[i], got, sizeof got - 1, 0) > 0);
        assert_string_equal(got, want);
        assert_true(fcntl(r.fds[i], F_GETFD) & FD_CLOEXEC);
        close(r.fds[i]);
    }
    assert_int_equal(fp_fdlink_call(l, T_FD, NULL, 1000, NULL), 0); /* not wanted: closed */
    usleep(20000);
    assert_int_equal(open_fds(), before);
    fp_fdlink_close(l);
}

static void test_fdlink_messages_up_to_the_limit(void **state)
{
    static char big[FP_FDLINK_PACKET_MAX_BYTES];
    struct fp_fdlink *l = open_link();
    (void)state;
    memset(big, 'b', sizeof big);
    assert_int_equal(echo_call(l, "small", 5), 0);
    assert_int_equal(echo_call(l, big, FP_FDLINK_MSG_MAX_BYTES - 4), 0); /* tag and length take 4 */
    assert_int_equal(echo_call(l, big, FP_FDLINK_MSG_MAX_BYTES - 3), -EMSGSIZE);
    assert_int_equal(fp_fdlink_call(l, T_TOO_BIG, NULL, 1000, NULL), -EMSGSIZE);
    uint8_t tiny[2];
    struct fp_fdlink_reply_buf r = {.buf = tiny, .buf_cap_bytes = sizeof tiny};
    Fp__ReadLinkReply m = FP__READ_LINK_REPLY__INIT;
    m.target.data = (uint8_t *)big;
    m.target.len = 10;
    assert_int_equal(fp_fdlink_call(l, T_LINK_ECHO, &m.base, 1000, &r), -EMSGSIZE);
    assert_int_equal(fp_fdlink_call(l, T_LINK_FAIL, NULL, 1000, &r), -ENOSPC);
    assert_int_equal(echo_call(l, "still up", 8), 0);
    fp_fdlink_close(l);
}

static void *caller(void *arg)
{
    struct fp_fdlink *l = arg;
    char text[32];
    for (int i = 0; i < 500; i++) {
        int n = snprintf(text, sizeof text, "%lx %d", (unsigned long)pthread_self(), i);
        if (echo_call(l, text, (size_t)n) != 0)
            return (void *)1;
        struct fp_fdlink_reply_buf r = {0};
        if (i % 50 == 0) {
            if (fp_fdlink_call(l, T_FD, NULL, 5000, &r) != 0 || r.nfds != 1)
                return (void *)2;
            close(r.fds[0]);
        }
    }
    return NULL;
}

static void test_fdlink_eight_threads_share_a_link(void **state)
{
    pthread_t t[8];
    void *rc;
    struct fp_fdlink *l = open_link();
    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&t[i], NULL, caller, l), 0);
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], &rc);
        assert_null(rc);
    }
    assert_int_equal(atomic_load(&srv.requests), 8 * 510);
    fp_fdlink_close(l);
}

static void *slow_caller(void *arg)
{
    return (void *)(intptr_t)fp_fdlink_call(arg, T_LINK_LATER, NULL, 5000, NULL);
}

static void test_fdlink_replies_may_overtake(void **state)
{
    pthread_t t;
    void *rc;
    struct fp_fdlink *l = open_link();
    (void)state;
    assert_int_equal(pthread_create(&t, NULL, slow_caller, l), 0);
    while (atomic_load(&srv.requests) == 0)
        usleep(1000);
    uint64_t start = fp_now_ms();
    for (int i = 0; i < 20; i++)
        assert_int_equal(echo_call(l, "quick", 5), 0);
    assert_in_range(fp_now_ms() - start, 0, 390);
    pthread_join(t, &rc);
    assert_null(rc);
    fp_fdlink_close(l);
}

static void test_fdlink_deadline_and_late_descriptors(void **state)
{
    struct fp_fdlink *l = open_link();
    struct fp_fdlink_reply_buf r = {0};
    unsigned before = open_fds();
    (void)state;
    assert_int_equal(fp_fdlink_call(l, T_FD, NULL, 0, &r), -EINVAL);
    uint64_t start = fp_now_ms();
    assert_int_equal(fp_fdlink_call(l, T_LINK_LATER, NULL, 50, &r), FP_EDEADLINE);
    assert_in_range(fp_now_ms() - start, 49, 390);
    assert_int_equal(r.nfds, 0);
    usleep(450000);
    assert_int_equal(echo_call(l, "x", 1), 0); /* reads the late one on its way */
    usleep(20000);
    assert_int_equal(open_fds(), before);
    assert_true(fp_fdlink_is_up(l));
    fp_fdlink_close(l);
}

/* -------------------------------------------------------------- ends */

static void *silent_caller(void *arg)
{
    return (void *)(intptr_t)fp_fdlink_call(arg, T_LINK_SILENT, NULL, 10000, NULL);
}

static void test_fdlink_shutdown_wakes_callers(void **state)
{
    pthread_t t[4];
    void *rc;
    struct fp_fdlink *l = open_link();
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, silent_caller, l), 0);
    while (atomic_load(&srv.requests) < 4)
        usleep(1000);
    fp_fdlink_shutdown(l);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], &rc);
        assert_int_equal((intptr_t)rc, -ENOTCONN);
    }
    assert_false(fp_fdlink_is_up(l));
    assert_int_equal(echo_call(l, "x", 1), -ENOTCONN);
    fp_fdlink_close(l);
}

static void test_fdlink_server_that_goes_is_noticed(void **state)
{
    pthread_t t[3];
    void *rc;
    struct fp_fdlink *l = open_link();
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, silent_caller, l), 0);
    while (atomic_load(&srv.requests) < 3)
        usleep(1000);
    assert_int_equal(fp_fdlink_call(l, T_DROP, NULL, 1000, NULL), FP_EPEER_GONE);
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], &rc);
        assert_int_equal((intptr_t)rc, FP_EPEER_GONE);
    }
    assert_false(fp_fdlink_is_up(l));
    fp_fdlink_close(l);
}

/* -------------------------------------------------------------- strangers */

static int raw_connect(void)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(sa.sun_path, sizeof sa.sun_path, "%.100s", srv.path);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    return fd;
}

static void check_dropped(int fd)
{
    char c;
    struct timeval tv = {2, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    ssize_t n = recv(fd, &c, 1, 0);
    assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
    close(fd);
}

static void test_fdlink_garbage_is_dropped(void **state)
{
    static uint8_t big[FP_FDLINK_PACKET_MAX_BYTES + 1];
    uint8_t h[FP_FRAME_HEADER_BYTES + 4];
    struct fp_frame f = {.type = T_LINK_ECHO, .id = 1, .msg_len_bytes = 4};
    (void)state;
    int fd = raw_connect();
    send(fd, "hello", 5, 0);
    check_dropped(fd);
    fd = raw_connect();
    fp_frame_encode(&f, "abcd", h);
    send(fd, h, FP_FRAME_HEADER_BYTES + 3, 0); /* shorter than it says */
    check_dropped(fd);
    fd = raw_connect();
    memcpy(h + FP_FRAME_HEADER_BYTES, "abcx", 4); /* checksum */
    send(fd, h, sizeof h, 0);
    check_dropped(fd);
    fd = raw_connect();
    h[4] = 3;
    send(fd, h, sizeof h, 0);
    check_dropped(fd);
    fd = raw_connect();
    int sndbuf = 1 << 20;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
    assert_int_equal(send(fd, big, sizeof big, 0), sizeof big);
    check_dropped(fd);
    assert_int_equal(atomic_load(&srv.requests), 0);
}

static void test_fdlink_descriptors_of_clients_are_not_kept(void **state)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    uint8_t h[FP_FRAME_HEADER_BYTES];
    struct fp_frame f = {.type = T_FD, .id = 1};
    struct iovec iov = {h, sizeof h};
    struct msghdr mh = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    (void)state;
    fp_frame_encode(&f, NULL, h);
    struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);
    cm->cmsg_level = SOL_SOCKET;
    cm->cmsg_type = SCM_RIGHTS;
    cm->cmsg_len = CMSG_LEN(sizeof(int));
    unsigned before = open_fds();
    int fd = raw_connect();
    memcpy(CMSG_DATA(cm), &fd, sizeof fd);
    assert_int_equal(sendmsg(fd, &mh, 0), sizeof h);
    check_dropped(fd);
    for (int i = 0; i < 100 && open_fds() != before; i++)
        usleep(10000);
    assert_int_equal(open_fds(), before);
}

static void test_fdlink_client_that_does_not_read_is_dropped(void **state)
{
    uint8_t h[FP_FRAME_HEADER_BYTES];
    unsigned before = open_fds();
    int fd = raw_connect();
    (void)state;
    for (uint64_t i = 1; i <= 5000; i++) {
        struct fp_frame f = {.type = T_FD, .id = i};
        fp_frame_encode(&f, NULL, h);
        if (send(fd, h, sizeof h, MSG_NOSIGNAL) < 0)
            break;
    }
    for (int i = 0; i < 300 && atomic_load(&srv.closed) == 0; i++)
        usleep(10000);
    assert_int_equal(atomic_load(&srv.closed), 1);
    close(fd);
    for (int i = 0; i < 100 && open_fds() != before; i++)
        usleep(10000);
    assert_int_equal(open_fds(), before);
}

/* What a child of another user sees. Its exit code is 0 if it got no answer. */
static void test_fdlink_other_users_are_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    struct stat st;
    assert_int_equal(stat(srv.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(chmod(srv.path, 0666), 0);
    assert_int_equal(chmod(dir, 0755), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct fp_fdlink *l;
        if (setuid(65534) < 0 || fp_fdlink_open(srv.path, 1000, &l) < 0)
            _exit(3);
        _exit(fp_fdlink_call(l, T_FD, NULL, 1000, NULL) == FP_EPEER_GONE ? 0 : 4);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&srv.requests), 0);
}

static void test_fdlink_server_of_another_user_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    char path[128];
    int ready[2];
    char c;
    snprintf(path, sizeof path, "%s/other", dir);
    assert_int_equal(chmod(dir, 0777), 0);
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        snprintf(sa.sun_path, sizeof sa.sun_path, "%.100s", path);
        if (setuid(65534) < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 || listen(fd, 5) < 0)
            _exit(1);
        (void)!write(ready[1], "x", 1);
        pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    struct fp_fdlink *l;
    wire_log_begin();
    assert_int_equal(fp_fdlink_open(path, 1000, &l), -EPERM);
    assert_int_equal(wire_log_end("belongs to user 65534"), 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(path);
}

/* -------------------------------------------------------------- paths */

static int try_listen(const char *path)
{
    struct fp_fdlink_server *s;
    uv_loop_t loop;
    uv_loop_init(&loop);
    int rc = fp_fdlink_listen(&loop, path, &handler, &srv, &s);
    if (rc == 0)
        fp_fdlink_server_close(s, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    return rc;
}

static void test_fdlink_stale_socket_is_replaced_and_a_living_one_not(void **state)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char *path = path_in_dir("stale");
    (void)state;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    snprintf(sa.sun_path, sizeof sa.sun_path, "%.100s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(try_listen(path), -EADDRINUSE);
    close(fd); /* as after kill -9 */
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(try_listen(path), 0);
    assert_int_equal(access(path, F_OK), -1);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    assert_int_equal(try_listen(path), -EEXIST);
    unlink(path);
    assert_int_equal(try_listen(srv.path), -EADDRINUSE);
    assert_int_equal(try_listen(path_in_dir("no/such/dir")), -ENOENT);
    assert_int_equal(try_listen(path_in_dir("")), -EINVAL);
}

static void test_fdlink_long_paths_work(void **state)
{
    char deep[400], name[512];
    struct fp_fdlink *l;
    (void)state;
    server_stop();
    snprintf(deep, sizeof deep, "%s/%0200d", dir, 7);
    assert_int_equal(mkdir(deep, 0700), 0);
    snprintf(name, sizeof name, "%s/sock", deep);
    server_start(name);
    assert_int_equal(fp_fdlink_open(name, 1000, &l), 0);
    assert_int_equal(echo_call(l, "deep", 4), 0);
    fp_fdlink_close(l);
    server_stop();
    assert_int_equal(rmdir(deep), 0);
    snprintf(name, sizeof name, "%s/%095d", dir, 1);
    assert_int_equal(try_listen(name), -ENAMETOOLONG);
    server_start(path_in_dir("link.sock"));
}

static void test_fdlink_nobody_there(void **state)
{
    struct fp_fdlink *l;
    (void)state;
    assert_int_equal(fp_fdlink_open(path_in_dir("nobody"), 1000, &l), -ENOENT);
    assert_int_equal(fp_fdlink_open("/no/such/dir/x", 1000, &l), -ENOENT);
}

#define T(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_fdlink_reply_brings_descriptors),
        T(test_fdlink_messages_up_to_the_limit),
        T(test_fdlink_eight_threads_share_a_link),
        T(test_fdlink_replies_may_overtake),
        T(test_fdlink_deadline_and_late_descriptors),
        T(test_fdlink_shutdown_wakes_callers),
        T(test_fdlink_server_that_goes_is_noticed),
        T(test_fdlink_garbage_is_dropped),
        T(test_fdlink_descriptors_of_clients_are_not_kept),
        T(test_fdlink_client_that_does_not_read_is_dropped),
        T(test_fdlink_other_users_are_refused),
        T(test_fdlink_server_of_another_user_is_refused),
        T(test_fdlink_stale_socket_is_replaced_and_a_living_one_not),
        T(test_fdlink_long_paths_work),
        T(test_fdlink_nobody_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
