/*
 * The application of the benchmarks of aux-apps: prepares data, writes it, computes, and says how long each took.
 *
 *     appbench --path FILE --size BYTES [--content random|floats] [--cpu N] [--hold] [--compute MS] [--fsync] [--seed N]
 *
 * Called by tools/bench/cases_pipeline.py; prints one JSON object. It knows nothing of fpstore but, with --hold, that data is worked on by windows
 * of 1 MiB as soon as they are full: it writes all but the last block of each window, and then these blocks. What comes before is the
 * application's time, and what comes after is the service cores' alone: with two cores in the machine nothing else tells them apart.
 * --compute: for so long it computes before the data is let go, and once more after; the rates of both are in the answer.
 *
 * Data is made before the clock runs, from 64 MiB of content that repeats with a number of its own in each 4 KiB: nothing of it is found twice
 * in pieces of 8 KiB or more. random: nothing compresses it. floats: a smooth field of doubles with noise in the low bits.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_BYTES   4096u
#define WINDOW_BYTES  (1u << 20)
#define CONTENT_BYTES (64u << 20)
#define FIELD_WORDS   (16u << 10) /* 128 KiB: what a compute loop has in its second-level cache */

struct config {
    const char *path;
    uint64_t size_bytes, seed;
    unsigned compute_ms;
    int cpu;
    bool floats, hold, fsync;
};

