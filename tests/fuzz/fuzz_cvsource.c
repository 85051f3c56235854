/*
 * What conversions read of files that anybody may have written: headers of .npy, archives, records of Fortran, process-group streams (convert/source).
 *
 * An input changes a file that is right: bytes, numbers at any place, parts cut out, doubled or moved, the end cut off; sums are made right again mostly, so that what lies behind them is reached. Beside
 * what the sanitizers see: what fails says why; names are paths, blocks lie in their arrays, and what can be opened can be read or says why not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#include "convert/source/npy.h"
#include "convert/source/source.h"
#include "tests/fuzz/fuzz.h"
#include "tools/fpdump/fpdump.h"

#define FILE_MAX   16384u
#define BLOCKS_TRY 64u

struct file {
    uint8_t bytes[FILE_MAX];
    size_t len;
};

static int input_fd = -1, schema_fd = -1;
static char input_path[64], schema_path[64];

/* ---------------------------------------------------------------- files that are right */

static void put(struct file *f, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        f->bytes[f->len++] = (uint8_t)(v >> 8 * i);
}

static void put_bytes(struct file *f, const void *p, size_t len)
{
    memcpy(f->bytes + f->len, p, len);
    f->len += len;
}

static void make_npy(struct file *f)
{
    static const char dict[] = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 4), }";

    put_bytes(f, "\x93NUMPY\x01\x00\x76\x00", 10);
    put_bytes(f, dict, sizeof dict - 1);
    while (f->len < 127)
        put(f, ' ', 1);
    put(f, '\n', 1);
    for (unsigned i = 0; i < 24; i++)
        put(f, i, 4);
}

