/*
 * Whole conversions (engine/run.c) from a source in memory to a sink that puts boxes where they belong: every element once, whatever the memory and the chunks; and whatever call fails, or is
 * interrupted, nothing is left, and the reason comes up.
 */
#include "tests/unit/cv_job.h"

static const struct cv_sink_ops whole = {.name = "fakewhole", .summary = "", .ending = ".fake", .create = sink_create, .write = sink_write, .close = sink_close, .abandon = sink_abandon};

static void compare(const struct fake *f, uint64_t seed)
{
    for (size_t k = 0; k < f->s.model->ndatasets; k++) {
        const struct cv_dataset *d = &f->s.model->datasets[k];
        size_t size = d->type.size_bytes;

        for (uint64_t i = 0; i < fake_elements(d); i++) {
            if (sink.times[k][i] == 0 && sink.chunk[k][0] && !f->there[k][i])
                continue; /* a chunk of nothing */
            if (sink.times[k][i] != 1 || memcmp(sink.data[k] + i * size, f->expect[k] + i * size, size) != 0)
                fail_msg("seed %llu, dataset %zu, element %llu: wrong, or written %u times", (unsigned long long)seed, k, (unsigned long long)i, sink.times[k][i]);
        }
    }
}

/* Of the dimensions of one of the datasets. */
static void random_chunk(struct cv_job *j, const struct fake *f, uint64_t seed)
{
    struct fake_random r = {seed};
    unsigned rank = f->s.model->datasets[fake_number(&r, f->s.model->ndatasets)].rank;

    for (unsigned i = 0; i < rank; i++)
        j->chunk[i] = 1 + fake_number(&r, 20);
}

static void run_all(const struct fake_options *o, const struct cv_sink_ops *to, uint64_t first, unsigned seeds)
{
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        struct fake *f = fake_new(seed, o);
        struct cv_job j = job_of(f, to);
        struct cv_fail why = {0};
        uint64_t bytes = 0;

        if (seed & 1)
            random_chunk(&j, f, seed);
        if (cv_job_run(&j, &why) != 0)
            fail_msg("seed %llu: %s", (unsigned long long)seed, why.text);
        compare(f, seed);
        for (size_t k = 0; k < f->s.model->ndatasets; k++)
            bytes += fake_elements(&f->s.model->datasets[k]) * f->s.model->datasets[k].type.size_bytes;
        assert_true(told_done == bytes && told_of == (told ? bytes : 0));
        assert_int_equal(names(), 1);
        assert_int_equal(sink.open, 0);
        assert_int_equal(unlink(path), 0);
        fake_free(f);
    }
}

static void test_job_writes_every_element_once(void **state)
{
    (void)state;
    run_all(&(struct fake_options){.datasets = 3, .rank = CV_RANK_MAX + 1}, &chunked, 100, 30);
    run_all(&(struct fake_options){.datasets = 3, .rank = CV_RANK_MAX + 1}, &whole, 200, 20);
    run_all(&(struct fake_options){.datasets = 2, .rank = CV_RANK_MAX + 1, .boxes = true}, &chunked, 300, 20);
}

static void test_job_with_gaps_and_overlaps_writes_what_is_declared(void **state)
{
    (void)state;
    run_all(&(struct fake_options){.datasets = 2, .rank = CV_RANK_MAX + 1, .gaps = true}, &chunked, 400, 20);
    run_all(&(struct fake_options){.datasets = 2, .rank = CV_RANK_MAX + 1, .gaps = true, .overlaps = true}, &chunked, 500, 20);
    run_all(&(struct fake_options){.datasets = 2, .rank = CV_RANK_MAX + 1, .gaps = true, .overlaps = true}, &whole, 600, 20);
}

/* Blocks over one another, and elements in none: known only tile by tile. */
static void test_job_refuses_gaps_under_overlaps(void **state)
{
    unsigned refused = 0;
    (void)state;

    for (uint64_t seed = 1; seed < 30; seed++) {
        struct fake *f = fake_new(seed, &(struct fake_options){.datasets = 1, .rank = CV_RANK_MAX + 1, .gaps = true, .overlaps = true});
        struct cv_dataset *d = &f->s.model->datasets[0];
        struct cv_job j = job_of(f, seed & 1 ? &chunked : &whole);
        struct cv_fail why = {0};
        bool missing = false;

        d->gaps = CV_GAPS_REFUSE;
        for (uint64_t i = 0; i < fake_elements(d); i++)
            missing |= f->there[0][i] == 0;
        assert_int_equal(cv_job_run(&j, &why), missing ? -EINVAL : 0);
        assert_int_equal(names(), missing ? 0 : 1);
        (void)unlink(path);
        refused += missing;
        fake_free(f);
    }
    assert_in_range(refused, 5, 28);
}

