/* PnetCDF: one variable of bytes, blocks x transfers x bytes of a transfer, so that no dimension is too large. CDF-5: the file may be. */
#include <pnetcdf.h>

#include "fpior.h"

static void check(const struct file *f, int rc, const char *what)
{
    if (rc != NC_NOERR)
        fatal(f, "%s: %s", what, ncmpi_strerror(rc));
}

static void define(struct file *f)
{
    const struct pattern *t = &f->job->pattern;
    const char *const names[3] = { "segments_times_np", "number_of_transfers", "transfer_size" };
    MPI_Offset sizes[3] = { (MPI_Offset)(pattern_file_bytes(t) / t->block), (MPI_Offset)t->per_block, (MPI_Offset)t->transfer };
    int dims[3];

    for (int i = 0; i < 3; i++)
        check(f, ncmpi_def_dim(f->nc, names[i], sizes[i], &dims[i]), "ncmpi_def_dim");
    check(f, ncmpi_def_var(f->nc, "data_var", NC_BYTE, 3, dims, &f->var), "ncmpi_def_var");
    check(f, ncmpi_enddef(f->nc), "ncmpi_enddef");
}

static void open_file(struct file *f)
{
    bool fresh = f->writing && !f->job->p.use_existing;
    MPI_Info info = hints_info(f), used;

    if (fresh)
        check(f, ncmpi_create(f->comm, f->path, NC_CLOBBER | NC_64BIT_DATA, info, &f->nc), "ncmpi_create");
    else
        check(f, ncmpi_open(f->comm, f->path, f->writing ? NC_WRITE : NC_NOWRITE, info, &f->nc), "ncmpi_open");
    MPI_Info_free(&info);
    if (f->job->p.show_hints && ncmpi_inq_file_info(f->nc, &used) == NC_NOERR) {
        hints_show(f, used);
        MPI_Info_free(&used);
    }
    if (fresh)
        define(f);
    else
        check(f, ncmpi_inq_varid(f->nc, "data_var", &f->var), "ncmpi_inq_varid");
    if (!f->job->p.collective)
        check(f, ncmpi_begin_indep_data(f->nc), "ncmpi_begin_indep_data");
}

static void xfer(struct file *f, void *buf, uint64_t off)
{
    const struct pattern *t = &f->job->pattern;
    MPI_Offset start[3] = { (MPI_Offset)(off / t->block), (MPI_Offset)(off % t->block / t->transfer), 0 };
    MPI_Offset count[3] = { 1, 1, (MPI_Offset)t->transfer };
    bool all = f->job->p.collective;

    if (f->writing)
        check(f, (all ? ncmpi_put_vara_schar_all : ncmpi_put_vara_schar)(f->nc, f->var, start, count, buf), "ncmpi_put_vara_schar");
    else
        check(f, (all ? ncmpi_get_vara_schar_all : ncmpi_get_vara_schar)(f->nc, f->var, start, count, buf), "ncmpi_get_vara_schar");
}

static void sync_file(struct file *f)
{
    check(f, ncmpi_sync(f->nc), "ncmpi_sync");
}

static void close_file(struct file *f)
{
    if (!f->job->p.collective)
        check(f, ncmpi_end_indep_data(f->nc), "ncmpi_end_indep_data");
    check(f, ncmpi_close(f->nc), "ncmpi_close");
}

static const char *version(void)
{
    return ncmpi_inq_libvers();
}

const struct api io_ncmpi = { "NCMPI", open_file, xfer, sync_file, close_file, version };
