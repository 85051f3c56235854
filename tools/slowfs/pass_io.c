/*
 * Data, passed on to the directory below and as slow as the device that is emulated.
 *
 * Threads of the FUSE loop, one for each request under way. A request takes its place in the device's time when it comes, is carried
 * out below meanwhile, and is answered when the device would have been done; so the speed of what is below does not add to it, as
 * long as that is faster. fsync takes no time of its own: what was answered before has been on the device.
 *
 * Data is copied through this process, not spliced: what is emulated is slower than any copy.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "fp/clock.h"
#include "tools/slowfs/slowfs.h"

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct slow_fs *fs = slow_of(req);
    char path[SLOW_PATH_BUF];
    int rc = slow_fails(fs, SLOW_OPEN), fd = -1;

    /* O_DIRECT is between the program and us: its buffers are not ours. */
    if (rc == 0 && (fd = open(slow_path(slow_node(fs, ino), path), (fi->flags & ~(O_NOFOLLOW | O_DIRECT)) | O_CLOEXEC)) < 0)
        rc = errno;
    fi->fh = (uint64_t)fd;
    if (rc)
        fuse_reply_err(req, rc);
    else if (fuse_reply_open(req, fi) != 0)
        close(fd);
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    struct slow_fs *fs = slow_of(req);
    uint64_t came = fp_now_ns();
    int rc = slow_fails(fs, SLOW_READ);
    char *buf = rc == 0 ? malloc(size ? size : 1) : NULL;
    ssize_t n = -1;

    (void)ino;
    if (rc == 0 && !buf)
        rc = ENOMEM;
    if (rc == 0 && (n = pread((int)fi->fh, buf, size, off)) < 0)
        rc = errno;
    if (rc) {
        fuse_reply_err(req, rc);
    } else {
        fp_limiter_wait(fp_limiter_take(fs->device, false, (uint64_t)n, came));
        fuse_reply_buf(req, buf, (size_t)n);
    }
    free(buf);
}

static void do_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
    struct slow_fs *fs = slow_of(req);
    uint64_t until;
    int rc = slow_fails(fs, SLOW_WRITE);
    ssize_t n;

    (void)ino;
    if (rc) {
        fuse_reply_err(req, rc);
        return;
    }
    until = fp_limiter_take(fs->device, true, size, fp_now_ns());
    n = pwrite((int)fi->fh, buf, size, off);
    rc = n < 0 ? errno : 0;
    fp_limiter_wait(until);
    if (rc)
        fuse_reply_err(req, rc);
    else
        fuse_reply_write(req, (size_t)n);
}

/* Each close: errors of the file system below that it tells only then. */
static void do_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    int fd = dup((int)fi->fh);

    (void)ino;
    fuse_reply_err(req, fd < 0 || close(fd) < 0 ? errno : 0);
}

static void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    close((int)fi->fh);
    fuse_reply_err(req, 0);
}

static void do_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    struct slow_fs *fs = slow_of(req);
    int rc = slow_fails(fs, SLOW_FSYNC);

    (void)ino;
    if (rc == 0 && (datasync ? fdatasync((int)fi->fh) : fsync((int)fi->fh)) < 0)
        rc = errno;
    atomic_fetch_add(&fs->fsyncs, 1);
    fuse_reply_err(req, rc);
}

static void do_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
    int rc = slow_fails(slow_of(req), SLOW_WRITE);

    (void)ino;
    if (rc == 0 && fallocate((int)fi->fh, mode, off, len) < 0)
        rc = errno;
    fuse_reply_err(req, rc);
}

static void do_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
    off_t at = lseek((int)fi->fh, off, whence);

    (void)ino;
    if (at < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_lseek(req, at);
}

void slow_io_ops(struct fuse_lowlevel_ops *ops)
{
    ops->open = do_open;
    ops->read = do_read;
    ops->write = do_write;
    ops->flush = do_flush;
    ops->release = do_release;
    ops->fsync = do_fsync;
    ops->fallocate = do_fallocate;
    ops->lseek = do_lseek;
}
