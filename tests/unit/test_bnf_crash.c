/*
 * A benefactor that is killed (SIGKILL) at random moments while a mount writes: after each restart every
 * record that was acknowledged is there with its bytes, the space of everything else is free, and the mount
 * goes on with new leases.
 *
 * The benefactor is a child process with the real service, recovery and local link; only the manager is
 * missing. FP_SEED replays a run.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "benefactor/local.h"
#include "benefactor/recover.h"
#include "benefactor/service.h"
#include "fp.pb-c.h"
#include "fp/err.h"
#include "fp/fdlink.h"
#include "fp/log.h"
#include "tests/unit/bnf_util.h"

#define MIB    ((uint64_t)1 << 20)
#define ROUNDS 6
#define CHUNKS 4096

struct fixture {
    struct bnf_scratch t;
    char sock[300];
    pid_t pid;
    struct fp_fdlink *link;
    uint64_t next_chunk;
    /* acknowledged */
    uint64_t chunks[CHUNKS];
    uint32_t lens[CHUNKS];
    size_t count;
};

/* ---------------------------------------------------------------- the benefactor: a child */

static uint32_t bnf_id(void *arg)
{
    (void)arg;
    return 1;
}

static void changed(void *arg)
{
    (void)arg;
}

static void pressed(void *arg, bool on)
{
    (void)arg;
    (void)on;
}

static void run_child(struct fixture *x, int ready_fd)
{
    uv_loop_t loop;
    struct bnf_backend *b;
    struct bnf_service *v;
    struct bnf_local *l;
    struct bnf_recover_result r;
    struct bnf_service_config c = {.loop = &loop,
                                   .threads = 2,
                                   .device_timeout_ms = 5000,
                                   .buffer_bytes = 20 * MIB,
                                   .capacity_bytes = 1024 * MIB,
                                   .segment_bytes = 64 * MIB,
                                   .random = (uint64_t)getpid(),
                                   .changed = changed,
                                   .pressed = pressed};
    struct bnf_recover_config rc = {.dir_fd = x->t.dir_fd,
                                    .store_uuid = x->t.store_uuid,
                                    .bnf_uuid = x->t.bnf_uuid,
                                    .threads = 2,
                                    .found = bnf_service_found};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memcpy(c.store_uuid, x->t.store_uuid, 16);
    memcpy(c.bnf_uuid, x->t.bnf_uuid, 16);
    uv_loop_init(&loop);
    if (bnf_backend_dir_new(x->t.dir_fd, &b))
        _exit(10);
    c.backend = rc.backend = b;
    if (bnf_service_new(&c, &v))
        _exit(11);
    rc.arg = v;
    if (bnf_recover(&rc, bnf_service_store(v), &r))
        _exit(12);
    bnf_store_check(bnf_service_store(v));
    if (bnf_service_start(v) || bnf_local_new(&loop, x->sock, v, bnf_id, NULL, &l))
        _exit(13);
    if (write(ready_fd, "r", 1) != 1)
        _exit(14);
    uv_run(&loop, UV_RUN_DEFAULT);
    _exit(0);
}

static void start(struct fixture *x)
{
    Fp__BnfHello m = FP__BNF_HELLO__INIT;
    int fds[2];
    char byte;

    assert_int_equal(pipe(fds), 0);
    x->pid = fork();
    assert_true(x->pid >= 0);
    if (x->pid == 0)
        run_child(x, fds[1]);
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    assert_int_equal(fp_fdlink_open(x->sock, 2000, &x->link), 0);
    assert_int_equal(fp_fdlink_call(x->link, FP__MSG_TYPE__MSG_BNF_HELLO, &m.base, 2000, NULL), 0);
}

static void *kill_later(void *arg)
{
    struct fixture *x = arg;

    usleep((useconds_t)(rand() % 150000));
    kill(x->pid, SIGKILL);
    return NULL;
}

/* ---------------------------------------------------------------- the mount */

struct lease {
    uint64_t id, at, end;
    struct bnf_file *file;
};

static int get_lease(struct fixture *x, struct lease *l)
{
    Fp__Lease m = FP__LEASE__INIT;
    uint8_t buf[1000];
    struct fp_fdlink_reply_buf r = {.buf = buf, .buf_cap_bytes = sizeof(buf)};
    Fp__LeaseReply *reply;
    int rc;

    m.want_bytes = 8 * MIB;
    m.min_bytes = 2 * MIB;
    rc = fp_fdlink_call(x->link, FP__MSG_TYPE__MSG_LEASE, &m.base, 2000, &r);
    if (rc)
        return rc;
    reply = fp__lease_reply__unpack(NULL, r.in.msg_len_bytes, r.in.msg);
    assert_non_null(reply);
    l->id = reply->lease;
    l->at = reply->extents[0]->off;
    l->end = l->at + reply->extents[0]->len;
    l->file = bnf_file_new(r.fds[0], reply->extents[0]->o_direct, reply->extents[0]->segment,
                           reply->extents[0]->salt, 0);
    fp__lease_reply__free_unpacked(reply, NULL);
    return 0;
}

