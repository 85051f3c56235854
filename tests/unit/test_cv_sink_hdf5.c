/* to=hdf5: what is written is read back by the library itself, with all filters, at the edges of arrays, in any order of tiles; scales, attributes and fill values are there; what fails says why. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>

#include "tests/unit/cv_h5.h"

static struct cv_sink *sink_new(const char *path, const struct cv_model *m, const uint64_t (*chunk)[CV_RANK_MAX], const struct cv_sink_options *o)
{
    struct cv_fail why = {.text = ""};
    struct cv_sink *s = NULL;

    if (cv_sink_hdf5.create(path, m, chunk, o, &s, &why) != 0)
        fail_msg("%s: %s", why.dataset, why.text);
    return s;
}

static void sink_write(struct cv_sink *s, size_t i, const uint64_t *lo, const uint64_t *count, const void *buf)
{
    struct cv_fail why = {.text = ""};

    if (s->ops->write(s, i, lo, count, buf, &why) != 0)
        fail_msg("%s: %s", why.dataset, why.text);
}

static void sink_close(struct cv_sink *s)
{
    struct cv_fail why = {.text = ""};

    if (s->ops->close(s, &why) != 0)
        fail_msg("%s", why.text);
}

static struct cv_dataset *add(struct cv_model *m, const char *name, enum cv_kind kind, uint8_t size, unsigned rank, const uint64_t *dims)
{
    struct cv_dataset *d = cv_model_add(m, name);

    assert_non_null(d);
    d->type = (struct cv_type){.kind = kind, .size_bytes = size};
    d->rank = rank;
    for (unsigned i = 0; i < rank; i++)
        d->dims[i].size = dims[i];
    return d;
}

#define ROWS 10u
#define COLS 7u

static double value_of(uint64_t row, uint64_t col)
{
    return (double)(row / 3) * 0.25 + (double)(col / 2);
}

/* Tiles of the shape of chunks, the last first. */
static void write_tiles(struct cv_sink *s, size_t i, uint64_t rows, uint64_t cols)
{
    for (uint64_t a = (ROWS + rows - 1) / rows; a-- > 0;)
        for (uint64_t b = (COLS + cols - 1) / cols; b-- > 0;) {
            uint64_t lo[8] = {a * rows, b * cols}, count[8] = {ROWS - lo[0] < rows ? ROWS - lo[0] : rows, COLS - lo[1] < cols ? COLS - lo[1] : cols};
            double tile[ROWS * COLS];

            for (uint64_t r = 0; r < count[0]; r++)
                for (uint64_t c = 0; c < count[1]; c++)
                    tile[r * count[1] + c] = value_of(lo[0] + r, lo[1] + c);
            sink_write(s, i, lo, count, tile);
        }
}

static void check_values(const char *path, const char *name)
{
    double got[ROWS * COLS];

    h5_get(path, name, H5T_NATIVE_DOUBLE, got);
    for (unsigned i = 0; i < ROWS * COLS; i++)
        assert_true(got[i] == value_of(i / COLS, i % COLS));
}

static void test_every_filter_is_undone_by_the_library(void **state)
{
    const uint64_t chunk[1][CV_RANK_MAX] = {{4, 3}}, dims[] = {ROWS, COLS};
    const char *path = h5_path("filters.h5");
    (void)state;

    for (unsigned k = 0; k < 12; k++) {
        struct cv_model *m = cv_model_new();
        struct cv_sink_options o = {.codec = (enum cv_codec)(k % 3), .level = 3, .shuffle = k / 3 % 2, .fletcher32 = k / 6, .memory_bytes = 1u << 20};
        struct cv_sink *s;

        add(m, "/g/t", CV_FLOAT, 8, 2, dims);
        s = sink_new(path, m, chunk, &o);
        write_tiles(s, 0, 4, 3);
        sink_close(s);
        check_values(path, "/g/t");
        s = sink_new(path, m, chunk, &o); /* and as boxes of several chunks, which the library takes apart */
        write_tiles(s, 0, 8, 6);
        sink_close(s);
        check_values(path, "/g/t");
        cv_model_free(m);
    }
}

