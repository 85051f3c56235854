/* What rank 0 prints: IOR's head, table and summary, so that what reads IOR's output reads this. With summaryFormat=JSON, report_json.c instead. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>

#include "fpior.h"

#define MIB 1048576.0

static const struct {
	enum phase phase;
	const char *name;
} phases[] = {
	{ PHASE_WRITE, "write" }, { PHASE_CHECK_WRITE, "check write" }, { PHASE_READ, "read" }, { PHASE_CHECK_READ, "check read" },
	{ PHASE_REMOVE, "remove" },
};

const char *phase_name(enum phase phase)
{
	return phases[phase].name;
}

double result_mibs(const struct result *r)
{
	return r->total_s > 0 ? r->bytes / MIB / r->total_s : 0;
}

static double rate(const struct job *j, const struct result *r)
{
	return r->io_s > 0 ? r->bytes / (double)j->pattern.transfer / r->io_s : 0;
}

struct summary summary_of(const struct job *j, enum phase phase)
{
	struct summary s = { 0 };
	double squares = 0, squares_ops = 0;

	for (int i = 0; i < j->result_count; i++) {
		const struct result *r = &j->results[i];
		double bw = result_mibs(r), ops = rate(j, r);

		if (r->phase != phase)
			continue;
		s.max = !s.count || bw > s.max ? bw : s.max;
		s.min = !s.count || bw < s.min ? bw : s.min;
		s.max_ops = !s.count || ops > s.max_ops ? ops : s.max_ops;
		s.min_ops = !s.count || ops < s.min_ops ? ops : s.min_ops;
		s.mean += bw;
		s.mean_ops += ops;
		s.mean_s += r->total_s;
		s.deadline_s += r->deadline_s;
		squares += bw * bw;
		squares_ops += ops * ops;
		s.count++;
	}
	if (!s.count)
		return s;
	s.mean /= s.count;
	s.mean_ops /= s.count;
	s.mean_s /= s.count;
	s.deadline_s /= s.count;
	s.deviation = sqrt(fmax(0, squares / s.count - s.mean * s.mean));
	s.deviation_ops = sqrt(fmax(0, squares_ops / s.count - s.mean_ops * s.mean_ops));
	return s;
}

static bool in_json(const struct job *j)
{
	return strcasecmp(j->p.summary_format, "JSON") == 0;
}

static void line(const char *name, const char *text)
{
	printf("%-20s: %s\n", name, text);
}

static void line_size(const char *name, double bytes)
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
	char text[64];
	int unit = 0;

	for (; bytes >= 1024 && unit < 4; unit++)
		bytes /= 1024;
	snprintf(text, sizeof text, bytes == floor(bytes) ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
	line(name, text);
}

static void line_number(const char *name, long long n)
{
	printf("%-20s: %lld\n", name, n);
}

static void print_place(const struct job *j)
{
	char dir[4096], *slash;
	struct statvfs v;

	snprintf(dir, sizeof dir, "%s", j->p.test_file);
	slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = '\0';
	else
		snprintf(dir, sizeof dir, ".");
	line("Path", dir);
	if (statvfs(dir, &v) == 0 && v.f_blocks)
		printf("%-20s: %.1f GiB   Used FS: %.1f%%\n", "FS", (double)v.f_blocks * (double)v.f_frsize / MIB / 1024,
		       100.0 * (double)(v.f_blocks - v.f_bfree) / (double)v.f_blocks);
}

static void print_options(const struct job *j)
{
	const struct params *p = &j->p;

	printf("\nOptions: \n");
	line("api", j->api->name);
	line("apiVersion", j->api->version());
	line("test filename", p->test_file);
	line("access", p->file_per_proc ? "file-per-process" : "single-shared-file");
	line("type", p->collective ? "collective" : "independent");
	line_number("segments", p->segment_count);
	line("ordering in a file", p->random_offset ? "random" : "sequential");
	line("ordering inter file", p->reorder ? "constant task offset" : p->reorder_random ? "random task offset" : "no tasks offsets");
	if (p->reorder)
		line_number("task offset", j->shift);
	line_number("nodes", j->nodes);
	line_number("tasks", j->tasks);
	line_number("clients per node", j->tasks_per_node);
	line_number("repetitions", p->repetitions);
	line_size("xfersize", (double)p->transfer_size);
	line_size("blocksize", (double)p->block_size);
	line_size("aggregate filesize", (double)p->block_size * (double)p->segment_count * j->tasks);
	if (p->deadline_s)
		line_number("stonewallingTime", p->deadline_s);
}

void report_begin(struct job *j)
{
	struct utsname host;
	char when[64];

	if (in_json(j))
		return;
	strftime(when, sizeof when, "%a %b %e %H:%M:%S %Y", localtime(&j->began));
	printf("fpior-%s: MPI Coordinated Test of Parallel I/O\n", FP_VERSION);
	line("Began", when);
	printf("%-20s:", "Command line");
	for (char **a = j->argv; *a; a++)
		printf(" %s", *a);
	printf("\n");
	if (uname(&host) == 0)
		printf("%-20s: %s %s\n", "Machine", host.sysname, host.nodename);
	line("TestID", "0");
	line("StartTime", when);
	print_place(j);
	print_options(j);
	printf("\nResults: \n\n");
	printf("%-10s%-11s%-11s%-12s%-11s%-11s%-11s%-11s%-11s%-11s%s\n", "access", "bw(MiB/s)", "IOPS", "Latency(s)", "block(KiB)", "xfer(KiB)",
	       "open(s)", "wr/rd(s)", "close(s)", "total(s)", "iter");
	printf("%-10s%-11s%-11s%-12s%-11s%-11s%-11s%-11s%-11s%-11s%s\n", "------", "---------", "----", "----------", "----------", "---------",
	       "--------", "--------", "--------", "--------", "----");
	fflush(stdout);
}

static void print_figure(double x, int width)
{
	char text[32];

	snprintf(text, sizeof text, x >= 1000 ? "%.0f" : x >= 1 ? "%.2f" : "%.6f", x);
	printf("%-*s", width, text);
}

static void print_row(const struct job *j, const struct result *r)
{
	const double cells[] = { result_mibs(r), rate(j, r), r->latency_s, (double)j->pattern.block / 1024, (double)j->pattern.transfer / 1024,
				 r->open_s, r->io_s, r->close_s, r->total_s };
	const int widths[] = { 11, 11, 12, 11, 11, 11, 11, 11, 11 };

	printf("%-10s", phase_name(r->phase));
	for (int i = 0; i < 9; i++)
		if (r->phase == PHASE_REMOVE && i < 8)
			printf("%-*s", widths[i], "-");
		else
			print_figure(cells[i], widths[i]);
	printf("%d\n", r->repetition);
}

void report_result(struct job *j, const struct result *r)
{
	bool timed = r->phase == PHASE_WRITE || r->phase == PHASE_READ;

	if (timed)
		j->results[j->result_count++] = *r;
	if (in_json(j))
		return;
	if (timed || r->phase == PHASE_REMOVE)
		print_row(j, r);
	else if (j->p.verbose >= 1)
		printf("%s: %.0f bytes compared, iteration %d\n", phase_name(r->phase), r->bytes, r->repetition);
	fflush(stdout);
}

static void print_summary_row(const struct job *j, enum phase phase, FILE *out)
{
	const struct params *p = &j->p;
	struct summary s = summary_of(j, phase);

	if (!s.count)
		return;
	fprintf(out, "%-9s %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %10.5f ", phase_name(phase), s.max, s.min, s.mean, s.deviation,
		s.max_ops, s.min_ops, s.mean_ops, s.deviation_ops, s.mean_s);
	if (p->deadline_s)
		fprintf(out, "%12.2f ", s.deadline_s);
	else
		fprintf(out, "%12s ", "NA");
	fprintf(out, "%5d %6d %3d %4lld %3lld %5lld %8d %9lld %4lld %6lld %8lld %8lld %9.1f %-7s %6lld\n", 0, j->tasks, j->tasks_per_node,
		(long long)p->repetitions, (long long)p->file_per_proc, (long long)p->reorder, j->shift, (long long)p->reorder_random,
		(long long)p->order_seed, (long long)p->segment_count, (long long)p->block_size, (long long)p->transfer_size,
		(double)p->block_size * (double)p->segment_count * j->tasks / MIB, j->api->name, (long long)p->ref_num);
}

static void print_summary(const struct job *j, FILE *out)
{
	struct summary w = summary_of(j, PHASE_WRITE), r = summary_of(j, PHASE_READ);

	if (w.count)
		fprintf(out, "Max Write: %.2f MiB/sec (%.2f MB/sec)\n", w.max, w.max * MIB / 1e6);
	if (r.count)
		fprintf(out, "Max Read:  %.2f MiB/sec (%.2f MB/sec)\n", r.max, r.max * MIB / 1e6);
	fprintf(out, "\nSummary of all tests:\n");
	fprintf(out, "%-9s %10s %10s %10s %10s %10s %10s %10s %10s %10s %12s %5s %6s %3s %4s %3s %5s %8s %9s %4s %6s %8s %8s %9s %-7s %6s\n", "Operation",
		"Max(MiB)", "Min(MiB)", "Mean(MiB)", "StdDev", "Max(OPs)", "Min(OPs)", "Mean(OPs)", "StdDev", "Mean(s)", "Stonewall(s)", "Test#",
		"#Tasks", "tPN", "reps", "fPP", "reord", "reordoff", "reordrand", "seed", "segcnt", "blksiz", "xsize", "aggs(MiB)", "API", "RefNum");
	print_summary_row(j, PHASE_WRITE, out);
	print_summary_row(j, PHASE_READ, out);
}

void report_end(struct job *j, uint64_t errors)
{
	FILE *out = j->p.summary_file ? fopen(j->p.summary_file, "w") : stdout;
	time_t now = time(NULL);

	if (!out)
		fatal(&(struct file){ .job = j, .path = j->p.summary_file }, "the summary cannot be written there");
	if (in_json(j))
		report_json(j, out);
	else
		print_summary(j, out);
	if (out != stdout && fclose(out) != 0)
		fatal(&(struct file){ .job = j, .path = j->p.summary_file }, "the summary could not be written");
	if (errors)
		fprintf(stderr, "fpior: WRONG DATA in %llu transfers\n", (unsigned long long)errors);
	if (!in_json(j))
		printf("Finished            : %s", ctime(&now));
	fflush(stdout);
}
