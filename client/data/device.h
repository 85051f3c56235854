/* Benefactors of this node whose device is emulated: a mount that writes and reads segments itself takes as long as the device would. */
#ifndef CL_DATA_DEVICE_H
#define CL_DATA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "fp/fdlink.h"
#include "fp/limiter.h"

struct cl_bnf;

/* What came with the answer to hello: the device's limiter, if it is emulated. Descriptors are closed. 0; FP_EBADFRAME, negative errno: the link is of no use. */
int cl_device_hello(bool emulated, struct fp_fdlink_reply_buf *r, struct fp_limiter **out);

/* b->lock held. l is transferred; NULL: the device is what it is. */
void cl_device_set(struct cl_bnf *b, struct fp_limiter *l);

/* Around each transfer of a segment of b: when it may be over (0: at once), and the wait for that. b->lock not held. */
uint64_t cl_device_begin(struct cl_bnf *b, bool write, const struct iovec *iov, int n);
void cl_device_end(uint64_t until_ns);

#endif
