/*
 * from=fortran: sequential unformatted files, as write(unit) makes them. Called by the engine on its one thread; blocks for the disk.
 *
 *     marker, payload, marker   for each record. A marker is the length of the payload, 4 bytes (or 8: -frecord-marker=8, some old compilers), in the byte order of the machine or of convert=.
 *
 * A record of more than 2^31 - 9 bytes is written as several subrecords with 4-byte markers: the marker before one is negative when another follows, the marker behind one when another came before it.
 * So the payload of a record lies in pieces. The index of them is made by reading markers only, and each read of the engine is cut at pieces.
 *
 * No file says how wide its markers are and which order they have: all four ways are tried, and the one by which every record ends where it should is the right one; where none is, the reason is of the
 * one that came farthest. Rejected: asking the user for what the file tells.
 *
 * Offsets: the payloads of an input's records, one after another, without markers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "convert/schema/schema.h"
#include "convert/source/source.h"
#include "fp/grown.h"

#define WINDOW_BYTES   4096u
#define INDEX_LEAST    1048576u            /* bytes: what memory says is no less */
#define INDEX_MOST     (64u << 20)

struct piece {
    uint64_t from;   /* as read_bytes counts */
    uint64_t at;     /* in the file; bit 63: a record begins with it */
};
#define BEGINS (UINT64_C(1) << 63)

struct index {
    struct piece *pieces;
    size_t npieces, cap;
    uint64_t nrecords;
    uint64_t bytes;  /* of all payloads */
    uint64_t used;   /* records that the schema has: up to the highest */
    size_t *begins;  /* first piece of each record; NULL: they are the same */
    bool big_endian; /* its markers */
};

struct fortran {
    struct cv_source source;
    struct index *files; /* one for each input */
    size_t pieces, pieces_max;
};

/* ---------------------------------------------------------------- markers */

struct markers {
    unsigned bytes;
    bool big_endian;
};

struct scan {
    struct fortran *f;
    uint32_t input;
    struct markers m;
    uint8_t window[WINDOW_BYTES];
    uint64_t window_at;
    size_t window_len;
    uint64_t at;         /* of the next marker */
    struct cv_fail *why;
};

static const struct cv_input *input_of(const struct scan *s)
{
    return &s->f->source.inputs[s->input];
}

static int marker_at(struct scan *s, uint64_t at, int64_t *v)
{
    const struct cv_input *in = input_of(s);
    uint64_t u = 0;
    const uint8_t *p;

    if (at > in->size_bytes || in->size_bytes - at < s->m.bytes)
        return cv_fail(s->why, -ENODATA, in->path, NULL, in->size_bytes, "the file ends here, and a marker of a record should be at byte %llu", (unsigned long long)at);
    if (at < s->window_at || at + s->m.bytes > s->window_at + s->window_len) {
        size_t len = in->size_bytes - at < WINDOW_BYTES ? (size_t)(in->size_bytes - at) : WINDOW_BYTES;
        int rc = cv_inputs_read(&s->f->source, s->input, at, s->window, len, s->why);

        if (rc)
            return rc;
        s->window_at = at;
        s->window_len = len;
    }
    p = s->window + (at - s->window_at);
    for (unsigned i = 0; i < s->m.bytes; i++)
        u |= (uint64_t)p[i] << 8 * (s->m.big_endian ? s->m.bytes - 1 - i : i);
    *v = s->m.bytes == 4 ? (int64_t)(int32_t)(uint32_t)u : (int64_t)u;
    return 0;
}

static int piece_add(struct scan *s, uint64_t at, bool begins)
{
    struct index *x = &s->f->files[s->input];
    struct piece *more;

    if (s->f->pieces + x->npieces == s->f->pieces_max)
        return cv_fail(s->why, -E2BIG, input_of(s)->path, NULL, at, "more than %zu records: their index would not be within the memory that is allowed; write larger records, or allow more",
                       s->f->pieces_max);
    more = fp_grown(x->pieces, x->npieces, &x->cap, sizeof *more);
    if (!more)
        return cv_fail(s->why, -ENOMEM, input_of(s)->path, NULL, CV_NO_OFFSET, "out of memory for the index of records");
    x->pieces = more;
    x->pieces[x->npieces++] = (struct piece){.from = x->bytes, .at = at | (begins ? BEGINS : 0)};
    return 0;
}

