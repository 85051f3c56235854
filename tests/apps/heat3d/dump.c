/*
 * Raw dumps: what a program writes that leaves the format to somebody else.
 *
 *   DIR/dump_0040/rank_3.raw
 *
 * Each rank writes its array as it lies in memory, halo and all, with one call of write: no library, no communication but for the folder, no copy. What the bytes are
 * says a schema beside the program (heat3d --schema prints it), and fp-convert makes one HDF5 file of them. Nothing is read back here: a restart takes a
 * checkpoint (checkpoint.c).
 */
#include "heat3d.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool write_all(int fd, const void *from, size_t bytes)
{
    const char *at = from;
    while (bytes) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static size_t array_bytes(const struct grid *g)
{
    return (size_t)(g->box.len[0] + 2) * (size_t)(g->box.len[1] + 2) * (size_t)(g->box.len[2] + 2) * sizeof(double);
}

/* The folder is there for all when this returns. */
static void make_folder(const struct options *o, const struct grid *g, char *folder, int step)
{
    snprintf(folder, PATH_BYTES, "%s/dump_%04d", o->dir, step);
    if (g->rank == 0 && ((mkdir(o->dir, 0777) && errno != EEXIST) || (mkdir(folder, 0777) && errno != EEXIST)))
        die(g, folder, strerror(errno));
    MPI_Barrier(g->comm);
}

void dump_write(const struct options *o, const struct grid *g, int step, struct io_stats *st)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 32];
    double t0 = MPI_Wtime(), mine, slowest;

    make_folder(o, g, folder, step);
    snprintf(path, sizeof(path), "%s/rank_%d.raw", folder, g->rank);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || !write_all(fd, g->u, array_bytes(g)) || close(fd))
        die(g, path, strerror(errno));
    mine = MPI_Wtime() - t0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, g->comm);
    st->seconds += slowest;
    st->bytes += (int64_t)g->n[0] * g->n[1] * g->n[2] * (int64_t)sizeof(double);
    st->count++;
    if (o->progress && g->rank == 0) {
        printf("heat3d: step %d of %d: dump_%04d, %.1f MB in %.3f s\n", step, o->steps, step, (double)g->n[0] * g->n[1] * g->n[2] * sizeof(double) / 1e6, slowest);
        fflush(stdout);
    }
}

void dump_schema(const struct options *o, const struct grid *g)
{
    printf("# What heat3d --dump-every writes on %d ranks: fp-convert, docs/CONVERT.md\n"
           "fpschema: 1\n"
           "byte_order: %s\n"
           "ranks: {grid: [%d, %d, %d], remainder: spread}\n"
           "rank: \"rank_{rank}.raw\"\n"
           "dims: {x: %d, y: %d, z: %d}\n"
           "datasets:\n"
           "  - name: /temperature\n"
           "    type: float64\n"
           "    dims: [x, y, z]\n"
           "    ghost: 1                # the halo around each rank's cells\n"
           "    units: K\n"
           "    attributes: {long_name: temperature}\n"
           "attributes: {title: heat3d, steps_of_run: %d}\n",
           g->ranks, __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? "little" : "big", g->dims[0], g->dims[1], g->dims[2], g->n[0], g->n[1], g->n[2], o->steps);
}
