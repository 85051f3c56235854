/* Attributes and fill values of to=netcdf and to=netcdf3, as netCDF's own libraries read them: types, names that the formats keep for themselves, and what is no fill value. */
#include <float.h>

#include "tests/unit/cv_netcdf.h"

static struct cv_model *model_of_attrs(void)
{
    static const int64_t ints[] = {1, -2, 3}, large = INT64_C(1) << 40;
    static const double floats[] = {0.5, -1e300};
    struct cv_model *m = cv_model_new();
    struct cv_dataset *d = add(m, "/a", CV_INT, 4, 1, (const uint64_t[]){4});

    d->has_fill = true;
    d->fill = -999;
    assert_int_equal(cv_attrs_text(&d->attrs, "units", "\xc2\xb5m"), 0);
    assert_int_equal(cv_attrs_ints(&d->attrs, "ints", ints, 3), 0);
    assert_int_equal(cv_attrs_ints(&d->attrs, "large", &large, 1), 0);
    assert_int_equal(cv_attrs_floats(&d->attrs, "floats", floats, 2), 0);
    assert_int_equal(cv_attrs_text(&d->attrs, "_FillValue", "of the input"), 0);
    assert_int_equal(cv_attrs_text(&m->attrs, "title", ""), 0);
    return m;
}

static void test_netcdf4_has_attributes_fill_values_and_conventions(void **state)
{
    struct cv_model *m = model_of_attrs();
    long long ints[3], large;
    double floats[2];
    char text[32] = "";
    nc_type type;
    size_t len;
    int file, fill;
    (void)state;

    memset(chunks, 0, sizeof chunks);
    write_all(&cv_sink_netcdf4, m, &(struct cv_sink_options){0});
    file = open_nc();
    assert_int_equal(nc_get_att_text(file, 0, "units", text), NC_NOERR);
    assert_string_equal(text, "\xc2\xb5m");
    assert_int_equal(nc_get_att_longlong(file, 0, "ints", ints), NC_NOERR);
    assert_true(ints[0] == 1 && ints[1] == -2 && ints[2] == 3);
    assert_int_equal(nc_get_att_longlong(file, 0, "large", &large), NC_NOERR);
    assert_true(large == INT64_C(1) << 40);
    assert_int_equal(nc_get_att_double(file, 0, "floats", floats), NC_NOERR);
    assert_true(floats[0] == 0.5 && floats[1] == -1e300);
    assert_int_equal(nc_inq_att(file, 0, "_FillValue", &type, &len), NC_NOERR);
    assert_true(type == NC_INT && len == 1);
    assert_int_equal(nc_get_att_int(file, 0, "_FillValue", &fill), NC_NOERR);
    assert_int_equal(fill, -999);
    memset(text, 0, sizeof text);
    assert_int_equal(nc_get_att_text(file, NC_GLOBAL, "Conventions", text), NC_NOERR);
    assert_string_equal(text, "CF-1.10");
    assert_int_equal(nc_inq_attlen(file, NC_GLOBAL, "title", &len), NC_NOERR);
    nc_close(file);
    assert_int_equal(cv_attrs_text(&m->attrs, "Conventions", "ours"), 0);
    write_all(&cv_sink_netcdf4, m, &(struct cv_sink_options){0});
    file = open_nc();
    memset(text, 0, sizeof text);
    assert_int_equal(nc_get_att_text(file, NC_GLOBAL, "Conventions", text), NC_NOERR);
    assert_string_equal(text, "ours");
    nc_close(file);
    cv_model_free(m);
}

static void test_netcdf3_has_attributes_in_types_of_its_own(void **state)
{
    struct cv_model *m = model_of_attrs();
    double large, floats[2];
    char text[32] = "";
    nc_type type;
    MPI_Offset len;
    int file, ints[3], fill;
    (void)state;

    write_all(&cv_sink_pnetcdf, m, &(struct cv_sink_options){0});
    check_classic(m, NC_FORMAT_CDF2);
    file = open_classic();
    assert_int_equal(ncmpi_get_att_text(file, 0, "units", text), NC_NOERR);
    assert_string_equal(text, "\xc2\xb5m");
    assert_int_equal(ncmpi_get_att_int(file, 0, "ints", ints), NC_NOERR);
    assert_true(ints[0] == 1 && ints[1] == -2 && ints[2] == 3);
    assert_int_equal(ncmpi_inq_att(file, 0, "large", &type, &len), NC_NOERR);
    assert_int_equal(type, NC_DOUBLE);
    assert_int_equal(ncmpi_get_att_double(file, 0, "large", &large), NC_NOERR);
    assert_true(large == 1099511627776.0);
    assert_int_equal(ncmpi_get_att_double(file, 0, "floats", floats), NC_NOERR);
    assert_true(floats[0] == 0.5 && floats[1] == -1e300);
    assert_int_equal(ncmpi_get_att_int(file, 0, "_FillValue", &fill), NC_NOERR);
    assert_int_equal(fill, -999);
    memset(text, 0, sizeof text);
    assert_int_equal(ncmpi_get_att_text(file, NC_GLOBAL, "Conventions", text), NC_NOERR);
    assert_string_equal(text, "CF-1.10");
    ncmpi_close(file);
    cv_model_free(m);
}

