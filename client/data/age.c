/*
 * The list of open write buffers of all files, oldest first: which partly filled windows to write out under pressure (the pool is empty) or
 * by age. Called by FUSE threads (add, remove, pressure) and by the tick.
 *
 * The list has a lock of its own below the inode's, so the inode of the oldest buffer is found with the list's lock, referenced, and only
 * then locked itself: by then the buffer may be gone, which does no harm, since sealing looks the window up again.
 */
#include <stdlib.h>

#include "client/data/internal.h"
#include "client/data/reserve.h"

void cl_age_add(struct cl_data *d, struct cl_wbuf *b)
{
    pthread_mutex_lock(&d->age_lock);
    b->age_next = NULL;
    b->age_prev = d->newest;
    if (d->newest)
        d->newest->age_next = b;
    else
        d->oldest = b;
    d->newest = b;
    b->aged = true;
    pthread_mutex_unlock(&d->age_lock);
}

void cl_age_remove(struct cl_data *d, struct cl_wbuf *b)
{
    pthread_mutex_lock(&d->age_lock);
    if (b->aged) {
        if (b->age_prev)
            b->age_prev->age_next = b->age_next;
        else
            d->oldest = b->age_next;
        if (b->age_next)
            b->age_next->age_prev = b->age_prev;
        else
            d->newest = b->age_prev;
        b->aged = false;
    }
    pthread_mutex_unlock(&d->age_lock);
}

/* Inode (referenced) and window of the oldest buffer opened before before_ms; it goes to the end of the list, so that a buffer that can't be sealed
 * yet does not stop the others. */
static struct cl_inode *oldest_before(struct cl_data *d, uint64_t before_ms, uint64_t *win)
{
    struct cl_inode *inode = NULL;
    struct cl_wbuf *b;

    pthread_mutex_lock(&d->age_lock);
    b = d->oldest;
    if (b && b->opened_ms < before_ms) {
        inode = b->file->inode;
        *win = b->win;
        cl_inode_ref(d->m, inode);
        d->oldest = b->age_next;
        if (b->age_next)
            b->age_next->age_prev = NULL;
        else
            d->newest = NULL;
        b->aged = false;
    }
    pthread_mutex_unlock(&d->age_lock);
    return inode;
}

static bool seal_oldest(struct cl_data *d, uint64_t before_ms)
{
    uint64_t win;
    struct cl_inode *inode = oldest_before(d, before_ms, &win);
    struct cl_win *w;
    struct cl_wbuf *b;

    if (!inode)
        return false;
    pthread_mutex_lock(&inode->lock);
    w = inode->file ? cl_file_win(inode->file, win, false) : NULL;
    b = w ? cl_win_open_buf(w) : NULL;
    if (b)
        cl_file_seal(inode->file, w, b);
    pthread_mutex_unlock(&inode->lock);
    cl_inode_put(d->m, inode);
    return true;
}

void cl_age_pressure(void *data)
{
    struct cl_data *d = data;

    cl_jobs_hurry(d->jobs);
    for (int i = 0; i < 8 && seal_oldest(d, UINT64_MAX); i++)
        ;
}

struct found {
    struct cl_inode *inode;
    uint64_t win;
};

/* All that there are now, with references (malloced; NULL: none, or no memory). */
static struct found *all_open(struct cl_data *d, size_t *n)
{
    struct found *out;
    size_t count = 0;

    *n = 0;
    pthread_mutex_lock(&d->age_lock);
    for (const struct cl_wbuf *b = d->oldest; b; b = b->age_next)
        count++;
    out = count ? malloc(count * sizeof(*out)) : NULL;
    for (struct cl_wbuf *b = d->oldest; b && out; b = b->age_next) {
        out[(*n)++] = (struct found){ b->file->inode, b->win };
        cl_inode_ref(d->m, b->file->inode);
    }
    pthread_mutex_unlock(&d->age_lock);
    return out;
}

void cl_age_trim(struct cl_data *d)
{
    size_t n;
    struct found *found = all_open(d, &n);

    for (size_t i = 0; i < n; i++) {
        struct cl_inode *inode = found[i].inode;
        struct cl_win *w;
        struct cl_wbuf *b;

        pthread_mutex_lock(&inode->lock);
        w = inode->file ? cl_file_win(inode->file, found[i].win, false) : NULL;
        b = w ? cl_win_open_buf(w) : NULL;
        if (b)
            cl_reserve_trim(d, b, inode->file->window_bytes);
        pthread_mutex_unlock(&inode->lock);
        cl_inode_put(d->m, inode);
    }
    free(found);
}

void cl_age_tick(struct cl_data *d, uint64_t now_ms)
{
    while (now_ms > CL_WINDOW_AGE_MS && seal_oldest(d, now_ms - CL_WINDOW_AGE_MS))
        ;
}
