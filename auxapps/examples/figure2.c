/* figure2: Figure 2 of the paper, nearly line by line: a `write` extension that stores a piece only if the hash table does not know it.
 *
 * The hash table is shared by all files and nodes of the store. The aux-app dedup does the same job with fewer messages; this is the shape to start
 * from when what you want to say about data is "write this, I know that".
 *
 *     fp-mount --auxapp "/usr/local/lib/fpstore/auxapps/examples/figure2.so" ...
 */
#include <openssl/sha.h>

#include "fp/auxapp.h"

#define SUCCESS 0
#define CHUNK_BYTES 65536u

static int aux_app_write(void *state, struct fp_aux_call *call, void *output_buffer, uint32_t size)
{
    unsigned char hash[SHA_DIGEST_LENGTH];
    int result = SUCCESS;
    uint32_t len;
    void *chunk;

    (void)state;
    (void)size;
    /* process output in chunks */
    while (result >= 0 && (chunk = fp_aux_get_chunk(call, &output_buffer, CHUNK_BYTES, &len)) != NULL) {
        int known;

        /* compute hash on output_buffer chunks */
        SHA1(chunk, len, hash);

        /* write the new chunk */
        known = fp_aux_hashtable_get(call, hash, sizeof(hash));
        if (known <= 0) /* 0: new; negative: the table can't be asked now */
            result = fp_aux_data_write(call, chunk);

        /* update de-dup hash-table */
        if (known >= 0)
            fp_aux_hashtable_update(call, &result, chunk, hash, sizeof(hash));
    }
    return result;
}

static const struct fp_aux_app app = {
    .abi = FP_AUX_ABI,
    .size_bytes = sizeof(app),
    .name = "figure2",
    .version = "1",
    .summary = "Figure 2 of the paper: de-duplication by SHA-1 of 64 KiB pieces",
    .write = aux_app_write,
};
FP_AUX_APP(app)
