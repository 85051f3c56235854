/* What a user writes behind --backend: what is meant is understood, what is not is told by the word that is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "fp/backend.h"

static struct fp_backend_spec accepts(const char *text)
{
    struct fp_backend_spec got;
    char why[FP_BACKEND_WHY_BUF] = "";

    if (fp_backend_parse(text, &got, why))
        fail_msg("'%s': %s", text, why);
    return got;
}

static void refuses(const char *text, const char *say)
{
    struct fp_backend_spec got = {.kind = 77};
    char why[FP_BACKEND_WHY_BUF] = "";

    assert_int_equal(fp_backend_parse(text, &got, why), -EINVAL);
    if ((int)got.kind != 77 || !strstr(why, say))
        fail_msg("'%s': '%s' does not say '%s'", text, why, say);
}

static void is_device(const char *text, enum fp_backend_kind kind, uint64_t w, uint64_t r, uint64_t wi, uint64_t ri)
{
    struct fp_backend_spec s = accepts(text);

    assert_true(s.emulated);
    assert_int_equal(s.kind, kind);
    assert_int_equal(s.speed.write_bps, w);
    assert_int_equal(s.speed.read_bps, r);
    assert_int_equal(s.speed.write_iops, wi);
    assert_int_equal(s.speed.read_iops, ri);
}

static void test_directories_and_memory_are_as_fast_as_they_are(void **state)
{
    struct fp_backend_spec dir = accepts("dir"), memory = accepts("memory");

    (void)state;
    assert_int_equal(dir.kind, FP_BACKEND_DIR);
    assert_int_equal(memory.kind, FP_BACKEND_MEMORY);
    assert_false(dir.emulated || memory.emulated);
    assert_int_equal(dir.speed.write_bps + memory.speed.write_bps, 0);
}

static void test_a_device_is_named_or_described(void **state)
{
    (void)state;
    is_device("emulated:x25e", FP_BACKEND_DIR, 175000000, 250000000, 3300, 35000);
    is_device("emulated", FP_BACKEND_DIR, 175000000, 250000000, 3300, 35000);
    is_device("emulated:write=175MB/s,read=250MB/s,write-iops=3300,read-iops=35000", FP_BACKEND_DIR, 175000000, 250000000, 3300, 35000);
    is_device("emulated:write=500MB/s", FP_BACKEND_DIR, 500000000, 0, 0, 0);
    is_device("emulated:x25e,over=memory", FP_BACKEND_MEMORY, 175000000, 250000000, 3300, 35000);
    is_device("emulated:over=memory,x25e", FP_BACKEND_MEMORY, 175000000, 250000000, 3300, 35000);
    is_device("emulated:over=memory", FP_BACKEND_MEMORY, 175000000, 250000000, 3300, 35000);
    is_device("emulated:read=20MB/s,over=dir,write-iops=100", FP_BACKEND_DIR, 0, 20000000, 100, 0);
}

static void has_buffers(const char *text, uint64_t size, unsigned n, uint64_t bytes)
{
    struct fp_backend_spec s = accepts(text);
    char why[FP_BACKEND_WHY_BUF] = "";

    if (fp_backend_divide(&s, size, why))
        fail_msg("'%s': %s", text, why);
    assert_int_equal(s.kind, FP_BACKEND_MEMORY);
    assert_false(s.emulated);
    assert_int_equal(s.buffers, n);
    assert_int_equal(s.buffer_bytes, bytes);
}

static void has_no_room(const char *text, uint64_t size, const char *say)
{
    struct fp_backend_spec s = accepts(text);
    char why[FP_BACKEND_WHY_BUF] = "";

    assert_int_equal(fp_backend_divide(&s, size, why), -EINVAL);
    if (!strstr(why, say))
        fail_msg("'%s': '%s' does not say '%s'", text, why, say);
}

static void test_memory_is_divided_into_buffers(void **state)
{
    const uint64_t mib = 1 << 20;

    (void)state;
    has_buffers("memory", 100 * mib, 0, 0);
    has_buffers("memory:buffers=3", 300 * mib, 3, 100 * mib);
    has_buffers("memory:buffers=3", 100 * mib, 3, 34951168); /* whole pages */
    has_buffers("memory:buffer=32MiB", 100 * mib, 3, 32 * mib);
    has_buffers("memory:buffers=3,buffer=256MiB", 768 * mib, 3, 256 * mib);
    has_buffers("memory:buffer=256MiB,buffers=2", 1024 * mib, 2, 256 * mib);
    has_no_room("memory:buffers=3", 64 * mib, "32MiB or more each");
    has_no_room("memory:buffers=3,buffer=256MiB", 767 * mib, "--size 767 MiB is not");
    has_no_room("memory:buffer=256MiB", 511 * mib, "2 to 64 buffers");
    has_no_room("memory:buffer=32MiB", 65 * 32 * mib, "2 to 64 buffers");
}

static void test_what_is_wrong_is_named(void **state)
{
    char longer[400] = "emulated:";

    (void)state;
    memset(longer + 9, 'x', sizeof(longer) - 10);
    refuses("", "give dir, memory, or a device");
    refuses("ssd", "'ssd': give dir, memory, or a device");
    refuses("emulate:x25e", "did you mean emulated?");
    refuses("dir:x25e", "'dir:x25e'");
    refuses("memory:3", "'3': give buffers=3, or buffer=256MiB");
    refuses("memory:buffers=1", "from 2 to 64");
    refuses("memory:buffers=65", "from 2 to 64");
    refuses("memory:buffers=many", "from 2 to 64");
    refuses("memory:buffers=2,buffers=3", "buffers=3: is given twice");
    refuses("memory:buffer=31MiB", "32MiB or more");
    refuses("memory:buffer=many", "buffer=many: ");
    refuses("memory:buffer=64MiB,buffer=32MiB", "given twice");
    refuses("memory:buffers=3,", "'': give");
    refuses("memory:", "'': give");
    refuses("emulated:", "give x25e, or words");
    refuses("emulated:x25", "'x25': give x25e, or words");
    refuses("emulated:writes=175MB/s", "did you mean write");
    refuses("emulated:write=175", "175");
    refuses("emulated:write=19MB/s", "20MB/s or more");
    refuses("emulated:read=1MB/s", "20MB/s or more");
    refuses("emulated:write=50MB/s,read-iops=99", "100 or more");
    refuses("emulated:x25e,over=disk", "over=disk: ");
    refuses("emulated:x25e,over=dir,over=memory", "over=memory: is given twice");
    refuses("emulated:x25e,write=90MB/s", "'x25e'");
    refuses(longer, "too long");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_directories_and_memory_are_as_fast_as_they_are),
        cmocka_unit_test(test_a_device_is_named_or_described),
        cmocka_unit_test(test_memory_is_divided_into_buffers),
        cmocka_unit_test(test_what_is_wrong_is_named),
    };

    return cmocka_run_group_tests_name("backend", tests, NULL, NULL);
}
