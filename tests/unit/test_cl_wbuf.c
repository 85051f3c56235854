/*
 * Write buffers: whatever is written, cut and sealed, the slices give back exactly the written bytes; what is stored in between is zero
 * and never the pool's old content; pages are neither lost nor doubled.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/data/pool.h"
#include "client/data/wbuf.h"
#include "tests/unit/cl_rand.h"

#define WIN_MAX (16u << 20)
#define OLD 0xA5 /* what the pool's pages held before */

static struct {
    uint8_t *pages[CL_WBUF_PAGES_MAX];
    uint32_t nfree, total;
    uint8_t *base;
} pool;

static uint8_t *model, *mask, *data;

static int setup(void **state)
{
    (void)state;
    pool.total = CL_WBUF_PAGES_MAX;
    pool.base = malloc((size_t)pool.total * CL_PAGE_BYTES);
    memset(pool.base, OLD, (size_t)pool.total * CL_PAGE_BYTES);
    for (uint32_t i = 0; i < pool.total; i++)
        pool.pages[i] = pool.base + (size_t)i * CL_PAGE_BYTES;
    pool.nfree = pool.total;
    model = malloc(WIN_MAX);
    mask = malloc(WIN_MAX);
    data = malloc(WIN_MAX);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(pool.base);
    free(model);
    free(mask);
    free(data);
    return 0;
}

static void give(uint8_t **pages, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        memset(pages[i], OLD, CL_PAGE_BYTES);
        pool.pages[pool.nfree++] = pages[i];
    }
    assert_true(pool.nfree <= pool.total);
}

static void write_some(struct rnd *r, struct cl_wbuf *b, uint32_t off, uint32_t len)
{
    uint8_t *pages[CL_WBUF_PAGES_MAX];
    uint32_t need = cl_wbuf_missing(b, off, len), base = rnd_below(r, 251);

    if (cl_wbuf_would_overflow(b, off, len))
        return;
    assert_true(need <= pool.nfree);
    for (uint32_t i = 0; i < need; i++)
        pages[i] = pool.pages[--pool.nfree];
    assert_int_equal(cl_wbuf_attach(b, off, len, pages), need);
    assert_int_equal(cl_wbuf_missing(b, off, len), 0);
    for (uint32_t i = 0; i < len; i++)
        data[i] = (uint8_t)(1 + (base + i) % 251);
    cl_wbuf_copy_in(b, off, data, len);
    assert_true(cl_wbuf_add_range(b, off, len));
    memcpy(model + off, data, len);
    memset(mask + off, 1, len);
}

static void check_ranges(const struct cl_wbuf *b, uint32_t win_bytes)
{
    uint32_t at = 0;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < b->nranges; i++) {
        const struct cl_range *g = &b->range[i];

        assert_true(g->len > 0 && (i == 0 || g->off > at));
        for (; at < g->off; at++)
            assert_int_equal(mask[at], 0);
        for (; at < g->off + g->len; at++)
            assert_int_equal(mask[at], 1);
        sum += g->len;
    }
    for (; at < win_bytes; at++)
        assert_int_equal(mask[at], 0);
    assert_int_equal(cl_wbuf_bytes(b), sum);
}

static void check_no_page_twice(const struct cl_wbuf *b, uint8_t **spare, uint32_t nspare)
{
    uint32_t seen = 0;
    uint8_t *bits = calloc(pool.total, 1);

    for (uint32_t i = 0; i < b->npages + nspare + pool.nfree; i++) {
        uint8_t *p = i < b->npages ? b->page[i] : i < b->npages + nspare ? spare[i - b->npages] : pool.pages[i - b->npages - nspare];

        if (!p)
            continue;
        assert_int_equal(bits[(p - pool.base) / CL_PAGE_BYTES], 0);
        bits[(p - pool.base) / CL_PAGE_BYTES] = 1;
        seen++;
    }
    assert_int_equal(seen, pool.total);
    free(bits);
}

/* Bytes of the chunk: written ones are right, others zero, up to the device block behind the end. */
static void check_chunk(const struct cl_wbuf *b)
{
    uint32_t padded = (b->chunk_len + 4095) & ~4095u;
    uint8_t *got = malloc(padded), *covered = calloc(padded, 1);
    uint32_t blocks = (b->chunk_len + CL_PAGE_BYTES - 1) / CL_PAGE_BYTES;

    for (uint32_t i = 0; i < b->npages; i++)
        assert_int_equal(b->page[i] != NULL, i >= b->base && i < b->base + blocks);
    cl_wbuf_copy_out(b, 0, got, padded);
    for (uint32_t i = 0; i < b->nranges; i++) {
        const struct cl_range *g = &b->range[i];

        assert_true(g->chunk_off + g->len <= b->chunk_len);
        assert_memory_equal(got + g->chunk_off, model + g->off, g->len);
        memset(covered + g->chunk_off, 1, g->len);
    }
    for (uint32_t i = 0; i < padded; i++)
        if (!covered[i])
            assert_int_equal(got[i], 0);
    free(got);
    free(covered);
}

