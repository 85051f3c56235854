/*
 * Random arrays in blocks (cv_fake.h). An array is cut along each dimension, a piece of a dimension perhaps into its even and odd numbers; blocks are all combinations, in random order, each stored
 * behind some bytes of nobody in one of the inputs, with ghosts around it that differ from the elements that they stand for. What is expected is filled in one by one from the blocks themselves.
 */
#include "tests/unit/cv_fake.h"

#include <math.h>

struct fake *fake_given;

uint64_t fake_number(struct fake_random *r, uint64_t below)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return (r->state * UINT64_C(0x2545f4914f6cdd1d) >> 16) % below;
}

bool fake_chance(struct fake_random *r, unsigned percent)
{
    return fake_number(r, 100) < percent;
}

uint64_t fake_elements(const struct cv_dataset *d)
{
    uint64_t n = 1;

    for (unsigned i = 0; i < d->rank; i++)
        n *= d->dims[i].size;
    return n;
}

bool fake_next(uint64_t *at, const uint64_t *dims, unsigned rank)
{
    for (unsigned i = rank; i-- > 0; at[i] = 0)
        if (++at[i] < dims[i])
            return true;
    return false;
}

uint64_t fake_place(const struct cv_dataset *d, const uint64_t *at)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < d->rank; i++)
        n = n * d->dims[i].size + at[i];
    return n;
}

uint64_t fake_offset(const struct cv_dataset *d, const struct cv_block *b, const uint64_t *at)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < d->rank; i++)
        n = n * cv_block_stored(b, i) + b->ghost_lo[i] + at[i];
    return b->offset_bytes + n * d->type.size_bytes;
}

/* ---------------------------------------------------------------- making */

struct pieces {
    uint64_t start[64], count[64], stride[64];
    unsigned n;
};

static void cut(struct fake_random *r, uint64_t size, bool plain, struct pieces *p)
{
    uint64_t most = 1 + fake_number(r, size + 1);

    p->n = 0;
    for (uint64_t at = 0; at < size && p->n < 60;) {
        uint64_t len = p->n == 58 ? size - at : 1 + fake_number(r, most), s;

        len = len < size - at ? len : size - at;
        s = plain || fake_chance(r, 70) || p->n > 50 ? 1 : 1 + fake_number(r, len < 4 ? len : 4);
        for (uint64_t k = 0; k < s; k++) {
            p->start[p->n] = at + k;
            p->count[p->n] = (len - k + s - 1) / s;
            p->stride[p->n++] = s;
        }
        at += len;
    }
}

static void append(struct fake *f, struct fake_random *r, uint32_t input, size_t n)
{
    while (f->len[input] + n > f->room[input]) {
        f->room[input] = f->room[input] ? 2 * f->room[input] : 4096;
        f->bytes[input] = realloc(f->bytes[input], f->room[input]);
        assert_non_null(f->bytes[input]);
    }
    for (size_t i = 0; i < n; i++)
        f->bytes[input][f->len[input] + i] = (uint8_t)fake_number(r, 256);
    f->len[input] += n;
}

/* Bytes for the block, ghosts and all. */
static void store(struct fake *f, struct fake_random *r, const struct cv_dataset *d, struct cv_block *b, bool plain)
{
    uint64_t n = d->type.size_bytes;

    b->input = (uint32_t)fake_number(r, FAKE_INPUTS);
    for (unsigned i = 0; i < d->rank; i++) {
        b->ghost_lo[i] = plain || fake_chance(r, 60) ? 0 : (uint32_t)fake_number(r, 3);
        b->ghost_hi[i] = plain || fake_chance(r, 60) ? 0 : (uint32_t)fake_number(r, 3);
        n *= cv_block_stored(b, i);
    }
    append(f, r, b->input, fake_number(r, 9));
    b->offset_bytes = f->len[b->input];
    append(f, r, b->input, n);
}

