/* from=hdf5: what files of the library hold becomes a model, boxes of it are right, and sets of files that do not say where they belong are refused. */
#include <math.h>

#include "convert/source/hdf5.h"
#include "tests/unit/cv_h5.h"

static const int64_t all_zero[8];

static struct cv_dataset *dataset(const struct cv_source *s, const char *name)
{
    struct cv_dataset *d = cv_model_find(s->model, name);

    if (!d)
        fail_msg("there is no %s", name);
    return d;
}

static void read_box(struct cv_source *s, const struct cv_dataset *d, size_t block, const uint64_t *lo, const uint64_t *count, void *out)
{
    struct cv_fail why = {.text = ""};

    if (s->ops->read_box(s, d, &d->blocks[block], lo, count, out, &why) != 0)
        fail_msg("%s: %s", why.dataset, why.text);
}

static void test_one_file_is_read_as_it_is(void **state)
{
    const char *path = h5_path("one.h5");
    hid_t file = h5_make(path), id;
    hsize_t dims[] = {4, 6};
    double values[24], got[6];
    uint64_t lo[8] = {1, 2}, count[8] = {2, 3};
    struct cv_source *s;
    struct cv_dataset *d;
    (void)state;

    for (unsigned i = 0; i < 24; i++)
        values[i] = 0.5 * i;
    id = h5_put(file, "/fields/deep/t", H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, 2, dims, values); /* the other byte order than ours */
    h5_text(id, "units", "K");
    h5_ints(id, "two", (int64_t[]){7, -8}, 2);
    H5Dclose(id);
    h5_text(file, "title", "heat");
    H5Fclose(file);

    s = h5_source_good(&path, 1, NULL);
    assert_int_equal(s->model->ndatasets, 1);
    d = dataset(s, "/fields/deep/t");
    assert_int_equal(d->type.kind, CV_FLOAT);
    assert_int_equal(d->type.size_bytes, 8);
    assert_int_equal(d->nblocks, 1);
    assert_int_equal(d->dims[1].size, 6);
    assert_string_equal(cv_attrs_find(&d->attrs, "units")->text, "K");
    assert_int_equal(cv_attrs_find(&d->attrs, "two")->ints[1], -8);
    assert_string_equal(cv_attrs_find(&s->model->attrs, "title")->text, "heat");
    read_box(s, d, 0, lo, count, got);
    for (unsigned i = 0; i < 6; i++)
        assert_true(got[i] == values[(1 + i / 3) * 6 + 2 + i % 3]);
    s->ops->close(s);
}

static void test_types_and_scalars_are_known_and_others_passed_over(void **state)
{
    static const struct { const char *name; enum cv_kind kind; uint8_t size; } want[] = {
        {"/c16", CV_COMPLEX, 16}, {"/f4", CV_FLOAT, 4}, {"/i1", CV_INT, 1}, {"/i8", CV_INT, 8}, {"/u2", CV_UINT, 2}, {"/u8", CV_UINT, 8},
    };
    const char *path = h5_path("types.h5");
    hid_t file = h5_make(path), z = H5Tcreate(H5T_COMPOUND, 16), pair = H5Tcreate(H5T_COMPOUND, 16), text = H5Tcopy(H5T_C_S1);
    double number[2] = {1.5, -2.5}, got[2];
    struct cv_source *s;
    (void)state;

    H5Tinsert(z, "r", 0, H5T_NATIVE_DOUBLE);
    H5Tinsert(z, "i", 8, H5T_NATIVE_DOUBLE);
    H5Tinsert(pair, "x", 0, H5T_NATIVE_DOUBLE);
    H5Tinsert(pair, "y", 8, H5T_NATIVE_DOUBLE);
    H5Tset_size(text, 5);
    H5Dclose(h5_put(file, "c16", z, z, 0, NULL, number));
    H5Dclose(h5_put(file, "pair", pair, pair, 0, NULL, number));
    H5Dclose(h5_put(file, "text", text, text, 0, NULL, "abcd"));
    H5Dclose(h5_put(file, "f4", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, 0, NULL, number));
    H5Dclose(h5_put(file, "i1", H5T_STD_I8LE, H5T_NATIVE_DOUBLE, 0, NULL, number));
    H5Dclose(h5_put(file, "i8", H5T_STD_I64BE, H5T_NATIVE_DOUBLE, 0, NULL, number));
    H5Dclose(h5_put(file, "u2", H5T_STD_U16BE, H5T_NATIVE_DOUBLE, 0, NULL, number));
    H5Dclose(h5_put(file, "u8", H5T_STD_U64LE, H5T_NATIVE_DOUBLE, 0, NULL, number));
    H5Tclose(z);
    H5Tclose(pair);
    H5Tclose(text);
    H5Fclose(file);

    s = h5_source_good(&path, 1, NULL);
    assert_int_equal(s->model->ndatasets, 6);
    for (unsigned i = 0; i < 6; i++) {
        assert_string_equal(s->model->datasets[i].name, want[i].name);
        assert_int_equal(s->model->datasets[i].type.kind, want[i].kind);
        assert_int_equal(s->model->datasets[i].type.size_bytes, want[i].size);
        assert_int_equal(s->model->datasets[i].rank, 0);
    }
    read_box(s, dataset(s, "/c16"), 0, NULL, NULL, got);
    assert_memory_equal(got, number, sizeof got);
    s->ops->close(s);
}

