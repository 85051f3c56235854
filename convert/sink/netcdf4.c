/*
 * to=netcdf (sink.h): netCDF-4, which is HDF5 with netCDF's dimensions. Called by the engine. One thread, or all ranks together.
 *
 * The library does the writing: its own way to say what a dimension is (ids, order of creation) is what other programs look for, and more than H5DS makes. Its price is a copy of each chunk in its
 * cache, which has room for one, and is given back when the next dataset begins. Coordinates are not invented: a dimension has values where the dump has a dataset of its name.
 */
#include <errno.h>
#include <mpi.h>
#include <netcdf.h>
#include <netcdf_filter.h>
#include <netcdf_par.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/buffer.h"
#include "convert/engine/numbers.h"
#include "convert/sink/h5util.h"
#include "convert/sink/ncutil.h"

struct var {
    int group, id;
    uint64_t steps; /* so many of the leading dimension were written */
};

struct nc {
    struct cv_sink base;
    const struct cv_model *m;
    const uint64_t (*chunk)[CV_RANK_MAX];
    struct cv_sink_options o;
    char path[PATH_MAX];
    int file;
    bool is_open;
    struct var *vars;
    size_t cached; /* of this dataset the library may hold a chunk; ndatasets: of none */
    struct cv_ncdims dims;
};

static int failed(const struct nc *n, int status, const char *dataset, const char *what, struct cv_fail *why)
{
    int rc = cv_nc_errno(status);

    return cv_fail(why, rc, n->path, dataset, CV_NO_OFFSET, "%s: %s%s%s", what, nc_strerror(status), rc == -ENOSPC || rc == -EDQUOT ? ": " : "", rc == -ENOSPC || rc == -EDQUOT ? strerror(-rc) : "");
}

/* ---------------------------------------------------------------- making the file */

static int put_floats(int group, int var, const struct cv_attr *a, int its)
{
    float *floats;
    int s;

    if (its != NC_FLOAT)
        return nc_put_att_double(group, var, a->name, its ? its : NC_DOUBLE, a->count, a->floats);
    floats = cv_nc_floats(a);
    s = floats ? nc_put_att_float(group, var, a->name, NC_FLOAT, a->count, floats) : NC_ENOMEM;
    free(floats);
    return s;
}

/* d: whose they are; NULL: the file's. */
static int put_attrs(int group, int var, const struct cv_dataset *d, const struct cv_attrs *all)
{
    int s = NC_NOERR;

    for (size_t i = 0; i < all->count && s == NC_NOERR; i++) {
        const struct cv_attr *a = &all->items[i];
        int its = d && cv_attr_is_value(a, d->type) ? cv_nc_type(d->type) : NC_NAT;

        if (cv_nc_reserved(a->name) && (var != NC_GLOBAL || strcmp(a->name, CV_FILL_NAME) != 0))
            continue; /* the fill value has been written */
        if (a->kind == CV_ATTR_TEXT)
            s = nc_put_att_text(group, var, a->name, strlen(a->text), a->text);
        else if (a->kind == CV_ATTR_INTS)
            s = nc_put_att_longlong(group, var, a->name, its ? its : NC_INT64, a->count, (const long long *)a->ints);
        else
            s = put_floats(group, var, a, its);
    }
    return s;
}

/* The group that has this path, made on the way; *leaf: what stands behind the last slash. */
static int group_of(int file, const char *path, int *group, const char **leaf)
{
    int s = NC_NOERR;

    *group = file;
    for (const char *at = path + 1, *end; s == NC_NOERR; at = end + 1) {
        char name[CV_NAME_MAX + 1];
        int parent = *group;

        end = strchr(at, '/');
        *leaf = at;
        if (!end)
            return s;
        snprintf(name, sizeof name, "%.*s", (int)(end - at), at);
        s = nc_inq_grp_ncid(parent, name, group);
        if (s == NC_ENOGRP)
            s = nc_def_grp(parent, name, group);
    }
    return s;
}

static int dims_of(struct nc *n, const struct cv_dataset *d, int *ids)
{
    for (unsigned i = 0; i < d->rank; i++) {
        struct cv_ncdim *dim = cv_ncdims_get(&n->dims, &d->dims[i]);
        int s = dim ? NC_NOERR : NC_ENOMEM;

        if (dim && dim->id < 0)
            s = nc_def_dim(n->file, dim->name, d->dims[i].steps ? NC_UNLIMITED : (size_t)d->dims[i].size, &dim->id);
        if (s)
            return s;
        ids[i] = dim->id;
    }
    return NC_NOERR;
}

