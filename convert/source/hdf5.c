/*
 * from=hdf5: HDF5 files, and netCDF-4 files, which are such. Called by the engine on its one thread; blocks for the disk. What is in them is found out in hdf5model.c.
 *
 * Elements come from H5Dread in the machine's byte order, whatever filters and byte order the file has. Few files and fewer datasets are open at a time, the least recently used giving way: a set may have
 * thousands of files, and each open dataset has a cache for its chunks, which are taken out of the memory that the source was given. Those of another dataset give way at once: an input has one of each, so
 * as many are open as there are inputs, and share that memory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/source/hdf5.h"

/* ---------------------------------------------------------------- what is open */

static void set_close(struct cv_h5_set *set)
{
    if (set->id >= 0)
        H5Dclose(set->id);
    set->id = -1;
}

static void file_close(struct cv_h5_source *s, struct cv_h5_file *f)
{
    for (size_t i = 0; i < CV_H5_SETS; i++)
        if (f->id >= 0 && s->sets[i].input == f->input)
            set_close(&s->sets[i]);
    if (f->id >= 0)
        H5Fclose(f->id);
    f->id = -1;
}

int cv_h5_source_file(struct cv_h5_source *s, uint32_t input, hid_t *out, struct cv_fail *why)
{
    struct cv_h5_file *oldest = &s->files[0];
    hid_t fapl;

    for (size_t i = 0; i < CV_H5_FILES; i++) {
        struct cv_h5_file *f = &s->files[i];

        if (f->id >= 0 && f->input == input) {
            f->used = ++s->clock;
            *out = f->id;
            return 0;
        }
        if (oldest->id >= 0 && (f->id < 0 || f->used < oldest->used))
            oldest = f;
    }
    file_close(s, oldest);
    fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_file_locking(fapl, false, true); /* it is only read, and not all file systems have locks */
    oldest->id = H5Fopen(s->base.inputs[input].path, H5F_ACC_RDONLY, fapl);
    if (oldest->id < 0) {
        int rc = cv_h5_fail(why, s->base.inputs[input].path, NULL, "it is no HDF5 file that can be opened");

        H5Pclose(fapl);
        return rc;
    }
    H5Pclose(fapl);
    oldest->input = input;
    oldest->used = ++s->clock;
    *out = oldest->id;
    return 0;
}

static hid_t set_open(const struct cv_h5_source *s, hid_t file, const char *name)
{
    hid_t dapl = H5Pcreate(H5P_DATASET_ACCESS), id;

    H5Pset_chunk_cache(dapl, 1021, s->memory_bytes / (s->base.ninputs < CV_H5_SETS ? s->base.ninputs : CV_H5_SETS), 0.75);
    id = H5Dopen2(file, name, dapl);
    if (id >= 0)
        H5Pclose(dapl);
    return id;
}

static int set_of(struct cv_h5_source *s, uint32_t input, const struct cv_dataset *d, hid_t *out, struct cv_fail *why)
{
    struct cv_h5_set *oldest = &s->sets[0];
    hid_t file;
    int rc;

    for (size_t i = 0; i < CV_H5_SETS; i++) {
        struct cv_h5_set *set = &s->sets[i];

        if (set->id >= 0 && set->dataset != d->id)
            set_close(set);
        if (set->id >= 0 && set->input == input) {
            set->used = ++s->clock;
            *out = set->id;
            return 0;
        }
        if (oldest->id >= 0 && (set->id < 0 || set->used < oldest->used))
            oldest = set;
    }
    set_close(oldest);
    rc = cv_h5_source_file(s, input, &file, why);
    if (rc)
        return rc;
    oldest->id = set_open(s, file, d->name);
    if (oldest->id < 0)
        return cv_h5_fail(why, s->base.inputs[input].path, d->name, "it can't be opened");
    oldest->input = input;
    oldest->dataset = d->id;
    oldest->used = ++s->clock;
    *out = oldest->id;
    return 0;
}

/* ---------------------------------------------------------------- reading */

/* The box of a block in the file's dataset: its rank there. */
static unsigned place(const struct cv_h5_about *a, const struct cv_dataset *d, const struct cv_block *b, const uint64_t *lo, hsize_t *at, hsize_t *stride)
{
    unsigned n = 0;

    for (unsigned i = 0; i < d->rank; i++) {
        if (i == 0 && a->no_steps)
            continue;
        stride[n] = 1;
        if (a->way == CV_H5_BOXES || a->way == CV_H5_CHUNKS) {
            at[n] = b->start[i] + lo[i] * b->stride[i];
            stride[n] = b->stride[i];
        } else if (a->way == CV_H5_SCHEMA) {
            at[n] = lo[i] + (i == 0 && d->dims[0].steps ? b->start[0] : b->ghost_lo[i]);
        } else {
            at[n] = lo[i];
        }
        n++;
    }
    return n;
}

/* HDF5 1.14 keeps no words of a filter's own, which 1.10 did; both call this. */
static H5Z_cb_return_t filter_failed(H5Z_filter_t filter, void *buf, size_t bytes, void *arg)
{
    (void)buf;
    (void)bytes;
    *(H5Z_filter_t *)arg = filter;
    return H5Z_CB_FAIL;
}

