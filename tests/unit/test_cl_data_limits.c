/*
 * The data path at its limits: windows of very many pieces, a pool with many more readers than it has room for, a benefactor that hangs
 * while its link is opened, the last chunk number, and what must not run on the core loop.
 */
#include "tests/unit/cl_fixture.h"

#include <errno.h>
#include <fcntl.h>

#define MIB (1u << 20)

static struct fx_mount mnt;
static struct world_bnf *b1;
static struct cl_handle h;
static uint8_t *want, *buf;
static uint64_t ino, size;

static void begin(bool local, uint32_t window, uint64_t size_max, uint64_t io_timeout_ms)
{
    memset(&world_faults, 0, sizeof world_faults);
    world_core_start();
    b1 = world_bnf_add(1, local, 600 * MIB);
    fx_start(&mnt, 7, io_timeout_ms);
    ino = world_file_new(window, 1);
    fx_open(&mnt, &h, ino);
    want = calloc(size_max, 1);
    buf = calloc(size_max, 1);
    size = 0;
}

static void end(void)
{
    fx_check_file_quiet(&h);
    fx_close(&mnt, &h);
    fx_stop(&mnt);
    world_core_stop();
    world_bnf_fini();
    world_mgr_reset();
    free(want);
    free(buf);
}

static void put(uint64_t off, size_t len)
{
    fx_fill(want + off, len, (uint32_t)off * 7 + 1);
    assert_int_equal(fx_write(&mnt, &h, want + off, len, off), len);
    size = off + len > size ? off + len : size;
}

/* -------------------------------------------------------------- pieces */

static void test_limits_window_of_too_many_pieces_is_told_and_harms_no_other(void **state)
{
    uint64_t chunks;

    (void)state;
    begin(true, 65536, 10 * 65536, 5000);
    world_faults.mgr_window_max = 100;
    put(65536, 300);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0);
    chunks = world_chunk_count();
    put(0, 1000);
    put(3 * 65536, 1000);
    for (uint32_t i = 0; i < 200; i++) /* into the second window */
        assert_int_equal(fx_write(&mnt, &h, "x", 1, 65536 + 1000 + 3 * i), 1);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), -EFBIG);
    assert_int_equal(cl_data_flush(&mnt.m, h.inode), 0); /* told once */
    fx_check_file_quiet(&h);
    assert_int_equal(world_view(ino, buf, 10 * 65536), size);
    for (uint32_t i = 0; i < 200; i++) /* those of the first commits may be there, in order */
        if (buf[65536 + 1000 + 3 * i] == 'x')
            want[65536 + 1000 + 3 * i] = 'x';
    assert_memory_equal(buf, want, size);
    assert_in_range(world_chunk_count(), chunks + 2, chunks + 6); /* nothing is left of what was refused */
    assert_true(mnt.m.data->lost_bytes > 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_window_of_too_many_pieces_is_told_and_harms_no_other),
    };

    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
