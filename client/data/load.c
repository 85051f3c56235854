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

#include "client/data/device.h"
#include "client/data/ext.h"
#include "client/data/internal.h"
#include "fp/bug.h"
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
        if (sum != e->block[i].sum && !FP_BUG("mount-does-not-verify"))
            return FP_ECHECKSUM;
    }
    return 0;
}

/* -------------------------------------------------------------- own node */

void cl_load_learn(struct cl_rchunk *e, const struct cl_chunk_ref *ref)
{
    struct cl_seg *old = NULL;

    pthread_mutex_lock(&e->lock);
    if (ref->bnf != e->bnf && !(e->fetched && !ref->bnf)) {
        old = e->seg;
        e->seg = NULL;
        e->bnf = ref->bnf;
        e->fetched = false;
    }
    if (ref->bnf)
        e->fetched = false; /* it is the chunk's copy, as the manager knows */
    if (!ref->bnf) {
        e->ext = ref->ext;
        e->ext_off = ref->ext_off;
    }
    pthread_mutex_unlock(&e->lock);
    cl_seg_put(old);
}

/* It is not there: whoever tries again asks where it is. */
static void forget_place(struct cl_rchunk *e)
{
    struct cl_seg *old;

    pthread_mutex_lock(&e->lock);
    old = e->seg;
    e->seg = NULL;
    if (e->fetched)
        e->bnf = 0;
    e->fetched = false;
    pthread_mutex_unlock(&e->lock);
    cl_seg_put(old);
}

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

static void learn_place(struct cl_rchunk *e, struct cl_seg *s, uint64_t off)
{
    pthread_mutex_lock(&e->lock);
    if (!e->seg) {
        atomic_fetch_add(&s->refs, 1);
        e->seg = s;
        e->off = off;
    }
    pthread_mutex_unlock(&e->lock);
}

/* The descriptors of a reply become segments: segs[i] for the i-th distinct segment, referenced. */
static uint32_t take_segments(struct cl_bnf *b, const Fp__LocateReply *r, const struct fp_fdlink_reply_buf *buf, struct cl_seg **segs)
{
    uint64_t seen[FP_FDLINK_FDS_MAX];
    uint32_t n = 0;

    for (size_t i = 0; i < r->n_records && n < buf->nfds; i++) {
        uint64_t id = r->records[i]->segment;
        uint32_t j = 0;

        if (r->records[i]->stored_bytes == 0)
            continue;
        while (j < n && seen[j] != id)
            j++;
        if (j < n)
            continue;
        seen[n] = id;
        segs[n] = cl_seg_add(b, id, r->salts[n], buf->fds[n], r->o_direct[n]);
        n++;
    }
    for (size_t i = n; i < buf->nfds; i++)
        close(buf->fds[i]);
    return n;
}

static int take_places(struct cl_bnf *b, const Fp__LocateReply *r, const struct fp_fdlink_reply_buf *buf, struct cl_rchunk **e, uint32_t n)
{
    struct cl_seg *segs[FP_FDLINK_FDS_MAX];
    uint32_t nsegs;

    if (r->n_records == 0 || r->n_records > n || r->n_salts < buf->nfds || r->n_o_direct < buf->nfds) {
        for (size_t i = 0; i < buf->nfds; i++)
            close(buf->fds[i]);
        return -EPROTO;
    }
    nsegs = take_segments(b, r, buf, segs);
    for (uint32_t i = 0; i < r->n_records; i++) /* a short answer is a prefix: the rest is asked for one by one */
        for (uint32_t j = 0; r->records[i]->stored_bytes > 0 && j < nsegs; j++)
            if (segs[j] && segs[j]->id == r->records[i]->segment)
                learn_place(e[i], segs[j], r->records[i]->off);
    for (uint32_t j = 0; j < nsegs; j++)
        cl_seg_put(segs[j]);
    return 0;
}

/* Ask the benefactor where the records are, as many as CL_LOCATE_MAX in one call. Those it has get their place. */
static int locate(struct cl_bnf *b, struct cl_rchunk **e, uint32_t n)
{
    uint8_t buf[16384];
    struct fp_fdlink_reply_buf r = { .buf = buf, .buf_cap_bytes = sizeof(buf) };
    Fp__ChunkList req = FP__CHUNK_LIST__INIT;
    uint64_t ids[CL_LOCATE_MAX];
    Fp__LocateReply *reply;
    int rc;

    for (uint32_t i = 0; i < n; i++)
        ids[i] = e[i]->ref.id;
    req.n_ids = n;
    req.ids = ids;
    rc = cl_bnf_local_call(b, FP__MSG_TYPE__MSG_LOCATE, &req.base, &r);
    if (rc < 0)
        return rc;
    reply = fp__locate_reply__unpack(NULL, r.in.msg_len_bytes, r.in.msg);
    if (!reply) {
        for (size_t i = 0; i < r.nfds; i++)
            close(r.fds[i]);
        return -EPROTO;
    }
    rc = take_places(b, reply, &r, e, n);
    fp__locate_reply__free_unpacked(reply, NULL);
    return rc;
}