static int set_filters(const struct nc *n, const struct var *v)
{
    const struct cv_sink_options *o = &n->o;
    unsigned level = (unsigned)o->level;
    int s = NC_NOERR;

    if (o->shuffle || o->codec == CV_CODEC_DEFLATE)
        s = nc_def_var_deflate(v->group, v->id, o->shuffle, o->codec == CV_CODEC_DEFLATE, o->level);
    if (s == NC_NOERR && o->codec == CV_CODEC_ZSTD)
        s = nc_def_var_filter(v->group, v->id, CV_H5_ZSTD, 1, &level); /* nc_def_var_zstandard does nothing, and says it went well, in libraries built without zstd */
    if (s == NC_NOERR && o->fletcher32)
        s = nc_def_var_fletcher32(v->group, v->id, NC_FLETCHER32);
    return s;
}

/* Bytes of a chunk; 0: it is not chunked. */
static size_t chunk_of(const struct nc *n, size_t k, size_t *chunk)
{
    const struct cv_dataset *d = &n->m->datasets[k];
    size_t bytes = d->type.size_bytes;

    if (d->rank == 0 || n->chunk[k][0] == 0)
        return 0;
    for (unsigned i = 0; i < d->rank; i++) {
        chunk[i] = !d->dims[i].steps && n->chunk[k][i] > d->dims[i].size ? (size_t)d->dims[i].size : (size_t)n->chunk[k][i];
        chunk[i] = chunk[i] ? chunk[i] : 1;
        bytes *= chunk[i];
    }
    return bytes;
}

static int set_storage(const struct nc *n, size_t k)
{
    const struct var *v = &n->vars[k];
    size_t chunk[CV_RANK_MAX], bytes = chunk_of(n, k, chunk);
    int s;

    if (!bytes)
        return NC_NOERR;
    s = nc_def_var_chunking(v->group, v->id, NC_CHUNKED, chunk);
    s = s ? s : set_filters(n, v);
    return s ? s : nc_set_var_chunk_cache(v->group, v->id, bytes, 521, 1.0f);
}

static int make_var(struct nc *n, size_t k)
{
    const struct cv_dataset *d = &n->m->datasets[k];
    struct var *v = &n->vars[k];
    bool filled = cv_nc_has_fill(d) || n->o.sparse;
    uint8_t fill[16];
    const char *leaf;
    int ids[CV_RANK_MAX], s;

    s = group_of(n->file, d->name, &v->group, &leaf);
    s = s ? s : dims_of(n, d, ids);
    s = s ? s : nc_def_var(v->group, leaf, cv_nc_type(d->type), (int)d->rank, ids, &v->id);
    s = s ? s : set_storage(n, k);
    cv_numbers_fill_value(fill, d);
    s = s ? s : nc_def_var_fill(v->group, v->id, filled ? NC_FILL : NC_NOFILL, filled ? fill : NULL);
    s = s ? s : put_attrs(v->group, v->id, d, &d->attrs);
    if (s == NC_NOERR && n->o.parallel)
        s = nc_var_par_access(v->group, v->id, NC_COLLECTIVE);
    return s;
}

static void forget(struct nc *n)
{
    cv_ncdims_free(&n->dims);
    free(n->vars);
    free(n);
}

static void abandon(struct cv_sink *s)
{
    struct nc *n = (struct nc *)s;

    if (n->is_open && !n->o.parallel) /* ranks together end with the process: closing what can't be written hangs */
        nc_close(n->file);
    forget(n);
}

/* Before any variable: one that has the name of a dimension which it is not of takes the dimension's place in the file otherwise, and the library fails at the end. */
static int make_dims(struct nc *n)
{
    int ids[CV_RANK_MAX], s = NC_NOERR;

    for (size_t k = 0; k < n->m->ndatasets && s == NC_NOERR; k++)
        s = dims_of(n, &n->m->datasets[k], ids);
    return s;
}

static int make_all(struct nc *n, struct cv_fail *why)
{
    int s;

    errno = 0;
    nc_set_alignment(CV_LARGE_BYTES, (int)cv_h5_alignment(n->m, n->chunk, &n->o));
    s = n->o.parallel ? nc_create_par(n->path, NC_NETCDF4 | NC_CLOBBER, MPI_COMM_WORLD, MPI_INFO_NULL, &n->file) : nc_create(n->path, NC_NETCDF4 | NC_CLOBBER, &n->file);
    if (s)
        return failed(n, s, NULL, "it can't be made", why);
    n->is_open = true;
    s = make_dims(n);
    if (s)
        return failed(n, s, NULL, "its dimensions can't be made", why);
    for (size_t k = 0; k < n->m->ndatasets; k++) {
        errno = 0;
        s = make_var(n, k);
        if (s == NC_ENOFILTER)
            return cv_fail(why, -ENOTSUP, n->path, n->m->datasets[k].name, CV_NO_OFFSET, "this netCDF library has no zstd: use --compress=deflate, or --to=hdf5");
        if (s)
            return failed(n, s, n->m->datasets[k].name, "it can't be made", why);
    }
    if (!cv_attrs_find(&n->m->attrs, "Conventions"))
        s = nc_put_att_text(n->file, NC_GLOBAL, "Conventions", strlen("CF-1.10"), "CF-1.10");
    s = s ? s : put_attrs(n->file, NC_GLOBAL, NULL, &n->m->attrs);
    s = s ? s : nc_enddef(n->file);
    return s ? failed(n, s, NULL, "its head can't be written", why) : 0;
}

