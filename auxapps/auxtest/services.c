/*
 * The services of the host, over a store in memory (see auxtest.h). Called by the plugin on the threads of the check.
 *
 * They are as strict as the real ones, and say in words what the plugin got wrong. fail_percent of those that can fail do so: what a plugin
 * does then is part of what is checked.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auxapps/auxtest/auxtest.h"

static int trouble(struct fp_aux_host *h)
{
    static const int errors[] = { -EAGAIN, -EIO, -ENOMEM, -ECANCELED, -ENOTSUP, -ENOSPC };
    int rc = 0;

    pthread_mutex_lock(&h->lock);
    if (random_below(&h->random, 100) < h->fail_percent)
        rc = errors[random_below(&h->random, 6)];
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* -------------------------------------------------------------- options, log, counters */

static const char *option_text(struct fp_aux_host *h, const char *name) { return aux_option_text(h->options, name); }
static int64_t option_number(struct fp_aux_host *h, const char *name) { return aux_option_number(h->options, name); }

/* Control characters must not command the terminal. */
static void say(const char *bytes)
{
    const signed char *text = (const signed char *)bytes;
    char line[512];
    size_t n = 0;

    for (; text[n] && n < sizeof(line) - 1; n++)
        line[n] = text[n] < 0x20 || text[n] == 0x7f ? '?' : (char)text[n]; /* also what is not ASCII */
    line[n] = '\0';
    printf("        says: %s\n", line);
}

static void log_line(struct fp_aux_host *h, int level, const char *text)
{
    static atomic_uint lines; /* of this check */

    if (atomic_fetch_add(&lines, 1) < 3 || h->verbose)
        say(text);
    if (level < FP_AUX_ERROR || level > FP_AUX_DEBUG)
        auxtest_fail("fp_aux_log with level %d", level);
    if (strchr(text, '\n'))
        auxtest_fail("a log line has a newline in it");
}

static void count(struct fp_aux_host *h, const char *counter, int64_t add)
{
    if (!counter || !*counter || strlen(counter) > 23)
        auxtest_fail("a counter needs a name of 1 to 23 characters");
    pthread_mutex_lock(&h->lock);
    h->counted += (uint64_t)(add > 0 ? add : 0);
    pthread_mutex_unlock(&h->lock);
}

static bool cancelled(struct fp_aux_call *c) { return atomic_load(&c->cancelled); }
static int64_t left_ms(struct fp_aux_call *c) { return cancelled(c) ? 0 : 10000; }

/* -------------------------------------------------------------- chunks on their way out */

static const struct fp_aux_chunk *chunk_of(const struct fp_aux_call *c, const char *service)
{
    if (!c->chunk)
        auxtest_fail("%s outside of chunk_out and write", service);
    return c->chunk;
}

static const uint8_t *flat(struct fp_aux_call *c, const struct fp_aux_chunk *k)
{
    uint32_t at = 0;

    if (k != chunk_of(c, "fp_aux_flat"))
        auxtest_fail("fp_aux_flat of a chunk that is not the call's");
    if (trouble(c->host))
        return NULL;
    if (!c->flat) {
        c->flat = malloc(k->len_bytes);
        if (!c->flat)
            return NULL;
        for (uint32_t i = 0; i < k->nparts; at += k->parts[i++].len_bytes)
            memcpy(c->flat + at, k->parts[i].data, k->parts[i].len_bytes);
    }
    return c->flat;
}

static uint8_t *out_buffer(struct fp_aux_call *c, uint32_t *cap_bytes)
{
    uint32_t cap = chunk_of(c, "fp_aux_out_buffer")->len_bytes + FP_AUX_EXPAND_MAX_BYTES;

    if (trouble(c->host))
        return NULL;
    if (!c->out.map)
        buffer_new(&c->out, cap);
    if (cap_bytes)
        *cap_bytes = cap;
    return c->out.data;
}

static int replace(struct fp_aux_call *c, uint32_t len_bytes)
{
    uint32_t cap = chunk_of(c, "fp_aux_replace")->len_bytes + FP_AUX_EXPAND_MAX_BYTES;

    if (!c->out.map)
        auxtest_fail("fp_aux_replace without fp_aux_out_buffer");
    if (c->replaced_bytes)
        auxtest_fail("fp_aux_replace twice in one call");
    if (len_bytes == 0 || len_bytes > cap)
        auxtest_fail("fp_aux_replace with %u bytes: 1 to %u are allowed", len_bytes, cap);
    c->replaced_bytes = len_bytes;
    return 0;
}

