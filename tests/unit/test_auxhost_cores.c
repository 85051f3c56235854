/* fp-auxhost on service cores: where its threads run, how cores move, what the chain costs. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "aux_mount.h"
#include "fp/clock.h"

#define MIB (1u << 20)
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static int cpu_a, cpu_b;       /* two that this process may use; cpu_b is -1 where there is one */

/* May it run on these cores, as the kernel lists them? on NULL: it is there. */
static uint32_t is_on(pid_t pid, const char *tid, void *on)
{
    char list[128];

    am_thread_says(pid, tid, "Cpus_allowed_list:", list, sizeof(list));
    return !on || strcmp(list, on) == 0;
}

static uint32_t count_threads(pid_t pid, char *on)
{
    return am_sum_threads(pid, is_on, on);
}

/* The core of the n-th worker of `app`, by the status page, checked against the kernel; -2: there is no such worker. */
static int worker_core(struct am *m, uint32_t app, uint32_t n)
{
    for (uint32_t i = 0; i < FP_AUXW_THREADS_MAX; i++) {
        const struct fp_auxw_thread *t = &m->status->thread[i];
        char tid[16], name[32], list[128], want[16];

        if (t->tid == 0 || t->app != app)
            continue;
        snprintf(tid, sizeof(tid), "%u", t->tid);
        am_thread_says(m->pid, tid, "Name:", name, sizeof(name));
        if (strcmp(name, "aux-stage") != 0 || n-- > 0) /* its threads for events are others */
            continue;
        am_thread_says(m->pid, tid, "Cpus_allowed_list:", list, sizeof(list));
        snprintf(want, sizeof(want), "%d", t->core);
        if (t->core >= 0)
            assert_string_equal(list, want);
        return t->core;
    }
    return -2;
}

/* Of the first one, once it runs. */
static int first_core(struct am *m, uint32_t app)
{
    for (uint64_t until = fp_now_ms() + AM_WAIT_MS; worker_core(m, app, 0) == -2; am_run(m, 1))
        assert_true(fp_now_ms() < until);
    return worker_core(m, app, 0);
}

static void test_all_threads_are_on_the_service_core(void **state)
{
    static struct am m;
    char core[16];

    (void)state;
    snprintf(core, sizeof(core), "%d", cpu_a);
    assert_int_equal(am_start(&m, NULL, core, LIST("probe", "many cores=1-3", "probe2")), 0);
    assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0))->status, 0);
    assert_true(count_threads(m.pid, NULL) >= 6);
    if (!SANITIZED)        /* ThreadSanitizer has a thread of its own */
        assert_int_equal(count_threads(m.pid, core), count_threads(m.pid, NULL));
    assert_int_equal(first_core(&m, 0), cpu_a);
    assert_int_equal(first_core(&m, 1), cpu_a);
    am_stop_clean(&m);
}

static void test_stages_are_spread_over_service_cores(void **state)
{
    static struct am m;
    char cores[32];

    (void)state;
    if (cpu_b < 0)
        skip();
    snprintf(cores, sizeof(cores), "%d,%d", cpu_a, cpu_b);
    assert_int_equal(am_start(&m, NULL, cores, LIST("probe", "probe2", "probe3")), 0);
    int first = first_core(&m, 0), second = first_core(&m, 1);

    assert_true((first == cpu_a && second == cpu_b) || (first == cpu_b && second == cpu_a));
    assert_int_equal(first_core(&m, 2), first);
    am_stop_clean(&m);
}

static void test_without_service_cores_nothing_is_pinned(void **state)
{
    static struct am m;
    char mine[128], pid[16];

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe")), 0);
    snprintf(pid, sizeof(pid), "%d", getpid());
    am_thread_says(getpid(), pid, "Cpus_allowed_list:", mine, sizeof(mine));
    assert_int_equal(count_threads(m.pid, mine), count_threads(m.pid, NULL));
    assert_int_equal(first_core(&m, 0), -1);
    am_stop_clean(&m);
    assert_int_equal(am_start(&m, NULL, "4000", LIST("probe")), 0);
    assert_int_equal(first_core(&m, 0), -1);
    am_wait_log(&m, "none of service cores 4000 may be used");
    am_stop_clean(&m);
}

