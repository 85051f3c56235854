/*
 * The keys of one dataset of a schema (parts.h). Called by keys.c, when dims, ranks and layout have been read. One thread; no I/O.
 *
 * All that the text alone can show to be wrong is shown here, at its line and column: dimensions that nobody has declared, arrays of more than 2^63 bytes, grids and lists that do not have the ranks'
 * number, blocks beyond the array. What needs the files waits for place.c.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/schema/parts.h"
#include "fp/opt.h"

void cv_schema_dataset_fini(struct cv_schema_dataset *d)
{
    struct cv_model *m;

    free(d->name);
    for (unsigned i = 0; i < CV_SCHEMA_DIMS_MAX; i++)
        free(d->dims[i].name);
    free(d->list);
    /* Attributes end with the model that owns them: one of these alone. */
    m = cv_model_new();
    if (m) {
        m->attrs = d->attrs;
        cv_model_free(m);
    }
}

/* ---------------------------------------------------------------- name and type */

static int take_name(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema_dataset *d = into;
    const char *text = "";
    char part[CV_NAME_MAX + 2];
    int rc = cv_take_text(r, n, "name", &text);

    if (rc)
        return rc;
    text += *text == '/';
    if (strlen(text) + 1 > CV_NAME_MAX)
        return cv_mistake(r, n, "the path of a dataset has at most %u bytes", CV_NAME_MAX);
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, "/");

        snprintf(part, sizeof part, "%.*s", (int)len, p);
        if (!len)
            return cv_mistake(r, n, "a part of the dataset's path is empty: it is like /fields/temperature, without // and without a slash at its end");
        if (strcmp(part, ".") == 0 || strcmp(part, "..") == 0)
            return cv_mistake(r, n, "\"%s\" can't be a part of a dataset's path", part);
        rc = cv_check_name(r, n->line, n->column, "a dataset", part);
        if (rc)
            return rc;
        p += len;
        if (!*p)
            break;
    }
    return asprintf(&d->name, "/%s", text) < 0 ? (d->name = NULL, cv_no_memory(r)) : 0;
}

static int take_type(struct cv_reading *r, const struct cv_node *n, void *into)
{
    static const char *const words[] = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64", "complex128", "double", NULL};
    struct cv_schema_dataset *d = into;
    const char *text = "";
    unsigned ignored;
    int rc = cv_take_text(r, n, "type", &text);

    if (rc)
        return rc;
    if (strcmp(text, "byte") == 0)
        return cv_mistake(r, n, "type: byte is int8 in NumPy and in netCDF, and uint8 elsewhere: say which one it is");
    d->type.big_endian = r->s->big_endian;
    if (cv_type_parse(text, &d->type) == 0)
        return 0;
    return cv_take_word(r, n, "type", words, &ignored);
}

/* ---------------------------------------------------------------- dimensions */

static const struct cv_dim *declared(const struct cv_schema *s, const char *name)
{
    for (size_t i = 0; i < s->ndims; i++)
        if (strcmp(s->dims[i].name, name) == 0)
            return &s->dims[i];
    return NULL;
}

