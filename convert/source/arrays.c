/*
 * The model of arrays that say themselves what they are (npy.h): files of NumPy and members of their archives. Called by npy.c and npz.c; no I/O but reading a schema.
 *
 * Without a schema, each array is a dataset. With one, the schema says which arrays of which ranks make a dataset and where they lie in it, and each header is compared with it: type, and shape with
 * ghosts. An array may hold all steps of its file as its first dimension. Byte order is the header's, for the schema's is that of bare bytes; it must be the same in all files of a dataset.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/schema/schema.h"
#include "convert/source/npy.h"

#define SHAPE_TEXT 256u

/* ---------------------------------------------------------------- names */

static bool utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    while (*s) {
        unsigned more = *s < 0x80 ? 0 : *s >= 0xc2 && *s < 0xe0 ? 1 : *s >= 0xe0 && *s < 0xf0 ? 2 : *s >= 0xf0 && *s < 0xf5 ? 3 : 4;
        unsigned char first = *s++;

        if (more == 4 || (first == 0xe0 && *s < 0xa0) || (first == 0xed && *s > 0x9f) || (first == 0xf0 && *s < 0x90) || (first == 0xf4 && *s > 0x8f))
            return false;
        for (; more; more--)
            if ((*s++ & 0xc0) != 0x80)
                return false;
    }
    return true;
}

const char *cv_name_wrong(const char *name)
{
    const char *part = name;

    if (*name != '/')
        return "it does not begin with /";
    if (strlen(name) > CV_NAME_MAX)
        return "it has more than 255 bytes";
    if (!utf8(name))
        return "it is no UTF-8";
    while (*part) {
        size_t n = strcspn(++part, "/");

        if (n == 0)
            return "a part of it is empty";
        if (n <= 2 && strspn(part, ".") >= n)
            return "a part of it is . or ..";
        part += n;
    }
    for (part = name; *part; part++)
        if ((unsigned char)*part < 0x20 || *part == 0x7f)
            return "there is a control character in it";
    return NULL;
}

int cv_name_of_file(const char *path, const char *suffix, const char *member, char *name, struct cv_fail *why)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *mistake;
    size_t n = strlen(base), cut = strlen(suffix);
    int len;

    if (n > cut && strcmp(base + n - cut, suffix) == 0)
        n -= cut;
    len = snprintf(name, CV_NAME_MAX + 1, "/%.*s%s%s", (int)n, base, member ? "/" : "", member ? member : "");
    mistake = len > (int)CV_NAME_MAX ? "it has more than 255 bytes" : cv_name_wrong(name);
    if (mistake)
        return cv_fail(why, -EINVAL, path, NULL, CV_NO_OFFSET, "its name cannot be that of a dataset: %s", mistake);
    return 0;
}

/* ---------------------------------------------------------------- without a schema */

static int no_memory(struct cv_fail *why)
{
    return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for the arrays, or more than %u of them", CV_DATASETS_MAX);
}

static int say_numpy(struct cv_dataset *d, const struct cv_npy_head *h)
{
    int rc = 0;

    if (h->boolean)
        rc = cv_attrs_text(&d->attrs, "numpy_dtype", "bool");
    if (rc == 0 && h->fortran_order && h->rank > 1)
        rc = cv_attrs_text(&d->attrs, "numpy_order", "fortran");
    return rc;
}

static int dataset_of(struct cv_source *s, const struct cv_array *a, struct cv_fail *why)
{
    const struct cv_dataset *same = cv_model_find(s->model, a->name);
    struct cv_dataset *d;
    struct cv_block *b;

    if (same)
        return cv_fail(why, -EEXIST, s->inputs[a->input].path, a->name, CV_NO_OFFSET, "%s has an array of that name, too", s->inputs[same->blocks[0].input].path);
    d = cv_model_add(s->model, a->name);
    b = d ? cv_dataset_block(d) : NULL;
    if (!b || say_numpy(d, &a->head) != 0)
        return no_memory(why);
    d->type = a->head.type;
    d->rank = a->head.rank;
    for (unsigned i = 0; i < d->rank; i++)
        d->dims[i].size = b->count[i] = a->head.dims[i];
    b->input = a->input;
    b->offset_bytes = a->base;
    return 0;
}