static void copy_of(const struct fp_aux_chunk *k, uint32_t off, uint8_t *dst, uint32_t len)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < k->nparts && len > 0; at += k->parts[i++].len_bytes) {
        uint32_t in, n;

        if (off >= at + k->parts[i].len_bytes)
            continue;
        in = off - at;
        n = k->parts[i].len_bytes - in < len ? k->parts[i].len_bytes - in : len;
        memcpy(dst, k->parts[i].data + in, n);
        dst += n;
        off += n;
        len -= n;
    }
}

static void piece(struct fp_aux_call *c, uint32_t off, uint32_t len, int kind, bool continues)
{
    const struct fp_aux_chunk *k = chunk_of(c, "fp_aux_piece_*");

    if (c->replaced_bytes)
        auxtest_fail("pieces and a replacement in one call");
    if (off != c->told || len == 0 || len > k->len_bytes - off)
        auxtest_fail("piece [%u, %u): pieces come in order and without gaps; the next one begins at %u of %u", off, off + len, c->told,
                 k->len_bytes);
    c->runs += !(kind == c->last_kind && continues);
    c->last_kind = kind;
    c->told += len;
    if (c->runs > FP_AUX_PIECES_MAX(k->len_bytes))
        auxtest_fail("more than %u pieces (FP_AUX_PIECES_MAX): let short ones be new", FP_AUX_PIECES_MAX(k->len_bytes));
}

static int piece_new(struct fp_aux_call *c, uint32_t off, uint32_t len)
{
    piece(c, off, len, 0, true);
    copy_of(c->chunk, off, c->rebuilt + off, len);
    memcpy(c->fresh + c->fresh_bytes, c->rebuilt + off, len);
    c->fresh_bytes += len;
    return 0;
}

static int piece_zero(struct fp_aux_call *c, uint32_t off, uint32_t len)
{
    piece(c, off, len, 1, true);
    memset(c->rebuilt + off, 0, len);
    return 0;
}

static int piece_same(struct fp_aux_call *c, uint32_t off, uint32_t len, uint32_t earlier)
{
    piece(c, off, len, 2, earlier == c->last_end);
    if (earlier + len > off)
        auxtest_fail("piece [%u, %u) is the same as [%u, %u), which does not come before it", off, off + len, earlier, earlier + len);
    memcpy(c->rebuilt + off, c->rebuilt + earlier, len);
    c->last_end = earlier + len;
    return 0;
}

static int piece_stored(struct fp_aux_call *c, uint32_t off, uint32_t len, struct fp_aux_place p)
{
    struct fp_aux_host *h = c->host;

    piece(c, off, len, 3, p.off == c->last_end);
    pthread_mutex_lock(&h->lock);
    if (p.chunk == 0 || p.chunk > h->nchunks || p.len_bytes != len || p.off + len > h->chunk[p.chunk - 1].len_bytes)
        auxtest_fail("piece [%u, %u) refers to a place that no service gave", off, off + len);
    memcpy(c->rebuilt + off, h->chunk[p.chunk - 1].data + p.off, len);
    pthread_mutex_unlock(&h->lock);
    c->last_end = p.off + len;
    return 0;
}

static int note(struct fp_aux_call *c, const void *data, uint32_t len, const uint64_t *keys, uint32_t nkeys)
{
    int rc = trouble(c->host);

    (void)chunk_of(c, "fp_aux_note");
    if (len == 0 || len > FP_AUX_NOTE_MAX_BYTES || nkeys > FP_AUX_NOTE_KEYS_MAX)
        auxtest_fail("fp_aux_note with %u bytes and %u keys", len, nkeys);
    if (rc < 0)
        return rc;
    free(c->note.note);
    free(c->note.keys);
    c->note.note = malloc(len);
    c->note.keys = calloc(nkeys + 1, sizeof(*keys));
    memcpy(c->note.note, data, len);
    if (nkeys)
        memcpy(c->note.keys, keys, nkeys * sizeof(*keys));
    c->note.note_bytes = len;
    c->note.nkeys = nkeys;
    return 0;
}

static uint64_t ticket(struct fp_aux_call *c)
{
    (void)chunk_of(c, "fp_aux_ticket");
    return c->ticket = 1;
}

/* -------------------------------------------------------------- what is stored */

static int hold(struct fp_aux_call *c, uint64_t chunk)
{
    int rc = trouble(c->host);

    return rc < 0 ? rc : chunk > 0 && chunk <= c->host->nchunks ? 0 : -ENOENT;
}

