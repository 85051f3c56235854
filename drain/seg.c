/*
 * Segments of the benefactor, and chunks read from them: what is written to the target was verified here.
 *
 * Descriptors come by the socket (a file of its own each time, with an error state of its own) and are used by several threads; the benefactor says when it does
 * not need one any more. Reading and verifying on the threads of the target (no other has waited for it).
 *
 * A record may be punched while it is read, when its chunk is deleted: then its header is not there, which is "missing" and not "damaged". Block sums are those of
 * the record's header, which has a sum of its own and must be the header that belongs there; so what leaves here is what a mount has written.
 *
 * O_DIRECT wants memory, offset and length in multiples of 4 KiB. A whole chunk goes right to where it is written from; pieces go through a bounce buffer.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/checksum.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"

#define PAGE FP_RECORD_ALIGN_BYTES

/* ---------------------------------------------------------------- the table */

struct dr_seg *dr_seg_new(uint64_t segment, uint64_t salt, int fd)
{
    struct dr_seg *s = calloc(1, sizeof(*s));

    if (!s) {
        close(fd);
        return NULL;
    }
    *s = (struct dr_seg){ .segment = segment, .salt = salt, .fd = fd, .refs = 1 };
    s->o_direct = fcntl(fd, F_GETFL) & O_DIRECT;
    return s;
}

/* With the lock. */
static void put(struct dr_seg *s)
{
    if (!s || --s->refs)
        return;
    close(s->fd);
    free(s);
}

static size_t find(const struct dr_worker *w, uint64_t segment)
{
    size_t i = 0;

    while (i < w->nsegs && w->segs[i]->segment != segment)
        i++;
    return i;
}

void dr_seg_add(struct dr_worker *w, struct dr_seg *s)
{
    size_t i;

    pthread_mutex_lock(&w->lock);
    i = find(w, s->segment);
    if (i == w->segs_cap) {
        struct dr_seg **more = realloc(w->segs, (w->segs_cap + 64) * sizeof(*more));

        if (more) {
            w->segs = more;
            w->segs_cap += 64;
        }
    }
    if (i < w->nsegs) {
        put(w->segs[i]);
        w->segs[i] = s;
    } else if (i < w->segs_cap) {
        w->segs[w->nsegs++] = s;
    } else {
        put(s); /* tasks that name it say that they do not know it */
    }
    pthread_mutex_unlock(&w->lock);
}

void dr_seg_drop(struct dr_worker *w, uint64_t segment)
{
    size_t i;

    pthread_mutex_lock(&w->lock);
    i = find(w, segment);
    if (i < w->nsegs) {
        put(w->segs[i]);
        w->segs[i] = w->segs[--w->nsegs];
    }
    pthread_mutex_unlock(&w->lock);
}