static void test_names_of_dimensions_are_those_of_scales_and_labels(void **state)
{
    const char *path = h5_path("dims.h5");
    hid_t file = h5_make(path), t, x, none, space, dcpl;
    hsize_t dims[] = {3, 2}, most[] = {H5S_UNLIMITED, 2}, chunk[] = {1, 2};
    float values[6] = {0};
    struct cv_source *s;
    struct cv_dataset *d;
    (void)state;

    space = H5Screate_simple(2, dims, most);
    dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 2, chunk);
    t = H5Dcreate2(file, "t", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    x = h5_put(file, "x", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, 1, dims + 1, values);
    none = h5_put(file, "step", H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, 1, dims, values);
    H5DSset_scale(x, "x");
    H5DSset_scale(none, "This is a netCDF dimension but not a netCDF variable.         3");
    assert_true(H5DSattach_scale(t, none, 0) >= 0 && H5DSattach_scale(t, x, 1) >= 0);
    H5Dclose(t);
    H5Dclose(x);
    H5Dclose(none);
    t = h5_put(file, "labels", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, 2, dims, values);
    assert_true(H5DSset_label(t, 1, "width") >= 0);
    H5Dclose(t);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);

    s = h5_source_good(&path, 1, NULL);
    assert_int_equal(s->model->ndatasets, 3); /* not the one without values */
    d = dataset(s, "/t");
    assert_string_equal(d->dims[0].name, "step");
    assert_string_equal(d->dims[1].name, "x");
    assert_true(d->dims[0].steps);
    assert_int_equal(d->attrs.count, 0);
    assert_string_equal(dataset(s, "/x")->dims[0].name, "x");
    assert_null(dataset(s, "/labels")->dims[0].name);
    assert_string_equal(dataset(s, "/labels")->dims[1].name, "width");
    s->ops->close(s);
}

