/*
 * Checks of what happens to data: chunk_out, write, chunk_in (see auxtest.h). Each runs in a process of its own.
 *
 * A chunk is made of random, zero, periodic, float and repeated bytes, in parts of any number, with a guard page behind each part; what the plugin
 * answers is carried out, and undone, and compared. Failures say which seed does it again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "auxapps/auxtest/auxtest.h"

#define PART_BYTES 65536u
#define PARTS_MAX 64u
#define LATE_MS 2000

struct window {
    struct buffer part[PARTS_MAX];
    struct fp_aux_part parts[PARTS_MAX];
    struct fp_aux_chunk chunk;
    uint8_t *data;                 /* the same bytes in one piece */
};

static void fill(struct random *r, uint8_t *p, uint32_t n)
{
    uint64_t kind = random_below(r, 6), seed = random_next(r) % 3; /* few seeds: later chunks are duplicates of earlier ones */
    struct random few = { seed };

    for (uint32_t i = 0; i < n; i += 8) {
        uint64_t v = kind == 0 ? random_next(r) : kind == 1 ? 0 : kind == 2 ? i % 104 : random_next(&few);
        double d = 1.0 + i / 65536.0;

        if (kind == 3)
            memcpy(&v, &d, 8);
        if (kind == 4 && i / 4096 % 2)
            v = 0;
        memcpy(p + i, &v, n - i < 8 ? n - i : 8);
    }
}

static uint32_t any_length(struct random *r)
{
    static const uint32_t edges[] = { 1, 7, 4095, 4096, 4097, 65535, 65536, 65537, 131072, 1 << 20, (1 << 20) - 1 };

    if (random_below(r, 2))
        return edges[random_below(r, sizeof(edges) / sizeof(*edges))];
    return 1 + (uint32_t)random_below(r, 3 << 20);
}

static void window_new(struct window *w, struct random *r, uint64_t serial)
{
    uint32_t len = any_length(r), at = 0, n = 0;

    memset(w, 0, sizeof(*w));
    w->data = malloc(len);
    if (!w->data)
        abort();
    fill(r, w->data, len);
    while (at < len) {
        uint32_t bytes = n == PARTS_MAX - 1 ? len - at : PART_BYTES * (1 + (uint32_t)random_below(r, 3));

        bytes = bytes < len - at ? bytes : len - at;
        buffer_new(&w->part[n], bytes);
        memcpy(w->part[n].data, w->data + at, bytes);
        buffer_read_only(&w->part[n], true);
        w->parts[n] = (struct fp_aux_part){ w->part[n].data, bytes };
        at += bytes;
        n++;
    }
    w->chunk = (struct fp_aux_chunk){ .size_bytes = sizeof(w->chunk), .len_bytes = len, .nparts = n, .whole = random_below(r, 4) != 0,
                      .parts = w->parts, .ino = 100 + serial, .file_off = random_below(r, 64) << 20, .file_serial = serial };
}

static void window_free(struct window *w)
{
    for (uint32_t i = 0; i < w->chunk.nparts; i++)
        buffer_free(&w->part[i]);
    free(w->data);
}

/* -------------------------------------------------------------- judging */

/* chunk_in of in[in_bytes]: between guards, both. */
static int call_in(const struct subject *s, void *state, struct fp_aux_host *h, const uint8_t *in, uint32_t in_bytes, struct buffer *out)
{
    struct fp_aux_call call;
    struct buffer guarded;
    int rc;

    buffer_new(&guarded, in_bytes);
    memcpy(guarded.data, in, in_bytes);
    buffer_read_only(&guarded, true);
    call_begin(&call, h, NULL);
    rc = s->app->chunk_in(state, &call, guarded.data, in_bytes, out->data, (uint32_t)out->len_bytes);
    call_end(&call);
    if (!buffer_is_clean(out))
        auxtest_fail("chunk_in wrote in front of its output");
    if (rc > 0)
        auxtest_fail("chunk_in answered %d: it must be 0 or a negative errno", rc);
    buffer_free(&guarded);
    return rc;
}

static void judge_replaced(const struct subject *s, void *state, struct fp_aux_host *h, const struct window *w, const struct fp_aux_call *c)
{
    struct buffer out;
    int rc;

    if (c->replaced_bytes == 0)
        auxtest_fail("FP_AUX_REPLACED without fp_aux_replace");
    if (c->told)
        auxtest_fail("FP_AUX_REPLACED after pieces were told");
    if (!s->app->chunk_in)
        auxtest_fail("FP_AUX_REPLACED, but there is no chunk_in to undo it");
    buffer_new(&out, w->chunk.len_bytes);
    rc = call_in(s, state, h, c->out.data, c->replaced_bytes, &out);
    if (rc < 0 && h->fail_percent == 0)
        auxtest_fail("chunk_in answered %d (%s) to what chunk_out made of %u bytes", rc, strerror(-rc), w->chunk.len_bytes);
    if (rc == 0)
        for (uint32_t i = 0; i < w->chunk.len_bytes; i++)
            if (out.data[i] != w->data[i])
                auxtest_fail("chunk_in does not undo chunk_out: byte %u of %u is 0x%02x, was 0x%02x", i, w->chunk.len_bytes,
                         out.data[i], w->data[i]);
    buffer_free(&out);
}

