/* netCDF-4 in parallel (over HDF5): the variable of io_ncmpi.c. IOR has no such API; applications do. */
#include <netcdf.h>
#include <netcdf_par.h>

#include "fpior.h"

static void check(const struct file *f, int rc, const char *what)
{
    if (rc != NC_NOERR)
        fatal(f, "%s: %s", what, nc_strerror(rc));
}

static void define(struct file *f)
{
    const struct pattern *t = &f->job->pattern;
    const char *const names[3] = { "block", "transfer", "byte" };
    size_t sizes[3] = { pattern_file_bytes(t) / t->block, t->per_block, t->transfer };
    int dims[3];

    for (int i = 0; i < 3; i++)
        check(f, nc_def_dim(f->nc, names[i], sizes[i], &dims[i]), "nc_def_dim");
    check(f, nc_def_var(f->nc, "data_var", NC_BYTE, 3, dims, &f->var), "nc_def_var");
    check(f, nc_def_var_fill(f->nc, f->var, NC_NOFILL, NULL), "nc_def_var_fill");
    check(f, nc_enddef(f->nc), "nc_enddef");
}

static void open_file(struct file *f)
{
    bool fresh = f->writing && !f->job->p.use_existing;
    MPI_Info info = hints_info(f);

    if (fresh)
        check(f, nc_create_par(f->path, NC_NETCDF4 | NC_CLOBBER, f->comm, info, &f->nc), "nc_create_par");
    else
        check(f, nc_open_par(f->path, f->writing ? NC_WRITE : NC_NOWRITE, f->comm, info, &f->nc), "nc_open_par");
    hints_show(f, info);
    MPI_Info_free(&info);
    if (fresh)
        define(f);
    else
        check(f, nc_inq_varid(f->nc, "data_var", &f->var), "nc_inq_varid");
    check(f, nc_var_par_access(f->nc, f->var, f->job->p.collective ? NC_COLLECTIVE : NC_INDEPENDENT), "nc_var_par_access");
}

static void xfer(struct file *f, void *buf, uint64_t off)
{
    const struct pattern *t = &f->job->pattern;
    size_t start[3] = { off / t->block, off % t->block / t->transfer, 0 }, count[3] = { 1, 1, t->transfer };

    if (f->writing)
        check(f, nc_put_vara_schar(f->nc, f->var, start, count, buf), "nc_put_vara_schar");
    else
        check(f, nc_get_vara_schar(f->nc, f->var, start, count, buf), "nc_get_vara_schar");
}

static void sync_file(struct file *f)
{
    check(f, nc_sync(f->nc), "nc_sync");
}

static void close_file(struct file *f)
{
    check(f, nc_close(f->nc), "nc_close");
}

static const char *version(void)
{
    return nc_inq_libvers();
}

const struct api io_netcdf4 = { "NETCDF4", open_file, xfer, sync_file, close_file, version };
