/*
 * Callbacks of aux-apps: what stands around each of them, what chunk_out may do to a chunk, and what becomes of it.
 *
 * On worker threads (chunk_out, write), decode threads (chunk_in), event threads and the control thread (the rest). The status page says before
 * each callback whose it is and since when, so that fp-mount knows whom to blame for a crash and sees a call that does not end.
 *
 * The two buffers of a job are used by turns: input in the pool's pages -> a, a -> b, b -> a. Stages read them through a read-only mapping. What
 * is new after pieces is packed only when a later stage is there to see it: fp-mount stores it from its own pages.
 *
 * A verdict that can't be carried out (a replacement that does not come back, too many pieces) never costs data: the chunk goes on as it was. But for an
 * aux-app that is required: then its write fails. `ran` says of whom the chunk was had; fp-mount compares it with whom it must have been.
 */
#include "auxapps/host/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/clock.h"

#define WHY_BYTES 160

static struct aux_call *own(struct fp_aux_call *call)
{
    return (struct aux_call *)(void *)call;
}

/* -------------------------------------------------------------- begin and end */

void aux_call_begin(struct aux_call *c, struct aux_app *a, uint32_t deadline_ms, bool by_progress)
{
    struct aux_thread *t = aux_self;

    memset(c, 0, sizeof(*c));
    c->handle.services = &aux_services;
    c->app = a;
    c->thread = t;
    c->by_progress = by_progress;
    c->since_ns = fp_now_ns();
    c->begun_ns = c->since_ns;
    c->deadline_ns = deadline_ms == 0 ? 0 : c->since_ns + deadline_ms * 1000000ull;
    t->call = c;
    if (t->slot) {
        atomic_store_explicit(&t->slot->deadline_ms, deadline_ms, memory_order_relaxed);
        atomic_store_explicit(&t->slot->since_ns, c->since_ns, memory_order_relaxed);
        atomic_store_explicit(&t->slot->in_call, a->index + 1, memory_order_release);
    }
}

uint64_t aux_call_end(struct aux_call *c)
{
    struct aux_thread *t = c->thread;
    uint64_t ns = fp_now_ns() - c->begun_ns;

    if (t->slot) {
        atomic_store_explicit(&t->slot->in_call, 0, memory_order_release);
        atomic_fetch_add_explicit(&t->slot->busy_ns, ns - c->blocked_ns, memory_order_relaxed);
    }
    t->call = NULL;
    if (c->app->stats)
        atomic_fetch_add_explicit(&c->app->stats->busy_ns, ns - c->blocked_ns, memory_order_relaxed);
    return ns;
}

bool aux_call_over(const struct aux_call *c)
{
    if (atomic_load_explicit(&c->app->h->stopping, memory_order_relaxed))
        return true;
    if (c->cancelled && atomic_load_explicit(c->cancelled, memory_order_relaxed))
        return true;
    return c->deadline_ns != 0 && !c->by_progress && fp_now_ns() >= c->deadline_ns;
}

static bool sv_cancelled(struct fp_aux_call *call)
{
    return aux_call_over(own(call));
}

static int64_t sv_left_ms(struct fp_aux_call *call)
{
    const struct aux_call *c = own(call);

    if (c->deadline_ns == 0 || c->by_progress)
        return INT64_MAX;
    uint64_t now = fp_now_ns();

    return now >= c->deadline_ns ? 0 : (int64_t)((c->deadline_ns - now) / 1000000u);
}

/* -------------------------------------------------------------- services of chunk_out */

static const uint8_t *sv_flat(struct fp_aux_call *call, const struct fp_aux_chunk *chunk)
{
    struct aux_call *c = own(call);
    struct aux_job *j = c->job;

    if (!j || chunk != c->chunk)
        return NULL;
    if (chunk->nparts == 1)
        return chunk->parts[0].data;
    if (c->flat)
        return c->flat;
    /* Several parts are pages of the pool: then a is for the output, and b is free. */
    uint8_t *to = j->out[AUX_IN_B];

    for (uint32_t i = 0; i < chunk->nparts; i++) {
        memcpy(to, chunk->parts[i].data, chunk->parts[i].len_bytes);
        to += chunk->parts[i].len_bytes;
    }
    c->flat = j->in[AUX_IN_B];
    return c->flat;
}

