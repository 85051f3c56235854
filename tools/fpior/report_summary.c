/* The figures of all repetitions of a phase, and IOR's "Summary of all tests" of them. Called by report.c and report_json.c, on rank 0. */
#include <math.h>

#include "fpior.h"

#define MIB 1048576.0

static void add(struct summary *s, double bw, double ops)
{
    s->max = !s->count || bw > s->max ? bw : s->max;
    s->min = !s->count || bw < s->min ? bw : s->min;
    s->max_ops = !s->count || ops > s->max_ops ? ops : s->max_ops;
    s->min_ops = !s->count || ops < s->min_ops ? ops : s->min_ops;
    s->mean += bw;
    s->mean_ops += ops;
    s->count++;
}

/* Operations are counted by the whole time, open to close, as in IOR; those of a row by wr/rd(s). */
struct summary summary_of(const struct job *j, enum phase phase)
{
    struct summary s = { 0 };
    double squares = 0, squares_ops = 0, deadline_bytes = 0;

    for (int i = 0; i < j->result_count; i++) {
        const struct result *r = &j->results[i];
        double bw = result_mibs(r), ops = bw * MIB / (double)j->pattern.transfer;

        if (r->phase != phase)
            continue;
        if (!s.count)
            s.bytes = r->bytes;
        add(&s, bw, ops);
        s.mean_s += r->total_s;
        s.deadline_s += r->deadline_s;
        deadline_bytes += r->deadline_bytes;
        squares += bw * bw;
        squares_ops += ops * ops;
    }
    if (!s.count)
        return s;
    s.deadline_mibs = s.deadline_s > 0 ? deadline_bytes / MIB / s.deadline_s : 0;
    s.mean /= s.count;
    s.mean_ops /= s.count;
    s.mean_s /= s.count;
    s.deadline_s /= s.count;
    s.deviation = sqrt(fmax(0, squares / s.count - s.mean * s.mean));
    s.deviation_ops = sqrt(fmax(0, squares_ops / s.count - s.mean_ops * s.mean_ops));
    return s;
}

static void row(const struct job *j, enum phase phase, FILE *out)
{
    const struct params *p = &j->p;
    struct summary s = summary_of(j, phase);

    if (!s.count)
        return;
    fprintf(out, "%-9s %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %10.5f ", phase_name(phase), s.max, s.min, s.mean, s.deviation,
        s.max_ops, s.min_ops, s.mean_ops, s.deviation_ops, s.mean_s);
    if (p->deadline_s)
        fprintf(out, "%12.2f %14.2f ", s.deadline_s, s.deadline_mibs);
    else
        fprintf(out, "%12s %14s ", "NA", "NA");
    fprintf(out, "%5d %6d %3d %4lld %3lld %5lld %8lld %9lld %4lld %6lld %8lld %8lld %9.1f %-7s %6lld\n", j->id, j->tasks, j->tasks_per_node,
        (long long)p->repetitions, (long long)p->file_per_proc, (long long)p->reorder, (long long)p->task_offset, (long long)p->reorder_random,
        (long long)p->order_seed, (long long)p->segment_count, (long long)p->block_size, (long long)p->transfer_size, s.bytes / MIB, j->api->name,
        (long long)p->ref_num);
}

void report_summary(const struct job *tests, int count, FILE *out)
{
    fprintf(out, "\nSummary of all tests:\n");
    fprintf(out, "%-9s %10s %10s %10s %10s %10s %10s %10s %10s %10s %12s %14s %5s %6s %3s %4s %3s %5s %8s %9s %4s %6s %8s %8s %9s %-7s %6s\n",
        "Operation", "Max(MiB)", "Min(MiB)", "Mean(MiB)", "StdDev", "Max(OPs)", "Min(OPs)", "Mean(OPs)", "StdDev", "Mean(s)", "Stonewall(s)",
        "Stonewall(MiB)", "Test#", "#Tasks", "tPN", "reps", "fPP", "reord", "reordoff", "reordrand", "seed", "segcnt", "blksiz", "xsize",
        "aggs(MiB)", "API", "RefNum");
    for (int i = 0; i < count; i++) {
        row(&tests[i], PHASE_WRITE, out);
        row(&tests[i], PHASE_READ, out);
    }
}
