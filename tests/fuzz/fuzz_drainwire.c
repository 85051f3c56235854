/*
 * What fp-benefactor tells fp-drain (fp/drainwire.h): messages for its tasks, as drain/check.c lets them through to the threads.
 *
 * Byte 0 is the kind. The fields are made from the rest, mostly so that they fit together; then some bytes may be changed, and the end cut off. What is taken is gone through
 * here as the threads do it, without a look at lengths beyond: what the check has promised must hold, and every byte belongs to something.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "drain/drain.h"
#include "fp/record.h"
#include "tests/fuzz/fuzz.h"

#define MESSAGE_MAX 8192u

static const uint8_t kinds[] = { FP_DW_CONFIG, FP_DW_SEG_ADD, FP_DW_SEG_DROP, FP_DW_PACE,  FP_DW_CANCEL, FP_DW_PREPARE, FP_DW_WRITE, FP_DW_FINISH, FP_DW_VERIFY, FP_DW_STAT,
                                 FP_DW_SWEEP,  FP_DW_CLEAN,   FP_DW_PROBE,    FP_DW_MEMORY, FP_DW_READ,   FP_DW_MERGE,   FP_DW_LIST,  FP_DW_DONE,   0 };
static const char *const paths[] = { "a", "run/chk_0001/rank_7.dat", "a/b/c", ".fp-drain-not", ".fp-drain/x", ".fp-target", "/a", "a//b", "a/..", "..", "a/", "" };

static struct {
    _Alignas(16) uint8_t bytes[MESSAGE_MAX];
    size_t len;
} m;

static void put(const void *p, size_t n)
{
    n = n < MESSAGE_MAX - m.len ? n : MESSAGE_MAX - m.len;
    memcpy(m.bytes + m.len, p, n);
    m.len += n;
}

/* A path, mostly a good one; how long it is. */
static uint32_t put_path(struct fuzz_in *in, bool name)
{
    const char *p = paths[fuzz_u8(in) < 200 ? fuzz_below(in, 4) % (name ? 1 : 4) : fuzz_below(in, sizeof paths / sizeof *paths)];

    put(p, strlen(p));
    return (uint32_t)strlen(p);
}

/* Mostly this, else any. */
static uint64_t near(struct fuzz_in *in, uint64_t want)
{
    return fuzz_u8(in) < 240 ? want : fuzz_number(in);
}

/* ---------------------------------------------------------------- made */

static void make_file(struct fuzz_in *in, uint32_t type)
{
    struct fp_dw_file f = { .tino = fuzz_number(in), .size = near(in, 1u << 20), .flags = fuzz_u8(in), .mode = (fuzz_u8(in) & 1 ? S_IFLNK : S_IFREG) | 0644 };
    bool path = type == FP_DW_PREPARE || type == FP_DW_FINISH || type == FP_DW_STAT;

    put(&f, sizeof f);
    f.path_bytes = (uint32_t)near(in, path ? put_path(in, false) : 0);
    f.tmp_bytes = (uint32_t)near(in, put_path(in, true));
    f.mark_bytes = (uint32_t)near(in, fuzz_u8(in) & 1 || S_ISLNK(f.mode) ? put_path(in, true) : 0);
    for (f.nxattrs = 0; type == FP_DW_FINISH && f.nxattrs < fuzz_below(in, 4u); f.nxattrs++) {
        uint32_t len[2] = { (uint32_t)near(in, 6), (uint32_t)near(in, 3) };

        put(len, sizeof len);
        put("user.aval", 9);
    }
    f.nxattrs = (uint32_t)near(in, f.nxattrs);
    memcpy(m.bytes, &f, sizeof f);
}

