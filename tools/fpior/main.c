/*
 * fpior: parallel I/O by POSIX, MPI-IO, HDF5, PnetCDF or netCDF-4, with IOR's command line and IOR's table; every byte can be verified, by
 * ranks of other nodes. IOR itself is in no distribution, and its tests of data stop short of sizes that are no multiple of 8.
 *
 * Exit codes: 0; 1: a call failed, or data is wrong; 2: command line. A rank whose call fails ends the job.
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

static void repetition(struct job *j, int n)
{
	const struct {
		int64_t wanted;
		enum phase phase;
	} phases[] = {
		{ j->p.write, PHASE_WRITE }, { j->p.check_write, PHASE_CHECK_WRITE }, { j->p.read, PHASE_READ }, { j->p.check_read, PHASE_CHECK_READ },
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

static int run(struct job *j)
{
	uint64_t errors = 0;

	job_init(j);
	if (j->rank == 0)
		report_begin(j);
	for (int n = 0; n < j->p.repetitions && !time_is_up(j); n++)
		repetition(j, n);
	MPI_Allreduce(&j->errors, &errors, 1, MPI_UINT64_T, MPI_SUM, j->comm);
	if (j->rank == 0)
		report_end(j, errors);
	job_fini(j);
	return errors != 0;
}

int main(int argc, char **argv)
{
	struct job j = { .argv = argv };
	int world, tasks, code = 0;

	/* Before MPI_Init: the build makes the man page, and a reader asks for --help, without a launcher. */
	if (!params_parse(&j.p, argc, argv, false))
		code = 2;
	if (j.p.help || j.p.man) {
		(j.p.help ? params_help : params_man)(stdout);
		return 0;
	}
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &world);
	MPI_Comm_size(MPI_COMM_WORLD, &tasks);
	if (code == 2)
		params_parse(&j.p, argc, argv, world == 0);
	else if (!params_check(&j.p, tasks, world == 0))
		code = 2;
	if (code == 0) {
		j.api = api_find(j.p.api);
		MPI_Comm_split(MPI_COMM_WORLD, !j.p.num_tasks || world < j.p.num_tasks ? 0 : MPI_UNDEFINED, world, &j.comm);
		if (j.comm != MPI_COMM_NULL) {
			code = run(&j);
			MPI_Comm_free(&j.comm);
		}
	}
	MPI_Finalize();
	return code;
}
