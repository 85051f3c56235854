/* from=npy: headers of NumPy as it writes them, types and orders, and what is refused. */
#include "tests/unit/cv_source.h"

/* An array's file: version, dictionary, data. Returns its length. */
static size_t npy(uint8_t *out, unsigned version, const char *dict, const void *data, size_t data_bytes)
{
    size_t before = version == 1 ? 10 : 12, n = strlen(dict), head = (before + n + 1 + 63) / 64 * 64, len = head - before;

    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)version;
    out[7] = 0;
    for (unsigned i = 0; i < before - 8; i++)
        out[8 + i] = (uint8_t)(len >> 8 * i);
    memset(out + before, ' ', len);
    memcpy(out + before, dict, n);
    out[head - 1] = '\n';
    memcpy(out + head, data, data_bytes);
    return head + data_bytes;
}

static struct cv_source *opened(const char *dict, unsigned version, const void *data, size_t bytes, struct memory_file *f)
{
    uint8_t buf[4096];
    struct cv_fail why;
    struct cv_source *s;

    *f = memory_file_new(buf, npy(buf, version, dict, data, bytes));
    if (source_try(&cv_source_npy, f->path, &s, &why) != 0)
        fail_msg("%s: %s", dict, why.text);
    return s;
}

static void closed(struct cv_source *s, struct memory_file *f)
{
    s->ops->close(s);
    close(f->fd);
}

/* Why an array of this dictionary and so many bytes of data is refused. */
static int refused(const char *dict, size_t bytes, struct cv_fail *why)
{
    uint8_t buf[4096], data[64] = {0};
    struct memory_file f = memory_file_new(buf, npy(buf, 1, dict, data, bytes));
    struct cv_source *s;
    int rc = source_try(&cv_source_npy, f.path, &s, why);

    if (rc == 0)
        s->ops->close(s);
    close(f.fd);
    return rc;
}

static void test_npy_of_each_version_is_read(void **state)
{
    static const double values[6] = {1, -2, 3.5, 1e300, -0.0, 42};
    (void)state;

    for (unsigned version = 1; version <= 3; version++) {
        struct memory_file f;
        struct cv_source *s = opened("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", version, values, sizeof values, &f);
        const struct cv_dataset *d = &s->model->datasets[0];
        double got[6];
        struct cv_fail why = {0};

        assert_int_equal(s->model->ndatasets, 1);
        assert_int_equal(d->rank, 2);
        assert_int_equal(d->dims[0].size, 2);
        assert_int_equal(d->dims[1].size, 3);
        assert_string_equal(cv_type_name(d->type), "float64");
        assert_false(d->type.big_endian);
        assert_int_equal(block_bytes(s, d, &d->blocks[0], got, sizeof got, &why), 0);
        assert_memory_equal(got, values, sizeof values);
        closed(s, &f);
    }
}

static void test_npy_types_and_orders_are_those_of_the_header(void **state)
{
    static const struct {
        const char *descr, *name;
        size_t bytes;
        bool big;
    } t[] = {
        {"|i1", "int8", 1, false},     {"<i2", "int16", 2, false},   {">i4", "int32", 4, true},       {"<i8", "int64", 8, false},       {"|u1", "uint8", 1, false},  {">u2", "uint16", 2, true},
        {"<u4", "uint32", 4, false},   {">u8", "uint64", 8, true},   {">f4", "float32", 4, true},     {"<f8", "float64", 8, false},     {"<c8", "complex64", 8, false}, {">c16", "complex128", 16, true},
        {"|b1", "uint8", 1, false},
    };
    (void)state;

    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char dict[128];
        uint8_t data[16] = {0};
        struct memory_file f;
        struct cv_source *s;
        const struct cv_attr *a;

        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (), }", t[i].descr);
        s = opened(dict, 1, data, t[i].bytes, &f);
        assert_string_equal(cv_type_name(s->model->datasets[0].type), t[i].name);
        assert_int_equal(s->model->datasets[0].type.big_endian, t[i].big);
        assert_int_equal(s->model->datasets[0].rank, 0);
        a = cv_attrs_find(&s->model->datasets[0].attrs, "numpy_dtype");
        assert_int_equal(a != NULL, strcmp(t[i].descr, "|b1") == 0);
        if (a)
            assert_string_equal(a->text, "bool");
        closed(s, &f);
    }
}

