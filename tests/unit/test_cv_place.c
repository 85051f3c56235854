/* Schemas and the files of a set: where each block is, how long each file must be, whose file is whose. Against files that are written here, element by element, from random schemas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/schema/parts.h"

static struct cv_schema *parsed(const char *text)
{
    struct cv_fail why = {0};
    struct cv_schema *s = NULL;

    if (cv_schema_parse("s.yaml", text, strlen(text), &s, &why))
        fail_msg("%s\nof\n%s", why.text, text);
    return s;
}

static struct cv_model *made(const char *text, const struct cv_schema_file *files, size_t n, bool sizes_matter)
{
    struct cv_fail why = {0};
    struct cv_schema *s = parsed(text);
    struct cv_model *m = NULL;

    if (cv_schema_model(s, files, n, sizes_matter, &m, &why))
        fail_msg("%s: %s\nof\n%s", why.file, why.text, text);
    cv_schema_free(s);
    return m;
}

static void refused(const char *text, const struct cv_schema_file *files, size_t n, int rc, const char *file, const char *words, struct cv_fail *out)
{
    struct cv_fail why = {0};
    struct cv_schema *s = parsed(text);
    struct cv_model *m = NULL;
    int got = cv_schema_model(s, files, n, true, &m, &why);

    if (got != rc || m || strcmp(why.file, file) != 0 || !strstr(why.text, words))
        fail_msg("%d, \"%s: %s\", and not %d, \"%s: … %s\", of\n%s", got, why.file, why.text, rc, file, words, text);
    cv_schema_free(s);
    if (out)
        *out = why;
}

#define FILES(...) (const struct cv_schema_file[]){__VA_ARGS__}
#define HEAD       "fpschema: 1\n"

/* ---------------------------------------------------------------- random schemas against files written element by element */

#define ARRAYS  2u
#define DIMS    3u
#define BYTES   (1u << 16)
#define GHOST   (-1)

struct world {
    char text[2048];
    bool fortran, grid_fortran, spread;
    unsigned layout, rank, steps, narrays;
    uint64_t dims[ARRAYS][DIMS], grid[DIMS], ranks, header, step_header, skip[ARRAYS];
    unsigned lo[ARRAYS][DIMS], hi[ARRAYS][DIMS];
    int32_t *file[64];
    uint64_t len[64]; /* bytes */
};

static unsigned below(unsigned n)
{
    return (unsigned)rand() % n;
}

static void list(char *out, const char *key, const uint64_t *v, unsigned n, const char *end)
{
    sprintf(out + strlen(out), "%s[", key);
    for (unsigned i = 0; i < n; i++)
        sprintf(out + strlen(out), "%s%llu", i ? ", " : "", (unsigned long long)v[i]);
    sprintf(out + strlen(out), "]%s", end);
}

static void choose(struct world *w)
{
    static const char *const layouts[] = {"files", "shared", "segments"};
    char *t = w->text;
    uint64_t v[DIMS];

    memset(w, 0, sizeof *w);
    w->fortran = below(2);
    w->grid_fortran = below(2);
    w->spread = below(2);
    w->layout = below(3);
    w->rank = 1 + below(DIMS);
    w->steps = 1 + below(3);
    w->narrays = 1 + below(ARRAYS);
    w->header = 4 * below(3);
    w->step_header = w->steps > 1 ? 4 * below(3) : 0;
    w->ranks = 1;
    for (unsigned i = 0; i < w->rank; i++)
        w->ranks *= w->grid[i] = 1 + below(4);
    sprintf(t, HEAD "order: %s\nheader: %llu\nlayout: %s\nsteps: %u\nstep_header: %llu\n", w->fortran ? "fortran" : "C", (unsigned long long)w->header, layouts[w->layout], w->steps,
            (unsigned long long)w->step_header);
    list(t, "ranks: {grid: ", w->grid, w->rank, ", order: ");
    sprintf(t + strlen(t), "%s%s}\ndatasets:\n", w->grid_fortran ? "fortran" : "C", w->spread ? ", remainder: spread" : "");
    for (unsigned a = 0; a < w->narrays; a++) {
        w->skip[a] = 4 * below(3);
        for (unsigned i = 0; i < w->rank; i++) {
            w->dims[a][i] = below(8) ? 1 + below(7) : 0;
            w->lo[a][i] = below(3);
            w->hi[a][i] = below(2);
        }
        sprintf(t + strlen(t), "- name: a%u\n  type: int32\n  skip: %llu\n", a, (unsigned long long)w->skip[a]);
        list(t, "  dims: ", w->dims[a], w->rank, "\n");
        for (unsigned i = 0; i < w->rank; i++)
            v[i] = w->lo[a][i];
        list(t, "  ghost: {lo: ", v, w->rank, ", hi: ");
        for (unsigned i = 0; i < w->rank; i++)
            v[i] = w->hi[a][i];
        list(t, "", v, w->rank, "}\n");
    }
}

