/*
 * Aux-app compress: chunks are stored compressed, reads undo it.
 *
 * Runs in fp-auxhost, any number of workers at once (FP_AUX_PARALLEL): each call takes a set of contexts of the libraries from a stack.
 *
 * Most checkpoints are floating-point noise that nothing compresses, and time on service cores is what this costs. So a
 * sample of each chunk is tried first, plain and with the bytes of 4- and 8-byte numbers sorted by significance (shuffle): the exponents of
 * neighbouring numbers are alike, their low bits are not. If no sample gets smaller, the chunk passes as it is. A result that saves no block of
 * the device is not worth a second step at reading, and passes, too. Sampling costs 5 % of compressing; a
 * flag per file was rejected, since a checkpoint mixes fields that compress with fields that do not.
 *
 * Coded bytes: u8 codec (1 zstd, 2 lz4), u8 bytes of the numbers shuffled (0, 4, 8), u16 zero, u32 bytes of data, little-endian; then what the library
 * made of the (shuffled) data.
 */
#include <lz4.h>
#include <lz4hc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "fp/auxapp.h"

#define HEADER_BYTES 8u
#define BLOCK_BYTES 4096u
#define ENVELOPE_ROOM_BYTES 512u       /* what the mount puts before coded bytes, rounded up */
#define SAMPLE_BYTES 16384u
#define SAMPLE_WORTH(n) ((n) - (n) / 20) /* smaller than this: 5 % */

enum codec { CODEC_ZSTD = 1, CODEC_LZ4 = 2 };

struct compress {
    struct fp_aux_host *host;
    enum codec codec;
    int level;
    int shuffle;                   /* -1: try which; else 0, 4, 8 */
    pthread_mutex_t lock;
    struct tools *idle;            /* lock */
};

/* What one call needs; kept for the next. */
struct tools {
    struct tools *next;
    ZSTD_CCtx *zc;
    ZSTD_DCtx *zd;
    void *lz4_state;               /* for LZ4_compress_fast_extState and the HC form, the larger of both */
    uint8_t *scratch;              /* shuffled bytes */
    uint32_t scratch_bytes;
};

static void tools_free(struct tools *t)
{
    ZSTD_freeCCtx(t->zc);
    ZSTD_freeDCtx(t->zd);
    free(t->lz4_state);
    free(t->scratch);
    free(t);
}

static struct tools *tools_get(struct compress *c)
{
    struct tools *t;

    pthread_mutex_lock(&c->lock);
    t = c->idle;
    if (t)
        c->idle = t->next;
    pthread_mutex_unlock(&c->lock);
    return t ? t : calloc(1, sizeof(*t));
}

static void tools_put(struct compress *c, struct tools *t)
{
    pthread_mutex_lock(&c->lock);
    t->next = c->idle;
    c->idle = t;
    pthread_mutex_unlock(&c->lock);
}

static uint8_t *scratch(struct tools *t, uint32_t bytes)
{
    if (t->scratch_bytes < bytes) {
        free(t->scratch);
        t->scratch = malloc(bytes);
        t->scratch_bytes = t->scratch ? bytes : 0;
    }
    return t->scratch;
}

/* -------------------------------------------------------------- shuffle */

/* Byte k of number i goes to k * n + i; bytes after the last whole number stay at the end. `width` is a constant where this is inlined, for the compiler. */
static inline __attribute__((always_inline)) void sort_bytes(const uint8_t *restrict in, uint8_t *restrict out, uint32_t bytes, uint32_t width)
{
    uint32_t n = bytes / width;

    for (uint32_t from = 0; from < n; from += 256) { /* stays in the first-level cache for all passes */
        uint32_t to = n - from < 256 ? n : from + 256;

        for (uint32_t k = 0; k < width; k++)
            for (uint32_t i = from; i < to; i++)
                out[(size_t)k * n + i] = in[(size_t)i * width + k];
    }
    memcpy(out + (size_t)n * width, in + (size_t)n * width, bytes - n * width);
}

