/*
 * Chunks on their way to the store: from cl_aux_submit to the checked result.
 *
 * Store threads submit and give results back; answers come on the link thread. A job has two buffers in the region from when it is sent until it is done, when
 * what the result does not need goes back at once. What a result refers to is held, and vouched for, before anybody sees it: if that is not sure (a
 * new session, holds released at space pressure, a benefactor that went away: holds.h), the manager is asked again on a service thread. If it does not vouch for
 * a chunk, or does not answer, the job is sent once more, with the word that nothing stored is to be referred to. That can be done at any time, because the
 * pages are still there; it costs the duplicate. An aux-app that named a place beyond the end of a chunk, or a chunk that is not there although it was
 * never let go, has failed.
 *
 * A result that makes no sense, or a host that dies with the job, sends it again; after TRIES_MAX the chunk is stored as it came, should each
 * host die of it without anybody to blame. But not where something is required of the data (required.c): then its write fails. For the same reason each
 * result is looked at for what it must have passed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/aux/holds.h"
#include "client/aux/internal.h"
#include "client/data/pool.h"

#define TRIES_MAX 8u

struct out_call {
    struct aux_call call;          /* first */
    struct aux_task task;          /* to hold chunks again */
    struct cl_aux_job *job;
    bool has_room;                 /* lock */
    uint64_t out_a, out_b;         /* in the region */
    uint32_t cap_bytes;            /* of each; 0: given back */
    uint64_t kept_off, kept_bytes; /* what the result lies in */
    void *copy;                    /* of the answer */
    bool counted;                  /* lock: what stages are passed over */
    bool no_stored;                /* what it referred to was not vouched for */
    bool wrong;                    /* … and should not have been named, by wrong_app (as in auxwire.h) */
    uint32_t stored_app, wrong_app;
};

static struct out_call *out_of_call(struct aux_call *c)
{
    return (struct out_call *)c;
}

static struct out_call *out_of_task(struct aux_task *t)
{
    return (struct out_call *)(void *)((char *)t - offsetof(struct out_call, task));
}

/* -------------------------------------------------------------- to the host */

/* lock held. */
static bool get_room(struct cl_aux *a, struct out_call *o)
{
    if (o->has_room)
        return true;
    if (!cl_aux_region_get(&a->out_room, o->cap_bytes, &o->out_a))
        return false;
    if (!cl_aux_region_get(&a->out_room, o->cap_bytes, &o->out_b)) {
        cl_aux_region_put(&a->out_room, o->out_a, o->cap_bytes);
        return false;
    }
    o->has_room = true;
    return true;
}

static int send_out(struct cl_aux *a, struct aux_call *c)
{
    struct out_call *o = out_of_call(c);
    const struct cl_aux_job *job = o->job;
    uint32_t page[FP_AUX_CHUNK_MAX_BYTES / CL_PAGE_BYTES];
    struct fp_auxw_chunk_out msg = {
        .h = { .type = FP_AUXW_CHUNK_OUT, .id = c->id }, .ino = job->ino, .file_off = job->file_off, .file_serial = job->file_serial,
        .len_bytes = job->len_bytes, .npages = job->npages, .whole = job->whole, .out_cap_bytes = o->cap_bytes };
    struct iovec iov[2] = { { &msg, sizeof(msg) }, { page, job->npages * sizeof(page[0]) } };
    int rc;

    if (c->tries > TRIES_MAX)
        return -ELOOP;
    if (!get_room(a, o))
        return -EAGAIN;
    for (uint32_t i = 0; i < job->npages; i++)
        page[i] = cl_pool_page_number(a->pool, job->pages[i]);
    msg.out_a = o->out_a;
    msg.out_b = o->out_b;
    msg.flags = (o->no_stored ? FP_AUXW_OUT_NO_STORED : 0) | (job->no_pieces ? FP_AUXW_OUT_NO_PIECES : 0);
    msg.h.len_bytes = (uint32_t)(sizeof(msg) + iov[1].iov_len);
    msg.skip = o->no_stored ? 0 : cl_aux_skips(a, job, false);
    for (uint32_t i = 0; i < a->napps; i++)
        msg.passed_bytes[i] = a->app[i].passed_bytes;
    rc = cl_aux_tx(a, iov, 2);
    if (rc == 0 && msg.skip && !o->counted) {
        (void)cl_aux_skips(a, job, true);
        o->counted = true;
    }
    return rc;
}

