/*
 * mpistack CASE FILE [WORD...]: what parallel applications do beyond fpior: file types in many dimensions, one call of many pieces, reading what
 * others have just written without opening again, compressed datasets. An MPI program; nothing of fpstore is linked into it.
 *
 *     nested    a 3-D array of bytes, split among the ranks in two dimensions, written and read by one call with a subarray as file view
 *     holes     records of all ranks in turn, by one call; then every second of them again: what lies between must stay. Read by one call, too
 *     sync      rounds of: write, MPI_File_sync, barrier, MPI_File_sync, read what a rank of the other half wrote; the file stays open
 *     atomic    MPI_File_set_atomicity: all write the same bytes at once, and one of them is seen whole; what one has written, all see, without a sync
 *     shared    MPI_File_write_shared and _ordered, MPI_File_read_shared: each record once, whole, and in the order of ranks where that is asked for
 *     chunked   an HDF5 dataset with chunks that ranks share: shuffled, compressed, summed; collective calls
 *
 * For strict files, in which nobody opens anew, syncs or locks to see what others have written (strict.c):
 *     seen      what one rank has written, and the size, all others see
 *     overlap   ranges of all ranks that overlap, written at once
 *     pointer   as shared, but read while the file stays open
 *     sieve     pieces here and there, each round by other ranks: what lies between is what others wrote in the rounds before
 *
 * "independent" behind the file takes calls that are not collective (nested, holes, sieve). "collmeta": HDF5's metadata collectively. "nosync": chunked
 * flushes nothing after a dataset was made. "atomic", "strided": overlap in MPI's atomic mode, of one piece or many.
 * Every rank verifies every byte of the file. Exit code 0: all was right.
 */
#include "mpistack.h"

#include <stdarg.h>

int rank, ranks;
const char *path;
bool independent, collective_metadata, no_sync, atomic_mode, strided;

_Noreturn void die(const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "mpistack: rank %d: %s: ", rank, path);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

void ok(int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int len;

    if (rc == MPI_SUCCESS)
        return;
    MPI_Error_string(rc, text, &len);
    die("%s: %s", what, text);
}

uint8_t byte_at(uint64_t off, int round)
{
    uint64_t x = (off / 7 + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)round * 0xbf58476d1ce4e5b9ull;

    return (uint8_t)((x >> 56) + off);
}

uint8_t *memory(size_t n)
{
    uint8_t *p = malloc(n);

    if (!p)
        die("no memory");
    return p;
}

void fill(uint8_t *buf, uint64_t off, uint64_t n, int round)
{
    for (uint64_t i = 0; i < n; i++)
        buf[i] = byte_at(off + i, round);
}

void compare(const uint8_t *got, uint64_t off, uint64_t n, int round, const char *what)
{
    for (uint64_t i = 0; i < n; i++)
        if (got[i] != byte_at(off + i, round))
            die("%s: WRONG DATA at %llu: expected 0x%02x, got 0x%02x", what, (unsigned long long)(off + i), byte_at(off + i, round), got[i]);
}

int round_of_bytes(const uint8_t *buf, uint64_t off, uint64_t n, int first, int count)
{
    for (int round = first; round < first + count; round++) {
        uint64_t i = 0;

        while (i < n && buf[i] == byte_at(off + i, round))
            i++;
        if (i == n)
            return round;
    }
    return -1;
}

MPI_File open_mpi(int mode)
{
    MPI_Info info;
    MPI_File f;

    MPI_Info_create(&info);
    /* Data sieving also where ROMIO would not take it by itself: it reads, changes and writes back what lies between. */
    MPI_Info_set(info, "romio_ds_write", "enable");
    MPI_Info_set(info, "romio_ds_read", "enable");
    ok(MPI_File_open(MPI_COMM_WORLD, path, mode, info, &f), "MPI_File_open");
    MPI_Info_free(&info);
    return f;
}

void write_at(MPI_File f, uint64_t off, const uint8_t *buf, uint64_t n)
{
    ok(MPI_File_write_at(f, (MPI_Offset)off, buf, (int)n, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write_at");
}

void read_at(MPI_File f, uint64_t off, uint8_t *buf, uint64_t n)
{
    memset(buf, 0x5a, n);
    ok(MPI_File_read_at(f, (MPI_Offset)off, buf, (int)n, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_at");
}

void write_view(MPI_File f, MPI_Offset at, MPI_Datatype type, const uint8_t *buf, int n)
{
    ok(MPI_File_set_view(f, at, MPI_BYTE, type, "native", MPI_INFO_NULL), "MPI_File_set_view");
    ok((independent ? MPI_File_write : MPI_File_write_all)(f, buf, n, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write");
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = { { "nested", nested }, { "holes", holes }, { "sync", sync_rounds }, { "atomic", atomic }, { "shared", shared },
        { "chunked", chunked }, { "seen", seen }, { "overlap", overlap }, { "pointer", pointer }, { "sieve", sieve } };

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    path = argc > 2 ? argv[2] : "-";
    for (int i = 3; i < argc; i++) {
        independent |= strcmp(argv[i], "independent") == 0;
        collective_metadata |= strcmp(argv[i], "collmeta") == 0;
        no_sync |= strcmp(argv[i], "nosync") == 0;
        atomic_mode |= strcmp(argv[i], "atomic") == 0;
        strided |= strcmp(argv[i], "strided") == 0;
    }
    for (size_t i = 0; argc > 2 && i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0)
                printf("mpistack: %s: all right\n", argv[1]);
            MPI_Finalize();
            return 0;
        }
    if (rank == 0)
        fprintf(stderr, "usage: mpistack CASE FILE [WORD...]: CASE is one of nested holes sync atomic shared chunked seen overlap pointer sieve\n");
    MPI_Finalize();
    return 2;
}
