/*
 * A schema and the files of one set into a model (schema.h). Called by sources whose files do not say what they hold, and by command.c. One thread; no I/O.
 *
 * First the blocks of one step are given their places, file by file in the order of the layout; that says how long a step is, and so how many steps there are and how long each file must be. Only then
 * are blocks made. Places of records (from=fortran) are found in the same way, with a record as the unit instead of a byte. All sums are checked: sizes and counts come from a text that anybody may
 * have written.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/schema/parts.h"

#define STEPS_NAME "time"

struct placing {
    const struct cv_schema *s;
    const struct cv_schema_file *files;
    size_t nfiles;
    bool records;
    struct cv_fail *why;
    uint64_t *sizes;      /* NULL, or: files are laid out to be written, steps are given, and this is how long each gets */
    uint64_t nranks, steps;
    uint32_t *file_of;    /* of each rank */
    uint64_t *at;         /* of dataset d and rank r: its place in the first step, at[d * nranks + r] */
    uint64_t *step_units; /* of each file: how much further the same is in the next step */
};

struct cursor {
    uint64_t pos, end;
};

/* The block of rank r as the schema has it: in the order of its dims. */
static void block_of(const struct placing *p, const struct cv_schema_dataset *d, uint64_t r, struct cv_extent *e)
{
    if (d->blocks == CV_BLOCKS_LIST) {
        *e = d->list[r];
        return;
    }
    for (unsigned i = 0; i < CV_SCHEMA_DIMS_MAX; i++)
        e->stride[i] = 1;
    if (d->blocks == CV_BLOCKS_GRID) {
        uint64_t dims[CV_SCHEMA_DIMS_MAX];

        for (unsigned i = 0; i < CV_SCHEMA_DIMS_MAX; i++)
            dims[i] = d->dims[i].size;
        cv_grid_block(&d->grid, p->s->grid_fortran, dims, r, e->start, e->count);
        return;
    }
    for (unsigned i = 0; i < d->rank; i++) {
        e->start[i] = 0;
        e->count[i] = d->dims[i].size;
    }
}

/* Bytes of a block with its ghosts. The text was refused where the whole array with ghosts has more than 2^63, and no block is larger. */
static uint64_t stored_bytes(const struct cv_schema_dataset *d, const struct cv_extent *e)
{
    uint64_t bytes = d->type.size_bytes;

    for (unsigned i = 0; i < d->rank; i++)
        bytes *= e->count[i] + d->ghost_lo[i] + d->ghost_hi[i];
    return bytes;
}

static uint64_t units_of(const struct placing *p, const struct cv_schema_dataset *d, uint64_t r)
{
    struct cv_extent e;

    if (p->records)
        return 1;
    block_of(p, d, r, &e);
    return stored_bytes(d, &e);
}

/* One file of whole arrays, or one that ranks share, has it once. */
static bool is_stored(const struct placing *p, const struct cv_schema_dataset *d, uint64_t r)
{
    return r == 0 || d->blocks != CV_BLOCKS_WHOLE || p->s->layout == CV_LAYOUT_FILES || p->s->layout == CV_LAYOUT_SEGMENTS;
}

/* ---------------------------------------------------------------- places in a step */

static int too_far(const struct placing *p, const struct cv_schema_dataset *d)
{
    return cv_fail(p->why, -EOVERFLOW, p->s->name, d ? d->name : NULL, CV_NO_OFFSET, "by the schema a file has more than 2^63 bytes");
}

/* first: of this dataset in this file or segment. */
static int place(struct placing *p, size_t i, uint64_t r, bool first, struct cursor *c)
{
    const struct cv_schema_dataset *d = &p->s->datasets[i];

    if (!is_stored(p, d, r))
        return 0;
    if (first && p->records && d->record)
        c->pos = d->record - 1;
    else if (first && d->has_offset)
        c->pos = d->offset_bytes;
    else if (first && __builtin_add_overflow(c->pos, d->skip_bytes, &c->pos))
        return too_far(p, d);
    p->at[i * p->nranks + r] = c->pos;
    if (__builtin_add_overflow(c->pos, units_of(p, d, r), &c->pos) || c->pos > INT64_MAX)
        return too_far(p, d);
    if (c->pos > c->end)
        c->end = c->pos;
    return 0;
}

static int place_file_of_rank(struct placing *p, uint64_t r, uint64_t begin)
{
    struct cursor c = {begin, begin};
    int rc = 0;

    for (size_t i = 0; i < p->s->ndatasets && rc == 0; i++)
        rc = place(p, i, r, true, &c);
    p->step_units[p->file_of[r]] = c.end;
    return rc;
}