static void wait_cores(struct am *m, uint32_t app, uint32_t cores)
{
    for (uint64_t until = fp_now_ms() + AM_WAIT_MS; m->status->stats[app].cores != cores; am_run(m, 5))
        assert_true(fp_now_ms() < until);
}

static void test_cores_come_while_chunks_wait_and_go_when_idle(void **state)
{
    static struct am m;
    char cores[32];
    uint64_t id[12];

    (void)state;
    if (cpu_b < 0)
        skip();
    snprintf(cores, sizeof(cores), "%d,%d", cpu_a, cpu_b);
    assert_int_equal(am_start(&m, NULL, cores, LIST("many do=sleep us=40000 cores=1-2", "probe cores=1")), 0);
    assert_int_equal(m.status->stats[0].cores, 1);
    for (int i = 0; i < 12; i++)
        id[i] = am_chunk_out(&m, 0, 1, MIB, 0);
    wait_cores(&m, 0, 2);
    am_wait_log(&m, "0 2 2 cores, was 1:");
    assert_non_null(strstr(m.log, "chunks waited for"));
    assert_non_null(strstr(m.status->stats[0].why, "2 cores, was 1"));
    int a = first_core(&m, 0), b;

    for (uint64_t until = fp_now_ms() + AM_WAIT_MS;; am_run(&m, 1)) {
        b = worker_core(&m, 0, 1);
        if (b >= 0 && b != a)
            break;
        assert_true(fp_now_ms() < until);
    }
    for (int i = 0; i < 12; i++)
        assert_int_equal(am_out_done(&m, id[i])->status, 0);
    assert_int_equal(am_counter(&m, 0, "most"), 2);
    assert_int_equal(m.status->stats[1].cores, 1);
    wait_cores(&m, 0, 1);
    am_wait_log(&m, "0 2 1 core, was 2: nothing waited for");
    assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0))->status, 0);
    am_stop_clean(&m);
}

static void test_cores_are_moved_by_hand(void **state)
{
    static struct am m;
    char cores[32];

    (void)state;
    if (cpu_b < 0)
        skip();
    snprintf(cores, sizeof(cores), "%d,%d", cpu_a, cpu_b);
    assert_int_equal(am_start(&m, NULL, cores, LIST("many", "probe")), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(am_done(&m, am_change(&m, 0, "cores=2"), NULL), 0);
        assert_int_equal(m.status->stats[0].cores, 2);
        assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0))->status, 0);
        assert_int_equal(am_done(&m, am_change(&m, 0, "cores=1"), NULL), 0);
        assert_int_equal(m.status->stats[0].cores, 1);
        assert_int_equal(am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0))->status, 0);
    }
    am_wait_log(&m, "0 2 2 cores, was 1: set by hand (cores=2)");
    am_wait_log(&m, "0 2 1 core, was 2: set by hand (cores=1)");
    assert_int_equal(am_done(&m, am_change(&m, 0, "cores=0"), NULL), -EINVAL);
    assert_int_equal(am_done(&m, am_change(&m, 1, "cores=2"), NULL), 0);
    am_wait_log(&m, "takes one chunk at a time: more than one core does not help it");
    assert_int_equal(m.status->stats[1].cores, 1);
    am_stop_clean(&m);
}

static void test_serial_aux_apps_are_called_one_chunk_at_a_time(void **state)
{
    static struct am m;

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("many cores=4 do=spin us=50", "probe do=spin us=20", "probe2")), 0);
    for (int round = 0; round < 20; round++) {
        uint64_t id[12];

        for (int i = 0; i < 12; i++)
            id[i] = am_chunk_out(&m, 0, 1, 4096, (uint32_t)i);
        for (int i = 0; i < 12; i++)
            assert_int_equal(am_out_done(&m, id[i])->status, 0);
    }
    assert_int_equal(am_counter(&m, 1, "most"), 1);
    assert_int_equal(am_counter(&m, 2, "most"), 1);
    assert_int_equal(m.status->stats[2].chunks, 240);
    am_stop_clean(&m);
}

static void test_a_full_queue_holds_up_the_stage_before(void **state)
{
    static struct am m;
    uint64_t id[12];

    (void)state;
    assert_int_equal(am_start(&m, NULL, "", LIST("probe", "probe2 do=sleep us=20000 queue=2")), 0);
    for (int i = 0; i < 12; i++)
        id[i] = am_chunk_out(&m, 0, 1, 4096, (uint32_t)i);
    for (int i = 0; i < 12; i++)
        assert_int_equal(am_out_done(&m, id[i])->status, 0);
    assert_int_equal(m.status->stats[1].queue_max, 2);
    assert_true(m.status->stats[1].waits >= 5);
    assert_true(m.status->stats[1].wait_ns > 20000000);
    am_stop_clean(&m);
}