static void test_what_does_not_shrink_is_stored_as_it_is(void **state)
{
    enum { N = 1000 };
    const uint64_t chunk[1][CV_RANK_MAX] = {{N}}, dims[] = {N};
    uint64_t lo[8] = {0}, count[8] = {N}, state64 = 88172645463325252ull;
    static uint64_t values[N], got[N];
    const char *path = h5_path("random.h5");
    (void)state;

    for (unsigned i = 0; i < N; i++) {
        state64 ^= state64 << 13;
        state64 ^= state64 >> 7;
        state64 ^= state64 << 17;
        values[i] = state64;
    }
    for (unsigned k = 0; k < 8; k++) {
        struct cv_model *m = cv_model_new();
        struct cv_sink_options o = {.codec = k % 2 ? CV_CODEC_ZSTD : CV_CODEC_DEFLATE, .level = 1, .shuffle = k / 2 % 2, .fletcher32 = k / 4, .memory_bytes = 1u << 20};
        struct cv_sink *s;
        hid_t file, id;
        unsigned left_out = 0;
        hsize_t at = 0;

        add(m, "/r", CV_UINT, 8, 1, dims);
        s = sink_new(path, m, chunk, &o);
        sink_write(s, 0, lo, count, values);
        sink_close(s);
        h5_get(path, "/r", H5T_NATIVE_UINT64, got);
        assert_memory_equal(got, values, sizeof got);
        file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
        id = H5Dopen2(file, "/r", H5P_DEFAULT);
        memset(got, 0, sizeof got);
        assert_true(H5Dget_storage_size(id) <= sizeof values + 4);
        assert_true(H5Dread_chunk(id, H5P_DEFAULT, &at, &left_out, (uint8_t[sizeof values + 64]){0}) >= 0);
        assert_int_equal(left_out, o.shuffle ? 2 : 1);
        H5Dclose(id);
        H5Fclose(file);
        cv_model_free(m);
    }
}

static void test_a_flipped_bit_is_found_by_the_checksum(void **state)
{
    const uint64_t chunk[1][CV_RANK_MAX] = {{ROWS, COLS}}, dims[] = {ROWS, COLS};
    const char *path = h5_path("flip.h5");
    struct cv_sink_options o = {.fletcher32 = true, .memory_bytes = 1u << 20};
    struct cv_model *m = cv_model_new();
    struct cv_sink *s;
    double got[ROWS * COLS];
    unsigned char byte;
    hsize_t size;
    haddr_t where;
    unsigned mask;
    hid_t file, id;
    FILE *f;
    (void)state;

    add(m, "/t", CV_FLOAT, 8, 2, dims);
    s = sink_new(path, m, chunk, &o);
    write_tiles(s, 0, ROWS, COLS);
    sink_close(s);
    cv_model_free(m);
    check_values(path, "/t");
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    id = H5Dopen2(file, "/t", H5P_DEFAULT);
    assert_true(H5Dget_chunk_info_by_coord(id, (hsize_t[]){0, 0}, &mask, &where, &size) >= 0);
    assert_int_equal(size, ROWS * COLS * 8 + 4);
    H5Dclose(id);
    H5Fclose(file);
    f = fopen(path, "r+b");
    assert_true(f && fseek(f, (long)where + 100, SEEK_SET) == 0 && fread(&byte, 1, 1, f) == 1);
    byte ^= 4;
    assert_true(fseek(f, (long)where + 100, SEEK_SET) == 0 && fwrite(&byte, 1, 1, f) == 1 && fclose(f) == 0);
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    id = H5Dopen2(file, "/t", H5P_DEFAULT);
    assert_true(H5Dread(id, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) < 0);
    H5Dclose(id);
    H5Fclose(file);
}

