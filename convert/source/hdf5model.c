/*
 * What is in HDF5 files, as a model (hdf5.h): datasets of numbers, their dimensions' names and attributes, and where the blocks of each lie. Called by hdf5.c when it opens; nothing of the arrays is read.
 *
 * One file is as it is. In several, datasets of one name are blocks of one array where they say so: by fp_boxes (parts that fp-convert run --only has made), by global_shape and offset (which an application
 * can write with each rank's array), or where a schema says it for them. A scalar is the first one's. Others of one name are refused, for to guess would be to lose data without a word. What is no
 * number (text, references, compounds other than r, i) is passed over, and so are scales without values.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/schema/schema.h"
#include "convert/source/hdf5.h"
#include "fp/log.h"

#define CHUNKS_MAX     65536u /* of a dataset, that are blocks */
#define CHUNKS_ALL_MAX 262144u /* of all: a small file may have thousands of datasets whose chunks are many, and none of them written */
#define BOXES_MAX (2ull * CV_RANK_MAX * CV_BLOCKS_MAX)

/* A dataset of a file. */
struct found {
    const char *path; /* of the file */
    const char *name;
    hid_t id, space;
    struct cv_type type;
    unsigned rank;
    hsize_t dims[CV_RANK_MAX], most[CV_RANK_MAX];
};

struct walk {
    struct cv_h5_source *s;
    uint32_t input;
    struct cv_fail *why;
    uint64_t datasets, first_rows; /* numbers, and the first dimension of the first of them */
    bool count_only;
    int rc;
};

static int no_memory(struct cv_fail *why)
{
    return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for the datasets, or more than %u of them, or than %u blocks", CV_DATASETS_MAX, CV_BLOCKS_MAX);
}

/* ---------------------------------------------------------------- a dataset of a file */

/* Filters work on whole chunks, in memory. */
static int check_chunk(const struct found *f, size_t memory_bytes, struct cv_fail *why)
{
    hid_t dcpl = H5Dget_create_plist(f->id);
    hsize_t chunk[CV_RANK_MAX];
    uint64_t bytes = f->type.size_bytes;
    int rank = 0;

    if (dcpl >= 0 && H5Pget_layout(dcpl) == H5D_CHUNKED && H5Pget_nfilters(dcpl) > 0)
        rank = H5Pget_chunk(dcpl, CV_RANK_MAX, chunk);
    cv_h5_put(dcpl);
    for (int i = 0; i < rank; i++)
        if (__builtin_mul_overflow(bytes, chunk[i], &bytes))
            bytes = UINT64_MAX;
    if (rank > 0 && bytes > memory_bytes)
        return cv_fail(why, -E2BIG, f->path, f->name, CV_NO_OFFSET, "a chunk of it has %llu bytes, and there is memory for %zu: give more (--memory)", (unsigned long long)bytes, memory_bytes);
    return 0;
}

/* Files whose part of a virtual dataset is not there would read as fill values. As the library looks: beside the file, and by the name as it is. */
static int check_virtual(const struct found *f, struct cv_fail *why)
{
    hid_t dcpl = H5Dget_create_plist(f->id);
    const char *slash = strrchr(f->path, '/');
    size_t n = 0;
    int rc = 0;

    if (dcpl >= 0 && H5Pget_layout(dcpl) == H5D_VIRTUAL)
        (void)H5Pget_virtual_count(dcpl, &n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        char source[PATH_MAX] = "", beside[2 * PATH_MAX];
        ssize_t len = H5Pget_virtual_filename(dcpl, i, source, sizeof source);

        if (len <= 0 || (size_t)len >= sizeof source || strchr(source, '%') || strcmp(source, ".") == 0)
            continue;
        snprintf(beside, sizeof beside, "%.*s%s", slash ? (int)(slash - f->path) + 1 : 0, f->path, source);
        if (access(*source == '/' ? source : beside, R_OK) < 0 && access(source, R_OK) < 0)
            rc = cv_fail(why, -ENOENT, f->path, f->name, CV_NO_OFFSET, "it is a virtual dataset, and its part %.300s can't be read", source);
    }
    cv_h5_put(dcpl);
    return rc;
}

