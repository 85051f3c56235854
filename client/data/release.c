/*
 * The end of a handle. What the last one of a file leaves unpublished (written through a mapping, by a program that was killed, or with a close that could
 * not wait for it) is published before it ends.
 *
 * Nothing here waits: cl_release_step does what can be done now, first on the thread that releases, then, if something is on its way, on that of late.c, again
 * and again. A thousand such handles wait side by side, and each has its own deadline, which counts from its own first failure.
 *
 *   open buffers -> sealed -> (store threads, aux-apps) -> stored -> commit (commit.c) -> answered -> done
 *                                                            ^---------- to be tried again ---'
 *
 * What is on its way to the store ends by itself: aux-apps answer, or are ended by their deadlines and bypassed; a benefactor has --io-timeout. A commit ends
 * when the manager answers, as soon as it is back. One for which a benefactor is away is tried for --io-timeout, then told to the manager all the same, which
 * leaves out what can't be had; any other failure is tried for as long, then what is left is told as lost.
 *
 * To publish as close does, with a thread that waits, was rejected: with many files it needs as many threads, or their deadlines add up.
 */
#include "client/data/internal.h"

#define AGAIN_MS 1000u /* until a commit that failed is tried again */

/* inode->lock held: drop what is in no store and on no way to one. Without a handle, nobody copies into it. */
static void drop_open(struct cl_file *f)
{
    for (uint32_t i = 0; i < f->nwins; i++) {
        struct cl_wbuf *b = cl_win_open_buf(f->wins[i]);

        if (b && b->writers == 0)
            cl_file_drop_buf(f, f->wins[i], b);
    }
}

/* inode->lock held: drop what is not published; returns its bytes. */
static uint64_t discard(struct cl_file *f)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < f->nwins; i++)
        while (f->wins[i]->bufs) {
            bytes += cl_wbuf_bytes(f->wins[i]->bufs);
            cl_file_drop_buf(f, f->wins[i], f->wins[i]->bufs);
        }
    return bytes;
}

static void give_up(struct cl_file *f)
{
    uint64_t lost = discard(f);

    if (lost > 0 && f->inode->attr.nlink > 0)
        cl_file_lost(f, lost, "inode %llu: %llu bytes that could not be published are lost with the last close: %s",
                 (unsigned long long)f->inode->ino, (unsigned long long)lost, fp_strerror(f->late_rc));
    if (lost > 0 && f->inode->untold && !f->error)
        f->error = f->late_rc;
    f->late_rc = 0;
}

/* inode->lock held, let go over the call: all of it is stored, and nobody has the map. */
static enum cl_release commit(struct cl_file *f, struct cl_handle *h, bool may_commit)
{
    uint64_t now_ms = fp_now_ms();
    bool over;
    int rc;

    if (f->late_rc < 0 && h->late_by_ms == 0)
        h->late_by_ms = now_ms + f->data->m->opt.io_timeout_ms;
    over = f->late_rc < 0 && now_ms >= h->late_by_ms;
    if (over && (f->late_rc != FP_EAWAY || h->late_anyway) && f->inode->behind && f->inode->attr.nlink > 0) {
        h->late_by_ms = now_ms + f->data->m->opt.io_timeout_ms; /* no close tells it: it is never given up */
        h->late_anyway = over = false;
    }
    if (over && (f->late_rc != FP_EAWAY || h->late_anyway)) {
        give_up(f);
        return CL_RELEASE_DONE;
    }
    if (f->late_rc < 0 && now_ms < h->late_again_ms && !over)
        return CL_RELEASE_WAITS;
    if (!may_commit)
        return CL_RELEASE_TURN;
    h->late_again_ms = now_ms + AGAIN_MS;
    h->late_anyway = over;
    rc = cl_commit_send(f, over, UINT64_MAX);
    if (rc < 0)
        f->late_rc = rc;
    return CL_RELEASE_WAITS;
}

/*
 * inode->lock held: the last handle of a file with something unpublished. What is stored of a file that was unlinked is published, too: the manager takes the
 * chunks and deletes them with the file, at the release; else their space would be taken until this mount ends.
 */
static enum cl_release last(struct cl_file *f, struct cl_handle *h, bool may_commit)
{
    bool unlinked = f->inode->attr.nlink == 0;

    if (unlinked)
        drop_open(f);
    else
        cl_file_seal_all(f);
    if (f->fl_head || f->committing)
        return CL_RELEASE_WAITS;
    if (!cl_file_is_dirty(f))
        return CL_RELEASE_DONE;
    if (f->nopen > 0)
        return CL_RELEASE_WAITS; /* somebody still copies into it */
    return commit(f, h, may_commit);
}

/*
 * inode->lock held: what was closed behind is lost, and nobody has been told. What others have removed, or written since, is another matter. So is what no close has seen (a mapping): the
 * rest of the file was told to the manager, and it is not to be given back what it was before.
 */
bool cl_file_is_lost(const struct cl_file *f)
{
    return f && f->data->m->opt.close_mode == CL_CLOSE_BEHIND && f->error < 0 && f->error != -ENOENT && f->error != FP_EOVERTAKEN;
}

/* inode->lock held. The release tells the manager how it ended; no commit is to say something else before. */
static void no_more(struct cl_data *d, struct cl_inode *inode, struct cl_handle *h)
{
    bool lost = cl_file_is_lost(inode->file);

    if (lost && (!inode->behind || inode->handles == 1 || atomic_load(&d->end_ms) != 0)) /* else that is told when all of it has ended */
        cl_behind_tell_lost(d, inode);
    h->torn |= lost;
    if (h->writes && atomic_load(&h->closing) != CL_CLOSED)
        inode->unclosed--;
    inode->hurt |= h->writes && (h->torn || h->close_told);
    if (--inode->handles == 0) {
        inode->hurt = inode->unended = false;
        inode->positional = false;
    }
}

enum cl_release cl_release_step(struct cl_data *d, struct cl_handle *h, bool may_commit)
{
    struct cl_inode *inode = h->inode;
    enum cl_release rc = CL_RELEASE_DONE;

    if (atomic_load(&d->end_ms) != 0)
        may_commit = false; /* cl_data_sync_at_end does it for all files, and has a time for it */
    pthread_mutex_lock(&inode->lock);
    if (inode->handles == 1 && cl_file_is_dirty(inode->file)) /* else another one does what is to be done, or nothing is */
        rc = last(inode->file, h, may_commit);
    if (rc == CL_RELEASE_DONE)
        no_more(d, inode, h);
    if (rc == CL_RELEASE_DONE && inode->handles == 0 && h->late_end && inode->file)
        cl_behind_keep_error(d, inode); /* no close will tell it: the log and the status have, and the end of the mount does */
    pthread_mutex_unlock(&inode->lock);
    return rc;
}

void cl_data_release(struct cl_mount *m, struct cl_handle *h, void (*end)(struct cl_mount *m, struct cl_handle *h))
{
    pthread_mutex_lock(&h->inode->lock);
    if (h->close_told && h->inode->file)
        (void)cl_file_take_error(h->inode->file);
    pthread_mutex_unlock(&h->inode->lock);
    if (cl_release_step(m->data, h, false) == CL_RELEASE_DONE)
        end(m, h);
    else
        cl_late_add(m, h, end);
}