static void test_every_type_and_rank_comes_back(void **state)
{
    static const struct { enum cv_kind kind; uint8_t size; } types[] = {{CV_INT, 1}, {CV_INT, 2}, {CV_INT, 4}, {CV_INT, 8}, {CV_UINT, 1}, {CV_UINT, 2},
                                                                       {CV_UINT, 4}, {CV_UINT, 8}, {CV_FLOAT, 4}, {CV_FLOAT, 8}, {CV_COMPLEX, 8}, {CV_COMPLEX, 16}};
    const char *path = h5_path("types.h5");
    (void)state;

    for (unsigned t = 0; t < sizeof types / sizeof types[0]; t++)
        for (unsigned rank = 0; rank <= CV_RANK_MAX; rank++) {
            uint64_t chunk[1][CV_RANK_MAX] = {{0}}, dims[CV_RANK_MAX], lo[CV_RANK_MAX] = {0};
            struct cv_sink_options o = {.codec = CV_CODEC_DEFLATE, .level = 1, .shuffle = true, .memory_bytes = 1u << 20};
            struct cv_model *m = cv_model_new();
            unsigned char values[256 * 16], got[256 * 16];
            size_t bytes = (size_t)types[t].size << rank;
            struct cv_sink *s;
            hid_t file, id, type;

            for (unsigned i = 0; i < rank; i++)
                chunk[0][i] = dims[i] = 2;
            for (size_t i = 0; i < bytes; i++)
                values[i] = (unsigned char)(i * 7 % 100);
            add(m, "/v", types[t].kind, types[t].size, rank, dims);
            s = sink_new(path, m, chunk, &o);
            sink_write(s, 0, lo, rank ? dims : (uint64_t[8]){1}, values);
            sink_close(s);
            cv_model_free(m);
            file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
            id = H5Dopen2(file, "/v", H5P_DEFAULT);
            type = H5Dget_type(id);
            assert_int_equal(H5Tget_size(type), types[t].size);
            assert_true(H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
            assert_memory_equal(got, values, bytes);
            H5Tclose(type);
            H5Dclose(id);
            H5Fclose(file);
        }
}

/* Two fields over step and x, the second with attributes, and the coordinate x. */
static void write_scaled(const char *path)
{
    const uint64_t chunk[3][CV_RANK_MAX] = {{1, 5}, {1, 5}, {5}}, dims[] = {4, 5}, x[] = {5};
    struct cv_sink_options o = {.memory_bytes = 1u << 20};
    struct cv_model *m = cv_model_new();
    struct cv_dataset *d;

    for (unsigned k = 0; k < 2; k++) {
        d = add(m, k ? "/b" : "/a", CV_FLOAT, 4, 2, dims);
        d->dims[0].name = strdup("step");
        d->dims[0].steps = true;
        d->dims[1].name = strdup("x");
    }
    cv_attrs_text(&d->attrs, "units", "°C");
    cv_attrs_ints(&d->attrs, "pair", (int64_t[]){-1, INT64_MAX}, 2);
    cv_attrs_ints(&d->attrs, "none", NULL, 0);
    d->has_fill = true;
    d->fill = -9999;
    d = add(m, "/x", CV_FLOAT, 8, 1, x);
    d->dims[0].name = strdup("x");
    sink_close(sink_new(path, m, chunk, &o));
    cv_model_free(m);
}

static void test_dimensions_are_scales_that_datasets_share(void **state)
{
    const char *path = h5_path("scales.h5");
    char text[64] = "";
    hid_t file, a, b, x, step, space;
    hsize_t size[2], most[2];
    (void)state;

    write_scaled(path);
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    a = H5Dopen2(file, "/a", H5P_DEFAULT);
    b = H5Dopen2(file, "/b", H5P_DEFAULT);
    x = H5Dopen2(file, "/x", H5P_DEFAULT);
    step = H5Dopen2(file, "/step", H5P_DEFAULT);
    assert_true(H5DSis_scale(x) > 0 && H5DSis_scale(step) > 0);
    assert_true(H5DSis_attached(a, x, 1) > 0 && H5DSis_attached(b, x, 1) > 0 && H5DSis_attached(a, step, 0) > 0 && H5DSis_attached(b, step, 0) > 0);
    assert_true(H5DSget_scale_name(step, text, sizeof text) > 0);
    assert_int_equal(strncmp(text, "This is a netCDF dimension but not a netCDF variable.", 53), 0);
    assert_int_equal(H5Dget_storage_size(step), 0);
    space = H5Dget_space(a);
    H5Sget_simple_extent_dims(space, size, most);
    assert_true(size[0] == 4 && most[0] == H5S_UNLIMITED && most[1] == 5);
    H5Sclose(space);
    H5Dclose(a);
    H5Dclose(b);
    H5Dclose(x);
    H5Dclose(step);
    H5Fclose(file);
}

static void test_attributes_are_text_numbers_and_values(void **state)
{
    const char *path = h5_path("attrs.h5");
    char *units = NULL;
    hid_t file, b, attr, type;
    int64_t ints[2];
    float fill;
    (void)state;

    write_scaled(path);
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    b = H5Dopen2(file, "/b", H5P_DEFAULT);
    attr = H5Aopen(b, "units", H5P_DEFAULT);
    type = H5Aget_type(attr);
    assert_true(H5Tis_variable_str(type) > 0 && H5Tget_cset(type) == H5T_CSET_UTF8);
    assert_true(H5Aread(attr, type, &units) >= 0);
    assert_string_equal(units, "°C");
    H5free_memory(units);
    H5Tclose(type);
    H5Aclose(attr);
    attr = H5Aopen(b, "pair", H5P_DEFAULT);
    assert_true(H5Aread(attr, H5T_NATIVE_INT64, ints) >= 0);
    assert_true(ints[0] == -1 && ints[1] == INT64_MAX);
    H5Aclose(attr);
    assert_true(H5Aexists(b, "none") > 0);
    attr = H5Aopen(b, "_FillValue", H5P_DEFAULT);
    assert_true(H5Aread(attr, H5T_NATIVE_FLOAT, &fill) >= 0 && fill == -9999.0f);
    assert_int_equal(H5Aget_storage_size(attr), 4); /* of the dataset's type */
    H5Aclose(attr);
    H5Dclose(b);
    H5Fclose(file);
}

static void test_what_is_not_written_takes_no_space_and_reads_as_fill(void **state)
{
    const uint64_t chunk[1][CV_RANK_MAX] = {{1024}}, dims[] = {1u << 20};
    struct cv_sink_options o = {.sparse = true, .memory_bytes = 1u << 20};
    struct cv_model *m = cv_model_new();
    const char *path = h5_path("sparse.h5");
    uint64_t lo[8] = {5 * 1024}, count[8] = {1024};
    static float values[1024], got[1u << 20];
    struct cv_sink *s;
    struct stat st;
    (void)state;

    for (unsigned i = 0; i < 1024; i++)
        values[i] = (float)i;
    add(m, "/t", CV_FLOAT, 4, 1, dims);
    s = sink_new(path, m, chunk, &o);
    sink_write(s, 0, lo, count, values);
    sink_close(s);
    cv_model_free(m);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size < 200000);
    h5_get(path, "/t", H5T_NATIVE_FLOAT, got);
    assert_true(got[5 * 1024 + 7] == 7 && got[0] != got[0] && got[6 * 1024] != got[6 * 1024]);
}