static void fill_write(hid_t file, const char *name, hid_t type, double value)
{
    hid_t space = H5Screate(H5S_SCALAR), dcpl = H5Pcreate(H5P_DATASET_CREATE);

    assert_true(H5Pset_fill_value(dcpl, H5T_NATIVE_DOUBLE, &value) >= 0);
    H5Dclose(H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
    H5Pclose(dcpl);
    H5Sclose(space);
}

static void test_fill_values_that_mean_something_are_kept(void **state)
{
    const char *path = h5_path("fill.h5");
    hid_t file = h5_make(path);
    struct cv_source *s;
    (void)state;

    fill_write(file, "a", H5T_IEEE_F32BE, -999);
    fill_write(file, "b", H5T_IEEE_F32LE, (double)NAN);
    fill_write(file, "c", H5T_STD_I16BE, -1);
    fill_write(file, "d", H5T_STD_I16LE, 0);
    H5Fclose(file);
    s = h5_source_good(&path, 1, NULL);
    assert_true(dataset(s, "/a")->has_fill && dataset(s, "/a")->fill == -999);
    assert_true(dataset(s, "/c")->has_fill && dataset(s, "/c")->fill == -1);
    assert_false(dataset(s, "/b")->has_fill || dataset(s, "/d")->has_fill); /* what there is without one */
    s->ops->close(s);
}

static void part_write(const char *path, const int64_t *boxes, hsize_t n, const int64_t *strides, int32_t base)
{
    hid_t file = h5_make(path), id;
    hsize_t dims[] = {4, 4};
    int32_t values[16];

    for (int32_t i = 0; i < 16; i++)
        values[i] = base + i;
    id = h5_put(file, "a", H5T_STD_I32LE, H5T_NATIVE_INT32, 2, dims, values);
    if (boxes)
        h5_ints(id, "fp_boxes", boxes, n);
    if (strides)
        h5_ints(id, "fp_strides", strides, n / 2);
    H5Dclose(id);
    H5Dclose(h5_put(file, "time", H5T_STD_I32LE, H5T_NATIVE_INT32, 0, NULL, &base));
    H5Fclose(file);
}

static void test_parts_are_put_together_by_their_boxes(void **state)
{
    const char *paths[] = {h5_path("part0.h5"), h5_path("part1.h5")};
    uint64_t lo[8] = {1, 0}, count[8] = {1, 2};
    int32_t got[2];
    struct cv_source *s;
    struct cv_dataset *d;
    (void)state;

    part_write(paths[0], (int64_t[]){0, 0, 2, 4}, 4, NULL, 100);
    part_write(paths[1], (int64_t[]){2, 0, 2, 2, 2, 1, 2, 2}, 8, (int64_t[]){1, 2, 1, 2}, 200);
    s = h5_source_good(paths, 2, NULL);
    d = dataset(s, "/a");
    assert_int_equal(d->nblocks, 3);
    assert_null(cv_attrs_find(&d->attrs, "fp_boxes"));
    assert_int_equal(d->blocks[2].stride[1], 2);
    assert_int_equal(dataset(s, "/time")->nblocks, 1);
    read_box(s, d, 2, lo, count, got); /* row 3, columns 1 and 3 */
    assert_int_equal(got[0], 200 + 13);
    assert_int_equal(got[1], 200 + 15);
    s->ops->close(s);
}

static void test_boxes_that_are_not_in_the_array_are_said(void **state)
{
    static const int64_t bad[][4] = {{0, 0, 5, 4}, {-1, 0, 2, 2}, {0, 4, 1, 1}, {0, 0, INT64_MAX, INT64_MAX}, {3, 0, 1, INT64_MIN}};
    const char *path = h5_path("bad.h5");
    struct cv_source *s;
    struct cv_fail why;
    (void)state;

    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        part_write(path, bad[i], 4, NULL, 0);
        assert_int_equal(h5_source(&path, 1, NULL, &s, &why), -EINVAL);
        assert_string_equal(why.dataset, "/a");
        assert_non_null(strstr(why.text, "fp_boxes"));
    }
    part_write(path, all_zero, 3, NULL, 0); /* no whole box */
    assert_int_equal(h5_source(&path, 1, NULL, &s, &why), -EINVAL);
    part_write(path, (int64_t[]){0, 0, 2, 2}, 4, (int64_t[]){0, 1}, 0);
    assert_int_equal(h5_source(&path, 1, NULL, &s, &why), -EINVAL);
    part_write(path, (int64_t[]){0, 0, 2, 2}, 4, (int64_t[]){INT64_MAX, 1}, 0);
    assert_int_equal(h5_source(&path, 1, NULL, &s, &why), -EINVAL);
}

static void piece_write(const char *path, int64_t global, int64_t offset, int16_t first)
{
    hid_t file = h5_make(path), id;
    hsize_t n = 3;
    int16_t values[3] = {first, (int16_t)(first + 1), (int16_t)(first + 2)};

    id = h5_put(file, "p", H5T_STD_I16BE, H5T_NATIVE_INT16, 1, &n, values);
    if (global) {
        h5_ints(id, "global_shape", &global, 1);
        h5_ints(id, "offset", &offset, 1);
    }
    H5Dclose(id);
    H5Fclose(file);
}

