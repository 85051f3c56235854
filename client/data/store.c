/*
 * Storing a sealed buffer: checksums, record header, the write to a benefactor, and what to do when it fails.
 *
 * Runs on store threads; a remote write ends on the core loop. A buffer's bytes stay in the pool until a benefactor has acknowledged
 * them, so a benefactor that fails or goes away costs a second write elsewhere and nothing else. Only when io_timeout is over, or every
 * benefactor refuses, is the file's data given up: the file keeps the error for the next write, fsync or close. What a close has not waited for (behind.c) is
 * not given up as long as the mount lives: it is tried again and again, and who wants the file elsewhere is not let in.
 *
 * Own node: header and data go by one O_DIRECT pwritev from the pool into the leased extent, then the benefactor is told.
 *
 * If aux-apps are declared, the buffer comes here by way of them (packed.h), and what is stored may be other bytes than its pages, or nothing. Their result is
 * taken over once: a second attempt elsewhere stores the same.
 *
 * While aux-apps say that they have nothing to do, a buffer is asked about here, on the store thread, which is about to read all of it anyway: is it passed over, and
 * stored as without aux-apps, or does it go to them after all?
 *
 * A buffer that refers to stored chunks in place of its own bytes gives its pages back only while the manager vouches for all of these chunks (cl_aux_pins_good).
 * A benefactor that died since the aux-apps compared has them ask again, before and after the write; what is not vouched for any more sends the
 * buffer to the aux-apps once more, to be stored without referring to anything. Rejected: to keep the pages until the commit, which may be
 * as long as the file is open.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client/data/device.h"
#include "client/data/internal.h"
#include "client/data/packed.h"
#include "fp/checksum.h"
#include "fp/fault.h"
#include "fp/zeros.h"

#define KEPT_US 50000u /* until what is kept is tried again: a store that is full says so at once */

static uint32_t blocks_of(const struct cl_wbuf *b)
{
    return (b->chunk_len + CL_PAGE_BYTES - 1) / CL_PAGE_BYTES;
}

/* What aux-apps left to be stored in place of the pages; NULL: the pages. */
static uint8_t *flat_of(const struct cl_wbuf *b)
{
    return b->packed ? b->packed->flat : NULL;
}

static bool is_nothing(const struct cl_wbuf *b)
{
    return b->packed && b->packed->new_bytes == 0;
}

/* Length of the chunk as it is stored. */
static uint32_t stored_len(const struct cl_wbuf *b)
{
    return flat_of(b) ? b->packed->flat_bytes : b->chunk_len;
}

static void sum_pages(const struct cl_wbuf *b, struct fp_record_header *h)
{
    uint32_t left = b->chunk_len;

    h->len_bytes = h->stored_len_bytes = stored_len(b);
    if (flat_of(b)) {
        fp_record_header_sum(h, flat_of(b));
        return;
    }
    h->blocks = blocks_of(b);
    for (uint32_t i = 0; i < h->blocks; i++) {
        uint32_t n = left < CL_PAGE_BYTES ? left : CL_PAGE_BYTES;

        fp_sum_blocks(b->page[b->base + i], n, &h->block_sums[i]);
        left -= n;
    }
    h->sum = fp_sum_chunk(h->block_sums, h->blocks, h->len_bytes);
}

/* The data as parts; padded: up to the device block (the zeros are there), for O_DIRECT. Returns the number of parts. */
static int data_iov(const struct cl_wbuf *b, struct iovec *iov, bool padded)
{
    uint32_t n = blocks_of(b), left = stored_len(b);

    if (padded)
        left = fp_record_size_bytes(left) - FP_RECORD_HEADER_BYTES;
    if (flat_of(b)) {
        iov[0] = (struct iovec){ flat_of(b), left };
        return 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t part = left < CL_PAGE_BYTES ? left : CL_PAGE_BYTES;

        iov[i] = (struct iovec){ b->page[b->base + i], part };
        left -= part;
    }
    return (int)n;
}

/* All of iov to off, going on after short writes; iov is used up. */
static int pwritev_all(int fd, struct iovec *iov, int n, uint64_t off)
{
    int rc = FP_FAULT_POINT("cl.pwrite");

    if (rc < 0)
        return rc;
    while (n > 0) {
        ssize_t k = pwritev(fd, iov, n, (off_t)off);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? -errno : -EIO;
        off += (uint64_t)k;
        while (n > 0 && (size_t)k >= iov->iov_len) {
            k -= (ssize_t)iov->iov_len;
            iov++;
            n--;
        }
        if (n > 0) {
            iov->iov_base = (uint8_t *)iov->iov_base + k;
            iov->iov_len -= (size_t)k;
        }
    }
    return 0;
}

