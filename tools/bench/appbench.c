/*
 * The application of the benchmarks of aux-apps: prepares data, writes it, computes, and says how long each took.
 *
 *     appbench --path FILE [--path FILE] --size BYTES [--rounds N] [--keep] [--spare BYTES] [--content random|floats] [--cpu N] [--hold]
 *              [--compute MS] [--fsync] [--seed N]
 *
 * Called by tools/bench/cases_pipeline.py; prints one JSON object per file that it wrote. It knows nothing of fpstore but, with --hold, that data is worked on by
 * windows of 1 MiB as soon as they are full: it writes all but the last block of each window, and then these blocks. What comes before is the
 * application's time, and what comes after is the service cores' alone: with two cores in the machine nothing else tells them apart.
 * --compute: for so long it computes before the data is let go, and once more after; the rates of both are in the answer.
 *
 * --rounds: so many times, with the same memory; of two paths, each once a round, in turn first and second: what others do to the machine meets both. A
 * file is removed before the next one, and its space waited for; with --keep it is the next version: it has the round's number behind its name, and is
 * removed after the one that follows.
 *
 * Data is made before the clock runs, from 64 MiB of content that repeats with a number of its own in each 4 KiB: nothing of it is found twice
 * in pieces of 8 KiB or more. random: nothing compresses it. floats: a smooth field of doubles with noise in the low bits.
 * --spare: so much memory is taken and let go just before. A virtual machine gives memory that is free for seconds back to its host, and what then takes it first is
 * ten times slower: a back end in memory would be measured by that.
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
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_BYTES   4096u
#define WINDOW_BYTES  (1u << 20)
#define CONTENT_BYTES (64u << 20)
#define FIELD_WORDS   (16u << 10) /* 128 KiB: what a compute loop has in its second-level cache */

#define PATHS_MAX 2u
#define SETTLE_MS 6000u

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

struct config {
    const char *path[PATHS_MAX];
    uint64_t size_bytes, seed, spare_bytes;
    unsigned npaths, compute_ms, rounds;
    int cpu;
    bool floats, hold, fsync, keep;
};

