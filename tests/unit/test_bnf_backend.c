/*
 * Both back ends through the same table: what is written is read, what is punched is free again and reads as
 * zeros, an unlinked segment gives its space back although somebody holds it open.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp/fault.h"
#include "tests/unit/bnf_util.h"

#define MIB   ((uint64_t)1 << 20)
#define LIMIT (64 * MIB)

struct fixture {
    struct bnf_scratch t;
    struct bnf_backend *b;
};

static int setup_dir(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));

    bnf_scratch_init(&x->t);
    assert_int_equal(bnf_backend_dir_new(x->t.dir_fd, &x->b), 0);
    *state = x;
    return 0;
}

static int setup_memory(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));

    bnf_scratch_init(&x->t);
    assert_int_equal(bnf_backend_memory_new(16 * MIB, &x->b), 0);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;

    fp_fault_set(NULL);
    bnf_backend_free(x->b);
    bnf_scratch_fini(&x->t);
    free(x);
    return 0;
}

static void test_backend_record_comes_back(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT);
    uint32_t stored;
    uint64_t sum;
    uint8_t *want = bnf_make_record(7, 1, f->salt, 4096, 777777, &stored, &sum),
            *got = aligned_alloc(4096, stored);
    struct fp_segment_header h;

    assert_int_equal(bnf_backend_alloc(x->b, f, 4096, 8 * MIB), 0);
    bnf_put_record(f, 7, 4096, 777777);
    assert_int_equal(bnf_backend_sync(x->b, f), 0);
    assert_int_equal(bnf_file_read(f, got, stored, 4096), 0);
    assert_memory_equal(want, got, stored);
    assert_int_equal(bnf_file_read(f, got, 4096, 0), 0);
    assert_int_equal(fp_segment_header_decode(got, &h), 0);
    assert_int_equal(h.salt, f->salt);
    assert_int_equal(bnf_file_read(f, got, 8192, LIMIT - 4096), -EIO); /* over the end */
    free(want);
    free(got);
    bnf_file_put(f);
}

static void test_backend_punch_frees_space(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT);
    uint8_t *got = aligned_alloc(4096, 4096), zeros[4096] = {0};

    assert_int_equal(bnf_backend_alloc(x->b, f, 4096, 8 * MIB), 0);
    bnf_put_record(f, 7, 4096, MIB);
    if (!x->b->ops->volatile_data)
        assert_true(bnf_file_space(f) >= 8 * MIB);
    assert_int_equal(bnf_backend_punch(x->b, f, 4096, LIMIT - 4096), 0);
    if (!x->b->ops->volatile_data) /* memory may be made ready at this moment */
        assert_in_range(bnf_file_space(f), 0, 65536);
    assert_int_equal(bnf_file_read(f, got, 4096, 4096), 0);
    assert_memory_equal(got, zeros, 4096);
    free(got);
    bnf_file_put(f);
}

static void test_backend_unlink_frees_space_of_open_files(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT), *g = bnf_new_segment(&x->t, x->b, 2, LIMIT);

    assert_int_equal(bnf_backend_alloc(x->b, f, 4096, 8 * MIB), 0);
    assert_int_equal(bnf_backend_alloc(x->b, g, 4096, 4096), 0);
    assert_int_equal(bnf_backend_unlink(x->b, f), 0);
    assert_int_equal(bnf_file_space(f), 0);
    assert_int_equal(bnf_backend_unlink(x->b, NULL), 0);
    bnf_file_put(f);
    bnf_file_put(g);
}

static void test_backend_leases_in_any_order_are_allocated(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT);

    for (uint64_t i = 0; i < 60; i += 6)
        assert_int_equal(bnf_backend_alloc(x->b, f, 4096 + i * MIB, 6 * MIB), 0);
    for (int i = 0; i < 500 && bnf_file_space(f) < 60 * MIB; i++)
        usleep(10000); /* memory is made ready beside us */
    assert_true(bnf_file_space(f) >= 60 * MIB);
    bnf_file_put(f);
}