static void make_write(struct fuzz_in *in)
{
    struct fp_dw_write w = { .size = near(in, 1u << 20), .first = near(in, fuzz_below(in, 4)), .window_bytes = (uint32_t)near(in, 65536), .nsegments = fuzz_below(in, 3) };
    uint64_t segment = fuzz_number(in), at = 0;

    put(&w, sizeof w);
    w.tmp_bytes = (uint32_t)near(in, put_path(in, true));
    for (uint32_t i = 0; i < w.nsegments; i++)
        put(&segment, sizeof segment);
    for (uint32_t n = fuzz_below(in, 20); w.nslices < n; w.nslices++) {
        struct fp_dw_slice s = { .page = (uint32_t)near(in, 1), .at = (uint32_t)near(in, at), .len = (uint32_t)near(in, 1 + fuzz_u16(in) % 32768), .chunk_off = (uint32_t)near(in, 0),
                                 .chunk_len = (uint32_t)near(in, 65536), .data_len = fuzz_u8(in) < 200 ? 0 : (uint32_t)fuzz_number(in), .seg = (uint32_t)near(in, 0) };

        put(&s, sizeof s);
        at = (uint64_t)s.at + s.len + (fuzz_u8(in) & 1 ? 0 : 32768);
    }
    w.nslices = (uint32_t)near(in, w.nslices);
    w.nsegments = (uint32_t)near(in, w.nsegments);
    memcpy(m.bytes, &w, sizeof w);
}

static void make_verify(struct fuzz_in *in)
{
    struct fp_dw_verify v = { .size = near(in, 1u << 20), .first = near(in, fuzz_below(in, 4)), .window_bytes = (uint32_t)near(in, 65536), .count = 1 + fuzz_below(in, 8) };
    bool path = fuzz_u8(in) & 1;
    uint64_t sum = 1, at = 0;

    put(&v, sizeof v);
    v.path_bytes = (uint32_t)near(in, path ? put_path(in, false) : 0);
    v.tmp_bytes = (uint32_t)near(in, path ? 0 : put_path(in, true));
    for (uint32_t i = 0; i < v.count; i++)
        put(&sum, sizeof sum);
    for (uint32_t n = fuzz_below(in, 5); v.nothers < n; v.nothers++) {
        struct fp_dw_range r = { (uint32_t)near(in, at), (uint32_t)near(in, 1 + fuzz_u16(in) % 32768) };

        put(&r, sizeof r);
        at = (uint64_t)r.at + r.len + (fuzz_u8(in) & 1 ? 0 : 32768);
    }
    v.nothers = (uint32_t)near(in, v.nothers);
    v.count = (uint32_t)near(in, v.count);
    memcpy(m.bytes, &v, sizeof v);
}

static void make_others(struct fuzz_in *in, uint32_t type)
{
    if (type == FP_DW_READ) {
        struct fp_dw_read r = { .size = near(in, 1u << 20), .off = near(in, 4096), .len = (uint32_t)near(in, 4096), .to = near(in, 8192) };

        put(&r, sizeof r);
        r.path_bytes = (uint32_t)near(in, put_path(in, false));
        memcpy(m.bytes, &r, sizeof r);
    } else if (type == FP_DW_LIST) {
        struct fp_dw_list l = { .max = (uint32_t)near(in, 16) };

        put(&l, sizeof l);
        l.path_bytes = (uint32_t)near(in, put_path(in, false));
        l.after_bytes = (uint32_t)near(in, put_path(in, true));
        memcpy(m.bytes, &l, sizeof l);
    } else if (type == FP_DW_MERGE) {
        struct fp_dw_merge g = { .step = (uint32_t)near(in, 1 + fuzz_below(in, 4)), .first = fuzz_number(in), .count = fuzz_u32(in) };

        put(&g, sizeof g);
        g.path_bytes = (uint32_t)near(in, put_path(in, false));
        g.tmp_bytes = (uint32_t)near(in, put_path(in, true));
        g.log_bytes = (uint32_t)near(in, put_path(in, false));
        memcpy(m.bytes, &g, sizeof g);
    } else if (type == FP_DW_CONFIG) {
        struct fp_dw_config c = { .threads = (uint32_t)near(in, 2), .root_bytes = (uint32_t)near(in, 2), .declared_bytes = (uint32_t)near(in, 4), .ndeclared = (uint32_t)near(in, 2) };

        put(&c, sizeof c);
        put("/ra\0b", 6);
        memcpy(m.bytes, &c, sizeof c);
    } else if (type == FP_DW_PACE) {
        struct fp_dw_pace p = { .mode = (uint32_t)near(in, 1 + fuzz_below(in, 2)) };

        put(&p, sizeof p);
    } else {
        static const struct fp_dw_seg s;

        put(&s, type == FP_DW_SEG_ADD || type == FP_DW_SEG_DROP ? sizeof s : sizeof s.h);
    }
}

