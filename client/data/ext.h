/*
 * Chunks that are in a target only (evicted): which file of it, and having a benefactor fetch them.
 *
 * A map names files of targets by number; here each gets a token, which a reference to a chunk carries. The table of them has a bound: a token may be
 * forgotten, and then whoever reads by it asks for the map again.
 */
#ifndef CL_DATA_EXT_H
#define CL_DATA_EXT_H

#include <stddef.h>
#include <stdint.h>

#include "client/data/overlay.h"
#include "fp.pb-c.h"

struct cl_data;
struct cl_ext;
struct cl_rchunk;

/* The target does not answer, or no benefactor reaches it: to be tried again. EIO to applications, and nothing is known to be damaged. */
#define CL_ETARGET FP_EAWAY

int cl_ext_new(struct cl_ext **out); /* -ENOMEM */
void cl_ext_free(struct cl_ext *x);

/* Any thread, any lock held. Its token; 0: no memory, so that it can't be read. */
uint64_t cl_ext_intern(struct cl_data *d, const Fp__ExtFile *f);

/*
 * A benefactor gets the chunk; *bnf is the one that has it now. 0: *bnf is 0 if none has room, and blocks [from, to] of it, verified, are in pages.
 * FP_ECHUNK_MISSING: the file is not there any more, or another one; or the token is forgotten. FP_ECHECKSUM: it has other bytes. CL_ETARGET. FUSE and store
 * threads; blocks for io_timeout_ms at most.
 */
int cl_ext_fetch(struct cl_data *d, const struct cl_chunk_ref *ref, uint32_t from, uint32_t to, uint8_t **pages, uint32_t *bnf);
/* The same without waiting, and without what comes of it: the next who reads finds it. Any thread. */
void cl_ext_fetch_ahead(struct cl_data *d, const struct cl_chunk_ref *ref);

/* The file of a target that it stands for, freed by the caller; NULL: forgotten, or no memory. */
Fp__ExtFile *cl_ext_file(struct cl_data *d, uint64_t token);

/* For a log line: "ROOT/PATH", or "a target" if the token is forgotten. */
const char *cl_ext_name(struct cl_data *d, uint64_t token, char *buf, size_t len);

#endif
