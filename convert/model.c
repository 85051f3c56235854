/*
 * Datasets, blocks and attributes in memory (model.h). Called by sources, which make them, and by everything that reads them. One thread; no I/O.
 *
 * Tables grow by doubling and are bounded (CV_DATASETS_MAX, CV_BLOCKS_MAX), for what is in them comes from files that anybody may have written.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert/model.h"

struct cv_model *cv_model_new(void)
{
    return calloc(1, sizeof(struct cv_model));
}

static void attr_clear(struct cv_attr *a)
{
    free(a->name);
    free(a->text);
    free(a->ints);
    free(a->floats);
}

static void attrs_free(struct cv_attrs *a)
{
    for (size_t i = 0; i < a->count; i++)
        attr_clear(&a->items[i]);
    free(a->items);
}

void cv_model_free(struct cv_model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->ndatasets; i++) {
        struct cv_dataset *d = &m->datasets[i];

        free(d->name);
        for (unsigned k = 0; k < CV_RANK_MAX; k++)
            free(d->dims[k].name);
        attrs_free(&d->attrs);
        free(d->blocks);
    }
    free(m->datasets);
    attrs_free(&m->attrs);
    free(m);
}

/* Room for one more behind count items: full when count is a power of two. */
static void *grow(void *items, size_t count, size_t item_bytes)
{
    if (count && (count & (count - 1)))
        return items;
    return realloc(items, (count ? 2 * count : 1) * item_bytes);
}

struct cv_dataset *cv_model_add(struct cv_model *m, const char *name)
{
    struct cv_dataset *items, *d;

    if (m->ndatasets == CV_DATASETS_MAX)
        return NULL;
    items = grow(m->datasets, m->ndatasets, sizeof *items);
    if (!items)
        return NULL;
    m->datasets = items;
    d = &items[m->ndatasets];
    memset(d, 0, sizeof *d);
    d->name = strdup(name);
    if (!d->name)
        return NULL;
    m->ndatasets++;
    return d;
}

struct cv_dataset *cv_model_find(const struct cv_model *m, const char *name)
{
    for (size_t i = 0; i < m->ndatasets; i++)
        if (strcmp(m->datasets[i].name, name) == 0)
            return &m->datasets[i];
    return NULL;
}

struct cv_block *cv_dataset_block(struct cv_dataset *d)
{
    struct cv_block *items, *b;

    if (d->nblocks == CV_BLOCKS_MAX)
        return NULL;
    items = grow(d->blocks, d->nblocks, sizeof *items);
    if (!items)
        return NULL;
    d->blocks = items;
    b = &items[d->nblocks++];
    memset(b, 0, sizeof *b);
    for (unsigned i = 0; i < CV_RANK_MAX; i++)
        b->stride[i] = 1;
    return b;
}

/* ---------------------------------------------------------------- attributes */

const struct cv_attr *cv_attrs_find(const struct cv_attrs *a, const char *name)
{
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->items[i].name, name) == 0)
            return &a->items[i];
    return NULL;
}

/* Takes what v owns, also when it fails. */
static int put(struct cv_attrs *a, const char *name, struct cv_attr *v)
{
    struct cv_attr *old = (struct cv_attr *)(uintptr_t)cv_attrs_find(a, name), *items;

    v->name = strdup(name);
    if (!v->name || (v->kind == CV_ATTR_TEXT ? !v->text : !v->ints && !v->floats))
        goto fail;
    if (old) {
        attr_clear(old);
        *old = *v;
        return 0;
    }
    items = grow(a->items, a->count, sizeof *items);
    if (!items)
        goto fail;
    a->items = items;
    items[a->count++] = *v;
    return 0;
fail:
    attr_clear(v);
    return -ENOMEM;
}

static void *copy(const void *from, size_t bytes)
{
    void *to = malloc(bytes ? bytes : 1);

    if (to && bytes)
        memcpy(to, from, bytes);
    return to;
}

int cv_attrs_text(struct cv_attrs *a, const char *name, const char *text)
{
    struct cv_attr v = {.kind = CV_ATTR_TEXT, .text = strdup(text), .count = 1};

    return put(a, name, &v);
}

int cv_attrs_ints(struct cv_attrs *a, const char *name, const int64_t *values, size_t count)
{
    struct cv_attr v = {.kind = CV_ATTR_INTS, .ints = copy(values, count * sizeof *values), .count = count};

    return put(a, name, &v);
}

int cv_attrs_floats(struct cv_attrs *a, const char *name, const double *values, size_t count)
{
    struct cv_attr v = {.kind = CV_ATTR_FLOATS, .floats = copy(values, count * sizeof *values), .count = count};

    return put(a, name, &v);
}

/* ---------------------------------------------------------------- sizes and types */

