/*
 * to=raw: files of ranks written from boxes of the array, compared byte by byte with what each rank would have written, for grids with remainders, ghost cells and both byte orders; and read back by from=raw for
 * every layout. What does not fit is refused before a file is made, and what can't be written is said.
 */
#include "tests/unit/cv_fake.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert/engine/gather.h"
#include "convert/schema/schema.h"
#include "convert/sink/sink.h"
#include "fp/fault.h"
#include "fp/rmtree.h"

#define CELLS_MAX 20000u

static char dir[] = "/tmp/cv-sinkraw-XXXXXX", schema[64], out[64];

static void schema_is(const char *text)
{
    FILE *f = fopen(schema, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* ---------------------------------------------------------------- an array, and a schema for it */

struct array {
    struct cv_model *m;
    unsigned rank;
    uint64_t dims[CV_RANK_MAX];
    uint64_t grid[CV_RANK_MAX], ghost_lo[CV_RANK_MAX], ghost_hi[CV_RANK_MAX];
    uint64_t ranks, elements, header;
    uint32_t *values;
    bool big;
    char text[1024];
};

static void put(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(char *text, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(text + strlen(text), 1024 - strlen(text), format, ap);
    va_end(ap);
}

static void put_list(char *text, const char *name, const uint64_t *n, unsigned rank)
{
    put(text, "%s: [", name);
    for (unsigned i = 0; i < rank; i++)
        put(text, "%s%llu", i ? ", " : "", (unsigned long long)n[i]);
    put(text, "]");
}

static struct cv_dataset *add(struct cv_model *m, const char *name, struct cv_type t, unsigned rank, const uint64_t *dims)
{
    struct cv_dataset *d = cv_model_add(m, name);

    assert_non_null(d);
    d->type = t;
    d->rank = rank;
    for (unsigned i = 0; i < rank; i++)
        d->dims[i].size = dims[i];
    return d;
}

static void array_new(struct array *a, uint64_t seed)
{
    struct fake_random r = {seed * 2654435761u + 1};

    memset(a, 0, sizeof *a);
    a->rank = 1 + (unsigned)fake_number(&r, 4);
    a->ranks = a->elements = 1;
    a->big = fake_chance(&r, 50);
    a->header = fake_number(&r, 3) * 13;
    for (unsigned i = 0; i < a->rank; i++) {
        a->dims[i] = 1 + fake_number(&r, 8);
        a->grid[i] = 1 + fake_number(&r, a->dims[i] < 3 ? a->dims[i] : 3);
        a->ghost_lo[i] = fake_chance(&r, 50) ? fake_number(&r, 3) : 0;
        a->ghost_hi[i] = fake_chance(&r, 50) ? fake_number(&r, 3) : 0;
        a->ranks *= a->grid[i];
        a->elements *= a->dims[i];
    }
    a->m = cv_model_new();
    a->values = malloc(a->elements * sizeof *a->values);
    assert_true(a->m && a->values);
    for (uint64_t i = 0; i < a->elements; i++)
        a->values[i] = (uint32_t)(fake_number(&r, 0xfffffff0u) + 1); /* never zero, as cells outside are */
    add(a->m, "/u", (struct cv_type){CV_UINT, 4, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__}, a->rank, a->dims);
    put(a->text, "fpschema: 1\nbyte_order: %s\nheader: %llu\nranks: {", a->big ? "big" : "little", (unsigned long long)a->header);
    put_list(a->text, "grid", a->grid, a->rank);
    put(a->text, "}\ndatasets:\n  - {name: /u, type: uint32, ");
    put_list(a->text, "dims", a->dims, a->rank);
    put(a->text, ", ghost: {");
    put_list(a->text, "lo", a->ghost_lo, a->rank);
    put(a->text, ", ");
    put_list(a->text, "hi", a->ghost_hi, a->rank);
    put(a->text, "}}\n");
}

static void array_free(struct array *a)
{
    cv_model_free(a->m);
    free(a->values);
}

/* ---------------------------------------------------------------- writing it */

/* All of a dataset in boxes of this shape, in the order of the array. */
static int write_boxes(struct cv_sink *s, const struct cv_model *m, size_t k, const void *values, const uint64_t *shape, struct cv_fail *why)
{
    const struct cv_dataset *d = &m->datasets[k];
    uint64_t lo[CV_RANK_MAX] = {0}, count[CV_RANK_MAX], from[CV_RANK_MAX], to[CV_RANK_MAX], dims[CV_RANK_MAX];
    size_t size = d->type.size_bytes;
    uint8_t *box = malloc(CELLS_MAX * size);
    unsigned i;
    int rc = 0;

    assert_non_null(box);
    for (i = 0; i < d->rank; i++)
        dims[i] = d->dims[i].size;
    cv_box_steps(dims, d->rank, size, from);
    do {
        const uint8_t *at = values;

        for (i = 0; i < d->rank; i++) {
            count[i] = dims[i] - lo[i] < shape[i] ? dims[i] - lo[i] : shape[i];
            at += lo[i] * from[i];
        }
        cv_box_steps(count, d->rank, size, to);
        cv_box_copy(at, from, box, to, count, d->rank, size);
        rc = cv_sink_raw.write(s, k, lo, count, box, why);
        for (i = d->rank; i-- > 0;) {
            lo[i] += shape[i];
            if (lo[i] < dims[i])
                break;
            lo[i] = 0;
        }
    } while (rc == 0 && i != (unsigned)-1);
    free(box);
    return rc;
}

static int try_create(const struct cv_model *m, size_t memory, struct cv_sink **s, struct cv_fail *why)
{
    static const uint64_t none[8][CV_RANK_MAX];
    struct cv_sink_options o = {.schema = schema, .memory_bytes = memory};

    memset(why, 0, sizeof *why);
    return cv_sink_raw.create(out, m, none, &o, s, why);
}

static void write_array(struct array *a, uint64_t seed)
{
    struct fake_random r = {seed + 77};
    uint64_t shape[CV_RANK_MAX];
    struct cv_sink *s;
    struct cv_fail why;

    schema_is(a->text);
    for (unsigned i = 0; i < a->rank; i++)
        shape[i] = 1 + fake_number(&r, a->dims[i]);
    if (try_create(a->m, 1, &s, &why) || write_boxes(s, a->m, 0, a->values, shape, &why) || cv_sink_raw.close(s, &why))
        fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, why.text, a->text);
}

/* ---------------------------------------------------------------- what each rank would have written */

static void part(uint64_t n, uint64_t parts, uint64_t i, uint64_t *start, uint64_t *count)
{
    *count = n / parts + (i < n % parts);
    *start = 0;
    for (uint64_t k = 0; k < i; k++)
        *start += n / parts + (k < n % parts);
}

static void check_file(const struct array *a, uint64_t rank, uint64_t seed)
{
    uint64_t start[CV_RANK_MAX], count[CV_RANK_MAX], stored[CV_RANK_MAX], at[CV_RANK_MAX] = {0}, n = 1, rest = rank;
    static uint8_t bytes[64 + 4 * CELLS_MAX];
    char path[128];
    ssize_t len;
    int fd;

    for (unsigned i = a->rank; i-- > 0; rest /= a->grid[i]) {
        part(a->dims[i], a->grid[i], rest % a->grid[i], &start[i], &count[i]);
        stored[i] = count[i] + a->ghost_lo[i] + a->ghost_hi[i];
        n *= stored[i];
    }
    assert_true(n <= CELLS_MAX);
    snprintf(path, sizeof path, "%s/rank_%llu.raw", out, (unsigned long long)rank);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    len = read(fd, bytes, sizeof bytes);
    close(fd);
    if (len != (ssize_t)(a->header + 4 * n))
        fail_msg("seed %llu: %s has %zd bytes, not %llu\n%s", (unsigned long long)seed, path, len, (unsigned long long)(a->header + 4 * n), a->text);
    for (uint64_t k = 0; k < a->header; k++)
        assert_int_equal(bytes[k], 0);
    for (uint64_t k = 0; k < n; k++) {
        const uint8_t *b = bytes + a->header + 4 * k;
        uint32_t got = a->big ? (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3] : (uint32_t)b[3] << 24 | (uint32_t)b[2] << 16 | (uint32_t)b[1] << 8 | b[0], want;
        bool inside = true;
        uint64_t place = 0;

        for (unsigned i = 0; i < a->rank; i++) {
            int64_t x = (int64_t)(start[i] + at[i]) - (int64_t)a->ghost_lo[i];

            inside &= x >= 0 && x < (int64_t)a->dims[i];
            place = place * a->dims[i] + (uint64_t)x;
        }
        want = inside ? a->values[place] : 0;
        if (got != want)
            fail_msg("seed %llu: rank %llu, stored element %llu: %08x, not %08x\n%s", (unsigned long long)seed, (unsigned long long)rank, (unsigned long long)k, got, want, a->text);
        (void)fake_next(at, stored, a->rank);
    }
}

static void test_each_file_is_what_its_rank_would_have_written(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        struct array a;

        array_new(&a, seed);
        write_array(&a, seed);
        for (uint64_t r = 0; r < a.ranks; r++)
            check_file(&a, r, seed);
        array_free(&a);
        assert_int_equal(fp_remove_tree(out), 0);
    }
}

/* ---------------------------------------------------------------- read back */

/* The whole array from the files in `out`. */
static void read_back(const char *const *paths, size_t npaths, size_t k, void *into, const char *what)
{
    struct cv_source_options o = {.paths = paths, .npaths = npaths, .schema = schema, .memory_bytes = 1u << 20};
    static uint8_t scratch[CV_SCRATCH_MIN_BYTES];
    struct cv_box all = {{0}, {0}};
    struct cv_fail why = {0};
    const struct cv_dataset *d;
    struct cv_source *s;
    struct cv_gather *g;
    uint64_t n, total;

    if (cv_source_raw.open(&o, &s, &why))
        fail_msg("%s: %s", what, why.text);
    d = &s->model->datasets[k];
    for (unsigned i = 0; i < d->rank; i++)
        all.count[i] = d->dims[i].size;
    g = cv_gather_new(s, d, NULL, scratch, sizeof scratch);
    assert_non_null(g);
    if (cv_gather_tile(g, &all, into, &n, &why))
        fail_msg("%s: %s", what, why.text);
    assert_true(cv_dataset_elements(d, &total));
    assert_true(n == total);
    cv_gather_free(g);
    s->ops->close(s);
}

static void test_every_layout_is_read_back_as_it_was(void **state)
{
    static const struct {
        const char *text;
        unsigned files;
    } layouts[] = {
        {"layout: files\nranks: {grid: [2, 3]}\n", 6},
        {"layout: files\nranks: {grid: [2, 3], order: fortran, first: 1}\nrank: \"p{rank}/data.bin\"\n", 6},
        {"layout: files\norder: fortran\nbyte_order: big\nstep_header: 5\nranks: {grid: [3, 2]}\n", 6},
        {"layout: shared\nheader: 3\nranks: {grid: [2, 3]}\n", 1},
        {"layout: segments\nbyte_order: big\nranks: {grid: [2, 3]}\n", 1},
        {"layout: global\nheader: 100\n", 1},
    };
    const uint64_t dims[2][3] = {{3, 5, 7}, {3, 7, 5}}, shape[3] = {1, 2, 7};
    double values[105], got[105], flags[105];
    (void)state;

    for (size_t k = 0; k < 105; k++) {
        values[k] = (double)k + 0.25;
        flags[k] = -(double)k;
    }
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        bool fortran = strstr(layouts[l].text, "order: fortran\nb") != NULL;
        struct cv_model *m = cv_model_new();
        char text[1024] = "fpschema: 1\nsteps: all\n", names[6][96];
        const char *paths[6];
        struct cv_fail why;
        struct cv_sink *s;

        add(m, "/flags", (struct cv_type){CV_FLOAT, 8, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__}, 3, dims[fortran])->dims[0].steps = true;
        add(m, "/g/u", (struct cv_type){CV_FLOAT, 8, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__}, 3, dims[fortran])->dims[0].steps = true;
        put(text, "%sdatasets:\n  - {name: /g/u, type: float64, dims: [5, 7]%s}\n  - {name: /flags, type: float64, dims: [5, 7]}\n", layouts[l].text, strstr(layouts[l].text, "files") ? ", ghost: 1" : "");
        schema_is(text);
        if (try_create(m, 1u << 20, &s, &why) || write_boxes(s, m, 1, values, shape, &why) || write_boxes(s, m, 0, flags, shape, &why) || cv_sink_raw.close(s, &why))
            fail_msg("%s: %s", text, why.text);
        for (unsigned f = 0; f < layouts[l].files; f++) {
            snprintf(names[f], sizeof names[f], layouts[l].files == 1 ? "%s/data.raw" : strstr(text, "p{rank}") ? "%s/p%u/data.bin" : "%s/rank_%u.raw", out, f + (strstr(text, "first: 1") != NULL));
            paths[f] = names[f];
        }
        read_back(paths, layouts[l].files, 0, got, text);
        assert_memory_equal(got, values, sizeof values);
        read_back(paths, layouts[l].files, 1, got, text);
        assert_memory_equal(got, flags, sizeof flags);
        cv_model_free(m);
        assert_int_equal(fp_remove_tree(out), 0);
    }
}

