/*
 * Aux-app dedup: what an earlier checkpoint has stored already is not stored again (the paper, sections IV.B and V, Figure 2).
 *
 * For each sealed chunk: find its zeros, cut the rest into pieces (by content, or in equal sizes), digest them (SHA-1 as the paper has it), look the
 * digests up among those of the file's earlier version, and tell the host which pieces are new and where the others lie. The digests of what is new go
 * into a note, which the manager keeps with the stored chunk and gives to the next version: one message per file, none per piece.
 * With scope=store, digests that the earlier version has not are asked for in the whole store, one message per chunk.
 *
 * Threads: any number of workers. The earlier version's index is loaded by the first chunk of a file (others of the file wait), and only read afterwards.
 * `lock` is for the table of files. Chunks of earlier versions are held by the host while the file is open for writing, so a place
 * stays good until it is committed; if space was short meanwhile, the host asks for it again. Of which chunks too little is in use to keep them for it, says thin.h.
 *
 * Memory: the indexes of all files together have one budget (`memory`). When it is used up, versions in which nothing was found go first, then those that
 * have not been asked for some time; if all are in use, what does not fit is not compared with, and is said. To drop the oldest in any case was rejected: of
 * 64 ranks that write at once, each would throw the next one's out.
 *
 * Of cheap tests before the strong digest there is one, for zeros. A weak digest first (no match: new for certain) was rejected: what is new needs the
 * strong one too, for the note that the next version is compared with, and what matches needs it as the proof. With hash=xxh3 the weak one is all, and
 * the proof is a comparison of the bytes. That it costs little where there is nothing to find is worth.h's.
 *
 * Duplicates within the file being written are found inside of one chunk only: a chunk that is not published yet can't be referred to.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cdc.h"
#include "digest.h"
#include "fp/auxapp.h"
#include "index.h"
#include "note.h"
#include "pieces.h"
#include "thin.h"
#include "worth.h"

#define FILES_MAX 256u
#define FOUND_MAX_BYTES (4u << 20)     /* of what fp_aux_find has told about one chunk */
#define USELESS_BYTES ((uint64_t)16 << 20) /* so much was looked up in vain */
#define IDLE_MS 10000u
#define WARN_MS 60000u
#define KEYS_PER_MIB 16u               /* each costs the manager 29 bytes and an insert at a random place */

struct dfile {                         /* a file being written */
    uint64_t serial, ino;          /* lock; serial 0: free */
    uint64_t used;                 /* lock: when, to choose the oldest */
    unsigned users;                /* lock: workers in it */
    bool loading;                  /* lock: one of them asks for the earlier version */
    bool has_earlier;              /* these two: constant once loading is over, while there are users */
    struct index earlier;
    struct thin thin;              /* of its chunks; as earlier */
    uint64_t in_use_bytes;         /* lock: of the earlier version */
    uint64_t anew_bytes;           /* lock: of thin chunks, may be stored anew */
    uint64_t looked_bytes, found_bytes; /* lock: in vain or not */
    uint64_t used_ms;              /* lock */
};

struct dedup {
    struct fp_aux_host *host;
    enum digest_kind kind;
    struct cut_rule rule;
    bool whole_store;
    const char *pattern;
    double thin_share;
    struct budget budget;          /* of all files' indexes */
    uint64_t warned_ms;            /* lock */
    pthread_mutex_t lock;
    pthread_cond_t loaded;
    struct worker *idle;           /* lock */
    uint64_t clock;                /* lock */
    struct worth worth;            /* has locks of its own */
    struct dfile file[FILES_MAX];
};

struct worker {                        /* what one call needs; kept for the next */
    struct worker *next;
    struct digest *digest;
    struct pieces pieces;
    struct budget found_budget;
    struct index found;            /* what fp_aux_find told about this chunk, these two */
    struct thin found_thin;
    uint8_t *buf;                  /* a stored piece, for comparing */
    uint32_t buf_bytes;
    uint8_t note[FP_AUX_NOTE_MAX_BYTES];
    uint64_t keys[FP_AUX_NOTE_KEYS_MAX];
};

