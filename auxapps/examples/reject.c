/* reject: refuses checkpoints with numbers that are not numbers: better a failed write than a restart from garbage.
 *
 * Shows how an aux-app checks data and refuses it: a negative errno from chunk_out reaches the application from write, fsync or close, and the chunk
 * is not stored. It says FP_AUX_REQUIRED: else a crash of the check would let everything pass.
 */
#include <stdio.h>
#include <string.h>

#include "fp/auxapp.h"

/* A NaN has all bits of the exponent set, and a fraction; infinities pass. */
static bool has_nan(const uint8_t *p, uint32_t bytes)
{
    bool found = false;

    for (uint32_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t x;

        memcpy(&x, p + i, 8);
        found |= (x & 0x7fffffffffffffffull) > 0x7ff0000000000000ull;
    }
    return found;
}

static int chunk_out(void *state, struct fp_aux_call *call, const struct fp_aux_chunk *k)
{
    struct fp_aux_host *host = state;
    uint32_t at = (uint32_t)fp_aux_option_number(host, "header");
    char line[160];
    uint64_t off = k->file_off;

    if (k->coded || !k->whole) /* packed ranges: numbers may be cut */
        return FP_AUX_PASS;
    at = off < at ? (uint32_t)(at - off) : 0;
    for (uint32_t i = 0; i < k->nparts; i++) { /* parts are multiples of 8, and so must the header be */
        const struct fp_aux_part *p = &k->parts[i];

        if (fp_aux_cancelled(call))
            return -ECANCELED;
        if (at < p->len_bytes && has_nan(p->data + at, p->len_bytes - at)) {
            snprintf(line, sizeof(line), "inode %llu has a NaN after byte %llu: refused", (unsigned long long)k->ino,
                 (unsigned long long)off);
            fp_aux_log(host, FP_AUX_WARN, line);
            fp_aux_count(host, "refused", 1);
            return -EDOM;
        }
        at = at < p->len_bytes ? 0 : at - p->len_bytes;
        off += p->len_bytes;
    }
    return FP_AUX_PASS;
}

static int start(struct fp_aux_host *host, void **state)
{
    *state = host;
    return 0;
}

static const struct fp_aux_option options[] = {
    { .name = "header", .fallback = "0KiB", .is_size = true, .help = "Bytes at the beginning of each file that are no numbers: a multiple of 8." },
    { .name = NULL },
};

static const struct fp_aux_app app = {
    .abi = FP_AUX_ABI, .size_bytes = sizeof(app), .name = "reject", .version = "1", .summary = "refuses files of doubles that have a NaN",
    .flags = FP_AUX_PARALLEL | FP_AUX_REQUIRED, .options = options, .start = start, .chunk_out = chunk_out,
};
FP_AUX_APP(app)
