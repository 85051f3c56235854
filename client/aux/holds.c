/*
 * The table of holds (see holds.h).
 *
 * Any thread. Releasing races with asking: a request that holds a chunk may have been answered by the manager and not be taken in here, when its older
 * hold is swept; then the manager would hold less than we think. So nothing is swept while a request is under way (begin/end). A release is sent
 * after it has left the table, in the order of all requests, so that a later hold of the same chunk comes after it.
 *
 * What is not known here is not believed: a plugin that names a chunk it once saw is asked about at the manager (jobs.c). So a forgotten hold
 * costs a message and never a dangling reference.
 */
#include "client/aux/holds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/aux/files.h"
#include "client/aux/internal.h"
#include "client/core.h"
#include "client/data/overlay.h"

#define BUCKETS      16384u
#define RELEASE_MAX  4096u  /* in one message */
#define ASK_MS       5000u

struct hold {
	struct hold *next;
	uint64_t chunk;
	uint64_t serial;               /* needed while a file of this serial or an older one is open */
	uint32_t pins;
	struct cl_chunk_ref ref;       /* len_bytes 0: not known */
};

struct aux_holds {
	pthread_mutex_t lock;          /* a leaf */
	struct hold *bucket[BUCKETS];
	uint32_t count;
	uint32_t asking;               /* requests under way */
};

struct cl_aux_pins { uint32_t n; uint64_t chunk[]; };

static struct hold **find(struct aux_holds *t, uint64_t chunk)
{
	struct hold **p = &t->bucket[(chunk * 0x9e3779b97f4a7c15u) >> 50];

	while (*p && (*p)->chunk != chunk)
		p = &(*p)->next;
	return p;
}

int cl_aux_holds_new(struct cl_aux *a)
{
	a->holds = calloc(1, sizeof(*a->holds));
	if (!a->holds)
		return -ENOMEM;
	pthread_mutex_init(&a->holds->lock, NULL);
	return 0;
}

static void forget_all(struct aux_holds *t)
{
	for (uint32_t i = 0; i < BUCKETS; i++) {
		while (t->bucket[i]) {
			struct hold *h = t->bucket[i];

			t->bucket[i] = h->next;
			free(h);
		}
	}
	t->count = 0;
}

void cl_aux_holds_free(struct cl_aux *a)
{
	if (!a->holds)
		return;
	forget_all(a->holds);
	pthread_mutex_destroy(&a->holds->lock);
	free(a->holds);
	a->holds = NULL;
}

/* -------------------------------------------------------------- what is held */

void cl_aux_holds_begin(struct cl_aux *a)
{
	pthread_mutex_lock(&a->holds->lock);
	a->holds->asking++;
	pthread_mutex_unlock(&a->holds->lock);
}

void cl_aux_holds_end(struct cl_aux *a)
{
	pthread_mutex_lock(&a->holds->lock);
	a->holds->asking--;
	pthread_mutex_unlock(&a->holds->lock);
}

static void add(struct cl_aux *a, uint64_t chunk, uint64_t file_serial, const struct cl_chunk_ref *ref)
{
	struct aux_holds *t = a->holds;
	uint64_t serial = file_serial ? file_serial : cl_aux_files_last_serial(a);
	struct hold **p, *h;

	pthread_mutex_lock(&t->lock);
	p = find(t, chunk);
	h = *p;
	if (!h && (h = calloc(1, sizeof(*h)))) {
		h->chunk = chunk;
		*p = h;
		t->count++;
	}
	if (h && h->serial < serial)
		h->serial = serial;
	if (h && ref)
		h->ref = *ref;
	pthread_mutex_unlock(&t->lock);
}

void cl_aux_holds_add(struct cl_aux *a, uint64_t chunk, uint64_t file_serial)
{
	add(a, chunk, file_serial, NULL);
}

void cl_aux_holds_note(struct cl_aux *a, const Fp__ChunkNote *note, uint64_t file_serial)
{
	struct cl_chunk_ref ref = { .id = note->chunk, .sum = note->sum, .len_bytes = note->len, .bnf = note->bnf, .data_len_bytes = note->coded_len };

	add(a, note->chunk, file_serial, &ref);
}

bool cl_aux_holds_ref(struct cl_aux *a, uint64_t chunk, struct cl_chunk_ref *out)
{
	struct aux_holds *t = a->holds;
	struct hold *h;

	pthread_mutex_lock(&t->lock);
	h = *find(t, chunk);
	if (h)
		*out = h->ref;
	pthread_mutex_unlock(&t->lock);
	return h && out->len_bytes > 0;
}

struct cl_aux_pins *cl_aux_holds_pin(struct cl_aux *a, const uint64_t *chunks, uint32_t n)
{
	struct cl_aux_pins *pins = malloc(sizeof(*pins) + n * sizeof(pins->chunk[0]));
	struct aux_holds *t = a->holds;
	bool all = true;