/* -------------------------------------------------------------- and back */

static void clear_result(struct out_call *o)
{
    struct cl_aux_job *job = o->job;

    free(o->copy);
    o->copy = NULL;
    job->status = 0;
    job->npieces = job->nstages = job->coded_bytes = job->note_bytes = job->nkeys = 0;
    job->new_bytes = job->len_bytes;
    job->pieces = NULL;
    job->stages = NULL;
    job->bytes = NULL;
    job->note = NULL;
    job->keys = NULL;
    memset(&job->tickets, 0, sizeof(job->tickets));
}

/* What the result does not lie in goes back. */
static void trim_room(struct cl_aux *a, struct out_call *o)
{
    const uint8_t *bytes = o->job->bytes;
    uint64_t used = o->job->coded_bytes, keep;

    pthread_mutex_lock(&a->lock);
    if (o->has_room) {
        for (int i = 0; i < 2; i++) {
            uint64_t off = i == 0 ? o->out_a : o->out_b;

            if (!bytes || bytes != a->region + off) {
                cl_aux_region_put(&a->out_room, off, o->cap_bytes);
                continue;
            }
            keep = (used + AUX_UNIT_BYTES - 1) / AUX_UNIT_BYTES * AUX_UNIT_BYTES;
            o->kept_off = off;
            o->kept_bytes = keep;
            if (keep < o->cap_bytes)
                cl_aux_region_put(&a->out_room, off + keep, o->cap_bytes - keep);
        }
        o->has_room = false;
    }
    pthread_mutex_unlock(&a->lock);
    cl_aux_calls_kick(a);
}

static void hand_over(struct cl_aux *a, struct out_call *o)
{
    trim_room(a, o);
    o->job->done(o->job); /* it may be gone from here on */
}

/* Past all aux-apps; where that must not be, the write fails with err. */
static void as_it_came(struct cl_aux *a, struct out_call *o, int err)
{
    clear_result(o);
    pthread_mutex_lock(&a->lock);
    if (!cl_aux_all_may_pass(a))
        o->job->status = a->stopping ? FP_ESTOPPING : err;
    pthread_mutex_unlock(&a->lock);
    hand_over(a, o);
}

/* The manager does not vouch for a chunk that the result refers to. No host has died of it: no try is counted. */
static void without_stored(struct cl_aux *a, struct out_call *o, bool wrong)
{
    clear_result(o);
    o->no_stored = true;
    o->wrong = wrong;
    o->wrong_app = o->stored_app;
    cl_aux_call_resubmit(a, &o->call);
}

static uint32_t stored_chunks(const struct cl_aux_job *job, uint64_t *ids)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < job->npieces; i++)
        if (job->pieces[i].kind == FP_AUXW_PIECE_STORED && (n == 0 || ids[n - 1] != job->pieces[i].chunk))
            ids[n++] = job->pieces[i].chunk;
    return n;
}

/* Service thread: chunks that the result refers to are not held, or were vouched for too long ago. */
static void hold_again(struct cl_aux *a, struct aux_task *t)
{
    struct out_call *o = out_of_task(t);
    struct cl_aux_job *job = o->job;
    uint64_t ids[FP_AUXW_PIECES_MAX];
    bool wrong;
    int rc = cl_aux_holds_ask(a, ids, stored_chunks(job, ids), job->file_serial, &wrong);

    if (rc == 0)
        rc = cl_aux_holds_pin(a, job->pieces, job->npieces, &job->pins);
    if (rc == 0)
        hand_over(a, o);
    else
        without_stored(a, o, wrong || rc == -ERANGE);
}