/* Tells of one chunk from a copy whose last byte is followed by a guard. Of some, little is in use. */
static int tell(const struct stored *s, uint64_t chunk, int (*each)(void *, const struct fp_aux_noted *), void *arg)
{
    struct buffer b;
    struct fp_aux_noted n = { .size_bytes = sizeof(n), .chunk = chunk, .data_bytes = s->len_bytes, .note_bytes = s->note_bytes,
                  .free_bytes = (uint64_t)1 << 30, .unused_bytes = chunk % 4 == 3 ? s->len_bytes / 4 * 3 : 0 };
    int rc;

    buffer_new(&b, s->note_bytes);
    memcpy(b.data, s->note, s->note_bytes);
    n.note = b.data;
    rc = each(arg, &n);
    buffer_free(&b);
    return rc;
}

static int earlier(struct fp_aux_host *h, uint64_t serial, const char *pattern, int (*each)(void *, const struct fp_aux_noted *), void *arg)
{
    int rc = trouble(h);
    uint32_t n = h->nchunks;

    (void)serial;
    (void)pattern;
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < n; i++)
        if (h->chunk[i].note_bytes && tell(&h->chunk[i], i + 1, each, arg) != 0)
            break;
    return n ? 0 : -ENOENT;
}

static bool has_key(const struct stored *s, const uint64_t *keys, uint32_t nkeys)
{
    for (uint32_t i = 0; i < s->nkeys; i++)
        for (uint32_t j = 0; j < nkeys; j++)
            if (s->keys[i] == keys[j])
                return true;
    return false;
}

static int find(struct fp_aux_host *h, const uint64_t *keys, uint32_t nkeys, int (*each)(void *, const struct fp_aux_noted *), void *arg)
{
    int rc = trouble(h);
    uint32_t n = h->nchunks;

    if (nkeys > 1024)
        auxtest_fail("fp_aux_find with %u keys: 1024 at most", nkeys);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < n; i++)
        if (has_key(&h->chunk[i], keys, nkeys) && tell(&h->chunk[i], i + 1, each, arg) != 0)
            break;
    return 0;
}

static int read_chunk(struct fp_aux_host *h, struct fp_aux_place p, void *buf)
{
    int rc = trouble(h);

    if (rc < 0)
        return rc;
    if (p.chunk == 0 || p.chunk > h->nchunks || p.off + p.len_bytes > h->chunk[p.chunk - 1].len_bytes)
        return -ENOENT;
    memcpy(buf, h->chunk[p.chunk - 1].data + p.off, p.len_bytes);
    return 0;
}

/* -------------------------------------------------------------- `write` */

static void *get_chunk(struct fp_aux_call *c, void **output_buffer, uint32_t want, uint32_t *len_bytes)
{
    const struct fp_aux_chunk *k = chunk_of(c, "fp_aux_get_chunk");
    uint8_t *p;

    if (!output_buffer || want == 0 || want % FP_AUX_PIECE_MIN_BYTES != 0)
        auxtest_fail("fp_aux_get_chunk with %u bytes: a multiple of %u is wanted", want, FP_AUX_PIECE_MIN_BYTES);
    if (c->piece_len && !c->written && c->told < c->at)
        auxtest_fail("the piece [%u, %u) was neither written nor found in the hash table", c->told, c->at);
    if (c->at == k->len_bytes)
        return NULL;
    *len_bytes = k->len_bytes - c->at < want ? k->len_bytes - c->at : want;
    if (!c->flat && (c->flat = malloc(k->len_bytes)))
        copy_of(k, 0, c->flat, k->len_bytes);
    p = c->flat + c->at;
    c->piece_len = *len_bytes;
    c->at += *len_bytes;
    c->written = false;
    *output_buffer = p + *len_bytes;
    return p;
}

static int data_write(struct fp_aux_call *c, const void *chunk)
{
    if (!c->piece_len || chunk != c->flat + c->at - c->piece_len)
        auxtest_fail("fp_aux_data_write of something that fp_aux_get_chunk has not given last");
    if (c->written)
        auxtest_fail("fp_aux_data_write twice for one piece");
    c->written = true;
    return piece_new(c, c->at - c->piece_len, c->piece_len);
}

static struct entry *entry_of(struct fp_aux_host *h, const void *key, uint32_t key_bytes, bool make)
{
    struct entry *unused = NULL;

