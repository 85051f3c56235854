/*
 * The SHA-1 of a chunk's pieces, two or sixteen at a time. Called by pieces_digest on dedup's workers; pure.
 *
 * Each lane takes one piece after the other. A lane has a span of whole blocks that lie one behind the other; when that is used up, it looks for the next: in the
 * following part of the chunk, in its own buffer (a block across two parts, and the end with its padding), or in another piece. All go on by
 * as many blocks as the shortest span has. Pieces of equal length side by side would be simpler, but those of dedup are of all lengths.
 *
 * Long pieces are taken first, so that the short ones fill up at the end. When there are fewer than FEW_LANES left, sixteen at a time take longer than
 * two at a time do one pair after the other, where the processor has instructions for that. Where it has none (AVX-512 without SHA-NI: Skylake-SP, Cascade
 * Lake), sixteen go on to the last one: OpenSSL can't take over in the middle of a piece.
 */
#include "lanes.h"

#include <string.h>

#include "sha1x16.h"
#include "sha1x2.h"

#define FEW_LANES 7u

struct lane {
    struct pieces_cursor at;
    struct piece *x;               /* NULL: none */
    uint32_t done, held;           /* bytes of the piece that were looked at; of those, in buf and not in a span yet */
    bool padded;
    const uint8_t *span;
    size_t blocks;                 /* left of the span */
    uint8_t buf[2 * SHA1_BLOCK_BYTES];
};

struct lanes {
    struct pieces *p;
    uint32_t i, least_bytes;       /* where to look for the next piece, which must be as long */
    uint32_t h[5][SHA1X16_LANES];
    struct lane lane[SHA1X16_LANES];
};

/* The next span of the lane's piece. False: there is none, the piece is done. */
static bool next_span(struct lane *l)
{
    while (l->done < l->x->len_bytes) {
        uint32_t n = l->x->len_bytes - l->done;
        const uint8_t *data = pieces_at(&l->at, l->x->off + l->done, &n);

        if (l->held == 0 && n >= SHA1_BLOCK_BYTES) {
            l->span = data;
            l->blocks = n / SHA1_BLOCK_BYTES;
            l->done += (uint32_t)l->blocks * SHA1_BLOCK_BYTES;
            return true;
        }
        if (n > SHA1_BLOCK_BYTES - l->held)
            n = SHA1_BLOCK_BYTES - l->held;
        memcpy(l->buf + l->held, data, n);
        l->held += n;
        l->done += n;
        if (l->held == SHA1_BLOCK_BYTES) {
            l->held = 0;
            l->span = l->buf;
            l->blocks = 1;
            return true;
        }
    }
    if (l->padded)
        return false;
    l->padded = true;
    l->span = l->buf;
    l->blocks = sha1x2_pad(l->buf, l->x->len_bytes);
    return true;
}

static uint32_t longest(const struct pieces *p)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < p->n; i++)
        most = p->piece[i].kind == PIECE_NEW && p->piece[i].len_bytes > most ? p->piece[i].len_bytes : most;
    return most;
}

/* By lengths that halve: a piece is taken when it is the turn of its own. */
static struct piece *next_piece(struct lanes *s)
{
    for (;; s->least_bytes /= 2, s->i = 0) {
        while (s->i < s->p->n) {
            struct piece *x = &s->p->piece[s->i++];

            if (x->kind == PIECE_NEW && !x->digested && x->len_bytes >= s->least_bytes) {
                x->digested = true; /* nobody else's: it will be */
                return x;
            }
        }
        if (s->least_bytes == 0)
            return NULL;
    }
}

static void begin(struct lanes *s, unsigned i)
{
    struct lane *l = &s->lane[i];
    uint32_t h[5];

    sha1x2_init(h);
    for (unsigned word = 0; word < 5; word++)
        s->h[word][i] = h[word];
    l->done = l->held = 0;
    l->padded = false;
    if (l->x->off < l->at.part_off)
        l->at = (struct pieces_cursor){ .k = l->at.k }; /* it only goes forwards */
}

