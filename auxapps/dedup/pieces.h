/*
 * The pieces of one chunk: where they are, what they are equal to, and how many of them are worth telling the store.
 *
 * Pure but for the digests. Belongs to a worker thread; memory is kept from chunk to chunk.
 */
#ifndef DEDUP_PIECES_H
#define DEDUP_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "cdc.h"
#include "digest.h"
#include "fp/auxapp.h"

enum piece_kind { PIECE_NEW, PIECE_ZERO, PIECE_SAME, PIECE_STORED };

struct piece {
    uint32_t off, len_bytes;
    enum piece_kind kind;
    bool digested;
    bool thin;                     /* NEW, and stored in a chunk that is not referred to for its thinness (thin.h) */
    uint32_t earlier_off;          /* SAME */
    struct fp_aux_place place;     /* STORED */
    uint8_t digest[DIGEST_MAX_BYTES];
};

struct pieces {
    struct piece *piece;
    uint32_t n, cap;
    uint64_t *maps;                /* two bit maps of cdc.h */
    size_t map_words;
    uint32_t *seen;                /* hash table of this chunk's own new pieces, n + 1 each */
    uint32_t seen_cap;
};

enum cut_kind { CUT_CONTENT, CUT_FIXED, CUT_ZEROS }; /* ZEROS: what is between zeros stays in one piece */

struct cut_rule {
    enum cut_kind kind;
    uint32_t fixed_bytes;          /* FIXED: multiple of 4 KiB */
    struct cdc cdc;                /* CONTENT */
};

/* Walks the parts of a chunk upwards. */
struct pieces_cursor { const struct fp_aux_chunk *k; uint32_t part, part_off; /* part_off: of its first byte in the chunk */ };

/* The bytes from off on that lie in one piece, at most *len_bytes. off never goes down. */
const uint8_t *pieces_at(struct pieces_cursor *c, uint32_t off, uint32_t *len_bytes);

/* Cut the chunk; what is zero is known then, the rest is NEW. 0 or -ENOMEM. */
int pieces_cut(struct pieces *p, const struct cut_rule *rule, const struct fp_aux_chunk *k);
/* Digest what is NEW and has none. 0 or -EIO. */
int pieces_digest(struct pieces *p, struct digest *d, const struct fp_aux_chunk *k);
/* NEW pieces that are equal to an earlier NEW one of this chunk become SAME; compare: digests alone prove nothing. 0 or -ENOMEM. */
int pieces_same(struct pieces *p, const struct fp_aux_chunk *k, bool compare);
/* At most `max` runs: the shortest that are not NEW become NEW (digested or not). Returns how many runs there are. */
uint32_t pieces_limit(struct pieces *p, uint32_t max);
/* Is the run of pieces from i on continued by piece i + 1? */
bool pieces_continue(const struct piece *a, const struct piece *b);
/* Are bytes [off, off + len) of the chunk these? */
bool pieces_equal(const struct fp_aux_chunk *k, uint32_t off, uint32_t len_bytes, const uint8_t *data);
void pieces_fini(struct pieces *p);
/* Bytes of this kind; those that are new because what has them is thin. */
uint64_t pieces_bytes(const struct pieces *p, enum piece_kind kind);
uint64_t pieces_anew(const struct pieces *p);

#endif
