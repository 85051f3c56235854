/*
 * fallocate, lseek and copy_file_range: calls about ranges that the manager's map answers or changes. Runs on FUSE threads.
 *
 * All of them publish first, so that the map is the whole truth, and let the manager work on it: a hole is slices taken away, a copy is slices that name the
 * same chunks. No data moves.
 */
#include <errno.h>
#include <linux/falloc.h>
#include <unistd.h>

#include "client/data/internal.h"

/* A manager of before there was copied_bytes says nothing of it: it has copied all. */
static uint64_t copied_of(const Fp__CommitReply *r, uint64_t asked)
{
    return r->copied_bytes > 0 || r->copied_nothing ? r->copied_bytes : asked;
}

/* A request that changes maps: publish, take the turn, call, take over the reply. What was lost before is told, and goes on being the next close's and fsync's to tell: programs take a
 * failure of these calls lightly. copied may be NULL; else what is asked for, and then what there was. */
static int change_map(struct cl_mount *m, struct cl_inode *inode, uint32_t type, ProtobufCMessage *req, uint64_t *copied)
{
    ProtobufCMessage *reply = NULL;
    struct cl_file *f;
    uint64_t lives;
    int rc = cl_publish_for_others(m->data, inode, CL_BY_PROGRESS);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&inode->lock);
    f = cl_file_get(m->data, inode);
    rc = f ? cl_map_begin(f, cl_deadline(m->data)) : -ENOMEM;
    if (rc < 0)
        goto out;
    lives = atomic_load(&m->data->lives);
    pthread_mutex_unlock(&inode->lock);
    rc = cl_mgr_call_sync(m, type, req, &reply);
    pthread_mutex_lock(&inode->lock);
    cl_file_forget_map(f); /* also after an error: it may have been done all the same */
    if (rc == 0) {
        cl_file_changed(f, lives);
        cl_map_changed(f, (const Fp__CommitReply *)reply);
    }
    if (rc == 0 && copied)
        *copied = copied_of((const Fp__CommitReply *)reply, *copied);
    if (type == FP__MSG_TYPE__MSG_CLONE)
        f->others_version = 0; /* the chunks of the source may be anybody's */
    cl_map_end(f);
out:
    pthread_mutex_unlock(&inode->lock);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

static uint64_t size_of(struct cl_mount *m, struct cl_inode *inode)
{
    struct cl_file *f;
    uint64_t size;

    pthread_mutex_lock(&inode->lock);
    f = cl_file_get(m->data, inode);
    size = f ? cl_file_size_bytes(f) : inode->attr.size_bytes;
    pthread_mutex_unlock(&inode->lock);
    return size;
}

int cl_data_fallocate(struct cl_mount *m, struct cl_handle *h, int mode, uint64_t off, uint64_t len)
{
    Fp__Punch req = FP__PUNCH__INIT;
    bool keep = mode & FALLOC_FL_KEEP_SIZE;
    int rc;

    if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
        return -EOPNOTSUPP;
    if (len == 0 || off > INT64_MAX - len)
        return len == 0 ? -EINVAL : -EFBIG;
    req.ino = h->inode->ino;
    req.off = off;
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
        req.len = len;
        req.size_bytes = keep ? 0 : off + len;
        return change_map(m, h->inode, FP__MSG_TYPE__MSG_PUNCH, &req.base, NULL);
    }
    rc = h->strict ? cl_strict_attr(m->data, h->inode) : 0;
    if (rc < 0)
        return rc;
    if (off + len > size_of(m, h->inode) || keep) { /* space for what is not there yet */
        uint64_t have = size_of(m, h->inode), from = off > have ? off : have;

        if (off + len > from && off + len - from > cl_space_free_bytes(m->data))
            return -ENOSPC;
    }
    if (keep || off + len <= size_of(m, h->inode))
        return 0;
    req.size_bytes = off + len;
    return change_map(m, h->inode, FP__MSG_TYPE__MSG_PUNCH, &req.base, NULL);
}

int cl_data_lseek(struct cl_mount *m, struct cl_handle *h, uint64_t off, int whence, uint64_t *out_off)
{
    Fp__Seek req = FP__SEEK__INIT;
    ProtobufCMessage *reply = NULL;
    int rc = cl_publish_for_others(m->data, h->inode, CL_BY_PROGRESS);

    if (rc < 0)
        return rc;
    req.ino = h->inode->ino;
    req.off = off;
    req.hole = whence == SEEK_HOLE;
    rc = cl_mgr_call_sync(m, FP__MSG_TYPE__MSG_SEEK, &req.base, &reply);
    if (rc == 0)
        *out_off = ((const Fp__SeekReply *)reply)->off;
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

ssize_t cl_data_copy_range(struct cl_mount *m, struct cl_handle *in, uint64_t off_in, struct cl_handle *out, uint64_t off_out, uint64_t len)
{
    Fp__Clone req = FP__CLONE__INIT;
    uint64_t size;
    int rc = cl_publish_for_others(m->data, in->inode, CL_BY_PROGRESS);

    if (rc == 0 && in->strict)
        rc = cl_strict_attr(m->data, in->inode);
    if (rc < 0)
        return rc;
    size = size_of(m, in->inode);
    if (off_in >= size)
        return 0;
    if (len > size - off_in)
        len = size - off_in;
    if (len > SSIZE_MAX)
        len = SSIZE_MAX;
    if (in->inode == out->inode && off_in < off_out + len && off_out < off_in + len)
        return -EINVAL;
    req.src_ino = in->inode->ino;
    req.src_off = off_in;
    req.dst_ino = out->inode->ino;
    req.dst_off = off_out;
    req.len = len;
    rc = change_map(m, out->inode, FP__MSG_TYPE__MSG_CLONE, &req.base, &len); /* less, if somebody has cut the source meanwhile */
    return rc < 0 ? rc : (ssize_t)len;
}
