/*
 * A task of the manager as messages to fp-drain (fp/drainwire.h).
 *
 * Loop's thread; asks the store where chunks are, and does nothing else. What the manager has named but is not here is said at once, without troubling the target.
 *
 * Rejected: letting the worker look chunks up. It would need the index, which only the loop's thread may touch, or a request for each piece.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "benefactor/drain_impl.h"
#include "fp/err.h"
#include "fp/log.h"

#define TEMP_PREFIX FP_DW_TEMP_DIR "/"

/* A message that grows. */
struct out {
    uint8_t *p;
    size_t len, cap;
    bool failed;
};

static void put(struct out *o, const void *bytes, size_t len)
{
    if (o->len + len > o->cap) {
        size_t cap = (o->len + len) * 2 + 256;
        uint8_t *more = realloc(o->p, cap);

        o->failed |= !more;
        if (!more)
            return;
        o->p = more;
        o->cap = cap;
    }
    if (len)
        memcpy(o->p + o->len, bytes, len);
    o->len += len;
}

static int finish(struct out *o, struct dworker *w)
{
    int rc = o->failed ? -ENOMEM : o->len > FP_DW_WHOLE_MAX_BYTES ? -E2BIG : 0;

    if (rc == 0)
        ((struct fp_dw_head *)(void *)o->p)->len_bytes = (uint32_t)o->len;
    for (size_t at = 0, n; rc == 0 && at < o->len; at += n) {
        n = o->len - at < FP_DW_MESSAGE_MAX_BYTES ? o->len - at : FP_DW_MESSAGE_MAX_BYTES;
        rc = dworker_send(w, o->p + at, n, -1);
    }
    free(o->p);
    *o = (struct out){ 0 };
    return rc;
}

/* The bare name: the manager may say it with its directory. */
static ProtobufCBinaryData tmp_of(const Fp__Task *m)
{
    ProtobufCBinaryData tmp = m->tmp;
    size_t n = sizeof(TEMP_PREFIX) - 1;

    if (tmp.len > n && memcmp(tmp.data, TEMP_PREFIX, n) == 0) {
        tmp.data += n;
        tmp.len -= n;
    }
    return tmp;
}

static bool is_component_good(const uint8_t *p, size_t len)
{
    return len && len <= 255 && !(len == 1 && p[0] == '.') && !(len == 2 && p[0] == '.' && p[1] == '.');
}

_Static_assert((int)FP__MERGE_STEP__MERGE_PREPARE == FP_DW_MERGE_PREPARE && (int)FP__MERGE_STEP__MERGE_FINISH == FP_DW_MERGE_FINISH, "passed on as they are");

/* As fp-drain wants it (drain/check.c), which ends when it gets another. */
bool dpath_is_good(const ProtobufCBinaryData *path)
{
    static const char *const ours[] = { FP_DW_TEMP_DIR, FP_DW_MARKER };
    size_t from = 0;

    if (path->len == 0 || path->len >= 4096 || memchr(path->data, '\0', path->len))
        return false;
    for (size_t i = 0; i <= path->len; i++)
        if (i == path->len || path->data[i] == '/') {
            if (!is_component_good(path->data + from, i - from))
                return false;
            for (int k = 0; k < 2 && from == 0; k++)
                if (i == strlen(ours[k]) && memcmp(path->data, ours[k], i) == 0)
                    return false;
            from = i + 1;
        }
    return true;
}

static bool tmp_is_good(const ProtobufCBinaryData *tmp)
{
    return tmp->len && tmp->len <= FP_DW_TMP_MAX && !memchr(tmp->data, '\0', tmp->len) && !memchr(tmp->data, '/', tmp->len) &&
           is_component_good(tmp->data, tmp->len);
}

static struct fp_dw_head head(const struct dtask *t, enum fp_dw_type type)
{
    return (struct fp_dw_head){ .type = type, .id = t->id, .gen = t->gen, .sending = t->sending };
}

static uint32_t flags_of(const Fp__Task *m)
{
    return (m->overwrite ? FP_DW_OVERWRITE : 0) | (m->urgent ? FP_DW_URGENT : 0) | (m->dlog ? FP_DW_DLOG : 0) | (m->force ? FP_DW_FORCE : 0);
}

