/*
 * The note of dedup on a stored chunk: the digests of the pieces that it is made of.
 *
 * Little-endian: u8 version (1), u8 kind of digest (digest.h), u16 0 (older ones: any), u32 bytes of the pieces if they are all
 * alike but the last, else 0; then for each piece, as they lie in the chunk: u24 its bytes (only if they are not alike), and the digest.
 * 23 bytes per piece of 12 KiB (size=16KiB on random data) are 0.19 % of the data.
 */
#ifndef DEDUP_NOTE_H
#define DEDUP_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "digest.h"

#define NOTE_HEADER_BYTES 8u

struct note_writer {
    uint8_t *buf;
    uint32_t cap_bytes, len_bytes;
    uint32_t alike_bytes;          /* 0: pieces differ */
    enum digest_kind kind;
};

/* alike_bytes: size of all pieces but the last, 0: each its own. */
void note_begin(struct note_writer *w, uint8_t *buf, uint32_t cap_bytes, enum digest_kind kind, uint32_t alike_bytes);
/* False: it is full; the pieces so far make a good note. */
bool note_add(struct note_writer *w, uint32_t piece_bytes, const uint8_t *digest);

struct note_reader {
    const uint8_t *at, *end;
    uint32_t off, data_bytes;      /* next piece, end of the chunk's data */
    uint32_t alike_bytes;
    enum digest_kind kind;
};

/* False: not a note of ours, or of a later version. */
bool note_open(struct note_reader *r, const uint8_t *note, uint32_t note_bytes, uint32_t data_bytes);
/* False: that was all (or it is damaged). digest points into the note. */
bool note_next(struct note_reader *r, uint32_t *off, uint32_t *piece_bytes, const uint8_t **digest);

#endif