static void make_blocks(struct fake *f, struct fake_random *r, struct cv_dataset *d, const struct fake_options *o)
{
    struct pieces p[CV_RANK_MAX];
    uint64_t dims[CV_RANK_MAX], at[CV_RANK_MAX] = {0};

    for (unsigned i = 0; i < d->rank; i++) {
        cut(r, d->dims[i].size, o->plain, &p[i]);
        dims[i] = p[i].n;
        if (p[i].n == 0)
            return;
    }
    do {
        struct cv_block *b;

        if (o->gaps && fake_chance(r, 30))
            continue;
        b = cv_dataset_block(d);
        assert_non_null(b);
        for (unsigned i = 0; i < d->rank; i++) {
            b->start[i] = p[i].start[at[i]];
            b->count[i] = p[i].count[at[i]];
            b->stride[i] = p[i].stride[at[i]];
        }
    } while (fake_next(at, dims, d->rank));
    for (unsigned k = 0; o->overlaps && k < 4; k++) {
        struct cv_block *b = cv_dataset_block(d);

        for (unsigned i = 0; i < d->rank; i++) {
            b->start[i] = fake_number(r, d->dims[i].size);
            b->stride[i] = o->plain ? 1 : 1 + fake_number(r, 3);
            b->count[i] = 1 + fake_number(r, (d->dims[i].size - 1 - b->start[i]) / b->stride[i] + 1);
        }
    }
    for (size_t k = d->nblocks; k-- > 1;) {
        size_t other = fake_number(r, k + 1);
        struct cv_block b = d->blocks[k];

        d->blocks[k] = d->blocks[other];
        d->blocks[other] = b;
    }
    for (size_t k = 0; k < d->nblocks; k++)
        store(f, r, d, &d->blocks[k], o->plain);
}

/* One element as the machine has it. */
static void turned(const struct cv_dataset *d, const uint8_t *from, uint8_t *to)
{
    unsigned size = d->type.size_bytes, half = d->type.kind == CV_COMPLEX ? size / 2 : size;
    bool machine_big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;

    for (unsigned i = 0; i < size; i++)
        to[i] = from[d->type.big_endian == machine_big ? i : i / half * half + half - 1 - i % half];
}

static void fill_value(const struct cv_dataset *d, uint8_t *to)
{
    int64_t whole = (int64_t)d->fill;
    double wide = d->has_fill ? d->fill : NAN;
    float small = (float)wide;
    unsigned half = d->type.size_bytes / 2;

    memset(to, 0, 16);
    if (d->type.kind == CV_INT || d->type.kind == CV_UINT)
        memcpy(to, &whole, d->type.size_bytes); /* of a machine with the least byte first */
    else if (d->type.kind == CV_FLOAT)
        memcpy(to, half == 2 ? (void *)&small : (void *)&wide, d->type.size_bytes);
    else
        for (unsigned k = 0; k < (d->has_fill ? 1 : 2); k++)
            memcpy(to + k * half, half == 4 ? (void *)&small : (void *)&wide, half);
}

static void expect(struct fake *f, size_t which)
{
    const struct cv_dataset *d = &f->s.model->datasets[which];
    uint64_t n = fake_elements(d);
    size_t size = d->type.size_bytes;
    uint8_t one[16];

    f->expect[which] = malloc(n * size + 1);
    f->there[which] = calloc(n + 1, 1);
    assert_non_null(f->expect[which]);
    assert_non_null(f->there[which]);
    fill_value(d, one);
    for (uint64_t i = 0; i < n; i++)
        memcpy(f->expect[which] + i * size, one, size);
    for (size_t k = 0; k < d->nblocks; k++) {
        const struct cv_block *b = &d->blocks[k];
        uint64_t at[CV_RANK_MAX] = {0}, global[CV_RANK_MAX] = {0};

        do {
            for (unsigned i = 0; i < d->rank; i++)
                global[i] = b->start[i] + at[i] * b->stride[i];
            turned(d, f->bytes[b->input] + fake_offset(d, b, at), f->expect[which] + fake_place(d, global) * size);
            f->there[which][fake_place(d, global)]++;
        } while (fake_next(at, b->count, d->rank));
    }
}

