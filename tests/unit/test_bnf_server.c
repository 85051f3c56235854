/*
 * The benefactor as its clients see it: service, local link and data port in a thread, without a manager.
 * Clients are the real wire layer: fdlink for mounts of the node, rpc for others.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "benefactor/local.h"
#include "benefactor/remote.h"
#include "benefactor/service.h"
#include "fp.pb-c.h"
#include "fp/checksum.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/fdlink.h"
#include "fp/key.h"
#include "fp/log.h"
#include "fp/rpc.h"
#include "tests/unit/bnf_util.h"

#define MIB  ((uint64_t)1 << 20)
#define SIZE (512 * MIB)

struct fixture {
    struct bnf_scratch t;
    struct fp_key *key;
    char sock[300];
    /* the server's thread */
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t async;
    struct bnf_backend *backend;
    struct bnf_service *service;
    struct bnf_local *local;
    struct bnf_remote *remote;
    struct fp_rpc *rpc;
    char addr[64];
    void (*todo)(struct fixture *x); /* set, then async; done when ran */
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool ran;
    /* client ends, of the test's thread */
    struct fp_fdlink *link;
    uv_loop_t cloop;
    struct fp_rpc *crpc;
    struct fp_rpc_conn *conn;
    bool up, closed;
    struct bnf_space space;
    uint64_t ids[64];
    size_t nids;
    bool deleted;
};

static uint32_t bnf_id(void *arg)
{
    (void)arg;
    return 7;
}

static void nothing(void *arg)
{
    (void)arg;
}

static void pressed(void *arg, bool on)
{
    bnf_remote_press(((struct fixture *)arg)->remote, on);
}

static void on_async(uv_async_t *a)
{
    struct fixture *x = a->data;

    pthread_mutex_lock(&x->lock);
    if (x->todo) {
        x->todo(x);
        x->todo = NULL;
        x->ran = true;
        pthread_cond_signal(&x->cond);
    }
    pthread_mutex_unlock(&x->lock);
}

/* Runs fn on the server's thread and waits for it. */
static void on_server(struct fixture *x, void (*fn)(struct fixture *x))
{
    pthread_mutex_lock(&x->lock);
    x->todo = fn;
    x->ran = false;
    uv_async_send(&x->async);
    while (!x->ran)
        pthread_cond_wait(&x->cond, &x->lock);
    pthread_mutex_unlock(&x->lock);
}

