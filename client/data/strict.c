/*
 * Writing to strict files (user.fp.strict, --strict): single-copy consistency. Runs on FUSE threads; the manager's answers come on the core loop. Reading them:
 * snapshot.c.
 *
 * A write(2) is stored and committed before it returns, all of its windows in one MSG_COMMIT: the manager executes that at one point between call and return,
 * and who asks the manager afterwards, on whatever node, sees all of it. Nothing else of this mount may see it before, or a program here would read what one
 * elsewhere reads the older version of after that. So the buffers of a write are not those of the inode's file, over which reads are laid, but of a cl_file of
 * its own that nobody else knows. Nor can a commit for another writer then take along half of this one. Each window is sealed when its bytes are in, so that
 * no write waits for pages of the pool while it holds pages that nothing will give back.
 *
 * Who appends leaves it to the manager where the end is (Commit.append).
 *
 * A write fails as a whole. One that failed because somebody did not answer in time may still be executed later: a commit stays until the manager has answered
 * it (commit.c says why), and until then no other change of this mount to that file is begun, for it could be overtaken. What aux-apps or a
 * benefactor still have of a write that has failed goes when they are done with it (cl_strict_tick).
 *
 * Rejected: a lock of the manager's per write and read, which costs two round trips and waits for nodes that hang; recalling what other mounts cache, which makes
 * reads free while nobody writes but makes each write wait for all mounts that read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/data/batch.h"
#include "client/data/internal.h"

#define AWAY_MS 300u /* until the next look whether a benefactor is back */

struct cl_strict {                     /* one write(2) */
    struct cl_strict *next;        /* d->strict_lock: of those left */
    struct cl_data *d;
    struct cl_file *f;             /* its own */
    struct cl_batch *t;
    bool append;
};

bool cl_data_is_strict(struct cl_mount *m, struct cl_inode *inode)
{
    bool strict;

    pthread_mutex_lock(&inode->lock);
    strict = m->opt.strict || inode->attr.strict;
    pthread_mutex_unlock(&inode->lock);
    return strict;
}

