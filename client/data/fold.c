/*
 * Folding (see fold.h). Stored chunks never change, so a file that is written in small pieces is one of many chunks, and an old one is kept whole for as long as one byte
 * of it is in use: 300 writes of 16 KiB all over a file of 50 MiB take 6 MiB more each time. The manager counts that with each commit, and says which windows
 * take more than they need (manager/fold.c). The mount that wrote them reads such a window, as the manager has it, stores it as one chunk, syncs that, and commits
 * it on condition that the window is still the same. If it is not, the manager drops the new chunk: whoever wrote to the window meanwhile has won.
 *
 * When: when a window has not been written to for IDLE_MS, at the latest after LATE_MS, and chunks take half as much again as they need to, or it is of a thousand slices.
 * So it costs at most three times what is written, and a file at rest takes at most 1.5 times its size. One window at a time, and only while less than half of the pool
 * is to be written out. When less than a quarter of the store is free nothing is waited for; and when a write can't have its space (reserve.c), any window that gives back
 * an eighth is folded, those that give most first. With --fold=off (the default) nothing is.
 *
 * Synced before the commit: what was folded may have been synced, and the old chunks go with the commit.
 *
 * One thread, "fold", does it all: it waits for store threads, so it can't be one. To store, it has a file of its own for the inode (cl_file.fold), which no program's
 * calls find: the window's own buffers, maybe newer, and the file's errors are not touched.
 *
 * A mount with aux-apps for chunks folds nothing, and coded chunks are nobody's to fold: a window would have to pass the aux-apps again, for dedup to find the chunks that
 * it is to replace, and for compress to save less than the fold does; and a mount that does not have encrypt must not store what it can read.
 *
 * Rejected: to fold on the benefactor (a window's chunks may be on several) or in the manager (it has no data). To tell the manager of each candidate
 * (it is a list in memory here: a window of a mount that ended is folded by who writes to it next).
 */
#include "client/data/fold.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include "client/aux/aux.h"
#include "client/data/batch.h"
#include "client/data/internal.h"
#include "client/data/peek.h"
#include "client/data/reserve.h"
#include "fp/bug.h"

#define WINDOWS_MAX   16384u   /* known to be worth it; the oldest are forgotten */
#define SLOTS_BITS    10u
#define IDLE_MS       3000u
#define LATE_MS       30000u
#define HURRY_MS      2000u    /* how long after a write found no space */
#define LOOK_MS       500u
#define GAINED_MS     2000u    /* how long what was deleted may take to be free */
#define SPACE_TRIES   20
#define SPACE_PAUSE_US 50000u
#define HOPELESS_MS   8000u    /* no window had space for so long: then none is kept for them, and nobody waits for it */
#define BLOCKED_MS    1000u    /* until one for which there was no space is tried again, if nothing is gained before */
#define PAUSE_MS      20u      /* between two, when there is no hurry */
#define GAIN_MIN(window_bytes) ((window_bytes) / 16 > 8192 ? (window_bytes) / 16 : 8192)
#define SLICES_MIN    1024u
#define RANGES_MAX    1024u
#define PAGES_WAIT_MS 1000u
/* In the simulator, for half of the seeds: so that windows are folded while programs write to them; and slowly, so that others are faster. */
#define AT_ONCE FP_BUG("mount-folds-at-once")
#define OTHERS_US 400000u

struct entry {
    TAILQ_ENTRY(entry) by_time;    /* when it was written to last, oldest first */
    LIST_ENTRY(entry) chain;
    uint64_t ino, win;
    uint64_t first_ms, last_ms;
    uint64_t gain, bytes;          /* as the manager said */
    uint32_t slices, ranges, window_bytes;
    uint64_t blocked;              /* there was no space for it, at so many gains + 1 … */
    uint64_t blocked_until_ms;     /* … and not again before this */
};