static void *server_thread(void *arg)
{
    struct fixture *x = arg;

    uv_run(&x->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void rpc_gone(void *arg)
{
    struct fixture *x = arg;

    bnf_remote_free(x->remote);
    bnf_service_free(x->service);
    uv_close((uv_handle_t *)&x->async, NULL);
}

static void local_gone(void *arg)
{
    struct fixture *x = arg;

    fp_rpc_close(x->rpc, rpc_gone, x);
}

static void drained(void *arg, int status)
{
    struct fixture *x = arg;

    assert_int_equal(status, 0);
    bnf_remote_stop(x->remote);
    bnf_local_free(x->local, local_gone, x);
}

static void stop_server(struct fixture *x)
{
    bnf_service_drain(x->service, 3000, drained, x);
}

static void start_server(struct fixture *x, size_t buffer_bytes)
{
    struct bnf_service_config c = {.loop = &x->loop,
                                   .backend = x->backend,
                                   .threads = 2,
                                   .buffer_bytes = buffer_bytes,
                                   .capacity_bytes = SIZE,
                                   .segment_bytes = 64 * MIB,
                                   .random = 12345,
                                   .changed = nothing,
                                   .pressed = pressed,
                                   .arg = x};
    struct fp_rpc_opts opts = {
        .key = x->key, .store_uuid = x->t.store_uuid, .plain = true, .requests_max = 64};

    memcpy(c.store_uuid, x->t.store_uuid, 16);
    memcpy(c.bnf_uuid, x->t.bnf_uuid, 16);
    uv_loop_init(&x->loop);
    uv_async_init(&x->loop, &x->async, on_async);
    x->async.data = x;
    assert_int_equal(bnf_service_new(&c, &x->service), 0);
    assert_int_equal(bnf_service_start(x->service), 0);
    snprintf(x->sock, sizeof(x->sock), "%s/local.sock", x->t.path);
    assert_int_equal(bnf_local_new(&x->loop, x->sock, x->service, bnf_id, NULL, &x->local), 0);
    assert_int_equal(fp_rpc_new(&x->loop, &opts, &x->rpc), 0);
    assert_int_equal(bnf_remote_new(x->rpc, "127.0.0.1:0", bnf_id, NULL, &x->remote), 0);
    bnf_remote_serve(x->remote, x->service);
    snprintf(x->addr, sizeof(x->addr), "127.0.0.1:%u", bnf_remote_port(x->remote));
    assert_int_equal(pthread_create(&x->thread, NULL, server_thread, x), 0);
}

/* ---------------------------------------------------------------- local client */

static int local_call(struct fixture *x, uint16_t type, const ProtobufCMessage *msg,
                      struct fp_fdlink_reply_buf *r)
{
    return fp_fdlink_call(x->link, type, msg, 5000, r);
}

static void local_open(struct fixture *x)
{
    Fp__BnfHello m = FP__BNF_HELLO__INIT;
    uint8_t buf[1000];
    struct fp_fdlink_reply_buf r = {.buf = buf, .buf_cap_bytes = sizeof(buf)};
    Fp__BnfHelloReply *reply;

    assert_int_equal(fp_fdlink_open(x->sock, 1000, &x->link), 0);
    m.store_uuid.data = x->t.store_uuid;
    m.store_uuid.len = 16;
    m.session = 3;
    assert_int_equal(local_call(x, FP__MSG_TYPE__MSG_BNF_HELLO, &m.base, &r), 0);
    reply = fp__bnf_hello_reply__unpack(NULL, r.in.msg_len_bytes, r.in.msg);
    assert_non_null(reply);
    assert_int_equal(reply->bnf_id, 7);
    assert_int_equal(reply->align_bytes, 4096);
    fp__bnf_hello_reply__free_unpacked(reply, NULL);
}

struct local_lease {
    uint64_t id, at;
    Fp__Extent x;
    struct bnf_file *file;
};

static int local_lease(struct fixture *x, uint64_t want, uint64_t min, struct local_lease *l)
{
    Fp__Lease m = FP__LEASE__INIT;
    uint8_t buf[1000];
    struct fp_fdlink_reply_buf r = {.buf = buf, .buf_cap_bytes = sizeof(buf)};
    Fp__LeaseReply *reply;
    int rc;

    m.want_bytes = want;
    m.min_bytes = min;
    rc = local_call(x, FP__MSG_TYPE__MSG_LEASE, &m.base, &r);
    if (rc)
        return rc;
    reply = fp__lease_reply__unpack(NULL, r.in.msg_len_bytes, r.in.msg);
    assert_non_null(reply);
    assert_int_equal(r.nfds, 1);
    assert_int_equal(reply->n_extents, 1);
    l->id = reply->lease;
    l->x = *reply->extents[0];
    l->at = l->x.off;
    assert_int_equal(reply->bytes, l->x.len);
    l->file = bnf_file_new(r.fds[0], l->x.o_direct, l->x.segment, l->x.salt, 64 * MIB);
    fp__lease_reply__free_unpacked(reply, NULL);
    return 0;
}

static int local_store(struct fixture *x, struct local_lease *l, uint64_t chunk, uint32_t len)
{
    Fp__Stored m = FP__STORED__INIT;
    Fp__Record rec = FP__RECORD__INIT, *recs = &rec;
    uint8_t *bytes = bnf_make_record(chunk, l->x.segment, l->x.salt, l->at, len, &rec.stored_bytes, &rec.sum);
    struct iovec iov = {.iov_base = bytes, .iov_len = rec.stored_bytes};

    assert_int_equal(bnf_file_write(l->file, &iov, 1, l->at), 0);
    free(bytes);
    rec.chunk = chunk;
    rec.segment = l->x.segment;
    rec.off = l->at;
    rec.len = len;
    m.lease = l->id;
    m.records = &recs;
    m.n_records = 1;
    l->at += rec.stored_bytes;
    return local_call(x, FP__MSG_TYPE__MSG_STORED, &m.base, NULL);
}

static bool local_read_is(struct fixture *x, uint64_t chunk, uint32_t len)
{
    Fp__ChunkList m = FP__CHUNK_LIST__INIT;
    uint8_t buf[1000], *got, *want;
    struct fp_fdlink_reply_buf r = {.buf = buf, .buf_cap_bytes = sizeof(buf)};
    Fp__LocateReply *reply;
    struct bnf_file *f;
    uint32_t stored;
    uint64_t sum;
    bool same;

    m.ids = &chunk;
    m.n_ids = 1;
    assert_int_equal(local_call(x, FP__MSG_TYPE__MSG_LOCATE, &m.base, &r), 0);
    reply = fp__locate_reply__unpack(NULL, r.in.msg_len_bytes, r.in.msg);
    assert_non_null(reply);
    assert_int_equal(reply->n_records, 1);
    if (reply->records[0]->stored_bytes == 0) {
        assert_int_equal(r.nfds, 0);
        fp__locate_reply__free_unpacked(reply, NULL);
        return false;
    }
    assert_int_equal(r.nfds, 1);
    f = bnf_file_new(r.fds[0], reply->o_direct[0], reply->records[0]->segment, reply->salts[0], 0);
    want = bnf_make_record(chunk, f->segment, f->salt, reply->records[0]->off, len, &stored, &sum);
    got = aligned_alloc(4096, stored);
    same = bnf_file_read(f, got, stored, reply->records[0]->off) == 0 && memcmp(got, want, stored) == 0 &&
           reply->records[0]->sum == sum;
    bnf_file_put(f);
    free(want);
    free(got);
    fp__locate_reply__free_unpacked(reply, NULL);
    return same;
}

/* ---------------------------------------------------------------- remote client */

static void c_up(struct fp_rpc_conn *conn, void *arg)
{
    (void)conn;
    ((struct fixture *)arg)->up = true;
}

static void c_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    (void)conn;
    (void)err;
    (void)why;
    ((struct fixture *)arg)->closed = true;
}

static const struct fp_rpc_handler c_handler = {.on_up = c_up, .on_closed = c_closed};

struct answer {
    bool done;
    int status;
    uint8_t msg[8192];
    size_t msg_len;
    uint8_t *payload;
    size_t payload_len;
};

static void on_answer(void *arg, int status, const struct fp_rpc_in *in)
{
    struct answer *a = arg;

    a->done = true;
    a->status = status;
    if (!in)
        return;
    assert_true(in->msg_len_bytes <= sizeof(a->msg));
    memcpy(a->msg, in->msg, in->msg_len_bytes);
    a->msg_len = in->msg_len_bytes;
    a->payload = in->payload;
    a->payload_len = in->payload_len_bytes;
}

static void remote_start(struct fixture *x, struct answer *a, uint16_t type, const ProtobufCMessage *msg,
                         void *data, size_t len)
{
    struct iovec iov = {.iov_base = data, .iov_len = len};
    struct fp_rpc_req req = {.type = type,
                             .msg = msg,
                             .payload = len ? &iov : NULL,
                             .payload_iovcnt = len ? 1 : 0,
                             .timeout_ms = 5000,
                             .cb = on_answer,
                             .arg = a};

    *a = (struct answer){0};
    assert_int_equal(fp_rpc_call(x->conn, &req, NULL), 0);
}

static int remote_wait(struct fixture *x, struct answer *a)
{
    while (!a->done)
        uv_run(&x->cloop, UV_RUN_ONCE);
    return a->status;
}

static void remote_open(struct fixture *x)
{
    struct fp_rpc_opts opts = {.key = x->key, .store_uuid = x->t.store_uuid, .plain = true};
    struct fp_rpc_connect_opts copts = {.plain = true};
    Fp__BnfHello m = FP__BNF_HELLO__INIT;
    static struct answer a;

    uv_loop_init(&x->cloop);
    assert_int_equal(fp_rpc_new(&x->cloop, &opts, &x->crpc), 0);
    assert_int_equal(fp_rpc_connect(x->crpc, x->addr, &copts, &c_handler, x, &x->conn), 0);
    while (!x->up && !x->closed)
        uv_run(&x->cloop, UV_RUN_ONCE);
    assert_true(x->up);
    m.session = 4;
    remote_start(x, &a, FP__MSG_TYPE__MSG_BNF_HELLO, &m.base, NULL, 0);
    assert_int_equal(remote_wait(x, &a), 0);
}

static void remote_shut(struct fixture *x)
{
    if (!x->crpc)
        return;
    fp_rpc_close(x->crpc, NULL, NULL);
    uv_run(&x->cloop, UV_RUN_DEFAULT);
    uv_loop_close(&x->cloop);
    x->crpc = NULL;
}

static uint64_t remote_lease(struct fixture *x, uint64_t want, uint64_t *bytes)
{
    Fp__Lease m = FP__LEASE__INIT;
    static struct answer a;
    Fp__LeaseReply *r;
    uint64_t id;

    m.want_bytes = want;
    m.min_bytes = MIB;
    remote_start(x, &a, FP__MSG_TYPE__MSG_LEASE, &m.base, NULL, 0);
    assert_int_equal(remote_wait(x, &a), 0);
    r = fp__lease_reply__unpack(NULL, a.msg_len, a.msg);
    assert_int_equal(r->n_extents, 0);
    id = r->lease;
    *bytes = r->bytes;
    fp__lease_reply__free_unpacked(r, NULL);
    return id;
}

static void remote_write_start(struct fixture *x, struct answer *a, uint64_t lease, uint64_t chunk,
                               uint8_t *data, uint32_t len)
{
    Fp__ChunkWrite m = FP__CHUNK_WRITE__INIT;
    uint64_t sums[256];

    bnf_fill(chunk, data, len);
    fp_sum_blocks(data, len, sums);
    m.lease = lease;
    m.chunk = chunk;
    m.len = len;
    m.block_sums = sums;
    m.n_block_sums = fp_sum_nblocks(len);
    if (chunk == 666) /* damaged on the way */
        data[len / 2] ^= 1;
    remote_start(x, a, FP__MSG_TYPE__MSG_WRITE, &m.base, data, len);
}

static int remote_write(struct fixture *x, uint64_t lease, uint64_t chunk, uint32_t len)
{
    static struct answer a;
    uint8_t *data = malloc(len);
    int rc;

    remote_write_start(x, &a, lease, chunk, data, len);
    rc = remote_wait(x, &a);
    free(data);
    return rc;
}

static int remote_read(struct fixture *x, uint64_t chunk, uint32_t off, uint32_t len, uint32_t chunk_len)
{
    Fp__ChunkRead m = FP__CHUNK_READ__INIT;
    static struct answer a;
    Fp__ChunkReadReply *r;
    uint8_t *want = malloc(chunk_len);

    m.chunk = chunk;
    m.off = off;
    m.len = len;
    remote_start(x, &a, FP__MSG_TYPE__MSG_READ, &m.base, NULL, 0);
    if (remote_wait(x, &a) == 0) {
        r = fp__chunk_read_reply__unpack(NULL, a.msg_len, a.msg);
        bnf_fill(chunk, want, chunk_len);
        assert_int_equal(r->chunk_len, chunk_len);
        assert_int_equal(r->len, a.payload_len);
        assert_int_equal(r->off % 65536, 0);
        assert_true(r->off <= off && r->off + r->len >= (off + len < chunk_len ? off + len : chunk_len));
        assert_memory_equal(a.payload, want + r->off, r->len);
        assert_int_equal(r->n_block_sums, fp_sum_nblocks(chunk_len));
        fp__chunk_read_reply__free_unpacked(r, NULL);
        fp_rpc_payload_free(a.payload);
    }
    free(want);
    return a.status;
}

/* ---------------------------------------------------------------- fixture */

static void get_space(struct fixture *x)
{
    bnf_store_check(bnf_service_store(x->service));
    bnf_store_space(bnf_service_store(x->service), &x->space);
}

static struct bnf_space space_of(struct fixture *x)
{
    on_server(x, get_space);
    return x->space;
}

static void on_deleted(void *arg, int status)
{
    assert_int_equal(status, 0);
    ((struct fixture *)arg)->deleted = true;
}

static void delete_ids(struct fixture *x)
{
    assert_int_equal(bnf_service_delete(x->service, x->ids, x->nids, on_deleted, x), 0);
}

static void wait_leased(struct fixture *x, uint64_t leased)
{
    for (int i = 0; i < 200 && space_of(x).leased_bytes != leased; i++)
        usleep(10000);
    assert_int_equal(space_of(x).leased_bytes, leased);
}

static void wait_used(struct fixture *x, uint64_t used)
{
    for (int i = 0; i < 200 && space_of(x).used_bytes != used; i++)
        usleep(10000);
    assert_int_equal(space_of(x).used_bytes, used);
}

static struct fixture *setup_with(bool memory, size_t buffer_bytes)
{
    struct fixture *x = calloc(1, sizeof(*x));

    bnf_scratch_init(&x->t);
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->cond, NULL);
    assert_int_equal(fp_key_generate(&x->key), 0);
    if (memory)
        assert_int_equal(bnf_backend_memory_new(16 * MIB, &x->backend), 0);
    else
        assert_int_equal(bnf_backend_dir_new(x->t.dir_fd, &x->backend), 0);
    start_server(x, buffer_bytes);
    return x;
}

