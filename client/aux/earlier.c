/*
 * The earlier version of a file that is being written: fp_aux_earlier, what a de-duplication compares with first (paper, section V).
 *
 * Service threads; cl_aux_before_truncate on FUSE threads. Looked for in this order:
 *   1. what the file itself was before it was cut to 0: asked for and held before the truncate reaches the manager, and kept until wanted
 *   2. what the file itself is
 *   3. in the same directory, the newest file whose name differs from this one in digits alone (the step number), an ending such as .tmp aside, since
 *      careful writers rename; or, with a pattern, the newest that matches it
 * of which the first that has notes is taken. Without a name (a file that was opened, not made) the manager is asked for it.
 *
 * Names are compared here, not by the manager: it would have to know about step numbers. A directory of NAMES_MAX entries is read in a few messages.
 */
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/aux/earlier.h"
#include "client/aux/files.h"
#include "client/aux/holds.h"
#include "client/aux/services.h"
#include "client/core.h"
#include "client/inode.h"

#define ASK_MS     4000u
#define ANSWERS_MAX 256u    /* of MSG_NOTES for one file: 1 GiB of notes */
#define NAMES_MAX  65536u   /* entries looked at */
#define PAGE_NAMES 4096u
#define CANDIDATES 4u

/* -------------------------------------------------------------- names */

/* Endings that a file has while it is written. */
static size_t without_ending(const char *name, size_t len)
{
	static const char *const endings[] = { ".tmp", ".part", ".partial", ".new", "~", NULL };

	for (const char *const *e = endings; *e; e++) {
		size_t n = strlen(*e);

		if (len > n && memcmp(name + len - n, *e, n) == 0)
			return len - n;
	}
	return len;
}

static size_t digits(const char *s, size_t len)
{
	size_t n = 0;

	while (n < len && isdigit((unsigned char)s[n]))
		n++;
	return n;
}

bool cl_aux_same_but_for_digits(const char *x, size_t xlen, const char *y, size_t ylen)
{
	xlen = without_ending(x, xlen);
	ylen = without_ending(y, ylen);
	while (xlen > 0 && ylen > 0) {
		size_t n = digits(x, xlen), k = digits(y, ylen);

		if ((n > 0) != (k > 0) || (n == 0 && *x != *y))
			return false;
		n = n ? n : 1;
		k = k ? k : 1;
		x += n, xlen -= n;
		y += k, ylen -= k;
	}
	return xlen == 0 && ylen == 0;
}

static bool matches(const struct aux_file_name *own, const char *pattern, const Fp__DirEntry *e)
{
	char name[256];

	if (e->ino == own->ino || !e->attr || !S_ISREG(e->mode) || e->attr->size_bytes == 0 || e->name.len >= sizeof(name))
		return false;
	memcpy(name, e->name.data, e->name.len);
	name[e->name.len] = '\0';
	if (*pattern)
		return fnmatch(pattern, name, FNM_PERIOD) == 0;
	return cl_aux_same_but_for_digits(own->name, strlen(own->name), name, e->name.len);
}

/* -------------------------------------------------------------- candidates, newest first */

struct candidates { uint32_t n; struct { uint64_t ino; int64_t mtime_ns; } c[CANDIDATES]; };

static void consider(struct candidates *l, uint64_t ino, int64_t mtime_ns)
{
	uint32_t i = l->n < CANDIDATES ? l->n++ : CANDIDATES - 1;

	if (l->n == CANDIDATES && i == CANDIDATES - 1 && l->c[i].ino && l->c[i].mtime_ns >= mtime_ns)
		return;
	for (; i > 0 && l->c[i - 1].mtime_ns < mtime_ns; i--)
		l->c[i] = l->c[i - 1];
	l->c[i].ino = ino;
	l->c[i].mtime_ns = mtime_ns;
}

