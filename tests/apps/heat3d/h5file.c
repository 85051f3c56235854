/*
 * One HDF5 file of a checkpoint: dataset /u, attributes on the root group.
 *
 *   /u            double [n0][n1][n2]: the grid, or the box of one rank (file per process)
 *   step, time    int64, double
 *   grid, ranks   int[3]: cells of the whole grid; ranks of the writer in each dimension
 *   rank          int: whose box this is; -1 = the whole grid
 *   rank_sums     uint64[]: grid_sum() of every writer, or of this one
 *   meta_sum      uint64: of all the attributes above
 *
 * A shared file is written by all ranks with collective hyperslab writes through MPI-IO, data aligned to 1
 * MiB. It is read for a restart by each rank on its own with the serial driver: a collective read that fails
 * in one rank leaves the others waiting for ever, and a restart has to survive broken files. The collective
 * read is there for --verify.
 */
#include "heat3d.h"

#include <hdf5.h>

#include <stdio.h>
#include <string.h>

#define ALIGN_BYTES (1u << 20)

/* HDF5 prints its error stack unless told not to; broken files are no surprise to the readers below. */
struct quiet {
    H5E_auto2_t func;
    void *data;
};

static struct quiet quiet_begin(void)
{
    struct quiet q;
    H5Eget_auto2(H5E_DEFAULT, &q.func, &q.data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return q;
}

static void quiet_end(struct quiet q)
{
    H5Eset_auto2(H5E_DEFAULT, q.func, q.data);
}

/* --- attributes --- */

static uint64_t meta_sum(const struct chk_meta *m)
{
    uint64_t time_bits, sum = 0xcbf29ce484222325u;
    memcpy(&time_bits, &m->time, sizeof(time_bits));
    uint64_t words[10] = {(uint64_t)m->step, time_bits, (uint64_t)m->rank, (uint64_t)m->sums_count};
    for (int d = 0; d < 3; d++) {
        words[4 + d] = (uint64_t)m->n[d];
        words[7 + d] = (uint64_t)m->dims[d];
    }
    for (int i = 0; i < 10 + m->sums_count; i++) {
        sum = (sum ^ (i < 10 ? words[i] : m->sums[i - 10])) * 0x100000001b3u;
        sum ^= sum >> 31;
    }
    return sum;
}

static int put_attr(hid_t file, const char *name, hid_t type, int count, const void *data)
{
    hsize_t dim = (hsize_t)count;
    hid_t space = count > 1 ? H5Screate_simple(1, &dim, NULL) : H5Screate(H5S_SCALAR);
    hid_t attr = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    int rc = attr < 0 || H5Awrite(attr, type, data) < 0 ? -1 : 0;
    if (attr >= 0 && H5Aclose(attr) < 0)
        rc = -1;
    H5Sclose(space);
    return rc;
}

/* Fails unless the attribute has at most `max` elements; their number is in *count. */
static int get_attr(hid_t file, const char *name, hid_t type, int max, int *count, void *data)
{
    hid_t space = -1;
    hid_t attr = H5Aopen(file, name, H5P_DEFAULT);
    int rc = -1;
    if (attr < 0 || (space = H5Aget_space(attr)) < 0)
        goto out;
    hssize_t have = H5Sget_simple_extent_npoints(space);
    if (have < 1 || have > max || H5Aread(attr, type, data) < 0)
        goto out;
    *count = (int)have;
    rc = 0;
out:
    if (space >= 0)
        H5Sclose(space);
    if (attr >= 0)
        H5Aclose(attr);
    return rc;
}

static int put_meta(hid_t file, const struct chk_meta *m)
{
    uint64_t sum = meta_sum(m);
    return put_attr(file, "step", H5T_NATIVE_INT64, 1, &m->step) ||
                   put_attr(file, "time", H5T_NATIVE_DOUBLE, 1, &m->time) ||
                   put_attr(file, "grid", H5T_NATIVE_INT, 3, m->n) ||
                   put_attr(file, "ranks", H5T_NATIVE_INT, 3, m->dims) ||
                   put_attr(file, "rank", H5T_NATIVE_INT, 1, &m->rank) ||
                   put_attr(file, "rank_sums", H5T_NATIVE_UINT64, m->sums_count, m->sums) ||
                   put_attr(file, "meta_sum", H5T_NATIVE_UINT64, 1, &sum)
               ? -1
               : 0;
}

int h5_read_meta(const char *path, struct chk_meta *m)
{
    struct quiet q = quiet_begin();
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    uint64_t sum = 0;
    int count, rc = -1;
    if (file < 0)
        goto out;
    if (get_attr(file, "step", H5T_NATIVE_INT64, 1, &count, &m->step) ||
        get_attr(file, "time", H5T_NATIVE_DOUBLE, 1, &count, &m->time) ||
        get_attr(file, "grid", H5T_NATIVE_INT, 3, &count, m->n) ||
        get_attr(file, "ranks", H5T_NATIVE_INT, 3, &count, m->dims) ||
        get_attr(file, "rank", H5T_NATIVE_INT, 1, &count, &m->rank) ||
        get_attr(file, "rank_sums", H5T_NATIVE_UINT64, RANKS_MAX, &m->sums_count, m->sums) ||
        get_attr(file, "meta_sum", H5T_NATIVE_UINT64, 1, &count, &sum))
        goto out;
    rc = sum == meta_sum(m) ? 0 : -1;
out:
    if (file >= 0)
        H5Fclose(file);
    quiet_end(q);
    return rc;
}

/* --- the data --- */

static hid_t select_box(const int extent[3], const int lo[3], const int len[3])
{
    hsize_t size[3], start[3], count[3];
    for (int d = 0; d < 3; d++) {
        size[d] = (hsize_t)extent[d];
        start[d] = (hsize_t)lo[d];
        count[d] = (hsize_t)len[d];
    }
    hid_t space = H5Screate_simple(3, size, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    return space;
}

/* `part` (global cells) of g->u, behind its halo. */
static hid_t select_memory(const struct grid *g, const struct box *part)
{
    int wide[3], lo[3];
    for (int d = 0; d < 3; d++) {
        wide[d] = g->box.len[d] + 2;
        lo[d] = part->lo[d] - g->box.lo[d] + 1;
    }
    return select_box(wide, lo, part->len);
}

/* `part` of a file that holds `held`. */
static hid_t select_file(const struct box *held, const struct box *part)
{
    int lo[3];
    for (int d = 0; d < 3; d++)
        lo[d] = part->lo[d] - held->lo[d];
    return select_box(held->len, lo, part->len);
}

/* Creates /u of the size of `held` and writes this rank's box. */
static int write_u(hid_t file, const struct grid *g, const struct box *held, hid_t transfer)
{
    hid_t mem = select_memory(g, &g->box);
    hid_t sel = select_file(held, &g->box);
    hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    int rc = -1;
    H5Pset_alloc_time(create, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(create, H5D_FILL_TIME_NEVER);
    hid_t u = H5Dcreate2(file, "u", H5T_IEEE_F64LE, sel, H5P_DEFAULT, create, H5P_DEFAULT);
    if (u >= 0 && H5Dwrite(u, H5T_NATIVE_DOUBLE, mem, sel, transfer, g->u) >= 0)
        rc = 0;
    if (u >= 0 && H5Dclose(u) < 0)
        rc = -1;
    H5Pclose(create);
    H5Sclose(sel);
    H5Sclose(mem);
    return rc;
}

static void write_file(const char *path, const struct grid *g, const struct box *held,
                       const struct chk_meta *m, const struct options *o, hid_t access, hid_t transfer,
                       double *sync_s)
{
    H5Pset_alignment(access, ALIGN_BYTES / 4, ALIGN_BYTES);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    if (file < 0)
        die(g, path, "cannot be created");
    if (put_meta(file, m) || write_u(file, g, held, transfer))
        die(g, path, "cannot be written");
    kill_point(o, g, (int)m->step, KILL_CHECKPOINT);
    double t0 = MPI_Wtime();
    if (H5Fflush(file, H5F_SCOPE_GLOBAL) < 0)
        die(g, path, "cannot be flushed");
    *sync_s += MPI_Wtime() - t0;
    if (H5Fclose(file) < 0)
        die(g, path, "cannot be closed");
}

static struct box whole(const struct grid *g)
{
    struct box b = {.lo = {0, 0, 0}, .len = {g->n[0], g->n[1], g->n[2]}};
    return b;
}

void h5_write_shared(const char *path, const struct grid *g, const struct chk_meta *m,
                     const struct options *o, double *sync_s)
{
    struct box all = whole(g);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_fapl_mpio(access, g->comm, MPI_INFO_NULL);
    H5Pset_coll_metadata_write(access, true);
    H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
    write_file(path, g, &all, m, o, access, transfer, sync_s);
    H5Pclose(transfer);
    H5Pclose(access);
}

void h5_write_own(const char *path, const struct grid *g, const struct chk_meta *m, const struct options *o,
                  double *sync_s)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    write_file(path, g, &g->box, m, o, access, H5P_DEFAULT, sync_s);
    H5Pclose(access);
}

static int read_file(const char *path, const struct box *held, const struct box *want, struct grid *g,
                     hid_t access, hid_t transfer)
{
    hid_t u = -1, space = -1, mem = select_memory(g, want), sel = select_file(held, want);
    int rc = -1;
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (file < 0 || (u = H5Dopen2(file, "u", H5P_DEFAULT)) < 0 || (space = H5Dget_space(u)) < 0)
        goto out;
    if (H5Sextent_equal(space, sel) <= 0 || H5Dread(u, H5T_NATIVE_DOUBLE, mem, sel, transfer, g->u) < 0)
        goto out;
    rc = 0;
out:
    if (space >= 0)
        H5Sclose(space);
    if (u >= 0)
        H5Dclose(u);
    if (file >= 0)
        H5Fclose(file);
    H5Sclose(sel);
    H5Sclose(mem);
    return rc;
}

int h5_read_box(const char *path, const struct box *held, const struct box *want, struct grid *g)
{
    struct quiet q = quiet_begin();
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* Rows of a box are short and far apart: read 1 MiB at once and take the rows out of it. */
    H5Pset_sieve_buf_size(access, ALIGN_BYTES);
    int rc = read_file(path, held, want, g, access, H5P_DEFAULT);
    H5Pclose(access);
    quiet_end(q);
    return rc;
}

int h5_read_shared(const char *path, struct grid *g)
{
    struct box all = whole(g);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_fapl_mpio(access, g->comm, MPI_INFO_NULL);
    H5Pset_all_coll_metadata_ops(access, true);
    H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
    int rc = read_file(path, &all, &g->box, g, access, transfer);
    H5Pclose(transfer);
    H5Pclose(access);
    return rc;
}