static void worker_free(struct worker *w)
{
    digest_free(w->digest);
    pieces_fini(&w->pieces);
    index_clear(&w->found);
    thin_clear(&w->found_thin);
    free(w->buf);
    free(w);
}

/* NULL: no memory, or no such digest. */
static struct worker *worker_get(struct dedup *d)
{
    struct worker *w;

    pthread_mutex_lock(&d->lock);
    w = d->idle;
    if (w)
        d->idle = w->next;
    pthread_mutex_unlock(&d->lock);
    if (w)
        return w;
    w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    w->found_budget.max_bytes = FOUND_MAX_BYTES;
    index_init(&w->found, d->kind, &w->found_budget);
    thin_init(&w->found_thin, d->thin_share);
    w->digest = digest_new(d->kind);
    if (w->digest)
        return w;
    worker_free(w);
    return NULL;
}

static void worker_put(struct dedup *d, struct worker *w)
{
    pthread_mutex_lock(&d->lock);
    w->next = d->idle;
    d->idle = w;
    pthread_mutex_unlock(&d->lock);
}

/* -------------------------------------------------------------- memory */

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void show_memory(struct dedup *d)
{
    fp_aux_gauge(d->host, "index bytes", (int64_t)atomic_load(&d->budget.used_bytes));
}

/* lock held. The version that is missed least, or NULL. */
static struct dfile *least_useful(struct dedup *d, uint64_t now)
{
    struct dfile *best = NULL;
    bool best_useless = false;

    for (unsigned i = 0; i < FILES_MAX; i++) {
        struct dfile *f = &d->file[i];
        bool useless = f->found_bytes == 0 && f->looked_bytes >= USELESS_BYTES;

        if (f->users > 0 || f->earlier.used == 0 || (!useless && now - f->used_ms < IDLE_MS))
            continue;
        if (!best || useless > best_useless || (useless == best_useless && f->used < best->used)) {
            best = f;
            best_useless = useless;
        }
    }
    return best;
}

/* False: there is none that can be done without. */
static bool give_one_up(struct dedup *d)
{
    struct dfile *f;

    pthread_mutex_lock(&d->lock);
    f = least_useful(d, now_ms());
    if (f) {
        index_clear(&f->earlier);
        f->has_earlier = false;
    }
    pthread_mutex_unlock(&d->lock);
    if (f)
        fp_aux_count(d->host, "versions given up", 1);
    return f != NULL;
}

static void say_full(struct dedup *d)
{
    uint64_t now = now_ms();
    bool say;

    fp_aux_count(d->host, "versions cut short", 1);
    pthread_mutex_lock(&d->lock);
    say = d->warned_ms == 0 || now - d->warned_ms >= WARN_MS;
    if (say)
        d->warned_ms = now;
    pthread_mutex_unlock(&d->lock);
    if (say)
        fp_aux_log(d->host, FP_AUX_WARN, "memory: all of it is in use; parts of earlier versions are not compared with. Give more (see --aux-memory, too), or a larger size");
}

/* -------------------------------------------------------------- files and their earlier versions */

struct loading {
    struct dedup *d;
    struct index *index;
    struct thin *thin;
    bool any, full;
};

static int take_note(void *arg, const struct fp_aux_noted *n)
{
    struct loading *l = arg;
    struct note_reader r;
    const uint8_t *digest;
    uint32_t off, len;
    bool doubtful;

    if (!note_open(&r, n->note, n->note_bytes, n->data_bytes) || r.kind != l->d->kind)
        return 0;
    l->any = true;
    doubtful = thin_may_be(l->thin, n->data_bytes, n->unused_bytes);
    thin_tell(l->thin, n->chunk, n->data_bytes, n->unused_bytes, n->free_bytes);
    while (note_next(&r, &off, &len, &digest)) {
        struct fp_aux_place place = { .chunk = n->chunk, .off = off, .len_bytes = len };

        if (len < FP_AUX_PIECE_MIN_BYTES)
            continue;
        while (!index_add(l->index, digest, place, doubtful)) {
            l->full = l->index->budget != &l->d->budget || !give_one_up(l->d);
            if (l->full)
                return 1;
        }
    }
    return 0;
}

