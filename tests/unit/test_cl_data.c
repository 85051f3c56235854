/*
 * The data path of fp-mount as a whole, against byte arrays: several threads write, read, flush, truncate, punch, copy and reopen several
 * files; every read equals the array, and after a flush so does what another mount would see, which is built from the manager's
 * slices and the stored records alone. Delays in the models mix up the order of things. Replay a run with FP_SEED (threads make
 * that approximate).
 *
 * Threads share a file by owning alternating granules of it, so that the array needs no lock; operations on the whole file exclude
 * others by a lock of the test.
 *
 * test_cl_data_aux.c is the same with aux-apps in the way: it includes this file with WITH_AUX.
 */
#include "tests/unit/cl_fixture.h"
#ifdef WITH_AUX
#include "tests/unit/cl_fake_aux.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>

#define THREADS 4u
#define FILES 4u
#define SIZE_MAX_BYTES (3u << 20)

struct model {
    struct fx_mount *x; /* the mount that has it open */
    uint64_t ino;
    struct cl_handle h;
    pthread_rwlock_t lock;
    uint32_t granule;
    uint8_t *bytes; /* SIZE_MAX_BYTES */
    atomic_ullong size;
};

static struct fx_mount mnt[2];
static unsigned nmounts;
static struct model model[FILES];
static unsigned operations;
static atomic_uint refused;
static bool tight; /* the store is too small: a write may end with ENOSPC */
static atomic_bool chaos; /* links break and answers are lost: what fails for that is tried again */

/* Aux-apps find zeros, duplicates and patterns, so some are written. */
static void fill(struct rnd *r, uint8_t *buf, uint32_t len)
{
    fx_fill(buf, len, rnd_below(r, 251));
#ifdef WITH_AUX
    for (unsigned n = rnd_below(r, 3); n > 0; n--) {
        uint32_t from = rnd_below(r, len);

        memset(buf + from, 0, 1 + rnd_below(r, len - from));
    }
#endif
}

/* rc of an operation that may be done twice. */
#define TRIED(rc, expr)                                                                                                    \
    do {                                                                                                                   \
        int tries_ = 0;                                                                                                    \
        do                                                                                                                 \
            rc = (expr);                                                                                                   \
        while (rc < 0 && rc != -ENXIO && rc != -EINVAL && chaos && tries_++ < 200);                                        \
    } while (0)

static void must_flush(struct model *f, bool durable)
{
    int rc;

    TRIED(rc, durable ? cl_data_fsync(&f->x->m, f->h.inode) : cl_data_flush(&f->x->m, f->h.inode));
    WORLD_CHECK(rc == 0);
}

static void fail_at(const struct model *f, uint64_t off, const char *what)
{
    fprintf(stderr, "file %llu, byte %llu: %s\n", (unsigned long long)f->ino, (unsigned long long)off, what);
    WORLD_CHECK(!"contents differ");
}

static void compare(const struct model *f, const uint8_t *got, uint64_t off, size_t len, const char *what)
{
    if (memcmp(got, f->bytes + off, len) == 0)
        return;
    for (size_t i = 0; i < len; i++)
        if (got[i] != f->bytes[off + i]) {
            fprintf(stderr, "got %u, want %u; ", got[i], f->bytes[off + i]);
            fail_at(f, off + i, what);
        }
}

/* A random range within one granule of thread t. */
static uint64_t own_range(struct rnd *r, const struct model *f, unsigned t, uint32_t *len)
{
    uint32_t rounds = SIZE_MAX_BYTES / (f->granule * THREADS), in = rnd_below(r, f->granule);
    uint64_t base = ((uint64_t)rnd_below(r, rounds) * THREADS + t) * f->granule;

    if (rnd_below(r, 3) == 0)
        in = 0;
    *len = 1 + rnd_below(r, f->granule - in);
    if (rnd_below(r, 2))
        *len = 1 + rnd_below(r, *len < 5000 ? *len : 5000);
    return base + in;
}