static void random_writes(struct rnd *r, struct cl_wbuf *b, uint32_t win_bytes)
{
    uint32_t ops = 1 + rnd_below(r, 60), kind = rnd_below(r, 3), at = rnd_below(r, win_bytes);

    for (uint32_t i = 0; i < ops; i++) {
        uint32_t most = kind == 0 ? 300 : kind == 1 ? 5000 : 200000, off, len;

        off = kind == 0 && rnd_below(r, 4) ? (at + i * 700) % win_bytes : rnd_below(r, win_bytes);
        len = 1 + rnd_below(r, most < win_bytes - off ? most : win_bytes - off);
        write_some(r, b, off, len);
        if (rnd_below(r, 20) == 0) {
            uint32_t new_len = rnd_below(r, win_bytes);

            cl_wbuf_truncate(b, new_len);
            memset(mask + new_len, 0, win_bytes - new_len);
        }
    }
}

static void test_wbuf_random_writes_come_back_through_slices(void **state)
{
    static const uint32_t sizes[] = {64u << 10, 256u << 10, 1u << 20, 1u << 20};
    struct rnd r;
    uint32_t packed = 0, in_place = 0;

    (void)state;
    rnd_init(&r, rnd_seed(), 2);
    for (int round = 0; round < 400; round++) {
        uint32_t win = sizes[rnd_below(&r, 4)], nspare;
        struct cl_wbuf *b = cl_wbuf_new(NULL, 3, win);
        uint8_t *spare[CL_WBUF_PAGES_MAX];

        memset(mask, 0, win);
        random_writes(&r, b, win);
        check_ranges(b, win);
        if (b->nranges == 0)
            write_some(&r, b, rnd_below(&r, win), 1);
        assert_int_equal(cl_wbuf_is_full(b, win), b->nranges == 1 && cl_wbuf_bytes(b) == win);
        nspare = cl_wbuf_seal(b, spare);
        assert_int_equal(b->state, CL_WBUF_SEALED);
        check_no_page_twice(b, spare, nspare);
        check_chunk(b);
        if (b->chunk_len == cl_wbuf_bytes(b))
            packed++;
        else
            in_place++;
        give(spare, nspare);
        for (uint32_t i = 0; i < b->npages; i++)
            if (b->page[i])
                give(&b->page[i], 1);
        cl_wbuf_free(b);
        assert_int_equal(pool.nfree, pool.total);
    }
    assert_true(packed > 0 && in_place > 0);
}

static void test_wbuf_truncate_after_seal_keeps_the_rest(void **state)
{
    struct rnd r;

    (void)state;
    rnd_init(&r, rnd_seed(), 3);
    for (int round = 0; round < 100; round++) {
        uint32_t win = 256u << 10, cut = rnd_below(&r, win), nspare;
        struct cl_wbuf *b = cl_wbuf_new(NULL, 0, win);
        uint8_t *spare[CL_WBUF_PAGES_MAX];

        memset(mask, 0, win);
        random_writes(&r, b, win);
        if (b->nranges == 0)
            write_some(&r, b, 0, 10);
        nspare = cl_wbuf_seal(b, spare);
        give(spare, nspare);
        cl_wbuf_truncate(b, cut);
        memset(mask + cut, 0, win - cut);
        check_ranges(b, win);
        for (uint32_t i = 0; i < b->nranges; i++) {
            cl_wbuf_copy_out(b, b->range[i].chunk_off, data, b->range[i].len);
            assert_memory_equal(data, model + b->range[i].off, b->range[i].len);
        }
        for (uint32_t i = 0; i < b->npages; i++)
            if (b->page[i])
                give(&b->page[i], 1);
        cl_wbuf_free(b);
    }
    assert_int_equal(pool.nfree, pool.total);
}

static void test_wbuf_refuses_the_range_too_many(void **state)
{
    struct cl_wbuf *b = cl_wbuf_new(NULL, 0, 1u << 20);

    (void)state;
    for (uint32_t i = 0; i < CL_WBUF_RANGES_MAX; i++) {
        assert_false(cl_wbuf_would_overflow(b, i * 1000, 10));
        assert_true(cl_wbuf_add_range(b, i * 1000, 10));
    }
    assert_true(cl_wbuf_would_overflow(b, 500, 10));
    assert_false(cl_wbuf_add_range(b, 500, 10));
    assert_false(cl_wbuf_would_overflow(b, 10, 10)); /* joins the first */
    assert_true(cl_wbuf_add_range(b, 10, 990));      /* joins two */
    assert_int_equal(b->nranges, CL_WBUF_RANGES_MAX - 1);
    assert_true(cl_wbuf_add_range(b, 0, 1u << 20));
    assert_true(cl_wbuf_is_full(b, 1u << 20));
    cl_wbuf_free(b);
}

