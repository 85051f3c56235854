/* What tests of the netCDF sinks share: a directory, models of a few elements, and files written by the sinks and read by netCDF's own libraries. */
#ifndef TESTS_CV_NETCDF_H
#define TESTS_CV_NETCDF_H

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <mpi.h>
#include <netcdf.h>
#include <netcdf_filter.h>
#include <pnetcdf.h>

#include <cmocka.h>

#include "convert/sink/h5util.h"
#include "convert/sink/ncutil.h"
#include "convert/sink/sink.h"

#define DATASETS 16u
#define ELEMENTS 384u /* the most of one dataset here */

static char dir[] = "/tmp/cv-netcdf-XXXXXX", path[64];
static uint64_t chunks[DATASETS][CV_RANK_MAX];

/* Leaks are looked for while MPI still is: what its components had is not to be told from ours once they are gone. */
void __lsan_do_leak_check(void) __attribute__((weak));
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));
const char *__lsan_default_suppressions(void);

/* Open MPI's components (ROMIO's requests) leak some bytes each time: nothing else is passed over. */
const char *__lsan_default_suppressions(void)
{
    return "leak:mca_io_romio\nleak:mca_coll_\n";
}

/* What MPI_Init never frees, of components that it unloads again, has no name to be left out by. */
int MPI_Init(int *argc, char ***argv)
{
    int rc;

    if (__lsan_disable)
        __lsan_disable();
    rc = PMPI_Init(argc, argv);
    if (__lsan_enable)
        __lsan_enable();
    return rc;
}

static inline int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/out.nc", dir);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

static inline struct cv_dataset *add(struct cv_model *m, const char *name, enum cv_kind kind, unsigned size_bytes, unsigned rank, const uint64_t *dims)
{
    struct cv_dataset *d = cv_model_add(m, name);

    assert_non_null(d);
    d->type = (struct cv_type){.kind = kind, .size_bytes = (uint8_t)size_bytes};
    d->rank = rank;
    for (unsigned i = 0; i < rank; i++)
        d->dims[i].size = dims[i];
    return d;
}

static inline void name_dim(struct cv_dataset *d, unsigned i, const char *name, bool steps)
{
    d->dims[i].name = strdup(name);
    d->dims[i].steps = steps;
    assert_non_null(d->dims[i].name);
}

/* Bytes that are different everywhere, and no NaN among them. */
static inline const uint8_t *values(size_t k)
{
    static uint8_t bytes[ELEMENTS * 8];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)((i * 7 + k * 31) % 126);
    return bytes;
}

static inline struct cv_sink *begin(const struct cv_sink_ops *ops, const struct cv_model *m, const struct cv_sink_options *o)
{
    struct cv_sink *s = NULL;
    struct cv_fail why = {.text = ""};

    if (cv_sink_check(ops, m, &why) || ops->create(path, m, (const uint64_t(*)[CV_RANK_MAX])chunks, o, &s, &why))
        fail_msg("%s: %s: %s", why.file, why.dataset, why.text);
    return s;
}

static inline void put(struct cv_sink *s, size_t k, const uint64_t *lo, const uint64_t *count, const void *buf)
{
    struct cv_fail why = {.text = ""};

    if (s->ops->write(s, k, lo, count, buf, &why))
        fail_msg("%s: %s", why.dataset, why.text);
}

static inline void end(struct cv_sink *s)
{
    struct cv_fail why = {.text = ""};

    if (s->ops->close(s, &why))
        fail_msg("%s", why.text);
}

/* Each dataset as a whole, of values(k). */
static inline void write_all(const struct cv_sink_ops *ops, const struct cv_model *m, const struct cv_sink_options *o)
{
    struct cv_sink *s = begin(ops, m, o);

    for (size_t k = 0; k < m->ndatasets; k++) {
        uint64_t lo[CV_RANK_MAX] = {0}, count[CV_RANK_MAX] = {0};

        for (unsigned i = 0; i < m->datasets[k].rank; i++)
            count[i] = m->datasets[k].dims[i].size;
        put(s, k, lo, count, values(k));
    }
    end(s);
}

