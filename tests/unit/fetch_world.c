/* The world of the tests of chunks that come back from a target: see fetch_world.h. */
#include "tests/unit/fetch_world.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp/checksum.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"

struct fetch_world x;

static uint32_t bnf_id(void *arg)
{
    return arg ? 0 : BNF_ID;
}

static void nothing(void *arg)
{
    (void)arg;
}

static void pressed(void *arg, bool on)
{
    (void)arg, (void)on;
}

void fw_turn(void)
{
    uv_run(&x.loop, UV_RUN_ONCE); /* the timer ends it */
}

static void on_done(void *arg, int status)
{
    (void)arg;
    x.done = true;
    x.status = status;
}

static void on_leased(void *arg, int status, uint64_t lease)
{
    on_done(arg, status);
    x.lease = lease;
}

static int wait_done(void)
{
    while (!x.done)
        fw_turn();
    x.done = false;
    return x.status;
}

static void start_drain(const char *program, uint64_t give_up_ms)
{
    struct bnf_drain_config c = { .loop = &x.loop, .service = x.service, .program = program, .target_timeout_ms = x.timeout_ms, .give_up_ms = give_up_ms,
                                  .threads = 2, .on = true, .bnf_id = bnf_id, .results = nothing, .changed = nothing };

    assert_int_equal(bnf_drain_new(&c, &x.drain), 0);
}

static void find_program(void)
{
    ssize_t n = readlink("/proc/self/exe", x.program, 4096);

    assert_true(n > 0);
    for (int i = 0; i < 3; i++) /* tests/unit/test_x */
        *strrchr(x.program, '/') = '\0';
    strcat(x.program, "/bin/fp-drain");
}

const char *fw_path_of(const char *name)
{
    static char path[700];

    snprintf(path, sizeof(path), "%s/%s", x.root, name);
    return path;
}

/* The drained file: MiB i of it is chunk FIRST + i. */
void fw_make_file(void)
{
    FILE *f = fopen(fw_path_of("dir/file"), "w");

    assert_non_null(f);
    assert_int_equal(fwrite(x.data, 1, SIZE, f), SIZE);
    fclose(f);
    assert_int_equal(stat(fw_path_of("dir/file"), &x.st), 0);
    fp__ext_file__init(&x.file);
    x.file.target = 1;
    x.file.root = x.root;
    x.file.uuid = (ProtobufCBinaryData){ 16, (uint8_t *)(uintptr_t) "0123456789abcdef" };
    x.file.path = (ProtobufCBinaryData){ 8, (uint8_t *)(uintptr_t) "dir/file" };
    x.file.ino = x.st.st_ino;
    x.file.size_bytes = SIZE;
    x.file.mtime_ns = (int64_t)x.st.st_mtim.tv_sec * 1000000000 + x.st.st_mtim.tv_nsec;
}

static void make_target(void)
{
    FILE *f;

    snprintf(x.root, sizeof(x.root), "%.*s-target", (int)sizeof(x.t.path) - 1, strdupa(x.t.path));
    assert_int_equal(mkdir(x.root, 0755), 0);
    assert_int_equal(mkdir(fw_path_of("dir"), 0755), 0);
    f = fopen(fw_path_of(".fp-target"), "w");
    for (int i = 0; i < 16; i++)
        fprintf(f, "%02x", x.t.store_uuid[i]);
    fputc(' ', f);
    for (int i = 0; i < 16; i++)
        fprintf(f, "%02x", "0123456789abcdef"[i]);
    fputc('\n', f);
    fclose(f);
    fw_make_file();
}

int fw_setup(void **state)
{
    struct bnf_service_config c = { .loop = &x.loop, .threads = 2, .device_timeout_ms = 5000, .buffer_bytes = 32 * MIB, .capacity_bytes = CAPACITY, .segment_bytes = 32 * MIB,
                                    .random = 4711, .changed = nothing, .pressed = pressed };

    (void)state;
    memset(&x, 0, sizeof(x));
    x.timeout_ms = 20000;
    unsetenv("FP_FAULTS");
    find_program();
    bnf_scratch_init(&x.t);
    x.data = malloc(CHUNKS * MIB);
    for (uint32_t i = 0; i < CHUNKS; i++)
        bnf_fill(FIRST + i, x.data + i * MIB, MIB);
    make_target();
    uv_loop_init(&x.loop);
    uv_timer_init(&x.loop, &x.timer);
    uv_timer_start(&x.timer, (uv_timer_cb)nothing, 5, 5);
    assert_int_equal(bnf_backend_dir_new(x.t.dir_fd, &x.backend), 0);
    memcpy(c.store_uuid, x.t.store_uuid, 16);
    memcpy(c.bnf_uuid, x.t.bnf_uuid, 16);
    c.backend = x.backend;
    assert_int_equal(bnf_service_new(&c, &x.service), 0);
    assert_int_equal(bnf_service_start(x.service), 0);
    x.owner = bnf_service_owner_new(x.service);
    start_drain(x.program, 600000);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return (void)st, (void)type, (void)ftw, remove(path);
}

int fw_teardown(void **state)
{
    (void)state;
    bnf_drain_stop(x.drain);
    bnf_drain_free(x.drain);
    bnf_service_owner_gone(x.service, x.owner);
    bnf_service_drain(x.service, 10000, on_done, NULL);
    assert_int_equal(wait_done(), 0);
    bnf_store_check(bnf_service_store(x.service));
    bnf_service_free(x.service);
    uv_close((uv_handle_t *)&x.timer, NULL);
    uv_run(&x.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&x.loop), 0);
    bnf_backend_free(x.backend);
    nftw(x.root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    bnf_scratch_fini(&x.t);
    free(x.data);
    fp_fault_set(NULL);
    return unsetenv("FP_FAULTS");
}

