/*
 * Pieces of windows (see pieces.h). Called by aux/'s link thread (cl_pieces_check), by store threads when a result is taken over, and under the inode's lock
 * by readers and commits; no I/O, no lock, no allocation.
 *
 * Pieces stay in terms of the sealed chunk and are crossed with the buffer's ranges each time they are needed: a truncate may cut ranges at any
 * moment, also while the aux-apps work, and so has nothing to do with pieces.
 */
#include "client/data/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/data/packed.h"
#include "client/data/wbuf.h"

/* new_so_far: of the pieces before. */
static bool fits(const struct fp_auxw_piece *p, uint32_t at, uint32_t len, uint32_t new_so_far, uint32_t new_bytes)
{
    if (p->off != at || p->len_bytes == 0 || p->len_bytes > len - at)
        return false;
    switch (p->kind) {
    case FP_AUXW_PIECE_NEW:
        return p->at == new_so_far && p->len_bytes <= new_bytes - new_so_far;
    case FP_AUXW_PIECE_ZERO:
        return true;
    case FP_AUXW_PIECE_SAME:
        return p->at < new_bytes && p->len_bytes <= new_bytes - p->at;
    case FP_AUXW_PIECE_STORED:
        return p->chunk != 0 && p->at < FP_AUX_CHUNK_MAX_BYTES && p->len_bytes <= FP_AUX_CHUNK_MAX_BYTES - p->at;
    default:
        return false;
    }
}

int cl_pieces_check(const struct fp_auxw_piece *p, uint32_t n, uint32_t len, uint32_t new_bytes)
{
    uint32_t at = 0, new_so_far = 0;

    if (n > FP_AUXW_PIECES_MAX)
        return -EPROTO;
    for (uint32_t i = 0; i < n; i++) {
        if (!fits(&p[i], at, len, new_so_far, new_bytes))
            return -EPROTO;
        at += p[i].len_bytes;
        if (p[i].kind == FP_AUXW_PIECE_NEW)
            new_so_far += p[i].len_bytes;
    }
    return n == 0 ? (new_bytes == len ? 0 : -EPROTO) : at == len && new_so_far == new_bytes ? 0 : -EPROTO;
}

static bool goes_on(const struct fp_auxw_piece *p, const struct fp_auxw_piece *q)
{
    if (p->kind != q->kind)
        return false;
    return p->kind == FP_AUXW_PIECE_ZERO ||
           (p->at + p->len_bytes == q->at && (p->kind != FP_AUXW_PIECE_STORED || p->chunk == q->chunk));
}

uint32_t cl_pieces_merge(struct fp_auxw_piece *p, uint32_t n)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (kept > 0 && goes_on(&p[kept - 1], &p[i]))
            p[kept - 1].len_bytes += p[i].len_bytes;
        else
            p[kept++] = p[i];
    }
    return kept;
}

/* -------------------------------------------------------------- fewer of them */

/* What lies in one piece of new data stays in one piece, however that is packed anew. */
static const struct fp_auxw_piece *new_piece_of(const struct fp_auxw_piece *p, uint32_t n, const struct fp_auxw_piece *same)
{
    for (uint32_t i = 0; i < n; i++)
        if (p[i].kind == FP_AUXW_PIECE_NEW && p[i].at <= same->at && same->at + same->len_bytes <= p[i].at + p[i].len_bytes)
            return &p[i];
    return NULL;
}

static bool becomes_new(const struct fp_auxw_piece *p, uint32_t shorter_than)
{
    return p->kind == FP_AUXW_PIECE_NEW || p->len_bytes < shorter_than;
}

/* How many pieces are left if all shorter ones become new. */
static uint32_t count_with(const struct fp_auxw_piece *p, uint32_t n, uint32_t shorter_than)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++)
        count += i == 0 || !becomes_new(&p[i], shorter_than) || !becomes_new(&p[i - 1], shorter_than);
    return count;
}

/* The least length with which no more than max are left: by bisection, since more pieces that become new never leave more. */
static uint32_t least_length(const struct fp_auxw_piece *p, uint32_t n, uint32_t max)
{
    uint32_t lo = 0, hi = UINT32_MAX;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (count_with(p, n, mid) <= max)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

uint32_t cl_pieces_limit(struct fp_auxw_piece *p, uint32_t n, uint32_t max, uint32_t *new_bytes)
{
    struct fp_auxw_piece before[FP_AUXW_PIECES_MAX];
    uint32_t shorter_than, packed = 0, moved_to[FP_AUXW_PIECES_MAX];

    if (n <= max)
        return n;
    memcpy(before, p, n * sizeof(*p));
    for (uint32_t i = 0; i < n; i++)
        if (p[i].kind == FP_AUXW_PIECE_SAME && !new_piece_of(before, n, &p[i]))
            p[i].kind = FP_AUXW_PIECE_NEW;
    shorter_than = least_length(p, n, max ? max : 1);
    for (uint32_t i = 0; i < n; i++) {
        moved_to[i] = packed;
        if (!becomes_new(&p[i], shorter_than))
            continue;
        p[i].kind = FP_AUXW_PIECE_NEW;
        p[i].chunk = 0;
        p[i].at = packed;
        packed += p[i].len_bytes;
    }
    for (uint32_t i = 0; i < n; i++)
        if (p[i].kind == FP_AUXW_PIECE_SAME) {
            const struct fp_auxw_piece *in = new_piece_of(before, n, &before[i]);

            p[i].at = moved_to[in - before] + (before[i].at - in->at);
        }
    *new_bytes = packed;
    return cl_pieces_merge(p, n);
}

/* -------------------------------------------------------------- slices */

static void fill_bit(const struct cl_wbuf *b, const struct fp_auxw_piece *p, uint32_t skip, struct cl_bit *out)
{
    out->src_off = p->kind == FP_AUXW_PIECE_ZERO ? 0 : p->at + skip;
    switch (p->kind) {
    case FP_AUXW_PIECE_ZERO: out->chunk = 0; break;
    case FP_AUXW_PIECE_STORED: out->chunk = p->chunk; break;
    default: out->chunk = b->chunk.id;
    }
}

bool cl_bits_next(struct cl_bits *it, struct cl_bit *out)
{
    const struct cl_wbuf *b = it->b;
    const struct cl_range *r = &b->range[it->range];
    const struct fp_auxw_piece *p;
    uint32_t at, n;

    if (it->range >= b->nranges)
        return false;
    *out = (struct cl_bit){ .off = r->off, .len = r->len, .src_off = r->chunk_off, .chunk = b->chunk.id };
    if (!b->packed || b->packed->npieces == 0) {
        it->range++;
        return true;
    }
    at = r->chunk_off + it->at;
    p = &b->packed->pieces[it->piece];
    while (p->off + p->len_bytes <= at)
        p = &b->packed->pieces[++it->piece];
    n = p->off + p->len_bytes - at;
    if (n > r->len - it->at)
        n = r->len - it->at;
    out->off += it->at;
    out->len = n;
    fill_bit(b, p, at - p->off, out);
    it->at += n;
    if (it->at == r->len) {
        it->range++;
        it->at = 0;
    }
    return true;
}
