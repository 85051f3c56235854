/*
 * The model of benefactors (see cl_world.h): segments are memfds, leases are extents that belong to a link, and a record is taken over only when
 * its header, sums, place and lease are right. Space that a lease did not use is free again when the lease or its link ends.
 */
#include "tests/unit/cl_world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fp/checksum.h"
#include "fp/err.h"
#include "fp/record.h"
#include "tests/unit/cl_world_bnf.h"

#define SEG_BYTES (40u << 20)
#define LEASE_MAX (4u << 20)

static struct world_bnf bnfs[WORLD_BNFS_MAX];
static unsigned nbnfs;

struct world_bnf *world_bnf_add(uint32_t id, bool local, uint64_t capacity)
{
    WORLD_CHECK(nbnfs < WORLD_BNFS_MAX);
    struct world_bnf *b = &bnfs[nbnfs++];

    memset(b, 0, sizeof *b);
    b->id = id;
    b->local = local;
    b->capacity = capacity;
    pthread_mutex_init(&b->lock, NULL);
    return b;
}

struct world_bnf *world_bnf(uint32_t id)
{
    for (unsigned i = 0; i < nbnfs; i++)
        if (bnfs[i].id == id)
            return &bnfs[i];
    return NULL;
}

unsigned world_bnf_list(struct world_bnf **out)
{
    for (unsigned i = 0; i < nbnfs; i++)
        out[i] = &bnfs[i];
    return nbnfs;
}

uint64_t world_bnf_used(struct world_bnf *b)
{
    pthread_mutex_lock(&b->lock);
    uint64_t n = b->used;
    pthread_mutex_unlock(&b->lock);
    return n;
}

/* -------------------------------------------------------------- space; b->lock held */

static void seg_new(struct world_bnf *b)
{
    struct world_seg *s;

    b->segs = realloc(b->segs, (b->nsegs + 1) * sizeof *b->segs);
    s = &b->segs[b->nsegs];
    *s = (struct world_seg){.id = b->id * 1000u + ++b->nsegs, .salt = b->id * 7919u + b->nsegs + b->starts * 104729u, .next = FP_SEGMENT_HEADER_BYTES};
    s->fd = memfd_create("segment", MFD_CLOEXEC);
    WORLD_CHECK(s->fd >= 0 && ftruncate(s->fd, SEG_BYTES) == 0);
    s->used = calloc(SEG_BYTES / 4096, 1);
}

static uint64_t carve(struct world_bnf *b, struct world_lease *l, uint64_t want, uint64_t least)
{
    struct world_seg *s = b->nsegs ? &b->segs[b->nsegs - 1] : NULL;

    if (!s || SEG_BYTES - s->next < least) {
        seg_new(b);
        s = &b->segs[b->nsegs - 1];
    }
    if (want > SEG_BYTES - s->next)
        want = SEG_BYTES - s->next;
    l->ext[l->n].seg = b->nsegs - 1;
    l->ext[l->n].off = s->next;
    l->ext[l->n].len = want;
    l->n++;
    s->next += want;
    return want;
}

static struct world_lease **lease_of(struct world_bnf *b, uint64_t link, uint64_t id)
{
    struct world_lease **p = &b->leases;

    while (*p && ((*p)->id != id || (*p)->link != link))
        p = &(*p)->next;
    return p;
}

static void lease_end(struct world_bnf *b, struct world_lease **p)
{
    struct world_lease *l = *p;

    *p = l->next;
    WORLD_CHECK(b->used >= l->rest_bytes);
    b->used -= l->rest_bytes;
    free(l);
}

void world_bnf_link_gone(struct world_bnf *b, uint64_t link)
{
    pthread_mutex_lock(&b->lock);
    for (struct world_lease **p = &b->leases; *p;)
        if ((*p)->link == link)
            lease_end(b, p);
        else
            p = &(*p)->next;
    pthread_mutex_unlock(&b->lock);
}

