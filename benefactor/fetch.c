/*
 * Chunks of which the bytes are in a target: read by fp-drain, stored as records like any others, under their ids (drain_impl.h, drain.h).
 *
 *     WAITS --slot free--> READS --sums agree--> LEASES --extent--> WRITES --> told to all who asked, and to the manager
 *       ^                    |                     |
 *       +--- worker gone ----+                     +--no room--> SENT (payload), until the last one who wanted it has it
 *
 * Loop's thread. fp-drain reads into memory that it shares with this program (a slot is room for a record), and disk threads write from there: the loop copies nothing,
 * and waits for nothing. All asks for one chunk are one of these. A program waits for what mounts ask for, so each ask has a deadline: the time after which a call of
 * the target counts as hanging. What was read for nobody is stored all the same: it will be asked for again.
 *
 * Programs that write come first: the last sixteenth of the store is not filled with what can be had elsewhere. Then the bytes go to who asked for them.
 *
 * The manager has the chunk's row and hears of the record by TaskDone.staged. Until it has answered it is told again, as long as the record is here; should this
 * program end before, the manager's comparison of inventories finds it.
 *
 * Rejected: fp-drain writing to the segment itself. It would save one change of threads, and need a second way for payloads and for back ends that hand out no descriptors.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "benefactor/drain_impl.h"
#include "fp/checksum.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"

#define LEASE_BYTES  (16u << 20)
#define BYTES_MAX    (32u << 20) /* of READs under way; one at least */
#define HELD_MAX     (64u << 20) /* of what is read, and not stored yet, for tasks; one at least */
#define LEASE_IDLE_MS 2000u
#define ASKS_MAX     8192u
#define TASK_SLOTS   (SLOTS_MAX - 2) /* the others are for programs that wait */

enum fetch_state { WAITS, READS, LEASES, WRITES, SENT };

struct waiter {
    struct waiter *next;
    void (*task)(void *arg, const struct dfetched *r); /* or */
    bnf_fetch_cb cb;
    void *arg;
    bool want_payload;
    uint64_t deadline_ms; /* cb */
};

struct dfetch {
    struct dfetch *next;
    struct dfetcher *owner;
    struct dfetch_ask ask; /* file is our own */
    Fp__ExtFile file;
    enum fetch_state state;
    uint64_t number;
    struct waiter *waiters;
    unsigned tries, crashes, leases;
    struct dmemory *memory;
    int slot;
    uint32_t nblocks;
    uint64_t *sums;
    unsigned payloads;
};

struct dfetcher {
    struct bnf_drain *drain; /* NULL: stopped */
    struct bnf_service *service;
    struct dfetch *fetches, **tail;
    size_t nwaiters;
    unsigned disk; /* leases and writes under way */
    bool freed, pumping;
    uint64_t next_number, owner;
    uint64_t lease; /* 0: none */
    bool leasing;
    uint64_t used_ms;
};

/* ---------------------------------------------------------------- their list */

static void slot_put(struct dfetch *f)
{
    if (f->memory)
        dmemory_slot_put(f->memory, f->slot, f->ask.len);
    f->memory = NULL;
}

static void fetch_free(struct dfetch *f)
{
    struct dfetcher *e = f->owner;
    struct dfetch **at = &e->fetches;

    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    if (e->tail == &f->next)
        e->tail = at;
    slot_put(f);
    free(f->sums);
    free(f->file.path.data);
    free(f);
}

static bool is_same(const struct dfetch *f, const struct dfetch_ask *a)
{
    return f->state != SENT && f->ask.target == a->target && f->ask.chunk == a->chunk && f->ask.len == a->len && f->ask.sum == a->sum && a->sum &&
           f->ask.off == a->off && f->file.ino == a->file->ino && f->file.mtime_ns == a->file->mtime_ns && f->file.size_bytes == a->file->size_bytes &&
           f->file.path.len == a->file->path.len && memcmp(f->file.path.data, a->file->path.data, a->file->path.len) == 0;
}

static struct dfetch *fetch_new(struct dfetcher *e, const struct dfetch_ask *a)
{
    struct dfetch *f = calloc(1, sizeof(*f));
    uint8_t *path = malloc(a->file->path.len + 1);