int cl_strict_attr(struct cl_data *d, struct cl_inode *inode)
{
    Fp__InodeReq req = FP__INODE_REQ__INIT;
    ProtobufCMessage *reply = NULL;
    const Fp__Attr *a;
    int rc;

    req.ino = inode->ino;
    rc = cl_mgr_call_sync(d->m, FP__MSG_TYPE__MSG_GETATTR, &req.base, &reply);
    if (rc < 0)
        return rc;
    a = ((const Fp__AttrReply *)reply)->attr;
    pthread_mutex_lock(&inode->lock);
    if (a)
        cl_inode_attr_update(inode, a);
    pthread_mutex_unlock(&inode->lock);
    rc = a ? 0 : -EPROTO;
    protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

/* -------------------------------------------------------------- beginning and end of one */

/* No memory: NULL. */
static struct cl_strict *write_new(struct cl_data *d, struct cl_inode *inode, bool append, bool kill_suidgid)
{
    struct cl_strict *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    w->d = d;
    w->append = append;
    w->t = cl_batch_new();
    pthread_mutex_lock(&inode->lock); /* an answer to another write may change its attributes */
    w->f = cl_file_new(d, inode);
    pthread_mutex_unlock(&inode->lock);
    if (!w->t || !w->f) {
        if (w->t)
            cl_batch_free(w->t);
        cl_file_free(w->f);
        free(w);
        return NULL;
    }
    w->f->own = true;
    w->t->whole = true;
    w->f->mtime_ns = fp_wall_ns();
    w->f->kill_suidgid = kill_suidgid;
    return w;
}

/* Nobody has anything of it any more. */
static void write_free(struct cl_strict *w)
{
    struct cl_inode *inode = w->f->inode;

    pthread_mutex_lock(&inode->lock);
    for (uint32_t i = 0; i < w->f->nwins; i++)
        while (w->f->wins[i]->bufs)
            cl_file_drop_buf(w->f, w->f->wins[i], w->f->wins[i]->bufs);
    pthread_mutex_unlock(&inode->lock);
    cl_file_free(w->f);
    cl_batch_free(w->t);
    free(w);
}

/* It has failed, and aux-apps or store threads still have some of it, or what is stored could not be told: the next tick. */
static void leave(struct cl_strict *w)
{
    cl_inode_ref(w->d->m, w->f->inode);
    pthread_mutex_lock(&w->d->strict_lock);
    w->next = w->d->strict_left;
    w->d->strict_left = w;
    pthread_mutex_unlock(&w->d->strict_lock);
}

/* The manager has not taken it, and may do so later. */
static bool to_be_told_again(int status)
{
    return status == FP_EAWAY || status == -ENOMEM || status == -ENOBUFS || status == -ENOSPC;
}

/* Core loop. */
static void on_discarded(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_strict *w = arg;
    struct cl_inode *inode = w->f->inode;
    struct cl_mount *m = w->d->m;

    (void)reply;
    if (status == FP_EDEADLINE)
        return; /* it comes once more */
    if (to_be_told_again(status) && !atomic_load(&w->d->stopping))
        leave(w);
    else
        write_free(w);
    cl_inode_put(m, inode);
}

/* It has failed, and what is stored of it is to go: a chunk that is told to the manager without a slice is deleted. All of it is stored, or failed. */
static void discard(struct cl_strict *w)
{
    struct cl_inode *inode = w->f->inode;
    struct cl_file *f = w->f;
    int rc;

    pthread_mutex_lock(&inode->lock);
    f->mtime_ns = 0;
    f->kill_suidgid = false;
    for (uint32_t i = 0; i < f->nwins; i++)
        for (struct cl_wbuf *b = f->wins[i]->bufs; b; b = b->next) {
            b->committing = false;
            cl_wbuf_truncate(b, 0);
        }
    w->t->anyway = true; /* no slice of it is put, so it is of no matter who is away */
    rc = cl_batch_collect(w->t, f);
    pthread_mutex_unlock(&inode->lock);
    if (rc <= 0 || atomic_load(&w->d->stopping)) {
        write_free(w);
        return;
    }
    cl_inode_ref(w->d->m, inode); /* the answer's */
    cl_mgr_call_lasting(w->d->m, FP__MSG_TYPE__MSG_COMMIT, &w->t->msg.base, on_discarded, w);
}

static bool is_stored(struct cl_strict *w, bool wait)
{
    struct cl_inode *inode = w->f->inode;
    bool is;

    pthread_mutex_lock(&inode->lock);
    while (wait && w->f->fl_head)
        (void)cl_file_wait(w->f, fp_now_ms() + 1000);
    is = !w->f->fl_head;
    pthread_mutex_unlock(&inode->lock);
    return is;
}

void cl_strict_tick(struct cl_data *d, bool end)
{
    struct cl_strict *list, *next;

    pthread_mutex_lock(&d->strict_lock);
    list = d->strict_left;
    d->strict_left = NULL;
    pthread_mutex_unlock(&d->strict_lock);
    for (; list; list = next) {
        struct cl_inode *inode = list->f->inode;

        next = list->next;
        if (is_stored(list, end))
            discard(list);
        else
            leave(list);
        cl_inode_put(d->m, inode);
    }
}

/* -------------------------------------------------------------- the commit */

/* inode->lock held: others of this mount, and fsync, know of it from now on. */
static void executed(struct cl_strict *w, const Fp__CommitReply *r)
{
    struct cl_file *f = cl_file_get(w->d, w->f->inode);

    w->t->rc = 0;
    if (!f || !r->attr)
        return;
    cl_file_changed(f, atomic_load(&w->d->lives));
    cl_file_forget_map(f);
    if (r->attr->data_version >= f->map_version)
        cl_map_changed(f, r);
    else
        cl_inode_attr_update(f->inode, r->attr); /* an answer that was sent again */
    if (w->t->refers)
        f->others_version = 0;
    if (r->n_bad_chunks > 0) {
        cl_data_note_error(w->d, "inode %llu: a write is the same as stored data that is damaged or on a benefactor that is away: write it again (fpctl status)",
                   (unsigned long long)f->inode->ino);
        w->t->rc = -EIO;
    }
}

/* inode->lock held: nobody waits for this one any more; changes that did may go on. */
static void late_no_more(struct cl_strict *w)
{
    struct cl_file *f = w->f->inode->file;

    f->strict_late--;
    pthread_cond_broadcast(&f->cond);
}

/* Core loop. FP_EDEADLINE comes first, if the manager takes too long (cl_mgr_call_lasting). */
static void on_commit(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_strict *w = arg;
    struct cl_inode *inode = w->f->inode;
    struct cl_mount *m = w->d->m;
    bool left;

    pthread_mutex_lock(&inode->lock);
    if (status == FP_EDEADLINE) {
        w->t->late = true;
        pthread_cond_broadcast(&w->f->cond);
        pthread_mutex_unlock(&inode->lock);
        return;
    }
    if (status < 0)
        w->t->rc = status;
    else
        executed(w, (const Fp__CommitReply *)reply);
    inode->unended |= status >= 0;
    left = w->t->left;
    if (left)
        late_no_more(w);
    w->t->done = true;
    pthread_cond_broadcast(&w->f->cond);
    pthread_mutex_unlock(&inode->lock); /* w may be gone from here on, unless it was left */
    if (left)
        write_free(w);
    cl_inode_put(m, inode);
}

/* inode->lock held: what is stored is not synced; fsync asks the inode's file. Its sync that is under way does not count for this. */
static void note_stored(struct cl_strict *w)
{
    struct cl_file *f = cl_file_get(w->d, w->f->inode);

    if (!f || !w->f->unsynced)
        return;
    if (!f->unsynced)
        f->losses_seen = w->f->losses_seen;
    f->unsynced = true;
    f->seal_seq++;
}

/* 0; *left: the manager has not answered in time, and w is not the caller's any more; or a negative code: it was not executed. */
static int commit_once(struct cl_strict *w, bool *left)
{
    struct cl_inode *inode = w->f->inode;
    struct cl_batch *t = w->t;
    int rc;

    pthread_mutex_lock(&inode->lock);
    rc = cl_batch_collect(t, w->f);
    if (rc > 0 && t->nbufs < w->f->nstored)
        rc = -EFBIG; /* in two it would be seen half done */
    if (rc < 0)
        goto out;
    t->msg.append = w->append;
    pthread_mutex_unlock(&inode->lock);
    cl_inode_ref(w->d->m, inode); /* the answer's */
    cl_mgr_call_lasting(w->d->m, FP__MSG_TYPE__MSG_COMMIT, &t->msg.base, on_commit, w);
    pthread_mutex_lock(&inode->lock);
    while (!t->done && !t->late)
        pthread_cond_wait(&w->f->cond, &inode->lock);
    rc = t->done ? t->rc : -EIO;
    if (!t->done) {
        t->left = *left = true;
        inode->file->strict_late++;
        cl_data_note_error(w->d, "inode %llu: a write is not published in time: the manager does not answer; it may be executed when it does",
                   (unsigned long long)inode->ino);
    }
out:
    for (size_t i = 0; !*left && i < t->nbufs; i++)
        t->buf[i]->committing = false;
    pthread_mutex_unlock(&inode->lock);
    return rc;
}

/* What it refers to may be on a benefactor that is only starting again. */
static int commit(struct cl_strict *w, bool *left)
{
    uint64_t deadline_ms = cl_deadline(w->d);
    int rc = commit_once(w, left);

    while (rc == FP_EAWAY && fp_now_ms() < cl_by_end(w->d, deadline_ms)) {
        usleep(AWAY_MS * 1000);
        rc = commit_once(w, left);
    }
    return rc;
}

/* -------------------------------------------------------------- the call */

/* A commit without an answer could be executed after what comes now. The inode has a file from here on. */
static int wait_for_turn(struct cl_data *d, struct cl_inode *inode)
{
    uint64_t deadline_ms = cl_deadline(d);
    struct cl_file *f;
    int rc;

    pthread_mutex_lock(&inode->lock);
    f = cl_file_get(d, inode);
    rc = f ? 0 : -ENOMEM;
    while (rc == 0 && f->strict_late > 0) {
        uint64_t until_ms = cl_by_end(d, deadline_ms);

        if (fp_now_ms() >= until_ms)
            rc = -EIO;
        else
            cl_file_wait_a_while(f, until_ms);
    }
    pthread_mutex_unlock(&inode->lock);
    return rc;
}

static int fill(struct cl_strict *w, const char *buf, size_t len, uint64_t off)
{
    struct cl_file *f = w->f;
    size_t done = 0;
    int rc = 0;

    while (rc == 0 && done < len) {
        uint32_t in_win = (uint32_t)((off + done) % f->window_bytes), n = f->window_bytes - in_win;

        if (n > len - done)
            n = (uint32_t)(len - done);
        rc = cl_write_window(w->d, f, (off + done) / f->window_bytes, in_win, buf + done, n);
        pthread_mutex_lock(&f->inode->lock);
        cl_file_seal_all(f);
        pthread_mutex_unlock(&f->inode->lock);
        done += n;
    }
    return rc;
}

/* inode->lock held. As publish.c waits: for as long as anything of the mount goes forward. */
static int wait_stored(struct cl_file *f)
{
    uint64_t from_ms = fp_now_ms();

    while (f->fl_head) {
        uint64_t until_ms = cl_patience_ends(f->data, from_ms);

        if (fp_now_ms() >= until_ms) {
            cl_data_note_error(f->data, "inode %llu: a write of %llu bytes is not stored in time, and nothing goes forward: it is not made",
                       (unsigned long long)f->inode->ino, (unsigned long long)f->dirty_bytes);
            return -EIO;
        }
        cl_file_wait_a_while(f, until_ms);
    }
    return 0;
}

/* w is the callee's. */
static int finish(struct cl_strict *w, int rc)
{
    struct cl_inode *inode = w->f->inode;
    bool left = false;
    int waited, err;

    pthread_mutex_lock(&inode->lock);
    waited = wait_stored(w->f);
    note_stored(w);
    err = w->f->error;
    pthread_mutex_unlock(&inode->lock);
    if (waited < 0) {
        leave(w);
        return waited;
    }
    rc = rc < 0 ? rc : err;
    if (rc == 0)
        rc = commit(w, &left);
    if (left)
        return rc;
    if (rc < 0)
        discard(w);
    else
        write_free(w);
    return rc;
}

ssize_t cl_strict_write(struct cl_data *d, struct cl_handle *h, const char *buf, size_t len, uint64_t off, bool append, bool kill_suidgid)
{
    struct cl_strict *w;
    int rc = wait_for_turn(d, h->inode);

    if (rc < 0)
        return rc;
    w = write_new(d, h->inode, append, kill_suidgid);
    if (!w)
        return -ENOMEM;
    rc = finish(w, fill(w, buf, len, off));
    if (rc == 0)
        atomic_fetch_add(&d->written_bytes, len);
    if (rc == 0 && (h->flags & (O_SYNC | O_DSYNC)))
        rc = cl_publish(d, h->inode, true, CL_BY_PROGRESS);
    return rc < 0 ? rc : (ssize_t)len;
}

ssize_t cl_data_append(struct cl_mount *m, struct cl_handle *h, const char *buf, size_t len, bool kill_suidgid)
{
    return len == 0 ? 0 : cl_strict_write(m->data, h, buf, len, 0, true, kill_suidgid);
}