int world_bnf_lease(struct world_bnf *b, uint64_t link, bool local, const Fp__Lease *r, struct world_lease *out)
{
    uint64_t grant, got;
    struct world_lease *l;

    if (b->lease_err)
        return b->lease_err;
    pthread_mutex_lock(&b->lock);
    grant = b->capacity > b->used ? (b->capacity - b->used) & ~4095ull : 0;
    if (grant > r->want_bytes)
        grant = (r->want_bytes + 4095) & ~4095ull;
    if (grant > LEASE_MAX)
        grant = r->min_bytes <= LEASE_MAX ? LEASE_MAX : r->min_bytes;
    if (grant < r->min_bytes) {
        pthread_mutex_unlock(&b->lock);
        return -ENOSPC;
    }
    l = calloc(1, sizeof *l);
    l->id = ++b->lease_ids;
    l->link = link;
    l->local = local;
    l->rest_bytes = grant;
    if (local) {
        got = carve(b, l, grant, r->min_bytes);
        if (got < grant) /* the rest from the next segment */
            got += carve(b, l, grant - got, grant - got);
        WORLD_CHECK(got == grant);
    }
    b->used += grant;
    l->next = b->leases;
    b->leases = l;
    *out = *l;
    pthread_mutex_unlock(&b->lock);
    return 0;
}

