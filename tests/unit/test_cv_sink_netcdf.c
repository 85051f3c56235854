/* to=netcdf and to=netcdf3: what the sinks write, as netCDF's own libraries read it: types, 0 to 7 dimensions, chunks, steps, and what neither can hold. */
#include <malloc.h>

#include "tests/unit/cv_h5.h"
#include "tests/unit/cv_netcdf.h"

/* ---------------------------------------------------------------- types and dimensions */

static struct cv_model *model_of_types(bool all)
{
    static const struct { const char *name; enum cv_kind kind; unsigned bytes; bool cdf5; } types[] = {
        {"/i1", CV_INT, 1, false}, {"/ints/i2", CV_INT, 2, false}, {"/ints/i4", CV_INT, 4, false}, {"/ints/i8", CV_INT, 8, true}, {"/u/u1", CV_UINT, 1, true}, {"/u/u2", CV_UINT, 2, true},
        {"/u/u4", CV_UINT, 4, true}, {"/u/deep/u8", CV_UINT, 8, true}, {"/f4", CV_FLOAT, 4, false}, {"/f8", CV_FLOAT, 8, false},
    };
    struct cv_model *m = cv_model_new();

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (all || !types[i].cdf5)
            add(m, types[i].name, types[i].kind, types[i].bytes, 2, (const uint64_t[]){5, 7});
    return m;
}

static struct cv_model *model_of_ranks(void)
{
    static const uint64_t dims[7] = {2, 3, 1, 4, 2, 4, 2};
    struct cv_model *m = cv_model_new();

    for (unsigned rank = 0; rank <= 7; rank++) {
        char name[16];

        snprintf(name, sizeof name, "/r%u", rank);
        add(m, name, CV_FLOAT, 8, rank, dims);
    }
    return m;
}

static void test_netcdf4_puts_large_chunks_where_the_file_system_likes_it(void **state)
{
    enum { CHUNK = 65536 }; /* doubles: 512 KiB */
    static double buf[CHUNK];
    const size_t aligns[] = {0, 512u << 10};
    (void)state;

    for (unsigned i = 0; i < 2; i++) {
        struct cv_model *m = cv_model_new();
        uint64_t lo[CV_RANK_MAX] = {0}, count[CV_RANK_MAX] = {CHUNK};
        struct cv_sink *s;

        memset(chunks, 0, sizeof chunks);
        chunks[0][0] = CHUNK;
        add(m, "/t", CV_FLOAT, 8, 1, (const uint64_t[]){4 * CHUNK});
        s = begin(&cv_sink_netcdf4, m, &(struct cv_sink_options){.align_bytes = aligns[i]});
        for (; lo[0] < 4 * CHUNK; lo[0] += CHUNK)
            put(s, 0, lo, count, buf);
        end(s);
        assert_true(h5_four_chunks_begin_at(path, "/t") >= (aligns[i] ? aligns[i] : 4096));
        cv_model_free(m);
    }
}

/* Where the data of the second variable begins: the first one's size and what is lost between them. */
static MPI_Offset second_begins(uint64_t elements)
{
    struct cv_model *m = cv_model_new();
    double *zeros = calloc(elements, sizeof *zeros);
    struct cv_sink *s;
    MPI_Offset at;
    int file, var;

    add(m, "/a", CV_FLOAT, 8, 1, (const uint64_t[]){elements});
    add(m, "/b", CV_FLOAT, 8, 1, (const uint64_t[]){elements});
    memset(chunks, 0, sizeof chunks);
    s = begin(&cv_sink_pnetcdf, m, &(struct cv_sink_options){0});
    for (size_t k = 0; k < 2; k++)
        put(s, k, (const uint64_t[CV_RANK_MAX]){0}, (const uint64_t[CV_RANK_MAX]){elements}, zeros);
    end(s);
    file = open_classic();
    assert_int_equal(ncmpi_inq_varid(file, "b", &var), NC_NOERR);
    assert_int_equal(ncmpi_inq_varoffset(file, var, &at), NC_NOERR);
    ncmpi_close(file);
    cv_model_free(m);
    free(zeros);
    return at;
}

static void test_netcdf3_begins_large_arrays_with_a_page_and_loses_nothing_for_small_ones(void **state)
{
    (void)state;
    assert_int_equal(second_begins(65536 + 1) % 4096, 0);
    assert_true(second_begins(1) < 4096);
}