/* A dataset of 16-bit integers and one of floats: what its type holds, and what it doesn't. */
static struct cv_model *model_of_values(void)
{
    static const int64_t missing = -999, range[] = {0, 5000};
    static const double whole = 12, beyond = 1e6;
    struct cv_model *m = cv_model_new();
    struct cv_dataset *d = add(m, "/a", CV_INT, 2, 1, (const uint64_t[]){4});

    assert_int_equal(cv_attrs_ints(&d->attrs, "missing_value", &missing, 1), 0);
    assert_int_equal(cv_attrs_floats(&d->attrs, "valid_min", &whole, 1), 0);
    assert_int_equal(cv_attrs_floats(&d->attrs, "valid_max", &beyond, 1), 0);
    assert_int_equal(cv_attrs_ints(&d->attrs, "other", &missing, 1), 0);
    d = add(m, "/b", CV_FLOAT, 4, 1, (const uint64_t[]){4});
    assert_int_equal(cv_attrs_ints(&d->attrs, "valid_range", range, 2), 0);
    assert_int_equal(cv_attrs_ints(&m->attrs, "missing_value", &missing, 1), 0); /* of no dataset */
    return m;
}

static void test_attributes_that_are_values_have_the_type_of_their_variable(void **state)
{
    static const struct { int var; const char *name; nc_type type, classic; double value; } all[] = {
        {0, "missing_value", NC_SHORT, NC_SHORT, -999}, {0, "valid_min", NC_SHORT, NC_SHORT, 12}, {0, "valid_max", NC_DOUBLE, NC_DOUBLE, 1e6},
        {0, "other", NC_INT64, NC_INT, -999},           {1, "valid_range", NC_FLOAT, NC_FLOAT, 0}, {NC_GLOBAL, "missing_value", NC_INT64, NC_INT, -999},
    };
    struct cv_model *m = model_of_values();
    int file, classic;
    (void)state;

    memset(chunks, 0, sizeof chunks);
    write_all(&cv_sink_netcdf4, m, &(struct cv_sink_options){0});
    file = open_nc();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        double got[2];
        nc_type type;

        assert_int_equal(nc_inq_atttype(file, all[i].var, all[i].name, &type), NC_NOERR);
        assert_int_equal(type, all[i].type);
        assert_int_equal(nc_get_att_double(file, all[i].var, all[i].name, got), NC_NOERR);
        assert_true(got[0] == all[i].value);
    }
    nc_close(file);
    write_all(&cv_sink_pnetcdf, m, &(struct cv_sink_options){0});
    classic = open_classic();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        double got[2];
        nc_type type;

        assert_int_equal(ncmpi_inq_atttype(classic, all[i].var, all[i].name, &type), NC_NOERR);
        assert_int_equal(type, all[i].classic);
        assert_int_equal(ncmpi_get_att_double(classic, all[i].var, all[i].name, got), NC_NOERR);
        assert_true(got[0] == all[i].value);
    }
    ncmpi_close(classic);
    cv_model_free(m);
}

/* As people write them: a bit more than the greatest float, and an infinity. */
static void test_the_greatest_float_and_infinities_are_values_of_floats(void **state)
{
    static const double missing = 3.4028235e38, range[] = {-INFINITY, INFINITY};
    struct cv_model *m = cv_model_new();
    struct cv_dataset *d = add(m, "/b", CV_FLOAT, 4, 1, (const uint64_t[]){4});
    float got[2];
    nc_type type;
    int file;
    (void)state;

    assert_int_equal(cv_attrs_floats(&d->attrs, "missing_value", &missing, 1), 0);
    assert_int_equal(cv_attrs_floats(&d->attrs, "valid_range", range, 2), 0);
    memset(chunks, 0, sizeof chunks);
    for (unsigned i = 0; i < 2; i++) {
        write_all(i ? &cv_sink_pnetcdf : &cv_sink_netcdf4, m, &(struct cv_sink_options){0});
        file = open_nc();
        assert_int_equal(nc_inq_atttype(file, 0, "missing_value", &type), NC_NOERR);
        assert_int_equal(type, NC_FLOAT);
        assert_int_equal(nc_get_att_float(file, 0, "missing_value", got), NC_NOERR);
        assert_true(got[0] == FLT_MAX);
        assert_int_equal(nc_get_att_float(file, 0, "valid_range", got), NC_NOERR);
        assert_true(got[0] == -HUGE_VALF && got[1] == HUGE_VALF);
        nc_close(file);
    }
    cv_model_free(m);
    assert_int_equal(cv_nc_errno(NC_ERANGE), -ERANGE); /* not one that is tried again */
}

struct heard { unsigned lines; char text[1024]; };

static void hear(void *arg, const char *what)
{
    struct heard *h = arg;

    h->lines++;
    snprintf(h->text + strlen(h->text), sizeof h->text - strlen(h->text), "%s\n", what);
}

