/*
 * What a strict file consists of, at one version: for reads with single-copy consistency (strict.c is about writes). Runs on FUSE threads.
 *
 * Each read asks the manager, with all its windows in one request: the answer is what the file was at one point between the read's call and its return. What this
 * mount keeps of the map is used only if the manager says that the file is still at that version, and then the answer has no slices in it. The
 * slices are copied, so that a read goes on with one version while others change what is kept. A chunk in them may be deleted before it is
 * read: then the file is at another version, and the read begins anew (read.c).
 */
#include <errno.h>
#include <stdlib.h>

#include "client/data/internal.h"
#include "fp/bug.h"

/* inode->lock held: number of slices of these windows; false: not all are known. */
static bool known(struct cl_file *f, uint64_t win, uint64_t win_end, size_t *n)
{
    *n = 0;
    for (; win < win_end; win++) {
        const struct cl_win *w = cl_file_win(f, win, false);

        if (!w || !w->known)
            return false;
        *n += w->nslices;
    }
    return true;
}

static int reserve(struct cl_snapshot *s, size_t n)
{
    s->slices = calloc(n ? n : 1, sizeof(*s->slices));
    return s->slices ? 0 : -ENOMEM;
}

/* inode->lock held: the manager says that this is what there is, if it has not changed here since it was asked. */
static int from_known(struct cl_snapshot *s, struct cl_file *f)
{
    size_t n;

    if (f->map_version != s->version || !known(f, s->win, s->win_end, &n))
        return -EAGAIN;
    if (reserve(s, n) < 0)
        return -ENOMEM;
    for (uint64_t win = s->win; win < s->win_end; win++) {
        const struct cl_win *w = cl_file_win(f, win, false);

        for (uint32_t i = 0; i < w->nslices; i++)
            s->slices[s->n++] = (struct cl_snap_slice){ .win = win, .slice = w->slices[i] };
    }
    return 0;
}

/* inode->lock held. */
static int from_reply(struct cl_snapshot *s, struct cl_file *f, const Fp__SliceMapReply *r)
{
    if (!cl_map_makes_sense(f, s->win, s->win_end - s->win, r))
        return -EPROTO;
    if (reserve(s, r->n_slices) < 0)
        return -ENOMEM;
    s->win_end = r->win_end;
    for (size_t i = 0; i < r->n_slices; i++)
        s->slices[s->n++] = (struct cl_snap_slice){ .win = r->slices[i]->win, .slice = cl_slice_of(f->data, r, r->slices[i]) };
    (void)cl_map_take_over(f, s->win, r); /* for the next read and for read-ahead; not if it is old by now */
    return 0;
}

/* -EAGAIN: what was known is not any more. */
static int ask(struct cl_data *d, struct cl_inode *inode, bool anew, struct cl_snapshot *s)
{
    Fp__SliceMap req = FP__SLICE_MAP__INIT;
    const Fp__SliceMapReply *r;
    ProtobufCMessage *m = NULL;
    struct cl_file *f;
    size_t n;
    int rc;

    req.ino = inode->ino;
    req.win_from = s->win;
    req.win_count = s->win_end - s->win;
    req.whole = true;
    pthread_mutex_lock(&inode->lock);
    f = cl_file_get(d, inode);
    if (f && !anew && known(f, s->win, s->win_end, &n))
        req.known_version = f->map_version;
    if (req.known_version && FP_BUG("mount-reads-strictly-what-it-knows")) {
        s->version = f->map_version;
        s->size_bytes = cl_file_size_bytes(f);
        rc = from_known(s, f);
        pthread_mutex_unlock(&inode->lock);
        return rc;
    }
    pthread_mutex_unlock(&inode->lock);
    if (!f)
        return -ENOMEM;
    rc = cl_mgr_call_sync(d->m, FP__MSG_TYPE__MSG_SLICEMAP, &req.base, &m);
    if (rc < 0)
        return rc;
    r = (const Fp__SliceMapReply *)m;
    s->version = r->data_version;
    s->size_bytes = r->size_bytes;
    pthread_mutex_lock(&inode->lock);
    rc = r->same ? from_known(s, f) : from_reply(s, f, r);
    pthread_mutex_unlock(&inode->lock);
    protobuf_c_message_free_unpacked(m, NULL);
    return rc;
}

int cl_snapshot_get(struct cl_data *d, struct cl_inode *inode, uint64_t win, uint64_t win_end, struct cl_snapshot *s)
{
    int rc;

    *s = (struct cl_snapshot){ .win = win, .win_end = win_end };
    rc = ask(d, inode, false, s);
    if (rc == -EAGAIN)
        rc = ask(d, inode, true, s);
    if (rc == -EPROTO || rc == -EAGAIN) {
        cl_data_note_error(d, "inode %llu: what the manager says of its data makes no sense: see its log", (unsigned long long)inode->ino);
        rc = -EIO;
    }
    return rc;
}

void cl_snapshot_free(struct cl_snapshot *s)
{
    free(s->slices);
    s->slices = NULL;
}

int cl_snapshot_plan(const struct cl_snapshot *s, uint64_t win, struct cl_overlay *o)
{
    size_t lo = 0, hi = s->n;
    int rc = 0;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (s->slices[mid].win < win)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; rc == 0 && lo < s->n && s->slices[lo].win == win; lo++) {
        const struct cl_slice *c = &s->slices[lo].slice;
        struct cl_piece p = { .off = c->off, .len = c->len, .src_off = c->chunk_off, .chunk = c->chunk };

        rc = cl_overlay_add(o, &p);
    }
    return rc;
}