    if (key_bytes == 0 || key_bytes > FP_AUX_KEY_MAX_BYTES)
        auxtest_fail("a key of %u bytes: 1 to %u are allowed", key_bytes, FP_AUX_KEY_MAX_BYTES);
    for (unsigned i = 0; i < TABLE_MAX; i++) {
        struct entry *e = &h->table[i];

        if (e->used && e->key_bytes == key_bytes && memcmp(e->key, key, key_bytes) == 0)
            return e;
        if (!e->used && !unused)
            unused = e;
    }
    return make ? unused : NULL;
}

static int hashtable_get(struct fp_aux_call *c, const void *hash, uint32_t hash_bytes)
{
    int rc = trouble(c->host);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&c->host->lock);
    rc = entry_of(c->host, hash, hash_bytes, false) != NULL;
    pthread_mutex_unlock(&c->host->lock);
    return rc;
}

static int hashtable_update(struct fp_aux_call *c, int *result, const void *chunk, const void *hash, uint32_t hash_bytes)
{
    struct fp_aux_host *h = c->host;
    uint32_t off = c->at - c->piece_len;
    struct fp_aux_place p;
    struct entry *e;

    (void)chunk;
    if (*result < 0)
        return 0;
    pthread_mutex_lock(&h->lock);
    e = entry_of(h, hash, hash_bytes, c->written);
    if (e && !e->used && h->nchunks < CHUNKS_MAX) { /* stored at once: there is nothing to wait for here */
        struct stored *s = &h->chunk[h->nchunks++];

        s->data = malloc(c->piece_len);
        s->len_bytes = c->piece_len;
        memcpy(s->data, c->flat + off, c->piece_len);
        *e = (struct entry){ .used = true, .key_bytes = hash_bytes, .value_bytes = sizeof(p) };
        memcpy(e->key, hash, hash_bytes);
        p = (struct fp_aux_place){ h->nchunks, 0, c->piece_len };
        memcpy(e->value, &p, sizeof(p));
    }
    if (e)
        memcpy(&p, e->value, sizeof(p));
    pthread_mutex_unlock(&h->lock);
    if (c->written)
        return 0;
    if (!e)
        auxtest_fail("fp_aux_hashtable_update of a piece that is neither written nor known");
    return piece_stored(c, off, c->piece_len, p);
}

/* -------------------------------------------------------------- table, files, messages */

static int table_get(struct fp_aux_host *h, const void *key, uint32_t key_bytes, void *value, uint32_t *value_bytes)
{
    int rc = trouble(h);
    struct entry *e;

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&h->lock);
    e = entry_of(h, key, key_bytes, false);
    rc = !e ? -ENOENT : e->value_bytes > *value_bytes ? -ERANGE : 0;
    if (rc == 0)
        memcpy(value, e->value, e->value_bytes);
    if (e)
        *value_bytes = e->value_bytes;
    pthread_mutex_unlock(&h->lock);
    return rc;
}

static int table_put(struct fp_aux_host *h, const void *key, uint32_t key_bytes, const void *value, uint32_t value_bytes, bool only_new)
{
    int rc = trouble(h);
    struct entry *e;

    if (value_bytes > FP_AUX_VALUE_MAX_BYTES)
        auxtest_fail("a value of %u bytes: %u at most", value_bytes, FP_AUX_VALUE_MAX_BYTES);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&h->lock);
    e = entry_of(h, key, key_bytes, true);
    rc = !e ? -ENOSPC : e->used && only_new ? -EEXIST : 0;
    if (rc == 0) {
        e->used = true;
        e->key_bytes = key_bytes;
        e->value_bytes = value_bytes;
        memcpy(e->key, key, key_bytes);
        memcpy(e->value, value, value_bytes);
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}

static int table_remove(struct fp_aux_host *h, const void *key, uint32_t key_bytes)
{
    int rc = trouble(h);
    struct entry *e;

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&h->lock);
    e = entry_of(h, key, key_bytes, false);
    if (e)
        e->used = false;
    pthread_mutex_unlock(&h->lock);
    return e ? 0 : -ENOENT;
}

static ssize_t file_read(struct fp_aux_host *h, uint64_t ino, uint64_t off, void *buf, uint32_t len)
{
    int rc = trouble(h);
    uint64_t n;

    (void)ino;
    if (len > 1u << 20)
        auxtest_fail("fp_aux_file_read of %u bytes: 1 MiB at most", len);
    if (rc < 0)
        return rc;
    n = off < h->file_bytes ? h->file_bytes - off : 0;
    n = n < len ? n : len;
    memcpy(buf, h->file + off, n);
    return (ssize_t)n;
}

