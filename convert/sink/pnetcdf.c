/*
 * to=netcdf3 (sink.h): netCDF's classic model by PnetCDF. Called by the engine. One thread, or all ranks together.
 *
 * CDF-2 if it can hold the dump, since every reader of netCDF knows it; CDF-5 for 64-bit and unsigned integers and for arrays beyond 4 GiB. PnetCDF speaks MPI even where it is alone: a process that nobody
 * started by mpirun becomes a world of one, without a daemon beside it.
 */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/buffer.h"
#include "convert/engine/numbers.h"
#include "convert/engine/team.h"
#include "convert/sink/ncutil.h"
#include "convert/sink/sink.h"
#include "fp/err.h"

#define CDF2_VAR_BYTES ((UINT64_C(1) << 32) - 4)
#define CDF2_DIM       ((UINT64_C(1) << 31) - 1)

struct pnc {
    struct cv_sink base;
    const struct cv_model *m;
    char path[PATH_MAX];
    int file, *vars;
    bool is_open, has_record, parallel;
    bool large;            /* CDF-5 */
    struct cv_ncdims dims;
};

/* MPI keeps the system's number to itself. The file is given up, so it can tell by a write behind its end. */
static int errno_of(const struct pnc *p, int status)
{
    static const char block[4096];
    int rc = status == NC_ENO_SPACE ? -ENOSPC : cv_nc_errno(status), fd;

    if (status != NC_EWRITE && status != NC_EFILE)
        return rc;
    fd = open(p->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0)
        return rc;
    if (write(fd, block, sizeof block) < 0)
        rc = -errno;
    close(fd);
    return rc;
}

static int failed(const struct pnc *p, int status, const char *dataset, const char *what, struct cv_fail *why)
{
    int rc = errno_of(p, status);

    return cv_fail(why, rc, p->path, dataset, CV_NO_OFFSET, "%s: %s", what, rc == -EIO ? ncmpi_strerror(status) : fp_strerror(rc));
}

static void end_mpi(void)
{
    int over = 0;

    if (MPI_Finalized(&over) == MPI_SUCCESS && !over)
        MPI_Finalize();
}

/* A process of a job's node has the job's environment, and would wait in MPI_Init for ranks that never come. */
static void leave_job(void)
{
    static const char *const of_jobs[] = {"PMIX_", "PMI_", "OMPI_COMM_WORLD_", "OMPI_MCA_ess", "OMPI_MCA_orte_", "SLURM_", NULL};

    for (char **e = environ; *e;) {
        char name[256];
        size_t n = strcspn(*e, "=");
        bool is_of_job = false;

        for (const char *const *prefix = of_jobs; *prefix; prefix++)
            is_of_job |= strncmp(*e, *prefix, strlen(*prefix)) == 0;
        if (is_of_job && n < sizeof name) {
            memcpy(name, *e, n);
            name[n] = '\0';
            unsetenv(name);
            e = environ; /* it has moved */
        } else {
            e++;
        }
    }
}

static int begin_mpi(struct cv_fail *why)
{
    int is = 0;

    if (MPI_Initialized(&is) == MPI_SUCCESS && is)
        return 0;
    leave_job();
    cv_team_settings();
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    setenv("OMPI_MCA_btl", "self", 0);
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return cv_fail(why, -EIO, NULL, NULL, CV_NO_OFFSET, "MPI, which PnetCDF needs, can't be started: use --to=netcdf");
    return atexit(end_mpi) ? cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory") : 0;
}

/* ---------------------------------------------------------------- making the file */

static bool needs_cdf5(const struct cv_model *m)
{
    for (size_t k = 0; k < m->ndatasets; k++) {
        const struct cv_dataset *d = &m->datasets[k];
        uint64_t elements;

        if (d->type.kind == CV_UINT || (d->type.kind == CV_INT && d->type.size_bytes == 8))
            return true;
        if (!cv_dataset_elements(d, &elements) || elements > CDF2_VAR_BYTES / d->type.size_bytes)
            return true;
        for (unsigned i = 0; i < d->rank; i++)
            if (d->dims[i].size > CDF2_DIM)
                return true;
    }
    return false;
}

