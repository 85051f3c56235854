/*
 * The callback `write`: chunks in the words of the paper's Figure 2, get_chunk, hashtable_get, data_write, hashtable_update.
 *
 * On a worker thread, in place of chunk_out. The paper's functions know neither where a chunk is stored nor that the same hash may come twice in one
 * buffer; both are kept here. The hash table is the aux-app's table at the manager, shared by all files and nodes. A value is the place of the stored
 * piece; it is put there after the chunk was stored (event thread), so nobody finds what may never be. A value may be older than its chunk: a piece counts
 * as found only once its chunk is held.
 *
 * Whatever the callback leaves open is stored: a piece that was neither written nor found, bytes that get_chunk was not asked for. A piece of its own
 * size for each hash costs the manager a look-up; a real de-duplication uses notes (fp_aux_note, fp_aux_find), which come by the file.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "auxapps/host/host.h"

#define TICKETS_MAX 1024u
#define NONE 0xffffffffu

enum kind { UNKNOWN, WRITTEN, FOUND };

struct piece { uint32_t off, len, entry; enum kind kind; };

struct entry {                 /* a hash that this call has seen */
    uint32_t next, len, off;   /* off: in the window, or in `chunk` */
    uint64_t chunk;            /* 0: it is in this window, at off */
    bool noted;                /* of this window, to enter the table */
    uint32_t at;               /* ... from here on in the new data */
    uint32_t key_bytes;
    uint8_t key[FP_AUX_KEY_MAX_BYTES];
};

struct aux_figure2 {
    uint8_t *base;
    uint32_t len, npieces, nentries, cap, mask;
    struct piece *piece;
    struct entry *entry;
    uint32_t *bucket;
};

struct value { uint64_t chunk; uint32_t off, len; }; /* in the table, little-endian */

struct pending { uint8_t key[FP_AUX_KEY_MAX_BYTES]; uint32_t key_bytes, at, len; };

struct aux_table {
    pthread_mutex_t lock;
    uint32_t n;
    struct ticket { struct ticket *next; uint64_t number; uint32_t n; struct pending v[]; } *head, **tail;
};

/* -------------------------------------------------------------- hashes of this call */

static uint32_t bucket_of(const struct aux_figure2 *f, const uint8_t *key, uint32_t n)
{
    uint64_t h = 14695981039346656037ull;

    for (uint32_t i = 0; i < n; i++)
        h = (h ^ key[i]) * 1099511628211ull;
    return (uint32_t)(h ^ (h >> 32)) & f->mask;
}

static struct entry *entry_find(struct aux_figure2 *f, const void *key, uint32_t n)
{
    for (uint32_t i = f->bucket[bucket_of(f, key, n)]; i != NONE; i = f->entry[i].next) {
        if (f->entry[i].key_bytes == n && memcmp(f->entry[i].key, key, n) == 0)
            return &f->entry[i];
    }
    return NULL;
}

static struct entry *entry_add(struct aux_figure2 *f, const void *key, uint32_t n)
{
    if (f->nentries >= f->cap)
        return NULL;
    struct entry *e = &f->entry[f->nentries];
    uint32_t *b = &f->bucket[bucket_of(f, key, n)];

    memset(e, 0, sizeof(*e));
    e->next = *b;
    e->key_bytes = n;
    memcpy(e->key, key, n);
    *b = f->nentries++;
    return e;
}

/* -------------------------------------------------------------- the four functions */

static struct aux_call *own(struct fp_aux_call *call)
{
    return (struct aux_call *)(void *)call;
}

static void *sv_get_chunk(struct fp_aux_call *call, void **output_buffer, uint32_t want_bytes, uint32_t *len_bytes)
{
    struct aux_figure2 *f = own(call)->f2;
    uint8_t *at = output_buffer ? *output_buffer : NULL;

    if (!f || !len_bytes || at < f->base || at >= f->base + f->len)
        return NULL;
    uint32_t off = (uint32_t)(at - f->base), len = want_bytes - want_bytes % FP_AUX_PIECE_MIN_BYTES;
    const struct piece *last = f->npieces > 0 ? &f->piece[f->npieces - 1] : NULL;

    if (len == 0 || f->npieces >= f->cap || (last && off < last->off + last->len))
        return NULL;
    if (len > f->len - off)
        len = f->len - off;
    f->piece[f->npieces++] = (struct piece){.off = off, .len = len, .entry = NONE};
    *output_buffer = at + len;
    *len_bytes = len;
    return at;
}

/* The piece that begins there; usually the last one. */
static struct piece *piece_at(struct aux_figure2 *f, const void *chunk)
{
    for (uint32_t i = f->npieces; i > 0; i--) {
        if (f->base + f->piece[i - 1].off == (const uint8_t *)chunk)
            return &f->piece[i - 1];
    }
    return NULL;
}

static int sv_data_write(struct fp_aux_call *call, const void *chunk)
{
    struct aux_figure2 *f = own(call)->f2;
    struct piece *p = f ? piece_at(f, chunk) : NULL;

    if (!p)
        return f ? -EINVAL : -ENOTSUP;
    p->kind = WRITTEN;
    return 0;
}

