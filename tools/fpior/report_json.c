/* The summary as one JSON object, with the keys of IOR's summaryFormat=JSON. Written by hand: no library for thirty lines that only print. */
#include <string.h>
#include <sys/utsname.h>

#include "fpior.h"

static void text(FILE *out, const char *s)
{
	putc('"', out);
	for (; *s; s++)
		if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if ((unsigned char)*s < 32)
			fprintf(out, "\\u%04x", *s);
		else
			putc(*s, out);
	putc('"', out);
}

static void pair(FILE *out, const char *key, const char *value)
{
	fprintf(out, "\"%s\": ", key);
	text(out, value);
	fputs(", ", out);
}

static void pair_number(FILE *out, const char *key, long long n, const char *behind)
{
	fprintf(out, "\"%s\": %lld%s", key, n, behind);
}

static void options(const struct job *j, FILE *out)
{
	const struct params *p = &j->p;

	fputs("\"Options\": {", out);
	pair(out, "api", j->api->name);
	pair(out, "apiVersion", j->api->version());
	pair(out, "test filename", p->test_file);
	pair(out, "access", p->file_per_proc ? "file-per-process" : "single-shared-file");
	pair(out, "type", p->collective ? "collective" : "independent");
	pair_number(out, "segments", p->segment_count, ", ");
	pair(out, "ordering in a file", p->random_offset ? "random" : "sequential");
	pair(out, "ordering inter file", p->reorder ? "constant task offset" : p->reorder_random ? "random task offset" : "no tasks offsets");
	pair_number(out, "task offset", j->shift, ", ");
	pair_number(out, "nodes", j->nodes, ", ");
	pair_number(out, "tasks", j->tasks, ", ");
	pair_number(out, "clients per node", j->tasks_per_node, ", ");
	pair_number(out, "repetitions", p->repetitions, ", ");
	pair_number(out, "xfersize", p->transfer_size, ", ");
	pair_number(out, "blocksize", p->block_size, ", ");
	pair_number(out, "aggregate filesize", p->block_size * p->segment_count * j->tasks, "},\n");
}

static void results(const struct job *j, FILE *out)
{
	fputs("\"Results\": [", out);
	for (int i = 0; i < j->result_count; i++) {
		const struct result *r = &j->results[i];
		double ops = r->io_s > 0 ? r->bytes / (double)j->pattern.transfer / r->io_s : 0;

		fprintf(out, "%s{\"access\": \"%s\", \"bwMiB\": %.4f, \"blockKiB\": %.4f, \"xferKiB\": %.4f, \"iops\": %.4f, \"latency\": %.6f, "
			"\"openTime\": %.6f, \"wrRdTime\": %.6f, \"closeTime\": %.6f, \"totalTime\": %.6f, \"bytes\": %.0f, \"iter\": %d}",
			i ? ",\n  " : "", phase_name(r->phase), result_mibs(r), (double)j->pattern.block / 1024, (double)j->pattern.transfer / 1024, ops,
			r->latency_s, r->open_s, r->io_s, r->close_s, r->total_s, r->bytes, r->repetition);
	}
	fputs("]", out);
}

static void summary(const struct job *j, enum phase phase, FILE *out, const char *before)
{
	const struct params *p = &j->p;
	struct summary s = summary_of(j, phase);

	fputs(before, out);
	fprintf(out, "{\"operation\": \"%s\", ", phase_name(phase));
	pair(out, "API", j->api->name);
	fputs("\"TestID\": 0, ", out);
	pair_number(out, "ReferenceNumber", p->ref_num, ", ");
	pair_number(out, "segmentCount", p->segment_count, ", ");
	pair_number(out, "blockSize", p->block_size, ", ");
	pair_number(out, "transferSize", p->transfer_size, ", ");
	pair_number(out, "numTasks", j->tasks, ", ");
	pair_number(out, "tasksPerNode", j->tasks_per_node, ", ");
	pair_number(out, "repetitions", p->repetitions, ", ");
	pair_number(out, "filePerProc", p->file_per_proc, ", ");
	pair_number(out, "reorderTasks", p->reorder, ", ");
	pair_number(out, "taskPerNodeOffset", p->task_offset, ", ");
	pair_number(out, "reorderTasksRandom", p->reorder_random, ", ");
	pair_number(out, "reorderTasksRandomSeed", p->order_seed, ", ");
	fprintf(out, "\"bwMaxMIB\": %.4f, \"bwMinMIB\": %.4f, \"bwMeanMIB\": %.4f, \"bwStdMIB\": %.4f, "
		"\"OPsMax\": %.4f, \"OPsMin\": %.4f, \"OPsMean\": %.4f, \"OPsSD\": %.4f, \"MeanTime\": %.6f, \"xsizeMiB\": %.4f",
		s.max, s.min, s.mean, s.deviation, s.max_ops, s.min_ops, s.mean_ops, s.deviation_ops, s.mean_s,
		(double)p->block_size * (double)p->segment_count * j->tasks / 1048576);
	if (p->deadline_s)
		fprintf(out, ", \"StoneWallTime\": %.4f", s.deadline_s);
	fputs("}", out);
}

void report_json(const struct job *j, FILE *out)
{
	struct utsname host;
	time_t now = time(NULL);
	char when[64];
	bool wrote = summary_of(j, PHASE_WRITE).count > 0;

	fputs("{", out);
	pair(out, "Version", "fpior-" FP_VERSION);
	strftime(when, sizeof when, "%a %b %e %H:%M:%S %Y", localtime(&j->began));
	pair(out, "Began", when);
	fputs("\"Command line\": \"", out);
	for (char **a = j->argv; *a; a++) {
		for (const char *c = *a; *c; c++)
			fprintf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
		fputs(a[1] ? " " : "\",\n", out);
	}
	pair(out, "Machine", uname(&host) == 0 ? host.nodename : "");
	fputs("\n\"tests\": [{\"TestID\": 0, ", out);
	pair(out, "StartTime", when);
	options(j, out);
	results(j, out);
	fprintf(out, ",\n\"max\": [{\"writeMiB\": %.4f, \"readMiB\": %.4f}]}],\n\"summary\": [", summary_of(j, PHASE_WRITE).max,
		summary_of(j, PHASE_READ).max);
	if (wrote)
		summary(j, PHASE_WRITE, out, "");
	if (summary_of(j, PHASE_READ).count)
		summary(j, PHASE_READ, out, wrote ? ",\n  " : "");
	strftime(when, sizeof when, "%a %b %e %H:%M:%S %Y", localtime(&now));
	fprintf(out, "],\n\"Finished\": \"%s\"}\n", when);
}
