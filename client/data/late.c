/*
 * Last closes that came while data of the file was still on its way to the store, because its close could not wait for it (or nobody waited: written
 * through a mapping, a program that was killed). The handle stays, and counts, until all of that has landed; then it ends like any other, which publishes
 * what was stored. So nothing that was accepted is dropped for having taken long.
 *
 * One thread, made when it is first needed, looks at the list every TICK_MS. To wait in the release itself was rejected: it takes a FUSE thread for as
 * long as aux-apps stand still, and store threads, on which handles end too, are what is waited for. If no thread can be had, handles stay in the list
 * until the next one asks for it; the end of the mount publishes what was stored all the same.
 *
 * Whatever is on its way lands: aux-apps answer, or are ended by their deadlines and bypassed, or the mount ends; a benefactor has --io-timeout.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/data/internal.h"

#define TICK_MS 50u

struct cl_late {
	pthread_mutex_t lock;
	pthread_cond_t cond;           /* stop */
	struct cl_handle *head, **tail; /* lock */
	bool started, stop;            /* lock */
	pthread_t thread;
};

int cl_late_new(struct cl_data *d)
{
	struct cl_late *l = calloc(1, sizeof(*l));
	pthread_condattr_t a;

	if (!l)
		return -ENOMEM;
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&l->cond, &a);
	pthread_condattr_destroy(&a);
	l->tail = &l->head;
	d->late = l;
	return 0;
}

/* It is the last handle, and something is on its way to the store. */
static bool must_wait(struct cl_inode *inode)
{
	bool wait;

	pthread_mutex_lock(&inode->lock);
	wait = inode->handles == 1 && inode->file && inode->file->fl_head;
	pthread_mutex_unlock(&inode->lock);
	return wait;
}

/* lock held: take one that need not wait any more out of the list. */
static struct cl_handle *take_ready(struct cl_late *l)
{
	struct cl_handle **p = &l->head, *h;

	while (*p && must_wait((*p)->inode))
		p = &(*p)->late_next;
	h = *p;
	if (!h)
		return NULL;
	*p = h->late_next;
	if (l->tail == &h->late_next)
		l->tail = p;
	return h;
}

/* lock held. */
static void append(struct cl_late *l, struct cl_handle *h)
{
	h->late_next = NULL;
	*l->tail = h;
	l->tail = &h->late_next;
}

static void *late_thread(void *arg)
{
	struct cl_mount *m = arg;
	struct cl_late *l = m->data->late;
	struct cl_handle *h;
	bool done;

	pthread_mutex_lock(&l->lock);
	while (!l->stop) {
		h = take_ready(l);
		if (h) {
			pthread_mutex_unlock(&l->lock);
			done = cl_release_try(m->data, h->inode);
			if (done)
				h->late_end(m, h);
			pthread_mutex_lock(&l->lock);
			if (!done)
				append(l, h);
		} else {
			uint64_t at_ms = fp_now_ms() + TICK_MS;
			struct timespec ts = { .tv_sec = (time_t)(at_ms / 1000), .tv_nsec = (long)(at_ms % 1000) * 1000000 };

			if (l->head)
				pthread_cond_timedwait(&l->cond, &l->lock, &ts);
			else
				pthread_cond_wait(&l->cond, &l->lock);
		}
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

void cl_late_add(struct cl_mount *m, struct cl_handle *h, void (*end)(struct cl_mount *m, struct cl_handle *h))
{
	struct cl_late *l = m->data->late;

	pthread_mutex_lock(&l->lock);
	if (!l->started && !l->stop)
		l->started = pthread_create(&l->thread, NULL, late_thread, m) == 0;
	h->late_end = end;
	append(l, h);
	pthread_cond_signal(&l->cond);
	pthread_mutex_unlock(&l->lock);
}

void cl_data_late_stop(struct cl_mount *m)
{
	struct cl_late *l = m->data->late;
	bool started;

	pthread_mutex_lock(&l->lock);
	l->stop = true;
	started = l->started;
	l->started = false;
	pthread_cond_signal(&l->cond);
	pthread_mutex_unlock(&l->lock);
	if (started)
		pthread_join(l->thread, NULL);
}

void cl_late_free(struct cl_data *d)
{
	struct cl_late *l = d->late;

	if (!l)
		return;
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->cond);
	free(l);
	d->late = NULL;
}
