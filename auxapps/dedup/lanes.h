/* The SHA-1 of a chunk's pieces, several at a time (sha1x2.h says why). */
#ifndef DEDUP_LANES_H
#define DEDUP_LANES_H

#include "pieces.h"

/* The best that this processor can do. */
enum sha1_lanes lanes_here(void);
/* Can it do this? */
bool lanes_can(enum sha1_lanes how);
/* Digest what is NEW and has none. how: not NONE, and lanes_can. */
void lanes_digest(struct pieces *p, const struct fp_aux_chunk *k, enum sha1_lanes how);

#endif
