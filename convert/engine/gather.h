/* A tile of a dataset, put together from the blocks that meet it. One thread. */
#ifndef CV_GATHER_H
#define CV_GATHER_H

#include "convert/engine/box.h"
#include "convert/source/source.h"

struct cv_gather; /* of one dataset */

/*
 * blocks of which `wanted` (NULL: all; indexed as d->blocks) is false are left out. scratch: at least CV_SCRATCH_MIN_BYTES, borrowed. NULL: out of memory.
 */
#define CV_SCRATCH_MIN_BYTES 4096u
struct cv_gather *cv_gather_new(struct cv_source *s, const struct cv_dataset *d, const bool *wanted, uint8_t *scratch, size_t scratch_bytes);
void cv_gather_free(struct cv_gather *g); /* NULL is fine */
/*
 * Fills out, packed, in the machine's byte order; what no block has gets the fill value. *elements: how many came from blocks (of overlapping ones each counts once).
 * -ENODATA, -EIO, …; -EDOM: a NaN where the dataset refuses them.
 */
int cv_gather_tile(struct cv_gather *g, const struct cv_box *tile, uint8_t *out, uint64_t *elements, struct cv_fail *why);

#endif
