/*
 * Read-ahead: a handle that reads on where it stopped gets the next chunks loaded by the store threads. Called by FUSE threads before they
 * read, so that the disk works on what comes next while this read waits for its own chunk.
 *
 * Only whole stored slices in windows whose map is known are asked for; a window with unpublished writes is left to the reader. Pages for
 * reading ahead are taken only while a quarter of the pool stays free for writers.
 */
#include <stdlib.h>

#include "client/data/internal.h"
#include "client/data/load.h"

#define AHEAD_CHUNKS_MAX 32u

struct load_job {
	struct cl_job job;             /* first */
	struct cl_rchunk *entry;
};

struct ahead_job {
	struct cl_job job;             /* first */
	struct cl_data *data;
	uint32_t n;
	struct cl_rchunk *entry[AHEAD_CHUNKS_MAX];
};

static void load(struct cl_rchunk *e)
{
	(void)cl_rcache_load(e, 0, e->blocks - 1, false, 0); /* a failure is the reader's to find */
	cl_rcache_put(e);
}

static void load_run(struct cl_job *job)
{
	struct load_job *l = (struct load_job *)job;

	load(l->entry);
	free(l);
}

/* Where they lie is asked at once, then each is loaded by whichever thread is free. */
static void ahead_run(struct cl_job *job)
{
	struct ahead_job *a = (struct ahead_job *)job;

	cl_load_locate(a->data, a->entry, a->n);
	for (uint32_t i = 1; i < a->n; i++) {
		struct load_job *l = calloc(1, sizeof(*l));

		if (!l) {
			cl_rcache_put(a->entry[i]);
			continue;
		}
		l->job.run = load_run;
		l->entry = a->entry[i];
		cl_jobs_post(a->data->jobs, &l->job, true);
	}
	if (a->n > 0)
		load(a->entry[0]);
	free(a);
}

static void post(struct cl_data *d, const struct cl_chunk_ref *refs, uint32_t n)
{
	struct ahead_job *a = calloc(1, sizeof(*a));

	if (!a)
		return;
	a->job.run = ahead_run;
	a->data = d;
	for (uint32_t i = 0; i < n; i++) {
		struct cl_rchunk *e = cl_rcache_get(d->rcache, &refs[i]);

		if (e && cl_rcache_has(e, 0, e->blocks - 1))
			cl_rcache_put(e);
		else if (e)
			a->entry[a->n++] = e;
	}
	cl_jobs_post(d->jobs, &a->job, true);
}

/* inode->lock held: chunks of the windows [h->ahead_win, last] as far as they are known. */
static uint32_t collect(struct cl_file *f, struct cl_handle *h, uint64_t last, struct cl_chunk_ref *refs)
{
	uint32_t n = 0;

	for (; h->ahead_win <= last && n < AHEAD_CHUNKS_MAX; h->ahead_win++) {
		struct cl_win *w = cl_file_win(f, h->ahead_win, false);

		if (!w || !w->known)
			break;
		for (uint32_t i = 0; i < w->nslices && n < AHEAD_CHUNKS_MAX && !w->bufs; i++)
			if (i == 0 || w->slices[i].chunk.id != w->slices[i - 1].chunk.id)
				refs[n++] = w->slices[i].chunk;
	}
	return n;
}

void cl_readahead(struct cl_data *d, struct cl_handle *h, uint64_t off, uint64_t end_off)
{
	struct cl_chunk_ref refs[AHEAD_CHUNKS_MAX];
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
			n = collect(f, h, last, refs);
	}
	pthread_mutex_unlock(&h->inode->lock);
	if (n > 0)
		post(d, refs, n);
}
