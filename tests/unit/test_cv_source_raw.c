/* from=raw, and arrays of NumPy whose place in a dataset a schema says: files of ranks, more of them than may be open, and what does not fit. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/unit/cv_source.h"

#define RANKS_MAX 512u

static char dir[] = "/tmp/cv-raw-XXXXXX";
static char names[RANKS_MAX][64], schema[64];
static const char *paths[RANKS_MAX];

static void file_write(const char *path, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

static int open_ranks(const struct cv_source_ops *ops, size_t n, const char *text, struct cv_source **s, struct cv_fail *why)
{
    struct cv_source_options o = {.paths = paths, .npaths = n, .schema = schema, .memory_bytes = 1u << 20};

    file_write(schema, text, strlen(text));
    memset(why, 0, sizeof *why);
    return ops->open(&o, s, why);
}

static void test_raw_blocks_are_where_the_schema_says(void **state)
{
    uint8_t bytes[8 + 24], got[24];
    struct cv_source *s;
    struct cv_fail why;
    (void)state;

    for (unsigned r = 0; r < 4; r++) {
        for (unsigned i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)(i + 50 * r);
        file_write(paths[r], bytes, sizeof bytes);
    }
    if (open_ranks(&cv_source_raw, 4, "fpschema: 1\nheader: 8\nranks: {grid: [4, 1]}\ndatasets: [{name: /a, type: uint16, dims: [8, 6]}]\n", &s, &why) != 0)
        fail_msg("%s", why.text);
    assert_int_equal(s->model->datasets[0].nblocks, 4);
    for (unsigned r = 0; r < 4; r++) {
        assert_int_equal(block_bytes(s, &s->model->datasets[0], &s->model->datasets[0].blocks[r], got, sizeof got, &why), 0);
        assert_int_equal(got[0], (uint8_t)(8 + 50 * r));
        assert_int_equal(got[23], (uint8_t)(31 + 50 * r));
        assert_int_equal(s->model->datasets[0].blocks[r].start[0], 2 * r);
    }
    s->ops->close(s);
    file_write(paths[2], bytes, 31);
    assert_int_equal(open_ranks(&cv_source_raw, 4, "fpschema: 1\nheader: 8\nranks: {grid: [4, 1]}\ndatasets: [{name: /a, type: uint16, dims: [8, 6]}]\n", &s, &why), -ENODATA);
    assert_string_equal(why.file, paths[2]);
}

static void test_raw_without_a_schema_says_what_is_missing(void **state)
{
    struct cv_source *s;
    struct cv_fail why;
    (void)state;

    assert_int_equal(source_try(&cv_source_raw, paths[0], &s, &why), -EINVAL);
    assert_non_null(strstr(why.text, "schema"));
    assert_int_equal(source_try(&cv_source_fortran, paths[0], &s, &why), -EINVAL);
    assert_non_null(strstr(why.text, "schema"));
}

static void test_raw_sets_of_more_files_than_may_be_open_are_read(void **state)
{
    struct rlimit old, few = {.rlim_cur = 200, .rlim_max = 200};
    struct cv_source *s;
    struct cv_fail why;
    (void)state;

    for (unsigned r = 0; r < 300; r++)
        file_write(paths[r], &(uint32_t){r}, 4);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    few.rlim_max = old.rlim_max; /* the soft limit is raised */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int again = 0; again < 2; again++) {
        if (again) { /* and when it can't be */
            pid_t self = getpid();
            struct rlimit hard = {.rlim_cur = 200, .rlim_max = 200};

            assert_int_equal(prlimit(self, RLIMIT_NOFILE, &hard, NULL), 0);
        }
        if (open_ranks(&cv_source_raw, 300, "fpschema: 1\nranks: {grid: [300]}\ndatasets: [{name: /a, type: uint32, dims: [300]}]\n", &s, &why) != 0)
            fail_msg("%s", why.text);
        assert_int_equal(s->inputs[299].fd < 0, again);
        for (unsigned r = 0; r < 300; r++) {
            uint32_t got = 0;

            assert_int_equal(s->ops->read_bytes(s, s->model->datasets[0].blocks[r].input, s->model->datasets[0].blocks[r].offset_bytes, &got, 4, &why), 0);
            assert_int_equal(got, r);
        }
        s->ops->close(s);
    }
}