/* lock held. Files that are being written: the end of one that is deleted before it is closed is not told. */
static struct thin_others others(const struct dedup *d, const struct dfile *f)
{
    struct thin_others sum = { 0, 0 };
    uint64_t now = now_ms();

    for (unsigned i = 0; i < FILES_MAX; i++) {
        const struct dfile *o = &d->file[i];

        if (o->serial != 0 && o != f && (o->users > 0 || now - o->used_ms < IDLE_MS)) {
            sum.used_bytes += o->in_use_bytes;
            sum.anew_bytes += o->anew_bytes;
        }
    }
    return sum;
}

/* One after the other: who comes later knows what those before may store anew. w: what was found for one chunk. What is free was asked for it, so that what is
 * stored anew by it is not taken twice. */
static void decide_thin(struct dedup *d, struct dfile *f, struct worker *w)
{
    struct thin *t = w ? &w->found_thin : &f->thin;
    struct thin_others o;
    uint64_t anew;

    pthread_mutex_lock(&d->lock);
    o = others(d, f);
    anew = thin_decide(t, thin_most(t->free_bytes, &o), &o);
    if (!w) {
        f->anew_bytes = anew;
        f->in_use_bytes = t->used_bytes;
    }
    pthread_mutex_unlock(&d->lock);
}

static void load_earlier(struct dedup *d, struct dfile *f, uint64_t serial)
{
    struct loading l = { .d = d, .index = &f->earlier, .thin = &f->thin };
    int rc;

    index_init(&f->earlier, d->kind, &d->budget);
    thin_init(&f->thin, d->thin_share);
    rc = fp_aux_earlier(d->host, serial, d->pattern, take_note, &l);
    index_trim(&f->earlier);
    decide_thin(d, f, NULL);
    show_memory(d);
    if (l.full)
        say_full(d);
    f->has_earlier = l.any;
    if (rc < 0 && rc != -ENOENT) {
        fp_aux_log(d->host, FP_AUX_WARN, "the earlier version of a file could not be asked for: it is stored without looking for duplicates");
        fp_aux_count(d->host, "versions missed", 1);
    }
}

static void forget_earlier(struct dfile *f)
{
    index_clear(&f->earlier);
    thin_clear(&f->thin);
    f->anew_bytes = f->in_use_bytes = 0;
}

/* lock held. NULL: all are in use. */
static struct dfile *free_file(struct dedup *d)
{
    struct dfile *best = NULL;

    for (unsigned i = 0; i < FILES_MAX; i++) {
        struct dfile *f = &d->file[i];

        if (f->users == 0 && (!best || f->serial == 0 || (best->serial != 0 && f->used < best->used)))
            best = f;
    }
    return best;
}

/* lock held. An older version of a file of which another one is written: its close has not been told of, as long as somebody has the file open. */
static void forget_versions(struct dedup *d, uint64_t ino)
{
    for (unsigned i = 0; i < FILES_MAX; i++) {
        struct dfile *f = &d->file[i];

        if (f->serial != 0 && f->ino == ino && f->users == 0) {
            forget_earlier(f);
            f->serial = 0;
        }
    }
}

static struct dfile *file_begin(struct dedup *d, uint64_t ino, uint64_t serial)
{
    struct dfile *f;

    forget_versions(d, ino);
    f = free_file(d);
    if (!f)
        return NULL;
    forget_earlier(f);
    f->serial = serial;
    f->ino = ino;
    f->looked_bytes = f->found_bytes = 0;
    f->users = 1;
    f->loading = true;
    return f;
}

static struct dfile *file_get(struct dedup *d, uint64_t ino, uint64_t serial)
{
    struct dfile *f = NULL;

