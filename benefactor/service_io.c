/*
 * Chunks over the network: writing, reading, syncing. Part of the service (service.h), loop's thread; the
 * functions named *_run are on disk threads.
 *
 * A record is written from one buffer: the payload was received behind 4 KiB that the header goes into, so
 * nothing is copied. Sums of the payload are verified before it is written, and again when it is read: what a
 * reader gets was right when it left this program. A chunk that was deleted while it was read is missing, not
 * damaged.
 *
 * Syncs are grouped: those that arrive while one runs share the next one. One that fails is not tried again.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "benefactor/service_impl.h"
#include "fp/checksum.h"
#include "fp/err.h"
#include "fp/log.h"

/* ---------------------------------------------------------------- buffers */

static size_t record_bytes(uint32_t len_bytes)
{
    return fp_record_size_bytes(len_bytes);
}

void service_check_pressure(struct bnf_service *v)
{
    bool pressed = bnf_service_is_pressed(v);

    if (pressed == v->pressed)
        return;
    v->pressed = pressed;
    v->config.pressed(v->config.arg, pressed);
}

bool bnf_service_is_pressed(const struct bnf_service *v)
{
    return bnf_bufpool_is_full(&v->buffers);
}

void *bnf_service_buffer(struct bnf_service *v, uint32_t len_bytes, bool force)
{
    void *buf = bnf_bufpool_get(&v->buffers, record_bytes(len_bytes), force);

    service_check_pressure(v);
    return buf;
}

void bnf_service_buffer_put(struct bnf_service *v, void *buf, uint32_t len_bytes)
{
    bnf_bufpool_put(&v->buffers, buf, record_bytes(len_bytes));
    service_reads_go_on(v);
    service_check_pressure(v);
}

/* ---------------------------------------------------------------- writing */

struct write_task {
    struct bnf_task task;
    struct bnf_service *service;
    struct bnf_file *file;
    struct bnf_place at;
    uint64_t lease, chunk;
    void *buf;
    int rc;
    bool bad_sums;
    bool borrowed; /* buf */
    bnf_done_cb cb;
    void *arg;
    uint64_t block_sums[];
};

static void write_run(struct bnf_task *task)
{
    struct write_task *t = (struct write_task *)task;
    struct fp_record_header h = {.chunk = t->chunk,
                                 .segment = t->at.segment,
                                 .offset = t->at.off_bytes,
                                 .salt = t->at.salt,
                                 .len_bytes = t->at.len_bytes,
                                 .stored_len_bytes = t->at.len_bytes,
                                 .blocks = fp_sum_nblocks(t->at.len_bytes),
                                 .sum = t->at.sum};
    uint8_t *data = (uint8_t *)t->buf + FP_RECORD_HEADER_BYTES;
    struct iovec iov = {.iov_base = t->buf, .iov_len = t->at.stored_bytes};

    if (fp_sum_verify(data, h.len_bytes, t->block_sums) >= 0) {
        t->bad_sums = true;
        t->rc = FP_ECHECKSUM;
        return;
    }
    memcpy(h.block_sums, t->block_sums, h.blocks * sizeof(uint64_t));
    memset(data + h.len_bytes, 0, t->at.stored_bytes - FP_RECORD_HEADER_BYTES - h.len_bytes);
    fp_record_header_encode(&h, t->buf);
    t->rc = bnf_file_write(t->file, &iov, 1, t->at.off_bytes);
}

static void write_done(struct bnf_task *task)
{
    struct write_task *t = (struct write_task *)task;
    struct bnf_service *v = t->service;
    int rc = t->rc;

    if (t->bad_sums) {
        FP_LOG_EVERY(1000, FP_LOG_WARN,
                     "chunk %016" PRIx64 " arrived damaged: refused, the writer sends it again", t->chunk);
    } else if (rc) {
        service_disk_failed(v, "write", rc);
        bnf_store_retire(v->store, t->at.slot);
    }
    rc = bnf_store_write_end(v->store, t->lease, t->chunk, &t->at, rc);
    bnf_file_put(t->file);
    if (!t->borrowed)
        bnf_service_buffer_put(v, t->buf, t->at.len_bytes);
    t->cb(t->arg, rc);
    free(t);
    service_pump(v);
}

static struct write_task *write_new(const uint64_t *block_sums, uint32_t nblocks)
{
    struct write_task *t = malloc(sizeof(*t) + nblocks * sizeof(uint64_t));

    if (!t)
        return NULL;
    *t = (struct write_task){.task = {.run = write_run, .done = write_done}};
    memcpy(t->block_sums, block_sums, nblocks * sizeof(uint64_t));
    return t;
}

