/*
 * ckptgen: MPI ranks that write successive checkpoints with a set share of duplicates, as in section VI of the paper.
 *
 * compute, write, compute, write …; bandwidth is what the ranks see: from a barrier before the first open to the last close. What is in a
 * checkpoint follows from the options alone (content.c), so it can be verified by other ranks, other nodes and later runs.
 *
 * Exit codes: 0; 1: a call failed, or data is wrong; 2: command line. A rank that fails ends the job.
 */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckptgen.h"

struct job {
    struct options o;
    struct content content;
    int rank, ranks;
    uint8_t *buf, *expected;       /* transfer_bytes each */
    double write_s, read_s;
    uint64_t new_bytes;            /* of this rank */
};

static void die(const struct job *j, const char *what, const char *path)
{
    fprintf(stderr, "ckptgen: rank %d: %s: %s: %s\n", j->rank, path, what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void name_of(const struct job *j, int rank, int step, char path[4096])
{
    int n = snprintf(path, 4096, "%s/ckpt", j->o.dir);

    if (!j->o.in_place)
        n += snprintf(path + n, 4096 - (size_t)n, "_%04d", step);
    if (!j->o.shared)
        n += snprintf(path + n, 4096 - (size_t)n, ".%04d", rank);
    if (n >= 4095) {
        errno = ENAMETOOLONG;
        die(j, "name", j->o.dir);
    }
}

static uint64_t base_of(const struct job *j, int rank)
{
    return j->o.shared ? (uint64_t)rank * j->o.size_bytes : 0;
}

static void write_all(const struct job *j, int fd, const uint8_t *p, uint64_t len, uint64_t off, const char *path)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, p, len, (off_t)off);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            die(j, "write", path);
        p += n;
        off += (uint64_t)n;
        len -= (uint64_t)n;
    }
}

/* The first to open a shared file empties it; the others come after. */
static int open_for_writing(const struct job *j, const char *path)
{
    bool first = !j->o.shared || j->rank == 0;
    int fd = -1;

    if (first)
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (first && fd < 0)
        die(j, "open", path);
    if (j->o.shared)
        MPI_Barrier(MPI_COMM_WORLD);
    if (!first)
        fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        die(j, "open", path);
    return fd;
}

static void write_step(struct job *j, int step)
{
    uint64_t base = base_of(j, j->rank);
    char path[4096];
    double filling = 0, t0;
    int fd;

    name_of(j, j->rank, step, path);
    MPI_Barrier(MPI_COMM_WORLD);
    t0 = MPI_Wtime();
    fd = open_for_writing(j, path);
    for (uint64_t off = 0; off < j->o.size_bytes; off += j->o.transfer_bytes) {
        uint64_t left = j->o.size_bytes - off, n = left < j->o.transfer_bytes ? left : j->o.transfer_bytes;
        double t1 = MPI_Wtime();

        content_fill(&j->content, j->rank, step, off, j->buf, n);
        filling += MPI_Wtime() - t1; /* the application has its data already: not counted */
        write_all(j, fd, j->buf, n, base + off, path);
    }
    if (j->o.shared)
        MPI_Barrier(MPI_COMM_WORLD); /* as MPI_File_close and MPI_File_sync, which are collective */
    if (j->o.fsync && fsync(fd) != 0)
        die(j, "fsync", path);
    if (close(fd) != 0)
        die(j, "close", path);
    j->write_s = MPI_Wtime() - t0 - filling;
    j->new_bytes = content_new_bytes(&j->content, step);
}

