/*
 * read and write: bytes between the kernel and the chunk pool.
 *
 * A write is answered once it is in the pool: copied from the libfuse buffer, which belongs to this thread until then, so
 * that nothing of it outlives the call; or put there by the kernel (client/receive.c). A read is answered from pool pages by one gathering writev on the
 * device; the pages stay pinned until then. Splice was measured (design.md): slower than the copy.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

#include "client/append.h"
#include "client/ending.h"
#include "client/ops/ops.h"
#include "client/receive.h"

#define READ_IOV_MAX 128

void cl_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    struct cl_mount *m = cl_mount_of(req);
    struct cl_handle *h = cl_handle_of(fi);
    struct iovec iov[READ_IOV_MAX];
    struct cl_read_pin *pin = NULL;
    int niov = READ_IOV_MAX;
    ssize_t n;
    (void)ino;
    if (cl_inode_is_gone(h->inode))
        n = -EIO;
    else
        n = cl_data_read(m, h, size, (uint64_t)off, iov, &niov, &pin);
    if (n < 0)
        cl_reply_status(req, cl_open_status((int)n));
    else if (n == 0)
        cl_reply_buf(req, NULL, 0);
    else
        cl_reply_iov(req, iov, niov, (size_t)n);
    if (pin)
        cl_data_read_done(m, pin);
}

/*
 * Whether this write takes the set-id bits away: the kernel says so of writers without CAP_FSETID. libfuse
 * 3.17 does not pass it on; there every writer but root counts as one.
 */
static bool kill_suidgid(fuse_req_t req, const struct fuse_file_info *fi)
{
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
    (void)req;
    return fi->kill_suidgid;
#else
    (void)fi;
    return fuse_req_ctx(req)->uid != 0;
#endif
}

/* The end of the file is where the manager says, not where the kernel remembers it. */
static bool appends(const struct cl_mount *m, const struct cl_handle *h, const struct fuse_file_info *fi)
{
    return (fi->flags & O_APPEND) && m->locks && (m->opt.direct_io || h->strict) && !fi->writepage;
}

/* The kernel's own writing, of mappings, has no thread that counts. */
static void wrote(struct cl_mount *m, struct cl_handle *h, const struct fuse_file_info *fi, int32_t tid)
{
    if ((!(fi->flags & O_APPEND) || fi->writepage) && !atomic_load(&h->inode->positional))
        atomic_store(&h->inode->positional, true);
    cl_data_wrote(m, h);
    if (!fi->writepage)
        atomic_store(&h->open.closed, false);
    if (tid > 0 && atomic_load(&h->user) != tid) {
        atomic_store(&h->user, tid);
        cl_ending_seen(tid);
    }
}

void cl_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
                 struct fuse_file_info *fi)
{
    struct cl_handle *h = cl_handle_of(fi);
    struct cl_mount *m = cl_mount_of(req);
    bool anywhere = !h->strict && !appends(m, h, fi);
    uint32_t at = 0;
    uint8_t **pages = anywhere ? cl_received_pages(buf, &at) : NULL;
    ssize_t n;
    (void)ino;
    wrote(m, h, fi, (int32_t)fuse_req_ctx(req)->pid);
    if (!pages)
        cl_received_flat(buf);
    if (cl_inode_is_gone(h->inode))
        n = -EIO;
    else if (pages)
        n = cl_data_write_pages(m, h, pages, at, size, (uint64_t)off, kill_suidgid(req, fi));
    else if (appends(m, h, fi))
        n = cl_append_write(m, h, buf, size, kill_suidgid(req, fi), cl_req_interrupted, req);
    else if ((fi->flags & O_APPEND) && !fi->writepage && h->strict)
        n = cl_data_append(m, h, buf, size, kill_suidgid(req, fi));
    else
        n = cl_data_write(m, h, buf, size, (uint64_t)off, kill_suidgid(req, fi));
    if (n < 0)
        cl_reply_status(req, cl_open_status((int)n));
    else
        cl_reply_write(req, (size_t)n);
}