static int setup(void **state)
{
    *state = setup_with(false, 32 * MIB);
    return 0;
}

static int setup_memory(void **state)
{
    *state = setup_with(true, 32 * MIB);
    return 0;
}

static int setup_few_buffers(void **state)
{
    *state = setup_with(false, 3 * MIB);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;

    if (x->link)
        fp_fdlink_close(x->link);
    remote_shut(x);
    on_server(x, stop_server);
    pthread_join(x->thread, NULL);
    uv_loop_close(&x->loop);
    fp_fault_set(NULL);
    bnf_backend_free(x->backend);
    fp_key_free(x->key);
    bnf_scratch_fini(&x->t);
    free(x);
    return 0;
}

/* ---------------------------------------------------------------- tests */

static void test_server_local_record_is_located_and_read(void **state)
{
    struct fixture *x = *state;
    struct local_lease l;

    local_open(x);
    assert_int_equal(local_lease(x, 16 * MIB, MIB, &l), 0);
    assert_int_equal(local_store(x, &l, 1, MIB), 0);
    assert_int_equal(local_store(x, &l, 2, 12345), 0);
    assert_true(local_read_is(x, 1, MIB));
    assert_true(local_read_is(x, 2, 12345));
    assert_false(local_read_is(x, 3, 1));
    assert_int_equal(local_call(x, FP__MSG_TYPE__MSG_BNF_SYNC, NULL, NULL), 0);
    l.at = l.x.off; /* over the first record */
    fp_log_set_level(FP_LOG_ERROR);
    assert_int_equal(local_store(x, &l, 9, 100), -EINVAL);
    fp_log_set_level(FP_LOG_INFO);
    l.id += 65536;
    assert_int_equal(local_store(x, &l, 9, 100), FP_ELEASE);
    bnf_file_put(l.file);
}