/* Tell the benefactor what lies where; from its answer on the record is its to keep. */
static int tell_stored(struct cl_bnf *bnf, uint64_t lease, const struct fp_record_header *h, uint32_t stored_bytes)
{
    Fp__Record rec = FP__RECORD__INIT, *recs[1] = { &rec };
    Fp__Stored s = FP__STORED__INIT;

    rec.chunk = h->chunk;
    rec.segment = h->segment;
    rec.off = h->offset;
    rec.stored_bytes = stored_bytes;
    rec.len = h->len_bytes;
    rec.sum = h->sum;
    s.lease = lease;
    s.n_records = 1;
    s.records = recs;
    return cl_bnf_local_call(bnf, FP__MSG_TYPE__MSG_STORED, &s.base, NULL);
}

static int store_local(struct cl_wbuf *b, struct fp_record_header *h, struct cl_seg *seg, uint64_t off)
{
    static _Thread_local uint8_t header[FP_RECORD_HEADER_BYTES] __attribute__((aligned(4096)));
    struct iovec iov[CL_WBUF_PAGES_MAX + 1];
    uint32_t bytes = fp_record_size_bytes(stored_len(b));
    uint64_t until_ns;
    int n, rc;

    h->segment = seg->id;
    h->salt = seg->salt;
    h->offset = off;
    fp_record_header_encode(h, header);
    iov[0] = (struct iovec){ header, sizeof(header) };
    n = 1 + data_iov(b, iov + 1, true);
    until_ns = cl_device_begin(seg->bnf, true, iov, n);
    rc = pwritev_all(seg->fd, iov, n, off);
    cl_device_end(until_ns);
    if (rc < 0)
        return rc;
    atomic_store(&seg->unsynced, true);
    return tell_stored(seg->bnf, b->resv.lease->id, h, bytes);
}

/* -------------------------------------------------------------- how it ended */

static bool session_is_old(const struct cl_wbuf *b, uint64_t chunk)
{
    return (uint32_t)(chunk >> 32) != cl_core_session(b->file->data->m);
}

/* What b refers to in place of its own bytes is there, and can be read. */
static bool may_let_go(const struct cl_wbuf *b)
{
    return !b->packed || cl_aux_pins_good(b->file->data->m, b->packed->pins);
}

/*
 * The record is on the benefactor. False: under a session that has been forgotten meanwhile; asked with the lock held, because cl_data_session_new, which
 * comes after the new number, looks at each file once. Or b refers to what may not be there: it is to be done again.
 */
static bool stored(struct cl_wbuf *b, const struct fp_record_header *h, uint32_t bnf)
{
    struct cl_file *f = b->file;
    struct cl_data *d = f->data;
    struct cl_inode *inode = f->inode;
    struct cl_aux_tickets tickets = { 0 };
    uint32_t n = b->npages, new_bytes = 0;
    uint8_t *pages[CL_WBUF_PAGES_MAX];

    cl_space_done(d, &b->resv);
    pthread_mutex_lock(&inode->lock);
    if (session_is_old(b, h->chunk) || !may_let_go(b)) {
        pthread_mutex_unlock(&inode->lock);
        return false;
    }
    cl_file_landed(f, b);
    if (!is_nothing(b)) {
        b->chunk = (struct cl_chunk_ref){ .id = h->chunk, .sum = h->sum, .len_bytes = h->len_bytes, .bnf = bnf };
        b->stored_bytes = fp_record_size_bytes(h->len_bytes);
    }
    if (b->packed) {
        b->chunk.data_len_bytes = b->packed->data_len_bytes;
        new_bytes = b->packed->new_bytes;
        tickets = b->packed->tickets;
        f->note_bytes += cl_packed_note_bytes(b->packed);
        cl_packed_stored(d, b->packed);
    }
    if (!f->unsynced && !(is_nothing(b) && !b->packed->refers)) {
        f->unsynced = true;
        f->losses_seen = b->losses;
    }
    b->state = CL_WBUF_STORED;
    cl_moved(d);
    f->nstored++;
    f->uncommitted_bytes += b->counted_bytes;
    atomic_fetch_add(&d->uncommitted_bytes, b->counted_bytes);
    memcpy(pages, b->page, n * sizeof(pages[0]));
    memset(b->page, 0, n * sizeof(pages[0]));
    cl_pool_put(d->pool, pages, n);
    pthread_cond_broadcast(&f->cond);
    pthread_mutex_unlock(&inode->lock); /* b, f and inode may be gone from here on */
    if (new_bytes > 0)
        cl_aux_stored(d->m, &tickets, h->chunk, 0, new_bytes);
    return true;
}

