/*
 * The command line of heat3d: one table gives parser and --help.
 *
 * Every rank parses the same arguments and comes to the same result; only rank 0 speaks. Options are --name
 * VALUE or
 * --name=VALUE. getopt_long is not used because --restart takes a value or none, and because a table keeps
 * the help beside the option.
 */
#include "heat3d.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct option {
    const char *name;
    const char *arg; /* NULL: a switch; in brackets: may be left out */
    int (*set)(struct options *o, const char *value);
    const char *help;
};

/* A whole number from min to INT_MAX; *end as strtol. */
static int number(const char *s, int min, int *out, char **end)
{
    errno = 0;
    long v = strtol(s, end, 10);
    if (*end == s || errno || v < min || v > INT_MAX)
        return -1;
    *out = (int)v;
    return 0;
}

static int whole_number(const char *s, int min, int *out)
{
    char *end;
    return number(s, min, out, &end) || *end ? -1 : 0;
}

static int set_text(char *to, size_t size, const char *value)
{
    size_t len = strlen(value);
    if (len == 0 || len >= size)
        return -1;
    memcpy(to, value, len + 1);
    return 0;
}

static int set_n(struct options *o, const char *value)
{
    const char *s = value;
    int count = 0;
    for (;;) {
        char *end;
        if (count == 3 || number(s, 8, &o->n[count], &end) || o->n[count] > 65536)
            return -1;
        count++;
        if (*end == '\0')
            break;
        if (*end != ',' && *end != 'x')
            return -1;
        s = end + 1;
    }
    for (; count < 3; count++)
        o->n[count] = o->n[count - 1];
    return 0;
}

static int set_steps(struct options *o, const char *value)
{
    return whole_number(value, 0, &o->steps);
}

static int set_every(struct options *o, const char *value)
{
    return whole_number(value, 0, &o->every);
}

static int set_dump_every(struct options *o, const char *value)
{
    return whole_number(value, 0, &o->dump_every);
}

static int set_schema(struct options *o, const char *value)
{
    (void)value;
    o->schema = true;
    return 0;
}

static int set_keep(struct options *o, const char *value)
{
    return whole_number(value, 0, &o->keep);
}

static int set_dir(struct options *o, const char *value)
{
    return set_text(o->dir, sizeof(o->dir), value);
}

static int set_final(struct options *o, const char *value)
{
    return set_text(o->final, sizeof(o->final), value);
}

static int set_restart(struct options *o, const char *value)
{
    o->restart = true;
    return value ? set_text(o->restart_path, sizeof(o->restart_path), value) : 0;
}

static int set_kill(struct options *o, const char *value)
{
    char *end;
    if (number(value, 1, &o->kill_step, &end))
        return -1;
    o->kill_where = strcmp(end, ":checkpoint") == 0 ? KILL_CHECKPOINT : KILL_COMPUTE;
    return *end == '\0' || strcmp(end, ":compute") == 0 || o->kill_where == KILL_CHECKPOINT ? 0 : -1;
}

static int set_file_per_process(struct options *o, const char *value)
{
    (void)value;
    o->file_per_process = true;
    return 0;
}

static int set_verify(struct options *o, const char *value)
{
    (void)value;
    o->verify = true;
    return 0;
}

static int set_progress(struct options *o, const char *value)
{
    (void)value;
    o->progress = true;
    return 0;
}

