/*
 * Pieces of a window: see pieces.h. Called by worker threads of stages, each for the chunk it has in hand.
 *
 * Pieces are added in order, so that all checks are made against the last one and a binary search; a map by offset was not needed. Nobody merges
 * pieces to keep their number down: the note that a plugin makes about a chunk counts in the new data as the plugin knows it, so the plugin is told
 * when it has too many (-ENOSPC). Two de-duplications in one chain are composed.
 */
#include "auxapps/host/pieces.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

void aux_pieces_init(struct aux_pieces *p, uint32_t chunk_bytes, uint8_t app, bool doubted)
{
    p->n = 0;
    p->limit = FP_AUX_PIECES_MAX(chunk_bytes);
    if (p->limit > FP_AUXW_PIECES_MAX)
        p->limit = FP_AUXW_PIECES_MAX;
    p->chunk_bytes = chunk_bytes;
    p->covered_bytes = 0;
    p->new_bytes = 0;
    p->app = app;
    p->doubted = doubted;
}

/* Does q go on where the last one ends? */
static bool continues(const struct fp_auxw_piece *last, const struct fp_auxw_piece *q)
{
    if (last->kind != q->kind || last->app != q->app || last->doubted != q->doubted)
        return false;
    if (q->kind == FP_AUXW_PIECE_ZERO)
        return true;
    return last->at + last->len_bytes == q->at && (q->kind != FP_AUXW_PIECE_STORED || last->chunk == q->chunk);
}

/* q->off is set here. */
static int append(struct aux_pieces *p, const struct fp_auxw_piece *q)
{
    if (p->n > 0 && continues(&p->v[p->n - 1], q)) {
        p->v[p->n - 1].len_bytes += q->len_bytes;
    } else {
        if (p->n >= p->limit)
            return -ENOSPC;
        p->v[p->n] = *q;
        p->v[p->n++].off = p->covered_bytes;
    }
    p->covered_bytes += q->len_bytes;
    if (q->kind == FP_AUXW_PIECE_NEW)
        p->new_bytes += q->len_bytes;
    return 0;
}

/* The piece that has byte `off` of the window, or NULL. */
static const struct fp_auxw_piece *at_off(const struct aux_pieces *p, uint32_t off)
{
    uint32_t lo = 0, hi = p->n;

    if (off >= p->covered_bytes)
        return NULL;
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (p->v[mid].off <= off)
            lo = mid;
        else
            hi = mid;
    }
    return &p->v[lo];
}

int aux_pieces_add(struct aux_pieces *p, uint32_t kind, uint32_t off, uint32_t len, uint32_t from, uint64_t chunk)
{
    if (off != p->covered_bytes || len == 0 || len > p->chunk_bytes - off)
        return -EINVAL;
    struct fp_auxw_piece q = {.kind = (uint16_t)kind, .app = p->app, .len_bytes = len};

    if (kind == FP_AUXW_PIECE_NEW) {
        q.at = p->new_bytes;
    } else if (kind == FP_AUXW_PIECE_STORED) {
        if (chunk == 0 || (uint64_t)from + len > UINT32_MAX)
            return -EINVAL;
        q.doubted = p->doubted;
        q.at = from;
        q.chunk = chunk;
    } else if (kind == FP_AUXW_PIECE_SAME) {
        const struct fp_auxw_piece *e = at_off(p, from);

        if (!e || e->kind != FP_AUXW_PIECE_NEW || len > e->len_bytes - (from - e->off))
            return -EINVAL;
        q.at = e->at + (from - e->off);
        q.doubted = p->doubted; /* what it is the same as may become a piece of a stored chunk: compose */
    }
    return append(p, &q);
}

int aux_pieces_end(const struct aux_pieces *p)
{
    return p->covered_bytes == p->chunk_bytes ? 0 : -EINVAL;
}

uint32_t aux_pieces_new_at(const struct aux_pieces *p, uint32_t off)
{
    const struct fp_auxw_piece *e = at_off(p, off);

    return e ? e->at + (off - e->off) : 0;
}

/* The stretch of new data that the outer piece o is of, as `inner` has them. */
static int resolve(const struct aux_pieces *inner, const struct fp_auxw_piece *o, struct aux_pieces *out)
{
    const struct fp_auxw_piece *q = at_off(inner, o->at);
    bool same = o->kind == FP_AUXW_PIECE_SAME;
    uint32_t at = o->at, len = o->len_bytes;

    for (; len > 0; q++) {
        struct fp_auxw_piece x = *q;
        uint32_t skip = at - q->off;
        int rc;

        x.len_bytes = q->len_bytes - skip < len ? q->len_bytes - skip : len;
        if (x.kind == FP_AUXW_PIECE_NEW && same)
            x.kind = FP_AUXW_PIECE_SAME;
        if (x.kind != FP_AUXW_PIECE_ZERO)
            x.at += skip;
        if (same) { /* what inner says of the first occurrence is looked at there */
            x.app = o->app;
            x.doubted |= o->doubted;
        }
        rc = append(out, &x);
        if (rc < 0)
            return rc;
        at += x.len_bytes;
        len -= x.len_bytes;
    }
    return 0;
}

int aux_pieces_compose(const struct aux_pieces *outer, const struct aux_pieces *inner, struct aux_pieces *out)
{
    int rc = outer->new_bytes == inner->chunk_bytes ? 0 : -EINVAL;

    aux_pieces_init(out, outer->chunk_bytes, inner->app, inner->doubted);
    for (uint32_t i = 0; i < outer->n && rc == 0; i++) {
        const struct fp_auxw_piece *o = &outer->v[i];

        if (o->kind == FP_AUXW_PIECE_ZERO || o->kind == FP_AUXW_PIECE_STORED)
            rc = append(out, o);
        else
            rc = resolve(inner, o, out);
    }
    return rc;
}

void aux_pieces_pack(const struct aux_pieces *p, const struct fp_aux_part *parts, uint32_t nparts, uint8_t *out)
{
    uint32_t part = 0, part_off = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t off = p->v[i].off, len = p->v[i].len_bytes;

        if (p->v[i].kind != FP_AUXW_PIECE_NEW)
            continue;
        while (part < nparts && part_off + parts[part].len_bytes <= off)
            part_off += parts[part++].len_bytes;
        for (uint32_t k = part, k_off = part_off; k < nparts && len > 0; k_off += parts[k++].len_bytes) {
            uint32_t n = parts[k].len_bytes - (off - k_off);

            if (n > len)
                n = len;
            memcpy(out, parts[k].data + (off - k_off), n);
            out += n;
            off += n;
            len -= n;
        }
    }
}
