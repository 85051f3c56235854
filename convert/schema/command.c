/*
 * fp-convert schema (command.h): what a schema says, whether files are as it says, and a schema for files of which one knows little. Called by main.c; writes to standard output.
 *
 * The text alone is checked as far as it can be; with files, the model is made as a conversion would make it, sizes and all, and shown. Nothing of the arrays is read. Rejected: a dry run of the whole
 * conversion, which is what `run` is for, and which reads everything. With a format to write, names, types and dimensions that it can't have are mistakes, too.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/command.h"
#include "convert/engine/cover.h"
#include "convert/filelist.h"
#include "convert/schema/command.h"
#include "convert/schema/guess.h"
#include "convert/schema/parts.h"
#include "convert/sink/sink.h"
#include "convert/source/source.h"
#include "fp/units.h"

#define INDEX_BYTES (16u << 20)

static int print_usage(FILE *to)
{
    fprintf(to, "usage: fp-convert schema check [--from=raw|fortran|npy|npz|hdf5] [--to=hdf5|netcdf|netcdf3] [--files0-from=LIST] SCHEMA [FILE...]\n"
                "       fp-convert schema guess [--files0-from=LIST] [FILE...]\n"
                "Files are in LIST, too, behind those that are words: more than a command line holds. A NUL byte ends each name, as find -print0 writes them; - is standard input.\n"
                "check says what is wrong with a schema, and whether files of one set fit it, and the format --to; guess prints one that may fit. fpctl schema is the same. The language: docs/CONVERT.md.\n");
    return to == stderr ? 2 : 0;
}

static int usage(void)
{
    return print_usage(stderr);
}

static int say(const struct cv_fail *why)
{
    char line[PATH_MAX + 1024];

    cv_fail_line(why, line, sizeof line);
    fprintf(stderr, "fp-convert: %s\n", line);
    return 1;
}

static void put_dims(const struct cv_dim *dims, unsigned rank)
{
    putchar('[');
    for (unsigned i = 0; i < rank; i++)
        printf("%s%s%s%" PRIu64, i ? ", " : "", dims[i].name ? dims[i].name : "", dims[i].name ? "=" : "", dims[i].size);
    putchar(']');
}

/* As the text has it: without files, the blocks of ranks are not known in all cases. */
static void put_text(const struct cv_schema *s)
{
    static const char *const blocks[] = {"a block for each file", "grid", "whole", "list"};

    for (size_t i = 0; i < s->ndatasets; i++) {
        const struct cv_schema_dataset *d = &s->datasets[i];

        printf("%s  %s %s-endian  ", d->name, cv_type_name(d->type), d->type.big_endian ? "big" : "little");
        put_dims(d->dims, d->rank);
        printf("  blocks: %s", blocks[d->blocks]);
        if (s->ranks)
            printf(" (%" PRIu64 " ranks)", s->ranks);
        putchar('\n');
    }
}

static void put_model(const struct cv_model *m)
{
    char size[FP_UNITS_BUF];

    for (size_t i = 0; i < m->ndatasets; i++) {
        const struct cv_dataset *d = &m->datasets[i];
        uint64_t elements = 0;

        cv_dataset_elements(d, &elements);
        printf("%s  %s %s-endian  ", d->name, cv_type_name(d->type), d->type.big_endian ? "big" : "little");
        put_dims(d->dims, d->rank);
        printf("  %zu block%s  %" PRIu64 " bytes (%s)\n", d->nblocks, d->nblocks == 1 ? "" : "s", elements * d->type.size_bytes, fp_format_size(size, elements * d->type.size_bytes));
    }
}

/* A mistake of a dataset is said with its place in the text, as others are. */
static void place(const struct cv_schema *s, struct cv_fail *why)
{
    char text[sizeof why->text];

    snprintf(why->file, sizeof why->file, "%s", s->name);
    for (size_t i = 0; i < s->ndatasets; i++) {
        const struct cv_schema_dataset *d = &s->datasets[i];

        if (strcmp(d->name, why->dataset) != 0)
            continue;
        memcpy(text, why->text, sizeof text);
        (void)snprintf(why->text, sizeof why->text, "line %u, column %u: %.440s", d->line, d->column, text);
        return;
    }
}

