/*
 * fallocate, lseek, copy_file_range, ioctl: operations on ranges of open files, done by the data path; they
 * may block.
 */
#include <errno.h>

#include "client/ops/ops.h"

void cl_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
                     struct fuse_file_info *fi)
{
    struct cl_handle *h = cl_handle_of(fi);
    (void)ino;
    if (cl_inode_is_gone(h->inode)) {
        cl_reply_status(req, -EIO);
    } else {
        cl_data_changed(cl_mount_of(req), h);
        cl_reply_status(req, cl_open_status(cl_data_fallocate(cl_mount_of(req), h, mode, (uint64_t)off, (uint64_t)len)));
    }
}

void cl_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
    struct cl_handle *h = cl_handle_of(fi);
    uint64_t found = 0;
    (void)ino;
    int rc =
        cl_inode_is_gone(h->inode) ? -EIO : cl_data_lseek(cl_mount_of(req), h, (uint64_t)off, whence, &found);
    if (rc < 0)
        cl_reply_status(req, cl_open_status(rc));
    else
        cl_reply_lseek(req, (off_t)found);
}

void cl_op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in, struct fuse_file_info *fi_in,
                           fuse_ino_t ino_out, off_t off_out, struct fuse_file_info *fi_out, size_t len,
                           int flags)
{
    struct cl_handle *in = cl_handle_of(fi_in), *out = cl_handle_of(fi_out);
    ssize_t n;
    (void)ino_in;
    (void)ino_out;
    if (flags != 0) {
        n = -EINVAL;
    } else if (cl_inode_is_gone(in->inode) || cl_inode_is_gone(out->inode)) {
        n = -EIO;
    } else {
        cl_data_changed(cl_mount_of(req), out);
        n = cl_data_copy_range(cl_mount_of(req), in, (uint64_t)off_in, out, (uint64_t)off_out, len);
    }
    if (n < 0)
        cl_reply_status(req, cl_open_status((int)n));
    else
        cl_reply_write(req, (size_t)n);
}

/* There are no inode flags (FS_IOC_GETFLAGS) and nothing else to control. */
void cl_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
                 unsigned flags, const void *in_buf, size_t in_bufsz, size_t out_bufsz)
{
    (void)ino;
    (void)cmd;
    (void)arg;
    (void)fi;
    (void)flags;
    (void)in_buf;
    (void)in_bufsz;
    (void)out_bufsz;
    cl_reply_status(req, -ENOTTY);
}
