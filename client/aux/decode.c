/*
 * Coded chunks on their way back: the host undoes the stages, the caller waits.
 *
 * FUSE and store threads call it; the answer comes on the link thread. Its buffers are a part of the region of their own, so that readers, who give
 * theirs back by themselves, never wait for store threads that may be waiting for readers. A caller that gives up at its deadline leaves the call
 * behind (CANCEL): the buffers are the host's until it has answered or is dead.
 *
 * A mount that has declared nothing starts a host with the first coded chunk it meets, and keeps it: the next one is likely to come.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/aux/internal.h"

#define TRIES_MAX 2u /* hosts that may die of one chunk */

struct in_call {
    struct aux_call call;          /* first */
    uint32_t users;                /* lock: who waits, and the table */
    bool finished;                 /* lock */
    int status;                    /* lock, once finished */
    bool has_room;                 /* lock */
    uint64_t off;                  /* two buffers of cap_bytes */
    uint32_t cap_bytes, coded_bytes, where, nstages;
    const struct iovec *coded;     /* of the caller, while users == 2 */
    int ncoded;
    struct fp_auxw_stage stage[FP_AUXW_STAGES_MAX];
};

/* lock held. */
static void in_put(struct cl_aux *a, struct in_call *c)
{
    if (--c->users > 0)
        return;
    if (c->has_room)
        cl_aux_region_put(&a->in_room, c->off, 2ull * c->cap_bytes);
    free(c);
}

static int send_in(struct cl_aux *a, struct aux_call *call)
{
    struct in_call *c = (struct in_call *)call;
    struct fp_auxw_chunk_in msg = {
        .h = { .type = FP_AUXW_CHUNK_IN, .len_bytes = sizeof(msg), .id = call->id }, .cap_bytes = c->cap_bytes, .coded_bytes = c->coded_bytes,
        .nstages = c->nstages };
    struct iovec iov = { &msg, sizeof(msg) };
    uint8_t *at;

    if (call->tries >= TRIES_MAX || c->users < 2 || cl_aux_coder_refused(a, c->stage, c->nstages))
        return -EIO;
    if (!c->has_room && !cl_aux_region_get(&a->in_room, 2ull * c->cap_bytes, &c->off))
        return -EAGAIN;
    c->has_room = true;
    at = a->region + c->off;
    for (int i = 0; i < c->ncoded; i++) {
        memcpy(at, c->coded[i].iov_base, c->coded[i].iov_len);
        at += c->coded[i].iov_len;
    }
    msg.a = c->off;
    msg.b = c->off + c->cap_bytes;
    memcpy(msg.stage, c->stage, sizeof(msg.stage));
    return cl_aux_tx(a, &iov, 1);
}

static void in_done(struct cl_aux *a, struct aux_call *call, const struct fp_auxw_head *msg, int status)
{
    struct in_call *c = (struct in_call *)call;
    const struct fp_auxw_done *d = (const struct fp_auxw_done *)msg;
    struct aux_call_list dead = TAILQ_HEAD_INITIALIZER(dead);

    pthread_mutex_lock(&a->lock);
    c->finished = true;
    c->status = !msg ? (status < 0 ? status : -EIO) : d->status;
    c->where = msg ? d->where : 0;
    if (msg && (msg->type != FP_AUXW_DONE || (c->status == 0 && c->where != 1 && c->where != 2)))
        c->status = -EIO;
    in_put(a, c);
    cl_aux_calls_pump(a, &dead); /* there may be room for another */
    pthread_cond_broadcast(&a->cond);
    pthread_mutex_unlock(&a->lock);
    cl_aux_calls_finish(a, &dead, -EIO);
}

static uint64_t iov_bytes(const struct iovec *iov, int n)
{
    uint64_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += iov[i].iov_len;
    return bytes;
}

static struct in_call *in_new(const struct fp_auxw_stage *stages, uint32_t nstages, const struct iovec *coded, int ncoded, uint64_t out_bytes)
{
    struct in_call *c = calloc(1, sizeof(*c));
    uint64_t most = iov_bytes(coded, ncoded);

    if (!c)
        return NULL;
    for (uint32_t i = 0; i < nstages; i++)
        most = stages[i].in_bytes > most ? stages[i].in_bytes : most;
    most = out_bytes > most ? out_bytes : most;
    c->call = (struct aux_call){ .kind = AUX_IN, .send = send_in, .done = in_done };
    c->users = 2;
    c->coded = coded;
    c->ncoded = ncoded;
    c->coded_bytes = (uint32_t)iov_bytes(coded, ncoded);
    c->cap_bytes = (uint32_t)((most + AUX_UNIT_BYTES - 1) / AUX_UNIT_BYTES * AUX_UNIT_BYTES);
    c->nstages = nstages;
    memcpy(c->stage, stages, nstages * sizeof(stages[0]));
    return c;
}

