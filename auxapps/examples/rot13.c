/* rot13: an aux-app that changes data on its way to the store, and undoes that when it is read.
 *
 * Letters are moved on by 13 places; all other bytes stay. The smallest transform there is: chunk_out writes a replacement, chunk_in gets
 * what chunk_out wrote and gives back what it was given. chunk_in must not depend on options: another mount may read the file.
 */
#include "fp/auxapp.h"

static uint8_t rot(uint8_t c)
{
    if ((c >= 'a' && c <= 'm') || (c >= 'A' && c <= 'M'))
        return (uint8_t)(c + 13);
    if ((c >= 'n' && c <= 'z') || (c >= 'N' && c <= 'Z'))
        return (uint8_t)(c - 13);
    return c;
}

static int chunk_out(void *state, struct fp_aux_call *call, const struct fp_aux_chunk *chunk)
{
    (void)state;
    uint8_t *out = fp_aux_out_buffer(call, NULL);
    if (!out)
        return -ENOMEM;
    for (uint32_t p = 0; p < chunk->nparts; p++) {
        for (uint32_t i = 0; i < chunk->parts[p].len_bytes; i++)
            *out++ = rot(chunk->parts[p].data[i]);
        if (fp_aux_cancelled(call))
            return -ECANCELED;
    }
    int rc = fp_aux_replace(call, chunk->len_bytes);
    return rc < 0 ? rc : FP_AUX_REPLACED;
}

static int chunk_in(void *state, struct fp_aux_call *call, const uint8_t *in, uint32_t in_bytes, uint8_t *out,
                    uint32_t out_bytes)
{
    (void)state;
    (void)call;
    if (in_bytes != out_bytes)
        return -EILSEQ;
    for (uint32_t i = 0; i < in_bytes; i++)
        out[i] = rot(in[i]);
    return 0;
}

static const struct fp_aux_app app = {
    .abi = FP_AUX_ABI,
    .size_bytes = sizeof app,
    .name = "rot13",
    .version = "1.0",
    .summary = "moves letters on by 13 places, and back when they are read",
    .flags = FP_AUX_PARALLEL | FP_AUX_CODES,
    .chunk_out = chunk_out,
    .chunk_in = chunk_in,
};
FP_AUX_APP(app)
