/* Checksums of chunks: one XXH3-64 per 64 KiB block, and one over those for the whole chunk.
 *
 * Blocks, so that a read of 64 KiB from a 16 MiB chunk verifies 64 KiB; a sum over the sums, so that one
 * 64-bit number identifies the content of a chunk in messages and in the manager's table. XXH3 runs at
 * about 58 GB/s on one core (design.md), far above any device: it protects against damage, not against
 * an attacker (the connections are authenticated; a benefactor is trusted with the data it holds).
 *
 * All functions: any thread, never block, no allocation. Values are the same on every architecture. */
#ifndef FP_CHECKSUM_H
#define FP_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define FP_BLOCK_SIZE_BYTES 65536u

/* Number of blocks of a chunk of len_bytes; the last may be short. 0 for an empty chunk. */
static inline uint32_t fp_sum_nblocks(uint64_t len_bytes)
{
    return (uint32_t)((len_bytes + FP_BLOCK_SIZE_BYTES - 1) / FP_BLOCK_SIZE_BYTES);
}

/* Fills block_sums[fp_sum_nblocks(len_bytes)] (host order) with XXH3_64bits of each block of data.
 * data needs no alignment. */
void fp_sum_blocks(const void *data, size_t len_bytes, uint64_t *block_sums);

/* XXH3_64bits_withSeed(block sums as little-endian bytes, seed = len_bytes). */
uint64_t fp_sum_chunk(const uint64_t *block_sums, uint32_t nblocks, uint64_t len_bytes);

/* Verifies data against stored block sums. Returns -1 when all match, else the index of the first block
 * that differs. */
int64_t fp_sum_verify(const void *data, size_t len_bytes, const uint64_t *block_sums);

#endif
