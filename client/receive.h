/*
 * Writes from the kernel straight into pages of the chunk pool: one copy less. For the FUSE loop (fuse_session.c) and ops/read.c; FUSE threads.
 */
#ifndef CL_RECEIVE_H
#define CL_RECEIVE_H

#include <stdint.h>

struct fuse_session;

/* Pages that a FUSE thread may need: for the largest write that the kernel is asked for (fuse_session.c), and one more, since it may begin in the midst of one. */
#define CL_RECEIVE_PAGES_MAX 65u

/* After mounting, before the loop: its threads receive in this way. -ENOTSUP: this libfuse can't. */
int cl_receive_setup(struct fuse_session *se);

/*
 * In a write: the pages with its bytes, from byte *at of the first on; buf is where libfuse takes them to be. They may be exchanged for others (pool.h).
 * NULL: they are at buf. Until the thread's next request.
 */
uint8_t **cl_received_pages(const char *buf, uint32_t *at);
/* In a write: the bytes are at buf from here on. */
void cl_received_flat(const char *buf);

#endif