static void test_server_lost_link_ends_its_leases(void **state)
{
    struct fixture *x = *state;
    struct local_lease l;

    local_open(x);
    assert_int_equal(local_lease(x, 16 * MIB, MIB, &l), 0);
    assert_int_equal(local_store(x, &l, 1, MIB), 0);
    assert_int_equal(space_of(x).leased_bytes, 15 * MIB - 4096);
    fp_fdlink_close(x->link);
    x->link = NULL;
    wait_leased(x, 0);
    wait_used(x, MIB + 4096);
    bnf_file_put(l.file);
    local_open(x);
    assert_true(local_read_is(x, 1, MIB));
}

static void test_server_requests_before_hello_are_refused(void **state)
{
    struct fixture *x = *state;
    Fp__Lease m = FP__LEASE__INIT;

    m.want_bytes = MIB;
    assert_int_equal(fp_fdlink_open(x->sock, 1000, &x->link), 0);
    assert_int_equal(local_call(x, FP__MSG_TYPE__MSG_LEASE, &m.base, NULL), -EPROTO);
    assert_int_equal(local_call(x, FP__MSG_TYPE__MSG_COMMIT, NULL, NULL), -EPROTO);
}

static void test_server_other_store_is_refused(void **state)
{
    struct fixture *x = *state;
    Fp__BnfHello m = FP__BNF_HELLO__INIT;
    uint8_t other[16] = {1};

    m.store_uuid.data = other;
    m.store_uuid.len = 16;
    assert_int_equal(fp_fdlink_open(x->sock, 1000, &x->link), 0);
    assert_int_equal(local_call(x, FP__MSG_TYPE__MSG_BNF_HELLO, &m.base, NULL), FP_EUUID);
}

