/*
 * Dimension scales (h5util.h): which dimensions of which datasets are the same. Called by the sink when all datasets are there. One thread.
 *
 * As netCDF-4 has them, so that netCDF and xarray read the file as one of theirs: a dimension is a dataset of its name in the root group, of its size, with nothing in it and a name that says so; or,
 * where a dataset of that name has just that one dimension (a coordinate), that dataset. Datasets that name the same dimension with another size get one with a number behind it.
 */
#include <errno.h>
#include <hdf5_hl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/sink/h5util.h"

#define SCALE_CHUNK_MAX 1048576u /* elements: HDF5 refuses chunks of 4 GiB */
#define NO_VALUES "This is a netCDF dimension but not a netCDF variable"

struct scale {
    const char *name;
    uint64_t size;
    bool steps;
    hid_t id;
    bool own; /* made here, to be closed */
};

struct scales {
    struct scale *items;
    size_t count;
};

/* A dataset that is the coordinate of this dimension. */
static hid_t coordinate(const struct cv_model *m, const hid_t *datasets, const struct cv_dim *dim)
{
    for (size_t i = 0; i < m->ndatasets; i++) {
        const struct cv_dataset *d = &m->datasets[i];

        if (d->rank == 1 && strcmp(d->name + 1, dim->name) == 0 && d->dims[0].name && strcmp(d->dims[0].name, dim->name) == 0 && d->dims[0].size == dim->size)
            return datasets[i];
    }
    return -1;
}

/* Nothing is stored of it: no value is ever written. */
static hid_t make_dataset(hid_t file, const char *name, const struct cv_dim *dim)
{
    hsize_t size = dim->size, max = dim->steps ? H5S_UNLIMITED : dim->size, chunk = dim->size < SCALE_CHUNK_MAX ? dim->size : SCALE_CHUNK_MAX;
    hid_t space = H5Screate_simple(1, &size, &max), dcpl = H5Pcreate(H5P_DATASET_CREATE), id;

    chunk = chunk ? chunk : 1;
    if (dim->steps && H5Pset_chunk(dcpl, 1, &chunk) < 0)
        return -1; /* with HDF5's words */
    H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER);
    H5Pset_alloc_time(dcpl, dim->steps ? H5D_ALLOC_TIME_INCR : H5D_ALLOC_TIME_LATE);
    id = H5Dcreate2(file, name, H5T_IEEE_F32BE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    H5Pclose(dcpl);
    H5Sclose(space);
    return id;
}

/* A name that nothing in the file has: the dimension's, or with a number. */
static bool free_name(hid_t file, const char *name, char *out, size_t size)
{
    for (unsigned n = 1; n < 1000; n++) {
        if (snprintf(out, size, n == 1 ? "%s" : "%s_%u", name, n) >= (int)size)
            return false;
        if (H5Lexists(file, out, H5P_DEFAULT) == 0)
            return true;
    }
    return false;
}

static int add_scale(hid_t file, const struct cv_model *m, const hid_t *datasets, const struct cv_dim *dim, struct scale *s)
{
    char path[CV_NAME_MAX + 16], label[80];

    *s = (struct scale){.name = dim->name, .size = dim->size, .steps = dim->steps, .id = coordinate(m, datasets, dim)};
    if (s->id >= 0)
        return H5DSset_scale(s->id, dim->name) < 0 ? -EIO : 0;
    if (!free_name(file, dim->name, path, sizeof path))
        return -EEXIST;
    s->id = make_dataset(file, path, dim);
    s->own = s->id >= 0;
    snprintf(label, sizeof label, NO_VALUES ".%10llu", (unsigned long long)dim->size);
    return s->id < 0 || H5DSset_scale(s->id, label) < 0 ? -EIO : 0;
}

static struct scale *find(struct scales *all, const struct cv_dim *dim)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->items[i].name, dim->name) == 0 && all->items[i].size == dim->size && all->items[i].steps == dim->steps)
            return &all->items[i];
    return NULL;
}

static int attach(hid_t file, const struct cv_model *m, const hid_t *datasets, size_t k, struct scales *all)
{
    const struct cv_dataset *d = &m->datasets[k];

    for (unsigned i = 0; i < d->rank; i++) {
        struct scale *s, *grown;
        int rc = 0;

        if (!d->dims[i].name || strchr(d->dims[i].name, '/') || !d->dims[i].name[0])
            continue;
        s = find(all, &d->dims[i]);
        if (!s) {
            grown = realloc(all->items, (all->count + 1) * sizeof *grown);
            if (!grown)
                return -ENOMEM;
            all->items = grown;
            s = &grown[all->count++];
            rc = add_scale(file, m, datasets, &d->dims[i], s);
        }
        if (rc == 0 && s->id != datasets[k] && H5DSattach_scale(datasets[k], s->id, i) < 0)
            rc = -EIO;
        if (rc)
            return rc;
    }
    return 0;
}

int cv_h5_dims(hid_t file, const struct cv_model *m, const hid_t *datasets)
{
    struct scales all = {NULL, 0};
    int rc = 0;

    for (size_t k = 0; k < m->ndatasets && rc == 0; k++)
        rc = attach(file, m, datasets, k, &all);
    for (size_t i = 0; i < all.count; i++)
        if (all.items[i].own)
            H5Dclose(all.items[i].id);
    free(all.items);
    return rc;
}

/* ---------------------------------------------------------------- reading */

bool cv_h5_is_only_scale(hid_t dataset)
{
    char name[sizeof NO_VALUES + 64] = "";

    return H5DSis_scale(dataset) > 0 && H5DSget_scale_name(dataset, name, sizeof name) > 0 && strncmp(name, NO_VALUES, strlen(NO_VALUES)) == 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static herr_t take_name(hid_t dataset, unsigned i, hid_t id, void *arg)
{
    char path[2 * CV_NAME_MAX + 2] = "";

    (void)dataset;
    (void)i;
    if (H5Iget_name(id, path, sizeof path) > 0 && strlen(path) < sizeof path - 1)
        snprintf(arg, CV_NAME_MAX + 1, "%.*s", (int)CV_NAME_MAX, base_name(path));
    return 1; /* the first one */
}

int cv_h5_get_dims(hid_t dataset, const char *path, unsigned rank, struct cv_dataset *d)
{
    for (unsigned i = 0; i < rank; i++) {
        char name[CV_NAME_MAX + 1] = "";

        if (rank == 1 && H5DSis_scale(dataset) > 0)
            snprintf(name, sizeof name, "%s", base_name(path));
        else if (H5DSget_num_scales(dataset, i) > 0)
            H5DSiterate_scales(dataset, i, NULL, take_name, name);
        else if (H5Aexists(dataset, "DIMENSION_LABELS") > 0 && H5DSget_label(dataset, i, name, sizeof name) < 0)
            name[0] = '\0';
        if (!name[0] || strchr(name, '/'))
            continue;
        d->dims[i].name = strdup(name);
        if (!d->dims[i].name)
            return -ENOMEM;
    }
    return 0;
}
