/* Atomic mode and shared file pointers, as they are with close-to-open: read after the file was opened again. See main.c. */
#include "mpistack.h"

void atomic(void)
{
    enum { ROUNDS = 20 };
    MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);
    uint8_t *buf = memory(RECORD);
    int low, high;

    ok(MPI_File_set_atomicity(f, 1), "MPI_File_set_atomicity");
    for (int i = 0; i < ROUNDS; i++) {
        int mine = i * ranks + rank, seen;

        for (uint64_t k = 0; k < RECORD; k++)
            buf[k] = byte_at(k, mine);
        ok(MPI_File_write_at(f, 0, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write_at");
        MPI_Barrier(MPI_COMM_WORLD);
        memset(buf, 0x5a, RECORD);
        ok(MPI_File_read_at(f, 0, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_at");
        seen = round_of_bytes(buf, 0, RECORD, i * ranks, ranks);
        if (seen < 0)
            die("atomic: WRONG DATA in round %d: not what one rank has written", i);
        MPI_Allreduce(&seen, &low, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        MPI_Allreduce(&seen, &high, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (low != high)
            die("atomic: WRONG DATA in round %d: ranks see different writers", i);
        if (rank == i % ranks) { /* and at once: readers are not to see a part of it */
            for (uint64_t k = 0; k < RECORD; k++)
                buf[k] = byte_at(k, seen + 1000);
            ok(MPI_File_write_at(f, 0, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write_at");
        } else {
            ok(MPI_File_read_at(f, 0, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_at");
            if (round_of_bytes(buf, 0, RECORD, seen, 1) < 0 && round_of_bytes(buf, 0, RECORD, seen + 1000, 1) < 0)
                die("atomic: WRONG DATA in round %d: a part of a write", i);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(buf);
    ok(MPI_File_close(&f), "MPI_File_close");
}

enum { SHARED_ROUNDS = 12 };

/* Of the rank's n-th record: these say who wrote it, the rest is as byte_at says for that. */
static void fill_shared(uint8_t *buf, int writer, int n)
{
    buf[0] = (uint8_t)writer;
    buf[1] = (uint8_t)n;
    for (uint64_t k = 2; k < RECORD; k++)
        buf[k] = byte_at(k, n * ranks + writer);
}

static void check_shared(const uint8_t *buf, uint64_t at, int (*seen)[SHARED_ROUNDS])
{
    int writer = buf[0], n = buf[1];

    if (writer >= ranks || n >= SHARED_ROUNDS)
        die("record %llu: WRONG DATA: of rank %d, number %d", (unsigned long long)at, writer, n);
    for (uint64_t k = 2; k < RECORD; k++)
        if (buf[k] != byte_at(k, n * ranks + writer))
            die("record %llu: WRONG DATA at %llu", (unsigned long long)at, (unsigned long long)k);
    seen[writer][n]++;
}

/* Each rank reads some, whichever they are; together all of them. */
static void read_shared(uint8_t *buf, int (*seen)[SHARED_ROUNDS])
{
    MPI_File f = open_mpi(MPI_MODE_RDONLY);

    for (int i = 0; i < SHARED_ROUNDS; i++) {
        memset(buf, 0x5a, RECORD);
        ok(MPI_File_read_shared(f, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_shared");
        check_shared(buf, (uint64_t)i, seen);
    }
    MPI_Allreduce(MPI_IN_PLACE, seen, ranks * SHARED_ROUNDS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < ranks * SHARED_ROUNDS; i++)
        if (seen[0][i] != 1)
            die("read_shared: record %d of rank %d was read %d times", i % SHARED_ROUNDS, i / SHARED_ROUNDS, seen[0][i]);
    ok(MPI_File_close(&f), "MPI_File_close");
}

void shared(void)
{
    uint8_t *buf = memory(RECORD);
    int(*seen)[SHARED_ROUNDS] = calloc((size_t)ranks, sizeof *seen);

    if (!seen)
        die("no memory");
    for (int ordered = 0; ordered < 2; ordered++) {
        MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);

        for (int i = 0; i < SHARED_ROUNDS; i++) {
            fill_shared(buf, rank, i);
            ok((ordered ? MPI_File_write_ordered : MPI_File_write_shared)(f, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write_shared");
        }
        ok(MPI_File_close(&f), "MPI_File_close");
        f = open_mpi(MPI_MODE_RDONLY);
        memset(seen, 0, (size_t)ranks * sizeof *seen);
        for (int i = 0; i < SHARED_ROUNDS * ranks; i++) {
            memset(buf, 0x5a, RECORD);
            ok(MPI_File_read_at(f, (MPI_Offset)i * RECORD, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_at");
            check_shared(buf, (uint64_t)i, seen);
            if (ordered && (buf[0] != i % ranks || buf[1] != i / ranks))
                die("record %d: WRONG DATA: of rank %d, number %d", i, buf[0], buf[1]);
        }
        for (int i = 0; i < ranks * SHARED_ROUNDS; i++)
            if (seen[0][i] != 1)
                die("record %d of rank %d is there %d times", i % SHARED_ROUNDS, i / SHARED_ROUNDS, seen[0][i]);
        ok(MPI_File_close(&f), "MPI_File_close");
        memset(seen, 0, (size_t)ranks * sizeof *seen);
        read_shared(buf, seen);
    }
    free(seen);
    free(buf);
}