static void test_wbuf_overlay_names_buffer_then_chunk(void **state)
{
    static struct cl_overlay o;
    struct cl_wbuf *b = cl_wbuf_new(NULL, 0, 1u << 20);
    uint8_t *spare[CL_WBUF_PAGES_MAX];
    struct rnd r;

    (void)state;
    rnd_init(&r, 1, 1);
    memset(mask, 0, 1u << 20);
    write_some(&r, b, 100000, 50);
    write_some(&r, b, 900000, 50);
    cl_overlay_init(&o, 0, 1u << 20);
    assert_int_equal(cl_wbuf_overlay(b, &o), 0);
    assert_ptr_equal(o.piece[1].buf, b);
    assert_int_equal(o.piece[1].src_off, 900000);
    give(spare, cl_wbuf_seal(b, spare));
    cl_overlay_init(&o, 0, 1u << 20);
    assert_int_equal(cl_wbuf_overlay(b, &o), 0);
    assert_int_equal(o.piece[1].src_off, 50); /* packed */
    b->state = CL_WBUF_STORED;
    b->chunk.id = 77;
    cl_overlay_init(&o, 0, 1u << 20);
    assert_int_equal(cl_wbuf_overlay(b, &o), 0);
    assert_null(o.piece[1].buf);
    assert_int_equal(o.piece[1].chunk.id, 77);
    for (uint32_t i = 0; i < b->npages; i++)
        if (b->page[i])
            give(&b->page[i], 1);
    cl_wbuf_free(b);
}

/* Large copies go another way than small ones: whatever their length and place, what is written is there, and nothing beside it is touched. */
static void test_wbuf_copies_any_length_to_any_place(void **state)
{
    static const uint32_t lens[] = {1, 4096, 16383, 16384, 16385, 16447, 65535, 65536, 65537, 131072, 200001};
    static const uint32_t places[] = {0, 1, 8, 16, 48, 64, 4096, 49152, 65520, 65535};

    (void)state;
    for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        for (unsigned k = 0; k < sizeof(places) / sizeof(places[0]); k++) {
            struct cl_wbuf *b = cl_wbuf_new(NULL, 0, 1u << 20);
            uint32_t at = places[k], len = lens[i];
            const uint8_t *page = pool.base;

            for (uint32_t j = 0; j < 5; j++)
                b->page[j] = pool.base + (size_t)j * CL_PAGE_BYTES;
            memset(pool.base, OLD, 5 * CL_PAGE_BYTES);
            for (uint32_t j = 0; j < len; j++)
                data[j + i] = (uint8_t)(j * 7 + j / 251 + i + k);
            cl_wbuf_copy_in(b, at, data + i, len); /* from any place too */
            assert_memory_equal(page + at, data + i, len);
            assert_true(at == 0 || page[at - 1] == OLD);
            assert_int_equal(page[at + len], OLD);
            memset(b->page, 0, 5 * sizeof(b->page[0]));
            free(b);
        }
    }
}

/* Received for the second half of page 1 to the first of page 6: what is there already is left where it is, what is written in part is taken as the rest is. */
static void test_wbuf_takes_received_pages_in_exchange(void **state)
{
    struct cl_wbuf *b = cl_wbuf_new(NULL, 0, 1u << 20);
    uint8_t *received[6], *had[6], *fresh[6], *there, *page = pool.base;
    bool taken[6];

    (void)state;
    for (unsigned k = 0; k < 6; k++, page += CL_PAGE_BYTES)
        received[k] = had[k] = page;
    for (unsigned k = 0; k < 6; k++, page += CL_PAGE_BYTES)
        fresh[k] = page;
    b->page[3] = there = page;
    assert_int_equal(cl_wbuf_attach_received(b, CL_PAGE_BYTES + CL_PAGE_BYTES / 2, 5 * CL_PAGE_BYTES, fresh, received, taken), 5);
    for (unsigned k = 0; k < 6; k++)
        assert_int_equal(taken[k], k != 2);
    assert_ptr_equal(b->page[3], there);
    for (unsigned k = 0, n = 0; k < 6; k++) {
        assert_ptr_equal(received[k], taken[k] ? fresh[n++] : had[k]);
        if (taken[k])
            assert_ptr_equal(b->page[k + 1], had[k]);
    }
    assert_null(b->page[0]);
    assert_null(b->page[7]);
    assert_int_equal(cl_wbuf_attach_received(b, CL_PAGE_BYTES, 6 * CL_PAGE_BYTES, fresh + 5, received, taken), 0);
    for (unsigned k = 0; k < 6; k++)
        assert_false(taken[k]);
    memset(b->page, 0, 8 * sizeof(b->page[0]));
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wbuf_random_writes_come_back_through_slices),
        cmocka_unit_test(test_wbuf_truncate_after_seal_keeps_the_rest),
        cmocka_unit_test(test_wbuf_refuses_the_range_too_many),
        cmocka_unit_test(test_wbuf_overlay_names_buffer_then_chunk),
        cmocka_unit_test(test_wbuf_copies_any_length_to_any_place),
        cmocka_unit_test(test_wbuf_takes_received_pages_in_exchange),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