static void test_netcdf4_has_all_types_in_their_groups(void **state)
{
    struct cv_model *m = model_of_types(true);
    (void)state;

    memset(chunks, 0, sizeof chunks);
    write_all(&cv_sink_netcdf4, m, &(struct cv_sink_options){0});
    check_nc(m);
    cv_model_free(m);
}

static void test_netcdf3_is_cdf2_while_that_has_the_types_and_cdf5_else(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        struct cv_model *m = model_of_types(all);

        write_all(&cv_sink_pnetcdf, m, &(struct cv_sink_options){0});
        check_classic(m, all ? NC_FORMAT_CDF5 : NC_FORMAT_CDF2);
        cv_model_free(m);
    }
}

static void test_both_have_scalars_and_up_to_7_dimensions(void **state)
{
    struct cv_model *m = model_of_ranks();
    (void)state;

    memset(chunks, 0, sizeof chunks);
    write_all(&cv_sink_netcdf4, m, &(struct cv_sink_options){0});
    check_nc(m);
    write_all(&cv_sink_pnetcdf, m, &(struct cv_sink_options){0});
    check_classic(m, NC_FORMAT_CDF2);
    cv_model_free(m);
}

static void test_netcdf4_has_the_chunks_and_filters_that_are_asked_for(void **state)
{
    struct cv_model *m = cv_model_new();
    size_t size[2], nparams;
    unsigned param;
    int file, storage, shuffle, deflate, level, sum;
    (void)state;

    add(m, "/a", CV_FLOAT, 4, 2, (const uint64_t[]){5, 7});
    memset(chunks, 0, sizeof chunks);
    chunks[0][0] = 2;
    chunks[0][1] = 4;
    write_all(&cv_sink_netcdf4, m, &(struct cv_sink_options){.codec = CV_CODEC_DEFLATE, .level = 3, .shuffle = true, .fletcher32 = true});
    check_nc(m);
    file = open_nc();
    assert_int_equal(nc_inq_var_chunking(file, 0, &storage, size), NC_NOERR);
    assert_int_equal(storage, NC_CHUNKED);
    assert_int_equal(size[0], 2);
    assert_int_equal(size[1], 4);
    assert_int_equal(nc_inq_var_deflate(file, 0, &shuffle, &deflate, &level), NC_NOERR);
    assert_true(shuffle && deflate && level == 3);
    assert_int_equal(nc_inq_var_fletcher32(file, 0, &sum), NC_NOERR);
    assert_int_equal(sum, NC_FLETCHER32);
    nc_close(file);
    write_all(&cv_sink_netcdf4, m, &(struct cv_sink_options){.codec = CV_CODEC_ZSTD, .level = 5});
    check_nc(m);
    file = open_nc();
    assert_int_equal(nc_inq_var_filter_info(file, 0, CV_H5_ZSTD, &nparams, &param), NC_NOERR);
    assert_true(nparams == 1 && param == 5);
    nc_close(file);
    cv_model_free(m);
}

static void test_netcdf3_refuses_codecs_and_checksums(void **state)
{
    struct cv_model *m = model_of_types(false);
    struct cv_fail why = {.text = ""};
    struct cv_sink *s = NULL;
    (void)state;

    assert_int_equal(cv_sink_pnetcdf.create(path, m, (const uint64_t(*)[CV_RANK_MAX])chunks, &(struct cv_sink_options){.codec = CV_CODEC_DEFLATE}, &s, &why), -ENOTSUP);
    assert_int_equal(cv_sink_pnetcdf.create(path, m, (const uint64_t(*)[CV_RANK_MAX])chunks, &(struct cv_sink_options){.fletcher32 = true}, &s, &why), -ENOTSUP);
    assert_non_null(strstr(why.text, "--to=netcdf"));
    cv_model_free(m);
}

/* ---------------------------------------------------------------- names of dimensions, steps */

static void check_dim(int file, const char *name, size_t size)
{
    size_t len;
    int id;

    if (nc_inq_dimid(file, name, &id))
        fail_msg("there is no dimension %s", name);
    assert_int_equal(nc_inq_dimlen(file, id, &len), NC_NOERR);
    assert_int_equal(len, size);
}

