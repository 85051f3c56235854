/* fpior: a parallel I/O test that takes IOR's command lines. An ordinary MPI program: it knows nothing of fpstore. */
#ifndef FPIOR_H
#define FPIOR_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

/* ---- options.c: named as IOR's directives. Flags are 0 or 1. */

struct params {
    const char *api, *test_file, *hints_file, *packet, *summary_file, *summary_format, *script, *status_file, *ranks_file, *memory_per_node;
    int64_t block_size, transfer_size, segment_count, alignment, chunk_size; /* bytes, bytes, -, bytes, elements of the dataset */
    int64_t num_tasks, repetitions, delay_s, deadline_s, max_minutes, task_offset, ref_num;
    int64_t order_seed, offset_seed, signature;
    int64_t outlier_s, delay_us, memory_per_task, wear_out_transfers;
    int64_t write, read, check_write, check_read;
    int64_t file_per_proc, unique_dir, multi_file, use_existing, keep, keep_with_error, quit_on_error;
    int64_t reorder, reorder_random, random_offset, barriers, collective, fsync, fsync_per_write, single_attempt, odirect;
    int64_t preallocate, file_view, show_hints, no_fill, collective_metadata, wear_out, range_locks, ior_data, verbose;
    int64_t help, man;
};

/* argv into *p. False: a line on stderr, if print. p->help and p->man: nothing else was looked at. */
bool params_parse(struct params *p, int argc, char **argv, bool print);
/* NAME=VALUE,... into *p: -O, and a line of a script. What p points to then lives as long as the process. */
bool params_directives(struct params *p, const char *text, bool print);
/* A size, or a share of this node's memory such as 75%. */
bool params_memory(const char *text, int64_t *bytes);
/* script.c: the tests of p->script, or p alone; *count of them, for the caller to free. NULL: as above. */
struct params *params_tests(const struct params *p, int *count, bool print);
/* What belongs together, and what can't be; tasks: of MPI_COMM_WORLD, to which num_tasks is cut. */
bool params_check(struct params *p, int tasks, bool print);
void params_help(FILE *out);
void params_man(FILE *out);

/* ---- pattern.c: where each transfer goes, and what is in it. Pure. */

enum packet { PACKET_TIMESTAMP, PACKET_OFFSET, PACKET_INCOMPRESSIBLE, PACKET_RANDOM };

struct pattern {
    uint64_t transfer, block, segments, tasks;
    uint64_t per_block, per_task;  /* transfers */
    uint64_t *random;              /* the place of each transfer of a file, or NULL */
    bool own_files, any_order;     /* any_order: -z -z, blocks may be drawn twice */
    bool ior_data;                 /* pattern_ior.c */
    enum packet packet;
    uint32_t signature;
    uint64_t seed, there;          /* of any_order; there: blocks of a file that is read, 0: as it is written */
};

/* False: no memory for the random order. */
bool pattern_init(struct pattern *t, const struct params *p, int tasks);
void pattern_fini(struct pattern *t);
uint64_t pattern_file_bytes(const struct pattern *t);
/* Offset of transfer i of what belongs to this task. */
uint64_t pattern_offset(const struct pattern *t, int task, uint64_t i);
/* What this task writes at [off, off + len): a transfer. */
void pattern_fill(const struct pattern *t, int task, uint64_t off, void *buf, uint64_t len);
/* The signature of data of an earlier run, from a piece of it; false: it is too short. */
bool pattern_learn(struct pattern *t, uint64_t off, const void *buf, uint64_t len);
uint64_t pattern_mix(uint64_t x);
/* pattern_ior.c: the same as IOR 4 writes it. */
void pattern_fill_ior(const struct pattern *t, int task, uint64_t off, void *buf, uint64_t len);
bool pattern_learn_ior(struct pattern *t, const void *buf, uint64_t len);

/* ---- one file that is open. Calls that fail end the job (fatal). */

struct api;
struct job;

