/*
 * The read cache (see rcache.h). Called by FUSE threads (reads), store threads (read-ahead) and whoever waits for pool pages (reclaim).
 *
 * One lock for the table and the states of blocks; loading itself runs without it. A block is absent, loading or there; one condition wakes
 * all who wait for any block: there are few of them, and loads are milliseconds apart.
 */
#include "client/data/rcache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/data/coded.h"
#include "client/data/internal.h"
#include "client/data/load.h"
#include "fp/checksum.h"

#define BUCKETS 4096u

struct cl_rcache {
    struct cl_data *data;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    struct cl_rchunk *bucket[BUCKETS];         /* lock */
    struct cl_rchunk *lru_head, *lru_tail;     /* lock: unpinned entries, least recently used first */
};

int cl_rcache_new(struct cl_data *d, struct cl_rcache **out)
{
    struct cl_rcache *c = calloc(1, sizeof(*c));
    pthread_condattr_t a;

    if (!c)
        return -ENOMEM;
    c->data = d;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&c->cond, &a);
    pthread_condattr_destroy(&a);
    *out = c;
    return 0;
}

static struct cl_rchunk **bucket_of(struct cl_rcache *c, uint64_t id)
{
    return &c->bucket[(id ^ id >> 32) % BUCKETS];
}

static void lru_remove(struct cl_rcache *c, struct cl_rchunk *e)
{
    if (e->lru_prev)
        e->lru_prev->lru_next = e->lru_next;
    else
        c->lru_head = e->lru_next;
    if (e->lru_next)
        e->lru_next->lru_prev = e->lru_prev;
    else
        c->lru_tail = e->lru_prev;
    e->lru_prev = e->lru_next = NULL;
}

static void lru_append(struct cl_rcache *c, struct cl_rchunk *e)
{
    e->lru_prev = c->lru_tail;
    e->lru_next = NULL;
    if (c->lru_tail)
        c->lru_tail->lru_next = e;
    else
        c->lru_head = e;
    c->lru_tail = e;
}

