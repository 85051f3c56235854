/*
 * Read-ahead: a handle that reads on where it stopped gets the next chunks loaded by the store threads. Called by FUSE threads before they
 * read, so that the disk works on what comes next while this read waits for its own chunk.
 *
 * Only stored slices in windows whose map is known are asked for; a window with unpublished writes is left to the reader. Of a chunk, the blocks between
 * the first and the last that slices name are loaded: a window that aux-apps left may consist of a little of many chunks. Pages for
 * reading ahead are taken only while a quarter of the pool stays free for writers.
 */
#include <stdlib.h>

#include "client/data/ext.h"
#include "client/data/internal.h"
#include "client/data/load.h"

#define AHEAD_CHUNKS_MAX 32u

struct part {                      /* of a chunk */
    struct cl_chunk_ref ref;
    struct cl_rchunk *entry;
    uint32_t first, last;          /* blocks */
};

struct load_job {
    struct cl_job job;             /* first */
    struct part part;
};

struct ahead_job {
    struct cl_job job;             /* first */
    struct cl_data *data;
    uint32_t n;
    struct part part[AHEAD_CHUNKS_MAX];
};

static void load(const struct part *p)
{
    (void)cl_rcache_load(p->entry, p->first, p->last, false, 0); /* a failure is the reader's to find */
    cl_rcache_put(p->entry);
}

static void load_run(struct cl_job *job)
{
    struct load_job *l = (struct load_job *)job;

    load(&l->part);
    free(l);
}

/* Where they lie is asked at once, then each is loaded by whichever thread is free. */
static void ahead_run(struct cl_job *job)
{
    struct ahead_job *a = (struct ahead_job *)job;
    struct cl_rchunk *entry[AHEAD_CHUNKS_MAX];

    for (uint32_t i = 0; i < a->n; i++)
        entry[i] = a->part[i].entry;
    cl_load_locate(a->data, entry, a->n);
    for (uint32_t i = 1; i < a->n; i++) {
        struct load_job *l = calloc(1, sizeof(*l));

        if (!l) {
            cl_rcache_put(a->part[i].entry);
            continue;
        }
        l->job.run = load_run;
        l->part = a->part[i];
        cl_jobs_post(a->data->jobs, &l->job, true);
    }
    if (a->n > 0)
        load(&a->part[0]);
    free(a);
}

static void post(struct cl_data *d, const struct part *parts, uint32_t n)
{
    struct ahead_job *a = calloc(1, sizeof(*a));

    if (!a)
        return;
    a->job.run = ahead_run;
    a->data = d;
    for (uint32_t i = 0; i < n; i++) {
        struct cl_rchunk *e;

        if (parts[i].ref.ext) { /* no store thread waits for a target */
            cl_ext_fetch_ahead(d, &parts[i].ref);
            continue;
        }
        e = cl_rcache_get(d->rcache, &parts[i].ref);
        if (e && cl_rcache_has(e, parts[i].first, parts[i].last)) {
            cl_rcache_put(e);
        } else if (e) {
            a->part[a->n] = parts[i];
            a->part[a->n++].entry = e;
        }
    }
    cl_jobs_post(d->jobs, &a->job, true);
}

static uint32_t add_slice(struct part *parts, uint32_t n, const struct cl_slice *s)
{
    uint32_t first = s->chunk_off / CL_PAGE_BYTES, last = (s->chunk_off + s->len - 1) / CL_PAGE_BYTES, i = n;

    while (i > 0 && parts[i - 1].ref.id != s->chunk.id)
        i--;
    if (i == 0) {
        parts[n] = (struct part){ .ref = s->chunk, .first = first, .last = last };
        return n + 1;
    }
    if (first < parts[i - 1].first)
        parts[i - 1].first = first;
    if (last > parts[i - 1].last)
        parts[i - 1].last = last;
    return n;
}

/* inode->lock held: chunks of the windows [h->ahead_win, last] as far as they are known. */
static uint32_t collect(struct cl_file *f, struct cl_handle *h, uint64_t last, struct part *parts)
{
    uint32_t n = 0;

    for (; h->ahead_win <= last && n < AHEAD_CHUNKS_MAX; h->ahead_win++) {
        struct cl_win *w = cl_file_win(f, h->ahead_win, false);

        if (!w || !w->known)
            break;
        for (uint32_t i = 0; i < w->nslices && n < AHEAD_CHUNKS_MAX && !w->bufs; i++)
            n = add_slice(parts, n, &w->slices[i]);
    }
    return n;
}

void cl_readahead(struct cl_data *d, struct cl_handle *h, uint64_t off, uint64_t end_off)
{
    struct part parts[AHEAD_CHUNKS_MAX];
    struct cl_file *f = h->inode->file;
    uint64_t ahead = d->m->opt.read_ahead_bytes, cur, last;
    uint32_t n = 0;

    if (ahead == 0)
        return;
    pthread_mutex_lock(&h->inode->lock);
    h->sequential = off == h->next_off ? h->sequential + 1 : 0;
    h->next_off = end_off;
    cur = off / f->window_bytes;
    last = (end_off + ahead) / f->window_bytes;
    if (h->sequential == 0)
        h->ahead_win = 0;
    if (h->sequential > 0) {
        if (h->ahead_win <= cur)
            h->ahead_win = cur + 1;
        if (h->ahead_win <= cur + (last - cur) / 2) /* half is used up: the next half in one go */
            n = collect(f, h, last, parts);
    }
    pthread_mutex_unlock(&h->inode->lock);
    if (n > 0)
        post(d, parts, n);
}
