/*
 * write(): bytes into the chunk pool. Runs on FUSE threads.
 *
 * Pages and leased space are taken before the inode is locked, since both may have to wait; then the window is looked up, the pages put in
 * place, and the bytes copied without the lock (`writers` keeps the buffer from being sealed meanwhile), so that ranks writing to one shared file
 * copy in parallel. The reply goes out as soon as the bytes are in the pool: writing to the device is the store threads' matter.
 *
 * Bytes that the kernel has put into pages of the pool (client/receive.c) are not copied where they lie in a page as they lie in a window's that is not there yet: the page
 * that was taken for it and the one with the bytes change places. So who writes has waited for the pool as everybody does, and who receives has as many
 * pages as before. Never with a page that is there already: another writer may be copying into it. No page has bytes of two windows, since these are multiples of pages.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/aux/aux.h"
#include "client/data/internal.h"
#include "client/data/reserve.h"

/* What a write to one window brings along, taken before the lock. */
struct supply {
    uint8_t *pages[CL_WBUF_PAGES_MAX + 1];
    uint32_t npages;
    struct cl_wbuf *fresh;             /* a new buffer with a reservation */
    uint32_t stripe;                   /* of the file */
};

/* Where the bytes are: from place `at` on, of what is at buf or in pages. */
struct source {
    const char *buf;
    uint8_t **page;                    /* NULL: buf */
    size_t at;
};

static int supply_buffer(struct cl_data *d, struct cl_inode *inode, uint32_t window_bytes, uint64_t win, uint32_t len, struct supply *s)
{
    const struct cl_reserve_for r = { .win = win, .window_bytes = window_bytes, .stripe = s->stripe };
    int rc;

    s->fresh = cl_wbuf_new(NULL, win, window_bytes);
    if (!s->fresh)
        return -ENOMEM;
    rc = cl_reserve(d, inode, &r, len, s->fresh);
    if (rc < 0) {
        cl_wbuf_free(s->fresh);
        s->fresh = NULL;
    }
    return rc;
}

static void supply_return(struct cl_data *d, struct supply *s)
{
    if (s->npages)
        cl_pool_put(d->pool, s->pages, s->npages);
    if (s->fresh) {
        cl_space_release(d, &s->fresh->resv);
        cl_wbuf_free(s->fresh);
    }
}

static void append_buf(struct cl_file *f, struct cl_win *w, struct cl_wbuf *b)
{
    struct cl_wbuf **p = &w->bufs;

    while (*p)
        p = &(*p)->next;
    *p = b;
    b->file = f;
    b->opened_ms = fp_now_ms();
    f->nopen++;
    cl_age_add(f->data, b);
}

/*
 * inode->lock held: the buffer that takes [off, off+len) of window w. -EAGAIN: a new one is needed and s has none. A buffer that can't take it
 * is sealed.
 */
static int choose_buf(struct cl_file *f, struct cl_win *w, uint32_t off, uint32_t len, struct supply *s, struct cl_wbuf **out)
{
    struct cl_wbuf *b = cl_win_open_buf(w);

    if (b && ((b->writers == 0 && cl_wbuf_would_overflow(b, off, len)) || b->nranges + b->writers >= CL_WBUF_RANGES_MAX - 1 ||
          !cl_reserve_more(f->data, b, cl_wbuf_needs(b, off, len, f->window_bytes), f->window_bytes))) {
        cl_file_seal(f, w, b);
        b = NULL;
    }
    if (!b) {
        if (!s->fresh)
            return -EAGAIN;
        b = s->fresh;
        s->fresh = NULL;
        append_buf(f, w, b);
    }
    *out = b;
    return 0;
}

static void account(struct cl_file *f, uint64_t before, uint64_t after)
{
    f->dirty_bytes += after - before;
    atomic_fetch_add(&f->data->dirty_bytes, after - before);
}

/* inode->lock held, the bytes are in. */
static void written(struct cl_file *f, struct cl_win *w, struct cl_wbuf *b, uint64_t win, uint32_t off, uint32_t len)
{
    uint64_t before = cl_wbuf_bytes(b), end = win * f->window_bytes + off + len;

    (void)cl_wbuf_add_range(b, off, len); /* choose_buf kept room */
    account(f, before, cl_wbuf_bytes(b));
    if (end > f->end_written)
        f->end_written = end;
    b->writers--;
    b->copying -= len;
    if (b->seal_wanted || cl_wbuf_is_full(b, f->window_bytes))
        cl_file_seal(f, w, b);
}

/* inode->lock held: pages where there are none. True: all bytes are in now. */
static bool attach(struct cl_wbuf *b, uint32_t off, uint32_t len, const struct source *from, struct supply *s, bool *taken)
{
    uint32_t n = s->npages, used;
    bool all = false;

    if (from->page && off % CL_PAGE_BYTES == from->at % CL_PAGE_BYTES) {
        used = cl_wbuf_attach_received(b, off, len, s->pages, from->page + from->at / CL_PAGE_BYTES, taken);
        for (all = true; n > 0 && all; n--)
            all = taken[n - 1];
    } else {
        used = cl_wbuf_attach(b, off, len, s->pages);
    }
    memmove(s->pages, s->pages + used, (s->npages - used) * sizeof(s->pages[0]));
    s->npages -= used;
    return all;
}

/* Without the lock: what was not taken as it is. */
static void copy_in(struct cl_wbuf *b, uint32_t off, uint32_t len, const struct source *from, const bool *taken)
{
    size_t at = from->at;

    if (!from->page) {
        cl_wbuf_copy_in(b, off, from->buf + at, len);
        return;
    }
    while (len > 0) {
        uint32_t in_page = (uint32_t)(at % CL_PAGE_BYTES), n = CL_PAGE_BYTES - in_page;

        if (n > len)
            n = len;
        if (!taken[at / CL_PAGE_BYTES - from->at / CL_PAGE_BYTES])
            cl_wbuf_copy_in(b, off, from->page[at / CL_PAGE_BYTES] + in_page, n);
        at += n;
        off += n;
        len -= n;
    }
}

