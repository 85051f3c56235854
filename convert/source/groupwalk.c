/*
 * Records of process-group streams (group.h; every byte of them is in docs/PROTOCOL.md). Called by group.c on the engine's one thread; reads by cv_inputs_read.
 *
 * A file is one stream or several, joined by cat: the trailer of each says how long it is, so that they are found from the end of the file backwards. When that does not lead to the beginning, or an
 * index is not what its sums say, the file is walked from header to header instead, up to the end of the last group that is complete: what comes behind is torn. The walk is made twice, first to find
 * that end: no record of a group is used before its end was seen. Rejected: to give what a torn group has, which would look like a rank that wrote less.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL /* its state on the stack: one of a shared library would have to match at run time */
#include <xxhash.h>

#include "convert/source/group.h"

#define ALIGN          64u
#define HEAD_BYTES     48u
#define WINDOW_BYTES   (CV_GROUP_META_MAX + 2u * 65536u)
#define HEADERS_AHEAD  4096u
#define STREAMS_MAX    65536u
#define ENTRIES_MAX    (1u << 26)

#define HEADER_MAGIC   "FPDUMP1\n"
#define TRAILER_MAGIC  "FPDUMPE\n"
#define RECORD_MAGIC   "FPDR"

struct walk {
    struct cv_source *s;
    uint32_t input;
    uint64_t size_bytes;
    cv_group_visit visit;
    void *arg;
    struct cv_fail *why;
    uint8_t *window;
    uint64_t window_at;
    size_t window_len;
    size_t ahead;            /* bytes that are read at a time: headers lie far apart, entries of an index do not */
    bool big_endian;         /* of the stream that is walked */
};

static uint16_t le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)le16(p) | (uint32_t)le16(p + 2) << 16;
}

static uint64_t le64(const uint8_t *p)
{
    return (uint64_t)le32(p) | (uint64_t)le32(p + 4) << 32;
}

/* len bytes at `at`, valid until the next call. NULL: not in the file (*rc 0), or not to be read. */
static const uint8_t *bytes_at(struct walk *w, uint64_t at, size_t len, int *rc)
{
    *rc = 0;
    if (at > w->size_bytes || w->size_bytes - at < len)
        return NULL;
    if (at < w->window_at || at + len > w->window_at + w->window_len) {
        size_t want = len <= w->ahead ? w->ahead : WINDOW_BYTES, n = w->size_bytes - at < want ? (size_t)(w->size_bytes - at) : want;

        w->window_len = 0;
        *rc = cv_inputs_read(w->s, w->input, at, w->window, n, w->why);
        if (*rc)
            return NULL;
        w->window_at = at;
        w->window_len = n;
    }
    return w->window + (at - w->window_at);
}

static bool block_sound(const uint8_t *p, const char *magic)
{
    return memcmp(p, magic, 8) == 0 && le64(p + 56) == XXH64(p, 56, 0);
}

/* The 64 bytes at the beginning of a stream. */
static bool header_take(struct walk *w, const uint8_t *p)
{
    if (!block_sound(p, HEADER_MAGIC) || le16(p + 8) != 1 || (p[10] != 1 && p[10] != 2) || p[11] != 0)
        return false;
    w->big_endian = p[10] == 2;
    return true;
}

/* A header and its meta, of which both are there, that belong at `at` of a file whose records end at `end`. */
static bool record_take(const struct walk *w, const uint8_t *p, uint64_t at, uint64_t end, struct cv_group_record *r)
{
    size_t meta = le32(p + 12);
    XXH64_state_t sum;

    XXH64_reset(&sum, 0);
    XXH64_update(&sum, p, 40);
    XXH64_update(&sum, p + HEAD_BYTES, meta);
    if (XXH64_digest(&sum) != le64(p + 40))
        return false;
    *r = (struct cv_group_record){.kind = (enum cv_group_kind)le16(p + 4), .big_endian = w->big_endian, .has_sum = le16(p + 6) & 1, .rank = le32(p + 8), .step = le64(p + 16), .at = at,
                                  .payload_bytes = le64(p + 24), .sum = le64(p + 32), .meta = p + HEAD_BYTES, .meta_bytes = meta};
    r->payload_at = at + (HEAD_BYTES + meta + ALIGN - 1) / ALIGN * ALIGN;
    return r->payload_at <= end && r->payload_bytes <= end - r->payload_at;
}

