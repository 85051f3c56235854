/*
 * A mount's data path over the models of cl_world.h, for test_cl_data*.c: start, stop, open, read, and the checks that hold whenever
 * nothing is under way: accounts at zero, all pages in the pool, nothing promised.
 */
#ifndef TESTS_CL_FIXTURE_H
#define TESTS_CL_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/data/internal.h"
#include "client/receive.h"
#include "tests/unit/cl_rand.h"
#include "tests/unit/cl_world.h"

struct fx_mount {
    struct cl_mount m;
    struct world_mount w;
};

static void fx_core_table(void *arg)
{
    struct world_table t;

    world_table(&t);
    cl_data_bnf_table(arg, &t.msg);
}

static inline void fx_table(struct fx_mount *x)
{
    world_on_core(fx_core_table, &x->m);
}

static inline void fx_start(struct fx_mount *x, uint32_t session, uint64_t io_timeout_ms)
{
    memset(x, 0, sizeof *x);
    x->w.session = session;
    x->m.core = (struct cl_core *)(void *)&x->w;
    x->m.opt.node = "n0";
    x->m.opt.pool_bytes = 32u << 20;
    x->m.opt.read_ahead_bytes = 1u << 20;
    x->m.opt.io_timeout_ms = io_timeout_ms;
    x->m.opt.store_threads = 3;
    x->m.opt.threads = 4;
    x->m.default_chunk_size_bytes = 1u << 20;
    WORLD_CHECK(cl_itable_new(&x->m.inodes) == 0);
    WORLD_CHECK(cl_data_new(&x->m) == 0);
    fx_table(x);
    WORLD_CHECK(cl_data_start(&x->m) == 0);
}

/* Nothing is under way: every account must be at zero. */
static inline void fx_check_quiet(struct fx_mount *x)
{
    struct cl_data *d = x->m.data;
    uint64_t until_ms = fp_now_ms() + 20000;
    Fp__ClientStats st;

    while (cl_rcache_reclaim(d->rcache, SIZE_MAX), cl_pool_free_pages(d->pool) != cl_pool_pages(d->pool) && fp_now_ms() < until_ms)
        usleep(1000); /* read-ahead ends */
    WORLD_CHECK(cl_pool_free_pages(d->pool) == cl_pool_pages(d->pool));
    fp__client_stats__init(&st);
    cl_data_stats(&x->m, &st);
    WORLD_CHECK(st.dirty_bytes == 0 && st.uncommitted_bytes == 0 && st.pool_used_bytes == 0);
    WORLD_CHECK(!d->oldest && !d->newest);
    pthread_mutex_lock(&d->space_lock);
    for (struct cl_bnf *b = d->bnfs; b; b = b->next)
        for (struct cl_lease *l = b->leases; l; l = l->next) {
            WORLD_CHECK(l->busy == 0);
            for (uint32_t i = 0; i < l->nextents; i++)
                WORLD_CHECK(l->ext[i].promised == 0 && l->ext[i].off <= l->ext[i].end);
        }
    pthread_mutex_unlock(&d->space_lock);
}

static inline void fx_check_file_quiet(struct cl_handle *h)
{
    struct cl_file *f = h->inode->file;
    uint64_t dirty, uncommitted;

    cl_data_at_risk(h->inode, &dirty, &uncommitted);
    WORLD_CHECK(dirty == 0 && uncommitted == 0);
    if (!f)
        return;
    pthread_mutex_lock(&h->inode->lock);
    WORLD_CHECK(f->nopen == 0 && f->ninflight == 0 && f->nstored == 0 && !f->fl_head && !f->fl_tail && !f->committing);
    WORLD_CHECK(f->end_written == 0);
    for (uint32_t i = 0; i < f->nwins; i++)
        WORLD_CHECK(!f->wins[i]->bufs);
    pthread_mutex_unlock(&h->inode->lock);
}

static inline void fx_stop(struct fx_mount *x)
{
    fx_check_quiet(x);
    cl_data_stop(&x->m);
    world_close_conns();
    cl_itable_free(&x->m);
    cl_data_free(&x->m);
}

static inline void fx_open_as(struct fx_mount *x, struct cl_handle *h, uint64_t ino, bool writes)
{
    Fp__Attr a;

    memset(h, 0, sizeof *h);
    h->writes = writes;
    world_attr(ino, &a);
    h->inode = cl_inode_intern(&x->m, &a);
    WORLD_CHECK(h->inode && cl_data_open(&x->m, h, &a) == 0);
}

static inline void fx_open(struct fx_mount *x, struct cl_handle *h, uint64_t ino)
{
    fx_open_as(x, h, ino, false);
}