#define LARGE 65536u /* doubles: a chunk of 512 KiB */
#define SMALL 1024u

/* Four chunks of so many doubles, of a dump that zstd can't make smaller; where they begin. */
static haddr_t write_four(uint64_t elements, const struct cv_sink_options *o)
{
    const uint64_t chunk[1][CV_RANK_MAX] = {{elements}}, dims[] = {4 * elements};
    const char *path = h5_path("begin.h5");
    static uint64_t values[LARGE];
    uint64_t lo[8] = {0}, count[8] = {elements}, state64 = 88172645463325252ull;
    struct cv_model *m = cv_model_new();
    struct cv_sink *s;

    for (unsigned i = 0; i < LARGE; i++)
        values[i] = state64 = (state64 ^ state64 << 13) * 6364136223846793005ull;
    add(m, "/t", CV_UINT, 8, 1, dims);
    s = sink_new(path, m, chunk, o);
    for (; lo[0] < dims[0]; lo[0] += elements)
        sink_write(s, 0, lo, count, values);
    sink_close(s);
    cv_model_free(m);
    return h5_four_chunks_begin_at(path, "/t");
}

static void test_large_chunks_begin_where_the_file_system_likes_it(void **state)
{
    struct stat st;
    (void)state;

    assert_true(write_four(LARGE, &(struct cv_sink_options){0}) >= 4096);
    assert_true(write_four(LARGE, &(struct cv_sink_options){.align_bytes = 512u << 10}) >= 512u << 10);
    assert_int_equal(stat(h5_path("begin.h5"), &st), 0);
    assert_in_range(st.st_size, 5 * (512u << 10), 5 * (512u << 10) + 4096); /* no more is lost than before the first */
    assert_in_range(write_four(LARGE, &(struct cv_sink_options){.align_bytes = 1u << 20}), 4096, 512u << 10); /* they are no multiples of that: half of the file would be holes */
    assert_in_range(write_four(LARGE, &(struct cv_sink_options){.align_bytes = 512u << 10, .codec = CV_CODEC_ZSTD, .level = 1}), 4096, 256u << 10);
    assert_true(write_four(SMALL, &(struct cv_sink_options){.align_bytes = 8192}) < 4096);
    assert_int_equal(stat(h5_path("begin.h5"), &st), 0);
    assert_true(st.st_size < 4 * SMALL * 8 + 4096);
}