/* False: refused, and nothing of it is there. */
static bool write_at(struct model *f, uint64_t off, const uint8_t *buf, uint32_t len)
{
    unsigned long long old = atomic_load(&f->size);
    ssize_t n = fx_write(f->x, &f->h, buf, len, off);

    if (tight && n == -ENOSPC) {
        atomic_fetch_add(&refused, 1);
        return false;
    }
    if (tight && n > 0)
        len = (uint32_t)n;
    if (n != (ssize_t)len) {
        fprintf(stderr, "write: %zd\n", n);
        fail_at(f, off, "write failed");
    }
    memcpy(f->bytes + off, buf, len);
    while (off + len > old && !atomic_compare_exchange_weak(&f->size, &old, off + len))
        ;
    return true;
}

static void op_write(struct rnd *r, struct model *f, unsigned t)
{
    uint32_t len;
    uint64_t off = own_range(r, f, t, &len);
    uint8_t *buf = malloc(len);

    fill(r, buf, len);
    (void)write_at(f, off, buf, len);
    free(buf);
}

static void op_read(struct rnd *r, struct model *f, unsigned t)
{
    uint32_t len;
    uint64_t off = own_range(r, f, t, &len), before = atomic_load(&f->size);
    uint8_t *buf = malloc(len);
    ssize_t n;
    uint64_t least = off >= before ? 0 : off + len <= before ? len : before - off;

    TRIED(n, fx_read(f->x, &f->h, buf, len, off));
    if (n > 0 && chaos) /* short when a later part failed */
        least = 0;
    if (n < (ssize_t)least) {
        fprintf(stderr, "read of %u: %zd, at least %llu; ", len, n, (unsigned long long)least);
        fail_at(f, off, "read failed or was short");
    }
    compare(f, buf, off, (size_t)n, "read");
    free(buf);
}

static void compare_whole(struct model *f)
{
    static _Thread_local uint8_t buf[1 << 20];
    uint64_t size = atomic_load(&f->size);
    struct stat st = {0};

    cl_inode_stat(&f->x->m, f->h.inode, &st);
    WORLD_CHECK((uint64_t)st.st_size == size);
    for (uint64_t off = 0; off < size;) {
        size_t want = size - off < sizeof buf ? (size_t)(size - off) : sizeof buf;
        ssize_t n;

        TRIED(n, fx_read(f->x, &f->h, buf, sizeof buf, off));
        if (n > 0 && chaos) /* short when a later part failed */
            want = (size_t)n;
        if (n != (ssize_t)want)
            fail_at(f, off, "read of the whole failed or was short");
        compare(f, buf, off, (size_t)n, "read of the whole");
        off += (uint64_t)n;
    }
    WORLD_CHECK(fx_read(f->x, &f->h, buf, 10, size) == 0);
}

/* What another mount sees; the file's lock is held for writing and it was flushed. */
static void compare_view(struct model *f)
{
    uint8_t *buf = malloc(SIZE_MAX_BYTES);

    WORLD_CHECK(world_view(f->ino, buf, SIZE_MAX_BYTES) == atomic_load(&f->size));
    compare(f, buf, 0, atomic_load(&f->size), "view of another mount");
    free(buf);
}

static void op_truncate(struct rnd *r, struct model *f)
{
    uint64_t old = f->size, size = rnd_below(r, 3) ? rnd_below(r, old + 1) : rnd_below(r, SIZE_MAX_BYTES);

    int rc;

    if (rnd_below(r, 5) == 0)
        size = 0;
    TRIED(rc, fx_truncate(f->x, &f->h, size));
    WORLD_CHECK(rc == 0);
    if (size < old)
        memset(f->bytes + size, 0, old - size);
    f->size = size;
}