/* ---------------------------------------------------------------- of files */

static void put_xattrs(struct out *o, const Fp__Task *m)
{
    for (size_t i = 0; i < m->n_xattrs; i++) {
        const Fp__XattrEntry *x = m->xattrs[i];
        uint32_t len[2] = { (uint32_t)x->name.len, (uint32_t)x->value.len };

        put(o, len, sizeof(len));
        put(o, x->name.data, x->name.len);
        put(o, x->value.data, x->value.len);
    }
}

static int send_file(struct dtask *t, struct dworker *w, enum fp_dw_type type)
{
    const Fp__Task *m = t->m;
    bool path = type == FP_DW_PREPARE || type == FP_DW_FINISH || type == FP_DW_STAT;
    ProtobufCBinaryData tmp = tmp_of(m), mark;
    struct fp_dw_file f = { .h = head(t, type), .tino = m->tmp_ino, .size = m->size_bytes, .dlog_bytes = m->dlog_bytes, .own = m->own_ino, .flags = flags_of(m) };
    struct out o = { 0 };

    if ((path && !dpath_is_good(&m->dest->path)) || (type != FP_DW_STAT && !tmp_is_good(&tmp)) || m->size_bytes > INT64_MAX || m->mark.len > 255)
        return -EINVAL;
    if (type == FP_DW_PREPARE && (m->text.len > FP_DW_LINK_MAX || (m->text.len && memchr(m->text.data, '\0', m->text.len)) ||
                                  (m->attr && S_ISLNK(m->attr->mode)) != (m->text.len > 0)))
        return -EINVAL;
    for (size_t i = 0; i < m->n_xattrs; i++)
        if (m->xattrs[i]->name.len == 0 || m->xattrs[i]->name.len > 255 || memchr(m->xattrs[i]->name.data, '\0', m->xattrs[i]->name.len))
            return -EINVAL;
    f.path_bytes = path ? (uint32_t)m->dest->path.len : 0;
    f.tmp_bytes = type != FP_DW_STAT ? (uint32_t)tmp.len : 0;
    mark = type == FP_DW_PREPARE ? m->text : m->mark;
    f.mark_bytes = type == FP_DW_FINISH || type == FP_DW_PREPARE || type == FP_DW_STAT || type == FP_DW_PROBE ? (uint32_t)mark.len : 0;
    f.nxattrs = type == FP_DW_FINISH ? (uint32_t)m->n_xattrs : 0;
    if (type == FP_DW_PROBE && m->overwrite)
        f.flags |= FP_DW_MAKE_MARKER;
    if (m->attr) {
        f.mode = m->attr->mode;
        f.uid = m->attr->uid;
        f.gid = m->attr->gid;
        f.atime_ns = m->attr->atime_ns;
        f.mtime_ns = m->attr->mtime_ns;
    }
    put(&o, &f, sizeof(f));
    put(&o, m->dest->path.data, f.path_bytes);
    put(&o, tmp.data, f.tmp_bytes);
    put(&o, mark.data, f.mark_bytes);
    if (f.nxattrs)
        put_xattrs(&o, m);
    return finish(&o, w);
}

int dprobe_send(struct dtarget *t, struct dworker *w, uint64_t gen)
{
    struct fp_dw_file f = { .h = { .type = FP_DW_PROBE, .id = PROBE_ID, .gen = gen }, .flags = FP_DW_URGENT };
    const uint8_t *uuid = bnf_service_uuid(t->drain->config.service);
    const uint8_t *store = bnf_service_store_uuid(t->drain->config.service);
    struct out o = { 0 };
    char tmp[64];

    f.tmp_bytes = (uint32_t)snprintf(tmp, sizeof(tmp), "%02x%02x%02x%02x-probe-%02x%02x%02x%02x", store[0], store[1], store[2], store[3], uuid[0], uuid[1],
                                     uuid[2], uuid[3]);
    put(&o, &f, sizeof(f));
    put(&o, tmp, f.tmp_bytes);
    return finish(&o, w);
}

/* ---------------------------------------------------------------- WRITE */

struct pieces {
    struct fp_dw_slice *s;
    uint32_t n;
    uint64_t *segments;
    struct bnf_file **files;
    uint32_t nsegments;
};

