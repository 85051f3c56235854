/*
 * Overlay of slices: laying pieces over one another gives what painting the bytes one after the other gives, the result is sorted
 * and disjoint, and too many pieces are refused without damage.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/data/overlay.h"
#include "tests/unit/cl_rand.h"

#define WIN 3000u

struct paint {
    uint64_t chunk;
    uint32_t src;
};

static struct cl_overlay o;

static void check(const struct paint *want)
{
    uint32_t at = o.from;

    for (uint32_t i = 0; i < o.n; i++) {
        const struct cl_piece *p = &o.piece[i];

        assert_true(p->off >= at && p->len > 0 && p->off + p->len <= o.to);
        for (; at < p->off; at++)
            assert_int_equal(want[at].chunk, 0);
        for (; at < p->off + p->len; at++) {
            assert_int_equal(want[at].chunk, p->chunk.id);
            assert_int_equal(want[at].src, p->src_off + (at - p->off));
        }
    }
    for (; at < o.to; at++)
        assert_int_equal(want[at].chunk, 0);
}

static void test_overlay_equals_painting_bytes(void **state)
{
    static struct paint bytes[WIN];
    struct rnd r;

    (void)state;
    rnd_init(&r, rnd_seed(), 1);
    for (int round = 0; round < 3000; round++) {
        uint32_t from = rnd_below(&r, WIN - 1), to = from + 1 + rnd_below(&r, WIN - from), pieces = rnd_below(&r, 40);

        memset(bytes, 0, sizeof bytes);
        cl_overlay_init(&o, from, to);
        for (uint32_t k = 1; k <= pieces; k++) {
            uint32_t off = rnd_below(&r, WIN), most = WIN - off;
            struct cl_piece p = {.off = off, .src_off = rnd_below(&r, 100000), .chunk = {.id = k}};

            p.len = 1 + rnd_below(&r, rnd_below(&r, 3) ? (most < 60 ? most : 60) : most);
            assert_int_equal(cl_overlay_add(&o, &p), 0);
            for (uint32_t i = 0; i < p.len; i++)
                bytes[off + i] = (struct paint){k, p.src_off + i};
        }
        check(bytes);
    }
}

static void test_overlay_refuses_too_many_pieces(void **state)
{
    struct cl_piece p = {.len = 1, .chunk = {.id = 1}};

    (void)state;
    cl_overlay_init(&o, 0, 4 * CL_OVERLAY_MAX);
    for (uint32_t i = 0; i < CL_OVERLAY_MAX; i++) {
        p.off = 2 * i;
        assert_int_equal(cl_overlay_add(&o, &p), 0);
    }
    p.off = 2 * CL_OVERLAY_MAX;
    assert_int_equal(cl_overlay_add(&o, &p), -E2BIG);
    assert_int_equal(o.n, CL_OVERLAY_MAX);
    p.off = 10; /* what replaces a piece still fits */
    assert_int_equal(cl_overlay_add(&o, &p), 0);
    assert_int_equal(o.n, CL_OVERLAY_MAX);
}

static void test_overlay_ignores_what_was_not_asked_for(void **state)
{
    struct cl_piece p = {.off = 0, .len = 100, .chunk = {.id = 1}};

    (void)state;
    cl_overlay_init(&o, 100, 200);
    assert_int_equal(cl_overlay_add(&o, &p), 0);
    p.off = 200;
    assert_int_equal(cl_overlay_add(&o, &p), 0);
    assert_int_equal(o.n, 0);
    p = (struct cl_piece){.off = 50, .len = 1000, .src_off = 7, .chunk = {.id = 1}};
    assert_int_equal(cl_overlay_add(&o, &p), 0);
    assert_int_equal(o.n, 1);
    assert_int_equal(o.piece[0].off, 100);
    assert_int_equal(o.piece[0].len, 100);
    assert_int_equal(o.piece[0].src_off, 57);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlay_equals_painting_bytes),
        cmocka_unit_test(test_overlay_refuses_too_many_pieces),
        cmocka_unit_test(test_overlay_ignores_what_was_not_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
