/* Files that are there whole or not at all (common/wholefile.c). What reaches the disk, and in which order, is seen by the calls, which the linker replaces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/rmtree.h"
#include "fp/wholefile.h"

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

static char top[64], file[96], calls[16];
static unsigned fails_at; /* the fsync of this number; 0: none */

static void note(char what)
{
    size_t n = strlen(calls);

    assert_true(n + 1 < sizeof calls);
    calls[n] = what;
    calls[n + 1] = '\0';
}

int __wrap_fsync(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    note(S_ISDIR(st.st_mode) ? 'd' : 'f');
    if (fails_at && --fails_at == 0) {
        errno = EIO;
        return -1;
    }
    return __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    note('r');
    return __real_rename(from, to);
}

static int setup(void **state)
{
    (void)state;
    strcpy(top, "/tmp/test_wholefile.XXXXXX");
    assert_non_null(mkdtemp(top));
    snprintf(file, sizeof file, "%s/record", top);
    calls[0] = '\0';
    fails_at = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return fp_remove_tree(top);
}

static const char *text(void)
{
    static char out[64];
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, out, sizeof out - 1);

    assert_true(n >= 0);
    out[n] = '\0';
    close(fd);
    return out;
}

static void nothing_else_is_there(void)
{
    char temp[128];

    snprintf(temp, sizeof temp, "%s.new", file);
    assert_int_equal(access(temp, F_OK), -1);
}

static void test_what_must_last_is_on_the_disk_before_it_has_its_name(void **state)
{
    (void)state;
    assert_int_equal(fp_write_whole(file, "one", 0600, true), 0);
    assert_string_equal(calls, "frd");
    assert_string_equal(text(), "one");
    calls[0] = '\0';
    assert_int_equal(fp_write_whole(file, "two", 0600, false), 0);
    assert_string_equal(calls, "r");
    assert_string_equal(text(), "two");
    nothing_else_is_there();
}

static void test_what_does_not_reach_the_disk_takes_the_place_of_nothing(void **state)
{
    (void)state;
    assert_int_equal(fp_write_whole(file, "one", 0600, true), 0);
    fails_at = 1;
    assert_int_equal(fp_write_whole(file, "two", 0600, true), -EIO);
    assert_string_equal(text(), "one");
    nothing_else_is_there();
    fails_at = 2;
    assert_int_equal(fp_write_whole(file, "two", 0600, true), -EIO);
    assert_string_equal(text(), "two");
    nothing_else_is_there();
}

/* Another write was killed; or somebody has put it there, who is not to have ours written through it. */
static void test_what_is_in_the_way_is_removed(void **state)
{
    char temp[128], else_where[128];

    (void)state;
    snprintf(temp, sizeof temp, "%s.new", file);
    snprintf(else_where, sizeof else_where, "%s/elsewhere", top);
    assert_int_equal(symlink("elsewhere", temp), 0);
    assert_int_equal(fp_write_whole(file, "one", 0600, true), 0);
    assert_string_equal(text(), "one");
    assert_int_equal(access(else_where, F_OK), -1);
    nothing_else_is_there();
}

static void test_where_nothing_can_be_written_it_says_so(void **state)
{
    (void)state;
    strcat(file, "/in/none");
    assert_int_equal(fp_write_whole(file, "one", 0600, true), -ENOENT);
    assert_string_equal(calls, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_must_last_is_on_the_disk_before_it_has_its_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_does_not_reach_the_disk_takes_the_place_of_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_in_the_way_is_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_where_nothing_can_be_written_it_says_so, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
