/*
 * What was written and is lost, and how it is told: the log, `fpctl status`, and one closing line at the end of the mount that says of how many files how much.
 *
 * Each byte counts once. What is lost while the mount runs is told when it happens, and the application by an error of its next call. From when the mount ends
 * on, losses are also added up for the closing line; what is not published when it is said counts as lost with it, whatever becomes of it in the threads that
 * still run: a commit that is failed for want of an answer, a buffer that a store thread gives back. So nothing of that file counts after it, and nothing is
 * logged as an error behind it: who reads the end of a log, as fp-store does, finds the sum.
 *
 * A strict write (strict.c) that fails has not been made, and its caller knows: nothing is lost by it.
 *
 * To add up at the end what is still in the buffers, and no more, was rejected: a store that fails while the mount ends drops them before.
 *
 * Called by any thread. The lock over the closing line is above the inodes' locks; that of the error's text is a leaf.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "client/data/internal.h"

/* The calls that say that what was written is there. */
static const char *confirms(const struct cl_data *d)
{
    return d->m->opt.close_mode == CL_CLOSE_BEHIND ? "fsync" : "close or fsync";
}

static void note(struct cl_data *d, const char *fmt, va_list ap)
{
    atomic_fetch_add(&d->errors, 1);
    pthread_mutex_lock(&d->error_lock);
    vsnprintf(d->last_error, sizeof(d->last_error), fmt, ap);
    d->last_error_ns = fp_wall_ns();
    if (d->closed)
        FP_LOG_EVERY(200, FP_LOG_INFO, "%s", d->last_error);
    else
        FP_LOG_EVERY(200, FP_LOG_ERROR, "%s", d->last_error);
    pthread_mutex_unlock(&d->error_lock);
}

void cl_data_note_error(struct cl_data *d, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    note(d, fmt, ap);
    va_end(ap);
}

/* inode->lock held. */
static void count(struct cl_file *f, uint64_t bytes)
{
    struct cl_data *d = f->data;

    if (f->own)
        return;
    atomic_store(&d->lost, true);
    if (bytes == 0 || f->closed)
        return;
    atomic_fetch_add(&d->lost_bytes, bytes);
    if (atomic_load(&d->end_ms) == 0 && !atomic_load(&d->stopping))
        return;
    atomic_fetch_add(&d->end_bytes, bytes);
    atomic_fetch_add(&d->end_files, !f->lost_at_end);
    f->lost_at_end = true;
}

void cl_file_lost(struct cl_file *f, uint64_t bytes, const char *fmt, ...)
{
    va_list ap;

    count(f, bytes);
    va_start(ap, fmt);
    note(f->data, fmt, ap);
    va_end(ap);
}

void cl_file_set_error(struct cl_file *f, int err, uint64_t bytes, const char *what)
{
    if (!f->error)
        f->error = err;
    if (f->fold) /* what was to be stored is stored already */
        return;
    if (err != -ENOENT) /* another mount has removed the file: nothing is missing */
        count(f, bytes);
    if (f->own)
        cl_data_note_error(f->data, "inode %llu: %s: %s; that write was not made", (unsigned long long)f->inode->ino, what,
                   fp_strerror(err));
    else
        cl_data_note_error(f->data, "inode %llu: %s: %s; the last %s that succeeded is still good",
                   (unsigned long long)f->inode->ino, what, fp_strerror(err), confirms(f->data));
}

bool cl_data_has_lost(struct cl_mount *m)
{
    return atomic_load(&m->data->lost);
}

/* Is lost with the closing line; nothing of it counts any more. */
static void close_one(struct cl_inode *inode, void *arg)
{
    struct cl_file *f;

    (void)arg;
    pthread_mutex_lock(&inode->lock);
    f = inode->file;
    if (f && inode->attr.nlink > 0 && f->dirty_bytes + f->uncommitted_bytes > 0) { /* else it ends with the last close anyway */
        atomic_fetch_add(&f->data->lost_bytes, f->dirty_bytes + f->uncommitted_bytes);
        atomic_fetch_add(&f->data->end_bytes, f->dirty_bytes + f->uncommitted_bytes);
        atomic_fetch_add(&f->data->end_files, !f->lost_at_end);
    }
    if (f)
        f->closed = true;
    pthread_mutex_unlock(&inode->lock);
}

/* error_lock held from the line on: no error that is under way is logged behind it. */
static void say(struct cl_data *d)
{
    uint64_t bytes = atomic_load(&d->end_bytes), files = atomic_load(&d->end_files);
    char size[FP_UNITS_BUF];

    if (bytes == 0)
        return;
    atomic_store(&d->lost, true);
    pthread_mutex_lock(&d->error_lock);
    d->closed = true;
    FP_ERROR("%s of %llu file%s that no %s had confirmed are lost", fp_format_size(size, bytes), (unsigned long long)files,
         files == 1 ? "" : "s", confirms(d));
    pthread_mutex_unlock(&d->error_lock);
}

bool cl_data_give_up(struct cl_mount *m)
{
    struct cl_data *d = m->data;
    bool lost;

    pthread_mutex_lock(&d->end_lock);
    if (!d->given_up) {
        cl_inode_each(m, close_one, NULL);
        say(d);
    }
    d->given_up = true;
    lost = atomic_load(&d->end_bytes) > 0;
    pthread_mutex_unlock(&d->end_lock);
    return lost;
}
