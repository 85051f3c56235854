/*
 * sim_scale: what one manager needs for a checkpoint of thousands of nodes, and for what goes wrong then. See docs/SCALING.md and scale.h.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fp/log.h"
#include "manager/core_int.h"
#include "scale.h"

static const struct option longs[] = {{"nodes", 1, 0, 'n'}, {"ranks", 1, 0, 'r'}, {"windows", 1, 0, 'w'}, {"shared", 0, 0, 's'}, {"group", 1, 0, 'g'},  {"lost", 1, 0, 'l'},
                                      {"cache", 1, 0, 'c'}, {"dir", 1, 0, 'd'},   {"counts", 0, 0, 'o'},  {"help", 0, 0, 'h'},   {"most", 1, 0, 'm'}, {0, 0, 0, 0}};

static double most_us_per_file, most_messages_per_file = 0;

static _Noreturn void usage(int code)
{
    printf("Usage: sim_scale [--nodes N] [--ranks R] [--windows W] [--shared] [--group G] [--lost PPM] [--cache MIB] [--dir DIR] [--counts] [--most N]\n"
           "  The manager's core with N nodes of R ranks that each write W MiB, in a file of their own or all in one (--shared).\n"
           "  --group: messages in one transaction.  --dir: where the database goes, removed at the end.\n"
           "  --counts: tell messages by kind alone.  --most: fail if a file takes more messages to the manager than that.\n");
    exit(code);
}

static void parse(int argc, char **argv, struct scale_opts *o)
{
    int c;

    *o = (struct scale_opts){.nodes = 100, .ranks = 8, .windows = 64, .group = 256, .lost_ppm = 10000, .cache_bytes = 64u << 20, .dir = "/tmp"};
    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        uint32_t n = optarg ? (uint32_t)strtoul(optarg, NULL, 0) : 0;

        if (c == 'n')
            o->nodes = n;
        else if (c == 'r')
            o->ranks = n;
        else if (c == 'w')
            o->windows = n;
        else if (c == 's')
            o->shared = true;
        else if (c == 'g')
            o->group = n;
        else if (c == 'l')
            o->lost_ppm = n;
        else if (c == 'c')
            o->cache_bytes = (uint64_t)n << 20;
        else if (c == 'd')
            o->dir = optarg;
        else if (c == 'o')
            o->counts = true;
        else if (c == 'm')
            most_messages_per_file = strtod(optarg, NULL);
        else
            usage(c == 'h' ? 0 : 2);
    }
    if (optind < argc || !o->nodes || !o->ranks || !o->windows || !o->group || o->lost_ppm > 1000000)
        usage(2);
}

/* ------------------------------------------------------------------ report */

static const char *kind_name(unsigned type)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(&fp__msg_type__descriptor, (int)type);

    return v ? v->name : "?";
}