struct cl_fold {
    pthread_mutex_t lock;          /* a leaf; all that follows */
    pthread_cond_t cond;           /* look, stop, one was folded or could not be */
    TAILQ_HEAD(, entry) list;
    LIST_HEAD(, entry) slot[1u << SLOTS_BITS];
    uint32_t n;
    bool started, ended, busy;
    uint64_t hurry_until_ms;
    uint64_t gains, gained_ms;     /* windows folded, and when the last was */
    uint64_t stuck_ms;             /* since when there has been no space for any; 0: not so */
    uint64_t spare;                /* what the largest in the list takes */
    pthread_t thread;
};

/* One window on its way. */
struct job {
    struct cl_data *d;
    struct cl_inode *inode;
    uint64_t win;
    uint32_t stripe;               /* of the inode, as when it began */
    bool hurry, gained;            /* gained: what the last one gave back may be on its way still */
    struct cl_file *f;             /* its own */
    struct cl_win *w;
    struct cl_wbuf *b;             /* being filled */
    Fp__SliceMapReply *map;
    sem_t answered;
    int rc;
    bool folded;
};

/* -------------------------------------------------------------- what is to be folded */

static bool pays(const struct entry *e, bool hurry)
{
    if (hurry || AT_ONCE)
        return e->gain * 8 >= e->bytes && e->gain > 0;
    return (e->gain * 2 >= e->bytes && e->gain >= GAIN_MIN(e->window_bytes)) || (e->slices >= SLICES_MIN && e->slices / 2 >= e->ranges);
}

static struct entry *find(struct cl_fold *x, uint64_t ino, uint64_t win)
{
    struct entry *e;

    LIST_FOREACH(e, &x->slot[cl_ino_slot(ino + win, SLOTS_BITS)], chain)
        if (e->ino == ino && e->win == win)
            return e;
    return NULL;
}

static void take_out(struct cl_fold *x, struct entry *e)
{
    TAILQ_REMOVE(&x->list, e, by_time);
    LIST_REMOVE(e, chain);
    if (--x->n == 0)
        x->spare = 0;
}

static void put_in(struct cl_fold *x, struct entry *e)
{
    if (x->n >= WINDOWS_MAX) {
        struct entry *oldest = TAILQ_FIRST(&x->list);

        take_out(x, oldest);
        free(oldest);
    }
    TAILQ_INSERT_TAIL(&x->list, e, by_time);
    LIST_INSERT_HEAD(&x->slot[cl_ino_slot(e->ino + e->win, SLOTS_BITS)], e, chain);
    x->n++;
    if (e->bytes > x->spare)
        x->spare = e->bytes;
}

static void note(struct cl_fold *x, const struct cl_file *f, const Fp__Fold *h)
{
    struct entry *e = find(x, f->inode->ino, h->win);
    uint64_t now_ms = fp_now_ms();

    if (e) {
        take_out(x, e);
    } else {
        e = calloc(1, sizeof(*e));
        if (!e)
            return;
        e->ino = f->inode->ino;
        e->window_bytes = f->window_bytes;
        e->win = h->win;
        e->first_ms = now_ms;
    }
    e->last_ms = now_ms;
    e->blocked = 0;
    e->gain = h->gain_bytes;
    e->bytes = h->new_bytes;
    e->slices = h->slices;
    e->ranges = h->ranges;
    put_in(x, e);
}

bool cl_fold_wants_hints(const struct cl_data *d)
{
    return d->m->opt.fold && !cl_aux_chunks(d->m);
}

void cl_fold_hints(const struct cl_file *f, const Fp__CommitReply *r)
{
    struct cl_fold *x = f->data->fold;
    bool first;

    if (r->n_folds == 0 || !cl_fold_wants_hints(f->data))
        return;
    pthread_mutex_lock(&x->lock);
    first = x->n == 0;
    for (size_t i = 0; i < r->n_folds; i++)
        if (r->folds[i]->ranges <= RANGES_MAX)
            note(x, f, r->folds[i]);
    if (first)
        pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
}

/* x->lock held. */
static bool may_go(const struct cl_fold *x, const struct entry *e, bool hurry)
{
    return pays(e, hurry) && (e->blocked <= x->gains || fp_now_ms() >= e->blocked_until_ms);
}