/* CDF-2 has no 64-bit integers: floats hold what int can't. */
static int put_ints(const struct pnc *p, int var, nc_type its, const struct cv_attr *a)
{
    bool fits = true;

    for (size_t i = 0; i < a->count; i++)
        fits &= a->ints[i] >= INT32_MIN && a->ints[i] <= INT32_MAX;
    return ncmpi_put_att_longlong(p->file, var, a->name, its ? its : p->large ? NC_INT64 : fits ? NC_INT : NC_DOUBLE, (MPI_Offset)a->count, (const long long *)a->ints);
}

static int put_floats(const struct pnc *p, int var, nc_type its, const struct cv_attr *a)
{
    float *floats;
    int s;

    if (its != NC_FLOAT)
        return ncmpi_put_att_double(p->file, var, a->name, its ? its : NC_DOUBLE, (MPI_Offset)a->count, a->floats);
    floats = cv_nc_floats(a);
    s = floats ? ncmpi_put_att_float(p->file, var, a->name, NC_FLOAT, (MPI_Offset)a->count, floats) : NC_ENOMEM;
    free(floats);
    return s;
}

/* d: whose they are; NULL: the file's. */
static int put_attrs(const struct pnc *p, int var, const struct cv_dataset *d, const struct cv_attrs *all)
{
    int s = NC_NOERR;

    for (size_t i = 0; i < all->count && s == NC_NOERR; i++) {
        const struct cv_attr *a = &all->items[i];
        nc_type its = d && cv_attr_is_value(a, d->type) ? cv_nc_type(d->type) : NC_NAT;

        if (cv_nc_reserved(a->name) && (var != NC_GLOBAL || strcmp(a->name, CV_FILL_NAME) != 0))
            continue; /* the fill value has been written */
        if (a->kind == CV_ATTR_TEXT)
            s = ncmpi_put_att_text(p->file, var, a->name, (MPI_Offset)strlen(a->text), a->text);
        else if (a->kind == CV_ATTR_INTS)
            s = put_ints(p, var, its, a);
        else
            s = put_floats(p, var, its, a);
    }
    return s;
}

/* The classic model has one unlimited dimension, and a size of 0 means that one. */
static int dims_of(struct pnc *p, const struct cv_dataset *d, int *ids)
{
    for (unsigned i = 0; i < d->rank; i++) {
        struct cv_ncdim *dim = cv_ncdims_get(&p->dims, &d->dims[i]);
        bool record = i == 0 && d->dims[i].steps && !p->has_record;
        int s = dim ? NC_NOERR : NC_ENOMEM;

        if (dim && dim->id < 0) {
            if (!record && d->dims[i].size == 0)
                return NC_EDIMSIZE;
            s = ncmpi_def_dim(p->file, dim->name, record ? NC_UNLIMITED : (MPI_Offset)d->dims[i].size, &dim->id);
            p->has_record |= record;
        }
        if (s)
            return s;
        ids[i] = dim->id;
    }
    return NC_NOERR;
}

static int make_var(struct pnc *p, size_t k)
{
    const struct cv_dataset *d = &p->m->datasets[k];
    char name[CV_NAME_MAX + 1];
    uint8_t fill[16];
    int ids[CV_RANK_MAX], s = dims_of(p, d, ids);

    cv_nc_flat_name(d->name, name);
    s = s ? s : ncmpi_def_var(p->file, name, cv_nc_type(d->type), (int)d->rank, ids, &p->vars[k]);
    cv_numbers_fill_value(fill, d);
    if (s == NC_NOERR && cv_nc_has_fill(d))
        s = ncmpi_put_att(p->file, p->vars[k], CV_FILL_NAME, cv_nc_type(d->type), 1, fill);
    return s ? s : put_attrs(p, p->vars[k], d, &d->attrs);
}

static void forget(struct pnc *p)
{
    cv_ncdims_free(&p->dims);
    free(p->vars);
    free(p);
}

static void abandon(struct cv_sink *s)
{
    struct pnc *p = (struct pnc *)s;

    if (p->is_open && !p->parallel) /* ranks together end with the process: closing what can't be written hangs */
        ncmpi_close(p->file);
    forget(p);
}

/* Are its arrays so large, on average, that a page for each is nothing? */
static bool is_large(const struct cv_model *m)
{
    double bytes = 0;

    for (size_t k = 0; k < m->ndatasets; k++) {
        uint64_t elements;

        bytes += cv_dataset_elements(&m->datasets[k], &elements) ? (double)elements * m->datasets[k].type.size_bytes : 0;
    }
    return bytes >= (double)m->ndatasets * CV_LARGE_BYTES;
}

