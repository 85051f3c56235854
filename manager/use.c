/* How much of a chunk files still refer to. A chunk stays as long as one slice names it, however small: who
 * compares new data with stored chunks (the aux-app dedup) has to know which of them are kept for little, so that it
 * stores that little anew, and they can go with the last older version. MSG_NOTES and MSG_NOTE_FIND tell it (note.c).
 *
 * Counted from the map when it is asked for, by the index of slices by chunk, and by place: a byte that ten files share
 * is one byte. Rejected: a counter in the chunk's row, which each cut of a slice would have to keep right, and
 * which could add lengths only, so that two versions that share a tenth of a chunk would look like a fifth.
 *
 * A file without a name does not count, nor does a version: it goes soon, and what it alone refers to goes with it.
 *
 * What is too much to look at counts as used: then nobody stores anything anew for it.
 *
 * Called by the core's thread, in a group. */
#include <stdlib.h>

#include "manager/core_int.h"
#include "manager/version.h"

#define PLACES_MAX 1024u
#define ROWS_MAX   4096u /* also of those that take no place: of files without a name, or next to each other */

struct place {
    uint32_t off, end;
};

static int by_off(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return x->off < y->off ? -1 : x->off > y->off;
}

/* Bytes that these cover together. */
static uint32_t covered(struct place *p, size_t n)
{
    uint32_t end = 0, sum = 0;

    qsort(p, n, sizeof *p, by_off);
    for (size_t i = 0; i < n; i++) {
        uint32_t from = p[i].off > end ? p[i].off : end;

        sum += p[i].end > from ? p[i].end - from : 0;
        end = p[i].end > end ? p[i].end : end;
    }
    return sum;
}

int mgr_chunk_unused(struct mgr_core *c, uint64_t chunk, uint32_t data, uint32_t *rows, uint32_t *unused)
{
    const enum mgr_stmt st = MGR_ST_SLICE_USE;
    struct place p[PLACES_MAX];
    uint32_t used, seen = 0;
    size_t n = 0;
    uint64_t ino;
    int rc;

    *unused = 0;
    for (rc = mgr_db_one(&c->db, SLICE_USE, DBI(chunk)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        struct place at = {.off = (uint32_t)mgr_col(&c->db, st, 0)};

        at.end = at.off + (uint32_t)mgr_col(&c->db, st, 1);
        ++*rows;
        if (++seen > ROWS_MAX)
            break;
        ino = (uint64_t)mgr_col(&c->db, st, 2);
        if (mgr_map_get(&c->orphans, ino) || mgr_map_get(&c->versions->shadows, ino))
            continue;
        if (n && p[n - 1].end == at.off)
            p[n - 1].end = at.end; /* what was cut in two, or is named piece by piece */
        else if (n < PLACES_MAX)
            p[n++] = at;
        else
            break;
        if (p[n - 1].off == 0 && p[n - 1].end >= data)
            break;
    }
    mgr_db_reset(&c->db, st);
    if (rc)
        return rc < 0 ? rc : 0;
    used = n ? covered(p, n) : 0;
    *unused = used < data ? data - used : 0;
    return 0;
}