static void test_pieces_lie_where_global_shape_and_offset_say(void **state)
{
    const char *paths[] = {h5_path("r0.h5"), h5_path("r1.h5")};
    uint64_t lo[8] = {1}, count[8] = {2};
    int16_t got[2];
    struct cv_source *s;
    struct cv_fail why;
    struct cv_dataset *d;
    (void)state;

    piece_write(paths[0], 6, 3, 40);
    piece_write(paths[1], 6, 0, 10);
    s = h5_source_good(paths, 2, NULL);
    d = dataset(s, "/p");
    assert_int_equal(d->dims[0].size, 6);
    assert_int_equal(d->blocks[0].start[0], 3);
    assert_int_equal(d->blocks[1].start[0], 0);
    assert_int_equal(d->attrs.count, 0);
    read_box(s, d, 0, lo, count, got);
    assert_int_equal(got[0], 41);
    assert_int_equal(got[1], 42);
    s->ops->close(s);

    piece_write(paths[1], 7, 0, 10);
    assert_int_equal(h5_source(paths, 2, NULL, &s, &why), -EINVAL);
    assert_string_equal(why.file, paths[1]);
    piece_write(paths[1], 6, 4, 10);
    assert_int_equal(h5_source(paths, 2, NULL, &s, &why), -EINVAL);
    piece_write(paths[1], 6, INT64_MAX, 10);
    assert_int_equal(h5_source(paths, 2, NULL, &s, &why), -EINVAL);
}

static void test_files_that_do_not_say_where_they_belong_are_refused(void **state)
{
    const char *paths[] = {h5_path("r0.h5"), h5_path("r1.h5")};
    struct cv_source *s;
    struct cv_fail why;
    (void)state;

    piece_write(paths[0], 0, 0, 1);
    piece_write(paths[1], 0, 0, 2);
    assert_int_equal(h5_source(paths, 2, NULL, &s, &why), -EEXIST);
    assert_string_equal(why.file, paths[1]);
    assert_string_equal(why.dataset, "/p");
    assert_non_null(strstr(why.text, "schema"));
    assert_non_null(strstr(why.text, paths[0]));
}

static void schema_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Ranks 2x1 of 4x3, each with a ghost row above and below, and both steps in a file. */
static void test_a_schema_places_files_and_cuts_their_ghosts(void **state)
{
    const char *paths[] = {h5_path("f_0.h5"), h5_path("f_1.h5")}, *schema = h5_path("s.yaml");
    hsize_t dims[] = {2, 4, 3};
    uint64_t lo[8] = {0, 0, 1}, count[8] = {1, 2, 2};
    double values[24], got[4];
    struct cv_source *s;
    struct cv_fail why;
    struct cv_dataset *d;
    (void)state;

    for (unsigned r = 0; r < 2; r++) {
        hid_t file = h5_make(paths[r]), id;

        for (unsigned i = 0; i < 24; i++)
            values[i] = 1000.0 * r + i;
        id = h5_put(file, "t", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 3, dims, values);
        h5_text(id, "units", "m");
        H5Dclose(id);
        H5Fclose(file);
    }
    schema_write(schema, "fpschema: 1\nranks: {grid: [2, 1]}\nsteps: 2\ndatasets: [{name: /t, type: float64, dims: [4, 3], ghost: [1, 0]}]\n");
    s = h5_source_good(paths, 2, schema);
    d = dataset(s, "/t");
    assert_int_equal(d->rank, 3);
    assert_int_equal(d->nblocks, 4);
    assert_string_equal(cv_attrs_find(&d->attrs, "units")->text, "m");
    for (size_t k = 0; k < 4; k++) { /* rows 1 and 2 of the file's four, columns 1 and 2 */
        double first = 1000.0 * d->blocks[k].input + 12.0 * (double)d->blocks[k].start[0] + 3;

        read_box(s, d, k, lo, count, got);
        assert_true(got[0] == first + 1 && got[1] == first + 2 && got[2] == first + 4 && got[3] == first + 5);
    }
    s->ops->close(s);

    schema_write(schema, "fpschema: 1\nranks: {grid: [2, 1]}\nsteps: 2\ndatasets: [{name: /t, type: float32, dims: [4, 3], ghost: [1, 0]}]\n");
    assert_int_equal(h5_source(paths, 2, schema, &s, &why), -EINVAL);
    assert_non_null(strstr(why.text, "float32"));
    schema_write(schema, "fpschema: 1\nranks: {grid: [2, 1]}\nsteps: 2\ndatasets: [{name: /t, type: float64, dims: [4, 3]}]\n");
    assert_int_equal(h5_source(paths, 2, schema, &s, &why), -EINVAL);
    assert_non_null(strstr(why.text, "shape"));
    schema_write(schema, "fpschema: 1\nranks: {grid: [2, 1]}\nsteps: 2\ndatasets: [{name: /u, type: float64, dims: [4, 3]}]\n");
    assert_int_equal(h5_source(paths, 2, schema, &s, &why), -EINVAL);
    assert_string_equal(why.dataset, "/u");
}

