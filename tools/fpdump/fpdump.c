/*
 * The writer of process-group streams in C (fpdump.h); its format is in docs/PROTOCOL.md. Linked into applications; called by one thread at a time for each stream.
 *
 * All is written once and forward: a record's header has the length of what follows, which is known, for a put has the whole block. So the stream goes out in writes of the buffer's size that begin
 * at multiples of it, as a store of chunks likes them; a block larger than the buffer goes past it. Rejected: a header of a whole group with its length, which would need the group in memory, or a
 * write at an earlier place.
 *
 * Checksums are XXH64, whose forty lines are below: a library that applications link has no dependencies, and XXH3, which the store uses, is thousands of lines.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fpdump.h"

#define ALIGN        64u
#define HEAD_BYTES   48u
#define META_MAX     65536u
#define VALUES_MAX   60000u
#define RECORD_MAGIC "FPDR"
#define WRITE_MAX    ((size_t)1 << 30)

enum kind { KIND_GROUP = 1, KIND_VARIABLE, KIND_ATTRIBUTE, KIND_END, KIND_INDEX };

struct fpdump {
    int fd, rc;
    uint32_t rank, group_rank;
    int checksum, sync, open; /* open: a group */
    uint64_t step, group_at, groups;
    uint32_t group_records;
    uint64_t at;              /* in the stream, with what is in the buffer */
    uint8_t *buffer;
    size_t buffer_bytes, used;
    uint8_t *index;           /* entries, as they are written */
    size_t index_bytes, index_cap;
    uint64_t entries;
    uint8_t meta[META_MAX];
};

/* ---------------------------------------------------------------- numbers and checksums */

static uint8_t *put_le(uint8_t *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        *p++ = (uint8_t)(v >> 8 * i);
    return p;
}

#define P1 UINT64_C(0x9E3779B185EBCA87)
#define P2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define P3 UINT64_C(0x165667B19E3779F9)
#define P4 UINT64_C(0x85EBCA77C2B2AE63)
#define P5 UINT64_C(0x27D4EB2F165667C5)

static inline uint64_t rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static inline uint64_t get_le(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(&v, p, bytes);
#else
    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
#endif
    return v;
}

static inline uint64_t round64(uint64_t acc, uint64_t v)
{
    return rotate(acc + v * P2, 31) * P1;
}

static uint64_t xxh64(const uint8_t *p, size_t len)
{
    const uint8_t *end = p + len;
    uint64_t h = P5;

    if (len >= 32) {
        uint64_t a = P1 + P2, b = P2, c = 0, d = (uint64_t)0 - P1; /* not an array: in registers */

        for (const uint8_t *last = end - 32; p <= last; p += 32) {
            a = round64(a, get_le(p, 8));
            b = round64(b, get_le(p + 8, 8));
            c = round64(c, get_le(p + 16, 8));
            d = round64(d, get_le(p + 24, 8));
        }
        h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
        h = (h ^ round64(0, a)) * P1 + P4;
        h = (h ^ round64(0, b)) * P1 + P4;
        h = (h ^ round64(0, c)) * P1 + P4;
        h = (h ^ round64(0, d)) * P1 + P4;
    }
    h += len;
    for (; end - p >= 8; p += 8)
        h = rotate(h ^ round64(0, get_le(p, 8)), 27) * P1 + P4;
    for (; end - p >= 4; p += 4)
        h = rotate(h ^ get_le(p, 4) * P1, 23) * P2 + P3;
    for (; p < end; p++)
        h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

/* ---------------------------------------------------------------- writing */

static int write_all(struct fpdump *f, const uint8_t *p, size_t len)
{
    while (len && !f->rc) {
        ssize_t n = write(f->fd, p, len < WRITE_MAX ? len : WRITE_MAX);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            f->rc = n < 0 ? -errno : -EIO;
            break;
        }
        p += n;
        len -= (size_t)n;
    }
    return f->rc;
}

/* data NULL: zeros. */
static int append(struct fpdump *f, const void *data, size_t len)
{
    const uint8_t *p = data;

    f->at += len;
    while (len && !f->rc) {
        size_t room = f->buffer_bytes - f->used, n = len < room ? len : room;

        if (f->used == 0 && p && len >= f->buffer_bytes) {
            n = len / f->buffer_bytes * f->buffer_bytes;
            write_all(f, p, n);
        } else {
            if (p)
                memcpy(f->buffer + f->used, p, n);
            else
                memset(f->buffer + f->used, 0, n);
            f->used += n;
            if (f->used == f->buffer_bytes) {
                write_all(f, f->buffer, f->used);
                f->used = 0;
            }
        }
        p = p ? p + n : NULL;
        len -= n;
    }
    return f->rc;
}

static int pad(struct fpdump *f)
{
    return append(f, NULL, (size_t)(0 - f->at) % ALIGN);
}

/* ---------------------------------------------------------------- records */

