/* Frame headers to bytes and back (layout: include/fp/frame.h).
 *
 * Called by rpc and fdlink on whatever thread they run on; pure functions over bytes, so that the fuzzer and
 * the simulator use the very same code.
 *
 * Decoding is split from verifying: the lengths are needed before the message has arrived, the checksum can
 * only be looked at afterwards. What decode hands out is within all limits, though not yet known to be
 * undamaged; that is enough to allocate by. The checksum is there for bugs and broken memory, not against
 * attackers: those are kept out by TLS.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fp/frame.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "fp/err.h"
#include "fp/le.h"

#define MAGIC      0x31465046u /* "FPF1" */
#define SUM_OFFSET 32u

/* Header and message are two pieces; for the usual small ones a copy is cheaper than the streaming state. */
static uint64_t frame_sum(const uint8_t *header, const void *msg, size_t msg_len_bytes)
{
    uint8_t small[SUM_OFFSET + 224];
    if (msg_len_bytes <= sizeof small - SUM_OFFSET) {
        memcpy(small, header, SUM_OFFSET);
        if (msg_len_bytes > 0)
            memcpy(small + SUM_OFFSET, msg, msg_len_bytes);
        return XXH3_64bits(small, SUM_OFFSET + msg_len_bytes);
    }
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, header, SUM_OFFSET);
    XXH3_64bits_update(&state, msg, msg_len_bytes);
    return XXH3_64bits_digest(&state);
}

void fp_frame_encode(const struct fp_frame *f, const void *msg, uint8_t out[FP_FRAME_HEADER_BYTES])
{
    assert(f->msg_len_bytes <= FP_FRAME_MSG_MAX_BYTES);
    assert(f->payload_len_bytes <= FP_FRAME_PAYLOAD_MAX_BYTES);
    fp_put32(out, MAGIC);
    fp_put16(out + 4, FP_FRAME_VERSION);
    fp_put16(out + 6, f->type);
    fp_put16(out + 8, f->flags);
    fp_put16(out + 10, 0);
    fp_put32(out + 12, (uint32_t)f->status);
    fp_put64(out + 16, f->id);
    fp_put32(out + 24, f->msg_len_bytes);
    fp_put32(out + 28, f->payload_len_bytes);
    fp_put64(out + SUM_OFFSET, frame_sum(out, msg, f->msg_len_bytes));
}

int fp_frame_decode(const uint8_t in[FP_FRAME_HEADER_BYTES], struct fp_frame *out)
{
    if (fp_get32(in) != MAGIC)
        return -EBADMSG;
    if (fp_get16(in + 4) != FP_FRAME_VERSION)
        return FP_EPROTO_VERSION;
    struct fp_frame f = {
        .type = fp_get16(in + 6),
        .flags = fp_get16(in + 8),
        .status = (int32_t)fp_get32(in + 12),
        .id = fp_get64(in + 16),
        .msg_len_bytes = fp_get32(in + 24),
        .payload_len_bytes = fp_get32(in + 28),
    };
    if (f.msg_len_bytes > FP_FRAME_MSG_MAX_BYTES || f.payload_len_bytes > FP_FRAME_PAYLOAD_MAX_BYTES)
        return -EMSGSIZE;
    if (f.flags > (FP_FRAME_REPLY | FP_FRAME_ONEWAY) || f.flags == (FP_FRAME_REPLY | FP_FRAME_ONEWAY))
        return -EPROTO;
    if (fp_get16(in + 10) != 0 || f.status > 0 || (f.status != 0 && !(f.flags & FP_FRAME_REPLY)))
        return -EPROTO;
    *out = f;
    return 0;
}

int fp_frame_verify(const uint8_t header[FP_FRAME_HEADER_BYTES], const void *msg, size_t msg_len_bytes)
{
    return fp_get64(header + SUM_OFFSET) == frame_sum(header, msg, msg_len_bytes) ? 0 : -EILSEQ;
}

uint16_t fp_frame_version(const uint8_t in[FP_FRAME_HEADER_BYTES])
{
    return fp_get16(in + 4);
}