static void make(struct fuzz_in *in)
{
    struct fp_dw_head h = { .type = kinds[fuzz_below(in, sizeof kinds)] };

    m.len = 0;
    if (h.type >= FP_DW_PREPARE && (h.type <= FP_DW_FINISH || (h.type >= FP_DW_STAT && h.type <= FP_DW_PROBE)) && h.type != FP_DW_WRITE)
        make_file(in, h.type);
    else if (h.type == FP_DW_WRITE)
        make_write(in);
    else if (h.type == FP_DW_VERIFY)
        make_verify(in);
    else
        make_others(in, h.type);
    for (unsigned n = fuzz_u8(in) < 200 ? 0 : fuzz_below(in, 8); n; n--)
        m.bytes[fuzz_below(in, (uint32_t)m.len)] = fuzz_u8(in);
    if (fuzz_u8(in) > 230)
        m.len -= fuzz_below(in, (uint32_t)m.len);
    h.len_bytes = (uint32_t)near(in, m.len);
    memcpy(m.bytes, &h, m.len < sizeof h ? m.len : sizeof h);
}

/* ---------------------------------------------------------------- used, as the threads do */

static void use_path(const char *p, uint32_t len, bool may_be_ours)
{
    uint32_t from = 0;

    FUZZ_CHECK(len > 0 && len < 4096 && !memchr(p, '\0', len));
    for (uint32_t i = 0; i <= len; i++)
        if (i == len || p[i] == '/') {
            FUZZ_CHECK(i > from && !(i - from <= 2 && memcmp(p + from, "..", i - from) == 0)); /* never out of the root */
            FUZZ_CHECK(from || may_be_ours || ((i != 9 || memcmp(p, FP_DW_TEMP_DIR, 9) != 0) && (i != 10 || memcmp(p, FP_DW_MARKER, 10) != 0)));
            from = i + 1;
        }
}

static void use_name(const char *p, uint32_t len)
{
    use_path(p, len, true);
    FUZZ_CHECK(len <= FP_DW_TMP_MAX && !memchr(p, '/', len));
}

static void use_file(const struct fp_dw_file *f, const char *p, const char *end)
{
    if (f->path_bytes)
        use_path(p, f->path_bytes, false);
    if (f->h.type != FP_DW_STAT)
        use_name(p + f->path_bytes, f->tmp_bytes);
    p += f->path_bytes + f->tmp_bytes + f->mark_bytes;
    for (uint32_t i = 0; i < f->nxattrs; i++) {
        uint32_t len[2];

        memcpy(len, p, sizeof len);
        FUZZ_CHECK(len[0] > 0 && len[0] <= 255 && !memchr(p + 8, '\0', len[0]));
        p += sizeof len + len[0] + len[1];
        FUZZ_CHECK(p <= end);
    }
    FUZZ_CHECK(p == end);
}

static void use_write(const struct fp_dw_write *w, const char *p, const char *end)
{
    uint64_t before = 0;

    use_name(p, w->tmp_bytes);
    p += w->tmp_bytes + 8ull * w->nsegments;
    FUZZ_CHECK(w->nslices > 0);
    for (uint32_t i = 0; i < w->nslices; i++, p += sizeof(struct fp_dw_slice)) {
        struct fp_dw_slice s;
        uint64_t from;

        memcpy(&s, p, sizeof s);
        from = w->first * w->window_bytes + s.at;
        FUZZ_CHECK(s.len > 0 && s.at >= before && from + s.len <= w->size && s.seg < w->nsegments);
        FUZZ_CHECK(from / w->window_bytes == (from + s.len - 1) / w->window_bytes && s.at / w->window_bytes < FP_DW_SLICES_MAX);
        FUZZ_CHECK((uint64_t)s.chunk_off + s.len <= (s.data_len ? s.data_len : s.chunk_len) && s.chunk_len <= FP_STORED_MAX_BYTES && s.data_len <= FP_CHUNK_MAX_BYTES);
        before = (uint64_t)s.at + s.len;
    }
    FUZZ_CHECK(p == end);
}

