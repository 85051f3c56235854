/* A buffer that a foreign plugin can't write past: nothing that is mapped comes behind it. One per thread of the host. */
#ifndef AUX_FENCE_H
#define AUX_FENCE_H

#include <stddef.h>
#include <stdint.h>

struct aux_fence { uint8_t *map; size_t body_bytes; };

/* cap_bytes that end at the fence, aligned to 16; what was in it is lost. NULL: no memory. */
uint8_t *aux_fence_buffer(struct aux_fence *f, uint32_t cap_bytes);
void aux_fence_fini(struct aux_fence *f);

#endif
