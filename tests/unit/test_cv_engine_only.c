/* A result of some inputs alone: which are asked for, and what is said of the boxes that it has. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "convert/engine/only.h"

static void test_inputs_that_are_asked_for_are_found_among_many(void **state)
{
    enum { N = 60000 };
    struct cv_input *inputs = calloc(N, sizeof *inputs);
    const char **only = calloc(N, sizeof *only);
    struct cv_source s = {.inputs = inputs, .ninputs = N};
    char *names = calloc(N, 16);
    bool *asked;
    struct cv_fail why = {0};
    size_t n = 0;
    (void)state;

    for (size_t i = 0; i < N; i++) {
        snprintf(names + 16 * i, 16, "rank_%zu", i);
        inputs[i].path = names + 16 * i;
        if (i % 2)
            only[n++] = inputs[i].path;
    }
    only[n++] = "rank_1"; /* once more */
    assert_int_equal(cv_only_choose(&s, only, n, &asked, &why), 0);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(asked[i], i % 2);
    free(asked);
    only[0] = "./rank_1";
    assert_int_equal(cv_only_choose(&s, only, n, &asked, &why), -EINVAL);
    assert_string_equal(why.file, "./rank_1");
    free(asked);
    free(names);
    free(only);
    free(inputs);
}

/* A grid of 8 x 6 blocks of 2 x 3 elements: rows of blocks, and then rows beside rows, are one box. */
static void test_boxes_that_lie_side_by_side_are_one(void **state)
{
    struct cv_block blocks[48];
    struct cv_dataset d = {.rank = 2, .blocks = blocks, .nblocks = 48};
    bool wanted[48];
    const struct cv_attr *boxes;
    (void)state;

    memset(blocks, 0, sizeof blocks);
    for (size_t i = 0; i < 48; i++) {
        blocks[i] = (struct cv_block){.start = {2 * (i / 6), 3 * (i % 6)}, .count = {2, 3}, .stride = {1, 1}};
        wanted[i] = i >= 6 && i < 27; /* three rows and a half */
    }
    assert_int_equal(cv_only_say_boxes(&d, wanted), 0);
    boxes = cv_attrs_find(&d.attrs, "fp_boxes");
    assert_int_equal(boxes->count, 8);
    assert_memory_equal(boxes->ints, ((const int64_t[]){2, 0, 6, 18, 8, 0, 2, 9}), 8 * sizeof(int64_t));
    blocks[7].stride[0] = 2; /* what has holes is left as it is */
    assert_int_equal(cv_only_say_boxes(&d, wanted), 0);
    assert_int_equal(cv_attrs_find(&d.attrs, "fp_boxes")->count, 21 * 4);
    assert_int_equal(cv_attrs_find(&d.attrs, "fp_strides")->count, 21 * 2);
    for (size_t i = 0; i < d.attrs.count; i++) {
        free(d.attrs.items[i].name);
        free(d.attrs.items[i].ints);
    }
    free(d.attrs.items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inputs_that_are_asked_for_are_found_among_many),
        cmocka_unit_test(test_boxes_that_lie_side_by_side_are_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
