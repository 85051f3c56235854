/*
 * to=hdf5 (sink.h). Called by the engine. One thread, or all ranks together.
 *
 * Chunks that are written whole go to H5Dwrite_chunk, coded here (h5filters.c): one pwrite each, and no copy into the library's cache. What ranks write together, and boxes that are no chunks,
 * go by H5Dwrite, whose cache has room for one chunk, and is given back when the next dataset begins. Nothing is allocated before it is written, so what no block has takes no space and reads as the fill value; but several ranks need all of it
 * to be there from the start. Rejected: contiguous datasets, which HDF5 can neither extend by a step nor compress, and which are no faster.
 */
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "convert/buffer.h"
#include "convert/engine/box.h"
#include "convert/engine/numbers.h"
#include "convert/sink/h5util.h"
#include "fp/err.h"

struct h5 {
    struct cv_sink base;
    const struct cv_model *m;
    const uint64_t (*chunk)[CV_RANK_MAX];
    struct cv_sink_options o;
    char path[PATH_MAX];
    hid_t file, transfer, *datasets;
    uint8_t *edge, *shuffled, *packed; /* a chunk at the array's edge made whole; coded */
    size_t chunk_bytes;                /* the largest */
    size_t cached;                     /* of this dataset the library may hold chunks; ndatasets: of none */
};

static size_t chunk_bytes(const struct h5 *h, size_t k)
{
    size_t n = h->m->datasets[k].type.size_bytes;

    for (unsigned i = 0; i < h->m->datasets[k].rank; i++)
        n *= h->chunk[k][i];
    return n;
}

static bool is_chunked(const struct h5 *h, size_t k)
{
    return h->m->datasets[k].rank && h->chunk[k][0];
}

/* ---------------------------------------------------------------- making the file */

static hid_t open_file(const struct h5 *h)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = H5Pcreate(H5P_FILE_CREATE), file;

    H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_V110); /* chunks are found by an array instead of a tree */
    H5Pset_alignment(fapl, CV_LARGE_BYTES, cv_h5_alignment(h->m, h->chunk, &h->o));
    if (h->o.parallel)
        H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL);
    H5Pset_file_locking(fapl, false, true); /* nobody else knows of it, and not all file systems have locks */
    H5Pset_link_creation_order(fcpl, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    file = H5Fcreate(h->path, H5F_ACC_TRUNC, fcpl, fapl);
    if (file < 0)
        return file; /* with HDF5's words */
    H5Pclose(fcpl);
    H5Pclose(fapl);
    return file;
}

static hid_t space_of(const struct cv_dataset *d)
{
    hsize_t dims[CV_RANK_MAX], max[CV_RANK_MAX];

    if (d->rank == 0)
        return H5Screate(H5S_SCALAR);
    for (unsigned i = 0; i < d->rank; i++) {
        dims[i] = d->dims[i].size;
        max[i] = d->dims[i].steps ? H5S_UNLIMITED : dims[i];
    }
    return H5Screate_simple((int)d->rank, dims, max);
}

static hid_t creation_of(const struct h5 *h, size_t k, hid_t type)
{
    const struct cv_dataset *d = &h->m->datasets[k];
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk[CV_RANK_MAX];
    uint8_t fill[16];
    bool unlimited = false;

    H5Pset_obj_track_times(dcpl, false); /* one input, one output */
    cv_numbers_fill_value(fill, d);
    for (unsigned i = 0; i < d->rank; i++) {
        chunk[i] = h->chunk[k][i] ? h->chunk[k][i] : 1;
        unlimited |= d->dims[i].steps;
    }
    if (is_chunked(h, k) || unlimited) /* what may grow is in chunks, also while it is empty */
        H5Pset_chunk(dcpl, (int)d->rank, chunk);
    if (is_chunked(h, k)) {
        H5Pset_alloc_time(dcpl, h->o.parallel ? H5D_ALLOC_TIME_EARLY : H5D_ALLOC_TIME_INCR);
        if (cv_h5_filters(dcpl, &h->o, d->type.size_bytes) < 0)
            goto fail;
    }
    if (H5Pset_fill_value(dcpl, type, fill) < 0 || H5Pset_fill_time(dcpl, h->o.parallel && d->gaps == CV_GAPS_REFUSE && !h->o.sparse ? H5D_FILL_TIME_NEVER : H5D_FILL_TIME_IFSET) < 0)
        goto fail;
    return dcpl;
fail:
    H5Pclose(dcpl);
    return -1;
}

