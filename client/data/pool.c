/*
 * The chunk pool (see pool.h). Called from FUSE threads (writes), store threads (read-ahead, completion) and the core loop (completion of
 * remote writes).
 *
 * One mutex protects the stack of free pages and the queue of those who wait; a caller takes all the pages of a write in one go, so the lock is taken twice
 * per megabyte. Who waits is served in the order of coming: pages that come back are given to the first in the queue, once there are enough for it, before
 * anybody else gets one, so that a write of 17 pages waits no longer than it takes to free those before it and its own. To let small ones pass
 * as long as there are pages for them was rejected: beside many writers of one page, the large one gets none. The free list is a stack: the page used last is the warmest in the processor's cache. A lock-free list was not worth it: at 1 MiB per
 * write the lock is far below 1 % of the profile.
 *
 * The memory is a memfd because the aux-app host maps the same pool. It is faulted in at start, so that no application pays for
 * first touches, and kept out of core files: it holds users' data.
 *
 * It is of huge pages where the kernel can (Linux 6.1, whatever the setting of shmem_enabled): direct I/O from 4 KiB pages hands the device 256
 * segments per MiB. Measured on a virtio disk, 1 MiB at a time: reads 1.0 -> 3.1 GB/s, writes 2.6 -> 3.6 GB/s; and 512 MiB are
 * ready in 0.1 s instead of 0.9 s. hugetlbfs would need memory that the administrator has set aside.
 *
 * Pages to lend lie behind the others in the same memfd, from the next place where a huge page may begin, since they may become pages of the pool and have to be
 * as good for direct I/O and for the host.
 */
#include "client/data/pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/memfd.h"

#define HUGE_BYTES ((size_t)2 << 20)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; others say EINVAL */
#endif

/* On the stack of its thread, in the queue until it is served or gives up. */
struct waiter {
    STAILQ_ENTRY(waiter) link;
    uint8_t **pages;
    size_t n;
    bool served;
    pthread_cond_t cond;        /* it is served */
};

struct cl_pool {
    uint8_t *reserved;          /* address space: bytes + HUGE_BYTES, so that base can be aligned */
    uint8_t *base;
    size_t npages;
    size_t mapped_bytes;        /* with those to lend */
    int fd;
    size_t (*reclaim)(void *arg, size_t want);
    void (*pressure)(void *arg);
    void *arg;
    pthread_mutex_t lock;
    uint8_t **stack;            /* lock */
    size_t nfree;               /* lock */
    STAILQ_HEAD(, waiter) queue; /* lock: while there is one, nobody takes pages but through it */
    uint8_t **to_lend;          /* lock: a stack */
    size_t nto_lend;            /* lock */
};

/* CLOCK_MONOTONIC for the waits: a step of the wall clock must not shorten or lengthen a deadline. */
static void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t a;

    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(c, &a);
    pthread_condattr_destroy(&a);
}

/* One touch allocates a small page, which the kernel then makes a huge one of; to fill all small ones first takes ten times as long. */
static void fault_in(uint8_t *base, size_t bytes)
{
    volatile uint8_t *at = base;
    size_t off = 0;

    for (; off + HUGE_BYTES <= bytes; off += HUGE_BYTES) {
        at[off] = 0;
        if (madvise(base + off, HUGE_BYTES, MADV_COLLAPSE) != 0)
            break;
    }
    for (; off < bytes; off += 4096)
        at[off] = 0;
}

/* What can be had without pushing other programs out; no answer counts as enough. */
static uint64_t memory_available(void)
{
    unsigned long long kib = UINT64_MAX >> 10;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return (uint64_t)kib << 10;
}