static int fail_of_read(struct cv_h5_source *s, uint32_t input, hid_t set, const char *dataset, struct cv_fail *why)
{
    const char *path = s->base.inputs[input].path;
    char name[64] = "";
    hid_t dcpl;

    if (s->failed_filter == H5Z_FILTER_NONE)
        return cv_h5_fail(why, path, dataset, "it can't be read");
    if (s->failed_filter == H5Z_FILTER_FLETCHER32)
        return cv_fail(why, -EBADMSG, path, dataset, CV_NO_OFFSET, "it can't be read: the checksum of a chunk is not that of its bytes: the file is damaged");
    dcpl = H5Dget_create_plist(set);
    H5Pget_filter_by_id2(dcpl, s->failed_filter, &(unsigned){0}, &(size_t){0}, NULL, sizeof name, name, NULL);
    cv_h5_put(dcpl);
    return cv_fail(why, -EBADMSG, path, dataset, CV_NO_OFFSET, "it can't be read: a chunk is nothing that the filter %s (number %d) has made, or memory is short", name, (int)s->failed_filter);
}

static int read_box(struct cv_source *base, const struct cv_dataset *d, const struct cv_block *b, const uint64_t *lo, const uint64_t *count, void *buf, struct cv_fail *why)
{
    struct cv_h5_source *s = (struct cv_h5_source *)base;
    const struct cv_h5_about *a = &s->about[d->id];
    hsize_t at[CV_RANK_MAX], stride[CV_RANK_MAX], size[CV_RANK_MAX];
    unsigned rank = place(a, d, b, lo, at, stride);
    hid_t set = -1, file, memory, type;
    int rc = set_of(s, b->input, d, &set, why);

    if (rc)
        return rc;
    for (unsigned i = 0; i < rank; i++)
        size[i] = count[i + (a->no_steps ? 1 : 0)];
    type = cv_h5_type(d->type);
    file = H5Dget_space(set);
    memory = rank ? H5Screate_simple((int)rank, size, NULL) : H5Screate(H5S_SCALAR);
    s->failed_filter = H5Z_FILTER_NONE;
    if (type < 0 || file < 0 || memory < 0 || H5Sget_simple_extent_ndims(file) != (int)rank || (rank && H5Sselect_hyperslab(file, H5S_SELECT_SET, at, stride, size, NULL) < 0) ||
        H5Dread(set, type, memory, file, s->transfer, buf) < 0)
        rc = fail_of_read(s, b->input, set, d->name, why);
    cv_h5_put(type);
    cv_h5_put(file);
    cv_h5_put(memory);
    return rc;
}

/* ---------------------------------------------------------------- opening and closing */

static void hdf5_close(struct cv_source *base)
{
    struct cv_h5_source *s = (struct cv_h5_source *)base;

    for (size_t i = 0; i < CV_H5_SETS; i++)
        set_close(&s->sets[i]);
    for (size_t i = 0; i < CV_H5_FILES; i++)
        if (s->files[i].id >= 0)
            H5Fclose(s->files[i].id);
    cv_h5_put(s->transfer);
    cv_inputs_close(base);
    cv_model_free(base->model);
    free(s->about);
    free(s);
}

/* The files are there, and may be read: the library opens them itself, a few at a time. */
static int inputs_find(struct cv_source *base, const struct cv_source_options *o, struct cv_fail *why)
{
    int rc = cv_inputs_open(base, o, why);

    for (size_t i = 0; rc == 0 && i < base->ninputs; i++) {
        if (base->inputs[i].fd >= 0)
            close(base->inputs[i].fd);
        base->inputs[i].fd = -1;
    }
    return rc;
}

static int hdf5_open(const struct cv_source_options *o, struct cv_source **out, struct cv_fail *why)
{
    struct cv_h5_source *s = calloc(1, sizeof *s);
    int rc;

    if (!s)
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
    s->base.ops = &cv_source_hdf5;
    s->memory_bytes = o->memory_bytes;
    for (size_t i = 0; i < CV_H5_FILES; i++)
        s->files[i].id = -1;
    for (size_t i = 0; i < CV_H5_SETS; i++)
        s->sets[i].id = -1;
    cv_h5_begin();
    s->transfer = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_filter_callback(s->transfer, filter_failed, &s->failed_filter);
    rc = inputs_find(&s->base, o, why);
    rc = rc ? rc : o->schema ? cv_h5_model_schema(s, o->schema, why) : cv_h5_model(s, why);
    if (rc) {
        hdf5_close(&s->base);
        return rc;
    }
    *out = &s->base;
    return 0;
}

const struct cv_source_ops cv_source_hdf5 = {
    .name = "hdf5",
    .summary = "HDF5 and netCDF-4 files: one, or those of ranks, whose blocks attributes or a schema place",
    .open = hdf5_open,
    .read_box = read_box,
    .close = hdf5_close,
};