static int place_shared(struct placing *p, uint64_t begin)
{
    bool segments = p->s->layout == CV_LAYOUT_SEGMENTS;
    uint64_t outer = segments ? p->nranks : p->s->ndatasets, inner = segments ? p->s->ndatasets : p->nranks;
    struct cursor c = {begin, begin};
    int rc = 0;

    for (uint64_t a = 0; a < outer && rc == 0; a++)
        for (uint64_t b = 0; b < inner && rc == 0; b++)
            rc = place(p, segments ? b : a, segments ? a : b, segments || b == 0, &c);
    p->step_units[0] = c.end;
    return rc;
}

/* at[] and step_units[]. */
static int place_all(struct placing *p)
{
    uint64_t header = p->records ? 0 : p->s->header_bytes, begin;
    int rc = 0;

    if (__builtin_add_overflow(header, p->records ? 0 : p->s->step_header_bytes, &begin) || begin > INT64_MAX)
        return too_far(p, NULL);
    if (p->s->layout == CV_LAYOUT_FILES)
        for (uint64_t r = 0; r < p->nranks && rc == 0; r++)
            rc = place_file_of_rank(p, r, begin);
    else
        rc = place_shared(p, begin);
    for (size_t f = 0; f < p->nfiles && rc == 0; f++)
        p->step_units[f] -= header;
    return rc;
}

/* ---------------------------------------------------------------- sizes */

/* Which dataset of which rank has the unit that is missing first: the nearest end behind `in` units of a step. */
static void ends_in(const struct placing *p, size_t file, uint64_t in, size_t *dataset, uint64_t *rank)
{
    uint64_t best = UINT64_MAX;

    *dataset = 0;
    *rank = 0;
    for (size_t i = 0; i < p->s->ndatasets; i++)
        for (uint64_t r = 0; r < p->nranks; r++) {
            const struct cv_schema_dataset *d = &p->s->datasets[i];
            uint64_t at = p->at[i * p->nranks + r];

            if (p->file_of[r] == file && is_stored(p, d, r) && at < best && at + units_of(p, d, r) > in) {
                best = at;
                *dataset = i;
                *rank = r;
            }
        }
}

static int too_short(const struct placing *p, size_t file, uint64_t expected)
{
    uint64_t size = p->files[file].size_bytes, header = p->s->header_bytes, step = p->step_units[file], k = 0, in = size, rank, has = 0, at;
    char where[80] = "";
    size_t i;

    if (size < header)
        return cv_fail(p->why, -ENODATA, p->files[file].path, NULL, size, "too short: %" PRIu64 " bytes, and %" PRIu64 " expected: it ends in the header of %" PRIu64 " bytes", size, expected, header);
    if (step) {
        k = (size - header) / step;
        in = header + (size - header) % step;
    }
    ends_in(p, file, in, &i, &rank);
    at = p->at[i * p->nranks + rank];
    has = in > at ? in - at : 0;
    if (p->nranks > 1)
        snprintf(where, sizeof where, ", rank %" PRIu64, rank + p->s->first_rank);
    if (p->s->steps != 1)
        snprintf(where + strlen(where), sizeof where - strlen(where), ", step %" PRIu64, k);
    return cv_fail(p->why, -ENODATA, p->files[file].path, p->s->datasets[i].name, size,
                   "too short: %" PRIu64 " bytes, and %" PRIu64 " expected: it ends here, with %" PRIu64 " of this dataset's %" PRIu64 " bytes%s; the dump was cut, or the schema does not fit", size, expected, has,
                   units_of(p, &p->s->datasets[i], rank), where);
}

static int too_long(const struct placing *p, size_t file, uint64_t expected)
{
    uint64_t size = p->files[file].size_bytes;

    return cv_fail(p->why, -EMSGSIZE, p->files[file].path, NULL, expected,
                   "too long: %" PRIu64 " bytes, and %" PRIu64 " expected: %" PRIu64 " are there that the schema does not say (dims, type, header, ghost, steps: all?)", size, expected, size - expected);
}

static int check_size(const struct placing *p, size_t file)
{
    uint64_t expected, size = p->files[file].size_bytes;

    if (__builtin_mul_overflow(p->step_units[file], p->steps, &expected) || __builtin_add_overflow(expected, p->s->header_bytes, &expected) || expected > INT64_MAX)
        return too_far(p, NULL);
    if (size < expected)
        return too_short(p, file, expected);
    return size > expected ? too_long(p, file, expected) : 0;
}