static void log_refusal(struct cl_aux *a, const struct fp_auxw_out_done *d, const struct cl_aux_job *job)
{
    FP_LOG_EVERY(1000, FP_LOG_WARN, "aux-app %s refused data of inode %llu at %llu with %d: %s", d->app < a->napps ? cl_aux_app_name(&a->app[d->app]) : "?",
             (unsigned long long)job->ino, (unsigned long long)job->file_off, d->status, fp_strerror(job->status));
}

static void bad_answer(struct cl_aux *a, struct out_call *o, const struct fp_auxw_head *msg)
{
    const struct fp_auxw_out_done *d = (const struct fp_auxw_out_done *)msg;

    clear_result(o);
    a->nonsense = true;
    a->nonsense_app = msg->type == FP_AUXW_CHUNK_OUT_DONE && msg->len_bytes >= sizeof(*d) && d->app < a->napps ? (int)d->app : -1;
    pthread_mutex_lock(&a->lock);
    o->call.tries++;
    cl_aux_call_again(a, &o->call);
    pthread_mutex_unlock(&a->lock);
}

/*
 * False: the result lacks what is required, and is not used. A chain that is being changed explains it: then the job waits for the new one, where the required
 * stage is, or fails with it. Without such a reason the host has broken its word.
 */
static bool is_complete(struct cl_aux *a, struct out_call *o, const struct fp_auxw_out_done *d)
{
    bool changes;
    int app;

    pthread_mutex_lock(&a->lock);
    app = cl_aux_left_out(a, o->job, d->ran);
    changes = cl_aux_chain_changes(a) || (app >= 0 && a->app[app].failed);
    pthread_mutex_unlock(&a->lock);
    if (app < 0)
        return true;
    if (!changes) {
        FP_LOG_EVERY(1000, FP_LOG_ERROR, "aux-app %s is required, and a chunk came back without having passed it: it is not stored so",
                 cl_aux_app_name(&a->app[app]));
        bad_answer(a, o, &d->h);
        a->nonsense_app = app;
        return false;
    }
    clear_result(o);
    cl_aux_call_resubmit(a, &o->call);
    return false;
}

/* The host is well, and the chain changes if it was once too often: a misdeed, not a death. */
static void blame(struct cl_aux *a, struct out_call *o)
{
    int app = o->wrong_app > 0 && o->wrong_app <= a->napps ? (int)o->wrong_app - 1 : -1;

    o->wrong = false;
    if (app >= 0)
        cl_aux_misdeed(a, (uint32_t)app, "it referred to a stored chunk that is not there, or is shorter");
}

static void take_result(struct cl_aux *a, struct out_call *o, const struct fp_auxw_out_done *d)
{
    struct cl_aux_job *job = o->job;
    uint64_t ids[FP_AUXW_PIECES_MAX];
    int rc;

    if (o->wrong)
        blame(a, o);
    if (o->no_stored && stored_chunks(job, ids) > 0) {
        bad_answer(a, o, &d->h);
        return;
    }
    o->stored_app = d->stored_app;
    rc = cl_aux_holds_pin(a, job->pieces, job->npieces, &job->pins);
    if (rc < 0) {
        o->task.run = hold_again;
        cl_aux_task_post(a, &o->task);
        return;
    }
    hand_over(a, o);
}

/* What aux-apps made of this chunk that could not be used: a failure of theirs, as a crash would be, though the host is well. */
static void count_failed(struct cl_aux *a, uint32_t failed)
{
    for (uint32_t i = 0; failed != 0 && i < a->napps; i++) {
        if (failed & 1u << i)
            cl_aux_misdeed(a, i, "it answered what can't be carried out");
        if (failed & 0x10000u << i)
            cl_aux_misdeed(a, i, "its chunk_in does not undo what its chunk_out wrote");
    }
}

