/*
 * heat3d: a small MPI application with checkpoints, as users of a checkpoint store have it.
 *
 * It is an ordinary program: it knows MPI, HDF5 and POSIX, and nothing of fpstore. Tests, quickstart and
 * benchmarks run it on a store and on the native file system, kill it, restart it, and compare final states
 * bit for bit.
 *
 * Exit codes: 0, 1 = failed, 2 = command line. A rank that fails ends the whole job.
 */
#include "heat3d.h"

#include <stdio.h>

struct run {
    int first_step;
    double compute_s;
    struct io_stats wrote, read, verified, dumped;
};

static void report_io(const char *what, const struct io_stats *st)
{
    if (st->count == 0)
        return;
    printf("heat3d: %s: count=%d bytes=%lld seconds=%.3f MB/s=%.1f", what, st->count, (long long)st->bytes,
           st->seconds, st->seconds > 0 ? (double)st->bytes / 1e6 / st->seconds : 0.0);
    if (st->sync_seconds > 0)
        printf(" sync_seconds=%.3f", st->sync_seconds);
    printf("\n");
}

static void report(const struct options *o, const struct grid *g, const struct run *r, uint64_t sum)
{
    report_io("checkpoints", &r->wrote);
    report_io("restart", &r->read);
    report_io("read back", &r->verified);
    report_io("dumps", &r->dumped);
    printf("heat3d: compute: seconds=%.3f steps=%d\n", r->compute_s, o->steps - r->first_step);
    printf("heat3d: final: step=%d grid=%dx%dx%d ranks=%d sum=%016llx\n", o->steps, g->n[0], g->n[1], g->n[2],
           g->ranks, (unsigned long long)sum);
    fflush(stdout);
}

static int start(const struct options *o, struct grid *g, struct run *r)
{
    if (o->restart && checkpoint_restart(o, g, &r->first_step, &r->read))
        return -1;
    if (r->first_step > o->steps) {
        if (g->rank == 0)
            fprintf(stderr, "heat3d: the checkpoint is of step %d, later than --steps %d\n", r->first_step,
                    o->steps);
        return -1;
    }
    if (r->first_step == 0) {
        if (o->restart && g->rank == 0)
            printf("heat3d: nothing to restart from in %s: starting at step 0\n", o->dir);
        grid_set_initial(g);
    }
    if (g->rank == 0) {
        printf("heat3d: grid %dx%dx%d on %d ranks (%dx%dx%d), steps %d to %d\n", g->n[0], g->n[1], g->n[2],
               g->ranks, g->dims[0], g->dims[1], g->dims[2], r->first_step, o->steps);
        fflush(stdout);
    }
    return 0;
}

static void compute(const struct options *o, struct grid *g, struct run *r)
{
    double mine = 0;
    for (int step = r->first_step + 1; step <= o->steps; step++) {
        kill_point(o, g, step, KILL_COMPUTE);
        double t0 = MPI_Wtime();
        grid_step(g);
        mine += MPI_Wtime() - t0;
        if (o->dump_every && step % o->dump_every == 0)
            dump_write(o, g, step, &r->dumped);
        if (o->every == 0 || step % o->every)
            continue;
        checkpoint_write(o, g, step, &r->wrote);
        if (o->verify)
            checkpoint_verify(o, g, step, &r->verified);
    }
    MPI_Allreduce(&mine, &r->compute_s, 1, MPI_DOUBLE, MPI_MAX, g->comm);
}

static int verify(const struct options *o, const struct grid *g)
{
    /* Each step rounds a few times; the operator never amplifies what was rounded. */
    double limit = 1e-15 * (10 + o->steps);
    double error = grid_error(g, o->steps);
    bool ok = error <= limit;
    if (g->rank == 0)
        printf("heat3d: closed form: largest difference %.2e, limit %.2e: %s\n", error, limit,
               ok ? "ok" : "WRONG");
    return ok ? 0 : -1;
}

static int run(const struct options *o, struct grid *g)
{
    struct run r = {0};
    uint64_t mine, sum;
    if (o->schema) {
        if (g->rank == 0)
            dump_schema(o, g);
        return 0;
    }
    if (start(o, g, &r))
        return -1;
    compute(o, g, &r);
    mine = grid_sum(g);
    MPI_Allreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, g->comm);
    if (o->final[0] && grid_write_raw(g, o->final))
        return -1;
    if (g->rank == 0)
        report(o, g, &r, sum);
    return o->verify ? verify(o, g) : 0;
}

int main(int argc, char **argv)
{
    static struct options o;
    struct grid g;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int rc = options_parse(&o, argc, argv, rank == 0);
    if (rc == 0) {
        if (grid_init(&g, o.n) || run(&o, &g)) {
            fflush(NULL);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        grid_fini(&g);
    }
    MPI_Finalize();
    return rc < 0 ? 2 : 0;
}
