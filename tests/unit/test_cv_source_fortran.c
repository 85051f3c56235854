/* from=fortran: markers of all widths and orders, subrecords, and files that are damaged or do not fit their schema. */
#include "tests/unit/cv_source.h"

#define FILE_MAX 65536u

static struct memory_file schema;

static void schema_set(const char *text)
{
    memory_file_set(&schema, text, strlen(text));
}

static uint8_t *marker(uint8_t *p, int64_t v, unsigned bytes, bool big)
{
    for (unsigned i = 0; i < bytes; i++)
        p[big ? bytes - 1 - i : i] = (uint8_t)((uint64_t)v >> 8 * i);
    return p + bytes;
}

/* A record of n bytes that count up from seed, in subrecords of at most `most`. */
static uint8_t *record(uint8_t *p, unsigned seed, size_t n, size_t most, unsigned bytes, bool big)
{
    size_t done = 0;

    do {
        size_t len = n - done < most ? n - done : most;

        p = marker(p, done + len < n ? -(int64_t)len : (int64_t)len, bytes, big);
        for (size_t i = 0; i < len; i++)
            *p++ = (uint8_t)(seed + done + i);
        p = marker(p, done ? -(int64_t)len : (int64_t)len, bytes, big);
        done += len;
    } while (done < n);
    return p;
}

static int opened(const uint8_t *bytes, size_t len, struct memory_file *f, struct cv_source **s, struct cv_fail *why)
{
    const char *path;
    struct cv_source_options o = {.paths = &path, .npaths = 1, .schema = schema.path, .memory_bytes = 1u << 20};
    int rc;

    *f = memory_file_new(bytes, len);
    path = f->path;
    memset(why, 0, sizeof *why);
    rc = cv_source_fortran.open(&o, s, why);
    if (rc) {
        assert_true(why->text[0]);
        close(f->fd);
    } else {
        (*s)->inputs[0].path = "input";
    }
    return rc;
}

static void closed(struct cv_source *s, struct memory_file *f)
{
    s->ops->close(s);
    close(f->fd);
}

static void expect(struct cv_source *s, const char *name, size_t block, unsigned seed, size_t n)
{
    const struct cv_dataset *d = cv_model_find(s->model, name);
    struct cv_fail why = {0};
    uint8_t got[4096];

    assert_non_null(d);
    if (block_bytes(s, d, &d->blocks[block], got, sizeof got, &why) != 0)
        fail_msg("%s: %s", name, why.text);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(got[i], (uint8_t)(seed + i));
    for (size_t from = 0; from < n; from += 13) { /* pieces of it, from anywhere */
        size_t len = n - from < 40 ? n - from : 40;

        assert_int_equal(s->ops->read_bytes(s, 0, d->blocks[block].offset_bytes + from, got, len, &why), 0);
        assert_int_equal(got[0], (uint8_t)(seed + from));
        assert_int_equal(got[len - 1], (uint8_t)(seed + from + len - 1));
    }
}

#define TWO_LITTLE "fpschema: 1\nlayout: files\nranks: 1\nbyte_order: little\ndatasets:\n  - {name: /a, type: float64, dims: [3, 4]}\n  - {name: /b, type: int32, dims: [25]}\n"
#define TWO_BIG    "fpschema: 1\nlayout: files\nranks: 1\nbyte_order: big\ndatasets:\n  - {name: /a, type: float64, dims: [3, 4]}\n  - {name: /b, type: int32, dims: [25]}\n"

