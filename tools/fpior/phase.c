/*
 * One phase of the test: all tasks open, transfer, close; write, read, or one that verifies.
 *
 * As in IOR: open, wr/rd and close run from the first task that begins to the last that ends, and bandwidth is by the whole. Comparing takes
 * time, so verifying is a phase of its own, which is not timed; but for -R without -r, which is the timed read as in IOR 4. Making the data takes
 * time too, which an application has spent before it writes: this rank's processor time for it, and for comparing, is taken off. Not the time by
 * the clock, in which, with more ranks than cores, others write.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fpior.h"

#define SHOWN_ERRORS 10 /* of each rank and phase; all are counted */

void fatal(const struct file *f, const char *fmt, ...)
{
    va_list args;
    char text[1024];

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fprintf(stderr, "fpior: rank %d: %s: %s\n", f->job->rank, f->path, text);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

/* A@B@C: the n-th, counted around. */
static int name_of_many(const char *list, int n, const char **name)
{
    int count = 1;

    for (const char *p = list; *p; p++)
        count += *p == '@';
    for (n %= count; n > 0; n--)
        list = strchr(list, '@') + 1;
    *name = list;
    return (int)strcspn(list, "@");
}

static void path_of(const struct job *j, int task, int repetition, char path[4096])
{
    const char *name, *slash;
    int len = name_of_many(j->p.test_file, j->p.file_per_proc ? task : 0, &name), n, dir;

    slash = memrchr(name, '/', (size_t)len);
    dir = j->p.unique_dir && slash ? (int)(slash + 1 - name) : 0;
    n = snprintf(path, 4096, "%.*s", dir, name);
    if (j->p.unique_dir && n < 4000) {
        n += snprintf(path + n, 4096 - (size_t)n, "%d/", task);
        mkdir(path, 0777); /* if that fails, so does open, and says why */
    }
    n += snprintf(path + n, n < 4096 ? 4096 - (size_t)n : 0, "%.*s", len - dir, name + dir);
    if (j->p.file_per_proc && n < 4096)
        n += snprintf(path + n, 4096 - (size_t)n, ".%08d", task);
    if (j->p.multi_file && n < 4096)
        n += snprintf(path + n, 4096 - (size_t)n, ".%d", repetition);
    if (n >= 4096)
        fatal(&(struct file){ .job = j, .path = "-o" }, "the name is too long");
}

/* What this rank wrote; with a shared file, rank 0 removes it. */
static void remove_own(const struct job *j, int repetition, bool folder_too)
{
    char path[4096];

    if (!j->p.file_per_proc && j->rank != 0)
        return;
    path_of(j, j->rank, repetition, path);
    if (unlink(path) != 0 && errno != ENOENT)
        fatal(&(struct file){ .job = j, .path = path }, "unlink: %s", strerror(errno));
    if (!j->p.unique_dir || !folder_too)
        return;
    *strrchr(path, '/') = '\0';
    rmdir(path);
}

void phase_remove(struct job *j, int repetition, bool report)
{
    double begun, mine, slowest = 0;

    MPI_Barrier(j->comm);
    begun = clock_now(j);
    remove_own(j, repetition, true);
    mine = clock_now(j) - begun;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, j->comm);
    if (report && j->rank == 0)
        report_result(j, &(struct result){ .phase = PHASE_REMOVE, .repetition = repetition, .total_s = slowest });
}

/* 16 hex digits of at most 8 bytes. */
static void hex_of(char out[17], const uint8_t *p, uint64_t n)
{
    *out = '\0';
    for (uint64_t i = 0; i < n && i < 8; i++)
        snprintf(out + 2 * i, 3, "%02x", p[i]);
}

