/*
 * Aux-apps for the tests of the data path (see cl_fake_aux.h). Two coders: "delta" makes runs of equal differences short, which the tests' patterns are full
 * of, "mask" inverts and is longer by a head. Known chunks are those that cl_aux_stored told of, with a copy of their data.
 */
#include "tests/unit/cl_fake_aux.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/data/datasum.h"
#include "client/data/pool.h"
#include "fp/envelope.h"
#include "fp/record.h"
#include "tests/unit/cl_rand.h"
#include "tests/unit/cl_world.h"

#define KNOWN 64u
#define PENDING 64u
#define MASK_HEAD 100u
#define WORKERS 3u
#define PROBE 24u /* bytes that must be equal before the rest is looked at */

bool __wrap_cl_aux_chunks(const struct cl_mount *m);
bool __wrap_cl_aux_may_pass_over(const struct cl_mount *m);
enum cl_aux_over __wrap_cl_aux_passes_over(struct cl_mount *m, uint64_t file_off, uint32_t len_bytes, bool no_zeros);
void __wrap_cl_aux_submit(struct cl_mount *m, struct cl_aux_job *job);
void __wrap_cl_aux_job_fini(struct cl_mount *m, struct cl_aux_job *job);
void __wrap_cl_aux_stored(struct cl_mount *m, const struct cl_aux_tickets *t, uint64_t chunk, uint32_t off, uint32_t len_bytes);
int __wrap_cl_aux_decode(struct cl_mount *m, const struct fp_auxw_stage *stages, uint32_t nstages, const struct iovec *coded, int ncoded,
                         const struct iovec *out, int nout, uint64_t deadline_ms);
bool __wrap_cl_aux_held(struct cl_mount *m, uint64_t chunk, struct cl_chunk_ref *out);
void __wrap_cl_aux_lied(struct cl_mount *m, uint32_t app, const char *what);
bool __wrap_cl_aux_hides(struct cl_mount *m, const struct fp_auxw_stage *stages, uint32_t nstages);
bool __wrap_cl_aux_pins_good(struct cl_mount *m, const struct cl_aux_pins *pins);
bool __wrap_cl_aux_pins_check(struct cl_mount *m, struct cl_aux_pins **pins);
void __wrap_cl_aux_pins_put(struct cl_mount *m, struct cl_aux_pins *pins);
void __wrap_cl_aux_session_new(struct cl_mount *m);
bool __wrap_cl_aux_release_holds(struct cl_mount *m);

struct fake_aux fake_aux;

struct cl_aux_pins {
    unsigned doubt;
    uint32_t n;
    uint64_t chunk[FP_AUXW_PIECES_MAX];
};

struct data {
    uint64_t id; /* of the chunk, or the ticket */
    uint8_t *bytes;
    uint32_t len;
};

struct queued {
    struct queued *next;
    struct cl_aux_job *job;
};

