/*
 * Chunks in a target (see ext.h).
 *
 * Tokens: a table of 8 ways, found by a sum of what the file is; the one that was used least lately goes. So a mount that reads files of a million evicted
 * checkpoints keeps a few thousand names. A token has the number of its entry's use in it, so one that is forgotten is not taken for another.
 *
 * Fetching: the benefactor of this node first, so that the next reads are through descriptors, then another one. Both have half of the io-timeout. Whether a
 * failure is final only the benefactor that looked can say: the file is gone or another, or has other bytes. Anything else may be otherwise in a moment, or
 * on another node.
 */
#include "client/data/ext.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "client/data/internal.h"
#include "fp/checksum.h"
#include "life.pb-c.h"

#define SETS 1024u
#define WAYS 8u
#define AHEAD_MAX 64u  /* chunks that are fetched ahead at once */
#define TRIED 2u       /* benefactors that one fetch asks */

struct file {                      /* an entry of the table */
    uint64_t serial;                   /* 0: free */
    uint64_t used;
    uint64_t sum;
    Fp__ExtFile *f;
};

struct cl_ext {
    pthread_mutex_t lock;              /* a leaf */
    uint64_t serial, clock;
    atomic_uint ahead;
    struct file file[SETS][WAYS];
};

int cl_ext_new(struct cl_ext **out)
{
    struct cl_ext *x = calloc(1, sizeof(*x));

    if (!x)
        return -ENOMEM;
    pthread_mutex_init(&x->lock, NULL);
    *out = x;
    return 0;
}