/* ---------------------------------------------------------------- with one */

/* Arrays are in the order of their inputs. name NULL: the first one. */
static const struct cv_array *array_of(const struct cv_array *arrays, size_t n, uint32_t input, const char *name)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (arrays[mid].input < input)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < n && arrays[lo].input == input; lo++)
        if (!name || strcmp(arrays[lo].name, name) == 0)
            return &arrays[lo];
    return NULL;
}

static void shape_text(const uint64_t *dims, unsigned rank, char *out)
{
    size_t n = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < rank; i++)
        n += (size_t)snprintf(out + n, SHAPE_TEXT - n, "%s%llu", i ? "x" : "", (unsigned long long)dims[i]);
    if (!rank)
        snprintf(out, SHAPE_TEXT, "a scalar");
}

/* Where block b of dataset d begins in array a; false: it is not of that shape. */
static bool place_of(const struct cv_dataset *d, const struct cv_block *b, const struct cv_array *a, uint64_t *offset_bytes)
{
    const struct cv_npy_head *h = &a->head;
    unsigned skip = d->rank && d->dims[0].steps ? 1 : 0, rank = d->rank - skip, more = h->rank - rank;
    uint64_t bytes = d->type.size_bytes;

    if (h->rank < rank || more > skip || (skip && b->count[0] != 1))
        return false;
    for (unsigned i = 0; i < rank; i++) {
        if (h->dims[more + i] != cv_block_stored(b, skip + i))
            return false;
        bytes *= h->dims[more + i];
    }
    if (skip && !more && d->dims[0].size != 1)
        return false;
    if (more && (h->dims[0] != d->dims[0].size || b->start[0] >= h->dims[0]))
        return false;
    *offset_bytes = a->base + (more ? b->start[0] * bytes : 0);
    return true;
}

static int block_of(struct cv_source *s, struct cv_dataset *d, struct cv_block *b, const struct cv_array *a, bool first, struct cv_fail *why)
{
    const char *path = b->input < s->ninputs ? s->inputs[b->input].path : NULL;
    struct cv_type t = d->type;
    uint64_t stored[CV_RANK_MAX];
    char want[SHAPE_TEXT], has[SHAPE_TEXT];

    if (!a)
        return cv_fail(why, -EINVAL, path, d->name, CV_NO_OFFSET, "the schema has this dataset, and there is no array of that name in the file");
    if (a->head.type.kind != t.kind || a->head.type.size_bytes != t.size_bytes)
        return cv_fail(why, -EINVAL, path, d->name, CV_NO_OFFSET, "the schema says %s, and the header of the array %s", cv_type_name(t), cv_type_name(a->head.type));
    if (first)
        d->type.big_endian = a->head.type.big_endian;
    else if (a->head.type.big_endian != t.big_endian)
        return cv_fail(why, -EINVAL, path, d->name, CV_NO_OFFSET, "is %s-endian, unlike the files before: write all ranks in one order", t.big_endian ? "little" : "big");
    if (place_of(d, b, a, &b->offset_bytes))
        return 0;
    for (unsigned i = 0; i < d->rank; i++)
        stored[i] = i == 0 && d->dims[0].steps ? d->dims[0].size : cv_block_stored(b, i);
    shape_text(stored, d->rank, want);
    shape_text(a->head.dims, a->head.rank, has);
    return cv_fail(why, -EINVAL, path, d->name, CV_NO_OFFSET, "the schema says %s elements with ghosts%s, and the header of the array %s%s", want,
                   d->rank && d->dims[0].steps ? " and steps" : "", has, a->head.fortran_order ? " (of Fortran, reversed)" : "");
}