static uint8_t *sv_out_buffer(struct fp_aux_call *call, uint32_t *cap_bytes)
{
    struct aux_call *c = own(call);
    struct aux_job *j = c->job;

    if (!j)
        return NULL;
    c->out = j->where == AUX_IN_A ? AUX_IN_B : AUX_IN_A;
    if (cap_bytes)
        *cap_bytes = j->cur_bytes + FP_AUX_EXPAND_MAX_BYTES;
    if (c->app->plugin->from_dir)
        return j->out[c->out];
    if (!c->fenced)
        c->fenced = aux_fence_buffer(&c->thread->fence, j->cur_bytes + FP_AUX_EXPAND_MAX_BYTES);
    return c->fenced;
}

static int sv_replace(struct fp_aux_call *call, uint32_t len_bytes)
{
    struct aux_call *c = own(call);
    struct aux_job *j = c->job;

    if (!j || !(c->app->plugin->app.flags & FP_AUX_CODES))
        return -ENOTSUP;
    if (c->out == AUX_IN_PAGES || c->replaced_bytes > 0 || len_bytes == 0)
        return -EINVAL;
    if (len_bytes > j->cur_bytes + FP_AUX_EXPAND_MAX_BYTES || len_bytes > j->new_bytes + FP_AUX_EXPAND_MAX_BYTES)
        return -EINVAL;
    c->replaced_bytes = len_bytes;
    return 0;
}

static int add_piece(struct fp_aux_call *call, uint32_t kind, uint32_t off, uint32_t len, uint32_t from, uint64_t chunk)
{
    struct aux_call *c = own(call);

    if (!c->job || c->job->nstages > 0)
        return -ENOTSUP;
    if (!c->pieces) {
        if (!c->thread->pieces)
            c->thread->pieces = malloc(sizeof(*c->thread->pieces));
        if (!c->thread->pieces)
            return -ENOMEM;
        c->pieces = c->thread->pieces;
        aux_pieces_init(c->pieces, c->job->cur_bytes, (uint8_t)c->app->index, atomic_load(&c->app->verify));
    }
    return aux_pieces_add(c->pieces, c->job->no_pieces ? FP_AUXW_PIECE_NEW : kind, off, len, from, chunk);
}

static int sv_piece_new(struct fp_aux_call *call, uint32_t off, uint32_t len)
{
    return add_piece(call, FP_AUXW_PIECE_NEW, off, len, 0, 0);
}

static int sv_piece_zero(struct fp_aux_call *call, uint32_t off, uint32_t len)
{
    return add_piece(call, FP_AUXW_PIECE_ZERO, off, len, 0, 0);
}

static int sv_piece_same(struct fp_aux_call *call, uint32_t off, uint32_t len, uint32_t earlier_off)
{
    return add_piece(call, FP_AUXW_PIECE_SAME, off, len, earlier_off, 0);
}

static int sv_piece_stored(struct fp_aux_call *call, uint32_t off, uint32_t len, struct fp_aux_place place)
{
    if (len > place.len_bytes)
        return -EINVAL;
    return add_piece(call, FP_AUXW_PIECE_STORED, off, len, place.off, place.chunk);
}

static int sv_note(struct fp_aux_call *call, const void *note, uint32_t len, const uint64_t *keys, uint32_t nkeys)
{
    struct aux_call *c = own(call);

    if (!c->job)
        return -ENOTSUP;
    if (len == 0 || len > FP_AUX_NOTE_MAX_BYTES || nkeys > FP_AUXW_KEYS_MAX)
        return -EINVAL;
    if (c->job->note || c->noted)
        return -EBUSY;
    c->note = malloc(len);
    c->keys = nkeys > 0 ? malloc(nkeys * sizeof(*keys)) : NULL;
    if (!c->note || (nkeys > 0 && !c->keys)) {
        free(c->note);
        free(c->keys);
        c->note = c->keys = NULL;
        return -ENOMEM;
    }
    memcpy(c->note, note, len);
    if (nkeys > 0)
        memcpy(c->keys, keys, nkeys * sizeof(*keys));
    c->note_bytes = len;
    c->nkeys = nkeys;
    c->noted = true;
    return 0;
}

static uint64_t sv_ticket(struct fp_aux_call *call)
{
    struct aux_call *c = own(call);

    if (c->job && c->ticket == 0)
        c->ticket = atomic_fetch_add(&c->app->next_ticket, 1);
    return c->ticket;
}

