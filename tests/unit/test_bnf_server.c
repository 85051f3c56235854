/*
 * The benefactor as its clients see it: service, local link and data port in a thread, without a manager.
 * Clients are the real wire layer: fdlink for mounts of the node, rpc for others.
 */
#include "tests/unit/bnf_world.h"

#include <fcntl.h>

/* ---------------------------------------------------------------- tests */

static void test_server_local_record_is_located_and_read(void **state)
{
    struct bnf_world *x = *state;
    struct bw_lease l;

    bw_local_open(x);
    assert_int_equal(bw_local_lease(x, 16 * BW_MIB, BW_MIB, &l), 0);
    assert_int_equal(bw_local_store(x, &l, 1, BW_MIB), 0);
    assert_int_equal(bw_local_store(x, &l, 2, 12345), 0);
    assert_true(bw_local_read_is(x, 1, BW_MIB));
    assert_true(bw_local_read_is(x, 2, 12345));
    assert_false(bw_local_read_is(x, 3, 1));
    assert_int_equal(bw_local_call(x, FP__MSG_TYPE__MSG_BNF_SYNC, NULL, NULL), 0);
    l.at = l.x.off; /* over the first record */
    fp_log_set_level(FP_LOG_ERROR);
    assert_int_equal(bw_local_store(x, &l, 9, 100), -EINVAL);
    fp_log_set_level(FP_LOG_INFO);
    l.id += 65536;
    assert_int_equal(bw_local_store(x, &l, 9, 100), FP_ELEASE);
    bnf_file_put(l.file);
}

static void test_server_lost_link_ends_its_leases(void **state)
{
    struct bnf_world *x = *state;
    struct bw_lease l;

    bw_local_open(x);
    assert_int_equal(bw_local_lease(x, 16 * BW_MIB, BW_MIB, &l), 0);
    assert_int_equal(bw_local_store(x, &l, 1, BW_MIB), 0);
    assert_int_equal(bw_space_of(x).leased_bytes, 15 * BW_MIB - 4096);
    fp_fdlink_close(x->link);
    x->link = NULL;
    bw_wait_leased(x, 0);
    bw_wait_used(x, BW_MIB + 4096);
    bnf_file_put(l.file);
    bw_local_open(x);
    assert_true(bw_local_read_is(x, 1, BW_MIB));
}

static void test_server_requests_before_hello_are_refused(void **state)
{
    struct bnf_world *x = *state;
    Fp__Lease m = FP__LEASE__INIT;

    m.want_bytes = BW_MIB;
    assert_int_equal(fp_fdlink_open(x->sock, 1000, &x->link), 0);
    assert_int_equal(bw_local_call(x, FP__MSG_TYPE__MSG_LEASE, &m.base, NULL), -EPROTO);
    assert_int_equal(bw_local_call(x, FP__MSG_TYPE__MSG_COMMIT, NULL, NULL), -EPROTO);
}

static void test_server_other_store_is_refused(void **state)
{
    struct bnf_world *x = *state;
    Fp__BnfHello m = FP__BNF_HELLO__INIT;
    uint8_t other[16] = {1};

    m.store_uuid.data = other;
    m.store_uuid.len = 16;
    assert_int_equal(fp_fdlink_open(x->sock, 1000, &x->link), 0);
    assert_int_equal(bw_local_call(x, FP__MSG_TYPE__MSG_BNF_HELLO, &m.base, NULL), FP_EUUID);
}

static void test_server_remote_chunk_comes_back(void **state)
{
    struct bnf_world *x = *state;
    uint64_t bytes, lease;
    static struct bw_answer a;

    bw_remote_open(x);
    lease = bw_remote_lease(x, 40 * BW_MIB, &bytes);
    assert_int_equal(bytes, 40 * BW_MIB);
    assert_int_equal(bw_remote_write(x, lease, 1, BW_MIB), 0);
    assert_int_equal(bw_remote_write(x, lease, 2, 1), 0);
    assert_int_equal(bw_remote_write(x, lease, 3, 16 << 20), 0);
    assert_int_equal(bw_remote_write(x, lease, 1, BW_MIB), 0); /* sent again */
    assert_int_equal(bw_remote_read(x, 1, 0, BW_MIB, BW_MIB), 0);
    assert_int_equal(bw_remote_read(x, 1, 700000, 10, BW_MIB), 0);
    assert_int_equal(bw_remote_read(x, 2, 0, 65536, 1), 0);
    assert_int_equal(bw_remote_read(x, 3, 15 << 20, 1 << 20, 16 << 20), 0);
    assert_int_equal(bw_remote_read(x, 4, 0, 1, 1), FP_ECHUNK_MISSING);
    assert_int_equal(bw_remote_read(x, 2, 1, 1, 1), -EINVAL);
    bw_remote_start(x, &a, FP__MSG_TYPE__MSG_BNF_SYNC, NULL, NULL, 0);
    assert_int_equal(bw_remote_wait(x, &a), 0);
    assert_int_equal(bw_space_of(x).used_bytes, BW_MIB + 4096 + 8192 + 16 * BW_MIB + 4096);
    bw_remote_shut(x);
    bw_wait_leased(x, 0);
}

