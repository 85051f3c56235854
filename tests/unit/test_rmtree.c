/* Removing a directory with all that is in it (common/rmtree.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/rmtree.h"

#define DEEP  20 /* directories, so that the path is longer than a call takes */
#define MANY  50

static char top[64], outside[64], name[256];

static int setup(void **state)
{
    (void)state;
    strcpy(top, "/tmp/test_rmtree.XXXXXX");
    strcpy(outside, "/tmp/test_rmtree_out.XXXXXX");
    memset(name, 'd', sizeof name - 1);
    return mkdtemp(top) && mkdtemp(outside) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    (void)rmdir(outside);
    return 0;
}

static void make(int dir, const char *path)
{
    int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    close(fd);
}

static unsigned count(const char *path)
{
    DIR *d = opendir(path);
    unsigned n = 0;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void test_all_of_it_goes_and_nothing_behind_a_link(void **state)
{
    char path[200];
    int fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)state;
    assert_int_equal(mkdirat(fd, "a", 0700), 0);
    assert_int_equal(mkdirat(fd, "a/b", 0700), 0);
    make(fd, "a/b/f");
    make(fd, "g");
    snprintf(path, sizeof path, "%s/kept", outside);
    make(AT_FDCWD, path);
    assert_int_equal(symlinkat(outside, fd, "a/link"), 0);
    close(fd);
    assert_int_equal(fp_remove_tree(top), 0);
    assert_int_equal(access(top, F_OK), -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fp_remove_tree(top), 0); /* there is none */
}

/* Goes down into the deepest one that there is, and back, removing them. */
static void remove_deep(int fd)
{
    int next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (next >= 0) {
        remove_deep(next);
        close(next);
    }
    (void)unlinkat(fd, name, AT_REMOVEDIR);
}

/* A dead mount is another such thing: what can't even be looked at. */
static void test_what_can_not_be_looked_at_keeps_nothing_else(void **state)
{
    int fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC), at = dup(fd);
    char path[32];

    (void)state;
    for (int i = 0; i < MANY; i++) {
        snprintf(path, sizeof path, "f%d", i);
        make(fd, path);
    }
    for (int i = 0; i < DEEP; i++) {
        int next;

        assert_int_equal(mkdirat(at, name, 0700), 0);
        next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(at);
        at = next;
    }
    close(at);
    assert_int_equal(fp_remove_tree(top), -ENAMETOOLONG);
    assert_int_equal(count(top), 1);
    remove_deep(fd);
    close(fd);
    assert_int_equal(fp_remove_tree(top), 0);
    assert_int_equal(access(top, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_of_it_goes_and_nothing_behind_a_link, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_can_not_be_looked_at_keeps_nothing_else, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