static int put(struct fixture *x, struct lease *l, uint64_t chunk, uint32_t len)
{
    Fp__Stored m = FP__STORED__INIT;
    Fp__Record rec = FP__RECORD__INIT, *recs = &rec;
    uint8_t *bytes =
        bnf_make_record(chunk, l->file->segment, l->file->salt, l->at, len, &rec.stored_bytes, &rec.sum);
    struct iovec iov = {.iov_base = bytes, .iov_len = rec.stored_bytes};
    uint64_t at = l->at;

    assert_int_equal(bnf_file_write(l->file, &iov, 1, at), 0);
    free(bytes);
    l->at += rec.stored_bytes;
    rec.chunk = chunk;
    rec.segment = l->file->segment;
    rec.off = at;
    rec.len = len;
    m.lease = l->id;
    m.records = &recs;
    m.n_records = 1;
    return fp_fdlink_call(x->link, FP__MSG_TYPE__MSG_STORED, &m.base, 2000, NULL);
}

/* Writes until the benefactor is dead. A chunk whose acknowledgement did not come is written again after the
 * restart. */
static void write_until_killed(struct fixture *x)
{
    struct lease l = {0};
    pthread_t killer;
    int rc = 0;

    assert_int_equal(pthread_create(&killer, NULL, kill_later, x), 0);
    while (rc == 0 && x->count < CHUNKS) {
        uint32_t len = (uint32_t)(1 + x->next_chunk * 7919 % MIB);

        if (!l.file || l.at + fp_record_size_bytes(len) > l.end) {
            bnf_file_put(l.file);
            l.file = NULL;
            rc = get_lease(x, &l);
            continue;
        }
        rc = put(x, &l, x->next_chunk, len);
        if (rc == 0) {
            x->chunks[x->count] = x->next_chunk++;
            x->lens[x->count++] = len;
        }
    }
    pthread_join(killer, NULL);
    assert_int_equal(waitpid(x->pid, NULL, 0), x->pid);
    bnf_file_put(l.file);
    fp_fdlink_close(x->link);
}

static void verify(struct fixture *x, size_t i)
{
    Fp__ChunkList m = FP__CHUNK_LIST__INIT;
    uint8_t buf[1000], *got, *want;
    struct fp_fdlink_reply_buf r = {.buf = buf, .buf_cap_bytes = sizeof(buf)};
    Fp__LocateReply *reply;
    struct bnf_file *f;
    uint32_t stored;
    uint64_t sum;

    m.ids = &x->chunks[i];
    m.n_ids = 1;
    assert_int_equal(fp_fdlink_call(x->link, FP__MSG_TYPE__MSG_LOCATE, &m.base, 2000, &r), 0);
    reply = fp__locate_reply__unpack(NULL, r.in.msg_len_bytes, r.in.msg);
    assert_non_null(reply);
    assert_int_equal(r.nfds, 1);
    f = bnf_file_new(r.fds[0], reply->o_direct[0], reply->records[0]->segment, reply->salts[0], 0);
    want =
        bnf_make_record(x->chunks[i], f->segment, f->salt, reply->records[0]->off, x->lens[i], &stored, &sum);
    got = aligned_alloc(4096, stored);
    assert_int_equal(reply->records[0]->stored_bytes, stored);
    assert_int_equal(bnf_file_read(f, got, stored, reply->records[0]->off), 0);
    assert_memory_equal(got, want, stored);
    bnf_file_put(f);
    free(want);
    free(got);
    fp__locate_reply__free_unpacked(reply, NULL);
}

static void test_crash_loses_nothing_acknowledged(void **state)
{
    struct fixture *x = *state;
    const char *seed = getenv("FP_SEED");

    srand(seed ? (unsigned)strtoul(seed, NULL, 0) : 1);
    x->next_chunk = 1;
    for (int round = 0; round < ROUNDS; round++) {
        start(x);
        for (size_t i = 0; i < x->count; i++)
            verify(x, i);
        write_until_killed(x);
    }
    assert_true(x->count > 0);
    start(x);
    for (size_t i = 0; i < x->count; i++)
        verify(x, i);
    kill(x->pid, SIGKILL);
    waitpid(x->pid, NULL, 0);
    fp_fdlink_close(x->link);
}

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));

    bnf_scratch_init(&x->t);
    snprintf(x->sock, sizeof(x->sock), "%s/local.sock", x->t.path);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;

    bnf_scratch_fini(&x->t);
    free(x);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_crash_loses_nothing_acknowledged, setup, teardown),
    };

    fp_log_init("test", FP_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