static void op_fallocate(struct rnd *r, struct model *f)
{
    static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
                                FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
    int mode = modes[rnd_below(r, 5)], rc;
    uint64_t off = rnd_below(r, SIZE_MAX_BYTES - 1), len = 1 + rnd_below(r, SIZE_MAX_BYTES - off), end = off + len;

    if (rnd_below(r, 2))
        len = 1 + rnd_below(r, len < 70000 ? len : 70000), end = off + len;
    TRIED(rc, cl_data_fallocate(&f->x->m, &f->h, mode, off, len));
    if (tight && rc == -ENOSPC)
        return;
    WORLD_CHECK(rc == 0);
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
        memset(f->bytes + off, 0, len);
    if (!(mode & FALLOC_FL_KEEP_SIZE) && end > f->size)
        f->size = end;
}

static void op_copy(struct rnd *r, struct model *from, struct model *to)
{
    uint64_t off_in = rnd_below(r, SIZE_MAX_BYTES), off_out = rnd_below(r, SIZE_MAX_BYTES - 1);
    uint64_t len = 1 + rnd_below(r, SIZE_MAX_BYTES - off_out), want;
    ssize_t n;

    if (rnd_below(r, 2))
        len = 1 + rnd_below(r, len < 70000 ? len : 70000);
    if (from->x != to->x)
        return;
    TRIED(n, cl_data_copy_range(&to->x->m, &from->h, off_in, &to->h, off_out, len));
    want = off_in >= from->size ? 0 : len < from->size - off_in ? len : from->size - off_in;
    if (from == to && want > 0 && off_in < off_out + want && off_out < off_in + want) {
        WORLD_CHECK(n == -EINVAL);
        return;
    }
    WORLD_CHECK(n == (ssize_t)want);
    memmove(to->bytes + off_out, from->bytes + off_in, want);
    if (want > 0 && off_out + want > to->size)
        to->size = off_out + want;
}

static void op_seek(struct rnd *r, struct model *f)
{
    uint64_t off, at = f->size ? rnd_below(r, f->size) : 0;
    int rc;

    TRIED(rc, cl_data_lseek(&f->x->m, &f->h, at, SEEK_DATA, &off));
    if (rc == -ENXIO)
        off = f->size;
    else
        WORLD_CHECK(rc == 0 && off >= at);
    for (uint64_t i = at; i < off && i < f->size; i++)
        if (f->bytes[i])
            fail_at(f, i, "SEEK_DATA skipped data");
}

/* Close, and open on this or the other mount. */
static void op_reopen(struct rnd *r, struct model *f)
{
    must_flush(f, false);
    fx_check_file_quiet(&f->h);
    fx_close(f->x, &f->h);
    f->x = &mnt[rnd_below(r, nmounts)];
    fx_open(f->x, &f->h, f->ino);
}

static void exclusive_op(struct rnd *r)
{
    unsigned i = rnd_below(r, FILES), j = rnd_below(r, FILES), lo = i < j ? i : j, hi = i < j ? j : i;
    struct model *f = &model[i];

    pthread_rwlock_wrlock(&model[lo].lock);
    if (hi != lo)
        pthread_rwlock_wrlock(&model[hi].lock);
    switch (rnd_below(r, 12)) {
    case 0:
    case 1:
        op_truncate(r, f);
        break;
    case 2:
    case 3:
        op_fallocate(r, f);
        break;
    case 4:
    case 5:
        op_copy(r, f, &model[j]);
        break;
    case 6:
        op_seek(r, f);
        break;
    case 7:
        op_reopen(r, f);
        break;
    case 8:
        must_flush(f, false);
        fx_check_file_quiet(&f->h);
        compare_view(f);
        break;
    case 9:
        cl_age_tick(f->x->m.data, UINT64_MAX);
        cl_space_tick(f->x->m.data, fp_now_ms() + 10000, false);
        break;
    default:
        compare_whole(f);
    }
    if (hi != lo)
        pthread_rwlock_unlock(&model[hi].lock);
    pthread_rwlock_unlock(&model[lo].lock);
}

