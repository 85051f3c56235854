/* Virtual datasets over parts: every element is that of the part which has it, scalars, scales and attributes come along, the files can be moved together, and what is no part is refused. */
#include <math.h>
#include <sys/stat.h>

#include "tests/unit/cv_h5.h"

#define N 8u

static struct cv_model *model_new(const char *name, uint64_t n)
{
    struct cv_model *m = cv_model_new();
    struct cv_dataset *d = cv_model_add(m, name);

    d->type = (struct cv_type){.kind = CV_FLOAT, .size_bytes = 8};
    d->rank = 2;
    d->dims[0] = (struct cv_dim){.name = strdup("y"), .size = n};
    d->dims[1] = (struct cv_dim){.name = strdup("x"), .size = n};
    cv_attrs_text(&d->attrs, "units", "K");
    d = cv_model_add(m, "/time");
    d->type = (struct cv_type){.kind = CV_INT, .size_bytes = 4};
    cv_attrs_text(&m->attrs, "title", "parts");
    return m;
}

static bool loose; /* parts are of a dataset that may have gaps */

/* A part that has these boxes (whole chunks of 2x2), each filled with its number. */
static void part_write(const char *path, const char *name, uint64_t n, const int64_t *boxes, size_t nboxes, bool time)
{
    const uint64_t chunk[2][CV_RANK_MAX] = {{2, 2}};
    struct cv_sink_options o = {.sparse = true, .memory_bytes = 1u << 20};
    struct cv_model *m = model_new(name, n);
    struct cv_fail why = {.text = ""};
    struct cv_sink *s;
    int32_t now = 42;

    assert_int_equal(cv_attrs_ints(&m->datasets[0].attrs, "fp_boxes", boxes, 4 * nboxes), 0);
    if (loose)
        assert_int_equal(cv_attrs_ints(&m->datasets[0].attrs, "fp_loose", &(int64_t){1}, 1), 0);
    assert_int_equal(cv_sink_hdf5.create(path, m, chunk, &o, &s, &why), 0);
    for (size_t k = 0; k < nboxes; k++)
        for (int64_t y = 0; y < boxes[4 * k + 2]; y += 2)
            for (int64_t x = 0; x < boxes[4 * k + 3]; x += 2) {
                uint64_t lo[8] = {(uint64_t)(boxes[4 * k] + y), (uint64_t)(boxes[4 * k + 1] + x)};
                double values[4];

                for (unsigned i = 0; i < 4; i++)
                    values[i] = (double)((lo[0] + i / 2) * n + lo[1] + i % 2);
                assert_int_equal(s->ops->write(s, 0, lo, (uint64_t[8]){2, 2}, values, &why), 0);
            }
    if (time)
        assert_int_equal(s->ops->write(s, 1, (uint64_t[8]){0}, (uint64_t[8]){1}, &now, &why), 0);
    assert_int_equal(s->ops->close(s, &why), 0);
    cv_model_free(m);
}

