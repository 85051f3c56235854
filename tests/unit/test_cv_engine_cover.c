/* Do blocks make up their array: against a count for each element, with strides, and of a grid of many blocks; shapes of chunks and slabs. */
#include "tests/unit/cv_fake.h"

#include <time.h>

#include "convert/engine/box.h"
#include "convert/engine/cover.h"
#include "convert/engine/plan.h"

#define SEEDS 200u

static void counts(const struct fake *f, bool *twice, bool *missing)
{
    const struct cv_dataset *d = &f->s.model->datasets[0];

    *twice = *missing = false;
    for (uint64_t i = 0; i < fake_elements(d); i++) {
        *twice |= f->there[0][i] > 1;
        *missing |= f->there[0][i] == 0;
    }
}

/* Of all combinations of holes, overlaps, and what the schema says of them. */
static void test_cover_says_what_a_count_of_each_element_says(void **state)
{
    unsigned seen[2][2] = {{0}};
    (void)state;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fake *f = fake_new(seed, &(struct fake_options){.datasets = 1, .rank = CV_RANK_MAX + 1, .gaps = seed & 1, .overlaps = (seed & 6) == 6, .plain = seed & 8});
        struct cv_dataset *d = &f->s.model->datasets[0];
        bool twice, missing, whole;

        counts(f, &twice, &missing);
        seen[twice][missing]++;
        for (unsigned say = 0; say < 4; say++) {
            struct cv_fail why = {0};
            int rc;

            d->gaps = say & 1 ? CV_GAPS_FILL : CV_GAPS_REFUSE;
            d->overlap = say & 2 ? CV_OVERLAP_LAST : CV_OVERLAP_REFUSE;
            rc = cv_cover_check(&f->s, d, &whole, &why);
            if (say & 2)
                assert_int_equal(rc, 0); /* tiles count for themselves then */
            else
                assert_int_equal(rc, twice || (missing && !(say & 1)) ? -EINVAL : 0);
            assert_true(rc == 0 || (why.text[0] && strcmp(why.dataset, "/d0") == 0));
            if (rc == 0 && !(say & 2))
                assert_int_equal(whole, !missing);
        }
        fake_free(f);
    }
    for (unsigned i = 0; i < 4; i++)
        assert_true(seen[i / 2][i % 2] > 5);
}

static struct cv_block *block(struct cv_dataset *d, uint64_t y, uint64_t ny, uint64_t x, uint64_t nx)
{
    struct cv_block *b = cv_dataset_block(d);

    assert_non_null(b);
    b->start[0] = y;
    b->count[0] = ny;
    b->start[1] = x;
    b->count[1] = nx;
    return b;
}

static struct fake *plane(uint64_t ny, uint64_t nx)
{
    struct fake *f = fake_new(1, &(struct fake_options){.datasets = 0});
    struct cv_dataset *d = cv_model_add(f->s.model, "/p");

    d->type = (struct cv_type){CV_INT, 4, false};
    d->rank = 2;
    d->dims[0].size = ny;
    d->dims[1].size = nx;
    return f;
}

static void test_cover_names_both_files_of_an_overlap(void **state)
{
    struct fake *f = plane(10, 10);
    struct cv_dataset *d = &f->s.model->datasets[0];
    struct cv_fail why = {0};
    bool whole;
    (void)state;

    block(d, 0, 6, 0, 10)->input = 0;
    block(d, 5, 5, 0, 10)->input = 2;
    assert_int_equal(cv_cover_check(&f->s, d, &whole, &why), -EINVAL);
    assert_string_equal(why.file, "in-c");
    assert_non_null(strstr(why.text, "in-a"));
    assert_non_null(strstr(why.text, "[5, 0]"));
    fake_free(f);
}

static void test_cover_says_the_first_element_that_is_missing(void **state)
{
    struct fake *f = plane(10, 10);
    struct cv_dataset *d = &f->s.model->datasets[0];
    struct cv_fail why = {0};
    bool whole;
    (void)state;

    block(d, 0, 4, 0, 10);
    block(d, 4, 6, 0, 7);
    block(d, 6, 4, 7, 3);
    assert_int_equal(cv_cover_check(&f->s, d, &whole, &why), -EINVAL);
    assert_non_null(strstr(why.text, "6 of its 100 elements"));
    assert_non_null(strstr(why.text, "[4, 7]"));
    fake_free(f);
}