/* lock held, entry unpinned and off the LRU list; its pages are gone. */
static void destroy(struct cl_rcache *c, struct cl_rchunk *e)
{
    struct cl_rchunk **p = bucket_of(c, e->ref.id);

    while (*p != e)
        p = &(*p)->next;
    *p = e->next;
    cl_seg_put(e->seg);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static uint32_t data_len_of(const struct cl_chunk_ref *ref)
{
    return ref->data_len_bytes ? ref->data_len_bytes : ref->len_bytes;
}

static struct cl_rchunk *make(struct cl_rcache *c, const struct cl_chunk_ref *ref)
{
    uint32_t blocks = fp_sum_nblocks(data_len_of(ref));
    struct cl_rchunk *e = calloc(1, sizeof(*e) + blocks * sizeof(e->block[0]));
    struct cl_rchunk **p = bucket_of(c, ref->id);

    if (!e)
        return NULL;
    pthread_mutex_init(&e->lock, NULL);
    e->cache = c;
    e->ref = *ref;
    e->bnf = ref->bnf;
    e->ext = ref->ext;
    e->ext_off = ref->ext_off;
    e->blocks = blocks;
    e->next = *p;
    *p = e;
    return e;
}

struct cl_rchunk *cl_rcache_get(struct cl_rcache *c, const struct cl_chunk_ref *ref)
{
    struct cl_rchunk *e;

    pthread_mutex_lock(&c->lock);
    for (e = *bucket_of(c, ref->id); e && e->ref.id != ref->id; e = e->next)
        ;
    if (e && data_len_of(&e->ref) != data_len_of(ref)) { /* a chunk never changes: one of two maps is wrong, and blocks of one may be beyond the end of the other */
        pthread_mutex_unlock(&c->lock);
        FP_LOG_EVERY(1000, FP_LOG_WARN, "chunk %llx is %u bytes in one answer of the manager and %u in another", (unsigned long long)ref->id, data_len_of(&e->ref), data_len_of(ref));
        errno = EIO;
        return NULL;
    }
    if (!e)
        e = make(c, ref);
    else if (e->pins == 0)
        lru_remove(c, e);
    if (e)
        e->pins++;
    pthread_mutex_unlock(&c->lock);
    if (e)
        cl_load_learn(e, ref);
    return e;
}

/* lock held. */
static size_t pages_of(struct cl_rchunk *e, uint8_t **pages)
{
    size_t n = 0;

    for (uint32_t i = 0; i < e->blocks; i++)
        if (e->block[i].page) {
            pages[n++] = e->block[i].page;
            e->block[i].page = NULL;
        }
    return n;
}

void cl_rcache_put(struct cl_rchunk *e)
{
    struct cl_rcache *c = e->cache;
    bool empty = true;

    pthread_mutex_lock(&c->lock);
    if (--e->pins == 0) {
        for (uint32_t i = 0; i < e->blocks && empty; i++)
            empty = !e->block[i].page;
        if (empty)
            destroy(c, e);
        else
            lru_append(c, e);
    }
    pthread_mutex_unlock(&c->lock);
}

void cl_rcache_use(struct cl_rchunk *e, uint32_t first, uint32_t last)
{
    pthread_mutex_lock(&e->cache->lock);
    for (uint32_t i = first; i <= last; i++)
        e->block[i].users++;
    pthread_mutex_unlock(&e->cache->lock);
}

void cl_rcache_unuse(struct cl_rchunk *e, uint32_t first, uint32_t last)
{
    pthread_mutex_lock(&e->cache->lock);
    for (uint32_t i = first; i <= last; i++)
        e->block[i].users--;
    pthread_mutex_unlock(&e->cache->lock);
}

/* lock held: pages of blocks that nobody uses, of an entry that somebody has pinned. A decoded chunk is there as a whole or not at all. */
static size_t idle_pages_of(struct cl_rchunk *e, uint8_t **pages, size_t max)
{
    bool whole = e->ref.data_len_bytes != 0;
    size_t n = 0;

    if (whole && e->blocks > max)
        return 0;
    for (uint32_t i = 0; i < e->blocks && whole; i++)
        if (e->block[i].users > 0 || e->block[i].loading)
            return 0;
    for (uint32_t i = 0; i < e->blocks && n < max; i++)
        if (e->block[i].page && e->block[i].users == 0 && !e->block[i].loading) {
            pages[n++] = e->block[i].page;
            e->block[i].page = NULL;
        }
    return n;
}

/* The last resort: looks at all that is pinned. */
static size_t reclaim_idle_blocks(struct cl_rcache *c, size_t want)
{
    uint8_t *pages[CL_WBUF_PAGES_MAX];
    size_t n = 0;

    if (want > CL_WBUF_PAGES_MAX)
        want = CL_WBUF_PAGES_MAX;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < BUCKETS && n < want; i++)
        for (struct cl_rchunk *e = c->bucket[i]; e && n < want; e = e->next)
            if (e->pins > 0)
                n += idle_pages_of(e, pages + n, CL_WBUF_PAGES_MAX - n);
    pthread_mutex_unlock(&c->lock);
    cl_pool_put(c->data->pool, pages, n);
    return n;
}

size_t cl_rcache_reclaim(struct cl_rcache *c, size_t want)
{
    uint8_t *pages[CL_WBUF_PAGES_MAX];
    size_t freed = 0;

    while (freed < want) {
        struct cl_rchunk *e;
        size_t n = 0;

        pthread_mutex_lock(&c->lock);
        e = c->lru_head;
        if (e) {
            lru_remove(c, e);
            n = pages_of(e, pages);
            destroy(c, e);
        }
        pthread_mutex_unlock(&c->lock);
        if (!e)
            break;
        cl_pool_put(c->data->pool, pages, n);
        freed += n;
    }
    return freed < want ? freed + reclaim_idle_blocks(c, want - freed) : freed;
}

