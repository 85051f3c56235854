/*
 * The grid: who has which cells, halo exchange, the stencil, the exact solution.
 *
 * du/dt = laplacian(u) on a box with u = 0 around it, explicit Euler, dt / h^2 = 1/8 (stable up to 1/6). Each
 * rank keeps its cells with a halo of one; halos outside of the domain stay zero, which is the boundary
 * condition. A cell's new value is computed by the same operations in the same order whoever owns it, so the
 * state is the same bit for bit for every number of ranks; contraction into fused multiply-adds is off so
 * that this holds for every loop the compiler makes of it.
 *
 * The start is a sum of products of sines. These are eigenvectors of the discrete operator, so the exact
 * result of n steps is known (each mode times its eigenvalue to the n) and --verify is a test of the whole
 * program, not only of a run against another run.
 */
#include "heat3d.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RATIO 0.125 /* dt / h^2 */

static const struct mode {
    double amplitude;
    int k[3];
} modes[] = {{1.0, {1, 1, 1}}, {0.5, {2, 3, 1}}, {0.25, {5, 2, 7}}};
#define MODES (sizeof(modes) / sizeof(modes[0]))

/* --- decomposition --- */

struct box grid_box(const int n[3], const int dims[3], int rank)
{
    const int at[3] = {rank / (dims[1] * dims[2]), rank / dims[2] % dims[1], rank % dims[2]};
    struct box b;
    for (int d = 0; d < 3; d++) {
        b.lo[d] = (int)((int64_t)n[d] * at[d] / dims[d]);
        b.len[d] = (int)((int64_t)n[d] * (at[d] + 1) / dims[d]) - b.lo[d];
    }
    return b;
}

bool box_intersect(const struct box *a, const struct box *b, struct box *out)
{
    for (int d = 0; d < 3; d++) {
        int a_end = a->lo[d] + a->len[d], b_end = b->lo[d] + b->len[d];
        out->lo[d] = a->lo[d] > b->lo[d] ? a->lo[d] : b->lo[d];
        out->len[d] = (a_end < b_end ? a_end : b_end) - out->lo[d];
        if (out->len[d] <= 0)
            return false;
    }
    return true;
}

size_t box_cells(const struct box *b)
{
    return (size_t)b->len[0] * (size_t)b->len[1] * (size_t)b->len[2];
}

/* Where a cell is in u: x, y, z count from 0 at the halo. */
static size_t cell(const struct grid *g, int x, int y, int z)
{
    size_t wide_y = (size_t)g->box.len[1] + 2, wide_z = (size_t)g->box.len[2] + 2;
    return ((size_t)x * wide_y + (size_t)y) * wide_z + (size_t)z;
}

static void make_faces(struct grid *g)
{
    const int zero[3] = {0, 0, 0};
    int wide[3];
    for (int d = 0; d < 3; d++)
        wide[d] = g->box.len[d] + 2;
    for (int d = 0; d < 3; d++) {
        int part[3] = {g->box.len[0], g->box.len[1], g->box.len[2]};
        part[d] = 1;
        MPI_Type_create_subarray(3, wide, part, zero, MPI_ORDER_C, MPI_DOUBLE, &g->face[d]);
        MPI_Type_commit(&g->face[d]);
    }
}

static void find_node_leader(struct grid *g)
{
    MPI_Comm node;
    int node_rank;
    MPI_Comm_split_type(g->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &node_rank);
    MPI_Comm_free(&node);
    g->node_leader = node_rank == 0;
}

int grid_init(struct grid *g, const int n[3])
{
    const int open_ends[3] = {0, 0, 0};
    memset(g, 0, sizeof(*g));
    memcpy(g->n, n, sizeof(g->n));
    MPI_Comm_size(MPI_COMM_WORLD, &g->ranks);
    MPI_Dims_create(g->ranks, 3, g->dims);
    MPI_Cart_create(MPI_COMM_WORLD, 3, g->dims, open_ends, 0, &g->comm);
    MPI_Comm_rank(g->comm, &g->rank);
    for (int d = 0; d < 3; d++) {
        MPI_Cart_shift(g->comm, d, 1, &g->neighbour[d][0], &g->neighbour[d][1]);
        if (g->n[d] < g->dims[d] || g->ranks > RANKS_MAX) {
            if (g->rank == 0)
                fprintf(stderr, "heat3d: too many ranks (%d) for a grid of %dx%dx%d\n", g->ranks, n[0], n[1],
                        n[2]);
            return -1;
        }
    }
    g->box = grid_box(g->n, g->dims, g->rank);
    find_node_leader(g);
    make_faces(g);

    size_t cells = cell(g, g->box.len[0] + 2, 0, 0);
    g->u = calloc(cells, sizeof(double));
    g->next = calloc(cells, sizeof(double));
    if (g->u == NULL || g->next == NULL) {
        fprintf(stderr, "heat3d: rank %d: no memory for %zu cells\n", g->rank, cells);
        return -1;
    }
    return 0;
}