static void test_fortran_markers_of_each_width_and_order_are_found(void **state)
{
    (void)state;

    for (unsigned way = 0; way < 8; way++) {
        uint8_t bytes[FILE_MAX], *p = bytes;
        unsigned width = way & 1 ? 8 : 4;
        bool big = way & 2;
        size_t most = way & 4 && width == 4 ? 17 : SIZE_MAX;
        struct memory_file f;
        struct cv_source *s;
        struct cv_fail why;

        p = record(p, 1, 96, most, width, big);
        p = record(p, 7, 100, most, width, big);
        schema_set(big ? TWO_BIG : TWO_LITTLE);
        if (opened(bytes, (size_t)(p - bytes), &f, &s, &why) != 0)
            fail_msg("way %u: %s", way, why.text);
        expect(s, "/a", 0, 1, 96);
        expect(s, "/b", 0, 7, 100);
        closed(s, &f);
    }
}

static void test_fortran_all_steps_are_those_that_the_records_say(void **state)
{
    uint8_t bytes[FILE_MAX], *p = bytes;
    struct memory_file f;
    struct cv_source *s;
    struct cv_fail why;
    (void)state;

    schema_set("fpschema: 1\nlayout: files\nranks: 1\nsteps: all\ndatasets:\n  - {name: /a, type: uint8, dims: [10]}\n  - {name: /b, type: uint8, dims: [20]}\n");
    for (unsigned k = 0; k < 5; k++) {
        p = record(p, k, 10, SIZE_MAX, 4, false);
        p = record(p, 100 + k, 20, k == 3 ? 7 : SIZE_MAX, 4, false);
    }
    if (opened(bytes, (size_t)(p - bytes), &f, &s, &why) != 0)
        fail_msg("%s", why.text);
    assert_int_equal(cv_model_find(s->model, "/a")->dims[0].size, 5);
    for (unsigned k = 0; k < 5; k++) {
        expect(s, "/a", k, k, 10);
        expect(s, "/b", k, 100 + k, 20);
    }
    closed(s, &f);
}

static int refused(const uint8_t *bytes, size_t len, struct cv_fail *why)
{
    struct memory_file f;
    struct cv_source *s;
    int rc = opened(bytes, len, &f, &s, why);

    if (rc == 0)
        closed(s, &f);
    return rc;
}

static void test_fortran_damaged_markers_say_their_byte(void **state)
{
    uint8_t bytes[FILE_MAX], *p = record(record(bytes, 1, 96, SIZE_MAX, 4, false), 7, 100, SIZE_MAX, 4, false);
    struct cv_fail why;
    (void)state;

    schema_set(TWO_LITTLE);
    bytes[96 + 4] ^= 2;
    assert_int_equal(refused(bytes, (size_t)(p - bytes), &why), -EINVAL);
    assert_int_equal(why.offset_bytes, 100);
    bytes[96 + 4] ^= 2;
    bytes[104 + 104] ^= 1;
    assert_int_equal(refused(bytes, (size_t)(p - bytes), &why), -EINVAL);
    assert_int_equal(why.offset_bytes, 208);
    bytes[104 + 104] ^= 1;
    assert_int_equal(refused(bytes, (size_t)(p - bytes), &why), 0);
}

static void test_fortran_files_that_do_not_fit_the_schema_are_refused(void **state)
{
    uint8_t bytes[FILE_MAX], *p = bytes;
    struct cv_fail why;
    (void)state;

    schema_set(TWO_LITTLE);
    p = record(p, 1, 96, SIZE_MAX, 4, false);
    assert_true(refused(bytes, (size_t)(p - bytes), &why) < 0);
    assert_string_equal(why.dataset, "/b");
    p = record(p, 1, 99, SIZE_MAX, 4, false);
    assert_int_equal(refused(bytes, (size_t)(p - bytes), &why), -EINVAL);
    assert_string_equal(why.dataset, "/b");
    assert_non_null(strstr(why.text, "record 2 has 99 bytes"));
    p = record(record(bytes, 1, 96, SIZE_MAX, 4, false), 1, 100, SIZE_MAX, 4, false);
    p = record(p, 1, 4, SIZE_MAX, 4, false);
    assert_int_equal(refused(bytes, (size_t)(p - bytes), &why), -EINVAL);
    assert_non_null(strstr(why.text, "3 records"));
    schema_set(TWO_BIG);
    p = record(record(bytes, 1, 96, SIZE_MAX, 4, false), 1, 100, SIZE_MAX, 4, false);
    assert_int_equal(refused(bytes, (size_t)(p - bytes), &why), -EINVAL);
    assert_non_null(strstr(why.text, "byte_order: little"));
}