static int file_write(struct fp_aux_host *h, const char *path, const void *data, uint32_t len, uint32_t mode)
{
    volatile uint8_t sum = 0;

    (void)mode;
    if (len > 1u << 20 || !*path || *path == '/')
        auxtest_fail("fp_aux_file_write('%s', %u bytes): at most 1 MiB, to a path relative to the mount", path, len);
    for (uint32_t i = 0; i < len; i++)
        sum ^= ((const uint8_t *)data)[i];
    return trouble(h);
}

static int file_find(struct fp_aux_host *h, const char *path, struct fp_aux_file *out)
{
    int rc = trouble(h);

    if (out->size_bytes == 0 || out->size_bytes > sizeof(*out))
        auxtest_fail("fp_aux_file_find: out->size_bytes must be set to sizeof(struct fp_aux_file)");
    if (rc < 0)
        return rc;
    out->ino = 7;
    out->path = path;
    out->len_bytes = h->file_bytes;
    return 0;
}

static ssize_t xattr_get(struct fp_aux_host *h, uint64_t ino, const char *name, void *value, uint32_t cap)
{
    int rc = trouble(h);

    (void)ino;
    (void)name;
    (void)value;
    (void)cap;
    return rc < 0 ? rc : -ENODATA;
}

static int xattr_set(struct fp_aux_host *h, uint64_t ino, const char *name, const void *value, uint32_t len)
{
    (void)ino;
    (void)value;
    if (strncmp(name, "user.", 5) != 0 || len > 65536)
        auxtest_fail("fp_aux_xattr_set('%s', %u bytes): names begin with user., at most 64 KiB", name, len);
    return trouble(h);
}

static int send_message(struct fp_aux_host *h, const char *node, uint64_t mount, const void *data, uint32_t len)
{
    int rc = trouble(h);

    (void)node;
    (void)mount;
    (void)data;
    if (len > FP_AUX_MESSAGE_MAX_BYTES)
        auxtest_fail("fp_aux_send of %u bytes: %u at most", len, FP_AUX_MESSAGE_MAX_BYTES);
    pthread_mutex_lock(&h->lock);
    h->sent++;
    pthread_mutex_unlock(&h->lock);
    return rc < 0 ? rc : 3;
}

/* What need not come comes all the same: that is always allowed. */
static int skip_chunks(struct fp_aux_host *h, const struct fp_aux_skip *s)
{
    if (s->size_bytes < sizeof(*s))
        auxtest_fail("fp_aux_skip: size_bytes is not set");
    if (s->come > s->of || (s->of > 0 && s->step_bytes == 0))
        auxtest_fail("fp_aux_skip: %u of %u places of %llu bytes", s->come, s->of, (unsigned long long)s->step_bytes);
    return trouble(h);
}

static int policy(struct fp_aux_host *h, const char *text, char *why, uint32_t why_bytes)
{
    int rc = trouble(h);

    if (!text || !*text)
        auxtest_fail("fp_aux_policy without words");
    if (why && why_bytes > 0)
        why[0] = '\0';
    return rc;
}

static const char *node_name(struct fp_aux_host *h)
{
    (void)h;
    return "auxtest";
}

/* A store that exists in memory is mounted nowhere. */
static const char *nowhere(struct fp_aux_host *h)
{
    (void)h;
    return "";
}

const struct fp_aux_services auxtest_services = {
    .size_bytes = sizeof(struct fp_aux_services), .abi = FP_AUX_ABI, .option_text = option_text, .option_number = option_number,
    .log = log_line, .count = count, .gauge = count, .cancelled = cancelled, .left_ms = left_ms, .flat = flat, .out_buffer = out_buffer,
    .replace = replace, .piece_new = piece_new, .piece_zero = piece_zero, .piece_same = piece_same, .piece_stored = piece_stored,
    .note = note, .ticket = ticket, .hold = hold, .earlier = earlier, .find = find, .read_chunk = read_chunk, .get_chunk = get_chunk,
    .data_write = data_write, .hashtable_get = hashtable_get, .hashtable_update = hashtable_update, .table_get = table_get,
    .table_put = table_put, .table_remove = table_remove, .file_read = file_read, .file_write = file_write, .file_find = file_find,
    .xattr_get = xattr_get, .xattr_set = xattr_set, .send = send_message, .node = node_name, .skip = skip_chunks,
    .policy = policy, .mountpoint = nowhere, .cores = nowhere,
};
