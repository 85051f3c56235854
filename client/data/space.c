/*
 * Leases and reservations (see space.h). Called by writers (FUSE threads), by store threads that place a record, and by the tick.
 *
 * One lock for all accounts. A reservation is for a whole record in one extent, so what has been promised always fits, however small the store: there
 * is no packing problem to solve at store time. Leasing itself (a round trip, an fallocate) happens without the lock, by one thread per
 * benefactor, and ahead of need, so that a streaming writer does not meet it.
 */
#include "client/data/space.h"

#include <assert.h>
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/data/internal.h"
#include "client/data/place.h"

#define LEASE_FIRST_BYTES (16ull << 20)
#define LEASE_MAX_BYTES (128ull << 20)
#define LEASE_IDLE_MS 2000u
#define LEASE_REMOTE_MS 5000u
#define LEASE_LATE_MS 120000u          /* a benefactor that takes longer than that has most likely lost the connection, and with it the lease */
#define FULL_PAUSE_MS 100u
#define AVOID_PAUSE_MS 500u
#define BNFS_MAX 4096u

static bool lease_is_void(const struct cl_lease *l)
{
    return l->refused || l->generation != (l->local ? l->bnf->local_generation : l->bnf->remote_generation);
}

static void lease_free(struct cl_lease *l)
{
    for (uint32_t i = 0; i < l->nextents; i++)
        cl_seg_put(l->ext[i].seg);
    free(l);
}

static uint64_t ext_free(const struct cl_extent *e)
{
    return e->end - e->off - e->promised;
}

/* A segment that could not be synced is not written any more: what a later sync of it says is worth nothing. */
static bool ext_is_lost(const struct cl_extent *e)
{
    return e->seg && atomic_load(&e->seg->lost);
}

static uint64_t lease_free_bytes(const struct cl_lease *l)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < l->nextents; i++)
        n += ext_free(&l->ext[i]);
    return n;
}

static bool take_from(struct cl_bnf *b, uint32_t need, uint64_t now_ms, struct cl_resv *out)
{
    for (struct cl_lease *l = b->leases; l; l = l->next) {
        if (lease_is_void(l))
            continue;
        for (uint32_t i = 0; i < l->nextents; i++)
            if (ext_free(&l->ext[i]) >= need && !ext_is_lost(&l->ext[i])) {
                l->ext[i].promised += need;
                l->busy++;
                l->used_ms = now_ms;
                *out = (struct cl_resv){ .lease = l, .ext = i, .bytes = need };
                return true;
            }
    }
    return false;
}

/* -------------------------------------------------------------- leasing */

static struct cl_lease *lease_new(struct cl_bnf *b, uint64_t id)
{
    struct cl_lease *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->bnf = b;
    l->id = id;
    l->used_ms = fp_now_ms();
    return l;
}

static int lease_local(struct cl_bnf *b, const Fp__Lease *req, struct cl_lease **out)
{
    uint8_t buf[4096];
    struct fp_fdlink_reply_buf r = { .buf = buf, .buf_cap_bytes = sizeof(buf) };
    uint64_t generation = 0;
    int rc = cl_bnf_local_lease(b, req, &r, &generation);
    Fp__LeaseReply *reply;
    struct cl_lease *l;
    size_t taken = 0;

    if (rc < 0)
        return rc;
    reply = fp__lease_reply__unpack(NULL, r.in.msg_len_bytes, r.in.msg);
    l = reply && reply->n_extents == r.nfds && r.nfds <= CL_LEASE_EXTENTS_MAX ? lease_new(b, reply->lease) : NULL;
    rc = l ? 0 : -EPROTO;
    if (l) {
        l->local = true;
        l->generation = generation;
    }
    for (; l && taken < r.nfds; taken++) {
        const Fp__Extent *e = reply->extents[taken];
        struct cl_seg *s = cl_seg_add(b, e->segment, e->salt, r.fds[taken], e->o_direct);

        if (!s) {
            rc = -ENOMEM;
            taken++;
            break;
        }
        l->ext[l->nextents++] = (struct cl_extent){ .seg = s, .off = e->off, .end = e->off + e->len };
    }
    for (; taken < r.nfds; taken++)
        close(r.fds[taken]);
    if (reply)
        fp__lease_reply__free_unpacked(reply, NULL);
    if (rc < 0 && l)
        lease_free(l);
    *out = rc < 0 ? NULL : l;
    return rc;
}

