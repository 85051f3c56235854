/*
 * What the manager has been told and may have forgotten: its database is synced when somebody asks for it (MSG_SYNC), and loses the last commits with the
 * power of its node. A hello of another life (HelloReply.unsynced_life) says so. A file that this mount had changed since the last sync is told by its next
 * fsync, once, also if it was closed in between.
 *
 * Each change of a file that the manager has confirmed gets a number (cl_file_changed). A sync that was sent after it covers it (cl_changes_synced), whatever
 * file it was for. When a life ends, the files whose last change is not covered have lost something, perhaps; which, nobody knows.
 *
 * Confirmations come on the core loop or, of truncations and copies, on FUSE threads; lives end on the core loop, before anything is heard from the next.
 * To publish once more what is still in the pool was rejected: pages are given back when they are stored, and mostly it is not there.
 */
#include "client/data/internal.h"

void cl_file_changed(struct cl_file *f, uint64_t lives)
{
    struct cl_data *d = f->data;

    f->last_change = atomic_fetch_add(&d->changes, 1) + 1;
    if (atomic_load(&d->lives) != lives)
        f->forgotten_by_manager = true; /* by which of them it was confirmed is not known here */
}

void cl_changes_synced(struct cl_data *d, uint64_t upto)
{
    uint64_t was = atomic_load(&d->changes_synced);

    while (was < upto && !atomic_compare_exchange_weak(&d->changes_synced, &was, upto))
        ;
}

bool cl_file_tell_forgotten(struct cl_file *f)
{
    bool tell = f->forgotten_by_manager;

    f->forgotten_by_manager = false;
    if (tell)
        cl_data_note_error(f->data, "inode %llu: the manager lost what had not been synced: data that was published before may be gone",
                   (unsigned long long)f->inode->ino);
    return tell;
}

static void look_at(struct cl_inode *inode, void *arg)
{
    struct cl_data *d = arg;

    pthread_mutex_lock(&inode->lock);
    if (inode->file && inode->file->last_change > atomic_load(&d->changes_synced))
        inode->file->forgotten_by_manager = true;
    pthread_mutex_unlock(&inode->lock);
}

void cl_data_manager_lost(struct cl_mount *m)
{
    struct cl_data *d = m->data;
    uint64_t synced = atomic_load(&d->changes_synced);

    atomic_fetch_add(&d->lives, 1);
    cl_forgotten_by_manager(d->forgotten, synced);
    cl_inode_each(m, look_at, d);
    cl_forgotten_by_manager(d->forgotten, synced); /* those that have left the table between */
    FP_WARN("the manager lost what was not synced (its node was started again): fsync will tell the files");
}