static int sv_hashtable_get(struct fp_aux_call *call, const void *hash, uint32_t hash_bytes)
{
    struct aux_call *c = own(call);
    struct aux_figure2 *f = c->f2;
    struct value v;
    uint32_t n = sizeof(v);

    if (!f)
        return -ENOTSUP;
    if (hash_bytes < 1 || hash_bytes > FP_AUX_KEY_MAX_BYTES)
        return -EINVAL;
    if (entry_find(f, hash, hash_bytes))
        return 1;
    if (aux_svc_table_get(c->app, hash, hash_bytes, &v, &n) < 0 || n != sizeof(v))
        return 0;
    uint64_t chunk = le64toh(v.chunk);

    if (chunk == 0 || v.len == 0)
        return 0;
    bool held = false;

    for (uint32_t i = 0; i < f->nentries && !held; i++)
        held = f->entry[i].chunk == chunk;
    if (!held && aux_svc_hold(c, chunk) < 0)
        return 0;
    struct entry *e = entry_add(f, hash, hash_bytes);

    if (!e)
        return 0;
    e->chunk = chunk;
    e->off = le32toh(v.off);
    e->len = le32toh(v.len);
    return 1;
}

static int sv_hashtable_update(struct fp_aux_call *call, int *result, const void *chunk, const void *hash, uint32_t hash_bytes)
{
    struct aux_figure2 *f = own(call)->f2;
    struct piece *p = f ? piece_at(f, chunk) : NULL;

    if (!f)
        return -ENOTSUP;
    if (!p || hash_bytes < 1 || hash_bytes > FP_AUX_KEY_MAX_BYTES)
        return -EINVAL;
    if (result && *result < 0)
        return 0;
    struct entry *e = entry_find(f, hash, hash_bytes);

    if (p->kind == WRITTEN) {
        e = e ? NULL : entry_add(f, hash, hash_bytes);
        if (e) {
            e->off = p->off;
            e->len = p->len;
            e->noted = true;
        }
        return 0;
    }
    if (!e)
        return -ENOENT;
    if (e->len == p->len) {
        p->kind = FOUND;
        p->entry = (uint32_t)(e - f->entry);
    }
    return 0;
}

void aux_figure2_fill(struct fp_aux_services *s)
{
    s->get_chunk = sv_get_chunk;
    s->data_write = sv_data_write;
    s->hashtable_get = sv_hashtable_get;
    s->hashtable_update = sv_hashtable_update;
}

/* -------------------------------------------------------------- what becomes of it */

static int add(struct fp_aux_call *call, struct aux_figure2 *f, const struct piece *p)
{
    const struct fp_aux_services *s = &aux_services;
    struct entry *e = p->entry == NONE ? NULL : &f->entry[p->entry];

    if (p->kind != FOUND || !e)
        return s->piece_new(call, p->off, p->len);
    if (e->chunk == 0)
        return s->piece_same(call, p->off, p->len, e->off);
    return s->piece_stored(call, p->off, p->len, (struct fp_aux_place){.chunk = e->chunk, .off = e->off, .len_bytes = e->len});
}

/* Length of the duplicate that piece i is part of: neighbours that are found, too. */
static uint32_t run_bytes(const struct aux_figure2 *f, uint32_t i)
{
    uint32_t from = i, to = i, n = 0;

    while (from > 0 && f->piece[from - 1].kind == FOUND)
        from--;
    while (to + 1 < f->npieces && f->piece[to + 1].kind == FOUND)
        to++;
    for (; from <= to; from++)
        n += f->piece[from].len;
    return n;
}

/* All pieces, with duplicates in runs of less than min_bytes as new data. 0, -ENOSPC: still too many. */
static int build(struct aux_call *c, struct aux_figure2 *f, uint32_t min_bytes)
{
    struct fp_aux_call *call = (struct fp_aux_call *)c;
    uint32_t off = 0;
    int rc = 0;

    for (uint32_t i = 0; min_bytes > 0 && i < f->npieces;) {
        uint32_t n = f->piece[i].kind == FOUND ? run_bytes(f, i) : 0, k = i;

        do {
            if (n > 0 && n < min_bytes)
                f->piece[k].kind = WRITTEN;
            k++;
        } while (n > 0 && k < f->npieces && f->piece[k].kind == FOUND);
        i = k;
    }
    if (c->pieces)
        aux_pieces_init(c->pieces, f->len, (uint8_t)c->app->index, atomic_load(&c->app->verify));
    for (uint32_t i = 0; i < f->npieces && rc == 0; i++) {
        if (f->piece[i].off > off)
            rc = aux_services.piece_new(call, off, f->piece[i].off - off);
        if (rc == 0)
            rc = add(call, f, &f->piece[i]);
        off = f->piece[i].off + f->piece[i].len;
    }
    if (rc == 0 && off < f->len)
        rc = aux_services.piece_new(call, off, f->len - off);
    return rc;
}