static void test_fortran_what_every_file_has_whole_is_no_record_too_many(void **state)
{
    uint8_t bytes[FILE_MAX], *p = record(record(bytes, 1, 6, SIZE_MAX, 4, false), 7, 20, SIZE_MAX, 4, false);
    char dir[] = "/tmp/cv-fortran-XXXXXX", names[2][64];
    const char *paths[2] = {names[0], names[1]};
    struct cv_source_options o = {.paths = paths, .npaths = 2, .schema = schema.path, .memory_bytes = 1u << 20};
    struct cv_fail why = {0};
    struct cv_source *s;
    (void)state;

    assert_non_null(mkdtemp(dir));
    schema_set("fpschema: 1\nranks: {grid: [2]}\ndatasets:\n  - {name: /a, type: uint8, dims: [12]}\n  - {name: /all, type: uint8, dims: [20], block: whole}\n");
    for (unsigned r = 0; r < 2; r++) {
        FILE *f;

        snprintf(names[r], sizeof names[r], "%s/rank_%u.dat", dir, r);
        f = fopen(names[r], "w");
        assert_non_null(f);
        assert_int_equal(fwrite(bytes, 1, (size_t)(p - bytes), f), p - bytes);
        fclose(f);
    }
    if (cv_source_fortran.open(&o, &s, &why) != 0)
        fail_msg("%s: %s", why.file, why.text);
    assert_int_equal(cv_model_find(s->model, "/all")->nblocks, 1);
    s->ops->close(s);
    unlink(names[0]);
    unlink(names[1]);
    rmdir(dir);
}

static void test_fortran_too_many_records_are_refused(void **state)
{
    size_t n = 200000, len = 9 * n;
    uint8_t *bytes = malloc(len), *p = bytes;
    struct cv_fail why;
    (void)state;

    assert_non_null(bytes);
    schema_set(TWO_LITTLE);
    for (size_t i = 0; i < n; i++)
        p = record(p, 1, 1, SIZE_MAX, 4, false);
    assert_int_equal(refused(bytes, len, &why), -E2BIG);
    free(bytes);
}

static void test_fortran_cut_or_changed_anywhere_is_no_harm(void **state)
{
    uint8_t bytes[FILE_MAX], *p = record(record(bytes, 1, 96, 40, 4, false), 7, 100, SIZE_MAX, 4, false);
    size_t whole = (size_t)(p - bytes);
    struct cv_fail why;
    (void)state;

    schema_set(TWO_LITTLE);
    assert_int_equal(refused(bytes, whole, &why), 0);
    for (size_t len = 0; len < whole; len++)
        assert_true(refused(bytes, len, &why) < 0);
    for (size_t i = 0; i < whole; i++) {
        bytes[i] ^= 0x80;
        refused(bytes, whole, &why);
        bytes[i] ^= 0x80;
    }
}

static int begin(void **state)
{
    (void)state;
    schema = memory_file_new("", 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    return close(schema.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fortran_markers_of_each_width_and_order_are_found),
        cmocka_unit_test(test_fortran_all_steps_are_those_that_the_records_say),
        cmocka_unit_test(test_fortran_damaged_markers_say_their_byte),
        cmocka_unit_test(test_fortran_files_that_do_not_fit_the_schema_are_refused),
        cmocka_unit_test(test_fortran_what_every_file_has_whole_is_no_record_too_many),
        cmocka_unit_test(test_fortran_too_many_records_are_refused),
        cmocka_unit_test(test_fortran_cut_or_changed_anywhere_is_no_harm),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