struct result {
    struct fp_auxw_piece piece[FP_AUXW_PIECES_MAX];
    struct fp_auxw_stage stage[2];
    uint8_t *coded;
    uint32_t note;
    uint64_t key;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static struct queued *queue;
static bool stop;
static pthread_t worker[WORKERS];
static struct data known[KNOWN], pending[PENDING];
static uint32_t nknown, npending;
static uint64_t tickets, seed_of;
static atomic_uint alive; /* results not given back */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

/* -------------------------------------------------------------- coders */

/* Pairs of difference and count; 0: it does not get shorter. */
static uint32_t delta(const uint8_t *in, uint32_t len, uint8_t *out)
{
    uint32_t n = 0;
    uint8_t before = 0;

    for (uint32_t i = 0; i < len;) {
        uint8_t d = (uint8_t)(in[i] - before);
        uint32_t run = 0;

        while (i < len && run < 255 && (uint8_t)(in[i] - before) == d) {
            before = in[i++];
            run++;
        }
        if (n + 2 >= len)
            return 0;
        out[n++] = d;
        out[n++] = (uint8_t)run;
    }
    return n;
}

static int undo_delta(const uint8_t *in, uint32_t len, uint8_t *out, uint32_t out_len)
{
    uint32_t n = 0;
    uint8_t before = 0;

    for (uint32_t i = 0; i + 1 < len; i += 2)
        for (uint32_t run = in[i + 1]; run > 0; run--) {
            if (n == out_len)
                return -EILSEQ;
            before = (uint8_t)(before + in[i]);
            out[n++] = before;
        }
    return n == out_len ? 0 : -EILSEQ;
}

static uint32_t mask(const uint8_t *in, uint32_t len, uint8_t *out)
{
    memset(out, 'M', MASK_HEAD);
    for (uint32_t i = 0; i < len; i++)
        out[MASK_HEAD + i] = in[i] ^ 0x5a;
    return MASK_HEAD + len;
}

static int undo_mask(const uint8_t *in, uint32_t len, uint8_t *out, uint32_t out_len)
{
    if (len != out_len + MASK_HEAD || in[0] != 'M')
        return -EILSEQ;
    for (uint32_t i = 0; i < out_len; i++)
        out[i] = in[MASK_HEAD + i] ^ 0x5a;
    return 0;
}

static int undo(const struct fp_auxw_stage *s, uint32_t n, const uint8_t *coded, uint32_t len, uint8_t *out)
{
    uint8_t *in = malloc(len + 1), *next;
    int rc = 0;

    memcpy(in, coded, len);
    while (rc == 0 && n-- > 0) {
        next = malloc(s[n].in_bytes + 1);
        rc = len != s[n].out_bytes ? -EILSEQ
             : strcmp(s[n].name, "delta") == 0 ? undo_delta(in, len, next, s[n].in_bytes)
             : strcmp(s[n].name, "mask") == 0 ? undo_mask(in, len, next, s[n].in_bytes) : -EIO;
        len = s[n].in_bytes;
        free(in);
        in = next;
    }
    if (rc == 0)
        memcpy(out, in, len);
    free(in);
    return rc;
}

static int decode_stored(const uint8_t *stored, uint32_t len, uint8_t *out, uint32_t data_len)
{
    struct cl_datasum x;
    struct fp_envelope e;
    uint64_t sum = 0;
    int rc = fp_envelope_decode(stored, len, len, &e);

    if (rc == 0 && e.data_bytes != data_len)
        rc = -EILSEQ;
    if (rc == 0)
        rc = undo(e.stage, e.nstages, stored + FP_ENVELOPE_BYTES(e.nstages), e.coded_bytes, out);
    cl_datasum_begin(&x, e.keyed);
    cl_datasum_add(&x, out, data_len);
    if (rc == 0)
        rc = cl_datasum_end(&x, &world_keyedsum, stored + FP_ENVELOPE_BYTES(e.nstages), e.coded_bytes, &sum);
    fake_aux.envelope = e;
    return rc == 0 && sum != e.data_sum ? -EILSEQ : rc;
}

static void add_stage(struct cl_aux_job *job, struct result *r, const char *name, const uint8_t *fresh)
{
    uint32_t in = job->nstages ? job->coded_bytes : job->new_bytes;
    uint8_t *out = malloc(in + MASK_HEAD + 1);
    uint32_t n = (name[0] == 'd' ? delta : mask)(r->coded ? r->coded : fresh, in, out);

    if (n == 0) {
        free(out);
        return;
    }
    strcpy(r->stage[job->nstages].name, name);
    r->stage[job->nstages].in_bytes = in;
    r->stage[job->nstages++].out_bytes = n;
    free(r->coded);
    r->coded = out;
    job->coded_bytes = n;
}

/* -------------------------------------------------------------- pieces */

static uint32_t equal_run(const uint8_t *a, uint32_t na, const uint8_t *b, uint32_t nb)
{
    uint32_t n = 0, most = na < nb ? na : nb;

    while (n < most && a[n] == b[n])
        n++;
    return n;
}

static uint32_t zero_run(const uint8_t *p, uint32_t n)
{
    uint32_t i = 0;

    while (i < n && p[i] == 0)
        i++;
    return i;
}

/* Where data[0..n) begins in hay, and how far it goes on there. */
static uint32_t found_in(const uint8_t *hay, uint32_t hay_len, const uint8_t *p, uint32_t n, uint32_t *at)
{
    const uint8_t *q = hay && n >= PROBE && hay_len >= PROBE ? memmem(hay, hay_len, p, PROBE) : NULL;

    if (!q)
        return 0;
    *at = (uint32_t)(q - hay);
    return equal_run(p, n, q, hay_len - *at);
}

static bool pin(struct cl_aux_job *job, uint64_t chunk)
{
    struct cl_aux_pins *p = job->pins;

    if (!world_mgr_hold(chunk))
        return false;
    if (!p) {
        p = job->pins = calloc(1, sizeof *p);
        p->doubt = atomic_load(&fake_aux.doubt);
        atomic_fetch_add(&fake_aux.pins, 1);
    }
    p->chunk[p->n++] = chunk;
    return true;
}

/* A true piece of p[0..n) that is not new; lock held. Its length, or 0. */
static uint32_t duplicate(struct rnd *r, struct cl_aux_job *job, const uint8_t *p, uint32_t n, const uint8_t *fresh, uint32_t nfresh,
                          struct fp_auxw_piece *out)
{
    uint32_t len = zero_run(p, n), which = rnd_below(r, 3);

