/*
 * Rebuilds the index from the segments at start.
 *
 * Called once by main, before any connection is served. Some threads take one segment after another and read
 * record headers only, from one to the next; what they find is entered into the store under one lock.
 * Everything of a segment that is not a record (rests of leases, torn records) is punched, so that a crash
 * leaks no space; but for a segment that could not be read as a whole, where it may be records.
 *
 * After a header that is not valid the scan goes on in steps of 4 KiB from there, over holes by SEEK_DATA.
 * Data of users can't be taken for a record: a header names its segment, offset and the segment's random
 * salt. A record whose header is whole and whose data is torn is entered: it was never acknowledged, so its
 * writer writes it again, and a new copy replaces a recovered one (store.h); readers verify block sums.
 *
 * Two copies of a chunk: the newer one counts if its data is whole, else the other; the loser is punched.
 *
 * A segment with a damaged header is set aside, that is left alone: its records can't be told from old ones
 * without its salt, and a person may want to look at it.
 *
 * The alternative, a log of the index beside the segments, was rejected: it costs writes on the data path to
 * make a start faster that takes 30 µs per record this way.
 */
#include "benefactor/recover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/checksum.h"
#include "fp/err.h"
#include "fp/grown.h"
#include "fp/log.h"

#define WINDOW_BYTES ((size_t)1 << 20) /* read at a time while records are small, or one is looked for */
#define SMALL_BYTES  (128u << 10)
#define PAGE         FP_RECORD_ALIGN_BYTES

struct found {
    uint64_t chunk;
    uint64_t sum;
    uint64_t off_bytes;
    uint32_t stored_bytes;
    uint32_t len_bytes;
};

struct scan {
    const struct bnf_recover_config *config;
    struct bnf_store *store;
    struct bnf_recover_result *result;
    pthread_mutex_t lock; /* store, result, next, rc, files */
    char (*names)[24];
    size_t count, next;
    struct bnf_file **files; /* by slot, borrowed: for comparing two copies */
    uint32_t nfiles;
    int rc;
};

/* One segment being read. */
struct reader {
    struct bnf_file *file;
    uint8_t *buf; /* WINDOW_BYTES, aligned */
    uint64_t from_bytes;
    size_t have_bytes;
    uint64_t size_bytes;
    struct found *found;
    size_t count, cap;
    uint64_t torn;
    uint64_t unreadable; /* pages that the device gave an error for */
};

/* ---------------------------------------------------------------- scanning one segment */

static int page_at(struct reader *r, uint64_t off, size_t want, const uint8_t **page)
{
    if (off < r->from_bytes || off + PAGE > r->from_bytes + r->have_bytes) {
        size_t len = r->size_bytes - off < want ? (size_t)(r->size_bytes - off) : want;
        int rc;

        len -= len % PAGE;
        r->have_bytes = 0;
        rc = bnf_file_read(r->file, r->buf, len, off);
        if (rc)
            return rc;
        r->from_bytes = off;
        r->have_bytes = len;
    }
    *page = r->buf + (off - r->from_bytes);
    return 0;
}

static int remember(struct reader *r, const struct fp_record_header *h, uint32_t stored)
{
    struct found *more = fp_grown(r->found, r->count, &r->cap, sizeof(*more));

    if (!more)
        return -ENOMEM;
    r->found = more;
    r->found[r->count++] = (struct found){.chunk = h->chunk,
                                          .sum = h->sum,
                                          .off_bytes = h->offset,
                                          .stored_bytes = stored,
                                          .len_bytes = h->len_bytes};
    return 0;
}

/* The next offset >= off that may hold a header: holes are skipped. size_bytes: none. */
static uint64_t next_data(const struct reader *r, uint64_t off)
{
    off_t at = lseek(r->file->fd, (off_t)off, SEEK_DATA);

    if (at < 0)
        return errno == ENXIO ? r->size_bytes : off;
    return (uint64_t)at - (uint64_t)at % PAGE;
}

static bool record_at(const uint8_t *page, const struct reader *r, uint64_t off, struct fp_record_header *h)
{
    return fp_record_header_decode(page, h) == 0 &&
           fp_record_header_is_at(h, r->file->segment, r->file->salt, off) &&
           off + fp_record_size_bytes(h->stored_len_bytes) <= r->size_bytes;
}