static inline __attribute__((always_inline)) void unsort_bytes(const uint8_t *restrict in, uint8_t *restrict out, uint32_t bytes, uint32_t width)
{
    uint32_t n = bytes / width;

    for (uint32_t from = 0; from < n; from += 256) {
        uint32_t to = n - from < 256 ? n : from + 256;

        for (uint32_t k = 0; k < width; k++)
            for (uint32_t i = from; i < to; i++)
                out[(size_t)i * width + k] = in[(size_t)k * n + i];
    }
    memcpy(out + (size_t)n * width, in + (size_t)n * width, bytes - n * width);
}

static void shuffle(const uint8_t *in, uint8_t *out, uint32_t bytes, int width)
{
    if (width == 4)
        sort_bytes(in, out, bytes, 4);
    else
        sort_bytes(in, out, bytes, 8);
}

static void unshuffle(const uint8_t *in, uint8_t *out, uint32_t bytes, int width)
{
    if (width == 4)
        unsort_bytes(in, out, bytes, 4);
    else
        unsort_bytes(in, out, bytes, 8);
}

/* -------------------------------------------------------------- libraries */

/* Bytes of the result; 0: it does not fit in cap, or there is no memory. */
static uint32_t pack_zstd(struct tools *t, const uint8_t *in, uint32_t bytes, uint8_t *out, uint32_t cap, int level)
{
    size_t n;

    if (!t->zc)
        t->zc = ZSTD_createCCtx();
    if (!t->zc)
        return 0;
    n = ZSTD_compressCCtx(t->zc, out, cap, in, bytes, level);
    return ZSTD_isError(n) ? 0 : (uint32_t)n;
}

static uint32_t pack_lz4(struct tools *t, const uint8_t *in, uint32_t bytes, uint8_t *out, uint32_t cap, int level)
{
    int n, need = LZ4_sizeofState() > LZ4_sizeofStateHC() ? LZ4_sizeofState() : LZ4_sizeofStateHC();

    if (!t->lz4_state)
        t->lz4_state = malloc((size_t)need);
    if (!t->lz4_state)
        return 0;
    if (level > 2)
        n = LZ4_compress_HC_extStateHC(t->lz4_state, (const char *)in, (char *)out, (int)bytes, (int)cap, level);
    else
        n = LZ4_compress_fast_extState(t->lz4_state, (const char *)in, (char *)out, (int)bytes, (int)cap, level < 0 ? -level : 1);
    return n < 0 ? 0 : (uint32_t)n;
}

static uint32_t pack(const struct compress *c, struct tools *t, const uint8_t *in, uint32_t bytes, uint8_t *out, uint32_t cap)
{
    if (c->codec == CODEC_ZSTD)
        return pack_zstd(t, in, bytes, out, cap, c->level);
    return pack_lz4(t, in, bytes, out, cap, c->level);
}

/* -------------------------------------------------------------- out */

/* Size of the sample packed the fast way with this width of numbers; UINT32_MAX: it gets no smaller. */
static uint32_t sample_size(struct tools *t, const uint8_t *in, uint32_t bytes, int width)
{
    uint8_t sorted[SAMPLE_BYTES], out[SAMPLE_BYTES];
    uint32_t n;

    if (width) {
        shuffle(in, sorted, bytes, width);
        in = sorted;
    }
    n = pack_zstd(t, in, bytes, out, SAMPLE_WORTH(bytes), 1);
    return n ? n : UINT32_MAX;
}