/* Cells dealt out one by one, and the ranks' coordinates counted up one by one. */
static void deal(bool spread, uint64_t n, uint64_t parts, uint64_t which, uint64_t *start, uint64_t *count)
{
    uint64_t of[64] = {0}, part = 0;

    for (uint64_t c = 0; c < n; c++) { /* spread: cell c is of the last part that begins at it or before */
        while (spread && part + 1 < parts && n * (part + 1) / parts <= c)
            part++;
        of[spread ? part : c % parts]++;
    }
    *start = 0;
    for (uint64_t k = 0; k < which; k++)
        *start += of[k];
    *count = of[which];
}

static void coordinates(const struct world *w, uint64_t r, uint64_t *at)
{
    memset(at, 0, DIMS * sizeof *at);
    while (r--) {
        for (unsigned k = 0; k < w->rank; k++) {
            unsigned i = w->grid_fortran ? k : w->rank - 1 - k;

            if (++at[i] < w->grid[i])
                break;
            at[i] = 0;
        }
    }
}

static int32_t value_of(const struct world *w, unsigned a, unsigned step, const uint64_t *g)
{
    int32_t v = 0;

    for (unsigned k = 0; k < w->rank; k++) {
        unsigned i = w->fortran ? w->rank - 1 - k : k;

        v = v * (int32_t)w->dims[a][i] + (int32_t)g[i];
    }
    return (int32_t)(a * 100000 + step * 10000) + v;
}

static void put(struct world *w, uint64_t f, int32_t v)
{
    if (!w->file[f])
        w->file[f] = malloc(BYTES);
    assert_true(w->len[f] + 4 <= BYTES);
    w->file[f][w->len[f] / 4] = v;
    w->len[f] += 4;
}

static void pad(struct world *w, uint64_t f, uint64_t bytes)
{
    for (; bytes; bytes -= 4)
        put(w, f, -2);
}

static void put_block(struct world *w, uint64_t f, unsigned a, unsigned step, uint64_t r)
{
    uint64_t at[DIMS], start[DIMS], count[DIMS], stored[DIMS], n = 1;

    coordinates(w, r, at);
    for (unsigned i = 0; i < w->rank; i++) {
        deal(w->spread, w->dims[a][i], w->grid[i], at[i], &start[i], &count[i]);
        stored[i] = w->lo[a][i] + count[i] + w->hi[a][i];
        n *= stored[i];
    }
    for (uint64_t e = 0; e < n; e++) {
        uint64_t rest = e, g[DIMS] = {0};
        bool ghost = false;

        for (unsigned k = 0; k < w->rank; k++) {
            unsigned i = w->fortran ? k : w->rank - 1 - k;
            uint64_t local = rest % stored[i];

            rest /= stored[i];
            ghost = ghost || local < w->lo[a][i] || local >= w->lo[a][i] + count[i];
            g[i] = start[i] + local - w->lo[a][i];
        }
        put(w, f, ghost ? GHOST : value_of(w, a, step, g));
    }
}

static void write_files(struct world *w)
{
    for (uint64_t f = 0; f < (w->layout == 0 ? w->ranks : 1); f++) {
        pad(w, f, w->header);
        for (unsigned k = 0; k < w->steps; k++) {
            pad(w, f, w->step_header);
            if (w->layout == 1)
                for (unsigned a = 0; a < w->narrays; a++) {
                    pad(w, f, w->skip[a]);
                    for (uint64_t r = 0; r < w->ranks; r++)
                        put_block(w, f, a, k, r);
                }
            for (uint64_t r = w->layout == 0 ? f : 0; w->layout != 1 && r < (w->layout == 0 ? f + 1 : w->ranks); r++)
                for (unsigned a = 0; a < w->narrays; a++) {
                    pad(w, f, w->skip[a]);
                    put_block(w, f, a, k, r);
                }
        }
    }
}