static bool all_zero(const uint8_t *page)
{
    return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

static int scan_records(struct reader *r)
{
    uint64_t off = FP_SEGMENT_HEADER_BYTES;
    size_t want = WINDOW_BYTES;
    bool lost = false;
    struct fp_record_header *h = malloc(sizeof(*h));
    int rc = h ? 0 : -ENOMEM;

    while (rc == 0 && off + PAGE <= r->size_bytes) {
        const uint8_t *page;

        rc = page_at(r, off, want, &page);
        if (rc == 0 && record_at(page, r, off, h)) {
            uint32_t stored = fp_record_size_bytes(h->stored_len_bytes);

            rc = remember(r, h, stored);
            want = stored <= SMALL_BYTES ? WINDOW_BYTES : PAGE;
            off += stored;
            lost = false;
            continue;
        }
        if (rc == -EIO) { /* a page that can't be read is like a damaged one, but see scan_segment */
            rc = 0;
            if (want > PAGE) {
                want = PAGE;
                continue;
            }
            r->unreadable++;
        } else if (rc == 0) {
            uint64_t to = all_zero(page) ? next_data(r, off) : off;

            want = WINDOW_BYTES;
            if (to > off) {
                off = to;
                continue;
            }
        }
        r->torn += !lost;
        lost = true;
        off += PAGE;
    }
    free(h);
    return rc;
}

static int punch_gaps(const struct scan *s, const struct reader *r)
{
    struct bnf_backend *b = s->config->backend;
    uint64_t from = FP_SEGMENT_HEADER_BYTES;

    for (size_t i = 0; i <= r->count; i++) {
        uint64_t to = i < r->count ? r->found[i].off_bytes : r->file->limit_bytes;

        if (to > from) {
            int rc = bnf_backend_punch(b, r->file, from, to - from);

            if (rc)
                return rc;
        }
        if (i < r->count)
            from = to + r->found[i].stored_bytes;
    }
    return 0;
}

/* ---------------------------------------------------------------- two copies of one chunk */

/* Reads the whole record and verifies it. */
static bool is_whole(struct bnf_file *f, uint64_t off, uint32_t stored)
{
    uint8_t *buf = aligned_alloc(PAGE, stored);
    struct fp_record_header *h = malloc(sizeof(*h));
    bool good = false;

    if (buf && h && bnf_file_read(f, buf, stored, off) == 0 && fp_record_header_decode(buf, h) == 0 &&
        fp_record_header_is_at(h, f->segment, f->salt, off) && h->codec == FP_CODEC_NONE)
        good = fp_sum_verify(buf + FP_RECORD_HEADER_BYTES, h->len_bytes, h->block_sums) < 0;
    free(buf);
    free(h);
    return good;
}

/* Lock held. The record `at` of chunk meets another that is in the store already. */
static void settle_copies(struct scan *s, uint64_t chunk, const struct bnf_place *at, struct bnf_file *file,
                          const struct bnf_place *other)
{
    struct bnf_file *other_file = s->files[other->slot];
    bool newer =
        at->segment != other->segment ? at->segment > other->segment : at->off_bytes > other->off_bytes;
    bool take = newer ? is_whole(file, at->off_bytes, at->stored_bytes)
                      : !is_whole(other_file, other->off_bytes, other->stored_bytes);
    struct bnf_place unused;

    s->result->duplicates++;
    if (take) {
        bnf_store_drop_record(s->store, chunk);
        bnf_store_add_record(s->store, chunk, at, &unused);
        bnf_backend_punch(s->config->backend, other_file, other->off_bytes, other->stored_bytes);
    } else {
        bnf_backend_punch(s->config->backend, file, at->off_bytes, at->stored_bytes);
    }
}

/* ---------------------------------------------------------------- into the store */

static int note_file(struct scan *s, uint32_t slot, struct bnf_file *f)
{
    if (slot >= s->nfiles) {
        struct bnf_file **more = realloc(s->files, (slot + 64) * sizeof(*more));

        if (!more)
            return -ENOMEM;
        s->files = more;
        s->nfiles = slot + 64;
    }
    s->files[slot] = f;
    return 0;
}

/* Lock held. */
static int enter(struct scan *s, const struct reader *r)
{
    uint32_t slot;
    int rc = bnf_store_add_segment(s->store, r->file->segment, r->file->salt, r->file->limit_bytes, &slot);

    if (rc == 0)
        rc = note_file(s, slot, r->file);
    for (size_t i = 0; i < r->count && rc == 0; i++) {
        const struct found *f = &r->found[i];
        struct bnf_place other, at = {.slot = slot,
                                      .segment = r->file->segment,
                                      .off_bytes = f->off_bytes,
                                      .stored_bytes = f->stored_bytes,
                                      .len_bytes = f->len_bytes,
                                      .sum = f->sum};

        rc = bnf_store_add_record(s->store, f->chunk, &at, &other);
        if (rc == -EEXIST) {
            settle_copies(s, f->chunk, &at, r->file, &other);
            rc = 0;
        }
    }
    if (rc)
        return rc;
    s->result->segments++;
    s->result->torn += r->torn;
    s->config->found(s->config->arg, slot, bnf_file_get(r->file));
    return 0;
}

static const char *header_fault(const struct scan *s, struct bnf_file *f, uint8_t *buf, uint64_t id)
{
    struct fp_segment_header h;

    if (bnf_file_read(f, buf, FP_SEGMENT_HEADER_BYTES, 0) || fp_segment_header_decode(buf, &h))
        return "its header is damaged";
    if (memcmp(h.store_uuid, s->config->store_uuid, 16) || memcmp(h.bnf_uuid, s->config->bnf_uuid, 16))
        return "it belongs to another store or benefactor";
    if (h.id != id || h.limit_bytes > BNF_SEGMENT_MAX_BYTES || h.limit_bytes % PAGE)
        return "its header does not belong to its name";
    f->segment = h.id;
    f->salt = h.salt;
    f->limit_bytes = h.limit_bytes;
    return NULL;
}

static int scan_segment(struct scan *s, const char *name, uint8_t *buf)
{
    struct reader r = {.buf = buf};
    uint64_t id = strtoull(name + 4, NULL, 16);
    const char *fault;
    struct stat st;
    bool read_only;
    int rc = bnf_backend_dir_open(s->config->backend, name, &read_only, &r.file);

    if (rc) {
        fault = fp_strerror(rc);
    } else {
        fault = header_fault(s, r.file, buf, id);
        if (!fault && fstat(r.file->fd, &st))
            fault = "it can't be examined";
    }
    if (fault) {
        FP_ERROR("segment %s is set aside: %s; chunks in it can't be read; move the file away once it is not "
                 "needed",
                 name, fault);
        bnf_file_put(r.file);
        pthread_mutex_lock(&s->lock);
        s->result->set_aside++;
        bnf_store_skip_segment(s->store, id);
        pthread_mutex_unlock(&s->lock);
        return rc == -ENOMEM ? rc : 0;
    }
    r.size_bytes = (uint64_t)st.st_size < r.file->limit_bytes ? (uint64_t)st.st_size : r.file->limit_bytes;
    if (r.size_bytes < r.file->limit_bytes)
        FP_WARN("segment %s is cut off: %" PRIu64 " of %" PRIu64 " bytes are there", name, r.size_bytes,
                r.file->limit_bytes);
    rc = scan_records(&r);
    if (r.unreadable) /* a device that errs today may read tomorrow: what could not be looked at is not punched */
        FP_ERROR("segment %s: %" PRIu64 " pages can't be read (Input/output error): their chunks are missing until a "
                 "restart finds them readable; check the disk",
                 name, r.unreadable);
    else if (rc == 0 && !read_only && punch_gaps(s, &r))
        FP_WARN("segment %s: unused space could not be given back", name);
    if (r.torn)
        FP_INFO("segment %s: %" PRIu64 " torn or damaged place(s) skipped", name, r.torn);
    pthread_mutex_lock(&s->lock);
    s->result->read_only |= read_only;
    if (rc == 0)
        rc = enter(s, &r);
    pthread_mutex_unlock(&s->lock);
    bnf_file_put(r.file);
    free(r.found);
    return rc;
}

static void *scan_thread(void *arg)
{
    struct scan *s = arg;
    uint8_t *buf = aligned_alloc(PAGE, WINDOW_BYTES);

    pthread_mutex_lock(&s->lock);
    if (!buf)
        s->rc = -ENOMEM;
    while (s->rc == 0 && s->next < s->count) {
        const char *name = s->names[s->next++];
        int rc;

        pthread_mutex_unlock(&s->lock);
        rc = scan_segment(s, name, buf);
        pthread_mutex_lock(&s->lock);
        if (rc)
            s->rc = rc;
    }
    pthread_mutex_unlock(&s->lock);
    free(buf);
    return NULL;
}

/* ---------------------------------------------------------------- the directory */

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int list_segments(struct scan *s)
{
    int fd = openat(s->config->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *e;
    size_t cap = 0;
    int rc = 0;

    if (!dir)
        return -errno;
    while (rc == 0 && (e = readdir(dir))) {
        size_t len = strlen(e->d_name);

        if (len > 4 && strcmp(e->d_name + len - 4, ".new") == 0)
            unlinkat(s->config->dir_fd, e->d_name, 0); /* of a crash while a segment was being made */
        if (!bnf_backend_dir_is_segment(e->d_name))
            continue;
        if (s->count == cap) {
            char(*more)[24] = realloc(s->names, (cap + 256) * sizeof(*more));

            if (!more) {
                rc = -ENOMEM;
                break;
            }
            s->names = more;
            cap += 256;
        }
        memcpy(s->names[s->count++], e->d_name, len + 1);
    }
    closedir(dir);
    if (s->count)
        qsort(s->names, s->count, sizeof(*s->names), by_name);
    return rc;
}

static void run_threads(struct scan *s, unsigned n)
{
    pthread_t threads[32];
    unsigned started = 0;

    if (n > 32)
        n = 32;
    while (started + 1 < n && started < s->count &&
           pthread_create(&threads[started], NULL, scan_thread, s) == 0)
        started++;
    scan_thread(s);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

int bnf_recover(const struct bnf_recover_config *c, struct bnf_store *s, struct bnf_recover_result *out)
{
    struct scan scan = {.config = c, .store = s, .result = out};
    struct bnf_space space;
    int rc;

    *out = (struct bnf_recover_result){0};
    pthread_mutex_init(&scan.lock, NULL);
    rc = list_segments(&scan);
    if (rc == 0 && scan.count) {
        run_threads(&scan, c->threads);
        rc = scan.rc;
    }
    bnf_store_space(s, &space);
    out->records = space.chunks;
    out->bytes = space.used_bytes;
    pthread_mutex_destroy(&scan.lock);
    free(scan.names);
    free(scan.files);
    return rc;
}