int world_bnf_lease_return(struct world_bnf *b, uint64_t link, const Fp__LeaseReturn *r)
{
    int rc = 0;

    pthread_mutex_lock(&b->lock);
    struct world_lease **p = lease_of(b, link, r->lease);

    if (*p) {
        WORLD_CHECK(r->bytes <= (*p)->rest_bytes);
        lease_end(b, p);
    } else {
        rc = FP_ELEASE;
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* -------------------------------------------------------------- records; b->lock held */

static struct world_rec *rec_of(struct world_bnf *b, uint64_t chunk)
{
    struct world_rec *r = b->bucket[chunk % 1024];

    while (r && r->chunk != chunk)
        r = r->next;
    return r;
}

static void rec_add(struct world_bnf *b, uint32_t seg, uint64_t off, const struct fp_record_header *h)
{
    struct world_rec *r = calloc(1, sizeof *r);

    *r = (struct world_rec){.chunk = h->chunk, .off = off, .sum = h->sum, .seg = seg, .len = h->len_bytes};
    r->stored_bytes = fp_record_size_bytes(h->stored_len_bytes);
    for (uint64_t at = off; at < off + r->stored_bytes; at += 4096) {
        WORLD_CHECK(!b->segs[seg].used[at / 4096]); /* never two records in one place */
        b->segs[seg].used[at / 4096] = 1;
    }
    r->next = b->bucket[h->chunk % 1024];
    b->bucket[h->chunk % 1024] = r;
    b->nrecs++;
    atomic_fetch_add(&b->acked, 1);
}

/* Header and data of a record, verified; the data into out (room for a chunk of the greatest size). */
static int rec_read(struct world_bnf *b, uint32_t seg, uint64_t off, struct fp_record_header *h, uint8_t *out)
{
    uint8_t raw[FP_RECORD_HEADER_BYTES];
    struct world_seg *s = &b->segs[seg];
    int rc;

    WORLD_CHECK(pread(s->fd, raw, sizeof raw, (off_t)off) == (ssize_t)sizeof raw);
    rc = fp_record_header_decode(raw, h);
    if (rc < 0)
        return rc;
    if (!fp_record_header_is_at(h, s->id, s->salt, off))
        return -EILSEQ;
    WORLD_CHECK(pread(s->fd, out, h->len_bytes, (off_t)(off + FP_RECORD_HEADER_BYTES)) == (ssize_t)h->len_bytes);
    if (fp_sum_chunk(h->block_sums, h->blocks, h->len_bytes) != h->sum || fp_sum_verify(out, h->len_bytes, h->block_sums) >= 0)
        return FP_ECHECKSUM;
    return 0;
}

static uint8_t *scratch(void)
{
    static uint8_t *p;

    if (!p)
        p = mmap(NULL, FP_STORED_MAX_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p;
}

static int stored_one(struct world_bnf *b, struct world_lease *l, const Fp__Record *r)
{
    static pthread_mutex_t scratch_lock = PTHREAD_MUTEX_INITIALIZER;
    static struct fp_record_header h;
    bool inside = false;
    uint32_t seg = 0;

    while (seg < b->nsegs && b->segs[seg].id != r->segment)
        seg++;
    WORLD_CHECK(seg < b->nsegs);
    for (uint32_t i = 0; i < l->n; i++)
        inside |= l->ext[i].seg == seg && r->off >= l->ext[i].off && r->off + r->stored_bytes <= l->ext[i].off + l->ext[i].len;
    WORLD_CHECK(inside && l->rest_bytes >= r->stored_bytes);
    if (rec_of(b, r->chunk))
        return -EEXIST;
    pthread_mutex_lock(&scratch_lock);
    WORLD_CHECK(rec_read(b, seg, r->off, &h, scratch()) == 0);
    WORLD_CHECK(h.chunk == r->chunk && h.len_bytes == r->len && h.sum == r->sum && fp_record_size_bytes(h.len_bytes) == r->stored_bytes);
    rec_add(b, seg, r->off, &h);
    pthread_mutex_unlock(&scratch_lock);
    l->rest_bytes -= r->stored_bytes;
    return 0;
}

int world_bnf_stored(struct world_bnf *b, uint64_t link, const Fp__Stored *s)
{
    int rc = 0;

    atomic_fetch_add(&b->stores, 1);
    if (b->store_err)
        return b->store_err;
    pthread_mutex_lock(&b->lock);
    struct world_lease *l = *lease_of(b, link, s->lease);

    if (!l) {
        rc = FP_ELEASE;
        b->stale++;
    }
    for (size_t i = 0; rc == 0 && i < s->n_records; i++)
        rc = stored_one(b, l, s->records[i]);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* b->lock held. No record is taken in it any more. */
static bool condemn(struct world_bnf *b, uint32_t seg)
{
    if (b->segs[seg].condemned)
        return false;
    b->segs[seg].condemned = true;
    b->segs[seg].next = SEG_BYTES;
    for (struct world_lease **p = &b->leases; *p;) {
        bool in = false;

        for (uint32_t i = 0; i < (*p)->n; i++)
            in |= (*p)->ext[i].seg == seg;
        if (in)
            lease_end(b, p);
        else
            p = &(*p)->next;
    }
    return true;
}

int world_bnf_sync(struct world_bnf *b, const Fp__BnfSync *q)
{
    unsigned long acked = atomic_load(&b->acked);
    bool lost = false;

    if (q->n_failed == 0)
        atomic_fetch_add(&b->syncs, 1);
    if (b->sync_err)
        return b->sync_err;
    pthread_mutex_lock(&b->lock);
    for (size_t i = 0; i < q->n_failed; i++)
        for (uint32_t k = 0; k < b->nsegs; k++)
            if (b->segs[k].id == q->failed[i])
                lost |= condemn(b, k);
    if (b->sync_lost > 0) {
        b->sync_lost--;
        for (uint32_t k = 0; k < b->nsegs; k++)
            (void)condemn(b, k);
        lost = true;
    }
    pthread_mutex_unlock(&b->lock);
    if (lost)
        b->life += 100;
    atomic_store(&b->synced, acked);
    return 0;
}

int world_bnf_write(struct world_bnf *b, uint64_t link, const Fp__ChunkWrite *w, const uint8_t *data, size_t len)
{
    struct fp_record_header h;
    struct world_lease place = {0}, *l;
    uint8_t raw[FP_RECORD_HEADER_BYTES];
    uint32_t bytes = fp_record_size_bytes((uint32_t)len);
    int rc = 0;

    atomic_fetch_add(&b->stores, 1);
    if (b->store_err)
        return b->store_err;
    memset(&h, 0, sizeof h);
    h.chunk = w->chunk;
    h.len_bytes = h.stored_len_bytes = (uint32_t)len;
    WORLD_CHECK(len == w->len);
    fp_record_header_sum(&h, data);
    WORLD_CHECK(w->n_block_sums == h.blocks && memcmp(w->block_sums, h.block_sums, h.blocks * sizeof(uint64_t)) == 0);
    pthread_mutex_lock(&b->lock);
    l = *lease_of(b, link, w->lease);
    if (!l || l->local)
        rc = FP_ELEASE;
    else if (rec_of(b, w->chunk))
        rc = -EEXIST;
    if (rc == 0) {
        WORLD_CHECK(l->rest_bytes >= bytes);
        WORLD_CHECK(carve(b, &place, bytes, bytes) == bytes);
        h.segment = b->segs[place.ext[0].seg].id;
        h.salt = b->segs[place.ext[0].seg].salt;
        h.offset = place.ext[0].off;
        fp_record_header_encode(&h, raw);
        int fd = b->segs[place.ext[0].seg].fd;

        WORLD_CHECK(pwrite(fd, raw, sizeof raw, (off_t)h.offset) == (ssize_t)sizeof raw);
        WORLD_CHECK(pwrite(fd, data, len, (off_t)(h.offset + sizeof raw)) == (ssize_t)len);
        rec_add(b, place.ext[0].seg, h.offset, &h);
        l->rest_bytes -= bytes;
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

int world_bnf_read(struct world_bnf *b, const Fp__ChunkRead *q, uint8_t *rx, size_t cap, size_t *rx_len, ProtobufCMessage **reply)
{
    Fp__ChunkReadReply a = FP__CHUNK_READ_REPLY__INIT;
    struct fp_record_header h;
    uint8_t raw[FP_RECORD_HEADER_BYTES];
    int rc = 0;

    pthread_mutex_lock(&b->lock);
    struct world_rec *r = rec_of(b, q->chunk);

    if (!r) {
        rc = FP_ECHUNK_MISSING;
        goto out;
    }
    WORLD_CHECK(pread(b->segs[r->seg].fd, raw, sizeof raw, (off_t)r->off) == (ssize_t)sizeof raw);
    WORLD_CHECK(fp_record_header_decode(raw, &h) == 0);
    a.off = q->off & ~(FP_BLOCK_SIZE_BYTES - 1);
    a.len = (q->off + q->len + FP_BLOCK_SIZE_BYTES - 1) & ~(FP_BLOCK_SIZE_BYTES - 1);
    a.len = (a.len < r->len ? a.len : r->len) - a.off;
    WORLD_CHECK(a.len <= cap);
    WORLD_CHECK(pread(b->segs[r->seg].fd, rx, a.len, (off_t)(r->off + sizeof raw + a.off)) == (ssize_t)a.len);
    *rx_len = a.len;
    a.chunk_len = r->len;
    a.n_block_sums = h.blocks;
    a.block_sums = h.block_sums;
    *reply = world_copy(&a.base);
out:
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* One record: where it is, with a descriptor of its segment. */
int world_bnf_locate(struct world_bnf *b, uint64_t chunk, Fp__Record *out, uint64_t *salt, int *fd)
{
    pthread_mutex_lock(&b->lock);
    struct world_rec *r = rec_of(b, chunk);

    fp__record__init(out);
    out->chunk = chunk;
    *fd = -1;
    if (r) {
        struct world_seg *s = &b->segs[r->seg];

        out->segment = s->id;
        out->off = r->off;
        out->stored_bytes = r->stored_bytes;
        out->len = r->len;
        out->sum = r->sum;
        *salt = s->salt;
        *fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 3);
    }
    pthread_mutex_unlock(&b->lock);
    return 0;
}

int world_bnf_seg(struct world_bnf *b, uint32_t seg, uint64_t *id, uint64_t *salt)
{
    pthread_mutex_lock(&b->lock);
    int fd = fcntl(b->segs[seg].fd, F_DUPFD_CLOEXEC, 3);

    *id = b->segs[seg].id;
    *salt = b->segs[seg].salt;
    pthread_mutex_unlock(&b->lock);
    return fd;
}

/* -------------------------------------------------------------- for the model of the manager and the tests */

void world_bnf_delete(uint32_t bnf, uint64_t chunk)
{
    struct world_bnf *b = world_bnf(bnf);
    struct world_rec **p, *r;

    pthread_mutex_lock(&b->lock);
    p = &b->bucket[chunk % 1024];
    while (*p && (*p)->chunk != chunk)
        p = &(*p)->next;
    r = *p;
    if (r) {
        *p = r->next;
        WORLD_CHECK(fallocate(b->segs[r->seg].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)r->off, r->stored_bytes) == 0);
        WORLD_CHECK(b->used >= r->stored_bytes);
        b->used -= r->stored_bytes;
        b->nrecs--;
        free(r);
    }
    pthread_mutex_unlock(&b->lock);
}

bool world_bnf_has(uint32_t bnf, uint64_t chunk, uint32_t len, uint32_t stored_bytes, uint64_t sum)
{
    struct world_bnf *b = world_bnf(bnf);

    WORLD_CHECK(b);
    pthread_mutex_lock(&b->lock);
    struct world_rec *r = rec_of(b, chunk);
    bool ok = r && r->len == len && r->stored_bytes == stored_bytes && r->sum == sum;

    pthread_mutex_unlock(&b->lock);
    return ok;
}

int world_bnf_data(uint32_t bnf, uint64_t chunk, uint32_t len, uint64_t sum, uint8_t *out)
{
    struct world_bnf *b = world_bnf(bnf);
    struct fp_record_header h;
    int rc = FP_ECHUNK_MISSING;

    pthread_mutex_lock(&b->lock);
    struct world_rec *r = rec_of(b, chunk);

    if (r)
        rc = rec_read(b, r->seg, r->off, &h, out);
    pthread_mutex_unlock(&b->lock);
    if (rc == 0 && (h.chunk != chunk || h.len_bytes != len || h.sum != sum))
        rc = -EILSEQ;
    return rc;
}

bool world_bnf_flip(struct world_bnf *b, uint64_t chunk, uint32_t off)
{
    uint8_t byte;

    pthread_mutex_lock(&b->lock);
    struct world_rec *r = rec_of(b, chunk);

    if (r) {
        off_t at = (off_t)(r->off + FP_RECORD_HEADER_BYTES + off);

        WORLD_CHECK(pread(b->segs[r->seg].fd, &byte, 1, at) == 1);
        byte ^= 0x10;
        WORLD_CHECK(pwrite(b->segs[r->seg].fd, &byte, 1, at) == 1);
    }
    pthread_mutex_unlock(&b->lock);
    return r != NULL;
}

/* Forgets all that is stored; returns how many bytes that was. */
static uint64_t drop_all(struct world_bnf *b)
{
    uint64_t stored = 0;

    for (size_t k = 0; k < 1024; k++)
        while (b->bucket[k]) {
            struct world_rec *r = b->bucket[k];

            b->bucket[k] = r->next;
            stored += r->stored_bytes;
            free(r);
        }
    for (uint32_t k = 0; k < b->nsegs; k++) {
        close(b->segs[k].fd);
        free(b->segs[k].used);
    }
    free(b->segs);
    b->segs = NULL;
    b->nsegs = 0;
    b->nrecs = 0;
    return stored;
}

void world_bnf_restart_empty(struct world_bnf *b)
{
    world_bnf_break(b);
    for (int i = 0; b->leases && i < 5000; i++) /* connections break on the loop */
        usleep(1000);
    pthread_mutex_lock(&b->lock);
    WORLD_CHECK(!b->leases);
    b->used -= drop_all(b);
    b->starts++;
    pthread_mutex_unlock(&b->lock);
}

void world_bnf_fini(void)
{
    for (unsigned i = 0; i < nbnfs; i++) {
        struct world_bnf *b = &bnfs[i];
        uint64_t stored = drop_all(b);

        WORLD_CHECK(!b->leases); /* every lease came back or ended with its link */
        WORLD_CHECK(b->used == stored);
        pthread_mutex_destroy(&b->lock);
    }
    nbnfs = 0;
}
