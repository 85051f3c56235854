/* Shared by the transports only: the byte buffer between a socket and what runs over it. One thread, never
 * blocks. */
#ifndef FP_COMMON_TRANSPORT_INT_H
#define FP_COMMON_TRANSPORT_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes [off, off + len) of data are in use. */
struct fp_bytebuf {
    uint8_t *data;
    size_t cap_bytes;
    size_t off;
    size_t len;
};

int fp_bytebuf_init(struct fp_bytebuf *b, size_t cap_bytes);
int fp_bytebuf_grow(struct fp_bytebuf *b, size_t cap_bytes); /* keeps what is in it */
void fp_bytebuf_fini(struct fp_bytebuf *b);
size_t fp_bytebuf_room(struct fp_bytebuf *b,
                       size_t want_bytes); /* behind the data, moved to the front if need be */
size_t fp_bytebuf_take(struct fp_bytebuf *b, void *to, size_t max_bytes);

/* recv into the buffer: bytes, 0 at the end of the stream, -EAGAIN, -ENOBUFS (full), -errno. *drained is set
 * when the socket gave less than there was room for. */
ssize_t fp_bytebuf_recv(struct fp_bytebuf *b, int fd, bool *drained);

/* send from the buffer until it is empty (0) or the socket takes no more (-EAGAIN); -errno. */
int fp_bytebuf_send(struct fp_bytebuf *b, int fd);

#endif