    pthread_mutex_lock(&d->lock);
    for (unsigned i = 0; i < FILES_MAX && !f; i++)
        if (d->file[i].serial == serial)
            f = &d->file[i];
    if (f) {
        f->users++;
        while (f->loading)
            pthread_cond_wait(&d->loaded, &d->lock); /* bounded: the other's call has a deadline */
    } else if ((f = file_begin(d, ino, serial))) {
        pthread_mutex_unlock(&d->lock);
        load_earlier(d, f, serial);
        pthread_mutex_lock(&d->lock);
        f->loading = false;
        pthread_cond_broadcast(&d->loaded);
    }
    if (f)
        f->used = ++d->clock;
    pthread_mutex_unlock(&d->lock);
    return f;
}

static void file_put(struct dedup *d, struct dfile *f)
{
    pthread_mutex_lock(&d->lock);
    f->used_ms = now_ms();
    f->users--;
    pthread_mutex_unlock(&d->lock);
}

static int released(void *state, struct fp_aux_call *call, const struct fp_aux_file *sealed)
{
    struct dedup *d = state;

    (void)call;
    pthread_mutex_lock(&d->lock);
    for (unsigned i = 0; i < FILES_MAX; i++) {
        struct dfile *f = &d->file[i];

        if (f->serial == sealed->file_serial && f->users == 0) {
            forget_earlier(f);
            f->serial = 0;
        }
    }
    pthread_mutex_unlock(&d->lock);
    show_memory(d);
    return 0;
}

/* -------------------------------------------------------------- looking up */

/* Are the bytes really there? Where the digest does not prove it. */
static bool proved(struct dedup *d, struct worker *w, const struct fp_aux_chunk *k, const struct piece *x, struct fp_aux_place place)
{
    if (digest_is_strong(d->kind))
        return true;
    if (w->buf_bytes < place.len_bytes) {
        free(w->buf);
        w->buf = malloc(place.len_bytes);
        w->buf_bytes = w->buf ? place.len_bytes : 0;
    }
    return w->buf && fp_aux_read_chunk(d->host, place, w->buf) == 0 && pieces_equal(k, x->off, x->len_bytes, w->buf);
}

/* The piece that continues a run, if there is one in the index of the same digest elsewhere, is not looked for: the first entry is as good as any. */
static void look_up(struct dedup *d, struct worker *w, const struct fp_aux_chunk *k, const struct index *in, const struct thin *thin)
{
    for (uint32_t i = 0; i < w->pieces.n; i++) {
        struct piece *x = &w->pieces.piece[i];
        struct fp_aux_place place;
        bool doubtful;

        if (x->kind != PIECE_NEW || x->len_bytes < FP_AUX_PIECE_MIN_BYTES || !index_find(in, x->digest, x->len_bytes, &place, &doubtful))
            continue;
        x->thin = doubtful && thin_is(thin, place.chunk);
        if (!x->thin && proved(d, w, k, x, place)) {
            x->kind = PIECE_STORED;
            x->place = place;
        }
    }
}

static uint64_t key_of(const struct piece *x)
{
    uint64_t key;

    memcpy(&key, x->digest, sizeof(key));
    return key;
}

/* Keys of new pieces: of all, or of one in so many. Which ones follows from their content, so that the same data has the same keys. */
static uint32_t collect_keys(struct worker *w, uint64_t one_in)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->pieces.n && n < FP_AUX_NOTE_KEYS_MAX; i++) {
        const struct piece *x = &w->pieces.piece[i];

        if (x->kind == PIECE_NEW && x->digested && x->len_bytes >= FP_AUX_PIECE_MIN_BYTES && key_of(x) % one_in == 0)
            w->keys[n++] = key_of(x);
    }
    return n;
}

/* A chunk is found by one key as well as by all: what is asked for are all pieces, what is kept at the manager are few. */
static uint32_t collect_kept_keys(struct worker *w, const struct fp_aux_chunk *k)
{
    uint32_t few = KEYS_PER_MIB * ((k->len_bytes + (1u << 20) - 1) >> 20), n = collect_keys(w, 1);

    return n <= few ? n : collect_keys(w, (n + few - 1) / few);
}