static bool is_hopeless(const struct cl_fold *x)
{
    return x->stuck_ms && fp_now_ms() >= x->stuck_ms + HOPELESS_MS;
}

/* blocked_too: also those for which there was no space the last time. */
static bool something(const struct cl_fold *x, bool blocked_too)
{
    const struct entry *e;

    if (x->busy)
        return true;
    blocked_too = blocked_too && !is_hopeless(x);
    TAILQ_FOREACH(e, &x->list, by_time)
        if (blocked_too ? pays(e, true) : may_go(x, e, true))
            return true;
    return false;
}

uint32_t cl_fold_spare_bytes(struct cl_data *d)
{
    struct cl_fold *x = d->fold;
    uint64_t n = 0;

    pthread_mutex_lock(&x->lock);
    if (x->started && !atomic_load(&d->stopping) && atomic_load(&d->end_ms) == 0 && something(x, true))
        n = x->spare + CL_WBUF_WASTE_MAX_BYTES;
    pthread_mutex_unlock(&x->lock);
    return n < FP_STORED_MAX_BYTES ? (uint32_t)n : FP_STORED_MAX_BYTES;
}

void cl_fold_hurry(struct cl_data *d)
{
    struct cl_fold *x = d->fold;

    pthread_mutex_lock(&x->lock);
    x->hurry_until_ms = fp_now_ms() + HURRY_MS;
    pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
}

static void wait_until(struct cl_fold *x, uint64_t until_ms)
{
    struct timespec ts = { .tv_sec = (time_t)(until_ms / 1000), .tv_nsec = (long)(until_ms % 1000) * 1000000 };

    pthread_cond_timedwait(&x->cond, &x->lock, &ts);
}

bool cl_fold_now(struct cl_data *d, uint32_t wait_ms)
{
    struct cl_fold *x = d->fold;
    uint64_t gains, until_ms = fp_now_ms() + wait_ms;
    bool gained;

    cl_fold_hurry(d);
    pthread_mutex_lock(&x->lock);
    gains = x->gains;
    while (x->started && !x->ended && x->gains == gains && something(x, false) && fp_now_ms() < until_ms)
        wait_until(x, until_ms);
    gained = x->gains != gains;
    pthread_mutex_unlock(&x->lock);
    return gained;
}

/* -------------------------------------------------------------- one window */

static int get_pages(struct job *j, uint8_t **pages, size_t n)
{
    struct cl_pool *pool = j->d->pool;

    if (!j->hurry && atomic_load(&j->d->dirty_bytes) > cl_pool_pages(pool) * (uint64_t)CL_PAGE_BYTES / 2)
        return -EAGAIN;
    return cl_pool_get(pool, pages, n, fp_now_ms() + PAGES_WAIT_MS) < 0 ? -EAGAIN : 0; /* of clean cached chunks, if there are no others */
}

/* Bytes of a stored chunk into the buffer's pages, which are there. */
static int read_slice(struct job *j, const Fp__Slice *s)
{
    const struct cl_chunk_ref ref = { .id = s->chunk, .sum = s->chunk_sum, .len_bytes = s->chunk_len, .bnf = s->bnf };
    uint32_t done = 0;
    int rc = 0;

    while (rc == 0 && done < s->len) {
        uint32_t at = s->off + done, in_page = at % CL_PAGE_BYTES, n = CL_PAGE_BYTES - in_page;

        if (n > s->len - done)
            n = s->len - done;
        rc = cl_peek(j->d, &ref, s->chunk_off + done, j->b->page[at / CL_PAGE_BYTES] + in_page, n, cl_deadline(j->d));
        done += n;
    }
    return rc;
}