/* A segment that is left while a stretch of it is being made ready keeps what was written into its leases. */
static void test_backend_leaving_a_segment_keeps_its_data(void **state)
{
    enum { SEGMENTS = 24, STRETCH = 4096 + 12 * (1 << 20) };
    struct fixture *x = *state;
    struct bnf_file *f[SEGMENTS];
    static uint8_t page[4096] __attribute__((aligned(4096))), got[4096] __attribute__((aligned(4096)));

    memset(page, 0x5a, sizeof(page));
    for (unsigned i = 0; i < SEGMENTS; i++) {
        f[i] = bnf_new_segment(&x->t, x->b, i + 1, LIMIT);
        assert_int_equal(bnf_backend_alloc(x->b, f[i], 4096, STRETCH - 4096), 0);
        usleep(i % 8 * 250); /* memory is made ready beside us: leave it at different moments */
        for (uint64_t off = 4096; off < STRETCH; off += MIB / 4) {
            struct iovec iov = {page, sizeof(page)};

            assert_int_equal(bnf_file_write(f[i], &iov, 1, off), 0);
        }
    }
    for (unsigned i = 0; i < SEGMENTS; i++) {
        for (uint64_t off = 4096; off < STRETCH; off += MIB / 4) {
            assert_int_equal(bnf_file_read(f[i], got, sizeof(got), off), 0);
            assert_memory_equal(got, page, sizeof(page));
        }
        bnf_file_put(f[i]);
    }
}

static void test_backend_reports_free_space(void **state)
{
    struct fixture *x = *state;
    uint64_t bytes = 0;

    assert_int_equal(x->b->ops->device_free(x->b, &bytes), 0);
    assert_true(bytes > MIB);
    assert_int_equal(bnf_backend_probe(x->b), 0);
}

static void test_backend_mark_is_kept_until_it_is_torn(void **state)
{
    const uint64_t first[2] = {11, 12}, second[2] = {11, 13};
    struct fixture *x = *state;
    uint64_t mark[2];
    int fd;

    assert_int_equal(x->b->ops->kept(x->b, mark), -ENOENT);
    assert_int_equal(x->b->ops->keep(x->b, first), 0);
    assert_int_equal(x->b->ops->keep(x->b, second), 0);
    assert_int_equal(x->b->ops->kept(x->b, mark), 0);
    assert_memory_equal(mark, second, sizeof(mark));
    fd = openat(x->t.dir_fd, "unsynced-life", O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 3), 1);
    close(fd);
    assert_int_equal(x->b->ops->kept(x->b, mark), -ENOENT);
}

static void test_backend_fault_points_fail_the_call(void **state)
{
    struct fixture *x = *state;
    struct bnf_file *f = bnf_new_segment(&x->t, x->b, 1, LIMIT);

#ifdef FP_FAULT
    assert_int_equal(fp_fault_set("bnf.fallocate=ENOSPC:count=1,bnf.fdatasync=EIO:count=1"), 0);
    assert_int_equal(bnf_backend_alloc(x->b, f, 4096, MIB), -ENOSPC);
    assert_int_equal(bnf_backend_alloc(x->b, f, 4096, MIB), 0);
    assert_int_equal(bnf_backend_sync(x->b, f), -EIO);
    assert_int_equal(bnf_backend_sync(x->b, f), 0);
#endif
    bnf_file_put(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define D(f) {#f "(dir)", f, setup_dir, teardown, NULL}
#define M(f)                                                                                                 \
    {                                                                                                        \
#f "(memory)", f, setup_memory, teardown, NULL                                                       \
    }
        D(test_backend_record_comes_back),
        M(test_backend_record_comes_back),
        D(test_backend_punch_frees_space),
        M(test_backend_punch_frees_space),
        D(test_backend_unlink_frees_space_of_open_files),
        M(test_backend_unlink_frees_space_of_open_files),
        D(test_backend_leases_in_any_order_are_allocated),
        M(test_backend_leases_in_any_order_are_allocated),
        D(test_backend_leaving_a_segment_keeps_its_data),
        M(test_backend_leaving_a_segment_keeps_its_data),
        D(test_backend_reports_free_space),
        M(test_backend_reports_free_space),
        D(test_backend_mark_is_kept_until_it_is_torn),
        D(test_backend_fault_points_fail_the_call),
        M(test_backend_fault_points_fail_the_call),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