/* Every element of a block, by its place in the file; seen[] counts those of the array. */
static void read_block(const struct world *w, const struct cv_dataset *d, const struct cv_block *b, unsigned a, unsigned char *seen)
{
    unsigned lead = w->steps > 1;
    uint64_t n = 1;

    for (unsigned i = 0; i < d->rank; i++)
        n *= b->count[i];
    assert_true(n > 0);
    for (uint64_t e = 0; e < n; e++) {
        uint64_t rest = e, global = 0, place = 0, times = 1, local[CV_RANK_MAX];
        unsigned step = lead ? (unsigned)b->start[0] : 0;
        int32_t want = (int32_t)(a * 100000 + step * 10000), got, in_step = 0;

        for (unsigned i = d->rank; i-- > 0; rest /= b->count[i])
            local[i] = rest % b->count[i];
        for (unsigned i = 0; i < d->rank; i++) {
            uint64_t at = b->start[i] + local[i] * b->stride[i];

            assert_true(at < d->dims[i].size);
            global = global * d->dims[i].size + at;
            if (i >= lead)
                in_step = in_step * (int32_t)d->dims[i].size + (int32_t)at;
        }
        for (unsigned i = d->rank; i-- > 0; times *= cv_block_stored(b, i))
            place += times * (b->ghost_lo[i] + local[i]);
        assert_true(b->offset_bytes + 4 * place + 4 <= w->len[b->input]);
        got = w->file[b->input][b->offset_bytes / 4 + place];
        if (got != want + in_step)
            fail_msg("%d and not %d in\n%s", got, want + in_step, w->text);
        seen[global]++;
    }
}

static void check_model(const struct world *w, const struct cv_model *m)
{
    assert_int_equal(m->ndatasets, w->narrays);
    for (unsigned a = 0; a < w->narrays; a++) {
        const struct cv_dataset *d = &m->datasets[a];
        unsigned char *seen;
        uint64_t n;

        assert_int_equal(d->rank, w->rank + (w->steps > 1));
        assert_true(w->steps == 1 || (d->dims[0].steps && d->dims[0].size == w->steps));
        assert_true(cv_dataset_elements(d, &n));
        seen = calloc(1, n + 1);
        for (size_t i = 0; i < d->nblocks; i++)
            read_block(w, d, &d->blocks[i], a, seen);
        for (uint64_t i = 0; i < n; i++)
            if (seen[i] != 1)
                fail_msg("element %llu of a%u is there %u times in\n%s", (unsigned long long)i, a, seen[i], w->text);
        free(seen);
    }
}

/* Ranks are dealt to files in any order, with names that count them. */
static size_t name_files(const struct world *w, struct cv_schema_file *files, char names[64][48])
{
    size_t n = w->layout == 0 ? w->ranks : 1;

    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], 48, "dir_9/step7_%03zu.raw", i);
        files[i] = (struct cv_schema_file){.path = names[i], .size_bytes = w->len[i]};
    }
    return n;
}

static void check_sizes(const struct world *w, struct cv_schema_file *files, size_t n)
{
    struct cv_fail why;
    size_t f = below((unsigned)n);

    files[f].size_bytes++;
    refused(w->text, files, n, -EMSGSIZE, files[f].path, "1 are there that the schema does not say", &why);
    assert_int_equal(why.offset_bytes, w->len[f]);
    if (files[f].size_bytes < 2)
        return;
    files[f].size_bytes -= 2;
    refused(w->text, files, n, -ENODATA, files[f].path, "too short", &why);
    assert_int_equal(why.offset_bytes, w->len[f] - 1);
}

static void test_random_schemas_find_each_element_once(void **state)
{
    static struct world w;
    struct cv_schema_file files[64];
    char names[64][48];

    (void)state;
    srand(7);
    for (unsigned round = 0; round < 1500; round++) {
        struct cv_model *m;
        size_t n;

        choose(&w);
        write_files(&w);
        n = name_files(&w, files, names);
        m = made(w.text, files, n, true);
        check_model(&w, m);
        cv_model_free(m);
        check_sizes(&w, files, n);
        for (size_t i = 0; i < 64; i++)
            free(w.file[i]);
    }
}

