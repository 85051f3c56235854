/*
 * The benefactor of test_bnf_server.c: service, local link and data port on a loop in a thread of its own,
 * and the client ends on the test's thread. bw_on_server() runs a function on the server's thread, which owns
 * the store.
 */
#include "tests/unit/bnf_world.h"

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
    bnf_remote_press(((struct bnf_world *)arg)->remote, on);
}

static void on_async(uv_async_t *a)
{
    struct bnf_world *x = a->data;

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
void bw_on_server(struct bnf_world *x, void (*fn)(struct bnf_world *x))
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
    struct bnf_world *x = arg;

    uv_run(&x->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void rpc_gone(void *arg)
{
    struct bnf_world *x = arg;

    bnf_remote_free(x->remote);
    bnf_service_free(x->service);
    uv_close((uv_handle_t *)&x->async, NULL);
}

static void local_gone(void *arg)
{
    struct bnf_world *x = arg;

    fp_rpc_close(x->rpc, rpc_gone, x);
}

static void drained(void *arg, int status)
{
    struct bnf_world *x = arg;

    assert_int_equal(status, 0);
    bnf_remote_stop(x->remote);
    bnf_local_free(x->local, local_gone, x);
}

static void stop_server(struct bnf_world *x)
{
    bnf_service_drain(x->service, 3000, drained, x);
}

static void start_server(struct bnf_world *x, size_t buffer_bytes)
{
    struct bnf_service_config c = {.loop = &x->loop,
                                   .backend = x->backend,
                                   .threads = 2,
                                   .device_timeout_ms = 5000,
                                   .buffer_bytes = buffer_bytes,
                                   .capacity_bytes = BW_SIZE,
                                   .segment_bytes = 64 * BW_MIB,
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

int bw_local_call(struct bnf_world *x, uint16_t type, const ProtobufCMessage *msg,
                  struct fp_fdlink_reply_buf *r)
{
    return fp_fdlink_call(x->link, type, msg, 5000, r);
}

void bw_local_open(struct bnf_world *x)
{
    Fp__BnfHello m = FP__BNF_HELLO__INIT;
    uint8_t buf[1000];
    struct fp_fdlink_reply_buf r = {.buf = buf, .buf_cap_bytes = sizeof(buf)};
    Fp__BnfHelloReply *reply;

    assert_int_equal(fp_fdlink_open(x->sock, 1000, &x->link), 0);
    m.store_uuid.data = x->t.store_uuid;
    m.store_uuid.len = 16;
    m.session = 3;
    assert_int_equal(bw_local_call(x, FP__MSG_TYPE__MSG_BNF_HELLO, &m.base, &r), 0);
    reply = fp__bnf_hello_reply__unpack(NULL, r.in.msg_len_bytes, r.in.msg);
    assert_non_null(reply);
    assert_int_equal(reply->bnf_id, 7);
    fp__bnf_hello_reply__free_unpacked(reply, NULL);
}

int bw_local_lease(struct bnf_world *x, uint64_t want, uint64_t min, struct bw_lease *l)
{
    Fp__Lease m = FP__LEASE__INIT;
    uint8_t buf[1000];
    struct fp_fdlink_reply_buf r = {.buf = buf, .buf_cap_bytes = sizeof(buf)};
    Fp__LeaseReply *reply;
    int rc;

    m.want_bytes = want;
    m.min_bytes = min;
    rc = bw_local_call(x, FP__MSG_TYPE__MSG_LEASE, &m.base, &r);
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
    l->file = bnf_file_new(r.fds[0], l->x.o_direct, l->x.segment, l->x.salt, 64 * BW_MIB);
    fp__lease_reply__free_unpacked(reply, NULL);
    return 0;
}

int bw_local_store(struct bnf_world *x, struct bw_lease *l, uint64_t chunk, uint32_t len)
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
    return bw_local_call(x, FP__MSG_TYPE__MSG_STORED, &m.base, NULL);
}

bool bw_local_read_is(struct bnf_world *x, uint64_t chunk, uint32_t len)
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
    assert_int_equal(bw_local_call(x, FP__MSG_TYPE__MSG_LOCATE, &m.base, &r), 0);
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
    ((struct bnf_world *)arg)->up = true;
}

static void c_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    (void)conn;
    (void)err;
    (void)why;
    ((struct bnf_world *)arg)->closed = true;
}

static const struct fp_rpc_handler c_handler = {.on_up = c_up, .on_closed = c_closed};

static void on_answer(void *arg, int status, const struct fp_rpc_in *in)
{
    struct bw_answer *a = arg;

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

void bw_remote_start(struct bnf_world *x, struct bw_answer *a, uint16_t type, const ProtobufCMessage *msg,
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

    *a = (struct bw_answer){0};
    assert_int_equal(fp_rpc_call(x->conn, &req, NULL), 0);
}

int bw_remote_wait(struct bnf_world *x, struct bw_answer *a)
{
    while (!a->done)
        uv_run(&x->cloop, UV_RUN_ONCE);
    return a->status;
}

void bw_remote_open(struct bnf_world *x)
{
    struct fp_rpc_opts opts = {.key = x->key, .store_uuid = x->t.store_uuid, .plain = true};
    struct fp_rpc_connect_opts copts = {.plain = true};
    Fp__BnfHello m = FP__BNF_HELLO__INIT;
    static struct bw_answer a;

    uv_loop_init(&x->cloop);
    assert_int_equal(fp_rpc_new(&x->cloop, &opts, &x->crpc), 0);
    assert_int_equal(fp_rpc_connect(x->crpc, x->addr, &copts, &c_handler, x, &x->conn), 0);
    while (!x->up && !x->closed)
        uv_run(&x->cloop, UV_RUN_ONCE);
    assert_true(x->up);
    m.session = 4;
    bw_remote_start(x, &a, FP__MSG_TYPE__MSG_BNF_HELLO, &m.base, NULL, 0);
    assert_int_equal(bw_remote_wait(x, &a), 0);
}

void bw_remote_shut(struct bnf_world *x)
{
    if (!x->crpc)
        return;
    fp_rpc_close(x->crpc, NULL, NULL);
    uv_run(&x->cloop, UV_RUN_DEFAULT);
    uv_loop_close(&x->cloop);
    x->crpc = NULL;
}

uint64_t bw_remote_lease(struct bnf_world *x, uint64_t want, uint64_t *bytes)
{
    Fp__Lease m = FP__LEASE__INIT;
    static struct bw_answer a;
    Fp__LeaseReply *r;
    uint64_t id;

    m.want_bytes = want;
    m.min_bytes = BW_MIB;
    bw_remote_start(x, &a, FP__MSG_TYPE__MSG_LEASE, &m.base, NULL, 0);
    assert_int_equal(bw_remote_wait(x, &a), 0);
    r = fp__lease_reply__unpack(NULL, a.msg_len, a.msg);
    assert_int_equal(r->n_extents, 0);
    id = r->lease;
    *bytes = r->bytes;
    fp__lease_reply__free_unpacked(r, NULL);
    return id;
}

void bw_remote_write_start(struct bnf_world *x, struct bw_answer *a, uint64_t lease, uint64_t chunk,
                           uint8_t *data, uint32_t len)
{
    Fp__ChunkWrite m = FP__CHUNK_WRITE__INIT;
    uint64_t sums[FP_BLOCKS_MAX + 1]; /* one too many is tried, too */

    bnf_fill(chunk, data, len);
    fp_sum_blocks(data, len, sums);
    m.lease = lease;
    m.chunk = chunk;
    m.len = len;
    m.block_sums = sums;
    m.n_block_sums = fp_sum_nblocks(len);
    if (chunk == 666) /* damaged on the way */
        data[len / 2] ^= 1;
    bw_remote_start(x, a, FP__MSG_TYPE__MSG_WRITE, &m.base, data, len);
}

int bw_remote_write(struct bnf_world *x, uint64_t lease, uint64_t chunk, uint32_t len)
{
    static struct bw_answer a;
    uint8_t *data = malloc(len);
    int rc;

    bw_remote_write_start(x, &a, lease, chunk, data, len);
    rc = bw_remote_wait(x, &a);
    free(data);
    return rc;
}

int bw_remote_read(struct bnf_world *x, uint64_t chunk, uint32_t off, uint32_t len, uint32_t chunk_len)
{
    Fp__ChunkRead m = FP__CHUNK_READ__INIT;
    static struct bw_answer a;
    Fp__ChunkReadReply *r;
    uint8_t *want = malloc(chunk_len);

    m.chunk = chunk;
    m.off = off;
    m.len = len;
    bw_remote_start(x, &a, FP__MSG_TYPE__MSG_READ, &m.base, NULL, 0);
    if (bw_remote_wait(x, &a) == 0) {
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

static void get_space(struct bnf_world *x)
{
    bnf_store_check(bnf_service_store(x->service));
    bnf_store_space(bnf_service_store(x->service), &x->space);
}

struct bnf_space bw_space_of(struct bnf_world *x)
{
    bw_on_server(x, get_space);
    return x->space;
}

static void on_deleted(void *arg, int status)
{
    assert_int_equal(status, 0);
    ((struct bnf_world *)arg)->deleted = true;
}

void bw_delete_ids(struct bnf_world *x)
{
    assert_int_equal(bnf_service_delete(x->service, x->ids, x->nids, on_deleted, x), 0);
}

void bw_wait_leased(struct bnf_world *x, uint64_t leased)
{
    for (int i = 0; i < 200 && bw_space_of(x).leased_bytes != leased; i++)
        usleep(10000);
    assert_int_equal(bw_space_of(x).leased_bytes, leased);
}

void bw_wait_used(struct bnf_world *x, uint64_t used)
{
    for (int i = 0; i < 200 && bw_space_of(x).used_bytes != used; i++)
        usleep(10000);
    assert_int_equal(bw_space_of(x).used_bytes, used);
}

static struct bnf_world *setup_with(bool memory, size_t buffer_bytes)
{
    struct bnf_world *x = calloc(1, sizeof(*x));

    bnf_scratch_init(&x->t);
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->cond, NULL);
    assert_int_equal(fp_key_generate(&x->key), 0);
    if (memory)
        assert_int_equal(bnf_backend_memory_new(16 * BW_MIB, &x->backend), 0);
    else
        assert_int_equal(bnf_backend_dir_new(x->t.dir_fd, &x->backend), 0);
    start_server(x, buffer_bytes);
    return x;
}

int bw_setup(void **state)
{
    *state = setup_with(false, 32 * BW_MIB);
    return 0;
}

int bw_setup_memory(void **state)
{
    *state = setup_with(true, 32 * BW_MIB);
    return 0;
}

int bw_setup_few_buffers(void **state)
{
    *state = setup_with(false, 3 * BW_MIB);
    return 0;
}

int bw_teardown(void **state)
{
    struct bnf_world *x = *state;

    if (x->link)
        fp_fdlink_close(x->link);
    bw_remote_shut(x);
    bw_on_server(x, stop_server);
    pthread_join(x->thread, NULL);
    uv_loop_close(&x->loop);
    fp_fault_set(NULL);
    bnf_backend_free(x->backend);
    fp_key_free(x->key);
    bnf_scratch_fini(&x->t);
    free(x);
    return 0;
}