static void failed(struct cl_wbuf *b, int err)
{
    struct cl_file *f = b->file;
    struct cl_inode *inode = f->inode;

    cl_space_done(f->data, &b->resv);
    pthread_mutex_lock(&inode->lock);
    cl_file_landed(f, b);
    cl_file_set_error(f, err, b->counted_bytes, "data could not be stored");
    cl_file_gone(f, b);
    b->state = CL_WBUF_FAILED;
    cl_file_drop_buf(f, cl_file_win(f, b->win, false), b);
    pthread_mutex_unlock(&inode->lock);
}

/* -------------------------------------------------------------- remote */

struct remote_write {
    struct cl_rcall call;          /* first */
    struct cl_wbuf *b;
    struct fp_record_header h;
    Fp__ChunkWrite msg;
    struct iovec iov[CL_WBUF_PAGES_MAX];
};

static void remote_done(struct cl_rcall *call, int status, const ProtobufCMessage *reply)
{
    struct remote_write *w = (struct remote_write *)call;
    struct cl_wbuf *b = w->b;
    struct cl_data *d = b->file->data;

    (void)reply;
    if (status == 0)
        atomic_fetch_add(&call->bnf->remote_written, 1);
    if (status < 0 || !stored(b, &w->h, call->bnf->id)) {
        if (status < 0) {
            b->avoid_bnf = call->bnf->id;
            cl_space_avoid(d, call->bnf, status);
        }
        cl_space_failed(d, &b->resv, status);
        cl_store_post(d, b);
    }
    free(w);
}

static int store_remote(struct cl_wbuf *b, const struct fp_record_header *h)
{
    struct remote_write *w = calloc(1, sizeof(*w));

    if (!w)
        return -ENOMEM;
    w->b = b;
    w->h = *h;
    fp__chunk_write__init(&w->msg);
    w->msg.lease = b->resv.lease->id;
    w->msg.chunk = h->chunk;
    w->msg.len = h->len_bytes;
    w->msg.n_block_sums = h->blocks;
    w->msg.block_sums = w->h.block_sums;
    w->call = (struct cl_rcall){
        .bnf = b->resv.lease->bnf, .type = FP__MSG_TYPE__MSG_WRITE, .msg = &w->msg.base,
        .payload = w->iov, .niov = data_iov(b, w->iov, false), .timeout_ms = 10000, .done = remote_done,
    };
    cl_bnf_remote_call(&w->call);
    return 0;
}

/* -------------------------------------------------------------- the job */

/* One attempt. 0: stored, or under way; 1: the lease was void, try another; negative: the benefactor failed. */
static int attempt(struct cl_wbuf *b, struct fp_record_header *h)
{
    struct cl_data *d = b->file->data;
    struct cl_lease *l = b->resv.lease;
    struct cl_seg *seg = l->ext[b->resv.ext].seg;
    struct cl_bnf *bnf = l->bnf;
    uint64_t off;
    int rc;

    if (!cl_space_place(d, &b->resv, fp_record_size_bytes(h->len_bytes), &off)) {
        cl_space_done(d, &b->resv);
        return 1;
    }
    if (!seg)
        return store_remote(b, h);
    rc = store_local(b, h, seg, off);
    if (rc == 0)
        return stored(b, h, bnf->id) ? 0 : FP_ESESSION;
    cl_space_failed(d, &b->resv, rc);
    b->avoid_bnf = bnf->id;
    cl_space_avoid(d, bnf, rc);
    FP_LOG_EVERY(1000, FP_LOG_WARN, "benefactor %u could not store a chunk: %s; trying another", bnf->id, fp_strerror(rc));
    return rc;
}