/* A file system that is full, as a limit that the kernel has for the size of files: EFBIG instead of ENOSPC. */
static void test_a_failed_write_says_which_error_and_where(void **state)
{
    const uint64_t chunk[1][CV_RANK_MAX] = {{1024}}, dims[] = {1u << 18};
    struct rlimit was, small;
    (void)state;

    signal(SIGXFSZ, SIG_IGN);
    for (unsigned k = 0; k < 3; k++) {
        struct cv_sink_options o = {.fletcher32 = k == 1, .memory_bytes = 1u << 20};
        struct cv_model *m = cv_model_new();
        const char *path = h5_path("full.h5");
        struct cv_fail why = {.text = ""};
        struct cv_sink *s;
        static double values[2048];
        int rc = 0;

        add(m, "/deep/t", CV_FLOAT, 8, 1, dims);
        s = sink_new(path, m, chunk, &o);
        getrlimit(RLIMIT_FSIZE, &was);
        small = (struct rlimit){.rlim_cur = 300000, .rlim_max = was.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        for (uint64_t i = 0; i < 128 && rc == 0; i++)
            rc = s->ops->write(s, 0, (uint64_t[8]){2048 * i}, (uint64_t[8]){k == 2 ? 2048 : 1024}, values, &why);
        s->ops->abandon(s);
        setrlimit(RLIMIT_FSIZE, &was);
        assert_int_equal(rc, -EFBIG);
        assert_string_equal(why.dataset, "/deep/t");
        assert_string_equal(why.file, path);
        cv_model_free(m);
    }
}

static void test_a_directory_that_is_not_there_is_said(void **state)
{
    const uint64_t chunk[1][CV_RANK_MAX] = {{0}};
    struct cv_model *m = cv_model_new();
    struct cv_sink_options o = {.memory_bytes = 1u << 20};
    struct cv_fail why = {.text = ""};
    struct cv_sink *s = NULL;
    (void)state;

    add(m, "/t", CV_FLOAT, 8, 0, NULL);
    assert_int_equal(cv_sink_hdf5.create("/nowhere/at/all.h5", m, chunk, &o, &s, &why), -ENOENT);
    assert_string_equal(why.file, "/nowhere/at/all.h5");
    cv_model_free(m);
}

/* ---------------------------------------------------------------- cv_sink_check */

static int check(const char *const *names, size_t n, struct cv_fail *why)
{
    struct cv_model *m = cv_model_new();
    int rc;

    for (size_t i = 0; i < n; i++)
        add(m, names[i], CV_FLOAT, 8, 0, NULL);
    memset(why, 0, sizeof *why);
    rc = cv_sink_check(&cv_sink_hdf5, m, why);
    cv_model_free(m);
    return rc;
}

static void test_names_that_hdf5_cannot_have_are_refused(void **state)
{
    static const char *const bad[] = {"t", "/", "/a//b", "/a/", "/.", "/a/..", "/a/./b", "/a\nb"}, *const good[] = {"/a b", "/ä", "/a.b", "/..."};
    const char *const twice[] = {"/a", "/b", "/a"}, *const inside[] = {"/a/b/c", "/a-b", "/a/b"};
    struct cv_fail why;
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(check(&bad[i], 1, &why), -EINVAL);
        assert_string_equal(why.dataset, bad[i]);
    }
    assert_int_equal(check(good, sizeof good / sizeof good[0], &why), 0);
    assert_int_equal(check(twice, 3, &why), -EEXIST);
    assert_int_equal(check(inside, 3, &why), -EEXIST);
    assert_string_equal(why.dataset, "/a/b/c");
}