/* One subrecord at s->at, which moves behind it. */
static int subrecord(struct scan *s, bool continued, bool *more)
{
    const struct cv_input *in = input_of(s);
    int64_t lead, trail;
    uint64_t len, end;
    int rc = marker_at(s, s->at, &lead);

    if (rc)
        return rc;
    if (lead < 0 && (s->m.bytes == 8 || lead == INT32_MIN))
        return cv_fail(s->why, -EINVAL, in->path, NULL, s->at, "the marker of a record says %lld bytes", (long long)lead);
    *more = lead < 0;
    len = (uint64_t)(lead < 0 ? -lead : lead);
    if (in->size_bytes - s->at - s->m.bytes < len)
        return cv_fail(s->why, -ENODATA, in->path, NULL, s->at, "the marker of a record says %llu bytes, and only %llu follow: it was cut off, or these are no records of Fortran", (unsigned long long)len,
                       (unsigned long long)(in->size_bytes - s->at - s->m.bytes));
    end = s->at + s->m.bytes + len;
    rc = marker_at(s, end, &trail);
    if (rc)
        return rc;
    if (trail != (continued ? -(int64_t)len : (int64_t)len))
        return cv_fail(s->why, -EINVAL, in->path, NULL, end, "the marker behind a record says %lld, and the one before it, at byte %llu, %lld", (long long)trail, (unsigned long long)s->at,
                       (long long)lead);
    rc = piece_add(s, s->at + s->m.bytes, !continued);
    s->f->files[s->input].bytes += len;
    s->at = end + s->m.bytes;
    return rc;
}

static int scan_file(struct scan *s)
{
    struct index *x = &s->f->files[s->input];

    x->npieces = 0;
    x->nrecords = 0;
    x->bytes = 0;
    s->at = 0;
    s->window_at = 0;
    s->window_len = 0;
    while (s->at < input_of(s)->size_bytes) {
        bool continued = false, more = false;

        do {
            int rc = subrecord(s, continued, &more);

            if (rc)
                return rc;
            continued = true;
        } while (more);
        x->nrecords++;
    }
    return 0;
}

/* The index of an input, by the markers that fit. */
static int index_file(struct fortran *f, uint32_t input, struct cv_fail *why)
{
    struct scan *s = malloc(sizeof *s);
    struct cv_fail *one = malloc(sizeof *one), *far = calloc(1, sizeof *far);
    uint64_t farthest = 0;
    int rc = s && one && far ? -EINVAL : cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory"), result = rc;

    for (unsigned way = 0; rc == -EINVAL && way < 4; way++) {
        int tried;

        memset(one, 0, sizeof *one);
        *s = (struct scan){.f = f, .input = input, .m = {.bytes = way < 2 ? 4 : 8, .big_endian = way & 1}, .why = one};
        tried = scan_file(s);
        if (tried == 0) {
            f->files[input].big_endian = s->m.big_endian;
            rc = 0;
        } else if (!far->text[0] || s->at > farthest || tried == -E2BIG || tried == -ENOMEM) {
            *far = *one;
            farthest = s->at;
            result = tried;
        }
    }
    if (rc == -EINVAL)
        rc = cv_fail(why, result, far->file, NULL, far->offset_bytes, "%s", far->text);
    free(s);
    free(one);
    free(far);
    f->pieces += rc ? 0 : f->files[input].npieces;
    return rc;
}

/* ---------------------------------------------------------------- records of blocks */

/* Where the first piece of each record is, for a file that has subrecords. */
static int index_records(struct index *x, struct cv_fail *why)
{
    size_t n = 0;

    if (x->npieces == x->nrecords)
        return 0;
    x->begins = malloc(x->nrecords * sizeof *x->begins);
    if (!x->begins)
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for the index of records");
    for (size_t i = 0; i < x->npieces; i++)
        if (x->pieces[i].at & BEGINS)
            x->begins[n++] = i;
    return 0;
}

