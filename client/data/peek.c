/*
 * Looking at stored chunks (see peek.h). Called by service threads of aux/.
 *
 * By way of the read cache, if it has the blocks or has room for them: who compares looks at the next bytes of the same chunk soon. When the pool is short,
 * which is the usual state of a mount that is written to faster than it stores, beside it, into scratch memory.
 */
#include "client/data/peek.h"

#include <errno.h>
#include <string.h>

#include "client/data/coded.h"
#include "client/data/internal.h"
#include "client/data/load.h"

static void copy_cached(const struct cl_rchunk *e, uint32_t off, uint8_t *buf, uint32_t len)
{
    while (len > 0) {
        uint32_t in_page = off % CL_PAGE_BYTES, n = CL_PAGE_BYTES - in_page;

        if (n > len)
            n = len;
        memcpy(buf, cl_rcache_block(e, off / CL_PAGE_BYTES) + in_page, n);
        buf += n;
        off += n;
        len -= n;
    }
}

static int load_beside(struct cl_data *d, struct cl_rchunk *e, uint32_t off, void *buf, uint32_t len, uint64_t deadline_ms)
{
    bool coded = e->ref.data_len_bytes != 0;
    uint32_t first = coded ? 0 : off / CL_PAGE_BYTES, last = coded ? e->blocks - 1 : (off + len - 1) / CL_PAGE_BYTES;
    size_t bytes = (size_t)(last - first + 1) * CL_PAGE_BYTES;
    uint8_t *mem = cl_scratch_get(&d->scratch, bytes), *pages[FP_BLOCKS_MAX];
    int rc;

    if (!mem)
        return -ENOMEM;
    for (uint32_t i = first; i <= last; i++)
        pages[i - first] = mem + (size_t)(i - first) * CL_PAGE_BYTES;
    rc = coded ? cl_coded_load(d, e, pages, true, deadline_ms) : cl_load_blocks(d, e, first, last, pages);
    if (rc == 0)
        memcpy(buf, mem + (off - first * CL_PAGE_BYTES), len);
    cl_scratch_put(&d->scratch, mem, bytes);
    return rc;
}

int cl_peek(struct cl_data *d, const struct cl_chunk_ref *ref, uint64_t off, void *buf, uint32_t len, uint64_t deadline_ms)
{
    uint32_t data = ref->data_len_bytes ? ref->data_len_bytes : ref->len_bytes, first, last;
    struct cl_rchunk *e;
    int rc;

    if (len == 0 || off >= data || len > data - off)
        return -EINVAL;
    e = cl_rcache_get(d->rcache, ref);
    if (!e)
        return -errno;
    first = (uint32_t)off / CL_PAGE_BYTES;
    last = ((uint32_t)off + len - 1) / CL_PAGE_BYTES;
    cl_rcache_use(e, first, last);
    rc = cl_rcache_load(e, first, last, false, 0);
    if (rc == 0)
        copy_cached(e, (uint32_t)off, buf, len);
    else if (rc == -EAGAIN)
        rc = load_beside(d, e, (uint32_t)off, buf, len, deadline_ms);
    cl_rcache_unuse(e, first, last);
    cl_rcache_put(e);
    return rc;
}
