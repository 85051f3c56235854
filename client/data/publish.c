/*
 * Publishing: making what was written part of the file for everybody (close, fsync), and durable (fsync).
 *
 *   seal all open buffers -> wait until those sealed by now are stored -> (fsync: fdatasync of the segments) -> MSG_COMMIT -> (fsync: sync.c)
 *
 * Slices are told to the manager in the order of writing within a window, and only behind those before them. Until they are told, a file reads
 * for other nodes, and after a crash of this one, as it was: rewriting a checkpoint in place and dying keeps the old one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/data/batch.h"
#include "client/data/internal.h"

#define AWAY_MS 300u /* until the next look whether a benefactor is back */

static bool is_bad(const Fp__CommitReply *r, uint64_t chunk)
{
	for (size_t i = 0; i < r->n_bad_chunks; i++)
		if (r->bad_chunks[i] == chunk)
			return true;
	return false;
}

/*
 * inode->lock held: stored chunks that slices named can't be read. When the pages of these windows were given back the manager vouched for them (store.c), so they
 * have become bad since; nobody has the bytes any more. The rest of the commit is good.
 */
static void bad_references(struct cl_file *f, const struct cl_batch *t, const Fp__CommitReply *r)
{
	uint64_t lost = 0, first = UINT64_MAX;

	for (size_t i = 0; i < t->msg.n_slices; i++) {
		const Fp__Slice *s = &t->slice[i];
		uint64_t off = s->win * f->window_bytes + s->off;

		if (s->chunk == 0 || !is_bad(r, s->chunk))
			continue;
		lost += s->len;
		if (off < first)
			first = off;
	}
	if (!f->error)
		f->error = -EIO;
	cl_data_lost(f->data, lost, "inode %llu: %llu bytes from %llu on are the same as stored ones that are damaged or on a benefactor that is away: write them again (fpctl status)",
		     (unsigned long long)f->inode->ino, (unsigned long long)lost, (unsigned long long)first);
}

/* inode->lock held: the manager has these. */
static void committed(struct cl_file *f, struct cl_batch *t, const Fp__CommitReply *r)
{
	cl_map_changed(f, r);
	if (r->n_bad_chunks > 0)
		bad_references(f, t, r);
	if (t->refers)
		f->others_version = 0; /* the chunks may be anybody's */
	for (size_t i = 0; i < t->nbufs; i++) {
		struct cl_win *w = t->win[i];

		w->known = false;
		w->nslices = 0;
		free(w->slices);
		w->slices = NULL;
		cl_file_drop_buf(f, w, t->buf[i]);
	}
	if (f->nopen + f->ninflight + f->nstored == 0) {
		f->end_written = 0;
		if (f->mtime_ns == t->msg.mtime_ns)
			f->mtime_ns = 0;
		f->kill_suidgid = false;
	}
}

/* The manager refused for good (the file is gone, the session was forgotten): these bytes have no place any more. */
static bool refused(int rc)
{
	return rc == -ENOENT || rc == -EINVAL || rc == FP_ESESSION || rc == -EPERM;
}

/*
 * inode->lock held: a window would consist of too many pieces to be told to a reader. If it is one of several, each is tried by itself, so that only that one
 * suffers. Its chunks are told to the manager without any slice, to be deleted.
 */
static void too_many_pieces(struct cl_file *f, struct cl_batch *t)
{
	uint64_t lost = 0;

	for (size_t i = 0; i < t->nbufs; i++) {
		t->buf[i]->committing = false;
		if (!t->one_window)
			continue;
		lost += t->buf[i]->counted_bytes;
		cl_wbuf_truncate(t->buf[i], 0);
	}
	if (t->one_window && !f->error)
		f->error = -EFBIG;
	if (t->one_window)
		cl_data_lost(f->data, lost, "inode %llu: bytes from %llu on were written in too many small pieces for one chunk, and are not taken: give its directory smaller chunks (user.fp.chunk_size)",
			     (unsigned long long)f->inode->ino, (unsigned long long)(t->win[0]->win * f->window_bytes));
	t->one_window = true;
}

