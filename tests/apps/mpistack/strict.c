/*
 * What holds in strict files: single-copy consistency. Each case opens the file once, and nobody calls MPI_File_sync or opens again: a barrier is all that
 * stands between a write and the reads that have to see it. See main.c.
 */
#include "mpistack.h"

/* Each rank has a record of its own, odd rounds in other places. All ranks read all of them, and the size, which grows. */
void seen(void)
{
    enum { ROUNDS = 8 };
    MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);
    uint64_t all = (uint64_t)ranks * RECORD;
    uint8_t *buf = memory(all);
    MPI_Offset size;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t base = (uint64_t)(round / 2) * all / 3;

        fill(buf, base + (uint64_t)rank * RECORD, RECORD, round);
        write_at(f, base + (uint64_t)rank * RECORD, buf, RECORD);
        MPI_Barrier(MPI_COMM_WORLD);
        ok(MPI_File_get_size(f, &size), "MPI_File_get_size");
        if ((uint64_t)size != base + all)
            die("seen: WRONG DATA in round %d: %lld bytes, should be %llu", round, (long long)size, (unsigned long long)(base + all));
        read_at(f, base, buf, all);
        compare(buf, base, all, round, "seen");
        MPI_Barrier(MPI_COMM_WORLD); /* nobody writes what others still read */
    }
    free(buf);
    ok(MPI_File_close(&f), "MPI_File_close");
}

/* -------------------------------------------------------------- overlapping ranges */

enum { STEP = RECORD / 3, REACH = 3, MOST_STEPS = 64 };

/* Which ranks have this step in their record. */
static void covered_by(int step, int *low, int *high)
{
    *low = step < REACH ? 0 : step - REACH + 1;
    *high = step < ranks ? step : ranks - 1;
}

