/*
 * Changing the size: setattr with a size, and O_TRUNC. Runs on FUSE threads.
 *
 * Order matters: what this node has written beyond the new end must not come back. Under the map's turn (no commit in between) the local
 * buffers are cut first, stored ones too (only their slices: the chunk may be on the device already), then the manager cuts the file; commits that
 * come later bring only what is left. A buffer that has lost all its slices is still told to the manager, so that its chunk is deleted.
 */
#include <errno.h>

#include "client/data/internal.h"

/* inode->lock held. */
static void cut_buf(struct cl_file *f, struct cl_win *w, struct cl_wbuf *b, uint32_t new_len)
{
    uint64_t before = cl_wbuf_bytes(b), after;

    cl_wbuf_truncate(b, new_len);
    if (b->state != CL_WBUF_OPEN)
        return;
    after = cl_wbuf_bytes(b);
    f->dirty_bytes -= before - after;
    atomic_fetch_sub(&f->data->dirty_bytes, before - after);
    if (b->nranges == 0 && b->writers == 0)
        cl_file_drop_buf(f, w, b);
}

/* inode->lock held: local data ends at size. */
static void cut(struct cl_file *f, uint64_t size)
{
    uint64_t win = size / f->window_bytes;

    for (uint32_t i = cl_file_first_win(f, win); i < f->nwins; i++) {
        struct cl_win *w = f->wins[i];
        uint32_t keep = w->win == win ? (uint32_t)(size % f->window_bytes) : 0;
        struct cl_wbuf *b, *next;

        for (b = w->bufs; b; b = next) {
            next = b->next;
            cut_buf(f, w, b, keep);
        }
    }
    if (f->end_written > size)
        f->end_written = size;
    cl_gone_cut(&f->gone, size);
}

/* The manager's attributes after the change; data_version moved by one if nobody else was there. */
static void take_over(struct cl_file *f, const Fp__AttrReply *r)
{
    cl_file_forget_map(f);
    if (!r->attr)
        return;
    f->map_version = f->own_version = r->attr->data_version;
    if (r->attr->size_bytes == 0)
        f->others_version = r->attr->data_version; /* nothing of anybody's is left */
    cl_inode_attr_update(f->inode, r->attr);
}

int cl_data_truncate(struct cl_mount *m, struct cl_inode *inode, Fp__SetAttr *req)
{
    uint64_t deadline_ms = cl_deadline(m->data), lives;
    ProtobufCMessage *reply = NULL;
    struct cl_file *f;
    int rc;

    pthread_mutex_lock(&inode->lock);
    f = cl_file_get(m->data, inode);
    rc = f ? cl_map_begin(f, deadline_ms) : -ENOMEM;
    if (rc < 0)
        goto out;
    cut(f, req->size_bytes);
    f->mtime_ns = 0;
    lives = atomic_load(&m->data->lives);
    pthread_mutex_unlock(&inode->lock);
    rc = cl_mgr_call_sync(m, FP__MSG_TYPE__MSG_SETATTR, &req->base, &reply);
    pthread_mutex_lock(&inode->lock);
    if (rc == 0) {
        cl_file_changed(f, lives);
        take_over(f, (const Fp__AttrReply *)reply);
    } else
        cl_file_forget_map(f); /* it may have been done all the same */
    cl_map_end(f);
out:
    pthread_mutex_unlock(&inode->lock);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}
