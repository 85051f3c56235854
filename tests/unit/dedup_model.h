/*
 * The host as dedup sees it, for tests of the plugin alone: stored chunks with their notes, what fp-mount passes over, and a window rebuilt from what the plugin says of it. One per
 * program: it is included, not linked.
 */
#ifndef TESTS_DEDUP_MODEL_H
#define TESTS_DEDUP_MODEL_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "auxapps/dedup/note.h"
#include "auxapps/dedup/payoff.h"
#include "auxapps/dedup/thin.h"
#include "fp/auxapp.h"
#include "fp/zeros.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define WINDOW_BYTES (1u << 20)
#define WINDOWS_MAX 32u
#define CHUNKS_MAX 1024u

struct stored { uint8_t *data; uint32_t bytes; uint8_t *note; uint32_t note_bytes; unsigned version; uint64_t keys[1024]; uint32_t nkeys; };

/* The host and, as its first member, the handle that the plugin sees; the call is the same object. */
struct model {
    struct fp_aux_handle handle;
    struct stored chunk[CHUNKS_MAX];   /* number 1 .. */
    uint32_t nchunks;
    unsigned version;
    const char *options[16][2];
    uint8_t *rebuilt;                  /* window being told */
    uint32_t told;                     /* bytes told of it */
    const uint8_t *window;
    uint8_t *fresh;
    uint32_t fresh_bytes, runs;
    int last_kind;
    uint8_t note[FP_AUX_NOTE_MAX_BYTES];
    uint32_t note_bytes, nkeys;
    uint64_t keys[1024];
    uint64_t stored_bytes, note_total, compared;
    bool no_earlier;               /* each version is a file that has none */
    int64_t on, index_bytes, index_most, cut_short, given_up, anew;
    const uint8_t *used_percent;   /* of the first eight chunks; NULL, and of others: 100 */
    uint64_t free_bytes;           /* in the store */
    struct fp_aux_skip skip;       /* what need not come, as the plugin said last */
    uint64_t passed, come;         /* bytes that did not; that did */
    unsigned said;                 /* calls of skip */
    int skip_rc;                   /* what they give */
    bool forgets;                  /* the next word is lost */
    uint32_t synthetic;            /* pieces of 4 KiB that each version's earlier one had, with digests that nothing has */
};

static struct model m;
extern const struct fp_aux_app *fp_aux_app(uint32_t abi);

/* -------------------------------------------------------------- services */

static const char *option_text(struct fp_aux_host *h, const char *name)
{
    const struct fp_aux_option *o = fp_aux_app(FP_AUX_ABI)->options;

    (void)h;
    for (unsigned i = 0; i < 16 && m.options[i][0]; i++)
        if (strcmp(m.options[i][0], name) == 0)
            return m.options[i][1];
    while (strcmp(o->name, name) != 0)
        o++;
    return o->fallback;
}

static int64_t option_number(struct fp_aux_host *h, const char *name)
{
    const char *text = option_text(h, name);
    char *end;
    long n = strtol(text, &end, 10);

    return strcmp(end, "KiB") == 0 ? n << 10 : strcmp(end, "MiB") == 0 ? n << 20 : n;
}

static inline void count(struct fp_aux_host *h, const char *counter, int64_t add)
{
    (void)h;
    assert_string_not_equal(counter, "errors");
    if (strcmp(counter, "versions cut short") == 0)
        m.cut_short += add;
    if (strcmp(counter, "versions given up") == 0)
        m.given_up += add;
    if (strcmp(counter, "stored anew bytes") == 0)
        m.anew += add;
}

static inline void gauge(struct fp_aux_host *h, const char *counter, int64_t value)
{
    (void)h;
    if (strcmp(counter, "on") == 0)
        m.on = value;
    else
        assert_string_equal(counter, "index bytes");
    if (strcmp(counter, "on") != 0) {
        m.index_bytes = value;
        m.index_most = value > m.index_most ? value : m.index_most;
    }
}

static inline void begin_piece(uint32_t off, uint32_t len, int kind)
{
    assert_int_equal(off, m.told);
    assert_true(len > 0);
    m.runs += m.told == 0 || kind != m.last_kind;
    m.last_kind = kind;
    m.told += len;
}

static int piece_new(struct fp_aux_call *c, uint32_t off, uint32_t len)
{
    (void)c;
    begin_piece(off, len, 0);
    memcpy(m.rebuilt + off, m.window + off, len);
    memcpy(m.fresh + m.fresh_bytes, m.window + off, len);
    m.fresh_bytes += len;
    return 0;
}

static int piece_zero(struct fp_aux_call *c, uint32_t off, uint32_t len)
{
    (void)c;
    begin_piece(off, len, 1);
    memset(m.rebuilt + off, 0, len);
    return 0;
}