static hid_t access_of(const struct h5 *h, size_t k)
{
    hid_t dapl = H5Pcreate(H5P_DATASET_ACCESS);

    if (is_chunked(h, k))
        H5Pset_chunk_cache(dapl, 521, chunk_bytes(h, k), 1.0);
    return dapl;
}

/* As netCDF and xarray look for it, beside HDF5's own: an array of one, in the dataset's type. HDF5's words of a failure are there still when it returns. */
static int put_fill(hid_t dataset, const struct cv_dataset *d)
{
    hid_t type = cv_h5_type(d->type), space = H5Screate_simple(1, &(hsize_t){1}, NULL), attr;
    uint8_t fill[16];

    cv_numbers_fill_value(fill, d);
    attr = H5Acreate2(dataset, CV_FILL_NAME, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (attr < 0 || H5Awrite(attr, type, fill) < 0)
        return -EIO;
    cv_h5_put(attr);
    cv_h5_put(space);
    cv_h5_put(type);
    return 0;
}

static int make_dataset(struct h5 *h, size_t k)
{
    const struct cv_dataset *d = &h->m->datasets[k];
    hid_t type = cv_h5_type(d->type), space = space_of(d), dcpl = creation_of(h, k, type), dapl = access_of(h, k), lcpl = H5Pcreate(H5P_LINK_CREATE);

    H5Pset_create_intermediate_group(lcpl, 1);
    if (dcpl < 0 || (h->datasets[k] = H5Dcreate2(h->file, d->name, type, space, lcpl, dcpl, dapl)) < 0)
        return -EIO; /* with HDF5's words, which another call would clear */
    H5Pclose(lcpl);
    H5Pclose(dapl);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Tclose(type);
    if (cv_h5_put_attrs(h->datasets[k], &d->attrs) < 0)
        return -EIO;
    return d->has_fill && d->type.kind != CV_COMPLEX && !cv_attrs_find(&d->attrs, CV_FILL_NAME) ? put_fill(h->datasets[k], d) : 0;
}

static void forget(struct h5 *h)
{
    for (size_t k = 0; h->datasets && k < h->m->ndatasets; k++)
        if (h->datasets[k] >= 0)
            H5Dclose(h->datasets[k]);
    if (h->transfer >= 0)
        H5Pclose(h->transfer);
    free(h->datasets);
    free(h->edge);
    free(h->shuffled);
    free(h->packed);
}

static void abandon(struct cv_sink *s)
{
    struct h5 *h = (struct h5 *)s;

    if (h->o.parallel) /* ranks together end with the process: closing what can't be written hangs */
        return;
    forget(h);
    if (h->file >= 0)
        H5Fclose(h->file);
    free(h);
}

static int make_all(struct h5 *h, struct cv_fail *why)
{
    hid_t root;
    int rc = 0;

    h->file = open_file(h);
    if (h->file < 0)
        return cv_h5_fail(why, h->path, NULL, "it can't be made");
    for (size_t k = 0; k < h->m->ndatasets && rc == 0; k++)
        if (make_dataset(h, k) < 0)
            rc = cv_h5_fail(why, h->path, h->m->datasets[k].name, "it can't be made");
    if (rc)
        return rc;
    root = H5Gopen2(h->file, "/", H5P_DEFAULT);
    if (root < 0 || cv_h5_put_attrs(root, &h->m->attrs) < 0)
        rc = cv_h5_fail(why, h->path, NULL, "its attributes can't be written");
    if (root >= 0)
        H5Gclose(root);
    rc = rc ? rc : cv_h5_dims(h->file, h->m, h->datasets);
    return rc == -EIO ? cv_h5_fail(why, h->path, NULL, "its dimensions can't be written") : rc;
}

static int make_buffers(struct h5 *h)
{
    for (size_t k = 0; k < h->m->ndatasets; k++)
        if (is_chunked(h, k) && chunk_bytes(h, k) > h->chunk_bytes)
            h->chunk_bytes = chunk_bytes(h, k);
    if (h->o.parallel || !h->chunk_bytes)
        return 0;
    h->edge = cv_buffer(h->chunk_bytes + CV_H5_SUM_BYTES);
    h->shuffled = h->o.shuffle ? cv_buffer(h->chunk_bytes + CV_H5_SUM_BYTES) : NULL;
    h->packed = h->o.codec ? cv_buffer(cv_h5_room(h->chunk_bytes) + CV_H5_SUM_BYTES) : NULL;
    return h->edge && (h->shuffled || !h->o.shuffle) && (h->packed || !h->o.codec) ? 0 : -ENOMEM;
}

static int create(const char *path, const struct cv_model *m, const uint64_t (*chunk)[CV_RANK_MAX], const struct cv_sink_options *o, struct cv_sink **out, struct cv_fail *why)
{
    struct h5 *h = calloc(1, sizeof *h);
    int rc = h && (h->datasets = malloc((m->ndatasets + 1) * sizeof *h->datasets)) ? 0 : -ENOMEM;

    if (rc) {
        free(h);
        return cv_fail(why, rc, NULL, NULL, CV_NO_OFFSET, "out of memory");
    }
    cv_h5_begin();
    h->base.ops = &cv_sink_hdf5;
    h->m = m;
    h->chunk = chunk;
    h->o = *o;
    h->file = -1;
    h->cached = m->ndatasets;
    snprintf(h->path, sizeof h->path, "%s", path);
    for (size_t k = 0; k < m->ndatasets; k++)
        h->datasets[k] = -1;
    h->transfer = H5Pcreate(H5P_DATASET_XFER);
    if (o->parallel)
        H5Pset_dxpl_mpio(h->transfer, H5FD_MPIO_COLLECTIVE);
    rc = make_buffers(h);
    rc = rc ? cv_fail(why, rc, NULL, NULL, CV_NO_OFFSET, "out of memory for chunks of %zu bytes", h->chunk_bytes) : make_all(h, why);
    if (rc)
        abandon(&h->base);
    else
        *out = &h->base;
    return rc;
}

/* ---------------------------------------------------------------- writing */

/* A chunk that the array's edge cuts is stored whole. */
static const uint8_t *make_whole(struct h5 *h, size_t k, const uint64_t *count, const uint8_t *buf)
{
    const struct cv_dataset *d = &h->m->datasets[k];
    uint64_t from[CV_RANK_MAX], to[CV_RANK_MAX];
    size_t bytes = chunk_bytes(h, k), size = d->type.size_bytes;
    uint8_t fill[16];
    bool is_whole = true;

    for (unsigned i = 0; i < d->rank; i++)
        is_whole &= count[i] == h->chunk[k][i];
    if (is_whole)
        return buf;
    cv_numbers_fill_value(fill, d);
    for (size_t at = 0; at < bytes; at += size)
        memcpy(h->edge + at, fill, size);
    cv_box_steps(count, d->rank, size, from);
    cv_box_steps(h->chunk[k], d->rank, size, to);
    cv_box_copy(buf, from, h->edge, to, count, d->rank, size);
    return h->edge;
}

static int write_chunk(struct h5 *h, size_t k, const uint64_t *lo, const uint64_t *count, const uint8_t *buf, struct cv_fail *why)
{
    const struct cv_dataset *d = &h->m->datasets[k];
    const uint8_t *whole = make_whole(h, k, count, buf), *coded;
    hsize_t at[CV_RANK_MAX];
    size_t n;
    uint32_t mask;
    int rc = cv_h5_encode(&h->o, whole, chunk_bytes(h, k), d->type.size_bytes, h->shuffled, h->packed, &coded, &n, &mask);

    if (rc)
        return cv_fail(why, rc, h->path, d->name, CV_NO_OFFSET, "out of memory for compressing");
    if (h->o.fletcher32) {
        uint8_t *to = coded == h->packed ? h->packed : coded == h->shuffled ? h->shuffled : h->edge;

        if (coded != to)
            memcpy(to, coded, n);
        cv_h5_sum(to, n);
        n += CV_H5_SUM_BYTES;
        coded = to;
    }
    for (unsigned i = 0; i < d->rank; i++)
        at[i] = lo[i];
    return H5Dwrite_chunk(h->datasets[k], h->transfer, mask, at, n, coded) < 0 ? cv_h5_fail(why, h->path, d->name, "it can't be written") : 0;
}

/* MPI's files tell the library no more than that it failed. */
static int write_failed(const struct h5 *h, const struct cv_dataset *d, uint64_t bytes, struct cv_fail *why)
{
    struct statvfs fs;

    if (h->o.parallel && statvfs(h->path, &fs) == 0 && fs.f_bavail < (bytes + fs.f_bsize) / fs.f_bsize)
        return cv_fail(why, -ENOSPC, h->path, d->name, CV_NO_OFFSET, "it can't be written: %s", fp_strerror(-ENOSPC));
    return cv_h5_fail(why, h->path, d->name, "it can't be written");
}

static int write_box(struct h5 *h, size_t k, const uint64_t *lo, const uint64_t *count, const void *buf, struct cv_fail *why)
{
    const struct cv_dataset *d = &h->m->datasets[k];
    hsize_t at[CV_RANK_MAX], size[CV_RANK_MAX];
    hid_t file = H5Dget_space(h->datasets[k]), memory, type = cv_h5_type(d->type);
    bool none = h->o.parallel && count[0] == 0;
    uint64_t bytes = d->type.size_bytes;
    herr_t ok = 0;
    int rc = 0;

    for (unsigned i = 0; i < d->rank; i++) {
        at[i] = lo[i];
        size[i] = count[i];
        bytes *= count[i];
        none |= count[i] == 0;
    }
    memory = d->rank ? H5Screate_simple((int)d->rank, size, NULL) : H5Screate(H5S_SCALAR);
    if (none) {
        H5Sselect_none(file);
        H5Sselect_none(memory);
    } else if (d->rank) {
        ok = H5Sselect_hyperslab(file, H5S_SELECT_SET, at, NULL, size, NULL);
    }
    if (ok < 0 || H5Dwrite(h->datasets[k], type, memory, file, h->transfer, buf) < 0)
        rc = write_failed(h, d, bytes, why);
    H5Tclose(type);
    H5Sclose(memory);
    H5Sclose(file);
    return rc;
}

/* The chunks that the library holds of the dataset before this one: closing it writes them and gives their memory back. */
static int forget_cached(struct h5 *h, size_t k, struct cv_fail *why)
{
    size_t before = h->cached;
    hid_t dapl;

    h->cached = k;
    if (before == k || before == h->m->ndatasets)
        return 0;
    if (H5Dclose(h->datasets[before]) < 0) {
        h->datasets[before] = -1;
        return cv_h5_fail(why, h->path, h->m->datasets[before].name, "it can't be written");
    }
    dapl = access_of(h, before);
    h->datasets[before] = H5Dopen2(h->file, h->m->datasets[before].name, dapl);
    if (h->datasets[before] < 0)
        return cv_h5_fail(why, h->path, h->m->datasets[before].name, "it can't be opened again");
    H5Pclose(dapl);
    return 0;
}

/* A box that is one chunk, cut at the array's edge perhaps. */
static bool is_one_chunk(const struct h5 *h, size_t k, const uint64_t *lo, const uint64_t *count)
{
    const struct cv_dataset *d = &h->m->datasets[k];

    for (unsigned i = 0; i < d->rank; i++)
        if (lo[i] % h->chunk[k][i] || (count[i] != h->chunk[k][i] && (count[i] > h->chunk[k][i] || lo[i] + count[i] != d->dims[i].size)))
            return false;
    return true;
}

static int write_it(struct cv_sink *s, size_t k, const uint64_t *lo, const uint64_t *count, const void *buf, struct cv_fail *why)
{
    struct h5 *h = (struct h5 *)s;
    int rc;

    for (unsigned i = 0; i < h->m->datasets[k].rank && !h->o.parallel; i++)
        if (count[i] == 0)
            return 0;
    if (h->edge && is_chunked(h, k) && is_one_chunk(h, k, lo, count))
        return write_chunk(h, k, lo, count, buf, why);
    rc = is_chunked(h, k) && !h->o.parallel ? forget_cached(h, k, why) : 0;
    return rc ? rc : write_box(h, k, lo, count, buf, why);
}

static int close_it(struct cv_sink *s, struct cv_fail *why)
{
    struct h5 *h = (struct h5 *)s;
    int rc = 0;

    for (size_t k = 0; k < h->m->ndatasets; k++) {
        if (h->datasets[k] >= 0 && H5Dclose(h->datasets[k]) < 0)
            rc = cv_h5_fail(why, h->path, h->m->datasets[k].name, "it can't be written to its end");
        h->datasets[k] = -1;
    }
    if (H5Fclose(h->file) < 0)
        rc = cv_h5_fail(why, h->path, NULL, "it can't be written to its end");
    h->file = -1;
    forget(h);
    free(h);
    return rc;
}

const struct cv_sink_ops cv_sink_hdf5 = {
    .name = "hdf5",
    .summary = "HDF5: chunks, shuffle, deflate or zstd, checksums, dimension scales",
    .ending = ".h5",
    .chunked = true,
    .create = create,
    .write = write_it,
    .close = close_it,
    .abandon = abandon,
};