static uint64_t record_end(const struct cv_group_record *r)
{
    return (r->payload_at + r->payload_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The record at `at`. false: none that is sound and whole, or *rc. */
static bool record_at(struct walk *w, uint64_t at, uint64_t end, struct cv_group_record *r, int *rc)
{
    const uint8_t *p = at <= end && end - at >= HEAD_BYTES ? bytes_at(w, at, HEAD_BYTES, rc) : NULL;
    size_t meta;

    if (!p || memcmp(p, RECORD_MAGIC, 4) != 0)
        return false;
    meta = le32(p + 12);
    if (meta > CV_GROUP_META_MAX || meta > end - at - HEAD_BYTES)
        return false;
    p = bytes_at(w, at, HEAD_BYTES + meta, rc);
    return p && record_take(w, p, at, end, r);
}

/* ---------------------------------------------------------------- by the index */

struct stream {
    uint64_t at, index_at, end; /* end: its trailer */
};

struct streams {
    struct stream *list;        /* from the last to the first */
    size_t n;
};

static struct stream *stream_add(struct streams *l)
{
    if ((l->n & (l->n - 1)) == 0) { /* full */
        struct stream *more = l->n < STREAMS_MAX ? realloc(l->list, (l->n ? 2 * l->n : 1) * sizeof *more) : NULL;

        if (!more)
            return NULL;
        l->list = more;
    }
    return &l->list[l->n++];
}

/* false: one of them has no sound end, or *rc. */
static bool streams_find(struct walk *w, struct streams *l, int *rc)
{
    uint64_t end = w->size_bytes;

    while (end) {
        const uint8_t *p = end % ALIGN == 0 && end >= 2 * ALIGN ? bytes_at(w, end - ALIGN, ALIGN, rc) : NULL;
        struct stream *s;
        uint64_t bytes;

        if (!p || !block_sound(p, TRAILER_MAGIC))
            return false;
        bytes = le64(p + 8);
        if (bytes > end || bytes < 2 * ALIGN || bytes % ALIGN || le64(p + 16) > bytes - ALIGN || le64(p + 16) % ALIGN)
            return false;
        s = stream_add(l);
        if (!s) {
            *rc = cv_fail(w->why, -ENOMEM, w->s->inputs[w->input].path, NULL, CV_NO_OFFSET, "out of memory, or more than %u streams in one file", STREAMS_MAX);
            return false;
        }
        *s = (struct stream){.at = end - bytes, .index_at = end - bytes + le64(p + 16), .end = end - ALIGN};
        p = bytes_at(w, s->at, ALIGN, rc);
        if (!p || !header_take(w, p))
            return false;
        end = s->at;
    }
    return l->n > 0;
}

/* The sum of an index, read once before any of it is used. The window is other bytes afterwards. */
static bool index_sound(struct walk *w, const struct cv_group_record *index, int *rc)
{
    XXH64_state_t sum;

    w->window_len = 0;
    XXH64_reset(&sum, 0);
    for (uint64_t done = 0; done < index->payload_bytes && *rc == 0;) {
        size_t n = index->payload_bytes - done < WINDOW_BYTES ? (size_t)(index->payload_bytes - done) : WINDOW_BYTES;

        *rc = cv_inputs_read(w->s, w->input, index->payload_at + done, w->window, n, w->why);
        XXH64_update(&sum, w->window, *rc ? 0 : n);
        done += n;
    }
    return *rc == 0 && (!index->payload_bytes || (index->has_sum && XXH64_digest(&sum) == index->sum));
}

static int bad_entry(struct walk *w, uint64_t at)
{
    return cv_fail(w->why, -EINVAL, w->s->inputs[w->input].path, NULL, at, "an entry of the index is damaged, although its sum is right: another program wrote it");
}

/* The entry at *at; visit is called, *at moves on. */
static int entry_visit(struct walk *w, const struct stream *s, uint64_t *at, uint64_t end)
{
    struct cv_group_record r;
    size_t meta;
    int rc = 0;
    const uint8_t *p = end - *at >= 8 + HEAD_BYTES ? bytes_at(w, *at, 8 + HEAD_BYTES, &rc) : NULL;

    if (!p)
        return rc ? rc : bad_entry(w, *at);
    meta = le32(p + 8 + 12);
    if (memcmp(p + 8, RECORD_MAGIC, 4) != 0 || meta > CV_GROUP_META_MAX || meta > end - *at - 8 - HEAD_BYTES)
        return bad_entry(w, *at);
    p = bytes_at(w, *at, 8 + HEAD_BYTES + meta, &rc);
    if (!p)
        return rc ? rc : bad_entry(w, *at);
    if (le64(p) > s->index_at - s->at || le64(p) % ALIGN || !record_take(w, p + 8, s->at + le64(p), s->index_at, &r) || (r.kind != CV_GROUP_VARIABLE && r.kind != CV_GROUP_ATTRIBUTE))
        return bad_entry(w, *at);
    *at += (8 + HEAD_BYTES + meta + 7) / 8 * 8;
    if (*at > end)
        return bad_entry(w, *at);
    return w->visit(w->arg, w->input, &r, w->why);
}

/* The index of a stream; *usable false: there is none that is sound. visiting false: only looked at. */
static int index_walk(struct walk *w, const struct stream *s, bool visiting, bool *usable)
{
    struct cv_group_record index;
    uint64_t at, count, end;
    const uint8_t *p;
    int rc = 0;

    *usable = false;
    p = bytes_at(w, s->at, ALIGN, &rc);
    if (!p || !header_take(w, p) || !record_at(w, s->index_at, s->end, &index, &rc) || index.kind != CV_GROUP_INDEX || index.meta_bytes != 8)
        return rc;
    count = le64(index.meta);
    *usable = count <= ENTRIES_MAX && (visiting || index_sound(w, &index, &rc));
    if (!*usable || !visiting)
        return rc;
    at = index.payload_at;
    end = at + index.payload_bytes;
    w->ahead = WINDOW_BYTES;
    for (uint64_t i = 0; i < count && rc == 0; i++)
        rc = entry_visit(w, s, &at, end);
    w->ahead = HEADERS_AHEAD;
    return rc;
}

/* ---------------------------------------------------------------- from header to header */

/* One pass: without `until`, to find the end of the last complete group; with it, to visit what lies before. */
static int scan(struct walk *w, bool visiting, uint64_t until, uint64_t *good, struct cv_group_torn *torn)
{
    uint64_t at = 0, group_at = UINT64_MAX;
    uint64_t records = 0;
    int rc = 0;

    while (at < (visiting ? until : w->size_bytes)) {
        const uint8_t *p = bytes_at(w, at, ALIGN, &rc);
        struct cv_group_record r;

        if (p && group_at == UINT64_MAX && (block_sound(p, TRAILER_MAGIC) || header_take(w, p))) {
            at += ALIGN;
            *good = at;
            continue;
        }
        if (rc || !record_at(w, at, w->size_bytes, &r, &rc) || r.kind < CV_GROUP_BEGIN || r.kind > CV_GROUP_INDEX)
            break;
        if ((r.kind == CV_GROUP_BEGIN || r.kind == CV_GROUP_INDEX) != (group_at == UINT64_MAX))
            break;
        if (r.kind == CV_GROUP_BEGIN) {
            group_at = at;
            records = 0;
            torn->rank = r.rank;
            torn->step = r.step;
        } else if (r.kind == CV_GROUP_END) {
            if (r.meta_bytes != 16 || le64(r.meta) != records || le64(r.meta + 8) != at - group_at)
                break;
            group_at = UINT64_MAX;
        } else if (r.kind != CV_GROUP_INDEX) {
            records++;
            rc = visiting ? w->visit(w->arg, w->input, &r, w->why) : 0;
            if (rc)
                return rc;
        }
        at = record_end(&r);
        if (group_at == UINT64_MAX && at <= w->size_bytes)
            *good = at;
    }
    torn->in_group = group_at != UINT64_MAX;
    return rc;
}

static int recover(struct walk *w, struct cv_group_torn *torn)
{
    const char *path = w->s->inputs[w->input].path;
    uint64_t good = 0, ignored = 0;
    struct cv_group_torn unused;
    const uint8_t *p;
    int rc;

    p = bytes_at(w, 0, ALIGN, &rc);
    if (rc)
        return rc;
    if (!p)
        return cv_fail(w->why, -ENODATA, path, NULL, w->size_bytes, "ends in the header of a process-group stream");
    if (!header_take(w, p))
        return cv_fail(w->why, -EINVAL, path, NULL, 0, memcmp(p, HEADER_MAGIC, 7) ? "is no process-group stream: it does not begin with FPDUMP1" : "the header of the stream is damaged, or of another version");
    rc = scan(w, false, 0, &good, torn);
    torn->recovered = true;
    torn->at = good;
    if (rc)
        return rc;
    if (good <= ALIGN)
        return cv_fail(w->why, -ENODATA, path, NULL, good, "the stream was cut off or damaged before its first group was complete: it has %llu bytes", (unsigned long long)w->size_bytes);
    return scan(w, true, good, &ignored, &unused);
}

int cv_group_walk(struct cv_source *s, uint32_t input, cv_group_visit visit, void *arg, struct cv_group_torn *torn, struct cv_fail *why)
{
    struct walk w = {.s = s, .input = input, .size_bytes = s->inputs[input].size_bytes, .visit = visit, .arg = arg, .why = why, .window = malloc(WINDOW_BYTES), .ahead = HEADERS_AHEAD};
    struct streams l = {0};
    bool usable = true;
    int rc = 0;

    memset(torn, 0, sizeof *torn);
    if (!w.window)
        rc = cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
    if (rc == 0)
        usable = streams_find(&w, &l, &rc);
    for (size_t i = 0; i < l.n && rc == 0 && usable; i++)
        rc = index_walk(&w, &l.list[i], false, &usable);
    for (size_t i = l.n; usable && rc == 0 && i-- > 0;)
        rc = index_walk(&w, &l.list[i], true, &usable);
    if (rc == 0 && !usable)
        rc = recover(&w, torn);
    free(l.list);
    free(w.window);
    return rc;
}