static void shared_op(struct rnd *r, unsigned t)
{
    struct model *f = &model[rnd_below(r, FILES)];
    uint32_t what = rnd_below(r, 100);

    pthread_rwlock_rdlock(&f->lock);
    if (what < 55)
        op_write(r, f, t);
    else if (what < 94)
        op_read(r, f, t);
    else if (what < 98)
        must_flush(f, false);
    else
        must_flush(f, true);
    pthread_rwlock_unlock(&f->lock);
}

static void *driver(void *arg)
{
    unsigned t = (unsigned)(uintptr_t)arg;
    struct rnd r;

    rnd_init(&r, rnd_seed(), 1000 + t);
    for (unsigned i = 0; i < operations; i++) {
        if (rnd_below(&r, 16) == 0)
            exclusive_op(&r);
        else
            shared_op(&r, t);
    }
    return NULL;
}

static void models_new(bool striped)
{
    static const uint32_t granule[FILES] = {300007, 5003, 70001, 1009};
    static const uint32_t window[FILES] = {1u << 20, 256u << 10, 64u << 10, 128u << 10};

    for (unsigned i = 0; i < FILES; i++) {
        struct model *f = &model[i];

        f->x = &mnt[i % nmounts];
        f->ino = world_file_new(window[i], striped ? i : 1);
        f->granule = granule[i];
        f->bytes = calloc(SIZE_MAX_BYTES, 1);
        f->size = 0;
        pthread_rwlock_init(&f->lock, NULL);
        fx_open(f->x, &f->h, f->ino);
    }
}

/* All files together are longer than a store that is too small, so one of these writes is refused in whatever state it is. */
static void fill_up(void)
{
    static uint8_t buf[64u << 10];
    struct rnd r;

    rnd_init(&r, rnd_seed(), 3000);
    for (unsigned i = 0; i < FILES; i++) {
        uint64_t off = 0;

        do
            fx_fill(buf, sizeof buf, rnd_below(&r, 251));
        while (write_at(&model[i], off, buf, sizeof buf) && (off += sizeof buf) < SIZE_MAX_BYTES);
    }
}

static void models_end(void)
{
    for (unsigned i = 0; i < FILES; i++) {
        struct model *f = &model[i];

        must_flush(f, false);
        fx_check_file_quiet(&f->h);
        compare_view(f);
        compare_whole(f);
        fx_close(f->x, &f->h);
        free(f->bytes);
        pthread_rwlock_destroy(&f->lock);
    }
}

/* Breaks things until told to end. */
static void *mischief(void *arg)
{
    struct rnd r;

    rnd_init(&r, rnd_seed(), 2000);
    while (chaos) {
        struct world_bnf *b = world_bnf(1 + rnd_below(&r, 3));

        world_mgr_back();
        b->break_executes = (int)rnd_below(&r, 2);
        switch (rnd_below(&r, 8)) {
        case 0:
            world_bnf_break(b);
            break;
        case 1:
            b->break_after = 1 + (int)rnd_below(&r, 10);
            break;
        case 2:
            b->store_err = -EIO;
            usleep(20000);
            b->store_err = 0;
            break;
        case 3:
            world_faults.mgr_lost_before = 1;
            break;
        case 4:
            world_faults.mgr_lost_after = 1;
            break;
        default:
            break;
        }
        usleep(1000 + rnd_below(&r, 30000));
    }
    for (uint32_t id = 1; id <= 3; id++)
        world_bnf(id)->break_after = 0;
    world_faults.mgr_lost_before = world_faults.mgr_lost_after = 0;
    world_mgr_back();
    return arg;
}

struct how {
    unsigned threads, ops, mounts;
    bool local, chaos;
    int delay_us;
    size_t pool_pages; /* 0: all */
    uint64_t capacity; /* of each of the three benefactors; 0: plenty */
    bool pieces, codes; /* what aux-apps do */
    bool rest;          /* … but not with all windows */
};