/* The n-th call, for all n until nothing fails. */
static unsigned fail_each(struct fake *f, const struct cv_sink_ops *to, unsigned *at, int expected)
{
    struct cv_job j = job_of(f, to);
    unsigned n = 0;
    int rc;

    random_chunk(&j, f, 9);
    do {
        struct cv_fail why = {0};

        f->calls = sink.calls = told = 0;
        told_done = 0;
        *at = ++n;
        rc = cv_job_run(&j, &why);
        assert_int_equal(sink.open, 0);
        if (rc) {
            assert_int_equal(rc, expected);
            assert_true(why.text[0] || expected == -EINTR);
            assert_int_equal(names(), 0);
        }
    } while (rc);
    compare(f, 0);
    assert_int_equal(unlink(path), 0);
    *at = 0;
    return n;
}

static void test_job_leaves_nothing_whatever_call_fails(void **state)
{
    (void)state;
    for (uint64_t seed = 60; seed < 64; seed++) {
        struct fake *f = fake_new(seed, &(struct fake_options){.datasets = 2, .rank = 2, .boxes = seed & 1});
        const struct cv_sink_ops *to = seed & 2 ? &chunked : &whole;

        assert_true(fail_each(f, to, &sink.fail_at, -ENOSPC) > 3);
        assert_true(fail_each(f, to, &f->fail_at, -EIO) > 2);
        assert_true(fail_each(f, to, &interrupt_at, -EINTR) > 2);
        fake_free(f);
    }
}

static void test_job_leaves_nothing_at_faults_of_its_own(void **state)
{
    static const char *const faults[] = {"convert-name=EIO", "convert-tile=EIO", "convert-tile=EIO:after=2"};
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 2, .rank = 2});
    (void)state;

    for (unsigned i = 0; i < 3; i++) {
        struct cv_job j = job_of(f, &chunked);
        struct cv_fail why = {0};

        random_chunk(&j, f, 9);
        assert_int_equal(fp_fault_set(faults[i]), 0);
        assert_int_equal(cv_job_run(&j, &why), -EIO);
        assert_true(why.text[0] && fp_fault_fired(i ? "convert-tile" : "convert-name"));
        assert_int_equal(names(), 0);
    }
    assert_int_equal(fp_fault_set(NULL), 0);
    fake_free(f);
}

static void test_job_replaces_nothing_unless_told(void **state)
{
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 1, .rank = 1});
    struct cv_job j = job_of(f, &chunked);
    struct cv_fail why = {0};
    struct stat before, after;
    (void)state;

    j.xdmf = true;
    snprintf(sink.temporary, sizeof sink.temporary, "%s", path);
    put_file();
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(cv_job_run(&j, &why), -EEXIST);
    assert_non_null(strstr(why.text, "--replace"));
    assert_int_equal(sink.calls, 0); /* before the work, not behind it */
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(names(), 1);
    j.replace = true;
    why = (struct cv_fail){0};
    assert_int_equal(cv_job_run(&j, &why), 0);
    assert_int_equal(stat(path, &after), 0);
    assert_int_not_equal(after.st_ino, before.st_ino);
    assert_int_equal(names(), 2);
    assert_int_equal(unlink(xmf), 0);
    assert_int_equal(unlink(path), 0);
    fake_free(f);
}

/* XDMF has its name before the result has; it goes again if the result gets none. */
static void test_job_takes_back_the_xdmf_file_of_a_result_without_a_name(void **state)
{
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 1, .rank = 1});
    struct cv_job j = job_of(f, &chunked);
    struct cv_fail why = {0};
    (void)state;

    j.xdmf = true;
    assert_int_equal(fp_fault_set("convert-name=EIO:after=1"), 0);
    assert_int_equal(cv_job_run(&j, &why), -EIO);
    assert_int_equal(fp_fault_fired("convert-name"), 1);
    assert_int_equal(fp_fault_set(NULL), 0);
    assert_int_equal(names(), 0);
    fake_free(f);
}

