/* Processes by pid and start time (common/procs.c). */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <pthread.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/clock.h"
#include "fp/procs.h"

static void *sleeps(void *arg)
{
    (void)arg;
    for (;;)
        pause();
    return NULL;
}

/* A process whose first thread goes on, or ends at once. */
static pid_t start(bool ends)
{
    pid_t pid = fork();

    if (pid == 0) {
        pthread_t t;

        pthread_create(&t, NULL, sleeps, NULL);
        if (ends)
            pthread_exit(NULL);
        pause();
    }
    return pid;
}

static void test_who_is_there(void **state)
{
    pid_t pid = start(false);
    uint64_t ticks = fp_proc_ticks(pid);

    (void)state;
    assert_true(ticks > 0);
    assert_true(fp_proc_ticks(getpid()) > 0 && fp_proc_ticks(getpid()) <= ticks);
    assert_false(fp_proc_ending(pid));
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, NULL, WEXITED | WNOWAIT), 0);
    assert_int_equal(fp_proc_ticks(pid), 0); /* a zombie */
    assert_false(fp_proc_ending(pid));
    waitpid(pid, NULL, 0);
    assert_int_equal(fp_proc_ticks(pid), 0);
}

static void test_one_is_there_while_a_thread_of_it_is(void **state)
{
    pid_t pid = start(true);
    uint64_t ticks = fp_proc_ticks(pid), until = fp_now_ms() + 20000;

    (void)state;
    while (!fp_proc_ending(pid) && fp_now_ms() < until)
        usleep(1000);
    assert_true(fp_proc_ending(pid));
    assert_true(ticks > 0 && fp_proc_ticks(pid) == ticks);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_false(fp_proc_ending(pid));
}

/* From the call of kill() on, however long it takes until one of its threads gets to run: here until its tracer lets it. */
static void test_one_that_was_killed_is_ending(void **state)
{
    pid_t pid = start(false);
    int status = 0;

    (void)state;
    if (ptrace(PTRACE_SEIZE, pid, NULL, PTRACE_O_TRACEEXIT) < 0) { /* as in some containers */
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        skip();
    }
    assert_false(fp_proc_ending(pid));
    kill(pid, SIGKILL);
    assert_true(fp_proc_ending(pid));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status));
    assert_true(fp_proc_ending(pid) && fp_proc_ticks(pid) > 0);
    ptrace(PTRACE_DETACH, pid, NULL, NULL);
    waitpid(pid, NULL, 0);
    assert_false(fp_proc_ending(pid));
}

static void test_one_is_waited_for(void **state)
{
    pid_t pid = start(false);
    uint64_t ticks = fp_proc_ticks(pid), began = fp_now_ms();

    (void)state;
    assert_true(fp_proc_runs(pid, ticks));
    assert_false(fp_proc_runs(pid, ticks + 1)); /* another one with its number */
    assert_false(fp_proc_wait_gone(pid, ticks, 50));
    assert_true(fp_now_ms() - began >= 50);
    kill(pid, SIGKILL);
    assert_true(fp_proc_wait_gone(pid, ticks, 60000));
    waitpid(pid, NULL, 0);
    assert_false(fp_proc_runs(pid, 0)); /* it was gone before anybody had looked */
    assert_true(fp_proc_wait_gone(pid, 0, 60000));
}

static void test_children_are_those_of_one_process(void **state)
{
    pid_t a = start(false), b = start(false), found[8];
    size_t n = fp_proc_children(getpid(), found, 8);

    (void)state;
    assert_int_equal(n, 2);
    assert_true((found[0] == a && found[1] == b) || (found[0] == b && found[1] == a));
    assert_int_equal(fp_proc_children(getpid(), found, 1), 1);
    assert_int_equal(fp_proc_children(a, found, 8), 0);
    kill(a, SIGKILL);
    kill(b, SIGKILL);
    waitpid(a, NULL, 0);
    waitpid(b, NULL, 0);
    assert_int_equal(fp_proc_children(getpid(), found, 8), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_is_there),
        cmocka_unit_test(test_one_is_there_while_a_thread_of_it_is),
        cmocka_unit_test(test_one_that_was_killed_is_ending),
        cmocka_unit_test(test_one_is_waited_for),
        cmocka_unit_test(test_children_are_those_of_one_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
