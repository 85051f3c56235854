/*
 * What all back ends share: reference-counted files, whole reads and writes, fault points.
 *
 * Called on disk threads. The wrappers exist so that the fault points are in one place and every back end,
 * also a later one, can be made to fail by tests in the same way.
 *
 * They also are the one place where an emulated device takes its time: whatever a back end does to a segment's bytes, recovery and headers of
 * segments included, is a bnf_file_write or bnf_file_read. The disk thread waits as one that waits for a device does. An operation that
 * fails takes its time too.
 */
#include "benefactor/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/clock.h"
#include "fp/fault.h"

struct bnf_file *bnf_file_new(int fd, bool o_direct, uint64_t segment, uint64_t salt, uint64_t limit_bytes)
{
    struct bnf_file *f = calloc(1, sizeof(*f));

    if (!f) {
        close(fd);
        return NULL;
    }
    atomic_init(&f->refs, 1);
    f->fd = fd;
    f->o_direct = o_direct;
    f->segment = segment;
    f->salt = salt;
    f->limit_bytes = limit_bytes;
    return f;
}

struct bnf_file *bnf_file_get(struct bnf_file *f)
{
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

void bnf_file_put(struct bnf_file *f)
{
    if (!f || atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1)
        return;
    close(f->fd);
    free(f);
}

int bnf_file_reopen(const struct bnf_file *f)
{
    int fd, flags = fcntl(f->fd, F_GETFL);
    char path[40];

    if (flags < 0)
        return -errno;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
    fd = open(path, (flags & (O_ACCMODE | O_DIRECT)) | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

static void iov_advance(struct iovec **iov, int *iovcnt, size_t n)
{
    while (*iovcnt > 0 && n >= (*iov)->iov_len) {
        n -= (*iov)->iov_len;
        (*iov)++;
        (*iovcnt)--;
    }
    if (*iovcnt > 0) {
        (*iov)->iov_base = (char *)(*iov)->iov_base + n;
        (*iov)->iov_len -= n;
    }
}

static int write_all(struct bnf_file *f, struct iovec *iov, int iovcnt, uint64_t off_bytes)
{
    while (iovcnt > 0) {
        ssize_t n = pwritev(f->fd, iov, iovcnt, (off_t)off_bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        off_bytes += (uint64_t)n;
        iov_advance(&iov, &iovcnt, (size_t)n);
    }
    return 0;
}

static uint64_t iov_bytes(const struct iovec *iov, int iovcnt)
{
    uint64_t n = 0;

    for (int i = 0; i < iovcnt; i++)
        n += iov[i].iov_len;
    return n;
}

int bnf_file_write(struct bnf_file *f, struct iovec *iov, int iovcnt, uint64_t off_bytes)
{
    int rc = FP_FAULT_POINT("bnf.pwrite");
    uint64_t until_ns;

    if (rc < 0)
        return rc;
    if (!f->limiter)
        return write_all(f, iov, iovcnt, off_bytes);
    until_ns = fp_limiter_take(f->limiter, true, iov_bytes(iov, iovcnt), fp_now_ns());
    rc = write_all(f, iov, iovcnt, off_bytes);
    fp_limiter_wait(until_ns);
    return rc;
}

static int read_all(struct bnf_file *f, char *p, size_t len_bytes, uint64_t off_bytes)
{
    while (len_bytes > 0) {
        ssize_t n = pread(f->fd, p, len_bytes, (off_t)off_bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        p += n;
        off_bytes += (uint64_t)n;
        len_bytes -= (size_t)n;
    }
    return 0;
}

int bnf_file_read(struct bnf_file *f, void *buf, size_t len_bytes, uint64_t off_bytes)
{
    int rc = FP_FAULT_POINT("bnf.pread");
    uint64_t until_ns;

    if (rc < 0)
        return rc;
    if (!f->limiter)
        return read_all(f, buf, len_bytes, off_bytes);
    until_ns = fp_limiter_take(f->limiter, false, len_bytes, fp_now_ns());
    rc = read_all(f, buf, len_bytes, off_bytes);
    fp_limiter_wait(until_ns);
    return rc;
}

int bnf_file_write_header(struct bnf_file *f, const struct fp_segment_header *h)
{
    uint8_t *block = aligned_alloc(4096, FP_SEGMENT_HEADER_BYTES);
    struct iovec iov = {.iov_base = block, .iov_len = FP_SEGMENT_HEADER_BYTES};
    int rc;

    if (!block)
        return -ENOMEM;
    fp_segment_header_encode(h, block);
    rc = bnf_file_write(f, &iov, 1, 0);
    free(block);
    return rc;
}

int bnf_backend_create(struct bnf_backend *b, const struct fp_segment_header *h, struct bnf_file **out)
{
    int rc = FP_FAULT_POINT("bnf.create");

    *out = NULL;
    return rc < 0 ? rc : b->ops->create(b, h, out);
}

int bnf_backend_alloc(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    int rc = FP_FAULT_POINT("bnf.fallocate");

    return rc < 0 ? rc : b->ops->alloc(b, f, off_bytes, len_bytes);
}

int bnf_backend_punch(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    int rc = FP_FAULT_POINT("bnf.punch");

    if (rc < 0 || !f)
        return rc;
    return b->ops->punch(b, f, off_bytes, len_bytes);
}

int bnf_backend_unlink(struct bnf_backend *b, struct bnf_file *f)
{
    int rc = FP_FAULT_POINT("bnf.unlink");

    if (rc < 0 || !f)
        return rc;
    return b->ops->unlink(b, f);
}

int bnf_backend_sync(struct bnf_backend *b, struct bnf_file *f)
{
    int rc = FP_FAULT_POINT("bnf.fdatasync");

    return rc < 0 ? rc : b->ops->sync(b, f);
}

int bnf_backend_probe(struct bnf_backend *b)
{
    return b->ops->probe(b);
}

int bnf_backend_emulate(struct bnf_backend *b, const struct fp_limiter_spec *speed)
{
    return fp_limiter_new(speed, &b->limiter, &b->limiter_fd);
}

const char *bnf_backend_name(const struct bnf_backend *b)
{
    if (!b->limiter)
        return b->ops->name;
    return b->ops->volatile_data ? "emulated-memory" : "emulated";
}

void bnf_backend_free(struct bnf_backend *b)
{
    struct fp_limiter *l = b ? b->limiter : NULL;
    int fd = l ? b->limiter_fd : -1;

    if (b)
        b->ops->free(b);
    fp_limiter_unmap(l);
    if (fd >= 0)
        close(fd);
}