static int create(const char *path, const struct cv_model *m, const uint64_t (*chunk)[CV_RANK_MAX], const struct cv_sink_options *o, struct cv_sink **out, struct cv_fail *why)
{
    struct nc *n = calloc(1, sizeof *n);
    int rc;

    if (!n || !(n->vars = calloc(m->ndatasets + 1, sizeof *n->vars))) {
        free(n);
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
    }
    cv_h5_begin(); /* the library below is the same: it knows zstd from here on, and is silent */
    n->base.ops = &cv_sink_netcdf4;
    n->m = m;
    n->chunk = chunk;
    n->o = *o;
    n->dims.m = m;
    n->cached = m->ndatasets;
    snprintf(n->path, sizeof n->path, "%s", path);
    rc = make_all(n, why);
    if (rc)
        abandon(&n->base);
    else
        *out = &n->base;
    return rc;
}

/* ---------------------------------------------------------------- writing */

static bool has_name_of_dim(const struct nc *n, size_t k)
{
    for (size_t i = 0; i < n->dims.count; i++)
        if (strcmp(n->dims.items[i].name, n->m->datasets[k].name + 1) == 0)
            return true;
    return false;
}

/*
 * The chunk that the library holds of the dataset before this one: to set its cache, it closes and opens it, which writes the chunk and gives the memory back. It opens it by its name, and one that has the
 * name of a dimension may have another one in the file: that is left.
 */
static int forget_cached(struct nc *n, size_t k)
{
    size_t before = n->cached, chunk[CV_RANK_MAX], bytes;

    n->cached = k;
    if (before == k || before == n->m->ndatasets || n->o.parallel || has_name_of_dim(n, before))
        return NC_NOERR;
    bytes = chunk_of(n, before, chunk);
    return bytes ? nc_set_var_chunk_cache(n->vars[before].group, n->vars[before].id, bytes, 521, 1.0f) : NC_NOERR;
}

static int write_it(struct cv_sink *sink, size_t k, const uint64_t *lo, const uint64_t *count, const void *buf, struct cv_fail *why)
{
    struct nc *n = (struct nc *)sink;
    const struct cv_dataset *d = &n->m->datasets[k];
    size_t start[CV_RANK_MAX] = {0}, size[CV_RANK_MAX] = {0}, before = n->cached;
    int s;

    for (unsigned i = 0; i < d->rank; i++) {
        start[i] = (size_t)lo[i];
        size[i] = (size_t)count[i];
    }
    errno = 0;
    s = forget_cached(n, k);
    if (s)
        return failed(n, s, n->m->datasets[before].name, "it can't be written", why);
    s = nc_put_vara(n->vars[k].group, n->vars[k].id, start, size, buf);
    if (s == NC_NOERR && d->rank && size[0] && lo[0] + count[0] > n->vars[k].steps)
        n->vars[k].steps = lo[0] + count[0];
    return s ? failed(n, s, d->name, "it can't be written", why) : 0;
}

/* Unlimited dimensions have the length that was written: a last step of which no block has anything needs one element. Ranks together write all. */
static int lengthen(const struct nc *n, size_t k)
{
    const struct cv_dataset *d = &n->m->datasets[k];
    size_t start[CV_RANK_MAX] = {0};
    uint8_t fill[16];

    if (n->o.parallel || !d->rank || !d->dims[0].steps || n->vars[k].steps >= d->dims[0].size)
        return NC_NOERR;
    for (unsigned i = 1; i < d->rank; i++)
        if (d->dims[i].size == 0)
            return NC_NOERR;
    start[0] = (size_t)d->dims[0].size - 1;
    cv_numbers_fill_value(fill, d);
    return nc_put_var1(n->vars[k].group, n->vars[k].id, start, fill);
}

static int close_it(struct cv_sink *sink, struct cv_fail *why)
{
    struct nc *n = (struct nc *)sink;
    int s = NC_NOERR, at_close, rc;

    errno = 0;
    for (size_t k = 0; k < n->m->ndatasets && s == NC_NOERR; k++)
        s = lengthen(n, k);
    at_close = nc_close(n->file);
    s = s ? s : at_close;
    rc = s ? failed(n, s, NULL, "it can't be written to its end", why) : 0;
    forget(n);
    return rc;
}

const struct cv_sink_ops cv_sink_netcdf4 = {
    .name = "netcdf",
    .summary = "netCDF-4: groups, chunks, deflate or zstd, checksums, unlimited time",
    .ending = ".nc",
    .chunked = true,
    .create = create,
    .write = write_it,
    .close = close_it,
    .abandon = abandon,
};