static const struct option table[] = {
    {"n", "NX[,NY,NZ]", set_n, "cells of the grid, 8 to 65536 each (64)"},
    {"steps", "S", set_steps, "time steps to compute, counted from 0 (100)"},
    {"checkpoint-every", "K", set_every, "write a checkpoint every K steps; 0 = never (10)"},
    {"dump-every", "K", set_dump_every, "write each rank's array as it is in memory, DIR/dump_STEP/rank_R.raw, every K steps; 0 = never (0)"},
    {"schema", NULL, set_schema, "print the schema of such dumps on this grid and these ranks, for fp-convert, and end"},
    {"dir", "DIR", set_dir, "where checkpoints are (.); made if missing"},
    {"file-per-process", NULL, set_file_per_process,
     "checkpoint = folder with one file per rank, not one shared file"},
    {"keep", "K", set_keep, "remove all but the newest K checkpoints; 0 = keep all (0)"},
    {"restart", "[PATH]", set_restart, "go on from PATH, or from the newest intact checkpoint in DIR"},
    {"final", "FILE", set_final, "write the final state as raw doubles, NZ fastest"},
    {"verify", NULL, set_verify, "read every checkpoint back; compare the end with the closed form"},
    {"progress", NULL, set_progress, "a line per checkpoint"},
    {"kill-at-step", "S[:checkpoint]", set_kill,
     "for tests: the last rank kills itself (SIGKILL) before it computes step S, or with its part of the "
     "checkpoint "
     "of step S written but not closed"},
};

static void help(void)
{
    printf("usage: mpirun -n RANKS heat3d [options]\n"
           "Solves the 3-D heat equation (7-point stencil, explicit) and writes checkpoints with parallel "
           "HDF5.\n"
           "The result does not depend, in any bit, on the ranks, on the kind of checkpoint, or on "
           "restarts.\n\n");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        char left[64];
        snprintf(left, sizeof(left), "--%s %s", table[i].name, table[i].arg ? table[i].arg : "");
        printf("  %-30s %s\n", left, table[i].help);
    }
    printf("  %-30s %s\n", "--help", "this text");
}

__attribute__((format(printf, 2, 3))) static int fail(bool verbose, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (verbose) {
        fprintf(stderr, "heat3d: ");
        vfprintf(stderr, format, args);
        fprintf(stderr, " (see --help)\n");
    }
    va_end(args);
    return -1;
}

static const struct option *find(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
            return &table[i];
    return NULL;
}

static int check(const struct options *o, bool verbose)
{
    if (o->kill_where == KILL_CHECKPOINT && (o->every == 0 || o->kill_step % o->every))
        return fail(verbose, "--kill-at-step %d:checkpoint: no checkpoint is written there", o->kill_step);
    if (o->kill_where != KILL_NEVER && o->kill_step > o->steps)
        return fail(verbose, "--kill-at-step %d: there are only %d steps", o->kill_step, o->steps);
    return 0;
}

int options_parse(struct options *o, int argc, char **argv, bool verbose)
{
    *o = (struct options){.n = {64, 64, 64}, .steps = 100, .every = 10, .dir = "."};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            if (verbose)
                help();
            return 1;
        }
        if (strncmp(argv[i], "--", 2) != 0)
            return fail(verbose, "unexpected argument '%s'", argv[i]);
        const char *name = argv[i] + 2;
        const char *equals = strchr(name, '=');
        const struct option *opt = find(name, equals ? (size_t)(equals - name) : strlen(name));
        if (opt == NULL)
            return fail(verbose, "unknown option '%s'", argv[i]);

        const char *value = equals ? equals + 1 : NULL;
        bool next = i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0;
        if (opt->arg == NULL && value)
            return fail(verbose, "--%s takes no value", opt->name);
        if (opt->arg && value == NULL && next)
            value = argv[++i];
        if (opt->arg && opt->arg[0] != '[' && value == NULL)
            return fail(verbose, "--%s needs %s", opt->name, opt->arg);
        if (opt->set(o, value))
            return fail(verbose, "--%s: '%s' is not %s", opt->name, value, opt->arg);
    }
    return check(o, verbose);
}

void kill_point(const struct options *o, const struct grid *g, int step, enum kill_where where)
{
    if (o->kill_where != where || o->kill_step != step || g->rank != g->ranks - 1)
        return;
    printf("heat3d: rank %d kills itself, step %d, %s\n", g->rank, step,
           where == KILL_CHECKPOINT ? "in its checkpoint" : "computing");
    fflush(stdout);
    raise(SIGKILL);
}