void aux_call_fill(struct fp_aux_services *s)
{
    s->cancelled = sv_cancelled;
    s->left_ms = sv_left_ms;
    s->flat = sv_flat;
    s->out_buffer = sv_out_buffer;
    s->replace = sv_replace;
    s->piece_new = sv_piece_new;
    s->piece_zero = sv_piece_zero;
    s->piece_same = sv_piece_same;
    s->piece_stored = sv_piece_stored;
    s->note = sv_note;
    s->ticket = sv_ticket;
}

/* -------------------------------------------------------------- chunk_in */

int aux_chunk_in(struct aux_app *a, _Atomic bool *cancelled, const uint8_t *in, uint32_t in_bytes, uint8_t *out, uint32_t out_bytes)
{
    struct aux_call c;

    if (!a->plugin->app.chunk_in)
        return -ENOTSUP;
    if (a->plugin->app.flags & FP_AUX_PARALLEL)
        pthread_rwlock_rdlock(&a->in_lock);
    else
        pthread_rwlock_wrlock(&a->in_lock);
    aux_call_begin(&c, a, atomic_load(&a->deadline_ms), false);
    c.cancelled = cancelled;
    uint8_t *to = a->plugin->from_dir ? out : aux_fence_buffer(&aux_self->fence, out_bytes);
    int rc = to ? a->plugin->app.chunk_in(a->state, (struct fp_aux_call *)&c, in, in_bytes, to, out_bytes) : -ENOMEM;

    aux_call_end(&c);
    pthread_rwlock_unlock(&a->in_lock);
    if (rc == 0 && to != out)
        memcpy(out, to, out_bytes);
    return rc > 0 ? -EILSEQ : rc;
}

static bool has_scratch(struct aux_thread *t, uint32_t bytes)
{
    if (t->scratch_bytes < bytes) {
        free(t->scratch);
        t->scratch = malloc(bytes);
        t->scratch_bytes = t->scratch ? bytes : 0;
    }
    return t->scratch_bytes >= bytes;
}

/* Does chunk_in make of what the stage wrote what it was given? There is scratch for it. */
static bool comes_back(struct aux_app *a, struct aux_job *j, enum aux_where out, uint32_t out_bytes)
{
    struct aux_thread *t = aux_self;
    uint32_t off = 0;

    memset(t->scratch, 0xa5, j->cur_bytes);
    if (aux_chunk_in(a, &j->cancelled, j->in[out], out_bytes, t->scratch, j->cur_bytes) != 0)
        return false;
    for (uint32_t i = 0; i < j->nparts; i++) {
        if (memcmp(t->scratch + off, j->parts[i].data, j->parts[i].len_bytes) != 0)
            return false;
        off += j->parts[i].len_bytes;
    }
    return true;
}

/* -------------------------------------------------------------- chunk_out */

static void forget_note(struct aux_job *j)
{
    free(j->note);
    free(j->keys);
    j->note = NULL;
    j->keys = NULL;
    j->note_bytes = j->nkeys = 0;
    memset(j->ticket, 0, sizeof(j->ticket));
}

static void set_data(struct aux_job *j, enum aux_where where, uint32_t len)
{
    j->where = where;
    j->cur_bytes = len;
    j->one = (struct fp_aux_part){.data = j->in[where], .len_bytes = len};
    j->parts = &j->one;
    j->nparts = 1;
}

/* What is new, one behind the other, for the stages that follow. p: of this stage, about what it was given. */
static void pack(struct aux_job *j, const struct aux_pieces *p)
{
    enum aux_where to = j->where == AUX_IN_A ? AUX_IN_B : AUX_IN_A;

    aux_pieces_pack(p, j->parts, j->nparts, j->out[to]);
    set_data(j, to, p->new_bytes);
}

/* What became of a verdict. LEFT_OUT: nothing is wrong, but the chunk is as it was before. FAILED, UNLUCKY (not its fault), NOT_UNDONE: why is filled. */
enum settled { DONE, LEFT_OUT, UNLUCKY, FAILED, NOT_UNDONE };