static int write_start(struct bnf_service *v, uint64_t owner, uint64_t lease, uint64_t chunk, uint32_t len_bytes, const uint64_t *block_sums, uint32_t nblocks,
                       void *buf, bool borrowed, bnf_done_cb cb, void *arg)
{
    struct write_task *t = NULL;
    int rc = nblocks == fp_sum_nblocks(len_bytes) && nblocks <= FP_BLOCKS_MAX ? 0 : -EINVAL;

    if (rc == 0 && !(t = write_new(block_sums, nblocks)))
        rc = -ENOMEM;
    if (rc == 0)
        rc = bnf_store_write_begin(v->store, owner, lease, chunk, len_bytes, &t->at);
    if (rc) {
        free(t);
        return rc;
    }
    v->mount_bytes += len_bytes;
    t->service = v;
    t->at.sum = fp_sum_chunk(block_sums, nblocks, len_bytes);
    t->file = bnf_file_get(bnf_service_file(v, t->at.slot));
    t->lease = lease;
    t->chunk = chunk;
    t->buf = buf;
    t->borrowed = borrowed;
    t->cb = cb;
    t->arg = arg;
    bnf_disk_submit(v->disk, &t->task);
    return 0;
}

int bnf_service_write(struct bnf_service *v, uint64_t owner, uint64_t lease, uint64_t chunk,
                      uint32_t len_bytes, const uint64_t *block_sums, uint32_t nblocks, void *buf,
                      bnf_done_cb cb, void *arg)
{
    int rc = write_start(v, owner, lease, chunk, len_bytes, block_sums, nblocks, buf, false, cb, arg);

    if (rc)
        bnf_service_buffer_put(v, buf, len_bytes);
    return rc;
}

int bnf_service_store_chunk(struct bnf_service *v, uint64_t owner, uint64_t lease, uint64_t chunk, uint32_t len_bytes, const uint64_t *block_sums,
                            uint32_t nblocks, void *buf, bnf_done_cb cb, void *arg)
{
    return write_start(v, owner, lease, chunk, len_bytes, block_sums, nblocks, buf, true, cb, arg);
}

/* ---------------------------------------------------------------- reading */

struct bnf_read_task {
    struct bnf_task task;
    struct bnf_read_task *next_waiting;
    struct bnf_service *service;
    struct bnf_file *file;
    struct bnf_place at;
    uint64_t chunk;
    uint32_t off_bytes, len_bytes; /* asked for */
    int rc;
    bnf_read_cb cb;
    void *arg;
    void *buf; /* header, then data */
    struct bnf_read result;
    struct fp_record_header header;
};

static bool header_belongs(const struct bnf_read_task *t)
{
    const struct fp_record_header *h = &t->header;

    return fp_record_header_is_at(h, t->at.segment, t->at.salt, t->at.off_bytes) && h->chunk == t->chunk &&
           h->len_bytes == t->at.len_bytes && h->sum == t->at.sum && h->codec == FP_CODEC_NONE;
}

static uint32_t page_up(uint32_t bytes)
{
    return (bytes + FP_RECORD_ALIGN_BYTES - 1) / FP_RECORD_ALIGN_BYTES * FP_RECORD_ALIGN_BYTES;
}

static void read_run(struct bnf_task *task)
{
    struct bnf_read_task *t = (struct bnf_read_task *)task;
    uint8_t *buf = t->buf, *data = buf + FP_RECORD_HEADER_BYTES;
    struct bnf_read *r = &t->result;
    uint32_t from = t->off_bytes / FP_BLOCK_SIZE_BYTES * FP_BLOCK_SIZE_BYTES;
    uint64_t end = (uint64_t)t->off_bytes + t->len_bytes;
    uint64_t data_at = t->at.off_bytes + FP_RECORD_HEADER_BYTES;

    end = (end + FP_BLOCK_SIZE_BYTES - 1) / FP_BLOCK_SIZE_BYTES * FP_BLOCK_SIZE_BYTES;
    if (end > t->at.len_bytes)
        end = t->at.len_bytes;
    r->off_bytes = from;
    r->len_bytes = (uint32_t)end - from;
    if (from == 0) {
        t->rc = bnf_file_read(t->file, buf, FP_RECORD_HEADER_BYTES + page_up(r->len_bytes), t->at.off_bytes);
    } else {
        t->rc = bnf_file_read(t->file, buf, FP_RECORD_HEADER_BYTES, t->at.off_bytes);
        if (t->rc == 0)
            t->rc = bnf_file_read(t->file, data, page_up(r->len_bytes), data_at + from);
    }
    if (t->rc)
        return;
    if (fp_record_header_decode(buf, &t->header) || !header_belongs(t))
        t->rc = FP_ECORRUPT;
    else if (fp_sum_verify(data, r->len_bytes, t->header.block_sums + from / FP_BLOCK_SIZE_BYTES) >= 0)
        t->rc = FP_ECHECKSUM;
}