static void test_server_remote_chunk_comes_back(void **state)
{
    struct fixture *x = *state;
    uint64_t bytes, lease;
    static struct answer a;

    remote_open(x);
    lease = remote_lease(x, 40 * MIB, &bytes);
    assert_int_equal(bytes, 40 * MIB);
    assert_int_equal(remote_write(x, lease, 1, MIB), 0);
    assert_int_equal(remote_write(x, lease, 2, 1), 0);
    assert_int_equal(remote_write(x, lease, 3, 16 << 20), 0);
    assert_int_equal(remote_write(x, lease, 1, MIB), 0); /* sent again */
    assert_int_equal(remote_read(x, 1, 0, MIB, MIB), 0);
    assert_int_equal(remote_read(x, 1, 700000, 10, MIB), 0);
    assert_int_equal(remote_read(x, 2, 0, 65536, 1), 0);
    assert_int_equal(remote_read(x, 3, 15 << 20, 1 << 20, 16 << 20), 0);
    assert_int_equal(remote_read(x, 4, 0, 1, 1), FP_ECHUNK_MISSING);
    assert_int_equal(remote_read(x, 2, 1, 1, 1), -EINVAL);
    remote_start(x, &a, FP__MSG_TYPE__MSG_BNF_SYNC, NULL, NULL, 0);
    assert_int_equal(remote_wait(x, &a), 0);
    assert_int_equal(space_of(x).used_bytes, MIB + 4096 + 8192 + 16 * MIB + 4096);
    remote_shut(x);
    wait_leased(x, 0);
}