    if (!f || !path) {
        free(f);
        free(path);
        return NULL;
    }
    memcpy(path, a->file->path.data, a->file->path.len);
    f->owner = e;
    f->ask = *a;
    fp__ext_file__init(&f->file);
    f->file.ino = a->file->ino;
    f->file.size_bytes = a->file->size_bytes;
    f->file.mtime_ns = a->file->mtime_ns;
    f->file.path = (ProtobufCBinaryData){ a->file->path.len, path };
    f->ask.file = &f->file;
    f->number = ++e->next_number;
    *e->tail = f;
    e->tail = &f->next;
    return f;
}

static int ask(struct dfetcher *e, const struct dfetch_ask *a, struct waiter *w)
{
    struct dfetch *f = e->fetches;

    if (!w)
        return -ENOMEM;
    if (e->nwaiters >= ASKS_MAX) {
        free(w);
        return -EBUSY;
    }
    while (f && !is_same(f, a))
        f = f->next;
    if (!f)
        f = fetch_new(e, a);
    if (!f) {
        free(w);
        return -ENOMEM;
    }
    w->next = f->waiters;
    f->waiters = w;
    e->nwaiters++;
    return 0;
}

/* ---------------------------------------------------------------- answers */

static void answer(struct dfetch *f, struct waiter *w, const struct dfetched *r)
{
    struct bnf_fetched out = { .stored = r->stored, .block_sums = f->sums, .nblocks = f->nblocks, .len_bytes = f->ask.len };
    int status = r->status;

    f->owner->nwaiters--;
    if (w->task) {
        w->task(w->arg, r);
    } else {
        if (status == -ENOSPC && w->want_payload && f->sums) {
            status = 0;
            out.data = f->memory->base + dmemory_slot_off(f->slot) + FP_RECORD_HEADER_BYTES;
            out.handle = f;
            f->payloads++;
        }
        w->cb(w->arg, status, status ? NULL : &out);
    }
    free(w);
}

/* To all who asked. f is gone afterwards, unless somebody has its payload. */
static void finish(struct dfetch *f, const struct dfetched *r)
{
    struct waiter *w;

    f->state = SENT;
    f->payloads++; /* ours, so that it is there until the end of this */
    while ((w = f->waiters)) {
        f->waiters = w->next;
        answer(f, w, r);
    }
    bnf_drain_fetch_end(f);
}

void bnf_drain_fetch_end(void *handle)
{
    struct dfetch *f = handle;
    struct dfetcher *e = f->owner;

    if (--f->payloads)
        return;
    fetch_free(f);
    if (e->freed)
        dfetcher_free(e);
    else if (e->drain)
        for (struct dtarget *t = e->drain->targets; t; t = t->next)
            dfetch_pump(t);
}

static void failed(struct dfetch *f, int status, bool stalled, const char *why)
{
    struct dfetched r = { .status = status, .stalled = stalled, .why = why };

    if (status != FP_ESTOPPING)
        FP_LOG_EVERY(1000, FP_LOG_WARN, "chunk %016" PRIx64 " is not fetched from target %s: %s", f->ask.chunk, f->ask.target->root,
                     why && *why ? why : fp_strerror(status));
    finish(f, &r);
}

/* ---------------------------------------------------------------- storing */

static void store(struct dfetch *f);

static void stored(struct dfetch *f)
{
    struct dfetched r = { .stored = true, .stored_bytes = fp_record_size_bytes(f->ask.len) };

    r.sum = fp_sum_chunk(f->sums, f->nblocks, f->ask.len);
    if (f->ask.sum) /* else its row comes with the result of the task */
        dstaged_add(f->owner->drain, f->ask.chunk, r.stored_bytes);
    finish(f, &r);
}

static void no_room(struct dfetch *f)
{
    struct dfetched r = { .status = -ENOSPC, .why = "no room for it on this benefactor" };

    finish(f, &r);
}

/* The fetcher itself may be gone afterwards. */
static void disk_done(struct dfetcher *e)
{
    e->disk--;
    if (e->freed)
        dfetcher_free(e);
}

static void on_written(void *arg, int status)
{
    struct dfetch *f = arg;
    struct dfetcher *e = f->owner;

    if (status == 0)
        stored(f);
    else
        no_room(f); /* the device does not take it, which the service has said */
    disk_done(e);
}