void cl_ext_free(struct cl_ext *x)
{
    if (!x)
        return;
    for (uint32_t i = 0; i < SETS; i++)
        for (uint32_t k = 0; k < WAYS; k++)
            if (x->file[i][k].f)
                fp__ext_file__free_unpacked(x->file[i][k].f, NULL);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

/* -------------------------------------------------------------- tokens: serial << 13 | set << 3 | way */

static Fp__ExtFile *copy_of(const Fp__ExtFile *f, uint64_t *sum)
{
    size_t len = fp__ext_file__get_packed_size(f);
    uint8_t *buf = malloc(len ? len : 1);
    Fp__ExtFile *c = NULL;

    if (buf) {
        fp__ext_file__pack(f, buf);
        *sum = XXH3_64bits(buf, len);
        c = fp__ext_file__unpack(NULL, len, buf);
        free(buf);
    }
    return c;
}

uint64_t cl_ext_intern(struct cl_data *d, const Fp__ExtFile *f)
{
    struct cl_ext *x = d->ext;
    uint64_t sum = 0, token;
    Fp__ExtFile *copy = copy_of(f, &sum);
    struct file *set = x->file[sum % SETS], *at = &set[0];
    uint32_t way;

    if (!copy)
        return 0;
    pthread_mutex_lock(&x->lock);
    for (way = 0; way < WAYS; way++)
        if (set[way].serial && set[way].sum == sum)
            break;
    if (way == WAYS) {
        for (uint32_t i = 1; i < WAYS; i++)
            if (set[i].used < at->used)
                at = &set[i];
        way = (uint32_t)(at - set);
        if (at->f)
            fp__ext_file__free_unpacked(at->f, NULL);
        *at = (struct file){ .serial = ++x->serial, .sum = sum, .f = copy };
        copy = NULL;
    }
    set[way].used = ++x->clock;
    token = set[way].serial << 13 | (sum % SETS) << 3 | way;
    pthread_mutex_unlock(&x->lock);
    if (copy)
        fp__ext_file__free_unpacked(copy, NULL);
    return token;
}

Fp__ExtFile *cl_ext_file(struct cl_data *d, uint64_t token)
{
    struct cl_ext *x = d->ext;
    struct file *at = &x->file[token >> 3 & (SETS - 1)][token & (WAYS - 1)];
    Fp__ExtFile *f = NULL;
    uint64_t sum;

    pthread_mutex_lock(&x->lock);
    if (token && at->serial == token >> 13) {
        at->used = ++x->clock;
        f = copy_of(at->f, &sum);
    }
    pthread_mutex_unlock(&x->lock);
    return f;
}

const char *cl_ext_name(struct cl_data *d, uint64_t token, char *buf, size_t len)
{
    Fp__ExtFile *f = cl_ext_file(d, token);

    if (f)
        snprintf(buf, len, "%s/%.*s", f->root, (int)f->path.len, (const char *)f->path.data);
    else
        snprintf(buf, len, "a target");
    if (f)
        fp__ext_file__free_unpacked(f, NULL);
    return buf;
}

/* -------------------------------------------------------------- whom to ask */

static bool is_well(struct cl_bnf *b)
{
    int state = atomic_load(&b->state);

    return state == FP__BNF_STATE__BNF_OK || state == FP__BNF_STATE__BNF_FULL;
}

/* Of this node first, then the others in an order that is each chunk's own. not: asked already; may be NULL. */
static struct cl_bnf *choose(struct cl_data *d, uint64_t chunk, const struct cl_bnf *not)
{
    struct cl_bnf *b, *local = NULL, *other = NULL;
    uint64_t best = 0;

    pthread_mutex_lock(&d->bnf_lock);
    b = d->bnfs;
    pthread_mutex_unlock(&d->bnf_lock);
    for (; b; b = b->next) {
        uint64_t key = (chunk * 0x9E3779B97F4A7C15u ^ b->id) * 0xD6E8FEB86659FD93u | 1;

        if (b == not || !is_well(b))
            continue;
        if (atomic_load(&b->prefers_local))
            local = local ? local : b;
        else if (key > best) {
            best = key;
            other = b;
        }
    }
    return local ? local : other;
}

/* -------------------------------------------------------------- fetching */

static void fill(Fp__Fetch *q, const struct cl_chunk_ref *ref, Fp__ExtFile *f, bool want_payload)
{
    q->chunk = ref->id;
    q->len = ref->len_bytes;
    q->sum = ref->sum;
    q->file = f;
    q->off = ref->ext_off;
    q->want_payload = want_payload;
}

/* The chunk's bytes are in rx: those that are wanted go to their pages. */
static int take_payload(const struct cl_chunk_ref *ref, const Fp__FetchReply *r, const struct cl_rcall *c, uint32_t from, uint32_t to, uint8_t **pages)
{
    uint32_t n = fp_sum_nblocks(ref->len_bytes);
    const uint8_t *rx = c->rx;

    if (c->rx_len_bytes != ref->len_bytes || r->n_block_sums != n || fp_sum_chunk(r->block_sums, n, ref->len_bytes) != ref->sum)
        return FP_ECHECKSUM;
    for (uint32_t i = from; i <= to; i++) {
        uint32_t left = ref->len_bytes - i * CL_PAGE_BYTES, len = left < CL_PAGE_BYTES ? left : CL_PAGE_BYTES;
        uint64_t sum;

        memcpy(pages[i - from], rx + (size_t)i * CL_PAGE_BYTES, len);
        fp_sum_blocks(pages[i - from], len, &sum);
        if (sum != r->block_sums[i])
            return FP_ECHECKSUM;
    }
    return 0;
}

static int ask(struct cl_data *d, struct cl_bnf *b, const struct cl_chunk_ref *ref, Fp__ExtFile *f, uint32_t from, uint32_t to, uint8_t **pages, uint32_t *bnf)
{
    Fp__Fetch q = FP__FETCH__INIT;
    struct cl_rcall c = { .bnf = b, .type = FP__MSG_TYPE__MSG_FETCH, .msg = &q.base, .timeout_ms = d->m->opt.io_timeout_ms / TRIED };
    ProtobufCMessage *m = NULL;
    int rc;

    fill(&q, ref, f, true);
    c.rx = malloc(ref->len_bytes);
    c.rx_cap_bytes = ref->len_bytes;
    if (!c.rx)
        return -ENOMEM;
    rc = cl_bnf_remote_call_sync(&c, &m);
    if (rc == 0) {
        const Fp__FetchReply *r = (const Fp__FetchReply *)m;

        *bnf = r->stored ? b->id : 0;
        if (!r->stored)
            rc = take_payload(ref, r, &c, from, to, pages);
    }
    if (m)
        protobuf_c_message_free_unpacked(m, NULL);
    free(c.rx);
    return rc;
}

static bool is_final(int rc)
{
    return rc == -ENOENT || rc == -ESTALE || rc == FP_ECHECKSUM || rc == -ENOMEM;
}

int cl_ext_fetch(struct cl_data *d, const struct cl_chunk_ref *ref, uint32_t from, uint32_t to, uint8_t **pages, uint32_t *bnf)
{
    Fp__ExtFile *f = cl_ext_file(d, ref->ext);
    struct cl_bnf *b = NULL;
    int rc = CL_ETARGET;

    *bnf = 0;
    if (!f)
        return FP_ECHUNK_MISSING; /* the map will tell it again */
    for (unsigned i = 0; i < TRIED && rc < 0 && !is_final(rc); i++) {
        b = choose(d, ref->id, b);
        if (!b)
            break;
        rc = ask(d, b, ref, f, from, to, pages, bnf);
        if (rc < 0)
            FP_LOG_EVERY(1000, FP_LOG_WARN, "benefactor %u can't fetch %s/%.*s, bytes %llu+%u: %s", b->id, f->root, (int)f->path.len, (const char *)f->path.data,
                         (unsigned long long)ref->ext_off, ref->len_bytes, fp_strerror(rc));
    }
    fp__ext_file__free_unpacked(f, NULL);
    if (rc == -ENOENT || rc == -ESTALE)
        return FP_ECHUNK_MISSING;
    return rc == 0 || is_final(rc) ? rc : CL_ETARGET;
}

/* -------------------------------------------------------------- ahead */

struct ahead {
    struct cl_rcall call;          /* first */
    struct cl_ext *x;
    Fp__Fetch q;
    Fp__ExtFile *f;
};

static void ahead_done(struct cl_rcall *c, int status, const ProtobufCMessage *reply)
{
    struct ahead *a = (struct ahead *)c;

    (void)status;
    (void)reply; /* a failure is the reader's to find */
    atomic_fetch_sub(&a->x->ahead, 1);
    fp__ext_file__free_unpacked(a->f, NULL);
    free(a);
}

void cl_ext_fetch_ahead(struct cl_data *d, const struct cl_chunk_ref *ref)
{
    struct cl_bnf *b = choose(d, ref->id, NULL);
    struct ahead *a;

    if (!b || atomic_load(&d->ext->ahead) >= AHEAD_MAX)
        return;
    a = calloc(1, sizeof(*a));
    if (a)
        a->f = cl_ext_file(d, ref->ext);
    if (!a || !a->f) {
        free(a);
        return;
    }
    atomic_fetch_add(&d->ext->ahead, 1);
    a->x = d->ext;
    fp__fetch__init(&a->q);
    fill(&a->q, ref, a->f, false);
    a->call = (struct cl_rcall){ .bnf = b, .type = FP__MSG_TYPE__MSG_FETCH, .msg = &a->q.base, .timeout_ms = d->m->opt.io_timeout_ms / TRIED, .done = ahead_done };
    cl_bnf_remote_call(&a->call);
}
