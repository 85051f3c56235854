/*
 * from=npz: archives of arrays that np.savez and np.savez_compressed write (zip.c reads what is in them, npyhead.c and arrays.c make the model). Called by the engine on its one thread; blocks.
 *
 * A stored member is read where it lies. A deflated one is inflated once, when it is first asked for, into a spool file without a name, through buffers of fixed size: reads come at any place, and
 * inflate goes forward only. What a member grows to is what its .npy header says and the archive too: neither more nor less is ever written.
 *
 * The CRC-32 of each member is compared: of a deflated one while it is inflated; of a stored one while it is read, as long as reads follow each other; the first that does not makes us read the rest
 * of the member at once. With a schema the first read of all does, for ghosts at a member's end are never asked for. Rejected: to compare it only when reads happen to be in order, by which a damaged file would be found or not depending on the chunks of the result.
 *
 * Offsets: of stored members those of the archive; deflated ones come one after another from SPOOLED on, in the spool file from 0.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "convert/buffer.h"
#include "convert/source/npy.h"
#include "convert/source/spool.h"
#include "convert/source/zip.h"

#define SPOOLED     (UINT64_C(1) << 62)
#define IN_BYTES    65536u
#define OUT_BYTES   262144u
#define MEMBERS_MAX 1048576u

struct member {
    struct cv_zip_entry entry;
    uint32_t input;
    uint64_t base;               /* of its first byte, as read_bytes counts */
    struct cv_npy_head head;
    bool sound;                  /* CRC-32 compared; deflated: in the spool file */
    uint32_t crc;                /* of a stored one's bytes before crc_next */
    uint64_t crc_next;
};

struct npz {
    struct cv_source source;
    struct member *members;      /* by input and base */
    size_t nmembers;
    const char *spool_dir;
    int spool;                   /* -1: not made yet */
    uint64_t spool_bytes;
    uint8_t *in, *out;
    bool parts;                  /* of members are read: a schema says which */
};

static const char *path_of(const struct npz *z, const struct member *m)
{
    return z->source.inputs[m->input].path;
}

/* ---------------------------------------------------------------- inflating */

static int bad_crc(const struct npz *z, const struct member *m, struct cv_fail *why)
{
    return cv_fail(why, -EBADMSG, path_of(z, m), m->entry.name, m->entry.data_at, "the CRC-32 of this member is not that of its %llu bytes: the file is damaged",
                   (unsigned long long)m->entry.size_bytes);
}

static int feed(struct npz *z, const struct member *m, z_stream *strm, uint64_t *taken, struct cv_fail *why)
{
    uint64_t left = m->entry.packed_bytes - *taken;
    size_t len = left < IN_BYTES ? (size_t)left : IN_BYTES;
    int rc;

    if (strm->avail_in || !len)
        return 0;
    rc = cv_inputs_read(&z->source, m->input, m->entry.data_at + *taken, z->in, len, why);
    strm->next_in = z->in;
    strm->avail_in = (unsigned)len;
    *taken += len;
    return rc;
}

/* The next bytes of the stream into z->out, at most cap: how many; 0 at its end. */
static int64_t inflate_some(struct npz *z, const struct member *m, z_stream *strm, uint64_t *taken, size_t cap, bool *ended, struct cv_fail *why)
{
    strm->next_out = z->out;
    strm->avail_out = (unsigned)cap;
    while (strm->avail_out && !*ended) {
        int rc = feed(z, m, strm, taken, why), z_rc;

        if (rc)
            return rc;
        z_rc = inflate(strm, Z_NO_FLUSH);
        *ended = z_rc == Z_STREAM_END;
        if (z_rc == Z_MEM_ERROR)
            return cv_fail(why, -ENOMEM, path_of(z, m), m->entry.name, CV_NO_OFFSET, "out of memory");
        if (z_rc != Z_OK && z_rc != Z_STREAM_END)
            return cv_fail(why, -EBADMSG, path_of(z, m), m->entry.name, m->entry.data_at + *taken - strm->avail_in, "the compressed bytes are damaged: %s",
                           z_rc == Z_BUF_ERROR ? "they end too early" : strm->msg ? strm->msg : "no stream of deflate");
    }
    return (int64_t)(cap - strm->avail_out);
}