static int unknown_dim(const struct cv_reading *r, const struct cv_node *n)
{
    const char **names = calloc(r->s->ndims + 1, sizeof *names), *near = NULL;

    for (size_t i = 0; names && i < r->s->ndims; i++)
        names[i] = r->s->dims[i].name;
    if (names)
        near = fp_nearest_name(n->text, names);
    cv_mistake(r, n, "\"%.60s\" is neither a number nor a dimension of dims:%s%s%s", n->text, near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
    free(names);
    return -EINVAL;
}

static int take_dim(const struct cv_reading *r, const struct cv_node *n, struct cv_dim *out)
{
    const struct cv_dim *known;
    const char *text = "";
    int rc = cv_take_text(r, n, "a dimension", &text);

    if (rc)
        return rc;
    if (strspn(text, "0123456789") == strlen(text))
        return cv_take_number(r, n, "a dimension", 0, INT64_MAX, &out->size);
    known = declared(r->s, text);
    if (!known)
        return unknown_dim(r, n);
    out->size = known->size;
    out->name = strdup(text);
    return out->name ? 0 : cv_no_memory(r);
}

static int take_dims(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema_dataset *d = into;
    uint64_t bytes = d->type.size_bytes;
    bool fits = true;

    if (n->kind != CV_NODE_LIST)
        return cv_mistake(r, n, "dims of a dataset is a list of names or numbers, like [z, y, x]");
    if (n->count > CV_SCHEMA_DIMS_MAX)
        return cv_mistake(r, n, "%zu dimensions: %u are the most (time steps apart)", n->count, CV_SCHEMA_DIMS_MAX);
    for (const struct cv_node *c = n->first; c; c = c->next) {
        struct cv_dim *dim = &d->dims[d->rank];
        int rc = take_dim(r, c, dim);

        if (rc)
            return rc;
        d->rank++;
        /* A dimension of no elements makes nothing of the others, but they must be such as a format can have. */
        if (__builtin_mul_overflow(bytes, dim->size ? dim->size : 1, &bytes) || bytes > INT64_MAX)
            fits = false;
    }
    return fits ? 0 : cv_mistake(r, n, "the product of the dimensions is more than 2^63 bytes");
}

/* ---------------------------------------------------------------- ghost cells */

static int take_ghost_side(struct cv_reading *r, const struct cv_node *n, const struct cv_schema_dataset *d, uint32_t *out)
{
    uint64_t v[CV_SCHEMA_DIMS_MAX] = {0};
    int rc;

    if (n->kind == CV_NODE_LIST) {
        rc = cv_take_numbers(r, n, "ghost", d->rank, 0, CV_SCHEMA_GHOST_MAX, v);
    } else {
        rc = cv_take_number(r, n, "ghost", 0, CV_SCHEMA_GHOST_MAX, &v[0]);
        for (unsigned i = 1; i < d->rank; i++)
            v[i] = v[0];
    }
    for (unsigned i = 0; rc == 0 && i < d->rank; i++)
        out[i] = (uint32_t)v[i];
    return rc;
}

static int take_ghost_lo(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema_dataset *d = into;

    return take_ghost_side(r, n, d, d->ghost_lo);
}

static int take_ghost_hi(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema_dataset *d = into;

    return take_ghost_side(r, n, d, d->ghost_hi);
}

static int take_ghost(struct cv_reading *r, const struct cv_node *n, void *into)
{
    static const struct cv_key sides[] = {{"lo", take_ghost_lo, false}, {"hi", take_ghost_hi, false}, {0}};
    struct cv_schema_dataset *d = into;
    int rc;

    if (n->kind == CV_NODE_MAP)
        return cv_take_keys(r, n, "ghost", sides, d);
    rc = take_ghost_side(r, n, d, d->ghost_lo);
    if (rc == 0)
        memcpy(d->ghost_hi, d->ghost_lo, sizeof d->ghost_hi);
    return rc;
}

/* ---------------------------------------------------------------- blocks */

struct making { /* of one block */
    struct cv_schema_dataset *d;
    struct cv_extent *e;
};

static int take_start(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct making *m = into;

    return cv_take_numbers(r, n, "start", m->d->rank, 0, INT64_MAX, m->e->start);
}

static int take_count(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct making *m = into;

    return cv_take_numbers(r, n, "count", m->d->rank, 0, INT64_MAX, m->e->count);
}

static int take_stride(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct making *m = into;

    return cv_take_numbers(r, n, "stride", m->d->rank, 1, INT64_MAX, m->e->stride);
}

static int take_extent(struct cv_reading *r, const struct cv_node *n, struct cv_schema_dataset *d, struct cv_extent *e)
{
    static const struct cv_key keys[] = {{"start", take_start, true}, {"count", take_count, true}, {"stride", take_stride, false}, {0}};
    struct making m = {d, e};
    int rc;

    for (unsigned i = 0; i < CV_SCHEMA_DIMS_MAX; i++)
        e->stride[i] = 1;
    rc = cv_take_keys(r, n, "a block", keys, &m);
    for (unsigned i = 0; rc == 0 && i < d->rank; i++) {
        uint64_t last, size = d->dims[i].size;

        if (!e->count[i])
            continue;
        if (__builtin_mul_overflow(e->count[i] - 1, e->stride[i], &last) || __builtin_add_overflow(last, e->start[i], &last) || last >= size)
            rc = cv_mistake(r, n, "the block goes beyond the array: in dimension %u of %llu elements, start %llu, count %llu, stride %llu", i + 1, (unsigned long long)size,
                            (unsigned long long)e->start[i], (unsigned long long)e->count[i], (unsigned long long)e->stride[i]);
    }
    return rc;
}

/* The ranks' number is checked where it is known. */
static int take_list(struct cv_reading *r, const struct cv_node *n, struct cv_schema_dataset *d)
{
    const struct cv_node *c = n->kind == CV_NODE_LIST ? n->first : n;
    size_t count = n->kind == CV_NODE_LIST ? n->count : 1;
    int rc = 0;

    if (!count)
        return cv_mistake(r, n, "the list of blocks is empty: one for each rank is needed");
    if (r->s->ranks && count != r->s->ranks)
        return cv_mistake(r, n, "%zu block%s for %llu ranks: a list with one for each rank is needed", count, count == 1 ? "" : "s", (unsigned long long)r->s->ranks);
    d->list = calloc(count, sizeof *d->list);
    if (!d->list)
        return cv_no_memory(r);
    d->blocks = CV_BLOCKS_LIST;
    for (; c && rc == 0; c = n->kind == CV_NODE_LIST ? c->next : NULL)
        rc = take_extent(r, c, d, &d->list[d->nlist++]);
    return rc;
}

static int take_own_grid(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema_dataset *d = into;
    uint64_t ranks;
    int rc = cv_take_grid(r, n, &d->grid, &ranks);

    if (rc == 0 && r->s->ranks && ranks != r->s->ranks)
        return cv_mistake(r, n, "this grid has %llu ranks, and there are %llu", (unsigned long long)ranks, (unsigned long long)r->s->ranks);
    d->grid.spread = r->s->grid.spread;
    d->blocks = CV_BLOCKS_GRID;
    return rc;
}

static int take_block(struct cv_reading *r, const struct cv_node *n, void *into)
{
    static const char *const words[] = {"grid", "whole", NULL};
    static const struct cv_key grid[] = {{"grid", take_own_grid, true}, {0}};
    struct cv_schema_dataset *d = into;
    unsigned word;
    int rc;

    if (r->s->layout == CV_LAYOUT_GLOBAL)
        return cv_mistake(r, n, "block: with layout: global the file has whole arrays, and no blocks");
    if (n->kind == CV_NODE_MAP && cv_node_find(n, "grid"))
        return cv_take_keys(r, n, "block", grid, d);
    if (n->kind != CV_NODE_SCALAR)
        return take_list(r, n, d);
    rc = cv_take_word(r, n, "block", words, &word);
    if (rc)
        return rc;
    d->blocks = word == 0 ? CV_BLOCKS_GRID : CV_BLOCKS_WHOLE;
    if (word == 0 && !r->s->grid.rank)
        return cv_mistake(r, n, "block: grid needs ranks: {grid: […]}");
    return 0;
}

/* ---------------------------------------------------------------- places */

static int take_skip(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema_dataset *d = into;

    d->has_skip = true;
    return cv_take_size(r, n, "skip", &d->skip_bytes);
}

static int take_offset(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema_dataset *d = into;

    d->has_offset = true;
    if (d->has_skip)
        return cv_mistake(r, n, "offset and skip can't both say where the dataset is");
    if (r->s->layout == CV_LAYOUT_SEGMENTS)
        return cv_mistake(r, n, "offset: with layout: segments each rank has its own place in the file; use skip");
    return cv_take_size(r, n, "offset", &d->offset_bytes);
}

static int take_record(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema_dataset *d = into;

    if (r->s->layout == CV_LAYOUT_SEGMENTS)
        return cv_mistake(r, n, "record: with layout: segments each rank has its own place in the file");
    return cv_take_number(r, n, "record", 1, UINT32_MAX, &d->record);
}

/* ---------------------------------------------------------------- what is to be done with elements */

static int take_gaps(struct cv_reading *r, const struct cv_node *n, void *into)
{
    static const char *const words[] = {"refuse", "fill", NULL};
    unsigned word = 0;
    int rc = cv_take_word(r, n, "gaps", words, &word);

    ((struct cv_schema_dataset *)into)->gaps = word == 0 ? CV_GAPS_REFUSE : CV_GAPS_FILL;
    return rc;
}

static int take_overlap(struct cv_reading *r, const struct cv_node *n, void *into)
{
    static const char *const words[] = {"refuse", "last", NULL};
    unsigned word = 0;
    int rc = cv_take_word(r, n, "overlap", words, &word);

    ((struct cv_schema_dataset *)into)->overlap = word == 0 ? CV_OVERLAP_REFUSE : CV_OVERLAP_LAST;
    return rc;
}

static int take_nan(struct cv_reading *r, const struct cv_node *n, void *into)
{
    static const char *const words[] = {"keep", "refuse", NULL};
    unsigned word = 0;
    int rc = cv_take_word(r, n, "nan", words, &word);

    ((struct cv_schema_dataset *)into)->nan = word == 0 ? CV_NAN_KEEP : CV_NAN_REFUSE;
    return rc;
}

static int take_fill(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema_dataset *d = into;
    const char *text = "";
    int rc = cv_take_text(r, n, "fill", &text);

    if (rc)
        return rc;
    if (!cv_is_float(text, &d->fill))
        return cv_mistake(r, n, "fill is a number (0, -1e30, .nan), not \"%.60s\"", text);
    if (d->gaps != CV_GAPS_FILL)
        return cv_mistake(r, n, "fill goes with gaps: fill");
    if (!cv_type_holds(d->type, d->fill))
        return cv_mistake(r, n, "%.60s is no value of %s", text, cv_type_name(d->type));
    if (strspn(text, "-+0123456789") == strlen(text) && (d->fill > 9007199254740992.0 || d->fill < -9007199254740992.0))
        return cv_mistake(r, n, "fill is at most 2^53: greater whole numbers are not kept exactly");
    d->has_fill = true;
    return 0;
}

static int take_units(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema_dataset *d = into;
    const char *text = "";
    int rc = cv_take_text(r, n, "units", &text);

    if (rc == 0 && cv_attrs_text(&d->attrs, "units", text))
        rc = cv_no_memory(r);
    return rc;
}

static int take_attributes(struct cv_reading *r, const struct cv_node *n, void *into)
{
    return cv_take_attributes(r, n, &((struct cv_schema_dataset *)into)->attrs);
}

/* ---------------------------------------------------------------- the whole */

/* Which blocks there are, when nothing is said of them; and grids that do not have the array's dimensions. */
static int settle_blocks(struct cv_reading *r, const struct cv_node *n, struct cv_schema_dataset *d)
{
    const struct cv_node *at = cv_node_find(n, "block");
    const struct cv_schema *s = r->s;

    if (d->blocks == CV_BLOCKS_DEFAULT) {
        if (s->layout == CV_LAYOUT_GLOBAL || d->rank == 0 || s->ranks == 1)
            d->blocks = CV_BLOCKS_WHOLE;
        else if (s->grid.rank)
            d->blocks = CV_BLOCKS_GRID;
        else if (s->ranks)
            return cv_mistake(r, n, "nothing says which block of the array each of the %llu ranks has: ranks: {grid: […]}, or block:", (unsigned long long)s->ranks);
    }
    if (d->blocks == CV_BLOCKS_GRID && !d->grid.rank)
        d->grid = s->grid;
    if (d->blocks == CV_BLOCKS_GRID && d->grid.rank != d->rank)
        return cv_mistake(r, at ? at : n, "the grid of ranks has %u dimensions, and the dataset %u: say block: {grid: […]} for this one, or block: whole", d->grid.rank, d->rank);
    return 0;
}

/* Readers of netCDF demand that _FillValue is one value of the dataset's type, and mask elements that are equal to it: it is the fill value, and there are no two of them. */
static int check_fill_attribute(struct cv_reading *r, const struct cv_node *n, const struct cv_schema_dataset *d)
{
    const struct cv_attr *a = cv_attrs_find(&d->attrs, CV_FILL_NAME);
    const struct cv_node *attributes = cv_node_find(n, "attributes"), *at = attributes ? cv_node_find(attributes, CV_FILL_NAME) : NULL;
    struct cv_dataset told = {.type = d->type};

    if (!a)
        return 0;
    at = at ? at : n;
    if (!cv_dataset_take_fill(&told, a))
        return cv_mistake(r, at, CV_FILL_NAME " is one value of the dataset's type, %s, for netCDF's readers demand that: give what it is to say another name, like missing_value", cv_type_name(d->type));
    if (d->has_fill && told.fill != d->fill && !(isnan(told.fill) && isnan(d->fill)))
        return cv_mistake(r, at, CV_FILL_NAME " and fill are the same, and can't have two values: leave one of them out");
    return 0;
}

/* Elements of one block with its ghosts, in bytes: of the greatest that there can be. */
static int check_stored(struct cv_reading *r, const struct cv_node *n, const struct cv_schema_dataset *d)
{
    uint64_t bytes = d->type.size_bytes;

    for (unsigned i = 0; i < d->rank; i++) {
        uint64_t stored = d->dims[i].size;

        if (__builtin_add_overflow(stored, (uint64_t)d->ghost_lo[i] + d->ghost_hi[i], &stored) || __builtin_mul_overflow(bytes, stored ? stored : 1, &bytes) || bytes > INT64_MAX)
            return cv_mistake(r, n, "a block with its ghost cells is more than 2^63 bytes");
    }
    return 0;
}

int cv_take_dataset(struct cv_reading *r, const struct cv_node *n, struct cv_schema_dataset *d)
{
    static const struct cv_key keys[] = {{"name", take_name, true},      {"type", take_type, true},       {"dims", take_dims, true},     {"block", take_block, false},
                                         {"ghost", take_ghost, false},   {"skip", take_skip, false},      {"offset", take_offset, false}, {"record", take_record, false},
                                         {"gaps", take_gaps, false},     {"fill", take_fill, false},      {"overlap", take_overlap, false}, {"nan", take_nan, false},
                                         {"units", take_units, false},   {"attributes", take_attributes, false}, {0}};
    int rc;

    d->line = n->line;
    d->column = n->column;
    rc = cv_take_keys(r, n, "a dataset", keys, d);
    if (rc == 0)
        rc = settle_blocks(r, n, d);
    if (rc == 0)
        rc = check_stored(r, n, d);
    if (rc == 0)
        rc = check_fill_attribute(r, n, d);
    return rc;
}
