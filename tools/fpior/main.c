/*
 * fpior: parallel I/O by POSIX, MPI-IO, HDF5, PnetCDF or netCDF-4, with IOR's command line and IOR's table; every byte can be verified, by
 * ranks of other nodes. IOR itself is in no distribution, and its tests of data stop short of sizes that are no multiple of 8.
 *
 * Exit codes: 0; 1: a call failed, or data is wrong; 2: command line. A rank whose call fails ends the job. A run is one test, or those of a
 * script (-f), one after the other; their figures are kept for the summary at its end.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fpior.h"

static void no_memory(void)
{
    fprintf(stderr, "fpior: no memory\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A node is named by its lowest rank. */
static void look_around(struct job *j)
{
    MPI_Comm node;
    int first = j->rank;

    MPI_Comm_split_type(j->comm, MPI_COMM_TYPE_SHARED, j->rank, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &j->tasks_per_node);
    MPI_Bcast(&first, 1, MPI_INT, 0, node);
    MPI_Comm_free(&node);
    MPI_Bcast(&j->tasks_per_node, 1, MPI_INT, 0, j->comm);
    MPI_Allgather(&first, 1, MPI_INT, j->node_of, 1, MPI_INT, j->comm);
    for (int r = 0; r < j->tasks; r++)
        j->nodes += j->node_of[r] == r;
}

static void job_init(struct job *j)
{
    unsigned long long stamp = (unsigned long long)time(NULL);

    MPI_Comm_rank(j->comm, &j->rank);
    MPI_Comm_size(j->comm, &j->tasks);
    j->node_of = calloc((size_t)j->tasks, sizeof j->node_of[0]);
    j->turn = calloc((size_t)j->tasks, sizeof j->turn[0]);
    j->written = calloc((size_t)j->tasks, sizeof j->written[0]);
    j->results = calloc((size_t)j->p.repetitions * 2, sizeof j->results[0]);
    /* Aligned for O_DIRECT. */
    if (!j->node_of || !j->turn || !j->written || !j->results || !pattern_init(&j->pattern, &j->p, j->tasks) ||
        posix_memalign((void **)&j->buf, 4096, j->pattern.transfer) != 0 || !(j->expected = malloc(j->pattern.transfer)))
        no_memory();
    MPI_Bcast(&stamp, 1, MPI_UNSIGNED_LONG_LONG, 0, j->comm);
    if (!j->p.signature)
        j->pattern.signature = (uint32_t)stamp;
    j->began = (time_t)stamp;
    clock_init(j);
    j->begun_s = clock_now(j);
    for (int r = 0; r < j->tasks; r++)
        j->written[r] = j->pattern.per_task;
    look_around(j);
    order_init(j);
}

/* Also of one that this rank took no part in. */
static void job_fini(struct job *j)
{
    pattern_fini(&j->pattern);
    free(j->node_of);
    free(j->turn);
    free(j->written);
    free(j->results);
    free(j->buf);
    free(j->expected);
}

/* Everyone's answer is that of rank 0: nobody waits in a phase that another leaves out. */
static bool time_is_up(struct job *j)
{
    int up = j->p.max_minutes && clock_now(j) - j->begun_s > 60.0 * (double)j->p.max_minutes;

    MPI_Bcast(&up, 1, MPI_INT, 0, j->comm);
    return up;
}

/* Transfers of each task that an earlier run has written. */
static void read_status(struct job *j)
{
    long long count = 0;
    FILE *in;

    if (!j->p.status_file || j->p.write)
        return;
    if (j->rank == 0 && (!(in = fopen(j->p.status_file, "r")) || fscanf(in, "%lld", &count) != 1 || fclose(in) != 0 || count < 0)) {
        fprintf(stderr, "fpior: stoneWallingStatusFile %s says nothing: all is read\n", j->p.status_file);
        count = 0;
    }
    MPI_Bcast(&count, 1, MPI_LONG_LONG, 0, j->comm);
    if (count)
        j->p.wear_out_transfers = count;
}

static void write_status(const struct job *j)
{
    const struct file f = { .job = j, .path = j->p.status_file };
    uint64_t most = 0;
    FILE *out;

    if (!j->p.status_file || !j->p.write || j->rank != 0)
        return;
    for (int r = 0; r < j->tasks; r++)
        most = j->written[r] > most ? j->written[r] : most;
    out = fopen(j->p.status_file, "w");
    if (!out || fprintf(out, "%llu", (unsigned long long)most) < 0 || fclose(out) != 0)
        fatal(&f, "the number of transfers could not be written");
}