/* inode->lock held. True: the buffers are there as before. */
static bool not_committed(struct cl_file *f, struct cl_batch *t, int rc)
{
	if (rc == -EFBIG) {
		too_many_pieces(f, t);
		return true;
	}
	if (rc == FP_EAWAY || (rc == -EINVAL && !t->one_window)) {
		for (size_t i = 0; i < t->nbufs; i++)
			t->buf[i]->committing = false;
		t->one_window |= rc == -EINVAL; /* one that is wrong shall not take the others with it */
		return true;
	}
	for (size_t i = 0; i < t->nbufs; i++) {
		t->buf[i]->committing = false;
		if (refused(rc))
			cl_file_drop_buf(f, t->win[i], t->buf[i]);
	}
	if (refused(rc)) /* kept by the file: this commit may be one whose result nobody looks at */
		cl_file_set_error(f, rc, "written data was refused by the manager");
	else
		cl_data_note_error(f->data, "inode %llu: written data could not be published: %s", (unsigned long long)f->inode->ino,
				   fp_strerror(rc));
	return !refused(rc);
}

/* inode->lock held: a commit that nobody waits for any more has been answered. kept: not_committed. */
static void answered_late(struct cl_file *f, struct cl_batch *t, bool kept)
{
	uint64_t lost = 0;

	f->commit_late = false;
	if (kept && f->inode->handles == 0)
		for (size_t i = 0; i < t->nbufs; i++) { /* no close will try again */
			lost += t->buf[i]->nranges > 0 ? t->buf[i]->counted_bytes : 0;
			cl_file_drop_buf(f, t->win[i], t->buf[i]);
		}
	if (lost > 0)
		cl_data_lost(f->data, lost, "inode %llu: %llu bytes that could not be published are lost: it is closed",
			     (unsigned long long)f->inode->ino, (unsigned long long)lost);
	cl_map_end(f);
}

/* Core loop. FP_EDEADLINE comes first, if the manager takes too long (cl_mgr_call_lasting). */
static void on_commit(void *arg, int status, const ProtobufCMessage *reply)
{
	struct cl_batch *t = arg;
	struct cl_file *f = t->file;
	struct cl_mount *m = f->data->m;
	struct cl_inode *inode = f->inode;
	bool left, kept = false;

	pthread_mutex_lock(&inode->lock);
	left = t->left;
	if (status == FP_EDEADLINE) {
		t->late = true;
	} else {
		if (status < 0)
			kept = not_committed(f, t, status);
		else
			committed(f, t, (const Fp__CommitReply *)reply);
		t->rc = status < 0 && status != -EFBIG && status != -EINVAL ? status : 1; /* too many pieces, one bad window: there is more to try */
		t->done = true;
		if (left)
			answered_late(f, t, kept);
	}
	pthread_cond_broadcast(&f->cond);
	pthread_mutex_unlock(&inode->lock); /* t may be gone from here on, unless it was left */
	if (left)
		cl_batch_free(t);
	if (status != FP_EDEADLINE)
		cl_inode_put(m, inode);
}

/*
 * inode->lock held, map begun; released over the call. 1: one batch went; 0: nothing left. t->left: the manager has not answered in time; the request, and with
 * it batch and turn, stay until it does. To name its chunks in another request would be wrong: if it was executed, they may be overwritten and deleted by now.
 */
static int commit_batch(struct cl_file *f, struct cl_batch *t, bool durable)
{
	struct cl_inode *inode = f->inode;
	int rc = cl_batch_collect(t, f);

	if (rc <= 0)
		return rc;
	t->msg.durable = durable;
	pthread_mutex_unlock(&inode->lock);
	cl_inode_ref(f->data->m, inode); /* the answer's */
	cl_mgr_call_lasting(f->data->m, FP__MSG_TYPE__MSG_COMMIT, &t->msg.base, on_commit, t);
	pthread_mutex_lock(&inode->lock);
	while (!t->done && !t->late)
		pthread_cond_wait(&f->cond, &inode->lock);
	if (t->done)
		return t->rc;
	t->left = f->commit_late = true;
	cl_data_note_error(f->data, "inode %llu: written data is not published in time: the manager does not answer; it is as soon as it does",
			   (unsigned long long)inode->ino);
	return -ETIMEDOUT;
}

/*
 * inode->lock held: what the commit refers to is on a benefactor that is away. It may be only starting again; until then it is not known whether the data is
 * there. Then, or after the deadline, or when the mount ends, 1: on. In the end it is told anyway, so that it is there when the benefactor is, and the file has an error.
 */
