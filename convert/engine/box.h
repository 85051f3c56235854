/* Hyper-rectangles: which elements of a block lie in a tile, and copying between arrays of many dimensions. Pure. */
#ifndef CV_BOX_H
#define CV_BOX_H

#include "convert/model.h"

struct cv_box {
    uint64_t lo[CV_RANK_MAX], count[CV_RANK_MAX];
};

uint64_t cv_box_elements(const struct cv_box *b, unsigned rank);
/* The elements of a block (by its own numbers, ghosts not counted) that lie in a tile of the global array. False: none. */
bool cv_box_of_block(const struct cv_block *b, const struct cv_box *tile, unsigned rank, struct cv_box *out);
/* Do two blocks have an element in common? Exact, with strides. */
bool cv_blocks_meet(const struct cv_block *a, const struct cv_block *b, unsigned rank);
/* The last element of a block in dimension i, and one more. count[i] > 0. */
uint64_t cv_block_end(const struct cv_block *b, unsigned i);

/*
 * Copies count[] elements of size bytes from an array to another: distances between neighbours in dimension i are from_step[i] and to_step[i], in bytes. Rows that are
 * contiguous on both sides go at once.
 */
void cv_box_copy(const uint8_t *from, const uint64_t *from_step, uint8_t *to, const uint64_t *to_step, const uint64_t *count, unsigned rank, size_t size_bytes);
/* Distances in bytes of a packed array of these dimensions. */
void cv_box_steps(const uint64_t *dims, unsigned rank, size_t size_bytes, uint64_t *step);

#endif