static void test_more_ranks_than_files_that_may_be_open(void **state)
{
    enum { RANKS = 90 };
    const uint64_t dims[2] = {4, 5 * RANKS}, shape[2] = {1, 5 * RANKS};
    struct cv_model *m = cv_model_new();
    struct rlimit was, few;
    static float values[4 * 5 * RANKS], got[4 * 5 * RANKS];
    char names[RANKS][96];
    const char *paths[RANKS];
    struct cv_fail why;
    struct cv_sink *s;
    (void)state;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 24;
    for (unsigned k = 0; k < 4 * 5 * RANKS; k++)
        values[k] = (float)k;
    add(m, "/u", (struct cv_type){CV_FLOAT, 4, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__}, 2, dims);
    schema_is("fpschema: 1\nranks: {grid: [1, 90]}\ndatasets:\n  - {name: /u, type: float32, dims: [4, 450], ghost: [0, 1]}\n");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    if (try_create(m, 1u << 20, &s, &why) || write_boxes(s, m, 0, values, shape, &why) || cv_sink_raw.close(s, &why))
        fail_msg("%s", why.text);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    for (unsigned f = 0; f < RANKS; f++) {
        snprintf(names[f], sizeof names[f], "%s/rank_%u.raw", out, f);
        paths[f] = names[f];
    }
    read_back(paths, RANKS, 0, got, "many ranks");
    assert_memory_equal(got, values, sizeof values);
    cv_model_free(m);
    assert_int_equal(fp_remove_tree(out), 0);
}