/* Where record r of an input begins, and its payload's bytes. */
static bool record_find(const struct index *x, uint64_t r, uint64_t *from, uint64_t *bytes, uint64_t *at)
{
    size_t first, next;

    if (r >= x->nrecords)
        return false;
    first = x->begins ? x->begins[r] : r;
    next = r + 1 == x->nrecords ? x->npieces : x->begins ? x->begins[r + 1] : r + 1;
    *from = x->pieces[first].from;
    *bytes = (next < x->npieces ? x->pieces[next].from : x->bytes) - *from;
    *at = x->pieces[first].at & ~BEGINS;
    return true;
}

static int block_place(struct fortran *f, const struct cv_dataset *d, struct cv_block *b, struct cv_fail *why)
{
    struct index *x = &f->files[b->input];
    const char *path = f->source.inputs[b->input].path;
    uint64_t want = d->type.size_bytes, from = 0, bytes = 0, at = 0, record = b->offset_bytes;

    for (unsigned i = 0; i < d->rank; i++)
        if (__builtin_mul_overflow(want, cv_block_stored(b, i), &want))
            return cv_fail(why, -EOVERFLOW, path, d->name, CV_NO_OFFSET, "a block of more than 2^64 bytes");
    if (!record_find(x, record, &from, &bytes, &at))
        return cv_fail(why, -ENODATA, path, d->name, f->source.inputs[b->input].size_bytes, "the schema has it in record %llu, and the file has %llu", (unsigned long long)record + 1,
                       (unsigned long long)x->nrecords);
    if (bytes != want)
        return cv_fail(why, -EINVAL, path, d->name, at, "record %llu has %llu bytes, and the schema says %llu for this block", (unsigned long long)record + 1, (unsigned long long)bytes,
                       (unsigned long long)want);
    b->offset_bytes = from;
    x->used = record >= x->used ? record + 1 : x->used;
    return 0;
}

static int check_order(const struct fortran *f, const struct cv_dataset *d, struct cv_fail *why)
{
    const char *order[] = {"little", "big"};

    for (size_t k = 0; d->type.size_bytes > 1 && k < d->nblocks; k++) {
        const struct index *x = &f->files[d->blocks[k].input];

        if (x->big_endian != d->type.big_endian && x->bytes)
            return cv_fail(why, -EINVAL, f->source.inputs[d->blocks[k].input].path, d->name, 0, "its markers are %s-endian, and the schema says that the numbers are %s-endian: set byte_order: %s",
                           order[x->big_endian], order[d->type.big_endian], order[x->big_endian]);
    }
    return 0;
}

/*
 * Records behind the last one that the schema has are steps or datasets that nobody described. Files of ranks have the same records, though not each is a block: not those of blocks without elements,
 * nor of what every file has whole, which is read of one file alone.
 */
static int all_used(const struct fortran *f, struct cv_fail *why)
{
    uint64_t used = 0;

    for (size_t i = 0; i < f->source.ninputs; i++)
        used = f->files[i].used > used ? f->files[i].used : used;
    for (size_t i = 0; i < f->source.ninputs; i++) {
        const struct index *x = &f->files[i];
        uint64_t from = 0, bytes = 0, at = 0;

        if (record_find(x, used, &from, &bytes, &at) && from < x->bytes)
            return cv_fail(why, -EINVAL, f->source.inputs[i].path, NULL, at, "the file has %llu records, and the schema ends before record %llu: say steps, or the other datasets",
                           (unsigned long long)x->nrecords, (unsigned long long)used + 1);
    }
    return 0;
}

static int blocks_place(struct fortran *f, struct cv_fail *why)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < f->source.model->ndatasets; i++) {
        struct cv_dataset *d = &f->source.model->datasets[i];

        rc = check_order(f, d, why);
        for (size_t k = 0; k < d->nblocks && rc == 0; k++)
            rc = block_place(f, d, &d->blocks[k], why);
    }
    return rc ? rc : all_used(f, why);
}

/* ---------------------------------------------------------------- the source */