static void look_up_store(struct dedup *d, struct worker *w, struct dfile *f, const struct fp_aux_chunk *k)
{
    struct loading l = { .d = d, .index = &w->found, .thin = &w->found_thin };
    uint32_t n = collect_keys(w, 1);

    index_clear(&w->found);
    thin_clear(&w->found_thin);
    if (n == 0 || fp_aux_find(d->host, w->keys, n, take_note, &l) != 0)
        return;
    decide_thin(d, f, w);
    look_up(d, w, k, &w->found, &w->found_thin);
}

/* -------------------------------------------------------------- telling */

static int tell_pieces(struct fp_aux_call *call, const struct pieces *p)
{
    int rc = 0;

    for (uint32_t i = 0; i < p->n && rc == 0; i++) {
        const struct piece *x = &p->piece[i];

        switch (x->kind) {
        case PIECE_NEW: rc = fp_aux_piece_new(call, x->off, x->len_bytes); break;
        case PIECE_ZERO: rc = fp_aux_piece_zero(call, x->off, x->len_bytes); break;
        case PIECE_SAME: rc = fp_aux_piece_same(call, x->off, x->len_bytes, x->earlier_off); break;
        case PIECE_STORED: rc = fp_aux_piece_stored(call, x->off, x->len_bytes, x->place); break;
        }
    }
    return rc;
}

static int tell_note(struct dedup *d, struct fp_aux_call *call, const struct fp_aux_chunk *k, struct worker *w)
{
    struct note_writer note;

    note_begin(&note, w->note, sizeof(w->note), d->kind, d->rule.kind == CUT_FIXED ? d->rule.fixed_bytes : 0);
    for (uint32_t i = 0; i < w->pieces.n; i++) {
        const struct piece *x = &w->pieces.piece[i];

        if (x->kind == PIECE_NEW && !note_add(&note, x->len_bytes, x->digest))
            break;
    }
    if (note.len_bytes == NOTE_HEADER_BYTES)
        return 0;
    return fp_aux_note(call, w->note, note.len_bytes, w->keys, d->whole_store ? collect_kept_keys(w, k) : 0);
}

static void note_worth(struct dedup *d, struct dfile *f, const struct pieces *p)
{
    uint64_t found = pieces_bytes(p, PIECE_STORED) + pieces_bytes(p, PIECE_SAME), fresh = pieces_bytes(p, PIECE_NEW);

    fp_aux_count(d->host, "duplicate bytes", (int64_t)found);
    fp_aux_count(d->host, "zero bytes", (int64_t)pieces_bytes(p, PIECE_ZERO));
    fp_aux_count(d->host, "new bytes", (int64_t)fresh);
    fp_aux_count(d->host, "stored anew bytes", (int64_t)pieces_anew(p));
    pthread_mutex_lock(&d->lock);
    f->looked_bytes += found + fresh;
    f->found_bytes += pieces_bytes(p, PIECE_STORED);
    pthread_mutex_unlock(&d->lock);
    worth_note(&d->worth, found + fresh, found, !f->has_earlier, d->whole_store);
}

/* -------------------------------------------------------------- a chunk */

