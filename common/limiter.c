/* A device of known speed (see fp/limiter.h).
 *
 * Called by fp-benefactor and fp-mount for --backend emulated:, by fp-slowfs, on whichever thread does the I/O.
 *
 * The clock says until when the device is busy. An operation that comes at `now` begins when the device is free,
 * max(now, clock), and moves the clock on by what it costs: one compare-and-swap. Operations that wait at the same
 * time are thus done one after the other, in the order in which they came, and their times add up without error.
 * A program that issues one operation after the other would find the device free for as long as its sleep lasted too
 * long and it had no processor: some 0.1 ms, on a busy machine a scheduler's slice or two of 4 ms. No device is emulated
 * by being slow then; so one that was idle for up to FP_LIMITER_CREDIT_NS has not been idle.
 *
 * Rejected: a bucket of tokens that is filled by ticks (off by a tick, and what was saved up goes in one burst);
 * cgroup's io.max (root and block devices only, and memory is none).
 *
 * The page is shared with mounts of the same user; one that writes nonsense into it may make the others faster,
 * but not wait for ever: a clock further ahead than AHEAD_MAX_NS is not believed. */
#include "fp/limiter.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/memfd.h"
#include "fp/opt.h"
#include "fp/units.h"

#define PAGE_BYTES   4096u
#define MAGIC        0x726574696d696c31u /* "1limiter" */
#define SECOND_NS    1000000000u
#define AHEAD_MAX_NS (600ull * SECOND_NS)

struct fp_limiter {
    uint64_t magic;
    struct fp_limiter_spec spec; /* constant */
    _Alignas(64) _Atomic uint64_t free_ns; /* when the device has done all that was taken */
    _Alignas(64) _Atomic uint64_t bytes[2], ops[2]; /* [1]: written */
};

_Static_assert(sizeof(struct fp_limiter) <= PAGE_BYTES, "one page");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "locks of one process are none of the other's");

/* ---------------------------------------------------------------- what the user says */

static const char *const words[] = {"write", "read", "write-iops", "read-iops", NULL};

static int refuse(char why[FP_LIMITER_WHY_BUF], const char *text, const char *what)
{
    snprintf(why, FP_LIMITER_WHY_BUF, "'%.60s': %s", text, what);
    return -EINVAL;
}

static int take_iops(const char *value, uint64_t *out, const char **what)
{
    int64_t n;
    int rc = fp_parse_int(value, &n, what);

    if (rc == 0 && (n < (int64_t)FP_LIMITER_IOPS_MIN || n > (int64_t)FP_LIMITER_IOPS_MAX)) {
        *what = "operations per second are 10 to 100000000";
        rc = -ERANGE;
    }
    if (rc == 0)
        *out = (uint64_t)n;
    return rc;
}

static int take_rate(const char *value, uint64_t *out, const char **what)
{
    int rc = fp_parse_rate(value, out, what);

    if (rc == 0 && *out < FP_LIMITER_BPS_MIN) {
        *what = "a rate is 1MB/s or more";
        rc = -ERANGE;
    }
    return rc;
}

static int take_word(char *word, struct fp_limiter_spec *out, char why[FP_LIMITER_WHY_BUF])
{
    uint64_t *const fields[] = {&out->write_bps, &out->read_bps, &out->write_iops, &out->read_iops};
    char *value = strchr(word, '=');
    const char *what = NULL, *near;
    size_t i = 0;

    if (!value)
        return refuse(why, word, "give x25e, or words such as write=175MB/s,read=250MB/s,write-iops=3300");
    *value++ = '\0';
    while (words[i] && strcmp(words[i], word) != 0)
        i++;
    if (!words[i]) {
        near = fp_nearest_name(word, words);
        snprintf(why, FP_LIMITER_WHY_BUF, "there is no '%.40s'%s%s; there are write, read, write-iops and read-iops", word,
                 near ? ": did you mean " : "", near ? near : "");
        return -EINVAL;
    }
    if (*fields[i])
        return refuse(why, word, "is given twice");
    if (i < 2 ? take_rate(value, fields[i], &what) : take_iops(value, fields[i], &what))
        return refuse(why, value, what);
    return 0;
}