static void test_block_whole_is_in_every_file(void **state)
{
    const uint64_t dims[1] = {4}, shape[1] = {3};
    const int16_t values[4] = {1, -2, 3, -4};
    struct cv_model *m = cv_model_new();
    struct cv_fail why;
    struct cv_sink *s;
    (void)state;

    add(m, "/k", (struct cv_type){CV_INT, 2, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__}, 1, dims);
    schema_is("fpschema: 1\nranks: 3\ndatasets:\n  - {name: /k, type: int16, dims: [4], block: whole}\n");
    if (try_create(m, 1u << 20, &s, &why) || write_boxes(s, m, 0, values, shape, &why) || cv_sink_raw.close(s, &why))
        fail_msg("%s", why.text);
    for (unsigned f = 0; f < 3; f++) {
        const char *path;
        char name[96];
        int16_t got[5];
        int fd;

        snprintf(name, sizeof name, "%s/rank_%u.raw", out, f);
        path = name;
        fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(read(fd, got, sizeof got), sizeof values);
        close(fd);
        assert_memory_equal(got, values, sizeof values);
    }
    cv_model_free(m);
    assert_int_equal(fp_remove_tree(out), 0);
}

/* ---------------------------------------------------------------- what fails */

static void test_what_does_not_fit_is_refused_before_a_file_is_made(void **state)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"ranks: {grid: [2]}\ndatasets:\n  - {name: /v, type: int32, dims: [6]}\n", "no dataset of this name"},
        {"ranks: {grid: [2]}\ndatasets:\n  - {name: /u, type: float32, dims: [6]}\n", "its type is int32"},
        {"ranks: {grid: [2]}\ndatasets:\n  - {name: /u, type: int32, dims: [7]}\n", "dimension 0 has 6 elements, and 7"},
        {"ranks: {grid: [2, 1]}\ndatasets:\n  - {name: /u, type: int32, dims: [6, 1]}\n", "1 dimensions, and 2"},
        {"ranks: {grid: [2]}\nsteps: all\ndatasets:\n  - {name: /u, type: int32, dims: [6]}\n", "1 dimensions, and 2"},
        {"datasets:\n  - {name: /u, type: int32, dims: [6]}\n", "of how many ranks"},
        {"ranks: {grid: [2]}\nrank: \"a*{rank}\"\ndatasets:\n  - {name: /u, type: int32, dims: [6]}\n", "one without *"},
        {"ranks: {grid: [2]}\nrank: \"../r{rank}\"\ndatasets:\n  - {name: /u, type: int32, dims: [6]}\n", "below the directory"},
        {"ranks: 2\ndatasets:\n  - {name: /u, type: int32, dims: [6], block: [{start: [0], count: [3]}, {start: [4], count: [2]}]}\n", "in no block"},
    };
    const uint64_t dims[1] = {6};
    struct cv_model *m = cv_model_new();
    (void)state;

    add(m, "/u", (struct cv_type){CV_INT, 4, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__}, 1, dims);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        char text[512] = "fpschema: 1\n";
        struct cv_fail why;
        struct cv_sink *s;

        snprintf(text + strlen(text), sizeof text - strlen(text), "%s", wrong[k].text);
        schema_is(text);
        assert_int_equal(try_create(m, 1u << 20, &s, &why), -EINVAL);
        if (!strstr(why.text, wrong[k].says))
            fail_msg("\"%s\" does not say \"%s\"", why.text, wrong[k].says);
        assert_int_equal(access(dir, F_OK), 0);
        assert_true(access(out, F_OK) < 0 || rmdir(out) == 0);
    }
    add(m, "/w", (struct cv_type){CV_INT, 4, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__}, 1, dims);
    schema_is("fpschema: 1\nranks: {grid: [2]}\ndatasets:\n  - {name: /u, type: int32, dims: [6]}\n");
    {
        struct cv_fail why;
        struct cv_sink *s;

        assert_int_equal(try_create(m, 1u << 20, &s, &why), -EINVAL);
        assert_string_equal(why.dataset, "/w");
    }
    cv_model_free(m);
}