static uint64_t compare(struct job *j, const struct file *f, uint64_t off, uint64_t i, uint64_t before)
{
    uint64_t size = j->pattern.transfer, wrong = 0, first = 0;
    char want[17], got[17];

    if (i == 0 && !j->p.write && !j->p.signature &&
        (j->pattern.packet == PACKET_TIMESTAMP || (j->p.ior_data && j->pattern.packet == PACKET_OFFSET)))
        pattern_learn(&j->pattern, off, j->buf, size);
    pattern_fill(&j->pattern, f->task, off, j->expected, size);
    if (memcmp(j->buf, j->expected, size) == 0)
        return 0;
    for (uint64_t k = size; k > 0; k--)
        if (j->buf[k - 1] != j->expected[k - 1]) {
            wrong++;
            first = k - 1;
        }
    if (before < SHOWN_ERRORS) {
        hex_of(want, j->expected + first, size - first);
        hex_of(got, j->buf + first, size - first);
        fprintf(stderr, "fpior: WRONG DATA: rank %d: %s: offset %llu: expected %s, got %s (%llu wrong bytes in the %llu from %llu, of task %d)\n",
            j->rank, f->path, (unsigned long long)(off + first), want, got, (unsigned long long)wrong, (unsigned long long)size,
            (unsigned long long)off, f->task);
    }
    if (j->p.quit_on_error)
        fatal(f, "ended by -q (quitOnError)");
    return 1;
}

/* With collective calls all end together: as rank 0 says. */
static bool time_over(const struct job *j, double deadline)
{
    int over = deadline > 0 && clock_now(j) > deadline;

    if (deadline > 0 && j->p.collective && !j->p.file_per_proc)
        MPI_Bcast(&over, 1, MPI_INT, 0, j->comm);
    return over;
}

static void rest(const struct job *j, bool timed)
{
    struct timespec t = { .tv_sec = (time_t)(j->p.delay_us / 1000000), .tv_nsec = (long)(j->p.delay_us % 1000000) * 1000 };

    if (timed && j->p.delay_us)
        nanosleep(&t, NULL);
}

/* Transfers of one task: all of it, or what was done within the deadline. Returns how many. */
static uint64_t transfers(struct job *j, struct file *f, enum phase phase, uint64_t from, uint64_t to, double deadline, double *filling)
{
    uint64_t size = j->pattern.transfer, wrong = 0, i;
    bool in_time = phase == PHASE_READ && j->p.check_read && !j->p.read;
    bool check = phase == PHASE_CHECK_WRITE || phase == PHASE_CHECK_READ || in_time;

    for (i = from; i < to; i++) {
        uint64_t off = pattern_offset(&j->pattern, f->task, i);
        double cpu = clock_of_thread();

        if (time_over(j, deadline))
            break;
        if (f->writing)
            pattern_fill(&j->pattern, f->task, off, j->buf, size);
        else if (check)
            memset(j->buf, 0xa5, size);
        *filling += clock_of_thread() - cpu;
        if (j->p.verbose >= 4)
            printf("fpior: rank %d: %s: %llu bytes at %llu of task %d\n", j->rank, phase_name(phase), (unsigned long long)size,
                   (unsigned long long)off, f->task);
        j->api->xfer(f, j->buf, off);
        if (f->writing && j->p.fsync_per_write)
            j->api->sync(f);
        rest(j, phase == PHASE_WRITE || phase == PHASE_READ);
        cpu = clock_of_thread();
        if (check && compare(j, f, off, i, wrong))
            wrong++;
        *filling += clock_of_thread() - cpu;
    }
    j->errors += wrong;
    return i - from;
}

/* With a deadline: as far as each came; with stoneWallingWearOut, then up to where the fastest came. */
static uint64_t all_transfers(struct job *j, struct file *f, enum phase phase, struct result *r, double *filling)
{
    uint64_t to = phase == PHASE_WRITE ? j->pattern.per_task : j->written[f->task], most_of_all = (uint64_t)j->p.wear_out_transfers, done, most;
    bool timed = phase == PHASE_WRITE || phase == PHASE_READ;
    double begun = clock_now(j), mine;

    if (most_of_all && most_of_all < to)
        to = most_of_all;
    done = transfers(j, f, phase, 0, to, timed && j->p.deadline_s ? begun + (double)j->p.deadline_s : 0, filling);
    if (!j->p.deadline_s || !timed)
        return done;
    mine = clock_now(j) - begun;
    MPI_Allreduce(&mine, &r->deadline_s, 1, MPI_DOUBLE, MPI_MAX, j->comm);
    r->deadline_bytes = (double)done * (double)j->pattern.transfer;
    if (!j->p.wear_out)
        return done;
    MPI_Allreduce(&done, &most, 1, MPI_UINT64_T, MPI_MAX, j->comm);
    return done + transfers(j, f, phase, done, most < to ? most : to, 0, filling);
}

