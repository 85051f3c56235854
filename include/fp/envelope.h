/*
 * The envelope of a coded chunk: what stands in front of the bytes that aux-apps made of the data. Layout in fp/auxwire.h.
 *
 * Pure functions. To the benefactor envelope and coded bytes are the data of a chunk like any other; only mounts look inside.
 */
#ifndef FP_ENVELOPE_H
#define FP_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fp/auxwire.h"

struct fp_envelope {
    uint32_t data_bytes;           /* what comes out: 1 .. FP_CHUNK_MAX_BYTES */
    uint32_t coded_bytes;          /* what follows the envelope */
    uint64_t data_sum;             /* keyed: fp/keyedsum.h; else XXH3 of the data */
    bool keyed;                    /* the data is hidden */
    uint32_t nstages;              /* 1 .. FP_AUXW_STAGES_MAX */
    struct fp_auxw_stage stage[FP_AUXW_STAGES_MAX]; /* first stage first */
};

/* Are these bounds and stages such as fp_envelope_decode takes? What a host says must be asked this before it is encoded. */
int fp_envelope_check(const struct fp_envelope *e);
/* Writes FP_ENVELOPE_BYTES(e->nstages) bytes; e has passed the check. */
void fp_envelope_encode(const struct fp_envelope *e, uint8_t *out);
/*
 * in: the stored bytes of a chunk, or their beginning; stored_bytes: how long the chunk is. Reads at most FP_ENVELOPE_MAX_BYTES and at
 * most have_bytes. -ENODATA: no envelope there; -EILSEQ: damaged, out of bounds, or not as long as the chunk.
 */
int fp_envelope_decode(const uint8_t *in, size_t have_bytes, size_t stored_bytes, struct fp_envelope *out);

#endif