static void say_passed_over(const struct found *f)
{
    if (f->space >= 0 && H5Sget_simple_extent_type(f->space) != H5S_NULL && !cv_h5_is_only_scale(f->id))
        fp_log(FP_LOG_WARN, "%s: dataset %s is passed over: it holds no integers, floats or complex numbers of a usual size", f->path, f->name);
}

/* 1: it is one to convert (id and space to be closed); 0: it is passed over. */
static int look_at(const char *path, const char *name, hid_t file, struct found *f, struct cv_fail *why)
{
    hid_t type;
    int rank, known;

    *f = (struct found){.path = path, .name = name, .space = -1};
    f->id = H5Dopen2(file, name, H5P_DEFAULT);
    if (f->id < 0)
        return cv_h5_fail(why, path, name, "it can't be opened");
    type = H5Dget_type(f->id);
    f->space = H5Dget_space(f->id);
    rank = f->space < 0 ? -1 : H5Sget_simple_extent_ndims(f->space);
    known = type >= 0 && rank >= 0 && H5Sget_simple_extent_type(f->space) != H5S_NULL && cv_h5_known(type, &f->type) && !cv_h5_is_only_scale(f->id);
    cv_h5_put(type);
    if (known && rank > (int)CV_RANK_MAX)
        known = cv_fail(why, -EINVAL, path, name, CV_NO_OFFSET, "it has %d dimensions, and %u are the most", rank, CV_RANK_MAX);
    if (known > 0) {
        f->rank = (unsigned)rank;
        H5Sget_simple_extent_dims(f->space, f->dims, f->most);
        return 1;
    }
    if (known == 0)
        say_passed_over(f);
    cv_h5_put(f->space);
    H5Dclose(f->id);
    return known;
}

static void done_with(struct found *f)
{
    cv_h5_put(f->space);
    H5Dclose(f->id);
}

/* ---------------------------------------------------------------- attributes */

static bool is_of_blocks(const char *name)
{
    return strcmp(name, "fp_boxes") == 0 || strcmp(name, "fp_strides") == 0 || strcmp(name, "global_shape") == 0 || strcmp(name, "offset") == 0;
}

/* Whoever removes the input is to know what the result lacks. */
static void say_left_out(const char *path, const char *what, const struct cv_h5_left *left)
{
    if (left->count)
        fp_log(FP_LOG_WARN, "%s: %s: %u attribute%s passed over (%s%s): it is no text, and no list of integers or floats", path, what, left->count, left->count == 1 ? " is" : "s are", left->first,
               left->count == 1 ? "" : ", ...");
}

/* Those that are not there yet, but for what says where blocks are. */
static int add_attrs(struct cv_attrs *to, hid_t object, const char *path, const char *what, bool blocks)
{
    struct cv_model *all = cv_model_new();
    struct cv_h5_left left = {0};
    int rc = all ? cv_h5_get_attrs(object, &all->attrs, &left) : -ENOMEM;

    say_left_out(path, what, &left);
    for (size_t i = 0; rc == 0 && i < all->attrs.count; i++) {
        const struct cv_attr *a = &all->attrs.items[i];

        if (cv_attrs_find(to, a->name) || (blocks && is_of_blocks(a->name)))
            continue;
        if (a->kind == CV_ATTR_TEXT)
            rc = cv_attrs_text(to, a->name, a->text);
        else
            rc = a->kind == CV_ATTR_INTS ? cv_attrs_ints(to, a->name, a->ints, a->count) : cv_attrs_floats(to, a->name, a->floats, a->count);
    }
    cv_model_free(all);
    return rc;
}

/* One that is no more than what there is without one is none: it would become an attribute of the result. */
static void take_fill(struct cv_dataset *d, hid_t id)
{
    hid_t dcpl = H5Dget_create_plist(id);
    H5D_fill_value_t is = H5D_FILL_VALUE_ERROR;
    bool usual;

    if (dcpl >= 0 && H5Pfill_value_defined(dcpl, &is) >= 0 && is == H5D_FILL_VALUE_USER_DEFINED)
        d->has_fill = H5Pget_fill_value(dcpl, H5T_NATIVE_DOUBLE, &d->fill) >= 0; /* a complex one is none */
    d->fill_is_whole = d->has_fill && (d->type.kind == CV_INT || d->type.kind == CV_UINT) &&
                       H5Pget_fill_value(dcpl, d->type.kind == CV_INT ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64, &d->fill_whole) >= 0;
    usual = d->type.kind == CV_FLOAT ? isnan(d->fill) : d->fill == 0;
    d->has_fill = d->has_fill && !usual;
    cv_h5_put(dcpl);
}