struct file {
    const struct job *job;
    const char *path;
    MPI_Comm comm;                 /* of those who share the file; MPI_COMM_SELF for own files */
    int task;                      /* whose data is accessed */
    bool writing;
    int fd;                        /* io_posix.c */
    MPI_File mpi;                  /* io_mpiio.c */
    int64_t id, type, memory, space, access; /* io_hdf5.c: file, element, one transfer, whole dataset, transfer properties */
    int64_t *datasets;             /* io_hdf5.c: one per segment */
    int nc, var;                   /* io_ncmpi.c, io_netcdf4.c */
};

struct api {
    const char *name;
    void (*open)(struct file *f);
    void (*xfer)(struct file *f, void *buf, uint64_t off); /* transfer_size bytes, read or written as f->writing says */
    void (*sync)(struct file *f);  /* NULL is for none */
    void (*close)(struct file *f);
    const char *(*version)(void);
};

extern const struct api io_posix, io_mpiio, io_hdf5, io_ncmpi, io_netcdf4;
const struct api *api_find(const char *name);

/* io_mpiio.c: hints of -U and of the environment, as IOR names them. The caller frees the info. */
MPI_Info hints_info(const struct file *f);
void hints_show(const struct file *f, MPI_Info info);

/* ---- the run: main.c, phase.c */

enum phase { PHASE_WRITE, PHASE_CHECK_WRITE, PHASE_READ, PHASE_CHECK_READ, PHASE_REMOVE };

struct result {
    enum phase phase;
    int repetition;
    double open_s, io_s, close_s, total_s, latency_s, deadline_s;
    double bytes;                  /* of all tasks */
    double deadline_bytes;         /* of a task, when the deadline came */
};

struct job {
    struct params p;
    int id;                        /* of the test in its script */
    struct pattern pattern;
    const struct api *api;
    MPI_Comm comm;                 /* the tasks that take part */
    int rank, tasks, nodes, tasks_per_node;
    int shift;                     /* -C */
    int *node_of;                  /* by rank; a node is named by its first rank */
    int *turn;                     /* -Z: by rank, whose data it reads */
    uint64_t *written;             /* by rank, transfers that it has written: fewer where -D ended it */
    uint8_t *buf, *expected;
    uint64_t errors;               /* of this rank, all phases */
    double clock_off, begun_s;     /* clock.c; when the run began */
    time_t began;
    char **argv;
    struct result *results;
    int result_count;
};

_Noreturn void fatal(const struct file *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void phase_run(struct job *j, enum phase phase, int repetition);
void phase_remove(struct job *j, int repetition, bool report);
/* Whose data this rank reads back. */
int job_reads_of(const struct job *j, int rank);
/* Fills shift, or turn for this repetition. */
void order_init(struct job *j);
void order_draw(struct job *j, int repetition);

/* clock.c: seconds, the same for all ranks; processor time of this one. */
void clock_init(struct job *j);
double clock_now(const struct job *j);
double clock_of_thread(void);

/* ranks.c: what single ranks took (-j, saveRankPerformanceDetailsCSV). All ranks call them. */
void ranks_begin(const struct job *j);
void ranks_result(const struct job *j, const struct result *r, const double marks[6]);

/* ---- report.c, report_summary.c, report_json.c: rank 0 alone */

/* Of the run, with its first test; of each test; of the run, with all tests. */
void report_open(struct job *first);
void report_begin(struct job *j);
void report_result(struct job *j, const struct result *r);
void report_test_end(const struct job *j);
void report_close(const struct job *tests, int count, uint64_t errors);
void report_json(const struct job *tests, int count, FILE *out);
void report_summary(const struct job *tests, int count, FILE *out);
void report_place(const struct job *j, FILE *out, bool json);
/* "262144 bytes", "1.50 MiB": IOR's way. */
void report_size(char text[32], double bytes);
const char *phase_name(enum phase phase);
double result_mibs(const struct result *r);
double result_ops(const struct job *j, const struct result *r);

struct summary {
    double max, min, mean, deviation, max_ops, min_ops, mean_ops, deviation_ops, mean_s, deadline_s, deadline_mibs, bytes;
    int count;
};

/* Of all repetitions of a phase. */
struct summary summary_of(const struct job *j, enum phase phase);

#endif
