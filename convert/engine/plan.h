/* In which pieces an array is written. Pure. */
#ifndef CV_PLAN_H
#define CV_PLAN_H

#include "convert/model.h"

#define CV_CHUNK_MAX_BYTES (4u << 20)
#define CV_CHUNK_MIN_BYTES (256u << 10)
#define CV_STEP_MIN_BYTES  (16u << 10)

/*
 * The shape of the chunks of a dataset, of at most limit_bytes each: what the user wants (wanted[0] != 0; cut at the array), else a piece of one block, so that a chunk is read at one place. All 0: not chunked (a scalar,
 * an array of nothing). A dimension of steps has 1, unless a step is of few bytes.
 */
void cv_plan_chunk(const struct cv_dataset *d, const uint64_t *wanted, uint64_t limit_bytes, uint64_t chunk[CV_RANK_MAX]);
/* Did the user want larger chunks than these? (Those of an array that is smaller are not meant.) */
bool cv_plan_is_cut(const struct cv_dataset *d, const uint64_t *wanted, const uint64_t chunk[CV_RANK_MAX]);
/* The shape of the tiles of an array that is stored as a whole: each contiguous in it, of at most limit_bytes, or of one element. */
void cv_plan_slab(const struct cv_dataset *d, uint64_t limit_bytes, uint64_t tile[CV_RANK_MAX]);
/* The same where the output takes boxes of any shape, and blocks are what a library decompresses as a whole: whole blocks, as many along the fastest dimensions as limit_bytes allow. */
void cv_plan_blocks(const struct cv_dataset *d, uint64_t limit_bytes, uint64_t tile[CV_RANK_MAX]);
/* Of all that the file says of its arrays: names, types, dimensions, chunks, fill values, attributes. Another one for another file, but for chance. */
uint64_t cv_plan_sum(const struct cv_model *m, const uint64_t (*chunk)[CV_RANK_MAX]);

#endif
