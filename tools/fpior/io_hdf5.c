/*
 * HDF5 in parallel: a segment is a dataset of all tasks' blocks, as in IOR. Elements are of 8 bytes, or of one where sizes are no multiples of 8:
 * IOR refuses those, and they are what unaligned records are about.
 */
#include <hdf5.h>
#include <stdlib.h>

#include "fpior.h"

_Static_assert(sizeof(hid_t) == sizeof(int64_t), "struct file keeps them");

static int64_t check(const struct file *f, int64_t id, const char *what)
{
    if (id < 0)
        fatal(f, "%s failed", what);
    return id;
}

static uint64_t element(const struct file *f)
{
    const struct pattern *t = &f->job->pattern;

    return t->block % 8 || t->transfer % 8 ? 1 : 8;
}

/* Bytes of one dataset. */
static uint64_t segment(const struct file *f)
{
    const struct pattern *t = &f->job->pattern;

    return t->own_files ? t->block : t->block * t->tasks;
}

static hid_t access_properties(struct file *f)
{
    const struct params *p = &f->job->p;
    hid_t fapl = check(f, H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate");
    MPI_Info info = hints_info(f);

    check(f, H5Pset_fapl_mpio(fapl, f->comm, info), "H5Pset_fapl_mpio");
    check(f, H5Pset_alignment(fapl, 1, (hsize_t)p->alignment), "H5Pset_alignment");
    if (p->collective_metadata) {
        check(f, H5Pset_all_coll_metadata_ops(fapl, 1), "H5Pset_all_coll_metadata_ops");
        check(f, H5Pset_coll_metadata_write(fapl, 1), "H5Pset_coll_metadata_write");
    }
    hints_show(f, info);
    MPI_Info_free(&info);
    return fapl;
}

static hid_t create_dataset(struct file *f, const char *name)
{
    const struct params *p = &f->job->p;
    hid_t made, dcpl = check(f, H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
    hsize_t chunk = (hsize_t)p->chunk_size;

    if (p->no_fill)
        check(f, H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
    if (chunk)
        check(f, H5Pset_chunk(dcpl, 1, &chunk), "H5Pset_chunk");
    made = check(f, H5Dcreate2(f->id, name, f->type, f->space, H5P_DEFAULT, dcpl, H5P_DEFAULT), "H5Dcreate2");
    H5Pclose(dcpl);
    return made;
}

static void open_file(struct file *f)
{
    const struct pattern *t = &f->job->pattern;
    bool fresh = f->writing && !f->job->p.use_existing;
    hsize_t count = t->transfer / element(f), all = segment(f) / element(f);
    hid_t fapl = access_properties(f);
    char name[64];

    f->id = fresh ? H5Fcreate(f->path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl) : H5Fopen(f->path, f->writing ? H5F_ACC_RDWR : H5F_ACC_RDONLY, fapl);
    check(f, f->id, fresh ? "H5Fcreate" : "H5Fopen");
    H5Pclose(fapl);
    f->type = element(f) == 8 ? H5T_NATIVE_LLONG : H5T_NATIVE_UCHAR;
    f->memory = check(f, H5Screate_simple(1, &count, NULL), "H5Screate_simple");
    f->space = check(f, H5Screate_simple(1, &all, NULL), "H5Screate_simple");
    f->access = check(f, H5Pcreate(H5P_DATASET_XFER), "H5Pcreate");
    check(f, H5Pset_dxpl_mpio(f->access, f->job->p.collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT), "H5Pset_dxpl_mpio");
    f->datasets = calloc(t->segments, sizeof f->datasets[0]);
    if (!f->datasets)
        fatal(f, "no memory");
    for (uint64_t s = 0; s < t->segments; s++) {
        snprintf(name, sizeof name, "Dataset-0000.%04llu", (unsigned long long)s);
        f->datasets[s] = fresh ? create_dataset(f, name) : check(f, H5Dopen2(f->id, name, H5P_DEFAULT), "H5Dopen2");
    }
}

static void xfer(struct file *f, void *buf, uint64_t off)
{
    uint64_t size = element(f);
    hsize_t start = off % segment(f) / size, count = f->job->pattern.transfer / size;
    hid_t set = f->datasets[off / segment(f)];

    check(f, H5Sselect_hyperslab(f->space, H5S_SELECT_SET, &start, NULL, &count, NULL), "H5Sselect_hyperslab");
    if (f->writing)
        check(f, H5Dwrite(set, f->type, f->memory, f->space, f->access, buf), "H5Dwrite");
    else
        check(f, H5Dread(set, f->type, f->memory, f->space, f->access, buf), "H5Dread");
}

static void sync_file(struct file *f)
{
    check(f, H5Fflush(f->id, H5F_SCOPE_GLOBAL), "H5Fflush");
}

static void close_file(struct file *f)
{
    for (uint64_t s = 0; s < f->job->pattern.segments; s++)
        check(f, H5Dclose(f->datasets[s]), "H5Dclose");
    free(f->datasets);
    H5Sclose(f->memory);
    H5Sclose(f->space);
    H5Pclose(f->access);
    check(f, H5Fclose(f->id), "H5Fclose");
}

static const char *version(void)
{
    static char text[48];
    unsigned major = 0, minor = 0, release = 0;

    H5get_libversion(&major, &minor, &release);
    snprintf(text, sizeof text, "-%u.%u.%u (Parallel)", major, minor, release);
    return text;
}

const struct api io_hdf5 = { "HDF5", open_file, xfer, sync_file, close_file, version };
