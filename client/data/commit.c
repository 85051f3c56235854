/*
 * The commits of a file: what is stored is told to the manager with MSG_COMMIT, by who publishes (publish.c), who waits for the answer, or by the last handle
 * (release.c), which does not. The answers come on the core loop.
 *
 * One request names as many buffers as fit (batch.c). What the manager does with them decides what becomes of each: it is known to the manager and gone from
 * here, refused and told as lost, or still here, to be tried again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/data/batch.h"
#include "client/data/fold.h"
#include "client/data/internal.h"

#define AWAY_MS 300u /* until the next look whether a benefactor is back */

static bool is_bad(const Fp__CommitReply *r, uint64_t chunk)
{
    for (size_t i = 0; i < r->n_bad_chunks; i++)
        if (r->bad_chunks[i] == chunk)
            return true;
    return false;
}

/*
 * inode->lock held: stored chunks that slices named can't be read. When the pages of these windows were given back the manager vouched for them (store.c), so they
 * have become bad since; nobody has the bytes any more. The rest of the commit is good.
 */
static void bad_references(struct cl_file *f, const struct cl_batch *t, const Fp__CommitReply *r)
{
    uint64_t lost = 0, first = UINT64_MAX;

    for (size_t i = 0; i < t->msg.n_slices; i++) {
        const Fp__Slice *s = &t->slice[i];
        uint64_t off = s->win * f->window_bytes + s->off;

        if (s->chunk == 0 || !is_bad(r, s->chunk))
            continue;
        lost += s->len;
        cl_gone_add(&f->gone, off, off + s->len);
        if (off < first)
            first = off;
    }
    if (!f->error)
        f->error = -EIO;
    cl_file_lost(f, lost, "inode %llu: %llu bytes from %llu on are the same as stored ones that are damaged or on a benefactor that is away: write them again (fpctl status)",
             (unsigned long long)f->inode->ino, (unsigned long long)lost, (unsigned long long)first);
}

/* inode->lock held: the manager has these. */
static void committed(struct cl_file *f, struct cl_batch *t, const Fp__CommitReply *r)
{
    f->late_rc = 0;
    f->inode->unended = !t->msg.closes || f->inode->unclosed > 0;
    if (t->msg.closes)
        f->inode->closes_published = t->msg.closed_upto;
    cl_file_changed(f, atomic_load(&f->data->lives)); /* on the loop that would have heard of another */
    cl_map_changed(f, r);
    cl_fold_hints(f, r);
    if (r->n_bad_chunks > 0)
        bad_references(f, t, r);
    if (t->refers)
        f->others_version = 0; /* the chunks may be anybody's */
    for (size_t i = 0; i < t->nbufs; i++) {
        struct cl_win *w = t->win[i];

        w->known = false;
        w->nslices = 0;
        free(w->slices);
        w->slices = NULL;
        cl_file_drop_buf(f, w, t->buf[i]);
    }
    if (f->nopen + f->ninflight + f->nstored == 0) {
        f->end_written = 0;
        if (f->mtime_ns == t->msg.mtime_ns)
            f->mtime_ns = 0;
        f->kill_suidgid = false;
    }
}

/* The manager refused for good (the file is gone, the session was forgotten, others have written it since): these bytes have no place any more. */
static bool refused(int rc)
{
    return rc == -ENOENT || rc == -EINVAL || rc == FP_ESESSION || rc == FP_EOVERTAKEN || rc == -EPERM;
}

/*
 * inode->lock held: a window would consist of too many pieces to be told to a reader. If it is one of several, each is tried by itself, so that only that one
 * suffers. Its chunks are told to the manager without any slice, to be deleted.
 */