static int write_window(struct cl_data *d, struct cl_file *f, uint64_t win, uint32_t off, const struct source *from, uint32_t len)
{
    struct cl_inode *inode = f->inode;
    struct supply s = { .npages = (off + len - 1) / CL_PAGE_BYTES - off / CL_PAGE_BYTES + 1 };
    bool taken[CL_WBUF_PAGES_MAX + 1] = { false };
    struct cl_wbuf *b = NULL;
    struct cl_win *w;
    int rc = cl_pool_get(d->pool, s.pages, s.npages, cl_deadline(d));

    if (rc < 0)
        return rc == -ETIMEDOUT ? -EIO : rc;
    pthread_mutex_lock(&inode->lock);
    for (;;) {
        w = cl_file_win(f, win, true);
        rc = w ? choose_buf(f, w, off, len, &s, &b) : -ENOMEM;
        if (rc != -EAGAIN)
            break;
        s.stripe = inode->attr.stripe;
        pthread_mutex_unlock(&inode->lock);
        rc = supply_buffer(d, inode, f->window_bytes, win, len, &s);
        pthread_mutex_lock(&inode->lock);
        if (rc < 0)
            break;
    }
    if (rc < 0)
        goto out;
    b->writers++;
    b->copying += len;
    if (!attach(b, off, len, from, &s, taken)) {
        pthread_mutex_unlock(&inode->lock);
        copy_in(b, off, len, from, taken);
        pthread_mutex_lock(&inode->lock);
    }
    written(f, cl_file_win(f, win, false), b, win, off, len);
out:
    pthread_mutex_unlock(&inode->lock);
    supply_return(d, &s);
    return rc;
}

int cl_write_window(struct cl_data *d, struct cl_file *f, uint64_t win, uint32_t off, const char *buf, uint32_t len)
{
    const struct source from = { .buf = buf };

    return write_window(d, f, win, off, &from, len);
}

/* Error of an earlier store, and the bookkeeping every write does. The error stays for fsync or close: the kernel may have split one write(2), whose first
 * part went well; what this one says is then lost in a short count. */
static int begin(struct cl_data *d, struct cl_inode *inode, bool kill_suidgid, struct cl_file **out, uint32_t *nstored)
{
    struct cl_file *f;
    int rc;

    pthread_mutex_lock(&inode->lock);
    f = cl_file_get(d, inode);
    rc = f ? f->error : -ENOMEM;
    if (rc == 0) {
        f->mtime_ns = fp_wall_ns();
        f->kill_suidgid |= kill_suidgid;
        *nstored = f->note_bytes < CL_UNCOMMITTED_NOTES_MAX_BYTES ? f->nstored : CL_UNCOMMITTED_MAX;
    }
    pthread_mutex_unlock(&inode->lock);
    *out = f;
    return rc;
}

/* Whether what is stored may wait for who writes: no close waits for it, and it does not go to cores of its own, or by way of aux-apps that run anyway. */
static bool may_hold(struct cl_data *d)
{
    return d->m->opt.close_mode == CL_CLOSE_BEHIND && d->m->opt.ncores == 0 && !cl_aux_chunks(d->m);
}

static ssize_t write_all(struct cl_mount *m, struct cl_handle *h, struct source *from, size_t len, uint64_t off, bool kill_suidgid)
{
    struct cl_data *d = m->data;
    struct cl_file *f;
    uint32_t nstored = 0;
    size_t done = 0;
    int rc;

    if (len == 0)
        return 0;
    if (off > INT64_MAX - len)
        return -EFBIG;
    if (len >= CL_PAGE_BYTES && may_hold(d))
        cl_jobs_burst(d->jobs, atomic_load(&d->dirty_bytes) + len <= cl_pool_pages(d->pool) * (uint64_t)CL_PAGE_BYTES / 2);
    rc = begin(d, h->inode, kill_suidgid, &f, &nstored);
    while (rc == 0 && done < len) {
        uint32_t in_win = (uint32_t)((off + done) % f->window_bytes), n = f->window_bytes - in_win;

        if (n > len - done)
            n = (uint32_t)(len - done);
        rc = write_window(d, f, (off + done) / f->window_bytes, in_win, from, n);
        if (rc == 0) {
            from->at += n;
            done += n;
        }
    }
    atomic_fetch_add(&d->written_bytes, done);
    if (done == 0)
        return rc;
    if (nstored >= CL_UNCOMMITTED_MAX)
        (void)cl_publish_stored(d, h->inode, false, cl_deadline(d));
    if (h->flags & (O_SYNC | O_DSYNC)) {
        rc = cl_publish(d, h->inode, true, CL_BY_PROGRESS);
        if (rc < 0)
            return rc;
    }
    return (ssize_t)done;
}

ssize_t cl_data_write(struct cl_mount *m, struct cl_handle *h, const char *buf, size_t len, uint64_t off, bool kill_suidgid)
{
    struct source from = { .buf = buf };

    if (h->strict && len > 0 && off <= INT64_MAX - len)
        return cl_strict_write(m->data, h, buf, len, off, false, kill_suidgid);
    return write_all(m, h, &from, len, off, kill_suidgid);
}

ssize_t cl_data_write_pages(struct cl_mount *m, struct cl_handle *h, uint8_t **pages, uint32_t at, size_t len, uint64_t off, bool kill_suidgid)
{
    struct source from = { .page = pages, .at = at };

    return write_all(m, h, &from, len, off, kill_suidgid);
}
