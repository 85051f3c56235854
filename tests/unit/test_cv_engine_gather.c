/* Tiles out of blocks, element by element against arrays filled one by one: random dimensions, strides, ghosts, gaps, overlaps, byte orders, tiles, and as little scratch memory as there may be. */
#include "tests/unit/cv_fake.h"

#include <math.h>

#include "convert/engine/gather.h"
#include "convert/engine/numbers.h"
#include "convert/engine/plan.h"

#define SEEDS 25u

static uint8_t scratch[1u << 18], tile_bytes[FAKE_MOST * 16 * 2];

/* A random tile of the array. */
static void random_tile(struct fake_random *r, const struct cv_dataset *d, struct cv_box *t)
{
    for (unsigned i = 0; i < d->rank; i++) {
        t->lo[i] = fake_number(r, d->dims[i].size);
        t->count[i] = 1 + fake_number(r, d->dims[i].size - t->lo[i]);
        if (fake_chance(r, 30)) {
            t->lo[i] = 0;
            t->count[i] = d->dims[i].size;
        }
    }
}

static void compare_tile(struct fake *f, size_t k, struct cv_gather *g, const struct cv_box *t, uint64_t seed)
{
    const struct cv_dataset *d = &f->s.model->datasets[k];
    uint64_t at[CV_RANK_MAX] = {0}, global[CV_RANK_MAX] = {0}, n = 0, elements = 0, have = 0;
    size_t size = d->type.size_bytes;
    struct cv_fail why = {0};

    if (cv_gather_tile(g, t, tile_bytes, &elements, &why) != 0)
        fail_msg("seed %llu, dataset %zu: %s", (unsigned long long)seed, k, why.text);
    do {
        for (unsigned i = 0; i < d->rank; i++)
            global[i] = t->lo[i] + at[i];
        if (memcmp(tile_bytes + n * size, f->expect[k] + fake_place(d, global) * size, size) != 0)
            fail_msg("seed %llu, dataset %zu: element %llu of a tile is wrong", (unsigned long long)seed, k, (unsigned long long)n);
        have += f->there[k][fake_place(d, global)] != 0;
        n++;
    } while (fake_next(at, t->count, d->rank));
    assert_int_equal(elements, have);
}

static void gather_all(const struct fake_options *o, uint64_t first_seed)
{
    for (uint64_t seed = first_seed; seed < first_seed + SEEDS; seed++) {
        struct fake *f = fake_new(seed, o);
        struct fake_random r = {seed + 77777};

        for (size_t k = 0; k < f->s.model->ndatasets; k++) {
            const struct cv_dataset *d = &f->s.model->datasets[k];
            struct cv_gather *g = cv_gather_new(&f->s, d, NULL, scratch, fake_chance(&r, 50) ? CV_SCRATCH_MIN_BYTES : sizeof scratch);
            struct cv_box t = {{0}, {0}};

            assert_non_null(g);
            for (unsigned i = 0; i < 6 && fake_elements(d); i++) {
                random_tile(&r, d, &t);
                compare_tile(f, k, g, &t, seed);
            }
            cv_gather_free(g);
        }
        fake_free(f);
    }
}

static void test_gather_takes_every_element_from_its_block(void **state)
{
    (void)state;
    for (unsigned rank = 0; rank <= CV_RANK_MAX; rank++)
        gather_all(&(struct fake_options){.datasets = 1, .rank = rank}, 1000 * rank);
    gather_all(&(struct fake_options){.datasets = 2, .rank = CV_RANK_MAX + 1, .plain = true}, 20000);
}

static void test_gather_fills_gaps(void **state)
{
    (void)state;
    gather_all(&(struct fake_options){.datasets = 2, .rank = CV_RANK_MAX + 1, .gaps = true}, 30000);
}

static void test_gather_lets_the_last_of_overlapping_blocks_win(void **state)
{
    (void)state;
    gather_all(&(struct fake_options){.datasets = 2, .rank = CV_RANK_MAX + 1, .gaps = true, .overlaps = true}, 40000);
}