static int reserve_again(struct cl_wbuf *b)
{
    struct cl_inode *inode = b->file->inode;
    uint32_t stripe;

    pthread_mutex_lock(&inode->lock);
    stripe = inode->attr.stripe;
    pthread_mutex_unlock(&inode->lock);
    return cl_space_reserve(b->file->data, inode->ino, b->win, stripe, fp_record_size_bytes(stored_len(b)), b->avoid_bnf,
                b->deadline_ms, &b->resv);
}

/* A number for one attempt. Never the same twice: a session has four thousand million of them, and then refuses. */
static int next_chunk(struct cl_data *d, uint64_t *chunk)
{
    uint64_t n = atomic_fetch_add(&d->chunk_counter, 1);

    if (n > UINT32_MAX) {
        FP_LOG_EVERY(60000, FP_LOG_ERROR, "this mount has used up its 2^32 chunk numbers: mount again");
        return -ENOSPC;
    }
    *chunk = (uint64_t)cl_core_session(d->m) << 32 | n;
    return 0;
}

/* It was closed, and no close tells that it can't be stored: so it stays in the pool. True: it is not the caller's any more. */
static bool kept(struct cl_wbuf *b, int err)
{
    struct cl_file *f = b->file;
    struct cl_data *d = f->data;
    struct cl_inode *inode = f->inode;
    bool keeps;

    pthread_mutex_lock(&inode->lock);
    keeps = inode->behind && inode->attr.nlink > 0 && atomic_load(&d->end_ms) == 0 && !atomic_load(&d->stopping);
    pthread_mutex_unlock(&inode->lock);
    if (!keeps)
        return false;
    cl_data_note_error(d, "inode %llu: what was closed can't be stored: %s; it is kept, and tried again", (unsigned long long)inode->ino, fp_strerror(err));
    b->deadline_ms = 0;
    b->avoid_bnf = 0;
    usleep(KEPT_US);
    cl_store_post(d, b);
    return true;
}

/* The same for what failed on its way through the aux-apps: it goes to them anew, or has failed. */
static void failed_to_pass(struct cl_wbuf *b, int err)
{
    struct cl_file *f = b->file;
    struct cl_packed *old;

    pthread_mutex_lock(&f->inode->lock);
    old = b->packed;
    b->packed = NULL;
    b->passes_anew = true;
    pthread_mutex_unlock(&f->inode->lock);
    cl_packed_free(f->data, old);
    if (!kept(b, err))
        failed(b, err);
}

static void ready(struct cl_wbuf *b)
{
    cl_store_post(b->file->data, b);
}

/* True: what b refers to is good. Else it goes to the aux-apps again, or has failed, and is not the caller's any more. */
static bool references_are_good(struct cl_wbuf *b)
{
    struct cl_data *d = b->file->data;
    struct cl_inode *inode = b->file->inode;
    struct cl_packed *old = b->packed;
    int rc;

    if (!old || !old->refers || cl_aux_pins_check(d->m, &old->pins))
        return true;
    FP_LOG_EVERY(1000, FP_LOG_INFO, "inode %llu: what was found stored is damaged or on a benefactor that is away: it is stored once more",
             (unsigned long long)inode->ino);
    pthread_mutex_lock(&inode->lock);
    b->packed = NULL;
    b->deadline_ms = 0; /* theirs is not the benefactors' time */
    rc = cl_packed_submit(d, b, true, ready);
    pthread_mutex_unlock(&inode->lock); /* b may be gone from here on, unless rc < 0 */
    cl_packed_free(d, old);
    if (rc < 0)
        failed_to_pass(b, rc);
    return false;
}

/* Zeros and duplicates only: nothing is written. */
static void store_nothing(struct cl_wbuf *b)
{
    struct cl_data *d = b->file->data;
    struct fp_record_header h;

    do {
        if (!references_are_good(b))
            return;
        h.chunk = (uint64_t)cl_core_session(d->m) << 32;
    } while (!stored(b, &h, 0));
}

/* The aux-apps' result, when b is here for the first time: true if there is something to store. */
static bool take_packed(struct cl_wbuf *b)
{
    struct cl_data *d = b->file->data;
    int rc = b->packed->taken ? 0 : cl_packed_take(d, b->packed);

    if (rc > 0)
        return false;
    if (rc < 0) {
        failed_to_pass(b, rc);
        return false;
    }
    if (is_nothing(b)) {
        store_nothing(b);
        return false;
    }
    if (b->resv.lease && fp_record_size_bytes(stored_len(b)) > b->resv.bytes) /* a coded form may be longer than what was foreseen */
        cl_space_done(d, &b->resv);
    return true;
}