static void test_dimensions_are_shared_by_name_and_size_and_numbered_else(void **state)
{
    struct cv_model *m = cv_model_new();
    int file, n;
    (void)state;

    name_dim(add(m, "/x_first", CV_INT, 4, 1, (const uint64_t[]){6}), 0, "x_2", false);
    name_dim(add(m, "/a", CV_INT, 4, 2, (const uint64_t[]){4, 5}), 0, "x", false);
    name_dim(add(m, "/b", CV_INT, 4, 2, (const uint64_t[]){5, 5}), 0, "x", false);
    name_dim(add(m, "/c", CV_INT, 4, 1, (const uint64_t[]){6}), 0, "x", false);
    name_dim(add(m, "/d", CV_INT, 4, 1, (const uint64_t[]){4}), 0, "x", false);
    name_dim(add(m, "/fields/x", CV_INT, 4, 1, (const uint64_t[]){4}), 0, "fields", false); /* the group has that name */
    memset(chunks, 0, sizeof chunks);
    write_all(&cv_sink_netcdf4, m, &(struct cv_sink_options){0});
    check_nc(m);
    file = open_nc();
    check_dim(file, "x_2", 6);
    check_dim(file, "x", 4);
    check_dim(file, "x_3", 5);
    check_dim(file, "x_4", 6);
    check_dim(file, "dim_5", 5);
    check_dim(file, "fields_2", 4);
    assert_int_equal(nc_inq_ndims(file, &n), NC_NOERR);
    assert_int_equal(n, 6);
    nc_close(file);
    write_all(&cv_sink_pnetcdf, m, &(struct cv_sink_options){0});
    check_classic(m, NC_FORMAT_CDF2);
    cv_model_free(m);
}

static struct cv_model *model_of_steps(void)
{
    struct cv_model *m = cv_model_new();

    name_dim(add(m, "/a", CV_FLOAT, 8, 2, (const uint64_t[]){3, 4}), 0, "time", true);
    name_dim(add(m, "/b", CV_FLOAT, 4, 1, (const uint64_t[]){3}), 0, "time", true);
    return m;
}

static void test_steps_are_an_unlimited_dimension(void **state)
{
    struct cv_model *m = model_of_steps();
    int file, unlimited, id;
    (void)state;

    memset(chunks, 0, sizeof chunks);
    write_all(&cv_sink_netcdf4, m, &(struct cv_sink_options){0});
    check_nc(m);
    file = open_nc();
    assert_int_equal(nc_inq_unlimdim(file, &unlimited), NC_NOERR);
    assert_int_equal(nc_inq_dimid(file, "time", &id), NC_NOERR);
    assert_int_equal(id, unlimited);
    nc_close(file);
    write_all(&cv_sink_pnetcdf, m, &(struct cv_sink_options){0});
    check_classic(m, NC_FORMAT_CDF2);
    file = open_classic();
    assert_int_equal(ncmpi_inq_unlimdim(file, &unlimited), NC_NOERR);
    assert_true(unlimited >= 0);
    ncmpi_close(file);
    cv_model_free(m);
}

static void test_netcdf4_has_the_last_step_also_where_no_block_has_anything_of_it(void **state)
{
    static const uint64_t lo[CV_RANK_MAX] = {0}, count[CV_RANK_MAX] = {1, 4};
    struct cv_model *m = model_of_steps();
    struct cv_sink *s;
    double got[3][4];
    int file;
    (void)state;

    memset(chunks, 0, sizeof chunks);
    m->datasets[0].gaps = m->datasets[1].gaps = CV_GAPS_FILL;
    s = begin(&cv_sink_netcdf4, m, &(struct cv_sink_options){0});
    put(s, 0, lo, count, values(0));
    end(s);
    file = open_nc();
    check_dim(file, "time", 3);
    assert_int_equal(nc_get_var_double(file, 0, &got[0][0]), NC_NOERR);
    assert_memory_equal(got[0], values(0), sizeof got[0]);
    for (int i = 0; i < 4; i++)
        assert_true(isnan(got[1][i]) && isnan(got[2][i]));
    nc_close(file);
    cv_model_free(m);
}

/* ---------------------------------------------------------------- what is refused */

