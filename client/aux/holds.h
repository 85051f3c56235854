/*
 * Holds: stored chunks that the manager keeps for this session, because a file that is being written may yet refer to them.
 *
 * What the manager said it holds is in a table here, each with the serial of the file it is for (files.h), and with pins: results that refer to it and are not
 * committed. A hold is released when nothing pins it and the files that were open when it was made are closed and published.
 */
#ifndef CL_AUX_HOLDS_H
#define CL_AUX_HOLDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fp.pb-c.h"

struct cl_aux;
struct cl_aux_pins;
struct cl_chunk_ref;

int cl_aux_holds_new(struct cl_aux *a);
void cl_aux_holds_free(struct cl_aux *a);

/* A request that makes holds is under way, and its answer has been taken in: nothing is released in between. */
void cl_aux_holds_begin(struct cl_aux *a);
void cl_aux_holds_end(struct cl_aux *a);
/* Between these: the manager holds it now. file_serial 0: for all that are open. */
void cl_aux_holds_add(struct cl_aux *a, uint64_t chunk, uint64_t file_serial);
/* The same, and where it is, to be read. */
void cl_aux_holds_note(struct cl_aux *a, const Fp__ChunkNote *note, uint64_t file_serial);
/* False: it is not known where this chunk is. */
bool cl_aux_holds_ref(struct cl_aux *a, uint64_t chunk, struct cl_chunk_ref *out);

/* NULL: one of them is not held (or no memory); else all are pinned, once each. Any thread. */
struct cl_aux_pins *cl_aux_holds_pin(struct cl_aux *a, const uint64_t *chunks, uint32_t n);
/* Ask the manager to hold these; 0 if it holds all of them. Service threads; blocks. */
int cl_aux_holds_ask(struct cl_aux *a, const uint64_t *chunks, uint32_t n, uint64_t file_serial);

/* Release what is not needed: made for files up to the oldest that is still open. all: whatever is not pinned. True: something was. Any thread; never blocks. */
bool cl_aux_holds_sweep(struct cl_aux *a, bool all);

#endif