static void test_grids_with_remainders_lie_as_they_are_dealt(void **state)
{
    (void)state;
    srand(11);
    for (unsigned round = 0; round < 500; round++) {
        static struct world w;
        struct cv_schema *s;
        uint64_t start[DIMS], count[DIMS], at[DIMS], lo, n;

        choose(&w);
        s = parsed(w.text);
        assert_int_equal(cv_schema_ranks(s), w.ranks);
        assert_int_equal(s->grid.rank, w.rank);
        for (uint64_t r = 0; r < w.ranks; r++) {
            cv_grid_block(&s->grid, s->grid_fortran, w.dims[0], r, start, count);
            coordinates(&w, r, at);
            for (unsigned i = 0; i < w.rank; i++) {
                deal(w.spread, w.dims[0][i], w.grid[i], at[i], &lo, &n);
                assert_int_equal(start[i], lo);
                assert_int_equal(count[i], n);
            }
        }
        cv_schema_free(s);
    }
}

/* ---------------------------------------------------------------- blocks of all kinds */

static void test_blocks_of_a_list_have_strides(void **state)
{
    struct cv_model *m = made(HEAD "order: fortran\nranks: 2\ndatasets:\n- {name: a, type: int8, dims: [6, 2], block: [{start: [0, 0], count: [3, 2], stride: [2, 1]}, {start: [1, 0], count: [3, 2], stride: [2, 1]}]}\n",
                              FILES({"a1", 6, 0}, {"a0", 6, 0}), 2, true);
    const struct cv_dataset *d = &m->datasets[0];

    (void)state;
    assert_int_equal(d->nblocks, 2);
    assert_true(d->dims[0].size == 2 && d->dims[1].size == 6);
    assert_true(d->blocks[0].input == 1 && d->blocks[1].input == 0 && d->blocks[1].id == 1);
    assert_true(d->blocks[1].start[1] == 1 && d->blocks[1].count[1] == 3 && d->blocks[1].stride[1] == 2 && d->blocks[1].stride[0] == 1);
    cv_model_free(m);
}

static void test_a_block_of_no_elements_is_left_out_but_its_ghosts_are_not(void **state)
{
    struct cv_model *m = made(HEAD "ranks: {grid: [3]}\ndatasets:\n- {name: a, type: int8, dims: [2], ghost: 1}\n- {name: b, type: int8, dims: [3]}\n", FILES({"a0", 4, 0}, {"a1", 4, 0}, {"a2", 3, 0}), 3, true);

    (void)state;
    assert_int_equal(m->datasets[0].nblocks, 2);
    assert_int_equal(m->datasets[1].nblocks, 3);
    assert_int_equal(m->datasets[1].blocks[2].offset_bytes, 2);
    cv_model_free(m);
}

static void test_what_each_file_has_all_of_is_read_once(void **state)
{
    static const char text[] = HEAD "ranks: {grid: [2]}\ndatasets:\n- {name: t, type: float64, dims: []}\n- {name: a, type: int8, dims: [3]}\n- {name: w, type: int8, dims: [4], block: whole, overlap: last}\n";
    struct cv_model *m = made(text, FILES({"a0", 14, 0}, {"a1", 13, 0}), 2, true);

    (void)state;
    assert_true(m->datasets[0].nblocks == 1 && m->datasets[0].blocks[0].input == 0 && m->datasets[0].rank == 0);
    assert_true(m->datasets[2].nblocks == 1 && m->datasets[2].blocks[0].input == 1 && m->datasets[2].blocks[0].offset_bytes == 9);
    cv_model_free(m);
    m = made(HEAD "layout: shared\nranks: {grid: [2]}\ndatasets:\n- {name: w, type: int8, dims: [4], block: whole, overlap: last}\n- {name: a, type: int8, dims: [3]}\n", FILES({"a", 7, 0}), 1, true);
    assert_true(m->datasets[0].nblocks == 1 && m->datasets[1].blocks[1].offset_bytes == 6);
    cv_model_free(m);
}