static int segment_index(struct pieces *p, struct bnf_service *v, const struct bnf_place *at, uint32_t *index)
{
    uint32_t i = 0;

    while (i < p->nsegments && p->segments[i] != at->segment)
        i++;
    if (i == FP_DW_SEGMENTS_MAX)
        return -E2BIG;
    if (i == p->nsegments) {
        p->files[i] = bnf_service_file(v, at->slot);
        if (!p->files[i])
            return FP_ECHUNK_MISSING;
        p->segments[p->nsegments++] = at->segment;
    }
    *index = i;
    return 0;
}

static int add_piece(struct dtask *t, struct pieces *p, const Fp__Slice *s)
{
    struct bnf_service *v = t->target->drain->config.service;
    struct fp_dw_slice *out = &p->s[p->n];
    struct bnf_place place;
    uint32_t len;
    int rc;

    if (s->win < t->m->first || s->win - t->m->first > UINT32_MAX / t->m->window_bytes - 1 || s->off >= t->m->window_bytes ||
        s->len > t->m->window_bytes - s->off)
        return -EINVAL;
    rc = bnf_store_find(bnf_service_store(v), s->chunk, &place);
    if (rc == 0)
        rc = segment_index(p, v, &place, &out->seg);
    len = rc ? 0 : s->data_len ? s->data_len : place.len_bytes; /* of the data: of a coded chunk the record has other bytes */
    if (rc == 0 && (len > FP_CHUNK_MAX_BYTES || s->chunk_off >= len || s->len > len - s->chunk_off || place.off_bytes / 4096 > UINT32_MAX))
        rc = FP_ECORRUPT; /* another chunk than the manager means */
    if (rc) {
        t->missing = s->chunk;
        return rc;
    }
    out->chunk = s->chunk;
    out->sum = place.sum;
    out->page = (uint32_t)(place.off_bytes / 4096);
    out->at = (uint32_t)((s->win - t->m->first) * t->m->window_bytes + s->off);
    out->len = s->len;
    out->chunk_off = s->chunk_off;
    out->chunk_len = place.len_bytes;
    out->data_len = s->data_len;
    out->zero = 0;
    p->n++;
    return 0;
}

static int collect(struct dtask *t, struct pieces *p)
{
    uint32_t ours = t->target->drain->config.bnf_id(t->target->drain->config.arg);
    uint64_t end = 0;

    p->s = calloc(t->m->n_slices ? t->m->n_slices : 1, sizeof(*p->s));
    p->segments = calloc(FP_DW_SEGMENTS_MAX, sizeof(*p->segments));
    p->files = calloc(FP_DW_SEGMENTS_MAX, sizeof(*p->files));
    if (!p->s || !p->segments || !p->files)
        return -ENOMEM;
    for (size_t i = 0; i < t->m->n_slices; i++) {
        const Fp__Slice *s = t->m->slices[i];
        int rc;

        if (s->bnf && s->bnf != ours) /* whoever has it writes it */
            continue;
        rc = add_piece(t, p, s);
        if (rc)
            return rc;
        if (s->len == 0 || p->s[p->n - 1].at < end || t->m->first * t->m->window_bytes + p->s[p->n - 1].at + s->len > t->m->size_bytes)
            return -EINVAL;
        end = (uint64_t)p->s[p->n - 1].at + s->len;
    }
    return 0;
}

static int use_segments(struct dtask *t, struct dworker *w, struct pieces *p)
{
    for (uint32_t i = 0; i < p->nsegments; i++) {
        int rc = dworker_segment_use(w, p->segments[i], p->files[i]);

        if (rc) {
            while (i-- > 0)
                dworker_segment_unuse(w, p->segments[i]);
            return rc;
        }
    }
    t->segments = p->segments;
    t->nsegments = p->nsegments;
    p->segments = NULL;
    return 0;
}