static void compare(struct job *j, int rank, int step, uint64_t off, uint64_t n, const char *path)
{
    content_fill(&j->content, rank, step, off, j->expected, n);
    if (memcmp(j->buf, j->expected, n) == 0)
        return;
    for (uint64_t i = 0; i < n; i++)
        if (j->buf[i] != j->expected[i]) {
            fprintf(stderr, "ckptgen: rank %d: %s: byte %llu is 0x%02x and should be 0x%02x\n", j->rank, path,
                (unsigned long long)(base_of(j, rank) + off + i), j->buf[i], j->expected[i]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

/* Each part is read by the next rank. */
static void verify_step(struct job *j, int step)
{
    int rank = (j->rank + 1) % j->ranks, fd;
    uint64_t base = base_of(j, rank);
    double comparing = 0, t0;
    char path[4096];

    name_of(j, rank, step, path);
    MPI_Barrier(MPI_COMM_WORLD);
    t0 = MPI_Wtime();
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die(j, "open", path);
    for (uint64_t off = 0; off < j->o.size_bytes; off += j->o.transfer_bytes) {
        uint64_t left = j->o.size_bytes - off, n = left < j->o.transfer_bytes ? left : j->o.transfer_bytes, got = 0;
        double t1;

        while (got < n) {
            ssize_t k = pread(fd, j->buf + got, n - got, (off_t)(base + off + got));

            if (k < 0 && errno == EINTR)
                continue;
            if (k == 0)
                errno = ENODATA;
            if (k <= 0)
                die(j, "read", path);
            got += (uint64_t)k;
        }
        t1 = MPI_Wtime();
        compare(j, rank, step, off, n, path);
        comparing += MPI_Wtime() - t1;
    }
    close(fd);
    j->read_s = MPI_Wtime() - t0 - comparing;
}

static void forget_old(const struct job *j, int step)
{
    char path[4096];

    if (j->o.keep == 0 || j->o.in_place || step < j->o.keep || (j->o.shared && j->rank != 0))
        return;
    name_of(j, j->rank, step - j->o.keep, path);
    if (unlink(path) != 0)
        die(j, "unlink", path);
}

/* Spins, as computing does: a sleep would leave the core to others. */
static double compute(const struct job *j)
{
    double t0 = MPI_Wtime(), x = 1;

    while (MPI_Wtime() - t0 < j->o.compute_ms / 1e3)
        for (int i = 0; i < 1000; i++)
            x = x * 1.0000001 + 1e-9;
    return x;
}

static void report(const struct job *j, int step)
{
    double mine[2] = { j->write_s, j->read_s }, slowest[2];
    uint64_t fresh = 0;
    double bytes = (double)j->o.size_bytes * j->ranks;

    MPI_Reduce(mine, slowest, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&j->new_bytes, &fresh, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (j->rank != 0)
        return;
    printf("ckptgen: step=%d bytes=%.0f new_bytes=%llu", step, bytes, (unsigned long long)fresh);
    if (slowest[0] > 0)
        printf(" write_s=%.4f write_MB/s=%.1f", slowest[0], bytes / 1e6 / slowest[0]);
    if (slowest[1] > 0)
        printf(" read_s=%.4f read_MB/s=%.1f", slowest[1], bytes / 1e6 / slowest[1]);
    printf("\n");
    fflush(stdout);
}

static void run(struct job *j)
{
    volatile double sink = 0;

    if (j->o.verify_only) {
        verify_step(j, j->o.steps - 1);
        report(j, j->o.steps - 1);
        return;
    }
    for (int step = 0; step < j->o.steps; step++) {
        sink += compute(j);
        write_step(j, step);
        if (j->o.verify)
            verify_step(j, step);
        report(j, step);
        forget_old(j, step);
    }
    (void)sink;
}

int main(int argc, char **argv)
{
    struct job j = { 0 };

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &j.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &j.ranks);
    if (!options_parse(&j.o, argc, argv, j.rank == 0)) {
        MPI_Finalize();
        return 2;
    }
    content_init(&j.content, &j.o);
    j.buf = malloc(j.o.transfer_bytes);
    j.expected = malloc(j.o.transfer_bytes);
    if (!j.buf || !j.expected)
        die(&j, "memory", "-");
    if (j.rank == 0 && mkdir(j.o.dir, 0755) != 0 && errno != EEXIST)
        die(&j, "mkdir", j.o.dir);
    MPI_Barrier(MPI_COMM_WORLD);
    run(&j);
    free(j.buf);
    free(j.expected);
    MPI_Finalize();
    return 0;
}