static void make_npz(struct file *f)
{
    struct file one = {.len = 0}, directory = {.len = 0};
    uint8_t packed[1024];
    z_stream strm = {.next_in = one.bytes, .next_out = packed, .avail_out = sizeof packed};
    unsigned entries = 3, count = 0;

    make_npy(&one);
    strm.avail_in = (unsigned)one.len;
    FUZZ_CHECK(deflateInit2(&strm, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) == Z_OK && deflate(&strm, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&strm);
    for (; count < entries; count++) {
        bool deflated = count == 1, zip64 = count == 2;
        size_t at = f->len, bytes = deflated ? strm.total_out : one.len;
        uint32_t crc = (uint32_t)crc32(0, one.bytes, (unsigned)one.len);
        char name[8] = "a0.npy";

        name[1] = (char)('0' + count);
        put(f, 0x04034b50, 4), put(f, 20, 2), put(f, 0, 2), put(f, deflated ? 8 : 0, 2), put(f, 0, 4), put(f, crc, 4), put(f, bytes, 4), put(f, one.len, 4), put(f, 6, 2), put(f, 0, 2);
        put_bytes(f, name, 6);
        put_bytes(f, deflated ? packed : one.bytes, bytes);
        put(&directory, 0x02014b50, 4), put(&directory, 20, 2), put(&directory, 45, 2), put(&directory, 0, 2), put(&directory, deflated ? 8 : 0, 2), put(&directory, 0, 4);
        put(&directory, crc, 4), put(&directory, zip64 ? UINT32_MAX : bytes, 4), put(&directory, zip64 ? UINT32_MAX : one.len, 4), put(&directory, 6, 2), put(&directory, zip64 ? 28 : 0, 2);
        put(&directory, 0, 2), put(&directory, 0, 2), put(&directory, 0, 2), put(&directory, 0, 4), put(&directory, zip64 ? UINT32_MAX : at, 4);
        put_bytes(&directory, name, 6);
        if (zip64)
            put(&directory, 1, 2), put(&directory, 24, 2), put(&directory, one.len, 8), put(&directory, bytes, 8), put(&directory, at, 8);
    }
    size_t at = f->len;
    put_bytes(f, directory.bytes, directory.len);
    put(f, 0x06064b50, 4), put(f, 44, 8), put(f, 45, 2), put(f, 45, 2), put(f, 0, 4), put(f, 0, 4), put(f, count, 8), put(f, count, 8), put(f, directory.len, 8), put(f, at, 8);
    put(f, 0x07064b50, 4), put(f, 0, 4), put(f, at + directory.len, 8), put(f, 1, 4);
    put(f, 0x06054b50, 4), put(f, 0, 4), put(f, 0xffff, 2), put(f, 0xffff, 2), put(f, UINT32_MAX, 4), put(f, UINT32_MAX, 4), put(f, 0, 2);
}

/* Two steps of two records, the second one in subrecords. */
static void make_fortran(struct file *f)
{
    for (unsigned step = 0; step < 2; step++) {
        static const int32_t parts[][2] = {{96, 96}, {-20, 20}, {-50, -50}, {30, -30}};

        for (size_t i = 0; i < 4; i++) {
            put(f, (uint32_t)parts[i][0], 4);
            for (int k = 0; k < abs(parts[i][0]); k++)
                put(f, (uint64_t)k, 1);
            put(f, (uint32_t)parts[i][1], 4);
        }
    }
}

static void make_group(struct file *f)
{
    uint64_t global[2] = {4, 3}, offset[2] = {0, 0}, local[2] = {2, 3};
    double values[6] = {1, 2, 3};
    struct fpdump *d;

    FUZZ_CHECK(fpdump_open(input_path, &(struct fpdump_options){.buffer_bytes = 4096}, &d) == 0);
    for (unsigned step = 0; step < 2; step++)
        for (unsigned rank = 0; rank < 2; rank++) {
            offset[0] = 2 * rank;
            fpdump_begin_rank(d, step, rank);
            fpdump_put(d, "t", FPDUMP_FLOAT64, 2, global, offset, local, values);
            fpdump_attr_text(d, "t", "dims", "y x");
            fpdump_attr_floats(d, NULL, "v", values, 2);
            fpdump_put(d, "s", FPDUMP_FLOAT64, 0, NULL, NULL, NULL, values);
            fpdump_end(d);
        }
    FUZZ_CHECK(fpdump_close(d) == 0);
    ssize_t n = pread(input_fd, f->bytes, sizeof f->bytes, 0);
    FUZZ_CHECK(n > 0 && n < (ssize_t)sizeof f->bytes);
    f->len = (size_t)n;
}

/* ---------------------------------------------------------------- changes */

static uint64_t get(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static void sum_at(uint8_t *p, const void *data, size_t len)
{
    uint64_t v = XXH64(data, len, 0);

    for (unsigned i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* Sums of a stream as they would be of its bytes. */
static void seal_group(struct file *f)
{
    for (size_t at = 0; at + 64 <= f->len; at += 64) {
        uint8_t *p = f->bytes + at, head[40 + 4096];
        size_t meta = get(p + 12, 4), payload;

        if (memcmp(p, "FPDUMP", 6) == 0)
            sum_at(p + 56, p, 56);
        if (memcmp(p, "FPDR", 4) != 0 || meta > 4096 || meta > f->len - at - 48)
            continue;
        payload = at + (48 + meta + 63) / 64 * 64;
        if ((p[6] & 1) && payload <= f->len && get(p + 24, 8) <= f->len - payload)
            sum_at(p + 32, f->bytes + payload, get(p + 24, 8));
        memcpy(head, p, 40);
        memcpy(head + 40, p + 48, meta);
        sum_at(p + 40, head, 40 + meta);
    }
}

static void change(struct fuzz_in *in, struct file *f)
{
    static const unsigned widths[] = {1, 2, 4, 8};
    uint8_t what = fuzz_u8(in);
    size_t at = f->len ? fuzz_u16(in) % f->len : 0, n = fuzz_u8(in);
    uint64_t v;

    switch (what % 8) {
    case 0: /* the end is cut off */
        f->len = at;
        break;
    case 1: /* a part is missing */
        n = n < f->len - at ? n : f->len - at;
        memmove(f->bytes + at, f->bytes + at + n, f->len - at - n);
        f->len -= n;
        break;
    case 2: /* a part is there twice, or something comes in */
        n = n < FILE_MAX - f->len ? n : FILE_MAX - f->len;
        memmove(f->bytes + at + n, f->bytes + at, f->len - at);
        f->len += n;
        if (what & 0x80)
            fuzz_bytes(in, f->bytes + at, n);
        break;
    case 3:
        fuzz_bytes(in, f->bytes + at, n % 16 < f->len - at ? n % 16 : f->len - at);
        break;
    default: /* a number */
        n = widths[n % 4];
        v = fuzz_number(in);
        for (unsigned i = 0; i < n && at + i < f->len; i++)
            f->bytes[at + i] = (uint8_t)(v >> 8 * i);
    }
}

/* ---------------------------------------------------------------- what must hold */

static void check_dataset(struct cv_source *s, const struct cv_dataset *d)
{
    static uint8_t buf[4096];

    FUZZ_CHECK(!cv_name_wrong(d->name) && d->rank <= CV_RANK_MAX && d->type.size_bytes);
    for (size_t k = 0; k < d->nblocks; k++) {
        const struct cv_block *b = &d->blocks[k];
        uint64_t bytes = d->type.size_bytes;
        struct cv_fail why = {0};
        int rc = 0;

        for (unsigned i = 0; i < d->rank; i++) {
            FUZZ_CHECK(b->start[i] <= d->dims[i].size && b->count[i] <= d->dims[i].size - b->start[i]);
            FUZZ_CHECK(!__builtin_mul_overflow(bytes, b->count[i], &bytes) || bytes == 0);
        }
        if (k >= BLOCKS_TRY || !bytes)
            continue;
        FUZZ_CHECK(bytes <= FILE_MAX * 1100u);
        for (uint64_t off = k % 2 ? bytes / 2 : 0; off < bytes && rc == 0; off += sizeof buf) {
            rc = s->ops->read_bytes(s, b->input, b->offset_bytes + off, buf, bytes - off < sizeof buf ? (size_t)(bytes - off) : sizeof buf, &why);
            FUZZ_CHECK(rc <= 0 && (rc == 0) == (why.text[0] == 0));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const struct cv_source_ops *const ops[] = {&cv_source_npy, &cv_source_npz, &cv_source_fortran, &cv_source_group};
    static void (*const make[])(struct file *f) = {make_npy, make_npz, make_fortran, make_group};
    static const char schema[] = "fpschema: 1\nlayout: files\nranks: 1\nsteps: all\ndatasets:\n  - {name: /a, type: float64, dims: [3, 4]}\n  - {name: /b, type: int32, dims: [25]}\n";
    static struct file files[4], f;
    struct fuzz_in in = {data, data + len};
    uint8_t first = fuzz_u8(&in);
    unsigned way = first % 4;
    const char *path = input_path;
    struct cv_source_options o = {.paths = &path, .npaths = 1, .schema = way == 2 ? schema_path : NULL, .memory_bytes = 1u << 20, .spool = "/tmp"};
    struct cv_source *s = NULL;
    struct cv_fail why = {0};
    int rc;

    if (input_fd < 0) {
        input_fd = memfd_create("input", MFD_CLOEXEC);
        schema_fd = memfd_create("schema", MFD_CLOEXEC);
        FUZZ_CHECK(input_fd >= 0 && schema_fd >= 0 && write(schema_fd, schema, sizeof schema - 1) == (ssize_t)sizeof schema - 1);
        snprintf(input_path, sizeof input_path, "/proc/self/fd/%d", input_fd);
        snprintf(schema_path, sizeof schema_path, "/proc/self/fd/%d", schema_fd);
        for (unsigned i = 0; i < 4; i++)
            make[i](&files[i]);
    }
    memcpy(&f, &files[way], sizeof f);
    while (fuzz_left(&in) > 0)
        change(&in, &f);
    if (way == 3 && !(first & 0x80))
        seal_group(&f);
    FUZZ_CHECK(ftruncate(input_fd, 0) == 0 && pwrite(input_fd, f.bytes, f.len, 0) == (ssize_t)f.len);
    rc = ops[way]->open(&o, &s, &why);
    FUZZ_CHECK(rc <= 0 && (rc == 0) == (why.text[0] == 0) && (rc || s));
    if (len <= 1)
        FUZZ_CHECK(rc == 0); /* unchanged */
    if (rc)
        return 0;
    for (size_t i = 0; i < s->model->ndatasets; i++)
        check_dataset(s, &s->model->datasets[i]);
    s->ops->close(s);
    return 0;
}
