/* from=group, and the writer of C: what it writes is read, streams that were cut off are read by their groups, and what is damaged is said. */
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/unit/cv_source.h"
#include "tools/fpdump/fpdump.h"

#define FILE_MAX 262144u
#define NX       12u

static char dir[] = "/tmp/cv-group-XXXXXX";
static char names[4][64];
static const char *paths[4];

static double value(uint64_t step, uint64_t y, uint64_t x)
{
    return 1000.0 * (double)step + 10.0 * (double)y + (double)x;
}

/* Rank r of n has rows of /t, an int64 of its own in /ranks, and the mesh in the first step. */
static void write_group(struct fpdump *f, uint64_t step, uint32_t r, uint32_t n, bool mesh)
{
    uint64_t global[2] = {2 * n, NX}, offset[2] = {2 * r, 0}, local[2] = {2, NX}, one = 1, all = n, at = r, nx = NX, zero = 0;
    double t[2 * NX];
    int64_t own = 100 * (int64_t)step + r;
    float x[NX];

    for (unsigned i = 0; i < 2 * NX; i++)
        t[i] = value(step, 2 * r + i / NX, i % NX);
    for (unsigned i = 0; i < NX; i++)
        x[i] = (float)i / 2;
    assert_int_equal(fpdump_begin_rank(f, step, r), 0);
    assert_int_equal(fpdump_put(f, "t", FPDUMP_FLOAT64, 2, global, offset, local, t), 0);
    assert_int_equal(fpdump_put(f, "/ranks", FPDUMP_INT64, 1, &all, &at, &one, &own), 0);
    if (mesh)
        assert_int_equal(fpdump_put(f, "/mesh/x", FPDUMP_FLOAT32, 1, &nx, &zero, &nx, x), 0);
    assert_int_equal(fpdump_attr_text(f, "t", "units", "K"), 0);
    assert_int_equal(fpdump_attr_text(f, "t", "dims", "y x"), 0);
    assert_int_equal(fpdump_attr_floats(f, "/t", "range", (double[]){0.5, 2.5}, 2), 0);
    assert_int_equal(fpdump_attr_ints(f, NULL, "cells", &(int64_t){-7}, 1), 0);
    assert_int_equal(fpdump_end(f), 0);
}

static void write_stream(const char *path, uint32_t from, uint32_t to, uint32_t n, uint64_t steps, const struct fpdump_options *more)
{
    struct fpdump_options o = more ? *more : (struct fpdump_options){0};
    struct fpdump *f;

    o.rank = from;
    o.ranks = n;
    assert_int_equal(fpdump_open(path, &o, &f), 0);
    for (uint64_t k = 0; k < steps; k++)
        for (uint32_t r = from; r < to; r++)
            write_group(f, 5 * k, r, n, k == 0 && r == 0);
    assert_int_equal(fpdump_close(f), 0);
}

static int open_files(size_t n, struct cv_source **s, struct cv_fail *why)
{
    struct cv_source_options o = {.paths = paths, .npaths = n, .memory_bytes = 1u << 20};

    memset(why, 0, sizeof *why);
    return cv_source_group.open(&o, s, why);
}

/* All elements of /t, wherever the ranks and steps are. */
static void expect_t(struct cv_source *s, uint64_t steps, uint32_t n)
{
    const struct cv_dataset *d = cv_model_find(s->model, "/t");
    struct cv_fail why = {0};
    uint64_t seen = 0;
    double got[2 * NX];

    assert_non_null(d);
    assert_int_equal(d->rank, steps > 1 ? 3 : 2);
    assert_int_equal(d->nblocks, steps * n);
    for (size_t k = 0; k < d->nblocks; k++) {
        const struct cv_block *b = &d->blocks[k];
        uint64_t step = steps > 1 ? b->start[0] : 0, y = b->start[steps > 1 ? 1 : 0];

        if (block_bytes(s, d, b, got, sizeof got, &why) != 0)
            fail_msg("%s: %s", why.file, why.text);
        for (unsigned i = 0; i < 2 * NX; i++)
            assert_true(got[i] == value(5 * step, y + i / NX, i % NX));
        seen |= UINT64_C(1) << (step * n + y / 2);
    }
    assert_int_equal(seen, (UINT64_C(1) << steps * n) - 1);
}