static void test_gather_of_boxes_is_the_same(void **state)
{
    (void)state;
    gather_all(&(struct fake_options){.datasets = 2, .rank = CV_RANK_MAX + 1, .boxes = true}, 50000);
    gather_all(&(struct fake_options){.datasets = 1, .rank = CV_RANK_MAX + 1, .boxes = true, .gaps = true, .overlaps = true}, 60000);
}

static void test_gather_leaves_out_blocks_that_are_not_wanted(void **state)
{
    struct fake *f = fake_new(3, &(struct fake_options){.datasets = 1, .rank = 2});
    struct cv_dataset *d = &f->s.model->datasets[0];
    bool *wanted = calloc(d->nblocks, sizeof *wanted);
    struct cv_box all = {{0}, {d->dims[0].size, d->dims[1].size}};
    struct cv_fail why = {0};
    struct cv_gather *g;
    uint64_t elements, last = d->nblocks - 1;
    (void)state;

    assert_non_null(wanted);
    wanted[last] = true;
    g = cv_gather_new(&f->s, d, wanted, scratch, sizeof scratch);
    assert_int_equal(cv_gather_tile(g, &all, tile_bytes, &elements, &why), 0);
    assert_int_equal(elements, d->blocks[last].count[0] * d->blocks[last].count[1]);
    cv_gather_free(g);
    free(wanted);
    fake_free(f);
}

static void test_gather_passes_up_each_failed_read(void **state)
{
    struct fake *f = fake_new(5, &(struct fake_options){.datasets = 1, .rank = 3});
    struct cv_dataset *d = &f->s.model->datasets[0];
    struct cv_gather *g = cv_gather_new(&f->s, d, NULL, scratch, CV_SCRATCH_MIN_BYTES);
    struct cv_box all = {{0}, {d->dims[0].size, d->dims[1].size, d->dims[2].size}};
    unsigned n = 0;
    uint64_t elements;
    int rc;
    (void)state;

    do {
        struct cv_fail why = {0};

        f->calls = 0;
        f->fail_at = ++n;
        rc = cv_gather_tile(g, &all, tile_bytes, &elements, &why);
        assert_true(rc == 0 || (rc == -EIO && strcmp(why.file, "in-a") == 0 && strcmp(why.dataset, d->name) == 0 && why.offset_bytes == 7));
    } while (rc);
    assert_true(n > 1);
    cv_gather_free(g);
    fake_free(f);
}

/* ---------------------------------------------------------------- NaN */

static void put(const struct cv_dataset *d, uint8_t *to, double v)
{
    unsigned half = d->type.kind == CV_COMPLEX ? d->type.size_bytes / 2 : d->type.size_bytes;
    float small = (float)v;
    uint8_t bytes[8];

    memcpy(bytes, half == 4 ? (void *)&small : (void *)&v, half);
    for (unsigned i = 0; i < half; i++)
        to[i] = bytes[d->type.big_endian ? half - 1 - i : i];
}

/* Everything, ghosts too, becomes this. */
static void put_all(struct fake *f, const struct cv_dataset *d, double v)
{
    unsigned half = d->type.kind == CV_COMPLEX ? d->type.size_bytes / 2 : d->type.size_bytes;

    for (size_t k = 0; k < d->nblocks; k++) {
        const struct cv_block *b = &d->blocks[k];
        uint64_t n = d->type.size_bytes;

        for (unsigned i = 0; i < d->rank; i++)
            n *= cv_block_stored(b, i);
        for (uint64_t at = 0; at < n; at += half)
            put(d, f->bytes[b->input] + b->offset_bytes + at, v);
    }
}