/* A chunk of all of it would have 4 GiB, which HDF5 refuses. */
static void test_a_dimension_may_have_more_steps_than_a_chunk_holds(void **state)
{
    static const uint64_t sizes[] = {UINT64_C(1) << 30, (UINT64_C(1) << 32) + 1};
    const uint64_t chunk[1][CV_RANK_MAX] = {{1u << 20}};
    const char *path = h5_path("long.h5");
    (void)state;

    for (unsigned i = 0; i < 2; i++) {
        struct cv_model *m = cv_model_new();
        struct cv_dataset *d = add(m, "/t", CV_UINT, 1, 1, &sizes[i]);
        hid_t file, scale, space;
        hsize_t size = 0;

        d->dims[0].name = strdup("time");
        d->dims[0].steps = true;
        sink_close(sink_new(path, m, chunk, &(struct cv_sink_options){.memory_bytes = 1u << 20}));
        cv_model_free(m);
        file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
        scale = H5Dopen2(file, "time", H5P_DEFAULT);
        space = H5Dget_space(scale);
        assert_true(H5Sget_simple_extent_dims(space, &size, NULL) == 1 && size == sizes[i]);
        H5Sclose(space);
        H5Dclose(scale);
        H5Fclose(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_filter_is_undone_by_the_library),
        cmocka_unit_test(test_what_does_not_shrink_is_stored_as_it_is),
        cmocka_unit_test(test_a_flipped_bit_is_found_by_the_checksum),
        cmocka_unit_test(test_every_type_and_rank_comes_back),
        cmocka_unit_test(test_dimensions_are_scales_that_datasets_share),
        cmocka_unit_test(test_a_dimension_may_have_more_steps_than_a_chunk_holds),
        cmocka_unit_test(test_attributes_are_text_numbers_and_values),
        cmocka_unit_test(test_what_is_not_written_takes_no_space_and_reads_as_fill),
        cmocka_unit_test(test_large_chunks_begin_where_the_file_system_likes_it),
        cmocka_unit_test(test_a_failed_write_says_which_error_and_where),
        cmocka_unit_test(test_a_directory_that_is_not_there_is_said),
        cmocka_unit_test(test_names_that_hdf5_cannot_have_are_refused),
    };

    return cmocka_run_group_tests(tests, h5_setup, h5_teardown);
}