static void lease_back(struct dfetcher *e)
{
    if (e->lease)
        (void)bnf_service_lease_return(e->service, e->owner, e->lease, UINT64_MAX);
    e->lease = 0;
}

static void on_leased(void *arg, int status, uint64_t lease)
{
    struct dfetcher *e = arg;
    struct dfetch *next;

    e->leasing = false;
    if (status == 0)
        e->lease = lease;
    if (!e->drain)
        lease_back(e);
    for (struct dfetch *f = e->fetches; f; f = next) {
        next = f->next;
        if (f->state != LEASES)
            continue;
        if (e->lease)
            store(f);
        else
            no_room(f);
        if (e->leasing) /* the others wait for the next one */
            break;
        next = e->fetches; /* the one behind it may be gone */
    }
    disk_done(e);
}

/* What is left to writers whatever is fetched. */
static uint64_t room(const struct dfetcher *e)
{
    struct bnf_space sp;
    uint64_t leasable = bnf_store_leasable(bnf_service_store(e->service)), keep;

    bnf_store_space(bnf_service_store(e->service), &sp);
    keep = sp.capacity_bytes / 16;
    return leasable > keep ? leasable - keep : 0;
}

static void lease(struct dfetch *f)
{
    struct dfetcher *e = f->owner;
    uint64_t need = fp_record_size_bytes(f->ask.len), have = room(e);

    f->state = LEASES;
    if (e->leasing)
        return;
    if (!e->drain || have < need || f->leases++ > 1) {
        no_room(f);
        return;
    }
    e->leasing = true;
    e->disk++;
    if (bnf_service_lease(e->service, e->owner, false, have < LEASE_BYTES ? have : need > LEASE_BYTES ? need : LEASE_BYTES, need, on_leased, e)) {
        e->leasing = false;
        e->disk--;
        no_room(f);
    }
}

/* Somebody has stored it meanwhile; or, under a number that was given out twice, something else. */
static void exists(struct dfetch *f)
{
    struct dfetched r = { .status = -EEXIST, .why = "there is a chunk of that number, with other bytes" };
    struct bnf_place at;

    if (bnf_store_find(bnf_service_store(f->owner->service), f->ask.chunk, &at) == 0 && at.len_bytes == f->ask.len &&
        at.sum == fp_sum_chunk(f->sums, f->nblocks, f->ask.len))
        stored(f);
    else
        finish(f, &r);
}

static void store(struct dfetch *f)
{
    struct dfetcher *e = f->owner;
    void *buf = f->memory->base + dmemory_slot_off(f->slot);
    int rc = e->lease ? 0 : -ENOSPC;

    e->used_ms = fp_now_ms();
    f->state = WRITES;
    e->disk++;
    if (rc == 0)
        rc = bnf_service_store_chunk(e->service, e->owner, e->lease, f->ask.chunk, f->ask.len, f->sums, f->nblocks, buf, on_written, f);
    if (rc)
        e->disk--;
    if (rc == -EEXIST) {
        exists(f);
    } else if (rc == -ENOSPC || rc == FP_ELEASE) {
        lease_back(e);
        lease(f);
    } else if (rc) {
        no_room(f);
    }
}

/* ---------------------------------------------------------------- reading */

static struct dfetch *fetch_of(struct dtarget *t, uint64_t number)
{
    struct dfetch *f = t->drain->fetcher->fetches;

    while (f && (f->number != number || f->ask.target != t || f->state != READS))
        f = f->next;
    return f;
}

static void again(struct dfetch *f)
{
    slot_put(f);
    f->state = WAITS;
    f->number = ++f->owner->next_number;
}

static bool keep_sums(struct dfetch *f, const struct fp_dw_done *m, const uint8_t *sums)
{
    f->nblocks = fp_sum_nblocks(f->ask.len);
    if (m->nsums != f->nblocks)
        return false;
    free(f->sums);
    f->sums = malloc(f->nblocks * sizeof(*f->sums));
    if (f->sums)
        memcpy(f->sums, sums, f->nblocks * sizeof(*f->sums));
    return f->sums;
}

static void on_read(struct dfetch *f, const struct fp_dw_done *m, const uint8_t *sums)
{
    struct dfetched r = { .zeros = true };

    if (!keep_sums(f, m, sums))
        failed(f, -ENOMEM, false, "out of memory on this node");
    else if (m->note && !f->ask.sum)
        finish(f, &r);
    else if (f->owner->lease)
        store(f);
    else
        lease(f);
}