/* inode->lock taken here: what is filled goes to the store threads. */
static int seal(struct job *j)
{
    struct cl_wbuf *b = j->b;
    int rc = 0;

    if (!b)
        return 0;
    if (!b->resv.lease) {
        uint32_t most = (uint32_t)cl_wbuf_bytes(b) + CL_WBUF_WASTE_MAX_BYTES;

        rc = cl_space_reserve(j->d, j->inode->ino, j->win, j->stripe, fp_record_size_bytes(most), 0,
                      cl_deadline(j->d), &b->resv);
    }
    pthread_mutex_lock(&j->inode->lock);
    if (rc == 0)
        cl_file_seal(j->f, j->w, b);
    else
        cl_file_drop_buf(j->f, j->w, b);
    pthread_mutex_unlock(&j->inode->lock);
    j->b = NULL;
    return rc;
}

static int new_buf(struct job *j)
{
    struct cl_wbuf **p = &j->w->bufs;

    j->b = cl_wbuf_new(j->f, j->win, j->f->window_bytes);
    if (!j->b)
        return -ENOMEM;
    pthread_mutex_lock(&j->inode->lock);
    while (*p)
        p = &(*p)->next;
    *p = j->b;
    j->f->nopen++;
    pthread_mutex_unlock(&j->inode->lock);
    return 0;
}

/* A new buffer begins where the ranges of one are used up: more of them than that are rare. */
static int add_slice(struct job *j, const Fp__Slice *s)
{
    uint8_t *pages[CL_WBUF_PAGES_MAX + 1];
    uint32_t n;
    int rc = 0;

    if (j->b && cl_wbuf_would_overflow(j->b, s->off, s->len))
        rc = seal(j);
    if (rc == 0 && !j->b)
        rc = new_buf(j);
    if (rc < 0)
        return rc;
    n = cl_wbuf_missing(j->b, s->off, s->len);
    rc = n > 0 ? get_pages(j, pages, n) : 0;
    if (rc < 0)
        return rc;
    (void)cl_wbuf_attach(j->b, s->off, s->len, pages);
    (void)cl_wbuf_add_range(j->b, s->off, s->len);
    return read_slice(j, s);
}

/* The first buffer has its space before anything is read: in a full store the try costs little. */
static int reserve_first(struct job *j)
{
    uint32_t most = (uint32_t)j->map->fold->new_bytes + CL_WBUF_WASTE_MAX_BYTES, whole = fp_record_size_bytes(j->f->window_bytes);
    int rc = new_buf(j);

    if (most > whole)
        most = whole;
    if (rc == 0)
        rc = cl_space_reserve(j->d, j->inode->ino, j->win, j->stripe, most, 0, cl_deadline(j->d), &j->b->resv);
    for (int tries = 0; rc == -ENOSPC && tries < SPACE_TRIES && (tries == 0 || j->gained) && !atomic_load(&j->d->stopping); tries++) {
        cl_space_tick(j->d, fp_now_ms(), true); /* it may be there, in ends of leases */
        usleep(j->gained ? SPACE_PAUSE_US : 0);
        rc = cl_space_reserve(j->d, j->inode->ino, j->win, j->stripe, most, 0, cl_deadline(j->d), &j->b->resv);
    }
    return rc;
}

/* All of it is stored, or has failed. */
static int store(struct job *j)
{
    int rc = reserve_first(j);

    for (size_t i = 0; rc == 0 && i < j->map->n_slices; i++)
        if (j->map->slices[i]->folds)
            rc = atomic_load(&j->d->stopping) ? FP_ESTOPPING : add_slice(j, j->map->slices[i]);
    if (rc == 0)
        rc = seal(j);
    pthread_mutex_lock(&j->inode->lock);
    if (j->b)
        cl_file_drop_buf(j->f, j->w, j->b);
    while (j->f->fl_head)
        (void)cl_file_wait(j->f, fp_now_ms() + 1000);
    if (rc == 0)
        rc = j->f->error;
    pthread_mutex_unlock(&j->inode->lock);
    return rc;
}