struct target {
    char name[4096], last[4096]; /* last: of the version before, to be removed */
    uint64_t free_blocks;        /* of its file system, before anything */
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

static void *memory(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        die("memory");
    return p;
}

static uint8_t *prepare(const struct config *c)
{
    uint8_t *p = memory(c->size_bytes);
    uint64_t first = c->size_bytes < CONTENT_BYTES ? c->size_bytes : CONTENT_BYTES;
    fill(p, first, c->floats, 1); /* the same in all files: only the numbers tell them apart */
    for (uint64_t at = first; at < c->size_bytes; at += first)
        memcpy(p + at, p, c->size_bytes - at < first ? c->size_bytes - at : first);
    return p;
}

static void warm_memory(uint64_t bytes)
{
    if (bytes == 0)
        return;
    void *p = memory(bytes);
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* as the back end takes it; without, it is as good in smaller pieces */
    if (madvise(p, bytes, MADV_POPULATE_WRITE) != 0)
        memset(p, 1, bytes);
    munmap(p, bytes);
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

static uint64_t free_blocks(const char *path)
{
    struct statvfs v;
    if (statvfs(path, &v) != 0)
        die(path);
    return v.f_bfree;
}

static void remove_and_settle(const struct target *t, const char *name, bool settle)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    if (unlink(name) != 0)
        die(name);
    char dir[sizeof t->name];
    snprintf(dir, sizeof dir, "%s", name);
    *strrchr(dir, '/') = '\0';
    for (unsigned ms = 0; settle && ms < SETTLE_MS && free_blocks(dir) < t->free_blocks; ms += 10)
        nanosleep(&pause, NULL);
}

static void run(const struct config *c, const char *name, unsigned path, const uint8_t *data)
{
    struct rates idle = {0, 0}, busy = {0, 0};
    double t0, t_wrote, t_go, t_gone, t_fsync, t_end;
    uint64_t held = c->hold ? BLOCK_BYTES : 0;

    if (c->compute_ms)
        (void)compute(c->compute_ms / 4); /* caches, clock */
    t0 = now_s();
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        die(name);
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
    printf("{\"path\":%u,\"bytes\":%llu,\"write_s\":%.6f,\"go_s\":%.6f,\"work_s\":%.6f,\"wait_s\":%.6f,\"close_s\":%.6f,", path,
           (unsigned long long)c->size_bytes, t_wrote - t0, t_gone - t_go, t_end - t_go, t_end - t_fsync, t_end - t_close);
    printf("\"idle_rate\":%.1f,\"busy_rate\":%.1f,\"idle_cpu_rate\":%.1f,\"busy_cpu_rate\":%.1f}\n", idle.wall, busy.wall, idle.cpu, busy.cpu);
}

static void one(const struct config *c, struct target *t, unsigned path, unsigned round, uint8_t *data)
{
    alarm(60);
    number(data, c->size_bytes, c->seed << 40 | (uint64_t)round << 32 | (uint64_t)path << 31);
    if (c->keep)
        snprintf(t->name, sizeof t->name, "%s_%04u", c->path[path], round);
    warm_memory(c->spare_bytes);
    run(c, t->name, path, data);
    if (!c->keep)
        remove_and_settle(t, t->name, true);
    else if (t->last[0])
        remove_and_settle(t, t->last, false);
    if (c->keep)
        memcpy(t->last, t->name, sizeof t->last);
}

static void all(const struct config *c, uint8_t *data)
{
    static struct target target[PATHS_MAX];

    for (unsigned i = 0; i < c->npaths; i++) {
        char dir[sizeof target[i].name];
        snprintf(target[i].name, sizeof target[i].name, "%s", c->path[i]);
        snprintf(dir, sizeof dir, "%s", c->path[i]);
        *strrchr(dir, '/') = '\0';
        target[i].free_blocks = free_blocks(dir);
    }
    for (unsigned round = 0; round < c->rounds; round++) {
        for (unsigned k = 0; k < c->npaths; k++) {
            unsigned path = (k + round) % c->npaths;
            one(c, &target[path], path, round, data);
        }
    }
    for (unsigned i = 0; c->keep && i < c->npaths; i++)
        remove_and_settle(&target[i], target[i].last, true);
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

static void add_path(struct config *c, const char *path)
{
    if (c->npaths == PATHS_MAX || path[0] != '/') {
        fprintf(stderr, "appbench: --path: at most %u, from the root on\n", PATHS_MAX);
        exit(2);
    }
    c->path[c->npaths++] = path;
}

static void parse(struct config *c, int argc, char **argv)
{
    static const struct option options[] = {
        {"path", 1, NULL, 'p'},    {"size", 1, NULL, 's'}, {"content", 1, NULL, 'c'}, {"cpu", 1, NULL, 'u'},   {"hold", 0, NULL, 'h'}, {"rounds", 1, NULL, 'r'},
        {"compute", 1, NULL, 'm'}, {"seed", 1, NULL, 'e'}, {"fsync", 0, NULL, 'F'},   {"spare", 1, NULL, 'w'}, {"keep", 0, NULL, 'k'}, {NULL, 0, NULL, 0},
    };
    int o;
    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (o) {
        case 'p': add_path(c, optarg); break;
        case 's': c->size_bytes = natural(optarg); break;
        case 'c': c->floats = strcmp(optarg, "floats") == 0; break;
        case 'u': c->cpu = (int)natural(optarg); break;
        case 'h': c->hold = true; break;
        case 'r': c->rounds = (unsigned)natural(optarg); break;
        case 'm': c->compute_ms = (unsigned)natural(optarg); break;
        case 'e': c->seed = natural(optarg); break;
        case 'F': c->fsync = true; break;
        case 'w': c->spare_bytes = natural(optarg); break;
        case 'k': c->keep = true; break;
        default: exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    struct config c = {.cpu = -1, .rounds = 1};
    parse(&c, argc, argv);
    if (c.npaths == 0 || c.size_bytes == 0 || c.size_bytes % WINDOW_BYTES != 0) {
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
    all(&c, prepare(&c));
    return 0;
}