void dfetch_answer(struct dtarget *t, const struct fp_dw_done *m, const char *why, const uint8_t *sums)
{
    struct dfetch *f = fetch_of(t, m->h.gen);
    int status = m->status;
    bool target = m->scope == FP_DW_SCOPE_TARGET;

    if (!f)
        return;
    if (status == 0)
        dtarget_reads(t);
    else if (target)
        dtarget_stall(t, status, why);
    if (status == 0) {
        on_read(f, m, sums);
    } else if (status == FP_ECHECKSUM && f->tries++ == 0) {
        again(f); /* wrong on its way, perhaps */
    } else {
        if (target && (status == -ENOENT || status == -ESTALE || status == FP_ECHECKSUM || status == -ENOSPC))
            status = -EIO; /* of the whole target, which says nothing of this file */
        failed(f, status, target, why);
    }
}

static bool a_program_waits(const struct dfetch *f)
{
    for (const struct waiter *w = f->waiters; w; w = w->next)
        if (!w->task)
            return true;
    return false;
}

struct load {
    unsigned tasks;
    uint64_t bytes, held;
};

static struct load load_of(const struct dtarget *t)
{
    struct load l = { 0 };

    for (const struct dfetch *f = t->drain->fetcher->fetches; f; f = f->next) {
        if (f->ask.target != t || !f->memory)
            continue;
        l.held += f->ask.len;
        l.tasks += !a_program_waits(f);
        l.bytes += f->state == READS ? f->ask.len : 0;
    }
    return l;
}

/* For programs first; of a target that can't be read only what they wait for is tried. */
static struct dfetch *next_fetch(struct dtarget *t, struct load l)
{
    struct dfetch *other = NULL;

    for (struct dfetch *f = t->drain->fetcher->fetches; f; f = f->next) {
        if (f->ask.target != t || f->state != WAITS || (l.bytes && l.bytes + f->ask.len > BYTES_MAX))
            continue;
        if (a_program_waits(f))
            return f;
        if (!other && l.tasks < TASK_SLOTS && (!l.held || l.held + f->ask.len <= HELD_MAX) && dtarget_may_read(t))
            other = f;
    }
    return other;
}

static int give(struct dtarget *t, struct dfetch *f)
{
    int slot, rc = dworker_memory(t->worker);

    if (rc)
        return rc;
    slot = dmemory_slot_get(t->worker->memory);
    if (slot < 0)
        return slot;
    f->memory = t->worker->memory;
    f->slot = slot;
    f->state = READS;
    rc = dread_send(t->worker, &f->ask, f->number, dmemory_slot_off(slot) + FP_RECORD_HEADER_BYTES);
    if (rc)
        again(f);
    return rc;
}

void dfetch_pump(struct dtarget *t)
{
    struct dfetcher *e = t->drain->fetcher;
    struct dfetch *f;
    int rc = 0;

    if (t->drain->stopping || e->pumping || dtarget_hangs(t))
        return;
    e->pumping = true; /* who is told of one that fails comes here again */
    while (rc != -EAGAIN && (f = next_fetch(t, load_of(t))) && dtarget_have_worker(t)) {
        rc = give(t, f);
        if (rc && rc != -EAGAIN)
            failed(f, rc, false, fp_strerror(rc));
    }
    e->pumping = false;
}

void dfetch_take_back(struct dtarget *t, const struct fp_dw_status *page)
{
    struct dfetch *next;

    for (struct dfetch *f = t->drain->fetcher->fetches; f; f = next) {
        bool blamed = false;

        next = f->next;
        if (f->ask.target != t || f->state != READS)
            continue;
        for (unsigned i = FP_DW_THREADS_MAX; page && i < FP_DW_OPS_MAX; i++)
            blamed |= atomic_load(&page->op[i].kind) && atomic_load(&page->op[i].id) == READ_ID && atomic_load(&page->op[i].gen) == f->number;
        again(f);
        if (blamed && ++f->crashes >= CRASHES_MAX) {
            failed(f, -EIO, false, "fp-drain has crashed three times while it read this");
            next = t->drain->fetcher->fetches;
        }
    }
}

