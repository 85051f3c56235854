/* The map of a file: disjoint slices per window (chunk-sized piece of the file), newest wins.
 *
 * A slice that is put cuts what it covers. Cutting leaves of an older slice its left part (shorter), its
 * right part (a row of its own, further into the chunk), both (one more reference of the chunk), or nothing
 * (one reference less):
 *
 *     old   |aaaaaaaaaaaaaaaaaaaa|          refs(a) = 1
 *     cut          [......)
 *     new   |aaaaaaa      aaaaaaaa|         refs(a) = 2
 *
 * Keeping the map disjoint at write time, rather than resolving overlaps at read time, makes reading and
 * accounting trivial, and lets space go at once when it is overwritten. in->mapped is the sum of the slices'
 * lengths; the caller writes the inode. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "fp/bug.h"
#include "manager/core_int.h"

enum { BATCH = 256 };

struct piece {
    uint64_t win, chunk;
    uint32_t off, len, chunk_off;
};

static int insert(struct mgr_core *c, uint64_t ino, const struct piece *p)
{
    c->n.slices++;
    c->n.dirty = true;
    return mgr_db_exec(&c->db, SLICE_INSERT, DBI(ino), DBI(p->win), DBI(p->off), DBI(p->len), DBI(p->chunk),
                       DBI(p->chunk_off));
}

static int delete (struct mgr_core *c, uint64_t ino, const struct piece *p)
{
    c->n.slices--;
    c->n.dirty = true;
    return mgr_db_exec(&c->db, SLICE_DELETE, DBI(ino), DBI(p->win), DBI(p->off));
}

static int unref(struct mgr_core *c, const struct mgr_inode *in, uint64_t chunk)
{
    mgr_grace_freed(c, in->flags & MGR_SHADOW ? in->parent : in->ino, chunk);
    return mgr_chunk_unref(c, chunk);
}

/* Takes [from, to) of a window away from one slice that overlaps it. */
static int cut_one(struct mgr_core *c, struct mgr_inode *in, const struct piece *p, uint32_t from,
                   uint32_t to)
{
    uint32_t end = p->off + p->len;
    bool left = p->off<from, right = end> to;
    struct piece rest = {.win = p->win,
                         .chunk = p->chunk,
                         .off = to,
                         .len = end - to,
                         .chunk_off = p->chunk_off + (to - p->off) - FP_BUG("mgr-slice-off-by-one")};
    int rc;

    in->mapped -= (right ? to : end) - (left ? from : p->off);
    if (left)
        rc = mgr_db_exec(&c->db, SLICE_SET_LEN, DBI(in->ino), DBI(p->win), DBI(p->off), DBI(from - p->off));
    else
        rc = delete (c, in->ino, p);
    if (!rc && right)
        rc = insert(c, in->ino, &rest);
    if (!rc && left && right)
        rc = mgr_chunk_ref(c, p->chunk, 1);
    if (!rc && !left && !right)
        rc = unref(c, in, p->chunk);
    return rc;
}

/* From the last slice that begins before `to` backwards: since slices are disjoint, the first that ends before `from`
 * is the end, and a window of many slices is not looked through. */
static int cut_window(struct mgr_core *c, struct mgr_inode *in, uint64_t win, uint32_t from, uint32_t to)
{
    const enum mgr_stmt st = MGR_ST_SLICE_BELOW;
    struct piece list[BATCH];
    size_t n;
    int rc;

    do {
        n = 0;
        rc = mgr_db_one(&c->db, SLICE_BELOW, DBI(in->ino), DBI(win), DBI(to));
        for (; rc > 0 && n < BATCH; rc = mgr_db_step(&c->db, st)) {
            struct piece *p = &list[n];

            p->win = win;
            p->off = (uint32_t)mgr_col(&c->db, st, 0);
            p->len = (uint32_t)mgr_col(&c->db, st, 1);
            p->chunk = (uint64_t)mgr_col(&c->db, st, 2);
            p->chunk_off = (uint32_t)mgr_col(&c->db, st, 3);
            if (p->off + p->len <= from)
                break;
            n++;
        }
        mgr_db_reset(&c->db, st);
        rc = rc < 0 ? rc : 0;
        for (size_t i = 0; i < n && !rc; i++)
            rc = cut_one(c, in, &list[i], from, to);
    } while (n == BATCH && !rc);
    return rc;
}

/* Removes the slices of whole windows [first, end), at most max of them; returns how many, or a failure. */
static int64_t drop_windows(struct mgr_core *c, struct mgr_inode *in, uint64_t first, uint64_t end,
                            uint32_t max)
{
    const enum mgr_stmt st = MGR_ST_SLICE_FROM;
    struct piece list[BATCH];
    uint32_t n = 0;
    int rc = mgr_db_one(&c->db, SLICE_FROM, DBI(in->ino), DBI(first), DBI(0), DBI(end),
                        DBI(max < BATCH ? max : BATCH));

    for (; rc > 0; rc = mgr_db_step(&c->db, st)) {
        list[n].win = (uint64_t)mgr_col(&c->db, st, 0);
        list[n].off = (uint32_t)mgr_col(&c->db, st, 1);
        list[n].len = (uint32_t)mgr_col(&c->db, st, 2);
        list[n++].chunk = (uint64_t)mgr_col(&c->db, st, 3);
    }
    for (uint32_t i = 0; i < n && !rc; i++) {
        in->mapped -= list[i].len;
        rc = delete (c, in->ino, &list[i]);
        rc = rc ? rc : unref(c, in, list[i].chunk);
    }
    return rc ? rc : (int64_t)n;
}

