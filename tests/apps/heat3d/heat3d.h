/*
 * heat3d: the 3-D heat equation, with checkpoints. What its files share.
 *
 * options.c      command line
 * grid.c         decomposition, halo exchange, the stencil, check-sums
 * h5file.c       one HDF5 file: writing it, reading boxes out of it
 * checkpoint.c   a checkpoint: temporary name, sync, rename; finding one to restart from
 * dump.c         raw arrays of the ranks, for somebody else to convert; and their schema
 * main.c         the run and its report
 *
 * Functions that are "collective" are called by all ranks with the same arguments.
 * Those that return int: 0 or -1, and the message is already on stderr.
 */
#ifndef HEAT3D_H
#define HEAT3D_H

#include <mpi.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANKS_MAX  4096 /* their check-sums fit in one HDF5 attribute */
#define PATH_BYTES 4096

enum kill_where { KILL_NEVER, KILL_COMPUTE, KILL_CHECKPOINT };

struct options {
    int n[3]; /* cells; n[2] is contiguous in memory and in files */
    int steps;
    int every; /* checkpoint every so many steps; 0 = never */
    int dump_every; /* raw dump every so many steps; 0 = never */
    bool schema;    /* print what the dumps are, and end */
    int keep;  /* complete checkpoints to keep; 0 = all */
    char dir[PATH_BYTES - 256];
    char final[PATH_BYTES];        /* "" = none */
    char restart_path[PATH_BYTES]; /* "" = the newest in dir */
    bool restart;
    bool file_per_process;
    bool verify;
    bool progress;
    enum kill_where kill_where;
    int kill_step;
};

/* A part of the global grid: cells lo .. lo + len - 1 in each dimension. */
struct box {
    int lo[3];
    int len[3];
};

struct grid {
    MPI_Comm comm; /* Cartesian, ranks in the order of MPI_COMM_WORLD */
    int rank;
    int ranks;
    bool node_leader; /* exactly one rank of each node */
    int n[3];
    int dims[3]; /* ranks in each dimension */
    int neighbour[3][2];
    struct box box; /* this rank's cells */
    MPI_Datatype face[3];
    double *u;    /* (len[0]+2) x (len[1]+2) x (len[2]+2): box with a halo of one cell */
    double *next; /* the same, of the next step */
};

/* What a checkpoint says about itself; read from the attributes of any of its files. */
struct chk_meta {
    int64_t step;
    double time;
    int n[3];
    int dims[3];
    int rank; /* whose box the file holds; -1 = the whole grid */
    int sums_count;
    uint64_t sums[RANKS_MAX]; /* one per writer; of a rank's own file: just its own */
};

struct io_stats {
    int64_t bytes;  /* of cells, without headers */
    double seconds; /* the slowest rank's, from the first open to the rename */
    double sync_seconds;
    int count;
};

/* --- options.c --- */

/* 0 = go on, 1 = --help was printed, -1 = error was printed (where verbose). */
int options_parse(struct options *o, int argc, char **argv, bool verbose);

/* Raises SIGKILL in the last rank if the options ask for it here. */
void kill_point(const struct options *o, const struct grid *g, int step, enum kill_where where);

/* --- grid.c --- */

/* Collective. The grid is zero afterwards. */
int grid_init(struct grid *g, const int n[3]);
void grid_fini(struct grid *g);

/* The box of `rank` when n cells are dealt to dims ranks. */
struct box grid_box(const int n[3], const int dims[3], int rank);

/* False when the boxes share no cell. */
bool box_intersect(const struct box *a, const struct box *b, struct box *out);
size_t box_cells(const struct box *b);

void grid_set_initial(struct grid *g);
double grid_time(int step);

/* Collective: u at the next time step. */
void grid_step(struct grid *g);

/*
 * Of this rank's cells. A cell's term depends on its value and its place in the global grid, and terms are
 * added (modulo 2^64), so that the sum over all ranks is the same for every decomposition.
 */
uint64_t grid_sum(const struct grid *g);

/* Collective: the largest difference from the closed-form solution. */
double grid_error(const struct grid *g, int step);

/* Collective: the whole grid as raw doubles, n[2] fastest. */
int grid_write_raw(const struct grid *g, const char *path);

/* --- h5file.c --- */

/*
 * Collective over g->comm: one file of all ranks, through MPI-IO. *sync_s += what flushing took. A failure of
 * any rank ends the job at once: even closing the file would wait for ranks that may not come.
 */
void h5_write_shared(const char *path, const struct grid *g, const struct chk_meta *m,
                     const struct options *o, double *sync_s);

/* This rank's box in a file of its own; not collective. A failure ends the job. */
void h5_write_own(const char *path, const struct grid *g, const struct chk_meta *m, const struct options *o,
                  double *sync_s);

/* Not collective, serial driver: cannot hang on a broken file. Silent on errors. */
int h5_read_meta(const char *path, struct chk_meta *m);

/* Reads `want` (global cells, inside `held`, which is what the file holds and inside g->box) into g->u. As
 * above. */
int h5_read_box(const char *path, const struct box *held, const struct box *want, struct grid *g);

/* Collective, through MPI-IO: all ranks read their boxes from a file of the whole grid. */
int h5_read_shared(const char *path, struct grid *g);

/* --- checkpoint.c --- */

/* Ends the whole job with a message. */
_Noreturn void die(const struct grid *g, const char *path, const char *what);

/* Collective. A failure of any rank ends the job (MPI_Abort). */
void checkpoint_write(const struct options *o, struct grid *g, int step, struct io_stats *st);

/* Collective: reads the checkpoint of `step` back and compares; ends the job if it differs. */
void checkpoint_verify(const struct options *o, struct grid *g, int step, struct io_stats *st);

/*
 * Collective: fills g->u from the newest checkpoint that is complete and intact, or from o->restart_path.
 * *step = 0 with 0 returned: there is none (and none was named).
 */
int checkpoint_restart(const struct options *o, struct grid *g, int *step, struct io_stats *st);

/* --- dump.c --- */

/* Collective: DIR/dump_STEP/rank_R.raw of each rank, not synced. A failure of any rank ends the job. */
void dump_write(const struct options *o, const struct grid *g, int step, struct io_stats *st);
/* One rank: the schema of these dumps on stdout. */
void dump_schema(const struct options *o, const struct grid *g);

#endif
