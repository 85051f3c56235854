/*
 * SHA-1 of two pieces at once, on processors with SHA instructions.
 *
 * The instructions of one SHA-1 wait for each other most of the time; two of them side by side take little longer than one: 3.2 GB/s where OpenSSL
 * does 1.9. Sixteen by other instructions are faster still (sha1x16.h), if there are as many. That is what decides whether one service core keeps up (tools/bench,
 * dedup-sha1-unique). OpenSSL has no interface for several digests at once. ISA-L crypto has, and would be taken, but no distribution that this is built on has it
 * as a package. So this is the one digest that is not a library's: digest.c takes it where the processor has the instructions, tests compare it with
 * OpenSSL at every length, and OpenSSL's decides whether SHA-1 is allowed.
 */
#ifndef DEDUP_SHA1X2_H
#define DEDUP_SHA1X2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA1_BLOCK_BYTES 64u

/* Has this processor the instructions? The others must not be called without. */
bool sha1x2_is_there(void);
void sha1x2_init(uint32_t h[5]);
/* Goes on with whole blocks: of two messages, or one. */
void sha1x2_two(uint32_t ha[5], const uint8_t *a, uint32_t hb[5], const uint8_t *b, size_t blocks);
void sha1x2_one(uint32_t h[5], const uint8_t *p, size_t blocks);
/* Writes what stands behind a message of len_bytes whose last len_bytes % 64 bytes are in buf already: returns how many blocks buf then has (1 or 2). */
size_t sha1x2_pad(uint8_t buf[2 * SHA1_BLOCK_BYTES], uint64_t len_bytes);
void sha1x2_end(const uint32_t h[5], uint8_t out[20]);

#endif