bool dfetch_has_work(const struct dtarget *t)
{
    const struct dfetch *f = t->drain->fetcher->fetches;

    while (f && (f->ask.target != t || f->state == SENT))
        f = f->next;
    return f;
}

/* ---------------------------------------------------------------- asks */

/* It is here: what it says is looked at all the same, since nobody asks for what he can read, and a header says nothing of the bytes behind it. */
struct here {
    struct dfetcher *e;
    struct dfetch_ask ask;
    Fp__ExtFile *file; /* a copy, in ask */
    struct waiter w;   /* likewise, until it is asked for in the target */
};

static int fetch(struct dfetcher *e, const struct dfetch_ask *a, const struct waiter *as)
{
    struct waiter *w = malloc(sizeof(*w));

    if (w)
        *w = *as;
    return ask(e, a, w);
}

static void here_free(struct here *h)
{
    struct dfetcher *e = h->e;

    if (h->file)
        fp__ext_file__free_unpacked(h->file, NULL);
    free(h);
    disk_done(e);
}

/* A task is not told at the end, since it is forgotten before. f: NULL unless status is 0. */
static void here_answer(struct here *h, int status, const struct bnf_fetched *f)
{
    struct dfetched r = { .status = status, .stored = f, .sum = h->ask.sum, .stored_bytes = fp_record_size_bytes(h->ask.len), .why = "" };

    if (h->w.cb)
        h->w.cb(h->w.arg, status, f);
    else if (h->e->drain)
        h->w.task(h->w.arg, &r);
}

/* Whoever was told may have asked for more. */
static void here_end(struct here *h)
{
    if (h->e->drain) {
        dfetch_pump(h->ask.target);
        dtasks_tick(h->e->drain);
    }
    here_free(h);
}

/* The one in the target takes its place. */
static void fetch_instead(struct here *h)
{
    int rc = h->e->drain ? fetch(h->e, &h->ask, &h->w) : FP_ESTOPPING;

    if (rc)
        here_answer(h, rc, NULL);
    here_end(h);
}

static void on_bad_gone(void *arg, int status)
{
    (void)status; /* its space comes back at the next start; the record is out of the index */
    fetch_instead(arg);
}

static void on_here(void *arg, int status, const struct bnf_read *r)
{
    struct here *h = arg;
    struct bnf_fetched f = { .stored = true };
    struct bnf_place at;
    bool gone = status == FP_ECHUNK_MISSING || bnf_store_find(bnf_service_store(h->e->service), h->ask.chunk, &at);

    if (status == 0 && !gone) {
        f.block_sums = r->block_sums;
        f.nblocks = r->nblocks;
        f.len_bytes = r->chunk_len_bytes;
        dstaged_add(h->e->drain, h->ask.chunk, fp_record_size_bytes(f.len_bytes));
        here_answer(h, 0, &f);
    }
    if (status == 0)
        bnf_service_read_end(h->e->service, r->handle);
    if (gone) { /* deleted while it was read */
        fetch_instead(h);
        return;
    }
    if (status == FP_ECHECKSUM || status == FP_ECORRUPT) {
        if (bnf_service_delete(h->e->service, &h->ask.chunk, 1, on_bad_gone, h) == 0)
            return;
        status = -EIO;
    }
    if (status)
        here_answer(h, status, NULL);
    here_end(h);
}

static Fp__ExtFile *copy_of(const Fp__ExtFile *x)
{
    size_t len = fp__ext_file__get_packed_size(x);
    uint8_t *buf = malloc(len + 1);
    Fp__ExtFile *copy = NULL;

    if (buf) {
        fp__ext_file__pack(x, buf);
        copy = fp__ext_file__unpack(NULL, len, buf);
    }
    free(buf);
    return copy;
}

static int look_here(struct dfetcher *e, const struct dfetch_ask *a, const struct waiter *w)
{
    struct here *h = malloc(sizeof(*h));
    int rc = -ENOMEM;

    if (!h)
        return rc;
    *h = (struct here){ .e = e, .ask = *a, .file = copy_of(a->file), .w = *w };
    h->ask.file = h->file;
    e->disk++;
    if (h->file)
        rc = bnf_service_read(e->service, a->chunk, 0, a->len, on_here, h);
    if (rc)
        here_free(h);
    return rc;
}