void grid_fini(struct grid *g)
{
    for (int d = 0; d < 3; d++)
        MPI_Type_free(&g->face[d]);
    MPI_Comm_free(&g->comm);
    free(g->u);
    free(g->next);
}

/* --- computing --- */

double grid_time(int step)
{
    return step * RATIO;
}

static void exchange_halos(struct grid *g)
{
    MPI_Request req[12];
    int count = 0;
    for (int d = 0; d < 3; d++) {
        for (int side = 0; side < 2; side++) {
            int mine[3] = {1, 1, 1}, halo[3] = {1, 1, 1};
            mine[d] = side ? g->box.len[d] : 1;
            halo[d] = side ? g->box.len[d] + 1 : 0;
            MPI_Irecv(g->u + cell(g, halo[0], halo[1], halo[2]), 1, g->face[d], g->neighbour[d][side],
                      2 * d + !side, g->comm, &req[count++]);
            MPI_Isend(g->u + cell(g, mine[0], mine[1], mine[2]), 1, g->face[d], g->neighbour[d][side],
                      2 * d + side, g->comm, &req[count++]);
        }
    }
    MPI_Waitall(count, req, MPI_STATUSES_IGNORE);
}

/* One row of cells; up/down are the rows of the neighbours in the two other dimensions. */
__attribute__((optimize("fp-contract=off"))) static void
step_row(double *restrict out, const double *restrict u, const double *restrict x0, const double *restrict x1,
         const double *restrict y0, const double *restrict y1, int len)
{
    for (int z = 0; z < len; z++)
        out[z] = u[z] + RATIO * ((((x0[z] + x1[z]) + (y0[z] + y1[z])) + (u[z - 1] + u[z + 1])) - 6.0 * u[z]);
}

void grid_step(struct grid *g)
{
    exchange_halos(g);
    for (int x = 1; x <= g->box.len[0]; x++)
        for (int y = 1; y <= g->box.len[1]; y++)
            step_row(g->next + cell(g, x, y, 1), g->u + cell(g, x, y, 1), g->u + cell(g, x - 1, y, 1),
                     g->u + cell(g, x + 1, y, 1), g->u + cell(g, x, y - 1, 1), g->u + cell(g, x, y + 1, 1),
                     g->box.len[2]);
    double *was = g->u;
    g->u = g->next;
    g->next = was;
}

/* --- the exact solution --- */

/* sin(pi k (i + 1) / (n + 1)) for this rank's cells of dimension d. */
static double *sines(const struct grid *g, int d, int k)
{
    double *s = malloc((size_t)g->box.len[d] * sizeof(double));
    if (s == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < g->box.len[d]; i++)
        s[i] = sin(M_PI * k * (g->box.lo[d] + i + 1) / (g->n[d] + 1));
    return s;
}

static double eigenvalue(const struct grid *g, const struct mode *m)
{
    double sum = 0;
    for (int d = 0; d < 3; d++) {
        double s = sin(M_PI * m->k[d] / (2.0 * (g->n[d] + 1)));
        sum += 4.0 * s * s;
    }
    return 1.0 - RATIO * sum;
}

/* Adds factor * mode m to `to`, which is laid out as g->u. */
static void add_mode(const struct grid *g, const struct mode *m, double factor, double *to)
{
    double *s[3];
    for (int d = 0; d < 3; d++)
        s[d] = sines(g, d, m->k[d]);
    for (int x = 0; x < g->box.len[0]; x++)
        for (int y = 0; y < g->box.len[1]; y++) {
            double *row = to + cell(g, x + 1, y + 1, 1);
            for (int z = 0; z < g->box.len[2]; z++)
                row[z] += factor * s[0][x] * s[1][y] * s[2][z];
        }
    for (int d = 0; d < 3; d++)
        free(s[d]);
}

