/* Emulated devices: what is done in any time is what the named rate allows, whoever does it and however late sleeps end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/limiter.h"
#include "fp/memfd.h"

#define SECOND 1000000000ull
#define MIB    1048576ull

static const struct fp_limiter_spec x25e = {175000000, 250000000, 3300, 35000};

static struct fp_limiter *device(const struct fp_limiter_spec *spec)
{
    struct fp_limiter *l;
    assert_int_equal(fp_limiter_new(spec, &l, NULL), 0);
    return l;
}

/* ---------------------------------------------------------------- words */

static void accepts(const char *text, uint64_t w, uint64_t r, uint64_t wi, uint64_t ri)
{
    struct fp_limiter_spec got;
    char why[FP_LIMITER_WHY_BUF] = "";
    if (fp_limiter_spec(text, &got, why) != 0 || got.write_bps != w || got.read_bps != r || got.write_iops != wi || got.read_iops != ri)
        fail_msg("'%s': %s", text, why);
}

static void refuses(const char *text, const char *say)
{
    struct fp_limiter_spec got = {1, 2, 3, 4};
    char why[FP_LIMITER_WHY_BUF] = "";
    assert_int_equal(fp_limiter_spec(text, &got, why), -EINVAL);
    if (got.write_bps != 1 || got.read_iops != 4 || !strstr(why, say))
        fail_msg("'%s': '%s' does not say '%s'", text, why, say);
}

static void test_words_name_rates_and_operations(void **state)
{
    (void)state;
    accepts("x25e", 175000000, 250000000, 3300, 35000);
    accepts("write=175MB/s,read=250MB/s,write-iops=3300,read-iops=35000", 175000000, 250000000, 3300, 35000);
    accepts("read-iops=10,write=85MB/s", 85000000, 0, 0, 10);
    accepts("write=1MB/s", 1000000, 0, 0, 0);
}

static void test_words_that_are_wrong_are_told(void **state)
{
    char longer[400];
    (void)state;
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    refuses("", "give x25e, or words");
    refuses("x25", "give x25e, or words");
    refuses("write=175MB/s,", "give x25e, or words");
    refuses("writes=175MB/s", "did you mean write");
    refuses("zzzzzzzz=1", "there are write, read");
    refuses("write=175MB", "175MB");
    refuses("write=0", "1MB/s or more");
    refuses("write=999kB/s", "1MB/s or more");
    refuses("write-iops=9", "10 to 100000000");
    refuses("write-iops=100000001", "10 to 100000000");
    refuses("read-iops=many", "many");
    refuses("write=5MB/s,write=6MB/s", "twice");
    refuses(longer, "too long");
}

/* ---------------------------------------------------------------- the clock */

static void test_an_operation_takes_what_its_bytes_or_its_number_take(void **state)
{
    struct fp_limiter *l = device(&x25e);
    uint64_t t = 100 * SECOND;
    (void)state;
    /* By bytes: 1 MiB at 175 MB/s and at 250 MB/s. By number: 512 bytes at 3,300 and 35,000 a second. */
    assert_int_equal(fp_limiter_take(l, true, MIB, t), t - FP_LIMITER_CREDIT_NS + 5991863);
    t += SECOND;
    assert_int_equal(fp_limiter_take(l, false, MIB, t), t - FP_LIMITER_CREDIT_NS + 4194304);
    t += SECOND;
    assert_int_equal(fp_limiter_take(l, true, 512, t), t - FP_LIMITER_CREDIT_NS + 303030);
    t += SECOND;
    assert_int_equal(fp_limiter_take(l, false, 512, t), t - FP_LIMITER_CREDIT_NS + 28571);
    fp_limiter_unmap(l);
}

static void test_operations_of_both_directions_wait_for_each_other(void **state)
{
    struct fp_limiter *l = device(&x25e);
    uint64_t t = 100 * SECOND, w = fp_limiter_take(l, true, MIB, t);
    (void)state;
    assert_int_equal(fp_limiter_take(l, false, MIB, t + 1), w + 4194304);
    assert_int_equal(fp_limiter_take(l, true, MIB, t + 2), w + 4194304 + 5991863);
    fp_limiter_unmap(l);
}

static void test_no_limit_costs_nothing(void **state)
{
    static const struct fp_limiter_spec reads_only = {.read_bps = 1000000};
    struct fp_limiter *l = device(&reads_only);
    (void)state;
    for (int i = 0; i < 1000; i++)
        assert_true(fp_limiter_take(l, true, 64 * MIB, 5 * SECOND) <= 5 * SECOND);
    assert_true(fp_limiter_take(l, false, 1000000, 5 * SECOND) >= 6 * SECOND - FP_LIMITER_CREDIT_NS);
    fp_limiter_unmap(l);
}