int fp_limiter_spec(const char *text, struct fp_limiter_spec *out, char why[FP_LIMITER_WHY_BUF])
{
    static const struct fp_limiter_spec x25e = {
        .write_bps = 175000000, .read_bps = 250000000, .write_iops = 3300, .read_iops = 35000};
    struct fp_limiter_spec spec = {0};
    char copy[256], *next = copy, *word;
    int rc = 0;

    if (strcmp(text, "x25e") == 0) { /* the SSD of the paper: Intel X25-E */
        *out = x25e;
        return 0;
    }
    if (strlen(text) >= sizeof(copy))
        return refuse(why, text, "is too long");
    strcpy(copy, text);
    while (rc == 0 && (word = strsep(&next, ",")))
        rc = take_word(word, &spec, why);
    if (rc == 0)
        *out = spec;
    return rc;
}

/* ---------------------------------------------------------------- the page */

static int map(int fd, struct fp_limiter **out)
{
    void *p = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return -errno;
    *out = p;
    return 0;
}

int fp_limiter_new(const struct fp_limiter_spec *spec, struct fp_limiter **out, int *fd)
{
    int mem = fp_memfd_new("fp-limiter", PAGE_BYTES);
    int rc = mem < 0 ? mem : map(mem, out);

    if (rc == 0) {
        (*out)->magic = MAGIC;
        (*out)->spec = *spec;
    }
    if (mem >= 0 && (rc < 0 || !fd))
        close(mem);
    else if (fd)
        *fd = mem;
    return rc;
}

int fp_limiter_map(int fd, struct fp_limiter **out)
{
    struct stat st;
    struct fp_limiter *l = NULL;
    int rc;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size != PAGE_BYTES)
        return -EINVAL;
    rc = fp_memfd_fixed(fd);
    if (rc == 0)
        rc = map(fd, &l);
    if (rc == 0 && l->magic != MAGIC) {
        fp_limiter_unmap(l);
        rc = -EINVAL;
    }
    if (rc == 0)
        *out = l;
    return rc;
}

void fp_limiter_unmap(struct fp_limiter *l)
{
    if (l)
        munmap(l, PAGE_BYTES);
}

/* ---------------------------------------------------------------- the clock */

static uint64_t cost_ns(const struct fp_limiter_spec *s, bool write, uint64_t bytes)
{
    uint64_t bps = write ? s->write_bps : s->read_bps, iops = write ? s->write_iops : s->read_iops;
    uint64_t by_bytes = 0, by_ops = iops ? (SECOND_NS + iops / 2) / iops : 0;

    if (bps)
        by_bytes = (uint64_t)(((unsigned __int128)bytes * SECOND_NS + bps / 2) / bps);
    return by_bytes > by_ops ? by_bytes : by_ops;
}

uint64_t fp_limiter_take(struct fp_limiter *l, bool write, uint64_t bytes, uint64_t now_ns)
{
    uint64_t cost = cost_ns(&l->spec, write, bytes), earliest = now_ns > FP_LIMITER_CREDIT_NS ? now_ns - FP_LIMITER_CREDIT_NS : 0;
    uint64_t busy = atomic_load(&l->free_ns), end;

    do
        end = (busy < earliest || busy > now_ns + AHEAD_MAX_NS ? earliest : busy) + cost;
    while (!atomic_compare_exchange_weak(&l->free_ns, &busy, end));
    atomic_fetch_add_explicit(&l->bytes[write], bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->ops[write], 1, memory_order_relaxed);
    return end;
}

void fp_limiter_wait(uint64_t until_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(until_ns / SECOND_NS), .tv_nsec = (long)(until_ns % SECOND_NS)};

    if (fp_now_ns() >= until_ns)
        return;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) {
    }
}

struct fp_limiter_spec fp_limiter_speed(const struct fp_limiter *l)
{
    return l->spec;
}

struct fp_limiter_count fp_limiter_count(const struct fp_limiter *l)
{
    return (struct fp_limiter_count){
        .write_bytes = atomic_load(&l->bytes[1]), .read_bytes = atomic_load(&l->bytes[0]),
        .writes = atomic_load(&l->ops[1]), .reads = atomic_load(&l->ops[0])};
}
