/*
 * What a plain HDF5 program makes of a raw dump: each rank's block is read as a whole and written with one H5Dwrite into a dataset of the same chunks that fp-convert chooses. For `make bench`, beside
 * fp-convert; nothing of the store is in it. The file is synced at the end, as fp-convert syncs its own.
 *
 *     convplain OUT.h5 PLANES ROWS COLUMNS CHUNK_PLANES FILE...     blocks of doubles, PLANES each, one after another along the first dimension
 */
#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void read_all(const char *path, char *buf, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    for (size_t have = 0; have < bytes;) {
        ssize_t n = fd < 0 ? -1 : read(fd, buf + have, bytes - have);

        if (n <= 0)
            die(path);
        have += (size_t)n;
    }
    close(fd);
}

int main(int argc, char **argv)
{
    hsize_t block[3], whole[3], chunk[3], at[3] = {0};
    hid_t file, space, memory, plist, set;
    size_t bytes;
    char *buf;
    int fd;

    if (argc < 7) {
        fprintf(stderr, "usage: convplain OUT.h5 PLANES ROWS COLUMNS CHUNK_PLANES FILE...\n");
        return 2;
    }
    for (int i = 0; i < 3; i++)
        chunk[i] = whole[i] = block[i] = strtoull(argv[2 + i], NULL, 10);
    whole[0] *= (hsize_t)(argc - 6);
    chunk[0] = strtoull(argv[5], NULL, 10);
    bytes = block[0] * block[1] * block[2] * sizeof(double);
    buf = malloc(bytes);
    if (!buf)
        die("malloc");
    file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, 3, chunk);
    space = H5Screate_simple(3, whole, NULL);
    memory = H5Screate_simple(3, block, NULL);
    set = H5Dcreate2(file, "t", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    for (int r = 6; r < argc; r++, at[0] += block[0]) {
        read_all(argv[r], buf, bytes);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, block, NULL);
        if (H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, buf) < 0)
            die("H5Dwrite");
    }
    H5Dclose(set);
    H5Sclose(memory);
    H5Sclose(space);
    H5Pclose(plist);
    if (H5Fclose(file) < 0)
        die("H5Fclose");
    fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        die(argv[1]);
    close(fd);
    free(buf);
    return 0;
}
