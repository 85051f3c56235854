/*
 * The table of operations. What is missing is missing on purpose: access (the kernel checks,
 * default_permissions), bmap, poll. getlk, setlk and flock are left out with --locks local (fuse_session.c).
 */
#include "client/ops/ops.h"

void cl_ops_fill(struct fuse_lowlevel_ops *ops)
{
    *ops = (struct fuse_lowlevel_ops)
    {
        .lookup = cl_op_lookup, .forget = cl_op_forget, .forget_multi = cl_op_forget_multi,
        .getattr = cl_op_getattr,
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
        .statx = cl_op_statx,
#endif
        .setattr = cl_op_setattr, .readlink = cl_op_readlink, .mknod = cl_op_mknod, .mkdir = cl_op_mkdir,
        .symlink = cl_op_symlink, .unlink = cl_op_unlink, .rmdir = cl_op_rmdir, .rename = cl_op_rename,
        .link = cl_op_link, .open = cl_op_open, .create = cl_op_create, .tmpfile = cl_op_tmpfile,
        .release = cl_op_release, .read = cl_op_read, .write = cl_op_write, .flush = cl_op_flush,
        .fsync = cl_op_fsync, .fsyncdir = cl_op_fsyncdir, .opendir = cl_op_opendir,
        .releasedir = cl_op_releasedir, .readdir = cl_op_readdir, .readdirplus = cl_op_readdirplus,
        .statfs = cl_op_statfs, .setxattr = cl_op_setxattr, .getxattr = cl_op_getxattr,
        .listxattr = cl_op_listxattr, .removexattr = cl_op_removexattr, .fallocate = cl_op_fallocate,
        .lseek = cl_op_lseek, .copy_file_range = cl_op_copy_file_range, .ioctl = cl_op_ioctl,
        .getlk = cl_op_getlk, .setlk = cl_op_setlk, .flock = cl_op_flock,
    };
}