static void too_many_pieces(struct cl_file *f, struct cl_batch *t)
{
    uint64_t lost = 0;

    for (size_t i = 0; i < t->nbufs; i++) {
        t->buf[i]->committing = false;
        if (!t->one_window)
            continue;
        lost += t->buf[i]->counted_bytes;
        cl_file_uncount(f, t->buf[i]);
        cl_file_gone(f, t->buf[i]);
        cl_wbuf_truncate(t->buf[i], 0);
    }
    if (t->one_window && !f->error)
        f->error = -EFBIG;
    if (t->one_window)
        cl_file_lost(f, lost, "inode %llu: bytes from %llu on were written in too many small pieces for one chunk, and are not taken: give its directory smaller chunks (user.fp.chunk_size)",
                 (unsigned long long)f->inode->ino, (unsigned long long)(t->win[0]->win * f->window_bytes));
    t->one_window = true;
}

/* inode->lock held: but for what is refused, the buffers are there as before. */
static void not_committed(struct cl_file *f, struct cl_batch *t, int rc)
{
    uint64_t lost = 0;

    if (t->nbufs == 0) { /* it only said that all have closed the file */
        f->inode->unended = false;
        return;
    }
    if (rc == -EFBIG) {
        too_many_pieces(f, t);
        return;
    }
    if (rc == FP_EAWAY || (rc == -EINVAL && !t->one_window)) {
        for (size_t i = 0; i < t->nbufs; i++)
            t->buf[i]->committing = false;
        t->one_window |= rc == -EINVAL; /* one that is wrong shall not take the others with it */
        return;
    }
    for (size_t i = 0; i < t->nbufs; i++) {
        t->buf[i]->committing = false;
        if (!refused(rc))
            continue;
        lost += t->buf[i]->counted_bytes;
        cl_file_gone(f, t->buf[i]);
        cl_file_drop_buf(f, t->win[i], t->buf[i]);
    }
    if (refused(rc)) /* kept by the file: this commit may be one whose result nobody looks at */
        cl_file_set_error(f, rc == -EINVAL ? -EIO : rc, lost, "written data was refused by the manager"); /* no argument of the program's is wrong */
    else
        cl_data_note_error(f->data, "inode %llu: written data could not be published: %s", (unsigned long long)f->inode->ino,
                   fp_strerror(rc));
}

static void say_away(const struct cl_file *f)
{
    FP_LOG_EVERY(5000, FP_LOG_WARN, "inode %llu: %s", (unsigned long long)f->inode->ino, fp_strerror(FP_EAWAY));
}

/* inode->lock held: a commit that nobody waits for, or not any more, has been answered. Whoever has the last handle goes on from here (release.c). */
static void answered_late(struct cl_file *f, const struct cl_batch *t)
{
    if (t->rc == FP_EAWAY)
        say_away(f);
    f->commit_late = false;
    f->late_rc = t->rc < 0 ? t->rc : 0;
    f->late_one_window = t->one_window && f->nstored > 0;
    cl_map_end(f);
}

/* The manager takes too long. Who waits stops waiting; the request stays. */
static void takes_long(struct cl_file *f, struct cl_batch *t)
{
    pthread_mutex_lock(&f->inode->lock);
    t->late = true;
    cl_data_note_error(f->data, "inode %llu: written data is not published in time: the manager does not answer; it is as soon as it does",
               (unsigned long long)f->inode->ino);
    pthread_cond_broadcast(&f->cond);
    pthread_mutex_unlock(&f->inode->lock);
}

/* Core loop. FP_EDEADLINE comes first, if the manager takes too long (cl_mgr_call_lasting). */
static void on_commit(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_batch *t = arg;
    struct cl_file *f = t->file;
    struct cl_data *d = f->data;
    struct cl_inode *inode = f->inode;
    bool left, unwaited = t->unwaited;

    if (status == FP_EDEADLINE) {
        takes_long(f, t);
        return;
    }
    pthread_mutex_lock(&inode->lock);
    if (status < 0)
        not_committed(f, t, status);
    else
        committed(f, t, (const Fp__CommitReply *)reply);
    t->rc = status < 0 && status != -EFBIG && status != -EINVAL && !(status == -ENOENT && t->nbufs == 0) ? status : 1; /* too many pieces, one bad window: there is more to try */
    t->done = true;
    left = t->left;
    if (left)
        answered_late(f, t);
    pthread_cond_broadcast(&f->cond);
    pthread_mutex_unlock(&inode->lock); /* t may be gone from here on, unless it was left */
    if (left)
        cl_batch_free(t);
    cl_inode_put(d->m, inode);
    if (unwaited)
        cl_late_answered(d);
}

