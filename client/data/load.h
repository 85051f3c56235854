/*
 * Loading and verifying blocks of stored chunks: from the node's own segments through descriptors, or over TCP.
 */
#ifndef CL_DATA_LOAD_H
#define CL_DATA_LOAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/data/bnf.h"
#include "client/data/overlay.h"

struct cl_rcache;

#define CL_LOCATE_MAX 64u

struct cl_rchunk {                 /* an entry of the read cache (rcache.c) */
    struct cl_rchunk *next;            /* cache lock: hash chain */
    struct cl_rchunk *lru_prev, *lru_next; /* cache lock: when unpinned */
    struct cl_rcache *cache;
    struct cl_chunk_ref ref;           /* constant */
    uint32_t pins;                     /* cache lock */
    uint32_t blocks;                   /* constant */
    pthread_mutex_t lock;              /* the next seven and the sums */
    uint32_t bnf;                      /* ref.bnf, or as who came later knows better; 0: in a target only, or lost */
    bool fetched;                      /* that one has fetched it for us: a map that says otherwise is old */
    uint64_t ext, ext_off;             /* as in ref, likewise */
    struct cl_seg *seg;                /* where the record is, once located */
    uint64_t off;                      /* of the record header in the segment */
    bool sums_known;                   /* block[].sum are set and do not change any more */
    struct {
        uint8_t *page;                 /* cache lock */
        bool loading;                  /* cache lock */
        uint32_t users;                /* cache lock: reads that point to the page, or are about to */
        uint64_t sum;
    } block[];
};

/* Who has this reference has a newer map than who made the entry, perhaps. */
void cl_load_learn(struct cl_rchunk *e, const struct cl_chunk_ref *ref);

/* Read blocks [from, to] into pages (64 KiB each), verified. Errors as cl_rcache_load. */
int cl_load_blocks(struct cl_data *d, struct cl_rchunk *e, uint32_t from, uint32_t to, uint8_t **pages);

/* Learn where these chunks (at most CL_LOCATE_MAX) lie, as far as they are on this node: one question per benefactor instead of one per chunk. Store threads. */
void cl_load_locate(struct cl_data *d, struct cl_rchunk **e, uint32_t n);

#endif