/* Which width to take: 0, 4, 8; -1: the chunk is not worth it. */
static int choose_width(const struct compress *c, struct tools *t, const uint8_t *data, uint32_t bytes)
{
    static const int widths[] = { 0, 4, 8 };
    uint32_t n = bytes < SAMPLE_BYTES ? bytes : SAMPLE_BYTES, best = UINT32_MAX;
    const uint8_t *middle = data + ((bytes - n) / 2 & ~7u); /* headers are at the beginning */
    int width = -1;

    for (unsigned i = 0; i < 3; i++) {
        uint32_t size;

        if (c->shuffle >= 0 && c->shuffle != widths[i])
            continue;
        size = sample_size(t, middle, n, widths[i]);
        if (size < best) {
            best = size;
            width = widths[i];
        }
    }
    return width;
}

/* The longest result that saves a block of the device; 0: none can. */
static uint32_t worth_bytes(uint32_t bytes)
{
    uint32_t blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;

    if (blocks < 2)
        return 0;
    return (blocks - 1) * BLOCK_BYTES - ENVELOPE_ROOM_BYTES;
}

static void put_header(uint8_t *out, const struct compress *c, int width, uint32_t bytes)
{
    out[0] = (uint8_t)c->codec;
    out[1] = (uint8_t)width;
    out[2] = out[3] = 0;
    for (unsigned i = 0; i < 4; i++)
        out[4 + i] = (uint8_t)(bytes >> 8 * i);
}

static int code(const struct compress *c, struct fp_aux_call *call, struct tools *t, const uint8_t *data, uint32_t bytes, uint8_t *out)
{
    uint32_t room = worth_bytes(bytes), n = 0;
    int width = choose_width(c, t, data, bytes), rc;

    if (width > 0) {
        uint8_t *sorted = scratch(t, bytes);

        if (!sorted)
            return FP_AUX_PASS;
        shuffle(data, sorted, bytes, width);
        data = sorted;
        fp_aux_count(c->host, "shuffled", 1);
    }
    if (width >= 0)
        n = pack(c, t, data, bytes, out + HEADER_BYTES, room - HEADER_BYTES);
    if (n == 0) {
        fp_aux_count(c->host, "incompressible", 1);
        return FP_AUX_PASS;
    }
    put_header(out, c, width, bytes);
    rc = fp_aux_replace(call, HEADER_BYTES + n);
    return rc < 0 ? rc : FP_AUX_REPLACED;
}

static int compress_out(void *state, struct fp_aux_call *call, const struct fp_aux_chunk *k)
{
    struct compress *c = state;
    const uint8_t *data;
    struct tools *t;
    uint8_t *out;
    int rc = FP_AUX_PASS; /* out of memory is no reason to refuse a checkpoint */

    if (worth_bytes(k->len_bytes) == 0)
        return rc;
    data = fp_aux_flat(call, k);
    out = fp_aux_out_buffer(call, NULL);
    t = data && out ? tools_get(c) : NULL;
    if (t) {
        rc = code(c, call, t, data, k->len_bytes, out);
        tools_put(c, t);
    }
    return rc;
}

/* -------------------------------------------------------------- back */

static int unpack(struct tools *t, enum codec codec, const uint8_t *in, uint32_t in_bytes, uint8_t *out, uint32_t out_bytes)
{
    size_t n;

    if (codec == CODEC_LZ4)
        return LZ4_decompress_safe((const char *)in, (char *)out, (int)in_bytes, (int)out_bytes) == (int)out_bytes ? 0 : -EILSEQ;
    if (!t->zd)
        t->zd = ZSTD_createDCtx();
    if (!t->zd)
        return -ENOMEM;
    n = ZSTD_decompressDCtx(t->zd, out, out_bytes, in, in_bytes);
    return !ZSTD_isError(n) && n == out_bytes ? 0 : -EILSEQ;
}

static int decode(struct tools *t, const uint8_t *in, uint32_t in_bytes, uint8_t *out, uint32_t out_bytes)
{
    uint8_t *to = in[1] ? scratch(t, out_bytes) : out;
    int rc = to ? unpack(t, (enum codec)in[0], in + HEADER_BYTES, in_bytes - HEADER_BYTES, to, out_bytes) : -ENOMEM;

    if (rc == 0 && in[1])
        unshuffle(to, out, out_bytes, in[1]);
    return rc;
}