static enum settled take_replacement(struct aux_app *a, struct aux_job *j, struct aux_call *c, char why[WHY_BYTES])
{
    if (c->replaced_bytes == 0) {
        snprintf(why, WHY_BYTES, "chunk_out answered %d (replaced) without fp_aux_replace", FP_AUX_REPLACED);
        return FAILED;
    }
    if (j->nstages == FP_AUXW_STAGES_MAX) {
        snprintf(why, WHY_BYTES, "no more than %u aux-apps of a chain can replace data", FP_AUXW_STAGES_MAX);
        return UNLUCKY;
    }
    if (c->fenced)
        memcpy(j->out[c->out], c->fenced, c->replaced_bytes);
    bool verify = atomic_load(&a->verify);

    if (verify && !has_scratch(c->thread, j->cur_bytes)) {
        snprintf(why, WHY_BYTES, "out of memory");
        return UNLUCKY;
    }
    if (verify && !comes_back(a, j, c->out, c->replaced_bytes)) {
        snprintf(why, WHY_BYTES, "what chunk_out wrote is not undone by chunk_in");
        return NOT_UNDONE;
    }
    struct fp_auxw_stage *s = &j->stage[j->nstages++];

    memcpy(s->name, a->plugin->app.name, strlen(a->plugin->app.name) + 1);
    s->in_bytes = j->cur_bytes;
    s->out_bytes = c->replaced_bytes;
    set_data(j, c->out, c->replaced_bytes);
    return DONE;
}

static bool refers(const struct aux_pieces *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->v[i].kind == FP_AUXW_PIECE_STORED)
            return true;
    return false;
}

/* Pieces of an earlier aux-app, and these about what that one left: in `whole`. */
static enum settled compose(struct aux_app *a, struct aux_job *j, struct aux_call *c, char why[WHY_BYTES])
{
    struct aux_thread *t = c->thread;

    if (!t->spare)
        t->spare = malloc(sizeof(*t->spare));
    if (!t->spare) {
        snprintf(why, WHY_BYTES, "out of memory");
        return UNLUCKY;
    }
    if (aux_pieces_compose(j->pieces, c->pieces, t->spare) < 0) {
        aux_log(a->h, a->index, FP_AUX_INFO, "too many pieces together with those of an earlier aux-app: its own are left out");
        return LEFT_OUT;
    }
    memcpy(j->pieces, t->spare, sizeof(*j->pieces));
    forget_note(j);
    return DONE;
}

/* The pieces of this call become those of the job. */
static enum settled take_pieces(struct aux_app *a, struct aux_job *j, struct aux_call *c, char why[WHY_BYTES])
{
    struct aux_pieces *p = c->pieces;

    if (!p || aux_pieces_end(p) < 0) {
        snprintf(why, WHY_BYTES, "its pieces do not make up the chunk");
        return FAILED;
    }
    if (p->new_bytes == p->chunk_bytes)
        return DONE;
    if (j->no_stored && refers(p))
        return LEFT_OUT;
    if (refers(p))
        j->stored_app = a->index + 1;
    if (j->pieces) {
        enum settled s = compose(a, j, c, why);

        if (s != DONE)
            return s;
    } else {
        j->pieces = malloc(sizeof(*j->pieces));
        if (!j->pieces) {
            snprintf(why, WHY_BYTES, "out of memory");
            return UNLUCKY;
        }
        memcpy(j->pieces, p, sizeof(*p));
    }
    j->new_bytes = p->new_bytes;
    if (p->new_bytes > 0 && aux_next_out(a->h, a->index + 1, j))
        pack(j, p);
    return DONE;
}

static void keep_note(struct aux_app *a, struct aux_job *j, struct aux_call *c)
{
    if (j->no_pieces && c->pieces) /* it knows other offsets than what is stored has */
        return;
    if (c->noted) {
        j->note = c->note;
        j->keys = c->keys;
        j->note_bytes = c->note_bytes;
        j->nkeys = c->nkeys;
        c->note = NULL;
        c->keys = NULL;
    }
    for (int i = 0; c->ticket && i < 4; i++) {
        if (j->ticket[i].number == 0) {
            j->ticket[i] = (struct aux_ticket){.number = c->ticket, .app = a->index};
            break;
        }
    }
}