/* Whatever is named wrong: nothing is done, and nothing changes. */
static void refused(const struct cv_job *j, const char *text)
{
    struct cv_fail why = {0};
    unsigned before = names();

    sink.calls = 0;
    assert_true(cv_job_run(j, &why) < 0);
    assert_non_null(strstr(why.text, text));
    assert_int_equal(sink.calls, 0);
    assert_int_equal(names(), before);
}

static void test_job_writes_no_xdmf_file_over_what_it_reads(void **state)
{
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 1, .rank = 1});
    struct cv_job j = job_of(f, &chunked);
    const char *input = f->inputs[0].path;
    (void)state;

    j.xdmf = j.replace = true;
    put_file_at(xmf);
    f->inputs[0].path = xmf;
    refused(&j, "what is to be read");
    f->inputs[0].path = input;
    j.in.schema = xmf;
    refused(&j, "what is to be read");
    j.in.schema = NULL;
    j.lists[1] = xmf;
    refused(&j, "what is to be read");
    j.lists[1] = NULL;
    assert_int_equal(unlink(xmf), 0);
    fake_free(f);
}

static void test_job_leaves_no_xdmf_file_of_a_result_that_replaces_nothing(void **state)
{
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 1, .rank = 1});
    struct cv_job j = job_of(f, &chunked);
    (void)state;

    j.xdmf = j.replace = true;
    assert_int_equal(mkdir(path, 0777), 0);
    refused(&j, "it is no file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("elsewhere", path), 0);
    refused(&j, "it is no file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("elsewhere", xmf), 0);
    refused(&j, "it is no file");
    assert_int_equal(unlink(xmf), 0);
    fake_free(f);
}

/* The result of another dump has got the name meanwhile; and an XDMF file of another one stays. */
static void test_job_takes_no_xdmf_file_of_another_dump(void **state)
{
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 1, .rank = 1});
    struct cv_job j = job_of(f, &chunked);
    struct cv_fail why = {0};
    (void)state;

    j.replace = true;
    j.of = "1 run_a/dump_7";
    assert_int_equal(cv_job_run(&j, &why), 0);
    j.xdmf = true;
    j.of = "1 run_b/dump_7";
    told_done = 0;
    assert_int_equal(cv_job_run(&j, &why), -EEXIST);
    assert_int_equal(names(), 1);
    assert_int_equal(unlink(path), 0);
    put_file_at(xmf);
    why = (struct cv_fail){0};
    told_done = 0;
    assert_int_equal(cv_job_run(&j, &why), -EEXIST);
    assert_string_equal(why.file, xmf);
    assert_int_equal(names(), 1);
    assert_int_equal(unlink(xmf), 0);
    fake_free(f);
}

static void test_job_says_of_what_the_result_was_converted(void **state)
{
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 1, .rank = 1});
    struct cv_job j = job_of(f, &chunked);
    struct cv_fail why = {0};
    char value[64] = "";
    (void)state;

    j.converted = "dump_0040";
    assert_int_equal(cv_job_run(&j, &why), 0);
    if (getxattr(path, CV_CONVERTED, value, sizeof value) < 0)
        assert_int_equal(errno, ENOTSUP); /* a file system without attributes */
    else
        assert_string_equal(value, "dump_0040");
    assert_int_equal(unlink(path), 0);
    fake_free(f);
}

/* In an array of two dimensions. */
static unsigned boxes_that_have(const struct cv_attr *boxes, const uint64_t *at)
{
    unsigned n = 0;

    for (const int64_t *b = boxes->ints; b < boxes->ints + boxes->count; b += 4)
        n += (int64_t)at[0] >= b[0] && (int64_t)at[0] < b[0] + b[2] && (int64_t)at[1] >= b[1] && (int64_t)at[1] < b[1] + b[3];
    return n;
}

/* Two of three inputs: their elements, and boxes that say which. */
static int name_it(struct fake *f, const char *of, struct cv_fail *why)
{
    struct cv_job j = job_of(f, &chunked);

    j.of = of;
    j.replace = true;
    *why = (struct cv_fail){0};
    return cv_job_run(&j, why);
}

