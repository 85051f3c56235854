/*
 * Changing the size: setattr with a size, and O_TRUNC. Called on FUSE threads; the manager's answers come on the core loop.
 *
 * Order matters: what this node has written beyond the new end must not come back, and what the manager refuses to cut must stay. So the manager is asked first, under the
 * map's turn (no commit in between), and the local buffers are cut when it has said yes, before anybody else has the turn. Stored ones, too (only their slices: the
 * chunk may be on the device already): commits that come later bring only what is left. A buffer that has lost all its slices is still told to the manager, so that
 * its chunk is deleted. It refuses while another mount has something to publish or appends (FP_ERECALL, FP_EAPPENDING), and who waits for that may be interrupted.
 *
 * Without an answer in time the call fails, but the request stays, and with it the turn, as that of a commit (commit.c): to forget it would be to publish,
 * or not to, what was cut. What programs write meanwhile comes after it, and is not cut: all that was there is sealed when the call fails. Only if the manager forgets the
 * session before it has answered, nobody ever knows. Then what lies beyond is dropped, and told as lost: published, it might stand behind a hole where there was none.
 *
 * Rejected: to cut first and to take it back after an error. Pages would have to be kept beside those that are written meanwhile.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/data/internal.h"

struct cutting {                       /* one request */
    struct cl_file *f;
    uint64_t size;
    uint64_t upto;                     /* left: what was sealed by then (seal_seq) was there before the call failed */
    bool done, late;                   /* inode->lock */
    bool left;                         /* nobody waits: the answer frees it */
    int rc;
};

static bool came_later(const struct cutting *t, const struct cl_wbuf *b)
{
    return t->left && (b->state == CL_WBUF_OPEN || b->seal_seq > t->upto);
}

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

/* inode->lock held: the bytes of this window from here on are cut. */
static uint32_t keeps(const struct cutting *t, const struct cl_win *w)
{
    uint32_t window_bytes = t->f->window_bytes;

    return w->win == t->size / window_bytes ? (uint32_t)(t->size % window_bytes) : 0;
}

/* inode->lock held. */
static uint64_t end_of_buffers(const struct cl_file *f)
{
    uint64_t end = 0;

    for (uint32_t i = f->nwins; i-- > 0 && end == 0;)
        for (const struct cl_wbuf *b = f->wins[i]->bufs; b; b = b->next) {
            const struct cl_range *last = b->nranges > 0 ? &b->range[b->nranges - 1] : NULL;
            uint64_t its = last ? f->wins[i]->win * f->window_bytes + last->off + last->len : 0;

            end = its > end ? its : end;
        }
    return end;
}

/* inode->lock held: local data that was there when it was asked for ends at its size. */
static void cut(struct cl_file *f, const struct cutting *t)
{
    for (uint32_t i = cl_file_first_win(f, t->size / f->window_bytes); i < f->nwins; i++) {
        struct cl_win *w = f->wins[i];
        struct cl_wbuf *b, *next;

        for (b = w->bufs; b; b = next) {
            next = b->next;
            if (!came_later(t, b))
                cut_buf(f, w, b, keeps(t, w));
        }
    }
    if (t->left)
        f->end_written = end_of_buffers(f);
    else if (f->end_written > t->size)
        f->end_written = t->size;
}

/* inode->lock held: these bytes are given up. Returns how many they are. */
static uint64_t gone(struct cl_file *f, const struct cl_wbuf *b, uint32_t from)
{
    uint64_t base = b->win * f->window_bytes, bytes = 0;

    for (uint32_t i = 0; i < b->nranges; i++) {
        uint32_t end = b->range[i].off + b->range[i].len, off = b->range[i].off > from ? b->range[i].off : from;

        if (end <= off)
            continue;
        cl_gone_add(&f->gone, base + off, base + end);
        bytes += end - off;
    }
    return bytes;
}

