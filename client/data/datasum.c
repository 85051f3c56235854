/*
 * Sums of data that is stored coded (see datasum.h). Called by store threads (packed.c) and by who decodes (coded.c); no lock, no allocation.
 *
 * The data is always what the mount itself has in its pages, never the host's memory: a coder that went wrong is found at the first read, not believed.
 *
 * Data that an aux-app hides (FP_AUX_HIDES) gets a keyed sum: HMAC over the XXH3-128 of the data and the XXH3-64 of the coded bytes. A plain XXH3 beside
 * the encrypted bytes would let anyone who has the store check a guess at the data. The coded bytes are in it so that equal data does not show as
 * equal sums: what hides data makes other bytes of it each time.
 */
#include "client/data/datasum.h"

#include "fp/keyedsum.h"
#include "fp/le.h"
#include "fp/xxh3.h"

void cl_datasum_begin(struct cl_datasum *x, bool keyed)
{
    x->keyed = keyed;
    if (keyed)
        XXH3_128bits_reset(&x->s);
    else
        XXH3_64bits_reset(&x->s);
}

void cl_datasum_add(struct cl_datasum *x, const void *p, uint32_t len)
{
    if (x->keyed)
        (void)fp_xxh3_128_update(&x->s, p, len);
    else
        (void)fp_xxh3_64_update(&x->s, p, len);
}

int cl_datasum_end(struct cl_datasum *x, const struct fp_keyedsum *k, const uint8_t *coded, uint32_t coded_bytes, uint64_t *out)
{
    uint8_t msg[24];
    XXH128_hash_t h;

    if (!x->keyed) {
        *out = XXH3_64bits_digest(&x->s);
        return 0;
    }
    h = XXH3_128bits_digest(&x->s);
    fp_put64(msg, h.low64);
    fp_put64(msg + 8, h.high64);
    fp_put64(msg + 16, fp_xxh3_64(coded, coded_bytes));
    return fp_keyedsum(k, msg, sizeof(msg), out);
}

bool cl_datasum_can(const struct fp_keyedsum *k, const struct fp_envelope *e)
{
    return !e->keyed || fp_keyedsum_is_ours(k, e->data_sum);
}
