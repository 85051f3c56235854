/* File types, and reading what others have synced while the file stays open. See main.c. */
#include "mpistack.h"

/* The whole file, in pieces; round_of says which round each piece of `unit` bytes is of. */
static void verify(uint64_t size, uint64_t unit, int (*round_of)(uint64_t piece))
{
    MPI_File f = open_mpi(MPI_MODE_RDONLY);
    uint8_t *buf = memory(unit);
    MPI_Offset there;

    ok(MPI_File_get_size(f, &there), "MPI_File_get_size");
    if ((uint64_t)there != size)
        die("%lld bytes, should be %llu", (long long)there, (unsigned long long)size);
    for (uint64_t off = 0; off < size; off += unit) {
        uint64_t n = size - off < unit ? size - off : unit;

        memset(buf, 0x5a, n);
        ok(MPI_File_read_at(f, (MPI_Offset)off, buf, (int)n, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_at");
        compare(buf, off, n, round_of(off / unit), "after opening again");
    }
    free(buf);
    ok(MPI_File_close(&f), "MPI_File_close");
}

static int first_round(uint64_t piece)
{
    (void)piece;
    return 0;
}

/* A rank of the other half: of the other node. */
static int other(void)
{
    return (rank + (ranks + 1) / 2) % ranks;
}

/* What another rank wrote by one call is read by one call, with its file type: independent, ROMIO reads all that lies between, too. */
static void read_view(MPI_Offset at, MPI_Datatype type, const uint8_t *want, int n)
{
    MPI_File f = open_mpi(MPI_MODE_RDONLY);
    uint8_t *got = memory((size_t)n);

    memset(got, 0x5a, (size_t)n);
    ok(MPI_File_set_view(f, at, MPI_BYTE, type, "native", MPI_INFO_NULL), "MPI_File_set_view");
    ok((independent ? MPI_File_read : MPI_File_read_all)(f, got, n, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read");
    for (int i = 0; i < n; i++)
        if (got[i] != want[i])
            die("by the file type of rank %d: WRONG DATA: byte %d of %d: expected 0x%02x, got 0x%02x", other(), i, n, want[i], got[i]);
    free(got);
    ok(MPI_File_close(&f), "MPI_File_close");
}

static const int whole[3] = { 30, 41, 4701 };

/* The part of a rank: its file type, and what is in it; the caller frees both. Returns the number of bytes. */
static int part_of(int r, MPI_Datatype *type, uint8_t **buf)
{
    int part[3] = { whole[0] }, start[3] = { 0 }, grid[2] = { 0, 0 }, me[2];
    uint8_t *p;

    MPI_Dims_create(ranks, 2, grid);
    me[0] = r / grid[1];
    me[1] = r % grid[1];
    for (int d = 0; d < 2; d++) {
        start[d + 1] = whole[d + 1] * me[d] / grid[d];
        part[d + 1] = whole[d + 1] * (me[d] + 1) / grid[d] - start[d + 1];
    }
    ok(MPI_Type_create_subarray(3, whole, part, start, MPI_ORDER_C, MPI_BYTE, type), "MPI_Type_create_subarray");
    ok(MPI_Type_commit(type), "MPI_Type_commit");
    p = *buf = memory((size_t)part[0] * (size_t)part[1] * (size_t)part[2]);
    for (int z = 0; z < part[0]; z++)
        for (int y = 0; y < part[1]; y++)
            for (int x = 0; x < part[2]; x++)
                *p++ = byte_at(((uint64_t)z * (uint64_t)whole[1] + (uint64_t)(start[1] + y)) * (uint64_t)whole[2] + (uint64_t)(start[2] + x), 0);
    return (int)(p - *buf);
}

void nested(void)
{
    MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);
    MPI_Datatype type;
    uint8_t *buf;
    int n = part_of(rank, &type, &buf);

    write_view(f, 0, type, buf, n);
    MPI_Type_free(&type);
    free(buf);
    ok(MPI_File_close(&f), "MPI_File_close");
    verify((uint64_t)whole[0] * (uint64_t)whole[1] * (uint64_t)whole[2], (uint64_t)whole[1] * (uint64_t)whole[2], first_round);
    n = part_of(other(), &type, &buf);
    read_view(0, type, buf, n);
    MPI_Type_free(&type);
    free(buf);
}

enum { RECORDS = 24 };

/* Every second record of each rank is of the second round. */
static int of_holes(uint64_t piece)
{
    return piece / (uint64_t)ranks % 2 == 0;
}

/* Each step-th record of a rank: the file type, and what is in them. */
static uint8_t *records_of(int r, int step, int round, MPI_Datatype *type)
{
    int count = RECORDS / step;
    uint64_t stride = (uint64_t)RECORD * (uint64_t)ranks;
    uint8_t *buf = memory((size_t)count * RECORD);

    for (int i = 0; i < count; i++)
        fill(buf + (uint64_t)i * RECORD, (uint64_t)(i * step) * stride + (uint64_t)r * RECORD, RECORD, round);
    ok(MPI_Type_create_hvector(count, RECORD, (MPI_Aint)stride * step, MPI_BYTE, type), "MPI_Type_create_hvector");
    ok(MPI_Type_commit(type), "MPI_Type_commit");
    return buf;
}

static void put_records(MPI_File f, int step, int round)
{
    MPI_Datatype type;
    uint8_t *buf = records_of(rank, step, round, &type);

    write_view(f, (MPI_Offset)rank * RECORD, type, buf, RECORDS / step * RECORD);
    MPI_Type_free(&type);
    free(buf);
}

static void get_records(int step, int round)
{
    MPI_Datatype type;
    uint8_t *buf = records_of(other(), step, round, &type);

    read_view((MPI_Offset)other() * RECORD, type, buf, RECORDS / step * RECORD);
    MPI_Type_free(&type);
    free(buf);
}

void holes(void)
{
    MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);

    put_records(f, 1, 0);
    ok(MPI_File_close(&f), "MPI_File_close");
    verify((uint64_t)RECORD * RECORDS * (uint64_t)ranks, RECORD, first_round);
    get_records(1, 0);
    f = open_mpi(MPI_MODE_RDWR);
    put_records(f, 2, 1);
    ok(MPI_File_close(&f), "MPI_File_close");
    verify((uint64_t)RECORD * RECORDS * (uint64_t)ranks, RECORD, of_holes);
    get_records(2, 1);
}

void sync_rounds(void)
{
    enum { ROUNDS = 30 };
    MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);
    uint8_t *buf = memory(RECORD);
    int theirs = other();

    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t k = 0; k < RECORD; k++)
            buf[k] = byte_at((uint64_t)rank * RECORD + k, round);
        ok(MPI_File_write_at(f, (MPI_Offset)rank * RECORD, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write_at");
        ok(MPI_File_sync(f), "MPI_File_sync");
        MPI_Barrier(MPI_COMM_WORLD);
        ok(MPI_File_sync(f), "MPI_File_sync");
        memset(buf, 0x5a, RECORD);
        ok(MPI_File_read_at(f, (MPI_Offset)theirs * RECORD, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_at");
        compare(buf, (uint64_t)theirs * RECORD, RECORD, round, "with the file open");
        MPI_Barrier(MPI_COMM_WORLD); /* nobody writes what others still read */
    }
    free(buf);
    ok(MPI_File_close(&f), "MPI_File_close");
}