static uint64_t memory_bytes(const struct scale *w)
{
    uint64_t own = (uint64_t)w->o.nodes * sizeof *w->nodes + (uint64_t)w->o.nodes * w->o.ranks * sizeof *w->inos;
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (f && fscanf(f, "%*u %lu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE) - own;
}

static void tell_kinds(const char *way, const struct scale_kind *k)
{
    for (unsigned i = 0; i < SCALE_TYPES; i++)
        if (k[i].n)
            printf("  %s %-18s %11llu messages %9.1f MB %8.2f s %8.2f us each\n", way, kind_name(i), (unsigned long long)k[i].n, (double)k[i].bytes / 1e6,
                   (double)k[i].cpu_ns / 1e9, (double)k[i].cpu_ns / 1e3 / (double)k[i].n);
}

static double busy_s(const struct scale_phase *ph)
{
    return (double)(ph->handle_ns + ph->end_ns + ph->pack_ns) / 1e9;
}

static void tell(struct scale *w, const struct scale_phase *ph, double clock_s)
{
    if (w->o.counts)
        return;
    printf("%s: %.2f s of processor (handlers %.2f, end of transactions %.2f, packing %.2f), and %.2f of a second thread; %.1f s of the manager's clock\n", ph->name, busy_s(ph),
           (double)ph->handle_ns / 1e9, (double)ph->end_ns / 1e9, (double)ph->pack_ns / 1e9, (double)ph->checkpoint_ns / 1e9, clock_s);
    printf("  %llu groups, %llu answers of %.1f MB; memory %.1f MiB; database %.1f MiB\n", (unsigned long long)ph->groups, (unsigned long long)ph->replies,
           (double)ph->reply_bytes / 1e6, (double)memory_bytes(w) / 1048576, (double)mgr_db_size_bytes(mgr_core_db(w->core)) / 1048576);
    tell_kinds("in ", ph->in);
    tell_kinds("out", ph->out);
    fflush(stdout);
}

static void tell_counts(const struct scale_phase *ph)
{
    for (unsigned i = 0; i < SCALE_TYPES; i++)
        if (ph->in[i].n)
            printf("count mount>manager %s %llu\n", kind_name(i), (unsigned long long)ph->in[i].n);
    for (unsigned i = 0; i < SCALE_TYPES; i++)
        if (ph->out[i].n)
            printf("count manager>mount %s %llu\n", kind_name(i), (unsigned long long)ph->out[i].n);
    printf("count in commits: chunks %llu\n", (unsigned long long)ph->chunks);
    printf("count in commits: slices %llu\n", (unsigned long long)ph->slices);
    printf("count in releases: inodes %llu\n", (unsigned long long)ph->released);
}

/* ------------------------------------------------------------------ phases */

static double run(struct scale *w, struct scale_phase *ph, const char *name, void (*fn)(struct scale *))
{
    uint64_t t0 = w->now_ns;

    memset(ph, 0, sizeof *ph);
    ph->name = name;
    w->phase = ph;
    fn(w);
    shell_flush(w);
    tell(w, ph, (double)(w->now_ns - t0) / 1e9);
    return (double)(w->now_ns - t0) / 1e9;
}

static void start(struct scale *w)
{
    job_nodes_begin(w);
    shell_open(w);
    for (uint32_t k = 0; k < w->o.nodes; k++)
        job_hello_bnf(w, &w->nodes[k]);
    for (uint32_t k = 0; k < w->o.nodes; k++)
        job_hello_mount(w, &w->nodes[k]);
    shell_wait(w, 3000);
    job_make_dir(w);
}

static void idle(struct scale *w)
{
    shell_wait(w, 10000);
}

static void come_back(struct scale *w)
{
    loss_return(w, false);
}

static void come_back_empty(struct scale *w)
{
    loss_return(w, true);
}

static int64_t bad_chunks(const struct scale *w)
{
    return (int64_t)w->core->bad_chunks;
}

static void tell_checkpoint(struct scale *w, const struct scale_phase *ph)
{
    double ranks = (double)w->o.nodes * w->o.ranks, sent = 0;

    for (unsigned i = 0; i < SCALE_TYPES; i++)
        if (i != FP__MSG_TYPE__MSG_CLIENT_STATS && i != FP__MSG_TYPE__MSG_KEEPALIVE)
            sent += (double)ph->in[i].n;
    printf("checkpoint of %.0f ranks, %.0f chunks: %.2f messages and %.1f us of processor for a rank, %.2f us for a chunk; %.0f ranks a second\n", ranks, (double)ph->chunks,
           sent / ranks, busy_s(ph) * 1e6 / ranks, busy_s(ph) * 1e6 / (double)ph->chunks, ranks / busy_s(ph));
    if (most_messages_per_file > 0 && sent / ranks > most_messages_per_file)
        shell_must(w, false, "more messages for a file than --most allows", 0);
    most_us_per_file = busy_s(ph) * 1e6 / ranks;
}

static void losses(struct scale *w)
{
    struct scale_phase ph;

    run(w, &ph, "benefactors lost", loss_benefactors);
    run(w, &ph, "back with what they had", come_back);
    shell_must(w, bad_chunks(w) == 0, "chunks are taken for lost that are not", (int)bad_chunks(w));
    run(w, &ph, "lost once more", loss_benefactors);
    run(w, &ph, "back without anything", come_back_empty);
    if (!w->o.counts)
        printf("  %lld chunks are known to be lost\n", (long long)bad_chunks(w));
    shell_must(w, bad_chunks(w) > 0, "lost chunks are not noticed", 0);
    run(w, &ph, "manager started again", loss_restart);
}

static void remove_database(const struct scale *w)
{
    char path[4200];

    for (const char *const *tail = (const char *const[]){"", "-wal", "-shm", NULL}; *tail; tail++) {
        snprintf(path, sizeof path, "%s%s", w->db_path, *tail);
        unlink(path);
    }
}

int main(int argc, char **argv)
{
    static struct scale w;
    struct scale_phase ph;

    parse(argc, argv, &w.o);
    fp_log_set_level(FP_LOG_ERROR);
    snprintf(w.db_path, sizeof w.db_path, "%s/scale-%d.db", w.o.dir, (int)getpid());
    remove_database(&w);
    w.now_ns = UINT64_C(1000000000000);
    w.second_ns = w.now_ns;
    w.quiet = w.o.counts;
    run(&w, &ph, "start", start);
    run(&w, &ph, "checkpoint", job_checkpoint);
    if (w.o.counts)
        tell_counts(&ph);
    else
        tell_checkpoint(&w, &ph);
    if (!w.o.counts) {
        run(&w, &ph, "10 s with nothing to do", idle);
        losses(&w);
    }
    shell_close(&w);
    remove_database(&w);
    return w.failed ? 1 : 0;
}
