/* Frame headers to bytes and back (layout: include/fp/frame.h).
 *
 * Called by rpc and fdlink on whatever thread they run on; pure functions over bytes, so that the fuzzer and
 * the simulator use the very same code.
 *
 * Decoding is split from verifying: the lengths are needed before the message has arrived, the checksum can
 * only be looked at afterwards. What decode hands out is within all limits, though not yet known to be
 * undamaged; that is enough to allocate by. The checksum is there for bugs and broken memory, not against
 * attackers: those are kept out by TLS.
 *
 * Bytes are read by shifts and not by a packed struct: no alignment or byte-order assumptions, and compilers
 * make single loads of it anyway. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fp/frame.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "fp/err.h"

#define MAGIC      0x31465046u /* "FPF1" */
#define SUM_OFFSET 32u

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, (uint16_t)v);
    put16(p + 2, (uint16_t)(v >> 16));
}

static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)get16(p) | (uint32_t)get16(p + 2) << 16;
}

static uint64_t get64(const uint8_t *p)
{
    return (uint64_t)get32(p) | (uint64_t)get32(p + 4) << 32;
}

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
    put32(out, MAGIC);
    put16(out + 4, FP_FRAME_VERSION);
    put16(out + 6, f->type);
    put16(out + 8, f->flags);
    put16(out + 10, 0);
    put32(out + 12, (uint32_t)f->status);
    put64(out + 16, f->id);
    put32(out + 24, f->msg_len_bytes);
    put32(out + 28, f->payload_len_bytes);
    put64(out + SUM_OFFSET, frame_sum(out, msg, f->msg_len_bytes));
}

int fp_frame_decode(const uint8_t in[FP_FRAME_HEADER_BYTES], struct fp_frame *out)
{
    if (get32(in) != MAGIC)
        return -EBADMSG;
    if (get16(in + 4) != FP_FRAME_VERSION)
        return FP_EPROTO_VERSION;
    struct fp_frame f = {
        .type = get16(in + 6),
        .flags = get16(in + 8),
        .status = (int32_t)get32(in + 12),
        .id = get64(in + 16),
        .msg_len_bytes = get32(in + 24),
        .payload_len_bytes = get32(in + 28),
    };
    if (f.msg_len_bytes > FP_FRAME_MSG_MAX_BYTES || f.payload_len_bytes > FP_FRAME_PAYLOAD_MAX_BYTES)
        return -EMSGSIZE;
    if (f.flags > (FP_FRAME_REPLY | FP_FRAME_ONEWAY) || f.flags == (FP_FRAME_REPLY | FP_FRAME_ONEWAY))
        return -EPROTO;
    if (get16(in + 10) != 0 || f.status > 0 || (f.status != 0 && !(f.flags & FP_FRAME_REPLY)))
        return -EPROTO;
    *out = f;
    return 0;
}

int fp_frame_verify(const uint8_t header[FP_FRAME_HEADER_BYTES], const void *msg, size_t msg_len_bytes)
{
    return get64(header + SUM_OFFSET) == frame_sum(header, msg, msg_len_bytes) ? 0 : -EILSEQ;
}

uint16_t fp_frame_version(const uint8_t in[FP_FRAME_HEADER_BYTES])
{
    return get16(in + 4);
}