/* As the text has it, and borrowed from it: names, types, dimensions and attributes. Time steps, which a model has as a dimension of its own, are not in it. */
static int check_format(const struct cv_schema *s, const struct cv_sink_ops *to, struct cv_fail *why)
{
    struct cv_model m = {.datasets = calloc(s->ndatasets + 1, sizeof *m.datasets), .ndatasets = s->ndatasets, .attrs = s->attrs};
    int rc;

    if (!m.datasets)
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "no memory is left");
    for (size_t i = 0; i < s->ndatasets; i++) {
        const struct cv_schema_dataset *d = &s->datasets[i];

        m.datasets[i] = (struct cv_dataset){.name = d->name, .type = d->type, .rank = d->rank, .attrs = d->attrs};
        memcpy(m.datasets[i].dims, d->dims, d->rank * sizeof *d->dims);
    }
    rc = cv_sink_check(to, &m, why);
    if (rc)
        place(s, why);
    free(m.datasets);
    return rc;
}

/* Gaps and overlaps that the schema refuses: as a conversion would say them. */
static int check_blocks(const struct cv_source *s, struct cv_fail *why)
{
    bool whole;
    int rc = 0;

    for (size_t i = 0; i < s->model->ndatasets && rc == 0; i++)
        rc = cv_cover_check(s, &s->model->datasets[i], &whole, why);
    if (rc == 0)
        put_model(s->model);
    return rc;
}

/* Records, and arrays, are counted by the source that reads them. */
static int check_records(const struct cv_source_ops *from, const char *schema, const struct cv_filelist *l, struct cv_fail *why)
{
    const struct cv_source_options o = {.paths = l->items, .npaths = l->count, .schema = schema, .memory_bytes = INDEX_BYTES};
    struct cv_source *source;
    int rc = from->open(&o, &source, why);

    if (rc)
        return rc;
    rc = check_blocks(source, why);
    source->ops->close(source);
    return rc;
}

static int check_files(const struct cv_schema *s, const struct cv_filelist *l, struct cv_fail *why)
{
    struct cv_schema_file *files = calloc(l->count, sizeof *files);
    struct cv_input *inputs = calloc(l->count, sizeof *inputs);
    struct cv_model *m = NULL;
    int rc = files && inputs ? 0 : cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "no memory is left");

    for (size_t i = 0; i < l->count && rc == 0; i++) {
        inputs[i] = (struct cv_input){.path = l->items[i], .fd = -1};
        rc = cv_guess_stat(&files[i], l->items[i], why);
    }
    if (rc == 0)
        rc = cv_schema_model(s, files, l->count, true, &m, why);
    if (rc == 0)
        rc = check_blocks(&(struct cv_source){.model = m, .inputs = inputs, .ninputs = l->count}, why);
    cv_model_free(m);
    free(inputs);
    free(files);
    return rc;
}

/* ---------------------------------------------------------------- the call */

struct call {
    const char *from, *to, *list, *schema;
    struct cv_filelist files;
};

/* --NAME=VALUE, or --NAME VALUE. False: it is none, or the second. */
static bool take_option(int argc, char **argv, int *at, const char *name, const char **value)
{
    size_t len = strlen(name);
    const char *word = argv[*at];

    if (*value || strncmp(word, name, len) != 0 || (word[len] && word[len] != '='))
        return false;
    *value = word[len] ? word + len + 1 : *at + 1 < argc ? argv[++*at] : NULL;
    return *value != NULL;
}

/* Options, from `at` on. False: one that is none. */
static bool take_options(int argc, char **argv, int *at, struct call *c)
{
    for (; *at < argc && argv[*at][0] == '-'; ++*at)
        if (!take_option(argc, argv, at, "--files0-from", &c->list) && !take_option(argc, argv, at, "--from", &c->from) && !take_option(argc, argv, at, "--to", &c->to))
            return fprintf(stderr, "fp-convert: '%s' is no option here, is given twice or has no value\n", argv[*at < argc ? *at : argc - 1]), false;
    return true;
}