static void test_group_files_of_ranks_are_one_dataset(void **state)
{
    struct cv_source *s;
    struct cv_fail why;
    const struct cv_dataset *d;
    (void)state;

    for (uint32_t r = 0; r < 4; r++)
        write_stream(paths[r], r, r + 1, 4, 3, NULL);
    if (open_files(4, &s, &why) != 0)
        fail_msg("%s: %s", why.file, why.text);
    expect_t(s, 3, 4);
    d = cv_model_find(s->model, "/t");
    assert_string_equal(d->dims[0].name, "time");
    assert_true(d->dims[0].steps);
    assert_int_equal(d->dims[0].size, 3);
    assert_string_equal(d->dims[1].name, "y");
    assert_string_equal(d->dims[2].name, "x");
    assert_string_equal(cv_attrs_find(&d->attrs, "units")->text, "K");
    assert_true(cv_attrs_find(&d->attrs, "range")->floats[1] == 2.5);
    assert_int_equal(cv_attrs_find(&s->model->attrs, "cells")->ints[0], -7);
    assert_int_equal(cv_attrs_find(&s->model->attrs, "fpdump_steps")->count, 3);
    assert_int_equal(cv_attrs_find(&s->model->attrs, "fpdump_steps")->ints[2], 10);
    assert_null(cv_attrs_find(&s->model->attrs, "fpdump_recovered"));
    d = cv_model_find(s->model, "/mesh/x"); /* of one step alone */
    assert_int_equal(d->rank, 1);
    assert_int_equal(d->nblocks, 1);
    s->ops->close(s);
}

static void test_group_one_file_of_all_ranks_and_streams_joined_are_the_same(void **state)
{
    static uint8_t bytes[2 * FILE_MAX];
    struct cv_source *s;
    struct cv_fail why;
    ssize_t n;
    int fd;
    (void)state;

    write_stream(paths[0], 0, 4, 4, 3, &(struct fpdump_options){.buffer_bytes = 4096, .no_checksum = 1});
    if (open_files(1, &s, &why) != 0)
        fail_msg("%s", why.text);
    expect_t(s, 3, 4);
    s->ops->close(s);
    write_stream(paths[0], 0, 1, 2, 2, NULL);
    write_stream(paths[1], 1, 2, 2, 2, &(struct fpdump_options){.sync = 1});
    fd = open(paths[1], O_RDONLY);
    n = read(fd, bytes, sizeof bytes);
    close(fd);
    fd = open(paths[0], O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, bytes, (size_t)n), n);
    close(fd);
    if (open_files(1, &s, &why) != 0)
        fail_msg("%s", why.text);
    expect_t(s, 2, 2);
    s->ops->close(s);
}

static size_t file_read(const char *path, uint8_t *bytes)
{
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, bytes, FILE_MAX);

    assert_true(n > 0);
    close(fd);
    return (size_t)n;
}

static void test_group_streams_cut_off_anywhere_give_their_whole_steps(void **state)
{
    static uint8_t bytes[FILE_MAX];
    struct memory_file f;
    size_t len, steps_seen = 0;
    (void)state;

    write_stream(paths[0], 0, 2, 2, 3, NULL);
    len = file_read(paths[0], bytes);
    f = memory_file_new(bytes, 0);
    for (size_t n = 0; n < len; n++) {
        struct cv_source *s;
        struct cv_fail why;
        const struct cv_attr *said;
        const struct cv_dataset *d;
        int rc;

        memory_file_set(&f, bytes, n);
        rc = source_try(&cv_source_group, f.path, &s, &why);
        if (rc) {
            assert_true(why.text[0]);
            continue;
        }
        said = cv_attrs_find(&s->model->attrs, "fpdump_recovered");
        assert_non_null(said);
        d = cv_model_find(s->model, "/t");
        if (strstr(said->text, "in the group") || n > len - 512)
            expect_t(s, d->nblocks / 2, 2);
        steps_seen = d->nblocks / 2 > steps_seen ? d->nblocks / 2 : steps_seen;
        s->ops->close(s);
    }
    assert_int_equal(steps_seen, 3);
    close(f.fd);
}

