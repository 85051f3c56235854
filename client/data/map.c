/*
 * The manager's slices of a file as this mount knows them, and who may change them at the moment.
 *
 * A map is asked for in pieces, when a read needs it, and holds for one data_version; news of another version drop it. Commits, truncates and punches
 * of one file go one after the other (cl_map_begin), so that each knows which version it replaced.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/data/ext.h"
#include "client/data/internal.h"
#include "fp/record.h"

int cl_map_begin(struct cl_file *f, uint64_t deadline_ms)
{
    while (f->committing || f->strict_late > 0) {
        uint64_t until_ms = cl_by_end(f->data, deadline_ms);

        if (fp_now_ms() >= until_ms)
            return -EIO;
        cl_file_wait_a_while(f, until_ms);
    }
    f->committing = true;
    return 0;
}

void cl_map_end(struct cl_file *f)
{
    f->committing = false;
    pthread_cond_broadcast(&f->cond);
}

void cl_map_changed(struct cl_file *f, const Fp__CommitReply *r)
{
    if (!r->attr)
        return;
    if (r->version_before != f->map_version)
        cl_file_forget_map(f); /* another mount was there in between */
    if (r->version_before == f->others_version)
        f->others_version = r->attr->data_version;
    f->map_version = f->own_version = r->attr->data_version;
    if (f->append_base && r->version_before == f->append_base)
        f->append_base = r->attr->data_version;
    if (r->version_before == f->inode->based_on)
        f->inode->based_on = r->attr->data_version; /* nobody else was, also if the lease is gone */
    cl_inode_attr_update(f->inode, r->attr);
}

struct cl_slice cl_slice_of(struct cl_data *d, const Fp__SliceMapReply *r, const Fp__Slice *p)
{
    struct cl_slice s = {
        .off = p->off, .len = p->len, .chunk_off = p->chunk_off,
        .chunk = { .id = p->chunk, .sum = p->chunk_sum, .len_bytes = p->chunk_len, .bnf = p->bnf, .data_len_bytes = p->data_len },
    };

    if (p->ext && !p->bnf) {
        s.chunk.ext = cl_ext_intern(d, r->ext_files[p->ext - 1]);
        s.chunk.ext_off = p->ext_off;
    }
    return s;
}

static int set_slices(struct cl_data *d, struct cl_win *w, const Fp__SliceMapReply *r, size_t from, size_t to)
{
    struct cl_slice *s = NULL;

    if (to > from) {
        s = calloc(to - from, sizeof(*s));
        if (!s)
            return -ENOMEM;
    }
    for (size_t i = from; i < to; i++)
        s[i - from] = cl_slice_of(d, r, r->slices[i]);
    free(w->slices);
    w->slices = s;
    w->nslices = (uint32_t)(to - from);
    w->known = true;
    return 0;
}

/*
 * Is this an answer to what was asked: windows from win on, slices in order that lie side by side in them, each within its chunk? All that reads a map
 * relies on it; a manager that says else has a bug or a broken database, and no byte is read by such a map. (A chunk without a length would be taken for one of
 * which a reader has to ask the manager yet, for ever.)
 */
bool cl_map_makes_sense(const struct cl_file *f, uint64_t win, uint64_t count, const Fp__SliceMapReply *r)
{
    uint64_t end = 0; /* of the slice before, in its window */

    if (r->win_end <= win || r->win_end - win > count)
        return false;
    for (size_t i = 0; i < r->n_slices; i++) {
        const Fp__Slice *s = r->slices[i];

        if (s->win < win || s->win >= r->win_end || (i > 0 && s->win < r->slices[i - 1]->win))
            return false;
        if (i == 0 || s->win != r->slices[i - 1]->win)
            end = 0;
        if (s->off < end || s->len == 0 || (uint64_t)s->off + s->len > f->window_bytes)
            return false;
        if (s->chunk_len == 0 || s->chunk_len > FP_STORED_MAX_BYTES || s->data_len > FP_CHUNK_MAX_BYTES ||
            (uint64_t)s->chunk_off + s->len > (s->data_len ? s->data_len : s->chunk_len))
            return false;
        if (s->ext > r->n_ext_files || (s->ext && s->data_len))
            return false;
        end = (uint64_t)s->off + s->len;
    }
    return true;
}

int cl_map_take_over(struct cl_file *f, uint64_t win, const Fp__SliceMapReply *r)
{
    size_t i = 0;

    if (r->data_version < f->map_version)
        return -EAGAIN; /* older than what we committed meanwhile */
    if (r->data_version > f->map_version) {
        cl_file_forget_map(f);
        f->map_version = r->data_version;
        if (r->data_version > f->inode->attr.data_version) {
            f->inode->attr.data_version = r->data_version;
            f->inode->attr.size_bytes = r->size_bytes;
        }
    }
    for (uint64_t at = win; at < r->win_end; at++) {
        struct cl_win *w = cl_file_win(f, at, true);
        size_t from = i;

        if (!w)
            return -ENOMEM;
        while (i < r->n_slices && r->slices[i]->win == at)
            i++;
        if (set_slices(f->data, w, r, from, i) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* inode->lock held: an answer that is not kept, since a lock, an open or a stat has told of a newer version meanwhile. Who asked for it may use it all the same: it is
 * newer than what was known when it was asked for, and has what this mount has published itself. */
static int use_once(struct cl_file *f, uint64_t win, const Fp__SliceMapReply *r, struct cl_map_use *use)
{
    struct cl_win *w = cl_file_win(f, win, true);
    size_t n = 0;
    int rc;

    if (!w || w->known)
        return w ? -EAGAIN : -ENOMEM;
    while (n < r->n_slices && r->slices[n]->win == win)
        n++;
    rc = set_slices(f->data, w, r, 0, n);
    if (rc < 0)
        return rc;
    rc = use->fn(use->arg, w);
    free(w->slices);
    w->slices = NULL;
    w->nslices = 0;
    w->known = false;
    use->used = true;
    use->size_bytes = r->size_bytes > f->end_written ? r->size_bytes : f->end_written;
    return rc;
}

int cl_map_fetch(struct cl_data *d, struct cl_inode *inode, uint64_t win, uint64_t count, struct cl_map_use *use)
{
    Fp__SliceMap req = FP__SLICE_MAP__INIT;
    ProtobufCMessage *m = NULL;
    const Fp__SliceMapReply *r;
    int rc;

    req.ino = inode->ino;
    req.win_from = win;
    req.win_count = count;
    use->used = false;
    rc = cl_mgr_call_sync(d->m, FP__MSG_TYPE__MSG_SLICEMAP, &req.base, &m);
    if (rc < 0)
        return rc;
    r = (const Fp__SliceMapReply *)m;
    pthread_mutex_lock(&inode->lock);
    rc = cl_map_makes_sense(inode->file, win, count, r) ? cl_map_take_over(inode->file, win, r) : -EPROTO;
    if (rc == -EAGAIN && r->data_version >= inode->file->own_version)
        rc = use_once(inode->file, win, r, use);
    pthread_mutex_unlock(&inode->lock);
    if (rc == -EPROTO && !use->used) {
        cl_data_note_error(d, "inode %llu: what the manager says of its data makes no sense: see its log", (unsigned long long)inode->ino);
        rc = -EIO;
    }
    protobuf_c_message_free_unpacked(m, NULL);
    return rc;
}