/* steps: all, of one file. */
static int steps_in(const struct placing *p, size_t file, uint64_t *steps)
{
    const struct cv_schema_file *f = &p->files[file];
    uint64_t units = p->records ? f->records : f->size_bytes, header = p->records ? 0 : p->s->header_bytes, step = p->step_units[file];

    if (p->records && !f->records)
        return cv_fail(p->why, -EINVAL, f->path, NULL, CV_NO_OFFSET, "steps: all can't be counted in this file: say steps: N");
    if (!step)
        return cv_fail(p->why, -EINVAL, p->s->name, NULL, CV_NO_OFFSET, "steps: all: a step has no bytes, so that they can't be counted");
    if (units < header || units - header < step)
        return p->records ? cv_fail(p->why, -ENODATA, f->path, NULL, CV_NO_OFFSET, "%" PRIu64 " records, and a step has %" PRIu64, units, step) : too_short(p, file, header + step);
    *steps = (units - header) / step;
    if ((units - header) % step == 0)
        return 0;
    if (p->records)
        return cv_fail(p->why, -ENODATA, f->path, NULL, CV_NO_OFFSET, "%" PRIu64 " records are no whole number of steps, which have %" PRIu64, units, step);
    return too_short(p, file, header + (*steps + 1) * step);
}

static int say_sizes(const struct placing *p)
{
    for (size_t f = 0; f < p->nfiles; f++)
        if (__builtin_mul_overflow(p->step_units[f], p->steps, &p->sizes[f]) || __builtin_add_overflow(p->sizes[f], p->s->header_bytes, &p->sizes[f]) || p->sizes[f] > INT64_MAX)
            return too_far(p, NULL);
    return 0;
}

static int count_steps(struct placing *p)
{
    if (p->sizes)
        return say_sizes(p);
    p->steps = p->s->steps;
    for (size_t f = 0; f < p->nfiles && !p->s->steps; f++) {
        uint64_t n = 0;
        int rc = steps_in(p, f, &n);

        if (rc)
            return rc;
        if (f && n != p->steps)
            return cv_fail(p->why, -EINVAL, p->files[f].path, NULL, CV_NO_OFFSET, "%" PRIu64 " steps, and %" PRIu64 " in %.200s: all files of a set have the same steps", n, p->steps,
                           p->files[0].path);
        p->steps = n;
    }
    for (size_t f = 0; f < p->nfiles && !p->records; f++) {
        int rc = check_size(p, f);

        if (rc)
            return rc;
    }
    return 0;
}

/* ---------------------------------------------------------------- the model */

static int no_memory(const struct placing *p)
{
    return cv_fail(p->why, -ENOMEM, p->s->name, NULL, CV_NO_OFFSET, "no memory is left for the blocks of the datasets");
}

/* One block of step k; those without elements are left out. */
static int add_block(struct placing *p, struct cv_dataset *to, size_t i, uint64_t k, uint64_t r)
{
    const struct cv_schema_dataset *d = &p->s->datasets[i];
    unsigned lead = p->s->steps != 1;
    struct cv_extent e;
    struct cv_block *b;
    uint64_t further, at;

    block_of(p, d, r, &e);
    for (unsigned n = 0; n < d->rank; n++)
        if (!e.count[n])
            return 0;
    if (__builtin_mul_overflow(k, p->step_units[p->file_of[r]], &further) || __builtin_add_overflow(further, p->at[i * p->nranks + r], &at) || at > INT64_MAX)
        return too_far(p, d);
    b = cv_dataset_block(to);
    if (!b)
        return no_memory(p);
    if (lead) {
        b->start[0] = k;
        b->count[0] = 1;
    }
    for (unsigned n = 0; n < d->rank; n++) {
        unsigned m = lead + (p->s->fortran ? d->rank - 1 - n : n);

        b->start[m] = e.start[n];
        b->count[m] = e.count[n];
        b->stride[m] = e.stride[n];
        b->ghost_lo[m] = d->ghost_lo[n];
        b->ghost_hi[m] = d->ghost_hi[n];
    }
    b->input = p->file_of[r];
    b->offset_bytes = at;
    b->id = r;
    return 0;
}

static int add_blocks(struct placing *p, struct cv_dataset *to, size_t i)
{
    const struct cv_schema_dataset *d = &p->s->datasets[i];
    bool once = d->blocks == CV_BLOCKS_WHOLE && !p->sizes;
    uint64_t only = once && d->overlap == CV_OVERLAP_LAST && is_stored(p, d, p->nranks - 1) ? p->nranks - 1 : 0;
    int rc = 0;

    for (uint64_t k = 0; k < p->steps && rc == 0; k++)
        for (uint64_t r = once ? only : 0; r < (once ? only + 1 : p->nranks) && rc == 0; r++)
            if (once || is_stored(p, d, r))
                rc = add_block(p, to, i, k, r);
    return rc;
}