/* A file has one block of a dataset, and other steps of that one: it would be read for every rank. */
static int compare_again(const struct cv_source *s, const struct cv_dataset *d, const struct cv_block *first, const struct cv_block *b, struct cv_fail *why)
{
    bool same = d->rank && d->dims[0].steps;

    for (unsigned i = 1; i < d->rank; i++)
        same = same && first->start[i] == b->start[i];
    if (same)
        return 0;
    return cv_fail(why, -EINVAL, s->inputs[b->input].path, d->name, CV_NO_OFFSET, "the schema has several blocks of it in one file, where it is one array: layout: files, or global");
}

/* first: of each input, to be used. */
static int compare_dataset(struct cv_source *s, struct cv_dataset *d, const struct cv_array *arrays, size_t narrays, bool by_name, const struct cv_block **first, struct cv_fail *why)
{
    int rc = 0;

    memset(first, 0, s->ninputs * sizeof *first);
    for (size_t k = 0; k < d->nblocks && rc == 0; k++) {
        struct cv_block *b = &d->blocks[k];
        const struct cv_array *a = array_of(arrays, narrays, b->input, by_name ? d->name : NULL);

        rc = first[b->input] ? compare_again(s, d, first[b->input], b, why) : 0;
        rc = rc ? rc : block_of(s, d, b, a, k == 0, why);
        first[b->input] = b;
        if (rc == 0 && k == 0 && a->head.boolean)
            rc = cv_attrs_text(&d->attrs, "numpy_dtype", "bool");
    }
    return rc;
}

static int compare(struct cv_source *s, const struct cv_array *arrays, size_t narrays, bool by_name, struct cv_fail *why)
{
    const struct cv_block **first;
    struct cv_model *m = s->model;
    int rc = 0;

    if (!by_name && m->ndatasets != 1)
        return cv_fail(why, -EINVAL, s->inputs[0].path, NULL, CV_NO_OFFSET, "a .npy file holds one array, and the schema has %zu datasets", m->ndatasets);
    first = calloc(s->ninputs, sizeof *first);
    if (!first)
        return no_memory(why);
    for (size_t i = 0; i < m->ndatasets && rc == 0; i++)
        rc = compare_dataset(s, &m->datasets[i], arrays, narrays, by_name, first, why);
    free(first);
    return rc;
}

/* What the schema counts as records: the first dimension of an input's arrays, in case that it is steps. */
static uint64_t records_of(const struct cv_array *arrays, size_t n, uint32_t input)
{
    const struct cv_array *first = array_of(arrays, n, input, NULL), *a = first;

    while (a && a < arrays + n && a->input == input)
        a++;
    return first && first->head.rank && first->head.dims[0] < INT64_MAX / CV_DATASETS_MAX ? first->head.dims[0] * (uint64_t)(a - first) : 0;
}

static int model_of_schema(struct cv_source *s, const struct cv_array *arrays, size_t narrays, const char *path, struct cv_fail *why)
{
    struct cv_schema *schema = NULL;
    struct cv_schema_file *files = calloc(s->ninputs, sizeof *files);
    int rc;

    if (!files)
        return no_memory(why);
    for (size_t i = 0; i < s->ninputs; i++)
        files[i] = (struct cv_schema_file){.path = s->inputs[i].path, .size_bytes = s->inputs[i].size_bytes, .records = records_of(arrays, narrays, (uint32_t)i)};
    rc = cv_schema_read(path, &schema, why);
    if (rc == 0) {
        rc = cv_schema_model(schema, files, s->ninputs, false, &s->model, why);
        cv_schema_free(schema);
    }
    free(files);
    return rc;
}

int cv_arrays_model(struct cv_source *s, const struct cv_array *arrays, size_t narrays, const char *schema, bool by_name, struct cv_fail *why)
{
    int rc = 0;

    if (schema) {
        rc = model_of_schema(s, arrays, narrays, schema, why);
        return rc ? rc : compare(s, arrays, narrays, by_name, why);
    }
    s->model = cv_model_new();
    if (!s->model)
        return no_memory(why);
    for (size_t i = 0; i < narrays && rc == 0; i++)
        rc = dataset_of(s, &arrays[i], why);
    return rc;
}
