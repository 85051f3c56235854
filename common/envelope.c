/*
 * Envelopes of coded chunks: bytes to struct and back (layout in fp/auxwire.h).
 *
 * Called by fp-mount when a coded chunk is stored and when one is read, on any thread: pure functions without state. Little-endian by
 * hand, as in record.c.
 *
 * The envelope has a sum of its own although the chunk is verified: it says which aux-app gets the bytes, and
 * how much memory is set aside for what they make of them, so it must be right even for a program that wrote
 * nonsense under a right checksum. Lengths are bounded here, once, and chained: what a stage got is what the one
 * before it left.
 */
#include "fp/envelope.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include <xxhash.h>

#include "fp/le.h"
#include "fp/record.h"

#define VERSION      1u
#define KEYED        1u /* flag */
#define SUM_AT       24u
#define STAGES_AT    32u
#define STAGE_BYTES  32u
#define NAME_BYTES   24u

/* An aux-app's name, then zeros to the end of the field. */
static bool name_is_good(const char name[NAME_BYTES])
{
    size_t n = 0;

    if (name[0] < 'a' || name[0] > 'z')
        return false;
    while (n < NAME_BYTES && ((name[n] >= 'a' && name[n] <= 'z') || (name[n] >= '0' && name[n] <= '9') ||
                              name[n] == '_' || name[n] == '-'))
        n++;
    if (n > FP_AUX_NAME_MAX)
        return false;
    for (; n < NAME_BYTES; n++)
        if (name[n])
            return false;
    return true;
}

int fp_envelope_check(const struct fp_envelope *e)
{
    uint32_t len = e->data_bytes;

    if (e->nstages == 0 || e->nstages > FP_AUXW_STAGES_MAX || len == 0 || len > FP_CHUNK_MAX_BYTES)
        return -EILSEQ;
    for (uint32_t i = 0; i < e->nstages; i++) {
        const struct fp_auxw_stage *s = &e->stage[i];

        if (!name_is_good(s->name) || s->in_bytes != len || s->out_bytes == 0 ||
            s->out_bytes > FP_STORED_MAX_BYTES - FP_ENVELOPE_MAX_BYTES)
            return -EILSEQ;
        len = s->out_bytes;
    }
    return len == e->coded_bytes ? 0 : -EILSEQ;
}

/* The sum of an envelope whose own field is not looked at. */
static uint64_t sum_of(const uint8_t *in, size_t len)
{
    uint8_t copy[FP_ENVELOPE_MAX_BYTES];

    memcpy(copy, in, len);
    memset(copy + SUM_AT, 0, 8);
    return XXH3_64bits(copy, len);
}

void fp_envelope_encode(const struct fp_envelope *e, uint8_t *out)
{
    memset(out, 0, FP_ENVELOPE_BYTES(e->nstages));
    fp_put32(out, FP_ENVELOPE_MAGIC);
    out[4] = VERSION;
    out[5] = e->keyed ? KEYED : 0;
    out[6] = (uint8_t)e->nstages;
    fp_put32(out + 8, e->data_bytes);
    fp_put32(out + 12, e->coded_bytes);
    fp_put64(out + 16, e->data_sum);
    for (uint32_t i = 0; i < e->nstages; i++) {
        uint8_t *s = out + STAGES_AT + i * STAGE_BYTES;

        memcpy(s, e->stage[i].name, NAME_BYTES);
        fp_put32(s + 24, e->stage[i].in_bytes);
        fp_put32(s + 28, e->stage[i].out_bytes);
    }
    fp_put64(out + SUM_AT, sum_of(out, FP_ENVELOPE_BYTES(e->nstages)));
}

int fp_envelope_decode(const uint8_t *in, size_t have_bytes, size_t stored_bytes, struct fp_envelope *out)
{
    uint32_t n;
    int rc;

    if (have_bytes > stored_bytes)
        have_bytes = stored_bytes;
    if (have_bytes < 4 || fp_get32(in) != FP_ENVELOPE_MAGIC)
        return -ENODATA;
    if (have_bytes < STAGES_AT || in[4] != VERSION || (in[5] & ~KEYED))
        return -EILSEQ;
    n = fp_get16(in + 6);
    if (n == 0 || n > FP_AUXW_STAGES_MAX || have_bytes < FP_ENVELOPE_BYTES(n) ||
        fp_get64(in + SUM_AT) != sum_of(in, FP_ENVELOPE_BYTES(n)))
        return -EILSEQ;
    memset(out, 0, sizeof(*out));
    out->nstages = n;
    out->keyed = in[5] & KEYED;
    out->data_bytes = fp_get32(in + 8);
    out->coded_bytes = fp_get32(in + 12);
    out->data_sum = fp_get64(in + 16);
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *s = in + STAGES_AT + i * STAGE_BYTES;

        memcpy(out->stage[i].name, s, NAME_BYTES);
        out->stage[i].in_bytes = fp_get32(s + 24);
        out->stage[i].out_bytes = fp_get32(s + 28);
    }
    rc = fp_envelope_check(out);
    if (rc == 0 && stored_bytes != FP_ENVELOPE_BYTES(n) + (size_t)out->coded_bytes)
        rc = -EILSEQ;
    return rc;
}
