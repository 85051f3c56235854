/* The ready line: one line, then end of file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
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

/* As systemd listens: by a path, and by an abstract name. */
static void systemd_hears(const char *name, const struct sockaddr_un *at, socklen_t len)
{
    char buf[64] = "";
    int s = socket(AF_UNIX, SOCK_DGRAM, 0);

    assert_int_equal(bind(s, (const struct sockaddr *)at, len), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    assert_int_equal(fp_ready_write(-1, "x"), 0);
    assert_int_equal(recv(s, buf, sizeof buf - 1, MSG_DONTWAIT), 7);
    assert_string_equal(buf, "READY=1");
    assert_int_equal(recv(s, buf, sizeof buf - 1, MSG_DONTWAIT), -1);
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    close(s);
}

static void test_systemd_is_told(void **state)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char dir[] = "/tmp/test_readyfd.XXXXXX", name[sizeof at.sun_path];

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(at.sun_path, sizeof at.sun_path, "%s/notify", dir);
    systemd_hears(at.sun_path, &at, sizeof at);
    unlink(at.sun_path);
    rmdir(dir);
    snprintf(name, sizeof name, "@test_readyfd.%d", (int)getpid());
    memset(at.sun_path, 0, sizeof at.sun_path);
    memcpy(at.sun_path + 1, name + 1, strlen(name) - 1);
    systemd_hears(name, &at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name)));
}

static void test_a_systemd_that_is_not_there_is_no_error(void **state)
{
    char longer[200];

    (void)state;
    memset(longer, 'x', sizeof longer);
    longer[0] = '/';
    longer[sizeof longer - 1] = '\0';
    for (const char *const *name = (const char *const[]){"", "@", "/", "relative", "/no/such/socket", longer, NULL}; *name; name++) {
        assert_int_equal(setenv("NOTIFY_SOCKET", *name, 1), 0);
        assert_int_equal(fp_ready_write(-1, "x"), 0);
    }
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_arrives_whole_and_the_pipe_is_closed),
        cmocka_unit_test(test_no_descriptor_given_does_nothing),
        cmocka_unit_test(test_a_descriptor_that_is_closed_or_read_only_is_refused),
        cmocka_unit_test(test_a_parent_that_has_gone_is_an_error_not_a_death),
        cmocka_unit_test(test_systemd_is_told),
        cmocka_unit_test(test_a_systemd_that_is_not_there_is_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