static void test_a_dataset_may_have_a_grid_of_its_own(void **state)
{
    struct cv_model *m = made(HEAD "ranks: {grid: [2, 2]}\ndatasets:\n- {name: a, type: int8, dims: [4, 4]}\n- {name: z, type: int8, dims: [4], block: {grid: [4]}}\n",
                              FILES({"0", 5, 0}, {"1", 5, 0}, {"2", 5, 0}, {"3", 5, 0}), 4, true);

    (void)state;
    assert_true(m->datasets[1].blocks[3].start[0] == 3 && m->datasets[1].blocks[3].offset_bytes == 4);
    cv_model_free(m);
}

static void test_whole_arrays_in_one_file(void **state)
{
    struct cv_model *m = made(HEAD "layout: global\nheader: 3\nsteps: all\nstep_header: 1\ndims: {x: 4}\ndatasets:\n- {name: a, type: int16, dims: [x], skip: 2}\n- {name: b, type: int8, dims: []}\n",
                              FILES({"f", 3 + 3 * 12, 0}), 1, true);
    const struct cv_dataset *d = &m->datasets[0];

    (void)state;
    assert_true(d->rank == 2 && d->dims[0].steps && d->dims[0].size == 3 && d->nblocks == 3);
    assert_string_equal(d->dims[0].name, "time");
    assert_string_equal(d->dims[1].name, "x");
    assert_true(d->blocks[2].start[0] == 2 && d->blocks[2].count[0] == 1 && d->blocks[2].count[1] == 4 && d->blocks[2].offset_bytes == 3 + 2 * 12 + 1 + 2);
    assert_true(m->datasets[1].rank == 1 && m->datasets[1].blocks[0].offset_bytes == 3 + 1 + 2 + 8);
    cv_model_free(m);
}

static void test_an_offset_counts_from_the_beginning_of_the_file(void **state)
{
    struct cv_model *m = made(HEAD "layout: global\nheader: 8\nsteps: 2\ndatasets:\n- {name: a, type: int8, dims: [4], offset: 20}\n- {name: b, type: int8, dims: [4]}\n- {name: c, type: int8, dims: [8], offset: 8}\n",
                              FILES({"f", 8 + 2 * 20, 0}), 1, true);

    (void)state;
    assert_int_equal(m->datasets[0].blocks[0].offset_bytes, 20);
    assert_int_equal(m->datasets[1].blocks[0].offset_bytes, 24);
    assert_int_equal(m->datasets[2].blocks[1].offset_bytes, 28);
    cv_model_free(m);
}

static void test_records_are_counted_instead_of_bytes(void **state)
{
    static const char text[] = HEAD "order: fortran\nsteps: all\nranks: {grid: [2, 1]}\ndatasets:\n- {name: a, type: f8, dims: [4, 2], record: 2}\n- {name: b, type: f8, dims: [4, 2]}\n- {name: c, type: f8, dims: [], record: 1}\n";
    struct cv_model *m = made(text, FILES({"f0", 0, 6}, {"f1", 0, 6}), 2, false);

    (void)state;
    assert_true(m->datasets[0].dims[0].size == 2 && m->datasets[0].nblocks == 4);
    assert_int_equal(m->datasets[0].blocks[3].offset_bytes, 4);
    assert_int_equal(m->datasets[1].blocks[1].offset_bytes, 2);
    assert_int_equal(m->datasets[2].blocks[1].offset_bytes, 3);
    cv_model_free(m);
    m = made(HEAD "layout: shared\nranks: {grid: [2]}\ndatasets:\n- {name: a, type: f8, dims: [4]}\n- {name: b, type: f8, dims: [4]}\n", FILES({"f", 1, 0}), 1, false);
    assert_int_equal(m->datasets[1].blocks[1].offset_bytes, 3);
    cv_model_free(m);
}

static void refused_records(const char *text, uint64_t records, int rc, const char *words)
{
    struct cv_fail why = {0};
    struct cv_schema *s = parsed(text);
    struct cv_model *m = NULL;

    assert_int_equal(cv_schema_model(s, FILES({"f", 0, records}), 1, false, &m, &why), rc);
    if (!strstr(why.text, words))
        fail_msg("%s", why.text);
    cv_schema_free(s);
}

