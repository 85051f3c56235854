/*
 * The segment file and the record: how chunks lie on a benefactor's device.
 *
 * Both fp-benefactor (chunks that come over TCP, recovery) and fp-mount (chunks of the same node, written through a passed
 * descriptor) write and check records, so the format lives here, as pure functions over bytes.
 *
 * A segment is an append-only file DIR/segments/seg-<16 hex digits of its id>: one header block of 4 KiB, then records at
 * offsets that are multiples of 4 KiB. Space is never used twice: deletion punches a hole.
 *
 * Segment header, 4096 bytes, little-endian:
 *   0  u32 magic 'FPS1'      4  u16 version (1)   6 u16 zero
 *   8  u8[16] store UUID    24  u8[16] benefactor UUID
 *  40  u64 segment id       48  u64 salt, random   56 u64 size limit of the segment, bytes
 *  64  zeros              4088  u64 XXH3 of bytes 0..4087
 *
 * Record = header of 4096 bytes + data padded with zeros to a multiple of 4096. Header, little-endian:
 *   0  u32 magic 'FPR1'      4  u16 version (1)   6 u16 codec (0 = as it is)
 *   8  u64 chunk id         16  u64 segment id    24 u64 offset of this header in the segment
 *  32  u32 len: data bytes  36  u32 stored_len: bytes after coding, without padding
 *  40  u32 blocks           44  u32 zero
 *  48  u64 chunk sum        56  u8[32] fingerprint (zeros: none)
 *  88  u64 salt of the segment
 *  96  zeros
 * 128  u64 block sums[blocks], at most 257
 * 4088 u64 XXH3 of bytes 0..4087
 *
 * Segment id, offset and salt make a header valid only where it was written: data of users that happens to
 * contain a segment's bytes can't be taken for a record when recovery looks for the next valid header.
 */
#ifndef FP_RECORD_H
#define FP_RECORD_H

#include <stdint.h>

#define FP_RECORD_ALIGN_BYTES 4096u
#define FP_RECORD_HEADER_BYTES 4096u
#define FP_SEGMENT_HEADER_BYTES 4096u
#define FP_CHUNK_MAX_BYTES (16u << 20)
#define FP_CHUNK_MIN_BYTES (64u << 10)
/* What is stored as one chunk: data, or the coded form of it with its envelope, which may be a little longer. */
#define FP_STORED_MAX_BYTES (FP_CHUNK_MAX_BYTES + (64u << 10))
#define FP_BLOCKS_MAX 257u
#define FP_CODEC_NONE 0u

struct fp_segment_header {
    uint8_t store_uuid[16];
    uint8_t bnf_uuid[16];
    uint64_t id;
    uint64_t salt;
    uint64_t limit_bytes;
};

struct fp_record_header {
    uint64_t chunk;
    uint64_t segment;
    uint64_t offset;
    uint64_t salt;
    uint32_t len_bytes;
    uint32_t stored_len_bytes;
    uint16_t codec;
    uint32_t blocks;
    uint64_t sum;
    uint8_t fingerprint[32];
    uint64_t block_sums[FP_BLOCKS_MAX];
};

/* Bytes that a chunk of stored_len_bytes takes on the device: header and padding included. */
uint32_t fp_record_size_bytes(uint32_t stored_len_bytes);

/* Encode into a buffer of 4096 bytes. block_sums and sum are taken from h as they are. */
void fp_segment_header_encode(const struct fp_segment_header *h, uint8_t out[FP_SEGMENT_HEADER_BYTES]);
void fp_record_header_encode(const struct fp_record_header *h, uint8_t out[FP_RECORD_HEADER_BYTES]);

/* 0; -ENODATA: no magic there; -EILSEQ: magic but damaged, or lengths out of bounds. */
int fp_segment_header_decode(const uint8_t in[FP_SEGMENT_HEADER_BYTES], struct fp_segment_header *out);
int fp_record_header_decode(const uint8_t in[FP_RECORD_HEADER_BYTES], struct fp_record_header *out);

/* True when h is the header that belongs at this place of this segment. */
int fp_record_header_is_at(const struct fp_record_header *h, uint64_t segment, uint64_t salt, uint64_t offset);

/* Fill blocks, block_sums and sum of h from the data (len_bytes must be set). */
void fp_record_header_sum(struct fp_record_header *h, const void *data);

#endif
