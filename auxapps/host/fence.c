/*
 * Fenced buffers (see fence.h). Called on the threads of the host that run foreign plugins: those that did not come with fpstore.
 *
 * Outputs of all chunks on their way lie in one region, which fp-mount shares. A plugin that runs past its buffer there would spoil what another
 * aux-app has coded; its bytes are stored, and nobody sees it before they are read. So a foreign plugin writes here, and what it wrote is
 * copied, 0.1 ms per MiB. What is behind is address space that nothing is mapped into, more than the largest chunk: a loop that does not end where
 * it should ends the host at once, and the chunks are taken again. Fences inside of the region were rejected: they would cost two changes of the
 * page tables, on all cores, for each chunk.
 */
#include "auxapps/host/fence.h"

#include <sys/mman.h>
#include <unistd.h>

#define FENCE_BYTES ((size_t)64 << 20)

void aux_fence_fini(struct aux_fence *f)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (f->map)
        munmap(f->map, page + f->body_bytes + FENCE_BYTES);
    *f = (struct aux_fence){0};
}

static void make(struct aux_fence *f, size_t body_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *map = mmap(NULL, page + body_bytes + FENCE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (map == MAP_FAILED)
        return;
    f->map = map;
    f->body_bytes = body_bytes;
    if (mprotect(f->map + page, body_bytes, PROT_READ | PROT_WRITE) != 0)
        aux_fence_fini(f);
}

uint8_t *aux_fence_buffer(struct aux_fence *f, uint32_t cap_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), cap = ((size_t)cap_bytes + 15) & ~(size_t)15, body = (cap + page - 1) / page * page;

    if (f->body_bytes < body) {
        aux_fence_fini(f);
        make(f, body);
    }
    return f->map ? f->map + page + f->body_bytes - cap : NULL;
}
