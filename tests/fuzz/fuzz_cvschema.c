/*
 * Schemas of raw dumps (convert/schema/schema.h) with the names and sizes of a set's files, which together say where each block is.
 *
 * Text is bytes, with words of the language from 0x80 on; names of files likewise. Beside what the sanitizers see: what is refused is so with a reason; what is taken gives models whose blocks
 * lie in their arrays and, where sizes matter, in their files; each rank of a grid has cells of its own, and all cells have a rank.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/schema/parts.h"
#include "tests/fuzz/fuzz.h"

#define TEXT_BYTES 4096u
#define FILES_MAX  8u

static const char *const words[] = {
    "fpschema: 1\n", "order: ", "fortran", "byte_order: big\n", "header: ", "layout: ", "files\n", "shared\n", "segments\n", "global\n", "ranks: ", "{grid: [", "2, ", "2], ", "order: C", "first: 1", "count: ",
    "rank: 'r{rank}*.raw'\n", "steps: ", "all\n", "step_header: 2\n", "dims: {x: 3, y: 4}\n", "datasets:\n", "- name: ", "  type: f8\n", "  type: int8\n", "  dims: ", "[x, y]\n", "[x]\n", "[]\n", "[0]\n",
    "  block: grid\n", "  block: whole\n", "  block: ", "{start: [0], count: [2], stride: [1]}", "{start: [0, 1], count: [3, 2]}", "  ghost: 1\n", "  ghost: {lo: 1, hi: [0, 2]}\n", "  skip: 1\n", "  offset: 8\n",
    "  record: 2\n", "  gaps: fill\n", "  fill: ", ".nan\n", "  overlap: last\n", "  nan: refuse\n", "  units: K\n", "  attributes: {a: 1, b: [1.5, 2]}\n", "attributes: {t: x}\n", "9223372036854775807", "4KiB\n", "a\n",
    "b/c\n", "{", "}", "[", "]", "\n", "- ", ": ", ", ", "&a ", "*a", "!!int ", "---\n", "\"\\0\"", "fpschema: 1\ndatasets:\n- name: a\n  type: int8\n  dims: ", "  ",
    "fpschema: 1\nranks: {grid: [2, 2]}\ndims: {x: 3, y: 4}\ndatasets:\n- name: a\n  type: int8\n  dims: [x, y]\n"};

static size_t take_text(struct fuzz_in *in, char *out)
{
    size_t n = 0;

    while (fuzz_left(in) > 0) {
        uint8_t c = fuzz_u8(in);
        const char *word = c >= 0x80 ? words[(c - 0x80u) % (sizeof words / sizeof *words)] : NULL;
        size_t len = word ? strlen(word) : 1;

        if (c == 0x7f || n + len > TEXT_BYTES)
            break;
        memcpy(out + n, word ? word : (const char *)&c, len);
        n += len;
    }
    return n;
}

/* ---------------------------------------------------------------- what must hold */

static void check_failed(int rc, const struct cv_fail *why)
{
    FUZZ_CHECK(rc < 0 && why->text[0] && memchr(why->text, 0, sizeof why->text));
}

static void check_block(const struct cv_dataset *d, const struct cv_block *b, const struct cv_schema_file *files, size_t nfiles, bool sizes_matter)
{
    uint64_t bytes = d->type.size_bytes;

    FUZZ_CHECK(b->input < nfiles);
    for (unsigned i = 0; i < d->rank; i++) {
        FUZZ_CHECK(b->count[i] > 0 && b->stride[i] > 0 && b->start[i] < d->dims[i].size);
        FUZZ_CHECK(b->count[i] - 1 <= (d->dims[i].size - 1 - b->start[i]) / b->stride[i]);
        FUZZ_CHECK(!__builtin_mul_overflow(bytes, cv_block_stored(b, i), &bytes));
    }
    FUZZ_CHECK(!sizes_matter || (b->offset_bytes <= files[b->input].size_bytes && bytes <= files[b->input].size_bytes - b->offset_bytes));
}