/* A lease asked for over TCP. Who asks goes elsewhere after LEASE_REMOTE_MS; an answer that comes later must give the space back, or it would be nobody's
   until the connection ends. */
struct asked {
    struct cl_rcall call;          /* first */
    Fp__Lease req;
    Fp__LeaseReturn back;
    sem_t answered;
    atomic_bool over;              /* set by the answer and by who goes: the second one frees */
    int status;
    uint64_t id, bytes, generation;
};

static void asked_free(struct asked *a)
{
    sem_destroy(&a->answered);
    free(a);
}

/* Core loop. */
static void on_late_returned(struct cl_rcall *call, int status, const ProtobufCMessage *reply)
{
    (void)status;
    (void)reply;
    asked_free((struct asked *)call);
}

static void give_back_late(struct asked *a)
{
    struct cl_bnf *b = a->call.bnf;

    fp__lease_return__init(&a->back);
    a->back.lease = a->id;
    a->back.bytes = a->bytes;
    a->call = (struct cl_rcall){
        .bnf = b, .type = FP__MSG_TYPE__MSG_LEASE_RETURN, .msg = &a->back.base, .timeout_ms = 2000, .done = on_late_returned,
    };
    cl_bnf_remote_call(&a->call);
}

/* Core loop. */
static void on_asked(struct cl_rcall *call, int status, const ProtobufCMessage *reply)
{
    struct asked *a = (struct asked *)call;
    const Fp__LeaseReply *r = (const Fp__LeaseReply *)reply;

    a->status = status;
    a->generation = call->generation;
    if (status == 0) {
        a->id = r->lease;
        a->bytes = r->bytes;
    }
    if (!atomic_exchange(&a->over, true))
        sem_post(&a->answered);
    else if (status == 0)
        give_back_late(a);
    else
        asked_free(a);
}

/* False: not in time, and a is not ours any more. */
static bool asked_wait(struct asked *a)
{
    struct timespec until;
    int rc;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LEASE_REMOTE_MS / 1000;
    do
        rc = sem_clockwait(&a->answered, CLOCK_MONOTONIC, &until);
    while (rc < 0 && errno == EINTR);
    if (rc < 0 && !atomic_exchange(&a->over, true))
        return false;
    while (rc < 0 && sem_wait(&a->answered) < 0) /* it comes just now */
        ;
    assert(atomic_load(&a->over)); /* also tells ThreadSanitizer, which does not know sem_clockwait, that the answer came before */
    return true;
}

static int lease_remote(struct cl_bnf *b, const Fp__Lease *req, struct cl_lease **out)
{
    struct asked *a = calloc(1, sizeof(*a));
    struct cl_lease *l = NULL;
    int rc;

    if (!a)
        return -ENOMEM;
    sem_init(&a->answered, 0, 0);
    a->req = *req;
    a->call = (struct cl_rcall){
        .bnf = b, .type = FP__MSG_TYPE__MSG_LEASE, .msg = &a->req.base, .timeout_ms = LEASE_LATE_MS, .done = on_asked,
    };
    cl_bnf_remote_call(&a->call);
    if (!asked_wait(a))
        return FP_EDEADLINE;
    rc = a->status;
    if (rc == 0) {
        l = lease_new(b, a->id);
        rc = l ? 0 : -ENOMEM;
    }
    if (l) {
        l->generation = a->generation;
        l->nextents = 1;
        l->ext[0] = (struct cl_extent){ .end = a->bytes };
    }
    if (a->status == 0 && !l)
        give_back_late(a);
    else
        asked_free(a);
    *out = l;
    return rc;
}

/* One more lease of b, want bytes or at least need; space_lock not held, b->leasing set by the caller. */
static int lease_more(struct cl_bnf *b, uint64_t want, uint32_t need, struct cl_lease **out)
{
    Fp__Lease req = FP__LEASE__INIT;
    req.min_bytes = need;
    req.want_bytes = want > need ? want : need;
    return cl_bnf_is_local(b) ? lease_local(b, &req, out) : lease_remote(b, &req, out);
}

