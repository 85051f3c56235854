/*
 * The way there and back: HDF5 as HDF5's own calls have written it, raw files of some ranks, HDF5, raw files of other ranks, and all is the same; what fails on the way leaves nothing. And virtual datasets, whose
 * parts may not be there.
 */
#include "tests/unit/cv_fake.h"

#include <fcntl.h>
#include <hdf5.h>
#include <hdf5_hl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert/engine/engine.h"
#include "convert/engine/gather.h"
#include "fp/fault.h"
#include "fp/rmtree.h"


static char dir[] = "/tmp/cv-back-XXXXXX";

static const char *in_dir(const char *name)
{
    static char paths[16][96];
    static unsigned n;
    char *path = paths[n++ % 16];

    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static const char *text_file(const char *name, const char *text)
{
    const char *path = in_dir(name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

/* ---------------------------------------------------------------- making files */

static hid_t make(const char *name)
{
    hid_t f = H5Fcreate(in_dir(name), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

    assert_true(f >= 0);
    return f;
}

/* chunk 0: contiguous. max NULL: as dims. */
static hid_t put(hid_t f, const char *name, hid_t type, hid_t memory, int rank, const hsize_t *dims, const hsize_t *max, const hsize_t *chunk, const void *values)
{
    hid_t space = rank ? H5Screate_simple(rank, dims, max) : H5Screate(H5S_SCALAR), dcpl = H5Pcreate(H5P_DATASET_CREATE), lcpl = H5Pcreate(H5P_LINK_CREATE), d;

    H5Pset_create_intermediate_group(lcpl, 1);
    if (chunk) {
        H5Pset_chunk(dcpl, rank, chunk);
        H5Pset_deflate(dcpl, 1);
        H5Pset_fletcher32(dcpl);
    }
    d = H5Dcreate2(f, name, type, space, lcpl, dcpl, H5P_DEFAULT);
    assert_true(d >= 0);
    assert_true(H5Dwrite(d, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Pclose(lcpl);
    H5Pclose(dcpl);
    H5Sclose(space);
    return d;
}

/* ---------------------------------------------------------------- reading them */

static int try_open(const char *const *paths, size_t n, const char *schema, struct cv_source **s, struct cv_fail *why)
{
    struct cv_source_options o = {.paths = paths, .npaths = n, .schema = schema, .memory_bytes = 1u << 20};

    memset(why, 0, sizeof *why);
    return cv_source_hdf5.open(&o, s, why);
}

static struct cv_source *open_ok(const char *const *paths, size_t n, const char *schema)
{
    struct cv_source *s;
    struct cv_fail why;

    if (try_open(paths, n, schema, &s, &why))
        fail_msg("%s: %s", why.file, why.text);
    return s;
}

static const struct cv_dataset *find(struct cv_source *s, const char *name)
{
    const struct cv_dataset *d = cv_model_find(s->model, name);

    if (!d)
        fail_msg("there is no %s", name);
    return d;
}

/* The whole array, packed. */
static int read_whole(struct cv_source *s, const struct cv_dataset *d, void *into, uint64_t *elements, struct cv_fail *why)
{
    static uint8_t scratch[CV_SCRATCH_MIN_BYTES];
    struct cv_box all = {{0}, {0}};
    struct cv_gather *g = cv_gather_new(s, d, NULL, scratch, sizeof scratch);
    int rc;

    assert_non_null(g);
    for (unsigned i = 0; i < d->rank; i++)
        all.count[i] = d->dims[i].size;
    rc = cv_gather_tile(g, &all, into, elements, why);
    cv_gather_free(g);
    return rc;
}

static void is(struct cv_source *s, const char *name, const void *expect, size_t bytes)
{
    const struct cv_dataset *d = find(s, name);
    uint64_t n, total;
    struct cv_fail why = {0};
    uint8_t *got = malloc(bytes + 1);

    assert_true(got && cv_dataset_elements(d, &total));
    assert_int_equal(total * d->type.size_bytes, bytes);
    if (read_whole(s, d, got, &n, &why))
        fail_msg("%s: %s", name, why.text);
    assert_int_equal(n, total);
    assert_memory_equal(got, expect, bytes);
    free(got);
}

static void test_all_arrays_of_numbers_of_a_file(void **state)
{
    const hsize_t dims[2] = {40, 30}, chunk[2] = {7, 16}, three[1] = {3};
    static double u[1200];
    const int16_t small[3] = {-1, 2, -3};
    const double z[3][2] = {{1, 2}, {3, 4}, {5, 6}}, scalar = 2.5;
    const char *path = in_dir("one.h5"), *text[3] = {"a", "b", "c"};
    hid_t f = make("one.h5"), complex = H5Tcreate(H5T_COMPOUND, 16), string = H5Tcopy(H5T_C_S1), truth = H5Tenum_create(H5T_NATIVE_INT8);
    const int8_t bits[3] = {1, 0, 1};
    int8_t no = 0, yes = 1;
    struct cv_source *s;
    (void)state;

    for (unsigned k = 0; k < 1200; k++)
        u[k] = k * 0.5;
    H5Tinsert(complex, "r", 0, H5T_NATIVE_DOUBLE);
    H5Tinsert(complex, "i", 8, H5T_NATIVE_DOUBLE);
    H5Tset_size(string, H5T_VARIABLE);
    H5Tenum_insert(truth, "FALSE", &no);
    H5Tenum_insert(truth, "TRUE", &yes);
    H5Dclose(put(f, "/u", H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, 2, dims, NULL, chunk, u));
    H5Dclose(put(f, "/g/h/small", H5T_STD_I16BE, H5T_NATIVE_INT16, 1, three, NULL, NULL, small));
    H5Dclose(put(f, "/z", complex, complex, 1, three, NULL, NULL, z));
    H5Dclose(put(f, "/scalar", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 0, NULL, NULL, NULL, &scalar));
    H5Dclose(put(f, "/text", string, string, 1, three, NULL, NULL, text));
    H5Dclose(put(f, "/truth", truth, truth, 1, three, NULL, NULL, bits));
    H5LTset_attribute_string(f, "/u", "units", "K");
    H5LTset_attribute_string(f, "/", "title", "all of them");
    H5Tclose(truth);
    H5Tclose(string);
    H5Tclose(complex);
    H5Fclose(f);
    s = open_ok(&path, 1, NULL);
    assert_int_equal(s->model->ndatasets, 5); /* text is none */
    is(s, "/u", u, sizeof u);
    is(s, "/g/h/small", small, sizeof small);
    is(s, "/z", z, sizeof z);
    is(s, "/scalar", &scalar, sizeof scalar);
    is(s, "/truth", bits, sizeof bits);
    assert_string_equal(cv_attrs_find(&find(s, "/u")->attrs, "units")->text, "K");
    assert_string_equal(cv_attrs_find(&s->model->attrs, "title")->text, "all of them");
    s->ops->close(s);
}

/* ---------------------------------------------------------------- parts */

/* Rows y … y + n of a 7 x 4 array of the numbers from 0 on. */
static hid_t put_rows(hid_t f, hsize_t y, hsize_t n)
{
    const hsize_t dims[2] = {n, 4};
    int32_t rows[28];

    for (unsigned k = 0; k < n * 4; k++)
        rows[k] = (int32_t)(y * 4 + k);
    return put(f, "/u", H5T_STD_I32LE, H5T_NATIVE_INT32, 2, dims, NULL, NULL, rows);
}

static void expect_rows(int32_t *all)
{
    for (int k = 0; k < 28; k++)
        all[k] = k;
}

static void test_a_part_that_a_virtual_dataset_lacks_is_said(void **state)
{
    const hsize_t dims[2] = {7, 4};
    const char *path = in_dir("virtual.h5");
    hid_t f = make("piece.h5"), space = H5Screate_simple(2, dims, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    int32_t all[28];
    struct cv_source *s;
    struct cv_fail why;
    (void)state;

    H5Dclose(put_rows(f, 0, 7));
    H5Fclose(f);
    f = make("virtual.h5");
    H5Pset_virtual(dcpl, space, "piece.h5", "/u", space);
    H5Dclose(H5Dcreate2(f, "/v", H5T_NATIVE_INT32, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
    H5Fclose(f);
    H5Pclose(dcpl);
    H5Sclose(space);
    expect_rows(all);
    s = open_ok(&path, 1, NULL);
    is(s, "/v", all, sizeof all);
    s->ops->close(s);
    assert_int_equal(unlink(in_dir("piece.h5")), 0);
    assert_int_equal(try_open(&path, 1, NULL, &s, &why), -ENOENT);
    assert_string_equal(why.dataset, "/v");
    assert_non_null(strstr(why.text, "piece.h5"));
}

/* ---------------------------------------------------------------- there and back */

static void run(const struct cv_source_ops *from, const struct cv_sink_ops *to, const char *const *paths, size_t n, const char *schema, const char *out)
{
    struct cv_job j = {.from = from, .to = to, .in = {.paths = paths, .npaths = n, .schema = from->needs_schema ? schema : NULL, .spool = dir}, .out = {.schema = schema}, .path = out, .memory_bytes = 1u << 20};
    struct cv_fail why = {0};

    if (cv_job_run(&j, &why))
        fail_msg("%s: %s: %s", why.file, why.dataset, why.text);
}

static void test_raw_to_hdf5_to_raw_of_other_ranks_and_back(void **state)
{
    static const char first[] = "fpschema: 1\nheader: 7\nranks: {grid: [2, 1, 2]}\ndatasets:\n  - {name: /f/u, type: float64, dims: [11, 9, 10], ghost: 1}\n  - {name: /k, type: int16, dims: [11, 9, 10]}\n";
    static const char second[] = "fpschema: 1\nbyte_order: big\nranks: {grid: [1, 4, 3]}\ndatasets:\n  - {name: /k, type: int16, dims: [11, 9, 10], ghost: {lo: [0, 2, 1], hi: [1, 0, 0]}}\n"
                                 "  - {name: /f/u, type: float64, dims: [11, 9, 10]}\n";
    static double u[990];
    static int16_t k[990];
    const hsize_t dims[3] = {11, 9, 10}, chunk[3] = {4, 4, 4};
    char names[12][96];
    const char *paths[12], *h5 = in_dir("start.h5"), *raw1 = in_dir("raw1"), *raw2 = in_dir("raw2"), *h5b = in_dir("middle.h5"), *h5c = in_dir("end.h5");
    const char *s1 = text_file("first.yaml", first), *s2 = text_file("second.yaml", second);
    hid_t f = make("start.h5");
    struct cv_source *s;
    (void)state;

    for (int i = 0; i < 990; i++) {
        u[i] = i + 0.125;
        k[i] = (int16_t)(7 * i);
    }
    H5Dclose(put(f, "/f/u", H5T_NATIVE_DOUBLE, H5T_NATIVE_DOUBLE, 3, dims, NULL, chunk, u));
    H5Dclose(put(f, "/k", H5T_STD_I16BE, H5T_NATIVE_INT16, 3, dims, NULL, NULL, k));
    H5Fclose(f);
    run(&cv_source_hdf5, &cv_sink_raw, &h5, 1, s1, raw1);
    for (unsigned r = 0; r < 12; r++)
        paths[r] = names[r];
    for (unsigned r = 0; r < 4; r++)
        snprintf(names[r], sizeof names[r], "%s/rank_%u.raw", raw1, r);
    run(&cv_source_raw, &cv_sink_hdf5, paths, 4, s1, h5b);
    run(&cv_source_hdf5, &cv_sink_raw, &h5b, 1, s2, raw2);
    for (unsigned r = 0; r < 12; r++)
        snprintf(names[r], sizeof names[r], "%s/rank_%u.raw", raw2, r);
    run(&cv_source_raw, &cv_sink_hdf5, paths, 12, s2, h5c);
    s = open_ok(&h5c, 1, NULL);
    is(s, "/f/u", u, sizeof u);
    is(s, "/k", k, sizeof k);
    s->ops->close(s);
}

static void test_a_raw_result_that_fails_leaves_nothing(void **state)
{
    const char *h5 = in_dir("start.h5"), *schema = in_dir("first.yaml"), *out = in_dir("never");
    struct cv_job j = {.from = &cv_source_hdf5, .to = &cv_sink_raw, .in = {.paths = &h5, .npaths = 1, .spool = dir}, .out = {.schema = schema}, .path = out, .memory_bytes = 1u << 20};
    struct cv_fail why = {0};
    struct stat before, after;
    (void)state;

    assert_int_equal(stat(dir, &before), 0);
    assert_int_equal(fp_fault_set("convert-raw-sync=EIO:after=2"), 0);
    assert_int_equal(cv_job_run(&j, &why), -EIO);
    assert_int_equal(fp_fault_fired("convert-raw-sync"), 1);
    assert_int_equal(fp_fault_set(NULL), 0);
    assert_int_equal(stat(dir, &after), 0);
    assert_int_equal(before.st_nlink, after.st_nlink); /* directories in it */
    assert_true(access(out, F_OK) < 0);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return fp_remove_tree(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_arrays_of_numbers_of_a_file),
        cmocka_unit_test(test_a_part_that_a_virtual_dataset_lacks_is_said),
        cmocka_unit_test(test_raw_to_hdf5_to_raw_of_other_ranks_and_back),
        cmocka_unit_test(test_a_raw_result_that_fails_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