/*
 * inode->lock held, map begun; released over the call. 1: one batch went; 0: nothing left. t->left: the manager has not answered in time; the request, and with
 * it batch and turn, stay until it does. To name its chunks in another request would be wrong: if it was executed, they may be overwritten and deleted by now.
 */
static int commit_batch(struct cl_file *f, struct cl_batch *t, bool durable)
{
    struct cl_inode *inode = f->inode;
    int rc = cl_batch_collect(t, f);

    if (rc <= 0)
        return rc;
    t->msg.durable = durable;
    pthread_mutex_unlock(&inode->lock);
    cl_inode_ref(f->data->m, inode); /* the answer's */
    cl_mgr_call_lasting(f->data->m, FP__MSG_TYPE__MSG_COMMIT, &t->msg.base, on_commit, t);
    pthread_mutex_lock(&inode->lock);
    while (!t->done && !t->late)
        pthread_cond_wait(&f->cond, &inode->lock);
    if (t->done)
        return t->rc;
    t->left = f->commit_late = true;
    return -ETIMEDOUT;
}

int cl_commit_send(struct cl_file *f, bool anyway, uint64_t upto)
{
    struct cl_inode *inode = f->inode;
    struct cl_data *d = f->data;
    struct cl_batch *t = cl_batch_new();
    int rc;

    if (!t)
        return -ENOMEM;
    t->one_window = f->late_one_window;
    t->anyway = anyway;
    t->upto = upto;
    rc = cl_batch_collect(t, f);
    if (rc <= 0) {
        cl_batch_free(t);
        return rc;
    }
    f->committing = f->commit_late = t->left = t->unwaited = true;
    atomic_fetch_add(&d->late_commits, 1);
    pthread_mutex_unlock(&inode->lock);
    cl_inode_ref(d->m, inode); /* the answer's */
    cl_mgr_call_lasting(d->m, FP__MSG_TYPE__MSG_COMMIT, &t->msg.base, on_commit, t);
    pthread_mutex_lock(&inode->lock); /* t may be gone */
    return 1;
}

/*
 * inode->lock held: what the commit refers to is on a benefactor that is away. It may be only starting again; until then it is not known whether the data is
 * there. Then, or after the deadline, or when the mount ends, 1: on. In the end it is told anyway, so that it is there when the benefactor is, and the file has an error.
 */
static int wait_away(struct cl_file *f, struct cl_batch *t, uint64_t deadline_ms)
{
    uint64_t now_ms = fp_now_ms();

    deadline_ms = cl_by_end(f->data, deadline_ms);
    say_away(f);
    t->anyway = now_ms >= deadline_ms || atomic_load(&f->data->stopping);
    if (!t->anyway)
        (void)cl_file_wait(f, now_ms + AWAY_MS < deadline_ms ? now_ms + AWAY_MS : deadline_ms);
    return 1;
}

int cl_commit_stored(struct cl_file *f, bool durable, uint64_t deadline_ms)
{
    struct cl_batch *t;
    int rc;

    if (f->nstored == 0 && !cl_batch_says_end(f))
        return 0;
    t = cl_batch_new();
    if (!t)
        return -ENOMEM;
    rc = cl_map_begin(f, deadline_ms);
    if (rc == 0) {
        do {
            rc = commit_batch(f, t, durable);
            if (rc == FP_EAWAY && !t->left)
                rc = wait_away(f, t, deadline_ms);
        } while (rc == 1);
        if (t->left)
            return rc;
        cl_map_end(f);
    }
    cl_batch_free(t);
    return rc;
}
