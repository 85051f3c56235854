/* The frame: how every message of the store lies on a wire, TCP or Unix socket.
 *
 * A frame is a header of 40 bytes, a message (protobuf, see common/proto/fp.proto), and a payload of raw
 * bytes (chunk data, never in a protobuf). Header, little-endian:
 *
 *   0  u32 magic 'F' 'P' 'F' '1'
 *   4  u16 version of the protocol (1)
 *   6  u16 type: enum Fp__MsgType; 0xFF00 and above belong to the wire layer itself (rpc.h)
 *   8  u16 flags: 1 = REPLY, 2 = ONEWAY (no reply is wanted)
 *  10  u16 zero
 *  12  i32 status: replies only; 0, a negative errno or a code of err.h
 *  16  u64 request id: chosen by who asks, repeated in the reply; zero in one-way frames
 *  24  u32 message length, bytes, at most 4 MiB
 *  28  u32 payload length, bytes, at most 17 MiB
 *  32  u64 checksum: XXH3-64 of bytes 0..31 followed by the message
 *  40  message, then payload
 *
 * Magic and version keep their places in every future version. The payload is not summed here: chunks
 * bring checksums of their own, which are verified end to end (checksum.h).
 *
 * Frames of the wire layer itself, which programs never see:
 *   0xFF00 SETUP  the first frame of each end of a TCP connection, inside TLS. Message: u32 flags, u32 zero.
 * The client sends it as a request with id 0 and then waits; bit 0 asks for plain bytes from here on. The
 * server replies with what it grants. After a grant each end's next byte is plain. An end that meets another
 *                 version replies with status FP_EPROTO_VERSION and closes.
 *   0xFF01 PING   one-way, empty: a sign of life. Unknown one-way types from 0xFF00 on are ignored.
 *
 * All functions are pure: no I/O, no allocation, no globals; any thread; they never block. */
#ifndef FP_FRAME_H
#define FP_FRAME_H

#include <stddef.h>
#include <stdint.h>

#define FP_FRAME_HEADER_BYTES      40u
#define FP_FRAME_VERSION           1u
#define FP_FRAME_MSG_MAX_BYTES     (4u << 20)
#define FP_FRAME_PAYLOAD_MAX_BYTES (17u << 20)

#define FP_FRAME_REPLY             1u
#define FP_FRAME_ONEWAY            2u

struct fp_frame {
    uint16_t type;
    uint16_t flags;
    int32_t status;
    uint64_t id;
    uint32_t msg_len_bytes;
    uint32_t payload_len_bytes;
};

/* Writes the header for a frame whose message is msg (f->msg_len_bytes bytes; may be NULL if that is 0).
 * The lengths must be within the limits above: asserted, the callers bound them. */
void fp_frame_encode(const struct fp_frame *f, const void *msg, uint8_t out[FP_FRAME_HEADER_BYTES]);

/* Reads a header. The checksum is not looked at yet (fp_frame_verify, once the message is there), but what is
 * in *out is within all limits, so that the caller may allocate. -EBADMSG          no magic: these bytes are
 * not a frame FP_EPROTO_VERSION a frame of another protocol version -EMSGSIZE         message or payload
 * longer than allowed -EPROTO           unknown flags, reserved bits set, REPLY with ONEWAY, status > 0 or in
 * a request */
int fp_frame_decode(const uint8_t in[FP_FRAME_HEADER_BYTES], struct fp_frame *out);

/* Verifies the checksum over header and message: 0 or -EILSEQ. */
int fp_frame_verify(const uint8_t header[FP_FRAME_HEADER_BYTES], const void *msg, size_t msg_len_bytes);

/* Version field of a header that carries the magic, for messages about FP_EPROTO_VERSION. */
uint16_t fp_frame_version(const uint8_t in[FP_FRAME_HEADER_BYTES]);

#endif