static int piece_same(struct fp_aux_call *c, uint32_t off, uint32_t len, uint32_t earlier)
{
    (void)c;
    begin_piece(off, len, 2);
    assert_true(earlier + len <= off);
    memcpy(m.rebuilt + off, m.rebuilt + earlier, len);
    return 0;
}

static int piece_stored(struct fp_aux_call *c, uint32_t off, uint32_t len, struct fp_aux_place p)
{
    (void)c;
    begin_piece(off, len, 3);
    assert_in_range(p.chunk, 1, m.nchunks);
    assert_true(p.off + len <= m.chunk[p.chunk - 1].bytes);
    memcpy(m.rebuilt + off, m.chunk[p.chunk - 1].data + p.off, len);
    return 0;
}

static int note(struct fp_aux_call *c, const void *data, uint32_t len, const uint64_t *keys, uint32_t nkeys)
{
    (void)c;
    assert_in_range(len, 1, FP_AUX_NOTE_MAX_BYTES);
    memcpy(m.note, data, len);
    memcpy(m.keys, keys, nkeys * sizeof(*keys));
    m.note_bytes = len;
    m.nkeys = nkeys;
    return 0;
}

static int tell(uint32_t i, int (*each)(void *, const struct fp_aux_noted *), void *arg)
{
    const struct stored *s = &m.chunk[i];
    struct fp_aux_noted n = { .size_bytes = sizeof(n), .chunk = i + 1, .data_bytes = s->bytes, .note_bytes = s->note_bytes, .note = s->note, .free_bytes = m.free_bytes };

    if (m.used_percent && i < 8)
        n.unused_bytes = s->bytes / 100 * (100 - m.used_percent[i]);
    return s->note_bytes ? each(arg, &n) : 0;
}

/* The notes of a large file, as if it had been written before: chunks of 256 pieces whose digests are numbers. */
static int tell_synthetic(uint64_t serial, int (*each)(void *, const struct fp_aux_noted *), void *arg)
{
    static uint8_t buf[FP_AUX_NOTE_MAX_BYTES];
    uint8_t digest[DIGEST_MAX_BYTES] = { 0 };
    struct note_writer w;
    uint64_t x = serial << 32;

    for (uint32_t n = 0; n < m.synthetic; n += 256) {
        struct fp_aux_noted noted = { .size_bytes = sizeof(noted), .chunk = 1000000 + n, .data_bytes = 256 * 4096, .note = buf };

        note_begin(&w, buf, sizeof(buf), DIGEST_SHA1, 4096);
        for (uint32_t i = 0; i < 256; i++) {
            uint64_t spread = ++x * 0x9e3779b97f4a7c15u;

            memcpy(digest, &spread, sizeof(spread));
            assert_true(note_add(&w, 4096, digest));
        }
        noted.note_bytes = w.len_bytes;
        if (each(arg, &noted) != 0)
            break;
    }
    return 0;
}

static int earlier(struct fp_aux_host *h, uint64_t serial, const char *pattern, int (*each)(void *, const struct fp_aux_noted *), void *arg)
{
    (void)h;
    assert_int_equal(serial, m.version);
    assert_null(pattern);
    if (m.synthetic)
        return tell_synthetic(serial, each, arg);
    if (m.version == 1 || m.no_earlier)
        return -ENOENT;
    for (uint32_t i = 0; i < m.nchunks; i++)
        if (tell(i, each, arg) != 0)
            break;
    return 0;
}

static int find(struct fp_aux_host *h, const uint64_t *keys, uint32_t nkeys, int (*each)(void *, const struct fp_aux_noted *), void *arg)
{
    (void)h;
    for (uint32_t i = 0; i < m.nchunks; i++)
        for (uint32_t k = 0; k < m.chunk[i].nkeys; k++)
            for (uint32_t j = 0; j < nkeys; j++)
                if (keys[j] == m.chunk[i].keys[k]) {
                    (void)tell(i, each, arg);
                    k = m.chunk[i].nkeys;
                    j = nkeys;
                }
    return 0;
}

static int read_chunk(struct fp_aux_host *h, struct fp_aux_place p, void *buf)
{
    (void)h;
    memcpy(buf, m.chunk[p.chunk - 1].data + p.off, p.len_bytes);
    m.compared += p.len_bytes;
    return 0;
}

static int need_not_come(struct fp_aux_host *h, const struct fp_aux_skip *s)
{
    (void)h;
    assert_true(s->size_bytes == sizeof(*s) && s->come <= s->of && (s->of == 0 || s->step_bytes > 0));
    m.said++;
    if (m.skip_rc == 0 && !m.forgets)
        m.skip = *s;
    m.forgets = false;
    return m.skip_rc;
}

static const struct fp_aux_services services = {
    .size_bytes = sizeof(services), .abi = FP_AUX_ABI, .option_text = option_text, .option_number = option_number, .count = count,
    .gauge = gauge, .piece_new = piece_new, .piece_zero = piece_zero, .piece_same = piece_same, .piece_stored = piece_stored,
    .note = note, .earlier = earlier, .find = find, .read_chunk = read_chunk, .skip = need_not_come,
};

