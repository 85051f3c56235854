/* The ready line: one line, then end of file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "fp/readyfd.h"

static void test_line_arrives_whole_and_the_pipe_is_closed(void **state)
{
    char buf[64] = "";
    int fds[2];
    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fp_ready_check(fds[1]), 0);
    assert_true(fcntl(fds[1], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(fp_ready_write(fds[1], "127.0.0.1:7420"), 0);
    assert_int_equal(read(fds[0], buf, sizeof buf), 15);
    assert_string_equal(buf, "127.0.0.1:7420\n");
    assert_int_equal(read(fds[0], buf, sizeof buf), 0);
    close(fds[0]);
}

static void test_no_descriptor_given_does_nothing(void **state)
{
    (void)state;
    assert_int_equal(fp_ready_check(-1), 0);
    assert_int_equal(fp_ready_write(-1, "x"), 0);
}

static void test_a_descriptor_that_is_closed_or_read_only_is_refused(void **state)
{
    int fds[2];
    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fp_ready_check(fds[0]), -EBADF);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(fp_ready_check(fds[1]), -EBADF);
    assert_int_equal(fp_ready_write(fds[1], "x"), -EBADF);
}

static void test_a_parent_that_has_gone_is_an_error_not_a_death(void **state)
{
    int fds[2];
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(fds), 0);
    close(fds[0]);
    assert_int_equal(fp_ready_write(fds[1], "x"), -EPIPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_arrives_whole_and_the_pipe_is_closed),
        cmocka_unit_test(test_no_descriptor_given_does_nothing),
        cmocka_unit_test(test_a_descriptor_that_is_closed_or_read_only_is_refused),
        cmocka_unit_test(test_a_parent_that_has_gone_is_an_error_not_a_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
