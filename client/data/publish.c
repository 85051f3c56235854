/*
 * Publishing: making what was written part of the file for everybody (close, fsync), and durable (fsync).
 *
 *   seal all open buffers -> wait until those sealed by now are stored -> (fsync: fdatasync of the segments) -> MSG_COMMIT -> (fsync: sync.c)
 *
 * Slices are told to the manager in the order of writing within a window, and only behind those before them. Until they are told, a file reads
 * for other nodes, and after a crash of this one, as it was: rewriting a checkpoint in place and dying keeps the old one.
 */
#include <errno.h>

#include "client/data/internal.h"

uint64_t cl_patience_ends(struct cl_data *d, uint64_t from_ms)
{
    uint64_t moved_ms = atomic_load(&d->moved_ms);

    return cl_by_end(d, (moved_ms > from_ms ? moved_ms : from_ms) + d->m->opt.io_timeout_ms);
}

int cl_stands_still(struct cl_file *f)
{
    if (atomic_load(&f->data->end_ms) != 0)
        return -EIO;
    cl_data_note_error(f->data, "inode %llu: %llu bytes are not stored in time, and nothing goes forward; they are published if they are stored later",
               (unsigned long long)f->inode->ino, (unsigned long long)f->dirty_bytes);
    return -EIO;
}

/*
 * inode->lock held: wait until everything sealed so far has been stored. By progress of the mount and not of the file: the aux-apps take chunks one after the
 * other, so what is in front of this file's is what it waits for. How often that may be is bounded by the pool: no chunk that comes later is waited for.
 */
static int wait_stored(struct cl_file *f, uint64_t deadline_ms)
{
    uint64_t upto = f->seal_seq, from_ms = fp_now_ms();

    while (f->fl_head && f->fl_head->seal_seq <= upto) {
        uint64_t until_ms = deadline_ms != CL_BY_PROGRESS ? deadline_ms : cl_patience_ends(f->data, from_ms);

        if (fp_now_ms() >= until_ms)
            return cl_stands_still(f);
        cl_file_wait_a_while(f, until_ms);
    }
    return 0;
}

/* inode->lock held: nobody is copying into a buffer that is to be sealed. */
static int wait_writers(struct cl_file *f, uint64_t deadline_ms)
{
    for (uint32_t i = 0; i < f->nwins; i++)
        for (struct cl_wbuf *b = f->wins[i]->bufs; b; b = b->next)
            if (b->state == CL_WBUF_OPEN && b->seal_wanted) {
                if (!cl_file_wait(f, deadline_ms))
                    return -EIO;
                return -EAGAIN;
            }
    return 0;
}

/* inode->lock held: stored buffers that the manager does not know yet. */
static bool stored_on(const struct cl_file *f, const struct cl_unsynced *failed)
{
    for (uint32_t i = 0; i < f->nwins; i++)
        for (struct cl_wbuf *b = f->wins[i]->bufs; b; b = b->next)
            if (b->state == CL_WBUF_STORED && cl_unsynced_has(failed, b->chunk.bnf))
                return true;
    return false;
}

/* A benefactor that is away must not fail the fsync of files that have nothing there. */
static bool concerns(struct cl_data *d, struct cl_inode *inode, const struct cl_unsynced *failed)
{
    bool found;

    pthread_mutex_lock(&inode->lock);
    found = inode->file && stored_on(inode->file, failed);
    pthread_mutex_unlock(&inode->lock);
    return found || cl_sync_concerns(d, inode, failed); /* what is committed meanwhile has left the buffers for the map, not the other way */
}

/* Without lock. Nor must it hold them up: it is waited for only if the file has something there. */
static int sync_stored(struct cl_data *d, struct cl_inode *inode)
{
    struct cl_unsynced failed;
    int rc = cl_bnfs_sync_present(d, &failed);

    if (rc < 0 && !concerns(d, inode, &failed))
        return 0;
    if (rc < 0 && failed.untried) {
        rc = cl_bnfs_sync(d, &failed);
        if (rc < 0 && !concerns(d, inode, &failed))
            return 0;
    }
    return rc;
}

