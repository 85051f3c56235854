/* Which stored pieces have which digest: a hash table that only grows. Written by one thread, then read by many. */
#ifndef DEDUP_INDEX_H
#define DEDUP_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "digest.h"
#include "fp/auxapp.h"

struct index_entry {
	uint8_t digest[DIGEST_MAX_BYTES];
	struct fp_aux_place place;     /* len_bytes 0: free */
};

struct index {
	struct index_entry *slot;
	size_t nslots, used;           /* nslots: 0 or a power of two */
};

/* Room for so many entries; index_add does it, too. False: no memory. */
bool index_grow(struct index *x, size_t entries);
/* The first of equal ones stays. False: no memory. */
bool index_add(struct index *x, const uint8_t *digest, uint32_t digest_len, struct fp_aux_place place);
/* digest: all DIGEST_MAX_BYTES, zeros behind a shorter one. NULL: not there. A piece of another length does not count. */
const struct index_entry *index_find(const struct index *x, const uint8_t digest[DIGEST_MAX_BYTES], uint32_t piece_bytes);
void index_fini(struct index *x);

#endif