static void test_idle_time_is_not_saved_up(void **state)
{
    struct fp_limiter *l = device(&x25e);
    uint64_t t = 100 * SECOND, end = 0, bytes = 0;
    (void)state;
    fp_limiter_take(l, true, MIB, t);
    t += 3600 * SECOND;
    while (end < t + SECOND) {
        end = fp_limiter_take(l, true, 65536, t);
        bytes += 65536;
    }
    assert_in_range(bytes, 175000000, 175000000 + 2 * 65536 + 1750000);
    fp_limiter_unmap(l);
}

static void test_a_clock_that_someone_has_spoilt_makes_nobody_wait_for_ever(void **state)
{
    static const struct fp_limiter_spec slow = {.write_bps = 1000000};
    struct fp_limiter *l = device(&slow);
    (void)state;
    fp_limiter_take(l, true, 1ull << 50, SECOND); /* 35 years */
    assert_true(fp_limiter_take(l, true, 1000000, SECOND) <= 2 * SECOND);
    fp_limiter_unmap(l);
}

/* Programs that issue the next operation when the one before has ended, in virtual time. */
struct program {
    uint64_t wakes;
    uint64_t late_max; /* a sleep lasts up to so much too long */
    uint64_t size;     /* 0: mixed */
};

static double rate_of(struct program *p, int n, bool write, uint64_t for_ns)
{
    struct fp_limiter *l = device(&x25e);
    uint64_t begin = 1000 * SECOND, now = begin, bytes = 0;
    unsigned seed = 7;
    for (int i = 0; i < n; i++)
        p[i].wakes = begin;
    for (;;) {
        struct program *first = p;
        for (int i = 1; i < n; i++)
            first = p[i].wakes < first->wakes ? &p[i] : first;
        now = first->wakes;
        if (now >= begin + for_ns)
            break;
        uint64_t size = first->size ? first->size : 65536 + (uint64_t)rand_r(&seed) % (4 * MIB);
        uint64_t until = fp_limiter_take(l, write, size, now);
        if (until < begin + for_ns)
            bytes += size;
        if (until > now)
            first->wakes = until + (first->late_max ? (uint64_t)rand_r(&seed) % first->late_max : 0);
    }
    fp_limiter_unmap(l);
    return (double)bytes / ((double)for_ns / 1e9);
}

static void within(double got, double named, double share)
{
    if (got < named * (1 - share) || got > named * (1 + share))
        fail_msg("%.0f instead of %.0f: off by %.3f %%", got, named, 100 * (got / named - 1));
}

static void test_one_program_that_wakes_late_gets_the_named_rate(void **state)
{
    struct program p[] = {{.late_max = 9000000, .size = MIB}};
    (void)state;
    within(rate_of(p, 1, true, 10 * SECOND), 175e6, 0.003);
    within(rate_of(p, 1, false, 10 * SECOND), 250e6, 0.003);
}

static void test_one_program_with_small_operations_gets_the_named_number(void **state)
{
    struct program p[] = {{.late_max = 400000, .size = 4096}};
    (void)state;
    within(rate_of(p, 1, true, 10 * SECOND) / 4096, 3300, 0.003);
    within(rate_of(p, 1, false, 10 * SECOND) / 4096, 35000, 0.003);
}

static void test_four_programs_with_mixed_sizes_get_the_named_rate_together(void **state)
{
    struct program p[] = {{.late_max = 500000}, {.late_max = 15000000}, {.late_max = 100000}, {.late_max = 3000000}};
    (void)state;
    within(rate_of(p, 4, true, 10 * SECOND), 175e6, 0.005); /* what is under way at the end: up to 4 MiB of 1,750 MB */
    within(rate_of(p, 4, false, 10 * SECOND), 250e6, 0.005);
}

/* ---------------------------------------------------------------- several processes */

