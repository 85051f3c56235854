/*
 * Placement: which benefactor takes the chunk of a window. Pure.
 *
 * The paper's rule (section V): the node's own SSD first; another one when it is full or away. With stripe=W the chunks of a file go
 * round W benefactors. The choice is by rendezvous hashing of the inode and the benefactors' numbers: every node computes the same
 * without talking, and losing a benefactor moves only what would have gone there.
 */
#ifndef CL_DATA_PLACE_H
#define CL_DATA_PLACE_H

#include <stdbool.h>
#include <stdint.h>

struct cl_place_bnf {
    uint32_t id;
    bool local;
    bool usable;           /* up and not full, as far as is known */
};

/*
 * Fill order[] (room for n) with indexes into b[], best first; unusable ones are left out. Returns how many. stripe <= 1: own node first, then others in
 * an order that differs from window to window. stripe = W: the W chosen ones, beginning with that of this window, then the rest.
 */
uint32_t cl_place(const struct cl_place_bnf *b, uint32_t n, uint64_t ino, uint64_t win, uint32_t stripe, uint32_t *order);

#endif