/* space_lock held; released while leasing. Marks b according to the outcome. */
static int lease_locked(struct cl_data *d, struct cl_bnf *b, uint32_t need)
{
    uint64_t want = b->lease_bytes ? b->lease_bytes : LEASE_FIRST_BYTES;
    struct cl_lease *l = NULL;
    int rc;

    b->leasing = true;
    pthread_mutex_unlock(&d->space_lock);
    rc = lease_more(b, want, need, &l);
    pthread_mutex_lock(&d->space_lock);
    b->leasing = false;
    if (rc == 0) {
        l->next = b->leases;
        b->leases = l;
        if (!b->lease_bytes)
            b->lease_bytes = LEASE_FIRST_BYTES;
        else if (b->lease_bytes < LEASE_MAX_BYTES)
            b->lease_bytes *= 2;
    } else if (rc == -ENOSPC) {
        b->full_until_ms = fp_now_ms() + FULL_PAUSE_MS;
        b->full_need_bytes = need;
        b->lease_bytes = 0;
    } else {
        b->avoid_until_ms = fp_now_ms() + AVOID_PAUSE_MS;
    }
    pthread_cond_broadcast(&d->space_cond);
    return rc;
}

struct ahead {
    struct cl_job job;
    struct cl_bnf *bnf;
};

/* space_lock held: a stream has used more than half of what was leased, and nobody is leasing. */
static bool runs_low(const struct cl_bnf *b, uint64_t now_ms)
{
    uint64_t left = 0;

    for (const struct cl_lease *l = b->leases; l; l = l->next)
        if (!lease_is_void(l))
            left += lease_free_bytes(l);
    return !b->leasing && now_ms >= b->full_until_ms && now_ms >= b->avoid_until_ms && left * 2 <= b->lease_bytes;
}

static void lease_ahead_run(struct cl_job *job)
{
    struct ahead *a = (struct ahead *)job;
    struct cl_data *d = a->bnf->data;

    pthread_mutex_lock(&d->space_lock);
    a->bnf->ahead_queued = false;
    if (runs_low(a->bnf, fp_now_ms()))
        (void)lease_locked(d, a->bnf, FP_RECORD_HEADER_BYTES + CL_PAGE_BYTES);
    pthread_mutex_unlock(&d->space_lock);
    free(a);
}

/*
 * space_lock held: lease in the background what a stream will need next. `leasing` is not set before the job runs: if all store threads wait for
 * space themselves, one of them must be able to lease.
 */
static void lease_ahead(struct cl_data *d, struct cl_bnf *b, uint64_t now_ms)
{
    struct ahead *a;

    if (b->ahead_queued || !runs_low(b, now_ms))
        return;
    a = calloc(1, sizeof(*a));
    if (!a)
        return;
    a->job.run = lease_ahead_run;
    a->bnf = b;
    b->ahead_queued = true;
    cl_jobs_post(d->jobs, &a->job, true);
}

/* -------------------------------------------------------------- reserving */

struct candidates {
    struct cl_bnf *bnf[BNFS_MAX];
    struct cl_place_bnf place[BNFS_MAX];
    uint32_t order[BNFS_MAX];
    uint32_t n, norder;
    uint32_t nup;          /* the manager says they are up */
    uint32_t nusable;      /* … and none has just failed */
};

/* Both locks held. */
static void candidates_add(struct cl_data *d, struct candidates *c, bool local, uint32_t avoid, uint64_t now_ms)
{
    for (struct cl_bnf *b = d->bnfs; b && c->n < BNFS_MAX; b = b->next) {
        bool up = b->state == FP__BNF_STATE__BNF_OK || b->state == FP__BNF_STATE__BNF_FULL;

        if (b->prefers_local != local)
            continue;
        c->bnf[c->n] = b;
        c->place[c->n] = (struct cl_place_bnf){
            .id = b->id,
            .local = b->prefers_local,
            .usable = up && now_ms >= b->avoid_until_ms && b->id != avoid,
        };
        c->nup += up;
        c->nusable += c->place[c->n].usable;
        c->n++;
    }
}

/* space_lock held. */
static void candidates_fill(struct cl_data *d, struct candidates *c, uint32_t avoid, uint64_t now_ms)
{
    c->n = c->nup = c->nusable = 0;
    pthread_mutex_lock(&d->bnf_lock);
    candidates_add(d, c, true, avoid, now_ms); /* of very many, not all are looked at */
    candidates_add(d, c, false, avoid, now_ms);
    pthread_mutex_unlock(&d->bnf_lock);
}

static void wait_for_change(struct cl_data *d, uint64_t deadline_ms)
{
    uint64_t until_ms = fp_now_ms() + 100;
    struct timespec ts;

    if (until_ms > deadline_ms)
        until_ms = deadline_ms;
    ts.tv_sec = (time_t)(until_ms / 1000);
    ts.tv_nsec = (long)(until_ms % 1000) * 1000000;
    pthread_cond_timedwait(&d->space_cond, &d->space_lock, &ts);
}

