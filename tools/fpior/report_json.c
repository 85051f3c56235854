/* The run as one JSON object, with the keys of IOR's summaryFormat=JSON. Written by hand: no library for what only prints. */
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "fpior.h"

#define MIB 1048576.0

static void escaped(FILE *out, const char *s)
{
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if ((unsigned char)*s < 32)
            fprintf(out, "\\u%04x", *s);
        else
            putc(*s, out);
}

static void text(FILE *out, const char *s)
{
    putc('"', out);
    escaped(out, s);
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

static void pair_size(FILE *out, const char *key, double bytes, const char *behind)
{
    char size[32];

    report_size(size, bytes);
    fprintf(out, "\"%s\": \"%s\"%s", key, size, behind);
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
    pair_number(out, "task offset", p->task_offset, ", ");
    pair_number(out, "ranks shifted by", j->shift, ", ");
    pair_number(out, "nodes", j->nodes, ", ");
    pair_number(out, "tasks", j->tasks, ", ");
    pair_number(out, "clients per node", j->tasks_per_node, ", ");
    pair(out, "memoryBuffer", "CPU");
    pair(out, "dataAccess", "CPU");
    pair(out, "GPUDirect", "0");
    pair_number(out, "repetitions", p->repetitions, ", ");
    pair_size(out, "xfersize", (double)p->transfer_size, ", ");
    pair_size(out, "blocksize", (double)p->block_size, ", ");
    pair_size(out, "aggregate filesize", (double)p->block_size * (double)p->segment_count * j->tasks, "},\n");
}

static void parameters(const struct job *j, FILE *out)
{
    const struct params *p = &j->p;
    const struct { const char *key; int64_t value; } numbers[] = {
        { "testID", j->id }, { "refnum", p->ref_num }, { "deadlineForStonewall", p->deadline_s }, { "stoneWallingWearOut", p->wear_out },
        { "maxTimeDuration", p->max_minutes }, { "outlierThreshold", p->outlier_s }, { "nodes", j->nodes },
        { "memoryPerTask", p->memory_per_task }, { "tasksPerNode", j->tasks_per_node }, { "repetitions", p->repetitions },
        { "multiFile", p->multi_file }, { "interTestDelay", p->delay_s }, { "fsync", p->fsync }, { "fsyncperwrite", p->fsync_per_write },
        { "useExistingTestFile", p->use_existing }, { "uniqueDir", p->unique_dir }, { "singleXferAttempt", p->single_attempt },
        { "readFile", p->read }, { "writeFile", p->write }, { "filePerProc", p->file_per_proc }, { "reorderTasks", p->reorder },
        { "reorderTasksRandom", p->reorder_random }, { "reorderTasksRandomSeed", p->order_seed }, { "randomOffset", p->random_offset },
        { "checkWrite", p->check_write }, { "checkRead", p->check_read }, { "dataPacketType", (int64_t)j->pattern.packet },
        { "keepFile", p->keep }, { "keepFileWithError", p->keep_with_error }, { "verbose", p->verbose },
        { "setTimeStampSignature/incompressibleSeed", p->signature }, { "collective", p->collective }, { "segmentCount", p->segment_count },
        { "transferSize", p->transfer_size },
    };

    fputs("\"Parameters\": {", out);
    pair(out, "api", j->api->name);
    pair(out, "testFileName", p->test_file);
    pair(out, "data packet type", p->packet);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        pair_number(out, numbers[i].key, numbers[i].value, ", ");
    pair_number(out, "blockSize", p->block_size, "},\n");
}

static void results(const struct job *j, FILE *out)
{
    fputs("\"Results\": [", out);
    for (int i = 0; i < j->result_count; i++) {
        const struct result *r = &j->results[i];

        fprintf(out, "%s{\"access\": \"%s\", \"bwMiB\": %.4f, \"blockKiB\": %.4f, \"xferKiB\": %.4f, \"iops\": %.4f, \"latency\": %.6f, "
            "\"openTime\": %.6f, \"wrRdTime\": %.6f, \"closeTime\": %.6f, \"totalTime\": %.6f, \"bytes\": %.0f, \"iter\": %d}",
            i ? ",\n  " : "", phase_name(r->phase), result_mibs(r), (double)j->pattern.block / 1024, (double)j->pattern.transfer / 1024, result_ops(j, r),
            r->latency_s, r->open_s, r->io_s, r->close_s, r->total_s, r->bytes, r->repetition);
    }
    fputs("]", out);
}

static void summary(const struct job *j, enum phase phase, FILE *out, const char **before)
{
    const struct params *p = &j->p;
    struct summary s = summary_of(j, phase);

    if (!s.count)
        return;
    fprintf(out, "%s{\"operation\": \"%s\", ", *before, phase_name(phase));
    *before = ",\n  ";
    pair(out, "API", j->api->name);
    pair_number(out, "TestID", j->id, ", ");
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
        s.max, s.min, s.mean, s.deviation, s.max_ops, s.min_ops, s.mean_ops, s.deviation_ops, s.mean_s, s.bytes / MIB);
    if (p->deadline_s)
        fprintf(out, ", \"StoneWallTime\": %.4f, \"StoneWallbwMeanMIB\": %.4f", s.deadline_s, s.deadline_mibs);
    fputs("}", out);
}

static void when(FILE *out, const char *key, time_t t, const char *behind)
{
    char text[64];

    strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", localtime(&t));
    fprintf(out, "\"%s\": \"%s\"%s", key, text, behind);
}

static void test(const struct job *j, FILE *out)
{
    double w = summary_of(j, PHASE_WRITE).max, r = summary_of(j, PHASE_READ).max;

    fputs("{", out);
    pair_number(out, "TestID", j->id, ", ");
    when(out, "StartTime", j->began, ", ");
    pair(out, "Path", j->p.test_file);
    report_place(j, out, true);
    fputs("\n", out);
    parameters(j, out);
    options(j, out);
    results(j, out);
    fprintf(out, ",\n\"max\": {\"writeMiB\": %.4f, \"writeMB\": %.4f, \"readMiB\": %.4f, \"readMB\": %.4f}}", w, w * MIB / 1e6, r, r * MIB / 1e6);
}

void report_json(const struct job *tests, int count, FILE *out)
{
    const char *before = "";
    struct utsname host;
    char machine[200] = "";

    if (uname(&host) == 0)
        snprintf(machine, sizeof machine, "%s %s", host.sysname, host.nodename);
    fputs("{", out);
    pair(out, "Version", "fpior-" FP_VERSION);
    when(out, "Began", tests[0].began, ", ");
    fputs("\"Command line\": \"", out);
    for (char **a = tests[0].argv; *a; a++) {
        escaped(out, *a);
        fputs(a[1] ? " " : "\",\n", out);
    }
    pair(out, "Machine", machine);
    fputs("\n\"tests\": [", out);
    for (int i = 0; i < count; i++) {
        fputs(i ? ",\n" : "", out);
        test(&tests[i], out);
    }
    fputs("],\n\"summary\": [", out);
    for (int i = 0; i < count; i++) {
        summary(&tests[i], PHASE_WRITE, out, &before);
        summary(&tests[i], PHASE_READ, out, &before);
    }
    fputs("],\n", out);
    when(out, "Finished", time(NULL), "}\n");
}
