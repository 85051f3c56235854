/* The sum of the data of a coded chunk, which its envelope carries (fp/auxwire.h): made when it is stored, compared when it was decoded. */
#ifndef CL_DATA_DATASUM_H
#define CL_DATA_DATASUM_H

#include <stdbool.h>
#include <stdint.h>

#define XXH_STATIC_LINKING_ONLY /* the state on the stack */
#include <xxhash.h>

#include "fp/envelope.h"

struct fp_keyedsum;

struct cl_datasum { XXH3_state_t s; bool keyed; };

/* keyed: the data is hidden, and so must be its sum. */
void cl_datasum_begin(struct cl_datasum *x, bool keyed);
void cl_datasum_add(struct cl_datasum *x, const void *p, uint32_t len);
/* k: cl_core_keyedsum. coded: the coded bytes, which a keyed sum is of, too. -EIO: OpenSSL can't. */
int cl_datasum_end(struct cl_datasum *x, const struct fp_keyedsum *k, const uint8_t *coded, uint32_t coded_bytes, uint64_t *out);
/* Can this mount compare with the sum of this envelope? Not if it was made under another key of the store. */
bool cl_datasum_can(const struct fp_keyedsum *k, const struct fp_envelope *e);

#endif