static void test_bytes_and_records_are_not_mixed(void **state)
{
#define TWO "datasets: [{name: a, type: f8, dims: [2]}, {name: b, type: f8, dims: [2]}]\n"
    (void)state;
    refused_records(HEAD "steps: all\n" TWO, 0, -EINVAL, "say steps: N");
    refused_records(HEAD "steps: all\n" TWO, 1, -ENODATA, "a step has 2");
    refused_records(HEAD "steps: all\n" TWO, 5, -ENODATA, "no whole number of steps");
    refused_records(HEAD "header: 4\n" TWO, 2, -EINVAL, "header counts bytes");
    refused_records(HEAD "steps: 2\nstep_header: 4\n" TWO, 4, -EINVAL, "step_header counts bytes");
    refused_records(HEAD "datasets: [{name: a, type: f8, dims: [2], skip: 4}]\n", 2, -EINVAL, "skip counts bytes");
    refused_records(HEAD "datasets: [{name: a, type: f8, dims: [2], offset: 0}]\n", 2, -EINVAL, "offset counts bytes");
    refused(HEAD "datasets: [{name: a, type: f8, dims: [2], record: 1}]\n", FILES({"f", 16, 0}), 1, -EINVAL, "s.yaml", "record goes with from=fortran", NULL);
}

/* ---------------------------------------------------------------- ranks and names */

#define GRID2 HEAD "ranks: {grid: [2]}\ndatasets: [{name: a, type: int8, dims: [2]}]\n"

static void test_ranks_that_are_missing_or_twice_are_named(void **state)
{
    (void)state;
    refused(GRID2, FILES({"d/r_0", 1, 0}), 1, -ENOENT, "s.yaml", "1 of 2 ranks have no file: rank 1", NULL);
    refused(GRID2, FILES({"d/r_0", 1, 0}, {"e/r_00", 1, 0}), 2, -EEXIST, "e/r_00", "a second file of rank 0: d/r_0", NULL);
    refused(GRID2, FILES({"r_1", 1, 0}, {"r_2", 1, 0}), 2, -EINVAL, "r_2", "names count from 1", NULL);
    refused(GRID2, FILES({"r_0", 1, 0}, {"r_7", 1, 0}), 2, -EINVAL, "r_7", "rank 7: there are 2 ranks, from 0 on", NULL);
    refused(GRID2, FILES({"r_0", 1, 0}, {"r.raw", 1, 0}), 2, -EINVAL, "r.raw", "no number", NULL);
    refused(GRID2, FILES({"r_0", 1, 0}, {"r_99999999999999999999", 1, 0}), 2, -EINVAL, "r_99999999999999999999", "no number", NULL);
    refused(GRID2, NULL, 0, -ENOENT, "s.yaml", "no file", NULL);
    refused(HEAD "rank: 'r{rank}_*.raw'\nranks: {grid: [2]}\ndatasets: [{name: a, type: int8, dims: [2]}]\n", FILES({"r0_5.raw", 1, 0}, {"s1_5.raw", 1, 0}), 2, -EINVAL, "s1_5.raw",
            "the name does not say the rank", NULL);
    refused(HEAD "ranks: {grid: [2], first: 1}\ndatasets: [{name: a, type: int8, dims: [2]}]\n", FILES({"r_1", 1, 0}, {"r_0", 1, 0}), 2, -EINVAL, "r_0", "from 1 on", NULL);
    refused(HEAD "layout: global\ndatasets: [{name: a, type: int8, dims: [2]}]\n", FILES({"x", 2, 0}, {"y", 2, 0}), 2, -EINVAL, "y", "a second file", NULL);
}

static void test_names_that_count_from_one(void **state)
{
    struct cv_model *m = made(HEAD "ranks: {grid: [2], first: 1}\ndatasets: [{name: a, type: int8, dims: [2]}]\n", FILES({"r_2", 1, 0}, {"r_1", 1, 0}), 2, true);

    (void)state;
    assert_true(m->datasets[0].blocks[0].input == 1 && m->datasets[0].blocks[1].start[0] == 1);
    cv_model_free(m);
}

