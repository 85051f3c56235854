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

#define AHEAD_CHUNKS_MAX 32

struct ahead_job {
	struct cl_job job;             /* first */
	struct cl_rchunk *entry;
};

static void ahead_run(struct cl_job *job)
{
	struct ahead_job *a = (struct ahead_job *)job;

	(void)cl_rcache_load(a->entry, 0, a->entry->blocks - 1, false, 0); /* a failure is the reader's to find */
	cl_rcache_put(a->entry);
	free(a);
}

static void post(struct cl_data *d, const struct cl_chunk_ref *ref)
{
	struct cl_rchunk *e = cl_rcache_get(d->rcache, ref);
	struct ahead_job *a;

	if (!e)
		return;
	a = cl_rcache_has(e, 0, e->blocks - 1) ? NULL : calloc(1, sizeof(*a));
	if (!a) {
		cl_rcache_put(e);
		return;
	}
	a->job.run = ahead_run;
	a->entry = e;
	cl_jobs_post(d->jobs, &a->job, true);
}

/* inode->lock held: chunks of the windows [h->ahead_win, last] as far as they are known. */
static int collect(struct cl_file *f, struct cl_handle *h, uint64_t last, struct cl_chunk_ref *refs)
{
	int n = 0;

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
	int n = 0;

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
		n = collect(f, h, last, refs);
	}
	pthread_mutex_unlock(&h->inode->lock);
	for (int i = 0; i < n; i++)
		post(d, &refs[i]);
}
