/* Fault points: rules fire on exactly the hits they name, and a rule that is not understood is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/log.h"

static int quiet(void **state)
{
    (void)state;
    return fp_fault_set(NULL);
}

static void test_without_rules_nothing_fires(void **state)
{
    (void)state;
    assert_int_equal(fp_fault_hit("bnf.pwrite"), 0);
    assert_int_equal(fp_fault_fired("bnf.pwrite"), 0);
}

static void test_error_fires_after_and_count_times(void **state)
{
    (void)state;
    assert_int_equal(fp_fault_set("bnf.pwrite=EIO:after=2:count=3"), 0);
    assert_int_equal(fp_fault_hit("bnf.read"), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(fp_fault_hit("bnf.pwrite"), i >= 2 && i < 5 ? -EIO : 0);
    assert_int_equal(fp_fault_fired("bnf.pwrite"), 3);
}

static void test_every_fires_on_each_nth_hit(void **state)
{
    (void)state;
    assert_int_equal(fp_fault_set("a=ENOSPC:every=3:after=1"), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(fp_fault_hit("a"), i > 0 && i % 3 == 0 ? -ENOSPC : 0);
}

static void test_rules_of_one_point_follow_each_other(void **state)
{
    (void)state;
    assert_int_equal(fp_fault_set("a=EIO:count=1,a=FP_ECHECKSUM:after=1:count=1,b=EINTR"), 0);
    assert_int_equal(fp_fault_hit("a"), -EIO);
    assert_int_equal(fp_fault_hit("a"), FP_ECHECKSUM);
    assert_int_equal(fp_fault_hit("a"), 0);
    assert_int_equal(fp_fault_hit("b"), -EINTR);
}

static void test_delay_waits_and_goes_on(void **state)
{
    (void)state;
    assert_int_equal(fp_fault_set("slow=delay:ms=30:count=1"), 0);
    uint64_t start_ms = fp_now_ms();
    assert_int_equal(fp_fault_hit("slow"), 0);
    assert_true(fp_now_ms() - start_ms >= 29);
    assert_int_equal(fp_fault_hit("slow"), 0);
    assert_int_equal(fp_fault_fired("slow"), 1);
}

/* Runs the point in a child; returns its wait status and what it wrote to stderr. */
static int in_child(const char *spec, char *text, size_t size)
{
    int fds[2], status;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        fp_log_init("fp-child", FP_LOG_ERROR);
        signal(SIGABRT, SIG_DFL);
        _exit(fp_fault_set(spec) == 0 && fp_fault_hit("x") == 0 ? 3 : 4);
    }
    close(fds[1]);
    ssize_t n = read(fds[0], text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void test_kill_ends_the_process_and_says_so_first(void **state)
{
    char text[256];
    (void)state;
    int status = in_child("x=kill", text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_string_equal(text, "fp-child: INFO: fault fired: x\n");
}

static void test_abort_ends_the_process(void **state)
{
    char text[256];
    (void)state;
    int status = in_child("x=abort", text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    status = in_child("x=kill:after=1", text, sizeof text);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    assert_string_equal(text, "");
}

static void test_rules_that_are_not_understood_leave_none(void **state)
{
    static const char *const bad[] = {"a",
                                      "=EIO",
                                      "a=",
                                      "a=EWHAT",
                                      "a=EIO:after",
                                      "a=EIO:after=",
                                      "a=EIO:after=-1",
                                      "a=EIO:after=1x",
                                      "a=EIO:every=0",
                                      "a=EIO:often=1",
                                      "a=delay",
                                      "a=EIO:ms=5",
                                      "b=EIO,a",
                                      "0123456789012345678901234567890123456789012345678=EIO"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (fp_fault_set(bad[i]) != -EINVAL)
            fail_msg("'%s' was accepted", bad[i]);
        assert_int_equal(fp_fault_hit("a"), 0);
        assert_int_equal(fp_fault_hit("b"), 0);
    }
}

static void test_points_are_compiled_in_only_with_fp_fault(void **state)
{
    (void)state;
    assert_int_equal(fp_fault_set("here=EIO"), 0);
#ifdef FP_FAULT
    assert_int_equal(FP_FAULT_POINT("here"), -EIO);
#else
    assert_int_equal(FP_FAULT_POINT("here"), 0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_without_rules_nothing_fires, quiet),
        cmocka_unit_test_teardown(test_error_fires_after_and_count_times, quiet),
        cmocka_unit_test_teardown(test_every_fires_on_each_nth_hit, quiet),
        cmocka_unit_test_teardown(test_rules_of_one_point_follow_each_other, quiet),
        cmocka_unit_test_teardown(test_delay_waits_and_goes_on, quiet),
        cmocka_unit_test_teardown(test_kill_ends_the_process_and_says_so_first, quiet),
        cmocka_unit_test_teardown(test_abort_ends_the_process, quiet),
        cmocka_unit_test_teardown(test_rules_that_are_not_understood_leave_none, quiet),
        cmocka_unit_test_teardown(test_points_are_compiled_in_only_with_fp_fault, quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
