/* Pieces of a window (auxapps/host/pieces.c): what is accepted, and random lists against a model that reads bytes through them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "auxapps/host/pieces.h"

#define NEW FP_AUXW_PIECE_NEW
#define ZERO FP_AUXW_PIECE_ZERO
#define SAME FP_AUXW_PIECE_SAME
#define STORED FP_AUXW_PIECE_STORED

static struct aux_pieces p, q, r;

static void test_pieces_come_in_order_and_cover_all(void **state)
{
    (void)state;
    aux_pieces_init(&p, 100, 0, false);
    assert_int_equal(aux_pieces_add(&p, NEW, 1, 10, 0, 0), -EINVAL);
    assert_int_equal(aux_pieces_add(&p, NEW, 0, 0, 0, 0), -EINVAL);
    assert_int_equal(aux_pieces_add(&p, NEW, 0, 101, 0, 0), -EINVAL);
    assert_int_equal(aux_pieces_add(&p, NEW, 0, 40, 0, 0), 0);
    assert_int_equal(aux_pieces_add(&p, NEW, 30, 10, 0, 0), -EINVAL);
    assert_int_equal(aux_pieces_end(&p), -EINVAL);
    assert_int_equal(aux_pieces_add(&p, STORED, 40, 60, 7, 0), -EINVAL);
    assert_int_equal(aux_pieces_add(&p, STORED, 40, 60, UINT32_MAX - 10, 9), -EINVAL);
    assert_int_equal(aux_pieces_add(&p, STORED, 40, 60, 7, 9), 0);
    assert_int_equal(aux_pieces_end(&p), 0);
    assert_int_equal(aux_pieces_add(&p, NEW, 100, 1, 0, 0), -EINVAL);
    assert_int_equal(p.new_bytes, 40);
}

static void test_same_is_of_new_bytes_before_it(void **state)
{
    (void)state;
    aux_pieces_init(&p, 1000, 0, false);
    assert_int_equal(aux_pieces_add(&p, SAME, 0, 10, 0, 0), -EINVAL);
    assert_int_equal(aux_pieces_add(&p, ZERO, 0, 100, 0, 0), 0);
    assert_int_equal(aux_pieces_add(&p, NEW, 100, 100, 0, 0), 0);
    assert_int_equal(aux_pieces_add(&p, SAME, 200, 50, 20, 0), -EINVAL);    /* of zeros */
    assert_int_equal(aux_pieces_add(&p, SAME, 200, 50, 90, 0), -EINVAL);    /* begins in zeros */
    assert_int_equal(aux_pieces_add(&p, SAME, 200, 50, 160, 0), -EINVAL);   /* reaches into itself */
    assert_int_equal(aux_pieces_add(&p, SAME, 200, 50, 150, 0), 0);
    assert_int_equal(p.v[2].at, 50);
    assert_int_equal(aux_pieces_new_at(&p, 150), 50);
}

static void test_neighbours_become_one(void **state)
{
    (void)state;
    aux_pieces_init(&p, 1000, 0, false);
    for (uint32_t off = 0; off < 400; off += 100)
        assert_int_equal(aux_pieces_add(&p, NEW, off, 100, 0, 0), 0);
    assert_int_equal(p.n, 1);
    assert_int_equal(aux_pieces_add(&p, STORED, 400, 100, 0, 5), 0);
    assert_int_equal(aux_pieces_add(&p, STORED, 500, 100, 100, 5), 0);
    assert_int_equal(p.n, 2);
    assert_int_equal(aux_pieces_add(&p, STORED, 600, 100, 200, 6), 0);      /* another chunk */
    assert_int_equal(aux_pieces_add(&p, STORED, 700, 100, 400, 6), 0);      /* does not go on there */
    assert_int_equal(p.n, 4);
    assert_int_equal(aux_pieces_add(&p, ZERO, 800, 100, 0, 0), 0);
    assert_int_equal(aux_pieces_add(&p, ZERO, 900, 100, 0, 0), 0);
    assert_int_equal(p.n, 5);
}