/* Memory that an application would have: -M, memoryPerTask. The caller frees it. */
static void *hog(const struct job *j)
{
    int64_t bytes = j->p.memory_per_task;
    void *held;

    if (j->p.memory_per_node && params_memory(j->p.memory_per_node, &bytes))
        bytes /= j->tasks_per_node;
    held = bytes ? malloc((size_t)bytes) : NULL;
    if (bytes && !held)
        no_memory();
    if (held)
        memset(held, 1, (size_t)bytes);
    return held;
}

static void repetition(struct job *j, int n)
{
    const struct {
        int64_t wanted;
        enum phase phase;
    } phases[] = {
        { j->p.write, PHASE_WRITE }, { j->p.check_write, PHASE_CHECK_WRITE }, { j->p.read || j->p.check_read, PHASE_READ },
        { j->p.read && j->p.check_read, PHASE_CHECK_READ },
    };
    uint64_t wrong = 0;

    order_draw(j, n);
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++)
        if (phases[i].wanted && !time_is_up(j))
            phase_run(j, phases[i].phase, n);
    MPI_Allreduce(&j->errors, &wrong, 1, MPI_UINT64_T, MPI_SUM, j->comm);
    /* One that was there before is needed by the next repetition. */
    if (!j->p.keep && !(wrong && j->p.keep_with_error) && (j->p.write || n == j->p.repetitions - 1))
        phase_remove(j, n, true);
}

/* One test of the run. */
static uint64_t run(struct job *j)
{
    uint64_t errors = 0;
    void *held;

    job_init(j);
    read_status(j);
    held = hog(j);
    if (j->rank == 0)
        report_begin(j);
    ranks_begin(j);
    for (int n = 0; n < j->p.repetitions && !time_is_up(j); n++)
        repetition(j, n);
    MPI_Allreduce(&j->errors, &errors, 1, MPI_UINT64_T, MPI_SUM, j->comm);
    if (j->rank == 0)
        report_test_end(j);
    write_status(j);
    free(held);
    return errors;
}

/* world: rank of MPI_COMM_WORLD, whose first tasks take part in each test. Rank 0 is in all. */
static int run_all(struct job *tests, int count, int world)
{
    uint64_t errors = 0;

    for (int i = 0; i < count; i++) {
        struct job *j = &tests[i];

        j->api = api_find(j->p.api);
        if (i == 0 && world == 0)
            report_open(j);
        MPI_Comm_split(MPI_COMM_WORLD, !j->p.num_tasks || world < j->p.num_tasks ? 0 : MPI_UNDEFINED, world, &j->comm);
        if (j->comm == MPI_COMM_NULL)
            continue;
        errors += run(j);
        MPI_Comm_free(&j->comm);
    }
    if (world == 0)
        report_close(tests, count, errors);
    for (int i = 0; i < count; i++)
        job_fini(&tests[i]);
    return errors != 0;
}

/* The tests of the command line or its script; NULL: rank 0 has said what is wrong. */
static struct job *prepare(int argc, char **argv, int world, int tasks, int *count)
{
    struct params first, *all = NULL;
    struct job *made = NULL;

    if (params_parse(&first, argc, argv, world == 0))
        all = params_tests(&first, count, world == 0);
    for (int i = 0; all && i < *count; i++)
        if (!params_check(&all[i], tasks, world == 0)) {
            free(all);
            return NULL;
        }
    if (all && !(made = calloc((size_t)*count, sizeof *made)))
        no_memory();
    for (int i = 0; made && i < *count; i++) {
        made[i].p = all[i];
        made[i].id = i;
        made[i].argv = argv;
    }
    free(all);
    return made;
}

int main(int argc, char **argv)
{
    int world, world_size, count = 0, code = 2;
    struct params p;
    struct job *tests;

    /* Before MPI_Init: the build makes the man page, and a reader asks for --help, without a launcher. */
    params_parse(&p, argc, argv, false);
    if (p.help || p.man) {
        (p.help ? params_help : params_man)(stdout);
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    tests = prepare(argc, argv, world, world_size, &count);
    if (tests)
        code = run_all(tests, count, world);
    free(tests);
    MPI_Finalize();
    return code;
}