static uint32_t bnf_of(struct cl_rchunk *e)
{
    uint32_t bnf;

    pthread_mutex_lock(&e->lock);
    bnf = e->bnf;
    pthread_mutex_unlock(&e->lock);
    return bnf;
}

void cl_load_locate(struct cl_data *d, struct cl_rchunk **e, uint32_t n)
{
    struct cl_rchunk *group[CL_LOCATE_MAX];
    bool done[CL_LOCATE_MAX] = { false };

    for (uint32_t i = 0; i < n; i++) {
        struct cl_bnf *b = done[i] ? NULL : cl_bnf_find(d, bnf_of(e[i]));
        uint32_t k = 0;

        if (!b || !cl_bnf_is_local(b))
            continue;
        for (uint32_t j = i; j < n; j++) {
            uint64_t off;
            bool known;
            struct cl_seg *s;

            if (done[j] || bnf_of(e[j]) != b->id)
                continue;
            done[j] = true;
            s = known_place(e[j], &off, &known);
            cl_seg_put(s);
            if (!s)
                group[k++] = e[j];
        }
        if (k > 0)
            (void)locate(b, group, k);
    }
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

static int read_segment(struct cl_seg *s, struct iovec *iov, int n, uint64_t off)
{
    uint64_t until_ns = cl_device_begin(s->bnf, false, iov, n);
    int rc = preadv_all(s->fd, iov, n, off);

    cl_device_end(until_ns);
    return rc;
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
    struct iovec iov[FP_BLOCKS_MAX + 1];
    bool sums_known;
    uint64_t off;
    struct cl_seg *s = known_place(e, &off, &sums_known);
    int n = 1, rc = 0;

    if (!s) {
        rc = locate(b, &e, 1);
        if (rc < 0)
            return rc;
        s = known_place(e, &off, &sums_known);
        if (!s)
            return FP_ECHUNK_MISSING;
    }
    iov[0] = (struct iovec){ header, sizeof(header) };
    for (uint32_t i = from; i <= to; i++)
        iov[n++] = (struct iovec){ pages[i - from], (block_len(e, i) + 4095) & ~4095u };
    if (sums_known) {
        rc = read_segment(s, iov + 1, n - 1, off + FP_RECORD_HEADER_BYTES + (uint64_t)from * CL_PAGE_BYTES);
    } else if (from == 0) {
        rc = read_segment(s, iov, n, off);
    } else {
        rc = read_segment(s, iov, 1, off);
        if (rc == 0)
            rc = read_segment(s, iov + 1, n - 1, off + FP_RECORD_HEADER_BYTES + (uint64_t)from * CL_PAGE_BYTES);
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

static int load_from(struct cl_data *d, struct cl_rchunk *e, uint32_t bnf, uint32_t from, uint32_t to, uint8_t **pages)
{
    struct cl_bnf *b = cl_bnf_find(d, bnf);
    bool known;
    uint64_t off;
    int rc;

    if (bnf == 0)
        return FP_ECHUNK_MISSING; /* lost, as the manager knows: nothing to wait for */
    if (!b)
        return FP_ENOBENEFACTOR;
    struct cl_seg *s = known_place(e, &off, &known);

    cl_seg_put(s);
    if (s || cl_bnf_is_local(b)) /* an open descriptor works even while the benefactor is away */
        rc = load_local(e, b, from, to, pages);
    else
        rc = load_remote(e, b, from, to, pages);
    if (rc == FP_ECHUNK_MISSING || rc == FP_ECHECKSUM)
        forget_place(e);
    return rc;
}

/* Of what a benefactor has fetched for us, while the map still says that it is in a target only: whatever is wrong with that copy, nothing is known of the target.
 * Who tries again has it fetched again: then it is looked at where it is. */
static int load_fetched(struct cl_data *d, struct cl_rchunk *e, uint32_t bnf, uint32_t from, uint32_t to, uint8_t **pages)
{
    int rc = load_from(d, e, bnf, from, to, pages);

    if (rc == 0)
        return 0;
    forget_place(e);
    return CL_ETARGET;
}

int cl_load_blocks(struct cl_data *d, struct cl_rchunk *e, uint32_t from, uint32_t to, uint8_t **pages)
{
    struct cl_chunk_ref ref = e->ref;
    bool fetched;
    uint32_t bnf;
    int rc;

    pthread_mutex_lock(&e->lock);
    bnf = e->bnf;
    fetched = e->fetched;
    ref.ext = e->ext;
    ref.ext_off = e->ext_off;
    pthread_mutex_unlock(&e->lock);
    if (bnf && fetched)
        return load_fetched(d, e, bnf, from, to, pages);
    if (bnf || !ref.ext)
        return load_from(d, e, bnf, from, to, pages);
    rc = cl_ext_fetch(d, &ref, from, to, pages, &bnf);
    if (rc < 0 || bnf == 0)
        return rc;
    pthread_mutex_lock(&e->lock);
    if (!e->bnf) {
        e->bnf = bnf;
        e->fetched = true;
    }
    pthread_mutex_unlock(&e->lock);
    return load_fetched(d, e, bnf, from, to, pages);
}