static void check_model(const struct cv_model *m, const struct cv_schema_file *files, size_t nfiles, bool sizes_matter)
{
    size_t blocks = 0;

    FUZZ_CHECK(m->ndatasets > 0 && m->ndatasets <= CV_DATASETS_MAX);
    for (size_t i = 0; i < m->ndatasets; i++) {
        const struct cv_dataset *d = &m->datasets[i];
        uint64_t elements;

        FUZZ_CHECK(d->rank <= CV_RANK_MAX && d->name[0] == '/' && strlen(d->name) <= CV_NAME_MAX && cv_model_find(m, d->name) == d);
        FUZZ_CHECK(cv_dataset_elements(d, &elements));
        for (size_t k = 0; k < d->nblocks; k++)
            check_block(d, &d->blocks[k], files, nfiles, sizes_matter);
        blocks += d->nblocks;
    }
    FUZZ_CHECK(blocks <= CV_BLOCKS_MAX);
}

/* Cells of an array by the ranks of a small grid: all, and each once. */
static void try_grid(const struct cv_schema *s, struct fuzz_in *in)
{
    uint64_t dims[CV_SCHEMA_DIMS_MAX], start[CV_SCHEMA_DIMS_MAX], count[CV_SCHEMA_DIMS_MAX], cells = 0, all = 1;
    const struct cv_grid *g = &s->grid;

    if (!g->rank || s->ranks > 4096)
        return;
    for (unsigned i = 0; i < g->rank; i++)
        all *= dims[i] = fuzz_below(in, 9);
    for (uint64_t r = 0; r < s->ranks; r++) {
        uint64_t n = 1;

        cv_grid_block(g, s->grid_fortran, dims, r, start, count);
        for (unsigned i = 0; i < g->rank; i++) {
            FUZZ_CHECK(count[i] <= dims[i] && start[i] <= dims[i] - count[i]);
            n *= count[i];
        }
        cells += n;
    }
    FUZZ_CHECK(cells == all);
}

static size_t take_files(struct fuzz_in *in, struct cv_schema_file *files, char names[FILES_MAX][24])
{
    size_t n = fuzz_below(in, FILES_MAX + 1);
    uint64_t size = fuzz_below(in, 2) ? fuzz_below(in, 200) : fuzz_number(in);
    unsigned form = fuzz_below(in, 3), first = fuzz_below(in, 2);

    for (size_t i = 0; i < n; i++) {
        unsigned rank = fuzz_below(in, 16) ? (unsigned)i + first : fuzz_u8(in);

        snprintf(names[i], sizeof names[i], "%s%u%s", form == 2 ? "d/" : "r", rank, form == 0 ? ".raw" : form == 1 ? "x7.raw" : "");
        files[i] = (struct cv_schema_file){.path = names[i], .size_bytes = fuzz_below(in, 8) ? size : fuzz_number(in), .records = fuzz_below(in, 20)};
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static char text[TEXT_BYTES], names[FILES_MAX][24];
    static struct cv_fail why, why_not;
    struct cv_schema_file files[FILES_MAX];
    struct fuzz_in in = {data, data + len};
    struct cv_schema *s = NULL;
    struct cv_model *m = NULL;
    bool sizes_matter = fuzz_below(&in, 4) != 0;
    size_t nfiles = take_files(&in, files, names), n;
    struct fuzz_in grid = {in.at, in.end};
    char *exact;
    int rc;

    memset(&why, 0, sizeof why);
    memset(&why_not, 0, sizeof why_not);
    n = take_text(&in, text);
    exact = malloc(n ? n : 1);
    memcpy(exact, text, n);
    rc = cv_schema_parse("schema.yaml", exact, n, &s, &why);
    free(exact);
    if (rc) {
        check_failed(rc, &why);
        FUZZ_CHECK(!s && (rc != -EINVAL || strncmp(why.text, "line ", 5) == 0));
        return 0;
    }
    try_grid(s, &grid);
    rc = cv_schema_model(s, files, nfiles, sizes_matter, &m, &why_not);
    if (rc)
        check_failed(rc, &why_not);
    else
        check_model(m, files, nfiles, sizes_matter);
    FUZZ_CHECK(rc == 0 || !m);
    cv_model_free(m);
    cv_schema_free(s);
    return 0;
}
