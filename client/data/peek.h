/* A look at a stored chunk, for aux-apps that compare bytes. */
#ifndef CL_DATA_PEEK_H
#define CL_DATA_PEEK_H

#include <stdint.h>

#include "client/data/overlay.h"

struct cl_data;

/*
 * Bytes [off, off + len) of the data of a chunk, verified, and decoded if it is coded. Never waits for pool pages: those may all be of windows that wait for the
 * very aux-app that asks. Threads of aux/; blocks on I/O and on decoding, which must end by deadline_ms. -EINVAL: not within the data; else as cl_rcache_load.
 */
int cl_peek(struct cl_data *d, const struct cl_chunk_ref *ref, uint64_t off, void *buf, uint32_t len, uint64_t deadline_ms);

#endif
