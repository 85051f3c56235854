/*
 * Devices that are emulated (see device.h). Store and FUSE threads.
 *
 * The limiter is the benefactor's, and is replaced with its process: a mount that went on by the clock of the one before would be a second device
 * beside it. So it is looked up under the lock with each operation; a chunk is one or two. A benefactor that is gone leaves the limiter behind, for
 * what goes on through descriptors that are open.
 */
#include "client/data/device.h"

#include <unistd.h>

#include "client/data/internal.h"
#include "fp/clock.h"
#include "fp/err.h"

int cl_device_hello(bool emulated, struct fp_fdlink_reply_buf *r, struct fp_limiter **out)
{
    int rc = 0;

    *out = NULL;
    if (emulated != (r->nfds == 1) || r->nfds > 1)
        rc = FP_EBADFRAME;
    else if (emulated)
        rc = fp_limiter_map(r->fds[0], out);
    for (size_t i = 0; i < r->nfds; i++)
        close(r->fds[i]);
    r->nfds = 0;
    return rc;
}

void cl_device_set(struct cl_bnf *b, struct fp_limiter *l)
{
    fp_limiter_unmap(b->limiter);
    b->limiter = l;
    atomic_store(&b->emulated, l != NULL);
}

uint64_t cl_device_begin(struct cl_bnf *b, bool write, const struct iovec *iov, int n)
{
    uint64_t bytes = 0, until_ns = 0;

    if (!atomic_load(&b->emulated))
        return 0;
    for (int i = 0; i < n; i++)
        bytes += iov[i].iov_len;
    pthread_mutex_lock(&b->lock);
    if (b->limiter)
        until_ns = fp_limiter_take(b->limiter, write, bytes, fp_now_ns());
    pthread_mutex_unlock(&b->lock);
    return until_ns;
}

void cl_device_end(uint64_t until_ns)
{
    if (until_ns)
        fp_limiter_wait(until_ns);
}
