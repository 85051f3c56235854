/*
 * Store threads: every job runs once, urgent ones first, the tick goes on while all threads are busy, and stopping runs what is queued.
 */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/data/jobs.h"

struct job {
    struct cl_job job; /* first */
    atomic_int runs;
    int place;
};

static atomic_int ticks, order;
static sem_t gate, entered;

static void tick(void *arg)
{
    (void)arg;
    atomic_fetch_add(&ticks, 1);
}

static void run(struct cl_job *j)
{
    struct job *me = (struct job *)j;

    me->place = atomic_fetch_add(&order, 1);
    atomic_fetch_add(&me->runs, 1);
}

static void run_blocked(struct cl_job *j)
{
    sem_post(&entered);
    while (sem_wait(&gate) != 0)
        ;
    run(j);
}

static void *poster(void *arg)
{
    struct job *j = arg;
    struct cl_jobs *jobs = *(struct cl_jobs **)(void *)&j[1000];

    for (int i = 0; i < 1000; i++) {
        j[i].job.run = run;
        cl_jobs_post(jobs, &j[i].job, i % 3 == 0);
    }
    return NULL;
}

static void test_jobs_run_once_each_and_all_before_the_end(void **state)
{
    struct posts {
        struct job job[1000];
        struct cl_jobs *jobs;
    };
    static struct posts p[4];
    struct cl_jobs *jobs;
    pthread_t t[4];

    (void)state;
    assert_int_equal(cl_jobs_new(3, NULL, 1000, tick, NULL, &jobs), 0);
    for (int i = 0; i < 4; i++) {
        p[i].jobs = jobs;
        pthread_create(&t[i], NULL, poster, p[i].job);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    cl_jobs_free(jobs);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 1000; k++)
            assert_int_equal(p[i].job[k].runs, 1);
}

static void test_jobs_urgent_ones_go_first(void **state)
{
    struct job block = {.job.run = run_blocked}, j[20] = {0};
    struct cl_jobs *jobs;

    (void)state;
    order = 0;
    assert_int_equal(cl_jobs_new(1, NULL, 1000, tick, NULL, &jobs), 0);
    cl_jobs_post(jobs, &block.job, false);
    sem_wait(&entered);
    for (int i = 0; i < 20; i++) {
        j[i].job.run = run;
        cl_jobs_post(jobs, &j[i].job, i >= 10);
    }
    sem_post(&gate);
    cl_jobs_free(jobs);
    for (int i = 0; i < 20; i++)
        assert_int_equal(j[i].place, i >= 10 ? i - 9 : i + 11); /* and in order within their queue */
}

static void test_jobs_tick_goes_on_while_threads_are_busy(void **state)
{
    struct job block[2] = {{.job.run = run_blocked}, {.job.run = run_blocked}};
    struct cl_jobs *jobs;

    (void)state;
    assert_int_equal(cl_jobs_new(2, NULL, 10, tick, NULL, &jobs), 0);
    cl_jobs_post(jobs, &block[0].job, false);
    cl_jobs_post(jobs, &block[1].job, false);
    sem_wait(&entered);
    sem_wait(&entered);
    ticks = 0;
    for (int i = 0; i < 1000 && ticks < 3; i++)
        usleep(10000);
    assert_true(ticks >= 3);
    sem_post(&gate);
    sem_post(&gate);
    cl_jobs_free(jobs);
}

static atomic_int outside;
static cpu_set_t allowed;

static void run_where(struct cl_job *j)
{
    if (!CPU_ISSET(sched_getcpu(), &allowed))
        atomic_fetch_add(&outside, 1);
    run(j);
}

static void test_jobs_stay_on_their_cores(void **state)
{
    static struct job j[50];
    struct cl_jobs *jobs;
    cpu_set_t mine;
    int cpu = 0;

    (void)state;
    sched_getaffinity(0, sizeof mine, &mine);
    while (!CPU_ISSET(cpu, &mine))
        cpu++;
    CPU_ZERO(&allowed);
    CPU_SET(cpu, &allowed);
    assert_int_equal(cl_jobs_new(2, &allowed, 1000, tick, NULL, &jobs), 0);
    for (int i = 0; i < 50; i++) {
        j[i].job.run = run_where;
        cl_jobs_post(jobs, &j[i].job, false);
    }
    cl_jobs_free(jobs);
    assert_int_equal(outside, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_run_once_each_and_all_before_the_end),
        cmocka_unit_test(test_jobs_urgent_ones_go_first),
        cmocka_unit_test(test_jobs_tick_goes_on_while_threads_are_busy),
        cmocka_unit_test(test_jobs_stay_on_their_cores),
    };

    sem_init(&gate, 0, 0);
    sem_init(&entered, 0, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