static bool has_zeros(const struct cl_wbuf *b)
{
    uint32_t left = b->chunk_len;

    for (uint32_t i = 0; i < blocks_of(b); i++) {
        uint32_t n = left < CL_PAGE_BYTES ? left : CL_PAGE_BYTES;

        if (fp_zeros_any_block(b->page[b->base + i], n))
            return true;
        left -= n;
    }
    return false;
}

/* For as long as aux-apps have nothing to do. */
static bool passes_over(const struct cl_wbuf *b)
{
    struct cl_mount *m = b->file->data->m;
    enum cl_aux_over over = cl_aux_passes_over(m, b->asked_off, b->chunk_len, false);

    if (over == CL_AUX_OVER_BUT_ZEROS && !has_zeros(b))
        over = cl_aux_passes_over(m, b->asked_off, b->chunk_len, true);
    return over == CL_AUX_OVER;
}

/* It is the aux-apps' now, or has failed. */
static void to_aux_apps(struct cl_wbuf *b)
{
    struct cl_inode *inode = b->file->inode;
    int rc;

    b->passes_anew = false;
    pthread_mutex_lock(&inode->lock);
    rc = cl_packed_submit(b->file->data, b, false, ready);
    pthread_mutex_unlock(&inode->lock); /* b may be gone from here on, unless rc < 0 */
    if (rc < 0)
        failed_to_pass(b, rc);
}

static void store_run(struct cl_job *job)
{
    struct cl_wbuf *b = (struct cl_wbuf *)job;
    struct cl_data *d = b->file->data;
    struct fp_record_header h;
    bool numbered = true;
    int rc = 0;

    memset(&h, 0, offsetof(struct fp_record_header, block_sums));
    if (atomic_load(&d->stopping)) {
        failed(b, FP_ESTOPPING);
        return;
    }
    if (b->is_asked_about && passes_over(b))
        b->is_asked_about = false;
    if (b->is_asked_about || b->passes_anew) {
        b->is_asked_about = false;
        to_aux_apps(b);
        return;
    }
    if (b->packed && !take_packed(b))
        return;
    if (b->deadline_ms == 0)
        b->deadline_ms = cl_deadline(d);
    sum_pages(b, &h);
    do {
        if (!references_are_good(b))
            return;
        if (!b->resv.lease)
            rc = reserve_again(b);
        if (rc < 0)
            break;
        numbered = next_chunk(d, &h.chunk) == 0;
        if (!numbered) {
            rc = -ENOSPC;
            break;
        }
        if (!b->packed || !b->packed->refers)
            b->losses = atomic_load(&d->losses);
        rc = attempt(b, &h);
        if (rc == 0)
            return;
        if (rc == -ENOSPC || rc == 1)
            rc = 0;
    } while (fp_now_ms() < b->deadline_ms && !atomic_load(&d->stopping) && (rc = 0) == 0);
    rc = rc < 0 ? rc : -EIO;
    if (!numbered || !kept(b, rc))
        failed(b, rc);
}

void cl_store_post(struct cl_data *d, struct cl_wbuf *b)
{
    b->job.run = store_run;
    cl_jobs_post_later(d->jobs, &b->job);
}

static void no_memory_run(struct cl_job *job)
{
    failed_to_pass((struct cl_wbuf *)job, -ENOMEM);
}

void cl_store_sealed(struct cl_data *d, struct cl_wbuf *b)
{
    if (!cl_aux_chunks(d->m) || b->file->fold || b->file->inode->aux_serial == CL_AUX_SERIAL_OWN) {
        cl_store_post(d, b);
        return;
    }
    b->losses = atomic_load(&d->losses); /* chunks that are referred to may be lost from here on */
    if (cl_aux_may_pass_over(d->m)) {
        b->is_asked_about = true;
        b->asked_off = cl_packed_file_off(b);
        cl_store_post(d, b);
        return;
    }
    if (cl_packed_submit(d, b, false, ready) < 0) {
        b->job.run = no_memory_run;
        cl_jobs_post(d->jobs, &b->job, false);
    }
}