static void test_group_steps_that_one_rank_has_not_whole_are_left_out_of_all(void **state)
{
    struct cv_source *s;
    struct cv_fail why;
    struct stat st;
    (void)state;

    for (uint32_t r = 0; r < 3; r++)
        write_stream(paths[r], r, r + 1, 3, 3, NULL);
    assert_int_equal(stat(paths[1], &st), 0);
    assert_int_equal(truncate(paths[1], st.st_size * 4 / 7), 0);
    if (open_files(3, &s, &why) != 0)
        fail_msg("%s: %s", why.file, why.text);
    expect_t(s, cv_model_find(s->model, "/t")->dims[0].steps ? cv_model_find(s->model, "/t")->dims[0].size : 1, 3);
    assert_non_null(strstr(cv_attrs_find(&s->model->attrs, "fpdump_recovered")->text, paths[1]));
    s->ops->close(s);
}

static void test_group_damaged_payloads_are_found_in_order_and_out_of_it(void **state)
{
    static uint8_t bytes[FILE_MAX];
    struct memory_file f;
    size_t len;
    (void)state;

    write_stream(paths[0], 0, 2, 2, 1, NULL);
    len = file_read(paths[0], bytes);
    f = memory_file_new(bytes, len);
    for (int way = 0; way < 3; way++) {
        struct cv_source *s;
        struct cv_fail why;
        const struct cv_dataset *d;
        uint8_t got[sizeof(double) * 2 * NX];
        uint64_t at;

        memory_file_set(&f, bytes, len);
        assert_int_equal(source_try(&cv_source_group, f.path, &s, &why), 0);
        d = cv_model_find(s->model, "/t");
        at = d->blocks[1].offset_bytes;
        assert_int_equal(pwrite(f.fd, "?", 1, (off_t)at + 100), 1);
        assert_int_equal(block_bytes(s, d, &d->blocks[0], got, sizeof got, &why), 0);
        if (way == 0)
            assert_int_equal(block_bytes(s, d, &d->blocks[1], got, sizeof got, &why), -EBADMSG);
        else if (way == 1)
            assert_int_equal(s->ops->read_bytes(s, 0, at + 8, got, 8, &why), -EBADMSG);
        else {
            assert_int_equal(s->ops->read_bytes(s, 0, at, got, 8, &why), 0);
            assert_int_equal(block_bytes(s, d, &d->blocks[0], got, sizeof got, &why), 0);
            assert_int_equal(s->ops->read_bytes(s, 0, at + 8, got, 8, &why), 0);
            assert_int_equal(s->ops->read_bytes(s, 0, at + 24, got, 8, &why), -EBADMSG);
        }
        assert_int_equal(why.offset_bytes, at);
        s->ops->close(s);
    }
    close(f.fd);
}

static void test_group_changed_anywhere_is_no_harm(void **state)
{
    static uint8_t bytes[FILE_MAX];
    (void)state;

    write_stream(paths[0], 0, 1, 1, 1, NULL);
    no_byte_does_harm(&cv_source_group, bytes, file_read(paths[0], bytes));
}

static void test_group_variables_that_disagree_are_refused(void **state)
{
    uint64_t n = 4, m = 5, zero = 0;
    double v[5] = {0};
    (void)state;

    for (int way = 0; way < 5; way++) {
        struct fpdump *f;
        struct cv_source *s;
        struct cv_fail why;

        assert_int_equal(fpdump_open(paths[0], NULL, &f), 0);
        fpdump_begin(f, 0);
        fpdump_put(f, "a", FPDUMP_FLOAT64, 1, &n, &zero, &n, v);
        fpdump_end(f);
        fpdump_begin(f, 1);
        if (way == 0)
            fpdump_put(f, "a", FPDUMP_INT64, 1, &n, &zero, &n, v);
        else if (way == 1)
            fpdump_put(f, "a", FPDUMP_FLOAT64, 1, &m, &zero, &m, v);
        else if (way == 2)
            fpdump_put(f, "a", FPDUMP_FLOAT64, 0, NULL, NULL, NULL, v);
        else if (way == 3)
            fpdump_attr_text(f, "a", "dims", "x y");
        else {
            fpdump_put(f, "b", FPDUMP_FLOAT64, 1, &m, &zero, &m, v);
            fpdump_attr_text(f, "b", "dims", "x");
            fpdump_attr_text(f, "a", "dims", "x");
        }
        assert_int_equal(fpdump_close(f), 0);
        assert_int_equal(open_files(1, &s, &why), -EINVAL);
        assert_true(strcmp(why.dataset, "/a") == 0 || way == 4);
        assert_true(way != 4 || strstr(why.text, "dimension x has"));
    }
}

