/* Memory that lives as long as a group: decoded requests and replies. Freed all at once; the first block is
 * kept, so a request costs no malloc. Also as an allocator for protobuf-c. One thread. */
#ifndef MGR_ARENA_H
#define MGR_ARENA_H

#include <stddef.h>
#include <protobuf-c/protobuf-c.h>

struct mgr_arena_block;
struct mgr_arena {
    struct mgr_arena_block *first, *last;
    ProtobufCAllocator pb;
};

/* -ENOMEM. */
int mgr_arena_init(struct mgr_arena *a);
void mgr_arena_fini(struct mgr_arena *a);
/* Aligned to 16; not cleared. NULL: out of memory. */
void *mgr_arena_alloc(struct mgr_arena *a, size_t size);
void *mgr_arena_zalloc(struct mgr_arena *a, size_t size);
void *mgr_arena_copy(struct mgr_arena *a, const void *p, size_t size);
/* The list of count elements with room for one more: itself, or (count is *cap, which doubles) a copy. NULL: out of memory. */
void *mgr_arena_grow(struct mgr_arena *a, void *list, size_t count, size_t *cap, size_t size);
/* For replies: what they are made of may change, or end, in the same group. Empty for NULL and out of memory. */
char *mgr_arena_text(struct mgr_arena *a, const char *text);
void mgr_arena_reset(struct mgr_arena *a);

#endif