/* Where the new chunks are is synced, and nothing was lost since they were stored. */
static int sync_new(struct job *j)
{
    struct cl_unsynced failed;
    int rc = cl_bnfs_sync_present(j->d, &failed);
    bool ours = false;

    for (const struct cl_wbuf *b = j->w->bufs; b; b = b->next)
        ours |= rc < 0 && cl_unsynced_has(&failed, b->chunk.bnf);
    return ours || j->f->losses_seen != atomic_load(&j->d->losses) ? -EIO : 0;
}

/* inode->lock held: what this mount knows of the file's map. An answer that comes behind a later one says nothing. */
static void map_is(struct job *j, const Fp__CommitReply *r)
{
    struct cl_file *f = j->inode->file;
    struct cl_win *w;

    if (!f || r->attr->data_version <= f->map_version)
        return;
    w = cl_file_win(f, j->win, false);
    if (r->version_before != f->map_version) {
        cl_file_forget_map(f);
    } else if (w) {
        free(w->slices);
        w->slices = NULL;
        w->nslices = 0;
        w->known = false;
    }
    if (r->version_before == f->others_version)
        f->others_version = r->attr->data_version;
    f->map_version = f->own_version = r->attr->data_version;
    cl_inode_attr_update(j->inode, r->attr);
}

/* Core loop. */
static void on_answer(void *arg, int status, const ProtobufCMessage *reply)
{
    const Fp__CommitReply *r = (const Fp__CommitReply *)reply;
    struct job *j = arg;

    if (status == FP_EDEADLINE)
        return; /* nobody waits for a fold: it will come */
    if (status == 0 && r->attr && !r->fold_lost) {
        pthread_mutex_lock(&j->inode->lock);
        map_is(j, r);
        pthread_mutex_unlock(&j->inode->lock);
        j->folded = true;
    }
    j->rc = status;
    sem_post(&j->answered);
}

/* fold: in place of what was read; else the manager has what is stored deleted. */
static int commit(struct job *j, bool fold)
{
    struct cl_batch *t = cl_batch_new();
    int rc;

    if (!t)
        return -ENOMEM;
    pthread_mutex_lock(&j->inode->lock);
    for (struct cl_wbuf *b = fold ? NULL : j->w->bufs; b; b = b->next)
        cl_wbuf_truncate(b, 0);
    rc = cl_batch_collect(t, j->f);
    pthread_mutex_unlock(&j->inode->lock);
    if (rc == 1) {
        t->msg.size_bytes = 0;
        t->msg.fold = fold;
        t->msg.fold_map_sum = j->map->fold->map_sum;
        cl_mgr_call_lasting(j->d->m, FP__MSG_TYPE__MSG_COMMIT, &t->msg.base, on_answer, j);
        while (sem_wait(&j->answered) < 0)
            ;
        rc = j->rc;
    }
    cl_batch_free(t);
    return rc;
}

static void job_end(struct job *j)
{
    if (j->f) {
        pthread_mutex_lock(&j->inode->lock);
        while (j->w && j->w->bufs)
            cl_file_drop_buf(j->f, j->w, j->w->bufs);
        pthread_mutex_unlock(&j->inode->lock);
        cl_file_free(j->f);
    }
    if (j->map)
        fp__slice_map_reply__free_unpacked(j->map, NULL);
    if (j->inode)
        cl_inode_put(j->d->m, j->inode);
    sem_destroy(&j->answered);
}

static int own_file(struct job *j)
{
    pthread_condattr_t a;
    bool gone;

    j->f = calloc(1, sizeof(*j->f));
    if (!j->f)
        return -ENOMEM;
    j->f->inode = j->inode;
    j->f->data = j->d;
    j->f->fold = true;
    pthread_mutex_lock(&j->inode->lock);
    j->stripe = j->inode->attr.stripe;
    j->f->window_bytes = j->inode->attr.chunk_size_bytes ? j->inode->attr.chunk_size_bytes : j->d->m->default_chunk_size_bytes;
    gone = j->inode->attr.nlink == 0;
    pthread_mutex_unlock(&j->inode->lock);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&j->f->cond, &a);
    pthread_condattr_destroy(&a);
    j->w = gone ? NULL : cl_file_win(j->f, j->win, true);
    return gone ? -ENOENT : j->w ? 0 : -ENOMEM;
}