/* With faults in each fp-drain that is started from here on. */
void fw_restart(const char *faults, uint64_t give_up_ms)
{
    bnf_drain_stop(x.drain);
    bnf_drain_free(x.drain);
    setenv("FP_FAULTS", faults, 1);
    start_drain(x.program, give_up_ms);
}

/* -------------------------------------------------------------- asking */

uint32_t fw_len_of(uint32_t i)
{
    return i == CHUNKS - 1 ? (uint32_t)(SIZE - i * MIB) : (uint32_t)MIB;
}

uint64_t fw_sum_of(uint32_t i)
{
    uint64_t sums[FP_BLOCKS_MAX];

    fp_sum_blocks(x.data + i * MIB, fw_len_of(i), sums);
    return fp_sum_chunk(sums, fp_sum_nblocks(fw_len_of(i)), fw_len_of(i));
}

void fw_on_fetched(void *arg, int status, const struct bnf_fetched *f)
{
    struct told *t = arg;
    uint32_t i = f && f->len_bytes == fw_len_of(CHUNKS - 1) ? CHUNKS - 1 : 0;

    assert_false(t->done);
    t->done = true;
    t->status = status;
    if (!f)
        return;
    t->stored = f->stored;
    t->nblocks = f->nblocks;
    t->handle = f->handle;
    while (f->len_bytes == MIB && i < CHUNKS && fp_sum_chunk(f->block_sums, f->nblocks, f->len_bytes) != fw_sum_of(i))
        i++;
    t->right = i < CHUNKS && fp_sum_chunk(f->block_sums, f->nblocks, f->len_bytes) == fw_sum_of(i) &&
               (f->stored ? !f->data : memcmp(f->data, x.data + i * MIB, f->len_bytes) == 0);
}

int fw_fetch(uint32_t i, bool payload, struct told *t)
{
    Fp__Fetch m = FP__FETCH__INIT;

    memset(t, 0, sizeof(*t));
    m.chunk = FIRST + i;
    m.len = fw_len_of(i);
    m.sum = fw_sum_of(i);
    m.off = i * MIB;
    m.file = &x.file;
    m.want_payload = payload;
    return bnf_drain_fetch(x.drain, &m, fw_on_fetched, t);
}

int fw_wait_told(struct told *t)
{
    uint64_t until = fp_now_ms() + 30000;

    while (!t->done) {
        assert_true(fp_now_ms() < until);
        fw_turn();
    }
    return t->status;
}

int fw_fetched(uint32_t i, struct told *t)
{
    int rc = fw_fetch(i, false, t);

    return rc ? rc : fw_wait_told(t);
}

static void on_read(void *arg, int status, const struct bnf_read *r)
{
    *(bool *)arg = status == 0 && r->len_bytes == r->chunk_len_bytes;
    for (uint32_t i = 0; status == 0 && i < CHUNKS; i++)
        if (r->block_sums[0] && fw_len_of(i) == r->len_bytes && memcmp(r->data, x.data + i * MIB, r->len_bytes) == 0)
            x.lease = i;
    if (status == 0)
        bnf_service_read_end(x.service, r->handle);
    on_done(NULL, status);
}

/* Is it here, as a record like any other? */
bool fw_is_here(uint32_t i)
{
    bool whole = false;

    if (bnf_service_read(x.service, FIRST + i, 0, fw_len_of(i), on_read, &whole))
        return false;
    x.lease = CHUNKS;
    return wait_done() == 0 && whole && x.lease == i;
}

/* What the manager is told of: their number, in order of ids. */
size_t fw_staged(uint64_t *ids, bool taken)
{
    Fp__Staged *list[CHUNKS];
    size_t n = bnf_drain_staged(x.drain, list, CHUNKS);

    for (size_t i = 0; i < n; i++) {
        assert_int_equal(list[i]->stored_bytes, fp_record_size_bytes(fw_len_of((uint32_t)(list[i]->chunk - FIRST))));
        if (ids)
            ids[i] = list[i]->chunk;
    }
    bnf_drain_told(x.drain, taken);
    return n;
}

void fw_delete(uint32_t i)
{
    uint64_t id = FIRST + i;

    assert_int_equal(bnf_service_delete(x.service, &id, 1, on_done, NULL), 0);
    assert_int_equal(wait_done(), 0);
}

void fw_damage(uint32_t i)
{
    struct bnf_place at;
    char name[64];
    int fd;

    assert_int_equal(bnf_store_find(bnf_service_store(x.service), FIRST + i, &at), 0);
    snprintf(name, sizeof(name), "seg-%016llx", (unsigned long long)at.segment);
    fd = openat(x.t.dir_fd, name, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "damage", 6, (off_t)(at.off_bytes + 4096 + 700000)), 6);
    close(fd);
    assert_false(fw_is_here(i));
}

void fw_fill_up(uint64_t leave)
{
    uint64_t have;

    while ((have = bnf_store_leasable(bnf_service_store(x.service))) > leave + 4096) {
        assert_int_equal(bnf_service_lease(x.service, x.owner, false, have - leave < MIB ? have - leave : MIB, 4096, on_leased, NULL), 0);
        assert_int_equal(wait_done(), 0);
    }
}
