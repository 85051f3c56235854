/*
 * Notes of dedup on stored chunks (see note.h). Pure. What is read comes from the manager, and perhaps from another version of dedup: every
 * length is checked, and what makes no sense ends the note early, which costs duplicates and nothing else.
 */
#include "note.h"

#include <string.h>

#define NOTE_VERSION 1

static void put_le(uint8_t *p, uint32_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t get_le(const uint8_t *p, unsigned bytes)
{
    uint32_t v = 0;

    for (unsigned i = 0; i < bytes; i++)
        v |= (uint32_t)p[i] << 8 * i;
    return v;
}

void note_begin(struct note_writer *w, uint8_t *buf, uint32_t cap_bytes, enum digest_kind kind, uint32_t alike_bytes)
{
    *w = (struct note_writer){ .buf = buf, .cap_bytes = cap_bytes, .len_bytes = NOTE_HEADER_BYTES, .alike_bytes = alike_bytes, .kind = kind };
    buf[0] = NOTE_VERSION;
    buf[1] = (uint8_t)kind;
    buf[2] = buf[3] = 0;
    put_le(buf + 4, alike_bytes, 4);
}

bool note_add(struct note_writer *w, uint32_t piece_bytes, const uint8_t *digest)
{
    uint32_t n = digest_bytes(w->kind), len = w->alike_bytes ? 0 : 3;

    if (w->cap_bytes - w->len_bytes < len + n)
        return false;
    put_le(w->buf + w->len_bytes, piece_bytes, len);
    memcpy(w->buf + w->len_bytes + len, digest, n);
    w->len_bytes += len + n;
    return true;
}

bool note_open(struct note_reader *r, const uint8_t *note, uint32_t note_bytes, uint32_t data_bytes)
{
    if (note_bytes < NOTE_HEADER_BYTES || note[0] != NOTE_VERSION || note[1] < DIGEST_SHA1 || note[1] > DIGEST_XXH3)
        return false;
    *r = (struct note_reader){ .at = note + NOTE_HEADER_BYTES, .end = note + note_bytes, .data_bytes = data_bytes,
                   .alike_bytes = get_le(note + 4, 4), .kind = (enum digest_kind)note[1] };
    return true;
}

bool note_next(struct note_reader *r, uint32_t *off, uint32_t *piece_bytes, const uint8_t **digest)
{
    uint32_t n = digest_bytes(r->kind), len = r->alike_bytes ? 0 : 3, left = r->data_bytes - r->off, piece;

    if ((size_t)(r->end - r->at) < len + n)
        return false;
    piece = r->alike_bytes ? r->alike_bytes : get_le(r->at, 3);
    if (r->alike_bytes && piece > left)
        piece = left; /* the last one */
    if (piece == 0 || piece > left)
        return false;
    *off = r->off;
    *piece_bytes = piece;
    *digest = r->at + len;
    r->off += piece;
    r->at += len + n;
    return true;
}