	if (!pins)
		return NULL;
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < n && all; i++)
		all = *find(t, chunks[i]) != NULL;
	for (uint32_t i = 0; i < n && all; i++)
		(*find(t, chunks[i]))->pins++;
	pthread_mutex_unlock(&t->lock);
	if (!all) {
		free(pins);
		return NULL;
	}
	pins->n = n;
	memcpy(pins->chunk, chunks, n * sizeof(pins->chunk[0]));
	return pins;
}

void cl_aux_pins_put(struct cl_mount *m, struct cl_aux_pins *pins)
{
	struct aux_holds *t = m->aux ? m->aux->holds : NULL;

	if (!pins)
		return;
	if (t) {
		pthread_mutex_lock(&t->lock);
		for (uint32_t i = 0; i < pins->n; i++) {
			struct hold *h = *find(t, pins->chunk[i]);

			if (h && h->pins > 0) /* a new session has forgotten all */
				h->pins--;
		}
		pthread_mutex_unlock(&t->lock);
	}
	free(pins);
}

int cl_aux_holds_ask(struct cl_aux *a, const uint64_t *chunks, uint32_t n, uint64_t file_serial)
{
	Fp__Hold msg = FP__HOLD__INIT;
	Fp__HoldReply *reply = NULL;
	uint8_t *packed = NULL;
	size_t len = 0;
	int rc;

	msg.n_ids = n;
	msg.ids = (uint64_t *)chunks;
	cl_aux_holds_begin(a);
	rc = cl_aux_ask(a, FP__MSG_TYPE__MSG_HOLD, &msg.base, ASK_MS, &packed, &len);
	if (rc == 0 && !(reply = fp__hold_reply__unpack(NULL, len, packed)))
		rc = -EPROTO;
	for (size_t i = 0; rc == 0 && i < reply->n_ids; i++)
		cl_aux_holds_add(a, reply->ids[i], file_serial);
	cl_aux_holds_end(a);
	if (reply)
		fp__hold_reply__free_unpacked(reply, NULL);
	free(packed);
	return rc;
}

/* -------------------------------------------------------------- release */

static void ignore(void *arg, int status, const ProtobufCMessage *reply)
{
	(void)arg;
	(void)reply;
	if (status < 0)
		FP_DEBUG("holds were not released: %s", fp_strerror(status)); /* they end with the session */
}

/* holds lock held: so that no hold of the same chunk overtakes it. */
static void send_release(struct cl_aux *a, uint64_t *ids, uint32_t n)
{
	Fp__Hold msg = FP__HOLD__INIT;

	msg.ids = ids;
	msg.n_ids = n;
	msg.release = true;
	cl_mgr_call(a->m, FP__MSG_TYPE__MSG_HOLD, &msg.base, ignore, NULL);
}

bool cl_aux_holds_sweep(struct cl_aux *a, bool all)
{
	static const size_t ids_bytes = RELEASE_MAX * sizeof(uint64_t);
	struct aux_holds *t = a->holds;
	uint64_t oldest = all ? UINT64_MAX : cl_aux_files_oldest_serial(a);
	uint64_t *ids = malloc(ids_bytes);
	uint32_t n = 0;
	bool any = false;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; ids && t->asking == 0 && t->count > 0 && i < BUCKETS; i++) {
		struct hold **p = &t->bucket[i];

		while (*p) {
			struct hold *h = *p;

			if (h->pins > 0 || h->serial >= oldest) {
				p = &h->next;
				continue;
			}
			*p = h->next;
			t->count--;
			any = true;
			ids[n++] = h->chunk;
			free(h);
			if (n == RELEASE_MAX) {
				send_release(a, ids, n);
				n = 0;
			}
		}
	}
	if (n > 0)
		send_release(a, ids, n);
	pthread_mutex_unlock(&t->lock);
	free(ids);
	return any;
}

bool cl_aux_release_holds(struct cl_mount *m)
{
	return m->aux && cl_aux_holds_sweep(m->aux, true);
}

/* -------------------------------------------------------------- a new session */

struct rehold {
	struct aux_task task;          /* first */
	uint32_t n;
	uint64_t chunk[];
};

static void hold_pinned_again(struct cl_aux *a, struct aux_task *task)
{
	struct rehold *r = (struct rehold *)task;

	for (uint32_t i = 0; i < r->n; i += RELEASE_MAX)
		(void)cl_aux_holds_ask(a, r->chunk + i, r->n - i < RELEASE_MAX ? r->n - i : RELEASE_MAX, 0);
	free(r);
}

void cl_aux_session_new(struct cl_mount *m)
{
	struct cl_aux *a = m->aux;
	struct rehold *r;

	if (!a)
		return;
	pthread_mutex_lock(&a->holds->lock);
	r = malloc(sizeof(*r) + a->holds->count * sizeof(r->chunk[0]));
	if (r)
		r->n = 0;
	for (uint32_t i = 0; r && i < BUCKETS; i++)
		for (struct hold *h = a->holds->bucket[i]; h; h = h->next)
			if (h->pins > 0)
				r->chunk[r->n++] = h->chunk;
	forget_all(a->holds);
	pthread_mutex_unlock(&a->holds->lock);
	if (!r)
		return;
	r->task.run = hold_pinned_again;
	cl_aux_task_post(a, &r->task);
}