static void end(const struct lanes *s, unsigned i)
{
    struct piece *x = s->lane[i].x;
    uint32_t h[5];

    for (unsigned word = 0; word < 5; word++)
        h[word] = s->h[word][i];
    memset(x->digest, 0, sizeof(x->digest));
    sha1x2_end(h, x->digest);
}

/* The lane has a span, unless all pieces are taken. */
static void feed(struct lanes *s, unsigned i)
{
    struct lane *l = &s->lane[i];

    while (l->blocks == 0) {
        if (l->x && next_span(l))
            return;
        if (l->x)
            end(s, i);
        l->x = next_piece(s);
        if (!l->x)
            return;
        begin(s, i);
    }
}

static void went(struct lane *l, size_t blocks)
{
    l->span += blocks * SHA1_BLOCK_BYTES;
    l->blocks -= blocks;
}

/* The first two lanes that have something, or the only one. */
static void go_by_two(struct lanes *s, const unsigned *busy, unsigned n)
{
    struct lane *a = &s->lane[busy[0]], *b = n > 1 ? &s->lane[busy[1]] : NULL;
    size_t blocks = b && b->blocks < a->blocks ? b->blocks : a->blocks;
    uint32_t ha[5], hb[5];

    for (unsigned word = 0; word < 5; word++) {
        ha[word] = s->h[word][busy[0]];
        hb[word] = b ? s->h[word][busy[1]] : 0;
    }
    if (b)
        sha1x2_two(ha, a->span, hb, b->span, blocks);
    else
        sha1x2_one(ha, a->span, blocks);
    for (unsigned word = 0; word < 5; word++) {
        s->h[word][busy[0]] = ha[word];
        if (b)
            s->h[word][busy[1]] = hb[word];
    }
    went(a, blocks);
    if (b)
        went(b, blocks);
}

/* All of them; those that have nothing do what another does, for nothing. */
static void go_by_sixteen(struct lanes *s, const unsigned *busy, unsigned n)
{
    const uint8_t *data[SHA1X16_LANES];
    size_t blocks = SIZE_MAX;

    for (unsigned i = 0; i < SHA1X16_LANES; i++)
        data[i] = s->lane[busy[0]].span;
    for (unsigned i = 0; i < n; i++) {
        const struct lane *l = &s->lane[busy[i]];

        data[busy[i]] = l->span;
        blocks = l->blocks < blocks ? l->blocks : blocks;
    }
    sha1x16(s->h, data, blocks);
    for (unsigned i = 0; i < n; i++)
        went(&s->lane[busy[i]], blocks);
}

bool lanes_can(enum sha1_lanes how)
{
    return (how != LANES_2 && how != LANES_16 ? true : sha1x2_is_there()) && (how < LANES_16_ALONE || sha1x16_is_there());
}

enum sha1_lanes lanes_here(void)
{
    enum sha1_lanes how = LANES_16;

    while (!lanes_can(how))
        how--;
    return how;
}

void lanes_digest(struct pieces *p, const struct fp_aux_chunk *k, enum sha1_lanes how)
{
    unsigned lanes = how == LANES_2 ? 2 : SHA1X16_LANES;
    struct lanes s = { .p = p, .least_bytes = lanes > 2 ? longest(p) / 2 : 0 };
    unsigned busy[SHA1X16_LANES], n;

    for (unsigned i = 0; i < lanes; i++)
        s.lane[i] = (struct lane){ .at = { .k = k } };
    for (;;) {
        n = 0;
        for (unsigned i = 0; i < lanes; i++) {
            feed(&s, i);
            if (s.lane[i].blocks > 0)
                busy[n++] = i;
        }
        if (n == 0)
            return;
        if (n >= FEW_LANES || how == LANES_16_ALONE)
            go_by_sixteen(&s, busy, n);
        else
            go_by_two(&s, busy, n);
    }
}