static void test_there_are_64_a_mib(void **state)
{
    int rc = 0;
    uint32_t n = 0;

    (void)state;
    aux_pieces_init(&p, 1u << 20, 0, false);
    for (; rc == 0; n++)
        rc = aux_pieces_add(&p, n % 2 ? ZERO : NEW, n * 100, 100, 0, 0);
    assert_int_equal(rc, -ENOSPC);
    assert_int_equal(p.n, 64);
    aux_pieces_init(&p, 16u << 20, 0, false);
    assert_int_equal(p.limit, FP_AUXW_PIECES_MAX);
}

/* -------------------------------------------------------------- the model */

static uint32_t seed;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static uint8_t stored_byte(uint64_t chunk, uint32_t off)
{
    return (uint8_t)(chunk * 31 + off * 7);
}

/* Random pieces of `bytes`. */
static void make(struct aux_pieces *v, uint32_t bytes)
{
    uint32_t off = 0;

    aux_pieces_init(v, bytes, 0, false);
    while (off < bytes) {
        uint32_t len = 1 + rnd(bytes / 8 + 1), kind = rnd(4);

        if (len > bytes - off)
            len = bytes - off;
        if (v->n + 1 >= v->limit)
            len = bytes - off;
        if (kind == SAME && (off == 0 || aux_pieces_add(v, SAME, off, len, rnd(off), 0) < 0))
            kind = NEW;
        if (kind != SAME)
            assert_int_equal(aux_pieces_add(v, kind, off, len, rnd(1000), kind == STORED ? 1 + rnd(3) : 0), 0);
        off += len;
    }
    assert_int_equal(aux_pieces_end(v), 0);
}

static void expand(const struct aux_pieces *v, const uint8_t *fresh, uint8_t *out)
{
    for (uint32_t i = 0; i < v->n; i++) {
        for (uint32_t k = 0; k < v->v[i].len_bytes; k++) {
            const struct fp_auxw_piece *e = &v->v[i];

            out[e->off + k] = e->kind == ZERO ? 0 : e->kind == STORED ? stored_byte(e->chunk, e->at + k) : fresh[e->at + k];
        }
    }
}

static void test_composed_pieces_read_the_same_bytes(void **state)
{
    static uint8_t fresh[4096], mid[4096], window[4096], again[4096], packed[4096];
    uint32_t composed = 0;

    (void)state;
    for (uint32_t round = 1; round < 20000 && composed < 3000; round++) {
        seed = round * 2654435761u;
        uint32_t bytes = 1 + rnd(sizeof(window));
        struct fp_aux_part part[3];

        make(&p, bytes);
        if (p.new_bytes == 0)
            continue;
        make(&q, p.new_bytes);
        for (uint32_t i = 0; i < sizeof(fresh); i++)
            fresh[i] = (uint8_t)rnd(256);
        expand(&q, fresh, mid);
        expand(&p, mid, window);
        uint32_t a = rnd(bytes), b = a + rnd(bytes - a);

        part[0] = (struct fp_aux_part){window, a};
        part[1] = (struct fp_aux_part){window + a, b - a};
        part[2] = (struct fp_aux_part){window + b, bytes - b};
        aux_pieces_pack(&p, part, 3, packed);
        assert_memory_equal(packed, mid, p.new_bytes);
        if (aux_pieces_compose(&p, &q, &r) < 0)
            continue;
        composed++;
        assert_int_equal(aux_pieces_end(&r), 0);
        assert_int_equal(r.new_bytes, q.new_bytes);
        expand(&r, fresh, again);
        assert_memory_equal(again, window, bytes);
    }
    assert_int_equal(composed, 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_come_in_order_and_cover_all),
        cmocka_unit_test(test_same_is_of_new_bytes_before_it),
        cmocka_unit_test(test_neighbours_become_one),
        cmocka_unit_test(test_there_are_64_a_mib),
        cmocka_unit_test(test_composed_pieces_read_the_same_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
