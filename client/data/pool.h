/*
 * The chunk pool of a mount: a fixed number of 64 KiB pages in one memfd, faulted in at start.
 *
 * A page is as large as a checksum block. Windows being written and chunks being read are lists of pages, so a small file takes
 * one page and a record goes to the device by one gathering write. When no page is free, pages of clean cached chunks are taken back first
 * (the reclaim callback), then writers wait: back-pressure, not growth.
 *
 * Beside these there may be pages to lend, for who reads from the kernel (client/receive.c): such a page may be exchanged for one that cl_pool_get gave, and
 * then is one of the pool, and that one a lent one. They take memory only once they are lent, and their number never changes what is free.
 */
#ifndef CL_DATA_POOL_H
#define CL_DATA_POOL_H

#include <stddef.h>
#include <stdint.h>

#define CL_PAGE_BYTES 65536u

struct cl_pool;

/*
 * reclaim(arg, want) frees up to want pages by cl_pool_put and returns how many it freed; pressure(arg) starts the writing out of
 * windows that are only partly filled. Both are called without a lock of the pool. *out is owned by the caller. 0, -ENOMEM, or errno of memfd.
 */
int cl_pool_new(uint64_t bytes, size_t (*reclaim)(void *arg, size_t want), void (*pressure)(void *arg), void *arg,
        struct cl_pool **out);
/* The same with as many pages to lend. */
int cl_pool_new_lending(uint64_t bytes, size_t to_lend, size_t (*reclaim)(void *arg, size_t want), void (*pressure)(void *arg), void *arg,
            struct cl_pool **out);
void cl_pool_free(struct cl_pool *pool);

/* Take n pages, all or none, in the order of coming. Blocks until deadline_ms (fp_now_ms clock); -ETIMEDOUT then; 0 if taken. n <= half the pool. */
int cl_pool_get(struct cl_pool *pool, uint8_t **pages, size_t n, uint64_t deadline_ms);
/* The same without waiting: -EAGAIN. keep_free: pages that must be left for writers. */
int cl_pool_try_get(struct cl_pool *pool, uint8_t **pages, size_t n, size_t keep_free);
/* Give pages back; NULL entries are skipped. Any thread. */
void cl_pool_put(struct cl_pool *pool, uint8_t *const *pages, size_t n);

/* n pages of those to lend, all or none: -EAGAIN. */
int cl_pool_lend(struct cl_pool *pool, uint8_t **pages, size_t n);
void cl_pool_take_back(struct cl_pool *pool, uint8_t *const *pages, size_t n);

/* For who maps the pool, too (aux/): its memfd, which stays the pool's; how long it is; and where in it a page lies, in pages. */
int cl_pool_fd(const struct cl_pool *pool);
uint64_t cl_pool_mapped_bytes(const struct cl_pool *pool);
uint32_t cl_pool_page_number(const struct cl_pool *pool, const uint8_t *page);

/* Without those to lend. */
size_t cl_pool_pages(const struct cl_pool *pool);
size_t cl_pool_free_pages(struct cl_pool *pool);

#endif