/* Words from `at` on, and those of the list. Exit code; 0: they are there. */
static int take_files(int argc, char **argv, int at, struct call *c)
{
    const struct fp_strlist words = {.items = (const char **)(uintptr_t)(argv + at), .count = (size_t)(argc - at)};
    struct cv_fail why = {0};
    int rc = cv_filelist_fill(&c->files, &words, c->list, &why);

    if (rc == -EINVAL)
        return cv_command_bad_list(&why, "schema");
    return rc ? say(&why) : 0;
}

static int check_call(const struct call *c)
{
    const struct cv_source_ops *from = c->from ? cv_source_find(c->from) : &cv_source_raw;
    struct cv_fail why = {0};
    struct cv_schema *s = NULL;
    int rc = cv_schema_read(c->schema, &s, &why);

    if (rc == 0 && c->from)
        rc = cv_schema_units(s, from != &cv_source_raw, &why);
    if (rc == 0 && c->to)
        rc = check_format(s, cv_sink_find(c->to), &why);
    if (rc == 0 && !c->files.count)
        put_text(s);
    else if (rc == 0 && from != &cv_source_raw)
        rc = check_records(from, c->schema, &c->files, &why);
    else if (rc == 0)
        rc = check_files(s, &c->files, &why);
    cv_schema_free(s);
    if (rc == 0 && fflush(stdout))
        rc = cv_fail(&why, -EIO, NULL, NULL, CV_NO_OFFSET, "the answer can't be written");
    return rc ? say(&why) : 0;
}

static int wrong(const char *option, const char *value, const char *what)
{
    fprintf(stderr, "fp-convert: %s '%s': %s\n", option, value, what);
    return 2;
}

/* 0, or 2 and it is said. */
static int check_words(const struct call *c)
{
    const struct cv_source_ops *from = c->from ? cv_source_find(c->from) : &cv_source_raw;
    const struct cv_sink_ops *to = c->to ? cv_sink_find(c->to) : &cv_sink_hdf5;

    if (from == &cv_source_group || from == &cv_source_adios)
        return wrong("--from", c->from, "it says itself what is in it, and needs no schema");
    if (!from)
        return wrong("--from", c->from, "it is raw, fortran, npy, npz or hdf5");
    if (!to || to == &cv_sink_raw)
        return wrong("--to", c->to, "it is hdf5, netcdf or netcdf3");
    return 0;
}

/* Options stand before the schema, or behind it. */
static int check(int argc, char **argv)
{
    struct call c = {0};
    int at = 0, rc;

    if (!take_options(argc, argv, &at, &c) || at == argc)
        return usage();
    c.schema = argv[at++];
    if (!take_options(argc, argv, &at, &c))
        return usage();
    rc = check_words(&c);
    rc = rc ? rc : take_files(argc, argv, at, &c);
    rc = rc ? rc : check_call(&c);
    cv_filelist_free(&c.files);
    return rc;
}

static int guess(int argc, char **argv)
{
    struct cv_fail why = {0};
    struct call c = {0};
    int at = 0, rc;

    if (!take_options(argc, argv, &at, &c) || c.from || c.to || (at == argc && !c.list))
        return usage();
    rc = take_files(argc, argv, at, &c);
    if (rc == 0 && cv_schema_guess(c.files.items, c.files.count, stdout, &why))
        rc = say(&why);
    cv_filelist_free(&c.files);
    return rc;
}

int cv_schema_command(int argc, char **argv)
{
    if (argc > 0 && strcmp(argv[0], "schema") == 0) {
        argc--;
        argv++;
    }
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return print_usage(stdout);
    if (argc > 0 && strcmp(argv[0], "check") == 0)
        return check(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "guess") == 0)
        return guess(argc - 1, argv + 1);
    return usage();
}