static void read_free(struct bnf_read_task *t)
{
    struct bnf_service *v = t->service;
    void *buf = t->buf;
    uint32_t len = t->at.len_bytes;

    bnf_file_put(t->file);
    free(t);
    if (buf)
        bnf_service_buffer_put(v, buf, len);
}

static int read_fault(struct bnf_read_task *t)
{
    struct bnf_place now;

    if (bnf_store_find(t->service->store, t->chunk, &now))
        return FP_ECHUNK_MISSING; /* deleted meanwhile */
    FP_LOG_EVERY(200, FP_LOG_ERROR,
                 "chunk %016" PRIx64 " in segment %016" PRIx64 " at offset %" PRIu64 ": %s", t->chunk,
                 t->at.segment, t->at.off_bytes, fp_strerror(t->rc));
    return t->rc;
}

static void read_done(struct bnf_task *task)
{
    struct bnf_read_task *t = (struct bnf_read_task *)task;

    if (t->rc) {
        t->cb(t->arg, read_fault(t), NULL);
        read_free(t);
        return;
    }
    t->result.chunk_len_bytes = t->header.len_bytes;
    t->result.nblocks = t->header.blocks;
    t->result.block_sums = t->header.block_sums;
    t->result.data = (uint8_t *)t->buf + FP_RECORD_HEADER_BYTES;
    t->result.handle = t;
    t->cb(t->arg, 0, &t->result);
}

void bnf_service_read_end(struct bnf_service *v, void *handle)
{
    (void)v;
    read_free(handle);
}

static bool read_start(struct bnf_read_task *t)
{
    t->buf = bnf_bufpool_get(&t->service->buffers, record_bytes(t->at.len_bytes), false);
    if (!t->buf)
        return false;
    bnf_disk_submit(t->service->disk, &t->task);
    return true;
}

void service_reads_go_on(struct bnf_service *v)
{
    struct bnf_read_task *t;

    while ((t = v->reads_waiting) && read_start(t)) {
        v->reads_waiting = t->next_waiting;
        if (!v->reads_waiting)
            v->reads_tail = &v->reads_waiting;
    }
}

int bnf_service_read(struct bnf_service *v, uint64_t chunk, uint32_t off_bytes, uint32_t len_bytes,
                     bnf_read_cb cb, void *arg)
{
    struct bnf_read_task *t;
    struct bnf_place at;
    int rc = bnf_store_find(v->store, chunk, &at);

    if (rc)
        return rc;
    if (off_bytes >= at.len_bytes || len_bytes == 0)
        return -EINVAL;
    t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    v->mount_bytes += len_bytes;
    t->task.run = read_run;
    t->task.done = read_done;
    t->service = v;
    t->file = bnf_file_get(bnf_service_file(v, at.slot));
    t->at = at;
    t->chunk = chunk;
    t->off_bytes = off_bytes;
    t->len_bytes = len_bytes;
    t->cb = cb;
    t->arg = arg;
    if (v->reads_waiting || !read_start(t)) {
        *v->reads_tail = t;
        v->reads_tail = &t->next_waiting;
    }
    service_check_pressure(v);
    return 0;
}

/* ---------------------------------------------------------------- syncing */

struct sync_task {
    struct bnf_task task;
    struct bnf_service *service;
    struct waiter *waiters;
    int rc;
    bool lost;          /* a sync failed, here or at a mount … */
    uint64_t next_life; /* … and this is the unsynced life then */
    size_t count;
    struct {
        uint32_t slot;
        int rc;
        struct bnf_file *file;
    } dirty[];
};

/* Known to the next process too, before anybody is told: a mount that is away now must hear of it from that one. */
static void keep_life(struct sync_task *t)
{
    struct bnf_service *v = t->service;
    struct bnf_backend *b = v->config.backend;
    uint64_t mark[2] = {v->boot, t->next_life};
    int rc = b->ops->keep ? b->ops->keep(b, mark) : 0;

    if (rc)
        FP_LOG_EVERY(1000, FP_LOG_WARN, "that data was lost can't be noted in the directory of segments: %s",
                     fp_strerror(rc));
}

