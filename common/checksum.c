/* Chunk checksums over xxHash.
 *
 * Called by the client when a window is sealed and when a chunk has been read, and by the benefactor
 * when it receives, serves or scrubs one; always on the thread that has the bytes in its cache anyway.
 *
 * The seed of the chunk sum is the chunk's length: the block sums alone cannot tell a chunk of zeros
 * from a shorter one whose last block happens to hash the same. CRC-32C was the alternative; it is
 * three times slower here without being stronger for 64 KiB blocks.
 *
 * xxHash is included inline (XXH_INLINE_ALL) for what is small: no state of a shared libxxhash has to
 * match at run time. Blocks go to the library where it is faster (fp/xxh3.h): with SSE2, what is used
 * inline, their sums took half as long as all that is done to receive them. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fp/checksum.h"

#include <assert.h>
#include <endian.h>

#include "fp/xxh3.h"

static inline size_t block_len(size_t len_bytes, uint32_t i)
{
    size_t left = len_bytes - (size_t)i * FP_BLOCK_SIZE_BYTES;
    return left < FP_BLOCK_SIZE_BYTES ? left : FP_BLOCK_SIZE_BYTES;
}

void fp_sum_blocks(const void *data, size_t len_bytes, uint64_t *block_sums)
{
    const unsigned char *p = data;
    uint32_t n = fp_sum_nblocks(len_bytes);
    for (uint32_t i = 0; i < n; i++)
        block_sums[i] = fp_xxh3_64(p + (size_t)i * FP_BLOCK_SIZE_BYTES, block_len(len_bytes, i));
}

uint64_t fp_sum_chunk(const uint64_t *block_sums, uint32_t nblocks, uint64_t len_bytes)
{
    assert(nblocks == fp_sum_nblocks(len_bytes));
#if __BYTE_ORDER == __LITTLE_ENDIAN
    return XXH3_64bits_withSeed(nblocks ? block_sums : NULL, (size_t)nblocks * sizeof(uint64_t), len_bytes);
#else
    XXH3_state_t state;
    XXH3_64bits_reset_withSeed(&state, len_bytes);
    for (uint32_t i = 0; i < nblocks; i++) {
        uint64_t le = htole64(block_sums[i]);
        XXH3_64bits_update(&state, &le, sizeof le);
    }
    return XXH3_64bits_digest(&state);
#endif
}

int64_t fp_sum_verify(const void *data, size_t len_bytes, const uint64_t *block_sums)
{
    const unsigned char *p = data;
    uint32_t n = fp_sum_nblocks(len_bytes);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t sum = fp_xxh3_64(p + (size_t)i * FP_BLOCK_SIZE_BYTES, block_len(len_bytes, i));
        if (sum != block_sums[i])
            return i;
    }
    return -1;
}
