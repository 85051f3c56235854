/* Sockets, as the file of descriptors (fd.c) sees them. */
#ifndef TESTS_SIM_NET_H
#define TESTS_SIM_NET_H

#include "fp/frame.h"
#include "tests/sim/disk.h"

/* The stream of one direction, as frames (frames.c). */
struct sim_frames {
    uint8_t head[FP_FRAME_HEADER_BYTES];
    size_t head_len, left; /* of the frame that is being sent */
    struct fp_frame frame;
    uint8_t *msg; /* what there is of its message, if somebody looks at them */
    size_t msg_len;
};
/* Counts and tells them. */
void sim_frames_send(struct sim_frames *s, struct sim_proc *from, struct sim_proc *to, const uint8_t *p, size_t len);

/* The same of a packet between a benefactor and its fp-drain (fp/drainwire.h). */
void sim_packet_sends(struct sim_proc *from, struct sim_proc *to, const uint8_t *p, size_t len);

void sim_sock_close(struct sim_sock *s, bool silent);
void sim_sock_sends(struct sim_sock *s, const uint8_t *p, size_t len); /* counts and tells frames */
ssize_t sim_eventfd_read(struct sim_sock *s, uint64_t *out);
ssize_t sim_eventfd_write(struct sim_sock *s, uint64_t add);
const char *sim_message_name(uint16_t type);
/* If it is set: each frame, as soon as it is sent whole. msg may be NULL when there is none. */
extern void (*sim_on_frame)(const struct sim_proc *from, const struct sim_proc *to, const struct fp_frame *f, const uint8_t *msg);

#endif