int mgr_slices_drop(struct mgr_core *c, struct mgr_inode *in, uint32_t max, bool *left)
{
    uint64_t done = 0, keys = c->keys_dropped;
    int64_t n = 1;

    while (in->mapped && done < max && n > 0) {
        n = drop_windows(c, in, 0, INT64_MAX, max - (uint32_t)done);
        if (n < 0)
            return (int)n;
        done += (uint64_t)n + c->keys_dropped - keys; /* a key takes longer than a slice */
        keys = c->keys_dropped;
    }
    *left = in->mapped && n > 0;
    return 0;
}

int mgr_slices_cut(struct mgr_core *c, struct mgr_inode *in, uint64_t from, uint64_t to)
{
    uint64_t size = in->chunk_size, first = from / size, last = to / size;
    uint32_t head = (uint32_t)(from % size), tail = (uint32_t)(to % size);
    int64_t n;
    int rc = 0;

    if (from >= to || !in->mapped)
        return 0;
    if (first == last)
        return cut_window(c, in, first, head, tail);
    if (head) {
        rc = cut_window(c, in, first, head, (uint32_t)size);
        first++;
    }
    do {
        n = rc || first >= last ? 0 : drop_windows(c, in, first, last > INT64_MAX ? INT64_MAX : last, BATCH);
    } while (n == BATCH);
    rc = rc ? rc : n < 0 ? (int)n : 0;
    return rc || !tail || to == UINT64_MAX ? rc : cut_window(c, in, last, 0, tail);
}

static int put(struct mgr_core *c, struct mgr_inode *in, const Fp__Slice *s)
{
    struct piece p = {
        .win = s->win, .chunk = s->chunk, .off = s->off, .len = s->len, .chunk_off = s->chunk_off};

    if (!s->chunk)
        return 0;
    in->mapped += s->len;
    return insert(c, in->ino, &p);
}

/* Slices that follow each other without a gap, as a de-duplicated window has them, are one cut. */
int mgr_slices_put(struct mgr_core *c, struct mgr_inode *in, Fp__Slice *const *s, size_t n)
{
    int rc = 0;

    for (size_t i = 0, end; i < n && !rc; i = end) {
        uint32_t to = s[i]->off + s[i]->len;

        for (end = i + 1; end < n && s[end]->win == s[i]->win && s[end]->off == to; end++)
            to += s[end]->len;
        if (in->mapped)
            rc = cut_window(c, in, s[i]->win, s[i]->off, to);
        for (size_t k = i; k < end && !rc; k++)
            rc = put(c, in, s[k]);
    }
    return rc;
}

/* ---------------------------------------------------------------- not too many of one window */

struct span {
    uint64_t win;
    uint32_t off, end;
};

/* Room for `more` slices beside what [from, to) covers, in a window? */
static int fits(struct mgr_core *c, const struct mgr_inode *in, const struct span *s, uint64_t more)
{
    uint64_t have;
    int rc;

    if (in->chunk_size <= MGR_WINDOW_MAX)
        return 0;
    if (more > MGR_WINDOW_MAX)
        return -EFBIG;
    if (!in->mapped)
        return 0;
    rc = mgr_db_one(&c->db, SLICE_BESIDE, DBI(in->ino), DBI(s->win), DBI(s->off), DBI(s->end),
                    DBI(MGR_WINDOW_MAX));
    if (rc < 0)
        return rc;
    have = (uint64_t)mgr_col(&c->db, MGR_ST_SLICE_BESIDE, 0);
    mgr_db_reset(&c->db, MGR_ST_SLICE_BESIDE);
    return have + more > MGR_WINDOW_MAX ? -EFBIG : 0;
}

int mgr_window_fits(struct mgr_core *c, const struct mgr_inode *in, uint64_t win, uint64_t more)
{
    struct span all = {.win = win};

    return fits(c, in, &all, more);
}

static int by_place(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    if (x->win != y->win)
        return x->win < y->win ? -1 : 1;
    return x->off < y->off ? -1 : x->off > y->off;
}

/* Of one window, sorted. Each slice may cut an older one in two; what lies under slices without a gap goes. */
static int window_fits(struct mgr_core *c, const struct mgr_inode *in, const struct span *s, size_t n)
{
    struct span hull = s[0];

    for (size_t i = 1; i < n; i++) {
        if (s[i].off > hull.end)
            return mgr_window_fits(c, in, hull.win, 2 * n);
        hull.end = s[i].end > hull.end ? s[i].end : hull.end;
    }
    return fits(c, in, &hull, n > 1 ? 2 * n : 3);
}

int mgr_slices_fit(struct mgr_core *c, const struct mgr_inode *in, Fp__Slice *const *s, size_t n)
{
    struct span *list;
    int rc = 0;

    if (in->chunk_size <= MGR_WINDOW_MAX || !n)
        return 0;
    list = mgr_arena_alloc(&c->arena, n * sizeof *list);
    if (!list)
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < n; i++)
        list[i] = (struct span){s[i]->win, s[i]->off, s[i]->off + s[i]->len};
    qsort(list, n, sizeof *list, by_place);
    for (size_t i = 0, end; i < n && !rc; i = end) {
        for (end = i + 1; end < n && list[end].win == list[i].win; end++)
            ;
        rc = window_fits(c, in, &list[i], end - i);
    }
    return rc;
}
