/*
 * Of which pieces a window is made: new data, zeros, what stands earlier in it, what is stored already. Pure: no I/O, no lock.
 * Offsets of pieces count in the window, `at` of NEW and SAME in the new data (the new pieces, one behind the other).
 */
#ifndef AUX_PIECES_H
#define AUX_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "fp/auxwire.h"

struct aux_pieces {
    uint32_t n, limit;             /* at most FP_AUXW_PIECES_MAX */
    uint32_t chunk_bytes;          /* all of it */
    uint32_t covered_bytes;        /* pieces so far */
    uint32_t new_bytes;
    uint8_t app, doubted;          /* of the pieces that are added */
    struct fp_auxw_piece v[FP_AUXW_PIECES_MAX];
};

/* app: whose they are; doubted: what is stored is to be compared with. */
void aux_pieces_init(struct aux_pieces *p, uint32_t chunk_bytes, uint8_t app, bool doubted);
/*
 * The next piece. `from`: of SAME the earlier offset in the window, of STORED the offset in `chunk`. Pieces that continue the one before become
 * part of it. -EINVAL: not in order, empty, out of bounds, or SAME of something that is not new; -ENOSPC: too many.
 */
int aux_pieces_add(struct aux_pieces *p, uint32_t kind, uint32_t off, uint32_t len, uint32_t from, uint64_t chunk);
/* -EINVAL: they do not cover all of it. */
int aux_pieces_end(const struct aux_pieces *p);
/* Where byte `off` of the window is in the new data; it must be in a new piece. */
uint32_t aux_pieces_new_at(const struct aux_pieces *p, uint32_t off);
/* `outer` says of what a window is made, `inner` of what the new data of `outer` is made. -ENOSPC: too many together. */
int aux_pieces_compose(const struct aux_pieces *outer, const struct aux_pieces *inner, struct aux_pieces *out);
/* Copies what is new to `out`, one behind the other; parts: the bytes of the window. */
void aux_pieces_pack(const struct aux_pieces *p, const struct fp_aux_part *parts, uint32_t nparts, uint8_t *out);

#endif
