/*
 * Times that can be compared between ranks: the clock of rank 0's node. MPI_Wtime of Open MPI begins at 0 in each process; the clocks of nodes
 * may differ by more than a test takes. Each rank asks rank 0 for its time a few times and believes the quickest answer; a difference that is
 * no larger than what the answer took is none.
 */
#include <math.h>
#include <time.h>

#include "fpior.h"

#define QUESTIONS 5

static double now(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double clock_now(const struct job *j)
{
    return now(CLOCK_REALTIME) + j->clock_off;
}

double clock_of_thread(void)
{
    return now(CLOCK_THREAD_CPUTIME_ID);
}

static void answer(const struct job *j, int rank)
{
    for (int i = 0; i < QUESTIONS; i++) {
        double t;

        MPI_Recv(&t, 1, MPI_DOUBLE, rank, 0, j->comm, MPI_STATUS_IGNORE);
        t = now(CLOCK_REALTIME);
        MPI_Send(&t, 1, MPI_DOUBLE, rank, 0, j->comm);
    }
}

static void ask(struct job *j)
{
    double quickest = 1e9;

    for (int i = 0; i < QUESTIONS; i++) {
        double sent = now(CLOCK_REALTIME), theirs, took, off;

        MPI_Send(&sent, 1, MPI_DOUBLE, 0, 0, j->comm);
        MPI_Recv(&theirs, 1, MPI_DOUBLE, 0, 0, j->comm, MPI_STATUS_IGNORE);
        took = now(CLOCK_REALTIME) - sent;
        off = theirs - (sent + took / 2);
        if (took < quickest)
            j->clock_off = fabs(off) > took ? off : 0;
        quickest = fmin(quickest, took);
    }
}

void clock_init(struct job *j)
{
    for (int r = 1; r < j->tasks; r++) {
        if (j->rank == 0)
            answer(j, r);
        else if (j->rank == r)
            ask(j);
    }
}