static void test_cover_refuses_blocks_that_are_not_inside(void **state)
{
    static const uint64_t wrong[][3] = {{11, 1, 1}, {10, 1, 1}, {0, 11, 1}, {1, 10, 1}, {0, 6, 2}, {1, UINT64_MAX, 1}, {UINT64_MAX, 2, 1}, {0, 2, UINT64_MAX}, {0, 2, 0}, {9, 2, 1}, {0, 3, 5}};
    (void)state;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct fake *f = plane(10, 10);
        struct cv_dataset *d = &f->s.model->datasets[0];
        struct cv_fail why = {0};
        bool whole;

        block(d, wrong[i][0], wrong[i][1], 0, 10)->stride[0] = wrong[i][2];
        d->gaps = CV_GAPS_FILL;
        d->overlap = CV_OVERLAP_LAST;
        assert_int_equal(cv_cover_check(&f->s, d, &whole, &why), -EINVAL);
        assert_non_null(strstr(why.text, "not inside"));
        fake_free(f);
    }
}

static double seconds_of(uint64_t (*grid)[3], const uint64_t *each, bool drop, int expected, const char *words)
{
    struct fake *f = plane(1, 1);
    struct cv_dataset *d = &f->s.model->datasets[0];
    struct cv_fail why = {0};
    struct timespec a, b;
    uint64_t at[CV_RANK_MAX] = {0};
    bool whole;

    d->rank = 3;
    for (unsigned i = 0; i < 3; i++)
        d->dims[i].size = (*grid)[i] * each[i];
    do {
        struct cv_block *k;

        if (drop && at[0] == (*grid)[0] - 1 && at[1] == 3 && at[2] == 1)
            continue;
        k = cv_dataset_block(d);
        for (unsigned i = 0; i < 3; i++) {
            k->start[i] = at[i] * each[i];
            k->count[i] = each[i];
        }
    } while (fake_next(at, *grid, 3));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    assert_int_equal(cv_cover_check(&f->s, d, &whole, &why), expected);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    if (words)
        assert_non_null(strstr(why.text, words));
    fake_free(f);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

/* 10^5 blocks take eight times as long as an eighth of them, about: each with each other one would be 64 times, and minutes. */
static void test_cover_of_many_blocks_of_a_grid_is_fast(void **state)
{
    uint64_t flat[2][3] = {{1, 400, 250}, {1, 100, 125}}, cube[2][3] = {{48, 46, 46}, {24, 23, 23}};
    double few;
    (void)state;

    few = seconds_of(&flat[1], (uint64_t[]){16, 8, 8}, false, 0, NULL);
    assert_true(seconds_of(&flat[0], (uint64_t[]){16, 8, 8}, false, 0, NULL) < 25 * few + 0.1);
    few = seconds_of(&cube[1], (uint64_t[]){16, 8, 8}, false, 0, NULL);
    assert_true(seconds_of(&cube[0], (uint64_t[]){16, 8, 8}, false, 0, NULL) < 25 * few + 0.1);
    few = seconds_of(&cube[1], (uint64_t[]){4, 4, 4}, true, -EINVAL, "64 of its");
    assert_true(seconds_of(&cube[0], (uint64_t[]){4, 4, 4}, true, -EINVAL, "64 of its") < 25 * few + 0.1);
}

/* ---------------------------------------------------------------- shapes */

static uint64_t product(const uint64_t *shape, unsigned rank)
{
    uint64_t n = 1;

    for (unsigned i = 0; i < rank; i++)
        n *= shape[i];
    return n;
}

static void test_plan_keeps_to_the_limit_and_to_the_array(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fake *f = fake_new(seed, &(struct fake_options){.datasets = 1, .rank = CV_RANK_MAX + 1, .plain = seed & 1});
        const struct cv_dataset *d = &f->s.model->datasets[0];
        struct fake_random r = {seed};
        uint64_t limit = 16 + fake_number(&r, 100000), chunk[CV_RANK_MAX], slab[CV_RANK_MAX], wanted[CV_RANK_MAX];

        for (unsigned i = 0; i < CV_RANK_MAX; i++)
            wanted[i] = 1 + fake_number(&r, 50);
        for (unsigned user = 0; user < 2; user++) {
            cv_plan_chunk(d, user ? wanted : NULL, limit, chunk);
            for (unsigned i = 0; i < d->rank; i++)
                assert_true(fake_elements(d) == 0 ? chunk[i] == 0 : chunk[i] >= 1 && chunk[i] <= d->dims[i].size && (!user || chunk[i] <= wanted[i]));
            assert_true(product(chunk, d->rank) * d->type.size_bytes <= limit);
            if (!user && d->rank && d->dims[0].steps && d->dims[0].size && product(chunk + 1, d->rank - 1) * d->type.size_bytes >= CV_STEP_MIN_BYTES)
                assert_int_equal(chunk[0], 1);
        }
        cv_plan_slab(d, limit, slab);
        assert_true(product(slab, d->rank) * d->type.size_bytes <= limit);
        for (unsigned i = 0, cutted = 0; i < d->rank; i++) { /* one dimension is cut, those before it are gone through one by one, those behind it are whole */
            assert_true(!cutted || slab[i] == (d->dims[i].size ? d->dims[i].size : 1));
            cutted = cutted || slab[i] > 1;
        }
        fake_free(f);
    }
}