bool cv_dataset_elements(const struct cv_dataset *d, uint64_t *count)
{
    uint64_t bytes = d->type.size_bytes;

    *count = 1;
    for (unsigned i = 0; i < d->rank; i++)
        if (__builtin_mul_overflow(*count, d->dims[i].size, count) || __builtin_mul_overflow(bytes, d->dims[i].size, &bytes))
            return false;
    return bytes <= INT64_MAX;
}

uint64_t cv_block_stored(const struct cv_block *b, unsigned i)
{
    return b->ghost_lo[i] + b->count[i] + b->ghost_hi[i];
}

static const struct {
    const char *name, *other;
    char letter; /* of NumPy */
    enum cv_kind kind;
    uint8_t size_bytes;
} types[] = {
    {"int8", "char", 'i', CV_INT, 1},      {"int16", "short", 'i', CV_INT, 2},         {"int32", "int", 'i', CV_INT, 4},
    {"int64", "long", 'i', CV_INT, 8},     {"uint8", NULL, 'u', CV_UINT, 1},         {"uint16", NULL, 'u', CV_UINT, 2},
    {"uint32", NULL, 'u', CV_UINT, 4},     {"uint64", NULL, 'u', CV_UINT, 8},          {"float32", "float", 'f', CV_FLOAT, 4},
    {"float64", "double", 'f', CV_FLOAT, 8}, {"complex64", NULL, 'c', CV_COMPLEX, 8}, {"complex128", NULL, 'c', CV_COMPLEX, 16},
};
#define TYPES (sizeof types / sizeof types[0])

const char *cv_type_name(struct cv_type t)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].kind == t.kind && types[i].size_bytes == t.size_bytes)
            return types[i].name;
    return "unknown";
}

static int type_set(struct cv_type *t, size_t i, bool big_endian)
{
    *t = (struct cv_type){.kind = types[i].kind, .size_bytes = types[i].size_bytes, .big_endian = big_endian};
    return 0;
}

bool cv_type_holds(struct cv_type t, double v)
{
    bool is_signed = t.kind == CV_INT;
    double top = ldexp(1, 8 * t.size_bytes - is_signed);

    if (t.kind != CV_INT && t.kind != CV_UINT)
        return t.size_bytes != (t.kind == CV_FLOAT ? 4 : 8) || isinf(v) || !isinf((float)v);
    return v < top && v >= (is_signed ? -top : 0) && v == trunc(v);
}

bool cv_type_holds_whole(struct cv_type t, int64_t v)
{
    int bits = 8 * t.size_bytes - (t.kind == CV_INT);

    if (t.kind != CV_INT && t.kind != CV_UINT)
        return true;
    if (v < 0 && t.kind == CV_UINT)
        return false;
    return bits >= 63 || (v < 0 ? v >= -(INT64_C(1) << bits) : v < INT64_C(1) << bits);
}

bool cv_type_holds_all(struct cv_type t, const struct cv_attr *a)
{
    bool all = a->kind != CV_ATTR_TEXT;

    for (size_t i = 0; all && i < a->count; i++)
        all = a->kind == CV_ATTR_INTS ? cv_type_holds_whole(t, a->ints[i]) : cv_type_holds(t, a->floats[i]);
    return all;
}

bool cv_attr_is_value(const struct cv_attr *a, struct cv_type of_dataset)
{
    static const char *const values[] = {CV_FILL_NAME, "missing_value", "valid_min", "valid_max", "valid_range", "actual_range", NULL};
    bool is = false;

    for (const char *const *v = values; *v; v++)
        is |= strcmp(*v, a->name) == 0;
    return is && of_dataset.kind != CV_COMPLEX && cv_type_holds_all(of_dataset, a);
}

bool cv_dataset_take_fill(struct cv_dataset *d, const struct cv_attr *a)
{
    if (a->count != 1 || !cv_type_holds_all(d->type, a))
        return false;
    d->has_fill = true;
    d->fill_is_whole = a->kind == CV_ATTR_INTS;
    d->fill_whole = d->fill_is_whole ? a->ints[0] : 0;
    d->fill = d->fill_is_whole ? (double)a->ints[0] : a->floats[0];
    return true;
}

int cv_type_parse(const char *text, struct cv_type *t)
{
    bool big = t->big_endian;
    const char *order = "<>=|";
    unsigned long size;
    char *end;

    for (size_t i = 0; i < TYPES; i++)
        if (strcmp(text, types[i].name) == 0 || (types[i].other && strcmp(text, types[i].other) == 0))
            return type_set(t, i, big);
    if (*text && strchr(order, *text)) {
        big = *text == '>' || (*text == '=' && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
        text++;
    }
    if (!*text || text[1] < '1' || text[1] > '9')
        return -EINVAL;
    size = strtoul(text + 1, &end, 10);
    for (size_t i = 0; !*end && i < TYPES; i++)
        if (types[i].letter == *text && types[i].size_bytes == size)
            return type_set(t, i, big);
    return -EINVAL;
}