static void test_without_ranks_there_are_as_many_as_files(void **state)
{
    static const char one[] = HEAD "datasets: [{name: a, type: int8, dims: [2]}]\n";
    static const char two[] = HEAD "datasets:\n- {name: a, type: int8, dims: [2], block: [{start: [0], count: [1]}, {start: [1], count: [1]}]}\n";
    struct cv_model *m = made(one, FILES({"dump_0007.raw", 2, 0}), 1, true);

    (void)state;
    cv_model_free(m);
    m = made(two, FILES({"a1", 1, 0}, {"a0", 1, 0}), 2, true);
    assert_int_equal(m->datasets[0].nblocks, 2);
    cv_model_free(m);
    refused(one, FILES({"a1", 2, 0}, {"a0", 2, 0}), 2, -EINVAL, "s.yaml", "line 2, column 12: nothing says which block", NULL);
    refused(two, FILES({"a0", 1, 0}), 1, -EINVAL, "s.yaml", "line 3, column 3: blocks of 2 ranks, and there are 1 files", NULL);
}

static void names(const char *template, const char *path, long want)
{
    uint64_t n = 0;
    bool found = cv_rank_of_name(template, path, &n);

    if (found != (want >= 0) || (found && n != (uint64_t)want))
        fail_msg("%s of %s: %d, %llu", template ? template : "-", path, found, (unsigned long long)n);
}

static void test_ranks_are_found_in_names(void **state)
{
    (void)state;
    names(NULL, "/a/chk_0007/rank_12.raw", 12);
    names(NULL, "step7.0003", 3);
    names(NULL, "dir7/rank", -1);
    names("rank_{rank}.raw", "/a/7/rank_012.raw", 12);
    names("rank_{rank}.raw", "rank_12.raw.tmp", -1);
    names("rank_{rank}.raw", "xrank_12.raw", -1);
    names("*_{rank}.raw", "a_1_22.raw", 22);
    names("{rank}_*", "5_7", 5);
    names("{rank}", "17", 17);
    names("*{rank}", "17", 17);
    names("*{rank}*", "a17b", 17);
    names("p{rank}/data_*.raw", "/x/p3/data_9.raw", 3);
    names("p{rank}/data_*.raw", "/x/q3/data_9.raw", -1);
    names("p*{rank}.raw", "p/3.raw", -1);
    names("r{rank}*aaab", "r1aaaaaaab", 1);
}

/* ---------------------------------------------------------------- sizes */

static void test_a_file_that_is_cut_says_where(void **state)
{
    static const char text[] = HEAD "header: 10\nsteps: 3\nstep_header: 2\nranks: {grid: [2]}\ndatasets: [{name: a, type: int8, dims: [8]}, {name: b, type: int32, dims: [8]}]\n";
    struct cv_fail why;
    uint64_t whole = 10 + 3 * (2 + 4 + 16);

    (void)state;
    refused(text, FILES({"r0", whole, 0}, {"r1", whole - 22 - 5, 0}), 2, -ENODATA, "r1", "49 bytes, and 76 expected: it ends here, with 11 of this dataset's 16 bytes, rank 1, step 1", &why);
    assert_string_equal(why.dataset, "/b");
    assert_int_equal(why.offset_bytes, whole - 27);
    refused(text, FILES({"r0", 33, 0}, {"r1", whole, 0}), 2, -ENODATA, "r0", "with 0 of this dataset's 4 bytes, rank 0, step 1", &why);
    assert_string_equal(why.dataset, "/a");
    refused(text, FILES({"r0", 9, 0}, {"r1", whole, 0}), 2, -ENODATA, "r0", "header of 10", NULL);
    refused(text, FILES({"r0", whole, 0}, {"r1", whole + 3, 0}), 2, -EMSGSIZE, "r1", "79 bytes, and 76 expected: 3 are there", &why);
    assert_int_equal(why.offset_bytes, whole);
}

static void test_steps_are_counted_by_size(void **state)
{
    static const char text[] = HEAD "steps: all\nheader: 1\nranks: {grid: [2]}\ndatasets: [{name: a, type: int8, dims: [8]}]\n";

    (void)state;
    refused(text, FILES({"r0", 1 + 4 * 3, 0}, {"r1", 1 + 4 * 2, 0}), 2, -EINVAL, "r1", "2 steps, and 3 in r0", NULL);
    refused(text, FILES({"r0", 1 + 4 * 3, 0}, {"r1", 1 + 4 * 3 - 1, 0}), 2, -ENODATA, "r1", "3 of this dataset's 4 bytes, rank 1, step 2", NULL);
    refused(text, FILES({"r0", 1, 0}, {"r1", 5, 0}), 2, -ENODATA, "r0", "too short: 1 bytes, and 5 expected", NULL);
    refused(HEAD "steps: all\ndatasets: [{name: a, type: int8, dims: [0]}]\n", FILES({"f", 0, 0}), 1, -EINVAL, "s.yaml", "a step has no bytes", NULL);
    refused(HEAD "steps: all\ndatasets: [{name: a, type: int8, dims: []}]\n", FILES({"f", CV_BLOCKS_MAX + 1, 0}), 1, -E2BIG, "s.yaml", "more than 1048576 blocks", NULL);
}