static int copy_attrs(struct cv_attrs *to, const struct cv_attrs *from)
{
    int rc = 0;

    for (size_t i = 0; i < from->count && rc == 0; i++) {
        const struct cv_attr *a = &from->items[i];

        if (a->kind == CV_ATTR_TEXT)
            rc = cv_attrs_text(to, a->name, a->text);
        else
            rc = a->kind == CV_ATTR_INTS ? cv_attrs_ints(to, a->name, a->ints, a->count) : cv_attrs_floats(to, a->name, a->floats, a->count);
    }
    return rc;
}

static int set_dim(struct cv_dim *to, const char *name, uint64_t size)
{
    to->size = size;
    to->name = name ? strdup(name) : NULL;
    return name && !to->name ? -ENOMEM : 0;
}

static int add_dataset(struct placing *p, struct cv_model *m, size_t i)
{
    const struct cv_schema_dataset *d = &p->s->datasets[i];
    struct cv_dataset *to = cv_model_add(m, d->name);
    unsigned lead = p->s->steps != 1;
    uint64_t elements;
    int rc = 0;

    if (!to)
        return no_memory(p);
    to->type = d->type;
    to->rank = lead + d->rank;
    to->gaps = d->gaps;
    to->overlap = p->sizes && d->blocks == CV_BLOCKS_WHOLE ? CV_OVERLAP_LAST : d->overlap; /* it is in each file that is written */
    to->nan = d->nan;
    to->has_fill = d->has_fill;
    to->fill = d->fill;
    if (lead) {
        to->dims[0].steps = true;
        rc = set_dim(&to->dims[0], STEPS_NAME, p->steps);
    }
    for (unsigned n = 0; n < d->rank && rc == 0; n++)
        rc = set_dim(&to->dims[lead + (p->s->fortran ? d->rank - 1 - n : n)], d->dims[n].name, d->dims[n].size);
    if (rc || copy_attrs(&to->attrs, &d->attrs))
        return no_memory(p);
    if (!cv_dataset_elements(to, &elements))
        return cv_fail(p->why, -EOVERFLOW, p->s->name, d->name, CV_NO_OFFSET, "the array with its %" PRIu64 " steps is more than 2^63 bytes", p->steps);
    return add_blocks(p, to, i);
}

/* ---------------------------------------------------------------- ranks and limits */

/* Datasets whose blocks could not be settled in the text, for the ranks were not known. */
static int check_blocks(const struct placing *p)
{
    for (size_t i = 0; i < p->s->ndatasets; i++) {
        const struct cv_schema_dataset *d = &p->s->datasets[i];
        uint64_t ranks = p->nranks, said = ranks;

        if (d->blocks == CV_BLOCKS_DEFAULT && ranks > 1)
            return cv_fail(p->why, -EINVAL, p->s->name, d->name, CV_NO_OFFSET, "line %u, column %u: nothing says which block of the array each of the %" PRIu64 " files has: ranks: {grid: […]}, or block:",
                           d->line, d->column, ranks);
        if (d->blocks == CV_BLOCKS_LIST)
            said = d->nlist;
        for (unsigned k = 0; d->blocks == CV_BLOCKS_GRID && k < d->grid.rank; k++)
            said = k ? said * d->grid.dims[k] : d->grid.dims[k];
        if (said != ranks)
            return cv_fail(p->why, -EINVAL, p->s->name, d->name, CV_NO_OFFSET, "line %u, column %u: blocks of %" PRIu64 " ranks, and there are %" PRIu64 " files", d->line, d->column, said, ranks);
    }
    return 0;
}

/* Bytes are of no use to those who count records. */
int cv_schema_units(const struct cv_schema *s, bool records, struct cv_fail *why)
{
    const char *bytes = s->header_bytes ? "header" : s->step_header_bytes ? "step_header" : NULL;

    if (records && bytes)
        return cv_fail(why, -EINVAL, s->name, NULL, CV_NO_OFFSET, "%s counts bytes of raw files: this format has arrays or records", bytes);
    for (size_t i = 0; i < s->ndatasets; i++) {
        const struct cv_schema_dataset *d = &s->datasets[i];

        if (records && (d->has_offset || d->skip_bytes))
            return cv_fail(why, -EINVAL, s->name, d->name, CV_NO_OFFSET, "%s counts bytes of raw files: in this format use record", d->has_offset ? "offset" : "skip");
        if (!records && d->record)
            return cv_fail(why, -EINVAL, s->name, d->name, CV_NO_OFFSET, "record goes with from=fortran: raw files have none");
    }
    return 0;
}