static int fortran_read(struct cv_source *s, uint32_t input, uint64_t off, void *buf, size_t len, struct cv_fail *why)
{
    struct fortran *f = (struct fortran *)s;
    const struct index *x = input < s->ninputs ? &f->files[input] : NULL;
    size_t lo = 0, hi = x ? x->npieces : 0;
    char *out = buf;

    if (!x || off > x->bytes || len > x->bytes - off)
        return cv_fail(why, -ENODATA, x ? s->inputs[input].path : NULL, NULL, CV_NO_OFFSET, "%zu bytes that are in no record are to be read", len);
    while (lo < hi) { /* behind the last piece that begins at off or before */
        size_t mid = lo + (hi - lo) / 2;

        if (x->pieces[mid].from <= off)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (size_t i = lo - 1; len; i++) {
        uint64_t skip = off - x->pieces[i].from, end = i + 1 < x->npieces ? x->pieces[i + 1].from : x->bytes;
        size_t n = end - off < len ? (size_t)(end - off) : len;
        int rc = cv_inputs_read(s, input, (x->pieces[i].at & ~BEGINS) + skip, out, n, why);

        if (rc)
            return rc;
        out += n;
        off += n;
        len -= n;
    }
    return 0;
}

static void fortran_close(struct cv_source *s)
{
    struct fortran *f = (struct fortran *)s;

    for (size_t i = 0; f->files && i < s->ninputs; i++) {
        free(f->files[i].pieces);
        free(f->files[i].begins);
    }
    free(f->files);
    cv_inputs_close(s);
    cv_model_free(s->model);
    free(f);
}

static int model_of_schema(struct fortran *f, const char *path, struct cv_fail *why)
{
    struct cv_source *s = &f->source;
    struct cv_schema *schema = NULL;
    struct cv_schema_file *files = calloc(s->ninputs, sizeof *files);
    int rc = files ? 0 : cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for %zu input files", s->ninputs);

    for (size_t i = 0; rc == 0 && i < s->ninputs; i++)
        files[i] = (struct cv_schema_file){.path = s->inputs[i].path, .size_bytes = s->inputs[i].size_bytes, .records = f->files[i].nrecords};
    if (rc == 0)
        rc = cv_schema_read(path, &schema, why);
    if (rc == 0) {
        rc = cv_schema_model(schema, files, s->ninputs, false, &s->model, why);
        cv_schema_free(schema);
    }
    free(files);
    return rc;
}

static int index_all(struct fortran *f, struct cv_fail *why)
{
    int rc = 0;

    f->files = calloc(f->source.ninputs, sizeof *f->files);
    if (!f->files)
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for %zu input files", f->source.ninputs);
    for (uint32_t i = 0; rc == 0 && i < f->source.ninputs; i++) {
        rc = index_file(f, i, why);
        if (rc == 0)
            rc = index_records(&f->files[i], why);
    }
    return rc;
}

static int fortran_open(const struct cv_source_options *o, struct cv_source **out, struct cv_fail *why)
{
    size_t memory = o->memory_bytes < INDEX_LEAST ? INDEX_LEAST : o->memory_bytes > INDEX_MOST ? INDEX_MOST : o->memory_bytes;
    struct fortran *f;
    int rc;

    if (!o->schema)
        return cv_fail(why, -EINVAL, NULL, NULL, CV_NO_OFFSET, "records of Fortran do not say what is in them: give a schema");
    f = calloc(1, sizeof *f);
    if (!f)
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
    f->source.ops = &cv_source_fortran;
    f->pieces_max = memory / (2 * sizeof(struct piece));
    rc = cv_inputs_open(&f->source, o, why);
    if (rc == 0)
        rc = index_all(f, why);
    if (rc == 0)
        rc = model_of_schema(f, o->schema, why);
    if (rc == 0)
        rc = blocks_place(f, why);
    if (rc) {
        fortran_close(&f->source);
        return rc;
    }
    *out = &f->source;
    return 0;
}

const struct cv_source_ops cv_source_fortran = {
    .name = "fortran",
    .summary = "unformatted sequential files of Fortran, that a schema describes",
    .needs_schema = true,
    .open = fortran_open,
    .read_bytes = fortran_read,
    .close = fortran_close,
};
