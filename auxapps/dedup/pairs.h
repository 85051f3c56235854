/* The SHA-1 of a chunk's pieces, two at a time (sha1x2.h says why). */
#ifndef DEDUP_PAIRS_H
#define DEDUP_PAIRS_H

#include "pieces.h"

/* Digest what is NEW and has none. Only where sha1x2_is_there. */
void pairs_digest(struct pieces *p, const struct fp_aux_chunk *k);

#endif