static int wait_away(struct cl_file *f, struct cl_batch *t, uint64_t deadline_ms)
{
	uint64_t now_ms = fp_now_ms();

	deadline_ms = cl_by_end(f->data, deadline_ms);
	FP_LOG_EVERY(5000, FP_LOG_WARN, "inode %llu: %s", (unsigned long long)f->inode->ino, fp_strerror(FP_EAWAY));
	t->anyway = now_ms >= deadline_ms || atomic_load(&f->data->stopping);
	if (!t->anyway)
		(void)cl_file_wait(f, now_ms + AWAY_MS < deadline_ms ? now_ms + AWAY_MS : deadline_ms);
	return 1;
}

/* inode->lock held. */
static int commit_stored(struct cl_file *f, bool durable, uint64_t deadline_ms)
{
	struct cl_batch *t;
	int rc;

	if (f->nstored == 0)
		return 0;
	t = cl_batch_new();
	if (!t)
		return -ENOMEM;
	rc = cl_map_begin(f, deadline_ms);
	if (rc == 0) {
		do {
			rc = commit_batch(f, t, durable);
			if (rc == FP_EAWAY && !t->left)
				rc = wait_away(f, t, deadline_ms);
		} while (rc == 1);
		if (t->left)
			return rc;
		cl_map_end(f);
	}
	cl_batch_free(t);
	return rc;
}

/* When a wait that began at from_ms is over, as things are now. */
static uint64_t patience_ends(struct cl_data *d, uint64_t from_ms)
{
	uint64_t moved_ms = atomic_load(&d->moved_ms);

	return cl_by_end(d, (moved_ms > from_ms ? moved_ms : from_ms) + d->m->opt.io_timeout_ms);
}

static void stands_still(struct cl_file *f)
{
	cl_data_note_error(f->data, "inode %llu: %llu bytes are not stored in time, and nothing goes forward; they are published if they are stored later",
			   (unsigned long long)f->inode->ino, (unsigned long long)f->dirty_bytes);
}

/*
 * inode->lock held: wait until everything sealed so far has been stored. By progress of the mount and not of the file: the aux-apps take chunks one after the
 * other, so what is in front of this file's is what it waits for. How often that may be is bounded by the pool: no chunk that comes later is waited for.
 */
static int wait_stored(struct cl_file *f, uint64_t deadline_ms)
{
	uint64_t upto = f->seal_seq, from_ms = fp_now_ms();

	while (f->fl_head && f->fl_head->seal_seq <= upto) {
		uint64_t until_ms = deadline_ms != CL_BY_PROGRESS ? deadline_ms : patience_ends(f->data, from_ms);

		if (fp_now_ms() >= until_ms) {
			if (atomic_load(&f->data->end_ms) == 0)
				stands_still(f);
			return -EIO;
		}
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
		cl_file_set_error(f, -EIO, "a benefactor lost data that had not been synced");
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
	rc = inode->file ? commit_stored(inode->file, durable, deadline_ms) : 0;
	pthread_mutex_unlock(&inode->lock);
	return rc;
}

/* tell: the caller takes the file's error over. */
static int publish(struct cl_data *d, struct cl_inode *inode, bool durable, bool tell, uint64_t deadline_ms)
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

		cl_file_seal_all(f);
		do
			rc = wait_writers(f, until_ms);
		while (rc == -EAGAIN);
		if (rc == 0)
			rc = wait_stored(f, deadline_ms);
		if (rc == 0 && durable)
			rc = make_durable(f);
		if (rc == 0)
			rc = commit_stored(f, durable, deadline_ms != CL_BY_PROGRESS ? deadline_ms : cl_deadline(d));
		err = tell ? cl_file_take_error(f) : f->error;
		if (err < 0)
			rc = err;
	}
	pthread_mutex_unlock(&inode->lock);
	if (!f && rc == 0 && durable) /* written and closed before, and forgotten since: its segments may wait for a sync all the same */
		rc = sync_stored(d, inode);
	if (rc == 0 && durable)
		rc = cl_sync_others(d, inode);
	return rc;
}

int cl_publish(struct cl_data *d, struct cl_inode *inode, bool durable, uint64_t deadline_ms)
{
	return publish(d, inode, durable, true, deadline_ms);
}

int cl_publish_for_others(struct cl_data *d, struct cl_inode *inode, uint64_t deadline_ms)
{
	return publish(d, inode, false, false, deadline_ms);
}

int cl_data_flush(struct cl_mount *m, struct cl_inode *inode)
{
	return cl_publish(m->data, inode, false, CL_BY_PROGRESS);
}

int cl_data_fsync(struct cl_mount *m, struct cl_inode *inode)
{
	return cl_publish(m->data, inode, true, CL_BY_PROGRESS);
}
