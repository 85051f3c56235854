/*
 * Buffers of a bounded pool (bufpool.h), used by service_io.c and remote.c.
 *
 * Nearly all records are of the usual chunk size, so those are kept and handed out again: fresh memory of a
 * megabyte costs as much in page faults as writing it. Larger ones are rare and go back to the system.
 */
#include "benefactor/bufpool.h"

#include <errno.h>
#include <stdlib.h>

#define USUAL_BYTES (((size_t)1 << 20) + 8192)

static size_t class_of(size_t len_bytes)
{
    return len_bytes <= USUAL_BYTES ? USUAL_BYTES : (len_bytes + 4095) / 4096 * 4096;
}

int bnf_bufpool_init(struct bnf_bufpool *p, size_t limit_bytes)
{
    *p = (struct bnf_bufpool){.limit_bytes = limit_bytes, .max_cached = limit_bytes / USUAL_BYTES + 1};
    p->cached = calloc(p->max_cached, sizeof(*p->cached));
    return p->cached ? 0 : -ENOMEM;
}

void bnf_bufpool_fini(struct bnf_bufpool *p)
{
    while (p->ncached)
        free(p->cached[--p->ncached]);
    free(p->cached);
    p->cached = NULL;
}

void *bnf_bufpool_get(struct bnf_bufpool *p, size_t len_bytes, bool force)
{
    size_t size = class_of(len_bytes);
    void *buf;

    if (!force && p->used_bytes + size > p->limit_bytes && p->used_bytes > 0)
        return NULL;
    buf = size == USUAL_BYTES && p->ncached ? p->cached[--p->ncached] : aligned_alloc(4096, size);
    if (buf)
        p->used_bytes += size;
    return buf;
}

void bnf_bufpool_put(struct bnf_bufpool *p, void *buf, size_t len_bytes)
{
    size_t size = class_of(len_bytes);

    p->used_bytes -= size;
    if (size == USUAL_BYTES && p->ncached < p->max_cached)
        p->cached[p->ncached++] = buf;
    else
        free(buf);
}
