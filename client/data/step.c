/*
 * Publishing by steps, for who must not wait for it: a file on which another mount waits, among many such files (append.c).
 *
 *   seal -> nobody copies into it any more -> stored -> commit (commit.c) -> answered -> done
 *                                               ^------- to be tried again ---'
 *
 * Each step does what can be done now. What publish.c waits for with a thread is waited for here by being called again, with the same deadlines: storing
 * has --io-timeout from the last time that anything of the mount went forward; a commit for which a benefactor is away is tried for --io-timeout, then told
 * all the same; a manager that does not answer has --manager-timeout on top. What is written after the first step is not waited for.
 * What was written after the close (behind.c: closed_only) is not told either: a program that begins to rewrite the file in place and dies shall not leave a part of that.
 *
 * cl_release_step does the same for last handles, and more: it must not let go of what can't be published. To share one state machine was looked at; what they
 * do when something fails is all that is long in either.
 *
 * Called on the thread of client/lockwork.c.
 */
#include <errno.h>

#include "client/data/batch.h"
#include "client/data/internal.h"

#define AWAY_MS 300u /* until the next look whether a benefactor is back */

enum { WRITERS, STORING, COMMITTING };

/* inode->lock held: somebody copies into a buffer that is to be sealed. */
static bool has_writers(const struct cl_file *f)
{
    for (uint32_t i = 0; i < f->nwins; i++)
        for (const struct cl_wbuf *b = f->wins[i]->bufs; b; b = b->next)
            if (b->state == CL_WBUF_OPEN && b->seal_wanted)
                return true;
    return false;
}

/* inode->lock held: something that was sealed by then is stored, and the manager does not know it. */
static bool has_stored(const struct cl_file *f, uint64_t upto)
{
    for (uint32_t i = 0; i < f->nwins; i++)
        for (const struct cl_wbuf *b = f->wins[i]->bufs; b; b = b->next)
            if (b->state == CL_WBUF_STORED && b->seal_seq <= upto)
                return true;
    return false;
}

/* inode->lock held. It was closed while the last of it was on its way to the manager, which has not heard of the close. */
static bool has_end(const struct cl_file *f, const struct cl_publishing *p)
{
    return p->closed_only && cl_batch_says_end(f);
}

/* inode->lock held, let go to send. 1: it is on its way. */
static int commit(struct cl_file *f, struct cl_publishing *p, uint64_t now_ms)
{
    struct cl_data *d = f->data;
    uint64_t io_ms = d->m->opt.io_timeout_ms;
    bool over = now_ms >= cl_by_end(d, p->since_ms + io_ms);
    int wait = now_ms < cl_by_end(d, p->since_ms + io_ms + d->m->opt.manager_timeout_ms) ? 1 : -ETIMEDOUT;

    if (f->committing)
        return wait;
    if (!has_stored(f, p->upto) && !has_end(f, p))
        return 0;
    if (p->sent && f->late_rc < 0) {
        if (f->late_rc != FP_EAWAY || p->anyway)
            return f->late_rc;
        if (now_ms < p->again_ms && !over)
            return 1;
    }
    if (atomic_load(&d->end_ms) != 0 || atomic_load(&d->late_commits) >= CL_COMMITS_MAX)
        return wait; /* at the end of the mount cl_data_sync_at_end does it for all files */
    p->again_ms = now_ms + AWAY_MS;
    p->anyway = p->sent && over;
    p->sent = true;
    return cl_commit_send(f, p->anyway, p->closed_only ? p->upto : UINT64_MAX);
}

/* inode->lock held. */
static int step(struct cl_file *f, struct cl_publishing *p)
{
    uint64_t now_ms = fp_now_ms();
    int rc;

    if (p->since_ms == 0) {
        if (!p->closed_only)
            cl_file_seal_all(f);
        p->since_ms = now_ms;
    }
    if (p->state == WRITERS) {
        if (has_writers(f))
            return now_ms < p->since_ms + f->data->m->opt.io_timeout_ms ? 1 : -EIO;
        p->upto = p->closed_only && f->inode->closed_upto < f->seal_seq ? f->inode->closed_upto : f->seal_seq;
        p->since_ms = now_ms;
        p->state = STORING;
    }
    if (p->state == STORING) {
        if (f->fl_head && f->fl_head->seal_seq <= p->upto)
            return now_ms < cl_patience_ends(f->data, p->since_ms) ? 1 : cl_stands_still(f);
        p->since_ms = now_ms;
        p->state = COMMITTING;
    }
    rc = commit(f, p, now_ms);
    return rc == 0 ? f->error : rc;
}

int cl_data_publish_step(struct cl_mount *m, struct cl_inode *inode, struct cl_publishing *p)
{
    int rc = 0;

    (void)m;
    pthread_mutex_lock(&inode->lock);
    if (inode->file && (p->since_ms != 0 || cl_file_is_dirty(inode->file) || has_end(inode->file, p)))
        rc = step(inode->file, p);
    pthread_mutex_unlock(&inode->lock);
    return rc;
}