static int index_add(struct fpdump *f, uint64_t at, const uint8_t *head, const uint8_t *meta, size_t meta_bytes)
{
    size_t bytes = (8 + HEAD_BYTES + meta_bytes + 7) / 8 * 8;
    uint8_t *p;

    if (f->index_cap - f->index_bytes < bytes) {
        size_t cap = 2 * (f->index_cap + bytes);

        p = realloc(f->index, cap);
        if (!p)
            return f->rc = -ENOMEM;
        f->index = p;
        f->index_cap = cap;
    }
    p = f->index + f->index_bytes;
    memset(p, 0, bytes);
    memcpy(put_le(p, at, 8), head, HEAD_BYTES);
    memcpy(p + 8 + HEAD_BYTES, meta, meta_bytes);
    f->index_bytes += bytes;
    f->entries++;
    return 0;
}

/* A record whose meta is the first meta_bytes of f->meta. */
static int record(struct fpdump *f, enum kind kind, size_t meta_bytes, const void *payload, uint64_t payload_bytes)
{
    int sum = payload_bytes && (f->checksum || kind == KIND_INDEX);
    uint8_t head[HEAD_BYTES + META_MAX], *p = head;
    uint64_t at = f->at;

    memcpy(p, RECORD_MAGIC, 4);
    p = put_le(put_le(put_le(put_le(p + 4, kind, 2), (uint64_t)sum, 2), f->group_rank, 4), meta_bytes, 4);
    p = put_le(put_le(put_le(p, f->step, 8), payload_bytes, 8), sum ? xxh64(payload, (size_t)payload_bytes) : 0, 8);
    memcpy(p, f->meta, meta_bytes);
    p = put_le(p, xxh64(head, 40 + meta_bytes), 8);
    memcpy(p, f->meta, meta_bytes);
    append(f, head, HEAD_BYTES + meta_bytes);
    pad(f);
    append(f, payload, (size_t)payload_bytes);
    pad(f);
    if (!f->rc && (kind == KIND_VARIABLE || kind == KIND_ATTRIBUTE)) {
        f->group_records++;
        index_add(f, at, head, f->meta, meta_bytes);
    }
    return f->rc;
}

static int fail(struct fpdump *f, int rc)
{
    if (!f->rc)
        f->rc = rc;
    return f->rc;
}

/* ---------------------------------------------------------------- the interface */

static int write_header(struct fpdump *f, const struct fpdump_options *o)
{
    static const union {
        uint16_t number;
        uint8_t bytes[2];
    } order = {1};
    uint8_t head[ALIGN] = {0}, *p = head + 8;
    struct timespec now = {0};

    clock_gettime(CLOCK_REALTIME, &now);
    memcpy(head, "FPDUMP1\n", 8);
    p = put_le(put_le(p, 1, 2), order.bytes[0] ? 1 : 2, 2);
    p = put_le(put_le(p, 0, 4), (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, 8);
    put_le(put_le(p, o->rank, 4), o->ranks, 4);
    put_le(head + 56, xxh64(head, 56), 8);
    return append(f, head, sizeof head);
}

int fpdump_open(const char *path, const struct fpdump_options *o, struct fpdump **out)
{
    static const struct fpdump_options none;
    struct fpdump *f;
    int rc;

    o = o ? o : &none;
    if (!path || !out || o->buffer_bytes % 4096 || (o->ranks && o->rank >= o->ranks))
        return -EINVAL;
    f = calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    f->rank = o->rank;
    f->checksum = !o->no_checksum;
    f->sync = o->sync;
    f->buffer_bytes = o->buffer_bytes ? o->buffer_bytes : FPDUMP_BUFFER_BYTES;
    rc = -posix_memalign((void **)&f->buffer, 4096, f->buffer_bytes);
    if (rc == 0) {
        f->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        rc = f->fd < 0 ? -errno : write_header(f, o);
        if (f->fd >= 0 && rc)
            close(f->fd);
    }
    if (rc) {
        free(f->buffer);
        free(f);
        return rc;
    }
    *out = f;
    return 0;
}

int fpdump_begin_rank(struct fpdump *f, uint64_t step, uint32_t rank)
{
    if (f->rc || f->open)
        return fail(f, -EBUSY);
    f->open = 1;
    f->step = step;
    f->group_rank = rank;
    f->group_at = f->at;
    f->group_records = 0;
    return record(f, KIND_GROUP, 0, NULL, 0);
}

int fpdump_begin(struct fpdump *f, uint64_t step)
{
    return fpdump_begin_rank(f, step, f->rank);
}

static int type_is_known(unsigned type)
{
    static const unsigned known[] = {FPDUMP_INT8,  FPDUMP_INT16,  FPDUMP_INT32,   FPDUMP_INT64,   FPDUMP_UINT8,     FPDUMP_UINT16,
                                     FPDUMP_UINT32, FPDUMP_UINT64, FPDUMP_FLOAT32, FPDUMP_FLOAT64, FPDUMP_COMPLEX64, FPDUMP_COMPLEX128};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] == type)
            return 1;
    return 0;
}