static enum settled carry_out(struct aux_app *a, struct aux_job *j, struct aux_call *c, int verdict, char why[WHY_BYTES])
{
    if (verdict != FP_AUX_REPLACED && (aux_app_required(a) & FP_AUXW_REQUIRED_CODES)) {
        snprintf(why, WHY_BYTES, "chunk_out answered %d: what says FP_AUX_REQUIRED and FP_AUX_CODES must replace every chunk", verdict);
        return FAILED;
    }
    switch (verdict) {
    case FP_AUX_PASS: return DONE;
    case FP_AUX_REPLACED: return take_replacement(a, j, c, why);
    case FP_AUX_PIECES: return take_pieces(a, j, c, why);
    }
    snprintf(why, WHY_BYTES, "chunk_out answered %d, which is no verdict", verdict);
    return FAILED;
}

/* An aux-app that must not be left out fails the chunk; another's chunk goes on as it was. */
static void verdict_failed(struct aux_app *a, struct aux_job *j, enum settled s, const char *why)
{
    atomic_fetch_add(&a->stats->errors, 1);
    if (s == FAILED)
        j->failed |= 1u << a->index;
    if (s == NOT_UNDONE && !atomic_load(&j->cancelled))
        j->failed |= 0x10000u << a->index;
    if (a->required) {
        j->status = atomic_load(&j->cancelled) ? -ECANCELED : -EIO;
        j->status_app = a->index;
    }
    if (!atomic_load(&j->cancelled))
        aux_log(a->h, a->index, FP_AUX_ERROR, "%s: the chunk is %s", why,
            a->required ? "not stored, and its write fails: the aux-app is required" : "stored as it came");
}

static void settle(struct aux_app *a, struct aux_job *j, struct aux_call *c, int rc)
{
    char why[WHY_BYTES] = "";
    enum settled s;

    if (rc < 0) {
        j->status = rc;
        j->status_app = a->index;
        if (!atomic_load(&j->cancelled))
            atomic_fetch_add(&a->stats->errors, 1);
        return;
    }
    s = carry_out(a, j, c, rc, why);
    if (s != DONE && s != LEFT_OUT) {
        verdict_failed(a, j, s, why);
        return;
    }
    j->ran |= 1u << a->index;
    if (s == DONE)
        keep_note(a, j, c);
}

/* Running means over about 8 calls, for the choice in stage.c. */
static void note_cost(struct aux_stage *s, uint64_t ns, uint64_t blocked_ns)
{
    uint64_t cost = atomic_load_explicit(&s->cost_ns, memory_order_relaxed);
    uint64_t blocked = atomic_load_explicit(&s->blocked_ns, memory_order_relaxed);

    atomic_store_explicit(&s->cost_ns, cost == 0 ? ns : cost - cost / 8 + ns / 8, memory_order_relaxed);
    atomic_store_explicit(&s->blocked_ns, blocked - blocked / 8 + blocked_ns / 8, memory_order_relaxed);
}

void aux_chunk_out(struct aux_app *a, struct aux_job *j)
{
    struct fp_aux_chunk k = {.size_bytes = sizeof(k), .ino = j->ino, .file_off = j->file_off, .file_serial = j->file_serial};
    struct aux_call c;
    int rc;
    uint32_t in_bytes = j->cur_bytes;

    k.passed_bytes = j->passed_bytes[a->index];
    k.len_bytes = j->cur_bytes;
    k.parts = j->parts;
    k.nparts = j->nparts;
    k.coded = j->nstages > 0;
    k.whole = j->whole && !j->pieces;
    aux_call_begin(&c, a, atomic_load_explicit(&a->deadline_ms, memory_order_relaxed), false);
    c.job = j;
    c.cancelled = &j->cancelled;
    c.file_serial = j->file_serial;
    c.chunk = &k;
    if (atomic_load(&j->cancelled))
        rc = -ECANCELED;
    else if (a->plugin->app.write)
        rc = aux_figure2_run(a, &c);
    else
        rc = a->plugin->app.chunk_out(a->state, (struct fp_aux_call *)&c, &k);
    note_cost(&a->stage, aux_call_end(&c), c.blocked_ns);
    settle(a, j, &c, rc);
    free(c.note);
    free(c.keys);
    atomic_fetch_add_explicit(&a->stats->chunks, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&a->stats->bytes_in, in_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&a->stats->bytes_out, j->nstages > 0 ? j->cur_bytes : j->new_bytes, memory_order_relaxed);
}