/* ---------------------------------------------------------------- blocks */

static int wrong_place(const struct found *f, struct cv_fail *why, const char *what)
{
    return cv_fail(why, -EINVAL, f->path, f->name, CV_NO_OFFSET, "%s", what);
}

/* Where a box begins and ends fits its array, and nothing is beyond what numbers hold. */
static bool fits(int64_t start, int64_t count, int64_t stride, uint64_t size)
{
    uint64_t last;

    if (start < 0 || count < 0 || stride < 1 || (uint64_t)start > size)
        return false;
    if (count == 0)
        return true;
    return !__builtin_mul_overflow((uint64_t)count - 1, (uint64_t)stride, &last) && last < size - (uint64_t)start;
}

static int add_block(struct walk *w, struct cv_dataset *d, const int64_t *start, const int64_t *count, const int64_t *stride)
{
    struct cv_block *b;

    for (unsigned i = 0; i < d->rank; i++)
        if (count[i] == 0)
            return 0;
    if (w->s->nblocks == CV_BLOCKS_MAX)
        return cv_fail(w->why, -E2BIG, w->s->base.inputs[w->input].path, d->name, CV_NO_OFFSET, "the inputs have more than %u blocks, which are the most", CV_BLOCKS_MAX);
    b = cv_dataset_block(d);
    if (!b)
        return no_memory(w->why);
    w->s->nblocks++;
    b->input = w->input;
    for (unsigned i = 0; i < d->rank; i++) {
        b->start[i] = start ? (uint64_t)start[i] : 0;
        b->count[i] = (uint64_t)count[i];
        b->stride[i] = stride ? (uint64_t)stride[i] : 1;
    }
    return 0;
}

static int add_boxes(struct walk *w, struct cv_dataset *d, const struct found *f)
{
    struct cv_fail *why = w->why;
    int64_t *boxes = NULL, *strides = NULL;
    size_t n = 0, m = 0;
    int rc = cv_h5_get_ints(f->id, "fp_boxes", BOXES_MAX, &boxes, &n);

    if (rc == 0 && H5Aexists(f->id, "fp_strides") > 0)
        rc = cv_h5_get_ints(f->id, "fp_strides", BOXES_MAX, &strides, &m);
    if (rc == 0 && (n % (2 * d->rank) || (strides && m != n / 2)))
        rc = wrong_place(f, why, "its attributes fp_boxes and fp_strides do not belong together, or to an array of as many dimensions");
    for (size_t at = 0; rc == 0 && at < n; at += 2 * d->rank) {
        const int64_t *start = boxes + at, *count = start + d->rank, *stride = strides ? strides + at / 2 : NULL;

        for (unsigned i = 0; i < d->rank && rc == 0; i++)
            if (!fits(start[i], count[i], stride ? stride[i] : 1, d->dims[i].size))
                rc = wrong_place(f, why, "its attribute fp_boxes has a box that is not in the array");
        rc = rc ? rc : add_block(w, d, start, count, stride);
    }
    free(boxes);
    free(strides);
    return rc == -ENOMEM ? no_memory(why) : rc ? cv_fail(why, rc, f->path, f->name, CV_NO_OFFSET, "its attribute fp_boxes can't be read") : 0;
}