static void make_dataset(struct fake *f, struct fake_random *r, unsigned k, const struct fake_options *o)
{
    static const char *const types[] = {"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "complex64", "complex128"};
    uint64_t rest = 1 + fake_number(r, FAKE_MOST);
    struct cv_dataset *d;
    char name[16];

    snprintf(name, sizeof name, "/d%u", k);
    d = cv_model_add(f->s.model, name);
    assert_non_null(d);
    d->type.big_endian = fake_chance(r, 50);
    assert_int_equal(cv_type_parse(types[fake_number(r, 12)], &d->type), 0);
    d->rank = o->rank <= CV_RANK_MAX ? o->rank : (unsigned)fake_number(r, CV_RANK_MAX + 1);
    for (unsigned i = d->rank; i-- > 0;) {
        uint64_t most = i == 0 ? rest : rest < 60 ? rest : 60;

        d->dims[i].size = 1 + fake_number(r, most < 400 ? most : 400);
        rest /= d->dims[i].size;
    }
    if (d->rank && fake_chance(r, 20))
        d->dims[0].steps = true;
    if (d->rank && !o->overlaps && fake_chance(r, 2))
        d->dims[fake_number(r, d->rank)].size = 0;
    d->gaps = o->gaps ? CV_GAPS_FILL : CV_GAPS_REFUSE;
    d->overlap = o->overlaps ? CV_OVERLAP_LAST : CV_OVERLAP_REFUSE;
    d->has_fill = fake_chance(r, 50);
    d->fill = d->has_fill ? (double)fake_number(r, 100) : 0;
    make_blocks(f, r, d, o);
}

struct fake *fake_new(uint64_t seed, const struct fake_options *o)
{
    struct fake_random r = {seed * UINT64_C(0x9e3779b97f4a7c15) + 1};
    struct fake *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->s = (struct cv_source){.ops = o->boxes ? &fake_source_boxes : &fake_source_bytes, .model = cv_model_new(), .inputs = f->inputs, .ninputs = FAKE_INPUTS};
    for (unsigned i = 0; i < 8; i++)
        (void)fake_number(&r, 2);
    for (unsigned k = 0; k < o->datasets; k++)
        make_dataset(f, &r, k, o);
    for (unsigned k = 0; k < o->datasets; k++)
        expect(f, k);
    for (unsigned i = 0; i < FAKE_INPUTS; i++)
        f->inputs[i] = (struct cv_input){.path = i == 0 ? "in-a" : i == 1 ? "in-b" : "in-c", .fd = -1, .size_bytes = f->len[i]};
    return f;
}

void fake_free(struct fake *f)
{
    cv_model_free(f->s.model);
    for (unsigned i = 0; i < FAKE_INPUTS; i++)
        free(f->bytes[i]);
    for (unsigned i = 0; i < 4; i++) {
        free(f->expect[i]);
        free(f->there[i]);
    }
    free(f);
}

/* ---------------------------------------------------------------- the source */

static int fails(struct fake *f, struct cv_fail *why)
{
    return ++f->calls == f->fail_at ? cv_fail(why, -EIO, "in-a", NULL, 7, "call %u of the source was to fail", f->calls) : 0;
}

static int fake_open(const struct cv_source_options *o, struct cv_source **out, struct cv_fail *why)
{
    (void)o;
    if (fails(fake_given, why))
        return -EIO;
    *out = &fake_given->s;
    return 0;
}

static int fake_read_bytes(struct cv_source *s, uint32_t input, uint64_t off, void *buf, size_t len, struct cv_fail *why)
{
    struct fake *f = (struct fake *)(void *)s;

    if (fails(f, why))
        return -EIO;
    if (input >= FAKE_INPUTS || off > f->len[input] || len > f->len[input] - off)
        return cv_fail(why, -ENODATA, NULL, NULL, off, "read beyond the end");
    memcpy(buf, f->bytes[input] + off, len);
    return 0;
}

static int fake_read_box(struct cv_source *s, const struct cv_dataset *d, const struct cv_block *b, const uint64_t *lo, const uint64_t *count, void *buf, struct cv_fail *why)
{
    struct fake *f = (struct fake *)(void *)s;
    uint64_t at[CV_RANK_MAX] = {0}, there[CV_RANK_MAX] = {0};
    uint8_t *to = buf;

    if (fails(f, why))
        return -EIO;
    do {
        for (unsigned i = 0; i < d->rank; i++) {
            there[i] = lo[i] + at[i];
            if (there[i] >= b->count[i])
                return cv_fail(why, -ENODATA, NULL, NULL, CV_NO_OFFSET, "a box beyond its block");
        }
        memcpy(to, f->bytes[b->input] + fake_offset(d, b, there), d->type.size_bytes);
        to += d->type.size_bytes;
    } while (fake_next(at, count, d->rank));
    return 0;
}

static void fake_close(struct cv_source *s)
{
    (void)s;
}

const struct cv_source_ops fake_source_bytes = {.name = "fake", .summary = "for tests", .open = fake_open, .read_bytes = fake_read_bytes, .close = fake_close};
const struct cv_source_ops fake_source_boxes = {.name = "fakebox", .summary = "for tests", .open = fake_open, .read_box = fake_read_box, .close = fake_close};
