/* Scratch memory: what was given back is given out again, only so much is kept, and what nobody needs goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/data/scratch.h"
#include "fp/record.h"

#define MIB (1u << 20)

static void test_scratch_is_used_again(void **state)
{
    struct cl_scratch s;
    void *p, *q;

    (void)state;
    cl_scratch_init(&s);
    p = cl_scratch_get(&s, MIB + 5000);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 4096, 0);
    memset(p, 1, MIB + 5000);
    cl_scratch_put(&s, p, MIB + 5000);
    assert_ptr_equal(cl_scratch_get(&s, 17), p); /* of the same class */
    q = cl_scratch_get(&s, FP_STORED_MAX_BYTES);
    memset(q, 1, FP_STORED_MAX_BYTES);
    cl_scratch_put(&s, q, FP_STORED_MAX_BYTES);
    cl_scratch_put(&s, p, 17);
    assert_ptr_equal(cl_scratch_get(&s, 2 * MIB), q);
    cl_scratch_put(&s, q, 2 * MIB);
    cl_scratch_put(&s, NULL, MIB);
    assert_null(cl_scratch_get(&s, 2 * FP_STORED_MAX_BYTES));
    cl_scratch_fini(&s);
}

static void test_scratch_keeps_only_so_much_and_lets_it_go(void **state)
{
    void *p[CL_SCRATCH_KEPT_MAX + 4];
    struct cl_scratch s;

    (void)state;
    cl_scratch_init(&s);
    for (unsigned i = 0; i < CL_SCRATCH_KEPT_MAX + 4; i++)
        p[i] = cl_scratch_get(&s, MIB);
    for (unsigned i = 0; i < CL_SCRATCH_KEPT_MAX + 4; i++)
        cl_scratch_put(&s, p[i], MIB);
    assert_int_equal(s.class[0].nkept, CL_SCRATCH_KEPT_MAX);
    cl_scratch_tick(&s); /* all of them were needed since the one before */
    assert_int_equal(s.class[0].nkept, CL_SCRATCH_KEPT_MAX);
    for (unsigned i = 1; i <= CL_SCRATCH_KEPT_MAX - 1; i++) {
        p[0] = cl_scratch_get(&s, MIB); /* one is in use all the time */
        cl_scratch_put(&s, p[0], MIB);
        cl_scratch_tick(&s);
        assert_int_equal(s.class[0].nkept, CL_SCRATCH_KEPT_MAX - i);
    }
    p[0] = cl_scratch_get(&s, MIB);
    cl_scratch_put(&s, p[0], MIB);
    cl_scratch_tick(&s);
    assert_int_equal(s.class[0].nkept, 1);
    cl_scratch_tick(&s);
    assert_int_equal(s.class[0].nkept, 0);
    cl_scratch_tick(&s);
    cl_scratch_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scratch_is_used_again),
        cmocka_unit_test(test_scratch_keeps_only_so_much_and_lets_it_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