/* global_shape and offset: as many numbers as there are dimensions, and the array fits there. */
static int piece_of(const struct found *f, int64_t *shape, int64_t *offset, struct cv_fail *why)
{
    static const char *const names[] = {"global_shape", "offset"};
    int64_t *to[] = {shape, offset};

    for (unsigned k = 0; k < 2; k++) {
        int64_t *values = NULL;
        size_t n = 0;
        int rc = cv_h5_get_ints(f->id, names[k], CV_RANK_MAX, &values, &n);

        if (rc == 0 && n == f->rank)
            memcpy(to[k], values, n * sizeof *values);
        free(values);
        if (rc == -ENOMEM)
            return no_memory(why);
        if (rc || n != f->rank)
            return wrong_place(f, why, "its attributes global_shape and offset are to be integers, one for each dimension");
    }
    for (unsigned i = 0; i < f->rank; i++)
        if (shape[i] < 0 || f->dims[i] > INT64_MAX || !fits(offset[i], (int64_t)f->dims[i], 1, (uint64_t)shape[i]))
            return wrong_place(f, why, "by its attributes global_shape and offset it is not all in the whole array");
    return 0;
}

static enum cv_h5_way way_of(const struct found *f)
{
    if (f->rank && H5Aexists(f->id, "fp_boxes") > 0)
        return CV_H5_BOXES;
    return f->rank && H5Aexists(f->id, "global_shape") > 0 && H5Aexists(f->id, "offset") > 0 ? CV_H5_PIECE : CV_H5_WHOLE;
}

/* The block, or blocks, that this file has; shape: of a piece's whole array. */
static int add_blocks(struct walk *w, struct cv_dataset *d, const struct found *f, enum cv_h5_way way, const int64_t *offset)
{
    int64_t count[CV_RANK_MAX];

    if (way == CV_H5_BOXES)
        return add_boxes(w, d, f);
    for (unsigned i = 0; i < f->rank; i++)
        count[i] = (int64_t)f->dims[i];
    return add_block(w, d, way == CV_H5_PIECE ? offset : NULL, count, NULL);
}

/* ---------------------------------------------------------------- the model */

/* Chunks that filters have made, unless they are too many to be blocks. */
static bool has_chunks(const struct walk *w, const struct found *f, hsize_t *chunk)
{
    hid_t dcpl = H5Dget_create_plist(f->id);
    bool has = f->rank && dcpl >= 0 && H5Pget_layout(dcpl) == H5D_CHUNKED && H5Pget_nfilters(dcpl) > 0 && H5Pget_chunk(dcpl, CV_RANK_MAX, chunk) == (int)f->rank;
    uint64_t n = 1;

    cv_h5_put(dcpl);
    for (unsigned i = 0; has && i < f->rank; i++)
        has = chunk[i] > 0 && f->dims[i] > 0 && !__builtin_mul_overflow(n, (f->dims[i] - 1) / chunk[i] + 1, &n) && n <= CHUNKS_MAX;
    return has && w->s->nblocks + n <= CHUNKS_ALL_MAX;
}

static int add_chunks(struct walk *w, struct cv_dataset *d, const struct found *f, const hsize_t *chunk)
{
    int64_t start[CV_RANK_MAX] = {0}, count[CV_RANK_MAX];
    unsigned i = 0;
    int rc;

    while (i < f->rank) {
        for (i = 0; i < f->rank; i++)
            count[i] = (int64_t)(f->dims[i] - (uint64_t)start[i] < chunk[i] ? f->dims[i] - (uint64_t)start[i] : chunk[i]);
        rc = add_block(w, d, start, count, NULL);
        if (rc)
            return rc;
        for (i = 0; i < f->rank; i++) { /* the next one: the last dimension fastest */
            unsigned k = f->rank - 1 - i;

            start[k] += (int64_t)chunk[k];
            if ((uint64_t)start[k] < f->dims[k])
                break;
            start[k] = 0;
        }
        if (i == f->rank)
            return 0;
        i = 0;
    }
    return 0;
}

