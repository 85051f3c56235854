/* What tests of HDF5 files share: a directory of their own, files written and read by the library itself, not by ours. */
#ifndef TESTS_CV_H5_H
#define TESTS_CV_H5_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>
#include <hdf5_hl.h>

#include <cmocka.h>

#include "convert/sink/sink.h"
#include "convert/source/source.h"

static char h5_dir[] = "/tmp/cv-h5-XXXXXX";

static inline const char *h5_path(const char *name)
{
    static char paths[8][96];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof paths[0], "%s/%s", h5_dir, name);
    return path;
}

static inline int h5_setup(void **state)
{
    (void)state;
    H5dont_atexit(); /* before anything else of the library: as in the program (h5filters.c) */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return mkdtemp(h5_dir) ? 0 : -1;
}

static inline int h5_teardown(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", h5_dir);
    return system(command);
}

static inline hid_t h5_make(const char *path)
{
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

    assert_true(file >= 0);
    return file;
}

/* A dataset of these values; stays open. */
static inline hid_t h5_put(hid_t file, const char *name, hid_t stored, hid_t memory, int rank, const hsize_t *dims, const void *values)
{
    hid_t space = rank ? H5Screate_simple(rank, dims, NULL) : H5Screate(H5S_SCALAR), lcpl = H5Pcreate(H5P_LINK_CREATE), id;

    H5Pset_create_intermediate_group(lcpl, 1);
    id = H5Dcreate2(file, name, stored, space, lcpl, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(id >= 0);
    assert_true(H5Dwrite(id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Sclose(space);
    H5Pclose(lcpl);
    return id;
}

static inline void h5_ints(hid_t object, const char *name, const int64_t *values, hsize_t n)
{
    hid_t space = H5Screate_simple(1, &n, NULL), attr = H5Acreate2(object, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);

    assert_true(attr >= 0 && H5Awrite(attr, H5T_NATIVE_INT64, values) >= 0);
    H5Aclose(attr);
    H5Sclose(space);
}

static inline void h5_text(hid_t object, const char *name, const char *text)
{
    assert_true(H5LTset_attribute_string(object, ".", name, text) >= 0);
}

/* All of a dataset. */
static inline void h5_get(const char *path, const char *name, hid_t memory, void *values)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), id = H5Dopen2(file, name, H5P_DEFAULT);

    assert_true(id >= 0);
    assert_true(H5Dread(id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(id);
    H5Fclose(file);
}

/* Of a dataset of one dimension and four chunks: the largest power of two of which the chunks' places in the file are multiples. */
static inline haddr_t h5_four_chunks_begin_at(const char *path, const char *name)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), id = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(id);
    haddr_t all = 0, at;
    hsize_t n, offset[1], size;
    unsigned mask;

    assert_true(H5Dget_num_chunks(id, space, &n) >= 0 && n == 4);
    for (hsize_t i = 0; i < n; i++) {
        assert_true(H5Dget_chunk_info(id, space, i, offset, &mask, &at, &size) >= 0);
        all |= at;
    }
    H5Sclose(space);
    H5Dclose(id);
    H5Fclose(file);
    return all & -all;
}

static inline int h5_source(const char *const *paths, size_t n, const char *schema, struct cv_source **s, struct cv_fail *why)
{
    struct cv_source_options o = {.paths = paths, .npaths = n, .schema = schema, .memory_bytes = 1u << 20};

    memset(why, 0, sizeof *why);
    *s = NULL;
    return cv_source_hdf5.open(&o, s, why);
}

static inline struct cv_source *h5_source_good(const char *const *paths, size_t n, const char *schema)
{
    struct cv_source *s;
    struct cv_fail why;

    if (h5_source(paths, n, schema, &s, &why) != 0)
        fail_msg("%s: %s: %s", why.file, why.dataset, why.text);
    return s;
}

#endif