/* inode->lock held; let go for the devices. */
static int make_durable(struct cl_file *f)
{
    struct cl_inode *inode = f->inode;
    uint64_t losses, sealed = f->seal_seq;
    int rc;

    pthread_mutex_unlock(&inode->lock);
    rc = sync_stored(f->data, inode);
    losses = atomic_load(&f->data->losses);
    pthread_mutex_lock(&inode->lock);
    if (rc == 0 && f->unsynced && f->losses_seen != losses) {
        f->losses_seen = f->others_losses = losses; /* told once, whoever stored what is lost */
        cl_file_set_error(f, -EIO, 0, "a benefactor lost data that had not been synced");
        return -EIO;
    }
    if (rc == 0 && f->seal_seq == sealed)
        f->unsynced = false;
    return rc;
}

int cl_publish_stored(struct cl_data *d, struct cl_inode *inode, bool durable, uint64_t deadline_ms)
{
    int rc;

    (void)d;
    pthread_mutex_lock(&inode->lock);
    rc = inode->file ? cl_commit_stored(inode->file, durable, deadline_ms) : 0;
    pthread_mutex_unlock(&inode->lock);
    return rc;
}

/* What becomes of the file's error. */
enum its_error {
    TAKEN,                         /* the caller's from now on */
    LEFT,                          /* the caller has it, and the next one */
    NEW                            /* the same, if there was none before */
};

/* inode->lock held. */
static int error_of(struct cl_file *f, enum its_error what, int before)
{
    if (what == TAKEN)
        return cl_file_take_error(f);
    return what == NEW && before < 0 ? 0 : f->error;
}

static int publish(struct cl_data *d, struct cl_inode *inode, bool durable, enum its_error what, uint64_t deadline_ms)
{
    struct cl_file *f;
    int rc = 0, err;

    pthread_mutex_lock(&inode->lock);
    f = inode->file;
    if (!f && durable && cl_forgotten_has(d->forgotten, inode->ino)) {
        f = cl_file_get(d, inode);
        rc = f ? 0 : -ENOMEM;
    }
    if (f) {
        uint64_t until_ms = deadline_ms != CL_BY_PROGRESS ? deadline_ms : cl_deadline(d);
        int before = f->error;

        cl_file_seal_all(f);
        do
            rc = wait_writers(f, until_ms);
        while (rc == -EAGAIN);
        if (rc == 0)
            rc = wait_stored(f, deadline_ms);
        if (rc == 0 && durable)
            rc = make_durable(f);
        if (rc == 0)
            rc = cl_commit_stored(f, durable, deadline_ms != CL_BY_PROGRESS ? deadline_ms : cl_deadline(d));
        err = error_of(f, what, before);
        if (err < 0)
            rc = err;
    }
    pthread_mutex_unlock(&inode->lock);
    if (!f && rc == 0 && durable) /* written and closed before, and forgotten since: its segments may wait for a sync all the same */
        rc = sync_stored(d, inode);
    if (rc == 0 && durable)
        rc = cl_sync_others(d, inode);
    if (rc == 0 && durable) {
        pthread_mutex_lock(&inode->lock);
        rc = inode->file && cl_file_tell_forgotten(inode->file) ? -EIO : 0;
        if (rc == 0 && !cl_file_is_dirty(inode->file))
            inode->unended = false; /* as MSG_SYNC has it */
        pthread_mutex_unlock(&inode->lock);
    }
    return rc;
}

int cl_publish(struct cl_data *d, struct cl_inode *inode, bool durable, uint64_t deadline_ms)
{
    return publish(d, inode, durable, TAKEN, deadline_ms);
}

int cl_publish_for_others(struct cl_data *d, struct cl_inode *inode, uint64_t deadline_ms)
{
    return publish(d, inode, false, LEFT, deadline_ms);
}

int cl_publish_at_end(struct cl_data *d, struct cl_inode *inode, uint64_t deadline_ms)
{
    return publish(d, inode, false, NEW, deadline_ms);
}

int cl_data_flush(struct cl_mount *m, struct cl_inode *inode)
{
    return cl_publish(m->data, inode, false, CL_BY_PROGRESS);
}

int cl_data_close(struct cl_mount *m, struct cl_handle *h)
{
    int rc = publish(m->data, h->inode, false, LEFT, CL_BY_PROGRESS);

    pthread_mutex_lock(&h->inode->lock);
    h->close_told = rc < 0;
    pthread_mutex_unlock(&h->inode->lock);
    return rc;
}

int cl_data_fsync(struct cl_mount *m, struct cl_inode *inode)
{
    return cl_publish(m->data, inode, true, CL_BY_PROGRESS);
}
