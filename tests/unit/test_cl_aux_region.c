/*
 * Room in the region: buffers never overlap, come back whole or by their end, and all of it can be used again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/aux/region.h"

#define BASE  (1u << 20)
#define UNITS 100u

static int set_up(void **state)
{
    static struct aux_region r;

    assert_int_equal(cl_aux_region_init(&r, BASE, UNITS * AUX_UNIT_BYTES + 17), 0);
    *state = &r;
    return 0;
}

static int tear_down(void **state)
{
    cl_aux_region_fini(*state);
    return 0;
}

static void test_region_gives_contiguous_room_until_it_is_full(void **state)
{
    struct aux_region *r = *state;
    uint64_t off[10], none;

    for (unsigned i = 0; i < 10; i++) {
        assert_true(cl_aux_region_get(r, 10 * AUX_UNIT_BYTES - 5, &off[i]));
        assert_int_equal(off[i], BASE + i * 10 * AUX_UNIT_BYTES);
    }
    assert_false(cl_aux_region_get(r, 1, &none));
    cl_aux_region_put(r, off[3], 10 * AUX_UNIT_BYTES - 5);
    assert_false(cl_aux_region_get(r, 10 * AUX_UNIT_BYTES + 1, &none));
    assert_true(cl_aux_region_get(r, 10 * AUX_UNIT_BYTES, &none));
    assert_int_equal(none, off[3]);
}

static void test_region_takes_the_end_of_a_buffer_back(void **state)
{
    struct aux_region *r = *state;
    uint64_t off, other;

    assert_true(cl_aux_region_get(r, 100 * AUX_UNIT_BYTES, &off));
    cl_aux_region_put(r, off + 40 * AUX_UNIT_BYTES, 60 * AUX_UNIT_BYTES);
    assert_true(cl_aux_region_get(r, 60 * AUX_UNIT_BYTES, &other));
    assert_int_equal(other, off + 40 * AUX_UNIT_BYTES);
    cl_aux_region_put(r, off, 40 * AUX_UNIT_BYTES);
    cl_aux_region_put(r, other, 60 * AUX_UNIT_BYTES);
    assert_int_equal(r->used, 0);
}

static void test_region_random_buffers_never_overlap(void **state)
{
    struct aux_region *r = *state;
    struct { uint64_t off; uint32_t n; } got[UNITS];
    unsigned char owner[UNITS];
    unsigned count = 0, refused = 0;

    memset(owner, 0, sizeof(owner));
    srandom(7);
    for (int round = 0; round < 20000; round++) {
        uint32_t n = 1 + (uint32_t)(random() % 12);

        if (random() % 2 && count > 0) {
            unsigned k = (unsigned)random() % count;
            uint32_t first = (uint32_t)((got[k].off - BASE) / AUX_UNIT_BYTES);

            memset(owner + first, 0, got[k].n);
            cl_aux_region_put(r, got[k].off, (uint64_t)got[k].n * AUX_UNIT_BYTES);
            got[k] = got[--count];
        } else if (cl_aux_region_get(r, (uint64_t)n * AUX_UNIT_BYTES, &got[count].off)) {
            uint32_t first = (uint32_t)((got[count].off - BASE) / AUX_UNIT_BYTES);

            assert_true(first + n <= UNITS);
            for (uint32_t i = first; i < first + n; i++)
                assert_int_equal(owner[i], 0);
            memset(owner + first, 1, n);
            got[count++].n = n;
        } else {
            refused++;
        }
    }
    assert_true(refused > 0);
    while (count-- > 0)
        cl_aux_region_put(r, got[count].off, (uint64_t)got[count].n * AUX_UNIT_BYTES);
    assert_int_equal(r->used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_region_gives_contiguous_room_until_it_is_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_region_takes_the_end_of_a_buffer_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_region_random_buffers_never_overlap, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
