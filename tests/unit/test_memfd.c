/* Memory shared with a process that is not trusted: what that process can't do with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fp/memfd.h"

#define BYTES 65536u

static void assert_fails(int rc, int err)
{
    assert_int_equal(rc, -1);
    assert_int_equal(errno, err);
}

/* As the other side would. */
static int reopened(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    assert_true(again >= 0);
    return again;
}

static void test_its_size_stays(void **state)
{
    (void)state;
    int fd = fp_memfd_new("test", BYTES);
    assert_true(fd >= 0);
    assert_int_equal(lseek(fd, 0, SEEK_END), BYTES);
    assert_fails(ftruncate(fd, 0), EPERM);
    assert_fails(ftruncate(fd, BYTES + 1), EPERM);
    assert_fails(fallocate(fd, 0, 0, BYTES + 1), EPERM);
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    munmap(p, BYTES);
    close(fd);
}

static void test_only_who_writes_already_goes_on(void **state)
{
    (void)state;
    int fd = fp_memfd_new("test", BYTES);
    assert_true(fd >= 0);
    char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    assert_int_equal(fp_memfd_no_more_writers(fd), 0);
    p[7] = 'y';
    int again = reopened(fd);
    assert_fails((int)pwrite(again, "x", 1, 7), EPERM);
    assert_ptr_equal(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
    assert_fails(fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), EPERM);
    char *q = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, again, 0);
    assert_ptr_not_equal(q, MAP_FAILED);
    assert_fails(mprotect(q, BYTES, PROT_READ | PROT_WRITE), EACCES);
    assert_int_equal(q[7], 'y');
    munmap(q, BYTES);
    munmap(p, BYTES);
    close(again);
    close(fd);
}

static void test_nobody_can_forbid_more(void **state)
{
    (void)state;
    int fd = fp_memfd_new("test", BYTES);
    assert_true(fd >= 0);
    assert_int_equal(fp_memfd_seal(fd), 0);
    assert_int_equal(fp_memfd_no_more_writers(fd), -EPERM);
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_its_size_stays),
        cmocka_unit_test(test_only_who_writes_already_goes_on),
        cmocka_unit_test(test_nobody_can_forbid_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
