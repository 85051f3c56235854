/* auxchain: chunks of 1 MiB through fp-auxhost and nothing else; what the host itself costs.
 *
 *     auxchain CORES STAGES ON_THE_WAY CHUNKS [DO]
 *
 * Plays the mount (tests/unit/aux_mount.c): submits pages of a pool and waits for the answers, ON_THE_WAY at a time, through a chain of STAGES test plugins that do
 * DO (default: pass) and look at no data. Prints one JSON object: microseconds per chunk from the first submission to the last answer, and of the host's processor
 * time. STAGES 0: no aux-app at all, the messages alone. Called by the benchmarks aux-overhead-N (cases_aux.py).
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/aux_mount.h"
#include "fp/clock.h"

#define STAGES_MAX 4
#define WARM_UP 200

static double cpu_us(pid_t pid)
{
    unsigned long user = 0, sys = 0;
    char path[64], line[1024];

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");

    if (f && fgets(line, sizeof(line), f))
        sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys);
    if (f)
        fclose(f);
    return (double)(user + sys) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

/* The mount runs beside its service cores. Only the first of CORES is kept free: more are given to see a pipeline. */
static void leave_core(const char *cores)
{
    cpu_set_t set;

    if (cores[0] == '\0' || sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) < 2)
        return;
    CPU_CLR((size_t)atoi(cores), &set);
    sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char **argv)
{
    static struct am m;
    char text[STAGES_MAX][128];
    const char *declared[STAGES_MAX + 1] = {NULL};
    uint32_t stages = argc > 2 ? (uint32_t)atoi(argv[2]) : 0, way = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
    uint32_t chunks = argc > 4 ? (uint32_t)atoi(argv[4]) : 0, sent = 0;

    if (argc < 5 || stages > STAGES_MAX || way < 1 || way > AM_SLOTS / 2 || chunks < 1) {
        fprintf(stderr, "auxchain: give CORES, STAGES (0 to %d), ON_THE_WAY (1 to %u), CHUNKS\n", STAGES_MAX, AM_SLOTS / 2);
        return 2;
    }
    for (uint32_t i = 0; i < stages; i++) {
        snprintf(text[i], sizeof(text[i]), "probe%.0d do=%s", i > 0 ? (int)i + 1 : 0, argc > 5 ? argv[5] : "pass");
        declared[i] = text[i];
    }
    if (am_start(&m, NULL, argv[1], stages > 0 ? declared : NULL) < 0) {
        fprintf(stderr, "auxchain: %s\n", m.failed);
        return 1;
    }
    for (uint32_t i = 0; i < WARM_UP; i++)
        am_out_done(&m, am_chunk_out(&m, 0, 1, 1u << 20, 0));
    leave_core(argv[1]);
    double cpu = cpu_us(m.pid);
    uint64_t from = fp_now_ns(), first = m.next_id + 1;

    for (uint32_t done = 0; done < chunks; done++) {
        for (; sent < chunks && sent < done + way; sent++)
            am_chunk_out(&m, sent % 16 * 16, 1, 1u << 20, sent % way);
        if (am_out_done(&m, first + done)->status != 0) {
            fprintf(stderr, "auxchain: a chunk was refused\n");
            return 1;
        }
    }
    double us = (double)(fp_now_ns() - from) / 1000.0;

    printf("{\"us\": %.3f, \"cpu_us\": %.3f, \"chunks\": %u}\n", us / chunks, (cpu_us(m.pid) - cpu) / chunks, chunks);
    am_stop(&m);
    return 0;
}