/* inode->lock held: the manager may have cut the file, or not, and will never say. */
static void lose(struct cl_file *f, const struct cutting *t)
{
    uint64_t bytes = 0;

    for (uint32_t i = cl_file_first_win(f, t->size / f->window_bytes); i < f->nwins; i++)
        for (const struct cl_wbuf *b = f->wins[i]->bufs; b; b = b->next)
            bytes += came_later(t, b) ? 0 : gone(f, b, keeps(t, f->wins[i]));
    if (bytes == 0)
        return;
    cut(f, t);
    if (!f->error)
        f->error = -EIO;
    cl_file_lost(f, bytes, "inode %llu: the manager has forgotten this mount before it said whether it has cut the file to %llu bytes; %llu bytes that were written behind that are lost",
                 (unsigned long long)f->inode->ino, (unsigned long long)t->size, (unsigned long long)bytes);
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

/* inode->lock held. */
static void answered(struct cl_file *f, struct cutting *t, int status, const Fp__AttrReply *r)
{
    t->rc = status;
    if (status < 0) {
        if (status == FP_ESESSION || status == -EPROTO)
            lose(f, t);
        cl_file_forget_map(f);
        return;
    }
    cut(f, t);
    if (!t->left) {
        cl_gone_cut(&f->gone, t->size);
        f->mtime_ns = 0;
    }
    cl_file_changed(f, atomic_load(&f->data->lives)); /* on the loop that would have heard of another */
    take_over(f, r);
}

/* Core loop. FP_EDEADLINE comes first, if the manager takes too long (cl_mgr_call_known). */
static void on_answer(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cutting *t = arg;
    struct cl_file *f = t->f;
    struct cl_inode *inode = f->inode;
    struct cl_mount *m = f->data->m;
    bool left;

    pthread_mutex_lock(&inode->lock);
    if (status == FP_EDEADLINE) {
        t->late = true;
        pthread_cond_broadcast(&f->cond);
        pthread_mutex_unlock(&inode->lock);
        return;
    }
    answered(f, t, status, (const Fp__AttrReply *)reply);
    left = t->left;
    t->done = true;
    if (left)
        f->strict_late--;
    cl_map_end(f);
    pthread_mutex_unlock(&inode->lock); /* t may be gone from here on, unless it was left */
    if (left)
        free(t);
    cl_inode_put(m, inode);
}

/* inode->lock held: nobody waits for it any more. Strict writes, which have no buffers of the file, wait as for one of theirs. */
static void leave(struct cl_file *f, struct cutting *t)
{
    cl_file_seal_all(f);
    t->upto = f->seal_seq;
    t->left = true;
    f->strict_late++;
    cl_file_forget_map(f); /* it may be done already */
    cl_data_note_error(f->data, "inode %llu: it is not cut to %llu bytes in time: the manager does not answer; it may be when it does",
                       (unsigned long long)f->inode->ino, (unsigned long long)t->size);
}

/* inode->lock held, let go over the call; the turn is had, and ends with the answer. *t is NULL afterwards if it is not the caller's any more. */
static int ask(struct cl_mount *m, struct cl_file *f, Fp__SetAttr *req, struct cutting **t)
{
    struct cl_inode *inode = f->inode;
    struct cutting *c = *t;

    pthread_mutex_unlock(&inode->lock);
    cl_inode_ref(m, inode); /* the answer's */
    cl_mgr_call_known(m, FP__MSG_TYPE__MSG_SETATTR, &req->base, on_answer, c);
    pthread_mutex_lock(&inode->lock);
    while (!c->done && !c->late)
        pthread_cond_wait(&f->cond, &inode->lock);
    if (c->done)
        return c->rc;
    leave(f, c);
    *t = NULL;
    return -ETIMEDOUT;
}

int cl_data_truncate(struct cl_mount *m, struct cl_inode *inode, Fp__SetAttr *req)
{
    struct cutting *t = calloc(1, sizeof(*t));
    struct cl_file *f;
    int rc;

    if (!t)
        return -ENOMEM;
    pthread_mutex_lock(&inode->lock);
    f = cl_file_get(m->data, inode);
    rc = f ? cl_map_begin(f, cl_deadline(m->data)) : -ENOMEM;
    if (rc == 0) {
        *t = (struct cutting){ .f = f, .size = req->size_bytes };
        rc = ask(m, f, req, &t);
    }
    pthread_mutex_unlock(&inode->lock);
    free(t);
    return rc;
}