static int count_ranks(struct placing *p)
{
    const struct cv_schema *s = p->s;

    p->nranks = cv_schema_ranks(s) ? cv_schema_ranks(s) : p->nfiles;
    if (!p->nfiles)
        return cv_fail(p->why, -ENOENT, s->name, NULL, CV_NO_OFFSET, "there is no file");
    if (s->layout != CV_LAYOUT_FILES && p->nfiles != 1)
        return cv_fail(p->why, -EINVAL, p->files[1].path, NULL, CV_NO_OFFSET, "a second file, and by the schema's layout a set is one; with a file for each rank, say layout: files");
    if (p->nranks > CV_SCHEMA_RANKS_MAX || p->nfiles > CV_SCHEMA_RANKS_MAX || p->nranks * s->ndatasets > CV_BLOCKS_MAX)
        return cv_fail(p->why, -E2BIG, s->name, NULL, CV_NO_OFFSET, "%" PRIu64 " ranks with %zu datasets are more than %u blocks", p->nranks, s->ndatasets, CV_BLOCKS_MAX);
    return 0;
}

static int place_files(struct placing *p)
{
    int rc;

    p->file_of = calloc(p->nranks, sizeof *p->file_of);
    p->at = calloc(p->nranks * p->s->ndatasets, sizeof *p->at);
    p->step_units = calloc(p->nfiles, sizeof *p->step_units);
    if (!p->file_of || !p->at || !p->step_units)
        return no_memory(p);
    for (uint64_t r = 0; p->sizes && p->s->layout == CV_LAYOUT_FILES && r < p->nranks; r++)
        p->file_of[r] = (uint32_t)r;
    rc = p->s->layout == CV_LAYOUT_FILES && !p->sizes ? cv_rank_files(p->s, p->files, p->nfiles, p->nranks, p->file_of, p->why) : 0;
    if (rc == 0)
        rc = check_blocks(p);
    if (rc == 0)
        rc = place_all(p);
    if (rc == 0)
        rc = count_steps(p);
    if (rc == 0 && p->steps > CV_BLOCKS_MAX / (p->nranks * p->s->ndatasets))
        rc = cv_fail(p->why, -E2BIG, p->s->name, NULL, CV_NO_OFFSET, "%" PRIu64 " steps of %" PRIu64 " ranks with %zu datasets are more than %u blocks", p->steps, p->nranks, p->s->ndatasets,
                     CV_BLOCKS_MAX);
    return rc;
}

static int make_model(struct placing *p, struct cv_model **out)
{
    struct cv_model *m = NULL;
    int rc = count_ranks(p);

    if (rc == 0)
        rc = cv_schema_units(p->s, p->records, p->why);
    if (rc == 0)
        rc = place_files(p);
    if (rc == 0 && (!(m = cv_model_new()) || copy_attrs(&m->attrs, &p->s->attrs)))
        rc = no_memory(p);
    for (size_t i = 0; i < p->s->ndatasets && rc == 0; i++)
        rc = add_dataset(p, m, i);
    free(p->file_of);
    free(p->at);
    free(p->step_units);
    if (rc) {
        cv_model_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

int cv_schema_model(const struct cv_schema *s, const struct cv_schema_file *files, size_t nfiles, bool sizes_matter, struct cv_model **out, struct cv_fail *why)
{
    struct placing p = {.s = s, .files = files, .nfiles = nfiles, .records = !sizes_matter, .why = why};

    return make_model(&p, out);
}

uint64_t cv_schema_files(const struct cv_schema *s)
{
    return s->layout == CV_LAYOUT_FILES ? s->ranks : 1;
}

int cv_schema_lay_out(const struct cv_schema *s, uint64_t steps, uint64_t *sizes, struct cv_model **out, struct cv_fail *why)
{
    struct placing p = {.s = s, .nfiles = cv_schema_files(s), .sizes = sizes, .steps = s->steps ? s->steps : steps, .why = why};

    if (!cv_schema_ranks(s))
        return cv_fail(why, -EINVAL, s->name, NULL, CV_NO_OFFSET, "nothing says of how many ranks files are to be written: ranks:");
    return make_model(&p, out);
}