static void test_npy_dimensions_of_fortran_are_reversed(void **state)
{
    uint8_t data[24] = {0};
    struct memory_file f;
    struct cv_source *s = opened("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 4), }", 1, data, sizeof data, &f);
    const struct cv_dataset *d = &s->model->datasets[0];
    (void)state;

    assert_int_equal(d->dims[0].size, 4);
    assert_int_equal(d->dims[1].size, 3);
    assert_int_equal(d->dims[2].size, 2);
    assert_string_equal(cv_attrs_find(&d->attrs, "numpy_order")->text, "fortran");
    closed(s, &f);
}

static void test_npy_seven_dimensions_and_empty_ones_are_read(void **state)
{
    uint8_t data[2] = {0};
    struct memory_file f;
    struct cv_source *s = opened("{\"shape\": (1,1,1,2,1,1,1), \"fortran_order\": False, \"descr\": \"|u1\"}", 2, data, 2, &f);
    (void)state;

    assert_int_equal(s->model->datasets[0].rank, 7);
    closed(s, &f);
    s = opened("{'descr': '<f8', 'fortran_order': False, 'shape': (0L, 5L), }", 1, data, 0, &f);
    assert_int_equal(s->model->datasets[0].dims[0].size, 0);
    assert_int_equal(s->model->datasets[0].dims[1].size, 5);
    closed(s, &f);
}

static void test_npy_types_that_are_no_numbers_are_refused_by_name(void **state)
{
    static const struct {
        const char *descr, *text;
    } t[] = {
        {"[('a', '<f8'), ('b', '<i4')]", "structured"}, {"'|O'", "Python objects"}, {"'<U8'", "strings"}, {"'|S3'", "strings"}, {"'<M8[ns]'", "dates"}, {"'|V16'", "structure"},
        {"'<f2'", "of a size"},                         {"'<f16'", "of a size"},    {"'|f8'", "order"},   {"'<i3'", "not known"}, {"''", "not known"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char dict[128];
        struct cv_fail why;

        snprintf(dict, sizeof dict, "{'descr': %s, 'fortran_order': False, 'shape': (1,), }", t[i].descr);
        assert_true(refused(dict, 8, &why) < 0);
        if (!strstr(why.text, t[i].text))
            fail_msg("%s: %s", t[i].descr, why.text);
    }
}

static void test_npy_dictionaries_that_are_none_are_refused(void **state)
{
    static const char *const dicts[] = {
        "", "{", "{}", "{'descr': '|u1', 'fortran_order': False}", "{'descr': '|u1', 'fortran_order': False, 'shape': (1)}", "{'descr': '|u1', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}", "{'descr': '|u1', 'fortran_order': False, 'shape': (1 1)}", "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), 'x': 1}",
        "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "{'descr': '|u1' 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)} + exit()", "{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 99999999999999999999)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296)}", "{'des\\'cr': '|u1', 'fortran_order': False, 'shape': (1,)}", "{,}",
    };
    (void)state;

    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        struct cv_fail why;

        if (refused(dicts[i], 1, &why) == 0)
            fail_msg("taken: %s", dicts[i]);
        assert_true(why.text[0]);
        assert_true(why.offset_bytes != CV_NO_OFFSET);
    }
}

static void test_npy_short_and_long_files_say_the_byte(void **state)
{
    struct cv_fail why;
    (void)state;

    assert_int_equal(refused("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", 23, &why), -ENODATA);
    assert_int_equal(why.offset_bytes, 128 + 23);
    assert_int_equal(refused("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", 25, &why), -EINVAL);
    assert_int_equal(why.offset_bytes, 128 + 24);
}

static void test_npy_cut_or_changed_anywhere_is_no_harm(void **state)
{
    uint8_t buf[512], data[16] = {1, 2, 3};
    size_t len = npy(buf, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", data, sizeof data);
    (void)state;

    every_cut_is_said(&cv_source_npy, buf, len);
    no_byte_does_harm(&cv_source_npy, buf, len);
}

static void test_npy_inputs_that_are_no_files_are_refused(void **state)
{
    static const char *const paths[] = {"/tmp", "/dev/null", "/nonexistent/x.npy"};
    (void)state;

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct cv_source *s;
        struct cv_fail why;

        assert_true(source_try(&cv_source_npy, paths[i], &s, &why) < 0);
        assert_string_equal(why.file, paths[i]);
        assert_true(why.text[0]);
    }
}

