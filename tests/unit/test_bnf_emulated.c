/*
 * Emulated devices by a clock of our own, which goes on only by what is waited for: what a benefactor writes and reads takes what it would take on
 * the device, to the nanosecond. Nothing here depends on how fast this machine is.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "fp/backend.h"
#include "fp/fault.h"
#include "tests/unit/bnf_util.h"

#define MIB    ((uint64_t)1 << 20)
#define LIMIT  (64 * MIB)
#define SECOND 1000000000ull
#define CREDIT ((uint64_t)FP_LIMITER_CREDIT_NS)

static uint64_t now_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
    (void)clock;
    *ts = (struct timespec){.tv_sec = (time_t)(now_ns / SECOND), .tv_nsec = (long)(now_ns % SECOND)};
    return 0;
}

int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    uint64_t ns = (uint64_t)until->tv_sec * SECOND + (uint64_t)until->tv_nsec;

    (void)left;
    assert_int_equal(clock, CLOCK_MONOTONIC);
    assert_int_equal(flags, TIMER_ABSTIME);
    assert_true(ns > now_ns);
    now_ns = ns;
    return 0;
}

struct fixture {
    struct bnf_scratch t;
    struct bnf_backend *b;
    struct bnf_file *f;
    uint8_t *buf;
    uint64_t began_ns; /* the device is idle */
};

/* text is what a user writes. */
static struct fixture *device(const char *text)
{
    struct fixture *x = calloc(1, sizeof(*x));
    struct fp_backend_spec s;
    char why[FP_BACKEND_WHY_BUF];

    now_ns = 100 * SECOND;
    bnf_scratch_init(&x->t);
    assert_int_equal(fp_backend_parse(text, &s, why), 0);
    assert_int_equal(s.kind == FP_BACKEND_MEMORY ? bnf_backend_memory_new(16 * MIB, &x->b) : bnf_backend_dir_new(x->t.dir_fd, &x->b), 0);
    assert_int_equal(bnf_backend_emulate(x->b, &s.speed), 0);
    x->f = bnf_new_segment(&x->t, x->b, 1, LIMIT);
    x->buf = aligned_alloc(4096, MIB + 4096);
    memset(x->buf, 1, MIB + 4096);
    now_ns += SECOND;
    x->began_ns = now_ns - CREDIT;
    return x;
}

static void end(struct fixture *x)
{
    fp_fault_set(NULL);
    bnf_file_put(x->f);
    bnf_backend_free(x->b);
    bnf_scratch_fini(&x->t);
    free(x->buf);
    free(x);
}

static void put(struct fixture *x, uint64_t bytes, uint64_t off)
{
    struct iovec iov[2] = {{x->buf, 4096}, {x->buf + 4096, bytes - 4096}};

    assert_int_equal(bnf_file_write(x->f, iov, bytes > 4096 ? 2 : 1, off), 0);
}

static void test_ten_seconds_of_each_are_what_is_named(void **state)
{
    struct fixture *x = device("emulated:x25e,over=memory");
    const uint64_t record = MIB + 4096, want[4] = {175000000, 250000000, 3300, 35000};

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        uint64_t bytes = kind < 2 ? record : 4096, per_op = kind < 2 ? record : 1, cost = (per_op * SECOND + want[kind] / 2) / want[kind], ops = 0, took;

        now_ns += SECOND;
        x->began_ns = now_ns - CREDIT;
        for (; now_ns - x->began_ns < 10 * SECOND; ops++) {
            if (kind % 2 == 0)
                put(x, bytes, 4096 + ops % 60 * record);
            else
                assert_int_equal(bnf_file_read(x->f, x->buf, bytes, 4096 + ops % 60 * record), 0);
        }
        took = now_ns - x->began_ns;
        assert_int_equal(took, ops * cost); /* exact, but for the nanosecond that an operation is rounded to */
        /* By the clock on the wall, which does not know of the 10 ms of credit: within a fifth of 0.57 %. */
        assert_in_range(ops * per_op * 10000 / want[kind] * SECOND / (took - CREDIT), 9989, 10011);
    }
    end(x);
}

static void test_an_operation_is_one_whatever_its_parts(void **state)
{
    struct fixture *x = device("emulated:write=175MB/s,write-iops=3300");

    (void)state;
    put(x, 8192, 4096); /* two parts, one operation */
    assert_int_equal(now_ns, x->began_ns + 303030 > x->began_ns + CREDIT ? x->began_ns + 303030 : x->began_ns + CREDIT);
    for (int i = 0; i < 3299; i++)
        put(x, 8192, 4096);
    assert_int_equal(now_ns, x->began_ns + 3300 * 303030ull);
    assert_int_equal(bnf_file_read(x->f, x->buf, MIB, 4096), 0); /* not limited */
    assert_int_equal(now_ns, x->began_ns + 3300 * 303030ull);
    end(x);
}

static void test_segments_and_recovery_take_their_time(void **state)
{
    struct fixture *x = device("emulated:write-iops=100,read-iops=100");
    struct bnf_file *f, *g;
    bool read_only;

    (void)state;
    for (uint64_t id = 2; id < 12; id++) { /* headers of new segments */
        f = bnf_new_segment(&x->t, x->b, id, LIMIT);
        bnf_file_put(f);
    }
    assert_int_equal(now_ns, x->began_ns + 100000000);
    assert_int_equal(bnf_backend_dir_open(x->b, "seg-0000000000000002", &read_only, &g), 0);
    assert_int_equal(bnf_file_read(g, x->buf, 4096, 0), 0);
    assert_int_equal(now_ns, x->began_ns + 110000000);
    bnf_file_put(g);
    end(x);
}

static void test_operations_that_fail_come_back_late_too(void **state)
{
    struct fixture *x = device("emulated:read=20MB/s");

    (void)state;
    assert_int_equal(bnf_file_read(x->f, x->buf, MIB, LIMIT - 4096), -EIO); /* over the end */
    assert_int_equal(now_ns, x->began_ns + 52428800);
    end(x);
}

static void test_other_processes_share_the_device(void **state)
{
    struct fixture *x = device("emulated:read=20MB/s");
    struct fp_limiter *other;

    (void)state;
    assert_int_equal(fp_limiter_map(x->b->limiter_fd, &other), 0); /* as fp-drain does with what it is given */
    assert_int_equal(fp_limiter_take(other, false, MIB, now_ns), x->began_ns + 52428800);
    assert_int_equal(bnf_file_read(x->f, x->buf, MIB, 4096), 0);
    assert_int_equal(now_ns, x->began_ns + 2 * 52428800);
    fp_limiter_unmap(other);
    end(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_seconds_of_each_are_what_is_named),
        cmocka_unit_test(test_an_operation_is_one_whatever_its_parts),
        cmocka_unit_test(test_segments_and_recovery_take_their_time),
        cmocka_unit_test(test_operations_that_fail_come_back_late_too),
        cmocka_unit_test(test_other_processes_share_the_device),
    };

    return cmocka_run_group_tests_name("bnf_emulated", tests, NULL, NULL);
}
