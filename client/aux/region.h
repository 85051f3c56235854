/*
 * Room in the region: which parts of the shared memory for outputs are in use. In units of 64 KiB, contiguous, first fit. Pure; the caller has the lock.
 */
#ifndef CL_AUX_REGION_H
#define CL_AUX_REGION_H

#include <stdbool.h>
#include <stdint.h>

#define AUX_UNIT_BYTES 65536u

struct aux_region {
    uint64_t base;                 /* of the first unit in the region */
    uint32_t units, used;
    uint32_t next;                 /* where to begin to look */
    uint64_t *map;                 /* a bit for each unit: in use */
};

int cl_aux_region_init(struct aux_region *r, uint64_t base, uint64_t bytes);
void cl_aux_region_fini(struct aux_region *r);
/* False: there is no such room now. bytes > 0, rounded up to units. */
bool cl_aux_region_get(struct aux_region *r, uint64_t bytes, uint64_t *off);
/* What is in use, from one mapping of the region to another. */
void cl_aux_region_copy(const struct aux_region *r, uint8_t *to, const uint8_t *from);
/* Give [off, off + bytes) back: all of what was got, or its end. */
void cl_aux_region_put(struct aux_region *r, uint64_t off, uint64_t bytes);

#endif