static void test_server_damaged_payload_is_refused(void **state)
{
    struct fixture *x = *state;
    uint64_t bytes, lease;

    remote_open(x);
    lease = remote_lease(x, 4 * MIB, &bytes);
    fp_log_set_level(FP_LOG_ERROR);
    assert_int_equal(remote_write(x, lease, 666, MIB), FP_ECHECKSUM);
    fp_log_set_level(FP_LOG_INFO);
    assert_int_equal(remote_read(x, 666, 0, MIB, MIB), FP_ECHUNK_MISSING);
    wait_used(x, 0);
}

static void test_server_write_without_lease_is_refused(void **state)
{
    struct fixture *x = *state;
    uint64_t bytes, lease;

    remote_open(x);
    assert_int_equal(remote_write(x, 1, 1, MIB), FP_ELEASE);
    lease = remote_lease(x, MIB, &bytes);
    assert_int_equal(remote_write(x, lease, 1, MIB), -ENOSPC); /* the header does not fit */
    assert_int_equal(remote_write(x, lease, 1, MIB - 4096), 0);
}

static void test_server_many_writes_with_few_buffers(void **state)
{
    struct fixture *x = *state;
    static struct answer answers[40];
    uint8_t *data[40];
    uint64_t bytes, lease;

    remote_open(x);
    lease = remote_lease(x, 60 * MIB, &bytes);
    for (int i = 0; i < 40; i++) {
        data[i] = malloc(MIB);
        remote_write_start(x, &answers[i], lease, (uint64_t)i + 1, data[i], MIB);
    }
    for (int i = 0; i < 40; i++) {
        assert_int_equal(remote_wait(x, &answers[i]), 0);
        free(data[i]);
    }
    for (uint64_t i = 1; i <= 40; i++)
        assert_int_equal(remote_read(x, i, 0, MIB, MIB), 0);
}

static void test_server_flipped_bit_is_never_served(void **state)
{
    struct fixture *x = *state;
    struct local_lease l;
    uint8_t *page = aligned_alloc(4096, 4096);
    struct iovec iov = {.iov_base = page, .iov_len = 4096};

    local_open(x);
    remote_open(x);
    assert_int_equal(local_lease(x, 16 * MIB, MIB, &l), 0);
    assert_int_equal(local_store(x, &l, 1, MIB), 0);
    assert_int_equal(bnf_file_read(l.file, page, 4096, l.x.off + 4096 + 300 * 1024), 0);
    page[77] ^= 16;
    assert_int_equal(bnf_file_write(l.file, &iov, 1, l.x.off + 4096 + 300 * 1024), 0);
    fp_log_set_level((enum fp_log_level) - 1);
    assert_int_equal(remote_read(x, 1, 0, MIB, MIB), FP_ECHECKSUM);
    assert_int_equal(remote_read(x, 1, 290 * 1024, 4096, MIB), FP_ECHECKSUM);
    fp_log_set_level(FP_LOG_INFO);
    assert_int_equal(remote_read(x, 1, 0, 65536, MIB), 0); /* another block */
    free(page);
    bnf_file_put(l.file);
}