static void judge_pieces(const struct window *w, const struct fp_aux_call *c)
{
    if (c->told != w->chunk.len_bytes)
        auxtest_fail("the pieces end at %u of %u bytes", c->told, w->chunk.len_bytes);
    for (uint32_t i = 0; i < w->chunk.len_bytes; i++)
        if (c->rebuilt[i] != w->data[i])
            auxtest_fail("the pieces do not make up the chunk: byte %u of %u would be 0x%02x, is 0x%02x", i, w->chunk.len_bytes,
                     c->rebuilt[i], w->data[i]);
}

/* What must not be left out and codes has nothing to pass: fp-auxhost would fail the write. */
static void judge_required(const struct subject *s, int verdict)
{
    const uint32_t both = FP_AUX_REQUIRED | FP_AUX_CODES;

    if ((s->app->flags & both) == both && verdict >= 0 && verdict != FP_AUX_REPLACED)
        auxtest_fail("chunk_out answered %d: what says FP_AUX_REQUIRED and FP_AUX_CODES must replace every chunk, or refuse it with a negative errno",
                 verdict);
}

/* The new data is stored: later calls may refer to it. */
static void keep_new(const struct subject *s, void *state, struct fp_aux_host *h, const struct window *w, struct fp_aux_call *c, int verdict)
{
    struct stored *k;
    bool whole = verdict != FP_AUX_PIECES;

    pthread_mutex_lock(&h->lock);
    if (h->nchunks == CHUNKS_MAX || (!whole && c->fresh_bytes == 0)) {
        pthread_mutex_unlock(&h->lock);
        return;
    }
    k = &h->chunk[h->nchunks++];
    *k = c->note;
    c->note = (struct stored){ 0 };
    k->len_bytes = whole ? w->chunk.len_bytes : c->fresh_bytes;
    k->data = malloc(k->len_bytes);
    memcpy(k->data, whole ? w->data : c->fresh, k->len_bytes);
    struct fp_aux_place place = { h->nchunks, 0, k->len_bytes };

    pthread_mutex_unlock(&h->lock);
    if (s->app->chunk_stored)
        s->app->chunk_stored(state, c->ticket, place);
}

static int call_out(const struct subject *s, void *state, struct fp_aux_call *c, struct window *w)
{
    int rc;

    if (!s->app->write)
        return s->app->chunk_out(state, c, &w->chunk);
    rc = s->app->write(state, c, w->data, w->chunk.len_bytes);
    if (rc > 0)
        auxtest_fail("write answered %d: it must be 0 or a negative errno", rc);
    if (rc == 0 && c->at != w->chunk.len_bytes)
        auxtest_fail("write ended at byte %u of %u without an error: the rest would be lost", c->at, w->chunk.len_bytes);
    return rc < 0 ? rc : FP_AUX_PIECES;
}

int chunk_round_trip(const struct subject *s, void *state, struct fp_aux_host *h, struct random *r, bool keep)
{
    struct fp_aux_call call;
    struct window w;
    int verdict;

    window_new(&w, r, 1 + random_below(r, 4));
    call_begin(&call, h, &w.chunk);
    verdict = call_out(s, state, &call, &w);
    judge_required(s, verdict);
    if (verdict == FP_AUX_REPLACED)
        judge_replaced(s, state, h, &w, &call);
    else if (verdict == FP_AUX_PIECES)
        judge_pieces(&w, &call);
    else if (verdict > 0)
        auxtest_fail("chunk_out answered %d: it must be a verdict of fp/auxapp.h or a negative errno", verdict);
    else if (verdict < -4095)
        auxtest_fail("chunk_out answered %d, which is no errno", verdict);
    if (keep && verdict >= 0)
        keep_new(s, state, h, &w, &call, verdict);
    call_end(&call);
    window_free(&w);
    return verdict;
}

/* -------------------------------------------------------------- checks */

void check_chunks(const struct subject *s)
{
    struct fp_aux_host h;
    struct random r = { s->seed };
    void *state;

    host_new(&h, s);
    state = subject_start(s, &h);
    for (unsigned i = 0; i < s->rounds; i++)
        (void)chunk_round_trip(s, state, &h, &r, true);
    subject_stop(s, state);
    host_free(&h);
}

/* Services that fail must not make a plugin crash, and what it answers then must still be right. */
void check_errors(const struct subject *s)
{
    struct fp_aux_host h;
    struct random r = { s->seed };
    void *state;

    host_new(&h, s);
    state = subject_start(s, &h);
    for (unsigned i = 0; i < s->rounds; i++) {
        h.fail_percent = i % 4 == 3 ? 100 : 20;
        (void)chunk_round_trip(s, state, &h, &r, true);
    }
    subject_stop(s, state);
    host_free(&h);
}

