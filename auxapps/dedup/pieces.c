/*
 * The pieces of one chunk (see pieces.h). Called by dedup's workers.
 *
 * Zeros are found first, in blocks of 4 KiB: they cost a look at their first bytes, and hide from the digest what most memory images are half
 * made of. The rest is cut by content or in equal sizes.
 *
 * The bytes lie in parts of the pool that need not be neighbours; pieces run across them. Copying them together would take a fifth of the
 * time that SHA-1 takes.
 */
#include "pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lanes.h"

#define BLOCK_BYTES FP_AUX_PIECE_MIN_BYTES

const uint8_t *pieces_at(struct pieces_cursor *c, uint32_t off, uint32_t *len_bytes)
{
    const struct fp_aux_part *p = &c->k->parts[c->part];
    uint32_t left;

    while (off - c->part_off >= p->len_bytes) {
        c->part_off += p->len_bytes;
        p = &c->k->parts[++c->part];
    }
    left = p->len_bytes - (off - c->part_off);
    if (*len_bytes > left)
        *len_bytes = left;
    return p->data + (off - c->part_off);
}

static bool is_zero(const uint8_t *p, uint32_t len_bytes)
{
    return p[0] == 0 && (len_bytes == 1 || memcmp(p, p + 1, len_bytes - 1) == 0);
}

/* Is the block at off zero? Parts are of whole blocks, but for the chunk's end. */
static bool block_is_zero(struct pieces_cursor *c, uint32_t off, uint32_t len_bytes)
{
    const uint8_t *p;
    uint32_t n = len_bytes;
    uint64_t first = 0;

    p = pieces_at(c, off, &n);
    memcpy(&first, p, n < 8 ? n : 8);
    return first == 0 && n == len_bytes && is_zero(p, n);
}

static int add(struct pieces *p, uint32_t off, uint32_t len_bytes, enum piece_kind kind)
{
    struct piece *x;

    if (p->n == p->cap) {
        uint32_t cap = p->cap ? p->cap * 2 : 256;
        struct piece *more = realloc(p->piece, cap * sizeof(*more));

        if (!more)
            return -ENOMEM;
        p->piece = more;
        p->cap = cap;
    }
    x = &p->piece[p->n++];
    x->off = off;
    x->len_bytes = len_bytes;
    x->kind = kind;
    x->digested = x->thin = false;
    return 0;
}

/* -------------------------------------------------------------- cutting */

static int scan(struct pieces *p, const struct cut_rule *rule, const struct fp_aux_chunk *k, struct cdc_map *m)
{
    size_t words = (k->len_bytes + 63) / 64;
    uint32_t off = 0;

    if (p->map_words < words) {
        free(p->maps);
        p->maps = malloc(2 * words * sizeof(*p->maps));
        p->map_words = p->maps ? words : 0;
        if (!p->maps)
            return -ENOMEM;
    }
    *m = (struct cdc_map){ .strict = p->maps, .loose = p->maps + words, .len_bytes = k->len_bytes };
    for (uint32_t i = 0; i < k->nparts; i++) {
        const struct fp_aux_part *a = &k->parts[i];
        const uint8_t *before = i ? k->parts[i - 1].data + k->parts[i - 1].len_bytes - CDC_WINDOW_BYTES : NULL;

        cdc_scan(&rule->cdc, m, off, a->data, a->len_bytes, before);
        off += a->len_bytes;
    }
    return 0;
}

/* [from, to) has no block of zeros. */
static int cut_bytes(struct pieces *p, const struct cut_rule *rule, const struct cdc_map *m, uint32_t from, uint32_t to)
{
    while (from < to) {
        uint32_t end = to;
        int rc;

        if (rule->kind == CUT_FIXED && to - from > rule->fixed_bytes - from % rule->fixed_bytes)
            end = from + rule->fixed_bytes - from % rule->fixed_bytes;
        if (rule->kind == CUT_CONTENT)
            end = cdc_cut(&rule->cdc, m, from, to);
        if (rule->kind == CUT_CONTENT && to - end < BLOCK_BYTES)
            end = to; /* a rest too short to be referred to belongs to the piece before it */
        rc = add(p, from, end - from, PIECE_NEW);
        if (rc < 0)
            return rc;
        from = end;
    }
    return 0;
}

int pieces_cut(struct pieces *p, const struct cut_rule *rule, const struct fp_aux_chunk *k)
{
    uint32_t step = rule->kind == CUT_FIXED ? rule->fixed_bytes : BLOCK_BYTES, from = 0, off = 0;
    struct pieces_cursor c = { .k = k };
    struct cdc_map m = { 0 };
    int rc = rule->kind == CUT_CONTENT ? scan(p, rule, k, &m) : 0;

    p->n = 0;
    while (rc == 0 && off < k->len_bytes) {
        uint32_t end = k->len_bytes - off < step ? k->len_bytes : off + step, b = off;

        while (b < end && block_is_zero(&c, b, end - b < BLOCK_BYTES ? end - b : BLOCK_BYTES))
            b += BLOCK_BYTES;
        if (b >= end) {
            rc = cut_bytes(p, rule, &m, from, off);
            if (rc == 0)
                rc = add(p, off, end - off, PIECE_ZERO);
            from = end;
        }
        off = end;
    }
    return rc < 0 ? rc : cut_bytes(p, rule, &m, from, k->len_bytes);
}