int dfetch(struct dfetcher *e, const struct dfetch_ask *a)
{
    const struct waiter w = { .task = a->cb, .arg = a->arg };
    struct bnf_place at;

    if (a->sum && bnf_store_find(bnf_service_store(e->service), a->chunk, &at) == 0 && at.sum == a->sum && at.len_bytes == a->len)
        return look_here(e, a, &w);
    return fetch(e, a, &w);
}

int bnf_drain_fetch(struct bnf_drain *d, const Fp__Fetch *m, bnf_fetch_cb cb, void *arg)
{
    struct dfetch_ask a = { .file = m->file, .chunk = m->chunk, .off = m->off, .sum = m->sum, .len = m->len };
    const struct waiter w = { .cb = cb, .arg = arg, .want_payload = m->want_payload, .deadline_ms = fp_now_ms() + d->config.target_timeout_ms };
    struct bnf_place at;
    int rc = 0;

    if (d->stopping)
        return FP_ESTOPPING;
    if (!m->file || !m->sum || !m->len || m->len > FP_STORED_MAX_BYTES || m->off > m->file->size_bytes || m->len > m->file->size_bytes - m->off ||
        !dpath_is_good(&m->file->path))
        return -EINVAL;
    a.target = dtarget_get(d, m->file, &rc);
    if (!a.target)
        return rc;
    if (bnf_store_find(bnf_service_store(d->config.service), m->chunk, &at) == 0)
        return at.len_bytes == m->len && at.sum == m->sum ? look_here(d->fetcher, &a, &w) : -EINVAL; /* another chunk than is meant */
    rc = fetch(d->fetcher, &a, &w);
    if (rc == 0) {
        dfetch_pump(a.target);
        dtasks_tick(d);
    }
    return rc;
}

/* ---------------------------------------------------------------- time, life */

static void expire(struct dfetch *f, uint64_t now_ms)
{
    struct dfetched r = { .status = -ETIMEDOUT };
    struct waiter *late = NULL;

    for (struct waiter **at = &f->waiters, *w; (w = *at);) {
        if (!w->cb || w->deadline_ms > now_ms) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        w->next = late;
        late = w;
    }
    if (late)
        FP_LOG_EVERY(1000, FP_LOG_WARN, "chunk %016" PRIx64 " is not fetched from target %s: it does not answer in time (%.*s)", f->ask.chunk,
                     f->ask.target->root, (int)f->file.path.len, (const char *)f->file.path.data);
    for (struct waiter *w; (w = late);) {
        late = w->next;
        answer(f, w, &r);
    }
}

bool dfetcher_tick(struct dfetcher *e, uint64_t now_ms)
{
    struct dfetch *next;

    for (struct dfetch *f = e->fetches; f; f = next) {
        next = f->next;
        if (f->state == SENT)
            continue;
        expire(f, now_ms);
        if (f->state == WAITS && !f->waiters) /* of what was begun the end is waited for */
            fetch_free(f);
    }
    if (e->lease && now_ms > e->used_ms + LEASE_IDLE_MS)
        lease_back(e);
    return e->fetches || e->lease;
}

int dfetcher_new(struct bnf_drain *d, struct dfetcher **out)
{
    struct dfetcher *e = calloc(1, sizeof(*e));

    if (!e)
        return -ENOMEM;
    e->drain = d;
    e->service = d->config.service;
    e->tail = &e->fetches;
    *out = e;
    return 0;
}

void dfetcher_stop(struct dfetcher *e)
{
    struct dfetched r = { .status = FP_ESTOPPING };
    struct dfetch *next;

    if (!e || !e->drain)
        return;
    e->drain = NULL;
    lease_back(e);
    for (struct dfetch *f = e->fetches; f; f = next) {
        struct waiter *w;

        next = f->next;
        if (f->state == SENT)
            continue;
        while ((w = f->waiters)) {
            f->waiters = w->next;
            answer(f, w, &r);
        }
        if (f->state != WRITES && f->state != LEASES)
            fetch_free(f);
    }
}

void dfetcher_free(struct dfetcher *e)
{
    if (!e)
        return;
    e->freed = true;
    if (e->disk || e->fetches)
        return; /* the last of them does it */
    free(e);
}
