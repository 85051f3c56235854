/*
 * statfs: the store's totals. Block size and fragment size are equal, because programs disagree on which of
 * them f_blocks counts.
 */
#include "client/ops/ops.h"

#define BLOCK_BYTES 4096u

static void done_statfs(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_op *op = arg;
    const Fp__StatFsReply *r = (const Fp__StatFsReply *)reply;
    struct statvfs st = {0};
    if (status < 0) {
        cl_op_reply_err(op, status);
        return;
    }
    st.f_bsize = BLOCK_BYTES;
    st.f_frsize = BLOCK_BYTES;
    st.f_blocks = r->total_bytes / BLOCK_BYTES;
    st.f_bfree = r->free_bytes / BLOCK_BYTES;
    st.f_bavail = st.f_bfree;
    st.f_files = r->files + r->free_files;
    st.f_ffree = r->free_files;
    st.f_favail = r->free_files;
    st.f_namemax = CL_NAME_MAX_BYTES;
    cl_reply_statfs(op->req, &st);
    cl_op_free(op);
}

void cl_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    Fp__StatFs msg = FP__STAT_FS__INIT;
    struct cl_op *op = cl_op_new(req);
    (void)ino;
    if (op)
        cl_op_call(op, FP__MSG_TYPE__MSG_STATFS, &msg.base, done_statfs);
}