static void test_elements_that_overlapping_blocks_leave_out_are_said(void **state)
{
    const uint64_t dims[1] = {6}, shape[1] = {6};
    const int32_t values[6] = {1, 2, 3, 4, 5, 6};
    struct cv_model *m = cv_model_new();
    struct cv_fail why;
    struct cv_sink *s;
    (void)state;

    add(m, "/u", (struct cv_type){CV_INT, 4, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__}, 1, dims);
    schema_is("fpschema: 1\nranks: 2\ndatasets:\n  - {name: /u, type: int32, dims: [6], overlap: last, block: [{start: [0], count: [3]}, {start: [1], count: [4]}]}\n");
    assert_int_equal(try_create(m, 1u << 20, &s, &why), 0);
    assert_int_equal(write_boxes(s, m, 0, values, shape, &why), -EINVAL);
    assert_non_null(strstr(why.text, "leave them out"));
    cv_sink_raw.abandon(s);
    cv_model_free(m);
    assert_int_equal(fp_remove_tree(out), 0);
}

static void test_a_full_disk_is_said_with_file_dataset_and_place(void **state)
{
    const uint64_t dims[1] = {6}, shape[1] = {2};
    const int32_t values[6] = {1, 2, 3, 4, 5, 6};
    struct cv_model *m = cv_model_new();
    struct cv_fail why;
    struct cv_sink *s;
    (void)state;

    add(m, "/u", (struct cv_type){CV_INT, 4, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__}, 1, dims);
    schema_is("fpschema: 1\nheader: 10\nranks: {grid: [2]}\ndatasets:\n  - {name: /u, type: int32, dims: [6]}\n");
    assert_int_equal(fp_fault_set("convert-raw-write=ENOSPC:after=3"), 0);
    assert_int_equal(try_create(m, 1u << 20, &s, &why), 0);
    assert_int_equal(write_boxes(s, m, 0, values, shape, &why), -ENOSPC);
    assert_int_equal(fp_fault_fired("convert-raw-write"), 1);
    assert_string_equal(why.dataset, "/u");
    assert_non_null(strstr(why.file, "rank_1.raw"));
    assert_int_equal(why.offset_bytes, 10 + 4);
    cv_sink_raw.abandon(s);
    assert_int_equal(fp_remove_tree(out), 0);
    assert_int_equal(fp_fault_set("convert-raw-sync=EIO:after=1"), 0);
    assert_int_equal(try_create(m, 1u << 20, &s, &why), 0);
    assert_int_equal(write_boxes(s, m, 0, values, shape, &why), 0);
    assert_int_equal(cv_sink_raw.close(s, &why), -EIO);
    assert_int_equal(fp_fault_set(NULL), 0);
    assert_non_null(strstr(why.text, "synced"));
    cv_model_free(m);
    assert_int_equal(fp_remove_tree(out), 0);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(schema, sizeof schema, "%s/schema.yaml", dir);
    snprintf(out, sizeof out, "%s/out", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return fp_remove_tree(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_file_is_what_its_rank_would_have_written),
        cmocka_unit_test(test_every_layout_is_read_back_as_it_was),
        cmocka_unit_test(test_more_ranks_than_files_that_may_be_open),
        cmocka_unit_test(test_block_whole_is_in_every_file),
        cmocka_unit_test(test_what_does_not_fit_is_refused_before_a_file_is_made),
        cmocka_unit_test(test_elements_that_overlapping_blocks_leave_out_are_said),
        cmocka_unit_test(test_a_full_disk_is_said_with_file_dataset_and_place),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