    *out = (struct fp_auxw_piece){.kind = FP_AUXW_PIECE_ZERO};
    if (len >= fake_aux.piece_min && len > 0)
        return len;
    if (which == 0 || fake_aux.always || job->no_stored) {
        *out = (struct fp_auxw_piece){.kind = FP_AUXW_PIECE_SAME};
        len = found_in(fresh, nfresh, p, n, &out->at);
        if (len >= fake_aux.piece_min && len > 0)
            return len;
    }
    for (uint32_t i = 0; i < nknown && (which == 1 || fake_aux.always) && !job->no_stored; i++) {
        const struct data *k = &known[fake_aux.always ? i : rnd_below(r, nknown)];

        *out = (struct fp_auxw_piece){.kind = FP_AUXW_PIECE_STORED, .chunk = k->id};
        len = found_in(k->bytes, k->len, p, n, &out->at);
        if (len >= fake_aux.piece_min && len > 0 && pin(job, k->id))
            return len;
    }
    return 0;
}

static void count(uint32_t kind)
{
    if (kind == FP_AUXW_PIECE_ZERO)
        atomic_fetch_add(&fake_aux.zero_pieces, 1);
    if (kind == FP_AUXW_PIECE_SAME)
        atomic_fetch_add(&fake_aux.same_pieces, 1);
    if (kind == FP_AUXW_PIECE_STORED)
        atomic_fetch_add(&fake_aux.stored_pieces, 1);
}

static uint32_t new_len(struct rnd *r, uint32_t n)
{
    uint32_t len = fake_aux.new_every ? fake_aux.new_every : fake_aux.always ? 4096 : 1 + rnd_below(r, rnd_below(r, 2) ? 300 : 50000);

    return len < n ? len : n;
}

/* fresh gets the new data. */
static void find_pieces(struct rnd *r, struct cl_aux_job *job, struct result *res, const uint8_t *d, uint8_t *fresh)
{
    uint32_t at = 0, n = 0, nfresh = 0;
    bool take_new = true;

    while (at < job->len_bytes) {
        struct fp_auxw_piece p = {0};
        uint32_t left = job->len_bytes - at, len = 0;

        take_new = fake_aux.new_every ? !take_new : !fake_aux.always && rnd_below(r, 2);
        if (n < FP_AUXW_PIECES_MAX - 1 && !take_new)
            len = duplicate(r, job, d + at, left, fresh, nfresh, &p);
        if (fake_aux.new_every && len > fake_aux.new_every)
            len = fake_aux.new_every;
        if (len > 0 && !fake_aux.always && rnd_below(r, 3) == 0)
            len = 1 + rnd_below(r, len);
        if (len == 0) {
            p = (struct fp_auxw_piece){.kind = FP_AUXW_PIECE_NEW, .at = nfresh};
            len = n == FP_AUXW_PIECES_MAX - 1 ? left : new_len(r, left);
            memcpy(fresh + nfresh, d + at, len);
            nfresh += len;
        }
        p.off = at;
        p.len_bytes = len;
        count(p.kind);
        res->piece[n++] = p;
        at += len;
    }
    job->npieces = n;
    job->pieces = res->piece;
    job->new_bytes = nfresh;
}

/* The second half of the window is said to be what it is not. */
static void lie(struct cl_aux_job *job, struct result *res)
{
    uint32_t half = job->len_bytes / 2;

    res->piece[0] = (struct fp_auxw_piece){.kind = FP_AUXW_PIECE_NEW, .app = 2, .len_bytes = half};
    res->piece[1] = (struct fp_auxw_piece){.kind = (uint16_t)fake_aux.lie_kind, .app = 3, .off = half, .len_bytes = job->len_bytes - half};
    if (fake_aux.lie_kind == FP_AUXW_PIECE_STORED) {
        res->piece[1].chunk = fake_aux.lie_chunk;
        res->piece[1].doubted = 1;
        res->piece[1].at = half;
    }
    atomic_fetch_add(&fake_aux.nothing, 1); /* is not stored, if it is found */
    job->npieces = 2;
    job->pieces = res->piece;
    job->new_bytes = half;
}

/* -------------------------------------------------------------- jobs */

static void remember(struct data *ring, uint32_t cap, uint32_t *n, uint64_t id, const uint8_t *bytes, uint32_t len)
{
    struct data *x = &ring[id % cap];

    if (*n < cap)
        x = &ring[(*n)++];
    free(x->bytes);
    *x = (struct data){.id = id, .bytes = malloc(len), .len = len};
    memcpy(x->bytes, bytes, len);
}

static void note(struct cl_aux_job *job, struct result *r, const uint8_t *fresh)
{
    r->note = job->new_bytes;
    r->key = job->new_bytes;
    job->note = (const uint8_t *)&r->note;
    job->note_bytes = sizeof r->note;
    job->keys = &r->key;
    job->nkeys = 1;
    job->tickets.ticket[0] = ++tickets;
    remember(pending, PENDING, &npending, tickets, fresh, job->new_bytes);
}

static uint8_t *flat(const struct cl_aux_job *job)
{
    uint8_t *d = malloc(job->len_bytes);

    for (uint32_t i = 0; i < job->npages; i++) {
        uint32_t at = i * CL_PAGE_BYTES, n = job->len_bytes - at;

        memcpy(d + at, job->pages[i], n < CL_PAGE_BYTES ? n : CL_PAGE_BYTES);
    }
    return d;
}

static void work(struct rnd *rnd, struct cl_aux_job *job)
{
    struct result *r = calloc(1, sizeof *r);
    uint8_t *d = flat(job), *fresh = malloc(job->len_bytes);
    uint32_t how;

    WORLD_CHECK(job->npages == (job->len_bytes + CL_PAGE_BYTES - 1) / CL_PAGE_BYTES && job->len_bytes > 0);
    job->priv = r;
    job->new_bytes = job->len_bytes;
    memcpy(fresh, d, job->len_bytes);
    pthread_mutex_lock(&lock);
    how = rnd_below(rnd, 4);
    if (!job->no_pieces && atomic_load(&fake_aux.lie) > 0 && atomic_fetch_sub(&fake_aux.lie, 1) > 0)
        lie(job, r);
    else if (!job->no_pieces && fake_aux.pieces && (fake_aux.always || rnd_below(rnd, 4)))
        find_pieces(rnd, job, r, d, fresh);
    if (job->new_bytes > 0 && (fake_aux.always || rnd_below(rnd, 2)))
        note(job, r, fresh);
    pthread_mutex_unlock(&lock);
    if (fake_aux.codes && job->new_bytes > 0) {
        if ((how & 1 || fake_aux.always) && !fake_aux.mask_only)
            add_stage(job, r, "delta", fresh);
        if (how & 2 || fake_aux.mask_only)
            add_stage(job, r, "mask", fresh);
    }
    job->stages = r->stage;
    job->bytes = job->nstages ? r->coded : NULL;
    job->status = fake_aux.status;
    atomic_fetch_add(&fake_aux.coded, job->nstages > 0);
    atomic_fetch_add(&fake_aux.nothing, job->new_bytes == 0);
    free(d);
    free(fresh);
}

static void take_time(void)
{
    while (fake_aux.hold)
        usleep(1000);
    world_sleep_up_to(fake_aux.delay_us);
    if (fake_aux.each_us == 0)
        return;
    pthread_mutex_lock(&turn);
    usleep((useconds_t)fake_aux.each_us);
    pthread_mutex_unlock(&turn);
}

static void *work_thread(void *arg)
{
    struct rnd r;

    rnd_init(&r, seed_of, 3000 + (uintptr_t)arg);
    pthread_mutex_lock(&lock);
    while (queue || !stop) {
        struct queued *q = queue;

        if (!q) {
            pthread_cond_wait(&cond, &lock);
            continue;
        }
        queue = q->next;
        pthread_mutex_unlock(&lock);
        take_time();
        work(&r, q->job);
        if (fake_aux.doubts && q->job->pins)
            atomic_fetch_add(&fake_aux.doubt, 1);
        q->job->done(q->job);
        free(q);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

bool __wrap_cl_aux_chunks(const struct cl_mount *m)
{
    (void)m;
    return fake_aux.on;
}

bool __wrap_cl_aux_may_pass_over(const struct cl_mount *m)
{
    (void)m;
    return fake_aux.rest;
}

enum cl_aux_over __wrap_cl_aux_passes_over(struct cl_mount *m, uint64_t file_off, uint32_t len_bytes, bool no_zeros)
{
    (void)m;
    WORLD_CHECK(len_bytes > 0);
    if (!fake_aux.rest || (!no_zeros && (file_off / 65536 + atomic_fetch_add(&fake_aux.rest_asked, 1)) % 3 == 0))
        return CL_AUX_COMES;
    if (fake_aux.rest_zeros && !no_zeros) {
        atomic_fetch_add(&fake_aux.asked_zeros, 1);
        return CL_AUX_OVER_BUT_ZEROS;
    }
    atomic_fetch_add(&fake_aux.passed, 1);
    return CL_AUX_OVER;
}

/* One in eight is done before this returns, with the caller's locks held. */
void __wrap_cl_aux_submit(struct cl_mount *m, struct cl_aux_job *job)
{
    static struct rnd r;
    struct queued *q = calloc(1, sizeof *q);
    bool now;

    (void)m;
    WORLD_CHECK(job->done && job->status == 0 && !job->priv);
    atomic_fetch_add(&fake_aux.again, job->no_stored);
    atomic_fetch_add(&fake_aux.jobs, 1);
    atomic_fetch_add(&alive, 1);
    fake_aux.last_whole = job->whole;
    fake_aux.last_off = job->file_off;
    fake_aux.last_serial = job->file_serial;
    q->job = job;
    pthread_mutex_lock(&lock);
    if (!r.s)
        rnd_init(&r, seed_of, 2999);
    now = rnd_below(&r, 8) == 0 && !fake_aux.hold && fake_aux.each_us == 0;
    if (!now) {
        struct queued **p = &queue;

        while (*p && rnd_below(&r, 4)) /* somewhere */
            p = &(*p)->next;
        q->next = *p;
        *p = q;
        pthread_cond_signal(&cond);
    }
    pthread_mutex_unlock(&lock);
    if (now) {
        struct rnd mine;

        rnd_init(&mine, seed_of, atomic_load(&fake_aux.jobs));
        work(&mine, job);
        if (fake_aux.doubts && job->pins)
            atomic_fetch_add(&fake_aux.doubt, 1);
        job->done(job);
        free(q);
    }
}

void __wrap_cl_aux_job_fini(struct cl_mount *m, struct cl_aux_job *job)
{
    struct result *r = job->priv;

    WORLD_CHECK(r); /* once */
    __wrap_cl_aux_pins_put(m, job->pins);
    job->pins = NULL;
    free(r->coded);
    memset(r, 0xee, sizeof *r);
    free(r);
    job->priv = NULL;
    atomic_fetch_sub(&alive, 1);
}

void __wrap_cl_aux_stored(struct cl_mount *m, const struct cl_aux_tickets *t, uint64_t chunk, uint32_t off, uint32_t len_bytes)
{
    (void)m;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < npending && t->ticket[0]; i++)
        if (pending[i].bytes && pending[i].id == t->ticket[0]) {
            WORLD_CHECK(off == 0 && len_bytes == pending[i].len);
            remember(known, KNOWN, &nknown, chunk, pending[i].bytes, len_bytes);
        }
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&fake_aux.told, 1);
}

int __wrap_cl_aux_decode(struct cl_mount *m, const struct fp_auxw_stage *stages, uint32_t nstages, const struct iovec *coded, int ncoded,
                         const struct iovec *out, int nout, uint64_t deadline_ms)
{
    uint32_t now = atomic_fetch_add(&fake_aux.decoding, 1) + 1, at = 0;
    uint8_t *d = malloc(stages[0].in_bytes);
    int rc = fake_aux.decode_rc;

    (void)m;
    WORLD_CHECK(ncoded == 1 && deadline_ms > 0);
    if (now > fake_aux.decoding_max)
        fake_aux.decoding_max = now;
    atomic_fetch_add(&fake_aux.decoded, 1);
    world_sleep_up_to(fake_aux.delay_us);
    if (rc == 0)
        rc = undo(stages, nstages, coded[0].iov_base, (uint32_t)coded[0].iov_len, d);
    if (rc == 0 && fake_aux.decode_wrong)
        d[0] ^= 1;
    for (int i = 0; rc == 0 && i < nout; i++) {
        memcpy(out[i].iov_base, d + at, out[i].iov_len);
        at += (uint32_t)out[i].iov_len;
    }
    WORLD_CHECK(rc < 0 || at == stages[0].in_bytes);
    free(d);
    atomic_fetch_sub(&fake_aux.decoding, 1);
    return rc;
}

bool __wrap_cl_aux_held(struct cl_mount *m, uint64_t chunk, struct cl_chunk_ref *out)
{
    (void)m;
    *out = fake_aux.lie_ref;
    return out->id == chunk && out->len_bytes > 0;
}

void __wrap_cl_aux_lied(struct cl_mount *m, uint32_t app, const char *what)
{
    (void)m;
    WORLD_CHECK(app == 3 && what);
    atomic_fetch_add(&fake_aux.lied, 1);
}

bool __wrap_cl_aux_hides(struct cl_mount *m, const struct fp_auxw_stage *stages, uint32_t nstages)
{
    (void)m;
    return nstages > 0 && stages && fake_aux.hides;
}

bool __wrap_cl_aux_pins_good(struct cl_mount *m, const struct cl_aux_pins *pins)
{
    (void)m;
    return !pins || pins->doubt == atomic_load(&fake_aux.doubt);
}

bool __wrap_cl_aux_pins_check(struct cl_mount *m, struct cl_aux_pins **pins)
{
    unsigned doubt = atomic_load(&fake_aux.doubt);

    if (__wrap_cl_aux_pins_good(m, *pins))
        return true;
    if (atomic_load(&fake_aux.distrust))
        return false;
    (*pins)->doubt = doubt;
    return true;
}

void __wrap_cl_aux_pins_put(struct cl_mount *m, struct cl_aux_pins *pins)
{
    (void)m;
    if (!pins)
        return;
    for (uint32_t i = 0; i < pins->n; i++)
        world_mgr_release(pins->chunk[i]);
    free(pins);
    atomic_fetch_sub(&fake_aux.pins, 1);
}

void __wrap_cl_aux_session_new(struct cl_mount *m)
{
    (void)m;
}

bool __wrap_cl_aux_release_holds(struct cl_mount *m)
{
    (void)m;
    return false;
}

/* -------------------------------------------------------------- for the tests */

void fake_aux_start(uint64_t seed)
{
    memset(&fake_aux, 0, sizeof fake_aux);
    fake_aux.on = true;
    seed_of = seed;
    stop = false;
    tickets = 0;
    world_decode = decode_stored;
    for (uintptr_t i = 0; i < WORKERS; i++)
        WORLD_CHECK(pthread_create(&worker[i], NULL, work_thread, (void *)i) == 0);
}

void fake_aux_stop(void)
{
    pthread_mutex_lock(&lock);
    stop = true;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < WORKERS; i++)
        pthread_join(worker[i], NULL);
    WORLD_CHECK(alive == 0 && fake_aux.pins == 0);
    for (unsigned i = 0; i < KNOWN; i++)
        free(known[i].bytes);
    for (unsigned i = 0; i < PENDING; i++)
        free(pending[i].bytes);
    memset(known, 0, sizeof known);
    memset(pending, 0, sizeof pending);
    nknown = npending = 0;
    fake_aux.on = false;
    world_decode = NULL;
}
