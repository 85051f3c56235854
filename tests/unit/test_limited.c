/* Calls in a process of their own, and programs, that do not end: nobody waits for them. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/command.h"
#include "fp/limited.h"

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);

static bool held; /* by the kernel: SIGKILL is sent, and the process does not end */

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
    if (!held)
        return __real_waitpid(pid, status, options);
    assert_true(options & WNOHANG); /* else we would be held, too */
    return 0;
}

static int answers(const void *arg)
{
    return *(const int *)arg;
}

static int hangs(const void *arg)
{
    (void)arg;
    sleep(600);
    return 0;
}

static int crashes(const void *arg)
{
    (void)arg;
    (void)signal(SIGABRT, SIG_DFL);
    raise(SIGKILL);
    return 0;
}

static void test_what_it_returns(void **state)
{
    (void)state;
    for (const int *rc = (const int[]){0, -ENOENT, -EACCES, -ENAMETOOLONG, 1}; *rc <= 0; rc++)
        assert_int_equal(fp_limited(answers, rc, 30000), *rc);
    assert_int_equal(fp_limited(crashes, NULL, 30000), -EIO);
}

static void test_one_that_hangs_is_killed(void **state)
{
    (void)state;
    assert_int_equal(fp_limited(hangs, NULL, 50), -ETIMEDOUT);
}

static void test_one_that_can_not_be_killed_is_not_waited_for(void **state)
{
    char *const argv[] = {(char *)"sleep", (char *)"60", NULL};
    char out[16];

    (void)state;
    held = true;
    assert_int_equal(fp_limited(hangs, NULL, 50), -ETIMEDOUT);
    assert_int_equal(fp_command(argv, 50, out, sizeof out), -ETIMEDOUT);
    held = false;
    while (__real_waitpid(-1, NULL, 0) > 0)
        ;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_it_returns),
        cmocka_unit_test(test_one_that_hangs_is_killed),
        cmocka_unit_test(test_one_that_can_not_be_killed_is_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