static int look_through(struct cl_aux *a, const struct aux_file_name *own, const char *pattern, struct candidates *l)
{
	Fp__ReadDir msg = FP__READ_DIR__INIT;
	uint32_t seen = 0;
	bool eof = false;

	msg.ino = own->parent;
	msg.max_entries = PAGE_NAMES;
	msg.plus = true;
	while (!eof && seen < NAMES_MAX) {
		Fp__ReadDirReply *r = NULL;
		uint8_t *packed;
		size_t len;
		int rc = cl_aux_ask(a, FP__MSG_TYPE__MSG_READDIR, &msg.base, ASK_MS, &packed, &len);

		if (rc == 0)
			r = fp__read_dir_reply__unpack(NULL, len, packed);
		free(packed);
		if (!r)
			return rc < 0 ? rc : -EPROTO;
		for (size_t i = 0; i < r->n_entries; i++) {
			if (matches(own, pattern, r->entries[i]))
				consider(l, r->entries[i]->ino, r->entries[i]->attr->mtime_ns);
			msg.cookie = r->entries[i]->cookie;
		}
		seen += (uint32_t)r->n_entries;
		eof = r->eof || r->n_entries == 0;
		fp__read_dir_reply__free_unpacked(r, NULL);
	}
	return 0;
}

int cl_aux_path_of(struct cl_aux *a, uint64_t ino, char *path, size_t size)
{
	Fp__CtlLayout msg = FP__CTL_LAYOUT__INIT;
	Fp__CtlLayoutReply *r = NULL;
	uint8_t *packed;
	size_t len;
	int rc;

	msg.ino = ino;
	msg.win_from = INT64_MAX; /* no slices */
	msg.max_slices = 1;
	rc = cl_aux_ask(a, FP__MSG_TYPE__MSG_CTL_LAYOUT, &msg.base, ASK_MS, &packed, &len);
	if (rc == 0 && !(r = fp__ctl_layout_reply__unpack(NULL, len, packed)))
		rc = -EPROTO;
	free(packed);
	if (rc < 0)
		return rc;
	len = r->path.len;
	while (len > 0 && r->path.data[0] == '/') {
		memmove(r->path.data, r->path.data + 1, --len);
	}
	if (len < size) {
		memcpy(path, r->path.data, len);
		path[len] = '\0';
	} else {
		rc = -ENAMETOOLONG;
	}
	fp__ctl_layout_reply__free_unpacked(r, NULL);
	return rc;
}

/* A file that was opened has no name here yet. */
static int learn_name(struct cl_aux *a, struct aux_file_name *own)
{
	char path[4096], *slash;
	Fp__AttrReply *r;
	uint64_t parent = 1;
	int rc;

	if (own->parent)
		return 0;
	rc = cl_aux_path_of(a, own->ino, path, sizeof(path));
	if (rc < 0)
		return rc;
	slash = strrchr(path, '/');
	if (slash) {
		*slash = '\0';
		rc = cl_aux_walk(a, path, &r);
		if (rc < 0)
			return rc;
		parent = r->attr ? r->attr->ino : 0;
		fp__attr_reply__free_unpacked(r, NULL);
	}
	if (strlen(slash ? slash + 1 : path) >= sizeof(own->name) || parent == 0)
		return -ENOENT;
	strcpy(own->name, slash ? slash + 1 : path);
	own->parent = parent;
	return 0;
}

/* -------------------------------------------------------------- notes of one file */

/* All that there is, held: *answers, *n are the caller's. Returns how many notes there are. */
static int fetch_notes(struct cl_aux *a, uint64_t ino, uint64_t serial, struct aux_packed **answers, uint32_t *n)
{
	struct aux_packed *list = calloc(ANSWERS_MAX, sizeof(*list));
	Fp__Notes msg = FP__NOTES__INIT;
	int found = 0, rc = list ? 0 : -ENOMEM;
	bool eof = false;

	*n = 0;
	msg.ino = ino;
	msg.hold = true;
	while (rc == 0 && !eof && *n < ANSWERS_MAX) {
		Fp__NotesReply *r = NULL;

		rc = cl_aux_ask(a, FP__MSG_TYPE__MSG_NOTES, &msg.base, ASK_MS, &list[*n].bytes, &list[*n].len_bytes);
		if (rc == 0 && !(r = fp__notes_reply__unpack(NULL, list[*n].len_bytes, list[*n].bytes)))
			rc = -EPROTO;
		++*n;
		if (!r)
			break;
		for (size_t i = 0; i < r->n_notes; i++)
			cl_aux_holds_note(a, r->notes[i], serial);
		found += (int)r->n_notes;
		eof = r->eof || r->win_end <= msg.win_from;
		msg.win_from = r->win_end;
		fp__notes_reply__free_unpacked(r, NULL);
	}
	*answers = list;
	return rc < 0 ? rc : found;
}