static void refused(const struct cv_sink_ops *ops, const struct cv_model *m, int rc, const char *text)
{
    struct cv_fail why = {.text = ""};

    assert_int_equal(cv_sink_check(ops, m, &why), rc);
    if (!strstr(why.text, text))
        fail_msg("no \"%s\" in \"%s\"", text, why.text);
}

static void test_names_that_netcdf_does_not_take_are_refused(void **state)
{
    static const char *const names[] = {"/-a", "/a /b", "/g/.", "/+b"};
    struct cv_model *m;
    (void)state;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        m = cv_model_new();
        add(m, names[i], CV_INT, 4, 0, NULL);
        refused(&cv_sink_netcdf4, m, -EINVAL, "");
        refused(&cv_sink_pnetcdf, m, -EINVAL, "");
        cv_model_free(m);
    }
    m = cv_model_new();
    assert_int_equal(cv_attrs_text(&add(m, "/a", CV_INT, 4, 0, NULL)->attrs, "m/s", "x"), 0);
    refused(&cv_sink_netcdf4, m, -EINVAL, "m/s");
    refused(&cv_sink_hdf5, m, 0, "");
    cv_model_free(m);
    m = cv_model_new();
    add(m, "/a", CV_COMPLEX, 16, 0, NULL);
    refused(&cv_sink_netcdf4, m, -EINVAL, "complex");
    cv_model_free(m);
}

static void test_netcdf3_refuses_datasets_that_have_one_name_without_groups(void **state)
{
    struct cv_model *m = cv_model_new();
    (void)state;

    add(m, "/a/b", CV_INT, 4, 0, NULL);
    add(m, "/c", CV_INT, 4, 0, NULL);
    add(m, "/a_b", CV_INT, 4, 0, NULL);
    refused(&cv_sink_netcdf4, m, 0, "");
    refused(&cv_sink_pnetcdf, m, -EEXIST, "/a");
    cv_model_free(m);
    m = cv_model_new();
    add(m, "/empty", CV_INT, 4, 2, (const uint64_t[]){3, 0});
    refused(&cv_sink_pnetcdf, m, -EINVAL, "size 0");
    refused(&cv_sink_netcdf4, m, 0, "");
    cv_model_free(m);
}

/* A file that may not grow is what a full disk is, but for the number. */
static void test_a_full_disk_is_said_as_such(void **state)
{
    static const struct cv_sink_ops *const all[] = {&cv_sink_netcdf4, &cv_sink_pnetcdf};
    const size_t elements = 1u << 20;
    double *zeros = calloc(elements, sizeof *zeros);
    struct rlimit old, few;
    (void)state;

    assert_non_null(zeros);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < 2; i++) {
        struct cv_model *m = cv_model_new();
        struct cv_fail why = {.text = ""};
        struct cv_sink *s;
        int rc;

        add(m, "/a", CV_FLOAT, 8, 1, (const uint64_t[]){elements});
        memset(chunks, 0, sizeof chunks);
        s = begin(all[i], m, &(struct cv_sink_options){0});
        few = (struct rlimit){.rlim_cur = 1u << 20, .rlim_max = old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
        rc = s->ops->write(s, 0, (const uint64_t[CV_RANK_MAX]){0}, (const uint64_t[CV_RANK_MAX]){elements}, zeros, &why);
        if (rc)
            s->ops->abandon(s);
        else
            rc = s->ops->close(s, &why);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_true(rc < 0);
        assert_string_equal(why.file, path);
        assert_int_equal(rc, -EFBIG);
        cv_model_free(m);
    }
    free(zeros);
}

static size_t allocated_bytes(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

/* Of a dataset of three dimensions, by the name that it has for HDF5. */
static hsize_t steps_in_file(const char *name)
{
    hid_t h5 = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), id = H5Dopen2(h5, name, H5P_DEFAULT), space = H5Dget_space(id);
    hsize_t dims[3] = {0};

    assert_int_equal(H5Sget_simple_extent_dims(space, dims, NULL), 3);
    H5Sclose(space);
    H5Dclose(id);
    H5Fclose(h5);
    return dims[0];
}

