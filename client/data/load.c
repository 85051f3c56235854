/*
 * Loading blocks of stored chunks (see load.h). Runs on FUSE threads (a reader needs them now) and store threads (read-ahead).
 *
 * End to end: the manager's map gives the chunk's sum, the record header (or the benefactor's reply) the sums of its blocks; the block sums must
 * add up to the chunk's sum, and each block to its own. So neither a wrong place, a stale header nor a flipped bit in memory of
 * the benefactor gets through.
 *
 * Own node: one O_DIRECT preadv of header and data when a chunk is read from its beginning, the usual case.
 */
#include "client/data/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client/data/internal.h"
#include "fp/checksum.h"
#include "fp/fault.h"

static uint32_t block_len(const struct cl_rchunk *e, uint32_t block)
{
	uint32_t left = e->ref.len_bytes - block * CL_PAGE_BYTES;

	return left < CL_PAGE_BYTES ? left : CL_PAGE_BYTES;
}

/* Check block sums against the chunk's and keep them. */
static int learn_sums(struct cl_rchunk *e, const uint64_t *sums, uint32_t n)
{
	if (n != e->blocks || fp_sum_chunk(sums, n, e->ref.len_bytes) != e->ref.sum)
		return FP_ECHECKSUM;
	pthread_mutex_lock(&e->lock);
	if (!e->sums_known)
		for (uint32_t i = 0; i < n; i++)
			e->block[i].sum = sums[i];
	e->sums_known = true;
	pthread_mutex_unlock(&e->lock);
	return 0;
}

static int verify(const struct cl_rchunk *e, uint32_t from, uint32_t to, uint8_t **pages)
{
	for (uint32_t i = from; i <= to; i++) {
		uint64_t sum;

		fp_sum_blocks(pages[i - from], block_len(e, i), &sum);
		if (sum != e->block[i].sum)
			return FP_ECHECKSUM;
	}
	return 0;
}

/* -------------------------------------------------------------- own node */

static struct cl_seg *known_place(struct cl_rchunk *e, uint64_t *off, bool *sums_known)
{
	struct cl_seg *s;

	pthread_mutex_lock(&e->lock);
	s = e->seg;
	if (s)
		atomic_fetch_add(&s->refs, 1);
	*off = e->off;
	*sums_known = e->sums_known;
	pthread_mutex_unlock(&e->lock);
	return s;
}

static struct cl_seg *learn_place(struct cl_rchunk *e, struct cl_bnf *b, const Fp__LocateReply *r, int fd)
{
	const Fp__Record *rec = r->records[0];
	struct cl_seg *s = cl_seg_add(b, rec->segment, r->salts[0], fd, r->o_direct[0]);

	if (!s)
		return NULL;
	pthread_mutex_lock(&e->lock);
	if (!e->seg) {
		atomic_fetch_add(&s->refs, 1);
		e->seg = s;
		e->off = rec->off;
	}
	pthread_mutex_unlock(&e->lock);
	return s;
}

/* Ask the benefactor where the record is; *out with a reference. */
static int locate(struct cl_rchunk *e, struct cl_bnf *b, struct cl_seg **out)
{
	uint8_t buf[4096];
	struct fp_fdlink_reply_buf r = { .buf = buf, .buf_cap_bytes = sizeof(buf) };
	Fp__ChunkList req = FP__CHUNK_LIST__INIT;
	Fp__LocateReply *reply;
	int rc;

	req.n_ids = 1;
	req.ids = &e->ref.id;
	rc = cl_bnf_local_call(b, FP__MSG_TYPE__MSG_LOCATE, &req.base, &r);
	if (rc < 0)
		return rc;
	reply = fp__locate_reply__unpack(NULL, r.in.msg_len_bytes, r.in.msg);
	if (!reply || reply->n_records != 1)
		rc = -EPROTO;
	else if (reply->records[0]->stored_bytes == 0)
		rc = FP_ECHUNK_MISSING;
	else if (r.nfds != 1 || reply->n_salts != 1 || reply->n_o_direct != 1)
		rc = -EPROTO;
	if (rc == 0) {
		*out = learn_place(e, b, reply, r.fds[0]);
		rc = *out ? 0 : -ENOMEM;
	} else {
		for (size_t i = 0; i < r.nfds; i++)
			close(r.fds[i]);
	}
	if (reply)
		fp__locate_reply__free_unpacked(reply, NULL);
	return rc;
}

static int preadv_all(int fd, struct iovec *iov, int n, uint64_t off)
{
	size_t want = 0;
	ssize_t k;
	int rc = FP_FAULT_POINT("cl.pread");

	if (rc < 0)
		return rc;
	for (int i = 0; i < n; i++)
		want += iov[i].iov_len;
	do
		k = preadv(fd, iov, n, (off_t)off);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		return -errno;
	return (size_t)k == want ? 0 : FP_ECHUNK_MISSING; /* beyond the end: a segment cut short */
}