static int compress_in(void *state, struct fp_aux_call *call, const uint8_t *in, uint32_t in_bytes, uint8_t *out, uint32_t out_bytes)
{
    struct compress *c = state;
    struct tools *t;
    uint32_t bytes = 0;
    int rc = -ENOMEM;

    (void)call;
    if (in_bytes <= HEADER_BYTES || (in[0] != CODEC_ZSTD && in[0] != CODEC_LZ4) || (in[1] != 0 && in[1] != 4 && in[1] != 8))
        return -EILSEQ;
    for (unsigned i = 0; i < 4; i++)
        bytes |= (uint32_t)in[4 + i] << 8 * i;
    if (bytes != out_bytes)
        return -EILSEQ;
    t = tools_get(c);
    if (t) {
        rc = decode(t, in, in_bytes, out, out_bytes);
        tools_put(c, t);
    }
    return rc;
}

/* -------------------------------------------------------------- start */

static int read_options(struct compress *c)
{
    const char *codec = fp_aux_option_text(c->host, "codec"), *sh = fp_aux_option_text(c->host, "shuffle");
    int64_t level = fp_aux_option_number(c->host, "level");

    c->codec = codec && strcmp(codec, "lz4") == 0 ? CODEC_LZ4 : CODEC_ZSTD;
    c->level = (int)level;
    c->shuffle = !sh || strcmp(sh, "auto") == 0 ? -1 : sh[0] == 'n' ? 0 : sh[0] - '0';
    if (c->codec == CODEC_LZ4 && level > LZ4HC_CLEVEL_MAX) {
        fp_aux_log(c->host, FP_AUX_ERROR, "level: lz4 has levels up to 12");
        return -EINVAL;
    }
    return 0;
}

static void compress_stop(void *state)
{
    struct compress *c = state;

    while (c->idle) {
        struct tools *t = c->idle;

        c->idle = t->next;
        tools_free(t);
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static int compress_start(struct fp_aux_host *host, void **state)
{
    struct compress *c = calloc(1, sizeof(*c));
    int rc;

    if (!c)
        return -ENOMEM;
    c->host = host;
    pthread_mutex_init(&c->lock, NULL);
    rc = read_options(c);
    if (rc < 0)
        compress_stop(c);
    else
        *state = c;
    return rc;
}

static int compress_configure(void *state, const char *name)
{
    struct compress *c = state;
    int level = c->level, rc = read_options(c);

    (void)name;
    if (rc < 0)
        c->level = level;
    return rc;
}

static const char *const codecs[] = { "zstd", "lz4", NULL };
static const char *const shuffles[] = { "auto", "none", "4", "8", NULL };

static const struct fp_aux_option options[] = {
    { .name = "codec", .fallback = "zstd", .choices = codecs, .help = "zstd, or lz4: three times as fast, and larger." },
    { .name = "level", .fallback = "1", .min = -7, .max = 19, .can_change = true,
      .help = "Of the codec: higher is smaller and slower. zstd -7 to 19; lz4 -7 to 2 fast, 3 to 12 high." },
    { .name = "shuffle", .fallback = "auto", .choices = shuffles, .can_change = true,
      .help = "Sort the bytes of 4- or 8-byte numbers by significance before. auto: what makes a sample of the chunk smallest." },
    { .name = NULL },
};

static const struct fp_aux_app app = {
    .abi = FP_AUX_ABI,
    .size_bytes = sizeof(app),
    .name = "compress",
    .version = "1",
    .summary = "stores chunks compressed (zstd or lz4); what does not compress is stored as it is",
    .flags = FP_AUX_PARALLEL | FP_AUX_CODES,
    .options = options,
    .start = compress_start,
    .stop = compress_stop,
    .configure = compress_configure,
    .chunk_out = compress_out,
    .chunk_in = compress_in,
};

FP_AUX_APP(app)