static size_t npy(uint8_t *out, const char *descr, const char *shape, size_t data_bytes, uint8_t seed)
{
    char dict[128];
    int n = snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape);

    memcpy(out, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(out + 10, ' ', 118);
    memcpy(out + 10, dict, (size_t)n);
    out[127] = '\n';
    for (size_t i = 0; i < data_bytes; i++)
        out[128 + i] = (uint8_t)(seed + i);
    return 128 + data_bytes;
}

#define NPY_SCHEMA "fpschema: 1\nranks: {grid: [2, 1]}\ndatasets: [{name: /a, type: int16, dims: [4, 3], ghost: [1, 0]}]\n"

static void test_npy_blocks_of_ranks_are_compared_with_their_schema(void **state)
{
    uint8_t bytes[512], got[24];
    struct cv_source *s;
    struct cv_fail why;
    const struct cv_dataset *d;
    (void)state;

    for (unsigned r = 0; r < 2; r++)
        file_write(paths[r], bytes, npy(bytes, ">i2", "4, 3", 24, (uint8_t)(100 * r)));
    if (open_ranks(&cv_source_npy, 2, NPY_SCHEMA, &s, &why) != 0)
        fail_msg("%s", why.text);
    d = &s->model->datasets[0];
    assert_int_equal(s->model->ndatasets, 1);
    assert_int_equal(d->nblocks, 2);
    assert_true(d->type.big_endian);
    assert_int_equal(d->blocks[1].start[0], 2);
    assert_int_equal(block_bytes(s, d, &d->blocks[1], got, sizeof got, &why), 0);
    assert_int_equal(got[0], 100);
    s->ops->close(s);
    file_write(paths[1], bytes, npy(bytes, "<i2", "4, 3", 24, 0));
    assert_int_equal(open_ranks(&cv_source_npy, 2, NPY_SCHEMA, &s, &why), -EINVAL);
    assert_non_null(strstr(why.text, "little-endian, unlike"));
    file_write(paths[1], bytes, npy(bytes, ">i2", "3, 4", 24, 0));
    assert_int_equal(open_ranks(&cv_source_npy, 2, NPY_SCHEMA, &s, &why), -EINVAL);
    assert_non_null(strstr(why.text, "3x4"));
    assert_string_equal(why.file, paths[1]);
    file_write(paths[1], bytes, npy(bytes, ">u2", "4, 3", 24, 0));
    assert_int_equal(open_ranks(&cv_source_npy, 2, NPY_SCHEMA, &s, &why), -EINVAL);
    assert_non_null(strstr(why.text, "uint16"));
}

static void test_npy_steps_are_the_first_dimension(void **state)
{
    uint8_t bytes[512], got[4];
    struct cv_source *s;
    struct cv_fail why;
    const struct cv_dataset *d;
    (void)state;

    for (unsigned r = 0; r < 2; r++)
        file_write(paths[r], bytes, npy(bytes, "|u1", "5, 2, 2", 20, (uint8_t)(100 * r)));
    if (open_ranks(&cv_source_npy, 2, "fpschema: 1\nsteps: all\nranks: {grid: [2, 1]}\ndatasets: [{name: /a, type: uint8, dims: [4, 2]}]\n", &s, &why) != 0)
        fail_msg("%s", why.text);
    d = &s->model->datasets[0];
    assert_int_equal(d->rank, 3);
    assert_int_equal(d->dims[0].size, 5);
    assert_int_equal(d->nblocks, 10);
    for (size_t k = 0; k < d->nblocks; k++) {
        assert_int_equal(block_bytes(s, d, &d->blocks[k], got, sizeof got, &why), 0);
        assert_int_equal(got[0], (uint8_t)(100 * d->blocks[k].input + 4 * d->blocks[k].start[0]));
    }
    s->ops->close(s);
}

static int begin(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(schema, sizeof schema, "%s/schema.yaml", dir);
    for (unsigned r = 0; r < RANKS_MAX; r++) {
        snprintf(names[r], sizeof names[r], "%s/rank_%u.raw", dir, r);
        paths[r] = names[r];
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (unsigned r = 0; r < RANKS_MAX; r++)
        unlink(paths[r]);
    unlink(schema);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_raw_blocks_are_where_the_schema_says),
        cmocka_unit_test(test_raw_without_a_schema_says_what_is_missing),
        cmocka_unit_test(test_npy_blocks_of_ranks_are_compared_with_their_schema),
        cmocka_unit_test(test_npy_steps_are_the_first_dimension),
        cmocka_unit_test(test_raw_sets_of_more_files_than_may_be_open_are_read),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