static inline int open_nc(void)
{
    int file;

    assert_int_equal(nc_open(path, NC_NOWRITE, &file), NC_NOERR);
    return file;
}

static inline int open_classic(void)
{
    int file;

    assert_int_equal(ncmpi_open(MPI_COMM_SELF, path, NC_NOWRITE, MPI_INFO_NULL, &file), NC_NOERR);
    return file;
}

static inline void check_nc(const struct cv_model *m)
{
    int file = open_nc();

    for (size_t k = 0; k < m->ndatasets; k++) {
        const struct cv_dataset *d = &m->datasets[k];
        uint8_t got[ELEMENTS * 8];
        uint64_t n;
        int group = file, var, rank, ids[CV_RANK_MAX];
        nc_type type;

        if (strchr(d->name + 1, '/')) {
            char name[CV_NAME_MAX + 1];

            snprintf(name, sizeof name, "%.*s", (int)(strrchr(d->name, '/') - d->name), d->name);
            assert_int_equal(nc_inq_grp_full_ncid(file, name, &group), NC_NOERR);
        }
        assert_int_equal(nc_inq_varid(group, strrchr(d->name, '/') + 1, &var), NC_NOERR);
        assert_int_equal(nc_inq_var(group, var, NULL, &type, &rank, ids, NULL), NC_NOERR);
        assert_int_equal(type, cv_nc_type(d->type));
        assert_int_equal(rank, d->rank);
        for (unsigned i = 0; i < d->rank; i++) {
            size_t len;

            assert_int_equal(nc_inq_dimlen(file, ids[i], &len), NC_NOERR);
            assert_int_equal(len, d->dims[i].size);
        }
        assert_true(cv_dataset_elements(d, &n) && n <= ELEMENTS);
        assert_int_equal(nc_get_var(group, var, got), NC_NOERR);
        assert_memory_equal(got, values(k), n * d->type.size_bytes);
    }
    assert_int_equal(nc_close(file), NC_NOERR);
}

static inline void check_classic(const struct cv_model *m, int format)
{
    int file = open_classic(), have;

    assert_int_equal(ncmpi_inq_format(file, &have), NC_NOERR);
    assert_int_equal(have, format);
    for (size_t k = 0; k < m->ndatasets; k++) {
        const struct cv_dataset *d = &m->datasets[k];
        char name[CV_NAME_MAX + 1];
        uint8_t got[ELEMENTS * 8];
        uint64_t n;
        int var, rank, ids[CV_RANK_MAX];
        nc_type type;

        cv_nc_flat_name(d->name, name);
        assert_int_equal(ncmpi_inq_varid(file, name, &var), NC_NOERR);
        assert_int_equal(ncmpi_inq_var(file, var, NULL, &type, &rank, ids, NULL), NC_NOERR);
        assert_int_equal(type, cv_nc_type(d->type));
        assert_int_equal(rank, d->rank);
        for (unsigned i = 0; i < d->rank; i++) {
            MPI_Offset len;

            assert_int_equal(ncmpi_inq_dimlen(file, ids[i], &len), NC_NOERR);
            assert_int_equal(len, d->dims[i].size);
        }
        assert_true(cv_dataset_elements(d, &n) && n <= ELEMENTS);
        assert_int_equal(ncmpi_get_var_all(file, var, got, (MPI_Offset)n, MPI_DATATYPE_NULL), NC_NOERR);
        assert_memory_equal(got, values(k), n * d->type.size_bytes);
    }
    assert_int_equal(ncmpi_close(file), NC_NOERR);
}

/* All of a program, in place of its main. */
static inline int run_netcdf_tests(const struct CMUnitTest *tests, size_t count)
{
    int rc = _cmocka_run_group_tests("netcdf", tests, count, setup, teardown);

    if (__lsan_do_leak_check)
        __lsan_do_leak_check();
    return rc;
}

#endif