static int add_dataset(struct walk *w, const struct found *f)
{
    struct cv_h5_source *s = w->s;
    struct cv_dataset *d = cv_model_add(s->base.model, f->name);
    enum cv_h5_way way = way_of(f);
    int64_t shape[CV_RANK_MAX], offset[CV_RANK_MAX];
    hsize_t chunk[CV_RANK_MAX];
    uint64_t elements;
    int rc;

    if (!d || cv_h5_get_dims(f->id, f->name, f->rank, d) < 0 || add_attrs(&d->attrs, f->id, f->path, f->name, true) < 0)
        return no_memory(w->why);
    rc = way == CV_H5_PIECE ? piece_of(f, shape, offset, w->why) : 0;
    if (rc)
        return rc;
    d->id = s->base.model->ndatasets - 1;
    d->type = f->type;
    d->rank = f->rank;
    for (unsigned i = 0; i < f->rank; i++)
        d->dims[i].size = way == CV_H5_PIECE ? (uint64_t)shape[i] : f->dims[i];
    d->dims[0].steps = f->rank && f->most[0] == H5S_UNLIMITED && (f->rank > 1 || d->dims[0].name);
    take_fill(d, f->id);
    way = way == CV_H5_WHOLE && has_chunks(w, f, chunk) ? CV_H5_CHUNKS : way;
    s->about[d->id].way = way;
    if (!cv_dataset_elements(d, &elements))
        return wrong_place(f, w->why, "it has more than 2^63 bytes");
    if (way == CV_H5_CHUNKS)
        return add_chunks(w, d, f, chunk);
    return add_blocks(w, d, f, way, offset);
}

/* Another file has a dataset of this name, too. */
static int join_dataset(struct walk *w, struct cv_dataset *d, const struct found *f)
{
    const char *before = d->nblocks ? w->s->base.inputs[d->blocks[d->nblocks - 1].input].path : w->s->base.inputs[0].path;
    enum cv_h5_way way = way_of(f);
    int64_t shape[CV_RANK_MAX], offset[CV_RANK_MAX];
    int rc;

    if (f->type.kind != d->type.kind || f->type.size_bytes != d->type.size_bytes || f->rank != d->rank)
        return cv_fail(w->why, -EINVAL, f->path, f->name, CV_NO_OFFSET, "it has the type %s and %u dimensions, and in %s %s and %u", cv_type_name(f->type), f->rank, before, cv_type_name(d->type), d->rank);
    if (d->rank == 0)
        return 0;
    if (way == CV_H5_WHOLE || way != w->s->about[d->id].way)
        return cv_fail(w->why, -EEXIST, f->path, f->name, CV_NO_OFFSET,
                       "%s has a dataset of this name, too, and nothing says where each belongs: give a schema, or give the datasets the attributes global_shape and offset", before);
    rc = way == CV_H5_PIECE ? piece_of(f, shape, offset, w->why) : 0;
    for (unsigned i = 0; rc == 0 && i < d->rank; i++)
        if ((way == CV_H5_PIECE ? (uint64_t)shape[i] : f->dims[i]) != d->dims[i].size)
            rc = cv_fail(w->why, -EINVAL, f->path, f->name, CV_NO_OFFSET, "the whole array has another shape than %s says", before);
    return rc ? rc : add_blocks(w, d, f, way, offset);
}

static int take(struct walk *w, struct found *f)
{
    struct cv_dataset *d = w->count_only ? NULL : cv_model_find(w->s->base.model, f->name);
    int rc;

    if (w->datasets++ == 0)
        w->first_rows = f->rank ? f->dims[0] : 0;
    if (w->count_only)
        return 0;
    rc = check_chunk(f, w->s->memory_bytes, w->why);
    rc = rc ? rc : check_virtual(f, w->why);
    return rc ? rc : d ? join_dataset(w, d, f) : add_dataset(w, f);
}

/* Groups come of the names of their datasets. */
static void look_at_group(const char *path, hid_t root, const char *name)
{
    hid_t group = strcmp(name, ".") == 0 ? -1 : H5Oopen(root, name, H5P_DEFAULT);
    H5O_info_t about;

    if (group >= 0 && H5Oget_info2(group, &about, H5O_INFO_NUM_ATTRS) >= 0 && about.num_attrs)
        fp_log(FP_LOG_WARN, "%s: group /%s: its attributes are passed over, %llu of them: those of datasets and of the file are taken", path, name, (unsigned long long)about.num_attrs);
    cv_h5_put(group);
}

static herr_t count_link(hid_t group, const char *name, const H5L_info_t *info, void *arg)
{
    (void)group, (void)name;
    *(unsigned *)arg += info->type != H5L_TYPE_HARD;
    return 0;
}