/* Two dumps whose results have one name, converted at the same time, each by who has seen that it is free: the second is not to take the place of the first, of which the dump may be gone. */
static void test_job_replaces_what_is_of_the_same_source_alone(void **state)
{
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 1, .rank = 1});
    struct cv_fail why;
    struct stat before, after;
    int lock;
    (void)state;

    assert_int_equal(name_it(f, "1 run_a/dump_7", &why), 0);
    assert_int_equal(stat(path, &before), 0);
    if (getxattr(path, CV_OF, NULL, 0) < 0 && errno == ENOTSUP) { /* a file system without attributes */
        assert_int_equal(unlink(path), 0);
        fake_free(f);
        skip();
    }
    assert_int_equal(name_it(f, "2 run_b/dump_7", &why), -EEXIST);
    assert_non_null(strstr(why.text, "the result of run_a/dump_7"));
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(names(), 1);
    assert_int_equal(name_it(f, "3 run_a/dump_7", &why), 0);
    assert_int_equal(stat(path, &after), 0);
    assert_int_not_equal(after.st_ino, before.st_ino);
    assert_int_equal(names(), 1);
    lock = cv_result_lock(path, false);
    assert_true(lock >= 0);
    assert_int_equal(cv_result_lock(path, false), -EWOULDBLOCK);
    assert_int_equal(names(), 2);
    cv_result_unlock(path, lock);
    assert_int_equal(names(), 1);
    assert_int_equal(unlink(path), 0);
    put_file_at(path); /* somebody's own */
    assert_int_equal(name_it(f, "4 run_a/dump_7", &why), -EEXIST);
    assert_non_null(strstr(why.text, "no result of this dump"));
    assert_int_equal(unlink(path), 0);
    fake_free(f);
}

static void test_job_of_some_inputs_says_which_boxes_it_has(void **state)
{
    static const char *const only[] = {"in-a", "in-c"};
    struct fake *f = fake_new(62, &(struct fake_options){.datasets = 1, .rank = 2, .plain = true});
    struct cv_dataset *d = &f->s.model->datasets[0];
    struct cv_job j = job_of(f, &chunked);
    struct cv_fail why = {0};
    const struct cv_attr *boxes;
    size_t n = 0;
    (void)state;

    j.only = only;
    j.nonly = 2;
    random_chunk(&j, f, 5);
    assert_int_equal(cv_job_run(&j, &why), 0);
    assert_true(sink.sparse);
    boxes = cv_attrs_find(&d->attrs, "fp_boxes");
    assert_non_null(boxes);
    for (size_t k = 0; k < d->nblocks; k++) {
        const struct cv_block *b = &d->blocks[k];
        uint64_t at[CV_RANK_MAX] = {0};

        n += b->input != 1;
        do {
            uint64_t global[2] = {b->start[0] + at[0], b->start[1] + at[1]}, i = fake_place(d, global);

            assert_int_equal(boxes_that_have(boxes, global), b->input != 1);
            if (b->input == 1)
                continue;
            assert_int_equal(sink.times[0][i], 1);
            assert_memory_equal(sink.data[0] + i * d->type.size_bytes, f->expect[0] + i * d->type.size_bytes, d->type.size_bytes);
        } while (fake_next(at, b->count, 2));
    }
    assert_true(boxes->count && boxes->count <= 4 * n);
    assert_true(n > 0 && n < d->nblocks);
    assert_null(cv_attrs_find(&d->attrs, "fp_strides"));
    assert_int_equal(unlink(path), 0);
    fake_free(f);
}

static char noted[512];

static void note_it(void *arg, const char *what)
{
    (void)arg;
    snprintf(noted, sizeof noted, "%s", what);
}

/* One that is for none is said. */
static void test_job_takes_a_shape_of_chunks_for_arrays_of_its_dimensions(void **state)
{
    struct fake *f = fake_new(62, &(struct fake_options){.datasets = 1, .rank = 3, .plain = true});
    struct cv_job j = job_of(f, &chunked);
    struct cv_fail why = {0};
    (void)state;

    j.chunk[0] = j.chunk[1] = 2;
    j.note = note_it;
    assert_int_equal(cv_job_run(&j, &why), 0);
    assert_non_null(strstr(noted, "has 2 dimensions, and no dataset has as many; this one has 3"));
    assert_int_equal(unlink(path), 0);
    noted[0] = '\0';
    j = job_of(f, &chunked);
    j.note = note_it;
    j.chunk[0] = j.chunk[1] = j.chunk[2] = 2;
    assert_int_equal(cv_job_run(&j, &why), 0);
    assert_string_equal(noted, "");
    assert_int_equal(unlink(path), 0);
    fake_free(f);
}