static void wait_for(int n)
{
    for (int i = 0; i < n; i++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
}

/* All at the same time: they wait for each other at the pipe. */
static void take_many(int fd, int gate, unsigned n, uint64_t t)
{
    struct fp_limiter *mine;
    char c;
    if (fp_limiter_map(fd, &mine) != 0 || read(gate, &c, 1) != 0)
        _exit(1);
    for (unsigned k = 0; k < n; k++)
        fp_limiter_take(mine, true, 4096, t);
    _exit(0);
}

static void test_processes_share_the_device_and_no_operation_is_lost(void **state)
{
    enum { CHILDREN = 4, OPS = 1000000 };
    static const struct fp_limiter_spec fast = {.write_iops = FP_LIMITER_IOPS_MAX, .read_iops = 35000};
    struct fp_limiter *l, *again;
    int fd, gate[2];
    (void)state;
    assert_int_equal(fp_limiter_new(&fast, &l, &fd), 0);
    assert_int_equal(pipe(gate), 0);
    uint64_t t = 10 * SECOND, first = fp_limiter_take(l, true, 0, t);
    for (int i = 0; i < CHILDREN; i++) {
        if (fork() == 0) {
            close(gate[1]);
            take_many(fd, gate[0], OPS, t);
        }
    }
    close(gate[1]);
    wait_for(CHILDREN);
    close(gate[0]);
    assert_int_equal(fp_limiter_map(fd, &again), 0);
    assert_int_equal(fp_limiter_take(again, true, 0, t), first + (CHILDREN * OPS + 1) * 10ull);
    struct fp_limiter_count count = fp_limiter_count(l);
    assert_int_equal(count.writes, CHILDREN * OPS + 2);
    assert_int_equal(count.write_bytes, CHILDREN * OPS * 4096ull);
    assert_int_equal(count.reads + count.read_bytes, 0);
    assert_int_equal(fp_limiter_speed(again).read_iops, 35000);
    fp_limiter_unmap(l);
    fp_limiter_unmap(again);
    close(fd);
}

static void sleeping_writer(struct fp_limiter *l, uint64_t end)
{
    uint64_t now;
    while ((now = fp_now_ns()) < end) {
        uint64_t until = fp_limiter_take(l, true, 262144, now);
        if (until > end)
            break; /* not done within the time */
        fp_limiter_wait(until);
    }
}

/* Real sleeps: never more than the rate; less where the machine did not let us run. */
static void test_processes_that_really_wait_keep_to_the_rate(void **state)
{
    struct fp_limiter *l = device(&x25e);
    uint64_t begin = fp_now_ns(), end = begin + SECOND;
    (void)state;
    for (int i = 0; i < 4; i++) {
        if (fork() == 0) {
            sleeping_writer(l, end);
            _exit(0);
        }
    }
    wait_for(4);
    double rate = (double)fp_limiter_count(l).write_bytes;
    assert_true(rate <= 175e6 * 1.001 + 4 * 262144 + 1750000);
    assert_true(rate >= 175e6 * 0.3);
    fp_limiter_unmap(l);
}

static void test_a_wait_ends_at_its_time_and_not_before(void **state)
{
    (void)state;
    uint64_t now = fp_now_ns();
    fp_limiter_wait(now - 1);
    fp_limiter_wait(0);
    fp_limiter_wait(now + 20000000);
    assert_true(fp_now_ns() >= now + 20000000);
}

static void test_only_a_device_is_mapped(void **state)
{
    struct fp_limiter *l, *real;
    char page[4096];
    int fd, pipes[2], plain = memfd_create("plain", MFD_CLOEXEC), sealed = fp_memfd_new("zeros", 4096), small = fp_memfd_new("small", 8);
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(fp_limiter_new(&x25e, &real, &fd), 0);
    assert_int_equal(pread(fd, page, sizeof page, 0), sizeof page);
    assert_int_equal(pwrite(plain, page, sizeof page, 0), sizeof page); /* the same, but it could be cut: a SIGBUS */
    assert_int_equal(fp_limiter_map(plain, &l), -EINVAL);
    assert_int_equal(fp_limiter_map(sealed, &l), -EINVAL);
    assert_int_equal(fp_limiter_map(small, &l), -EINVAL);
    assert_int_equal(fp_limiter_map(pipes[0], &l), -EINVAL);
    assert_int_equal(fp_limiter_map(-1, &l), -EBADF);
    fp_limiter_unmap(real);
    int all[] = {fd, plain, sealed, small, pipes[0], pipes[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        close(all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_name_rates_and_operations),
        cmocka_unit_test(test_words_that_are_wrong_are_told),
        cmocka_unit_test(test_an_operation_takes_what_its_bytes_or_its_number_take),
        cmocka_unit_test(test_operations_of_both_directions_wait_for_each_other),
        cmocka_unit_test(test_no_limit_costs_nothing),
        cmocka_unit_test(test_idle_time_is_not_saved_up),
        cmocka_unit_test(test_a_clock_that_someone_has_spoilt_makes_nobody_wait_for_ever),
        cmocka_unit_test(test_one_program_that_wakes_late_gets_the_named_rate),
        cmocka_unit_test(test_one_program_with_small_operations_gets_the_named_number),
        cmocka_unit_test(test_four_programs_with_mixed_sizes_get_the_named_rate_together),
        cmocka_unit_test(test_processes_share_the_device_and_no_operation_is_lost),
        cmocka_unit_test(test_processes_that_really_wait_keep_to_the_rate),
        cmocka_unit_test(test_a_wait_ends_at_its_time_and_not_before),
        cmocka_unit_test(test_only_a_device_is_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
