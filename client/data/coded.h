/*
 * Coded chunks on their way back: the stored bytes are loaded and verified like any others, the aux-apps undo what they did, and the data is
 * verified again by its own sum.
 */
#ifndef CL_DATA_CODED_H
#define CL_DATA_CODED_H

#include <stdbool.h>
#include <stdint.h>

struct cl_data;
struct cl_rchunk;

/* Decoding takes memory of the size of the chunk twice: so many at a time. */
#define CL_CODED_AT_A_TIME 8u

/* What is wrong is not the data but this mount: the aux-app or its key is missing (logged by aux/). EIO to applications. */
#define CL_ECODER FP_EAUXAPP

/*
 * All blocks of a coded chunk into pages (64 KiB each). FUSE and store threads. wait: else -EAGAIN if that would have to wait for others. Errors as cl_load_blocks,
 * CL_ECODER, FP_ECHECKSUM also when what comes out is not the data.
 */
int cl_coded_load(struct cl_data *d, struct cl_rchunk *e, uint8_t **pages, bool wait, uint64_t deadline_ms);

#endif
