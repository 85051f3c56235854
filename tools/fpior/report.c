/* What rank 0 prints: IOR's head and table, so that what reads IOR's output reads this; or IOR's CSV. Summary and JSON: report_summary.c, report_json.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>

#include "fpior.h"

#define MIB 1048576.0
#define GIB (MIB * 1024)

static const struct {
    enum phase phase;
    const char *name;
} phases[] = {
    { PHASE_WRITE, "write" }, { PHASE_CHECK_WRITE, "check write" }, { PHASE_READ, "read" }, { PHASE_CHECK_READ, "check read" },
    { PHASE_REMOVE, "remove" },
};

static FILE *out;               /* summaryFile, or stdout; the first test says which, as it does for the format */
static enum { TABLE, JSON, CSV } format;

const char *phase_name(enum phase phase)
{
    return phases[phase].name;
}

double result_mibs(const struct result *r)
{
    return r->total_s > 0 ? r->bytes / MIB / r->total_s : 0;
}

double result_ops(const struct job *j, const struct result *r)
{
    return r->io_s > 0 ? r->bytes / (double)j->pattern.transfer / r->io_s : 0;
}

static void line(const char *name, const char *text)
{
    fprintf(out, "%-20s: %s\n", name, text);
}

void report_size(char text[32], double bytes)
{
    static const char *const units[] = { "MiB", "GiB", "TiB" };
    int unit = -1;

    for (double limit = MIB; unit < 2 && bytes >= limit; limit *= 1024)
        unit++;
    if (unit < 0) {
        snprintf(text, 32, "%.0f bytes", bytes);
        return;
    }
    bytes /= pow(1024, unit + 2);
    snprintf(text, 32, bytes == floor(bytes) ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
}

static void line_size(const char *name, double bytes)
{
    char text[32];

    report_size(text, bytes);
    line(name, text);
}

static void line_number(const char *name, long long n)
{
    fprintf(out, "%-20s: %lld\n", name, n);
}

void report_place(const struct job *j, FILE *to, bool json)
{
    const char *path = j->p.test_file;
    char dir[4096], *slash;
    struct statvfs v;
    double part, inodes;

    snprintf(dir, sizeof dir, "%s", path);
    slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = '\0';
    else
        snprintf(dir, sizeof dir, ".");
    if (!json)
        fprintf(to, "%-20s: %s\n", "Path", path);
    if (statvfs(dir, &v) != 0 || !v.f_blocks)
        return;
    part = 100.0 * (double)(v.f_blocks - v.f_bfree) / (double)v.f_blocks;
    inodes = v.f_files ? 100.0 * (double)(v.f_files - v.f_ffree) / (double)v.f_files : 0;
    fprintf(to, json ? "\"Capacity\": \"%.1f GiB\", \"Used Capacity\": \"%.1f%%\", \"Inodes\": \"%.1f Mi\", \"Used Inodes\": \"%.1f%%\", " :
               "FS                  : %.1f GiB   Used FS: %.1f%%   Inodes: %.1f Mi   Used Inodes: %.1f%%\n",
        (double)v.f_blocks * (double)v.f_frsize / GIB, part, (double)v.f_files / MIB, inodes);
}

static void print_options(const struct job *j)
{
    const struct params *p = &j->p;

    fprintf(out, "\nOptions: \n");
    line("api", j->api->name);
    line("apiVersion", j->api->version());
    line("test filename", p->test_file);
    line("access", p->file_per_proc ? "file-per-process" : "single-shared-file");
    line("type", p->collective ? "collective" : "independent");
    line_number("segments", p->segment_count);
    line("ordering in a file", p->random_offset ? "random" : "sequential");
    line("ordering inter file", p->reorder ? "constant task offset" : p->reorder_random ? "random task offset" : "no tasks offsets");
    if (p->reorder || p->reorder_random)
        line_number("task offset", p->task_offset);
    if (p->reorder)
        line_number("ranks shifted by", j->shift);
    if (p->reorder_random)
        line_number("reorder random seed", p->order_seed);
    line_number("nodes", j->nodes);
    line_number("tasks", j->tasks);
    line_number("clients per node", j->tasks_per_node);
    if (p->memory_per_task)
        line_size("memoryPerTask", (double)p->memory_per_task);
    if (p->memory_per_node)
        line("memoryPerNode", p->memory_per_node);
    line("memoryBuffer", "CPU");
    line("dataAccess", "CPU");
    line("GPUDirect", "0");
    line_number("repetitions", p->repetitions);
    line_size("xfersize", (double)p->transfer_size);
    line_size("blocksize", (double)p->block_size);
    line_size("aggregate filesize", (double)p->block_size * (double)p->segment_count * j->tasks);
    if (p->verbose)
        line_number("verbose", p->verbose);
    if (p->deadline_s) {
        line_number("stonewallingTime", p->deadline_s);
        line_number("stoneWallingWearOut", p->wear_out);
    }
}

static void when_text(char text[64], time_t t)
{
    strftime(text, 64, "%a %b %e %H:%M:%S %Y", localtime(&t));
}

void report_open(struct job *first)
{
    const struct params *p = &first->p;
    time_t now = time(NULL);
    struct utsname host;
    char when[64];

    format = strcasecmp(p->summary_format, "JSON") == 0 ? JSON : strcasecmp(p->summary_format, "CSV") == 0 ? CSV : TABLE;
    out = p->summary_file ? fopen(p->summary_file, "w") : stdout;
    if (!out)
        fatal(&(struct file){ .job = first, .path = p->summary_file }, "results cannot be written there");
    if (format == CSV)
        fprintf(out, "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),numTasks,iter\n");
    if (format != TABLE)
        return;
    when_text(when, now);
    fprintf(out, "fpior-%s: MPI Coordinated Test of Parallel I/O\n", FP_VERSION);
    line("Began", when);
    fprintf(out, "%-20s:", "Command line");
    for (char **a = first->argv; *a; a++)
        fprintf(out, " %s", *a);
    fprintf(out, "\n");
    if (uname(&host) == 0)
        fprintf(out, "%-20s: %s %s\n", "Machine", host.sysname, host.nodename);
}

void report_begin(struct job *j)
{
    char when[64];

    if (format != TABLE)
        return;
    when_text(when, j->began);
    if (j->id)
        fprintf(out, "\n");
    line_number("TestID", j->id);
    line("StartTime", when);
    report_place(j, out, false);
    print_options(j);
    fprintf(out, "\nResults: \n\n");
    fprintf(out, "%-10s%-11s%-11s%-12s%-11s%-11s%-11s%-11s%-11s%-11s%s\n", "access", "bw(MiB/s)", "IOPS", "Latency(s)", "block(KiB)", "xfer(KiB)",
        "open(s)", "wr/rd(s)", "close(s)", "total(s)", "iter");
    fprintf(out, "%-10s%-11s%-11s%-12s%-11s%-11s%-11s%-11s%-11s%-11s%s\n", "------", "---------", "----", "----------", "----------", "---------",
        "--------", "--------", "--------", "--------", "----");
    fflush(out);
}

static void print_figure(double x, int width)
{
    char text[32];

    snprintf(text, sizeof text, "%.*f", x < 1 ? 6 : x < 3600 ? 2 : 0, x);
    fprintf(out, "%-*s", width, text);
}

static void print_row(const struct job *j, const struct result *r)
{
    const double cells[] = { result_mibs(r), result_ops(j, r), r->latency_s, (double)j->pattern.block / 1024, (double)j->pattern.transfer / 1024,
                 r->open_s, r->io_s, r->close_s, r->total_s };
    const int widths[] = { 11, 11, 12, 11, 11, 11, 11, 11, 11 };

    if (format == CSV) {
        fprintf(out, "%s,%.4f,%.4f,%.6f,%.4f,%.4f,%.6f,%.6f,%.6f,%.6f,%d,%d\n", phase_name(r->phase), cells[0], cells[1], cells[2], cells[3],
            cells[4], cells[5], cells[6], cells[7], cells[8], j->tasks, r->repetition);
        return;
    }
    fprintf(out, "%-10s", phase_name(r->phase));
    for (int i = 0; i < 9; i++)
        if (r->phase == PHASE_REMOVE && i < 8)
            fprintf(out, "%-*s", widths[i], "-");
        else
            print_figure(cells[i], widths[i]);
    fprintf(out, "%d\n", r->repetition);
}

void report_result(struct job *j, const struct result *r)
{
    bool timed = r->phase == PHASE_WRITE || r->phase == PHASE_READ;

    if (timed)
        j->results[j->result_count++] = *r;
    if ((timed && format != JSON) || (r->phase == PHASE_REMOVE && format == TABLE && j->p.verbose))
        print_row(j, r);
    else if (r->phase != PHASE_REMOVE && format == TABLE && j->p.verbose)
        fprintf(out, "%s: %.0f bytes compared, iteration %d\n", phase_name(r->phase), r->bytes, r->repetition);
    fflush(out);
}

void report_test_end(const struct job *j)
{
    struct summary w = summary_of(j, PHASE_WRITE), r = summary_of(j, PHASE_READ);

    if (format == TABLE && w.count)
        fprintf(out, "Max Write: %.2f MiB/sec (%.2f MB/sec)\n", w.max, w.max * MIB / 1e6);
    if (format == TABLE && r.count)
        fprintf(out, "Max Read:  %.2f MiB/sec (%.2f MB/sec)\n", r.max, r.max * MIB / 1e6);
}

void report_close(const struct job *tests, int count, uint64_t errors)
{
    time_t now = time(NULL);

    if (format == JSON)
        report_json(tests, count, out);
    if (format == TABLE) {
        report_summary(tests, count, out);
        fprintf(out, "Finished            : %s", ctime(&now));
    }
    if (out != stdout ? fclose(out) != 0 : fflush(out) != 0)
        fatal(&(struct file){ .job = &tests[0], .path = tests[0].p.summary_file ? tests[0].p.summary_file : "stdout" },
              "results could not be written");
    if (errors)
        fprintf(stderr, "fpior: WRONG DATA in %llu transfers\n", (unsigned long long)errors);
}