void cl_rcache_free(struct cl_rcache *c)
{
    if (!c)
        return;
    (void)cl_rcache_reclaim(c, SIZE_MAX);
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

const uint8_t *cl_rcache_block(const struct cl_rchunk *e, uint32_t block)
{
    return e->block[block].page;
}

bool cl_rcache_has(struct cl_rchunk *e, uint32_t first, uint32_t last)
{
    bool all = true;

    pthread_mutex_lock(&e->cache->lock);
    for (uint32_t i = first; i <= last && all; i++)
        all = e->block[i].page && !e->block[i].loading;
    pthread_mutex_unlock(&e->cache->lock);
    return all;
}

/* lock held: the first run of absent blocks in [first, last]; 1 found, 0 all there, -EAGAIN some are being loaded by others. */
static int next_absent(struct cl_rchunk *e, uint32_t first, uint32_t last, uint32_t *from, uint32_t *to)
{
    bool loading = false;
    uint32_t i = first;

    for (; i <= last && (e->block[i].page || e->block[i].loading); i++)
        loading |= e->block[i].loading;
    if (i > last)
        return loading ? -EAGAIN : 0;
    *from = i;
    while (i <= last && !e->block[i].page && !e->block[i].loading)
        e->block[i++].loading = true;
    *to = i - 1;
    return 1;
}

/* Load blocks [from, to], which are marked as ours. */
static int load_run(struct cl_rchunk *e, uint32_t from, uint32_t to, bool wait, uint64_t deadline_ms)
{
    struct cl_rcache *c = e->cache;
    struct cl_data *d = c->data;
    uint8_t *pages[CL_WBUF_PAGES_MAX];
    uint32_t n = to - from + 1;
    int rc;

    if (wait) {
        rc = cl_pool_get(d->pool, pages, n, deadline_ms);
    } else {
        size_t keep_free = cl_pool_pages(d->pool) / 4;

        /* What was read before makes room for what is read next: else reading ahead would end when the pool has filled once. */
        rc = cl_pool_try_get(d->pool, pages, n, keep_free);
        while (rc == -EAGAIN && cl_rcache_reclaim(c, n) > 0)
            rc = cl_pool_try_get(d->pool, pages, n, keep_free);
    }
    if (rc == 0) {
        rc = e->ref.data_len_bytes ? cl_coded_load(d, e, pages, wait, deadline_ms) : cl_load_blocks(d, e, from, to, pages);
        if (rc < 0)
            cl_pool_put(d->pool, pages, n);
    }
    pthread_mutex_lock(&c->lock);
    for (uint32_t i = from; i <= to; i++) {
        e->block[i].loading = false;
        if (rc == 0)
            e->block[i].page = pages[i - from];
    }
    pthread_cond_broadcast(&c->cond);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static bool wait_loading(struct cl_rcache *c, uint64_t deadline_ms)
{
    struct timespec ts = { .tv_sec = (time_t)(deadline_ms / 1000), .tv_nsec = (long)(deadline_ms % 1000) * 1000000 };

    return pthread_cond_timedwait(&c->cond, &c->lock, &ts) != ETIMEDOUT;
}

int cl_rcache_load(struct cl_rchunk *e, uint32_t first, uint32_t last, bool wait, uint64_t deadline_ms)
{
    struct cl_rcache *c = e->cache;
    int rc = 0;

    if (e->ref.data_len_bytes) { /* decoded as a whole: all of its blocks are there, or none */
        first = 0;
        last = e->blocks - 1;
    }
    for (;;) {
        uint32_t from, to;
        int what;

        pthread_mutex_lock(&c->lock);
        what = next_absent(e, first, last, &from, &to);
        if (what == -EAGAIN && wait && !wait_loading(c, deadline_ms))
            rc = -EIO;
        pthread_mutex_unlock(&c->lock);
        if (what == 0 || rc < 0 || (what == -EAGAIN && !wait))
            return rc < 0 || what == 0 ? rc : what;
        if (what == 1) {
            rc = load_run(e, from, to, wait, deadline_ms);
            if (rc < 0)
                return rc;
        }
    }
}