/* One round over the candidates: 1 taken, 0 look again (something changed meanwhile, or one could not be asked), -ENOSPC all full. */
static int try_candidates(struct cl_data *d, struct candidates *c, uint32_t need, uint64_t deadline_ms, struct cl_resv *out)
{
    bool all_full = c->norder > 0;

    for (uint32_t i = 0; i < c->norder; i++) {
        struct cl_bnf *b = c->bnf[c->order[i]];
        uint64_t now_ms = fp_now_ms();
        int rc;

        if (take_from(b, need, now_ms, out)) {
            lease_ahead(d, b, now_ms);
            return 1;
        }
        if (now_ms < b->full_until_ms && need >= b->full_need_bytes)
            continue;
        if (b->leasing) {
            wait_for_change(d, deadline_ms);
            return 0;
        }
        rc = lease_locked(d, b, need);
        if (rc == 0)
            return 0;
        all_full &= rc == -ENOSPC;
    }
    return all_full ? -ENOSPC : 0;
}

int cl_space_reserve(struct cl_data *d, uint64_t ino, uint64_t win, uint32_t stripe, uint32_t need, uint32_t avoid,
             uint64_t deadline_ms, struct cl_resv *out)
{
    struct candidates *c = malloc(sizeof(*c));
    int rc = 0;

    if (!c)
        return -ENOMEM;
    memset(out, 0, sizeof(*out));
    pthread_mutex_lock(&d->space_lock);
    while (rc == 0) {
        uint64_t now_ms = fp_now_ms();

        candidates_fill(d, c, avoid, now_ms);
        if (c->nusable == 0)
            avoid = 0;
        c->norder = cl_place(c->place, c->n, ino, win, stripe, c->order);
        rc = try_candidates(d, c, need, deadline_ms, out);
        if (rc == 1)
            break;
        if (fp_now_ms() >= deadline_ms || atomic_load(&d->stopping)) {
            rc = rc ? rc : FP_ENOBENEFACTOR;
        } else if (c->norder == 0 || (rc == -ENOSPC && c->nusable < c->nup)) {
            wait_for_change(d, deadline_ms); /* one may be away for a moment only */
            rc = 0;
        }
    }
    pthread_mutex_unlock(&d->space_lock);
    free(c);
    return rc < 0 ? rc : 0;
}

void cl_space_release(struct cl_data *d, struct cl_resv *r)
{
    if (!r->lease)
        return;
    pthread_mutex_lock(&d->space_lock);
    r->lease->ext[r->ext].promised -= r->bytes;
    r->lease->busy--;
    pthread_mutex_unlock(&d->space_lock);
    r->lease = NULL;
}

bool cl_space_grow(struct cl_data *d, struct cl_resv *r, uint32_t bytes, uint32_t spare)
{
    bool ok;

    if (bytes <= r->bytes)
        return true;
    pthread_mutex_lock(&d->space_lock);
    ok = !lease_is_void(r->lease) && ext_free(&r->lease->ext[r->ext]) >= bytes - r->bytes + (uint64_t)spare;
    if (ok) {
        r->lease->ext[r->ext].promised += bytes - r->bytes;
        r->bytes = bytes;
    }
    pthread_mutex_unlock(&d->space_lock);
    return ok;
}

void cl_space_shrink(struct cl_data *d, struct cl_resv *r, uint32_t bytes)
{
    if (!r->lease || bytes >= r->bytes)
        return;
    pthread_mutex_lock(&d->space_lock);
    r->lease->ext[r->ext].promised -= r->bytes - bytes;
    r->bytes = bytes;
    pthread_mutex_unlock(&d->space_lock);
}

bool cl_space_place(struct cl_data *d, struct cl_resv *r, uint32_t bytes, uint64_t *off)
{
    struct cl_extent *e = &r->lease->ext[r->ext];
    bool ok;

    assert(bytes <= r->bytes && bytes % FP_RECORD_ALIGN_BYTES == 0);
    pthread_mutex_lock(&d->space_lock);
    ok = !lease_is_void(r->lease) && !ext_is_lost(e);
    e->promised -= r->bytes;
    r->bytes = 0;
    *off = e->off;
    e->off += bytes;
    pthread_mutex_unlock(&d->space_lock);
    return ok;
}