static void test_parts_show_as_one_array_also_when_they_are_moved(void **state)
{
    const char *paths[] = {h5_path("p0.h5"), h5_path("p1.h5")}, *names[] = {"p0.h5", "p1.h5"}, *out = h5_path("all.h5");
    struct cv_fail why = {.text = ""};
    char moved[80], command[256], file[96], text[32] = "";
    double got[N * N];
    int32_t now = 0;
    hid_t id, f, y;
    (void)state;

    part_write(paths[0], "/g/t", N, (int64_t[]){0, 0, 4, 8}, 1, false);
    part_write(paths[1], "/g/t", N, (int64_t[]){4, 0, 4, 4, 4, 4, 2, 4}, 2, true);
    assert_int_equal(cv_vds_write(out, paths, names, 2, &why), -EINVAL); /* 6,4 is missing, and nothing says that it may */
    assert_non_null(strstr(why.text, "56 elements of it together, and it has 64"));
    why.text[0] = '\0';
    loose = true;
    part_write(paths[0], "/g/t", N, (int64_t[]){0, 0, 4, 8}, 1, false);
    part_write(paths[1], "/g/t", N, (int64_t[]){4, 0, 4, 4, 4, 4, 2, 4}, 2, true); /* and nothing at 6,4 */
    if (cv_vds_write(out, paths, names, 2, &why) != 0)
        fail_msg("%s: %s: %s", why.file, why.dataset, why.text);
    snprintf(moved, sizeof moved, "%s/moved", h5_dir);
    snprintf(command, sizeof command, "mkdir %s && mv %s %s %s %s", moved, paths[0], paths[1], out, moved);
    assert_int_equal(system(command), 0);
    snprintf(file, sizeof file, "%s/all.h5", moved);

    h5_get(file, "/g/t", H5T_NATIVE_DOUBLE, got);
    for (unsigned i = 0; i < N * N; i++)
        if (i / N >= 6 && i % N >= 4)
            assert_true(isnan(got[i]));
        else
            assert_true(got[i] == i);
    h5_get(file, "/time", H5T_NATIVE_INT32, &now);
    assert_int_equal(now, 42);
    f = H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT);
    id = H5Dopen2(f, "/g/t", H5P_DEFAULT);
    y = H5Dopen2(f, "/y", H5P_DEFAULT);
    assert_true(H5DSis_attached(id, y, 0) > 0);
    assert_true(H5Aexists(id, "units") > 0 && H5Aexists(id, "fp_boxes") == 0);
    assert_true(H5Aexists(f, "title") > 0);
    assert_true(H5DSget_scale_name(y, text, sizeof text) > 0);
    H5Dclose(y);
    H5Dclose(id);
    H5Fclose(f);
}

static void test_what_are_no_parts_of_one_result_is_refused(void **state)
{
    const char *paths[] = {h5_path("q0.h5"), h5_path("q1.h5")}, *names[] = {"q0.h5", "q1.h5"}, *out = h5_path("q.h5");
    struct cv_fail why = {.text = ""};
    (void)state;

    part_write(paths[0], "/t", N, (int64_t[]){0, 0, 4, 8}, 1, false);
    part_write(paths[1], "/t", N + 2, (int64_t[]){4, 0, 4, 8}, 1, false);
    assert_int_equal(cv_vds_write(out, paths, names, 2, &why), -EINVAL);
    assert_string_equal(why.file, paths[1]);
    assert_string_equal(why.dataset, "/t");

    memset(&why, 0, sizeof why);
    part_write(paths[1], "/u", N, (int64_t[]){4, 0, 4, 8}, 1, false);
    assert_true(cv_vds_write(out, paths, names, 2, &why) < 0);
    assert_string_equal(why.file, paths[1]);

    memset(&why, 0, sizeof why);
    assert_int_equal(unlink(paths[1]), 0);
    assert_int_equal(cv_vds_write(out, paths, names, 2, &why), -ENOENT);
    assert_string_equal(why.file, paths[1]);
}

static void test_boxes_that_are_wrong_are_said(void **state)
{
    static const int64_t bad[][4] = {{-1, 0, 2, 2}, {0, 0, 9, 2}, {0, 8, 1, 1}, {INT64_MAX, 0, INT64_MAX, 1}, {0, 0, 0, 2}};
    const char *path = h5_path("w.h5"), *name = "w.h5", *out = h5_path("wall.h5");
    (void)state;

    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hsize_t dims[] = {N, N};
        double values[N * N] = {0};
        struct cv_fail why = {.text = ""};
        hid_t file = h5_make(path), id = h5_put(file, "t", H5T_NATIVE_DOUBLE, H5T_NATIVE_DOUBLE, 2, dims, values);

        h5_ints(id, "fp_boxes", bad[i], 4);
        H5Dclose(id);
        H5Fclose(file);
        assert_int_equal(cv_vds_write(out, &path, &name, 1, &why), -EINVAL);
        assert_string_equal(why.file, path);
        assert_string_equal(why.dataset, "/t");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_show_as_one_array_also_when_they_are_moved),
        cmocka_unit_test(test_what_are_no_parts_of_one_result_is_refused),
        cmocka_unit_test(test_boxes_that_are_wrong_are_said),
    };

    return cmocka_run_group_tests(tests, h5_setup, h5_teardown);
}
