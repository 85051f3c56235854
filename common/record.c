/*
 * Segment headers and record headers: bytes to structs and back (layout in fp/record.h).
 *
 * Called by fp-benefactor (remote writes, recovery, reads) and by fp-mount (chunks of the same node), on any
 * thread: pure functions without state. Fields are stored little-endian by hand, so that no struct padding or
 * byte order of the machine gets into the file.
 *
 * A header is believed when its own XXH3 is right; the checks of lengths after it guard against a writer with
 * a bug or of another version, not against flipped bits. Whether the header belongs where it was found is a
 * question of its own (fp_record_header_is_at): a copy of a record inside user data is a valid header in a
 * wrong place.
 */
#include "fp/record.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include <xxhash.h>

#include "fp/checksum.h"
#include "fp/le.h"

#define SEGMENT_MAGIC 0x31535046u /* "FPS1" */
#define RECORD_MAGIC  0x31525046u /* "FPR1" */
#define VERSION       1u
#define SUM_AT        4088u
#define BLOCK_SUMS_AT 128u

static int check_envelope(const uint8_t *in, uint32_t magic)
{
    if (fp_get32(in) != magic)
        return -ENODATA;
    if (fp_get16(in + 4) != VERSION || fp_get64(in + SUM_AT) != XXH3_64bits(in, SUM_AT))
        return -EILSEQ;
    return 0;
}

uint32_t fp_record_size_bytes(uint32_t stored_len_bytes)
{
    uint32_t pages =
        stored_len_bytes / FP_RECORD_ALIGN_BYTES + (stored_len_bytes % FP_RECORD_ALIGN_BYTES != 0);

    return FP_RECORD_HEADER_BYTES + pages * FP_RECORD_ALIGN_BYTES;
}

void fp_segment_header_encode(const struct fp_segment_header *h, uint8_t out[FP_SEGMENT_HEADER_BYTES])
{
    memset(out, 0, FP_SEGMENT_HEADER_BYTES);
    fp_put32(out, SEGMENT_MAGIC);
    fp_put16(out + 4, VERSION);
    memcpy(out + 8, h->store_uuid, 16);
    memcpy(out + 24, h->bnf_uuid, 16);
    fp_put64(out + 40, h->id);
    fp_put64(out + 48, h->salt);
    fp_put64(out + 56, h->limit_bytes);
    fp_put64(out + SUM_AT, XXH3_64bits(out, SUM_AT));
}

int fp_segment_header_decode(const uint8_t in[FP_SEGMENT_HEADER_BYTES], struct fp_segment_header *out)
{
    int rc = check_envelope(in, SEGMENT_MAGIC);

    if (rc)
        return rc;
    memcpy(out->store_uuid, in + 8, 16);
    memcpy(out->bnf_uuid, in + 24, 16);
    out->id = fp_get64(in + 40);
    out->salt = fp_get64(in + 48);
    out->limit_bytes = fp_get64(in + 56);
    return out->limit_bytes < FP_SEGMENT_HEADER_BYTES ? -EILSEQ : 0;
}

void fp_record_header_encode(const struct fp_record_header *h, uint8_t out[FP_RECORD_HEADER_BYTES])
{
    uint32_t blocks = h->blocks < FP_BLOCKS_MAX ? h->blocks : FP_BLOCKS_MAX;

    memset(out, 0, FP_RECORD_HEADER_BYTES);
    fp_put32(out, RECORD_MAGIC);
    fp_put16(out + 4, VERSION);
    fp_put16(out + 6, h->codec);
    fp_put64(out + 8, h->chunk);
    fp_put64(out + 16, h->segment);
    fp_put64(out + 24, h->offset);
    fp_put32(out + 32, h->len_bytes);
    fp_put32(out + 36, h->stored_len_bytes);
    fp_put32(out + 40, blocks);
    fp_put64(out + 48, h->sum);
    memcpy(out + 56, h->fingerprint, sizeof(h->fingerprint));
    fp_put64(out + 88, h->salt);
    for (uint32_t i = 0; i < blocks; i++)
        fp_put64(out + BLOCK_SUMS_AT + 8 * i, h->block_sums[i]);
    fp_put64(out + SUM_AT, XXH3_64bits(out, SUM_AT));
}

static bool lengths_are_sane(const struct fp_record_header *h)
{
    if (h->len_bytes == 0 || h->len_bytes > FP_STORED_MAX_BYTES)
        return false;
    if (h->stored_len_bytes == 0 || h->stored_len_bytes > FP_STORED_MAX_BYTES)
        return false;
    if (h->codec == FP_CODEC_NONE && h->stored_len_bytes != h->len_bytes)
        return false;
    return h->blocks == fp_sum_nblocks(h->len_bytes) && h->offset % FP_RECORD_ALIGN_BYTES == 0;
}

int fp_record_header_decode(const uint8_t in[FP_RECORD_HEADER_BYTES], struct fp_record_header *out)
{
    int rc = check_envelope(in, RECORD_MAGIC);

    if (rc)
        return rc;
    out->codec = fp_get16(in + 6);
    out->chunk = fp_get64(in + 8);
    out->segment = fp_get64(in + 16);
    out->offset = fp_get64(in + 24);
    out->len_bytes = fp_get32(in + 32);
    out->stored_len_bytes = fp_get32(in + 36);
    out->blocks = fp_get32(in + 40);
    out->sum = fp_get64(in + 48);
    memcpy(out->fingerprint, in + 56, sizeof(out->fingerprint));
    out->salt = fp_get64(in + 88);
    if (!lengths_are_sane(out))
        return -EILSEQ;
    for (uint32_t i = 0; i < out->blocks; i++)
        out->block_sums[i] = fp_get64(in + BLOCK_SUMS_AT + 8 * i);
    return 0;
}

int fp_record_header_is_at(const struct fp_record_header *h, uint64_t segment, uint64_t salt, uint64_t offset)
{
    return h->segment == segment && h->salt == salt && h->offset == offset;
}

void fp_record_header_sum(struct fp_record_header *h, const void *data)
{
    h->blocks = fp_sum_nblocks(h->len_bytes);
    fp_sum_blocks(data, h->len_bytes, h->block_sums);
    h->sum = fp_sum_chunk(h->block_sums, h->blocks, h->len_bytes);
}