static int reply_all(struct cl_aux *a, struct aux_request *r, const struct aux_packed *answers, uint32_t n)
{
	int found = 0;

	for (uint32_t i = 0; i < n && found >= 0; i++)
		found = cl_aux_reply_notes(a, r, answers[i].bytes, answers[i].len_bytes, i + 1 == n, false);
	return found < 0 ? found : 0;
}

/* 1: answered with the notes of this file; 0: it has none. */
static int try_file(struct cl_aux *a, struct aux_request *r, uint64_t ino)
{
	struct aux_packed *answers = NULL;
	uint32_t n = 0;
	int found = fetch_notes(a, ino, r->file_serial, &answers, &n), rc = found;

	if (found > 0) {
		rc = reply_all(a, r, answers, n);
		rc = rc < 0 ? rc : 1;
	}
	cl_aux_packed_free(answers, n);
	return rc;
}

static int find_earlier(struct cl_aux *a, struct aux_request *r, struct aux_file_name *own, const char *pattern)
{
	struct candidates l = { 0 };
	struct aux_packed *kept;
	uint32_t n;
	int rc;

	kept = cl_aux_files_take_notes(a, r->file_serial, &n);
	if (kept) {
		rc = reply_all(a, r, kept, n);
		cl_aux_packed_free(kept, n);
		return rc < 0 ? rc : 1;
	}
	rc = try_file(a, r, own->ino);
	if (rc != 0)
		return rc;
	rc = learn_name(a, own);
	if (rc == 0)
		rc = look_through(a, own, pattern, &l);
	for (uint32_t i = 0; i < l.n && rc == 0; i++)
		rc = try_file(a, r, l.c[i].ino);
	return rc;
}

void cl_aux_svc_earlier(struct cl_aux *a, struct aux_request *r)
{
	Fp__AuxEarlier *msg = cl_aux_request_unpack(r, &fp__aux_earlier__descriptor);
	struct aux_file_name own;
	int rc;

	if (!msg)
		return;
	r->file_serial = msg->file_serial;
	cl_aux_holds_begin(a);
	rc = cl_aux_files_find(a, msg->file_serial, &own) ? find_earlier(a, r, &own, msg->pattern) : -ENOENT;
	cl_aux_holds_end(a);
	if (rc <= 0)
		cl_aux_reply(r, rc == -ENOENT ? 0 : rc, NULL, 0, true); /* nothing earlier */
	fp__aux_earlier__free_unpacked(msg, NULL);
}

void cl_aux_before_truncate(struct cl_mount *m, struct cl_inode *inode)
{
	struct cl_aux *a = m->aux;
	struct aux_packed *answers = NULL;
	uint64_t serial, size;
	uint32_t n = 0;
	int found;

	pthread_mutex_lock(&inode->lock);
	serial = inode->aux_serial;
	size = inode->attr.size_bytes;
	pthread_mutex_unlock(&inode->lock);
	if (serial == 0 || serial == CL_AUX_SERIAL_OWN || size == 0 || !cl_aux_chunks(m))
		return;
	cl_aux_holds_begin(a);
	found = fetch_notes(a, inode->ino, serial, &answers, &n);
	cl_aux_holds_end(a);
	if (found > 0)
		cl_aux_files_keep_notes(a, serial, answers, n);
	else
		cl_aux_packed_free(answers, n);
}