/* What is written is the caller's: PnetCDF is not to swap its bytes where they are. */
static int open_file(struct pnc *p)
{
    MPI_Info info;
    int s;

    if (MPI_Info_create(&info) != MPI_SUCCESS)
        return NC_ENOMEM;
    MPI_Info_set(info, "nc_in_place_swap", "disable");
    if (is_large(p->m))
        MPI_Info_set(info, "nc_var_align_size", "4096"); /* as buffers begin (convert/buffer.h) */
    s = ncmpi_create(p->parallel ? MPI_COMM_WORLD : MPI_COMM_SELF, p->path, NC_CLOBBER | (p->large ? NC_64BIT_DATA : NC_64BIT_OFFSET), info, &p->file);
    MPI_Info_free(&info);
    return s;
}

static int make_all(struct pnc *p, struct cv_fail *why)
{
    int s, old;

    p->large = needs_cdf5(p->m);
    errno = 0;
    s = open_file(p);
    if (s)
        return failed(p, s, NULL, "it can't be made", why);
    p->is_open = true;
    s = ncmpi_set_fill(p->file, NC_NOFILL, &old); /* the engine writes every element */
    for (size_t k = 0; k < p->m->ndatasets && s == NC_NOERR; k++) {
        s = make_var(p, k);
        if (s)
            return failed(p, s, p->m->datasets[k].name, "it can't be made", why);
    }
    if (s == NC_NOERR && !cv_attrs_find(&p->m->attrs, "Conventions"))
        s = ncmpi_put_att_text(p->file, NC_GLOBAL, "Conventions", (MPI_Offset)strlen("CF-1.10"), "CF-1.10");
    s = s ? s : put_attrs(p, NC_GLOBAL, NULL, &p->m->attrs);
    s = s ? s : ncmpi_enddef(p->file);
    return s ? failed(p, s, NULL, "its head can't be written", why) : 0;
}

static int create(const char *path, const struct cv_model *m, const uint64_t (*chunk)[CV_RANK_MAX], const struct cv_sink_options *o, struct cv_sink **out, struct cv_fail *why)
{
    struct pnc *p;
    int rc;

    (void)chunk;
    if (o->codec || o->fletcher32)
        return cv_fail(why, -ENOTSUP, NULL, NULL, CV_NO_OFFSET, "netcdf3 has neither compression nor checksums: use --to=netcdf");
    rc = begin_mpi(why);
    if (rc)
        return rc;
    p = calloc(1, sizeof *p);
    if (!p || !(p->vars = calloc(m->ndatasets + 1, sizeof *p->vars))) {
        free(p);
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
    }
    p->base.ops = &cv_sink_pnetcdf;
    p->m = m;
    p->parallel = o->parallel;
    snprintf(p->path, sizeof p->path, "%s", path);
    rc = make_all(p, why);
    if (rc)
        abandon(&p->base);
    else
        *out = &p->base;
    return rc;
}

/* ---------------------------------------------------------------- writing */

static int write_it(struct cv_sink *sink, size_t k, const uint64_t *lo, const uint64_t *count, const void *buf, struct cv_fail *why)
{
    struct pnc *p = (struct pnc *)sink;
    const struct cv_dataset *d = &p->m->datasets[k];
    MPI_Offset start[CV_RANK_MAX] = {0}, size[CV_RANK_MAX] = {0}, elements = 1;
    int s;

    for (unsigned i = 0; i < d->rank; i++) {
        start[i] = (MPI_Offset)lo[i];
        size[i] = (MPI_Offset)count[i];
        elements *= size[i];
    }
    errno = 0;
    s = ncmpi_put_vara_all(p->file, p->vars[k], start, size, buf, elements, MPI_DATATYPE_NULL);
    return s ? failed(p, s, d->name, "it can't be written", why) : 0;
}

static int close_it(struct cv_sink *sink, struct cv_fail *why)
{
    struct pnc *p = (struct pnc *)sink;
    int s, rc;

    errno = 0;
    s = ncmpi_close(p->file);
    rc = s ? failed(p, s, NULL, "it can't be written to its end", why) : 0;
    forget(p);
    return rc;
}

const struct cv_sink_ops cv_sink_pnetcdf = {
    .name = "netcdf3",
    .summary = "netCDF classic, 64-bit (CDF-2, CDF-5), by PnetCDF",
    .ending = ".nc",
    .create = create,
    .write = write_it,
    .close = close_it,
    .abandon = abandon,
};