/* Coded, the largest chunk may be longer than its data was: by either way, whole and in part. */
static void test_server_chunk_longer_than_the_largest_is_kept(void **state)
{
    const uint32_t len = FP_CHUNK_MAX_BYTES + 5120;
    struct bnf_world *x = *state;
    uint64_t bytes, lease;
    struct bw_lease l;

    bw_remote_open(x);
    lease = bw_remote_lease(x, 40 * BW_MIB, &bytes);
    assert_int_equal(bw_remote_write(x, lease, 1, len), 0);
    assert_int_equal(bw_remote_write(x, lease, 2, FP_STORED_MAX_BYTES), 0);
    assert_int_equal(bw_remote_read(x, 1, 0, len, len), 0);
    assert_int_equal(bw_remote_read(x, 1, FP_CHUNK_MAX_BYTES, 5120, len), 0);
    assert_int_equal(bw_remote_read(x, 2, 0, FP_STORED_MAX_BYTES, FP_STORED_MAX_BYTES), 0);
    assert_true(bw_remote_write(x, lease, 3, FP_STORED_MAX_BYTES + 1) < 0);
    bw_remote_shut(x);
    bw_wait_leased(x, 0);
    bw_local_open(x);
    assert_int_equal(bw_local_lease(x, 40 * BW_MIB, 20 * BW_MIB, &l), 0);
    assert_int_equal(bw_local_store(x, &l, 4, len), 0);
    assert_true(bw_local_read_is(x, 4, len));
    assert_true(bw_local_read_is(x, 1, len));
    bnf_file_put(l.file);
}

static void test_server_damaged_payload_is_refused(void **state)
{
    struct bnf_world *x = *state;
    uint64_t bytes, lease;

    bw_remote_open(x);
    lease = bw_remote_lease(x, 4 * BW_MIB, &bytes);
    fp_log_set_level(FP_LOG_ERROR);
    assert_int_equal(bw_remote_write(x, lease, 666, BW_MIB), FP_ECHECKSUM);
    fp_log_set_level(FP_LOG_INFO);
    assert_int_equal(bw_remote_read(x, 666, 0, BW_MIB, BW_MIB), FP_ECHUNK_MISSING);
    bw_wait_used(x, 0);
}

static void test_server_write_without_lease_is_refused(void **state)
{
    struct bnf_world *x = *state;
    uint64_t bytes, lease;

    bw_remote_open(x);
    assert_int_equal(bw_remote_write(x, 1, 1, BW_MIB), FP_ELEASE);
    lease = bw_remote_lease(x, BW_MIB, &bytes);
    assert_int_equal(bw_remote_write(x, lease, 1, BW_MIB), -ENOSPC); /* the header does not fit */
    assert_int_equal(bw_remote_write(x, lease, 1, BW_MIB - 4096), 0);
}

static void test_server_many_writes_with_few_buffers(void **state)
{
    struct bnf_world *x = *state;
    static struct bw_answer answers[40];
    uint8_t *data[40];
    uint64_t bytes, lease;

    bw_remote_open(x);
    lease = bw_remote_lease(x, 60 * BW_MIB, &bytes);
    for (int i = 0; i < 40; i++) {
        data[i] = malloc(BW_MIB);
        bw_remote_write_start(x, &answers[i], lease, (uint64_t)i + 1, data[i], BW_MIB);
    }
    for (int i = 0; i < 40; i++) {
        assert_int_equal(bw_remote_wait(x, &answers[i]), 0);
        free(data[i]);
    }
    for (uint64_t i = 1; i <= 40; i++)
        assert_int_equal(bw_remote_read(x, i, 0, BW_MIB, BW_MIB), 0);
}