static void look_at_links(const char *path, hid_t file)
{
    unsigned n = 0;

    if (H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, count_link, &n) >= 0 && n)
        fp_log(FP_LOG_WARN, "%s: %u link%s passed over: the arrays behind them have their own names", path, n, n == 1 ? " is" : "s are");
}

static herr_t visit(hid_t root, const char *name, const H5O_info_t *info, void *arg)
{
    struct walk *w = arg;
    const char *path = w->s->base.inputs[w->input].path;
    char full[CV_NAME_MAX + 1];
    struct found f;

    if (info->type == H5O_TYPE_GROUP && !w->count_only)
        look_at_group(path, root, name);
    if (info->type != H5O_TYPE_DATASET)
        return 0;
    if (snprintf(full, sizeof full, "/%s", name) >= (int)sizeof full)
        w->rc = cv_fail(w->why, -ENAMETOOLONG, path, name, CV_NO_OFFSET, "its name has more than %u bytes", CV_NAME_MAX);
    else
        w->rc = look_at(path, full, root, &f, w->why);
    if (w->rc == 1) {
        w->rc = take(w, &f);
        done_with(&f);
    }
    return w->rc ? -1 : 0;
}

static int walk_file(struct walk *w)
{
    hid_t file, root;
    herr_t ok;
    int rc = cv_h5_source_file(w->s, w->input, &file, w->why);

    if (rc)
        return rc;
    ok = H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, visit, w, H5O_INFO_BASIC);
    if (ok < 0)
        return w->rc ? w->rc : cv_h5_fail(w->why, w->s->base.inputs[w->input].path, NULL, "what is in it can't be read");
    if (w->count_only)
        return 0;
    look_at_links(w->s->base.inputs[w->input].path, file);
    root = H5Gopen2(file, "/", H5P_DEFAULT);
    rc = root < 0 || add_attrs(&w->s->base.model->attrs, root, w->s->base.inputs[w->input].path, "/", false) < 0 ? no_memory(w->why) : 0;
    cv_h5_put(root);
    return rc;
}

static int about_all(struct cv_h5_source *s, struct cv_fail *why)
{
    s->about = calloc(CV_DATASETS_MAX, sizeof *s->about);
    return s->about ? 0 : no_memory(why);
}

int cv_h5_model(struct cv_h5_source *s, struct cv_fail *why)
{
    int rc = about_all(s, why);

    s->base.model = cv_model_new();
    if (rc || !s->base.model)
        return no_memory(why);
    for (size_t i = 0; i < s->base.ninputs && rc == 0; i++) {
        struct walk w = {.s = s, .input = (uint32_t)i, .why = why};

        rc = walk_file(&w);
    }
    return rc;
}

/* ---------------------------------------------------------------- with a schema */

/* Is the file's array the block with its ghosts? The steps, if there are any, may be its first dimension, all of them, or it is of one step. */
static bool is_stored(const struct cv_dataset *d, const struct cv_block *b, const struct found *f, bool *no_steps)
{
    unsigned skip = d->rank && d->dims[0].steps ? 1 : 0;

    *no_steps = skip && f->rank == d->rank - 1;
    if (!*no_steps && f->rank != d->rank)
        return false;
    if (*no_steps && d->dims[0].size != 1)
        return false;
    if (skip && !*no_steps && f->dims[0] != d->dims[0].size)
        return false;
    for (unsigned i = skip; i < d->rank; i++)
        if (f->dims[i - (*no_steps ? 1 : 0)] != cv_block_stored(b, i))
            return false;
    return true;
}