static int check_header(struct cl_rchunk *e, const struct cl_seg *s, uint64_t off, const uint8_t *raw)
{
	struct fp_record_header h;
	int rc = fp_record_header_decode(raw, &h);

	if (rc == -ENODATA)
		return FP_ECHUNK_MISSING; /* punched meanwhile: the map we used is old */
	if (rc < 0)
		return FP_ECHECKSUM;
	if (!fp_record_header_is_at(&h, s->id, s->salt, off) || h.chunk != e->ref.id || h.len_bytes != e->ref.len_bytes)
		return FP_ECHUNK_MISSING;
	return learn_sums(e, h.block_sums, h.blocks);
}

static int load_local(struct cl_rchunk *e, struct cl_bnf *b, uint32_t from, uint32_t to, uint8_t **pages)
{
	static _Thread_local uint8_t header[FP_RECORD_HEADER_BYTES] __attribute__((aligned(4096)));
	struct iovec iov[CL_WBUF_PAGES_MAX + 1];
	bool sums_known;
	uint64_t off;
	struct cl_seg *s = known_place(e, &off, &sums_known);
	int n = 1, rc = 0;

	if (!s) {
		rc = locate(e, b, &s);
		if (rc < 0)
			return rc;
		off = e->off;
	}
	iov[0] = (struct iovec){ header, sizeof(header) };
	for (uint32_t i = from; i <= to; i++)
		iov[n++] = (struct iovec){ pages[i - from], (block_len(e, i) + 4095) & ~4095u };
	if (sums_known) {
		rc = preadv_all(s->fd, iov + 1, n - 1, off + FP_RECORD_HEADER_BYTES + (uint64_t)from * CL_PAGE_BYTES);
	} else if (from == 0) {
		rc = preadv_all(s->fd, iov, n, off);
	} else {
		rc = preadv_all(s->fd, iov, 1, off);
		if (rc == 0)
			rc = preadv_all(s->fd, iov + 1, n - 1, off + FP_RECORD_HEADER_BYTES + (uint64_t)from * CL_PAGE_BYTES);
	}
	if (rc == 0 && !sums_known)
		rc = check_header(e, s, off, header);
	cl_seg_put(s);
	return rc < 0 ? rc : verify(e, from, to, pages);
}

/* -------------------------------------------------------------- over TCP */

static void scatter(const struct cl_rchunk *e, const uint8_t *src, uint32_t from, uint32_t to, uint8_t **pages)
{
	for (uint32_t i = from; i <= to; i++) {
		memcpy(pages[i - from], src, block_len(e, i));
		src += block_len(e, i);
	}
}

static int load_remote(struct cl_rchunk *e, struct cl_bnf *b, uint32_t from, uint32_t to, uint8_t **pages)
{
	Fp__ChunkRead req = FP__CHUNK_READ__INIT;
	struct cl_rcall c = { .bnf = b, .type = FP__MSG_TYPE__MSG_READ, .msg = &req.base, .timeout_ms = 3000 };
	ProtobufCMessage *m = NULL;
	uint32_t len = (to - from) * CL_PAGE_BYTES + block_len(e, to);
	uint8_t *rx = malloc(len);
	int rc;

	if (!rx)
		return -ENOMEM;
	req.chunk = e->ref.id;
	req.off = from * CL_PAGE_BYTES;
	req.len = len;
	c.rx = rx;
	c.rx_cap_bytes = len;
	rc = cl_bnf_remote_call_sync(&c, &m);
	if (rc == 0) {
		const Fp__ChunkReadReply *r = (const Fp__ChunkReadReply *)m;

		if (r->off != req.off || r->len != len || c.rx_len_bytes != len || r->chunk_len != e->ref.len_bytes)
			rc = FP_ECHUNK_MISSING;
		else
			rc = learn_sums(e, r->block_sums, (uint32_t)r->n_block_sums);
	}
	if (rc == 0) {
		scatter(e, rx, from, to, pages);
		rc = verify(e, from, to, pages);
	}
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
	free(rx);
	return rc;
}

int cl_load_blocks(struct cl_data *d, struct cl_rchunk *e, uint32_t from, uint32_t to, uint8_t **pages)
{
	struct cl_bnf *b = cl_bnf_find(d, e->ref.bnf);
	bool known;
	uint64_t off;

	if (!b)
		return FP_ENOBENEFACTOR;
	struct cl_seg *s = known_place(e, &off, &known);

	cl_seg_put(s);
	if (s || cl_bnf_is_local(b)) /* an open descriptor works even while the benefactor is away */
		return load_local(e, b, from, to, pages);
	return load_remote(e, b, from, to, pages);
}