/* Where the written pieces are in the new data, for the table. */
static int note_pending(struct aux_app *a, struct aux_call *c, struct aux_figure2 *f)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->nentries; i++)
        n += f->entry[i].noted;
    if (n == 0)
        return 0;
    struct ticket *t = malloc(sizeof(*t) + n * sizeof(t->v[0]));

    if (!t)
        return -ENOMEM;
    *t = (struct ticket){.number = aux_services.ticket((struct fp_aux_call *)c)};
    for (uint32_t i = 0; i < f->nentries; i++) {
        const struct entry *e = &f->entry[i];
        struct pending *p = &t->v[t->n];

        if (!e->noted)
            continue;
        *p = (struct pending){.key_bytes = e->key_bytes, .at = aux_pieces_new_at(c->pieces, e->off), .len = e->len};
        memcpy(p->key, e->key, e->key_bytes);
        t->n++;
    }
    struct ticket *old = NULL;

    pthread_mutex_lock(&a->table->lock);
    *a->table->tail = t;
    a->table->tail = &t->next;
    if (++a->table->n > TICKETS_MAX) {
        old = a->table->head;
        a->table->head = old->next;
        a->table->n--;
    }
    pthread_mutex_unlock(&a->table->lock);
    free(old);
    return 0;
}

static int begin(struct aux_figure2 *f, struct aux_call *c)
{
    const uint8_t *flat = aux_services.flat((struct fp_aux_call *)c, c->chunk);

    /* Twice the pieces: each may bring a hash that was found, and one that was written. */
    f->len = c->chunk->len_bytes;
    f->cap = 2 * (f->len / FP_AUX_PIECE_MIN_BYTES + 1);
    for (f->mask = 64; f->mask < f->cap; f->mask *= 2)
        ;
    f->mask--;
    /* The paper's buffer is not const; it is mapped read-only all the same. */
    memcpy(&f->base, &flat, sizeof(flat));
    f->piece = malloc(f->cap * sizeof(*f->piece));
    f->entry = malloc(f->cap * sizeof(*f->entry));
    f->bucket = malloc((f->mask + 1) * sizeof(*f->bucket));
    if (!flat || !f->piece || !f->entry || !f->bucket)
        return -ENOMEM;
    memset(f->bucket, 0xff, (f->mask + 1) * sizeof(*f->bucket));
    return 0;
}

int aux_figure2_run(struct aux_app *a, struct aux_call *c)
{
    struct aux_figure2 f = {.len = 0};
    bool open = false;
    int rc = begin(&f, c);

    if (rc < 0)
        goto out;
    c->f2 = &f;
    rc = a->plugin->app.write(a->state, (struct fp_aux_call *)c, f.base, f.len);
    c->f2 = NULL;
    if (rc > 0)
        rc = 0;
    if (rc < 0 || c->job->nstages > 0)
        goto out;
    for (uint32_t i = 0; i < f.npieces; i++)
        open = open || f.piece[i].kind == UNKNOWN;
    if (open)
        aux_log(a->h, a->index, FP_AUX_WARN, "write left a piece that it neither wrote nor found: it is stored");
    rc = build(c, &f, 0);
    for (uint32_t min = 2 * FP_AUX_PIECE_MIN_BYTES; rc == -ENOSPC; min *= 2)
        rc = build(c, &f, min);
    if (rc == 0)
        rc = note_pending(a, c, &f);
    if (rc == 0)
        rc = c->pieces->new_bytes < f.len ? FP_AUX_PIECES : FP_AUX_PASS;
out:
    free(f.piece);
    free(f.entry);
    free(f.bucket);
    return rc;
}

void aux_figure2_stored(struct aux_app *a, uint64_t number, struct fp_aux_place place)
{
    struct aux_table *tab = a->table;
    struct ticket *t = NULL;

    pthread_mutex_lock(&tab->lock);
    for (struct ticket **p = &tab->head; *p; p = &(*p)->next) {
        if ((*p)->number == number) {
            t = *p;
            *p = t->next;
            if (!*p)
                tab->tail = p;
            tab->n--;
            break;
        }
    }
    pthread_mutex_unlock(&tab->lock);
    if (!t)
        return;
    const uint8_t *key[64];
    uint32_t key_bytes[64], n = 0;
    struct value v[64];

    for (uint32_t i = 0; i < t->n; i++) {
        if ((uint64_t)t->v[i].at + t->v[i].len <= place.len_bytes) {
            key[n] = t->v[i].key;
            key_bytes[n] = t->v[i].key_bytes;
            v[n++] = (struct value){.chunk = htole64(place.chunk), .off = htole32(place.off + t->v[i].at), .len = htole32(t->v[i].len)};
        }
        if (n > 0 && (n == 64 || i + 1 == t->n)) {
            aux_svc_table_put(a, key, key_bytes, v, sizeof(v[0]), n);
            n = 0;
        }
    }
    free(t);
}

struct aux_table *aux_figure2_table(void)
{
    struct aux_table *t = calloc(1, sizeof(*t));

    if (t) {
        pthread_mutex_init(&t->lock, NULL);
        t->tail = &t->head;
    }
    return t;
}