static void test_server_deleted_space_is_free_at_once(void **state)
{
    struct fixture *x = *state;
    struct local_lease l;
    uint64_t before;

    local_open(x);
    assert_int_equal(local_lease(x, 30 * MIB, MIB, &l), 0);
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(local_store(x, &l, i + 1, MIB), 0);
        x->ids[x->nids++] = i + 1;
    }
    before = bnf_file_space(l.file);
    on_server(x, delete_ids);
    wait_used(x, 0);
    if (x->backend->ops->volatile_data) /* the rest of the lease, and what is ready ahead */
        assert_true(bnf_file_space(l.file) <= (10 + 16 + 1) * MIB);
    else
        assert_true(bnf_file_space(l.file) <= before - 20 * MIB);
    assert_false(local_read_is(x, 1, MIB));
    bnf_file_put(l.file);
}

static void test_server_lease_comes_in_segments(void **state)
{
    struct fixture *x = *state;
    struct local_lease l;
    uint64_t total = 0, n = 0;

    local_open(x);
    while (local_lease(x, 48 * MIB, MIB + 4096, &l) == 0) {
        total += l.x.len;
        n++;
        bnf_file_put(l.file);
    }
    assert_int_equal(space_of(x).leased_bytes, total);
    assert_true(space_of(x).free_bytes < MIB + 4096);
    assert_true(n < 64);
}

static void test_server_device_errors_refuse_leases_and_end(void **state)
{
    struct fixture *x = *state;
    uint64_t bytes, lease, until = fp_now_ms() + 8000;
    struct local_lease l;
    int rc;

#ifndef FP_FAULT
    skip();
#endif
    local_open(x);
    remote_open(x);
    lease = remote_lease(x, 4 * MIB, &bytes);
    assert_int_equal(remote_write(x, lease, 1, MIB), 0);
    fp_log_set_level((enum fp_log_level) - 1);
    assert_int_equal(fp_fault_set("bnf.pwrite=EIO:count=2"), 0);
    assert_int_equal(remote_write(x, lease, 2, MIB), -EIO);
    assert_int_equal(local_lease(x, MIB, MIB, &l), -ENOSPC);
    assert_int_equal(remote_read(x, 1, 0, MIB, MIB), 0);
    do { /* the first probe fails too */
        usleep(100000);
        rc = local_lease(x, MIB, MIB, &l);
    } while (rc == -ENOSPC && fp_now_ms() < until);
    fp_log_set_level(FP_LOG_INFO);
    assert_int_equal(rc, 0);
    assert_true(fp_fault_fired("bnf.pwrite") == 2);
    bnf_file_put(l.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define D(f) {#f "(dir)", f, setup, teardown, NULL}
#define M(f)                                                                                                 \
    {                                                                                                        \
#f "(memory)", f, setup_memory, teardown, NULL                                                       \
    }
        D(test_server_local_record_is_located_and_read),
        M(test_server_local_record_is_located_and_read),
        D(test_server_lost_link_ends_its_leases),
        M(test_server_lost_link_ends_its_leases),
        D(test_server_requests_before_hello_are_refused),
        D(test_server_other_store_is_refused),
        D(test_server_remote_chunk_comes_back),
        M(test_server_remote_chunk_comes_back),
        D(test_server_damaged_payload_is_refused),
        D(test_server_write_without_lease_is_refused),
        {"test_server_many_writes_with_few_buffers", test_server_many_writes_with_few_buffers,
         setup_few_buffers, teardown, NULL},
        D(test_server_flipped_bit_is_never_served),
        D(test_server_deleted_space_is_free_at_once),
        M(test_server_deleted_space_is_free_at_once),
        D(test_server_lease_comes_in_segments),
        D(test_server_device_errors_refuse_leases_and_end),
    };

    fp_log_init("test", FP_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
