/*
 * Notes of dedup that another mount wrote, or something else did (auxapps/dedup/note.h).
 *
 * The pieces that come out lie one behind the other inside of the data, and their digests inside of the note. With bit 0 of the first byte
 * a note is written from the input first, and must come back as it was.
 */
#include <stdlib.h>
#include <string.h>

#include "auxapps/dedup/note.h"
#include "tests/fuzz/fuzz.h"

static void read_all(const uint8_t *note, uint32_t len, uint32_t data_bytes)
{
    struct note_reader r;
    const uint8_t *digest;
    uint32_t off, bytes, at = 0;
    volatile uint8_t sink = 0;

    if (!note_open(&r, note, len, data_bytes))
        return;
    while (note_next(&r, &off, &bytes, &digest)) {
        FUZZ_CHECK(off == at && bytes > 0 && bytes <= data_bytes - off);
        FUZZ_CHECK(digest >= note && digest + digest_bytes(r.kind) <= note + len);
        for (uint32_t i = 0; i < digest_bytes(r.kind); i++)
            sink = (uint8_t)(sink ^ digest[i]);
        at += bytes;
    }
    FUZZ_CHECK(at <= data_bytes);
}

static void write_and_read(struct fuzz_in *in)
{
    enum digest_kind kind = (enum digest_kind)(DIGEST_SHA1 + (int)fuzz_below(in, DIGEST_XXH3 - DIGEST_SHA1 + 1));
    uint32_t cap = NOTE_HEADER_BYTES + fuzz_u16(in) % 2048, alike = fuzz_u8(in) & 1 ? 1u + fuzz_u16(in) : 0, n = 0, off, bytes, data = 0;
    uint8_t *buf = malloc(cap), digest[64] = {0};
    uint32_t said[2048];
    const uint8_t *d;
    struct note_writer w;
    struct note_reader r;

    note_begin(&w, buf, cap, kind, alike);
    for (;;) {
        said[n] = alike ? alike : 1u + fuzz_u16(in);
        digest[0] = (uint8_t)n;
        if (!note_add(&w, said[n], digest))
            break;
        data += said[n++];
    }
    FUZZ_CHECK(w.len_bytes <= cap);
    FUZZ_CHECK(note_open(&r, buf, w.len_bytes, data));
    for (uint32_t i = 0; i < n; i++)
        FUZZ_CHECK(note_next(&r, &off, &bytes, &d) && bytes == said[i] && d[0] == (uint8_t)i);
    FUZZ_CHECK(!note_next(&r, &off, &bytes, &d));
    free(buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};
    uint8_t how = fuzz_u8(&in);
    uint32_t data_bytes = (uint32_t)fuzz_number(&in);
    uint8_t *note = malloc(fuzz_left(&in) + 8);
    uint32_t n;

    if (how & 1)
        write_and_read(&in);
    n = (uint32_t)fuzz_bytes(&in, note, fuzz_left(&in));
    if (how & 2 && n >= 2) {
        note[0] = 1;
        note[1] = (uint8_t)(DIGEST_SHA1 + note[1] % (DIGEST_XXH3 - DIGEST_SHA1 + 1));
    }
    uint8_t *exact = malloc(n ? n : 1);
    memcpy(exact, note, n);
    free(note);
    read_all(exact, n, data_bytes);
    free(exact);
    return 0;
}