/* -------------------------------------------------------------- versions */

static void *state_of;

static inline void start(const char *const options[][2])
{
    struct fp_aux_host *host = (struct fp_aux_host *)(void *)&m;

    memset(&m, 0, sizeof(m));
    m.handle.services = &services;
    for (unsigned i = 0; options && options[i][0]; i++)
        memcpy(m.options[i], options[i], sizeof(m.options[i]));
    m.rebuilt = malloc(WINDOW_BYTES);
    m.fresh = malloc(WINDOW_BYTES);
    assert_int_equal(fp_aux_app(FP_AUX_ABI)->start(host, &state_of), 0);
}

static inline void stop(void)
{
    fp_aux_app(FP_AUX_ABI)->stop(state_of);
    for (uint32_t i = 0; i < m.nchunks; i++) {
        free(m.chunk[i].data);
        free(m.chunk[i].note);
    }
    free(m.rebuilt);
    free(m.fresh);
}

static inline void keep(void)
{
    struct stored *s = &m.chunk[m.nchunks++];

    assert_true(m.nchunks <= CHUNKS_MAX);
    s->data = malloc(m.fresh_bytes);
    memcpy(s->data, m.fresh, m.fresh_bytes);
    s->bytes = m.fresh_bytes;
    s->note = malloc(m.note_bytes + 1);
    memcpy(s->note, m.note, m.note_bytes);
    s->note_bytes = m.note_bytes;
    memcpy(s->keys, m.keys, sizeof(m.keys));
    s->nkeys = m.nkeys;
    m.stored_bytes += m.fresh_bytes;
    m.note_total += m.note_bytes;
}

/* As fp-mount does it. */
static inline bool passes_over(const uint8_t *data, uint32_t bytes, uint64_t off)
{
    struct fp_aux_skip *s = &m.skip;

    if (s->bytes == 0 || (s->of && off / s->step_bytes % s->of < s->come) || ((s->flags & FP_AUX_SKIP_BUT_ZEROS) && fp_zeros_any_block(data, bytes))) {
        m.come += bytes;
        return false;
    }
    s->bytes -= s->bytes < bytes ? s->bytes : bytes;
    m.passed += bytes;
    return true;
}

/* One window through the plugin, in parts of 64 KiB that are not neighbours. */
static inline void write_window(const uint8_t *data, uint32_t bytes, uint64_t off)
{
    struct fp_aux_part part[16];
    struct fp_aux_chunk k = { .size_bytes = sizeof(k), .len_bytes = bytes, .whole = true, .parts = part, .file_off = off, .ino = m.version, .file_serial = m.version };
    int verdict;

    k.passed_bytes = m.passed;
    if (passes_over(data, bytes, off))
        return;
    for (uint32_t at = 0; at < bytes; at += 65536) {
        uint32_t n = bytes - at < 65536 ? bytes - at : 65536;
        uint8_t *copy = malloc(n);

        memcpy(copy, data + at, n);
        part[k.nparts++] = (struct fp_aux_part){ copy, n };
    }
    m.window = data;
    m.told = m.fresh_bytes = m.runs = m.note_bytes = m.nkeys = 0;
    verdict = fp_aux_app(FP_AUX_ABI)->chunk_out(state_of, (struct fp_aux_call *)(void *)&m, &k);
    if (verdict == FP_AUX_PASS) {
        assert_int_equal(m.told, 0);
        memcpy(m.fresh, data, m.fresh_bytes = bytes);
    } else {
        assert_int_equal(verdict, FP_AUX_PIECES);
        assert_int_equal(m.told, bytes);
        assert_memory_equal(m.rebuilt, data, bytes);
    }
    if (m.fresh_bytes)
        keep();
    for (uint32_t i = 0; i < k.nparts; i++)
        free((void *)(uintptr_t)part[i].data);
}

/* Bytes that the version added to the store. */
static inline uint64_t write_version(const uint8_t *data, uint32_t bytes)
{
    uint64_t before = m.stored_bytes;
    struct fp_aux_file sealed = { .size_bytes = sizeof(sealed) };

    sealed.file_serial = ++m.version;
    for (uint32_t at = 0; at < bytes; at += WINDOW_BYTES)
        write_window(data + at, bytes - at < WINDOW_BYTES ? bytes - at : WINDOW_BYTES, at);
    (void)fp_aux_app(FP_AUX_ABI)->file_sealed(state_of, NULL, &sealed);
    return m.stored_bytes - before;
}

static uint64_t seed = 7;

static inline void fill(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        p[i] = (uint8_t)(seed >> 33);
    }
}

static inline uint8_t *image(uint32_t bytes)
{
    uint8_t *p = malloc(bytes);

    assert_non_null(p);
    fill(p, bytes);
    return p;
}

#define IMAGE_BYTES (8u << 20)

#endif