static void test_group_the_writer_refuses_what_does_not_fit(void **state)
{
    uint64_t n = 4, one = 1, far = UINT64_MAX;
    double v[4] = {0};
    struct fpdump *f;
    (void)state;

    assert_int_equal(fpdump_open("/nonexistent/x", NULL, &f), -ENOENT);
    assert_int_equal(fpdump_open(paths[0], &(struct fpdump_options){.buffer_bytes = 100}, &f), -EINVAL);
    assert_int_equal(fpdump_open(paths[0], &(struct fpdump_options){.rank = 2, .ranks = 2}, &f), -EINVAL);
    for (int way = 0; way < 7; way++) {
        assert_int_equal(fpdump_open(paths[0], NULL, &f), 0);
        if (way != 0)
            assert_int_equal(fpdump_begin(f, 1), 0);
        assert_true((way == 0   ? fpdump_put(f, "a", FPDUMP_FLOAT64, 1, &n, &one, &one, v)
                     : way == 1 ? fpdump_put(f, "a", FPDUMP_FLOAT64, 1, &n, &one, &n, v)
                     : way == 2 ? fpdump_put(f, "a", (enum fpdump_type)0x302, 1, &n, &one, &one, v)
                     : way == 3 ? fpdump_put(f, "", FPDUMP_FLOAT64, 1, &n, &one, &one, v)
                     : way == 4 ? fpdump_put(f, "a", FPDUMP_FLOAT64, 8, &n, &one, &one, v)
                     : way == 5 ? fpdump_put(f, "a", FPDUMP_FLOAT64, 1, &n, &far, &far, v)
                                : fpdump_attr_ints(f, NULL, "x", (const int64_t *)v, 100000)) < 0);
        assert_true(fpdump_close(f) < 0); /* the first error stays */
    }
}

static void test_group_a_full_disk_is_said_by_close(void **state)
{
    struct fpdump *f;
    static double v[1u << 16];
    uint64_t n = 1u << 16, zero = 0;
    (void)state;

    assert_int_equal(fpdump_open("/dev/full", &(struct fpdump_options){.buffer_bytes = 65536}, &f), 0);
    assert_int_equal(fpdump_begin(f, 0), 0);
    assert_int_equal(fpdump_put(f, "a", FPDUMP_FLOAT64, 1, &n, &zero, &n, v), -ENOSPC);
    assert_int_equal(fpdump_end(f), -ENOSPC);
    assert_int_equal(fpdump_close(f), -ENOSPC);
}

static int begin(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    for (unsigned r = 0; r < 4; r++) {
        snprintf(names[r], sizeof names[r], "%s/rank_%u.fpd", dir, r);
        paths[r] = names[r];
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (unsigned r = 0; r < 4; r++)
        unlink(paths[r]);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_files_of_ranks_are_one_dataset),
        cmocka_unit_test(test_group_one_file_of_all_ranks_and_streams_joined_are_the_same),
        cmocka_unit_test(test_group_streams_cut_off_anywhere_give_their_whole_steps),
        cmocka_unit_test(test_group_steps_that_one_rank_has_not_whole_are_left_out_of_all),
        cmocka_unit_test(test_group_damaged_payloads_are_found_in_order_and_out_of_it),
        cmocka_unit_test(test_group_changed_anywhere_is_no_harm),
        cmocka_unit_test(test_group_variables_that_disagree_are_refused),
        cmocka_unit_test(test_group_the_writer_refuses_what_does_not_fit),
        cmocka_unit_test(test_group_a_full_disk_is_said_by_close),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
