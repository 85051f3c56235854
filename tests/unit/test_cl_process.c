/* Where a mount's process runs (client/process.h). */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/process.h"

static void test_place_is_the_same_each_time(void **state)
{
    Fp__Place a, b;

    (void)state;
    cl_process_place(&a);
    cl_process_place(&b);
    assert_true(a.boot != 0 && a.mount_ns != 0);
    assert_true(a.machine == b.machine && a.boot == b.boot && a.mount_ns == b.mount_ns);
}

static void test_mount_namespace_of_its_own_is_another_place(void **state)
{
    Fp__Place a, b;
    int status;
    pid_t pid;

    (void)state;
    cl_process_place(&a);
    pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            _exit(2);
        cl_process_place(&b);
        _exit(a.machine == b.machine && a.boot == b.boot && a.mount_ns != b.mount_ns ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        skip(); /* neither is allowed here */
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place_is_the_same_each_time),
        cmocka_unit_test(test_mount_namespace_of_its_own_is_another_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