void cl_space_done(struct cl_data *d, struct cl_resv *r)
{
    if (!r->lease)
        return;
    pthread_mutex_lock(&d->space_lock);
    r->lease->ext[r->ext].promised -= r->bytes;
    r->lease->busy--;
    pthread_mutex_unlock(&d->space_lock);
    r->lease = NULL;
    r->bytes = 0;
}

void cl_space_failed(struct cl_data *d, struct cl_resv *r, int err)
{
    if (r->lease && err == FP_ELEASE) {
        pthread_mutex_lock(&d->space_lock);
        r->lease->refused = true;
        pthread_mutex_unlock(&d->space_lock);
    }
    cl_space_done(d, r);
}

void cl_space_avoid(struct cl_data *d, struct cl_bnf *b, int err)
{
    pthread_mutex_lock(&d->space_lock);
    if (err == -ENOSPC)
        b->full_until_ms = fp_now_ms() + FULL_PAUSE_MS;
    else
        b->avoid_until_ms = fp_now_ms() + AVOID_PAUSE_MS;
    pthread_mutex_unlock(&d->space_lock);
}

uint64_t cl_space_free_bytes(struct cl_data *d)
{
    uint64_t n = 0;

    pthread_mutex_lock(&d->space_lock);
    pthread_mutex_lock(&d->bnf_lock);
    for (struct cl_bnf *b = d->bnfs; b; b = b->next) {
        if (b->state != FP__BNF_STATE__BNF_DOWN)
            n += b->free_bytes;
        for (struct cl_lease *l = b->leases; l; l = l->next)
            if (!lease_is_void(l))
                n += lease_free_bytes(l);
    }
    pthread_mutex_unlock(&d->bnf_lock);
    pthread_mutex_unlock(&d->space_lock);
    return n;
}

/* -------------------------------------------------------------- giving back */

/* Worth keeping: in use, or used lately and with room for another record. */
static bool lease_keep(const struct cl_lease *l, uint64_t now_ms, bool all)
{
    if (l->busy > 0)
        return true;
    if (all || lease_is_void(l) || (l->nextents > 0 && ext_is_lost(&l->ext[0])))
        return false;
    return now_ms < l->used_ms + LEASE_IDLE_MS && lease_free_bytes(l) >= FP_RECORD_HEADER_BYTES + CL_PAGE_BYTES;
}

static void lease_return(struct cl_lease *l)
{
    Fp__LeaseReturn req = FP__LEASE_RETURN__INIT;

    req.lease = l->id;
    req.bytes = lease_free_bytes(l);
    if (l->nextents > 0 && l->ext[0].seg) {
        (void)cl_bnf_local_call(l->bnf, FP__MSG_TYPE__MSG_LEASE_RETURN, &req.base, NULL);
    } else {
        struct cl_rcall c = { .bnf = l->bnf, .type = FP__MSG_TYPE__MSG_LEASE_RETURN, .msg = &req.base, .timeout_ms = 2000 };

        (void)cl_bnf_remote_call_sync(&c, NULL);
    }
}

/* space_lock held: take out of b's list all leases that need not be kept. */
static struct cl_lease *collect(struct cl_bnf *b, uint64_t now_ms, bool all)
{
    struct cl_lease *out = NULL, **p = &b->leases;

    while (*p) {
        struct cl_lease *l = *p;

        if (lease_keep(l, now_ms, all)) {
            p = &l->next;
            continue;
        }
        *p = l->next;
        l->next = out;
        out = l;
    }
    return out;
}

void cl_space_tick(struct cl_data *d, uint64_t now_ms, bool all)
{
    struct cl_bnf *b;

    pthread_mutex_lock(&d->bnf_lock);
    b = d->bnfs;
    pthread_mutex_unlock(&d->bnf_lock);
    for (; b; b = b->next) {
        struct cl_lease *l, *next;

        pthread_mutex_lock(&d->space_lock);
        l = collect(b, now_ms, all);
        if (!b->leases)
            b->lease_bytes = 0;
        pthread_mutex_unlock(&d->space_lock);
        for (; l; l = next) {
            next = l->next;
            if (!lease_is_void(l))
                lease_return(l);
            lease_free(l);
        }
    }
}

void cl_space_fini(struct cl_data *d)
{
    for (struct cl_bnf *b = d->bnfs; b; b = b->next) {
        struct cl_lease *l = b->leases, *next;

        for (; l; l = next) {
            next = l->next;
            lease_free(l);
        }
        b->leases = NULL;
    }
}