/* Blocks of 64^3 doubles, 2 MiB: a chunk each; of 128^3, 16 MiB: a chunk is a contiguous piece of one. */
static void test_plan_gives_regular_blocks_chunks_that_are_pieces_of_them(void **state)
{
    (void)state;
    for (uint64_t side = 64; side <= 256; side *= 2) {
        struct fake *f = plane(1, 1);
        struct cv_dataset *d = &f->s.model->datasets[0];
        uint64_t grid[3] = {2, 2, 2}, at[3] = {0}, chunk[CV_RANK_MAX];

        d->type = (struct cv_type){CV_FLOAT, 8, false};
        d->rank = 3;
        do {
            struct cv_block *b = cv_dataset_block(d);

            for (unsigned i = 0; i < 3; i++) {
                d->dims[i].size = 2 * side;
                b->start[i] = at[i] * side;
                b->count[i] = side;
            }
        } while (fake_next(at, grid, 3));
        cv_plan_chunk(d, NULL, 64u << 20, chunk);
        assert_int_equal(chunk[2], side);
        assert_int_equal(chunk[1], side);
        assert_int_equal(side % chunk[0], 0);
        assert_true(product(chunk, 3) * 8 <= CV_CHUNK_MAX_BYTES && product(chunk, 3) * 8 >= 1u << 20);
        fake_free(f);
    }
}

static uint64_t chunks[2][CV_RANK_MAX];

static void rename_it(char **name, const char *to)
{
    free(*name);
    *name = strdup(to);
    assert_non_null(*name);
}

/* One thing of two equal models, in turns. False: there are no more. */
static bool change(struct cv_model *m, unsigned what)
{
    struct cv_dataset *d = &m->datasets[1];

    switch (what) {
    case 0: rename_it(&d->name, "/d2"); return true;
    case 1: d->type.size_bytes = d->type.size_bytes == 8 ? 16 : 8; return true;
    case 2: d->type.kind = d->type.kind == CV_INT ? CV_UINT : CV_INT; return true;
    case 3: d->dims[1].size++; return true;
    case 4: rename_it(&d->dims[0].name, "z"); return true;
    case 5: d->dims[0].steps = !d->dims[0].steps; return true;
    case 6: chunks[1][0]++; return true;
    case 7: d->has_fill = !d->has_fill; return true;
    case 8: d->fill += 1; return true;
    case 9: d->gaps = d->gaps == CV_GAPS_FILL ? CV_GAPS_REFUSE : CV_GAPS_FILL; return true;
    case 10: return cv_attrs_text(&d->attrs, "units", "m") == 0;
    case 11: return cv_attrs_ints(&m->attrs, "n", (const int64_t[]){1, 2}, 2) == 0;
    case 12: return cv_attrs_ints(&m->attrs, "n", (const int64_t[]){1, 3}, 2) == 0;
    case 13: return cv_attrs_floats(&m->attrs, "n", (const double[]){1, 3}, 2) == 0;
    case 14: return cv_attrs_text(&m->attrs, "title", "") == 0;
    case 15: d->rank = 1; return true;
    case 16: m->ndatasets = 1; return true;
    default: return false;
    }
}

static void test_plan_tells_files_that_would_differ(void **state)
{
    struct fake *f = fake_new(62, &(struct fake_options){.datasets = 2, .rank = 2}), *same = fake_new(62, &(struct fake_options){.datasets = 2, .rank = 2});
    uint64_t sums[32];
    unsigned n = 0;
    (void)state;

    do {
        sums[n] = cv_plan_sum(f->s.model, (const uint64_t(*)[CV_RANK_MAX])chunks);
        for (unsigned i = 0; i < n; i++)
            assert_true(sums[i] != sums[n]);
        if (n == 0)
            assert_true(cv_plan_sum(same->s.model, (const uint64_t(*)[CV_RANK_MAX])chunks) == sums[0]);
    } while (change(f->s.model, n++));
    assert_int_equal(n, 18);
    f->s.model->ndatasets = 2;
    fake_free(f);
    fake_free(same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cover_says_what_a_count_of_each_element_says),
        cmocka_unit_test(test_cover_names_both_files_of_an_overlap),
        cmocka_unit_test(test_cover_says_the_first_element_that_is_missing),
        cmocka_unit_test(test_cover_refuses_blocks_that_are_not_inside),
        cmocka_unit_test(test_cover_of_many_blocks_of_a_grid_is_fast),
        cmocka_unit_test(test_plan_keeps_to_the_limit_and_to_the_array),
        cmocka_unit_test(test_plan_gives_regular_blocks_chunks_that_are_pieces_of_them),
        cmocka_unit_test(test_plan_tells_files_that_would_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