static int map_memory(struct cl_pool *p)
{
    size_t pool_bytes = p->npages * CL_PAGE_BYTES, bytes = p->mapped_bytes;
    uint8_t *at;
    int rc;

    if (pool_bytes > memory_available()) /* touching it would end in the hands of the OOM killer */
        return -ENOMEM;
    p->fd = fp_memfd_new("fpstore-pool", bytes);
    if (p->fd < 0)
        return p->fd;
    p->reserved = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p->reserved == MAP_FAILED) {
        p->reserved = NULL;
        return -errno;
    }
    at = (uint8_t *)(((uintptr_t)p->reserved + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
    p->base = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, p->fd, 0);
    if (p->base == MAP_FAILED) {
        p->base = NULL;
        return -errno;
    }
    (void)madvise(p->base, bytes, MADV_DONTDUMP);
    fault_in(p->base, pool_bytes);
    rc = fp_memfd_no_more_writers(p->fd); /* the host of aux-apps gets a descriptor */
    return rc == 0 ? fp_memfd_seal(p->fd) : rc;
}

static size_t huge_up(size_t bytes)
{
    return (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
}

int cl_pool_new(uint64_t bytes, size_t (*reclaim)(void *arg, size_t want), void (*pressure)(void *arg), void *arg,
        struct cl_pool **out)
{
    return cl_pool_new_lending(bytes, 0, reclaim, pressure, arg, out);
}

int cl_pool_new_lending(uint64_t bytes, size_t to_lend, size_t (*reclaim)(void *arg, size_t want), void (*pressure)(void *arg), void *arg,
            struct cl_pool **out)
{
    struct cl_pool *p = calloc(1, sizeof(*p));
    int rc = -ENOMEM;

    if (!p)
        return -ENOMEM;
    p->fd = -1;
    p->npages = bytes / CL_PAGE_BYTES;
    p->nto_lend = to_lend;
    p->mapped_bytes = p->npages * CL_PAGE_BYTES;
    if (to_lend > 0)
        p->mapped_bytes = huge_up(p->mapped_bytes) + huge_up(to_lend * CL_PAGE_BYTES);
    p->reclaim = reclaim;
    p->pressure = pressure;
    p->arg = arg;
    pthread_mutex_init(&p->lock, NULL);
    STAILQ_INIT(&p->queue);
    p->stack = calloc(p->npages, sizeof(*p->stack));
    p->to_lend = calloc(to_lend + 1, sizeof(*p->to_lend));
    if (!p->stack || !p->to_lend)
        goto out;
    rc = map_memory(p);
    if (rc < 0)
        goto out;
    for (size_t i = 0; i < p->npages; i++)
        p->stack[i] = p->base + (p->npages - 1 - i) * CL_PAGE_BYTES;
    p->nfree = p->npages;
    for (size_t i = 0; i < to_lend; i++)
        p->to_lend[i] = p->base + huge_up(p->npages * CL_PAGE_BYTES) + (to_lend - 1 - i) * CL_PAGE_BYTES;
    *out = p;
    return 0;
out:
    cl_pool_free(p);
    return rc;
}

void cl_pool_free(struct cl_pool *p)
{
    if (!p)
        return;
    if (p->reserved)
        munmap(p->reserved, p->mapped_bytes + HUGE_BYTES);
    if (p->fd >= 0)
        close(p->fd);
    free(p->stack);
    free(p->to_lend);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static void take(struct cl_pool *p, uint8_t **pages, size_t n)
{
    p->nfree -= n;
    memcpy(pages, p->stack + p->nfree, n * sizeof(*pages));
}

/* lock held: give what there is to those who have waited longest. */
static void serve(struct cl_pool *p)
{
    struct waiter *w;

    while ((w = STAILQ_FIRST(&p->queue)) && p->nfree >= w->n) {
        STAILQ_REMOVE_HEAD(&p->queue, link);
        take(p, w->pages, w->n);
        w->served = true;
        pthread_cond_signal(&w->cond);
    }
}

int cl_pool_try_get(struct cl_pool *p, uint8_t **pages, size_t n, size_t keep_free)
{
    int rc = -EAGAIN;

    pthread_mutex_lock(&p->lock);
    if (p->nfree >= n + keep_free && STAILQ_EMPTY(&p->queue)) {
        take(p, pages, n);
        rc = 0;
    }
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/*
 * Wait for at most 100 ms at a time: a writer that could not get its pages asks again for reclaim and pressure, since what was busy when it
 * first asked may be idle now.
 */
static void wait_a_while(struct cl_pool *p, struct waiter *w, uint64_t deadline_ms)
{
    uint64_t until_ms = fp_now_ms() + 100;
    struct timespec ts;

    if (until_ms > deadline_ms)
        until_ms = deadline_ms;
    ts.tv_sec = (time_t)(until_ms / 1000);
    ts.tv_nsec = (long)(until_ms % 1000) * 1000000;
    pthread_cond_timedwait(&w->cond, &p->lock, &ts);
}

/* lock held, and released meanwhile. */
static int get_in_turn(struct cl_pool *p, uint8_t **pages, size_t n, uint64_t deadline_ms)
{
    struct waiter w = { .pages = pages, .n = n };

    cond_init(&w.cond);
    STAILQ_INSERT_TAIL(&p->queue, &w, link);
    while (!w.served) {
        pthread_mutex_unlock(&p->lock);
        if (p->reclaim(p->arg, n) == 0)
            p->pressure(p->arg);
        pthread_mutex_lock(&p->lock);
        if (!w.served)
            wait_a_while(p, &w, deadline_ms);
        if (!w.served && fp_now_ms() >= deadline_ms) {
            STAILQ_REMOVE(&p->queue, &w, waiter, link);
            serve(p); /* the next one may need less */
            break;
        }
    }
    pthread_cond_destroy(&w.cond);
    return w.served ? 0 : -ETIMEDOUT;
}

int cl_pool_get(struct cl_pool *p, uint8_t **pages, size_t n, uint64_t deadline_ms)
{
    int rc = 0;

    assert(n <= p->npages);
    pthread_mutex_lock(&p->lock);
    if (p->nfree >= n && STAILQ_EMPTY(&p->queue))
        take(p, pages, n);
    else
        rc = get_in_turn(p, pages, n, deadline_ms);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

void cl_pool_put(struct cl_pool *p, uint8_t *const *pages, size_t n)
{
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < n; i++)
        if (pages[i])
            p->stack[p->nfree++] = pages[i];
    assert(p->nfree <= p->npages);
    serve(p);
    pthread_mutex_unlock(&p->lock);
}

int cl_pool_lend(struct cl_pool *p, uint8_t **pages, size_t n)
{
    int rc = -EAGAIN;

    pthread_mutex_lock(&p->lock);
    if (n <= p->nto_lend) {
        for (size_t i = 0; i < n; i++)
            pages[i] = p->to_lend[--p->nto_lend];
        rc = 0;
    }
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        *(volatile uint8_t *)pages[i] = 0;
        if ((size_t)(pages[i] - p->base) % HUGE_BYTES == 0)
            (void)madvise(pages[i], HUGE_BYTES, MADV_COLLAPSE); /* others may have pages of it: it changes no bytes */
    }
    return rc;
}

void cl_pool_take_back(struct cl_pool *p, uint8_t *const *pages, size_t n)
{
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < n; i++)
        p->to_lend[p->nto_lend++] = pages[i];
    pthread_mutex_unlock(&p->lock);
}

int cl_pool_fd(const struct cl_pool *p)
{
    return p->fd;
}

uint64_t cl_pool_mapped_bytes(const struct cl_pool *p)
{
    return p->mapped_bytes;
}

uint32_t cl_pool_page_number(const struct cl_pool *p, const uint8_t *page)
{
    size_t off = (size_t)(page - p->base);

    assert(page >= p->base && off % CL_PAGE_BYTES == 0 && off < p->mapped_bytes);
    return (uint32_t)(off / CL_PAGE_BYTES);
}

size_t cl_pool_pages(const struct cl_pool *p)
{
    return p->npages;
}

size_t cl_pool_free_pages(struct cl_pool *p)
{
    pthread_mutex_lock(&p->lock);
    size_t n = p->nfree;
    pthread_mutex_unlock(&p->lock);
    return n;
}
