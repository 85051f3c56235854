/* A user and a mount namespace of one's own: made, entered, seen in there alone. As another user than root, who may mount anyway. */
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
#include <grp.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/namespace.h"
#include "fp/rmtree.h"

#define USER 5001u

static char top[64];
static struct fp_namespace ns;
static char why_not[300]; /* this machine lets nobody have one */

static int setup(void **state)
{
    (void)state;
    if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setgid(USER) < 0 || setuid(USER) < 0))
        return -1;
    (void)prctl(PR_SET_DUMPABLE, 1); /* as a program is that was started by this user */
    strcpy(top, "/tmp/test_namespace.XXXXXX");
    if (!mkdtemp(top))
        return -1;
    (void)fp_namespace_make(&ns, NULL, why_not, sizeof why_not);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fp_namespace_close(&ns);
    fp_remove_tree(top);
    return 0;
}

static const char *in_top(const char *name)
{
    static char path[2][128];
    static unsigned i;

    snprintf(path[++i % 2], sizeof path[0], "%s/%s", top, name);
    return path[i % 2];
}

/* What a child that has gone there sees, as its exit code; 100: it could not. */
static int inside(const char *dir, int (*look)(void))
{
    pid_t pid = fork();
    int status;

    if (pid == 0)
        _exit(fp_namespace_enter(dir) ? 100 : look());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

static int mount_there(void)
{
    return mount("none", in_top("mnt"), "tmpfs", 0, NULL) < 0 || mkdir(in_top("mnt/seen"), 0700) < 0;
}

static int see_it(void)
{
    return access(in_top("mnt/seen"), F_OK) < 0 || getuid() != USER || getgid() != USER;
}

static int again(void)
{
    return fp_namespace_enter(in_top("ns")) || see_it();
}

static int same_directory(void)
{
    char cwd[200] = "";

    return !getcwd(cwd, sizeof cwd) || strcmp(cwd, top) != 0;
}

static void test_what_is_mounted_is_seen_inside_alone(void **state)
{
    (void)state;
    if (why_not[0])
        skip();
    assert_int_equal(mkdir(in_top("mnt"), 0700), 0);
    assert_false(fp_namespace_exists(in_top("ns")));
    assert_int_equal(fp_namespace_link(&ns, in_top("ns")), 0);
    assert_true(fp_namespace_exists(in_top("ns")));
    assert_int_equal(inside(in_top("ns"), mount_there), 0);
    assert_int_equal(inside(in_top("ns"), see_it), 0); /* nobody is in it meanwhile */
    assert_int_equal(inside(in_top("ns"), again), 0);
    assert_int_equal(access(in_top("mnt/seen"), F_OK), -1);
    assert_int_equal(chdir(top), 0);
    assert_int_equal(inside(in_top("ns"), same_directory), 0);
    assert_int_equal(chdir("/"), 0);
}

static void test_whose_keeper_is_gone_can_not_be_entered(void **state)
{
    int status;
    pid_t pid;

    (void)state;
    if (why_not[0])
        skip();
    pid = fork();
    if (pid == 0)
        _exit(fp_namespace_link(&ns, in_top("other")) ? 1 : 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(fp_namespace_exists(in_top("other")));
    assert_int_equal(fp_namespace_enter(in_top("other")), -ESRCH);
    assert_int_equal(fp_namespace_enter("/proc/1/ns"), -EPERM); /* root's */
    assert_int_equal(fp_namespace_enter(in_top("none")), -ESRCH);
}

static void test_a_directory_that_can_not_be_mounted_on(void **state)
{
    struct fp_namespace other;
    char why[300] = "";

    (void)state;
    if (why_not[0])
        skip();
    assert_int_equal(fp_namespace_make(&other, in_top("none"), why, sizeof why), access("/dev/fuse", R_OK | W_OK) == 0 ? -ENOENT : -EACCES);
    assert_non_null(strstr(why, access("/dev/fuse", R_OK | W_OK) == 0 ? "no FUSE mount in a user namespace" : "no /dev/fuse"));
    assert_int_equal(other.user, -1);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* and no child is left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_mounted_is_seen_inside_alone),
        cmocka_unit_test(test_whose_keeper_is_gone_can_not_be_entered),
        cmocka_unit_test(test_a_directory_that_can_not_be_mounted_on),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
