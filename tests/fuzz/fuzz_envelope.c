/*
 * The envelope of a coded chunk, as a benefactor gives it back (fp/envelope.h).
 *
 * Byte 0 says what is done to the rest: with bit 0 the sum of the envelope is made right, so that the fields behind it are looked at; with
 * bit 1 it is built from fields. What is taken must stand the check, and say the same after it was written and read again.
 */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "fp/envelope.h"
#include "tests/fuzz/fuzz.h"

static void put_le(uint8_t *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static void build(struct fuzz_in *in, uint8_t *e)
{
    uint32_t n = fuzz_below(in, 10), bytes = (uint32_t)fuzz_number(in);

    put_le(e, FP_ENVELOPE_MAGIC, 4);
    e[4] = fuzz_u8(in) < 250;
    e[5] = fuzz_u8(in) & 3;
    put_le(e + 6, n, 2);
    put_le(e + 8, bytes, 4);
    for (uint32_t i = 0; i < n && i < FP_AUXW_STAGES_MAX; i++) {
        uint8_t *s = e + 32 + 32 * i;

        fuzz_bytes(in, s, fuzz_below(in, 25));
        put_le(s + 24, fuzz_u8(in) < 240 ? bytes : fuzz_number(in), 4);
        bytes = (uint32_t)fuzz_number(in);
        put_le(s + 28, bytes, 4);
    }
    put_le(e + 12, fuzz_u8(in) < 240 ? bytes : fuzz_number(in), 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};
    uint8_t how = fuzz_u8(&in), raw[FP_ENVELOPE_MAX_BYTES] = {0}, again[FP_ENVELOPE_MAX_BYTES];
    struct fp_envelope e, e2;
    size_t have = how & 2 ? sizeof raw : fuzz_bytes(&in, raw, sizeof raw), stored;
    uint8_t *copy;
    int rc;

    if (how & 2)
        build(&in, raw);
    stored = FP_ENVELOPE_BYTES(raw[6] & 15) + ((size_t)raw[12] | (size_t)raw[13] << 8 | (size_t)raw[14] << 16 | (size_t)raw[15] << 24);
    if (how & 4)
        stored = fuzz_number(&in);
    if (how & 1 && have >= FP_ENVELOPE_BYTES(raw[6] & 15) && raw[6] <= FP_AUXW_STAGES_MAX) {
        memset(raw + 24, 0, 8);
        put_le(raw + 24, XXH3_64bits(raw, FP_ENVELOPE_BYTES(raw[6])), 8);
    }
    copy = malloc(have + 1);
    memcpy(copy, raw, have);
    rc = fp_envelope_decode(copy, have, stored, &e);
    free(copy);
    if (rc == 0) {
        FUZZ_CHECK(fp_envelope_check(&e) == 0);
        FUZZ_CHECK(FP_ENVELOPE_BYTES(e.nstages) + (size_t)e.coded_bytes == stored);
        fp_envelope_encode(&e, again);
        FUZZ_CHECK(fp_envelope_decode(again, FP_ENVELOPE_BYTES(e.nstages), stored, &e2) == 0);
        FUZZ_CHECK(e2.nstages == e.nstages && e2.data_bytes == e.data_bytes && e2.data_sum == e.data_sum && e2.keyed == e.keyed);
        FUZZ_CHECK(strcmp(e2.stage[0].name, e.stage[0].name) == 0);
    }
    return 0;
}