/* The first bytes of a deflated member, for its header. */
static int peek(struct npz *z, const struct member *m, size_t cap, size_t *len, struct cv_fail *why)
{
    z_stream strm = {0};
    uint64_t taken = 0;
    bool ended = false;
    int64_t n;

    if (inflateInit2(&strm, -MAX_WBITS) != Z_OK)
        return cv_fail(why, -ENOMEM, path_of(z, m), m->entry.name, CV_NO_OFFSET, "out of memory");
    n = inflate_some(z, m, &strm, &taken, cap, &ended, why);
    inflateEnd(&strm);
    *len = n < 0 ? 0 : (size_t)n;
    return n < 0 ? (int)n : 0;
}

static int spool_stream(struct npz *z, const struct member *m, z_stream *strm, struct cv_fail *why)
{
    uint64_t taken = 0, given = 0;
    uint32_t crc = (uint32_t)crc32(0, NULL, 0);
    bool ended = false;

    while (!ended) {
        int64_t n = inflate_some(z, m, strm, &taken, OUT_BYTES, &ended, why);
        int rc;

        if (n < 0)
            return (int)n;
        if ((uint64_t)n > m->entry.size_bytes - given)
            return cv_fail(why, -EBADMSG, path_of(z, m), m->entry.name, m->entry.data_at, "its compressed bytes grow to more than the %llu that the archive says",
                           (unsigned long long)m->entry.size_bytes);
        crc = (uint32_t)crc32(crc, z->out, (unsigned)n);
        rc = cv_spool_write(z->spool, z->spool_dir, m->base - SPOOLED + given, z->out, (size_t)n, why);
        if (rc)
            return rc;
        given += (uint64_t)n;
    }
    if (given != m->entry.size_bytes)
        return cv_fail(why, -EBADMSG, path_of(z, m), m->entry.name, m->entry.data_at, "its compressed bytes grow to %llu, and the archive says %llu", (unsigned long long)given,
                       (unsigned long long)m->entry.size_bytes);
    return crc == m->entry.crc ? 0 : bad_crc(z, m, why);
}

static int spool_member(struct npz *z, struct member *m, struct cv_fail *why)
{
    z_stream strm = {0};
    int rc;

    if (z->spool < 0) {
        rc = cv_spool_open(z->spool_dir, why);
        if (rc < 0)
            return rc;
        z->spool = rc;
    }
    if (inflateInit2(&strm, -MAX_WBITS) != Z_OK)
        return cv_fail(why, -ENOMEM, path_of(z, m), m->entry.name, CV_NO_OFFSET, "out of memory");
    rc = spool_stream(z, m, &strm, why);
    inflateEnd(&strm);
    m->sound = rc == 0;
    return rc;
}

/* ---------------------------------------------------------------- reading */

static int crc_take(struct npz *z, struct member *m, const void *buf, size_t len, struct cv_fail *why)
{
    m->crc = (uint32_t)crc32_z(m->crc, buf, len);
    m->crc_next += len;
    if (m->crc_next < m->entry.size_bytes)
        return 0;
    m->sound = m->crc == m->entry.crc;
    return m->sound ? 0 : bad_crc(z, m, why);
}

/* off counts from the member's beginning, buf has the bytes. */
static int stored_check(struct npz *z, struct member *m, uint64_t off, const void *buf, size_t len, struct cv_fail *why)
{
    if (m->sound || off + len <= m->crc_next)
        return 0;
    if (off == m->crc_next && !z->parts)
        return crc_take(z, m, buf, len, why);
    while (!m->sound) {
        uint64_t left = m->entry.size_bytes - m->crc_next;
        size_t n = left < OUT_BYTES ? (size_t)left : OUT_BYTES;
        int rc = cv_inputs_read(&z->source, m->input, m->entry.data_at + m->crc_next, z->out, n, why);

        if (rc == 0)
            rc = crc_take(z, m, z->out, n, why);
        if (rc)
            return rc;
    }
    return 0;
}

static struct member *member_at(struct npz *z, uint32_t input, uint64_t off)
{
    size_t lo = 0, hi = z->nmembers;

