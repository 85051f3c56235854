/* The SHA-1 of a chunk's pieces, several at a time (sha1x2.h says why). */
#ifndef DEDUP_LANES_H
#define DEDUP_LANES_H

#include "pieces.h"

/* How many at a time this processor can do: 0 (use OpenSSL), 2 or 16. */
unsigned lanes_here(void);
/* Digest what is NEW and has none. lanes: 2 or 16, at most lanes_here(). */
void lanes_digest(struct pieces *p, const struct fp_aux_chunk *k, unsigned lanes);

#endif