/* The lengths of an envelope come from a device: nothing may be longer than a chunk can be. */
static bool stages_ok(const struct fp_auxw_stage *s, uint32_t n, uint64_t coded_bytes, uint64_t out_bytes)
{
    const uint32_t most = FP_AUX_CHUNK_MAX_BYTES + FP_AUX_EXPAND_MAX_BYTES;

    if (n == 0 || n > FP_AUXW_STAGES_MAX || s[0].in_bytes != out_bytes || s[n - 1].out_bytes != coded_bytes)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (s[i].in_bytes == 0 || s[i].in_bytes > most || s[i].out_bytes == 0 || s[i].out_bytes > most ||
            !memchr(s[i].name, '\0', sizeof(s[i].name)))
            return false;
        if (i > 0 && s[i].in_bytes != s[i - 1].out_bytes)
            return false;
    }
    return true;
}

/* lock held: nobody waits any more. */
static void cancel(struct cl_aux *a, struct in_call *c)
{
    struct fp_auxw_done msg = { .h = { .type = FP_AUXW_CANCEL, .len_bytes = sizeof(msg), .id = c->call.id } };
    struct iovec iov = { &msg, sizeof(msg) };

    if (c->call.sent && a->state == AUX_UP && !a->tx_full)
        (void)cl_aux_tx(a, &iov, 1);
}

static void copy_out(const uint8_t *from, const struct iovec *out, int nout)
{
    for (int i = 0; i < nout; i++) {
        memcpy(out[i].iov_base, from, out[i].iov_len);
        from += out[i].iov_len;
    }
}

static int wait_for(struct cl_aux *a, struct in_call *c, const struct iovec *out, int nout, uint64_t deadline_ms)
{
    struct timespec ts = { .tv_sec = (time_t)(deadline_ms / 1000), .tv_nsec = (long)(deadline_ms % 1000) * 1000000 };
    int rc = 0;

    pthread_mutex_lock(&a->lock);
    while (!c->finished && rc == 0)
        rc = pthread_cond_timedwait(&a->cond, &a->lock, &ts);
    if (!c->finished) {
        cancel(a, c);
        rc = -ETIMEDOUT;
    } else {
        rc = c->status;
    }
    pthread_mutex_unlock(&a->lock);
    if (rc == 0) /* the buffers are ours until in_put */
        copy_out(a->region + c->off + (c->where == 2 ? c->cap_bytes : 0), out, nout);
    pthread_mutex_lock(&a->lock);
    in_put(a, c);
    pthread_mutex_unlock(&a->lock);
    return rc;
}

static int explain(const struct fp_auxw_stage *stages, uint32_t nstages, int rc)
{
    char names[FP_AUXW_STAGES_MAX * (sizeof(stages[0].name) + 2)] = "";

    if (rc == 0 || rc == -ETIMEDOUT)
        return rc;
    for (uint32_t i = 0; i < nstages; i++) {
        if (i > 0)
            strcat(names, ", ");
        strcat(names, stages[i].name); /* ends with a NUL: stages_ok */
    }
    if (rc == -ENOPKG || rc == -ENOENT)
        FP_LOG_EVERY(5000, FP_LOG_ERROR, "a chunk was made by aux-app %s, whose plugin is not here: install it, or see --auxapp-dir", names);
    else if (rc == -ELIBACC)
        FP_LOG_EVERY(5000, FP_LOG_ERROR, "a chunk was made by aux-app %s, which does not start here undeclared: declare it with --auxapp and the "
                 "options it needs; the line before says what is wrong", names);
    else if (rc == -ELIBBAD)
        FP_LOG_EVERY(5000, FP_LOG_ERROR, "a chunk was made by aux-app %s, which has failed too often when it was to read such: it is not tried now",
                 names);
    else if (rc == -ENOKEY)
        FP_LOG_EVERY(5000, FP_LOG_ERROR, "a chunk was made by aux-app %s, which has no key here: declare it with --auxapp and its key", names);
    else
        FP_LOG_EVERY(5000, FP_LOG_ERROR, "a chunk made by aux-app %s could not be read: %s", names, fp_strerror(rc));
    return rc == -EILSEQ ? rc : -EIO;
}

int cl_aux_decode(struct cl_mount *m, const struct fp_auxw_stage *stages, uint32_t nstages, const struct iovec *coded, int ncoded,
          const struct iovec *out, int nout, uint64_t deadline_ms)
{
    struct cl_aux *a = cl_aux_for_decoding(m);
    uint64_t out_bytes = iov_bytes(out, nout);
    struct in_call *c;
    bool refused;

    if (!a)
        return -EIO;
    if (!stages_ok(stages, nstages, iov_bytes(coded, ncoded), out_bytes))
        return -EILSEQ;
    pthread_mutex_lock(&a->lock);
    refused = cl_aux_coder_refused(a, stages, nstages);
    pthread_mutex_unlock(&a->lock);
    if (refused)
        return explain(stages, nstages, -ELIBBAD);
    c = in_new(stages, nstages, coded, ncoded, out_bytes);
    if (!c)
        return -ENOMEM;
    cl_aux_call_submit(a, &c->call);
    return explain(stages, nstages, wait_for(a, c, out, nout, deadline_ms));
}
