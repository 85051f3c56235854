/*
 * What single ranks took, where IOR tells it: -j warns of tasks far from the mean, saveRankPerformanceDetailsCSV has a line for each task and phase.
 * Called by all ranks of a test, between its phases.
 */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "fpior.h"

void ranks_begin(const struct job *j)
{
    FILE *out;

    if (!j->p.ranks_file || j->rank != 0)
        return;
    out = fopen(j->p.ranks_file, "w");
    if (!out || fprintf(out, "access,rank,runtime-with-openclose,runtime,throughput-withopenclose,throughput\n") < 0 || fclose(out) != 0)
        fatal(&(struct file){ .job = j, .path = j->p.ranks_file }, "could not be written");
}

/* Bytes per second by the mean of what the tasks moved, as in IOR. */
static void write_lines(const struct job *j, const struct result *r, const double *seconds)
{
    FILE *out = fopen(j->p.ranks_file, "a");
    double bytes = r->bytes / j->tasks;

    for (int i = 0; out && i < j->tasks; i++)
        fprintf(out, "%s,%d,%.10e,%.10e,%.10e,%.10e\n", phase_name(r->phase), i, seconds[2 * i], seconds[2 * i + 1], bytes / seconds[2 * i],
            bytes / seconds[2 * i + 1]);
    if (!out || fclose(out) != 0)
        fatal(&(struct file){ .job = j, .path = j->p.ranks_file }, "could not be written");
}

static void lines(const struct job *j, const struct result *r, const double marks[6])
{
    double mine[2] = { marks[5] - marks[0], marks[3] - marks[2] }, *all = NULL;

    if (j->rank == 0 && !(all = malloc((size_t)j->tasks * sizeof mine)))
        fatal(&(struct file){ .job = j, .path = j->p.ranks_file }, "no memory");
    MPI_Gather(mine, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, 0, j->comm);
    if (j->rank == 0)
        write_lines(j, r, all);
    free(all);
}

static void outlier(const struct job *j, const struct result *r, const char *what, double seconds)
{
    char host[256] = "";
    double sum;

    MPI_Allreduce(&seconds, &sum, 1, MPI_DOUBLE, MPI_SUM, j->comm);
    if (fabs(seconds - sum / j->tasks) <= (double)j->p.outlier_s)
        return;
    gethostname(host, sizeof host - 1);
    fprintf(stderr, "fpior: for %s, task %d, %s: %s %.6f s, of all tasks %.6f s\n", host, j->rank, phase_name(r->phase), what, seconds, sum / j->tasks);
}

void ranks_result(const struct job *j, const struct result *r, const double marks[6])
{
    if (j->p.ranks_file)
        lines(j, r, marks);
    if (!j->p.outlier_s)
        return;
    outlier(j, r, "start", marks[0] - j->begun_s);
    outlier(j, r, "open", marks[1] - marks[0]);
    outlier(j, r, "transfers", marks[3] - marks[2]);
    outlier(j, r, "close", marks[5] - marks[4]);
    outlier(j, r, "end", marks[5] - j->begun_s);
}