int dr_segs_get(struct dr_worker *w, struct dr_task *t)
{
    const struct fp_dw_write *m = (const struct fp_dw_write *)t->msg;
    const uint8_t *ids;

    if (m->h.type != FP_DW_WRITE || m->nsegments == 0)
        return 0;
    ids = t->msg + sizeof(*m) + m->tmp_bytes;
    t->seg = calloc(m->nsegments, sizeof(struct dr_seg *));
    if (!t->seg)
        return -ENOMEM;
    t->nsegs = m->nsegments;
    pthread_mutex_lock(&w->lock);
    for (uint32_t i = 0; i < t->nsegs; i++) {
        uint64_t id;
        size_t at;

        memcpy(&id, ids + 8ull * i, 8);
        at = find(w, id);
        if (at < w->nsegs) {
            t->seg[i] = w->segs[at];
            t->seg[i]->refs++;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return 0;
}

void dr_segs_put(struct dr_worker *w, struct dr_task *t)
{
    pthread_mutex_lock(&w->lock);
    for (uint32_t i = 0; i < t->nsegs; i++)
        put(t->seg[i]);
    pthread_mutex_unlock(&w->lock);
    free(t->seg);
    t->seg = NULL;
    t->nsegs = 0;
}

/* ---------------------------------------------------------------- records */

static uint32_t page_up(uint32_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static int read_all(int fd, struct iovec *iov, int n, uint64_t off)
{
    while (n > 0) {
        ssize_t got = preadv(fd, iov, n, (off_t)off);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        off += (uint64_t)got;
        while (n > 0 && (size_t)got >= iov->iov_len) {
            got -= (ssize_t)iov->iov_len;
            iov++;
            n--;
        }
        if (n > 0) {
            iov->iov_base = (uint8_t *)iov->iov_base + got;
            iov->iov_len -= (size_t)got;
        }
    }
    return 0;
}

/* One operation of the device, also of one that is emulated. */
static int read_segment(struct dr_thread *th, int fd, struct iovec *iov, int n, uint64_t off)
{
    int rc = FP_FAULT_POINT("drain.pread");
    uint64_t bytes = 0, until_ns;

    if (rc < 0)
        return rc;
    if (!th->w->limiter)
        return read_all(fd, iov, n, off);
    for (int i = 0; i < n; i++)
        bytes += iov[i].iov_len;
    until_ns = fp_limiter_take(th->w->limiter, false, bytes, fp_now_ns());
    rc = read_all(fd, iov, n, off);
    fp_limiter_wait(until_ns);
    return rc;
}

static int chunk_failed(struct dr_thread *th, const struct fp_dw_slice *s, int status)
{
    th->r.chunk = s->chunk;
    return dr_fail(th, FP_DW_SCOPE_CHUNK, status, "chunk %016llx: %s", (unsigned long long)s->chunk, fp_strerror(status));
}

static int take_header(struct dr_thread *th, const struct dr_seg *seg, const struct fp_dw_slice *s, const uint8_t *raw)
{
    uint64_t off = (uint64_t)s->page * PAGE;
    struct fp_record_header *h = &th->header;
    int rc = fp_record_header_decode(raw, h);

    th->header_segment = 0;
    if (rc == -ENODATA)
        return chunk_failed(th, s, FP_ECHUNK_MISSING); /* punched since */
    if (rc || !fp_record_header_is_at(h, seg->segment, seg->salt, off) || h->chunk != s->chunk || h->len_bytes != s->chunk_len || h->sum != s->sum ||
        h->codec != FP_CODEC_NONE)
        return chunk_failed(th, s, FP_ECORRUPT);
    th->header_segment = seg->segment;
    th->header_off = off;
    return 0;
}

/* Block `from` on; data is in memory from its first byte. */
static int verify(struct dr_thread *th, const struct fp_dw_slice *s, const uint8_t *data, uint32_t from, uint32_t len)
{
    if (fp_sum_verify(data, len, th->header.block_sums + from / FP_BLOCK_SIZE_BYTES) < 0)
        return 0;
    return chunk_failed(th, s, FP_ECHECKSUM);
}

static int read_whole(struct dr_thread *th, const struct dr_seg *seg, const struct fp_dw_slice *s, uint8_t *dst)
{
    struct iovec iov[2] = { { th->bounce, PAGE }, { dst, page_up(s->len) } };
    int rc = read_segment(th, seg->fd, iov, 2, (uint64_t)s->page * PAGE);

    if (rc)
        return chunk_failed(th, s, rc);
    rc = take_header(th, seg, s, th->bounce);
    return rc ? rc : verify(th, s, dst, 0, s->len);
}

static int read_piece(struct dr_thread *th, const struct dr_seg *seg, const struct fp_dw_slice *s, uint8_t *dst)
{
    uint64_t off = (uint64_t)s->page * PAGE;
    uint32_t from = s->chunk_off / FP_BLOCK_SIZE_BYTES * FP_BLOCK_SIZE_BYTES;
    uint32_t end = (s->chunk_off + s->len + FP_BLOCK_SIZE_BYTES - 1) / FP_BLOCK_SIZE_BYTES * FP_BLOCK_SIZE_BYTES;
    uint8_t *data = th->bounce + PAGE;
    bool known = th->header_segment == seg->segment && th->header_off == off && th->header.chunk == s->chunk;
    struct iovec iov = { th->bounce, PAGE };
    int rc = known ? 0 : read_segment(th, seg->fd, &iov, 1, off);

    if (end > s->chunk_len)
        end = s->chunk_len;
    if (rc)
        return chunk_failed(th, s, rc);
    rc = known ? 0 : take_header(th, seg, s, th->bounce);
    if (rc)
        return rc;
    iov = (struct iovec){ data, page_up(end - from) };
    rc = read_segment(th, seg->fd, &iov, 1, off + PAGE + from);
    if (rc)
        return chunk_failed(th, s, rc);
    rc = verify(th, s, data, from, end - from);
    if (rc == 0)
        memcpy(dst, data + (s->chunk_off - from), s->len);
    return rc;
}

/* All of the chunk is read and decoded, once for all pieces of it that follow each other. */
static int read_coded(struct dr_thread *th, const struct fp_dw_slice *s, uint8_t *dst)
{
    struct fp_dw_slice all = *s;
    int rc = 0;

    if (th->plain_chunk != s->chunk) {
        th->plain_chunk = 0;
        all.len = all.chunk_len;
        all.chunk_off = all.data_len = 0;
        if (dr_memory(&th->stored, &th->stored_bytes, page_up(s->chunk_len)) || dr_memory(&th->plain, &th->plain_bytes, s->data_len))
            return dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEM, "out of memory on this node");
        rc = dr_seg_read(th, &all, th->stored);
        rc = rc ? rc : dr_decode(th, s, th->stored, th->plain);
    }
    if (rc)
        return rc;
    th->plain_chunk = s->chunk;
    memcpy(dst, th->plain + s->chunk_off, s->len);
    return 0;
}

int dr_seg_read(struct dr_thread *th, const struct fp_dw_slice *s, uint8_t *dst)
{
    const struct dr_seg *seg = th->task->seg[s->seg];
    bool whole = s->chunk_off == 0 && s->len == s->chunk_len && (uintptr_t)dst % PAGE == 0;

    if (!seg)
        return chunk_failed(th, s, FP_ECHUNK_MISSING);
    if (s->data_len)
        return read_coded(th, s, dst);
    if (dr_memory(&th->bounce, &th->bounce_bytes, PAGE + (whole ? 0 : page_up(s->chunk_len))))
        return dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEM, "out of memory on this node");
    return whole ? read_whole(th, seg, s, dst) : read_piece(th, seg, s, dst);
}
