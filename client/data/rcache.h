/*
 * Chunks that were read: verified blocks in pool pages, kept until the pool is needed for something else.
 *
 * Stored chunks never change, so an entry is never stale: what changes is which chunk a file's map names. Entries are found by chunk id, loaded by blocks
 * of 64 KiB, by whoever needs them first; others wait. Least recently used entries give their pages back when a writer waits.
 */
#ifndef CL_DATA_RCACHE_H
#define CL_DATA_RCACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/data/overlay.h"

struct cl_data;
struct cl_rcache;
struct cl_rchunk;

int cl_rcache_new(struct cl_data *d, struct cl_rcache **out);
void cl_rcache_free(struct cl_rcache *c);

/* The entry of a chunk, pinned (made if need be). NULL and errno: ENOMEM, or EIO: it is of another length than when it was asked for before. */
struct cl_rchunk *cl_rcache_get(struct cl_rcache *c, const struct cl_chunk_ref *ref);
void cl_rcache_put(struct cl_rchunk *e);

/*
 * Blocks [first, last] are there and verified, loading what is missing. wait: for pool pages, until the deadline (read-ahead does not: -EAGAIN, also for blocks that another is
 * loading). FUSE or
 * store threads; blocks on I/O. FP_ECHUNK_MISSING: the benefactor does not have the chunk; FP_ECHECKSUM: damaged.
 */
int cl_rcache_load(struct cl_rchunk *e, uint32_t first, uint32_t last, bool wait, uint64_t deadline_ms);
/*
 * Blocks [first, last] of a pinned entry, loaded or to be loaded, stay until cl_rcache_unuse. Others of the entry may be taken back when the pool is empty: a
 * chunk may be as large as half the pool.
 */
void cl_rcache_use(struct cl_rchunk *e, uint32_t first, uint32_t last);
void cl_rcache_unuse(struct cl_rchunk *e, uint32_t first, uint32_t last);
/* A loaded block; valid while used. */
const uint8_t *cl_rcache_block(const struct cl_rchunk *e, uint32_t block);

/* Free pages of unused entries: at least want, if there are so many. Returns how many. */
size_t cl_rcache_reclaim(struct cl_rcache *c, size_t want);
/* Are all these blocks there already? */
bool cl_rcache_has(struct cl_rchunk *e, uint32_t first, uint32_t last);

#endif
