/*
 * Loading coded chunks (see coded.h). Called by the read cache on FUSE threads (a reader needs it now) and store threads (read-ahead), for the whole chunk at
 * once: whoever comes meanwhile waits for the cache's blocks.
 *
 * The stored bytes go into scratch memory and not into pool pages: they are needed for the time of decoding only, and a reader that holds pages while it
 * waits for more could wait for itself. Their number is bounded instead.
 */
#include "client/data/coded.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/aux/aux.h"
#include "client/core.h"
#include "client/data/datasum.h"
#include "client/data/internal.h"
#include "client/data/load.h"
#include "fp/checksum.h"
#include "fp/envelope.h"

/* Reading ahead has no deadline of its own. */
#define AHEAD_MS 10000u

static int slot_take(struct cl_data *d, bool wait, uint64_t deadline_ms)
{
    struct timespec ts = { .tv_sec = (time_t)(deadline_ms / 1000), .tv_nsec = (long)(deadline_ms % 1000) * 1000000 };

    int rc = 0;

    pthread_mutex_lock(&d->coded_lock);
    while (d->coded_now == CL_CODED_AT_A_TIME && rc == 0)
        if (!wait)
            rc = -EAGAIN;
        else if (pthread_cond_timedwait(&d->coded_cond, &d->coded_lock, &ts) == ETIMEDOUT && d->coded_now == CL_CODED_AT_A_TIME)
            rc = FP_EDEADLINE;
    d->coded_now += rc == 0;
    pthread_mutex_unlock(&d->coded_lock);
    return rc;
}

static void slot_put(struct cl_data *d)
{
    pthread_mutex_lock(&d->coded_lock);
    d->coded_now--;
    pthread_cond_signal(&d->coded_cond);
    pthread_mutex_unlock(&d->coded_lock);
}

/* An entry that stands for the stored bytes; of no table, so nobody else sees it. What is known of their place is e's to know. */
static struct cl_rchunk *raw_new(struct cl_rchunk *e)
{
    uint32_t blocks = fp_sum_nblocks(e->ref.len_bytes);
    struct cl_rchunk *raw = calloc(1, sizeof(*raw) + blocks * sizeof(raw->block[0]));

    if (!raw)
        return NULL;
    pthread_mutex_init(&raw->lock, NULL);
    raw->ref = e->ref;
    raw->ref.data_len_bytes = 0;
    raw->blocks = blocks;
    pthread_mutex_lock(&e->lock);
    raw->bnf = e->bnf;
    if (e->seg) {
        atomic_fetch_add(&e->seg->refs, 1);
        raw->seg = e->seg;
        raw->off = e->off;
    }
    pthread_mutex_unlock(&e->lock);
    return raw;
}

static void raw_free(struct cl_rchunk *raw)
{
    cl_seg_put(raw->seg);
    pthread_mutex_destroy(&raw->lock);
    free(raw);
}

/* The stored bytes, verified. */
static int load_stored(struct cl_data *d, struct cl_rchunk *e, uint8_t *buf)
{
    uint8_t *at[FP_BLOCKS_MAX];
    struct cl_rchunk *raw = raw_new(e);
    int rc;

    if (!raw)
        return -ENOMEM;
    for (uint32_t i = 0; i < raw->blocks; i++)
        at[i] = buf + (size_t)i * CL_PAGE_BYTES;
    rc = cl_load_blocks(d, raw, 0, raw->blocks - 1, at);
    raw_free(raw);
    return rc;
}

static int data_iov(const struct cl_rchunk *e, uint8_t **pages, struct iovec *iov)
{
    uint32_t left = e->ref.data_len_bytes;

    for (uint32_t i = 0; i < e->blocks; i++) {
        uint32_t n = left < CL_PAGE_BYTES ? left : CL_PAGE_BYTES;

        iov[i] = (struct iovec){ pages[i], n };
        left -= n;
    }
    return (int)e->blocks;
}

/* The mount sees for itself that the bytes are those that were coded. Not if the store has another key since: then what hid the data must answer for it. */
static int compare(struct cl_data *d, const struct cl_rchunk *e, const struct fp_envelope *env, const struct iovec *coded, const struct iovec *iov, int n)
{
    struct cl_datasum x;
    uint64_t sum;
    int rc;

    if (!cl_datasum_can(cl_core_keyedsum(d->m), env)) {
        FP_LOG_EVERY(60000, FP_LOG_WARN, "chunk %#llx was stored under another key of the store: only %s has checked its data",
                 (unsigned long long)e->ref.id, env->stage[env->nstages - 1].name);
        return 0;
    }
    cl_datasum_begin(&x, env->keyed);
    for (int i = 0; i < n; i++)
        cl_datasum_add(&x, iov[i].iov_base, (uint32_t)iov[i].iov_len);
    rc = cl_datasum_end(&x, cl_core_keyedsum(d->m), coded->iov_base, (uint32_t)coded->iov_len, &sum);
    if (rc < 0 || sum == env->data_sum)
        return rc;
    FP_LOG_EVERY(1000, FP_LOG_ERROR, "chunk %#llx: what %s decoded is not what was coded", (unsigned long long)e->ref.id, env->stage[0].name);
    return FP_ECHECKSUM;
}

static int decode(struct cl_data *d, const struct cl_rchunk *e, uint8_t *buf, uint8_t **pages, uint64_t deadline_ms)
{
    struct iovec coded, out[CL_WBUF_PAGES_MAX];
    struct fp_envelope env;
    int n, rc = fp_envelope_decode(buf, e->ref.len_bytes, e->ref.len_bytes, &env);

    if (rc < 0 || env.data_bytes != e->ref.data_len_bytes)
        return FP_ECHECKSUM;
    coded = (struct iovec){ buf + FP_ENVELOPE_BYTES(env.nstages), env.coded_bytes };
    n = data_iov(e, pages, out);
    rc = cl_aux_decode(d->m, env.stage, env.nstages, &coded, 1, out, n, deadline_ms);
    switch (rc) {
    case 0:
        return compare(d, e, &env, &coded, out, n);
    case -EILSEQ:
        return FP_ECHECKSUM;
    case -ETIMEDOUT:
        return FP_EDEADLINE;
    case -EIO:
        return CL_ECODER;
    default:
        return rc;
    }
}

int cl_coded_load(struct cl_data *d, struct cl_rchunk *e, uint8_t **pages, bool wait, uint64_t deadline_ms)
{
    size_t bytes = (size_t)fp_sum_nblocks(e->ref.len_bytes) * CL_PAGE_BYTES;
    uint8_t *buf;
    int rc;

    if (!wait)
        deadline_ms = fp_now_ms() + AHEAD_MS;
    rc = slot_take(d, wait, deadline_ms);
    if (rc < 0)
        return rc;
    buf = cl_scratch_get(&d->scratch, bytes);
    rc = buf ? load_stored(d, e, buf) : -ENOMEM;
    if (rc == 0)
        rc = decode(d, e, buf, pages, deadline_ms);
    cl_scratch_put(&d->scratch, buf, bytes);
    slot_put(d);
    return rc;
}
