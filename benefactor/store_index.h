/* The index of a benefactor's chunks: chunk id -> where its record lies. Part of the store (store.h), on its
 * thread.
 *
 * 32 bytes per slot, open addressing, linear probing, at most 4/5 full; grows by doubling. Pointers to
 * entries are valid until the next put or remove. */
#ifndef BNF_STORE_INDEX_H
#define BNF_STORE_INDEX_H

#include <stddef.h>
#include <stdint.h>

struct bnf_entry {
    uint64_t chunk;
    uint64_t sum;
    uint32_t page;    /* offset of the record in its segment, in units of 4 KiB */
    uint32_t segment; /* slot in the store's table of segments */
    uint32_t len_bytes;
    uint16_t pages;    /* of the record, header included; 0 = slot of the index is empty */
    uint8_t recovered; /* found at start, not confirmed by its writer since: a new copy replaces it */
    uint8_t zero;
};

struct bnf_index {
    struct bnf_entry *slots;
    size_t mask;
    size_t count;
};

/* -ENOMEM. */
int bnf_index_init(struct bnf_index *ix);
void bnf_index_fini(struct bnf_index *ix);

struct bnf_entry *bnf_index_get(const struct bnf_index *ix, uint64_t chunk);

/* Makes sure that the next n puts can't fail. -ENOMEM. */
int bnf_index_reserve(struct bnf_index *ix, size_t n);

/* Adds an entry whose chunk is not there yet. -ENOMEM leaves the index as it was. */
int bnf_index_put(struct bnf_index *ix, const struct bnf_entry *e);

/* e is a pointer from _get. */
void bnf_index_remove(struct bnf_index *ix, struct bnf_entry *e);

#endif
