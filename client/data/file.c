/*
 * One file in the data path: its windows and write buffers. Everything here runs with the inode's lock held and does no I/O.
 *
 * Windows are an array sorted by number: a stream appends at its end, and a reader finds by bisection. What decides about a buffer (may it take
 * this write, when is it sealed, what does a truncate cut) is in wbuf.c; here is the bookkeeping around it.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/data/internal.h"
#include "client/data/packed.h"
#include "client/data/reserve.h"
#include "fp/grown.h"

#define LOOK_MS 200u

struct cl_file *cl_file_new(struct cl_data *d, struct cl_inode *inode)
{
    pthread_condattr_t a;
    struct cl_file *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->inode = inode;
    f->data = d;
    f->window_bytes = inode->attr.chunk_size_bytes ? inode->attr.chunk_size_bytes : d->m->default_chunk_size_bytes;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&f->cond, &a);
    pthread_condattr_destroy(&a);
    return f;
}

struct cl_file *cl_file_get(struct cl_data *d, struct cl_inode *inode)
{
    struct cl_file *f = inode->file;
    struct cl_left left;

    if (f)
        return f;
    f = cl_file_new(d, inode);
    if (!f)
        return NULL;
    f->map_version = inode->attr.data_version;
    if (inode->attr.size_bytes == 0)
        f->others_version = inode->attr.data_version; /* there was nothing that others could have stored */
    f->others_losses = atomic_load(&d->losses);
    cl_forgotten_take(d->forgotten, inode->ino, &left);
    f->unsynced = left.unsynced;
    f->losses_seen = left.losses_seen;
    f->last_change = left.last_change;
    f->forgotten_by_manager = left.forgotten_by_manager;
    inode->file = f;
    return f;
}

void cl_file_free(struct cl_file *f)
{
    if (!f)
        return;
    for (uint32_t i = 0; i < f->nwins; i++) {
        assert(!f->wins[i]->bufs);
        free(f->wins[i]->slices);
        free(f->wins[i]);
    }
    free(f->wins);
    pthread_cond_destroy(&f->cond);
    free(f);
}

uint32_t cl_file_first_win(const struct cl_file *f, uint64_t win)
{
    uint32_t lo = 0, hi = f->nwins;

    if (hi > 0 && f->wins[hi - 1]->win < win)
        return hi;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (f->wins[mid]->win < win)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Drop windows that hold nothing unpublished: what is known of them can be asked for again. */
static void drop_clean(struct cl_file *f)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < f->nwins; i++) {
        struct cl_win *w = f->wins[i];

        if (w->bufs) {
            f->wins[kept++] = w;
            continue;
        }
        free(w->slices);
        free(w);
    }
    f->nwins = kept;
}

struct cl_win *cl_file_win(struct cl_file *f, uint64_t win, bool make)
{
    uint32_t i = cl_file_first_win(f, win);
    struct cl_win *w, **list;

    if (i < f->nwins && f->wins[i]->win == win)
        return f->wins[i];
    if (!make)
        return NULL;
    if (f->nwins >= CL_WINS_MAX) {
        drop_clean(f);
        i = cl_file_first_win(f, win);
    }
    list = fp_grown(f->wins, f->nwins, &f->wins_cap, sizeof(*list));
    if (!list)
        return NULL;
    f->wins = list;
    w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    w->win = win;
    memmove(&f->wins[i + 1], &f->wins[i], (f->nwins - i) * sizeof(f->wins[0]));
    f->wins[i] = w;
    f->nwins++;
    return w;
}

void cl_file_forget_map(struct cl_file *f)
{
    drop_clean(f);
    for (uint32_t i = 0; i < f->nwins; i++) {
        struct cl_win *w = f->wins[i];

        free(w->slices);
        w->slices = NULL;
        w->nslices = 0;
        w->known = false;
    }
}

void cl_data_news(struct cl_inode *inode, uint64_t data_version)
{
    struct cl_file *f = inode->file;

    if (!f || data_version <= f->map_version)
        return;
    cl_file_forget_map(f);
    f->map_version = data_version;
}

struct cl_wbuf *cl_win_open_buf(struct cl_win *w)
{
    struct cl_wbuf *b = w->bufs;

    while (b && b->next)
        b = b->next;
    return b && b->state == CL_WBUF_OPEN && !b->seal_wanted ? b : NULL;
}

uint64_t cl_file_size_bytes(const struct cl_file *f)
{
    uint64_t size = f->inode->attr.size_bytes, gone = cl_gone_end(&f->gone);

    if (gone > size)
        size = gone;
    return f->end_written > size ? f->end_written : size;
}

