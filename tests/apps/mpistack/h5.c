/* HDF5: datasets with chunks that ranks share. See main.c. */
#include <hdf5.h>

#include "mpistack.h"

static int64_t h5(int64_t id, const char *what)
{
    if (id < 0)
        die("%s failed", what);
    return id;
}

enum { ROWS = 403, COLUMNS = 997 };

static hid_t open_h5(bool create)
{
    hid_t f, fapl = h5(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate");

    h5(H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL), "H5Pset_fapl_mpio");
    if (collective_metadata) {
        h5(H5Pset_all_coll_metadata_ops(fapl, 1), "H5Pset_all_coll_metadata_ops");
        h5(H5Pset_coll_metadata_write(fapl, 1), "H5Pset_coll_metadata_write");
    }
    f = create ? H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl) : H5Fopen(path, H5F_ACC_RDONLY, fapl);
    h5(f, "H5Fcreate or H5Fopen");
    H5Pclose(fapl);
    return f;
}

static hid_t make_dataset(hid_t f, const char *name)
{
    hsize_t all[2] = { ROWS, COLUMNS }, chunk[2] = { 64, 300 };
    hid_t space = h5(H5Screate_simple(2, all, NULL), "H5Screate_simple"), set;
    hid_t dcpl = h5(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");

    h5(H5Pset_chunk(dcpl, 2, chunk), "H5Pset_chunk");
    h5(H5Pset_shuffle(dcpl), "H5Pset_shuffle");
    h5(H5Pset_deflate(dcpl, 4), "H5Pset_deflate");
    h5(H5Pset_fletcher32(dcpl), "H5Pset_fletcher32");
    set = h5(H5Dcreate2(f, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT), "H5Dcreate2");
    H5Pclose(dcpl);
    H5Sclose(space);
    return set;
}

/* Rows [first, first + count) of the dataset, all ranks in one collective call. */
static void rows(hid_t set, int first, int count, int *buf, bool writing)
{
    hsize_t start[2] = { (hsize_t)first, 0 }, size[2] = { (hsize_t)count, COLUMNS };
    hid_t space = h5(H5Dget_space(set), "H5Dget_space"), mem = h5(H5Screate_simple(2, size, NULL), "H5Screate_simple");
    hid_t dxpl = h5(H5Pcreate(H5P_DATASET_XFER), "H5Pcreate");

    h5(H5Pset_dxpl_mpio(dxpl, H5FD_MPIO_COLLECTIVE), "H5Pset_dxpl_mpio");
    h5(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL), "H5Sselect_hyperslab");
    if (writing)
        h5(H5Dwrite(set, H5T_NATIVE_INT, mem, space, dxpl, buf), "H5Dwrite");
    else
        h5(H5Dread(set, H5T_NATIVE_INT, mem, space, dxpl, buf), "H5Dread");
    H5Pclose(dxpl);
    H5Sclose(mem);
    H5Sclose(space);
}

/* HDF5 fills chunks when the dataset is made, and reads them again to write a part of one: by ranks of different nodes, between which that is news. */
static void publish_h5(hid_t f)
{
    h5(H5Fflush(f, H5F_SCOPE_GLOBAL), "H5Fflush");
    MPI_Barrier(MPI_COMM_WORLD);
    h5(H5Fflush(f, H5F_SCOPE_GLOBAL), "H5Fflush");
}

static int cell(int row, int column, int set)
{
    return (row * COLUMNS + column) * 3 + set * 1000003;
}

void chunked(void)
{
    enum { SETS = 3 };
    int first = ROWS * rank / ranks, count = ROWS * (rank + 1) / ranks - first;
    int *buf = (int *)(void *)memory(sizeof(int) * ROWS * COLUMNS);
    char name[16];
    hid_t f = open_h5(true), set;

    for (int s = 0; s < SETS; s++) {
        snprintf(name, sizeof name, "step%d", s);
        set = make_dataset(f, name);
        if (!no_sync)
            publish_h5(f);
        for (int i = 0; i < count * COLUMNS; i++)
            buf[i] = cell(first + i / COLUMNS, i % COLUMNS, s);
        rows(set, first, count, buf, true);
        h5(H5Dclose(set), "H5Dclose");
    }
    h5(H5Fclose(f), "H5Fclose");
    f = open_h5(false);
    for (int s = 0; s < SETS; s++) {
        snprintf(name, sizeof name, "step%d", s);
        set = h5(H5Dopen2(f, name, H5P_DEFAULT), "H5Dopen2");
        memset(buf, 0x5a, sizeof(int) * ROWS * COLUMNS);
        rows(set, 0, ROWS, buf, false);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            if (buf[i] != cell(i / COLUMNS, i % COLUMNS, s))
                die("%s: WRONG DATA in row %d, column %d: expected %d, got %d", name, i / COLUMNS, i % COLUMNS,
                    cell(i / COLUMNS, i % COLUMNS, s), buf[i]);
        h5(H5Dclose(set), "H5Dclose");
    }
    free(buf);
    h5(H5Fclose(f), "H5Fclose");
}
