/*
 * Pieces: of what a sealed window is made after aux-apps have looked at it. New data, zeros, bytes equal to new data of the same window, bytes of
 * stored chunks. Pure functions over what the host answered (struct fp_auxw_piece, offsets in the chunk as it was sealed).
 */
#ifndef CL_DATA_PIECES_H
#define CL_DATA_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "fp/auxwire.h"

struct cl_wbuf;

/* Pieces per MiB of a window, so that duplicates do not cost the manager more than they save. The host sees to it, too, where it does no harm to notes. */
#define CL_SLICES_PER_MIB 64u

/* Are these pieces of len bytes, in order and without gaps, their new ones packed in order to new_bytes, and the same ones within that? n 0: all of it is
 * new. 0 or -EPROTO. */
int cl_pieces_check(const struct fp_auxw_piece *p, uint32_t n, uint32_t len, uint32_t new_bytes);

/* Join neighbours that go on where the one before ends. Returns how many are left. */
uint32_t cl_pieces_merge(struct fp_auxw_piece *p, uint32_t n);

/*
 * Make the shortest zeros and duplicates new data, until no more than max pieces (at least 1) are left. Merged pieces in and out; new data is packed
 * anew, so offsets in it change. Returns how many are left; *new_bytes as it is then.
 */
uint32_t cl_pieces_limit(struct fp_auxw_piece *p, uint32_t n, uint32_t max, uint32_t *new_bytes);

/* A stretch of a stored buffer's window: one slice. */
struct cl_bit {
    uint32_t off, len;     /* of the window */
    uint32_t src_off;      /* where it is in the data of its chunk */
    uint64_t chunk;        /* 0: zeros */
};

/* Walks the written ranges of a STORED buffer, cut by its pieces: from the beginning with { .b = b }. */
struct cl_bits {
    const struct cl_wbuf *b;
    uint32_t range, piece, at;
};
bool cl_bits_next(struct cl_bits *it, struct cl_bit *out);

#endif
