/* Keeping whole processes to CPUs (jobscripts/cores/cpus.c); single threads: test_job_slurm.c. On a machine of one CPU there are no others, which is tried as well. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "jobscripts/cores/cpus.h"

#define THREADS 4

static int begun[2];

static void *sleeps(void *arg)
{
    pid_t tid = gettid();

    (void)arg;
    (void)!write(begun[1], &tid, sizeof tid);
    for (;;)
        pause();
    return NULL;
}

/* A process of several threads, whose numbers are in tid. */
static pid_t start(pid_t tid[THREADS])
{
    pid_t pid;

    assert_int_equal(pipe(begun), 0);
    pid = fork();
    if (pid == 0) {
        for (int i = 1; i < THREADS; i++) {
            pthread_t t;

            if (pthread_create(&t, NULL, sleeps, NULL))
                _exit(1);
        }
        (void)sleeps(NULL);
    }
    close(begun[1]);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(read(begun[0], &tid[i], sizeof tid[i]), sizeof tid[i]);
    close(begun[0]);
    return pid;
}

static void end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int first_of(pid_t tid, int *count)
{
    cpu_set_t set;
    int cpu = 0;

    assert_int_equal(sched_getaffinity(tid, sizeof set, &set), 0);
    *count = CPU_COUNT(&set);
    while (!CPU_ISSET(cpu, &set))
        cpu++;
    return cpu;
}

static void test_all_threads_of_a_process_are_confined(void **state)
{
    char list[32];
    pid_t tid[THREADS], pid = start(tid);
    int n, first = first_of(0, &n);

    (void)state;
    snprintf(list, sizeof list, "%d", first);
    assert_int_equal(job_cpus_confine_all(pid, list), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(first_of(tid[i], &n), first);
        assert_int_equal(n, 1);
    }
    assert_int_equal(job_cpus_confine_all(pid, "x"), -EINVAL);
    end(pid);
    assert_int_equal(job_cpus_confine_all(INT32_MAX, list), -ESRCH);
}

static void test_the_others_are_what_is_left(void **state)
{
    char all[4096], one[32], others[4096], both[8192], tiny[1];
    int n, first = first_of(0, &n);
    cpu_set_t before;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(job_cpus_here(all, sizeof all), 0);
    assert_int_equal(job_cpus_others(all, others, sizeof others), -ENOENT);
    assert_int_equal(job_cpus_others("", others, sizeof others), -EINVAL);
    assert_int_equal(job_cpus_others("8000", others, sizeof others), 0); /* not ours: all is left */
    assert_string_equal(others, all);
    snprintf(one, sizeof one, "%d", first);
    assert_int_equal(job_cpus_others(one, others, sizeof others), n == 1 ? -ENOENT : 0);
    if (n == 1)
        return;
    assert_int_equal(job_cpus_others(one, tiny, sizeof tiny), -ENOBUFS);
    assert_int_equal(job_cpus_confine(0, others), 0);
    assert_int_not_equal(first_of(0, &n), first);
    assert_int_equal(n, CPU_COUNT(&before) - 1);
    assert_int_equal(job_cpus_confine(0, one), 0); /* and back: it may use none of them, so it gets all */
    assert_int_equal(first_of(0, &n), first);
    snprintf(both, sizeof both, "%s,%s", one, others);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(job_cpus_others(both, others, sizeof others), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_threads_of_a_process_are_confined),
        cmocka_unit_test(test_the_others_are_what_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
