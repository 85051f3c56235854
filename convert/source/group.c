/*
 * from=group: process-group streams, which tools/fpdump writes (group.h, docs/PROTOCOL.md). Called by the engine on its one thread; blocks for the disk.
 *
 * Each variable of each group is a block; those of one name, in all inputs, are a dataset, and must say the same type and global dimensions. Where a variable comes in more than one step it has the
 * steps as its first dimension, named time; one that comes in a single step of many (a mesh) has not.
 *
 * A stream without its index is read as far as its groups are complete. Steps that it may not have whole are left out of all inputs, for a step that is there of some ranks alone would have holes; the
 * attribute fpdump_recovered says what is missing, and from which byte on.
 *
 * Checksums of payloads are compared as far as a payload is read in order; the first read that is not makes us read the rest of it at once. One state is kept, of the block that was read last.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL /* its state in ours: one of a shared library would have to match at run time */
#include <xxhash.h>

#include "convert/buffer.h"
#include "convert/source/group.h"
#include "convert/source/npy.h"
#include "fp/grown.h"

#define STEPS_NAME  "time"
#define STEPS_MAX   1048576u
#define STEPS_SAID  4096u     /* more are not written as an attribute: HDF5 has 64 KiB for one */
#define SUM_BYTES   1048576u

struct payload {
    uint32_t input;
    bool sound;
    uint64_t at, bytes, sum;
};

struct group {
    struct cv_source source;
    struct payload *payloads; /* those with a sum, by input and place */
    size_t npayloads, payloads_cap;
    uint64_t *steps;          /* sorted when all is read */
    size_t nsteps, steps_cap;
    size_t hint;              /* dataset of the record before */
    bool cut;                 /* steps from cut_step on are left out */
    uint64_t cut_step;
    uint64_t input_last;      /* highest step of the input that is walked */
    char said[400];           /* what is missing of the first stream that was recovered */
    size_t nrecovered;
    struct payload *current;  /* whose sum is in state, up to next */
    XXH64_state_t state;
    uint64_t next;
    uint8_t *buffer;
};