static int compare_block(struct cv_h5_source *s, struct cv_dataset *d, size_t k, struct cv_fail *why)
{
    const struct cv_block *b = &d->blocks[k];
    const char *path = s->base.inputs[b->input].path;
    struct found f;
    bool no_steps;
    hid_t file;
    int rc = cv_h5_source_file(s, b->input, &file, why);

    if (rc)
        return rc;
    if (H5Lexists(file, d->name, H5P_DEFAULT) <= 0)
        return cv_fail(why, -EINVAL, path, d->name, CV_NO_OFFSET, "the schema has this dataset, and there is none of that name in the file");
    rc = look_at(path, d->name, file, &f, why);
    if (rc != 1)
        return rc ? rc : cv_fail(why, -EINVAL, path, d->name, CV_NO_OFFSET, "the schema has this dataset, and what has its name in the file is no array of numbers");
    rc = check_chunk(&f, s->memory_bytes, why);
    if (rc == 0 && (f.type.kind != d->type.kind || f.type.size_bytes != d->type.size_bytes))
        rc = cv_fail(why, -EINVAL, path, d->name, CV_NO_OFFSET, "the schema says %s, and the file %s", cv_type_name(d->type), cv_type_name(f.type));
    if (rc == 0 && (!is_stored(d, b, &f, &no_steps) || (k && no_steps != s->about[d->id].no_steps)))
        rc = cv_fail(why, -EINVAL, path, d->name, CV_NO_OFFSET, "it has another shape than the schema says, with ghosts and steps");
    if (rc == 0 && k == 0) {
        s->about[d->id] = (struct cv_h5_about){.way = CV_H5_SCHEMA, .no_steps = no_steps};
        d->type.big_endian = f.type.big_endian;
        rc = add_attrs(&d->attrs, f.id, f.path, f.name, true) < 0 ? no_memory(why) : 0;
    }
    done_with(&f);
    return rc;
}

/* A file has one block of a dataset, and other steps of that one: a dataset of HDF5 is one array. */
static int compare_again(struct cv_h5_source *s, const struct cv_dataset *d, const struct cv_block *first, const struct cv_block *b, struct cv_fail *why)
{
    bool same = d->rank && d->dims[0].steps && !s->about[d->id].no_steps;

    for (unsigned i = 1; i < d->rank; i++)
        same = same && first->start[i] == b->start[i] && cv_block_stored(first, i) == cv_block_stored(b, i);
    if (same)
        return 0;
    return cv_fail(why, -EINVAL, s->base.inputs[b->input].path, d->name, CV_NO_OFFSET, "the schema has several blocks of it in one file, where it is one array: layout: files, or global");
}

static int compare(struct cv_h5_source *s, struct cv_fail *why)
{
    const struct cv_block **first = calloc(s->base.ninputs, sizeof *first);
    int rc = first ? 0 : no_memory(why);

    for (size_t i = 0; rc == 0 && i < s->base.model->ndatasets; i++) {
        struct cv_dataset *d = &s->base.model->datasets[i];

        d->id = i;
        memset(first, 0, s->base.ninputs * sizeof *first);
        for (size_t k = 0; k < d->nblocks && rc == 0; k++) {
            const struct cv_block **of = &first[d->blocks[k].input];

            rc = *of ? compare_again(s, d, *of, &d->blocks[k], why) : compare_block(s, d, k, why);
            *of = *of ? *of : &d->blocks[k];
        }
    }
    free(first);
    return rc;
}

/* As records of Fortran are counted, in case that steps are to be found out: the first dimension, for each dataset. */
static int count_records(struct cv_h5_source *s, struct cv_schema_file *files, struct cv_fail *why)
{
    int rc = 0;

    for (size_t i = 0; i < s->base.ninputs && rc == 0; i++) {
        struct walk w = {.s = s, .input = (uint32_t)i, .why = why, .count_only = true};

        rc = walk_file(&w);
        files[i] = (struct cv_schema_file){.path = s->base.inputs[i].path, .size_bytes = s->base.inputs[i].size_bytes};
        files[i].records = w.first_rows < INT64_MAX / CV_DATASETS_MAX ? w.first_rows * w.datasets : 0;
    }
    return rc;
}

int cv_h5_model_schema(struct cv_h5_source *s, const char *path, struct cv_fail *why)
{
    struct cv_schema_file *files = calloc(s->base.ninputs, sizeof *files);
    struct cv_schema *schema = NULL;
    int rc = files ? about_all(s, why) : no_memory(why);

    rc = rc ? rc : cv_schema_read(path, &schema, why);
    rc = rc ? rc : count_records(s, files, why);
    rc = rc ? rc : cv_schema_model(schema, files, s->base.ninputs, false, &s->base.model, why);
    cv_schema_free(schema);
    free(files);
    return rc ? rc : compare(s, why);
}