static void test_server_flipped_bit_is_never_served(void **state)
{
    struct bnf_world *x = *state;
    struct bw_lease l;
    uint8_t *page = aligned_alloc(4096, 4096);
    struct iovec iov = {.iov_base = page, .iov_len = 4096};

    bw_local_open(x);
    bw_remote_open(x);
    assert_int_equal(bw_local_lease(x, 16 * BW_MIB, BW_MIB, &l), 0);
    assert_int_equal(bw_local_store(x, &l, 1, BW_MIB), 0);
    assert_int_equal(bnf_file_read(l.file, page, 4096, l.x.off + 4096 + 300 * 1024), 0);
    page[77] ^= 16;
    assert_int_equal(bnf_file_write(l.file, &iov, 1, l.x.off + 4096 + 300 * 1024), 0);
    fp_log_set_level((enum fp_log_level) - 1);
    assert_int_equal(bw_remote_read(x, 1, 0, BW_MIB, BW_MIB), FP_ECHECKSUM);
    assert_int_equal(bw_remote_read(x, 1, 290 * 1024, 4096, BW_MIB), FP_ECHECKSUM);
    fp_log_set_level(FP_LOG_INFO);
    assert_int_equal(bw_remote_read(x, 1, 0, 65536, BW_MIB), 0); /* another block */
    free(page);
    bnf_file_put(l.file);
}

static void test_server_deleted_space_is_free_at_once(void **state)
{
    struct bnf_world *x = *state;
    struct bw_lease l;
    uint64_t before;

    bw_local_open(x);
    assert_int_equal(bw_local_lease(x, 30 * BW_MIB, BW_MIB, &l), 0);
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(bw_local_store(x, &l, i + 1, BW_MIB), 0);
        x->ids[x->nids++] = i + 1;
    }
    before = bnf_file_space(l.file);
    bw_on_server(x, bw_delete_ids);
    bw_wait_used(x, 0);
    if (x->backend->ops->volatile_data) /* the rest of the lease, and what is ready ahead */
        assert_in_range(bnf_file_space(l.file), 0, (10 + 16 + 4) * BW_MIB); /* both ends in huge pages */
    else
        assert_true(bnf_file_space(l.file) <= before - 20 * BW_MIB);
    assert_false(bw_local_read_is(x, 1, BW_MIB));
    bnf_file_put(l.file);
}

static void test_server_lease_comes_in_segments(void **state)
{
    struct bnf_world *x = *state;
    struct bw_lease l;
    uint64_t total = 0, n = 0;

    bw_local_open(x);
    while (bw_local_lease(x, 48 * BW_MIB, BW_MIB + 4096, &l) == 0) {
        total += l.x.len;
        n++;
        bnf_file_put(l.file);
    }
    assert_int_equal(bw_space_of(x).leased_bytes, total);
    assert_true(bw_space_of(x).free_bytes < BW_MIB + 4096);
    assert_true(n < 64);
}

static void stop_serving(struct bnf_world *x)
{
    bnf_remote_serve(x->remote, NULL);
}

static void go_on_serving(struct bnf_world *x)
{
    bnf_remote_serve(x->remote, x->service);
}

/* It listens before the manager knows it. What it says then may reach a program, which must not take it for its own O_NONBLOCK. */
static void test_server_that_does_not_serve_yet_refuses_as_if_it_did_not_listen(void **state)
{
    struct bnf_world *x = *state;
    Fp__BnfSync m = FP__BNF_SYNC__INIT;
    struct bw_answer a;

    bw_remote_open(x);
    bw_on_server(x, stop_serving);
    bw_remote_start(x, &a, FP__MSG_TYPE__MSG_BNF_SYNC, &m.base, NULL, 0);
    assert_int_equal(bw_remote_wait(x, &a), -ECONNREFUSED);
    assert_int_equal(fp_err_to_errno(a.status), EIO);
    bw_on_server(x, go_on_serving);
}

static void test_server_device_errors_refuse_leases_and_end(void **state)
{
    struct bnf_world *x = *state;
    uint64_t bytes, lease, until = fp_now_ms() + 8000;
    struct bw_lease l;
    int rc;

#ifndef FP_FAULT
    skip();
#endif
    bw_local_open(x);
    bw_remote_open(x);
    lease = bw_remote_lease(x, 4 * BW_MIB, &bytes);
    assert_int_equal(bw_remote_write(x, lease, 1, BW_MIB), 0);
    fp_log_set_level((enum fp_log_level) - 1);
    assert_int_equal(fp_fault_set("bnf.pwrite=EIO:count=2"), 0);
    assert_int_equal(bw_remote_write(x, lease, 2, BW_MIB), -EIO);
    assert_int_equal(bw_local_lease(x, BW_MIB, BW_MIB, &l), -ENOSPC);
    assert_int_equal(bw_remote_read(x, 1, 0, BW_MIB, BW_MIB), 0);
    do { /* the first probe fails too */
        usleep(100000);
        rc = bw_local_lease(x, BW_MIB, BW_MIB, &l);
    } while (rc == -ENOSPC && fp_now_ms() < until);
    fp_log_set_level(FP_LOG_INFO);
    assert_int_equal(rc, 0);
    assert_true(fp_fault_fired("bnf.pwrite") == 2);
    bnf_file_put(l.file);
}

