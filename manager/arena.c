/* Blocks of 256 KiB (or what one allocation needs) in a list; allocation moves a pointer. A reset keeps the
 * first block only: a group with a huge listing must not leave its memory behind. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "manager/arena.h"

#define BLOCK_BYTES (256u << 10)

struct mgr_arena_block {
    struct mgr_arena_block *next;
    size_t cap, used;
    _Alignas(16) uint8_t mem[];
};

static struct mgr_arena_block *block_new(size_t cap)
{
    struct mgr_arena_block *b = malloc(sizeof *b + cap);

    if (b) {
        b->next = NULL;
        b->cap = cap;
        b->used = 0;
    }
    return b;
}

static void *pb_alloc(void *arena, size_t size)
{
    return mgr_arena_alloc(arena, size);
}

static void pb_free(void *arena, void *p)
{
    (void)arena;
    (void)p;
}

int mgr_arena_init(struct mgr_arena *a)
{
    a->first = a->last = block_new(BLOCK_BYTES);
    a->pb = (ProtobufCAllocator){.alloc = pb_alloc, .free = pb_free, .allocator_data = a};
    return a->first ? 0 : -ENOMEM;
}

static void free_after(struct mgr_arena_block *b)
{
    while (b) {
        struct mgr_arena_block *next = b->next;

        free(b);
        b = next;
    }
}

void mgr_arena_fini(struct mgr_arena *a)
{
    free_after(a->first);
    a->first = a->last = NULL;
}

void *mgr_arena_alloc(struct mgr_arena *a, size_t size)
{
    struct mgr_arena_block *b = a->last;
    void *p;

    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + 15) & ~(size_t)15;
    if (b->cap - b->used < size) {
        b = block_new(size > BLOCK_BYTES ? size : BLOCK_BYTES);
        if (!b)
            return NULL;
        a->last->next = b;
        a->last = b;
    }
    p = b->mem + b->used;
    b->used += size;
    return p;
}

void *mgr_arena_zalloc(struct mgr_arena *a, size_t size)
{
    void *p = mgr_arena_alloc(a, size);

    return p ? memset(p, 0, size) : NULL;
}

void *mgr_arena_copy(struct mgr_arena *a, const void *p, size_t size)
{
    void *q = mgr_arena_alloc(a, size ? size : 1);

    return q && size ? memcpy(q, p, size) : q;
}

void *mgr_arena_grow(struct mgr_arena *a, void *list, size_t count, size_t *cap, size_t size)
{
    size_t more = *cap ? *cap * 2 : 64;
    void *p;

    if (count < *cap)
        return list;
    p = mgr_arena_alloc(a, more * size);
    if (!p)
        return NULL;
    if (count)
        memcpy(p, list, count * size);
    *cap = more;
    return p;
}

char *mgr_arena_text(struct mgr_arena *a, const char *text)
{
    char *copy = text ? mgr_arena_copy(a, text, strlen(text) + 1) : NULL;

    return copy ? copy : (char *)"";
}

void mgr_arena_reset(struct mgr_arena *a)
{
    free_after(a->first->next);
    a->first->next = NULL;
    a->first->used = 0;
    a->last = a->first;
}