/* Who was last at each step; of two ranks the same one is over the other everywhere, and all ranks see the same. */
static void check_order(const uint8_t *buf, int round)
{
    int last[MOST_STEPS], low[MOST_STEPS], high[MOST_STEPS], steps = ranks + REACH - 1;
    bool over[MOST_STEPS][MOST_STEPS] = { 0 };

    for (int s = 0; s < steps; s++) {
        int from, to;

        covered_by(s, &from, &to);
        last[s] = round_of_bytes(buf + s * STEP, (uint64_t)s * STEP, STEP, round * ranks + from, to - from + 1);
        if (last[s] < 0)
            die("overlap: WRONG DATA in round %d, step %d: not what one rank has written", round, s);
        for (int r = from; r <= to; r++)
            over[last[s] % ranks][r] = true;
    }
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < a; b++)
            if (over[a][b] && over[b][a])
                die("overlap: WRONG DATA in round %d: ranks %d and %d are each over the other", round, a, b);
    MPI_Allreduce(last, low, steps, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(last, high, steps, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (memcmp(low, high, (size_t)steps * sizeof(int)) != 0)
        die("overlap: WRONG DATA in round %d: ranks see different writers", round);
}

/* While others still write: each step is of this round or of the one before, and of one writer. */
static void check_mixed(const uint8_t *buf, int round)
{
    for (int s = 0; s < ranks + REACH - 1 && round > 0; s++)
        if (round_of_bytes(buf + s * STEP, (uint64_t)s * STEP, STEP, (round - 1) * ranks, 2 * ranks) < 0)
            die("overlap: WRONG DATA in round %d, step %d, while others write", round, s);
}

static void overlap_ranges(MPI_File f)
{
    enum { ROUNDS = 15 };
    uint64_t all = (uint64_t)(ranks + REACH - 1) * STEP;
    uint8_t *buf = memory(all), *mine = memory((size_t)REACH * STEP);

    for (int round = 0; round < ROUNDS; round++) {
        fill(mine, (uint64_t)rank * STEP, (uint64_t)REACH * STEP, round * ranks + rank);
        MPI_Barrier(MPI_COMM_WORLD);
        write_at(f, (uint64_t)rank * STEP, mine, (uint64_t)REACH * STEP);
        read_at(f, 0, buf, all);
        check_mixed(buf, round);
        MPI_Barrier(MPI_COMM_WORLD);
        read_at(f, 0, buf, all);
        check_order(buf, round);
    }
    free(mine);
    free(buf);
}

/* In atomic mode a call of many pieces is one, too: all ranks write the same pieces, and all of these are of one rank then. */
static void overlap_pieces(MPI_File f)
{
    enum { ROUNDS = 10, PIECES = 40, PIECE = 1000, STRIDE = 1500 };
    uint8_t *buf = memory(PIECES * STRIDE), *mine = memory(PIECES * PIECE);
    MPI_Datatype type;

    ok(MPI_Type_create_hvector(PIECES, PIECE, STRIDE, MPI_BYTE, &type), "MPI_Type_create_hvector");
    ok(MPI_Type_commit(&type), "MPI_Type_commit");
    for (int round = 0; round < ROUNDS; round++) {
        int who = -1, low, high;

        for (int i = 0; i < PIECES; i++)
            fill(mine + i * PIECE, (uint64_t)i * STRIDE, PIECE, round * ranks + rank);
        MPI_Barrier(MPI_COMM_WORLD);
        independent = true;
        write_view(f, 0, type, mine, PIECES * PIECE);
        ok(MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "MPI_File_set_view");
        MPI_Barrier(MPI_COMM_WORLD);
        read_at(f, 0, buf, (PIECES - 1) * STRIDE + PIECE);
        for (int i = 0; i < PIECES; i++) {
            int now = round_of_bytes(buf + i * STRIDE, (uint64_t)i * STRIDE, PIECE, round * ranks, ranks);

            if (now < 0 || (who >= 0 && now != who))
                die("overlap: WRONG DATA in round %d: piece %d is of %d, the one before of %d", round, i, now, who);
            who = now;
        }
        MPI_Allreduce(&who, &low, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        MPI_Allreduce(&who, &high, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (low != high)
            die("overlap: WRONG DATA in round %d: ranks see different writers", round);
    }
    MPI_Type_free(&type);
    free(mine);
    free(buf);
}

void overlap(void)
{
    MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);
    int is = 0;

    if (ranks > MOST_STEPS - REACH)
        die("overlap: not for so many ranks");
    if (atomic_mode) {
        ok(MPI_File_set_atomicity(f, 1), "MPI_File_set_atomicity");
        ok(MPI_File_get_atomicity(f, &is), "MPI_File_get_atomicity");
        if (!is)
            die("MPI_File_set_atomicity was of no effect");
    }
    if (strided)
        overlap_pieces(f);
    else
        overlap_ranges(f);
    ok(MPI_File_close(&f), "MPI_File_close");
}

/* -------------------------------------------------------------- shared file pointers */

/* The ranks' records of this round, the first of which has number `from` of the file: each is there once, and in the order of ranks if that was asked for. */
static void check_records(MPI_File f, uint8_t *buf, int from, int round, bool ordered)
{
    uint64_t before = 0;

    for (int i = 0; i < ranks; i++) {
        int writer;

        read_at(f, (uint64_t)(from + i) * RECORD, buf, RECORD);
        writer = round_of_bytes(buf, 0, RECORD, round * ranks, ranks) - round * ranks;
        if (writer < 0 || (before >> writer & 1) || (ordered && writer != i))
            die("pointer: WRONG DATA in round %d: record %d is of rank %d", round, i, writer);
        before |= 1ull << writer;
    }
}

void pointer(void)
{
    enum { ROUNDS = 6 };
    MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);
    uint8_t *buf = memory(RECORD);
    MPI_Offset at;

    if (ranks > 64)
        die("pointer: not for so many ranks");
    for (int round = 0; round < 2 * ROUNDS; round++) {
        bool ordered = round >= ROUNDS;

        fill(buf, 0, RECORD, round * ranks + rank);
        ok((ordered ? MPI_File_write_ordered : MPI_File_write_shared)(f, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write_shared");
        MPI_Barrier(MPI_COMM_WORLD);
        ok(MPI_File_get_position_shared(f, &at), "MPI_File_get_position_shared");
        if (at != (MPI_Offset)(round + 1) * ranks * RECORD)
            die("pointer: WRONG DATA in round %d: the shared pointer is at %lld", round, (long long)at);
        check_records(f, buf, round * ranks, round, ordered);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    ok(MPI_File_seek_shared(f, 0, MPI_SEEK_SET), "MPI_File_seek_shared");
    for (int round = 0; round < 2 * ROUNDS; round++) {
        int writer;

        memset(buf, 0x5a, RECORD);
        ok(MPI_File_read_ordered(f, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_ordered");
        writer = round_of_bytes(buf, 0, RECORD, round * ranks, ranks) - round * ranks;
        if (writer < 0 || (round >= ROUNDS && writer != rank))
            die("pointer: WRONG DATA: read_ordered %d gave the record of %d", round, writer);
    }
    free(buf);
    ok(MPI_File_close(&f), "MPI_File_close");
}

/* -------------------------------------------------------------- pieces with holes between */

enum { PIECE_BYTES = 4701, PIECES = 240, HOLE = 3 };

/* Every third piece of a range that is another one in each round: who writes with holes is another rank, and for others, than the round before. */
static int pieces_of_round(int round, int *first)
{
    int low = round * 37 % (PIECES / 2), high = low + PIECES / 4 + round * 53 % (PIECES / 4);

    *first = low + round % HOLE;
    return (high - *first + HOLE - 1) / HOLE;
}

static void put_pieces(MPI_File f, int round)
{
    int first, n = pieces_of_round(round, &first), count = 0;
    int *lengths = (int *)(void *)memory((size_t)n * sizeof *lengths);
    MPI_Aint *at = (MPI_Aint *)(void *)memory((size_t)n * sizeof *at);
    uint8_t *buf = memory((size_t)n * PIECE_BYTES);
    MPI_Datatype type;

    for (int i = 0; i < n; i++) {
        int piece = first + i * HOLE;

        if ((i + round) % ranks != rank)
            continue;
        lengths[count] = PIECE_BYTES;
        at[count] = (MPI_Aint)piece * PIECE_BYTES;
        fill(buf + count * PIECE_BYTES, (uint64_t)piece * PIECE_BYTES, PIECE_BYTES, round);
        count++;
    }
    ok(MPI_Type_create_hindexed(count, lengths, at, MPI_BYTE, &type), "MPI_Type_create_hindexed");
    ok(MPI_Type_commit(&type), "MPI_Type_commit");
    write_view(f, 0, type, buf, count * PIECE_BYTES);
    MPI_Type_free(&type);
    free(buf);
    free(at);
    free(lengths);
    ok(MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "MPI_File_set_view");
}

void sieve(void)
{
    enum { ROUNDS = 10 };
    MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);
    uint8_t *buf = memory((size_t)PIECES * PIECE_BYTES);
    int of[PIECES] = { 0 };

    fill(buf, 0, (uint64_t)PIECES * PIECE_BYTES, 0);
    if (rank == 0)
        write_at(f, 0, buf, (uint64_t)PIECES * PIECE_BYTES);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 1; round <= ROUNDS; round++) {
        int first, n = pieces_of_round(round, &first);

        put_pieces(f, round);
        for (int i = 0; i < n; i++)
            of[first + i * HOLE] = round;
        MPI_Barrier(MPI_COMM_WORLD);
        read_at(f, 0, buf, (uint64_t)PIECES * PIECE_BYTES);
        for (int i = 0; i < PIECES; i++)
            compare(buf + i * PIECE_BYTES, (uint64_t)i * PIECE_BYTES, PIECE_BYTES, of[i], "sieve");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(buf);
    ok(MPI_File_close(&f), "MPI_File_close");
}