static void barrier_if(struct job *j)
{
    if (j->p.barriers)
        MPI_Barrier(j->comm);
}

/* marks: begin and end of open, transfers, close. The job has its data already: what making it took is not counted. */
static uint64_t access_file(struct job *j, struct file *f, enum phase phase, double marks[6], struct result *r)
{
    double filling = 0;
    uint64_t done;

    MPI_Barrier(j->comm);
    marks[0] = clock_now(j);
    j->api->open(f);
    marks[1] = clock_now(j);
    barrier_if(j);
    marks[2] = clock_now(j);
    done = all_transfers(j, f, phase, r, &filling);
    marks[3] = clock_now(j) - filling;
    barrier_if(j);
    marks[4] = clock_now(j) - filling;
    if (f->writing && j->p.fsync)
        j->api->sync(f);
    j->api->close(f);
    marks[5] = clock_now(j) - filling;
    return done;
}

static void reduce(struct job *j, struct result *r, const double marks[6], uint64_t done)
{
    double first[6], last[6];
    double bytes = (double)done * (double)j->pattern.transfer, latency = done ? (marks[3] - marks[2]) / (double)done : 0;

    MPI_Allreduce(marks, first, 6, MPI_DOUBLE, MPI_MIN, j->comm);
    MPI_Allreduce(marks, last, 6, MPI_DOUBLE, MPI_MAX, j->comm);
    MPI_Allreduce(&bytes, &r->bytes, 1, MPI_DOUBLE, MPI_SUM, j->comm);
    MPI_Allreduce(MPI_IN_PLACE, &r->deadline_bytes, 1, MPI_DOUBLE, MPI_SUM, j->comm);
    r->deadline_bytes /= j->tasks;
    MPI_Allreduce(&latency, &r->latency_s, 1, MPI_DOUBLE, MPI_MAX, j->comm);
    r->open_s = last[1] - first[0];
    r->io_s = last[3] - first[2];
    r->close_s = last[5] - first[4];
    r->total_s = last[5] - first[0];
}

/* -z -z of a file that is there: of the blocks that it has. */
static void count_blocks(struct job *j, const char *path)
{
    struct stat st;

    if (j->pattern.any_order && stat(path, &st) == 0 && (j->api == &io_posix || j->api == &io_mpiio))
        j->pattern.there = (uint64_t)st.st_size / j->pattern.block;
}

void phase_run(struct job *j, enum phase phase, int repetition)
{
    struct result r = { .phase = phase, .repetition = repetition };
    struct file f = { .job = j, .comm = j->p.file_per_proc ? MPI_COMM_SELF : j->comm, .writing = phase == PHASE_WRITE };
    double marks[6];
    char path[4096];
    uint64_t done;

    if (j->p.delay_s && (phase == PHASE_WRITE || phase == PHASE_READ))
        sleep((unsigned)j->p.delay_s);
    f.task = phase == PHASE_WRITE ? j->rank : job_reads_of(j, j->rank);
    path_of(j, f.task, repetition, path);
    f.path = path;
    if (phase == PHASE_WRITE && !j->p.use_existing)
        remove_own(j, repetition, false);
    if (j->p.verbose >= 3)
        printf("fpior: rank %d: %s of %s, data of task %d\n", j->rank, phase_name(phase), path, f.task);
    if (phase != PHASE_WRITE)
        count_blocks(j, path);
    done = access_file(j, &f, phase, marks, &r);
    if (phase == PHASE_WRITE)
        MPI_Allgather(&done, 1, MPI_UINT64_T, j->written, 1, MPI_UINT64_T, j->comm);
    reduce(j, &r, marks, done);
    if (phase == PHASE_WRITE || phase == PHASE_READ)
        ranks_result(j, &r, marks);
    if (j->rank == 0)
        report_result(j, &r);
}
