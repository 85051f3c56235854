/*
 * Overlay of slices (see overlay.h). Called under the inode's lock by readers; no I/O, no allocation.
 *
 * A sorted array and not a tree: a window rarely consists of more than a handful of pieces, and the array is on the reader's stack.
 */
#include "client/data/overlay.h"
#include "fp/bug.h"

#include <errno.h>
#include <string.h>

void cl_overlay_init(struct cl_overlay *o, uint32_t from, uint32_t to)
{
    o->from = from;
    o->to = to;
    o->n = 0;
}

static int insert_at(struct cl_overlay *o, uint32_t i, const struct cl_piece *p)
{
    if (o->n == CL_OVERLAY_MAX)
        return -E2BIG;
    memmove(&o->piece[i + 1], &o->piece[i], (o->n - i) * sizeof(*p));
    o->piece[i] = *p;
    o->n++;
    return 0;
}

static void remove_at(struct cl_overlay *o, uint32_t i)
{
    o->n--;
    memmove(&o->piece[i], &o->piece[i + 1], (o->n - i) * sizeof(o->piece[0]));
}

static void cut_front(struct cl_piece *q, uint32_t new_off)
{
    q->src_off += new_off - q->off;
    q->len -= new_off - q->off;
    q->off = new_off;
}

/* Remove [off, end) from the pieces; *at = index where a piece for that range belongs. */
static int clear_range(struct cl_overlay *o, uint32_t off, uint32_t end, uint32_t *at)
{
    uint32_t i = 0;

    while (i < o->n && o->piece[i].off + o->piece[i].len <= off)
        i++;
    if (i < o->n && o->piece[i].off < off) {
        struct cl_piece *q = &o->piece[i];
        uint32_t q_end = q->off + q->len;

        if (q_end > end) { /* the new piece lies inside: keep what is behind it */
            struct cl_piece tail = *q;

            cut_front(&tail, end + FP_BUG("overlay-off-by-one"));
            if (insert_at(o, i + 1, &tail) < 0)
                return -E2BIG;
        }
        o->piece[i].len = off - o->piece[i].off;
        i++;
    }
    while (i < o->n && o->piece[i].off < end) {
        if (o->piece[i].off + o->piece[i].len > end) {
            cut_front(&o->piece[i], end);
            break;
        }
        remove_at(o, i);
    }
    *at = i;
    return 0;
}

int cl_overlay_add(struct cl_overlay *o, const struct cl_piece *p)
{
    struct cl_piece c = *p;
    uint32_t end = p->off + p->len, at;
    int rc;

    if (c.off >= o->to || end <= o->from)
        return 0;
    if (c.off < o->from)
        cut_front(&c, o->from);
    if (end > o->to) {
        c.len -= end - o->to;
        end = o->to;
    }
    rc = clear_range(o, c.off, end, &at);
    if (rc < 0)
        return rc;
    return insert_at(o, at, &c);
}