static void test_more_files_than_may_be_open_are_read_in_any_order(void **state)
{
    enum { N = 70 };
    static char names[N][32];
    const char *paths[N];
    uint64_t lo[8] = {0}, count[8] = {3};
    int16_t got[3];
    struct cv_source *s;
    (void)state;

    for (unsigned i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%s/n%u.h5", h5_dir, i);
        paths[i] = names[i];
        piece_write(paths[i], 3 * N, 3 * i, (int16_t)(10 * i));
    }
    s = h5_source_good(paths, N, NULL);
    for (unsigned i = 0; i < 2 * N; i++) {
        read_box(s, dataset(s, "/p"), i * 37 % N, lo, count, got);
        assert_int_equal(got[2], 10 * (i * 37 % N) + 2);
    }
    s->ops->close(s);
}

static void test_chunks_that_filters_made_are_the_blocks(void **state)
{
    const char *path = h5_path("chunks.h5");
    hid_t file = h5_make(path), dcpl = H5Pcreate(H5P_DATASET_CREATE), space, id;
    hsize_t dims[] = {5, 7}, chunk[] = {2, 3};
    uint64_t lo[8] = {0};
    int32_t values[35], got[6], seen[35] = {0};
    struct cv_source *s;
    struct cv_dataset *d;
    (void)state;

    for (int32_t i = 0; i < 35; i++)
        values[i] = i;
    space = H5Screate_simple(2, dims, NULL);
    H5Pset_chunk(dcpl, 2, chunk);
    H5Pset_deflate(dcpl, 1);
    id = H5Dcreate2(file, "d", H5T_STD_I32BE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(H5Dwrite(id, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(id);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);
    s = h5_source_good(&path, 1, NULL);
    d = dataset(s, "/d");
    assert_int_equal(d->nblocks, 9);
    for (size_t k = 0; k < 9; k++) {
        const struct cv_block *b = &d->blocks[k];

        read_box(s, d, k, lo, b->count, got);
        for (uint64_t i = 0; i < b->count[0] * b->count[1]; i++) {
            uint64_t at = (b->start[0] + i / b->count[1]) * 7 + b->start[1] + i % b->count[1];

            assert_int_equal(got[i], at);
            seen[at]++;
        }
    }
    for (unsigned i = 0; i < 35; i++)
        assert_int_equal(seen[i], 1);
    s->ops->close(s);
}

static void test_a_chunk_larger_than_the_memory_is_said_before(void **state)
{
    const char *path = h5_path("big.h5");
    hid_t file = h5_make(path), dcpl = H5Pcreate(H5P_DATASET_CREATE), space, id;
    hsize_t n = 1u << 18;
    struct cv_source *s;
    struct cv_fail why;
    (void)state;

    space = H5Screate_simple(1, &n, NULL);
    H5Pset_chunk(dcpl, 1, &n);
    H5Pset_deflate(dcpl, 1);
    id = H5Dcreate2(file, "d", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(id >= 0);
    H5Dclose(id);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);
    assert_int_equal(h5_source(&path, 1, NULL, &s, &why), -E2BIG);
    assert_string_equal(why.dataset, "/d");
}

/* A chunk of its own for all 64 elements; one byte of it is changed. */
static void write_damaged(const char *path, bool checksum)
{
    hid_t file = h5_make(path), dcpl = H5Pcreate(H5P_DATASET_CREATE), space, id;
    hsize_t n = 64, bytes;
    int32_t values[64] = {0};
    unsigned mask;
    haddr_t where;
    FILE *f;

    space = H5Screate_simple(1, &n, NULL);
    H5Pset_chunk(dcpl, 1, &n);
    assert_true((checksum ? H5Pset_fletcher32(dcpl) : H5Pset_deflate(dcpl, 1)) >= 0);
    id = H5Dcreate2(file, "d", H5T_NATIVE_INT32, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(H5Dwrite(id, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    assert_true(H5Fflush(file, H5F_SCOPE_LOCAL) >= 0);
    assert_true(H5Dget_chunk_info_by_coord(id, (hsize_t[]){0}, &mask, &where, &bytes) >= 0);
    H5Dclose(id);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);
    f = fopen(path, "r+b");
    assert_true(f && fseek(f, (long)where, SEEK_SET) == 0 && fputc(0xff, f) == 0xff && fclose(f) == 0);
}

static void test_a_damaged_chunk_is_said_and_what_found_it(void **state)
{
    const char *path = h5_path("damaged.h5");
    uint64_t lo[8] = {0}, count[8] = {64};
    int32_t got[64];
    (void)state;

    for (int checksum = 0; checksum < 2; checksum++) {
        struct cv_fail why = {.text = ""};
        struct cv_source *s;
        struct cv_dataset *d;

        write_damaged(path, checksum);
        s = h5_source_good(&path, 1, NULL);
        d = dataset(s, "/d");
        assert_int_equal(s->ops->read_box(s, d, &d->blocks[0], lo, count, got, &why), -EBADMSG);
        assert_string_equal(why.dataset, "/d");
        assert_non_null(strstr(why.text, checksum ? "checksum" : "the filter deflate (number 1)"));
        s->ops->close(s);
    }
}

static void test_what_is_no_hdf5_file_or_ends_too_early_is_said(void **state)
{
    const char *path = h5_path("one.h5"), *gone = h5_path("gone.h5");
    struct cv_source *s;
    struct cv_fail why;
    (void)state;

    piece_write(path, 0, 0, 1);
    assert_int_equal(truncate(path, 1000), 0);
    assert_true(h5_source(&path, 1, NULL, &s, &why) < 0);
    assert_string_equal(why.file, path);
    assert_non_null(strstr(why.text, "truncated"));
    schema_write(path, "no HDF5 at all");
    assert_true(h5_source(&path, 1, NULL, &s, &why) < 0);
    assert_string_equal(why.file, path);
    assert_int_equal(h5_source(&gone, 1, NULL, &s, &why), -ENOENT);
}

/* Damaged lengths make the library ask for more memory than there is, and it goes on when it gets none; on such ways it loses a few bytes of its own. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

/* Bytes of a small file changed one after another: it is read or refused, and what is refused says why. */
static void test_damaged_files_are_read_or_refused(void **state)
{
    const char *path = h5_path("one.h5");
    unsigned char bytes[16384];
    FILE *f;
    size_t len;
    unsigned refused = 0;
    (void)state;

    piece_write(path, 6, 3, 1);
    f = fopen(path, "rb");
    assert_non_null(f);
    len = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (size_t i = 0; i < len; i += 17) {
        struct cv_source *s;
        struct cv_fail why;

        bytes[i] ^= 0xff;
        f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(bytes, 1, len, f), len);
        fclose(f);
        bytes[i] ^= 0xff;
        if (h5_source(&path, 1, NULL, &s, &why) == 0) {
            s->ops->close(s);
            continue;
        }
        assert_true(why.text[0]);
        refused++;
    }
    assert_true(refused > 0);
}

/* As many chunks as this, none of which is written, and boxes, if there are any. */
static void chunked_write(hid_t file, const char *name, hsize_t chunks, const int64_t *boxes, hsize_t nboxes)
{
    hid_t space = H5Screate_simple(1, &chunks, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE), id;

    H5Pset_chunk(dcpl, 1, &(hsize_t){1});
    H5Pset_deflate(dcpl, 1);
    id = H5Dcreate2(file, name, H5T_STD_U8LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(id >= 0);
    if (boxes)
        h5_ints(id, "fp_boxes", boxes, 2 * nboxes);
    H5Dclose(id);
    H5Pclose(dcpl);
    H5Sclose(space);
}

/* The file has some kilobytes, and its blocks would have as much memory as it has datasets. */
static void test_chunks_of_many_datasets_are_no_blocks_beyond_a_number(void **state)
{
    const char *path = h5_path("many.h5");
    hid_t file = h5_make(path);
    struct cv_source *s;
    size_t all = 0;
    (void)state;

    for (unsigned i = 0; i < 6; i++)
        chunked_write(file, (char[]){'/', (char)('a' + i), 0}, 65536, NULL, 0);
    H5Fclose(file);
    s = h5_source_good(&path, 1, NULL);
    for (unsigned i = 0; i < 6; i++)
        all += s->model->datasets[i].nblocks;
    assert_int_equal(s->model->datasets[3].nblocks, 65536);
    assert_int_equal(s->model->datasets[4].nblocks, 1);
    assert_int_equal(all, 4 * 65536 + 2);
    s->ops->close(s);
}

static void test_more_boxes_than_blocks_may_be_are_said(void **state)
{
    enum { EACH = CV_BLOCKS_MAX / 2 };
    const char *path = h5_path("boxes.h5");
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), file;
    int64_t *boxes = calloc(2 * (EACH + 1), sizeof *boxes);
    struct cv_source *s;
    struct cv_fail why;
    (void)state;

    assert_non_null(boxes);
    for (size_t i = 0; i <= EACH; i++)
        boxes[2 * i + 1] = 1;
    H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_V110); /* attributes of more than 64 KiB */
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    H5Pclose(fapl);
    assert_true(file >= 0);
    chunked_write(file, "/a", 1, boxes, EACH);
    chunked_write(file, "/b", 1, boxes, EACH + 1);
    H5Fclose(file);
    free(boxes);
    assert_int_equal(h5_source(&path, 1, NULL, &s, &why), -E2BIG);
    assert_string_equal(why.dataset, "/b");
    assert_non_null(strstr(why.text, "1048576"));
}

/* Each that is open has a cache in the source's memory. */
static void test_datasets_that_are_read_no_more_are_closed(void **state)
{
    const char *path = h5_path("sets.h5");
    hid_t file = h5_make(path);
    const struct cv_h5_source *h;
    struct cv_source *s;
    (void)state;

    for (unsigned i = 0; i < 6; i++)
        chunked_write(file, (char[]){'/', (char)('a' + i), 0}, 4, NULL, 0);
    H5Fclose(file);
    s = h5_source_good(&path, 1, NULL);
    h = (const struct cv_h5_source *)s;
    for (unsigned i = 0; i < 6; i++) {
        size_t all_bytes = 0;
        uint8_t got;

        read_box(s, &s->model->datasets[i], 0, (const uint64_t[8]){0}, (const uint64_t[8]){1}, &got);
        for (unsigned k = 0; k < CV_H5_SETS; k++) {
            hid_t dapl = h->sets[k].id < 0 ? -1 : H5Dget_access_plist(h->sets[k].id);
            size_t bytes = 0;

            if (dapl >= 0) {
                assert_true(H5Pget_chunk_cache(dapl, NULL, &bytes, NULL) >= 0);
                H5Pclose(dapl);
            }
            all_bytes += bytes;
        }
        assert_true(all_bytes > 0 && all_bytes <= h->memory_bytes);
    }
    s->ops->close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_file_is_read_as_it_is),
        cmocka_unit_test(test_types_and_scalars_are_known_and_others_passed_over),
        cmocka_unit_test(test_names_of_dimensions_are_those_of_scales_and_labels),
        cmocka_unit_test(test_fill_values_that_mean_something_are_kept),
        cmocka_unit_test(test_parts_are_put_together_by_their_boxes),
        cmocka_unit_test(test_boxes_that_are_not_in_the_array_are_said),
        cmocka_unit_test(test_pieces_lie_where_global_shape_and_offset_say),
        cmocka_unit_test(test_files_that_do_not_say_where_they_belong_are_refused),
        cmocka_unit_test(test_a_schema_places_files_and_cuts_their_ghosts),
        cmocka_unit_test(test_more_files_than_may_be_open_are_read_in_any_order),
        cmocka_unit_test(test_chunks_that_filters_made_are_the_blocks),
        cmocka_unit_test(test_a_chunk_larger_than_the_memory_is_said_before),
        cmocka_unit_test(test_a_damaged_chunk_is_said_and_what_found_it),
        cmocka_unit_test(test_what_is_no_hdf5_file_or_ends_too_early_is_said),
        cmocka_unit_test(test_damaged_files_are_read_or_refused),
        cmocka_unit_test(test_chunks_of_many_datasets_are_no_blocks_beyond_a_number),
        cmocka_unit_test(test_more_boxes_than_blocks_may_be_are_said),
        cmocka_unit_test(test_datasets_that_are_read_no_more_are_closed),
    };

    return cmocka_run_group_tests(tests, h5_setup, h5_teardown);
}