/* FP_AUX_HIDES: equal data must not show. */
static void judge_twice(const struct subject *s, void *state, struct fp_aux_host *h, struct window *w, const struct fp_aux_call *first)
{
    struct fp_aux_call call;

    call_begin(&call, h, &w->chunk);
    if (call_out(s, state, &call, w) == FP_AUX_REPLACED && call.replaced_bytes == first->replaced_bytes &&
        memcmp(call.out.data, first->out.data, call.replaced_bytes) == 0)
        auxtest_fail("says FP_AUX_HIDES, and makes the same bytes of the same %u bytes twice", w->chunk.len_bytes);
    call_end(&call);
}

/* What chunk_in gets may be damaged, or from another version: it must say so, or give something, and stay within its buffers. */
void check_damage(const struct subject *s)
{
    struct fp_aux_host h;
    struct random r = { s->seed };
    bool hides = s->app->flags & FP_AUX_HIDES;
    void *state;
    int rc;

    host_new(&h, s);
    state = subject_start(s, &h);
    for (unsigned i = 0; i < s->rounds; i++) {
        struct fp_aux_call call;
        struct window w;

        window_new(&w, &r, 1);
        call_begin(&call, &h, &w.chunk);
        if (call_out(s, state, &call, &w) == FP_AUX_REPLACED) {
            if (hides)
                judge_twice(s, state, &h, &w, &call);
            for (unsigned k = 0; k < 8; k++) {
                uint32_t bytes = k % 3 == 0 ? 1 + (uint32_t)random_below(&r, call.replaced_bytes) : call.replaced_bytes;
                struct buffer out;

                call.out.data[random_below(&r, bytes)] ^= (uint8_t)(1 + random_below(&r, 255));
                buffer_new(&out, k % 3 == 1 ? any_length(&r) : w.chunk.len_bytes);
                rc = call_in(s, state, &h, call.out.data, bytes, &out);
                if (rc == 0 && hides && (out.len_bytes != w.chunk.len_bytes || memcmp(out.data, w.data, out.len_bytes) != 0))
                    auxtest_fail("says FP_AUX_HIDES, and its chunk_in takes bytes that were changed");
                buffer_free(&out);
            }
        }
        call_end(&call);
        window_free(&w);
    }
    subject_stop(s, state);
    host_free(&h);
}

/* -------------------------------------------------------------- cancelling, threads */

static void *cancel_soon(void *arg)
{
    struct fp_aux_call *c = arg;
    struct timespec t = { 0, 300000 };

    nanosleep(&t, NULL);
    atomic_store(&c->cancelled, true);
    return NULL;
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* A call that nobody waits for any more must end soon, whatever it answers. */
void check_cancel(const struct subject *s)
{
    struct fp_aux_host h;
    struct random r = { s->seed };
    void *state;

    host_new(&h, s);
    state = subject_start(s, &h);
    for (unsigned i = 0; i < s->rounds / 4 + 1; i++) {
        struct fp_aux_call call;
        struct window w;
        pthread_t t;
        double from;

        window_new(&w, &r, 1);
        call_begin(&call, &h, &w.chunk);
        if (i % 2)
            atomic_store(&call.cancelled, true);
        if (pthread_create(&t, NULL, cancel_soon, &call) != 0)
            abort();
        from = now_ms();
        (void)call_out(s, state, &call, &w);
        if (now_ms() - from > LATE_MS)
            auxtest_fail("a call of %u bytes took %.0f ms after it was cancelled: ask fp_aux_cancelled in long loops", w.chunk.len_bytes,
                     now_ms() - from);
        pthread_join(t, NULL);
        call_end(&call);
        window_free(&w);
    }
    subject_stop(s, state);
    host_free(&h);
}

struct crowd { const struct subject *s; void *state; struct fp_aux_host *h; uint64_t seed; };

static void *crowd_member(void *arg)
{
    struct crowd *c = arg;
    struct random r = { c->seed };

    for (unsigned i = 0; i < c->s->rounds / 4 + 1; i++)
        (void)chunk_round_trip(c->s, c->state, c->h, &r, false);
    return NULL;
}

/* FP_AUX_PARALLEL: several workers at once. Run a plugin that was built with -fsanitize=thread for the full answer. */
void check_threads(const struct subject *s)
{
    struct fp_aux_host h;
    struct crowd member[4];
    pthread_t t[4];
    void *state;

    host_new(&h, s);
    state = subject_start(s, &h);
    for (unsigned i = 0; i < 4; i++) {
        member[i] = (struct crowd){ s, state, &h, s->seed + i };
        if (pthread_create(&t[i], NULL, crowd_member, &member[i]) != 0)
            abort();
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    subject_stop(s, state);
    host_free(&h);
}