/* The window's map, as the manager has it now, and what folding it would be. */
static int ask_map(struct job *j)
{
    Fp__SliceMap req = FP__SLICE_MAP__INIT;
    ProtobufCMessage *m = NULL;
    int rc;

    req.ino = j->inode->ino;
    req.win_from = j->win;
    req.win_count = 1;
    req.fold = true;
    rc = cl_mgr_call_sync(j->d->m, FP__MSG_TYPE__MSG_SLICEMAP, &req.base, &m);
    j->map = (Fp__SliceMapReply *)m;
    return rc < 0 ? rc : j->map->fold && cl_map_makes_sense(j->f, j->win, 1, j->map) ? 0 : -EPROTO;
}

/* 0: folded; 1: there was nothing to; -EAGAIN: not beside what programs do now; -ENOSPC; else it can't be read, or stored, or somebody was there. */
static int fold(struct cl_data *d, struct entry *e, bool hurry, bool gained)
{
    struct job j = { .d = d, .win = e->win, .hurry = hurry, .gained = gained };
    bool stored = false;
    int rc;

    sem_init(&j.answered, 0, 0);
    rc = cl_inode_fetch(d->m, e->ino, &j.inode);
    rc = rc < 0 ? rc : own_file(&j);
    rc = rc < 0 ? rc : ask_map(&j);
    if (rc == 0) {
        e->gain = j.map->fold->gain_bytes;
        e->bytes = j.map->fold->new_bytes;
        e->slices = j.map->fold->slices;
        e->ranges = j.map->fold->ranges;
    }
    if (rc == 0 && (!pays(e, hurry) || e->ranges > RANGES_MAX || e->slices == 0))
        rc = 1;
    if (rc == 0) {
        rc = store(&j);
        stored = j.f->nstored > 0;
        if (AT_ONCE)
            usleep(OTHERS_US);
        rc = rc < 0 ? rc : sync_new(&j);
        rc = rc < 0 ? rc : commit(&j, true);
        if (rc < 0 && stored && j.rc == 0)
            (void)commit(&j, false);
        rc = rc == 0 && !j.folded ? -ESTALE : rc;
    }
    job_end(&j);
    return rc;
}

/* -------------------------------------------------------------- the thread */

/* Is less than a quarter of the store free? */
static bool is_low(struct cl_data *d)
{
    uint64_t capacity = 0;

    pthread_mutex_lock(&d->bnf_lock);
    for (struct cl_bnf *b = d->bnfs; b; b = b->next) {
        pthread_mutex_lock(&b->lock);
        capacity += b->state != FP__BNF_STATE__BNF_DOWN ? b->capacity_bytes : 0;
        pthread_mutex_unlock(&b->lock);
    }
    pthread_mutex_unlock(&d->bnf_lock);
    return cl_space_free_bytes(d) < capacity / 4;
}

/* x->lock held. */
static struct entry *next(struct cl_fold *x, bool hurry, bool low)
{
    struct entry *e, *best = NULL;
    uint64_t now_ms = fp_now_ms();

    TAILQ_FOREACH(e, &x->list, by_time) {
        if (!may_go(x, e, hurry))
            continue;
        if (!hurry && (low || AT_ONCE || now_ms >= e->last_ms + IDLE_MS || now_ms >= e->first_ms + LATE_MS))
            return e;
        if (hurry && (!best || e->gain > best->gain))
            best = e;
    }
    return best;
}