/* The library's cache has a chunk of each dataset otherwise, until the end. A dimension's own name, groups and steps are among them. */
static void test_netcdf4_keeps_no_chunk_of_a_dataset_that_is_written(void **state)
{
    enum { SIDE = 512, CHUNK_BYTES = SIDE * SIDE * 8 };
    static const char *const names[DATASETS] = {"/a", "/g/b", "/x", "/y", "/g/h/c", "/d", "/e", "/f", "/i", "/j", "/k", "/l", "/m", "/n", "/o", "/p"};
    static double buf[SIDE * SIDE], got[SIDE * SIDE];
    const uint64_t dims[3] = {2, SIDE, SIDE}, count[CV_RANK_MAX] = {1, SIDE, SIDE};
    struct cv_model *m = cv_model_new();
    size_t before = 0, most = 0;
    struct cv_sink *s;
    int file;
    (void)state;

    memset(chunks, 0, sizeof chunks);
    for (size_t k = 0; k < DATASETS; k++) {
        struct cv_dataset *d = add(m, names[k], CV_FLOAT, 8, 3, dims);

        name_dim(d, 0, "time", true);
        name_dim(d, 1, "y", false);
        name_dim(d, 2, "x", false);
        memcpy(chunks[k], count, sizeof chunks[k]);
    }
    s = begin(&cv_sink_netcdf4, m, &(struct cv_sink_options){.codec = CV_CODEC_DEFLATE, .level = 1});
    for (size_t k = 0; k < DATASETS; k++) {
        for (uint64_t step = 0; step < (k % 2 ? 2 : 1); step++) { /* of some the last step is made at the end */
            for (size_t i = 0; i < SIDE * SIDE; i++)
                buf[i] = (double)(k + step);
            put(s, k, (const uint64_t[CV_RANK_MAX]){step}, count, buf);
        }
        before = k ? before : allocated_bytes();
        most = allocated_bytes() > most ? allocated_bytes() : most;
    }
    end(s);
    assert_true(most < before + 4 * CHUNK_BYTES); /* two have names of dimensions */
    file = open_nc();
    for (size_t k = 0; k < DATASETS; k++) {
        const char *leaf = strrchr(names[k], '/');
        char group_name[16];
        int group = file, var;

        snprintf(group_name, sizeof group_name, "%.*s", (int)(leaf - names[k]), names[k]);
        if (*group_name)
            assert_int_equal(nc_inq_grp_full_ncid(file, group_name, &group), NC_NOERR);
        assert_int_equal(nc_inq_varid(group, leaf + 1, &var), NC_NOERR);
        assert_int_equal(nc_get_vara_double(group, var, (const size_t[]){k % 2, 0, 0}, (const size_t[]){1, SIDE, SIDE}, got), NC_NOERR);
        for (size_t i = 0; i < SIDE * SIDE; i++)
            assert_true(got[i] == (double)(k + k % 2));
    }
    nc_close(file);
    assert_int_equal(steps_in_file("_nc4_non_coord_x"), 2);
    cv_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_netcdf4_puts_large_chunks_where_the_file_system_likes_it),
        cmocka_unit_test(test_netcdf3_begins_large_arrays_with_a_page_and_loses_nothing_for_small_ones),
        cmocka_unit_test(test_netcdf4_has_all_types_in_their_groups),
        cmocka_unit_test(test_netcdf3_is_cdf2_while_that_has_the_types_and_cdf5_else),
        cmocka_unit_test(test_both_have_scalars_and_up_to_7_dimensions),
        cmocka_unit_test(test_netcdf4_has_the_chunks_and_filters_that_are_asked_for),
        cmocka_unit_test(test_netcdf3_refuses_codecs_and_checksums),
        cmocka_unit_test(test_dimensions_are_shared_by_name_and_size_and_numbered_else),
        cmocka_unit_test(test_steps_are_an_unlimited_dimension),
        cmocka_unit_test(test_netcdf4_keeps_no_chunk_of_a_dataset_that_is_written),
        cmocka_unit_test(test_netcdf4_has_the_last_step_also_where_no_block_has_anything_of_it),
        cmocka_unit_test(test_names_that_netcdf_does_not_take_are_refused),
        cmocka_unit_test(test_netcdf3_refuses_datasets_that_have_one_name_without_groups),
        cmocka_unit_test(test_a_full_disk_is_said_as_such),
    };

    return run_netcdf_tests(tests, sizeof tests / sizeof tests[0]);
}