static uint64_t chunk_bytes(const struct cv_dataset *d)
{
    uint64_t n = d->type.size_bytes;

    for (unsigned i = 0; i < d->rank; i++)
        n *= sink.chunk[0][i];
    return n;
}

/* A sink that codes chunks has three buffers for one, in a quarter of the memory. */
static void test_job_cuts_chunks_to_the_memory_and_says_so(void **state)
{
    (void)state;
    for (uint64_t seed = 70, found = 0; found < 3; seed++) {
        struct fake *f = fake_new(seed, &(struct fake_options){.datasets = 1, .rank = 2, .plain = true});
        const struct cv_dataset *d = &f->s.model->datasets[0];
        uint64_t bytes = fake_elements(d) * d->type.size_bytes;
        bool is_large = bytes > (1u << 18) / 3 && bytes <= 1u << 18;

        assert_true(seed < 2000);
        for (unsigned coded = 0; is_large && coded < 2; coded++) {
            struct cv_job j = job_of(f, &chunked);
            struct cv_fail why = {0};

            noted[0] = '\0';
            j.note = note_it;
            j.chunk[0] = d->dims[0].size;
            j.chunk[1] = d->dims[1].size + 5; /* what is beyond the array is not cut */
            j.out.codec = coded ? CV_CODEC_ZSTD : CV_CODEC_NONE;
            j.out.shuffle = coded;
            assert_int_equal(cv_job_run(&j, &why), 0);
            compare(f, seed);
            assert_true(coded ? chunk_bytes(d) <= (1u << 18) / 3 : chunk_bytes(d) == bytes);
            assert_int_equal(strstr(noted, "chunks are cut to ") != NULL, coded);
            assert_int_equal(unlink(path), 0);
        }
        found += is_large;
        fake_free(f);
    }
}

static void test_job_refuses_too_little_memory_and_places_that_are_not_there(void **state)
{
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 1, .rank = 1});
    struct cv_job j = job_of(f, &chunked);
    struct cv_fail why = {0};
    (void)state;

    j.memory_bytes = 4096;
    assert_int_equal(cv_job_run(&j, &why), -EINVAL);
    assert_non_null(strstr(why.text, "1MiB"));
    j.memory_bytes = 1u << 20;
    j.path = "/tmp/cv-job-of-nobody/there/out.h5";
    why = (struct cv_fail){0};
    assert_int_equal(cv_job_run(&j, &why), -ENOENT);
    assert_string_equal(why.file, "/tmp/cv-job-of-nobody/there");
    fake_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_writes_every_element_once),
        cmocka_unit_test(test_job_with_gaps_and_overlaps_writes_what_is_declared),
        cmocka_unit_test(test_job_refuses_gaps_under_overlaps),
        cmocka_unit_test(test_job_leaves_nothing_whatever_call_fails),
        cmocka_unit_test(test_job_leaves_nothing_at_faults_of_its_own),
        cmocka_unit_test(test_job_replaces_nothing_unless_told),
        cmocka_unit_test(test_job_takes_back_the_xdmf_file_of_a_result_without_a_name),
        cmocka_unit_test(test_job_writes_no_xdmf_file_over_what_it_reads),
        cmocka_unit_test(test_job_leaves_no_xdmf_file_of_a_result_that_replaces_nothing),
        cmocka_unit_test(test_job_takes_no_xdmf_file_of_another_dump),
        cmocka_unit_test(test_job_says_of_what_the_result_was_converted),
        cmocka_unit_test(test_job_replaces_what_is_of_the_same_source_alone),
        cmocka_unit_test(test_job_of_some_inputs_says_which_boxes_it_has),
        cmocka_unit_test(test_job_takes_a_shape_of_chunks_for_arrays_of_its_dimensions),
        cmocka_unit_test(test_job_cuts_chunks_to_the_memory_and_says_so),
        cmocka_unit_test(test_job_refuses_too_little_memory_and_places_that_are_not_there),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