/* x->lock held, let go meanwhile. */
static void fold_one(struct cl_data *d, struct cl_fold *x, struct entry *e, bool hurry)
{
    bool gained = fp_now_ms() < x->gained_ms + GAINED_MS;
    int rc;

    take_out(x, e);
    x->busy = true;
    pthread_mutex_unlock(&x->lock);
    rc = fold(d, e, hurry, gained);
    FP_DEBUG("inode %llu, window %llu: folded %u slices into %u, %llu bytes less: %s", (unsigned long long)e->ino, (unsigned long long)e->win, e->slices, e->ranges,
         (unsigned long long)e->gain, rc == 1 ? "does not pay" : fp_strerror(rc));
    pthread_mutex_lock(&x->lock);
    x->busy = false;
    if (rc == 0) {
        x->gains++;
        x->gained_ms = fp_now_ms();
        x->stuck_ms = 0;
    } else if (rc == -ENOSPC && !x->stuck_ms) {
        x->stuck_ms = fp_now_ms();
    }
    if ((rc == -ENOSPC || rc == -EAGAIN) && !find(x, e->ino, e->win)) {
        e->blocked = rc == -ENOSPC ? x->gains + 1 : 0;
        e->blocked_until_ms = fp_now_ms() + BLOCKED_MS;
        put_in(x, e);
    } else {
        free(e);
    }
    pthread_cond_broadcast(&x->cond);
    if (!hurry || rc == -EAGAIN)
        wait_until(x, fp_now_ms() + (rc == -EAGAIN ? LOOK_MS : PAUSE_MS));
}

static void *fold_thread(void *arg)
{
    struct cl_data *d = arg;
    struct cl_fold *x = d->fold;

    pthread_mutex_lock(&x->lock);
    while (!atomic_load(&d->stopping)) {
        bool hurry = fp_now_ms() < x->hurry_until_ms, low = false;
        struct entry *e;

        if (x->n > 0 && !hurry) {
            pthread_mutex_unlock(&x->lock);
            low = is_low(d);
            pthread_mutex_lock(&x->lock);
        }
        /* Aux-apps are not there yet when this thread begins, but when a file is written. */
        e = x->n > 0 && atomic_load(&d->end_ms) == 0 && !cl_aux_chunks(d->m) ? next(x, hurry, low) : NULL;
        if (e)
            fold_one(d, x, e, hurry);
        else if (atomic_load(&d->stopping))
            break;
        else if (x->n > 0)
            wait_until(x, fp_now_ms() + LOOK_MS);
        else
            pthread_cond_wait(&x->cond, &x->lock);
    }
    x->ended = true;
    pthread_cond_broadcast(&x->cond);
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

int cl_fold_new(struct cl_data *d)
{
    struct cl_fold *x = calloc(1, sizeof(*x));
    pthread_condattr_t a;

    if (!x)
        return -ENOMEM;
    pthread_mutex_init(&x->lock, NULL);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&x->cond, &a);
    pthread_condattr_destroy(&a);
    TAILQ_INIT(&x->list);
    d->fold = x;
    return 0;
}

int cl_fold_start(struct cl_mount *m)
{
    struct cl_fold *x = m->data->fold;
    int rc = -pthread_create(&x->thread, NULL, fold_thread, m->data);

    x->started = rc == 0;
    if (x->started)
        pthread_setname_np(x->thread, "fold");
    return rc;
}

void cl_fold_stop(struct cl_data *d)
{
    struct cl_fold *x = d->fold;

    if (!x->started)
        return;
    pthread_mutex_lock(&x->lock);
    while (!x->ended) {
        pthread_cond_broadcast(&x->cond);
        pthread_mutex_unlock(&x->lock);
        cl_mgr_fail_lasting(d->m, FP_ESTOPPING); /* its commit, whenever it was sent */
        pthread_mutex_lock(&x->lock);
        if (!x->ended)
            wait_until(x, fp_now_ms() + 100);
    }
    pthread_mutex_unlock(&x->lock);
    pthread_join(x->thread, NULL);
    x->started = false;
}

void cl_fold_free(struct cl_data *d)
{
    struct cl_fold *x = d->fold;
    struct entry *e;

    if (!x)
        return;
    while ((e = TAILQ_FIRST(&x->list))) {
        take_out(x, e);
        free(e);
    }
    pthread_cond_destroy(&x->cond);
    pthread_mutex_destroy(&x->lock);
    free(x);
    d->fold = NULL;
}