/* -------------------------------------------------------------- what it costs */

static double cpu_us(pid_t pid)
{
    char path[64], line[1024];
    unsigned long user = 0, sys = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    assert_non_null(fgets(line, sizeof(line), f));
    fclose(f);
    sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys);
    return (double)(user + sys) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

/* Microseconds per chunk with `inflight` on the way; *cpu: of the host's processor time. */
static double measure(const char *cores, const char *const *declared, uint32_t inflight, uint32_t chunks, double *cpu)
{
    static struct am m;
    uint32_t sent = 0, done = 0;

    assert_int_equal(am_start(&m, NULL, cores, declared), 0);
    for (; done < 200; done++)
        am_out_done(&m, am_chunk_out(&m, 0, 1, MIB, 0));
    double before = cpu_us(m.pid);
    uint64_t from = fp_now_ns(), first = m.next_id + 1;

    for (done = 0; done < chunks; done++) {
        while (sent < chunks && sent < done + inflight) {
            am_chunk_out(&m, (sent % 16) * 16, 1, MIB, sent % 16);
            sent++;
        }
        assert_int_equal(am_out_done(&m, first + done)->status, 0);
    }
    double us = (double)(fp_now_ns() - from) / 1000.0 / chunks;

    *cpu = (cpu_us(m.pid) - before) / chunks;
    am_stop_clean(&m);
    return us;
}

static void test_an_empty_chain_costs_little(void **state)
{
    static const char *const chain[] = {"probe", "probe2", "probe3", "probe4", NULL};
    uint32_t chunks = SANITIZED ? 200 : 4000;
    char cores[2][32];

    (void)state;
    snprintf(cores[0], sizeof(cores[0]), "%d", cpu_a);
    snprintf(cores[1], sizeof(cores[1]), "%d,%d", cpu_a, cpu_b < 0 ? cpu_a : cpu_b);
    for (int c = 0; c < 2; c++) {
        for (uint32_t inflight = 1; inflight <= 8; inflight += 7) {
            double none_cpu, none = measure(cores[c], NULL, inflight, chunks, &none_cpu);

            for (uint32_t stages = 1; stages <= 4; stages *= 2) {
                const char *list[5] = {NULL};
                double cpu, us;

                memcpy(list, chain, stages * sizeof(list[0]));
                us = measure(cores[c], list, inflight, chunks, &cpu);
                print_message("cores %s, %u on the way, %u stages: %.1f us a chunk (no stage: %.1f), %.1f us a stage; host's processor time %.1f us (%.1f)\n",
                          cores[c], inflight, stages, us, none, (us - none) / stages, cpu, none_cpu);
                /* The bound for figures is in the benchmark; here, one that a busy machine keeps. */
                if (!SANITIZED)
                    assert_true((us - none) / stages < 200);
            }
        }
    }
}

static int find_cores(void **state)
{
    cpu_set_t set;

    (void)state;
    cpu_a = cpu_b = -1;
    sched_getaffinity(0, sizeof(set), &set);
    for (int i = CPU_SETSIZE - 1; i >= 0; i--) {
        if (!CPU_ISSET(i, &set))
            continue;
        if (cpu_a < 0)
            cpu_a = i;
        else if (cpu_b < 0)
            cpu_b = i;
    }
    return cpu_a < 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_threads_are_on_the_service_core),
        cmocka_unit_test(test_stages_are_spread_over_service_cores),
        cmocka_unit_test(test_without_service_cores_nothing_is_pinned),
        cmocka_unit_test(test_cores_come_while_chunks_wait_and_go_when_idle),
        cmocka_unit_test(test_cores_are_moved_by_hand),
        cmocka_unit_test(test_serial_aux_apps_are_called_one_chunk_at_a_time),
        cmocka_unit_test(test_a_full_queue_holds_up_the_stage_before),
        cmocka_unit_test(test_an_empty_chain_costs_little),
    };

    return cmocka_run_group_tests(tests, find_cores, NULL);
}
