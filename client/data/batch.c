/*
 * What one MSG_COMMIT says (see batch.h). Called under the inode's lock by whoever publishes.
 *
 * A request is bounded three ways: buffers, slices, and bytes of notes, since a frame is. More goes with the next one: each is a transaction, and what it
 * names is complete in itself.
 */
#include "client/data/batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/append.h"
#include "client/data/fold.h"
#include "client/data/packed.h"
#include "client/data/pieces.h"

#define SLICES_FIRST 1024u
#define SLICES_MAX 8192u
#define NOTES_MAX_BYTES (1u << 20)
#define WHOLE_NOTES_MAX_BYTES (3u << 20) /* of the 4 MiB of a message */

struct cl_batch *cl_batch_new(void)
{
    struct cl_batch *t = calloc(1, sizeof(*t));

    if (t)
        t->upto = UINT64_MAX;
    return t;
}

void cl_batch_free(struct cl_batch *t)
{
    free(t->slice);
    free(t->slices);
    free(t);
}

/* At most: each end of a range or a piece ends a slice. */
static uint32_t slices_of(const struct cl_wbuf *b)
{
    return b->nranges + (b->packed ? b->packed->npieces : 0);
}

static bool has_room(const struct cl_batch *t, const struct cl_wbuf *b)
{
    if (t->nbufs == 0)
        return true;
    if (t->whole)
        return t->nbufs < CL_COMMIT_BUFS_MAX && t->note_bytes + cl_packed_note_bytes(b->packed) <= WHOLE_NOTES_MAX_BYTES;
    return t->nbufs < CL_COMMIT_BUFS_MAX && t->msg.n_slices + slices_of(b) <= SLICES_MAX &&
           t->note_bytes + cl_packed_note_bytes(b->packed) <= NOTES_MAX_BYTES;
}

static int reserve_slices(struct cl_batch *t, uint32_t n)
{
    size_t cap = t->slices_cap ? t->slices_cap : SLICES_FIRST;
    void *more;

    if (t->msg.n_slices + n <= t->slices_cap)
        return 0;
    while (cap < t->msg.n_slices + n)
        cap *= 2;
    more = realloc(t->slice, cap * sizeof(*t->slice));
    if (!more)
        return -ENOMEM;
    t->slice = more;
    more = realloc(t->slices, cap * sizeof(*t->slices));
    if (!more)
        return -ENOMEM;
    t->slices = more;
    t->slices_cap = cap;
    return 0;
}

static void add_chunk(struct cl_batch *t, const struct cl_wbuf *b)
{
    size_t n = t->msg.n_chunks++;
    Fp__Chunk *c = &t->chunk[n];

    fp__chunk__init(c);
    c->id = b->chunk.id;
    c->len = b->chunk.len_bytes;
    c->stored_bytes = b->stored_bytes;
    c->sum = b->chunk.sum;
    c->bnf = b->chunk.bnf;
    c->data_len = b->chunk.data_len_bytes;
    if (b->packed) {
        c->note.data = b->packed->note;
        c->note.len = b->packed->note_bytes;
        c->note_keys = b->packed->keys;
        c->n_note_keys = b->packed->nkeys;
    }
    t->chunks[n] = c;
}

static void add_slices(struct cl_batch *t, const struct cl_file *f, const struct cl_wbuf *b)
{
    struct cl_bits it = { .b = b };
    struct cl_bit bit;

    while (cl_bits_next(&it, &bit)) {
        Fp__Slice *s = &t->slice[t->msg.n_slices++];
        uint64_t end = b->win * f->window_bytes + bit.off + bit.len;

        fp__slice__init(s);
        s->win = b->win;
        s->off = bit.off;
        s->len = bit.len;
        s->chunk = bit.chunk;
        s->chunk_off = bit.src_off;
        if (end > t->msg.size_bytes)
            t->msg.size_bytes = end;
    }
}

static void add(struct cl_batch *t, struct cl_file *f, struct cl_win *w, struct cl_wbuf *b)
{
    if (b->chunk.id)
        add_chunk(t, b);
    add_slices(t, f, b);
    t->note_bytes += cl_packed_note_bytes(b->packed);
    t->refers |= b->packed && b->packed->refers;
    t->buf[t->nbufs] = b;
    t->win[t->nbufs++] = w;
    b->committing = true;
}

/*
 * What it is based on: the manager refuses it if the session has expired since this is sent, or had before, and the file is not what it was (manager/commit.c). So what was
 * closed behind or appended does not go over what others have written when this mount had lost the right to it, also if the request was under way then.
 */
static void base(const struct cl_file *f, Fp__Commit *msg)
{
    struct cl_inode *inode = f->inode;

    if (f != inode->file)
        return;
    cl_behind_base(f, msg);
    if (f->append_base || (cl_append_has_right(inode) && !msg->based_on)) {
        msg->based_on = f->append_base ? f->append_base : cl_append_base(inode);
        msg->lease_time = f->append_base ? 0 : atomic_load(&f->data->m->lease_time);
    }
}

static void begin(struct cl_batch *t, struct cl_file *f)
{
    fp__commit__init(&t->msg);
    t->msg.ino = f->inode->ino;
    t->msg.mtime_ns = f->mtime_ns;
    t->msg.kill_suidgid = f->kill_suidgid;
    t->msg.anyway = t->anyway;
    t->msg.tell_folds = cl_fold_wants_hints(f->data);
    base(f, &t->msg);
    t->file = f;
    t->refers = t->done = t->late = t->left = false;
    t->nbufs = t->note_bytes = 0;
}

/* Arrays of pointers, once nothing moves any more. */
static void finish(struct cl_batch *t)
{
    for (size_t i = 0; i < t->msg.n_slices; i++)
        t->slices[i] = &t->slice[i];
    t->msg.chunks = t->chunks;
    t->msg.slices = t->slices;
}

/* With this, all that programs of this mount have written and closed is there: the manager need not wait for the release, which a dead mount does not send. */
static bool closes(const struct cl_batch *t, const struct cl_file *f)
{
    return f == f->inode->file && f->inode->unclosed == 0 && !f->inode->hurt && !cl_file_is_lost(f) && f->nopen + f->ninflight == 0 && t->nbufs == f->nstored;
}

bool cl_batch_says_end(const struct cl_file *f)
{
    return f && f->inode->unended && f->inode->unclosed == 0 && !f->inode->hurt && !cl_file_is_lost(f) && f->nopen + f->ninflight + f->nstored == 0 && f->inode->attr.nlink > 0;
}

int cl_batch_collect(struct cl_batch *t, struct cl_file *f)
{
    bool full = false;

    begin(t, f);
    for (uint32_t i = 0; i < f->nwins && f->nstored > 0 && !full; i++)
        for (struct cl_wbuf *b = f->wins[i]->bufs; b && b->state == CL_WBUF_STORED && b->seal_seq <= t->upto && !full; b = b->next) {
            full = !has_room(t, b) || (t->one_window && t->nbufs > 0 && t->win[0] != f->wins[i]);
            if (!full && reserve_slices(t, slices_of(b)) < 0) {
                if (t->nbufs == 0)
                    return -ENOMEM;
                full = true;
            }
            if (!full)
                add(t, f, f->wins[i], b);
        }
    finish(t);
    t->msg.closes = closes(t, f);
    t->msg.closed_upto = t->msg.closes ? f->inode->closes : 0;
    t->msg.appended = !atomic_load(&f->inode->positional);
    return t->nbufs > 0 || (t->msg.closes && cl_batch_says_end(f));
}