int cl_file_take_error(struct cl_file *f)
{
    int err = f->error;

    f->error = 0;
    f->gone.n = 0;
    return err;
}

bool cl_file_wait(struct cl_file *f, uint64_t deadline_ms)
{
    struct timespec ts = { .tv_sec = (time_t)(deadline_ms / 1000), .tv_nsec = (long)(deadline_ms % 1000) * 1000000 };

    if (f->fl_head)
        cl_jobs_hurry(f->data->jobs);
    return pthread_cond_timedwait(&f->cond, &f->inode->lock, &ts) != ETIMEDOUT;
}

void cl_file_wait_a_while(struct cl_file *f, uint64_t deadline_ms)
{
    uint64_t look_ms = fp_now_ms() + LOOK_MS;

    (void)cl_file_wait(f, look_ms < deadline_ms ? look_ms : deadline_ms);
}

/* -------------------------------------------------------------- buffers */

void cl_file_uncount(struct cl_file *f, struct cl_wbuf *b)
{
    f->uncommitted_bytes -= b->counted_bytes;
    atomic_fetch_sub(&f->data->uncommitted_bytes, b->counted_bytes);
    b->counted_bytes = 0;
}

void cl_file_gone(struct cl_file *f, const struct cl_wbuf *b)
{
    uint64_t base = b->win * f->window_bytes;

    if (f->own || f->fold)
        return;
    for (uint32_t i = 0; i < b->nranges; i++)
        cl_gone_add(&f->gone, base + b->range[i].off, base + b->range[i].off + b->range[i].len);
}

void cl_file_drop_buf(struct cl_file *f, struct cl_win *w, struct cl_wbuf *b)
{
    struct cl_data *d = f->data;
    struct cl_wbuf **p = &w->bufs;
    uint64_t bytes = cl_wbuf_bytes(b);

    while (*p != b)
        p = &(*p)->next;
    *p = b->next;
    if (b->state == CL_WBUF_OPEN) {
        cl_age_remove(d, b);
        f->nopen--;
    }
    if (b->state == CL_WBUF_STORED) {
        f->nstored--;
        f->note_bytes -= cl_packed_note_bytes(b->packed);
        cl_file_uncount(f, b);
    } else if (b->state == CL_WBUF_OPEN && !f->fold) {
        f->dirty_bytes -= bytes;
        atomic_fetch_sub(&d->dirty_bytes, bytes);
    }
    cl_pool_put(d->pool, b->page, b->npages);
    cl_space_release(d, &b->resv);
    cl_packed_free(d, b->packed);
    cl_wbuf_free(b);
    if (f->nopen + f->ninflight + f->nstored == 0)
        f->end_written = f->append_base = 0; /* nothing unpublished: the size is the manager's */
    pthread_cond_broadcast(&f->cond);
}

static void seal_now(struct cl_file *f, struct cl_win *w, struct cl_wbuf *b)
{
    uint8_t *spare[CL_WBUF_PAGES_MAX];
    uint32_t n;

    if (b->nranges == 0) {
        cl_file_drop_buf(f, w, b);
        return;
    }
    cl_age_remove(f->data, b);
    b->counted_bytes = f->fold ? 0 : cl_wbuf_bytes(b);
    n = cl_wbuf_seal(b, spare);
    cl_reserve_sealed(f->data, b);
    f->nopen--;
    f->ninflight++;
    b->seal_seq = ++f->seal_seq;
    b->fl_prev = f->fl_tail;
    if (f->fl_tail)
        f->fl_tail->fl_next = b;
    else
        f->fl_head = b;
    f->fl_tail = b;
    cl_pool_put(f->data->pool, spare, n);
    cl_store_sealed(f->data, b);
}

void cl_file_landed(struct cl_file *f, struct cl_wbuf *b)
{
    if (b->fl_prev)
        b->fl_prev->fl_next = b->fl_next;
    else
        f->fl_head = b->fl_next;
    if (b->fl_next)
        b->fl_next->fl_prev = b->fl_prev;
    else
        f->fl_tail = b->fl_prev;
    f->ninflight--;
    f->dirty_bytes -= b->counted_bytes;
    atomic_fetch_sub(&f->data->dirty_bytes, b->counted_bytes);
}

void cl_file_seal(struct cl_file *f, struct cl_win *w, struct cl_wbuf *b)
{
    b->seal_wanted = true;
    if (b->writers == 0)
        seal_now(f, w, b);
}

void cl_file_seal_all(struct cl_file *f)
{
    for (uint32_t i = 0; i < f->nwins; i++) {
        struct cl_wbuf *b = cl_win_open_buf(f->wins[i]);

        if (b)
            cl_file_seal(f, f->wins[i], b);
    }
}