/* A variable's name with a slash before it. 0: none, or too long. */
static size_t put_name(uint8_t *p, const char *name)
{
    size_t slash = *name != '/', n = strlen(name) + slash;

    if (n < 2 || n > FPDUMP_NAME_MAX)
        return 0;
    *p = '/';
    memcpy(p + slash, name, n - slash);
    return n;
}

int fpdump_put(struct fpdump *f, const char *name, enum fpdump_type type, unsigned ndims, const uint64_t *global, const uint64_t *offset, const uint64_t *local, const void *data)
{
    uint64_t bytes = (unsigned)type & 0xff;
    uint8_t *p = f->meta;
    size_t n;

    if (f->rc || !f->open || !name || ndims > FPDUMP_DIMS_MAX || !type_is_known(type) || (ndims && (!global || !offset || !local)))
        return fail(f, -EINVAL);
    for (unsigned i = 0; i < ndims; i++)
        if (offset[i] > global[i] || local[i] > global[i] - offset[i] || (local[i] && bytes > (uint64_t)INT64_MAX / local[i]))
            return fail(f, -EINVAL);
        else
            bytes *= local[i];
    n = put_name(p + 8 + 24 * ndims, name);
    if (!n || (bytes && !data))
        return fail(f, -EINVAL);
    p = put_le(put_le(put_le(put_le(put_le(p, (unsigned)type >> 8, 1), (unsigned)type & 0xff, 1), ndims, 1), 0, 1), n, 4);
    for (unsigned i = 0; i < ndims; i++) {
        put_le(p + 8 * i, global[i], 8);
        put_le(p + 8 * (ndims + i), offset[i], 8);
        put_le(p + 8 * (2 * ndims + i), local[i], 8);
    }
    return record(f, KIND_VARIABLE, 8 + 24 * ndims + n, data, bytes);
}

static int attribute(struct fpdump *f, const char *variable, const char *name, unsigned kind, const void *values, size_t count, unsigned each)
{
    size_t named = name ? strlen(name) : 0, of = 0;
    uint8_t *p = f->meta + 16;

    if (f->rc || !f->open || !named || named > FPDUMP_NAME_MAX || (count && !values))
        return fail(f, -EINVAL);
    if (count > VALUES_MAX / each)
        return fail(f, -EMSGSIZE);
    if (variable && *variable) {
        of = put_name(p, variable);
        if (!of)
            return fail(f, -EINVAL);
    }
    put_le(put_le(put_le(put_le(f->meta, kind, 2), of, 2), named, 4), count, 8);
    memcpy(p + of, name, named);
    p += of + named;
    for (size_t i = 0; i < count && each == 8; i++) {
        uint64_t v;

        memcpy(&v, (const uint8_t *)values + 8 * i, 8);
        put_le(p + 8 * i, v, 8);
    }
    if (each == 1)
        memcpy(p, values, count);
    return record(f, KIND_ATTRIBUTE, 16 + of + named + count * each, NULL, 0);
}

int fpdump_attr_text(struct fpdump *f, const char *variable, const char *name, const char *text)
{
    return attribute(f, variable, name, 1, text, text ? strlen(text) : 1, 1);
}

int fpdump_attr_ints(struct fpdump *f, const char *variable, const char *name, const int64_t *values, size_t count)
{
    return attribute(f, variable, name, 2, values, count, 8);
}

int fpdump_attr_floats(struct fpdump *f, const char *variable, const char *name, const double *values, size_t count)
{
    return attribute(f, variable, name, 3, values, count, 8);
}

int fpdump_end(struct fpdump *f)
{
    if (f->rc || !f->open)
        return fail(f, -EINVAL);
    put_le(put_le(f->meta, f->group_records, 8), f->at - f->group_at, 8);
    f->open = 0;
    f->groups++;
    return record(f, KIND_END, 16, NULL, 0);
}

int fpdump_close(struct fpdump *f)
{
    uint8_t end[ALIGN] = {0};
    uint64_t index_at;
    int rc;

    if (f->open && !f->rc)
        fpdump_end(f);
    index_at = f->at;
    f->step = 0;
    f->group_rank = f->rank;
    put_le(f->meta, f->entries, 8);
    record(f, KIND_INDEX, 8, f->index, f->index_bytes);
    memcpy(end, "FPDUMPE\n", 8);
    put_le(put_le(put_le(end + 8, f->at + ALIGN, 8), index_at, 8), f->groups, 8);
    put_le(end + 56, xxh64(end, 56), 8);
    append(f, end, sizeof end);
    write_all(f, f->buffer, f->used);
    if (!f->rc && f->sync && fsync(f->fd) != 0)
        f->rc = -errno;
    if (close(f->fd) != 0 && !f->rc)
        f->rc = -errno;
    rc = f->rc;
    free(f->index);
    free(f->buffer);
    free(f);
    return rc;
}
