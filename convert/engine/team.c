/*
 * Ranks of one conversion (team.h). Called by run.c. One thread.
 *
 * Before each collective call all say whether they can go on: one that has failed would keep the others in it for ever. That is a reduction of one number for each tile of some megabytes.
 */
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/engine/team.h"

static bool began;

/* ompio, seen up to Open MPI 4.1.4, takes a short write for a whole one; ROMIO does not. What the user chose is left. */
void cv_team_settings(void)
{
    setenv("OMPI_MCA_io", "^ompio", 0);
}

int cv_team_join(struct cv_team *t, bool parallel, struct cv_fail *why)
{
    int is = 0;

    *t = (struct cv_team){.rank = 0, .size = 1};
    if (!parallel)
        return 0;
    cv_team_settings();
    if (MPI_Initialized(&is) != MPI_SUCCESS || (!is && MPI_Init(NULL, NULL) != MPI_SUCCESS))
        return cv_fail(why, -EIO, NULL, NULL, CV_NO_OFFSET, "MPI can't be started: call it by mpirun or srun --mpi");
    began |= !is;
    MPI_Comm_rank(MPI_COMM_WORLD, &t->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &t->size);
    return 0;
}

int cv_team_agree(const struct cv_team *t, int rc, struct cv_fail *why)
{
    struct { int rc, rank; } mine = {rc, t->rank}, all;

    if (t->size == 1)
        return rc;
    MPI_Allreduce(&mine, &all, 1, MPI_2INT, MPI_MINLOC, MPI_COMM_WORLD);
    if (all.rc < 0)
        MPI_Bcast(why, sizeof *why, MPI_BYTE, all.rank, MPI_COMM_WORLD);
    return all.rc;
}

bool cv_team_same(const struct cv_team *t, uint64_t number)
{
    uint64_t mine[2] = {number, ~number}, least[2];

    if (t->size == 1)
        return true;
    MPI_Allreduce(mine, least, 2, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    return least[0] == ~least[1]; /* the least is the greatest */
}

void cv_team_share(const struct cv_team *t, void *data, size_t bytes)
{
    if (t->size > 1)
        MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

void cv_team_leave(void)
{
    int over = 0;

    if (began && MPI_Finalized(&over) == MPI_SUCCESS && !over)
        MPI_Finalize();
}

void cv_team_give_up(int status)
{
    int over = 0, size = 1;

    if (!began || MPI_Finalized(&over) != MPI_SUCCESS || over || MPI_Comm_size(MPI_COMM_WORLD, &size) != MPI_SUCCESS || size == 1)
        return;
    fflush(NULL);
    MPI_Barrier(MPI_COMM_WORLD); /* mpirun ends the others as soon as one has gone: rank 0 removes the result first */
    _exit(status);
}
