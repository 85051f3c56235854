/*
 * What was written and given up (gone.h), as a few ranges of each file.
 *
 * A buffer that can't be stored, or that the manager refuses, is dropped. Its bytes were told as written, so its program may read them before a close, an fsync
 * or a write has told the error; what it would see is the version before, as if it had not written. So the ranges are remembered for as long as the error is
 * (cl_file_take_error), reads of them fail, and the file does not get shorter meanwhile. Other bytes of the file read as ever.
 *
 * Rejected: to keep the pages until somebody has asked, since a store that is full is when the pool is needed; to fail all reads of the file, since a program
 * that reads its input from the same file may go on. An exact list was rejected, too: it grows with what fails. Too much of it is an error too many, told once.
 *
 * Called under the inode's lock by whoever drops buffers, reads, or cuts the file.
 */
#include "client/data/gone.h"

#include <string.h>

static void remove_at(struct cl_gone *g, uint32_t i)
{
    g->n--;
    memmove(&g->range[i], &g->range[i + 1], (g->n - i) * sizeof(g->range[0]));
}

/* Make room: the two with the least between them become one. */
static void join_nearest(struct cl_gone *g)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i + 1 < g->n; i++)
        if (g->range[i + 1].off - g->range[i].end < g->range[best + 1].off - g->range[best].end)
            best = i;
    g->range[best].end = g->range[best + 1].end;
    remove_at(g, best + 1);
}

void cl_gone_add(struct cl_gone *g, uint64_t off, uint64_t end)
{
    uint32_t i = 0;

    if (off >= end)
        return;
    while (i < g->n && g->range[i].end < off)
        i++;
    while (i < g->n && g->range[i].off <= end) { /* touches it */
        off = g->range[i].off < off ? g->range[i].off : off;
        end = g->range[i].end > end ? g->range[i].end : end;
        remove_at(g, i);
    }
    if (g->n == CL_GONE_MAX) {
        join_nearest(g);
        cl_gone_add(g, off, end);
        return;
    }
    memmove(&g->range[i + 1], &g->range[i], (g->n - i) * sizeof(g->range[0]));
    g->range[i].off = off;
    g->range[i].end = end;
    g->n++;
}

void cl_gone_cut(struct cl_gone *g, uint64_t size_bytes)
{
    while (g->n > 0 && g->range[g->n - 1].off >= size_bytes)
        g->n--;
    if (g->n > 0 && g->range[g->n - 1].end > size_bytes)
        g->range[g->n - 1].end = size_bytes;
}

bool cl_gone_any(const struct cl_gone *g, uint64_t off, uint64_t end)
{
    for (uint32_t i = 0; i < g->n; i++)
        if (g->range[i].off < end && off < g->range[i].end)
            return true;
    return false;
}

uint64_t cl_gone_end(const struct cl_gone *g)
{
    return g->n > 0 ? g->range[g->n - 1].end : 0;
}