static int send_pieces(struct dtask *t, struct dworker *w, const struct pieces *p)
{
    const Fp__Task *m = t->m;
    ProtobufCBinaryData tmp = tmp_of(m);
    struct fp_dw_write x = { .h = head(t, FP_DW_WRITE), .tino = m->tmp_ino, .size = m->size_bytes, .first = m->first, .flags = flags_of(m),
                             .window_bytes = m->window_bytes, .nslices = p->n, .nsegments = t->nsegments, .tmp_bytes = (uint32_t)tmp.len };
    struct out o = { 0 };

    put(&o, &x, sizeof(x));
    put(&o, tmp.data, tmp.len);
    put(&o, t->segments, 8 * (size_t)t->nsegments);
    put(&o, p->s, p->n * sizeof(*p->s));
    return finish(&o, w);
}

static int send_write(struct dtask *t, struct dworker *w)
{
    const Fp__Task *m = t->m;
    ProtobufCBinaryData tmp = tmp_of(m);
    struct pieces p = { 0 };
    int rc;

    if (!tmp_is_good(&tmp) || m->window_bytes < 4096 || m->window_bytes % 4096 || m->window_bytes > FP_DW_WINDOW_MAX_BYTES || m->size_bytes > INT64_MAX ||
        m->first > m->size_bytes / m->window_bytes)
        return -EINVAL;
    rc = m->n_slices > FP_DW_SLICES_MAX ? -E2BIG : collect(t, &p);
    if (rc == 0 && p.n == 0)
        rc = -EINVAL;
    if (rc == 0)
        rc = use_segments(t, w, &p);
    if (rc == 0)
        rc = send_pieces(t, w, &p);
    free(p.s);
    free(p.segments);
    free(p.files);
    return rc;
}

/* ---------------------------------------------------------------- VERIFY */

/* What others have of these windows, as ranges: neighbours in one. */
static int put_others(struct out *o, const struct dtask *t, uint32_t *n)
{
    const Fp__Task *m = t->m;
    uint32_t ours = t->target->drain->config.bnf_id(t->target->drain->config.arg), w = m->window_bytes;
    uint64_t end = 0, left = m->size_bytes - m->first * w;
    struct fp_dw_range r = { 0 };

    *n = 0;
    for (size_t i = 0; i < m->n_slices; i++) {
        const Fp__Slice *s = m->slices[i];
        uint64_t at;

        if (s->bnf == ours)
            continue;
        if (s->win < m->first || s->win - m->first >= m->count || s->off >= w || s->len == 0 || s->len > w - s->off)
            return -EINVAL;
        at = (s->win - m->first) * w + s->off;
        if (at < end || at + s->len > left || at + s->len > UINT32_MAX)
            return -EINVAL;
        if (r.len && at == end && at % w) {
            r.len += s->len;
        } else {
            *n += r.len != 0;
            put(o, &r, r.len ? sizeof(r) : 0);
            r = (struct fp_dw_range){ .at = (uint32_t)at, .len = s->len };
        }
        end = at + s->len;
    }
    *n += r.len != 0;
    put(o, &r, r.len ? sizeof(r) : 0);
    return 0;
}

static int send_verify(struct dtask *t, struct dworker *w)
{
    const Fp__Task *m = t->m;
    ProtobufCBinaryData tmp = tmp_of(m), name = tmp.len ? tmp : m->dest->path;
    struct fp_dw_verify x = { .h = head(t, FP_DW_VERIFY), .tino = tmp.len ? m->tmp_ino : m->dest->ino, .size = m->size_bytes, .first = m->first,
                              .flags = flags_of(m), .window_bytes = m->window_bytes, .count = m->count };
    struct out o = { 0 };
    uint32_t n;
    int rc;

    if (tmp.len ? !tmp_is_good(&tmp) : !dpath_is_good(&m->dest->path))
        return -EINVAL;
    if (m->window_bytes < 4096 || m->window_bytes % 4096 || m->window_bytes > FP_DW_WINDOW_MAX_BYTES || m->size_bytes > INT64_MAX || m->count == 0 ||
        m->n_sums != m->count || m->count > FP_DW_WINDOWS_MAX || m->first > m->size_bytes / m->window_bytes ||
        m->first + m->count - 1 > m->size_bytes / m->window_bytes)
        return -EINVAL;
    x.path_bytes = tmp.len ? 0 : (uint32_t)name.len;
    x.tmp_bytes = (uint32_t)tmp.len;
    put(&o, &x, sizeof(x));
    put(&o, name.data, name.len);
    put(&o, m->sums, 8 * m->n_sums);
    rc = put_others(&o, t, &n);
    if (rc || o.failed) {
        free(o.p);
        return rc ? rc : -ENOMEM;
    }
    ((struct fp_dw_verify *)(void *)o.p)->nothers = n;
    return finish(&o, w);
}