    while (lo < hi) { /* the last one that begins at off or before */
        size_t mid = lo + (hi - lo) / 2;
        const struct member *m = &z->members[mid];

        if (m->input < input || (m->input == input && m->base <= off))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo && z->members[lo - 1].input == input ? &z->members[lo - 1] : NULL;
}

static int npz_read(struct cv_source *s, uint32_t input, uint64_t off, void *buf, size_t len, struct cv_fail *why)
{
    struct npz *z = (struct npz *)s;
    struct member *m = member_at(z, input, off);
    int rc;

    if (!m || off - m->base > m->entry.size_bytes || len > m->entry.size_bytes - (off - m->base))
        return cv_fail(why, -ENODATA, input < s->ninputs ? s->inputs[input].path : NULL, NULL, CV_NO_OFFSET, "%zu bytes that are in no member are to be read", len);
    if (m->entry.method == CV_ZIP_STORED) {
        rc = cv_inputs_read(s, input, off, buf, len, why);
        return rc ? rc : stored_check(z, m, off - m->base, buf, len, why);
    }
    rc = m->sound ? 0 : spool_member(z, m, why);
    return rc ? rc : cv_spool_read(z->spool, z->spool_dir, off - SPOOLED, buf, len, why);
}

/* ---------------------------------------------------------------- opening */

static int head_read(struct npz *z, struct member *m, struct cv_fail *why)
{
    size_t cap = m->entry.size_bytes < CV_NPY_HEAD_MAX ? (size_t)m->entry.size_bytes : CV_NPY_HEAD_MAX, len = cap;
    bool stored = m->entry.method == CV_ZIP_STORED;
    int rc = stored ? cv_inputs_read(&z->source, m->input, m->entry.data_at, z->out, cap, why) : peek(z, m, cap, &len, why);
    uint64_t bytes;

    if (rc == 0)
        rc = cv_npy_head_parse(z->out, len, path_of(z, m), m->entry.name, stored ? m->entry.data_at : CV_NO_OFFSET, &m->head, why);
    if (rc)
        return rc;
    bytes = m->head.head_bytes + m->head.data_bytes;
    if (bytes != m->entry.size_bytes)
        return cv_fail(why, -EINVAL, path_of(z, m), m->entry.name, m->entry.data_at, "the header of the array says %llu bytes, and the archive %llu", (unsigned long long)bytes,
                       (unsigned long long)m->entry.size_bytes);
    m->base = stored ? m->entry.data_at : SPOOLED + z->spool_bytes;
    z->spool_bytes += stored ? 0 : bytes;
    if (z->spool_bytes >= SPOOLED)
        return cv_fail(why, -EFBIG, path_of(z, m), m->entry.name, CV_NO_OFFSET, "its members grow to more than any file has");
    return stored ? crc_take(z, m, z->out, (size_t)m->head.head_bytes, why) : 0;
}

static int by_base(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    if (x->input != y->input)
        return x->input < y->input ? -1 : 1;
    return x->base < y->base ? -1 : x->base > y->base;
}

/* Takes the entries: those of input i. */
static int take_members(struct npz *z, uint32_t i, struct cv_zip_entry *entries, size_t n, struct cv_fail *why)
{
    struct member *more = n > MEMBERS_MAX - z->nmembers ? NULL : realloc(z->members, (z->nmembers + n + 1) * sizeof *more);
    int rc = 0;

    if (!more)
        return cv_fail(why, -ENOMEM, z->source.inputs[i].path, NULL, CV_NO_OFFSET, "out of memory, or more than %u arrays", MEMBERS_MAX);
    z->members = more;
    for (size_t k = 0; k < n && rc == 0; k++) {
        struct member *m = &z->members[z->nmembers];
        size_t len = strlen(entries[k].name);

        *m = (struct member){.entry = entries[k], .input = i};
        entries[k].name = NULL;
        z->nmembers++;
        if (len <= 4 || strcmp(m->entry.name + len - 4, ".npy") != 0)
            rc = cv_fail(why, -EINVAL, path_of(z, m), m->entry.name, m->entry.data_at, "is no array of NumPy (its name does not end in .npy): take it out of the archive");
        else
            rc = head_read(z, m, why);
    }
    return rc;
}

static int name_of(const struct npz *z, const struct member *m, bool with_file, char *name, struct cv_fail *why)
{
    char member[CV_NAME_MAX + 1];
    const char *mistake;
    size_t len = strlen(m->entry.name) - 4;

    if (len >= CV_NAME_MAX)
        return cv_fail(why, -EINVAL, path_of(z, m), m->entry.name, CV_NO_OFFSET, "its name has more than %u bytes", CV_NAME_MAX);
    memcpy(member, m->entry.name, len);
    member[len] = '\0';
    if (with_file)
        return cv_name_of_file(path_of(z, m), ".npz", member, name, why);
    name[0] = '/';
    memcpy(name + 1, member, len + 1);
    mistake = cv_name_wrong(name);
    return mistake ? cv_fail(why, -EINVAL, path_of(z, m), m->entry.name, CV_NO_OFFSET, "its name cannot be that of a dataset: %s", mistake) : 0;
}

static int model_make(struct npz *z, const char *schema, struct cv_fail *why)
{
    struct cv_array *arrays = calloc(z->nmembers ? z->nmembers : 1, sizeof *arrays);
    bool with_file = !schema && z->source.ninputs > 1;
    int rc = arrays ? 0 : cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for %zu arrays", z->nmembers);

    for (size_t i = 0; rc == 0 && i < z->nmembers; i++) {
        const struct member *m = &z->members[i];
        char name[CV_NAME_MAX + 1];

        rc = name_of(z, m, with_file, name, why);
        if (rc)
            break;
        arrays[i] = (struct cv_array){.name = strdup(name), .input = m->input, .base = m->base + m->head.head_bytes, .head = m->head};
        if (!arrays[i].name)
            rc = cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for %zu arrays", z->nmembers);
    }
    if (rc == 0)
        rc = cv_arrays_model(&z->source, arrays, z->nmembers, schema, true, why);
    for (size_t i = 0; arrays && i < z->nmembers; i++)
        free(arrays[i].name);
    free(arrays);
    return rc;
}

static void npz_close(struct cv_source *s)
{
    struct npz *z = (struct npz *)s;

    for (size_t i = 0; i < z->nmembers; i++)
        free(z->members[i].entry.name);
    free(z->members);
    free(z->in);
    free(z->out);
    if (z->spool >= 0)
        close(z->spool);
    cv_inputs_close(s);
    cv_model_free(s->model);
    free(z);
}

static int npz_fill(struct npz *z, const struct cv_source_options *o, struct cv_fail *why)
{
    int rc = cv_inputs_open(&z->source, o, why);

    z->in = cv_buffer(IN_BYTES);
    z->out = cv_buffer(OUT_BYTES);
    if (rc == 0 && (!z->in || !z->out))
        rc = cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
    for (uint32_t i = 0; rc == 0 && i < z->source.ninputs; i++) {
        struct cv_zip_entry *entries = NULL;
        size_t n = 0;

        rc = cv_zip_list(&z->source, i, &entries, &n, why);
        if (rc == 0)
            rc = take_members(z, i, entries, n, why);
        cv_zip_free(entries, n);
    }
    if (rc)
        return rc;
    if (z->nmembers)
        qsort(z->members, z->nmembers, sizeof *z->members, by_base);
    return model_make(z, o->schema, why);
}

static int npz_open(const struct cv_source_options *o, struct cv_source **out, struct cv_fail *why)
{
    struct npz *z = calloc(1, sizeof *z);
    int rc;

    if (!z)
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
    z->source.ops = &cv_source_npz;
    z->spool = -1;
    z->spool_dir = o->spool;
    z->parts = o->schema != NULL;
    rc = npz_fill(z, o, why);
    if (rc) {
        npz_close(&z->source);
        return rc;
    }
    *out = &z->source;
    return 0;
}

const struct cv_source_ops cv_source_npz = {
    .name = "npz",
    .summary = "archives of NumPy's arrays, compressed or not: a dataset for each member",
    .open = npz_open,
    .read_bytes = npz_read,
    .close = npz_close,
};