static int nan_run(struct fake *f, const char *word, bool big, bool imaginary, struct cv_fail *why, uint64_t *off)
{
    struct cv_dataset *d = &f->s.model->datasets[0];
    struct cv_box all = {{0}, {0}};
    struct cv_gather *g;
    uint64_t elements, at[CV_RANK_MAX] = {0};
    const struct cv_block *b = &d->blocks[d->nblocks / 2];
    int rc;

    d->type.big_endian = big;
    assert_int_equal(cv_type_parse(word, &d->type), 0);
    d->nan = CV_NAN_REFUSE;
    for (unsigned i = 0; i < d->rank; i++) {
        all.count[i] = d->dims[i].size;
        at[i] = b->count[i] / 2;
    }
    put_all(f, d, 1.0);
    *off = fake_offset(d, b, at);
    put(d, f->bytes[b->input] + *off + (imaginary ? d->type.size_bytes / 2 : 0), NAN);
    g = cv_gather_new(&f->s, d, NULL, scratch, sizeof scratch);
    rc = cv_gather_tile(g, &all, tile_bytes, &elements, why);
    cv_gather_free(g);
    return rc;
}

static void test_gather_refuses_nan_and_says_where(void **state)
{
    static const char *const words[] = {"float32", "float64", "complex64", "complex128"};
    (void)state;

    for (unsigned i = 0; i < 16; i++) {
        struct fake *f;
        struct cv_fail why = {0};
        uint64_t off, seed = 900 + i;

        do /* bytes of 16 for each element, so that every type has room */
            f = fake_new(seed, &(struct fake_options){.datasets = 1, .rank = 1 + i % 3});
        while ((f->s.model->datasets[0].type.size_bytes != 16 || f->s.model->datasets[0].nblocks == 0) && (fake_free(f), seed += 100));
        assert_int_equal(nan_run(f, words[i % 4], i & 4, i & 2 && i & 8, &why, &off), -EDOM);
        assert_int_equal(why.offset_bytes, off);
        assert_string_equal(why.dataset, "/d0");
        assert_string_equal(why.file, f->inputs[f->s.model->datasets[0].blocks[f->s.model->datasets[0].nblocks / 2].input].path);
        fake_free(f);
    }
}

/* 3 x 4 doubles with a row of ghosts on each side, all of which are NaN, and an infinity inside. */
static void test_gather_lets_infinities_and_ghosts_pass(void **state)
{
    uint64_t seed = 2;
    struct fake *f;
    struct cv_dataset *d;
    struct cv_fail why = {0};
    struct cv_box all = {{0}, {0}};
    struct cv_gather *g;
    uint64_t elements, at[CV_RANK_MAX] = {0};
    (void)state;

    do
        f = fake_new(seed, &(struct fake_options){.datasets = 1, .rank = 2});
    while ((strcmp(cv_type_name(f->s.model->datasets[0].type), "float64") != 0 || f->s.model->datasets[0].nblocks == 0) && (fake_free(f), seed++));
    d = &f->s.model->datasets[0];
    d->nan = CV_NAN_REFUSE;
    put_all(f, d, NAN);
    for (size_t k = 0; k < d->nblocks; k++) {
        memset(at, 0, sizeof at);
        do
            put(d, f->bytes[d->blocks[k].input] + fake_offset(d, &d->blocks[k], at), at[0] % 2 ? INFINITY : -INFINITY);
        while (fake_next(at, d->blocks[k].count, d->rank));
    }
    for (unsigned i = 0; i < d->rank; i++)
        all.count[i] = d->dims[i].size;
    g = cv_gather_new(&f->s, d, NULL, scratch, sizeof scratch);
    assert_int_equal(cv_gather_tile(g, &all, tile_bytes, &elements, &why), 0);
    cv_gather_free(g);
    fake_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather_takes_every_element_from_its_block),
        cmocka_unit_test(test_gather_fills_gaps),
        cmocka_unit_test(test_gather_lets_the_last_of_overlapping_blocks_win),
        cmocka_unit_test(test_gather_of_boxes_is_the_same),
        cmocka_unit_test(test_gather_leaves_out_blocks_that_are_not_wanted),
        cmocka_unit_test(test_gather_passes_up_each_failed_read),
        cmocka_unit_test(test_gather_refuses_nan_and_says_where),
        cmocka_unit_test(test_gather_lets_infinities_and_ghosts_pass),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