/* ---------------------------------------------------------------- READ, LIST */

int dread_send(struct dworker *w, const struct dfetch_ask *a, uint64_t number, uint64_t to)
{
    struct fp_dw_read x = { .h = { .type = FP_DW_READ, .id = READ_ID, .gen = number }, .tino = a->file->ino, .size = a->file->size_bytes,
                            .mtime_ns = a->file->mtime_ns, .off = a->off, .sum = a->sum, .to = to, .len = a->len,
                            .path_bytes = (uint32_t)a->file->path.len };
    struct out o = { 0 };

    put(&o, &x, sizeof(x));
    put(&o, a->file->path.data, a->file->path.len);
    return finish(&o, w);
}

static int send_merge(struct dtask *t, struct dworker *w)
{
    const Fp__Task *m = t->m;
    ProtobufCBinaryData tmp = tmp_of(m);
    struct fp_dw_merge x = { .h = head(t, FP_DW_MERGE), .tino = m->tmp_ino, .sum = m->log_sum, .first = m->first, .count = m->count, .step = m->step,
                             .flags = flags_of(m), .path_bytes = (uint32_t)m->dest->path.len, .tmp_bytes = (uint32_t)tmp.len, .log_bytes = (uint32_t)m->log.len };
    struct out o = { 0 };

    if (!dpath_is_good(&m->dest->path) || !dpath_is_good(&m->log) || !tmp_is_good(&tmp) || m->step < FP__MERGE_STEP__MERGE_PREPARE || m->step > FP__MERGE_STEP__MERGE_FINISH)
        return -EINVAL;
    put(&o, &x, sizeof(x));
    put(&o, m->dest->path.data, m->dest->path.len);
    put(&o, tmp.data, tmp.len);
    put(&o, m->log.data, m->log.len);
    return finish(&o, w);
}

static int send_list(struct dtask *t, struct dworker *w)
{
    const Fp__Task *m = t->m;
    struct fp_dw_list x = { .h = head(t, FP_DW_LIST), .max = m->count && m->count < FP_DW_LIST_MAX ? m->count : FP_DW_LIST_MAX,
                            .path_bytes = (uint32_t)m->dest->path.len, .after_bytes = (uint32_t)m->text.len };
    struct out o = { 0 };

    if ((m->dest->path.len && !dpath_is_good(&m->dest->path)) || m->text.len > 255 || (m->text.len && memchr(m->text.data, '\0', m->text.len)))
        return -EINVAL;
    put(&o, &x, sizeof(x));
    put(&o, m->dest->path.data, m->dest->path.len);
    put(&o, m->text.data, m->text.len);
    return finish(&o, w);
}

int dtask_send(struct dtask *t, struct dworker *w)
{
    t->sending++;
    switch (t->m->kind) {
    case FP__TASK_KIND__TASK_PREPARE:
        return send_file(t, w, FP_DW_PREPARE);
    case FP__TASK_KIND__TASK_FINISH:
        return send_file(t, w, FP_DW_FINISH);
    case FP__TASK_KIND__TASK_STAT:
        return send_file(t, w, FP_DW_STAT);
    case FP__TASK_KIND__TASK_SWEEP:
        return send_file(t, w, FP_DW_SWEEP);
    case FP__TASK_KIND__TASK_CLEAN:
        return send_file(t, w, FP_DW_CLEAN);
    case FP__TASK_KIND__TASK_PROBE:
        return send_file(t, w, FP_DW_PROBE);
    case FP__TASK_KIND__TASK_WRITE:
        return send_write(t, w);
    case FP__TASK_KIND__TASK_VERIFY:
        return send_verify(t, w);
    case FP__TASK_KIND__TASK_LIST:
        return send_list(t, w);
    case FP__TASK_KIND__TASK_MERGE:
        return send_merge(t, w);
    default:
        return -EOPNOTSUPP;
    }
}
