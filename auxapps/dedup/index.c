/*
 * Digest -> stored piece (see index.h). Open addressing with linear probing: a digest is its own hash, and one cache line answers most questions.
 * A table in shared memory or in the manager for each look-up was rejected: at 50,000 pieces a second a message each costs more than the digests.
 */
#include "index.h"

#include <stdlib.h>
#include <string.h>

static size_t start_of(const struct index *x, const uint8_t *digest)
{
	uint64_t h;

	memcpy(&h, digest, sizeof(h));
	return (size_t)h & (x->nslots - 1);
}

static struct index_entry *probe(const struct index *x, const uint8_t digest[DIGEST_MAX_BYTES])
{
	size_t i = start_of(x, digest);

	while (x->slot[i].place.len_bytes != 0 && memcmp(x->slot[i].digest, digest, DIGEST_MAX_BYTES) != 0)
		i = (i + 1) & (x->nslots - 1);
	return &x->slot[i];
}

bool index_grow(struct index *x, size_t entries)
{
	struct index old = *x;
	size_t n = old.nslots ? old.nslots : 1024;

	while (n < entries * 2)
		n *= 2;
	if (n == old.nslots)
		return true;
	x->slot = calloc(n, sizeof(*x->slot));
	if (!x->slot) {
		x->slot = old.slot;
		return false;
	}
	x->nslots = n;
	for (size_t i = 0; i < old.nslots; i++)
		if (old.slot[i].place.len_bytes != 0)
			*probe(x, old.slot[i].digest) = old.slot[i];
	free(old.slot);
	return true;
}

bool index_add(struct index *x, const uint8_t *digest, uint32_t digest_len, struct fp_aux_place place)
{
	uint8_t padded[DIGEST_MAX_BYTES] = { 0 };
	struct index_entry *e;

	if (place.len_bytes == 0 || !index_grow(x, x->used + 1))
		return place.len_bytes == 0;
	memcpy(padded, digest, digest_len);
	e = probe(x, padded);
	if (e->place.len_bytes == 0) {
		memcpy(e->digest, padded, sizeof(padded));
		e->place = place;
		x->used++;
	}
	return true;
}

const struct index_entry *index_find(const struct index *x, const uint8_t digest[DIGEST_MAX_BYTES], uint32_t piece_bytes)
{
	const struct index_entry *e;

	if (x->nslots == 0)
		return NULL;
	e = probe(x, digest);
	return e->place.len_bytes == piece_bytes ? e : NULL;
}

void index_fini(struct index *x)
{
	free(x->slot);
	*x = (struct index){ 0 };
}