static inline void fx_closed(struct cl_mount *m, struct cl_handle *h)
{
    cl_inode_put(m, h->inode);
    __atomic_store_n(&h->inode, NULL, __ATOMIC_RELEASE);
}

/* Until it is over, on whatever thread. */
static inline void fx_close(struct fx_mount *x, struct cl_handle *h)
{
    cl_data_release(&x->m, h, fx_closed);
    while (__atomic_load_n(&h->inode, __ATOMIC_ACQUIRE))
        usleep(1000);
}

/* A world of one benefactor and this mount, of which it is the node's own or not. */
static inline void fx_begin(struct fx_mount *x, bool local, uint64_t io_timeout_ms)
{
    memset(&world_faults, 0, sizeof world_faults);
    world_core_start();
    world_bnf_add(1, local, 400u << 20);
    fx_start(x, 7, io_timeout_ms);
}

/* The last mount, and all of the world with it. */
static inline void fx_over(struct fx_mount *x)
{
    fx_stop(x);
    world_core_stop();
    world_bnf_fini();
    world_mgr_reset();
}

/* The same, of which one file is open. */
static inline void fx_end(struct fx_mount *x, struct cl_handle *h)
{
    fx_check_file_quiet(h);
    fx_close(x, h);
    fx_over(x);
}

static inline ssize_t fx_read(struct fx_mount *x, struct cl_handle *h, uint8_t *buf, size_t len, uint64_t off)
{
    struct iovec iov[128];
    struct cl_read_pin *pin;
    int n = 128;
    ssize_t got = cl_data_read(&x->m, h, len, off, iov, &n, &pin);
    size_t at = 0;

    if (got < 0)
        return got;
    for (int i = 0; i < n; i++) {
        memcpy(buf + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    WORLD_CHECK(at == (size_t)got && at <= len);
    cl_data_read_done(&x->m, pin);
    return got;
}

/* As a FUSE thread that has received the bytes in lent pages; false: there are no pages for it. */
static inline bool fx_write_pages(struct fx_mount *x, struct cl_handle *h, const uint8_t *buf, size_t len, uint64_t off, ssize_t *done)
{
    struct cl_pool *pool = x->m.data->pool;
    uint8_t *pages[CL_RECEIVE_PAGES_MAX];
    static atomic_uint ncalls;
    uint32_t begin = atomic_fetch_add(&ncalls, 1) % 2 ? (uint32_t)(off % CL_PAGE_BYTES) : 0; /* as in the file, or not */
    size_t n = (begin + len + CL_PAGE_BYTES - 1) / CL_PAGE_BYTES;

    if (h->strict || n > CL_RECEIVE_PAGES_MAX || cl_pool_lend(pool, pages, n) < 0)
        return false;
    for (size_t at = begin, done_bytes = 0, part; done_bytes < len; at += part, done_bytes += part) {
        part = CL_PAGE_BYTES - at % CL_PAGE_BYTES;
        if (part > len - done_bytes)
            part = len - done_bytes;
        memcpy(pages[at / CL_PAGE_BYTES] + at % CL_PAGE_BYTES, buf + done_bytes, part);
    }
    *done = cl_data_write_pages(&x->m, h, pages, begin, len, off, false);
    for (size_t i = 0; i < n; i++)
        memset(pages[i], 0xEE, CL_PAGE_BYTES); /* the next request: nothing of the file may lie here any more */
    cl_pool_take_back(pool, pages, n);
    return true;
}

/* Half of them in each of the ways in which bytes come from the kernel. */
static inline ssize_t fx_write(struct fx_mount *x, struct cl_handle *h, const void *buf, size_t len, uint64_t off)
{
    static atomic_uint nwrites;
    ssize_t done;

    if (atomic_fetch_add(&nwrites, 1) % 2 == 0 && fx_write_pages(x, h, buf, len, off, &done))
        return done;
    return cl_data_write(&x->m, h, buf, len, off, false);
}

static inline int fx_truncate(struct fx_mount *x, struct cl_handle *h, uint64_t size)
{
    Fp__SetAttr q = FP__SET_ATTR__INIT;

    q.ino = h->inode->ino;
    q.valid = FP__SET_ATTR_VALID__SET_SIZE;
    q.size_bytes = size;
    return cl_data_truncate(&x->m, h->inode, &q);
}

/* Bytes that are never zero and differ from write to write. */
static inline void fx_fill(uint8_t *buf, size_t len, uint32_t base)
{
    for (size_t i = 0; i < len; i++)
        buf[i] = (uint8_t)(1 + (base + i) % 251);
}

static inline int fx_open_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += lseek(fd, 0, SEEK_CUR) >= 0;
    return n;
}

#endif