static uint64_t life_of(const uint8_t *msg, size_t len)
{
    Fp__BnfSyncReply *r = fp__bnf_sync_reply__unpack(NULL, len, msg);
    uint64_t life;

    assert_non_null(r);
    life = r->unsynced_life;
    fp__bnf_sync_reply__free_unpacked(r, NULL);
    return life;
}

/* MSG_BNF_SYNC of a mount of the node: the life that it is told. failed: a segment that it could not sync, 0 = none. */
static uint64_t local_sync(struct bnf_world *x, uint64_t failed)
{
    Fp__BnfSync m = FP__BNF_SYNC__INIT;
    uint8_t buf[100];
    struct fp_fdlink_reply_buf r = {.buf = buf, .buf_cap_bytes = sizeof(buf)};

    m.failed = &failed;
    m.n_failed = failed != 0;
    assert_int_equal(bw_local_call(x, FP__MSG_TYPE__MSG_BNF_SYNC, &m.base, &r), 0);
    return life_of(r.in.msg, r.in.msg_len_bytes);
}

static uint64_t remote_sync(struct bnf_world *x)
{
    static struct bw_answer a;

    bw_remote_start(x, &a, FP__MSG_TYPE__MSG_BNF_SYNC, NULL, NULL, 0);
    assert_int_equal(bw_remote_wait(x, &a), 0);
    return life_of(a.msg, a.msg_len);
}

static void nothing(void *arg)
{
    (void)arg;
}

/* What a process that is started now on the same directory would say. */
static uint64_t life_of_next_process(struct bnf_world *x)
{
    uv_loop_t loop;
    struct bnf_service *v;
    struct bnf_service_config c = {.loop = &loop,
                                   .backend = x->backend,
                                   .threads = 1,
                                   .device_timeout_ms = 5000,
                                   .buffer_bytes = BW_MIB,
                                   .capacity_bytes = BW_SIZE,
                                   .segment_bytes = 64 * BW_MIB,
                                   .random = 777,
                                   .changed = nothing};
    uint64_t life;

    uv_loop_init(&loop);
    assert_int_equal(bnf_service_new(&c, &v), 0);
    life = bnf_service_unsynced_life(v);
    bnf_service_free(v);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return life;
}

static void lease_again(struct bnf_world *x, struct bw_lease *l)
{
    uint64_t until = fp_now_ms() + 10000;
    int rc;

    do { /* the device is asked again after 2 s */
        usleep(50000);
        rc = bw_local_lease(x, 4 * BW_MIB, BW_MIB, l);
    } while (rc == -ENOSPC && fp_now_ms() < until);
    assert_int_equal(rc, 0);
}

static void test_server_sync_that_fails_is_a_loss_told_to_all(void **state)
{
    struct bnf_world *x = *state;
    uint64_t bytes, lease, life, lost;
    struct bw_lease l, l2;

#ifndef FP_FAULT
    skip();
#endif
    bw_local_open(x);
    bw_remote_open(x);
    assert_int_equal(bw_local_lease(x, 16 * BW_MIB, BW_MIB, &l), 0);
    assert_int_equal(bw_local_store(x, &l, 1, BW_MIB), 0);
    lease = bw_remote_lease(x, 4 * BW_MIB, &bytes);
    assert_int_equal(bw_remote_write(x, lease, 2, BW_MIB), 0);
    life = local_sync(x, 0);
    assert_true(life != 0 && remote_sync(x) == life);
    assert_int_equal(bw_local_store(x, &l, 3, BW_MIB), 0);
    fp_log_set_level((enum fp_log_level) - 1);
    assert_int_equal(fp_fault_set("bnf.fdatasync=EIO:count=1"), 0);
    lost = remote_sync(x);
    assert_true(lost != 0 && lost != life);
    assert_int_equal(fp_fault_fired("bnf.fdatasync"), 1);
    assert_true(local_sync(x, 0) == lost && remote_sync(x) == lost); /* one loss, whoever asks how often */
    assert_true(life_of_next_process(x) == lost);
    assert_int_equal(bw_local_store(x, &l, 4, BW_MIB), FP_ELEASE); /* nothing new comes into that segment */
    assert_int_equal(bw_remote_write(x, lease, 5, BW_MIB), FP_ELEASE);
    assert_true(bw_local_read_is(x, 1, BW_MIB));
    lease_again(x, &l2);
    fp_log_set_level(FP_LOG_INFO);
    assert_true(l2.x.segment != l.x.segment);
    assert_int_equal(bw_local_store(x, &l2, 6, BW_MIB), 0);
    assert_true(local_sync(x, 0) == lost);
    bnf_file_put(l.file);
    bnf_file_put(l2.file);
}

