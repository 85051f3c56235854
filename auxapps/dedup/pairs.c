/*
 * The SHA-1 of a chunk's pieces, two at a time. Called by pieces_digest on dedup's workers; pure.
 *
 * Two lanes take the pieces in turn. A lane has a span of whole blocks that lie one behind the other; when that is used up, it looks for the next: in the
 * following part of the chunk, in its own buffer (a block across two parts, and the end with its padding), or in another piece. Both go on by
 * as many blocks as the shorter span has. Pieces of equal length side by side would be simpler, but those of dedup are of all lengths.
 */
#include "pairs.h"

#include <string.h>

#include "sha1x2.h"

struct lane {
	struct pieces_cursor at;
	struct piece *x;               /* NULL: none */
	uint32_t h[5];
	uint32_t done, held;           /* bytes of the piece that were looked at; of those, in buf and not in a span yet */
	bool padded;
	const uint8_t *span;
	size_t blocks;                 /* left of the span */
	uint8_t buf[2 * SHA1_BLOCK_BYTES];
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

static struct piece *next_piece(struct pieces *p, uint32_t *i)
{
	while (*i < p->n) {
		struct piece *x = &p->piece[(*i)++];

		if (x->kind == PIECE_NEW && !x->digested)
			return x;
	}
	return NULL;
}

/* The lane has a span, unless all pieces are taken. */
static void feed(struct lane *l, struct pieces *p, uint32_t *i)
{
	while (l->blocks == 0) {
		if (l->x && next_span(l))
			return;
		if (l->x) {
			memset(l->x->digest, 0, sizeof(l->x->digest));
			sha1x2_end(l->h, l->x->digest);
			l->x->digested = true;
		}
		l->x = next_piece(p, i);
		if (!l->x)
			return;
		sha1x2_init(l->h);
		l->done = l->held = 0;
		l->padded = false;
	}
}

static void went(struct lane *l, size_t blocks)
{
	l->span += blocks * SHA1_BLOCK_BYTES;
	l->blocks -= blocks;
}

void pairs_digest(struct pieces *p, const struct fp_aux_chunk *k)
{
	struct lane a = { .at = { .k = k } }, b = { .at = { .k = k } };
	uint32_t i = 0;

	for (;;) {
		feed(&a, p, &i);
		feed(&b, p, &i);
		if (a.blocks > 0 && b.blocks > 0) {
			size_t n = a.blocks < b.blocks ? a.blocks : b.blocks;

			sha1x2_two(a.h, a.span, b.h, b.span, n);
			went(&a, n);
			went(&b, n);
		} else if (a.blocks > 0) {
			sha1x2_one(a.h, a.span, a.blocks);
			went(&a, a.blocks);
		} else if (b.blocks > 0) {
			sha1x2_one(b.h, b.span, b.blocks);
			went(&b, b.blocks);
		} else {
			return;
		}
	}
}