static uint64_t le(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static const char *path_of(const struct group *g, uint32_t input)
{
    return g->source.inputs[input].path;
}

static int no_memory(struct cv_fail *why)
{
    return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for the index of the streams, or too many blocks or datasets");
}

/* ---------------------------------------------------------------- steps */

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static void steps_settle(struct group *g)
{
    size_t n = 0;

    if (g->nsteps)
        qsort(g->steps, g->nsteps, sizeof *g->steps, by_number);
    for (size_t i = 0; i < g->nsteps; i++)
        if (i == 0 || g->steps[i] != g->steps[i - 1])
            g->steps[n++] = g->steps[i];
    g->nsteps = n;
}

static int step_add(struct group *g, uint64_t step, struct cv_fail *why)
{
    bool full = g->nsteps == g->steps_cap;

    if (g->nsteps && g->steps[g->nsteps - 1] == step)
        return 0;
    if (full) {
        steps_settle(g); /* ranks have mostly the same ones */
        if (g->nsteps > STEPS_MAX)
            return cv_fail(why, -E2BIG, NULL, NULL, CV_NO_OFFSET, "more than %u steps", STEPS_MAX);
    }
    if (full && g->nsteps >= g->steps_cap / 2) {
        size_t cap = g->steps_cap ? 2 * g->steps_cap : 64;
        uint64_t *more = realloc(g->steps, cap * sizeof *more);

        if (!more)
            return no_memory(why);
        g->steps = more;
        g->steps_cap = cap;
    }
    g->steps[g->nsteps++] = step;
    return 0;
}

static uint64_t step_index(const struct group *g, uint64_t step)
{
    const uint64_t *at = bsearch(&step, g->steps, g->nsteps, sizeof *g->steps, by_number);

    return at ? (uint64_t)(at - g->steps) : 0;
}

/* ---------------------------------------------------------------- variables */

struct variable {
    char name[CV_NAME_MAX + 1];
    struct cv_type type;
    unsigned rank;
    uint64_t global[CV_RANK_MAX], offset[CV_RANK_MAX], local[CV_RANK_MAX];
};

static const char *variable_parse(const struct cv_group_record *r, struct variable *v)
{
    const uint8_t *m = r->meta;
    size_t name_bytes;
    uint64_t bytes;

    if (r->meta_bytes < 8)
        return "the record of a variable is too short";
    v->type = (struct cv_type){.kind = (enum cv_kind)m[0], .size_bytes = m[1], .big_endian = r->big_endian && m[1] > 1};
    v->rank = m[2];
    name_bytes = (size_t)le(m + 4, 4);
    if (v->rank >= CV_RANK_MAX || name_bytes > CV_NAME_MAX || r->meta_bytes != 8 + 24 * (size_t)v->rank + name_bytes)
        return "the record of a variable has lengths that do not fit";
    memcpy(v->name, m + 8 + 24 * v->rank, name_bytes);
    v->name[name_bytes] = '\0';
    if (strlen(v->name) != name_bytes || cv_name_wrong(v->name))
        return "the name of a variable is none of a dataset";
    if (strcmp(cv_type_name(v->type), "unknown") == 0)
        return "its type is not known";
    bytes = v->type.size_bytes;
    for (unsigned i = 0; i < v->rank; i++) {
        v->global[i] = le(m + 8 + 8 * i, 8);
        v->offset[i] = le(m + 8 + 8 * (v->rank + i), 8);
        v->local[i] = le(m + 8 + 8 * (2 * v->rank + i), 8);
        if (v->offset[i] > v->global[i] || v->local[i] > v->global[i] - v->offset[i])
            return "its block does not lie in the global array";
        if (__builtin_mul_overflow(bytes, v->local[i], &bytes))
            return "its block has more than 2^64 bytes";
    }
    return bytes == r->payload_bytes ? NULL : "its local dimensions are not those of its bytes";
}

static struct cv_dataset *dataset_find(struct group *g, const char *name)
{
    struct cv_model *m = g->source.model;

    for (size_t k = 0; k < m->ndatasets; k++) {
        size_t i = (g->hint + 1 + k) % m->ndatasets; /* groups mostly have the same, in the same order */

        if (strcmp(m->datasets[i].name, name) == 0) {
            g->hint = i;
            return &m->datasets[i];
        }
    }
    return NULL;
}

static struct cv_dataset *dataset_add(struct group *g, const struct variable *v)
{
    struct cv_dataset *d = cv_model_add(g->source.model, v->name);
    uint64_t elements;

    if (!d)
        return NULL;
    d->type = v->type;
    d->rank = v->rank;
    for (unsigned i = 0; i < v->rank; i++)
        d->dims[i].size = v->global[i];
    g->hint = g->source.model->ndatasets - 1;
    return cv_dataset_elements(d, &elements) ? d : NULL;
}

static const char *differs(const struct cv_dataset *d, const struct variable *v)
{
    if (d->type.kind != v->type.kind || d->type.size_bytes != v->type.size_bytes)
        return "has another type than in the groups before";
    if (d->type.big_endian != v->type.big_endian)
        return "has another byte order than in the groups before: write all ranks in one order";
    if (d->rank != v->rank)
        return "has another number of dimensions than in the groups before";
    for (unsigned i = 0; i < d->rank; i++)
        if (d->dims[i].size != v->global[i])
            return "has other global dimensions than in the groups before";
    return NULL;
}

static int payload_add(struct group *g, uint32_t input, const struct cv_group_record *r)
{
    struct payload *more;

    if (!r->has_sum || !r->payload_bytes)
        return 0;
    more = fp_grown(g->payloads, g->npayloads, &g->payloads_cap, sizeof *more);
    if (!more)
        return -ENOMEM;
    g->payloads = more;
    g->payloads[g->npayloads++] = (struct payload){.input = input, .at = r->payload_at, .bytes = r->payload_bytes, .sum = r->sum};
    return 0;
}

static int variable_visit(struct group *g, uint32_t input, const struct cv_group_record *r, struct cv_fail *why)
{
    struct variable v;
    const char *wrong = variable_parse(r, &v);
    struct cv_dataset *d;
    struct cv_block *b;

    if (wrong)
        return cv_fail(why, -EINVAL, path_of(g, input), NULL, r->at, "%s", wrong);
    d = dataset_find(g, v.name);
    if (!d)
        d = dataset_add(g, &v);
    if (!d)
        return no_memory(why);
    wrong = differs(d, &v);
    if (wrong)
        return cv_fail(why, -EINVAL, path_of(g, input), v.name, r->at, "%s", wrong);
    b = cv_dataset_block(d);
    if (!b || payload_add(g, input, r) != 0)
        return no_memory(why);
    for (unsigned i = 0; i < v.rank; i++) {
        b->start[i] = v.offset[i];
        b->count[i] = v.local[i];
    }
    b->input = input;
    b->offset_bytes = r->payload_at;
    b->id = r->step;
    g->input_last = r->step > g->input_last ? r->step : g->input_last;
    return step_add(g, r->step, why);
}

/* ---------------------------------------------------------------- attributes */

static int attr_put(struct cv_attrs *to, unsigned kind, const char *name, const uint8_t *values, size_t count)
{
    uint64_t *v = calloc(count + 1, kind == 1 ? 1 : 8);
    double *floats = (double *)v;
    int rc;

    if (!v)
        return -ENOMEM;
    for (size_t i = 0; kind != 1 && i < count; i++)
        v[i] = le(values + 8 * i, 8);
    if (kind == 1)
        memcpy(v, values, count);
    rc = kind == 1 ? cv_attrs_text(to, name, (const char *)v) : kind == 2 ? cv_attrs_ints(to, name, (const int64_t *)v, count) : cv_attrs_floats(to, name, floats, count);
    free(v);
    return rc;
}

static int attribute_visit(struct group *g, uint32_t input, const struct cv_group_record *r, struct cv_fail *why)
{
    const uint8_t *m = r->meta;
    char of[CV_NAME_MAX + 1], name[CV_NAME_MAX + 1];
    size_t of_bytes, name_bytes, rest;
    uint64_t count;
    struct cv_dataset *d = NULL;
    unsigned kind;

    if (r->meta_bytes < 16)
        return cv_fail(why, -EINVAL, path_of(g, input), NULL, r->at, "the record of an attribute is too short");
    kind = (unsigned)le(m, 2);
    of_bytes = (size_t)le(m + 2, 2);
    name_bytes = (size_t)le(m + 4, 4);
    count = le(m + 8, 8);
    rest = r->meta_bytes - 16;
    if (kind < 1 || kind > 3 || of_bytes > CV_NAME_MAX || !name_bytes || name_bytes > CV_NAME_MAX || of_bytes + name_bytes > rest || count > rest ||
        of_bytes + name_bytes + count * (kind == 1 ? 1 : 8) != rest)
        return cv_fail(why, -EINVAL, path_of(g, input), NULL, r->at, "the record of an attribute has lengths that do not fit");
    snprintf(of, sizeof of, "%.*s", (int)of_bytes, (const char *)m + 16);
    snprintf(name, sizeof name, "%.*s", (int)name_bytes, (const char *)m + 16 + of_bytes);
    if (of_bytes)
        d = dataset_find(g, of);
    if (of_bytes && !d)
        return cv_fail(why, -EINVAL, path_of(g, input), of, r->at, "an attribute of a variable that was not written before it");
    return attr_put(d ? &d->attrs : &g->source.model->attrs, kind, name, m + 16 + of_bytes + name_bytes, (size_t)count) == 0 ? 0 : no_memory(why);
}

static int visit(void *arg, uint32_t input, const struct cv_group_record *r, struct cv_fail *why)
{
    return r->kind == CV_GROUP_VARIABLE ? variable_visit(arg, input, r, why) : attribute_visit(arg, input, r, why);
}

/* ---------------------------------------------------------------- what is torn */

static void cut_before(struct group *g, uint64_t step)
{
    if (!g->cut || step < g->cut_step)
        g->cut_step = step;
    g->cut = true;
}

static void note_torn(struct group *g, uint32_t input, const struct cv_group_torn *t)
{
    const struct cv_input *in = &g->source.inputs[input];
    char group[80] = "between groups";

    if (t->in_group)
        snprintf(group, sizeof group, "in the group of rank %" PRIu32 " and step %" PRIu64, t->rank, t->step);
    if (g->nrecovered++ == 0)
        snprintf(g->said, sizeof g->said, "%.200s: without its index, whole up to byte %" PRIu64 " of %" PRIu64 ", cut off %s", in->path, t->at, in->size_bytes, group);
    if (t->in_group)
        cut_before(g, t->step);
    else if (g->input_last != UINT64_MAX)
        cut_before(g, g->input_last + 1);
}

/* Blocks of steps that are left out, and those without elements. */
static void blocks_drop(struct group *g, struct cv_dataset *d)
{
    size_t n = 0;

    for (size_t k = 0; k < d->nblocks; k++) {
        bool empty = g->cut && d->blocks[k].id >= g->cut_step;

        for (unsigned i = 0; i < d->rank; i++)
            empty = empty || (!d->blocks[k].count[i] && d->dims[i].size);
        if (!empty)
            d->blocks[n++] = d->blocks[k];
    }
    d->nblocks = n;
}

static int dataset_drop(struct cv_model *m, size_t i)
{
    struct cv_model *gone = cv_model_new();

    if (!gone)
        return -ENOMEM;
    gone->datasets = malloc(sizeof *gone->datasets);
    if (!gone->datasets) {
        cv_model_free(gone);
        return -ENOMEM;
    }
    gone->datasets[0] = m->datasets[i];
    gone->ndatasets = 1;
    memmove(&m->datasets[i], &m->datasets[i + 1], (m->ndatasets - i - 1) * sizeof *m->datasets);
    m->ndatasets--;
    cv_model_free(gone);
    return 0;
}

static int drop_all(struct group *g, struct cv_fail *why)
{
    struct cv_model *m = g->source.model;
    size_t n = 0;

    steps_settle(g);
    for (size_t i = 0; i < g->nsteps; i++)
        if (!g->cut || g->steps[i] < g->cut_step)
            g->steps[n++] = g->steps[i];
    g->nsteps = n;
    for (size_t i = 0; i < m->ndatasets;) {
        struct cv_dataset *d = &m->datasets[i];
        bool had = d->nblocks > 0;

        blocks_drop(g, d);
        if (d->nblocks || !had || !g->cut)
            i++;
        else if (dataset_drop(m, i) != 0)
            return no_memory(why);
    }
    if (m->ndatasets == 0)
        return cv_fail(why, -ENODATA, g->source.inputs[0].path, NULL, CV_NO_OFFSET, "no variable is there%s%s", g->nrecovered ? " in steps that are complete: " : "", g->said);
    return 0;
}

/* ---------------------------------------------------------------- dimensions */

/* The steps before its own dimensions. */
static int time_add(struct group *g, struct cv_dataset *d)
{
    bool several = false;

    for (size_t k = 1; k < d->nblocks && !several; k++)
        several = d->blocks[k].id != d->blocks[0].id;
    if (!several)
        return 0;
    memmove(&d->dims[1], &d->dims[0], d->rank * sizeof d->dims[0]);
    d->dims[0] = (struct cv_dim){.name = strdup(STEPS_NAME), .size = g->nsteps, .steps = true};
    for (size_t k = 0; k < d->nblocks; k++) {
        struct cv_block *b = &d->blocks[k];

        memmove(&b->start[1], &b->start[0], d->rank * sizeof b->start[0]);
        memmove(&b->count[1], &b->count[0], d->rank * sizeof b->count[0]);
        b->start[0] = step_index(g, b->id);
        b->count[0] = 1;
    }
    d->rank++;
    return d->dims[0].name ? 0 : -ENOMEM;
}

/* Attribute dims: "z y x". */
static int dims_name(const struct group *g, struct cv_dataset *d, struct cv_fail *why)
{
    const struct cv_attr *a = cv_attrs_find(&d->attrs, "dims");
    unsigned first = d->rank && d->dims[0].steps ? 1 : 0, n = first;
    const char *path = d->nblocks ? path_of(g, d->blocks[0].input) : NULL;

    if (!a || a->kind != CV_ATTR_TEXT)
        return 0;
    for (const char *p = a->text + strspn(a->text, " ,"); *p; n++) {
        size_t len = strcspn(p, " ,");

        if (n < d->rank && len <= CV_NAME_MAX && !memchr(p, '/', len)) {
            d->dims[n].name = strndup(p, len);
            if (!d->dims[n].name)
                return no_memory(why);
        }
        p += len + strspn(p + len, " ,");
    }
    if (n != d->rank)
        return cv_fail(why, -EINVAL, path, d->name, CV_NO_OFFSET, "its attribute dims names %u dimensions, and it has %u", n - first, d->rank - first);
    return 0;
}

struct named_dim {
    const struct cv_dim *dim;
    const struct cv_dataset *of;
};

static int by_dim_name(const void *a, const void *b)
{
    const struct named_dim *x = a, *y = b;

    return strcmp(x->dim->name, y->dim->name);
}

/* Dimensions of one name have one size. */
static int dims_agree(const struct group *g, struct cv_fail *why)
{
    const struct cv_model *m = g->source.model;
    struct named_dim *named = malloc(m->ndatasets * CV_RANK_MAX * sizeof *named);
    size_t n = 0;
    int rc = named ? 0 : no_memory(why);

    for (size_t k = 0; named && k < m->ndatasets; k++)
        for (unsigned i = 0; i < m->datasets[k].rank; i++)
            if (m->datasets[k].dims[i].name)
                named[n++] = (struct named_dim){&m->datasets[k].dims[i], &m->datasets[k]};
    if (n)
        qsort(named, n, sizeof *named, by_dim_name);
    for (size_t i = 1; i < n && rc == 0; i++) {
        const struct named_dim *x = &named[i - 1], *y = &named[i];

        if (strcmp(x->dim->name, y->dim->name) == 0 && x->dim->size != y->dim->size)
            rc = cv_fail(why, -EINVAL, path_of(g, 0), x->of->name, CV_NO_OFFSET, "its dimension %s has %" PRIu64 " elements, and that of %s has %" PRIu64, x->dim->name, x->dim->size, y->of->name,
                         y->dim->size);
    }
    free(named);
    return rc;
}

static int describe(struct group *g, struct cv_fail *why)
{
    struct cv_model *m = g->source.model;
    int rc = 0;

    for (size_t i = 0; i < m->ndatasets && rc == 0; i++)
        rc = time_add(g, &m->datasets[i]) != 0 ? no_memory(why) : dims_name(g, &m->datasets[i], why);
    if (rc == 0)
        rc = dims_agree(g, why);
    if (rc == 0 && g->nsteps <= STEPS_SAID && cv_attrs_ints(&m->attrs, "fpdump_steps", (const int64_t *)g->steps, g->nsteps) != 0)
        rc = no_memory(why);
    if (rc == 0 && g->nrecovered) {
        char text[600];

        snprintf(text, sizeof text, "%s; %zu of %zu files; steps from %" PRIu64 " on are left out", g->said, g->nrecovered, g->source.ninputs, g->cut_step);
        rc = cv_attrs_text(&m->attrs, "fpdump_recovered", text) != 0 ? no_memory(why) : 0;
    }
    return rc;
}

/* ---------------------------------------------------------------- the source */

static int by_place(const void *a, const void *b)
{
    const struct payload *x = a, *y = b;

    if (x->input != y->input)
        return x->input < y->input ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static struct payload *payload_at(struct group *g, uint32_t input, uint64_t off)
{
    size_t lo = 0, hi = g->npayloads;

    while (lo < hi) { /* behind the last one that begins at off or before */
        size_t mid = lo + (hi - lo) / 2;

        if (g->payloads[mid].input < input || (g->payloads[mid].input == input && g->payloads[mid].at <= off))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (!lo || g->payloads[lo - 1].input != input || off - g->payloads[lo - 1].at >= g->payloads[lo - 1].bytes)
        return NULL;
    return &g->payloads[lo - 1];
}

static int sum_take(struct group *g, const void *buf, size_t len, struct cv_fail *why)
{
    struct payload *p = g->current;

    XXH64_update(&g->state, buf, len);
    g->next += len;
    if (g->next < p->bytes)
        return 0;
    g->current = NULL;
    p->sound = XXH64_digest(&g->state) == p->sum;
    return p->sound ? 0 : cv_fail(why, -EBADMSG, path_of(g, p->input), NULL, p->at, "the checksum of the %" PRIu64 " bytes from here on is not theirs: the file is damaged", p->bytes);
}

/* The rest of the block whose sum is being made. */
static int sum_finish(struct group *g, struct cv_fail *why)
{
    int rc = 0;

    if (g->current && !g->buffer)
        g->buffer = cv_buffer(SUM_BYTES);
    if (g->current && !g->buffer)
        return no_memory(why);
    while (g->current && rc == 0) {
        uint64_t left = g->current->bytes - g->next;
        size_t n = left < SUM_BYTES ? (size_t)left : SUM_BYTES;

        rc = cv_inputs_read(&g->source, g->current->input, g->current->at + g->next, g->buffer, n, why);
        if (rc == 0)
            rc = sum_take(g, g->buffer, n, why);
    }
    return rc;
}

static int group_read(struct cv_source *s, uint32_t input, uint64_t off, void *buf, size_t len, struct cv_fail *why)
{
    struct group *g = (struct group *)s;
    struct payload *p = payload_at(g, input, off);
    int rc = cv_inputs_read(s, input, off, buf, len, why);

    if (rc || !p || p->sound)
        return rc;
    if (len > p->bytes - (off - p->at))
        return cv_fail(why, -ENODATA, path_of(g, input), NULL, off, "%zu bytes that are not in one block are to be read", len);
    if (g->current != p) {
        rc = sum_finish(g, why);
        if (rc)
            return rc;
        XXH64_reset(&g->state, 0);
        g->current = p;
        g->next = 0;
    }
    if (off - p->at == g->next)
        return sum_take(g, buf, len, why);
    return off - p->at + len <= g->next ? 0 : sum_finish(g, why);
}

static void group_close(struct cv_source *s)
{
    struct group *g = (struct group *)s;

    free(g->payloads);
    free(g->steps);
    free(g->buffer);
    cv_inputs_close(s);
    cv_model_free(s->model);
    free(g);
}

static int group_fill(struct group *g, const struct cv_source_options *o, struct cv_fail *why)
{
    int rc = cv_inputs_open(&g->source, o, why);

    g->source.model = cv_model_new();
    if (rc == 0 && !g->source.model)
        rc = no_memory(why);
    for (uint32_t i = 0; rc == 0 && i < g->source.ninputs; i++) {
        struct cv_group_torn torn;

        g->input_last = 0;
        rc = cv_group_walk(&g->source, i, visit, g, &torn, why);
        if (rc == 0 && torn.recovered)
            note_torn(g, i, &torn);
    }
    if (rc == 0)
        rc = drop_all(g, why);
    if (rc == 0)
        rc = describe(g, why);
    if (rc == 0 && g->npayloads)
        qsort(g->payloads, g->npayloads, sizeof *g->payloads, by_place);
    return rc;
}

static int group_open(const struct cv_source_options *o, struct cv_source **out, struct cv_fail *why)
{
    struct group *g = calloc(1, sizeof *g);
    int rc;

    if (!g)
        return no_memory(why);
    g->source.ops = &cv_source_group;
    rc = group_fill(g, o, why);
    if (rc) {
        group_close(&g->source);
        return rc;
    }
    *out = &g->source;
    return 0;
}

const struct cv_source_ops cv_source_group = {
    .name = "group",
    .summary = "process-group streams, which fpdump writes",
    .open = group_open,
    .read_bytes = group_read,
    .close = group_close,
};