static void test_server_mount_that_could_not_sync_is_believed_once(void **state)
{
    struct bnf_world *x = *state;
    uint64_t life, lost;
    struct bw_lease l;

    bw_local_open(x);
    bw_remote_open(x);
    assert_int_equal(bw_local_lease(x, 16 * BW_MIB, BW_MIB, &l), 0);
    assert_int_equal(bw_local_store(x, &l, 1, BW_MIB), 0);
    life = local_sync(x, 0);
    assert_true(local_sync(x, l.x.segment + 1000) == life); /* no such segment: it is gone, and all that was in it */
    fp_log_set_level((enum fp_log_level) - 1);
    lost = local_sync(x, l.x.segment);
    fp_log_set_level(FP_LOG_INFO);
    assert_true(lost != life);
    assert_true(local_sync(x, l.x.segment) == lost); /* the next mount that meets the same error */
    assert_true(remote_sync(x) == lost);
    assert_int_equal(bw_local_store(x, &l, 2, BW_MIB), FP_ELEASE);
    bnf_file_put(l.file);
    assert_int_equal(bw_local_lease(x, 4 * BW_MIB, BW_MIB, &l), 0); /* the device itself is well */
    assert_int_equal(bw_local_store(x, &l, 2, BW_MIB), 0);
    bnf_file_put(l.file);
}

/* The kernel tells of a lost write-back once per open file: a mount's fdatasync must not use up what others have to hear. */
static void test_server_mounts_have_descriptors_of_their_own(void **state)
{
    struct bnf_world *x = *state;
    struct bw_lease l, l2;

    bw_local_open(x);
    assert_int_equal(bw_local_lease(x, BW_MIB, BW_MIB, &l), 0);
    assert_int_equal(bw_local_lease(x, BW_MIB, BW_MIB, &l2), 0);
    assert_int_equal(l.x.segment, l2.x.segment);
    assert_int_equal(lseek(l.file->fd, 4096, SEEK_SET), 4096);
    assert_int_equal(lseek(l2.file->fd, 0, SEEK_CUR), 0);
    assert_int_equal(fcntl(l.file->fd, F_GETFL), fcntl(l2.file->fd, F_GETFL));
    assert_true(!l.x.o_direct || (fcntl(l.file->fd, F_GETFL) & O_DIRECT));
    bnf_file_put(l.file);
    bnf_file_put(l2.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define D(f) {#f "(dir)", f, bw_setup, bw_teardown, NULL}
#define M(f)                                                                                                 \
    {                                                                                                        \
#f "(memory)", f, bw_setup_memory, bw_teardown, NULL                                                 \
    }
        D(test_server_local_record_is_located_and_read),
        M(test_server_local_record_is_located_and_read),
        D(test_server_lost_link_ends_its_leases),
        M(test_server_lost_link_ends_its_leases),
        D(test_server_requests_before_hello_are_refused),
        D(test_server_other_store_is_refused),
        D(test_server_remote_chunk_comes_back),
        M(test_server_remote_chunk_comes_back),
        D(test_server_chunk_longer_than_the_largest_is_kept),
        M(test_server_chunk_longer_than_the_largest_is_kept),
        D(test_server_damaged_payload_is_refused),
        D(test_server_write_without_lease_is_refused),
        {"test_server_many_writes_with_few_buffers", test_server_many_writes_with_few_buffers,
         bw_setup_few_buffers, bw_teardown, NULL},
        D(test_server_flipped_bit_is_never_served),
        D(test_server_deleted_space_is_free_at_once),
        M(test_server_deleted_space_is_free_at_once),
        D(test_server_lease_comes_in_segments),
        D(test_server_that_does_not_serve_yet_refuses_as_if_it_did_not_listen),
        D(test_server_device_errors_refuse_leases_and_end),
        D(test_server_sync_that_fails_is_a_loss_told_to_all),
        D(test_server_mount_that_could_not_sync_is_believed_once),
        D(test_server_mounts_have_descriptors_of_their_own),
    };

    fp_log_init("test", FP_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
