/* fp-drain: whether a target's directory should be a mount, by tables as of fstab(5). */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "drain/drain.h"

static char fstab[] = "/tmp/fp-fstab-XXXXXX", mounts[] = "/tmp/fp-mounts-XXXXXX";
static char where[PATH_MAX];

static void fill(char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
    int a = mkstemp(fstab), b = mkstemp(mounts);

    (void)state;
    close(a);
    close(b);
    fill(fstab, "# site\nUUID=1 / ext4 defaults 0 1\nmds@tcp:/s /lustre/ lustre _netdev 0 0\nnas:/p /lustre/proj nfs noauto 0 0\n"
                "nas:/b /big\\040data nfs rw 0 0\n/dev/sdb none swap sw 0 0\n");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(fstab);
    unlink(mounts);
    return 0;
}

static bool lacks(const char *path)
{
    return dr_lacks_mount(fstab, mounts, path, where);
}

static void test_a_mount_point_without_its_file_system(void **state)
{
    (void)state;
    fill(mounts, "/dev/vda / ext4 rw 0 0\n");
    assert_true(lacks("/lustre"));
    assert_string_equal(where, "/lustre/");
    assert_true(lacks("/lustre/run/7"));
    assert_true(lacks("/big data/x"));
    assert_string_equal(where, "/big data");
    assert_false(lacks("/lustre2")); /* a name that begins alike */
    assert_false(lacks("/data"));
    assert_false(lacks("/"));
}

static void test_one_that_is_mounted(void **state)
{
    (void)state;
    fill(mounts, "/dev/vda / ext4 rw 0 0\nmds@tcp:/s /lustre lustre rw 0 0\n");
    assert_false(lacks("/lustre"));
    assert_false(lacks("/lustre/run"));
    /* the one above is there, its own is not */
    assert_true(lacks("/lustre/proj"));
    assert_true(lacks("/lustre/proj/run"));
    assert_string_equal(where, "/lustre/proj");
    fill(mounts, "x /lustre/proj/run tmpfs rw 0 0\n");
    assert_false(lacks("/lustre/proj/run/a")); /* a mount further down */
}

static void test_no_tables(void **state)
{
    (void)state;
    assert_false(dr_lacks_mount("/nonexistent/fstab", mounts, "/lustre", where));
    assert_true(dr_lacks_mount(fstab, "/nonexistent/mounts", "/lustre", where));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_mount_point_without_its_file_system),
        cmocka_unit_test(test_one_that_is_mounted),
        cmocka_unit_test(test_no_tables),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
