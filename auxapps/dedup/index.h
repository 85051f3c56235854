/*
 * Which stored pieces have which digest: a hash table that only grows. Written by one thread, then read by many.
 *
 * All tables of an aux-app share one budget of memory, which bounds their sum whatever the number of files.
 */
#ifndef DEDUP_INDEX_H
#define DEDUP_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "digest.h"
#include "fp/auxapp.h"

struct budget { atomic_size_t used_bytes; size_t max_bytes; };

struct index {
    struct budget *budget;
    uint32_t digest_bytes, used;
    uint8_t *entry;                /* place and digest, one behind the other */
    uint32_t *slot;                /* entry + 1; 0: free */
    size_t cap, nslots;            /* nslots: 0 or a power of two */
};

void index_init(struct index *x, enum digest_kind kind, struct budget *budget);
/* The first of equal ones stays, unless that is doubtful and this one is not. False: the budget is used up, or there is no memory. */
bool index_add(struct index *x, const uint8_t *digest, struct fp_aux_place place, bool doubtful);
/* No more is added: what is too much goes back to the budget. */
void index_trim(struct index *x);
/* False: it is not there. A piece of another length does not count. */
bool index_find(const struct index *x, const uint8_t *digest, uint32_t piece_bytes, struct fp_aux_place *out, bool *doubtful);
/* Of the budget. */
size_t index_bytes(const struct index *x);
/* Empty again, as after index_init. */
void index_clear(struct index *x);

#endif