static void test_npy_a_file_cut_after_it_was_opened_is_said(void **state)
{
    uint8_t data[64] = {0};
    struct memory_file f;
    struct cv_source *s = opened("{'descr': '|u1', 'fortran_order': False, 'shape': (64,), }", 1, data, sizeof data, &f);
    struct cv_fail why = {0};
    (void)state;

    assert_int_equal(ftruncate(f.fd, 150), 0);
    assert_int_equal(block_bytes(s, &s->model->datasets[0], &s->model->datasets[0].blocks[0], data, sizeof data, &why), -ENODATA);
    assert_int_equal(why.offset_bytes, 150);
    closed(s, &f);
}

/* rc of an array of this shape, which is the only input, and a schema. */
static int with_schema(const char *shape, size_t elements, const char *text, struct cv_source **s, struct cv_fail *why)
{
    uint8_t buf[1024];
    double data[16] = {0};
    char dict[128];
    struct memory_file f, schema = memory_file_new(text, strlen(text));
    const char *path = f.path;
    struct cv_source_options o = {.paths = &path, .npaths = 1, .memory_bytes = 1u << 20, .schema = schema.path};
    int rc;

    snprintf(dict, sizeof dict, "{'descr': '<f8', 'fortran_order': False, 'shape': %s, }", shape);
    f = memory_file_new(buf, npy(buf, 1, dict, data, elements * sizeof *data));
    memset(why, 0, sizeof *why);
    rc = cv_source_npy.open(&o, s, why);
    close(f.fd);
    close(schema.fd);
    return rc;
}

/* Several ranks in one file have one array there, which would be that of each of them. */
static void test_npy_one_array_is_not_taken_for_those_of_several_ranks(void **state)
{
    static const char *const layouts[] = {"shared", "segments"};
    struct cv_source *s;
    struct cv_fail why;
    char text[256];
    (void)state;

    for (size_t i = 0; i < 2; i++)
        for (unsigned steps = 1; steps <= 2; steps++) {
            snprintf(text, sizeof text, "fpschema: 1\nlayout: %s\nsteps: %u\nranks: {grid: [2]}\ndatasets: [{name: /x, type: float64, dims: [8]}]\n", layouts[i], steps);
            assert_int_equal(with_schema(steps == 1 ? "(4,)" : "(2, 4)", 4 * steps, text, &s, &why), -EINVAL);
            assert_non_null(strstr(why.text, "several blocks of it in one file"));
            assert_string_equal(why.dataset, "/x");
        }
    assert_int_equal(with_schema("(2, 4)", 8, "fpschema: 1\nlayout: shared\nsteps: 2\nranks: 1\ndatasets: [{name: /x, type: float64, dims: [4]}]\n", &s, &why), 0);
    assert_int_equal(s->model->datasets[0].nblocks, 2);
    assert_int_equal(s->model->datasets[0].blocks[1].offset_bytes - s->model->datasets[0].blocks[0].offset_bytes, 32);
    s->ops->close(s);
    assert_int_equal(with_schema("(2, 4)", 8, "fpschema: 1\nlayout: global\nsteps: 2\ndatasets: [{name: /x, type: float64, dims: [4]}]\n", &s, &why), 0);
    s->ops->close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy_of_each_version_is_read),
        cmocka_unit_test(test_npy_types_and_orders_are_those_of_the_header),
        cmocka_unit_test(test_npy_dimensions_of_fortran_are_reversed),
        cmocka_unit_test(test_npy_seven_dimensions_and_empty_ones_are_read),
        cmocka_unit_test(test_npy_types_that_are_no_numbers_are_refused_by_name),
        cmocka_unit_test(test_npy_dictionaries_that_are_none_are_refused),
        cmocka_unit_test(test_npy_short_and_long_files_say_the_byte),
        cmocka_unit_test(test_npy_cut_or_changed_anywhere_is_no_harm),
        cmocka_unit_test(test_npy_inputs_that_are_no_files_are_refused),
        cmocka_unit_test(test_npy_one_array_is_not_taken_for_those_of_several_ranks),
        cmocka_unit_test(test_npy_a_file_cut_after_it_was_opened_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