static void test_sums_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    refused(HEAD "header: 9223372036854775807\ndatasets: [{name: a, type: int8, dims: [1]}]\n", FILES({"f", 1, 0}), 1, -EOVERFLOW, "s.yaml", "2^63", NULL);
    refused(HEAD "datasets: [{name: a, type: int8, dims: [1], skip: 9223372036854775807}]\n", FILES({"f", 1, 0}), 1, -EOVERFLOW, "s.yaml", "2^63", NULL);
    refused(HEAD "steps: 3\ndatasets: [{name: a, type: int8, dims: [4611686018427387904]}]\n", FILES({"f", 1, 0}), 1, -EOVERFLOW, "s.yaml", "2^63", NULL);
    refused(HEAD "steps: 4\nstep_header: 9223372036854775807\ndatasets: [{name: a, type: int8, dims: []}]\n", FILES({"f", 1, 0}), 1, -EOVERFLOW, "s.yaml", "2^63", NULL);
    refused(HEAD "ranks: {grid: [1048576]}\ndatasets: [{name: a, type: int8, dims: [1]}, {name: b, type: int8, dims: [1]}]\n", FILES({"f", 1, 0}), 1, -E2BIG, "s.yaml", "blocks", NULL);
}

static void test_attributes_and_policies_come_into_the_model(void **state)
{
    struct cv_model *m = made(HEAD "attributes: {title: x, n: [1, 2]}\ndatasets: [{name: g/a, type: '>f4', dims: [2], units: K, gaps: fill, fill: 3, overlap: last, nan: refuse, attributes: {f: 0.5}}]\n",
                              FILES({"f", 8, 0}), 1, true);
    const struct cv_dataset *d = cv_model_find(m, "/g/a");

    (void)state;
    assert_non_null(d);
    assert_true(d->type.big_endian && d->gaps == CV_GAPS_FILL && d->has_fill && d->fill == 3 && d->overlap == CV_OVERLAP_LAST && d->nan == CV_NAN_REFUSE);
    assert_string_equal(cv_attrs_find(&d->attrs, "units")->text, "K");
    assert_true(cv_attrs_find(&d->attrs, "f")->floats[0] == 0.5);
    assert_int_equal(cv_attrs_find(&m->attrs, "n")->ints[1], 2);
    cv_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_schemas_find_each_element_once),
        cmocka_unit_test(test_grids_with_remainders_lie_as_they_are_dealt),
        cmocka_unit_test(test_blocks_of_a_list_have_strides),
        cmocka_unit_test(test_a_block_of_no_elements_is_left_out_but_its_ghosts_are_not),
        cmocka_unit_test(test_what_each_file_has_all_of_is_read_once),
        cmocka_unit_test(test_a_dataset_may_have_a_grid_of_its_own),
        cmocka_unit_test(test_whole_arrays_in_one_file),
        cmocka_unit_test(test_an_offset_counts_from_the_beginning_of_the_file),
        cmocka_unit_test(test_records_are_counted_instead_of_bytes),
        cmocka_unit_test(test_bytes_and_records_are_not_mixed),
        cmocka_unit_test(test_ranks_that_are_missing_or_twice_are_named),
        cmocka_unit_test(test_names_that_count_from_one),
        cmocka_unit_test(test_without_ranks_there_are_as_many_as_files),
        cmocka_unit_test(test_ranks_are_found_in_names),
        cmocka_unit_test(test_a_file_that_is_cut_says_where),
        cmocka_unit_test(test_steps_are_counted_by_size),
        cmocka_unit_test(test_sums_that_do_not_fit_are_refused),
        cmocka_unit_test(test_attributes_and_policies_come_into_the_model),
    };

    return cmocka_run_group_tests_name("cv_place", tests, NULL, NULL);
}
