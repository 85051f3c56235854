/*
 * Store threads: every job runs once, urgent ones first, the tick goes on while all threads are busy, and stopping runs what is queued.
 * What is for later waits for the end of a burst of writes, and for nothing else.
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
#include <time.h>
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

/* -------------------------------------------------------------- bursts */

#define PAUSE_MS   3u
#define BURST_MS   100u
#define SHY_BURSTS 8u

int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *until);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *until);

static atomic_bool stands;        /* the clock goes on by pass() only */
static atomic_uint_least64_t at_ms;

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    if (!stands)
        return __real_clock_gettime(id, ts);
    *ts = (struct timespec){.tv_sec = (time_t)(at_ms / 1000), .tv_nsec = (long)(at_ms % 1000) * 1000000};
    return 0;
}

/* Whoever waits for time to pass looks again after each millisecond. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *until)
{
    struct timespec soon;

    if (!stands)
        return __real_pthread_cond_timedwait(cond, lock, until);
    __real_clock_gettime(CLOCK_MONOTONIC, &soon);
    soon.tv_nsec += 1000000;
    soon.tv_sec += soon.tv_nsec / 1000000000;
    soon.tv_nsec %= 1000000000;
    (void)__real_pthread_cond_timedwait(cond, lock, &soon);
    return 0;
}

static struct cl_jobs *clock_stands(unsigned threads)
{
    struct cl_jobs *jobs;

    at_ms = 1000000;
    stands = true;
    assert_int_equal(cl_jobs_new(threads, NULL, 1000, tick, NULL, &jobs), 0);
    return jobs;
}

static void end(struct cl_jobs *jobs)
{
    cl_jobs_free(jobs);
    stands = false;
}

static void pass(unsigned ms)
{
    atomic_fetch_add(&at_ms, ms);
}

static void assert_runs(const struct job *j)
{
    for (int i = 0; i < 20000 && j->runs == 0; i++)
        usleep(1000);
    assert_int_equal(j->runs, 1);
}

/* Whatever looks again after a millisecond has looked. */
static void assert_held(const struct job *j)
{
    usleep(20000);
    assert_int_equal(j->runs, 0);
}

static struct job *later(struct cl_jobs *jobs, struct job *j)
{
    *j = (struct job){.job.run = run};
    cl_jobs_post_later(jobs, &j->job);
    return j;
}

static void test_jobs_for_later_wait_for_a_pause(void **state)
{
    struct cl_jobs *jobs = clock_stands(3);
    struct job j[3], now[2] = {{.job.run = run}, {.job.run = run}};

    (void)state;
    assert_runs(later(jobs, &j[0])); /* nobody writes */
    for (int i = 0; i < 5; i++) {
        cl_jobs_burst(jobs, true);
        if (i == 0)
            later(jobs, &j[1]);
        pass(PAUSE_MS - 1);
    }
    assert_held(later(jobs, &j[2]));
    cl_jobs_post(jobs, &now[0].job, false);
    cl_jobs_post(jobs, &now[1].job, true);
    assert_runs(&now[0]);
    assert_runs(&now[1]);
    assert_held(&j[1]);
    pass(1);
    assert_runs(&j[1]);
    assert_runs(&j[2]);
    end(jobs);
}

static void test_jobs_for_later_wait_for_so_long_at_most(void **state)
{
    struct cl_jobs *jobs = clock_stands(2);
    struct job j[2];

    (void)state;
    cl_jobs_burst(jobs, true);
    later(jobs, &j[0]);
    for (unsigned t = 1; t < BURST_MS; t++) {
        pass(1);
        cl_jobs_burst(jobs, true);
    }
    assert_held(&j[0]);
    pass(1);
    cl_jobs_burst(jobs, true);
    assert_runs(&j[0]);
    assert_runs(later(jobs, &j[1])); /* the same burst */
    end(jobs);
}

/* A burst that was of no use: its jobs run, and those of the next bursts. */
static void ends_a_burst(void (*what)(struct cl_jobs *jobs))
{
    struct cl_jobs *jobs = clock_stands(2);
    struct job j[3 + SHY_BURSTS];

    cl_jobs_burst(jobs, true);
    assert_held(later(jobs, &j[0]));
    what(jobs);
    assert_runs(&j[0]);
    cl_jobs_burst(jobs, true);
    assert_runs(later(jobs, &j[1]));
    for (unsigned i = 0; i < SHY_BURSTS; i++) {
        pass(PAUSE_MS);
        cl_jobs_burst(jobs, true);
        assert_runs(later(jobs, &j[2 + i]));
    }
    pass(PAUSE_MS);
    cl_jobs_burst(jobs, true);
    assert_held(later(jobs, &j[2 + SHY_BURSTS]));
    end(jobs);
}

static void no_room(struct cl_jobs *jobs)
{
    cl_jobs_burst(jobs, false);
}

static void test_jobs_for_later_do_not_wait_when_somebody_waits(void **state)
{
    (void)state;
    ends_a_burst(cl_jobs_hurry);
}

static void test_jobs_for_later_do_not_wait_without_room(void **state)
{
    (void)state;
    ends_a_burst(no_room);
}

/* Who waits when nothing is held changes nothing. */
static void test_jobs_hurry_is_for_what_is_held(void **state)
{
    struct cl_jobs *jobs = clock_stands(2);
    struct job j;

    (void)state;
    cl_jobs_hurry(jobs);
    cl_jobs_burst(jobs, true);
    cl_jobs_hurry(jobs);
    assert_held(later(jobs, &j));
    end(jobs);
    assert_int_equal(j.runs, 1); /* the end does not leave it */
}

/* The thread that watches for the end of a burst is given other work, by which it is held up; so is the first that gets something of what was held. */
static void test_jobs_for_later_are_watched_by_another(void **state)
{
    struct cl_jobs *jobs = clock_stands(3);
    struct job block[2] = {{.job.run = run_blocked}, {.job.run = run_blocked}}, j;

    (void)state;
    cl_jobs_burst(jobs, true);
    cl_jobs_post_later(jobs, &block[0].job);
    later(jobs, &j);
    assert_held(&j);
    cl_jobs_post(jobs, &block[1].job, true);
    while (sem_wait(&entered) != 0)
        ;
    pass(PAUSE_MS);
    assert_runs(&j);
    sem_post(&gate);
    sem_post(&gate);
    end(jobs);
    assert_int_equal(block[0].runs + block[1].runs, 2);
    while (sem_wait(&entered) != 0)
        ;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_run_once_each_and_all_before_the_end),
        cmocka_unit_test(test_jobs_urgent_ones_go_first),
        cmocka_unit_test(test_jobs_tick_goes_on_while_threads_are_busy),
        cmocka_unit_test(test_jobs_stay_on_their_cores),
        cmocka_unit_test(test_jobs_for_later_wait_for_a_pause),
        cmocka_unit_test(test_jobs_for_later_wait_for_so_long_at_most),
        cmocka_unit_test(test_jobs_for_later_do_not_wait_when_somebody_waits),
        cmocka_unit_test(test_jobs_for_later_do_not_wait_without_room),
        cmocka_unit_test(test_jobs_hurry_is_for_what_is_held),
        cmocka_unit_test(test_jobs_for_later_are_watched_by_another),
    };

    sem_init(&gate, 0, 0);
    sem_init(&entered, 0, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