static void die(const char *what)
{
    fprintf(stderr, "appbench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double clock_s(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double now_s(void)
{
    return clock_s(CLOCK_MONOTONIC);
}

/* ---------------------------------------------------------------- data */

static uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x;
}

static void fill(uint8_t *p, size_t bytes, bool floats, uint64_t seed)
{
    uint64_t x = 88172645463325252u + seed;
    for (size_t i = 0; i < bytes / 8; i++) {
        uint64_t v = next_random(&x);
        if (floats) {
            double d = 300.0 + 20.0 * sin((double)i * 1e-3) * cos((double)i * 1.7e-6);
            memcpy(&v, &d, sizeof v);
            v ^= x & 0xffffff; /* half of the mantissa is noise */
        }
        memcpy(p + i * 8, &v, sizeof v);
    }
}

static void number(uint8_t *p, uint64_t len, uint64_t first)
{
    for (uint64_t at = 0; at < len; at += BLOCK_BYTES) {
        uint64_t n = (first + at / BLOCK_BYTES + 1) * 0x9e3779b97f4a7c15u;
        memcpy(p + at, &n, sizeof n);
    }
}

static uint8_t *prepare(const struct config *c)
{
    uint8_t *p = mmap(NULL, c->size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        die("memory");
    uint64_t first = c->size_bytes < CONTENT_BYTES ? c->size_bytes : CONTENT_BYTES;
    fill(p, first, c->floats, 1); /* the same in all files: only the numbers tell them apart */
    for (uint64_t at = first; at < c->size_bytes; at += first)
        memcpy(p + at, p, c->size_bytes - at < first ? c->size_bytes - at : first);
    number(p, c->size_bytes, c->seed << 32);
    return p;
}

static void put(int fd, const uint8_t *data, uint64_t off, uint64_t len)
{
    for (uint64_t done = 0; done < len;) {
        ssize_t n = pwrite(fd, data + off + done, len - done, (off_t)(off + done));
        if (n <= 0)
            die("write");
        done += (uint64_t)n;
    }
}

/* ---------------------------------------------------------------- computing */

static double field[FIELD_WORDS];

/* Sweeps per second: by the clock on the wall, and of the processor time that it got. Both fall when caches and memory are shared; only the
 * first when others run on this core. */
struct rates {
    double wall, cpu;
};

/* A stencil over and over, for ms. */
static struct rates compute(unsigned ms)
{
    double start = now_s(), end = start + ms / 1e3, now, cpu = clock_s(CLOCK_THREAD_CPUTIME_ID);
    uint64_t sweeps = 0;
    do {
        for (unsigned k = 0; k < 8; k++, sweeps++)
            for (unsigned i = 1; i + 1 < FIELD_WORDS; i++)
                field[i] = 0.25 * field[i - 1] + 0.5 * field[i] + 0.25 * field[i + 1] + 1e-9;
        now = now_s();
    } while (now < end);
    return (struct rates){(double)sweeps / (now - start), (double)sweeps / (clock_s(CLOCK_THREAD_CPUTIME_ID) - cpu)};
}

/* ---------------------------------------------------------------- */

static void run(const struct config *c, const uint8_t *data)
{
    struct rates idle = {0, 0}, busy = {0, 0};
    double t0, t_wrote, t_go, t_gone, t_fsync, t_end;
    uint64_t held = c->hold ? BLOCK_BYTES : 0;

    if (c->compute_ms)
        (void)compute(c->compute_ms / 4); /* caches, clock */
    t0 = now_s();
    int fd = open(c->path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        die(c->path);
    for (uint64_t w = 0; w < c->size_bytes; w += WINDOW_BYTES)
        put(fd, data, w, WINDOW_BYTES - held);
    t_wrote = now_s();
    if (c->compute_ms && c->hold)
        idle = compute(c->compute_ms);
    t_go = now_s();
    for (uint64_t w = 0; held && w < c->size_bytes; w += WINDOW_BYTES)
        put(fd, data, w + WINDOW_BYTES - held, held);
    t_gone = now_s();
    if (c->compute_ms)
        busy = compute(c->compute_ms);
    t_fsync = now_s();
    if (c->fsync && fsync(fd) != 0)
        die("fsync");
    double t_close = now_s();
    if (close(fd) != 0)
        die("close");
    t_end = now_s();
    printf("{\"bytes\":%llu,\"write_s\":%.6f,\"go_s\":%.6f,\"work_s\":%.6f,\"wait_s\":%.6f,\"close_s\":%.6f,",
           (unsigned long long)c->size_bytes, t_wrote - t0, t_gone - t_go, t_end - t_go, t_end - t_fsync, t_end - t_close);
    printf("\"idle_rate\":%.1f,\"busy_rate\":%.1f,\"idle_cpu_rate\":%.1f,\"busy_cpu_rate\":%.1f}\n", idle.wall, busy.wall, idle.cpu, busy.cpu);
}

static uint64_t natural(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end || end == text) {
        fprintf(stderr, "appbench: %s is not a number\n", text);
        exit(2);
    }
    return v;
}

static void parse(struct config *c, int argc, char **argv)
{
    static const struct option options[] = {
        {"path", 1, NULL, 'p'},    {"size", 1, NULL, 's'},    {"content", 1, NULL, 'c'}, {"cpu", 1, NULL, 'u'}, {"hold", 0, NULL, 'h'},
        {"compute", 1, NULL, 'm'}, {"seed", 1, NULL, 'e'},    {"fsync", 0, NULL, 'F'},   {NULL, 0, NULL, 0},
    };
    int o;
    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (o) {
        case 'p': c->path = optarg; break;
        case 's': c->size_bytes = natural(optarg); break;
        case 'c': c->floats = strcmp(optarg, "floats") == 0; break;
        case 'u': c->cpu = (int)natural(optarg); break;
        case 'h': c->hold = true; break;
        case 'm': c->compute_ms = (unsigned)natural(optarg); break;
        case 'e': c->seed = natural(optarg); break;
        case 'F': c->fsync = true; break;
        default: exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    struct config c = {.cpu = -1};
    parse(&c, argc, argv);
    if (!c.path || c.size_bytes == 0 || c.size_bytes % WINDOW_BYTES != 0) {
        fprintf(stderr, "usage: appbench --path FILE --size BYTES ...: see the top of appbench.c\n");
        return 2;
    }
    if (c.cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(c.cpu, &set);
        if (sched_setaffinity(0, sizeof set, &set) != 0)
            die("--cpu");
    }
    alarm(120);
    run(&c, prepare(&c));
    return 0;
}