static void sync_run(struct bnf_task *task)
{
    struct sync_task *t = (struct sync_task *)task;

    for (size_t i = 0; i < t->count; i++) {
        t->dirty[i].rc = bnf_backend_sync(t->service->config.backend, t->dirty[i].file);
        if (t->dirty[i].rc && t->rc == 0)
            t->rc = t->dirty[i].rc;
    }
    t->lost |= t->rc != 0;
    if (t->lost)
        keep_life(t);
}

static void complete_all(struct waiter *w, int status)
{
    while (w) {
        struct waiter *next = w->next;

        w->done(w->arg, status);
        free(w);
        w = next;
    }
}

static int sync_start(struct bnf_service *v);

/* The kernel tells once that a sync failed, and counts the pages as clean from then on: another try would succeed with the
 * data gone. Whoever has acknowledged data here that was not synced learns it by the unsynced life. */
static void data_lost(struct bnf_service *v, const struct sync_task *t)
{
    v->unsynced_life = t->next_life;
    for (size_t i = 0; i < t->count; i++)
        if (t->dirty[i].rc)
            bnf_store_condemn(v->store, t->dirty[i].slot);
    if (t->rc)
        service_disk_failed(v, "sync", t->rc);
    FP_LOG_EVERY(1000, FP_LOG_ERROR,
                 "segments could not be synced (%s): what was written to this benefactor and not synced counts as lost; "
                 "fsync of the files gives EIO",
                 t->rc ? fp_strerror(t->rc) : "a mount says so");
    v->config.changed(v->config.arg);
}

static void sync_done(struct bnf_task *task)
{
    struct sync_task *t = (struct sync_task *)task;
    struct bnf_service *v = t->service;

    v->sync_running = false;
    if (t->lost)
        data_lost(v, t);
    for (size_t i = 0; i < t->count; i++)
        bnf_file_put(t->dirty[i].file);
    complete_all(t->waiters, t->rc ? -EIO : 0);
    free(t);
    if (v->sync_next && !v->sync_running && sync_start(v)) {
        struct waiter *w = v->sync_next;

        v->sync_next = NULL;
        complete_all(w, -ENOMEM);
    }
    service_pump(v);
}

static uint64_t next_life(struct bnf_service *v)
{
    uint64_t x[3] = {v->unsynced_life, v->incarnation, ++v->losses};

    return XXH3_64bits(x, sizeof(x)) | 1;
}

static int sync_start(struct bnf_service *v)
{
    size_t n = bnf_store_take_dirty(v->store, NULL, 0);
    struct sync_task *t = calloc(1, sizeof(*t) + n * sizeof(t->dirty[0]));
    uint32_t *slots = malloc((n + 1) * sizeof(*slots));

    if (!t || !slots) {
        free(t);
        free(slots);
        return -ENOMEM;
    }
    t->task.run = sync_run;
    t->task.done = sync_done;
    t->service = v;
    t->lost = v->loss_reported;
    v->loss_reported = false;
    t->next_life = next_life(v);
    t->count = n ? bnf_store_take_dirty(v->store, slots, n) : 0;
    for (size_t i = 0; i < t->count; i++) {
        t->dirty[i].slot = slots[i];
        t->dirty[i].file = bnf_file_get(bnf_service_file(v, slots[i]));
    }
    free(slots);
    t->waiters = v->sync_next;
    v->sync_next = NULL;
    v->sync_running = true;
    bnf_disk_submit(v->disk, &t->task);
    return 0;
}

int bnf_service_sync(struct bnf_service *v, bnf_done_cb cb, void *arg)
{
    struct waiter *w = calloc(1, sizeof(*w));

    if (!w)
        return -ENOMEM;
    *w = (struct waiter){.next = v->sync_next, .done = cb, .arg = arg};
    v->sync_next = w;
    if (!v->sync_running && sync_start(v)) {
        v->sync_next = w->next;
        free(w);
        return -ENOMEM;
    }
    return 0;
}

int bnf_service_sync_failed(struct bnf_service *v, const uint64_t *segments, size_t count, bnf_done_cb cb,
                            void *arg)
{
    uint32_t slot;

    for (size_t i = 0; i < count; i++) {
        /* No file: it could not be made, and is going; no mount can have it. Or known already: what is in it is lost and told,
         * and nothing has come since. */
        if (!bnf_store_slot(v->store, segments[i], &slot) || !bnf_service_file(v, slot) || !bnf_store_condemn(v->store, slot))
            continue;
        bnf_store_mark_dirty(v->store, slot); /* takes the error that the kernel has for our own descriptor */
        v->loss_reported = true;
    }
    service_pump(v);
    return bnf_service_sync(v, cb, arg);
}