static void out_done(struct cl_aux *a, struct aux_call *c, const struct fp_auxw_head *msg, int status)
{
    const struct fp_auxw_out_done *d = (const struct fp_auxw_out_done *)msg;
    struct out_call *o = out_of_call(c);
    struct cl_aux_job *job = o->job;
    int rc;

    (void)status;
    if (!msg) {
        as_it_came(a, o, -EIO);
        return;
    }
    rc = cl_aux_result_parse(job, msg, o->cap_bytes, a->region + o->out_a, a->region + o->out_b, &o->copy);
    if (rc == -ENOMEM) {
        as_it_came(a, o, rc);
        return;
    }
    /* A call that gave up at its deadline, as it should, refuses nothing: it has failed, as if it had not come back. */
    if (rc < 0 || job->status == -ECANCELED || job->status == -ETIMEDOUT) {
        bad_answer(a, o, msg);
        return;
    }
    count_failed(a, d->failed);
    if (job->status < 0) {
        log_refusal(a, d, job);
        hand_over(a, o);
    } else if (is_complete(a, o, d)) {
        take_result(a, o, d);
    }
}

/* -------------------------------------------------------------- interface */

bool cl_aux_chunks(const struct cl_mount *m)
{
    return m->aux && atomic_load_explicit(&m->aux->chunks, memory_order_relaxed);
}

void cl_aux_submit(struct cl_mount *m, struct cl_aux_job *job)
{
    struct cl_aux *a = m->aux;
    struct out_call *o = calloc(1, sizeof(*o));

    job->priv = o;
    job->new_bytes = job->len_bytes;
    if (!o) {
        job->status = -ENOMEM;
        job->done(job);
        return;
    }
    o->job = job;
    o->no_stored = job->no_stored;
    o->cap_bytes = (job->len_bytes + AUX_UNIT_BYTES - 1) / AUX_UNIT_BYTES * AUX_UNIT_BYTES + AUX_UNIT_BYTES;
    o->call = (struct aux_call){ .kind = AUX_OUT, .send = send_out, .done = out_done };
    cl_aux_call_submit(a, &o->call); /* nobody left to take it: done at once */
}

void cl_aux_job_fini(struct cl_mount *m, struct cl_aux_job *job)
{
    struct cl_aux *a = m->aux;
    struct out_call *o = job->priv;

    if (!o)
        return;
    job->priv = NULL;
    cl_aux_pins_put(m, job->pins);
    job->pins = NULL;
    if (a && o->kept_bytes > 0) {
        pthread_mutex_lock(&a->lock);
        cl_aux_region_put(&a->out_room, o->kept_off, o->kept_bytes);
        pthread_mutex_unlock(&a->lock);
        cl_aux_calls_kick(a);
    }
    free(o->copy);
    free(o);
}

/* -------------------------------------------------------------- it is stored */

struct stored_call {
    struct aux_call call;          /* first */
    struct fp_auxw_stored msg;
};

static int send_stored(struct cl_aux *a, struct aux_call *c)
{
    struct stored_call *s = (struct stored_call *)c;
    struct iovec iov = { &s->msg, sizeof(s->msg) };

    return cl_aux_tx(a, &iov, 1);
}

static void stored_done(struct cl_aux *a, struct aux_call *c, const struct fp_auxw_head *msg, int status)
{
    (void)a;
    (void)msg;
    (void)status;
    free(c);
}

void cl_aux_stored(struct cl_mount *m, const struct cl_aux_tickets *t, uint64_t chunk, uint32_t off, uint32_t len_bytes)
{
    for (int i = 0; m->aux && i < 4; i++) {
        struct stored_call *s = t->ticket[i] ? calloc(1, sizeof(*s)) : NULL;

        if (!s)
            continue;
        s->call = (struct aux_call){ .kind = AUX_STORED, .oneway = true, .send = send_stored, .done = stored_done };
        s->msg = (struct fp_auxw_stored){ .h = { .type = FP_AUXW_STORED, .len_bytes = sizeof(s->msg) }, .ticket = t->ticket[i],
                          .chunk = chunk, .app = t->app[i], .off = off, .len_bytes = len_bytes };
        cl_aux_call_submit(m->aux, &s->call);
    }
}