static void drive(const struct how *how)
{
    pthread_t t[THREADS], bad;

    chaos = how->chaos;
    operations = how->ops;
    for (uintptr_t i = 0; i < how->threads; i++)
        pthread_create(&t[i], NULL, driver, (void *)i);
    if (how->chaos)
        pthread_create(&bad, NULL, mischief, NULL);
    for (unsigned i = 0; i < how->threads; i++)
        pthread_join(t[i], NULL);
    if (how->chaos) {
        chaos = false;
        pthread_join(bad, NULL);
    }
}

static void run(struct how how)
{
    int fds = fx_open_fds();
    uint8_t *held[2][512];
    size_t nheld = how.pool_pages ? 512 - how.pool_pages : 0;

    (void)rnd_seed();
    world_faults.mgr_delay_us = world_faults.bnf_delay_us = how.delay_us;
#ifdef WITH_AUX
    fake_aux_start(rnd_seed());
    fake_aux.delay_us = how.delay_us;
    fake_aux.pieces = how.pieces;
    fake_aux.codes = how.codes;
    fake_aux.rest = fake_aux.rest_zeros = how.rest;
#endif
    world_core_start();
    for (uint32_t id = 1; id <= 3; id++)
        world_bnf_add(id, how.local && id == 1, how.capacity ? how.capacity : 400u << 20);
    tight = how.capacity > 0;
    refused = 0;
    nmounts = how.mounts;
    for (unsigned i = 0; i < nmounts; i++) {
        fx_start(&mnt[i], 7 + i, 60000);
        WORLD_CHECK(cl_pool_get(mnt[i].m.data->pool, held[i], nheld, fp_now_ms()) == 0);
    }
    models_new(!how.local || how.threads > 1);
    drive(&how);
    if (tight)
        fill_up();
    models_end();
    WORLD_CHECK(world_bad_chunks() == 0 || how.chaos);
    for (unsigned i = 0; i < nmounts; i++) {
        cl_pool_put(mnt[i].m.data->pool, held[i], nheld);
        fx_stop(&mnt[i]);
    }
#ifdef WITH_AUX
    fake_aux_stop();
#endif
    world_core_stop();
    world_bnf_fini();
    world_mgr_reset();
    assert_int_equal(fx_open_fds(), fds);
}

#ifdef __SANITIZE_THREAD__
#define OPS 500u
#else
#define OPS 2000u
#endif

#ifndef WITH_AUX

static void test_data_one_thread_own_node_equals_byte_arrays(void **state)
{
    (void)state;
    run((struct how){.threads = 1, .ops = 2 * OPS, .mounts = 1, .local = true});
}

static void test_data_threads_own_node_equal_byte_arrays(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS, .mounts = 1, .local = true, .delay_us = 300});
}

static void test_data_threads_other_nodes_equal_byte_arrays(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS, .mounts = 1, .delay_us = 300});
}

static void test_data_two_mounts_see_each_others_files_after_open(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS, .mounts = 2, .local = true, .delay_us = 300});
}

static void test_data_small_pool_only_slows_down(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS, .mounts = 1, .local = true, .delay_us = 300, .pool_pages = 150});
}

static void test_data_broken_links_and_lost_answers_cost_nothing(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS / 2, .mounts = 2, .local = true, .delay_us = 300, .chaos = true});
}

static void test_data_full_store_refuses_writes_and_keeps_the_rest(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS / 4, .mounts = 2, .local = true, .delay_us = 300, .capacity = 3u << 20});
    assert_true(refused > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_one_thread_own_node_equals_byte_arrays),
        cmocka_unit_test(test_data_threads_own_node_equal_byte_arrays),
        cmocka_unit_test(test_data_threads_other_nodes_equal_byte_arrays),
        cmocka_unit_test(test_data_two_mounts_see_each_others_files_after_open),
        cmocka_unit_test(test_data_small_pool_only_slows_down),
        cmocka_unit_test(test_data_full_store_refuses_writes_and_keeps_the_rest),
        cmocka_unit_test(test_data_broken_links_and_lost_answers_cost_nothing),
    };

    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