/* f NULL: zeros are all that is looked for. */
static int handle(struct dedup *d, struct fp_aux_call *call, const struct fp_aux_chunk *k, struct dfile *f, struct worker *w)
{
    static const struct cut_rule zeros = { .kind = CUT_ZEROS };
    bool look = f != NULL;
    int rc = pieces_cut(&w->pieces, look ? &d->rule : &zeros, k);
    uint32_t runs;
    bool pass;

    if (rc == 0 && look) {
        rc = pieces_digest(&w->pieces, w->digest, k);
        if (rc == 0 && f->has_earlier)
            look_up(d, w, k, &f->earlier, &f->thin);
        if (rc == 0 && d->whole_store)
            look_up_store(d, w, f, k);
        if (rc == 0)
            rc = pieces_same(&w->pieces, k, !digest_is_strong(d->kind));
    }
    if (rc < 0)
        return rc;
    runs = pieces_limit(&w->pieces, FP_AUX_PIECES_MAX(k->len_bytes));
    if (look)
        rc = pieces_digest(&w->pieces, w->digest, k); /* zeros that the limit made new */
    pass = runs == 1 && w->pieces.piece[0].kind == PIECE_NEW;
    if (rc == 0 && !pass)
        rc = tell_pieces(call, &w->pieces);
    if (rc < 0)
        return rc;
    if (look) {
        note_worth(d, f, &w->pieces);
        if (tell_note(d, call, k, w) < 0) /* the next version finds nothing in this chunk */
            fp_aux_count(d->host, "notes lost", 1);
    }
    return pass ? FP_AUX_PASS : FP_AUX_PIECES;
}

static int look_at(struct dedup *d, struct fp_aux_call *call, const struct fp_aux_chunk *k, struct worker *w)
{
    struct dfile *f = file_get(d, k->ino, k->file_serial);
    int rc;

    if (!f)
        return FP_AUX_PASS;
    rc = handle(d, call, k, f, w);
    file_put(d, f);
    return rc;
}

static int dedup_out(void *state, struct fp_aux_call *call, const struct fp_aux_chunk *k)
{
    struct dedup *d = state;
    struct worker *w;
    int rc;

    if (k->coded)
        return FP_AUX_PASS; /* declared after a stage that codes: nothing is equal any more */
    w = worker_get(d);
    if (!w)
        return FP_AUX_PASS;
    rc = worth_wants(&d->worth, k) ? look_at(d, call, k, w) : handle(d, call, k, NULL, w);
    worker_put(d, w);
    if (rc >= 0)
        return rc;
    fp_aux_count(d->host, "errors", 1); /* out of memory, mostly: no reason to refuse a checkpoint */
    return FP_AUX_PASS;
}

/* -------------------------------------------------------------- start */

static const char *refuse_size(const struct dedup *d, int64_t size)
{
    if (size < (4 << 10) || size > (1 << 20))
        return "size: must be 4KiB to 1MiB";
    if (d->rule.kind == CUT_CONTENT && (size & (size - 1)) != 0)
        return "size: must be a power of two (4KiB, 8KiB, ... 1MiB) with chunking=cdc";
    if (d->rule.kind == CUT_FIXED && size % FP_AUX_PIECE_MIN_BYTES != 0)
        return "size: must be a multiple of 4KiB with chunking=fixed";
    return NULL;
}

/* Without one of these it is the name of one file, with which all that is beside it would be compared and never with versions of its own. */
static const char *refuse_pattern(const char *pattern)
{
    if (!pattern || !*pattern || strpbrk(pattern, "*?["))
        return NULL;
    return "pattern: * must stand for the step in it, as in state-*.img or set-*/state; without one it is the name of a single file";
}

/* Of an option such as 2%. Negative: it is no share. */
static double read_share(const struct dedup *d, const char *name)
{
    const char *text = fp_aux_option_text(d->host, name);
    char *end = NULL;
    double share = text ? strtod(text, &end) / 100 : -1;

    return text && end != text && strcmp(end, "%") == 0 && share >= 0 && share <= 1 ? share : -1;
}