/* -------------------------------------------------------------- digests, equality */

int pieces_digest(struct pieces *p, struct digest *d, const struct fp_aux_chunk *k)
{
    struct pieces_cursor c = { .k = k };

    if (digest_lanes(d) != LANES_NONE) {
        lanes_digest(p, k, digest_lanes(d));
        return 0;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        struct piece *x = &p->piece[i];
        bool ok = true;

        if (x->kind != PIECE_NEW || x->digested)
            continue;
        ok = digest_begin(d);
        for (uint32_t done = 0; ok && done < x->len_bytes;) {
            uint32_t n = x->len_bytes - done;
            const uint8_t *data = pieces_at(&c, x->off + done, &n);

            ok = digest_add(d, data, n);
            done += n;
        }
        if (!ok || !digest_end(d, x->digest))
            return -EIO;
        x->digested = true;
    }
    return 0;
}

bool pieces_equal(const struct fp_aux_chunk *k, uint32_t off, uint32_t len_bytes, const uint8_t *data)
{
    struct pieces_cursor c = { .k = k };

    for (uint32_t done = 0; done < len_bytes;) {
        uint32_t n = len_bytes - done;
        const uint8_t *ours = pieces_at(&c, off + done, &n);

        if (memcmp(ours, data + done, n) != 0)
            return false;
        done += n;
    }
    return true;
}

static bool equal_within(const struct fp_aux_chunk *k, uint32_t a, uint32_t b, uint32_t len_bytes)
{
    struct pieces_cursor ca = { .k = k }, cb = { .k = k };

    for (uint32_t done = 0; done < len_bytes;) {
        uint32_t n = len_bytes - done;
        const uint8_t *pa = pieces_at(&ca, a + done, &n), *pb = pieces_at(&cb, b + done, &n);

        if (memcmp(pa, pb, n) != 0) /* n: what both have in one piece */
            return false;
        done += n;
    }
    return true;
}

int pieces_same(struct pieces *p, const struct fp_aux_chunk *k, bool compare)
{
    uint32_t cap = 64;

    while (cap < p->n * 2)
        cap *= 2;
    if (p->seen_cap < cap) {
        free(p->seen);
        p->seen = malloc(cap * sizeof(*p->seen));
        p->seen_cap = p->seen ? cap : 0;
        if (!p->seen)
            return -ENOMEM;
    }
    memset(p->seen, 0, cap * sizeof(*p->seen));
    for (uint32_t i = 0; i < p->n; i++) {
        struct piece *x = &p->piece[i];
        uint32_t h;

        if (x->kind != PIECE_NEW || !x->digested || x->len_bytes < BLOCK_BYTES)
            continue;
        memcpy(&h, x->digest, sizeof(h));
        for (h &= cap - 1; p->seen[h] != 0; h = (h + 1) & (cap - 1)) {
            const struct piece *y = &p->piece[p->seen[h] - 1];

            if (y->len_bytes == x->len_bytes && memcmp(y->digest, x->digest, DIGEST_MAX_BYTES) == 0)
                break;
        }
        if (p->seen[h] == 0) {
            p->seen[h] = i + 1;
        } else if (!compare || equal_within(k, p->piece[p->seen[h] - 1].off, x->off, x->len_bytes)) {
            x->kind = PIECE_SAME;
            x->earlier_off = p->piece[p->seen[h] - 1].off;
        }
    }
    return 0;
}

/* -------------------------------------------------------------- runs */

bool pieces_continue(const struct piece *a, const struct piece *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == PIECE_SAME)
        return a->earlier_off + a->len_bytes == b->earlier_off;
    if (a->kind == PIECE_STORED)
        return a->place.chunk == b->place.chunk && a->place.off + a->place.len_bytes == b->place.off;
    return true;
}

static uint32_t run_end(const struct pieces *p, uint32_t i)
{
    while (i + 1 < p->n && pieces_continue(&p->piece[i], &p->piece[i + 1]))
        i++;
    return i + 1;
}

uint32_t pieces_limit(struct pieces *p, uint32_t max)
{
    for (uint32_t least = 2 * BLOCK_BYTES;; least *= 2) {
        uint32_t runs = 0;

        for (uint32_t i = 0; i < p->n; i = run_end(p, i))
            runs++;
        if (runs <= max)
            return runs;
        for (uint32_t i = 0; i < p->n;) {
            uint32_t end = run_end(p, i), last = end - 1;
            uint32_t bytes = p->piece[last].off + p->piece[last].len_bytes - p->piece[i].off;

            for (; i < end; i++)
                if (bytes < least)
                    p->piece[i].kind = PIECE_NEW;
        }
    }
}

void pieces_fini(struct pieces *p)
{
    free(p->piece);
    free(p->maps);
    free(p->seen);
    *p = (struct pieces){ 0 };
}

uint64_t pieces_bytes(const struct pieces *p, enum piece_kind kind)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < p->n; i++)
        n += p->piece[i].kind == kind ? p->piece[i].len_bytes : 0;
    return n;
}

uint64_t pieces_anew(const struct pieces *p)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < p->n; i++)
        n += p->piece[i].kind == PIECE_NEW && p->piece[i].thin ? p->piece[i].len_bytes : 0;
    return n;
}