/* One dataset for each kind of attribute that there may be, all of that name but one. */
static struct cv_model *model_of_fills(void)
{
    static const int64_t exact = -9223372036854775806, two[] = {1, 2}, seven = 7;
    static const double half = 0.5;
    struct cv_model *m = cv_model_new();
    struct cv_dataset *d = add(m, "/whole", CV_INT, 8, 0, NULL);

    assert_int_equal(cv_attrs_ints(&d->attrs, "_FillValue", &exact, 1), 0);
    d = add(m, "/text", CV_FLOAT, 8, 0, NULL);
    assert_int_equal(cv_attrs_text(&d->attrs, "original_FillValue", "there already"), 0);
    assert_int_equal(cv_attrs_text(&d->attrs, "_FillValue", "missing"), 0);
    d = add(m, "/half", CV_INT, 4, 0, NULL);
    assert_int_equal(cv_attrs_floats(&d->attrs, "_FillValue", &half, 1), 0);
    d = add(m, "/two", CV_INT, 4, 0, NULL);
    assert_int_equal(cv_attrs_ints(&d->attrs, "_FillValue", two, 2), 0);
    assert_int_equal(cv_attrs_text(&d->attrs, "NAME", "of somebody"), 0);
    d = add(m, "/other", CV_FLOAT, 4, 0, NULL);
    assert_int_equal(cv_attrs_ints(&d->attrs, "_FillValue", &seven, 1), 0);
    d->has_fill = true;
    d->fill = 8;
    assert_int_equal(cv_attrs_text(&m->attrs, "_FillValue", "of all"), 0);
    return m;
}

static void check_fills(int file)
{
    long long whole, two[2];
    double half;
    float other;
    char text[32] = "";
    nc_type type;
    size_t len;
    int v;

    assert_int_equal(nc_inq_varid(file, "whole", &v), NC_NOERR);
    assert_int_equal(nc_inq_att(file, v, "_FillValue", &type, &len), NC_NOERR);
    assert_true(type == NC_INT64 && len == 1);
    assert_int_equal(nc_get_att_longlong(file, v, "_FillValue", &whole), NC_NOERR);
    assert_true(whole == -9223372036854775806);
    assert_int_equal(nc_inq_varid(file, "text", &v), NC_NOERR);
    assert_int_equal(nc_get_att_text(file, v, "original_FillValue_2", text), NC_NOERR);
    assert_string_equal(text, "missing");
    assert_int_equal(nc_inq_attlen(file, v, "_FillValue", &len), NC_ENOTATT);
    assert_int_equal(nc_inq_varid(file, "half", &v), NC_NOERR);
    assert_int_equal(nc_get_att_double(file, v, "original_FillValue", &half), NC_NOERR);
    assert_true(half == 0.5);
    assert_int_equal(nc_inq_varid(file, "two", &v), NC_NOERR);
    assert_int_equal(nc_get_att_longlong(file, v, "original_FillValue", two), NC_NOERR);
    assert_true(two[0] == 1 && two[1] == 2);
    memset(text, 0, sizeof text);
    assert_int_equal(nc_get_att_text(file, v, "original_NAME", text), NC_NOERR);
    assert_string_equal(text, "of somebody");
    assert_int_equal(nc_inq_varid(file, "other", &v), NC_NOERR);
    assert_int_equal(nc_get_att_float(file, v, "_FillValue", &other), NC_NOERR);
    assert_true(other == 7);
    memset(text, 0, sizeof text);
    assert_int_equal(nc_get_att_text(file, NC_GLOBAL, "_FillValue", text), NC_NOERR);
    assert_string_equal(text, "of all");
}

static void test_no_attribute_is_lost_for_its_name(void **state)
{
    static const struct cv_sink_ops *const all[] = {&cv_sink_netcdf4, &cv_sink_pnetcdf};
    (void)state;

    memset(chunks, 0, sizeof chunks);
    for (size_t i = 0; i < 2; i++) {
        struct heard h = {0};
        struct cv_model *m = model_of_fills();
        int file;

        assert_int_equal(cv_sink_settle(all[i], m, hear, &h), 0);
        assert_int_equal(h.lines, 5);
        assert_non_null(strstr(h.text, "/text: its attribute _FillValue is not one value of float64: it is written as original_FillValue_2\n"));
        assert_non_null(strstr(h.text, "/two: its attribute NAME is a name that the format keeps for itself: it is written as original_NAME\n"));
        assert_non_null(strstr(h.text, "/other: its fill value was 8, and is now that of its attribute _FillValue, 7\n"));
        write_all(all[i], m, &(struct cv_sink_options){0});
        file = open_nc();
        check_fills(file);
        nc_close(file);
        cv_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_netcdf4_has_attributes_fill_values_and_conventions),
        cmocka_unit_test(test_netcdf3_has_attributes_in_types_of_its_own),
        cmocka_unit_test(test_attributes_that_are_values_have_the_type_of_their_variable),
        cmocka_unit_test(test_the_greatest_float_and_infinities_are_values_of_floats),
        cmocka_unit_test(test_no_attribute_is_lost_for_its_name),
    };

    return run_netcdf_tests(tests, sizeof tests / sizeof tests[0]);
}