/* The halo is not touched: it belongs to the neighbours, or is the boundary. */
static void set_exact(const struct grid *g, int step, double *to)
{
    for (int x = 1; x <= g->box.len[0]; x++)
        for (int y = 1; y <= g->box.len[1]; y++)
            memset(to + cell(g, x, y, 1), 0, (size_t)g->box.len[2] * sizeof(double));
    for (size_t i = 0; i < MODES; i++)
        add_mode(g, &modes[i], modes[i].amplitude * pow(eigenvalue(g, &modes[i]), step), to);
}

void grid_set_initial(struct grid *g)
{
    set_exact(g, 0, g->u);
}

double grid_error(const struct grid *g, int step)
{
    double worst = 0, all;
    set_exact(g, step, g->next);
    for (int x = 1; x <= g->box.len[0]; x++)
        for (int y = 1; y <= g->box.len[1]; y++)
            for (int z = 1; z <= g->box.len[2]; z++) {
                double e = fabs(g->u[cell(g, x, y, z)] - g->next[cell(g, x, y, z)]);
                worst = e <= worst ? worst : e; /* a NaN is kept */
            }
    MPI_Allreduce(&worst, &all, 1, MPI_DOUBLE, MPI_MAX, g->comm);
    return all;
}

/* --- check-sum, raw output --- */

/* Mixes all bits of v into all bits of the result (a bijection). */
static uint64_t mix(uint64_t v)
{
    v = (v ^ (v >> 32)) * 0xd6e8feb86659fd93u;
    v = (v ^ (v >> 29)) * 0xd6e8feb86659fd93u;
    return v ^ (v >> 32);
}

uint64_t grid_sum(const struct grid *g)
{
    uint64_t sum = 0;
    for (int x = 0; x < g->box.len[0]; x++)
        for (int y = 0; y < g->box.len[1]; y++) {
            const double *row = g->u + cell(g, x + 1, y + 1, 1);
            uint64_t index =
                ((uint64_t)(g->box.lo[0] + x) * (uint64_t)g->n[1] + (uint64_t)(g->box.lo[1] + y)) *
                    (uint64_t)g->n[2] +
                (uint64_t)g->box.lo[2];
            for (int z = 0; z < g->box.len[2]; z++) {
                uint64_t bits;
                memcpy(&bits, &row[z], sizeof(bits));
                sum += mix(bits ^ mix(index + (uint64_t)z + 1));
            }
        }
    return sum;
}

static int mpi_failed(int rc, const char *what, const char *path)
{
    char text[MPI_MAX_ERROR_STRING];
    int len;
    if (rc == MPI_SUCCESS)
        return 0;
    MPI_Error_string(rc, text, &len);
    fprintf(stderr, "heat3d: %s: %s: %s\n", path, what, text);
    return -1;
}

int grid_write_raw(const struct grid *g, const char *path)
{
    const int ones[3] = {1, 1, 1};
    int wide[3], rc = -1;
    MPI_Datatype in_memory, in_file;
    MPI_File file;

    for (int d = 0; d < 3; d++)
        wide[d] = g->box.len[d] + 2;
    MPI_Type_create_subarray(3, wide, g->box.len, ones, MPI_ORDER_C, MPI_DOUBLE, &in_memory);
    MPI_Type_create_subarray(3, g->n, g->box.len, g->box.lo, MPI_ORDER_C, MPI_DOUBLE, &in_file);
    MPI_Type_commit(&in_memory);
    MPI_Type_commit(&in_file);

    if (mpi_failed(MPI_File_open(g->comm, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file),
                   "open", path))
        goto out;
    if (mpi_failed(MPI_File_set_size(file, 0), "set size", path) ||
        mpi_failed(MPI_File_set_view(file, 0, MPI_DOUBLE, in_file, "native", MPI_INFO_NULL), "set view",
                   path) ||
        mpi_failed(MPI_File_write_all(file, g->u, 1, in_memory, MPI_STATUS_IGNORE), "write", path) ||
        mpi_failed(MPI_File_sync(file), "sync", path))
        goto out;
    if (mpi_failed(MPI_File_close(&file), "close", path))
        goto out;
    rc = 0;
out:
    MPI_Type_free(&in_memory);
    MPI_Type_free(&in_file);
    return rc;
}