static int read_options(struct dedup *d)
{
    const char *hash = fp_aux_option_text(d->host, "hash"), *why;
    int64_t size = fp_aux_option_number(d->host, "size");
    double least = read_share(d, "pays");

    d->kind = !strcmp(hash, "sha256") ? DIGEST_SHA256 : !strcmp(hash, "xxh3") ? DIGEST_XXH3 : DIGEST_SHA1;
    d->rule.kind = !strcmp(fp_aux_option_text(d->host, "chunking"), "fixed") ? CUT_FIXED : CUT_CONTENT;
    d->rule.fixed_bytes = (uint32_t)size;
    d->whole_store = !strcmp(fp_aux_option_text(d->host, "scope"), "store");
    d->pattern = fp_aux_option_text(d->host, "pattern");
    d->budget.max_bytes = (size_t)fp_aux_option_number(d->host, "memory");
    why = refuse_size(d, size);
    if (!why)
        why = refuse_pattern(d->pattern);
    d->thin_share = read_share(d, "thin");
    if (!why && least < 0)
        why = "pays: must be a share such as 2%, 0% to 100%";
    if (!why && d->thin_share < 0)
        why = "thin: must be a share such as 50%, 0% to 100%";
    if (why) {
        fp_aux_log(d->host, FP_AUX_ERROR, why);
        return -EINVAL;
    }
    cdc_init(&d->rule.cdc, (uint32_t)size);
    worth_init(&d->worth, d->host, least);
    return 0;
}

static void dedup_stop(void *state)
{
    struct dedup *d = state;

    for (unsigned i = 0; i < FILES_MAX; i++)
        forget_earlier(&d->file[i]);
    while (d->idle) {
        struct worker *w = d->idle;

        d->idle = w->next;
        worker_free(w);
    }
    pthread_cond_destroy(&d->loaded);
    worth_fini(&d->worth);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static int dedup_start(struct fp_aux_host *host, void **state)
{
    struct dedup *d = calloc(1, sizeof(*d));
    struct worker *first;
    int rc;

    if (!d)
        return -ENOMEM;
    d->host = host;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->loaded, NULL);
    rc = read_options(d);
    first = rc == 0 ? worker_get(d) : NULL;
    if (first) {
        worker_put(d, first);
        fp_aux_gauge(host, "on", 1);
        *state = d;
        return 0;
    }
    if (rc == 0)
        fp_aux_log(host, FP_AUX_ERROR, "hash: OpenSSL has no such digest here (in FIPS mode sha256 works)");
    dedup_stop(d);
    return rc < 0 ? rc : -ENOTSUP;
}

static const char *const hashes[] = { "sha1", "sha256", "xxh3", NULL };
static const char *const chunkings[] = { "cdc", "fixed", NULL };
static const char *const scopes[] = { "file", "store", NULL };

static const struct fp_aux_option options[] = {
    { .name = "hash", .fallback = "sha1", .choices = hashes, .help = "sha1, sha256, or xxh3: fast, and each duplicate is read and compared byte by byte." },
    { .name = "chunking", .fallback = "cdc", .choices = chunkings, .help = "cdc: cut by content, finds what has moved. fixed: equal sizes, finds what is where it was." },
    { .name = "size", .fallback = "16KiB", .is_size = true, .min = 4 << 10, .max = 1 << 20, .help = "Of a piece, 4KiB to 1MiB; with cdc the average, a power of two. Smaller finds more and notes more." },
    { .name = "scope", .fallback = "file", .choices = scopes, .help = "file: compare with the earlier version of the file. store: with everything in the store, too." },
    { .name = "pattern", .help = "How names of one file's versions differ: * stands for the step, e.g. chk_*/rank.dat. Default: digits that grow." },
    { .name = "pays", .fallback = "2%", .help = "Share of duplicates below which it turns itself off and only samples. 0%: never." },
    { .name = "thin", .fallback = "50%", .help = "A stored chunk of which files use less is not referred to: what is equal to it is stored anew, so that it can go. 0%: never." },
    { .name = "memory", .fallback = "512MiB", .is_size = true, .min = 1 << 20, .max = (int64_t)64 << 30, .help = "For the digests of all earlier versions together; what does not fit is not compared with." },
    { .name = NULL },
};

static const struct fp_aux_app app = {
    .abi = FP_AUX_ABI,
    .size_bytes = sizeof(app),
    .name = "dedup",
    .version = "1",
    .summary = "stores what an earlier version of a file has not stored already (SHA-1)",
    .flags = FP_AUX_PARALLEL,
    .options = options,
    .start = dedup_start,
    .stop = dedup_stop,
    .chunk_out = dedup_out,
    .file_sealed = released,
};

FP_AUX_APP(app)