static void use_verify(const struct fp_dw_verify *v, const char *p, const char *end)
{
    FUZZ_CHECK(!v->path_bytes != !v->tmp_bytes && v->count > 0 && v->count <= FP_DW_WINDOWS_MAX);
    if (v->tmp_bytes)
        use_name(p, v->tmp_bytes);
    else
        use_path(p, v->path_bytes, true);
    p += v->path_bytes + v->tmp_bytes + 8ull * v->count;
    for (uint32_t i = 0; i < v->nothers; i++, p += sizeof(struct fp_dw_range)) {
        struct fp_dw_range r;

        memcpy(&r, p, sizeof r);
        FUZZ_CHECK(r.len > 0 && ((uint64_t)r.at + r.len - 1) / v->window_bytes == r.at / v->window_bytes && r.at / v->window_bytes < v->count);
        FUZZ_CHECK(v->first * v->window_bytes + r.at + r.len <= v->size);
    }
    FUZZ_CHECK(p == end);
}

static void use_merge(const struct fp_dw_merge *g, const char *p, const char *end)
{
    use_path(p, g->path_bytes, false);
    use_name(p + g->path_bytes, g->tmp_bytes);
    use_path(p + g->path_bytes + g->tmp_bytes, g->log_bytes, false);
    FUZZ_CHECK(p + g->path_bytes + g->tmp_bytes + g->log_bytes == end);
}

static void use_read(const struct fp_dw_read *r, const char *p, const char *end)
{
    use_path(p, r->path_bytes, false);
    FUZZ_CHECK(p + r->path_bytes == end && r->len > 0 && r->len <= FP_STORED_MAX_BYTES && r->off <= r->size && r->len <= r->size - r->off);
}

static void use(const uint8_t *msg, const char *end)
{
    const struct fp_dw_head *h = (const void *)msg;

    switch (h->type) {
    case FP_DW_WRITE:
        use_write((const void *)msg, (const char *)((const struct fp_dw_write *)(const void *)msg + 1), end);
        break;
    case FP_DW_VERIFY:
        use_verify((const void *)msg, (const char *)((const struct fp_dw_verify *)(const void *)msg + 1), end);
        break;
    case FP_DW_MERGE:
        use_merge((const void *)msg, (const char *)((const struct fp_dw_merge *)(const void *)msg + 1), end);
        break;
    case FP_DW_READ:
        use_read((const void *)msg, (const char *)((const struct fp_dw_read *)(const void *)msg + 1), end);
        break;
    case FP_DW_PREPARE:
    case FP_DW_FINISH:
    case FP_DW_STAT:
    case FP_DW_SWEEP:
    case FP_DW_CLEAN:
    case FP_DW_PROBE:
        use_file((const void *)msg, (const char *)((const struct fp_dw_file *)(const void *)msg + 1), end);
        break;
    default:
        FUZZ_CHECK(h->type != 0 && h->type < FP_DW_DONE); /* what it says itself it does not take */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = { data, data + len };
    uint8_t *msg;
    size_t whole;

    make(&in);
    whole = m.len;
    msg = malloc(whole + 1); /* no byte more: the sanitizer sees who reads beyond */
    memcpy(msg, m.bytes, whole);
    msg = realloc(msg, whole ? whole : 1);
    if (dr_check(msg, whole) == 0) {
        use(msg, (const char *)msg + whole);
        FUZZ_CHECK(dr_check(msg, whole - 1) != 0); /* its length is a part of it */
    }
    free(msg);
    return 0;
}
